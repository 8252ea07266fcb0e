"""The moves between lanes that reductions and scans are made of, lane by lane."""

import numpy as np
import pytest
from test_emulator import execute

# What v5 gets of v1, where it had 99: (target, moves, the source of each lane or None).
SWIZZLES = {
    "0x401f": lambda lane: lane ^ 16,
    "0x78": lambda lane: lane & ~7 | 3,
    "0xf0": lambda lane: lane & ~15 | 7,
    "0x1e0": lambda lane: lane & ~31 | 15,
}
MOVES = [
    *(("gfx942", f"ds_swizzle_b32 v5, v1 offset:{offset}", source) for offset, source in SWIZZLES.items()),
    ("gfx942", "v_mov_b32_dpp v5, v1 quad_perm:[0,0,2,2] row_mask:0xf bank_mask:0xf", lambda lane: lane & ~1),
    ("gfx942", "v_mov_b32_dpp v5, v1 row_mirror row_mask:0xf bank_mask:0xf", lambda lane: lane ^ 15),
    ("gfx942", "v_mov_b32_dpp v5, v1 row_half_mirror row_mask:0xf bank_mask:0xf", lambda lane: lane ^ 7),
    ("gfx1100", "v_mov_b32_dpp v5, v1 row_share:7 row_mask:0xf bank_mask:0xf", lambda lane: lane & ~15 | 7),
    (
        "gfx1201",
        "v_mov_b32_dpp v5, v1 row_share:3 row_mask:0xf bank_mask:0x2\n"
        "v_mov_b32_dpp v5, v1 row_share:11 row_mask:0xf bank_mask:0x8",
        lambda lane: (lane & ~15 | (3 if lane % 16 < 8 else 11)) if lane % 8 > 3 else None,
    ),
    ("gfx1100", "v_mov_b32_dpp v5, v1 dpp8:[3,3,3,3,3,3,3,3]", lambda lane: lane & ~7 | 3),
    (
        "gfx1201",
        "s_mov_b32 s4, 0x76543210\ns_mov_b32 s5, 0xfedcba98\nv_permlanex16_b32 v5, v1, s4, s5",
        lambda lane: lane ^ 16,
    ),
]


@pytest.mark.parametrize(("target", "body", "source"), MOVES, ids=[body.split("\n")[0] for _, body, _ in MOVES])
def test_moves(target, body, source):
    lanes = np.arange(64 if target.startswith("gfx9") else 32, dtype=np.uint32)
    built = execute(f"v_mov_b32_e32 v5, 0x63\n{body}", target, [lanes * 5])
    expected = [99 if (at := source(lane)) is None else 5 * at for lane in lanes.tolist()]
    assert built.registers[5].tolist() == expected
