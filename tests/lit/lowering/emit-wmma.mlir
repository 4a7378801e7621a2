// DEFINE: %{read} = func.func(linalg-generalize-named-ops),group-operands
// RUN: %lowering opt %s -p '%{read},instantiate{target=rocm:gfx1100 tier=native},emit-body{target=rocm:gfx1100}' >%t
// RUN: %filecheck %s --check-prefix=RDNA3 <%t
// RUN: %filecheck %s --check-prefix=NARROW <%t
// RUN: %lowering opt %s -p '%{read},instantiate{target=rocm:gfx1201 tier=native},emit-body{target=rocm:gfx1201}' | %filecheck %s --check-prefix=RDNA4

// A is stored as the instruction wants it: 16 bytes go straight to workgroup memory. B is turned on
// the way: two rows of k at a time, so that every lane has some, and k is innermost there too.
// RDNA3:       #translation = {{.*}} workgroup_size = [64, 1, 1] subgroup_size = 32
// RDNA3-LABEL: module @gemm__32x32x32_w2x1__wmma attributes
// RDNA3-SAME:    needs = {alignment = {K = 8 : i64, N = 8 : i64, a.0 = 8 : i64, b.0 = 8 : i64}, {{.*}}features = [], {{.*}}wave_width = 32 : i64
// RDNA3:         memref<?xvector<4xi32>, #hal.descriptor_type<storage_buffer>>
// RDNA3-COUNT-2: memref.alloc() : memref<2560xf16, #gpu.address_space<workgroup>>
// RDNA3:         vector.store {{.*}} alignment = 16 : {{.*}} vector<8xf16>
// RDNA3:         vector.from_elements {{.*}} : vector<2xf16>
// RDNA3:         vector.store {{.*}} alignment = 4 : {{.*}} vector<2xf16>
// RDNA3:         gpu.barrier
// RDNA3:         scf.for
// RDNA3:           memref.load {{.*}} : memref<?xvector<4xi32>
// RDNA3:           vector.load {{.*}} alignment = 16 : {{.*}} vector<16xf16>
// RDNA3-COUNT-4:   amdgpu.wmma 16x16x16 {{.*}} : vector<16xf16>, vector<16xf16>, vector<8xf32>
// RDNA3-NOT:       amdgpu.wmma
// RDNA3:           gpu.barrier
// RDNA3:         scf.if
// RDNA3:           vector.extract {{.*}} : f32 from vector<8xf32>

// Element by element: nothing to align, and lanes of a wave side by side along N still.
// NARROW-LABEL: module @gemm__32x32x32_w2x1__wmma_narrow attributes
// NARROW-SAME:    needs = {{[{].*}}features = [], {{.*}}wave_width = 32 : i64
// NARROW:         memref<?xf16, #hal.descriptor_type<storage_buffer>>
// NARROW:         memref.store {{.*}} #gpu.address_space<workgroup>
// NARROW:         amdgpu.wmma

// Half as many operands a lane, and neighbouring rows of the result.
// RDNA4-LABEL: module @gemm__32x32x32_w2x1__wmma attributes
// RDNA4:         vector.load {{.*}} alignment = 16 : {{.*}} vector<8xf16>
// RDNA4:         amdgpu.wmma 16x16x16 {{.*}} : vector<8xf16>, vector<8xf16>, vector<8xf32>
func.func @gemm(%a: tensor<?x?xf16>, %b: tensor<?x?xf16>, %c: tensor<?x?xf32>) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], xpu.instantiate = [
      {m = 32, n = 32, k = 32, waves_m = 2, waves_n = 1}]} {
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf16>, tensor<?x?xf16>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}
