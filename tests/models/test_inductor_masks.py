"""Masks that graphs compute of positions alone become rules; heads that are repeated for the queries' are not."""

import pytest
import torch
import torch.nn.functional as F
from compiled_functions import Compiled, same
from torch._subclasses import FakeTensorMode

from wmma_ops.hardware import arch
from wmma_ops.inductor import masks, profit
from wmma_ops.runtime import emulation, launching

B, H, QUERIES, KEYS, SIZE = 2, 4, 6, 9, 8


def _tensors(queries: int = QUERIES, keys: int = KEYS, heads: int = H) -> list[torch.Tensor]:
    shapes = ((B, H, queries, SIZE), (B, heads, keys, SIZE), (B, heads, keys, SIZE))
    return [torch.randn(shape).requires_grad_() for shape in shapes]


def _positions(q, k):
    rows, columns = torch.arange(q.shape[2], device=q.device), torch.arange(k.shape[2], device=q.device)
    return rows[None, None, :, None], columns[None, None, None, :]


def _compared(q, k):
    rows, columns = _positions(q, k)
    return (columns <= rows).expand(B, -1, -1, -1)


def _lower(q, k):
    return torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()


def _from_the_last(q, k):
    return torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(diagonal=k.shape[2] - q.shape[2])


def _hidden(q, k):
    above = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).triu(diagonal=1)
    return torch.zeros(q.shape[2], k.shape[2]).masked_fill(above, float("-inf"))


def _packed(q, k):
    """As transformers has it: one document, which it finds of positions."""
    rows, columns = _positions(q, k)
    of = torch.arange(max(q.shape[2], k.shape[2])).unsqueeze(0).expand(B, -1)
    document = (torch.diff(of, prepend=of[:, :1] - 1, dim=-1) != 1).cumsum(-1)
    batch = torch.arange(B)[:, None, None, None]
    shown = rows.new_ones((), dtype=torch.bool) & (of[batch, columns] <= of[batch, rows])
    return shown & (document[batch, rows] == document[batch, columns])


def _window(q, k):
    rows, columns = _positions(q, k)
    return (columns <= rows) & (columns > rows - 3)


def _window_from_the_last(q, k):
    rows, columns = _positions(q, k)
    rows = rows + (k.shape[2] - q.shape[2])
    return torch.logical_and(columns <= rows, rows - columns < 4)


def _itself(q, k):
    rows, columns = _positions(q, k)
    return columns == rows


def _all(q, k):
    rows, columns = _positions(q, k)
    return rows + columns >= 0


RULES = {
    _compared: "causal",
    _lower: "causal",
    _hidden: "causal",
    _packed: "causal",
    _from_the_last: "causal from the last key on",
    _window: "causal, of a window of 3",
    _window_from_the_last: "causal from the last key on, of a window of 4",
    _itself: "causal, of a window of 1",
    _all: "whole",
}


def _attention(mask):
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, mask(q, k))


@pytest.mark.parametrize(("mask", "name"), RULES.items(), ids=lambda x: getattr(x, "__name__", ""))
def test_a_mask_of_positions_is_a_rule(mask, name):
    function = _attention(mask)
    compiled = Compiled(function)
    assert same(function, compiled, _tensors()) == {"attention": 1}
    (entry,) = compiled.report.rewritten
    assert entry.pattern == f"attention, whose mask is {name}"


@pytest.mark.parametrize("sizes", [(0, KEYS), (QUERIES, 0)])
def test_of_no_queries_or_keys(sizes):
    function = _attention(_lower)
    compiled = Compiled(function)
    with torch.no_grad():
        same(function, compiled, _tensors(*sizes), gradients=False)


def test_of_as_many_keys_as_queries():
    function = _attention(_from_the_last)
    compiled = Compiled(function)
    same(function, compiled, _tensors(KEYS, KEYS))
    assert compiled.report.rewritten[0].pattern == "attention, whose mask is causal"


def _shifted(q, k):
    rows, columns = _positions(q, k)
    return columns <= rows + 1


def _documents(q, k):
    rows, columns = _positions(q, k)
    return (columns <= rows) & (rows // 3 == columns // 3)


def _of_one_batch(q, k):
    rows, columns = _positions(q, k)
    return (columns <= rows) | (torch.arange(B)[:, None, None, None] == 1)


def _penalty(q, k):
    rows, columns = _positions(q, k)
    return (columns > rows) * -1.5


def _changed(q, k):
    mask = _lower(q, k)
    mask[0, 1] = True
    return mask


def _of_values(q, k):
    rows, columns = _positions(q, k)
    return (columns <= rows) | (k.detach()[:, :1, :, 0] > 0)[:, :, None]


@pytest.mark.parametrize("mask", [_shifted, _documents, _of_one_batch, _penalty, _changed, _of_values])
def test_another_stays_a_mask(mask):
    function = _attention(mask)
    compiled = Compiled(function)
    assert same(function, compiled, _tensors()) == {"attention": 1}
    (entry,) = compiled.report.rewritten
    assert entry.pattern == "attention"


def test_layers_share_a_mask_and_it_is_computed_once(monkeypatch):
    made = []
    found = masks._made
    monkeypatch.setattr(masks, "_made", lambda *arguments: made.append(1) or found(*arguments))

    def function(q, k, v):
        mask = _lower(q, k)
        return F.scaled_dot_product_attention(F.scaled_dot_product_attention(q, k, v, mask), k, v, mask)

    compiled = Compiled(function)
    assert same(function, compiled, _tensors()) == {"attention": 2}
    assert len(made) == compiled.graphs == 1


@pytest.mark.parametrize(("mask", "name"), RULES.items(), ids=lambda x: getattr(x, "__name__", ""))
def test_of_sizes_that_change_it_is_the_same_rule(mask, name):
    """One graph for all of them."""
    function = _attention(mask)
    compiled = Compiled(function, dynamic=True)
    for sizes in ((), (7, 12), (30, 41), (41, 30), (2, 3)):
        assert same(function, compiled, _tensors(*sizes)) == {"attention": 1}
    assert compiled.report.rewritten[0].pattern == f"attention, whose mask is {name}"
    assert compiled.graphs <= (3 if mask is _packed else 1)  # which asks which of both sizes is the larger


def test_a_window_that_no_size_has_reached_yet_is_one():
    def wide(q, k):
        rows, columns = _positions(q, k)
        return (columns <= rows) & (columns > rows - 50)

    function = _attention(wide)
    compiled = Compiled(function, dynamic=True)
    for sizes in ((), (70, 70), (60, 130)):
        assert same(function, compiled, _tensors(*sizes)) == {"attention": 1}
        assert compiled.report.rewritten[0].pattern == "attention, whose mask is causal, of a window of 50"
    assert compiled.graphs == 1


def _beyond_a_hundred(q, k):
    rows, columns = _positions(q, k)
    return (columns <= rows) | (columns == 100)


def _beyond_a_product(q, k):
    """The numbers of which are small, and what they make is not."""
    rows, columns = _positions(q, k)
    return (columns <= rows) | (columns // 9 // 9 == 2)


def _beyond_what_is_computed(q, k):
    rows, columns = _positions(q, k)
    return (columns <= rows) | (columns == 10_000)


def _of_as_many(q, k):
    """Causal while there are no more queries than keys."""
    rows, columns = _positions(q, k)
    return (columns <= rows) & (rows < k.shape[2])


def _by_turns(q, k):
    """Causal but for every seventh length."""
    rows, columns = _positions(q, k)
    return columns <= rows + ((rows * 0 + q.shape[2]) % 7 == 0)


def _of_a_part(q, k):
    rows, columns = _positions(q, k)
    return (columns <= rows) & (columns * 0.01 < 1)


@pytest.mark.parametrize(
    "mask",
    [
        _shifted,
        _documents,
        _penalty,
        _of_values,
        _beyond_a_hundred,
        _beyond_a_product,
        _beyond_what_is_computed,
        _of_as_many,
        _by_turns,
        _of_a_part,
    ],
)
def test_of_sizes_that_change_another_stays_a_mask(mask):
    function = _attention(mask)
    compiled = Compiled(function, dynamic=True)
    for sizes in ((), (7, 12), (130, 180), (12, 7)):
        assert same(function, compiled, _tensors(*sizes)) == {"attention": 1}
    assert {entry.pattern for entry in compiled.report.rewritten} == {"attention"}


@pytest.mark.parametrize(
    ("kind", "name", "more"),
    [("Llama", "causal", {}), ("Mistral", "causal, of a window of 5", {"sliding_window": 5})],
)
def test_masks_of_transformers(kind, name, more):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 50}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    config = getattr(transformers, f"{kind}Config")(**sizes, **heads, **more)
    model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()

    def function(tokens):
        return model(input_ids=tokens, use_cache=False).logits

    compiled = Compiled(function, dynamic=None)
    # After the second size a graph is for all.
    for graphs, shape in ((1, (2, 16)), (2, (3, 31)), (2, (5, 40)), (2, (2, 9))):
        with torch.no_grad():
            called = same(function, compiled, [torch.randint(0, 50, shape)], gradients=False)
        assert (called["attention"], compiled.graphs) == (2, graphs)
        of_attention = [entry for entry in compiled.report.rewritten if entry.op == "attention"]
        assert [entry.pattern for entry in of_attention] == [f"attention, whose mask is {name}"] * 2


def _repeated(q, k, v):
    k, v = (x[:, :, None].expand(B, 2, H // 2, *x.shape[2:]).reshape(B, H, *x.shape[2:]) for x in (k, v))
    return F.scaled_dot_product_attention(q, k, v)


def _repeated_in_turn(q, k, v):
    """Heads in another order."""
    k, v = (x[:, None].expand(B, H // 2, 2, *x.shape[2:]).reshape(B, H, *x.shape[2:]) for x in (k, v))
    return F.scaled_dot_product_attention(q, k, v)


def _repeated_and_changed(q, k, v):
    heads = k * 1.0
    k, v = (x[:, :, None].expand(B, 2, H // 2, *x.shape[2:]).reshape(B, H, *x.shape[2:]) for x in (heads, v))
    heads.add_(1.0)
    return F.scaled_dot_product_attention(q, k, v)


def _reshaped_by_name(q, k, v):
    k, v = (
        torch.reshape(input=x, shape=(B, H, x.shape[2], SIZE)) for x in (k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1))
    )
    return F.scaled_dot_product_attention(q, k, v)


@pytest.mark.parametrize(
    ("function", "seen"),
    [(_reshaped_by_name, False), (_repeated, True), (_repeated_in_turn, False), (_repeated_and_changed, False)],
)
def test_heads_are_not_repeated(function, seen):
    compiled = Compiled(function)
    assert same(function, compiled, _tensors(heads=2)) == {"attention": 1}
    (call,) = (node for node in compiled.graph.nodes if "attention" in str(node.target))
    assert call.kwargs.get("enable_gqa", False) is seen


def test_a_scale_of_a_head_size_that_may_change_is_settled():
    """As Llama's has it with dynamic=True: for another head size the graph is made anew, for other rows it is not."""

    def function(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=q.shape[-1] ** -0.5)

    compiled = Compiled(function, dynamic=True)
    for rows, size, graphs in ((12, 8, 1), (17, 8, 1), (12, 16, 2)):
        q, k, v = (torch.randn(2, 3, rows, size) for _ in "qkv")
        torch.testing.assert_close(compiled(q, k, v), function(q, k, v))
        assert compiled.graphs == graphs
    assert [entry.op for entry in compiled.report.entries] == ["attention"]


@pytest.mark.parametrize(
    ("mask", "rows", "size", "pays"),
    [
        (torch.bool, 1024, 64, True),
        (torch.bool, 1024, 128, True),
        (torch.bfloat16, 1024, 128, True),
        (torch.float32, 1024, 64, False),
        (torch.bool, 1024, 256, False),
        (torch.bool, 200, 64, False),
        (torch.bool, 197, 64, True),  # whose rows are not aligned: torch writes scores to memory
        (None, 197, 64, False),
    ],
)
def test_a_mask_pays_where_it_was_measured_to(mask, rows, size, pays):
    q = torch.empty(2, 4, rows, size, dtype=torch.bfloat16)
    target = arch.target("sm_90a")
    shown = None if mask is None else torch.zeros(rows, rows, dtype=mask)
    (problem,) = launching.problems(lambda: torch.ops.wmma.attention(q, q, q, shown), target)
    assert profit._attention_pays(problem, target, mask is not None)[0] is pays
    if mask is None:  # a graph's mask that is none in fact
        assert profit._attention_pays(problem, target, True)[0]


@pytest.mark.parametrize(
    ("size", "derives", "pays"), [(64, True, True), (128, False, True), (128, True, False), (256, True, True)]
)
def test_gradients_are_torchs_where_these_are_ahead(size, derives, pays):
    q = torch.empty(4, 16, 1024, size, dtype=torch.bfloat16)
    target = arch.target("sm_90a")
    (problem,) = launching.problems(lambda: torch.ops.wmma.attention(q, q, q), target)
    assert profit._attention_pays(problem, target, False, derives)[0] is pays
    assert profit._attention_pays(problem, target, True, derives)[0]  # beside a mask that ours does without


@pytest.mark.parametrize(("heads", "pays"), [(4, True), (160, False)])
def test_gradients_with_few_keys_are_ours_where_torch_leaves_units_without(heads, pays):
    q, k = (torch.empty(2, heads, rows, 128, dtype=torch.bfloat16) for rows in (4096, 77))
    target = arch.target("sm_90a")
    (problem,) = launching.problems(lambda: torch.ops.wmma.attention(q, k, k), target)
    assert profit._attention_pays(problem, target, False, True)[0] is pays
    assert not profit._attention_pays(problem, target, False, False)[0]


def test_short_sequences_are_taken_beside_a_mask_that_is_none():
    """As transformers has it in a ViT: torch's attention reads a mask that shows everything."""

    def whole(q):
        shown = torch.arange(q.shape[2]) >= torch.zeros(q.shape[2], 1)
        return F.scaled_dot_product_attention(q, q, q, attn_mask=shown)

    for function, is_taken in ((whole, True), (lambda q: F.scaled_dot_product_attention(q, q, q), False)):
        with FakeTensorMode(), emulation.entered(emulation.Emulation("sm_90a", execute=False)):
            compiled = Compiled(function, force=False)
            compiled(torch.empty(8, 12, 197, 64, dtype=torch.bfloat16))
        (entry,) = compiled.report.entries
        assert (entry.op == "attention") is is_taken, entry.reason
