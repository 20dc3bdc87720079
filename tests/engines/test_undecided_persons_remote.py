"""In PostgreSQL and Spark, too, somebody decides who a person is where a column numbers people of several rows."""

from __future__ import annotations

import re
from contextlib import closing
from typing import Any

import duckdb
import pytest
from sqlglot import parse_one

import sqlanon
from sqlanon.engines.postgres.engine import PostgresEngine
from sqlanon.errors import PolicyError, SourceError, UnreadableColumnsError
from sqlanon.sources.postgres import PostgresSource
from support.servers.postgres import VARIABLE, Server
from support.servers.spark import new_session

# 60 persons with five to seven rows, and a ward that says nothing of them.
VISITS = """
    SELECT 100 + i AS mrn, ['m', 'w'][1 + i % 2] AS sex, DATE '1950-01-01' + (i * 311)::INTEGER AS birth_date,
        (10000 + i * 17)::VARCHAR AS zip, 'ward ' || (hash(i * 10 + v) % 9) AS ward
    FROM range({persons}) AS persons(i), range(7) AS rows(v)
    WHERE v < {rows}
"""
QUASI = {
    "sex": {"role": "quasi", "hierarchy": "suppress"},
    "birth_date": {"role": "quasi", "hierarchy": {"dates": ["month", "year", "decade"]}},
    "zip": {"role": "quasi", "hierarchy": {"mask": "right"}},
}
SOURCE = {"postgres": f"env:{VARIABLE}", "table": "visited.visits"}
KINDS = {"mrn": "bigint", "sex": "text", "birth_date": "date", "zip": "text", "ward": "varchar(20)"}
CANCEL_ITSELF = parse_one("SELECT pg_catalog.pg_cancel_backend(pg_catalog.pg_backend_pid())", dialect="postgres")
UNDECIDED = "source.person: not set, and 'mrn' numbers people: 60 values in 360 rows. "
SMALL_CLASSES = "60 classes (360 rows) hold fewer than 5 values of 'mrn'. Set person = \"mrn\" under"


def visits(rows: str = "5 + i % 3", persons: int = 60) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        return connection.sql(VISITS.format(rows=rows, persons=persons)).fetchall()


def policy_of(role: str | None, source: dict[str, Any], **more: Any) -> sqlanon.Policy:
    attributes = {**QUASI, "ward": {"role": "insensitive"}} | ({"mrn": {"role": role}} if role else {})
    return sqlanon.Policy(
        source={**source, "undeclared": "drop", **more}, attributes=attributes, privacy={"k": 5, "dependencies": "warn"}
    )


def load(server: Server, rows: list[tuple[Any, ...]], **kinds: str) -> None:
    server.run("DROP SCHEMA IF EXISTS visited CASCADE", "CREATE SCHEMA visited")
    server.load("visited.visits", KINDS | kinds, rows)


@pytest.mark.thorough
@pytest.mark.parametrize("role", ["identifying", None, "insensitive"])
def test_a_source_in_postgres_is_refused(postgres: Server, role: str | None) -> None:
    load(postgres, visits())
    with sqlanon.connect() as db, pytest.raises(PolicyError) as refused:
        db.anonymize(policy_of(role, SOURCE))
    assert UNDECIDED + SMALL_CLASSES in str(refused.value)


# Half of the persons share their values in groups of six, ten a ZIP code; some rows have no person.
IN_CLASSES = f"""
    CREATE TABLE visits AS
    SELECT CASE WHEN hash(mrn) % 7 = 0 THEN NULL ELSE mrn END AS mrn, sex,
        CASE WHEN mrn < 130 THEN DATE '1950-01-01' + ((mrn - 100) // 6 * 31)::INTEGER ELSE birth_date END AS birth_date,
        CASE WHEN mrn < 130 THEN '10000' WHEN mrn < 140 THEN '20000' ELSE zip END AS zip, ward
    FROM ({VISITS.format(rows="5 + i % 3", persons=60)}) AS v
"""


def refuse(db: sqlanon.Database, source: dict[str, Any], strategy: str) -> str:
    sections = policy_of(None, source).model_dump(exclude_unset=True)
    sections["privacy"] |= {"k": 9}
    sections["search"] = {"strategy": strategy, "suppression_limit": 0.1}
    with pytest.raises(PolicyError) as refused:
        db.anonymize(sqlanon.Policy(**sections))
    return str(refused.value)


def count_as_duckdb(connection: duckdb.DuckDBPyConnection, message: str, strategy: str = "optimal") -> int:
    """The rows in small classes, which are those that DuckDB counts."""
    with sqlanon.connect(connection) as db:
        assert message == refuse(db, {"table": "visits"}, strategy)
    (rows,) = re.findall(r"class(?:es)? \((\d+) rows\) holds? fewer than 9 values", message)
    return int(rows)


@pytest.mark.slow
def test_the_figures_of_postgres_are_those_of_the_release(postgres: Server) -> None:
    with duckdb.connect() as connection:
        connection.execute(IN_CLASSES)
        load(postgres, connection.sql("FROM visits").fetchall())
        with sqlanon.connect() as db:
            message = refuse(db, SOURCE, "optimal")
        assert 0 < count_as_duckdb(connection, message) < 360


@pytest.mark.slow
def test_a_role_without_temporary_tables_is_refused_without_these_figures(postgres: Server) -> None:
    load(postgres, visits())
    postgres.run(
        "REVOKE TEMPORARY ON DATABASE postgres FROM PUBLIC",
        "CREATE ROLE poor LOGIN PASSWORD 'x'",
        "GRANT USAGE ON SCHEMA visited TO poor",
        "GRANT SELECT ON visited.visits TO poor",
    )
    try:
        with pytest.MonkeyPatch.context() as patch, sqlanon.connect() as db, pytest.raises(PolicyError) as refused:
            patch.setenv("POOR", postgres.address("poor", "x"))
            db.anonymize(policy_of("identifying", {**SOURCE, "postgres": "env:POOR"}))
    finally:
        postgres.run("GRANT TEMPORARY ON DATABASE postgres TO PUBLIC", "DROP OWNED BY poor", "DROP ROLE poor")
    assert UNDECIDED + 'Set person = "mrn"' in str(refused.value)


def test_rows_of_persons_with_one_row_need_no_decision(postgres: Server) -> None:
    load(postgres, visits("1", persons=360))
    with sqlanon.connect() as db:
        assert db.anonymize(policy_of("identifying", SOURCE)).persons is None


@pytest.mark.slow
def test_a_policy_that_decides_about_persons_gets_a_release_of_postgres(postgres: Server) -> None:
    load(postgres, visits())
    with sqlanon.connect() as db:
        assert db.anonymize(policy_of("identifying", SOURCE, person="mrn")).persons == 60
        assert db.anonymize(policy_of("identifying", SOURCE, person=False)).persons is None


@pytest.mark.thorough
def test_nothing_but_figures_of_people_leaves_postgres(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    load(postgres, [(f"m{mrn}", *values) for mrn, *values in visits()], mrn="text")
    fetched: list[Any] = []
    rows = PostgresEngine.rows

    def watch_rows(self: Any, query: Any, *more: Any) -> list[tuple[Any, ...]]:
        answers = rows(self, query, *more)
        fetched.extend(value for answer in answers for value in answer)
        return answers

    monkeypatch.setattr(PostgresEngine, "rows", watch_rows)
    with sqlanon.connect() as db, pytest.raises(PolicyError, match="'mrn' numbers people"):
        db.anonymize(policy_of("identifying", SOURCE))
    assert len(fetched) > 20
    assert not [value for value in fetched if str(value).startswith("m1")]


def test_a_role_with_some_columns_decides_about_these(postgres: Server) -> None:
    load(postgres, visits())
    postgres.run(
        "ALTER TABLE visited.visits ADD secret text DEFAULT 'x'",
        "CREATE ROLE some_columns LOGIN PASSWORD 'x'",
        "GRANT USAGE ON SCHEMA visited TO some_columns",
        "GRANT SELECT (mrn, sex, birth_date, zip, ward) ON visited.visits TO some_columns",
    )
    policy = policy_of("identifying", {**SOURCE, "postgres": "env:SOME_COLUMNS"})
    try:
        with pytest.MonkeyPatch.context() as patch, sqlanon.connect() as db, pytest.raises(PolicyError) as refused:
            patch.setenv("SOME_COLUMNS", postgres.address("some_columns", "x"))
            db.anonymize(policy)
    finally:
        postgres.run("DROP OWNED BY some_columns", "DROP ROLE some_columns")
    assert UNDECIDED + SMALL_CLASSES in str(refused.value)


def test_a_server_that_fails_hides_no_key(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that is not about columns, such as a time limit, ends the run: fewer columns might show no key."""
    load(postgres, visits())
    ask, calls = PostgresSource.query_remote_rows, []

    def ask_once(self: Any, *arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 1:
            with self.engine.read_only():
                return self.engine.rows(CANCEL_ITSELF)
        return ask(self, *arguments)

    monkeypatch.setattr(PostgresSource, "query_remote_rows", ask_once)
    with sqlanon.connect() as db, pytest.raises(SourceError, match="it was cancelled") as failed:
        db.anonymize(policy_of("identifying", SOURCE))
    assert len(calls) == 1 and not isinstance(failed.value, UnreadableColumnsError)


@pytest.mark.slow
def test_errors_of_rights_are_about_columns(postgres: Server) -> None:
    load(postgres, visits())
    postgres.run("CREATE ROLE no_columns LOGIN PASSWORD 'x'", "GRANT USAGE ON SCHEMA visited TO no_columns")
    try:
        engine = PostgresEngine.open(postgres.address("no_columns", "x"), "source.postgres")
        with closing(engine), pytest.raises(UnreadableColumnsError), engine.read_only():
            engine.rows(parse_one("SELECT mrn FROM visited.visits"))
    finally:
        postgres.run("DROP OWNED BY no_columns", "DROP ROLE no_columns")


@pytest.mark.thorough
def test_large_tables_are_sampled_on_the_server(postgres: Server) -> None:
    load(postgres, visits("6", persons=8000))
    with sqlanon.connect() as db, pytest.raises(PolicyError, match="'mrn' numbers people"):
        db.anonymize(policy_of("identifying", SOURCE))


@pytest.mark.spark
@pytest.mark.parametrize("persons", [60, 8000])
@pytest.mark.parametrize("role", ["identifying", None])
def test_a_source_in_spark_is_refused(spark: Any, role: str | None, persons: int, tmp_path: Any) -> None:
    session = new_session(spark)
    file = str(tmp_path / "visits.parquet")
    with duckdb.connect() as connection:
        connection.sql(VISITS.format(rows="5 + i % 3", persons=persons)).write_parquet(file)
    session.read.parquet(file).createOrReplaceTempView("visits")
    with sqlanon.connect(session) as db, pytest.raises(PolicyError) as refused:
        db.anonymize(policy_of(role, {"table": "visits"}))
    assert "not set, and 'mrn' numbers people: " in str(refused.value)
    assert (SMALL_CLASSES if persons == 60 else "hold fewer than 5 values of 'mrn'") in str(refused.value)


@pytest.mark.spark
@pytest.mark.parametrize("strategy", ["optimal", pytest.param("mondrian", marks=pytest.mark.thorough)])
def test_the_figures_of_spark_are_those_of_the_release(spark: Any, strategy: str, tmp_path: Any) -> None:
    session = new_session(spark)
    file = str(tmp_path / "visits.parquet")
    with duckdb.connect() as connection:
        connection.execute(IN_CLASSES)
        connection.sql("FROM visits").write_parquet(file)
        session.read.parquet(file).createOrReplaceTempView("visits")
        with sqlanon.connect(session) as db:
            message = refuse(db, {"table": "visits"}, strategy)
        assert count_as_duckdb(connection, message, strategy)
