"""The place of a row among those of its class says nothing about its place in the source: tried by matching places.

Every source row holds its position, in a column that is released unchanged. The figures below have a known
distribution for a random order; seven standard deviations are a trace of the old order.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from support.lanes import some
from support.policies import make_policy

pytestmark = pytest.mark.thorough

ROWS = 300_000
"""Three row groups of a DuckDB file, the last one not full."""

VECTOR = 2048
NEAR = 16


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shuffle") / "source.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT i AS place, 'z' || lpad((i * 7919 % 1000)::VARCHAR, 3, '0') AS zip, "
            "CASE WHEN i % 50000 = 7 THEN i ELSE i // 100000 END AS ward, "
            "i * 7919 % 300000 AS moment, 'note ' || i % 10 AS note "
            f"FROM range({ROWS}) AS r(i)"
        )
    return path


def traces(connection: duckdb.DuckDBPyConnection, relation: str) -> list[str]:
    """The traces of the old order: ``place`` is the former position of a row, ``rowid`` its position."""
    connection.execute(f"""
        CREATE OR REPLACE TEMP TABLE moved AS
        SELECT was, pos, lead(was) OVER (ORDER BY pos) AS next_was, lead(pos) OVER (ORDER BY was) AS next_pos
        FROM (SELECT row_number() OVER (ORDER BY place) - 1 AS was, row_number() OVER (ORDER BY rowid) - 1 AS pos
              FROM {relation})
    """)
    (rows,) = connection.execute("SELECT count(*) FROM moved").fetchall()[0]
    # Mean, and variance, of what each figure is for a random order.
    expected = {
        "correlation": ("corr(was, pos)", 0, 1 / rows),
        "ascending in the release": ("count(*) FILTER (next_was > was)", (rows - 1) / 2, rows / 12),
        "ascending in the source": ("count(*) FILTER (next_pos > pos)", (rows - 1) / 2, rows / 12),
        "old neighbours": (f"count(*) FILTER (abs(next_was - was) <= {NEAR})", 2 * NEAR, 2 * NEAR),
        "new neighbours": (f"count(*) FILTER (abs(next_pos - pos) <= {NEAR})", 2 * NEAR, 2 * NEAR),
    }
    names = [
        name
        for name, (figure, mean, variance) in expected.items()
        if abs(connection.execute(f"SELECT {figure} FROM moved").fetchall()[0][0] - mean) > 7 * variance**0.5
    ]
    # Windows of either order: where their rows are, or were, on average; and whether they are in the old order inside.
    for window, measured in (("was", "pos"), ("pos", "was")):
        for size in (VECTOR, 122_880):
            squares, inside, windows = connection.execute(f"""
                SELECT sum(12 * n * pow((mean + 0.5) / {rows} - 0.5, 2)), sum(c * sqrt(n)) / sqrt(count(*)), count(*)
                FROM (SELECT count(*) AS n, avg({measured}) AS mean, corr(was, pos) AS c
                      FROM moved GROUP BY {window} // {size} HAVING n > 100)
            """).fetchall()[0]
            if squares > windows + 7 * (2 * windows) ** 0.5:
                names.append(f"windows of {size} by {window}: where")
            if abs(inside) > 7:
                names.append(f"windows of {size} by {window}: inside")
    return names


@pytest.mark.parametrize(
    "limits", some([{"threads": 2, "memory_limit": "100MB"}, {"threads": 1}, {"threads": 4}], 3), ids=str
)
def test_a_release_shows_nothing_of_the_order_of_its_source(
    limits: dict[str, Any], source: Path, tmp_path: Path
) -> None:
    """On one thread and several, in memory and spilled; some rows are suppressed, and labels looked up."""
    attributes = {
        "place": "insensitive",
        "zip": {"role": "quasi", "hierarchy": {"mask": "right"}, "min_level": 4},
        "ward": {"role": "quasi", "hierarchy": "suppress", "max_level": 0},
        # As many values as rows, and few labels: whoever guesses how many rows come out of a join guesses wrong.
        "moment": {"role": "quasi", "hierarchy": {"intervals": [100_000]}, "min_level": 1, "max_level": 1},
        "note": "sensitive",
    }
    with sqlanon.connect(source, **limits) as db:
        result = db.anonymize(make_policy(attributes, k=5, search={"suppression_limit": 0.01}))
        release = result.publish(tmp_path / "release.duckdb", "released")
    assert result.suppressed_rows == ROWS // 50_000
    with duckdb.connect(str(release.path), read_only=True) as connection:
        classes = connection.execute("SELECT ward, moment FROM released_v1 GROUP BY ALL ORDER BY ALL").fetchall()
        assert len(classes) == 9
        for ward, moment in classes[::4]:
            query = "CREATE OR REPLACE TEMP TABLE class AS SELECT place FROM released_v1 WHERE ward = ? AND moment = ?"
            connection.execute(f"{query} ORDER BY rowid", [ward, moment])
            assert traces(connection, "class") == []


@pytest.mark.parametrize(
    ("order", "trace"),
    some(
        [
            ("i", "correlation"),
            ("-i", "correlation"),
            # Whole vectors, or row groups, change places.
            (f"hash(i // {VECTOR}), i", "ascending in the release"),
            ("(i // 122880) % 2, i", "old neighbours"),
            # Random buckets, filled in the old order: what a cheap shuffle would do.
            ("hash(i) % 1024, i", "ascending in the release"),
            ("hash(i) % 16, i", "windows of 2048 by pos: inside"),
            # Rows stay in their window.
            (f"i // {VECTOR}, hash(i)", "new neighbours"),
            ("i // 122880, hash(i)", "windows of 122880 by was: where"),
            # Nine of ten rows are moved.
            ("CASE WHEN i % 10 = 0 THEN i ELSE hash(i) % 300000 END", "windows of 2048 by was: where"),
        ],
        4,
    ),
)
def test_an_old_order_that_is_left_is_found(order: str, trace: str) -> None:
    """The control: these figures distinguish a poor shuffle from a good one."""
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE poor AS SELECT i AS place FROM range({ROWS}) AS r(i) ORDER BY {order}")
        assert trace in traces(connection, "poor")


def test_a_good_shuffle_leaves_no_trace() -> None:
    with duckdb.connect() as connection:
        connection.execute(
            f"CREATE TABLE good AS SELECT i AS place FROM range({ROWS}) AS r(i) ORDER BY md5('{ROWS}' || i)"
        )
        assert traces(connection, "good") == []
