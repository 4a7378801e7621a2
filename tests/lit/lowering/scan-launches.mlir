// DEFINE: %{scan} = %lowering opt %s --split-input-file -p
// RUN: %{scan} scan-launches | %filecheck %s

module attributes {gpu.container_module} {
  // Two sites: the larger block is the bound, and there is no one triple.
  // CHECK-LABEL: func.func @two
  // CHECK-SAME:    xpu.launch = {sites = 2 : i64, threads = 256 : i64, unbounded = []}
  func.func @two() attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]} { return }

  // Every site has the same triple, written with arithmetic on constants.
  // CHECK-LABEL: func.func @same
  // CHECK-SAME:    xpu.launch = {block = [16, 8, 1], sites = 2 : i64, threads = 128 : i64, unbounded = []}
  func.func @same() attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]} { return }

  // One block that is no constant takes the bound away, whatever the others say.
  // CHECK-LABEL: func.func @open
  // CHECK-SAME:    xpu.launch = {sites = 2 : i64, unbounded = ["{{.*}}scan-launches.mlir:[[# @LINE + 23]]:5"]}
  func.func @open() attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]} { return }

  // Nobody launches it, and a call leaves the block to the body.
  // CHECK-LABEL: func.func @alone() attributes {xpu.dims = ["M", "N", "K"], xpu.kernel}
  func.func @alone() attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]} { return }
  // CHECK-LABEL: func.func @called
  // CHECK-SAME:    xpu.launch = {sites = 1 : i64, unbounded = []}
  func.func @called() attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]} { return }

  gpu.module @device {
    gpu.func @two() kernel { gpu.return }
    gpu.func @same() kernel { gpu.return }
    gpu.func @open() kernel { gpu.return }
  }
  func.func @host(%n: index) {
    %one = arith.constant 1 : index
    %c8 = arith.constant 8 : index
    %c16 = arith.addi %c8, %c8 : index
    %c128 = arith.constant 128 : index
    %c256 = arith.muli %c16, %c16 : index
    gpu.launch_func @device::@two blocks in (%n, %one, %one) threads in (%c128, %one, %one)
    gpu.launch_func @device::@two blocks in (%n, %one, %one) threads in (%c256, %one, %one)
    gpu.launch_func @device::@open blocks in (%n, %one, %one) threads in (%n, %one, %one)
    gpu.launch_func @device::@open blocks in (%n, %one, %one) threads in (%c256, %one, %one)
    gpu.launch_func @device::@same blocks in (%n, %one, %one) threads in (%c16, %c8, %one)
    gpu.launch_func @device::@same blocks in (%one, %n, %one) threads in (%c16, %c8, %one)
    func.call @called() : () -> ()
    return
  }
}
