"""A program that `disassembler` starts, as LLVM's disassembler ends its process at some bytes that are no instruction.

    python decoder.py librocmllvm.so TARGET ADDRESS < bytes

Writes a line for each instruction, at once: how many bytes it has (0 for four that are none), and its text.
"""

import ctypes
import os
import sys

_ROOM = 1024  # characters of an instruction's text
# Operands that an instruction of VOP3 does not have are 0 of the newer LLVM's in its code, the constant, whose number is
# 0x80, and older ones find no instruction there: fields of its second word, the third operand's and the second one's.
_VOP3, _CONSTANT = 0b110101, 0x80
_FIELDS = (18, 9)
# Halves of registers by their own names: else an instruction of gfx11 and gfx12 that is for an upper half is taken for
# the lower one's. What is none with them is tried without.
HALVES = "+real-true16"
_POINTER, _SIZE, _TEXT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p


def main(library: str, target: str, address: str) -> int:
    llvm = ctypes.CDLL(library)
    for part in ("TargetInfo", "Target", "TargetMC", "Disassembler"):
        getattr(llvm, f"LLVMInitializeAMDGPU{part}")()
    create = llvm.LLVMCreateDisasmCPUFeatures
    create.restype = _POINTER
    create.argtypes = [_TEXT, _TEXT, _TEXT, _POINTER, ctypes.c_int, _POINTER, _POINTER]
    llvm.LLVMDisasmInstruction.restype = _SIZE
    llvm.LLVMDisasmInstruction.argtypes = [_POINTER, _POINTER, ctypes.c_uint64, ctypes.c_uint64, _TEXT, _SIZE]
    triple, cpu = b"amdgcn-amd-amdhsa", target.encode()
    contexts = [create(triple, cpu, features.encode(), None, 0, None, None) for features in (HALVES, "")]
    if not all(contexts):
        return 1
    content, text = sys.stdin.buffer.read(), ctypes.create_string_buffer(_ROOM)
    there = ctypes.create_string_buffer(content, len(content) + 16)

    def decoded(at: int) -> int:
        """Bytes of the instruction there, whose text is written; 0 where none is."""
        place, rest = ctypes.addressof(there) + at, len(content) - at
        for context in contexts:
            if size := llvm.LLVMDisasmInstruction(context, place, rest, int(address) + at, text, _ROOM):
                return size
        return 0

    at = 0
    while at + 4 <= len(content):
        size = decoded(at)
        if not size and at + 8 <= len(content):
            words = (ctypes.c_uint32 * 2).from_buffer(there, at)
            second = words[1]
            for field in _FIELDS:
                if words[0] >> 26 == _VOP3 and words[1] >> field & 0x1FF == _CONSTANT and not size:
                    words[1] &= ~(0x1FF << field)
                    size = decoded(at)
            words[1] = second
        os.write(1, b"%d %s\n" % (size, text.value.strip() if size else b""))
        at += size or 4
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
