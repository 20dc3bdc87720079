"""Policies of linked tables that cannot be met, or not released, are refused with the reason."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.errors import InfeasibleError, SqlanonError
from sqlanon.policy.linked import LinkedPolicy
from support.commands import cli
from support.linked_databases import KEY, PERSONS, QUASI, persons_and_rows
from support.linked_hospital import POLICY, make_hospital


def test_other_commands_say_that_they_read_one_table(hospital: Path) -> None:
    ended = cli("compare", hospital / "policy.toml")
    assert ended.status == 2
    assert "policy of several tables" in ended.err


def test_an_infeasible_policy_is_refused_with_the_fewest_suppressed_persons(hospital: Path) -> None:
    ended = cli("anonymize", hospital / "policy.toml", "--set", "privacy.k=61", "--dry-run")
    assert ended.status == 1
    assert (
        "suppresses 60 of 60 persons (12 are allowed): no person can be released, because there are fewer" in ended.err
    )


@pytest.mark.thorough
def test_the_table_that_singles_everybody_out_is_named() -> None:
    """Each person has another number of visits."""
    key, quasi = {"role": "key"}, {"role": "quasi", "hierarchy": "suppress"}
    references = {"references": {"id": "a"}, "attributes": {"id": key, "x": quasi}}
    tree = {
        "table": [
            {"name": "a", "person": "id", "attributes": {"id": key, "x": quasi}},
            {"name": "notes", **references},
            {"name": "visits", **references},
        ],
        "privacy": {"k": 2, "known": "all"},
        "search": {"suppression_limit": 1},
    }
    connection = duckdb.connect()
    connection.execute("CREATE TABLE a AS SELECT i AS id, 1 AS x FROM range(4) AS r(i)")
    connection.execute("CREATE TABLE notes AS SELECT id, x FROM a")
    connection.execute("CREATE TABLE visits AS SELECT id, x FROM a, range(4) AS r(j) WHERE j < id")
    with pytest.raises(InfeasibleError, match="no person can be released") as error:
        sqlanon.connect(connection).anonymize(LinkedPolicy(**tree))
    assert "by the rows of 'visits' alone, fewer than 2 persons match each of 4 of 4" in str(error.value)
    assert "suppression_limit" not in str(error.value)


@pytest.mark.cases(2)
@pytest.mark.parametrize(
    ("place", "message"),
    [
        ('database = "nowhere/release.duckdb"', "does not exist: create it first"),
        ('database = "hospital.duckdb"', "is or contains the source"),
        ('database = "policy.toml"', "ends in .toml"),
        ('database = "notes.duckdb"', "exists and is not a release of linked tables"),
        ('folder = "notes"', "exists and is not a release of linked tables"),
        ('postgres = "postgresql://nobody@localhost:1/nothing"\nschema_name = "shared"', "release.postgres: "),
    ],
)
def test_a_location_that_cannot_hold_the_release_is_refused_before_the_search(
    place: str, message: str, hospital_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = hospital_copy / "policy.toml"
    policy.write_text(POLICY.replace('database = "release.duckdb"', place), encoding="utf-8")
    (hospital_copy / "notes").mkdir()
    for file in ("notes.duckdb", "notes/notes.txt"):
        (hospital_copy / file).write_text("notes", encoding="utf-8")
    monkeypatch.setattr("sqlanon.linked.anonymize.find_lattice_search", lambda _: pytest.fail("searched"))
    with sqlanon.connect() as db, pytest.raises(SqlanonError, match=re.escape(message)):
        db.anonymize(LinkedPolicy.load(policy))


@pytest.mark.thorough
def test_a_dry_run_searches_whatever_holds_the_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_hospital(tmp_path, POLICY.replace('"release.duckdb"', '"nowhere/release.duckdb"'))
    monkeypatch.setattr("sqlanon.linked.anonymize.find_lattice_search", lambda _: pytest.fail("searched"))
    ended = cli("anonymize", tmp_path / "policy.toml")
    assert (ended.status, "does not exist: create it first" in ended.err) == (2, True), ended.err
    with pytest.raises(pytest.fail.Exception, match="searched"):
        cli("anonymize", tmp_path / "policy.toml", "--dry-run")


@pytest.mark.slow
@pytest.mark.least(3)
@pytest.mark.parametrize("role", [QUASI, {"role": "sensitive"}, KEY])
def test_errors_of_queries_do_not_quote_values(role: dict[str, Any], tmp_path: Path) -> None:
    """A value that cannot be cast is an error of the source, wherever it is read first."""
    query = "SELECT i % 12 AS pid, i % 2 AS w, ('secret' || i)::INTEGER AS s FROM range(24) AS r(i)"
    attributes = {"pid": KEY, "w": QUASI, "s": role}
    tree = persons_and_rows(rows={"query": query, "attributes": attributes, **({"key": "s"} if role is KEY else {})})
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE p AS {PERSONS}")
    with sqlanon.connect(connection) as db, pytest.raises(SqlanonError, match="does not have the type") as error:
        db.anonymize(LinkedPolicy(**tree)).publish(tmp_path / "release.duckdb")
    assert "secret" not in str(error.value)
