"""The audit of two releases for fewer than k rows.

The parts of its queries are stored as tables, once for all queries: the engine knows the sizes of tables, but not those
of parts of a statement, and a comparison of too many pairs is noticed early.
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
    MATCHING_GROUPS,
    REGIONS,
    UNMATCHED,
    bound_unmatched_rows,
    count_complementary_victims,
    few_new_rows_in_classes,
    few_new_rows_in_unions,
    labelled_unmatched,
    make_regions,
)
from sqlanon.ledger.joint.label_pairs import FIRST, SECOND
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
    ReleaseLink,
    comparison_parts,
    is_matching_prefixes,
    matching_prefixes_name,
)
from sqlanon.support.expressions import Namer, aliased, create_table, drop_table, row_count, subquery, template

MOST_MATCHING_PAIRS = 20_000_000
"""The most matching pairs of groups: they take some gigabytes."""

MOST_LISTED = 20_000
"""The most groups with new rows that a readable statement lists."""


@dataclass(frozen=True)
class PairAudit:
    """The audit of two releases for fewer than k rows.

    ``_parts`` are the stored parts of its queries, by name, and ``_queries`` the parts that all its queries read.
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
        """An audit whose tables are dropped at the end of its context."""
        audit = cls(engine, work, linked, k)
        try:
            yield audit
        finally:
            for target in audit._tables:
                engine.execute(drop_table(target))

    @property
    def in_reverse(self) -> PairAudit:
        """The audit of the releases in reverse order, for rows that are gone; it reuses the stored parts."""
        swapped, prefixes = self.linked.in_reverse, matching_prefixes_name(len(self.linked.multilevel_attributes))
        counterparts = {FIRST: SECOND, SECOND: FIRST}
        parts = {counterparts[name]: part for name, part in self._parts.items() if name in counterparts}
        if prefixes in self._parts:
            query = template("""
                SELECT second_prefix AS first_prefix, first_prefix AS second_prefix
                FROM :prefixes AS m
            """)(prefixes=self._parts[prefixes])
            parts[prefixes] = subquery(query)
        for name in (REGIONS, UNMATCHED):
            if name in self._parts:
                query = template("SELECT * REPLACE (NOT is_first AS is_first) FROM :rows AS r")(rows=self._parts[name])
                parts[name] = subquery(query)
        return replace(self, linked=swapped, _parts=parts, _queries={}, _graphs=[])

    def leave_few_steps(self) -> None:
        """Limit the search of flows where the release is refused anyway."""
        self._budget.leave_few()

    def count_combinations(self) -> tuple[int, int]:
        """The combinations of fewer than k rows that both releases show together, and their rows."""
        combinations, rows = self._rows(count_complementary_victims(self.linked, self.k))[0]
        return combinations, rows

    def find_overlaps(self) -> Overlaps:
        """The rows that overlapping classes share by the counts of both; `count_violations` of classes joined by counts
        reads them."""
        graph = self._graph()
        overlaps = find_overlaps(self.engine, self.linked, self.k, graph, self._parts[FIRST], self._parts[SECOND])
        self._store(SHARED_ROWS, shared_rows(overlaps.bounds))
        return overlaps

    def count_new_rows(self, part: NewRows) -> tuple[int, int]:
        """The classes of the second release, or the unions, with some new rows but fewer than k; and these rows."""
        self._store_parts_of(part)
        if part == "new":
            return self._count_few(few_new_rows_in_classes(self.linked, self.k))
        return self._count_few(few_new_rows_in_unions(self.linked, self.k, part))

    def count_violations(self, requirement: SharedRequirement, part: Part) -> tuple[int, int]:
        """The parts that violate a requirement, and their rows."""
        self._store_parts_of(part)
        return self._count_few(find_violating_parts(self.linked, requirement, part))

    def list_shared_rows(self, requirement: SharedRequirement) -> list[tuple[Any, ...]]:
        """The rows with which `readable_violations` lists the joined classes that violate a requirement by counts."""
        return self._rows(labelled_shared_rows(self.linked, requirement, MOST_COMBINATIONS))

    def list_unmatched(self) -> list[tuple[Any, ...]]:
        """The rows with which `temporal_attack`, `readable_unions` and `readable_violations` list new rows.

        Empty where all labels have one level.

        Raises
        ------
        NotComparedError
            There are too many groups to compare, or to list.
        """
        if not self.linked.multilevel_attributes:
            return []
        self._store_unmatched()
        rows = self._rows(labelled_unmatched(self.linked).limit(MOST_LISTED + 1))
        if len(rows) > MOST_LISTED:
            raise NotComparedError(f"more than {MOST_LISTED:,} groups can have new rows: too many for a statement")
        return rows

    def with_tables(self, query: exp.Select) -> exp.Select:
        """Make a query read stored tables in place of its parts; missing tables are made."""
        with_ = query.args.pop("with_", None)
        rewritten = self._replace_parts(query, {cte.alias: cte.this for cte in with_.expressions} if with_ else {})
        assert isinstance(rewritten, exp.Select)
        return rewritten

    def _rows(self, query: exp.Select) -> list[tuple[Any, ...]]:
        return self.engine.rows(self.with_tables(query))

    def _count_few(self, query: exp.Select) -> tuple[int, int]:
        """The number of rows of a query, and the sum of their ``row_count``."""
        with_ = query.args.pop("with_", None)
        count_query = template("SELECT count(*), coalesce(sum(row_count)::BIGINT, 0) FROM :few AS few")(few=query)
        count_query.set("with_", with_)
        parts, rows = self._rows(count_query)[0]
        return parts, rows

    def _graph(self) -> OverlapGraph:
        """The graph of groups, made once."""
        if not self._graphs:
            self.with_tables(count_complementary_victims(self.linked, self.k))
            graph = make_graph(self.engine, self.work, self.linked, self._parts[MATCHING_GROUPS], self._budget)
            self._graphs.append(graph)
            self._tables.extend((graph.edges, graph.components, graph.irregular))
        return self._graphs[0]

    def _store_parts_of(self, part: Part) -> None:
        """Store the tables that the query of a part reads besides `comparison_parts`."""
        if part in ("new", "region"):
            self._store_unmatched()
        if part == "region" and REGIONS not in self._parts:
            regions = make_regions(self.engine, self.work, self.linked, self.with_tables)
            self._tables.append(regions)
            self._parts[REGIONS] = regions

    def _store_unmatched(self) -> None:
        if self.linked.multilevel_attributes and UNMATCHED not in self._parts:
            graph = self._graph()
            try:
                self._store(UNMATCHED, bound_unmatched_rows(graph, self._parts[FIRST], self._parts[SECOND]))
            except TooManyStepsError:
                raise too_many_steps(graph) from None

    def _replace_parts(self, query: exp.Expr, ctes: dict[str, exp.Expr]) -> exp.Expr:
        """Replace the names of parts in a query, its own ``ctes`` and `comparison_parts`, by stored tables."""

        def replace_part(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Table) or node.args.get("db"):
                return node
            if node.name not in self._parts:
                part = ctes.get(node.name) or self._comparison_part(node.name)
                if part is None:
                    return node
                self._store(node.name, self._replace_parts(part.copy(), ctes))
            return aliased(self._parts[node.name], node.alias_or_name)

        return query.transform(replace_part, copy=False)

    def _comparison_part(self, name: str) -> exp.Query | None:
        if not self._queries:
            self._queries.update(comparison_parts(self.linked, as_numbers=True))
        return self._queries.get(name)

    def _store(self, name: str, query: exp.Expr) -> None:
        assert isinstance(query, exp.Query)
        is_large = is_matching_prefixes(name) or name == MATCHING_GROUPS
        if is_large:
            query = query.limit(MOST_MATCHING_PAIRS + 1, copy=False)
        target = self.work(f"joint {len(self._tables)}")
        self.engine.execute(create_table(target.copy(), query))
        self._tables.append(target)
        self._parts[name] = target
        if is_large and self.engine.rows(row_count(rows=target))[0][0] > MOST_MATCHING_PAIRS:
            raise NotComparedError(
                f"more than {MOST_MATCHING_PAIRS:,} pairs of their groups can be the same rows: too many to compare"
            )
