"""PostgreSQL as a warehouse: what sqlanon prints is run there, by hand, and releases what DuckDB does."""

from __future__ import annotations

from collections import Counter
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from postgres_server import Server
from test_warehouses import figures, from_set, quoted, violations

import sqlanon

pytest.importorskip("adbc_driver_postgresql", reason="the extra postgres is not installed")
pytestmark = pytest.mark.slow

COLUMNS = {
    "name": "text",
    'zip "code"': "varchar(20)",
    "age": "integer",
    "born": "date",
    "ill; --": "text",
    "cost": "numeric(8,2)",
}
HERE = {
    "text": "VARCHAR",
    "varchar(20)": "VARCHAR",
    "integer": "INTEGER",
    "date": "DATE",
    "numeric(8,2)": "DECIMAL(8,2)",
}
THERE = {"VARCHAR": "text", "INTEGER": "integer", "DATE": "date", "BOOLEAN": "boolean"}


def rows() -> list[list[Any]]:
    """With NULLs, quotes, case and accents; the last value of the ages is none that the hierarchy knows."""
    zips = ["02139", "0213'9", "É2139", "é2139", None, "02140", '0"1']
    return [
        [
            f"person {i}",
            zips[i * i % 7],
            None if i % 13 == 0 else 99 if i % 17 == 0 else 20 + i % 5,
            None if i % 5 == 0 else date(1990, 1, 1) + timedelta(days=i * 37 % 700),
            ("flu", "Flu", None)[i % 3],
            f"{i % 9}.50",
        ]
        for i in range(500)
    ]


def policy(folder: Path, suppressed: str) -> sqlanon.Policy:
    (folder / "age.csv").write_text("".join(f"{20 + i};{20 if i < 3 else 23}+;*\n" for i in range(5)))
    return sqlanon.Policy(
        source={"table": "patients"},
        attributes={
            "name": {"role": "identifying"},
            'zip "code"': {"role": "quasi", "hierarchy": {"mask": "right"}},
            "age": {"role": "quasi", "hierarchy": {"file": str(folder / "age.csv")}, "on_unknown": "suppress"},
            "born": {"role": "quasi", "hierarchy": {"dates": ["year", "decade"]}},
            "ill; --": {"role": "sensitive"},
            "cost": {"role": "insensitive"},
        },
        privacy={
            "k": 6,
            "l_diversity": [
                {"attribute": "ill; --", "kind": "distinct", "l": 2},
                {"attribute": "ill; --", "kind": "entropy", "l": 1.2},
                {"attribute": "ill; --", "kind": "recursive", "l": 2, "c": 9},
            ],
            "t_closeness": [{"attribute": "ill; --", "distance": "equal", "t": 0.6}],
            "beta_likeness": [{"attribute": "ill; --", "beta": 5}],
            "delta_disclosure": [{"attribute": "ill; --", "delta": 5}],
            "alpha_k": [{"attribute": "ill; --", "alpha": 0.9}],
            "average_risk": 0.2,
            "sample_uniqueness": 0.1,
        },
        search={"suppression_limit": 0.4},
        release={"table": "released", "suppressed": suppressed},
    )


def texts(connection: duckdb.DuckDBPyConnection, relation: str) -> list[tuple[Any, ...]]:
    return connection.execute(f"SELECT CAST(COLUMNS(*) AS VARCHAR) FROM {relation}").fetchall()


def upload(server: Server, folder: Path) -> None:
    with duckdb.connect() as connection:
        for file in folder.glob("*.parquet"):
            relation = connection.read_parquet(str(file))
            types = {name: THERE[str(type_)] for name, type_ in zip(relation.columns, relation.types, strict=True)}
            server.load(f"clinic.{quoted(file.stem)}", types, texts(connection, f"'{file}'"))


def audited(server: Server, folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of each query of the audit, by what stands above it."""
    found = {}
    for block in (folder / "audit.sql").read_text().split("\n\n")[1:]:
        comment, _, statement = block.strip().partition("\n")
        found[comment.removeprefix("-- ")] = server.rows(statement.removesuffix(";"))
    return found


@pytest.mark.parametrize("suppressed", ["drop", "mask"])
def test_what_is_printed_runs_in_postgres_and_releases_the_same(
    postgres: Server, tmp_path: Path, suppressed: str
) -> None:
    for name in ("clinic", "shared"):
        postgres.run(f"DROP SCHEMA IF EXISTS {name} CASCADE", f"CREATE SCHEMA {name}")
    postgres.load("clinic.patients", COLUMNS, rows())
    with duckdb.connect() as connection:
        definitions = ", ".join(f"{quoted(name)} {HERE[kind]}" for name, kind in COLUMNS.items())
        connection.execute(f"CREATE TABLE patients ({definitions})")
        connection.executemany("INSERT INTO patients VALUES (?, ?, ?, ?, ?, ?)", rows())
        here = policy(tmp_path, suppressed)
        there = from_set(here, tmp_path / "f.parquet", source={"table": "clinic.patients"})
        there = sqlanon.Policy(
            **{**there.model_dump(exclude_none=True), "release": {"table": "shared.r", "suppressed": suppressed}}
        )
        with sqlanon.connect() as db:
            (query,) = db.plan(there, dialect="postgres").stages[0].sql
        names = list(COLUMNS)[1:5]
        connection.execute(
            f"CREATE TABLE f ({', '.join(f'{quoted(name)} {HERE[COLUMNS[name]]}' for name in names)}, n BIGINT)"
        )
        connection.executemany("INSERT INTO f VALUES (?, ?, ?, ?, ?)", postgres.rows(query))
        connection.execute(f"COPY f TO '{tmp_path}/f.parquet'")
        with sqlanon.connect(connection) as db, sqlanon.connect() as other:
            expected, found = db.anonymize(here), other.anonymize(there)
            assert figures(found) == figures(expected) and found.suppressed_rows > 20
            assert found.released_rows == 500 - (0 if suppressed == "mask" else found.suppressed_rows)
            folder = found.export(tmp_path / "export", "postgres")
            file = expected.publish(tmp_path / "r.duckdb")
    upload(postgres, folder)
    postgres.run("SET search_path TO clinic", (folder / "release.sql").read_text())
    audit = audited(postgres, folder)
    assert len(audit) == 9 + 1 + 2 + 2
    assert violations(audit) == {}
    columns = [column.name for column in file.manifest.columns]
    listed = ", ".join(f"{quoted(name)}::text" for name in columns)
    with duckdb.connect(str(file.path), read_only=True) as release:
        order = ", ".join(f"CAST({quoted(name)} AS VARCHAR)" for name in columns)
        ours = Counter(release.execute(f"SELECT {order} FROM {file.table}").fetchall())
    assert Counter(postgres.rows(f"SELECT {listed} FROM shared.r")) == ours
    # A release that breaks what is asked is seen: two rows of a class of their own, and of one value.
    postgres.run(f"UPDATE shared.r SET {quoted(names[0])} = 'alone' WHERE ctid IN (SELECT ctid FROM shared.r LIMIT 1)")
    expected_now = {"6-anonymity", "distinct 2-diversity of ill; --", "share of at most 0.9 of each ill; --"}
    assert expected_now <= violations(audited(postgres, folder)).keys()
