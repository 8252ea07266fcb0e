"""New keys and values into pages: values on every backend, numbers that are wrong, what is refused, kernels that are wrong
on purpose."""

from dataclasses import replace

import pytest
import torch
from new_keys import CASES, WRONG_NUMBERS, Case
from orders import check_any_order
from planted import Planted, check_is_caught, check_that_each_stands_once
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

import wmma_ops
from wmma_ops.hardware import arch
from wmma_ops.ops.library import overload
from wmma_ops.plan import kv_append as planner
from wmma_ops.runtime import launching
from wmma_ops.testing.memory import fenced

BACKENDS = ("cpu", *arch.EMULATED)


def _check(case: Case, target: str, **how) -> tuple[torch.Tensor, torch.Tensor]:
    t = case.operands()
    here = {name: fenced(x, "cpu") for name, x in t.items()}
    if target == "cpu":
        case.call(here)
    else:
        with wmma_ops.emulate(target, **how) as emulation:
            case.call(here)
        assert len(emulation.launches) == 1
    case.compare(here, t, target)
    return here["key_pages"], here["value_pages"]


@pytest.mark.parametrize("target", BACKENDS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_values(case, target):
    _check(case, target)


def test_attention_sees_what_was_appended():
    """Token by token as all at once."""
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(20, 2, 16, generator=generator) for _ in range(3))
    want, _ = wmma_ops.attention(*(x.transpose(0, 1) for x in (query, key, value)), is_causal=True)
    pages, table = torch.full((2, 3, 16, 2, 16), torch.nan), torch.tensor([[2, 0]], dtype=torch.int32)
    ends, found = torch.tensor([0, 1]), []
    for i in range(20):
        used = torch.tensor([i + 1])
        wmma_ops.kv_append(key[i : i + 1], value[i : i + 1], *pages, table, ends, used)
        one = query[i : i + 1]
        found += wmma_ops.varlen_attention(one, *pages, ends, None, 1, None, seqused_k=used, block_table=table)[:1]
    torch.testing.assert_close(torch.cat(found), want.transpose(0, 1))


@pytest.mark.parametrize("target", arch.EMULATED)
def test_wrong_numbers_reach_nothing_outside(target):
    """The emulator watches what is read and written; what has no place is not written."""
    case = Case(torch.float16, e=32, angles=4)
    for wrong in WRONG_NUMBERS:
        t = case.operands()
        here = {name: fenced(x, "cpu") for name, x in t.items()}
        here |= {name: torch.tensor(x, dtype=torch.int32) for name, x in wrong.items()}
        with wmma_ops.emulate(target):
            case.call(here)
        if "cu_seq" in wrong:  # whose token is whose is then anything
            assert not here["key_pages"].isnan().any()
        else:
            case.compare(here, t | {name: here[name] for name in wrong}, target)


@pytest.mark.parametrize("target", ["gfx942", "gfx1201"])
def test_the_same_bits_in_any_order_of_the_waves(target):
    check_any_order(lambda **how: _check(CASES[2], target, **how))


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "gfx1250"])
def test_compiles_for_what_is_not_emulated(target):
    for case in CASES[2:4]:
        (found,) = launching.problems(lambda case=case: case.call(case.operands()), arch.target(target))
        for launch in planner.plan(found, arch.target(target)).launches:
            launch.compile(arch.target(target))


def test_explained():
    case = CASES[2]
    text = str(wmma_ops.explain(wmma_ops.kv_append, **case.operands(), target="gfx1201"))
    assert "into pages of 16 keys" in text
    assert "32 angles of halves, float32" in text


def test_compiled_and_versions_counted():
    case = CASES[0]

    def call(pages, **t):
        wmma_ops.kv_append(**t, key_pages=pages, interleaved=case.interleaved)
        return pages.sum()

    results = []
    for function in (call, torch.compile(call, fullgraph=True, backend="aot_eager")):
        t = case.operands()
        pages = t.pop("key_pages")
        before = pages._version
        results.append((function(pages, **t), pages, t["value_pages"]))
        assert pages._version > before
    for x, y in zip(*results, strict=True):
        assert torch.equal(x, y)


def _several(count: int) -> list[dict]:
    """Calls of other numbers and values, in equally large tensors."""
    calls = []
    for i in range(count):
        t = CASES[2].operands()
        t |= {name: t[name] + i for name in ("key", "value", "key_pages", "value_pages")}
        calls.append(t | {"seqused_k": t["seqused_k"] - i})
    return calls


@pytest.mark.parametrize("raw", [False, True], ids=["wmma", "raw"])
@pytest.mark.parametrize("shared", [(), ("key", "sin", "block_table"), ("value", "cu_seq", "seqused_k")], ids=str)
def test_vmap_is_a_loop(shared, raw):
    calls = _several(3)
    for t in calls:
        t |= {name: calls[0][name] for name in shared}
    # The mapped dimension comes first for some, last for others.
    dims = {name: None if name in shared else -1 if i % 2 else 0 for i, name in enumerate(calls[0])}
    stacked = {x: calls[0][x] if dim is None else torch.stack([t[x] for t in calls], dim) for x, dim in dims.items()}
    before = stacked["key_pages"]._version

    def call(*tensors):
        overload("kv_append", raw=raw)(*tensors)
        return tensors[2]  # vmap asks for a result

    torch.vmap(call, in_dims=tuple(dims.values()))(*stacked.values())
    assert stacked["key_pages"]._version > before or raw
    for i, t in enumerate(calls):
        CASES[2].call(t)
        for name in ("key_pages", "value_pages"):
            assert torch.equal(stacked[name].select(dims[name], i), t[name])


def test_vmap_of_vmap():
    t, again = (CASES[0].operands() for _ in range(2))
    names = ("key", "value", "key_pages", "value_pages")
    every = [t[name].expand(2, 3, *t[name].shape).clone() for name in names]

    def call(*tensors):
        CASES[0].call(t | dict(zip(names, tensors, strict=True)))
        return tensors[2]

    torch.vmap(torch.vmap(call))(*every)
    CASES[0].call(again)
    for name, x in zip(names, every, strict=True):
        assert torch.equal(x, again[name].expand_as(x))


def test_vmap_needs_pages_of_each():
    t = CASES[0].operands()

    def mapped(**changes):
        given = [changes.get(name, x) for name, x in t.items()]
        dims = tuple(0 if name in changes else None for name in t)
        torch.vmap(lambda *x: wmma_ops.kv_append(*x), in_dims=dims)(*given)

    both = {name: torch.stack([t[name]] * 2) for name in ("key", "key_pages", "value_pages")}
    for missing in ("key_pages", "value_pages"):
        text = f"^wmma.kv_append: {missing} is not mapped by vmap, .*; takes pages of each, or one call, without vmap"
        with pytest.raises(ValueError, match=text):
            mapped(**{name: x for name, x in both.items() if name != missing})
    with pytest.raises(ValueError, match=r"^wmma\.kv_append: value_pages has elements that share memory"):
        mapped(**both | {"value_pages": t["value_pages"].expand(2, -1, -1, -1, -1)})
    assert all(torch.equal(x, torch.stack([t[name]] * 2)) for name, x in both.items())


@pytest.mark.parametrize("raw", [False, True], ids=["wmma", "raw"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_autocast_writes_what_the_pages_hold(dtype, raw):
    """In models some of the new ones come in the region's type, others, as what is turned, wide."""
    t = Case(dtype, angles=4).operands()
    wide = t | {"key": t["key"].float(), "value": t["value"].bfloat16()}
    found = wide | {name: t[name].clone() for name in ("key_pages", "value_pages")}
    want = t | {"value": wide["value"].to(dtype)}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        overload("kv_append", raw=raw)(*found.values())
    wmma_ops.kv_append(**want)
    for name in ("key_pages", "value_pages"):
        assert torch.equal(found[name], want[name])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        CASES[4].call(CASES[4].operands())  # float64 stays
        with pytest.raises(TypeError, match="value is float32; takes float64, as key has"):
            CASES[4].call(CASES[4].operands() | {"value": t["value"].float()})


def test_nothing_is_counted():
    """Operations are those of products."""
    with FlopCounterMode(display=False) as counter:
        CASES[2].call(CASES[2].operands())
    assert counter.get_total_flops() == 0


def test_gradients_are_refused():
    t = CASES[0].operands()
    t["key"].requires_grad_()
    with pytest.raises(
        ValueError, match="kv_append: key requires grad, but pages are not differentiable; takes detached"
    ):
        CASES[0].call(t)
    with torch.no_grad():
        CASES[0].call(t)


def _in(x, like):
    """A view of x's first elements."""
    return x.flatten()[: like.numel()].view(like.dtype).view(like.shape)


def _rows_apart(x):
    both = torch.zeros(len(x) + 1, *x.shape[1:])
    return {"key_pages": both[1:], "value_pages": both[:-1]}


SHARED = {
    "value_pages, the key pages": lambda t: {"key_pages": t["value_pages"], "key": t["value"]},
    "value_pages, rows of them": lambda t: _rows_apart(t["value_pages"]) | {"key": t["value"]},
    "key_pages, beside the new values": lambda t: {"value": _in(t["key_pages"], t["value"])},
    "value_pages, beside the new keys": lambda t: {"key": _in(t["value_pages"], t["key"])},
    "key_pages, beside cos": lambda t: {"cos": _in(t["key_pages"], t["cos"])},
    "key_pages, beside numbers": lambda t: {"block_table": _in(t["key_pages"].view(torch.int32), t["block_table"])},
}  # fmt: skip


@pytest.mark.parametrize("name", SHARED)
def test_shared_memory_is_refused(name):
    t = Case(angles=4).operands()
    t |= SHARED[name](t)
    before = {x: of.clone() for x, of in t.items() if of is not None}
    with pytest.raises(
        ValueError, match=rf"^wmma\.kv_append: {name.split(',')[0]} shares memory with \w+; takes memory"
    ):
        CASES[0].call(t)
    assert all(torch.equal(t[x], of) for x, of in before.items())


def test_interleaved_halves_share_nothing():
    """Keys and values of one allocation, by halves of each token, of each page, and element by element."""
    want = Case(angles=4).operands()
    want["value"], want["value_pages"] = want["key"].flip(0), torch.zeros_like(want["key_pages"])
    pages, size, heads, e = want["key_pages"].shape
    for layout in ("pages", "tokens", "heads", "elements"):
        at = {"pages": 1, "tokens": 2, "heads": 3, "elements": 4}[layout]
        sizes = [pages, size, heads, e]
        sizes.insert(at, 2)
        both = torch.zeros(sizes)
        t = want | dict(zip(("key_pages", "value_pages"), both.unbind(at), strict=True))
        CASES[0].call(t)
        plain = want | {x: torch.zeros_like(want[x]) for x in ("key_pages", "value_pages")}
        CASES[0].call(plain)
        assert all(torch.equal(t[x], plain[x]) for x in ("key_pages", "value_pages")), layout


GOOD = Case(angles=4).operands()
BAD = (
    ({"key": GOOD["key"].int()}, TypeError, "key is int32; takes float16"),
    ({"key": GOOD["key"][0]}, ValueError, r"key has shape \[2, 24\]; takes \[tokens, heads, head size\]"),
    ({"value": GOOD["value"].half()}, TypeError, "value is float16; takes float32, as key has"),
    ({"value": GOOD["value"][1:]}, ValueError, "value has shape .*; takes the tokens and the heads of key"),
    ({"key_pages": GOOD["key_pages"].half()}, TypeError, "key_pages is float16; takes float32"),
    ({"key_pages": GOOD["value_pages"]}, ValueError, r"key_pages has shape .*; takes \[pages, page size, 2, 24\]"),
    ({"value_pages": GOOD["value_pages"][1:]}, ValueError, "value_pages has shape .*; takes the pages of key_pages, 7"),
    (
        {"key_pages": GOOD["key_pages"][:1].expand(7, -1, -1, -1)},
        ValueError,
        "key_pages has elements that share memory",
    ),
    ({"block_table": GOOD["block_table"].long()}, TypeError, "block_table is int64; takes int32"),
    ({"block_table": GOOD["block_table"][1:]}, ValueError, r"block_table has shape \[2, 3\]; takes \[3, pages of a"),
    ({"cu_seq": GOOD["cu_seq"].float()}, TypeError, "cu_seq is float32; takes int32 or int64"),
    ({"cu_seq": GOOD["cu_seq"][:0]}, ValueError, r"cu_seq has shape \[0\]; takes one dimension, of 1 or more"),
    ({"seqused_k": GOOD["seqused_k"][:2]}, ValueError, r"seqused_k has shape \[2\]; takes \[3\], as cu_seq has 4"),
    ({"seqused_k": None}, TypeError, "seqused_k is None; takes a tensor"),
    ({"cos": None}, TypeError, "cos is None; takes a tensor beside sin"),
    ({"sin": GOOD["sin"][:, :2]}, ValueError, r"sin has shape \[40, 2\] and is float32; takes those of cos, \[40, 4\]"),
    ({"cos": GOOD["cos"].half()}, TypeError, "cos is float16; takes float32, as key has"),
    (
        {"cos": torch.ones(40, 13)},
        ValueError,
        r"cos has shape \[40, 13\]; takes \[places, angles\], of up to 12 angles",
    ),
    (
        {"cos": torch.empty(0, 1 << 62), "sin": torch.empty(0, 1 << 62)},  # twice as many are none of 64 bits
        ValueError,
        r"cos has shape \[0, 4611686018427387904\]; takes \[places, angles\], of up to 12 angles",
    ),
)
BAD_NUMBERS = (  # which are known on the CPU
    ({"cu_seq": torch.tensor([0, 6, 5, 9])}, ValueError, "cu_seq has 5 at 2; takes 6, which is before it, or more"),
    ({"cu_seq": torch.tensor([0, 6, 6, 10])}, ValueError, "cu_seq has 10 at 3; takes up to 9, the tokens of key"),
    (
        {"seqused_k": torch.tensor([5, 9, 17])},
        ValueError,
        "seqused_k has 5 at 0; takes 6 to 48, the new keys and what its",
    ),
    ({"seqused_k": torch.tensor([35, 9, 49])}, ValueError, "seqused_k has 49 at 2; takes 3 to 48"),
    (
        {"seqused_k": torch.tensor([35, 9, 34])},
        ValueError,
        r"block_table has -1 at \[2, 2\]; takes 0 to 6, the pages of",
    ),
    ({"cos": GOOD["cos"][:34], "sin": GOOD["sin"][:34]}, ValueError, r"cos has shape \[34, 4\]; takes 35 places"),
)


def _name(x):
    return " ".join(x) if isinstance(x, dict) else None


@pytest.mark.parametrize(("change", "kind", "text"), BAD + BAD_NUMBERS, ids=_name)
def test_refused(change, kind, text):
    """Before anything is written."""
    t = {name: x.clone() for name, x in GOOD.items()} | change
    before = {name: t[name].clone() for name in ("key_pages", "value_pages")}
    with pytest.raises(kind, match=rf"^wmma\.kv_append: {text}"):
        wmma_ops.kv_append(**t)
    assert all(torch.equal(t[name], x) for name, x in before.items())


@pytest.mark.parametrize(("change", "kind", "text"), BAD_NUMBERS, ids=_name)
def test_refused_by_kernels_where_that_is_asked_for(change, kind, text, monkeypatch):
    monkeypatch.setenv("WMMA_OPS_CHECK", "1")
    t = {name: x.clone() for name, x in GOOD.items()} | change
    with wmma_ops.emulate("gfx942") as emulation, pytest.raises(kind, match=rf"^wmma\.kv_append: {text}"):
        wmma_ops.kv_append(**t)
    assert not emulation.launches


def _fakes(t: dict, mode) -> dict:
    return {name: x if x is None else mode.from_tensor(x) for name, x in t.items()}


@pytest.mark.parametrize(("change", "kind", "text"), BAD, ids=_name)
def test_refused_by_fakes(change, kind, text):
    """In the same words, but for what the numbers are."""
    with FakeTensorMode() as mode:
        t = _fakes(GOOD | change, mode)
        with pytest.raises(kind, match=rf"^wmma\.kv_append: {text}"):
            wmma_ops.kv_append(**t)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_fakes_take_what_is_right(case):
    for change in ({}, *(change for change, *_ in BAD_NUMBERS)):
        with FakeTensorMode() as mode:
            case.call(_fakes(case.operands() | {x: change[x] for x in change if x not in ("cos", "sin")}, mode))


def test_graphs_take_any_number_of_tokens():
    def call(t):
        CASES[2].call(t)
        return t["key_pages"].sum()

    frames = []

    def count(graph, inputs):
        frames.append(graph)
        return graph

    compiled = torch.compile(call, fullgraph=True, dynamic=True, backend=count)
    for beyond in (2, 5, 7):
        results = [function(replace(CASES[2], beyond=beyond).operands()) for function in (call, compiled)]
        assert torch.equal(*results)
    assert len(frames) == 1


APPEND = "append.hpp"
WRONG = (
    Planted("a_key_too_early", APPEND, "- (end - token);", "- (end - token) - 1;"),
    Planted("rows_of_the_neighbour", APPEND, "sequence * p.pages.sequence", "(sequence ^ 1) * p.pages.sequence"),
    Planted("the_page_behind", APPEND, "table[place / Config::kPageSize *", "table[(place / Config::kPageSize + 1) *"),
    Planted("the_first_page_always", APPEND, "rows + page * x.batch_stride", "rows + 0 * x.batch_stride"),
    Planted("turned_the_other_way", APPEND, "is_first ? -other * sin", "is_first ? other * sin"),
    Planted("angles_of_the_next_place", APPEND, "angle_at(p.cos, place, angle)", "angle_at(p.cos, place + 1, angle)"),
    Planted("values_turned_too", APPEND, "if (is_key) turn(", "if (is_key || chunk == kKeyChunks) turn("),
    Planted("partners_that_are_turned", APPEND, "x[(is_first ? c + away : c - away)", "x[(is_first ? c + away : c)"),
)


def test_what_is_replaced_stands_there_once(sources):
    check_that_each_stands_once(sources / "wmma/attention", WRONG)


@pytest.mark.parametrize("of", WRONG, ids=str)
def test_is_caught(of, sources):
    check_is_caught(of, sources / "wmma/attention", lambda: _check(CASES[2], "gfx942"))
