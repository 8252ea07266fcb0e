"""Products to time from their sizes alone: ours, and what one writes in torch for the same."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import torch
import torch.nn.functional as F

import wmma_ops
from wmma_ops.cli import calls
from wmma_ops.cli.benching import OURS, Calls, Case
from wmma_ops.ops import activations
from wmma_ops.ops.types import FP8
from wmma_ops.ops.types import name as type_name
from wmma_ops.testing.results import relative
from wmma_ops.torch_internals import int_mm

_MOST_ERROR = 2e-2  # relative, of one rounding beside another's

Tensor = torch.Tensor


def cases(op: str, shapes: Sequence[tuple[int, int, int]], options, device: str) -> Iterator[Case]:
    """A case for each shape; `options` are those of `arguments.add_options`."""
    for m, n, k in shapes:
        batch = f"{options.batch} × " if options.batch else ""
        name, sizes = f"{batch}{m} × {n} × {k}", {"m": m, "n": n, "k": k}
        # Both are bound here: the case is made later.
        yield Case(f"{op} {options.dtype}", name, lambda sizes=sizes: _calls(op, sizes, options, device), device=device)


def _calls(op: str, sizes: dict[str, int], options, device: str) -> Calls:
    arguments, keywords = calls.call(op, sizes, options, device)
    function = getattr(wmma_ops, op)
    got = function(*arguments, **keywords)
    label, torchs = peer(op, arguments, keywords, got.dtype)
    tensors = [x for x in (*arguments, *keywords.values(), got) if isinstance(x, Tensor)]
    made = Calls(
        {OURS: lambda: function(*arguments, **keywords)},
        flops=2.0 * sizes["m"] * sizes["n"] * sizes["k"] * (options.batch or 1),
        bytes=float(sum(x.numel() * x.element_size() for x in tensors)),
    )
    try:
        want = torchs()
    except RuntimeError as error:  # torch has none for these types on this device
        return dataclasses.replace(made, missing={label: str(error).strip().splitlines()[0]})
    error = relative(got, want)
    if not error < _MOST_ERROR:
        raise RuntimeError(f"{op} is {error:.1e} from {label}'s")
    return dataclasses.replace(made, calls=made.calls | {label: torchs}, error=error)


def peer(op: str, arguments: tuple, keywords: dict, out: torch.dtype) -> tuple[str, Callable[[], Tensor]]:
    """What one writes in torch for the same result, and its name: in which type, where not in the operands'."""
    given = _named(op, arguments, keywords)
    a, b, c, bias, act = given["a"], given["b"], given["c"], given["bias"], given["act"]
    if a.dtype == out and out.is_floating_point:
        if op == "linear":
            return "torch", lambda: act(_added(F.linear(a, b.mT, bias), c))
        return "torch", lambda: torch.matmul(a, b) if c is None else torch.addmm(c, a, b)
    label, multiply = _product(a, b, out)

    def call() -> Tensor:
        sums = _added(multiply(), bias, c)
        if given["acts"]:
            sums = act(sums if sums.is_floating_point() else sums.float())
        return sums.to(out) if out.is_floating_point else _rounded(sums, out)

    return label, call


def _named(op: str, arguments: tuple, keywords: dict) -> dict:
    code = activations.code(op, "activation", keywords.get("activation"))
    found = {"c": None, "bias": None, "act": activations.by_code(code).forward, "acts": code != 0}
    if op == "linear":
        x, weight, bias = arguments
        return found | {"a": x, "b": weight.mT, "bias": bias, "c": keywords["residual"]}
    if op == "addmm":
        c, a, b = arguments
        return found | {"a": a, "b": b, "c": c}
    a, b = arguments
    return found | {"a": a, "b": b}


def _product(a: Tensor, b: Tensor, out: torch.dtype) -> tuple[str, Callable[[], Tensor]]:
    """The product alone in a type that holds it, where torch has none that gives `out`."""
    if a.dtype == torch.int8:
        if a.dim() == b.dim() == 2:
            try:
                int_mm(a, b)
                return "torch", lambda: int_mm(a, b)
            except RuntimeError:  # it takes not every size on every device
                pass
        return "torch in float64", lambda: torch.matmul(a.double(), b.double())  # exact, as are sums in int32
    # A float8 number is one of bfloat16's as well.
    wide = torch.bfloat16 if a.dtype in FP8 and out == torch.bfloat16 else torch.float32
    return f"torch in {type_name(wide)}", lambda: torch.matmul(a.to(wide), b.to(wide))


def _added(sums: Tensor, *more: Tensor | None) -> Tensor:
    for x in more:
        sums = sums if x is None else sums + x
    return sums


def _rounded(x: Tensor, out: torch.dtype) -> Tensor:
    if x.dtype == out:
        return x
    limits = torch.iinfo(out)
    return (x.round() if x.is_floating_point() else x).clamp(limits.min, limits.max).to(out)
