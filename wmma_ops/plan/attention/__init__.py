"""Attention and its gradients: configurations and the kernels' texts."""
