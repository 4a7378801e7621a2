// DEFINE: %{read} = func.func(linalg-generalize-named-ops),group-operands
// RUN: %lowering opt %s -p '%{read},instantiate{target=rocm:gfx942 tier=native},emit-body{target=rocm:gfx942}' >%t
// RUN: %filecheck %s --check-prefix=CDNA3 <%t
// RUN: %filecheck %s --check-prefix=NARROW <%t
// RUN: %lowering opt %s -p '%{read},instantiate{target=rocm:gfx950 tier=native},emit-body{target=rocm:gfx950}' | %filecheck %s --check-prefix=CDNA4

// A wave of 64 takes the largest instruction that divides its part of the tile.
// CDNA3:       #translation = {{.*}} workgroup_size = [128, 1, 1] subgroup_size = 64
// CDNA3-LABEL: module @gemm__64x32x32_w2x1__mfma attributes
// CDNA3-SAME:    needs = {alignment = {K = 16 : i64, N = 16 : i64, a.0 = 16 : i64, b.0 = 16 : i64}, {{.*}}features = [], {{.*}}wave_width = 64 : i64
// CDNA3:         memref.alloc() : memref<6144xi8, #gpu.address_space<workgroup>>
// CDNA3:         memref.alloc() : memref<3072xi8, #gpu.address_space<workgroup>>
// CDNA3:         scf.for
// CDNA3:           vector.load {{.*}} alignment = 8 : {{.*}} vector<8xi8>
// CDNA3-COUNT-2:   amdgpu.mfma 32x32x16 {{.*}} : vector<8xi8>, vector<8xi8>, vector<16xi32>
// CDNA3-NOT:       amdgpu.mfma
// CDNA3:         vector.extract {{.*}} : i32 from vector<16xi32>

// NARROW-LABEL: module @gemm__64x32x32_w2x1__mfma_narrow attributes
// NARROW-SAME:    needs = {{[{].*}}features = [], {{.*}}wave_width = 64 : i64
// NARROW:         amdgpu.mfma 32x32x16

// Twice as deep.
// CDNA4-LABEL: module @gemm__64x32x32_w2x1__mfma attributes
// CDNA4:         amdgpu.mfma 32x32x32 {{.*}} : vector<16xi8>, vector<16xi8>, vector<16xi32>
func.func @gemm(%a: tensor<?x?xi8>, %b: tensor<?x?xi8>, %c: tensor<?x?xi32>) -> tensor<?x?xi32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], xpu.instantiate = [
      {m = 64, n = 32, k = 32, waves_m = 2, waves_n = 1}]} {
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xi8>, tensor<?x?xi8>) outs(%c : tensor<?x?xi32>) -> tensor<?x?xi32>
  return %0 : tensor<?x?xi32>
}
