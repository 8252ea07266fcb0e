"""AMD's hand-written kernels, from the wheel of AITER that PyPI has, executed by the emulator: whether they come out right.

    pip download --no-deps amd-aiter==0.1.7.post2.dev18 -d build/aiter
    python bench/aiter.py build/aiter/amd_aiter-*.whl

The products and attentions of gfx942 and gfx950 are launched as AITER's own C++ does, and held against float64. Of the wheel
its code objects alone are used. Where barriers are missing, the race is told first; then the kernel runs with them. Fails
where a result is wrong, or where the emulator refuses what lacks no barrier. Two minutes on one core.

--timed: the attentions of 2,048 keys, and the gradients of as many queries, by the clock of docs/pages/timing.md. Of
gradients several waves store the same bytes to shared memory, which is no race for the hardware; for the emulator it
is, so it does not watch that memory there. A minute and a half.
"""

import argparse
import dataclasses
import math
import re
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np
import torch
from unwatched import unwatched

import wmma_ops
from wmma_ops.emulator import EmulationError
from wmma_ops.emulator.timing import Timing
from wmma_ops.runtime.foreign import ForeignKernel

_ROUNDING = 2.0**-7  # of bfloat16, towards zero; half of it to nearest
_ATTENTION = ("", "_rtne", "_rtna", "_rtz")  # how gfx942's round; gfx950 has an instruction that rounds to nearest even
# Loads straight to shared memory from which other waves may still read: their addresses.
_TOO_EARLY = {
    ("gfx950", "fwd_hd128_bf16_causal"): (0x3764,),  # the next tile's queries
    ("gfx950", "fwd_hd192_hd128_bf16"): (0x3DF8, 0x3F88),  # keys
    ("gfx950", "fwd_hd192_hd128_bf16_causal"): (0x3760, 0x3ED8, 0x4068),
}


def with_barriers(kernel: ForeignKernel, places: tuple[int, ...]) -> ForeignKernel:
    """The kernel with a barrier ahead of the instructions at these addresses."""
    text = kernel.assembly
    for place in places:
        text, found = re.subn(rf"(?m)^(?=.*// 0*{place:X}$)", "\ts_waitcnt lgkmcnt(0)\n\ts_barrier\n", text)
        if found != 1:
            raise ValueError(f"{kernel.name}: {found} instructions at 0x{place:x}; takes one")
    return ForeignKernel(dataclasses.replace(kernel.code, assembly=text), kernel.name)


Found = tuple[float, Timing | None]  # the largest error, of what is allowed, and the time


def product(kernel, timed: bool, target: str, rows: int, m: int, n: int, k: int, splits: int) -> Found:
    """A·Bᵀ in float32; allowed is what is usual in sums of k products."""
    a, b = torch.randn(m, k).bfloat16(), torch.randn(n, k).bfloat16()
    d = torch.full((m, n), float("nan")) if splits == 1 else torch.zeros(m, n)
    given = {"D": d, "C": None, "A": a, "B": b, "alpha": 1.0, "beta": 0.0, "splitk": splits}
    given |= {"Mdim": m, "Ndim": n, "Kdim": k, "strideC0": n * 4, "strideA0": k * 2, "strideB0": k * 2}
    grid = n // 64, -(-m // rows), splits
    timing = _launch(kernel, timed, target, grid, 256, given)
    exact, sums = a.double() @ b.double().T, a.double().abs() @ b.double().abs().T
    return ((d - exact).abs() / (sums * math.sqrt(k) * 2.0**-24)).max().item(), timing


def attention(kernel, timed: bool, target: str, size: tuple[int, ...], rounding: float, causal: bool) -> Found:
    """softmax(QKᵀ)V; allowed is what rounding the weights and the result to bfloat16 may give."""
    batch, queries, keys, heads, groups, d, dv, block = size
    shapes = (queries, heads, d), (keys, groups, d), (keys, groups, dv)
    q, k, v = (torch.randn(batch, *shape).bfloat16() for shape in shapes)
    out = torch.full((batch, queries, heads, dv), float("nan")).bfloat16()
    lse = torch.full((batch, heads, queries), float("nan"))
    scale, rows = d**-0.5, 256 if block == 512 else 128
    given = {"R": out, "Q": q, "K": k, "V": v, "LSE": lse, "scalar": scale, "lse": 1, "lse_Hs": lse.stride(1) * 4}
    for prefix, x in (("", q), ("k_", k), ("v_", v), ("r_", out)):
        given |= {f"{prefix}{name}": 2 * x.stride(i) for name, i in (("Seqs", 1), ("Hs", 2), ("Bs", 0))}
    given |= {"Ts": rows * 2 * q.stride(1), "seq_len": queries, "kv_seq_len": keys, "gqa": heads // groups}
    given |= {"qk_head_dim": d, "v_head_dim": dv, "q_head_num": heads}
    given |= {"msk_opt": 3 if causal and heads % 8 else 5}
    given |= dict.fromkeys(("ptr_qseq", "ptr_kseq", "ptr_qseq_padding", "ptr_kseq_padding"))
    tiles = -(-queries // rows)
    timing = _launch(kernel, timed, target, (-(-tiles // 2) if causal else tiles, heads, batch), block, given)
    scores = torch.einsum("bqhd,bkhd->bhqk", q.double(), k.double().repeat_interleave(heads // groups, 2)) * scale
    if causal:
        scores.masked_fill_(torch.ones(queries, keys).triu(1 + keys - queries).bool(), -torch.inf)
    torch.testing.assert_close(lse.double(), scores.logsumexp(-1), atol=1e-5, rtol=1e-5)
    wide = v.double().repeat_interleave(heads // groups, 2)
    exact, sums = (torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), x) for x in (wide, wide.abs()))
    return ((out - exact).abs() / ((sums + exact.abs()) * rounding)).max().item(), timing


def gradients(kernel, timed: bool, target: str, queries: int, keys: int, rounding: float) -> Found:
    """Of one head's Q, K and V, of size 128; allowed is so much of a tensor's largest value."""
    size = 128
    q, k, v, g_out = (torch.randn(1, 1, n, size).bfloat16() for n in (queries, keys, keys, queries))
    scale = size**-0.5
    scores = q.double() @ k.double().mT * scale
    weights, lse = scores.softmax(-1), scores.logsumexp(-1)
    delta = (weights @ v.double() * g_out.double()).sum(-1)
    slopes = weights * (g_out.double() @ v.double().mT - delta[..., None]) * scale
    exact = slopes @ k.double(), slopes.mT @ q.double(), weights.mT @ g_out.double()
    found = torch.zeros(1, 1, queries, size), *(torch.full_like(k, math.nan) for _ in range(2))
    given: dict[str, object] = dict(zip(("dQ", "dK", "dV", "Q", "K", "V", "dO"), (*found, q, k, v, g_out), strict=True))
    given |= {"Lse": lse.float(), "D": delta.float(), "scalar": scale, "log2e": math.log2(math.e), "ratio": 1}
    given |= {
        "Ts": keys * size * 2,
        "Seqs": size * 2,
        "Seqs_kv": size * 2,
        "Seqs_dkv": size * 2,
        "Hs_lsed": queries * 4,
    }
    given |= {"Hs": queries * size * 2, "BAs": queries * size * 2, "Hs_kv": keys * size * 2, "BAs_kv": keys * size * 2}
    for name, x in (("q", q), ("do", g_out), ("k", k), ("v", v), ("dk", k), ("dv", v)):
        given |= {f"{prefix}_{name}": 2 * x[0, 0].numel() for prefix in ("Hs", "BAs")} | {f"Seqs_{name}": size * 2}
    given |= {"seq_len": queries, "seqlen_q": queries, "seqlen_k": keys, "max_seq_len_dq": queries, "nhead_q": 1}
    given |= dict.fromkeys(("head_dim", "head_dim_q", "head_dim_k"), size)
    with unwatched():
        timing = _launch(kernel, timed, target, 1, 256, given)
    return max(
        ((x - y).abs().max() / (y.abs().max() * rounding)).item() for x, y in zip(found, exact, strict=True)
    ), timing


def _launch(kernel, timed: bool, target: str, grid, block: int, given: dict) -> Timing | None:
    with wmma_ops.emulate(target, timing=timed) as emulation:
        kernel[grid, block](**_filled(kernel, given))
    return emulation.launches[0].timing() if timed else None


def _filled(kernel, given: dict) -> dict:
    """Numbers in NumPy's types, as the kernels want them; 0 for what AITER's C++ leaves unset."""
    typed = {}
    for one in kernel.parameters:
        value = given.get(one.name, 0)
        typed[one.name] = np.float32(value) if isinstance(value, float) else value
        typed[one.name] = np.uint32(value) if isinstance(value, int) else typed[one.name]
    return typed


def _times(timing: Timing) -> str:
    loop = max(timing.loops, key=lambda one: one.share * one.iterations)  # not one that goes through whole tiles
    return (
        f"{loop.cycles:.0f} cycles a round, share {loop.share:.3f}; the whole block {timing.cycles}, {timing.share:.3f}"
    )


def cases(folder: Path):
    """(target, file, what, call) of each."""
    for target in ("gfx942", "gfx950"):
        for rows in (32, 48, 64, 96):
            file = folder / target / "bf16gemm" / f"bf16gemm_outf32_tn_{rows}x64_pf3.co"
            for m, n, k, splits in ((rows, 64, 256, 1), (rows + 16, 128, 512, 1), (rows, 64, 512, 2)):
                what = f"{m}x{n}x{k}" + f", {splits} splits" * (splits > 1)
                yield (
                    target,
                    file,
                    what,
                    product,
                    (target, rows, m, n, k, splits),
                )
        room = folder / target / "fmha_v3_fwd" / ("MI300" if target == "gfx942" else "")
        for causal in (False, True):
            for way in _ATTENTION if target == "gfx942" else ("",):
                file = room / f"fwd_hd128_bf16{'_causal' * causal}{way}.co"
                nearest = way in ("_rtne", "_rtna") or target == "gfx950"
                for size in ((1, 256, 256, 2, 1, 128, 128, 512), (2, 512, 512, 1, 1, 128, 128, 512)):
                    what = f"{size[0]}x{size[3]} heads, {size[1]} queries, {size[2]} keys"
                    yield target, file, what, attention, (target, size, _ROUNDING / (2 if nearest else 1), causal)
            if target == "gfx950":
                file = room / f"fwd_hd192_hd128_bf16{'_causal' * causal}.co"
                yield target, file, "256 queries, 256 keys", attention, (
                    target, (1, 256, 256, 2, 1, 192, 128, 256), _ROUNDING / 2, causal,
                )  # fmt: skip


def timed_cases(folder: Path):
    """The same of what is timed."""
    for target in ("gfx942", "gfx950"):
        room = folder / target / "fmha_v3_fwd" / ("MI300" if target == "gfx942" else "")
        for causal in (False, True):
            for way in ("_rtz", "_rtne") if target == "gfx942" else ("",):
                file = room / f"fwd_hd128_bf16{'_causal' * causal}{way}.co"
                size = (1, 512 if causal else 256, 2048, 1, 1, 128, 128, 512)
                rounding = _ROUNDING / (1 if way == "_rtz" else 2)
                yield target, file, "2048 keys", attention, (target, size, rounding, causal)
    room = "fmha_v3_bwd/bwd_hd128_bf16_a32"
    for target, way, keys in (("gfx942", "_rtz", 192), ("gfx942", "_rtne", 192), ("gfx950", "_psskddv", 256)):
        file = folder / target / f"{room}{way}.co"
        rounding = _ROUNDING * (2 if way == "_rtz" else 1)
        yield target, file, f"2048 queries, {keys} keys", gradients, (target, 2048, keys, rounding)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=Path, help="amd_aiter-….whl")
    parser.add_argument("--only", default="", help="files whose name has this in it")
    parser.add_argument("--timed", action="store_true", help="what is timed, and nothing else")
    options = parser.parse_args()
    torch.manual_seed(0)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(options.wheel) as wheel:
            wanted = re.compile(r".*/(bf16gemm|fmha_v3_fwd|fmha_v3_bwd)/.*\.co")
            wheel.extractall(folder, filter(wanted.fullmatch, wheel.namelist()))
        listed = timed_cases if options.timed else cases
        for target, file, what, call, given in listed(Path(folder) / "aiter_meta/hsa"):
            if options.only not in file.name:
                continue
            kernel = wmma_ops.Kernel.from_code_object(file)
            places = _TOO_EARLY.get((target, file.stem))
            runs = [("", kernel)] if not (places and options.timed) else []
            runs += [(", with barriers", with_barriers(kernel, places))] if places else []
            for how, one in runs:
                began = time.perf_counter()
                try:
                    error, timing = call(one, options.timed, *given)
                    told = f"right, {error:.2f} of the bound" if error <= 1 else f"WRONG, {error:.2f} times the bound"
                    told += f"; {_times(timing)}" if timing else ""
                    failed += not error <= 1
                except EmulationError as found:
                    told = f"{type(found).__name__}: {found}"
                    failed += not places or one is not kernel
                took = f"{time.perf_counter() - began:5.1f} s"
                print(f"{target}  {file.stem:<36}  {what + how:<49}  {took}  {told}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
