"""What attacks are made with: releases, beside what their holder has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, TypeAlias

from sqlglot import exp

from sqlanon.attacks.private import Private
from sqlanon.attacks.report import Finding
from sqlanon.attacks.shown import Shown
from sqlanon.engines.base import Engine
from sqlanon.expressions import col, named, or_zero, select, subquery, total
from sqlanon.ledger.linked import ROWS, Linked
from sqlanon.ledger.side_by_side import NO_TREES, Link, Subject, Trees, link, strange_columns

Found: TypeAlias = "tuple[list[Finding], list[str]]"
"""What an attack finds; and why it cannot look, or not everywhere."""


@dataclass(frozen=True)
class Attacker:
    """What attacks are made with.

    Attributes
    ----------
    engine, subjects, shown:
        Where, on which releases, and how queries are shown.
    private:
        What the data holder has beside them; None without a policy.
    known:
        How many sensitive values the adversary can rule out.
    counts:
        Whether queries are run; else figures are all 0, and the SQL is what counts.
    """

    engine: Engine
    subjects: Sequence[Subject]
    shown: Shown
    private: Private | None = None
    known: int = 1
    counts: bool = True

    @property
    def trees(self) -> Trees:
        """The hierarchies that are known."""
        return self.private.trees if self.private is not None else NO_TREES

    @property
    def decoys(self) -> dict[str, int]:
        """How many of the released rows are rows of nobody, by the file of each release that has such."""
        return {str(one.path): one.manifest.decoys for one in self.subjects if one.manifest.decoys}

    def figures(self, query: exp.Query) -> dict[str, Any]:
        """The one row of a query, by name; zeros where nothing is run."""
        names = query.named_selects
        row = self.engine.rows(query)[0] if self.counts else (0,) * len(names)
        return dict(zip(names, row, strict=True))

    def victims(self, query: exp.Select) -> int:
        """The rows of all victims that a query finds."""
        rows = select([named(or_zero(total(col(ROWS))), "victims")], subquery(query.copy(), "v"))
        return int(self.figures(rows)["victims"])

    def pairs(self) -> Iterator[tuple[Subject, Subject, Link]]:
        """All pairs of releases, the earlier first."""
        ordered = sorted(self.subjects, key=lambda one: one.manifest.published_at)
        for first, second in combinations(ordered, 2):
            yield first, second, link(first, second, self.trees)


def why_strange(attacker: Attacker, subject: Subject, attributes: Sequence[Linked]) -> str | None:
    """Why the labels of a release cannot be compared with others; None: they can."""
    names = strange_columns(attacker.engine, subject, attributes) if attacker.counts else []
    if not names:
        return None
    listed = ", ".join(map(repr, names))
    shows = f"{subject.path} shows sets, medians, other values or many ranges of {listed}"
    return f"needs labels that are in the hierarchies: {shows}"
