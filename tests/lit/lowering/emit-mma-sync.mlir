// DEFINE: %{read} = func.func(linalg-generalize-named-ops),group-operands
// DEFINE: %{ours} = select-tier{target=cuda:sm_90a},instantiate{target=cuda:sm_90a},emit-body{target=cuda:sm_90a}
// RUN: %lowering opt %s -p '%{read},%{ours}' >%t
// RUN: %filecheck %s <%t
// RUN: %filecheck %s --check-prefix=BODIES <%t

// Two stages are what the bodies for operands of any alignment have, too.
// BODIES:     @gemm__64x32x32_w2x1_s3__mma_sync attributes
// BODIES-NOT: @gemm__64x32x32_w2x1_s3__
// BODIES:     @gemm__32x32x32_w1x1_s2__mma_sync attributes
// BODIES:     @gemm__32x32x32_w1x1_s2__mma_sync_words attributes
// BODIES:     @gemm__32x32x32_w1x1_s2__mma_sync_narrow attributes

// The tiles of the matrix lie along x, and the copies need rows of whole 16 bytes.
// CHECK-LABEL: module @gemm__64x32x32_w2x1_s3__mma_sync attributes
// CHECK-SAME:    groups = [{a = "f16", acc = "f32", b = "f16", instruction = "mma.sync.m16n8k16.f32.f16"
// CHECK-SAME:    launch = {bindings = ["a", "b", "c"]
// CHECK-SAME:    dynamic_shared_bytes = 18432
// CHECK-SAME:    grid = ["ceildiv(N, 32) * ceildiv(M, 64)", "1", "1"]
// CHECK-SAME:    needs = {alignment = {K = 8 : i64, N = 8 : i64, a.0 = 8 : i64, b.0 = 8 : i64}
// CHECK:         func.func @gemm() attributes {nvvm.minctasm = 1 : i32, translation_info = #{{.*}}
// CHECK:           memref.alloc() alignment = 1024 : memref<18432xi8, #gpu.address_space<workgroup>>

// Two tiles of K are on their way before the loop: A in four passes, B in two.
// CHECK-COUNT-6:   cp.async.cg.shared.global
// CHECK:           cp.async.commit_group
// CHECK-COUNT-6:   cp.async.cg.shared.global
// CHECK:           cp.async.commit_group
// CHECK:           cp.async.wait_group 1
// CHECK-NEXT:      gpu.barrier
// CHECK-COUNT-2:   ldmatrix.sync.aligned.m8n8.x4.shared.b16
// CHECK-COUNT-2:   ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16
// CHECK:           scf.for

// The second step's fragments, the next tile's copies, the first step's products; then the barrier
// of the next tile between the two, and nowhere a branch.
// CHECK-NOT:       scf.if
// CHECK-COUNT-4:     ldmatrix.sync.aligned
// CHECK-COUNT-6:     cp.async.cg.shared.global
// CHECK:             cp.async.commit_group
// CHECK-COUNT-8:     mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
// CHECK:             cp.async.wait_group 1
// CHECK-NEXT:        gpu.barrier
// CHECK-COUNT-4:     ldmatrix.sync.aligned
// CHECK-COUNT-8:     mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
// CHECK:             scf.yield
// CHECK:           cp.async.wait_group 0
// CHECK-NOT:       scf.if
// CHECK-COUNT-16:  st.global.v2.b32
// CHECK:           return
func.func @gemm(%a: tensor<?x?xf16>, %b: tensor<?x?xf16>) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], xpu.instantiate = [
      {m = 64, n = 32, k = 32, waves_m = 2, waves_n = 1, stages = 3},
      {m = 32, n = 32, k = 32, waves_m = 1, waves_n = 1, stages = 2}]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %a, %c0 : tensor<?x?xf16>
  %n = tensor.dim %b, %c1 : tensor<?x?xf16>
  %empty = tensor.empty(%m, %n) : tensor<?x?xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x?xf32>) -> tensor<?x?xf32>
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf16>, tensor<?x?xf16>) outs(%init : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}
