"""What a privacy requirement is to the rest: aggregates of an equivalence class, and a condition on them.

How far a requirement prunes the lattice follows from what merging does to it. Generalizing further merges classes.

- *Hereditary*: no part of a class that breaks it ever meets it. Then all rows of such a class are lost here and at
  every lower generalization: the number of suppressed rows never grows on the way up, with suppression too.
- *Closed under merging*: two classes that meet it, merged, meet it. Without suppression that is enough: above a
  generalization in which all classes meet it, all classes meet it. With suppression it is not: a class that meets it
  can merge with one that does not, and be lost. What remains true: a class that breaks it loses at least its
  `shortfall` here and at every lower generalization, whatever is suppressed there.

All requirements on classes are closed under merging where counts add up. They do, but for persons who are in several
combinations of quasi-identifiers: such a person, merged with itself, counts once. There only hereditary ones prune.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from sqlanon.expressions import col, number

CLASS_SIZE = "class_size"
"""The column of a class that is always there: its number of rows."""

CLASS_COUNT = "class_count"
"""What requirements count: the rows of a class, or its distinct persons."""

CLASS_POPULATION = "class_population"
"""The rows, or persons, of the population that a class matches."""

TOLERANCE = 1e-12
"""Comparisons at a border carry it: a class of exactly l equally frequent values is entropy l-diverse."""


def plain(value: float) -> str:
    """A number for a name: short, and never the same for two numbers.

    >>> plain(0.2), plain(3.0), plain(0.1000001)
    ('0.2', '3', '0.1000001')
    """
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


@dataclass(frozen=True)
class Distribution:
    """The values of a sensitive attribute within classes.

    Attributes
    ----------
    attribute:
        The sensitive attribute.
    kind:
        ``values``; ``nodes``: those of its hierarchy below the root, each with all values under it; ``joint``: values
        within equal values of the other sensitive attributes.
    """

    attribute: str
    kind: Literal["values", "nodes", "joint"] = "values"

    def name(self, figure: str) -> str:
        """The column of a class with one of the distribution's figures."""
        return f"{self.attribute} {self.kind} {figure}"

    def column(self, figure: str) -> exp.Column:
        """The same as an expression."""
        return col(self.name(figure))


class ClassRequirement(ABC):
    """A condition that every equivalence class of a release has to meet; classes that do not are suppressed."""

    hereditary: bool = False
    """Whether no part of a class that breaks it ever meets it."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What people call it, with its parameters: ``5-anonymity``."""

    @property
    def distribution(self) -> Distribution | None:
        """The sensitive values that it looks at, if it does."""
        return None

    @property
    def needs_domain(self) -> bool:
        """Whether it needs the columns of `frequency.distribution.domain` beside its figures."""
        return False

    @property
    def least_class(self) -> int:
        """No class of fewer rows ever meets it: that bounds what a search can find."""
        return 1

    def figures(self) -> Mapping[str, exp.Expr]:
        """Aggregates of a class's `distribution`, over ``v``, ``share`` and ``n``, by the name of the figure."""
        return {}

    def derived(self, least: int) -> Mapping[str, exp.Expr]:
        """What is worked out from the figures, once for a class: likewise by name."""
        return {}

    @abstractmethod
    def condition(self) -> exp.Expr:
        """What a class has to meet, over ``class_count``, ``class_population``, the figures and what is derived."""

    def shortfall(self) -> exp.Expr:
        """Of a class that breaks it: at most so many of its rows are lost, here and at every lower generalization."""
        return number(1)


class TableRequirement(ABC):
    """A condition on the kept classes together. It suppresses nothing."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What people call it, with its limit."""

    @abstractmethod
    def holds(self, classes: int, count: int, singles: int) -> bool:
        """Whether kept classes meet it."""
