"""Checks: what the engine says of a generalization."""

from __future__ import annotations

import math
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
    between_ends,
    candidate_query,
    class_leaves_query,
    class_leaves_together,
    joint_candidate_query,
    kept_sizes_query,
    suppressed_entropy,
)
from sqlanon.strategies.lattice.classes import can_be_judged_together
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.strategies.lattice.persons import count_persons_in_classes, persons_in_classes
from sqlanon.strategies.lattice.population_match import wrong_map
from sqlanon.strategies.lattice.search import VerdictRules
from sqlanon.support.coding import Coded, Levels


def policy_measure(prepared: SearchInput) -> Measure:
    """The policy's measure, over the prepared source."""
    policy = prepared.policy
    # Where k-anonymity is of combinations, a class may have one row.
    least = 1 if policy.search.traits.protects_combinations_only else prepared.requirements.min_class_rows
    return MEASURES[policy.search.measure](prepared.marginals, prepared.weights, policy.search.aggregate, least)


def verdict_rules(prepared: SearchInput) -> VerdictRules:
    """What may be concluded from a check."""
    space = prepared.frequency_sets.space
    return VerdictRules(prepared.requirements, prepared.marginals.rows, space.additive, prepared.limit.persons)


def fetch_leaf_sums(steps: StatementRunner, query: exp.Select) -> dict[int, float]:
    """The answer to `candidate.class_leaves`, by attribute."""
    return {slot: leaves for slot, leaves in steps.ask(query, []) if leaves is not None}


LEAVES_WITHIN = 2
"""A check that is expected to lose at most this many times the allowed rows counts leaves, too. That makes its
statement a tenth dearer; counting them by another one doubles it."""


FAR = 1.8
"""A check that is expected to lose at least this many times the allowed rows counts half of the classes first. That
saves two fifths of it, or adds a fifth. (The forecast is rough: of nine searched for on people, eight lost twice as
many.)"""


class Checker:
    """Asks the engine for the figures of generalizations: usually by one statement; `_by_halves`, `_counts_leaves` and
    `together` say when by more or fewer."""

    def __init__(
        self,
        engine: Engine,
        prepared: SearchInput,
        measure: Measure,
        expected: Callable[[Levels], float] | None = None,
        only_best: Callable[[], bool] = lambda: False,
    ) -> None:
        """``expected``: ln(1 + rows lost) of a generalization, as the search that it is for forecasts them;
        ``only_best``: whether what cannot be the best is of no use to that."""
        self._engine, self._prepared, self._measure, self._limit = engine, prepared, measure, prepared.limit
        self._allowed = self._limit.rows
        self._sets, self._heights = prepared.frequency_sets, prepared.marginals.heights
        self._expected, self._only_best = expected, only_best
        self._separate = prepared.requirements.separate_conditions
        self._short = not all(one.hereditary for one in prepared.requirements.class_conditions)
        self._judge = verdict_rules(prepared).judge
        self._leaves: exp.Table | None = None
        self._regrouped: dict[str, tuple[list[str], Callable[[Iterable[str]], tuple[Any, ...]]]] = {}
        self._counted = prepared.limit.all_persons or prepared.marginals.rows
        for one in self._separate:
            one.refuse(self._counted)

    def __call__(self, levels: Levels) -> Figures:
        """The figures of a generalization."""
        space = self._sets.sizes_at(levels)
        attributes = self._prepared.attributes if self._counts_leaves(space, levels) else ()
        halved = self._by_halves(levels) if space.are_classes and self._fails_by_far(levels) else None
        row, share = halved or (self._row(space, levels, attributes), 1.0)
        self._count_persons(space, [levels], [row])
        if space.are_classes and self._is_within(row):
            space = self._sets.at(levels)
        leaves: Mapping[int, float] = {}
        if self._needs_leaves(levels, row) and attributes:
            leaves = {i: row[f"leaves_{i}"] for i, _ in between_ends(attributes, levels)}
        elif self._needs_leaves(levels, row):
            kept = _less_is_kept(space, row)
            found = fetch_leaf_sums(
                self._sets.steps, class_leaves_query(space, levels, self._prepared.attributes, kept)
            )
            leaves = self._suppressed(levels, found) if kept else found
        return replace(self._figures(space, levels, row, leaves), counted_share=share)

    def _row(self, space: ClassSpace, levels: Levels, attributes: Sequence[Coded] = ()) -> dict[str, Any]:
        """The row of `candidate`. Without leaves, most of its text is the same for all generalizations of classes from
        one table."""
        steps, keys = self._sets.steps, space.keys(levels)
        if steps.dry or attributes or not keys or not can_be_judged_together(space):
            query = candidate_query(space, levels, self._short, self._measure.needs_squares, attributes)
            return dict(steps.figures(query))
        if (table := space.frequency.name) not in self._regrouped:
            query = candidate_query(space, levels, self._short, self._measure.needs_squares)
            self._regrouped[table] = query.named_selects, steps.engine.prepare_grouping(query)
        names, row = self._regrouped[table]
        return dict(zip(names, row(keys), strict=True))

    def together(self, several: Sequence[Levels]) -> list[Figures]:
        """The figures of the first of some generalizations: as many as one statement checks."""
        found = self._sets.together(several)
        if found is None:
            return [self(several[0])]
        space, most = found
        if min(most, len(several)) < 2 or not can_be_judged_together(space):
            return [self(several[0])]
        several, steps = several[:most], self._sets.steps
        query = joint_candidate_query(space, several, self._short, self._measure.needs_squares)
        names = query.named_selects
        rows = {row[0]: dict(zip(names, row, strict=True)) for row in steps.ask(query, [])}
        if len(rows) < len(several):  # there are no rows, and so no classes
            return [self(several[0])]
        self._count_persons(space, several, [rows[i] for i in range(len(several))])
        leaves = self._leaves_together(space, several, rows)
        return [self._figures(space, one, rows[i], leaves.get(i, {})) for i, one in enumerate(several)]

    def _leaves_together(
        self, space: ClassSpace, several: Sequence[Levels], rows: Mapping[int, Mapping[str, Any]]
    ) -> Mapping[int, Mapping[int, float]]:
        """The leaves of suppressed rows, by place and attribute. Makes ``leaves``, once."""
        places = [i for i, levels in enumerate(several) if self._needs_leaves(levels, rows[i])]
        if not places:
            return {}
        if self._leaves is None:
            self._leaves = self._sets.steps.make(
                self._prepared.work("leaves"), attribute_leaves(self._prepared.attributes)
            )
        asked = [(several[i], _less_is_kept(space, rows[i])) for i in places]
        found: dict[int, dict[int, float]] = {i: {} for i in places}
        query = class_leaves_together(space, asked, self._prepared.attributes, self._leaves)
        for place, slot, leaves in self._sets.steps.ask(query, []):
            found[places[place]][slot] = leaves
        return {
            i: self._suppressed(levels, found[i]) if kept else found[i]
            for i, (levels, kept) in zip(places, asked, strict=True)
        }

    def _counts_leaves(self, space: ClassSpace, levels: Levels) -> bool:
        """Whether the statement for the classes counts the leaves of suppressed rows, too."""
        if space.are_classes or not (self._measure.needs_leaves and self._allowed):
            return False
        if not is_large(self._prepared.marginals.rows):  # to plan its joins takes longer than the work
            return False
        return self._expected is None or self._expected(levels) <= math.log1p(LEAVES_WITHIN * self._allowed)

    def _fails_by_far(self, levels: Levels) -> bool:
        """Whether a generalization is expected to lose so many rows that half of them are enough to see it, and of no
        other use to the search."""
        if self._expected is None or not self._only_best() or self._measure.bounds_above:
            return False
        return self._expected(levels) >= math.log1p(FAR * self._allowed)

    def _by_halves(self, levels: Levels) -> tuple[dict[str, Any], float] | None:
        """The row of half of the classes, if these lose too many rows, else of all; and what share of them it is of.
        None where no attribute splits them."""
        attribute, row = self._sets.halving_attribute(levels), dict[str, Any]()
        if attribute is None:
            return None
        for rest, share in enumerate((0.5, 1.0)):
            with self._sets.half_at(levels, attribute, rest) as space:
                part = self._sets.steps.figures(
                    candidate_query(space, levels, self._short, self._measure.needs_squares)
                )
            row = {name: (row.get(name) or 0) + (figure or 0) for name, figure in part.items()}
            # Conditions on the whole table are not met or broken by half of it. They do not matter here: this verdict
            # follows from the suppressed rows alone, of which the other half can only have more.
            too_many = row["suppressed_rows"] > self._allowed
            if too_many and self._judge(self._figures(space, levels, row, {}), self._allowed).infeasible_below:
                return row, share
        return row, 1.0

    def _count_persons(self, space: ClassSpace, several: Sequence[Levels], rows: Sequence[dict[str, Any]]) -> None:
        """Add ``suppressed_persons`` to the rows of generalizations, where persons are counted and the rows that are
        suppressed do not say already that there are too many."""
        if not space.persons:
            return
        counted = {}
        for row in rows:
            row["suppressed_persons"] = None if row["suppressed_rows"] else 0
        if places := [i for i, row in enumerate(rows) if 0 < row["suppressed_rows"] <= self._limit.rows]:
            if self._sets.ground.movers is not None:
                counted = {0: count_persons_in_classes(self._sets, space, several[0], kept=False)}  # one at a time
            else:
                query = persons_in_classes(space, [several[i] for i in places], kept=False)
                counted = dict(self._sets.steps.ask(query, []))
        for place, persons in counted.items():
            rows[places[place]]["suppressed_persons"] = persons

    def _is_within(self, row: Mapping[str, Any]) -> bool:
        return row["classes"] > 0 and self._limit.allows(row["suppressed_rows"], row.get("suppressed_persons"))

    def _needs_leaves(self, levels: Levels, row: Mapping[str, Any]) -> bool:
        if not (self._measure.needs_leaves and row["suppressed_rows"] and self._is_within(row)):
            return False
        return bool(between_ends(self._prepared.attributes, levels))

    def _suppressed(self, levels: Levels, kept: Mapping[int, float]) -> Mapping[int, float]:
        """What is not kept of the leaves of all rows."""
        every = self._prepared.marginals.leaf_sums
        between = between_ends(self._prepared.attributes, levels)
        return {i: every[i][level] - kept.get(i, 0.0) for i, level in between}

    def _figures(
        self, space: ClassSpace, levels: Levels, row: Mapping[str, Any], leaves: Mapping[int, float]
    ) -> Figures:
        suppressed, within = row["suppressed_rows"], self._is_within(row)
        shown = len(self._prepared.policy.generalized_attributes)
        entropy, broken = 0.0, dict[str, float]()
        if within and suppressed and self._measure.needs_entropy and levels[:shown] != self._heights[:shown]:
            entropy = self._engine.rows(suppressed_entropy(space, levels, suppressed, shown))[0][0]
        if self._separate and within:
            left = self._prepared.marginals.rows - suppressed
            kept = _Kept(self._engine, self._prepared, space, levels, left, self._counted)
            broken = {one.name: figure for one in self._separate if not one.is_within(figure := one.figure(kept))}
        return Figures(
            classes=row["classes"],
            suppressed_rows=suppressed,
            squared_sizes=row.get("squares") or 0.0,
            suppressed_leaves=leaves,
            suppressed_entropy=entropy,
            least_suppressed=(row["lost"] or 0.0) if self._short else None,
            count=row.get("count") or 0,
            singles=row.get("singles") or 0,
            unmatched=row.get("unmatched") or 0,
            unmet=row.get("unmet", 0),
            too_few=row.get("too_few", 0),
            violated=broken,
            suppressed_persons=row.get("suppressed_persons"),
        )


@dataclass(frozen=True)
class _Kept:
    """The kept rows of a generalization: `requirements.base.RetainedRows`."""

    engine: Engine
    prepared: SearchInput
    space: ClassSpace
    levels: Levels
    rows: int
    source_count: int

    def class_sizes(self) -> Mapping[int, int]:
        return dict(self.engine.rows(kept_sizes_query(self.space, self.levels)))

    def count_wrong_matches(self) -> int:
        query = wrong_map(self.prepared, self.space, self.levels)
        assert query is not None  # the policy has persons in both tables
        return int(self.engine.rows(query)[0][0])


def _less_is_kept(space: ClassSpace, row: Mapping[str, Any]) -> bool:
    """Whether there is less to add up over what is kept than over what is suppressed."""
    return bool(row["classes"] < row["suppressed_rows"]) and not space.population
