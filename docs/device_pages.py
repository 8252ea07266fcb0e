"""The reference of the device library: a line `@device wmma/grid.hpp` of a page becomes that header's public names.

Everything comes from the headers and from kernels that the tests run: signatures and comments from kernels/wmma, a line of
use from tests/support. Nothing is written twice, and a name without a comment or a use is a failure of the tests.
"""

import itertools
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import device_headers
from device_headers import ROOT, Entry

MARKER = re.compile(r"^@device (wmma/[\w/]+\.hpp)$", re.M)
KERNELS = ROOT / "tests/support/examples"
# Python whose texts are kernels: lines that end as C++'s do, and rows that begin with an expression.
TEXTS = ("tests/support/*.py", "tests/emulator/*.py")


def on_page_markdown(markdown, page, config, files):
    return MARKER.sub(lambda found: section(found[1]), markdown)


def uses() -> list[str]:
    """Lines of kernels that the tests run, the shortest first."""
    found = []
    for path in sorted(KERNELS.glob("*.hip")):
        text = re.sub(r"\s*//[^\n]*", "", path.read_text())
        found += [re.sub(r"\s+", " ", part).strip() for part in re.split(r"(?<=[;{}])\n", text)]
    for path in sorted(path for pattern in TEXTS for path in ROOT.glob(pattern)):
        text = path.read_text()
        lines = [line.strip() for line in re.findall(r"^(?! *[\"'])[^\n]*[;{]$", text, re.M) if "{{" not in line]
        found += [line.replace("\\\\", "\\") for line in lines]
        found += [f"{line};" for line in re.findall(r'^ {4}(?: {4}|\()"((?:[^"\\\n]|\\.)*)",', text, re.M)]
    lines = [line for line in found if line and not line.startswith(("#", "template", "extern", "__global__", "}"))]
    return sorted(set(lines), key=lambda line: (len(line), line))


def use(entry: Entry, lines: list[str]) -> str | None:
    """A line that uses the name; of an operator, one that has it between two names."""
    if entry.name.startswith("operator"):
        sign = re.escape(entry.name.removeprefix("operator"))
        wanted = rf"[\w)\]] {sign} [\w(]|(?<![\w&|]){sign}\w" if entry.name != "operator[]" else r"\w\["
    else:
        wanted = rf"(?<![\w.>]){re.escape(entry.name)}(?!\w)"
    return next((line for line in lines if re.search(wanted, line)), None)


def section(header: str) -> str:
    lines = uses()
    entries = device_headers.entries(header)
    text = [f"`#include <{device_headers.included(header)}>`", "", _prose(device_headers.about(header)), ""]
    if header.startswith("wmma/compat/"):
        text += _table(entries, lines)
    else:
        for entry in entries:
            text += _one(entry, lines)
    return "\n".join(text)


def _one(entry: Entry, lines: list[str]) -> list[str]:
    """A name with its signatures, comment, targets and a line of use."""
    signatures = "\n".join(f"{signature};" for signature in entry.signatures)
    text = [f"### {_escaped(entry.name)}", "", "```cpp", signatures, "```", "", _prose(entry.comment), ""]
    for member in entry.members:
        text += [f"- `{' '.join(member.signatures[0].split())}`: {_prose(member.comment)}"]
    if entry.members:
        text.append("")
    where = "Every target." if entry.targets == "all" else f"{entry.targets}'s targets."
    example = use(entry, lines)
    return [*text, f"{where} " + (f"Used: `{example}`" if example else ""), ""]


def _table(entries: list[Entry], lines: list[str]) -> list[str]:
    """Names in rows of those that one comment is for."""
    text = ["| names | what they do | used |", "|---|---|---|"]
    for comment, group in itertools.groupby(entries, key=lambda entry: entry.comment):
        names = list(group)
        example = next((line for line in lines if any(use(entry, [line]) for entry in names)), "")
        shown = ", ".join(f"`{entry.name}`" for entry in names)
        what, used = (cell.replace("|", "\\|") for cell in (_prose(comment).replace("\n", " "), example))
        text.append(f"| {shown} | {what} | {used and f'`{used}`'} |")
    return [*text, ""]


def _prose(text: str) -> str:
    """A comment as Markdown shows it: what C++ writes is not to be read as markup."""
    return "\n".join(_escaped(line) if not line.startswith("   ") else f"    {line}" for line in text.splitlines())


def _escaped(text: str) -> str:
    return re.sub(r"([\\*_<>\[\]`#])", r"\\\1", text)
