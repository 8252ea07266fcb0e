"""What tuning found: a configuration and its time for each product that was tuned, by GPU, in the cache folder.

And what it tries at the moment. Whoever plans a call asks here first (launching.py); planning itself knows nothing of it.
"""

import contextlib
import dataclasses
import functools
import json
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from wmma_ops.jit import cache, files
from wmma_ops.ops.types import ELEMENTS
from wmma_ops.ops.types import name as type_name
from wmma_ops.plan.gemm.config import GemmConfig
from wmma_ops.plan.gemm.tile_order import TileOrder
from wmma_ops.plan.problem import GemmProblem
from wmma_ops.runtime import driver

logger = logging.getLogger("wmma_ops.plan")

_FORMAT = 7  # changes, too, when older timings say nothing of the kernels that there are
_FORCED: dict[str, GemmConfig] = {}  # by key_of


@dataclass(frozen=True)
class Measured:
    """What tuning kept of a problem: our time, and that of torch's product alone."""

    microseconds: float
    library_microseconds: float | None


def key_of(problem: GemmProblem) -> str:
    """All that is said of it but its device: a field that a kind of problem may lack is left out where it does."""
    fields = ((field, getattr(problem, field.name)) for field in dataclasses.fields(problem) if field.name != "device")
    said = (f"{field.name}={x!r}" for field, x in fields if x != field.default)
    return f"GemmProblem({', '.join(('place=0', *said))})"  # as the files of earlier versions have it


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
    if problem.device < 0 or driver.stands_in():
        return None
    stored = _table(path_of(torch.cuda.get_device_name(problem.device))).get(key_of(problem))
    if stored is None:
        return None
    return _config(stored), "the fastest of those that wmma_ops.tune timed on this GPU"


def measured(problem: GemmProblem) -> Measured | None:
    """What tuning found on this GPU, in time."""
    stored = _table(path_of(torch.cuda.get_device_name(problem.device))).get(key_of(problem))
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
        stored = json.loads(files.read(path.parent.parent, "tuned", path.name)) if path else {}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        logger.warning("the tuning results in %s cannot be read: %s", path, error)
        return {}
    if not isinstance(stored, dict) or stored.get("format") != _FORMAT or not isinstance(stored.get("best"), dict):
        return {}
    return {key: row for key, row in stored["best"].items() if _is_row(row)}


def keep(device: torch.device, problem: GemmProblem, config: GemmConfig, times: Measured) -> None:
    """For every later process on this machine."""
    path = path_of(torch.cuda.get_device_name(device))
    if path is None:
        return
    _table.cache_clear()
    best = {**_table(path), key_of(problem): _stored(config, times)}
    try:
        if files.read_only():
            raise files.Refused(f"{files.READ_ONLY}=1: nothing is written there")
        data = json.dumps({"format": _FORMAT, "best": best}, indent=1).encode()
        files.write(path.parent.parent, "tuned", path.name, data=data)
    except OSError as error:
        logger.warning("the tuning results cannot be kept in %s: %s", path, error)
    _table.cache_clear()
    torch.ops.wmma._forget_plans()


def _stored(config: GemmConfig, times: Measured) -> dict:
    fields = {**dataclasses.asdict(config), "element": type_name(config.element)}
    return {"config": fields, **dataclasses.asdict(times)}


def _is_row(row: object) -> bool:
    """Whether what a file holds may be of `_stored`: every field there, and of its type."""
    if not isinstance(row, dict) or not isinstance(row.get("config"), dict):
        return False
    times = row.get("microseconds"), row.get("library_microseconds")
    if not isinstance(times[0], int | float) or not isinstance(times[1], int | float | None):
        return False
    config = row["config"]
    types = {field.name: field.type for field in dataclasses.fields(GemmConfig)} | {"element": str, "order": dict}
    return (
        _has_fields(config, types)
        and config["element"] in {type_name(element.dtype) for element in ELEMENTS}
        and _has_fields(config["order"], {field.name: field.type for field in dataclasses.fields(TileOrder)})
    )


def _has_fields(found: dict, types: dict) -> bool:
    return found.keys() == types.keys() and all(type(found[name]) is kind for name, kind in types.items())


def _config(stored: dict) -> GemmConfig:
    fields = dict(stored["config"])
    element, order = getattr(torch, fields["element"]), TileOrder(**fields["order"])
    return GemmConfig(**{**fields, "element": element, "order": order})
