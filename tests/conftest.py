import pytest
import torch

from wmma_ops.testing import backends


def pytest_addoption(parser):
    parser.addoption(
        "--backend", default=None, help=f"run the value suite on this backend alone: {', '.join(backends())}"
    )


def pytest_generate_tests(metafunc):
    if "backend" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--backend")
        metafunc.parametrize("backend", [chosen] if chosen else backends())


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def pytest_sessionfinish(session, exitstatus):
    """A run that skipped everything has shown nothing."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter and reporter.stats.get("skipped") and not reporter.stats.get("passed") and exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
