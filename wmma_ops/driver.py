"""Loads machine code and launches it through the GPU's driver API, found in the process at run time."""

import ctypes
import functools
import re

import torch


class DriverError(RuntimeError):
    """A driver call that failed, with the driver's own name for it."""


def is_amd() -> bool:
    return torch.version.hip is not None


@functools.cache
def _library() -> ctypes.CDLL:
    # torch has loaded its runtime already; a second one in the process would not share its devices.
    names = ("libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6") if is_amd() else ("libcuda.so.1",)
    tried = []
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            tried.append(f"{name}: {error}")
    raise DriverError("the GPU driver's library was not found: " + "; ".join(tried))


def _call(name: str, *arguments) -> None:
    prefix = "hip" if is_amd() else "cu"
    library = _library()
    status = getattr(library, prefix + name)(*arguments)
    if status:
        text = ctypes.c_char_p()
        if is_amd():
            library.hipGetErrorName.restype = ctypes.c_char_p
            text.value = library.hipGetErrorName(status)
        else:
            library.cuGetErrorName(status, ctypes.byref(text))
        raise DriverError(f"{prefix}{name} failed: {(text.value or b'unknown error').decode()} ({status})")


def target_of(index: int) -> str:
    """The target that code for a device is compiled for."""
    properties = torch.cuda.get_device_properties(index)
    if is_amd():
        return re.split(":", properties.gcnArchName)[0]
    major, minor = properties.major, properties.minor
    return "sm_90a" if (major, minor) == (9, 0) else f"sm_{major}{minor}"


class Function:
    """A kernel loaded on the current device, for as long as the process lives."""

    def __init__(self, handle: ctypes.c_void_p, target: str, module: ctypes.c_void_p):
        self.handle, self.target, self.module = handle, target, module
        self.shared = 0

    def launch(self, grid, block, values, shared: int, stream: int) -> None:
        """`values` are buffers that hold the arguments' bytes."""
        if shared > 48 * 1024 and shared > self.shared and not is_amd():
            _call("FuncSetAttribute", self.handle, 8, shared)  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self.shared = shared
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        name = "ModuleLaunchKernel" if is_amd() else "LaunchKernel"
        _call(name, self.handle, *map(ctypes.c_uint, (*grid, *block, shared)), ctypes.c_void_p(stream), pointers, None)


def load(code: bytes, name: str, target: str) -> Function:
    """Loads a code object or cubin on the current device."""
    torch.cuda.current_stream()  # the device's context exists
    module, handle = ctypes.c_void_p(), ctypes.c_void_p()
    _call("ModuleLoadData", ctypes.byref(module), code)
    _call("ModuleGetFunction", ctypes.byref(handle), module, name.encode())
    return Function(handle, target, module)
