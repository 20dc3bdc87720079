"""DuckDB's optimizer of common subplans returns wrong results, so no statement of sqlanon runs with it."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from sqlanon.engines.duckdb import WRONG_OPTIMIZER, DuckDBEngine
from sqlanon.support.expressions import template

TABLES = """
CREATE TABLE main.tree AS FROM (VALUES (0, 10), (1, 10), (2, 11), (10, 20), (11, 20), (20, NULL)) AS t(node, parent);
CREATE TABLE main.counts AS FROM (VALUES (0, 3), (1, 4), (2, 5)) AS t(leaf, n);
"""
# The rows under the nodes of two levels. DuckDB 1.5.5 to 2.0.1 count those of the lower level twice.
LEVELS = template("""
    SELECT node, sum(n)::INTEGER AS n
    FROM (
        SELECT c.n, b.node
        FROM memory.main.counts AS c
        JOIN memory.main.tree AS a ON c.leaf = a.node
        JOIN memory.main.tree AS b ON a.parent = b.node
    ) AS lower
    GROUP BY node
    UNION ALL
    SELECT node, sum(n)::INTEGER AS n
    FROM (
        SELECT e.n, d.node
        FROM memory.main.counts AS e
        JOIN memory.main.tree AS a ON e.leaf = a.node
        JOIN memory.main.tree AS b ON a.parent = b.node
        JOIN memory.main.tree AS d ON b.parent = d.node
    ) AS upper
    GROUP BY node
""")
RIGHT = [(10, 7), (11, 5), (20, 12)]


def optimizers(engine: DuckDBEngine) -> set[str]:
    """The optimizers that are disabled."""
    return set(filter(None, engine.current_setting("disabled_optimizers").split(",")))


def test_an_engine_of_its_own_counts_right(tmp_path: Path) -> None:
    engine = DuckDBEngine.open_private(tmp_path)
    engine.connection.execute(TABLES)
    assert sorted(engine.rows(LEVELS())) == RIGHT
    assert sorted(engine.connect_beside().rows(LEVELS())) == RIGHT


@pytest.mark.parametrize("disabled", ["", "join_order", f"{WRONG_OPTIMIZER},join_order"])
def test_a_live_connection_counts_right_and_keeps_its_settings(disabled: str) -> None:
    with duckdb.connect(config={"disabled_optimizers": disabled}) as connection:
        connection.execute(TABLES)
        engine = DuckDBEngine(connection)
        assert sorted(engine.rows(LEVELS())) == RIGHT
        assert sorted(engine.connect_beside().rows(LEVELS())) == RIGHT
        assert optimizers(engine) == set(filter(None, disabled.split(",")))


def test_other_optimizers_are_disabled_beside_it(tmp_path: Path) -> None:
    engine = DuckDBEngine.open_private(tmp_path)
    with engine.without_optimizers("join_order"):
        assert optimizers(engine) == {WRONG_OPTIMIZER, "join_order"}
    assert optimizers(engine) == {WRONG_OPTIMIZER}
