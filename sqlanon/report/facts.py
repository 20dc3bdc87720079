"""What a report tells: figures and small tables. What everybody may see stands apart from what is for inside only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlanon.release.check import Check
from sqlanon.release.class_sizes import ClassSizes
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
        Values that are not shown; and of these, those in fewer rows than may be shown.
    """

    bars: tuple[tuple[str, int], ...]
    values: int | None = None
    others: int = 0
    rare: int = 0


@dataclass(frozen=True)
class ReleasedColumn:
    name: str
    type: str
    role: str
    after: Distribution


@dataclass(frozen=True)
class Facts:
    """What everybody may see who has the release. Counts below ``few`` are not shown; of what is not published yet, the
    claims are what they would be; without ``sizes`` the file is not what it claims."""

    claims: Manifest
    published: bool
    few: int
    checks: tuple[Check, ...]
    sizes: ClassSizes | None
    columns: tuple[ReleasedColumn, ...]
    statements: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return all(check.passed is not False for check in self.checks)


@dataclass(frozen=True)
class GeneralizationFigures:
    """A generalization, with the figures of the search: its status is ``satisfies``, ``violates``, ``open``, or
    ``unseen``."""

    levels: tuple[int, ...]
    status: str
    classes: int | None = None
    suppressed_rows: int | None = None
    score: float | None = None
    frontier: bool = False
    chosen: bool = False


@dataclass(frozen=True)
class Inside:
    """What is for inside only: the source as it stands, and the search.

    ``before`` has the distributions in the source, of a source in PostgreSQL those that were counted; the level of a
    quasi-identifier is None where there are several; ``counted`` is a sample of the generalizations that were counted,
    with the frontier and the chosen one, and ``lattice`` all of them where they are few.
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
    counted: tuple[GeneralizationFigures, ...]
    lattice: tuple[GeneralizationFigures, ...]
    statement: str
    warnings: tuple[str, ...] = ()
    dependencies: tuple[Narrowing, ...] = ()
    compared: Sequence[Mapping[str, Any]] = field(default=())
