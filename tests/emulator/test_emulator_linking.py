"""What kernels reach beyond their own text: functions, constants, variables, scratch memory; and what of it is refused."""

import pytest
import torch

import wmma_ops
from wmma_ops.emulator import EmulationError, OutOfBounds, Trap, UnknownInstruction, assembly, linking

HEAD = "#include <wmma/grid.hpp>\n#define FN __attribute__((device, noinline))\n"
EVERY = pytest.mark.parametrize("target", wmma_ops.hardware.arch.EMULATED)


def run(target: str, source: str, body: str, x, threads: int = 64, **options):
    kernel = wmma_ops.Kernel(HEAD + source + f'extern "C" __global__ void kernel(int* x, int n) {{ {body} }}', "kernel")
    with wmma_ops.emulate(target, **options):
        for _ in range(2):
            kernel[1, threads](x, 3)
    return x.tolist()


@EVERY
def test_variables_keep_their_values_between_launches(target):
    x = torch.zeros(64, dtype=torch.int32)
    source = "__device__ int counts[64]; __device__ int* where = counts + 1;"
    got = run(target, source, "int i = threadIdx.x; counts[i] += i; x[i] = counts[i] + (i == 0 ? *where : 0);", x)
    assert got == [2 if i == 0 else 2 * i for i in range(64)]


@EVERY
def test_an_access_past_a_variable_is_reported(target):
    with pytest.raises(OutOfBounds, match="few of 12 bytes"):
        run(target, "__device__ int few[3];", "few[threadIdx.x] = n;", torch.zeros(64, dtype=torch.int32))


@EVERY
def test_recursion(target):
    source = "FN int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }"
    got = run(target, source, "x[threadIdx.x] = fibonacci(threadIdx.x % 8);", torch.zeros(64, dtype=torch.int32))
    assert got == [[0, 1, 1, 2, 3, 5, 8, 13][i % 8] for i in range(64)]


@EVERY
def test_barrier_within_a_function(target):
    source = """FN int other(int v) {
  __shared__ int s[128]; s[threadIdx.x] = v; wmma::sync_workgroup(); v = s[127 - threadIdx.x]; wmma::sync_workgroup();
  return v;
}"""
    x = torch.zeros(128, dtype=torch.int32)
    got = run(target, source, "x[threadIdx.x] = other(other(threadIdx.x) * n);", x, 128, order="random")
    assert got == [3 * i for i in range(128)]


def test_a_jump_to_what_is_no_function_is_reported():
    source = "using F = int (*)(int);"
    with pytest.raises(EmulationError, match="where no function of this kernel is"):
        run("gfx942", source, "x[0] = ((F)(long)n)(n);", torch.zeros(64, dtype=torch.int32))


@EVERY
def test_a_trap_stops_the_kernel(target):
    with pytest.raises(Trap):
        run(target, "", "if (n == 3) __builtin_trap(); x[0] = n;", torch.zeros(64, dtype=torch.int32))


def test_unaligned_atomics_are_reported():
    with pytest.raises(EmulationError, match="unaligned"):
        run("gfx942", "", "wmma::atomic_add((int*)((char*)x + 2), n);", torch.zeros(64, dtype=torch.int32))


@pytest.mark.parametrize(
    ("fact", "value", "text"),
    [("system_sgpr_workgroup_info", 1, "workgroup_info is 1"), ("fp16_overflow", 1, "fp16_overflow is 1")],
)
def test_registers_and_modes_that_a_launch_does_not_set_are_refused(fact, value, text):
    kernel = _kernel("s_endpgm")
    kernel.descriptor[fact] = value
    with pytest.raises(UnknownInstruction, match=text):
        wmma_ops.emulator.program.build(kernel, "gfx942")


def test_waves_of_another_size_are_refused():
    kernel = wmma_ops.Kernel(
        HEAD + 'extern "C" __global__ void k(int* x) { x[0] = 1; }', "k", options=("-mwavefrontsize64",)
    )
    with wmma_ops.emulate("gfx1201"), pytest.raises(UnknownInstruction, match="waves of 64 lanes"):
        kernel[1, 64](torch.zeros(4, dtype=torch.int32))


def test_a_pointer_to_no_scratch_memory_is_reported():
    body = "x[threadIdx.x] = *(volatile int*)((long)n + (1l << 49));"
    with pytest.raises(OutOfBounds, match="scratch memory"):
        run("gfx942", "", body, torch.zeros(64, dtype=torch.int32))


def _kernel(*body: str, data: str = "") -> assembly.KernelText:
    text = '\t.amdgcn_target "amdgcn-amd-amdhsa--gfx942"\n\t.text\nk:\n\t' + "\n\t".join(body)
    text += f"\n\t.section .rodata\n{data}\n\t.amdhsa_kernel k\n\t.end_amdhsa_kernel\n"
    return assembly.parse(text).kernels["k"]


def test_addresses_within_a_symbol():
    """The constant counts from the end of s_getpc_b64: 4 and 12 bytes on are the symbol itself."""
    data = "t:\n\t.long 5\n\t.long 6\n\t.quad t+4\n"
    kernel = _kernel(
        "s_getpc_b64 s[4:5]",
        "s_add_u32 s4, s4, t@rel32@lo+8",
        "s_addc_u32 s5, s5, t@rel32@hi+16",
        "s_endpgm",
        data=data,
    )
    linked = linking.link(kernel)
    linking.resolve(linked, {0: 0})
    base = linked.data["t"].base
    low, high = (int(ins.operands[2], 0) for ins in linked.instructions[1:3])
    assert high << 32 | low == base + 4
    raw = linked.data["t"].keep.tobytes()
    assert (base + 4).to_bytes(8, "little") in raw


FAR = (
    "s_getpc_b64 s[4:5]",
    "\n.Lpost_getpc0:",
    "s_sext_i32_i16 s5, s5",
    "s_add_u32 s4, s4, (.LBB0_2-.Lpost_getpc0)&4294967295",
    "s_addc_u32 s5, s5, (.LBB0_2-.Lpost_getpc0)>>32",
    "s_setpc_b64 s[4:5]",
    "s_trap 2",
    "\n.LBB0_2:",
    "s_endpgm",
)


@pytest.mark.parametrize("names", [("s_add_u32", "s_addc_u32"), ("s_add_co_u32", "s_add_co_ci_u32")])
def test_a_branch_further_than_an_instruction_reaches(names):
    """As the compiler writes one in kernels of more than 128 KiB."""
    lines = [line.replace("s_add_u32", names[0]).replace("s_addc_u32", names[1]) for line in FAR]
    instructions = linking.link(_kernel(*lines)).instructions
    assert [ins.mnemonic for ins in instructions] == ["s_nop"] * 4 + ["s_branch", "s_trap", "s_endpgm"]
    assert instructions[4].operands == (".LBB0_2",)
    program = wmma_ops.emulator.program.build(_kernel(*lines), "gfx942")
    assert program.blocks[1].steps.run(None) == 3  # the one of .LBB0_2


@pytest.mark.parametrize(("at", "line"), [(4, "s_mov_b32 s5, 0"), (4, FAR[4].replace("B0_2", "B0_1")), (5, "s_nop 0")])
def test_what_only_resembles_a_far_branch_is_refused(at, line):
    with pytest.raises(UnknownInstruction, match="s_getpc_b64"):
        wmma_ops.emulator.program.build(_kernel(*FAR[:at], line, *FAR[at + 1 :]), "gfx942")


def test_symbols_that_cannot_be_placed_are_refused():
    lines = ("s_getpc_b64 s[4:5]", "s_add_u32 s4, s4, t@rel32@lo+4", "s_addc_u32 s5, s5, t@rel32@hi+12", "s_endpgm")
    for data in ("", "t:\n\t.uleb128 5\n\t.long t-4+3\n"):
        with pytest.raises(UnknownInstruction, match="neither a function nor data"):
            wmma_ops.emulator.program.build(_kernel(*lines, data=data), "gfx942")
