"""A release of linked tables shows k persons to everybody who knows rows of one, and no key of the source."""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.errors import InfeasibleError, PolicyError, ReleaseError, SourceError
from sqlanon.linked.targets.base import verify_tables
from sqlanon.linked.targets.file import FileLocation
from sqlanon.policy.linked import LinkedPolicy
from support.commands import cli
from support.files import ROOT
from support.linked_hospital import POLICY, TABLES, fewest_candidates, fix_levels, known_of, make_hospital
from support.pages import blocks

PAGE = (ROOT / "docs" / "how-to" / "linked-tables.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A folder with another release of the same rows, and the figures that the command printed."""
    folder = tmp_path_factory.mktemp("again")
    make_hospital(folder, fix_levels(POLICY))
    ended = cli("anonymize", folder / "policy.toml", "--json")
    assert ended.status == 0
    return folder, json.loads(ended.out)


def rows(folder: Path, query: str, file: str = "release.duckdb") -> list[tuple[Any, ...]]:
    """The rows of a query of a release."""
    with duckdb.connect(str(folder / file), read_only=True) as connection:
        return connection.execute(query).fetchall()


def test_no_attacker_who_knows_two_rows_has_fewer_than_k_candidates(hospital: Path) -> None:
    persons = known_of(partial(rows, hospital))
    assert len(persons) >= 48
    assert fewest_candidates(persons) >= 3


def test_keys_are_new_unrelated_and_valid(hospital: Path, again: tuple[Path, dict[str, Any]]) -> None:
    keys = [key for (key,) in rows(hospital, "SELECT patient_id FROM patients")]
    assert sorted(keys) == list(range(1, len(keys) + 1))
    orphans = "SELECT count(*) FROM {} ANTI JOIN {} USING ({})"
    assert rows(hospital, orphans.format("visits", "patients", "patient_id")) == [(0,)]
    assert rows(hospital, orphans.format("labs", "visits", "visit_id")) == [(0,)]
    for columns, are_equal in (("zip", True), ("zip, patient_id", False)):
        query = f"SELECT {columns} FROM patients ORDER BY ALL"
        assert (rows(hospital, query) == rows(again[0], query)) == are_equal
    columns = "SELECT column_name FROM duckdb_columns() WHERE table_name = 'patients' AND NOT internal"
    assert {name for (name,) in rows(hospital, columns)} == {"patient_id", "zip"}


def test_diagnoses_stay_with_their_patients(hospital: Path) -> None:
    """Every released patient has the diagnoses of one patient of the source."""
    query = "SELECT patient_id, list_sort(list(diagnosis)) AS all_of FROM visits GROUP BY patient_id"
    released = Counter(map(str, [values for _, values in rows(hospital, query)]))
    source = Counter(map(str, [values for _, values in rows(hospital, query, "hospital.duckdb")]))
    assert released <= source


def test_macros_of_the_release_count_its_smallest_group(hospital: Path) -> None:
    ((smallest,),) = rows(hospital, "SELECT k FROM sqlanon.km_anonymity('known_rows', 2)")
    ((claimed,),) = rows(hospital, "SELECT smallest_group FROM sqlanon.linked_manifest")
    assert smallest == claimed >= 3
    ((whole,),) = rows(hospital, "SELECT k FROM sqlanon.relational_k('whole_rows')")
    ((fewest,),) = rows(hospital, "SELECT min(persons) FROM sqlanon.signatures('whole_rows')")
    assert whole == fewest <= smallest


def test_json_has_the_figures_of_each_table(again: tuple[Path, dict[str, Any]]) -> None:
    folder, figures = again
    assert figures["known"] == 2
    assert figures["smallest_group"] >= 3
    assert figures["persons"] == figures["tables"]["patients"]["rows"] == 60
    assert figures["released_persons"] == figures["tables"]["patients"]["released_rows"]
    visits = figures["tables"]["visits"]
    assert visits["released_rows"] == rows(folder, "SELECT count(*) FROM visits")[0][0]
    assert visits["rows"] == visits["released_rows"] + visits["suppressed_rows"]
    assert visits["generalization"].keys() == {"admitted", "ward"}


@pytest.mark.parametrize(
    ("change", "check"),
    [
        ("DELETE FROM patients_v1 WHERE patient_id = 1", "rows of patients"),
        ("UPDATE labs_v1 SET value = value + 1", "rows of labs"),
        ("UPDATE visits_v1 SET patient_id = 0 WHERE visit_id = 1", "keys"),
        ("CREATE TABLE more AS SELECT 1 AS x", "contents"),
        ("CREATE OR REPLACE VIEW patients AS SELECT patient_id, 'x' AS zip FROM patients_v1", "contents"),
        ("COMMENT ON TABLE patients_v1 IS 'name 3'", "contents"),
        ("CREATE OR REPLACE MACRO sqlanon.km_anonymity(rel, m) AS TABLE (SELECT 99 AS k)", "contents"),
        ("UPDATE sqlanon.linked_manifest SET smallest_group = 50", "smallest group"),
        ("UPDATE sqlanon.linked_manifest SET k = 100", "100-anonymity"),
    ],
)
def test_a_changed_release_does_not_verify(hospital: Path, tmp_path: Path, change: str, check: str) -> None:
    changed, fresh = tmp_path / "changed.duckdb", tmp_path / "fresh.duckdb"
    changed.write_bytes((hospital / "release.duckdb").read_bytes())
    with duckdb.connect(str(changed)) as connection:
        connection.execute(
            change.replace("_v1", f"_v{rows(hospital, 'SELECT version FROM sqlanon.linked_manifest')[0][0]}")
        )
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{changed}' AS changed (READ_ONLY)")
        connection.execute(f"ATTACH '{fresh}' AS fresh (STORAGE_VERSION 'v1.4.0')")
        connection.execute("COPY FROM DATABASE changed TO fresh")
    ended = cli("verify", fresh, "--json")
    failed = {result["name"] for result in json.loads(ended.out)["checks"] if result["passed"] is False}
    assert (ended.status, check in failed) == (1, True), failed


def test_the_release_verifies(hospital: Path) -> None:
    assert cli("verify", hospital / "release.duckdb").status == 0
    ended = cli("verify", hospital / "release.duckdb", "--json")
    assert json.loads(ended.out)["verified"] is True


def policy(**changes: Any) -> dict[str, Any]:
    """A policy of two tables, changed."""
    keys = {"id": {"role": "key"}}
    tree = {
        "table": [
            {"name": "a", "person": "id", "attributes": {**keys, "x": {"role": "quasi", "hierarchy": "suppress"}}},
            {"name": "b", "references": {"id": "a"}, "attributes": keys},
        ],
        "privacy": {"k": 2},
    }
    return {**tree, **changes}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"table": []}, "must be one table or more"),
        ({"privacy": {"k": 2, "known": 4}}, 'privacy.known: must be 1, 2, 3 or "all", not 4'),
        ({"search": {"strategy": "subtree"}}, "is not supported with several tables"),
        ({"table": [policy()["table"][1]]}, "exactly one table has person"),
        ({"table": [policy()["table"][0]] * 2}, "two tables are named 'a'"),
        (
            {"table": [policy()["table"][0], {**policy()["table"][1], "references": {"id": "aa"}}]},
            "table 'aa' does not exist; did you mean 'a'?",
        ),
        ({"table": [{**policy()["table"][0], "attributes": {}}]}, "'id' has no role"),
        ({"search": {"row_suppression_limit": 0.1}}, "table[1].key: is missing"),
        ({"source": {"spark": "local[2]"}}, "source.spark: several tables are not read from Spark yet: copy"),
        (
            {"release": {"spark": True}},
            "release.spark: several tables are not released to Spark yet: release",
        ),
    ],
)
def test_a_wrong_policy_is_refused_with_its_place(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyError, match=re.escape(message)):
        LinkedPolicy(**policy(**changes))


def test_cycles_are_refused() -> None:
    first = policy()["table"][0]
    keys = {"id": {"role": "key"}, "other": {"role": "key"}}
    b = {"name": "b", "key": "id", "references": {"other": "c"}, "attributes": keys}
    c = {"name": "c", "key": "id", "references": {"other": "b"}, "attributes": keys}
    with pytest.raises(PolicyError, match="b > c > b is a cycle"):
        LinkedPolicy(**policy(table=[first, b, c]))


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ("INSERT INTO b VALUES (7)", "table 'b': 1 rows name no row of 'a'"),
        ("INSERT INTO b VALUES (NULL)", "table 'b': 1 rows name no row of 'a'"),
        ("INSERT INTO a VALUES (1, 'y')", r"table 'a': person = \['id'\] does not identify its rows: 1 keys"),
        ("INSERT INTO a VALUES (NULL, 'y')", "and 1 rows have no key"),
    ],
)
def test_broken_links_are_refused_with_their_table(tables: str, message: str) -> None:
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE a AS SELECT i AS id, 'x' AS x FROM range(4) AS r(i); CREATE TABLE b AS SELECT id FROM a"
    )
    connection.execute(tables)
    with sqlanon.connect(connection) as db, pytest.raises(SourceError, match=message):
        db.anonymize(LinkedPolicy(**policy()))


def test_orphans_may_be_suppressed() -> None:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE a AS SELECT i AS id, 'x' AS x FROM range(4) AS r(i)")
    connection.execute("CREATE TABLE b AS SELECT i AS id FROM range(6) AS r(i)")
    tree = policy()
    tree["table"][1]["orphans"] = "suppress"
    with sqlanon.connect(connection) as db:
        figures = db.anonymize(LinkedPolicy(**tree)).to_dict()["tables"]["b"]
    assert (figures["rows"], figures["released_rows"], figures["suppressed_rows"]) == (6, 4, 2)


def test_other_commands_say_that_they_read_one_table(hospital: Path) -> None:
    ended = cli("compare", hospital / "policy.toml")
    assert ended.status == 2
    assert "policy of several tables" in ended.err


def test_nothing_feasible_is_said_with_the_closest(hospital: Path) -> None:
    ended = cli("anonymize", hospital / "policy.toml", "--set", "privacy.k=61", "--dry-run")
    assert ended.status == 1
    assert (
        "suppresses 60 of 60 persons (12 are allowed): no person can be released, because there are fewer" in ended.err
    )


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


def test_a_file_that_is_no_release_is_not_replaced(again: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    other = tmp_path / "other.duckdb"
    duckdb.connect(str(other)).close()
    ended = cli("anonymize", again[0] / "policy.toml", "--output", other)
    assert (ended.status, "is not a release of linked tables" in ended.err) == (2, True)
    with pytest.raises(ReleaseError):
        verify_tables(FileLocation(other))


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
def test_a_place_that_cannot_take_the_release_is_refused_before_the_search(
    place: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_hospital(tmp_path, POLICY.replace('database = "release.duckdb"', place))
    (tmp_path / "notes").mkdir()
    for file in ("notes.duckdb", "notes/notes.txt"):
        (tmp_path / file).write_text("notes", encoding="utf-8")
    monkeypatch.setattr("sqlanon.linked.anonymize.find_lattice_search", lambda _: pytest.fail("searched"))
    ended = cli("anonymize", tmp_path / "policy.toml")
    assert (ended.status, message in ended.err) == (2, True), ended.err
    with pytest.raises(pytest.fail.Exception, match="searched"):  # a dry run writes nothing
        cli("anonymize", tmp_path / "policy.toml", "--dry-run")


def test_the_page_publishes_a_release_and_its_queries_run(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "hospital.duckdb")) as connection:
        connection.execute(TABLES)
    (tmp_path / "policy.toml").write_text(blocks("toml", PAGE)[0], encoding="utf-8")
    assert cli("anonymize", tmp_path / "policy.toml").status == 0
    attacked = cli("attack", tmp_path / "release.duckdb", "--policy", tmp_path / "policy.toml")
    assessed = cli("risk", tmp_path / "policy.toml")
    for text, ended in zip(blocks("text", PAGE), (assessed, attacked), strict=True):
        assert [line for line in text.splitlines() if line not in ended.out] == []
    for query in blocks("sql", PAGE)[0].split(";"):
        if "FROM" in query:
            assert rows(tmp_path, query)
