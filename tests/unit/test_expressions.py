"""Expressions that users register, for activations and for functions of scores: what is one expression, and nothing else."""

import random
import re
from types import SimpleNamespace

import pytest
import torch

import wmma_ops
from wmma_ops import jit
from wmma_ops.ops import activations, expressions
from wmma_ops.ops.registered import FIRST_REGISTERED
from wmma_ops.plan import source

# By what each is refused for.
REFUSED = {
    "x;}};\n#include </etc/passwd>\nstruct Q{": "has ';'",
    "x; } float f() { return 1": "has ';'",
    "x = 0": "has '=', an assignment",
    "x += 1": r"has '\+=', an assignment",
    "x <<= 1": "has '<<=', an assignment",
    "x >>= 1": "has '>>=', an assignment",
    "x >= 0 ? x : x ^= 1": r"has '\^=', an assignment",
    "++x": r"has '\+\+', an assignment",
    "x--": "has '--', an assignment",
    "x === 1": "has '=', an assignment",
    "<%x%>": "has '<%', a digraph",
    "x %>": "has '%>', a digraph",
    "x\n%:include <y>\n": "has '%:', a digraph",
    "x<:0:>": "has '<:', a digraph",
    "x ??( 0 ??)": r"has '\?\?\(', a trigraph",
    "x ??/\n": r"has '\?\?/', a trigraph",
    "x ??< ??>": r"has '\?\?<', a trigraph",
    "x // y": "has '//', a comment",
    "x /* y */": r"has '/\*', a comment",
    "x\n#define x 1\n": "has '#'",
    "x \\\n+ 1": r"has '\\\\'",
    "x + 'a'": 'has "\'"',
    'x + "a"': "has '\"'",
    "({ float y; x; })": "has '{'",
    "[&] { return x }()": "has '{'",
    "x) + (x": "closes what it did not open",
    "(x]": "closes what it did not open",
    "(x": "leaves a parenthesis open",
    "x, x": "has ',' outside of brackets",
    "::x": "has '::'",
    "x <=> 1": "has '<=>'",
    "x . x": r"has '\.'",
    "x + 1_km": "has '1_km', which is no number",
    "x + 1.f.f": r"has '1\.f\.f', which is no number",
    "x\u00a0+ 1": "has '\\\\xa0'",
    "x\u2028+ 1": "has '\\\\u2028'",
    "x\0": r"has '\\x00'",
    "$x": r"has '\$'",
    "sizeof(x)": "names 'sizeof'",
    "asm(x)": "names 'asm'",
    "fast_tan(x)": r"names 'fast_tan' \(did you mean 'fast_tanh'\?\)",
    "": "is ''",
    " \n": "is ' ",
}

TAKEN = (
    "x", "x > 0.f ? x * x : 0.f", "x >= 0 and x <= 6 ? x : -x", "pow(x, 3) * erf(x)", "float(x) + (double)x", "- -x + +x",
    "x != 0 && !(x == 1) || x < 2", "x * .5f + 1e-3f + 0x1F + 1.e2 + 2ull", "int(x) % 4 << 2 >> 1 & 3 | 1 ^ ~0",
    "fmax(x,\n  0)", "static_cast<float>(x)", "(x)",
)  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_expression_is_refused(text):
    with pytest.raises(ValueError, match=f"^f: device {REFUSED[text]}") as refused:
        expressions.check("f", "device", text, ("x",))
    assert "takes" in str(refused.value)
    assert "\n" not in str(refused.value)


def _activation(text):
    wmma_ops.register_activation(
        "broken_out", device=text, forward=torch.relu, derivative=lambda x: (x > 0).to(x.dtype)
    )


def _score(text):
    wmma_ops.register_score_mod("broken_out", expression=text, function=lambda s, *_: s, derivative="1")


def _derivative(text):
    wmma_ops.register_score_mod("broken_out", expression="score", function=lambda s, *_: s, derivative=text)


def _mask(text):
    wmma_ops.register_mask_mod("broken_out", expression=text, function=lambda b, h, q, k: q > k)


@pytest.mark.parametrize(
    ("register", "name", "argument"),
    [
        (_activation, "x", "register_activation: device"),
        (_score, "score", "register_score_mod: expression"),
        (_derivative, "score", "register_score_mod: derivative"),
        (_mask, "query", "register_mask_mod: expression"),
    ],
)
@pytest.mark.parametrize(
    "text", ["x;}};\n#include </etc/passwd>\nstruct Q{", "x = 0", "<%x%>", "x // all", "x ??/\n", "(x]"]
)
def test_whatever_registers_one_refuses_it(register, name, argument, text):
    with pytest.raises(ValueError, match=f"^{argument} (has|closes)"):
        register(text.replace("x", name))
    assert "broken_out" not in activations.names()


@pytest.fixture
def compiled(monkeypatch, cache_folder):
    """Which texts compile as kernels have them; each stands alone, as what one breaks out into may be in another's way."""
    texts: list[str] = []
    monkeypatch.setattr(activations, "by_code", lambda code: SimpleNamespace(device=texts[code - FIRST_REGISTERED]))

    def compiled(given):
        texts[:] = given
        whole = "#include <wmma/activate.hpp>\n#include <wmma/math.hpp>\n"
        whole += "\n".join(
            f'#line 1 "text_{i}"\n{source.registered([FIRST_REGISTERED + i])}' for i in range(len(texts))
        )
        try:
            jit.compile(whole, "gfx942", options=("-ferror-limit=0", "-w"))
        except jit.CompileError as error:
            wrong = {int(i) for i in re.findall(r"^text_(\d+):.*error: ", error.log, re.MULTILINE)}
        else:
            wrong = set()
        return {text for i, text in enumerate(texts) if i not in wrong}

    return compiled


# Each compiles in its place, twice (float and double), and is no expression.
BREAKOUTS = (
    "x; } static WMMA_DEVICE float more(float (*)[__LINE__]) { return 1",
    "x; static_assert(true); return x",
    "x; } template <int> friend struct Other; static int more(int (*)[__LINE__]) { return 2",
    "x; int y = 0; return y",
)


def test_what_is_taken_is_an_expression(compiled):
    for text in TAKEN:
        expressions.check("f", "device", text, ("x",))
    assert compiled(TAKEN) == set(TAKEN)
    assert compiled([f"({text})" for text in TAKEN]) == {f"({text})" for text in TAKEN}


def test_nothing_that_is_taken_breaks_out(compiled):
    """Texts at random: whatever is taken and compiles in its place is an expression in brackets too."""
    draw = random.Random(0)
    words = (
        *"x x x 1 2.f ( ) ( ) [ ] , + - * / % < > = ! & | ^ ~ ? : ; { } # \\ . ' \" @ $ _".split(),
        *"pow( erf( float( int true not static_cast<float>( return struct ??".split(),
        *"<% %> <: :> %: ??/ // /* */ == <= >= >>= ->".split(),
        *(" ", "\n", "\n#define x 1\n", "\n%:define x 1\n", "x; }", "};", "{ return", "([&]{ ", "})()"),
    )  # fmt: skip
    given = {*TAKEN, *BREAKOUTS}
    for _ in range(30_000):
        parts = re.findall(r"\w+|\W", draw.choice((*TAKEN, *BREAKOUTS, "")))
        for _ in range(draw.randint(1, 4)):
            at = draw.randint(0, len(parts))
            parts[at : at + draw.randint(0, 1)] = draw.choices(words, k=draw.randint(0, 2))
        given.add("".join(parts))

    def is_taken(text):
        try:
            expressions.check("f", "device", text, ("x",))
        except ValueError:
            return False
        return True

    taken = sorted(filter(is_taken, given))
    assert len(given) > 10 * len(taken) > 5000, len(taken)
    found = compiled(taken)
    assert len(found) > 100
    assert {f"({text})" for text in found} == compiled([f"({text})" for text in sorted(found)])
    print(f"{len(given)} texts, of which {len(taken)} are taken, and {len(found)} compile")


def test_what_breaks_out_would_be_seen(compiled):
    assert compiled(BREAKOUTS) == set(BREAKOUTS)
    assert not compiled([f"({text})" for text in BREAKOUTS])
