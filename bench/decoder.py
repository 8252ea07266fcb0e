"""A decoder as Llama's, in plain torch: what the bench compiles with and without our ops."""

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, hidden: int, heads: int, kv_heads: int):
        super().__init__()
        self.size = hidden // heads
        self.q_proj = nn.Linear(hidden, heads * self.size, bias=False)
        self.k_proj = nn.Linear(hidden, kv_heads * self.size, bias=False)
        self.v_proj = nn.Linear(hidden, kv_heads * self.size, bias=False)
        self.o_proj = nn.Linear(heads * self.size, hidden, bias=False)

    def forward(self, x, turn, past):
        batch, length, _ = x.shape
        q, k, v = (
            project(x).view(batch, length, -1, self.size).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = _turned(q, *turn), _turned(k, *turn)
        if past is not None:
            k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=past is None, enable_gqa=True)
        return self.o_proj(out.transpose(1, 2).reshape(batch, length, -1))


class MLP(nn.Module):
    def __init__(self, hidden: int, width: int):
        super().__init__()
        self.gate_proj = nn.Linear(hidden, width, bias=False)
        self.up_proj = nn.Linear(hidden, width, bias=False)
        self.down_proj = nn.Linear(width, hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, hidden: int, width: int, heads: int, kv_heads: int):
        super().__init__()
        self.before_attention, self.before_mlp = nn.RMSNorm(hidden), nn.RMSNorm(hidden)
        self.attention, self.mlp = Attention(hidden, heads, kv_heads), MLP(hidden, width)

    def forward(self, x, turn, past):
        x = x + self.attention(self.before_attention(x), turn, past)
        return x + self.mlp(self.before_mlp(x))


class Decoder(nn.Module):
    """Hidden states in, hidden states out."""

    def __init__(self, layers: int = 2, hidden: int = 4096, width: int = 14336, heads: int = 32, kv_heads: int = 8):
        super().__init__()
        self.layers = nn.ModuleList(Layer(hidden, width, heads, kv_heads) for _ in range(layers))
        self.size = hidden // heads

    def forward(self, x, past=None):
        """`past`: keys and values of each layer, of the tokens before these."""
        first = 0 if past is None else past[0][0].shape[2]
        turn = _angles(first, x.shape[1], self.size, x)
        for index, layer in enumerate(self.layers):
            x = layer(x, turn, None if past is None else past[index])
        return x


class LoRALinear(nn.Module):
    """A frozen layer and a narrow path beside it."""

    def __init__(self, columns: int, rows: int, rank: int):
        super().__init__()
        self.base = nn.Linear(columns, rows, bias=False)
        self.down, self.up = nn.Linear(columns, rank, bias=False), nn.Linear(rank, rows, bias=False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


def _angles(first: int, length: int, size: int, like: torch.Tensor):
    steps = 10000.0 ** (-torch.arange(0, size, 2, device=like.device) / size)
    angles = torch.outer(torch.arange(first, first + length, device=like.device), steps).repeat(1, 2)
    return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def _turned(x, cos, sin):
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat((-right, left), -1) * sin
