"""Links of the README and the pages lead somewhere, and the pages hold the whole API. `make docs` checks the built site."""

import pkgutil
import re
from pathlib import Path

import pytest

import wmma_ops
import wmma_ops.distributed
import wmma_ops.inductor
import wmma_ops.layouts

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = DOCS / "pages"
ON_SITE = sorted(path for path in DOCS.rglob("*.md"))
WRITTEN = [ROOT / "README.md", *ON_SITE, *sorted((ROOT / ".github").rglob("*.md"))]
FENCED = re.compile(r"^```.*?^```$", re.M | re.S)
LINK = re.compile(
    r"\[[^][]*(?:\[[^][]*\][^][]*)*\]\(([^)\s]+)\)|\bsrc(?:set)?=\"([^\"]+)\""
)  # of Markdown and pictures
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
    for link in ("".join(found) for found in LINK.findall(FENCED.sub("", text))):
        if link.startswith("https://"):
            continue
        name, _, anchor = link.partition("#")
        found = (path.parent / name).resolve() if name else path
        on_site = not path.is_relative_to(DOCS) or found in ON_SITE or found.parent == DOCS / "assets"
        if found.suffix == ".svg":
            anchors = {"only-light", "only-dark"}  # of the site's theme
        else:
            anchors = _anchors(text if found == path else found.read_text()) if found.is_file() else set()
        if not found.is_file() or not on_site or (anchor and anchor not in anchors):
            dead.append(link)
    return dead


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    text = path.read_text()
    assert not _dead(path, text)
    for name, section in SNIPPET.findall(text):
        if not section:
            assert name.startswith("build/") or (ROOT / name).is_file()  # the first is made by `make docs`
        else:
            assert f"--8<-- [start:{section}] -->" in (ROOT / name).read_text()


PATHS = re.compile(r"`((?:[\w.-]+/)*(?:[\w.-]+\.(?:py|[ch]pp|hip|md|yml)|[\w.-]+/))`")


def _missing(text: str) -> list[str]:
    """Paths of the tree that a text names, from where it is read: the top, the package, the device code."""
    roots = (ROOT, ROOT / "wmma_ops", ROOT / "kernels", ROOT / "kernels/wmma")
    named = PATHS.findall(FENCED.sub("", text))
    return [name for name in named if not any((root / name).exists() for root in roots)]


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: str(path.relative_to(ROOT)))
def test_named_files_exist(path):
    assert not _missing(path.read_text())


def test_files_that_do_not_exist_are_found():
    there, gone = ["plan/problem.py", "kernels/wmma/arch/", "tile/product.hpp"], ["plan/gemm.py", "wmma_ops/arch/"]
    assert _missing(" ".join(f"`{name}`" for name in (*there, *gone, "torch.ops.wmma"))) == gone


def test_dead_links_are_found():
    text = "# A page\n[a](#a-page) [`b`](fused.md#attention) [c](api/ops.md#wmma_ops.linear)\n"
    assert not _dead(PAGES / "index.md", text)
    bad = "[d](#b-page) [e](nowhere.md) [`f[0]`](fused.md#nothing) [g](api/ops.md#wmma_ops.lin) [h](../mkdocs.yml)"
    assert len(_dead(PAGES / "index.md", text + bad)) == 5


def test_readme_has_links():
    assert len(LINK.findall((ROOT / "README.md").read_text())) > 10


def test_every_example_is_on_its_page():
    shown = re.findall(r'^--8<-- "tests/support/examples/(.+)"$', (PAGES / "examples.md").read_text(), re.M)
    assert sorted(shown) == sorted(path.name for path in (ROOT / "tests/support/examples").glob("*.hip"))


def test_every_page_is_in_the_navigation():
    listed = re.findall(r"([\w/-]+\.md)$", (DOCS / "mkdocs.yml").read_text(), re.M)
    assert sorted(listed) == sorted(str(path.relative_to(PAGES if PAGES in path.parents else DOCS)) for path in ON_SITE)


PUBLIC = {
    "ops": wmma_ops,
    "nn": wmma_ops.nn,
    "inductor": wmma_ops.inductor,
    "distributed": wmma_ops.distributed,
    "layouts": wmma_ops.layouts,
}


@pytest.mark.parametrize("page", PUBLIC)
def test_every_public_name_is_in_the_api(page):
    listed = NAME.findall((PAGES / "api" / f"{page}.md").read_text())
    # As the site's generator looks names up: a module goes before a function of its name.
    shown = {getattr(found := pkgutil.resolve_name(name), "__name__", name): found for name in listed}
    assert shown == {name: getattr(PUBLIC[page], name) for name in PUBLIC[page].__all__}
