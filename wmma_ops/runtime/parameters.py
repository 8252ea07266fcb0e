"""What a kernel takes, as its source declares it: its definition's parameters, and the members of structs among them."""

import math
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from wmma_ops.emulator.placing import one_after_another
from wmma_ops.ops.types import ELEMENTS

# What a parameter's type takes, by its shortest name: a tensor's dtype behind a pointer, or the form of a number.
_POINTED = {
    "_Float16": torch.float16,
    "uint8_t": torch.uint8,
    "int16_t": torch.int16,
    "int": torch.int32,
    "unsigned": torch.int32,
    "uint32_t": torch.int32,
    "signed char": torch.int8,
    "char": torch.int8,
    "unsigned char": torch.uint8,
    "short": torch.int16,
    "long long": torch.int64,
    "bool": torch.bool,
    **{row.device.removeprefix("wmma::"): row.dtype for row in ELEMENTS if row.dtype != torch.bool},
}
# By other names: HIP's, CUDA's and rocWMMA's.
_SAME = {
    **dict.fromkeys(("__half", "half", "float16_t", "hfloat16_t"), "half_t"),
    **dict.fromkeys(
        ("__bf16", "bfloat16_t", "hip_bfloat16", "__hip_bfloat16", "__nv_bfloat16", "nv_bfloat16"), "bf16_t"
    ),
    "float32_t": "float",
    "float64_t": "double",
    "uint": "unsigned",
    "uchar": "unsigned char",
    "ushort": "unsigned short",
    "ulong": "unsigned long",
    "ptrdiff_t": "long",
    "intptr_t": "long",
    "uintptr_t": "unsigned long",
}
_UNSIGNED = ("unsigned", "uint32_t")  # these take torch.uint32 as well, for which torch has few functions
FORMS = {
    "int": "i",
    "int32_t": "i",
    "unsigned": "I",
    "uint32_t": "I",
    "short": "h",
    "int16_t": "h",
    "unsigned short": "H",
    "uint16_t": "H",
    "long": "q",
    "long long": "q",
    "int64_t": "q",
    "unsigned long": "Q",
    "unsigned long long": "Q",
    "uint64_t": "Q",
    "size_t": "Q",
    "float": "f",
    "double": "d",
    "bool": "?",
    "char": "b",
    "signed char": "b",
    "int8_t": "b",
    "unsigned char": "B",
    "uint8_t": "B",
}
_VECTOR = re.compile(r"(u?)(char|short|int|long|longlong|float|double)([1-4])")
_WORDS = {"int", "unsigned", "signed", "short", "long", "char", "float", "double", "bool", "void"}  # name no parameter
_DROPPED = re.compile(
    r"\b(const|volatile|restrict|__restrict__|__restrict|__grid_constant__|struct|enum)\b|\b(?:(?:roc)?wmma|std)::|=.*"
    r"|\balignas\s*\([^()]*\)|__attribute__\s*\(\(.*?\)\)\)?",
    re.S,
)


@dataclass(frozen=True)
class Parameter:
    """Of a kernel, or a member of a struct that is one."""

    name: str
    type: str  # without const, restrict and *
    pointer: bool
    shape: tuple[int, ...] = ()  # of a member that is an array
    members: "tuple[Parameter, ...] | None" = None  # of a struct whose members are told
    alignment: int = 0  # where it is not the members'

    @property
    def dtype(self) -> torch.dtype | None:
        """None where any is taken: void, or a name that the source defines."""
        return _POINTED.get(self.type)

    @property
    def is_own(self) -> bool:
        """Whether its type is the source's own, by value."""
        return not self.pointer and self.type not in FORMS and self.dtype is None

    def takes(self, dtype: torch.dtype) -> bool:
        """Whether it may point to a tensor of this type."""
        return self.dtype in (None, dtype) or (self.type in _UNSIGNED and dtype == torch.uint32)

    @property
    def one(self) -> tuple[int, int] | None:
        """(size, alignment) of one element; None where the source does not tell."""
        if self.pointer:
            return 8, 8
        if self.members is not None:
            _, size, alignment = laid_out(self.members)
            return size, max(self.alignment, alignment)
        size = struct.calcsize(FORMS[self.type]) if self.type in FORMS else self.dtype.itemsize if self.dtype else 0
        return (size, size) if size else None

    def __str__(self) -> str:
        return f"{self.type}{'*' * self.pointer} {self.name}" + "".join(f"[{size}]" for size in self.shape)


def laid_out(members: Sequence[Parameter]) -> tuple[list[int], int, int]:
    """(where each member lies, size, alignment) of a struct of them."""
    return one_after_another((member.one[0] * math.prod(member.shape), member.one[1]) for member in members)


def declarations(source: str, name: str, options: Sequence[str] = ()) -> list[tuple[Parameter, ...]]:
    """The kernel's parameters: of each definition in the source, which may have several for the preprocessor to choose from;
    of its prototypes where none is defined. `options` are the compiler's."""
    if "<" in name:
        raise ValueError(
            f"Kernel: name is {name!r}; takes {name.split('<')[0]!r}, of which the source instantiates one: "
            f"`template __global__ void {name}(…);`"
        )
    text = _defined(re.sub(r"//[^\n]*|/\*.*?\*/", " ", source, flags=re.S), options)
    found: dict[str, list[tuple[Parameter, ...]]] = {"{": [], ";": []}
    for match in re.finditer(rf"\b(?:__global__|WMMA_KERNEL)\b[^;{{}}]*?\b{re.escape(name)}\s*\(", text):
        end = _closed(text, match.end() - 1)
        after = re.match(r"[^;{]*([;{])", text[end:])
        if after is not None:
            declared = tuple(_parameters(text, text[match.end() : end - 1]))
            if declared not in found[after[1]]:
                found[after[1]].append(declared)
    if not any(found.values()):
        raise ValueError(f"Kernel: name is {name!r}, but the source has no `__global__ void {name}(…)`")
    return [_instantiated(text, name, declared) for declared in found["{"] or found[";"]]


def least_threads(source: str, name: str, options: Sequence[str] = ()) -> int:
    """The fewest that the kernel's definition declares, as a number or a macro that is one; 0 where it declares none. (Of
    what is compiled the metadata tells only the most.)"""
    text = _defined(re.sub(r"//[^\n]*|/\*.*?\*/", " ", source, flags=re.S), options)
    found = re.search(
        rf"\bamdgpu_flat_work_group_size\s*\(\s*(\w+)\s*,[^;{{}}]*?\b{re.escape(name)}\s*\([^;]*?\{{", text
    )
    if found is None:
        return 0
    number = re.search(rf"^[ \t]*#[ \t]*define[ \t]+{found[1]}[ \t]+(\d+)[ \t]*$", text, re.M)
    count = number[1] if number else found[1]
    return int(count) if count.isdigit() else 0


def _defined(text: str, options: Sequence[str]) -> str:
    """The text with what -D defines, in place of what it defines itself where nothing is given."""
    for match in re.finditer(r"(?:^|\0)-D\0?(\w+)=([^\0]*)", "\0".join(options)):
        own = re.sub(rf"^[ \t]*#[ \t]*define[ \t]+{match[1]}\b.*", "", text, flags=re.M)
        text = f"#define {match[1]} {match[2]}\n{own}"
    return text


def _instantiated(text: str, name: str, declared: tuple[Parameter, ...]) -> tuple[Parameter, ...]:
    """Of a template that the source instantiates, `template __global__ void scale<float>(float*, float);`: by its types."""
    kinds = [
        tuple(_parameters(text, match[1]))
        for match in re.finditer(
            rf"\btemplate\s+[^;{{}}<]*\b{re.escape(name)}\s*(?:<[^;{{}}]*?>)?\s*\(([^;{{}}]*)\)\s*;", text
        )
    ]
    if len(kinds) != 1 or len(kinds[0]) != len(declared):
        return declared
    return tuple(replace(kind, name=one.name) for kind, one in zip(kinds[0], declared, strict=True))


def _parameters(text: str, declared: str) -> Iterator[Parameter]:
    for number, part in enumerate(_split(declared, ","), 1):
        found = _declared(text, part, unnamed=f"argument {number}")
        if found is not None:
            yield found


def _declared(text: str, part: str, unnamed: str) -> Parameter | None:
    """One parameter or member; None of `void`. A definition need not name what it does not use."""
    before, *array = re.sub(r"<[^<>]*>", lambda found: re.sub(r"\s", "", found[0]), _DROPPED.sub(" ", part)).split("[")
    words = before.replace("*", " * ").split()
    pointer = "*" in words
    if words == ["void"]:
        return None
    kind = [word for word in words if word != "*"]
    is_named = len(kind) > 1 and kind[-1] not in _WORDS and words[-1] != "*"
    label = kind.pop() if is_named else unnamed
    found = Parameter(label, _known(text, _shortest(kind)), pointer or bool(array))
    if not found.is_own:
        return found
    told = members(text, found.type)
    return replace(found, members=told) if told is not None else _vector(found)


def _vector(own: Parameter) -> Parameter:
    """CUDA's and HIP's float4 and its kin, which no source defines; others as they are."""
    match = _VECTOR.fullmatch(own.type)
    if match is None:
        return own
    sign, kind, count = "unsigned " if match[1] else "", match[2].replace("longlong", "long long"), int(match[3])
    parts = tuple(Parameter(name, f"{sign}{kind}".removesuffix(" int"), False) for name in "xyzw"[:count])
    size = parts[0].one[0]
    return replace(own, members=parts, alignment=size if count == 3 else min(count * size, 16))


def members(text: str, type_name: str) -> tuple[Parameter, ...] | None:
    """Of a struct that the text defines; None where it is none, or has more than plain members."""
    match = re.search(
        rf"\bstruct\s+{re.escape(type_name)}\s*{{|\bstruct\s*{{(?=[^{{}}]*}}\s*{re.escape(type_name)}\s*;)", text
    )
    if match is None:
        return None
    body = text[match.end() : _closed(text, match.end() - 1) - 1]
    if re.search(r"[(){}:#&]", body.replace("::", "")):
        return None
    found = []
    for line in filter(str.strip, body.split(";")):
        first, *others = _split(line, ",")
        kind = re.match(r"(.*?)[*\s]*\w+\s*(?:\[.*)?$", first.strip(), re.S)[1]
        for one in (first, *(f"{kind} {other}" for other in others)):
            sizes = re.findall(r"\[\s*(\w+)\s*\]", one)
            member = _declared(text, one.split("[")[0], unnamed="")
            if member is None or not member.name or not all(size.isdigit() for size in sizes) or "static" in one:
                return None
            found.append(replace(member, shape=tuple(map(int, sizes))))
    return tuple(found) if all(member.one for member in found) else None


def _shortest(words: list[str]) -> str:
    """`unsigned long` for `long unsigned int`."""
    if {"short", "long", "signed", "unsigned"} & set(words) and "double" not in words:
        words = sorted((word for word in words if word != "int"), key=lambda word: word not in ("signed", "unsigned"))
        if words[0] == "signed" and "char" not in words:
            words = words[1:] or ["int"]
    return " ".join(words)


def _known(text: str, kind: str) -> str:
    """By the name that the tables have: through the source's own names for a type, where one meaning of each is plain."""
    name = re.escape(kind)
    ways = (
        rf"\busing\s+{name}\s*=([^;]*);",
        rf"\btypedef\b([^;{{}}]*)\b{name}\s*;",
        rf"^[ \t]*#[ \t]*define[ \t]+{name}[ \t]+([^\n]*)$",
        rf"\benum\s+(?:(?:class|struct)\s+)?{name}\s*(?::([^{{}};]*)|(?={{))",
    )
    found = sorted((match for way in ways for match in re.finditer(way, text, re.M)), key=re.Match.start)
    given = [_shortest(_DROPPED.sub(" ", match[1] or "int").split()) for match in found]
    if not given or all(same == kind for same in given):  # `using float32_t = rocwmma::float32_t;`
        return _SAME.get(kind, kind)
    before, after = text[: found[0].start()], text[found[0].end() :]
    if len(given) > 1 or not re.fullmatch(r"[\w ]+", given[0]) or before.count("{") != before.count("}"):
        return kind
    is_macro = "#" in found[0][0]  # which is replaced where it is used
    return _known(before + after if is_macro else before, given[0])


_OPEN, _CLOSE = "(<[{", ")>]}"


def _closed(text: str, at: int) -> int:
    """Behind the bracket that closes the one at `at`; the end where none does."""
    depth, opening = 0, text[at]
    closing = _CLOSE[_OPEN.index(opening)]
    for place in range(at, len(text)):
        depth += (text[place] == opening) - (text[place] == closing)
        if depth == 0:
            return place + 1
    return len(text)


def _split(text: str, separator: str) -> list[str]:
    """At separators outside brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in _OPEN) - (letter in _CLOSE)
        if letter == separator and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]
