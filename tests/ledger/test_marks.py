"""The rows of a source that an earlier release has: counted, and marked."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import duckdb
import pytest

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.ledger.growth.marks import (
    EarlierAttribute,
    add_empty_marks,
    count_marked_rows,
    count_rows_in_both,
    mark_rows_by_values,
)
from sqlanon.support.coding import CodedAttribute
from sqlanon.support.expressions import subquery, table
from sqlanon.support.names import EARLIER_RELEASES_COLUMN


@pytest.mark.cases(2)
@pytest.mark.parametrize("seed", range(8))
def test_as_many_rows_are_counted_as_are_marked(seed: int, tmp_path: Path) -> None:
    """Rows that read alike, more or fewer in the release than in the source, NULLs, labels and tops."""
    draw = random.Random(seed)
    engine = DuckDBEngine.open_private(tmp_path)
    run = engine.connection.execute
    run("CREATE TABLE source (a INT, b VARCHAR, c INT)")
    run("CREATE TABLE shown (a VARCHAR, b VARCHAR, c INT)")
    run("CREATE TABLE labels AS FROM (VALUES (0, 'low'), (1, 'low'), (2, 'high'), (NULL, NULL)) AS l(value, label_1)")
    values: dict[Any, str | None] = {0: "low", 1: "low", 2: "high", None: None}
    pick = lambda: (draw.choice([*values]), draw.choice(["x", "y", None]), draw.choice([1, 2, None]))  # noqa: E731
    source = [pick() for _ in range(draw.randrange(1, 40))]
    released = [
        (values[a], "*", c) for a, _, c in [*draw.sample(source, len(source) // 2), *(pick() for _ in range(5))]
    ]
    run("SET threads = 1")
    engine.connection.executemany("INSERT INTO source VALUES (?, ?, ?)", source)
    engine.connection.executemany("INSERT INTO shown VALUES (?, ?, ?)", released)
    run("CREATE TABLE rows_ AS " + add_empty_marks(table("source"), ["a", "b", "c"]).sql("duckdb"))
    coded, second = CodedAttribute("a", 2, table("labels")), CodedAttribute("b", 1, table("labels"))
    attributes = [EarlierAttribute(coded, 1, "*", "a"), EarlierAttribute(second, 1, "*", "b")]
    for generalized, shared in ((attributes, [("c", "c")]), (attributes, []), ([], [("c", "c")]), ([], [])):
        marks = mark_rows_by_values(table("rows_"), ["a", "b", "c"], generalized, shared, table("shown"), 1)
        expected = engine.rows(count_marked_rows(subquery(marks, "m"), 1))[0][1]
        assert engine.rows(count_rows_in_both(table("rows_"), generalized, shared, table("shown"))) == [(expected,)]
    least = sum(
        min(sum((values[a], c) == group for a, _, c in source), sum((a, c) == group for a, _, c in released))
        for group in {(a, c) for a, _, c in released}
    )
    assert engine.rows(count_rows_in_both(table("rows_"), attributes, [("c", "c")], table("shown"))) == [(least,)]
    engine.close()


def test_among_equal_rows_those_in_other_releases_are_marked_first() -> None:
    """Then as few people as possible are in either release. Ties are broken by values, the same on every run."""
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE rows_ AS "
            "FROM (VALUES ('x', 1, 0), ('x', 2, 1), ('x', 3, 0), ('y', 4, 1), ('y', 5, 3), (NULL, 6, 0)) "
            f'AS v(c, id, "{EARLIER_RELEASES_COLUMN}")'
        )
        connection.execute("CREATE TABLE shown AS FROM (VALUES ('x'), ('x'), ('y'), (NULL)) AS v(c)")
        marks = mark_rows_by_values(table("rows_"), ["c", "id"], [], [("c", "c")], table("shown"), 4)
        rows = connection.execute(
            f'SELECT id, "{EARLIER_RELEASES_COLUMN}" FROM ({marks.sql("duckdb")}) ORDER BY id'
        ).fetchall()
        assert rows == [(1, 4), (2, 5), (3, 0), (4, 1), (5, 7), (6, 4)]
        row = connection.execute(count_marked_rows(subquery(marks, "m"), 3).sql("duckdb")).fetchone()
        assert row == (6, 3, 1, 4)
        connection.execute("DELETE FROM shown")
        none = count_rows_in_both(table("rows_"), [], [("c", "c")], table("shown"))
        assert connection.execute(none.sql("duckdb")).fetchone() == (0,)
