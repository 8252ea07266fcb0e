"""Barriers as the hardware counts them: waves at different instructions, groups out of phase, waves that have ended."""

import pytest
import torch
from user_kernels import HEAD

import wmma_ops
from wmma_ops.emulator import DivergentBarrier, EndlessLoop, Race
from wmma_ops.hardware import arch

TARGETS = pytest.mark.parametrize("target", arch.EMULATED)
ORDERS = ("forward", "reverse", "random")

# Two groups of waves change one array in turns: one passes one barrier more at its start, the other one at its end.
PING_PONG = (
    HEAD
    + """extern "C" __global__ void ping_pong(int* x, int rounds) {
  __shared__ int s[128];
  const int i = threadIdx.x % 128, group = threadIdx.x / 128;
  if (group == 0) s[i] = i;
  wmma::sync_workgroup();
  if (group == 1 && !NONE_AHEAD) wmma::sync_workgroup();
  for (int round = 0; round < rounds; ++round) {
    s[i] = 3 * s[i] + group + round;
    if (!(group == 0 && round == LEFT_OUT)) wmma::sync_workgroup();
    if (round + 1 < rounds || !LAST_LEFT_OUT) wmma::sync_workgroup();
  }
  if (group == 1) x[i] = s[i];
  if (group == 0 && !NONE_BEHIND) wmma::sync_workgroup();
}"""
)


def _ping_pong(target: str, order: str, rounds: int = 3, **changed) -> torch.Tensor:
    given = {"NONE_AHEAD": 0, "LEFT_OUT": -1, "LAST_LEFT_OUT": 0, "NONE_BEHIND": 0} | changed
    options = tuple(f"-D{name}={value}" for name, value in given.items())
    x = torch.zeros(128, dtype=torch.int32)
    with wmma_ops.emulate(target, order=order, seed=7):
        wmma_ops.Kernel(PING_PONG, "ping_pong", options=options)[1, 256](x, rounds)
    return x


def _alternated(rounds: int = 3) -> torch.Tensor:
    x = torch.arange(128, dtype=torch.int32)
    for round in range(rounds):
        for group in range(2):
            x = 3 * x + group + round
    return x


@TARGETS
@pytest.mark.parametrize("order", ORDERS)
def test_two_groups_out_of_phase(target, order):
    """With the barrier that ends the first group's, and without: then it has ended, and counts no more."""
    for none_behind in (0, 1):
        assert torch.equal(_ping_pong(target, order, NONE_BEHIND=none_behind), _alternated())


@TARGETS
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("changed", [{"NONE_AHEAD": 1}, {"LEFT_OUT": 0}, {"LEFT_OUT": 1}], ids=str)
def test_groups_that_one_barrier_too_few_brings_in_phase_race(target, order, changed):
    with pytest.raises(Race, match=r"of shared byte .* no barrier between"):
        _ping_pong(target, order, **changed)


@pytest.mark.parametrize("order", ORDERS)
def test_a_barrier_too_few_after_which_nothing_is_shared_is_no_race(order):
    """The last one that the groups pass: both have done what they do."""
    assert torch.equal(_ping_pong("gfx942", order, LAST_LEFT_OUT=1), _alternated())


# A barrier in a branch: what hardware makes of it. (HIP and CUDA leave it open.)
BRANCHES = {
    "a barrier that half reach": (
        "if (threadIdx.x < 64) wmma::sync_workgroup(); x[threadIdx.x] = n;",
        lambda i: 7,
    ),
    "different barriers": (
        "__shared__ int s[128]; s[threadIdx.x] = n; if (threadIdx.x < 64) { wmma::sync_workgroup();"
        " x[threadIdx.x] = s[127 - threadIdx.x]; } else { wmma::sync_workgroup(); x[threadIdx.x] = 2 * n; }",
        lambda i: 7 if i < 64 else 14,
    ),
    "half return": (
        "__shared__ int s[128]; s[threadIdx.x] = threadIdx.x; if (threadIdx.x >= 64) return; wmma::sync_workgroup();"
        " x[threadIdx.x] = s[127 - threadIdx.x];",
        lambda i: 127 - i if i < 64 else 0,
    ),
}


def _kernel(body: str) -> wmma_ops.Kernel:
    return wmma_ops.Kernel(HEAD + 'extern "C" __global__ void branches(int* x, int n) {\n' + body + "\n}", "branches")


@TARGETS
def test_barriers_in_branches_are_counted(target):
    for body, value in BRANCHES.values():
        for order in ORDERS:
            x = torch.zeros(128, dtype=torch.int32)
            with wmma_ops.emulate(target, order=order):
                _kernel(body)[1, 128](x, 7)
            assert x.tolist() == [value(i) for i in range(128)], order


@pytest.mark.parametrize("order", ORDERS)
def test_race_behind_a_barrier_in_a_branch(order):
    """What mostly comes of a barrier that half reach: who did not wait has not seen the others' writes."""
    body = (
        "__shared__ int s[128]; s[threadIdx.x] = 0; wmma::sync_workgroup(); s[threadIdx.x] = n;"
        " if (threadIdx.x < 64) wmma::sync_workgroup(); x[threadIdx.x] = s[127 - threadIdx.x];"
    )
    for target in ("gfx90a", "gfx1201"):
        with wmma_ops.emulate(target, order=order), pytest.raises(Race, match="no barrier between"):
            _kernel(body)[1, 128](torch.zeros(128, dtype=torch.int32), 7)


@pytest.mark.parametrize("target", ["gfx942", "gfx1201"])
def test_who_waits_while_another_never_comes(target):
    body = "if (threadIdx.x < 64) wmma::sync_workgroup(); else while (wmma::atomic_add(x, 0) >= 0) {} x[1] = 2;"
    waves = "wave 0 waits" if target == "gfx942" else "waves 0, 1 wait"
    with (
        wmma_ops.emulate(target, budget=50_000),
        pytest.raises(EndlessLoop, match=rf"{waves} at branches\.hip:3.*`s_barrier"),
    ):
        _kernel(body)[1, 128](torch.zeros(128, dtype=torch.int32), 7)


@TARGETS
def test_waits_for_who_sleeps_before_it(target):
    body = (
        "__shared__ volatile int s[128]; if (__builtin_amdgcn_readfirstlane(threadIdx.x) >= 64)"
        "   for (int i = 0; i < 3; ++i) __builtin_amdgcn_s_sleep(1);"
        " s[threadIdx.x] = n; wmma::sync_workgroup(); x[threadIdx.x] = s[127 - threadIdx.x];"
    )
    x = torch.zeros(128, dtype=torch.int32)
    with wmma_ops.emulate(target):
        _kernel(body)[1, 128](x, 7)
    assert x.tolist() == [7] * 128


# Barriers in two halves, which gfx12 has.
SIGNAL, WAIT = "__builtin_amdgcn_s_barrier_signal(-1);", "__builtin_amdgcn_s_barrier_wait(-1);"
SPLIT = "__shared__ volatile int s[64]; const int i = threadIdx.x % 32; const bool first = threadIdx.x < 32;"


def test_work_between_both_halves():
    """Between its signal and its wait a wave may touch what is its own; one that has ended counts no more."""
    fence = '__builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");'
    body = (
        f"{SPLIT} s[threadIdx.x] = i; {fence} {SIGNAL} int own = 3 * s[threadIdx.x]; {WAIT} x[threadIdx.x] = own +"
        f" s[63 - threadIdx.x]; if (first) return; {SIGNAL} {WAIT} x[threadIdx.x] += n;"
    )
    for order in ORDERS:
        x = torch.zeros(64, dtype=torch.int32)
        with wmma_ops.emulate("gfx1201", order=order):
            _kernel(body)[1, 64](x, 7)
        assert x.tolist() == [3 * (i % 32) + 31 - i % 32 + 7 * (i >= 32) for i in range(64)]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        (
            f"{SPLIT} if (first) {{ {SIGNAL} }} {WAIT} x[i] = n;",
            DivergentBarrier,
            r"branches\.hip:3.*`s_barrier_wait.*wave 1: this wave waits at a barrier that it has not signalled",
        ),
        (
            f"{SPLIT} {SIGNAL} if (first) {{ {SIGNAL} }} {WAIT} x[i] = n;",
            DivergentBarrier,
            r"`s_barrier_signal.*wave 0: this wave signals its block's barrier a second time",
        ),
        (f"{SPLIT} s[threadIdx.x] = i; {SIGNAL} s[threadIdx.x] = n; {WAIT} x[i] = s[i];", Race, "no barrier between"),
    ],
    ids=["no signal", "two signals", "a write after the signal"],
)
def test_halves_that_do_not_match(order, body, kind, text):
    with wmma_ops.emulate("gfx1201", order=order), pytest.raises(kind, match=text):
        _kernel(body)[1, 64](torch.zeros(64, dtype=torch.int32), 7)


def test_who_waits_for_a_signal_that_is_missing():
    body = f"{SPLIT} if (first) {{ {SIGNAL} }} {WAIT} x[i] = n;"
    with (
        wmma_ops.emulate("gfx1201"),
        pytest.raises(DivergentBarrier, match=r"never completes; wave 0 waits at branches"),
    ):
        _kernel(body)[1, 64](torch.zeros(64, dtype=torch.int32), 7)
