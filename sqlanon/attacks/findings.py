"""What attacks on releases find: figures, and the SQL that shows the victims. No row, and no value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Kept:
    """Detail that a release could keep at no price in privacy: the rows, and the strategy that keeps it."""

    rows: int
    strategy: str


@dataclass(frozen=True)
class Finding:
    """What an attack finds in one release, or in two.

    Attributes
    ----------
    releases:
        The files; ``source`` is the private table.
    victims, rows:
        The released rows that are given away, and all released rows (of two releases: of the smaller).
    sql:
        Shows the victims: statements for any DuckDB client. They are not run here.
    figures:
        More figures of the attack: the sensitive ``attribute``, and counts.
    decoys:
        How many of the released rows (of two releases: of both) are rows of nobody. No reader can tell which: they are
        counted among the victims, and in every class, as all rows are.
    kept:
        What the release could show more of, where the attack looks for that; then nobody is a victim.
    """

    releases: tuple[str, ...]
    victims: int
    rows: int
    sql: str
    figures: Mapping[str, Any] = field(default_factory=dict)
    decoys: int = 0
    kept: Kept | None = None

    @property
    def share(self) -> float:
        """The victims by the rows; 0 of no rows."""
        return self.victims / self.rows if self.rows else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        own = {"releases": list(self.releases), "victims": self.victims, "share": self.share}
        kept = {} if self.kept is None else {"could_be_finer": self.kept.rows, "strategy": self.kept.strategy}
        return own | dict(self.figures) | kept | {"decoys": self.decoys, "sql": self.sql}


@dataclass(frozen=True)
class Attack:
    """One attack.

    Attributes
    ----------
    name:
        ``homogeneity``, ...
    findings:
        One for each release, pair of releases, or sensitive attribute that it applies to.
    skipped:
        Why there is none, or not of all of them; else None.
    """

    name: str
    findings: tuple[Finding, ...] = ()
    skipped: str | None = None

    @property
    def worst(self) -> Finding | None:
        """The finding with the greatest share of victims."""
        return max(self.findings, key=lambda one: (one.share, one.victims), default=None)

    @property
    def victims(self) -> int | None:
        """Those of the worst finding."""
        return None if self.worst is None else self.worst.victims

    @property
    def share(self) -> float | None:
        """That of the worst finding."""
        return None if self.worst is None else self.worst.share

    @property
    def sql(self) -> str | None:
        """That of the worst finding."""
        return None if self.worst is None else self.worst.sql

    def to_dict(self) -> dict[str, Any]:
        """The worst finding, ready for JSON; all of them where there are several."""
        if self.worst is None:
            return {"victims": None, "share": None, "sql": None, "skipped": self.skipped}
        partly = {"skipped": self.skipped} if self.skipped else {}
        several = {"findings": [one.to_dict() for one in self.findings]} if len(self.findings) > 1 else {}
        return self.worst.to_dict() | several | partly


@dataclass(frozen=True)
class Attacks(Mapping[str, Attack]):
    """All attacks on some releases, by name.

    Attributes
    ----------
    attacks:
        Each of them, in the order of `NAMES`.
    decoys:
        The rows of nobody, by the file of each release that has some.
    """

    attacks: tuple[Attack, ...]
    decoys: Mapping[str, int] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Attack:
        return {one.name: one for one in self.attacks}[name]

    def __iter__(self) -> Iterator[str]:
        return iter([one.name for one in self.attacks])

    def __len__(self) -> int:
        return len(self.attacks)

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {one.name: one.to_dict() for one in self.attacks}
