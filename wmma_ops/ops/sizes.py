"""Conditions on sizes, which in a graph are symbols."""


def known(condition) -> bool:
    """Whether it holds; False where only the run will tell, as of how many rows a mask picks."""
    if isinstance(condition, bool):
        return condition
    from torch.fx.experimental.symbolic_shapes import guard_or_false  # not with the ops: it brings sympy

    return guard_or_false(condition)
