"""Policies and schemas for tests against PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
import pytest

import sqlanon
from support.databases import quote_name
from support.servers.postgres import VARIABLE, Server

HERE = f"env:{VARIABLE}"


@pytest.fixture
def schemas(postgres: Server) -> Server:
    """A schema of sources, ``clinic``, and one of releases, ``shared``: both new."""
    for name in ("clinic", "shared"):
        postgres.run(f"DROP SCHEMA IF EXISTS {name} CASCADE", f"CREATE SCHEMA {name}")
    return postgres


def in_duckdb(columns: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> duckdb.DuckDBPyConnection:
    """The same table in DuckDB, by the text of its values."""
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE t ({', '.join(f'{quote_name(name)} VARCHAR' for name in columns)})")
    if rows:
        texts = [[None if value is None else str(value) for value in row] for row in rows]
        connection.executemany(f"INSERT INTO t VALUES ({', '.join('?' * len(columns))})", texts)
    casts = ", ".join(f"CAST({quote_name(name)} AS {kind}) AS {quote_name(name)}" for name, kind in columns.items())
    connection.execute(f"CREATE OR REPLACE TABLE t AS SELECT {casts} FROM t")
    return connection


def policies(tree: Mapping[str, Any], table: str = "clinic.t") -> tuple[sqlanon.Policy, sqlanon.Policy]:
    """The same policy over the table in DuckDB, and over that in PostgreSQL with its release there."""
    release = dict(tree.get("release", {}))
    sections = {name: part for name, part in tree.items() if name != "release"}
    policy = sqlanon.Policy(**sections, source={"table": "t"}, release={**release, "table": "r"})
    remote_policy = sqlanon.Policy(
        **sections,
        source={"postgres": HERE, "table": table},
        release={**release, "postgres": HERE, "table": "shared.r"},
    )
    return policy, remote_policy
