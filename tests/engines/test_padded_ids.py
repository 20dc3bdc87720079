"""Ids that differ in surrounding white space are one person in every engine, and an empty text is not an id.

A table without padding, whose ids Python has stripped, says what is to be counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.engines.values import WHITE_SPACE
from sqlanon.errors import PolicyError
from support.databases import fetch
from support.servers.postgres import VARIABLE, Server

pytestmark = pytest.mark.slow

PERSONS = 40
PADDINGS = ("", " ", "\t", "\n", "\u00a0")
MISSING = (None, "", " ", "\t\n", "\u00a0 ")

COLUMNS = {"mrn": "text", "sex": "text", "birth_date": "date", "zip": "text"}
QUASI = {
    "sex": {"role": "quasi", "hierarchy": "suppress"},
    "birth_date": {"role": "quasi", "hierarchy": {"dates": ["month", "year", "decade"]}},
    "zip": {"role": "quasi", "hierarchy": {"mask": "right"}},
}

NUMBERS = count()
Visit = tuple[str | None, str, str, str]
Place = tuple[sqlanon.Database, Mapping[str, Any]]


def make_visits() -> list[Visit]:
    """Five rows of each person, each padded in its own way; and rows without an id."""
    people = [("mf"[i % 2], f"{1950 + i}-03-{1 + i % 28:02}", f"{10000 + i * 17}") for i in range(PERSONS)]
    visits: list[Visit] = []
    for i, person in enumerate(people):
        for j, padding in enumerate(PADDINGS):
            before, after = (padding, "") if (i + j) % 2 else ("", padding)
            visits.append((f"{before}K{i}{after}", *person))
    visits += [(missing, *people[i]) for i, missing in enumerate(MISSING)]
    return visits


VISITS = make_visits()
STRIPPED: list[Visit] = [((mrn or "").strip() or None, *values) for mrn, *values in VISITS]  # type: ignore[misc]


@contextmanager
def duckdb_place(rows: Sequence[Visit]) -> Iterator[Place]:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE here (mrn TEXT, sex TEXT, birth_date DATE, zip TEXT)")
    connection.executemany("INSERT INTO here VALUES (?, ?, ?, ?)", rows)
    with connection, sqlanon.connect(connection) as db:
        yield db, {"table": "here"}


@contextmanager
def postgres_place(request: pytest.FixtureRequest) -> Iterator[Place]:
    server: Server = request.getfixturevalue("postgres")
    server.run("DROP SCHEMA IF EXISTS padded CASCADE", "CREATE SCHEMA padded")
    server.load("padded.visits", COLUMNS, VISITS)
    try:
        with sqlanon.connect() as db:
            yield db, {"postgres": f"env:{VARIABLE}", "table": "padded.visits"}
    finally:
        server.run("DROP SCHEMA padded CASCADE")


@contextmanager
def spark_place(request: pytest.FixtureRequest) -> Iterator[Place]:
    session = request.getfixturevalue("session")
    rows = session.createDataFrame(VISITS, "mrn string, sex string, birth_date string, zip string")
    rows.withColumn("birth_date", rows.birth_date.cast("date")).createOrReplaceTempView("visits")
    with sqlanon.connect(session) as db:
        yield db, {"table": "visits"}


PLACES: dict[str, Callable[[pytest.FixtureRequest], Any]] = {
    "duckdb": lambda request: duckdb_place(VISITS),
    "postgres": postgres_place,
    "spark": spark_place,
}


@pytest.fixture(params=["duckdb", "postgres", pytest.param("spark", marks=pytest.mark.spark)])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with PLACES[request.param](request) as location:
        yield location


def policy_of(source: Mapping[str, Any], folder: Path | None = None, person: str | bool | None = None) -> Any:
    places: dict[str, Any] = {}
    if folder is not None:
        release = folder / f"of_{next(NUMBERS)}.duckdb"
        places = {"release": {"database": release}, "catalog": {"database": folder / "catalog.duckdb"}}
    return sqlanon.Policy(
        source={**source, "person": person},
        attributes={"mrn": {"role": "identifying"}, **QUASI},
        privacy={"k": 4},
        search={"suppression_limit": 0.2},
        **places,
    )


def test_white_space_is_that_of_python() -> None:
    assert set(WHITE_SPACE) == {chr(code) for code in range(0x110000) if chr(code).isspace()}


@pytest.mark.thorough
def test_padded_ids_are_counted_as_persons(place: Place) -> None:
    with duckdb_place(STRIPPED) as (db, source):
        expected = db.anonymize(policy_of(source, person="mrn"))
    db, source = place
    result = db.anonymize(policy_of(source, person="mrn"))
    names = ("persons", "released_persons", "generalization", "classes", "smallest_class", "score")
    assert [getattr(result, name) for name in names] == [getattr(expected, name) for name in names]
    assert result.persons == PERSONS + 1


@pytest.mark.thorough
def test_padded_ids_number_undecided_persons(place: Place) -> None:
    db, source = place
    figures = (
        f"'mrn' numbers people: {PERSONS} values in {5 * PERSONS} rows "
        f"({len(MISSING)} rows without a value count as one person in each class)"
    )
    with pytest.raises(PolicyError) as refused:
        db.anonymize(policy_of(source))
    assert figures in str(refused.value)
    if source["table"] == "here":  # a server counts no classes for a policy that is undecided
        with duckdb_place(STRIPPED) as (stripped_db, stripped), pytest.raises(PolicyError) as expected:
            stripped_db.anonymize(policy_of(stripped))
        assert str(refused.value) == str(expected.value)


@pytest.mark.thorough
def test_people_with_padded_ids_are_recognized(place: Place, tmp_path: Path) -> None:
    db, source = place
    db.anonymize(policy_of(source, tmp_path, "mrn")).publish()
    with duckdb_place(STRIPPED) as (stripped_db, stripped):
        stripped_db.anonymize(policy_of(stripped, tmp_path, "mrn")).publish()
    of_runs = fetch(
        tmp_path / "catalog.duckdb", "SELECT list(person ORDER BY person) FROM sqlanon.source_people GROUP BY run_id"
    )
    assert len(of_runs) == 2 and of_runs[0] == of_runs[1] and len(of_runs[0][0]) == PERSONS
