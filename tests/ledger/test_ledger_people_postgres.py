"""The people of sources in PostgreSQL are hashed there, to the same hashes as in DuckDB."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from sqlanon.engines.dialects.canonical_text import canonical_text
from sqlanon.errors import AuditError, SourceError
from sqlanon.ledger.people_samples import SourcePeople
from sqlanon.support.expressions import col
from support.people_tables import IN_COMMON, TEXTS, in_csv, make_people, make_tables, policy_of, publish
from support.servers.postgres import PASSWORD, VARIABLE, Server

pytest.importorskip("adbc_driver_postgresql.dbapi", reason="the extra postgres is not installed")
pytestmark = pytest.mark.slow


@pytest.fixture
def clinic(postgres: Server, tmp_path: Path) -> Iterator[Path]:
    """A folder with the tables of a clinic, which a server has, too: numbers of people are text there."""
    make_tables(tmp_path, make_people())
    postgres.run("DROP SCHEMA IF EXISTS clinic CASCADE", "CREATE SCHEMA clinic")
    for name, measured in (("visits", "diagnosis"), ("labs", "test")):
        with duckdb.connect(str(tmp_path / "clinic.duckdb"), read_only=True) as connection:
            rows = connection.execute(f"FROM {name}").fetchall()
        types = {"mrn": "varchar(12)", "age": "smallint", "zip": "char(7)", "sex": "text", "day": "date"}
        postgres.load(f"clinic.{name}", {**types, measured: "text"}, rows)
    yield tmp_path
    postgres.run("DROP SCHEMA clinic CASCADE")


def postgres_source(table: str) -> dict[str, Any]:
    return {"postgres": f"env:{VARIABLE}", "table": f"clinic.{table}"}


def test_tables_of_the_same_people_in_postgresql_are_refused(clinic: Path) -> None:
    publish(policy_of(clinic, "visits", postgres_source("visits"), False))
    with pytest.raises(AuditError, match=IN_COMMON):
        publish(policy_of(clinic, "labs", postgres_source("labs"), False))


@pytest.mark.thorough
@pytest.mark.parametrize("first", ["here", "there"])
def test_a_table_in_postgresql_has_the_people_of_a_file(clinic: Path, first: str) -> None:
    places = (
        [in_csv(clinic, "visits"), postgres_source("labs")]
        if first == "here"
        else [postgres_source("visits"), in_csv(clinic, "labs")]
    )
    visits, labs = ((place, False if "postgres" in place else "mrn") for place in places)
    publish(policy_of(clinic, "visits", *visits))
    with pytest.raises(AuditError, match=IN_COMMON):
        publish(policy_of(clinic, "labs", *labs))


@pytest.mark.thorough
def test_neither_people_nor_the_secret_are_in_the_log(postgres: Server, clinic: Path) -> None:
    before = len(postgres.log())
    publish(policy_of(clinic, "visits", postgres_source("visits"), False))
    log = postgres.log()[before:]
    with duckdb.connect(str(clinic / "catalog.duckdb"), read_only=True) as reader:
        ((secret,),) = reader.execute("SELECT secret FROM sqlanon.secret").fetchall()
        hashes = reader.execute("SELECT lower(hex(person)) FROM sqlanon.source_people").fetchall()
    assert len(hashes) == 300 and "neighbours" in log and secret not in log
    assert not [digest for (digest,) in hashes if digest in log]


def test_a_user_who_may_not_read_the_keys_is_warned(postgres: Server, clinic: Path) -> None:
    postgres.run(
        *("DROP ROLE IF EXISTS clerk", f"CREATE ROLE clerk LOGIN PASSWORD '{PASSWORD}'"),
        *("GRANT USAGE ON SCHEMA clinic TO clerk", "GRANT SELECT (age, zip, sex, day, test) ON clinic.labs TO clerk"),
    )
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SQLANON_CLERK", postgres.address("clerk"))
            source = {"postgres": "env:SQLANON_CLERK", "table": "clinic.labs"}
            result = publish(policy_of(clinic, "labs", source, False))
    finally:
        postgres.run("DROP OWNED BY clerk", "DROP ROLE clerk")
    assert [
        warning
        for warning in result.warnings
        if warning.startswith("people of the source cannot be compared with others")
    ]


def test_values_have_the_same_text_as_in_duckdb(postgres: Server) -> None:
    with duckdb.connect() as connection:
        for type_, spellings, values in TEXTS:
            query = canonical_text(col("v"), type_, "duckdb").sql("duckdb")
            rows = ", ".join(f"({i}, CAST({value} AS {type_}))" for i, value in enumerate(values))
            expected = connection.execute(f"SELECT {query} FROM (VALUES {rows}) AS t(n, v) ORDER BY n").fetchall()
            sql = canonical_text(col("v"), type_, "postgres").sql("postgres")
            rows = ", ".join(f"({i}, CAST({value} AS {spellings['postgres']}))" for i, value in enumerate(values))
            assert postgres.rows(f"SELECT {sql} FROM (VALUES {rows}) AS t(n, v) ORDER BY n") == expected, type_


@pytest.mark.thorough
def test_a_server_that_fails_leaves_no_comparison_out(clinic: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only rights on columns do: after a time limit, or a lost connection, nothing is published."""
    cancelled = SourceError("source.postgres: PostgreSQL says: it was cancelled, or the server shuts down (57014)")

    def fail(*arguments: Any) -> None:
        raise cancelled

    monkeypatch.setattr(SourcePeople, "_sample_each", fail)
    with pytest.raises(SourceError, match="it was cancelled"):
        publish(policy_of(clinic, "visits", postgres_source("visits"), False))
    assert not (clinic / "visits_release.duckdb").exists()
