"""How much memory a kernel may ask for: of its constants and variables, of scratch memory, of its arguments."""

import os

from wmma_ops.emulator.errors import TooLarge

SETTING = "WMMA_OPS_EMULATED_MIB"
_MIB = 256


def check(what: str, size: int) -> None:
    """Raises TooLarge where `what` takes more bytes than the setting allows."""
    given = os.environ.get(SETTING, "")
    if given and not given.isdecimal():
        raise ValueError(f"{SETTING} is {given!r}; takes a number of MiB")
    limit = (int(given) if given else _MIB) << 20
    if size > limit:
        raise TooLarge(f"{what}: {size:,} bytes; the emulator gives a kernel up to {limit:,} ({SETTING} raises it)")
