// C = max(A * B + bias, 0): elementwise work on the result belongs to the kernel, which applies it
// before the one store. `xpu.name` names an argument that has no role of its own.

func.func @matmul_bias_relu(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>,
                            %bias: tensor<?xf32> {xpu.name = "bias"}) -> tensor<?x?xf32>
    attributes {
      xpu.kernel,
      xpu.dims = ["M", "N", "K"],
      xpu.instantiate = [
        {m = 16, n = 64, k = 512, thread_m = 8, thread_n = 32, backends = ["cpu"]},
        {m = 24, n = 64, k = 512, thread_m = 6, thread_n = 16, backends = ["cpu"]},
        // matrix cores that take f32
        {m = 64, n = 64, k = 16, waves_m = 2, waves_n = 2, backends = ["rocm"]},
        // the portable tile
        {m = 64, n = 64, k = 16, thread_m = 4, thread_n = 4},
        {m = 32, n = 32, k = 16, thread_m = 2, thread_n = 2, backends = ["cuda", "rocm", "vulkan"]}
      ]
    } {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %a, %c0 : tensor<?x?xf32>
  %n = tensor.dim %b, %c1 : tensor<?x?xf32>
  %empty = tensor.empty(%m, %n) : tensor<?x?xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x?xf32>) -> tensor<?x?xf32>
  %product = linalg.matmul ins(%a, %b : tensor<?x?xf32>, tensor<?x?xf32>)
                           outs(%init : tensor<?x?xf32>) -> tensor<?x?xf32>
  %0 = linalg.generic {
      indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (n)>,
                       affine_map<(m, n) -> (m, n)>],
      iterator_types = ["parallel", "parallel"]}
      ins(%product, %bias : tensor<?x?xf32>, tensor<?xf32>) outs(%empty : tensor<?x?xf32>) {
    ^bb0(%value: f32, %addend: f32, %old: f32):
      %sum = arith.addf %value, %addend : f32
      %clipped = arith.maximumf %sum, %zero : f32
      linalg.yield %clipped : f32
  } -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}
