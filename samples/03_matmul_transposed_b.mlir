// C = A * B^T: B is stored N x K, as the weights of most models are. The map of B says so; the
// lowering reads it and copies along the contiguous axis.

func.func @matmul_transposed_b(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>) -> tensor<?x?xf32>
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
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %a, %c0 : tensor<?x?xf32>
  %n = tensor.dim %b, %c0 : tensor<?x?xf32>
  %empty = tensor.empty(%m, %n) : tensor<?x?xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x?xf32>) -> tensor<?x?xf32>
  %0 = linalg.matmul
      indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
                       affine_map<(m, n, k) -> (n, k)>,
                       affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : tensor<?x?xf32>, tensor<?x?xf32>)
      outs(%init : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}
