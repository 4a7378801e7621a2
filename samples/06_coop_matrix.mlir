// Kernels written in cooperative-matrix IR: the author keeps the loops and says what each wave
// multiplies; the lowering gives each group of tiles the matrix instruction that the target has for
// exactly its types and shape, and spreads the others over the lanes of the wave. On a processor one
// worker runs all waves of a workgroup, and each of them holds whole tiles.
//
//   python -m lowering run samples/06_coop_matrix.mlir --kernel coop_f16 --shape 512x512x512
//   python -m lowering compile samples/06_coop_matrix.mlir --target cuda:sm_90a --target rocm:gfx1100
//   python -m lowering run samples/06_coop_matrix.mlir --kernel coop_f16 --shape 64x64x64 --device vulkan
//
// The form: the memrefs are the operands of the function that xpu.reference names, in its order and
// the result last, then comes one index for each of xpu.dims. One workgroup computes the m x n tile
// of the only member, gpu.block_id x is its column and y its row. Any sizes are right: a tile that
// is loaded from an argument is zero outside of it, what is stored outside is dropped.
// leadDimension 0: rows of an argument are as far apart as the caller says.

// What coop_f16 computes. Checks of every candidate are against this, never against a candidate.
func.func @product(%a: tensor<?x?xf16>, %b: tensor<?x?xf16>) -> tensor<?x?xf32> {
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

// C = A * B: four waves, each with a 16 x 16 tile of a 32 x 32 one.
func.func @coop_f16(%a: memref<?x?xf16>, %b: memref<?x?xf16>, %c: memref<?x?xf32>,
                    %m: index, %n: index, %k: index)
    attributes {
      xpu.kernel,
      xpu.dims = ["M", "N", "K"],
      xpu.reference = @product,
      xpu.instantiate = [{m = 32, n = 32, k = 16, waves_m = 2, waves_n = 2}]
    } {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c16 = arith.constant 16 : index
  %c32 = arith.constant 32 : index
  %zero = arith.constant 0.0 : f32
  %block_row = gpu.block_id y
  %block_column = gpu.block_id x
  %wave = gpu.subgroup_id : index
  %wave_row = arith.divui %wave, %c2 : index
  %wave_column = arith.remui %wave, %c2 : index
  %row0 = arith.muli %block_row, %c32 : index
  %row1 = arith.muli %wave_row, %c16 : index
  %row = arith.addi %row0, %row1 : index
  %column0 = arith.muli %block_column, %c32 : index
  %column1 = arith.muli %wave_column, %c16 : index
  %column = arith.addi %column0, %column1 : index
  %start = gpu.subgroup_mma_constant_matrix %zero : !gpu.mma_matrix<16x16xf32, "COp">
  %sum = scf.for %i = %c0 to %k step %c16 iter_args(%acc = %start)
      -> (!gpu.mma_matrix<16x16xf32, "COp">) {
    %x = gpu.subgroup_mma_load_matrix %a[%row, %i] leadDimension 0
        : memref<?x?xf16> -> !gpu.mma_matrix<16x16xf16, "AOp">
    %y = gpu.subgroup_mma_load_matrix %b[%i, %column] leadDimension 0
        : memref<?x?xf16> -> !gpu.mma_matrix<16x16xf16, "BOp">
    %next = gpu.subgroup_mma_compute %x, %y, %acc
        : !gpu.mma_matrix<16x16xf16, "AOp">, !gpu.mma_matrix<16x16xf16, "BOp">
        -> !gpu.mma_matrix<16x16xf32, "COp">
    scf.yield %next : !gpu.mma_matrix<16x16xf32, "COp">
  }
  gpu.subgroup_mma_store_matrix %sum, %c[%row, %column] leadDimension 0
      : !gpu.mma_matrix<16x16xf32, "COp">, memref<?x?xf32>
  return
}

// What coop_two_types computes: a product of floats, plus one of integers.
func.func @two_products(%a: tensor<?x?xf16>, %b: tensor<?x?xf16>,
                        %ai: tensor<?x?xi8> {xpu.name = "ai"},
                        %bi: tensor<?x?xi8> {xpu.name = "bi"}) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %izero = arith.constant 0 : i32
  %m = tensor.dim %a, %c0 : tensor<?x?xf16>
  %n = tensor.dim %b, %c1 : tensor<?x?xf16>
  %empty = tensor.empty(%m, %n) : tensor<?x?xf32>
  %iempty = tensor.empty(%m, %n) : tensor<?x?xi32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x?xf32>) -> tensor<?x?xf32>
  %iinit = linalg.fill ins(%izero : i32) outs(%iempty : tensor<?x?xi32>) -> tensor<?x?xi32>
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf16>, tensor<?x?xf16>)
                     outs(%init : tensor<?x?xf32>) -> tensor<?x?xf32>
  %1 = linalg.matmul ins(%ai, %bi : tensor<?x?xi8>, tensor<?x?xi8>)
                     outs(%iinit : tensor<?x?xi32>) -> tensor<?x?xi32>
  %2 = linalg.generic {
         indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>,
                          affine_map<(m, n) -> (m, n)>],
         iterator_types = ["parallel", "parallel"]}
       ins(%0, %1 : tensor<?x?xf32>, tensor<?x?xi32>) outs(%empty : tensor<?x?xf32>) {
  ^bb0(%x: f32, %y: i32, %old: f32):
    %converted = arith.sitofp %y : i32 to f32
    %sum = arith.addf %x, %converted : f32
    linalg.yield %sum : f32
  } -> tensor<?x?xf32>
  return %2 : tensor<?x?xf32>
}

// C = A * B + float(Ai * Bi): two operand groups, each with a tier of its own. A device that lists
// f16 16x16x16 and not i8 16x16x16 multiplies one on its matrix cores and spreads the other.
func.func @coop_two_types(%a: memref<?x?xf16>, %b: memref<?x?xf16>,
                          %ai: memref<?x?xi8>, %bi: memref<?x?xi8>, %c: memref<?x?xf32>,
                          %m: index, %n: index, %k: index)
    attributes {
      xpu.kernel,
      xpu.dims = ["M", "N", "K"],
      xpu.reference = @two_products,
      xpu.instantiate = [{m = 16, n = 16, k = 16, waves_m = 1, waves_n = 1}]
    } {
  %c0 = arith.constant 0 : index
  %c16 = arith.constant 16 : index
  %c256 = arith.constant 256 : index
  %izero = arith.constant 0 : i32
  %block_row = gpu.block_id y
  %block_column = gpu.block_id x
  %row = arith.muli %block_row, %c16 : index
  %column = arith.muli %block_column, %c16 : index
  %integers = memref.alloc() : memref<16x16xi32, #gpu.address_space<workgroup>>
  %floats = memref.alloc() : memref<16x16xf32, #gpu.address_space<workgroup>>

  // the group of integers
  %istart = gpu.subgroup_mma_constant_matrix %izero : !gpu.mma_matrix<16x16xi32, "COp">
  %isum = scf.for %i = %c0 to %k step %c16 iter_args(%acc = %istart)
      -> (!gpu.mma_matrix<16x16xi32, "COp">) {
    %x = gpu.subgroup_mma_load_matrix %ai[%row, %i] leadDimension 0
        : memref<?x?xi8> -> !gpu.mma_matrix<16x16xsi8, "AOp">
    %y = gpu.subgroup_mma_load_matrix %bi[%i, %column] leadDimension 0
        : memref<?x?xi8> -> !gpu.mma_matrix<16x16xsi8, "BOp">
    %next = gpu.subgroup_mma_compute %x, %y, %acc
        : !gpu.mma_matrix<16x16xsi8, "AOp">, !gpu.mma_matrix<16x16xsi8, "BOp">
        -> !gpu.mma_matrix<16x16xi32, "COp">
    scf.yield %next : !gpu.mma_matrix<16x16xi32, "COp">
  }

  // no op converts a tile: through workgroup memory, element by element, whatever the wave width
  gpu.subgroup_mma_store_matrix %isum, %integers[%c0, %c0] leadDimension 16
      : !gpu.mma_matrix<16x16xi32, "COp">, memref<16x16xi32, #gpu.address_space<workgroup>>
  gpu.barrier
  %lane = gpu.thread_id x
  %lanes = gpu.block_dim x
  scf.for %e = %lane to %c256 step %lanes {
    %er = arith.divui %e, %c16 : index
    %ec = arith.remui %e, %c16 : index
    %value = memref.load %integers[%er, %ec]
        : memref<16x16xi32, #gpu.address_space<workgroup>>
    %converted = arith.sitofp %value : i32 to f32
    memref.store %converted, %floats[%er, %ec]
        : memref<16x16xf32, #gpu.address_space<workgroup>>
  }
  gpu.barrier

  // the group of floats starts from there
  %start = gpu.subgroup_mma_load_matrix %floats[%c0, %c0] leadDimension 16
      : memref<16x16xf32, #gpu.address_space<workgroup>> -> !gpu.mma_matrix<16x16xf32, "COp">
  %sum = scf.for %i = %c0 to %k step %c16 iter_args(%acc = %start)
      -> (!gpu.mma_matrix<16x16xf32, "COp">) {
    %x = gpu.subgroup_mma_load_matrix %a[%row, %i] leadDimension 0
        : memref<?x?xf16> -> !gpu.mma_matrix<16x16xf16, "AOp">
    %y = gpu.subgroup_mma_load_matrix %b[%i, %column] leadDimension 0
        : memref<?x?xf16> -> !gpu.mma_matrix<16x16xf16, "BOp">
    %next = gpu.subgroup_mma_compute %x, %y, %acc
        : !gpu.mma_matrix<16x16xf16, "AOp">, !gpu.mma_matrix<16x16xf16, "BOp">
        -> !gpu.mma_matrix<16x16xf32, "COp">
    scf.yield %next : !gpu.mma_matrix<16x16xf32, "COp">
  }
  gpu.subgroup_mma_store_matrix %sum, %c[%row, %column] leadDimension 0
      : !gpu.mma_matrix<16x16xf32, "COp">, memref<?x?xf32>
  return
}
