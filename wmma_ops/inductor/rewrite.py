"""The pass: finds what our ops could compute, asks whether it pays, and puts them in."""

import operator
from dataclasses import dataclass

import torch
from torch.fx import Graph, GraphModule, Node

from wmma_ops.inductor import ahead, layout, nodes, patterns, profit
from wmma_ops.inductor.found import Found, Half, Rewrite, Transposed, operand_value
from wmma_ops.inductor.nodes import Order, value
from wmma_ops.inductor.report import Entry, Report, line_of, report_to_add_to
from wmma_ops.ops.library import overload


@dataclass(frozen=True)
class Settings:
    """How graphs are rewritten."""

    force: bool = False  # wherever it can be done, whether or not it pays


def rewrite(graph: Graph | GraphModule, settings: Settings = Settings()) -> Report:
    """Rewrites a graph of torch's functions, and those in it, in place."""
    report = report_to_add_to()
    if isinstance(graph, GraphModule):
        for module in graph.modules():
            if isinstance(module, GraphModule):
                _rewrite(module.graph, settings, report)
                module.recompile()
    else:
        _rewrite(graph, settings, report)
    return report


def _rewrite(graph: Graph, settings: Settings, report: Report) -> None:
    order = Order(graph)
    found = patterns.find(order)
    replaced: dict[Node, Node] = {}
    taken: set[Node] = set()
    refused: dict[Node, dict[str, str]] = {one.start: {} for one in found}  # a reason for each pattern
    done: list[tuple[Found, Rewrite, str]] = []
    everything = [(one, rewrite) for one in found for rewrite in one.rewrites]
    # The largest first: what they take, the others cannot.
    for one, rewrite in sorted(everything, key=lambda pair: -len(pair[1].nodes)):
        if not taken.isdisjoint(rewrite.nodes):
            continue
        why = _unsafe(rewrite, order)
        device = value(rewrite.anchor).device
        target = profit.target_of(device)
        problems = () if why else [profit.problem_of(one, order, target) for one in (rewrite, *rewrite.parts)]
        whole = None if why or rewrite.whole is None else profit.problem_of(rewrite.whole, order, target)
        pays, reason = (False, why) if why else profit.judged(rewrite, problems, target, settings.force, whole)
        if not pays:
            refused[one.start][rewrite.pattern] = reason
            continue
        taken.update(rewrite.nodes)
        for problem in problems:
            if problem is not None:
                ahead.compile_kernels(problem, target, device)
        _apply(graph, rewrite, order, replaced)
        done.append((one, rewrite, reason))
    entries = {}
    for one, rewrite, reason in done:
        reasons = (reason, _told(refused[one.start]), rewrite.note and f"no further: {rewrite.note}")
        names = tuple(node.name for node in rewrite.nodes)
        text = "; ".join(filter(None, reasons))
        entries[one.start] = Entry(rewrite.pattern, names, rewrite.op, text, line_of(one.start))
    for one in found:
        if one.start not in taken:
            reason = one.reason or _told(refused[one.start], short=True) or "another op took what is around it"
            pattern = one.rewrites[0].pattern if one.rewrites else nodes.kind(one.start) or nodes.name_of(one.start)
            entries[one.start] = Entry(pattern, (one.start.name,), None, reason, line_of(one.start))
    report.entries.extend(entries[one.start] for one in found if one.start in entries)


def _told(reasons: dict[str, str], short: bool = False) -> str:
    """What was refused, and why; the reason alone where `short` and all have the same."""
    if short and len(set(reasons.values())) == 1:
        return next(iter(reasons.values()))
    return "; ".join(f"not {pattern}: {reason}" for pattern, reason in reasons.items())


def _unsafe(rewrite: Rewrite, order: Order) -> str:
    """Why the op would not do what the nodes do; empty where it does."""
    if order.under_transform:
        return "the graph is under a transform of torch.func"
    if why := order.between(rewrite.nodes):
        return why
    expected = value(rewrite.anchor)
    try:
        outs = _fake(rewrite, order)
    except (RuntimeError, TypeError, ValueError) as error:
        return f"the op refuses it: {error}"
    out = outs[0] if isinstance(outs, tuple) else outs
    if out.dtype != expected.dtype or not nodes.same_shape(out, expected):
        return f"the op would give {out.dtype} of {list(out.shape)}"
    return layout.refused(rewrite.anchor, out)


def _fake(rewrite: Rewrite, order: Order) -> torch.Tensor | tuple[torch.Tensor, ...]:
    """The op's results for fake tensors, computed where the op will stand."""
    tensors = {name: operand_value(x) for name, x in rewrite.tensors.items()}
    device = value(rewrite.anchor).device.type
    dtype = order.places[rewrite.anchor].autocast.get(device)
    with torch.no_grad(), torch.autocast(device, dtype=dtype, enabled=dtype is not None):
        out = overload(rewrite.op)(**tensors, **rewrite.scalars)
    return out


def _apply(graph: Graph, rewrite: Rewrite, order: Order, replaced: dict[Node, Node]) -> None:
    anchor = rewrite.anchor
    for factor in rewrite.settled:
        float(factor)  # leaves a guard

    def current(x: Node) -> Node:
        while x in replaced:
            x = replaced[x]
        return x

    def made(target, *arguments, meta, **keywords) -> Node:
        node = graph.call_function(target, arguments, keywords)
        kept = {
            key: anchor.meta[key] for key in ("stack_trace", "nn_module_stack", "source_fn_stack") if key in anchor.meta
        }
        node.meta.update(kept, example_value=meta)
        return node

    def operand(x: Node | Half | Transposed | Rewrite) -> Node:
        if isinstance(x, Node):
            return current(x)
        if isinstance(x, Rewrite):
            return computed(x)
        source = operand(x.node)
        with torch.no_grad():
            seen = operand_value(x)
        if isinstance(x, Half):
            rows = seen.shape[0]
            return made(torch.narrow, source, 0, x.which * rows, rows, meta=seen)
        return made(torch.transpose, source, -2, -1, meta=seen)

    def computed(part: Rewrite) -> Node:
        tensors = {name: operand(x) for name, x in part.tensors.items()}
        return made(overload(part.op), meta=value(part.anchor), **tensors, **part.scalars)

    with graph.inserting_before(anchor):
        out = computed(rewrite)
        if rewrite.op == "attention":
            out.meta["example_value"] = _fake(rewrite, order)
            out = made(operator.getitem, out, 0, meta=value(anchor))
    anchor.replace_all_uses_with(out)
    replaced[anchor] = out
    for node in sorted(rewrite.nodes, key=lambda node: -order.places[node].index):
        graph.erase_node(node)
