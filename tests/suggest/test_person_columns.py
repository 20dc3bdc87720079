"""Columns that number people are found by their values: `suggest` names them, and never where each row is a person."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from person_tables import Made, table_of_people, table_of_visits

import sqlanon
from sqlanon.policy import Policy
from sqlanon.suggest.profile import profile_table
from sqlanon.suggest.propose import propose
from sqlanon.suggest.suggest import Location, find_person
from support.commands import cli

pytestmark = pytest.mark.thorough

TABLES = 40
FEW = (0, 3, 7, 14, 18, 29)
REST = [seed for seed in range(TABLES) if seed not in FEW]


def person_in(table: Made) -> str | None:
    with sqlanon.connect(table.connection) as db, db._workspace.run(Location("t").binding_policy()) as run:
        profile = profile_table(run)
        person = find_person(run, profile, propose(profile.profiles))
    table.connection.close()
    return None if person is None else person.name


@pytest.mark.parametrize("seed", [*FEW, *(pytest.param(seed, marks=pytest.mark.slow) for seed in REST)])
def test_the_column_that_numbers_people_is_found(seed: int) -> None:
    table = table_of_visits(seed)
    assert person_in(table) == table.person, table.words


@pytest.mark.parametrize("seed", [*FEW, *(pytest.param(seed, marks=pytest.mark.slow) for seed in REST)])
def test_where_each_row_is_a_person_no_column_numbers_people(seed: int) -> None:
    table = table_of_people(seed)
    assert person_in(table) is None, table.words


VISITS = """
    CREATE TABLE t AS
    SELECT CASE WHEN i <> 7 OR v <> 0 THEN 100 + i END AS {key}, ['m', 'w'][1 + i % 2] AS sex,
        DATE '1950-01-01' + (i * 311)::INTEGER AS birth_date, (10000 + i % 30 * 17)::VARCHAR AS zip,
        'diagnosis ' || (hash(i * 10 + v) % 9) AS diagnosis
    FROM range(60) AS persons(i), range(7) AS rows(v)
    WHERE v < 5 + i % 3
"""


@pytest.mark.parametrize("key", ["id", "ID", "pid", "PatID", "mrn", "case_no", "region"])
def test_no_name_hides_a_key(key: str) -> None:
    connection = duckdb.connect()
    connection.execute(VISITS.format(key=key))
    assert person_in(Made(connection, key, (), key)) == key


def test_policy_explains_the_person_column(tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute(VISITS.format(key="pid"))
        connection.execute(f"COPY (SELECT pid, sex, zip FROM t) TO '{tmp_path / 'visits.csv'}'")
    ended = cli("suggest", "visits.csv", cwd=tmp_path)
    assert ended.status == 0
    (tmp_path / "policy.toml").write_text(ended.out)
    policy = Policy.load(tmp_path / "policy.toml")
    assert policy.source.person == "pid"
    assert policy.attributes["pid"].role == "identifying"
    comments = ended.out.replace("\n# ", " ")
    assert "60 values of pid number people, who have 5.98 rows on average" in comments
    assert "The 1 row without a value counts as one person in each class." in comments
