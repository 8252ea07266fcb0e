"""The structs that the kernels of products take, read back from their bytes, and what a single product's asks for."""

import ctypes
import itertools

import torch

from wmma_ops.ops import activations

OPERANDS = ("a", "b", "c", "d", "bias", "row_scale", "col_scale", "a_scale", "multiply", "a2", "b2")
GATE = ("aux", "gate", "gate_bias", "gate_aux")
BATCH_DIMS = 4


class Operand(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_uint64),
        ("row_stride", ctypes.c_int64),
        ("column_stride", ctypes.c_int64),
        ("batch_strides", ctypes.c_int64 * BATCH_DIMS),
    )


class Arguments(ctypes.Structure):
    _fields_ = (
        *((name, Operand) for name in OPERANDS),
        *((name, ctypes.c_int64) for name in ("m", "n", "k", "k2")),
        ("batch_sizes", ctypes.c_int64 * BATCH_DIMS),
        ("batch", ctypes.c_int64),
        ("alpha", ctypes.c_double),
        ("beta", ctypes.c_double),
        ("partial", ctypes.c_uint64),
        ("split_stride", ctypes.c_int64),
        ("k_split", ctypes.c_int64),
        *((name, ctypes.c_uint32) for name in ("splits", "tiles_m", "tiles_n", "whole")),
        *((name, Operand) for name in GATE),
        *((name, ctypes.c_uint64) for name in ("row_sums", "row_partial")),
        ("sum_slabs", ctypes.c_int32),
    )


class TwoArguments(ctypes.Structure):
    """Of two products in one kernel."""

    _fields_ = (
        ("last", Arguments),
        *((name, Operand) for name in ("a", "b0", "gate", "bias0")),
        ("k", ctypes.c_int64),
        ("alpha0", ctypes.c_double),
    )


def with_maps(count: int, kind: type = Arguments) -> int:
    """The bytes of a struct that so many descriptors of the copy engine follow."""
    return -(-ctypes.sizeof(kind) // 64) * 64 + count * 128


def decode(data: bytes) -> Arguments:
    assert len(data) == ctypes.sizeof(Arguments)
    return Arguments.from_buffer_copy(data)


def memory(data: bytes, element_size: int) -> dict[str, torch.Tensor]:
    """What a launch's operands cover, as bytes; elements are all of one size."""
    if len(data) == ctypes.sizeof(TwoArguments):
        two = TwoArguments.from_buffer_copy(data)
        g = two.last
        found = {name: getattr(two, name) for name in ("a", "b0", "gate", "bias0")}
        found |= {"b1": g.b, "c": g.c, "d": g.d, "bias1": g.bias}
        sizes = {"a": (g.m, two.k), "b1": (g.k, g.n), **dict.fromkeys(("b0", "gate", "bias0"), (two.k, g.k))}
    else:
        g = decode(data)
        found = {name: getattr(g, name) for name in (*OPERANDS, *GATE)}
        sizes = {
            "a": (g.m, g.k),
            "a_scale": (g.m, g.k),
            "b": (g.k, g.n),
            "gate": (g.k, g.n),
            "a2": (g.m, g.k2),
            "b2": (g.k2, g.n),
        }
    covered = {}
    for name, x in found.items():
        rows, columns = sizes.get(name, (g.m, g.n))
        steps = zip([*g.batch_sizes, rows, columns], [*x.batch_strides, x.row_stride, x.column_stride], strict=True)
        if x.data and rows and columns:
            covered[name] = _bytes(x.data, (1 + sum((size - 1) * stride for size, stride in steps)) * element_size)
    if g.partial:
        covered["workspace"] = _bytes(g.partial, 4 * g.splits * g.split_stride)
    return covered


def _bytes(at: int, count: int) -> torch.Tensor:
    return torch.frombuffer((ctypes.c_uint8 * count).from_address(at), dtype=torch.uint8)


def _memory(operand: Operand, dtype: torch.dtype, sizes, strides, offset: int) -> torch.Tensor:
    """The operand's matrix at one index of the batch, of the memory itself."""
    reach = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    at = operand.data + offset * dtype.itemsize
    raw = (ctypes.c_uint8 * (reach * dtype.itemsize)).from_address(at)
    return torch.frombuffer(raw, dtype=dtype).as_strided(sizes, strides)


def compute(data: bytes, problem) -> None:
    """Does in float64 what a kernel is asked to by the struct, and writes D: nothing of the call but the struct, and the
    types of the problem, is looked at."""
    g = decode(data)
    assert g.batch == torch.Size(g.batch_sizes).numel()

    def read(name, rows, columns, index):
        dtype, operand = getattr(problem, {"a2": "a", "b2": "b", "gate": "b"}.get(name, name)), getattr(g, name)
        if dtype is None:
            assert operand.data == 0
            return None
        offset = sum(i * stride for i, stride in zip(index, operand.batch_strides, strict=True))
        return _memory(operand, dtype, (rows, columns), (operand.row_stride, operand.column_stride), offset)

    for index in itertools.product(*map(range, g.batch_sizes)):
        x = torch.zeros(g.m, g.n, dtype=torch.float64)
        if g.k:
            a = read("a", g.m, g.k, index).double()
            scale = read("a_scale", g.m, g.k, index)
            a = a if scale is None else a * scale.double()
            a = activations.by_code(problem.a_activation).forward(a).to(problem.a).double()
            x = a @ read("b", g.k, g.n, index).double()
        if g.k2:
            x += read("a2", g.m, g.k2, index).double() @ read("b2", g.k2, g.n, index).double()
        x = g.alpha * x
        for name in ("row_scale", "col_scale"):
            if (scale := read(name, g.m, g.n, index)) is not None:
                x = x * scale.double()
        for name, factor in (("c", g.beta), ("bias", 1)):
            if (addend := read(name, g.m, g.n, index)) is not None:
                x = x + factor * addend.double()
        factor = None
        if problem.gate:
            factor = read("a", g.m, g.k, index).double() @ read("gate", g.k, g.n, index).double()
            if (beside := read("gate_bias", g.m, g.n, index)) is not None:
                factor = factor + beside.double()
        for name, kept in (("aux", x), ("gate_aux", factor)) if problem.aux else ():
            if kept is not None:
                into = getattr(g, name)
                offset = sum(i * stride for i, stride in zip(index, into.batch_strides, strict=True))
                _memory(into, problem.d, (g.m, g.n), (into.row_stride, into.column_stride), offset).copy_(kept)
        x = activations.by_code(problem.activation).forward(x)
        x = x if factor is None else x * factor
        if (factor := read("multiply", g.m, g.n, index)) is not None:
            x = x * factor.double()
        read("d", g.m, g.n, index).copy_(x)
