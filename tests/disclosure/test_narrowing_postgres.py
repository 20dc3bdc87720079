"""Dependencies of a source in PostgreSQL: measured there, with the figures that DuckDB has of the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest
from narrowing_people import PEOPLE, ROLES
from sqlglot import exp

import sqlanon
from sqlanon.disclosure import dependencies as narrowing
from sqlanon.errors import AuditError, SourceError
from support.servers.postgres import VARIABLE, Server

pytestmark = pytest.mark.slow

HERE = f"env:{VARIABLE}"


def load(server: Server, rows: int) -> duckdb.DuckDBPyConnection:
    """The same people in PostgreSQL and in DuckDB."""
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE people AS {PEOPLE.replace('20000', str(rows))}")
    server.run("DROP SCHEMA IF EXISTS clinic CASCADE", "CREATE SCHEMA clinic")
    types = {"name": "bigint", "zip": "text", "age": "integer", "district": "text", "diagnosis": "text"}
    columns = {**types, "cost": "double precision"}
    server.load("clinic.people", columns, connection.execute("FROM people").fetchall())
    return connection


def policies(**more: Any) -> tuple[sqlanon.Policy, sqlanon.Policy]:
    sections = {"attributes": ROLES, "privacy": {"k": 20} | more.pop("privacy", {}), **more}
    source = {"postgres": HERE, "table": "clinic.people"}
    return sqlanon.Policy(source={"table": "people"}, **sections), sqlanon.Policy(source=source, **sections)


def figures(dependency: narrowing.Narrowing) -> dict[str, Any]:
    return {name: figure for name, figure in dependency.to_dict().items() if isinstance(figure, int | float)}


@pytest.mark.thorough
@pytest.mark.parametrize("suppressed", ["drop", "mask"])
def test_the_figures_are_those_of_duckdb(postgres: Server, suppressed: str, tmp_path: Path) -> None:
    search = {"suppression_limit": 0.05}
    release = {"database": tmp_path / "r.duckdb", "suppressed": suppressed}
    local_policy, remote_policy = policies(search=search, release=release)
    with load(postgres, 4000) as connection, sqlanon.connect(connection) as db:
        (expected,) = db.anonymize(local_policy).dependencies
    with sqlanon.connect() as db:
        result = db.anonymize(remote_policy)
        (dependency,) = result.dependencies
        assert (dependency.columns, dependency.quasi) == (expected.columns, expected.quasi) == (("district",), "zip")
        assert figures(dependency) == pytest.approx(figures(expected), rel=1e-9)
        assert dependency.message in result.warnings
        left = postgres.rows(dependency.query)
        assert {values for _, values, _ in left} == {4}
        (stage,) = [candidate for candidate in db.plan(remote_policy).stages if candidate.name == "dependencies"]
        assert "TEMPORARY" in stage.sql[-2]
        assert "alike_before" in stage.sql[-1]
        _, strict = policies(search=search, release=release, privacy={"dependencies": "error"})
        with pytest.raises(AuditError, match="'district' narrows 'zip'"):
            db.anonymize(strict).publish()


def test_temporary_rows_answer_with_figures_alone(postgres: Server) -> None:
    load(postgres, 4000).close()
    with sqlanon.connect() as db, db._workspace.run(policies()[1], counted=True) as run:
        rows = exp.select(exp.column("zip", quoted=True)).from_(run.source.relation)
        with run.source.temporary_rows(run.engine, rows, None) as (ask, relation):
            assert ask(exp.select(exp.Count(this=exp.Star())).from_(relation)) == [(4000,)]
            with pytest.raises(SourceError, match="the rows of a source in PostgreSQL never leave it"):
                ask(exp.select(exp.column("zip", quoted=True)).from_(relation))


@pytest.mark.thorough
def test_large_tables_are_measured_in_a_sample(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(narrowing, "SAMPLE_ROWS", 4000)
    load(postgres, 12000).close()
    with sqlanon.connect() as db:
        (dependency,) = db.anonymize(policies()[1]).dependencies
    assert (dependency.columns, dependency.quasi, dependency.smallest_group) == (("district",), "zip", None)
    assert dependency.after == pytest.approx(4, rel=0.25)


def test_a_role_without_temporary_tables_is_reported(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    load(postgres, 400).close()
    postgres.run("REVOKE TEMPORARY ON DATABASE postgres FROM PUBLIC", "DROP ROLE IF EXISTS poor")
    postgres.run("CREATE ROLE poor LOGIN PASSWORD 'x'", "GRANT USAGE ON SCHEMA clinic TO poor",
                 "GRANT SELECT ON clinic.people TO poor")  # fmt: skip
    monkeypatch.setenv(VARIABLE, postgres.address("poor", "x"))
    try:
        with sqlanon.connect() as db:
            result = db.anonymize(policies()[1])
            assert [
                warning for warning in result.warnings if "was not measured: this role may make no temporary" in warning
            ]
            with pytest.raises(SourceError, match="this role may make no temporary tables"):
                db.anonymize(policies(privacy={"dependencies": "error"})[1])
    finally:
        postgres.run("GRANT TEMPORARY ON DATABASE postgres TO PUBLIC", "DROP OWNED BY poor", "DROP ROLE poor")
