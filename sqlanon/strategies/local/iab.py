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

Names of tables and columns, all ours. ``maps`` holds the generalized tables: ``state`` (which one), ``attribute``,
``ground`` (a node at the attribute's lowest level) and ``node`` (what it reads there). ``steps``: by attribute and node
the ``next`` one above it that may be released. ``hits``: by state and attribute those that violating rows go to.
``others``: by combination the rows that agree in all other released columns, as ``other`` and ``n``.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from sqlanon.errors import InfeasibleError
from sqlanon.frequency.statements import encode_combinations
from sqlanon.strategies.lattice.limits import LimitReachedError
from sqlanon.strategies.local.finish import on_combinations
from sqlanon.strategies.local.nodes import Tree, agree, in_combinations, node_name, released_name, released_nodes
from sqlanon.strategies.local.task import LocalOutcome, LocalTask
from sqlanon.support.coding import Coded, Column, Levels
from sqlanon.support.expressions import (
    col,
    column_definitions,
    fragment,
    named,
    number,
    subquery,
    template,
    union_all,
)

STATE = "state"
OTHER = "other"

HITS = {STATE: "INTEGER", "attribute": "INTEGER", "next": "INTEGER"}
"""Columns and types of ``hits``."""

# For each node the nearest one above it that may be released, if any may. What may not be released is climbed past.
_NEXT_NODES = template("""
    SELECT *
    FROM (
        WITH RECURSIVE climbing AS (
            SELECT node, parent AS next FROM :nodes WHERE parent IS NOT NULL
            UNION ALL
            SELECT c.node, u.parent
            FROM climbing AS c
            JOIN :nodes AS u ON u.node = c.next
            WHERE NOT u.released AND u.parent IS NOT NULL
        )
        SELECT :attribute AS attribute, c.node, c.next
        FROM climbing AS c
        JOIN :nodes AS u ON u.node = c.next
        WHERE u.released
    ) AS found
""")


# The table as it stands: every value is itself, or the nearest one above it that may be released. What has none is in
# no generalized table.
_FIRST_MAPS = template("""
    SELECT
        0 AS state,
        :attribute AS attribute,
        v.node AS ground,
        CASE WHEN v.released THEN v.node ELSE s.next END AS node
    FROM :nodes AS v
    LEFT JOIN :steps AS s ON s.attribute = :attribute AND s.node = v.node
    WHERE v.level = :floor AND CASE WHEN v.released THEN v.node ELSE s.next END IS NOT NULL
""")


_VALUES = template("SELECT :values FROM :source")
_OTHERS = template("""
    SELECT combination, (dense_rank() OVER (ORDER BY :others))::INTEGER AS other, n
    FROM (SELECT combination, :others, count(*) AS n FROM :rows AS r GROUP BY combination, :others) AS c
""")


def others(
    source: exp.Table,
    columns: Sequence[Column],
    attributes: Sequence[Coded],
    combinations: exp.Table,
    trees: Sequence[Tree],
) -> exp.Select:
    """The source's rows by combination and all released columns that are no quasi-identifiers: ``other`` numbers
    these."""
    names = [column.name for column in columns if column.quasi is None]
    rest = [f"o{j}" for j in range(len(names))]
    values = [named(col(one.column), f"q{i}") for i, one in enumerate(attributes)]
    values += [named(col(name), o) for name, o in zip(names, rest, strict=True)]
    floor: Levels = tuple(tree.floor for tree in trees)
    query, codes = encode_combinations(subquery(_VALUES(values=values, source=source), "s"), attributes, floor)
    coded = query.select(*(named(code, name) for name, code in codes.items()), *(col(o, "r") for o in rest), copy=False)
    heights: Levels = tuple(tree.height for tree in trees)
    offsets = [tree.offsets for tree in trees]
    rows = in_combinations(subquery(coded, "f"), combinations, heights, floor, offsets, rest)
    return _OTHERS(others=[col(o) for o in rest], rows=rows)


# The combinations that can be released, by attribute with its lowest node ``ground_i``.
_GROUND = template("SELECT combination, n, :grounds FROM :combinations")
_IS_MAPPED = fragment(":node IN (SELECT ground FROM :maps WHERE attribute = :attribute)")


_PLACED = template("""
    SELECT t.state, c.combination, c.n, :nodes
    FROM :combinations AS c
    CROSS JOIN :states AS t(state)
""")
_MAP = template("SELECT state, ground, node FROM :maps WHERE state IN (:states) AND attribute = :attribute")
_READS = fragment(":ground = :mapped AND :state = t.state")


def placed(combinations: exp.Table, maps: exp.Table, attributes: int, states: Sequence[int]) -> exp.Select:
    """Some generalized tables: ``state``, ``combination``, ``n``, and by attribute what it reads, ``node_i``.

    Every combination has a node in each. Outer joins are made in the order in which they stand: inner ones the engine
    may begin with the maps of all attributes, a product of them.
    """
    nodes = [named(col("node", f"m{i}"), released_name(i)) for i in range(attributes)]
    listed = exp.values([(state,) for state in states])
    query = _PLACED(nodes=nodes, combinations=combinations, states=listed)
    for i in range(attributes):
        mine = _MAP(maps=maps, states=_numbers(states), attribute=i)
        of = f"m{i}"
        on = _READS(ground=col(f"ground_{i}", "c"), mapped=col("ground", of), state=col(STATE, of))
        query = query.join(subquery(mine, of), on=on, join_type="left", copy=False)
    return query


_FLAGGED = template("SELECT p.*, :violates AS violates FROM :rows AS p")
_IS_SMALL = fragment(":key IS NOT NULL")


def with_violations(rows: exp.Table, small: Sequence[tuple[exp.Query, Sequence[str]]]) -> exp.Select:
    """Placed rows with ``violates``: whether one of the requirements' groups that they are in is too small."""
    are_small = [_IS_SMALL(key=col(keys[0], f"g{j}")) for j, (_, keys) in enumerate(small)]
    query = _FLAGGED(violates=exp.or_(*are_small, copy=False), rows=rows)
    for j, (groups, keys) in enumerate(small):
        on = agree(keys, "p", f"g{j}")
        query = query.join(subquery(groups, f"g{j}"), on=on, join_type="left", copy=False)
    return query


# One row of figures for each generalized table; of ``tuples`` (distinct ones) ``violating`` do.
_TUPLES = template("""
    SELECT
        state,
        count(*) AS tuples,
        count(*) FILTER (WHERE violates) AS violating,
        sum(n)::BIGINT AS rows,
        coalesce((sum(n) FILTER (WHERE violates))::BIGINT, 0) AS violating_rows
    FROM :tuples AS t
    GROUP BY state
    ORDER BY state
""")
_ROWS = template("""
    SELECT p.state, p.violates, sum(p.n)::BIGINT AS n
    FROM :rows AS p
    GROUP BY p.state, :nodes, p.violates
""")
_ROWS_BY_OTHERS = template("""
    SELECT p.state, p.violates, sum(o.n)::BIGINT AS n
    FROM :rows AS p
    JOIN :others AS o ON p.combination = o.combination
    GROUP BY p.state, :nodes, p.violates, o.other
""")


# By generalized table and attribute, the nodes that the values of violating rows go to, each once.
_HITS = template("""
    SELECT DISTINCT p.state, s.attribute, s.next
    FROM :rows AS p
    JOIN :steps AS s ON s.attribute = :attribute AND s.node = :node
    WHERE p.violates
""")


# The rows of a generalized table, with flags, that do not violate.
_KEPT = template("""
    SELECT state, combination, n, :nodes
    FROM :rows
    WHERE state IN (:state) AND NOT violates
""")
_SMALL = template("SELECT :keys FROM :judged AS j WHERE class_count < :k")

_CHILDREN = fragment("""
    INSERT INTO :maps
    SELECT c.attribute + :first AS state, m.attribute, m.ground, coalesce(h.next, m.node) AS node
    FROM (SELECT * FROM :maps WHERE state IN (:state)) AS m
    CROSS JOIN (SELECT DISTINCT attribute FROM :hits WHERE state IN (:state)) AS c
    LEFT JOIN :steps AS s ON s.attribute = m.attribute AND s.node = m.node
    LEFT JOIN :hits AS h
        ON h.state = m.state AND h.attribute = m.attribute AND h.next = s.next AND h.attribute = c.attribute
""")

# Equal tables have equal digests.
_DIGESTS = template("""
    SELECT state, md5(array_agg(node ORDER BY attribute, ground)::VARCHAR) AS digest
    FROM :maps
    WHERE state >= :first
    GROUP BY state
    ORDER BY state
""")
_FORGET = fragment("DELETE FROM :relation WHERE state IN (:states)")


def _numbers(states: Sequence[int]) -> list[exp.Expr]:
    return [number(state) for state in states]


def iab(task: LocalTask) -> LocalOutcome:
    """Find the state with the most distinct tuples that satisfies the policy."""
    return Balance(task).run()


@dataclass(frozen=True)
class State:
    """The figures of a generalized table."""

    number: int
    tuples: int  # distinct ones
    violating: int  # of these
    suppressed_rows: int  # violating, or with values that can never be released
    satisfies: bool  # the policy, without the suppressed rows

    @property
    def kept(self) -> int:
        """The distinct tuples that are released of it."""
        return self.tuples - self.violating

    @property
    def order(self) -> tuple[int, int, int]:
        """Of two open ones, the lesser is next."""
        return -self.tuples, self.violating, self.number


class Balance:
    """The search: ``checks`` counts the states, ``best`` satisfies with the most tuples, the first of equals, and
    ``nearest`` has the fewest suppressed rows."""

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
        self._least_counts = self._requirements()
        self._tables = Tables(task)
        self._last = 0

    def run(self) -> LocalOutcome:
        """Search, and place the best."""
        stopped = ""
        try:
            with self.task.clock.in_time():
                newest = self._check_from(0)
                while (state := self._next(newest)) is not None:
                    newest = self._expand(state)
        except LimitReachedError as reached:
            stopped = str(reached)
        if self.best is None:
            raise self._nothing(stopped)
        return LocalOutcome(self.task, self._place(self.best), rounds=self.checks)

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
        return self._check_from(self._last)

    def _check_from(self, first: int) -> list[State]:
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
        """Count states, as many as may be counted."""
        if not numbers:
            return []
        clock = self.task.clock
        clock.refuse_over_limits()
        within_budget = numbers[: clock.remaining_checks]
        task, states = self.task, []
        with self._flagged(within_budget) as rows:
            for number_, tuples, violating, placed, violating_rows in self._tables.tuples(rows):
                suppressed = task.rows - placed + violating_rows
                within = violating < tuples and task.may_suppress(suppressed, subquery(self._kept(rows, number_)))
                satisfies = within and (not violating or self._holds_without(rows, number_))
                states.append(State(number_, tuples, violating, suppressed, satisfies))
            self._tables.note_hits(rows)
        for state in states:
            self._learn(state)
        if len(within_budget) < len(numbers):
            clock.refuse_over_limits()
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
            tables.temporary("placed", tables.placed(numbers)) as rows,
            tables.temporary("flagged", with_violations(rows, self._small(rows))) as flagged,
        ):
            yield flagged

    def _holds_without(self, flagged: exp.Table, number_: int) -> bool:
        """Whether no row violates once those that do are left out. (Of groups of one kind, others are untouched.)"""
        if len(self._least_counts) == 1:
            return True
        tables = self._tables
        with (
            tables.temporary("rest", self._kept(flagged, number_)) as rows,
            tables.temporary("flagged_rest", with_violations(rows, self._small(rows))) as again,
        ):
            return not any(violating for _, _, violating, *_ in self._tables.tuples(again))

    def _small(self, rows: exp.Table) -> list[tuple[exp.Query, list[str]]]:
        """For each requirement its groups that are too small, and their keys."""
        found: list[tuple[exp.Query, list[str]]] = []
        for attributes, k in self._least_counts:
            keys = [STATE, *(released_name(i) for i in attributes)]
            groups = _SMALL(keys=[col(key) for key in keys], judged=self.task.judged(rows, keys), k=k)
            found.append((groups, keys))
        return found

    def _requirements(self) -> list[tuple[tuple[int, ...], int]]:
        """Each requirement's attributes, and its k."""
        k = self.task.prepared.policy.privacy.k
        own = [] if k is None else [(tuple(self.attributes), k)]
        return own + [(shield.attributes, shield.k) for shield in self.task.prepared.requirements.shields]

    def _place(self, state: State) -> exp.Table:
        with self._flagged([state.number]) as rows:
            return self.task.steps.make(self.task.work("iab_kept"), self._kept(rows, state.number))

    def _kept(self, flagged: exp.Table, number_: int) -> exp.Select:
        return _KEPT(rows=flagged, state=number_, nodes=released_nodes(len(self._nodes)))

    def _nothing(self, stopped: str) -> InfeasibleError:
        """The error to raise where nothing was found."""
        task = self.task
        nearest = task.rows if self.nearest is None else self.nearest.suppressed_rows  # none: no value is known
        message = "strategy iab found no table that meets the policy; another strategy may find one"
        if stopped:
            message = f"the search stopped at [search] {stopped} before it found a table that meets the policy; with a "
            message += "higher limit it may find one"
        limit = task.prepared.limit
        message += f". The closest suppresses {limit.sentence(nearest, task.rows, None)}"
        return InfeasibleError(message, None, nearest, limit.rows, None, limit.persons)


class Tables:
    """The tables of the search, in the engine."""

    def __init__(self, task: LocalTask) -> None:
        self.task = task
        trees, prepared, make = task.trees, task.prepared, task.steps.make
        steps = [_NEXT_NODES(nodes=tree.nodes, attribute=i) for i, tree in enumerate(trees)]
        self._steps = make(task.work("iab_steps"), union_all(*steps))
        maps = [
            _FIRST_MAPS(attribute=i, nodes=tree.nodes, steps=self._steps, floor=tree.floor)
            for i, tree in enumerate(trees)
        ]
        self._maps = make(task.work("iab_maps"), union_all(*maps))
        grounds = [col(node_name(i, tree.floor)) for i, tree in enumerate(trees)]
        query = _GROUND(
            grounds=[named(one, f"ground_{i}") for i, one in enumerate(grounds)], combinations=task.combinations
        )
        are_mapped = [_IS_MAPPED(node=one, maps=self._maps, attribute=i) for i, one in enumerate(grounds)]
        self._combinations = make(task.work("iab_ground"), query.where(*are_mapped, copy=False))
        self._hits = task.work("iab_hits")
        task.engine.execute(column_definitions(self._hits, HITS.items()))
        self._others = None
        if any(column.quasi is None for column in prepared.released_columns):
            attributes, source = prepared.attributes, prepared.source.relation
            query = others(source, prepared.released_columns, attributes, task.combinations, trees)
            self._others = make(task.work("iab_others"), query)

    @contextmanager
    def temporary(self, name: str, query: exp.Query) -> Iterator[exp.Table]:
        """A table for a while."""
        target = self.task.steps.make(self.task.work(f"iab_{name}"), query)
        yield target
        self.task.steps.drop(target)

    def placed(self, numbers: Sequence[int]) -> exp.Select:
        """Generalized tables, laid out."""
        return placed(self._combinations, self._maps, len(self.task.trees), numbers)

    def tuples(self, rows: exp.Table) -> list[tuple[Any, ...]]:
        """The figures of generalized tables with flags, one row each."""
        nodes = released_nodes(len(self.task.trees), "p")
        if self._others is None:
            tuples = _ROWS(rows=rows, nodes=nodes)
        else:
            tuples = _ROWS_BY_OTHERS(rows=rows, others=self._others, nodes=nodes)
        return self.task.engine.rows(_TUPLES(tuples=tuples))

    def digests(self, first: int) -> list[tuple[Any, ...]]:
        """Number and digest of the states from a number on."""
        return self.task.engine.rows(_DIGESTS(maps=self._maps, first=first))

    def note_hits(self, rows: exp.Table) -> None:
        """Remember where the violating rows of generalized tables go."""
        nodes = released_nodes(len(self.task.trees), "p")
        parts = [_HITS(rows=rows, steps=self._steps, attribute=i, node=node) for i, node in enumerate(nodes)]
        self.task.steps.add(self._hits, union_all(*parts))

    def make_children(self, number_: int, first: int) -> None:
        """Make what follows from a state; the child on attribute ``i`` is ``first + i``."""
        children = _CHILDREN(maps=self._maps, first=first, state=number_, hits=self._hits, steps=self._steps)
        self.task.engine.execute(children)

    def forget(self, numbers: Sequence[int]) -> None:
        """Drop what there is of states."""
        for relation in (self._maps, self._hits) if numbers else ():
            self.task.engine.execute(_FORGET(relation=relation, states=_numbers(numbers)))


run = on_combinations(iab)
