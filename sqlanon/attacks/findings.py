"""The results of attacks: figures, and the SQL that shows the victims. They hold no rows and no values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class AvoidableGeneralization:
    """Generalization that a release could avoid at no cost in privacy: the rows, and the strategy that avoids it."""

    rows: int
    strategy: str


@dataclass(frozen=True)
class Finding:
    """The result of an attack on one release, or on two.

    Attributes
    ----------
    releases:
        The release files; ``source`` stands for the source table.
    victims, rows:
        The affected rows, and all released rows (with two releases: of the smaller one).
    sql:
        Statements that show the victims, for any DuckDB client. They are not run.
    figures:
        More figures of the attack: the sensitive ``attribute``, and counts.
    decoys:
        The number of decoys among the released rows (with two releases: of both). Readers cannot recognize them, so
        they count as victims, and in every class.
    kept:
        Detail that the release could keep, for `downcoding`, which has no victims.
    """

    releases: tuple[str, ...]
    victims: int
    rows: int
    sql: str
    figures: Mapping[str, Any] = field(default_factory=dict)
    decoys: int = 0
    kept: AvoidableGeneralization | None = None

    @property
    def share(self) -> float:
        """``victims / rows``, or 0 without rows."""
        return self.victims / self.rows if self.rows else 0.0

    def to_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        finer = {} if self.kept is None else {"could_be_finer": self.kept.rows, "strategy": self.kept.strategy}
        return {
            "releases": list(self.releases),
            "victims": self.victims,
            "share": self.share,
            **self.figures,
            **finer,
            "decoys": self.decoys,
            "sql": self.sql,
        }


@dataclass(frozen=True)
class Attack:
    """One attack.

    Attributes
    ----------
    name:
        ``homogeneity``, ...
    findings:
        One for each release, pair of releases, or sensitive attribute.
    skipped:
        Why findings are missing, or None.
    """

    name: str
    findings: tuple[Finding, ...] = ()
    skipped: str | None = None

    @property
    def worst(self) -> Finding | None:
        """The finding with the greatest share of victims."""
        return max(self.findings, key=lambda finding: (finding.share, finding.victims), default=None)

    @property
    def victims(self) -> int | None:
        """The victims of the worst finding."""
        return None if self.worst is None else self.worst.victims

    @property
    def share(self) -> float | None:
        """The share of the worst finding."""
        return None if self.worst is None else self.worst.share

    @property
    def sql(self) -> str | None:
        """The SQL of the worst finding."""
        return None if self.worst is None else self.worst.sql

    def to_dict(self) -> dict[str, Any]:
        """The worst finding, for JSON; with several findings, all of them, too."""
        if self.worst is None:
            return {"victims": None, "share": None, "sql": None, "skipped": self.skipped}
        several = {"findings": [finding.to_dict() for finding in self.findings]} if len(self.findings) > 1 else {}
        return self.worst.to_dict() | several | ({"skipped": self.skipped} if self.skipped else {})


@dataclass(frozen=True)
class Attacks(Mapping[str, Attack]):
    """The results of all attacks, by name.

    Attributes
    ----------
    attacks:
        The attacks, in the order of `NAMES`.
    decoys:
        The number of decoys, by release file, for releases that have any.
    """

    attacks: tuple[Attack, ...]
    decoys: Mapping[str, int] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Attack:
        return {attack.name: attack for attack in self.attacks}[name]

    def __iter__(self) -> Iterator[str]:
        return iter([attack.name for attack in self.attacks])

    def __len__(self) -> int:
        return len(self.attacks)

    def to_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return {attack.name: attack.to_dict() for attack in self.attacks}
