"""One small table, and by hand the best generalization of it by each measure."""

from __future__ import annotations

import math
from collections.abc import Iterator

import duckdb
import pytest

from sqlanon.measures import MEASURES
from support.databases import connect_to, live_connection
from support.policies import make_policy

pytestmark = pytest.mark.slow

# Seven rows; two may be suppressed. Below: p and q are g, r and s are h. At level 0 the classes p and q are
# kept, of three and two rows, and r and s are suppressed; at level 1 there are classes of five and two rows.
ROWS = "pppqqrs"
OPTIMA = {
    "loss": (0, 2 / 7),
    "precision": (0, 2 / 7),
    "height": (0, 0),
    "relative_height": (0, 0),
    "discernibility": (0, 3**2 + 2**2 + 7 * 2),
    "average_class_size": (0, 7 / 3),
    "distinct": (0, 2),
    "suppression": (1, 0),
    "entropy": (0, 2),  # two suppressed rows have two values
}
# With no row to suppress.
WHOLE = {
    "loss": 1 / 3,
    "precision": 1 / 2,
    "height": 1,
    "relative_height": 1 / 2,
    "discernibility": 5**2 + 2**2,
    "average_class_size": 7 / 2,
    "distinct": 2,
    "suppression": 0,
    "entropy": 3 * math.log2(5 / 3) + 2 * math.log2(5 / 2) + 2 * math.log2(2),
}


@pytest.fixture(scope="module")
def live() -> Iterator[duckdb.DuckDBPyConnection]:
    with live_connection() as connection:
        connection.execute(f"CREATE TABLE t AS SELECT unnest({list(ROWS)}) AS x")
        connection.execute(
            "CREATE TABLE tree AS FROM (VALUES ('p', 'g', '*'), ('q', 'g', '*'), ('r', 'h', '*'), ('s', 'h', '*')) "
            "AS r(ground, middle, top)"
        )
        yield connection


@pytest.mark.cases(3)
@pytest.mark.parametrize("measure", MEASURES)
def test_each_measure_has_its_optimum(measure: str, live: duckdb.DuckDBPyConnection) -> None:
    attributes = {"x": {"table": "tree"}}
    with connect_to(live) as db:
        result = db.anonymize(make_policy(attributes, search={"measure": measure, "suppression_limit": 0.3}))
        whole = db.anonymize(make_policy(attributes, search={"measure": measure}))
    level, score = OPTIMA[measure]
    assert (result.generalization, result.suppressed_rows) == ({"x": level}, 0 if level else 2)
    assert result.score == pytest.approx(score, abs=1e-12)
    assert whole.generalization == {"x": 1}
    assert whole.score == pytest.approx(WHOLE[measure], abs=1e-12)
