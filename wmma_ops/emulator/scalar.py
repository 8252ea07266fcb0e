"""The scalar ALU: expressions over Python integers.

{0} {1} are the operands, unsigned; M is the mask of the width. A row is (width of result, widths of operands, expression,
expression of SCC or None); SCC may use r, the masked result, and t, the result before masking.
"""

_ONE = "r != 0"


def signed(text: str, width: int = 32) -> str:
    """An unsigned integer of so many bits as signed, without a call."""
    return f"(({text} ^ {1 << width - 1}) - {1 << width - 1})"


SALU: dict[str, tuple[int, tuple[int, ...], str, str | None]] = {
    "s_mov_b32": (32, (32,), "{0}", None),
    "s_mov_b64": (64, (64,), "{0}", None),
    "s_movk_i32": (32, (32,), "signed({0} & 0xFFFF, 16)", None),
    "s_add_u32": (32, (32, 32), "{0} + {1}", "t > 0xFFFFFFFF"),
    "s_sub_u32": (32, (32, 32), "{0} - {1}", "t < 0"),
    "s_addc_u32": (32, (32, 32), "{0} + {1} + S[128]", "t > 0xFFFFFFFF"),
    "s_subb_u32": (32, (32, 32), "{0} - {1} - S[128]", "t < 0"),
    "s_add_i32": (32, (32, 32), f"{signed('{0}')} + {signed('{1}')}", f"{signed('r')} != t"),
    "s_sub_i32": (32, (32, 32), f"{signed('{0}')} - {signed('{1}')}", f"{signed('r')} != t"),
    "s_addk_i32": (32, (32, 32), "signed({0}) + signed({1} & 0xFFFF, 16)", "signed(r) != t"),
    "s_mulk_i32": (32, (32, 32), "{0} * signed({1} & 0xFFFF, 16)", None),
    "s_mul_i32": (32, (32, 32), "{0} * {1}", None),
    "s_mul_hi_u32": (32, (32, 32), "({0} * {1}) >> 32", None),
    "s_mul_hi_i32": (32, (32, 32), "(signed({0}) * signed({1})) >> 32", None),
    "s_mul_u64": (64, (64, 64), "{0} * {1}", None),
    "s_add_u64": (64, (64, 64), "{0} + {1}", None),
    "s_sub_u64": (64, (64, 64), "{0} - {1}", None),
    "s_add_nc_u64": (64, (64, 64), "{0} + {1}", None),
    "s_sub_nc_u64": (64, (64, 64), "{0} - {1}", None),
    "s_abs_i32": (32, (32,), "abs(signed({0}))", _ONE),
    "s_sext_i32_i8": (32, (32,), "signed({0} & 0xFF, 8)", None),
    "s_sext_i32_i16": (32, (32,), "signed({0} & 0xFFFF, 16)", None),
    "s_bfe_u32": (32, (32, 32), "({0} >> ({1} & 31)) & ((1 << ({1} >> 16 & 0x7F)) - 1)", _ONE),
    "s_bfe_u64": (64, (64, 32), "({0} >> ({1} & 63)) & ((1 << ({1} >> 16 & 0x7F)) - 1)", _ONE),
    "s_bfe_i32": (
        32,
        (32, 32),
        "signed(({0} >> ({1} & 31)) & ((1 << ({1} >> 16 & 0x7F)) - 1), max({1} >> 16 & 0x7F, 1))",
        _ONE,
    ),
    "s_bfm_b32": (32, (32, 32), "((1 << ({0} & 31)) - 1) << ({1} & 31)", None),
    "s_bfm_b64": (64, (32, 32), "((1 << ({0} & 63)) - 1) << ({1} & 63)", None),
    "s_brev_b32": (32, (32,), "int(format({0}, '032b')[::-1], 2)", None),
    "s_bcnt1_i32_b32": (32, (32,), "{0}.bit_count()", _ONE),
    "s_bcnt1_i32_b64": (32, (64,), "{0}.bit_count()", _ONE),
    "s_bcnt0_i32_b32": (32, (32,), "32 - {0}.bit_count()", _ONE),
    "s_bcnt0_i32_b64": (32, (64,), "64 - {0}.bit_count()", _ONE),
    "s_ff1_i32_b32": (32, (32,), "({0} & -{0}).bit_length() - 1", None),
    "s_ff1_i32_b64": (32, (64,), "({0} & -{0}).bit_length() - 1", None),
    "s_flbit_i32_b32": (32, (32,), "32 - ({0}).bit_length() if {0} else -1", None),
    "s_flbit_i32_b64": (32, (64,), "64 - ({0}).bit_length() if {0} else -1", None),
    "s_ff0_i32_b32": (32, (32,), "(~{0} & ({0} + 1)).bit_length() - 1 if {0} != 0xFFFFFFFF else -1", None),
    "s_ff0_i32_b64": (32, (64,), "(~{0} & ({0} + 1)).bit_length() - 1 if {0} + 1 >> 64 == 0 else -1", None),
    "s_flbit_i32": (32, (32,), "sign_bits({0}, 32)", None),
    "s_flbit_i32_i64": (32, (64,), "sign_bits({0}, 64)", None),
    "s_bfe_i64": (
        64,
        (64, 32),
        "signed(({0} >> ({1} & 63)) & ((1 << ({1} >> 16 & 0x7F)) - 1), max({1} >> 16 & 0x7F, 1))",
        _ONE,
    ),
    "s_bitreplicate_b64_b32": (64, (32,), "int(''.join(bit * 2 for bit in format({0}, '032b')), 2)", None),
    "s_brev_b64": (64, (64,), "int(format({0}, '064b')[::-1], 2)", None),
    "s_cselect_b32": (32, (32, 32), "{0} if S[128] else {1}", None),
    "s_cselect_b64": (64, (64, 64), "{0} if S[128] else {1}", None),
    "s_pack_ll_b32_b16": (32, (32, 32), "({0} & 0xFFFF) | (({1} & 0xFFFF) << 16)", None),
    "s_pack_lh_b32_b16": (32, (32, 32), "({0} & 0xFFFF) | ({1} & 0xFFFF0000)", None),
    "s_pack_hh_b32_b16": (32, (32, 32), "({0} >> 16) | ({1} & 0xFFFF0000)", None),
    "s_pack_hl_b32_b16": (32, (32, 32), "({0} >> 16) | (({1} & 0xFFFF) << 16)", None),
    "s_min_u32": (32, (32, 32), "min({0}, {1})", "{0} < {1}"),
    "s_max_u32": (32, (32, 32), "max({0}, {1})", "{0} >= {1}"),
    "s_min_i32": (32, (32, 32), "min(signed({0}), signed({1}))", "signed({0}) < signed({1})"),
    "s_max_i32": (32, (32, 32), "max(signed({0}), signed({1}))", "signed({0}) >= signed({1})"),
    "s_absdiff_i32": (32, (32, 32), "abs(signed(({0} - {1}) & 0xFFFFFFFF))", _ONE),
    "s_getpc_b64": (64, (), "0", None),
    "s_bitset0_b32": (32, (32,), "{D} & ~(1 << ({0} & 31))", None),
    "s_bitset0_b64": (64, (32,), "{D} & ~(1 << ({0} & 63))", None),
    "s_bitset1_b64": (64, (32,), "{D} | (1 << ({0} & 63))", None),
    "s_bitset1_b32": (32, (32,), "{D} | (1 << ({0} & 31))", None),
    "s_cvt_f32_i32": (32, (32,), "int(f32(signed({0})).view(u32))", None),
    "s_cvt_f32_u32": (32, (32,), "int(f32({0}).view(u32))", None),
    "s_cvt_i32_f32": (32, (32,), "int(to_i32(sf32({0})))", None),
    "s_cvt_u32_f32": (32, (32,), "int(to_u32(sf32({0})))", None),
}
# Floats of 32 and 16 bits.
for _name, _expression in {
    "add": "{a} + {b}",
    "sub": "{a} - {b}",
    "mul": "{a} * {b}",
    "fmac": "fma({a}, {b}, {d})",
    "fmaak": "fma({a}, {b}, {c})",
    "fmamk": "fma({a}, {b}, {c})",
    "max": "vmax({a}, {b})",
    "min": "vmin({a}, {b})",
    "max_num": "vmax({a}, {b})",
    "min_num": "vmin({a}, {b})",
    "maximum": "vmaximum({a}, {b})",
    "minimum": "vminimum({a}, {b})",
    "ceil": "np.ceil({a})",
    "floor": "np.floor({a})",
    "trunc": "np.trunc({a})",
    "rndne": "np.rint({a})",
}.items():
    for _width, _view in ((32, "u32"), (16, "u16")):
        if _width == 16 and _name.endswith("k"):
            continue
        _read = {key: f"sf{_width}({value})" for key, value in (("a", "{0}"), ("b", "{1}"), ("c", "{2}"), ("d", "{D}"))}
        _sources = 1 if "{b}" not in _expression else 3 if "{c}" in _expression else 2
        _text = _expression.replace("fma(", f"fma{_width}(").format(**_read)
        SALU[f"s_{_name}_f{_width}"] = (32, (_width,) * _sources, f"int(np.asarray({_text}).view({_view}))", None)
SALU["s_cvt_f32_f16"] = (32, (16,), "int(sf16({0}).astype(f32).view(u32))", None)
SALU["s_cvt_hi_f32_f16"] = (32, (32,), "int(sf16({0} >> 16).astype(f32).view(u32))", None)
SALU["s_cvt_f16_f32"] = (32, (32,), "int(sf32({0}).astype(f16).view(u16))", None)
SALU["s_cvt_pk_rtz_f16_f32"] = (
    32,
    (32, 32),
    "int(rtz16(sf32({0})).view(u16)) | int(rtz16(sf32({1})).view(u16)) << 16",
    None,
)
SALU["s_ctz_i32_b32"] = SALU["s_ff1_i32_b32"]
SALU["s_ctz_i32_b64"] = SALU["s_ff1_i32_b64"]
SALU["s_clz_i32_u32"] = SALU["s_flbit_i32_b32"]
SALU["s_clz_i32_u64"] = SALU["s_flbit_i32_b64"]
SALU["s_cls_i32"] = SALU["s_flbit_i32"]
SALU["s_cls_i32_i64"] = SALU["s_flbit_i32_i64"]
SALU["s_add_co_u32"] = SALU["s_add_u32"]
SALU["s_sub_co_u32"] = SALU["s_sub_u32"]
SALU["s_add_co_ci_u32"] = SALU["s_addc_u32"]
SALU["s_sub_co_ci_u32"] = SALU["s_subb_u32"]
SALU["s_add_co_i32"] = SALU["s_add_i32"]
SALU["s_sub_co_i32"] = SALU["s_sub_i32"]
SALU["s_addk_co_i32"] = SALU["s_addk_i32"]

for _width, _suffix in ((32, "b32"), (64, "b64")):
    for _name, _expression in {
        "and": "{0} & {1}",
        "or": "{0} | {1}",
        "xor": "{0} ^ {1}",
        "nand": "~({0} & {1})",
        "nor": "~({0} | {1})",
        "xnor": "~({0} ^ {1})",
        "andn2": "{0} & ~{1}",
        "orn2": "{0} | ~{1}",
        "and_not1": "{0} & ~{1}",
        "or_not1": "{0} | ~{1}",
    }.items():
        SALU[f"s_{_name}_{_suffix}"] = (_width, (_width, _width), _expression, _ONE)
    SALU[f"s_not_{_suffix}"] = (_width, (_width,), "~{0}", _ONE)
    SALU[f"s_wqm_{_suffix}"] = (_width, (_width,), "wqm({0})", _ONE)
    SALU[f"s_quadmask_{_suffix}"] = (
        _width,
        (_width,),
        f"sum(1 << i for i in range({_width // 4}) if {{0}} >> 4 * i & 15)",
        _ONE,
    )
    SALU[f"s_lshl_{_suffix}"] = (_width, (_width, 32), f"{{0}} << ({{1}} & {_width - 1})", _ONE)
    SALU[f"s_lshr_{_suffix}"] = (_width, (_width, 32), f"{{0}} >> ({{1}} & {_width - 1})", _ONE)
    SALU[f"s_ashr_i{_width}"] = (
        _width,
        (_width, 32),
        f"signed({{0}}, {_width}) >> ({{1}} & {_width - 1})",
        _ONE,
    )
for _n in (1, 2, 3, 4):
    SALU[f"s_lshl{_n}_add_u32"] = (32, (32, 32), f"({{0}} << {_n}) + {{1}}", "t > 0xFFFFFFFF")

# saveexec: result = exec, exec = f(source, exec)
SAVEEXEC = {
    "and": "x & e",
    "or": "x | e",
    "xor": "x ^ e",
    "andn2": "x & ~e",
    "orn2": "x | ~e",
    "andn1": "~x & e",
    "orn1": "~x | e",
    "and_not0": "~x & e",
    "or_not0": "~x | e",
    "and_not1": "x & ~e",
    "or_not1": "x | ~e",
    "nand": "~(x & e)",
    "nor": "~(x | e)",
    "xnor": "~(x ^ e)",
}

COMPARE = {
    "eq": "==",
    "lg": "!=",
    "gt": ">",
    "ge": ">=",
    "lt": "<",
    "le": "<=",
}

# Without an effect here: waiting, hints, caches, counters. (Barriers and ends are not among them.)
IGNORED = tuple(
    """
    s_waitcnt s_nop s_clause s_delay_alu s_wait_ s_setprio s_inst_prefetch s_set_inst_prefetch_distance s_code_end
    s_dcache_inv s_dcache_wb s_atc_probe s_icache_ s_ttracedata s_sched s_prefetch buffer_wbl2
    buffer_inv buffer_gl0_inv buffer_gl1_inv buffer_wbinvl1 global_wb global_inv global_wbinv s_version
    s_incperflevel s_decperflevel v_nop s_monitor_sleep
    """.split()
)
