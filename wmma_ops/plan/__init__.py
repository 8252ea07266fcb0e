"""From a product to its kernels: what is chosen, why, and with what code."""

from wmma_ops.plan import launching  # noqa: F401  (its import registers the ops that the library calls)
from wmma_ops.plan.errors import CaptureError, ConfigError
from wmma_ops.plan.explain import Explanation, LaunchRecord, Step, explain, warmup
from wmma_ops.plan.plan import KernelLaunch, Plan
from wmma_ops.plan.problem import GemmProblem
from wmma_ops.plan.tuning import Timing, tune

__all__ = [
    "CaptureError",
    "ConfigError",
    "Explanation",
    "GemmProblem",
    "KernelLaunch",
    "LaunchRecord",
    "Plan",
    "Step",
    "Timing",
    "explain",
    "tune",
    "warmup",
]
