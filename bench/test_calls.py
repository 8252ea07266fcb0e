"""Run by `make bench`; see plugin.py."""

import pytest
from plugin import TOLD

from wmma_ops.cli import benching


@pytest.mark.benchmark(timer=TOLD)
def test_call(benchmark, case, call, row):
    if call not in row.samples:
        pytest.skip(f"n/a: {row.missing[call]}")
    benchmark.group, benchmark.name, benchmark.fullname = str(row), call, f"{row}: {call}"
    benchmark.extra_info.update(benching.info(row, call))
    TOLD.give([1e-6 * time for time in row.samples[call]])
    benchmark.pedantic(lambda: None, rounds=len(row.samples[call]))
