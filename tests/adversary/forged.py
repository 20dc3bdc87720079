"""Forged releases: contents that a hostile writer puts into a release file, so that a reader evaluates them.

Each forgery changes a published release. A DuckDB file evaluates `error('EVALUATED')` as soon as somebody reads
what was forged; a Parquet file has what releases do not have.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import duckdb

from adversary import parquet_bytes as pb

MARK = "EVALUATED"
"""Part of each message of what a forgery evaluates."""

Forge = Callable[[Path, str], None]
"""Forges the release in a file, by the name of its table."""

_BOOM = f"CASE WHEN getvariable('forges') THEN NULL ELSE error('{MARK}') END"


def _sql(*statements: str) -> Forge:
    """Statements with ``{rows}``, the table of the rows, ``{view}`` of the readers, and ``{first}``, a column."""

    def forge(path: Path, name: str) -> None:
        with _writing(path) as connection:
            names = {"rows": f"{name}_v1", "view": name, "first": _columns(connection, f"{name}_v1")[0][0]}
            for statement in statements:
                connection.execute(statement.format(**names))

    return forge


@contextmanager
def _writing(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(path) as connection:
        connection.execute("SET VARIABLE forges = true")
        yield connection


def _columns(connection: duckdb.DuckDBPyConnection, name: str) -> list[tuple[str, str]]:
    query = "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = ? ORDER BY column_index"
    return connection.execute(query, [name]).fetchall()


def _view_in_place(schema: str, table: str, column: str) -> Forge:
    return _sql(
        f"CREATE TABLE {schema}.kept AS FROM {schema}.{table}",
        f"DROP TABLE {schema}.{table}",
        f"CREATE VIEW {schema}.{table} AS SELECT * REPLACE (CAST({_BOOM} AS VARCHAR) AS {column}) FROM {schema}.kept",
    )


def _generated_column(schema: str, table: str) -> Forge:
    """The first text of a table is generated when it is read."""

    def forge(path: Path, name: str) -> None:
        text = table.format(rows=f"{name}_v1")
        with _writing(path) as connection:
            columns = _columns(connection, text)
            generated = next(column for column, type_ in columns if type_ == "VARCHAR")
            value = f"CAST({_BOOM} AS VARCHAR)"
            definitions = [
                f'"{column}" {type_}' + (f" GENERATED ALWAYS AS ({value})" if column == generated else "")
                for column, type_ in columns
            ]
            connection.execute(f"CREATE TABLE {schema}.made ({', '.join(definitions)})")
            names = ", ".join(f'"{column}"' for column, _ in columns if column != generated)
            connection.execute(f"INSERT INTO {schema}.made ({names}) SELECT {names} FROM {schema}.{text}")
            connection.execute(f"DROP TABLE {schema}.{text}")
            connection.execute(f"ALTER TABLE {schema}.made RENAME TO {text}")

    return forge


def _log_next_to_file(path: Path, name: str) -> None:
    """A log that adds a column with a default: a reader who opens the file applies it."""
    with _writing(path) as connection:
        connection.execute("PRAGMA disable_checkpoint_on_shutdown")
        connection.execute("SET checkpoint_threshold = '1TB'")
        connection.execute(f"ALTER TABLE {name}_v1 ADD COLUMN more VARCHAR DEFAULT ({_BOOM})")
    assert path.with_name(f"{path.name}.wal").exists()


_FUNCTIONS = ("sum", "count", "min", "max", "md5", "md5_number")

DUCKDB: Mapping[str, Forge] = {
    "the manifest is a view": _view_in_place("sqlanon", "manifest", "digest"),
    "the manifest has a generated column": _generated_column("sqlanon", "manifest"),
    "the rows are a view": _view_in_place("main", "{rows}", "{first}"),
    "the rows have a generated column": _generated_column("main", "{rows}"),
    "the suppression is a view": _view_in_place("sqlanon", "suppression", "value"),
    "the figures are a view": _view_in_place("sqlanon", "figures", "meaning"),
    "the view of readers": _sql(f"CREATE OR REPLACE VIEW {{view}} AS SELECT {_BOOM} AS {{first}} FROM {{rows}}"),
    "one more view": _sql(f"CREATE VIEW more AS SELECT {_BOOM} AS x FROM {{rows}}"),
    "an index": _sql("CREATE INDEX forged ON {rows} ({first})"),
    "a default": _sql(f"ALTER TABLE {{rows}} ALTER {{first}} SET DEFAULT {_BOOM}"),
    "a default of a sequence": _sql(
        "CREATE SEQUENCE forged", "ALTER TABLE {rows} ALTER {first} SET DEFAULT nextval('forged')"
    ),
    "macros with the names of functions": _sql(
        *(f"CREATE MACRO main.{function}(x) AS error('{MARK}')" for function in _FUNCTIONS),
        f"CREATE MACRO main.count_star() AS error('{MARK}')",
    ),
    "macros with the names of ours": _sql(
        f"CREATE OR REPLACE MACRO sqlanon.digest(rel) AS TABLE SELECT error('{MARK}') AS digest",
        f"CREATE OR REPLACE MACRO sqlanon.k_anonymity(rel, qi) AS TABLE SELECT error('{MARK}') AS k",
    ),
    "a log next to the file": _log_next_to_file,
}

# Parquet


def _footer(change: Callable[[pb.Struct], object]) -> Forge:
    return lambda path, name: pb.footer_changed(path, change)


def _manifest(change: Callable[[bytes], bytes]) -> Forge:
    def change_entry(footer: pb.Struct) -> None:
        entry = footer[5][1][1][0]
        entry[2] = (pb.BINARY, change(entry[2][1]))

    return _footer(change_entry)


def _nest_columns(footer: pb.Struct) -> None:
    """Columns within columns, more deeply than any stack is."""
    schema = footer[2][1][1]
    group = {3: (pb.I32, 0), 4: (pb.BINARY, b"c"), 5: (pb.I32, 1)}
    schema[0][5] = (pb.I32, schema[0][5][1] + 1)
    schema += [dict(group) for _ in range(100_000)]
    schema.append({1: (pb.I32, 1), 3: (pb.I32, 0), 4: (pb.BINARY, b"leaf")})


def _endless(path: Path, name: str) -> None:
    """Page header that points to itself, so that reading pages never ends."""
    body, footer = pb.parts(path)
    reader = pb._Reader(body)
    reader.at = len(b"PAR1")
    header = reader.struct()
    for length in range(1, 64):
        header[3] = (pb.I32, -length)
        if len(pb._encode_struct(header)) == length:
            break
    pb.put(path, body[:4] + pb._encode_struct(header) + body[reader.at :], footer)


def _magic(path: Path, name: str) -> None:
    data = path.read_bytes()
    path.write_bytes(b"PARE" + data[4:-4] + b"PARE")


def _large_footer(path: Path, name: str) -> None:
    """A footer that claims to be nearly all of a sparse file of a gigabyte."""
    with path.open("r+b") as file:
        file.truncate(2**30)
        file.seek(2**30 - 8)
        file.write((2**30 - 16).to_bytes(4, "little") + b"PAR1")


PARQUET: Mapping[str, Forge] = {
    "columns are encrypted": _footer(lambda tree: tree.update({8: (pb.STRUCT, {1: (pb.STRUCT, {})})})),
    "the footer is encrypted": _magic,
    "the footer is huge": _large_footer,
    "columns are nested without end": _footer(_nest_columns),
    "a page without end": _endless,
    "a key of another program": _footer(
        lambda tree: tree[5][1][1].append({1: (pb.BINARY, b"pandas"), 2: (pb.BINARY, b"{}")})
    ),
    "the manifest is no text": _manifest(lambda text: b"\xff" + text),
    "the manifest is no JSON": _manifest(lambda text: b"SELECT 1"),
    "the manifest is nested without end": _manifest(lambda text: b"[" * 1_000_000),
    "the manifest is a list": _manifest(lambda text: json.dumps([1]).encode()),
    "no manifest": _footer(lambda tree: tree.pop(5)),
    "a column in another file": _footer(
        lambda tree: tree[4][1][1][0][1][1][1][0].update({1: (pb.BINARY, b"/etc/passwd")})
    ),
}
