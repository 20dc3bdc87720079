"""The macros of linked tables count what plain Python counts, on relations that a user may have."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import duckdb
import pytest

from sqlanon.support.resources import LINKED_MACROS, macro_scripts

Relation = list[tuple[int, str, str | None]]


@pytest.fixture(scope="module")
def connection() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for script in macro_scripts(LINKED_MACROS):
        connection.execute(script)
    connection.execute("CREATE TABLE known (person INTEGER, class VARCHAR, known_row VARCHAR)")
    return connection


def draw_relation(draw: random.Random) -> Relation:
    relation: Relation = []
    for person in range(draw.randint(1, 7)):
        label = draw.choice("AB")
        rows: list[str | None] = [draw.choice(["x", "y", "z", "w"]) for _ in range(draw.randint(0, 5))]
        relation += [(person, label, row) for row in rows or [None]]
    return relation


def persons_of(relation: Relation) -> dict[int, tuple[str, Counter[str]]]:
    persons: dict[int, tuple[str, Counter[str]]] = {}
    for person, label, row in relation:
        _, rows = persons.setdefault(person, (label, Counter()))
        rows.update([] if row is None else [row])
    return persons


def fewest_supporters(relation: Relation, m: int) -> int:
    groups: Counter[object] = Counter()
    for label, rows in persons_of(relation).values():
        for size in range(m + 1):
            groups.update((label, part) for part in set(itertools.combinations(sorted(rows.elements()), size)))
    return min(groups.values())


@pytest.mark.slow
@pytest.mark.parametrize("number", range(20))
def test_the_macros_count_as_plain_python_does(connection: duckdb.DuckDBPyConnection, number: int) -> None:
    relation = draw_relation(random.Random(number))
    connection.execute("DELETE FROM known")
    connection.executemany("INSERT INTO known VALUES (?, ?, ?)", relation)
    for m in (1, 2, 3):
        km_rows = connection.execute(f"SELECT k FROM sqlanon.km_anonymity('known', {m})").fetchall()
        assert km_rows == [(fewest_supporters(relation, m),)]
    signatures = Counter((label, tuple(sorted(rows.elements()))) for label, rows in persons_of(relation).values())
    least = min(signatures.values())
    assert connection.execute("FROM sqlanon.relational_k('known')").fetchall() == [(least, len(signatures))]
    listed = connection.execute("SELECT class, known_rows, persons FROM sqlanon.signatures('known')").fetchall()
    assert {(label, tuple(rows or ())): persons for label, rows, persons in listed} == signatures


def test_other_numbers_of_known_rows_are_refused(connection: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(duckdb.Error, match="m must be 1, 2 or 3"):
        connection.execute("FROM sqlanon.km_anonymity('known', 4)").fetchall()


TERROVITIS = [["a1", "b1", "b2"], ["a2", "b1"], ["a2", "b1", "b2"], ["a1", "a2", "b2"]]
"""The transactions of Terrovitis, Mamoulis, Kalnis (2008), as the tests of a branch of ARX have them."""


def test_the_transactions_of_terrovitis_are_2_2_anonymous_once_the_items_below_a_are_generalized(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    """Items of a transaction are a set there: values with the same label count once."""
    for items, k in ((TERROVITIS, 1), ([["A" if item[0] == "a" else item for item in t] for t in TERROVITIS], 2)):
        relation = [(person, "", item) for person, transaction in enumerate(items) for item in {*transaction}]
        connection.execute("DELETE FROM known")
        connection.executemany("INSERT INTO known VALUES (?, ?, ?)", relation)
        assert connection.execute("SELECT k FROM sqlanon.km_anonymity('known', 2)").fetchall() == [(k,)]
