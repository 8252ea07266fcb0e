"""What is wrong with fragments ends in a message that says what is allowed."""

import itertools
import re

import pytest
import torch

import wmma_ops
from wmma_ops import jit
from wmma_ops.emulator import EmulationError
from wmma_ops.hardware import arch

HEAD = """
#include <wmma/fragment.hpp>
using namespace wmma;
template <int M, int N, int K, class T = half_t, class Layout = row_major> using A = fragment<matrix_a, M, N, K, T, Layout>;
template <int M, int N, int K, class T = half_t, class Layout = col_major> using B = fragment<matrix_b, M, N, K, T, Layout>;
template <int M, int N, int K, class T = float, class Layout = void> using C = fragment<accumulator, M, N, K, T, Layout>;
template <int M, int N, int K, class T = float> using S = fragment<accumulator_swapped, M, N, K, T>;
template <class T> __device__ T make();
"""
KERNEL = 'extern "C" __global__ void wrong(half_t* h, float* f, int8_t* i, int4x2_t* q, uint32_t* u) {{ {} }}'

ONE_SIZE = "the four fragments of mma_sync have one M, N and K"
KINDS = "takes a matrix_a, a matrix_b, and d and c that are both accumulator or both accumulator_swapped"
ALIKE = "fragments that meet are of one kind and size, and lie alike in the lanes"
POINTER = "the pointer is to the fragment's element type"
TYPES = "A and B have one type, or are e4m3 and e5m2 of one form, int8_t and uint8_t, or int4_t and uint4_t"
DOUBLE = "products of double, and they alone, have C and D of double"
ACCUMULATORS = "accumulators are of float, double, half_t, bf16_t, an fp8 type, int32_t, uint32_t, int8_t or uint8_t"
BLOCK = "M and N are multiples of 16; on NVIDIA 8x32 and 32x8 are there as well"
HAS_LAYOUT = "this fragment has its layout: leave out the call's"
GIVE_LAYOUT = "give the fragment a layout, or the call one"


def product(d: str, a: str, b: str, c: str) -> str:
    return f"{d} d; {a} a; {b} b; {c} c; mma_sync(d, a, b, c);"


def with_(kind: str, call: str) -> str:
    return f"{kind} a; {call};"


WRONG = {
    # products
    "A of another K": (product("C<16, 16, 16>", "A<16, 16, 32>", "B<16, 16, 16>", "C<16, 16, 16>"), ONE_SIZE),
    "D of another M": (product("C<32, 16, 16>", "A<16, 16, 16>", "B<16, 16, 16>", "C<16, 16, 16>"), ONE_SIZE),
    "C of another K": (product("C<16, 16, 16>", "A<16, 16, 16>", "B<16, 16, 16>", "C<16, 16, 32>"), ONE_SIZE),
    "A and B exchanged": (product("C<16, 16, 16>", "B<16, 16, 16>", "A<16, 16, 16>", "C<16, 16, 16>"), KINDS),
    "D an operand": (product("A<16, 16, 16>", "A<16, 16, 16>", "B<16, 16, 16>", "C<16, 16, 16>"), KINDS),
    "C swapped alone": (product("C<16, 16, 16>", "A<16, 16, 16>", "B<16, 16, 16>", "S<16, 16, 16>"), KINDS),
    "half and bf16": (product("C<16, 16, 16>", "A<16, 16, 16>", "B<16, 16, 16, bf16_t>", "C<16, 16, 16>"), TYPES),
    "int8 and int4": (
        product("C<16, 16, 16, int>", "A<16, 16, 16, int8_t>", "B<16, 16, 16, int4_t>", "C<16, 16, 16, int>"), TYPES),
    "fp8 of two forms": (
        product("C<16, 16, 16>", "A<16, 16, 16, fp8_e4m3_t>", "B<16, 16, 16, fp8_e5m2fnuz_t>", "C<16, 16, 16>"), TYPES),
    "double into float": (
        product("C<16, 16, 16>", "A<16, 16, 16, double>", "B<16, 16, 16, double>", "C<16, 16, 16, double>"), DOUBLE),
    "half onto double": (
        product("C<16, 16, 16>", "A<16, 16, 16>", "B<16, 16, 16>", "C<16, 16, 16, double>"), DOUBLE),
    "integers onto float": (
        product("C<16, 16, 16, int>", "A<16, 16, 16, int8_t>", "B<16, 16, 16, int8_t>", "C<16, 16, 16>"),
        "C of a product of integers is of integers"),
    "floats into integers": (
        product("C<16, 16, 16, int>", "A<16, 16, 16>", "B<16, 16, 16>", "C<16, 16, 16>"),
        "C and D of a product of floats are of floats"),
    "floats onto integers": (
        product("C<16, 16, 16>", "A<16, 16, 16>", "B<16, 16, 16>", "C<16, 16, 16, int>"),
        "C and D of a product of floats are of floats"),
    "a number for C": (
        "C<16, 16, 16> d; A<16, 16, 16> a; B<16, 16, 16> b; mma_sync(d, a, b, 0.0f);", "takes four fragments"),
    # fragments
    "M of 24": ("C<24, 16, 16> c;", BLOCK),
    "N of 0": ("C<16, 0, 16> c;", BLOCK),
    "M below 0": ("C<-16, 16, 16> c;", BLOCK),
    "K that the type lacks": ("A<16, 16, 24> a;", "takes a K of 16, 32, 48, "),
    "K of int4": ("A<32, 32, 8, int4_t> a;", "takes a K of 16, 32, 48, "),
    "another kind": ("fragment<row_major, 16, 16, 16, half_t> a;", "a fragment is a matrix_a, matrix_b, accumulator or"),
    "another layout": ("fragment<matrix_a, 16, 16, 16, half_t, matrix_b> a;", "layout is row_major, col_major or none"),
    "another type": ("A<16, 16, 16, short> a; fill_fragment(a, 0);", "no product of this element type"),
    "an operand of int32": ("A<16, 16, 16, int> a; fill_fragment(a, 0);", "no product of this element type"),
    "an accumulator of int64": ("C<16, 16, 16, int64_t> c; fill_fragment(c, 0);", ACCUMULATORS),
    "an accumulator of int4": ("C<16, 16, 16, int4_t> c; fill_fragment(c, 0);", ACCUMULATORS),
    "filled with a fraction": (with_("C<16, 16, 16, int>", "fill_fragment(a, 0.5f)"), "filled with an integer"),
    # memory
    "load without a layout": (with_("C<16, 16, 16>", "load_matrix_sync(a, f, 16)"), GIVE_LAYOUT),
    "store without a layout": (with_("C<16, 16, 16>", "store_matrix_sync(f, a, 16)"), GIVE_LAYOUT),
    "shared load without one": (with_("C<16, 16, 16>", "load_matrix_coop_sync(a, f, 16, 0, 1)"), GIVE_LAYOUT),
    "shared store without one": (with_("C<16, 16, 16>", "store_matrix_coop_sync(f, a, 16)"), GIVE_LAYOUT),
    "load with two layouts": (with_("A<16, 16, 16>", "load_matrix_sync(a, h, 16, mem_row_major)"), HAS_LAYOUT),
    "store with two layouts": (with_("A<16, 16, 16>", "store_matrix_sync(h, a, 16, mem_row_major)"), HAS_LAYOUT),
    "load of another type": (with_("A<16, 16, 16>", "load_matrix_sync(a, f, 16)"), POINTER),
    "store of another type": (with_("C<16, 16, 16>", "store_matrix_sync(h, a, 16, mem_row_major)"), POINTER),
    "int4 by bytes": (with_("A<16, 16, 16, int4_t>", "load_matrix_sync(a, i, 16)"), "memory of int4_t is of int4x2_t"),
    "int4 across K": (
        with_("A<16, 16, 16, int4_t, col_major>", "load_matrix_sync(a, q, 16)"), "pairs of 4-bit integers lie along K"),
    # element by element
    "sum of two sizes": ("C<16, 16, 16> a; C<32, 16, 16> b; auto c = a + b;", ALIKE),
    "sum of A and B": ("A<16, 16, 16> a; B<16, 16, 16> b; auto c = a + b;", ALIKE),
    "sum of two types": (
        "C<16, 16, 16> a; C<16, 16, 16, half_t> b; auto c = a + b;", "have one element type; convert_fragment one"),
    "map of two sizes": ("C<16, 16, 16> a; C<16, 32, 16> b; map([](float p, float q) { return p; }, a, b);", ALIKE),
    "another mask": ("C<16, 16, 16> a; C<32, 16, 16> b; select(a < 0, b, 0);", ALIKE),
    "a fraction of integers": ("C<16, 16, 16, int> a; auto b = 0.5f * a;", "a fragment of integers meets whole numbers"),
    # results as operands
    "A as an operand": (with_("A<16, 16, 16>", "to_matrix_a<half_t>(a)"), "to_matrix_a and to_matrix_b take an accumulator"),
    "converted to int64": ("C<16, 16, 16> a; convert_fragment<int64_t>(a);", ACCUMULATORS),
}  # fmt: skip
RIGHT = """
C<16, 16, 16> d; C<16, 16, 16, half_t> c; A<16, 16, 16> a; B<16, 16, 16> b;
load_matrix_sync(a, h, 16); load_matrix_sync(b, h, 16); load_matrix_sync(c, h, 16, mem_row_major);
mma_sync(d, a, b, c); store_matrix_sync(f, d * 2, 16, mem_row_major);
"""
# The assertions are one text for all targets: each is tried on one in turn, and NVIDIA's compiler is one of them.
TRIED = list(zip(itertools.cycle((*arch.EMULATED, "sm_80")), WRONG, strict=False))


def compiled(text: str, target: str) -> str:
    """What the compiler says of a kernel."""
    try:
        return jit.compile(HEAD + KERNEL.format(text), target).log
    except jit.CompileError as error:
        return error.log


@pytest.mark.parametrize(("target", "wrong"), TRIED)
def test_says_what_is_allowed(target, wrong):
    text, message = WRONG[wrong]
    log = compiled(text, target)
    first, *others = re.findall(r"error: .*", log)
    assert "static assertion failed" in first, log
    assert message in first, log
    assert len(others) <= 3, log


@pytest.mark.parametrize("target", [*arch.EMULATED, "sm_80", "sm_90a"])
def test_what_is_right_passes(target):
    assert compiled(RIGHT, target) == ""


@pytest.mark.parametrize("target", arch.EMULATED)
def test_eight_rows_are_nvidias(target):
    assert "wmma: on AMD M and N are multiples of 16" in compiled("C<8, 32, 16> c;", target)


BRANCHES = """
extern "C" __global__ void branches(const half_t* a, const half_t* b, float* d, int lanes) {
  fragment<accumulator, 16, 16, 16, float> sum;
  fragment<matrix_a, 16, 16, 16, half_t, row_major> left;
  fragment<matrix_b, 16, 16, 16, half_t, row_major> right;
  fill_fragment(sum, 0.0f);
  load_matrix_sync(left, a, 16);
  load_matrix_sync(right, b, 16);
  if (threadIdx.x < lanes) mma_sync(sum, left, right, sum);
  store_matrix_sync(d, sum, 16, mem_row_major);
}
"""


@pytest.mark.parametrize("target", arch.EMULATED)
def test_a_product_in_a_branch_of_some_lanes_is_told(target):
    kernel, wave = wmma_ops.Kernel(HEAD + BRANCHES, "branches"), arch.target(target).wave
    a, b = torch.rand(2, 16, 16).half()
    with wmma_ops.emulate(target):
        d = torch.empty(16, 16)
        kernel[1, wave](a, b, d, wave)
        torch.testing.assert_close(d, a.float() @ b.float())
        with pytest.raises(
            EmulationError, match=r"lane 7 is off at a matrix instruction, .* mma_sync stands where"
        ) as told:
            kernel[1, wave](a, b, d, 7)
    line = (HEAD + BRANCHES).partition("mma_sync(sum, left")[0].count("\n") + 1
    assert f"branches.hip:{line} " in str(told.value)
