"""A search of the lattice of a prepared source: what is measured, what is asked of the engine, and the search."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property, wraps
from typing import Any

from sqlglot import exp

from sqlanon.coding import Coded, Levels
from sqlanon.engines.base import Engine
from sqlanon.engines.deadline import interrupted_after
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import InfeasibleError
from sqlanon.expressions import create_table, drop_table
from sqlanon.frequency.sets import ClassSpace, is_large
from sqlanon.frequency.statements import person_count
from sqlanon.measures import MEASURES, Figures, Measure
from sqlanon.policy.strategies import Strategy
from sqlanon.records import dataclass
from sqlanon.search import vectors as vc
from sqlanon.search.candidate import (
    attribute_leaves,
    between_ends,
    candidate,
    candidates,
    class_leaves,
    class_leaves_together,
    kept_sizes,
    suppressed_entropy,
)
from sqlanon.search.classes import can_be_judged_together
from sqlanon.search.input import SearchInput
from sqlanon.search.lattice import Progress
from sqlanon.search.limits import Budget
from sqlanon.search.memory import Data, Forecast, Rules, Search, kept_classes
from sqlanon.search.outcome import Outcome
from sqlanon.search.population_match import wrong_map
from sqlanon.search.result import SearchResult


def allowed_rows(prepared: SearchInput) -> int:
    """At most floor(limit × rows) rows may be suppressed, in exact arithmetic: 0.29 of 100 is 29."""
    return int(Fraction(prepared.policy.search.suppression_limit) * prepared.marginals.rows)


def measure_of(prepared: SearchInput) -> Measure:
    """The policy's measure, over the prepared source."""
    policy = prepared.policy
    # Where k-anonymity is of combinations, a class may have one row.
    least = 1 if policy.search.traits.of_combinations else prepared.requirements.least_class
    return MEASURES[policy.search.measure](prepared.marginals, prepared.weights, policy.search.aggregate, least)


def rules_of(prepared: SearchInput) -> Rules:
    """What may be concluded from a check."""
    return Rules(prepared.requirements, prepared.marginals.rows, prepared.sets.space.additive)


def leaf_sums(steps: StatementRunner, query: exp.Select) -> dict[int, float]:
    """The answer to `candidate.class_leaves`, by attribute."""
    return {slot: leaves for slot, leaves in steps.ask(query, []) if leaves is not None}


LEAVES_WITHIN = 2
"""A check that is expected to lose at most so many times the allowed rows counts leaves, too. That makes its statement
a tenth dearer; counting them by another one doubles it."""


FAR = 1.8
"""A check that is expected to lose at least so many times the allowed rows counts half of the classes first. That saves
two fifths of it, or adds a fifth. (The forecast is rough: of nine searched for on people, eight lost twice as many.)"""


class Checker:
    """Asks the engine for the figures of generalizations: usually by one statement; `_by_halves`, `_counts_leaves` and
    `together` say when by more or fewer."""

    def __init__(
        self,
        engine: Engine,
        prepared: SearchInput,
        measure: Measure,
        allowed: int,
        forecast: Forecast | None = None,
        only_best: Callable[[], bool] = lambda: False,
    ) -> None:
        """``forecast``: of the search that it is for; ``only_best``: whether what cannot be the best is of no use to
        that."""
        self._engine, self._prepared, self._measure, self._allowed = engine, prepared, measure, allowed
        self._sets, self._heights = prepared.sets, prepared.marginals.heights
        self._forecast, self._only_best = forecast, only_best
        self._separate = prepared.requirements.separate
        self._short = not all(one.hereditary for one in prepared.requirements.classes)
        self._judge = rules_of(prepared).judge
        self._leaves: exp.Table | None = None
        self._regrouped: dict[str, tuple[list[str], Callable[[Iterable[str]], tuple[Any, ...]]]] = {}
        self._counted = prepared.marginals.rows
        if self._separate and prepared.members is not None:
            self._counted = engine.rows(person_count(prepared.members))[0][0]
        for one in self._separate:
            one.refuse(self._counted)

    def __call__(self, levels: Levels) -> Figures:
        """The figures of a generalization."""
        space = self._sets.sizes_at(levels)
        attributes = self._prepared.attributes if self._counts_leaves(space, levels) else ()
        halved = self._by_halves(levels) if space.are_classes and self._fails_by_far(levels) else None
        row, share = halved or (self._row(space, levels, attributes), 1.0)
        if space.are_classes and self._is_within(row):
            space = self._sets.at(levels)
        leaves: Mapping[int, float] = {}
        if self._needs_leaves(levels, row) and attributes:
            leaves = {i: row[f"leaves_{i}"] for i, _ in between_ends(space, levels)}
        elif self._needs_leaves(levels, row):
            kept = _less_is_kept(space, row)
            found = leaf_sums(self._sets.steps, class_leaves(space, levels, self._prepared.attributes, kept))
            leaves = self._suppressed(levels, found) if kept else found
        return replace(self._figures(space, levels, row, leaves), share=share)

    def _row(self, space: ClassSpace, levels: Levels, attributes: Sequence[Coded] = ()) -> dict[str, Any]:
        """The row of `candidate`. Without leaves, most of its text is the same for all generalizations of classes from
        one table."""
        steps, keys = self._sets.steps, space.keys(levels)
        if steps.dry or attributes or not keys or not can_be_judged_together(space):
            query = candidate(space, levels, self._short, self._measure.needs_squares, attributes)
            return dict(steps.figures(query))
        if (table := space.frequency.name) not in self._regrouped:
            query = candidate(space, levels, self._short, self._measure.needs_squares)
            self._regrouped[table] = query.named_selects, steps.engine.regrouped(query)
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
        query = candidates(space, several, self._short, self._measure.needs_squares)
        names = query.named_selects
        rows = {row[0]: dict(zip(names, row, strict=True)) for row in steps.ask(query, [])}
        if len(rows) < len(several):  # there are no rows, and so no classes
            return [self(several[0])]
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
        for place, slot, leaves in self._sets.steps.ask(class_leaves_together(space, asked, self._leaves), []):
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
        return self._forecast is None or self._forecast.guess(levels) <= math.log1p(LEAVES_WITHIN * self._allowed)

    def _fails_by_far(self, levels: Levels) -> bool:
        """Whether a generalization is expected to lose so many rows that half of them are enough to see it, and of no
        other use to the search."""
        if self._forecast is None or not self._only_best() or self._measure.tells_upward:
            return False
        return self._forecast.guess(levels) >= math.log1p(FAR * self._allowed)

    def _by_halves(self, levels: Levels) -> tuple[dict[str, Any], float] | None:
        """The row of half of the classes, if these lose too many rows, else of all; and what share of them it is of.
        None where no attribute splits them."""
        attribute, row = self._sets.halving_attribute(levels), dict[str, Any]()
        if attribute is None:
            return None
        for rest, share in enumerate((0.5, 1.0)):
            with self._sets.half_at(levels, attribute, rest) as space:
                part = self._sets.steps.figures(candidate(space, levels, self._short, self._measure.needs_squares))
            row = {name: (row.get(name) or 0) + (figure or 0) for name, figure in part.items()}
            # Conditions on the whole table are not met or broken by half of it. They do not matter here: this verdict
            # follows from the suppressed rows alone, of which the other half can only have more.
            too_many = row["suppressed_rows"] > self._allowed
            if too_many and self._judge(self._figures(space, levels, row, {}), self._allowed).hopeless:
                return row, share
        return row, 1.0

    def _is_within(self, row: Mapping[str, Any]) -> bool:
        return bool(row["suppressed_rows"] <= self._allowed and row["classes"] > 0)

    def _needs_leaves(self, levels: Levels, row: Mapping[str, Any]) -> bool:
        if not (self._measure.needs_leaves and row["suppressed_rows"] and self._is_within(row)):
            return False
        return any(0 < level < height for level, height in zip(levels, self._heights, strict=True))

    def _suppressed(self, levels: Levels, kept: Mapping[int, float]) -> Mapping[int, float]:
        """What is not kept of the leaves of all rows."""
        every = self._prepared.marginals.leaf_sums
        between = [i for i, (level, height) in enumerate(zip(levels, self._heights, strict=True)) if 0 < level < height]
        return {i: every[i][levels[i]] - kept.get(i, 0.0) for i in between}

    def _figures(
        self, space: ClassSpace, levels: Levels, row: Mapping[str, Any], leaves: Mapping[int, float]
    ) -> Figures:
        suppressed, within = row["suppressed_rows"], self._is_within(row)
        shown = len(self._prepared.policy.generalized)
        entropy, broken = 0.0, tuple[str, ...]()
        if within and suppressed and self._measure.needs_entropy and levels[:shown] != self._heights[:shown]:
            entropy = self._engine.rows(suppressed_entropy(space, levels, suppressed, shown))[0][0]
        if self._separate and within:
            left = self._prepared.marginals.rows - suppressed
            kept = _Kept(self._engine, self._prepared, space, levels, left, self._counted)
            broken = tuple(one.name for one in self._separate if not one.holds(one.figure(kept)))
        return Figures(
            classes=row["classes"],
            suppressed_rows=suppressed,
            squares=row.get("squares") or 0.0,
            suppressed_leaves=leaves,
            suppressed_entropy=entropy,
            lost=(row["lost"] or 0.0) if self._short else None,
            count=row.get("count") or 0,
            singles=row.get("singles") or 0,
            unmatched=row.get("unmatched") or 0,
            unmet=row.get("unmet", 0),
            too_few=row.get("too_few", 0),
            broken=broken,
        )


@dataclass(frozen=True)
class _Kept:
    """The kept rows of a generalization: `requirements.base.KeptRows`."""

    engine: Engine
    prepared: SearchInput
    space: ClassSpace
    levels: Levels
    rows: int
    counted: int

    def sizes(self) -> Mapping[int, int]:
        return dict(self.engine.rows(kept_sizes(self.space, self.levels)))

    def wrong(self) -> int:
        query = wrong_map(self.prepared, self.space, self.levels)
        assert query is not None  # the policy has persons in both tables
        return int(self.engine.rows(query)[0][0])


def _less_is_kept(space: ClassSpace, row: Mapping[str, Any]) -> bool:
    """Whether there is less to add up over what is kept than over what is suppressed."""
    return bool(row["classes"] < row["suppressed_rows"]) and not space.population


PAIRS = 10_000_000
"""So many pairs of combinations are compared by one statement, which takes some tenths of a second."""


def data_of(prepared: SearchInput) -> Data:
    """What a strategy may ask of the prepared source, beside checks."""
    asked, additive = prepared.requirements, prepared.sets.space.additive
    merges = additive or all(one.hereditary for one in asked.classes)
    by_itself = not asked.shields and not asked.table and not asked.separate

    def distinct_values() -> list[tuple[int, ...]]:
        rows = prepared.sets.steps.engine.rows
        return [(*(rows(vc.distinct_values(one))[0] if one.height else ()), 1) for one in prepared.attributes]

    return Data(lambda: _vectors(prepared), merges and by_itself, distinct_values)


def _vectors(prepared: SearchInput) -> Iterator[set[Levels]]:
    """The distance vectors within the lattice: first those of combinations that differ in one attribute alone, then all
    others, as many outliers at a time as make `PAIRS`.

    Makes ``vector_combinations``, and drops it.
    """
    sets, lattice, heights = prepared.sets, prepared.lattice, prepared.marginals.heights
    engine, target, bottom = sets.steps.engine, sets.work("vector_combinations"), lattice.bottom
    engine.execute(create_table(target.copy(), vc.combinations(sets.at(bottom), bottom)))
    try:
        yield {
            (*bottom[:i], level, *bottom[i + 1 :])
            for i, (low, top) in enumerate(zip(bottom, lattice.top, strict=True))
            for level in range(low + 1, top + 1)
            if engine.rows(vc.neighbours(target, bottom, heights, i, level))[0][0]
        }
        combinations, outliers = engine.rows(vc.sizes(target))[0]
        # Of a large lattice there may be as many vectors as pairs: then each comes here.
        pairs = PAIRS if lattice.size <= PAIRS else PAIRS // 10 // len(heights)
        step = pairs // max(combinations, 1) + 1
        for first in range(0, outliers, step):
            last = min(first + step, outliers)
            found = engine.rows(vc.vectors(target, bottom, heights, first, last))
            vectors = (vc.unpacked(row, bottom, heights) for row in found)
            yield {one for one in vectors if all(map(operator.le, one, lattice.top))}
    finally:
        engine.execute(drop_table(target))


@dataclass(frozen=True)
class SearchTask:
    """What a strategy works on: a prepared source."""

    steps: StatementRunner
    prepared: SearchInput
    progress: Progress
    budget: Budget | None = None
    """None: the policy's limits."""

    @property
    def engine(self) -> Engine:
        """The engine that answers."""
        return self.steps.engine

    @cached_property
    def lattice(self) -> Search:
        """The search of its lattice, with all that is learnt on the way."""
        engine, prepared, asked = self.engine, self.prepared, self.prepared.policy.search
        measure, allowed = measure_of(prepared), allowed_rows(prepared)
        forecast = Forecast(prepared.marginals)
        check = Checker(engine, prepared, measure, allowed, forecast, lambda: search.only_best)
        search = Search(
            lattice=prepared.lattice,
            measure=measure,
            check=check,
            judge=rules_of(prepared).judge,
            allowed_rows=allowed,
            progress=self.progress,
            budget=self.budget or Budget(asked.time_limit, asked.max_checks),
            data=data_of(prepared),
            check_first=check.together,
        )
        search.forecast = forecast
        return search


GRACE = 0.5
"""Seconds that the statement under way has to end by itself after the time limit, before it is interrupted."""


def on_lattice(strategy: Callable[[Search], Outcome]) -> Callable[[SearchTask], SearchResult]:
    """A strategy of the full domain, as `policy.strategies.Strategy.run`: it ends with a generalization, or an error
    that says why there is none."""

    @wraps(strategy)
    def run(task: SearchTask) -> SearchResult:
        if not task.prepared.lattice.size:
            raise nothing_allowed(task.prepared)
        search = task.lattice
        seconds = search.budget.seconds
        late = None if seconds is None else seconds + GRACE
        with interrupted_after(late, [task.engine, task.prepared.sets.steps.engine], lambda: search.may_stop):
            outcome = strategy(search)
        levels = outcome.levels
        if levels is None:
            raise infeasible(task.prepared, search, outcome)
        return SearchResult(
            search.figures[levels],
            search.scores[levels],
            outcome.bound,
            outcome.optimal,
            levels=levels,
            search=search,
            minimal=outcome.minimal,
            satisfying=outcome.satisfying,
        )

    return run


def find(task: SearchTask, strategy: Strategy) -> SearchResult:
    """Search with a strategy."""
    result: SearchResult = strategy.run(task)
    return result


def infeasible(prepared: SearchInput, search: Search, outcome: Outcome) -> InfeasibleError:
    """The error to raise: the generalization that would suppress the fewest rows, and the binding requirement.

    A search that stopped before it was done, or that by its nature does not look at everything, has not proven that
    nothing satisfies the policy; its error says so.
    """
    rows = prepared.marginals.rows
    checked = [one for one in search.figures if search.lattice.permits(one) and search.figures[one].share == 1]
    levels = min(checked, key=lambda one: (search.figures[one].suppressed_rows, -sum(one), one))
    figures = search.figures[levels]
    nearest = search.lattice.named(levels)
    shown = ", ".join(f"{name} {level}" for name, level in nearest.items())
    message = "no generalization meets the policy. The closest"
    if outcome.stopped:
        message = f"the search stopped at [search] {outcome.stopped} before it found a generalization that meets the "
        message += "policy; with a higher limit it may find one. The closest so far"
    elif not outcome.exhaustive:
        message = f"strategy {prepared.policy.search.strategy} found no generalization that meets the policy. It does "
        message += 'not check all of them: strategy = "optimal" does, and may find one. The closest it found'
    message += f" ({shown}) suppresses {figures.suppressed_rows:,} of {rows:,} rows; the suppression limit allows "
    message += f"{search.allowed_rows:,}"
    if figures.suppressed_rows > search.allowed_rows or figures.classes == 0:
        words, blamed = _binding(prepared, levels)
    else:
        words, blamed = _of_the_table(prepared, search, levels)
    message += words
    if any(spec.forbidden for spec in prepared.policy.attributes.values()):
        message += ". Levels with forbidden labels were left out"
    unknown = max(prepared.marginals.unknown)
    if unknown:
        message += f". At least {unknown:,} rows have values that are missing from a hierarchy"
    if figures.classes == 0:
        message += ". No row would be released"
    if rows < (prepared.policy.privacy.k or 0) and prepared.policy.source.person is None:
        message += f": a class needs {prepared.policy.privacy.k:,} rows, and the source has {rows:,}"
    message += remedies(prepared, figures, blamed)
    return InfeasibleError(message, nearest, figures.suppressed_rows, search.allowed_rows)


def nothing_allowed(prepared: SearchInput) -> InfeasibleError:
    """The error to raise where an attribute has no level without a forbidden label."""
    lattice = prepared.lattice
    names = ", ".join(name for i, name in enumerate(lattice.attributes) if not lattice.levels(i))
    message = f"at each level that the policy allows of {names}, a value of the source has a forbidden label: forbid "
    message += "fewer, allow more levels, or release the table without the column"
    return InfeasibleError(message, None, 0, 0)


def remedies(prepared: SearchInput, figures: Figures, blamed: Sequence[str]) -> str:
    """What makes a policy feasible that suppresses too many rows, or breaks the requirements of these names."""
    rows, suppressed, ways = prepared.marginals.rows, figures.suppressed_rows, []
    if figures.classes and suppressed > allowed_rows(prepared):
        share = math.ceil(10_000 * suppressed / rows) / 10_000
        ways.append(f"raise search.suppression_limit to {share:g}")
    if blamed == [f"{prepared.policy.privacy.k}-anonymity"]:
        ways.append("lower k")
    elif blamed:
        ways.append(f"loosen {' or '.join(blamed)}")
    limited = [name for name, one in prepared.policy.attributes.items() if one.max_level is not None]
    if limited:
        ways.append(f"raise the max_level of {' or '.join(limited)}")
    return f". What can help: {', or '.join(ways)}" if ways else ""


def _binding(prepared: SearchInput, levels: Levels) -> tuple[str, list[str]]:
    """The requirement without which the fewest rows would be suppressed, where there are several; and its name."""
    space, requirements = prepared.sets.at(levels), prepared.requirements
    names = [*(one.name for one in requirements.classes), *(one.name for one in requirements.shields)]
    if len(names) < 2:
        return (f". The requirement is {names[0]}" if names else ""), names

    def left(name: str) -> int:
        others = replace(space, requirements=requirements.without(name))
        return int(prepared.sets.steps.figures(candidate(others, levels))["suppressed_rows"])

    lefts = {name: left(name) for name in names}
    name = min(names, key=lambda one: lefts[one])
    return f". The binding requirement is {name}; without it, {lefts[name]:,} rows would be suppressed", [name]


def _of_the_table(prepared: SearchInput, search: Search, levels: Levels) -> tuple[str, list[str]]:
    """What the kept classes of the nearest generalization do not meet together; and the names of it."""
    requirements, figures = prepared.requirements, search.figures[levels]
    kept = kept_classes(figures, prepared.marginals.rows)
    broken = [one.name for one in requirements.table if not one.holds(kept)]
    names = list(broken)
    if figures.unmet and requirements.covering is not None:
        names.append(requirements.covering.name)
        broken.append(
            f"{requirements.covering.name}: {figures.unmet} classes of the population would have no row in the release"
        )
    names += figures.broken
    broken += figures.broken
    return (f". It does not meet {'; nor '.join(broken)}" if broken else ""), names
