"""What the ops should give, and how far from it a right answer may be.

The reference computes in float64 without any rounding. Beside each value travels a bound on the error of an
implementation that keeps the contract: operands exact, sums in the accumulator's precision u (float32: 2⁻²⁴, float64:
2⁻⁵³), pointwise parts likewise, one rounding to the output type with unit v (float16: 2⁻¹¹, bfloat16: 2⁻⁸, …).

Derivation. In any order of summation, a sum of K products computed with rounding unit u differs from the exact one by at
most γ·Σ|a||b| with γ = n·u/(1 − n·u), n the number of roundings that one product can go through (Higham, Accuracy and
Stability of Numerical Algorithms, §3.1): its own, up to K additions, and one more where alpha was put into a factor
before. What is added to the product (beta·C, bias) may be what the sum started from, and then goes through as many:
it counts with γ·|beta·C|. A second pair of operands is a part of the same sum: n counts the products of both, and the
bounds of both add up. int8 products are exact. From there on:

    prologue P = act(A·scale), rounded to A's type:  e_P = v_A·|P| + (error of act), entering the product as e_P·|B|
    x + y, x·y in the accumulator:                   errors add up (times the other factor), plus u·|result|
    act(x):                                          L·e + 16·u·max(|x|, 1), L its largest slope; relu and leaky exact
    rounding to the output:                          v·(|x| + e) + the output's smallest subnormal
    float32 where torch's precision is high:         2⁻¹⁴ of each product, and 2⁻¹³³ of each operand (`APART`)
    below 2⁻¹²⁶, the smallest normal float32:        may be flushed to zero (processors' bfloat16 products do so)
    rounding to an integer:                          ½ + e, or 0 where everything before was exact

The bound of each element follows from its own operands' magnitudes: |A|·|B| is computed as the result is.
"""

import math
from dataclasses import dataclass

import torch

from wmma_ops.ops import activations
from wmma_ops.ops.types import accumulator

# The largest slope of each activation. (gelu: 1.129, silu: 1.0999, both at |x| near 2.)
SLOPE = {"relu": 1.0, "gelu": 1.13, "gelu_tanh": 1.13, "silu": 1.1, "sigmoid": 0.25, "tanh": 1.0, "leaky_relu": 1.0}
EXACT = ("relu", "leaky_relu")


# torch.finfo has float8_e5m2fnuz's wrong (torch 2.13): by its two bits of mantissa the step after 1 is 1/4.
EPS = {torch.float8_e5m2fnuz: 0.25}


def unit(dtype: torch.dtype) -> float:
    """Half the distance from 1 to the next number."""
    return EPS.get(dtype, torch.finfo(dtype).eps) / 2


@dataclass
class Value:
    """A float64 tensor and a bound on the error of what was computed in its place."""

    x: torch.Tensor
    error: torch.Tensor

    def times(self, other: torch.Tensor, u: float) -> "Value":
        x = self.x * other
        return Value(x, self.error * other.abs() + u * x.abs())

    def by(self, other: "Value", u: float) -> "Value":
        x = self.x * other.x
        return Value(x, self.error * (other.x.abs() + other.error) + self.x.abs() * other.error + u * x.abs())

    def plus(self, other: torch.Tensor, gamma: float) -> "Value":
        """The exact `other` added, off by at most gamma of the parts."""
        x = self.x + other
        return Value(x, self.error + gamma * (x.abs() + other.abs()))

    def activated(self, name: str | None, u: float) -> "Value":
        if name in (None, "none"):
            return self
        activation = activations.by_code(activations.code("reference", "activation", name))
        slope = SLOPE.get(name, 4.0)
        own = u * self.x.abs() if name in EXACT else 16 * u * self.x.abs().clamp(min=1)
        return Value(activation.forward(self.x), slope * self.error + own)

    def rounded(self, dtype: torch.dtype, was_exact: bool = False) -> "Value":
        if dtype.is_floating_point:
            info = torch.finfo(dtype)
            flushed = torch.finfo(accumulator(dtype)).smallest_normal
            error = self.error + unit(dtype) * (self.x.abs() + self.error) + info.smallest_normal * info.eps + flushed
            return Value(self.x, error)
        info = torch.iinfo(dtype)
        x = self.x.nan_to_num(0.0).clamp(info.min, info.max)
        return Value(x.round() if was_exact else x, torch.zeros_like(x) if was_exact else self.error + 0.5)


def exact(x: torch.Tensor) -> Value:
    x = x.double()
    return Value(x, torch.zeros_like(x))


def gamma_of(k: int, u: float) -> float:
    """What a sum of k products may be off by, relative to the sum of their magnitudes."""
    roundings = k + 2
    return roundings * u / (1 - roundings * u)


# What three products of the parts of two float32 are off by (kernels/wmma/tile/float_parts.hpp), relative to their
# product: 1.0023·2⁻¹⁴ at most, tried with the low halves of all numbers; and how little a part can hold.
APART, LEAST_PART = 1.01 * 2.0**-14, 2.0**-133


def product(a: Value, b: torch.Tensor, u: float, integer: bool = False, k: int | None = None) -> Value:
    """a·b summed up with rounding unit u (exactly, for integers), as a part of a sum of k products where that is given."""
    in_parts = b.dtype == torch.float32 and torch.get_float32_matmul_precision() == "high"
    b = b.double()
    magnitude = torch.matmul(a.x.abs(), b.abs())
    gamma = 0.0 if integer else gamma_of(a.x.shape[-1] if k is None else k, u)
    error = gamma * magnitude
    if bool(a.error.any()):
        error = error + torch.matmul(a.error, b.abs()) * (1 + gamma)
    if in_parts:
        least = LEAST_PART * (a.x.abs().sum(-1, keepdim=True) + b.abs().sum(-2, keepdim=True))
        error = error + (1 + gamma) * (APART * magnitude + least)
    return Value(torch.matmul(a.x, b), error)


def rows(x: torch.Tensor) -> torch.Tensor:
    return x.double().unsqueeze(-2) if x.dim() > 1 else x.double()


def columns(x: torch.Tensor) -> torch.Tensor:
    return x.double().unsqueeze(-1) if x.dim() > 0 else x.double()


def gemm(
    t: dict,
    out: torch.dtype,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    a_activation: str | None = None,
    activation: str | None = None,
) -> Value:
    """D of `gemm` for operands a, b and what else `t` names."""
    a, b = t["a"], t["b"]
    u = unit(accumulator(a.dtype))
    integer = a.dtype == torch.int8
    p = exact(a)
    if t.get("a_scale") is not None or a_activation is not None:
        if t.get("a_scale") is not None:
            p = p.times(rows(t["a_scale"]), u)
        p = p.activated(a_activation, u).rounded(a.dtype)
    pair = [x for name in ("a2", "b2") if (x := t.get(name)) is not None]
    batch = torch.broadcast_shapes(*(x.shape[:-2] for x in (a, b, *pair)))
    shape = (*batch, a.shape[-2], b.shape[-1])
    k = a.shape[-1] + sum(x.shape[-1] for x in pair[:1])  # one sum, of both pairs
    if alpha == 0:
        s = exact(torch.zeros(shape))
    else:
        s = product(p, b, u, integer, k)
        if pair:
            a2, b2 = pair
            second = product(exact(a2), b2, u, integer, k)
            s = Value((s.x + second.x).expand(shape), (s.error + second.error).expand(shape))
        s = s.times(torch.tensor(alpha, dtype=torch.float64), 0 if alpha in (1, -1) or integer else u)
        if t.get("row_scale") is not None:
            s = s.times(columns(t["row_scale"]), u)
        if t.get("col_scale") is not None:
            s = s.times(rows(t["col_scale"]), u)
    plain = [t.get(name) is None for name in ("row_scale", "col_scale", "bias", "multiply", "a_scale", "gate")]
    was_exact = integer and all(plain) and activation is None and a_activation is None
    was_exact = was_exact and (t.get("c") is None or not t["c"].dtype.is_floating_point)
    gamma = 0.0 if was_exact else gamma_of(k, u)
    if t.get("c") is not None and beta != 0:
        s = s.plus((beta * t["c"].double()).expand(shape), gamma)
    if t.get("bias") is not None:
        s = s.plus(rows(t["bias"]).expand(shape), gamma)
    s = s.activated(activation, u)
    if t.get("multiply") is not None:
        s = s.times(t["multiply"].double(), u)
    if t.get("gate") is not None:
        factor = product(exact(a), t["gate"], u, integer)
        if t["gate_bias"] is not None:
            factor = factor.plus(rows(t["gate_bias"]).expand(shape), gamma_of(a.shape[-1], u))
        s = s.by(factor, u)
    return s.rounded(out, was_exact)


def gemm_gemm(
    t: dict,
    out: torch.dtype,
    *,
    alpha0: float = 1.0,
    alpha1: float = 1.0,
    beta1: float = 1.0,
    activation: str | None = None,
) -> Value:
    a = t["a"]
    u = unit(accumulator(a.dtype))
    integer = a.dtype == torch.int8
    d0 = product(exact(a), t["b0"], u, integer).times(torch.tensor(alpha0, dtype=torch.float64), u)
    if t.get("bias0") is not None:
        d0 = d0.plus(rows(t["bias0"]).expand_as(d0.x), gamma_of(a.shape[-1], u))
    d0 = d0.activated(activation, u)
    if t.get("gate") is not None:
        d0 = d0.by(product(exact(a), t["gate"], u, integer), u)
    d0 = d0.rounded(a.dtype)
    s = product(d0, t["b1"], u, integer).times(torch.tensor(alpha1, dtype=torch.float64), u)
    gamma = gamma_of(d0.x.shape[-1], u)
    if t.get("c") is not None and beta1 != 0:
        s = s.plus((beta1 * t["c"].double()).expand_as(s.x), gamma)
    if t.get("bias1") is not None:
        s = s.plus(rows(t["bias1"]).expand_as(s.x), gamma)
    return s.rounded(out)


def dropped_by(seed: int, p: float, shape: tuple[int, ...], first_batch: int = 0) -> tuple[torch.Tensor, float]:
    """Which weights of ``[..., heads, queries, keys]`` dropout keeps, and what it multiplies them by: a row's two words are
    Philox4x32-10's of its indices, a key's number theirs mixed by lowbias32's rounds."""
    import numpy as np  # which has words without a sign

    *batch, heads, queries, keys = shape
    words, word = math.prod(batch) * heads * queries, np.uint64(0xFFFFFFFF)
    head_of_all, query = np.divmod(np.arange(words, dtype=np.uint64), np.uint64(queries))
    batch_of, head = np.divmod(head_of_all, np.uint64(heads))
    x = [query, head, batch_of + np.uint64(first_batch), np.zeros_like(query)]
    with np.errstate(over="ignore"):
        for step in range(10):
            low, high = (seed + step * 0x9E3779B9) % 2**32, ((seed >> 32) + step * 0xBB67AE85) % 2**32
            first, second = x[0] * np.uint64(0xD2511F53), x[2] * np.uint64(0xCD9E8D57)
            x = [
                (second >> np.uint64(32)) ^ x[1] ^ np.uint64(low),
                second & word,
                (first >> np.uint64(32)) ^ x[3] ^ np.uint64(high),
                first & word,
            ]
        one, two = (x[i].astype(np.uint32)[:, None] for i in range(2))
        number = np.arange(keys, dtype=np.uint32) ^ one
        number = (number ^ (number >> np.uint32(16))) * np.uint32(0x7FEB352D)
        number = (number ^ (number >> np.uint32(15)) ^ two) * np.uint32(0x846CA68B)
    below = min(max(round((1 - p) * 2**32), 1), 2**32 - 1)
    return torch.from_numpy(number < np.uint32(below)).reshape(shape), 2**32 / below


def attention(
    t: dict,
    *,
    causal: str | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    window: tuple[int, int] = (-1, -1),
    dropout: float = 0.0,
    first_batch: int = 0,
    out_dtype: torch.dtype | None = None,
    weights_dtype: torch.dtype | None = None,
) -> tuple[Value, Value]:
    """out and lse. Weights are at most 1 and add up to 1, so the errors of scores enter as follows.

    A score off by δ changes its weight by the factor e^δ; with δ the largest error of a row, weights are off by at most
    the factor e^{2δ} − 1, and out by that times Σ w|v|. Weights may be rounded to the operands' type for the second
    product, and are summed up like any product. A soft cap on the scores has slopes up to 1. `sinks` is an exact score of
    each row of a head whose value is 0. `later_sinks`, one of each row, may multiply the rounded out by
    e^lse / (e^lse + e^sink), off by the error of lse.

    With `out_dtype` results are of this type, and operands, which are exact, may have been rounded to it before; with
    `weights_dtype` a row's weights, of which the largest is 2⁸ at least, to that one.
    """
    q, k, v, mask = (
        t[name].double() if t.get(name) is not None and t[name].dtype != torch.bool else t.get(name)
        for name in ("q", "k", "v", "mask")
    )
    dtype = t["q"].dtype if out_dtype is None else out_dtype
    u = unit(accumulator(dtype))
    group = q.shape[-3] // max(k.shape[-3], 1)
    k, v = k.repeat_interleave(group, -3), v.repeat_interleave(group, -3)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    s = product(exact(q), k.mT, u).times(torch.tensor(scale, dtype=torch.float64), u)
    if out_dtype is not None:
        s = Value(
            s.x, s.error + 2.01 * unit(out_dtype) * abs(scale) * torch.matmul(q.abs(), k.abs().mT).nan_to_num(0.0)
        )
    if softcap is not None:
        cap = torch.tensor(softcap, dtype=torch.float64)
        s = s.times(1 / cap, 2 * u)
        # Of 16 bits up to a cap of 1024 tanh is right to so much of 1, elsewhere to so much of itself.
        quick = u * 16 if dtype.itemsize == 2 and softcap <= 1024 else 0.0
        s = Value(torch.tanh(s.x), s.error + torch.clamp(u * 16 * torch.tanh(s.x).abs(), min=quick)).times(cap, u)
    sq, skv = s.x.shape[-2:]
    diagonal = 0 if causal == "top_left" else skv - sq
    steps = torch.arange(sq).unsqueeze(-1) + diagonal - torch.arange(skv)  # from a key to where a query stands
    if t.get("alibi_slopes") is not None:
        s = s.plus((-t["alibi_slopes"].double()[..., None, None] * steps.abs()).expand_as(s.x), 2 * u)
    if mask is not None:
        added = (
            torch.zeros(mask.shape, dtype=torch.float64).masked_fill(~mask, -torch.inf)
            if mask.dtype == torch.bool
            else mask
        )
        added = added.expand_as(s.x)
        sums = s.plus(added, 2 * u)
        # Beside a number so large that it takes a score up, whatever that is, the sum is the number itself.
        taken = added.isfinite() & (s.x.abs() + s.error < u / 2 * added.abs())
        s = Value(torch.where(taken, added, sums.x), torch.where(taken, 0.0, sums.error))
    left, right = window if causal is None else (window[0], 0)
    hidden = torch.zeros_like(steps, dtype=torch.bool)
    if left >= 0:
        hidden |= steps > left
    if right >= 0:
        hidden |= -steps > right
    s = Value(s.x.masked_fill(hidden, -torch.inf), s.error)
    if t.get("sinks") is not None:
        sinks = t["sinks"].double()[..., None, None].expand(*s.x.shape[:-1], 1)
        s = Value(torch.cat([s.x, sinks], -1), torch.cat([s.error, torch.zeros_like(sinks)], -1))
        v = torch.cat([v, torch.zeros_like(v[..., :1, :])], -2) if skv else v.new_zeros(*v.shape[:-2], 1, v.shape[-1])
    if s.x.shape[-1] == 0:
        out = exact(torch.zeros(*q.shape[:-1], v.shape[-1]))
        return out, exact(torch.full(q.shape[:-1], -torch.inf))
    delta = torch.where(s.x.isfinite(), s.error, 0.0).amax(-1)
    largest = s.x.amax(-1, keepdim=True)
    blind = largest == -torch.inf
    weights = torch.exp(s.x - torch.where(blind, 0.0, largest))
    total = torch.where(blind, 1.0, weights.sum(-1, keepdim=True))
    lse = torch.where(blind, -torch.inf, largest + total.log())
    lse = torch.where(largest == torch.inf, torch.inf, lse).squeeze(-1)  # as torch.logsumexp has it
    weights = weights / total
    if dropout:
        kept, factor = dropped_by(int(t["dropout_seed"]), dropout, (*q.shape[:-1], skv), first_batch)
        weights[..., :skv] = torch.where(kept, weights[..., :skv] * factor, 0.0)
        # Relative to a larger weight that is dropped, those that are kept may have no digits left in the operands' type.
        least = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps / 2
        lost = torch.where(kept & (weights[..., :skv] > 0), least * factor / total, 0.0)
    out = torch.matmul(weights, v)
    n = s.x.shape[-1]
    # exp, sum and division: n + 16 roundings; the weights' own rounding, and that of values where they were rounded
    rounding = unit(dtype) if weights_dtype is None else unit(weights_dtype)
    rounding = rounding if out_dtype is None else rounding + unit(out_dtype)
    spread = torch.expm1(2 * delta).unsqueeze(-1) + (2 * n + 16) * u + rounding
    finite_v = torch.where(v.isfinite(), v.abs(), 0.0)
    error = spread * torch.matmul(torch.where(weights.isfinite(), weights, 0.0), finite_v)
    if weights_dtype is not None:  # the least step of weights, whose largest is 1 / total
        least = torch.finfo(weights_dtype).smallest_normal * torch.finfo(weights_dtype).eps / 2 / 2**8
        error = error + least / total * finite_v.sum(-2, keepdim=True)
    if dropout:
        error = error + torch.matmul(lost, finite_v[..., :skv, :])
    lse_error = delta + (n + 16) * u + u * 4 * torch.where(lse.isfinite(), lse.abs(), 0.0)
    if t.get("later_sinks") is not None:
        sinks = t["later_sinks"].double()
        kept = torch.sigmoid(lse - sinks).unsqueeze(-1)
        out = out * kept
        moved = lse_error + 8 * u * (1 + sinks.abs() + torch.where(lse.isfinite(), lse.abs(), 0.0))
        error = error * kept + (torch.expm1(moved).unsqueeze(-1) + unit(dtype)) * out.abs()
    return Value(out, error).rounded(dtype), Value(lse, lse_error + 4 * u)
