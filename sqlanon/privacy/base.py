"""What a privacy requirement is to the rest: aggregates of a class, and a condition on them."""

from __future__ import annotations

from typing import Protocol

from sqlglot import exp

CLASS_SIZE = "class_size"
"""The column of a class that is always there: its number of rows."""


class Requirement(Protocol):
    """A condition that every equivalence class of a release has to meet."""

    @property
    def name(self) -> str:
        """What people call it, with its parameters: ``5-anonymity``."""
        ...

    @property
    def monotone(self) -> bool:
        """Whether merging classes never breaks it, suppression included: then the search may prune by it."""
        ...

    def class_aggregates(self) -> list[exp.Alias]:
        """Aggregates over the frequency set, by name; ``class_size`` is always there."""
        ...

    def condition(self) -> exp.Expr:
        """What a class has to meet, over ``class_size`` and the aggregates."""
        ...
