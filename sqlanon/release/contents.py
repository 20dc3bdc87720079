"""What stands in a release file beside the released rows: the manifest, what describes it, and our macros; no other
objects, and no bytes beside the blocks.

The layout of a DuckDB file: three headers of 4,096 bytes (the file's, and two of which the one with the greater
iteration counts), then the blocks. All headers are little-endian and begin with a checksum of 8 bytes.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path

import duckdb
from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.expressions import (
    col,
    column_definitions,
    create_schema,
    is_there,
    literal_path,
    select,
    table,
    text,
    union_all,
)
from sqlanon.release.manifest import Manifest
from sqlanon.release.metadata import ABOUT, objects
from sqlanon.resources import macros, sql_text
from sqlanon.workdir import spill_directory

_HEADER = 4096
_WRITER = re.compile(rb"v\d+\.\d+\.\d+(-[a-z0-9.]+)?\0*[0-9a-f]*\0*")
_NO_BLOCK = 2**64 - 1
_MAGIC, _FLAGS, _VERSION, _REST = 8, 20, 52, 116
"""Where the parts of the first header begin: magic bytes and version, flags, the writer's version and commit, zeros."""


def strange_blocks(path: Path) -> Iterator[str]:
    """What is in a DuckDB file, or beside it, and in none of its blocks; in words."""
    if path.with_name(f"{path.name}.wal").exists():
        yield f"{path.name}.wal stands beside it, with changes that are not in the file"
    with path.open("rb") as file:
        first, *headers = (file.read(_HEADER) for _ in range(3))
    if any(first[_REST:]) or not _WRITER.fullmatch(first[_VERSION:_REST]):
        yield "the header of the file has more than the version of its writer"
    read = [struct.unpack_from("<7Q", header, 8) for header in headers]
    _, _, _, blocks, size, *_ = max(read)
    if not all(_is_blank(header, first) for header in headers) or not all(_is_plain(one, blocks, size) for one in read):
        yield "a header of the blocks has more than their numbers"
    if path.stat().st_size != 3 * _HEADER + blocks * size:
        yield f"it has {path.stat().st_size:,} bytes, and its blocks {3 * _HEADER + blocks * size:,}"


def _is_blank(header: bytes, first: bytes) -> bool:
    """Whether there is nothing behind the numbers of a header, or what the writer's buffer had: the first header."""
    return all(own in (0, before) for own, before in zip(header[64:], first[64:], strict=True))


def _is_plain(header: tuple[int, ...], blocks: int, size: int) -> bool:
    """Whether the numbers of a header, that of the state before, too, are small or those of the one that counts."""
    iteration, meta, free, count, own_size, vector, version = header
    pointers = all(one == _NO_BLOCK or (one >> 56 < 64 and one & (2**56 - 1) <= blocks + 1024) for one in (meta, free))
    return pointers and iteration < 2**32 and count <= blocks + 1024 and own_size == size and vector <= 2**16 > version


ATTACHED = "release_file"

STORAGE_VERSION = "v1.0.0"
"""Files of this version can be read by DuckDB 1.x and by the BI drivers of today."""

_OBJECTS = (
    ("table", "duckdb_tables", "table_name"),
    ("view", "duckdb_views", "view_name"),
    ("type", "duckdb_types", "type_name"),
    ("sequence", "duckdb_sequences", "sequence_name"),
    ("index", "duckdb_indexes", "index_name"),
    ("schema", "duckdb_schemas", "schema_name"),
)
_COMMENTED = (
    ("duckdb_tables", "table_name", text("")),
    ("duckdb_views", "view_name", text("")),
    ("duckdb_columns", "table_name", col("column_name")),
    ("duckdb_functions", "function_name", text("")),
)


def expected_objects(manifests: Sequence[Manifest]) -> set[str]:
    own = {"table sqlanon.manifest", "schema sqlanon.sqlanon"}
    described = {f"table sqlanon.{name}" for name in ABOUT} if manifests[0].version is not None else set[str]()
    return objects(manifests) | own | described


def found_objects(engine: DuckDBEngine) -> set[str]:
    """What an open release file has: objects, and columns with defaults. Macros and comments are another matter."""
    parts = [_names(kind, function, name) for kind, function, name in _OBJECTS]
    parts.append(_constraints())
    worked_out = _names("default of column", "duckdb_columns", "column_name")
    parts.append(worked_out.where(is_there(col("column_default")), copy=False))
    found = {name for (name,) in engine.rows(exp.union(*parts, distinct=True))}
    return {name for name in found if name != "schema main.main"}


def _constraints() -> exp.Select:
    """What rows must meet, but for the manifest's own NOT NULL: a condition may have a value in it."""
    full = exp.Concat(
        expressions=[text("constraint of table "), col("schema_name"), text("."), col("table_name")], safe=True
    )
    query = _of(ATTACHED, [full], "duckdb_constraints")
    own = col("schema_name").eq("sqlanon")
    plain = col("constraint_type").eq("NOT NULL")
    return query.where(~exp.Paren(this=exp.and_(own, plain, copy=False)), copy=False)


def _names(kind: str, function: str, name: str) -> exp.Select:
    full = exp.Concat(expressions=[text(f"{kind} "), col("schema_name"), text("."), col(name)], safe=True)
    return _of(ATTACHED, [full], function)


def found_comments(engine: DuckDBEngine) -> dict[tuple[str, str], str]:
    """The comments of an open release file by table or view, and column; the column of the whole is empty. What is not
    in the main schema has its schema before its name."""
    name_of = exp.Case(
        ifs=[exp.If(this=col("schema_name").eq("main"), true=text(""))],
        default=exp.Concat(expressions=[col("schema_name"), text(".")], safe=True),
    )
    parts = [
        _of(
            ATTACHED,
            [exp.Concat(expressions=[name_of.copy(), col(name)], safe=True), column.copy(), col("comment")],
            function,
        ).where(is_there(col("comment")), copy=False)
        for function, name, column in _COMMENTED
    ]
    return {(name, column): comment for name, column, comment in engine.rows(union_all(*parts))}


def found_views(engine: DuckDBEngine, database: str = ATTACHED) -> dict[str, str]:
    return dict(engine.rows(_of(database, [col("view_name"), col("sql")], "duckdb_views")))


def free_blocks(engine: DuckDBEngine) -> int:
    """How many blocks of an open release file are not in use: they may have rows that were deleted."""
    sizes = exp.Table(this=exp.Anonymous(this="pragma_database_size", expressions=[]))
    query = select([col("free_blocks")], sizes)
    return int(engine.rows(query.where(col("database_name").eq(text(ATTACHED))))[0][0])


def unexpected_definitions(engine: DuckDBEngine) -> list[str]:
    """The tables of an open release file that have more than names and types of columns, by name: collations,
    defaults, generated columns and conditions may have a value in them, or change what a reader sees."""
    statements = _of(ATTACHED, [col("schema_name"), col("table_name"), col("sql")], "duckdb_tables")
    found = {(schema, name): sql for schema, name, sql in engine.rows(statements) if schema in ("main", "sqlanon")}
    shown: list[exp.Expr] = [col(name) for name in ("schema_name", "table_name", "column_name", "data_type")]
    nullable = col("is_nullable")
    columns: dict[tuple[str, str], list[tuple[str, str]]] = {name: [] for name in found}
    query = _of(ATTACHED, [*shown, nullable], "duckdb_columns").order_by(col("column_index"), copy=False)
    for schema, name, column, type_, is_nullable in engine.rows(query):
        if (schema, name) in columns:
            own = type_ if is_nullable or schema == "main" else f"{type_} NOT NULL"
            columns[schema, name].append((column, own))
    with _beside(engine) as beside:
        for (schema, name), own_columns in columns.items():
            with suppress(duckdb.Error):  # a type of its own
                engine.execute(column_definitions(table(name, schema, beside), own_columns))
        plain = _of(beside, [col("schema_name"), col("table_name"), col("sql")], "duckdb_tables")
        again = {(schema, name): sql for schema, name, sql in engine.rows(plain)}
    return sorted(
        f"{schema}.{name}" for (schema, name), sql in found.items() if _is_other(sql, again.get((schema, name), ""))
    )


def _is_other(one: str, other: str) -> bool:
    """Whether two definitions differ in more than how their columns are compressed."""
    return _COMPRESSION.sub("", one) != _COMPRESSION.sub("", other)


_COMPRESSION = re.compile(r" USING COMPRESSION \w+")


def changed_macros(engine: DuckDBEngine, folder: Path) -> list[str]:
    """The macros of an open release file that are not ours, by name: parameters, their types and defaults, and all
    overloads count. What has the words of an earlier build is ours.
    """
    ours, before = _our_macros()
    with _beside(engine, schema=False) as beside:
        engine.script(f"COPY FROM DATABASE {ATTACHED} TO {beside} (SCHEMA)")
        theirs = _exported(engine, beside, folder / "theirs")
    now = {_named(one): one for one in ours - before}
    renewed = {now[_named(one)] if one in before else one for one in theirs - ours} | theirs & ours
    changed = [one for one in renewed ^ ours if not one.startswith(_COMPARED_ELSEWHERE)]
    return sorted(set(map(_named, changed)))


def _named(statement: str) -> str:
    return _NAME.sub(r"\1", statement)


@cache
def _our_macros() -> tuple[frozenset[str], frozenset[str]]:
    """The statements that make our macros, as this DuckDB exports them: those of now, and those of before."""
    with spill_directory() as spill, closing(DuckDBEngine.private(spill)) as engine, _beside(engine) as beside:
        with engine.using(beside):
            engine.script(macros())
        ours = frozenset(_exported(engine, beside, spill / "ours"))
        with engine.using(beside):
            engine.script(sql_text("macros_before.sql"))
        return ours, frozenset(_exported(engine, beside, spill / "before"))


_COMPARED_ELSEWHERE = ("CREATE TABLE ", "CREATE VIEW ", "CREATE SCHEMA ")
_NAME = re.compile(r"CREATE (?:[A-Z]+ )+(?:sqlanon\.)?([^ (]+).*", re.DOTALL)


def _exported(engine: DuckDBEngine, database: str, folder: Path) -> set[str]:
    engine.script(f"EXPORT DATABASE {database} TO {literal_path(str(folder)).sql('duckdb')}")
    content = (folder / "schema.sql").read_text(encoding="utf-8")
    return {one.strip().rstrip(";") for one in re.split(r"\n(?=CREATE )", content)}


@contextmanager
def _beside(engine: DuckDBEngine, schema: bool = True) -> Iterator[str]:
    name = "made_beside"
    engine.attach(":memory:", name)
    try:
        if schema:
            engine.execute(create_schema("sqlanon", name))
        yield name
    finally:
        engine.detach(name)


def _of(database: str, columns: list[exp.Expr], function: str) -> exp.Select:
    source = exp.Table(this=exp.Anonymous(this=function, expressions=[]))
    query = select(columns, source).where(col("database_name").eq(text(database)), copy=False)
    if function in ("duckdb_sequences", "duckdb_indexes", "duckdb_constraints"):  # none of these is internal
        return query
    return query.where(~col("internal"), copy=False)
