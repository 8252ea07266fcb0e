"""Which ops of the library stand in a compiled graph, and in its backward."""

import torch


def compiled(call, *tensors):
    """What a call gives in a compiled graph, its gradients, and the ops of the library in the graph and in its backward."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.aot_autograd import make_boxed_func

    graphs = []

    def compiler(module, _):
        graphs.append([str(node.target) for node in module.graph.nodes if "wmma." in str(node.target)])
        return make_boxed_func(module.forward)

    torch._dynamo.reset()
    out = torch.compile(call, backend=aot_autograd(fw_compiler=compiler, bw_compiler=compiler))(*tensors)
    found = torch.autograd.grad(out, tensors, torch.cos(out.detach()), allow_unused=True)
    return out.detach(), found, graphs
