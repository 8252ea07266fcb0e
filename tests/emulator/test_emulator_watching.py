"""What the emulator watches for, and what it counts."""

import gc
import re
import time

import pytest
import torch
from user_kernels import HEAD

import wmma_ops
from wmma_ops.emulator import (
    EmulationError,
    EndlessLoop,
    OutOfBounds,
    Race,
    Trap,
    Uninitialised,
    UnknownInstruction,
)

# What it watches for: each of these kernels has one mistake.

BUGS = {
    "race": (
        "__shared__ int s[128]; s[threadIdx.x] = 0; wmma::sync_workgroup(); s[threadIdx.x] = n;"
        " x[threadIdx.x] = s[127 - threadIdx.x];",
        Race,
        "no barrier between",
    ),
    "race, two writers": (
        "__shared__ int s[2]; s[threadIdx.x & 1] = n; wmma::sync_workgroup(); x[threadIdx.x] = s[0];",
        Race,
        "wrote",
    ),
    "race, read then written": (
        "__shared__ int s[128]; s[threadIdx.x] = n; wmma::sync_workgroup(); int y = s[127 - threadIdx.x];"
        " s[threadIdx.x] = y; x[threadIdx.x] = y;",
        Race,
        "no barrier between",
    ),
    "missing second barrier": (
        "__shared__ int s[128]; for (int i = 0; i < 3; ++i) { s[threadIdx.x] = i; wmma::sync_workgroup();"
        " x[threadIdx.x] += s[127 - threadIdx.x]; }",
        Race,
        "no barrier between",
    ),
    "store past the end": (
        "x[threadIdx.x + 1] = n;",
        OutOfBounds,
        r"lane 63: a store of 4 bytes .* nearest is x of 512 bytes",
    ),
    "store before the start": ("x[(int)threadIdx.x - 1] = n;", OutOfBounds, "lane 0: a store"),
    "load past the end": ("x[threadIdx.x] = x[threadIdx.x + 64 * (n > 0)];", OutOfBounds, "a load of 4 bytes"),
    "load far away": ("x[threadIdx.x] = x[(long long)n * 1000000007];", OutOfBounds, "load"),
    "atomic past the end": ("wmma::atomic_add(x + 128, n);", OutOfBounds, "atomic"),
    "shared memory past the end": (
        "__shared__ int s[128]; s[threadIdx.x + n] = 1; wmma::sync_workgroup(); x[0] = s[5];",
        OutOfBounds,
        "shared memory",
    ),
    "past the end of an array, into the next": (
        "__shared__ int s[128], t[100]; s[threadIdx.x + n] = 1; t[threadIdx.x % 100] = n; wmma::sync_workgroup();"
        " x[0] = s[5] + t[7];",
        OutOfBounds,
        r"lane 57: this write of 4 bytes at byte 512 \(byte 0 of t\) .* is outside s \(bytes 0 to 511\)",
    ),
    "before the start of an array, in the one before": (
        "__shared__ int s[128], t[128]; s[threadIdx.x] = t[threadIdx.x] = n; wmma::sync_workgroup();"
        " x[threadIdx.x] = s[threadIdx.x] + t[(int)threadIdx.x - n];",
        OutOfBounds,
        r"lane 0: this read of 4 bytes at byte 484 \(byte 484 of s\) .* is outside t \(bytes 512 to 1023\)",
    ),
    "an atomic past the end of an array": (
        "__shared__ int s[4]; __shared__ double t[64]; if (threadIdx.x < 64) s[threadIdx.x & 3] = t[threadIdx.x] = 0;"
        " wmma::sync_workgroup(); wmma::atomic_add(&s[n], 1); x[0] = s[0] + t[0];",
        OutOfBounds,
        r"this atomic of 4 bytes .* is outside s",
    ),
    "shared memory never written": (
        "__shared__ volatile int s[128]; wmma::sync_workgroup(); x[threadIdx.x] = s[threadIdx.x];",
        Uninitialised,
        "never written",
    ),
    "missing first barrier": (
        "__shared__ int s[128]; s[threadIdx.x] = n; x[threadIdx.x] = s[127 - threadIdx.x];",
        Uninitialised,
        r"wave 0: lane 0: 4 bytes at byte 508 .* never written, or a barrier is missing: wave 1 writes there with no "
        r"barrier between, at buggy.hip:3: `ds_write_b32",
    ),
    "missing first barrier, the writer has one more mistake": (
        "__shared__ volatile int s[128]; int y = s[(threadIdx.x + 64) & 127]; s[threadIdx.x] = n; x[threadIdx.x] = y;",
        Uninitialised,
        "never written, or a barrier is missing$",
    ),
    "half of shared memory written": (
        "__shared__ int s[128]; if (threadIdx.x < 64) s[threadIdx.x] = n; wmma::sync_workgroup();"
        " x[threadIdx.x] = s[threadIdx.x];",
        Uninitialised,
        "never written$",
    ),
    "a register never written": (
        'int y; asm volatile("v_add_u32_e32 %0, v40, v40" : "=v"(y)); x[threadIdx.x] = y;',
        Uninitialised,
        "register v40",
    ),
    "a register never written, converted": (
        'int y; asm volatile("v_cvt_f32_f16_e32 v41, v40\\nv_add_u32_e32 %0, v41, v41" : "=v"(y) :: "v41");'
        " x[threadIdx.x] = y;",
        Uninitialised,
        "register v41",
    ),
    "a register never written, moved": (
        'int y; asm volatile("v_mov_b32_e32 v41, 1\\nv_mov_b32_e32 v41, v40\\nv_add_u32_e32 %0, v41, v41" : "=v"(y)'
        ' :: "v41"); x[threadIdx.x] = y;',
        Uninitialised,
        "register v41",
    ),
    "a register never written, its bits stored": (
        'int y; asm volatile("v_and_b32_e32 v41, 0xff, v40\\nv_lshl_or_b32 %0, v41, 8, %1" : "=v"(y) : "v"(n) : "v41");'
        " x[threadIdx.x] = y;",
        Uninitialised,
        r"global_store_dword.*register v\d+ is read",
    ),
    "a register never written, selected where both are": (
        'int y; asm volatile("v_cndmask_b32_e32 v41, v40, v42, vcc\\nv_add_u32_e32 %0, v41, v41" : "=v"(y) :: "v41");'
        " x[threadIdx.x] = y;",
        Uninitialised,
        "register v41",
    ),
    "a register written on another way": (
        'int y; asm volatile("s_cmp_eq_u32 %1, 7\\ns_cbranch_scc1 .Lpast\\nv_mov_b32_e32 v40, 1\\n.Lpast:\\n'
        'v_add_u32_e32 %0, v40, v40" : "=v"(y) : "s"(n) : "v40", "scc"); x[threadIdx.x] = y;',
        Uninitialised,
        "register v40",
    ),
    "an endless loop": ("while (wmma::atomic_add(x, 0) >= 0) {} x[1] = 2;", EndlessLoop, "budget"),
    "a failed assertion": ("WMMA_ASSERT(n > 100); x[threadIdx.x] = n;", Trap, "assertion"),
    "an instruction unknown here": (
        'asm volatile("v_mqsad_u32_u8 v[0:3], v[4:5], v6, v[8:11]"); x[0] = n;',
        UnknownInstruction,
        "v_mqsad_u32_u8",
    ),
    "a misplaced layout": ("x[(threadIdx.x % 64) * 128 + threadIdx.x / 64] = n;", OutOfBounds, "store"),
    "a wrong leading dimension": ("for (int i = 0; i < 2; ++i) x[i * 128 + threadIdx.x] = n;", OutOfBounds, "store"),
}


@pytest.mark.parametrize("name", BUGS)
def test_planted_bug_is_reported_for_what_it_is(name):
    body, kind, text = BUGS[name]
    source = HEAD + 'extern "C" __global__ void buggy(int* x, int n) {\n' + body + "\n}"
    kernel = wmma_ops.Kernel(source, "buggy")
    x, other = torch.zeros(128, dtype=torch.int32), torch.zeros(128, dtype=torch.int32)
    with wmma_ops.emulate("gfx942", budget=100_000), pytest.raises(kind, match=text) as caught:
        kernel[1, 128](x, 7)
    if kind is not UnknownInstruction:
        assert "buggy on gfx942: " in str(caught.value)
        assert "wave" in str(caught.value)
    assert other.abs().max() == 0
    assert kind in (UnknownInstruction, Trap) or isinstance(caught.value, EmulationError)


UNUSED = {  # ways of bits that nothing has written, to where nothing comes of them
    "dropped": "v_and_b32_e32 v41, 0xff, v40\\nv_or_b32_e32 v41, v41, %1\\nv_mov_b32_e32 v41, %1\\nv_mov_b32_e32 %0, v41",
    "selected from": "s_mov_b64 vcc, 0\\nv_cndmask_b32_e32 %0, %1, v40, vcc",
    "moved half by half": "v_pk_mov_b32 v[42:43], v[40:41], %2 op_sel:[0,1]\\nv_mov_b32_e32 %0, %1",
}


@pytest.mark.parametrize("name", UNUSED)
def test_bits_that_are_moved_and_not_used_may_be_anything(name):
    asm = f'"{UNUSED[name]}" : "=&v"(y) : "v"(n), "v"((long long)n) : "v41", "v42", "v43", "vcc"'
    kernel = _kernel(f"int y; asm volatile({asm}); x[threadIdx.x] = y;")
    x = torch.zeros(64, dtype=torch.int32)
    with wmma_ops.emulate("gfx942"):
        kernel[1, 64](x, 7)
    assert x.eq(7).all()


FILLED = {  # ways to put the byte in %1 at byte k of v41, whose other bytes are kept or turned
    "permuted": "s_mov_b32 s40, {chosen}\\nv_perm_b32 v41, v41, %1, s40",
    "masked and joined": "v_and_b32_e32 v41, {others}, v41\\nv_lshl_or_b32 v41, %1, {shift}, v41",
    "inserted": "s_mov_b32 s40, {mask}\\nv_lshlrev_b32_e32 v42, {shift}, %1\\nv_bfi_b32 v41, s40, v42, v41",
    "turned in": "v_alignbyte_b32 v41, %1, v41, 1",
    "in part": "v_mov_b32_sdwa v41, %1 dst_sel:BYTE_{k} dst_unused:UNUSED_PRESERVE src0_sel:BYTE_0",
}
FILLED_ON = [
    (way, target)
    for way in FILLED
    for target in ("gfx90a", "gfx942", "gfx1100", "gfx1200")
    if way != "in part" or "gfx9" in target
]


def _filled(way: str, places) -> str:
    """A thread's y: of a register that nothing has written, some bytes filled."""
    steps = []
    for k in places:
        chosen = 0x07060504 & ~(0xFF << 8 * k)
        others = f"0x{0xFFFFFFFF & ~(0xFF << 8 * k):x}"
        steps.append(FILLED[way].format(k=k, chosen=chosen, others=others, mask=0xFF << 8 * k, shift=8 * k))
    asm = "\\n".join([*steps, "v_mov_b32_e32 %0, v41"])
    return f'int y; asm volatile("{asm}" : "=&v"(y) : "v"(n) : "v41", "v42", "s40");'


@pytest.mark.parametrize(("way", "target"), FILLED_ON)
def test_a_register_may_be_filled_byte_by_byte(way, target):
    kernel = _kernel(_filled(way, range(4)) + " x[threadIdx.x] = y;")
    x = torch.zeros(64, dtype=torch.int32)
    with wmma_ops.emulate(target):
        kernel[1, 64](x, 7)
    assert x.eq(0x07070707).all()


@pytest.mark.parametrize(
    "use", ["x[threadIdx.x] = y;", "x[threadIdx.x] = y * 3;", "x[y & 63] = n;", "if (y) x[0] = n;"]
)
@pytest.mark.parametrize(("way", "target"), FILLED_ON)
def test_a_byte_that_is_left_out_is_told(way, target, use):
    for left in (0,) if "63" in use else range(4):
        kernel = _kernel(_filled(way, [k for k in range(4) if k != left]) + use)
        with wmma_ops.emulate(target), pytest.raises(Uninitialised, match=r"register v\d+ is read"):
            kernel[1, 64](torch.zeros(64, dtype=torch.int32), 7)


@pytest.mark.parametrize("target", ["gfx942", "gfx1100", "gfx1200"])
def test_a_byte_may_be_stored_alone(target):
    for filled, stored in ((0, 0), (1, 1), (0, 1), (1, 0)):
        kernel = _kernel(_filled("inserted", [filled]) + f" ((char*)x)[threadIdx.x] = y >> {8 * stored};")
        x = torch.zeros(64, dtype=torch.int32)
        with wmma_ops.emulate(target):
            if filled == stored:
                kernel[1, 64](x, 7)
                assert x.view(torch.int8)[:64].eq(7).all()
            else:
                with pytest.raises(Uninitialised, match=r"register v\d+ is read"):
                    kernel[1, 64](x, 7)


@pytest.mark.parametrize("target", ["gfx942", "gfx1200"])
def test_bytes_that_lanes_fill_on_one_of_two_ways(target):
    """As an operand's bytes at an edge: zeros in the lanes beyond it, what they loaded in the others."""
    body = """
int y;
asm volatile("v_mov_b32_e32 %0, v40" : "=v"(y));
for (int k = 0; k < {count}; ++k) {
  int mask = 255 << 8 * k, own = y;
  if (threadIdx.x < 8 * k + 8) own &= ~mask; else own = own & ~mask | x[threadIdx.x] << 8 * k;
  asm volatile("v_mov_b32_e32 %0, %1" : "=v"(y) : "v"(own));
}
x[threadIdx.x] = y;"""
    x = torch.ones(64, dtype=torch.int32)
    with wmma_ops.emulate(target):
        _kernel(body.replace("{count}", "4"))[1, 64](x, 7)
        assert x.tolist() == [sum(1 << 8 * k for k in range(4) if i >= 8 * k + 8) for i in range(64)]
        with pytest.raises(Uninitialised, match=r"register v\d+ is read"):
            _kernel(body.replace("{count}", "3"))[1, 64](x, 7)


def _kernel(body: str) -> wmma_ops.Kernel:
    return wmma_ops.Kernel(HEAD + 'extern "C" __global__ void looping(int* x, int n) {\n' + body + "\n}", "looping")


def test_shared_variables_lie_where_their_names_say():
    """The kernel gives their addresses."""
    source = (
        HEAD
        + """namespace inner { struct Pair { double a; short b[3]; }; }
typedef float four __attribute__((ext_vector_type(4)));
template <class T, int kSize> __device__ T* room() { __shared__ T place[kSize]; return place; }
__shared__ short outside[5];
__device__ __attribute__((noinline)) int apart(int i) { __shared__ volatile int own[3]; own[i] = i; return own[i]; }
#define AT(...) (int)(unsigned long long)(__attribute__((address_space(3))) void*)(__VA_ARGS__)
extern "C" __global__ void lying(int* x, int n) {
  __shared__ inner::Pair pairs[3][5]; __shared__ char bytes[7]; __shared__ four fours[2]; __shared__ bool flag;
  __shared__ long long wide[3]; __shared__ int* pointers[2];
  pairs[n][n].b[1] = n; bytes[n] = n; fours[n] = four{1.0f * n, 2, 3, 4}; flag = n; outside[n] = n; wide[n] = n;
  pointers[n] = x; room<int, 6>()[n] = n; room<half, 6>()[n] = n;
  x[0] = AT(pairs); x[1] = AT(bytes); x[2] = AT(fours); x[3] = AT(&flag); x[4] = AT(outside); x[5] = AT(wide);
  x[6] = AT(pointers); x[7] = AT(room<int, 6>()); x[8] = AT(room<half, 6>());
  x[9] = apart(n);
  if (pointers[n] == x) x[10] = pairs[n][n].b[1] + bytes[n] + fours[n].x + flag + outside[n] + wide[n] + room<int, 6>()[n];
  x[11] = room<half, 6>()[n];
}"""
    ).replace("half", "_Float16")
    names = ("pairs", "bytes", "fours", "flag", "outside", "wide", "pointers", "place", "place")
    sizes = (240, 7, 32, 1, 10, 24, 16, 24, 12)
    kernel = wmma_ops.Kernel(source, "lying")
    for target in ("gfx908", "gfx942", "gfx1100", "gfx1201"):
        x = torch.zeros(64, dtype=torch.int32)
        with wmma_ops.emulate(target):
            kernel[1, 1](x, 1)
        found = kernel._emulated[target].program.names.variables
        given = {*zip(names, x.tolist(), sizes, strict=False)}
        assert {(v.name, v.start, v.size) for v in found if v.name != "own"} == given
        assert sum(v.size for v in found) == 366 + 12
        assert x[9:12].tolist() == [1, 7, 1]


NEIGHBOURS = (
    HEAD
    + """#include <wmma/fragment.hpp>
extern "C" __global__ void past(const wmma::half_t* x, wmma::half_t* y) {
  __shared__ wmma::half_t sa[256], sb[256];
  for (int i = threadIdx.x; i < 256; i += blockDim.x) sa[i] = x[i], sb[i] = wmma::half_t(7.f);
  wmma::sync_workgroup();
  wmma::fragment<wmma::matrix_b, 16, 16, 16, wmma::half_t, wmma::col_major> f;
  load_matrix_sync(f, sa + AT, 16);
  store_matrix_sync(y, f, 16);
  y[threadIdx.x] += sb[threadIdx.x] * wmma::half_t(0.f);
}"""
)


@pytest.mark.parametrize("at", [1, 3, 256])
@pytest.mark.parametrize("target", ["gfx942", "gfx1201"])
def test_a_read_out_of_one_array_into_the_next_is_told(target, at):
    kernel = wmma_ops.Kernel(NEIGHBOURS, "past", options=(f"-DAT={at}",))
    how = "is outside" if at == 256 else "reaches out of"
    x, y = torch.arange(256).half(), torch.zeros(256).half()
    with wmma_ops.emulate(target), pytest.raises(OutOfBounds, match=rf"this read of .* {how} sa \(bytes 0 to 511\)"):
        kernel[1, 64 if target == "gfx942" else 32](x, y)


@pytest.mark.parametrize("target", ["gfx942", "gfx1201"])
def test_neighbours_in_two_arrays_may_be_read_at_once(target):
    source = """extern "C" __global__ void both(int* x) {
  __shared__ int s[64], t[64];
  s[threadIdx.x] = x[threadIdx.x];
  t[threadIdx.x] = 2 * x[threadIdx.x];
  wmma::sync_workgroup();
  int last = s[63];
  x[threadIdx.x] = last +
    t[0];
}"""
    kernel, x = wmma_ops.Kernel(HEAD + source, "both"), torch.arange(1, 65, dtype=torch.int32)
    with wmma_ops.emulate(target):
        kernel[1, 64](x)
    assert x.tolist() == [64 + 2] * 64
    assert re.search(r"ds_(read2|load_2addr)_b32 .* offset0:63 offset1:64", kernel.compile(target).assembly)


def test_pointer_to_one_of_two_arrays_may_reach_both():
    source = (
        HEAD
        + """extern "C" __global__ void chosen(int* x, int n) {
  __shared__ int s[64], t[64];
  s[threadIdx.x] = 1;
  t[threadIdx.x] = 2;
  wmma::sync_workgroup();
  int* p = x[threadIdx.x] ? s : t;
  for (int i = 0; i < n; ++i, p = p == s ? t : s) x[threadIdx.x] += p[63 - threadIdx.x];
}"""
    )
    kernel = wmma_ops.Kernel(source, "chosen")
    for target in ("gfx942", "gfx1201"):
        x = torch.arange(64, dtype=torch.int32) % 2
        with wmma_ops.emulate(target):
            kernel[1, 64](x, 3)
        assert x.tolist() == [5, 5] * 32


def test_a_thread_s_own_array_in_shared_memory_is_not_taken_for_another():
    """Clang moves the fragment, of which each wave stores a piece, to shared memory; the copy has one position."""
    source = """
#include <wmma/fragment.hpp>
extern "C" __global__ void moved(const wmma::half_t* x, wmma::half_t* y) {
  __shared__ wmma::half_t s[256];
  wmma::fragment<wmma::matrix_b, 16, 16, 16, wmma::half_t, wmma::col_major> whole;
  load_matrix_coop_sync(whole, x, 16);
  store_matrix_coop_sync(s, whole, 16);
  wmma::sync_workgroup();
  load_matrix_sync(whole, s, 16);
  if (threadIdx.x < wmma::kWaveSize) store_matrix_sync(y, whole, 16);
}"""
    kernel = wmma_ops.Kernel(source, "moved")
    for target in ("gfx1100", "gfx1201"):
        x, y = torch.randn(256).half(), torch.zeros(256).half()
        with wmma_ops.emulate(target):
            kernel[1, 64](x, y)
        assert torch.equal(x, y)


ENDLESS = {
    "an atomic that all lanes share": "while (wmma::atomic_add(x, 0) >= 0) {} x[1] = 2;",
    "an atomic a lane": "while (wmma::atomic_add(x + threadIdx.x, n) < 2000000000) {} x[1] = 2;",
    "waiting for another block": "volatile int* flag = x; while (*flag == 0) {} x[1] = 2;",
    "waiting for another wave": "__shared__ volatile int s[1]; s[0] = 0; while (s[0] == 0) {} x[1] = 2;",
    "with barriers": "__shared__ volatile int s[256]; for (int i = 0; x[0] == 0; ++i) { wmma::sync_workgroup();"
    " s[threadIdx.x] = i; }",
    "a counter that wraps": "for (unsigned i = 63; i >= 0; --i) x[i & 63] += n;",
}


def seconds_of(work) -> float:
    """This thread's; without a search for garbage, which among all that other tests leave takes one."""
    gc.disable()
    start = time.thread_time()
    try:
        work()
        return time.thread_time() - start
    finally:
        gc.enable()


def a_pace() -> None:
    """Work of an interpreter, 20 ms where the limits below were set: a slower machine, or hour, is so for both."""
    counts: dict[int, int] = {}
    for i in range(200_000):
        counts[i & 255] = counts.get(i & 127, 0) + i


def paces_of(work) -> float:
    before, took, after = seconds_of(a_pace), seconds_of(work), seconds_of(a_pace)
    return took / max(before, after)


@pytest.mark.parametrize("name", ENDLESS)
def test_endless_loop_takes_little_time(name):
    """A tenth of the budget, and of the 300 paces (six seconds) after which it is to be told. Once in three: another
    process on the same core slows down."""
    kernel, x = _kernel(ENDLESS[name]), torch.zeros(256, dtype=torch.int32)

    def run() -> None:
        with wmma_ops.emulate(target, budget=50_000), pytest.raises(EndlessLoop, match="took 50,000 steps"):
            kernel[1, 256](x, 0)

    for target in ("gfx942", "gfx1201"):
        kernel.compile(target)
        assert any(paces_of(run) < 30 for _ in range(3))


def test_endless_loop_names_the_budget_and_what_raises_it():
    kernel, x = _kernel(ENDLESS["waiting for another block"]), torch.zeros(64, dtype=torch.int32)
    kernel.compile("gfx942")

    def run() -> None:
        with (
            wmma_ops.emulate("gfx942"),
            pytest.raises(EndlessLoop, match=r"took 500,000 steps .* budget=…\) raises it"),
        ):
            kernel[1, 64](x, 0)

    assert paces_of(run) < 300


@pytest.mark.parametrize("place", ["i", "65535 - i"])
def test_long_loop_over_new_memory_is_not_endless(place):
    """It takes some 25 times the budget; over the same memory it is stopped."""
    body = f"int sum = 0; for (int i = threadIdx.x; i < 65536; i += 64) sum += x[({place}) & n]; x[threadIdx.x] = sum;"
    kernel, x = _kernel(body), torch.ones(65536, dtype=torch.int32)
    with wmma_ops.emulate("gfx942", budget=1000):
        kernel[1, 64](x, -1)
        assert x[:64].tolist() == [1024] * 64
        with pytest.raises(EndlessLoop, match="took 1,000 steps"):
            kernel[1, 64](x, 63)


@pytest.mark.parametrize("target", wmma_ops.hardware.arch.EMULATED)
def test_what_is_right_is_not_reported(target):
    source = (
        HEAD
        + """extern "C" __global__ void right(int* x, int n) {
  __shared__ int s[128];
  for (int i = 0; i < 3; ++i) {
    s[threadIdx.x] = i;
    wmma::sync_workgroup();
    x[threadIdx.x] += s[127 - threadIdx.x];
    wmma::sync_workgroup();
  }
}"""
    )
    kernel = wmma_ops.Kernel(source, "right")
    for order in ("forward", "reverse", "random"):
        x = torch.zeros(128, dtype=torch.int32)
        with wmma_ops.emulate(target, order=order):
            kernel[1, 128](x, 0)
        assert x.tolist() == [3] * 128


@pytest.mark.parametrize("target", wmma_ops.hardware.arch.EMULATED)
def test_conversions_that_nothing_uses_are_not_reported(target):
    """Compilers convert a value ahead of the branch that uses it, where no lane may have loaded one."""
    text = r"v_cvt_f32_f16_e32 v41, v40\nv_lshlrev_b32_e32 v41, 16, v41\nv_and_b32_e32 v41, 0xffff0000, v41"
    body = f'if (n > 3) asm volatile("v_mov_b32_e32 v40, 0" ::: "v40"); asm volatile("{text}" ::: "v41");'
    source = HEAD + 'extern "C" __global__ void ahead(int* x, int n) {' + body + " x[threadIdx.x] = n; }"
    kernel = wmma_ops.Kernel(source, "ahead")
    x = torch.zeros(64, dtype=torch.int32)
    with wmma_ops.emulate(target):
        kernel[1, 64](x, 3)
    assert x.tolist() == [3] * 64


# What it counts.


def _traffic(body: str, target: str = "gfx942", threads: int = 64):
    kernel = wmma_ops.Kernel(HEAD + 'extern "C" __global__ void counted(int* x, int n) {\n' + body + "\n}", "counted")
    x = torch.zeros(8192, dtype=torch.int32)
    with wmma_ops.emulate(target, count_traffic=True) as emulation:
        kernel[1, threads](x, 3)
    return emulation.launches[0]


def test_segments_are_counted():
    """64 lanes that store side by side fill 4 segments of 64 bytes; with a stride of 16 words each has its own."""
    lined = _traffic("x[threadIdx.x] = n;").traffic
    assert (lined.accesses, lined.segments, lined.wanted) in (
        (1, 4, 4),
        (1, 5, 4),
    )  # 5 where the tensor starts inside one
    spread = _traffic("x[threadIdx.x * 16] = n;").traffic
    assert spread.segments >= 64
    assert spread.wanted == 4


def test_bank_conflicts_are_counted():
    """Stride 1 has none; stride 32 puts 32 lanes on one bank; padding by one word mends it."""
    fill = "__shared__ volatile int s[64 * 33]; for (int i = 0; i < 33; ++i) s[threadIdx.x + 64 * i] = i;"
    for pitch, conflicts in ((1, 0), (2, 1), (32, 31), (33, 0)):
        read = f" wmma::sync_workgroup(); x[threadIdx.x] = s[threadIdx.x * {pitch}];"
        found = _traffic(fill + read).traffic
        assert found.shared_reads == 2  # two groups of 32 lanes
        assert found.shared_read_conflicts == 2 * conflicts, pitch
        assert found.shared_write_conflicts == 0


def test_one_word_for_all_is_no_conflict():
    fill = "__shared__ volatile int s[4]; if (threadIdx.x == 0) s[0] = n; wmma::sync_workgroup();"
    assert _traffic(fill + " x[threadIdx.x] = s[0];").traffic.shared_read_conflicts == 0


def test_instructions_are_counted_by_class():
    found = _traffic("x[threadIdx.x] = n;", threads=128)
    assert found.waves == 2
    assert found.by_class["memory"] == 2
    assert found.instructions == sum(found.by_class.values())
    assert found.traffic.accesses == 2
