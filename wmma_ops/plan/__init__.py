"""From a product to its kernels: what is chosen, why, and with what code."""

from wmma_ops.ops.errors import CaptureError, ConfigError
from wmma_ops.plan.plan import KernelLaunch, Plan
from wmma_ops.plan.problem import GemmProblem

__all__ = ["CaptureError", "ConfigError", "GemmProblem", "KernelLaunch", "Plan"]
