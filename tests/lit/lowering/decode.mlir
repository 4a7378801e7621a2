// RUN: not %lowering opt %s -p 'verify-declarations,func.func(linalg-generalize-named-ops),group-operands' --split-input-file 2>%t | %filecheck %s
// RUN: %filecheck %s --check-prefix=REFUSED <%t

// A call of a declaration with xpu.decode says where an operand's elements come from.
// CHECK-LABEL: func.func private @decode(tensor<?x?xi8>) -> tensor<?x?xf32> attributes {xpu.decode = "q8_0"}
// CHECK-LABEL: func.func @weights
// CHECK-SAME:    a = {dims = ["M", "K"], name = "a", type = "f16"}
// CHECK-SAME:    b = {dims = ["N", "K"], name = "b", source = "q8_0", type = "f32"}
func.func private @decode(tensor<?x?xi8>) -> tensor<?x?xf32> attributes {xpu.decode = "q8_0"}
func.func @weights(%a: tensor<?x?xf16>, %raw: tensor<?x?xi8>, %c: tensor<?x?xf32>) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]} {
  %b = func.call @decode(%raw) : (tensor<?x?xi8>) -> tensor<?x?xf32>
  %0 = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : tensor<?x?xf16>, tensor<?x?xf32>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}

// -----

// REFUSED: decode.mlir:[[# @LINE + 1]]:1: error: block format 'q4_7' is not one of q8_0
func.func private @decode(tensor<?x?xi8>) -> tensor<?x?xf32> attributes {xpu.decode = "q4_7"}
func.func @f() attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]} { return }

// -----

// REFUSED: decode.mlir:[[# @LINE + 1]]:1: error: xpu.decode must be the name of a block format
func.func private @decode(tensor<?x?xi8>) -> tensor<?x?xf32> attributes {xpu.decode = 8}
func.func @f() attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]} { return }

// -----

// REFUSED: decode.mlir:[[# @LINE + 1]]:1: error: 'decode' decodes q8_0: required (tensor<?x?xi8>) -> tensor<?x?xE> of one rank, E one of f32, f16, bf16, found (tensor<?x?xi16>) -> tensor<?x?xf32>
func.func private @decode(tensor<?x?xi16>) -> tensor<?x?xf32> attributes {xpu.decode = "q8_0"}
func.func @f() attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]} { return }

// -----

// REFUSED: decode.mlir:[[# @LINE + 1]]:1: error: 'decode' decodes q8_0: it must have no body
func.func private @decode(%raw: tensor<?x?xi8>) -> tensor<?x?xf32> attributes {xpu.decode = "q8_0"} {
  %0 = arith.sitofp %raw : tensor<?x?xi8> to tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}
func.func @f() attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]} { return }

// -----

// Blocks run along the innermost axis, and sums need them whole.
func.func private @decode(tensor<?x?xi8>) -> tensor<?x?xf32> attributes {xpu.decode = "q8_0"}
// REFUSED: decode.mlir:[[# @LINE + 1]]:1: error: kernel 'f': q8_0 blocks run along K, which must be the last axis of a factor, found ['K', 'N'] of 'b'
func.func @f(%a: tensor<?x?xf32>, %raw: tensor<?x?xi8>, %c: tensor<?x?xf32>) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]} {
  %b = func.call @decode(%raw) : (tensor<?x?xi8>) -> tensor<?x?xf32>
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf32>, tensor<?x?xf32>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}

// -----

func.func private @other(tensor<?x?xf32>) -> tensor<?x?xf32>
// REFUSED: decode.mlir:[[# @LINE + 1]]:1: error: kernel 'f': operand 'b' must be an argument, or one that a function with xpu.decode decodes, found a computed value
func.func @f(%a: tensor<?x?xf32>, %x: tensor<?x?xf32>, %c: tensor<?x?xf32>) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]} {
  %b = func.call @other(%x) : (tensor<?x?xf32>) -> tensor<?x?xf32>
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf32>, tensor<?x?xf32>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}
