"""What tuning found: a configuration and its time for each product that was tuned, by GPU, in the cache folder.

And what it tries at the moment. Whoever plans a call asks here first (launching.py); planning itself knows nothing of it.
"""

import contextlib
import dataclasses
import functools
import json
import logging
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from wmma_ops.jit import cache
from wmma_ops.ops.types import name as type_name
from wmma_ops.plan.gemm.config import GemmConfig
from wmma_ops.plan.problem import GemmProblem
from wmma_ops.runtime import driver

logger = logging.getLogger("wmma_ops.plan")

_FORMAT = 5  # changes, too, when older timings say nothing of the kernels that there are
_FORCED: dict[str, GemmConfig] = {}  # by key_of


@dataclass(frozen=True)
class Measured:
    """What tuning kept of a problem: our time, and that of torch's product alone."""

    microseconds: float
    library_microseconds: float | None


def key_of(problem: GemmProblem) -> str:
    """All that is said of it: a field that a kind of problem may lack is left out where it does."""
    said = dataclasses.replace(problem, place=0)
    fields = ((field, getattr(said, field.name)) for field in dataclasses.fields(said))
    return f"GemmProblem({', '.join(f'{field.name}={x!r}' for field, x in fields if x != field.default)})"


@contextlib.contextmanager
def forced(problem: GemmProblem, config: GemmConfig) -> Iterator[None]:
    """Within it, the whole process plans this problem so."""
    key = key_of(problem)
    before = _FORCED.get(key)
    _FORCED[key] = config
    torch.ops.wmma._forget_plans()
    try:
        yield
    finally:
        if before is None:
            del _FORCED[key]
        else:
            _FORCED[key] = before
        torch.ops.wmma._forget_plans()


def chosen(problem: object) -> tuple[GemmConfig, str] | None:
    """The configuration that is known to be the fastest on this GPU, or is being tried, and why it is taken."""
    if not isinstance(problem, GemmProblem):
        return None
    if _FORCED and (config := _FORCED.get(key_of(problem))):
        return config, "being tuned"
    if problem.place < 0 or driver.stands_in():
        return None
    stored = _table(path_of(torch.cuda.get_device_name(problem.place))).get(key_of(problem))
    if stored is None:
        return None
    return _config(stored), "the fastest of those that wmma_ops.tune timed on this GPU"


def measured(problem: GemmProblem) -> Measured | None:
    """What tuning found on this GPU, in time."""
    stored = _table(path_of(torch.cuda.get_device_name(problem.place))).get(key_of(problem))
    return None if stored is None else Measured(stored["microseconds"], stored.get("library_microseconds"))


def path_of(device_name: str) -> Path | None:
    """The file that keeps what was found on GPUs of this name."""
    folder = cache.directory()
    return None if folder is None else folder / "tuned" / f"{re.sub(r'[^A-Za-z0-9]+', '_', device_name)}.json"


def count(device_name: str) -> int:
    """How many calls are tuned for GPUs of this name."""
    return len(_table(path_of(device_name)))


@functools.lru_cache(maxsize=8)
def _table(path: Path | None) -> dict:
    try:
        stored = json.loads(path.read_text()) if path else {}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        logger.warning("the tuning results in %s cannot be read: %s", path, error)
        return {}
    return stored.get("best", {}) if stored.get("format") == _FORMAT else {}


def keep(device: torch.device, problem: GemmProblem, config: GemmConfig, times: Measured) -> None:
    """For every later process on this machine."""
    path = path_of(torch.cuda.get_device_name(device))
    if path is None:
        return
    _table.cache_clear()
    best = {**_table(path), key_of(problem): _stored(config, times)}
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, name = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "w") as file:
            json.dump({"format": _FORMAT, "best": best}, file, indent=1)
        os.replace(name, path)
    except OSError as error:
        logger.warning("the tuning results cannot be kept in %s: %s", path, error)
    _table.cache_clear()
    torch.ops.wmma._forget_plans()


def _stored(config: GemmConfig, times: Measured) -> dict:
    fields = {**dataclasses.asdict(config), "element": type_name(config.element)}
    return {"config": fields, **dataclasses.asdict(times)}


def _config(stored: dict) -> GemmConfig:
    fields = dict(stored["config"])
    return GemmConfig(**{**fields, "element": getattr(torch, fields["element"])})
