"""Limits of a search: time and number of checks."""

from __future__ import annotations

import math
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


@dataclass
class Clock:
    """A budget that consecutive parts of a search share."""

    budget: Budget
    checks: int = 0
    _ends_at: float = field(init=False)
    _interruptible_at: float = field(init=False, default=math.inf)

    def __post_init__(self) -> None:
        self._ends_at = math.inf if self.budget.seconds is None else time.monotonic() + self.budget.seconds

    @contextmanager
    def in_time(self, grace: float = GRACE) -> Iterator[None]:
        """Let statements be interrupted ``grace`` seconds after the time limit, which raises `LimitReachedError`."""
        outer, self._interruptible_at = self._interruptible_at, self._ends_at + grace
        try:
            yield
        except InterruptedStatementError:
            self._refuse_after_end()
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
        if self.remaining_checks == 0:
            raise LimitReachedError(f"max_checks = {self.budget.checks}")
        self.refuse_over_time()

    def refuse_over_time(self) -> None:
        """Raise `LimitReachedError` after the time limit, if a check was made."""
        if self.checks:
            self._refuse_after_end()

    def _refuse_after_end(self) -> None:
        if time.monotonic() >= self._ends_at:
            raise LimitReachedError(f"time_limit = {self.budget.seconds:g}")

    def spend(self) -> None:
        """Count a check."""
        self.refuse_over_limits()
        self.checks += 1
