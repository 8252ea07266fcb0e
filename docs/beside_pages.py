"""Puts what stands beside pages/ (the changelog, the decisions, pictures, the style) on the site.

Links are written as the files lie, for readers on GitHub; on the site pages/ is the root. A comment
`<!-- loop NAME: what is seen -->` becomes the picture of that name, which `make docs` draws (draw_loops.py).
"""

import re
from pathlib import Path

from mkdocs.structure.files import File

DOCS = Path(__file__).parent
BESIDE = ("changelog.md", "decisions/*.md", "assets/*")
LOOPS = DOCS.parent / "build/loops"
LOOP = re.compile(r"^<!-- loop ([^:\n]+): (.+) -->$", re.M)


def on_files(files, config):
    for pattern in BESIDE:
        for path in sorted(DOCS.glob(pattern)):
            files.append(File.generated(config, path.relative_to(DOCS).as_posix(), abs_src_path=str(path)))
    for path in sorted(LOOPS.glob("*.svg")):
        files.append(File.generated(config, f"assets/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown, page, config, files):
    up = "../" * page.file.src_uri.count("/")
    if DOCS / "pages" in Path(page.file.abs_src_path).parents:
        return LOOP.sub(lambda found: _picture(*found.groups()), markdown).replace(f"](../{up}", f"]({up}")
    return markdown.replace(f"]({up}pages/", f"]({up}")


def _picture(name: str, seen: str) -> str:
    """Of a page that lies in pages/ itself."""
    return f"![{seen}](../assets/loop-{name.replace(',', '').replace(' on ', '-').replace(' ', '-')}.svg)"
