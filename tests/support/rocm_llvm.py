"""ROCm's optimizer and code generator in place of the pinned clang's, from PyPI's rocm-llvm-python.

    python tests/support/rocm_llvm.py FOLDER

writes a `clang` and an `ld.lld` into FOLDER, for WMMA_OPS_CLANG. ROCm's own front end is in no package: the pinned clang
parses, and what follows is ROCm's: the passes of -O3, and the assembly, which the pinned clang assembles and links.
"""

import ctypes
import itertools
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

_POINTER, _TEXT = ctypes.c_void_p, ctypes.c_char_p
_AGGRESSIVE, _PIC, _ANY_MODEL, _ASSEMBLY = 3, 2, 0, 0  # numbers of LLVM's C interface
_SIGNATURES = {
    "LLVMCreateMemoryBufferWithMemoryRangeCopy": (_POINTER, [_TEXT, ctypes.c_size_t, _TEXT]),
    "LLVMParseIRInContext": (ctypes.c_int, [_POINTER, _POINTER, _POINTER, _POINTER]),
    "LLVMGetGlobalContext": (_POINTER, []),
    "LLVMGetTargetFromTriple": (ctypes.c_int, [_TEXT, _POINTER, _POINTER]),
    "LLVMCreateTargetMachine": (_POINTER, [_POINTER, _TEXT, _TEXT, _TEXT, *[ctypes.c_int] * 3]),
    "LLVMSetTargetMachineAsmVerbosity": (None, [_POINTER, ctypes.c_int]),
    "LLVMCreatePassBuilderOptions": (_POINTER, []),
    "LLVMPassBuilderOptionsSetSLPVectorization": (None, [_POINTER, ctypes.c_int]),
    "LLVMRunPasses": (_POINTER, [_POINTER, _TEXT, _POINTER, _POINTER]),
    "LLVMGetErrorMessage": (_TEXT, [_POINTER]),
    "LLVMTargetMachineEmitToFile": (ctypes.c_int, [_POINTER, _POINTER, _TEXT, ctypes.c_int, _POINTER]),
    "LLVMParseCommandLineOptions": (None, [ctypes.c_int, _POINTER, _TEXT]),
}
# What ROCm's LLVM, a little older, does not know: of intrinsics, which it has its own of, and of targets.
_NEWER = re.compile(
    rb"nocreateundeforpoison |[+](cube-insts|cvt-pknorm-vop2-insts|lerp-inst|q?sad-insts|(pk-)?add-min-max-insts|clusters|"
    rb"mcast-load-insts|s-wakeup-barrier-inst),"
)
# What it writes about the frames of functions, and the pinned assembler does not know.
_FOR_DEBUGGERS = re.compile(rb"^\s*\.cfi_llvm_.*\n", re.MULTILINE)
_MOST_BARRIERS = b"amdgpu.max_num_named_barrier"
_TRIPLE = b"amdgcn-amd-amdhsa"


_CLANG = """#!/bin/sh
case " $* " in
*" --print-supported-cpus "*) {pinned} "$@" 2>&1 | sed 's/clang version .*/clang version {version}/' ;;
*" -S "*) exec {ours} "$@" ;;
*) exec {pinned} "$@" ;;
esac
"""


def main(*arguments: str) -> int:
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    import importlib.metadata

    from wmma_ops.jit import clang, disassembler

    pinned = next(tools for tools in clang.toolchains() if tools.kind == "ziglang")
    ours = (sys.executable, "-I", str(Path(__file__).resolve()), "as", str(disassembler.library()), pinned.clang[0])
    version = f"ROCm {importlib.metadata.version(disassembler.PACKAGE)} behind {pinned.version}"
    scripts = {
        "clang": _CLANG.format(pinned=shlex.join(pinned.clang), ours=shlex.join(ours), version=version),
        "ld.lld": f'#!/bin/sh\nexec {shlex.join(pinned.lld)} "$@"\n',
    }
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in scripts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return 0


def to_assembly(library: str, zig: str, *arguments: str) -> int:
    at = arguments.index("-o") + 1
    target = next(option for option in arguments if option.startswith("--offload-arch=")).partition("=")[2]
    options = [value for option, value in itertools.pairwise(arguments) if option == "-mllvm"]
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "kernel.ll")
        front = [option for option in (*arguments[: at - 1], *arguments[at + 1 :]) if option != "-S"]
        unchanged = ("-emit-llvm", "-S", "-Xclang", "-disable-llvm-passes", "-o", str(text))
        if code := subprocess.run([zig, "clang", *front, *unchanged]).returncode:
            return code
        generate(library, _NEWER.sub(b"", text.read_bytes()), target, arguments[at], options)
    return 0


def generate(library: str, text: bytes, target: str, assembly: str, more: Sequence[str]) -> None:
    """As clang's driver for HIP has it done, by ROCm's LLVM."""
    llvm = ctypes.CDLL(library)
    for name, (result, taken) in _SIGNATURES.items():
        getattr(llvm, name).restype, getattr(llvm, name).argtypes = result, taken
    for part in ("TargetInfo", "Target", "TargetMC", "AsmParser", "AsmPrinter"):
        getattr(llvm, f"LLVMInitializeAMDGPU{part}")()
    given = ("clang", "--amdhsa-code-object-version=5", "-amdgpu-internalize-symbols", *more)
    options = (_TEXT * len(given))(*map(str.encode, given))
    llvm.LLVMParseCommandLineOptions(len(options), options, None)

    module, found, message = _POINTER(), _POINTER(), _TEXT()
    buffer = llvm.LLVMCreateMemoryBufferWithMemoryRangeCopy(text, len(text), b"kernel")
    if llvm.LLVMParseIRInContext(llvm.LLVMGetGlobalContext(), buffer, ctypes.byref(module), ctypes.byref(message)):
        raise SystemExit(message.value.decode())
    if llvm.LLVMGetTargetFromTriple(_TRIPLE, ctypes.byref(found), ctypes.byref(message)):
        raise SystemExit(message.value.decode())
    cpu, *features = target.split(":")  # gfx90a:xnack-
    wanted = ",".join(feature[-1] + feature[:-1] for feature in features)
    machine = llvm.LLVMCreateTargetMachine(found, _TRIPLE, cpu.encode(), wanted.encode(), _AGGRESSIVE, _PIC, _ANY_MODEL)
    llvm.LLVMSetTargetMachineAsmVerbosity(machine, 1)  # with where calls were inlined
    passes = llvm.LLVMCreatePassBuilderOptions()
    llvm.LLVMPassBuilderOptionsSetSLPVectorization(passes, 1)  # as clang has it
    if error := llvm.LLVMRunPasses(module, b"default<O3>", machine, passes):
        raise SystemExit(llvm.LLVMGetErrorMessage(error).decode())
    if llvm.LLVMTargetMachineEmitToFile(machine, module, assembly.encode(), _ASSEMBLY, ctypes.byref(message)):
        raise SystemExit(message.value.decode())
    written = Path(assembly)
    kept = _FOR_DEBUGGERS.sub(b"", written.read_bytes())
    if _MOST_BARRIERS in kept:  # of functions called by pointer; it sets the like of registers alone
        kept += b"\t.set " + _MOST_BARRIERS + b", 0\n"
    written.write_bytes(kept)


if __name__ == "__main__":
    sys.exit(to_assembly(*sys.argv[2:]) if sys.argv[1:2] == ["as"] else main(*sys.argv[1:]))
