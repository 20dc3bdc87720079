"""What a report tells: figures and small tables. What everybody may see stands apart from what is for inside only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlanon.histogram import ClassSizes
from sqlanon.release.check import Check
from sqlanon.release.dependencies import Narrowing
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
    sizes: ClassSizes | None
    columns: tuple[Shown, ...]
    statements: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether no check failed."""
        return all(check.passed is not False for check in self.checks)


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
        By column, how its values are distributed in the source; of a source in PostgreSQL, those that were counted.
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
    warnings, dependencies:
        What the data holder should know before sharing; and the columns that narrow quasi-identifiers.
    """

    sizes: ClassSizes
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
    dependencies: tuple[Narrowing, ...] = ()
    compared: Sequence[Mapping[str, Any]] = field(default=())
