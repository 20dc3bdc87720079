"""Limits of a search: time and number of checks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from sqlanon.engines.deadline import InterruptedStatementError

GRACE = 0.5
"""Seconds after the time limit until the running statement is interrupted."""

FIRST_GRACE = 2.0
"""The same for statements that a search needs to have any result."""


class LimitReachedError(Exception):
    """A search has reached the limit in the message. Strategies catch it and report the limit in their outcome."""


@dataclass(frozen=True)
class Budget:
    """Limits of a search. The first check always starts."""

    seconds: float | None = None
    checks: int | None = None

    def ends_at(self) -> float:
        """The end, by `time.monotonic`, of a search that starts now."""
        return float("inf") if self.seconds is None else time.monotonic() + self.seconds

    def refuse_over_time(self, checks: int, ends_at: float) -> None:
        """Raise `LimitReachedError` after the time limit, if a check was made."""
        if checks and time.monotonic() >= ends_at:
            raise LimitReachedError(f"time_limit = {self.seconds:g}")

    def refuse_over_limits(self, checks: int, ends_at: float) -> None:
        """Raise `LimitReachedError` if no check is left, or after the time limit."""
        if self.checks is not None and checks >= self.checks:
            raise LimitReachedError(f"max_checks = {self.checks}")
        self.refuse_over_time(checks, ends_at)


@dataclass
class Clock:
    """A budget shared by consecutive parts of a search."""

    budget: Budget
    checks: int = 0
    _ends_at: float = field(init=False)
    _interruptible_at: float = field(init=False, default=float("inf"))

    def __post_init__(self) -> None:
        self._ends_at = self.budget.ends_at()

    @contextmanager
    def in_time(self, grace: float = GRACE) -> Iterator[None]:
        """Let statements be interrupted ``grace`` seconds after the time limit, which raises `LimitReachedError`."""
        outer, self._interruptible_at = self._interruptible_at, self._ends_at + grace
        try:
            yield
        except InterruptedStatementError:
            self.refuse_over_time()
            raise
        finally:
            self._interruptible_at = outer

    @contextmanager
    def until_limit(self) -> Iterator[None]:
        """Run statements until a limit is reached, which ends the block without an error."""
        with suppress(LimitReachedError), self.in_time():
            yield

    def may_interrupt(self) -> bool:
        """Whether the running statement may be interrupted now."""
        return time.monotonic() >= self._interruptible_at

    @property
    def remaining_seconds(self) -> float | None:
        """The seconds left; None without a time limit."""
        return None if self.budget.seconds is None else max(self._ends_at - time.monotonic(), 0.0)

    @property
    def remaining_checks(self) -> int | None:
        """The checks left; None without a limit."""
        return None if self.budget.checks is None else max(self.budget.checks - self.checks, 0)

    def refuse_over_limits(self) -> None:
        """Raise `LimitReachedError` if no check is left, or after the time limit."""
        self.budget.refuse_over_limits(self.checks, self._ends_at)

    def refuse_over_time(self) -> None:
        """Raise `LimitReachedError` after the time limit."""
        self.budget.refuse_over_time(1, self._ends_at)

    def spend(self) -> None:
        """Count a check."""
        self.refuse_over_limits()
        self.checks += 1
