"""The SHA-256 of rows: it depends on every value, and not on the order of the rows."""

from __future__ import annotations

from contextlib import closing
from itertools import combinations
from typing import Any

import duckdb
import pytest

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.spark.engine import SparkEngine
from sqlanon.publish.targets.spark.rows import bucket_hashes
from sqlanon.release.digests import hash_buckets, hash_rows
from sqlanon.support.expressions import table

ROWS = [("a", "b", 1), ("b", None, 2), (None, "", 3)]
OTHERS: dict[str, list[tuple[Any, ...]]] = {
    "as they are": ROWS,
    "one row twice": [*ROWS, ROWS[0]],
    "one row fewer": ROWS[1:],
    "another number": [("a", "b", 4), *ROWS[1:]],
    "values that run into each other": [("ab", "", 1), *ROWS[1:]],
    "values of two columns": [("b", "a", 1), *ROWS[1:]],
    "values of two rows": [("a", None, 1), ("b", "b", 2), ROWS[2]],
    "the sign of a length": [("a1:b", "-", 1), *ROWS[1:]],
    "text in place of NULL": [("a", "b", 1), ("b", "NULL", 2), ROWS[2]],
    "nothing in place of NULL": [("a", "b", 1), ("b", "", 2), ROWS[2]],
    "NULL in place of nothing": [("a", "b", 1), ("b", None, 2), (None, None, 3)],
    "no rows": [],
}
TYPES = {"x": "VARCHAR", "y": "VARCHAR", "n": "BIGINT"}


@pytest.mark.slow
def test_other_rows_have_another_hash() -> None:
    with closing(DuckDBEngine(duckdb.connect())) as engine:

        def hash_here(rows: list[tuple[Any, ...]]) -> str:
            engine.connection.execute("CREATE OR REPLACE TABLE r (x VARCHAR, y VARCHAR, n BIGINT)")
            if rows:
                engine.connection.executemany("INSERT INTO r VALUES (?, ?, ?)", rows)
            return hash_rows(engine, table("r"), TYPES)

        hashes = {case: hash_here(rows) for case, rows in OTHERS.items()}
        assert hashes["as they are"] == hash_here(ROWS[::-1])
        texts = [None, "", "-", ":", "a", ":a", "a:"]
        hashes |= {f"{x!r} with {y!r}": hash_here([(x, y, 1)]) for x in texts for y in texts}
    assert not [pair for pair in combinations(hashes, 2) if hashes[pair[0]] == hashes[pair[1]]]


def test_the_hash_of_a_time_depends_on_no_zone() -> None:
    hashes = set()
    for zone in ("UTC", "Asia/Tokyo"):
        with closing(duckdb.connect()) as connection:
            connection.execute("CREATE TABLE r AS SELECT TIMESTAMPTZ '2026-01-01 00:00:00+00' AS t")
            connection.execute("INSERT INTO r VALUES ('infinity'), ('-infinity'), (NULL)")
            connection.execute(f"SET TimeZone = '{zone}'")
            hashes.add(hash_rows(DuckDBEngine(connection), table("r"), {"t": "TIMESTAMP WITH TIME ZONE"}))
    assert len(hashes) == 1


@pytest.mark.spark
def test_other_rows_in_spark_have_another_hash(session: Any) -> None:
    with closing(SparkEngine(session, "the release")) as server:

        def hash_there(rows: list[tuple[Any, ...]]) -> str:
            session.createDataFrame(rows, "x string, y string, n bigint").createOrReplaceTempView("hashed_rows")
            return hash_buckets(server, bucket_hashes(table("hashed_rows"), TYPES))

        hashes = {case: hash_there(rows) for case, rows in OTHERS.items()}
        assert hashes["as they are"] == hash_there(ROWS[::-1])
        assert not [pair for pair in combinations(hashes, 2) if hashes[pair[0]] == hashes[pair[1]]]


@pytest.mark.thorough
def test_a_wide_table_is_hashed() -> None:
    """However many columns a row has, its text is one expression of no depth."""
    names = [f"c{i}" for i in range(1000)]
    with closing(duckdb.connect()) as connection:
        connection.execute(f"CREATE TABLE r AS SELECT {', '.join(f'{i} AS {name}' for i, name in enumerate(names))}")
        digest = hash_rows(DuckDBEngine(connection), table("r"), dict.fromkeys(names, "INTEGER"))
        connection.execute("UPDATE r SET c999 = 0")
        assert hash_rows(DuckDBEngine(connection), table("r"), dict.fromkeys(names, "INTEGER")) != digest
