// RUN: %lowering opt %s -p 'func.func(linalg-generalize-named-ops),group-operands,instantiate{body=iree},emit-body' | %filecheck %s
// RUN: %lowering opt %s -p 'func.func(linalg-generalize-named-ops),group-operands,instantiate,emit-body' | %filecheck %s --check-prefix=UNASKED
// RUN: not %lowering opt %s -p 'func.func(linalg-generalize-named-ops),group-operands,instantiate{target=rocm:gfx1100 body=iree},emit-body' 2>&1 | %filecheck %s --check-prefix=REFUSED

// One linalg operation with the member's configuration; its result goes into the caller's buffer.
// CHECK:      #iree_cpu.lowering_config<distribution = [16, 16, 0], vector_common_parallel = [4, 4, 0], vector_reduction = [0, 0, 4]>
// CHECK:      #iree_codegen.translation_info<pipeline = #iree_cpu.pipeline<DoubleTilingExpert>>
// CHECK:      module @gemm__16x16x4_t4x4__iree
// CHECK:        util.func public @gemm.async(
// CHECK:          hal.tensor.import {{.*}} => %arg0 "a" : !hal.buffer -> tensor<?x?xf32>
// CHECK:          hal.tensor.import {{.*}} => %arg1 "b" : !hal.buffer -> tensor<?x?xf32>
// CHECK:          linalg.fill
// CHECK:          linalg.generic {{.*}}compilation_info = #
// CHECK:          hal.tensor.alias {{.*}} to %arg2 : !hal.buffer
// CHECK:        util.func public @gemm(
// CHECK:        util.func public @gemm.repeat(

// It is slow to build, so nobody gets it who does not name it.
// UNASKED:     module @gemm__16x16x4_t4x4__cpu_mmt4d
// UNASKED-NOT: __iree

// REFUSED: error: kernel 'gemm': no member can be built for rocm:gfx1100: member 16x16x4_t4x4: {{.*}}software was not asked for
func.func @gemm(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>) -> tensor<?x?xf32> attributes {xpu.kernel, xpu.dims = ["M", "N", "K"],
    xpu.instantiate = [{m = 16, n = 16, k = 4, thread_m = 4, thread_n = 4}]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %a, %c0 : tensor<?x?xf32>
  %n = tensor.dim %b, %c1 : tensor<?x?xf32>
  %empty = tensor.empty(%m, %n) : tensor<?x?xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x?xf32>) -> tensor<?x?xf32>
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf32>, tensor<?x?xf32>) outs(%init : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}
