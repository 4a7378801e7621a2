// RUN: %lowering passes | %filecheck %s --check-prefix=PASSES
// PASSES:       verify-declarations
// PASSES-NEXT:      Check every ``xpu.*`` attribute of the module; the IR stays as it is.
// PASSES:       scan-launches
// PASSES:       group-operands
// PASSES:       select-tier {target=cpu}
// PASSES:       instantiate {target=cpu tier='' body=''}
// PASSES:       emit-body {target=cpu}
// PASSES:       apply-declarations {target=cpu}
// RUN: %lowering passes --json | %python -c "import json, sys; print([(p['name'], p['options']) for p in json.load(sys.stdin)['passes']][4])" | %filecheck %s --check-prefix=PASSES-JSON
// PASSES-JSON: ('instantiate', {'target': 'cpu', 'tier': '', 'body': ''})

// Without a sub-command: compile for this machine's processor, print the table.
// RUN: %lowering %s | %filecheck %s --check-prefix=TABLE
// TABLE: kernel {{.*}} member {{.*}} body {{.*}} target {{.*}} tier {{.*}} gates
// TABLE: gemm {{.*}} 16x16x16_t4x4 {{.*}} cpu_mmt4d {{.*}} cpu:{{.*}} software {{.*}} a:read b:read c:readwrite {{.*}} ok
// TABLE: footprint
// TABLE: registers {{.*}} sgprs {{.*}} spill B {{.*}} static shared B {{.*}} limiter
// TABLE: absent
// TABLE: cpu:{{.*}} registers, sgprs, {{.*}} a processor's code has no launch

// Each failure is one line with its place; --json prints the same as an object.
// RUN: echo "func.func @f( {" >%t.cut.mlir
// RUN: not %lowering %t.cut.mlir 2>&1 | %filecheck %s --check-prefix=PARSE
// PARSE: cut.mlir:1:14: error: expected non-function type
// RUN: not %lowering compile %t.cut.mlir --json 2>%t.err | %filecheck %s --check-prefix=FAILURES --match-full-lines
// RUN: %filecheck %s --check-prefix=PARSE <%t.err
// FAILURES:      {
// FAILURES-NEXT:  "failures": [
// FAILURES-NEXT:   {
// FAILURES-NEXT:    "kind": "parse",
// FAILURES-NEXT:    "message": "expected non-function type",
// FAILURES-NEXT:    "where": "{{.*}}cut.mlir:1:14"
// FAILURES-NEXT:   }
// FAILURES-NEXT:  ]
// FAILURES-NEXT: }

// RUN: not %lowering %s --target tpu 2>&1 | %filecheck %s --check-prefix=TARGET
// TARGET: error: target 'tpu' is not one of cpu, cuda:sm_NN, rocm:gfxNNN, vulkan, a facts file, device:<uri>

func.func @gemm(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>, %c: tensor<?x?xf32>) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], xpu.instantiate = [
      {m = 16, n = 16, k = 16, thread_m = 4, thread_n = 4}]} {
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf32>, tensor<?x?xf32>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}
