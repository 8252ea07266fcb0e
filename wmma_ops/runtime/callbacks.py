"""What the library asks of Python: ops that it calls through the dispatcher. What answers is loaded when first asked.

    wmma::_plan        a problem → how it is launched (launching.py)
    wmma::_emulate     one launch of the emulator (launching.py)
    wmma::_mode        how calls in this thread run (csrc/launch/mode.hpp)
    wmma::_score_function  scores by a function of a user's own (ops/score_functions.py)
    wmma::_registered_activation  likewise an activation (ops/activations.py)
    wmma::_precision   torch's setting for float32 products, where torch does not tell the library itself
    wmma::_stream      the stream that torch launches on, likewise
    wmma::_raising     a tensor that raises, in place of a text, what failed in this thread (ops/raising.py)

A failure cannot cross the library's C interface with its words, so it is answered: −1, then the bytes of its text; −2
where the exception itself is to arrive: an interruption, or what a user's own function raised.
"""

import torch

from wmma_ops.hardware import arch
from wmma_ops.ops import activations, errors, raising, score_functions
from wmma_ops.ops.library import IMPLEMENTATIONS
from wmma_ops.runtime import driver, emulation, warming

# As in csrc/launch/mode.hpp.
RECORDS, ONLY_WARMS, STAND_IN = 256, 512, 1024

_TARGETS = list(arch.TARGETS)


def _plan(values: list[int]) -> list[int]:
    try:
        from wmma_ops.runtime import launching

        return launching.plan(values)
    except BaseException as error:
        return _failed(error)


def _emulate(*launch) -> list[int]:
    try:
        from wmma_ops.runtime import launching

        launching.emulate(*launch)
        return []
    except BaseException as error:
        return _failed(error)


def _score_function(*scores) -> list[int]:
    try:
        score_functions.apply_(*scores)
        return []
    except BaseException as error:
        return _failed(error)


def _registered_activation(x: torch.Tensor, code: int) -> list[int]:
    try:
        activations.apply_(x, code)
        return []
    except BaseException as error:
        return _failed(error)


def _mode(gpu: bool) -> int:
    active, mode = emulation.active(), 0
    if active is not None and not (gpu and active.execute):
        mode = _TARGETS.index(arch.target(active.target).name) + 1
        if not active.execute:
            mode |= RECORDS
    if warming.is_on():
        mode |= ONLY_WARMS
    if driver.stands_in():
        mode |= STAND_IN
    return mode


def _precision() -> int:
    return ("highest", "high", "medium").index(torch.get_float32_matmul_precision())


def _stream(device: int) -> int:
    count = torch.cuda.device_count()
    if not 0 <= device < count:
        raise errors.tagged(
            "_stream", "device", f"is {device}; takes the number of a GPU, of which there are {count}", ValueError
        )
    return torch.cuda.current_stream(device).cuda_stream


def _failed(error: BaseException) -> list[int]:
    whole = isinstance(error, errors.FunctionError) or not isinstance(error, Exception)
    if whole:
        raising.keep(error)
    return [-2 if whole else -1, *errors.packed(error).encode()]


def _raising(text: list[int]) -> torch.Tensor:
    if not all(0 <= byte < 256 for byte in text):
        raise errors.tagged("_raising", "text", "has other numbers; takes bytes, 0 to 255", ValueError)
    return raising.prepared(bytes(text).decode(errors="replace"))


for _function in (_plan, _emulate, _score_function, _registered_activation, _mode, _precision, _stream, _raising):
    IMPLEMENTATIONS["wmma"].impl(_function.__name__, _function, "CompositeExplicitAutograd")
