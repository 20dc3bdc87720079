"""The contents of a release file: rows, manifest, metadata and macros, without other objects or bytes.

A DuckDB file has three headers of 4,096 bytes, then the blocks. The first header is that of the file; of the other two,
the one with the greater iteration is current. All headers are little-endian and begin with a checksum of 8 bytes.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from uuid import uuid4

import duckdb

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.release.label_levels import LEVELS
from sqlanon.release.manifest import Manifest
from sqlanon.release.metadata import DESCRIPTION_TABLES, expected_relations
from sqlanon.support.expressions import (
    create_schema,
    create_table_with_columns,
    fragment,
    literal_path,
    table,
    template,
    text,
)
from sqlanon.support.resources import LIBRARY, MEDIAN_LIBRARY, macro_scripts
from sqlanon.support.workdir import spill_directory

_HEADER_SIZE = 4096
_WRITER = re.compile(rb"v\d{1,2}\.\d{1,2}\.\d{1,2}(-dev\d{1,5})?\0+[0-9a-f]{10}\0*")
_NO_BLOCK = 2**64 - 1
_FORMAT, _VERSION, _PADDING, _IDENTIFIER = 12, 52, 116, slice(124, 140)
"""Offsets in the first header: the format, the writer's version and commit, zeros, and the random identifier."""
_FIRST_FORMAT_WITH_IDENTIFIER = 67
"""The format of DuckDB 1.4."""


def find_stray_bytes(path: Path) -> Iterator[str]:
    """Describe data in or next to a DuckDB file that is in none of its blocks."""
    if path.with_name(f"{path.name}.wal").exists():
        yield f"{path.name}.wal is next to it, with changes that are not in the file"
    with path.open("rb") as file:
        file_header, *block_headers = (file.read(_HEADER_SIZE) for _ in range(3))
    header = bytearray(file_header)
    if int.from_bytes(file_header[_FORMAT : _FORMAT + 8], "little") >= _FIRST_FORMAT_WITH_IDENTIFIER:
        header[_IDENTIFIER] = bytes(16)
    if any(header[_PADDING:]) or not _WRITER.fullmatch(file_header[_VERSION:_PADDING]):
        yield "the header of the file has extra bytes"
    numbers = [struct.unpack_from("<7Q", block_header, 8) for block_header in block_headers]
    _, _, _, blocks, block_size, *_ = max(numbers)
    are_plain = all(_has_plausible_numbers(header_numbers, blocks, block_size) for header_numbers in numbers)
    # The bytes after the numbers are zero, or those of the first header, which was in the writer's buffer.
    padding = (zip(block_header[64:], file_header[64:], strict=True) for block_header in block_headers)
    is_blank = all(byte in (0, buffered) for pairs in padding for byte, buffered in pairs)
    if not are_plain or not is_blank:
        yield "a header of the blocks has extra bytes"
    size, expected_size = path.stat().st_size, 3 * _HEADER_SIZE + blocks * block_size
    if size != expected_size:
        yield f"it has {size:,} bytes, but its blocks need {expected_size:,}"


def _has_plausible_numbers(numbers: tuple[int, ...], blocks: int, block_size: int) -> bool:
    """Whether the numbers of a header, which may be the previous one, are small or those of the current header."""
    iteration, meta_block, free_list, count, size, vector_size, version = numbers
    pointers_are_valid = all(
        pointer == _NO_BLOCK or (pointer >> 56 < 64 and pointer & (2**56 - 1) <= blocks + 1024)
        for pointer in (meta_block, free_list)
    )
    are_small = iteration < 2**32 and count <= blocks + 1024 and vector_size <= 2**16 > version
    return pointers_are_valid and are_small and size == block_size


ATTACHED = "release_file"

_OBJECTS = fragment("""
    SELECT 'table ' || schema_name || '.' || table_name FROM duckdb_tables()
    WHERE database_name = :file AND NOT internal
    UNION ALL
    SELECT 'view ' || schema_name || '.' || view_name FROM duckdb_views()
    WHERE database_name = :file AND NOT internal
    UNION ALL
    SELECT 'type ' || schema_name || '.' || type_name FROM duckdb_types()
    WHERE database_name = :file AND NOT internal
    UNION ALL
    SELECT 'sequence ' || schema_name || '.' || sequence_name FROM duckdb_sequences() WHERE database_name = :file
    UNION ALL
    SELECT 'index ' || schema_name || '.' || index_name FROM duckdb_indexes() WHERE database_name = :file
    UNION ALL
    SELECT 'schema ' || schema_name || '.' || schema_name FROM duckdb_schemas()
    WHERE database_name = :file AND NOT internal
    UNION ALL
    SELECT 'constraint of table ' || schema_name || '.' || table_name FROM duckdb_constraints()
    WHERE database_name = :file AND NOT (schema_name = 'sqlanon' AND constraint_type = 'NOT NULL')
    UNION ALL
    SELECT 'default of column ' || schema_name || '.' || column_name FROM duckdb_columns()
    WHERE database_name = :file AND NOT internal AND column_default IS NOT NULL
""")
"""Constraints of sqlanon's own tables are NOT NULL; a CHECK could contain a value."""

_TRIGGERS = template("""
    SELECT 'trigger ' || schema_name || '.' || trigger_name FROM duckdb_triggers() WHERE database_name = :file
""")
"""Triggers exist since DuckDB 2.0. With them, these are all kinds of objects that a file stores."""

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
_TABLES = template("""
    SELECT schema_name, table_name, sql FROM duckdb_tables() WHERE database_name = :database AND NOT internal
""")
_COLUMNS = template("""
    SELECT schema_name, table_name, column_name, data_type, is_nullable
    FROM duckdb_columns()
    WHERE database_name = :database AND NOT internal
    ORDER BY column_index
""")
_INDEXED_TABLES = template("""
    SELECT DISTINCT schema_name || '.' || table_name FROM duckdb_indexes() WHERE database_name = :database
""")


def expected_objects(manifests: Sequence[Manifest]) -> set[str]:
    tables = {f"table sqlanon.{name}" for name in ("manifest", *DESCRIPTION_TABLES, LEVELS)}
    return expected_relations(manifests) | tables | {"schema sqlanon.sqlanon"}


def list_objects(engine: DuckDBEngine, database: str = ATTACHED) -> set[str]:
    """List the objects of an attached file, and columns with defaults; without macros and comments."""
    queries = [_OBJECTS] if duckdb.__version__.startswith("1.") else [_OBJECTS, _TRIGGERS]
    return {name for query in queries for (name,) in engine.rows(query(file=text(database)))} - {"schema main.main"}


def is_plain_table(engine: DuckDBEngine, schema: str, name: str, database: str = ATTACHED) -> bool:
    """Whether a relation is a table that can be read without evaluating expressions of its file.

    A view, a generated column, a collation or an index could change what readers see. Only the catalog is read.
    """
    return f"{schema}.{name}".lower() in find_plain_tables(engine, list_objects(engine, database), database)


def find_plain_tables(engine: DuckDBEngine, objects: Collection[str], database: str = ATTACHED) -> set[str]:
    """Find the plain tables, as `is_plain_table` defines them, among the objects of an attached file.

    Names are in lower case, and have their schemas."""
    names = {name.removeprefix("table ").lower() for name in objects if name.startswith("table ")}
    indexed = {table_name for (table_name,) in engine.rows(_INDEXED_TABLES(database=text(database)))}
    altered = (*find_unexpected_definitions(engine, database), *indexed)
    return names.difference(table_name.lower() for table_name in altered)


def read_catalog_columns(engine: DuckDBEngine, schema: str, name: str) -> dict[str, str]:
    """The columns of a relation of the attached release file and their types, by the catalog alone."""
    rows = engine.rows(_COLUMNS(database=text(ATTACHED)))
    return {
        column: type_
        for schema_name, table_name, column, type_, _ in rows
        if (schema_name, table_name) == (schema, name)
    }


def read_comments(engine: DuckDBEngine) -> dict[tuple[str, str], str]:
    """The comments of the attached release file by relation and column; the column is '' for the relation itself.

    The name of a relation has its schema unless that is ``main``.
    """
    return {(name, column): comment for name, column, comment in engine.rows(_COMMENTS(file=text(ATTACHED)))}


def read_views(engine: DuckDBEngine, database: str = ATTACHED) -> dict[str, str]:
    return dict(
        engine.rows(
            template("SELECT view_name, sql FROM duckdb_views() WHERE database_name = :database AND NOT internal")(
                database=text(database)
            )
        )
    )


def count_free_blocks(engine: DuckDBEngine) -> int:
    """Count the unused blocks of the attached release file, which may hold deleted rows."""
    return int(
        engine.rows(
            template("SELECT free_blocks FROM pragma_database_size() WHERE database_name = :database")(
                database=text(ATTACHED)
            )
        )[0][0]
    )


def find_unexpected_definitions(engine: DuckDBEngine, database: str = ATTACHED) -> list[str]:
    """Find tables of an attached file that are defined by more than names and types of columns.

    Collations, defaults, generated columns and conditions can contain values, or change what readers see.
    """
    tables = engine.rows(_TABLES(database=text(database)))
    definitions = {(schema, name): sql for schema, name, sql in tables if schema in ("main", "sqlanon")}
    columns: dict[tuple[str, str], list[tuple[str, str]]] = {name: [] for name in definitions}
    for schema, name, column, type_, is_nullable in engine.rows(_COLUMNS(database=text(database))):
        if (schema, name) in columns:
            definition = type_ if is_nullable or schema == "main" else f"{type_} NOT NULL"
            columns[schema, name].append((column, definition))
    with scratch_database(engine, name=f"sqlanon_{uuid4().hex[:12]}") as scratch:
        for (schema, name), table_columns in columns.items():
            with suppress(duckdb.Error):  # the type may be one of the file
                engine.execute(create_table_with_columns(table(name, schema, scratch), table_columns))
        plain = {(schema, name): sql for schema, name, sql in engine.rows(_TABLES(database=text(scratch)))}
    return sorted(
        f"{schema}.{name}"
        for (schema, name), sql in definitions.items()
        if _COMPRESSION.sub("", sql) != _COMPRESSION.sub("", plain.get((schema, name), ""))
    )


_COMPRESSION = re.compile(r" USING COMPRESSION \w+")


def library_files(manifests: Iterable[Manifest]) -> tuple[str, ...]:
    """The files of the macro library of a release file with these versions."""
    has_medians = any(manifest.policy.get("search", {}).get("summary") == "median" for manifest in manifests)
    return MEDIAN_LIBRARY if has_medians else LIBRARY


def find_changed_macros(engine: DuckDBEngine, folder: Path, library: tuple[str, ...]) -> list[str]:
    """The macros of the attached release file that differ from its library in body, parameters or overloads."""
    with scratch_database(engine, has_schema=False) as scratch:
        engine.script(f"COPY FROM DATABASE {ATTACHED} TO {scratch} (SCHEMA)")
        statements = _export_statements(engine, scratch, folder / "file")
    differences = [
        statement
        for statement in statements ^ _library_statements(library)
        if not statement.startswith(_COMPARED_ELSEWHERE)
    ]
    return sorted({_OBJECT_NAME.sub(r"\1", statement).strip('"') for statement in differences})


@cache
def _library_statements(library: tuple[str, ...]) -> frozenset[str]:
    """The statements that create the library, as this version of DuckDB exports them."""
    with (
        spill_directory() as spill,
        closing(DuckDBEngine.open_private(spill)) as engine,
        scratch_database(engine) as scratch,
    ):
        with engine.using(scratch):
            engine.script(*macro_scripts(library))
        return frozenset(_export_statements(engine, scratch, spill / "library"))


_COMPARED_ELSEWHERE = ("CREATE TABLE ", "CREATE VIEW ", "CREATE SCHEMA ")
# DuckDB 1.5 exports the types of casts in their parsed or in their stored form.
_CAST_TYPES = ("DATE", "TIMESTAMP WITH TIME ZONE")
PARSED_TYPE = re.compile(
    "|".join([*(rf'(?<= AS )"(?={name}"\))|(?<= AS "{name})"(?=\))' for name in _CAST_TYPES), r"(?<=\d,) (?=\d+\)\))"])
)
_OBJECT_NAME = re.compile(r"CREATE (?:[A-Z]+ )+(?:sqlanon\.)?([^ (]+).*", re.DOTALL)


def _export_statements(engine: DuckDBEngine, database: str, folder: Path) -> set[str]:
    engine.script(f"EXPORT DATABASE {database} TO {literal_path(str(folder)).sql('duckdb')}")
    content = PARSED_TYPE.sub("", (folder / "schema.sql").read_text(encoding="utf-8"))
    return {statement.strip().rstrip(";") for statement in re.split(r"\n(?=CREATE )", content)}


@contextmanager
def scratch_database(engine: DuckDBEngine, has_schema: bool = True, name: str = "sibling") -> Iterator[str]:
    """Attach an empty database in memory."""
    engine.attach(":memory:", name)
    try:
        if has_schema:
            engine.execute(create_schema("sqlanon", name))
        yield name
    finally:
        engine.detach(name)
