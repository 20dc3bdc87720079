"""The bytes of release files: each that a release does not write is named, in Parquet files and in DuckDB files."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from adversary import parquet_bytes as pb
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.release.contents import find_stray_bytes
from sqlanon.release.parquet import Layout, check_parquet, read_layout

ROWS = """
    SELECT
        ['Hilltown', 'Stonebridge', 'Fenmarsh'][1 + i % 3] AS city,
        i AS stay,
        CASE WHEN i % 4 = 0 THEN 'nan'::DOUBLE ELSE i % 5 END AS score,
        [i % 7, i % 2] AS visits,
        repeat('x', 300) || i % 2 AS note
    FROM range(5000) AS r(i)
"""
CITY, STAY, SCORE, VISITS, NOTE = range(5)


@pytest.fixture(scope="module")
def published_file(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file with three row groups, of 2,048 rows and fewer."""
    path = tmp_path_factory.mktemp("bytes") / "r.parquet"
    with duckdb.connect() as connection:
        options = "FORMAT parquet, ROW_GROUP_SIZE 2048, KV_METADATA {sqlanon: '{}'}"
        connection.execute(f"COPY ({ROWS}) TO '{path}' ({options})")
    return path.read_bytes()


@pytest.fixture(scope="module")
def engine() -> Iterator[DuckDBEngine]:
    with closing(DuckDBEngine(duckdb.connect())) as engine:
        yield engine


@pytest.fixture
def path(published_file: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "r.parquet"
    path.write_bytes(published_file)
    return path


def faults(engine: DuckDBEngine, path: Path, layout: Layout) -> list[str]:
    check = check_parquet(engine, path, layout)
    assert check.passed is not check.message.startswith(("the ", "column "))
    return [] if check.passed else check.message.split("; ")


def test_the_layout_of_a_release_has_no_flaw(path: Path, engine: DuckDBEngine) -> None:
    layout = read_layout(path)
    assert (layout.flaw, layout.manifests) == ("", [b"{}"])
    assert [(chunk.group, chunk.rows) for chunk in layout.chunks if chunk.leaf == CITY] == [
        (0, 2048),
        (1, 2048),
        (2, 904),
    ]
    assert faults(engine, path, layout) == []


def put(tree: pb.Struct, field: int, kind: int, value: Any) -> None:
    tree[field] = (kind, value)


def group(footer: pb.Struct, number: int) -> pb.Struct:
    row_group: pb.Struct = footer[4][1][1][number]
    return row_group


def chunk(footer: pb.Struct, place: int) -> pb.Struct:
    column_chunk: pb.Struct = group(footer, 1)[1][1][1][place]
    return column_chunk


def shift_number(footer: pb.Struct, place: int, field: int, step: int) -> None:
    kind, value = pb.column(footer, place, 1)[field]
    put(pb.column(footer, place, 1), field, kind, value + step)


TEXT = (pb.BINARY, b"John Doe has HIV")
ENTRY = {1: (pb.BINARY, b"note"), 2: TEXT}
FLAWS: dict[str, Callable[[pb.Struct], object]] = {
    "the footer has metadata that releases do not have (field 9)": lambda tree: put(tree, 9, *TEXT),
    "a row group has metadata that releases do not have (field 8)": lambda tree: put(group(tree, 1), 8, *TEXT),
    "column 'stay' has metadata that releases do not have (field 1)": lambda tree: put(chunk(tree, STAY), 1, *TEXT),
    "column 'stay' has metadata that releases do not have (field 8)": lambda tree: put(
        pb.column(tree, STAY, 1), 8, *TEXT
    ),
    "the statistics of column 'stay' has metadata that releases do not have (field 10)": lambda tree: put(
        pb.column(tree, STAY, 1)[12][1], 10, *TEXT
    ),
    "its metadata has the key 'note', which releases do not have": lambda tree: tree[5][1][1].append(ENTRY),
    "its metadata has more than the manifest": lambda tree: tree[5][1][1].append({1: (pb.BINARY, b"sqlanon"), 2: TEXT}),
    "it was not written by DuckDB": lambda tree: put(tree, 6, pb.BINARY, b"DuckDB version v1.4.0 (build 0123456789) "),
    "a row group does not have the columns of the file, or names a sort order": lambda tree: group(tree, 1)[1][1][
        1
    ].pop(),
    "column 'city' has another name in a row group": lambda tree: put(
        pb.column(tree, CITY, 1), 3, pb.LIST, (pb.BINARY, [b"town"])
    ),
    "the pages of column 'stay' do not match its values": lambda tree: shift_number(tree, STAY, 5, 1),
    "its schema does not have the name that releases have": lambda tree: put(tree[2][1][1][0], 4, *TEXT),
    "its schema has more than its columns": lambda tree: tree[2][1][1].append({1: (pb.I32, 1), 4: TEXT}),
}


def test_each_flaw_of_the_footer_is_named(path: Path, published_file: bytes) -> None:
    for flaw, change in FLAWS.items():
        path.write_bytes(published_file)
        pb.footer_changed(path, change)
        assert read_layout(path).flaw == flaw


def test_rows_are_in_no_claimed_order(path: Path) -> None:
    order = {1: (pb.I32, STAY), 2: (pb.FALSE, None), 3: (pb.FALSE, None)}
    pb.footer_changed(path, lambda tree: put(group(tree, 1), 4, pb.LIST, (pb.STRUCT, [order])))
    assert read_layout(path).flaw.endswith("or names a sort order")


def test_bytes_outside_the_parts_are_counted(path: Path, published_file: bytes) -> None:
    body, footer = pb.parts(path)
    pb.put(path, body + b"12345", footer)
    assert read_layout(path).flaw == "it has 5 bytes before the footer"
    pb.put(path, body, footer + b"1234567")
    assert read_layout(path).flaw == "the footer has 7 bytes after its end"
    path.write_bytes(published_file)

    def forget_filter(tree: pb.Struct) -> None:
        del pb.column(tree, CITY, 1)[14], pb.column(tree, CITY, 1)[15]

    pb.footer_changed(path, forget_filter)
    assert read_layout(path).flaw.startswith("it has ") and " bytes before " in read_layout(path).flaw
    path.write_bytes(published_file)

    def share_filter(tree: pb.Struct) -> None:
        for field in (14, 15):
            pb.column(tree, SCORE, 1)[field] = pb.column(tree, CITY, 1)[field]

    pb.footer_changed(path, share_filter)
    assert read_layout(path).flaw == "it has bytes shared with another part in the Bloom filter of column 'score'"
    for broken in (
        b"PAR1",
        published_file[:-4] + b"PARE",
        published_file[:-8] + b"\xff\xff\xff\x7fPAR1",
        published_file + b"x",
    ):
        path.write_bytes(broken)
        with pytest.raises(ValueError, match=r"not a Parquet file|encrypted|its footer has|begins before the file"):
            read_layout(path)


def test_dictionaries_and_filters_hold_the_values_of_their_rows_only(path: Path, engine: DuckDBEngine) -> None:
    layout = read_layout(path)
    wrong: dict[tuple[int, int], dict[str, int]] = {
        (0, CITY): {"entries": 4},
        (1, CITY): {"dictionary_bytes": 40},
        (1, STAY): {"bits": 5},
        (1, SCORE): {"dictionary_bytes": 47},
        (1, VISITS): {"bits": 57},
        (2, CITY): {"bits": 25},
        (2, NOTE): {"dictionary_bytes": 609},
    }
    chunks = [replace(chunk, **wrong.get((chunk.group, chunk.leaf), {})) for chunk in layout.chunks]
    assert faults(engine, path, replace(layout, chunks=chunks)) == [
        "the dictionary of column 'city' has 4 values, and its rows have 3",
        "the dictionary of column 'city' has 40 bytes, and its values have 39",
        "the Bloom filter of column 'city' has more values than its rows",
        "column 'stay' has a Bloom filter and no dictionary",
        "the dictionary of column 'score' has 47 bytes, and its values have 48",
        "the Bloom filter of column 'visits' has more values than its rows",
        "the dictionary of column 'note' has 609 bytes, and its values have 610",
    ]


def test_statistics_are_those_of_the_rows_of_their_group(path: Path, engine: DuckDBEngine) -> None:
    """The ends of a long text are cut after 256 bytes, and only their last 16 may differ."""

    def number(value: int) -> bytes:
        return value.to_bytes(8, "little")

    def change(tree: pb.Struct) -> None:
        for place, at, field, value in (
            (CITY, 0, 6, b"Delta Port"),
            (STAY, 0, 1, number(2048)),
            (STAY, 1, 2, number(0)),
            (STAY, 2, 5, number(4998)),
            (VISITS, 0, 6, number(1)),
            (NOTE, 0, 5, b"x" * 239 + b"y" * 17),
        ):
            put(pb.column(tree, place, at)[12][1], field, pb.BINARY, value)
        put(pb.column(tree, CITY, 1)[12][1], 4, pb.I64, 4)
        put(pb.column(tree, NOTE, 1)[12][1], 5, pb.BINARY, b"x" * 240 + b"y" * 16)

    pb.footer_changed(path, change)
    layout = read_layout(path)
    assert layout.flaw == ""
    names = [*["city"] * 2, *["stay"] * 3, "visits", "note"]
    assert faults(engine, path, layout) == [
        f"the statistics of column {name!r} do not match its rows" for name in names
    ]


def test_a_column_may_have_the_name_of_row_numbers(tmp_path: Path, engine: DuckDBEngine) -> None:
    path = tmp_path / "r.parquet"
    rows = "SELECT 5 - i // 1000 AS file_row_number, i AS stay FROM range(5000) AS r(i)"
    engine.connection.execute(
        f"COPY ({rows}) TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 2048, KV_METADATA {{sqlanon: ''}})"
    )
    assert faults(engine, path, read_layout(path)) == []


# --- DuckDB files


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file that has been written twice, so that both headers of blocks are in use."""
    path = tmp_path_factory.mktemp("bytes") / "r.duckdb"
    for statement in ("CREATE TABLE t AS FROM range(10)", "INSERT INTO t FROM range(10)"):
        with duckdb.connect(path) as connection:
            connection.execute(statement)
    return path.read_bytes()


def strays(content: bytes, folder: Path) -> list[str]:
    path = folder / "r.duckdb"
    path.write_bytes(content)
    return [*find_stray_bytes(path)]


FILE, BLOCKS = "the header of the file has extra bytes", "a header of the blocks has extra bytes"
HEADER = 4096


@pytest.mark.parametrize(
    ("offset", "content", "expected"),
    [
        (0, b"", []),
        (116, b"\1", [FILE]),
        (123, b"\1", [FILE]),
        (140, b"\1", [FILE]),
        (HEADER - 1, b"\1", [FILE]),
        (52, b"John", [FILE]),
        (HEADER + 64, b"\1", [BLOCKS]),
        (2 * HEADER - 1, b"\1", [BLOCKS]),
        (2 * HEADER + 64, b"\1", [BLOCKS]),
        (3 * HEADER - 1, b"\1", [BLOCKS]),
        (HEADER + 8, struct.pack("<Q", 2**32), [BLOCKS]),  # the iteration
        (HEADER + 16, struct.pack("<Q", 2**40), [BLOCKS]),  # the block of the catalog
        (HEADER + 24, struct.pack("<Q", 2**40), [BLOCKS]),  # the free list
        (HEADER + 32, struct.pack("<Q", 2**40), [BLOCKS]),  # the number of blocks
        (HEADER + 40, struct.pack("<Q", 2**17), [BLOCKS]),  # the size of a block
        (HEADER + 48, struct.pack("<Q", 2**16 + 1), [BLOCKS]),  # the size of a vector
        (HEADER + 56, struct.pack("<Q", 2**16), [BLOCKS]),  # the version
    ],
)
def test_each_part_of_the_headers_has_plausible_numbers_and_nothing_else(
    offset: int, content: bytes, expected: list[str], database: bytes, tmp_path: Path
) -> None:
    """The header with the smaller iteration is the previous one, and is checked, too."""
    first, second = (struct.unpack_from("<Q", database, number * HEADER + 8)[0] for number in (1, 2))
    if HEADER < offset < 2 * HEADER and first > second:  # change the previous header
        offset += HEADER
    changed = database[:offset] + content + database[offset + len(content) :]
    strays_ = strays(changed, tmp_path)
    assert [fault for fault in strays_ if fault in (FILE, BLOCKS)] == expected


def test_a_file_has_its_blocks_and_no_log(database: bytes, tmp_path: Path) -> None:
    assert strays(database, tmp_path) == []
    size = len(database)
    assert strays(database + b"x", tmp_path) == [f"it has {size + 1:,} bytes, but its blocks need {size:,}"]
    assert strays(database[:-1], tmp_path) == [f"it has {size - 1:,} bytes, but its blocks need {size:,}"]
    (tmp_path / "r.duckdb.wal").write_bytes(b"")
    assert strays(database, tmp_path) == ["r.duckdb.wal is next to it, with changes that are not in the file"]
