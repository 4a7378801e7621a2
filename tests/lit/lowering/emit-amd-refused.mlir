// DEFINE: %{read} = func.func(linalg-generalize-named-ops),group-operands
// RUN: not %lowering opt %s -p '%{read},instantiate{target=rocm:gfx1100},emit-body{target=rocm:gfx1100}' --split-input-file 2>&1 | %filecheck %s --check-prefix=RDNA
// RUN: not %lowering opt %s -p '%{read},instantiate{target=rocm:gfx942},emit-body{target=rocm:gfx942}' --split-input-file 2>&1 | %filecheck %s --check-prefix=CDNA

// RDNA: [[# @LINE + 2]]:1: error: member 24x16x16_w1x1: no wmma shape for f16*f16->f32 divides the wave tile
// CDNA: [[# @LINE + 1]]:1: error: member 24x16x16_w1x1: gfx942 has no wmma for f16*f16->f32
func.func @tile(%a: tensor<?x?xf16>, %b: tensor<?x?xf16>, %c: tensor<?x?xf32>) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], xpu.instantiate = [
      {m = 24, n = 16, k = 16, waves_m = 1, waves_n = 1, body = "wmma"}]} {
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf16>, tensor<?x?xf16>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}

// -----

// RDNA: [[# @LINE + 2]]:1: error: member 16x16x16_t4x4: wmma_narrow needs waves_m and waves_n
// CDNA: [[# @LINE + 1]]:1: error: member 16x16x16_t4x4: gfx942 has no wmma for f16*f16->f32
func.func @lanes(%a: tensor<?x?xf16>, %b: tensor<?x?xf16>, %c: tensor<?x?xf32>) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], xpu.instantiate = [
      {m = 16, n = 16, k = 16, thread_m = 4, thread_n = 4, body = "wmma_narrow"}]} {
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf16>, tensor<?x?xf16>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}

// -----

// RDNA: [[# @LINE + 2]]:1: error: member 128x128x128_w2x2: gfx1100 has no mfma for f32*f32->f32
// CDNA: [[# @LINE + 1]]:1: error: member 128x128x128_w2x2: workgroup memory 270336 B > 65536 B of rocm:gfx942
func.func @memory(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>, %c: tensor<?x?xf32>) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], xpu.instantiate = [
      {m = 128, n = 128, k = 128, waves_m = 2, waves_n = 2, body = "mfma"}]} {
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf32>, tensor<?x?xf32>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}

// -----

// RDNA: [[# @LINE + 2]]:1: error: member 128x128x32_w8x4: gfx1100 has no mfma for f16*f16->f32
// CDNA: [[# @LINE + 1]]:1: error: member 128x128x32_w8x4: 2048 lanes > 1024 of a workgroup
func.func @many(%a: tensor<?x?xf16>, %b: tensor<?x?xf16>, %c: tensor<?x?xf32>) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], xpu.instantiate = [
      {m = 128, n = 128, k = 32, waves_m = 8, waves_n = 4, body = "mfma_narrow"}]} {
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf16>, tensor<?x?xf16>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}
