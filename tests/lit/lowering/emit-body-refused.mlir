// RUN: not %lowering opt %s -p emit-body --split-input-file 2>&1 | %filecheck %s

// What the pass reads was written by the passes before it, or by hand: then it may be anything.

// CHECK: emit-body-refused.mlir:[[# @LINE + 1]]:1: error: kernel 'f': member 4x4x4_t3x4: inner tile 3x4 does not divide 4x4
func.func @f__m() attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], xpu.family = "f", xpu.body = "cpu_mmt4d",
    xpu.tile = {m = 4, n = 4, k = 4, thread_m = 3, thread_n = 4, waves_m = 0, waves_n = 0, stages = 0},
    xpu.contraction = {m = "M", n = "N", k = "K", accumulator = "f32", accumulate = false, extras = [], epilogue = [],
      a = {name = "a", type = "f32", dims = ["M", "K"]}, b = {name = "b", type = "f32", dims = ["K", "N"]}, c = {name = "c", type = "f32", dims = ["M", "N"]}}} { return }

// -----

// CHECK: emit-body-refused.mlir:[[# @LINE + 1]]:1: error: xpu.contraction is missing, an earlier pass writes it
func.func @f__m() attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], xpu.body = "cpu_mmt4d"} { return }

// -----

// CHECK: emit-body-refused.mlir:[[# @LINE + 1]]:1: error: key 'xpu.contraction.m' is missing
func.func @f__m() attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], xpu.body = "cpu_mmt4d", xpu.contraction = {}} { return }

// -----

// CHECK: emit-body-refused.mlir:[[# @LINE + 1]]:1: error: xpu.contraction: dims ['M', 'Q'] of 'a' are not distinct sizes of ['M', 'N', 'K']
func.func @f__m() attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], xpu.family = "f", xpu.body = "cpu_mmt4d",
    xpu.contraction = {m = "M", n = "N", k = "K", accumulator = "f32", accumulate = false, extras = [], epilogue = [],
      a = {name = "a", type = "f32", dims = ["M", "Q"]}, b = {name = "b", type = "f32", dims = ["K", "N"]}, c = {name = "c", type = "f32", dims = ["M", "N"]}}} { return }

// -----

// CHECK: emit-body-refused.mlir:[[# @LINE + 1]]:1: error: xpu.contraction: epilogue step 'add' reads 'bias', which is not there
func.func @f__m() attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], xpu.family = "f", xpu.body = "cpu_mmt4d",
    xpu.contraction = {m = "M", n = "N", k = "K", accumulator = "f32", accumulate = false, extras = [], epilogue = [{op = "add", operand = "bias"}],
      a = {name = "a", type = "f32", dims = ["M", "K"]}, b = {name = "b", type = "f32", dims = ["K", "N"]}, c = {name = "c", type = "f32", dims = ["M", "N"]}}} { return }

// -----

// CHECK: emit-body-refused.mlir:[[# @LINE + 1]]:1: error: member 4x4x70000_t2x2: k = 70000 is not within 1 and 65536
func.func @f__m() attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], xpu.family = "f", xpu.body = "cpu_mmt4d",
    xpu.tile = {m = 4, n = 4, k = 70000, thread_m = 2, thread_n = 2, waves_m = 0, waves_n = 0, stages = 0},
    xpu.contraction = {m = "M", n = "N", k = "K", accumulator = "f32", accumulate = false, extras = [], epilogue = [],
      a = {name = "a", type = "f32", dims = ["M", "K"]}, b = {name = "b", type = "f32", dims = ["K", "N"]}, c = {name = "c", type = "f32", dims = ["M", "N"]}}} { return }

// -----

// CHECK: emit-body-refused.mlir:[[# @LINE + 1]]:1: error: xpu.body must be a string, found 7
func.func @f__m() attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], xpu.family = "f", xpu.body = 7,
    xpu.tile = {m = 4, n = 4, k = 4, thread_m = 2, thread_n = 2, waves_m = 0, waves_n = 0, stages = 0},
    xpu.contraction = {m = "M", n = "N", k = "K", accumulator = "f32", accumulate = false, extras = [], epilogue = [],
      a = {name = "a", type = "f32", dims = ["M", "K"]}, b = {name = "b", type = "f32", dims = ["K", "N"]}, c = {name = "c", type = "f32", dims = ["M", "N"]}}} { return }
