"""Functions of attention's scores, and of which keys a query sees, that users register.

Each stands twice: as a C++ expression, which is compiled into kernels by its text, and as a torch function, for the CPU, for
references, and for gradients that are differentiated again. The C++ library knows by a function's code how many tensors it
reads and by how many indices, and refuses calls that have others.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch

from wmma_ops.ops import expressions
from wmma_ops.ops.attention_call import AttentionCall
from wmma_ops.ops.blocks import Blocks, blocks_given, from_flex, is_noop_mask, shown_by
from wmma_ops.ops.errors import FunctionError
from wmma_ops.ops.neighbours import answering
from wmma_ops.ops.registered import find, new_code
from wmma_ops.ops.seen import PackedSight

Tensor = torch.Tensor

PLACES = ("batch", "head", "query", "key")
TENSORS = ("a", "b", "c", "d")
ARGUMENTS = tuple(f"mod_{name}" for name in TENSORS)  # of the op
_FUNCTIONS = ("min", "max")  # of wmma/attention/terms/functions.hpp


@dataclass(frozen=True)
class ScoreFunction:
    """`expression` and `derivative` in C++, `function` in torch; `dims`: by how many indices each tensor is read."""

    name: str
    code: int
    expression: str
    derivative: str | None  # None: it is a mask function
    function: Callable[..., Tensor]
    operands: int
    dims: tuple[int | None, ...]

    @property
    def names(self) -> frozenset[str]:
        """What the expression names."""
        return expressions.names(self.expression)

    def __call__(self, *arguments: Tensor, like: Tensor, operands: tuple[Tensor | None, ...]) -> Tensor:
        """Of all scores that `like` has. `arguments`: those scores, if it is no mask function, and their places."""
        read = operands[: self.operands]
        read = tuple(x.to(like.dtype) if x is not None and x.is_floating_point() else x for x in read)  # as in kernels
        result = self.function(*arguments, *read)
        if not isinstance(result, Tensor):
            raise TypeError(f"wmma.attention: {self} gives a {type(result).__name__}; takes a tensor")
        try:
            return result.expand(like.shape)
        except RuntimeError:
            shapes = f"shape {list(result.shape)} for scores {list(like.shape)}"
            raise ValueError(f"wmma.attention: {self} gives {shapes}; takes an elementwise function") from None

    def __str__(self) -> str:
        return f"{'mask_mod' if self.derivative is None else 'score_mod'} {self.name!r}"


_scores: dict[str, ScoreFunction] = {}
_masks: dict[str, ScoreFunction] = {}
_by_code: dict[tuple[bool, int], ScoreFunction] = {}


def by_code(is_mask: bool, code: int) -> ScoreFunction:
    return _by_code[is_mask, code]


def codes(op: str, score_mod: str | None, mask_mod: str | None) -> dict[str, int]:
    """As the op has them; what is None is left out, so that graphs name what is asked for alone."""
    asked = (("score_mod", score_mod, _scores), ("mask_mod", mask_mod, _masks))
    return {argument: find(op, argument, name, known).code for argument, name, known in asked if name is not None}


def name_of(function: Callable[..., Tensor], is_mask: bool) -> str | None:
    """By which it was registered, as a function that reads no tensors."""
    for known in (_masks if is_mask else _scores).values():
        if known.function is function and known.operands == 0:
            return known.name
    return None


def blocks_of(op: str, block_mask, mask_mod: str | None) -> tuple[Blocks, str | None]:
    """As kernels are given it, and the name of what its masked blocks show."""
    if isinstance(block_mask, Blocks):
        return block_mask, mask_mod
    function = getattr(block_mask, "mask_mod", None)
    if not hasattr(block_mask, "kv_num_blocks") or function is None:
        came = type(block_mask).__name__
        raise TypeError(f"wmma.{op}: block_mask is of type {came}; takes wmma_ops.Blocks or FlexAttention's BlockMask")
    if mask_mod is None and not is_noop_mask(function):
        mask_mod = name_of(function, True)
        if mask_mod is None:
            text = f"shows keys by {getattr(function, '__name__', function)!r}, which kernels do not know"
            raise ValueError(
                f"wmma.{op}: block_mask {text}; takes one whose mask_mod register_mask_mod was given, or mask_mod beside it"
            )
    return from_flex(block_mask), mask_mod


class Functions(NamedTuple):
    """Those of a call, on scores ``[..., heads, rows, keys]``."""

    score_mod: int
    mask_mod: int
    operands: tuple[Tensor | None, ...]
    blocks: Blocks | None = None
    first: int = 0  # the query of the first row
    packed: bool = False  # blocks are found by places; otherwise from the first row on
    places: tuple[Tensor, ...] | None = None  # of each score; None: counted from the first row and the first batch

    def changed(self, scores: Tensor) -> Tensor:
        if not self.score_mod:
            return scores
        function = by_code(False, self.score_mod)
        return function(scores, *self.places_of(scores), like=scores, operands=self.operands).to(scores.dtype)

    def masked(self, scores: Tensor) -> Tensor:
        shown = None
        if self.mask_mod:
            function = by_code(True, self.mask_mod)
            shown = function(*self.places_of(scores), like=scores, operands=self.operands).to(torch.bool)
        if self.blocks is not None:
            if self.packed:
                states = self.blocks.at(*self.places_of(scores))
            else:
                states = self.blocks.of_scores(self.first, *scores.shape[-2:])
            shown = shown_by(states, shown)
        return scores if shown is None else scores.masked_fill(~shown, -torch.inf)

    def places_of(self, scores: Tensor) -> tuple[Tensor, ...]:
        return _places(scores, self.first) if self.places is None else self.places

    def slope(self, scores: Tensor) -> Tensor:
        """By how much more a score changes than the one that it came from; differentiable where that is asked for."""
        again = torch.is_grad_enabled()
        with torch.enable_grad():
            x = scores if scores.requires_grad else scores.detach().requires_grad_()
            total = self.changed(x).sum()
            if not total.requires_grad:
                return torch.zeros_like(scores)
            return torch.autograd.grad(total, x, create_graph=again, materialize_grads=True)[0]


def of_call(call: AttentionCall) -> Functions | None:
    if not call.score_mod and not call.mask_mod and call.block_mask is None:
        return None
    return Functions(call.score_mod, call.mask_mod, _operands(call), _blocks(call))


def of_packed(call: AttentionCall, sight: PackedSight) -> Functions | None:
    """Of packed sequences, on scores ``[heads, queries, keys]`` of all tokens: a sequence is as one of a batch."""
    if not call.score_mod and not call.mask_mod and call.block_mask is None:
        return None
    heads = call.q.shape[1]
    batch, query, key = (x.to(torch.int64) for x in (sight.sequences, sight.queries, sight.keys))
    head = (batch.new_ones(heads).cumsum(0) - 1)[:, None, None]
    # A key of another sequence stands where the query's own may have none: functions are told of the first one.
    key = torch.where(sight.unseen, 0, key)
    places = (batch[:, None], head, query[:, None], key)
    return Functions(call.score_mod, call.mask_mod, _operands(call), _blocks(call), packed=True, places=places)


def _operands(call: AttentionCall) -> tuple[Tensor | None, ...]:
    return tuple(call[name] for name in ARGUMENTS)


def _blocks(call: AttentionCall) -> Blocks | None:
    return blocks_given(call.block_mask, call.block_q, call.block_k)


def _places(scores: Tensor, first: int = 0, first_head: int = 0, first_batch: int = 0) -> tuple[Tensor, ...]:
    """Batch, head, query and key of each score, as tensors that broadcast to it. DTensors where it is one."""
    *outer, rows, keys = scores.shape
    batch, heads = outer[:-1], outer[-1] if outer else 1

    def count(size):
        return scores.new_ones(size, dtype=torch.int64).cumsum(0) - 1

    ones = (1,) * (scores.dim() - 2)
    return (
        (count(math.prod(batch)) + first_batch).view(*(batch or ones[1:]), *ones[:1], 1, 1),
        (count(heads) + first_head).view(*ones[1:], *((heads,) if outer else ()), 1, 1),
        (count(rows) + first).view(*ones, rows, 1),
        count(keys).view(*ones, 1, keys),
    )


@answering
def register_score_mod(
    name: str, *, expression: str, function: Callable[..., Tensor], derivative: str, operands: int = 0
) -> None:
    """Makes `name` a function of scores that ``wmma_ops.attention(score_mod=name)`` takes, and ``varlen_attention``.

    Args:
        name: a Python identifier that is not taken by another.
        expression: the new score as a C++ expression, for kernels. It may name ``score`` (a float, or a double of float64
            tensors: scaled, after a soft cap and slopes, before masks), the ints ``batch`` (that of all batch dimensions as
            one; of packed sequences which one it is), ``head``, ``query`` and ``key`` (in packed sequences each counts its
            own), and as ``a(head, key)`` the elements of the small tensors ``a``, ``b``, ``c`` and ``d``, by as many indices
            as the tensor has dimensions. Of floating tensors they have the score's type, of int32, int64 and bool their own.
            An index outside gives NaN (the least number, false). It may call what is in ``wmma/math.hpp``, and ``min`` and
            ``max``. Numbers such as 2 and 2.f leave a float a float. It is one expression: without assignments, statements,
            lambdas and comments.
        function: the same in torch, ``function(score, batch, head, query, key, *tensors)``: elementwise, of places that are
            tensors which broadcast. FlexAttention's score functions are such.
        derivative: the expression's derivative by the score, likewise in C++.
        operands: how many tensors are read, of `a`, `b`, `c`, `d` in this order. They have no gradients.

    Examples:
        >>> import torch, wmma_ops
        >>> wmma_ops.register_score_mod(
        ...     "relative_bias",  # a number of each head and distance, up to 8
        ...     expression="score + a(head, min(abs(query - key), 8))",
        ...     function=lambda score, b, h, q, k, bias: score + bias[h, (q - k).abs().clamp(max=8)],
        ...     derivative="1",
        ...     operands=1,
        ... )
        >>> q, bias = torch.randn(1, 4, 32, 16), torch.randn(4, 9)
        >>> out, lse = wmma_ops.attention(q, q, q, score_mod="relative_bias", mod_operands=(bias,))
    """
    _register("register_score_mod", name, expression, function, derivative, operands)


@answering
def register_mask_mod(name: str, *, expression: str, function: Callable[..., Tensor], operands: int = 0) -> None:
    """Makes `name` a function that ``wmma_ops.attention(mask_mod=name)``, and ``varlen_attention``, takes: of a query and a
    key, whether it sees it.

    Args:
        name, operands: as of :func:`register_score_mod`. Both functions of a call read the same tensors.
        expression: a bool in C++, of the same names but ``score``.
        function: the same in torch, ``function(batch, head, query, key, *tensors)``.

    Examples:
        >>> import torch, wmma_ops
        >>> wmma_ops.register_mask_mod(
        ...     "within_documents",
        ...     expression="a(batch, query) == a(batch, key)",
        ...     function=lambda b, h, q, k, document: document[b, q] == document[b, k],
        ...     operands=1,
        ... )
        >>> q, document = torch.randn(1, 4, 32, 16), (torch.arange(32) // 12)[None]
        >>> out, lse = wmma_ops.attention(q, q, q, mask_mod="within_documents", mod_operands=(document,))
    """
    _register("register_mask_mod", name, expression, function, None, operands)


def _register(caller, name, expression, function, derivative, operands) -> None:
    is_mask = caller == "register_mask_mod"
    known = _masks if is_mask else _scores
    code = new_code(caller, name, known)
    if not isinstance(operands, int) or isinstance(operands, bool) or not 0 <= operands <= len(TENSORS):
        raise ValueError(f"{caller}: operands is {operands!r}; takes 0 to {len(TENSORS)}")
    if not callable(function):
        raise ValueError(f"{caller}: function is {function!r}; takes a torch function")
    dims: dict[str, int] = {}
    names = PLACES if is_mask else ("score", *PLACES)
    texts = {"expression": expression} if is_mask else {"expression": expression, "derivative": derivative}
    for argument, text in texts.items():
        _check_expression(caller, argument, text, names, operands, dims)
    found = ScoreFunction(name, code, expression, derivative, function, operands, tuple(map(dims.get, TENSORS)))
    if operands == 0:
        _check_function(caller, found)
    torch.ops.wmma._register_score_function(is_mask, code, operands, *(dims.get(x, -1) for x in TENSORS))
    known[name] = _by_code[is_mask, code] = found


def _check_expression(caller, argument, text, names, operands, dims) -> None:
    """That it is one expression of names that there are; how many indices it gives each tensor goes to `dims`."""
    given = TENSORS[:operands]
    named = expressions.names(text) if isinstance(text, str) else frozenset()
    if absent := [name for name in TENSORS[operands:] if name in named]:
        raise ValueError(
            f"{caller}: {argument} reads {absent[0]!r}, and operands is {operands}; takes an expression of "
            + (", ".join(given) or "no tensors")
        )
    expressions.check(caller, argument, text, (*names, *given), _FUNCTIONS)
    open_calls: list[str | None] = []  # for each bracket the tensor whose indices it holds
    counts: list[int] = []
    tokens = expressions.tokens(text)
    for before, token, follows in zip(["", *tokens[:-1]], tokens, [*tokens[1:], ""], strict=True):
        if token in given and follows != "(":
            raise ValueError(f"{caller}: {argument} has {token!r} without indices; takes {token}(…), an element")
        if token in ("(", "["):
            open_calls.append(before if before in given else None)
            counts.append(0 if follows == ")" else 1)
        elif token == ",":
            counts[-1] += 1
        elif token in (")", "]"):
            tensor, count = open_calls.pop(), counts.pop()
            if tensor is not None and dims.setdefault(tensor, count) != count:
                raise ValueError(
                    f"{caller}: {argument} gives {tensor!r} {count} and {dims[tensor]} indices; takes one number"
                )
            if tensor is not None and count > len(PLACES):
                raise ValueError(f"{caller}: {argument} gives {tensor!r} {count} indices; takes up to {len(PLACES)}")


def _check_function(caller, found: ScoreFunction) -> None:
    """That a function without tensors is elementwise: all scores at once have what each has alone."""
    scores = torch.linspace(-2.9, 3.1, 2 * 2 * 3 * 5, dtype=torch.float64).view(2, 2, 3, 5)
    before = () if found.derivative is None else (scores,)
    try:
        whole = found(*before, *_places(scores), like=scores, operands=())
        for place in ((0, 0, 0, 0), (1, 0, 2, 1), (1, 1, 1, 4), (0, 1, 2, 3)):
            alone = found.function(*(x[place] for x in before), *map(torch.tensor, place))
            if not torch.allclose(whole[place].double(), alone.double(), equal_nan=True):
                raise ValueError
    except Exception as error:
        text = f"{caller}: function of {found.name!r} is not elementwise; takes a function of places that broadcast"
        raise ValueError(text) from error


def apply_(scores: Tensor, is_mask: bool, code: int, first: int, first_head: int, first_batch: int, *given) -> None:
    """One of the functions, or a block mask, on scores ``[batch, heads, rows, keys]`` from a batch's query on, in place."""
    *operands, states, block_q, block_k = given
    if scores is None or scores.layout != torch.strided or scores.dim() != 4 or not scores.is_floating_point():
        raise ValueError("scores are something else; takes strided floats, [batch, heads, rows, keys]")
    if code != 0 and (is_mask, code) not in _by_code:
        raise ValueError(f"code is {code}; takes 0 (none) or the code of a registered function")
    if states is not None and min(block_q, block_k) < 1:
        raise ValueError(f"block_mask has blocks of [{block_q}, {block_k}]; takes sizes of 1 or more")
    codes, places = (0, code) if is_mask else (code, 0), _places(scores, first, first_head, first_batch)
    functions = Functions(*codes, tuple(operands), blocks_given(states, block_q, block_k), first, places=places)
    try:
        scores.copy_(functions.masked(scores) if is_mask else functions.changed(scores))
    except Exception as error:
        before, own, text = str(error).partition("wmma.attention: ")
        if own and not before and type(error) in (TypeError, ValueError):  # of __call__
            raise type(error)(text) from None
        what = by_code(is_mask, code) if code else "block_mask"
        text = f"{what} raised {type(error).__name__}, {error}; takes a function of tensors"
        raise FunctionError(text) from error
