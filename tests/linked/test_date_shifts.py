"""Dates of linked tables are moved together: by person, in all tables, by days that nothing keeps."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.errors import HierarchyError, PolicyError, SourceError
from sqlanon.policy.linked import LinkedPolicy

KEY = {"role": "key"}
MOVED = {"role": "quasi", "hierarchy": {"dates": {"shift": 30}}}
TAG = {"role": "insensitive"}


def policy(privacy: dict[str, Any], **born: Any) -> LinkedPolicy:
    """A policy of persons and visits with dates that are moved."""
    persons = {"id": KEY, "tag": TAG, "born": {"role": "quasi", "hierarchy": {"dates": ["year"], "shift": 30}, **born}}
    visits = {"visit": KEY, "id": KEY, "seen": MOVED, "paid": {**MOVED, "role": "sensitive"}, "tag": TAG}
    return LinkedPolicy(
        table=[
            {"name": "persons", "person": "id", "attributes": persons},
            {"name": "visits", "key": "visit", "references": {"id": "persons"}, "attributes": visits},
        ],
        privacy=privacy,
        search={"suppression_limit": 0.4},
    )


def source() -> duckdb.DuckDBPyConnection:
    """120 persons with up to three visits each."""
    connection = duckdb.connect()
    connection.execute("""
        CREATE TABLE persons AS
        SELECT i AS id, 'p' || i AS tag, DATE '1980-01-01' + (i % 40)::INTEGER AS born FROM range(120) AS r(i);
        CREATE TABLE visits AS
        SELECT
            i AS visit,
            i % 120 AS id,
            CASE WHEN i % 7 > 0 THEN TIMESTAMP '2024-02-01 10:30:00' + to_days((i * i % 90)::INTEGER) END AS seen,
            DATE '2024-06-01' + (i % 11)::INTEGER AS paid,
            'v' || i AS tag
        FROM range(300) AS r(i)
    """)
    return connection


def moved_days(connection: duckdb.DuckDBPyConnection, path: Path) -> dict[int, set[int]]:
    """The numbers of days by which dates of a release with tags were moved, by person."""
    with sqlanon.connect(connection) as db:
        db.anonymize(policy({"k": 1, "known": 1})).publish(path)
    connection.execute(f"ATTACH OR REPLACE '{path}' AS release (READ_ONLY)")
    days = defaultdict(set)
    for person, *differences in connection.execute("""
        SELECT s.id, date_diff('day', s.born, r.born) FROM persons AS s JOIN release.persons AS r USING (tag)
        UNION ALL
        SELECT s.id, unnest([date_diff('day', s.paid, r.paid), date_diff('day', s.seen, r.seen)])
        FROM visits AS s JOIN release.visits AS r USING (tag)
    """).fetchall():
        days[person] |= {difference for difference in differences if difference is not None}
    ((changed,),) = connection.execute("""
        SELECT count(*) FROM visits AS s JOIN release.visits AS r USING (tag)
        WHERE (s.seen IS NULL) <> (r.seen IS NULL) OR s.seen::TIME <> r.seen::TIME
    """).fetchall()
    assert not changed
    connection.execute("DETACH release")
    return days


@pytest.mark.slow
def test_all_dates_of_a_person_move_by_the_same_days_drawn_anew_in_each_run(tmp_path: Path) -> None:
    connection = source()
    first, second = (moved_days(connection, tmp_path / f"{name}.duckdb") for name in ("first", "second"))
    assert len(first) == 120
    assert all(len(of_person) == 1 for of_person in first.values())
    drawn = [min(of_person) for of_person in first.values()]
    assert -30 <= min(drawn) < -15
    assert 15 < max(drawn) <= 30
    assert len(set(drawn)) > 30
    assert sum(first[person] != second[person] for person in first) > 90


@pytest.mark.slow
def test_the_days_are_in_no_table_of_the_run() -> None:
    connection = source()
    with sqlanon.connect(connection) as db:
        db.anonymize(policy({"k": 2, "known": 1}))
        names = connection.execute("SELECT table_name, column_name FROM duckdb_columns() WHERE NOT internal").fetchall()
    assert any(table == "moved_rows" for table, _ in names)
    assert not any(table == "shifts" or column == "days" for table, column in names)


@pytest.mark.thorough
def test_a_release_with_moved_dates_verifies_alone_and_hides_each_person(tmp_path: Path) -> None:
    with sqlanon.connect(source()) as db:
        result = db.anonymize(policy({"k": 3, "known": 1}))
        release = result.publish(tmp_path / "release.duckdb")
    assert result.optimal
    assert release.verify().verified
    with duckdb.connect(str(release.path), read_only=True) as connection:
        groups = connection.execute("""
            SELECT count(DISTINCT id)
            FROM persons LEFT JOIN visits USING (id)
            GROUP BY born, seen, visits.id IS NULL
        """).fetchall()
    assert groups
    assert min(groups) >= (3,)


@pytest.mark.parametrize(
    ("hierarchy", "message"),
    [
        (
            {"dates": ["year"], "shift": 5},
            "table[1].attributes.seen.hierarchy: shift = 30: all dates of a person are moved",
        ),
        ({"dates": ["year"], "shift": 0}, "shift: must be at least 1"),
        ({"dates": {"shift": 30, "levels": ["year"]}}, 'write levels as a list: dates = ["month", "year"], shift = 30'),
        (["suppress", {"dates": {"shift": 30}}], "shift moves the values themselves: give it to the first rule"),
    ],
)
def test_a_wrong_shift_is_refused_with_its_place(hierarchy: Any, message: str) -> None:
    with pytest.raises(PolicyError, match=re.escape(message)):
        policy({"k": 2}, hierarchy=hierarchy)


def test_a_policy_of_one_table_has_no_shift() -> None:
    with pytest.raises(PolicyError, match="shift moves the dates of a person in several tables by the same days"):
        sqlanon.Policy(attributes={"born": {"role": "quasi", "hierarchy": {"dates": {"shift": 30}}}}, privacy={"k": 2})


@pytest.mark.slow
def test_an_unmoved_date_beside_moved_ones_is_refused() -> None:
    with (
        sqlanon.connect(source()) as db,
        pytest.raises(HierarchyError, match=r"table\[0\].attributes.born: other dates"),
    ):
        db.anonymize(policy({"k": 2}, hierarchy={"dates": ["year"]}))


@pytest.mark.cases(1)
@pytest.mark.parametrize("type_", ["DATE[]", "TIMESTAMP_NS[]", "TIMESTAMP_S[1]", "TIMESTAMPTZ[]", "STRUCT(d DATE)"])
def test_a_type_that_holds_dates_is_refused_beside_moved_dates(type_: str) -> None:
    connection = source()
    connection.execute(f"ALTER TABLE persons ALTER tag TYPE {type_} USING NULL::{type_}")
    with sqlanon.connect(connection) as db, pytest.raises(HierarchyError, match="may have dates, which are not moved"):
        db.anonymize(policy({"k": 2}))


@pytest.mark.slow
def test_only_dates_are_moved() -> None:
    connection = source()
    connection.execute("ALTER TABLE persons ALTER born TYPE VARCHAR")
    with sqlanon.connect(connection) as db, pytest.raises(HierarchyError, match="shift needs a column of dates"):
        db.anonymize(policy({"k": 2}))


def test_a_date_that_cannot_be_moved_is_refused_and_not_quoted() -> None:
    connection = source()
    connection.execute("UPDATE persons SET born = DATE '5881580-07-10' WHERE id = 7")
    with sqlanon.connect(connection) as db, pytest.raises(SourceError, match="too far in the past or future") as error:
        db.anonymize(policy({"k": 2}))
    assert "5881580" not in str(error.value)
