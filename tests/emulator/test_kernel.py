"""Kernels of a user under emulation: how they are launched, and how what is wrong with them is told."""

import copy
import pickle
import re

import numpy as np
import pytest
import torch
from at_once import at_once
from user_kernels import HEAD, SCALE

import wmma_ops
from wmma_ops.emulator import OutOfBounds, Region
from wmma_ops.hardware import arch

TYPES = "#include <wmma/types.hpp>\nusing namespace wmma;\n"


@pytest.mark.parametrize("target", wmma_ops.hardware.arch.EMULATED)
def test_kernel_of_a_user(target):
    kernel = wmma_ops.Kernel(SCALE, "scale")
    x, y = torch.zeros(1000), torch.randn(1000)
    with wmma_ops.emulate(target) as emulation:
        kernel[4, 256](x, y, 1000, 2.5)
    assert torch.equal(x, y * 2.5)
    assert emulation.launches[0].instructions > 0
    assert emulation.launches[0].by_class["memory"] > 0


def test_a_header_that_changed_is_in_the_next_kernel(tmp_path):
    """By a macro and a second header, of which the source's text says nothing."""
    (tmp_path / "outer.hpp").write_text('#import "factor.hpp"\n')
    source = f'#define FACTOR "{tmp_path}/outer.hpp"\n%:include FACTOR\n' + SCALE.replace(
        "* factor", "* FACTOR_OF_MINE"
    )
    for factor in (2.0, 3.0, 3.0):
        (tmp_path / "factor.hpp").write_text(f"#define FACTOR_OF_MINE {factor}f\n")
        x, y = torch.zeros(256), torch.randn(256)
        with wmma_ops.emulate("gfx1201"):
            wmma_ops.Kernel(source, "scale")[2, 128](x, y, 256, 1.0)
        assert torch.equal(x, y * factor)


def test_one_kernel_in_many_threads():
    kernel = wmma_ops.Kernel(SCALE, "scale")

    def work(factor):
        x, y = torch.zeros(256), torch.randn(256)
        with wmma_ops.emulate("gfx1201"):
            for _ in range(5):
                kernel[2, 128](x, y, 256, factor)
        assert torch.equal(x, y * factor)

    at_once(work, [(float(i),) for i in range(8)])


BAD_LAUNCHES = [
    (lambda k, x: k[1, 64](x, x, 3), TypeError, "3 arguments came; takes 4: x, y, n, factor"),
    (lambda k, x: k[1, 64](x.double(), x, 3, 1.0), TypeError, "x is torch.float64; takes torch.float32"),
    (lambda k, x: k[1, 64](3, x, 3, 1.0), TypeError, "x is of type int; takes a tensor"),
    (lambda k, x: k[1, 64](x, x, 3.5, 1.0), TypeError, r"n is 3.5; takes a whole number \(int\)"),
    (lambda k, x: k[1, 64](x, x, 2**40, 1.0), ValueError, "n is 1099511627776; takes a int"),
    (lambda k, x: k[1, 64](x, x, x, 1.0), TypeError, "n is of type Tensor; takes a number"),
    (lambda k, x: k[1, 64](x, torch.ones(3, device="meta"), 3, 1.0), ValueError, "y is on meta; takes tensors on cpu"),
    (lambda k, x: k[0, 64](x, x, 3, 1.0), ValueError, r"grid is \(0, 1, 1\)"),
    (lambda k, x: k[1, (64, 0)](x, x, 3, 1.0), ValueError, r"block is \(64, 0, 1\)"),
    (lambda k, x: k[1, 2048](x, x, 3, 1.0), ValueError, "2048 threads; gfx942 takes up to 1024"),
    (lambda k, x: k[1, 64](x, x, 3, 1.0, shared=70000), ValueError, "shared memory .* takes up to 65536"),
    (lambda k, x: k[1, 64](x, x, 3, 1.0, shared=-1), ValueError, "shared is -1"),
    (lambda k, x: k[1](x, x, 3, 1.0), ValueError, r"kernel\[grid, block\]"),
    (lambda k, x: k[1.0, 64](x, x, 3, 1.0), ValueError, r"grid is 1\.0; takes one to three whole numbers"),
    (
        lambda k, x: k[2**31, 64](x, x, 3, 1.0),
        ValueError,
        r"grid is \(2147483648, 1, 1\); gfx942 takes up to \(67108863, ",
    ),
    (
        lambda k, x: k[1, 64](torch.ones(3, device="meta"), x, 3, 1.0),
        ValueError,
        "x is on meta; takes tensors on a GPU",
    ),
    (lambda k, x: k[1, 64](x, x.to_sparse(), 3, 1.0), TypeError, "y is torch.sparse_coo; takes torch.strided"),
    (lambda k, x: k[1, 64](x, torch._neg_view(x), 3, 1.0), ValueError, "y is a negated or conjugated view"),
    (
        lambda k, x: k[1, 64](x, x.view(8, 8).mT, 64, 1.0),
        ValueError,
        r"y has shape \(8, 8\) and strides \(1, 8\), .* takes a contiguous tensor \(y.contiguous\(\)\) or, with "
        r"Kernel\(…, strided=\('y',\)\)",
    ),
    (lambda k, x: k[1, 64](x[::2], x, 3, 1.0), ValueError, r"x has shape \(32,\) and strides \(2,\)"),
    (lambda k, x: k[1, 64](x, x[:1].expand(64), 3, 1.0), ValueError, r"y has shape \(64,\) and strides \(0,\)"),
    (lambda k, x: k[1, 64](x, x, True, 1.0), TypeError, "n is of type bool; takes a number"),
    (lambda k, x: k[1, 64](x, x, 3, 1e39), ValueError, r"factor is 1e\+39; takes a float"),
]


@pytest.mark.parametrize(("launch_it", "kind", "text"), BAD_LAUNCHES, ids=[text for _, _, text in BAD_LAUNCHES])
def test_bad_launch_is_refused(launch_it, kind, text):
    kernel = wmma_ops.Kernel(SCALE, "scale")
    x = torch.ones(64)
    with wmma_ops.emulate("gfx942"), pytest.raises(kind, match=text):
        launch_it(kernel, x)
    assert torch.equal(x, torch.ones(64))


def test_strided_tensor_where_the_kernel_takes_strides():
    source = HEAD + (
        'extern "C" __global__ void pick(float* x, const float* y, int stride) {\n'
        "  x[threadIdx.x] = y[threadIdx.x * stride];\n}"
    )
    kernel = wmma_ops.Kernel(source, "pick", strided=("y",))
    x, y = torch.zeros(64), torch.randn(64, 3)
    with wmma_ops.emulate("gfx942"):
        copy.deepcopy(kernel)[1, 64](x, y[:, 1], 3)
        with pytest.raises(ValueError, match="x has shape"):
            kernel[1, 64](y[:, 1], x, 1)
    assert torch.equal(x, y[:, 1])
    with pytest.raises(ValueError, match=r"strided has \['z'\]; takes pointers of pick: x, y"):
        wmma_ops.Kernel(source, "pick", strided=("z",))
    with pytest.raises(TypeError, match="strided is 'y'; takes a tuple of str"):
        wmma_ops.Kernel(source, "pick", strided="y")


# Of every parameter that a number can be given for: its declaration, the number, what the kernel then reads.
NUMBERS = [
    ("half_t f", 1.5, 1.5),
    ("wmma::half_t f", 2, 2.0),  # a whole number is not its bits
    ("bf16_t f", 1.5, 1.5),
    ("const bf16_t f", -3, -3.0),
    ("bf16_t f", 1e-40, torch.tensor(1e-40).bfloat16().item()),
    ("fp8_e5m2_t f", float("inf"), float("inf")),
    ("fp8_e4m3fnuz_t f", 240, 240.0),
    ("bool f", True, 1.0),
    ("bool f", 0, 0.0),
    ("uint16_t f", 40000, 40000.0),
    ("unsigned char f", 200, 200.0),
    ("signed char f", -100, -100.0),
    ("short unsigned int f", 40000, 40000.0),
    ("unsigned long long int f", 2**63, 2.0**63),
    ("signed f", -5, -5.0),
    ("int f", np.int64(-7), -7.0),
    ("float f", np.float32(0.1), np.float32(0.1)),
    ("double f", np.float16(0.1), np.float16(0.1)),
    ("float f = 2", 1, 1.0),
]


def test_numbers_of_every_type():
    """All of them in one kernel, after each other, so that every one lies where the compiler put it."""
    declared = ", ".join(re.sub(r"\bf\b", f"f{i}", text) for i, (text, _, _) in enumerate(NUMBERS))
    reads = " ".join(f"x[{i}] = static_cast<float>(f{i});" for i in range(len(NUMBERS)))
    source = f'{TYPES}extern "C" __global__ void read(float x[], {declared}) {{ {reads} }}'
    x = torch.zeros(len(NUMBERS))
    with wmma_ops.emulate("gfx942"):
        wmma_ops.Kernel(source, "read")[np.int64(1), (1, np.int32(1))](x, *(given for _, given, _ in NUMBERS))
    got = [(text, given, value) for (text, given, _), value in zip(NUMBERS, x.tolist(), strict=True)]
    assert got == [(text, given, float(np.float32(value))) for text, given, value in NUMBERS]


@pytest.mark.parametrize(("declared", "number"), [("half_t f", 1e6), ("bf16_t f", 1e39), ("fp8_e4m3_t f", 1000)])
def test_a_number_beyond_its_type_is_refused(declared, number):
    kernel = wmma_ops.Kernel(f'{TYPES}extern "C" __global__ void read(float* x, {declared}) {{ x[0] = f; }}', "read")
    with wmma_ops.emulate("gfx942"), pytest.raises(ValueError, match=r"read: f is 1.*; takes a " + declared[:-2]):
        kernel[1, 1](torch.zeros(1), number)


def test_kernels_without_parameters_and_with_unsigned_memory():
    with wmma_ops.emulate("gfx1201"):
        wmma_ops.Kernel(HEAD + 'extern "C" __global__ void nothing(void) {}', "nothing")[1, 32]()
        count = wmma_ops.Kernel(TYPES + 'extern "C" __global__ void count(uint32_t* x) { x[0] = ~0u; }', "count")
        for dtype, value in ((torch.int32, -1), (torch.uint32, 2**32 - 1)):
            x = torch.zeros(1, dtype=dtype)
            count[1, 1](x)
            assert x.item() == value
        with pytest.raises(TypeError, match=r"x is torch\.float32; takes torch\.int32"):
            count[1, 1](torch.zeros(1))


@pytest.mark.parametrize("bounds", ["__launch_bounds__(64)", "__launch_bounds__(64, 2)"])
def test_launch_bounds_reach_the_compiler_and_are_held(bounds):
    source = HEAD + f'extern "C" __global__ void {bounds} one(float* x) {{ x[threadIdx.x] = 1; }}'
    kernel, x = wmma_ops.Kernel(source, "one"), torch.zeros(128)
    with wmma_ops.emulate("gfx942"):
        kernel[1, 64](x)
        with pytest.raises(ValueError, match=r"one: block \(128, 1, 1\) has 128 threads; its __launch_bounds__ is 64"):
            kernel[1, 128](x)
    assert x.sum() == 64
    assert "max_flat_workgroup_size: 64\n" in kernel.compile("gfx1201").assembly
    assert kernel.compile("sm_90a").kernels == ("one",)


@pytest.mark.parametrize("least", ["256", "WAVES_4"])
def test_a_block_of_fewer_threads_than_the_kernel_declares_is_refused(least):
    source = f"""{HEAD}
#define WAVES_4 256
extern "C" __global__ __attribute__((amdgpu_flat_work_group_size({least}, 512)))
void four(float* x) {{ x[threadIdx.x] = 1; }}"""
    kernel, x = wmma_ops.Kernel(source, "four"), torch.zeros(256)
    with wmma_ops.emulate("gfx942"):
        told = r"four: block \(128, 1, 1\) has 128 threads; its amdgpu_flat_work_group_size takes 256 or more"
        with pytest.raises(ValueError, match=told):
            kernel[1, 128](x)
        assert not x.any()
        kernel[1, 256](x)
    assert x.all()


def test_a_launched_kernel_is_copied_and_pickled():
    kernel = wmma_ops.Kernel(SCALE.replace("factor;", "factor * TWICE;"), "scale", options=("-DTWICE=2",))
    y = torch.randn(64)
    with wmma_ops.emulate("gfx1201"):
        for one in (kernel, copy.deepcopy(kernel), pickle.loads(pickle.dumps(kernel))):
            x = torch.zeros(64)
            one[1, 64](x, y, 64, 1.5)
            assert torch.equal(x, y * 3)


CPLUSPLUS = (
    TYPES
    + """
namespace mine { namespace { __global__ void two(int* x) { x[threadIdx.x] = 2; } } }
template <int kValue> __global__ void many(int* x) { x[threadIdx.x] = kValue; }
template __global__ void many<3>(int*);
__global__ void one(int* x) { x[threadIdx.x] = 1; }
__global__ void one_more(int* x) { x[threadIdx.x] = 10; }
__global__ void four(int* x) { x[threadIdx.x] = 4; }
__global__ void four(float* x) { x[threadIdx.x] = 4; }
template <class T> __global__ void none(T* x) { x[0] = 0; }
"""
)


def test_kernels_with_names_of_cplusplus():
    with wmma_ops.emulate("gfx942"):
        for name, value in (("one", 1), ("one_more", 10), ("two", 2), ("many", 3)):
            x = torch.zeros(64, dtype=torch.int32)
            kernel = wmma_ops.Kernel(CPLUSPLUS, name)
            kernel[1, 64](x)
            assert (x == value).all()
            with pytest.raises(OutOfBounds, match=f"^{name} on gfx942"):
                kernel[1, 64](x[:32])
        with pytest.raises(ValueError, match=r"'four' names 2 kernels, _Z4fourP\w, _Z4fourP\w; takes a name that one"):
            wmma_ops.Kernel(CPLUSPLUS, "four")[1, 64](x)
        with pytest.raises(
            ValueError, match=r"'none' is not in the compiled code, which has .*one.* that the source instan"
        ):
            wmma_ops.Kernel(CPLUSPLUS, "none")[1, 64](x)
    with pytest.raises(ValueError, match=r"'many<3>'; takes 'many', .* one: `template __global__ void many<3>"):
        wmma_ops.Kernel(CPLUSPLUS, "many<3>")
    for target in ("sm_90a", "gfx1201"):
        assert "two" in wmma_ops.jit.compile(CPLUSPLUS, target).entry("two")


@pytest.mark.parametrize(
    ("declared", "dtype"),
    [
        ("const __half* a", torch.float16),
        ("rocwmma::float16_t const* a", torch.float16),
        ("__nv_bfloat16* a", torch.bfloat16),
        ("float32_t* a", torch.float32),
        ("rocwmma::float64_t* a", torch.float64),
    ],
)
def test_other_names_of_types_are_known(declared, dtype):
    kernel = wmma_ops.Kernel(f"__global__ void f({declared}) {{}}", "f")
    assert kernel.parameters[0].dtype == dtype
    own = wmma_ops.Kernel(f"using float32_t = int; typedef char __half;\n__global__ void f({declared}) {{}}", "f")
    meant = torch.int8 if "__half" in declared else torch.int32 if "float32_t" in declared else dtype
    assert own.parameters[0].dtype == meant


HOST_CODE = [
    "void host() { std::vector<float> x(3); }",
    "int main() { float* x; hipMalloc(&x, 4); }",
    "int main() { one<<<1, 64>>>(nullptr); }",
]


@pytest.mark.parametrize("code", HOST_CODE)
def test_host_code_is_told_to_be_left_out(code):
    source = "#include <hip/hip_runtime.h>\n#include <vector>\n__global__ void one(float* x) { x[0] = 1; }\n"
    with pytest.raises(
        wmma_ops.jit.CompileError, match=r"one\.hip:4:(.|\n)*is left out: only device code compiles here"
    ):
        wmma_ops.Kernel(source + code, "one").compile("gfx942")
    with pytest.raises(wmma_ops.jit.CompileError) as caught:
        wmma_ops.Kernel(source + "float y = z;", "one").compile("gfx942")
    assert "only device code" not in str(caught.value)


UNDECLARED = {
    "__syncthreads();": (
        "#include <hip/hip_runtime.h> declares __syncthreads.",
        "wmma::sync_workgroup (for __syncthreads)",
    ),
    "x[0] = expf(x[1]); atomicAdd(x, 1.f); float4 y;": (
        "#include <hip/hip_runtime.h> declares expf, atomicAdd, float4.",
    ),
    "half y;": ("#include <hip/hip_fp16.h> declares half.",),
    "x[0] = wmma::fast_exp(x[1]);": ("#include <wmma/math.hpp> has wmma::fast_exp.",),
    "rocwmma::synchronize_workgroup();": ("#include <rocwmma/rocwmma.hpp> declares rocwmma.",),
}


@pytest.mark.parametrize("code", UNDECLARED)
def test_a_name_that_is_not_declared_is_told_its_header(code):
    source = f"#include <wmma/grid.hpp>\n__global__ void one(float* x) {{ {code} }}\n"
    with pytest.raises(wmma_ops.jit.CompileError) as caught:
        wmma_ops.Kernel(source, "one").compile("gfx942")
    told = str(caught.value).splitlines()[-len(UNDECLARED[code]) :]
    assert all(text in line for text, line in zip(UNDECLARED[code], told, strict=True)), told
    wmma_ops.Kernel(told[0].partition("> ")[0] + ">\n" + source, "one").compile("gfx942")  # it is as they say
    with pytest.raises(wmma_ops.jit.CompileError) as caught:
        wmma_ops.Kernel(source.replace(code, "own = 1;"), "one").compile("gfx942")
    assert "#include <h" not in str(caught.value)
    assert "has wmma::" not in str(caught.value)


OWN_NAMES = """
#include <rocwmma/rocwmma.hpp>
using Compute = rocwmma::float32_t;
typedef const Compute Scalar;
#if __AMDGCN_WAVEFRONT_SIZE == 3
using Either = double;
#else
using Either = float;
#endif
template <typename In, class Factor> __global__ void plain(In* x, Factor factor) { x[threadIdx.x] *= factor; }
template __global__ void plain<float, rocwmma::bfloat16_t>(float*, rocwmma::bfloat16_t);
__global__ void scaled(Compute* x, Scalar factor) { x[threadIdx.x] *= factor; }
__global__ void either(Either* x, float factor) { x[threadIdx.x] *= factor; }
"""


@pytest.mark.parametrize("name", ["plain", "scaled"])
@pytest.mark.parametrize("factor", [2, 2.0])
def test_a_number_takes_the_type_that_the_source_gives_a_name(name, factor):
    kernel = wmma_ops.Kernel(OWN_NAMES, name)
    for target in ("gfx942", "gfx1201"):
        x = torch.ones(64)
        with wmma_ops.emulate(target):
            kernel[1, 64](x, factor)
            assert (x == 2).all()
            with pytest.raises(TypeError, match=r"x is torch\.float16; takes torch\.float32"):
                kernel[1, 64](x.half(), factor)


def test_a_name_of_two_meanings_is_left_to_the_compiler():
    assert wmma_ops.Kernel(OWN_NAMES, "either").parameters[0].dtype is None


def test_a_template_s_arguments_in_a_kernel_s_name_are_refused():
    with pytest.raises(ValueError, match="takes 'plain', of which the source instantiates one"):
        wmma_ops.Kernel(OWN_NAMES, "plain<float, float>")


BAD_KERNELS = [
    ({"options": "-DN=3"}, "options is '-DN=3'; takes a tuple of str"),
    ({"source": None}, "source is of type NoneType; takes a str"),
    ({"name": 3}, "name is of type int; takes a str"),
]


@pytest.mark.parametrize(("given", "text"), BAD_KERNELS, ids=[text for _, text in BAD_KERNELS])
def test_a_bad_kernel_is_refused(given, text):
    with pytest.raises(TypeError, match=text):
        wmma_ops.Kernel(**({"source": SCALE, "name": "scale"} | given))


def test_cpu_tensors_need_an_emulation():
    with pytest.raises(ValueError, match=r"wmma_ops\.emulate"):
        wmma_ops.Kernel(SCALE, "scale")[1, 64](torch.ones(64), torch.ones(64), 64, 1.0)


def test_unknown_targets_and_names():
    with pytest.raises(ValueError, match="gfx942"), wmma_ops.emulate("gfx943"):
        pass
    with pytest.raises(ValueError, match="not emulated"), wmma_ops.emulate("sm_90a"):
        pass
    with pytest.raises(ValueError, match="order is"), wmma_ops.emulate("gfx942", order="sideways"):
        pass
    with pytest.raises(ValueError, match="no `__global__ void scales"):
        wmma_ops.Kernel(SCALE, "scales")


def test_source_that_does_not_compile_names_our_line():
    kernel = wmma_ops.Kernel(
        'extern "C" __attribute__((global)) void bad(int* x) {\n  x[0] = nonsense;\n}'.replace(
            "__attribute__((global))", "__global__"
        ),
        "bad",
    )
    with wmma_ops.emulate("gfx942"), pytest.raises(wmma_ops.jit.CompileError, match=r"bad\.hip:1|bad\.hip:2"):
        kernel[1, 64](torch.zeros(4, dtype=torch.int32))


def test_memory_beside_a_fault_is_untouched():
    store = torch.zeros(300, dtype=torch.int32)
    kernel = wmma_ops.Kernel(HEAD + 'extern "C" __global__ void over(int* x) { x[threadIdx.x] = 1; }', "over")
    with wmma_ops.emulate("gfx1201"), pytest.raises(OutOfBounds):
        kernel[1, 128](store[100:140])
    assert store[:100].abs().max() == 0
    assert store[140:].abs().max() == 0


def test_regions_may_start_anywhere():
    raw = np.zeros(64, dtype=np.uint8)
    region = Region(raw.ctypes.data + 3, 10, "odd", raw)
    assert region.start % 4 == 0
    assert region.start + len(region.bytes) >= region.base + region.size


ROWS_OF_WAVES = """
#include <wmma/grid.hpp>
#include <wmma/lanes.hpp>
extern "C" __global__ void fill(float* d, int columns) {
  for (int i = wmma::lane_id(); i < columns; i += wmma::kWaveSize) d[threadIdx.x / wmma::kWaveSize * columns + i] = 1.0f;
}
"""


@pytest.mark.parametrize("target", ["gfx942", "gfx1201"])
def test_what_a_launch_left_unwritten_is_told(target):
    """A block of fewer waves than a kernel is made for leaves rows, of which the launch's record tells."""
    wave = arch.target(target).wave
    kernel = wmma_ops.Kernel(ROWS_OF_WAVES, "fill", strided=("d",))
    apart = torch.zeros(40, 200)[:, ::2]  # not contiguous: what lies between its elements is nobody's
    with wmma_ops.emulate(target) as emulation:
        for waves in (4, 2, 1):
            kernel[1, waves * wave](torch.zeros(4, 100), 100)
        kernel[1, wave](apart[0], 100)
    found = [launch.unwritten for launch in emulation.launches]
    assert found == [{}, {"d": 200}, {"d": 300}, {"d": 50}]
