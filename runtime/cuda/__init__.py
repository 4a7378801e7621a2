"""The CUDA driver itself, beside IREE: our own launches, the device's clock, and bench peers."""
