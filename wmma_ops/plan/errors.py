"""What planning raises."""


class ConfigError(ValueError):
    """A problem that no configuration of this target's kernels fits, or a configuration that does not fit the target."""


class CaptureError(RuntimeError):
    """A kernel that would have to be compiled while a CUDA graph is captured."""
