// C = A * B in f32, any sizes. One source: the members name where they make sense, the build
// compiles those that suit the target, and the run time measures which of them pays.
//
//   python -m lowering samples/01_matmul_f32.mlir
//   python -m lowering run samples/01_matmul_f32.mlir --shape 512x4096x4096

func.func @matmul_f32(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>) -> tensor<?x?xf32>
    attributes {
      xpu.kernel,
      xpu.dims = ["M", "N", "K"],
      xpu.requires = "m % thread_m == 0 and n % thread_n == 0",
      xpu.instantiate = [
        // CPU: thread_m x thread_n is the register tile, k the block of K that stays in L1, and
        // m x n small enough that the workers finish together
        {m = 14, n = 128, k = 512, thread_m = 14, thread_n = 32, backends = ["cpu"]},
        {m = 16, n = 64, k = 512, thread_m = 8, thread_n = 32, backends = ["cpu"]},
        {m = 24, n = 64, k = 512, thread_m = 6, thread_n = 16, backends = ["cpu"]},
        {m = 16, n = 64, k = 512, thread_m = 4, thread_n = 16, backends = ["cpu"]},
        {m = 8, n = 128, k = 512, thread_m = 4, thread_n = 64, backends = ["cpu"]},
        // GPU: a workgroup of (m / thread_m) * (n / thread_n) lanes; the CPU takes the first too
        {m = 64, n = 64, k = 16, thread_m = 4, thread_n = 4},
        {m = 128, n = 128, k = 16, thread_m = 8, thread_n = 8, backends = ["cuda", "rocm", "vulkan"]},
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
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf32>, tensor<?x?xf32>)
                     outs(%init : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}
