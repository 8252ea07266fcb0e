"""Layers for models: on our ops, with the state_dicts of their torch counterparts; and swapping in a model you have."""

from wmma_ops.nn.attention import Attention, MultiheadAttention
from wmma_ops.nn.linear import Linear, LoRALinear
from wmma_ops.nn.mlp import FusedMLP

__all__ = ["Attention", "FusedMLP", "Linear", "LoRALinear", "MultiheadAttention"]
