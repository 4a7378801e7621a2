// RUN: not %lowering opt %s -p 'func.func(linalg-generalize-named-ops),group-operands' --split-input-file 2>%t | %filecheck %s
// RUN: %filecheck %s --check-prefix=REFUSED <%t

// A named op on a fresh result.
// CHECK-LABEL: func.func @named
// CHECK-SAME:    xpu.contraction = {a = {dims = ["M", "K"], name = "a", type = "f16"}, accumulate = false, accumulator = "f32",
// CHECK-SAME:      b = {dims = ["K", "N"], name = "b", type = "f16"}, c = {dims = ["M", "N"], name = "c", type = "f32"},
// CHECK-SAME:      epilogue = [], extras = [], k = "K", m = "M", more = [], n = "N"}
func.func @named(%a: tensor<?x?xf16>, %b: tensor<?x?xf16>) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]} {
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

// -----

// A tensor argument in outs is added to. Its name is the author's, and the sizes' names too.
// CHECK-LABEL: func.func @accumulate
// CHECK-SAME:    a = {dims = ["rows", "depth"], name = "a", type = "f32"}, accumulate = true,
// CHECK-SAME:    c = {dims = ["rows", "columns"], name = "total", type = "f32"}
func.func @accumulate(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>, %c: tensor<?x?xf32> {xpu.name = "total"}) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["rows", "columns", "depth"]} {
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf32>, tensor<?x?xf32>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}

// -----

// The general form, with the loops in another order and the products the other way round.
// CHECK-LABEL: func.func @generic
// CHECK-SAME:    a = {dims = ["M", "K"], name = "a", type = "f16"}
// CHECK-SAME:    b = {dims = ["K", "N"], name = "b", type = "bf16"}
func.func @generic(%a: tensor<?x?xf16>, %b: tensor<?x?xbf16>, %c: tensor<?x?xf32>) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]} {
  %0 = linalg.generic {
      indexing_maps = [affine_map<(k, n, m) -> (m, k)>, affine_map<(k, n, m) -> (k, n)>, affine_map<(k, n, m) -> (m, n)>],
      iterator_types = ["reduction", "parallel", "parallel"]}
      ins(%a, %b : tensor<?x?xf16>, tensor<?x?xbf16>) outs(%c : tensor<?x?xf32>) {
    ^bb0(%x: f16, %y: bf16, %z: f32):
      %wide = arith.extf %y : bf16 to f32
      %other = arith.extf %x : f16 to f32
      %product = arith.mulf %wide, %other : f32
      %sum = arith.addf %product, %z : f32
      linalg.yield %sum : f32
  } -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}

// -----

#mn = affine_map<(m, n, k) -> (m, n)>
// CHECK-LABEL: func.func @transposed
// CHECK-SAME:    a = {dims = ["K", "M"], name = "a", type = "f32"}
// CHECK-SAME:    b = {dims = ["N", "K"], name = "b", type = "f32"}
func.func @transposed(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>, %c: tensor<?x?xf32>) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]} {
  %0 = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (k, m)>, affine_map<(m, n, k) -> (n, k)>, #mn]
      ins(%a, %b : tensor<?x?xf32>, tensor<?x?xf32>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}

// -----

// CHECK-LABEL: func.func @batch
// CHECK-SAME:    a = {dims = ["B", "M", "K"], name = "a", type = "f32"}
// CHECK-SAME:    b = {dims = ["B", "K", "N"], name = "b", type = "f32"}, batch = "B", c = {dims = ["B", "M", "N"]
func.func @batch(%a: tensor<?x?x?xf32>, %b: tensor<?x?x?xf32>, %c: tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["B", "M", "N", "K"]} {
  %0 = linalg.batch_matmul ins(%a, %b : tensor<?x?x?xf32>, tensor<?x?x?xf32>) outs(%c : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  return %0 : tensor<?x?x?xf32>
}

// -----

// Elementwise work on the result, in any number of ops: what the kernel does before its one store.
// CHECK-LABEL: func.func @epilogue
// CHECK-SAME:    c = {dims = ["M", "N"], name = "c", type = "f16"}
// CHECK-SAME:    epilogue = [{op = "add", operand = "bias"}, {constant = 0.000000e+00 : f64, op = "max"}, {op = "cast", type = "f16"}]
// CHECK-SAME:    extras = [{dims = ["N"], name = "bias", type = "bf16"}]
#mn = affine_map<(m, n) -> (m, n)>
#row = affine_map<(m, n) -> (n)>
func.func @epilogue(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>, %bias: tensor<?xbf16> {xpu.name = "bias"}) -> tensor<?x?xf16>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %a, %c0 : tensor<?x?xf32>
  %n = tensor.dim %b, %c1 : tensor<?x?xf32>
  %empty = tensor.empty(%m, %n) : tensor<?x?xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x?xf32>) -> tensor<?x?xf32>
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf32>, tensor<?x?xf32>) outs(%init : tensor<?x?xf32>) -> tensor<?x?xf32>
  %1 = linalg.generic {indexing_maps = [#mn, #row, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%0, %bias : tensor<?x?xf32>, tensor<?xbf16>) outs(%empty : tensor<?x?xf32>) {
    ^bb0(%x: f32, %y: bf16, %z: f32):
      %wide = arith.extf %y : bf16 to f32
      %sum = arith.addf %wide, %x : f32
      linalg.yield %sum : f32
  } -> tensor<?x?xf32>
  %half = tensor.empty(%m, %n) : tensor<?x?xf16>
  %2 = linalg.generic {indexing_maps = [#mn, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%1 : tensor<?x?xf32>) outs(%half : tensor<?x?xf16>) {
    ^bb0(%x: f32, %z: f16):
      %clipped = arith.maximumf %x, %zero : f32
      %narrow = arith.truncf %clipped : f32 to f16
      linalg.yield %narrow : f16
  } -> tensor<?x?xf16>
  return %2 : tensor<?x?xf16>
}

// -----

// Integers widen with their sign, each operand by its own op.
// CHECK-LABEL: func.func @signed
// CHECK-SAME:    a = {dims = ["M", "K"], name = "a", type = "i8"}, accumulate = true, accumulator = "i32"
// CHECK-SAME:    b = {dims = ["K", "N"], name = "b", type = "i8"}
func.func @signed(%a: tensor<?x?xi8>, %b: tensor<?x?xi8>, %c: tensor<?x?xi32>) -> tensor<?x?xi32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]} {
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xi8>, tensor<?x?xi8>) outs(%c : tensor<?x?xi32>) -> tensor<?x?xi32>
  return %0 : tensor<?x?xi32>
}

// CHECK-LABEL: func.func @unsigned
// CHECK-SAME:    a = {dims = ["M", "K"], name = "a", type = "u8"}
// CHECK-SAME:    b = {dims = ["K", "N"], name = "b", type = "u8"}
func.func @unsigned(%a: tensor<?x?xi8>, %b: tensor<?x?xi8>, %c: tensor<?x?xi32>) -> tensor<?x?xi32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]} {
  %0 = linalg.matmul {cast = #linalg.type_fn<cast_unsigned>}
      ins(%a, %b : tensor<?x?xi8>, tensor<?x?xi8>) outs(%c : tensor<?x?xi32>) -> tensor<?x?xi32>
  return %0 : tensor<?x?xi32>
}

// CHECK-LABEL: func.func @mixed
// CHECK-SAME:    a = {dims = ["M", "K"], name = "a", type = "u8"}
// CHECK-SAME:    b = {dims = ["K", "N"], name = "b", type = "i8"}
func.func @mixed(%a: tensor<?x?xi8>, %b: tensor<?x?xi8>, %c: tensor<?x?xi32>) -> tensor<?x?xi32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]} {
  %0 = linalg.generic {
      indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : tensor<?x?xi8>, tensor<?x?xi8>) outs(%c : tensor<?x?xi32>) {
    ^bb0(%x: i8, %y: i8, %z: i32):
      %u = arith.extui %x : i8 to i32
      %s = arith.extsi %y : i8 to i32
      %product = arith.muli %u, %s : i32
      %sum = arith.addi %z, %product : i32
      linalg.yield %sum : i32
  } -> tensor<?x?xi32>
  return %0 : tensor<?x?xi32>
}

// -----

// REFUSED: group-operands.mlir:[[# @LINE + 1]]:1: error: kernel 'f': expected a linalg contraction or elementwise linalg.generic, found 'tensor.cast'
func.func @f(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>, %c: tensor<?x?xf32>) -> tensor<4x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]} {
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf32>, tensor<?x?xf32>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
  %1 = tensor.cast %0 : tensor<?x?xf32> to tensor<4x?xf32>
  return %1 : tensor<4x?xf32>
}

// -----

// REFUSED: group-operands.mlir:[[# @LINE + 1]]:1: error: kernel 'f': the accumulator must start at zero (linalg.fill of 0) or be a tensor argument
func.func @f(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 1.0 : f32
  %m = tensor.dim %a, %c0 : tensor<?x?xf32>
  %n = tensor.dim %b, %c1 : tensor<?x?xf32>
  %empty = tensor.empty(%m, %n) : tensor<?x?xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x?xf32>) -> tensor<?x?xf32>
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf32>, tensor<?x?xf32>) outs(%init : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}

// -----

#mn = affine_map<(m, n) -> (m, n)>
// REFUSED: group-operands.mlir:[[# @LINE + 1]]:1: error: kernel 'f': epilogue op 'math.exp' is not one of arith.addf, arith.addi, arith.mulf,
func.func @f(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %a, %c0 : tensor<?x?xf32>
  %n = tensor.dim %b, %c1 : tensor<?x?xf32>
  %empty = tensor.empty(%m, %n) : tensor<?x?xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x?xf32>) -> tensor<?x?xf32>
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf32>, tensor<?x?xf32>) outs(%init : tensor<?x?xf32>) -> tensor<?x?xf32>
  %1 = linalg.generic {indexing_maps = [#mn, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%0 : tensor<?x?xf32>) outs(%empty : tensor<?x?xf32>) {
    ^bb0(%x: f32, %z: f32):
      %e = math.exp %x : f32
      linalg.yield %e : f32
  } -> tensor<?x?xf32>
  return %1 : tensor<?x?xf32>
}

// -----

#mn = affine_map<(m, n) -> (m, n)>
#nm = affine_map<(m, n) -> (n, m)>
// REFUSED: group-operands.mlir:[[# @LINE + 1]]:1: error: kernel 'f': an elementwise op must store its result in the order of its loops
func.func @f(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %a, %c0 : tensor<?x?xf32>
  %n = tensor.dim %b, %c1 : tensor<?x?xf32>
  %empty = tensor.empty(%m, %n) : tensor<?x?xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x?xf32>) -> tensor<?x?xf32>
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf32>, tensor<?x?xf32>) outs(%init : tensor<?x?xf32>) -> tensor<?x?xf32>
  %1 = linalg.generic {indexing_maps = [#mn, #nm], iterator_types = ["parallel", "parallel"]}
      ins(%0 : tensor<?x?xf32>) outs(%empty : tensor<?x?xf32>) {
    ^bb0(%x: f32, %z: f32):
      %e = arith.addf %x, %zero : f32
      linalg.yield %e : f32
  } -> tensor<?x?xf32>
  return %1 : tensor<?x?xf32>
}

// -----

// REFUSED: group-operands.mlir:[[# @LINE + 1]]:1: error: kernel 'f': the result must be stored as ('M', 'N'), found ('N', 'M')
func.func @f(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>, %c: tensor<?x?xf32>) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]} {
  %0 = linalg.generic {
      indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (n, m)>],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : tensor<?x?xf32>, tensor<?x?xf32>) outs(%c : tensor<?x?xf32>) {
    ^bb0(%x: f32, %y: f32, %z: f32):
      %product = arith.mulf %x, %y : f32
      %sum = arith.addf %z, %product : f32
      linalg.yield %sum : f32
  } -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}

// -----

// REFUSED: group-operands.mlir:[[# @LINE + 1]]:1: error: kernel 'f': a contraction has 2 inputs and 1 reduction, found 2 and 2
func.func @f(%a: tensor<?x?x?xf32>, %b: tensor<?x?x?xf32>, %c: tensor<?x?xf32>) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]} {
  %0 = linalg.generic {
      indexing_maps = [affine_map<(m, n, k, l) -> (m, k, l)>, affine_map<(m, n, k, l) -> (k, l, n)>, affine_map<(m, n, k, l) -> (m, n)>],
      iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b : tensor<?x?x?xf32>, tensor<?x?x?xf32>) outs(%c : tensor<?x?xf32>) {
    ^bb0(%x: f32, %y: f32, %z: f32):
      %product = arith.mulf %x, %y : f32
      %sum = arith.addf %z, %product : f32
      linalg.yield %sum : f32
  } -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}

// -----

// REFUSED: group-operands.mlir:[[# @LINE + 1]]:1: error: kernel 'f': indexing map affine_map<(d0, d1, d2) -> (d0 + d2, d2)> is not a projected permutation
func.func @f(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>, %c: tensor<?x?xf32>) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]} {
  %0 = linalg.generic {
      indexing_maps = [affine_map<(m, n, k) -> (m + k, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : tensor<?x?xf32>, tensor<?x?xf32>) outs(%c : tensor<?x?xf32>) {
    ^bb0(%x: f32, %y: f32, %z: f32):
      %product = arith.mulf %x, %y : f32
      %sum = arith.addf %z, %product : f32
      linalg.yield %sum : f32
  } -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}

// -----

// The ops are right, what they read is not.
// REFUSED: group-operands.mlir:[[# @LINE + 1]]:1: error: kernel 'f': a contraction computes c + a * b, found arith.mulf, arith.addf, linalg.yield
func.func @f(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>, %c: tensor<?x?xf32>) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]} {
  %0 = linalg.generic {
      indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : tensor<?x?xf32>, tensor<?x?xf32>) outs(%c : tensor<?x?xf32>) {
    ^bb0(%x: f32, %y: f32, %z: f32):
      %product = arith.mulf %x, %x : f32
      %sum = arith.addf %z, %product : f32
      linalg.yield %sum : f32
  } -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}

// -----

// REFUSED: group-operands.mlir:[[# @LINE + 1]]:1: error: kernel 'f': the result is an argument: no contraction produces it
func.func @f(%a: tensor<?x?xf32>) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]} {
  return %a : tensor<?x?xf32>
}

// -----

// REFUSED: group-operands.mlir:[[# @LINE + 1]]:1: error: kernel 'f': xpu.dims ['M', 'N'] must name ['m', 'n', 'k'], the contraction has 0 batch, 1 m, 1 n, 1 k
func.func @f(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>, %c: tensor<?x?xf32>) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N"]} {
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf32>, tensor<?x?xf32>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}

// -----

// REFUSED: group-operands.mlir:[[# @LINE + 1]]:1: error: kernel 'f': size M of 'a' is fixed at 4: sizes are dynamic, write '?'
func.func @f(%a: tensor<4x?xf32>, %b: tensor<?x?xf32>, %c: tensor<4x?xf32>) -> tensor<4x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]} {
  %0 = linalg.matmul ins(%a, %b : tensor<4x?xf32>, tensor<?x?xf32>) outs(%c : tensor<4x?xf32>) -> tensor<4x?xf32>
  return %0 : tensor<4x?xf32>
}

// -----

// REFUSED: group-operands.mlir:[[# @LINE + 1]]:1: error: kernel 'f': argument 'a' has two roles, 'b' too
func.func @f(%a: tensor<?x?xf32>, %c: tensor<?x?xf32>) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]} {
  %0 = linalg.matmul ins(%a, %a : tensor<?x?xf32>, tensor<?x?xf32>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}

// -----

// A call passes operands by position.
// REFUSED: group-operands.mlir:[[# @LINE + 1]]:1: error: kernel 'f': arguments must be in the order a, b, c, found b, a, c
func.func @f(%b: tensor<?x?xf32>, %a: tensor<?x?xf32>, %c: tensor<?x?xf32>) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]} {
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf32>, tensor<?x?xf32>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}

// -----

// REFUSED: group-operands.mlir:[[# @LINE + 1]]:1: error: kernel 'f': argument 3 is not read, leave it out
func.func @f(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>, %c: tensor<?x?xf32>, %d: tensor<?xf32>) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]} {
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf32>, tensor<?x?xf32>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}

// -----

// REFUSED: group-operands.mlir:[[# @LINE + 1]]:1: error: kernel 'f': element type i64 is not one of bf16, f16, f32,
func.func @f(%a: tensor<?x?xi64>, %b: tensor<?x?xi64>, %c: tensor<?x?xi64>) -> tensor<?x?xi64>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]} {
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xi64>, tensor<?x?xi64>) outs(%c : tensor<?x?xi64>) -> tensor<?x?xi64>
  return %0 : tensor<?x?xi64>
}
