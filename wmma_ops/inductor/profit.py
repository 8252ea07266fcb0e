"""Whether a rewriting pays: what our op would take, against torch's product and the elementwise kernel behind it.

Both are counted in the planner's cycles (plan/model.py), or in measured time where wmma_ops.tune has timed the problem
on the GPU at hand.
"""

import dataclasses
import enum
import functools
from dataclasses import dataclass

import torch
from torch.fx import Node

from wmma_ops.hardware import arch
from wmma_ops.inductor import nodes
from wmma_ops.inductor.found import Rewrite, operand_value
from wmma_ops.inductor.nodes import Order, value
from wmma_ops.ops.kept import GATED_WITH_AUX, GEMM_WITH_AUX, LINEAR_WITH_AUX
from wmma_ops.ops.library import overload
from wmma_ops.plan import model
from wmma_ops.plan.attention.loops import warpgroup, warpgroup_gradients
from wmma_ops.plan.gemm import planner as gemm
from wmma_ops.plan.gemm_gemm import planner as gemm_gemm
from wmma_ops.plan.problem import AttentionProblem, GemmGemmProblem, GemmProblem
from wmma_ops.runtime import driver, emulation, launching, tuned

# What the GPU's library takes for a plain product, of what the model says of ours. On an H200 ours are as fast in the mean;
# a rewriting that only ties is not worth making.
LIBRARY = 0.96
# The same on NVIDIA where rows are aligned to 16 bytes but not to the 128 of a line: the model says 12 µs of our 1000³,
# which takes 10.5, and torch's 10.3; of 2000³ 32, 27 and 27; of 3000³ 107, 95 and 80.
LIBRARY_STRADDLED = 0.82
# The same for few rows: 17.5 µs against 15.4 for 16x4096x4096 on an H200, 28.3 against 24.6 for 16x4096x8192, 8.3
# against 7.3 for 16x16x8192, 7.6 against 5.6 for 16x4096x16.
LIBRARY_FEW_ROWS = 1.1
_FEW_ROWS = 16
# Targets on which torch has one kernel for attention in 16-bit types, as fast as ours or faster: FlashAttention on
# NVIDIA, AOTriton's on Instinct. On Radeon it is off unless an environment variable asks for it.
_FUSED_ATTENTION = ("sm80", "sm89", "sm90", "cdna")
_WIDEST_FUSED = 256  # head size
# Of queries, and of keys, from which on ours by warpgroups is ahead of all of torch's on an H200: 1.09 to 1.4 times
# from 577 rows on, 0.84 with 128.
_LEAST_ROWS = 512
# With a mask of bool, or of numbers of the operands' type, where it was measured: 1.4 to 3.3 and 1.02 to 1.4 times as fast
# as cuDNN on an H200, gradients 1.05 to 1.6 and 1.0 to 1.5 times.
_WIDEST_MASKED = 128
# Beyond it and up to that cuDNN's gradients without a mask are ahead of ours: 24 heads of 4608x128 take 1220 µs and ours
# 1590, forward 430 both; of 64 both take as long, and of 256 ours 1080 and cuDNN's 1800.
_WIDEST_EQUAL = 64
# Elements that a row of a mask is a multiple of, where torch has a fused attention beside one.
_MASK_WIDTH = 8
# Operands that autocast casts.
_CAST = ("a", "b", "a2", "b2", "b0", "b1", "gate", "x", "weight", "q", "k", "v")


class Spared(enum.Enum):
    """What ours spare of the elementwise kernel that Inductor puts behind torch's product."""

    KERNEL = "the kernel"
    WRITE = "one of its results"  # the kernel stays, for what follows
    NOTHING = "nothing"


class Gradient(enum.Enum):
    """Where a rewriting's gradients have what an activation is given, or a factor behind it, if there is one."""

    NONE = "nobody asks for them"
    KEPT = "the product's own kernel keeps it (ops/kept.py)"
    AGAIN = "it is multiplied again"


@dataclass(frozen=True)
class Cost:
    """Ours and torch's, in one unit."""

    ours: float
    torchs: float
    source: str  # where the figures are from
    for_gradient: float = 0.0  # what it computes again, that torch keeps, or has written

    @property
    def pays(self) -> bool:
        return self.ours + self.for_gradient < self.torchs

    def __str__(self) -> str:
        total = self.ours + self.for_gradient
        beside = ", with what the gradient computes again or has kept" if self.for_gradient else ""
        return f"{total / self.torchs:.2f} of torch's time {self.source}{beside}"


def judged(
    rewrite: Rewrite, problems: list, target: arch.Target | None, force: bool, whole: GemmProblem | None = None
) -> tuple[bool, str]:
    """Whether to rewrite, and why or why not; `problems` are those of `problem_of` on `target`, of the rewriting and of
    its parts, and `whole` that of torch's one product in their place, where it has one."""
    problem, *parts = problems
    if force:
        return True, "forced"
    if target is None:
        return (
            False,
            "tensors on the CPU: torch's own kernels are as fast there, ours would only be forced (force=True)",
        )
    if target.name not in model.CARDS:
        return False, f"the model does not know {target.name}"
    if problem is None:
        return False, "a size is not known when the graph is made, or there is nothing to compute"
    if isinstance(problem, AttentionProblem):
        derives = value(rewrite.anchor).requires_grad
        return _attention_pays(problem, target, _has_mask(rewrite.anchor), derives)
    computed = value(rewrite.anchor).dtype
    if computed == torch.float32 and torch.get_float32_matmul_precision() != "highest":
        return (
            False,
            "torch multiplies float32 in TF32 or bfloat16, as its setting allows; ours does not in the same way",
        )
    device = value(rewrite.anchor).device
    index = (device.index or 0) if device.type == "cuda" else None
    index = index if rewrite.whole is None else None  # what was tuned is no piece of another product
    cost = cost_of_all(problem, parts, target, spared(rewrite), _gradient(rewrite), index)
    if cost is not None and whole is not None:
        pieces = sum(_of_library(one, target) for one in problems)
        cost = dataclasses.replace(cost, torchs=cost.torchs - pieces + _of_library(whole, target))
    if cost is None:
        return False, "the planner would launch two products"
    return cost.pays, str(cost)


def target_of(device: torch.device) -> arch.Target | None:
    """The target that an op on the device runs on; None where that is the CPU itself."""
    if device.type == "cuda":
        return arch.target(driver.target_of(device.index or 0))
    active = emulation.active()
    return None if active is None else arch.target(active.target)


# --------------------------------------------------------------------------------------------------------- the problem


def problem_of(rewrite: Rewrite, order: Order, target: arch.Target | None):
    """What the library would ask the planner when the op runs; None where sizes are not known or there is nothing to do,
    and on no target.

    Asked for with tensors of the same sizes and strides that hold nothing.
    """
    if target is None:
        return None
    device = value(rewrite.anchor).device
    cast = order.places[rewrite.anchor].autocast.get(device.type)
    tensors = {}
    for name, x in rewrite.tensors.items():
        fake = operand_value(x)
        sizes, strides = _hints(fake.shape), _hints(fake.stride())
        if sizes is None or strides is None:
            return None
        is_cast = cast is not None and name in _CAST
        tensors[name] = (sizes, strides, cast if is_cast else fake.dtype)
    op = overload(rewrite.op, raw=True)
    with nodes.without_modes(), torch.no_grad(), torch.autocast(device.type, enabled=False):
        empty = {name: torch.empty_strided(x[0], x[1], dtype=x[2], device="cpu") for name, x in tensors.items()}
        problems = launching.problems(lambda: op(**empty, **rewrite.scalars), target)
    return problems[0] if problems else None


def _hints(sizes) -> tuple[int, ...] | None:
    """The sizes that the graph was made for, where they may change."""
    found = tuple(size.node.hint if isinstance(size, torch.SymInt) else size for size in sizes)
    return None if None in found else found


# ----------------------------------------------------------------------------------------------------------- the costs


def cost_of(
    problem: GemmProblem | GemmGemmProblem,
    target: arch.Target,
    spares: Spared,
    gradient: Gradient,
    device: int | None = None,
) -> Cost | None:
    """Ours against torch's; None where two products in one would be planned as two.

    Args:
        spares: see `spared`.
        gradient: see `_gradient`.
        device: of the GPU, where there is one.
    """
    if isinstance(problem, GemmGemmProblem):
        return _cost_of_two(problem, target, spares, gradient)
    library = _of_library(problem, target)
    behind = _elementwise(problem, target, spares)
    for_gradient = _for_gradient(problem, library, target, gradient)
    measured = None if device is None else tuned.measured(dataclasses.replace(problem, device=device))
    if measured is not None and measured.library_microseconds is not None:
        scale = measured.library_microseconds / library
        torchs = measured.library_microseconds + behind * scale
        return Cost(measured.microseconds, torchs, "as tuned on this GPU", for_gradient * scale)
    return Cost(_cycles(problem, target), library + behind, "by the model", for_gradient)


def cost_of_all(
    problem, parts: list, target: arch.Target, spares: Spared, gradient: Gradient, device: int | None = None
) -> Cost | None:
    """The same of an op and of those whose results it takes; a part that has nothing to compute is None."""
    costs = [cost_of(problem, target, spares, gradient, device)]
    costs += [cost_of(part, target, Spared.NOTHING, gradient, device) for part in parts if part is not None]
    if None in costs:
        return None
    if len({cost.source for cost in costs}) > 1:  # microseconds and cycles do not add up
        return cost_of_all(problem, parts, target, spares, gradient)
    ours, torchs, more = (sum(getattr(cost, name) for cost in costs) for name in ("ours", "torchs", "for_gradient"))
    return Cost(ours, torchs, costs[0].source, more)


@functools.lru_cache(maxsize=1024)
def _cycles(problem: GemmProblem, target: arch.Target) -> float:
    """Of our product. A model has the same one in every layer."""
    return gemm.price(problem, target)


@functools.lru_cache(maxsize=1024)
def _cycles_of_two(problem: GemmGemmProblem, target: arch.Target) -> float | None:
    """Of our two products in one kernel; None where the planner would take two."""
    config, cycles, _ = gemm_gemm.decided(problem, target)
    return None if config is None else cycles


def _of_library(problem: GemmProblem, target: arch.Target) -> float:
    """Cycles of the library's plain products."""
    products = problem.products if problem.gate else problem.pairs
    return sum(_library(one, target) * _cycles(one, target) for one in map(_plain, products))


def _library(problem: GemmProblem, target: arch.Target) -> float:
    """The library's time for a plain product, of our model's."""
    aligned = min(problem.a_vec, problem.b_vec) * problem.a.itemsize == 16
    if target.family == "sm90" and problem.m <= _FEW_ROWS and aligned:
        return LIBRARY_FEW_ROWS
    pitches = (problem.k if problem.a_order == "k" else problem.m, problem.k if problem.b_order == "k" else problem.n)
    straddled = any(pitch * problem.a.itemsize % model.LINE_BYTES for pitch in pitches)
    return LIBRARY_STRADDLED if target.vendor == "nvidia" and straddled and aligned else LIBRARY


def _plain(problem: GemmProblem) -> GemmProblem:
    """The same without what torch's library leaves to another kernel."""
    return dataclasses.replace(problem, d=problem.a, activation=0, c=None, c_vec=1, multiply=None, multiply_vec=1)


def _cost_of_two(problem: GemmGemmProblem, target: arch.Target, spares: Spared, gradient: Gradient) -> Cost | None:
    ours = _cycles_of_two(problem, target)
    if ours is None:
        return None
    products = [_plain(dataclasses.replace(one, d=one.a)) for one in problem.products()]
    cycles = [_library(one, target) * _cycles(one, target) for one in products]
    has_between = problem.activation or problem.gate
    between = _elementwise(products[0], target, Spared.KERNEL if has_between else Spared.NOTHING)
    behind = _elementwise(products[-1], target, spares)
    for_gradient = 0.0 if gradient is Gradient.NONE else sum(cycles[:-1])
    return Cost(ours, sum(cycles) + between + behind, "by the model", for_gradient)


def spared(rewrite: Rewrite) -> Spared:
    """What Inductor would do in a kernel behind the last product, and need not, if the op did it."""
    last = rewrite.tensors.get("multiply") or rewrite.tensors.get("residual") or rewrite.tensors.get("c")
    made_for_it = isinstance(last, Node) and nodes.kind(last) in nodes.ELEMENTWISE and len(last.users) == 1
    if not rewrite.has_epilogue or made_for_it:  # that operand's own kernel could have done the rest
        return Spared.NOTHING
    if not nodes.goes_into_a_kernel(rewrite.anchor):
        return Spared.KERNEL
    return Spared.WRITE if len(rewrite.anchor.users) > 1 else Spared.NOTHING


def _elementwise(problem: GemmProblem, target: arch.Target, spares: Spared) -> float:
    """Cycles of what is spared: a kernel reads the product and what is put to it, and writes it again."""
    if spares is Spared.NOTHING:
        return 0.0
    elements = problem.batch * problem.m * problem.n
    memory = model.CARDS[target.name].memory
    if spares is Spared.WRITE:
        return elements * problem.d.itemsize / memory
    beside = problem.beside_bytes
    if problem.k2 or problem.gate:  # the other product
        beside += problem.d.itemsize
    return model.LAUNCH + elements * (2 * problem.d.itemsize + beside) / memory


def _gradient(rewrite: Rewrite) -> Gradient:
    if not value(rewrite.anchor).requires_grad:
        return Gradient.NONE
    twins = {"gemm": (GEMM_WITH_AUX, GATED_WITH_AUX), "linear": (LINEAR_WITH_AUX,)}.get(rewrite.op, ())
    tensors = {name: operand_value(x) for name, x in rewrite.tensors.items()}
    scalars = {"activation": 0} | rewrite.scalars
    return Gradient.KEPT if any(twin.fits(tensors, scalars) for twin in twins) else Gradient.AGAIN


def _for_gradient(problem: GemmProblem, library: float, target: arch.Target, gradient: Gradient) -> float:
    """Cycles of a result more, of what the activation is given, or of the product again."""
    multiplied = problem.multiply is not None or problem.gate
    if gradient is Gradient.NONE or (problem.activation in (0, 1) and not multiplied):
        return 0.0
    if gradient is Gradient.AGAIN:
        return library
    return problem.batch * problem.m * problem.columns * problem.d.itemsize / model.CARDS[target.name].memory


def _has_mask(node: Node) -> bool:
    """Whether torch's attention has a mask there."""
    return (nodes.arguments(node) or {}).get("attn_mask") is not None


def _attention_pays(
    problem: AttentionProblem, target: arch.Target, torchs_is_masked: bool, derives: bool = False
) -> tuple[bool, str]:
    half = problem.dtype in (torch.float16, torch.bfloat16)
    fused = target.family in _FUSED_ATTENTION and target.name != "gfx908"
    masked = problem.mask is not None
    ahead = not masked or (problem.mask in (torch.bool, problem.dtype) and max(problem.e, problem.ev) <= _WIDEST_MASKED)
    supported = warpgroup.supports(problem, target)
    if supported and torchs_is_masked and not masked:
        return True, f"torch would read a mask; ours on {target.name} needs none"
    if supported and masked and problem.skv % _MASK_WIDTH:
        return True, "torch would write the scores to memory: the rows of its mask are not aligned"
    if supported and derives and not masked and warpgroup_gradients.splits_queries(problem, target):
        return True, f"torch's gradients leave units of {target.name} without keys"
    if supported and derives and not masked and _WIDEST_EQUAL < max(problem.e, problem.ev) <= _WIDEST_MASKED:
        return False, f"torch's gradients on {target.name} are ahead of ours for this head size"
    if supported and ahead and min(problem.sq, problem.skv) >= _LEAST_ROWS:
        beside = " beside such a mask" if masked else ""
        return True, f"ours is the faster one on {target.name} from {_LEAST_ROWS} rows and keys on{beside}"
    if fused and half and max(problem.e, problem.ev) <= _WIDEST_FUSED:
        return False, f"torch has a fused attention for it on {target.name}, which is as fast"
    why = f"{target.name} has none in torch" if half and not fused else "it has none for this type or head size"
    return True, f"torch would write the scores to memory: {why}"
