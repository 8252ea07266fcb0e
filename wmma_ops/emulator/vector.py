"""The vector ALU: one row an instruction, as (result type, operand types, expression).

Types: u i f — 32 bits as unsigned, signed, float; h w s — the low half as float16, unsigned, signed (the high half with
op_sel); U I d — a register pair as unsigned, signed, float64. `m` as a result is a lane mask. In expressions {0} {1} {2}
are the operands and names are those of numeric.py and numpy (np).
"""

_F32 = {
    "add_f32": ("f", "ff", "{0} + {1}"),
    "sub_f32": ("f", "ff", "{0} - {1}"),
    "subrev_f32": ("f", "ff", "{1} - {0}"),
    "mul_f32": ("f", "ff", "{0} * {1}"),
    "mul_legacy_f32": ("f", "ff", "np.where(({0} == 0) | ({1} == 0), f32(0), {0} * {1})"),
    "mul_dx9_zero_f32": ("f", "ff", "np.where(({0} == 0) | ({1} == 0), f32(0), {0} * {1})"),
    "fma_f32": ("f", "fff", "fma32({0}, {1}, {2})"),
    "mad_f32": ("f", "fff", "mad_flushed({0}, {1}, {2})"),
    "rcp_f32": ("f", "f", "flushed(f32(1) / flushed({0}))"),
    "rcp_iflag_f32": ("f", "f", "flushed(f32(1) / flushed({0}))"),
    "rsq_f32": ("f", "f", "undefined({0}, (1 / np.sqrt(flushed({0}).astype(f64))).astype(f32))"),
    "sqrt_f32": ("f", "f", "undefined({0}, np.sqrt(flushed({0})))"),
    "exp_f32": ("f", "f", "flushed(np.exp2(flushed({0}).astype(f64)).astype(f32))"),
    "log_f32": ("f", "f", "undefined({0}, np.log2(flushed({0}).astype(f64)).astype(f32))"),
    "sin_f32": ("f", "f", "undefined({0}, np.sin({0}.astype(f64) * (2 * np.pi)).astype(f32))"),
    "cos_f32": ("f", "f", "undefined({0}, np.cos({0}.astype(f64) * (2 * np.pi)).astype(f32))"),
    "floor_f32": ("f", "f", "np.floor({0})"),
    "ceil_f32": ("f", "f", "np.ceil({0})"),
    "trunc_f32": ("f", "f", "np.trunc({0})"),
    "rndne_f32": ("f", "f", "np.rint({0})"),
    "fract_f32": ("f", "f", "fract({0})"),
    "ldexp_f32": ("f", "fi", "np.ldexp({0}.astype(f64), {1}).astype(f32)"),
    "frexp_mant_f32": ("f", "f", "np.where(np.isfinite({0}), np.frexp({0})[0], {0})"),
    "frexp_exp_i32_f32": ("i", "f", "np.where(np.isfinite({0}), np.frexp({0})[1], 0).astype(i32)"),
    "cvt_f32_i32": ("f", "i", "{0}.astype(f32)"),
    "cvt_f32_u32": ("f", "u", "{0}.astype(f32)"),
    "cvt_i32_f32": ("i", "f", "to_i32({0})"),
    "cvt_u32_f32": ("u", "f", "to_u32({0})"),
    "cvt_nearest_i32_f32": ("i", "f", "to_i32(np.floor({0} + f32(0.5)))"),
    "cvt_rpi_i32_f32": ("i", "f", "to_i32(np.floor({0} + f32(0.5)))"),
    "cvt_floor_i32_f32": ("i", "f", "to_i32(np.floor({0}))"),
    "cvt_flr_i32_f32": ("i", "f", "to_i32(np.floor({0}))"),
    "cvt_f32_f16": ("f", "h", "{0}.astype(f32)"),
    "cvt_f32_bf16": ("f", "w", "({0}.astype(u32) << u32(16)).view(f32)"),
    "cvt_f16_f32": ("h", "f", "{0}.astype(f16)"),
    "cvt_f32_ubyte0": ("f", "u", "({0} & u32(255)).astype(f32)"),
    "cvt_f32_ubyte1": ("f", "u", "(({0} >> u32(8)) & u32(255)).astype(f32)"),
    "cvt_f32_ubyte2": ("f", "u", "(({0} >> u32(16)) & u32(255)).astype(f32)"),
    "cvt_f32_ubyte3": ("f", "u", "({0} >> u32(24)).astype(f32)"),
    "cvt_pkrtz_f16_f32": (
        "u",
        "ff",
        "rtz16({0}).view(u16).astype(u32) | (rtz16({1}).view(u16).astype(u32) << u32(16))",
    ),
    "cvt_pk_f16_f32": (
        "u",
        "ff",
        "{0}.astype(f16).view(u16).astype(u32) | ({1}.astype(f16).view(u16).astype(u32) << u32(16))",
    ),
    "cvt_pk_bf16_f32": ("u", "ff", "bf16_round({0}) | (bf16_round({1}) << u32(16))"),
    # The steps of a division. Without scaling, fmas is an fma, and fixup has what it takes to divide exactly.
    "div_fmas_f32": ("f", "fff", "fma32({0}, {1}, {2})"),
    "div_fixup_f32": ("f", "fff", "{2} / {1}"),
    "div_fmas_f64": ("d", "ddd", "fma64({0}, {1}, {2})"),
    "div_fixup_f64": ("d", "ddd", "{2} / {1}"),
}
_F32["cvt_pk_rtz_f16_f32"] = _F32["cvt_pkrtz_f16_f32"]

_F64 = {
    "add_f64": ("d", "dd", "{0} + {1}"),
    "mul_f64": ("d", "dd", "{0} * {1}"),
    "fma_f64": ("d", "ddd", "fma64({0}, {1}, {2})"),
    "rcp_f64": ("d", "d", "1 / {0}"),
    "rsq_f64": ("d", "d", "undefined({0}, 1 / np.sqrt({0}))"),
    "sqrt_f64": ("d", "d", "undefined({0}, np.sqrt({0}))"),
    "floor_f64": ("d", "d", "np.floor({0})"),
    "ceil_f64": ("d", "d", "np.ceil({0})"),
    "trunc_f64": ("d", "d", "np.trunc({0})"),
    "rndne_f64": ("d", "d", "np.rint({0})"),
    "fract_f64": ("d", "d", "fract({0})"),
    "frexp_mant_f64": ("d", "d", "np.where(np.isfinite({0}), np.frexp({0})[0], {0})"),
    "frexp_exp_i32_f64": ("i", "d", "np.where(np.isfinite({0}), np.frexp({0})[1], 0).astype(i32)"),
    "ldexp_f64": ("d", "di", "np.ldexp({0}, {1})"),
    "cvt_f64_f32": ("d", "f", "{0}.astype(f64)"),
    "cvt_f32_f64": ("f", "d", "{0}.astype(f32)"),
    "cvt_f64_i32": ("d", "i", "{0}.astype(f64)"),
    "cvt_f64_u32": ("d", "u", "{0}.astype(f64)"),
    "cvt_i32_f64": ("i", "d", "to_i32({0})"),
    "cvt_u32_f64": ("u", "d", "to_u32({0})"),
}
for _name in ("add", "mul"):
    _F64[f"{_name}_num_f64"] = _F64[f"{_name}_f64"]

_F16 = {
    "add_f16": ("h", "hh", "{0} + {1}"),
    "sub_f16": ("h", "hh", "{0} - {1}"),
    "subrev_f16": ("h", "hh", "{1} - {0}"),
    "mul_f16": ("h", "hh", "{0} * {1}"),
    "fma_f16": ("h", "hhh", "fma16({0}, {1}, {2})"),
    "rcp_f16": ("h", "h", "(f32(1) / {0}.astype(f32)).astype(f16)"),
    "rsq_f16": ("h", "h", "undefined({0}, (1 / np.sqrt({0}.astype(f64))).astype(f16))"),
    "sqrt_f16": ("h", "h", "undefined({0}, np.sqrt({0}.astype(f32)).astype(f16))"),
    "exp_f16": ("h", "h", "np.exp2({0}.astype(f64)).astype(f16)"),
    "log_f16": ("h", "h", "undefined({0}, np.log2({0}.astype(f64)).astype(f16))"),
    "floor_f16": ("h", "h", "np.floor({0})"),
    "ceil_f16": ("h", "h", "np.ceil({0})"),
    "trunc_f16": ("h", "h", "np.trunc({0})"),
    "rndne_f16": ("h", "h", "np.rint({0})"),
    "fract_f16": ("h", "h", "fract({0})"),
    "sin_f16": ("h", "h", "undefined({0}, np.sin({0}.astype(f64) * (2 * np.pi)).astype(f16))"),
    "cos_f16": ("h", "h", "undefined({0}, np.cos({0}.astype(f64) * (2 * np.pi)).astype(f16))"),
    "frexp_mant_f16": ("h", "h", "np.where(np.isfinite({0}), np.frexp({0})[0], {0})"),
    "frexp_exp_i16_f16": ("s", "h", "np.where(np.isfinite({0}), np.frexp({0})[1], 0).astype(i16)"),
    "ldexp_f16": ("h", "hs", "np.ldexp({0}.astype(f64), {1}).astype(f16)"),
    "div_fixup_f16": ("h", "hhh", "({2}.astype(f32) / {1}.astype(f32)).astype(f16)"),
    "cvt_f16_i16": ("h", "s", "{0}.astype(f16)"),
    "cvt_f16_u16": ("h", "w", "{0}.astype(f16)"),
    "cvt_i16_f16": ("s", "h", "to_int({0}, i16)"),
    "cvt_u16_f16": ("w", "h", "to_int({0}, u16)"),
    "pack_b32_f16": ("u", "hh", "{0}.view(u16).astype(u32) | ({1}.view(u16).astype(u32) << u32(16))"),
}

_INT = {
    "mov_b32": ("u", "u", "{0}"),
    "mov_b64": ("U", "U", "{0}"),
    "mov_b16": ("w", "w", "{0}"),
    "accvgpr_read_b32": ("u", "u", "{0}"),
    "accvgpr_write_b32": ("u", "u", "{0}"),
    "accvgpr_mov_b32": ("u", "u", "{0}"),
    "add_u32": ("u", "uu", "{0} + {1}"),
    "sub_u32": ("u", "uu", "{0} - {1}"),
    "subrev_u32": ("u", "uu", "{1} - {0}"),
    "add_i32": ("u", "uu", "{0} + {1}"),
    "sub_i32": ("u", "uu", "{0} - {1}"),
    "mul_lo_u32": ("u", "uu", "{0} * {1}"),
    "mul_lo_i32": ("u", "uu", "{0} * {1}"),
    "mul_hi_u32": ("u", "uu", "(({0}.astype(u64) * {1}) >> u64(32)).astype(u32)"),
    "mul_hi_i32": ("i", "ii", "(({0}.astype(i64) * {1}) >> 32).astype(i32)"),
    "mul_u32_u24": ("u", "uu", "({0} & u32(0xFFFFFF)) * ({1} & u32(0xFFFFFF))"),
    "mul_i32_i24": ("i", "ii", "(({0} << 8) >> 8) * (({1} << 8) >> 8)"),
    "mul_hi_u32_u24": (
        "u",
        "uu",
        "((({0} & u32(0xFFFFFF)).astype(u64) * ({1} & u32(0xFFFFFF))) >> u64(32)).astype(u32)",
    ),
    "mul_hi_i32_i24": ("i", "ii", "(((({0} << 8) >> 8).astype(i64) * (({1} << 8) >> 8)) >> 32).astype(i32)"),
    "mad_u32_u24": ("u", "uuu", "({0} & u32(0xFFFFFF)) * ({1} & u32(0xFFFFFF)) + {2}"),
    "mad_i32_i24": ("i", "iii", "(({0} << 8) >> 8) * (({1} << 8) >> 8) + {2}"),
    "mad_u32": ("u", "uuu", "{0} * {1} + {2}"),
    "mad_u32_u16": ("u", "wwu", "{0}.astype(u32) * {1} + {2}"),
    "mad_i32_i16": ("i", "ssi", "{0}.astype(i32) * {1} + {2}"),
    "lshlrev_b32": ("u", "uu", "{1} << ({0} & u32(31))"),
    "lshrrev_b32": ("u", "uu", "{1} >> ({0} & u32(31))"),
    "ashrrev_i32": ("i", "ui", "{1} >> ({0} & u32(31)).astype(i32)"),
    "lshlrev_b64": ("U", "uU", "{1} << ({0} & u32(63)).astype(u64)"),
    "lshrrev_b64": ("U", "uU", "{1} >> ({0} & u32(63)).astype(u64)"),
    "ashrrev_i64": ("I", "uI", "{1} >> ({0} & u32(63)).astype(i64)"),
    "and_b32": ("u", "uu", "{0} & {1}"),
    "or_b32": ("u", "uu", "{0} | {1}"),
    "xor_b32": ("u", "uu", "{0} ^ {1}"),
    "xnor_b32": ("u", "uu", "~({0} ^ {1})"),
    "not_b32": ("u", "u", "~{0}"),
    "bfe_u32": ("u", "uuu", "bfe_u({0}, {1}, {2})"),
    "bfe_i32": ("i", "uuu", "bfe_i({0}, {1}, {2})"),
    "bfi_b32": ("u", "uuu", "({0} & {1}) | (~{0} & {2})"),
    "bfm_b32": ("u", "uu", "((u32(1) << ({0} & u32(31))) - u32(1)) << ({1} & u32(31))"),
    "alignbit_b32": ("u", "uuw", "alignbit({0}, {1}, {2})"),
    "alignbyte_b32": ("u", "uuw", "alignbit({0}, {1}, ({2} & u16(3)) * u16(8))"),
    "perm_b32": ("u", "uuu", "perm({0}, {1}, {2})"),
    "lshl_add_u32": ("u", "uuu", "({0} << ({1} & u32(31))) + {2}"),
    "add_lshl_u32": ("u", "uuu", "({0} + {1}) << ({2} & u32(31))"),
    "lshl_or_b32": ("u", "uuu", "({0} << ({1} & u32(31))) | {2}"),
    "lshl_add_u64": ("U", "UuU", "({0} << ({1} & u32(7))) + {2}"),
    "and_or_b32": ("u", "uuu", "({0} & {1}) | {2}"),
    "or3_b32": ("u", "uuu", "{0} | {1} | {2}"),
    "xor3_b32": ("u", "uuu", "{0} ^ {1} ^ {2}"),
    "add3_u32": ("u", "uuu", "{0} + {1} + {2}"),
    "xad_u32": ("u", "uuu", "({0} ^ {1}) + {2}"),
    "bcnt_u32_b32": ("u", "uu", "popcount({0}) + {1}"),
    "ffbh_u32": ("u", "u", "clz32({0})"),
    "clz_i32_u32": ("u", "u", "clz32({0})"),
    "ffbh_i32": ("i", "i", "sign_bits32({0})"),
    "cls_i32": ("i", "i", "sign_bits32({0})"),
    "ffbl_b32": ("u", "u", "ctz32({0})"),
    "ctz_i32_b32": ("u", "u", "ctz32({0})"),
    "bfrev_b32": ("u", "u", "bitreverse({0})"),
    "prng_b32": ("u", "u", "prng({0})"),
    "cvt_pk_u16_u32": ("u", "uu", "np.minimum({0}, u32(65535)) | (np.minimum({1}, u32(65535)) << u32(16))"),
    "cvt_pk_i16_i32": (
        "u",
        "ii",
        "np.clip({0}, -32768, 32767).astype(i16).view(u16).astype(u32)"
        " | (np.clip({1}, -32768, 32767).astype(i16).view(u16).astype(u32) << u32(16))",
    ),
    "add_u16": ("w", "ww", "{0} + {1}"),
    "sub_u16": ("w", "ww", "{0} - {1}"),
    "subrev_u16": ("w", "ww", "{1} - {0}"),
    "add_i16": ("s", "ss", "{0} + {1}"),
    "sub_i16": ("s", "ss", "{0} - {1}"),
    "mad_i16": ("s", "sss", "{0} * {1} + {2}"),
    "mul_lo_u16": ("w", "ww", "{0} * {1}"),
    "mad_u16": ("w", "www", "{0} * {1} + {2}"),
    "lshlrev_b16": ("w", "ww", "{1} << ({0} & u16(15))"),
    "lshrrev_b16": ("w", "ww", "{1} >> ({0} & u16(15))"),
    "ashrrev_i16": ("s", "ws", "{1} >> ({0} & u16(15)).astype(i16)"),
    "and_b16": ("w", "ww", "{0} & {1}"),
    "or_b16": ("w", "ww", "{0} | {1}"),
    "xor_b16": ("w", "ww", "{0} ^ {1}"),
    "not_b16": ("w", "w", "~{0}"),
    "lerp_u8": ("u", "uuu", "lerp({0}, {1}, {2})"),
    "cvt_u32_u16": ("u", "w", "{0}.astype(u32)"),
    "cvt_i32_i16": ("i", "s", "{0}.astype(i32)"),
    "mbcnt_lo_u32_b32": ("u", "uu", "popcount({0} & below_low) + {1}"),
    "mbcnt_hi_u32_b32": ("u", "uu", "popcount({0} & below_high) + {1}"),
}
# The same with clamp, over whole numbers that do not wrap; the result is brought into the range of its type.
_SATURATING = {
    "lerp_u8": ("u", "uuu", "lerp({0}, {1}, {2})"),
    "sad_u8": ("u", "uuu", "sad({0}, {1}, 8) + {2}"),
    "sad_hi_u8": ("u", "uuu", "(sad({0}, {1}, 8) << 16) + {2}"),
    "msad_u8": ("u", "uuu", "sad({0}, {1}, 8, True) + {2}"),
    "sad_u16": ("u", "uuu", "sad({0}, {1}, 16) + {2}"),
    "sad_u32": ("u", "uuu", "sad({0}, {1}, 32) + {2}"),
    "mad_u32_u24": ("u", "uuu", "({0} & 0xFFFFFF) * ({1} & 0xFFFFFF) + {2}"),
    "mad_i32_i24": ("i", "iii", "(({0} << 40) >> 40) * (({1} << 40) >> 40) + {2}"),
    "mad_u32_u16": ("u", "wwu", "{0} * {1} + {2}"),
    "mad_i32_i16": ("i", "ssi", "{0} * {1} + {2}"),
}
_INT |= {name: (*kinds, f"({text}).astype(u32)") for name, (*kinds, text) in _SATURATING.items() if "sad" in name}
_EXTREMES = {
    "max": "np.maximum({0}, {1})",
    "min": "np.minimum({0}, {1})",
    "max3": "np.maximum(np.maximum({0}, {1}), {2})",
    "min3": "np.minimum(np.minimum({0}, {1}), {2})",
    "med3": "median({0}, {1}, {2})",
    "maxmin": "np.minimum(np.maximum({0}, {1}), {2})",  # of 32 bits alone, as is the next
    "minmax": "np.maximum(np.minimum({0}, {1}), {2})",
}
for _name in ("mad_u16", "mad_i16"):
    _INT[_name.replace("mad_", "mad_legacy_")] = _INT[_name]
for _type, _letter in (("u32", "u"), ("i32", "i"), ("u16", "w"), ("i16", "s")):
    for _name, _expression in _EXTREMES.items():
        if "32" in _type or len(_name) < 5:
            _INT[f"{_name}_{_type}"] = (_letter, _letter * (3 if "{2}" in _expression else 2), _expression)
    _SATURATING[f"add_{_type}"] = (_letter, _letter * 2, "{0} + {1}")
    _SATURATING[f"sub_{_type}"] = (_letter, _letter * 2, "{0} - {1}")
    _SATURATING[f"subrev_{_type}"] = (_letter, _letter * 2, "{1} - {0}")
    if "16" in _type:
        _SATURATING[f"mad_{_type}"] = (_letter, _letter * 3, "{0} * {1} + {2}")
        _SATURATING[f"mad_legacy_{_type}"] = _SATURATING[f"mad_{_type}"]
    for _stem in ("add", "sub", "subrev"):
        if f"{_stem}_{_type}" in _INT:
            _INT[f"{_stem}_nc_{_type}"] = _INT[f"{_stem}_{_type}"]
        _SATURATING[f"{_stem}_nc_{_type}"] = _SATURATING[f"{_stem}_{_type}"]
SATURATING = {f"v_{name}": row for name, row in _SATURATING.items()}

_LARGEST = {
    "max{}": "vmax({0}, {1})",
    "min{}": "vmin({0}, {1})",
    "max3{}": "vmax(vmax({0}, {1}), {2})",
    "min3{}": "vmin(vmin({0}, {1}), {2})",
    "med3{}": "vmed({0}, {1}, {2})",
    "maxmin{}": "vmin(vmax({0}, {1}), {2})",
    "minmax{}": "vmax(vmin({0}, {1}), {2})",
    "maximum": "vmaximum({0}, {1})",
    "minimum": "vminimum({0}, {1})",
    "maximum3": "vmaximum(vmaximum({0}, {1}), {2})",
    "minimum3": "vminimum(vminimum({0}, {1}), {2})",
    "maximumminimum": "vminimum(vmaximum({0}, {1}), {2})",
    "minimummaximum": "vmaximum(vminimum({0}, {1}), {2})",
}
_FLOAT = {}
for _name, _expression in _LARGEST.items():
    for _type, _letter in (("f32", "f"), ("f16", "h"), ("f64", "d")):
        for _num in ("", "_num") if "{}" in _name else ("",):
            _row = (_letter, _letter * (3 if "{2}" in _expression else 2), _expression)
            _FLOAT[f"{_name.format(_num)}_{_type}"] = _row

VALU: dict[str, tuple[str, str, str]] = {
    f"v_{name}": row for name, row in {**_FLOAT, **_F32, **_F64, **_F16, **_INT}.items()
}

# On gfx9 a 16-bit result clears the high half, but for these (LLVM's GCNSubtarget::zeroesHigh16BitsOfDest, the ISA).
KEEPS_HIGH = frozenset(
    """v_fma_f16 v_mad_u16 v_mad_i16 v_div_fixup_f16 v_fmac_f16 v_fmaak_f16 v_fmamk_f16 v_med3_f16 v_max3_f16
    v_min3_f16 v_med3_i16 v_max3_i16 v_min3_i16 v_med3_u16 v_max3_u16 v_min3_u16 v_add_i16 v_sub_i16""".split()
)

# fmac and its like add to their result; fmaak and fmamk carry the constant as an operand.
ACCUMULATING = {
    "v_fmac_f32": ("f", "ff", "fma32({0}, {1}, {D})"),
    "v_mac_f32": ("f", "ff", "mad_flushed({0}, {1}, {D})"),
    "v_fmac_f16": ("h", "hh", "fma16({0}, {1}, {D})"),
    "v_fmac_f64": ("d", "dd", "fma64({0}, {1}, {D})"),
}
CONSTANT = {
    "v_fmaak_f32": ("f", "fff", "fma32({0}, {1}, {2})"),
    "v_fmamk_f32": ("f", "fff", "fma32({0}, {1}, {2})"),
    "v_madak_f32": ("f", "fff", "mad_flushed({0}, {1}, {2})"),
    "v_madmk_f32": ("f", "fff", "mad_flushed({0}, {1}, {2})"),
    "v_fmaak_f16": ("h", "hhh", "fma16({0}, {1}, {2})"),
    "v_fmamk_f16": ("h", "hhh", "fma16({0}, {1}, {2})"),
}
VALU |= CONSTANT

# Comparisons: condition -> expression; types by suffix.
CONDITIONS = {
    "lt": "{0} < {1}",
    "gt": "{0} > {1}",
    "le": "{0} <= {1}",
    "ge": "{0} >= {1}",
    "eq": "{0} == {1}",
    "ne": "{0} != {1}",
    "lg": "({0} < {1}) | ({0} > {1})",
    "neq": "~({0} == {1})",
    "nlt": "~({0} < {1})",
    "ngt": "~({0} > {1})",
    "nle": "~({0} <= {1})",
    "nge": "~({0} >= {1})",
    "nlg": "~(({0} < {1}) | ({0} > {1}))",
    "o": "~(np.isnan({0}) | np.isnan({1}))",
    "u": "np.isnan({0}) | np.isnan({1})",
}
COMPARED = {
    "f32": "f",
    "f64": "d",
    "f16": "h",
    "i32": "i",
    "u32": "u",
    "i64": "I",
    "u64": "U",
    "i16": "s",
    "u16": "w",
}

# Packed halves (and, for f32, packed pairs): the operation on each half.
PACKED = {
    "v_pk_add_f16": ("h", "{0} + {1}"),
    "v_pk_mul_f16": ("h", "{0} * {1}"),
    "v_pk_fma_f16": ("h", "fma16({0}, {1}, {2})"),
    "v_pk_max_f16": ("h", "vmax({0}, {1})"),
    "v_pk_min_f16": ("h", "vmin({0}, {1})"),
    "v_pk_max_num_f16": ("h", "vmax({0}, {1})"),
    "v_pk_min_num_f16": ("h", "vmin({0}, {1})"),
    "v_pk_add_u16": ("w", "{0} + {1}"),
    "v_pk_sub_u16": ("w", "{0} - {1}"),
    "v_pk_add_i16": ("w", "{0} + {1}"),
    "v_pk_sub_i16": ("w", "{0} - {1}"),
    "v_pk_mul_lo_u16": ("w", "{0} * {1}"),
    "v_pk_mad_u16": ("w", "{0} * {1} + {2}"),
    "v_pk_lshlrev_b16": ("w", "{1} << ({0} & u16(15))"),
    "v_pk_lshrrev_b16": ("w", "{1} >> ({0} & u16(15))"),
    "v_pk_ashrrev_i16": ("s", "{1} >> ({0} & i16(15))"),
    "v_pk_max_u16": ("w", "np.maximum({0}, {1})"),
    "v_pk_min_u16": ("w", "np.minimum({0}, {1})"),
    "v_pk_max_i16": ("s", "np.maximum({0}, {1})"),
    "v_pk_min_i16": ("s", "np.minimum({0}, {1})"),
    "v_pk_add_f32": ("f", "{0} + {1}"),
    "v_pk_mul_f32": ("f", "{0} * {1}"),
    "v_pk_fma_f32": ("f", "fma32({0}, {1}, {2})"),
    "v_pk_maximum_f16": ("h", "vmaximum({0}, {1})"),
    "v_pk_minimum_f16": ("h", "vminimum({0}, {1})"),
    "v_pk_maximum3_f16": ("h", "vmaximum(vmaximum({0}, {1}), {2})"),
    "v_pk_minimum3_f16": ("h", "vminimum(vminimum({0}, {1}), {2})"),
    "v_pk_mad_i16": ("s", "{0} * {1} + {2}"),
    "v_pk_mov_b32": ("u", None),
}
# With clamp: the type as which the operands are read and the result is brought into range.
PACKED_SATURATING = {
    f"v_pk_{_name}_{_type}": _letter
    for _name in ("add", "sub", "mad")
    for _type, _letter in (("u16", "w"), ("i16", "s"))
}
