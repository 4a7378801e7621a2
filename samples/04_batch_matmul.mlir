// C[b] = A[b] * B[b]: a batch of products in one launch. The batch is the first size.

func.func @batch_matmul(%a: tensor<?x?x?xf32>, %b: tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
    attributes {
      xpu.kernel,
      xpu.dims = ["B", "M", "N", "K"],
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
  %c2 = arith.constant 2 : index
  %zero = arith.constant 0.0 : f32
  %batch = tensor.dim %a, %c0 : tensor<?x?x?xf32>
  %m = tensor.dim %a, %c1 : tensor<?x?x?xf32>
  %n = tensor.dim %b, %c2 : tensor<?x?x?xf32>
  %empty = tensor.empty(%batch, %m, %n) : tensor<?x?x?xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %0 = linalg.batch_matmul ins(%a, %b : tensor<?x?x?xf32>, tensor<?x?x?xf32>)
                           outs(%init : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  return %0 : tensor<?x?x?xf32>
}
