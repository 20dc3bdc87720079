"""DuckDB files and connections of tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import duckdb

import sqlanon
from sqlanon.engines.duckdb import WRONG_OPTIMIZER

DUCKDB_1 = duckdb.__version__.startswith("1.")
"""Whether this is the older DuckDB, which cannot do a few things by itself."""


def connection_of(db: sqlanon.Database) -> Any:
    """The connection with which a `Database` reads its source, for a live one the user's: tests look at its tables."""
    space = db._workspace
    return next(iter(space._readers.values()), space.engine.holder).connection


def small_database() -> duckdb.DuckDBPyConnection:
    """A database in memory for many small statements: engines change no setting for each of these."""
    return duckdb.connect(config={"threads": 1, "disabled_optimizers": WRONG_OPTIMIZER})


_NUMBERS = count()


@cache
def _shared_instance() -> duckdb.DuckDBPyConnection:
    return small_database()


@contextmanager
def shared_database() -> Iterator[duckdb.DuckDBPyConnection]:
    """An empty `small_database` in an instance that tests share: starting one takes as long as 30 statements."""
    name = f"database_{next(_NUMBERS)}"
    with _shared_instance().cursor() as connection:
        connection.execute(f"ATTACH ':memory:' AS {name}")
        connection.execute(f"USE {name}")
        try:
            yield connection
        finally:
            connection.execute("USE memory")
            connection.execute(f"DETACH {name}")


def compact_file(path: Path, compression: str = "auto") -> None:
    """Write a changed release again without its unused blocks."""
    fresh = path.with_suffix(".fresh")
    with duckdb.connect() as connection:
        connection.execute(f"SET force_compression = '{compression}'")
        connection.execute(f"ATTACH '{path}' AS changed (READ_ONLY)")
        connection.execute(f"ATTACH '{fresh}' AS fresh (STORAGE_VERSION 'v1.0.0')")
        connection.execute("COPY FROM DATABASE changed TO fresh")
    fresh.replace(path)


_CONNECTED: dict[duckdb.DuckDBPyConnection, sqlanon.Database] = {}


@contextmanager
def live_connection() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection that may be `connected`."""
    with duckdb.connect() as connection:
        try:
            yield connection
        finally:
            if (db := _CONNECTED.pop(connection, None)) is not None:
                db.close()


@contextmanager
def connect_to(connection: duckdb.DuckDBPyConnection) -> Iterator[sqlanon.Database]:
    """The database of a connection, one for all tests that use it: connecting takes as long as anonymizing."""
    if connection not in _CONNECTED:
        _CONNECTED[connection] = sqlanon.connect(connection)
    yield _CONNECTED[connection]


@contextmanager
def without_tables(connection: duckdb.DuckDBPyConnection) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection for one test, which leaves no table and no view in it."""
    yield connection
    query = (
        "SELECT {0}_name FROM duckdb_{0}s() WHERE NOT internal AND schema_name = 'main' AND database_name = 'memory'"
    )
    query += " AND database_name = 'memory'"
    for kind in ("view", "table"):
        for (name,) in connection.execute(query.format(kind)).fetchall():
            connection.execute(f"DROP {kind} {quote_name(name)}")


def quote_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def opened_catalog(path: Path, read_only: bool = True) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database by another name than its file's: that of a catalog is the name of its schema, too."""
    if not path.name.startswith("sqlanon."):
        with duckdb.connect(path, read_only=read_only) as connection:
            yield connection
        return
    with duckdb.connect() as connection:
        options = " (READ_ONLY)" if read_only else ""
        connection.execute(f"ATTACH '{path}' AS private{options}")
        connection.execute("USE private")
        yield connection


def fetch(path: Path, query: str) -> list[tuple[Any, ...]]:
    with opened_catalog(path) as connection:
        return connection.execute(query).fetchall()


def run_script(sql: str | None) -> list[tuple[Any, ...]]:
    """The rows of all statements of a script, in a client without settings or objects."""
    with duckdb.connect() as client:
        statements = client.extract_statements(sql or "")
        return [row for statement in statements for row in client.execute(statement).fetchall()]


def change(path: Path, *statements: str) -> None:
    with opened_catalog(path, read_only=False) as connection:
        for statement in statements:
            connection.execute(statement)


def insert(connection: duckdb.DuckDBPyConnection, name: str, rows: Iterable[Sequence[Any]]) -> None:
    """Insert rows into a table whose columns each have values of one type: `executemany` takes 20 times as long."""
    if columns := list(zip(*rows, strict=True)):
        values = ", ".join("unnest(?)" for _ in columns)
        connection.execute(f"INSERT INTO {name} SELECT {values}", [list(column) for column in columns])
