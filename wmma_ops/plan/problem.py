"""What the library asks the planner: a product, two, or attention, as the numbers that decide their kernel; and what is
answered of the kernels' arguments.

The fields are those of csrc/launch/border.hpp, in its order (runtime/border.py holds one against the other).
"""

import dataclasses
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch

from wmma_ops.ops import activations, score_functions
from wmma_ops.ops.types import ELEMENTS, bytes_of, elements_in
from wmma_ops.ops.types import name as type_name


@dataclass(frozen=True)
class GemmProblem:
    """One product.

    A type is None where the operand is absent. `a_order` is "k" where A's memory runs along K (row-major), "m" where it
    runs along M; `b_order` is "k" or "n". A `vec` is how many elements, from any element that is a multiple of as many,
    are aligned neighbours in memory (up to 16 bytes); 1 promises nothing, not even neighbours.
    """

    device: int  # a GPU's index; −1 − i for the i-th target of arch.TARGETS under emulation
    a: torch.dtype
    b: torch.dtype
    c: torch.dtype | None
    d: torch.dtype
    bias: torch.dtype | None
    row_scale: torch.dtype | None
    col_scale: torch.dtype | None
    a_scale: torch.dtype | None
    multiply: torch.dtype | None
    a_order: str
    b_order: str
    a_vec: int
    b_vec: int
    c_vec: int  # along N, as those below
    d_vec: int
    multiply_vec: int
    wide: bool  # 512 neighbouring rows or columns of A, or of B, span 2 GiB or more
    a_activation: int
    activation: int
    batch_dims: int  # 0 for a single product
    batch: int
    m: int
    n: int
    k: int
    precision: int  # of float32 products: 0 highest, 1 high, 2 medium
    # The second pair of operands, of A's and B's types; with a k2 of 0 there is none.
    k2: int = 0
    a2_order: str = "k"
    b2_order: str = "k"
    a2_vec: int = 1
    b2_vec: int = 1
    aux: bool = False  # what the activation is given is kept, as D; where there is a gate, what that gives, too
    gate: bool = False  # a second matrix like B: D is act(A·B + bias) · (A·gate + gate_bias)
    gate_order: str = "k"
    gate_bias: torch.dtype | None = None
    slopes: bool = False  # A·B is the gradient by act(C)·multiply: D is that by C, aux the one by multiply
    row_sums: torch.dtype | None = None  # of A's rows, which a kernel may give beside the product
    invariant: bool = False  # a row's bits do not depend on how many there are, nor on the batch

    @classmethod
    def from_library(cls, values: list[int]) -> "GemmProblem":
        """The problem that the library sent as one number a field."""
        orders = {"a_order": "km", "b_order": "kn", "a2_order": "km", "b2_order": "kn", "gate_order": "kn"}
        return _read(cls, values, orders)

    @functools.cached_property
    def pairs(self) -> "tuple[GemmProblem, ...]":
        """The problem by each of its pairs of operands alone: itself, where it has one."""
        if not self.k2:
            return (self,)
        first = dataclasses.replace(self, k2=0, a2_order="k", b2_order="k", a2_vec=1, b2_vec=1)
        second = dataclasses.replace(
            first, a_scale=None, a_activation=0, k=self.k2,
            a_order=self.a2_order, b_order=self.b2_order, a_vec=self.a2_vec, b_vec=self.b2_vec,
        )  # fmt: skip
        return first, second

    @functools.cached_property
    def columns(self) -> int:
        """That A is multiplied by: the result's, of B and of the gate."""
        return self.n * (2 if self.gate else 1)

    @functools.cached_property
    def products(self) -> "tuple[GemmProblem, GemmProblem]":
        """A gated one as two: of the gate, and of B, which is multiplied by it."""
        none = {"gate": False, "gate_order": "k", "gate_bias": None}
        wide = self.d if self.aux or self.a == torch.float64 else torch.float32
        vec = self.d_vec if wide == self.d else min(self.d_vec, 4)
        gate = dataclasses.replace(
            self, b_order=self.gate_order, bias=self.gate_bias, d=wide, d_vec=vec, activation=0, aux=False, **none
        )
        return gate, dataclasses.replace(self, multiply=wide, multiply_vec=vec, **none)

    @functools.cached_property
    def beside_bytes(self) -> int:
        """What is read for each element of the result."""
        return sum(bytes_of(dtype) for dtype in (self.c, self.multiply) if dtype is not None)

    @functools.cached_property
    def stored_bytes(self) -> int:
        """What is written for each element of the result."""
        return bytes_of(self.d) * (1 + (1 + self.gate if self.aux else 0))

    def summary(self) -> Iterator[tuple[str, str]]:
        """Labels and texts that describe it to a reader."""
        batch = f"{self.batch} × " if self.batch_dims else ""
        operands = type_name(self.a) if self.a == self.b else f"{type_name(self.a)}·{type_name(self.b)}"
        yield "product", f"{batch}{self.m} × {self.n} × {self.k} (M × N × K), {operands} → {type_name(self.d)}"
        yield (
            "layout",
            f"A along {self.a_order} by {self.a_vec}, B along {self.b_order} by {self.b_vec}, D along n by {self.d_vec}",
        )
        if self.gate:
            yield "gate", f"along {self.gate_order} by {self.b_vec}"
        if self.k2:
            yield (
                "second",
                f"K {self.k2}, A2 along {self.a2_order} by {self.a2_vec}, B2 along {self.b2_order} by {self.b2_vec}",
            )
        extras = [
            f"{name} {type_name(getattr(self, name))}"
            for name in ("c", "bias", "row_scale", "col_scale", "a_scale", "multiply", "gate_bias")
            if getattr(self, name) is not None
        ]
        for name in ("a_activation", "activation"):
            if getattr(self, name):
                extras.append(f"{name} {activations.by_code(getattr(self, name)).name}")
        if self.slopes:
            extras.append("slopes")
        if self.row_sums is not None:
            extras.append(f"sums of A's rows {type_name(self.row_sums)}")
        if self.aux:
            extras.append(f"aux {type_name(self.d)}")
        if self.invariant:
            extras.append("batch-invariant")
        if extras:
            yield "with", ", ".join(extras)


@dataclass(frozen=True)
class GemmGemmProblem:
    """Two products. As GemmProblem; an order is "h" where the memory of B0 or of the gate runs along H, or that of B1."""

    device: int
    a: torch.dtype  # of B0, the gate and B1 too
    c: torch.dtype | None
    d: torch.dtype
    bias0: torch.dtype | None
    bias1: torch.dtype | None
    gate: bool
    a_order: str
    b0_order: str
    gate_order: str
    b1_order: str
    a_vec: int
    b0_vec: int
    gate_vec: int
    b1_vec: int
    c_vec: int  # along N, as the next
    d_vec: int
    wide: bool
    activation: int
    batch_dims: int
    batch: int
    m: int
    n: int
    k: int
    h: int

    @classmethod
    def from_library(cls, values: list[int]) -> "GemmGemmProblem":
        """The problem that the library sent as one number a field."""
        orders = {"a_order": "km", "b0_order": "kh", "gate_order": "kh", "b1_order": "hn"}
        return _read(cls, values, orders)

    def summary(self) -> Iterator[tuple[str, str]]:
        """Labels and texts that describe it to a reader."""
        batch = f"{self.batch} × " if self.batch_dims else ""
        sizes = f"{batch}{self.m} × {self.k} × {self.h} × {self.n} (M × K × H × N)"
        yield "products", f"{sizes}, {type_name(self.a)} → {type_name(self.d)}"
        yield (
            "layout",
            f"A along {self.a_order} by {self.a_vec}, B0 along {self.b0_order} by {self.b0_vec}, "
            f"B1 along {self.b1_order} by {self.b1_vec}, D along n by {self.d_vec}",
        )
        extras = [
            f"{name} {type_name(x)}" for name in ("c", "bias0", "bias1") if (x := getattr(self, name)) is not None
        ]
        if self.activation:
            extras.append(f"activation {activations.by_code(self.activation).name}")
        if self.gate:
            extras.append(f"gate along {self.gate_order} by {self.gate_vec}")
        if extras:
            yield "with", ", ".join(extras)

    def gated_products(self) -> tuple[GemmProblem, ...]:
        """The same where the gate and what it multiplies are one product."""
        gate, first, last = self.products()
        both = dataclasses.replace(
            first, multiply=None, multiply_vec=1, b_vec=min(first.b_vec, gate.b_vec), gate=True, gate_order=gate.b_order
        )
        return both, last

    def products(self) -> tuple[GemmProblem, ...]:
        """The products that compute the same one after the other: of the gate, if there is one, the first, the last."""
        wide = torch.float64 if self.a == torch.float64 else torch.float32
        vec = elements_in(self.a, 16) if bytes_of(self.a, self.h) % 16 == 0 else 1
        first = GemmProblem(
            device=self.device, a=self.a, b=self.a, c=None, d=self.a, bias=self.bias0,
            row_scale=None, col_scale=None, a_scale=None, multiply=wide if self.gate else None,
            a_order=self.a_order, b_order="n" if self.b0_order == "h" else "k",
            a_vec=self.a_vec, b_vec=self.b0_vec, c_vec=1, d_vec=vec, multiply_vec=min(vec, 4),
            wide=self.wide, a_activation=0, activation=self.activation,
            batch_dims=self.batch_dims, batch=self.batch, m=self.m, n=self.h, k=self.k, precision=0,
        )  # fmt: skip
        last = dataclasses.replace(
            first, c=self.c, d=self.d, bias=self.bias1, multiply=None, a_order="k",
            b_order="n" if self.b1_order == "n" else "k", a_vec=vec, b_vec=self.b1_vec, c_vec=self.c_vec,
            d_vec=self.d_vec, multiply_vec=1, activation=0, n=self.n, k=self.h,
        )  # fmt: skip
        if not self.gate:
            return first, last
        gate = dataclasses.replace(
            first, d=wide, bias=None, multiply=None, d_vec=min(vec, 4), multiply_vec=1, activation=0,
            b_order="n" if self.gate_order == "h" else "k", b_vec=self.gate_vec,
        )  # fmt: skip
        return gate, first, last


@dataclass(frozen=True)
class AttentionProblem:
    """One attention.

    An `order` is "e" where memory runs along the head size, "s" where it runs along the sequence; a `vec` as in
    GemmProblem.
    """

    device: int
    backward: bool
    dtype: torch.dtype
    stored: torch.dtype  # keys and values in memory: of 8 bits in some pages, or as queries are
    e: int
    ev: int
    q_order: str
    q_vec: int
    k_order: str
    k_vec: int
    v_order: str
    v_vec: int
    out_vec: int
    g_order: str
    g_vec: int
    wide: bool  # 512 neighbouring rows of a tensor span 2 GiB or more
    batch: int
    heads: int
    group: int  # query heads that share a key head
    sq: int
    skv: int
    seen: int  # keys by a query at most
    sequences: bool = False  # packed ones in place of a batch, of up to sq queries and skv keys
    page_size: int = 0  # of keys, that lie together; 0: all of a sequence do
    unordered: bool = False  # gradients: sums may be in any order, so that their last bits differ from run to run
    invariant: bool = False  # a row's bits do not depend on the others
    # The facets of csrc/calls/attention_options.hpp.
    mask: torch.dtype | None = None
    key_mask: bool = False  # it is bool, and says the same to all queries and to all heads that share keys
    mask_queries: bool = False  # it is bool, and does not
    mask_batches: bool = False  # it is bool, and differs from one of the batch to another
    mask_heads: bool = False  # and from one head to another
    mask_vec: int = 1  # it is of numbers of 16 bits, so many neighbours of which can be read at once
    sinks: torch.dtype | None = None
    slopes: torch.dtype | None = None
    capped: bool = False  # scores by a soft cap
    large_cap: bool = False  # the soft cap is above kQuickCaps (kernels/wmma/attention/arguments.hpp)
    causal: bool = False  # a query sees keys up to a place of its own
    windowed: bool = False  # it sees them from a place of its own on
    drops: bool = False  # weights, some of them
    score_mod: int = 0  # functions of users' own, by their codes; 0: none
    mask_mod: int = 0
    mod_a: int = 0  # the small tensors that both read, each's form as one number (see mods); 0: there is none
    mod_b: int = 0
    mod_c: int = 0
    mod_d: int = 0
    block_q: int = 0  # queries and keys of a block of a block mask; 0: there is none
    block_k: int = 0

    @classmethod
    def from_library(cls, values: list[int]) -> "AttentionProblem":
        """The problem that the library sent as one number a field."""
        orders = dict.fromkeys(("q_order", "k_order", "v_order", "g_order"), "es")
        return _read(cls, values, orders)

    @property
    def in_eights(self) -> bool:
        """Whether a gradient's operands all lie along the head size, where eight elements are read at once."""
        orders = {self.q_order, self.k_order, self.v_order, self.g_order}
        return orders == {"e"} and {self.q_vec, self.k_vec, self.v_vec, self.g_vec} == {8}

    @property
    def is_narrow(self) -> bool:
        """Whether keys and values are of 8 bits: in pages beside queries of 16, else with queries as they are."""
        return self.stored != self.dtype

    @property
    def is_scaled(self) -> bool:
        """Whether queries, keys and values are all of 8 bits, and have scales; results are of 16."""
        return self.is_narrow and self.page_size == 0

    @property
    def terms(self) -> frozenset[str]:
        """What bears on scores, and what rows are other than dense: loops declare which of these they support."""
        there = {
            "causal": self.causal,
            "window": self.windowed,
            "cap": self.capped,
            "sinks": self.sinks is not None,
            "slopes": self.slopes is not None,
            "mask": self.mask is not None,
            "functions": self.modified,
            "dropout": self.drops,
            "blocks": self.block_q > 0,
            "packed": self.sequences,
            "pages": self.page_size > 0,
        }
        return frozenset(name for name, is_there in there.items() if is_there)

    @property
    def scored(self) -> bool:
        """Whether scores are more than products, before a mask."""
        return self.capped or self.slopes is not None or self.modified

    @property
    def modified(self) -> bool:
        """Whether functions of users' own look at every score."""
        return self.score_mod != 0 or self.mask_mod != 0

    @property
    def corrects(self) -> bool:
        """Whether scores may be numbers of any size, so that gradients correct weights."""
        return self.mask not in (None, torch.bool) or self.score_mod != 0

    @property
    def mods(self) -> tuple[tuple[torch.dtype, int, bool] | None, ...]:
        """The type and the dimensions of each of the small tensors, and whether 32 bits do not count its elements."""
        forms = (divmod(form, 16) for form in (self.mod_a, self.mod_b, self.mod_c, self.mod_d))
        return tuple((ELEMENTS[code - 1].dtype, form % 8, form >= 8) if code else None for code, form in forms)

    def summary(self) -> Iterator[tuple[str, str]]:
        """Labels and texts that describe it to a reader."""
        heads = f"{self.heads} heads" + (f" in groups of {self.group}" if self.group > 1 else "")
        yield (
            "product",
            f"{self.batch} {'sequences ' if self.sequences else ''}× {heads}, {'up to ' if self.sequences else ''}"
            f"{self.sq} queries × {self.skv} keys, head size {self.e}"
            + (f" and {self.ev}" if self.ev != self.e else "")
            + f", {type_name(self.dtype)}",
        )
        yield (
            "layout",
            f"Q along {self.q_order} by {self.q_vec}, K along {self.k_order} by {self.k_vec}, "
            f"V along {self.v_order} by {self.v_vec}",
        )
        extras = [text for text, there in (("causal", self.causal), ("backward", self.backward)) if there]
        if self.windowed:
            extras.append(f"a window of {self.seen} keys")
        if self.page_size:
            extras.append(f"pages of {self.page_size} keys" + (f", {type_name(self.stored)}" if self.is_narrow else ""))
        if self.is_scaled:
            extras.append(f"queries, keys and values of {type_name(self.stored)}")
        if self.capped:
            extras.append("a large soft cap" if self.large_cap else "a soft cap")
        if self.drops:
            extras.append("dropout")
        for label, dtype in (("sinks", self.sinks), ("slopes", self.slopes), ("mask", self.mask)):
            if dtype is not None:
                extras.append(f"{label} {type_name(dtype)}")
        if self.block_q:
            extras.append(f"a mask of blocks of {self.block_q} queries × {self.block_k} keys")
        for code, is_mask in ((self.score_mod, False), (self.mask_mod, True)):
            if code:
                name = score_functions.by_code(is_mask, code).name
                extras.append(f"the {'mask' if is_mask else 'score'} function {name}")
        if extras:
            yield "with", ", ".join(extras)


@dataclass(frozen=True)
class KvAppendProblem:
    """New keys and values into pages."""

    device: int
    dtype: torch.dtype
    stored: torch.dtype  # in the pages
    angle: torch.dtype | None  # of cos and sin
    vec: int  # elements of a row that are aligned neighbours, in all tensors
    e: int
    ev: int
    heads: int
    page_size: int
    angles: int  # by which pairs of a key's elements are rotated
    interleaved: bool
    tokens: int  # at most

    @classmethod
    def from_library(cls, values: list[int]) -> "KvAppendProblem":
        """The problem that the library sent as one number a field."""
        return _read(cls, values, {})

    def summary(self) -> Iterator[tuple[str, str]]:
        """Labels and texts that describe it to a reader."""
        sizes = f"head size {self.e}" + (f" and {self.ev}" if self.ev != self.e else "")
        yield "append", f"up to {self.tokens} tokens of {self.heads} heads, {sizes}, {type_name(self.dtype)}"
        stored = f", {type_name(self.stored)}" if self.stored != self.dtype else ""
        yield "layout", f"by {self.vec}, into pages of {self.page_size} keys{stored}"
        if self.angle is not None:
            pairs = "neighbours" if self.interleaved else "halves"
            yield "with", f"{self.angles} angles of {pairs}, {type_name(self.angle)}"


@dataclass(frozen=True)
class ActivationGradientProblem:
    """The gradient of what an activation was given, and the sums of its columns."""

    device: int
    dtype: torch.dtype
    sums: torch.dtype | None
    activation: int
    gates: bool  # there is another factor, which has a gradient too
    aligns: bool  # rows of the results may start aligned, for the products that read them
    vec: int
    columns: int
    rows: int  # the next power of two

    @property
    def accumulator(self) -> torch.dtype:
        return torch.float64 if self.dtype == torch.float64 else torch.float32

    @classmethod
    def from_library(cls, values: list[int]) -> "ActivationGradientProblem":
        """The problem that the library sent as one number a field."""
        return _read(cls, values, {})

    def summary(self) -> Iterator[tuple[str, str]]:
        """Labels and texts that describe it to a reader."""
        yield "gradient", f"up to {self.rows} × {self.columns}, {type_name(self.dtype)}, by {self.vec}"
        if self.activation:
            yield "with", activations.by_code(self.activation).name
        if self.gates:
            yield "gate", "both factors' gradients"
        if self.sums is not None:
            yield "sums", f"of columns, {type_name(self.sums)}"


class GemmNumbers(NamedTuple):
    """Of one product's kernel."""

    splits: int  # of K
    k_split: int  # of K, that one of them sums up
    tiles_m: int
    tiles_n: int
    whole: int  # tiles, that are one block's each
    split_stride: int  # sums of a split
    lines_a: int  # that a copy engine brings, as the next; less than 0 where they run across K; 0: none does
    lines_b: int
    lines_d: int  # that it takes away from a wave
    aligned: int = 0  # operands of which an aligned copy is made first: 1 A, 2 B, 3 both
    sum_slabs: int = 0  # parts that A's rows are summed up in; 0: they are not
    sums_at: int = 0  # bytes of the workspace before them


class GemmGemmNumbers(NamedTuple):
    """Of the kernel of two products."""

    blocks: int
    lines_a: int  # as in GemmNumbers
    lines_b0: int
    lines_b1: int
    lines_d: int


class AttentionNumbers(NamedTuple):
    """Of attention's kernels; gradients have the last."""

    splits: int = 0  # of the keys
    keys_of_split: int = 0
    tiles: int = 0  # of rows
    slices: int = 0  # of V's columns
    queries: int = 0  # that a copy engine brings a warpgroup, of so many heads that share keys
    packed: int = 0
    lines_k: int = 0  # of K and of V, that it brings a block at a time; 0: none does
    lines_out: int = 0  # that it takes away from a wave
    head_group: int = 0  # heads that persistent blocks go through before others
    whole: int = 0  # tiles of rows that persistent blocks go through before those whose keys are split
    team: int = 0  # gradients: blocks that share a head's keys
    passes: int = 0  # in which each of them has some
    block_q: int = (
        0  # of a block mask that the plan's first kernel finds, at a place in the workspace; 0: there is none
    )
    block_k: int = 0
    blocks_at: int = 0
    blocks_of_batches: int = 0  # whether each has its own
    blocks_of_heads: int = 0
    transposed: int = (
        0  # keys of a line of the values that the plan's first kernel transposes, at a place in the workspace
    )
    transposed_at: int = 0
    lines_v: int = 0  # of those, that a copy engine brings a block at a time
    words_at: int = 0  # of a bool mask, at a place in the workspace, that a kernel of the plan makes
    words_rows: int = 0  # of them for each 128 columns; 0: there are none
    words_tiles: int = 0  # so many such columns
    query_slices: int = 0  # gradients: parts of the queries that have the same keys
    unlisted: int = 0  # sequences that persistent blocks begin with, before there is a list of the others


class KvAppendNumbers(NamedTuple):
    """Of the kernel that appends to pages."""

    blocks: int


class ActivationGradientNumbers(NamedTuple):
    """Of the kernels of an activation's gradient."""

    slabs: int  # of rows, each with sums of its own
    aligns: bool  # rows of the result start aligned


def _read(cls, values: list[int], orders: dict[str, str]):
    """A problem from one number a field, with letters for orders."""
    fields = dataclasses.fields(cls)
    assert len(values) == len(fields), f"{len(values)} numbers for {len(fields)} fields"
    found = dict(zip((field.name for field in fields), values, strict=True))
    for name, letters in orders.items():
        found[name] = letters[found[name]]
    for field in fields:
        if field.type is bool:
            found[field.name] = bool(found[field.name])
        elif field.type in (torch.dtype, torch.dtype | None):
            found[field.name] = None if found[field.name] < 0 else ELEMENTS[found[field.name]].dtype
    return cls(**found)
