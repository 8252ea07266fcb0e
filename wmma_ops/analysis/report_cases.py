"""The calls whose kernels `python -m wmma_ops report` measures, and the limits that those kernels keep."""

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import torch

from wmma_ops.hardware import arch
from wmma_ops.ops import activations
from wmma_ops.ops.types import OUTPUTS
from wmma_ops.plan.attention.loops import interleaved_gradients, warpgroup
from wmma_ops.plan.problem import AttentionProblem, GemmGemmProblem, GemmProblem

TARGETS = (*arch.EMULATED, "sm_90a")
_LARGE = (4096, 4096, 4096)


@dataclass(frozen=True)
class Case:
    """A product as its operands' types and layouts make it; A is row-major."""

    kernel: ClassVar[str] = "gemm"
    label: str
    dtype: str
    shape: tuple[int, int, int] = _LARGE  # M, N, K
    weight: bool = False  # B column-major, as linear takes it
    aligned: bool = True
    activation: str = "none"
    bias: bool = False

    @property
    def held(self) -> bool:
        """Whether the hot loop must be free of masks and wide addresses."""
        return self.aligned and self.shape == _LARGE

    def problem(self, target: arch.Target) -> GemmProblem:
        """What the library would ask for a call on contiguous tensors."""
        a = getattr(torch, self.dtype)
        d = OUTPUTS[a][0]
        vec, d_vec = (16 // a.itemsize, 16 // d.itemsize) if self.aligned else (1, 1)
        m, n, k = self.shape
        return GemmProblem(
            device=-1 - list(arch.TARGETS).index(target.name),
            a=a, b=a, c=None, d=d,
            bias=d if self.bias else None,
            row_scale=None, col_scale=None, a_scale=None, multiply=None,
            a_order="k", b_order="k" if self.weight else "n",
            a_vec=vec, b_vec=vec, c_vec=1, d_vec=d_vec, multiply_vec=1,
            wide=False,
            a_activation=0, activation=activations.code("report", "activation", self.activation),
            batch_dims=0, batch=1, m=m, n=n, k=k,
            precision=0,
        )  # fmt: skip


FLOAT16 = "float16 4096³"
_FP8 = ("float8_e4m3fn", "float8_e4m3fnuz")
CASES = (
    *(Case(f"{name} 4096³", name) for name in ("float16", "bfloat16", "int8", *_FP8, "float32", "float64")),
    Case("linear float16", "float16", weight=True),
    Case("linear+bias+gelu float16", "float16", weight=True, activation="gelu", bias=True),
    Case("linear 16x4096x4096 float16", "float16", (16, 4096, 4096), weight=True),
    Case("unaligned 1000x1001x1003 float16", "float16", (1000, 1001, 1003), aligned=False),
)


@dataclass(frozen=True)
class TwoProducts:
    """65536 rows through two square products in one kernel."""

    kernel: ClassVar[str] = "gemm_gemm"
    size: int  # K, H and N

    @property
    def label(self) -> str:
        return f"gemm_gemm bfloat16 {self.size}"

    def problem(self, target: arch.Target) -> GemmGemmProblem:
        """What the library would ask for a call on contiguous tensors."""
        return GemmGemmProblem(
            device=-1 - list(arch.TARGETS).index(target.name),
            a=torch.bfloat16, c=None, d=torch.bfloat16, bias0=None, bias1=None,
            gate=False, a_order="k", b0_order="h", gate_order="h", b1_order="n",
            a_vec=8, b0_vec=8, gate_vec=1, b1_vec=8, c_vec=1, d_vec=8,
            wide=False, activation=activations.code("report", "activation", "relu"),
            batch_dims=0, batch=1, m=65536, n=self.size, k=self.size, h=self.size,
        )  # fmt: skip

    def share(self, target: arch.Target) -> float:
        """The matrix units' least part: at 64, rounding and storing take as long as the products."""
        return 0.0 if self.size < 128 else 0.75 if target.family == "cdna" else 0.6


TWO_PRODUCTS = (TwoProducts(64), TwoProducts(128))


@dataclass(frozen=True)
class AttentionCase:
    """Attention on contiguous tensors of 4 batches, 16 heads and 4096 queries and keys; or through pages, of one sequence of
    8192 keys, whose queries' 32 heads share 8."""

    kernel: ClassVar[str] = "attention"
    label: str
    dtype: str
    e: int
    backward: bool = False
    unordered: bool = False  # sums, on targets that have kernels for it
    scaled: bool = False  # of 8 bits, likewise
    causal: bool = False
    page_size: int = 0
    queries: int = 4096
    narrow: bool = False  # keys and values alone are of 8 bits

    def problem(self, target: arch.Target) -> AttentionProblem:
        """What the library would ask for a call on contiguous tensors."""
        paged = self.page_size > 0
        batch, heads, group, keys = (1, 32, 4, 8192) if paged else (4, 16, 1, 4096)
        stored = torch.float8_e4m3fn if self.scaled or self.narrow else getattr(torch, self.dtype)
        vec, of_keys = 16 if self.scaled else 8, 16 // stored.itemsize
        return AttentionProblem(
            device=-1 - list(arch.TARGETS).index(target.name),
            backward=self.backward,
            dtype=getattr(torch, self.dtype), stored=stored,
            mask=None, sinks=None, slopes=None, capped=False,
            causal=self.causal, windowed=False,
            e=self.e, ev=self.e,
            q_order="e", q_vec=vec, k_order="e", k_vec=of_keys, v_order="e", v_vec=of_keys, out_vec=8,
            g_order="e", g_vec=8 if self.backward else 1,
            wide=False,
            batch=batch, heads=heads, group=group, sq=self.queries, skv=keys, seen=keys,
            sequences=paged, page_size=self.page_size, unordered=self.unordered,
        )  # fmt: skip


ATTENTION = tuple(
    AttentionCase(f"attention {'backward ' if of_gradients else ''}{name} d={e}", name, e, of_gradients)
    for of_gradients in (False, True)
    for e in (64, 128)
    for name in (("bfloat16",) if of_gradients else ("float16", "bfloat16"))
)
UNORDERED = tuple(AttentionCase(f"attention backward unordered d={e}", "bfloat16", e, True, True) for e in (64, 128))
SCALED = tuple(
    AttentionCase(f"attention float8 d={e}{', causal' if causal else ''}", "bfloat16", e, scaled=True, causal=causal)
    for e in (64, 128)
    for causal in (False, True)
)
# By warpgroups, of which one asks for every page.
PAGED = tuple(
    AttentionCase(f"attention d={e} q={n}, pages of {size}", "bfloat16", e, causal=True, page_size=size, queries=n)
    for e, n, size in ((128, 1, 64), (128, 64, 64), (128, 64, 16), (128, 2048, 16), (256, 2048, 16))
)
# By warpgroups, of which one more widens what is in the pages.
NARROW_PAGED = tuple(replace(of, label=f"{of.label} of float8", narrow=True) for of in PAGED if of != PAGED[1])
AnyCase = Case | TwoProducts | AttentionCase
# The least share of the matrix units in the forward kernel's hot loop, the softmax counted.
ATTENTION_SHARE = {"cdna": 0.75, "rdna3": 0.6, "rdna4": 0.6}


# Registers that a clang whose version starts so spills at most, by target and kernel; the pinned one spills none.
SPILLS = {
    "19": {("gfx908", "gemm"): 7, ("gfx908", "attention"): 11, ("gfx90a", "attention"): 22, ("gfx942", "attention"): 6},
    "ROCm": {  # none in a loop
        ("gfx90a", "attention"): 4,
        ("gfx1100", "attention"): 9,
        ("gfx1151", "attention"): 9,
        ("gfx1200", "gemm"): 1,
        ("gfx1201", "gemm"): 1,
    },
}


class Limits(NamedTuple):
    """Of the hot loop."""

    share: float  # at least
    valu: float  # at most, as the next
    lds: float


# Of FLOAT16.
LIMITS = {
    "gfx90a": Limits(1.0, 0.08, 0.25),
    "gfx942": Limits(1.0, 0.12, 0.50),
    "gfx950": Limits(1.0, 0.15, 0.50),
    "gfx1100": Limits(0.95, 0.05, 0.32),
    "gfx1201": Limits(0.94, 0.06, 0.40),
}
# Where another compiler, by what its version starts with, has other ones.
OTHER_LIMITS = {("ROCm", "gfx1201"): Limits(0.91, 0.10, 0.40)}


def cases(target: arch.Target) -> list[AnyCase]:
    """Those that say something about a target: fp8 where it has such a product, NVIDIA's single ones in float16."""
    native = {row.a for row in target.instructions}
    found = (case for case in CASES if case.dtype not in _FP8 or case.dtype in native)
    products = (case for case in found if target.vendor == "amd" or case.dtype == "float16")
    gives = interleaved_gradients.storing_dq(UNORDERED[0].problem(target), target) is not None
    multiplies = warpgroup.supports(SCALED[0].problem(target), target)
    return [
        *products,
        *TWO_PRODUCTS,
        *ATTENTION,
        *(UNORDERED if gives else ()),
        *(SCALED + PAGED + NARROW_PAGED if multiplies else ()),
    ]
