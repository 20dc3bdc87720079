"""Interval rules, and their labels in plain Python."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias

import duckdb
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.hierarchies import Hierarchy, build_hierarchy, find_static_height
from sqlanon.policy.rules import (
    IntervalsRule,
    Rule,
)
from sqlanon.support.expressions import table
from support.lanes import examples

VALUES = table("the values")


TARGET = table("the; hierarchy")


Row: TypeAlias = tuple[Any, ...]


few = settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


class Bench:
    """A connection, and a hierarchy built on it from values given in Python."""

    def __init__(self) -> None:
        self.connection = duckdb.connect()
        self.engine = DuckDBEngine(self.connection)

    def put(self, values: Iterable[Any], column_type: str) -> None:
        """Make the values table. The n-th value has n rows."""
        self.connection.execute(f'CREATE OR REPLACE TABLE "the values" (value {column_type}, rows BIGINT)')
        rows = [(value, n) for n, value in enumerate(values, start=1)]
        if rows:
            self.connection.executemany(f'INSERT INTO "the values" SELECT CAST(? AS {column_type}), ?', rows)
        self.connection.execute('DROP TABLE IF EXISTS "the; hierarchy"')

    def build(
        self, rules: Rule | Sequence[Rule], values: Iterable[Any], column_type: str, on_unknown: str = "error"
    ) -> Hierarchy:
        self.put(values, column_type)
        rule_list = (rules,) if not isinstance(rules, Sequence) else tuple(rules)
        hierarchy, problems = build_hierarchy(
            StatementRunner(self.engine), "x", rule_list, VALUES, column_type, TARGET, on_unknown
        )
        assert problems == []
        assert hierarchy is not None
        assert hierarchy.leaves == len(self.rows())
        height = find_static_height(rule_list, self.engine)
        assert height in (None, hierarchy.height)
        types = self.connection.table('"the; hierarchy"')
        names = [f"level_{level}" for level in range(hierarchy.height + 1)]
        assert types.columns == names + ["label_0"] * hierarchy.open_ends
        assert {str(type_) for type_ in types.types[1:]} <= {"VARCHAR"}
        assert types.types[0] == self.connection.table('"the values"').types[0]
        check_tree(self.rows(), hierarchy)
        return hierarchy

    def refused(
        self, rules: Rule | Sequence[Rule], values: Iterable[Any], column_type: str, on_unknown: str = "error"
    ) -> str:
        self.put(values, column_type)
        rule_list = (rules,) if not isinstance(rules, Sequence) else tuple(rules)
        hierarchy, problems = build_hierarchy(
            StatementRunner(self.engine), "x", rule_list, VALUES, column_type, TARGET, on_unknown
        )
        assert hierarchy is None
        assert problems
        assert {problem.place for problem in problems} == {"attributes.x.hierarchy"}
        tables = self.connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()
        assert ("the; hierarchy",) not in tables
        return "\n".join(problem.message for problem in problems)

    def rows(self) -> list[Row]:
        return self.connection.execute("SELECT COLUMNS('level_.*') FROM \"the; hierarchy\"").fetchall()

    def shown_at_level_0(self) -> dict[Any, str | None]:
        """The label of each value that a release shows at level 0 of a hierarchy with open ends."""
        return dict(self.connection.execute('SELECT level_0, label_0 FROM "the; hierarchy"').fetchall())

    def labels(self) -> dict[Any, Row]:
        return {row[0]: row[1:] for row in self.rows()}


def check_tree(rows: list[Row], hierarchy: Hierarchy) -> None:
    """Values equal at a level are equal above it; one top; NULL stays NULL below it."""
    ground = [row for row in rows if row[0] is not None]
    for level in range(hierarchy.height):
        parents: dict[Any, set[Any]] = {}
        for row in ground:
            # NaN would not be equal to itself.
            key = str(row[level]) if level == 0 else row[level]
            parents.setdefault(key, set()).add(row[level + 1])
        assert all(len(above) == 1 for above in parents.values())
    assert all(label is not None for row in ground for label in row)
    if rows and hierarchy.height:
        assert {row[-1] for row in rows} == {hierarchy.top}
    for row in rows:
        if row[0] is None:
            assert set(row[:-1]) == {None}


Bounds: TypeAlias = tuple[Decimal | None, Decimal | None]


def reference_interval(
    value: Decimal, width: Decimal, origin: Decimal, below: Decimal | None, above: Decimal | None
) -> Bounds:
    """The interval [from, to) of a value; None for no bound."""
    if below is not None and value < below:
        return None, below
    if above is not None and value >= above:
        return above, None
    steps = math.floor((Fraction(value) - Fraction(origin)) / Fraction(width))  # a Decimal would round
    start = origin + steps * width
    end = start + width
    return (
        start if below is None else max(start, below),
        end if above is None else min(end, above),
    )


@st.composite
def interval_rules(draw: st.DrawFn, scale: int) -> IntervalsRule:
    unit = Decimal(1).scaleb(-scale)
    width = unit * draw(st.integers(1, 60))
    widths = [width]
    for factor in draw(st.lists(st.integers(2, 5), max_size=3)):
        widths.append(widths[-1] * factor)
    ends = [unit * bound for bound in draw(st.lists(st.integers(-300, 300), min_size=2, max_size=2, unique=True))]
    below, above = sorted(ends)
    return IntervalsRule(
        widths=tuple(widths),
        origin=unit * draw(st.integers(-50, 50)),
        below=draw(st.sampled_from([None, below])),
        above=draw(st.sampled_from([None, above])),
    )
