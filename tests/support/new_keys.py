"""Cases of kv_append, and what they come to in float64: shared by the backends in tests/contract/ and a GPU's tests."""

from dataclasses import dataclass

import torch

import wmma_ops
from wmma_ops.ops.types import accumulator
from wmma_ops.testing.memory import place
from wmma_ops.testing.reference import unit


@dataclass(frozen=True)
class Case:
    dtype: torch.dtype = torch.float32
    e: int = 24
    ev: int = 16
    heads: int = 2
    page_size: int = 16
    angles: int = 0
    angle: torch.dtype = torch.float32
    interleaved: bool = False
    layout: str = "row"  # a matrix's, or of pages: "heads first", or keys and values as "halves" of one tensor
    number: torch.dtype = torch.int32
    beyond: int = 0  # tokens of no sequence
    lengths: tuple[int, ...] = (6, 0, 3)  # new keys,
    used: tuple[int, ...] = (35, 9, 17)  # and all
    pages: int = 7
    table: tuple[tuple[int, ...], ...] = ((3, 1, 2), (4, -1, 2**30), (5, 0, -1))

    def operands(self) -> dict:
        generator = torch.Generator().manual_seed(0)

        def values(*shape, dtype=self.dtype):
            return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

        tokens = sum(self.lengths) + self.beyond
        t = {"key": values(tokens, self.heads, self.e), "value": values(tokens, self.heads, self.ev)}
        t |= {f"{name}_pages": values(self.pages, self.page_size, *x.shape[1:]) for name, x in t.items()}
        t |= self._placed(t)
        t["block_table"] = torch.tensor(self.table, dtype=torch.int32)
        t["cu_seq"] = torch.tensor([0, *self.lengths]).cumsum(0).to(self.number)
        t["seqused_k"] = torch.tensor(self.used, dtype=self.number)
        if self.angles:
            places = max(40, *self.used)
            t |= {name: values(places, self.angles, dtype=self.angle) for name in ("cos", "sin")}
        return t

    def _placed(self, t: dict) -> dict:
        if self.layout == "heads first":
            return {name: x.transpose(-3, -2).contiguous().transpose(-3, -2) for name, x in t.items()}
        if self.layout == "halves":
            both = torch.stack([t["key_pages"], t["value_pages"]], 1)
            return {"key_pages": both[:, 0], "value_pages": both[:, 1]}
        return {name: place(x, self.layout) for name, x in t.items()}

    def call(self, t: dict) -> None:
        wmma_ops.kv_append(**t, interleaved=self.interleaved)

    def want(self, t: dict) -> tuple[torch.Tensor, torch.Tensor]:
        """In float64, token by token; what has no place, or no angles, is not written."""
        keys, values = (t[name].double().clone() for name in ("key_pages", "value_pages"))
        ends, used, table = (t[name].tolist() for name in ("cu_seq", "seqused_k", "block_table"))
        for start, end, have, columns in zip(ends[:-1], ends[1:], used, table, strict=True):
            for token in range(start, end):
                at = have - (end - token)
                if not 0 <= at < len(columns) * self.page_size or (self.angles and at >= len(t["cos"])):
                    continue
                page, row = columns[at // self.page_size], at % self.page_size
                if 0 <= page < len(keys):
                    keys[page, row], values[page, row] = self._turned(t, token, at), t["value"][token].double()
        return keys, values

    def _turned(self, t: dict, token: int, at: int) -> torch.Tensor:
        x = t["key"][token].double().clone()
        if not self.angles:
            return x
        plane = torch.complex(t["cos"][at].double(), t["sin"][at].double())
        first = slice(0, 2 * self.angles, 2) if self.interleaved else slice(0, self.angles)
        second = slice(1, 2 * self.angles, 2) if self.interleaved else slice(self.angles, 2 * self.angles)
        turned = torch.complex(x[:, first], x[:, second]) * plane
        x[:, first], x[:, second] = turned.real, turned.imag
        return x

    def compare(self, found: dict, t: dict, where: str) -> None:
        """What a call made of `t`, from which it was given a copy."""
        for name, exact in zip(("key_pages", "value_pages"), self.want(t), strict=True):
            # A sum of two products, rounded in the accumulator's type, and once to the result's.
            bound = unit(self.dtype) * exact.abs() + 8 * unit(accumulator(self.dtype)) * self.angles
            got = found[name].cpu()
            assert ((got.double() - exact).abs() <= bound).all(), f"{name} of {self} on {where}"
            assert torch.equal(got, t[name]) == (exact == t[name].double()).all()
        for name in t.keys() - {"key_pages", "value_pages"}:
            assert torch.equal(found[name].cpu(), t[name])


CASES = (
    Case(),
    Case(torch.float16, e=64, ev=64, page_size=32, layout="offset", number=torch.int64),
    Case(torch.bfloat16, e=64, ev=24, angles=32, beyond=4),
    Case(torch.bfloat16, e=40, angles=8, angle=torch.bfloat16, interleaved=True, layout="strided"),
    Case(torch.float64, e=7, ev=5, page_size=13, angles=3, angle=torch.float64),
    Case(angles=12, interleaved=True, layout="column"),
)
WRONG_NUMBERS = (  # of CASES' sequences
    {"block_table": [[7, -1, 2**31 - 1], [-(2**31), 6, 99], [0, 7, -3]]},
    {"block_table": [[7, -1, 6], [-(2**31), 6, 99], [0, 7, -3]]},
    {"seqused_k": [2**31 - 1, -5, 49]},
    {"seqused_k": [38, -5, 1]},
    {"cu_seq": [-9, 2**31 - 1, 4, 9], "seqused_k": [48, 99, 2]},
    {"cu_seq": [9, 3, -4, 2]},
)
