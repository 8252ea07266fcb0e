"""The table of targets and matrix instructions: what it refuses, and each builtin against clang."""

import dataclasses
import importlib.util
import re
import subprocess
import sys

import pytest

from wmma_ops.hardware import arch, cards, layouts
from wmma_ops.hardware.layouts import layout


def test_targets():
    assert set(arch.EMULATED) < set(arch.TARGETS)
    assert [name for name, row in arch.TARGETS.items() if row.compile_only] == ["gfx1250"]
    for name, row in arch.TARGETS.items():
        assert arch.target(name) is row
        assert arch.target(f"{name}:sramecc+:xnack-") is row
        assert row.wave == (64 if row.family == "cdna" else 32)
        assert (row.default.a, row.default.d) == ("float16", "float32")
        assert bool(row.rates) == (row.vendor == "amd" and not row.compile_only)
    assert (arch.target("gfx950").lds_bytes, arch.target("sm_90").lds_bytes) == (160 * 1024, 227 * 1024)


@pytest.mark.parametrize(
    ("asked", "closest"),
    [
        ("gfx1202", "gfx1201"),
        ("gfx9420", "gfx942"),
        ("sm_91", "sm_90"),
        ("RX 7900 XTXX", r"RX 7900 XTX \(gfx1100\)"),
        ("RTX 4095", r"RTX 4090 \(sm_89\)"),
        ("MI400", r"MI300 \(gfx942\)"),
        ("", "gfx908, .*sm_90a"),
    ],
)
def test_an_unknown_target_names_the_closest(asked, closest):
    with pytest.raises(ValueError, match=rf"no target '{asked}' is known; the closest names are .*{closest}"):
        arch.target(asked)


# As sold, as typed, and as torch.cuda.get_device_name says them.
CARDS = {
    "gfx908": "MI100|AMD Instinct MI100",
    "gfx90a": "MI210|mi250|AMD Instinct MI250X / MI250|MI250X:sramecc+:xnack-",
    "gfx942": "MI300X|mi300a|AMD Instinct MI300X VF|Instinct MI325X|GFX942|CDNA 3",
    "gfx950": "MI350X|mi-355x|MI355",
    "gfx1100": "rx7900xtx|RX 7900 XT|7900 GRE|AMD Radeon RX 7900 XTX|Radeon PRO W7900|W7800|rdna3|11",
    "gfx1101": "RX 7800 XT|7700xt|AMD Radeon RX 7700",
    "gfx1102": "RX 7600|7600 XT|RX 7700S",
    "gfx1103": "780M|AMD Radeon(TM) 780M Graphics",
    "gfx1150": "890M|Strix Point",
    "gfx1151": "Strix Halo|8060S|AMD RYZEN AI MAX+ 395 w/ Radeon 8060S|RDNA 3.5|rdna3_5",
    "gfx1200": "9060 XT|AMD Radeon RX 9060 XT",
    "gfx1201": "9070 XT|rx-9070|Radeon AI PRO R9700|rdna4|gfx12",
    "sm_80": "A100|NVIDIA A100-SXM4-40GB|NVIDIA A100 80GB PCIe|A30",
    "sm_86": "RTX 3090|rtx3060ti|NVIDIA RTX A6000|A10G",
    "sm_89": "RTX 4090|NVIDIA GeForce RTX 4070 Ti SUPER|NVIDIA GeForce RTX 4090 Laptop GPU|L4|L40S"
    "|NVIDIA RTX 6000 Ada Generation",
    "sm_90": "sm90|SM_90",
    "sm_90a": "NVIDIA H100 80GB HBM3|H100 SXM5 80 GB|NVIDIA H100 NVL|NVIDIA H200|NVIDIA GH200 480GB|H20|sm90a"
    "|NVIDIA H100 80GB HBM3 MIG 1g.10gb",
}


@pytest.mark.parametrize("target", CARDS)
def test_a_cards_name_is_a_target(target):
    assert {name: arch.target(name).name for name in CARDS[target].split("|")} == dict.fromkeys(
        CARDS[target].split("|"), target
    )


def test_every_card_is_found_and_has_one_chip():
    sold = [card.strip() for names in cards.NAMES.values() for card in names.split(",")]
    assert len(sold) == len({cards._plain(card) for card in sold}), "two cards are told apart by nothing"
    for chip, names in cards.NAMES.items():
        assert [cards.chip(card) for card in names.split(",")] == [chip] * len(names.split(","))
        assert chip in arch.TARGETS or cards.why_not(chip), f"{chip} is neither a target nor is there a reason"
    assert set(arch.TARGETS) - set(cards.NAMES) == {"gfx1250", "sm_90"}  # of which no card is sold by a name known here


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        *((name, f"^{name} is of RDNA 2 and has no matrix cores; ") for name in ("gfx1030", "gfx1036")),
        ("RX 6800", r"^RX 6800 \(gfx1030\) is of RDNA 2 and has no matrix cores; .* the RX 7000 series \(gfx1100\)"),
        ("AMD Radeon RX 6700 XT", r"\(gfx1031\) is of RDNA 2"),
        *((name, "is of RDNA 1 and has no matrix cores") for name in ("gfx1010", "RX 5700 XT")),
        *((name, "is of GCN and has no matrix cores") for name in ("gfx906", "gfx900", "gfx803", "MI50", "RX 580")),
        ("gfx1152", "^gfx1152 is no target; gfx1151 stands for it"),
        ("Radeon 860M", r"\(gfx1152\) is no target; gfx1151 stands for it"),
        ("gfx940", "gfx942 stands for it"),
        *((name, "is of Blackwell, for which no kernel here is compiled") for name in ("sm_120", "SM100a", "RTX 5090")),
        *((name, "is older than Ampere") for name in ("sm_75", "Tesla V100-SXM2-16GB", "RTX 2080 Ti")),
    ],
)  # fmt: skip
def test_a_chip_without_kernels_says_why(asked, why):
    with pytest.raises(ValueError, match=why) as told:
        arch.target(asked)
    assert "\n" not in str(told.value)
    if "RDNA" in why or "GCN" in why:
        assert "gfx908" in str(told.value)


def test_which_emulated_target_stands_for_a_target():
    stand_ins = {name: arch.emulated_as(row) for name, row in arch.TARGETS.items()}
    assert {name for name, of in stand_ins.items() if of is None} == {n for n in arch.TARGETS if n[0] == "s"} | {
        "gfx1250"
    }
    for name, of in stand_ins.items():
        assert of in (None, *arch.EMULATED)
        assert (of == name) == (name in arch.EMULATED)
        assert of is None or arch.target(of).instructions == arch.target(name).instructions


def test_a_wrong_row_asserts():
    row = arch.target("gfx942").instruction("v_mfma_f32_16x16x16_f16")
    for wrong in ({"k": 8}, {"d": "int32"}, {"blocks": 4}, {"cycles": 6}, {"b": "int8"}, {"a": "half"}):
        with pytest.raises(AssertionError):
            dataclasses.replace(row, **wrong)
    target = arch.target("gfx942")
    faster = tuple(dataclasses.replace(i, cycles=8) if i is row else i for i in target.instructions)
    for wrong in (
        {"instructions": faster},
        {"instructions": (*target.instructions, row)},
        {"rates": target.rates | {"float16": 4096}},
        {"rates": {}},
        {"wave": 32},
        {"family": "rdna3"},
    ):
        with pytest.raises(AssertionError):
            dataclasses.replace(target, **wrong)


def test_unknown_instructions_operands_and_indices():
    with pytest.raises(
        ValueError, match=r"gfx1100 has no matrix instruction 'v_mfma.*; it has v_wmma_f32_16x16x16_f16"
    ):
        layout("gfx1100", "A", "v_mfma_f32_16x16x16_f16")
    with pytest.raises(ValueError, match="no operand 'E'"):
        layout("gfx1100", "E")
    found = layout("gfx1201", "A")
    for lane, e in ((-1, 0), (32, 0), (0, 8), (0, -1)):
        with pytest.raises(IndexError, match=r"lane .*; takes 0 to 31|element .*; takes 0 to 7"):
            found.element(lane, e)
    with pytest.raises(IndexError, match="row 16; takes 0 to 15"):
        found.owners(16, 0)
    by_builtin = layout("gfx1201", "A", "__builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12")
    assert by_builtin is found


# --- clang: every builtin compiles to the mnemonic of its row

_C_TYPES = {"float16": "_Float16", "float32": "float", "xfloat32": "float", "float64": "double", "int32": "int"}


def _argument(target: str, row: arch.MatrixInstruction, operand: str) -> tuple[str, int]:
    """C's element type and count of a builtin's operand."""
    kind, bits = row.type(operand), arch.BITS[row.type(operand)]
    count = row.elements(operand)
    # The newer builtins have clang's own type for bfloat16, the older ones take its bits.
    if kind == "bfloat16" and (target == "gfx1250" or ("mfma" in row.builtin and row.builtin.endswith("_bf16"))):
        return "__bf16", count
    if kind in ("bfloat16", "float16"):
        # gfx11's 16-bit results lie in every second place.
        count *= 2 if row.replicated and operand in "CD" else 1
        return ("short" if kind == "bfloat16" else "_Float16"), count
    if bits <= 8:
        if "f8f6f4" in row.name:
            return "int", 8  # of 8-bit types' size, whatever the type
        words = count * bits // 32
        return ("long", 1) if "mfma" in row.name and words == 2 else ("int", words)
    return _C_TYPES[kind], count


def _call(target: str, row: arch.MatrixInstruction, index: int) -> str:
    def vector(operand):
        kind, count = _argument(target, row, operand)
        return kind if count == 1 else f"{kind} __attribute__((ext_vector_type({count})))"

    if "mfma_scale" in row.builtin:
        code = {"float8_e4m3fn": 0, "float8_e5m2": 1, "float4_e2m1fn": 4}
        arguments = f"*a, *b, *c, {code[row.a]}, {code[row.b]}, 0, 0, 0, 0"
    elif "mfma" in row.builtin:
        arguments = "*a, *b, *c, 0, 0, 0"
    elif target == "gfx1250":
        halves = "false, *a, false, *b, (short)0, *c"
        arguments = {8: "*a, *b, (short)0, *c, false, false"}.get(arch.BITS[row.a], f"{halves}, false, false")
        if row.a == "int8":
            arguments = "true, *a, true, *b, *c, false, false"
    elif row.a.startswith("int"):
        arguments = "true, *a, true, *b, *c, false"
    elif row.replicated and arch.BITS[row.d] == 16:
        arguments = "*a, *b, *c, false"
    else:
        arguments = "*a, *b, *c"
    names = [f"{operand}{index}" for operand in "ABD"]
    lines = [f"typedef {vector(operand)} {name};" for operand, name in zip("ABD", names, strict=True)]
    a, b, d = names
    # One function a row: values of one cannot hide another's instruction.
    lines.append(f'extern "C" __attribute__((global)) void k{index}({a}* a, {b}* b, {d}* c, {d}* d)')
    lines.append(f"{{ *d = {row.builtin}({arguments}); }}")
    return "\n".join(lines)


@pytest.mark.parametrize("target", [name for name in arch.TARGETS if name.startswith("gfx")])
def test_clang_compiles_every_builtin_to_its_mnemonic(target, tmp_path):
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("ziglang, which brings the clang that this test compiles with, is not installed")
    rows = arch.target(target).instructions
    (tmp_path / "k.hip").write_text("\n".join(_call(target, row, index) for index, row in enumerate(rows)))
    command = [sys.executable, "-m", "ziglang", "clang", "-x", "hip", f"--offload-arch={target}"]
    command += ["--offload-device-only", "-nogpuinc", "-nogpulib", "-O1", "-S", "k.hip", "-o", "k.s"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    bodies = re.split(r"^k(\d+):", (tmp_path / "k.s").read_text(), flags=re.M)
    found = dict(zip(map(int, bodies[1::2]), bodies[2::2], strict=True))
    for index, row in enumerate(rows):
        lines = re.findall(r"^\s+(v_\w*(?:mfma|wmma)\w*) (.*)$", found[index].split("s_endpgm")[0], flags=re.M)
        assert [name for name, _ in lines] == [row.name], f"{row.builtin} became {lines}"
        _, registers = lines[0]
        # Registers of D, A and B, counted from the assembly: the elements fill them.
        counts = [int(high) - int(low) + 1 for low, high in re.findall(r"[va]\[(\d+):(\d+)\]", registers)]
        for operand, count in zip("DAB", [*counts, 1, 1], strict=False):
            d = layouts._layout(arch.target(target), operand, row, False)
            register, bit = d.register(d.elements - 1)
            if len(counts) >= 3 and "f8f6f4" not in row.name:
                assert register + -(-(bit + d.bits) // 32) == count, f"{row.name}: {operand} of {registers}"
