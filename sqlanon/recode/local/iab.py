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

The tables of strategy ``iab``: generalized tables as one node for each value, their tuples, and how they go on.

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

from sqlanon.coding import ROWS, Coded, Column, Levels
from sqlanon.errors import InfeasibleError
from sqlanon.expressions import (
    aliased,
    all_columns,
    all_of,
    anonymous,
    cast,
    col,
    column_definitions,
    create_table,
    drop_table,
    ident,
    is_there,
    named,
    number,
    select,
    subquery,
    table,
    total,
    union_all,
    where,
)
from sqlanon.frequency.statements import coded_rows
from sqlanon.recode.local.nodes import COMBINATION, NODE, Tree, in_combinations, node_name, released_name
from sqlanon.recode.local.task import LocalOutcome, LocalTask, on_combinations
from sqlanon.requirements.base import CLASS_COUNT
from sqlanon.search.budget import LimitReachedError

STATE = "state"
OTHER = "other"
VIOLATES = "violates"

HITS = {STATE: "INTEGER", "attribute": "INTEGER", "next": "INTEGER"}
"""Columns and types of ``hits``."""


def next_nodes(trees: Sequence[Tree]) -> exp.Query:
    """``attribute``, ``node`` and ``next``: for each node the nearest one above it that may be released, if any may.

    What may not be released is climbed past.
    """
    parts = [_next_nodes(i, tree.nodes) for i, tree in enumerate(trees)]
    return union_all(*parts)


def _next_nodes(attribute: int, nodes: exp.Table) -> exp.Select:
    climbing = table("climbing")
    there = is_there(col("parent"))
    first = select([col(NODE), named(col("parent"), "next")], nodes.copy()).where(there, copy=False)
    past = ~col("released", "u")
    on = col(NODE, "u").eq(col("next", "c"))
    above = select([col(NODE, "c"), col("parent", "u")], aliased(climbing, "c"))
    above = above.join(aliased(nodes, "u"), on=on, copy=False)
    above = above.where(past, is_there(col("parent", "u")), copy=False)
    found = select([named(number(attribute), "attribute"), col(NODE, "c"), col("next", "c")], aliased(climbing, "c"))
    found = found.join(aliased(nodes, "u"), on=on.copy(), copy=False).where(col("released", "u"), copy=False)
    both = union_all(first, above)
    # In a subquery, for each attribute has its own.
    query = found.with_(ident("climbing"), as_=both, recursive=True, copy=False)
    return select([exp.Star()], subquery(query, "found"))


def first_maps(trees: Sequence[Tree], steps: exp.Table) -> exp.Query:
    """The table as it stands: every value is itself, or the nearest one above it that may be released.

    What has none is in no generalized table.
    """
    parts = []
    for i, tree in enumerate(trees):
        mine = all_of(
            [
                col("attribute", "s").eq(number(i)),
                col(NODE, "s").eq(col(NODE, "v")),
            ]
        )
        node = exp.If(this=col("released", "v"), true=col(NODE, "v"), false=col("next", "s"))
        output: list[exp.Expr] = [
            named(number(0), STATE),
            named(number(i), "attribute"),
            named(col(NODE, "v"), "ground"),
            named(node, NODE),
        ]
        query = select(output, aliased(tree.nodes, "v")).join(
            aliased(steps, "s"), on=mine, join_type="left", copy=False
        )
        ground = col("level", "v").eq(number(tree.floor))
        parts.append(query.where(ground, is_there(node.copy()), copy=False))
    return union_all(*parts)


def others(
    source: exp.Table,
    columns: Sequence[Column],
    attributes: Sequence[Coded],
    combinations: exp.Table,
    trees: Sequence[Tree],
) -> exp.Select:
    """The source's rows by combination and all released columns that are no quasi-identifiers: ``other`` numbers
    these.
    """
    names = [column.name for column in columns if column.quasi is None]
    values: list[exp.Expr] = [named(col(one.column), f"q{i}") for i, one in enumerate(attributes)]
    values += [named(col(name), f"o{j}") for j, name in enumerate(names)]
    floor: Levels = tuple(tree.floor for tree in trees)
    query, codes = coded_rows(subquery(select(values, source.copy()), "s"), attributes, floor)
    rest = [f"o{j}" for j in range(len(names))]
    coded = query.select(*(named(code, name) for name, code in codes.items()), *(col(o, "r") for o in rest), copy=False)
    heights: Levels = tuple(tree.height for tree in trees)
    offsets = [tree.offsets for tree in trees]
    rows = in_combinations(subquery(coded, "f"), combinations, heights, floor, offsets, rest)
    keys: list[exp.Expr] = [col(COMBINATION), *(col(o) for o in rest)]
    counts = select([*keys, named(exp.Count(this=exp.Star()), ROWS)], subquery(rows, "r"), [key.copy() for key in keys])
    rank = exp.Window(this=exp.DenseRank(), order=exp.Order(expressions=[exp.Ordered(this=col(o)) for o in rest]))
    return select([col(COMBINATION), named(cast(rank, "INTEGER"), OTHER), col(ROWS)], subquery(counts, "c"))


def ground(combinations: exp.Table, maps: exp.Table, trees: Sequence[Tree]) -> exp.Select:
    """The combinations that can be released: ``combination``, ``n``, and by attribute its lowest node ``ground_i``."""
    keys = [node_name(i, tree.floor) for i, tree in enumerate(trees)]
    output: list[exp.Expr] = [
        col(COMBINATION),
        col(ROWS),
        *(named(col(key), f"ground_{i}") for i, key in enumerate(keys)),
    ]
    query = select(output, combinations.copy())
    for i, key in enumerate(keys):
        mine = select([col("ground")], maps.copy()).where(col("attribute").eq(number(i)), copy=False)
        query = query.where(exp.In(this=col(key), query=exp.Subquery(this=mine)), copy=False)
    return query


def placed(combinations: exp.Table, maps: exp.Table, attributes: int, states: Sequence[int]) -> exp.Select:
    """Some generalized tables: ``state``, ``combination``, ``n``, and by attribute what it reads, ``node_i``.

    Every combination has a node in each. Outer joins are made in the order in which they stand: inner ones the engine
    may begin with the maps of all attributes, a product of them.
    """
    listed = exp.Values(
        expressions=[exp.Tuple(expressions=[number(state)]) for state in states],
        alias=exp.TableAlias(this=ident("t"), columns=[ident(STATE)]),
    )
    query = exp.Select().from_(aliased(combinations, "c"), copy=False).join(listed, join_type="cross", copy=False)
    output: list[exp.Expr] = [col(STATE, "t"), col(COMBINATION, "c"), col(ROWS, "c")]
    for i in range(attributes):
        mine = select([col(STATE), col("ground"), col(NODE)], maps.copy())
        mine = mine.where(_among(states), col("attribute").eq(number(i)), copy=False)
        reads = col(f"ground_{i}", "c").eq(col("ground", f"m{i}"))
        on = reads & _same(STATE, f"m{i}", "t")
        query = query.join(subquery(mine, f"m{i}"), on=on, join_type="left", copy=False)
        output.append(named(col(NODE, f"m{i}"), released_name(i)))
    return query.select(*output, copy=False)


def with_violations(rows: exp.Table, small: Sequence[tuple[exp.Query, Sequence[str]]]) -> exp.Select:
    """Placed rows with ``violates``: whether one of the requirements' groups that they are in is too small."""
    query = exp.Select().from_(aliased(rows, "p"), copy=False)
    is_small: list[exp.Expr] = []
    for number_, (groups, keys) in enumerate(small):
        alias = f"g{number_}"
        on = all_of(col(key, "p").eq(col(key, alias)) for key in keys)
        query = query.join(subquery(groups, alias), on=on, join_type="left", copy=False)
        is_small.append(is_there(col(keys[0], alias)))
    violates = named(exp.or_(*is_small, copy=False), VIOLATES)
    return query.select(all_columns("p"), violates, copy=False)


def tuples(rows: exp.Table, other: exp.Table | None, attributes: int) -> exp.Select:
    """One row of figures for each generalized table: ``state``, ``tuples`` (distinct ones), ``violating`` (those that
    violate), ``rows`` and ``violating_rows``.
    """
    keys: list[exp.Expr] = [col(name, "p") for name in (STATE, *map(released_name, range(attributes)), VIOLATES)]
    query = exp.Select().from_(aliased(rows, "p"), copy=False)
    counted = "p"
    if other is not None:
        on = col(COMBINATION, "p").eq(col(COMBINATION, "o"))
        query = query.join(aliased(other, "o"), on=on, copy=False)
        keys.append(col(OTHER, "o"))
        counted = "o"
    each = query.select(col(STATE, "p"), col(VIOLATES, "p"), named(total(col(ROWS, counted)), ROWS), copy=False)
    each = each.group_by(*keys, copy=False)
    output: list[exp.Expr] = [
        col(STATE),
        named(exp.Count(this=exp.Star()), "tuples"),
        named(where(exp.Count(this=exp.Star()), col(VIOLATES)), "violating"),
        named(total(col(ROWS)), "rows"),
        named(exp.Coalesce(this=total(col(ROWS), col(VIOLATES)), expressions=[number(0)]), "violating_rows"),
    ]
    return select(output, subquery(each, "t"), [col(STATE)]).order_by(col(STATE), copy=False)


def hits(rows: exp.Table, steps: exp.Table, target: exp.Table, attributes: int) -> exp.Insert:
    """Insert, by generalized table and attribute, the nodes that the values of violating rows go to, each once:
    ``state``, ``attribute``, ``next``."""
    parts = []
    for i in range(attributes):
        goes = col(NODE, "s").eq(col(released_name(i), "p"))
        on = col("attribute", "s").eq(number(i)) & goes
        query = select([col(STATE, "p"), col("attribute", "s"), col("next", "s")], aliased(rows, "p"))
        query = query.join(aliased(steps, "s"), on=on, copy=False)
        parts.append(query.where(col(VIOLATES, "p"), copy=False).distinct(copy=False))
    query_: exp.Query = union_all(*parts)
    return exp.Insert(this=target.copy(), expression=query_)


def kept(rows: exp.Table, state: int, nodes: Sequence[str]) -> exp.Select:
    """The rows of a generalized table, with flags, that do not violate: ``state``, ``combination``, ``n``, nodes."""
    columns: list[exp.Expr] = [col(name) for name in (STATE, COMBINATION, ROWS, *nodes)]
    return select(columns, rows.copy()).where(_among([state]), ~col(VIOLATES), copy=False)


def children(maps: exp.Table, steps: exp.Table, hit: exp.Table, state: int, first: int) -> exp.Insert:
    """Insert what follows from a generalized table: for each attribute that violating rows can go up in, the table in
    which all values that have the same next one as a violating row's are generalized to that.
    """
    mine = subquery(select([exp.Star()], maps.copy()).where(_among([state]), copy=False), "m")
    moved = exp.Select(expressions=[col("attribute")], distinct=exp.Distinct()).from_(hit.copy())
    moved = moved.where(_among([state]), copy=False)
    output: list[exp.Expr] = [
        named(col("attribute", "c") + number(first), STATE),
        col("attribute", "m"),
        col("ground", "m"),
        named(exp.Coalesce(this=col("next", "h"), expressions=[col(NODE, "m")]), NODE),
    ]
    query = exp.Select(expressions=output).from_(mine, copy=False)
    query = query.join(subquery(moved, "c"), join_type="cross", copy=False)
    goes = [_same("attribute", "s", "m"), _same(NODE, "s", "m")]
    query = query.join(aliased(steps, "s"), on=all_of(goes), join_type="left", copy=False)
    is_hit = [_same(STATE, "h", "m"), _same("attribute", "h", "m"), _same("next", "h", "s")]
    is_hit.append(_same("attribute", "h", "c"))
    query = query.join(aliased(hit, "h"), on=all_of(is_hit), join_type="left", copy=False)
    return exp.Insert(this=maps.copy(), expression=query)


def digests(maps: exp.Table, first: int) -> exp.Select:
    """``state`` and a digest for each generalized table from a number on: equal tables have equal digests."""
    order = [exp.Ordered(this=col("attribute")), exp.Ordered(this=col("ground"))]
    nodes = exp.ArrayAgg(this=exp.Order(this=col(NODE), expressions=order))
    output: list[exp.Expr] = [col(STATE), named(anonymous("md5", cast(nodes, "VARCHAR")), "digest")]
    newer = col(STATE) >= number(first)
    query = select(output, maps.copy(), [col(STATE)]).where(newer, copy=False)
    return query.order_by(col(STATE), copy=False)


def without(relation: exp.Table, states: Sequence[int]) -> exp.Delete:
    """Delete what there is of generalized tables."""
    return exp.Delete(this=relation.copy(), where=exp.Where(this=_among(states)))


def _among(states: Sequence[int]) -> exp.Expr:
    return exp.In(this=col(STATE), expressions=[number(state) for state in states])


def _same(name: str, left: str, right: str) -> exp.Expr:
    return col(name, left).eq(col(name, right))


def iab(task: LocalTask) -> LocalOutcome:
    """Find the state with the most distinct tuples that satisfies the policy."""
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
        """Count states, as many as may be counted."""
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
            tables.made("flagged", with_violations(rows, self._small(rows))) as flagged,
        ):
            yield flagged

    def _holds_without(self, flagged: exp.Table, number_: int) -> bool:
        """Whether no row violates once those that do are left out. (Of groups of one kind, others are untouched.)"""
        if len(self._asked) == 1:
            return True
        tables = self._tables
        with (
            tables.made("rest", kept(flagged, number_, self._nodes)) as rows,
            tables.made("flagged_rest", with_violations(rows, self._small(rows))) as again,
        ):
            return not any(violating for _, _, violating, *_ in self._tables.tuples(again))

    def _small(self, rows: exp.Table) -> list[tuple[exp.Query, list[str]]]:
        """For each requirement its groups that are too small, and their keys."""
        found: list[tuple[exp.Query, list[str]]] = []
        for attributes, k in self._asked:
            keys = [STATE, *(released_name(i) for i in attributes)]
            few = col(CLASS_COUNT) < number(k)
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
            return self.task.steps.make(self.task.work("iab_kept"), kept(rows, state.number, self._nodes))

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
    """The tables of the search, in the engine."""

    def __init__(self, task: LocalTask) -> None:
        self.task = task
        trees, prepared, make = task.trees, task.prepared, task.steps.make
        self._steps = make(task.work("iab_steps"), next_nodes(trees))
        self._maps = make(task.work("iab_maps"), first_maps(trees, self._steps))
        self._combinations = make(task.work("iab_ground"), ground(task.combinations, self._maps, trees))
        self._hits = task.work("iab_hits")
        task.engine.execute(column_definitions(self._hits.copy(), HITS.items()))
        self._others = None
        if any(column.quasi is None for column in prepared.released):
            attributes, source = prepared.attributes, prepared.source.relation
            query = others(source, prepared.released, attributes, task.combinations, trees)
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
        return placed(self._combinations, self._maps, len(self.task.trees), numbers)

    def tuples(self, rows: exp.Table) -> list[tuple[Any, ...]]:
        """The figures of generalized tables with flags, one row each."""
        return self.task.engine.rows(tuples(rows, self._others, len(self.task.trees)))

    def digests(self, first: int) -> list[tuple[Any, ...]]:
        """Number and digest of the states from a number on."""
        return self.task.engine.rows(digests(self._maps, first))

    def note_hits(self, rows: exp.Table) -> None:
        """Remember where the violating rows of generalized tables go."""
        self.task.engine.execute(hits(rows, self._steps, self._hits, len(self.task.trees)))

    def make_children(self, number_: int, first: int) -> None:
        """Make what follows from a state; the child on attribute ``i`` is ``first + i``."""
        self.task.engine.execute(children(self._maps, self._steps, self._hits, number_, first))

    def forget(self, numbers: Sequence[int]) -> None:
        """Drop what there is of states."""
        for relation in (self._maps, self._hits) if numbers else ():
            self.task.engine.execute(without(relation, numbers))


run = on_combinations(iab)
