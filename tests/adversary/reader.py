"""A hostile reader of released files: plain Python, and nothing of sqlanon.

Cells are distinguished by everything visible: bits of numbers, bytes of texts, types. Findings are listed in
words; a sound release gives an empty list.
"""

from __future__ import annotations

import json
import re
import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq


@dataclass
class Seen:
    """A release as a reader sees it: rows of cells in file order, and all other texts in the file."""

    columns: list[str]
    rows: list[tuple[Any, ...]]
    other_text: str = ""
    metadata: list[str] = field(default_factory=list)

    def of(self, *names: str) -> list[tuple[Any, ...]]:
        """The cells of some columns."""
        places = [self.columns.index(name) for name in names]
        return [tuple(row[i] for i in places) for row in self.rows]


def bits(value: Any) -> Any:
    """A value that distinguishes what Python treats as equal: -0.0 is not 0.0, and 1 is neither 1.0 nor True."""
    if isinstance(value, float):
        return "float", struct.pack("<d", value)
    if isinstance(value, str):
        return "text", value.encode()
    if isinstance(value, dict):
        return "struct", tuple((name, bits(value)) for name, value in value.items())
    if isinstance(value, (list, tuple)):
        return "list", tuple(bits(value) for value in value)
    return type(value).__name__, repr(value)


def cells(column: pa.ChunkedArray) -> list[Any]:
    """The cells of a column, as bits; of days and times their numbers, for Python has few of them."""
    if pa.types.is_temporal(column.type) and not pa.types.is_interval(column.type):
        column = column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64())
    return [None if value is None else bits(value) for value in column.to_pylist()]


def _quote_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def read(path: Path, name: str) -> Seen:
    """Read a released file."""
    return _parquet(path) if path.suffix == ".parquet" else _duckdb(path, name)


def of_relation(connection: duckdb.DuckDBPyConnection, relation: str) -> Seen:
    """Everything visible in a relation: its values, their texts, hashes and types."""
    arrow = connection.sql(f"SELECT * FROM {relation}").to_arrow_table()
    names = arrow.column_names
    eyes = ", ".join(f"{name}::VARCHAR, hash({name}), typeof({name})" for name in map(_quote_name, names))
    texts = connection.execute(f"SELECT {eyes} FROM {relation}").fetchall()
    columns = [cells(arrow.column(i)) for i in range(len(names))]
    rows = [tuple((columns[i][j], *texts[j][3 * i : 3 * i + 3]) for i in range(len(names))) for j in range(len(texts))]
    return Seen(names, rows)


def _duckdb(path: Path, name: str) -> Seen:
    with duckdb.connect(str(path), read_only=True, config={"threads": 1}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        seen = of_relation(connection, _quote_name(name))
        texts = [
            connection.execute(f"SELECT string_agg({texts}, ' ') FROM {function}()").fetchall()[0][0]
            for function, texts in (
                ("duckdb_views", "sql || ' ' || coalesce(comment, '')"),
                ("duckdb_tables", "sql || ' ' || coalesce(comment, '')"),
                ("duckdb_columns", "coalesce(comment, '') || ' ' || coalesce(column_default, '')"),
            )
        ]
        texts += [str(row) for row in connection.execute("SELECT * FROM sqlanon.manifest").fetchall()]
        tables = [
            text
            for (text,) in connection.execute(
                "SELECT table_name FROM duckdb_tables() WHERE schema_name = 'main' AND NOT internal"
            ).fetchall()
        ]
        for table in tables:
            for column, stats in connection.execute(
                "SELECT column_name, CASE WHEN typeof(stats) = 'VARCHAR' THEN stats::VARCHAR ELSE stats::JSON END "
                f"FROM pragma_storage_info('{table.replace(chr(39), chr(39) * 2)}') "
                "WHERE segment_type NOT IN ('VALIDITY')"
            ).fetchall():
                seen.metadata += _beyond(connection, table, column, stats)
        seen.other_text = " ".join(text or "" for text in texts)
    return seen


def _beyond(connection: duckdb.DuckDBPyConnection, table: str, column: str, stats: str | None) -> list[str]:
    """Least and greatest values that an engine keeps of a column, and that no row has."""
    if (stats or "").startswith("["):  # DuckDB before 2.0 writes them as text
        match = re.match(r"\[Min: (.*?), Max: (.*?)(?:, Has Unicode: .*?)?\](?:\[|$)", stats)
        ends: list[Any] = list(match.groups()) if match else []
    else:
        ends = [json.loads(stats or "{}").get(end) for end in ("min", "max")]
    query = f"SELECT DISTINCT {_quote_name(column)}::VARCHAR, typeof({_quote_name(column)}) FROM {_quote_name(table)}"
    # Of some types they are written as their bytes in the file.
    values = [
        value
        for value, type_ in connection.execute(query).fetchall()
        if value is not None and type_ not in ("BIT", "BIGNUM")
    ]
    return [
        f"statistics of {column}: {end!r} is in no row"
        for end in ends
        if values and isinstance(end, (str, int, float)) and not any(_is_end(end, value) for value in values)
    ]


def _is_end(end: Any, text: str) -> bool:
    """Whether statistics may contain this prefix of a text, or this number."""
    if isinstance(end, str):
        start = re.sub(r"(\\x00)+$", "", end)
        if _number(end) is not None and _number(end) == _number(text):
            return True
        raw = re.sub(rb"\\x([0-9A-F]{2})", lambda byte: bytes([int(byte[1], 16)]), start.encode())
        return text.startswith(start) or text.encode().startswith(raw)
    return text == str(end).lower() or _number(text) == (_number(str(end)) or b"none")


def _number(text: str) -> bytes | None:
    """A number, as one of 32 bits: some are."""
    try:
        return struct.pack("<f", float(text))
    except (ValueError, OverflowError):
        return None


def _parquet(path: Path) -> Seen:
    file = pq.ParquetFile(path)
    arrow = file.read()
    names = arrow.column_names
    columns = [[(cell, str(arrow.schema.field(i).type)) for cell in cells(arrow.column(i))] for i in range(len(names))]
    rows = list(zip(*columns, strict=True)) if columns else []
    metadata = file.metadata.metadata or {}
    other_text = " ".join(
        f"{key.decode()} {value.decode()}" for key, value in metadata.items() if key != b"ARROW:schema"
    )
    return Seen(names, rows, other_text, list(_parquet_metadata(path, file)))


def _parquet_metadata(path: Path, file: pq.ParquetFile) -> Iterator[str]:
    """Statistics and dictionary entries that no row has."""
    raw = path.read_bytes()
    for group in range(file.metadata.num_row_groups):
        arrow = file.read_row_group(group)
        for i in range(file.metadata.num_columns):
            chunk = file.metadata.row_group(group).column(i)
            name = chunk.path_in_schema
            if "." in name or name not in arrow.column_names:  # a part of a nested value
                continue
            column = arrow.column(name)
            values = set(cells(column)) - {None}
            statistics = chunk.statistics
            if statistics is not None and statistics.has_min_max and not pa.types.is_temporal(column.type):
                try:
                    ends = statistics.min, statistics.max
                except NotImplementedError:  # of some types, in older versions
                    continue
                for end in ends:
                    readable = bits(end)
                    if isinstance(end, (float, int, str)) and readable not in values and not _zero(end, values):
                        yield f"statistics of {name}: {end!r} is in no row"
            if chunk.has_dictionary_page:
                entries = _dictionary_entries(raw, chunk)
                if entries > len(values):
                    yield f"the dictionary of {name} has {entries} entries, and its rows {len(values)} values"


def _zero(end: Any, values: set[Any]) -> bool:
    """The format has a writer put -0.0 for the least zero, and 0.0 for the greatest."""
    return end == 0.0 and bits(0.0) in values


def _dictionary_entries(raw: bytes, chunk: Any) -> int:
    """The number of entries in the dictionary page of a column, by its header (Thrift's compact protocol)."""
    fields = _thrift_struct(raw, [chunk.dictionary_page_offset])
    return fields[7][1]


def _thrift_struct(raw: bytes, place: list[int]) -> dict[int, Any]:
    fields: dict[int, Any] = {}
    number = 0
    while (head := raw[place[0]]) != 0:
        place[0] += 1
        kind, step = head & 15, head >> 4
        number = number + step if step else _zigzag(raw, place)
        if kind in (1, 2):
            fields[number] = kind == 1
        elif kind in (4, 5, 6):
            fields[number] = _zigzag(raw, place)
        elif kind == 8:
            size = _varint(raw, place)
            fields[number] = raw[place[0] : place[0] + size]
            place[0] += size
        elif kind == 12:
            fields[number] = _thrift_struct(raw, place)
        else:
            raise ValueError(f"a field of kind {kind} in a page header")
    place[0] += 1
    return fields


def _varint(raw: bytes, place: list[int]) -> int:
    value = shift = 0
    while True:
        byte = raw[place[0]]
        place[0] += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value
        shift += 7


def _zigzag(raw: bytes, place: list[int]) -> int:
    value = _varint(raw, place)
    return (value >> 1) ^ -(value & 1)


def findings(
    seen: Seen,
    quasi: Sequence[str],
    k: int,
    sensitive: Mapping[str, int] | None = None,
    private: Sequence[str] = (),
) -> list[str]:
    """Broken promises, with rows distinguished as this reader does.

    Parameters
    ----------
    seen:
        The release.
    quasi, k:
        The quasi-identifiers, and the rows that each class should have.
    sensitive:
        By attribute the different values that each class should have.
    private:
        Texts that should be nowhere.
    """
    classes: dict[Any, list[int]] = {}
    for i, key in enumerate(seen.of(*quasi)):
        classes.setdefault(key, []).append(i)
    leaks = [f"a class of {len(rows)}: {key}" for key, rows in classes.items() if len(rows) < k]
    for name, least in (sensitive or {}).items():
        values = seen.of(name)
        for key, rows in classes.items():
            if len({values[i] for i in rows}) < least:
                leaks.append(f"a class with fewer than {least} values of {name}: {key}")
    everything = repr(seen.rows) + seen.other_text
    leaks += [f"{text!r} is in the release" for text in private if text in everything]
    return leaks + seen.metadata


def ascents(seen: Seen, quasi: Sequence[str], place: str) -> tuple[float, float]:
    """How far the order inside of classes is from a random one: the rows that follow one that stood before them in the
    source, beyond those that would by chance; and the variance of that."""
    last: dict[Any, int] = {}
    sizes: Counter[Any] = Counter()
    rises = 0
    for key, (cell,) in zip(seen.of(*quasi), seen.of(place), strict=True):
        number = int(re.findall(r"\d+", str(cell))[0])
        rises += key in last and number > last[key]
        last[key] = number
        sizes[key] += 1
    return rises - sum((size - 1) / 2 for size in sizes.values()), sum(
        (size + 1) / 12 for size in sizes.values() if size > 1
    )
