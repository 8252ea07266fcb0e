"""What kernels ask of the hardware, read from their machine code."""
