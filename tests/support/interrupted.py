"""Interrupts itself by real signals in the middle of calls, and then makes each once more. Prints what came of it, as
JSON: by what was interrupted "right", or what went wrong."""

import contextlib
import json
import os
import signal
import subprocess
import threading
from unittest import mock

import torch

import wmma_ops
from wmma_ops.emulator.machine import Machine
from wmma_ops.jit import clang
from wmma_ops.ops import activations, score_functions
from wmma_ops.plan.gemm import planner

# A program that a shell starts in the background ignores them, and hands that down.
signal.signal(signal.SIGINT, signal.default_int_handler)
called: list[str] = []  # where signals were sent


def interrupt(where: str) -> None:
    called.append(where)
    os.kill(os.getpid(), signal.SIGINT)


@contextlib.contextmanager
def before(owner, name: str):
    """Within it a signal comes first where `name` of `owner` is called."""
    known = getattr(owner, name)

    def interrupted(*arguments, **keywords):
        interrupt(name)
        return known(*arguments, **keywords)

    with mock.patch.object(owner, name, interrupted):
        yield


@contextlib.contextmanager
def while_it_compiles():
    """A signal while the compiler's process runs."""
    known = subprocess.run

    def interrupted(*arguments, **keywords):
        called.append("compiler")
        to = threading.main_thread().ident, signal.SIGINT
        threading.Timer(0.05, signal.pthread_kill, to).start()
        return known(*arguments, **keywords)

    with mock.patch.object(clang.subprocess, "run", interrupted):
        yield


of_functions = False


@contextlib.contextmanager
def in_a_function():
    global of_functions
    of_functions = True
    try:
        yield
    finally:
        of_functions = False


def twice(x, *places):
    if of_functions:
        interrupt("function")
    return 2 * x


def slope(x):
    if of_functions:
        interrupt("derivative")
    return torch.full_like(x, 2)


wmma_ops.register_score_mod("twice", expression="2 * score", function=twice, derivative="2")
wmma_ops.register_activation("twice", device="2 * x", forward=twice, derivative=slope)
SCORES = score_functions.codes("attention", "twice", None)
ACTIVATION = activations.code("linear", "activation", "twice")

torch.manual_seed(0)
a, q = torch.randn(16, 16), torch.randn(1, 1, 8, 16)
x, y = (torch.randn(16, 16, requires_grad=True) for _ in range(2))
ones = torch.ones(16, 16)
ops = torch.ops.wmma


def gradient(result: torch.Tensor):
    """A call of its backward alone."""
    return lambda: torch.autograd.grad(result.sum(), x, retain_graph=True)[0]


def plan():
    return before(planner, "plan")


def launch():
    return before(Machine, "run")


# (what is interrupted, how, on what target, what makes the call, what is right)
attended = torch.nn.functional.scaled_dot_product_attention(2 * q, q, q)
CASES = [
    ("a plan", plan, "gfx942", lambda: lambda: ops.matmul(a, a), a @ a),
    ("a plan, of a function", plan, "gfx942", lambda: lambda: wmma_ops.matmul(a, a), a @ a),
    ("a compiler", while_it_compiles, "gfx942", lambda: lambda: ops.linear(a, a), a @ a.T),
    ("an emulated launch", launch, "gfx942", lambda: lambda: ops.matmul(a, a), a @ a),
    ("a score function", in_a_function, None, lambda: lambda: ops.attention(q, q, q, **SCORES)[0], attended),
    ("an activation", in_a_function, None, lambda: lambda: ops.linear(a, a, activation=ACTIVATION), 2 * a @ a.T),
    ("a backward's plan", plan, "gfx942", lambda: gradient(wmma_ops.matmul(x, y)), ones @ y.detach().T),
    ("a backward's launch", launch, "gfx942", lambda: gradient(ops.matmul(x, y)), ones @ y.detach().T),
    (
        "a backward's function",
        in_a_function,
        None,
        lambda: gradient(wmma_ops.linear(x, y, activation="twice")),
        2 * ones @ y.detach(),
    ),
]


def outcome(how, target: str | None, ready, right: torch.Tensor) -> str:
    called.clear()
    with wmma_ops.emulate(target) if target else contextlib.nullcontext():
        call = ready()
        ops._forget_plans()
        try:
            with how():
                call()
        except KeyboardInterrupt:
            came = "right" if called else "an interruption that nobody sent"
        except BaseException as error:
            came = f"{type(error).__name__}: {error}"
        else:
            came = f"no interruption, of {called}"
        torch.testing.assert_close(call().detach(), right, rtol=1e-4, atol=1e-4)
    return came


if __name__ == "__main__":
    print(json.dumps({name: outcome(*case) for name, *case in CASES}))
