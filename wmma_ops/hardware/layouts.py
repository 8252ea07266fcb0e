"""Which lane holds which element of A (M×K), B (K×N), C and D (M×N) in a matrix instruction.

    layout("gfx1201", "A").element(17, 3)      # (row, column) of lane 17's element 3
    layout("gfx1201", "A").owners(1, 11)       # every (lane, element) that holds row 1, column 11

Where a dense product allows any order of K, as long as A and B agree, lanes hold runs of K: see _k_runs.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import NamedTuple

from wmma_ops.hardware import arch

OPERANDS = ("A", "B", "C", "D")

Place = tuple[int, int, int]  # block, row, column
Slot = tuple[int, int]  # lane, element


@dataclass(frozen=True)
class Layout:
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

    def block(self, lane: int, e: int) -> int:
        """The block that lane `lane`'s element `e` belongs to."""
        return self._place(lane, e)[0]

    def element(self, lane: int, e: int) -> tuple[int, int]:
        """Row and column, within its block, of lane `lane`'s element `e`."""
        return self._place(lane, e)[1:]

    def owners(self, row: int, column: int, block: int = 0) -> tuple[Slot, ...]:
        """Every (lane, e) that holds this element, the lowest lane first."""
        try:
            return self._owners[block, row, column]
        except KeyError:
            rows, columns = self.shape
            raise IndexError(
                f"row {row}, column {column}, block {block} of {self.blocks} blocks of {rows}x{columns}"
            ) from None

    def register(self, e: int) -> tuple[int, int]:
        """The register, counted from the operand's first, and its lowest bit where element `e` begins."""
        return divmod(e * self.step * self.bits, 32)

    def _place(self, lane: int, e: int) -> Place:
        # Python would take negative indices from the end.
        if not (0 <= lane < self.lanes and 0 <= e < self.elements):
            raise IndexError(f"lane {lane}, element {e} of {self.lanes} lanes of {self.elements} elements")
        return self.places[lane][e]

    @cached_property
    def _owners(self) -> dict[Place, tuple[Slot, ...]]:
        found: dict[Place, list[Slot]] = {}
        for lane, row in enumerate(self.places):
            for e, place in enumerate(row):
                found.setdefault(place, []).append((lane, e))
        return {place: tuple(slots) for place, slots in found.items()}


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


def layout(target: str, operand: str, instruction: str | None = None, transposed: bool = False) -> Layout:
    """The layout of `operand` ("A", "B", "C" or "D") in `instruction`, by default the target's float16 product."""
    if operand not in OPERANDS:
        raise ValueError(f"no operand {operand!r}; the operands are {', '.join(OPERANDS)}")
    return _layout(arch.target(target), operand, arch.target(target).instruction(instruction), bool(transposed))


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
    target: str, operand: str, row: int, column: int, transposed: bool = False, instruction: str | None = None
) -> Slot:
    """(lane, e) of the element's first copy, in block 0."""
    return fragment_forward(target, operand, row, column, 0, transposed, instruction)


def reverse(
    target: str, operand: str, lane: int, e: int, transposed: bool = False, instruction: str | None = None
) -> tuple[int, int]:
    """(row, column) of lane `lane`'s element `e`."""
    return layout(target, operand, instruction, transposed).element(lane, e)


def fragment_forward(
    target: str,
    operand: str,
    row: int,
    column: int,
    rep: int,
    transposed: bool = False,
    instruction: str | None = None,
) -> Slot:
    """(lane, e) of copy `rep` of the element: on gfx11 copy 0 of A and B is in lanes 0 to 15, copy 1 in 16 to 31."""
    copies = layout(target, operand, instruction, transposed).owners(row, column)
    if not 0 <= rep < len(copies):
        raise IndexError(f"copy {rep} of {len(copies)}")
    return copies[rep]


def store_map(target: str, instruction: str | None = None) -> Callable[[int, int], tuple[int, int]]:
    """The function (lane, e) -> (row, column) of D by which a kernel stores its result."""
    return layout(target, "D", instruction).element


def replication(target: str, operand: str = "A", instruction: str | None = None) -> int:
    """How many lanes hold each element: 2 for A and B on gfx11, 1 otherwise."""
    return layout(target, operand, instruction).replication


class Functions(NamedTuple):
    forward: Callable[[int, int], Slot]  # (row, column) -> (lane, e)
    reverse: Callable[[int, int], tuple[int, int]]  # (lane, e) -> (row, column)
    fragment_forward: Callable[[int, int, int], Slot]  # (row, column, rep) -> (lane, e)
    store_map: Callable[[int, int], tuple[int, int]]  # (lane, e) -> (row, column) of D
    replication: int


def functions(target: str, operand: str, transposed: bool = False, instruction: str | None = None) -> Functions:
    """The functions that apply to an operand on a target, as plain functions of indices."""
    found = layout(target, operand, instruction, transposed)
    return Functions(
        lambda row, column: forward(target, operand, row, column, transposed, instruction),
        found.element,
        lambda row, column, rep: fragment_forward(target, operand, row, column, rep, transposed, instruction),
        store_map(target, instruction),
        found.replication,
    )
