"""Values that GROUP BY treats as equal look the same to every reader once a source is bound, in all types of DuckDB.

The eyes here are a reader's: bytes, texts, signs, hashes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlglot

from adversary.odd_values import COLLATED, SCALARS, nested_literals, odd_floats, with_odd_floats
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.policy import SourceSection
from sqlanon.sources import WorkNames, bind_source, fixed_column
from sqlanon.sources.relation import bind_relation
from support.databases import DUCKDB_1

SEVERAL_FORMS = ("FLOAT", "DOUBLE", "INTERVAL", "VARIANT")
"""Types with values that engines treat as equal and readers can distinguish."""

NO_COLUMNS = ("NULL", "TYPE")
"""Types that no table has a column of."""

NESTED = ("LIST", "ARRAY", "STRUCT", "TUPLE", "MAP", "UNION")


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        yield with_odd_floats(opened)


def rows_of(values: list[str]) -> str:
    """A query with a row for each value, and one for NULL."""
    return " UNION ALL ".join(f"SELECT {i} AS i, {value} AS x" for i, value in enumerate([*values, "NULL"]))


def equal_pairs(connection: duckdb.DuckDBPyConnection, relation: str) -> set[tuple[int, int]]:
    """The rows whose values the engine treats as equal, in any query."""
    groups = connection.execute(f"SELECT list(i ORDER BY i) FROM {relation} GROUP BY x").fetchall()
    pairs = {(a, b) for (group,) in groups for a in group for b in group if a < b}
    joined = (
        f"SELECT a.i, b.i FROM {relation} AS a JOIN {relation} AS b ON a.x IS NOT DISTINCT FROM b.x WHERE a.i < b.i"
    )
    (distinct,) = connection.execute(f"SELECT count(*) FROM (SELECT DISTINCT x FROM {relation})").fetchall()[0]
    assert distinct == len(groups)
    return pairs | set(connection.execute(joined).fetchall())


def look(connection: duckdb.DuckDBPyConnection, relation: str, i: int, directory: Path) -> dict[str, Any]:
    """Everything that a reader can see of a value."""
    scalar = f"(SELECT x FROM {relation} WHERE i = {i})"
    text, hashed, type_ = connection.execute(f"SELECT x::VARCHAR, hash(x), typeof(x) FROM {scalar}").fetchall()[0]
    seen = {"text": text, "hash": hashed, "type": type_}
    try:
        seen["python"] = bits(connection.execute(f"SELECT x FROM {scalar}").fetchall()[0][0])
    except (OverflowError, duckdb.Error):  # an interval may be too long for Python; times need a package
        seen["python"] = None
    try:
        column = connection.sql(f"SELECT x FROM {scalar}").to_arrow_table().column(0).combine_chunks()
        seen["arrow"] = bits(column.to_pylist())
        if not pa.types.is_nested(column.type):  # in those, what stands behind a NULL is whatever was there
            seen["buffers"] = [None if buffer is None else buffer.to_pybytes() for buffer in column.buffers()]
    except (duckdb.Error, pa.ArrowException):
        seen["arrow"] = None
    path = directory / "one.parquet"
    try:
        connection.execute(f"COPY (SELECT x FROM {scalar}) TO '{path}' (FORMAT parquet)")
        seen["parquet"] = path.read_bytes()
    except duckdb.Error:
        seen["parquet"] = None
    return seen


def bits(value: Any) -> Any:
    """A Python value that distinguishes what Python treats as equal."""
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, dict):
        return [(bits(key), bits(item)) for key, item in value.items()]
    if isinstance(value, (list, tuple)):
        return [bits(item) for item in value]
    return (type(value).__name__, repr(value))


def bound(connection: duckdb.DuckDBPyConnection, arrow: pa.Table | None = None, **section: Any) -> str:
    """A source, bound: the name of its relation."""
    engine = DuckDBEngine(connection)
    place = WorkNames("bound", None)
    if arrow is None:
        return bind_source(engine, SourceSection(**section), place).relation.sql("duckdb")
    connection.register("handed", arrow)
    connection.execute("CREATE TEMPORARY TABLE arrow_copied AS FROM handed")
    return bind_relation(engine, WorkNames("arrow", None).view("copied"), place, True).relation.sql("duckdb")


def told_apart(connection: duckdb.DuckDBPyConnection, relation: str, directory: Path) -> list[tuple[Any, ...]]:
    """Values that the engine treats as equal, and that some readers can distinguish."""
    differences = []
    seen: dict[int, dict[str, Any]] = {}
    for pair in sorted(equal_pairs(connection, relation)):
        for i in pair:
            if i not in seen:
                seen[i] = look(connection, relation, i, directory)
        first, second = (seen[i] for i in pair)
        differences += [(*pair, eye, first[eye], second[eye]) for eye in first if first[eye] != second[eye]]
    return differences


@pytest.mark.slow
def test_every_type_has_odd_values() -> None:
    """A type that DuckDB gets later is looked at, too."""
    with duckdb.connect() as connection:
        types = {name for (name,) in connection.execute("SELECT DISTINCT logical_type FROM duckdb_types()").fetchall()}
    assert types - {*SCALARS, *NESTED, *NO_COLUMNS} == set()
    for name in NO_COLUMNS:
        with duckdb.connect() as connection, pytest.raises(duckdb.Error):
            connection.execute(f"CREATE TABLE t (x {name}); INSERT INTO t VALUES (1); SELECT x + 1 FROM t")


def cases() -> list[tuple[str, list[str]]]:
    """Name and values."""
    pairs = [*SCALARS.items(), ("collated", COLLATED)]
    for name in (*SEVERAL_FORMS, "ENUM", "VARCHAR", "collated"):
        type_, values = ("VARCHAR", COLLATED) if name == "collated" else (name, SCALARS[name])
        if name not in SEVERAL_FORMS:
            values = values[:8]
        pairs += [
            (f"{name} in {kind}", inner)
            for kind, inner in nested_literals(values, type_ if name != "ENUM" else "ENUM('a', 'A', 'b')").items()
        ]
    return pairs


ALL = cases()


def make_table(connection: duckdb.DuckDBPyConnection, values: list[str]) -> None:
    """Make the table ``t`` of values."""
    try:
        connection.execute(f"CREATE TABLE t AS {rows_of(values)}")
    except duckdb.Error:
        assert DUCKDB_1
        pytest.skip("the older DuckDB has no such values")


def quick(cases: list[Any], every: int) -> list[Any]:
    """Every third of the scalars, and one in ``every`` of the nested ones, is in the quick lane."""
    return [
        pytest.param(*case, id=case[0], marks=[pytest.mark.slow] if i % (every if " in " in case[0] else 3) else [])
        for i, case in enumerate(cases)
    ]


@pytest.mark.cases(1)
@pytest.mark.parametrize(("name", "values"), quick(ALL, 21))
def test_equal_values_look_equal(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path, name: str, values: list[str]
) -> None:
    make_table(connection, values)
    raw = told_apart(connection, "t", tmp_path)
    if name in SEVERAL_FORMS or name.startswith(("FLOAT in", "DOUBLE in", "INTERVAL in")):
        assert raw, "no value is odd: the test would find nothing"
    relation = bound(connection, table="t")
    assert told_apart(connection, relation, tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE"])
@pytest.mark.parametrize("way", ["arrow", "parquet", "list in parquet", "struct in parquet"])
def test_parquet_statistics_do_not_hide_nan(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path, kind: str, way: str
) -> None:
    """Statistics of a Parquet file ignore NaN: an engine may conclude that the column has no NaN."""
    arrow = odd_floats(kind)
    column = arrow.column("x").combine_chunks()
    if way.startswith("list"):
        column = pa.ListArray.from_arrays(pa.array(range(len(column) + 1), pa.int32()), column)
    elif way.startswith("struct"):
        column = pa.StructArray.from_arrays([column], ["a"])
    arrow = arrow.set_column(1, "x", column)
    if way == "arrow":
        relation = bound(connection, arrow)
    else:
        pq.write_table(arrow, tmp_path / "odd.parquet")
        relation = bound(connection, files=(str(tmp_path / "odd.parquet"),))
    nans = sum(map(math.isnan, odd_floats(kind).column("x").to_pylist()))
    assert len(equal_pairs(connection, relation)) >= nans * (nans - 1) / 2 + 1, "those of NaN, and those of zero"
    assert told_apart(connection, relation, tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize(("name", "values"), quick(ALL, 60)[4:])
def test_equal_values_look_equal_in_a_live_view(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path, name: str, values: list[str]
) -> None:
    """The collation that readers set does not matter, except for texts in lists, and no view groups by lists."""
    make_table(connection, values)
    type_ = DuckDBEngine(connection).types(sqlglot.exp.to_table("t"))["x"]
    connection.execute(f"CREATE VIEW v AS SELECT i, {fixed_column('x', type_).sql('duckdb')} AS x FROM t")
    if " in " not in name:
        connection.execute("SET default_collation = 'nocase'")
    assert told_apart(connection, "v", tmp_path) == []
    assert "ENUM" not in connection.execute("SELECT sql FROM duckdb_views() WHERE view_name = 'v'").fetchall()[0][0]
