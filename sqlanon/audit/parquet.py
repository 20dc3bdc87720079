"""Whether a Parquet file has only its rows and its manifest.

Other readers see what the engine skips: metadata of columns, unused values in dictionaries, statistics, bytes between
the parts. So the layout is read here byte by byte, except for the insides of pages:

    PAR1 | pages of each column of each row group | Bloom filters | footer | its length | PAR1

The metadata is in Thrift's compact protocol. Libraries of Parquet skip fields that they do not know; here every field
is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from sqlglot import exp

from sqlanon.audit.check import UNREAD_BYTES, Check, check_faults
from sqlanon.audit.visible_values import Leaf, leaf_columns, leaf_values
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.support.expressions import (
    anonymous,
    cast,
    col,
    ident,
    literal_path,
    named,
    number,
    or_zero,
    read_parquet,
    select,
    subquery,
    total,
)

Fields: TypeAlias = Mapping[int, Any]
"""The fields of a struct by their numbers: numbers, bytes, lists, and structs."""

_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _STRUCT = 1, 2, 3, 7, 8, 12
_INTEGERS = (4, 5, 6)
_LISTS = (9, 10)
_DEEPEST = 32


def read_struct(data: bytes, start: int = 0, depth: int = 0) -> tuple[Fields, int]:
    """The struct that begins at a place, and where it ends.

    >>> read_struct(bytes([0x15, 0x02, 0x18, 0x02, 0x68, 0x69, 0x00]))
    ({1: 1, 2: b'hi'}, 7)
    """
    if depth > _DEEPEST:
        raise ValueError("structs are nested without end")
    found: dict[int, Any] = {}
    place, field = start, 0
    while (head := _byte(data, place)) != 0:
        place += 1
        kind, step = head & 15, head >> 4
        if step:
            field += step
        else:
            field, place = _signed(data, place)
        if field in found:
            raise ValueError(f"field {field} is there twice")
        if kind in (_TRUE, _FALSE):
            found[field] = kind == _TRUE
        else:
            found[field], place = _value(data, place, kind, depth)
    return found, place + 1


def _value(data: bytes, place: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in _INTEGERS:
        return _signed(data, place)
    if kind in (_TRUE, _FALSE, _BYTE):
        return _byte(data, place), place + 1
    if kind == _DOUBLE:
        return _bytes(data, place, 8)
    if kind == _BINARY:
        length, place = _unsigned(data, place)
        return _bytes(data, place, length)
    if kind == _STRUCT:
        return read_struct(data, place, depth + 1)
    if kind in _LISTS:
        head = _byte(data, place)
        count, place = (head >> 4, place + 1) if head >> 4 < 15 else _unsigned(data, place + 1)
        values = []
        for _ in range(count):
            value, place = _value(data, place, head & 15, depth + 1)
            values.append(value)
        return values, place
    raise ValueError(f"there is no type {kind}")


def _byte(data: bytes, place: int) -> int:
    if place >= len(data):
        raise ValueError("it ends in the middle")
    return data[place]


def _bytes(data: bytes, place: int, length: int) -> tuple[bytes, int]:
    if place + length > len(data):
        raise ValueError("it ends in the middle")
    return data[place : place + length], place + length


def _unsigned(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        part = _byte(data, place)
        place += 1
        value |= (part & 127) << shift
        shift += 7
        if part < 128:
            return value, place
        if shift > 63:
            raise ValueError("a number has no end")


def _signed(data: bytes, place: int) -> tuple[int, int]:
    value, place = _unsigned(data, place)
    return value >> 1 ^ -(value & 1), place


KEY = "sqlanon"
"""The key of the manifest in a Parquet file's metadata."""

_MAGIC, _ENCRYPTED = b"PAR1", b"PARE"
_LARGEST_FOOTER = 2**27
"""Bytes: that of a billion rows of 20 columns has a fifth of this."""
_OF_ENGINE = ({1: b"duckdb.interval_bloom_filter", 2: b"normalized-v1"},)
"""The keys that the engine adds, with their values."""
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
    """A column of a row group: which group, its rows, and which leaf of the schema; the bytes of a value, where all
    have the same; the entries and bytes of its dictionary, and the bits that are set in its Bloom filter, where it has
    one."""

    group: int
    rows: int
    place: int
    width: int | None
    entries: int | None
    dictionary_bytes: int | None
    bits: int | None


class _Strange(ValueError):  # noqa: N818 - it does not leave this module
    pass


def check_parquet(engine: DuckDBEngine, path: Path, layout: Layout) -> Check:
    """Whether a Parquet file has only its rows, their statistics, and the manifest."""
    wrong = [layout.flaw] if layout.flaw else list(_beyond_the_rows(engine, path, layout.chunks))
    return check_faults("contents", wrong, f"pages of rows, their statistics and the manifest only; {UNREAD_BYTES}")


def _beyond_the_rows(engine: DuckDBEngine, path: Path, chunks: Sequence[Chunk]) -> Iterator[str]:
    types = engine.types(read_parquet([str(path)]))
    leaves = leaf_columns(types)
    claimed = _statistics(engine, path)
    for place, leaf in enumerate(leaves):
        own = [one for one in chunks if one.place == place]
        found = _figures(engine, path, own, leaf, "file_row_number" not in {name.lower() for name in types})
        for one in own:
            figures = found.get(one.group, _Figures(None, None, 0, 0))
            yield from _wrong(one, figures, claimed[one.group, place], leaf)


def _wrong(chunk: Chunk, found: _Figures, claimed: Sequence[str | None], leaf: Leaf) -> Iterator[str]:
    size = found.size if leaf.is_text else None if chunk.width is None else chunk.width * found.distinct
    if chunk.entries is not None and chunk.entries != found.distinct:
        yield f"the dictionary of column {leaf.name!r} has {chunk.entries} values, and its rows have {found.distinct}"
    elif chunk.entries is not None and size is not None and chunk.dictionary_bytes != size:
        yield f"the dictionary of column {leaf.name!r} has {chunk.dictionary_bytes} bytes, and its values have {size}"
    if chunk.bits is not None and chunk.entries is None:
        yield f"column {leaf.name!r} has a Bloom filter and no dictionary"
    if chunk.bits is not None and chunk.bits > 8 * found.distinct:
        yield f"the Bloom filter of column {leaf.name!r} has more values than its rows"
    *ends, distinct = claimed
    right = all(
        end is None or end == value or _is_cut(end, value)
        for end, value in zip(ends, (found.least, found.most) * 2, strict=True)
    )
    if not right or (distinct is not None and chunk.entries is not None and int(distinct) != found.distinct):
        yield f"the statistics of column {leaf.name!r} do not match its rows"


def _is_cut(end: str, value: str | None) -> bool:
    """Whether an end is the beginning of a long value: it is cut after 256 bytes, and rounded up at its last ones."""
    own, whole = end.encode(), (value or "").encode()
    return len(whole) > _LONGEST >= len(own) and len(own) > _SURE and whole.startswith(own[:_SURE])


@dataclass(frozen=True)
class _Figures:
    """The least and the greatest value of a leaf in a row group, as text, how many there are, and their bytes in a
    dictionary of texts."""

    least: str | None
    most: str | None
    distinct: int
    size: int


def _figures(
    engine: DuckDBEngine, path: Path, chunks: Sequence[Chunk], leaf: Leaf, numbered: bool
) -> dict[int, _Figures]:
    rows: exp.Expr = read_parquet([str(path)])
    row: exp.Expr = col("file_row_number")
    if numbered:
        rows.this.append("expressions", exp.PropertyEQ(this=ident("file_row_number"), expression=exp.true()))
    else:  # a column has this name
        row = exp.Window(this=exp.RowNumber()) - 1
    query = leaf_values(leaf, rows, named(_group(row, chunks), "g"))
    if any(one.entries is not None for one in chunks):
        query = select([col("g"), col("v")], subquery(query, "q"), [col("g"), col("v")])
    value: exp.Expr = col("v")
    if leaf.type in ("FLOAT", "DOUBLE"):  # statistics pass over NaN
        value = exp.Case(ifs=[exp.If(this=~anonymous("isnan", col("v")), true=col("v"))])
    ends = [exp.Min(this=value), exp.Max(this=value.copy())]
    length = anonymous("octet_length" if leaf.type == "BLOB" else "strlen", col("v")) if leaf.is_text else number(0)
    columns: list[exp.Expr] = [col("g")]
    columns += [cast(end, "VARCHAR") for end in ends]
    columns += [exp.Count(this=col("v")), or_zero(total(length + 4))]
    query = select(columns, subquery(query, "q"), [col("g")])
    return {found[0]: _Figures(*found[1:]) for found in engine.rows(query)}


def _group(row: exp.Expr, chunks: Sequence[Chunk]) -> exp.Expr:
    sizes = [one.rows for one in chunks]
    if len(set(sizes[:-1])) <= 1 and (len(sizes) == 1 or sizes[-1] <= sizes[0]):
        return exp.IntDiv(this=row, expression=number(max(sizes[0], 1)))
    ends = accumulate(sizes)
    cases = [exp.If(this=row < number(end), true=number(i)) for i, end in enumerate(ends)]
    return exp.Case(ifs=cases)


def _statistics(engine: DuckDBEngine, path: Path) -> dict[tuple[int, int], tuple[str | None, ...]]:
    names = ("row_group_id", "column_id", "stats_min", "stats_max", "stats_min_value", "stats_max_value")
    metadata = exp.Table(this=anonymous("parquet_metadata", literal_path(str(path))))
    query = select([col(name) for name in (*names, "stats_distinct_count")], metadata)
    return {(group, place): tuple(claims) for group, place, *claims in engine.rows(query)}


@dataclass(frozen=True)
class Layout:
    """What the bytes of a Parquet file say of it; no value of a row is read.

    ``flaw`` says what is not as in a release; ``manifests`` has the texts of manifests in its metadata.
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
            manifests = [one.get(2, b"") for one in footer.get(5, []) if one.get(1) == KEY.encode()]
            return Layout(reader.chunks(footer), "", manifests)
        except _Strange as error:
            return Layout([], str(error), manifests)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            return Layout([], f"its layout cannot be read: {error}", [])


class _LayoutReader:
    """A file while it is read, with the parts that its bytes belong to."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._size = file, size
        self._used: list[tuple[int, int, str]] = [(0, 4, "the beginning")]
        self._after_footer = 0

    def footer(self) -> Fields:
        ends = self._at(0, 4), self._at(max(self._size - 4, 0), 4)
        if _ENCRYPTED in ends:
            raise ValueError("it is encrypted, which releases are not")
        if ends != (_MAGIC, _MAGIC):
            raise ValueError("it is not a Parquet file")
        length = int.from_bytes(self._at(self._size - 8, 4), "little")
        start = self._size - 8 - length
        if length > _LARGEST_FOOTER or start < len(_MAGIC):
            raise ValueError(f"its footer has {length:,} bytes")
        footer, end = read_struct(self._at(start, length))
        self._after_footer = length - end
        self._used.append((start, self._size, "the footer"))
        return footer

    def chunks(self, footer: Fields) -> list[Chunk]:
        if self._after_footer:
            raise _Strange(f"the footer has {self._after_footer} bytes after its end")
        self._of_file(footer)
        leaves = _leaves(footer[2])
        found = [
            self._chunk(chunk, number, group[3], leaves, place)
            for number, group in enumerate(footer[4])
            for place, chunk in enumerate(self._chunks_of(group, leaves))
        ]
        self._all_used()
        return found

    def _of_file(self, footer: Fields) -> None:
        _only(footer, _FILE, "the footer")
        keys = [one.get(1) for one in footer.get(5, []) if one not in _OF_ENGINE]
        if strange := [repr(key.decode(errors="replace")) for key in keys if key != KEY.encode()]:
            raise _Strange(f"its metadata has the key {', '.join(strange)}, which releases do not have")
        if len(keys) != 1 or any(set(one) != {1, 2} for one in footer[5]):
            raise _Strange("its metadata has more than the manifest")
        if not _WRITER.fullmatch(footer.get(6, b"")):
            raise _Strange("it was not written by DuckDB")
        for order in footer.get(7, []):
            if any(rest for rest in order.values()):
                raise _Strange("the order of a column is not that of its type")

    @staticmethod
    def _chunks_of(group: Fields, leaves: Sequence[tuple[bytes, ...]]) -> list[Fields]:
        _only(group, _GROUP, "a row group")
        if 4 in group or len(group[1]) != len(leaves):
            raise _Strange("a row group does not have the columns of the file, or names a sort order")
        return list(group[1])

    def _chunk(self, chunk: Fields, group: int, rows: int, leaves: Sequence[tuple[bytes, ...]], place: int) -> Chunk:
        own = f"column {b'.'.join(leaves[place]).decode(errors='replace')!r}"
        _only(chunk, _CHUNK, own)
        column = chunk[3]
        _only(column, _COLUMN, own)
        _only(column.get(12, {}), _STATISTICS, f"the statistics of {own}")
        if tuple(column[3]) != leaves[place]:
            raise _Strange(f"{own} has another name in a row group")
        at = column.get(11, column[9])
        end = at + column[7]
        self._used.append((at, end, own))
        pages = []
        while at < end:
            page, at = self._page(at, end, own)
            pages.append(page)
        dictionaries = [page for page in pages if 7 in page]
        if dictionaries != (pages[:1] if 11 in column else []):
            raise _Strange(f"{own} has a dictionary that is not before its pages")
        values = sum(page.get(5, page.get(8, {}))[1] for page in pages[len(dictionaries) :])
        if at != end or values != column[5]:
            raise _Strange(f"the pages of {own} do not match its values")
        entries, size = (dictionaries[0][7][1], dictionaries[0][2]) if dictionaries else (None, None)
        return Chunk(group, rows, place, _WIDTHS.get(column[1]), entries, size, self._bloom(column, own))

    def _page(self, at: int, end: int, own: str) -> tuple[Fields, int]:
        page, length = read_struct(self._at(at, min(_HEADER_BYTES, end - at)))
        if page[3] < 0:
            raise _Strange(f"a page of {own} ends before it begins")
        _only(page, _PAGE, f"a page of {own}")
        for field, known in ((5, _DATA_PAGE), (7, _DICTIONARY_PAGE), (8, _DATA_PAGE_2)):
            _only(page.get(field, {}), known, f"a page of {own}")
        return page, at + length + int(page[3])

    def _bloom(self, column: Fields, own: str) -> int | None:
        if 14 not in column:
            return None
        start, length = column[14], column.get(15, 0)
        content = self._at(start, length)
        header, at = read_struct(content)
        _only(header, _BLOOM, f"the Bloom filter of {own}")
        if at + header[1] != length:
            raise _Strange(f"the Bloom filter of {own} does not have its claimed length")
        self._used.append((start, start + length, f"the Bloom filter of {own}"))
        return bin(int.from_bytes(content[at:], "little")).count("1")

    def _all_used(self) -> None:
        at = 0
        for start, end, what in sorted(self._used):
            if start != at:
                unused = f"{start - at} bytes before" if start > at else "bytes shared with another part in"
                raise _Strange(f"it has {unused} {what}")
            at = end
        if at != self._size:
            raise _Strange("it has bytes after its end")

    def _at(self, start: int, length: int) -> bytes:
        if start < 0 or length < 0:
            raise ValueError("a part begins before the file")
        self._file.seek(start)
        return self._file.read(length)


def _leaves(schema: Sequence[Fields]) -> list[tuple[bytes, ...]]:
    if schema[0][4] != _ROOT:
        raise _Strange("its schema does not have the name that releases have")

    def walk(place: int, path: tuple[bytes, ...]) -> tuple[list[tuple[bytes, ...]], int]:
        if len(path) > _DEEPEST:
            raise _Strange("its columns are nested more deeply than those of a release")
        element, at = schema[place], place + 1
        if not element.get(5):
            return [path], at
        found = []
        for _ in range(element[5]):
            more, at_next = walk(at, (*path, schema[at][4]))
            found += more
            at = at_next
        return found, at

    found, end = walk(0, ())
    if end != len(schema):
        raise _Strange("its schema has more than its columns")
    return found


def _only(fields: Fields, known: frozenset[int], what: str) -> None:
    if strange := sorted(set(fields) - known):
        raise _Strange(f"{what} has metadata that releases do not have (field {', '.join(map(str, strange))})")
