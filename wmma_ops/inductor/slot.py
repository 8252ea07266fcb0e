"""The pass in Inductor's one slot for passes before gradients: composed with what is there, keyed for the caches.

Torch 2.10 and 2.11 run the pass before they look into their caches: what it made is hashed, and the pass itself is pickled
as a setting. From 2.12 on they look first, and the key holds its uuid. So it is pickled as its uuid.
"""

import contextlib
import functools
import hashlib
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path

import torch
from torch.fx import Graph

from wmma_ops.inductor.rewrite import Settings, rewrite
from wmma_ops.ops.invariance import batch_invariant
from wmma_ops.ops.neighbours import hint
from wmma_ops.runtime import emulation, tuned
from wmma_ops.torch_internals import graph_pass, inductor, inductor_settings, register_backend
from wmma_ops.version import __version__

_GraphPass = graph_pass()
_FORCE, _ALONE = "wmma.force", "wmma.batch_invariant"  # the backend's options
_INDUCTORS = "batch_invariant"  # Inductor's own option
_disabled: ContextVar[bool] = ContextVar("wmma_ops_inductor_disabled", default=False)


class WmmaPass(_GraphPass):  # type: ignore[valid-type]
    """The passes that were there before, and ours after them."""

    def __init__(self, settings: Settings, slot=None):
        self.settings, self.slot = settings, slot

    @property
    def before(self) -> tuple:
        return tuple(self.slot) if isinstance(self.slot, (list, tuple)) else () if self.slot is None else (self.slot,)

    def __call__(self, graph: Graph) -> None:
        for one in self.before:
            one(graph)
        rewrite(graph, self.settings)

    def uuid(self) -> str | None:
        """Everything that decides what comes out; None where an earlier pass has none, and the pass is not to be cached."""
        others = [one.uuid() if isinstance(one, _GraphPass) else None for one in self.before]
        if None in others:
            return None
        parts = (__version__, source_hash(), self.settings, _surroundings(), others)
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    def __deepcopy__(self, memo: dict) -> "WmmaPass":
        return self  # it never changes, and settings are copied often

    def __reduce__(self):
        return _of_uuid, (self.uuid(),)


def _of_uuid(uuid: str | None):
    raise TypeError(f"the pass {uuid} was pickled for a key alone")


@functools.cache
def source_hash(folder: Path = Path(__file__).parents[1]) -> str:
    """Of this package's Python: the pass, what it asks, and the gradients that graphs are made with."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _surroundings() -> tuple:
    """What the decisions depend on beside the graph."""
    active = emulation.active()
    kept = None
    if torch.cuda.is_available():
        path = tuned.path_of(torch.cuda.get_device_name())
        kept = path and path.exists() and hashlib.sha256(path.read_bytes()).hexdigest()
    return active and active.target, torch.get_float32_matmul_precision(), kept


# ------------------------------------------------------------------------------------------------------------ the slot


def _given_back(slot):
    """What stands in the slot when our pass is taken out."""
    if isinstance(slot, WmmaPass):
        return slot.slot
    if not isinstance(slot, (list, tuple)):
        return slot
    return type(slot)(part for one in slot for part in (one.before if isinstance(one, WmmaPass) else (one,)))


def _settings(slot) -> Settings:
    """Those of our pass in the slot, or the default ones."""
    passes = slot if isinstance(slot, (list, tuple)) else (slot,)
    return next((one.settings for one in passes if isinstance(one, WmmaPass)), Settings())


def _composed(settings: Settings, slot) -> WmmaPass:
    return WmmaPass(settings, _given_back(slot))


def enable(*, force: bool = False) -> None:
    """Adds the pass to plain Inductor, for what is compiled from now on, after a pass that is there already.

    Inductor's settings belong to the thread from torch 2.12 on, and so does this.

    Args:
        force: rewrite wherever our ops can compute the same, whether or not it pays. On the CPU it is the only way.
    """
    settings = inductor_settings()
    settings.pre_grad_custom_pass = _composed(Settings(force), settings.pre_grad_custom_pass)


def disable() -> None:
    """Takes the pass out again and leaves what else is there. What was compiled stays as it is."""
    settings = inductor_settings()
    settings.pre_grad_custom_pass = _given_back(settings.pre_grad_custom_pass)


@contextlib.contextmanager
def enabled(*, force: bool = False) -> Iterator[None]:
    """As `enable`, for what is compiled within it: at a compiled function's first call, not at torch.compile."""
    settings = inductor_settings()
    with settings.patch(pre_grad_custom_pass=_composed(Settings(force), settings.pre_grad_custom_pass)):
        yield


@contextlib.contextmanager
def disabled() -> Iterator[None]:
    """What is compiled within it is not rewritten, not even by backend="wmma"."""
    token, settings = _disabled.set(True), inductor_settings()
    try:
        with settings.patch(pre_grad_custom_pass=_given_back(settings.pre_grad_custom_pass)):
            yield
    finally:
        _disabled.reset(token)


# --------------------------------------------------------------------------------------------------------- the backend


def backend(graph_module, example_inputs, *, mode: str | None = None, options: dict | None = None):
    """torch.compile's backend "wmma": Inductor with the pass.

    Args:
        graph_module, example_inputs: Dynamo's.
        mode: as for Inductor.
        options: Inductor's, and "wmma.force": as `force` of `enable`; "wmma.batch_invariant": what is compiled runs within
            `wmma_ops.batch_invariant`, with every product and attention that can be ours, and what Inductor makes by its
            own option of that name, where torch has it (2.13 has).
    """
    options = dict(options or {})
    slot = options.pop("pre_grad_custom_pass", inductor_settings().pre_grad_custom_pass)
    force, alone = options.pop(_FORCE, _settings(slot).force), options.pop(_ALONE, False)
    if unknown := next((name for name in options if name.startswith("wmma")), None):
        near = hint(unknown, (_FORCE, _ALONE))
        raise ValueError(
            f"torch.compile: there is no option {unknown!r}{near}; takes {_FORCE!r}, {_ALONE!r}, and Inductor's"
        )
    for name, option in ((_FORCE, force), (_ALONE, alone)):
        if not isinstance(option, bool):
            raise TypeError(f'torch.compile: the option "{name}" is {option!r}; takes a bool')
    if alone and hasattr(inductor_settings(), _INDUCTORS):
        options[_INDUCTORS] = True
    passes = slot if _disabled.get() else _composed(Settings(force or alone), slot)
    compiled = inductor(graph_module, example_inputs, mode, options, passes)
    return batch_invariant()(compiled) if alone else compiled


def register() -> None:
    """Makes the backend known by its name. Where the package is installed its metadata does, without an import."""
    if "wmma" not in torch.compiler.list_backends(exclude_tags=()):
        register_backend(backend, name="wmma")
