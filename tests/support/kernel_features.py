"""Kernels that print, assert, sleep and meet across the grid, with what each has to show, wherever it runs."""

import ctypes
import math

import torch
from machine import Machine

import wmma_ops

INF = float("inf")
HEAD = "#include <wmma/grid.hpp>\n#include <wmma/print.hpp>\nusing namespace wmma;\n"


# A format, the kernel's values for it as C++ has them, and C's own for libc's printf.
LINES = [
    ("%d %i|%5d|%-5d|%05d|%+d|% d", "n, -n, n, n, n, n, n", [7, -7, 7, 7, 7, 7, 7]),
    ("%u %x %X %#x %o %#o", "~0u, 0xbeefu, 0xbeefu, 255, 8u, 8", [2**32 - 1, 0xBEEF, 0xBEEF, 255, 8, 8]),
    ("%hhd %hd %hhu", "300, 70000, -1", [300, 70000, -1]),
    ("%d %d %d", "true, (signed char)-3, (short)-300", [1, -3, -300]),
    ("%c%c%%%-3c|", "'a', 98, (unsigned char)'c'", [97, 98, 99]),
    ("%.3d|%8.3d|%-8.3d|%*d|%-*d|%.*f", "n, n, n, 6, n, 6, n, 2, x", [7, 7, 7, 6, 7, 6, 7, 2, 0.1]),
    ("%f %F %.1f %10.4f|%-10.2f|%+f|%010.3f|% f", "x, x, x, x, x, x, x, x", [0.1] * 8),
    ("%e %E %.0e %g %G %g %#g", "x, x, x, x, 1e-9, 1e20, 1.0", [0.1, 0.1, 0.1, 0.1, 1e-9, 1e20, 1.0]),
    ("%a %A", "0.5, -0.1", [0.5, -0.1]),
    ("%f %f %f %g", "half_t(1.5f), bf16_t(-2.25f), fp8_e5m2_t(0.5f), 0.1f", [1.5, -2.25, 0.5, 0.10000000149011612]),
    ("%f %F %5.1f|%-6f|%06f", "inf, inf, -inf, inf - inf, inf", [INF, INF, -INF, INF - INF, INF]),
    ("%s %10s|%-10s|%.2s|%.*s", '"ab", "right", "left", "cut", 3, name', [b"ab", b"right", b"left", b"cut", 3, b"nam"]),
    ("é %s", 'n > 3 ? "größer" : "k"', ["größer".encode()]),
    ("no values, %%, \\\"quoted\\\"", "", []),
]  # fmt: skip
WIDE = [
    ("%lld %ld %lx %llu", "1ll << 40, -1ll, ~0ull, ~0ull", f"{2**40} -1 {2**64 - 1:x} {2**64 - 1}"),
    ("%p %p %p", "(const void*)0x1230, (int*)nullptr, nullptr", "0x1230 (nil) (nil)"),
    ("%g %g", "OF_CLANG(1.5f)", "1.5 -2.5"),
    ("%c", "0x141", "A"),
]


def _by_libc(form: str, values: list) -> str:
    given = [
        ctypes.c_double(v) if isinstance(v, float) else ctypes.c_char_p(v) if isinstance(v, bytes) else ctypes.c_int(v)
        for v in (v - 2**32 if isinstance(v, int) and v >= 2**31 else v for v in values)
    ]
    buffer = ctypes.create_string_buffer(1000)
    ctypes.CDLL(None).snprintf(buffer, ctypes.c_size_t(1000), form.replace('\\"', '"').encode(), *given)
    return buffer.value.decode()


def formats() -> str:
    """The source of a kernel of which one thread prints each."""
    calls = "".join(f'print("{form}\\n"{", " * bool(values)}{values});\n' for form, values, _ in [*LINES, *WIDE])
    return (
        HEAD
        + f"""#ifdef WMMA_BF16_OF_CLANG
#define OF_CLANG(x) _Float16(x), __bf16(-x - 1)
#else
#define OF_CLANG(x) x, -x - 1
#endif
extern "C" __global__ void formats(int n, double x, double inf) {{
  const char* name = n > 3 ? "names" : "n";
  if (thread_rank() == 3 && block_rank() == 1) {{ {calls} }}
}}"""
    )


def check_every_format(machine: Machine, capsys) -> None:
    """libc says what is right."""
    machine.run(wmma_ops.Kernel(formats(), "formats"), 2, machine.wave, 7, 0.1, float("inf"))
    wanted = [_by_libc(form, values) for form, _, values in LINES] + [text for *_, text in WIDE]
    # A NaN's sign is the hardware's.
    assert capsys.readouterr().out.replace("-nan", "nan ").splitlines() == [x.replace("-nan", "nan ") for x in wanted]


ORDER = (
    HEAD
    + """extern "C" __global__ void order(int rounds) {
  for (int i = 0; i < rounds; ++i) {
    print("%d %u,%u %u,%u\\n", i, blockIdx.x, blockIdx.y, threadIdx.x, threadIdx.y);
    sync_workgroup();
  }
}"""
)


def check_order(machine: Machine, capsys) -> None:
    machine.run(wmma_ops.Kernel(ORDER, "order"), (2, 2), (machine.wave, 2), 2)
    wanted = [f"{i} {bx},{by} {x},{y}" for by in range(2) for bx in range(2) for y in range(2) for x in range(machine.wave)
              for i in range(2)]  # fmt: skip
    assert capsys.readouterr().out.splitlines() == wanted


def check_bounds(machine: Machine, capsys) -> None:
    """Room for ten lines and a bit: of 96 the rest is dropped."""
    form = "%d is one line, number %d of all %d\\n"
    words = 4 + 1 + -(-len(form) // 4) + 3 * 2  # head, the format (its end for the backslash), three numbers
    source = HEAD + f'extern "C" __global__ void bounded(int n) {{ print("{form}", n, thread_rank(), n); }}'
    kernel = wmma_ops.Kernel(source, "bounded", print_bytes=4 * (10 * words + 5))
    for _ in range(2):  # the room is there again
        machine.run(kernel, 1, 96, 5)
        *lines, told = capsys.readouterr().out.splitlines()
        assert len(lines) == 10
        assert all(line.startswith("5 is one line, number ") for line in lines)
        given = 4 * (10 * words + 5)
        assert (
            told
            == f"[bounded: 86 more calls of print found no room in {given} bytes; Kernel(…, print_bytes=…) gives more]"
        )


ASSERTS = (
    HEAD
    + """extern "C" __global__ void asserts(const int* x, int n) {
  const int value = x[threadIdx.y];
  if (thread_rank() == 0) print("before %d\\n", blockIdx.x);
  WMMA_ASSERT(value < 100);
  WMMA_ASSERT(value < n && "so it is", "value is %d, not below %d (%s)", value, n, "text");
}"""
)
# What x[1] is, and what is then told of threads of the second row.
_AT = r"asserts\.hip:{line}: block \(0, 0, 0\), {{wave}}thread \(0, 1, 0\): assertion "
MORE = r" \(and in \d+ more threads\)"
FAILED = [
    (200, _AT.format(line=7) + "`value < 100` failed" + MORE),
    (50, _AT.format(line=8) + r"`value < n && \"so it is\"` failed: value is 50, not below 10 \(text\)" + MORE),
]


def asserts(machine: Machine, value: int, *options: str) -> None:
    x = torch.tensor([5, value], dtype=torch.int32)
    machine.run(wmma_ops.Kernel(ASSERTS, "asserts", options=options), 2, (machine.wave, 2), x, 10)


SLEEPS = """#include <wmma/sleep.hpp>
extern "C" __global__ void sleeps(const long long* nanoseconds, long long* slept, int count) {
  for (int i = 0; i < count; ++i) {
    const wmma::uint64_t start = wmma::wall_clock();
    wmma::nanosleep(nanoseconds[i]);
    slept[i] = (wmma::wall_clock() - start) * wmma::arch::kTickNanoseconds;
  }
}"""


def check_sleep(machine: Machine) -> None:
    """At least as long as asked for; by the emulator's clock, which nothing else moves, little longer."""
    asked = torch.tensor([0, 1, 1000, 20_000, 3_000_000])
    slept = torch.full_like(asked, -1)
    machine.run(wmma_ops.Kernel(SLEEPS, "sleeps"), 1, machine.wave, asked, slept, len(asked))
    assert (slept >= asked).all(), slept
    most = 3 * asked + 1_000_000 if machine.cuda else asked + 300
    assert (slept <= most).all(), slept


MEETS = """#include <wmma/grid_sync.hpp>
using namespace wmma;
extern "C" __global__ void meets(unsigned* x, unsigned* seen, int rounds, int skips) {
  const unsigned rank = block_rank() * block_threads() + thread_rank();
  const unsigned all = gridDim.x * gridDim.y * gridDim.z * block_threads();
  __shared__ unsigned own[192];  // of the block alone, whatever others do meanwhile
  for (int i = 0; i < rounds; ++i) {
    x[rank] = i * 1000 + rank;
    own[thread_rank()] = block_rank() + i;
    SYNC;
    seen[rank] += x[(rank + all / 2 + 1) % all] + own[(thread_rank() + 1) % block_threads()] - block_rank() - i;
    if (block_rank() != skips) SYNC;
  }
}"""


def check_grid_sync(machine: Machine) -> None:
    """Each reads what another block wrote before the barrier, round after round, launch after launch."""
    kernel = wmma_ops.Kernel(MEETS, "meets", options=("-DSYNC=sync_grid()",))
    for grid, block, rounds in (
        ((3, 2), (machine.wave, 3), 3),
        ((5,), (40,), 4),
        ((1, 1, 2), (1,), 1),
        ((1,), (64,), 2),
    ):
        threads = math.prod((*grid, *block))
        x, seen = torch.zeros(threads, dtype=torch.int32), torch.zeros(threads, dtype=torch.int32)
        machine.run(kernel, grid, block, x, seen, rounds, -1)
        other = (torch.arange(threads) + threads // 2 + 1) % threads
        assert torch.equal(seen.long(), sum(i * 1000 + other for i in range(rounds))), (grid, block)
