"""s_setvskip, by which a wave of CDNA issues no vector instructions for a while: as a branch around those between."""

from wmma_ops.emulator.assembly import class_of
from wmma_ops.emulator.linking import Linked

SKIP = "s_cbranch_vskip"  # its operands: where to, and the scalar with the number of its bit that decides
_OFF = ("0", "0")


def to_branches(linked: Linked) -> None:
    """Takes the place of each pair of them. What is not plainly a pair is refused."""
    found = linked.instructions
    ends = set(linked.labels.values()) | set(linked.functions.values())
    at = 0
    while at < len(found):
        if found[at].mnemonic != "s_setvskip":
            at += 1
            continue
        start, at = at, at + 1
        if found[start].operands == _OFF:
            found[start] = found[start]._replace(mnemonic="s_nop", operands=("0",))
            continue
        while at < len(found) and found[at].mnemonic != "s_setvskip":
            if (
                at in ends
                or class_of(found[at].mnemonic) in ("scalar", "scalar memory")
                or "barrier" in found[at].mnemonic
            ):
                raise ValueError(
                    f"{found[start].text!r}: vector instructions skipped across {found[at].text!r}; takes vector "
                    "instructions alone, and s_setvskip 0, 0 behind them"
                )
            at += 1
        if at == len(found) or at in ends:
            raise ValueError(f"{found[start].text!r}: no s_setvskip behind it, before a label or the end")
        name = f".Lvskip{start}"
        linked.labels[name] = at
        found[start] = found[start]._replace(mnemonic=SKIP, operands=(name, *found[start].operands))
