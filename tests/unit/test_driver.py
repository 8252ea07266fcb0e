"""The drivers' own lines without a GPU: a stand-in for the runtime library notes their calls, and hands what they launch
to the emulator."""

import ctypes
import re
import struct
import threading
from dataclasses import dataclass
from types import SimpleNamespace

import arguments
import pytest
import torch
from stand_in import COMPILER, TARGET, build

import wmma_ops
from wmma_ops.hardware import arch
from wmma_ops.plan import KernelLaunch, Plan
from wmma_ops.plan.gemm import planner as gemm
from wmma_ops.plan.gemm.loops import loop_of
from wmma_ops.plan.gemm_gemm import planner as gemm_gemm
from wmma_ops.runtime import driver, launching

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler to build the stand-in with")


@pytest.mark.parametrize("kind", ["hip", "cuda"])
@pytest.mark.parametrize("op", ["matmul", "addmm_", "gemm_gemm"])
def test_a_driver_gives_what_the_emulated_path_gives(library, device, op, kind):
    a, b = torch.randn(40, 32).half(), torch.randn(32, 48).half()
    input = torch.zeros(40, 48).half()
    operands = {"matmul": (a, b), "addmm_": (input, a, b), "gemm_gemm": (a, b, b.T.contiguous())}[op]

    def call():
        input.zero_()
        return getattr(wmma_ops, op)(*operands).clone()

    with wmma_ops.emulate(TARGET) as emulation:
        want = call()
    with driver.use(kind, str(library), TARGET):
        got = [call(), call()]
    assert torch.equal(got[0], want)
    assert torch.equal(got[1], want)
    launch = {"hip": "hipModuleLaunchKernel", "cuda": "cuLaunchKernel"}[kind]
    prefix = launch[: 3 if kind == "hip" else 2]
    count, loads = len(emulation.launches), device.noted.count(f"{prefix}ModuleLoadData")
    assert device.noted.count(launch) == len(device.launches) == 2 * count
    assert 1 <= loads == device.noted.count(f"{prefix}ModuleGetFunction") <= count  # none for the second call
    call()
    assert len(device.launches) == 2 * count  # aten's again


@pytest.mark.parametrize("first", [0, 48], ids=["at the start", "aligned"])
def test_cuda_asks_what_a_kernel_takes(library, device, first):
    """On an H200 a struct with maps of the copy engine lies at 48: bytes before it are none of its own."""
    a = torch.randn(16, 16).half()
    takes = device.library.takes
    takes.argtypes = [ctypes.c_size_t, ctypes.c_size_t]

    def call(size):
        takes(size, first)
        with driver.use("cuda", str(library), TARGET):
            return wmma_ops.matmul(a, a)

    try:
        with pytest.raises(
            RuntimeError, match=r"takes 1048576 bytes .*, and the library has \d+: .*headers"
        ) as refused:
            call(1 << 20)
        has = int(re.search(r"library has (\d+)", str(refused.value))[1])
        assert torch.equal(call(has), call(64))
        with pytest.raises(RuntimeError, match=f"takes {has + 1} bytes"):
            call(has + 1)
    finally:
        takes(0, 0)


def test_hip_calls_in_order(library, device):
    a = torch.randn(16, 16).half()
    with driver.use("hip", str(library), TARGET):
        wmma_ops.warmup("matmul", a, a)
        assert device.noted == ["hipGetDevice", "hipModuleLoadData", "hipModuleGetFunction"]
        wmma_ops.matmul(a, a)
        assert device.noted[3:] == ["hipGetDevice", "hipModuleLaunchKernel"]
        device.library.hipSetDevice(3)
        device.library.forget()
        wmma_ops.matmul(a, a)
        assert device.noted == ["hipGetDevice", "hipSetDevice", "hipModuleLaunchKernel", "hipSetDevice"]
        assert device.library.device_of_launch() == 0
        device.library.hipGetDevice(ctypes.byref(current := ctypes.c_int()))
        assert current.value == 3  # as it was
        device.library.hipSetDevice(0)


def test_cuda_calls_in_order(library, device):
    a = torch.randn(16, 16).half()
    with driver.use("cuda", str(library), TARGET):
        wmma_ops.warmup("matmul", a, a)
        load = "cuInit cuDeviceGet cuDevicePrimaryCtxRetain cuCtxGetCurrent cuCtxPushCurrent cuModuleLoadData"
        assert device.noted[:7] == [*load.split(), "cuModuleGetFunction"]
        device.library.forget()
        wmma_ops.matmul(a, a)  # in a thread with no context
        assert device.noted == "cuCtxGetCurrent cuCtxPushCurrent cuLaunchKernel cuCtxPopCurrent".split()
        assert device.library.device_of_launch() == 0
        device.library.cuCtxPushCurrent_v2(ctypes.c_void_p(100))
        device.library.forget()
        wmma_ops.matmul(a, a)
        assert device.noted == ["cuCtxGetCurrent", "cuLaunchKernel"]
        device.library.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))


@dataclass(frozen=True)
class Matrix:
    """What the copy engine was told of one: sizes and strides, in elements, from the dimension along memory outwards."""

    data: int
    sizes: list[int]
    strides: list[int]
    box: list[int]

    def tensor(self) -> torch.Tensor:
        """What lies there."""
        extent = 1 + sum((size - 1) * stride for size, stride in zip(self.sizes, self.strides, strict=True))
        memory = torch.frombuffer((ctypes.c_char * (2 * extent)).from_address(self.data), dtype=torch.float16)
        return memory.as_strided(self.sizes[::-1], self.strides[::-1]).clone()


def _matrices(text: str):
    for one in text.split(";")[:-1]:
        numbers = [int(word) for word in one.split()]
        kind, rank, data, *numbers = numbers
        sizes, strides, box, steps, last = (
            numbers[:rank],
            numbers[rank : 2 * rank - 1],
            numbers[2 * rank - 1 : 3 * rank - 1],
            numbers[3 * rank - 1 : 4 * rank - 1],
            numbers[4 * rank - 1 :],
        )
        # 16-bit words, no steps, not interleaved, chunks exchanged over 128 bytes and fetched by as many, zeros beyond.
        assert (kind, steps, last) == (1, [1] * rank, [0, 3, 2, 0])
        assert all(stride % 16 == 0 for stride in strides)
        yield Matrix(data, sizes, [1, *(stride // 2 for stride in strides)], box)


def _lines_apart(rows, columns, across, dims):
    shape = (*dims, columns, rows) if across else (*dims, rows, columns)
    x = torch.randn(*shape[:-1], shape[-1] + 8).half()[..., :-8]
    return x.mT if across else x


@pytest.mark.parametrize(
    ("a_across", "b_across", "batch", "shares"),
    [(False, True, (), (1, 1)), (True, False, (), (2, 1)), (False, True, (3,), (2, 2)), (True, True, (2, 3), (1, 2))],
)
def test_the_copy_engine_is_told_of_the_matrices(library, device, monkeypatch, a_across, b_across, batch, shares):
    def choose(problem, target):
        fitting = (
            x for x in gemm.ranked(problem, target) if x.loop == "warpgroup" and x.block_k == 64 and x.block_n == 64
        )
        return next(x for x in fitting if (x.order.share, x.order.share_a) == shares and x.order.cluster == 1), 0.0

    m, n, k = 200, 264, 136
    a, b = _lines_apart(m, k, a_across, batch[-1:]), _lines_apart(k, n, not b_across, batch)  # A's are repeated
    monkeypatch.setattr(gemm, "choose", choose)
    device.kernel = lambda code, name: SimpleNamespace(
        name=name, explicit=[SimpleNamespace(size=arguments.with_maps(3))]
    )
    device.memory = None
    with driver.use("cuda", str(library), "sm_90a"):
        out = wmma_ops.matmul(a, b)
    (planned,) = launching.problems(lambda: wmma_ops.matmul(a, b), arch.target("sm_90a"))
    plan = gemm.plan(planned, arch.target("sm_90a"))
    in_context = ["cuCtxGetCurrent", "cuCtxPushCurrent", "{}", "cuCtxPopCurrent"]
    calls = [name.format(call) for call in (*["cuTensorMapEncodeTiled"] * 3, "cuLaunchKernel") for name in in_context]
    if plan.launches[0].early:
        calls.insert(-2, "early")
    assert device.noted[-len(calls) :] == calls  # this thread has no context of its own
    ((_, _, _, _, data),) = device.launches
    assert list(data[arguments.with_maps(0) :: 128]) == [1, 2, 3]  # the maps, in their order
    config = plan.config
    of_a, of_b, of_d = _matrices(device.library.mapped().decode())
    share, share_a = shares
    wanted = (
        (of_a, a, a_across, config.block_m, share_a),
        (of_b, b.mT, b_across, config.block_n, share),  # as lines along K, too
    )
    assert (of_d.data, of_d.box) == (out.data_ptr(), [64, 16, *[1] * len(batch)])
    assert of_d.tensor().shape == out.shape
    for told, x, across, block, parts in wanted:
        found = told.tensor()
        for _ in batch[: len(batch) - x.dim() + 2]:
            assert found.shape[0] == 1  # the repeated
            found = found[0]
        assert torch.equal(found.mT if across else found, x)
        ones = [1] * len(batch)
        assert told.box == [64, (64 if across else block) // parts, *ones]


@pytest.mark.parametrize(
    ("across", "gated", "batch", "resident"),
    [(False, False, (), True), (True, True, (2, 3), False), (False, True, (3,), False), (True, False, (), True)],
)
def test_the_copy_engine_is_told_of_two_products(library, device, monkeypatch, across, gated, batch, resident):
    def choose(problem, target):
        fitting = (x for x in gemm_gemm.ranked(problem, target) if x.loop == "warpgroup" and x.resident is resident)
        return next(x for x in fitting if x.block_n == 64), 0.0

    m, k, h, n = 200, 136, 72, 80
    a = _lines_apart(m, k, across, batch)
    b0, gate, b1 = (_lines_apart(*x, across, batch[-1:]) for x in ((k, h), (k, h), (h, n)))  # the batch repeats them
    monkeypatch.setattr(gemm_gemm, "choose", choose)
    device.kernel = lambda code, name: SimpleNamespace(
        name=name, explicit=[SimpleNamespace(size=arguments.with_maps(5, arguments.TwoArguments))]
    )
    device.memory = None
    with driver.use("cuda", str(library), "sm_90a"):
        out = wmma_ops.gemm_gemm(a, b0, b1, gate=gate if gated else None, activation="relu")
    rows = 64 if resident else choose(*_planned(a, b0, b1, gate if gated else None))[0].block_m
    # Rows and columns of K, H or N, and whether lines run along the first: as the copy engine goes through memory.
    wanted = [(a, across, rows), (b0.mT, not across, 128), (gate.mT, not across, 128), (b1.mT, not across, 64)]
    wanted = [*(one for one in wanted if gated or one[0].data_ptr() != gate.data_ptr()), (out, False, 16)]
    told = list(_matrices(device.library.mapped().decode()))
    ((*_, data),) = device.launches
    assert list(data[-5 * 128 :: 128]) == ([1, 2, 3, 4, 5] if gated else [1, 2, 0, 3, 4])  # the maps, in their order
    assert len(told) == len(wanted)
    for one, (x, is_across, lines) in zip(told, wanted, strict=True):
        assert one.data == x.data_ptr()
        found = one.tensor()
        for _ in batch[: len(batch) - x.dim() + 2]:
            assert found.shape[0] == 1  # the repeated
            found = found[0]
        assert found.shape == (x.mT if is_across else x).shape
        if x is not out:
            assert torch.equal(found.mT if is_across else found, x)
        assert one.box == [64, 64 if is_across else lines, *[1] * len(batch)]


def test_the_copy_engine_is_told_of_two_pairs(library, device, monkeypatch):
    def choose(problem, target):
        return next(
            x
            for x in gemm.ranked(problem, target)
            if x.loop == "warpgroup" and x.block_n == 64 and not x.order.persistent
        ), 0.0

    m, n, k, k2 = 200, 264, 136, 72
    a, a2 = (_lines_apart(m, x, False, ()) for x in (k, k2))
    b, b2 = (_lines_apart(n, x, False, ()).mT for x in (k, k2))
    monkeypatch.setattr(gemm, "choose", choose)
    device.kernel = lambda code, name: SimpleNamespace(
        name=name, explicit=[SimpleNamespace(size=arguments.with_maps(5))]
    )
    device.memory = None
    with driver.use("cuda", str(library), "sm_90a"):
        wmma_ops.gemm(a, b, a2=a2, b2=b2)
    ((*_, data),) = device.launches
    assert list(data[arguments.with_maps(0) :: 128]) == [1, 2, 5, 3, 4]  # the maps, D's asked for last
    told = list(_matrices(device.library.mapped().decode()))
    for one, x in zip(told, (a, b.mT, a2, b2.mT), strict=False):
        assert one.data == x.data_ptr()
        assert torch.equal(one.tensor(), x)
    assert told[2].box == told[0].box
    assert told[3].box == told[1].box


@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize("across", [(False, True), (True, False)], ids=str)
def test_the_copy_engine_is_told_of_copies_of_what_is_not_aligned(library, device, monkeypatch, across, flipped):
    """Rows start at a chunk, and end where those of the operands do; flipped, the result runs down its columns."""
    choose = gemm.choose
    monkeypatch.setattr(gemm, "choose", lambda problem, target: (choose(problem, target)[0], float("inf")))
    m, n, k = 201, 263, 137
    a, b = (
        (torch.randn(*reversed(shape)).mT if is_across else torch.randn(shape)).bfloat16()
        for shape, is_across in zip(((m, k), (k, n)), across, strict=True)
    )
    out = torch.empty(n, m).bfloat16().mT if flipped else torch.empty(m, n).bfloat16()
    device.kernel = lambda code, name: SimpleNamespace(
        name=name, explicit=[SimpleNamespace(size=arguments.with_maps(3))]
    )
    device.memory = None
    with driver.use("cuda", str(library), "sm_90a"):
        wmma_ops.addmm_(out, a, b, beta=0.0)
    maps = list(_matrices(device.library.mapped().decode()))[:2]
    for one, x in zip(maps, (b.mT, a) if flipped else (a, b.mT), strict=True):
        assert one.data != x.data_ptr()  # of memory that is given back when the call is done
        lines, length = x.shape if x.stride(1) == 1 else x.mT.shape
        assert (one.sizes, one.strides) == ([length, lines], [1, -(-length // 8) * 8])


def test_a_gradient_is_copied_once_for_both_products_that_read_it(library, device, monkeypatch):
    choose = gemm.choose
    monkeypatch.setattr(gemm, "choose", lambda problem, target: (choose(problem, target)[0], float("inf")))
    rows, columns, k = 1030, 1025, 136
    g, x, weight = (torch.randn(*shape).bfloat16() for shape in ((rows, columns), (rows, k), (columns, k)))
    sizes = {"gemm": arguments.with_maps(3), "gemm_reduce": arguments.with_maps(3)}
    device.kernel = lambda code, name: SimpleNamespace(name=name, explicit=[SimpleNamespace(size=sizes.get(name, 80))])
    device.memory = None
    with driver.use("cuda", str(library), "sm_90a"):
        torch.ops.wmma._linear_backward(g, x, weight, bias_dtype=torch.bfloat16)
    names = [name for name, *_ in device.launches]
    assert [name for name in names if name != "gemm_reduce"] == [
        "activation_gradient",
        "activation_gradient_sums",
        "gemm",
        "gemm",
    ]
    maps = [one for one in _matrices(device.library.mapped().decode()) if one.sizes == [columns, rows]]
    assert len({one.data for one in maps}) == 1
    assert [one.strides for one in maps] == [[1, 1032]] * 2


def test_the_copy_engine_is_told_where_what_activations_are_given_is_kept(library, device, monkeypatch):
    def choose(problem, target):
        return next(x for x in gemm.ranked(problem, target) if loop_of(x).mapped_lines(problem, x)[2]), 0.0

    x, weight = torch.randn(200, 136).bfloat16(), torch.randn(264, 136).bfloat16()
    monkeypatch.setattr(gemm, "choose", choose)
    device.kernel = lambda code, name: SimpleNamespace(
        name=name, explicit=[SimpleNamespace(size=arguments.with_maps(4))]
    )
    device.memory = None
    with driver.use("cuda", str(library), "sm_90a"):
        out, kept = torch.ops.wmma._linear_aux(x, weight, activation=2)
    *_, of_out, of_kept = _matrices(device.library.mapped().decode())
    assert (of_out.data, of_kept.data) == (out.data_ptr(), kept.data_ptr())
    assert of_kept.box == of_out.box
    ((*_, data),) = device.launches
    assert list(data[arguments.with_maps(0) :: 128]) == [1, 2, 3, 4]  # the maps, in their order


@pytest.mark.parametrize("kept", [False, True])
def test_the_copy_engine_is_told_of_a_gate(library, device, monkeypatch, kept):
    def choose(problem, target):
        return next(x for x in gemm.ranked(problem, target) if loop_of(x).mapped_lines(problem, x)[2]), 0.0

    x, weight, gate = (
        torch.randn(200, 136).bfloat16(),
        torch.randn(264, 136).bfloat16(),
        torch.randn(264, 136).bfloat16(),
    )
    monkeypatch.setattr(gemm, "choose", choose)
    monkeypatch.setattr(gemm, "_costs_more", lambda *_: "")
    device.kernel = lambda code, name: SimpleNamespace(
        name=name, explicit=[SimpleNamespace(size=arguments.with_maps(6))]
    )
    device.memory = None
    with driver.use("cuda", str(library), "sm_90a"):
        if kept:
            results = torch.ops.wmma._gated_aux(x, weight.mT, gate.mT, activation=4)
        else:
            results = (wmma_ops.gemm(x, weight.mT, gate=gate.mT, activation="silu"),)
    of_a, of_b, *others = _matrices(device.library.mapped().decode())
    assert [one.data for one in (of_a, of_b)] == [x.data_ptr(), weight.data_ptr()]
    assert {one.data for one in others} == {one.data_ptr() for one in (*results, gate)}
    of_gate = next(one for one in others if one.data == gate.data_ptr())
    assert (of_gate.box, of_gate.strides) == (of_b.box, of_b.strides)
    ((*_, data),) = device.launches
    maps = list(data[arguments.with_maps(0) :: 128])  # in their order: A, B, D, what is kept, the gate, what that gives
    assert maps == ([1, 2, 3, 4, 6, 5] if kept else [1, 2, 3, 0, 4, 0])


def _planned(a, b0, b1, gate):
    target = arch.target("sm_90a")
    problem, *_ = launching.problems(lambda: wmma_ops.gemm_gemm(a, b0, b1, gate=gate, activation="relu"), target)
    return problem, target


def test_what_adds_splits_up_may_start_early(library, device, monkeypatch):
    a = torch.randn(64, 4096).half()

    def choose(problem, target):
        return next(x for x in gemm.ranked(problem, target) if x.order.splits > 1), 0.0

    monkeypatch.setattr(gemm, "choose", choose)
    device.kernel = lambda code, name: SimpleNamespace(name=name, explicit=[SimpleNamespace(size=744)])
    device.memory = None
    for target, last in (("sm_90a", ["early", "cuLaunchKernel"]), ("sm_80", ["cuLaunchKernel"])):
        with driver.use("cuda", str(library), target):
            wmma_ops.warmup("matmul", a, a.T)
            device.library.forget()
            wmma_ops.matmul(a, a.T)
        calls = [name for name in device.noted if not name.startswith("cuCtx")]
        assert calls[-1 - len(last) :] == ["cuLaunchKernel", *last]


SCALE = """
#include <wmma/grid.hpp>
extern "C" __global__ void scale(bool on, double factor, short by, float* x, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (on && i < n) x[i] *= static_cast<float>(factor) * by;
}
"""


@pytest.mark.parametrize("kind", ["hip", "cuda"])
def test_a_users_kernel_goes_the_same_way(library, device, monkeypatch, kind):
    kernel, x = wmma_ops.Kernel(SCALE, "scale"), torch.arange(100.0)
    device.memory = lambda data: {"x": x}
    with driver.use(kind, str(library), TARGET):
        kernel._run(torch.device("cuda", 0), (2, 1, 1), (64, 1, 1), (True, 0.5, 3, x, 100), 0)
        kernel._run(torch.device("cuda", 0), (2, 1, 1), (64, 1, 1), (True, 2.0, 1, x, 100), 50_000)
    assert torch.equal(x, torch.arange(100.0) * 3)
    ((name, grid, block, _, data), (*_, shared, _)) = device.launches
    assert (name, grid, block, shared) == ("scale", (2, 1, 1), (64, 1, 1), 50_000)
    assert struct.unpack("<?7xdh6xQi", data) == (True, 0.5, 3, x.data_ptr(), 100)
    assert ("cuFuncSetAttribute" in device.noted) == (kind == "cuda")  # more than 48 KB must be asked for


def test_a_plans_shared_memory_is_asked_for_when_it_is_loaded(library, device, monkeypatch):
    launch = KernelLaunch("scale", SCALE, (1, 1), 64, 60_000)
    monkeypatch.setattr(gemm, "plan", lambda p, t: Plan("", "", (launch,), 0, (1, p.k, 1, 1)))
    a = torch.randn(16, 16).half()
    with driver.use("cuda", str(library), TARGET):
        wmma_ops.warmup("matmul", a, a)
        assert device.noted[-2:] == ["cuFuncSetAttribute", "cuCtxPopCurrent"]
        device.library.forget()
        device.memory = None
        wmma_ops.matmul(a, a)
        assert "cuFuncSetAttribute" not in device.noted
    assert device.launches[0][3] == 60_000


@pytest.mark.parametrize(
    ("kind", "call", "code", "text"),
    [
        ("hip", "hipModuleLoadData", 98, "hipErrorInvalidDeviceFunction (98), invalid device function"),
        ("hip", "hipModuleGetFunction", 98, "hipErrorInvalidDeviceFunction (98), invalid device function"),
        ("hip", "hipModuleLaunchKernel", 5, "unknown error (5)"),
        ("cuda", "cuModuleLoadData", 209, "CUDA_ERROR_NO_BINARY_FOR_GPU (209), no kernel image"),
        ("cuda", "cuLaunchKernel", 209, "CUDA_ERROR_NO_BINARY_FOR_GPU (209), no kernel image"),
        ("cuda", "cuInit", 7, "unknown error (7)"),
    ],
)
def test_a_failing_call_is_named(library, device, kind, call, code, text):
    a = torch.randn(16, 16).half()
    device.library.fail(call.encode(), code)
    start = "wmma: " if call == "cuInit" else "wmma.matmul: "
    function = r"( for \w+)?" if "Function" in call else ""
    found = re.escape(f"{start}{call} of {library} failed") + function + re.escape(f": {text}")
    with pytest.raises(driver.DriverError, match=f"^{found}$"), driver.use(kind, str(library), TARGET):
        wmma_ops.matmul(a, a)
    if call == "hipModuleGetFunction":
        assert device.noted.count("hipModuleUnload") == 1
    device.library.fail(b"", 0)
    with driver.use(kind, str(library), TARGET):
        wmma_ops.matmul(a, a)  # the failure was not remembered


def test_a_missing_library_is_named(tmp_path):
    missing = tmp_path / "libnone.so"
    found = rf"was not found, neither in this process nor by the system's loader: {missing}: .*cannot open"
    with pytest.raises(driver.DriverError, match=found), driver.use("hip", str(missing), TARGET):
        pass
    assert torch.ops.wmma._mode(False) == 0


def test_a_missing_function_is_named(tmp_path):
    path = build(tmp_path, "-DWITHOUT_CUDA")
    with pytest.raises(driver.DriverError, match=rf"{path} has no function cu\w+"), driver.use("cuda", str(path), "x"):
        pass


@pytest.mark.skipif(torch.cuda.is_available(), reason="its driver is found")
def test_without_a_gpu_the_drivers_library_is_named():
    with pytest.raises(driver.DriverError, match=r"libcuda\.so\.1: .*cannot open"):
        driver.load(b"", "x", device=0)


def test_a_driver_is_used_by_the_thread_that_asked(library, device):
    a = torch.ones(4, 4)
    with driver.use("hip", str(library), TARGET):
        got = []
        thread = threading.Thread(target=lambda: got.append(wmma_ops.matmul(a, a)))
        thread.start()
        thread.join()
    assert torch.equal(got[0], a @ a)
    assert device.launches == []


@pytest.mark.parametrize(
    ("kind", "target", "why"),
    [("cuda", "sm_120", "sm_120 is of Blackwell, for which no kernel here"), ("hip", "gfx1030", "has no matrix cores")],
)
def test_a_card_without_kernels_says_why(kind, target, why, library):
    a = torch.ones(8, 8).half()
    with driver.use(kind, str(library), target), pytest.raises(ValueError, match=rf"^wmma\.matmul: .*{why}"):
        wmma_ops.matmul(a, a)


@pytest.mark.parametrize("name", ["hip", "cuda"])
def test_a_kernel_of_other_headers_is_refused(library, device, name, monkeypatch):
    """Which takes more than the library has."""
    a = torch.randn(16, 16)
    right = driver._argument_bytes
    monkeypatch.setattr(driver, "_argument_bytes", lambda code, kernel: right(code, kernel) + 8)
    with driver.use(name, str(library), TARGET):
        text = r"wmma.matmul: the kernel takes \d+ bytes of arguments, and the library has \d+: they were not built of"
        with pytest.raises(driver.DriverError, match=text):
            wmma_ops.matmul(a, a)
        assert not any("Launch" in call for call in device.noted)
