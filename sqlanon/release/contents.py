"""The contents of a release file: rows, manifest, metadata and macros; no other objects, and no other bytes.

The layout of a DuckDB file: three headers of 4,096 bytes (the file's, and two of which the one with the greater
iteration counts), then the blocks. All headers are little-endian and begin with a checksum of 8 bytes.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from uuid import uuid4

import duckdb

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.release.label_levels import LEVELS
from sqlanon.release.manifest import Manifest
from sqlanon.release.metadata import DESCRIPTION_TABLES, expected_relations
from sqlanon.support.expressions import column_definitions, create_schema, fragment, literal_path, table, template, text
from sqlanon.support.resources import LIBRARY, MEDIAN_LIBRARY, macro_scripts
from sqlanon.support.workdir import spill_directory

_HEADER = 4096
_WRITER = re.compile(rb"v\d{1,2}\.\d{1,2}\.\d{1,2}(-dev\d{1,5})?\0+[0-9a-f]{10}\0*")
_NO_BLOCK = 2**64 - 1
_FORMAT, _VERSION, _REST, _IDENTIFIER = 12, 52, 116, slice(124, 140)
"""Where the parts of the first header begin: the format, the writer's version and commit, zeros; from the format of
DuckDB 1.4 on, 16 random bytes identify the database."""
_IDENTIFIED = 67


def find_stray_bytes(path: Path) -> Iterator[str]:
    """Data in a DuckDB file, or beside it, that is in none of its blocks."""
    if path.with_name(f"{path.name}.wal").exists():
        yield f"{path.name}.wal is beside it, with changes that are not in the file"
    with path.open("rb") as file:
        first, *headers = (file.read(_HEADER) for _ in range(3))
    rest = bytearray(first)
    if int.from_bytes(first[_FORMAT : _FORMAT + 8], "little") >= _IDENTIFIED:
        rest[_IDENTIFIER] = bytes(16)
    if any(rest[_REST:]) or not _WRITER.fullmatch(first[_VERSION:_REST]):
        yield "the header of the file has extra bytes"
    read = [struct.unpack_from("<7Q", header, 8) for header in headers]
    _, _, _, blocks, size, *_ = max(read)
    if not all(_is_blank(header, first) for header in headers) or not all(_is_plain(one, blocks, size) for one in read):
        yield "a header of the blocks has extra bytes"
    if path.stat().st_size != 3 * _HEADER + blocks * size:
        yield f"it has {path.stat().st_size:,} bytes, but its blocks need {3 * _HEADER + blocks * size:,}"


def _is_blank(header: bytes, first: bytes) -> bool:
    """Whether nothing follows the numbers of a header, except the writer's buffer: the first header."""
    return all(own in (0, before) for own, before in zip(header[64:], first[64:], strict=True))


def _is_plain(header: tuple[int, ...], blocks: int, size: int) -> bool:
    """Whether the numbers of a header (also the previous one) are small or those of the current one."""
    iteration, meta, free, count, own_size, vector, version = header
    pointers = all(one == _NO_BLOCK or (one >> 56 < 64 and one & (2**56 - 1) <= blocks + 1024) for one in (meta, free))
    return pointers and iteration < 2**32 and count <= blocks + 1024 and own_size == size and vector <= 2**16 > version


ATTACHED = "release_file"

_OBJECTS = fragment("""
    SELECT 'table ' || schema_name || '.' || table_name FROM duckdb_tables()
    WHERE database_name = :file AND NOT internal
    UNION
    SELECT 'view ' || schema_name || '.' || view_name FROM duckdb_views()
    WHERE database_name = :file AND NOT internal
    UNION
    SELECT 'type ' || schema_name || '.' || type_name FROM duckdb_types()
    WHERE database_name = :file AND NOT internal
    UNION
    SELECT 'sequence ' || schema_name || '.' || sequence_name FROM duckdb_sequences() WHERE database_name = :file
    UNION
    SELECT 'index ' || schema_name || '.' || index_name FROM duckdb_indexes() WHERE database_name = :file
    UNION
    SELECT 'schema ' || schema_name || '.' || schema_name FROM duckdb_schemas()
    WHERE database_name = :file AND NOT internal
    UNION
    SELECT 'constraint of table ' || schema_name || '.' || table_name FROM duckdb_constraints()
    WHERE database_name = :file AND NOT (schema_name = 'sqlanon' AND constraint_type = 'NOT NULL')
    UNION
    SELECT 'default of column ' || schema_name || '.' || column_name FROM duckdb_columns()
    WHERE database_name = :file AND NOT internal AND column_default IS NOT NULL
""")
"""Constraints except the manifest's own NOT NULL; a condition may contain a value."""

_TRIGGERS = template("""
    SELECT 'trigger ' || schema_name || '.' || trigger_name FROM duckdb_triggers() WHERE database_name = :file
""")
"""Since DuckDB 2.0, which older versions do not read: with them, these are all kinds of objects that a file stores."""

_COMMENTS = fragment("""
    WITH commented AS (
        SELECT schema_name, table_name AS name, '' AS column_name, comment FROM duckdb_tables()
        WHERE database_name = :file AND NOT internal
        UNION ALL
        SELECT schema_name, view_name, '', comment FROM duckdb_views()
        WHERE database_name = :file AND NOT internal
        UNION ALL
        SELECT schema_name, table_name, column_name, comment FROM duckdb_columns()
        WHERE database_name = :file AND NOT internal
        UNION ALL
        SELECT schema_name, function_name, '', comment FROM duckdb_functions()
        WHERE database_name = :file AND NOT internal
    )
    SELECT CASE WHEN schema_name = 'main' THEN '' ELSE schema_name || '.' END || name, column_name, comment
    FROM commented
    WHERE comment IS NOT NULL
""")
_VIEWS = template("SELECT view_name, sql FROM duckdb_views() WHERE database_name = :database AND NOT internal")
_TABLES = template("""
    SELECT schema_name, table_name, sql FROM duckdb_tables() WHERE database_name = :database AND NOT internal
""")
_COLUMNS = template("""
    SELECT schema_name, table_name, column_name, data_type, is_nullable
    FROM duckdb_columns()
    WHERE database_name = :database AND NOT internal
    ORDER BY column_index
""")
_INDEXED = template("""
    SELECT DISTINCT schema_name || '.' || table_name FROM duckdb_indexes() WHERE database_name = :database
""")
_FREE_BLOCKS = template("SELECT free_blocks FROM pragma_database_size() WHERE database_name = :database")


def expected_objects(manifests: Sequence[Manifest]) -> set[str]:
    own = {"table sqlanon.manifest", "schema sqlanon.sqlanon"}
    described = {f"table sqlanon.{name}" for name in (*DESCRIPTION_TABLES, LEVELS)}
    return expected_relations(manifests) | own | described


def list_objects(engine: DuckDBEngine, database: str = ATTACHED) -> set[str]:
    """The objects of an open release file, and columns with defaults; without macros and comments."""
    queries = [_OBJECTS] if duckdb.__version__.startswith("1.") else [_OBJECTS, _TRIGGERS]
    return {name for query in queries for (name,) in engine.rows(query(file=text(database)))} - {"schema main.main"}


def is_plain_table(engine: DuckDBEngine, schema: str, name: str, database: str = ATTACHED) -> bool:
    """Whether a relation of an open file is a table that can be read without evaluating anything of the file.

    A view, a generated column, a collation or an index could decide what a reader sees. Only the catalog is read.
    """
    objects = {one.lower() for one in list_objects(engine, database)}
    qualified_name = f"{schema}.{name}".lower()
    indexed = {table_name for (table_name,) in engine.rows(_INDEXED(database=text(database)))}
    altered = {*find_unexpected_definitions(engine, database), *indexed}
    return f"table {qualified_name}" in objects and qualified_name not in {one.lower() for one in altered}


def read_catalog_columns(engine: DuckDBEngine, schema: str, name: str) -> dict[str, str]:
    """The columns of a relation of an open release file, by the catalog alone."""
    rows = engine.rows(_COLUMNS(database=text(ATTACHED)))
    return {column: type_ for owner, table_name, column, type_, _ in rows if (owner, table_name) == (schema, name)}


def read_comments(engine: DuckDBEngine) -> dict[tuple[str, str], str]:
    """The comments of an open release file by table or view, and column; the column of the whole is empty. What is not
    in the main schema has its schema before its name."""
    return {(name, column): comment for name, column, comment in engine.rows(_COMMENTS(file=text(ATTACHED)))}


def read_views(engine: DuckDBEngine, database: str = ATTACHED) -> dict[str, str]:
    return dict(engine.rows(_VIEWS(database=text(database))))


def count_free_blocks(engine: DuckDBEngine) -> int:
    """The number of unused blocks of an open release file, which may hold deleted rows."""
    return int(engine.rows(_FREE_BLOCKS(database=text(ATTACHED)))[0][0])


def find_unexpected_definitions(engine: DuckDBEngine, database: str = ATTACHED) -> list[str]:
    """The tables of an open release file that have more than names and types of columns, by name: collations,
    defaults, generated columns and conditions may have a value in them, or change what a reader sees."""
    tables = engine.rows(_TABLES(database=text(database)))
    found = {(schema, name): sql for schema, name, sql in tables if schema in ("main", "sqlanon")}
    columns: dict[tuple[str, str], list[tuple[str, str]]] = {name: [] for name in found}
    for schema, name, column, type_, is_nullable in engine.rows(_COLUMNS(database=text(database))):
        if (schema, name) in columns:
            own = type_ if is_nullable or schema == "main" else f"{type_} NOT NULL"
            columns[schema, name].append((column, own))
    with _beside(engine, name=f"sqlanon_{uuid4().hex[:12]}") as beside:
        for (schema, name), own_columns in columns.items():
            with suppress(duckdb.Error):  # a type of its own
                engine.execute(column_definitions(table(name, schema, beside), own_columns))
        again = {(schema, name): sql for schema, name, sql in engine.rows(_TABLES(database=text(beside)))}
    return sorted(
        f"{schema}.{name}" for (schema, name), sql in found.items() if _is_other(sql, again.get((schema, name), ""))
    )


def _is_other(one: str, other: str) -> bool:
    """Whether two definitions differ, apart from the compression of columns."""
    return _COMPRESSION.sub("", one) != _COMPRESSION.sub("", other)


_COMPRESSION = re.compile(r" USING COMPRESSION \w+")


def library_files(manifests: Iterable[Manifest]) -> tuple[str, ...]:
    """The files of the macro library that is in a release file with some versions."""
    has_medians = any(one.policy.get("search", {}).get("summary") == "median" for one in manifests)
    return MEDIAN_LIBRARY if has_medians else LIBRARY


def find_changed_macros(engine: DuckDBEngine, folder: Path, library: tuple[str, ...]) -> list[str]:
    """The macros of an open release file that are not those of its library, by name: parameters, their types and
    defaults, and all overloads count."""
    with _beside(engine, schema=False) as beside:
        engine.script(f"COPY FROM DATABASE {ATTACHED} TO {beside} (SCHEMA)")
        macros_in_file = _exported(engine, beside, folder / "theirs")
    changed = [one for one in macros_in_file ^ _our_macros(library) if not one.startswith(_COMPARED_ELSEWHERE)]
    return sorted(set(map(_named, changed)))


def _named(statement: str) -> str:
    return _NAME.sub(r"\1", statement).strip('"')


@cache
def _our_macros(library: tuple[str, ...]) -> frozenset[str]:
    """The statements that make our macros, as this DuckDB exports them."""
    with spill_directory() as spill, closing(DuckDBEngine.open_private(spill)) as engine, _beside(engine) as beside:
        with engine.using(beside):
            engine.script(*macro_scripts(library))
        return frozenset(_exported(engine, beside, spill / "ours"))


_COMPARED_ELSEWHERE = ("CREATE TABLE ", "CREATE VIEW ", "CREATE SCHEMA ")
# DuckDB 1.5 spells the types of casts in two ways: as they were parsed, and as they were stored.
_TYPES = ("DATE", "TIMESTAMP WITH TIME ZONE")
PARSED_TYPE = re.compile(
    "|".join([*(rf'(?<= AS )"(?={name}"\))|(?<= AS "{name})"(?=\))' for name in _TYPES), r"(?<=\d,) (?=\d+\)\))"])
)
_NAME = re.compile(r"CREATE (?:[A-Z]+ )+(?:sqlanon\.)?([^ (]+).*", re.DOTALL)


def _exported(engine: DuckDBEngine, database: str, folder: Path) -> set[str]:
    engine.script(f"EXPORT DATABASE {database} TO {literal_path(str(folder)).sql('duckdb')}")
    content = (folder / "schema.sql").read_text(encoding="utf-8")
    content = PARSED_TYPE.sub("", content)
    return {one.strip().rstrip(";") for one in re.split(r"\n(?=CREATE )", content)}


@contextmanager
def _beside(engine: DuckDBEngine, schema: bool = True, name: str = "beside") -> Iterator[str]:
    engine.attach(":memory:", name)
    try:
        if schema:
            engine.execute(create_schema("sqlanon", name))
        yield name
    finally:
        engine.detach(name)
