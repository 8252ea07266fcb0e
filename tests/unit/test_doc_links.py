"""Links of the README and the pages lead somewhere, and the pages hold the whole API. `make docs` checks the built site."""

import pkgutil
import re
from pathlib import Path

import pytest

import wmma_ops
import wmma_ops.distributed
import wmma_ops.inductor

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = DOCS / "pages"
WRITTEN = [ROOT / "README.md", *sorted(PAGES.rglob("*.md"))]
FENCED = re.compile(r"^```.*?^```$", re.M | re.S)
LINK = re.compile(r"\[[^][]*(?:\[[^][]*\][^][]*)*\]\(([^)\s]+)\)")
SNIPPET = re.compile(r'^--8<-- "([^":]+)(?::(\w+))?"$', re.M)
NAME = re.compile(r"^::: (\S+)$", re.M)


def _anchors(text: str) -> set[str]:
    """Headings as GitHub and mkdocs both name them, and the names whose docstrings are put there."""
    prose = FENCED.sub("", text)
    headings = re.findall(r"^#+ (.+)$", prose, re.M)
    return {re.sub(r"[^\w\s-]", "", heading).strip().lower().replace(" ", "-") for heading in headings} | {
        *NAME.findall(prose)
    }


def _dead(path: Path, text: str) -> list[str]:
    dead = []
    for link in LINK.findall(FENCED.sub("", text)):
        if link.startswith("https://"):
            continue
        name, _, anchor = link.partition("#")
        found = (path.parent / name).resolve() if name else path
        on_site = not path.is_relative_to(PAGES) or found.is_relative_to(PAGES)
        anchors = _anchors(text if found == path else found.read_text()) if found.is_file() else set()
        if not found.is_file() or not on_site or (anchor and anchor not in anchors):
            dead.append(link)
    return dead


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    text = path.read_text()
    assert not _dead(path, text)
    for name, section in SNIPPET.findall(text):
        if not name.startswith("build/"):  # made by `make docs`
            assert f"--8<-- [start:{section}] -->" in (ROOT / name).read_text()


def test_dead_links_are_found():
    text = "# A page\n[a](#a-page) [`b`](fused.md#attention) [c](api/ops.md#wmma_ops.linear)\n"
    assert not _dead(PAGES / "index.md", text)
    bad = "[d](#b-page) [e](nowhere.md) [`f[0]`](fused.md#nothing) [g](api/ops.md#wmma_ops.lin) [h](../mkdocs.yml)"
    assert len(_dead(PAGES / "index.md", text + bad)) == 5


def test_readme_has_links():
    assert len(LINK.findall((ROOT / "README.md").read_text())) > 10


def test_every_page_is_in_the_navigation():
    listed = re.findall(r"([\w/-]+\.md)$", (DOCS / "mkdocs.yml").read_text(), re.M)
    assert sorted(listed) == sorted(str(path.relative_to(PAGES)) for path in PAGES.rglob("*.md"))


PUBLIC = {
    "ops": wmma_ops,
    "nn": wmma_ops.nn,
    "inductor": wmma_ops.inductor,
    "distributed": wmma_ops.distributed,
}


@pytest.mark.parametrize("page", PUBLIC)
def test_every_public_name_is_in_the_api(page):
    listed = NAME.findall((PAGES / "api" / f"{page}.md").read_text())
    # As the site's generator looks names up: a module goes before a function of its name.
    shown = {getattr(found := pkgutil.resolve_name(name), "__name__", name): found for name in listed}
    assert shown == {name: getattr(PUBLIC[page], name) for name in PUBLIC[page].__all__}
