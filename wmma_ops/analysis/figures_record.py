"""What is told of a compiled kernel, and the limits that it is held to."""

import dataclasses
from dataclasses import dataclass


@dataclass(frozen=True)
class Mix:
    """What one wave executes in one iteration of a loop, conditional blocks included."""

    matrix: int = 0
    valu: int = 0
    lds: int = 0
    vmem: int = 0  # global, buffer, flat, scratch
    salu: int = 0
    smem: int = 0
    wait: int = 0  # barriers and what they do to caches too
    matrix_cycles: int | None = 0
    lds_bytes: int = 0  # of all lanes of the wave
    vmem_bytes: int = 0

    @property
    def instructions(self) -> int:
        return self.matrix + self.valu + self.lds + self.vmem + self.salu + self.smem + self.wait


@dataclass(frozen=True)
class Figures:
    """None where it is not known: hiprtc gives no assembly, NVIDIA publishes no cycles."""

    kernel: str
    target: str
    threads: int
    vgprs: int | None  # NVIDIA: registers of a thread
    agprs: int | None
    sgprs: int | None
    spills: int | None  # registers; NVIDIA: estimated from the stack
    scratch_bytes: int | None  # of a lane
    static_lds: int | None
    lds_bytes: int | None
    occupancy: float | None  # waves per SIMD; 0 where no block fits
    serialized: bool = False  # sm_90a: each of a warpgroup's products is waited for before the next is asked for
    instructions: int | None = None
    loop: Mix | None = None
    # One iteration of one block on one CU.
    matrix_cycles: float | None = None
    valu_cycles: float | None = None
    lds_cycles: float | None = None
    vmem_cycles: float | None = None
    share: float | None = None
    valu_ratio: float | None = None
    lds_ratio: float | None = None
    # In the hot loop.
    masked: int | None = None  # writes of the exec mask, and v_cndmask
    wide_address: int | None = None  # 64-bit integer arithmetic of the VALU
    branches: int | None = None  # conditional ones that stay in the loop

    def __str__(self) -> str:
        parts = [f"{_text(self.vgprs)} VGPRs"]
        if self.agprs:
            parts.append(f"{self.agprs} AGPRs")
        if self.spills or self.scratch_bytes:
            parts.append(f"{_text(self.spills)} spilled, {_text(self.scratch_bytes)} B scratch")
        parts.append(f"{_text(self.lds_bytes)} B LDS, occupancy {_text(self.occupancy)}")
        if self.serialized:
            parts.append("products one by one")
        if mix := self.loop:
            counts = ((mix.matrix, "matrix"), (mix.valu, "VALU"), (mix.lds, "LDS"), (mix.vmem, "memory"))
            parts.append("loop " + " + ".join(f"{count} {name}" for count, name in counts))
        if self.share is not None:
            parts.append(f"share {self.share:.0%}, VALU {self.valu_ratio:.2f}, LDS {self.lds_ratio:.2f}")
        for count, name in ((self.masked, "masked"), (self.wide_address, "wide"), (self.branches, "branches")):
            if count:
                parts.append(f"{count} {name}")
        return f"{self.kernel} on {self.target}: " + "; ".join(parts)

    def as_dict(self) -> dict:
        return dataclasses.asdict(self)


def limits(
    figures: Figures, *, share: float | None = None, valu: float | None = None, lds: float | None = None
) -> list[str]:
    """The rules that the kernel breaks: those of every kernel, and at least `share`, at most `valu` and `lds`."""
    broken = []
    if figures.spills:
        broken.append(f"{figures.spills} registers are spilled")
    if figures.scratch_bytes:
        broken.append(f"{figures.scratch_bytes} bytes of scratch")
    if figures.serialized:
        broken.append("ptxas waits for each of a warpgroup's products before the next")
    if figures.occupancy == 0:
        broken.append("no block fits a CU")
    if figures.masked:
        broken.append(f"{figures.masked} masked instructions in the hot loop")
    if figures.wide_address:
        broken.append(f"{figures.wide_address} 64-bit address instructions in the hot loop")
    if figures.loop is None and figures.instructions is not None and not (share is valu is lds is None):
        broken.append("no loop has matrix instructions")
    for name, value, most in (("VALU", figures.valu_ratio, valu), ("LDS", figures.lds_ratio, lds)):
        if None not in (value, most) and value > most:
            broken.append(f"{name}/matrix is {value:.3g}, more than {most:.3g}")
    if None not in (figures.share, share) and figures.share < share:
        broken.append(f"the matrix share is {figures.share:.3g}, less than {share:.3g}")
    return broken


def _text(value: float | None) -> str:
    return "?" if value is None else f"{value:g}"
