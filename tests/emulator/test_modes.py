"""The modes that a kernel's descriptor or an instruction sets: float32's subnormals as zeros, ieee_mode, dx10_clamp."""

import numpy as np
import pytest
import torch
from test_matrix_instructions import begin_with

import wmma_ops
from wmma_ops.emulator import UnknownInstruction, assembly, launch, program
from wmma_ops.emulator.bits import WORD

TINY, LEAST = 2.0**-140, 2.0**-126  # subnormal, and the smallest that is not
ONE, NAN = 1.0, float("nan")
SIGNALLING = 0x7FA00000


def f32(x: float) -> int:
    return int(np.float32(x).view(np.uint32))


def result(body: str, inputs, target: str = "gfx942", **descriptor: int) -> int:
    """v10 of a kernel with this descriptor whose v1, v2, … hold the inputs."""
    lines = [*body.split("\n"), "s_endpgm"]
    kernel = assembly.KernelText("k", [assembly.parse_instruction(line) for line in lines], descriptor=descriptor)
    kernel.labels = {".L": len(lines) - 1} if ".L" in body else {}
    kernel.facts = {"wavefront_size": 64 if target.startswith("gfx9") else 32, "vgpr_count": 32}
    built = program.build(kernel, target)

    def fill(st):
        for index, value in enumerate(inputs):
            built.registers[index + 1] = value if isinstance(value, int) else f32(value)
        st.written.update((f"v{i}", WORD) for i in range(32))

    begin_with(built, fill)
    launch(built, (1, 1, 1), (built.wave, 1, 1), b"", [])
    return int(built.registers[10][3])


# (instruction, operands, results where nothing is a zero, what is given, what is taken is, both).
FLUSHED = [
    ("v_add_f32_e32 v10, v1, v2", (TINY, LEAST), (LEAST + TINY, LEAST + TINY, LEAST, LEAST)),
    ("v_mul_f32_e32 v10, v1, v2", (LEAST, 0.5), (LEAST / 2, 0.0, LEAST / 2, 0.0)),
    ("v_mul_f32_e32 v10, v1, v2", (-TINY, 2.0**20), (-(2.0**-120), -(2.0**-120), -0.0, -0.0)),
    ("v_fma_f32 v10, v1, v2, v3", (TINY, 2.0**20, TINY), (2.0**-120 + TINY, 2.0**-120 + TINY, 0.0, 0.0)),
    ("v_max_f32_e32 v10, v1, v1", (-TINY,), (-TINY, -0.0, -0.0, -0.0)),
    ("v_pk_mul_f32 v[10:11], v[1:2], v[3:4]", (LEAST, ONE, 0.25, ONE), (LEAST / 4, 0.0, LEAST / 4, 0.0)),
    ("v_mov_b32_e32 v10, v1", (TINY,), (TINY,) * 4),
    ("v_cndmask_b32_e64 v10, -v1, -v1, s[4:5]", (TINY,), (-TINY,) * 4),
    ("v_fma_mix_f32 v10, v1, v2, v3", (TINY, ONE, 0.0), (TINY, 0.0, 0.0, 0.0)),
    ("v_cvt_pk_bf16_f32 v10, v1, v2", (2.0**-130, 0.0), (8, 8, 0, 0)),  # of the least steps 2⁻¹³³
]
SUBNORMAL_HALF = 0x00010001  # in float16, where the mode is another


@pytest.mark.parametrize(
    ("line", "inputs", "wanted"), FLUSHED, ids=[row[0].split()[0] + str(i) for i, row in enumerate(FLUSHED)]
)
def test_subnormals_as_zeros(line, inputs, wanted):
    target = "gfx950" if "bf16" in line else "gfx942"
    for at, mode in enumerate((3, 1, 2, 0)):
        got = result(line, inputs, target, float_denorm_mode_32=mode)
        want = wanted[at]
        assert got == (want if isinstance(want, int) else f32(want)), mode


def test_comparisons_and_halves():
    chosen = "v_cmp_lt_f32_e32 vcc, 0, v1\nv_cndmask_b32_e64 v10, 0, 1, vcc"
    assert [result(chosen, (TINY,), float_denorm_mode_32=mode) for mode in (3, 1, 2, 0)] == [1, 1, 0, 0]
    assert result("v_pk_add_f16 v10, v1, v1", (SUBNORMAL_HALF,), float_denorm_mode_32=0) == 2 * SUBNORMAL_HALF


def test_within_a_run_of_instructions():
    """As compilers set it around a division's steps."""
    line = "v_add_f32_e32 v10, v1, v1"
    kept, zeros = (f"s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), {mode}\n" for mode in (3, 0))
    assert result(kept + line, (TINY,), float_denorm_mode_32=0) == f32(2 * TINY)
    assert result(f"{kept}v_mul_f32_e32 v3, 1.0, v1\n{zeros}{line}", (TINY,), float_denorm_mode_32=0) == 0
    assert result(zeros + line, (TINY,)) == 0
    assert result(f"s_denorm_mode 12\n{line}\ns_denorm_mode 15", (TINY,), "gfx1201") == 0
    for last in ("s_cbranch_scc1 .L", "s_barrier"):
        with pytest.raises(UnknownInstruction, match="another mode of subnormals"):
            result(f"{zeros}{last}\ns_nop 0", ())
    assert result(f"{zeros}{kept}s_cbranch_scc1 .L\n{line}", (TINY,)) == f32(2 * TINY)


def test_what_is_not_followed():
    for line in ("v_mfma_f32_16x16x4_f32 v[10:13], v1, v2, 0", "v_dot2_f32_f16 v10, v1, v2, v3"):
        with pytest.raises(UnknownInstruction, match="float_denorm_mode_32"):
            result(line, (0, 0, 0), float_denorm_mode_32=0)
    for mode in ({"float_denorm_mode_16_64": 0}, {"float_round_mode_32": 3}, {"fp16_overflow": 1}):
        with pytest.raises(UnknownInstruction, match=next(iter(mode))):
            result("s_nop 0", (), **mode)


def test_signalling_numbers_and_clamp():
    line = "v_max_f32_e32 v10, v1, v2"
    assert result(line, (SIGNALLING, ONE)) == SIGNALLING | 1 << 22
    assert result(line, (SIGNALLING, ONE), ieee_mode=0) == f32(ONE)
    assert result("v_mul_f32_e64 v10, v1, v2 clamp", (NAN, ONE)) == 0
    assert np.isnan(np.uint32(result("v_mul_f32_e64 v10, v1, v2 clamp", (NAN, ONE), dx10_clamp=0)).view(np.float32))
    assert result("v_mul_f32_e64 v10, v1, v2 clamp", (3.0, ONE), dx10_clamp=0) == f32(ONE)


def test_what_the_compiler_gives():
    """A division with subnormals as zeros, whose steps keep them."""
    text = """#include <wmma/grid.hpp>
extern "C" __global__ void divide(float* x, float* y) { x[threadIdx.x] = x[threadIdx.x] / y[threadIdx.x]; }"""
    for options, small in ((("-fgpu-flush-denormals-to-zero",), 0.0), ((), 2.0**-130)):
        x, y = torch.full((64,), 2.0**-100), torch.full((64,), 2.0**30)
        x[1], y[1] = 1.0, 3.0
        with wmma_ops.emulate("gfx942"):
            wmma_ops.Kernel(text, "divide", options=options)[1, 64](x, y)
        assert x[:2].tolist() == [small, float(np.float32(1) / np.float32(3))]
