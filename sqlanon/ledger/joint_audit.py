"""The queries of the joint audit, run step by step: what one statement has as parts of its own is made as tables, once
for all queries of two releases.

The engine knows the sizes of tables, and not of the parts of a statement; and what is too much to compare is noticed
while it is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.errors import ReleaseError
from sqlanon.expressions import Namer, aliased, col, create_table, drop_table, named, select, subquery, total
from sqlanon.ledger.joint_attacks import MEETING, complementary_victims, temporal
from sqlanon.ledger.linked import FIRST, ROWS, SECOND, is_met, met_name, of_several_levels, swapped_met
from sqlanon.ledger.side_by_side import Link

MOST_MEETING = 20_000_000
"""So many pairs of groups that can be the same rows are looked at: some gigabytes, where they are made."""


STANDS_FOR = "sqlanon rows"
"""The column of grouped rows that counts them: no column of a release has this name."""


def grouped(release: exp.Expr, columns: Sequence[str]) -> exp.Select:
    """The distinct rows of a release in some columns, and how many of its rows each stands for."""
    by: list[exp.Expr] = [col(name) for name in columns]
    count = named(exp.Count(this=exp.Star()), STANDS_FOR)
    return select([*by, count], aliased(release.copy(), "release"), [one.copy() for one in by])


@dataclass(frozen=True)
class JointAudit:
    """Two releases, and what of them is made already.

    Attributes
    ----------
    engine, work:
        Where, and the names of tables that are free there.
    linked:
        The releases.
    k:
        Fewer rows are found.
    """

    engine: Engine
    work: Namer
    linked: Link
    k: int
    _made: dict[str, exp.Expr] = field(default_factory=dict)
    _tables: list[exp.Table] = field(default_factory=list)

    @classmethod
    @contextmanager
    def of(cls, engine: Engine, work: Namer, linked: Link, k: int) -> Iterator[JointAudit]:
        """An audit, whose tables go with its context."""
        audit = cls(engine, work, linked, k)
        try:
            yield audit
        finally:
            for one in audit._tables:
                engine.execute(drop_table(one))

    def complementary(self) -> tuple[int, int]:
        """The combinations of fewer than k rows that both show together, and their rows."""
        linked = self.linked
        query = complementary_victims(
            linked.first, linked.second, linked.shared, linked.attributes, self.k, linked.count
        )
        combinations, rows = self._rows(query)[0]
        return combinations, rows

    def came(self) -> tuple[int, int]:
        """The classes of the second release with new rows, fewer than k, and these rows."""
        return self._few(self.linked)

    def gone(self) -> tuple[int, int]:
        """The classes of the first release with rows that the second does not have, fewer than k, and these rows."""
        linked = self.linked
        attributes = tuple(one.swapped for one in linked.attributes)
        swapped = replace(linked, first=linked.second, second=linked.first, attributes=attributes)
        met = met_name(len(of_several_levels(attributes)))
        made: dict[str, exp.Expr] = {
            other: self._made[name] for name, other in ((FIRST, SECOND), (SECOND, FIRST)) if name in self._made
        }
        if met in self._made:
            made[met] = subquery(swapped_met(self._made[met]))
        other = replace(self, _made=made)
        return other._few(swapped)

    def _few(self, linked: Link) -> tuple[int, int]:
        few = temporal(linked.first, linked.second, linked.shared, linked.attributes, self.k, linked.count)
        with_ = few.args.pop("with_")
        query = select([exp.Count(this=exp.Star()), total(col(ROWS))], subquery(few, "few"))
        query.set("with_", with_)
        classes, rows = self._rows(query)[0]
        return classes, rows or 0

    def _rows(self, query: exp.Select) -> list[tuple[Any, ...]]:
        """The rows of a query, whose parts are made first."""
        parts = {one.alias: one.this for one in query.args.pop("with_").expressions}
        return self.engine.rows(self._placed(query, parts))

    def _placed(self, query: exp.Expr, parts: dict[str, exp.Expr]) -> exp.Expr:
        """A query that reads tables in place of its parts; those that are not there yet are made."""

        def place(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Table) or node.args.get("db") or node.name not in {*parts, *self._made}:
                return node
            if node.name not in self._made:
                self._make(node.name, parts)
            made = self._made[node.name]
            return aliased(made, node.alias_or_name)

        return query.transform(place, copy=False)

    def _make(self, name: str, parts: dict[str, exp.Expr]) -> None:
        made = self._placed(parts[name].copy(), parts)
        assert isinstance(made, exp.Select)
        is_large = is_met(name) or name == MEETING
        if is_large:
            made = made.limit(MOST_MEETING + 1, copy=False)
        target = self.work(f"joint {len(self._tables)}")
        self.engine.execute(create_table(target.copy(), made))
        self._tables.append(target)
        self._made[name] = target
        if is_large and self.engine.rows(select([exp.Count(this=exp.Star())], target.copy()))[0][0] > MOST_MEETING:
            raise ReleaseError(
                f"more than {MOST_MEETING:,} pairs of their groups can be the same rows: too many to compare"
            )
