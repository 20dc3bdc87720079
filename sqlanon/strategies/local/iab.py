"""Strategy ``iab``, Intelligent Anonymity Balance: the table with the most distinct tuples.

A *state* T(n, m) is a generalized table with m distinct tuples; n of them violate: they are in a class of fewer than k
rows, for the policy's ``k`` over all quasi-identifiers or for one of its shields. Tuples are rows that agree in all
released columns, including those that are not quasi-identifiers.

A state has one step for each attribute: every violating row, and every row whose value has the same parent as a
violating row's, gets the parent for its value. Nodes that may not be released are skipped. A step never adds a tuple,
so m bounds all states that can follow. The next open state is the one with the most tuples, then the fewest violating
ones; the search stops when no open state has more tuples than the best that satisfies the policy.

Additions to the paper: before any state satisfies the policy, the next one is the best of the newest states, so that a
search that a limit stops has a result. A state also satisfies the policy if its violating rows may be suppressed, and
no other row violates without them; it may still be generalized further.

Tables: ``maps`` holds the generalized tables: ``state`` (the number), ``attribute``, ``ground`` (a node at the
attribute's lowest level) and ``node`` (its generalized one). ``steps``: by attribute and node the ``next`` one above it
that may be released. ``hits``: by state and attribute the ``next`` nodes of violating rows. ``tuples``: by combination
the distinct values of the other released columns, as ``tuple_id`` and ``row_count``.
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
from sqlanon.strategies.local.core.finish import on_combinations
from sqlanon.strategies.local.core.nodes import (
    Tree,
    equal_columns,
    level_column,
    map_to_combinations,
    node_column,
    node_columns,
)
from sqlanon.strategies.local.core.task import LocalOutcome, LocalTask
from sqlanon.support.coding import CodedAttribute, Column, inner_column, quasi_column
from sqlanon.support.expressions import (
    as_column,
    col,
    create_table_with_columns,
    fragment,
    is_not_null,
    number,
    subquery,
    template,
    union_all,
)

STATE = "state"

HIT_COLUMNS = {STATE: "INTEGER", "attribute": "INTEGER", "next": "INTEGER"}
"""Columns and types of ``hits``."""

# For each node the nearest one above it that may be released, if any.
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
    ) AS next_nodes
""")
# The source table as a state: each ground node as itself, or the nearest one above it that may be released. Ground
# nodes without such a node are in no state.
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


def tuples_by_combination(
    source: exp.Table,
    columns: Sequence[Column],
    attributes: Sequence[CodedAttribute],
    combinations: exp.Table,
    trees: Sequence[Tree],
) -> exp.Select:
    """The distinct values of the released columns that are not quasi-identifiers, numbered by ``tuple_id``, with the
    rows ``row_count`` of each combination."""
    names = [column.name for column in columns if column.quasi is None]
    aliases = [inner_column(j) for j in range(len(names))]
    values = [as_column(col(attribute.column), quasi_column(i)) for i, attribute in enumerate(attributes)]
    values += [as_column(col(name), alias) for name, alias in zip(names, aliases, strict=True)]
    source_values = subquery(template("SELECT :values FROM :source")(values=values, source=source), "s")
    query, codes = encode_combinations(source_values, attributes, tuple(tree.floor for tree in trees))
    coded = query.select(
        *(as_column(code, name) for name, code in codes.items()), *(col(alias, "r") for alias in aliases), copy=False
    )
    rows = map_to_combinations(subquery(coded, "f"), combinations, trees, aliases)
    return template("""
        SELECT combination, (dense_rank() OVER (ORDER BY :values))::INTEGER AS tuple_id, row_count
        FROM (SELECT combination, :values, count(*) AS row_count FROM :rows AS r GROUP BY combination, :values) AS c
    """)(values=[col(alias) for alias in aliases], rows=rows)


def flag_violations(rows: exp.Table, small_classes: Sequence[tuple[exp.Query, Sequence[str]]]) -> exp.Select:
    """Rows with ``violates``: whether one of their classes is too small."""
    are_small = [is_not_null(col(keys[0], f"g{j}")) for j, (_, keys) in enumerate(small_classes)]
    query = template("SELECT p.*, :violates AS violates FROM :rows AS p")(
        violates=exp.or_(*are_small, copy=False), rows=rows
    )
    for j, (classes, keys) in enumerate(small_classes):
        on = equal_columns(keys, "p", f"g{j}")
        query = query.join(subquery(classes, f"g{j}"), on=on, join_type="left", copy=False)
    return query


_HITS = template("""
    SELECT DISTINCT p.state, s.attribute, s.next
    FROM :rows AS p
    JOIN :steps AS s ON s.attribute = :attribute AND s.node = :node
    WHERE p.violates
""")


def iab(task: LocalTask) -> LocalOutcome:
    """Find the state with the most distinct tuples that satisfies the policy."""
    return StateSearch(task).run()


@dataclass(frozen=True)
class State:
    """The figures of a generalized table."""

    number: int
    tuples: int  # distinct ones
    violating: int  # distinct tuples
    suppressed_rows: int  # violating, or with values that can never be released
    satisfies: bool  # the policy, without the suppressed rows

    @property
    def released_tuples(self) -> int:
        """The distinct tuples that are released."""
        return self.tuples - self.violating

    @property
    def order(self) -> tuple[int, int, int]:
        """The least of open states is next."""
        return -self.tuples, self.violating, self.number


class StateSearch:
    """The search: ``checks`` counts the states, ``best`` satisfies the policy with the most tuples, the first of
    equals, and ``nearest`` has the fewest suppressed rows."""

    def __init__(self, task: LocalTask) -> None:
        self.task = task
        self.attributes = range(len(task.trees))
        self.checks = 0
        self.best: State | None = None
        self.nearest: State | None = None
        self._open: dict[int, State] = {}
        self._queue: list[tuple[tuple[int, int, int], State]] = []
        self._digests: set[str] = set()
        self._least_counts = self._requirements()
        self._tables = StateTables(task)
        self._last_number = 0

    def run(self) -> LocalOutcome:
        """Search, and return the best state."""
        limit = ""
        try:
            with self.task.clock.in_time():
                newest = self._check_from(0)
                while (state := self._next(newest)) is not None:
                    newest = self._expand(state)
        except LimitReachedError as reached:
            limit = str(reached)
        if self.best is None:
            raise self._infeasible(limit)
        with self._flag_violating([self.best.number]) as rows:
            assignment = self.task.make("iab_assignment", self._not_violating(rows, self.best.number))
        return LocalOutcome(self.task, assignment, rounds=self.checks)

    def _next(self, newest: list[State]) -> State | None:
        """The next open state; None if no state can lead to a better one than the best."""
        if self.best is None and newest:
            return self._open.pop(min(newest, key=lambda state: state.order).number)
        while self._queue:
            _, state = heapq.heappop(self._queue)
            if self._open.pop(state.number, None) is not None:
                return state if self._is_promising(state) else None
        return None

    def _is_promising(self, state: State) -> bool:
        return state.violating > 0 and (self.best is None or state.tuples > self.best.released_tuples)

    def _expand(self, state: State) -> list[State]:
        """Make the states that follow from one; the promising ones."""
        self._last_number += len(self.attributes)
        self._tables.make_children(state.number, self._last_number)
        if state != self.best:
            self._tables.delete([state.number])
        return self._check_from(self._last_number)

    def _check_from(self, first: int) -> list[State]:
        """Check the new states from a number on, and open the promising ones."""
        digests, former_best = self._tables.find_digests(first), self.best
        repeated = [number_ for number_, digest in digests if digest in self._digests]
        self._digests.update(digest for _, digest in digests)
        self._tables.delete(repeated)
        states = self._check([number_ for number_, _ in digests if number_ not in repeated])
        promising = [state for state in states if self._is_promising(state)]
        for state in promising:
            self._open[state.number] = state
            heapq.heappush(self._queue, (state.order, state))
        closed = [state for state in (*states, former_best) if state is not None and state != self.best]
        self._tables.delete([state.number for state in closed if state.number not in self._open])
        return promising

    def _check(self, numbers: list[int]) -> list[State]:
        """Count the tuples of states, within the limits."""
        if not numbers:
            return []
        clock = self.task.clock
        clock.refuse_over_limits()
        within_budget = numbers[: clock.remaining_checks]
        task, states = self.task, []
        with self._flag_violating(within_budget) as rows:
            for number_, tuples, violating, row_count, violating_rows in self._tables.figures(rows):
                suppressed = task.row_count - row_count + violating_rows
                kept_combinations = subquery(self._not_violating(rows, number_))
                satisfies = (
                    violating < tuples
                    and task.can_suppress(suppressed, kept_combinations)
                    and (not violating or self._holds_without_violating(rows, number_))
                )
                states.append(State(number_, tuples, violating, suppressed, satisfies))
            self._tables.add_hits(rows)
        for state in states:
            self._record(state)
        if len(within_budget) < len(numbers):
            clock.refuse_over_limits()
        return states

    def _record(self, state: State) -> None:
        self.checks += 1
        self.task.clock.checks += 1
        if self.nearest is None or state.suppressed_rows < self.nearest.suppressed_rows:
            self.nearest = state
        if state.satisfies and (self.best is None or state.released_tuples > self.best.released_tuples):
            self.best = state
        self.task.progress(
            len(self._open), self.checks, None if self.best is None else float(self.best.released_tuples)
        )

    @contextmanager
    def _flag_violating(self, numbers: Sequence[int]) -> Iterator[exp.Table]:
        """Generalized tables, with their violating rows flagged."""
        tables = self._tables
        with (
            tables.temporary("generalized", tables.generalized_tables(numbers)) as rows,
            tables.temporary("flagged", flag_violations(rows, self._small_classes(rows))) as flagged,
        ):
            yield flagged

    def _holds_without_violating(self, flagged: exp.Table, number_: int) -> bool:
        """Whether no row violates after violating rows are suppressed. (Suppression of whole classes of a single
        requirement does not change other classes.)"""
        if len(self._least_counts) == 1:
            return True
        tables = self._tables
        with (
            tables.temporary("remaining", self._not_violating(flagged, number_)) as rows,
            tables.temporary("flagged_remaining", flag_violations(rows, self._small_classes(rows))) as flagged_again,
        ):
            return not any(violating for _, _, violating, *_ in self._tables.figures(flagged_again))

    def _small_classes(self, rows: exp.Table) -> list[tuple[exp.Query, list[str]]]:
        """The classes that are too small, and their keys, by requirement."""
        small_classes: list[tuple[exp.Query, list[str]]] = []
        for attributes, k in self._least_counts:
            keys = [STATE, *(node_column(i) for i in attributes)]
            query = template("SELECT :keys FROM :evaluated AS j WHERE class_count < :k")(
                keys=[col(key) for key in keys], evaluated=self.task.evaluate(rows, keys), k=k
            )
            small_classes.append((query, keys))
        return small_classes

    def _requirements(self) -> list[tuple[tuple[int, ...], int]]:
        """The attributes and the k of each requirement."""
        k = self.task.search_input.policy.privacy.k
        shields = self.task.search_input.requirements.shields
        over_all_attributes = [] if k is None else [(tuple(self.attributes), k)]
        return over_all_attributes + [(shield.attributes, shield.k) for shield in shields]

    def _not_violating(self, flagged: exp.Table, number_: int) -> exp.Select:
        return template("""
            SELECT state, combination, row_count, :nodes
            FROM :rows
            WHERE state IN (:state) AND NOT violates
        """)(rows=flagged, state=number_, nodes=node_columns(len(self.attributes)))

    def _infeasible(self, limit: str) -> InfeasibleError:
        task = self.task
        # Without a state, no value may be released.
        nearest = task.row_count if self.nearest is None else self.nearest.suppressed_rows
        message = "strategy iab found no table that meets the policy; another strategy may find one"
        if limit:
            message = f"the search stopped at [search] {limit} before it found a table that meets the policy; a higher "
            message += "limit may help"
        suppression = task.search_input.limit
        message += f". The closest suppresses {suppression.sentence(nearest, task.row_count, None)}"
        return InfeasibleError(message, None, nearest, suppression.rows, None, suppression.persons)


class StateTables:
    """The tables of the search, in the engine."""

    def __init__(self, task: LocalTask) -> None:
        self.task = task
        trees, search_input = task.trees, task.search_input
        steps = [_NEXT_NODES(nodes=tree.nodes, attribute=i) for i, tree in enumerate(trees)]
        self._steps = task.make("iab_steps", union_all(*steps))
        maps = [
            _FIRST_MAPS(attribute=i, nodes=tree.nodes, steps=self._steps, floor=tree.floor)
            for i, tree in enumerate(trees)
        ]
        self._maps = task.make("iab_maps", union_all(*maps))
        grounds = [col(level_column(i, tree.floor)) for i, tree in enumerate(trees)]
        # The combinations that can be released, with the lowest node of each attribute.
        query = template("SELECT combination, row_count, :grounds FROM :combinations")(
            grounds=[as_column(ground, f"ground_{i}") for i, ground in enumerate(grounds)],
            combinations=task.combinations,
        )
        are_mapped = [
            fragment(":node IN (SELECT ground FROM :maps WHERE attribute = :attribute)")(
                node=ground, maps=self._maps, attribute=i
            )
            for i, ground in enumerate(grounds)
        ]
        self._combinations = task.make("iab_ground", query.where(*are_mapped, copy=False))
        self._hits = task.work("iab_hits")
        task.engine.execute(create_table_with_columns(self._hits, HIT_COLUMNS.items()))
        self._tuples = None
        if any(column.quasi is None for column in search_input.released_columns):
            attributes, source = search_input.attributes, search_input.source.relation
            tuples = tuples_by_combination(source, search_input.released_columns, attributes, task.combinations, trees)
            self._tuples = task.make("iab_tuples", tuples)

    @contextmanager
    def temporary(self, name: str, query: exp.Query) -> Iterator[exp.Table]:
        """Make a table, and drop it at the end."""
        table = self.task.make(f"iab_{name}", query)
        yield table
        self.task.runner.drop(table)

    def generalized_tables(self, numbers: Sequence[int]) -> exp.Select:
        """The generalized tables of states: ``state``, ``combination``, ``row_count``, ``node_i``.

        Every combination has a node in each state. The joins are outer ones, which are made in the order in which they
        are written: the engine may begin inner ones with the product of all attributes' maps.
        """
        attributes = range(len(self.task.trees))
        query = template("""
            SELECT t.state, c.combination, c.row_count, :nodes
            FROM :combinations AS c
            CROSS JOIN :states AS t(state)
        """)(
            nodes=[as_column(col("node", f"m{i}"), node_column(i)) for i in attributes],
            combinations=self._combinations,
            states=exp.values([(number_,) for number_ in numbers]),
        )
        states = [number(number_) for number_ in numbers]
        for i in attributes:
            attribute_map = template("""
                SELECT state, ground, node FROM :maps WHERE state IN (:states) AND attribute = :attribute
            """)(maps=self._maps, states=states, attribute=i)
            on = col(f"ground_{i}", "c").eq(col("ground", f"m{i}")) & col(STATE, f"m{i}").eq(col(STATE, "t"))
            query = query.join(subquery(attribute_map, f"m{i}"), on=on, join_type="left", copy=False)
        return query

    def figures(self, rows: exp.Table) -> list[tuple[Any, ...]]:
        """The figures of flagged states, one row each."""
        nodes = node_columns(len(self.task.trees), "p")
        if self._tuples is None:
            tuples = template("""
                SELECT p.state, p.violates, sum(p.row_count)::BIGINT AS row_count
                FROM :rows AS p
                GROUP BY p.state, :nodes, p.violates
            """)(rows=rows, nodes=nodes)
        else:
            tuples = template("""
                SELECT p.state, p.violates, sum(o.row_count)::BIGINT AS row_count
                FROM :rows AS p
                JOIN :tuples AS o ON p.combination = o.combination
                GROUP BY p.state, :nodes, p.violates, o.tuple_id
            """)(rows=rows, tuples=self._tuples, nodes=nodes)
        # Figures of states: ``tuples`` is the number of distinct ones.
        query = template("""
            SELECT
                state,
                count(*) AS tuples,
                count(*) FILTER (WHERE violates) AS violating,
                sum(row_count)::BIGINT AS rows,
                coalesce((sum(row_count) FILTER (WHERE violates))::BIGINT, 0) AS violating_rows
            FROM :tuples AS t
            GROUP BY state
            ORDER BY state
        """)(tuples=tuples)
        return self.task.engine.rows(query)

    def find_digests(self, first: int) -> list[tuple[Any, ...]]:
        """Number and digest of the states from a number on."""
        # Equal states have equal digests.
        query = template("""
            SELECT state, md5(array_agg(node ORDER BY attribute, ground)::VARCHAR) AS digest
            FROM :maps
            WHERE state >= :first
            GROUP BY state
            ORDER BY state
        """)(maps=self._maps, first=first)
        return self.task.engine.rows(query)

    def add_hits(self, rows: exp.Table) -> None:
        """Add the next nodes of violating rows."""
        nodes = node_columns(len(self.task.trees), "p")
        hits = [_HITS(rows=rows, steps=self._steps, attribute=i, node=node) for i, node in enumerate(nodes)]
        self.task.runner.add(self._hits, union_all(*hits))

    def make_children(self, number_: int, first: int) -> None:
        """Make the states that follow from one; the child on attribute ``i`` is ``first + i``."""
        children = fragment("""
            INSERT INTO :maps
            SELECT c.attribute + :first AS state, m.attribute, m.ground, coalesce(h.next, m.node) AS node
            FROM (SELECT * FROM :maps WHERE state IN (:state)) AS m
            CROSS JOIN (SELECT DISTINCT attribute FROM :hits WHERE state IN (:state)) AS c
            LEFT JOIN :steps AS s ON s.attribute = m.attribute AND s.node = m.node
            LEFT JOIN :hits AS h
                ON h.state = m.state AND h.attribute = m.attribute AND h.next = s.next AND h.attribute = c.attribute
        """)(maps=self._maps, first=first, state=number_, hits=self._hits, steps=self._steps)
        self.task.engine.execute(children)

    def delete(self, numbers: Sequence[int]) -> None:
        """Delete the rows of states."""
        states = [number(number_) for number_ in numbers]
        for relation in (self._maps, self._hits) if numbers else ():
            self.task.engine.execute(
                fragment("DELETE FROM :relation WHERE state IN (:states)")(relation=relation, states=states)
            )


run = on_combinations(iab)
