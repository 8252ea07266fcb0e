"""Activations by name: the built-in ones and those that users register.

The C++ library and the kernels know them by code (registered.py).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from wmma_ops.ops import expressions
from wmma_ops.ops.errors import FunctionError
from wmma_ops.ops.neighbours import answering
from wmma_ops.ops.registered import find, new_code

aten = torch.ops.aten

LEAKY_SLOPE = 0.01
GELU = {"none": "gelu", "tanh": "gelu_tanh"}  # by the `approximate` of torch's


@dataclass(frozen=True)
class Activation:
    """`forward(x)` and `backward(gradient, x)` as torch functions; `device` is the C++ expression of a registered one."""

    name: str
    code: int
    forward: Callable[[torch.Tensor], torch.Tensor]
    backward: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    device: str | None = None


def _silu_backward(g, x):
    # Spelled out: aten's fused one does not differentiate again.
    s = torch.sigmoid(x)
    return g * (s + x * s * (1 - s))  # not 1 + …: torch 2.10 adds a number to each device's part of a sum


def _gelu_backward(g, x, approximate):
    # aten's own does not broadcast in float32 on the CPU, where it is oneDNN's, nor under vmap.
    return aten.gelu_backward(g, x if x.shape == g.shape else x.expand_as(g), approximate=approximate)


# In the order of their codes in kernels/wmma/activation.hpp. Where aten has a fused backward that differentiates
# again, it is used.
BUILTIN = tuple(
    Activation(name, code, forward, backward)
    for code, (name, forward, backward) in enumerate(
        [
            ("none", lambda x: x, lambda g, x: g),
            ("relu", F.relu, lambda g, x: aten.threshold_backward(g, x, 0)),
            ("gelu", F.gelu, lambda g, x: _gelu_backward(g, x, "none")),
            ("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), lambda g, x: _gelu_backward(g, x, "tanh")),
            ("silu", F.silu, _silu_backward),
            ("sigmoid", torch.sigmoid, lambda g, x: aten.sigmoid_backward(g, torch.sigmoid(x))),
            ("tanh", torch.tanh, lambda g, x: aten.tanh_backward(g, torch.tanh(x))),
            (
                "leaky_relu",
                lambda x: F.leaky_relu(x, LEAKY_SLOPE),
                lambda g, x: torch.where(x > 0, g, g * LEAKY_SLOPE),  # aten's is none that torch 2.10 shards
            ),
        ]
    )
)

_by_name: dict[str, Activation] = {activation.name: activation for activation in BUILTIN}
_by_code: dict[int, Activation] = {activation.code: activation for activation in BUILTIN}


def names() -> list[str]:
    """Every activation's name, the built-in ones first."""
    return list(_by_name)


def is_builtin(name: str) -> bool:
    found = _by_name.get(name)
    return found is not None and found.device is None


def by_code(code: int) -> Activation:
    return _by_code[code]


def code(op: str, argument: str, name: str | None) -> int:
    """The code of an activation given by name; None is "none"."""
    return 0 if name is None else find(op, argument, name, _by_name).code


@answering
def register_activation(
    name: str,
    *,
    device: str,
    forward: Callable[[torch.Tensor], torch.Tensor],
    derivative: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    """Makes `name` an activation that every op takes.

    Args:
        name: a Python identifier that is not taken yet.
        device: the activation as a C++ expression of ``x``, a float or a double, for the device kernels. What it may call is
            in ``wmma/math.hpp``: ``erf(x)``, ``pow(x, 3)``, ``fmax(x, 0)`` …, and for less accuracy ``fast_exp(x)``,
            ``fast_tanh`` … It is one expression: without assignments, statements, lambdas and comments.
        forward: the same as an elementwise torch function, for CPU tensors.
        derivative: its derivative as a torch function; itself differentiable where second derivatives are wanted.

    Examples:
        >>> import torch, wmma_ops
        >>> wmma_ops.register_activation(
        ...     "squared_relu",
        ...     device="x > 0.f ? x * x : 0.f",
        ...     forward=lambda x: torch.relu(x).square(),
        ...     derivative=lambda x: 2 * torch.relu(x),
        ... )
        >>> wmma_ops.linear(torch.ones(1, 2), torch.ones(1, 2), activation="squared_relu")
        tensor([[4.]])
    """
    number = new_code("register_activation", name, _by_name)
    expressions.check("register_activation", "device", device, ("x",))
    if "x" not in expressions.names(device):
        raise ValueError(f"register_activation: device is {device!r}; takes a C++ expression of x")
    _check_derivative(name, forward, derivative)
    activation = Activation(name, number, forward, lambda g, x: g * derivative(x), device)
    torch.ops.wmma._register_activation(number)
    _by_name[name] = _by_code[number] = activation


def _check_derivative(name, forward, derivative) -> None:
    # Points that no activation has a kink at.
    x = (torch.linspace(-3, 3, 64, dtype=torch.float64) + 0.0123456789).requires_grad_()
    with torch.enable_grad():
        y = forward(x)
        if not isinstance(y, torch.Tensor) or y.shape != x.shape:
            raise ValueError(
                f"register_activation: forward of {name!r} is not elementwise; takes an elementwise function"
            )
        expected = torch.zeros_like(x)  # a constant's
        if y.requires_grad:
            (expected,) = torch.autograd.grad(y.sum(), x, materialize_grads=True)
    got = derivative(x.detach())
    if not torch.allclose(torch.as_tensor(got, dtype=torch.float64).expand_as(x), expected, rtol=1e-6, atol=1e-9):
        raise ValueError(f"register_activation: derivative of {name!r} is not that of forward")


def apply_(x: torch.Tensor, code: int) -> None:
    """A registered one on all of x, in place."""
    if x is None or x.layout != torch.strided or x.dtype not in (torch.float32, torch.float64):
        raise ValueError("x is something else; takes strided float32 or float64")
    if code not in _by_code:
        raise ValueError(f"code is {code}; takes the code of a registered activation")
    activation = _by_code[code]
    try:
        x.copy_(activation.forward(x))
    except Exception as error:
        text = f"activation {activation.name!r} raised {type(error).__name__}, {error}; takes a function of a tensor"
        raise FunctionError(text) from error
