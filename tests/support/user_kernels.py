"""What kernels of the emulator's tests start with, and one that several take."""

HEAD = "#include <wmma/grid.hpp>\n"
SCALE = HEAD + (
    'extern "C" __global__ void scale(float* x, const float* y, int n, float factor) {\n'
    "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n) x[i] = y[i] * factor;\n}"
)
