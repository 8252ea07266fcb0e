"""Instructions of the device library's math beside those of ROCm's device library, ocml.

Where ocml's bitcode is: Debian's package rocm-device-libs brings it, or ROCM_DEVICE_LIBS names its folder. A kernel of one
call each, less what its loads and stores take; waits and hints do not count. `pytest -s` shows the table.
"""

import os
import re
from pathlib import Path

import device_math
import pytest

from wmma_ops import jit

FOLDERS = (
    os.environ.get("ROCM_DEVICE_LIBS", ""),
    "/usr/lib/x86_64-linux-gnu/amdgcn/bitcode",
    "/opt/rocm/amdgcn/bitcode",
)
BITCODE = next((Path(folder) for folder in FOLDERS if folder and Path(folder, "ocml.bc").is_file()), None)
LIMIT = 1.5

# ocml has no ISA of its own for these two: its code for gfx1036 serves gfx1201.
ISA = {"gfx942": ("940", "on"), "gfx1201": ("1036", "off")}
EXACT = (
    "sqrt floor ceil trunc rint nearbyint round fabs fmod remainder fmin fmax fdim copysign nextafter logb".split()
)  # fmt: skip
OF_TWO = {*device_math.TWO, "fmod", "remainder", "fmin", "fmax", "fdim", "copysign", "nextafter"}
NAMES = (*device_math.ONE, *device_math.TWO, *EXACT, "sincos")

HEAD = {
    "ours": "#include <wmma/math.hpp>\n",
    "theirs": "#define __device__ __attribute__((device))\n#define __global__ __attribute__((global))\n"
    "#define PRIVATE __attribute__((address_space(5)))\n",
}


def source(whose: str, type_: str) -> str:
    suffix = {"float": "f32", "double": "f64"}[type_]
    text = HEAD[whose]
    for name in NAMES:
        call = f"wmma::{name}" if whose == "ours" else f"__ocml_{name}_{suffix}"
        takes = f"{type_}, PRIVATE {type_}*" if name == "sincos" else ", ".join([type_] * (1 + (name in OF_TWO)))
        if whose == "theirs":
            text += f'extern "C" __device__ {type_} {call}({takes});\n'
        if name != "sincos":
            body = f"y[i] = {call}(x[i]{', x[i + 64]' if name in OF_TWO else ''});"
        elif whose == "ours":
            body = f"{call}(x[i], y + i, y + i + 64);"
        else:
            body = f"{type_} c; y[i] = {call}(x[i], (PRIVATE {type_}*)&c); y[i + 64] = c;"
        start = f'extern "C" __global__ void k_{name}(const {type_}* x, {type_}* y)'
        text += f"{start} {{ const int i = __builtin_amdgcn_workitem_id_x(); {body} }}\n"
    start = f"(const {type_}* x, {type_}* y) {{ const int i = __builtin_amdgcn_workitem_id_x();"
    text += f'extern "C" __global__ void k_alone{start} y[i] = x[i]; }}\n'
    return text + f'extern "C" __global__ void k_sum{start} y[i] = x[i] + x[i + 64]; }}\n'


def counts(whose: str, type_: str, target: str) -> dict[str, int]:
    options = []
    if whose == "theirs":
        isa, wave64 = ISA[target]
        parts = ("daz_opt_off", "finite_only_off", "unsafe_math_off", "correctly_rounded_sqrt_on", "abi_version_500")
        for part in (
            "ocml",
            *(f"oclc_{part}" for part in parts),
            f"oclc_wavefrontsize64_{wave64}",
            f"oclc_isa_version_{isa}",
        ):
            options += ["-Xclang", "-mlink-builtin-bitcode", "-Xclang", f"{BITCODE}/{part}.bc"]
    text = jit.compile(source(whose, type_), target, options=tuple(options), name=f"{whose}.hip").assembly
    found = {}
    for name, body in re.findall(r"^k_(\w+):.*?\n(.*?)^\.Lfunc_end", text, re.DOTALL | re.MULTILINE):
        lines = re.findall(r"^\t([vs]_\w+|global_\w+|flat_\w+|scratch_\w+|buffer_\w+|ds_\w+)(.*)", body, re.MULTILINE)
        counted = [rest for op, rest in lines if not re.match(r"s_(wait|delay|nop|endpgm|code_end|clause|set)", op)]
        found[name] = len(counted) + sum("::" in rest for rest in counted)
    alone, both = found.pop("alone"), found.pop("sum") - 1
    return {name: count - (both if name in OF_TWO else alone) for name, count in found.items()}


@pytest.mark.full
@pytest.mark.skipif(BITCODE is None, reason=f"no ocml.bc: install rocm-device-libs; looked in {', '.join(FOLDERS[1:])}")
@pytest.mark.parametrize("target", ISA)
@pytest.mark.parametrize("type_", device_math.TYPES)
def test_at_most_half_more_instructions_than_ocml(type_, target):
    ours, theirs = counts("ours", type_, target), counts("theirs", type_, target)
    assert set(ours) == set(theirs) == set(NAMES)
    ratios = {name: ours[name] / theirs[name] for name in NAMES}
    print(f"\n{type_} on {target}: function, ours, ocml's, ratio")
    for name in NAMES:
        print(f"{name:10} {ours[name]:4} {theirs[name]:4} {ratios[name]:5.2f}")
    assert not {name: ratio for name, ratio in ratios.items() if ratio > LIMIT}
