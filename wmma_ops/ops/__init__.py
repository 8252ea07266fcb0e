"""The ops: documented functions, fakes, derivatives, and what else each is to PyTorch."""
