"""Builds the one library: host C++ on PyTorch's stable ABI, with no CUDA, no HIP and no Python API in it."""

import os
from importlib.util import find_spec
from pathlib import Path

import setuptools

HAS = f"and this environment has {setuptools.__version__}"
if int(setuptools.__version__.split(".")[0]) < 64:
    raise SystemExit(f"wmma_ops takes setuptools 64 or later, {HAS}: pip install --upgrade setuptools")
if not (find_spec("setuptools.command.bdist_wheel") or find_spec("wheel")):
    raise SystemExit(f"setuptools builds no wheel before 70.1 without `wheel`, {HAS}: pip install --upgrade setuptools")
try:
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


def library():
    is_sanitized = os.environ.get("WMMA_OPS_SANITIZE") == "1"
    # The prefix map keeps the builder's folders out of the binary and its messages.
    return CppExtension(
        "wmma_ops._library",
        [path.as_posix() for path in sorted(CSRC.rglob("*.cpp"))],
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
            "-DTORCH_TARGET_VERSION=0x020a000000000000",
            f"-ffile-prefix-map={ROOT}=.",
            *(SANITIZED if is_sanitized else []),
        ],
        extra_link_args=SANITIZED[:1] if is_sanitized else ["-Wl,--as-needed", "-Wl,-s"],
    )


setuptools.setup(
    license="MIT",
    packages=[
        *setuptools.find_packages(include=["wmma_ops*"]),
        "wmma_ops.kernels",
        "wmma_ops.kernels.compat",
        "wmma_ops.kernels.wmma",
    ],
    ext_modules=[library()],
    cmdclass={"build_ext": BuildExtension.with_options(no_python_abi_suffix=True)},
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
