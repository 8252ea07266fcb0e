"""What the tests of layers share: models to put them in, and how far results may be from another model's."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

from wmma_ops.testing import reference


class Mlp(nn.Module):
    """A chain of children and a function, as vision models have it."""

    def __init__(self):
        super().__init__()
        self.fc1, self.drop, self.fc2 = nn.Linear(16, 24), nn.Dropout(0.5), nn.Linear(24, 16)

    def forward(self, x):
        return self.drop(self.fc2(self.drop(F.gelu(self.fc1(x), approximate="tanh"))))


class Silu(nn.Module):
    def forward(self, x):
        return F.silu(x)


class Gated(nn.Module):
    """As Llama's."""

    def __init__(self, bias=False):
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(16, 24, bias), nn.Linear(16, 24, bias)
        self.down_proj, self.act_fn = nn.Linear(24, 16, bias), Silu()

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 16)
        self.layers = nn.ModuleList([Mlp(), Gated(), Gated(bias=True)])
        self.last = nn.Sequential(nn.Linear(16, 16), nn.SiLU(), nn.LayerNorm(16), nn.Linear(16, 10, bias=False))
        self.last[3].weight = self.embed.weight  # tied

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return self.last(x)


def results(model, *inputs, **options) -> dict[str, torch.Tensor]:
    """The output and the gradients of a fixed function of it, by inputs and parameters."""
    tensors = [x.detach().requires_grad_() for x in inputs]
    out = model(*tensors, **options)
    out = out[0] if isinstance(out, tuple) else out
    # All of one sign: sums of them are no differences of large numbers.
    weights = torch.linspace(0.1, 1, out.numel()).reshape(out.shape).to(out.dtype)
    parameters = {name: x for name, x in model.named_parameters() if x.requires_grad}
    asked = [*tensors, *parameters.values()]
    found = torch.autograd.grad((out * weights).sum(), asked, allow_unused=True)
    names = [*(f"input {i}" for i in range(len(tensors))), *parameters]
    return {"output": out.detach(), **dict(zip(names, found, strict=True))}


def exact(model, *inputs, **options) -> dict[str, torch.Tensor]:
    """`results` of a plain torch model in float64."""
    options = {key: x.double() if _is_floating(x) else x for key, x in options.items()}
    return results(copy.deepcopy(model).double(), *(x.double() for x in inputs), **options)


def _is_floating(x) -> bool:
    return isinstance(x, torch.Tensor) and x.is_floating_point()


def assert_no_worse(got: dict, torchs: dict, want: dict) -> None:
    """Of the same types, and no further from float64 than twice what torch is.

    Beside that, what a sum over the rows in the accumulator and one rounding may cost, for torch may be exact by chance.
    """
    assert got.keys() == torchs.keys() == want.keys()
    rows = got["output"].numel() // got["output"].shape[-1]
    for name, x in got.items():
        assert (x is None) == (torchs[name] is None), name
        if x is None:
            continue
        assert x.dtype == torchs[name].dtype, name
        assert x.shape == torchs[name].shape, name
        errors = [(one.double() - want[name]).abs().max().item() for one in (x, torchs[name])]
        own = reference.unit(x.dtype) + reference.gamma_of(rows, reference.unit(reference.accumulator(x.dtype)))
        allowed = 2 * errors[1] + own * want[name].abs().max().item()
        assert errors[0] <= allowed, f"{name}: off by {errors[0]:.2e}, torch by {errors[1]:.2e}, allowed {allowed:.2e}"


def assert_within(got: torch.Tensor, value: reference.Value) -> None:
    """Within the derived bound."""
    excess = (got.double() - value.x).abs() - value.error
    worst = excess.argmax()
    text = f"at {worst}: {got.flatten()[worst]}, not {value.x.flatten()[worst]} ± {value.error.flatten()[worst]}"
    assert bool((excess <= 0).all()), text


def layer(x: reference.Value, linear: torch.nn.Linear, dtype) -> reference.Value:
    """A linear layer's result and its bound before rounding."""
    u = reference.unit(reference.accumulator(dtype))
    found = reference.product(x, linear.weight.mT, u)
    if linear.bias is None:
        return found
    gamma = reference.gamma_of(linear.in_features, u)
    return found.plus(linear.bias.double().expand_as(found.x), gamma)


def activated(x: reference.Value, name: str, dtype) -> reference.Value:
    return x.activated(name, reference.unit(reference.accumulator(dtype)))
