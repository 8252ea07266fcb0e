"""What is installed here, what it can run, and whether it works."""

import ctypes
import platform
from collections import Counter

import torch

import wmma_ops
from wmma_ops import jit
from wmma_ops.hardware import arch
from wmma_ops.jit import clang
from wmma_ops.ops import library, nodes
from wmma_ops.runtime import driver, tuned

_PROBED = "gfx1201"  # emulated


def _found(compiler) -> str:
    target = {"nvrtc": "sm_90a"}.get(compiler.name, "gfx90a")
    return compiler.version(target) if compiler.available(target) else "not found"


def _clang() -> dict[str, str]:
    """The clang that is used, why, what was proven with it, and the others that are here."""
    try:
        used = clang.toolchain(_PROBED)
    except jit.CompileError as error:
        return {"used": "none", "because": str(error)}
    others = [str(one) for one in clang.toolchains() if one != used]
    found = {"used": str(used), "because": used.because, "proven with it": used.proven}
    return found | ({"also here, for targets that it does not know": "; ".join(others)} if others else {})


def _right(device: str) -> bool:
    """Whether a product, two in one kernel, and attention are right there, on numbers without rounding."""
    a, b = torch.arange(6.0, device=device).view(2, 3).half(), torch.ones(3, 2, device=device).half()
    products = wmma_ops.matmul(a, b), wmma_ops.gemm_gemm(a, b, b.mT, activation="relu")
    out, _ = wmma_ops.attention(a, a[:1], a[:1])  # one key: its value
    wanted = torch.tensor([[3.0, 3.0], [12.0, 12.0]]), torch.tensor([[6.0], [24.0]]).expand(2, 3), a[:1].expand(2, 3)
    return all(
        torch.equal(got.float().cpu(), want.float().cpu()) for got, want in zip((*products, out), wanted, strict=True)
    )


def _works(what: str, device: str) -> tuple[bool | None, str]:
    """Whether the ops are right there (None: nothing compiles for them), and a line that says so."""
    try:
        right = _right(device)
    except jit.CompileError as error:
        return None, f"nothing: {str(error).splitlines()[0]}"
    except Exception as error:  # whatever it is, it belongs into the report
        return False, f"FAILS: {type(error).__name__}: {str(error).splitlines()[0]}"
    return right, f"{what}, tried" if right else f"{what}, WRONG RESULT"


def driver_version() -> str:
    """The driver that a GPU's kernels are loaded by."""
    if torch.version.hip:
        return f"HIP {torch.version.hip}"
    version = ctypes.c_int()
    try:
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return "no driver found"
    return f"CUDA driver {version.value // 1000}.{version.value % 1000 // 10}"


def _runs_on() -> tuple[bool, dict[str, str]]:
    tried = {"cpu": _works("all ops", "cpu")}
    gpus = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    for index in gpus:
        where = f"cuda:{index}, {torch.cuda.get_device_name(index)} ({driver.target_of(index)})"
        tried[where] = _works(f"all ops, through {driver_version()}", f"cuda:{index}")
    if not gpus:
        tried["cuda"] = (None, "nothing: torch finds no GPU")
    with wmma_ops.emulate(_PROBED):
        right, text = _works("all ops", "cpu")
        tried["emulated AMD targets"] = (right, text.replace("tried", f"tried as {_PROBED}"))
    return all(right is not False for right, _ in tried.values()), {where: text for where, (_, text) in tried.items()}


def _tuned() -> dict[str, str]:
    """The files of tuning results, by the GPUs that they are for."""
    if not torch.cuda.is_available():
        return {}
    names = {torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())}
    return {name: f"{tuned.count(name)} calls, in {tuned.path_of(name)}" for name in sorted(names)}


def _compiled_ahead() -> dict[str, str]:
    """The folders of shipped code objects, and how many of them this version can use, by target."""
    found = {}
    for folder in jit.cache.shipped():
        entries = jit.cache.ls(folder)
        counts = Counter(entry.target for entry in entries if entry.usable)
        others = len(entries) - sum(counts.values())
        texts = [f"{target} {count}" for target, count in sorted(counts.items())]
        found[str(folder)] = ", ".join(texts + ([f"{others} of another version, which are not used"] if others else []))
    return found


def report() -> dict:
    """What a bug report needs. `ok` is false where a product failed or was wrong."""
    build = "rocm" if torch.version.hip else "cuda" if torch.version.cuda else "cpu"
    ok, runs_on = _runs_on()
    return {
        "ok": ok,
        "wmma_ops": wmma_ops.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "torch": torch.__version__,
        "torch_build": build,
        "library": str(library.PATH),
        "library_bytes": library.PATH.stat().st_size,
        "derivatives": nodes.state(),
        "ops": [*library.OPS, *library.WRITERS],
        "runs_on": runs_on,
        "compilers": {name: _found(compiler) for name, compiler in jit.COMPILERS.items()},
        "clang": _clang(),
        "emulated": list(arch.EMULATED),
        "cache": str(jit.cache.directory()),
        "compiled_ahead": _compiled_ahead(),
        "tuned": _tuned(),
    }
