"""Every case of the value contract, in groups: a file for an op or for what is asked of it."""

import itertools

from wmma_ops.testing.cases import attention, attention_rules, gemm, gemm_gemm, matmul, mixed, packed
from wmma_ops.testing.cases.case import Case

_GROUPS = {
    "matmul": matmul.matmul,
    "addmm": matmul.addmm,
    "gemm": gemm.gemm,
    "second pair": gemm.second_pair,
    "linear": gemm.linear,
    "scaled_mm": gemm.scaled_mm,
    "gemm_gemm": gemm_gemm.gemm_gemm,
    "attention": attention.attention,
    "rules": attention_rules.rules,
    "packed": packed.packed,
    "narrow pages": packed.narrow_pages,
    "scaled attention": attention.scaled,
    "crossed": lambda: (*mixed.crossed(), *attention.crossed()),
    "random": lambda: mixed.drawn(100, seed=2026),
}


def groups() -> list[str]:
    return list(_GROUPS)


def cases(group: str | None = None) -> list[Case]:
    """The cases of one group (see `groups`), or all; each once."""
    chosen = _GROUPS.values() if group is None else (_GROUPS[group],)
    return list(dict.fromkeys(itertools.chain.from_iterable(make() for make in chosen)))
