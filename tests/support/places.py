"""Where a test's calls run."""

import contextlib

import wmma_ops


def on(name: str):
    """The CPU, a GPU ("cuda"), or a target to emulate, of which what ran is given."""
    return contextlib.nullcontext() if name in ("cpu", "cuda") else wmma_ops.emulate(name)
