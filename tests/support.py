"""Helpers of several subjects: the command line in this process, a small hospital, files, constants that tests set."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pytest
import typer.main

import sqlanon
from sqlanon.audit.verify import verify_file
from sqlanon.cli import main
from sqlanon.release.targets.base import Verification

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"

# Constants that tests set: from how many rows on a source or a frequency set is not kept as it is, to which size a
# frequency set is made coarser, and for how long a catalog in use is waited for.
SMALL_SET = "sqlanon.frequency.sets.SMALL_TABLE_ROWS"
COARSE_SET = "sqlanon.frequency.sets.COARSE_CLASSES"
ROWS_PER_CODE = "sqlanon.frequency.codes.ROWS_PER_CODE"
SMALL_SPARK = "sqlanon.sources.remote.MAX_FETCHED_ROWS"
PATIENCE = "sqlanon.ledger.catalog.PATIENCE"


@dataclass(frozen=True)
class Ended:
    """What a command did."""

    status: int
    out: str
    err: str


def cli(*arguments: str | Path, cwd: Path | None = None) -> Ended:
    """Run the command line in this process, as the console script does. No traceback is ever shown."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2))
    status = 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(typer.main, "get_command", _commands)
        patch.delenv("SQLANON_DEBUG", raising=False)
        patch.setattr(sys, "argv", ["sqlanon", *map(str, arguments)])
        if cwd is not None:
            patch.chdir(cwd)
        try:
            main()
        except SystemExit as done:
            assert done.code is None or isinstance(done.code, int)
            status = done.code or 0
    ended = Ended(status, *(_text(stream) for stream in (out, err)))
    sys.stdout.write(ended.out)  # pytest shows it beside a failure
    sys.stderr.write(ended.err)
    assert "Traceback" not in ended.out + ended.err
    return ended


_commands = cache(typer.main.get_command)
"""The commands of the application, made once: to make them takes longer than most of them."""


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    stream.seek(0)
    return stream.read()


# A small hospital

HOSPITAL_POLICY = """
[source]
database = "hospital.duckdb"
table = "patients"
[attributes]
name = { role = "identifying" }
zip = { role = "quasi", hierarchy = { mask = "right" } }
age = { role = "quasi", hierarchy = { intervals = [5, 10, 20, 40] } }
illness = { role = "sensitive" }
[privacy]
k = 5
[search]
suppression_limit = 0.1
[release]
database = "release.duckdb"
"""


def small_hospital(folder: Path, rows: int = 400) -> Path:
    """A file with patients."""
    path = folder / "hospital.duckdb"
    change(
        path,
        "CREATE TABLE patients AS SELECT 'Person ' || i AS name, CAST(2130 + hash(i) % 12 AS VARCHAR) AS zip, "
        f"CAST(hash(i + 1) % 90 AS INTEGER) AS age, 'illness ' || i % 7 AS illness FROM range({rows}) AS r(i)",
    )
    return path


# Live connections

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
def connected(connection: duckdb.DuckDBPyConnection) -> Iterator[sqlanon.Database]:
    """The database of a connection: one for all tests that use it, as to connect takes as long as to anonymize."""
    if connection not in _CONNECTED:
        _CONNECTED[connection] = sqlanon.connect(connection)
    yield _CONNECTED[connection]


@contextmanager
def emptied(connection: duckdb.DuckDBPyConnection) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection for one test, which leaves no table and no view in it."""
    yield connection
    shown = (
        "SELECT {0}_name FROM duckdb_{0}s() WHERE NOT internal AND schema_name = 'main' AND database_name = 'memory'"
    )
    shown += " AND database_name = 'memory'"
    for kind in ("view", "table"):
        for (name,) in connection.execute(shown.format(kind)).fetchall():
            connection.execute(f"DROP {kind} {quoted(name)}")


# Files of DuckDB, and releases


def quoted(name: str) -> str:
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
    """The rows of all statements of a script, in a client with nothing of its own."""
    with duckdb.connect() as client:
        statements = client.extract_statements(sql or "")
        return [row for statement in statements for row in client.execute(statement).fetchall()]


def change(path: Path, *statements: str) -> None:
    with opened_catalog(path, read_only=False) as connection:
        for statement in statements:
            connection.execute(statement)


def insert(connection: duckdb.DuckDBPyConnection, name: str, rows: Iterable[Sequence[Any]]) -> None:
    """Rows into a table, whose columns each have values of one type: `executemany` takes 20 times as long."""
    if columns := list(zip(*rows, strict=True)):
        values = ", ".join("unnest(?)" for _ in columns)
        connection.execute(f"INSERT INTO {name} SELECT {values}", [list(column) for column in columns])


def failed(found: Verification) -> set[str]:
    """The names of the checks that a release fails."""
    assert found.verified is not any(check.passed is False for check in found.checks)
    return {check.name for check in found.checks if check.passed is False}


def failed_alone(path: Path) -> set[str]:
    """The names of the checks that a release fails without its policy."""
    return failed(verify_file(path))


def folder_again(folder: Path, kept: Path) -> Path:
    """A folder with what was kept of it, at the path and in the files that a ledger knows."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        elif not (kept / path.relative_to(folder)).exists() or path.is_symlink():
            path.unlink()
    for path in kept.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
        (folder / path.name).chmod(path.stat().st_mode)
    return folder


def kept(folder: Path) -> tuple[Path, Path]:
    """A folder of files, and a copy of it, for `folder_again`."""
    return folder, Path(shutil.copytree(folder, folder.with_name(f"{folder.name}-kept")))
