"""vmap: one more batch dimension, which `gemm`, `gemm_gemm` and `attention` have room for; the other ops go to `gemm`."""

import torch

from wmma_ops.ops.attention_call import AttentionCall
from wmma_ops.ops.errors import tagged
from wmma_ops.ops.library import NAMESPACES, overload, tensor_names
from wmma_ops.ops.select import select
from wmma_ops.ops.sizes import is_matrix_scale
from wmma_ops.torch_internals import schema

# How many of its last dimensions belong to the operation itself.
CORES = {"a": 2, "b": 2, "c": 2, "multiply": 2, "bias": 1, "row_scale": 1, "col_scale": 1, "a_scale": 1} | {
    "a2": 2,
    "b2": 2,
    "b0": 2,
    "b1": 2,
    "gate": 2,
    "gate_bias": 1,
    "bias0": 1,
    "bias1": 1,
}


# How many dimensions the operands have: with a mapped one more, others would look right.
AT_LEAST = {
    "matmul": {"a": 1, "b": 1},
    "gemm": {"a": 2, "b": 2, "a2": 2, "b2": 2, "gate": 2},
    "linear": {"x": 1},
    "gemm_gemm": {"a": 2, "b0": 2, "b1": 2},
    "attention": {"q": 2, "k": 2, "v": 2},
    "scaled_attention": {"q": 2, "k": 2, "v": 2},
    "scaled_mm": {"a": 2, "b": 2},
}
EXACTLY = {
    "varlen_attention": {"query": 3},  # in the others the op itself finds it
    "addmm": {"a": 2, "b": 2},
    "addmm_": {"a": 2, "b": 2},
    "baddbmm": {"a": 3, "b": 3},
    "linear": {"weight": 2},
}


def _checked(op, rule):
    names = [argument.name for argument in schema(overload(op)).arguments]
    least, exact = AT_LEAST.get(op, {}), EXACTLY.get(op, {})

    def checked(info, in_dims, *tensors, **scalars):
        for argument, x, dim in zip(names, tensors, in_dims, strict=False):
            if x is None or (argument not in least and argument not in exact):
                continue
            rank = x.dim() - (dim is not None)
            if rank < least.get(argument, 0) or rank != exact.get(argument, rank):
                shape = list(x.shape)
                if dim is not None:
                    del shape[dim]
                taken = exact.get(argument) or f"at least {least[argument]}"
                raise tagged(op, argument, f"has shape {shape} under vmap; takes a rank of {taken}", ValueError)
        return rule(info, in_dims, *tensors, **scalars)

    return checked


def _spread(size, tensors, dims, everywhere):
    """`tensors` by name, each with the mapped dimension in front of equally many batch dimensions.

    One that is not mapped stays as it is and broadcasts, but for the names in `everywhere`, which are expanded.
    """
    rank = max(
        x.dim() - (dims[name] is not None) - CORES[name]
        for name, x in tensors.items()
        if x is not None and CORES[name] == 2 and name not in ("c", "multiply")
    )
    spread = {}
    for name, x in tensors.items():
        if x is not None and (dims[name] is not None or name in everywhere):
            x = x.unsqueeze(0) if dims[name] is None else x.movedim(dims[name], 0)
            while x.dim() < 1 + rank + CORES[name]:
                x = x.unsqueeze(1)
            x = x.expand(size, *x.shape[1:])
        spread[name] = x
    return spread


def _product(info, tensors, dims, **scalars):
    everywhere = ("a",) if all(dims.get(name) is None for name in ("a", "b", "a2", "b2")) else ()
    if tensors.get("gate") is not None and (dims["b"] is None) != (dims["gate"] is None):
        everywhere = (*everywhere, "b", "gate")  # of one shape
    if dims.get("gate_bias") is not None and all(dims.get(name) is None for name in ("a", "b", "gate")):
        everywhere = (*everywhere, "a")  # a second pair's batch is none of the gate's
    spread = _spread(info.batch_size, tensors, dims, everywhere)
    return select("gemm", *spread.values())(**spread, **scalars), 0


def _gemm(info, in_dims, *given, **scalars):
    names = tensor_names(overload("gemm"))
    tensors = dict.fromkeys(names) | dict(zip(names, given, strict=False))
    dims = dict.fromkeys(names) | dict(zip(names, in_dims, strict=False))
    return _product(info, tensors, dims, **scalars)


def _matmul(info, in_dims, a, b, **scalars):
    # A vector gets its dimension of one, behind the mapped dimension, and the result loses it again.
    a_dim, b_dim = in_dims
    vector_a = a.dim() - (a_dim is not None) == 1
    vector_b = b.dim() - (b_dim is not None) == 1
    if vector_a:
        a, a_dim = (a if a_dim is None else a.movedim(a_dim, 0)).unsqueeze(-2), None if a_dim is None else 0
    if vector_b:
        b, b_dim = (b if b_dim is None else b.movedim(b_dim, 0)).unsqueeze(-1), None if b_dim is None else 0
    out, _ = _product(info, {"a": a, "b": b}, {"a": a_dim, "b": b_dim}, **scalars)
    if vector_b:
        out = out.squeeze(-1)
    if vector_a:
        out = out.squeeze(-1 if vector_b else -2)
    return out, 0


def _add_product(info, in_dims, input, a, b, **scalars):
    dims = dict(zip("cab", in_dims, strict=True))
    return _product(info, {"a": a, "b": b, "c": input}, dims, **scalars)


def _addmm_(info, in_dims, input, a, b, **scalars):
    if in_dims[0] is None:
        raise RuntimeError(
            "wmma.addmm_: input is not mapped by vmap, but an operand is; takes a mapped input [ValueError]"
        )
    out, _ = _add_product(info, in_dims, input, a, b, out_dtype=input.dtype, **scalars)
    input.movedim(in_dims[0], 0).copy_(out)
    return None, None


def _linear(info, in_dims, x, weight, bias=None, residual=None, *, activation=0):
    x_dim, weight_dim, bias_dim, residual_dim = (*in_dims, None, None)[:4]
    vector = x.dim() - (x_dim is not None) == 1
    if vector:
        x, x_dim = (x if x_dim is None else x.movedim(x_dim, 0)).unsqueeze(-2), None if x_dim is None else 0
    if weight_dim is not None:
        weight, weight_dim = weight.movedim(weight_dim, 0), 0
    out, _ = _product(
        info,
        {"a": x, "b": weight.mT, "c": residual, "bias": bias},
        {"a": x_dim, "b": weight_dim, "c": residual_dim, "bias": bias_dim},
        activation=activation,
    )
    return (out.squeeze(-2) if vector else out), 0


def _scaled_mm(info, in_dims, a, b, scale_a, scale_b, bias=None, *, out_dtype=None):
    dims = dict(zip(("a", "b", "row_scale", "col_scale", "bias"), (*in_dims, None)[:5], strict=True))

    def shape_of(x, dim):
        """Without the mapped dimension."""
        return [size for i, size in enumerate(x.shape) if dim is None or i != dim % x.dim()]

    def as_vector(x, dim, operand, operand_dim, one):
        matrix = is_matrix_scale(shape_of(x, dim), shape_of(operand, operand_dim), one)
        x = x if dim is None else x.movedim(dim, 0)
        return x.squeeze(one) if matrix else x

    row_scale = as_vector(scale_a, dims["row_scale"], a, dims["a"], -1)
    col_scale = as_vector(scale_b, dims["col_scale"], b, dims["b"], -2)
    for name in ("row_scale", "col_scale"):
        if dims[name] is not None:
            dims[name] = 0
    tensors = {"a": a, "b": b, "row_scale": row_scale, "col_scale": col_scale, "bias": bias}
    return _product(info, tensors, dims, out_dtype=out_dtype or torch.bfloat16)


def _gemm_gemm(info, in_dims, a, b0, b1, c=None, bias0=None, bias1=None, gate=None, **scalars):
    tensors = {"a": a, "b0": b0, "b1": b1, "c": c, "bias0": bias0, "bias1": bias1, "gate": gate}
    dims = dict.fromkeys(tensors) | dict(zip(tensors, in_dims, strict=False))
    paired = ("b0", "gate") if gate is not None and (dims["b0"] is None) != (dims["gate"] is None) else ()
    spread = _spread(info.batch_size, tensors, dims, ("a", *paired))
    return select("gemm_gemm", *spread.values())(**spread, **scalars), 0


def _attention(info, in_dims, *given, **scalars):
    call = AttentionCall.of("attention", given, scalars)
    # What a seed drops, the batch that a function is told, and whose blocks are there, are those of each alone.
    if call.dropout_p or call.score_mod or call.mask_mod or call.block_q:
        return _one_by_one("attention", info, in_dims, *given, **scalars)
    tensors = _of_more(info, in_dims, (call.q, call.k, call.v), (call.mask, call.sinks, call.alibi_slopes), (0, 2, 2))
    return select("attention", *tensors)(*tensors, **scalars), (0, 0)


def _scaled_attention(info, in_dims, q, k, v, scale_q=None, scale_k=None, scale_v=None, **scalars):
    tensors = _of_more(info, in_dims, (q, k, v), (scale_q, scale_k, scale_v), (2, 2, 2))
    return select("scaled_attention", *tensors)(*tensors, **scalars), (0, 0)


def _of_more(info, in_dims, operands, beside, less):
    """The tensors with the mapped dimension as their batch's first: of what stands beside the operands, with so many
    dimensions less, where it has it."""

    def front(x, dim):
        return x.movedim(dim, 0) if dim is not None else x.unsqueeze(0).expand(info.batch_size, *x.shape)

    count = len(operands)
    dims = (*in_dims, *(None,) * len(beside))[: count + len(beside)]
    operands = tuple(front(x, dim) for x, dim in zip(operands, dims[:count], strict=True))

    def filled(x, dim, rank):
        if x is None or dim is None:
            return x
        x = x.movedim(dim, 0)
        while x.dim() < rank:
            x = x.unsqueeze(1)
        return x

    ranks = (operands[0].dim() - fewer for fewer in less)
    return (*operands, *(filled(*one) for one in zip(beside, dims[count:], ranks, strict=True)))


def _varlen_attention(info, in_dims, *tensors, **scalars):
    """Packed sequences have no dimension for more of them."""
    return _one_by_one("varlen_attention", info, in_dims, *tensors, **scalars)


def _kv_append(info, in_dims, *tensors, **scalars):
    """Each into pages of its own."""
    op = "kv_append"
    for name, x, dim in list(zip(tensor_names(overload(op)), tensors, in_dims, strict=False))[2:4]:
        if dim is None:
            text = (
                "is not mapped by vmap, but another tensor is; takes pages of each, or one call, without vmap, of all"
            )
            raise tagged(op, name, text, ValueError)
        if x.stride(dim) == 0 and info.batch_size > 1:
            text = "has elements that share memory (an expanded tensor?); takes one that does not overlap itself"
            raise tagged(op, name, text, ValueError)
    for taken in _each(info, in_dims, tensors):
        overload(op)(*taken, **scalars)
    return None, None


def _each(info, in_dims, tensors):
    mapped = list(zip(tensors, (*in_dims, *(None,) * len(tensors)), strict=False))
    for i in range(info.batch_size):
        yield [x if dim is None else x.select(dim, i) for x, dim in mapped]


def _one_by_one(op, info, in_dims, *tensors, **scalars):
    outs = (select(op, *taken)(*taken, **scalars) for taken in _each(info, in_dims, tensors))
    return tuple(map(torch.stack, zip(*outs, strict=True))), (0, 0)


RULES = {
    "matmul": _matmul,
    "addmm": _add_product,
    "addmm_": _addmm_,
    "baddbmm": _add_product,
    "gemm": _gemm,
    "linear": _linear,
    "gemm_gemm": _gemm_gemm,
    "attention": _attention,
    "varlen_attention": _varlen_attention,
    "scaled_mm": _scaled_mm,
    "scaled_attention": _scaled_attention,
    "kv_append": _kv_append,
}


for _op, _rule in RULES.items():
    for _namespace in NAMESPACES:
        torch.library.register_vmap(f"{_namespace}::{_op}", _checked(_op, _rule))
