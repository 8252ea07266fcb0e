"""`pytest bench/`: each call of each case as a benchmark of pytest-benchmark's, those of a case in a group.

The times are taken by the same clock as everywhere, all calls of a case in turn, when the first of them is asked for;
pytest-benchmark is told them, keeps them (--benchmark-json, --benchmark-save) and compares them (--benchmark-compare).
"""

import importlib
from collections.abc import Iterator
from itertools import chain

import baseline
import pytest
import running
import torch

from wmma_ops.cli import benching
from wmma_ops.cli.benching import OURS, Case, Row, Run
from wmma_ops.cli.terminal import output

ON_A_CPU = ("bench_cpu", "bench_planner", "bench_emulator")
ON_A_GPU = ("bench_gemm", "bench_gemm_gemm", "bench_attention", "bench_models", "bench_train", "bench_draw")


class Told:
    """A timer that has the times already: from one call of it to the next passes what it was given."""

    __name__ = "in_turn"

    def __init__(self) -> None:
        self.marks: Iterator[float] = iter(())

    def give(self, seconds: list[float]) -> None:
        self.marks = chain.from_iterable((0.0, one) for one in seconds)

    def __call__(self) -> float:
        return next(self.marks)


TOLD = Told()
RUN = pytest.StashKey[Run]()
ROWS = pytest.StashKey[dict[Case, Row]]()
MISSES = pytest.StashKey[list[str]]()


def pytest_addoption(parser) -> None:
    group = parser.getgroup("wmma_ops")
    group.addoption("--quick", action="store_true", help="fewer rounds and fewer cases")
    group.addoption(
        "--baseline",
        choices=("check", "write"),
        help=f"hold the ratios to torch's speed against {baseline.PATH.name}, or keep them there",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config) -> None:
    # Its table has six lines a case: shown where runs are compared, which ours does not.
    config.option.benchmark_quiet = not config.option.benchmark_compare
    if config.option.baseline:
        torch.set_num_threads(1)


def cases(quick: bool) -> Iterator[Case]:
    for name in (*ON_A_CPU, *(ON_A_GPU if torch.cuda.is_available() else ())):
        yield from (case for case in importlib.import_module(name).cases() if case.quick or not quick)


def pytest_generate_tests(metafunc) -> None:
    asked = [(case, call) for case in cases(metafunc.config.option.quick) for call in (OURS, *case.peers)]
    metafunc.parametrize(("case", "call"), asked, ids=[f"{case} - {call}" for case, call in asked])


@pytest.fixture
def row(case: Case, request) -> Row:
    """The case's times, taken when the first of its calls is asked for."""
    config = request.config
    if RUN not in config.stash:
        torch.manual_seed(0)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        config.stash[RUN], config.stash[ROWS] = running.empty_run(device, config.option.quick), {}
    rows = config.stash[ROWS]
    if case not in rows:
        rows[case] = benching.measure(case, running.clock(case.device, config.option.quick))
        config.stash[RUN].rows.append(rows[case])
    return rows[case]


def pytest_benchmark_update_machine_info(config, machine_info) -> None:
    if RUN in config.stash:
        machine_info["wmma_ops"] = config.stash[RUN].about


def pytest_sessionfinish(session, exitstatus) -> None:
    run, asked = session.config.stash.get(RUN, None), session.config.option.baseline
    if run is None or asked is None or exitstatus != 0:
        return
    if asked == "write":
        baseline.write(run.rows)
    elif found := _misses(session.config.stash[ROWS]):
        session.config.stash[MISSES] = found
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _misses(rows: dict[Case, Row]) -> list[str]:
    """What is too slow twice: the machine may have done something else the first time."""
    again = [case for case, row in rows.items() if baseline.misses([row])]
    return baseline.misses([benching.measure(case, running.clock(case.device, False)) for case in again])


def pytest_terminal_summary(terminalreporter, config) -> None:
    if RUN not in config.stash or not config.stash[RUN].rows:
        return
    terminalreporter.ensure_newline()
    config.stash[RUN].show(output())
    for miss in config.stash.get(MISSES, []):
        terminalreporter.write_line(miss, red=True)
