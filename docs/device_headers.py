"""Reads the public names of the device library out of its headers: signature, the comment above, header, targets.

It knows C++ as these headers are written: formatted, one declaration after the other, a comment above the first of those
that it is for, a blank line after the last.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = ROOT / "kernels/wmma"
# Headers that public ones are made of, and whose names nobody is to use.
INTERNAL = {
    "activate",
    "activation",
    "bits",
    "elements",
    "exact_math",
    "fma_tile",
    "half_tile",
    "layout",
    "math/number",
    "print_buffer",
    "print_format",
    "signed_tile",
    "target",
    "compat/host_only",
}
# Names of public headers that are for the library's own use.
OWN = {"EnableIf", "Identity", "InMemory", "Int8ConvertedTile"}
# Headers that another one brings, which is the one to include.
PARTS = {
    **dict.fromkeys(("fragment_type", "fragment_memory", "fragment_product", "elementwise", "relayout"), "fragment"),
    "int4": "fragment",
    "memory_order": "atomics",
    "operators": "wave",
}
ROOMS = (".", "math", "compat")
PUBLIC = ([], ["wmma"], ["rocwmma"])  # namespaces
_OPEN, _CLOSE = "([{", ")]}"


@dataclass(frozen=True)
class Entry:
    name: str
    kind: str  # function, type, value or macro
    signatures: tuple[str, ...]
    comment: str
    header: str  # as it is included
    targets: str = "all"
    members: tuple["Entry", ...] = ()
    family: str = ""  # the macro that declares it and others like it


def headers() -> list[str]:
    """The public headers, as they are included."""
    found = [path for room in ROOMS for path in sorted((LIBRARY / room).glob("*.hpp"))]
    names = [path.relative_to(LIBRARY).with_suffix("").as_posix() for path in found]
    return [f"wmma/{name}.hpp" for name in names if name not in INTERNAL]


def included(header: str) -> str:
    """The header to include for the names of this one."""
    name = header.removeprefix("wmma/").removesuffix(".hpp")
    return f"wmma/{'math' if name.startswith('math/') else PARTS.get(name, name)}.hpp"


def about(header: str) -> str:
    """The comment at a header's top."""
    lines = (LIBRARY.parent / header).read_text().splitlines()
    top = lines[: next(i for i, line in enumerate(lines) if not line.startswith("//"))]
    return "\n".join(line[2:].removeprefix(" ") for line in top)


def entries(header: str) -> list[Entry]:
    """The public names of a header, each once, with all its signatures."""
    return parse((LIBRARY.parent / header).read_text(), header)


def parse(text: str, header: str) -> list[Entry]:
    found: dict[str, Entry] = {}
    for entry in _declarations(text, header, _macros(text)):
        known = found.get(entry.name)
        if known is None:
            found[entry.name] = entry
            continue
        signatures = tuple(dict.fromkeys(known.signatures + entry.signatures))
        if entry.kind == "type":  # declared before it is defined
            signatures = signatures[-1:]
        targets = known.targets if known.targets == entry.targets else "all"
        comment = known.comment or entry.comment
        if entry.comment and entry.comment not in comment:
            comment += "\n" + entry.comment
        found[entry.name] = replace(
            known, signatures=signatures, targets=targets, comment=comment, members=known.members or entry.members
        )
    undefined = set(re.findall(r"^#undef (\w+)", text, re.M))
    return [entry for entry in found.values() if entry.name not in undefined | OWN]


def _macros(text: str) -> dict[str, tuple[list[str], str]]:
    """The macros that a header defines for itself: parameters and body."""
    gone = set(re.findall(r"^#undef (\w+)", text, re.M))
    found = re.findall(r"^#define (\w+)\(([^)]*)\)((?:.*\\\n)*.*)", text, re.M)
    return {name: (re.split(r",\s*", given), body.replace("\\\n", "\n")) for name, given, body in found if name in gone}


def _expanded(macros: dict[str, tuple[list[str], str]], line: str) -> str:
    """What a line that calls such a macro stands for, a declaration a line."""
    name, given = re.fullmatch(r"\s*(\w+)\((.*)\)\s*", line).groups()
    parameters, body = macros[name]
    values, depth = [""], 0
    for letter in given:
        depth += (letter in _OPEN) - (letter in _CLOSE)
        if letter == "," and depth == 0:
            values.append("")
        else:
            values[-1] += letter
    for parameter, value in zip(parameters, values, strict=True):
        body = re.sub(rf"(?:\s*##\s*)?\b{parameter}\b(?:\s*##\s*)?", value.strip().replace("\\", r"\\"), body)
    lines, text, depth = [], "", 0
    for letter in re.sub(r"\s+", " ", body):
        depth += (letter in "({") - (letter in ")}")
        text += letter
        called = re.fullmatch(r"\s*(\w+)\(.*\)", text) if depth == 0 else None
        if depth == 0 and (letter in ";}" or (called and called[1] in macros)):
            lines.append(_expanded(macros, text.strip()) if called else text.strip())
            text = ""
    return "\n".join(lines)


def _declarations(text: str, header: str, macros: dict, comment: tuple[str, ...] = ()):
    """Every declaration at the level of namespace wmma, of rocwmma, or of no namespace."""
    lines = text.splitlines()
    comment = list(comment)
    spaces: list[str] = []
    conditions: list[str] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        called = re.fullmatch(r"(\w+)\(.*\)", line)
        if line.startswith("#"):
            whole, at = _continued(lines, at)
            if macro := re.match(r"#define (\w+)(\([^)]*\))?", whole):
                yield Entry(macro[1], "macro", (macro[1] + (macro[2] or ""),), _prose(comment), header)
            _condition(conditions, whole)
            continue
        if not line.strip():
            comment = []
        elif line.startswith("//"):
            # A comment after a declaration is for what follows.
            comment = [line] if at and not lines[at - 1].startswith("//") else [*comment, line]
        elif called and called[1] in macros:
            if spaces in PUBLIC:
                for entry in _declarations(_expanded(macros, line), header, macros, comment):
                    yield replace(entry, targets=_targets(conditions), family=called[1])
        elif opened := re.match(r"(?:inline )?namespace ([\w:]*) ?\{", line):
            spaces.append(opened[1])
            comment = []
        elif line.startswith("}"):
            if re.match(r"\}\s*// namespace", line):
                spaces.pop()
        else:
            declared, body, at = _statement(lines, at)
            if spaces in PUBLIC and (named := _named(declared)):
                name, kind = named
                members = tuple(_members(body, header)) if kind == "type" else ()
                yield Entry(name, kind, (_signature(declared),), _prose(comment), header, _targets(conditions), members)
            continue
        at += 1


def _continued(lines: list[str], at: int) -> tuple[str, int]:
    """A line of the preprocessor with those that continue it, and the place behind."""
    end = at
    while lines[end].endswith("\\"):
        end += 1
    return "\n".join(lines[at : end + 1]), end + 1


def _condition(conditions: list[str], line: str) -> None:
    if re.match(r"#\s*if", line):
        conditions.append(line)
    elif re.match(r"#\s*el", line):
        conditions[-1] = f"not ({conditions[-1]})"
    elif re.match(r"#\s*endif", line):
        conditions.pop()


def _targets(conditions: list[str]) -> str:
    for condition in conditions:
        if found := re.fullmatch(r"#\s*if(?:def| defined\()\s*WMMA_(AMD|NVIDIA)\)?", condition):
            return found[1]
    return "all"


def _statement(lines: list[str], at: int) -> tuple[str, list[str], int]:
    """A declaration from line `at` on, up to its body or semicolon; the body's lines; the place behind."""
    declared, depth, start = "", 0, at
    while at < len(lines):
        text = re.sub(r"\s*//.*$", "", lines[at])
        for i, letter in enumerate(text):
            if letter == "{" and depth == 0 and not _initialises(declared):
                end = _behind(lines, at, i)
                return declared.strip(), lines[at:end], end
            depth += (letter in _OPEN) - (letter in _CLOSE)
            if letter == ";" and depth == 0:
                return declared.strip(), [], at + 1
            declared += letter
        declared += "\n"
        at += 1
    raise ValueError(f"no end of what begins with {lines[start]!r}")


def _initialises(declared: str) -> bool:
    """Whether a brace that follows is a value, not a body."""
    text = re.sub(r"operator ?[^\s(]+", "", _plain(declared))
    while "(" in text and (shorter := re.sub(r"\([^()]*\)", "", text)) != text:
        text = shorter
    return "=" in text


def _behind(lines: list[str], at: int, column: int) -> int:
    """The line behind the brace that closes the one at `column`."""
    depth = 0
    for row in range(at, len(lines)):
        text = re.sub(r"//.*$|\"(?:[^\"\\]|\\.)*\"|'[^']*'", "", lines[row] if row > at else lines[row][column:])
        depth += text.count("{") - text.count("}")
        if depth == 0:
            return row + 1
    raise ValueError(f"no end of the body that begins in {lines[at]!r}")


def _plain(declared: str) -> str:
    """Without template parameters in front, attributes and the words that every function here has."""
    text = " ".join(declared.split())
    while text.startswith("template"):
        depth = inside = 0
        for i, letter in enumerate(text):
            inside += (letter in _OPEN) - (letter in _CLOSE)
            depth += (letter == "<" and not inside) - (letter == ">" and not inside and text[i - 1] != "-")
            if letter == ">" and depth == 0:
                text = text[i + 1 :].strip()
                break
    return text


def _named(declared: str) -> tuple[str, str] | None:
    """(name, kind) of what a declaration declares; None of specialisations and what declares nothing new."""
    text = _plain(declared)
    if not text or text.startswith(("static_assert", "extern const")):
        return None
    if found := re.match(r"(?:struct|class|enum(?: class)?)\b(?: alignas\([^)]*\))? (\w+)(.*)", text):
        return None if found[2].startswith("<") else (found[1], "type")
    if found := re.match(r"using (\w+) =", text):
        return found[1], "type"
    if found := re.match(r"using \w+(?:::\w+)*::(\w+)$", text):
        return found[1], "type"
    if found := re.match(r"(?:inline |static )*constexpr [\w:<> ]*?(\w+)(<.*>)? = ", text):
        return None if found[2] else (found[1], "value")
    if found := re.match(r"[^()=]*?(operator ?(?:\(\)|\[\]|[^\s(]+)|~?\w+)\s?\(", re.sub(r"alignas\(\w+\)", "", text)):
        return found[1].replace("operator ", "operator"), "function"
    return None


def _signature(declared: str) -> str:
    """As a reader wants it: without the words that say how it is compiled."""
    text = re.sub(r"\b(WMMA_DEVICE|WMMA_CONSTEXPR|inline)\b ?", "", declared)
    text = re.sub(r"^((?:template <.*>\n)?struct \w+) : .*", r"\1", text, flags=re.S)  # what it is made of
    text = re.sub(r"\btypename wmma::Identity<(\w+)>::Type\b|\btypename Identity<(\w+)>::Type\b", r"\1\2", text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def _members(body: list[str], header: str):
    """What a struct's body declares with a comment above."""
    inner = [re.sub(r"^  ", "", line) for line in body[1:-1]]
    comment: list[str] = []
    at = 0
    while at < len(inner):
        line = inner[at]
        if line.startswith("//"):
            comment = [*comment, line] if at and inner[at - 1].startswith("//") else [line]
        elif not line.strip():
            comment = []
        elif line.startswith(("#", "static_assert", "friend", "}", "public", "private")):
            pass
        else:
            try:
                declared, _, at = _statement(inner, at)
            except ValueError:
                return
            if comment and (named := _named(declared.removeprefix("static ")) or _field(declared)):
                yield Entry(named[0], named[1], (_signature(declared),), _prose(comment), header)
            continue
        at += 1


def _field(declared: str) -> tuple[str, str] | None:
    found = re.search(r"(\w+)(?:\[[^]]*\])?$", declared)
    return (found[1], "value") if found else None


def _prose(comment: list[str]) -> str:
    return "\n".join(line[2:].removeprefix(" ") for line in comment)
