"""The device library's atomics on every emulated target; on a GPU: tests/gpu/test_device.py."""

import itertools
import re

import pytest
from device_atomics import (
    CONTENDED,
    HANDING_ON,
    HEAD,
    NEIGHBOURS,
    SPECIAL,
    TYPES,
    check_contended,
    check_handing_on,
    check_neighbours,
    check_special_floats,
)
from machine import Machine, assert_compiles

from wmma_ops import jit
from wmma_ops.hardware import arch

FLOATS = ("float", "double", "wmma::half_t", "wmma::bf16_t")
EVERY = pytest.mark.parametrize("target", arch.EMULATED)
NVIDIA = ("sm_80", "sm_90a")


@EVERY
def test_contended(target):
    for name in TYPES:
        check_contended(Machine(target), name)


@EVERY
def test_special_floats(target):
    for name in FLOATS:
        check_special_floats(Machine(target), name)


@EVERY
def test_neighbours(target):
    check_neighbours(Machine(target))


@pytest.mark.parametrize("target", [*NVIDIA, "gfx1250"])
def test_compiles(target):
    assert_compiles(target, NEIGHBOURS, HANDING_ON, *(CONTENDED.replace("TYPE", name) for name in TYPES))
    assert_compiles(target, *(SPECIAL.replace("TYPE", name) for name in FLOATS))


def _between(assembly: str, kernel: str) -> str:
    """A kernel's instructions."""
    return assembly.split(f"\n{kernel}:")[1].split("s_endpgm")[0]


SCOPES = ("wave", "block", "device", "system")
ORDERS = "".join(
    f'extern "C" __global__ void {order}_{scope}(int* x, int* y) {{\n'
    f"  x[1] = *y; y[threadIdx.x + 1] = atomic_exchange<memory_order::{order}, memory_scope::{scope}>(x, 3) + *y;\n}}\n"
    for order in ("relaxed", "acquire", "release", "acq_rel", "seq_cst")
    for scope in SCOPES
)


@pytest.mark.parametrize(
    ("target", "atomic", "before", "after"),
    [
        ("gfx90a", "global_atomic_swap", {"system": "buffer_wbl2"},
         {"device": "buffer_wbinvl1_vol", "system": "buffer_invl2"}),
        ("gfx942", "global_atomic_swap", {"device": "buffer_wbl2 sc1", "system": "buffer_wbl2 sc0 sc1"},
         {"device": "buffer_inv sc1", "system": "buffer_inv sc0 sc1"}),
        ("gfx1100", "global_atomic_swap_b32", {}, {"block": "buffer_gl0_inv", "device": "buffer_gl1_inv"}),
        ("gfx1201", "global_atomic_swap_b32", {"system": "global_wb scope:SCOPE_SYS"},
         {"device": "global_inv scope:SCOPE_DEV", "system": "global_inv scope:SCOPE_SYS"}),
    ],
)  # fmt: skip
def test_orders_and_scopes(target, atomic, before, after):
    """Caches are written back before a release, and forgotten after an acquire, as far as the scope reaches."""
    assembly = jit.compile(HEAD + ORDERS, target).assembly
    for order, scope in itertools.product(("relaxed", "acquire", "release", "acq_rel", "seq_cst"), SCOPES):
        first, last = _between(assembly, f"{order}_{scope}").split(atomic)
        releases, acquires = order not in ("relaxed", "acquire"), order not in ("relaxed", "release")
        if scope in before:
            assert (before[scope] in first) == releases, (order, scope)
        if scope in after:
            assert (after[scope] in last) == acquires, (order, scope)
        if not releases:
            assert not re.search(r"\b(buffer|global)_wb", first), (order, scope)
        if not acquires:
            assert not re.search(r"_inv", last), (order, scope)


@pytest.mark.parametrize("target", NVIDIA)
def test_orders_and_scopes_of_nvidia(target):
    assembly = jit.compile(HEAD + ORDERS, target).assembly
    for order, scope in itertools.product(("relaxed", "acquire", "release", "acq_rel", "seq_cst"), SCOPES):
        text = assembly.split(f".entry {order}_{scope}(")[1].split("ret;")[0]
        first, last = re.split(r"atom\.\S*exch\S*", text)
        reach = {"wave": "cta", "block": "cta", "device": "gpu", "system": "sys"}[scope]
        fence = f"fence.{'sc' if order == 'seq_cst' else 'acq_rel'}.{reach};"
        assert (fence in first) == (order not in ("relaxed", "acquire")), (order, scope)
        assert (fence in last) == (order not in ("relaxed", "release")), (order, scope)
        assert (".cta.exch" in text) == (reach == "cta"), (order, scope)
        assert (".sys.exch" in text) == (reach == "sys"), (order, scope)


PAIRS = """
extern "C" __global__ void pairs(half_t* h, bf16_t* b, half_t* olds) {
  __shared__ half_t sh[2]; __shared__ bf16_t sb[2];
  if (threadIdx.x < 2) sh[threadIdx.x] = h[threadIdx.x], sb[threadIdx.x] = b[threadIdx.x];
  sync_workgroup();
  olds[threadIdx.x] = atomic_add(h + 1, 1.0f);
  atomic_add(b + 1, 1.0f); atomic_add(sh + 1, 1.0f); atomic_add(sb + 1, 1.0f);
  sync_workgroup();
  if (threadIdx.x < 2) h[2 + threadIdx.x] = sh[threadIdx.x], b[2 + threadIdx.x] = sb[threadIdx.x];
}"""


@pytest.mark.parametrize(
    ("target", "found", "loops"),
    [
        ("gfx90a", ("global_atomic_pk_add_f16",), True),
        ("gfx942", ("_pk_add_f16", "_pk_add_bf16"), False),
        ("gfx1201", ("_pk_add_f16", "_pk_add_bf16"), False),
        ("gfx1100", (), True),
        ("sm_80", ("add.noftz.f16x2",), True),
        ("sm_90a", ("add.noftz.f16x2", "add.noftz.bf16x2"), False),
    ],
)
def test_pairs_are_added_to_at_once_where_the_hardware_can(target, found, loops):
    assembly = jit.compile(HEAD + PAIRS, target).assembly
    for name in found:
        assert name in assembly
    assert bool(re.search(r"cmpswap|cmpst|atom\.\S*cas", assembly)) == loops


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("atomic_and((float*)p, 1.0f)", "takes integers of 1, 2, 4 or 8 bytes"),
        ("atomic_inc((half_t*)p, 1.0f)", "takes integers of 1, 2, 4 or 8 bytes"),
        ("atomic_add((fp8_e4m3_t*)p, 1.0f)", "takes integers of 1, 2, 4 or 8 bytes, half_t, bf16_t, float and double"),
        ("atomic_min((void**)p, nullptr)", "half_t, bf16_t, float and double"),
        ("atomic_update((Sixteen*)p, [](Sixteen x) { return x; })", "types of 1, 2, 4 or 8 bytes"),
        ("atomic_load<memory_order::release>((int*)p)", "a load is relaxed, acquire or seq_cst"),
        ("atomic_store<memory_order::acquire>((int*)p, 1)", "a store is relaxed, release or seq_cst"),
        ("atomic_fence<memory_order::relaxed>()", "a fence is acquire, release, acq_rel or seq_cst"),
    ],
)
@pytest.mark.parametrize("target", ["gfx1201", "sm_90a"])
def test_refused(target, call, message):
    source = HEAD + 'struct Sixteen { double a, b; };\nextern "C" __global__ void k(void* p) { ' + call + "; }"
    with pytest.raises(jit.CompileError) as error:
        jit.compile(source, target)
    assert message in f"{error.value} {error.value.log}"


@EVERY
def test_handing_on_and_structs(target):
    check_handing_on(Machine(target))
