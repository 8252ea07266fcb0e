"""scaled_dot_product_attention as our attention."""

import math

import torch
from torch.fx import Node

from wmma_ops.inductor import masks, nodes
from wmma_ops.inductor.found import Rewrite, refused
from wmma_ops.inductor.nodes import Order, value
from wmma_ops.ops.types import listed
from wmma_ops.ops.types import name as type_name


def read(node: Node, order: Order) -> Rewrite | str:
    given = nodes.arguments(node)
    if given is None:
        return "scaled_dot_product_attention has arguments that ours does not take"
    q, k, v, mask = (given[name] for name in ("query", "key", "value", "attn_mask"))
    if given["dropout_p"] != 0:
        return "dropout is on, which torch is to draw"
    if not isinstance(given["is_causal"], bool) or not isinstance(given["enable_gqa"], bool):
        return "is_causal or enable_gqa is not known when the graph is made"
    scale, settled = nodes.number(given["scale"]), ()
    if (symbolic := nodes.symbolic(given["scale"])) is not None:  # of a head size that may change, as in Llama's
        scale, settled = symbolic.node.hint, (symbolic,)
    if given["scale"] is not None and (scale is None or not math.isfinite(scale)):
        return "its scale is no finite number that is known when the graph is made"
    if why := refused(node, (q, k, v), order):
        return why
    shapes = [value(x).shape for x in (q, k, v)]
    if len({len(shape) for shape in shapes}) > 1 or not _share_batch(shapes, given["enable_gqa"]):
        return "the batch dimensions of its tensors broadcast, which ours do not"
    if nodes.same(shapes[0][-1], 0):
        return "its head size is 0"
    if mask is not None and (why := _mask_refused(mask, shapes, value(q))):
        return why
    if mask is not None and given["is_causal"]:
        return "it is causal and has a mask; ours takes one of the two"
    scalars: dict[str, object] = {"is_causal": 1} if given["is_causal"] else {}
    pattern = "attention"
    rule = None if mask is None else masks.rule_of(mask, (shapes[0][-2], shapes[1][-2]), order)
    if rule is not None:
        pattern, mask = f"attention, whose mask is {masks.described(rule)}", None
        scalars |= rule
    before = None if given["enable_gqa"] else _before_repeating(k, v, node, order)
    if before is not None:
        k, v = before
    scalars |= {"enable_gqa": True} if before or given["enable_gqa"] else {}
    scalars |= {} if scale is None else {"scale": scale}
    tensors = {"q": q, "k": k, "v": v} | ({} if mask is None else {"mask": mask})
    return Rewrite(pattern, "attention", (node,), tensors, scalars, settled=settled)


def _before_repeating(k: Node, v: Node, node: Node, order: Order) -> tuple[Node, Node] | None:
    """The keys and values whose heads are repeated for the queries', one after the other."""
    before = tuple(_repeated(x) for x in (k, v))
    if any(x is None for x in before) or not nodes.same(*(value(x).shape[-3] for x in before)):
        return None
    return None if any(order.between((x, node)) for x in (k, v)) else before


def _repeated(x: Node) -> Node | None:
    """Of heads that are repeated, those that there were: `x[:, :, None].expand(…).reshape(…)`, as models write it."""
    expanded = nodes.operand(x, "reshape", "view", "flatten")
    single = expanded and nodes.operand(expanded, "expand")
    source = single and nodes.unsqueezed(single)
    tensors = [value(one) for one in (source, single, expanded, x)]
    if any(one is None for one in tensors) or [one.dim() for one in tensors] != [4, 5, 5, 4]:
        return None
    (batch, heads, rows, size), times = tensors[0].shape, tensors[2].shape[2]
    shapes = ((batch, heads, 1, rows, size), (batch, heads, times, rows, size), (batch, heads * times, rows, size))
    pairs = zip(tensors[1:], shapes, strict=True)
    return source if all(all(map(nodes.same, one.shape, shape)) for one, shape in pairs) else None


def _share_batch(shapes: list[torch.Size], enable_gqa: bool) -> bool:
    """Whether q, k and v agree in all but their last two dimensions, and q alone may have more heads."""
    q, k, v = (shape[:-2] for shape in shapes)
    if enable_gqa:
        q = (*q[:-1], *k[-1:])
    return all(nodes.same(x, y) and nodes.same(y, z) for x, y, z in zip(q, k, v, strict=True))


def _mask_refused(mask: Node, shapes: list[torch.Size], q: torch.Tensor) -> str:
    x = value(mask)
    if x is None or x.device != q.device:
        return "its mask is no plain tensor of the same device"
    if x.dtype not in (torch.bool, torch.float32, q.dtype):
        return f"its mask is {type_name(x.dtype)}; ours takes {listed(torch.bool, torch.float32, q.dtype)}"
    if not nodes.broadcasts(x, q.new_empty((*shapes[0][:-1], shapes[1][-2]))):
        return f"its mask of shape {list(x.shape)} does not broadcast to the scores"
    return ""
