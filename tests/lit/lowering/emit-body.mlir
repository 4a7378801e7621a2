// DEFINE: %{read} = func.func(linalg-generalize-named-ops),group-operands
// RUN: %lowering opt %s -p '%{read},instantiate,emit-body' | %filecheck %s --check-prefix=CPU
// RUN: %lowering opt %s -p '%{read},instantiate{target=vulkan},emit-body{target=vulkan}' >%t
// RUN: %filecheck %s --check-prefix=VULKAN <%t
// RUN: %filecheck %s --check-prefix=TARGET <%t

// The target stands in the module: no flag of the compiler names a GPU.
// TARGET:      #hal.executable.target<"vulkan-spirv", "vulkan-spirv-fb",
// TARGET-SAME:   iree_codegen.target_info = #iree_gpu.target<arch = ""
// TARGET-SAME:   subgroup_size_choices = [32]
// TARGET:      module @gemm__4x4x2_t2x2__software attributes {hal.device.targets = [#device_target_vulkan]

// One executable: sizes and strides are i32 constants, tiles are staged in two halves of workgroup
// memory with one barrier a tile, the next tile is read before the products of this one, each lane
// keeps 2 x 2 sums, and what lies outside is not stored. An f16 is cut out of a 32-bit word.
// VULKAN:       hal.executable.source private @__kernel
// VULKAN:         hal.executable.export public @gemm ordinal(0) layout(#pipeline_layout)
// VULKAN:           arith.ceildivui
// VULKAN:           arith.ceildivui
// VULKAN:         workgroup_size = [4 : index, 1 : index, 1 : index]
// VULKAN:         func.func @gemm()
// VULKAN-COUNT-6:   hal.interface.constant.load {{.*}} : i32
// VULKAN-NOT:       hal.interface.constant.load
// VULKAN:           hal.interface.binding.subspan {{.*}} binding(0) {{.*}} flags(ReadOnly) : memref<?xi32
// VULKAN:           hal.interface.binding.subspan {{.*}} binding(1) {{.*}} flags(ReadOnly) : memref<?xi32
// VULKAN:           hal.interface.binding.subspan {{.*}} binding(2) {{.*}} offset(%c0) : memref<?xf32
// VULKAN-COUNT-2:   memref.alloc() : memref<16xf32, #gpu.address_space<workgroup>>
// VULKAN:           scf.if
// VULKAN:             arith.extf {{.*}} : f16 to f32
// VULKAN:             memref.store {{.*}} #gpu.address_space<workgroup>
// VULKAN:           gpu.barrier
// VULKAN:           scf.for
// VULKAN:             memref.load {{.*}} : memref<?xi32, #hal.descriptor_type<storage_buffer>>
// VULKAN-NOT:         memref.store
// VULKAN-COUNT-4:     memref.load {{.*}} : memref<16xf32, #gpu.address_space<workgroup>>
// VULKAN-COUNT-8:     math.fma
// VULKAN:             arith.extf {{.*}} : f16 to f32
// VULKAN:             memref.store {{.*}} #gpu.address_space<workgroup>
// VULKAN:             gpu.barrier
// VULKAN-NOT:         gpu.barrier
// VULKAN-COUNT-6:   scf.if
// VULKAN:       util.func public @gemm.async(
// VULKAN:         hal.tensor.import {{.*}} => consume %arg2 "c"
// VULKAN:         flow.dispatch @__kernel::@gemm
// VULKAN:       util.func public @gemm(
// VULKAN:       util.func public @gemm.repeat(

// Three executables, and host functions that pack on every call or once.
// CPU-LABEL: module @gemm__4x4x2_t2x2__cpu_mmt4d attributes {xpu.candidate = {access = [{mode = "read",
// CPU-SAME:    body = "cpu_mmt4d"
// CPU-SAME:    launch = {bindings = ["a", "b", "c", "workspace"], constants = ["M", "N", "K", "a.0", "b.0", "c.0"]
// CPU-SAME:    prepared = {bytes = "4 * max(ceildiv(N, 2) * 2 * K, 1)", operand = "b"}
// CPU-SAME:    workspace = "4 * max(ceildiv(M, 2) * 2 * K + ceildiv(N, 2) * 2 * K, 1)"
// CPU:         hal.executable.source private @__pack_a
// CPU-COUNT-7:   hal.interface.constant.load {{.*}} : i32
// CPU:         hal.executable.source private @__pack_b
// CPU:         hal.executable.source private @__mmt4d
// CPU:           vector.fma {{.*}} : vector<2xf32>
// CPU:         util.func public @gemm.async(%arg0: !hal.buffer, %arg1: !hal.buffer, %arg2: !hal.buffer, %arg3: !hal.buffer, %arg4: i32,
// CPU-SAME:      !hal.fence, %{{.*}}: !hal.fence) -> !hal.buffer
// CPU:           hal.tensor.import {{.*}} %arg0 "a"
// CPU:           hal.tensor.import {{.*}} %arg1 "b"
// CPU:           hal.tensor.import {{.*}} consume %arg2 "c"
// CPU:           hal.tensor.import {{.*}} consume %arg3 "workspace"
// CPU:           flow.dispatch @__pack_a::@pack_a
// CPU:           flow.dispatch @__pack_b::@pack_b
// CPU:           flow.dispatch @__mmt4d::@mmt4d
// CPU-NOT:       flow.dispatch
// CPU:         util.func public @gemm(
// CPU:         util.func public @gemm.repeat(
// CPU:           scf.for
// CPU:         util.func public @gemm.prepare.b.async(
// CPU:           flow.dispatch @__pack_b::@pack_b
// CPU:         util.func public @gemm.prepare.b(
// CPU:         util.func public @gemm.prepared.b.async(
// CPU:           flow.dispatch @__pack_a::@pack_a
// CPU-NOT:       flow.dispatch @__pack_b
// CPU:           flow.dispatch @__mmt4d::@mmt4d
// CPU:         util.func public @gemm.prepared.b(
func.func @gemm(%a: tensor<?x?xf16>, %b: tensor<?x?xf16>, %c: tensor<?x?xf32>) -> tensor<?x?xf32>
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], xpu.instantiate = [
      {m = 4, n = 4, k = 2, thread_m = 2, thread_n = 2}]} {
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf16>, tensor<?x?xf16>) outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}
