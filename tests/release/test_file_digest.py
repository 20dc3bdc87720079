"""The digest of many rows, where each value of a column that repeats is hashed once: the number of the macro."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.release.digests import (
    approximate_counts,
    columns_to_hash_once,
    digest_by_value,
    has_repeated_values,
)
from sqlanon.requirements.macros import call_digest
from sqlanon.support.expressions import table
from sqlanon.support.resources import read_sql_file

NAMES = ("x", 'a"b', "select", "STRUCT(a")

VALUES = {
    "DECIMAL(9,2)": ("0.00", "-0.01", "1234567.89", "0.10", "NULL"),
    "DECIMAL(38,10)": ("0", "-1234567890123456789012345678.0000000001", "NULL"),
    "DATE": ("'2020-01-01'", "'0044-03-15 (BC)'", "'infinity'", "NULL"),
    "TIMESTAMP": ("'2020-01-01 00:00:00'", "'2020-01-01 00:00:00.000001'", "'-infinity'", "NULL"),
    "TIMESTAMP WITH TIME ZONE": ("'2020-01-01 00:00:00+00'", "NULL"),
    "UUID": ("'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'", "NULL"),
    "HUGEINT": ("170141183460469231731687303715884105727", "-1", "NULL"),
    "UBIGINT": ("18446744073709551615", "0", "NULL"),
    "UTINYINT": ("255", "0", "NULL"),
    "BLOB": (r"'\x00\xFF'", "''", "NULL"),
    "BIGINT": ("9223372036854775807", "-9223372036854775808", "0", "-1", "NULL"),
    "TINYINT": ("127", "-128", "0", "NULL"),
    "BOOLEAN": ("true", "false", "NULL"),
    "VARCHAR": ("'ä'", "''", "'NULL'", "NULL"),
    "DOUBLE": ("0.0", "-0.0", "'nan'", "1e300", "0.1", "NULL"),
    "FLOAT": ("0.1", "-0.0", "NULL"),
    "TIME": ("'12:00:00'", "NULL"),
    "INTERVAL": ("'1 month'", "'30 days'", "NULL"),
    "INTEGER[]": ("[1, NULL]", "[]", "NULL"),
    "VARCHAR COLLATE NOCASE": ("'A'", "'a'", "NULL"),
}


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[DuckDBEngine]:
    with closing(DuckDBEngine.open_private(tmp_path)) as engine:
        engine.script(read_sql_file("macros.sql"))
        yield engine


def make(engine: DuckDBEngine, *types: str) -> None:
    """A table with each combination of the values of some types; some twice."""
    lists = [
        f"(SELECT unnest([{', '.join(f'({value})::{type_}' for value in VALUES[type_])}]) AS v)" for type_ in types
    ]
    quoted = ['"' + name.replace('"', '""') + '"' for name in NAMES]
    columns = ", ".join(f"l{i}.v AS {quoted[i]}" for i in range(len(types)))
    joined = " CROSS JOIN ".join(f"{values} AS l{i}" for i, values in enumerate(lists))
    engine.connection.execute(f"CREATE OR REPLACE TABLE t AS SELECT {columns} FROM {joined} CROSS JOIN range(2)")


def digest_of(engine: DuckDBEngine, names: list[str]) -> str:
    return str(engine.rows(digest_by_value(table("t"), engine.columns(table("t")), names))[0][0])


@pytest.mark.slow
@pytest.mark.cases(1)
@pytest.mark.parametrize("type_", VALUES)
@pytest.mark.parametrize("second_type", ["VARCHAR", "BIGINT", "DECIMAL(9,2)"])
def test_the_digest_is_that_of_the_macro(engine: DuckDBEngine, type_: str, second_type: str) -> None:
    make(engine, type_, second_type, "DATE", "INTEGER[]")
    expected = engine.rows(call_digest("t"))[0][1]
    names = columns_to_hash_once(engine.columns(table("t")))
    assert "select" in names
    for repeating in ([], names[:1], names):
        assert digest_of(engine, repeating) == expected


def test_values_with_distinct_texts_are_hashed_separately(engine: DuckDBEngine) -> None:
    """-0.0 equals 0.0, a month 30 days, and 'A' 'a' in some columns."""
    for type_ in ("DOUBLE", "FLOAT", "INTERVAL", "INTEGER[]", "VARCHAR COLLATE NOCASE", "BIGINT", "VARCHAR"):
        make(engine, type_)
        assert not columns_to_hash_once(engine.columns(table("t")))


def test_no_rows_have_the_digest_of_the_macro(engine: DuckDBEngine) -> None:
    make(engine, "DATE", "VARCHAR")
    engine.connection.execute("DELETE FROM t")
    assert digest_of(engine, ["x"]) == engine.rows(call_digest("t"))[0][1] == "0"


def test_few_values_in_many_rows_are_repeated_values(engine: DuckDBEngine) -> None:
    columns = "(i % 100)::DECIMAL(9, 2) AS x, DATE '2000-01-01' + i::INTEGER AS y"
    engine.connection.execute(f"CREATE TABLE t AS SELECT {columns} FROM range(5000) AS r(i)")
    few, many = engine.rows(approximate_counts(table("t"), ["x", "y"]))[0]
    assert few < 150
    assert many > 4000
    assert has_repeated_values(few, 1_000_000)
    assert not has_repeated_values(500_000, 1_000_000)
    assert not has_repeated_values(3_000_000, 100_000_000)
