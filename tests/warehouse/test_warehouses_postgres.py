"""PostgreSQL as a warehouse: what sqlanon prints is run there, by hand, and releases what DuckDB does."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from properties.warehouse_cases import COLUMNS, HERE, policy, rows
from support.databases import quote_name
from support.servers.postgres import Server
from support.warehouse_checks import DIFFERING, THERE, figures, from_set, violations

pytest.importorskip("adbc_driver_postgresql", reason="the extra postgres is not installed")
pytestmark = pytest.mark.slow


def texts(connection: duckdb.DuckDBPyConnection, relation: str) -> list[tuple[Any, ...]]:
    return connection.execute(f"SELECT CAST(COLUMNS(*) AS VARCHAR) FROM {relation}").fetchall()


def upload(server: Server, folder: Path, schema: str = "clinic") -> None:
    with duckdb.connect() as connection:
        for file in folder.glob("*.parquet"):
            relation = connection.read_parquet(str(file))
            types = {name: THERE[str(type_)] for name, type_ in zip(relation.columns, relation.types, strict=True)}
            server.load(f"{schema}.{quote_name(file.stem)}", types, texts(connection, f"'{file}'"))


def statements(folder: Path) -> list[str]:
    """The statements that make the release."""
    return (folder / "release.sql").read_text().split("\n\n")[1:]


def run_audit(server: Server, folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of each query of the audit, by the comment above it."""
    answers = {}
    for block in (folder / "audit.sql").read_text().split("\n\n")[1:]:
        comment, _, statement = block.strip().partition("\n")
        if comment == "-- A setting that the queries depend on":
            server.run(statement)
        else:
            answers[comment.removeprefix("-- ")] = server.rows(statement.removesuffix(";"))
    return answers


@pytest.mark.thorough
@pytest.mark.parametrize("suppressed", ["drop", "mask"])
def test_printed_sql_runs_in_postgres_and_releases_the_same(postgres: Server, tmp_path: Path, suppressed: str) -> None:
    for name in ("clinic", "shared"):
        postgres.run(f"DROP SCHEMA IF EXISTS {name} CASCADE", f"CREATE SCHEMA {name}")
    postgres.load("clinic.patients", COLUMNS, rows())
    with duckdb.connect() as connection:
        definitions = ", ".join(f"{quote_name(name)} {HERE[kind]}" for name, kind in COLUMNS.items())
        connection.execute(f"CREATE TABLE patients ({definitions})")
        connection.executemany("INSERT INTO patients VALUES (?, ?, ?, ?, ?, ?)", rows())
        source_policy = policy(tmp_path, suppressed)
        set_policy = from_set(source_policy, tmp_path / "f.parquet", source={"table": "clinic.patients"})
        set_policy = sqlanon.Policy(
            **{**set_policy.model_dump(exclude_none=True), "release": {"table": "shared.r", "suppressed": suppressed}}
        )
        with sqlanon.connect() as db:
            (query,) = db.plan(set_policy, dialect="postgres").stages[0].sql
        names = list(COLUMNS)[1:5]
        connection.execute(
            f"CREATE TABLE f ({', '.join(f'{quote_name(name)} {HERE[COLUMNS[name]]}' for name in names)}, n BIGINT)"
        )
        connection.executemany("INSERT INTO f VALUES (?, ?, ?, ?, ?)", postgres.rows(query))
        connection.execute(f"COPY f TO '{tmp_path}/f.parquet'")
        with sqlanon.connect(connection) as db, sqlanon.connect() as second_db:
            expected, exported = db.anonymize(source_policy), second_db.anonymize(set_policy)
            assert figures(exported) == figures(expected) and exported.suppressed_rows > 20
            assert exported.released_rows == 500 - (0 if suppressed == "mask" else exported.suppressed_rows)
            folder = exported.export(tmp_path / "export", "postgres")
            file = expected.publish(tmp_path / "r.duckdb")
    upload(postgres, folder)
    # Whoever may write to a schema that is searched has an operator that fits better than PostgreSQL's.
    postgres.run(
        "DROP SCHEMA IF EXISTS others CASCADE",
        "CREATE SCHEMA others",
        "CREATE FUNCTION others.never(varchar, text) RETURNS boolean LANGUAGE sql AS 'SELECT false'",
        "CREATE OPERATOR others.= (LEFTARG = varchar, RIGHTARG = text, FUNCTION = others.never)",
        "SET search_path TO clinic, others",
        "SET standard_conforming_strings TO off",
        *statements(folder),
    )
    audit = run_audit(postgres, folder)
    assert len(audit) == 9 + 1 + 3 + 2
    assert violations(audit) == {}
    columns = [column.name for column in file.manifest.columns]
    text = ", ".join(f"{quote_name(name)}::text" for name in columns)
    with duckdb.connect(str(file.path), read_only=True) as release:
        order = ", ".join(f"CAST({quote_name(name)} AS VARCHAR)" for name in columns)
        ours = Counter(release.execute(f"SELECT {order} FROM {file.table}").fetchall())
    assert Counter(postgres.rows(f"SELECT {text} FROM shared.r")) == ours
    # A release that breaks a requirement is detected: two rows of a class of their own, and of one value.
    postgres.run(
        f"UPDATE shared.r SET {quote_name(names[0])} = 'alone' WHERE ctid IN (SELECT ctid FROM shared.r LIMIT 1)"
    )
    expected_now = {"6-anonymity", "distinct 2-diversity of ill; --", "share of at most 0.9 of each ill; --", DIFFERING}
    assert expected_now <= violations(run_audit(postgres, folder)).keys()
    # And so is a row that another has taken the place of, which breaks nothing.
    postgres.run("DROP TABLE shared.r", *statements(folder))
    keys = ", ".join(map(quote_name, names))
    place = (
        f"row_number() OVER (PARTITION BY {keys} ORDER BY cost) AS place, min(cost) OVER (PARTITION BY {keys}) AS least"
    )
    numbered = f"(SELECT ctid AS at, cost, least, place FROM (SELECT *, ctid, {place} FROM shared.r) AS p) AS n"
    ((at, least),) = postgres.rows(f"SELECT at::text, least FROM {numbered} WHERE cost <> least ORDER BY place LIMIT 1")
    postgres.run(f"UPDATE shared.r SET cost = {least} WHERE ctid = '{at}'")
    exported = violations(run_audit(postgres, folder))
    assert exported.keys() == {DIFFERING}
    assert sorted(int(row[-1]) - int(row[-2]) for row in exported[DIFFERING]) == [-1, 1]


def test_numbers_that_postgres_takes_for_equal_are_released_in_one_form(postgres: Server, tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("0.0\n")
    postgres.run("DROP SCHEMA IF EXISTS floats CASCADE", "CREATE SCHEMA floats")
    negative_zero, weight = (
        "CASE i WHEN 7 THEN '-0'::float8 ELSE 0 END",
        "CASE i WHEN 9 THEN '-0'::real ELSE (i % 2)::real END",
    )
    none = "('Infinity'::float8 - (CASE i WHEN 8 THEN 'Infinity' ELSE 'NaN' END)::float8)"
    postgres.run(
        f"CREATE TABLE floats.t AS SELECT {negative_zero} AS one, {none} AS none, i % 2 AS age, {weight} AS weight "
        "FROM generate_series(1, 40) AS s(i)"
    )
    requested_policy = sqlanon.Policy(
        source={"table": "floats.t", "frequency_set": str(tmp_path / "f.parquet")},
        attributes={
            "one": {"role": "quasi", "hierarchy": {"file": tmp_path / "one.csv"}},
            **{name: {"role": "quasi", "hierarchy": "suppress", "max_level": 0} for name in ("none", "age")},
            "weight": {"role": "sensitive"},
        },
        privacy={"k": 10, "l_diversity": [{"attribute": "weight", "kind": "distinct", "l": 1}]},
        release={"table": "floats.r"},
    )
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE f (one DOUBLE, none DOUBLE, age INTEGER, weight FLOAT, n BIGINT)")
        with sqlanon.connect() as db:
            (query,) = db.plan(requested_policy, dialect="postgres").stages[0].sql
            connection.executemany("INSERT INTO f VALUES (?, ?, ?, ?, ?)", postgres.rows(query))
            connection.execute(f"COPY f TO '{tmp_path}/f.parquet'")
            folder = db.anonymize(requested_policy).export(tmp_path / "export", "postgres")
    upload(postgres, folder, "floats")
    postgres.run("SET search_path TO floats", *statements(folder))
    assert violations(run_audit(postgres, folder)) == {}
    forms = "SELECT count(DISTINCT float8send(one)), count(DISTINCT float8send(none)), "
    forms += "count(DISTINCT float4send(weight)) FROM floats."
    assert postgres.rows(f"{forms}t") == [(2, 2, 3)]
    assert postgres.rows(f"{forms}r") == [(1, 1, 2)]
    postgres.run("RESET search_path", "DROP SCHEMA floats CASCADE")


def test_enumerations_and_texts_without_case_are_read_as_they_are_written(postgres: Server, tmp_path: Path) -> None:
    """PostgreSQL takes citext for equal where a reader does not, and has no comparison of an enumeration with text."""
    for name in ("clinic", "shared"):
        postgres.run(f"DROP SCHEMA IF EXISTS {name} CASCADE", f"CREATE SCHEMA {name}")
    postgres.run(
        "CREATE EXTENSION IF NOT EXISTS citext SCHEMA clinic",
        "CREATE TYPE clinic.mood AS ENUM ('sad', 'glad', 'never')",
        "SET search_path TO clinic",
        "CREATE TABLE clinic.t AS SELECT (ARRAY['sad', 'glad'])[1 + i % 2]::clinic.mood AS mood, "
        "(CASE WHEN i = 8 THEN 'ROME' ELSE (ARRAY['Rome', 'Oslo'])[1 + i % 2] END)::clinic.citext AS town, "
        "i % 3 AS cost FROM generate_series(1, 60) AS s(i)",
    )
    suppress = {"role": "quasi", "hierarchy": "suppress"}
    enum_policy = sqlanon.Policy(
        source={"frequency_set": [str(tmp_path / "f.parquet")], "table": "clinic.t"},
        attributes={"mood": suppress, "town": suppress, "cost": {"role": "insensitive"}},
        privacy={"k": 5},
        search={"suppression_limit": 0.1},
        release={"table": "shared.r"},
    )
    with sqlanon.connect() as db:
        (query,) = db.plan(enum_policy, dialect="postgres").stages[0].sql
        frequency_rows = postgres.rows(f"SELECT mood::text, town::text, n FROM ({query}) AS q")
        assert sorted(frequency_rows) == [("glad", "Oslo", 30), ("sad", "ROME", 1), ("sad", "Rome", 29)]
        with duckdb.connect() as connection:
            connection.execute("CREATE TABLE f (mood VARCHAR, town VARCHAR, n BIGINT)")
            connection.executemany("INSERT INTO f VALUES (?, ?, ?)", frequency_rows)
            connection.execute(f"COPY f TO '{tmp_path}/f.parquet'")
        folder = db.anonymize(enum_policy).export(tmp_path / "export", "postgres")
    upload(postgres, folder)
    postgres.run(*statements(folder))
    audit = run_audit(postgres, folder)
    assert violations(audit) == {}
    released = postgres.rows("SELECT mood::text, town::text, count(*) FROM shared.r GROUP BY 1, 2 ORDER BY 1, 2")
    assert sum(row[2] for row in released) == 59 and all(row[2] >= 5 for row in released)
    types = (
        "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 'shared.r'::regclass AND attnum > 0"
    )
    assert ("text",) in postgres.rows(types) and ("mood",) not in postgres.rows(types)
    # Where somebody spells a town in another way since, the audit shows it.
    postgres.run("UPDATE shared.r SET town = upper(town) WHERE ctid IN (SELECT ctid FROM shared.r LIMIT 1)")
    assert violations(run_audit(postgres, folder))
