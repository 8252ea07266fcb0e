"""The skips of a run, told by their reasons: of a list with each place, nobody reads why."""

from collections import Counter
from collections.abc import Iterable


def by_reason(reports: Iterable) -> list[str]:
    """A line for each reason, with how many tests it kept from running; the commonest first."""
    reasons = [report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr) for report in reports]
    counted = Counter(" ".join(reason.removeprefix("Skipped: ").split()) for reason in reasons)
    return [f"{count:>6}  {reason}" for reason, count in counted.most_common()]
