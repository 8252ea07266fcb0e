"""Kernels of a user under emulation: how they are launched, and how what is wrong with them is told."""

import numpy as np
import pytest
import torch
from user_kernels import HEAD, SCALE

import wmma_ops
from wmma_ops.emulator import OutOfBounds, Region


@pytest.mark.parametrize("target", wmma_ops.arch.EMULATED)
def test_kernel_of_a_user(target):
    kernel = wmma_ops.Kernel(SCALE, "scale")
    x, y = torch.zeros(1000), torch.randn(1000)
    with wmma_ops.emulate(target) as emulation:
        kernel[4, 256](x, y, 1000, 2.5)
    assert torch.equal(x, y * 2.5)
    assert emulation.launches[0].instructions > 0
    assert emulation.launches[0].by_class["memory"] > 0


def test_one_kernel_in_many_threads():
    import threading

    kernel = wmma_ops.Kernel(SCALE, "scale")
    failures = []

    def work(factor):
        x, y = torch.zeros(256), torch.randn(256)
        with wmma_ops.emulate("gfx1201"):
            for _ in range(5):
                kernel[2, 128](x, y, 256, factor)
        if not torch.equal(x, y * factor):
            failures.append(factor)

    threads = [threading.Thread(target=work, args=(float(i),)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


BAD_LAUNCHES = [
    (lambda k, x: k[1, 64](x, x, 3), TypeError, "3 arguments came; takes 4: x, y, n, factor"),
    (lambda k, x: k[1, 64](x.double(), x, 3, 1.0), TypeError, "x is torch.float64; takes torch.float32"),
    (lambda k, x: k[1, 64](3, x, 3, 1.0), TypeError, "x is of type int; takes a tensor"),
    (lambda k, x: k[1, 64](x, x, 3.5, 1.0), TypeError, r"n is 3.5; takes a whole number \(int\)"),
    (lambda k, x: k[1, 64](x, x, 2**40, 1.0), ValueError, "n is 1099511627776; takes a int"),
    (lambda k, x: k[1, 64](x, x, x, 1.0), TypeError, "n is of type Tensor; takes a number"),
    (lambda k, x: k[1, 64](x, torch.ones(3, device="meta"), 3, 1.0), ValueError, "y is on meta; takes tensors on cpu"),
    (lambda k, x: k[0, 64](x, x, 3, 1.0), ValueError, r"grid is \(0, 1, 1\)"),
    (lambda k, x: k[1, (64, 0)](x, x, 3, 1.0), ValueError, r"block is \(64, 0, 1\)"),
    (lambda k, x: k[1, 2048](x, x, 3, 1.0), ValueError, "2048 threads; gfx942 takes up to 1024"),
    (lambda k, x: k[1, 64](x, x, 3, 1.0, shared=70000), ValueError, "shared memory .* takes up to 65536"),
    (lambda k, x: k[1, 64](x, x, 3, 1.0, shared=-1), ValueError, "shared is -1"),
    (lambda k, x: k[1](x, x, 3, 1.0), ValueError, r"kernel\[grid, block\]"),
]


@pytest.mark.parametrize(("launch_it", "kind", "text"), BAD_LAUNCHES, ids=[text for _, _, text in BAD_LAUNCHES])
def test_bad_launch_is_refused(launch_it, kind, text):
    kernel = wmma_ops.Kernel(SCALE, "scale")
    x = torch.ones(64)
    with wmma_ops.emulate("gfx942"), pytest.raises(kind, match=text):
        launch_it(kernel, x)
    assert torch.equal(x, torch.ones(64))


def test_cpu_tensors_need_an_emulation():
    with pytest.raises(ValueError, match=r"wmma_ops\.emulate"):
        wmma_ops.Kernel(SCALE, "scale")[1, 64](torch.ones(64), torch.ones(64), 64, 1.0)


def test_unknown_targets_and_names():
    with pytest.raises(ValueError, match="gfx942"), wmma_ops.emulate("gfx943"):
        pass
    with pytest.raises(ValueError, match="not emulated"), wmma_ops.emulate("sm_90a"):
        pass
    with pytest.raises(ValueError, match="order is"), wmma_ops.emulate("gfx942", order="sideways"):
        pass
    with pytest.raises(ValueError, match="no `__global__ void scales"):
        wmma_ops.Kernel(SCALE, "scales")


def test_source_that_does_not_compile_names_our_line():
    kernel = wmma_ops.Kernel(
        'extern "C" __attribute__((global)) void bad(int* x) {\n  x[0] = nonsense;\n}'.replace(
            "__attribute__((global))", "__global__"
        ),
        "bad",
    )
    with wmma_ops.emulate("gfx942"), pytest.raises(wmma_ops.jit.CompileError, match=r"bad\.hip:1|bad\.hip:2"):
        kernel[1, 64](torch.zeros(4, dtype=torch.int32))


def test_memory_beside_a_fault_is_untouched():
    store = torch.zeros(300, dtype=torch.int32)
    kernel = wmma_ops.Kernel(HEAD + 'extern "C" __global__ void over(int* x) { x[threadIdx.x] = 1; }', "over")
    with wmma_ops.emulate("gfx1201"), pytest.raises(OutOfBounds):
        kernel[1, 128](store[100:140])
    assert store[:100].abs().max() == 0
    assert store[140:].abs().max() == 0


def test_regions_may_start_anywhere():
    raw = np.zeros(64, dtype=np.uint8)
    region = Region(raw.ctypes.data + 3, 10, "odd", raw)
    assert region.start % 4 == 0
    assert region.start + len(region.bytes) >= region.base + region.size
