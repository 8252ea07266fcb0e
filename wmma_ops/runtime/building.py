"""Kernels compiled ahead of time: a folder or a wheel of code objects, with which nothing compiles at run time.

Which kernels: those of a list of calls, on each target. Where neither a compiler nor the very kernel is there, the planner
takes what is (plan/launching.py), so that the usual calls serve products of every size.
"""

import base64
import csv
import hashlib
import io
import os
import zipfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch

from wmma_ops import jit
from wmma_ops.hardware import arch
from wmma_ops.ops import errors
from wmma_ops.plan import ConfigError
from wmma_ops.plan.plan import KERNEL_FILE
from wmma_ops.runtime import launching
from wmma_ops.version import __version__

Call = Callable[[], object]

PACKAGE = "wmma_ops_objects"


@dataclass(frozen=True)
class Built:
    """What became of the calls on one target."""

    target: str
    objects: int
    bytes: int
    left_out: tuple[str, ...]  # why, for each call that this target does not take


def build(
    make: Sequence[Call], targets: Sequence[str], folder: Path, progress: Callable[[str], None] = lambda target: None
) -> list[Built]:
    """Compiles what the calls launch on each target, and keeps it in `folder`."""
    found = []
    for name in targets:
        target = arch.target(name)
        made, left_out = set(), {}

        def one(call: Call, target=target, made=made, left_out=left_out) -> None:
            try:
                launches = _launches(call, target)
            except ConfigError as error:
                left_out[str(error)] = None
                return
            for source in launches:
                code = jit.ship(source, target.name, folder, name=KERNEL_FILE)
                made.add((hashlib.sha256(source.encode()).digest(), len(code.code)))

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for _ in pool.map(one, make):
                progress(target.name)
        found.append(Built(target.name, len(made), sum(size for _, size in made), tuple(left_out)))
    return found


def wheel(folder: Path, into: Path) -> Path:
    """A package that brings the folder's code objects to where it is installed, without their assembly."""
    files = {path.relative_to(folder) for path in sorted((folder / "code").rglob("*.wmma"))}
    stem = f"{PACKAGE}-{__version__}"
    content = {f"{PACKAGE}/{path.as_posix()}": _bare(folder / path) for path in sorted(files)}
    content[f"{PACKAGE}/__init__.py"] = b'"""Kernels of wmma_ops, compiled ahead of time."""\n'
    content[f"{stem}.dist-info/METADATA"] = (
        f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: {__version__}\n"
        f"Summary: Kernels of wmma_ops, compiled ahead of time\nRequires-Dist: wmma_ops=={__version__}\n"
    ).encode()
    content[f"{stem}.dist-info/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: wmma_ops\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    content[f"{stem}.dist-info/entry_points.txt"] = f"[{jit.cache.OBJECTS}]\nobjects = {PACKAGE}\n".encode()
    record = f"{stem}.dist-info/RECORD"
    table = io.StringIO()
    rows = csv.writer(table, lineterminator="\n")
    for name, data in content.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.writerow((name, f"sha256={digest}", len(data)))
    rows.writerow((record, "", ""))
    into.mkdir(parents=True, exist_ok=True)
    path = into / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in (content | {record: table.getvalue().encode()}).items():
            archive.writestr(name, data)
    return path


def _bare(path: Path) -> bytes:
    try:
        return jit.cache.without_assembly(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} {error}") from None


def _launches(call: Call, target: arch.Target) -> set[str]:
    """The kernels' sources. Nothing is executed, so no memory is touched."""
    with torch.no_grad(), errors.raised_as(ConfigError, jit.CompileError):
        return {launch.source for one in launching.plans(call, target) for launch in one.plan.launches}
