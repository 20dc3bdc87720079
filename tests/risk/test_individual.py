"""The statements of individual and household risk, compared with plain Python row by row."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest

from oracles import oracle_risk as oracle
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import SourceError
from sqlanon.risk.individual import (
    _household_members,
    _weighed_classes,
    format_threshold,
    individual_risk,
    measure_individual_risk,
)
from sqlanon.support.expressions import table
from support.databases import shared_database

Row = tuple[Any, ...]
ZIP, SEX, WHO, HOME, WEIGHT = range(5)


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with shared_database() as connection:
        connection.execute("CREATE TABLE t (zip VARCHAR, sex VARCHAR, who INT, home VARCHAR, weight DOUBLE)")
        yield connection


def draw_rows(seed: int) -> list[Row]:
    draw = random.Random(seed)
    return [
        (
            draw.choice(["1", "2", None]),
            draw.choice(["m", None]),
            draw.choice([1, 2, 3, 4, None]),
            draw.choice(["g", "h", None]),
            draw.choice([1.0, 1.0005, 2.5, 30.0]),
        )
        for _ in range(draw.choice([4, 9, 14]))
    ]


def columns(**names: str) -> Any:
    return SimpleNamespace(**{"generalized": ["zip"], "noisy": ["sex"], "weights": None, "person": None} | names)


def by_class(rows: list[Row], person: bool, share: float | None) -> dict[Row, tuple[int, int, float]]:
    """The rows of each class, its rows or persons, and their weight: a person has the greatest weight in the class."""
    classes = {}
    for key, group in oracle.classes_of(rows, (ZIP, SEX)).items():
        people = [row[WHO] for row in group] if person else range(len(group))
        heaviest: dict[Any, float] = {}
        for who, row in zip(people, group, strict=True):
            heaviest[who] = max(row[WEIGHT], heaviest.get(who, 0.0))
        weight = sum(heaviest.values()) if share is None else len(heaviest) / share
        classes[key] = (len(group), len(heaviest), weight)
    return classes


@pytest.mark.cases(8)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("person", [False, True])
@pytest.mark.parametrize("share", [None, 0.25, 1.0])
def test_class_weight_is_the_sum_of_its_rows_or_persons(
    seed: int, person: bool, share: float | None, connection: duckdb.DuckDBPyConnection
) -> None:
    rows = draw_rows(seed)
    connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", rows)
    names = columns(**{"person": "who"} if person else {}, **{"weights": "weight"} if share is None else {})
    query = _weighed_classes(table("t"), names, share)
    answer = connection.execute(
        f"SELECT quasi_0, quasi_1, class_size, class_count, class_weight, risk FROM ({query.sql('duckdb')})"
    ).fetchall()
    expected = by_class(rows, person, share)
    assert {row[:2]: row[2:4] for row in answer} == {key: figures[:2] for key, figures in expected.items()}
    assert {row[:2]: row[4] for row in answer} == pytest.approx({key: figures[2] for key, figures in expected.items()})
    assert {row[:2]: row[5] for row in answer} == pytest.approx(
        {key: oracle.individual(size, weight) for key, (_, size, weight) in expected.items()}, rel=1e-6
    )


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("person", [False, True])
def test_a_household_is_as_likely_found_as_one_of_its_members(
    seed: int, person: bool, connection: duckdb.DuckDBPyConnection
) -> None:
    rows = draw_rows(seed + 10)
    connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", rows)
    names = columns(household="home", weights="weight", **{"person": "who"} if person else {})
    run: Any = SimpleNamespace(source=SimpleNamespace(relation=table("t")), work=table)
    steps = StatementRunner(DuckDBEngine(connection))
    section: Any = SimpleNamespace(threshold=(0.0, 0.5))
    risks = measure_individual_risk(run, steps, names, section, None)

    classes = {
        key: (n, size, oracle.individual(size, weight))
        for key, (n, size, weight) in by_class(rows, person, None).items()
    }
    risk = [classes[row[ZIP], row[SEX]][2] for row in rows]
    individual = risks["individual"]
    persons = [size for _, size, _ in classes.values()]
    expected = math.fsum(size * class_risk for _, size, class_risk in classes.values())
    assert individual.highest == pytest.approx(max(risk), rel=1e-6)
    assert individual.expected == risks["expected_reidentifications"] == pytest.approx(expected, rel=1e-6)
    assert individual.average == pytest.approx(expected / sum(persons), rel=1e-6)
    assert individual.rows_above == {"0": len(rows), "0.5": sum(row_risk > 0.5 for row_risk in risk)}
    assert individual.population == pytest.approx(sum(figures[2] for figures in by_class(rows, person, None).values()))

    members: dict[Any, float] = {}
    for i, (row, row_risk) in enumerate(zip(rows, risk, strict=True)):
        key = (row[HOME], row[WHO] if person else i)
        members[key] = max(row_risk, members.get(key, 0.0))
    query = _household_members(table("t"), names, table("weighed_classes"))
    households = connection.execute(f"SELECT household, risk FROM ({query.sql('duckdb')})").fetchall()
    assert sorted(row_risk for _, row_risk in households) == pytest.approx(sorted(members.values()), rel=1e-6)
    joint = oracle.households([home for home, _ in members], list(members.values()))
    household = risks["household"]
    assert household.households == len({row[HOME] for row in rows} - {None})
    assert household.highest == pytest.approx(max(joint), rel=1e-6)
    assert household.expected == pytest.approx(math.fsum(joint), rel=1e-6)
    assert household.average == pytest.approx(math.fsum(joint) / len(joint), rel=1e-6)


@pytest.mark.parametrize(
    ("weight", "is_refused"),
    [("0", True), ("-1", True), ("NULL", True), ("'nan'", True), ("'inf'", True), ("1e-9", False), ("1e300", False)],
)
def test_weights_are_finite_and_above_0(weight: str, is_refused: bool, connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute(f"INSERT INTO t VALUES ('1', 'm', 1, 'h', 2), ('1', 'm', 1, 'h', {weight})")
    run: Any = SimpleNamespace(source=SimpleNamespace(relation=table("t")), work=table)
    steps = StatementRunner(DuckDBEngine(connection))
    section: Any = SimpleNamespace(threshold=())
    refusal = pytest.raises(SourceError, match="1 rows have no weight above 0") if is_refused else nullcontext()
    with refusal:
        risks = measure_individual_risk(run, steps, columns(weights="weight", household=None), section, None)
        assert risks["individual"].highest > 0


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_the_risk_of_one_class_is_that_of_the_statement(size: int, connection: duckdb.DuckDBPyConnection) -> None:
    """Also at the border of the series, and if the sample is the whole class or weighs less than its rows."""
    for weight in (size * 0.5, float(size), size / (1 - 0.0009), size / (1 - 0.0011), size * 1.5, size * 1000.0):
        connection.execute("DELETE FROM t")
        connection.execute(f"INSERT INTO t SELECT '1', 'm', i, 'h', {weight / size!r} FROM range({size}) AS r(i)")
        query = _weighed_classes(table("t"), columns(weights="weight"), None)
        ((computed,),) = connection.execute(f"SELECT risk FROM ({query.sql('duckdb')})").fetchall()
        assert computed == pytest.approx(individual_risk(size, size / weight), rel=1e-9)
        assert computed == pytest.approx(oracle.individual(size, weight), rel=1e-7)


def test_thresholds_read_as_they_are_written() -> None:
    assert [format_threshold(threshold) for threshold in (0, 0.0, 1.0, 0.05, 0.5)] == ["0", "0", "1", "0.05", "0.5"]
