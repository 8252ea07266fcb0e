"""A program that `disassembler` starts, as LLVM's disassembler ends its process at some bytes that are no instruction.

    python decoder.py librocmllvm.so TARGET ADDRESS < bytes

Writes a line for each instruction, at once: how many bytes it has (0 for four that are none), and its text.
"""

import ctypes
import os
import sys

_ROOM = 1024  # characters of an instruction's text
_POINTER, _SIZE, _TEXT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p


def main(library: str, target: str, address: str) -> int:
    llvm = ctypes.CDLL(library)
    for part in ("TargetInfo", "Target", "TargetMC", "Disassembler"):
        getattr(llvm, f"LLVMInitializeAMDGPU{part}")()
    llvm.LLVMCreateDisasmCPU.restype = _POINTER
    llvm.LLVMCreateDisasmCPU.argtypes = [_TEXT, _TEXT, _POINTER, ctypes.c_int, _POINTER, _POINTER]
    llvm.LLVMDisasmInstruction.restype = _SIZE
    llvm.LLVMDisasmInstruction.argtypes = [_POINTER, _POINTER, ctypes.c_uint64, ctypes.c_uint64, _TEXT, _SIZE]
    context = llvm.LLVMCreateDisasmCPU(b"amdgcn-amd-amdhsa", target.encode(), None, 0, None, None)
    if not context:
        return 1
    content, text = sys.stdin.buffer.read(), ctypes.create_string_buffer(_ROOM)
    there = ctypes.create_string_buffer(content, len(content) + 16)
    at = 0
    while at + 4 <= len(content):
        place = ctypes.addressof(there) + at
        size = llvm.LLVMDisasmInstruction(context, place, len(content) - at, int(address) + at, text, _ROOM)
        os.write(1, b"%d %s\n" % (size, text.value.strip() if size else b""))
        at += size or 4
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
