"""Which noisy records are linked to their own values: at the border, where two originals are as near."""

from __future__ import annotations

import duckdb
import pytest

from sqlanon.expressions import table
from sqlanon.noise.linking import links
from sqlanon.noise.statements import NoisyColumn

ROWS = [(0, 0, 5), (1, 10, 10), (2, 20, 14)]
"""Record, original, and with noise: between two originals; unchanged; nearer to another."""


@pytest.mark.parametrize("columns", [1, 2])
def test_links(columns: int) -> None:
    both = ", ".join(f"x AS x_{j}, y AS y_{j}" for j in range(columns))
    ranges = ", ".join(f"20.0 AS delta_{j}" for j in range(columns))
    with duckdb.connect() as connection:
        connection.execute(
            f"CREATE TABLE noisy AS SELECT r AS record, 0 AS class, {both} "
            f"FROM (VALUES {str(ROWS)[1:-1]}) AS v(r, x, y)"
        )
        connection.execute(f"CREATE TABLE classes AS SELECT 0 AS class, {ranges}")
        noisy_columns = [NoisyColumn(f"x{j}", "DOUBLE", j, 1.0) for j in range(columns)]
        query = links(table("noisy"), table("classes"), noisy_columns)
        found = connection.execute(query.sql("duckdb")).fetchall()
    assert sorted(found) == [(0, True, False), (1, True, True), (2, False, False)]
