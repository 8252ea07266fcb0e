"""Threads at the same time."""

import threading
from collections.abc import Callable, Sequence


def at_once(work: Callable, calls: Sequence[tuple]) -> None:
    """work(*call) for each, in a thread of its own. No one fails."""
    failures = []

    def caught(*call):
        try:
            work(*call)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=caught, args=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
