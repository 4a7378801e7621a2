// DEFINE: %{lower} = %lowering opt %s -p
// DEFINE: %{read} = func.func(linalg-generalize-named-ops),group-operands
// RUN: %{lower} '%{read},instantiate{target=cuda:sm_90a},emit-body{target=cuda:sm_90a},apply-declarations{target=cuda:sm_90a}' | %filecheck %s --check-prefix=CUDA
// RUN: %{lower} '%{read},instantiate{target=rocm:gfx1100},emit-body{target=rocm:gfx1100},apply-declarations{target=rocm:gfx1100}' | %filecheck %s --check-prefix=ROCM
// RUN: %{lower} '%{read},instantiate{target=rocm:gfx942},emit-body{target=rocm:gfx942},apply-declarations{target=rocm:gfx942}' | %filecheck %s --check-prefix=UNIFIED
// RUN: %{lower} '%{read},instantiate{target=vulkan},emit-body{target=vulkan},apply-declarations{target=vulkan}' | %filecheck %s --check-prefix=VULKAN
// RUN: not %{lower} '%{read},instantiate{target=cuda:sm_90a},emit-body{target=cuda:sm_90a},apply-declarations{target=tpu}' 2>&1 | %filecheck %s --check-prefix=TARGET

// Bounds go on the device function, and nothing on the host's.
// CUDA-LABEL: module @gemm__32x32x8_t4x4__software
// CUDA:         func.func @gemm() attributes {nvvm.maxnreg = 128 : i32, nvvm.minctasm = 3 : i32
// CUDA:         math.fma {{.*}} fastmath<fast> : f32
// CUDA:         util.func public @gemm

// 3 blocks of 64 threads are 6 waves, on the four SIMDs of a work-group processor.
// ROCM:         func.func @gemm() attributes {llvm_func_attrs = {"amdgpu-num-vgpr" = "128"}, rocdl.waves_per_eu = 2 : i32
// ROCM:         math.fma {{.*}} fastmath<fast> : f32

// 64 lanes a wave: one wave a SIMD, and half of a unified file.
// UNIFIED:      func.func @gemm() attributes {llvm_func_attrs = {"amdgpu-num-vgpr" = "64"}, rocdl.waves_per_eu = 1 : i32

// Vulkan has no place for either bound: the block is all that the code states.
// VULKAN:       func.func @gemm() attributes {translation_info = #translation}
// VULKAN:       math.fma {{.*}} fastmath<fast> : f32

// TARGET: error: target 'tpu' is not one of

func.func @gemm(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>, %c: tensor<?x?xf32>) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], xpu.fast_math,
      xpu.occupancy = {max_threads = "m * n // 16", min_resident = 3, max_registers = "k * 16"},
      xpu.instantiate = [{m = 32, n = 32, k = 8, thread_m = 4, thread_n = 4}]} {
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf32>, tensor<?x?xf32>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}
