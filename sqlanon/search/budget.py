"""When a search stops before it is done."""

from __future__ import annotations

import time
from dataclasses import dataclass


class LimitReachedError(Exception):
    """A search has reached one of its limits; it says which. A strategy catches it: its user is told by the outcome."""


@dataclass(frozen=True)
class Budget:
    """What a search may take. The first check is made whatever they say; a check that has begun is finished.

    Parameters
    ----------
    seconds:
        Of wall time, from the making of the search.
    checks:
        Generalizations that are checked.
    """

    seconds: float | None = None
    checks: int | None = None

    def ends_at(self) -> float:
        """When a search that begins now has to end, by `time.monotonic`."""
        return float("inf") if self.seconds is None else time.monotonic() + self.seconds

    def refuse_late(self, checks: int, ends_at: float) -> None:
        """Raise an error where the time is over; ``checks`` were made."""
        if checks and time.monotonic() >= ends_at:
            raise LimitReachedError(f"time_limit = {self.seconds:g}")

    def refuse_more(self, checks: int, ends_at: float) -> None:
        """Raise an error where no more than these checks may be made, or the time is over."""
        if self.checks is not None and checks >= self.checks:
            raise LimitReachedError(f"max_checks = {self.checks}")
        self.refuse_late(checks, ends_at)
