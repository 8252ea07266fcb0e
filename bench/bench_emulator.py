"""What compiling, decoding and executing a GEMM costs, without a GPU. python bench/bench_emulator.py [--json]

Limits: 150,000 wave-instructions a second on one core, a kernel of 5,000 lines decoded in 1 s, 200 MB, clang 1 s, a cache
hit 2 ms. Exits with 1 where one does not hold.
"""

import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ["WMMA_OPS_CACHE_DIR"] = tempfile.mkdtemp()  # cold

import torch
from timing import commit

import wmma_ops
from wmma_ops import jit
from wmma_ops.emulator import assembly, program
from wmma_ops.hardware import arch

SOURCE = (Path(__file__).parents[1] / "tests/support/examples/gemm.hip").read_text()


def _seconds(function) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def measure(target: str) -> dict:
    compiled = _seconds(lambda: jit.compile(SOURCE, target, name="gemm.hip"))
    again = []
    for _ in range(11):
        again.append(_seconds(lambda: jit.compile(SOURCE, target, name="gemm.hip")))
    text = jit.compile(SOURCE, target, name="gemm.hip").assembly
    # The same body over and over, to a length of 5,000 instructions.
    parsed = assembly.parse(text).kernels["gemm"]
    body = [ins for ins in parsed.instructions if not ins.mnemonic.startswith(("s_endpgm", "s_cbranch", "s_branch"))]
    parsed.instructions = (body * (5000 // len(body) + 1))[:5000]
    parsed.labels = {}
    decoded = _seconds(lambda: [part.make() for part in program.build(parsed, target).blocks])

    kernel = wmma_ops.Kernel(SOURCE, "gemm")
    m = n = k = 128
    wave = arch.target(target).wave
    a, b, c, d = torch.randn(m, k).half(), torch.randn(n, k).half(), torch.randn(m, n), torch.empty(m, n)
    rates = []
    with wmma_ops.emulate(target) as emulation:
        for _ in range(6):
            taken = _seconds(
                lambda: kernel[(m // 64, n // 16), (4 * wave, 1)](m, n, k, a, b, c, d, k, k, n, n, 1.0, 0.0)
            )
            rates.append(emulation.launches[-1].instructions / taken)
    error = (d.double() - a.double() @ b.double().T).abs().max().item()
    assert error < 1e-3, error
    return {
        "target": target,
        "compile_s": compiled,
        "hit_ms": statistics.median(again) * 1e3,
        "decode_s": decoded,
        "rate": statistics.median(rates[1:]),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args().json
    torch.set_num_threads(1)
    jit.compile('extern "C" __attribute__((global)) void first() {}', "gfx942")  # the compiler's first start
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rows = [measure(target) for target in arch.EMULATED]
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    for row in rows:
        row["holds"] = (
            row["compile_s"] < 1
            and row["hit_ms"] < 2
            and row["decode_s"] < 1
            and row["rate"] >= 150_000
            and grown < 200
        )
    if as_json:
        print(json.dumps({"rows": rows, "megabytes": grown}, indent=2))
    else:
        print(f"one thread, torch {torch.__version__}, commit {commit()}")
        print(f"{'target':<10}{'compile s':>11}{'hit ms':>9}{'decode 5,000 s':>16}{'wave-instructions/s':>22}")
        for r in rows:
            mark = "" if r["holds"] else "  missed"
            print(
                f"{r['target']:<10}{r['compile_s']:>11.2f}{r['hit_ms']:>9.2f}{r['decode_s']:>16.2f}{r['rate']:>22,.0f}{mark}"
            )
        print(f"memory: {grown:.0f} MB more than at the start (limit 200)")
    return 0 if all(row["holds"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
