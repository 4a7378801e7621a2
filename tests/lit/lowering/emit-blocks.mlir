// DEFINE: %{read} = func.func(linalg-generalize-named-ops),group-operands
// RUN: %lowering opt %s -p '%{read},instantiate{target=cuda:sm_90a tier=native},emit-body{target=cuda:sm_90a}' >%t
// RUN: %filecheck %s --check-prefix=PTX <%t
// RUN: %filecheck %s --check-prefix=ELEMENTS <%t
// RUN: %lowering opt %s -p '%{read},instantiate{target=rocm:gfx1100 tier=native},emit-body{target=rocm:gfx1100}' | %filecheck %s --check-prefix=RDNA

// A is copied asynchronously, 16 bytes at a time; B comes in words that are aligned whatever the
// block's place, and is decoded before the barrier, while A is still on its way.
// PTX-LABEL: module @gemm__32x32x32_w1x1_s2__mma_sync attributes
// PTX-SAME:    groups = [{a = "f16", acc = "f32", b = "f16", instruction = "mma.sync.m16n8k16.f32.f16"
// PTX-SAME:    needs = {alignment = {K = 8 : i64, a.0 = 8 : i64, b.0 = 2 : i64}
// PTX-COUNT-2: @p ld.global.u32 $0, {{.*}} @p ld.global.u32 $3, {{.*}} @q ld.global.u16 $4, {{.*}} @p ld.global.u16 $5
// PTX-COUNT-4: cp.async.cg.shared.global
// PTX:         cp.async.commit_group
// PTX:         shf.r.wrap.b32
// PTX:         prmt.b32 {{.*}} sub.rn.f16x2 {{.*}} mul.rn.f16x2
// PTX-COUNT-4: st.shared.v4.b32
// PTX:         cp.async.wait_group 0
// PTX-NEXT:    gpu.barrier
// PTX:         scf.for
// PTX-COUNT-2:   @p ld.global.u32
// PTX:           cp.async.commit_group
// PTX-COUNT-8:   mma.sync.aligned
// PTX-COUNT-4:   st.shared.v4.b32
// PTX:           cp.async.wait_group 0
// PTX-NEXT:      gpu.barrier
// PTX-NOT:     scf.if
// PTX:         return

// Rows of A that are aligned to nothing are loaded by elements, in two stages as well.
// ELEMENTS-LABEL: module @gemm__32x32x32_w1x1_s2__mma_sync_narrow attributes
// ELEMENTS-SAME:    needs = {alignment = {b.0 = 2 : i64}
// ELEMENTS-NOT:     cp.async
// ELEMENTS:         mul.rn.f16x2
// ELEMENTS:         return

// Words of the block, shifted; products in f32, rounded, and stored eight at a time.
// RDNA-LABEL: module @gemm__32x32x32_w1x1_s2__wmma attributes
// RDNA-SAME:    needs = {alignment = {K = 8 : i64, a.0 = 8 : i64, b = 4 : i64, b.0 = 2 : i64}
// RDNA:         memref<?xi32, #hal.descriptor_type<storage_buffer>>
// RDNA:         scf.if
// RDNA:           arith.sitofp
// RDNA:           arith.mulf {{.*}} : f32
// RDNA:           arith.truncf {{.*}} : f32 to f16
// RDNA:           vector.store {{.*}} alignment = 16 : {{.*}} vector<8xf16>
// RDNA:         gpu.barrier
// RDNA:         scf.for
// RDNA:           amdgpu.wmma 16x16x16
// RDNA:           vector.store {{.*}} vector<8xf16>
// RDNA:           gpu.barrier
func.func private @decode_q8_0(tensor<?x?xi8>) -> tensor<?x?xf16> attributes {xpu.decode = "q8_0"}

func.func @gemm(%a: tensor<?x?xf16>, %raw: tensor<?x?xi8>, %c: tensor<?x?xf32>) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], xpu.instantiate = [
      {m = 32, n = 32, k = 32, waves_m = 1, waves_n = 1, stages = 2}]} {
  %b = func.call @decode_q8_0(%raw) : (tensor<?x?xi8>) -> tensor<?x?xf16>
  %0 = linalg.matmul
      indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
                       affine_map<(m, n, k) -> (n, k)>,
                       affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : tensor<?x?xf16>, tensor<?x?xf16>)
      outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}
