"""Conditions on sizes, which in a graph are symbols."""

WIDEST_HEAD = 512  # of attention, as csrc/calls/attention.cpp has it
PAGE_STEP = 16  # keys: attention takes pages of a multiple, as csrc/calls/attention_checks.cpp has it


def known(condition) -> bool:
    """Whether it holds; False where only the run will tell, as of how many rows a mask picks."""
    if isinstance(condition, bool):
        return condition
    from torch.fx.experimental.symbolic_shapes import guard_or_false  # not with the ops: it brings sympy

    return guard_or_false(condition)


def is_found_by_a_run(number) -> bool:
    """Whether no graph knows it, as what follows from how many rows a mask picks."""
    if isinstance(number, int):
        return False
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    return bool(free_unbacked_symbols(number))


def lies_by_columns(x) -> bool:
    """Whether a matrix does, as a transposed weight; one of a single column lies by rows."""
    return known(x.stride(-2) == 1) and not known(x.shape[-1] <= 1)


def is_matrix_scale(scale, operand, one: int) -> bool:
    """Whether scaled_mm's scale has shape [batch…, M, 1] (one = −1) or [batch…, 1, N] (one = −2), not [batch…, M] or
    [batch…, N]; of shapes. A shape that could be either has the rank of the operand, or is one vector for each of its batch.
    """
    if len(scale) < 2 or not known(scale[one] == 1):
        return False
    if one == -2:
        return len(scale) >= len(operand)
    return not known(operand[-2] == 1) or (known(scale[-2] == 1) and len(scale) >= len(operand))
