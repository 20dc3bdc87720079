"""The rates of wrong and missed warnings, on random tables with and without a dependency."""

from __future__ import annotations

import re

import duckdb
import pytest
from dependency_tables import PLANTED, Table, draw_dependency, independent

import sqlanon
from support.lanes import examples, some

pytestmark = pytest.mark.thorough


def warnings_of(table: Table) -> tuple[str, ...]:
    policy = sqlanon.Policy.model_validate(table.policy)
    with duckdb.connect(config={"threads": 1}) as connection, sqlanon.connect(connection) as db:
        connection.execute(f"CREATE TABLE t AS {table.query}")
        return db.anonymize(policy).warnings


def false_alarms(seeds: range) -> list[tuple[int, tuple[str, ...]]]:
    return [(seed, warnings) for seed in seeds if (warnings := warnings_of(independent(seed)))]


def missed_dependencies(seeds: range) -> list[tuple[int, str]]:
    tables = [draw_dependency(seed) for seed in seeds]
    return [(table.seed, table.kind) for table in tables if not names_planted_dependency(table)]


def names_planted_dependency(table: Table) -> bool:
    """Whether a warning says that the planted column narrows another one, alone or with a second column; a key
    identifies people by itself, which is a warning of its own."""
    finding = " is nearly unique" if table.kind == "key" else ".* narrows? "
    pattern = re.compile(f"{table.planted!r}{finding}")
    return any(pattern.search(warning) for warning in warnings_of(table))


def test_a_warning_of_independent_columns_is_rare() -> None:
    """Five of the smaller tables get no warning; the slow lane has all 200 tables."""
    small = [seed for seed in range(200) if independent(seed).rows < 2000][:5]
    assert [alarm for seed in small for alarm in false_alarms(range(seed, seed + 1))] == []


@pytest.mark.parametrize("kind", some(PLANTED, 3))
def test_a_dependency_of_each_kind_is_found(kind: str) -> None:
    seed = next(seed for seed in range(1000) if 400 < draw_dependency(seed, kind).rows < 3000)
    assert names_planted_dependency(draw_dependency(seed, kind))


TABLES = max(40, examples(200))
"""All 200 before a release; fewer in CI, but enough that a single false alarm is a failure."""


def test_under_2_percent_false_alarms_on_independent_tables() -> None:
    alarms = false_alarms(range(TABLES))
    assert len(alarms) < 0.02 * TABLES, alarms


def test_over_95_percent_of_planted_dependencies_are_found() -> None:
    missed = missed_dependencies(range(TABLES))
    assert len(missed) < 0.05 * TABLES, missed
