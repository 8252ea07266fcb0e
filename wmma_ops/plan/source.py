"""The source text of a kernel: a struct that says its configuration, then the file that all share."""

from collections.abc import Iterable, Mapping

from wmma_ops.hardware import arch
from wmma_ops.hardware.occupancy import waves_beside
from wmma_ops.ops import activations
from wmma_ops.ops.registered import FIRST_REGISTERED
from wmma_ops.ops.types import ELEMENTS

CPP = {row.dtype: row.device for row in ELEMENTS} | {None: "wmma::None"}


def order_of(along_k: bool) -> str:
    """Of an operand whose memory runs along what is summed up, or across it."""
    return f"wmma::Order::{'kAlongK' if along_k else 'kAcrossK'}"


def aliases(values: Mapping[str, str]) -> list[str]:
    return [f"using {name} = {value};" for name, value in values.items()]


def constants(kind: str, values: Mapping[str, object]) -> list[str]:
    """Of one type: int, bool, or an enumeration of kernels/wmma."""
    return [
        f"static constexpr {kind} {name} = {str(value).lower() if kind == 'bool' else value};"
        for name, value in values.items()
    ]


def occupancy_constants(target: arch.Target, least: int, waves: int, shared: int) -> dict[str, int]:
    """For how many waves a SIMD a kernel of blocks of `waves` waves is compiled (NVIDIA: for how many blocks an SM)."""
    if target.vendor == "nvidia":
        return {"kOccupancy": least}
    return {"kOccupancy": least, "kMostWaves": max(least, waves_beside(target, waves, shared))}


def nested(name: str, members: Iterable[str]) -> list[str]:
    return [f"struct {name} {{", *(f"  {member}" for member in members), "};"]


def kernel_text(
    *files: str, members: Iterable[str], before: str = "", kernel: str = "", defines: Mapping[str, bool] = {}
) -> str:
    """The whole of it: the configuration, after what it needs, then those macros that are wanted and the files, of which
    the last finds the `kernel` as `Kernel`."""
    lines = [
        "#include <wmma/tile/config.hpp>",
        before + "struct Config {",
        *(f"  {member}" for member in members),
        "};",
    ]
    lines += [f"#define {name}" for name, wanted in defines.items() if wanted]
    included = [f"#include <{file}>" for file in files]
    if kernel:
        included.insert(-1, f"using Kernel = {kernel};")
    return "\n".join([*lines, *included, ""])


def registered(codes: Iterable[int]) -> str:
    """The functions of those activations that users registered."""
    found = ""
    for code in dict.fromkeys(codes):
        if code >= FIRST_REGISTERED:
            expression = activations.by_code(code).device
            found = found or "#include <wmma/math.hpp>\n"
            found += (
                f"template <> struct wmma::RegisteredActivation<{code}> {{\n"
                f"  static WMMA_DEVICE float apply(float x) {{ return {expression}; }}\n"
                f"  static WMMA_DEVICE double apply(double x) {{ return {expression}; }}\n"
                "};\n"
            )
    return found


def wgmma_of_width(columns: int) -> str:
    """The instructions of a width that few kernels have (kernels/wmma/arch/wgmma.hpp): all of them would be slow to read
    for each."""
    sums = columns // 2
    names = ", ".join(f"%{i}" for i in range(sums))
    operands = ", ".join(f"c(d[(i) + {i}])" for i in range(sums))
    numbers = ", ".join(str(sums + i) for i in range(7))
    return (
        f'#define WMMA_NAMES{sums} "{names}"\n'
        f"#define WMMA_D{sums}(c, d, i) {operands}\n"
        f"#define WMMA_OTHER_WGMMAS WMMA_WGMMAS({columns}, {numbers})\n"
    )
