"""A search of the lattice of a prepared source: what is measured, what is asked of the engine, and the search."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property, wraps

from sqlglot import exp

from sqlanon.coding import Levels
from sqlanon.engines.base import Engine
from sqlanon.engines.deadline import interrupted_after
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import InfeasibleError
from sqlanon.expressions import create_table, drop_table
from sqlanon.frequency.sets import ClassSpace
from sqlanon.frequency.statements import person_count
from sqlanon.measures import MEASURES, Figures, Measure
from sqlanon.policy.strategies import Strategy
from sqlanon.records import dataclass
from sqlanon.search import vectors as vc
from sqlanon.search.candidate import candidate, class_leaves, kept_sizes, suppressed_entropy
from sqlanon.search.input import SearchInput
from sqlanon.search.lattice import Progress
from sqlanon.search.limits import Budget
from sqlanon.search.memory import Data, Rules, Search
from sqlanon.search.outcome import Outcome
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


def checker(engine: Engine, prepared: SearchInput, measure: Measure, allowed: int) -> Callable[[Levels], Figures]:
    """Asks the engine for a generalization's figures: one statement, and one more for what the measures `loss` and
    `entropy` need of a generalization that suppresses no more rows than are allowed."""
    sets, heights = prepared.sets, prepared.marginals.heights
    steps, shown = sets.steps, len(prepared.policy.generalized)
    short = not all(one.hereditary for one in prepared.requirements.classes)
    estimates = prepared.requirements.estimates
    members = prepared.members
    counted = prepared.marginals.rows if not estimates or members is None else engine.rows(person_count(members))[0][0]

    for one in estimates:
        one.refuse(counted)

    def suppressed_leaves(space: ClassSpace, levels: Levels, kept: bool) -> dict[int, float]:
        """By what is kept, where that is less to add up."""
        found = leaf_sums(steps, class_leaves(space, levels, prepared.attributes, kept))
        if not kept:
            return found
        every = prepared.marginals.leaf_sums
        between = [i for i, (level, height) in enumerate(zip(levels, heights, strict=True)) if 0 < level < height]
        return {i: every[i][levels[i]] - found.get(i, 0.0) for i in between}

    def check(levels: Levels) -> Figures:
        space = sets.sizes_at(levels)
        row = steps.figures(candidate(space, levels, short, measure.needs_squares))
        suppressed = row["suppressed_rows"]
        within = suppressed <= allowed and row["classes"] > 0
        if within and space.are_classes:
            space = sets.at(levels)
        leaves: dict[int, float] = {}
        entropy, holds = 0.0, True
        between = any(0 < level < height for level, height in zip(levels, heights, strict=True))
        if within and suppressed and measure.needs_leaves and between:
            leaves = suppressed_leaves(space, levels, kept=row["classes"] < suppressed and not space.population)
        if within and suppressed and measure.needs_entropy and levels[:shown] != heights[:shown]:
            entropy = engine.rows(suppressed_entropy(space, levels, suppressed, shown))[0][0]
        if estimates and within:
            sizes = dict(engine.rows(kept_sizes(space, levels)))
            holds = all(one.holds(sizes, counted) for one in estimates)
        return Figures(
            classes=row["classes"],
            suppressed_rows=suppressed,
            squares=row.get("squares") or 0.0,
            suppressed_leaves=leaves,
            suppressed_entropy=entropy,
            lost=(row["lost"] or 0.0) if short else None,
            count=row.get("count") or 0,
            singles=row.get("singles") or 0,
            unmet=row.get("unmet", 0),
            too_few=row.get("too_few", 0),
            estimate_holds=holds,
        )

    return check


PAIRS = 10_000_000
"""So many pairs of combinations are compared by one statement, which takes some tenths of a second."""


def data_of(prepared: SearchInput) -> Data:
    """What a strategy may ask of the prepared source, beside checks."""
    asked, additive = prepared.requirements, prepared.sets.space.additive
    merges = additive or all(one.hereditary for one in asked.classes)
    by_itself = not asked.shields and not asked.table and not asked.estimates

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
        check = checker(engine, prepared, measure, allowed)
        budget = self.budget or Budget(asked.time_limit, asked.max_checks)
        judge, data = rules_of(prepared).judge, data_of(prepared)
        return Search(prepared.lattice, measure, check, judge, allowed, self.progress, budget, data=data)


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
    checked = filter(search.lattice.permits, search.figures)
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
    broken = [one.name for one in requirements.table if not one.holds(figures.classes, figures.count, figures.singles)]
    names = list(broken)
    if figures.unmet and requirements.covering is not None:
        names.append(requirements.covering.name)
        broken.append(
            f"{requirements.covering.name}: {figures.unmet} classes of the population would have no row in the release"
        )
    if not figures.estimate_holds:
        names += (estimated := [one.name for one in requirements.estimates])
        broken += estimated
    return (f". It does not meet {'; nor '.join(broken)}" if broken else ""), names
