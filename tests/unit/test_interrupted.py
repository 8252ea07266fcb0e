"""Who presses Ctrl-C gets a KeyboardInterrupt wherever a call is; what a user's function raises arrives with its reason."""

import json
import os
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
import torch

import wmma_ops
from wmma_ops.ops import activations, score_functions

SUPPORT = Path(__file__).parents[1] / "support"
INTERRUPTED = (
    "a plan",
    "a plan, of a function",
    "a compiler",
    "an emulated launch",
    "a score function",
    "an activation",
    "a backward's plan",
    "a backward's launch",
    "a backward's function",
)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """Of a process that is interrupted in the middle of each call, and then makes it once more."""
    cache = tmp_path_factory.mktemp("cache")
    cache.chmod(0o700)
    environment = {**os.environ, "WMMA_OPS_CACHE_DIR": str(cache)}
    program = [sys.executable, SUPPORT / "interrupted.py"]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.xdist_group("interrupted")  # one worker interrupts them all
@pytest.mark.parametrize("what", INTERRUPTED)
def test_a_signal_interrupts_a_call_and_the_next_is_right(outcomes, what):
    assert outcomes[what] == "right"


def test_each_interruption_is_looked_at(outcomes):
    assert set(outcomes) == set(INTERRUPTED)


class Own(Exception):
    pass


raised: list[BaseException] = []  # by the next call of a function


def function(x, *places):
    if raised:
        raise raised.pop()
    return 1 * x


@pytest.fixture(scope="module")
def calls():
    """Calls that ask a registered function, of wmma_ops and of torch.ops."""
    wmma_ops.register_score_mod("raising", expression="score", function=function, derivative="1")
    wmma_ops.register_activation("raising", device="1.f * x", forward=function, derivative=torch.ones_like)
    q, a = torch.ones(1, 1, 4, 8), torch.ones(4, 4)
    scores = score_functions.codes("attention", "raising", None)
    code = activations.code("linear", "activation", "raising")
    return [
        ("attention: score_mod", lambda: wmma_ops.attention(q, q, q, score_mod="raising")),
        ("attention: score_mod", lambda: torch.ops.wmma.attention(q, q, q, **scores)),
        ("linear: activation", lambda: wmma_ops.linear(a, a, activation="raising")),
        ("linear: activation", lambda: torch.ops.wmma.linear(a, a, activation=code)),
    ]


@pytest.mark.parametrize(
    "error", [Own("mine"), KeyError("lost"), AssertionError("so"), RuntimeError("wmma.x: no")], ids=repr
)
def test_what_a_users_function_raises_is_the_reason(calls, error):
    for named, call in calls:
        raised.append(error)
        told = f"^wmma.{named} 'raising' raised {type(error).__name__}, .*; takes a function of"
        with pytest.raises(ValueError, match=told) as caught:
            call()
        assert caught.value.__cause__ is error
        assert traceback.extract_tb(error.__traceback__)[-1].name == "function"
        call()


@pytest.mark.parametrize("error", [KeyboardInterrupt("stop"), SystemExit(3)], ids=repr)
def test_what_ends_a_program_arrives_as_it_is(calls, error):
    for _, call in calls:
        raised.append(error)
        with pytest.raises(type(error)) as caught:
            call()
        assert caught.value is error
        call()
