"""Bytes of shared memory that nothing wrote: a struct's padding may be copied, and nothing else may be done with it."""

import random

import pytest
import torch

import wmma_ops
from wmma_ops.emulator import Uninitialised, bits
from wmma_ops.emulator.assembly import parse_instruction
from wmma_ops.hardware import arch

HEAD = "#include <wmma/grid.hpp>\n#include <wmma/fragment.hpp>\n"
# An instruction with its result in v0, whose operands are v1, of which is asked, and v2; and where v1 stands.
INSTRUCTIONS = [
    ("v_and_b32 v0, 0xff00ff, v1", 2, None),
    ("v_and_b32 v0, v1, v2", 1, None),
    ("v_bfe_u32 v0, v1, 8, 8", 1, None),
    ("v_bfe_i32 v0, v1, 5, 14", 1, None),
    ("v_lshrrev_b32 v0, 16, v1", 2, None),
    ("v_ashrrev_i32 v0, 9, v1", 2, None),
    ("v_lshlrev_b32 v0, 24, v1", 2, None),
    ("v_lshl_or_b32 v0, v1, 16, v2", 1, None),
    ("v_and_or_b32 v0, v1, 15, v2", 1, None),
    ("v_lshlrev_b16 v0, 3, v1", 2, "gfx942"),
    ("v_lshrrev_b16 v0, 8, v1", 2, "gfx942"),
    ("v_perm_b32 v0, v1, v2, 0x07060302", 1, "gfx1201"),
    ("v_perm_b32 v0, v2, v1, 0x07060302", 2, "gfx1201"),
    ("v_perm_b32 v0, v1, v2, 0x0c040d05", 1, "gfx1201"),
    ("v_cvt_f32_ubyte0 v0, v1", 1, None),
    ("v_cvt_f32_ubyte3 v0, v1", 1, None),
    ("v_add_u32_sdwa v0, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_2 src1_sel:DWORD", 1, "gfx942"),
    ("v_add_u32_sdwa v0, v2, v1 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:WORD_1", 2, "gfx942"),
    ("v_xor_b32 v0, v1, v2", 1, None),
    ("v_add_u16 v0, v1, v2", 1, "gfx942"),
    ("v_mad_u16 v0, v2, v2, v1 op_sel:[0,0,1,0]", 3, "gfx942"),
    ("v_mad_u32_u16 v0, v2, v2, v1", 3, None),
    ("v_add_nc_u16 v0, v2, v1 op_sel:[1,1,0]", 2, "gfx1201"),
    ("v_cvt_f32_ubyte1 v0, v1", 1, None),
]


def _results(text: str, target: str, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    asm = f'"v_mov_b32 v1, %1\\nv_mov_b32 v2, %2\\nv_mov_b32 v0, 0\\n{text}\\nv_mov_b32 %0, v0"'
    source = (
        f'{HEAD}extern "C" __global__ void one(const int* x, const int* other, int* y) {{ int i = threadIdx.x, found;'
        f'asm volatile({asm} : "=&v"(found) : "v"(x[i]), "v"(other[i]) : "v0", "v1", "v2"); y[i] = found; }}'
    )
    y = torch.zeros_like(x)
    with wmma_ops.emulate(target):
        wmma_ops.Kernel(source, "one")[1, 64](x, other, y)
    return y


@pytest.mark.parametrize(("text", "position", "only"), INSTRUCTIONS, ids=[text for text, _, _ in INSTRUCTIONS])
def test_an_instruction_uses_these_bits_and_no_others(text, position, only):
    used = bits.of_operand(parse_instruction(text), position)
    draw = random.Random(text)
    x, other = (torch.tensor([draw.getrandbits(32) - 2**31 for _ in range(64)], dtype=torch.int32) for _ in range(2))
    for target in [only] if only else ["gfx90a", "gfx1201"]:
        plain = _results(text, target, x, other)
        for bit in range(32):
            changed = _results(text, target, x ^ (1 << bit if bit < 31 else -(2**31)), other)
            if used >> bit & 1 == 0:
                assert torch.equal(changed, plain), f"bit {bit} is not used, and changes the result"
            elif used != bits.WORD:
                assert not torch.equal(changed, plain), f"bit {bit} is used, and changes nothing"


@pytest.mark.parametrize("returned", ["", " glc"])
def test_what_an_atomic_adds_is_used(returned):
    ins = parse_instruction(f"buffer_atomic_add v0, v1, s[0:3], 0 offen{returned}")
    assert [bits.used(ins, name) for name in ("v0", "v1", "v2")] == [bits.WORD, bits.WORD, 0]


@pytest.mark.parametrize("target", arch.EMULATED)
def test_a_padded_struct_is_copied_by_words(target):
    """Its members take 11 of its 12 bytes."""
    source = """
struct Three { int a; short b; unsigned char c[5]; };
__device__ inline int sum(const Three* of) {
  Three t = *of;
  int found = t.a + t.b;
  for (int k = 0; k < 5; ++k) found += t.c[k];
  return found;
}
extern "C" __global__ void turn(const int* x, int* y) {
  __shared__ Three s[64];
  const int i = threadIdx.x;
  s[i].a = x[i];
  s[i].b = x[i] & 255;
  for (int k = 0; k < 5; ++k) s[i].c[k] = x[i] >> k;
  wmma::sync_workgroup();
  y[i] = sum(s + 63 - i);
}
"""
    x = torch.randint(2**30, (64,), dtype=torch.int32)
    y = torch.zeros_like(x)
    with wmma_ops.emulate(target):
        wmma_ops.Kernel(HEAD + source, "turn")[1, 64](x, y)
    assert torch.equal(y.flip(0), x + (x & 255) + sum(x >> k & 255 for k in range(5)))


FILL = """__shared__ short halves[128];
short* own = halves + 2 * threadIdx.x;
own[0] = (short)x[threadIdx.x];
int word;
asm volatile("{load} %0, %1\\n{wait} 0" : "=v"(word) : "v"({address}own) : "memory");
"""
USES = {  # what follows on the load of a word whose upper half was never written: whether that half is used
    "the lower half": ("x[threadIdx.x] = word & 0xffff;", False),
    "a copy of the lower half": (
        'int copy; asm volatile("v_mov_b32 %0, %1" : "=v"(copy) : "v"(word)); x[threadIdx.x] = copy & 0xff;',
        False,
    ),
    "nothing": ("x[threadIdx.x] = 3;", False),
    "the whole": ("x[threadIdx.x] = word;", True),
    "the upper half": ("x[threadIdx.x] = word >> 16;", True),
    "a byte of the upper half": ("x[threadIdx.x] = word >> 24 & 0xff;", True),
    "a product with it": ("x[threadIdx.x] = word * 3;", True),
    "the whole of a copy": (
        'int copy; asm volatile("v_mov_b32 %0, %1" : "=v"(copy) : "v"(word)); x[threadIdx.x] = copy + 1;',
        True,
    ),
    "the whole, where a lane goes one of two ways": (
        "if (x[threadIdx.x] & 1) x[threadIdx.x] = word & 0xffff; else x[threadIdx.x] = word;",
        True,
    ),
    "the whole, in a later turn of a loop": (
        "for (int i = 0; i < n; ++i) x[threadIdx.x] += i ? word : word & 0xff;",
        True,
    ),
    "what is shared again": (
        "__shared__ int words[64]; words[threadIdx.x] = word; wmma::sync_workgroup(); x[threadIdx.x] = words[0] & 1;",
        True,
    ),
    "a half that is shared again": (
        "__shared__ short kept[64]; kept[threadIdx.x] = word; wmma::sync_workgroup(); x[threadIdx.x] = kept[0];",
        False,
    ),
}


SHARED = "(__attribute__((address_space(3))) short*)"
LOADS = [
    ("gfx90a", "ds_read_b32", "s_waitcnt", SHARED),
    ("gfx1100", "ds_load_b32", "s_waitcnt", SHARED),
    ("gfx1201", "ds_load_b32", "s_wait_dscnt", SHARED),
    ("gfx942", "flat_load_dword", "s_waitcnt", ""),
    ("gfx1201", "flat_load_b32", "s_wait_loadcnt_dscnt", ""),
]


@pytest.mark.parametrize(("target", "load", "wait", "address"), LOADS, ids=[f"{one[0]} {one[1]}" for one in LOADS])
@pytest.mark.parametrize("name", USES)
def test_a_word_of_which_half_was_never_written(name, target, load, wait, address):
    body, is_used = USES[name]
    source = FILL.format(load=load, wait=wait, address=address) + body
    kernel = wmma_ops.Kernel(f'{HEAD}extern "C" __global__ void padded(int* x, int n) {{\n{source}\n}}', "padded")
    x = torch.arange(64, dtype=torch.int32)
    with wmma_ops.emulate(target):
        if is_used:
            with pytest.raises(Uninitialised, match=r"4 bytes at byte \d+ .*of shared memory are read, but were never"):
                kernel[1, 64](x, 2)
        else:
            kernel[1, 64](x, 2)
            want = {"nothing": [3] * 64, "a half that is shared again": [0] * 64}.get(name, list(range(64)))
            assert x.tolist() == want
