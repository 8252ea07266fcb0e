"""Blocks of diffusion and vision models, in plain torch: what the bench compiles with and without our ops."""

import torch
import torch.nn.functional as F
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, width: int, heads: int, normed: bool = False):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        norm = (lambda: nn.RMSNorm(width // heads)) if normed else nn.Identity
        self.q_norm, self.k_norm = norm(), norm()

    def forward(self, x, turn=None):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k = self.q_norm(q), self.k_norm(k)
        if turn is not None:
            q, k = _turned(q, *turn), _turned(k, *turn)
        out = F.scaled_dot_product_attention(q, k, v)
        return self.out(out.transpose(1, 2).reshape(batch, length, width))


class MLP(nn.Module):
    def __init__(self, width: int, approximate: str):
        super().__init__()
        self.up, self.act, self.down = nn.Linear(width, 4 * width), nn.GELU(approximate), nn.Linear(4 * width, width)

    def forward(self, x):
        return self.down(self.act(self.up(x)))


class DiTBlock(nn.Module):
    """As FLUX's: shifts, scales and gates from a vector of the image's, normed and turned queries and keys."""

    def __init__(self, width: int = 3072, heads: int = 24):
        super().__init__()
        self.change = nn.Linear(width, 6 * width)
        self.before_attention = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.before_mlp = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.attention, self.mlp = SelfAttention(width, heads, normed=True), MLP(width, "tanh")

    def forward(self, x, vector, cos, sin):
        shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = self.change(F.silu(vector)).unsqueeze(1).chunk(6, -1)
        x = x + gate * self.attention(self.before_attention(x) * (1 + scale) + shift, (cos, sin))
        return x + mlp_gate * self.mlp(self.before_mlp(x) * (1 + mlp_scale) + mlp_shift)


class ViTBlock(nn.Module):
    def __init__(self, width: int = 1024, heads: int = 16):
        super().__init__()
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.mlp = SelfAttention(width, heads), MLP(width, "none")

    def forward(self, x):
        x = x + self.attention(self.before_attention(x))
        return x + self.mlp(self.before_mlp(x))


class CrossAttention(nn.Module):
    """As diffusers has it: no bias but the output's; of a text where there is one."""

    def __init__(self, width: int, heads: int, text: int | None = None):
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(text or width, width, bias=False) for _ in "kv")
        self.out = nn.Linear(width, width)

    def forward(self, x, text=None):
        of = x if text is None else text
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in (self.q(x), self.k(of), self.v(of)))
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2))


class GatedMLP(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.up, self.down = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x, gate = self.up(x).chunk(2, -1)
        return self.down(x * F.gelu(gate))


class UNetBlock(nn.Module):
    """As SD-XL's: attention within an image, over its text, and a gated MLP."""

    def __init__(self, width: int = 1280, heads: int = 20, text: int = 2048):
        super().__init__()
        self.before_own, self.before_text, self.before_mlp = (nn.LayerNorm(width) for _ in range(3))
        self.own, self.of_text = CrossAttention(width, heads), CrossAttention(width, heads, text)
        self.mlp = GatedMLP(width)

    def forward(self, x, text):
        x = x + self.own(self.before_own(x))
        x = x + self.of_text(self.before_text(x), text)
        return x + self.mlp(self.before_mlp(x))


def _turned(x, cos, sin):
    """Neighbours as numbers of a plane, as diffusers turns them for FLUX."""
    left, right = x.unflatten(-1, (-1, 2)).unbind(-1)
    across = torch.stack((-right, left), -1).flatten(-2)
    return (x.float() * cos + across.float() * sin).to(x.dtype)
