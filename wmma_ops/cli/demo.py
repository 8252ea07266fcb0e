"""`python -m wmma_ops demo`: every op once, held against float64 and against torch's own result in the same type.

And one product as an emulated GPU computes it.
"""

import functools
import json
import statistics
import time

import torch
from rich.table import Table

import wmma_ops
from wmma_ops import jit
from wmma_ops.cli.terminal import output
from wmma_ops.testing import AttentionCase, GemmCase, GemmGemmCase, VarlenAttentionCase, run
from wmma_ops.testing.calls import call
from wmma_ops.testing.operands import operands
from wmma_ops.testing.results import expected, out_type, torch_result

CASES = (
    GemmCase(op="matmul", m=256, n=256, k=256),
    GemmCase(op="matmul", m=256, n=256, k=256, dtype="bfloat16"),
    GemmCase(op="matmul", m=256, n=256, k=256, dtype="float16"),
    GemmCase(op="matmul", m=256, n=256, k=256, dtype="int8"),
    GemmCase(op="addmm", m=256, n=256, k=256, c="full", alpha=0.5, beta=-1.0),
    GemmCase(op="addmm_", m=256, n=256, k=256, c="full", beta=0.5),
    GemmCase(op="baddbmm", m=64, n=64, k=64, batch_a=(8,), batch_b=(8,), c="full"),
    GemmCase(
        op="gemm",
        m=256,
        n=256,
        k=256,
        dtype="bfloat16",
        bias=True,
        row_scale="vector",
        activation="silu",
        multiply="full",
    ),
    GemmCase(op="linear", m=256, n=512, k=256, dtype="bfloat16", bias=True, beside="bfloat16", activation="gelu"),
    GemmGemmCase(m=512, k=128, h=64, n=128, dtype="bfloat16", activation="relu"),
    AttentionCase(batch=2, heads=8, kv_heads=2, sq=128, skv=128, e=64, causal="top_left"),
    VarlenAttentionCase(queries=(96, 1, 31), keys=(96, 64, 96), heads=8, kv_heads=2, e=64, window=(-1, 0)),
    GemmCase(
        op="scaled_mm",
        m=256,
        n=256,
        k=256,
        dtype="float8_e4m3fn",
        row_scale="vector",
        col_scale="vector",
        out_dtype="bfloat16",
    ),
    AttentionCase(
        op="scaled_attention",
        batch=2,
        heads=8,
        kv_heads=2,
        sq=128,
        skv=128,
        e=64,
        dtype="float8_e4m3fn",
        causal="top_left",
        scales="each",
    ),
)


ROUNDS = 7


def shapes(case) -> str:
    """The operands' sizes in a few letters."""
    if isinstance(case, AttentionCase):
        return f"{case.batch}x{case.heads}({case.kv_heads or case.heads}) {case.sq}x{case.skv}x{case.e}"
    if isinstance(case, VarlenAttentionCase):
        return f"{len(case.queries)} of {case.heads}({case.kv_heads}) {sum(case.queries)}x{sum(case.keys)}x{case.e}"
    if isinstance(case, GemmGemmCase):
        return f"{case.m}x{case.k}x{case.h}x{case.n}"
    batch = "".join(f"{size}x" for size in case.batch_a)
    return f"{batch}{case.m}x{case.n}x{case.k}"


def _error(got: torch.Tensor, want: torch.Tensor) -> float:
    return ((got.double() - want).abs().max() / want.abs().max()).item()


def rows() -> list[dict]:
    """One record an op; raises Mismatch where a result is outside its bound."""
    records = []
    for case in CASES:
        run(case)
        t = operands(case)
        want = expected(case, t)[0].x
        own = torch_result(case, t)
        # An in-place op changes its operand, so each call gets its own.
        error = _error(call(case, {k: None if x is None else x.clone() for k, x in t.items()}, {})[0], want)
        times = []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            call(case, t, {})
            times.append(time.perf_counter() - start)
        records.append(
            {
                "op": case.op,
                "backend": "cpu",
                "shape": shapes(case),
                "dtype": f"{case.dtype} → {str(out_type(case)).removeprefix('torch.')}",
                "error": error,
                "torch_error": None if own is None else _error(own, want),
                "microseconds": statistics.median(times) * 1e6,
            }
        )
    return [*records, emulated()]


TARGET = "gfx1201"


def emulated() -> dict:
    """The record of a product whose machine code is executed here; "missing" says why there is none."""
    case = GemmCase(op="matmul", m=64, n=64, k=64, dtype="float16")
    t = operands(case)
    want = expected(case, t)[0].x
    try:
        with wmma_ops.emulate(TARGET):
            wmma_ops.warmup("matmul", t["a"], t["b"])
        with wmma_ops.emulate(TARGET) as emulation:
            start = time.perf_counter()
            got = wmma_ops.matmul(t["a"], t["b"])
            seconds = time.perf_counter() - start
    except jit.CompileError as error:
        return {"op": case.op, "backend": f"emulated:{TARGET}", "missing": str(error).splitlines()[0]}
    run(case, backend=f"emulated:{TARGET}")
    return {
        "op": case.op,
        "backend": f"emulated:{TARGET}",
        "shape": shapes(case),
        "dtype": "float16 → float16",
        "error": _error(got, want),
        "torch_error": _error(torch_result(case, t), want),
        "microseconds": seconds * 1e6,
        "instructions": sum(launch.instructions for launch in emulation.launches),
        "waves": sum(launch.waves for launch in emulation.launches),
    }


def show(options) -> int:
    found = rows()
    if options.json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
        return 0
    console = output()
    table = Table(title=f"wmma_ops on the CPU, torch {torch.__version__}: largest error ÷ largest element")
    table.add_column("op")
    table.add_column("M×N×K (M×K×H×N, Sq×Skv×E)")
    table.add_column("types")
    for heading in ("error", "torch's own", "µs, warm"):
        table.add_column(heading, justify="right")
    *ours, last = found
    for row in ours:
        own = "n/a" if row["torch_error"] is None else f"{row['torch_error']:.1e}"
        table.add_row(row["op"], row["shape"], row["dtype"], f"{row['error']:.1e}", own, f"{row['microseconds']:,.0f}")
    console.print(table)
    say = functools.partial(console.print, highlight=False, markup=False)
    say("Every result is within the bound derived in wmma_ops/testing/reference.py.")
    say(f"Times are medians of {ROUNDS} warm calls: each was made before, and its operands lie in the caches.")
    say()
    if "missing" in last:
        say(f"Not shown, a product on an emulated {TARGET}: {last['missing']}")
        return 0
    say(
        f'with wmma_ops.emulate("{TARGET}"): a {last["shape"]} matmul in float16, the machine code of a Radeon executed '
        f"here: {last['instructions']:,} instructions of {last['waves']} waves in {last['microseconds'] / 1e6:.2f} s; "
        f"error {last['error']:.1e}, torch's own {last['torch_error']:.1e}."
    )
    return 0
