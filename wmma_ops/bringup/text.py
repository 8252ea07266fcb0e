"""What a bring-up found, as Markdown: failures first, and in full."""

import json
from collections.abc import Iterator

from wmma_ops.bringup.item import FAILED, LEFT_OUT, PARTS, PASSED, TOLD
from wmma_ops.runtime.clock import took

_OFF = 0.1  # of the clock's time: a rule that is worth a look


def of(data: dict) -> str:
    return "\n".join(_lines(data)) + "\n"


def counts(results: list[dict]) -> dict[str, dict[str, int]]:
    """By part and verdict."""
    found: dict[str, dict[str, int]] = {}
    for result in results:
        part = found.setdefault(result["part"], dict.fromkeys((PASSED, FAILED, TOLD, LEFT_OUT), 0))
        part[result["verdict"]] += 1
    return found


def _lines(data: dict) -> Iterator[str]:
    results = data["results"]
    where = "emulated: nothing here was measured on a card" if data["emulated"] else data["device"]
    yield f"# Bring-up of {data['target']} ({where})"
    yield ""
    yield f"wmma_ops {data['wmma_ops']}, torch {data['torch']}, {data['date']}, {data['seconds']:.0f} s"
    yield ""
    yield from _table(("part", PASSED, FAILED, TOLD, LEFT_OUT),
                      [(part, *counted.values()) for part, counted in counts(results).items()])  # fmt: skip
    failures = [result for result in results if result["verdict"] == FAILED]
    yield ""
    yield f"## Failures: {len(failures)}"
    for result in failures:
        yield ""
        yield f"### {result['part']}: {result['name']}"
        yield ""
        yield "```text"
        for key, value in result.items():
            if key not in ("part", "name", "verdict"):
                text = value if isinstance(value, str) else json.dumps(value, indent=1, ensure_ascii=False)
                yield f"{key}: {text}".replace("```", "'''")
        yield "```"
    shown = {"bits": _bits, "microkernels": _microkernels, "times": _times}
    for part in PARTS:
        rows = [result for result in results if result["part"] == part]
        if part in shown and rows:
            yield ""
            yield f"## {part.capitalize()}"
            yield ""
            yield from shown[part](rows)
    left = [result for result in results if result["verdict"] == LEFT_OUT]
    if left:
        yield ""
        yield f"## Left out: {len(left)}"
        yield ""
        yield from (f"- {result['part']}: {result['name']}: {result.get('why', '')}" for result in left)


def _table(heads: tuple[str, ...], rows: list[tuple]) -> Iterator[str]:
    yield "| " + " | ".join(heads) + " |"
    yield "|" + "---|" * len(heads)
    for row in rows:
        yield "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in row) + " |"


def _bits(rows: list[dict]) -> Iterator[str]:
    yield "Differing elements, and by how many roundings at most, from the emulator's result of the same code object;"
    yield "where there is no emulator, of whole numbers from the CPU's."
    yield ""

    def cell(row: dict, which: str) -> str:
        found = row.get(which)
        if found is None:
            return row.get("emulated", "").partition(":")[0]
        return f"{found['differing']} of {found['of']}" + (f", {found['roundings']}" if found["differing"] else "")

    yield from _table(
        ("kernel", "whole numbers", "random", "configuration"),
        [(row["name"], cell(row, "whole numbers"), cell(row, "random"), row.get("config", "")) for row in rows],
    )


def _microkernels(rows: list[dict]) -> Iterator[str]:
    yield "Cycles of one thing: measured, and by the clock, whose rules are named with what they are now."
    yield f"\\* where they are apart by more than {_OFF:.0%}."
    yield ""

    def number(x: object) -> str:
        return f"{x:.1f}" if isinstance(x, (int, float)) else ""

    def named(pairs: object) -> str:
        if isinstance(pairs, dict):
            return ", ".join(name if value is None else f"{name} {value:g}" for name, value in pairs.items())
        return ", ".join(pairs) if isinstance(pairs, list) else ""

    def off(row: dict) -> str:
        measured, clock = row.get("measured"), row.get("clock")
        if not isinstance(measured, float) or not clock:
            return ""
        return f"{measured / clock - 1:+.0%}" + (" *" if abs(measured / clock - 1) > _OFF else "")

    told = [row for row in rows if row["verdict"] != LEFT_OUT]
    yield from _table(
        ("", "measured", "by the clock", "off", "rules", "which says"),
        [
            (row["name"], number(row.get("measured")), number(row.get("clock")), off(row), named(row.get("rules")),
             named(row.get("says")))
            for row in told if "gigahertz" not in row
        ],
    )  # fmt: skip
    for row in told:
        if "gigahertz" in row:
            yield ""
            yield f"{row['name']}: {row['gigahertz']:.2f} GHz."


def _times(rows: list[dict]) -> Iterator[str]:
    yield "bfloat16. The clock's are estimates of the whole GPU at the clock that is named."
    yield ""

    def time(x: object) -> str:
        return took(x) if isinstance(x, float) else str(x or "")

    def cells(row: dict) -> tuple:
        clock = row["clock"] if isinstance(row.get("clock"), dict) else {}
        ours, torchs, guess = row.get("microseconds"), row.get("torch"), clock.get("microseconds")
        both = isinstance(ours, float) and isinstance(torchs, float)
        return (
            row["name"], time(ours), f"{row['tflops']:.1f}" if "tflops" in row else "", time(torchs),
            f"{torchs / ours:.2f}" if both else "", time(guess), f"{clock['gigahertz']} GHz" if "gigahertz" in clock else "",
            f"{ours / guess:.2f}" if isinstance(ours, float) and guess else "",
            f"{clock['share']:.2f}" if "share" in clock else "",
        )  # fmt: skip

    heads = (
        "",
        "ours",
        "TFLOP/s",
        "torch",
        "torch ÷ ours",
        "the clock",
        "at",
        "ours ÷ clock",
        "share of the matrix pipes",
    )
    yield from _table(
        heads, [cells(row) for row in rows if "gigabytes a second" not in row and row["verdict"] != LEFT_OUT]
    )
    for row in rows:
        if "gigabytes a second" in row:
            yield ""
            yield f"A copy within the device moves {row['gigabytes a second']:.0f} GB/s."
