// DEFINE: %{read} = func.func(linalg-generalize-named-ops),group-operands
// DEFINE: %{emit} = instantiate{target=vulkan},emit-body{target=vulkan}
// RUN: %lowering opt %s -p '%{read},%{emit}' | %filecheck %s
// RUN: sed 's/"K"/"splits"/' %s | not %lowering opt - -p verify-declarations 2>&1 \
// RUN:   | %filecheck %s --check-prefix=REFUSED

// The candidate says in what blocks K is cut, and how both launches of a split go.
// CHECK:       split = {k_block = 256 : i64, launch = {bindings = ["a", "b", "workspace"]
// CHECK-SAME:    constants = ["M", "N", "K", "a.0", "b.0", "c.0", "splits"]
// CHECK-SAME:    entry = "gemm_split", grid = ["ceildiv(N, 4)", "ceildiv(M, 4)", "splits"]
// CHECK-SAME:    then = [{bindings = ["workspace", "c"]
// CHECK-SAME:    entry = "reduce", grid = ["ceildiv(M * N, 256)", "1", "1"], overlaps = false}]
// CHECK-SAME:    max_splits = 16 : i64, workspace = "4 * M * N * splits"

// A slice has whole blocks, the last one takes the rest; sums go to the workspace unguarded by any
// epilogue.
// CHECK:       hal.executable.source private @__kernel_split
// CHECK:         func.func @gemm_split()
// CHECK:           %[[BLOCKS:.*]] = arith.divui %{{.*}}, %c256
// CHECK:           arith.divui %[[BLOCKS]],
// CHECK:           %[[LAST:.*]] = arith.cmpi eq
// CHECK:           %[[END:.*]] = arith.select %[[LAST]]
// CHECK:           scf.for %{{.*}} = %{{.*}} to %[[END]]

// The slices are added in order, then C is added to and written.
// CHECK:       hal.executable.source private @__reduce
// CHECK:         func.func @reduce()
// CHECK:           %[[SUM:.*]] = scf.for {{.*}} iter_args
// CHECK:             arith.addf
// CHECK:           arith.addf {{.*}}%[[SUM]]
// CHECK:           memref.store

// CHECK:       util.func public @gemm.split.async(
// CHECK:         %[[PARTIAL:.*]] = flow.dispatch @__kernel_split::@gemm_split
// CHECK:         flow.dispatch @__reduce::@reduce{{.*}}%[[PARTIAL]]
// CHECK:       util.func public @gemm.split(
// CHECK:       util.func public @gemm.split.repeat(

// REFUSED: error: xpu.dims: 'splits' is what split-K calls its slices
func.func @gemm(%a: tensor<?x?xf16>, %b: tensor<?x?xf16>, %c: tensor<?x?xf32>) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], xpu.instantiate = [
      {m = 4, n = 4, k = 2, thread_m = 2, thread_n = 2}]} {
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf16>, tensor<?x?xf16>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}
