"""Strategy ``iab``, Intelligent Anonymity Balance: the table with the most distinct tuples.

A *state* T(n, m) is a generalized table with m distinct tuples, n of which violate: they are in a group of fewer than k
rows, for the policy's ``k`` over all quasi-identifiers or for one of its shields. Tuples are those of the release: rows
that agree in all released columns, sensitive and insensitive ones too. Both numbers count distinct tuples, so that n is
at most m.

From a state there is one step for each attribute: every violating row, and every row whose value has the same parent
as a violating row's, gets the parent for its value. What may not be released (``max_level``, ``forbidden``) is climbed
past. A step maps equal tuples to equal ones, so that it never adds a tuple: m bounds all that can follow.

The search is best-first: of the open states, the one with the most tuples, then the fewest violating ones, is next. It
stops when no open state has more tuples than the best that satisfies. That one has the most distinct tuples of all
states that steps can lead to. That proves nothing of recodings beyond these, nor of another measure.

Beyond the paper there are these:

- Before anything satisfies, the next is the best of the newest states, so that a search that a limit stops has
  something to give. What it ends with, if none stops it, has as many tuples either way.
- A state satisfies, too, if its violating rows may be suppressed, and no other row violates without them. Its tuples
  are those that stay; it may still be generalized further.

Where violating rows are at their tops in all attributes there is no further step: it can be that no state satisfies
though the top of the full domain does.

Source: the IAB's paper on anonymizing its data, with its pairs of shield and k.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from sqlanon.errors import InfeasibleError
from sqlanon.expressions import col, column_definitions, create_table, drop_table, number, select, subquery
from sqlanon.recode.local import iab_statements as balance
from sqlanon.recode.local.nodes import released_name
from sqlanon.recode.local.task import LocalOutcome, LocalTask
from sqlanon.requirements.base import CLASS_COUNT
from sqlanon.search.budget import LimitReachedError


def iab(task: LocalTask) -> LocalOutcome:
    """Find the state with the most distinct tuples that satisfies the policy.

    Raises
    ------
    InfeasibleError
        None does, or none was found within the limits of the search.
    """
    return Balance(task).run()


@dataclass(frozen=True)
class State:
    """What a check says of a generalized table.

    Attributes
    ----------
    number:
        Which one.
    tuples, violating:
        Its distinct tuples, and those that violate.
    suppressed_rows:
        Rows in the latter, or with values that can never be released.
    satisfies:
        Whether it satisfies the policy without them.
    """

    number: int
    tuples: int
    violating: int
    suppressed_rows: int
    satisfies: bool

    @property
    def kept(self) -> int:
        """The distinct tuples that are released of it."""
        return self.tuples - self.violating

    @property
    def order(self) -> tuple[int, int, int]:
        """Of two open ones, the lesser is next."""
        return -self.tuples, self.violating, self.number


class Balance:
    """The search, and what it has learnt.

    Attributes
    ----------
    checks:
        States that were counted.
    best, nearest:
        Of what was counted, the one that satisfies with the most tuples, the first of equals; and the one with the
        fewest suppressed rows.
    """

    def __init__(self, task: LocalTask) -> None:
        self.task = task
        self.attributes = range(len(task.trees))
        self.checks = 0
        self.best: State | None = None
        self.nearest: State | None = None
        self._open: dict[int, State] = {}
        self._waiting: list[tuple[tuple[int, int, int], State]] = []
        self._met: set[str] = set()
        self._nodes = [released_name(i) for i in self.attributes]
        self._asked = self._requirements()
        self._tables = Tables(task)
        self._last = 0

    def run(self) -> LocalOutcome:
        """Search, and place the best."""
        stopped = ""
        try:
            newest = self._look_at(0)
            while (state := self._next(newest)) is not None:
                newest = self._expand(state)
        except LimitReachedError as reached:
            stopped = str(reached)
        if self.best is None:
            raise self._nothing(stopped)
        return LocalOutcome(self._place(self.best), rounds=self.checks)

    def _next(self, newest: list[State]) -> State | None:
        """The open state that is next, if any is left that can lead to a better one than the best."""
        if self.best is None and newest:
            return self._open.pop(min(newest, key=lambda one: one.order).number)
        while self._waiting:
            _, state = heapq.heappop(self._waiting)
            if self._open.pop(state.number, None) is not None:
                return state if self._may_lead_on(state) else None
        return None

    def _may_lead_on(self, state: State) -> bool:
        return state.violating > 0 and (self.best is None or state.tuples > self.best.kept)

    def _expand(self, state: State) -> list[State]:
        """Make the states that follow from one; those that may lead on."""
        self._last += len(self.attributes)
        self._tables.make_children(state.number, self._last)
        if state != self.best:
            self._tables.forget([state.number])
        return self._look_at(self._last)

    def _look_at(self, first: int) -> list[State]:
        """Check the states from a number on, but for those that were met before; let those that may lead on wait."""
        found, before = self._tables.digests(first), self.best
        again = [number_ for number_, digest in found if digest in self._met]
        self._met.update(digest for _, digest in found)
        self._tables.forget(again)
        states = self._check([number_ for number_, _ in found if number_ not in again])
        leading = [state for state in states if self._may_lead_on(state)]
        for state in leading:
            self._open[state.number] = state
            heapq.heappush(self._waiting, (state.order, state))
        done = [state for state in (*states, before) if state is not None and state != self.best]
        self._tables.forget([state.number for state in done if state.number not in self._open])
        return leading

    def _check(self, numbers: list[int]) -> list[State]:
        """Count states, as many as may be counted.

        Raises
        ------
        LimitReachedError
            Some may not be.
        """
        if not numbers:
            return []
        clock = self.task.clock
        clock.refuse_more()
        within_budget = numbers[: clock.left]
        task, states = self.task, []
        with self._flagged(within_budget) as rows:
            for number_, tuples, violating, placed, violating_rows in self._tables.tuples(rows):
                suppressed = task.rows - placed + violating_rows
                within = suppressed <= task.allowed_rows and violating < tuples
                satisfies = within and (not violating or self._holds_without(rows, number_))
                states.append(State(number_, tuples, violating, suppressed, satisfies))
            self._tables.note_hits(rows)
        for state in states:
            self._learn(state)
        if len(within_budget) < len(numbers):
            clock.refuse_more()
        return states

    def _learn(self, state: State) -> None:
        self.checks += 1
        self.task.clock.checks += 1
        if self.nearest is None or state.suppressed_rows < self.nearest.suppressed_rows:
            self.nearest = state
        if state.satisfies and (self.best is None or state.kept > self.best.kept):
            self.best = state
        self.task.progress(len(self._open), self.checks, None if self.best is None else float(self.best.kept))

    @contextmanager
    def _flagged(self, numbers: Sequence[int]) -> Iterator[exp.Table]:
        """Generalized tables, with their violating rows flagged."""
        tables = self._tables
        with (
            tables.made("placed", tables.placed(numbers)) as rows,
            tables.made("flagged", balance.flagged(rows, self._small(rows))) as flagged,
        ):
            yield flagged

    def _holds_without(self, flagged: exp.Table, number_: int) -> bool:
        """Whether no row violates once those that do are left out. (Of groups of one kind, others are untouched.)"""
        if len(self._asked) == 1:
            return True
        tables = self._tables
        with (
            tables.made("rest", balance.kept(flagged, number_, self._nodes)) as rows,
            tables.made("flagged_rest", balance.flagged(rows, self._small(rows))) as again,
        ):
            return not any(violating for _, _, violating, *_ in self._tables.tuples(again))

    def _small(self, rows: exp.Table) -> list[tuple[exp.Query, list[str]]]:
        """For each requirement its groups that are too small, and their keys."""
        found: list[tuple[exp.Query, list[str]]] = []
        for attributes, k in self._asked:
            keys = [balance.STATE, *(released_name(i) for i in attributes)]
            few = exp.LT(this=col(CLASS_COUNT), expression=number(k))
            groups = select([col(key) for key in keys], subquery(self.task.judged(rows, keys), "j"))
            found.append((groups.where(few, copy=False), keys))
        return found

    def _requirements(self) -> list[tuple[tuple[int, ...], int]]:
        """Each requirement's attributes, and its k."""
        k = self.task.prepared.policy.privacy.k
        own = [] if k is None else [(tuple(self.attributes), k)]
        return own + [(shield.attributes, shield.k) for shield in self.task.prepared.requirements.shields]

    def _place(self, state: State) -> exp.Table:
        with self._flagged([state.number]) as rows:
            return self.task.steps.make(self.task.work("iab_kept"), balance.kept(rows, state.number, self._nodes))

    def _nothing(self, stopped: str) -> InfeasibleError:
        """The error to raise where nothing was found."""
        task = self.task
        nearest = task.rows if self.nearest is None else self.nearest.suppressed_rows  # none: no value is known
        message = "no table that steps of strategy iab lead to meets the policy; another strategy may find one"
        if stopped:
            message = f"the search stopped at [search] {stopped} before it found a table that meets the policy; with a "
            message += "higher limit it may find one"
        message += f". The one that comes nearest would have to suppress {nearest} of {task.rows} rows; "
        message += f"the suppression limit allows {task.allowed_rows}"
        return InfeasibleError(message, None, nearest, task.allowed_rows)


class Tables:
    """The tables of the search, in the engine: see `recode.local.iab_statements`."""

    def __init__(self, task: LocalTask) -> None:
        self.task = task
        trees, prepared, make = task.trees, task.prepared, task.steps.make
        self._steps = make(task.work("iab_steps"), balance.next_nodes(trees))
        self._maps = make(task.work("iab_maps"), balance.first_maps(trees, self._steps))
        self._combinations = make(task.work("iab_ground"), balance.ground(task.combinations, self._maps, trees))
        self._hits = task.work("iab_hits")
        task.engine.execute(column_definitions(self._hits.copy(), balance.HITS.items()))
        self._others = None
        if any(column.quasi is None for column in prepared.released):
            attributes, source = prepared.attributes, prepared.source.relation
            query = balance.others(source, prepared.released, attributes, task.combinations, trees)
            self._others = make(task.work("iab_others"), query)

    @contextmanager
    def made(self, name: str, query: exp.Query) -> Iterator[exp.Table]:
        """A table for a while."""
        target = self.task.work(f"iab_{name}")
        self.task.engine.execute(create_table(target.copy(), query))
        yield target
        self.task.engine.execute(drop_table(target.copy()))

    def placed(self, numbers: Sequence[int]) -> exp.Select:
        """Generalized tables, laid out."""
        return balance.placed(self._combinations, self._maps, len(self.task.trees), numbers)

    def tuples(self, rows: exp.Table) -> list[tuple[Any, ...]]:
        """The figures of generalized tables with flags, one row each."""
        return self.task.engine.rows(balance.tuples(rows, self._others, len(self.task.trees)))

    def digests(self, first: int) -> list[tuple[Any, ...]]:
        """Number and digest of the states from a number on."""
        return self.task.engine.rows(balance.digests(self._maps, first))

    def note_hits(self, rows: exp.Table) -> None:
        """Remember where the violating rows of generalized tables go."""
        self.task.engine.execute(balance.hits(rows, self._steps, self._hits, len(self.task.trees)))

    def make_children(self, number_: int, first: int) -> None:
        """Make what follows from a state; the child on attribute ``i`` is ``first + i``."""
        self.task.engine.execute(balance.children(self._maps, self._steps, self._hits, number_, first))

    def forget(self, numbers: Sequence[int]) -> None:
        """Drop what there is of states."""
        for relation in (self._maps, self._hits) if numbers else ():
            self.task.engine.execute(balance.without(relation, numbers))
