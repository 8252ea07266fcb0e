"""Printing, assertions, sleep and grid barriers on a GPU, by the checks of the emulated tests."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from kernel_features import (
    FAILED,
    HEAD,
    MEETS,
    MORE,
    check_bounds,
    check_every_format,
    check_grid_sync,
    check_order,
    check_sleep,
)
from machine import Machine

import wmma_ops
from wmma_ops.runtime import printing

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def test_every_format(capsys):
    check_every_format(Machine("cuda"), capsys)


def test_order(capsys):
    check_order(Machine("cuda"), capsys)


def test_bounds(capsys):
    check_bounds(Machine("cuda"), capsys)


def test_sleep():
    check_sleep(Machine("cuda"))


def test_grid_sync():
    check_grid_sync(Machine("cuda"))


def test_grids_that_do_not_fit_are_refused():
    """All that fit do meet; one more is refused."""
    kernel = wmma_ops.Kernel(MEETS, "meets", options=("-DSYNC=sync_grid()",))
    x = torch.zeros(1 << 22, dtype=torch.int32, device="cuda")
    with pytest.raises(ValueError, match=r"has 1000000 blocks, .* takes up to \d+ of block") as refused:
        kernel[1_000_000, 192](x, x, 1, -1)
    room = int(re.search(r"up to (\d+)", str(refused.value))[1])
    seen = torch.zeros_like(x)
    kernel[room, 192](x, seen, 3, -1)
    assert seen[: room * 192].count_nonzero() == room * 192
    with pytest.raises(ValueError, match=rf"has {room + 1} blocks"):
        kernel[room + 1, 192](x, x, 1, -1)


def test_two_streams_share_no_barrier():
    kernel = wmma_ops.Kernel(MEETS, "meets", options=("-DSYNC=sync_grid()",))
    streams, outs = [torch.cuda.Stream() for _ in range(2)], []
    torch.cuda.synchronize()
    for turn in range(20):
        with torch.cuda.stream(streams[turn % 2]):
            x, seen = (torch.zeros(16 * 64, dtype=torch.int32, device="cuda") for _ in range(2))
            kernel[16, 64](x, seen, 5, -1)
            outs.append(seen)
    torch.cuda.synchronize()
    assert all(torch.equal(out, outs[0]) for out in outs)


def test_a_bad_format_is_refused_as_it_is_shown(capsys):
    source = HEAD + 'extern "C" __global__ void says(int n) { print("%d\\n", n); print("%f\\n", n); }'
    with pytest.raises(printing.FormatError, match=r"%f in the format .* takes floats; got an integer"):
        wmma_ops.Kernel(source, "says")[1, 1](3)
    assert capsys.readouterr().out == "3\n"


@pytest.mark.parametrize(("value", "text"), FAILED, ids=["alone", "with a message"])
def test_assertions(value, text):
    """In a process of its own, as a trap ends all that a process does on its GPU."""
    program = f"from kernel_features import *; asserts(Machine('cuda'), {value})"
    support = Path(__file__).parents[1] / "support"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(support), *sys.path])}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=120)
    # Which trap ends all, and which threads had told theirs by then, is the hardware's affair.
    text = text.format(wave="").replace(r"block \(0,", r"block \([01],").replace(r"thread \(0,", r"thread \(\d+,")
    text = text.replace(MORE, "")
    assert re.search(r"DriverError: asserts on sm_\w+: " + text, done.stderr), done.stderr


def test_graphs_are_heard_when_asked(capsys):
    source = HEAD + 'extern "C" __global__ void says(const int* n) { print("%d\\n", *n); }'
    kernel, n = wmma_ops.Kernel(source, "says"), torch.tensor([3], dtype=torch.int32, device="cuda")
    kernel[1, 1](n)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel[1, 1](n)
    for value in (4, 5):
        n.fill_(value)
        graph.replay()
    assert capsys.readouterr().out == "3\n"
    wmma_ops.flush_prints()
    assert capsys.readouterr().out == "4\n5\n"
    wmma_ops.flush_prints()
    assert capsys.readouterr().out == ""
