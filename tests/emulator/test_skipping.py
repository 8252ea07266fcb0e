"""s_setvskip: vector instructions that a wave does not issue, by a bit of a scalar."""

import pytest
import torch
from user_kernels import HEAD

import wmma_ops
from wmma_ops.emulator import UnknownInstruction
from wmma_ops.hardware import arch

SOURCE = (
    HEAD
    + r"""
extern "C" __global__ void skips(int* x, int bits) {
  int sum = 0;
  asm volatile("s_setvskip %1, 0\n v_add_u32 %0, 1, %0\n v_add_u32 %0, 16, %0\n s_setvskip 0, 0\n"
               "s_setvskip %1, 1\n v_add_u32 %0, 2, %0\n s_setvskip %1, 33\n v_add_u32 %0, 4, %0\n s_setvskip 0, 0\n"
               "s_setvskip %1, 31\n s_nop 0\n v_add_u32 %0, 8, %0\n s_setvskip 0, 0\n v_add_u32 %0, 32, %0"
               : "+v"(sum) : "s"(bits));
  x[threadIdx.x] = sum;
}"""
)


@pytest.mark.parametrize("target", [name for name in arch.EMULATED if arch.target(name).family == "cdna"])
def test_what_is_skipped_by_each_bit(target):
    kernel = wmma_ops.Kernel(SOURCE, "skips")
    for bits in (0, 1, 2, 3, -(2**31), -1):
        x = torch.zeros(64, dtype=torch.int32)
        with wmma_ops.emulate(target):
            kernel[1, 64](x, bits)
        second = 0 if bits & 2 else 6  # the bit's number counts modulo 32
        expected = (0 if bits & 1 else 17) + second + (0 if bits < 0 else 8) + 32
        assert x.tolist() == [expected] * 64, bits


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (r"s_setvskip %1, 0\n s_add_u32 s40, s40, 1\n s_setvskip 0, 0", "across 's_add_u32 s40, s40, 1'"),
        (r"s_setvskip %1, 0\n v_add_u32 %0, 1, %0\n s_barrier\n s_setvskip 0, 0", "across 's_barrier'"),
        (r"s_setvskip %1, 0\n v_add_u32 %0, 1, %0", "across 's_"),
    ],
)
def test_what_is_no_pair_is_refused(lines, told):
    source = SOURCE[: SOURCE.index("asm volatile")] + f'asm volatile("{lines}" : "+v"(sum) : "s"(bits) : "s40");\n'
    kernel = wmma_ops.Kernel(source + "  x[threadIdx.x] = sum;\n}", "skips")
    with wmma_ops.emulate("gfx942"), pytest.raises(UnknownInstruction, match=told):
        kernel[1, 64](torch.zeros(64, dtype=torch.int32), 1)
