// DEFINE: %{read} = func.func(linalg-generalize-named-ops),group-operands
// RUN: not %lowering opt %s --split-input-file -p '%{read}' 2>&1 | %filecheck %s

// CHECK: error: kernel 'no_meaning': a kernel in cooperative-matrix IR says what it computes by xpu.reference = @name
func.func @no_meaning(%c: memref<?x?xf32>, %m: index, %n: index, %k: index)
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]} {
  return
}

// -----

// CHECK: error: kernel 'no_tiles': a kernel in cooperative-matrix IR multiplies at least one tile
func.func @product(%a: tensor<?x?xf16>, %b: tensor<?x?xf16>, %c: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf16>, tensor<?x?xf16>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}
func.func @no_tiles(%a: memref<?x?xf16>, %b: memref<?x?xf16>, %c: memref<?x?xf32>, %m: index, %n: index, %k: index)
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], xpu.reference = @product} {
  return
}

// -----

// The meaning adds to C, so the kernel must read it.
// CHECK: error: kernel 'not_added': 'c' has write access, the reference says readwrite
func.func @product(%a: tensor<?x?xf16>, %b: tensor<?x?xf16>, %c: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf16>, tensor<?x?xf16>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}
func.func @not_added(%a: memref<?x?xf16>, %b: memref<?x?xf16>, %c: memref<?x?xf32>, %m: index, %n: index, %k: index)
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], xpu.reference = @product} {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %acc = gpu.subgroup_mma_constant_matrix %zero : !gpu.mma_matrix<16x16xf32, "COp">
  %x = gpu.subgroup_mma_load_matrix %a[%c0, %c0] leadDimension 0 : memref<?x?xf16> -> !gpu.mma_matrix<16x16xf16, "AOp">
  %y = gpu.subgroup_mma_load_matrix %b[%c0, %c0] leadDimension 0 : memref<?x?xf16> -> !gpu.mma_matrix<16x16xf16, "BOp">
  %d = gpu.subgroup_mma_compute %x, %y, %acc : !gpu.mma_matrix<16x16xf16, "AOp">, !gpu.mma_matrix<16x16xf16, "BOp"> -> !gpu.mma_matrix<16x16xf32, "COp">
  gpu.subgroup_mma_store_matrix %d, %c[%c0, %c0] leadDimension 0 : !gpu.mma_matrix<16x16xf32, "COp">, memref<?x?xf32>
  return
}

// -----

// Types of tiles are those of the reference, their sign too.
// CHECK: error: kernel 'sign': a tile of u8 is no part of 'a', which is i8 with sizes M, K
func.func @product(%a: tensor<?x?xi8>, %b: tensor<?x?xi8>, %c: tensor<?x?xi32>) -> tensor<?x?xi32> {
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xi8>, tensor<?x?xi8>) outs(%c : tensor<?x?xi32>) -> tensor<?x?xi32>
  return %0 : tensor<?x?xi32>
}
func.func @sign(%a: memref<?x?xi8>, %b: memref<?x?xi8>, %c: memref<?x?xi32>, %m: index, %n: index, %k: index)
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], xpu.reference = @product} {
  %c0 = arith.constant 0 : index
  %acc = gpu.subgroup_mma_load_matrix %c[%c0, %c0] leadDimension 0 : memref<?x?xi32> -> !gpu.mma_matrix<16x16xi32, "COp">
  %x = gpu.subgroup_mma_load_matrix %a[%c0, %c0] leadDimension 0 : memref<?x?xi8> -> !gpu.mma_matrix<16x16xui8, "AOp">
  %y = gpu.subgroup_mma_load_matrix %b[%c0, %c0] leadDimension 0 : memref<?x?xi8> -> !gpu.mma_matrix<16x16xui8, "BOp">
  %d = gpu.subgroup_mma_compute %x, %y, %acc : !gpu.mma_matrix<16x16xui8, "AOp">, !gpu.mma_matrix<16x16xui8, "BOp"> -> !gpu.mma_matrix<16x16xi32, "COp">
  gpu.subgroup_mma_store_matrix %d, %c[%c0, %c0] leadDimension 0 : !gpu.mma_matrix<16x16xi32, "COp">, memref<?x?xi32>
  return
}
