"""One small call of every op and of its options: what opcheck, the gradient checks, vmap and the compilers are run on."""

import math
from dataclasses import dataclass, field

import torch

from wmma_ops.ops.library import overload, tensor_names


@dataclass(frozen=True)
class Sample:
    """`shapes` by argument name, in the schema's order; `scalars` as the raw op takes them (codes for activations)."""

    op: str
    shapes: dict[str, tuple[int, ...]]
    scalars: dict = field(default_factory=dict)
    note: str = ""

    def __str__(self):
        parts = [
            self.op,
            *(f"{k}{list(v)}" for k, v in self.shapes.items()),
            *(f"{k}={v}" for k, v in self.scalars.items()),
        ]
        return " ".join(parts) + (f" ({self.note})" if self.note else "")

    @property
    def differentiable(self) -> bool:
        return not self.op.startswith("scaled_") and "block_table" not in self.shapes

    def tensors(self, dtype=torch.float32, requires_grad=False, seed=0) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        made = {}
        for name, shape in self.shapes.items():
            if name.startswith("cu_seq"):
                tokens = self.shapes["query" if name == "cu_seq_q" else "key"][0]
                made[name] = torch.linspace(0, tokens**0.5, *shape).square().round().to(torch.int32)
                continue
            if name == "seqused_k":
                sequences = made["cu_seq_q"].shape[0] - 1
                given = made["cu_seq_k"].diff() - 1 if "cu_seq_k" in made else torch.linspace(3, 20, sequences).int()
                made[name] = given.clamp(min=0)
                continue
            if name == "block_table":
                rows = (made["cu_seq_q"].shape[0] - 1, shape[1])
                made[name] = torch.randint(self.shapes["key"][0], rows, generator=generator, dtype=torch.int32)
                continue
            if name == "block_mask":
                made[name] = (torch.arange(1, 1 + math.prod(shape), dtype=torch.int8) % 3).view(shape)
                continue
            if name == "dropout_seed":
                made[name] = torch.full(shape, 2**40 + 7)
                continue
            if self.op == "scaled_mm" and name in ("a", "b"):
                made[name] = torch.randint(-9, 9, shape, generator=generator, dtype=torch.int8)
                continue
            kind = torch.float32 if self.op.startswith("scaled_") else dtype
            if self.op == "scaled_attention" and name in "qkv":
                kind = torch.float8_e4m3fn
            made[name] = torch.randn(shape, generator=generator, dtype=torch.float64).to(kind)
            if requires_grad:
                made[name].requires_grad_()
        if self.note == "bool mask":
            made["mask"] = made["mask"].detach() > -0.5
        if self.note == "transposed":
            made = {k: v.detach().mT.contiguous().mT.requires_grad_(requires_grad) for k, v in made.items()}
        return made

    def arguments(self, tensors: dict) -> tuple:
        """The tensors as positional arguments of the op."""
        names = tensor_names(overload(self.op))
        values = [tensors.get(name) for name in names]
        while values and values[-1] is None:
            values.pop()
        return tuple(values)


SAMPLES = (
    Sample("matmul", {"a": (3, 4), "b": (4, 5)}),
    Sample("matmul", {"a": (3, 4), "b": (4, 5)}, note="transposed"),
    Sample("matmul", {"a": (4,), "b": (4,)}),
    Sample("matmul", {"a": (4,), "b": (2, 4, 3)}),
    Sample("matmul", {"a": (2, 3, 4), "b": (4,)}),
    Sample("matmul", {"a": (2, 3, 4), "b": (4, 5)}),
    Sample("matmul", {"a": (3, 4), "b": (2, 4, 5)}),
    Sample("matmul", {"a": (2, 1, 3, 4), "b": (2, 4, 2)}),
    Sample("addmm", {"input": (3, 5), "a": (3, 4), "b": (4, 5)}, {"alpha": 0.5, "beta": -2.0}),
    Sample("addmm", {"input": (5,), "a": (3, 4), "b": (4, 5)}),
    Sample("addmm", {"input": (3, 1), "a": (3, 4), "b": (4, 5)}, {"beta": 0.0}),
    Sample("addmm_", {"input": (3, 5), "a": (3, 4), "b": (4, 5)}, {"alpha": 0.5, "beta": -2.0}),
    Sample("baddbmm", {"input": (2, 3, 1), "a": (2, 3, 4), "b": (2, 4, 5)}, {"alpha": 0.5, "beta": 2.0}),
    Sample("gemm", {"a": (3, 4), "b": (4, 5)}),
    Sample("gemm", {"a": (3, 4), "b": (4, 5), "bias": (5,)}, {"activation": 1}),
    Sample("gemm", {"a": (3, 4), "b": (4, 5), "c": (3, 5)}, {"alpha": 0.5, "beta": 2.0, "activation": 2}),
    Sample("gemm", {"a": (3, 4), "b": (4, 5), "row_scale": (3,), "col_scale": (5,)}, {"alpha": -1.0}),
    Sample("gemm", {"a": (3, 4), "b": (4, 5), "row_scale": (), "col_scale": (1,)}, {"activation": 5}),
    Sample("gemm", {"a": (3, 4), "b": (4, 5), "a_scale": (4,), "multiply": (3, 5)}, {"a_activation": 6}),
    Sample(
        "gemm",
        {
            "a": (2, 3, 4),
            "b": (4, 5),
            "c": (3, 5),
            "bias": (5,),
            "row_scale": (2, 3),
            "col_scale": (5,),
            "a_scale": (4,),
            "multiply": (2, 1, 5),
        },
        {"alpha": 0.7, "beta": 1.3, "a_activation": 4, "activation": 3},
    ),
    Sample("gemm", {"a": (3, 4), "b": (4, 5), "multiply": (3, 5)}, {"activation": 1}),
    Sample("gemm", {"a": (2, 3, 4), "b": (2, 4, 5), "bias": (2, 5)}, {"activation": 7}),
    Sample("gemm", {"a": (3, 4), "b": (4, 5), "a2": (3, 2), "b2": (2, 5)}),
    Sample(
        "gemm",
        {
            "a": (3, 4),
            "b": (4, 5),
            "bias": (5,),
            "row_scale": (3,),
            "a_scale": (4,),
            "multiply": (3, 5),
            "a2": (2, 3, 2),
            "b2": (2, 5),
        },
        {"alpha": 0.7, "a_activation": 4, "activation": 3},
    ),
    Sample("linear", {"x": (2, 3, 4), "weight": (5, 4), "bias": (5,)}, {"activation": 2}),
    Sample("linear", {"x": (3, 4), "weight": (5, 4)}),
    Sample("linear", {"x": (4,), "weight": (5, 4), "bias": (5,), "residual": (5,)}, {"activation": 1}),
    Sample("linear", {"x": (2, 3, 4), "weight": (5, 4), "bias": (5,), "residual": (2, 3, 5)}, {"activation": 4}),
    Sample("gemm_gemm", {"a": (3, 4), "b0": (4, 6), "b1": (6, 5)}, {"activation": 4}),
    Sample("gemm_gemm", {"a": (2, 3, 4), "b0": (4, 6), "b1": (6, 5)}, {"activation": 1}),
    Sample(
        "gemm_gemm",
        {"a": (3, 4), "b0": (4, 6), "b1": (6, 5), "c": (5,), "bias0": (6,), "bias1": (5,), "gate": (4, 6)},
        {"alpha0": 0.5, "alpha1": 2.0, "beta1": -1.0, "activation": 2},
    ),
    Sample("attention", {"q": (1, 2, 3, 4), "k": (1, 2, 5, 4), "v": (1, 2, 5, 3)}),
    Sample("attention", {"q": (2, 3, 4), "k": (2, 3, 4), "v": (2, 3, 4)}, {"is_causal": 1, "scale": 0.3}),
    Sample(
        "attention", {"q": (1, 4, 3, 4), "k": (1, 2, 5, 4), "v": (1, 2, 5, 3)}, {"is_causal": 2, "enable_gqa": True}
    ),
    Sample("attention", {"q": (1, 2, 3, 4), "k": (1, 2, 5, 4), "v": (1, 2, 5, 3), "mask": (3, 5)}),
    Sample(
        "attention", {"q": (2, 2, 3, 4), "k": (2, 2, 5, 4), "v": (2, 2, 5, 3), "mask": (2, 1, 3, 5)}, note="bool mask"
    ),
    Sample("attention", {"q": (3, 4), "k": (5, 4), "v": (5, 2)}),
    Sample(
        "attention",
        {"q": (2, 2, 3, 4), "k": (2, 2, 5, 4), "v": (2, 2, 5, 3), "sinks": (2,), "alibi_slopes": (2, 2)},
        {"window_left": 2, "window_right": 1, "softcap": 1.5},
    ),
    Sample("attention", {"q": (2, 3, 4), "k": (2, 5, 4), "v": (2, 5, 3), "mask": (3, 5), "sinks": (2,)}),
    Sample(
        "attention",
        {"q": (2, 3, 4), "k": (1, 5, 4), "v": (1, 5, 3), "dropout_seed": (1,)},
        {"dropout_p": 0.4, "enable_gqa": True, "is_causal": 2},
    ),
    Sample(
        "attention",
        {"q": (2, 64, 2), "k": (2, 64, 2), "v": (2, 64, 3), "block_mask": (2, 2, 2)},
        {"block_q": 32, "block_k": 32},
    ),
    Sample(
        "varlen_attention",
        {"query": (4, 2, 2), "key": (5, 2, 2), "value": (5, 2, 3), "cu_seq_q": (3,), "cu_seq_k": (3,)},
        {"max_q": 20, "max_k": 20, "window_right": 0},
    ),
    Sample(
        "varlen_attention",
        {
            "query": (4, 2, 2),
            "key": (6, 1, 2),
            "value": (6, 1, 2),
            "cu_seq_q": (3,),
            "cu_seq_k": (3,),
            "sinks": (2,),
            "alibi_slopes": (2,),
            "seqused_k": (2,),
        },
        {"max_q": 20, "max_k": 20, "enable_gqa": True, "window_left": 2, "softcap": 1.5, "scale": 0.7},
    ),
    Sample(
        "varlen_attention",
        {
            "query": (4, 4, 2),
            "key": (3, 16, 2, 2),
            "value": (3, 16, 2, 3),
            "cu_seq_q": (3,),
            "seqused_k": (2,),
            "block_table": (2, 2),
        },
        {"max_q": 20, "enable_gqa": True, "window_right": 0},
    ),
    Sample(
        "varlen_attention",
        {
            "query": (20, 2, 2),
            "key": (60, 2, 2),
            "value": (60, 2, 3),
            "cu_seq_q": (3,),
            "cu_seq_k": (3,),
            "block_mask": (2, 2, 2),
        },
        {"max_q": 64, "max_k": 64, "block_q": 32, "block_k": 32},
    ),
    Sample("scaled_attention", {"q": (2, 3, 4), "k": (2, 5, 4), "v": (2, 5, 3)}),
    Sample(
        "scaled_attention",
        {"q": (2, 4, 3, 4), "k": (2, 2, 5, 4), "v": (2, 2, 5, 3), "scale_q": (2, 4), "scale_k": (2,), "scale_v": ()},
        {"enable_gqa": True, "is_causal": 2, "out_dtype": torch.float16},
    ),
    Sample("scaled_mm", {"a": (3, 4), "b": (4, 5), "scale_a": (), "scale_b": (1, 5)}),
    Sample("scaled_mm", {"a": (3, 4), "b": (4, 5), "scale_a": (3, 1), "scale_b": (5,), "bias": (5,)}),
    Sample("scaled_mm", {"a": (3, 3, 4), "b": (4, 5), "scale_a": (3, 1), "scale_b": (1, 5)}),
    Sample("scaled_mm", {"a": (2, 1, 4), "b": (2, 4, 5), "scale_a": (2, 1), "scale_b": (2, 1, 5)}),
)
