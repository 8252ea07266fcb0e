"""The example kernels: written once, run on every emulated target in every wave order, and on a GPU where there is one.

python -m pytest tests/emulator/test_examples.py            # emulated targets, and the GPU
python -m pytest tests/emulator/test_examples.py -k cuda    # the GPU alone

What the libraries that people come from describe, and where it is held here:

    rocWMMA          the fragment kinds, layouts at compile time and run time, leading dimensions, fill, load, mma, store,
                     element access, several waves a block: gemm, layouts; its type rows: gemm_of_every_type; cooperative
                     loads and stores, workgroup sync: gemm_through_shared_memory; sizes refused: sizes_that_do_not_fit
    RDNA4 fused GEMM swapped operands, D0 as the next A, both alphas, beta and C1, rounding between: two_products
    Accera           set, scale, accumulate before the product, scale and relu (two ways) after it: prologues_and_epilogues
    CUDA.jl          WMMA over layouts in global and shared memory, D chained into C, operations over fragments: layouts,
                     fragments_from_shared_memory, epilogues; shuffles, votes, atomics, fences, clock: lanes_together;
                     indices, printing, assertions: indices_and_sizes; reductions: reduction_with_shuffles
    tilelang         the lanes' layouts: tests/unit/test_layouts_rdna.py
"""

import contextlib
import functools
import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import torch

import wmma_ops
from wmma_ops.hardware import arch

EXAMPLES = Path(__file__).parents[1] / "support/examples"
NAN = float("nan")
U = 2.0**-24  # rounding unit of float32

MACHINES = [(target, order) for target in arch.EMULATED for order in ("forward", "reverse", "random")]
if torch.cuda.is_available():
    MACHINES.append(("cuda", "hardware"))
EVERY = pytest.mark.parametrize("machine", MACHINES, ids=lambda m: f"{m[0]}-{m[1]}")
# For blocks of one wave, whose order is the same.
ONCE = pytest.mark.parametrize("machine", [m for m in MACHINES if m[1] in ("forward", "hardware")], ids=lambda m: m[0])


@functools.cache
def _kernel(name: str, *options: str) -> wmma_ops.Kernel:
    return wmma_ops.Kernel((EXAMPLES / f"{name}.hip").read_text(), name, options=options)


class Machine:
    """Where a kernel runs, and its wave size."""

    def __init__(self, machine):
        self.target, self.order = machine
        self.cuda = self.target == "cuda"
        self.wave = 32 if self.cuda else arch.target(self.target).wave
        self.device = "cuda" if self.cuda else "cpu"

    def launch(self, kernel, grid, block, *arguments, shared=0):
        active = contextlib.nullcontext() if self.cuda else wmma_ops.emulate(self.target, order=self.order, seed=5)
        with active:
            kernel[grid, block](*arguments, shared=shared)
        if self.cuda:
            torch.cuda.synchronize()

    def put(self, x):
        return x.to(self.device)


def _close(got, want, magnitude, k, out_unit=0.0):
    """Within the bound of a sum of k products in float32, and nothing left unwritten."""
    got = got.cpu().double()
    assert not got.isnan().any()
    bound = (k + 4) * U * magnitude + out_unit * want.abs()
    excess = (got - want).abs() - bound
    at = int(excess.argmax())
    assert excess.max() <= 0, (
        f"at {np.unravel_index(at, tuple(got.shape))}: {got.flatten()[at]} for {want.flatten()[at]}"
    )


def _normal(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@EVERY
@pytest.mark.parametrize("block", [16, 32])
def test_gemm_with_leading_dimensions(machine, block):
    on = Machine(machine)
    m, n, k = 64, 64, 48
    lda, ldb, ldc, ldd = k + 8, k + 16, n + 3, n + 5
    a, b, c = (
        _normal(m, lda, dtype=torch.float16),
        _normal(n, ldb, dtype=torch.float16, seed=1),
        _normal(m, ldc, seed=2),
    )
    d = on.put(torch.full((m, ldd), NAN))
    kernel = _kernel("gemm", f"-DWMMA_BLOCK={block}")
    grid = (m // block // 2, n // block)
    on.launch(
        kernel, grid, (2 * on.wave, 1), m, n, k, on.put(a), on.put(b), on.put(c), d, lda, ldb, ldc, ldd, 0.5, -2.0
    )
    x, y, z = a[:, :k].double(), b[:, :k].double(), c[:, :n].double()
    magnitude = 0.5 * x.abs() @ y.abs().T + 2 * z.abs()
    _close(d[:, :n], 0.5 * x @ y.T - 2 * z, magnitude, k)
    assert d[:, n:].isnan().all()  # what lies between the rows


# The type rows of rocWMMA's guide: input, output, compute, and the least K of a 16x16 and of a 32x32 block. Its __half rows
# are those of half_t, which is the same type here.
HALF, BF16, I8 = torch.float16, torch.bfloat16, torch.int8
TYPE_ROWS = [
    ("wmma::int8_t", "wmma::int32_t", "wmma::int32_t", I8, torch.int32, (16, 8)),
    ("wmma::int8_t", "wmma::int8_t", "wmma::int32_t", I8, I8, (16, 8)),
    ("wmma::half_t", "float", "float", HALF, torch.float32, (16, 8)),
    ("wmma::half_t", "wmma::half_t", "float", HALF, HALF, (16, 8)),
    ("wmma::half_t", "wmma::half_t", "wmma::half_t", HALF, HALF, (16, 8)),
    ("wmma::bf16_t", "float", "float", BF16, torch.float32, (8, 4)),
    ("wmma::bf16_t", "wmma::bf16_t", "float", BF16, BF16, (8, 4)),
    ("wmma::bf16_t", "wmma::bf16_t", "wmma::bf16_t", BF16, BF16, (8, 4)),
    ("float", "float", "float", torch.float32, torch.float32, (4, 2)),
    ("double", "double", "double", torch.float64, torch.float64, (4, 4)),
]


@ONCE
@pytest.mark.parametrize(("block", "deep"), [(16, True), (32, False)], ids=["16, K 32", "32, least K"])
@pytest.mark.parametrize("row", TYPE_ROWS, ids=lambda r: "-".join(t.replace("wmma::", "") for t in r[:3]))
def test_gemm_of_every_type(machine, row, block, deep):
    on = Machine(machine)
    source, result, compute, operand, out, least = row
    block_k = 32 if deep else least[block == 32]
    if operand in (HALF, BF16, I8) and not deep and block_k < 16 and (on.cuda or on.wave == 32):
        block_k = 16  # the guide's lower figures are those of Instinct's instructions
    m, n, k = block, 2 * block, 64
    if operand == torch.int8:
        generator = torch.Generator().manual_seed(0)
        a, b = (torch.randint(-128, 128, s, generator=generator, dtype=torch.int8) for s in ((m, k), (n, k)))
        c = torch.randint(-100, 100, (m, n), generator=generator, dtype=out)
        if out == I8:  # sums that int8 holds, and some that it does not
            a, b = a // 64, b // 8
    else:
        a, b, c = _normal(m, k, dtype=operand), _normal(n, k, dtype=operand, seed=1), _normal(m, n, dtype=out, seed=2)
    d = on.put(torch.full((m, n), NAN if out.is_floating_point else 77, dtype=out))
    options = [f"-DWMMA_INPUT={source}", f"-DWMMA_OUTPUT={result}", f"-DWMMA_COMPUTE={compute}"]
    kernel = _kernel("gemm", *options, f"-DWMMA_BLOCK={block}", f"-DWMMA_BLOCK_K={block_k}")
    integer = operand == torch.int8
    alpha, beta = (np.int32(2), np.int32(-3)) if integer else (0.5, -2.0)
    on.launch(kernel, (1, 2), (on.wave, 1), m, n, k, on.put(a), on.put(b), on.put(c), d, k, k, n, n, alpha, beta)
    x, y, z = a.double(), b.double(), c.double()
    want = alpha * (x @ y.T) + beta * z
    if integer:
        info = torch.iinfo(out)
        assert torch.equal(d.cpu().double(), want.clamp(info.min, info.max))
        return
    magnitude = abs(alpha) * (x.abs() @ y.abs().T) + abs(beta) * z.abs()
    unit = 0 if out in (torch.float32, torch.float64) else torch.finfo(out).eps / 2
    if compute in ("wmma::half_t", "wmma::bf16_t"):  # every step rounds the sum, and so do the factors
        steps = k // block_k + 6
        assert ((d.cpu().double() - want).abs() <= steps * unit * magnitude.clamp(min=1)).all()
        return
    _close(d, want, magnitude * (2.0**-20 if out == torch.float64 else 1), k, unit)


@EVERY
def test_gemm_through_shared_memory(machine):
    on = Machine(machine)
    m, n, k = 128, 64, 48
    a, b, c = _normal(m, k, dtype=torch.float16), _normal(n, k, dtype=torch.float16, seed=1), _normal(m, n, seed=2)
    d = on.put(torch.full((m, n), NAN))
    block = (4 * on.wave, 2)
    on.launch(
        _kernel("gemm_shared"),
        (m // 64, n // 32),
        block,
        m,
        n,
        k,
        on.put(a),
        on.put(b),
        on.put(c),
        d,
        k,
        k,
        n,
        n,
        2.0,
        0.5,
    )
    x, y, z = a.double(), b.double(), c.double()
    _close(d, 2 * x @ y.T + 0.5 * z, 2 * x.abs() @ y.abs().T + 0.5 * z.abs(), k)


@ONCE
def test_two_products_with_d0_in_registers(machine):
    on = Machine(machine)
    m, n, k = 48, 64, 32
    a0, b0, b1 = (_normal(*s, dtype=torch.float16, seed=i) for i, s in enumerate(((m, k), (16, k), (n, 16))))
    c1 = _normal(m, n, seed=3)
    d1 = on.put(torch.full((m, n), NAN))
    on.launch(
        _kernel("two_products"),
        m // 16,
        on.wave,
        n,
        k,
        on.put(a0),
        on.put(b0),
        on.put(b1),
        on.put(c1),
        d1,
        0.5,
        2.0,
        -1.5,
    )
    exact = 0.5 * a0.double() @ b0.double().T
    want = 2 * exact @ b1.double().T - 1.5 * c1.double()
    rounding = 2.0**-11 * exact.abs() + (k + 4) * U * 0.5 * a0.double().abs() @ b0.double().abs().T
    magnitude = 2 * exact.abs() @ b1.double().abs().T + 1.5 * c1.double().abs()
    error = (d1.cpu().double() - want).abs()
    assert (error <= 20 * U * magnitude + 2 * rounding @ b1.double().abs().T).all()
    # D0 is rounded to float16 once: against the product of the rounded D0 only float32's errors remain (but for ties).
    rounded = 2 * exact.half().double() @ b1.double().T - 1.5 * c1.double()
    assert ((d1.cpu().double() - rounded).abs() <= 40 * U * magnitude).float().mean() > 0.9


@ONCE
@pytest.mark.parametrize("prologue", [0, 1, 2, 3])
def test_prologues_and_epilogues(machine, prologue):
    """The whole table of α·A·B + β·D: nothing, zero or D before; scaled or not after; relu with and without a branch."""
    on = Machine(machine)
    m, n, k, alpha, beta = 32, 16, 32, 0.5, -2.0
    a, b, before = _normal(m, k, dtype=torch.float16), _normal(n, k, dtype=torch.float16, seed=1), _normal(m, n, seed=2)
    product = a.double() @ b.double().T
    for epilogue in (0, 1, 2, 3):
        d = on.put(before.clone() if prologue else torch.full((m, n), NAN))
        on.launch(
            _kernel("epilogues"),
            (m // 16, n // 16),
            on.wave,
            n,
            k,
            on.put(a),
            on.put(b),
            d,
            prologue,
            epilogue,
            alpha,
            beta,
        )
        z = before.double()
        total = product + {0: 0 * z, 1: beta * z, 2: z, 3: 0 * z}[prologue]
        total = {0: total, 1: alpha * total, 2: total.relu(), 3: total.relu()}[epilogue]
        if prologue == 3:
            total = total + beta * z
        _close(d, total, a.double().abs() @ b.double().abs().T + 2 * z.abs(), k)


LAYOUTS = list(itertools.product(("row_major", "col_major"), repeat=3))


@ONCE
@pytest.mark.parametrize("block", [16, 32])
@pytest.mark.parametrize("orders", LAYOUTS, ids=lambda o: "-".join(x[:3] for x in o))
def test_every_layout_pair(machine, orders, block):
    on = Machine(machine)
    k = 16
    a, b = _normal(block, k, dtype=torch.float16), _normal(k, block, dtype=torch.float16, seed=1)
    c, c_run_time = _normal(block, block, seed=2), _normal(block, block, seed=3)

    def stored(x, order, pad):
        """The matrix in memory with a gap after each row (column), as a flat tensor, and its leading dimension."""
        x = x if order == "row_major" else x.T
        wide = torch.zeros(x.shape[0], x.shape[1] + pad, dtype=x.dtype)
        wide[:, : x.shape[1]] = x
        return wide.contiguous(), x.shape[1] + pad

    options = [f"-DWMMA_LAYOUT_{operand}={order}" for operand, order in zip("ABC", orders, strict=True)]
    kernel = _kernel("layouts", *options, f"-DWMMA_BLOCK={block}")
    for run_time in (0, 1):
        order = ("row_major", "col_major")[run_time]
        (ma, lda), (mb, ldb), (mc, ldc) = (stored(x, o, 8) for x, o in zip((a, b, c), orders, strict=True))
        mr, _ = stored(c_run_time, order, 8)
        d, dr = (on.put(torch.full((block, block + 8), NAN)) for _ in range(2))
        on.launch(
            kernel,
            1,
            on.wave,
            on.put(ma),
            on.put(mb),
            on.put(mc),
            on.put(mr),
            d,
            dr,
            lda,
            ldb,
            ldc,
            block + 8,
            0.5,
            run_time,
        )
        product = (0.5 * a).double() @ b.double()
        magnitude = (0.5 * a).double().abs() @ b.double().abs()
        got = d[:, :block] if orders[2] == "row_major" else d[:, :block].T
        _close(got, product + c.double(), magnitude + c.double().abs(), k)
        got = dr[:, :block] if run_time == 0 else dr[:, :block].T
        _close(got, product + c_run_time.double(), magnitude + c_run_time.double().abs(), k)


@EVERY
def test_reduction_with_shuffles_votes_and_atomics(machine):
    on = Machine(machine)
    count = 1000
    x = _normal(count)
    total, largest = on.put(torch.zeros(1)), on.put(torch.full((1,), -torch.inf))
    positives = on.put(torch.zeros(1, dtype=torch.int32))
    threads = 4 * on.wave
    on.launch(_kernel("reduce"), 2, threads, count, on.put(x), total, largest, positives, shared=4 * 4)
    assert abs(total.item() - x.double().sum().item()) <= count * U * x.abs().sum().item()
    assert largest.item() == x.max().item()
    assert positives.item() == int((x > 0).sum())


@EVERY
def test_indices_and_sizes(machine, capsys):
    on = Machine(machine)
    grid, block = (2, 3, 2), (8, 4, 4)
    threads, blocks = 128, 12
    out = on.put(torch.zeros(blocks, threads, 16, dtype=torch.int32))
    on.launch(_kernel("grid"), grid, block, out)
    rank = np.arange(threads)
    at = np.arange(blocks)
    got = out.cpu().numpy()
    for axis, values in enumerate((rank % 8, rank // 8 % 4, rank // 32)):
        assert (got[:, :, axis] == values).all()
    for axis, values in enumerate((at % 2, at // 2 % 3, at // 6)):
        assert (got[:, :, 3 + axis] == values[:, None]).all()
    assert (got[:, :, 6:12] == [*block, *grid]).all()
    assert (got[:, :, 12] == rank % on.wave).all()
    assert (got[:, :, 13] == rank // on.wave).all()
    assert (got[:, :, 14] == threads // on.wave).all()
    assert (got[:, :, 15] == on.wave).all()
    assert capsys.readouterr().out == "".join(f"block {i} has {threads} threads\n" for i in range(blocks))


@ONCE
def test_lanes_together(machine):
    """Shuffles by index, up, down and xor, with widths; votes; every atomic; fences; the clock."""
    on = Machine(machine)
    words = on.put(torch.zeros(on.wave, 12, dtype=torch.int32))
    doubles, sums = on.put(torch.zeros(on.wave, dtype=torch.float64)), on.put(torch.zeros(1))
    counters = on.put(torch.tensor([0, 0, 0, -1, 0, 0, 5, 0, 0, 0, 0], dtype=torch.int32))
    on.launch(_kernel("lanes"), 1, on.wave, words, doubles, counters, sums)
    lane = np.arange(on.wave)
    group, within = lane // 8 * 8, lane % 8
    got = words.cpu().numpy()
    other = lane ^ 9
    expected = [
        np.full(on.wave, 50),
        10 * (group + 3),
        10 * np.where(lane < 2, lane, lane - 2),
        10 * np.where(within < 2, lane, lane - 2),
        10 * np.where(lane + 2 >= on.wave, lane, lane + 2),
        10 * np.where(within + 2 >= 8, lane, lane + 2),
        10 * other,
        10 * lane,  # lane ^ 9 lies in the next group
    ]
    for index, want in enumerate(expected):
        assert got[:, index].tolist() == want.tolist(), index
    ballot = sum(1 << int(x) for x in lane if x % 3 == 0)
    assert (got[:, 8] == np.int32(np.uint32(ballot & 0xFFFFFFFF))).all()
    assert (got[:, 9] == 1 + 4).all()
    assert (got[:, 10] == ballot.bit_count()).all()
    assert got[:, 11].all()
    assert doubles.cpu().tolist() == [0.1 * x for x in (lane ^ 1).tolist()]
    n = on.wave
    want = [n * (n - 1) // 2, -(n - 1), n - 1, ~0xFF, 0xFF, n % 2, 41, 5, 17, 0, 17]
    assert counters.cpu().tolist() == want
    assert sums.item() == n / 2


SHARED = """
#include <wmma/fragment.hpp>
extern "C" __global__ void from_shared(const wmma::half_t* a, const wmma::half_t* b, float* d, int lda, int ldb,
                                       int a_size, int b_size) {
  using namespace wmma;
  __shared__ __attribute__((aligned(16))) half_t tile_a[64 * 40];
  __shared__ __attribute__((aligned(16))) half_t tile_b[64 * 40];
  for (int i = threadIdx.x; i < a_size; i += blockDim.x) tile_a[i] = a[i];
  for (int i = threadIdx.x; i < b_size; i += blockDim.x) tile_b[i] = b[i];
  sync_workgroup();
  fragment<matrix_a, BLOCK, BLOCK, 32, half_t, LAYOUT_A> x;
  fragment<matrix_b, BLOCK, BLOCK, 32, half_t, LAYOUT_B> y;
  fragment<accumulator, BLOCK, BLOCK, 32, float> sum;
  fill_fragment(sum, 0.0f);
  load_matrix_sync(x, tile_a, lda);
  load_matrix_sync(y, tile_b, ldb);
  mma_sync(sum, x, y, sum);
  store_matrix_sync(d, sum, BLOCK, mem_row_major);
}
"""


@functools.cache
def _from_shared(*options):
    return wmma_ops.Kernel(SHARED, "from_shared", options=options)


@ONCE
@pytest.mark.parametrize("block", [16, 32])
@pytest.mark.parametrize("pad", [8, 3], ids=["aligned", "odd"])
@pytest.mark.parametrize("orders", list(itertools.product(("row_major", "col_major"), repeat=2)), ids="-".join)
def test_fragments_from_shared_memory(machine, orders, pad, block):
    """Every layout pair, by wide loads (NVIDIA: ldmatrix) where rows are aligned and one by one where not."""
    on = Machine(machine)
    a, b = _normal(block, 32, dtype=HALF), _normal(32, block, dtype=HALF, seed=1)
    stored = []
    for x, order in zip((a, b), orders, strict=True):
        x = x if order == "row_major" else x.T
        wide = torch.zeros(x.shape[0], x.shape[1] + pad, dtype=HALF)
        wide[:, : x.shape[1]] = x
        stored.append(wide)
    d = on.put(torch.full((block, block), NAN))
    options = [f"-DLAYOUT_{name}={order}" for name, order in zip("AB", orders, strict=True)]
    kernel = _from_shared(f"-DBLOCK={block}", *options)
    sizes = [x.numel() for x in stored]
    on.launch(kernel, 1, on.wave, *map(on.put, stored), d, *(x.shape[1] for x in stored), *sizes)
    _close(d, a.double() @ b.double(), a.double().abs() @ b.double().abs(), 32)


def test_sizes_that_do_not_fit_are_refused():
    """gemm_shared asserts that each wave's block lies inside the product."""
    on = Machine(("gfx942", "forward"))
    a, b, c = _normal(64, 16, dtype=HALF), _normal(32, 16, dtype=HALF), _normal(48, 32)
    arguments = (48, 32, 16, a, b, c, torch.zeros(48, 32), 16, 16, 32, 32, 1.0, 1.0)
    where = r"gemm_shared\.hip:\d+"
    with pytest.raises(wmma_ops.emulator.Trap, match=rf"gemm_shared on gfx942: {where}.*assertion"):
        on.launch(_kernel("gemm_shared"), (1, 1), (4 * 64, 2), *arguments)


@ONCE
def test_a_line_for_each_name(machine):
    """Each line's value to the digits that its function has."""
    on, x = Machine(machine), 0.7
    lines = [line for line in (EXAMPLES / "names.hip").read_text().splitlines() if "y[line++]" in line]
    wanted = [
        2**x,
        np.exp(x),
        np.log2(x),
        np.log(x),
        np.exp(x),
        np.log(x),
        1 / x,
        x**-0.5,
        x**0.5,
        np.sin(x),
        np.cos(x),
    ]
    wanted += [1 / (1 + np.exp(-x)), np.tanh(x), x * x + 1, x, 1.0, x, 1.0]
    narrow = [
        torch.half,
        torch.bfloat16,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
        torch.float8_e4m3fnuz,
        torch.float8_e5m2fnuz,
    ]
    wanted += [torch.tensor(x).to(dtype).item() for dtype in narrow] + [70.0, 3.0]
    y = on.put(torch.full((len(lines) + 1,), NAN))
    on.launch(_kernel("names"), 1, 1, y, x)
    got = y.cpu().double()
    assert got[-1].isnan()
    np.testing.assert_allclose(got[:-1].numpy(), wanted, rtol=2e-6)

    x, y = _normal(16, 16), on.put(torch.full((16, 16), NAN))
    kernel = wmma_ops.Kernel((EXAMPLES / "names.hip").read_text(), "fragment_names")
    on.launch(kernel, 1, on.wave, on.put(x), y)
    picked = torch.where((x <= 0) ^ (x < -1), -1.0, x.abs())
    torch.testing.assert_close(y.cpu(), 2 * x + 2 * (picked - x))


@EVERY
def test_two_phases_of_one_launch(machine):
    on = Machine(machine)
    x = torch.rand(1000, generator=torch.Generator().manual_seed(0))
    y, largest = on.put(torch.full((1000,), NAN)), on.put(torch.zeros(1))
    on.launch(_kernel("phases"), 3, 2 * on.wave, on.put(x), y, largest, 1000)
    assert largest.item() == x.max()
    torch.testing.assert_close(y.cpu(), x / x.max())


@ONCE
def test_math_by_name(machine):
    on, x, y = Machine(machine), float(np.float32(0.7)), 2.5
    wanted = [
        np.sin(x),
        np.cos(x),
        np.tan(x),
        np.sin(np.pi * x),
        np.cos(np.pi * x),
        np.arcsin(x),
        np.arccos(x),
        np.arctan(x),
        np.arctan2(x, -y),
        np.exp(x),
        2**x,
        10**x,
        np.expm1(x),
        np.sinh(x),
        np.cosh(x),
        np.tanh(x),
        np.log(x),
        np.log2(x),
        np.log10(x),
        np.log1p(x),
        np.arcsinh(x),
        np.arccosh(y),
        np.arctanh(x),
        x**y,
        np.cbrt(x),
        np.hypot(x, y),
        np.sqrt(x),
        x**-0.5,
        math.erf(x),
        math.erfc(x),
        0.7328690779592167,
        2,
        3,
        -2,
        2,
        2,
        3,
        math.fmod(y, x),
        math.remainder(y, x),
        x * y + 1,
        x,
        y,
        y - x,
        -x,
        x,
        x,
        0,
        0,
        1,
        1,
        x,
        8 * x,
        1,
        1,
        np.sin(x) - np.cos(x),
        y / 4,
        0.5,
        4,
    ]
    z = on.put(torch.full((len(wanted) + 1,), NAN))
    on.launch(_kernel("math"), 1, 1, z, x, y)
    assert z[-1].isnan()
    np.testing.assert_allclose(z[:-1].cpu().numpy(), wanted, rtol=3e-7, atol=1e-7)
