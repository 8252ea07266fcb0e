"""The modifiers of instructions, in groups. The code of each form names those that it reads; any other is refused."""

from wmma_ops.emulator.assembly import Instruction

NONE = frozenset()
DPP = frozenset(
    """quad_perm dpp8 row_shl row_shr row_ror row_share row_newbcast row_xmask row_bcast row_mirror row_half_mirror
    wave_shl wave_shr row_mask bank_mask bound_ctrl fi""".split()
)
SDWA = frozenset("dst_sel dst_unused src0_sel src1_sel".split())
SELECT = frozenset({"op_sel"})
CLAMP = frozenset({"clamp"})
HALVES = frozenset({"op_sel", "op_sel_hi"})
SIGNS = frozenset({"neg_lo", "neg_hi"})
# What the caches do changes no value here: memory is one, and every access is done before the next begins. (Of th, the
# part that asks for an atomic's old value is read by dataflow.returns_old.)
CACHE = frozenset("glc slc dlc sc0 sc1 nt scc th scope".split())
OFFSET = frozenset({"offset"})
BUFFER = frozenset({"offen", "idxen"})
TO_SHARED = frozenset({"lds"})
OFFSETS = frozenset({"offset", "offset0", "offset1"})


def only(ins: Instruction, *read: frozenset[str]) -> None:
    """Raises ValueError where a modifier stands on the instruction that its code does not read."""
    left = sorted(set(ins.modifiers).difference(*read))
    if "mul" in left or "div" in left:
        raise ValueError("the hardware ignores an output factor (mul, div) where denormals are kept, as here")
    if left:
        raise ValueError(f"{', '.join(left)}: not emulated on this instruction")
