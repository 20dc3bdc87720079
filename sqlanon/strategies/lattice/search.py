"""The memory of a search: what checks of generalizations say of others, and what a strategy may ask of the table beside
them."""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Any, NamedTuple

from sqlanon.engines.deadline import InterruptedStatementError
from sqlanon.frequency.suppression_limit import SuppressionLimit
from sqlanon.measures import Figures, Measure
from sqlanon.requirements import Requirements
from sqlanon.requirements.base import RetainedClasses
from sqlanon.strategies.lattice.forecast import Forecast
from sqlanon.strategies.lattice.lattice import Box, Dominance, Lattice, Progress, ignore_progress
from sqlanon.strategies.lattice.limits import FIRST_GRACE, GRACE, Budget
from sqlanon.support.coding import Levels


def summarize_kept_classes(figures: Figures, rows: int) -> RetainedClasses:
    """The kept classes of a generalization together, where the source has so many rows."""
    return RetainedClasses(
        figures.classes, rows - figures.suppressed_rows, figures.count, figures.singles, figures.unmatched
    )


@dataclass(frozen=True)
class Verdict:
    """What follows from the figures of a generalization."""

    satisfies: bool  # whether it satisfies the policy
    infeasible_below: bool  # whether neither it nor anything below it can
    feasible_above: bool  # whether everything above it satisfies the policy, as it does


@dataclass(frozen=True)
class VerdictRules:
    """What may be concluded, and nothing else: the docstrings of the requirements say why."""

    requirements: Requirements  # what the policy asks for
    rows: int  # of the source
    additive: bool = True  # whether the counts of merged classes add up
    allowed_persons: int | None = None  # who may lose a row; None: rows are counted

    def judge(self, figures: Figures, allowed_rows: int) -> Verdict:
        """Judge a generalization, where so many rows may be suppressed.

        Where persons are counted, these are at most the rows of the persons who may lose one: what suppresses more
        takes a row from more persons. If all requirements are hereditary, the rows that a generalization suppresses are
        suppressed at every lower one, too, and so their persons lose a row there: too many here are too many there.
        """
        asked = self.requirements
        kept = summarize_kept_classes(figures, self.rows)
        table = [one.is_met_by(kept) for one in asked.table_conditions]
        too_many_persons = self.allowed_persons is not None and (figures.suppressed_persons or 0) > self.allowed_persons
        within = figures.suppressed_rows <= allowed_rows and figures.classes > 0 and not too_many_persons
        satisfies = within and all(table) and not figures.unmet and not figures.violated
        lost = figures.suppressed_rows if figures.least_suppressed is None else figures.least_suppressed
        # What is lost is a sum of distances and logarithms times rows: a rounding must not rule out what satisfies.
        too_many = lost > min(allowed_rows, self.rows - 1) + 1e-6 + 1e-9 * self.rows
        same_rows = not (asked.class_conditions or asked.shields) or figures.suppressed_rows == allowed_rows == 0
        never = same_rows and self.additive and not all(table)
        everything = figures.suppressed_rows == 0 and self.additive and not asked.separate_conditions
        return Verdict(
            satisfies,
            infeasible_below=too_many
            or (too_many_persons and figures.least_suppressed is None)
            or never
            or (figures.too_few > 0 and self.additive),
            feasible_above=satisfies and (asked.hereditary or everything),
        )


@dataclass(frozen=True)
class SourceFacts:
    """What is told of a table; by default, nothing."""

    # The distinct distance vectors (see `search.vectors`) between outliers and all combinations, part after part: a
    # strategy may stop between two of them. They are within the lattice.
    vectors: Callable[[], Iterable[Collection[Levels]]] = tuple
    joins_suffice: bool = False
    """Whether every k-minimal generalization is the lowest one, or a join (attribute by attribute, the greater
    level) of vectors. So it is where all that is asked for is asked of each class by itself, and a class made of
    some that meet it meets it: a generalization and the join of the vectors at or below it suppress the same
    rows."""
    # By attribute and level: how many values the rows have.
    distinct_values: Callable[[], Sequence[Sequence[int]]] = tuple


TOLERANCE = 1e-12
"""Scores this close, relatively, are ties."""

MAX_VISITED = 10_000
"""The lattice table lists at most this number of generalizations that were looked at, and not checked."""

CONSIDERED = 32
"""Of the generalizations that rule out the low end of a box, at most this number is considered: the newest, which rule
out most."""


class Aim(NamedTuple):
    """The next step of the bound of a box: what scores at least that waits there, neither the answer nor ruled out."""

    score: float
    rows: int  # what suppresses more rows than these scores at least that, or can not be the answer


@dataclass
class LatticeSearch:
    """A search's task and its memory: what is checked, what follows from it, and the best so far."""

    lattice: Lattice
    measure: Measure
    evaluate: Callable[[Levels], Figures]
    judge: Callable[[Figures, int], Verdict]
    allowed_rows: int
    """As it is tightened on the way."""
    progress: Progress = ignore_progress
    budget: Budget = field(default_factory=Budget)
    source_facts: SourceFacts = field(default_factory=SourceFacts)
    evaluate_together: Callable[[Sequence[Levels]], Sequence[Figures]] | None = None
    """Checks the first of some generalizations, as many as it does at once. None: `check` checks one."""
    limit: SuppressionLimit | None = None
    """The limit of the policy. None: so many rows as are allowed."""

    def __post_init__(self) -> None:
        self.figures: dict[Levels, Figures] = {}  # of what was checked
        self.scores: dict[Levels, float] = {}  # of what satisfies
        self.best: Levels | None = None  # so far
        self.open_count = 0  # how many are waiting, as progress shows it
        self._interruptible_at = math.inf  # the time from which the statement under way may be interrupted
        self.seeks_best_only = False  # what cannot be the best is of no use
        self.is_proving = True  # checks are for bounds, not for good answers
        self.forecast = Forecast(self.measure.marginals)
        # Of what is not hopeless: by how much it raises the bounds of those below it, and the fewest rows that are
        # suppressed in it and in each of them.
        self._lifts: dict[Levels, float] = {}
        self._fewest: dict[Levels, int] = {}
        # By the heights, not the top: of an attribute that may not be released so high it may still be asked.
        self._heights = self.measure.marginals.heights
        self._hopeful, self._hopeless, self._lasting = (Dominance(self._heights) for _ in range(3))
        self._bounding = Dominance(self._heights)  # what was checked for bounds
        self._limit = self.allowed_rows
        self._ends_at = self.budget.ends_at()
        self._looked_at: dict[Levels, None] = {}

    def visit(self, *levels: Levels) -> None:
        """Remember generalizations for the lattice table, and see whether there is time left."""
        if len(self._looked_at) < MAX_VISITED:
            self._looked_at.update(dict.fromkeys(levels))
        self.budget.refuse_over_time(len(self.figures), self._ends_at)

    @contextmanager
    def in_time(self) -> Iterator[None]:
        """A statement that is interrupted because the time is over ends the search as the limit itself does."""
        self._interruptible_at = self._ends_at + (GRACE if self.figures else FIRST_GRACE)
        try:
            yield
        except InterruptedStatementError:
            self.budget.refuse_over_time(1, self._ends_at)
            raise
        finally:
            self._interruptible_at = math.inf

    def may_interrupt(self) -> bool:
        """Whether the statement under way may be interrupted now."""
        return time.monotonic() >= self._interruptible_at

    def can_satisfy(self, levels: Levels) -> bool | None:
        """Whether a generalization may satisfy the policy, as far as what was checked tells; None: it does not tell.

        Once one may, so may everything above it. With requirements that are monotone under suppression it does.
        """
        if self._hopeless.has_above(levels):
            return False
        return True if self._hopeful.has_below(levels) else None

    def satisfies(self, levels: Levels) -> bool:
        """Whether a generalization satisfies the policy; it is checked if need be."""
        self.check(levels)
        return self._verdict(levels, self.allowed_rows).satisfies

    def all_above_satisfy(self, levels: Levels) -> bool:
        """Whether everything of the lattice at or above a generalization is known to satisfy the policy."""
        return self._lasting.has_below(levels)

    def _verdict(self, levels: Levels, allowed_rows: int) -> Verdict:
        """What follows from a check; of a generalization that no release may have only what it tells of others."""
        verdict = self.judge(self.figures[levels], allowed_rows)
        return verdict if self.lattice.permits(levels) else replace(verdict, satisfies=False)

    def status(self, levels: Levels) -> str:
        """The status in the lattice table, by the policy's limit, even where the search worked with a tighter one."""
        if levels in self.figures:
            return "satisfies" if self._verdict(levels, self._limit).satisfies else "violates"
        if not self.lattice.permits(levels):
            return "violates"
        if self.all_above_satisfy(levels):
            return "satisfies"
        return "violates" if self.allowed_rows == self._limit and self._hopeless.has_above(levels) else "open"

    def check(self, levels: Levels) -> bool:
        """Check a generalization, once; whether it may satisfy the policy: if not, nothing below it does."""
        if levels in self.figures:
            return not self._verdict(levels, self.allowed_rows).infeasible_below
        self.budget.refuse_over_limits(len(self.figures), self._ends_at)
        with self.in_time():
            figures = self.evaluate(levels)
        return self._learn(levels, figures)

    def check_all(self, several: Iterable[Levels]) -> None:
        """Check generalizations, each once, in few statements."""
        left = [one for one in dict.fromkeys(several) if one not in self.figures]
        if self.evaluate_together is None:
            for one in left:
                self.check(one)
            return
        while left:
            self.budget.refuse_over_limits(len(self.figures), self._ends_at)
            most = self.budget.checks
            with self.in_time():
                found = self.evaluate_together(left if most is None else left[: most - len(self.figures)])
            for levels, figures in zip(left, found, strict=False):
                self._learn(levels, figures)
            left = left[len(found) :]

    def _learn(self, levels: Levels, figures: Figures) -> bool:
        self.figures[levels] = figures
        verdict = self._verdict(levels, self.allowed_rows)
        self._conclude(levels, figures, hopeless=verdict.infeasible_below)
        self.forecast.learn(levels, figures.expected_least_suppressed)
        if self.is_proving:
            self._bounding.add(levels)
        if verdict.feasible_above:
            self._lasting.add(levels)
        if verdict.satisfies:
            self.scores[levels] = self.measure.score(levels, figures)
            self.best = self.choose_preferred((self.best, levels))
        shown = None if self.best is None else self.measure.reported_score(self.scores[self.best])
        self.progress(self.open_count, len(self.figures), shown)
        return not verdict.infeasible_below

    def bound_from_below(self, levels: Levels) -> float:
        """A lower bound of the score of a generalization, by all that are checked at or below it."""
        if not self.measure.bounds_above:
            return 0.0
        below = chain(self._hopeful.below(levels), self._hopeless.below(levels))
        return max((self.measure.bound_above(self.figures[one]) for one in below), default=-math.inf)

    def _conclude(self, levels: Levels, figures: Figures, *, hopeless: bool) -> None:
        if hopeless:
            self._hopeless.add(levels)
            return
        self._hopeful.add(levels)
        # As in `Rules.judge`: what is lost is rounded.
        lost = figures.suppressed_rows if figures.least_suppressed is None else figures.least_suppressed
        self._fewest[levels] = math.ceil(lost - 1e-6 - 1e-9 * self.measure.marginals.rows)
        # Only where all requirements are hereditary are the rows that are suppressed here suppressed below, too; and
        # only of what satisfies the limit are the figures complete.
        known = figures.least_suppressed is None and 0 < figures.suppressed_rows <= self._limit and figures.classes > 0
        self._lifts[levels] = self.measure.lift(levels, figures) if known else 0.0

    def tighten_limit(self, allowed_rows: int) -> None:
        """Let fewer rows be suppressed from here on: what suppresses more is no use any more."""
        if allowed_rows < self.allowed_rows:
            self.allowed_rows = allowed_rows
            self._hopeful, self._hopeless = Dominance(self._heights), Dominance(self._heights)
            for levels, figures in self.figures.items():
                self._conclude(levels, figures, hopeless=self.judge(figures, allowed_rows).infeasible_below)

    def find_pruned_top(self, box: Box, aim: Aim | None = None) -> Levels | None:
        """A generalization at or above the low end of a box, such that nothing at or below it can be the answer, or
        all there reaches the aim; None if none is known: then the low end may be.

        Of several, one that leaves the box in few parts.
        """
        if self._hopeless.has_above(box.high):
            return box.high
        found, fewest = None, len(box.low) + 1
        for levels in chain(islice(self._hopeless.above(box.low), CONSIDERED), self._too_costly(box, aim)):
            parts = sum(map(operator.lt, levels, box.high))
            if parts < fewest:
                found, fewest = levels, parts
                if parts <= 1:
                    break
        return found

    def split_box(self, box: Box, excluded: Levels) -> Iterator[tuple[Levels, Levels]]:
        """The corners of what is left of a box without what is at or below a generalization; each low end is one that
        a release may have."""
        for low, high in box.without(excluded):
            lifted = self.lattice.lift(low)
            if all(map(operator.le, lifted, high)):
                yield lifted, high

    def _too_costly(self, box: Box, aim: Aim | None) -> Iterator[Levels]:
        """Checked generalizations that suppress so many rows that nothing at or below them is the best, or that all
        there reaches the aim."""
        if self.best is None or not self.seeks_best_only:
            return
        for levels in islice((self._hopeful if aim is None else self._bounding).above(box.low), CONSIDERED):
            if aim is None:
                lift = self._lifts[levels]
                if lift and self.cannot_improve(self.measure.raise_bound(box.key, lift), box.low):
                    yield levels
            elif (bound := self.raised_bound(box, levels)) >= aim.score or self.cannot_improve(bound, box.low):
                yield levels

    def raised_bound(self, box: Box, levels: Levels) -> float:
        """A lower bound for everything in a box at or below a checked generalization; infinite if none of it can be the
        answer. The key of the box is a bound that no lift has raised."""
        if self._hopeless.has_above(levels):
            return math.inf
        lift = self._lifts[levels]
        lifted = self.measure.raise_bound(box.key, lift) if lift else box.key
        return max(lifted, self.measure.bound_with(box.low, self._fewest[levels]))

    def falls_short_of(self, aim: Aim | None, levels: Levels) -> bool:
        """Whether one at or below a generalization is checked that may be the answer, and suppresses too few rows for
        the aim: then so does all above it."""
        if aim is None or aim.rows >= self.allowed_rows:
            return self._hopeful.has_below(levels)
        return any(self._fewest[one] <= aim.rows for one in self._hopeful.below(levels))

    def cannot_improve(self, bound: float, levels: Levels) -> bool:
        """Whether neither a generalization nor anything above it, if they score no less, can be preferred to the
        best."""
        return self.best is not None and not self.precedes(bound, levels, self.best)

    def decide_path(self, path: list[Levels], wanted: int, box: Box, aim: Aim | None = None) -> None:
        """Learn of the first of an ascending path whether it may satisfy the policy and be below the aim, or that it
        can not be the answer.

        One that is hopeless, or reaches the aim, settles all below it: the forecast says which to ask.
        """
        self.visit(*path[:wanted])
        low, high = 0, len(path)
        while low < high:
            middle = self.choose_check(path, low, high, aim)
            hopeful = self.check(path[middle]) and (aim is None or self._fewest[path[middle]] <= aim.rows)
            self.forecast.adjust(not hopeful)
            if not hopeful:
                low = middle + 1
                if low >= wanted:
                    return
            elif self.find_pruned_top(box, aim) is not None:
                return
            else:
                high = middle

    def choose_check(self, path: list[Levels], low: int, high: int, aim: Aim | None = None) -> int:
        """By the forecast, the index of the highest of a part of a path that is hopeless, or reaches the aim."""
        return self.forecast.highest(path, low, high, self.allowed_rows if aim is None else aim.rows)

    def extend_path(self, levels: Levels, aim: Aim | None = None) -> list[Levels]:
        """An ascending path from a generalization, without it, of those of which nothing is told.

        It rises where the forecast falls least: the more of it is hopeless, the more that rules out.
        """
        # Above one of which nothing is told, none is below a hopeless one.
        return self.lattice.ascend(levels, self.forecast.step, lambda up: not self.falls_short_of(aim, up))

    def precedes(self, cost: float, levels: Levels, than: Levels) -> bool:
        """Whether a cost at ``levels`` is preferred to a checked generalization: score, then height, then levels."""
        other = self.scores[than]
        if abs(cost - other) > TOLERANCE * max(abs(cost), abs(other)):
            return cost < other
        return (sum(levels), levels) < (sum(than), than)

    def choose_preferred(self, among: Iterable[Levels | None]) -> Levels | None:
        """The preferred one of checked generalizations that satisfy the policy."""
        best: Levels | None = None
        for levels in among:
            if levels is not None and (best is None or self.precedes(self.scores[levels], levels, best)):
                best = levels
        return best

    def lattice_columns(self) -> list[list[Any]]:
        """The columns of the lattice table: what was looked at."""
        seen = filter(self.lattice.permits, self._looked_at.keys() | self.figures.keys())
        nodes = sorted(seen, key=lambda levels: (sum(levels), levels))
        figures = (self.figures.get(levels) for levels in nodes)
        whole = [one if one is not None and one.counted_share == 1 else None for one in figures]
        bounds = [self.measure.bound(levels) for levels in nodes]
        scores = [self.scores.get(levels) for levels in nodes]
        shown = self.measure.reported_score
        return [
            [list(levels) for levels in nodes],
            [sum(levels) for levels in nodes],
            [shown(bound) for bound in bounds],
            [self.status(levels) for levels in nodes],
            [None if one is None else one.classes for one in whole],
            [None if one is None else one.suppressed_rows for one in whole],
            [None if score is None else shown(score) for score in scores],
            [None if one is None else one.suppressed_persons for one in whole],
        ]
