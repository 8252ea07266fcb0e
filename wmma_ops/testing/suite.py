"""Runs a case on a backend and holds the result against the float64 reference and against torch's own."""

import contextlib
from collections.abc import Callable, Iterator

import torch

import wmma_ops
from wmma_ops.hardware.arch import EMULATED
from wmma_ops.ops.types import FP8, accumulator
from wmma_ops.testing import reference
from wmma_ops.testing.calls import call
from wmma_ops.testing.cases.case import AttentionCase, GemmGemmCase, VarlenAttentionCase
from wmma_ops.testing.memory import fenced, filled
from wmma_ops.testing.operands import batch_of, operands
from wmma_ops.testing.results import expected, out_type, torch_result

Tensor = torch.Tensor


class Mismatch(AssertionError):
    """A result outside its bound; the text names the case and the worst element."""


def backends() -> list[str]:
    """The backends that can run here: "cpu", "emulated:<target>", and "cuda" where a GPU is."""
    return ["cpu", *(f"emulated:{target}" for target in EMULATED), *(["cuda"] if torch.cuda.is_available() else [])]


def run(
    case,
    backend: str = "cpu",
    implementation: dict[str, Callable] | None = None,
    *,
    against_torch: bool = True,
    order: str = "forward",
    seed: int = 0,
) -> None:
    """Runs one case on a backend; raises Mismatch where the contract on values is broken.

    `implementation` replaces ops by name: the tests use it to show that wrong ones are caught. `against_torch` is for
    cases with enough different elements for a largest error to mean something. `order` and `seed` are `emulate`'s.
    """
    device = "cuda" if backend == "cuda" else "cpu"
    t = operands(case)
    values = expected(case, t, backend)
    own = torch_result(case, t) if against_torch else None
    on_device = {name: None if x is None else fenced(x, device) for name, x in t.items()}
    before = {name: None if x is None else x.clone() for name, x in on_device.items()}
    with _active(backend, case, order, seed):
        results = call(case, on_device, implementation or {})
    outs = [out_type(case)]
    if isinstance(case, (AttentionCase, VarlenAttentionCase)):
        outs.append(accumulator(outs[0]))
    for index, (got, value, out) in enumerate(zip(results, values, outs, strict=True)):
        compare(case, got, value, out, "lse" if index else "result")
    if own is not None:
        compare_with_torch(case, results[0], values[0], own)
    for name, x in on_device.items():
        if x is not None and not (case.op == "addmm_" and name == "c"):
            same = torch.equal(x.nan_to_num(7.0), before[name].nan_to_num(7.0)) if _comparable(x) else True
            if not same:
                raise Mismatch(f"{case!r}\n  the operand {name} was written to")
    if case.op == "addmm_":
        if results[0] is not on_device["c"]:
            raise Mismatch(f"{case!r}\n  the result is not the input")
        _check_surroundings(case, on_device["c"])


@contextlib.contextmanager
def _active(name: str, case, order: str, seed: int) -> Iterator[None]:
    """What is active around the case's call on a backend."""
    if name not in backends():
        raise ValueError(f"backend is {name!r}; takes one of {', '.join(backends())}")
    if not name.startswith("emulated:"):
        yield
        return
    with wmma_ops.emulate(name.removeprefix("emulated:"), order=order, seed=seed) as emulation:
        yield
    if not emulation.launches and 0 not in _sizes(case):
        raise Mismatch(f"{case!r}\n  nothing was emulated")


def _sizes(case) -> tuple[int, ...]:
    if isinstance(case, AttentionCase):
        return (case.batch, case.sq, case.skv)
    if isinstance(case, VarlenAttentionCase):
        return (sum(case.queries),)
    batch = (*case.batch,) if isinstance(case, GemmGemmCase) else batch_of(case)
    return (case.m, case.n, *batch)


def compare(case, got: Tensor, value: reference.Value, out: torch.dtype, what: str = "result") -> None:
    """Raises Mismatch unless `got` is `value`, with NaN and infinities in the same places."""
    if got.dtype != out:
        raise Mismatch(f"{case!r}\n  {what} has type {got.dtype}, expected {out}")
    if got.shape != value.x.shape:
        raise Mismatch(f"{case!r}\n  {what} has shape {list(got.shape)}, expected {list(value.x.shape)}")
    if got.numel() == 0:
        return
    x = got.double().cpu()
    want = value.x.to(out).double()  # where the output type overflows, the right answer is an infinity
    finite = want.isfinite()
    for name, wrong in (
        ("NaN", x.isnan() != want.isnan()),
        ("infinity", (x.isinf() | want.isinf()) & (x != want) & ~x.isnan() & ~want.isnan()),
    ):
        if bool(wrong.any()):
            where = wrong.nonzero()[0]
            raise _report(case, f"{what}: {name}", where, x[tuple(where)].item(), want[tuple(where)].item(), 0)
    excess = torch.where(finite, (x - value.x).abs() - value.error, -1.0)
    if bool((excess > 0).any()):
        flat = int(excess.argmax())
        where = torch.unravel_index(torch.tensor(flat), excess.shape)
        at = tuple(int(i) for i in where)
        raise _report(case, what, at, x[at].item(), value.x[at].item(), value.error[at].item())


def compare_with_torch(case, got: Tensor, value: reference.Value, own: Tensor) -> None:
    """No worse than twice torch's result in the same type, beside one rounding of the largest element.

    Over 256 elements or more: the largest error of a few is luck.
    """
    if got.numel() < 256:
        return
    finite = value.x.isfinite() & own.double().isfinite()
    if not bool(finite.any()):
        return
    ours = (got.double().cpu() - value.x).abs()[finite].max().item()
    theirs = (own.double() - value.x).abs()[finite].max().item()
    floor = reference.unit(got.dtype) * value.x.abs()[finite].max().item()
    if ours > 2 * theirs + floor:
        raise Mismatch(f"{case!r}\n  largest error {ours:.3g}, torch's own in the same type {theirs:.3g}")


def _report(case, what: str, where, got, want, bound) -> Mismatch:
    at = tuple(int(i) for i in where)
    return Mismatch(f"{case!r}\n  {what} at {at}: got {got}, expected {want} within {bound:.3g}")


def _comparable(x: Tensor) -> bool:
    return x.dtype not in FP8


def _check_surroundings(case, x: Tensor) -> None:
    """What lies around the input of an in-place op is as it was."""
    store = torch.empty(0, dtype=x.dtype, device=x.device).set_(x.untyped_storage())
    mine = torch.zeros(store.numel(), dtype=torch.bool, device=x.device)
    mine.as_strided(x.shape, x.stride(), x.storage_offset()).fill_(True)
    around = store[~mine].cpu()
    filling = filled(around.shape, x.dtype)
    if not torch.equal(around.nan_to_num(7.0), filling.nan_to_num(7.0)):
        raise Mismatch(f"{case!r}\n  memory around the input was written to")
