"""The search of a lattice: checked generalizations, what their figures prove about others, and the best so far."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Any, NamedTuple

from sqlanon.frequency.suppression_limit import SuppressionLimit
from sqlanon.measures import Figures, Measure
from sqlanon.requirements import Requirements
from sqlanon.requirements.base import KeptClasses
from sqlanon.strategies.lattice.forecast import Forecast
from sqlanon.strategies.lattice.lattice import Box, DominanceIndex, Lattice, Progress, ignore_progress
from sqlanon.strategies.lattice.limits import FIRST_GRACE, GRACE, Budget, Clock
from sqlanon.support.coding import Levels


def summarize_kept_classes(figures: Figures, rows: int) -> KeptClasses:
    """The kept classes of a generalization as requirements on the whole table see them; ``rows`` are the source's."""
    return KeptClasses(
        figures.classes,
        rows - figures.suppressed_rows,
        figures.kept_count,
        figures.single_classes,
        figures.unmatched_rows,
    )


@dataclass(frozen=True)
class Verdict:
    """Conclusions from the figures of a generalization."""

    is_feasible: bool  # it meets the policy
    infeasible_below: bool  # neither it nor anything below it can meet the policy
    feasible_above: bool  # it and everything above it meet the policy


@dataclass(frozen=True)
class VerdictRules:
    """Valid conclusions from figures. The docstrings of the requirements give the reasons."""

    requirements: Requirements
    rows: int  # the rows of the source
    additive: bool = True  # whether the counts of merged classes add up
    allowed_persons: int | None = None  # persons who may lose a row; None: rows are counted

    def draw_verdict(self, figures: Figures, allowed_rows: int) -> Verdict:
        """The verdict on a generalization, where ``allowed_rows`` rows may be suppressed.

        Where persons are counted, ``allowed_rows`` is the largest number of rows that ``allowed_persons`` have, so
        suppressing more rows means suppressing more persons. If all requirements are hereditary, the rows that a
        generalization suppresses are suppressed at every lower one; too many persons here are too many there.
        """
        requirements = self.requirements
        kept_classes = summarize_kept_classes(figures, self.rows)
        table_is_met = all(condition.is_met_by(kept_classes) for condition in requirements.table_conditions)
        too_many_persons = self.allowed_persons is not None and (figures.suppressed_persons or 0) > self.allowed_persons
        within = figures.suppressed_rows <= allowed_rows and figures.classes > 0 and not too_many_persons
        is_feasible = within and table_is_met and not figures.uncovered_classes and not figures.violated
        lowest = figures.suppressed_rows if figures.least_suppressed is None else figures.least_suppressed
        # The least number is a sum of distances and logarithms times rows: rounding must not prune a feasible one.
        too_many_rows = lowest > min(allowed_rows, self.rows - 1) + 1e-6 + 1e-9 * self.rows
        keeps_all_rows = not (requirements.class_conditions or requirements.shields)
        same_rows_below = keeps_all_rows or figures.suppressed_rows == allowed_rows == 0
        complete = figures.suppressed_rows == 0 and self.additive and not requirements.separate_conditions
        return Verdict(
            is_feasible,
            infeasible_below=too_many_rows
            or (too_many_persons and figures.least_suppressed is None)
            or (same_rows_below and self.additive and not table_is_met)
            or (figures.uncoverable_classes > 0 and self.additive),
            feasible_above=is_feasible and (requirements.hereditary or complete),
        )


@dataclass(frozen=True)
class SourceFacts:
    """Facts about a source that some strategies use in addition to checks. By default, no facts are available."""

    vectors: Callable[[], Iterable[Collection[Levels]]] = tuple
    """The distinct distance vectors (see `lattice.vectors`) within the lattice between outliers and all combinations,
    in parts: a strategy may stop after any of them."""
    joins_suffice: bool = False
    """Whether every k-minimal generalization is the lowest one, or a join (by attribute, the greater level) of vectors.
    This holds if all requirements are on single classes, and merging classes that meet them makes one that does: a
    generalization and the join of the vectors at or below it then suppress the same rows."""
    distinct_values: Callable[[], Sequence[Sequence[int]]] = tuple
    """The number of distinct values, by attribute and level."""


TOLERANCE = 1e-12
"""Scores with at most this relative difference are ties."""

MAX_VISITED = 10_000
"""Maximum number of unchecked generalizations in the lattice table."""

MAX_PRUNING_CANDIDATES = 32
"""Maximum number of generalizations that are considered to prune a box: the newest, which prune most."""


class Aim(NamedTuple):
    """The next step of a box's bound: the score that is to be proven for what waits in it."""

    score: float
    rows: int  # generalizations that suppress more score at least `score`, or cannot be optimal


@dataclass
class LatticeSearch:
    """Task and state of a search of the lattice."""

    lattice: Lattice
    measure: Measure
    checker: Callable[[Levels], Figures]
    draw_verdict: Callable[[Figures, int], Verdict]
    allowed_rows: int
    """Tightened during the search."""
    progress: Progress = ignore_progress
    budget: Budget = field(default_factory=Budget)
    source_facts: SourceFacts = field(default_factory=SourceFacts)
    check_together: Callable[[Sequence[Levels]], Sequence[Figures]] | None = None
    """Checks the first of several generalizations, as many as one statement can."""
    limit: SuppressionLimit | None = None
    """The policy's limit; None: ``allowed_rows`` rows."""

    def __post_init__(self) -> None:
        self.figures: dict[Levels, Figures] = {}  # the figures of each checked generalization
        self.scores: dict[Levels, float] = {}  # the score of each feasible generalization
        self.best: Levels | None = None
        self.open_count = 0  # the number of waiting generalizations, for progress
        self.seeks_best_only = False  # generalizations that cannot be the best may be pruned
        self.is_proving = True  # checks serve bounds, not good results
        self.forecast = Forecast(self.measure.marginals)
        self.clock = Clock(self.budget)
        # For generalizations that are not infeasible: the rise of the bounds of all below them, and the fewest rows
        # that they and all below them suppress.
        self._lifts: dict[Levels, float] = {}
        self._least_suppressed: dict[Levels, int] = {}
        # By heights, not by the top: levels above the top may be checked, too.
        self._heights = self.measure.marginals.heights
        self._hopeful, self._infeasible, self._feasible_above = (DominanceIndex(self._heights) for _ in range(3))
        self._proving = DominanceIndex(self._heights)  # checked for bounds
        self._policy_rows = self.allowed_rows
        self._visited: dict[Levels, None] = {}

    def visit(self, *generalizations: Levels) -> None:
        """Record generalizations for the lattice table; end the search after its time limit."""
        if len(self._visited) < MAX_VISITED:
            self._visited.update(dict.fromkeys(generalizations))
        self.clock.refuse_over_time()

    def in_time(self) -> AbstractContextManager[None]:
        """Let a statement that is interrupted at the time limit end the search as the limit does."""
        return self.clock.in_time(GRACE if self.figures else FIRST_GRACE)

    def can_be_feasible(self, levels: Levels) -> bool | None:
        """Whether a generalization can meet the policy, as far as the checks prove it; None: they do not.

        If one can, everything above it can. With requirements that are monotone under suppression it does.
        """
        if self._infeasible.has_above(levels):
            return False
        return True if self._hopeful.has_below(levels) else None

    def is_feasible(self, levels: Levels) -> bool:
        """Whether a generalization meets the policy. Checks it once."""
        self.check(levels)
        return self._verdict(levels, self.allowed_rows).is_feasible

    def is_feasible_above(self, levels: Levels) -> bool:
        """Whether the checks prove that everything at or above a generalization meets the policy."""
        return self._feasible_above.has_below(levels)

    def _verdict(self, levels: Levels, allowed_rows: int) -> Verdict:
        verdict = self.draw_verdict(self.figures[levels], allowed_rows)
        return verdict if self.lattice.permits(levels) else replace(verdict, is_feasible=False)

    def status(self, levels: Levels) -> str:
        """The status in the lattice table: by the policy's limit, also after the search has tightened it."""
        if levels in self.figures:
            return "satisfies" if self._verdict(levels, self._policy_rows).is_feasible else "violates"
        if not self.lattice.permits(levels):
            return "violates"
        if self.is_feasible_above(levels):
            return "satisfies"
        is_ruled_out = self.allowed_rows == self._policy_rows and self._infeasible.has_above(levels)
        return "violates" if is_ruled_out else "open"

    def check(self, levels: Levels) -> bool:
        """Check a generalization once. False: neither it nor anything below it meets the policy."""
        if levels in self.figures:
            return not self._verdict(levels, self.allowed_rows).infeasible_below
        self.clock.refuse_over_limits()
        with self.in_time():
            figures = self.checker(levels)
        return self._learn(levels, figures)

    def check_all(self, generalizations: Iterable[Levels]) -> None:
        """Check each generalization once, in few statements."""
        unchecked = [levels for levels in dict.fromkeys(generalizations) if levels not in self.figures]
        if self.check_together is None:
            for levels in unchecked:
                self.check(levels)
            return
        while unchecked:
            self.clock.refuse_over_limits()
            with self.in_time():
                checked = self.check_together(unchecked[: self.clock.remaining_checks])
            for levels, figures in zip(unchecked, checked, strict=False):
                self._learn(levels, figures)
            unchecked = unchecked[len(checked) :]

    def _learn(self, levels: Levels, figures: Figures) -> bool:
        self.figures[levels] = figures
        self.clock.checks += 1
        verdict = self._verdict(levels, self.allowed_rows)
        self._conclude(levels, figures, infeasible=verdict.infeasible_below)
        self.forecast.learn(levels, figures.expected_least_suppressed)
        if self.is_proving:
            self._proving.add(levels)
        if verdict.feasible_above:
            self._feasible_above.add(levels)
        if verdict.is_feasible:
            self.scores[levels] = self.measure.score(levels, figures)
            self.best = self.choose_preferred((self.best, levels))
        best_score = None if self.best is None else self.measure.reported_score(self.scores[self.best])
        self.progress(self.open_count, len(self.figures), best_score)
        return not verdict.infeasible_below

    def bound_from_below(self, levels: Levels) -> float:
        """A lower bound on the score of a generalization, from the checked ones at or below it."""
        if not self.measure.bounds_above:
            return 0.0
        below = chain(self._hopeful.below(levels), self._infeasible.below(levels))
        return max((self.measure.bound_above(self.figures[lower]) for lower in below), default=-math.inf)

    def _conclude(self, levels: Levels, figures: Figures, *, infeasible: bool) -> None:
        if infeasible:
            self._infeasible.add(levels)
            return
        self._hopeful.add(levels)
        # Rounded as in `VerdictRules.draw_verdict`.
        lowest = figures.suppressed_rows if figures.least_suppressed is None else figures.least_suppressed
        self._least_suppressed[levels] = math.ceil(lowest - 1e-6 - 1e-9 * self.measure.marginals.rows)
        # Rows suppressed here are suppressed below only if all requirements are hereditary; and only within the limit
        # are the figures complete.
        has_lift = figures.least_suppressed is None and 0 < figures.suppressed_rows <= self._policy_rows
        self._lifts[levels] = self.measure.lift(levels, figures) if has_lift and figures.classes > 0 else 0.0

    def tighten_limit(self, allowed_rows: int) -> None:
        """Lower the number of allowed rows: generalizations that suppress more cannot be optimal."""
        if allowed_rows < self.allowed_rows:
            self.allowed_rows = allowed_rows
            self._hopeful, self._infeasible = DominanceIndex(self._heights), DominanceIndex(self._heights)
            for levels, figures in self.figures.items():
                self._conclude(levels, figures, infeasible=self.draw_verdict(figures, allowed_rows).infeasible_below)

    def find_pruned_top(self, box: Box, aim: Aim | None = None) -> Levels | None:
        """A generalization at or above a box's low end with nothing at or below it that can be the result, or that is
        below the aim; None if the checks prove none.

        Of several, one that leaves the box in few parts.
        """
        if self._infeasible.has_above(box.high):
            return box.high
        pruned_top, fewest_parts = None, len(box.low) + 1
        infeasible = islice(self._infeasible.above(box.low), MAX_PRUNING_CANDIDATES)
        for levels in chain(infeasible, self._too_costly(box, aim)):
            parts = sum(map(operator.lt, levels, box.high))
            if parts < fewest_parts:
                pruned_top, fewest_parts = levels, parts
                if parts <= 1:
                    break
        return pruned_top

    def split_box(self, box: Box, pruned_top: Levels) -> Iterator[tuple[Levels, Levels]]:
        """The corners of a box's parts that are not at or below ``pruned_top``, with permitted low ends."""
        for low, high in box.without(pruned_top):
            lifted = self.lattice.lift(low)
            if all(map(operator.le, lifted, high)):
                yield lifted, high

    def _too_costly(self, box: Box, aim: Aim | None) -> Iterator[Levels]:
        """Checked generalizations that suppress more rows than the best result can have, or than the aim allows;
        everything below them does, too."""
        if self.best is None or not self.seeks_best_only:
            return
        checked = self._hopeful if aim is None else self._proving
        for levels in islice(checked.above(box.low), MAX_PRUNING_CANDIDATES):
            if aim is None:
                lift = self._lifts[levels]
                if lift and self.cannot_improve(self.measure.raise_bound(box.key, lift), box.low):
                    yield levels
            elif (bound := self.raised_bound(box, levels)) >= aim.score or self.cannot_improve(bound, box.low):
                yield levels

    def raised_bound(self, box: Box, levels: Levels) -> float:
        """A lower bound for everything in a box at or below a checked generalization; infinite if none of it can be the
        best. The key of the box must be a bound without lifts."""
        if self._infeasible.has_above(levels):
            return math.inf
        lift = self._lifts[levels]
        raised = self.measure.raise_bound(box.key, lift) if lift else box.key
        return max(raised, self.measure.bound_with(box.low, self._least_suppressed[levels]))

    def falls_short_of(self, aim: Aim | None, levels: Levels) -> bool:
        """Whether a checked generalization at or below this one may be the best and suppresses too few rows for the
        aim; then so does everything above it."""
        if aim is None or aim.rows >= self.allowed_rows:
            return self._hopeful.has_below(levels)
        return any(self._least_suppressed[lower] <= aim.rows for lower in self._hopeful.below(levels))

    def cannot_improve(self, bound: float, levels: Levels) -> bool:
        """Whether nothing at or above a generalization with this lower bound can be preferred to the best."""
        return self.best is not None and not self.precedes(bound, levels, self.best)

    def decide_path(self, path: list[Levels], wanted: int, box: Box, aim: Aim | None = None) -> None:
        """Check along an ascending path until its low end is decided: feasible below the aim, or pruned.

        One that is infeasible, or reaches the aim, decides all below it; the forecast chooses which to check. The first
        ``wanted`` generalizations are those that may be the result.
        """
        self.visit(*path[:wanted])
        start, end = 0, len(path)
        while start < end:
            middle = self.choose_check(path, start, end, aim)
            hopeful = self.check(path[middle]) and (aim is None or self._least_suppressed[path[middle]] <= aim.rows)
            self.forecast.adjust_margin(not hopeful)
            if not hopeful:
                start = middle + 1
                if start >= wanted:
                    return
            elif self.find_pruned_top(box, aim) is not None:
                return
            else:
                end = middle

    def choose_check(self, path: list[Levels], start: int, end: int, aim: Aim | None = None) -> int:
        """The index of the highest generalization of ``path[start:end]`` that is infeasible, or reaches the aim, by the
        forecast."""
        return self.forecast.highest_infeasible(path, start, end, self.allowed_rows if aim is None else aim.rows)

    def extend_path(self, levels: Levels, aim: Aim | None = None) -> list[Levels]:
        """An ascending path of undecided generalizations above an undecided one.

        It takes the steps of least predicted gain: the longer it stays infeasible, the more its checks prune.
        """
        # Nothing above an undecided generalization is below an infeasible one.
        return self.lattice.ascend(levels, self.forecast.step_gain, lambda upper: not self.falls_short_of(aim, upper))

    def precedes(self, cost: float, levels: Levels, rival: Levels) -> bool:
        """Whether a cost at ``levels`` is preferred to a checked generalization: by score, height, then levels."""
        rival_cost = self.scores[rival]
        if abs(cost - rival_cost) > TOLERANCE * max(abs(cost), abs(rival_cost)):
            return cost < rival_cost
        return (sum(levels), levels) < (sum(rival), rival)

    def choose_preferred(self, generalizations: Iterable[Levels | None]) -> Levels | None:
        """The preferred one of some checked, feasible generalizations; None entries are ignored."""
        best: Levels | None = None
        for levels in generalizations:
            if levels is not None and (best is None or self.precedes(self.scores[levels], levels, best)):
                best = levels
        return best

    def lattice_columns(self) -> list[list[Any]]:
        """The columns of the lattice table: all visited and checked generalizations."""
        seen = filter(self.lattice.permits, self._visited.keys() | self.figures.keys())
        nodes = sorted(seen, key=lambda levels: (sum(levels), levels))
        figures = (self.figures.get(levels) for levels in nodes)
        # Figures of a part of the classes are not shown.
        complete = [row if row is not None and row.is_complete else None for row in figures]
        scores = [self.scores.get(levels) for levels in nodes]
        reported_score = self.measure.reported_score
        return [
            [list(levels) for levels in nodes],
            [sum(levels) for levels in nodes],
            [reported_score(self.measure.bound(levels)) for levels in nodes],
            [self.status(levels) for levels in nodes],
            [None if row is None else row.classes for row in complete],
            [None if row is None else row.suppressed_rows for row in complete],
            [None if score is None else reported_score(score) for score in scores],
            [None if row is None else row.suppressed_persons for row in complete],
        ]
