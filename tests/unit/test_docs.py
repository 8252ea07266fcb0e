"""Every example in a docstring, in the README and in a page runs and prints what it says."""

import doctest
import html
import re
import runpy
import shlex
from pathlib import Path

import pytest
import torch

import wmma_ops
import wmma_ops.inductor
import wmma_ops.layouts
from wmma_ops.cli.main import VIEWS, main
from wmma_ops.ops.select import DIFFERENTIABLE

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = ROOT / "docs/pages"
OF_MODELS = re.compile(
    r"^\s*(?:import|from) (?:transformers|diffusers|peft)\b", re.M
)  # not installed for the quick tests
WRITTEN = [
    pytest.param(path, marks=pytest.mark.full) if OF_MODELS.search(path.read_text()) else path
    for path in [README, *(path for path in sorted(PAGES.rglob("*.md")) if "```" in path.read_text())]
]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
COMMAND = "python -m wmma_ops "

DOCUMENTED = [(place, name) for place in (wmma_ops, wmma_ops.nn, wmma_ops.layouts) for name in place.__all__]
DOCUMENTED += [(wmma_ops.inductor, "preview")]


@pytest.mark.parametrize(("place", "name"), DOCUMENTED, ids=[name for _, name in DOCUMENTED])
def test_docstring_example(place, name):
    function = getattr(place, name)
    examples = doctest.DocTestFinder(recurse=False).find(function, name)[0].examples
    assert examples, f"{name} has no example"
    test = doctest.DocTest(examples, {}, name, None, None, None)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    assert runner.run(test).failed == 0
    assert "Args:" in function.__doc__
    assert "====" not in function.__doc__, "a table of reStructuredText, which the site shows as text: write it with |"
    assert "Examples:" in function.__doc__, "the heading that the site's generator knows"


def test_every_function_is_documented_by_its_schema():
    for name in DIFFERENTIABLE:
        described = getattr(wmma_ops, name).__doc__
        for argument in DIFFERENTIABLE[name]._schema.arguments:
            assert re.search(rf"\b{argument.name}\b", described), (name, argument.name)


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.stem)
def test_every_block_runs(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)  # some write files
    text = path.read_text()
    blocks = BLOCK.findall(text)
    assert 2 * len(blocks) == len(re.findall("^ *```", text, re.M)), "a fence that is not at the margin, or not closed"
    names = {}
    for language, block in blocks:
        if path == README:  # whose blocks are copied one at a time; a page's follow each other
            names = {"torch": torch}
        if language == "python":
            exec(compile(block, str(path), "exec"), names)
        elif language == "console":
            _run_commands(block, capsys)
        elif language == "sh":
            for line in block.splitlines():
                assert line.startswith(("make ", "pip install ", COMMAND)), line
            for target in re.findall(r"^make (\w+)", block, re.M):
                assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M), target
            for view in re.findall(rf"^{COMMAND}(\w+)", block, re.M):
                assert view in VIEWS
        else:  # what `make docs` makes
            known = language in ("text", "cpp")
            assert known, f"{path.name}: a block of {language or 'no language'}, which nothing runs"
            assert re.fullmatch(r'--8<-- "[^"]+"\n', block), f"{path.name}: text that nothing checks"


def _drawn(svg: str) -> str:
    """Its text, without blanks and without the instruction, which another compiler may choose otherwise."""
    texts = re.findall(r"<text [^>]*>(.*?)</text>", svg)
    return re.sub(r"\s|`.*?`", "", html.unescape("".join(texts)))


def test_the_picture_of_a_fault_is_what_the_emulator_says():
    script = runpy.run_path(str(ROOT / "docs/draw_fault.py"))
    drawn, found = _drawn(script["PICTURE"].read_text()), script["fault"]()
    assert drawn == _drawn(script["picture"](found)), "another picture is due: python docs/draw_fault.py"
    assert re.sub(r"\s|`.*?`", "", f"Race: {found}") in drawn


def _run_commands(block: str, capsys) -> None:
    """Commands after `$`, and what they print where that is told; figures may differ, as compilers do."""
    for command in re.split(r"^\$ ", block, flags=re.M)[1:]:
        line, _, told = command.partition("\n")
        assert line.startswith(COMMAND), line
        capsys.readouterr()
        assert main(shlex.split(line.removeprefix(COMMAND))) == 0, line
        printed = capsys.readouterr().out
        if told:
            _check_printed(told, printed)
        else:
            assert printed.strip(), line


def _check_printed(told: str, printed: str) -> None:
    told, printed = (re.sub(r"\d+", "0", text) for text in (told, printed))
    same = doctest.OutputChecker().check_output(told, printed, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert same, f"the page says\n{told}\nand it prints\n{printed}"


def test_what_a_page_tells_is_held_against_what_is_printed():
    _check_printed("1 launch\n...\n  code 53,672 bytes\n", "1 launch\n  config x\n  code   53,680 bytes\n")
    with pytest.raises(AssertionError, match="it prints"):
        _check_printed("1 launch\n", "1 launch, and more\n")
