"""What loops cost, whose waves multiply by themselves, beside what their pipes move.

NVIDIA's is fitted with model.py's other weights. AMD's are fitted to the emulator's clock, by family, and written by
`python bench/fit_planner.py --write`.
"""

from wmma_ops.hardware import arch
from wmma_ops.plan.model import BLOCK, CROSSTALK, Way

_NVIDIA = Way(BLOCK, step=36, crosstalk=CROSSTALK["nvidia"], few=0.1)
WAYS = {
    "gfx90a": Way(block=4120, step=4, crosstalk=0.184, few=0.314, tile_bytes=64, round_trip=989, result_bytes=64),
    "gfx942": Way(block=300, step=4, crosstalk=0.01, few=0.72, tile_bytes=26.1, round_trip=1040, result_bytes=8.96),
    "gfx950": Way(
        block=3330, step=4, crosstalk=0.22, few=0.0676, tile_bytes=64, round_trip=1020, result_bytes=10.7, turns=0.0765
    ),
    "gfx1100": Way(
        block=300, step=41.4, crosstalk=0.226, few=0.01, tile_bytes=18.5, round_trip=1030, result_bytes=4.12
    ),
    "gfx1201": Way(block=300, step=135, crosstalk=0.821, few=0.01, tile_bytes=48, round_trip=1120, result_bytes=55.5),
}


def like(target: arch.Target) -> str:
    """Whose row is an AMD target's: of the cards that the clock knows, the one that is built like it."""
    if target.name in WAYS:
        return target.name
    return {"cdna": "gfx90a", "rdna3": "gfx1100", "rdna4": "gfx1201"}.get(target.family, "gfx950")


def by_waves(target: arch.Target) -> Way:
    return WAYS[like(target)] if target.vendor == "amd" else _NVIDIA
