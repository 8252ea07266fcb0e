"""Builds the library, host C++ on PyTorch's stable ABI with no CUDA, no HIP and no Python API in it, and beside it the
derivatives, whose interface torch does not keep stable."""

import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import setuptools

HAS = f"and this environment has {setuptools.__version__}"
if int(setuptools.__version__.split(".")[0]) < 64:
    raise SystemExit(f"wmma_ops takes setuptools 64 or later, {HAS}: pip install --upgrade setuptools")
if not (find_spec("setuptools.command.bdist_wheel") or find_spec("wheel")):
    raise SystemExit(f"setuptools builds no wheel before 70.1 without `wheel`, {HAS}: pip install --upgrade setuptools")
try:
    import torch
    from torch.utils.cpp_extension import BuildExtension, CppExtension
except ModuleNotFoundError as error:
    raise SystemExit(
        "wmma_ops is built against the torch that it will run with (2.10 or later), and this environment has none.\n"
        "Install torch, setuptools, wheel and ninja, then: pip install --no-build-isolation ."
    ) from error

# For `make asan`: sysconfig's flags hide what overflows.
SANITIZED = [
    "-fsanitize=address,undefined",
    "-fno-sanitize=vptr",
    "-fno-sanitize-recover=all",
    "-fno-wrapv",
    "-O1",
    "-g1",
]
ROOT = Path(__file__).resolve().parent
CSRC = Path("wmma_ops/csrc")


IS_SANITIZED = os.environ.get("WMMA_OPS_SANITIZE") == "1"


def library():
    # The prefix map keeps the builder's folders out of the binary and its messages.
    return CppExtension(
        "wmma_ops._library",
        [path.as_posix() for path in sorted(CSRC.rglob("*.cpp")) if path.parent.name != "nodes"],
        include_dirs=[f"{ROOT}/{CSRC}", f"{ROOT}/kernels"],
        depends=[path.as_posix() for folder in (CSRC, Path("kernels")) for path in sorted(folder.rglob("*.hpp"))],
        py_limited_api=True,  # leaves libtorch_python out
        extra_compile_args=[
            "-O2",
            "-g0",
            "-std=c++17",
            "-fvisibility=hidden",
            "-Wall",
            "-Wextra",
            "-Wno-unused-parameter",  # torch's headers
            "-Wno-unknown-pragmas",  # of the kernels' headers
            # Nobody asks which operation raised what: then loops over numbers become vector instructions.
            "-fno-math-errno",
            "-fno-trapping-math",
            "-DTORCH_TARGET_VERSION=0x020a000000000000",
            f"-ffile-prefix-map={ROOT}=.",
            *(SANITIZED if IS_SANITIZED else []),
        ],
        extra_link_args=SANITIZED[:1] if IS_SANITIZED else ["-Wl,--as-needed", "-Wl,-s"],
    )


def nodes():
    """Derivatives in C++, for the torch that is here and no other: beside another one they are left alone."""
    made = CppExtension(
        f"wmma_ops._nodes_{re.sub(r'[^0-9a-z]', '_', torch.__version__)}",
        [f"{CSRC}/nodes/nodes.cpp"],
        include_dirs=[f"{ROOT}/{CSRC}"],
        depends=[path.as_posix() for path in sorted((ROOT / CSRC / "nodes").glob("*.hpp"))],
        py_limited_api=True,
        extra_compile_args=[
            "-O2",
            "-g0",
            "-std=c++20",  # which torch's own headers ask for
            "-fvisibility=hidden",
            "-Wall",
            f"-ffile-prefix-map={ROOT}=.",
        ],
        extra_link_args=["-Wl,--as-needed", "-Wl,-s"],
    )
    made.optional = True
    return made


class Build(BuildExtension.with_options(no_python_abi_suffix=True)):
    def build_extension(self, ext):
        try:
            super().build_extension(ext)
        except Exception as error:
            if not ext.optional:
                raise
            print(f"WARNING: {ext.name} was not built, training takes more of the host: {error}", file=sys.stderr)


# Both, unless it is said which; a sanitized library goes without the derivatives.
MADE = os.environ.get("WMMA_OPS_BUILD", "library" if IS_SANITIZED else "library,nodes").split(",")
PARTS = [make() for make in (library, nodes) if make.__name__ in MADE]

setuptools.setup(
    license="MIT",
    packages=[
        *setuptools.find_packages(include=["wmma_ops*"]),
        "wmma_ops.kernels",
        "wmma_ops.kernels.compat",
        "wmma_ops.kernels.wmma",
    ],
    ext_modules=PARTS,
    cmdclass={"build_ext": Build},
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
