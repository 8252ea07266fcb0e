import os
import shutil

import pytest
import skips
import tiers
import torch
from planned_calls import NOTHING

from wmma_ops import jit
from wmma_ops.hardware import arch
from wmma_ops.jit import cache, clang, kernels_dir
from wmma_ops.plan import KernelLaunch, Plan
from wmma_ops.plan.gemm import planner as gemm
from wmma_ops.testing import backends

# Models are built from configurations in the tests: nothing is to be fetched, whatever a test does.
os.environ["HF_HUB_OFFLINE"] = "1"

# xdist's workers have the cores: a second thread of one would mostly wait for another's. The kernels start no threads
# of their own. What a test starts inherits it.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)


def pytest_addoption(parser):
    parser.addoption(
        "--backend", default=None, help=f"run the value suite on this backend alone: {', '.join(backends())}"
    )
    parser.addoption(
        "--all-cases", action="store_true", help="run every case of the value suite on emulated targets, not a sample"
    )

    parser.addoption(
        "--configurations",
        type=int,
        default=5,
        help="how many configurations of kernels to draw at random for each emulated target (test_drawn.py)",
    )
    parser.addoption("--fuzz-seconds", type=float, default=60.0, help="how long to draw calls of ops (test_fuzz.py)")
    parser.addoption("--fuzz-seed", type=int, default=None, help="of which seed (the commit's number)")
    parser.addoption(
        "--tier",
        default="full",
        choices=tiers.TIERS,
        help="all tests (default), a quick part of them, the rest, or some for another compiler or torch",
    )


def pytest_configure(config):
    config.addinivalue_line("markers", "full: takes long, and is left out of the quick part")


def pytest_report_header(config):
    lines = []
    if (tier := config.getoption("--tier")) in ("quick", "rest"):
        turn = tiers.turn()
        quick = " and ".join(tiers.targets(turn))
        lines.append(f"tier {tier}, turn {turn}: the quick part has {quick}; make test-full runs all")
    if os.environ.get(clang.ASKED):
        lines.append(f"clang: {clang.toolchain('gfx1201')}; {clang.toolchain('gfx1201').because}")
    return lines


def pytest_ignore_collect(collection_path, config):
    """What a tier leaves out as a whole may import what its environment has not."""
    is_test = collection_path.name.startswith("test_")
    return True if is_test and not tiers.may_be_of(config.getoption("--tier"), collection_path) else None


def pytest_collection_modifyitems(config, items):
    if (tier := config.getoption("--tier")) == "full":
        return
    turn = tiers.turn()
    runs = {item: tiers.runs(item, tier, turn) for item in items}
    config.hook.pytest_deselected(items=[item for item in items if not runs[item]])
    items[:] = [item for item in items if runs[item]]


def pytest_generate_tests(metafunc):
    chosen = metafunc.config.getoption("--backend")
    names = [chosen] if chosen else backends()
    if "backend" in metafunc.fixturenames:
        metafunc.parametrize("backend", [name for name in names if not name.startswith("emulated:")])
    if "emulated" in metafunc.fixturenames:
        metafunc.parametrize("emulated", [name for name in names if name.startswith("emulated:")])


def pytest_runtest_setup(item):
    """A clang that is asked for need not know every target."""
    parameters = item.callspec.params.values() if os.environ.get(clang.ASKED) and hasattr(item, "callspec") else ()
    named = [tiers.target_of(value) or str(value) for value in parameters]
    for target in filter(arch.TARGETS.__contains__, named):
        if target.startswith("gfx") and not jit.available(target, "clang"):
            pytest.skip(f"the clang that {clang.ASKED} names, {os.environ[clang.ASKED]}, does not know {target}")


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """A copy of the device sources that kernels are compiled from."""
    copy = tmp_path / "kernels"
    shutil.copytree(kernels_dir.PATH, copy)
    torch.ops.wmma._forget_plans()
    monkeypatch.setattr(kernels_dir, "PATH", copy)
    yield copy
    torch.ops.wmma._forget_plans()


@pytest.fixture(scope="session")
def kernels_copy(tmp_path_factory):
    """A copy of the device sources: an edit while the tests run would change keys under them."""
    return shutil.copytree(kernels_dir.PATH, tmp_path_factory.mktemp("sources") / "kernels")


@pytest.fixture
def cache_folder(tmp_path, monkeypatch, kernels_copy):
    """A cache folder for this test alone."""
    monkeypatch.setattr(kernels_dir, "PATH", kernels_copy)
    monkeypatch.setenv("WMMA_OPS_CACHE_DIR", str(tmp_path / "cache"))
    for kept in ("_memory", "_facts", "_warned"):
        monkeypatch.setattr(cache, kept, type(getattr(cache, kept))())
    clang._probe.cache_clear()
    yield tmp_path / "cache"
    clang._probe.cache_clear()


@pytest.fixture
def compilations(monkeypatch, tmp_path):
    """Counts the compilations by clang, those of forked processes too."""
    log = tmp_path / "compilations"
    log.touch()
    compile = clang.Clang.compile

    def counting(self, *arguments):
        with log.open("a") as file:
            file.write("x")
        return compile(self, *arguments)

    monkeypatch.setattr(clang.Clang, "compile", counting)
    return lambda: len(log.read_text())


@pytest.fixture
def planner(monkeypatch):
    """Stands in for the planner, which need not know a problem to see how it arrives: a kernel that does nothing."""

    def plan(problem, target):
        launch = KernelLaunch("nothing", NOTHING, (1, 1), 64, 0)
        return Plan("nothing", "a test", (launch,), 0, (1, problem.k, 1, 1, 1, 0))

    monkeypatch.setattr(gemm, "plan", plan)
    torch.ops.wmma._forget_plans()
    yield
    torch.ops.wmma._forget_plans()


@pytest.fixture(scope="module")
def one_thread():
    """For tiny models, in which several threads mostly wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def pytest_terminal_summary(terminalreporter):
    if skipped := terminalreporter.stats.get("skipped"):
        terminalreporter.section(f"{len(skipped)} skipped, by reason")
        terminalreporter.write_line("\n".join(skips.by_reason(skipped)))


def pytest_sessionfinish(session, exitstatus):
    """A run that skipped everything has shown nothing."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter and reporter.stats.get("skipped") and not reporter.stats.get("passed") and exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
