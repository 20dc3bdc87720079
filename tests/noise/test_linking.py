"""Which noisy records are linked to their own values: at the border, where two originals are as near."""

from __future__ import annotations

import math

import duckdb
import pytest

from sqlanon.noise.linking import (
    linked_records,
    linking_counts,
    nearby_originals,
    nearby_originals_in_all,
    record_pairs,
)
from sqlanon.noise.statements import NoisyColumn
from sqlanon.support.expressions import table

ROWS = [(0, 0, 5), (1, 10, 10), (2, 20, 14)]
"""Record, original, and with noise: between two originals; unchanged; nearer to another."""


@pytest.mark.parametrize("columns", [1, 2])
def test_linking_risk_matches_plain_python(columns: int) -> None:
    text = ", ".join(f"x AS x_{j}, y AS y_{j}" for j in range(columns))
    ranges = ", ".join(f"20.0 AS delta_{j}" for j in range(columns))
    with duckdb.connect() as connection:
        connection.execute(
            f"CREATE TABLE noisy AS SELECT r AS record, 0 AS class, {text} "
            f"FROM (VALUES {str(ROWS)[1:-1]}) AS v(r, x, y)"
        )
        connection.execute(f"CREATE TABLE classes AS SELECT 0 AS class, {ranges}")
        noisy_columns = [NoisyColumn(f"x{j}", "DOUBLE", j, 1.0) for j in range(columns)]
        query = linked_records(table("noisy"), table("classes"), noisy_columns)
        rows = connection.execute(query.sql("duckdb")).fetchall()
    assert sorted(rows) == [(0, True, False), (1, True, True), (2, False, False)]


@pytest.mark.parametrize("confidence", [0.5, 0.9])
@pytest.mark.parametrize("epsilons", [(1.0,), (2.0, 0.5)])
def test_near_are_the_originals_within_the_range_that_holds_the_own_with_confidence(
    confidence: float, epsilons: tuple[float, ...]
) -> None:
    """Laplace noise of scale b is at most w off with 1 - exp(-w/b): of m attributes all are with the confidence where
    each is with its m-th root. Originals stand just within and just beyond either end; another class does not count."""
    delta, count = 8.0, len(epsilons)
    widths = [-delta / epsilon * math.log(1 - confidence ** (1 / count)) for epsilon in epsilons]
    rows = [(0, 0, *((100.0, 100.0) for _ in epsilons))]  # record, class, original and noisy value of each attribute
    for j in range(count):
        for off in (-1.001, -0.999, 0.999, 1.001):
            attributes = [(100.0 + off * widths[i] if i == j else 100.0, 100.0 + 1e6) for i in range(count)]
            rows.append((len(rows), 0, *attributes))
    rows.append((len(rows), 1, *((100.0, 1e6) for _ in epsilons)))
    with duckdb.connect() as connection:
        columns = ", ".join(f"x_{j} DOUBLE, v_{j} DOUBLE" for j in range(count))
        connection.execute(f"CREATE TABLE noisy (record INT, class INT, {columns})")
        for record, class_, *pairs in rows:
            values = [record, class_, *(value for pair in pairs for value in pair)]
            connection.execute(f"INSERT INTO noisy VALUES ({', '.join('?' * len(values))})", values)
        deltas = ", ".join(f"{delta}::DOUBLE AS delta_{j}" for j in range(count))
        connection.execute(
            f"CREATE TABLE classes AS SELECT class, count(*) AS size, {deltas} FROM noisy GROUP BY class"
        )
        noisy = [NoisyColumn(f"x{j}", "DOUBLE", j, epsilon) for j, epsilon in enumerate(epsilons)]
        for j in range(count):
            query = nearby_originals(table("noisy"), table("classes"), noisy, confidence, j)
            connection.execute(f"CREATE TABLE near_{j} AS {query.sql('duckdb')}")
            # Its own, two of the four next to it in this attribute, and those that are next to it in another.
            assert connection.execute(f"SELECT nearby_count FROM near_{j} WHERE record = 0").fetchone() == (
                3 + 4 * (count - 1),
            )
        if count > 1:
            near_tables = [table(f"near_{j}") for j in range(count)]
            query = nearby_originals_in_all(table("noisy"), table("classes"), noisy, confidence, near_tables, k=20)
            counts = dict(connection.execute(query.sql("duckdb")).fetchall())
            assert counts[0] == 1 + 2 * count
            assert counts[1] == counts[len(rows) - 1] == 0


def test_without_noise_all_of_the_class_are_near() -> None:
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE noisy AS SELECT i AS record, i // 3 AS class, 7.0 AS x_0, 7.0 AS v_0 FROM range(6) r(i)"
        )
        connection.execute(
            "CREATE TABLE classes AS SELECT class, count(*) AS size, 0.0 AS delta_0 FROM noisy GROUP BY class"
        )
        query = nearby_originals(table("noisy"), table("classes"), [NoisyColumn("x", "DOUBLE", 0, 1.0)], 0.9, 0)
        assert {n for _, n in connection.execute(query.sql("duckdb")).fetchall()} == {3}


def test_the_linking_risk_is_of_the_records_that_are_kept() -> None:
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE links AS FROM (VALUES (1, true, true), (2, true, false), (3, false, false)) "
            "AS v(record, is_linked, is_strictly_linked)"
        )
        connection.execute("CREATE TABLE kept AS FROM (VALUES (2), (3)) AS v(record)")
        assert connection.execute(linking_counts(table("links"), None).sql("duckdb")).fetchone() == (3, 2, 1)
        assert connection.execute(linking_counts(table("links"), table("kept")).sql("duckdb")).fetchone() == (2, 1, 0)
        connection.execute("CREATE TABLE classes AS FROM (VALUES (3), (2)) AS v(size)")
        assert connection.execute(record_pairs(table("classes")).sql("duckdb")).fetchone() == (13,)
