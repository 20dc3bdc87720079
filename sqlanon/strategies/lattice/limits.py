"""The limits of a search: how long it may take, and how many checks it may make."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from sqlanon.engines.deadline import InterruptedStatementError

GRACE = 0.5
"""Seconds that the statement under way has to end by itself after the time limit, before it is interrupted."""

FIRST_GRACE = 2.0
"""The same for statements without which a search has nothing to give."""


class LimitReachedError(Exception):
    """A search has reached one of its limits; it says which. A strategy catches it: its user is told by the outcome."""


@dataclass(frozen=True)
class Budget:
    """What a search may take. The first check begins whatever they say."""

    seconds: float | None = None
    checks: int | None = None

    def ends_at(self) -> float:
        """When a search that begins now has to end, by `time.monotonic`."""
        return float("inf") if self.seconds is None else time.monotonic() + self.seconds

    def refuse_over_time(self, checks: int, ends_at: float) -> None:
        """Raise an error where the time is over; ``checks`` were made."""
        if checks and time.monotonic() >= ends_at:
            raise LimitReachedError(f"time_limit = {self.seconds:g}")

    def refuse_over_limits(self, checks: int, ends_at: float) -> None:
        """Raise an error where no more than these checks may be made, or the time is over."""
        if self.checks is not None and checks >= self.checks:
            raise LimitReachedError(f"max_checks = {self.checks}")
        self.refuse_over_time(checks, ends_at)


@dataclass
class Clock:
    """A budget that is spent by several parts of a search, one after the other."""

    budget: Budget  # what they may take together
    checks: int = 0  # what they have counted
    _ends_at: float = field(init=False)
    _interruptible_at: float = field(init=False, default=float("inf"))

    def __post_init__(self) -> None:
        self._ends_at = self.budget.ends_at()

    @contextmanager
    def in_time(self, grace: float = GRACE) -> Iterator[None]:
        """Statements may be interrupted so many seconds after the time is over: that ends them as the limit does."""
        outer, self._interruptible_at = self._interruptible_at, self._ends_at + grace
        try:
            yield
        except InterruptedStatementError:
            self.refuse_over_time()
            raise
        finally:
            self._interruptible_at = outer

    def may_interrupt(self) -> bool:
        """Whether the statement under way may be interrupted now."""
        return time.monotonic() >= self._interruptible_at

    @property
    def remaining_seconds(self) -> float | None:
        """The seconds that are left; None without a limit."""
        return None if self.budget.seconds is None else max(self._ends_at - time.monotonic(), 0.0)

    def refuse_over_limits(self) -> None:
        """Raise an error where no more checks may be made, or the time is over."""
        self.budget.refuse_over_limits(self.checks, self._ends_at)

    def refuse_over_time(self) -> None:
        """Raise an error where the time is over, whatever was checked."""
        self.budget.refuse_over_time(1, self._ends_at)

    def spend(self) -> None:
        """Count a check."""
        self.refuse_over_limits()
        self.checks += 1

    @property
    def remaining_checks(self) -> int | None:
        """How many checks may still be made; None: as many as there is time for."""
        return None if self.budget.checks is None else max(self.budget.checks - self.checks, 0)
