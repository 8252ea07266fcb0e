"""Keys and values in pages as numbers of 8 bits: attention and appending on the CPU, whose values the value suite has too
("narrow pages"), and on emulated targets; what is refused, transforms, plans, and kernels that are wrong on purpose."""

from dataclasses import dataclass, replace

import pytest
import torch
from narrow_pages import appended, every_code, operands, tricky
from planted import Planted, check_is_caught, check_that_each_stands_once
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

import wmma_ops
from wmma_ops.hardware import arch
from wmma_ops.plan import kv_append as append_planner
from wmma_ops.plan.attention import planner
from wmma_ops.runtime import launching
from wmma_ops.testing import VarlenAttentionCase, run

F8, F16, BF16 = torch.float8_e4m3fn, torch.float16, torch.bfloat16
TARGETS = arch.EMULATED

FUNCTIONS = {"score_mod": "suite_bias", "mask_mod": "suite_mask"}

# A token of each sequence, some of each, more; pages of a tile, smaller and larger ones; any strides.
DECODING = VarlenAttentionCase(
    queries=(1, 1),
    keys=(40, 3),
    page_size=16,
    heads=4,
    kv_heads=2,
    e=64,
    dtype="bfloat16",
    stored="float8_e4m3fn",
    descale="heads",
)
CASES = (
    DECODING,
    replace(DECODING, queries=(4, 2), keys=(70, 33), kv_heads=1, page_size=64, e=32, dtype="float16", window=(-1, 0)),
    replace(
        DECODING, queries=(9, 12), keys=(9, 50), page_size=48, e=24, ev=17, window=(17, 3), descale="each", **FUNCTIONS
    ),
    replace(DECODING, queries=(9, 5), keys=(40, 7), kv_heads=None, e=17, dtype="float16", layout="strided"),
    replace(DECODING, queries=(4, 1), keys=(33, 12), layout="column", e=32, softcap=2.0),
    replace(
        DECODING,
        queries=(3,),
        keys=(70,),
        used=(50,),
        page_size=64,
        layout="halves",
        sinks="own",
        slopes="own",
        descale=None,
    ),
    replace(DECODING, queries=(2,), keys=(300,), page_size=64, e=16, dtype="float16", scale=-0.3, descale="one"),
    replace(DECODING, queries=(2, 0), keys=(20, 0), e=40, dtype="float16", layout="offset", number="int64"),
)


@pytest.mark.parametrize(("target", "case"), list(zip(TARGETS, CASES, strict=True)), ids=str)
def test_values(target, case):
    run(case, backend=f"emulated:{target}")


# Some have instructions for it.
@pytest.mark.parametrize(
    ("target", "dtype"),
    [("cpu", BF16), ("gfx942", BF16), ("gfx1100", F16), ("gfx1201", BF16)],
    ids=str,
)
def test_every_number_is_read_as_it_is(target, dtype):
    every_code(dtype, target)


@pytest.mark.parametrize(
    ("target", "dtype"),
    list(zip(("cpu", "cpu", "gfx908", "gfx950", "gfx1100", "gfx1201"), (BF16, F16) * 3, strict=True)),
    ids=str,
)
def test_appended_bit_for_bit_as_torch_converts(target, dtype):
    appended(tricky(dtype), target)


@pytest.mark.parametrize("target", ["cpu", "gfx942"])
@pytest.mark.parametrize("interleaved", [False, True])
def test_what_is_turned_is_rounded_once(target, interleaved):
    generator = torch.Generator().manual_seed(0)
    key = torch.randn(9, 2, 16, generator=generator).to(BF16)
    cos, sin = (torch.randn(30, 6, generator=generator) for _ in range(2))
    descale = torch.tensor([0.2, 0.7])
    options = {"cos": cos, "sin": sin, "k_descale": descale, "interleaved": interleaved}
    got = appended(key, target, value_alone=True, **options)
    wide = key.double()
    first, second = (slice(0, 12, 2), slice(1, 12, 2)) if interleaved else (slice(0, 6), slice(6, 12))
    c, s = (x[5 : 5 + len(key), None].double() for x in (cos, sin))
    want = wide.clone()
    want[..., first] = wide[..., first] * c - wide[..., second] * s
    want[..., second] = wide[..., second] * c + wide[..., first] * s
    want /= descale[:, None]
    # Twice rounded, by bfloat16 too, they would be off by up to 2^-9 of them more.
    bound = (2**-4 + 2**-18) * want.abs().clamp(min=2**-6) + 2**-18
    assert ((got.double() - want).abs() <= bound).all()
    twice = (want * descale[:, None]).to(BF16).double() / descale[:, None]
    assert not torch.equal(got, twice.to(torch.float32).to(F8).to(got.dtype))


def test_attention_sees_what_was_appended():
    """As float32 has the pages' numbers, which are those that came but for what is lost of their digits."""
    query, generator = operands(BF16)["query"][:7], torch.Generator().manual_seed(0)
    new = [torch.randn(7, 2, 16, generator=generator).to(BF16) for _ in range(2)]
    pages = [torch.zeros(2, 16, 2, 16).to(F8) for _ in new]
    table, ends, used = torch.tensor([[1]], dtype=torch.int32), torch.tensor([0, 7]), torch.tensor([7])
    descales = {"k_descale": torch.tensor(0.01), "v_descale": torch.tensor([0.01, 0.02])}
    wmma_ops.kv_append(*new, *pages, table, ends, used, **descales)
    kept = [x[1, :7].float() * descale.view(-1, 1) for x, descale in zip(pages, descales.values(), strict=True)]
    for x, came in zip(kept, new, strict=True):
        assert ((x - came).abs() <= came.abs() * 2**-4 + 0.02 * 2**-10).all()
    options = {"seqused_k": used, "block_table": table, "enable_gqa": True} | descales
    out, lse = wmma_ops.varlen_attention(query, *pages, ends, None, 7, None, **options)
    want, want_lse = wmma_ops.varlen_attention(query.float(), *kept, ends, ends, 7, 7, enable_gqa=True)
    torch.testing.assert_close(out, want.to(BF16), rtol=2**-8, atol=0)
    torch.testing.assert_close(lse, want_lse)


def _attend(t: dict, **changes):
    given = {"cu_seq_k": None, "max_q": 7, "max_k": None, "enable_gqa": True} | t | changes
    return wmma_ops.varlen_attention(**given)


def test_without_descales_they_are_one():
    t = operands(F16)
    ones = {name: torch.ones(1) for name in ("k_descale", "v_descale")}
    for x, y in zip(_attend(t, k_descale=None, v_descale=None), _attend(t, **ones), strict=True):
        assert torch.equal(x, y)


def test_compiled_and_traced():
    t = operands(BF16)

    def call(*tensors):
        return _attend(dict(zip(t, tensors, strict=True)))[0]

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager", dynamic=True)
    traced = torch.fx.experimental.proxy_tensor.make_fx(call)(*t.values())
    for one in (compiled, traced):
        assert torch.equal(one(*t.values()), call(*t.values()))

    def append(pages, values, key):
        wmma_ops.kv_append(
            key, key, pages, values, t["block_table"], t["cu_seq_q"], t["seqused_k"], k_descale=t["k_descale"]
        )
        return pages.float().sum()

    key = t["query"][:, :2]
    results = []
    for one in (append, torch.compile(append, fullgraph=True, backend="aot_eager")):
        pages = t["key"].clone()
        results.append((one(pages, t["value"].clone(), key), pages))
    assert torch.equal(results[0][1].float(), results[1][1].float())
    assert not torch.equal(results[0][1].float(), t["key"].float())


def test_vmap_is_a_loop():
    t = operands(BF16)
    descales = torch.stack([t["k_descale"], t["k_descale"] * 2])
    got = torch.vmap(lambda descale: _attend(t, k_descale=descale)[0])(descales)
    for x, descale in zip(got, descales, strict=True):
        assert torch.equal(x, _attend(t, k_descale=descale)[0])


def test_autocast_leaves_the_pages():
    t = operands(BF16)
    wide = t | {"query": t["query"].float()}
    with torch.autocast("cpu", dtype=BF16):
        assert torch.equal(_attend(wide)[0], _attend(t)[0])
    with pytest.raises(TypeError, match="query is float32; takes float16 or bfloat16 beside pages of float8_e4m3fn"):
        _attend(wide)
    pages = [torch.zeros(5, 16, 2, 16).to(F8) for _ in range(4)]
    numbers = t["block_table"], t["cu_seq_q"], t["seqused_k"]
    new = t["query"][:, :2]
    wmma_ops.kv_append(new, new, *pages[:2], *numbers)
    with torch.autocast("cpu", dtype=BF16):
        wmma_ops.kv_append(new.float(), new, *pages[2:], *numbers)
    assert torch.equal(pages[0].float(), pages[2].float())


def test_operations_are_those_of_other_pages():
    t = operands(BF16)
    plain = {name: t[name].to(BF16) for name in ("key", "value")} | {"k_descale": None, "v_descale": None}
    counted = []
    for changes in ({}, plain):
        with FlopCounterMode(display=False) as counter:
            _attend(t, **changes)
        counted.append(counter.get_total_flops())
    assert counted[0] == counted[1] > 0


def test_gradients_are_refused():
    for name in ("query", "k_descale"):
        t = operands(BF16)
        t[name].requires_grad_()
        text = f"varlen_attention: {name} requires grad, but attention's keys in pages are not differentiable"
        with pytest.raises(ValueError, match=text):
            _attend(t)
        with torch.no_grad():
            _attend(t)


GOOD = operands(BF16)
PLAIN = {name: GOOD[name].to(BF16) for name in ("key", "value")}
PACKED = {"key": GOOD["key"][0], "value": GOOD["value"][0], "block_table": None, "cu_seq_k": torch.tensor([0, 2, 9])}
BAD = (
    (
        PACKED | {"max_k": 9, "seqused_k": None},
        TypeError,
        r"key is float8_e4m3fn; takes bfloat16, as query has \(in pages, with block_table, it may be\)",
    ),
    ({"query": GOOD["query"].float()}, TypeError, "query is float32; takes float16 or bfloat16 beside pages of float8"),
    ({"value": PLAIN["value"]}, TypeError, "value is bfloat16; takes float8_e4m3fn, as key has"),
    ({"key": PLAIN["key"]}, TypeError, "value is float8_e4m3fn; takes bfloat16, as query has"),
    (
        {"key": PLAIN["key"].to(torch.float8_e5m2)},
        TypeError,
        "key is float8_e5m2; takes bfloat16, as query has, or float8_e4m3fn",
    ),
    (PLAIN, TypeError, "k_descale is given beside key of bfloat16; takes None, but of pages of float8_e4m3fn"),
    (PLAIN | {"k_descale": None}, TypeError, "v_descale is given beside key of bfloat16"),
    ({"k_descale": torch.ones(2).to(BF16)}, TypeError, "k_descale is bfloat16; takes float32"),
    ({"v_descale": torch.ones(4)}, ValueError, r"v_descale has shape \[4\]; takes a shape that broadcasts to \[2, 2\]"),
    ({"k_descale": torch.ones(3, 2)}, ValueError, r"k_descale has shape \[3, 2\]; takes a shape that broadcasts to"),
    ({"k_descale": torch.ones(1, device="meta")}, TypeError, "k_descale is on meta; takes tensors on"),
)


def _name(x):
    return " ".join(x) if isinstance(x, dict) else None


@pytest.mark.parametrize(("change", "kind", "text"), BAD, ids=_name)
def test_refused(change, kind, text):
    """By the library, and in the same words by fakes."""
    with pytest.raises(kind, match=rf"^wmma\.varlen_attention: {text}"):
        _attend(GOOD, **change)
    with FakeTensorMode() as mode:
        t = GOOD | change
        here = {name: mode.from_tensor(x) if isinstance(x, torch.Tensor) else x for name, x in t.items()}
        with pytest.raises(kind, match=rf"^wmma\.varlen_attention: {text}"):
            _attend(here)


PAGES = {f"{name}_pages": GOOD[name] for name in ("key", "value")}
NEW = PAGES | dict.fromkeys(("key", "value"), GOOD["query"][:, :2])
NEW |= {"block_table": GOOD["block_table"], "cu_seq": GOOD["cu_seq_q"], "seqused_k": GOOD["seqused_k"]}
NEW |= {name: GOOD[name] for name in ("k_descale", "v_descale")}
WIDE_PAGES = {name: x.to(BF16) for name, x in PAGES.items()}
BAD_NEW = (
    ({name: NEW[name].float() for name in ("key", "value")}, TypeError, "key_pages is float8_e4m3fn; takes float32"),
    (WIDE_PAGES, TypeError, "k_descale is given beside pages of bfloat16; takes None, but of pages of float8_e4m3fn"),
    (
        {"value_pages": WIDE_PAGES["value_pages"]},
        TypeError,
        "value_pages is bfloat16; takes float8_e4m3fn, as key_pages",
    ),
    (
        {"key_pages": PAGES["key_pages"].to(torch.float8_e5m2)},
        TypeError,
        "key_pages is float8_e5m2; takes bfloat16, as key has, or float8_e4m3fn",
    ),
    ({"v_descale": torch.ones(2).double()}, TypeError, "v_descale is float64; takes float32"),
    ({"k_descale": torch.ones(3)}, ValueError, r"k_descale has shape \[3\]; takes a shape that broadcasts to \[2, 2\]"),
)


@pytest.mark.parametrize(("change", "kind", "text"), BAD_NEW, ids=_name)
def test_appending_refused(change, kind, text):
    with pytest.raises(kind, match=rf"^wmma\.kv_append: {text}"):
        wmma_ops.kv_append(**NEW | change)
    with FakeTensorMode() as mode:
        here = {name: mode.from_tensor(x) for name, x in (NEW | change).items()}
        with pytest.raises(kind, match=rf"^wmma\.kv_append: {text}"):
            wmma_ops.kv_append(**here)


def _problem(target: str, queries: int = 1, page_size: int = 64):
    query, key = torch.empty(4 * queries, 8, 128).to(BF16), torch.empty(50, page_size, 2, 128).to(F8)
    ends, used = torch.zeros(5, dtype=torch.int32), torch.zeros(4, dtype=torch.int32)
    options = {"seqused_k": used, "block_table": torch.zeros(4, 20, dtype=torch.int32), "enable_gqa": True}
    call = lambda: wmma_ops.varlen_attention(query, key, key, ends, None, queries, None, **options)  # noqa: E731
    (found,) = launching.problems(call, arch.target(target))
    return found


@pytest.mark.parametrize(("target", "queries"), [("sm_80", 1), ("sm_90a", 1), ("gfx1250", 1)])
def test_compiles_for_what_is_not_emulated(target, queries):
    for launch in planner.plan(_problem(target, queries), arch.target(target)).launches:
        launch.compile(arch.target(target))
    if target == "gfx1250":
        return
    (found,) = launching.problems(lambda: wmma_ops.kv_append(**NEW), arch.target(target))
    for launch in append_planner.plan(found, arch.target(target)).launches:
        launch.compile(arch.target(target))


def test_keys_are_loaded_by_16_bytes():
    target = arch.target("gfx942")
    problem = _problem("gfx942")
    assert (problem.k_vec, problem.v_vec) == (16, 16)
    text = planner.plan(problem, target).launches[0].compile(target).assembly
    assert text.count("global_load_dwordx4") >= 8
    assert "global_load_ubyte" not in text


def test_explained():
    given = {"cu_seq_k": None, "max_q": 7, "max_k": None, "enable_gqa": True} | operands(BF16)
    text = str(wmma_ops.explain(wmma_ops.varlen_attention, **given, target="gfx1201"))
    assert "pages of 16 keys, float8_e4m3fn" in text
    assert "float8_e4m3fn becomes bfloat16 on its way to shared memory" in text
    for_warpgroups, target = _problem("sm_90a"), arch.target("sm_90a")
    for of in (for_warpgroups, replace(for_warpgroups, block_q=128, block_k=128)):
        assert "widened from 4 places" in str(planner.plan(of, target).config)
    others = replace(for_warpgroups, e=24, k_vec=8)
    assert "bfloat16 on its way to shared memory" in planner.plan(others, target).reason
    text = str(wmma_ops.explain(wmma_ops.kv_append, **NEW, target="gfx1201"))
    assert "into pages of 16 keys, float8_e4m3fn" in text


SMALL = replace(DECODING, queries=(1, 2), keys=(20, 5), heads=2, kv_heads=None, e=16)


@dataclass(frozen=True)
class Wrong(Planted):
    case: VarlenAttentionCase = SMALL  # of attention
    ask: str = "attention"
    target: str = "gfx942"


def _ask(of: Wrong) -> None:
    if of.ask == "attention":
        run(of.case, backend=f"emulated:{of.target}")
    elif of.ask == "append":
        appended(tricky(BF16), of.target)
    else:
        every_code(F16, of.target)


NUMBERS = "attention/rows/paged.hpp"
APPEND = "attention/append.hpp"
WRONG = (
    Wrong(
        "keys_of_another_head",
        NUMBERS,
        "descale_at(p.k_descale, place.batch, place.key_head)",
        "descale_at(p.k_descale, place.batch, place.key_head ^ 1)",
    ),
    Wrong(
        "of_the_first_sequence",
        "attention/rows/varlen.hpp",
        "[sequence * x.sequence_stride + head",
        "[head",
        replace(SMALL, descale="each"),
    ),
    Wrong(
        "values_not_multiplied",
        "attention/loops/forward.hpp",
        "wave.multiply(static_cast<Number>(p.of_values))",
        "wave.multiply(Number(1))",
    ),
    Wrong("keys_twice", NUMBERS, "own.scale *= of_keys;", "own.scale *= of_keys * of_keys;"),
    Wrong("not_below_the_cap", NUMBERS, "own.rules.steepness *= of_keys;", "", replace(SMALL, softcap=2.0)),
    Wrong("a_nan_read_as_480", "tile/widening.hpp", "| magnitude | every;", "| magnitude;", ask="read"),
    Wrong(
        "cut_off",
        APPEND,
        "return convert<Stored>(x >",
        "x = arch::bit_cast<float>(arch::bit_cast<uint32_t>(x) & 0xfff00000u); return convert<Stored>(x >",
        ask="append",
    ),
    Wrong("not_clamped", APPEND, "x > kLargest ? kLargest : x < -kLargest ? -kLargest : x", "x", ask="append"),
    Wrong("multiplied_by_the_descale", APPEND, "values[i] / descale", "values[i] * descale", ask="append"),
    Wrong("values_by_the_keys_descale", APPEND, "is_key ? p.k_descale : p.v_descale", "p.k_descale", ask="append"),
)


def test_what_is_replaced_stands_there_once(sources):
    check_that_each_stands_once(sources / "wmma", WRONG)


@pytest.mark.parametrize("of", WRONG, ids=str)
def test_is_caught(of, sources):
    check_is_caught(of, sources / "wmma", lambda: _ask(of))
