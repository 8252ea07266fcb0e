"""Which lane holds which element of A (M×K), B (K×N), C and D (M×N) in a matrix instruction.

    layout("gfx1201", "A").element(17, 3)      # (row, column) of lane 17's element 3
    layout("gfx1201", "A").owners(1, 11)       # every (lane, element) that holds row 1, column 11

Numbers may be whole numbers, which are checked, NumPy arrays of them, which are checked too and give arrays, or symbols
(sympy's, torch.SymInt, a compiler's own: anything with + * // and %), which give expressions.

Where a dense product allows any order of K, as long as A and B agree, lanes hold runs of K: see _k_runs.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import NamedTuple

from wmma_ops.hardware import arch
from wmma_ops.hardware.digits import Digits, Index, indices, shaped

OPERANDS = ("A", "B", "C", "D")

Place = tuple[int, int, int]  # block, row, column


@dataclass(frozen=True)
class Layout:
    """Which lane holds which element of an operand; made by `layout`.

    Args:
        target, operand, transposed: what it is the layout of.
        instruction: the row of the table of instructions.
        shape: rows and columns of one block.
        lanes, elements: how many lanes, and how many elements in each.
        replication: how many lanes hold each element.
        blocks: how many products the instruction makes side by side.
        bits: of one element.
        step: the places of `bits` in the registers from one element to the next.
        places: block, row and column by lane and element.

    Examples:
        >>> import numpy, wmma_ops.layouts as layouts
        >>> found = layouts.layout("gfx942", "D")
        >>> row, column = found.element(numpy.arange(64)[:, None], numpy.arange(4))  # of every lane's every element
        >>> row.shape, row[63], column[63]
        ((64, 4), array([12, 13, 14, 15]), array([15, 15, 15, 15]))
        >>> found.owner(13, 15)
        (63, 1)
        >>> found.register(1)  # and its lowest bit
        (1, 0)
    """

    target: str
    operand: str
    instruction: arch.MatrixInstruction
    transposed: bool  # row and column swapped: the operand as stored transposed
    shape: tuple[int, int]  # rows and columns of one block
    lanes: int
    elements: int  # per lane
    replication: int  # how many lanes hold each element
    blocks: int
    bits: int  # of one element
    step: int  # places of `bits` in the registers from one element to the next
    places: tuple[tuple[Place, ...], ...] = field(repr=False)  # [lane][element]

    def __post_init__(self):
        rows, columns = self.shape
        wanted = {(b, r, c) for b in range(self.blocks) for r in range(rows) for c in range(columns)}
        held: dict[Place, int] = dict.fromkeys(wanted, 0)
        for lane in self.places:
            for place in lane:
                held[place] = held.get(place, 0) + 1
        size = len(self.places), {len(lane) for lane in self.places}
        if (
            size != (self.lanes, {self.elements})
            or any(held[p] != self.replication for p in held)
            or set(held) != wanted
        ):
            raise ValueError(f"{self.target} {self.operand}: some element is not held by {self.replication} lanes")

    def block(self, lane: Index, e: Index) -> Index:
        """The block that lane `lane`'s element `e` belongs to."""
        return self._place(lane, e)[0]

    def element(self, lane: Index, e: Index) -> tuple[Index, Index]:
        """Row and column, within its block, of lane `lane`'s element `e`."""
        return self._place(lane, e)[1:]

    def owner(self, row: Index, column: Index, copy: Index = 0, block: Index = 0) -> tuple[Index, Index]:
        """The (lane, e) of one copy of this element: copy 0 is the one in the lowest lane."""
        rows, columns = self.shape
        found, shape = indices(
            row=(row, rows), column=(column, columns), copy=(copy, self.replication), block=(block, self.blocks)
        )
        row, column, copy, block = found
        lane, e = shaped(self._digits.owner(block, row, column, copy), shape)
        return lane, e

    def owners(self, row: Index, column: Index, block: Index = 0) -> tuple[tuple[Index, Index], ...]:
        """Every (lane, e) that holds this element, the lowest lane first."""
        return tuple(self.owner(row, column, copy, block) for copy in range(self.replication))

    def register(self, e: Index) -> tuple[Index, Index]:
        """The register, counted from the operand's first, and its lowest bit where element `e` begins."""
        (e,), shape = indices(element=(e, self.elements))
        bit = e * (self.step * self.bits)
        register, low = shaped((bit // 32, bit % 32), shape)
        return register, low

    def _place(self, lane: Index, e: Index) -> tuple[Index, Index, Index]:
        (lane, e), shape = indices(lane=(lane, self.lanes), element=(e, self.elements))
        block, row, column = shaped(self._digits.place(lane, e), shape)
        return block, row, column

    @cached_property
    def _digits(self) -> Digits:
        return Digits.of(self.places, (self.blocks, *self.shape))


# --- The formulas: (instruction, lane, e) -> (block, row of the M or N side, k) for A and B, (block, m, n) for D.


def _cdna_input(i: arch.MatrixInstruction, side: int, elements: int, lane: int, e: int) -> Place:
    """Lanes count along M, then blocks, then runs of K. 16x16x16: row l%16, k 4*(l//16)+e."""
    group = lane // side
    return group % i.blocks, lane % side, group // i.blocks * elements + e


def _cdna_output(i: arch.MatrixInstruction, elements: int, lane: int, e: int) -> Place:
    """Column l%N, rows in runs of 4. 16x16: row 4*(l//16)+e. 32x32: row 8*(e//4)+4*(l//32)+e%4.

    float64 has runs of 1: 16x16x4 holds row 4*e + l//16.
    """
    run = 1 if i.d == "float64" else 4
    # 4x4 forms lay their blocks along the lanes, the others along the elements.
    beside = i.blocks if i.n == 4 else 1
    group = lane // i.n
    groups = i.wave // (i.n * beside)
    chunk = e // run * groups + group // beside
    later, chunk = divmod(chunk, i.m // run)
    return later * beside + group % beside, run * chunk + e % run, lane % i.n


def _rdna3_input(i, side, elements, lane, e) -> Place:
    """Row l%16, k = e: lanes 16 to 31 hold a second copy."""
    return 0, lane % 16, e


def _rdna3_output(i, elements, lane, e) -> Place:
    """Column l%16, rows dealt to the half-waves in turn: 2*e + l//16."""
    return 0, 2 * e + lane // 16, lane % 16


def _k_runs(i, side, elements, lane, e) -> Place:
    """Row l%16, and of K the half that is the lane's: 8*(l//16)+e for K = 16.

    A dense product is right in any order of K that A and B share. This is the order of AMD's guide, in which a lane's
    elements are contiguous in memory, one load; AMD's calculator prints another, in which 16-bit types interleave the
    half-waves in runs of 4. Sparse products and block scales would need the hardware's own order.
    """
    return 0, lane % side, lane // side * elements + e


def _rdna4_output(i, elements, lane, e) -> Place:
    """Column l%16, row 8*(l//16)+e."""
    return 0, 8 * (lane // 16) + e, lane % 16


def _sm80_input(i, side, elements, lane, e, pairs) -> Place:
    """PTX ISA, "Matrix Fragments for mma": group l//4 gives the row, lane l%4 of it a run of K that fills a register.

    A's registers alternate between rows g and g+8, B's go along K.
    """
    group, lane = divmod(lane, 4)
    run = max(32 // arch.BITS[i.a], 1)
    register, within = divmod(e, run)
    register, upper = divmod(register, pairs)
    return 0, group + 8 * upper, run * (4 * register + lane) + within


def _sm80_output(i, elements, lane, e) -> Place:
    """Row l//4, and 8 more from element 2 on; columns 2*(l%4) and the next."""
    return 0, lane // 4 + 8 * (e // 2), 2 * (lane % 4) + e % 2


def _sm80_a(i, side, elements, lane, e) -> Place:
    return _sm80_input(i, side, elements, lane, e, i.m // 8)


def _sm80_b(i, side, elements, lane, e) -> Place:
    return _sm80_input(i, side, elements, lane, e, 1)


# family -> the formulas of A, of B with its sides named as A's, and of C and D.
_FORMULAS = {
    "cdna": (_cdna_input, _cdna_input, _cdna_output),
    "rdna3": (_rdna3_input, _rdna3_input, _rdna3_output),
    "rdna4": (_k_runs, _k_runs, _rdna4_output),
    "gfx1250": (_k_runs, _k_runs, _rdna4_output),
    "sm80": (_sm80_a, _sm80_b, _sm80_output),
    "sm90": (_sm80_a, _sm80_b, _sm80_output),
}


def layout(target: str | int, operand: str, instruction: str | None = None, transposed: bool = False) -> Layout:
    """The layout of an operand in a matrix instruction.

    Args:
        target: the name of a target, a card, or a generation, within which layouts are alike: ``"gfx1201"``;
            ``"RX 9070 XT"``; ``"rdna4"``, ``"gfx12"`` or ``12``; ``"rdna3"``, ``"gfx11"`` or ``11``; ``"cdna1"`` to
            ``"cdna4"``.
        operand: ``"A"`` (M×K), ``"B"`` (K×N), ``"C"`` or ``"D"`` (M×N).
        instruction: a mnemonic or a builtin of clang; by default the target's float16 product.
        transposed: whether row and column change places, as they do where the operand is stored transposed.

    Examples:
        >>> from wmma_ops.layouts import layout
        >>> found = layout("gfx1201", "A")
        >>> found.shape, found.lanes, found.elements
        ((16, 16), 32, 8)
        >>> found.element(17, 3)  # row and column of lane 17's element 3
        (1, 11)
        >>> layout("rdna3", "B").owners(2, 5)  # gfx11 holds each element of A and B in two lanes
        ((5, 2), (21, 2))
    """
    if operand not in OPERANDS:
        raise ValueError(f"no operand {operand!r}; the operands are {', '.join(OPERANDS)}")
    found = arch.target(target)
    return _layout(found, operand, found.instruction(instruction), bool(transposed))


@cache
def _layout(target: arch.Target, operand: str, i: arch.MatrixInstruction, transposed: bool) -> Layout:
    elements = i.elements(operand)
    a, b, d = _FORMULAS[target.family]

    def place(lane: int, e: int) -> Place:
        if operand == "A":
            block, row, column = a(i, i.m, elements, lane, e)
        elif operand == "B":
            block, column, row = b(i, i.n, elements, lane, e)
        else:
            block, row, column = d(i, elements, lane, e)
        return (block, column, row) if transposed else (block, row, column)

    shape = i.shape(operand)
    bits = arch.BITS[i.type(operand)]
    return Layout(
        target=target.name,
        operand=operand,
        instruction=i,
        transposed=transposed,
        shape=shape[::-1] if transposed else shape,
        lanes=i.wave,
        elements=elements,
        replication=2 if i.replicated and operand in "AB" else 1,
        blocks=i.blocks,
        bits=bits,
        # gfx11 writes 16-bit results into the low half of a register each, and leaves the other half.
        step=2 if target.family == "rdna3" and operand in "CD" and bits == 16 else 1,
        places=tuple(tuple(place(lane, e) for e in range(elements)) for lane in range(i.wave)),
    )


# --- The same maps as plain functions.


def forward(
    target: str | int, operand: str, row: Index, column: Index, transposed: bool = False, instruction: str | None = None
) -> tuple[Index, Index]:
    """The (lane, e) that holds an element, its first copy, in block 0.

    Args:
        target, operand, transposed, instruction: as `layout` takes them.
        row, column: of the element.

    Examples:
        >>> import sympy, wmma_ops.layouts as layouts
        >>> layouts.forward("gfx12", "A", 1, 11)
        (17, 3)
        >>> layouts.forward(12, "A", *sympy.symbols("i j"))
        (i + 16*floor(j/8), Mod(j, 8))
    """
    return fragment_forward(target, operand, row, column, 0, transposed, instruction)


def reverse(
    target: str | int, operand: str, lane: Index, e: Index, transposed: bool = False, instruction: str | None = None
) -> tuple[Index, Index]:
    """The (row, column) of a lane's element.

    Args:
        target, operand, transposed, instruction: as `layout` takes them.
        lane, e: the lane, and the element's number there.

    Examples:
        >>> import numpy, wmma_ops.layouts as layouts
        >>> layouts.reverse("rdna4", "D", numpy.arange(30, 32), 1)
        (array([9, 9]), array([14, 15]))
    """
    return layout(target, operand, instruction, transposed).element(lane, e)


def fragment_forward(
    target: str | int,
    operand: str,
    row: Index,
    column: Index,
    rep: Index,
    transposed: bool = False,
    instruction: str | None = None,
) -> tuple[Index, Index]:
    """The (lane, e) that holds one copy of an element: on gfx11 copy 0 of A and B is in lanes 0 to 15, copy 1 in 16 to 31.

    Args:
        target, operand, transposed, instruction: as `layout` takes them.
        row, column: of the element.
        rep: which copy, below `replication`.

    Examples:
        >>> import wmma_ops.layouts as layouts
        >>> layouts.fragment_forward(11, "A", 2, 5, rep=1)
        (18, 5)
    """
    return layout(target, operand, instruction, transposed).owner(row, column, rep)


def store_map(target: str | int, instruction: str | None = None) -> Callable[[Index, Index], tuple[Index, Index]]:
    """The function (lane, e) -> (row, column) of D by which a kernel stores its result.

    Args:
        target, instruction: as `layout` takes them.

    Examples:
        >>> import wmma_ops.layouts as layouts
        >>> layouts.store_map("gfx11")(18, 3)
        (7, 2)
    """
    return layout(target, "D", instruction).element


def replication(target: str | int, operand: str = "A", instruction: str | None = None) -> int:
    """How many lanes hold each element: 2 for A and B on gfx11, 1 otherwise.

    Args:
        target, operand, instruction: as `layout` takes them.

    Examples:
        >>> import wmma_ops.layouts as layouts
        >>> layouts.replication("rdna3"), layouts.replication("rdna4")
        (2, 1)
    """
    return layout(target, operand, instruction).replication


class Functions(NamedTuple):
    """What `functions` gives: the maps of one operand, as plain functions of numbers, arrays or symbols.

    Args:
        forward: (row, column) -> (lane, e)
        reverse: (lane, e) -> (row, column)
        fragment_forward: (row, column, rep) -> (lane, e)
        store_map: (lane, e) -> (row, column) of D
        replication: how many lanes hold each element

    Examples:
        >>> import wmma_ops.layouts as layouts
        >>> layouts.functions("cdna3", "D")._fields
        ('forward', 'reverse', 'fragment_forward', 'store_map', 'replication')
    """

    forward: Callable[[Index, Index], tuple[Index, Index]]
    reverse: Callable[[Index, Index], tuple[Index, Index]]
    fragment_forward: Callable[[Index, Index, Index], tuple[Index, Index]]
    store_map: Callable[[Index, Index], tuple[Index, Index]]
    replication: int


def functions(target: str | int, operand: str, transposed: bool = False, instruction: str | None = None) -> Functions:
    """All maps of an operand, to hand to a code generator.

    Args:
        target, operand, transposed, instruction: as `layout` takes them.

    Examples:
        >>> import wmma_ops.layouts as layouts
        >>> forward, reverse, *_ = layouts.functions(11, "B", transposed=True)
        >>> forward(2, 5), reverse(18, 5)
        ((2, 5), (2, 5))
    """
    found = layout(target, operand, instruction, transposed)
    return Functions(found.owner, found.element, found.owner, store_map(target, instruction), found.replication)
