"""Sources in PostgreSQL are recognized by their rows, which the server hashes as DuckDB does."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from ledger_databases import create_visits, policy, publish

import sqlanon
from sqlanon.engines.postgres.engine import PostgresEngine
from sqlanon.errors import AuditError
from sqlanon.ledger import postgres_samples, source_samples
from sqlanon.support.expressions import table
from support.servers.postgres import VARIABLE, Server

pytest.importorskip("adbc_driver_postgresql.dbapi", reason="the extra postgres is not installed")
pytestmark = pytest.mark.slow

HERE = f"env:{VARIABLE}"
SHARES = r"the source shares about \d+% of its rows with that of this release"


@pytest.fixture
def clinic(postgres: Server) -> Iterator[Server]:
    postgres.run("DROP SCHEMA IF EXISTS clinic CASCADE", "CREATE SCHEMA clinic", "DROP TABLE IF EXISTS public.visits")
    yield postgres
    postgres.run("DROP SCHEMA clinic CASCADE", "DROP TABLE IF EXISTS public.visits")


def load(server: Server, path: Path, name: str = "clinic.visits") -> None:
    with duckdb.connect(str(path), read_only=True) as connection:
        rows = connection.execute("FROM visits").fetchall()
    server.load(name, {"age": "integer", "sex": "text", "zip": "text", "cost": "double precision"}, rows)


def remote_table(table: str = "clinic.visits") -> dict[str, Any]:
    return {"postgres": HERE, "table": table}


def remote_query(query: str) -> dict[str, Any]:
    return {"postgres": HERE, "query": query}


def local_table(place: Path) -> dict[str, Any]:
    return {"database": place / "clinic.duckdb", "table": "visits"}


PAIRS = {
    "a view": (remote_table(), remote_table("clinic.shown")),
    "a query": (
        remote_table(),
        remote_query("SELECT cost::numeric(12, 4) AS cost, age::bigint AS age, zip FROM clinic.visits"),
    ),
    "a subset": (remote_table(), remote_query("SELECT * FROM clinic.visits WHERE cost < 1200")),
    "DuckDB after PostgreSQL": (remote_table(), None),
    "PostgreSQL after DuckDB": (None, remote_table()),
}


@pytest.mark.thorough
@pytest.mark.parametrize("pair", PAIRS)
def test_a_source_is_known_under_another_description(clinic: Server, tmp_path: Path, pair: str) -> None:
    create_visits(tmp_path / "clinic.duckdb")
    load(clinic, tmp_path / "clinic.duckdb")
    clinic.run("CREATE VIEW clinic.shown AS SELECT zip, cost, age FROM clinic.visits")
    first, second = (source_of or local_table(tmp_path) for source_of in PAIRS[pair])
    publish(policy(tmp_path, "one", first, "age"))
    with pytest.raises(AuditError, match=SHARES):
        publish(policy(tmp_path, "two", second, "zip"))
    assert not (tmp_path / "two.duckdb").exists()


def test_columns_that_were_renamed_are_known_by_their_values(clinic: Server, tmp_path: Path) -> None:
    create_visits(tmp_path / "clinic.duckdb")
    load(clinic, tmp_path / "clinic.duckdb")
    publish(policy(tmp_path, "one", remote_table(), "age"))
    source = remote_query("SELECT age AS years, zip AS postcode, cost AS amount FROM clinic.visits")
    with sqlanon.connect() as db:
        names = {"age": "years", "zip": "postcode", "cost": "amount"}
        db.anonymize(policy(tmp_path, "two", source, "zip", names)).publish(force=True)
    with duckdb.connect(str(tmp_path / "catalog.duckdb"), read_only=True) as reader:
        rows = reader.execute("SELECT source, same_source FROM sqlanon.ledger ORDER BY published_at").fetchall()
    assert rows[1][1] == rows[0][0] != rows[1][0]


@pytest.mark.thorough
def test_another_table_of_the_same_kind_is_another_source(clinic: Server, tmp_path: Path) -> None:
    for seed, name in enumerate(("clinic", "other"), 1):
        create_visits(tmp_path / f"{name}.duckdb", seed)
        load(clinic, tmp_path / f"{name}.duckdb", f"clinic.{name}")
    publish(policy(tmp_path, "one", remote_table("clinic.clinic"), "age"))
    result = publish(policy(tmp_path, "two", remote_table("clinic.other"), "zip"))
    assert not [warning for warning in result.warnings if "the ledger" in warning]  # it was looked at


def test_neither_values_nor_the_secret_are_in_the_log(clinic: Server, tmp_path: Path) -> None:
    """The secret of the catalog never reaches the server, which returns hashes and counts."""
    create_visits(tmp_path / "clinic.duckdb")
    load(clinic, tmp_path / "clinic.duckdb")
    publish(policy(tmp_path, "one", local_table(tmp_path), "age"))
    before = len(clinic.log())
    with pytest.raises(AuditError, match=SHARES):
        publish(policy(tmp_path, "two", remote_table(), "zip"))
    log = clinic.log()[before:]
    with duckdb.connect(str(tmp_path / "catalog.duckdb"), read_only=True) as reader:
        ((secret,),) = reader.execute("SELECT secret FROM sqlanon.secret").fetchall()
        hashes = reader.execute("SELECT DISTINCT lower(hex(unnest(hashes))) FROM sqlanon.source_samples").fetchall()
    assert "pg_catalog.md5" in log and secret not in log
    assert not [digest for (digest,) in hashes if digest in log]  # no hash of a single value goes there


@pytest.mark.thorough
def test_an_unqualified_table_is_the_one_that_is_found(clinic: Server, tmp_path: Path) -> None:
    """The search path of the user determines the table ``visits``."""
    for seed, schema in enumerate(("public", "clinic"), 1):
        create_visits(tmp_path / f"{schema}.duckdb", seed)
        load(clinic, tmp_path / f"{schema}.duckdb", f"{schema}.visits")
    address = clinic.address()

    def publish_into(name: str, path: str, source: dict[str, Any]) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SQLANON_ON_PATH", f"{address}?options=-csearch_path%3D{path}")
            publish(policy(tmp_path, name, {**source, "postgres": "env:SQLANON_ON_PATH"}, "age"))

    publish_into("one", "clinic", {"table": "visits"})
    publish_into("two", "public", {"table": "clinic.visits"})
    publish_into("three", "public", {"table": "visits"})
    publish_into("four", "clinic", {"query": "SELECT * FROM visits"})
    publish_into("five", "public", {"query": 'SELECT * FROM "clinic"."visits"'})
    with duckdb.connect(str(tmp_path / "catalog.duckdb"), read_only=True) as reader:
        rows = reader.execute("SELECT source FROM sqlanon.ledger ORDER BY published_at").fetchall()
    first, second, three, four, five = (source for (source,) in rows)
    assert first == second and four == five and len({first, three, four}) == 3


def doubles() -> list[str]:
    chosen = random.Random(5)
    drawn = [struct.unpack("<d", struct.pack("<Q", chosen.getrandbits(64)))[0] for _ in range(300)]
    around = [10.0**i * factor for i in range(-8, 24) for factor in (1, 1.5, 0.1, 1.2345678901234567, -3)]
    return [repr(value) for value in (*around, *drawn) if not math.isnan(value)]


VALUES: dict[str, list[str | None]] = {
    "double precision": [*doubles(), "0", "-0", "NaN", None],
    "real": ["0.1", "16777217", "1e10", "3.4e38", "-7", "1e-30"],
    "numeric(38,5)": ["1.10", "0.00001", "123456789012345678", "999999999999999999999999", "-2.5", "1234567890123456"],
    "bigint": ["9223372036854775807", "-1", "0", "1000000000000000", "1234567890123456"],
    "smallint": ["1", "-32768"],
    "boolean": ["true", "false", None],
    "date": ["2020-02-29", "1969-12-31", "0001-01-01", "9999-12-31"],
    "timestamp": ["2020-02-29 00:00:00", "2020-02-29 10:11:12.5", "1969-12-31 23:59:59.999999"],
    "timestamptz": ["2020-02-29 00:00:00+00", "2020-02-29 10:11:12+02"],
    "time": ["00:00:00", "10:11:12.5"],
    "uuid": ["00000000-0000-0000-0000-00000000ABCD"],
    "text": [
        *("", " ", "a", " A ", "Ärger", "ärger", "ÄRGER", "Straße", "İ", "02139", "1", "1.0", "+1", " 1.50 ", ".5"),
        *("5.", "1e3", "1E-3", "-0", "1234567890123456", "2020-01-01", "2020-01-01 10:11:12", "2020-01-01T10:11:12"),
        *("NULL", ":", "abc123", "1,5", "12:30"),
        None,
    ],
}  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("kind", VALUES)
def test_values_have_the_same_hashes_as_in_duckdb(clinic: Server, kind: str) -> None:
    types = {
        "double precision": "DOUBLE",
        "real": "FLOAT",
        "timestamptz": "TIMESTAMP WITH TIME ZONE",
        "text": "VARCHAR",
    }
    type_, key, most = types.get(kind, kind.upper().replace("NUMERIC", "DECIMAL")), "key", 10_000
    clinic.load("clinic.v", {"n": "integer", "v": kind}, [*enumerate(VALUES[kind])])
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"CREATE TABLE v (n INTEGER, v {type_})")
        connection.executemany(f"INSERT INTO v SELECT ?, CAST(? AS {type_})", [*enumerate(VALUES[kind])])
        server = PostgresEngine.open(clinic.address(), "test")
        try:
            query = source_samples.values_of(table("v"), "v", key)
            expected = {f"{value:016x}": form for form, value in connection.execute(query.sql("duckdb")).fetchall()}
            with server.read_only():
                rows = server.rows(postgres_samples.values_of(table("v", "clinic"), "v", type_, most), [key])
        finally:
            server.close()
    assert {h for h, _ in rows} == set(expected), {expected.get(h) for h in set(expected) - {h for h, _ in rows}}
    assert {d for _, d in rows} == {len(expected)}


def test_numbers_that_are_too_large_are_words(clinic: Server) -> None:
    clinic.load("clinic.v", {"v": "text"}, [["1e999"], ["9" * 400], ["1" * 400 + ".5"]])
    server = PostgresEngine.open(clinic.address(), "test")
    try:
        with server.read_only():
            query = postgres_samples.values_of(table("v", "clinic"), "v", "VARCHAR", 10)
            assert len(server.rows(query, ["key"])) == 3
    finally:
        server.close()
