"""What operands of instructions mean: registers by name, constants, and how a value is read as a type."""

import functools
import re

import numpy as np

VCC, TTMP, M0, NULL, EXEC, SCC, DUMP = 106, 108, 124, 125, 126, 128, 129
SCALARS = 132
GENERAL_SCALARS = 102
FLAT_SCRATCH = 102  # on gfx9 the last scalar registers

SCALAR_NAMES = {
    "vcc": VCC,
    "vcc_lo": VCC,
    "vcc_hi": VCC + 1,
    "m0": M0,
    "flat_scratch": FLAT_SCRATCH,
    "flat_scratch_lo": FLAT_SCRATCH,
    "flat_scratch_hi": FLAT_SCRATCH + 1,
    "xnack_mask": FLAT_SCRATCH + 2,
    "xnack_mask_lo": FLAT_SCRATCH + 2,
    "xnack_mask_hi": FLAT_SCRATCH + 3,
    "exec": EXEC,
    "exec_lo": EXEC,
    "exec_hi": EXEC + 1,
    "scc": SCC,
    "null": NULL,
}
DTYPES = {"u": np.uint32, "i": np.int32, "f": np.float32, "h": np.float16, "w": np.uint16, "s": np.int16}
WIDE = {"U": "u64", "I": "i64", "d": "f64"}
SCALAR_AS = {
    "u": "u32({})",
    "i": "si32({})",
    "f": "sf32({})",
    "h": "sf16({})",
    "w": "u16({} & 65535)",
    "s": "u16({} & 65535).view(i16)",
    "U": "u64({})",
    "I": "si64({})",
    "d": "sf64({})",
}
FLOATS = "fhd"
INLINE = re.compile(r"^-?\d+\.\d+(e[-+]?\d+)?$")
NUMBER = re.compile(r"^-?(0x[\da-fA-F]+|\d+)$")


def register_range(text: str, prefix: str) -> tuple[int, int] | None:
    """(first, count) of v5, v[4:7]."""
    match = re.match(rf"^{prefix}(?:(\d+)|\[(\d+):(\d+)\])$", text)
    if not match:
        return None
    if match.group(1):
        return int(match.group(1)), 1
    return int(match.group(2)), int(match.group(3)) - int(match.group(2)) + 1


@functools.lru_cache(maxsize=8192)
def scalar_index(text: str) -> tuple[int, int] | None:
    """(first, count) of a scalar register; None for what is none."""
    if text in SCALAR_NAMES:
        return SCALAR_NAMES[text], 2 if text in ("vcc", "exec", "flat_scratch", "xnack_mask") else 1
    for prefix, base in (("s", 0), ("ttmp", TTMP)):
        if found := register_range(text, prefix):
            return base + found[0], found[1]
    return None


@functools.lru_cache(maxsize=8192)
def vector_index(text: str) -> tuple[str, int, int] | None:
    """("v" or "a", first, count)."""
    for prefix in "va":
        if found := register_range(text, prefix):
            return prefix, *found
    return None
