// RUN: not %lowering opt %s -p verify-declarations --split-input-file 2>%t | %filecheck %s
// RUN: %filecheck %s --check-prefix=REFUSED <%t

// Everything an author may state, as it stood.
// CHECK-LABEL: func.func @all
// CHECK-SAME:    xpu.kernel
// CHECK-SAME:    xpu.occupancy = {max_threads = "waves_m * waves_n * wave"}
func.func @all() attributes {
    xpu.kernel, xpu.dims = ["M", "N", "K"], xpu.wave = {width = 32}, xpu.fast_math,
    xpu.occupancy = {max_threads = "waves_m * waves_n * wave"},
    xpu.requires = "m % 16 == 0 and n % 16 == 0",
    xpu.instantiate = [{m = 64, n = 64, k = 16, backends = ["nvidia", "SPIR-V"]}],
    xpu.spills = {tracked = "plan item 7", backends = ["amd"], members = ["64x64x16"]}
} { return }

// Functions that declare nothing are none of our business.
// CHECK-LABEL: func.func @helper() {
func.func @helper() { return }

// -----

// A kernel needs no more than its sizes.
// CHECK-LABEL: func.func @least
func.func @least() attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]} { return }

// -----

// REFUSED: verify-declarations.mlir:[[# @LINE + 1]]:1: error: unknown declaration 'xpu.nonsense', known are kernel, dims,
func.func @f() attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], xpu.nonsense} { return }

// -----

module {
  // The column of the function, wherever it stands.
  // REFUSED: verify-declarations.mlir:[[# @LINE + 1]]:3: error: kernel 'f' lacks xpu.dims, the names of its sizes
  func.func @f() attributes {xpu.kernel} { return }
}

// -----

// REFUSED: verify-declarations.mlir:[[# @LINE + 1]]:1: error: function 'f' has xpu.dims but no xpu.kernel
func.func @f() attributes {xpu.dims = ["M", "N", "K"]} { return }

// -----

// Every kernel that is wrong is named, not the first alone.
// REFUSED: :[[# @LINE + 1]]:1: error: xpu.dims must be distinct identifiers, found ['M', 'M', 'K']
func.func @f() attributes {xpu.kernel, xpu.dims = ["M", "M", "K"]} { return }
// REFUSED: :[[# @LINE + 1]]:1: error: xpu.dims must be distinct identifiers, found ['if', 'N', 'K']
func.func @g() attributes {xpu.kernel, xpu.dims = ["if", "N", "K"]} { return }

// -----

// REFUSED: :[[# @LINE + 1]]:1: error: a member of xpu.instantiate lacks 'k'
func.func @f() attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], xpu.instantiate = [{m = 1, n = 1}]} { return }

// -----

// REFUSED: :[[# @LINE + 1]]:1: error: xpu.instantiate has no 'wm', known are m, n, k,
func.func @f() attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], xpu.instantiate = [{m = 1, n = 1, k = 1, wm = 1}]} { return }

// -----

// REFUSED: :[[# @LINE + 1]]:1: error: member -1x1x1: m = -1 is not within 1 and 65536
func.func @f() attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], xpu.instantiate = [{m = -1, n = 1, k = 1}]} { return }

// -----

// REFUSED: :[[# @LINE + 1]]:1: error: xpu.instantiate.backends: backend 'tpu' is not one of cpu, cuda, rocm, vulkan
func.func @f() attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], xpu.instantiate = [{m = 1, n = 1, k = 1, backends = ["tpu"]}]} { return }

// -----

// An expression may name what a member has, not what only a call knows.
// REFUSED: :[[# @LINE + 1]]:1: error: xpu.requires: expression 'M % 16 == 0' names 'M', which is not one of: m, n, k,
func.func @f() attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], xpu.requires = "M % 16 == 0"} { return }

// -----

// REFUSED: :[[# @LINE + 1]]:1: error: expression 'm / 2': '/' is not supported, use '//' or ceildiv
func.func @f() attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], xpu.occupancy = {max_threads = "m / 2"}} { return }

// -----

// REFUSED: :[[# @LINE + 1]]:1: error: xpu.occupancy takes max_threads or max_waves, not both
func.func @f() attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], xpu.occupancy = {max_threads = 64, max_waves = 2}} { return }

// -----

// REFUSED: :[[# @LINE + 1]]:1: error: xpu.wave width must be a power of two up to 1024, found 48
func.func @f() attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], xpu.wave = {width = 48}} { return }

// -----

// A kernel's name becomes a folder and a symbol.
// REFUSED: :[[# @LINE + 1]]:1: error: a kernel's name must be a plain identifier {{.*}} found '../f'
func.func @"../f"() attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]} { return }

// -----

// REFUSED: :[[# @LINE + 1]]:1: error: unknown declaration 'xpu.title' on an argument
func.func @f(%a: f32 {xpu.title = "a"}) attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]} { return }

// -----

// REFUSED: :[[# @LINE + 1]]:1: error: xpu.name must be an identifier other than workspace, packed, found 'workspace'
func.func @f(%a: f32 {xpu.name = "workspace"}) attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]} { return }

// -----

// A declaration anywhere else would be silently without effect.
// REFUSED: :[[# @LINE + 1]]:1: error: xpu.fast_math belongs on a function of the outermost module, found on 'builtin.module'
module attributes {xpu.fast_math} {
  func.func @f() attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]} { return }
}

// -----

// A location that the author gave is the one that is reported.
// REFUSED: model.py:12:7: error: xpu.kernel must be a unit attribute
func.func @f() attributes {xpu.kernel = 1, xpu.dims = ["M", "N", "K"]} { return } loc("model.py":12:7)

// -----

// REFUSED: verify-declarations.mlir: error: the module has no function with xpu.kernel
func.func @f() { return }
