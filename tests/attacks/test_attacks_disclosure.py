"""Disclosures of the classes of one release: the builders against plain Python, and examples of the literature."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles import oracle_attacks as oracle
from oracles.oracle_attacks import Row, Tree
from sqlanon.disclosure import attribute_disclosure as dc
from sqlanon.support.expressions import create_table_with_columns, table
from support.lanes import examples

QUASI, SENSITIVE = ['my "col"', "n"], "Value"
TREE = Tree([("a", "x", "*"), ("b", "x", "*"), ("c", "y", "*"), (None, None, "*")])
VALUES = ["a", "b", "c", "A", None]
ROWS = st.lists(st.tuples(*[st.sampled_from([None, "1", "2"])] * 2, st.sampled_from(VALUES)), max_size=12)


def make(connection: duckdb.DuckDBPyConnection, name: str, columns: list[str], rows: list[Row]) -> None:
    target = table(name)
    connection.execute(create_table_with_columns(target, [(column, "VARCHAR") for column in columns]).sql("duckdb"))
    for row in rows:
        connection.execute(f"INSERT INTO {target.sql('duckdb')} VALUES ({', '.join('?' * len(row))})", list(row))


@pytest.mark.thorough
@settings(max_examples=examples(60), deadline=None)
@given(ROWS, st.integers(0, 2), st.integers(0, 3))
def test_classes_are_those_of_plain_python(rows: list[Row], quasi: int, known_values: int) -> None:
    rows = [row[2 - quasi :] for row in rows]
    names = QUASI[2 - quasi :]
    with duckdb.connect() as connection:
        make(connection, "t", [*names, SENSITIVE], rows)
        make(connection, "h", ["level_0", "level_1", "level_2"], list(TREE.paths))

        def rows_of(query: Any) -> list[Row]:
            return connection.execute(query.sql("duckdb")).fetchall()

        def by_class(query: Any) -> dict[Row, Row]:
            all_of_them = rows_of(query)
            answer = {row[:quasi]: row[quasi:] for row in all_of_them}
            assert len(answer) == len(all_of_them)
            return answer

        t, h = table("t"), table("h")
        assert by_class(dc.homogeneity(t, names, SENSITIVE)) == oracle.homogeneity(rows, quasi)
        expected = oracle.background_knowledge(rows, quasi, known_values)
        assert by_class(dc.background_knowledge(t, names, SENSITIVE, known_values)) == expected
        assert by_class(dc.similarity(t, names, SENSITIVE, h, 2)) == oracle.similarity(rows, quasi, TREE)
        ratios = oracle.ratios(rows, quasi)
        skewed = {(row[:quasi], row[quasi]): row[quasi + 1 :] for row in rows_of(dc.skewness(t, names, SENSITIVE))}
        assert skewed.keys() == {key for key, (p, r, _) in ratios.items() if r >= 2 - 1e-12 and p >= 0.5 - 1e-12}
        assert all(figures == pytest.approx(ratios[key]) for key, figures in skewed.items())
        ((most,),) = rows_of(dc.greatest_skew(t, names, SENSITIVE))
        assert most == (pytest.approx(max(r for _, r, _ in ratios.values())) if rows else None)


# --- Machanavajjhala et al. 2007, figure 2; Li et al. 2007, tables 3 and 4


INPATIENTS = [
    *[("130**", "<30", p) for p in ("heart disease", "heart disease", "viral infection", "viral infection")],
    *[("1485*", "≥40", p) for p in ("cancer", "heart disease", "viral infection", "viral infection")],
    *[("130**", "3*", "cancer")] * 4,
]
SALARIES = [
    *[("476**", "2*", p) for p in ("gastric ulcer", "gastritis", "stomach cancer")],
    *[("4790*", "≥40", p) for p in ("gastritis", "flu", "bronchitis")],
    *[("476**", "3*", p) for p in ("bronchitis", "pneumonia", "stomach cancer")],
]
DISEASES = [(p, "of the stomach", "*") for p in ("gastric ulcer", "gastritis", "stomach cancer")]
DISEASES += [(p, "of the lungs", "*") for p in ("flu", "bronchitis", "pneumonia")]


@pytest.fixture
def db() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        make(connection, "inpatients", ["zip", "age", "condition"], INPATIENTS)
        make(connection, "salaries", ["zip", "age", "disease"], SALARIES)
        make(connection, "diseases", ["level_0", "level_1", "level_2"], DISEASES)
        yield connection


@pytest.mark.thorough
def test_bob_in_his_thirties_has_cancer(db: duckdb.DuckDBPyConnection) -> None:
    query = dc.homogeneity(table("inpatients"), ["zip", "age"], "condition")
    assert db.execute(query.sql("duckdb")).fetchall() == [("130**", "3*", "cancer", 4)]
    query = dc.homogeneity(table("salaries"), ["zip", "age"], "disease")
    assert db.execute(query.sql("duckdb")).fetchall() == []


@pytest.mark.slow
def test_umeko_who_is_unlikely_to_have_a_heart_disease_has_an_infection(db: duckdb.DuckDBPyConnection) -> None:
    query = dc.background_knowledge(table("inpatients"), ["zip", "age"], "condition", 1)
    rows = sorted(db.execute(query.sql("duckdb")).fetchall())
    assert rows == [("130**", "3*", 1, 4), ("130**", "<30", 2, 4)]
    query = dc.background_knowledge(table("salaries"), ["zip", "age"], "disease", 1)
    assert db.execute(query.sql("duckdb")).fetchall() == []
    query = dc.background_knowledge(table("salaries"), ["zip", "age"], "disease", 2)
    assert len(db.execute(query.sql("duckdb")).fetchall()) == 3


def test_all_have_something_with_the_stomach(db: duckdb.DuckDBPyConnection) -> None:
    query = dc.similarity(table("salaries"), ["zip", "age"], "disease", table("diseases"), 2)
    assert db.execute(query.sql("duckdb")).fetchall() == [("476**", "2*", 1, "of the stomach", 3)]


@pytest.mark.slow
def test_who_has_no_disease_is_of_no_kind_with_others(db: duckdb.DuckDBPyConnection) -> None:
    make(db, "wards", ["ward", "disease"], [("a", "gastritis"), ("a", None), ("b", "flu"), ("b", "bronchitis")])
    query = dc.similarity(table("wards"), ["ward"], "disease", table("diseases"), 2)
    assert db.execute(query.sql("duckdb")).fetchall() == [("b", 1, "of the lungs", 2)]


@pytest.mark.thorough
def test_half_of_a_class_is_positive_and_one_in_a_hundred_of_all(db: duckdb.DuckDBPyConnection) -> None:
    """Li et al., section 3.2: 1 % of all are positive, and half of a class."""
    rows = [("a", "positive")] * 10 + [("a", "negative")] * 10 + [("b", "negative")] * 980
    make(db, "tests", ["class", "result"], rows)
    query = dc.skewness(table("tests"), ["class"], "result")
    assert db.execute(query.sql("duckdb")).fetchall() == [("a", "positive", 0.5, 50.0, 10)]
    even = [(c, r) for c in "ab" for r in ["positive"] * 5 + ["negative"] * 5]
    make(db, "even", ["class", "result"], even)
    assert db.execute(dc.skewness(table("even"), ["class"], "result").sql("duckdb")).fetchall() == []
    assert db.execute(dc.greatest_skew(table("even"), ["class"], "result").sql("duckdb")).fetchall() == [(1.0,)]
