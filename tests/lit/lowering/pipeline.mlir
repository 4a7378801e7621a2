// Our passes and the compiler's own in one pipeline, by MLIR's textual form and its flags.

// RUN: %lowering opt %s --split-input-file --pass-pipeline='builtin.module(verify-declarations,func.func(linalg-generalize-named-ops,canonicalize{max-iterations=2}),group-operands,select-tier{target="rocm:gfx1100"},cse)' 2>%t.notes | %filecheck %s
// RUN: %filecheck %s --check-prefix=NOTES <%t.notes
// NOTES: note: f16*f16->f32 on rocm:gfx1100: native, the target lists wmma_f32_16x16x16_f16

// What stays is what a pass has not rewritten. The mark between the parts is back in the output.
// CHECK:      func.func @first
// CHECK-SAME:   xpu.groups = [{{.*}} tier = "native"
// CHECK:        linalg.generic
// CHECK:      // -----
// CHECK:      func.func @second

// RUN: not %lowering opt %s -p 'verify-declarations,nonsense' 2>&1 | %filecheck %s --check-prefix=UNKNOWN
// UNKNOWN: error: pass 'nonsense': 'nonsense' does not refer to a registered pass or pass pipeline
// RUN: not %lowering opt %s -p 'select-tier{device=cpu}' 2>&1 | %filecheck %s --check-prefix=OPTION
// OPTION: error: pass 'select-tier' has no option 'device=cpu', options are: target
// RUN: not %lowering opt %s -p 'builtin.module(verify-declarations' 2>&1 | %filecheck %s --check-prefix=BRACKETS
// BRACKETS: error: pass pipeline 'builtin.module(verify-declarations' has unbalanced brackets

// Dumps go to standard error, as those of iree-opt do, the output stays the output.
// RUN: %lowering opt %s -p 'verify-declarations,func.func(linalg-generalize-named-ops)' --mlir-print-ir-after-all 2>%t.dump | %filecheck %s --check-prefix=OUTPUT
// RUN: %filecheck %s --check-prefix=DUMP <%t.dump
// OUTPUT-NOT: IR Dump
// OUTPUT:     func.func @first
// DUMP:       IR Dump After verify-declarations
// DUMP:       linalg.matmul
// DUMP:       IR Dump After LinalgGeneralizeNamedOps
// DUMP:       linalg.generic

// RUN: rm -rf %t.tree
// RUN: %lowering opt %s -p 'verify-declarations,func.func(linalg-generalize-named-ops),group-operands' --mlir-print-ir-tree-dir=%t.tree
// RUN: ls %t.tree/builtin_module_no-symbol-name %t.tree/builtin_module_no-symbol-name/func_func_first | %filecheck %s --check-prefix=TREE
// RUN: %filecheck %s --check-prefix=LAST <%t.tree/builtin_module_no-symbol-name/1_group-operands.mlir
// TREE-DAG: 0_verify-declarations.mlir
// TREE-DAG: 0_0_linalg-generalize-named-ops.mlir
// TREE-DAG: 1_group-operands.mlir
// LAST:     xpu.contraction

// Each part keeps the line numbers of the file, and one that is wrong does not hide another.
// RUN: not %lowering opt %s -p 'group-operands' --split-input-file 2>%t.lines
// RUN: %filecheck %s --check-prefix=LINES <%t.lines

// LINES: pipeline.mlir:[[# @LINE + 1]]:1: error: kernel 'first': expected a linalg contraction
func.func @first(%a: tensor<?x?xf16>, %b: tensor<?x?xf16>, %c: tensor<?x?xf32>) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]} {
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf16>, tensor<?x?xf16>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}

// -----

// LINES: pipeline.mlir:[[# @LINE + 1]]:1: error: kernel 'second': expected a linalg contraction
func.func @second(%a: tensor<?x?xf16>, %b: tensor<?x?xf16>, %c: tensor<?x?xf32>) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]} {
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf16>, tensor<?x?xf16>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}
