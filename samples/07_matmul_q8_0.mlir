// C = A * W^T with weights W in GGUF's q8_0 blocks, as llama.cpp and the `gguf` package lay them out:
// N rows of K / 32 blocks, each an f16 scale and 32 signed bytes (34 bytes), K a multiple of 32.
//
// The kernel takes the raw bytes. The private declaration says what they stand for; it has no body,
// because each kernel decodes blocks where it would have loaded elements. Products of f32 have matrix
// instructions on few parts (CDNA has); sample 10 is the same with f16 operands, for all others.
//
//   python -m lowering run samples/07_matmul_q8_0.mlir --shape 37x64x128

func.func private @decode_q8_0(tensor<?x?xi8>) -> tensor<?x?xf32> attributes {xpu.decode = "q8_0"}

func.func @matmul_q8_0(%a: tensor<?x?xf32>, %raw: tensor<?x?xi8>) -> tensor<?x?xf32>
    attributes {
      xpu.kernel,
      xpu.dims = ["M", "N", "K"],
      xpu.instantiate = [
        {m = 16, n = 64, k = 512, thread_m = 8, thread_n = 32, backends = ["cpu"]},
        {m = 24, n = 64, k = 512, thread_m = 6, thread_n = 16, backends = ["cpu"]},
        {m = 64, n = 64, k = 32, waves_m = 2, waves_n = 2, backends = ["rocm"]},
        {m = 128, n = 128, k = 16, thread_m = 8, thread_n = 8, backends = ["cuda", "rocm", "vulkan"]},
        {m = 64, n = 64, k = 16, thread_m = 4, thread_n = 4},
        {m = 16, n = 64, k = 32, thread_m = 2, thread_n = 4, backends = ["cuda", "rocm", "vulkan"]}
      ]
    } {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %a, %c0 : tensor<?x?xf32>
  %n = tensor.dim %raw, %c0 : tensor<?x?xi8>
  %b = func.call @decode_q8_0(%raw) : (tensor<?x?xi8>) -> tensor<?x?xf32>
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
