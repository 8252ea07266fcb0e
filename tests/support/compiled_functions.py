"""Functions compiled with the pass and without Inductor's code, held against what they were compiled from."""

import torch
from op_counts import ran

from wmma_ops import inductor


class Compiled:
    """`function` as Dynamo gives it to a backend, rewritten, and run node by node."""

    def __init__(self, function, *, force=True, dynamic=False, backend=None):
        torch._dynamo.reset()
        self.report, self.graph, self.graphs = None, None, 0
        settings = inductor.Settings(force=force)

        def rewritten(graph_module, inputs):
            self.report, self.graphs = inductor.rewrite(graph_module, settings), self.graphs + 1
            self.graph = graph_module.graph
            if backend is None:
                return graph_module
            return torch._dynamo.lookup_backend(backend)(graph_module, inputs)

        self.call = torch.compile(function, backend=rewritten, fullgraph=True, dynamic=dynamic)

    def __call__(self, *inputs):
        return self.call(*inputs)


def same(function, compiled, inputs, *, gradients=True, tolerance=1e-5, others=()):
    """Compares results and the gradients of whatever asks for one; answers with the ops of the forward pass, `others` by
    whole names."""

    def copies():
        return [
            x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x for x in inputs
        ]

    compiled(*copies())  # while the graph is made, ops see fake tensors
    mine, theirs = copies(), copies()
    with ran(*others) as called:
        got = compiled(*mine)
    want = function(*theirs)
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)
    for x, y in zip(mine, theirs, strict=True):  # what was changed in place
        torch.testing.assert_close(x, y, rtol=tolerance, atol=tolerance)
    if gradients:
        for out in (got, want):
            outs = out if isinstance(out, (tuple, list)) else (out,)
            sum(
                (x.float() * torch.linspace(-1, 1, x.numel()).view_as(x)).sum() for x in outs if x.requires_grad
            ).backward()
        for x, y in zip(mine, theirs, strict=True):
            if isinstance(x, torch.Tensor) and x.requires_grad:
                torch.testing.assert_close(x.grad, y.grad, rtol=10 * tolerance, atol=10 * tolerance)
    return dict(called)
