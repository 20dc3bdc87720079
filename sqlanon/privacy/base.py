"""What a privacy requirement is to the rest: aggregates of a class, and a condition on them."""

from __future__ import annotations

from typing import Protocol

from sqlglot import exp

CLASS_SIZE = "class_size"
"""The column of a class that is always there: its number of rows."""


class Requirement(Protocol):
    """A condition that every equivalence class of a release has to meet.

    The search takes it that merging classes never breaks it, and never makes more rows be suppressed.
    """

    @property
    def name(self) -> str:
        """What people call it, with its parameters: ``5-anonymity``."""
        ...

    @property
    def least_class(self) -> int:
        """No class of fewer rows ever meets it: that bounds what a search can find."""
        ...

    def class_aggregates(self) -> list[exp.Alias]:
        """Aggregates over the frequency set, by name; ``class_size`` is always there."""
        ...

    def condition(self) -> exp.Expr:
        """What a class has to meet, over ``class_size`` and the aggregates."""
        ...
