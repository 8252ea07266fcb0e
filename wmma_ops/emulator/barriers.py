"""A block's barrier as the hardware counts it: it completes when all waves that have not ended have signalled, each wherever
its own instructions stand. A wave's `signals` and `waits` count those that it has announced and those that it has passed."""

from wmma_ops.emulator.errors import DivergentBarrier


def signal(wave) -> None:
    if wave.signals > wave.waits:
        raise DivergentBarrier(
            "this wave signals its block's barrier a second time, with no wait for the first between"
        )
    wave.signals += 1


def wait(wave, waves) -> None:
    """Of split barriers."""
    if wave.signals == wave.waits:
        raise DivergentBarrier(
            "this wave waits at a barrier that it has not signalled, which never completes" + waiting(waves)
        )


def release(waves) -> None:
    """Lets those go on that wait at a barrier which has completed."""
    live = [wave for wave in waves if not wave.done]
    completed = min((wave.signals for wave in live), default=0)
    released, acquired = max(wave.released for wave in waves), max(wave.acquired for wave in waves)
    for wave in live:
        if wave.waiting and wave.waits < completed:
            wave.waits += 1
            wave.waiting = False
            wave.released, wave.acquired = released, acquired  # as global_races.py has it


def waiting(waves) -> str:
    """Who waits where, in words."""
    places: dict[str, list[int]] = {}
    for wave in waves:
        if wave.waiting:
            places.setdefault(wave.stopped, []).append(wave.index)
    return "".join(
        f"; wave{'s' * (len(who) > 1)} {', '.join(map(str, who))} wait{'s' * (len(who) == 1)} at {place}"
        for place, who in places.items()
    )
