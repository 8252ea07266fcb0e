"""The device library compiles for every target and to the instructions that it promises."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from wmma_ops import jit
from wmma_ops.jit import kernels_dir

EXAMPLES = Path(__file__).parents[1] / "support/examples"
CDNA = ("gfx908", "gfx90a", "gfx942", "gfx950")
RDNA3 = ("gfx1100", "gfx1151")
RDNA4 = ("gfx1200", "gfx1201")
AMD = (*CDNA, *RDNA3, *RDNA4, "gfx1250")
NVIDIA = ("sm_80", "sm_90a")


def compiled(name: str, target: str, **macros) -> str:
    """The assembly (AMD) or PTX (NVIDIA) of an example."""
    options = tuple(f"-D{macro}={value}" for macro, value in macros.items())
    code = jit.compile((EXAMPLES / f"{name}.hip").read_text(), target, options=options, name=f"{name}.hip")
    assert name in code.kernels
    assert not code.log, code.log
    return code.assembly


def assert_in_registers(assembly: str, target: str):
    """No scratch memory and no spilled register."""
    if target.startswith("sm_"):
        assert "__local_depot" not in assembly
        return
    sizes = re.findall(r"(?:private_segment_fixed_size|[sv]gpr_spill_count):?\s+(\d+)", assembly)
    assert sizes
    assert not any(int(size) for size in sizes)


@dataclass(frozen=True)
class Product:
    """A type row of the plain GEMM, and the matrix instruction it has to use on each target ("" for none)."""

    input: str
    output: str
    compute: str
    block: int
    block_k: int
    instructions: dict

    def __str__(self):
        return f"{self.input}-{self.output}-{self.compute}-{self.block}x{self.block}x{self.block_k}"

    def macros(self) -> dict:
        return {
            "WMMA_INPUT": self.input,
            "WMMA_OUTPUT": self.output,
            "WMMA_COMPUTE": self.compute,
            "WMMA_BLOCK": self.block,
            "WMMA_BLOCK_K": self.block_k,
        }


def on(cdna: str, rdna: str, nvidia: str, **others: str) -> dict:
    """Instructions by family, with the targets that differ by name."""
    families = {CDNA: cdna, (*RDNA3, *RDNA4, "gfx1250"): rdna, NVIDIA: nvidia}
    return {target: name for targets, name in families.items() for target in targets} | others


WMMA_F16 = "v_wmma_f32_16x16x16_f16"
WMMA_BF16 = "v_wmma_f32_16x16x16_bf16"
MMA_F16 = "m16n8k16.row.col.f32.f16"
F16 = on("v_mfma_f32_16x16x16_?f16", WMMA_F16, MMA_F16, gfx1250="v_wmma_f32_16x16x32_f16")
F16_32 = on("v_mfma_f32_32x32x8_?f16", WMMA_F16, MMA_F16, gfx1250="v_wmma_f32_16x16x32_f16")
BF16 = on(
    "v_mfma_f32_16x16x16_?bf16(_1k)?",
    WMMA_BF16,
    "m16n8k16.row.col.f32.bf16",
    gfx908="v_mfma_f32_16x16x8bf16",
    gfx1250="v_wmma_f32_16x16x32_bf16",
)
BF16_32 = on(
    "v_mfma_f32_32x32x8_?bf16(_1k)?",
    WMMA_BF16,
    "m16n8k16.row.col.f32.bf16",
    gfx908="v_mfma_f32_32x32x4bf16",
    gfx1250="v_wmma_f32_16x16x32_bf16",
)
I8 = on(
    "v_mfma_i32_16x16x32_?i8",
    "v_wmma_i32_16x16x16_iu8",
    "m16n8k32.row.col.s32.s8",
    gfx908="v_mfma_i32_16x16x16i8",
    gfx90a="v_mfma_i32_16x16x16i8",
    gfx1250="v_wmma_i32_16x16x64_iu8",
)
I8_32 = on(
    "v_mfma_i32_32x32x16_?i8",
    "v_wmma_i32_16x16x16_iu8",
    "m16n8k32.row.col.s32.s8",
    gfx908="v_mfma_i32_32x32x8i8",
    gfx90a="v_mfma_i32_32x32x8i8",
    gfx1250="v_wmma_i32_16x16x64_iu8",
)
F32 = on("v_mfma_f32_16x16x4_?f32", "", "")
F32_32 = on("v_mfma_f32_32x32x2_?f32", "", "")
F64 = on("v_mfma_f64_16x16x4_?f64", "", "m8n8k4.row.col.f64", gfx908="")


def fp8(name: str, nvidia: str) -> dict:
    wmma = f"v_wmma_f32_16x16x16_{name}_{name}"
    return on(
        "v_mfma_f32_16x16x16_?f16",
        WMMA_F16,
        MMA_F16,
        gfx950=f"v_mfma_f32_16x16x32_{name}_{name}",
        gfx1200=wmma,
        gfx1201=wmma,
        gfx1250=f"v_wmma_f32_16x16x64_{name}_{name}",
        sm_90a=f"m16n8k32.row.col.f32.{nvidia}",
    )


PRODUCTS = [
    Product("wmma::int8_t", "wmma::int32_t", "wmma::int32_t", 16, 16, I8),
    Product("wmma::int8_t", "wmma::int32_t", "wmma::int32_t", 32, 8, I8_32),
    Product("wmma::int8_t", "wmma::int8_t", "wmma::int32_t", 16, 16, I8),
    Product("wmma::half_t", "float", "float", 16, 16, F16),
    Product("wmma::half_t", "float", "float", 32, 8, F16_32),
    Product("wmma::half_t", "wmma::half_t", "float", 16, 16, F16),
    Product("wmma::half_t", "wmma::half_t", "wmma::half_t", 32, 8, F16_32),
    Product("wmma::bf16_t", "float", "float", 16, 8, BF16),
    Product("wmma::bf16_t", "float", "float", 32, 4, BF16_32),
    Product("wmma::bf16_t", "wmma::bf16_t", "float", 16, 16, BF16),
    Product("wmma::bf16_t", "wmma::bf16_t", "wmma::bf16_t", 32, 8, BF16_32),
    Product("float", "float", "float", 16, 4, F32),
    Product("float", "float", "float", 32, 2, F32_32),
    Product("double", "double", "double", 16, 4, F64),
    Product("wmma::fp8_e4m3_t", "float", "float", 16, 16, fp8("fp8", "e4m3")),
    Product("wmma::fp8_e5m2_t", "float", "float", 16, 16, fp8("bf8", "e5m2")),
]


@pytest.mark.parametrize("target", [*AMD, *NVIDIA])
def test_type_rows(target):
    """Every type row in blocks of 16 and 32, at its smallest depth or the usual one."""
    for product in PRODUCTS:
        text = compiled("gemm", target, **product.macros())
        instruction = product.instructions[target]
        found = set(re.findall(r"v_mfma_\w+|v_wmma_\w+|mma\.sync\.\S+", text))
        if instruction:
            assert any(re.search(instruction, name) for name in found), f"{product}: {instruction} not in {found}"
        else:
            assert not found, f"{product}: {found}"
        assert_in_registers(text, target)


@pytest.mark.parametrize("target", [*AMD, *NVIDIA])
@pytest.mark.parametrize("name", ["gemm_shared", "two_products", "epilogues", "layouts", "reduce", "grid", "lanes"])
def test_examples(name, target):
    assert_in_registers(compiled(name, target), target)


@pytest.mark.parametrize(
    "name", ["gemm", "gemm_shared", "two_products", "epilogues", "layouts", "reduce", "grid", "lanes"]
)
def test_hiprtc(name):
    source = (EXAMPLES / f"{name}.hip").read_text()
    try:
        code = jit.compile(source, "gfx90a", compiler="hiprtc", name=f"{name}.hip")
    except jit.CompileError as error:
        if error.log:
            raise
        pytest.skip(f"hiprtc is not there: {error}")
    assert name in code.kernels


@pytest.mark.parametrize("target", CDNA)
def test_wide_loads_cdna(target):
    """Four f16 are all that one instruction takes of a lane."""
    text = compiled("gemm", target)
    assert text.count("global_load_dwordx2") == 2
    assert "global_load_ushort" not in text


@pytest.mark.parametrize("target", [*RDNA3, *RDNA4])
def test_wide_loads_rdna(target):
    text = compiled("gemm", target)
    assert text.count("global_load_b128") == (4 if target in RDNA3 else 2)
    assert "global_load_u16" not in text
    assert "global_load_d16" not in text


@pytest.mark.parametrize("target", [*CDNA, *RDNA4])
def test_result_becomes_operand_without_exchange(target):
    text = compiled("two_products", target)
    assert not re.search(r"permlane|ds_b?permute|_dpp", text)
    assert re.search(r"global_store_(dwordx4|b128)", text)


@pytest.mark.parametrize("target", ["gfx950"])
def test_gfx950_doubles_the_depth(target):
    macros = {"WMMA_BLOCK": 16, "WMMA_BLOCK_K": 32}
    text = compiled("gemm", target, **macros)
    assert "v_mfma_f32_16x16x32_f16" in text
    assert text.count("global_load_dwordx4") == 2
    text = compiled("gemm", target, **macros | {"WMMA_BLOCK": 32})
    assert "v_mfma_f32_32x32x16_f16" in text


def test_gfx942_fp8_is_fnuz():
    text = compiled("gemm", "gfx942", WMMA_INPUT="wmma::fp8_e4m3fnuz_t", WMMA_BLOCK_K=32)
    assert "v_mfma_f32_16x16x32_fp8_fp8" in text


@pytest.mark.parametrize(
    ("target", "macros", "message"),
    [
        ("gfx942", {"WMMA_BLOCK": 8}, "M and N are multiples of 16"),
        ("gfx1201", {"WMMA_BLOCK_K": 8}, "takes a K of 16, 32, 48, "),
        ("gfx942", {"WMMA_BLOCK_K": 0}, "takes a K of 16, 32, 48, "),
        ("gfx942", {"WMMA_BLOCK": 32, "WMMA_BLOCK_K": 12}, "takes a K of 8, 16, 24, 32, "),
        ("gfx942", {"WMMA_INPUT": "float", "WMMA_BLOCK_K": 6}, "takes a K of 4, 8, 12, 16, "),
        ("gfx1100", {"WMMA_INPUT": "float", "WMMA_BLOCK": 32, "WMMA_BLOCK_K": 3}, "takes a K of 2, 4, 6, 8, "),
        ("sm_90a", {"WMMA_INPUT": "wmma::bf16_t", "WMMA_BLOCK_K": 12}, "takes a K of 8, 16, 24, 32, "),
        (
            "gfx942",
            {"WMMA_INPUT": "wmma::int16_t", "WMMA_OUTPUT": "int", "WMMA_COMPUTE": "int"},
            "no product of this element type",
        ),
    ],
)
def test_refused(target, macros, message):
    with pytest.raises(jit.CompileError, match=message):
        compiled("gemm", target, **macros)


def test_unsupported_target_is_named():
    with pytest.raises(jit.CompileError, match="unsupported AMD target"):
        jit.compile((EXAMPLES / "gemm.hip").read_text(), "gfx942", options=("-U__gfx942__",))


@pytest.mark.parametrize("target", NVIDIA)
def test_fragments_leave_shared_memory_by_ldmatrix(target):
    assert "ldmatrix.sync.aligned.m8n8.x4.shared.b16" in compiled("gemm_shared", target)


@pytest.mark.parametrize("target", ["gfx942", "gfx1201", "sm_90a"])
def test_headers_go_together(target):
    headers = sorted(path.name for path in (kernels_dir.PATH / "wmma").glob("*.hpp"))
    assert {"fragment.hpp", "math.hpp", "block.hpp", "print.hpp"} <= set(headers)
    source = "".join(f"#include <wmma/{name}>\n" for name in headers) + 'extern "C" __global__ void none() {}'
    assert not jit.compile(source, target).log
