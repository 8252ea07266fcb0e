"""Norms by root mean squares that a class of somebody's spells call by call, and what only looks like one."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import wmma_ops
from wmma_ops.nn.norm import RMSNorm


class Spelled(nn.Module):
    """As in transformers' Llama."""

    def __init__(self, size=24, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(size) + 0.5)
        self.variance_epsilon = eps

    def forward(self, x):
        dtype = x.dtype
        x = x.to(torch.float32)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * x.to(dtype)


class OneMore(Spelled):
    """As in Gemma: the weight is what is added to 1."""

    def forward(self, x):
        return (super().forward(x.float()) / self.weight * (1 + self.weight.float())).to(x.dtype)


class Fixed(Spelled):
    """Another number than the one it has."""

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, 1e-6)


class Centred(Spelled):
    def forward(self, x):
        return super().forward(x - x.mean(-1, keepdim=True))


class InTraining(Spelled):
    def forward(self, x):
        return super().forward(x) * (2 if self.training else 1)


class WithBuffer(Spelled):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))


class Raises(Spelled):
    def forward(self, x):
        raise ValueError("not with this")


def test_it_becomes_torchs_function_and_its_own_again():
    model = nn.ModuleList([Spelled(), nn.Linear(24, 24)])
    plain = copy.deepcopy(model)
    record = wmma_ops.swap_(model)
    assert [(row.name, row.kind, row.note) for row in record.swapped] == [
        ("0", "Spelled", "torch's rms_norm"),
        ("1", "Linear", ""),
    ]
    assert isinstance(model[0], RMSNorm)
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.randn(3, 5, 24, dtype=dtype, requires_grad=True)
        swapped, own = model[0].to(dtype), plain[0].to(dtype)
        got, want = swapped(x), own(x)
        assert torch.equal(got, F.rms_norm(x, (24,), swapped.weight, 1e-6))
        bound = {"rtol": 2e-2, "atol": 2e-2} if dtype == torch.bfloat16 else {}
        torch.testing.assert_close(got, want, **bound)
        grads = [torch.autograd.grad(y.sum(), [x, one.weight]) for y, one in ((got, swapped), (want, own))]
        for pair in zip(*grads, strict=True):
            torch.testing.assert_close(*pair, **({"rtol": 5e-2, "atol": 5e-2} if dtype == torch.bfloat16 else {}))
    assert wmma_ops.restore_(model) == ["0", "1"]
    assert type(model[0]) is Spelled


def test_what_it_computes_follows_its_numbers_and_hooks_run():
    norm = Spelled()
    wmma_ops.swap_(norm)
    x, seen = torch.randn(2, 24), []
    norm.variance_epsilon = 0.5
    torch.testing.assert_close(norm(x), Spelled.forward(norm, x))
    norm.register_forward_hook(lambda *_: seen.append(1))
    norm(x)
    assert seen
    wide = norm(x.double())  # of another type than the weight, the class's own way
    assert torch.equal(wide, Spelled.forward(norm, x.double()))
    torch.testing.assert_close(torch.compile(norm, backend="eager")(x), norm(x))
    assert type(copy.deepcopy(norm)) is type(norm)


@pytest.mark.parametrize("kind", [OneMore, Fixed, Centred, InTraining, WithBuffer, Raises])
def test_what_is_none_stays(kind):
    model = kind()
    record = wmma_ops.swap_(model)
    assert not record.swapped
    assert type(model) is kind
    assert not wmma_ops.swap_(nn.RMSNorm(8)).swapped


def test_a_filter_keeps_it():
    norm = Spelled()
    assert not wmma_ops.swap_(norm, lambda module, name: False).swapped
    assert type(norm) is Spelled
