// C = A * W^T with weights W in GGUF's q8_0 blocks and f16 activations: sample 07 on matrix cores.
//
// Blocks are decoded to f16 on their way to workgroup memory, each element rounded once, and
// multiplied with f32 sums. A weight takes 34 bytes of memory in place of 64 for every 32 elements.
//
//   python -m lowering run samples/10_matmul_q8_0_f16.mlir --shape 37x64x128

func.func private @decode_q8_0(tensor<?x?xi8>) -> tensor<?x?xf16> attributes {xpu.decode = "q8_0"}

func.func @matmul_q8_0_f16(%a: tensor<?x?xf16>, %raw: tensor<?x?xi8>) -> tensor<?x?xf32>
    attributes {
      xpu.kernel,
      xpu.dims = ["M", "N", "K"],
      xpu.instantiate_max = 12,
      xpu.instantiate = [
        {m = 16, n = 64, k = 512, thread_m = 8, thread_n = 32, backends = ["cpu"]},
        {m = 24, n = 64, k = 512, thread_m = 6, thread_n = 16, backends = ["cpu"]},
        // matrix cores: k in whole blocks; the flat tile is for few rows, as a decoder has them
        {m = 128, n = 256, k = 32, waves_m = 2, waves_n = 4, stages = 4, backends = ["cuda"]},
        {m = 128, n = 128, k = 64, waves_m = 2, waves_n = 4, stages = 3, backends = ["cuda"]},
        {m = 128, n = 128, k = 32, waves_m = 2, waves_n = 4, stages = 4, backends = ["rocm", "vulkan"]},
        {m = 64, n = 64, k = 32, waves_m = 2, waves_n = 2, stages = 2, backends = ["cuda", "rocm", "vulkan"]},
        {m = 16, n = 64, k = 64, waves_m = 1, waves_n = 4, stages = 4, backends = ["cuda", "rocm", "vulkan"]},
        // the portable tile
        {m = 64, n = 64, k = 16, thread_m = 4, thread_n = 4},
        {m = 128, n = 128, k = 16, thread_m = 8, thread_n = 8, backends = ["cuda", "rocm", "vulkan"]}
      ]
    } {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %a, %c0 : tensor<?x?xf16>
  %n = tensor.dim %raw, %c0 : tensor<?x?xi8>
  %b = func.call @decode_q8_0(%raw) : (tensor<?x?xi8>) -> tensor<?x?xf16>
  %empty = tensor.empty(%m, %n) : tensor<?x?xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x?xf32>) -> tensor<?x?xf32>
  %0 = linalg.matmul
      indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
                       affine_map<(m, n, k) -> (n, k)>,
                       affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : tensor<?x?xf16>, tensor<?x?xf16>)
      outs(%init : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}
