"""Check generalizations: fetch their figures from the engine."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.frequency.sets import ClassSpace, is_large
from sqlanon.measures import MEASURES, Figures, Measure
from sqlanon.strategies.lattice.candidate import (
    attribute_leaves,
    candidate_query,
    class_leaves_query,
    inner_levels,
    joint_candidate_query,
    kept_sizes_query,
    suppressed_entropy,
)
from sqlanon.strategies.lattice.classes import can_be_evaluated_together
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.strategies.lattice.persons import count_persons_in_classes, persons_in_classes
from sqlanon.strategies.lattice.population_match import wrong_map
from sqlanon.strategies.lattice.search import VerdictRules
from sqlanon.support.coding import CodedAttribute, Levels


def policy_measure(search_input: SearchInput) -> Measure:
    """The policy's measure for a source."""
    search = search_input.policy.search
    # If k-anonymity holds for combinations only, a class may have one row.
    least = 1 if search.traits.protects_combinations_only else search_input.requirements.min_class_rows
    return MEASURES[search.measure](search_input.marginals, search_input.weights, search.aggregate, least)


def verdict_rules(search_input: SearchInput) -> VerdictRules:
    """The rules that draw verdicts from figures."""
    additive = search_input.frequency_sets.space.additive
    return VerdictRules(search_input.requirements, search_input.marginals.rows, additive, search_input.limit.persons)


def fetch_leaf_sums(runner: StatementRunner, query: exp.Select) -> dict[int, dict[int, float]]:
    """The result of `candidate.class_leaves_query`, by candidate and attribute."""
    sums = defaultdict[int, dict[int, float]](dict)
    for candidate, slot, leaves in runner.fetch_rows(query, []):
        sums[candidate][slot] = leaves
    return sums


LEAF_COUNT_FACTOR = 2
"""A check that is expected to suppress at most this multiple of the allowed rows also counts leaves. That adds a tenth
to its statement; a separate statement would double it."""

HALVING_FACTOR = 1.8
"""A check that is expected to suppress at least this multiple of the allowed rows counts half of the classes first.
That saves two fifths of it, or adds a fifth. (In a test, eight of nine such generalizations did suppress twice as
many.)"""


class Checker:
    """Fetches the figures of generalizations, usually by one statement each."""

    def __init__(
        self,
        engine: Engine,
        search_input: SearchInput,
        measure: Measure,
        expect_suppressed: Callable[[Levels], float] | None = None,
        seeks_best_only: Callable[[], bool] = lambda: False,
    ) -> None:
        """``expect_suppressed`` forecasts ln(1 + suppressed rows) for a search; ``seeks_best_only`` says whether the
        search ignores what cannot be the best."""
        self._engine, self._search_input, self._measure = engine, search_input, measure
        self._sets, self._runner = search_input.frequency_sets, search_input.frequency_sets.runner
        self._limit, self._attributes = search_input.limit, search_input.attributes
        self._expect_suppressed, self._seeks_best_only = expect_suppressed, seeks_best_only
        requirements = search_input.requirements
        self._separate_conditions = requirements.separate_conditions
        self._needs_least_suppressed = not all(condition.hereditary for condition in requirements.class_conditions)
        self._draw_verdict = verdict_rules(search_input).draw_verdict
        self._leaves: exp.Table | None = None
        self._regrouped: dict[str, tuple[list[str], Callable[[Iterable[str]], tuple[Any, ...]]]] = {}
        self._source_count = search_input.limit.all_persons or search_input.marginals.rows
        for condition in self._separate_conditions:
            condition.refuse(self._source_count)

    def __call__(self, levels: Levels) -> Figures:
        """The figures of a generalization."""
        space = self._sets.class_size_space(levels)
        attributes = self._attributes if self._counts_leaves(space, levels) else ()
        half = self._count_by_halves(levels) if space.are_classes and self._fails_by_far(levels) else None
        row, share = half or (self._fetch_row(space, levels, attributes), 1.0)
        self._count_persons(space, [levels], [row])
        if space.are_classes and self._is_within(row):
            space = self._sets.class_space(levels)
        if attributes and self._needs_leaves(levels, row):
            leaves: Mapping[int, float] = {i: row[f"leaves_{i}"] for i, _ in inner_levels(attributes, levels)}
        else:
            leaves = self._fetch_leaves(space, [levels], [row]).get(0, {})
        return replace(self._figures(space, levels, row, leaves), counted_share=share)

    def _fetch_row(
        self, space: ClassSpace, levels: Levels, attributes: Sequence[CodedAttribute] = ()
    ) -> dict[str, Any]:
        """The row of `candidate_query`. Without leaves, generalizations with classes from one table share most of the
        statement's text."""
        keys, squares = space.keys(levels), self._measure.needs_squares
        if self._runner.dry or attributes or not keys or not can_be_evaluated_together(space):
            query = candidate_query(space, levels, self._needs_least_suppressed, squares, attributes)
            return dict(self._runner.fetch_figures(query))
        if (table := space.frequency.name) not in self._regrouped:
            query = candidate_query(space, levels, self._needs_least_suppressed, squares)
            self._regrouped[table] = query.named_selects, self._runner.engine.prepare_grouping(query)
        names, fetch = self._regrouped[table]
        return dict(zip(names, fetch(keys), strict=True))

    def check_together(self, generalizations: Sequence[Levels]) -> list[Figures]:
        """The figures of the first generalizations, as many as one statement checks."""
        shared = self._sets.shared_class_space(generalizations)
        if shared is None:
            return [self(generalizations[0])]
        space, limit = shared
        if min(limit, len(generalizations)) < 2 or not can_be_evaluated_together(space):
            return [self(generalizations[0])]
        checked = generalizations[:limit]
        query = joint_candidate_query(space, checked, self._needs_least_suppressed, self._measure.needs_squares)
        names = query.named_selects
        rows = [dict(zip(names, row, strict=True)) for row in sorted(self._runner.fetch_rows(query, []))]
        if len(rows) < len(checked):  # no rows, so no classes
            return [self(generalizations[0])]
        self._count_persons(space, checked, rows)
        leaves = self._fetch_leaves(space, checked, rows)
        return [self._figures(space, levels, rows[i], leaves.get(i, {})) for i, levels in enumerate(checked)]

    def _fetch_leaves(
        self, space: ClassSpace, generalizations: Sequence[Levels], rows: Sequence[Mapping[str, Any]]
    ) -> Mapping[int, Mapping[int, float]]:
        """The leaves of suppressed rows, by candidate and attribute. For several candidates, makes ``leaves``, once."""
        candidates = [i for i, levels in enumerate(generalizations) if self._needs_leaves(levels, rows[i])]
        if not candidates:
            return {}
        if self._leaves is None and len(generalizations) > 1:
            query = attribute_leaves(self._attributes)
            self._leaves = self._runner.create_table(self._search_input.work("leaves"), query)
        requests = [(generalizations[i], _has_fewer_kept_classes(space, rows[i])) for i in candidates]
        sums = fetch_leaf_sums(self._runner, class_leaves_query(space, requests, self._attributes, self._leaves))
        return {
            i: self._subtract_from_all(levels, sums.get(position, {})) if sums_kept else sums.get(position, {})
            for position, (i, (levels, sums_kept)) in enumerate(zip(candidates, requests, strict=True))
        }

    def _counts_leaves(self, space: ClassSpace, levels: Levels) -> bool:
        """Whether the statement for the classes also counts the leaves of suppressed rows."""
        if space.are_classes or not (self._measure.needs_leaves and self._limit.rows):
            return False
        if not is_large(self._search_input.marginals.rows):  # planning the joins would take longer than running them
            return False
        limit = math.log1p(LEAF_COUNT_FACTOR * self._limit.rows)
        return self._expect_suppressed is None or self._expect_suppressed(levels) <= limit

    def _fails_by_far(self, levels: Levels) -> bool:
        """Whether a generalization probably suppresses enough rows for half of its classes to prove it infeasible, and
        the search needs no other figures of it."""
        if self._expect_suppressed is None or not self._seeks_best_only() or self._measure.bounds_above:
            return False
        return self._expect_suppressed(levels) >= math.log1p(HALVING_FACTOR * self._limit.rows)

    def _count_by_halves(self, levels: Levels) -> tuple[dict[str, Any], float] | None:
        """The row of half of the classes if they suppress too many rows, else of all, and the counted share. None if no
        attribute splits the classes."""
        attribute, row = self._sets.halving_attribute(levels), dict[str, Any]()
        if attribute is None:
            return None
        for parity, share in enumerate((0.5, 1.0)):
            with self._sets.half_class_space(levels, attribute, parity) as space:
                query = candidate_query(space, levels, self._needs_least_suppressed, self._measure.needs_squares)
                part = self._runner.fetch_figures(query)
            row = {name: (row.get(name) or 0) + (figure or 0) for name, figure in part.items()}
            # Half of the classes does not decide conditions on the whole table. They do not matter here: the verdict
            # follows from suppressed rows alone, and the other half only adds some.
            if row["suppressed_rows"] > self._limit.rows:
                figures = self._figures(space, levels, row, {})
                if self._draw_verdict(figures, self._limit.rows).infeasible_below:
                    return row, share
        return row, 1.0

    def _count_persons(
        self, space: ClassSpace, generalizations: Sequence[Levels], rows: Sequence[dict[str, Any]]
    ) -> None:
        """Add ``suppressed_persons`` to the rows, unless the suppressed rows already prove that they are too many."""
        if not space.persons:
            return
        for row in rows:
            row["suppressed_persons"] = None if row["suppressed_rows"] else 0
        candidates = [i for i, row in enumerate(rows) if 0 < row["suppressed_rows"] <= self._limit.rows]
        if not candidates:
            return
        if self._sets.ground.movers is not None:  # one generalization at a time
            counts = {0: count_persons_in_classes(self._sets, space, generalizations[0], kept=False)}
        else:
            query = persons_in_classes(space, [generalizations[i] for i in candidates], kept=False)
            counts = dict(self._runner.fetch_rows(query, []))
        for position, persons in counts.items():
            rows[candidates[position]]["suppressed_persons"] = persons

    def _is_within(self, row: Mapping[str, Any]) -> bool:
        return row["classes"] > 0 and self._limit.allows(row["suppressed_rows"], row.get("suppressed_persons"))

    def _needs_leaves(self, levels: Levels, row: Mapping[str, Any]) -> bool:
        if not (self._measure.needs_leaves and row["suppressed_rows"] and self._is_within(row)):
            return False
        return bool(inner_levels(self._attributes, levels))

    def _subtract_from_all(self, levels: Levels, kept_sums: Mapping[int, float]) -> Mapping[int, float]:
        leaf_sums = self._search_input.marginals.leaf_sums
        return {i: leaf_sums[i][level] - kept_sums.get(i, 0.0) for i, level in inner_levels(self._attributes, levels)}

    def _figures(
        self, space: ClassSpace, levels: Levels, row: Mapping[str, Any], leaves: Mapping[int, float]
    ) -> Figures:
        marginals, suppressed, within = self._search_input.marginals, row["suppressed_rows"], self._is_within(row)
        visible = len(self._search_input.policy.generalized_attributes)
        entropy, violated = 0.0, dict[str, float]()
        is_below_top = levels[:visible] != marginals.heights[:visible]
        if within and suppressed and self._measure.needs_entropy and is_below_top:
            entropy = self._engine.rows(suppressed_entropy(space, levels, suppressed, visible))[0][0]
        if self._separate_conditions and within:
            row_count = marginals.rows - suppressed
            kept_rows = _KeptRows(self._engine, self._search_input, space, levels, row_count, self._source_count)
            figures = [(condition, condition.figure(kept_rows)) for condition in self._separate_conditions]
            violated = {condition.name: figure for condition, figure in figures if not condition.is_within(figure)}
        return Figures(
            classes=row["classes"],
            suppressed_rows=suppressed,
            squared_sizes=row.get("squares") or 0.0,
            suppressed_leaves=leaves,
            suppressed_entropy=entropy,
            least_suppressed=(row["least_suppressed"] or 0.0) if self._needs_least_suppressed else None,
            kept_count=row.get("kept_count") or 0,
            single_classes=row.get("single_classes") or 0,
            unmatched_rows=row.get("unmatched_rows") or 0,
            uncovered_classes=row.get("uncovered_classes", 0),
            uncoverable_classes=row.get("uncoverable_classes", 0),
            violated=violated,
            suppressed_persons=row.get("suppressed_persons"),
        )


@dataclass(frozen=True)
class _KeptRows:
    """The kept rows of a generalization: a `requirements.base.KeptRows`."""

    engine: Engine
    search_input: SearchInput
    space: ClassSpace
    levels: Levels
    rows: int
    source_count: int

    def class_sizes(self) -> Mapping[int, int]:
        return dict(self.engine.rows(kept_sizes_query(self.space, self.levels)))

    def count_wrong_matches(self) -> int:
        query = wrong_map(self.search_input, self.space, self.levels)
        assert query is not None  # the policy has persons in both tables
        return int(self.engine.rows(query)[0][0])


def _has_fewer_kept_classes(space: ClassSpace, row: Mapping[str, Any]) -> bool:
    """Whether summing over kept classes is cheaper than over suppressed ones."""
    return bool(row["classes"] < row["suppressed_rows"]) and not space.population
