"""The audit of two releases for fewer than k rows.

The parts of its queries are stored as tables, once for all queries: the engine knows the sizes of tables, but not those
of parts of a statement, and a comparison of too many pairs is noticed early.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
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
    MAX_LISTED_COMBINATIONS,
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
from sqlanon.ledger.joint.row_matching import ReleaseLink, comparison_parts, is_matching_prefixes
from sqlanon.support.expressions import Namer, aliased, create_table, drop_table, row_count, subquery, template

MAX_MATCHING_PAIRS = 20_000_000
"""Maximum number of matching pairs of groups: they take some gigabytes."""

MAX_LISTED = 20_000
"""Maximum number of groups with new rows that a readable statement lists."""


@dataclass(frozen=True)
class PairAudit:
    """The audit of two releases for fewer than k rows.

    ``_parts`` are the stored parts of its queries, by name, and ``_queries`` the parts that all its queries read. An
    audit in reverse reads the parts of ``_forward``, the audit it was taken from.
    """

    engine: Engine
    work: Namer
    link: ReleaseLink
    k: int
    _parts: dict[str, exp.Expr] = field(default_factory=dict)
    _queries: dict[str, exp.Query] = field(default_factory=dict)
    _tables: list[exp.Table] = field(default_factory=list)
    _graphs: list[OverlapGraph] = field(default_factory=list)
    _budget: StepBudget = field(default_factory=StepBudget)
    _forward: PairAudit | None = None

    @classmethod
    @contextmanager
    def open(cls, engine: Engine, work: Namer, link: ReleaseLink, k: int) -> Iterator[PairAudit]:
        """An audit whose tables are dropped at the end of its context."""
        audit = cls(engine, work, link, k)
        try:
            yield audit
        finally:
            for target in audit._tables:
                engine.execute(drop_table(target))

    @cached_property
    def in_reverse(self) -> PairAudit:
        """The audit of the releases in reverse order, for rows that are gone."""

        def work(name: str) -> exp.Table:
            return self.work(f"{name} in reverse")

        link = self.link.in_reverse
        return replace(self, work=work, link=link, _parts={}, _queries={}, _graphs=[], _forward=self)

    def leave_few_steps(self) -> None:
        """Limit the search of flows where the release is refused anyway."""
        self._budget.leave_few()

    def count_combinations(self) -> tuple[int, int]:
        """The combinations of fewer than k rows that both releases show together, and their rows."""
        combinations, rows = self._rows(count_complementary_victims(self.link, self.k))[0]
        return combinations, rows

    def find_overlaps(self) -> Overlaps:
        """The rows that overlapping classes share by the counts of both; `count_violations` of classes joined by counts
        reads them."""
        graph = self._graph()
        overlaps = find_overlaps(self.engine, self.link, self.k, graph, self._parts[FIRST], self._parts[SECOND])
        self._store(SHARED_ROWS, shared_rows(overlaps.bounds))
        return overlaps

    def count_new_rows(self, part: NewRows) -> tuple[int, int]:
        """The classes of the second release, or the unions, with some new rows but fewer than k; and these rows."""
        if part == "new":
            return self._count_few(few_new_rows_in_classes(self.link, self.k))
        return self._count_few(few_new_rows_in_unions(self.link, self.k, part))

    def count_violations(self, requirement: SharedRequirement, part: Part) -> tuple[int, int]:
        """The parts that violate a requirement, and their rows."""
        return self._count_few(find_violating_parts(self.link, requirement, part))

    def list_shared_rows(self, requirement: SharedRequirement) -> list[tuple[Any, ...]]:
        """The rows with which `readable_violations` lists the joined classes that violate a requirement by counts."""
        return self._rows(labelled_shared_rows(self.link, requirement, MAX_LISTED_COMBINATIONS))

    def list_unmatched(self) -> list[tuple[Any, ...]]:
        """The rows with which `temporal_attack`, `readable_unions` and `readable_violations` list new rows.

        Empty where all labels have one level.

        Raises
        ------
        NotComparedError
            There are too many groups to compare, or to list.
        """
        if not self.link.multilevel_attributes:
            return []
        rows = self._rows(labelled_unmatched(self.link).limit(MAX_LISTED + 1))
        if len(rows) > MAX_LISTED:
            raise NotComparedError(f"more than {MAX_LISTED:,} groups can have new rows: too many for a statement")
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
            self.with_tables(count_complementary_victims(self.link, self.k))
            graph = make_graph(self.engine, self.work, self.link, self._parts[MATCHING_GROUPS], self._budget)
            self._graphs.append(graph)
            self._tables.extend((graph.edges, graph.components, graph.irregular))
        return self._graphs[0]

    def _replace_parts(self, query: exp.Expr, ctes: Mapping[str, exp.Expr]) -> exp.Expr:
        """Replace the names of parts in a query, its own ``ctes`` and `comparison_parts`, by stored tables."""

        def replace_part(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Table) or node.args.get("db"):
                return node
            part = self._part(node.name, ctes)
            return node if part is None else aliased(part, node.alias_or_name)

        return query.transform(replace_part, copy=False)

    def _part(self, name: str, ctes: Mapping[str, exp.Expr] = MappingProxyType({})) -> exp.Expr | None:
        """The stored part with this name, created if it is missing; None for other tables."""
        if name not in self._parts:
            if self._forward is not None and (part := self._forward._part_in_reverse(name)) is not None:
                self._parts[name] = part
            elif name == REGIONS:
                regions = make_regions(self.engine, self.work, self.link, self.with_tables)
                self._tables.append(regions)
                self._parts[name] = regions
            elif name == UNMATCHED:
                self._store_unmatched()
            elif (query := ctes.get(name) or self._comparison_part(name)) is not None:
                self._store(name, self._replace_parts(query.copy(), ctes))
        return self._parts.get(name)

    def _part_in_reverse(self, name: str) -> exp.Expr | None:
        """A part of the audit in reverse, made of the same part of this one; None if that one has to make its own."""
        if name in (FIRST, SECOND):
            return self._part(SECOND if name == FIRST else FIRST)
        if is_matching_prefixes(name):
            query = template("""
                SELECT * REPLACE (second_prefix AS first_prefix, first_prefix AS second_prefix)
                FROM :part AS p
            """)
        elif name in (REGIONS, UNMATCHED):
            query = template("SELECT * REPLACE (NOT is_first AS is_first) FROM :part AS p")
        else:
            return None
        return subquery(query(part=self._part(name)))

    def _comparison_part(self, name: str) -> exp.Query | None:
        if not self._queries:
            self._queries.update(comparison_parts(self.link, as_numbers=True))
        return self._queries.get(name)

    def _store_unmatched(self) -> None:
        graph = self._graph()
        try:
            self._store(UNMATCHED, bound_unmatched_rows(graph, self._parts[FIRST], self._parts[SECOND]))
        except TooManyStepsError:
            raise too_many_steps(graph) from None

    def _store(self, name: str, query: exp.Expr) -> None:
        assert isinstance(query, exp.Query)
        is_large = is_matching_prefixes(name) or name == MATCHING_GROUPS
        if is_large:
            query = query.limit(MAX_MATCHING_PAIRS + 1, copy=False)
        target = self.work(f"joint {len(self._tables)}")
        self.engine.execute(create_table(target.copy(), query))
        self._tables.append(target)
        self._parts[name] = target
        if is_large and self.engine.rows(row_count(rows=target))[0][0] > MAX_MATCHING_PAIRS:
            raise NotComparedError(
                f"more than {MAX_MATCHING_PAIRS:,} pairs of their groups can be the same rows: too many to compare"
            )
