"""Every example in a docstring and in the README runs and prints what it says."""

import doctest
import re
from pathlib import Path

import pytest
import torch

import wmma_ops
from wmma_ops import ops

README = Path(__file__).parents[1] / "README.md"


DOCUMENTED = [(place, name) for place in (wmma_ops, wmma_ops.nn) for name in place.__all__]


@pytest.mark.parametrize(("place", "name"), DOCUMENTED, ids=[name for _, name in DOCUMENTED])
def test_docstring_example(place, name):
    function = getattr(place, name)
    examples = doctest.DocTestFinder(recurse=False).find(function, name)[0].examples
    assert examples, f"{name} has no example"
    test = doctest.DocTest(examples, {}, name, None, None, None)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    assert runner.run(test).failed == 0
    assert "Args:" in function.__doc__


def test_every_function_is_documented_by_its_schema():
    for name in ops.DIFFERENTIABLE:
        described = getattr(wmma_ops, name).__doc__
        for argument in ops.DIFFERENTIABLE[name]._schema.arguments:
            assert re.search(rf"\b{argument.name}\b", described), (name, argument.name)


def test_readme_examples(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some write files
    blocks = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.M | re.S)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {"torch": torch})
