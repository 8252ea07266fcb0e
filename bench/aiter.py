"""AMD's hand-written kernels, from the wheel of AITER that PyPI has, executed by the emulator: whether they come out right.

    pip download --no-deps amd-aiter==0.1.7.post2.dev18 -d build/aiter
    python bench/aiter.py build/aiter/amd_aiter-*.whl

The products and attentions of gfx942 and gfx950 are launched as AITER's own C++ does, and held against float64. Of the wheel
its code objects alone are used. Where barriers are missing, the race is told first; then the kernel runs with them. Fails
where a result is wrong, or where the emulator refuses what lacks no barrier. Two minutes on one core.
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

import wmma_ops
from wmma_ops.emulator import EmulationError
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


def product(kernel, target: str, rows: int, m: int, n: int, k: int, splits: int) -> float:
    """The largest error of A·Bᵀ in float32, of what is usual in sums of k products."""
    a, b = torch.randn(m, k).bfloat16(), torch.randn(n, k).bfloat16()
    d = torch.full((m, n), float("nan")) if splits == 1 else torch.zeros(m, n)
    given = {"D": d, "C": None, "A": a, "B": b, "alpha": 1.0, "beta": 0.0, "splitk": splits}
    given |= {"Mdim": m, "Ndim": n, "Kdim": k, "strideC0": n * 4, "strideA0": k * 2, "strideB0": k * 2}
    grid = n // 64, -(-m // rows), splits
    with wmma_ops.emulate(target):
        kernel[grid, 256](**_filled(kernel, given))
    exact, sums = a.double() @ b.double().T, a.double().abs() @ b.double().abs().T
    return ((d - exact).abs() / (sums * math.sqrt(k) * 2.0**-24)).max().item()


def attention(kernel, target: str, size: tuple[int, ...], rounding: float, causal: bool) -> float:
    """The largest error of softmax(QKᵀ)V, of what rounding the weights and the result to bfloat16 may give."""
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
    with wmma_ops.emulate(target):
        kernel[(-(-tiles // 2) if causal else tiles, heads, batch), block](**_filled(kernel, given))
    scores = torch.einsum("bqhd,bkhd->bhqk", q.double(), k.double().repeat_interleave(heads // groups, 2)) * scale
    if causal:
        scores.masked_fill_(torch.ones(queries, keys).triu(1 + keys - queries).bool(), -torch.inf)
    torch.testing.assert_close(lse.double(), scores.logsumexp(-1), atol=1e-5, rtol=1e-5)
    wide = v.double().repeat_interleave(heads // groups, 2)
    exact, sums = (torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), x) for x in (wide, wide.abs()))
    return ((out - exact).abs() / ((sums + exact.abs()) * rounding)).max().item()


def _filled(kernel, given: dict) -> dict:
    """Numbers in NumPy's types, as the kernels want them; 0 for what AITER's C++ leaves unset."""
    typed = {}
    for one in kernel.parameters:
        value = given.get(one.name, 0)
        typed[one.name] = np.float32(value) if isinstance(value, float) else value
        typed[one.name] = np.uint32(value) if isinstance(value, int) else typed[one.name]
    return typed


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
                    lambda kernel, *given: product(kernel, *given),
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=Path, help="amd_aiter-….whl")
    parser.add_argument("--only", default="", help="files whose name has this in it")
    options = parser.parse_args()
    torch.manual_seed(0)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(options.wheel) as wheel:
            wanted = re.compile(r".*/(bf16gemm|fmha_v3_fwd)/.*\.co")
            wheel.extractall(folder, filter(wanted.fullmatch, wheel.namelist()))
        for target, file, what, call, given in cases(Path(folder) / "aiter_meta/hsa"):
            if options.only not in file.name:
                continue
            kernel = wmma_ops.Kernel.from_code_object(file)
            places = _TOO_EARLY.get((target, file.stem))
            runs = [("", kernel)] + ([(", with barriers", with_barriers(kernel, places))] if places else [])
            for how, one in runs:
                began = time.perf_counter()
                try:
                    error = call(one, *given)
                    told = f"right, {error:.2f} of the bound" if error <= 1 else f"WRONG, {error:.2f} times the bound"
                    failed += not error <= 1
                except EmulationError as found:
                    told = f"{type(found).__name__}: {found}"
                    failed += not places or one is not kernel
                took = f"{time.perf_counter() - began:5.1f} s"
                print(f"{target}  {file.stem:<36}  {what + how:<49}  {took}  {told}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
