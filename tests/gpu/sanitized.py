"""compute-sanitizer's tools over our kernels on an NVIDIA GPU: python tests/gpu/sanitized.py [tool ...]

memcheck, synccheck and racecheck watch the tests of this folder that force kernels of every kind. initcheck
watches our kernels alone, in a program of its own whose operands only copies have written: it does not see what the copy
engine writes, and would report torch's reading of our results. On an H200 racecheck takes a quarter of an hour, the others
one to three minutes.
"""

import argparse
import functools
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import torch

import wmma_ops
from wmma_ops.hardware import arch
from wmma_ops.plan.gemm import planner as gemm
from wmma_ops.plan.gemm_gemm import planner as gemm_gemm
from wmma_ops.runtime import driver, launching, tuned

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "support"))  # as pytest has it
from configurations import KINDS, WITHOUT_WARPGROUPS  # noqa: E402

# Of 24 seeds three, and attention in every configuration.
FORCED = (
    "(any_configuration and torch.bfloat16 and (not two_products or 3-torch)) or test_scaled_attention and values"
    " or test_attention_warpgroups and (values or narrow_pages)"
    " or (bool_masks or number_masks or windowed or owner_gradients) and gradients and bfloat16"
)
WARPGROUPS = {
    "warpgroups": lambda x: (
        x.loop == "warpgroup" and x.order.neighbours == x.order.parts == 1 and not x.order.persistent
    ),
    "sharing": lambda x: x.order.share * x.order.share_a > 1,
}


def command(tool: str) -> list[str]:
    if tool == "initcheck":
        only_ours = ["--kernel-name", "kernel_substring=gemm", "--show-backtrace", "no"]
        return [*only_ours, sys.executable, __file__, "--products"]
    names = (
        "test_cuda.py",
        "test_attention_warpgroups.py",
        "test_scaled_attention_on_gpu.py",
        "test_bool_masks_on_gpu.py",
        "test_number_masks_on_gpu.py",
        "test_windowed_gradients_on_gpu.py",
        "test_owner_gradients_on_gpu.py",
    )
    files = [str(HERE / name) for name in names]
    return [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *files, "-k", FORCED]


def watch(tool: str) -> bool:
    start, said = time.monotonic(), 0
    # How many arguments a kernel has the driver says by an error behind the last one.
    quiet = ["--report-api-errors", "no"] if tool == "memcheck" else []
    with subprocess.Popen(
        ["compute-sanitizer", "--tool", tool, *quiet, "--error-exitcode", "1", *command(tool)],
        env=os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as ran:
        for line in ran.stdout:
            print(line, end="", flush=True)
            said += "SUMMARY" in line or " passed" in line or "products:" in line
    clean = ran.returncode == 0 and said > 1  # what ran, and what was found
    print(f"{tool}: {'clean' if clean else 'FAILED'}, {time.monotonic() - start:.0f} s", flush=True)
    return clean


def _copied(*shape, dtype=torch.bfloat16):
    return torch.randn(shape).mul(2).to(dtype).cuda()


def _calls():
    for m, n, k in ((13, 264, 528), (200, 264, 528), (2000, 1312, 1056)):
        for dtype in (torch.bfloat16, torch.int8, torch.float8_e4m3fn):
            a, b, a2, b2 = (_copied(*shape, dtype=dtype) for shape in ((m, k), (n, k), (m, 48), (n, 48)))
            c, bias = _copied(m, n), _copied(n)
            yield functools.partial(wmma_ops.matmul, a, b.mT, out_dtype=torch.bfloat16)
            beside = functools.partial(wmma_ops.gemm, a, b.mT, bias=bias, activation="silu", out_dtype=torch.bfloat16)
            yield functools.partial(beside, c=c, beta=0.5)
            yield functools.partial(beside, a2=a2, b2=b2.mT)
            if dtype.itemsize == 2:
                yield functools.partial(wmma_ops.matmul, a, _copied(k, n))


def products() -> None:
    target, draw = arch.target(driver.target_of(0)), random.Random(0)
    kinds = WITHOUT_WARPGROUPS | WARPGROUPS | KINDS
    done = dict.fromkeys((*kinds, "two products"), 0)
    for call in _calls():
        (problem,) = launching.problems(call, target)
        ranked = gemm.ranked(problem, target)
        for kind, chosen in kinds.items():
            if found := [x for x in ranked if chosen(x)]:
                with tuned.forced(problem, draw.choice(found)):
                    call()
                done[kind] += 1
    x, w = _copied(300, 128), _copied(128, 128)
    problem, *_ = launching.problems(lambda: wmma_ops.gemm_gemm(x, w, w, activation="relu"), target)
    two = list(gemm_gemm.candidates(problem, target))
    for config in draw.sample(two, min(6, len(two))):
        gemm_gemm.choose = lambda *_, config=config: (config, 0.0)
        torch.ops.wmma._forget_plans()
        wmma_ops.gemm_gemm(x, w, w, activation="relu")
        done["two products"] += 1
    torch.cuda.synchronize()
    print("products:", ", ".join(f"{count} {kind}" for kind, count in done.items()))


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    tools = ("memcheck", "synccheck", "racecheck", "initcheck")
    asked.add_argument("tools", nargs="*", metavar="tool", help=", ".join(tools))
    asked.add_argument("--products", action="store_true", help="what initcheck watches, by itself")
    options = asked.parse_args()
    if unknown := set(options.tools) - set(tools):
        asked.error(f"no tool {', '.join(sorted(unknown))}; there are {', '.join(tools)}")
    if not torch.cuda.is_available() or not shutil.which("compute-sanitizer"):
        print("sanitized: needs an NVIDIA GPU and compute-sanitizer, of the CUDA toolkit, on PATH", file=sys.stderr)
        return 1
    if options.products:
        products()
        return 0
    failed = [tool for tool in options.tools or tools if not watch(tool)]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
