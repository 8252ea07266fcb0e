"""Code objects that are disassembled: kernels that others compiled, for which our own, compiled, stand here."""

import dataclasses
import os
import pickle
import re
import struct
import sys

import numpy as np
import pytest
import torch
from user_kernels import HEAD, SCALE

import wmma_ops
from wmma_ops import jit
from wmma_ops.emulator import OutOfBounds, UnknownInstruction
from wmma_ops.emulator import assembly as parser
from wmma_ops.hardware import arch
from wmma_ops.jit import code_object, disassembler, listing
from wmma_ops.runtime import emulated, foreign

if not disassembler.available():
    REASON = f"no {disassembler.PACKAGE} here (pip install {disassembler.PACKAGE}): NO CODE OBJECT IS DISASSEMBLED"
    print(REASON, file=sys.stderr)
    pytest.skip(REASON, allow_module_level=True)


def _calls():
    """One of each kernel and of what differs in its code."""
    make = torch.Generator().manual_seed(1)

    def rand(*shape, dtype=torch.float16):
        return torch.randn(*shape, generator=make).to(dtype)

    a, b, bias = rand(100, 72), rand(72, 70), rand(70)
    q, k, v = (rand(1, 2, 40, 64) for _ in "qkv")
    small = [torch.randint(-99, 99, shape, dtype=torch.int8, generator=make) for shape in ((64, 64), (64, 32))]
    return {
        "gemm": lambda: wmma_ops.gemm(a, b, bias=bias, activation="gelu"),
        "float32": lambda: wmma_ops.matmul(a.float(), b.float()),
        "int8": lambda: wmma_ops.matmul(*small),
        "two products": lambda: wmma_ops.gemm_gemm(a, b, rand(70, 48), activation="relu"),
        "attention and its gradients": lambda: _gradients(q, k, v),
    }


def _gradients(*given):
    given = [x.clone().requires_grad_() for x in given]
    out, _ = wmma_ops.attention(*given, is_causal=True)
    out.sum().backward()
    return torch.cat([out.detach().flatten(), *(x.grad.flatten() for x in given)])


def _disassembled(monkeypatch):
    """From here on the emulator reads what is disassembled, of every code object."""
    own = code_object.assembly
    monkeypatch.setattr(code_object, "assembly", lambda code: own(dataclasses.replace(code, assembly=None)))
    for kernel in [*emulated._decoded.values()]:
        kernel._program = None


def _counted(launch):
    """But for s_nop, with which the assembler fills what lies before an aligned loop."""
    return launch.waves, {kind: count for kind, count in launch.by_class.items() if kind != "wait"}


@pytest.mark.parametrize("target", arch.EMULATED)
def test_every_kernel_of_ours_gives_the_same_bits(target, monkeypatch):
    found = {}
    for way in ("compiled", "disassembled"):
        for what, call in _calls().items():
            with wmma_ops.emulate(target) as emulation:
                out = call()
            assert emulation.launches
            counted = [_counted(launch) for launch in emulation.launches]
            found.setdefault(what, []).append((out, counted))
        if way == "compiled":
            _disassembled(monkeypatch)
    for what, ((first, one), (second, other)) in found.items():
        assert torch.equal(first, second), what
        assert one == other, what


# What a kernel refers to beyond itself: functions, constants, a variable with the addresses of others, far branches.
BEYOND = (
    HEAD
    + """
__device__ __constant__ float table[5] = {1, 2, 4, 8, 16};
__device__ float count = 0.5f;
__device__ const float* const chosen[2] = {table + 1, &count};
__device__ __attribute__((noinline)) float twice(float x) { return 2 * x + count; }
__device__ __attribute__((noinline)) float looked_up(float x, int i) { return twice(x) * table[i] + *chosen[i & 1]; }
extern "C" __global__ void beyond(float* x, const float* y, int n, float factor) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    if (factor > 0) {
      x[i] = looked_up(y[i], i % 5) * factor;
    } else {
      FAR
      x[i] = -1;
    }
  }
}"""
)
# A branch further than an instruction reaches, as compilers write it.
FAR = r"""asm volatile("s_getpc_b64 s[40:41]\n.Lhere:\ns_add_u32 s40, s40, (.Lthere-.Lhere)&4294967295\n"
  "s_addc_u32 s41, s41, (.Lthere-.Lhere)>>32\ns_setpc_b64 s[40:41]\ns_trap 2\n.Lthere:" ::: "s40", "s41");"""


def _file(tmp_path, source, name, target, **options):
    """The code object of a kernel, in a file."""
    path = tmp_path / f"{name}.{target}.co"
    path.write_bytes(jit.compile(source, target, name=f"{name}.hip", **options).code)
    return path


@pytest.mark.parametrize("target", arch.EMULATED)
def test_functions_data_and_far_branches(target, tmp_path):
    y, n = torch.randn(100), 90
    expected = torch.full((100,), 7.0)
    table, chosen = (torch.tensor(row).repeat(20) for row in ([1.0, 2, 4, 8, 16], [2.0, 0.5, 2.0, 0.5, 2.0]))
    expected[:n] = (((2 * y + 0.5) * table + chosen) * 3)[:n]
    kernel = wmma_ops.Kernel.from_code_object(_file(tmp_path, BEYOND.replace("FAR", FAR), "beyond", target))
    for factor, values in ((3.0, expected), (-3.0, torch.full((100,), -1.0).where(torch.arange(100) < n, 7))):
        x = torch.full((100,), 7.0)
        with wmma_ops.emulate(target):
            kernel[2, 64](x, y, np.int32(n), factor)
        torch.testing.assert_close(x, values)


# Arguments of every sort, and two kernels in one file.
READS = (
    HEAD
    + """
struct Pair { const float* from; short skip; float by; };
extern "C" __global__ void reads(float* x, Pair pair, const float* none, double add, char letter) {
  x[threadIdx.x] = pair.from[threadIdx.x + pair.skip] * pair.by + float(add) + letter + (none == nullptr ? 100 : 0);
}
namespace other {
__global__ __attribute__((amdgpu_flat_work_group_size(64, 64))) void one(float* x) { x[threadIdx.x] = 1; }
}
"""
)


def test_arguments_by_the_metadata(tmp_path):
    path = _file(tmp_path, READS, "reads", "gfx1201")
    kernel = wmma_ops.Kernel.from_code_object(path, "reads")
    assert [str(one) for one in kernel.parameters] == [
        "void* argument_1", "16 bytes argument_2", "void* argument_3", "8 bytes argument_4", "1 bytes argument_5",
    ]  # fmt: skip
    x, y = torch.zeros(64), torch.randn(70)
    pair = (y, np.int16(3), np.float32(2))
    for one in (kernel, pickle.loads(pickle.dumps(kernel))):
        with wmma_ops.emulate("gfx1201"):
            one[1, 64](x.zero_(), pair, None, 0.25, np.int8(7))
        torch.testing.assert_close(x, y[3:67] * 2 + 107.25)
    packed = struct.pack("<Qhxxf", x.data_ptr(), 0, 1.0)
    with wmma_ops.emulate("gfx1201"):
        kernel[1, 64](x, packed, argument_3=y, argument_5=np.int8(7), argument_4=0.25)
    torch.testing.assert_close(x, y[3:67] * 2 + 107.25 + 7.25)
    assert re.search(r"^\tglobal_store_b32 .* // [0-9A-F]{12}$", kernel.assembly, re.M)


BAD_LAUNCHES = [
    (lambda k, x: k[1, 64](x), TypeError, "no argument_2, argument_3, .* takes void. argument_1, 16 bytes argument_2"),
    (lambda k, x: k[1, 64](x, b"", x, 0.0, argument_9=1), TypeError, "no argument_5"),
    (lambda k, x: k[1, 64](x, b"", x, 0.0, 1, argument_9=1), TypeError, "argument_9 among the arguments; takes void"),
    (lambda k, x: k[1, 64](x, b"", x, 0.0, 1, 2), TypeError, "6 among the arguments; takes void"),
    (lambda k, x: k[1, 64](x, b"1234", x, 0.0, np.int8(1)), TypeError, "argument_2 has 4 bytes; 16 bytes has 16"),
    (lambda k, x: k[1, 64](x, bytes(16), x, 2, np.int8(1)), TypeError, r"argument_4 .* int; takes 2\.0, or a NumPy"),
    (lambda k, x: k[1, 64](x, (x, 3), x, 2.0, np.int8(1)), TypeError, "nothing tells the members of 16 bytes plainly"),
    (lambda k, x: k[1, 64](3, bytes(16), x, 2.0, np.int8(1)), TypeError, "argument_1 is of type int; takes a tensor"),
    (lambda k, x: k[1, 2048](x, bytes(16), x, 2.0, np.int8(1)), ValueError, "2048 threads; gfx1201 takes up to 1024"),
]


@pytest.mark.parametrize(("launch_it", "kind", "text"), BAD_LAUNCHES, ids=[text for *_, text in BAD_LAUNCHES])
def test_bad_launches_are_refused(launch_it, kind, text, tmp_path):
    kernel = wmma_ops.Kernel.from_code_object(_file(tmp_path, READS, "reads", "gfx1201"), "reads")
    with wmma_ops.emulate("gfx1201"), pytest.raises(kind, match=text):
        launch_it(kernel, torch.zeros(64))


def test_which_kernel_and_which_target(tmp_path):
    path = _file(tmp_path, READS, "reads", "gfx942")
    with pytest.raises(ValueError, match=r"gfx942\.co: has 2 kernels; takes the name of one: reads, _ZN5other3oneEPf"):
        wmma_ops.Kernel.from_code_object(path)
    with pytest.raises(ValueError, match="'two' is not in the compiled code, which has reads, _ZN5other3oneEPf"):
        wmma_ops.Kernel.from_code_object(path, "two")
    one, x = wmma_ops.Kernel.from_code_object(path, "one"), torch.zeros(128)
    with wmma_ops.emulate("gfx942"):
        one[1, 64](x)
        with pytest.raises(ValueError, match=r"block \(128, 1, 1\) has 128 threads; its code object takes up to 64"):
            one[1, 128](x)
    assert x.sum() == 64
    with wmma_ops.emulate("gfx950"), pytest.raises(ValueError, match="is for gfx942, and gfx950 was asked for"):
        one[1, 64](x)
    with pytest.raises(ValueError, match="the tensors are on the cpu"):
        one[1, 64](x)


@pytest.fixture(scope="module")
def code():
    return jit.compile(SCALE, "gfx942", name="scale.hip").code


def _word(code, at, value):
    return code[:at] + struct.pack("<I", value) + code[at + 4 :]


BAD_FILES = [
    (lambda code: b"", "is no ELF file"),
    (lambda code: b"#include <hip>", "is no ELF file; takes a code object"),
    (lambda code: b"__CLANG_OFFLOAD_BUNDLE__" + code, "is a bundle of several targets"),
    (lambda code: code[:40], "is cut off, or damaged: 40 bytes"),
    (lambda code: code[:-1], "is cut off, or damaged"),
    (lambda code: code[: len(code) // 2], "is cut off, or damaged"),
    (lambda code: code[:0x12] + b"\x3e\0" + code[0x14:], "is an ELF file, but no code object of AMD"),
    (lambda code: _word(code, 0x30, 0x36), "is for gfx1030; takes one for gfx908, "),
    (lambda code: _word(code, 0x30, 0xEE), "is for a processor of number 0xee; takes"),
    (lambda code: code.replace(b"amdhsa.kernels", b"amdhsa.nothing"), "has no metadata of kernels"),
    (lambda code: code.replace(b"scale.kd", b"scale.no"), "has no symbol of a kernel that its metadata names: scale"),
]


@pytest.mark.parametrize(("damage", "text"), BAD_FILES, ids=[text for _, text in BAD_FILES])
def test_a_bad_file_is_refused_in_one_line(damage, text, code, tmp_path):
    path = tmp_path / "a.co"
    path.write_bytes(damage(code))
    with pytest.raises(code_object.CodeObjectError, match=f"^{re.escape(str(path))}: {text}") as caught:
        wmma_ops.Kernel.from_code_object(path)
    assert "\n" not in str(caught.value)
    with pytest.raises(code_object.CodeObjectError, match="No such file"):
        wmma_ops.Kernel.from_code_object(tmp_path / "none.co")


def test_any_cut_and_any_damage_are_told(code, tmp_path):
    """As an error that says so, or not at all, where what was damaged is not asked for."""
    path, rng = tmp_path / "a.co", np.random.default_rng(1)
    for at in [*rng.integers(0, len(code), 60), *range(0, 64, 5)]:
        for damaged in (code[:at], code[:at] + b"\xff" + code[at + 1 :]):
            path.write_bytes(damaged)
            try:
                told = wmma_ops.Kernel.from_code_object(path).assembly[:30].replace("\n", " ")
            except ValueError as error:
                told = str(error)
            assert "\n" not in told


def test_an_instruction_that_is_not_known_is_named_with_its_place(tmp_path):
    source = SCALE.replace("int i =", 'asm volatile(".long 0xffffffff"); int i =')
    kernel = wmma_ops.Kernel.from_code_object(_file(tmp_path, source, "scale", "gfx942"))
    place = re.search(r"undecoded 0xffffffff // 0*([0-9A-F]+)", kernel.assembly)[1].lower()
    told = f"scale on gfx942: the emulator does not know 'undecoded 0xffffffff' (0x{place})"
    with wmma_ops.emulate("gfx942"), pytest.raises(UnknownInstruction, match=re.escape(told)):
        kernel[1, 64](torch.zeros(64), torch.zeros(64), np.int32(64), 1.0)


@pytest.mark.parametrize(
    ("target", "words", "text"),
    [
        ("gfx1100", "0xd7006a80, 0x02020406", "v_add_co_u32 v128, vcc_lo, s6, v2"),
        ("gfx1201", "0xd7006a80, 0x02020406", "v_add_co_u32 v128, vcc_lo, s6, v2"),
        ("gfx1201", "0xd6840008, 0x02010007", "v_s_rcp_f32 s8, s7"),
        ("gfx1201", "0x7fc63930, 0xbf800000", "v_mov_b16_e32 v99.h, v48.l"),
        ("gfx1201", "0xd65d4078, 0x000314ff, 0x7fff", "v_cndmask_b16 v120.h, 0x7fff, v138.l, s0"),
        ("gfx1201", "0xffff0008, 0x02010007", "undecoded 0xffff0008"),
    ],
)
def test_what_newer_compilers_write(target, words, text, tmp_path, monkeypatch):
    source = SCALE.replace("int i =", f'asm volatile(".long {words}" ::: "vcc", "v120", "v128", "s8"); int i =')
    kernel = wmma_ops.Kernel.from_code_object(_file(tmp_path, source, "scale", target))
    lines = [line.partition("//")[0].strip() for line in kernel.assembly.splitlines()]
    assert text in lines
    assert sum("undecoded" in line for line in lines) == ("undecoded" in text)
    monkeypatch.setattr(disassembler, "library", lambda: None)
    found = _decoded_if_known(kernel.code.code, target)
    if not isinstance(found, str) and ".h" in text:  # an objdump is as old as it is, but it knows halves
        assert text in [one.text for one in found]


def test_what_a_kernel_does_wrong_is_told_by_its_address(tmp_path):
    kernel = wmma_ops.Kernel.from_code_object(_file(tmp_path, SCALE, "scale", "gfx942"))
    with (
        wmma_ops.emulate("gfx942"),
        pytest.raises(OutOfBounds, match=r"0x[0-9a-f]+: `global_\w+ .*`, block \(1, 0, 0\)"),
    ):
        kernel[2, 64](torch.zeros(64), torch.zeros(128), np.int32(128), 1.0)


FURTHER = (
    HEAD
    + """
extern "C" __global__ void further(float* x) {
  extern __shared__ float s[];
  __shared__ float t[50];
  t[threadIdx.x] = blockDim.y;
  x[threadIdx.z + blockDim.y * (threadIdx.y + blockIdx.z)] = s[blockIdx.y] + t[threadIdx.z];
}"""
)


@pytest.mark.parametrize("target", arch.EMULATED)
def test_the_descriptor_says_what_the_compiler_wrote(target):
    """Every field that both have."""
    for name, source in (("scale", SCALE), ("further", FURTHER)):
        made = jit.compile(source, target, name="k.hip")
        own = parser.parse(made.assembly).kernels[name].descriptor
        read = parser.parse(listing.listing(made.code, target)).kernels[name].descriptor
        granule = 4 if target == "gfx908" else 8
        assert read["next_free_vgpr"] == -(-own["next_free_vgpr"] // granule) * granule
        both = set(own).intersection(read).difference(["next_free_vgpr"])
        assert {"user_sgpr_count", "kernarg_size", "float_denorm_mode_32", "system_vgpr_workitem_id"} <= both
        assert {name: own[name] for name in both} == {name: read[name] for name in both}


def _decoded_if_known(code, target):
    try:
        return disassembler.decode(code, target)
    except disassembler.NoDisassembler as error:
        return str(error)


def test_an_objdump_on_path_will_do(monkeypatch, tmp_path):
    """One that does not know the target is passed over."""
    if not disassembler._objdumps(os.environ.get("PATH")):
        pytest.skip("no llvm-objdump here: NOTHING IS DISASSEMBLED BY ONE")
    for target in ("gfx90a", "gfx1201"):
        made = jit.compile(SCALE, target, name="scale.hip").code
        expected = disassembler.decode(made, target)
        with monkeypatch.context() as without:
            without.setattr(disassembler, "library", lambda: None)
            found = _decoded_if_known(made, target)
        if isinstance(found, str):
            assert target != "gfx90a"  # that was known in 2021
            assert f"nothing here disassembles {target}: pip install rocm-llvm-python" in found
            continue
        assert [(one.address, one.text) for one in found] == [(one.address, one.text) for one in expected]
    monkeypatch.setattr(disassembler, "library", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    kernel = wmma_ops.Kernel.from_code_object(_file(tmp_path, SCALE, "scale", "gfx942"))
    with wmma_ops.emulate("gfx942"), pytest.raises(jit.CompileError, match="pip install rocm-llvm-python"):
        kernel[1, 64](torch.zeros(64), torch.zeros(64), np.int32(64), 1.0)


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_arguments_that_lie_in_registers_as_a_wave_begins(target, tmp_path):
    """As ROCm's compiler has them, hidden ones too. For older firmware the code loads them first, or traps."""
    options = ("-mllvm", "-amdgpu-kernarg-preload-count=8")
    code = jit.compile(SCALE, target, options=options, name="scale.hip")
    path, x, y = tmp_path / "scale.co", torch.zeros(64), torch.randn(64)
    path.write_bytes(code.code)
    kernel = wmma_ops.Kernel.from_code_object(path)
    text = kernel.assembly
    assert parser.parse(text).kernels["scale"].descriptor["user_sgpr_kernarg_preload_length"] >= 6
    shorter, count = re.subn(r"(?<=scale:\n)\t(s_load.*?s_branch|s_trap)[^\n]*\n", "", text, flags=re.S)
    assert count == 1
    for assembly in (None, code.assembly, shorter):
        loads = foreign.ForeignKernel(dataclasses.replace(kernel.code, assembly=assembly), "scale")
        with wmma_ops.emulate(target):
            loads[1, 64](x.zero_(), y, np.int32(60), 2.0)
        assert torch.equal(x, (y * 2).where(torch.arange(64) < 60, 0))
