"""The reference of the device library is made from its headers: every public name has a comment, a use and a place."""

from pathlib import Path

import device_headers
import device_pages
import pytest

ROOT = Path(__file__).parents[2]

PAGE = ROOT / "docs/pages/api/device.md"
HEADERS = device_headers.headers()
WHERE = "a line in tests/support/examples, such as names.hip or math.hip, shows each name"
HOW = "a comment stands above the declaration, with no blank line between (or the header is one of device_headers.INTERNAL)"


@pytest.mark.parametrize("header", HEADERS)
def test_every_public_name_has_a_comment(header):
    bare = [entry.name for entry in device_headers.entries(header) if not entry.comment]
    assert not bare, f"{header}: nothing says what these do: {', '.join(bare)}; {HOW}"


@pytest.mark.parametrize("header", HEADERS)
def test_every_public_name_is_used_by_a_kernel_of_the_tests(header):
    lines = device_pages.uses()
    # Of names that one macro declares, one use stands for all.
    families = {
        entry.family for entry in device_headers.entries(header) if entry.family and device_pages.use(entry, lines)
    }
    unused = [
        entry.name
        for entry in device_headers.entries(header)
        if not device_pages.use(entry, lines) and entry.family not in families
    ]
    assert not unused, f"{header}: no kernel in tests/support or tests/emulator uses {', '.join(unused)}; {WHERE}"


def test_every_header_is_on_the_page_once():
    placed = device_pages.MARKER.findall(PAGE.read_text())
    assert sorted(placed) == sorted(HEADERS), "docs/pages/api/device.md has a line `@device wmma/….hpp` for each header"


def test_the_page_has_every_name():
    text = device_pages.on_page_markdown(PAGE.read_text(), None, None, None)
    assert not device_pages.MARKER.search(text)
    for header in HEADERS:
        for entry in device_headers.entries(header):
            shown = f"`{entry.name}`" if "compat" in header else f"### {device_pages._escaped(entry.name)}\n"
            assert shown in text, (header, entry.name)


SAMPLE = """// What it is for.
#pragma once
#include <wmma/types.hpp>

namespace wmma {
namespace detail {
WMMA_DEVICE int hidden() { return 1; }
}  // namespace detail

// Two of a kind,
// really.
template <class T, int kCount = (2 > 1)>
WMMA_DEVICE T twice(T value, int width = kWaveSize) {
  if (width == 0) { return {}; }
  return value;
}
template <class T>
WMMA_DEVICE T thrice(T value) { return value; }

#ifdef WMMA_NVIDIA
// A number.
constexpr int kNumber = 3;
#endif

// A pair.
struct Pair {
  // The first.
  int x;
  int y;
  // Their sum.
  WMMA_DEVICE int sum() const { return x + y; }
};
template <>
struct Special<Pair> {};
WMMA_DEVICE bool operator==(const Pair& a, const Pair& b) { return a.x == b.x && a.y == b.y; }

#define WMMA_ONE(name, sign) \\
  WMMA_DEVICE int name(int a, int b) { return a sign b; }
// Sums and differences.
WMMA_ONE(plus, +)
WMMA_ONE(minus, -)
#undef WMMA_ONE

WMMA_DEVICE void bare() {}

}  // namespace wmma

// Asserts.
#define WMMA_THERE(condition) \\
  do {                        \\
  } while (0)
"""


def test_headers_are_read():
    found = {entry.name: entry for entry in device_headers.parse(SAMPLE, "wmma/sample.hpp")}
    assert {name: (entry.kind, entry.comment) for name, entry in found.items()} == {
        "twice": ("function", "Two of a kind,\nreally."),
        "thrice": ("function", "Two of a kind,\nreally."),
        "kNumber": ("value", "A number."),
        "Pair": ("type", "A pair."),
        "operator==": ("function", "A pair."),
        "plus": ("function", "Sums and differences."),
        "minus": ("function", "Sums and differences."),
        "bare": ("function", ""),
        "WMMA_THERE": ("macro", "Asserts."),
    }
    assert found["twice"].signatures == (
        "template <class T, int kCount = (2 > 1)>\nT twice(T value, int width = kWaveSize)",
    )
    assert found["kNumber"].targets == "NVIDIA"
    assert [(member.name, member.comment) for member in found["Pair"].members] == [
        ("x", "The first."),
        ("y", "The first."),
        ("sum", "Their sum."),
    ]
    assert found["plus"].family == "WMMA_ONE"
    assert found["plus"].signatures == ("int plus(int a, int b)",)


def test_uses_are_found():
    twice, equal = (
        next(entry for entry in device_headers.parse(SAMPLE, "x") if entry.name == name)
        for name in ("twice", "operator==")
    )
    assert (
        device_pages.use(twice, ["x = at_twice(y);", "twice_as = 3;", "z = wmma::twice(y);"]) == "z = wmma::twice(y);"
    )
    assert device_pages.use(twice, ["x = thrice(y);"]) is None
    assert device_pages.use(equal, ["x = y;", "if (x == y) z = 1;"]) == "if (x == y) z = 1;"
