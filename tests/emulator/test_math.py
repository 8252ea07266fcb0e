"""The device library's math, run by the emulator: 2 ulp over the whole range, special values, types and what is refused."""

import annex_f
import device_math
import narrow_math
import pytest

from wmma_ops import jit
from wmma_ops.hardware import arch

COUNT = 1600


@pytest.mark.parametrize("target", arch.EMULATED)
@pytest.mark.parametrize("type_", device_math.TYPES)
def test_rounded_functions_stay_within_two_ulp(type_, target):
    found = device_math.rounded_faults(type_, COUNT, target)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("target", arch.EMULATED)
@pytest.mark.parametrize("type_", device_math.TYPES)
def test_exact_functions_are_exact(type_, target):
    found = device_math.exact_faults(type_, COUNT, target)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("target", arch.EMULATED)
def test_16_bit_types_go_through_float(target):
    found = narrow_math.narrow_faults(target)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("target", ["gfx942", "gfx1201"])
@pytest.mark.parametrize("type_", device_math.TYPES)
def test_special_values_of_annex_f(type_, target):
    found = annex_f.special_faults(type_, target)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "gfx1250"])
@pytest.mark.parametrize("type_", device_math.TYPES)
def test_compiles_also_without_saying_whose(type_, target):
    """By `using namespace` alone, too, where NVRTC has functions of the same names."""
    for source, name in ((device_math.ROUNDED, "rounded"), (device_math.EXACTLY, "exactly")):
        code = jit.compile(source, target, options=(f"-DTYPE={type_}",), name=f"{name}.hip")
        assert code.kernels == (name,)
        assert "__local_depot" not in code.assembly
    jit.compile(device_math.ROUNDED.replace("wmma::", ""), target, options=(f"-DTYPE={type_}",), name="unnamed.hip")
    assert jit.compile(narrow_math.NARROW, target, name="narrow.hip").kernels == ("narrow",)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("wmma::sin(wmma::fp8_e4m3_t(1.0f))", "math takes float, double, half_t, bf16_t and integers"),
        ("wmma::pow(x, y)", "math takes float, double, half_t, bf16_t and integers"),
        ("wmma::nextafter(1, 2)", "nextafter takes two floats or two doubles"),
    ],
)
def test_what_is_refused_says_what_is_taken(call, message):
    source = f'#include <wmma/math.hpp>\nextern "C" __global__ void bad(float* x, float y) {{ (void){call}; }}'
    with pytest.raises(jit.CompileError, match="wmma") as caught:
        jit.compile(source, "gfx942", name="bad.hip")
    assert message in caught.value.log
