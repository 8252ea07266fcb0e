"""What `Kernel` reads of a source's parameters, and structs by value."""

import ctypes
import struct

import numpy as np
import pytest
import torch

import wmma_ops
from wmma_ops.emulator import OutOfBounds
from wmma_ops.hardware import arch
from wmma_ops.jit import metadata
from wmma_ops.runtime.parameters import declarations

TYPES = "#include <wmma/grid.hpp>\nusing namespace wmma;\n"

# A source's text around `void k(…)`, and the parameters that it has.
DECLARED = [
    ('__global__ void k(float*, int);\n__global__ void k(float* x, int n) {}', ["float* x", "int n"]),
    ('__global__ void k(float* x, int n);\n__global__ void k(double* y) {}', ["double* y"]),
    ('__global__ void k(const float*, unsigned);', ["float* argument 1", "unsigned argument 2"]),
    ('__global__ void k(float* __restrict__ x, long int, unsigned long) {}',
     ["float* x", "long argument 2", "unsigned long argument 3"]),
    ('__global__ void other(int a); __global__ void k(int b) {} __global__ void kk(int c) {}', ["int b"]),
    ('__global__ void __launch_bounds__(64, 2) k(Pair<int, float> p, int n = f(1, 2)) {}', ["Pair<int,float> p", "int n"]),
    ('WMMA_KERNEL(64, 1) void k(__attribute__((aligned(16))) int a, float b[]) {}', ["int a", "float* b"]),
    ("__global__ void k(void) {}", []),
    ("__global__ void k() {}", []),
    ('__global__ void k(int a /* , int b */, // int c\n int d) {}', ["int a", "int d"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "wanted"), DECLARED, ids=[text for text, _ in DECLARED])
def test_parameters_are_those_of_the_definition(text, wanted):
    (found,) = declarations(text, "k")
    assert list(map(str, found)) == wanted


# A type by another name, how the compiler is told of it, and what the parameter takes.
NAMED = [
    ("#define T float", (), "float"),
    ("#define T std::uint8_t", (), "uint8_t"),
    ("#ifndef T\n#define T float\n#endif", ("-DT=wmma::half_t",), "half_t"),
    ("", ("-O2", "-D", "T=unsigned long", "-DTT=float"), "unsigned long"),
    ("using U = double;\n#define T U", (), "double"),
    ("using U = double;", ("-DT=U",), "double"),
    ("#define T U\n#define U T", (), "T"),
    ("enum T { one, two };", (), "int"),
    ("enum class T : unsigned short { one };", (), "unsigned short"),
    ("#ifdef A\nusing T = float;\n#else\nusing T = int;\n#endif", (), "T"),
    ("template <class A> struct S { using Type = A; };\nusing T = S<float>::Type;", (), "T"),
]


@pytest.mark.parametrize(("text", "options", "wanted"), NAMED, ids=[text or "-D" for text, *_ in NAMED])
def test_types_by_other_names(text, options, wanted):
    ((found,),) = declarations(f"{text}\n__global__ void k(const T x) {{}}", "k", options)
    assert found.type == wanted


def test_a_number_for_a_type_that_is_not_plain():
    """Whether 2 is meant as 2.0 is not guessed."""
    source = TYPES + (
        "template <class A> struct S { using Type = A; };\n"
        'extern "C" __global__ void add(float* x, S<float>::Type by, S<int>::Type count) { x[0] += by * count; }'
    )
    kernel, x = wmma_ops.Kernel(source, "add"), torch.ones(1)
    with wmma_ops.emulate("gfx942"):
        kernel[1, 1](x, 2.5, np.int32(2))
        kernel[1, 1](x, np.float32(0.5), np.int32(3))
        for given, wanted in ((2, r"by is of type int; takes 2\.0, or a NumPy number of its kind, as numpy\.int32\(2\)"),
                              (np.float64(2.5), r"by has 8 bytes; S<float>::Type has 4")):  # fmt: skip
            with pytest.raises(TypeError, match=wanted):
                kernel[1, 1](x, given, np.int32(2))
        with pytest.raises(TypeError, match=r"count is of type int; takes"):
            kernel[1, 1](x, 2.5, 2)
    assert x.item() == 7.5


PROTOTYPE = TYPES + (
    'extern "C" __global__ void scale(float*, const float*, int, float);\n'
    'extern "C" __global__ void scale(float* x, const float* y, int n, float) {\n'
    "  if (threadIdx.x < n) x[threadIdx.x] = y[0];\n}"
)
CHOSEN = TYPES + (
    '#ifdef DOUBLES\nextern "C" __global__ void fill(double* x, double by) { x[threadIdx.x] = by; }\n'
    '#else\nextern "C" __global__ void fill(float* x, int n, float by) { if (threadIdx.x < n) x[threadIdx.x] = by; }\n#endif'
)
SPELLED = TYPES + (
    "#define MORE , int n\n"
    'extern "C" __global__ void spelled(float* x MORE) { x[0] = n; }'
)  # fmt: skip


def test_prototypes_and_alternatives():
    x, y = torch.zeros(64), torch.full((1,), 3.0)
    with wmma_ops.emulate("gfx1201"):
        wmma_ops.Kernel(PROTOTYPE, "scale")[1, 64](x, y, 64, 0.0)
        assert x.tolist() == [3] * 64
        wmma_ops.Kernel(CHOSEN, "fill")[1, 64](x, 32, 4.0)
        assert x.tolist() == [4] * 32 + [3] * 32
        wide = torch.zeros(64, dtype=torch.float64)
        wmma_ops.Kernel(CHOSEN, "fill", options=("-DDOUBLES",))[1, 64](wide, 5.0)
        assert wide.tolist() == [5] * 64
        with pytest.raises(
            ValueError, match=r"declares \(float x\* MORE\), .* takes 2 arguments of 8, 4 bytes; takes a definition"
        ):
            wmma_ops.Kernel(SPELLED, "spelled")[1, 1](x)


STRUCTS = (
    TYPES
    + """
struct Point { float x, y; };
struct Settings {
  wmma::half_t scale;
  unsigned char kind, flags[3];
  double weights[2][2];
  const float* data;  // where the points are
  Point at[2];
  long long int count;
};
extern "C" __global__ void read(double* out, char before, Settings s, short after) {
  const double found[] = {(double)before, (float)s.scale, (double)s.kind, (double)s.flags[0], (double)s.flags[2],
                          s.weights[0][0], s.weights[0][1],
                          s.weights[1][0], s.data[1], s.at[0].x, s.at[1].y, (double)s.count, (double)after};
  for (int i = 0; i < 13; ++i) out[i] = found[i];
}"""
)
WANTED = [7, 1.5, 200, 1, 3, 0.25, 0.5, 0.75, -8, 10, 13, 2**40, -9]


def as_tuple(data):
    return (1.5, 200, (1, 2, 3), [[0.25, 0.5], np.array([0.75, 1])], data, ((10, 11), (12, 13)), 2**40)


def as_record(data):
    form = np.dtype({
        "names": ["scale", "kind", "flags", "weights", "data", "at", "count"],
        "formats": ["<f2", "u1", ("u1", 3), ("<f8", (2, 2)), "<u8", ("<f4", (2, 2)), "<i8"],
        "offsets": [0, 2, 3, 8, 40, 48, 64],
    })  # fmt: skip
    values = (1.5, 200, (1, 2, 3), ((0.25, 0.5), (0.75, 1)), data.data_ptr(), ((10, 11), (12, 13)), 2**40)
    return np.array([values], dtype=form)[0]


class Settings(ctypes.Structure):
    _fields_ = [("scale", ctypes.c_uint16), ("kind", ctypes.c_uint8), ("flags", ctypes.c_uint8 * 3),
                ("weights", ctypes.c_double * 4), ("data", ctypes.c_void_p), ("at", ctypes.c_float * 4),
                ("count", ctypes.c_longlong)]  # fmt: skip


def as_structure(data):
    (half,) = struct.unpack("<H", struct.pack("<e", 1.5))
    found = Settings(half, 200, (1, 2, 3), (0.25, 0.5, 0.75, 1), data.data_ptr(), (10, 11, 12, 13), 2**40)
    return found


FORMS = {
    "tuple": as_tuple,
    "record": as_record,
    "structure": as_structure,
    "bytes": lambda data: bytes(as_record(data)),
}


@pytest.mark.parametrize("target", arch.EMULATED)
def test_structs_by_value(target):
    kernel, data = wmma_ops.Kernel(STRUCTS, "read"), torch.tensor([0.0, -8.0])
    # An address among bytes names no tensor: a second kernel takes the tensor beside them.
    beside = STRUCTS.replace("short after)", "short after, const float* also)")
    for form, make in FORMS.items():
        out = torch.zeros(13, dtype=torch.float64)
        with wmma_ops.emulate(target):
            if form == "tuple":
                kernel[1, 1](out, 7, make(data), -9)
            else:
                wmma_ops.Kernel(beside, "read")[1, 1](out, 7, make(data), -9, data)
        assert out.tolist() == WANTED, form


VECTORS = """#include <wmma/compat/hip.hpp>
struct Some { char c; float3 three; uchar2 two; double2 wide; float4 four; };
extern "C" __global__ void read(double* out, uint2 first, Some s, short last) {
  const double found[] = {(double)first.x, (double)first.y, (double)s.c, s.three.x, s.three.z, (double)s.two.x,
                          (double)s.two.y, s.wide.x, s.wide.y, s.four.x, s.four.w, (double)last};
  for (int i = 0; i < 12; ++i) out[i] = found[i];
}"""


@pytest.mark.parametrize("target", arch.EMULATED)
def test_vectors_by_value(target):
    """As CUDA aligns them: four of float by 16 bytes, three by 4."""
    out = torch.zeros(12, dtype=torch.float64)
    given = (1, 2**32 - 1), (-1, (0.5, 0.25, 4), (7, 200), (3.0, 5.0), (8, 0, 0, 16)), -3
    with wmma_ops.emulate(target):
        wmma_ops.Kernel(VECTORS, "read")[1, 1](out, *given)
    assert out.tolist() == [1, 2**32 - 1, -1, 0.5, 4, 7, 200, 3, 5, 8, 16, -3]


def test_where_the_code_wants_its_arguments():
    """PTX and AMD's metadata tell the same of one source."""
    slots = wmma_ops.runtime.arguments.slots
    wanted = [(0, 8), (8, 1), (16, 72), (88, 2)]
    for target in ("gfx942", "sm_80", "sm_90a"):
        code = wmma_ops.Kernel(STRUCTS, "read").compile(target)
        assert [slot[:2] for slot in slots(code, "read")] == wanted, target


BAD = [
    (b"123", TypeError, r"read: s has 3 bytes; Settings has 72, as bytes, a ctypes\.Structure, a NumPy record, or"),
    (np.zeros(1, "f4,f4")[0], TypeError, "read: s has 8 bytes; Settings has 72"),
    ((1, 2), TypeError, r"read: s has 2 members; Settings takes half_t scale, .*float\* data, Point at\[2\]"),
    ([1, 2], TypeError, "read: s is of type list; takes bytes, a ctypes.Structure"),
    (3, TypeError, "read: s is of type int; takes bytes, a ctypes.Structure"),
    (np.float32(3), TypeError, "read: s is of type float32; takes bytes, a ctypes.Structure"),
    (lambda good: (*good[:2], (1, 2), *good[3:]), TypeError, r"s\.flags takes 3 values \(unsigned char flags\[3\]\)"),
    (lambda good: (*good[:4], 3, *good[5:]), TypeError, r"s\.data is of type int; takes a tensor"),
    (lambda good: (*good[:4], good[4].double(), *good[5:]), TypeError, r"s\.data is torch\.float64; takes torch\.float32"),
    (lambda good: (*good[:4], torch.ones(8)[::2], *good[5:]), ValueError, r"s\.data has shape \(4,\) and strides \(2,\)"),
    (lambda good: (good[0], 300, *good[2:]), ValueError, r"s\.kind is 300; takes a unsigned char"),
    (lambda good: (*good[:5], ((1, 2), (3,)), 6), TypeError, r"s\.at\[1\] has 1 members; Point takes float x"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "kind", "text"), BAD, ids=[text for *_, text in BAD])
def test_bad_structs_are_refused(value, kind, text):
    value = value(as_tuple(torch.zeros(2))) if callable(value) else value
    with wmma_ops.emulate("gfx942"), pytest.raises(kind, match=text):
        wmma_ops.Kernel(STRUCTS, "read")[1, 1](torch.zeros(13, dtype=torch.float64), 7, value, -9)


def test_a_struct_that_is_not_plain_takes_bytes():
    source = (
        TYPES
        + """struct Two { int a; int b; __device__ int sum() const { return a + b; } };
extern "C" __global__ void add(int* x, Two two) { x[0] = two.sum(); }"""
    )
    kernel, x = wmma_ops.Kernel(source, "add"), torch.zeros(1, dtype=torch.int32)
    with wmma_ops.emulate("gfx942"):
        kernel[1, 1](x, struct.pack("ii", 3, 4))
        with pytest.raises(
            TypeError,
            match=r"two is a tuple, and nothing tells the members of Two plainly; .* tuple of tensors and NumPy",
        ):
            kernel[1, 1](x, (3, 4))
        assert x.item() == 7
        kernel[1, 1](x, (np.int32(5), np.int32(6)))  # which tell it themselves
    assert x.item() == 11


SHARED = TYPES + 'extern "C" __global__ void fill(int* x) { __shared__ int s[1024]; s[threadIdx.x] = 1; sync_workgroup();' \
    " x[0] = s[3] + *dynamic_shared<int>(); }"  # fmt: skip


@pytest.mark.parametrize("target", arch.EMULATED)
def test_more_shared_memory_than_there_is(target):
    limit = arch.target(target).lds_bytes
    kernel = wmma_ops.Kernel(SHARED, "fill")
    with (
        wmma_ops.emulate(target),
        pytest.raises(ValueError, match=rf"4096 \+ {limit - 4092} bytes .* takes up to {limit}$"),
    ):
        kernel[1, 64](torch.zeros(1, dtype=torch.int32), shared=limit - 4092)


def test_a_launch_that_forgets_shared_memory_is_told_how_to_give_it():
    text = "__global__ void fill(int* x) { dynamic_shared<int>()[threadIdx.x] = 1; x[0] = *dynamic_shared<int>(); }"
    kernel = wmma_ops.Kernel(TYPES + text, "fill")
    with wmma_ops.emulate("gfx1201"):
        with pytest.raises(
            OutOfBounds, match=r"block's 0 bytes of shared memory; the launch's shared=bytes gives some$"
        ):
            kernel[1, 1](torch.zeros(1, dtype=torch.int32))
        with pytest.raises(OutOfBounds, match=r"block's 4 bytes of shared memory$"):
            kernel[1, 2](torch.zeros(1, dtype=torch.int32), shared=4)


def test_static_shared_memory_is_known_of_every_target():
    for target in ("gfx1201", "sm_80", "sm_90a"):
        assert metadata.static_shared(wmma_ops.Kernel(SHARED, "fill").compile(target).code, "fill") == 4096, target
