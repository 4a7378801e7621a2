// RUN: %lowering opt %s -p 'func.func(linalg-generalize-named-ops),group-operands,select-tier{target=cpu}' | %filecheck %s --check-prefix=CPU
// RUN: %lowering opt %s -p 'func.func(linalg-generalize-named-ops),group-operands,select-tier{target=cuda:sm_89}' | %filecheck %s --check-prefix=ADA
// RUN: %lowering opt %s -p 'func.func(linalg-generalize-named-ops),group-operands,select-tier{target=cuda:sm_75}' | %filecheck %s --check-prefix=OLD
// RUN: %lowering opt %s -p 'func.func(linalg-generalize-named-ops),group-operands,select-tier{target=rocm:gfx1100}' | %filecheck %s --check-prefix=RDNA
// RUN: %lowering opt %s -p 'func.func(linalg-generalize-named-ops),group-operands,select-tier{target=vulkan}' | %filecheck %s --check-prefix=BARE
// RUN: %lowering opt %s -p 'func.func(linalg-generalize-named-ops),group-operands,select-tier{target=%facts/vulkan-h200.json}' | %filecheck %s --check-prefix=LISTED

// Each distinct choice is told once, with its reason; the notes are diagnostics.
// RUN: %lowering opt %s -p 'func.func(linalg-generalize-named-ops),group-operands,select-tier{target=cuda:sm_89}' 2>&1 >%t | %filecheck %s --check-prefix=NOTES --match-full-lines
// NOTES:     note: f16*f16->f32 on cuda:sm_89: native, the target lists mma.sync.m16n8k16.f32.f16
// NOTES-NOT: f16*f16->f32
// NOTES:     note: f32*f32->f32 on cuda:sm_89: software, no matrix instruction for f32*f32->f32

// RUN: not %lowering opt %s -p 'select-tier{target=tpu}' 2>&1 | %filecheck %s --check-prefix=UNKNOWN
// UNKNOWN: error: target 'tpu' is not one of cpu, cuda:sm_NN, rocm:gfxNNN, vulkan, a facts file, device:<uri>

// RUN: not %lowering opt %s -p 'select-tier{target=%facts/none.json}' 2>&1 | %filecheck %s --check-prefix=MISSING
// MISSING: none.json: error: cannot read facts file: No such file or directory

// CPU-LABEL:    @f16
// CPU-SAME:       xpu.groups = [{a = "f16", acc = "f32", b = "f16", reason = "no matrix instruction for f16*f16->f32", tier = "software"}]
// ADA-LABEL:    @f16
// ADA-SAME:       xpu.groups = [{a = "f16", acc = "f32", b = "f16", instruction = "mma.sync.m16n8k16.f32.f16", reason = "the target lists mma.sync.m16n8k16.f32.f16", shape = [16, 8, 16], tier = "native"}]
// OLD-LABEL:    @f16
// OLD-SAME:       tier = "software"
// RDNA-LABEL:   @f16
// RDNA-SAME:      instruction = "wmma_f32_16x16x16_f16", {{.*}} shape = [16, 16, 16], tier = "native"
// BARE-LABEL:   @f16
// BARE-SAME:      reason = "no matrix instruction for f16*f16->f32", tier = "software"
// LISTED-LABEL: @f16
// LISTED-SAME:    instruction = "coop_matrix_{{[0-9x]+}}", {{.*}} tier = "native"
func.func @f16(%a: tensor<?x?xf16>, %b: tensor<?x?xf16>, %c: tensor<?x?xf32>) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]} {
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf16>, tensor<?x?xf16>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}

// ADA-LABEL: @f16_again
// ADA-SAME:    tier = "native"
func.func @f16_again(%a: tensor<?x?x?xf16>, %b: tensor<?x?x?xf16>, %c: tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["B", "M", "N", "K"]} {
  %0 = linalg.batch_matmul ins(%a, %b : tensor<?x?x?xf16>, tensor<?x?x?xf16>) outs(%c : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  return %0 : tensor<?x?x?xf32>
}

// Types decide, all three of them.
// ADA-LABEL:    @f32
// ADA-SAME:       tier = "software"
// RDNA-LABEL:   @f32
// RDNA-SAME:      tier = "software"
// LISTED-LABEL: @f32
// LISTED-SAME:    tier = "software"
func.func @f32(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>, %c: tensor<?x?xf32>) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]} {
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf32>, tensor<?x?xf32>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}

// ADA-LABEL:  @i8
// ADA-SAME:     instruction = "mma.sync.m16n8k32.i32.i8"
// RDNA-LABEL: @i8
// RDNA-SAME:    instruction = "wmma_i32_16x16x16_iu8"
func.func @i8(%a: tensor<?x?xi8>, %b: tensor<?x?xi8>, %c: tensor<?x?xi32>) -> tensor<?x?xi32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]} {
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xi8>, tensor<?x?xi8>) outs(%c : tensor<?x?xi32>) -> tensor<?x?xi32>
  return %0 : tensor<?x?xi32>
}
