"""Kernels of a user through the drivers' own lines: what they print and assert."""

import re
import time

import numpy as np
import pytest
import torch
from kernel_features import ASSERTS, FAILED, MEETS, ORDER
from stand_in import COMPILER, TARGET
from user_kernels import SCALE

import wmma_ops
from wmma_ops import jit
from wmma_ops.plan import CaptureError
from wmma_ops.runtime import cooperative, driver, printing
from wmma_ops.runtime.mentions import uses

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler to build the stand-in with")

_READS = ("ModuleGetGlobal", "MemcpyDtoH", "StreamSynchronize")
_WRITES = ("ModuleGetGlobal", "MemcpyHtoD", "StreamSynchronize")
CALLS = {
    kind: [f"{prefix}{call}" for call in (*_WRITES, launch, *_READS, *_WRITES)]
    for kind, prefix, launch in (("hip", "hip", "ModuleLaunchKernel"), ("cuda", "cu", "LaunchKernel"))
}


def _may_touch(device, kernel, **tensors):
    """The tensors, and the memory of what it prints."""

    def memory(_):
        (loaded,) = kernel._loaded.values()
        return tensors | {"printed": torch.from_numpy(loaded._prints.words.view("int32"))}

    device.memory = memory


@pytest.mark.parametrize("kind", CALLS)
def test_what_is_printed_is_read_after_the_launch(library, device, capsys, kind):
    kernel = wmma_ops.Kernel(ORDER, "order")
    _may_touch(device, kernel)
    with driver.use(kind, str(library), TARGET):
        kernel[1, 2](1)
        assert [call for call in device.noted if re.search("Get[G]lobal|Memcpy|Launch|Synchronize", call)] == CALLS[
            kind
        ]
        kernel[1, 1](2)  # from an empty buffer again
    assert capsys.readouterr().out == "0 0,0 0,0\n0 0,0 1,0\n0 0,0 0,0\n1 0,0 0,0\n"


@pytest.mark.parametrize("kind", CALLS)
def test_an_assertion_is_read_after_a_trap(library, device, capsys, kind):
    """The memory is the host's: it is there when the device's is not."""
    kernel, x = wmma_ops.Kernel(ASSERTS, "asserts"), torch.tensor([5, 200], dtype=torch.int32)
    _may_touch(device, kernel, x=x)
    with driver.use(kind, str(library), TARGET):
        kernel[1, (32, 1)](x, 10)
        assert capsys.readouterr().out == "before 0\n"  # and is not told again
        device.library.fail({"hip": b"hipStreamSynchronize", "cuda": b"cuStreamSynchronize"}[kind], 719)
        with pytest.raises(
            driver.DriverError, match=rf"^asserts on {TARGET}: " + FAILED[0][1].format(wave="")
        ) as caught:
            kernel[1, (32, 2)](x, 10)
    assert "StreamSynchronize" in str(caught.value.__cause__)
    assert capsys.readouterr().out == "before 0\n"
    (trap,) = device.errors
    assert isinstance(trap, wmma_ops.emulator.Trap)
    device.errors.clear()


@pytest.mark.parametrize("kind", CALLS)
def test_a_bad_format_leaves_nothing_behind(library, device, capsys, kind):
    """It is refused as its text is shown; the next launch has the room of the one before."""
    kernel = wmma_ops.Kernel(ORDER, "order", print_bytes=100)  # of which a line takes 76
    _may_touch(device, kernel)
    formatted = printing.formatted
    with driver.use(kind, str(library), TARGET), pytest.MonkeyPatch.context() as patch:
        patch.setattr(printing, "formatted", lambda form, values: formatted(b"%f", values[:1]))
        with pytest.raises(printing.FormatError, match="takes floats; got an integer"):
            kernel[1, 1](1)
        patch.undo()
        kernel[1, 1](1)
    assert capsys.readouterr().out == "0 0,0 0,0\n"


@pytest.mark.parametrize("kind", CALLS)
def test_prints_that_would_be_lost_are_refused(library, device, monkeypatch, kind):
    monkeypatch.setattr(type(device), "_variable", lambda *_: 0)
    device.__init__(library)  # with that in its callbacks
    device.note_compiled(monkeypatch)
    found = r"order: the driver finds no .*print_buffer.* in its code"
    with driver.use(kind, str(library), TARGET), pytest.raises(driver.DriverError, match=found):
        wmma_ops.Kernel(ORDER, "order")[1, 1](1)
    assert device.launches == []


@pytest.mark.parametrize("kind", CALLS)
def test_blocks_that_meet_are_launched_together(library, device, kind):
    kernel = wmma_ops.Kernel(MEETS, "meets", options=("-DSYNC=sync_grid()",))
    x, seen = torch.zeros(4 * 64, dtype=torch.int32), torch.zeros(4 * 64, dtype=torch.int32)
    device.memory = lambda data: {"x": x, "seen": seen}
    with driver.use(kind, str(library), TARGET):
        kernel[4, 64](x, seen, 3, -1)
        launch = {"hip": "hipModuleLaunchCooperativeKernel", "cuda": "cuLaunchCooperativeKernel"}[kind]
        assert [call for call in device.noted if "room" in call or "Launch" in call] == ["room", launch]
        with pytest.raises(ValueError, match=f"{TARGET} of 64 units takes up to {64 * 2048 // 64} of block"):
            kernel[64 * 2048 // 64 + 1, 64](x, seen, 3, -1)
    assert torch.equal(seen.long(), sum(i * 1000 + (torch.arange(256) + 129) % 256 for i in range(3)))


def test_what_a_graph_cannot_hold_is_refused(library, device, monkeypatch):
    """Loading, and a barrier that two replays would share; what is loaded and prints is captured, and heard of later."""
    x, seen = torch.zeros(64, dtype=torch.int32), torch.zeros(64, dtype=torch.int32)
    device.memory = lambda data: {"x": x, "seen": seen}
    meets = wmma_ops.Kernel(MEETS, "meets", options=("-DSYNC=sync_grid()",))
    with driver.use("cuda", str(library), TARGET):
        with monkeypatch.context() as patch:
            patch.setattr(driver, "capturing", lambda device: True)
            with pytest.raises(CaptureError, match=r"meets is not loaded yet.*launch it once before"):
                meets[1, 64](x, seen, 1, -1)
        meets[1, 64](x, seen, 1, -1)
        with monkeypatch.context() as patch:
            patch.setattr(driver, "capturing", lambda device: True)
            with pytest.raises(
                CaptureError, match=r"meets: blocks that meet at a barrier \(sync_grid\) are not captured"
            ):
                meets[1, 64](x, seen, 1, -1)


def test_where_nothing_was_written_is_passed_over_quickly():
    """A trap loses how much was: all of the buffer is looked at."""
    words = np.zeros(1 << 26, dtype=np.uint32)
    words[-9:-3] = [6, 1, 2, 3, ord("i") | 4 << 8, 7]
    started = time.monotonic()
    records, dropped = printing.Buffer(words).read(None)
    assert time.monotonic() - started < 5
    assert [(r.block, r.thread, r.items[0].integer(True)) for r in records] == [(2, 3, 7)]
    assert (dropped, words.any()) == (0, False)


BESIDE = """#include <wmma/grid_sync.hpp>
#include <wmma/print.hpp>
__device__ __attribute__((noinline)) void meet() { wmma::sync_grid(); }
extern "C" __global__ void plain(int* x) { x[threadIdx.x] = 7; }
extern "C" __global__ void meets(int* x) { meet(); x[0] = 7; }
extern "C" __global__ void says(int* x) { wmma::print("%d\\n", x[0]); }
"""


@pytest.mark.parametrize("target", ["gfx942", "gfx1201", "sm_80", "sm_90a"])
def test_only_kernels_that_need_it_are_waited_for_or_launched_together(target):
    """What they call counts; of NVIDIA's functions, which kernel calls them is not told apart."""
    code = jit.compile(BESIDE, target, name="beside.hip")
    names = ("plain", "meets", "says")
    assert [name for name in names if uses(code, name, printing.SYMBOL)] == ["says"]
    calls = target.startswith("sm_") and ".func" in code.assembly
    assert [name for name in names if uses(code, name, cooperative.SYMBOL)] == (list(names) if calls else ["meets"])


def test_a_kernel_that_says_nothing_is_not_waited_for(library, device):
    x = torch.zeros(32, dtype=torch.int32)
    device.memory = lambda data: {"x": x}
    with driver.use("cuda", str(library), TARGET):
        wmma_ops.Kernel(BESIDE, "plain")[1, 32](x)
    assert x.tolist() == [7] * 32
    assert not [call for call in device.noted if "Synchronize" in call or "Global" in call]


def test_a_code_object_is_loaded_and_launched_as_it_is(library, device, tmp_path):
    code = jit.compile(SCALE, TARGET, name="scale.hip")
    path = tmp_path / "scale.co"
    path.write_bytes(code.code)
    kernel, x, y = wmma_ops.Kernel.from_code_object(path), torch.zeros(100), torch.randn(100)
    device.memory = lambda _: {"x": x, "y": y}
    with driver.use("hip", str(library), TARGET):
        kernel[2, 64](x, y, np.int32(90), 0.5)
        assert any("ModuleLoadData" in call for call in device.noted)
    assert torch.equal(x, (y * 0.5).where(torch.arange(100) < 90, 0))
    with (
        driver.use("hip", str(library), "gfx942"),
        pytest.raises(ValueError, match=f"for {TARGET}, and gfx942 was asked"),
    ):
        kernel[2, 64](x, y, np.int32(90), 0.5)
