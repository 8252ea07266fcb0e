"""The command line: python -m wmma_ops …"""

import argparse
import importlib
import io
import os
import sys

from wmma_ops.bringup.item import PARTS
from wmma_ops.cli import arguments

DESCRIPTION = """\
Matrix-core kernels for PyTorch: see what works on this machine, and what would run on another.

  python -m wmma_ops demo                                       every op once, with its error
  python -m wmma_ops explain matmul --target gfx942             the kernel for a 4096³ product, and why
  python -m wmma_ops time matmul --target gfx942                how long it takes there, and where the time goes
  python -m wmma_ops report --target gfx942 gfx1201             what the planner's kernels ask of the hardware
  python -m wmma_ops run kernel.co                              what a code object holds; with a grid, run it
  python -m wmma_ops bringup                                    everything on your card, and the file to send
  python -m wmma_ops build --target gfx942 --wheel dist         kernels for machines without a compiler
"""

# Loaded for its command alone: show(options) prints, and returns the exit status.
VIEWS = {
    "demo": "wmma_ops.cli.demo",
    "doctor": "wmma_ops.cli.doctor",
    "explain": "wmma_ops.cli.explain",
    "time": "wmma_ops.cli.time",
    "tune": "wmma_ops.cli.tune",
    "report": "wmma_ops.cli.report",
    "bench": "wmma_ops.cli.bench",
    "bringup": "wmma_ops.cli.bringup",
    "run": "wmma_ops.cli.run",
    "build": "wmma_ops.cli.build",
    "cache": "wmma_ops.cli.cache",
    "layout": "wmma_ops.cli.layout",
    "completion": "wmma_ops.cli.completion",
}


def parser(name: str = "python -m wmma_ops") -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog=name, description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = found.add_subparsers(dest="command", required=True, metavar="COMMAND")
    demo = commands.add_parser(
        "demo",
        help="run every op once; show its error against float64 and against torch's own",
        description="Runs every op once on the CPU and prints a row each: shape, types, error against float64, torch's own "
        "error in the same type, a warm call's time; then one product as an emulated GPU computes it. Fails where a result "
        "is outside its bound.",
    )
    doctor = commands.add_parser(
        "doctor",
        help="show versions, devices and what runs here",
        description="Shows what a bug report needs, and runs a product on every backend that is here. Exits with 1 where "
        "one gives a wrong result or fails.",
    )
    explain = commands.add_parser(
        "explain",
        help="show which kernel a product runs as, and why; needs no GPU",
        description="Plans and compiles a call of an op and prints what it would launch.",
    )
    explain.add_argument("op", metavar="OP", choices=arguments.OPS, help=", ".join(arguments.OPS))
    explain.add_argument("--target", metavar="TARGET", help="gfx942, 'RX 7900 XTX', …; this machine's GPU by default")
    arguments.add_options(explain)
    arguments.add_sizes(explain)
    explain.add_argument("--source", action="store_true", help="print the kernels' source instead")
    explain.add_argument("--assembly", action="store_true", help="print their assembly (NVIDIA: PTX) instead")
    time = commands.add_parser(
        "time",
        help="time a call's kernel on an AMD target that is not here, by published rules",
        description="Plans and compiles a call of an op, executes the blocks that one compute unit gets, and tells how many "
        "cycles they take, how busy the matrix pipes are, and what each instruction of the longest loop was held by: by "
        "published measurements of AMD's GPUs, not on one.",
    )
    time.add_argument("op", metavar="OP", choices=arguments.OPS, help=", ".join(arguments.OPS))
    time.add_argument("--target", metavar="TARGET", required=True, help="gfx942, gfx1201, MI300X, 'RX 7900 XTX', …")
    arguments.add_options(time)
    arguments.add_sizes(time)
    time.add_argument(
        "--instructions", type=arguments.size, metavar="COUNT", help="that may be executed; four million by default"
    )
    time.add_argument("--part", action="store_true", help="where there are more, time the first of them")
    time.add_argument(
        "--assembly", action="store_true", help="list the longest loop's instructions, with what held each"
    )
    time.add_argument("--draw", metavar="FILE", help="draw it: a lane a wave; FILE ends in .png or .svg")
    time.add_argument("--trace", metavar="FILE", help="write what each wave executes, as lines of JSON (.gz: packed)")
    tune = commands.add_parser(
        "tune",
        help="time a product's kernels on this machine's GPU; the fastest is used from then on",
        description="Compiles and times the configurations of a call of an op, prints the ten fastest beside the planner's "
        "guess, and keeps the fastest in the cache folder.",
    )
    tune.add_argument("places", nargs="*", type=arguments.size, help=argparse.SUPPRESS)  # M N K, deprecated
    tune.add_argument(
        "--op", metavar="OP", choices=arguments.PRODUCTS, default="matmul", help=", ".join(arguments.PRODUCTS)
    )
    arguments.add_options(tune)
    arguments.add_shape(tune)
    tune.add_argument(
        "--limit", type=arguments.size, default=40, metavar="COUNT", help="configurations to try; 40 by default"
    )
    report = commands.add_parser(
        "report",
        help="show registers, occupancy and hot loop of the planner's kernels; needs no GPU",
        description="Compiles the kernels that the planner picks for a dozen products and prints their static figures. "
        "Exits with 1 where one breaks a limit; misses that are known, and why, are listed.",
    )
    report.add_argument("--target", nargs="+", metavar="TARGET", help="by default every emulated one, and sm_90a")
    report.add_argument(
        "--clock", action="store_true", help="time them instead by published rules, on AMD's targets; minutes for all"
    )
    bench = commands.add_parser(
        "bench",
        help="time products on this machine's GPU, or its CPU, beside torch's",
        description="Times a call of an op and what one writes in torch for the same, in turn: medians, on a GPU with an "
        "empty L2 cache. Without sizes: those of a language model's layers, on a CPU what takes less than a minute.",
    )
    bench.add_argument("places", nargs="*", type=arguments.product, help=argparse.SUPPRESS)  # MxNxK, deprecated
    bench.add_argument(
        "--op", metavar="OP", choices=arguments.BENCHED, default="matmul", help=", ".join(arguments.BENCHED)
    )
    arguments.add_options(bench, None, "float16 on a GPU and float32 on a CPU by default, bfloat16, …")
    arguments.add_shape(bench, several=True)
    bench.add_argument("--rounds", type=arguments.size, default=15, metavar="COUNT", help="15 by default")
    bench.add_argument("--from", dest="saved", metavar="FILE", help="measure nothing; show what --json wrote")
    bench.add_argument(
        "--plot",
        metavar="FILE",
        help="draw the speeds beside torch's, for light and dark pages: x.svg (or .png) gives x-light.svg and x-dark.svg",
    )
    bringup = commands.add_parser(
        "bringup",
        help="try everything on this machine's GPU, in ten minutes, and write the file to send",
        description="On a card that nobody has tried yet: runs a sample of the value suite, holds the bits of each kind of "
        "kernel against the emulator's, takes the times that the clock's rules are made of, those of products and attention "
        "beside the clock's estimates and torch's. Writes FILE and, readable, the same with .md. Exits with 1 where "
        "something failed; each thing runs whatever became of the others.",
    )
    bringup.add_argument("--target", metavar="TARGET", help="try it on the emulator, as gfx942, 'RX 9070 XT', …")
    bringup.add_argument("--small", action="store_true", help="few and small things alone: a minute on the emulator")
    bringup.add_argument(
        "--minutes", type=float, default=10, metavar="COUNT", help="that it may take about; 10 by default"
    )
    bringup.add_argument("--part", nargs="+", choices=PARTS, metavar="PART", help=f"only these of {', '.join(PARTS)}")
    bringup.add_argument("--out", metavar="FILE", help="bringup-TARGET.json by default")
    bringup.add_argument("--from", dest="saved", metavar="FILE", help="run nothing; show what it wrote")
    run = commands.add_parser(
        "run",
        help="run a code object that others compiled, emulated or on a GPU; or show what it holds",
        description="Runs a kernel of a code object (.co, .hsaco): on this machine's GPU where it is of that target, else "
        "emulated, its instructions disassembled and executed; then shows what its tensors hold. Without --grid: lists "
        "the kernels and what arguments they take.",
    )
    run.add_argument("file", metavar="FILE", help="the code object")
    run.add_argument("arguments", metavar="ARG", nargs="*", help=arguments.VALUES)
    run.add_argument("--kernel", metavar="NAME", help="its symbol, or its plain name; not needed where there is one")
    run.add_argument("--grid", type=arguments.extent, metavar="XxYxZ", help="blocks: 64, 8x4 or 8x4x2")
    run.add_argument("--block", type=arguments.extent, metavar="XxYxZ", help="threads of a block: 256, 64x4, …")
    run.add_argument("--target", metavar="TARGET", help="emulate, and refuse a code object that is for another target")
    run.add_argument("--shared", type=int, default=0, metavar="BYTES", help="dynamic shared memory")
    run.add_argument(
        "--order",
        type=arguments.ORDERS,
        default="forward",
        metavar="ORDER",
        help="in which emulated waves take turns: forward (default), reverse, random",
    )
    run.add_argument("--seed", type=int, default=0, help="of random tensors")
    run.add_argument("--save", metavar="FOLDER", help="write each tensor as it then is to FOLDER/NAME.npy")
    run.add_argument("--time", action="store_true", help="tell how long it takes as well, as the command time does")
    run.add_argument("--draw", metavar="FILE", help="draw that; FILE ends in .png or .svg")
    run.add_argument(
        "--assembly", action="store_true", help="print its instructions, and run nothing; with --time, what held each"
    )
    build = commands.add_parser(
        "build",
        help="compile kernels ahead of time, into a folder or a wheel",
        description="Compiles the kernels of a list of calls for each target. A process finds them in the wheel, where that "
        "is installed, or in the folders that WMMA_OPS_OBJECTS names, and compiles nothing; without a compiler the planner "
        "keeps to them. Without --calls: what transformer models ask for in float16 and bfloat16.",
    )
    build.add_argument("--target", nargs="+", default=[], metavar="TARGET", help="gfx942 gfx1201 'RTX 4090', …")
    build.add_argument("--common", action="store_true", help="every AMD target that is emulated, sm_80 and sm_90a")
    build.add_argument("--calls", metavar="FILE", help="the calls that wmma_ops.record wrote")
    build.add_argument("--out", metavar="FOLDER", help="where to put the code objects")
    build.add_argument("--wheel", metavar="FOLDER", help="where to put a wheel that brings them")
    kept = commands.add_parser(
        "cache",
        help="list what the folder of compiled kernels holds, or empty it",
        description="Lists the compiled kernels that are kept between processes, or removes them. WMMA_OPS_CACHE_DIR names "
        "the folder; one that others own or may write to is not used, or with WMMA_OPS_CACHE_READ_ONLY=1 only read.",
    )
    kept.add_argument("action", choices=("ls", "clear"), help="list, or remove all")
    layout = commands.add_parser(
        "layout",
        help="show which lane holds which element of a matrix instruction's operand",
        description="Prints an operand of a matrix instruction as a matrix; each cell shows lane:element.",
    )
    layout.add_argument("target", metavar="TARGET", help="gfx1201, 'RX 7900 XTX', rdna3, sm_90, …")
    layout.add_argument("--operand", choices=("A", "B", "C", "D"), default="A", help="A (default), B, C or D")
    layout.add_argument("--instruction", metavar="I", help="mnemonic or builtin; the float16 product by default")
    layout.add_argument("--transposed", action="store_true", help="the operand stored transposed")
    layout.add_argument("--png", metavar="FILE", help="draw it as well; FILE ends in .png or .svg")
    completion = commands.add_parser(
        "completion",
        help="print the script with which a shell completes wmma_ops's commands",
        description="Prints the script with which a shell completes commands, options, ops and targets behind wmma_ops.",
    )
    completion.add_argument("shell", choices=("bash", "zsh", "tcsh"), help="bash, zsh or tcsh")
    for command in (demo, doctor, explain, time, tune, report, bench, bringup, run, build, kept, layout, completion):
        command.add_argument("--json", action="store_true", help="print JSON instead")
    return found


def main(arguments: list[str] | None = None) -> int:
    found = parser()
    options, rest = found.parse_known_args(arguments)
    if rest and (options.command != "run" or any(word.startswith("-") for word in rest)):
        found.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:  # behind options, where argparse looks for no more of a list
        options.arguments += rest
    return importlib.import_module(VIEWS[options.command]).show(options)


def run() -> int:
    """The command wmma_ops, as which it is installed too."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # × and → as ? where the locale has none
            stream.reconfigure(errors="replace")
    try:
        return main()
    except BrokenPipeError:  # … | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
