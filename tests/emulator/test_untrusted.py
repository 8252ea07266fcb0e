"""Code objects and cache entries that others made: none of them runs Python, and each that is not right ends in a named
error, in bounded time and memory.
"""

import ast
import builtins
import collections
import dataclasses
import random
import re
import resource
import struct
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from typed import typed
from user_kernels import HEAD

import wmma_ops
from wmma_ops import jit
from wmma_ops.emulator import (
    EmulationError,
    Trap,
    UnknownInstruction,
    assembly,
    launching,
    program,
    reading,
    scalar_code,
)
from wmma_ops.jit import CodeObject, cache, code_object, disassembler, elf
from wmma_ops.runtime import foreign

# Branches, a barrier, shared and scratch memory, a function, constants, variables, atomics and a matrix instruction.
SOURCE = (
    HEAD
    + """
#include <wmma/fragment.hpp>
__device__ __constant__ float table[5] = {1, 2, 4, 8, 16};
__device__ float count = 0.5f;
__device__ float room[300];
__device__ const float* const chosen[2] = {table + 1, &count};
__device__ __attribute__((noinline)) float looked_up(float x, int i) { return count * x * table[i] + *chosen[i & 1]; }
extern "C" __global__ void mixed(float* x, const wmma::half_t* y, int n, float factor) {
  __shared__ float s[256];
  float own[8];
  const int i = threadIdx.x;
  for (int j = 0; j < n % 8; ++j) own[(i + j) % 8] = factor * j;
  s[i] = looked_up(float(y[i]), i % 5);
  wmma::sync_workgroup();
  wmma::fragment<wmma::matrix_a, 16, 16, 16, wmma::half_t, wmma::row_major> a;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, wmma::half_t, wmma::row_major> b;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
  wmma::load_matrix_sync(a, y, 16);
  wmma::load_matrix_sync(b, y, 16);
  wmma::fill_fragment(c, s[255 - i] * 0 + 1);
  wmma::mma_sync(c, a, b, c);
  wmma::store_matrix_sync(x, c, 16, wmma::mem_row_major);
  if (n > 3) x[256 + i] = s[n - 3] + own[n % 8] + room[n];
  wmma::atomic_add(&room[n], factor);
}"""
)
TARGETS = ("gfx942", "gfx1100", "gfx1201")
SEED, COUNT = 1, 40  # others find more
BUDGET = 20_000
SECONDS, BYTES = 20, 1 << 30  # of the processor's time and of memory: more than any of them takes


def _compiled(target: str) -> CodeObject:
    return wmma_ops.Kernel(SOURCE, "mixed")._compile_named(target)  # as it is compiled to be emulated


def _outcome(run) -> str:
    """In a word or a line, what came of it; raises what is no named error."""
    start, held = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        run()
        told = "ran"
    except (EmulationError, code_object.CodeObjectError) as error:
        told = f"{type(error).__name__}: {error}"
    except (ValueError, TypeError) as error:  # of the call, which names its kernel
        if not str(error).startswith("mixed: ") and "is not in the compiled code" not in str(error):
            raise
        told = str(error)
    assert time.process_time() - start < SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held < BYTES >> 10
    return told


needs_disassembler = pytest.mark.skipif(
    not disassembler.available(),
    reason=f"no {disassembler.PACKAGE} here (pip install {disassembler.PACKAGE}): NO CODE OBJECT IS DISASSEMBLED",
)


# ---------------------------------------------------------------------------------------- what becomes generated Python

CALL = "canary()"  # as Python it would be seen


@pytest.fixture
def called(monkeypatch):
    """What was run as Python."""
    calls = []
    monkeypatch.setattr(builtins, "canary", lambda: calls.append(1) or 0, raising=False)
    return calls


def _executed(line: str):
    kernel = assembly.KernelText("k", [assembly.parse_instruction(text) for text in (line, "s_endpgm")])
    launching.launch(program.build(kernel, "gfx942"), (1, 1, 1), (64, 1, 1), b"", [])


LINES = f"""s_trap {CALL}
s_trap 3+{CALL}
s_trap 3,{CALL}
s_trap {CALL} 3
s_sleep {CALL}
s_getreg_b32 s0, {CALL}
s_mov_b32 s0, lit({CALL})
s_mov_b32 s[{CALL}:1], 0
v_mov_b32 v0, |{CALL}|
v_mov_b32_dpp v0, v0 row_shl:{CALL}
v_mov_b32_dpp v0, v0 quad_perm:[{CALL},1,2,3]
v_{CALL} v0, v0
ds_swizzle_b32 v0, v0 offset:swizzle(SWAP,{CALL})
v_pk_add_f16 v0, v0, v0 op_sel:[{CALL}]
s_load_dword s0, s[0:1], {CALL}
global_load_dword v0, v0, s[0:1] offset:{CALL}""".splitlines()


@pytest.mark.parametrize("line", LINES)
def test_no_text_of_an_instruction_becomes_python(line, called):
    with pytest.raises(EmulationError):
        _executed(line)
    assert not called


# One of each form that the code of instructions tells apart.
FORMS = """s_trap 2
s_sleep 1
s_barrier_wait -1
s_setpc_b64 s[4:5]
s_cbranch_scc0 .L1
s_getreg_b32 s0, hwreg(HW_REG_SHADER_CYCLES, 0, 20)
s_bitcmp1_b32 s0, 3
s_cmp_eq_u64 s[0:1], 0
s_cmpk_lt_i32 s0, 0xffff
s_addk_i32 s0, 5
s_and_saveexec_b64 s[0:1], vcc
s_movrels_b32 s0, s1
s_movreld_b64 s[0:1], s[2:3]
s_cmovk_i32 s0, 3
s_memtime s[0:1]
s_sendmsg_rtn_b32 s0, sendmsg(MSG_RTN_GET_DOORBELL)
s_set_gpr_idx_on s0, gpr_idx(SRC0,DST)
s_load_dwordx4 s[0:3], s[4:5], 0x10
s_buffer_load_dword s0, s[0:3], s5
s_store_dword s0, s[4:5], 0x10
s_atomic_add s0, s[4:5], 4 glc
v_add_f32_e64 v0, -v1, |v2| clamp
v_add_f32_sdwa v0, v1, v2 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_2 src1_sel:DWORD
v_mov_b32_dpp v0, v1 row_shl:1 row_mask:0xf bank_mask:0xf bound_ctrl:1
v_mov_b32_dpp v0, v1 quad_perm:[1,0,3,2]
v_pk_fma_f16 v0, v1, v2, v3 op_sel:[0,1,0] op_sel_hi:[1,0,1] neg_lo:[0,1,0]
v_pk_mov_b32 v[0:1], v[2:3], s[4:5] op_sel:[0,1]
v_pk_add_f16 v0, v1, 0x3c003c00
v_cmp_class_f32_e64 s[0:1], v0, 3
v_cmpx_lt_u32_e64 s[0:1], v0, v1
v_cndmask_b32_e64 v0, -v1, v2, s[0:1]
v_addc_co_u32_e64 v0, vcc, v1, v2, vcc
v_mad_u64_u32 v[0:1], s[0:1], v2, v3, v[4:5]
v_div_scale_f32 v0, vcc, v1, v2, v3
v_fma_mix_f32 v0, v1, v2, v3 op_sel_hi:[1,0,0]
v_cvt_f32_fp8_sdwa v0, v1 src0_sel:BYTE_1
v_cvt_pk_fp8_f32 v0, v1, v2 op_sel:[0,0,1]
v_dot4_i32_i8 v0, v1, v2, v3 clamp
v_dot2_f32_f16 v0, v1, v2, v3
v_bitop3_b32 v0, v1, v2, v3 bitop3:0x15
v_cvt_scalef32_pk_fp4_f32 v0, v1, v2, v3 op_sel:[0,0,1,0]
v_cvt_scalef32_pk32_f32_fp6 v[0:31], v[32:37], v40
v_readlane_b32 s0, v0, 3
v_writelane_b32 v0, s0, 3
v_readfirstlane_b32 s0, v0
v_permlane32_swap_b32 v0, v1
v_permlanex16_b32 v0, v1, s0, s1 op_sel:[1,0]
v_movrelsd_b32 v0, v1
v_swap_b32 v0, v1
v_mfma_f32_16x16x16_f16 a[0:3], v[0:1], v[2:3], 0 cbsz:0 abid:0 blgp:0
v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:19], v[0:3], v20, v21 op_sel:[0,0] op_sel_hi:[0,0] cbsz:0 blgp:0
v_smfmac_f32_16x16x32_f16 v[0:3], v[4:5], v[6:9], v10 cbsz:0 abid:1
global_load_dwordx2 v[0:1], v2, s[0:1] offset:16 sc0
global_store_short_d16_hi v[0:1], v2, off
global_atomic_cmpswap v0, v1, v[2:3], s[0:1] glc
global_load_lds_dword v[0:1], off offset:4
flat_load_dword v0, v[1:2] offset:4
scratch_store_dword v0, v1, s0 offset:4
buffer_load_dword v0, v[1:2], s[0:3], s4 idxen offen offset:4
buffer_load_dword v1, s[0:3], 0 offen lds
buffer_atomic_add v0, v1, s[0:3], 0 offen glc
ds_read2st64_b32 v[0:1], v2 offset0:1 offset1:2
ds_write_b64 v0, v[2:3] offset:8
ds_bpermute_b32 v0, v1, v2 offset:4
ds_swizzle_b32 v0, v1 offset:swizzle(BITMASK_PERM,"01pip")
ds_swizzle_b32 v0, v1 offset:0x8000
ds_cmpst_rtn_b32 v0, v1, v2, v3
ds_read_b64_tr_b16 v[0:1], v2""".splitlines()


@pytest.mark.parametrize("target", [*TARGETS, "gfx950"])
def test_no_part_of_any_instruction_is_in_what_is_compiled(target, monkeypatch):
    """Each form of instructions, and all that a kernel has, with a call in place of each of its parts."""
    kernel = assembly.parse(_compiled(target).assembly).kernels["mixed"]
    alone = assembly.KernelText(
        "k", [assembly.parse_instruction("s_endpgm")], facts={"wavefront_size": kernel.facts["wavefront_size"]}
    )
    flow, known = program._flow(alone), 0
    flow.linked.labels[".L1"] = 0
    written = []

    def noted(lines, *rest, own=program.templates.template):
        written.extend(lines)
        return own(lines, *rest)

    monkeypatch.setattr(program.templates, "template", noted)
    monkeypatch.setattr(program, "_templates", {})
    for text in dict.fromkeys(
        [*FORMS, *(re.sub(r"\d+", "1", ins.text.split(" ::")[0]) for ins in kernel.instructions)]
    ):
        known += _written(text, target, alone, flow)
        parts = [part.span() for part in re.finditer(r"[\w.$@]+|\[[^]]*\]", text)]
        for start, stop in parts:
            for instead in (CALL, f"0+{CALL}", f"0,{CALL}", f"[{CALL}]", f"|{CALL}|", f"neg({CALL})", f"v0 {CALL}"):
                _written(text[:start] + instead + text[stop:], target, alone, flow)
    assert known > 60, known
    assert written
    assert not [line for line in written if "canary" in line]


def _written(text: str, target: str, kernel, flow) -> bool:
    """Whether the instruction is known."""
    builder = program.Builder(kernel, target, flow, None)
    try:
        ins = assembly.parse_instruction(text)
        write = (lambda renamed: program._leave(builder, renamed, 0, 0)) if program._leaves(ins.mnemonic) else None
        builder.add(program.Steps(), ins, write)
    except (UnknownInstruction, ValueError):
        return False
    return not builder.unknown


def test_a_generator_that_writes_text_is_found_out(called, monkeypatch):
    """The defect, planted: an instruction's operand goes into the code as it stands."""
    with pytest.raises(Trap, match="s_trap 2"):
        _executed("s_trap 2")
    for wrong in (lambda ops: f"st.trap({ops[0]})", lambda ops: "st.trap(" + ops[0] + ")", lambda ops: ops[0].strip()):

        def planted(self, m, ins, wrong=wrong):
            self.emit(wrong(ins.operands))
            return True

        monkeypatch.setattr(program, "_templates", {})
        monkeypatch.setattr(scalar_code.ScalarCode, "_scalar_others", planted)
        with pytest.raises(UnknownInstruction, match=r"the text .*of an instruction"):
            _executed("s_trap 2")
    # And where it is not, the operand is no call.
    monkeypatch.setattr(reading, "Text", str)
    with pytest.raises(UnknownInstruction, match="operand 'canary"):
        _executed(f"s_trap {CALL}")
    assert not called


def test_python_is_generated_in_one_place():
    """And no code of instructions puts their text into what it writes."""
    package = Path(wmma_ops.__file__).parent
    runs = re.compile(r"(?<![\w.])(exec|eval)\(")
    assert [path.name for path in package.rglob("*.py") if runs.search(path.read_text())] == ["templates.py"]
    folder = package / "emulator"
    for path in (*folder.glob("*_code.py"), folder / "writer.py", folder / "program.py"):
        tree = ast.parse(path.read_text())
        told = {id(part) for node in ast.walk(tree) if isinstance(node, ast.Raise) for part in ast.walk(node)}
        for node in ast.walk(tree):
            if isinstance(node, ast.FormattedValue) and node.conversion != ord("r") and id(node) not in told:
                written = ast.unparse(node.value)
                assert not re.fullmatch(
                    r"(ins\.)?(ops|operands|mods|modifiers|text|mnemonic|sources)(\[.*\])?", written
                ), f"{path.name}:{node.lineno}: {written}"


@pytest.mark.parametrize("name", ["mi\ned", "mi\txd", "mi:ed", "mi;ed", "mi ed", "mi'ed", "mi(ed", "mi\x1bed", "m/../"])
def test_names_that_no_assembler_has_are_refused(name, tmp_path, capsys):
    path = tmp_path / "a.co"
    code = _compiled("gfx942").code
    assert code.count(b"mixed") >= 4
    path.write_bytes(code.replace(b"mixed", name.encode()))
    done = typed(capsys, "run", str(path))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert re.search(r" is no name", done.stderr)
    # One of a variable alone.
    path.write_bytes(code.replace(b"\0room\0", b"\0" + name[:4].encode() + b"\0"))
    with pytest.raises(code_object.CodeObjectError, match="is no name"):
        code_object.assembly(code_object.read(path))


@pytest.mark.parametrize(
    ("word", "instead"),
    [(b".sgpr_spill_count", b".sgpr\nspill_count"), (b"by_value", b"by\nvalue"), (b"\xa8mixed.kd", b"\xa8mixe\n.kd")],
)
def test_metadata_writes_no_directives(word, instead, tmp_path):
    code, path = _compiled("gfx942").code, tmp_path / "a.co"
    assert word in code
    path.write_bytes(code.replace(word, instead))
    with pytest.raises(code_object.CodeObjectError, match=r"\\n.*' is no name"):
        code_object.read(path)


# ------------------------------------------------------------------------------------------------------------- limits


@needs_disassembler
def test_a_gigabyte_that_a_file_of_some_kilobytes_asks_for(tmp_path, monkeypatch):
    path = tmp_path / "a.co"
    source = HEAD + 'extern "C" __global__ void mixed(int* x) { x[threadIdx.x] = ROOM; }'
    source = source.replace('extern "C"', '__device__ char room[1 << 30];\nextern "C"', 1)

    def run(what: str) -> str:
        path.write_bytes(jit.compile(source.replace("ROOM", what), "gfx942", name="mixed.hip").code)
        assert len(path.read_bytes()) < 10_000
        kernel, x = foreign.read(path), torch.full((64,), -1, dtype=torch.int32)

        def launch():
            with wmma_ops.emulate("gfx942"):
                kernel[1, 64](x)
            assert int(x.sum()) == 0

        return _outcome(launch)

    assert run("room[x[threadIdx.x] & 7]") == (
        "TooLarge: the constants and variables of mixed: 1,073,741,824 bytes; the emulator gives a kernel up to 268,435,456 "
        "(WMMA_OPS_EMULATED_MIB raises it)"
    )
    monkeypatch.setenv("WMMA_OPS_EMULATED_MIB", "1024")
    assert run("room[x[threadIdx.x] & 7]") == "ran"
    monkeypatch.setenv("WMMA_OPS_EMULATED_MIB", "plenty")
    assert "WMMA_OPS_EMULATED_MIB is 'plenty'; takes a number of MiB" in run("room[x[threadIdx.x] & 7]")


@needs_disassembler
@pytest.mark.parametrize(
    ("at", "value", "text"),
    [
        (
            4,
            0xFFFFFFFF,
            r"TooLarge: the scratch memory of a block of mixed: 1,\d+,\d+,\d+,\d+ bytes; the emulator gives",
        ),
        (0, 0xFFFFFFFF, r"group_segment_fixed_size is 4294967295; takes 0 to 1048576"),
        (58, 0xFFFF, r"user_sgpr_kernarg_preload_length is 127; takes 0 to 32"),
        (58, 0xFF90, r"16 words of its arguments from word 511 on lie in registers as it begins"),
    ],
)
def test_a_descriptor_that_asks_for_what_is_not_there(at, value, text, tmp_path):
    code = bytearray(_compiled("gfx942").code)
    place = next(one for one in elf.symbols(code) if one.name == "mixed.kd").address
    section = next(one for one in elf.sections(code) if one.address <= place < one.address + one.size)
    at += code.index(section.contents) + place - section.address
    form = "<H" if value <= 0xFFFF else "<I"
    code[at : at + struct.calcsize(form)] = struct.pack(form, value)
    assert re.search(text, _outcome(lambda: _run_file(tmp_path / "a.co", bytes(code), "gfx942")))


def test_what_a_file_of_overlapping_sections_or_deep_lists_asks_for(tmp_path):
    """As many times its own size as it has sections; a recursion of its length."""
    code, path = _compiled("gfx942").code, tmp_path / "a.co"
    (table,) = struct.unpack_from("<Q", code, 0x28)
    sections = bytearray(code)
    for number in range(1, 5):
        struct.pack_into("<QQ", sections, table + 64 * number + 24, 0, len(code))
    headers = code[:0x3A] + b"\0\0" + code[0x3C:]
    note = next(one for one in elf.sections(code) if one.name == ".note").contents
    lists = code.replace(note[20:], b"\x91" * (len(note) - 20))
    for damaged, text in ((bytes(sections), "sections overlap"), (headers, "0 bytes"), (lists, "damaged")):
        path.write_bytes(damaged)
        with pytest.raises(code_object.CodeObjectError, match=text):
            code_object.read(path)


# ------------------------------------------------------------------------------------------------------- code objects


def _damaged(code: bytes, rng: random.Random) -> bytes:
    """With some bytes changed, near each other in a section, the file's head or its table of sections; or cut off."""
    found, sections = bytearray(code), [one for one in elf.sections(code) if one.contents and one.kind != elf.NOBITS]
    places = [(0, 64), (len(code) - 64 * len(sections), len(code))]
    places += [(start := code.index(one.contents), start + len(one.contents)) for one in sections]
    first = rng.randrange(*rng.choice(places))
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        at = min(first + rng.randrange(16), len(code) - 1)
        found[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256), found[at] ^ 1 << rng.randrange(8)))
    return bytes(found[: rng.randrange(len(code))] if rng.random() < 0.02 else found)


def _run_file(path, content: bytes, target: str) -> None:
    """As `python -m wmma_ops run` does."""
    path.write_bytes(content)
    kernel = foreign.ForeignKernel(code_object.read(path, target), "mixed")
    x, y = torch.zeros(1024), torch.ones(256).half()
    with wmma_ops.emulate(target, budget=BUDGET):
        kernel[1, 256](x, y, np.int32(5), 2.0)


@needs_disassembler
@pytest.mark.parametrize("target", TARGETS)
def test_mutated_code_objects(target, tmp_path):
    code, rng = _compiled(target).code, random.Random(SEED)
    seen = collections.Counter()
    for number in range(COUNT):
        content = _damaged(code, rng)
        try:
            told = _outcome(lambda: _run_file(tmp_path / "a.co", content, target))  # noqa: B023
        except BaseException:
            print(f"seed {SEED}, number {number} of {target}", file=sys.stderr)
            raise
        seen[told.split(":")[0].split(" ")[0]] += 1
    assert len(seen) > 1, seen  # some run, some do not


# ----------------------------------------------------------------------------------------- entries of the cache's folder


_TOKEN = re.compile(r"[\w.$@]+|\|[^|]*\||\[[^]]*\]")
_INSTEAD = (
    CALL, f"0+{CALL}", f"0 if {CALL} else 1", f"v0 or {CALL}", f"[{CALL}]", f"neg({CALL})", f"|{CALL}|", f"lit({CALL})",
    f"hwreg({CALL})", f"0\n\ts_trap {CALL}", f"'{CALL}'", f"0#{CALL}", f"offset:{CALL}", f"v0_u,{CALL}", "k0", "st.halt()",
    "v[5:2]", "v[0:255]", "v255", "v999999999999", "v[7:999999999]", "s106", "s[100:131]", "ttmp15", "exec", "null", "off",
    "a0", "m0", "vcc", "-1", "0x123456789abcdef01", "1_0", "\u0663", "1e400", "0.5", "-v0", "mixed", ".LBB0_1",
    "999999999999",
)  # fmt: skip
_LINES = (
    ".zero 999999999999", ".quad mixed-9", ".quad room+99999999999", ".amdhsa_next_free_vgpr 999999999999",
    ".amdhsa_accum_offset -999999999", ".amdhsa_private_segment_fixed_size 4294967295", ".amdhsa_user_sgpr_count 31",
    ".amdhsa_group_segment_fixed_size 99999999999", ".amdhsa_user_sgpr_kernarg_preload_length 32",
    "    .vgpr_count: 99999999",
    "    .kernarg_segment_size: 99999999999", "s_sleep 999999999999", "s_barrier", f"s_trap {CALL}", f"    .name: {CALL}",
    ".amdhsa_uses_dynamic_stack 1", f"{CALL}:", ".section .bss", ".text", "s_setpc_b64 s[0:1]", "s_branch .LBB0_1",
)  # fmt: skip


def _changed(text: str, rng: random.Random) -> str:
    """With some of its names, operands and directives exchanged, lost, doubled or added."""
    lines = text.splitlines()
    for _ in range(rng.choice((1, 1, 2, 5))):
        at, way = rng.randrange(len(lines)), rng.random()
        if way < 0.1:
            del lines[at]
        elif way < 0.2:
            lines.insert(at, rng.choice(lines))
        elif way < 0.35:
            lines.insert(at, "\t" + rng.choice(_LINES))
        elif tokens := [*_TOKEN.finditer(lines[at])]:
            token = rng.choice(tokens)
            instead = (
                rng.choice(_INSTEAD) if rng.random() < 0.7 else rng.choice(_TOKEN.findall(rng.choice(lines)) or [""])
            )
            lines[at] = lines[at][: token.start()] + instead + lines[at][token.end() :]
    return "\n".join(lines) + "\n"


def _run_entry(path, text: str, target: str) -> None:
    """With this assembly in the entry of the cache, whose checksum is made anew."""
    head, code = cache._parse(path.read_bytes())
    changed = dataclasses.replace(code, assembly=text)
    path.write_bytes(cache._packed(head["request"], head["version"], changed, head["name"], cache._includes(head)))
    cache._memory.clear()
    kernel = wmma_ops.Kernel(SOURCE, "mixed")
    x, y = torch.zeros(1024), torch.ones(256).half()
    with wmma_ops.emulate(target, budget=BUDGET):
        kernel[1, 256](x, y, np.int32(5), 2.0)
    assert kernel._compile_named(target).assembly == text


@pytest.mark.parametrize("target", TARGETS)
def test_mutated_cache_entries(target, tmp_path, monkeypatch, called):
    monkeypatch.setenv("WMMA_OPS_CACHE_DIR", str(tmp_path))
    cache._memory.clear()
    text, rng = assembly._without_debugging(_compiled(target).assembly), random.Random(SEED)
    (path,) = tmp_path.rglob("*.wmma")
    seen = collections.Counter()
    for number in range(COUNT):
        changed = _changed(text, rng)
        try:
            told = _outcome(lambda: _run_entry(path, changed, target))  # noqa: B023
        except BaseException:
            print(f"seed {SEED}, number {number} of {target}", file=sys.stderr)
            raise
        assert not called, changed
        seen[told.split(":")[0].split(" ")[0]] += 1
    assert len(seen) > 1, seen  # some run, some do not
