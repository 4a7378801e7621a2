// C = A * B with f16 operands and an f32 accumulator.

func.func @matmul_f16(%a: tensor<?x?xf16>, %b: tensor<?x?xf16>) -> tensor<?x?xf32>
    attributes {
      xpu.kernel,
      xpu.dims = ["M", "N", "K"],
      xpu.instantiate_max = 12,
      xpu.requires = "m % 8 == 0 and n % 16 == 0 and k % 16 == 0",
      xpu.instantiate = [
        {m = 16, n = 64, k = 512, thread_m = 8, thread_n = 32, backends = ["cpu"]},
        {m = 24, n = 64, k = 512, thread_m = 6, thread_n = 16, backends = ["cpu"]},
        // matrix cores: waves_m x waves_n waves, each a part of the tile; stages are tiles of K in
        // flight where the body copies asynchronously, and two also build the bodies for odd rows
        {m = 128, n = 256, k = 64, waves_m = 2, waves_n = 4, stages = 4, backends = ["cuda"]},
        {m = 256, n = 128, k = 64, waves_m = 4, waves_n = 2, stages = 4, backends = ["cuda"]},
        {m = 128, n = 128, k = 32, waves_m = 2, waves_n = 4, stages = 4, backends = ["cuda", "rocm", "vulkan"]},
        {m = 64, n = 64, k = 32, waves_m = 2, waves_n = 2, stages = 2, backends = ["cuda", "rocm", "vulkan"]},
        {m = 16, n = 16, k = 16, waves_m = 1, waves_n = 1, backends = ["rocm", "vulkan"]},
        // few rows of A: waves take turns along K, so that the whole device reads B
        {m = 16, n = 32, k = 64, waves_n = 1, waves_k = 4, stages = 6, backends = ["cuda"]},
        // the portable tile
        {m = 64, n = 64, k = 16, thread_m = 4, thread_n = 4},
        {m = 128, n = 128, k = 16, thread_m = 8, thread_n = 8, backends = ["cuda", "rocm", "vulkan"]}
      ]
    } {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %a, %c0 : tensor<?x?xf16>
  %n = tensor.dim %b, %c1 : tensor<?x?xf16>
  %empty = tensor.empty(%m, %n) : tensor<?x?xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x?xf32>) -> tensor<?x?xf32>
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf16>, tensor<?x?xf16>)
                     outs(%init : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}
