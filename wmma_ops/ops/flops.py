"""What the ops compute, for torch.utils.flop_counter.FlopCounterMode: two operations for each product that is summed up.

As torch counts its own: activations, scales and what is added cost nothing, nor is anything saved where a mask or
causality hides keys.
"""

import importlib.abc
import importlib.util
import sys
from math import prod

import torch

from wmma_ops.ops.attention_call import AttentionCall
from wmma_ops.ops.library import NAMESPACES, overload, tensor_names
from wmma_ops.torch_internals import is_tracing_tensor


def _product(a, out) -> int:
    return 2 * prod(out) * a[-1]


def _matmul(a, b, *_, out_shape=None, **__) -> int:
    return _product(a, out_shape)


def _gemm(a, *others, out_shape=None, **named) -> int:
    given = dict(zip(tensor_names(overload("gemm"))[1:], others, strict=False)) | named
    multiplied = (a, given.get("a2"), a if given.get("gate") is not None else None)
    return sum(_product(x, out_shape) for x in multiplied if x is not None)


def _addmm(input, a, b, *_, out_shape=None, **__) -> int:
    return _product(a, out_shape)


def _addmm_(input, a, b, *_, **__) -> int:
    return _product(a, input)


def _gemm_gemm(a, b0, b1, c=None, bias0=None, bias1=None, gate=None, *_, out_shape=None, **__) -> int:
    rows, h = prod(out_shape[:-1]), b0[-1]
    return 2 * rows * h * (a[-1] * (1 if gate is None else 2) + out_shape[-1])


def _attention(q, k, v, *_, **__) -> int:
    return 2 * prod(q[:-1]) * k[-2] * (q[-1] + v[-1])


def _varlen_attention(*tensors, out_val=None, **scalars) -> int:
    call = AttentionCall.of("varlen_attention", tensors, scalars)
    q, k, table = call.q, call.k, call.block_table
    if table is None:
        pairs = _pairs(call.cu_seq_q, call.cu_seq_k.diff(), call.max_q, call.max_k)
    else:
        most = table.shape[1] * k.shape[1] if call.max_k is None else call.max_k
        pairs = _pairs(call.cu_seq_q, call.seqused_k, call.max_q, most)
    return 2 * q.shape[1] * pairs * (q.shape[2] + call.v.shape[-1])


def _pairs(cu_seq_q, keys, max_q: int, max_k: int) -> int:
    """Of a query and a key of one sequence; where the lengths are not known, as if all sequences were the longest."""
    if any(x.device.type == "meta" or is_tracing_tensor(type(x)) for x in (cu_seq_q, keys)):
        return (cu_seq_q.shape[0] - 1) * max_q * max_k
    return int((cu_seq_q.diff().to(torch.int64) * keys).sum())


def _with_aux(a, b, *_, out_shape=None, **__) -> int:
    return _product(a, out_shape[0])


def _gated_aux(a, *_, out_shape=None, **__) -> int:
    return 2 * _product(a, out_shape[0])


def _gemm_backward(g, a, b, *_, of_a=True, of_b=True, **__) -> int:
    return (of_a + of_b) * _product(a, g)


def _linear_backward(g, x, weight, *_, of_x=True, of_weight=True, **__) -> int:
    return (of_x + of_weight) * _product(x, g)


def _attention_backward(g_out, q, k, v, *_, **__) -> int:
    """The scores again, and the gradients of them, of Q, K and V."""
    return 2 * prod(q[:-1]) * k[-2] * (3 * q[-1] + 2 * v[-1])


def _varlen_attention_backward(*tensors, out_val=None, **scalars) -> int:
    call = AttentionCall.of("_varlen_attention_backward", tensors, scalars)
    pairs = _pairs(call.cu_seq_q, call.cu_seq_k.diff(), call.max_q, call.max_k)
    return 2 * call.q.shape[1] * pairs * (3 * call.q.shape[2] + 2 * call.v.shape[2])


FORMULAS = {
    "matmul": _matmul,
    "addmm": _addmm,
    "addmm_": _addmm_,
    "baddbmm": _addmm,
    "gemm": _gemm,
    "linear": _matmul,
    "gemm_gemm": _gemm_gemm,
    "attention": _attention,
    "varlen_attention": _varlen_attention,
    "scaled_mm": _matmul,
    "scaled_attention": _attention,
}

_COUNTER = "torch.utils.flop_counter"


def _register(counter) -> None:
    for op, formula in FORMULAS.items():
        ops = [getattr(getattr(torch.ops, namespace), op) for namespace in NAMESPACES]
        counter.register_flop_formula(ops, get_raw=formula is _varlen_attention)(formula)
    counter.register_flop_formula([torch.ops.wmma._gemm_aux, torch.ops.wmma._linear_aux])(_with_aux)
    counter.register_flop_formula(torch.ops.wmma._gated_aux)(_gated_aux)
    counter.register_flop_formula(torch.ops.wmma._gemm_slopes)(_with_aux)
    counter.register_flop_formula(torch.ops.wmma._gemm_backward)(_gemm_backward)
    counter.register_flop_formula(torch.ops.wmma._linear_backward)(_linear_backward)
    counter.register_flop_formula(torch.ops.wmma._attention_backward)(_attention_backward)
    backward = torch.ops.wmma._varlen_attention_backward
    counter.register_flop_formula(backward, get_raw=True)(_varlen_attention_backward)


class _WithIt(importlib.abc.MetaPathFinder):
    """Registers the formulas as the counter is first imported, which loads Triton from torch 2.15 on."""

    def find_spec(self, name, path, target=None):
        if name != _COUNTER:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def execute_and_register(module) -> None:
            execute(module)
            _register(module)

        spec.loader.exec_module = execute_and_register
        return spec


if _COUNTER in sys.modules:
    _register(sys.modules[_COUNTER])
else:
    sys.meta_path.insert(0, _WithIt())
