"""The table of capabilities: everything that it names is there, and every row has a test or a reason."""

import pkgutil
import re
from pathlib import Path

import device_headers
import pytest

ROOT = Path(__file__).parents[2]

PAGE = ROOT / "docs/pages/capabilities.md"
# What the language brings, or the compiler.
LANGUAGE = {
    *("float", "double", "const", "_Float16", "__shared__", "threadIdx", "blockIdx", "blockDim", "gridDim"),
    *("__launch_bounds__", "extern __shared__"),
}


def _rows(text: str) -> list[tuple[str, str, str]]:
    """(what, here, test) of every row."""
    found = re.findall(r"^\| (.*) \| (.*) \| (.*?) ?\|$", text, re.M)
    return [row for row in found if row != ("what", "here", "test") and not set(row[0]) <= {"-"}]


def _device_names() -> set[str]:
    return {entry.name for header in device_headers.headers() for entry in device_headers.entries(header)}


def _is_there(name: str, device: set[str]) -> bool:
    name = re.match(r"[\w.:]+[^\w\s(.<]*|.*", name)[0].removeprefix("rocwmma::")
    if name.startswith(("wmma_ops.", "layouts.")):
        try:
            return bool(pkgutil.resolve_name(name if name.startswith("wmma_ops.") else f"wmma_ops.{name}"))
        except (AttributeError, ImportError):
            return False
    return name in device or name in LANGUAGE


def _wrong(text: str) -> list[str]:
    """What a table says that is not so."""
    device, wrong = _device_names(), []
    tests = {path.name: path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    for what, here, test in _rows(text):
        if here.startswith("not offered: "):
            wrong += [f"{what}: says not why"] * (len(here) < 30) + [f"{what}: a test of what is not there"] * bool(
                test
            )
            continue
        names = re.findall(r"`([^`]+)`", here)
        wrong += [f"{what}: `{name}` is not there" for name in names if not _is_there(name, device)]
        held = re.findall(r"`(\w+\.py)::(\w+)`", test)
        wrong += [f"{what}: no test is named"] * (not held)
        wrong += [f"{what}: no {file}::{name}" for file, name in held if f"def {name}(" not in tests.get(file, "")]
    return wrong


def test_what_the_table_names_is_there():
    assert not _wrong(PAGE.read_text())


def test_the_page_says_how_many_rows_there_are():
    text = PAGE.read_text()
    counts = [len(_rows(part)) for part in re.split(r"^## ", text, flags=re.M)[1:]]
    told = re.search(r"(\d+) capabilities: ([\d, and]+)", text)
    assert int(told[1]) == sum(counts)
    assert [int(number) for number in re.findall(r"\d+", told[2])] == counts


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ("| a | `load_matrix_sync` | `test_kernel.py::test_kernel_of_a_user` |", None),
        ("| a | `rocwmma::fragment`, `wmma_ops.addmm` | `test_kernel.py::test_kernel_of_a_user` |", None),
        ("| a | `layouts.forward` | `test_kernel.py::test_kernel_of_a_user` |", None),
        (
            "| a | `load_matrix_nowhere` | `test_kernel.py::test_kernel_of_a_user` |",
            "a: `load_matrix_nowhere` is not there",
        ),
        ("| a | `wmma_ops.nothing` | `test_kernel.py::test_kernel_of_a_user` |", "a: `wmma_ops.nothing` is not there"),
        ("| a | `mma_sync` | `test_kernel.py::test_nothing` |", "a: no test_kernel.py::test_nothing"),
        ("| a | `mma_sync` |  |", "a: no test is named"),
        ("| a | not offered: no |  |", "a: says not why"),
        ("| a | not offered: the hardware has none of it |  |", None),
    ],
)
def test_a_wrong_row_is_found(row, text):
    assert _wrong(row) == ([text] if text else [])
