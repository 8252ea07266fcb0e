"""`python -m wmma_ops doctor`: what is installed here, what it can run, and whether it works."""

import platform
import sys

import torch

import wmma_ops
from wmma_ops import arch, jit, library


def _found(compiler) -> str:
    target = {"nvrtc": "sm_90a"}.get(compiler.name, "gfx90a")
    return compiler.version(target) if compiler.available(target) else "not found"


def report() -> dict:
    """What a bug report needs. `ok` is false where an op gave a wrong result."""
    build = "rocm" if torch.version.hip else "cuda" if torch.version.cuda else "cpu"
    gpus = (
        [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    )
    a, b = torch.arange(6.0).view(2, 3), torch.ones(3, 2)
    ok = torch.equal(wmma_ops.matmul(a, b), torch.tensor([[3.0, 3.0], [12.0, 12.0]]))
    return {
        "ok": ok,
        "wmma_ops": wmma_ops.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "torch": torch.__version__,
        "torch_build": build,
        "library": str(library.PATH),
        "library_bytes": library.PATH.stat().st_size,
        "ops": list(library.OPS),
        "gpus": gpus,
        "runs_on": {
            "cpu": "all ops",
            "emulated AMD targets and NVIDIA GPUs": "wmma_ops.Kernel and all ops but attention, which a GPU refuses",
        },
        "compilers": {name: _found(compiler) for name, compiler in jit.COMPILERS.items()},
        "emulated": list(arch.EMULATED),
        "cache": str(jit.cache.directory()),
    }


def show(console) -> int:
    found = report()
    width = max(map(len, found))
    for key, value in found.items():
        if isinstance(value, dict):
            value = ", ".join(f"{k}: {v}" for k, v in value.items())
        elif isinstance(value, list):
            value = ", ".join(value) or "none"
        console.print(f"{key:<{width}}  {value}", highlight=False, soft_wrap=True)
    if not found["ok"]:
        print("wmma_ops.matmul gave a wrong result", file=sys.stderr)
    return 0 if found["ok"] else 1
