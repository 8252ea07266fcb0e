"""Each kind of kernel: whether the machine's bits are the emulator's, of the same code object, and the same in each run.

Whole numbers so small that every sum is exact have one right answer, whatever the order of the sums: those bits must be
equal. Of random numbers it is told how far they are apart: nothing published says in which order and with how many bits a
matrix unit adds up. Where there is no emulator of the target, whole numbers are held against the CPU's result.
"""

import contextlib
import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

import wmma_ops
from wmma_ops.bringup.item import FAILED, PASSED, TOLD, Item
from wmma_ops.bringup.machine import Machine
from wmma_ops.plan.gemm import planner as gemm
from wmma_ops.plan.gemm.config import GemmConfig
from wmma_ops.runtime import launching, tuned
from wmma_ops.runtime.explain import explained

PART = "bits"
_APART = 2e-2  # relative: more than two orders of sums are apart
_RUNS = 3
Tensor = torch.Tensor
Make = Callable[[bool], list[Tensor]]  # whether of whole numbers: a call's tensors, on the CPU
Call = Callable[..., object]  # of these, moved to where they shall be


@dataclass(frozen=True)
class Kind:
    name: str
    op: str
    make: Make
    call: Call
    exact: bool = True  # whether whole numbers have one right answer
    loop: str | None = None  # of a product: the main loop, in the configuration that a large product has by it


def _tensor(exact: bool, seed: int, *shape: int, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    if exact or not dtype.is_floating_point:
        return torch.randint(-3, 4, shape, generator=generator).to(dtype)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def _product(
    name: str, m: int, n: int, k: int, dtype: torch.dtype, *, a_columns=False, b_columns=False, loop=None, **given
):
    def make(exact: bool) -> list[Tensor]:
        def matrix(seed, rows, columns, turned):
            shape = (columns, rows) if turned else (rows, columns)
            x = _tensor(exact, seed, *shape, dtype=dtype)
            return x.mT if turned else x

        return [matrix(1, m, k, a_columns), matrix(2, k, n, b_columns)]

    return Kind(name, "gemm", make, lambda a, b: wmma_ops.gemm(a, b, **given), loop=loop)


def _problem(kind: Kind, machine: Machine):
    given = kind.make(True)
    return launching.problems(lambda: kind.call(*given), machine.row)[0]


def _as_large(kind: Kind, machine: Machine) -> dict[str, GemmConfig]:
    """By each main loop that takes a product of this kind, the configuration that one of 4096³ would have."""
    large = dataclasses.replace(_problem(kind, machine), m=4096, n=4096, k=4096)
    whole = (config for config in gemm.ranked(large, machine.row) if config.order.has_whole_tiles)
    found: dict[str, GemmConfig] = {}
    for config in whole:
        found.setdefault(config.loop, config)
    return found


def _ways(machine: Machine, m: int, n: int, k: int, dtype: torch.dtype, **given) -> Iterator[Kind]:
    """A product by each main loop that takes it."""
    order = "".join("T" if given.get(which) else "N" for which in ("a_columns", "b_columns"))
    label = f"{str(dtype).removeprefix('torch.')} product {m}x{n}x{k} {order}"
    for loop in _as_large(_product(label, m, n, k, dtype, **given), machine):
        yield _product(f"{label}, {loop}", m, n, k, dtype, loop=loop, **given)


def kinds(machine: Machine) -> list[Kind]:
    size, few = (64, 16) if machine.small else (256, 16)
    half, brain = torch.float16, torch.bfloat16
    fp8 = torch.float8_e4m3fnuz if machine.target == "gfx942" else torch.float8_e4m3fn
    found = list(_ways(machine, size, size, size, brain))
    if not machine.small:
        for of_a, of_b in ((False, True), (True, False), (True, True)):
            found += _ways(machine, size, size, size, brain, a_columns=of_a, b_columns=of_b)
        found += _ways(machine, size, size, size, half)
        found.append(_product("bfloat16 product 70x75x90, ragged", 70, 75, 90, brain))
        found.append(_product("bfloat16 product 16x16x4096, K split", 16, 16, 4096, brain))
        found += [
            _product(f"{name} product {size}x{size}x128", size, size, 128, dtype, out_dtype=out)
            for name, dtype, out in (
                ("int8", torch.int8, torch.int32), ("float8", fp8, torch.float32), ("float32", torch.float32, None),
                ("float64", torch.float64, None),
            )
        ]  # fmt: skip
        found.append(Kind(
            "bfloat16 linear with bias, GELU and residual", "linear",
            lambda exact: [_tensor(exact, seed, *shape, dtype=brain)
                           for seed, shape in enumerate(((96, 128), (160, 128), (160,), (96, 160)))],
            lambda x, w, b, r: wmma_ops.linear(x, w, b, activation="gelu", residual=r), exact=False,
        ))  # fmt: skip
    found.append(Kind(
        "two bfloat16 products in one kernel, ReLU between", "gemm_gemm",
        lambda exact: [_tensor(exact, seed, *shape, dtype=brain)
                       for seed, shape in enumerate(((size, 32), (32, few), (few, 32)))],
        lambda a, b0, b1: wmma_ops.gemm_gemm(a, b0, b1, activation="relu", out_dtype=torch.float32), exact=False,
    ))  # fmt: skip
    sizes = (64,) if machine.small else (64, 128)
    for e in sizes:
        for label, queries, keys, given in (
            ("", size, size, {}), (", causal", size, size, {"is_causal": True}), (", one query", 1, 1024, {}),
        )[: 1 if machine.small else 3]:  # fmt: skip
            found.append(_attention(f"bfloat16 attention {e}{label}", queries, keys, e, brain, **given))
            if queries > 1:
                found.append(_gradients(f"bfloat16 attention's gradients {e}{label}", queries, keys, e, brain, **given))
        found += [_packed(16 if machine.small else e, page) for page in ((16,) if machine.small else (None, 16, 64))]
    if not machine.small:
        found.append(_scored(size, 64))
    return found


def _attention(name: str, queries: int, keys: int, e: int, dtype: torch.dtype, **given) -> Kind:
    """Of whole numbers: each query is one key's, by so much that all others have no weight; out is that key's value."""

    def make(exact: bool) -> list[Tensor]:
        if not exact:
            return [_tensor(False, s, 1, 2, length, e, dtype=dtype) for s, length in enumerate((queries, keys, keys))]
        generator = torch.Generator().manual_seed(3)
        k = torch.randint(0, 2, (1, 2, keys, e), generator=generator) * 2 - 1
        chosen = (torch.arange(queries) * 7 + 5) % keys
        if given:  # causal: one that it sees
            chosen = chosen % (torch.arange(queries) + 1)
        return [(16 * k[:, :, chosen]).to(dtype), k.to(dtype), _tensor(True, 4, 1, 2, keys, e, dtype=dtype)]

    return Kind(name, "attention", make, lambda q, k, v: wmma_ops.attention(q, k, v, scale=1.0, **given))


def _packed(e: int, page: int | None) -> Kind:
    """Three sequences one after the other, causal, the keys of each in one piece or in pages. Of whole numbers as above."""
    queries, keys = (3, 1, 20), (18, 33, 20)

    def ends(lengths: tuple[int, ...]) -> Tensor:
        return torch.tensor([0, *lengths]).cumsum(0).int()

    def make(exact: bool) -> list[Tensor]:
        q, k, v = (_tensor(False, s, sum(n), 2, e, dtype=torch.bfloat16) for s, n in enumerate((queries, keys, keys)))
        if exact:
            generator = torch.Generator().manual_seed(3)
            k = (torch.randint(0, 2, k.shape, generator=generator) * 2 - 1).to(k.dtype)
            v = _tensor(True, 4, *v.shape, dtype=v.dtype)
            # The last query sees all keys, the one before it all but one.
            chosen = [
                first + (7 * i + 5) % (length - count + i + 1)
                for first, count, length in zip(ends(keys).tolist(), queries, keys, strict=False)
                for i in range(count)
            ]
            q = 16 * k[chosen]
        if page is None:
            return [q, k, v, ends(queries), ends(keys)]
        counts = [-(-n // page) for n in keys]
        order = iter(torch.randperm(sum(counts), generator=torch.Generator().manual_seed(5)).tolist())
        table = torch.zeros(len(keys), max(counts), dtype=torch.int32)
        paged = [torch.zeros(sum(counts), page, 2, e, dtype=x.dtype) for x in (k, v)]
        for row, first, length in zip(table, ends(keys).tolist(), keys, strict=False):
            for place, start in enumerate(range(0, length, page)):
                row[place] = number = next(order)
                for pages, x in zip(paged, (k, v), strict=True):
                    part = x[first + start : first + min(start + page, length)]
                    pages[number, : len(part)] = part
        return [q, *paged, ends(queries), torch.tensor(keys).int(), table]

    def call(q, k, v, ends_q, of_keys, table=None):
        rules: dict = {"scale": 1.0, "window_size": (-1, 0)}
        if table is None:
            return wmma_ops.varlen_attention(q, k, v, ends_q, of_keys, max(queries), max(keys), **rules)
        rules |= {"seqused_k": of_keys, "block_table": table}
        return wmma_ops.varlen_attention(q, k, v, ends_q, None, max(queries), None, **rules)

    where = "packed" if page is None else f"in pages of {page}"
    return Kind(f"bfloat16 attention {e}, causal, {where}", "varlen_attention", make, call)


def _scored(size: int, e: int) -> Kind:
    """Within a window, with a soft cap, slopes and sinks: all that bears on scores in one kernel."""

    def make(exact: bool) -> list[Tensor]:
        shapes = ((1, 2, size, e),) * 3
        q, k, v = (_tensor(exact, s, *shape, dtype=torch.bfloat16) for s, shape in enumerate(shapes))
        return [q, k, v, torch.tensor([0.5, -1.0]), torch.tensor([0.25, 0.0625])]

    def call(q, k, v, sinks, slopes):
        rules = {"window": (size // 2, 3), "softcap": 20.0, "sinks": sinks, "alibi_slopes": slopes}
        return wmma_ops.attention(q, k, v, **rules)

    name = f"bfloat16 attention {e}, window, soft cap, slopes and sinks"
    return Kind(name, "attention", make, call, exact=False)


def _gradients(name: str, queries: int, keys: int, e: int, dtype: torch.dtype, is_causal: bool = False) -> Kind:
    def make(exact: bool) -> list[Tensor]:
        shapes = (queries, keys, keys, queries)
        q, k, v, g_out = (_tensor(False, s, 1, 2, length, e, dtype=dtype) for s, length in enumerate(shapes))
        return [g_out, q, k, v, *wmma_ops.attention(q, k, v, is_causal=is_causal)]

    def call(g_out, q, k, v, out, lse):
        return torch.ops.wmma._attention_backward(g_out, q, k, v, out, lse, is_causal=int(is_causal))

    return Kind(name, "attention_backward", make, call, exact=False)


# -------------------------------------------------------------------------------------------------------------- comparing


def _whole(x: Tensor) -> Tensor:
    """The bits, ordered as the numbers are."""
    bits = x.contiguous().view({1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]).long()
    if not x.dtype.is_floating_point:
        return bits
    least = -(1 << (8 * x.element_size() - 1))
    return torch.where(bits < 0, least - bits, bits)


def compare(got: tuple[Tensor, ...], want: tuple[Tensor, ...]) -> dict:
    """How many elements differ, by how many roundings at most, and where the worst is."""
    differing = of = worst = 0
    relative, at = 0.0, None
    for number, (x, y) in enumerate(zip(got, want, strict=True)):
        x, y = x.cpu(), y.cpu()
        apart = (_whole(x) - _whole(y)).abs()
        apart[(x.isnan() & y.isnan())] = 0
        of, differing = of + x.numel(), differing + int((apart > 0).sum())
        if x.numel() and int(apart.max()) > worst:
            worst = int(apart.max())
            place = tuple(int(i) for i in torch.unravel_index(apart.argmax(), apart.shape))
            at = {"result": number, "at": place, "got": float(x[place]), "emulated": float(y[place])}
        scale = y.double().nan_to_num().norm()
        relative = max(relative, float((x.double() - y.double()).nan_to_num().norm() / scale) if scale else 0.0)
        if x.dtype.is_floating_point and not torch.equal(x.isfinite(), y.isfinite()):
            relative = float("inf")
    found = {"of": of, "differing": differing, "roundings": worst, "relative": relative}
    return found if at is None else found | {"worst": at}


@contextlib.contextmanager
def _by(kind: Kind, machine: Machine) -> Iterator[None]:
    """Within it, the kind's loop is taken."""
    if kind.loop is None:
        yield
        return
    with tuned.forced(_problem(kind, machine), _as_large(kind, machine)[kind.loop]):
        yield


def _results(kind: Kind, given: list[Tensor]) -> tuple[Tensor, ...]:
    found = kind.call(*given)
    return found if isinstance(found, tuple) else (found,)


def _on(machine: Machine, kind: Kind, given: list[Tensor]) -> tuple[Tensor, ...]:
    moved = [x.to(machine.device) for x in given]
    with machine.active():
        return _results(kind, moved)


def check(kind: Kind, machine: Machine) -> dict:
    found: dict = {"verdict": PASSED}
    with _by(kind, machine):
        random = kind.make(False)
        plan = explained(kind.op, lambda: kind.call(*random), machine.target)
        found["kernels"] = [
            {
                "kernel": launch.kernel,
                "sha256": hashlib.sha256(launch.code_object).hexdigest()[:16],
                "compiler": launch.code.compiler,
            }
            for launch in plan.launches
        ]
        found["config"] = str(plan.config)
        got = _on(machine, kind, random)
        runs = [_on(machine, kind, random) for _ in range(1 if machine.small else _RUNS)]
        if any(compare(again, got)["differing"] for again in runs):
            return found | {"verdict": FAILED, "error": "the same call gives other bits in another run"}
        if machine.no_emulator:
            found["emulated"] = f"not applicable: {machine.no_emulator}; equal bits in {len(runs) + 1} runs"
            if kind.exact:
                whole = kind.make(True)
                # Of attention, lse is computed in another unit there.
                found["whole numbers"] = compare(_on(machine, kind, whole)[:1], _results(kind, whole)[:1])
                if found["whole numbers"]["differing"]:
                    found |= {
                        "verdict": FAILED,
                        "error": "of whole numbers, whose sums are exact, the CPU's bits are others",
                    }
            return found
        # Where the machine is the emulator, waves go the other way round the second time.
        order = "forward" if machine.is_card else "reverse"
        with wmma_ops.emulate(machine.target, order=order):
            found["random"] = compare(got, _results(kind, random))
        if found["random"]["differing"]:
            found["verdict"] = TOLD
        if found["random"]["relative"] > _APART:
            found |= {"verdict": FAILED, "error": "further from the emulator's result than another order of sums is"}
        if kind.exact:
            whole = kind.make(True)
            got = _on(machine, kind, whole)
            with wmma_ops.emulate(machine.target, order=order):
                found["whole numbers"] = compare(got, _results(kind, whole))
            if found["whole numbers"]["differing"]:
                found |= {"verdict": FAILED, "error": "of whole numbers, whose sums are exact, the bits are others"}
    return found


def items(machine: Machine) -> list[Item]:
    def prepare(kind: Kind) -> None:
        given = kind.make(False)
        explained(kind.op, lambda: kind.call(*given), machine.target)

    return [
        # What forces a loop does so for the whole process: not beside others.
        Item(
            PART,
            kind.name,
            functools.partial(check, kind, machine),
            None if kind.loop else functools.partial(prepare, kind),
        )
        for kind in kinds(machine)
    ]
