// DEFINE: %{read} = func.func(linalg-generalize-named-ops),group-operands
// RUN: %lowering opt %s -p '%{read}' | %filecheck %s --check-prefix=READ
// RUN: %lowering opt %s -p '%{read},select-tier{target=%facts/vulkan-h200.json}' | %filecheck %s --check-prefix=MIXED
// RUN: %lowering opt %s -p '%{read},select-tier{target=cuda:sm_80}' | %filecheck %s --check-prefix=BOTH
// RUN: %lowering opt %s -p '%{read},select-tier{target=%facts/vulkan-h200.json},instantiate{target=%facts/vulkan-h200.json},emit-body{target=%facts/vulkan-h200.json}' >%t
// RUN: %filecheck %s --check-prefix=NATIVE <%t
// RUN: %filecheck %s --check-prefix=SPREAD <%t
// RUN: %lowering opt %s -p '%{read},select-tier{target=cpu},instantiate{target=cpu},emit-body{target=cpu}' | %filecheck %s --check-prefix=ROWS

// Two products in types of their own share no tile: two groups. What they compute is read from the
// function that the kernel names.
// READ-LABEL: func.func @mixed
// READ-SAME:    xpu.contraction = {a = {dims = ["M", "K"], name = "a", type = "f16"}
// READ-SAME:    more = [{a = {dims = ["M", "K"], name = "a1", type = "i8"}, accumulator = "i32"
// READ-SAME:    xpu.tile_groups = [{multiplies = [{a = "i8", acc = "i32", b = "i8", shape = [16, 16, 16]}], uses = []}, {multiplies = [{a = "f16", acc = "f32", b = "f16", shape = [16, 16, 16]}], uses = []}]

// MIXED-LABEL: func.func @mixed
// MIXED-SAME:    xpu.groups = [{a = "i8", acc = "i32", b = "i8", reason = "no matrix instruction for i8*i8->i32 16x16x16", shape = [16, 16, 16], tier = "software"}, {a = "f16", acc = "f32", b = "f16", instruction = "coop_matrix_16x16x16", {{.*}} tier = "native"}]

// BOTH-LABEL: func.func @mixed
// BOTH-SAME:    instruction = "wmma.mma.m16n16k16.i32.i8", {{.*}} instruction = "wmma.mma.m16n16k16.f32.f16"

// The kernel keeps its loops. The integers are spread: 256 elements over 32 lanes, multiplied by way
// of workgroup memory. The floats keep their matrix ops, on a slot that the wave has copied to.
// NATIVE-LABEL: module @mixed__16x16x16_w1x1__fragments
// NATIVE:         hal.executable.export public @gemm
// NATIVE:         workgroup_size = [32 : index, 1 : index, 1 : index]
// NATIVE:         func.func @gemm()
// NATIVE:           scf.for {{.*}} -> (i32, i32, i32, i32, i32, i32, i32, i32) {
// NATIVE:             gpu.barrier
// NATIVE:             scf.for {{.*}} -> (i32, i32, i32, i32, i32, i32, i32, i32) {
// NATIVE-COUNT-8:       arith.muli {{.*}} : i32
// NATIVE:             gpu.barrier
// NATIVE:           scf.for {{.*}} -> (!gpu.mma_matrix<16x16xf32, "COp">) {
// NATIVE:             gpu.barrier
// NATIVE:             gpu.subgroup_mma_load_matrix {{.*}} leadDimension 16 {{.*}} -> !gpu.mma_matrix<16x16xf16, "AOp">
// NATIVE-NEXT:        gpu.subgroup_mma_load_matrix {{.*}} leadDimension 16 {{.*}} -> !gpu.mma_matrix<16x16xf16, "BOp">
// NATIVE-NEXT:        gpu.barrier
// NATIVE-NEXT:        gpu.subgroup_mma_compute
// NATIVE:           gpu.subgroup_mma_store_matrix
// NATIVE:           gpu.barrier
// NATIVE:           scf.if

// SPREAD-LABEL: module @mixed__16x16x16_w1x1__fragments_software
// SPREAD-NOT:     gpu.subgroup_mma
// SPREAD:         math.fma
// SPREAD-NOT:     gpu.subgroup_mma
// SPREAD:         util.func public @mixed.async(

// On a processor one worker is the only wave and holds whole tiles, a vector for each row. It reads
// whole rows where a tile lies inside of its argument.
// ROWS-LABEL: module @mixed__16x16x16_w1x1__cpu_fragments
// ROWS-NOT:     gpu.
// ROWS:         func.func @gemm()
// ROWS-COUNT-9:   memref.alloca()
// ROWS-NOT:       memref.alloca()
// ROWS:           scf.for
// ROWS:             scf.if {{.*}} -> (vector<16xi8>
// ROWS-COUNT-16:      vector.load {{.*}} vector<16xi8>
// ROWS:             } else {
// ROWS:             scf.for {{.*}} -> (vector<16xi32>
// ROWS-COUNT-16:      arith.muli {{.*}} : vector<16xi32>
// ROWS:           math.fma {{.*}} : vector<16xf32>
// ROWS:         util.func public @mixed.async(
func.func @meaning(%a: tensor<?x?xf16>, %b: tensor<?x?xf16>, %p: tensor<?x?xi8>, %q: tensor<?x?xi8>) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %izero = arith.constant 0 : i32
  %m = tensor.dim %a, %c0 : tensor<?x?xf16>
  %n = tensor.dim %b, %c1 : tensor<?x?xf16>
  %e = tensor.empty(%m, %n) : tensor<?x?xf32>
  %ie = tensor.empty(%m, %n) : tensor<?x?xi32>
  %init = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  %iinit = linalg.fill ins(%izero : i32) outs(%ie : tensor<?x?xi32>) -> tensor<?x?xi32>
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf16>, tensor<?x?xf16>) outs(%init : tensor<?x?xf32>) -> tensor<?x?xf32>
  %1 = linalg.matmul ins(%p, %q : tensor<?x?xi8>, tensor<?x?xi8>) outs(%iinit : tensor<?x?xi32>) -> tensor<?x?xi32>
  %2 = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
       ins(%0, %1 : tensor<?x?xf32>, tensor<?x?xi32>) outs(%e : tensor<?x?xf32>) {
  ^bb0(%x: f32, %y: i32, %old: f32):
    %w = arith.sitofp %y : i32 to f32
    %s = arith.addf %x, %w : f32
    linalg.yield %s : f32
  } -> tensor<?x?xf32>
  return %2 : tensor<?x?xf32>
}

func.func @mixed(%a: memref<?x?xf16>, %b: memref<?x?xf16>, %p: memref<?x?xi8>, %q: memref<?x?xi8>, %c: memref<?x?xf32>, %m: index, %n: index, %k: index)
    attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], xpu.reference = @meaning,
                xpu.instantiate = [{m = 16, n = 16, k = 16, waves_m = 1, waves_n = 1}]} {
  %c0 = arith.constant 0 : index
  %c16 = arith.constant 16 : index
  %izero = arith.constant 0 : i32
  %by = gpu.block_id y
  %bx = gpu.block_id x
  %row = arith.muli %by, %c16 : index
  %column = arith.muli %bx, %c16 : index
  %shared = memref.alloc() : memref<16x16xi32, #gpu.address_space<workgroup>>
  %floats = memref.alloc() : memref<16x16xf32, #gpu.address_space<workgroup>>
  %istart = gpu.subgroup_mma_constant_matrix %izero : !gpu.mma_matrix<16x16xi32, "COp">
  %isum = scf.for %i = %c0 to %k step %c16 iter_args(%acc = %istart) -> (!gpu.mma_matrix<16x16xi32, "COp">) {
    %x = gpu.subgroup_mma_load_matrix %p[%row, %i] leadDimension 0 : memref<?x?xi8> -> !gpu.mma_matrix<16x16xsi8, "AOp">
    %y = gpu.subgroup_mma_load_matrix %q[%i, %column] leadDimension 0 : memref<?x?xi8> -> !gpu.mma_matrix<16x16xsi8, "BOp">
    %next = gpu.subgroup_mma_compute %x, %y, %acc : !gpu.mma_matrix<16x16xsi8, "AOp">, !gpu.mma_matrix<16x16xsi8, "BOp"> -> !gpu.mma_matrix<16x16xi32, "COp">
    scf.yield %next : !gpu.mma_matrix<16x16xi32, "COp">
  }
  gpu.subgroup_mma_store_matrix %isum, %shared[%c0, %c0] leadDimension 16 : !gpu.mma_matrix<16x16xi32, "COp">, memref<16x16xi32, #gpu.address_space<workgroup>>
  gpu.barrier
  %lane = gpu.thread_id x
  %lanes = gpu.block_dim x
  %c256 = arith.constant 256 : index
  scf.for %e = %lane to %c256 step %lanes {
    %er = arith.divui %e, %c16 : index
    %ec = arith.remui %e, %c16 : index
    %value = memref.load %shared[%er, %ec] : memref<16x16xi32, #gpu.address_space<workgroup>>
    %converted = arith.sitofp %value : i32 to f32
    memref.store %converted, %floats[%er, %ec] : memref<16x16xf32, #gpu.address_space<workgroup>>
  }
  gpu.barrier
  %start = gpu.subgroup_mma_load_matrix %floats[%c0, %c0] leadDimension 16 : memref<16x16xf32, #gpu.address_space<workgroup>> -> !gpu.mma_matrix<16x16xf32, "COp">
  %sum = scf.for %i = %c0 to %k step %c16 iter_args(%acc = %start) -> (!gpu.mma_matrix<16x16xf32, "COp">) {
    %x = gpu.subgroup_mma_load_matrix %a[%row, %i] leadDimension 0 : memref<?x?xf16> -> !gpu.mma_matrix<16x16xf16, "AOp">
    %y = gpu.subgroup_mma_load_matrix %b[%i, %column] leadDimension 0 : memref<?x?xf16> -> !gpu.mma_matrix<16x16xf16, "BOp">
    %next = gpu.subgroup_mma_compute %x, %y, %acc : !gpu.mma_matrix<16x16xf16, "AOp">, !gpu.mma_matrix<16x16xf16, "BOp"> -> !gpu.mma_matrix<16x16xf32, "COp">
    scf.yield %next : !gpu.mma_matrix<16x16xf32, "COp">
  }
  gpu.subgroup_mma_store_matrix %sum, %c[%row, %column] leadDimension 0 : !gpu.mma_matrix<16x16xf32, "COp">, memref<?x?xf32>
  return
}
