// DEFINE: %{lower} = %lowering opt %s --split-input-file -p
// DEFINE: %{read} = func.func(linalg-generalize-named-ops),group-operands
// RUN: not %{lower} '%{read},instantiate{target=vulkan}' 2>%t | %filecheck %s
// RUN: %filecheck %s --check-prefix=REFUSED <%t
// RUN: not %{lower} '%{read},instantiate{target=cpu}' 2>%t | %filecheck %s --check-prefix=CPU
// RUN: %filecheck %s --check-prefix=NONE <%t
// RUN: not %{lower} '%{read},instantiate{target=vulkan tier=native}' 2>&1 | %filecheck %s --check-prefix=TIER
// RUN: not %{lower} '%{read},instantiate{target=vulkan body=cpu_mmt4d}' 2>&1 | %filecheck %s --check-prefix=BODY
// RUN: not %{lower} '%{read},instantiate{body=none}' 2>&1 | %filecheck %s --check-prefix=UNKNOWN-BODY
// RUN: not %{lower} '%{read},instantiate{tier=fast}' 2>&1 | %filecheck %s --check-prefix=UNKNOWN-TIER
// UNKNOWN-BODY: error: body 'none' is not one of {{.*}}software, cpu_mmt4d
// UNKNOWN-TIER: error: tier 'fast' is not one of native, software

// Members for other backends are left out, equal ones are built once, also when they were written
// in different ways.
// CHECK-NOT:     func.func @two(
// CHECK:         func.func @two__64x64x16_t4x4__software(
// CHECK-SAME:      xpu.body = "software"
// CHECK-SAME:      xpu.family = "two"
// CHECK-SAME:      xpu.tile = {cluster = 0 : i64, k = 16 : i64, m = 64 : i64, n = 64 : i64, stages = 0 : i64, thread_m = 4 : i64, thread_n = 4 : i64, waves_k = 0 : i64, waves_m = 0 : i64, waves_n = 0 : i64}
// CHECK:         func.func @two__32x32x16_t2x2__software(
// CHECK-NOT:     func.func @two
// CPU:           func.func @two__64x64x16_t4x4__cpu_mmt4d(
// CPU:           func.func @two__8x64x16_t8x32__cpu_mmt4d(
// CPU-NOT:       func.func @two
// TIER: instantiate.mlir:[[# @LINE + 2]]:1: error: kernel 'two': no member can be built for vulkan: member 64x64x16_t4x4: {{.*}}software was not asked for
// BODY: instantiate.mlir:[[# @LINE + 1]]:1: error: kernel 'two': no member can be built for vulkan: member 64x64x16_t4x4: {{.*}}software was not asked for
func.func @two(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>, %c: tensor<?x?xf32>) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], xpu.requires = "m % thread_m == 0 and wave % 4 == 0", xpu.instantiate = [
      {m = 64, n = 64, k = 16, thread_m = 4, thread_n = 4},
      {m = 64, n = 64, k = 16, thread_m = 4, thread_n = 4},
      {m = 64, n = 64, k = 16, thread_m = 4, thread_n = 4, backends = ["spirv"]},
      {m = 64, n = 64, k = 16, thread_m = 4, thread_n = 4, body = "software", backends = ["vulkan"]},
      {m = 8, n = 64, k = 16, thread_m = 8, thread_n = 32, backends = ["cpu"]},
      {m = 32, n = 32, k = 16, thread_m = 2, thread_n = 2, backends = ["cuda", "vulkan"]}]} {
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf32>, tensor<?x?xf32>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}

// -----

// A member that no body serves is a note, as long as another one is built.
// REFUSED: note: some on vulkan: member 10x64x16_t4x4: {{.*}}thread tile 4x4 does not divide 10x64
// CHECK: func.func @some__8x64x16_t4x4__software(
func.func @some(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>, %c: tensor<?x?xf32>) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], xpu.instantiate = [
      {m = 10, n = 64, k = 16, thread_m = 4, thread_n = 4},
      {m = 8, n = 64, k = 16, thread_m = 4, thread_n = 4}]} {
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf32>, tensor<?x?xf32>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}

// -----

// A member that asks for a body which cannot serve it is an error, not a note.
// REFUSED: instantiate.mlir:[[# @LINE + 1]]:1: error: member 64x64x16: the software tile needs thread_m and thread_n
func.func @f(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>, %c: tensor<?x?xf32>) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], xpu.instantiate = [
      {m = 64, n = 64, k = 16, body = "software", backends = ["vulkan"]},
      {m = 64, n = 64, k = 16, thread_m = 4, thread_n = 4}]} {
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf32>, tensor<?x?xf32>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}

// -----

// REFUSED: instantiate.mlir:[[# @LINE + 1]]:1: error: body 'fastest' is not one of {{.*}}software, cpu_mmt4d
func.func @f(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>, %c: tensor<?x?xf32>) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], xpu.instantiate = [{m = 64, n = 64, k = 16, body = "fastest"}]} {
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf32>, tensor<?x?xf32>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}

// -----

// REFUSED: instantiate.mlir:[[# @LINE + 1]]:1: error: member 24x64x16_t4x4 on vulkan: requires 'm % 16 == 0' is false
func.func @f(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>, %c: tensor<?x?xf32>) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], xpu.requires = "m % 16 == 0", xpu.instantiate = [
      {m = 16, n = 64, k = 16, thread_m = 4, thread_n = 4},
      {m = 24, n = 64, k = 16, thread_m = 4, thread_n = 4}]} {
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf32>, tensor<?x?xf32>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}

// -----

// REFUSED: instantiate.mlir:[[# @LINE + 1]]:1: error: requires of member 16x64x16_t4x4: expression 'm // stages > 0' divides by zero
func.func @f(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>, %c: tensor<?x?xf32>) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], xpu.requires = "m // stages > 0", xpu.instantiate = [
      {m = 16, n = 64, k = 16, thread_m = 4, thread_n = 4}]} {
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf32>, tensor<?x?xf32>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}

// -----

// REFUSED: instantiate.mlir:[[# @LINE + 1]]:1: error: xpu.requires: expression 'warps > 0' names 'warps', which is not one of: m, n, k,
func.func @f(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>, %c: tensor<?x?xf32>) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], xpu.requires = "warps > 0", xpu.instantiate = [
      {m = 16, n = 64, k = 16, thread_m = 4, thread_n = 4}]} {
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf32>, tensor<?x?xf32>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}

// -----

// Nine members are one too many, unless the author asks for more. Equal ones do not count.
// REFUSED: instantiate.mlir:[[# @LINE + 1]]:1: error: kernel 'nine' instantiates 9 members > 8 (xpu.instantiate_max)
func.func @nine(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>, %c: tensor<?x?xf32>) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], xpu.instantiate = [
      {m = 1, n = 1, k = 1}, {m = 2, n = 1, k = 1}, {m = 3, n = 1, k = 1}, {m = 4, n = 1, k = 1}, {m = 5, n = 1, k = 1},
      {m = 6, n = 1, k = 1}, {m = 7, n = 1, k = 1}, {m = 8, n = 1, k = 1}, {m = 9, n = 1, k = 1}, {m = 9, n = 1, k = 1}]} {
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf32>, tensor<?x?xf32>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}

// -----

// REFUSED: instantiate.mlir:[[# @LINE + 1]]:1: error: kernel 'one' instantiates 2 members > 1 (xpu.instantiate_max)
func.func @one(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>, %c: tensor<?x?xf32>) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], xpu.instantiate_max = 1, xpu.instantiate = [
      {m = 1, n = 1, k = 1}, {m = 2, n = 1, k = 1}]} {
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf32>, tensor<?x?xf32>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}

// -----

// NONE: instantiate.mlir:[[# @LINE + 1]]:1: error: kernel 'gpu': no member can be built for cpu:x86-64: xpu.instantiate lists no member for this backend
func.func @gpu(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>, %c: tensor<?x?xf32>) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], xpu.instantiate = [
      {m = 16, n = 64, k = 16, thread_m = 4, thread_n = 4, backends = ["cuda", "rocm", "vulkan"]}]} {
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf32>, tensor<?x?xf32>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}
