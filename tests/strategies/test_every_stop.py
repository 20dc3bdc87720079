"""Every strategy of the full domain, stopped after every number of checks: all that it claims is compared with
exhaustive search. The tables are searched in plain Python, in milliseconds.

Some tables have no requirement but k; in others classes count by a condition that larger ones may break, or all
classes together have to meet one. Levels have limits and gaps.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import pytest
from plain_datafly import steps_of_datafly

from oracles import oracle
from oracles.oracle import Levels, Release, Row, Table
from oracles.plain_samarati import data_of, lowest, random_case, vectors
from oracles.score_bounds import at_most, holds
from properties.plain_search import WIDE, figures_of, measure_of, search_by
from properties.random_cases import Case
from sqlanon.measures import Figures, Measure
from sqlanon.requirements import KAnonymity, Requirements
from sqlanon.requirements.average_risk import AverageRisk
from sqlanon.requirements.base import ClassCondition
from sqlanon.requirements.population_uniqueness import PopulationUniqueness
from sqlanon.strategies.lattice import Budget, Lattice, LatticeSearch, Outcome
from sqlanon.strategies.lattice.lattice import Box
from sqlanon.strategies.lattice.search import VerdictRules


class Balanced(ClassCondition):
    """At most three of four rows of a class are of one kind. A class of balanced classes is balanced; one of others
    with them need not be."""

    hereditary = False

    @property
    def name(self) -> str:
        return "balanced"

    def condition(self) -> Any: ...


@dataclass(frozen=True)
class BalancedRelease(Release):
    """Without the classes of fewer than k rows, and those that are not balanced."""

    @cached_property
    def kept(self) -> dict[Row, int]:
        surplus: dict[Row, int] = {}
        for row, n in self.table.known_rows:
            labels = self.table.generalize(row, self.levels)
            surplus[labels] = surplus.get(labels, 0) + n * (1 if hash_of(row) % 2 else -1)
        return {labels: n for labels, n in super().kept.items() if 2 * abs(surplus[labels]) <= n}


def hash_of(row: Row) -> int:
    return sum(ord(letter) for value in row for letter in str(value))


@dataclass(frozen=True)
class Stop:
    """A table, its requirements, and the answers of exhaustive search."""

    case: Case
    kind: str  # rows, risk or balance
    levels: tuple[tuple[int, ...], ...]

    @cached_property
    def table(self) -> Table:
        return Table.of(self.case.rows, self.case.hierarchies)

    @cached_property
    def measure(self) -> Measure:
        return measure_of(self.case, self.table)

    @cached_property
    def allowed(self) -> int:
        return oracle.allowed_rows(self.case.limit, self.table.size)

    @cached_property
    def requirements(self) -> Requirements:
        k = KAnonymity(self.case.k)
        risk = (AverageRisk(1 / (self.case.k + 1)),) if self.kind == "risk" else ()
        return Requirements((k, Balanced()) if self.kind == "balance" else (k,), table_conditions=risk)

    @cached_property
    def releases(self) -> dict[Levels, Release]:
        kind = BalancedRelease if self.kind == "balance" else Release
        ranges = (range(tree.height + 1) for tree in self.table.hierarchies)
        return {levels: kind(self.table, levels, self.case.k) for levels in itertools.product(*ranges)}

    @cached_property
    def figures(self) -> dict[Levels, Figures]:
        """Scores of all generalizations, including those that may not be released."""
        by_levels = {}
        for levels, release in self.releases.items():
            least = None
            if self.kind == "balance":
                least = float(
                    min(candidate.suppressed for low, candidate in self.releases.items() if at_most(low, levels))
                )
            rows = sum(release.kept.values())
            by_levels[levels] = replace(figures_of(release), kept_count=rows, least_suppressed=least)
        return by_levels

    @cached_property
    def scores(self) -> dict[Levels, float]:
        """The costs of those that satisfy the policy, by the oracle."""
        sign = -1 if self.case.measure in oracle.MAXIMISED else 1
        result = {}
        for levels, release in self.releases.items():
            permitted = all(level in allowed for level, allowed in zip(levels, self.levels, strict=True))
            within = bool(release.kept) and release.suppressed <= self.allowed
            risk = len(release.kept) * (self.case.k + 1) <= sum(release.kept.values())
            if permitted and within and (risk or self.kind != "risk"):
                score = oracle.score(release, self.case.measure, self.case.aggregate, self.case.weights)
                result[levels] = sign * score
        return result

    @cached_property
    def minimal(self) -> list[Levels]:
        return [
            candidate
            for candidate in sorted(self.scores)
            if not any(oracle.strictly_lower(low, candidate) for low in self.scores)
        ]

    def preferred(self, among: Sequence[Levels]) -> Levels | None:
        """The first by score, height and levels."""
        least = min((self.scores[candidate] for candidate in among), default=0.0)
        best = [candidate for candidate in among if self.scores[candidate] <= least + oracle.TIE * abs(least)]
        return min(best, key=lambda levels: (sum(levels), levels), default=None)

    def search(self, checks: int | None = None) -> LatticeSearch:
        bottom, top = (0,) * len(self.levels), tuple(map(max, self.levels))
        holes = tuple(frozenset(range(max(allowed))) - frozenset(allowed) for allowed in self.levels)
        lattice = Lattice(self.table.names, bottom, top, holes if any(holes) else ())
        facts = data_of(self.case, lattice)
        if self.kind != "rows":
            facts = replace(facts, joins_suffice=False)
        return LatticeSearch(
            lattice,
            self.measure,
            self.figures.__getitem__,
            VerdictRules(self.requirements, self.table.size).draw_verdict,
            self.allowed,
            budget=Budget(checks=checks),
            source_facts=facts,
            check_together=lambda several: [self.figures[levels] for levels in several[:3]],
        )


MEASURES = [
    ("loss", None), ("precision", None), ("height", None), ("discernibility", None), ("distinct", None),
    ("suppression", None), ("entropy", None), ("average_class_size", None),
    ("loss", "geometric"), ("relative_height", None),
]  # fmt: skip


@cache
def stop(number: int, kind: str) -> Stop:
    """The table of a number: several generalizations are minimal, and not all satisfy."""
    for seed in itertools.count():
        rng = random.Random(f"{number} {kind} {seed}")
        case = random_case(rng, rng.choice([2, 2, 3]), rng.choice(["0", "0.1", "0.3", "0.5"]))
        measure, aggregate = MEASURES[number % len(MEASURES)]
        weights = {name: rng.choice([0.5, 1.0, 2.0]) for name in case.hierarchies}
        weighs = measure in ("loss", "precision") and aggregate is None and rng.random() < 0.8
        case = replace(case, measure=measure, aggregate=aggregate, weights=weights if weighs else None)
        levels = []
        for tree in case.hierarchies.values():
            allowed = [level for level in range(tree.height + 1) if rng.random() < 0.8] or [tree.height]
            levels.append(tuple(allowed) if number % 2 else tuple(range(tree.height + 1)))
        candidate = Stop(case, kind, tuple(levels))
        if 8 <= len(candidate.releases) <= 40 and len(candidate.minimal) > 1:
            return candidate
    raise AssertionError


@pytest.mark.cases(12)
@pytest.mark.parametrize("kind", ["rows", "risk", "balance"])
@pytest.mark.parametrize("number", range(5))
def test_whenever_a_search_stops_all_that_it_claims_is_true(number: int, kind: str) -> None:
    table = stop(number + 5 * (kind != "rows"), kind)
    for strategy in WIDE:
        check_every_stop(table, strategy)


LARGE = {
    "sqlanon.strategies.full_domain.optimal.LARGE": 0,
    "sqlanon.strategies.full_domain.optimal.FIRST": 1,
    "sqlanon.strategies.full_domain.optimal.TURN": 2,
    "sqlanon.strategies.full_domain.optimal.BOXES": 3,
    "sqlanon.strategies.lattice.search.MAX_PRUNING_CANDIDATES": 2,
    "sqlanon.strategies.lattice.lattice.HEAP_SIZE": 2,
}


@pytest.mark.parametrize("kind", ["rows", "risk", "balance"])
@pytest.mark.parametrize("number", [0, 3, 5])
def test_a_large_lattice_is_searched_with_the_same_results(
    number: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, threshold in LARGE.items():
        monkeypatch.setattr(name, threshold)
    table = stop(number, kind)
    for strategy in ("optimal", "k_minimal", "flash"):
        check_every_stop(table, strategy)


def test_a_table_that_meets_the_policy_is_released_as_it_is() -> None:
    case = stop(1, "rows")
    table = Stop(replace(case.case, k=1), "rows", case.levels)
    assert len(table.minimal) == 1
    for strategy in WIDE:
        check_every_stop(table, strategy)


@pytest.mark.parametrize(
    ("strategy", "number", "kind", "is_large"),
    [
        ("ola", 47, "balance", False),
        ("incognito", 31, "balance", False),
        ("datafly", 35, "rows", False),
        ("datafly", 11, "rows", False),
        ("samarati", 10, "balance", False),
        ("samarati-binary", 12, "rows", False),
        ("k_minimal", 22, "risk", True),
        ("k_minimal", 10, "balance", True),
    ],
)
def test_the_claims_of_one_strategy_are_true(
    strategy: str, number: int, kind: str, is_large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On tables where others that it takes for k-minimal, or for infeasible, are not."""
    for name, threshold in LARGE.items() if is_large else ():
        monkeypatch.setattr(name, threshold)
    check_every_stop(stop(number, kind), strategy)


def outcomes(table: Stop, strategy: str) -> Iterator[tuple[LatticeSearch, Outcome, bool]]:
    """The outcomes after every number of checks, up to the last, which is not stopped."""
    for checks in itertools.count(1):
        search = table.search(checks)
        outcome = search_by(strategy, search)
        assert len(search.figures) == checks if outcome.stopped else len(search.figures) <= checks
        yield search, outcome, bool(outcome.stopped)
        if not outcome.stopped:
            return


def check_every_stop(table: Stop, strategy: str) -> None:
    best = table.preferred([*table.scores])
    assert best is not None
    for search, outcome, stopped in outcomes(table, strategy):
        assert search.scores == {candidate: pytest.approx(table.scores[candidate]) for candidate in search.scores}, (
            strategy
        )
        assert {*search.scores} == {*search.figures} & {*table.scores} or search.allowed_rows < table.allowed
        assert outcome.levels is None or outcome.levels in search.scores, strategy
        assert outcome.levels is not None or not search.scores, strategy
        assert outcome.levels is not None or not outcome.exhaustive or stopped, strategy
        assert holds(outcome.bound, table.scores[best]), strategy
        assert not (stopped and outcome.optimal), strategy
        if outcome.optimal:
            assert outcome.levels == best and outcome.bound == search.scores[best], strategy
        elif outcome.levels is not None:
            assert outcome.bound <= search.scores[outcome.levels]
        assert {*(outcome.minimal or ())} <= {*table.minimal}, strategy
        assert outcome.satisfying is None or [*outcome.satisfying] == sorted(table.scores)
        check_statuses(table, search)
        if stopped:
            check_choice_so_far(search, outcome, strategy)
        else:
            check_end(table, search, outcome, strategy)


def check_statuses(table: Stop, search: LatticeSearch) -> None:
    rows = [*zip(*search.lattice_columns(), strict=True)]
    assert {tuple(row[0]) for row in rows} >= {
        candidate for candidate in search.figures if search.lattice.permits(candidate)
    }
    for levels, height, bound, word, classes, suppressed, score, _ in rows:
        vector = tuple(levels)
        assert search.lattice.permits(vector) and height == sum(vector)
        assert word == "open" or (word == "satisfies") == (vector in table.scores), (vector, word)
        assert (word == "satisfies" or vector not in table.scores) if vector in search.figures else score is None
        figures = table.figures[vector] if vector in search.figures else None
        assert (classes, suppressed) == ((figures.classes, figures.suppressed_rows) if figures else (None, None))
        reported = search.measure.reported_score
        assert vector not in table.scores or holds(search.measure.bound(vector), table.scores[vector])
        assert bound == reported(search.measure.bound(vector))


def check_choice_so_far(search: LatticeSearch, outcome: Outcome, strategy: str) -> None:
    """Check for the best of the generalizations that are certainly k-minimal, or of all, depending on the strategy."""
    among = [*search.scores]
    if strategy in ("k_minimal", "ola", "samarati") and outcome.minimal:
        among = [*outcome.minimal]
    if strategy == "samarati-binary":
        lowest = min(map(sum, among), default=0)
        among = [levels for levels in among if sum(levels) == lowest]
    assert outcome.levels == search.choose_preferred(among), strategy


def check_end(table: Stop, search: LatticeSearch, outcome: Outcome, strategy: str) -> None:
    joins = table.kind == "rows"
    scores, minimal = [*search.scores], table.minimal
    if strategy in ("k_minimal", "ola", "flash", "incognito") or (strategy == "samarati" and joins):
        assert [*(outcome.minimal or ())] == minimal, strategy
    if strategy == "incognito":
        assert outcome.satisfying is not None
    if strategy in ("optimal", "incognito"):
        assert outcome.optimal
    rises = table.case.limit == "0" or table.case.measure in ("height", "relative_height")
    if rises and strategy in ("k_minimal", "ola", "flash"):
        assert outcome.optimal, strategy
    expected: Mapping[str, Levels | None] = {
        "optimal": table.preferred([*table.scores]),
        "incognito": table.preferred([*table.scores]),
        "k_minimal": table.preferred(minimal),
        "ola": table.preferred(minimal),
        "flash": table.preferred(scores),
        "datafly": steps_of_datafly(
            table.table, table.levels, table.case.weights or {}, table.scores.__contains__
        ),
    }  # fmt: skip
    if strategy in expected:
        assert outcome.levels == expected[strategy], strategy
    elif strategy == "samarati":
        assert lowest(search.scores) == lowest(met_by_paths(table, search)), strategy
        assert outcome.levels == table.preferred(minimal) or not joins
    elif strategy == "samarati-binary" and joins:
        least = min(map(sum, table.scores))
        assert outcome.levels == table.preferred([candidate for candidate in table.scores if sum(candidate) == least])
        assert outcome.optimal or table.case.measure != "height"


def met_by_paths(table: Stop, search: LatticeSearch) -> set[Levels]:
    """What satisfies the policy, and is the top, or first on a path from the lowest permitted generalization upward,
    always by the least join with a distance vector."""
    lattice = search.lattice
    joins = {
        lattice.lift(vector)
        for vector in vectors(table.table, table.case.k, lattice.bottom)
        if at_most(vector, lattice.top)
    }
    waiting, seen, met = [lattice.lift(lattice.bottom)], set[Levels](), {lattice.top} & {*table.scores}
    while waiting:
        levels = waiting.pop()
        if levels in seen:
            continue
        seen.add(levels)
        if levels in table.scores:
            met.add(levels)
            continue
        waiting += lowest({tuple(map(max, levels, join)) for join in joins} - {levels})
    return met


@pytest.mark.parametrize("strategy", WIDE)
def test_only_exhaustive_search_proves_infeasibility(strategy: str) -> None:
    case = stop(1, "rows")
    none = replace(case, case=replace(case.case, k=len(case.case.rows) + 1, limit="0.5"))
    outcome = search_by(strategy, none.search())
    assert outcome.levels is None and not outcome.stopped
    assert not outcome.minimal and not outcome.satisfying
    # Where the top keeps all rows, but they do not balance, what keeps fewer may still satisfy.
    rows = [("a1", "b1")] * 4 + [("a2", "b2")] * 9
    trees = {name: oracle.Hierarchy({f"{name}{i}": (f"{name}{i}", "*") for i in (1, 2)}) for name in "ab"}
    balance = Stop(Case([*rows, ("a1", "b2")], trees, 2, "0.99", "height"), "balance", ((0, 1), (0, 1)))
    for table in (balance, stop(2, "balance")):
        outcome = search_by(strategy, search := table.search())
        assert (outcome.levels is not None) <= bool(table.scores)
        assert outcome.levels is not None or not table.scores or not outcome.exhaustive
        looks_at_all = strategy not in ("samarati", "samarati-binary", "datafly")
        if outcome.levels is None and search.check(search.lattice.top):
            assert outcome.exhaustive == looks_at_all, strategy


def requirements(kind: str) -> Requirements:
    k = KAnonymity(2)
    return {
        "k": Requirements((k,)),
        "balance": Requirements((k, Balanced())),
        "risk": Requirements((k,), table_conditions=(AverageRisk(0.2),)),
        "risk alone": Requirements(table_conditions=(AverageRisk(0.2),)),
        "uniqueness": Requirements((k,), separate_conditions=(PopulationUniqueness(limit=0.1, sampling_fraction=0.1),)),
    }[kind]


GOOD = Figures(classes=4, suppressed_rows=3, kept_count=97)
SATISFIES, INFEASIBLE_BELOW, FEASIBLE_ABOVE = "satisfies", "infeasible below", "feasible above"
BOTH = {SATISFIES, FEASIBLE_ABOVE}
VERDICTS: list[tuple[str, Figures, dict[str, Any], set[str]]] = [
    ("k", GOOD, {}, BOTH),
    ("k", replace(GOOD, suppressed_rows=4), {}, {INFEASIBLE_BELOW}),
    ("k", Figures(0, 100), {"allowed": 100}, {INFEASIBLE_BELOW}),  # no row is left, here and below
    ("k", Figures(1, 99), {"allowed": 100}, BOTH),
    ("k", GOOD, {"additive": False}, BOTH),
    # Persons
    ("k", replace(GOOD, suppressed_persons=2), {"persons": 2}, BOTH),
    ("k", replace(GOOD, suppressed_persons=3), {"persons": 2}, {INFEASIBLE_BELOW}),
    ("balance", replace(GOOD, suppressed_persons=3, least_suppressed=0.0), {"persons": 2}, set()),
    # Where what is lost here need not be lost below
    ("balance", replace(GOOD, least_suppressed=1.0), {}, {SATISFIES}),
    ("balance", replace(GOOD, suppressed_rows=9, least_suppressed=2.0), {}, set()),
    ("balance", replace(GOOD, suppressed_rows=9, least_suppressed=3.0 + 1e-7), {}, set()),  # rounding
    ("balance", replace(GOOD, suppressed_rows=9, least_suppressed=3.1), {}, {INFEASIBLE_BELOW}),
    ("balance", Figures(0, 100, least_suppressed=5.0), {"allowed": 100}, set()),
    ("balance", replace(GOOD, suppressed_rows=0, least_suppressed=0.0), {}, BOTH),
    ("balance", replace(GOOD, suppressed_rows=0, least_suppressed=0.0), {"additive": False}, {SATISFIES}),
    # All classes together
    ("risk", replace(GOOD, classes=19), {}, {SATISFIES}),
    ("risk", replace(GOOD, classes=20), {}, set()),
    ("risk", Figures(20, 0, kept_count=100), {}, BOTH),
    ("risk", Figures(21, 0, kept_count=100), {}, set()),  # fewer rows may be kept below
    ("risk", Figures(21, 0, kept_count=100), {"allowed": 0}, {INFEASIBLE_BELOW}),
    ("risk", Figures(21, 0, kept_count=100), {"allowed": 0, "additive": False}, set()),
    ("risk alone", Figures(21, 0, kept_count=100), {}, {INFEASIBLE_BELOW}),
    ("risk", Figures(20, 0, kept_count=100), {"additive": False}, {SATISFIES}),
    ("uniqueness", replace(GOOD, violated={"uniqueness": 0.3}), {}, set()),
    ("uniqueness", Figures(4, 0, kept_count=100), {}, {SATISFIES}),
    # A population
    ("k", replace(GOOD, uncovered_classes=1), {}, set()),
    ("k", replace(GOOD, uncovered_classes=1, uncoverable_classes=1), {}, {INFEASIBLE_BELOW}),
    ("k", replace(GOOD, uncovered_classes=1, uncoverable_classes=1), {"additive": False}, set()),
]


@pytest.mark.parametrize("number", range(len(VERDICTS)))
def test_verdicts_follow_from_figures(number: int) -> None:
    kind, figures, options, expected = VERDICTS[number]
    rules = VerdictRules(requirements(kind), 100, options.get("additive", True), options.get("persons"))
    verdict = rules.draw_verdict(figures, options.get("allowed", 3))
    words = {
        SATISFIES: verdict.is_feasible,
        INFEASIBLE_BELOW: verdict.infeasible_below,
        FEASIBLE_ABOVE: verdict.feasible_above,
    }
    assert {word for word, holds_ in words.items() if holds_} == expected


def test_box_without_pruned_candidates_is_covered_once() -> None:
    low, high = (0, 1, 0), (2, 3, 1)
    ranges = [range(a, b + 1) for a, b in zip(low, high, strict=True)]
    every = [*itertools.product(*ranges)]
    for pruned_top in itertools.product(*(range(a, b + 2) for a, b in zip(low, high, strict=True))):
        parts = [*Box(0.0, 1, low, high).without(pruned_top)]
        for levels in every:
            covered = sum(at_most(a, levels) and at_most(levels, b) for a, b in parts)
            assert covered == (not at_most(levels, pruned_top)), (pruned_top, levels)
        assert all(at_most(a, b) for a, b in parts)
