"""What a report tells: figures and small tables. What everybody may see stands apart from what is for inside only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlanon.release.check import Check
from sqlanon.release.manifest import Manifest

FEW = 5
"""Without a k, what is in fewer rows than these is neither named nor counted."""


@dataclass(frozen=True)
class Distribution:
    """How the values of a column are distributed.

    Attributes
    ----------
    bars:
        Labels and their rows. Of numbers and dates with many values these are ranges.
    values:
        How many values there are; None where ranges are shown.
    others, rare:
        Values that are not shown; and of these, those in fewer rows than may be told.
    """

    bars: tuple[tuple[str, int], ...]
    values: int | None = None
    others: int = 0
    rare: int = 0


@dataclass(frozen=True)
class Sizes:
    """The equivalence classes by size.

    Attributes
    ----------
    by_size:
        Size in rows, and how many classes have it; ascending.

    >>> sizes = Sizes(((1, 3), (2, 1), (7, 2)))
    >>> sizes.rows, sizes.classes, sizes.smallest, sizes.rows_below(5)
    (19, 6, 1, 5)
    """

    by_size: tuple[tuple[int, int], ...]

    @property
    def rows(self) -> int:
        """All rows."""
        return sum(size * n for size, n in self.by_size)

    @property
    def classes(self) -> int:
        """All classes."""
        return sum(n for _, n in self.by_size)

    @property
    def smallest(self) -> int:
        """The rows of the smallest class; 0 without rows."""
        return self.by_size[0][0] if self.by_size else 0

    @property
    def highest_risk(self) -> float:
        """Of a row that somebody looks for: 1 / the size of its class."""
        return 1 / self.smallest if self.smallest else 0.0

    @property
    def average_risk(self) -> float:
        """The mean over all rows: classes / rows."""
        return self.classes / self.rows if self.rows else 0.0

    def rows_below(self, size: int) -> int:
        """The rows in classes of fewer rows."""
        return sum(one * n for one, n in self.by_size if one < size)

    def bins(self, few: int, apart: bool = False) -> list[tuple[int, int, int, int]]:
        """The classes by ranges of sizes, each twice as wide as the one before: low, high, classes, rows.

        Parameters
        ----------
        few:
            All sizes below it are one range.
        apart:
            Whether classes of one are a range of their own, nevertheless.

        >>> Sizes(((1, 3), (2, 1), (7, 2), (30, 1))).bins(5)
        [(1, 4, 4, 5), (5, 9, 2, 14), (10, 19, 0, 0), (20, 39, 1, 30)]
        >>> Sizes(((1, 3), (2, 1), (7, 2))).bins(5, apart=True)
        [(1, 1, 3, 3), (2, 4, 1, 2), (5, 9, 2, 14)]
        """
        largest = self.by_size[-1][0] if self.by_size else 0
        few = max(few, 2)
        ranges = [(1, 1), (2, few - 1)] if apart else [(1, few - 1)]
        while few <= largest:
            ranges.append((few, 2 * few - 1))
            few *= 2
        found = []
        for low, high in ranges:
            inside = [(size, n) for size, n in self.by_size if low <= size <= high]
            if low <= high:
                found.append((low, high, sum(n for _, n in inside), sum(size * n for size, n in inside)))
        return found


@dataclass(frozen=True)
class Shown:
    """A released column: its name, type and role, and what its values are like."""

    name: str
    type: str
    role: str
    after: Distribution


@dataclass(frozen=True)
class Facts:
    """What everybody may see who has the release.

    Attributes
    ----------
    claims:
        The release's manifest; of what is not published yet, what it would be.
    published:
        Whether it is a release file.
    few:
        Counts below it are not told.
    checks:
        The requirements, and what else is checked.
    sizes:
        Of the release; None where the file is not what it claims.
    columns:
        The released ones, in their order.
    statements:
        SQL for the reader.
    """

    claims: Manifest
    published: bool
    few: int
    checks: tuple[Check, ...]
    sizes: Sizes | None
    columns: tuple[Shown, ...]
    statements: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether no check failed."""
        return all(check.passed is not False for check in self.checks)

    @property
    def is_k(self) -> bool:
        """Whether `few` is the policy's own k."""
        return bool(self.claims.policy.get("privacy", {}).get("k") == self.few)


@dataclass(frozen=True)
class Looked:
    """A generalization that was looked at.

    Attributes
    ----------
    levels:
        In the policy's order.
    status:
        ``satisfies``, ``violates``, ``open``, or ``unseen``.
    """

    levels: tuple[int, ...]
    status: str
    classes: int | None = None
    suppressed_rows: int | None = None
    score: float | None = None
    frontier: bool = False
    chosen: bool = False


@dataclass(frozen=True)
class Inside:
    """What is for inside only.

    Attributes
    ----------
    sizes:
        Of the source as it stands.
    before:
        By column, how its values are distributed in the source.
    heights, generalization:
        By quasi-identifier the levels that its hierarchy has, and the level that was chosen; None: several.
    measure, allowed_rows:
        What was minimised, and the rows that may be suppressed.
    nodes, checked:
        Generalizations: how many there are, and how many were counted.
    statuses:
        Height, status, and how many generalizations have both.
    looked:
        A sample of those that were counted, with the frontier and the chosen one.
    lattice:
        All of them where they are few; else empty.
    compared:
        What strategies found, one row each; empty if none was asked for.
    statement:
        That makes the release.
    warnings:
        What the data holder should know before sharing.
    """

    sizes: Sizes
    before: Mapping[str, Distribution]
    heights: Mapping[str, int]
    generalization: Mapping[str, int | None]
    measure: str
    allowed_rows: int
    nodes: int
    checked: int
    statuses: tuple[tuple[int, str, int], ...]
    looked: tuple[Looked, ...]
    lattice: tuple[Looked, ...]
    statement: str
    warnings: tuple[str, ...] = ()
    compared: Sequence[Mapping[str, Any]] = field(default=())
