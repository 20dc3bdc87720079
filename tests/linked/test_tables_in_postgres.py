"""Linked tables in PostgreSQL are anonymized there: the oracle's optimum, and nothing by person leaves the server."""

from __future__ import annotations

import itertools
import json
import random
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow
import pytest

from oracles.oracle_linked import best
from properties.linked_cases import LinkedCase, small_cases
from sqlanon.database import connect
from sqlanon.engines.postgres.engine import PostgresEngine
from sqlanon.errors import InfeasibleError
from sqlanon.linked.check.peeling import Peeling, PeelingResult
from sqlanon.linked.records import encode_tables
from sqlanon.linked.search import LinkedTask
from sqlanon.policy.linked import LinkedPolicy
from sqlanon.support.coding import Levels
from sqlanon.support.expressions import subquery, template
from support.commands import cli
from support.lanes import examples
from support.linked_hospital import POLICY, fewest_candidates, fix_levels, known_of, make_hospital
from support.postgres_cases import HERE, schemas
from support.servers.postgres import Server

__all__ = ["schemas"]  # fixtures

pytest.importorskip("adbc_driver_postgresql.dbapi", reason="the extra postgres is not installed")


def load_case(server: Server, case: LinkedCase, folder: Path) -> dict[str, Any]:
    """Create the tables of a case in a new schema, and write its hierarchies to files; the sections of the policy.

    The first two tables have a sensitive attribute, ``s``.
    """
    server.run("DROP SCHEMA IF EXISTS clinic CASCADE", "CREATE SCHEMA clinic")
    tree, draw = case.policy(source={"postgres": HERE}), random.Random(1)
    for t, (table, section) in enumerate(zip(case.database.tables, tree["table"], strict=True)):
        section["table"] = f"clinic.{table.name}"
        columns = {f"id_{t}": "integer", **({f"parent_{t}": "integer"} if table.parent is not None else {})}
        columns |= dict.fromkeys([*table.names, *(["s"] if t < 2 else [])], "text")
        rows = []
        for row in table.rows:
            keys = [row.number + 100, *([] if row.parent is None else [row.parent + 100])]
            rows.append([*keys, *row.values, *([draw.choice(["a", "a", "b", "c", None])] if t < 2 else [])])
        server.load(section["table"], columns, rows)
        section["attributes"] |= {"s": {"role": "sensitive"}} if t < 2 else {}
        for name, hierarchy in zip(table.names, table.hierarchies, strict=True):
            file = folder / f"{name}.csv"
            file.write_text("".join(f"{';'.join(map(str, path))}\n" for path in hierarchy.paths.values()))
            section["attributes"][name]["hierarchy"] = {"file": str(file)}
    return tree


def copy_case(server: Server, tree: dict[str, Any]) -> tuple[duckdb.DuckDBPyConnection, dict[str, Any]]:
    """The same tables in DuckDB, and the sections of the policy there."""
    connection, tables = duckdb.connect(), []
    connection.execute("CREATE SCHEMA clinic")
    for section in tree["table"]:
        names = list(section["attributes"])
        types = ["INTEGER" if section["attributes"][name]["role"] == "key" else "VARCHAR" for name in names]
        columns = ", ".join(f"{name} {type_}" for name, type_ in zip(names, types, strict=True))
        connection.execute(f"CREATE TABLE {section['table']} ({columns})")
        for row in server.rows(f"SELECT {', '.join(names)} FROM {section['table']}"):
            marks = ", ".join("?" for _ in row)
            connection.execute(f"INSERT INTO {section['table']} VALUES ({marks})", list(row))
        tables.append(section)
    return connection, {**{key: value for key, value in tree.items() if key != "source"}, "table": tables}


@pytest.mark.thorough
@pytest.mark.usefixtures("steps_of_large_tables")
def test_the_optimum_is_the_oracles(schemas: Server, tmp_path: Path) -> None:
    for case in small_cases(12, examples(40)):
        expected = best(case.database, case.k, case.known, case.allowed_persons, case.weights)
        with connect() as db:
            try:
                result = db.anonymize(LinkedPolicy(**load_case(schemas, case, tmp_path)))
            except InfeasibleError:
                assert expected is None
                continue
        assert expected is not None
        assert result.score == pytest.approx(expected.score)
        assert result.levels == expected.levels
        assert result.suppressed_persons == expected.suppressed_persons


FEATURES: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "rows": ({}, {"row_suppression_limit": 0.3}),
    "recursive": ({"l_diversity": [{"attribute": "t0.s", "kind": "recursive", "l": 2, "c": 2}]}, {}),
    "confidence": ({"confidence": [{"attribute": "t1.s", "max": 0.6}]}, {}),
    "distinct": ({"l_diversity": [{"attribute": "t0.s", "kind": "distinct", "l": 2}]}, {}),
    "entropy": ({"l_diversity": [{"attribute": "t0.s", "kind": "entropy", "l": 1.5}]}, {}),
    "alpha_k": ({"alpha_k": [{"attribute": "t0.s", "alpha": 0.7}]}, {}),
}
"""Additions to ``[privacy]`` and ``[search]``."""


QUICK = ("rows", "recursive", "confidence")


@pytest.mark.thorough
@pytest.mark.parametrize(
    "feature", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in FEATURES]
)
def test_every_generalization_keeps_what_duckdb_keeps(schemas: Server, tmp_path: Path, feature: str) -> None:
    """Other tests compare the results of DuckDB with oracles."""
    privacy, search = FEATURES[feature]
    number = list(FEATURES).index(feature)
    for case in small_cases(6, 60, first=100)[number : 6 * examples(10) : 6]:
        tree = load_case(schemas, case, tmp_path)
        tree["privacy"] |= privacy
        tree["search"] |= search
        connection, local_tree = copy_case(schemas, tree)
        with connect() as db, connect(connection) as local_db:
            task, local_task = (
                LinkedTask(encode_tables(database._workspace, LinkedPolicy(**sections)), lambda *_: None)
                for database, sections in ((db, tree), (local_db, local_tree))
            )
            for levels in itertools.product(*(range(height + 1) for height in case.database.heights)):
                assert task.check(levels) == local_task.check(levels)


TYPES = {
    "patients": {"patient_id": "integer", "name": "text", "zip": "text"},
    "visits": {
        "visit_id": "integer", "patient_id": "integer", "admitted": "date", "ward": "text", "diagnosis": "text",
    },
    "labs": {"visit_id": "integer", "test": "text", "value": "numeric(4,1)"},
}  # fmt: skip


def load_hospital(server: Server, folder: Path, policy: str = POLICY) -> Path:
    """Copy the hospital to the schema clinic; its policy."""
    make_hospital(folder)
    with duckdb.connect(str(folder / "hospital.duckdb")) as connection:
        for name, columns in TYPES.items():
            rows = connection.execute(f"SELECT {', '.join(columns)} FROM {name}").fetchall()
            server.load(f"clinic.{name}", columns, rows)
            policy = policy.replace(f'name = "{name}"', f'name = "{name}"\ntable = "clinic.{name}"')
    (folder / "hospital.duckdb").unlink()
    policy = policy.replace('database = "hospital.duckdb"', f'postgres = "{HERE}"')
    (folder / "policy.toml").write_text(policy, encoding="utf-8")
    return folder / "policy.toml"


@pytest.mark.thorough
def test_no_attacker_of_a_released_file_has_fewer_than_k_candidates(schemas: Server, tmp_path: Path) -> None:
    ended = cli("anonymize", load_hospital(schemas, tmp_path, fix_levels(POLICY)))
    assert ended.status == 0, ended.err
    with duckdb.connect(str(tmp_path / "release.duckdb"), read_only=True) as connection:
        persons = known_of(lambda query: connection.execute(query).fetchall())
    assert len(persons) >= 48
    assert fewest_candidates(persons) >= 3
    ended = cli("verify", tmp_path / "release.duckdb", "--policy", tmp_path / "policy.toml")
    assert (ended.status, ended.err) == (0, ""), ended.out


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], list[tuple[Any, ...]]]]:
    """The rows of every result that leaves the server; with the column names, if it is streamed."""
    results: list[tuple[list[str], list[tuple[Any, ...]]]] = []
    read_rows, read_stream = PostgresEngine._rows, PostgresEngine.stream

    def rows(engine: PostgresEngine, query: Any, parameters: Any = ()) -> list[tuple[Any, ...]]:
        result = read_rows(engine, query, parameters)
        results.append(([], result))
        return result

    @contextmanager
    def stream(engine: PostgresEngine, query: Any, parameters: Any = ()) -> Iterator[pyarrow.RecordBatchReader]:
        with read_stream(engine, query, parameters) as reader:
            table = reader.read_all()
            results.append((table.column_names, [tuple(row.values()) for row in table.to_pylist()]))
            yield table.to_reader()

    monkeypatch.setattr(PostgresEngine, "_rows", rows)
    monkeypatch.setattr(PostgresEngine, "stream", stream)
    return results


def test_no_person_and_no_key_leaves_the_server(
    schemas: Server, tmp_path: Path, fetched: list[tuple[list[str], list[tuple[Any, ...]]]]
) -> None:
    policy = LinkedPolicy.load(load_hospital(schemas, tmp_path, fix_levels(POLICY)))
    fetched.clear()
    with connect() as db:
        result = db.anonymize(policy)
        of_many = [names for names, rows in fetched if names and len(rows) > 1]
        assert of_many == [["value", "rows"]] * 4, "the values of each quasi-identifier"
        result.publish()
    values = {value for _, rows in fetched for row in rows for value in row}
    keys = {*range(1000, 1060), *range(5000, 5200)}
    assert not values & {*keys, *map(str, keys)}
    assert not any(isinstance(value, str) and value.startswith("name ") for value in values)


@pytest.mark.slow
def test_no_attacker_of_a_released_schema_has_fewer_than_k_candidates(schemas: Server, tmp_path: Path) -> None:
    release = POLICY.replace('database = "release.duckdb"', f'postgres = "{HERE}"\nschema_name = "shared"')
    policy = load_hospital(schemas, tmp_path, release.replace("= 0.2", "= 0.2\nrow_suppression_limit = 0.1"))
    policy.write_text(
        policy.read_text().replace("references = { visit_id", 'key = ["lab_id"]\nreferences = { visit_id')
    )
    policy.write_text(policy.read_text().replace("test     =", 'lab_id   = { role = "key" }\ntest     ='))
    schemas.run("ALTER TABLE clinic.labs ADD COLUMN lab_id serial")
    ended = cli("anonymize", policy)
    assert ended.status == 0, ended.err
    persons = known_of(lambda query: schemas.rows(query.replace("FROM ", "FROM shared.")))
    assert len(persons) >= 48
    assert fewest_candidates(persons) >= 3
    ended = cli("verify", HERE, "--schema", "shared", "--policy", policy)
    assert ended.status == 0, ended.out + ended.err


@pytest.mark.thorough
def test_the_ledger_recognizes_the_persons_of_another_release(schemas: Server, tmp_path: Path) -> None:
    policy = load_hospital(schemas, tmp_path, fix_levels(POLICY) + '\n[catalog]\ndatabase = "private.duckdb"\n')
    assert cli("anonymize", policy).status == 0
    policy.write_text(policy.read_text().replace("release.duckdb", "other.duckdb").replace("k = 3", "k = 2"))
    schemas.run("UPDATE clinic.patients SET zip = '000' WHERE patient_id = 1001")
    ended = cli("anonymize", policy)
    assert ended.status == 1
    assert "about the persons or rows of 'patients'" in ended.err


@pytest.mark.slow
def test_a_release_shows_the_source_as_it_was_when_the_search_began(schemas: Server, tmp_path: Path) -> None:
    policy = LinkedPolicy.load(load_hospital(schemas, tmp_path, fix_levels(POLICY)))
    with connect() as db:
        result = db.anonymize(policy)
        schemas.run("DELETE FROM clinic.labs", "UPDATE clinic.patients SET zip = '999'")
        release = result.publish(tmp_path / "parquet")
        assert release.manifest.table("labs").released_rows > 0
        connection = duckdb.connect()
        changed = f"SELECT zip FROM '{tmp_path}/parquet/patients.parquet' WHERE zip LIKE '9%'"
        assert connection.execute(changed).fetchall() == []
        assert release.verify().verified
        assert db.anonymize(policy).to_dict()["tables"]["labs"]["rows"] == 0, "a new run reads the source again"


def test_dates_are_moved_on_the_server(schemas: Server, tmp_path: Path) -> None:
    shifted = POLICY.replace('["month", "year"] }', '["month", "year"], shift = 30 }')
    policy = load_hospital(schemas, tmp_path, fix_levels(shifted))
    ended = cli("anonymize", policy)
    assert ended.status == 0, ended.err
    schemas.run("UPDATE clinic.visits SET admitted = '5874897-12-31' WHERE visit_id = 5001")
    ended = cli("anonymize", policy)
    assert (ended.status, "a date is too far in the past or future" in ended.err) == (2, True), ended.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("= 0.2", '= 0.2\nstrategy = "mondrian"'), "search.strategy: 'mondrian' is not supported"),
        (('{ mask = "right" }', '{ table = "zips" }'), "table[0].attributes.zip.hierarchy: names a table"),
        (('key = ["visit_id"]', 'key = ["visit_id"]\nfiles = "visits.csv"'), "table[1].files: [source] postgres has"),
        ((f'postgres = "{HERE}"', f'postgres = "{HERE}"\ndatabase = "a.duckdb"'), "source.postgres: give postgres"),
    ],
)
def test_features_that_need_rows_are_refused_before_a_statement_runs_on_the_server(
    tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    policy = POLICY.replace('database = "hospital.duckdb"', f'postgres = "{HERE}"').replace(*change)
    (tmp_path / "policy.toml").write_text(policy, encoding="utf-8")
    ended = cli("anonymize", tmp_path / "policy.toml")
    assert ended.status == 2
    assert message in " ".join(ended.err.split())


@pytest.mark.parametrize("query", [None, "SELECT * FROM Clinic.{}", "WITH p AS (SELECT * FROM {}) SELECT * FROM p"])
def test_a_schema_of_the_source_gets_no_release(schemas: Server, tmp_path: Path, query: str | None) -> None:
    release = POLICY.replace('database = "release.duckdb"', f'postgres = "{HERE}"\nschema_name = "clinic"')
    policy = load_hospital(schemas, tmp_path, release)
    if query is not None:
        schemas.run("ALTER ROLE CURRENT_USER SET search_path = clinic")
        text = policy.read_text(encoding="utf-8")
        policy.write_text(re.sub(r'table = "clinic.(\w+)"', lambda name: f'query = "{query.format(name[1])}"', text))
    ended = cli("anonymize", policy)
    schemas.run("ALTER ROLE CURRENT_USER RESET search_path")
    assert ended.status == 2
    assert "release.schema_name: is in the source's schema 'clinic'" in ended.err


def test_the_time_limit_interrupts_a_statement_on_the_server(
    schemas: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The best generalization so far is released, with its stored rows."""
    policy = load_hospital(schemas, tmp_path, POLICY.replace("[search]", "[search]\ntime_limit = 1"))
    suppress_persons, checked = Peeling.suppress_persons, list[Levels]()

    def run_for_hours(peeling: Peeling, levels: Levels, allowed_persons: int) -> PeelingResult:
        result = suppress_persons(peeling, levels, allowed_persons)
        checked.append(levels)
        if len(checked) > 1:
            rows, snapshot = peeling.records.tables[1].records, peeling.snapshot
            query = template("SELECT count(*) AS c FROM :rows AS a, :rows AS b, :rows AS c, :rows AS d, :rows AS e")
            snapshot.runner.count(subquery(query(rows=rows)))
        return result

    started = time.monotonic()
    with monkeypatch.context() as patch:
        patch.setattr(Peeling, "suppress_persons", run_for_hours)
        ended = cli("anonymize", policy, "--json")
    assert (ended.status, len(checked)) == (0, 2), ended.err
    assert time.monotonic() - started < 60
    assert not json.loads(ended.out)["optimal"]
    with connect() as db:
        assert db.verify(tmp_path / "release.duckdb", LinkedPolicy.load(policy)).verified


def test_risk_needs_the_rows(schemas: Server, tmp_path: Path) -> None:
    ended = cli("risk", load_hospital(schemas, tmp_path))
    assert ended.status == 2
    assert "table 'patients': the source is in PostgreSQL, and its rows never leave it" in ended.err


def test_a_plan_reads_no_rows(schemas: Server, tmp_path: Path) -> None:
    policy = load_hospital(schemas, tmp_path)
    start = schemas.log_size()
    ended = cli("plan", policy)
    assert (ended.status, ended.err) == (0, "")
    assert "patients, from table clinic.patients in PostgreSQL: persons" in ended.out
    assert 'FROM "clinic"' not in schemas.log(start)


def test_a_wrong_key_is_refused(schemas: Server, tmp_path: Path) -> None:
    policy = load_hospital(schemas, tmp_path)
    schemas.run("INSERT INTO clinic.patients SELECT * FROM clinic.patients LIMIT 1")
    schemas.run("INSERT INTO clinic.patients VALUES (NULL, 'n', '001')")
    ended = cli("anonymize", policy)
    assert "does not identify its rows: 1 keys belong to several rows, and 1 rows have no key" in ended.err
    schemas.run("DELETE FROM clinic.patients WHERE patient_id < 1010 OR patient_id IS NULL")
    ended = cli("anonymize", policy)
    assert "rows name no row of 'patients'" in ended.err
