"""Check that a Parquet file has only its rows and its manifest.

Other readers see data that the engine skips: metadata of columns, unused values in dictionaries, statistics, bytes
between the parts. So this module reads the layout byte by byte, except for the contents of pages:

    PAR1 | pages of each column of each row group | Bloom filters | footer | its length | PAR1

The metadata is in Thrift's compact protocol. Parquet libraries skip unknown fields; this module reads every field.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.release.visible_values import Leaf, leaf_columns, leaf_values
from sqlanon.support.checks import Check, check_faults
from sqlanon.support.expressions import (
    as_column,
    col,
    fragment,
    ident,
    literal_path,
    number,
    read_parquet,
    template,
)

UNREAD_BYTES = "only the SHA-256 finds data in their unused ends (--sha256, --policy)"
"""Limit of the checks of blocks and pages, for their messages."""

Fields: TypeAlias = Mapping[int, Any]
"""The fields of a struct by their numbers: numbers, bytes, lists, and structs."""

_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _STRUCT = 1, 2, 3, 7, 8, 12
_INTEGERS = (4, 5, 6)
_LISTS = (9, 10)
_DEEPEST = 32


def read_struct(data: bytes) -> tuple[Fields, int]:
    """Read the struct at the beginning of bytes in Thrift's compact protocol, and return its length.

    >>> read_struct(bytes([0x15, 0x02, 0x18, 0x02, 0x68, 0x69, 0x00]))
    ({1: 1, 2: b'hi'}, 7)
    """
    reader = _CompactReader(data)
    return reader.read_struct(0), reader.position


class _CompactReader:
    def __init__(self, data: bytes) -> None:
        self._data, self.position = data, 0

    def read_struct(self, depth: int) -> Fields:
        if depth > _DEEPEST:
            raise ValueError("structs are nested too deeply")
        fields: dict[int, Any] = {}
        field = 0
        while (head := self._read_byte()) != 0:
            kind, step = head & 15, head >> 4
            field = field + step if step else self._read_signed()
            if field in fields:
                raise ValueError(f"field {field} is repeated")
            fields[field] = kind == _TRUE if kind in (_TRUE, _FALSE) else self._read_value(kind, depth)
        return fields

    def _read_value(self, kind: int, depth: int) -> Any:
        if kind in _INTEGERS:
            return self._read_signed()
        if kind in (_TRUE, _FALSE, _BYTE):
            return self._read_byte()
        if kind in (_DOUBLE, _BINARY):
            return self._read_bytes(8 if kind == _DOUBLE else self._read_unsigned())
        if kind == _STRUCT:
            return self.read_struct(depth + 1)
        if kind in _LISTS:
            head = self._read_byte()
            count = head >> 4 if head >> 4 < 15 else self._read_unsigned()
            return [self._read_value(head & 15, depth + 1) for _ in range(count)]
        raise ValueError(f"type {kind} is unknown")

    def _read_byte(self) -> int:
        if self.position >= len(self._data):
            raise ValueError("it is truncated")
        self.position += 1
        return self._data[self.position - 1]

    def _read_bytes(self, length: int) -> bytes:
        end = self.position + length
        if end > len(self._data):
            raise ValueError("it is truncated")
        content, self.position = self._data[self.position : end], end
        return content

    def _read_unsigned(self) -> int:
        value = shift = 0
        while shift < 70:
            part = self._read_byte()
            value |= (part & 127) << shift
            if part < 128:
                return value
            shift += 7
        raise ValueError("a number is too long")

    def _read_signed(self) -> int:
        value = self._read_unsigned()
        return value >> 1 ^ -(value & 1)


KEY = "sqlanon"
"""The key of the manifest in a Parquet file's metadata."""

_MAGIC, _ENCRYPTED = b"PAR1", b"PARE"
_MAX_FOOTER_BYTES = 2**27
"""In bytes: the footer of a billion rows of 20 columns has a fifth of this."""
_ENGINE_METADATA = ({1: b"duckdb.interval_bloom_filter", 2: b"normalized-v1"},)
"""Key-value metadata that the engine adds."""
_ROOT = b"duckdb_schema"
_WRITER = re.compile(rb"DuckDB version v\d{1,2}\.\d{1,2}\.\d{1,2}(-dev\d{1,5})? \(build [0-9a-f]{10}\)")
_FILE, _GROUP, _CHUNK, _COLUMN, _STATISTICS, _PAGE, _DATA_PAGE, _DICTIONARY_PAGE, _BLOOM = (
    frozenset(fields)
    for fields in (
        (1, 2, 3, 4, 5, 6, 7),
        (1, 2, 3, 4, 5, 6, 7),
        (2, 3),
        (1, 2, 3, 4, 5, 6, 7, 9, 11, 12, 13, 14, 15, 17),
        (1, 2, 3, 4, 5, 6, 7, 8, 9),
        (1, 2, 3, 5, 7, 8),
        (1, 2, 3, 4),
        (1, 2, 3),
        (1, 2, 3, 4),
    )
)
"""The fields that DuckDB writes, by their numbers in Parquet's definition: no path of another file, no keys of a
column, no index, no statistics of a page."""
_DATA_PAGE_2 = frozenset((1, 2, 3, 4, 5, 6, 7))
_HEADER_BYTES = 64
_LONGEST, _SURE = 256, 240
_WIDTHS = {1: 4, 2: 8, 3: 12, 4: 4, 5: 8}
"""The size of values in bytes, by the number of Parquet's type."""


@dataclass(frozen=True)
class Chunk:
    """A column of a row group, by the numbers of the group and of the leaf in the schema.

    ``width`` is the size of a value in bytes, if all have the same; ``entries`` and ``dictionary_bytes`` describe its
    dictionary, and ``bits`` the set bits of its Bloom filter, if any.
    """

    group: int
    rows: int
    leaf: int
    width: int | None
    entries: int | None
    dictionary_bytes: int | None
    bits: int | None


class _LayoutError(ValueError):
    """The layout is not that of a release."""


def check_parquet(engine: DuckDBEngine, path: Path, layout: Layout) -> Check:
    """Check that a Parquet file has only its rows, their statistics, and the manifest."""
    faults = [layout.flaw] if layout.flaw else list(_find_faults(engine, path, layout.chunks))
    return check_faults("contents", faults, f"pages of rows, their statistics and the manifest only; {UNREAD_BYTES}")


def _find_faults(engine: DuckDBEngine, path: Path, chunks: Sequence[Chunk]) -> Iterator[str]:
    types = engine.types(read_parquet([str(path)]))
    statistics = _read_statistics(engine, path)
    has_row_numbers = "file_row_number" not in {name.lower() for name in types}
    for index, leaf in enumerate(leaf_columns(types)):
        leaf_chunks = [chunk for chunk in chunks if chunk.leaf == index]
        figures = _measure_chunks(engine, path, leaf_chunks, leaf, has_row_numbers)
        for chunk in leaf_chunks:
            chunk_figures = figures.get(chunk.group, _Figures(None, None, 0, 0))
            yield from _find_chunk_faults(chunk, chunk_figures, statistics[chunk.group, index], leaf)


def _find_chunk_faults(chunk: Chunk, figures: _Figures, claimed: Sequence[str | None], leaf: Leaf) -> Iterator[str]:
    size = figures.size if leaf.is_text else None if chunk.width is None else chunk.width * figures.distinct
    if chunk.entries is not None and chunk.entries != figures.distinct:
        yield f"the dictionary of column {leaf.name!r} has {chunk.entries} values, and its rows have {figures.distinct}"
    elif chunk.entries is not None and size is not None and chunk.dictionary_bytes != size:
        yield f"the dictionary of column {leaf.name!r} has {chunk.dictionary_bytes} bytes, and its values have {size}"
    if chunk.bits is not None and chunk.entries is None:
        yield f"column {leaf.name!r} has a Bloom filter and no dictionary"
    if chunk.bits is not None and chunk.bits > 8 * figures.distinct:
        yield f"the Bloom filter of column {leaf.name!r} has more values than its rows"
    *ends, distinct = claimed
    matches = all(
        end is None or end == value or _is_truncated(end, value)
        for end, value in zip(ends, (figures.least, figures.most) * 2, strict=True)
    )
    if not matches or (distinct is not None and chunk.entries is not None and int(distinct) != figures.distinct):
        yield f"the statistics of column {leaf.name!r} do not match its rows"


def _is_truncated(end: str, value: str | None) -> bool:
    """Whether an end is a truncated long value: statistics keep 256 bytes, and round the last ones up."""
    prefix, full = end.encode(), (value or "").encode()
    return len(full) > _LONGEST >= len(prefix) > _SURE and full.startswith(prefix[:_SURE])


@dataclass(frozen=True)
class _Figures:
    """The least and the greatest value of a leaf in a row group as text, the number of distinct values, and their bytes
    in a dictionary of texts."""

    least: str | None
    most: str | None
    distinct: int
    size: int


def _measure_chunks(
    engine: DuckDBEngine, path: Path, chunks: Sequence[Chunk], leaf: Leaf, has_row_numbers: bool
) -> dict[int, _Figures]:
    rows: exp.Expr = read_parquet([str(path)])
    row: exp.Expr = col("file_row_number")
    if has_row_numbers:
        rows.this.append("expressions", exp.PropertyEQ(this=ident("file_row_number"), expression=exp.true()))
    else:  # a column has this name
        row = exp.Paren(this=exp.Window(this=exp.RowNumber()) - 1)
    values = leaf_values(leaf, rows, as_column(_row_group(row, chunks), "row_group"))
    if any(chunk.entries is not None for chunk in chunks):
        values = template("SELECT row_group, v FROM :values AS q GROUP BY row_group, v")(values=values)
    value, length = "v", ("octet_length(v)" if leaf.type == "BLOB" else "strlen(v)") if leaf.is_text else "0"
    if leaf.type in ("FLOAT", "DOUBLE"):  # statistics pass over NaN
        value = "CASE WHEN NOT isnan(v) THEN v END"
    query = template("""
        SELECT
            row_group,
            min(:value)::VARCHAR AS least,
            max(:value)::VARCHAR AS most,
            count(v) AS value_count,
            coalesce(sum(:length + 4)::BIGINT, 0) AS dictionary_bytes
        FROM :values AS q
        GROUP BY row_group
    """)(value=fragment(value)(), length=fragment(length)(), values=values)
    return {group: _Figures(*figures) for group, *figures in engine.rows(query)}


def _row_group(row: exp.Expr, chunks: Sequence[Chunk]) -> exp.Expr:
    sizes = [chunk.rows for chunk in chunks]
    if not sizes:
        return number(0)
    if len(set(sizes[:-1])) <= 1 and (len(sizes) == 1 or sizes[-1] <= sizes[0]):
        return exp.IntDiv(this=row, expression=number(max(sizes[0], 1)))
    ends = accumulate(sizes)
    cases = [exp.If(this=row < number(end), true=number(i)) for i, end in enumerate(ends)]
    return exp.Case(ifs=cases)


def _read_statistics(engine: DuckDBEngine, path: Path) -> dict[tuple[int, int], tuple[str | None, ...]]:
    query = template("""
        SELECT
            row_group_id, column_id,
            stats_min, stats_max, stats_min_value, stats_max_value, stats_distinct_count
        FROM parquet_metadata(:path)
    """)(path=literal_path(str(path)))
    return {(group, leaf): tuple(claims) for group, leaf, *claims in engine.rows(query)}


@dataclass(frozen=True)
class Layout:
    """The layout of a Parquet file, read without a value of its rows.

    ``flaw`` describes a deviation from the layout of releases; ``manifests`` are the manifests in its metadata.
    """

    chunks: Sequence[Chunk]
    flaw: str
    manifests: Sequence[bytes]


def read_layout(path: Path) -> Layout:
    """Read the layout of a Parquet file, before an engine that trusts it.

    Raises
    ------
    ValueError
        It is not a Parquet file, or its footer cannot be read.
    """
    with path.open("rb") as file:
        reader = _LayoutReader(file, path.stat().st_size)
        footer = reader.footer()
        try:
            manifests = [entry.get(2, b"") for entry in footer.get(5, []) if entry.get(1) == KEY.encode()]
            return Layout(reader.chunks(footer), "", manifests)
        except _LayoutError as error:
            return Layout([], str(error), manifests)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            return Layout([], f"its layout cannot be read: {error}", [])


class _LayoutReader:
    """Reads a file, and records the parts that its bytes belong to."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._size = file, size
        self._used: list[tuple[int, int, str]] = [(0, 4, "the beginning")]
        self._after_footer = 0

    def footer(self) -> Fields:
        ends = self._read(0, 4), self._read(max(self._size - 4, 0), 4)
        if _ENCRYPTED in ends:
            raise ValueError("it is encrypted, which releases are not")
        if ends != (_MAGIC, _MAGIC):
            raise ValueError("it is not a Parquet file")
        length = int.from_bytes(self._read(self._size - 8, 4), "little")
        start = self._size - 8 - length
        if length > _MAX_FOOTER_BYTES or start < len(_MAGIC):
            raise ValueError(f"its footer has {length:,} bytes")
        footer, end = read_struct(self._read(start, length))
        self._after_footer = length - end
        self._used.append((start, self._size, "the footer"))
        return footer

    def chunks(self, footer: Fields) -> list[Chunk]:
        if self._after_footer:
            raise _LayoutError(f"the footer has {self._after_footer} bytes after its end")
        self._check_footer(footer)
        leaves = _leaf_paths(footer[2])
        chunks = [
            self._read_chunk(chunk, number, group[3], leaves, leaf)
            for number, group in enumerate(footer[4])
            for leaf, chunk in enumerate(self._group_chunks(group, leaves))
        ]
        self._check_all_used()
        return chunks

    def _check_footer(self, footer: Fields) -> None:
        _refuse_other_fields(footer, _FILE, "the footer")
        keys = [entry.get(1) for entry in footer.get(5, []) if entry not in _ENGINE_METADATA]
        if strange := [repr(key.decode(errors="replace")) for key in keys if key != KEY.encode()]:
            raise _LayoutError(f"its metadata has the key {', '.join(strange)}, which releases do not have")
        if len(keys) != 1 or any(set(entry) != {1, 2} for entry in footer[5]):
            raise _LayoutError("its metadata has more than the manifest")
        if not _WRITER.fullmatch(footer.get(6, b"")):
            raise _LayoutError("it was not written by DuckDB")
        for order in footer.get(7, []):
            if any(order.values()):
                raise _LayoutError("the order of a column is not that of its type")

    @staticmethod
    def _group_chunks(group: Fields, leaves: Sequence[tuple[bytes, ...]]) -> list[Fields]:
        _refuse_other_fields(group, _GROUP, "a row group")
        if 4 in group or len(group[1]) != len(leaves):
            raise _LayoutError("a row group does not have the columns of the file, or names a sort order")
        return list(group[1])

    def _read_chunk(
        self, chunk: Fields, group: int, rows: int, leaves: Sequence[tuple[bytes, ...]], leaf: int
    ) -> Chunk:
        name = f"column {b'.'.join(leaves[leaf]).decode(errors='replace')!r}"
        _refuse_other_fields(chunk, _CHUNK, name)
        column = chunk[3]
        _refuse_other_fields(column, _COLUMN, name)
        _refuse_other_fields(column.get(12, {}), _STATISTICS, f"the statistics of {name}")
        if tuple(column[3]) != leaves[leaf]:
            raise _LayoutError(f"{name} has another name in a row group")
        at = column.get(11, column[9])
        end = at + column[7]
        self._used.append((at, end, name))
        pages = []
        while at < end:
            page, at = self._read_page(at, end, name)
            pages.append(page)
        dictionaries = [page for page in pages if 7 in page]
        if dictionaries != (pages[:1] if 11 in column else []):
            raise _LayoutError(f"{name} has a dictionary that is not before its pages")
        values = sum(page.get(5, page.get(8, {}))[1] for page in pages[len(dictionaries) :])
        if at != end or values != column[5]:
            raise _LayoutError(f"the pages of {name} do not match its values")
        entries, size = (dictionaries[0][7][1], dictionaries[0][2]) if dictionaries else (None, None)
        return Chunk(group, rows, leaf, _WIDTHS.get(column[1]), entries, size, self._read_bloom_filter(column, name))

    def _read_page(self, at: int, end: int, name: str) -> tuple[Fields, int]:
        page, length = read_struct(self._read(at, min(_HEADER_BYTES, end - at)))
        if page[3] < 0:
            raise _LayoutError(f"a page of {name} ends before it begins")
        _refuse_other_fields(page, _PAGE, f"a page of {name}")
        for field, expected in ((5, _DATA_PAGE), (7, _DICTIONARY_PAGE), (8, _DATA_PAGE_2)):
            _refuse_other_fields(page.get(field, {}), expected, f"a page of {name}")
        return page, at + length + int(page[3])

    def _read_bloom_filter(self, column: Fields, name: str) -> int | None:
        if 14 not in column:
            return None
        start, length = column[14], column.get(15, 0)
        content = self._read(start, length)
        header, at = read_struct(content)
        _refuse_other_fields(header, _BLOOM, f"the Bloom filter of {name}")
        if at + header[1] != length:
            raise _LayoutError(f"the Bloom filter of {name} does not have its claimed length")
        self._used.append((start, start + length, f"the Bloom filter of {name}"))
        return bin(int.from_bytes(content[at:], "little")).count("1")

    def _check_all_used(self) -> None:
        at = 0
        for start, end, part in sorted(self._used):
            if start != at:
                unused = f"{start - at} bytes before" if start > at else "bytes shared with another part in"
                raise _LayoutError(f"it has {unused} {part}")
            at = end
        if at != self._size:
            raise _LayoutError("it has bytes after its end")

    def _read(self, start: int, length: int) -> bytes:
        if start < 0 or length < 0:
            raise ValueError("a part begins before the file")
        self._file.seek(start)
        return self._file.read(length)


def _leaf_paths(schema: Sequence[Fields]) -> list[tuple[bytes, ...]]:
    if schema[0][4] != _ROOT:
        raise _LayoutError("its schema does not have the name that releases have")

    def walk(position: int, path: tuple[bytes, ...]) -> tuple[list[tuple[bytes, ...]], int]:
        if len(path) > _DEEPEST:
            raise _LayoutError("its columns are nested more deeply than those of a release")
        element, following = schema[position], position + 1
        if not element.get(5):
            return [path], following
        paths = []
        for _ in range(element[5]):
            child_paths, following = walk(following, (*path, schema[following][4]))
            paths += child_paths
        return paths, following

    paths, end = walk(0, ())
    if end != len(schema):
        raise _LayoutError("its schema has more than its columns")
    return paths


def _refuse_other_fields(fields: Fields, expected: frozenset[int], part: str) -> None:
    if unexpected := sorted(set(fields) - expected):
        raise _LayoutError(f"{part} has metadata that releases do not have (field {', '.join(map(str, unexpected))})")
