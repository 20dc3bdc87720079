"""The audit of two releases for fewer than k rows.

The parts of its queries are made as tables, once for all queries: the engine knows the sizes of tables, but not of
parts of a statement, and too many pairs to compare show early.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.errors import NotComparedError
from sqlanon.ledger.joint.attacks import (
    MEETING,
    UNMATCHED,
    bound_unmatched_rows,
    count_complementary_victims,
    few_new_rows_in_classes,
    labelled_unmatched,
)
from sqlanon.ledger.joint.class_unions import REGIONS, few_new_rows_in_unions, make_regions, swap_releases
from sqlanon.ledger.joint.overlap_flows import StepBudget, TooManyStepsError
from sqlanon.ledger.joint.overlaps import (
    MOST_COMBINATIONS,
    OverlapGraph,
    Overlaps,
    find_overlaps,
    make_graph,
    too_many_steps,
)
from sqlanon.ledger.joint.part_requirements import (
    SHARED_ROWS,
    NewRows,
    Part,
    SharedRequirement,
    find_violating_parts,
    labelled_shared_rows,
    shared_rows,
)
from sqlanon.ledger.joint.row_matching import (
    FIRST,
    SECOND,
    ReleaseLink,
    comparison_parts,
    is_matching_prefixes,
    matching_prefixes_name,
    swap_matching_prefixes,
)
from sqlanon.support.expressions import Namer, aliased, create_table, drop_table, subquery, template

MOST_MEETING = 20_000_000
"""The most pairs of groups that can be the same rows: they take some gigabytes."""

MOST_LISTED = 20_000
"""The most groups with new rows that a statement for people lists."""

_FEW = template("SELECT count(*), sum(n)::BIGINT FROM :few AS few")
_COUNT = template("SELECT count(*) FROM :rows")


@dataclass(frozen=True)
class PairAudit:
    """The audit of two releases for fewer than k rows.

    ``_parts`` are the parts of its queries that were made as tables, and ``_queries`` those that all its queries read.
    """

    engine: Engine
    work: Namer
    linked: ReleaseLink
    k: int
    _parts: dict[str, exp.Expr] = field(default_factory=dict)
    _queries: dict[str, exp.Query] = field(default_factory=dict)
    _tables: list[exp.Table] = field(default_factory=list)
    _graphs: list[OverlapGraph] = field(default_factory=list)
    _budget: StepBudget = field(default_factory=StepBudget)

    @classmethod
    @contextmanager
    def open(cls, engine: Engine, work: Namer, linked: ReleaseLink, k: int) -> Iterator[PairAudit]:
        """An audit, whose tables are dropped at the end of its context."""
        audit = cls(engine, work, linked, k)
        try:
            yield audit
        finally:
            for one in audit._tables:
                engine.execute(drop_table(one))

    def leave_few_steps(self) -> None:
        """Follow flows no longer than is worth it where the release is refused already."""
        self._budget.leave_few()

    def count_combinations(self) -> tuple[int, int]:
        """The combinations of fewer than k rows that both show together, and their rows."""
        combinations, rows = self._rows(count_complementary_victims(self.linked, self.k))[0]
        return combinations, rows

    def find_overlaps(self) -> Overlaps:
        """What overlapping classes share by the counts of both; `violations` of what is joined by counts reads it."""
        graph = self._graph()
        overlaps = find_overlaps(self.engine, self.linked, self.k, graph, self._parts[FIRST], self._parts[SECOND])
        self._make(SHARED_ROWS, shared_rows(overlaps.bounds))
        return overlaps

    def count_new_rows(self, part: NewRows) -> tuple[int, int]:
        """The classes of the second release, or the unions, with new rows, but fewer than k; and these rows."""
        self._need(part)
        if part == "new":
            return self._few(few_new_rows_in_classes(self.linked, self.k))
        return self._few(few_new_rows_in_unions(self.linked, self.k, part))

    def count_violations(self, wanted: SharedRequirement, part: Part) -> tuple[int, int]:
        """The parts that break a requirement, and their rows."""
        self._need(part)
        return self._few(find_violating_parts(self.linked, wanted, part, numbers=True))

    def _need(self, part: Part) -> None:
        """Make what the query of a part reads besides `comparison_parts`."""
        if part in ("new", "region"):
            self._need_unmatched()
        if part == "region":
            self._need_regions()

    def _graph(self) -> OverlapGraph:
        """The graph of groups, made once."""
        if not self._graphs:
            self.with_tables(count_complementary_victims(self.linked, self.k))
            graph = make_graph(self.engine, self.work, self.linked, self._parts[MEETING], self._budget)
            self._graphs.append(graph)
            self._tables.extend(graph.tables)
        return self._graphs[0]

    def _need_unmatched(self) -> None:
        if self.linked.multilevel_attributes and UNMATCHED not in self._parts:
            graph = self._graph()
            try:
                self._make(UNMATCHED, bound_unmatched_rows(graph, self._parts[FIRST], self._parts[SECOND]))
            except TooManyStepsError:
                raise too_many_steps(graph) from None

    def list_shared_rows(self, wanted: SharedRequirement) -> list[tuple[Any, ...]]:
        """What `readable_violations` needs to show the joined classes that break a requirement by counts."""
        return self._rows(labelled_shared_rows(self.linked, wanted, MOST_COMBINATIONS))

    def list_unmatched(self) -> list[tuple[Any, ...]]:
        """What `temporal`, `readable_unions` and `readable_violations` need to show new rows, where labels are of
        several
        levels.

        Raises
        ------
        NotComparedError
            The groups are too many to decide it, or to list them.
        """
        if not self.linked.multilevel_attributes:
            return []
        self._need_unmatched()
        rows = self._rows(labelled_unmatched(self.linked).limit(MOST_LISTED + 1))
        if len(rows) > MOST_LISTED:
            raise NotComparedError(f"more than {MOST_LISTED:,} groups can have new rows: too many for a statement")
        return rows

    def _need_regions(self) -> None:
        if REGIONS not in self._parts:
            regions = make_regions(self.engine, self.work, self.linked, self.with_tables)
            self._tables.append(regions)
            self._parts[REGIONS] = regions

    @property
    def swapped(self) -> PairAudit:
        """The same for the rows that are gone, with what was made for those that came."""
        swapped, theirs = self.linked.swapped, {FIRST: SECOND, SECOND: FIRST}
        parts: dict[str, exp.Expr] = {theirs[name]: self._parts[name] for name in theirs if name in self._parts}
        met = matching_prefixes_name(len(swapped.multilevel_attributes))
        if met in self._parts:
            parts[met] = subquery(swap_matching_prefixes(self._parts[met]))
        if REGIONS in self._parts:
            parts[REGIONS] = subquery(swap_releases(self._parts[REGIONS]))
        if UNMATCHED in self._parts:
            parts[UNMATCHED] = subquery(swap_releases(self._parts[UNMATCHED]))
        return replace(self, linked=swapped, _parts=parts, _queries={}, _graphs=[])

    def _few(self, query: exp.Select) -> tuple[int, int]:
        """How many rows a query finds, and the sum of their ``n``."""
        with_ = query.args.pop("with_", None)
        counted = _FEW(few=query)
        counted.set("with_", with_)
        found, rows = self._rows(counted)[0]
        return found, rows or 0

    def with_tables(self, query: exp.Select) -> exp.Select:
        """A query that reads tables in place of its parts."""
        with_ = query.args.pop("with_", None)
        placed = self._placed(query, {one.alias: one.this for one in with_.expressions} if with_ else {})
        assert isinstance(placed, exp.Select)
        return placed

    def _rows(self, query: exp.Select) -> list[tuple[Any, ...]]:
        """The rows of a query, whose parts are made first."""
        return self.engine.rows(self.with_tables(query))

    def _placed(self, query: exp.Expr, own: dict[str, exp.Expr]) -> exp.Expr:
        """A query that reads tables in place of its parts, its own and those of both releases; those that are not there
        yet are made."""

        def place(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Table) or node.args.get("db"):
                return node
            if node.name not in self._parts:
                part = own.get(node.name) or self._query(node.name)
                if part is None:
                    return node
                self._make(node.name, self._placed(part.copy(), own))
            return aliased(self._parts[node.name], node.alias_or_name)

        return query.transform(place, copy=False)

    def _query(self, name: str) -> exp.Query | None:
        """What a part of both releases is."""
        if not self._queries:
            self._queries.update(comparison_parts(self.linked, "numbers"))
        return self._queries.get(name)

    def _make(self, name: str, query: exp.Expr) -> None:
        assert isinstance(query, exp.Query)
        is_large = is_matching_prefixes(name) or name == MEETING
        if is_large:
            query = query.limit(MOST_MEETING + 1, copy=False)
        target = self.work(f"joint {len(self._tables)}")
        self.engine.execute(create_table(target.copy(), query))
        self._tables.append(target)
        self._parts[name] = target
        if is_large and self.engine.rows(_COUNT(rows=target))[0][0] > MOST_MEETING:
            raise NotComparedError(
                f"more than {MOST_MEETING:,} pairs of their groups can be the same rows: too many to compare"
            )
