"""What .github/ tells people and machines to run is there: targets of make, paths, commands, emulated targets."""

import re
from pathlib import Path

import pytest
import yaml

from wmma_ops.cli.main import VIEWS
from wmma_ops.hardware import arch

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
TEXTS = [GITHUB / "CONTRIBUTING.md", GITHUB / "SECURITY.md"]
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORM = GITHUB / "ISSUE_TEMPLATE/bug.yml"
OF_BRINGUP = GITHUB / "ISSUE_TEMPLATE/bringup.yml"

TOLD = re.compile(r"`([^`\n]+)`|^```sh\n(.*?)^```$", re.M | re.S)
PATH = re.compile(r"(?<![\w./-])(?:tests|bench|docs|\.ci)/[\w./-]+")


def _wrong(command: str) -> list[str]:
    """The pieces of a command that are not there."""
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    made = [name for name in re.findall(r"\bmake ([\w-]+)", command) if name not in targets]
    views = [name for name in re.findall(r"python3? -m wmma_ops (\w+)", command) if name not in VIEWS]
    return made + views + [path for path in PATH.findall(command) if not (ROOT / path).exists()]


def _steps(workflow: dict) -> list[dict]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_what_is_there(path):
    workflow = yaml.safe_load(path.read_text())
    assert {"name", True, "permissions", "jobs"} <= set(workflow)  # yaml reads the key `on` as True
    for step in _steps(workflow):
        assert len({"run", "uses"} & set(step)) == 1, step
        assert not _wrong(step.get("run", "")), step
        if "uses" in step:
            assert re.fullmatch(r"actions/[\w-]+@v\d+", step["uses"]), step
    for name, job in workflow["jobs"].items():
        assert {"runs-on", "timeout-minutes", "steps"} <= set(job), name


def test_every_emulated_target_has_its_job():
    jobs = yaml.safe_load((GITHUB / "workflows/ci.yml").read_text())["jobs"]
    assert {"lint", "unit", "emulated", "torch", "wheel"} <= set(jobs)
    assert jobs["emulated"]["strategy"]["matrix"]["target"] == list(arch.EMULATED)
    oldest = re.search(r"torch>=([\d.]+)", (ROOT / "pyproject.toml").read_text()).group(1)
    assert jobs["wheel"]["strategy"]["matrix"]["torch"] == [f"torch=={oldest}.0", "torch"]
    assert jobs["torch"]["strategy"]["matrix"]["release"] == [f"{oldest}.0", "newest"]


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_texts_name_what_is_there(path):
    told = [one or block for one, block in TOLD.findall(path.read_text())]
    assert any(command.startswith(("make ", "python -m ")) for command in told)
    assert not [wrong for command in told for wrong in _wrong(command)]


def test_what_is_not_there_is_found():
    assert _wrong('make nothing ARGS="tests/unit/test_nothing.py" && python -m wmma_ops nothing') == [
        "nothing",
        "nothing",
        "tests/unit/test_nothing.py",
    ]
    assert not _wrong('make test ARGS="tests/unit/test_plan.py" && python -m wmma_ops doctor --json')


def _fields(form: Path) -> list[dict]:
    """What a form asks, by the rules of GitHub's issue forms, which shows none that breaks them."""
    found = yaml.safe_load(form.read_text())
    assert {"name", "description", "body"} <= set(found)
    fields = [field for field in found["body"] if field["type"] != "markdown"]
    assert {field["type"] for field in fields} <= {"textarea", "input", "dropdown", "checkboxes"}
    assert len({field["id"] for field in fields}) == len(fields)
    assert all(field["attributes"]["label"] for field in fields)
    assert not [wrong for field in fields for wrong in _wrong(str(field["attributes"]))]
    return fields


def test_the_form_of_a_tried_card_asks_for_its_file():
    fields = _fields(OF_BRINGUP)
    (asked,) = (field for field in fields if "python -m wmma_ops bringup" in field["attributes"].get("description", ""))
    assert asked["validations"]["required"]
    page = (ROOT / "docs/pages/amd.md").read_text()
    assert ".github/ISSUE_TEMPLATE/bringup.yml" in page
    assert yaml.safe_load(OF_BRINGUP.read_text())["name"] in page


def test_the_issue_form_asks_for_the_doctor():
    fields = _fields(FORM)
    (asked,) = (field for field in fields if "doctor --json" in field["attributes"].get("description", ""))
    assert asked["validations"]["required"]
    assert asked["attributes"]["render"] == "json"
