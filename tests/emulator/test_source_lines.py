"""The line that a fault names: the user's own, by whatever clang compiled it."""

import re
import shutil
from pathlib import Path

import pytest
import torch

import wmma_ops
from wmma_ops import jit
from wmma_ops.emulator import OutOfBounds, assembly, inlined
from wmma_ops.hardware import arch
from wmma_ops.jit import clang

EXAMPLES = Path(__file__).parents[1] / "support/examples"
COMPILERS = ["the usual", "clang-19"]  # which tells of inlined calls in its debugging information alone

# A helper of the user's own, inlined, and a call of the library within it.
SOURCE = """#include <wmma/fragment.hpp>
using namespace wmma;
__device__ void add(int* x, int at, int n) {
  x[at] += 1;
  atomic_add(x + at + n, 2);
}
extern "C" __global__ void far(int* x, int n) {
  add(x, threadIdx.x, n);
}"""


@pytest.fixture(params=COMPILERS)
def compiler(request, monkeypatch):
    if request.param != "the usual":
        if not (found := shutil.which(request.param)):
            pytest.skip(f"there is no {request.param} on PATH")
        monkeypatch.setenv(clang.ASKED, found)


@pytest.mark.parametrize("target", [name for name in arch.EMULATED if name != "gfx950"])  # which clang-19 does not know
def test_faults_name_the_users_line_and_then_the_librarys(compiler, target):
    kernel, x = wmma_ops.Kernel(SOURCE, "far"), torch.zeros(64, dtype=torch.int32)
    with wmma_ops.emulate(target):
        with pytest.raises(OutOfBounds, match=rf"^far on {target}: far\.hip:5 \(in \w+\.hpp:\d+\): `global_atomic"):
            kernel[1, 64](x, 100)
        with pytest.raises(OutOfBounds, match=rf"^far on {target}: far\.hip:4: `global_load"):
            kernel[1, 128](x, 0)


@pytest.mark.parametrize("target", arch.EMULATED)
def test_both_ways_of_telling_inlined_calls_agree(target):
    """What stands behind .loc lines, taken away, is found again in the debugging information."""
    count = 0
    for name in ("gemm_shared", "lanes"):
        text = jit.compile((EXAMPLES / f"{name}.hip").read_text(), target, name=f"{name}.hip").assembly
        if "@[" not in text:
            pytest.skip("this clang tells it in its debugging information alone")
        told, found = (assembly.parse(one).kernels[name].instructions for one in (text, re.sub(r" @\[.*", "", text)))
        assert [(x.source, x.position) for x in told] == [(x.source, x.position) for x in found]
        count += sum(" " in x.position for x in told)
    assert count > 100


@pytest.mark.parametrize(
    ("written", "value"),
    [("127", 127), ("0x7f", 127), (r'"\200\001"', 128), (r'"\254\002"', 300), (r'"\305A"', 69 + (65 << 7))],
)
def test_numbers_of_any_length_are_read(written, value):
    """As clang writes them: bytes of 7 bits from 128 on, the printable ones as letters."""
    assert inlined.leb128(written) == value
