// DEFINE: %{read} = func.func(linalg-generalize-named-ops),group-operands
// DEFINE: %{on} = target=cuda:sm_80
// RUN: not %lowering opt %s -p '%{read},select-tier{%{on}},instantiate{%{on}},emit-body{%{on}}' --split-input-file 2>&1 | %filecheck %s

// CHECK: error: kernel 'short': no member can be built for cuda:sm_80: member 32x32x8_w1x1_s2: {{.*}}mma_sync: k = 8 is no multiple of 16, the instruction's;
func.func @short(%a: tensor<?x?xf16>, %b: tensor<?x?xf16>, %c: tensor<?x?xf32>) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], xpu.instantiate = [{m = 32, n = 32, k = 8, waves_m = 1, waves_n = 1, stages = 2}]} {
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf16>, tensor<?x?xf16>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}

// -----

// CHECK: error: kernel 'wide': no member can be built for cuda:sm_80: member 32x32x16_w1x1_s2: {{.*}}mma_sync: cuda:sm_80 has no mma.sync for f32*f32->f32;
func.func @wide(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>, %c: tensor<?x?xf32>) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], xpu.instantiate = [{m = 32, n = 32, k = 16, waves_m = 1, waves_n = 1, stages = 2}]} {
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf32>, tensor<?x?xf32>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}
