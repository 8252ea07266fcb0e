"""How calls are timed. The parts of a GPU are played by others, which write down what they are asked."""

import contextlib
import types

import pytest
import torch

from wmma_ops.runtime import clock, tuning

devices = []  # that were made current


@pytest.fixture
def steps(monkeypatch):
    """What a clock asked of a GPU whose events are 2, 1, 3 … ms apart."""
    devices.clear()
    seen, times = [], iter([2.0, 1.0, 3.0] * 3)

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            seen.append("record")

        def synchronize(self):
            seen.append("synchronize")

        def elapsed_time(self, end):
            return next(times)

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: seen.append("all done"))
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext(devices.append(device)))
    flush = types.SimpleNamespace(zero_=lambda: seen.append("flush"))
    monkeypatch.setattr(torch, "empty", lambda size, dtype, device: flush)
    return seen


FLUSHES = ["flush"] * clock._FLUSHES  # what the GPU does until the call is asked for
ONCE = [*FLUSHES, "record", "call", "record", "synchronize"]  # the cache is emptied before the first event


def test_on_a_gpu_the_cache_is_emptied_before_each_call(steps):
    assert clock.Clock("cuda", 3).times([lambda: steps.append("call")]) == [2000.0]
    assert steps == ["call"] * 3 + ONCE * 3


def test_a_configuration_is_timed_after_a_call_that_may_fail(steps):
    timing = tuning._timed("config", lambda: steps.append("call"), clock.Clock(torch.device("cuda", 1), 9))
    assert (timing.config, timing.microseconds, timing.failure) == ("config", 2000.0, "")
    assert steps == ["call", "all done"] + ONCE * 9
    assert set(devices) == {torch.device("cuda", 1)}

    def fails():
        raise RuntimeError("too many registers")

    timing = tuning._timed("config", fails, clock.Clock("cuda", 9))
    assert (timing.microseconds, timing.failure) == (None, "too many registers")


def test_calls_are_timed_in_turn():
    calls = ["a", "b", "c"]
    seen = []
    times = clock.in_turn(calls, 3, lambda call: seen.append(call) or len(seen))
    assert "".join(seen) == "cba" + "abc" + "cba"
    assert times == [[3, 4, 9], [2, 5, 8], [1, 6, 7]]


def test_on_the_cpu_time_passes():
    assert clock.Clock("cpu", 3).times([lambda: None, lambda: sum(range(100_000))], warm=0)[1] > 10
