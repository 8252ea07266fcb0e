"""Counts what runs: rewriting is proven by the ops that are called, not by what a pass says of itself."""

from collections import Counter

from torch.utils._python_dispatch import TorchDispatchMode


class Ops(TorchDispatchMode):
    """Counts the calls of our ops by name, and torch's own attention as "torch"."""

    def __init__(self):
        super().__init__()
        self.count = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        namespace, _, name = func.name().partition("::")
        if namespace in ("wmma", "wmma_raw"):
            self.count[name.split(".")[0]] += 1
        elif "scaled_dot_product" in name:
            self.count["torch"] += 1
        return func(*args, **(kwargs or {}))
