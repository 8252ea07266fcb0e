"""The command line: python -m wmma_ops …"""

import argparse
import json
import sys


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m wmma_ops",
        description="Matrix-core kernels for PyTorch: see what works on this machine.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    demo = commands.add_parser(
        "demo",
        help="run every op once; show its error against float64 and against torch's own",
        description="Runs every op once on the CPU and prints a row each: shape, types, error against float64, torch's own "
        "error in the same type, time. Fails where a result is outside its bound.",
    )
    doctor = commands.add_parser(
        "doctor",
        help="show versions, devices and what runs here",
        description="Shows what a bug report needs. Exits with 1 where an op gives a wrong result.",
    )
    for command in (demo, doctor):
        command.add_argument("--json", action="store_true", help="print JSON instead of a table")
    layout = commands.add_parser(
        "layout",
        help="show which lane holds which element of a matrix instruction's operand",
        description="Prints an operand of a matrix instruction as a matrix; each cell shows lane:element.",
    )
    layout.add_argument("target", metavar="TARGET", help="gfx1201, gfx942, sm_90, …")
    layout.add_argument("--operand", choices=("A", "B", "C", "D"), default="A", help="A (default), B, C or D")
    layout.add_argument("--instruction", metavar="I", help="mnemonic or builtin; the float16 product by default")
    layout.add_argument("--transposed", action="store_true", help="the operand stored transposed")
    layout.add_argument("--png", metavar="FILE", help="draw it as well; FILE ends in .png or .svg")
    layout.add_argument("--json", action="store_true", help="print JSON instead of a matrix")
    options = parser.parse_args(arguments)

    if options.command == "layout":
        from wmma_ops import layout_view

        return layout_view.show(options)

    from wmma_ops import demo, doctor

    if options.json:
        found = doctor.report() if options.command == "doctor" else demo.rows()
        print(json.dumps(found, indent=2, ensure_ascii=False))
        return 0 if options.command == "demo" or found["ok"] else 1

    from rich.console import Console

    # A pipe is no terminal with 80 columns: give rows the width they need.
    console = Console(width=None if sys.stdout.isatty() else 140)
    if options.command == "doctor":
        return doctor.show(console)
    demo.show(console)
    return 0


if __name__ == "__main__":
    sys.exit(main())
