"""C++ expressions that users register, and that kernels have by their text: that one is an expression, and of what.

It has numbers, names that are known, calls, operators and brackets in pairs, so that it neither ends early nor does anything
but have a value. Refused is all that could: statements and braces (a lambda's and a statement expression's too), comments,
directives, text in quotes, assignments, and the digraphs and trigraphs that stand for some of these.
"""

import re
from collections.abc import Sequence

from wmma_ops.ops.neighbours import hint

# What an expression may name beside its own: of wmma/math.hpp, and of the language.
MATH = frozenset(
    "abs acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh cospi erf erfc erfinv exp exp10 exp2 expm1 fabs "
    "fast_abs fast_cos fast_exp fast_exp2 fast_fma fast_log fast_log2 fast_max fast_min fast_rcp fast_rsqrt fast_sigmoid "
    "fast_sin fast_sqrt fast_tanh fdim floor fma fmax fmin fmod hypot isfinite isinf isnan ldexp log log10 log1p log2 pow "
    "remainder rint round round_even rsqrt signbit sin sinh sinpi sqrt tan tanh trunc".split()
)
_WORDS = frozenset("bool int unsigned long float double true false and or not static_cast".split())

_TOKEN = re.compile(
    r"""(?P<number>\.?\d(?:[eEpP][+-]|[\w.])*)
    |(?P<name>[A-Za-z_]\w*)
    |(?P<trigraph>\?\?[=/'()!<>-])
    |(?P<digraph><%|%>|<:|:>|%:)
    |(?P<comment>//|/\*)
    |(?P<foreign>::|<=>)
    |(?P<comparison>[<>=!]=)
    |(?P<assignment>(?:<<|>>|[-+*/%&|^])?=|\+\+|--)
    |(?P<operator>&&|\|\||<<|>>|[-+*/%&|^<>!~?:,()\[\]])
    |(?P<other>\S)""",
    re.ASCII | re.VERBOSE,
)
_NUMBER = re.compile(
    r"(?:0[xX][0-9a-fA-F]+|0[bB][01]+)[uUlL]{0,3}|\d+[uUlL]{0,3}|(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][+-]?\d+)?[fFlL]?",
    re.ASCII,
)
_REFUSED = {
    "trigraph": ", a trigraph",
    "digraph": ", a digraph",
    "comment": ", a comment",
    "assignment": ", an assignment",
    "foreign": "",
    "other": "",
}
_PAIRS = {")": "(", "]": "["}


def tokens(text: str) -> list[str]:
    return [match.group() for match in _TOKEN.finditer(text)]


def names(text: str) -> frozenset[str]:
    """What an expression names."""
    return frozenset(match["name"] for match in _TOKEN.finditer(text) if match["name"])


def check(caller: str, argument: str, text: object, known: Sequence[str], functions: Sequence[str] = ()) -> None:
    """That `text` is one expression of the names in `known`, which it is told to take, of `functions` and of math.hpp's."""
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"{caller}: {argument} is {text!r}; takes a C++ expression of {', '.join(known)}")

    def refuse(what: str) -> ValueError:
        return ValueError(f"{caller}: {argument} {what}: {text!r}; takes one C++ expression")

    allowed = {*known, *functions, *MATH, *_WORDS}
    opened: list[str] = []
    for match in _TOKEN.finditer(text):
        kind, token = match.lastgroup or "", match.group()
        if kind in _REFUSED:
            raise refuse(f"has {token!r}{_REFUSED[kind]}")
        if kind == "number" and not _NUMBER.fullmatch(token):
            raise refuse(f"has {token!r}, which is no number")
        if kind == "name" and token not in allowed:
            raise ValueError(
                f"{caller}: {argument} names {token!r}{hint(token, allowed)}; takes an expression of {', '.join(known)} and "
                "the functions of wmma/math.hpp"
            )
        if token in _PAIRS.values():
            opened.append(token)
        elif token in _PAIRS and (not opened or opened.pop() != _PAIRS[token]):
            raise refuse("closes what it did not open")
        elif token == "," and not opened:
            raise refuse("has ',' outside of brackets")
    if opened:
        raise refuse("leaves a parenthesis open")
