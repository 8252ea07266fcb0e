"""Memory through a buffer resource: each way to address it and each rule of what lies outside, against values by hand."""

import numpy as np
import pytest
import torch
from test_emulator import execute

import wmma_ops
from wmma_ops.emulator import EmulationError, OutOfBounds, Uninitialised, UnknownInstruction
from wmma_ops.hardware import arch

EVERY = pytest.mark.parametrize("target", arch.EMULATED)
LANES = 8  # of which tests say what they do
BY_RECORD, BY_INDEX, NOTHING, BY_BYTES = (mode << 28 for mode in range(4))


def is_cdna(target: str) -> bool:
    return target.startswith("gfx9")


def names(body: str, target: str) -> str:
    """The instructions as the target calls them, of CDNA's names."""
    if is_cdna(target):
        return body if target > "gfx940" else body.replace(" sc0", " glc")
    new = []
    words = {"_dword ": "_b32 ", "_dwordx2": "_b64", "_dwordx3": "_b96", "_dwordx4": "_b128"}
    loads = {"ubyte_d16_hi": "d16_hi_u8", "sbyte_d16_hi": "d16_hi_i8", "short_d16_hi": "d16_hi_b16"}
    loads |= {"ubyte_d16": "d16_u8", "sbyte_d16": "d16_i8", "short_d16": "d16_b16"}
    loads |= {"ubyte": "u8", "sbyte": "i8", "ushort": "u16", "sshort": "i16"}
    stores = {"byte_d16_hi": "d16_hi_b8", "short_d16_hi": "d16_hi_b16", "byte": "b8", "short": "b16"}
    atomics = {"add ": "add_u32 ", "add_x2 ": "add_u64 ", "cmpswap ": "cmpswap_b32 ", "swap_x2 ": "swap_b64 "}
    for line in body.split("\n"):
        table = words | {f"_load_{a} ": f"_load_{b} " for a, b in loads.items()}
        table |= {f"_store_{a} ": f"_store_{b} " for a, b in stores.items()}
        table |= {f"_atomic_{a}": f"_atomic_{b}" for a, b in atomics.items()}
        for a, b in table.items():
            line = line.replace(a, b) if line.startswith(("buffer_", "s_buffer_")) else line
        returning = " th:TH_ATOMIC_RETURN" if target.startswith("gfx12") else " glc"
        new.append(line.replace(" sc0", returning))
    return "\n".join(new)


def resource(records: int, stride: int = 0, flags: int = BY_BYTES, base: int = 0) -> str:
    """In s[8:11]: one that starts behind that many bytes of the arguments. (CDNA has no such flags.)"""
    return f"""s_add_u32 s8, s0, {base}
s_addc_u32 s9, s1, 0
s_or_b32 s9, s9, {stride << 16:#x}
s_mov_b32 s10, {records}
s_mov_b32 s11, {flags:#x}
"""


def lanes(values, target: str) -> np.ndarray:
    """The first lanes' values, and 0 in others."""
    out = np.zeros(64 if is_cdna(target) else 32, np.uint32)
    out[: len(values)] = np.array(values, np.int64) & 0xFFFFFFFF
    return out


def loads(target: str, instruction: str, described: str, index=(), offset=(), *, count: int = 1, before: int = 7):
    """What the first lanes' v[20:23] hold after it, with indices in v2, offsets in v3. Memory's word i is 100 + i."""
    data = 100 + np.arange(64 if is_cdna(target) else 32)
    body = described + "".join(f"v_mov_b32 v{20 + i}, {before}\n" for i in range(4)) + names(instruction, target)
    built = execute(body, target, (data, lanes(index, target), lanes(offset, target)))
    found = [built.registers[20 + i][:LANES].tolist() for i in range(count)]
    return found[0] if count == 1 else [list(words) for words in zip(*found, strict=True)]


OFFSETS = (0, 4, 20, 24, 22, -4, 16, 1000)  # bytes, of a buffer of 24


@EVERY
def test_raw_loads(target):
    raw = resource(24)
    whole = "buffer_load_dword v20, v3, s[8:11], "
    # The fifth lies inside with its first bytes alone.
    assert loads(target, whole + "0 offen", raw, (), OFFSETS) == [100, 101, 105, 0, 0, 0, 104, 0]
    # The instruction's offset and the lane's add up in 32 bits.
    assert loads(target, whole + "0 offen offset:4", raw, (), OFFSETS) == [101, 102, 0, 0, 0, 100, 105, 0]
    # The scalar offset does not, and counts.
    scalar = raw + "s_mov_b32 s3, 8\ns_mov_b32 m0, 8\n"
    for given in ("s3", "8", "m0"):
        assert loads(target, f"{whole}{given} offen", scalar, (), OFFSETS) == [102, 103, 0, 0, 0, 0, 0, 0], given
    assert loads(target, whole + "s3 offen offset:4", scalar, (), OFFSETS) == [103, 104, 0, 0, 0, 102, 0, 0]
    assert loads(target, "buffer_load_dword v20, off, s[8:11], s3 offset:12", scalar) == [105] * LANES
    assert loads(target, "buffer_load_dword v20, off, s[8:11], s3 offset:16", scalar) == [0] * LANES
    if not is_cdna(target):
        assert loads(target, whole + "null offen", raw, (), OFFSETS) == [100, 101, 105, 0, 0, 0, 104, 0]
    # It may start anywhere, and be empty.
    assert loads(target, whole + "0 offen", resource(8, base=8), (), OFFSETS) == [102, 103, 0, 0, 0, 0, 0, 0]
    assert loads(target, whole + "0 offen", resource(0), (), OFFSETS) == [0] * LANES


@EVERY
def test_each_dword_is_inside_or_not(target):
    offsets = (0, 8, 12, 20, 24, 16, -4, 4)
    want = [
        [100, 101, 102, 103],
        [102, 103, 104, 105],
        [103, 104, 105, 0],
        [105, 0, 0, 0],
        [0, 0, 0, 0],
        [104, 105, 0, 0],
        [0, 0, 0, 0],  # no word of it comes around to the start
        [101, 102, 103, 104],
    ]
    for words in (2, 3, 4):
        text = f"buffer_load_dwordx{words} v[20:{19 + words}], v3, s[8:11], 0 offen"
        assert loads(target, text, resource(24), (), offsets, count=words) == [row[:words] for row in want]
    # The address may be among the results.
    data = 100 + np.arange(64 if is_cdna(target) else 32)
    text = names("buffer_load_dwordx4 v[2:5], v3, s[8:11], 0 offen", target)
    built = execute(resource(24) + text, target, (data, data, lanes(offsets, target)))
    assert built.registers[2:6, :LANES].T.tolist() == want


INDICES, WITHIN = (0, 1, 2, 3, 2, -1, 1, 0), (0, 4, 8, 0, 12, 0, 10, 4)


@EVERY
def test_structured_loads(target):
    """Records of 12 bytes, of which there are three."""
    by_record, by_index = resource(3, 12, BY_RECORD), resource(3, 12, BY_INDEX)
    one, both = "buffer_load_dword v20, v2, s[8:11], 0 idxen", "buffer_load_dword v20, v[2:3], s[8:11], 0 idxen offen"
    for described in (by_record, by_index):
        assert loads(target, one, described, INDICES) == [100, 103, 106, 0, 106, 0, 103, 100]
        assert loads(target, one + " offset:8", described, INDICES) == [102, 105, 108, 0, 108, 0, 105, 102]
    # CDNA asks for the index alone, RDNA for what the resource says.
    open_ended = [100, 104, 108, 0, 109, 0, 106 << 16, 101]  # the last but one has the halves of two words
    inside = [100, 104, 108, 0, 0, 0, 0, 101]
    assert loads(target, both, by_index, INDICES, WITHIN) == open_ended
    assert loads(target, both, by_record, INDICES, WITHIN) == (open_ended if is_cdna(target) else inside)
    wide = "buffer_load_dwordx2 v[20:21], v2, s[8:11], 0 idxen offset:8"
    found = loads(target, wide, by_record, INDICES, count=2)
    second = (103, 106, 109) if is_cdna(target) else (0, 0, 0)
    assert found[:4] == [*map(list, zip((102, 105, 108), second, strict=True)), [0, 0]]
    # A scalar offset moves what is inside.
    moved = "s_mov_b32 s3, 4\n"
    assert loads(target, one.replace(" 0 ", " s3 "), by_index + moved, INDICES)[:4] == [101, 104, 107, 0]


@EVERY
def test_strides_without_indices_and_indices_without_strides(target):
    """By bytes: an index of records without size is none."""
    text = "buffer_load_dword v20, v[2:3], s[8:11], 0 idxen offen"
    assert loads(target, text, resource(24), INDICES, OFFSETS) == [100, 101, 105, 0, 0, 0, 104, 0]
    text = "buffer_load_dword v20, v3, s[8:11], 0 offen"
    assert loads(target, text, resource(24, 12), (), OFFSETS) == [100, 101, 105, 0, 0, 0, 104, 0]


@pytest.mark.parametrize("target", ["gfx1100", "gfx1151", "gfx1200", "gfx1201"])
def test_what_rdna_leaves_unchecked(target):
    text = "buffer_load_dword v20, v3, s[8:11], 0 offen"
    assert loads(target, text, resource(1, flags=NOTHING), (), (0, 40, 44)) == [100, 110, 111, 100, 100, 100, 100, 100]
    assert loads(target, text, resource(0, flags=NOTHING), (), (0, 40, 44)) == [0] * LANES


@EVERY
def test_small_loads(target):
    """Of 0x80FF7F01 at byte 0 of a buffer of 5 bytes, into a register of 0x12345678."""
    data = lanes([0x80FF7F01, 0x000000AA], target)
    cases = {
        "ubyte": [0x01, 0x7F, 0xFF, 0x80, 0xAA, 0],
        "sbyte": [0x01, 0x7F, 0xFFFFFFFF, 0xFFFFFF80, 0xFFFFFFAA, 0],
        "ushort": [0x7F01, 0xFF7F, 0x80FF, 0xAA80, 0, 0],
        "sshort": [0x7F01, 0xFFFFFF7F, 0xFFFF80FF, 0xFFFFAA80, 0, 0],
        "short_d16": [0x12347F01, 0x1234FF7F, 0x123480FF, 0x1234AA80, 0x12340000, 0x12340000],
        "short_d16_hi": [0x7F015678, 0xFF7F5678, 0x80FF5678, 0xAA805678, 0x5678, 0x5678],
        "ubyte_d16": [0x12340001, 0x1234007F, 0x123400FF, 0x12340080, 0x123400AA, 0x12340000],
        "sbyte_d16": [0x12340001, 0x1234007F, 0x1234FFFF, 0x1234FF80, 0x1234FFAA, 0x12340000],
        "ubyte_d16_hi": [0x00015678, 0x007F5678, 0x00FF5678, 0x00805678, 0x00AA5678, 0x5678],
        "sbyte_d16_hi": [0x00015678, 0x007F5678, 0xFFFF5678, 0xFF805678, 0xFFAA5678, 0x5678],
    }
    kinds = list(cases)
    text = "".join(
        f"v_mov_b32 v{20 + i}, 0x12345678\nbuffer_load_{kind} v{20 + i}, v2, s[8:11], 0 offen\n"
        for i, kind in enumerate(kinds)
    )
    built = execute(resource(5) + names(text, target), target, (data, lanes(range(6), target)))
    for i, kind in enumerate(kinds):
        assert built.registers[20 + i][:6].tolist() == cases[kind], kind


def after(target: str, body: str, described: str, offset, given=(), *, words: int = 8):
    """The first words of memory, which were 100 + i, after instructions; and what is in v20. v4 to v7 are `given`."""
    width = 64 if is_cdna(target) else 32
    data = 100 + np.arange(width)
    rows = [lanes(np.broadcast_to(value, LANES), target) for value in given]
    look = "v_lshlrev_b32 v30, 2, v0\nglobal_load_dword v31, v30, s[0:1]\n"
    some = f"s_mov_b{min(width, 64)} exec{'' if width == 64 else '_lo'}, 0xff\n"
    every = f"s_mov_b{width} exec{'' if width == 64 else '_lo'}, -1\n"
    text = described + "v_mov_b32 v20, 7\n" + some + names(body, target) + "\n" + every + look
    built = execute(text, target, (data, lanes((), target), lanes(offset, target), *rows))
    return built.registers[31][:words].tolist(), built.registers[20][:LANES].tolist()


STORED = (0, 4, 20, 24, 22, -4, 200, 1000)


@EVERY
def test_stores(target):
    old = [100 + i for i in range(8)]
    raw, value = resource(24), np.arange(LANES) + 1
    got, _ = after(target, "buffer_store_dword v4, v3, s[8:11], 0 offen", raw, STORED, [value])
    assert got == [1, 2, *old[2:5], 3, *old[6:]]
    scalar = raw + "s_mov_b32 s3, 8\n"
    got, _ = after(target, "buffer_store_dword v4, v3, s[8:11], s3 offen offset:4", scalar, STORED, [value])
    assert got == [*old[:2], 6, 1, 2, *old[5:]]
    # Four words each, of which the last two lanes' lie inside in part, and not at all.
    got, _ = after(
        target,
        "buffer_store_dwordx4 v[4:7], v3, s[8:11], 0 offen",
        raw,
        (0, 16, 24) + (1000,) * 5,
        [value, value + 10, value + 20, value + 30],
    )
    assert got == [1, 11, 21, 31, 2, 12, *old[6:]]
    got, _ = after(target, "buffer_store_dwordx3 v[4:6], v3, s[8:11], 0 offen", raw, (12,) + (99,) * 7, [1, 2, 3])
    assert got == [*old[:3], 1, 2, 3, *old[6:]]
    # Records: no lane of index 3 or offset 12 (on RDNA).
    both = "v_mov_b32 v2, v8\nbuffer_store_dword v4, v[2:3], s[8:11], 0 idxen offen"
    index, within = (0, 1, 2, 3, 0, -1, 2, 3), (0, 4, 8, 0, 12, 0, 4, 8)
    got, _ = after(target, both, resource(3, 12, BY_RECORD), within, [value, 0, 0, 0, index], words=12)
    want = [100 + i for i in range(12)]
    want[0], want[4], want[8], want[7] = 1, 2, 3, 7
    if is_cdna(target):
        want[3] = 5
    assert got == want


@EVERY
def test_small_stores(target):
    body = """buffer_store_byte v4, v3, s[8:11], 0 offen
buffer_store_byte_d16_hi v4, v3, s[8:11], 4 offen
buffer_store_short v4, v3, s[8:11], 8 offen
buffer_store_short_d16_hi v4, v3, s[8:11], 12 offen"""
    got, _ = after(target, body, resource(16), (0,) + (1000,) * 7, [0xAABBCCDD])
    assert got[:5] == [0xDD, 0xBB, 0xCCDD, 0xAABB, 104]
    got, _ = after(target, "buffer_store_short v4, v3, s[8:11], 0 offen", resource(5), (3, 4) + (99,) * 6, [0xCCDD])
    assert got[:2] == [(100 | 0xDD << 24), 101 & ~0xFF | 0xCC]


def f32(x: float) -> int:
    return int(np.float32(x).view(np.uint32))


@EVERY
def test_atomics(target):
    old = [100 + i for i in range(8)]
    raw, at = resource(24), (0, 0, 4, 20, 24, 22, -4, 1000)
    got, back = after(target, "buffer_atomic_add v4, v3, s[8:11], 0 offen\nv_mov_b32 v20, v4", raw, at, [5])
    assert got == [110, 106, *old[2:5], 110, *old[6:]]
    assert back == [5] * LANES
    body = "buffer_atomic_add v4, v3, s[8:11], 0 offen offset:4 sc0\nv_mov_b32 v20, v4"
    got, back = after(target, body, raw, at, [5])
    assert got == [105, 111, 107, *old[3:]]  # the seventh lane's offset wraps
    assert back == [101, 106, 102, 0, 0, 0, 100, 0]
    # All or nothing: 8 bytes of which 4 lie inside.
    body = "buffer_atomic_swap_x2 v[4:5], v3, s[8:11], 0 offen sc0\nv_mov_b32 v20, v5"
    got, back = after(target, body, resource(20), (0, 16, 8) + (99,) * 5, [1, 2])
    assert got == [1, 2, 1, 2, *old[4:]]
    assert back == [101, 0, 103, 0, 0, 0, 0, 0]
    # The new value, then what it is compared with.
    body = "buffer_atomic_cmpswap v[4:5], v3, s[8:11], 0 offen sc0\nv_mov_b32 v20, v4"
    got, back = after(target, body, raw, (0, 4, 8) + (99,) * 5, [9, (100, 100, 102) + (0,) * 5])
    assert got == [9, 101, 9, *old[3:]]
    assert back == [100, 101, 102, 0, 0, 0, 0, 0]
    body = "v_mov_b32 v2, v8\nbuffer_atomic_add v4, v[2:3], s[8:11], 0 idxen offen"
    got, _ = after(target, body, resource(2, 12, BY_RECORD), (4,) * 8, [1, 0, 0, 0, (0, 1, 2, 3) + (9,) * 4])
    assert got == [100, 102, 102, 103, 105, 105, 106, 107]
    begin = f"v_mov_b32 v9, {f32(1.5):#x}\nbuffer_store_dword v9, off, s[8:11], 0\n"
    got, _ = after(target, begin + "buffer_atomic_add_f32 v4, v3, s[8:11], 0 offen", raw, (0,) + (99,) * 7, [f32(-4.0)])
    assert got[0] == f32(-2.5)
    if target not in ("gfx1100", "gfx1151"):
        halves = int(np.array([1.5, -2.0], np.float16).view(np.uint32)[0])
        begin = f"v_mov_b32 v9, {halves:#x}\nbuffer_store_dword v9, off, s[8:11], 0\n"
        body = begin + "buffer_atomic_pk_add_f16 v4, v3, s[8:11], 0 offen"
        got, _ = after(target, body, raw, (0,) + (99,) * 7, [halves])
        assert got[0] == int(np.array([3.0, -4.0], np.float16).view(np.uint32)[0])
    if target in ("gfx950", "gfx1200", "gfx1201"):
        begin = "v_mov_b32 v9, 0x3f804000\nbuffer_store_dword v9, off, s[8:11], 0\n"  # 2 and 1 in bfloat16
        body = begin + "buffer_atomic_pk_add_bf16 v4, v3, s[8:11], 0 offen"
        got, _ = after(target, body, raw, (0,) + (99,) * 7, [0x40003F80])  # 1 and 2
        assert got[0] == 0x40404040


WRONG = {
    "the lane's number": (resource(24, flags=1 << 23), "adds the lane's number"),
    "another type": (resource(24, flags=1 << 31), "type 2"),
}


@EVERY
def test_resources_that_are_refused(target):
    for described, text in WRONG.values():
        with pytest.raises(EmulationError, match=text):
            loads(target, "buffer_load_dword v20, v3, s[8:11], 0 offen", described)


@EVERY
def test_resources_that_swizzle(target):
    """RDNA swizzles by two bits; on CDNA the lower one is about the cache alone, and the upper one about an index."""
    low, high = (
        resource(24, 4).replace("s_or_b32 s9, s9, 0x40000", f"s_or_b32 s9, s9, {bits | 0x40000:#x}")
        for bits in (0x4000_0000, 0x8000_0000)
    )
    by_offset, by_index = (f"buffer_load_dword v20, v3, s[8:11], 0 {how}" for how in ("offen", "idxen"))
    if not is_cdna(target):
        for described in (low, high):
            with pytest.raises(EmulationError, match="swizzles addresses"):
                loads(target, by_offset, described)
        return
    for described in (low, high):
        assert loads(target, by_offset, described, (), (0, 4, 20) + (8,) * 5) == [100, 101, 105] + [102] * 5
    for body, offsets in ((by_index, (0,) * LANES), (by_offset, (0, 24) + (0,) * 6)):
        with pytest.raises(EmulationError, match="swizzles addresses"):
            loads(target, body, high, (), offsets)


def test_instructions_that_are_refused():
    for text, why in (
        ("buffer_load_dword v20, v3, s[8:11], 0 idxen offen", "2 registers"),
        ("buffer_load_dword v20, v[2:3], s[8:11], 0 offen", "1 registers"),
        ("buffer_load_dword v20, v3, s[8:11], 0", "0 registers"),
        ("buffer_load_dword v20, off, s[8:11], 0 offen", "1 registers"),
        ("buffer_load_dword v20, v3, s[8:9], 0 offen", "four registers"),
        ("buffer_load_dword v20, v3, s[8:11], 0 offen tfe", "tfe"),
        ("buffer_load_format_x v20, v3, s[8:11], 0 offen", "does not know"),
    ):
        with pytest.raises(UnknownInstruction, match=why):
            loads("gfx942", text, resource(24))


@EVERY
def test_what_passes_the_check_is_still_watched(target):
    far = "buffer_load_dword v20, v3, s[8:11], 0 offen"
    with pytest.raises(OutOfBounds, match="lane 1: a load of 4 bytes"):
        loads(target, far, resource(1 << 20), (), (0, 1 << 16))
    with pytest.raises(OutOfBounds, match="lane 1: a store of 16 bytes"):
        after(
            target,
            "buffer_store_dwordx4 v[4:7], v3, s[8:11], 0 offen",
            resource(1 << 20),
            (0, 1 << 16) + (0,) * 6,
            [0] * 4,
        )
    with pytest.raises(OutOfBounds, match=r"lane 1: .* atomic of 4 bytes"):
        after(target, "buffer_atomic_add v4, v3, s[8:11], 0 offen", resource(1 << 20), (0, 1 << 16) + (0,) * 6, [0] * 4)
    with pytest.raises(Uninitialised, match="v40"):
        execute(resource(24) + names("buffer_store_dword v40, off, s[8:11], 0", target), target)
    with pytest.raises(Uninitialised, match="v40"):
        execute(resource(24) + names("buffer_atomic_add v40, off, s[8:11], 0", target), target)
    with pytest.raises(Uninitialised, match="v40"):
        execute(resource(24) + names("buffer_load_dword v1, v40, s[8:11], 0 offen", target), target)


@EVERY
def test_scalar_loads(target):
    """A buffer's bytes are its records, each of its stride."""
    wide = "b128" if not is_cdna(target) else "dwordx4"
    body = f"""s_mov_b32 s3, 8
s_buffer_load_{"dword" if is_cdna(target) else "b32"} s20, s[8:11], 0x4
s_buffer_load_{wide} s[24:27], s[8:11], s3
s_buffer_load_{wide} s[28:31], s[8:11], s3 offset:0x4
s_buffer_load_{wide} s[32:35], s[8:11], 0x1000
"""
    if target.startswith("gfx12"):
        body += "s_buffer_load_i16 s36, s[8:11], 0x16\ns_buffer_load_u8 s37, s[8:11], 0x18"
    data = 100 + np.arange(64 if is_cdna(target) else 32)
    for described in (resource(20), resource(5, 4)):
        found = execute(described + body, target, (data,)).scalars
        assert found[20] == 101
        assert found[24:28] == [102, 103, 104, 0]
        assert found[28:32] == [103, 104, 0, 0]
        assert found[32:36] == [0] * 4
        assert found[36:38] == [0, 0]


@pytest.mark.parametrize("target", ["gfx908", "gfx90a", "gfx942", "gfx950"])
def test_scalar_stores_and_atomics(target):
    data = 100 + np.arange(64)
    body = (
        resource(20)
        + """s_mov_b32 s20, 7
s_mov_b32 s21, 8
s_mov_b32 s22, 9
s_mov_b32 s23, 10
s_store_dword s20, s[0:1], 0x0
s_mov_b32 s3, 4
s_store_dwordx2 s[20:21], s[0:1], s3
s_buffer_store_dwordx4 s[20:23], s[8:11], 0xc
s_buffer_store_dword s20, s[8:11], 0x100
s_mov_b32 s24, 5
s_atomic_add s24, s[0:1], 0x20 glc
s_atomic_sub s20, s[0:1], 0x24
s_mov_b32 s26, 1
s_mov_b32 s27, 110
s_atomic_cmpswap s[26:27], s[0:1], 0x28 glc
s_mov_b64 s[28:29], -1
s_atomic_add_x2 s[28:29], s[0:1], 0x30 glc
s_mov_b64 s[34:35], 1
s_mov_b32 s30, 3
s_buffer_atomic_smax s30, s[8:11], 0x0 glc
s_buffer_atomic_add_x2 s[34:35], s[8:11], 0x10
s_mov_b32 s31, 3
s_buffer_atomic_swap s31, s[8:11], 0x14 glc
s_dcache_wb
v_lshlrev_b32 v30, 2, v0
global_load_dword v31, v30, s[0:1]"""
    )
    built = execute(body, target, (data,))
    want = list(range(100, 116))
    want[:5] = [7, 7, 8, 7, 8]  # 9 and 10 lie beyond the buffer
    want[8:11] = [113, 102, 1]
    want[12:14] = [111, 113]  # 112 + 113 · 2³² − 1
    assert built.registers[31][:16].tolist() == want
    assert [built.scalars[i] for i in (20, 24, 26, 27, 28, 29, 30, 31)] == [7, 108, 110, 110, 112, 113, 7, 0]
    with pytest.raises(OutOfBounds, match="scalar store of 4 bytes"):
        execute("s_store_dword s0, s[0:1], 0x10000", target)


COMPILED = """
#include <wmma/grid.hpp>
typedef int four __attribute__((ext_vector_type(4)));
extern "C" __global__ void through(int* x, int* y, int n) {
  __amdgpu_buffer_rsrc_t from = __builtin_amdgcn_make_buffer_rsrc(x, 0, n, FLAGS);
  __amdgpu_buffer_rsrc_t to = __builtin_amdgcn_make_buffer_rsrc(y, 0, n, FLAGS);
  const int at = threadIdx.x * 16;
  four v = __builtin_amdgcn_raw_buffer_load_b128(from, at, 0, 0);
  v += (int)__builtin_amdgcn_raw_buffer_load_b8(from, threadIdx.x, 4, 0);
  __builtin_amdgcn_raw_buffer_store_b128(v, to, at, 0, 0);
}"""


@EVERY
def test_what_compilers_give(target):
    text = COMPILED.replace("FLAGS", "0x00027000" if is_cdna(target) else "0x31014000")
    x, y = torch.arange(96, dtype=torch.int32), torch.full((96,), -1, dtype=torch.int32)
    with wmma_ops.emulate(target):
        wmma_ops.Kernel(text, "through")[1, 32](x, y, 24 * 4 - 4)
    small = x.view(torch.uint8)[4:36].int().repeat_interleave(4)
    want = x + torch.cat([small, small])[:96]
    want[23:] = -1
    assert y.tolist() == want.tolist()
