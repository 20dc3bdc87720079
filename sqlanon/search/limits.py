"""The limits of a search: how long it may take, and how many checks it may make."""

from __future__ import annotations

import time
from dataclasses import field

from sqlanon.records import dataclass


class LimitReachedError(Exception):
    """A search has reached one of its limits; it says which. A strategy catches it: its user is told by the outcome."""


@dataclass(frozen=True)
class Budget:
    """What a search may take. The first check is made whatever they say; a check that has begun is finished."""

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


@dataclass
class Clock:
    """A budget that is spent by several parts of a search, one after the other."""

    budget: Budget  # what they may take together
    checks: int = 0  # what they have counted
    _ends_at: float = field(init=False)

    def __post_init__(self) -> None:
        self._ends_at = self.budget.ends_at()

    def refuse_more(self) -> None:
        """Raise an error where no more checks may be made, or the time is over."""
        self.budget.refuse_more(self.checks, self._ends_at)

    def refuse_late(self) -> None:
        """Raise an error where the time is over, whatever was checked."""
        self.budget.refuse_late(1, self._ends_at)

    def spend(self) -> None:
        """Count a check."""
        self.refuse_more()
        self.checks += 1

    @property
    def left(self) -> int | None:
        """How many checks may still be made; None: as many as there is time for."""
        return None if self.budget.checks is None else max(self.budget.checks - self.checks, 0)
