"""`python -m wmma_ops run`: a code object that others compiled, on a GPU or emulated; without a grid, what it holds."""

import contextlib
import functools
import json
import math
import sys
from pathlib import Path

import numpy as np
import torch
from rich.table import Table

from wmma_ops import jit
from wmma_ops.cli import terminal, time, values
from wmma_ops.emulator.errors import EmulationError
from wmma_ops.emulator.timing import timeline
from wmma_ops.jit import CodeObject, code_object, metadata
from wmma_ops.jit.disassembler import NoDisassembler
from wmma_ops.ops.errors import DriverError
from wmma_ops.runtime import driver
from wmma_ops.runtime.emulation import emulate
from wmma_ops.runtime.foreign import ForeignKernel

_SHOWN = 4  # elements of a tensor


def show(options) -> int:
    try:
        if options.draw:
            timeline.check(options.draw)
        code = code_object.read(options.file, options.target)
        if options.assembly and not options.time:
            print(code_object.assembly(code), end="")
        elif options.grid is None:
            if options.arguments:
                raise ValueError("arguments came without --grid; takes --grid X[xYxZ] and --block X[xYxZ] with them")
            _list(code, options)
        else:
            _run(code, options)
    except (ValueError, TypeError, OSError) as error:
        print(f"run: {_line(error)}", file=sys.stderr)
        return 2
    except (EmulationError, jit.CompileError, NoDisassembler, DriverError, ImportError, RuntimeError) as error:
        print(f"run: {_line(error)}", file=sys.stderr)
        return 1
    return 0


def _line(error: BaseException) -> str:
    return str(error).splitlines()[0].removeprefix("Kernel: ") if str(error) else type(error).__name__


# ---------------------------------------------------------------------------------------------------- what a file holds


def _described(code: CodeObject) -> list[dict]:
    found = []
    for symbol in code.kernels:
        facts, kernel = metadata.kernels(code.code)[symbol], ForeignKernel(code, symbol)
        found.append(
            {
                "kernel": symbol,
                "vgprs": facts.get(".vgpr_count", 0),
                "sgprs": facts.get(".sgpr_count", 0),
                "shared_bytes": facts.get(".group_segment_fixed_size", 0),
                "scratch_bytes": facts.get(".private_segment_fixed_size", 0),
                "wave": facts.get(".wavefront_size"),
                "block": facts.get(".reqd_workgroup_size"),
                "most_threads": facts.get(".max_flat_workgroup_size"),
                "arguments": [
                    {"name": one.name, "offset": slot.offset, "size": slot.size, "pointer": slot.pointer}
                    for one, slot in kernel.placed
                ],
            }
        )
    return found


def _list(code: CodeObject, options) -> None:
    found = _described(code)
    if options.kernel:
        found = [one for one in found if one["kernel"] == code.entry(options.kernel)]
    if options.json:
        print(json.dumps({"file": str(options.file), "target": code.target, "kernels": found}, indent=2))
        return
    print(f"{Path(options.file).name}: {code.target}, {len(found)} kernel{'s' * (len(found) != 1)}")
    for one in found:
        block = "x".join(map(str, one["block"])) if one["block"] else f"up to {one['most_threads']}"
        print(f"\n{one['kernel']}")
        print(
            f"  takes  {one['vgprs']} VGPRs, {one['sgprs']} SGPRs, {one['shared_bytes']} bytes of shared memory and "
            f"{one['scratch_bytes']} of scratch a lane; waves of {one['wave']}, blocks of {block}"
        )
        width = max((len(argument["name"]) for argument in one["arguments"]), default=0)
        for number, argument in enumerate(one["arguments"], 1):
            what = "pointer" if argument["pointer"] else f"{argument['size']} bytes"
            print(f"  {number:>4}  {argument['name']:<{width}}  {what}, at {argument['offset']}")


# ------------------------------------------------------------------------------------------------------------ running it


def _run(code: CodeObject, options) -> None:
    if options.kernel is None and len(code.kernels) > 1:
        raise ValueError(f"{options.file} has {len(code.kernels)} kernels; takes --kernel {' or '.join(code.kernels)}")
    symbol = options.kernel or code.kernels[0]
    kernel = ForeignKernel(code, symbol)
    block = options.block or metadata.kernels(code.code)[kernel.symbol].get(".reqd_workgroup_size")
    if block is None:
        raise ValueError("no --block came; takes how many threads a block has, such as --block 256")
    on_gpu = options.target is None and torch.cuda.is_available() and driver.target_of(0) == code.target
    given, by_name = _given(kernel, options, "cuda" if on_gpu else "cpu")
    tensors = {name: x for name, value in by_name.items() for name, x in _tensors(name, value)}
    before = {name: x.clone() for name, x in tensors.items()}
    times = options.time or options.draw is not None
    if times and on_gpu:
        raise ValueError(f"--time is told of what is emulated; takes --target {code.target} with it")
    emulated = functools.partial(emulate, code.target, order=options.order, timing=times)
    with contextlib.nullcontext() if on_gpu else emulated() as emulation:
        kernel[options.grid, tuple(block)](*given, shared=options.shared)
        if on_gpu:
            torch.cuda.synchronize()
    launch = None if on_gpu else emulation.launches[0]
    after = [_summary(name, x, before[name]) for name, x in tensors.items()]
    if options.save:
        folder = Path(options.save)
        folder.mkdir(parents=True, exist_ok=True)
        for name, x in tensors.items():
            np.save(folder / f"{name}.npy", values.saved(x))
    counted = (
        None
        if launch is None
        else {name: getattr(launch, name) for name in ("waves", "instructions", "by_class", "unwritten")}
    )
    timing = launch.timing() if times else None
    if options.draw:
        timeline.draw(launch.trace, timing, symbol, options.draw)
    if options.json:
        found = {"kernel": kernel.symbol, "target": code.target, "emulated": not on_gpu, "executed": counted}
        found |= {"timing": time.of(timing)} if times else {}
        rows = [row | {"first": [x if math.isfinite(x) else str(x) for x in row["first"]]} for row in after]
        print(json.dumps({**found, "tensors": rows}, indent=2))
        return
    executed = "" if launch is None else f", emulated: {launch.waves} waves, {launch.instructions:,} instructions"
    print(f"{symbol} on {code.target}{executed}")
    table = Table("tensor", "type", "shape", "changed", "least", "most", "mean", "NaN", "first")
    for row in after:
        numbers = (f"{row[key]:g}" if row[key] is not None else "" for key in ("least", "most", "mean"))
        first = " ".join(f"{value:g}" for value in row["first"])
        shape = "x".join(map(str, row["shape"]))
        table.add_row(row["name"], row["type"], shape, f"{row['changed']:,}", *numbers, str(row["nan"]), first)
    if after:
        terminal.output().print(table)
    for name, count in (launch.unwritten if launch else {}).items():
        print(f"stored into {name}, and left {count:,} of its elements as they were")
    if times:
        print("\n".join(time.text(symbol, options.grid, timing, in_full=options.assembly)))


def _given(kernel: ForeignKernel, options, device: str) -> tuple[list, dict]:
    """The arguments in the kernel's order, and with their names."""
    generator = torch.Generator().manual_seed(options.seed)
    in_order, by_name = [], {}
    for text in options.arguments:
        name, rest = values.named(text)
        value = values.read(rest, device, generator)
        if name is None:
            in_order.append(value)
        else:
            by_name[name] = value
    given = kernel.in_order(tuple(in_order), by_name)
    return list(given), {one.name: value for one, value in zip(kernel.parameters, given, strict=True)}


def _tensors(name: str, value):
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, tuple):
        for index, member in enumerate(value):
            yield from _tensors(f"{name}.{index}", member)


def _summary(name: str, x: torch.Tensor, before: torch.Tensor) -> dict:
    """What a tensor holds after the launch. Changed are the elements whose bytes did."""
    flat = x.detach().cpu().contiguous().flatten()
    numbers = flat.double()
    usual = numbers[numbers.isfinite()]
    as_bytes = (one.cpu().contiguous().flatten().view(torch.uint8).reshape(len(flat), -1) for one in (x, before))
    return {
        "name": name,
        "type": str(x.dtype).removeprefix("torch."),
        "shape": list(x.shape),
        "changed": int(torch.ne(*as_bytes).any(1).sum()) if len(flat) else 0,
        **{
            key: float(getattr(usual, way)()) if len(usual) else None
            for key, way in (("least", "min"), ("most", "max"), ("mean", "mean"))
        },
        "nan": int(numbers.isnan().sum()),
        "first": numbers[:_SHOWN].tolist(),
    }
