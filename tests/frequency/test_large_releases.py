"""A release of a table that is counted from codes is the release of the same table counted from its values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from support.lanes import some
from support.thresholds import COARSE_SET, ROWS_PER_CODE, SMALL_SET

pytestmark = pytest.mark.thorough

PEOPLE = """
    SELECT CASE WHEN i % 17 = 0 THEN NULL ELSE i % 2 END AS sex,
           1900 + floor(100 * pow((hash(i, 1) % 1000) / 1000, 1.5))::INTEGER AS birth,
           lpad((floor(300 * pow((hash(i, 2) % 10000) / 10000, 2)))::INTEGER::VARCHAR, 4, '0') AS zip,
           CASE WHEN hash(i, 9) % 50 = 0 THEN 'odd' ELSE 'w' || (hash(i, 3) % 7) END AS work,
           CASE WHEN i % 31 = 0 THEN NULL ELSE 'd' || (hash(i, 4) % 5) END AS diagnosis,
           hash(i, 7) % 4 AS ward
    FROM range(2000) AS r(i)
"""
"""Some values are missing, and some missing from their hierarchy."""

ATTRIBUTES = {
    "sex": {"role": "quasi", "hierarchy": "suppress"},
    "birth": {"role": "quasi", "hierarchy": {"intervals": [5, 20, 100]}},
    "zip": {"role": "quasi", "hierarchy": {"mask": "right"}},
    "work": {
        "role": "quasi",
        "hierarchy": {"categories": {"a": ["w0", "w1", "w2"], "b": ["w3", "w4", "w5", "w6"]}},
        "on_unknown": "suppress",
    },
    "diagnosis": {
        "role": "sensitive",
        "hierarchy": {"categories": {"x": ["d0", "d1"], "y": ["d2", "d3", "d4"]}},
    },
    "ward": {"role": "sensitive"},
}

CASES: dict[str, dict[str, Any]] = {
    "k": {"privacy": {"k": 5}},
    "two": {
        "privacy": {
            "k": 3,
            "l_diversity": [
                {"attribute": "diagnosis", "kind": "entropy", "l": 2},
                {"attribute": "ward", "kind": "distinct", "l": 2},
            ],
        }
    },
    "ordered": {"privacy": {"k": 3, "t_closeness": [{"attribute": "diagnosis", "distance": "ordered", "t": 0.5}]}},
    "nodes": {"privacy": {"k": 3, "t_closeness": [{"attribute": "diagnosis", "distance": "hierarchical", "t": 0.6}]}},
    "shields": {"privacy": {"k_anonymity": [{"quasi": ["sex", "zip"], "k": 5}, {"quasi": ["birth", "work"], "k": 5}]}},
    "masked": {"privacy": {"k": 5}, "release": {"suppressed": "mask"}},
    "entropy": {"privacy": {"k": 4}, "search": {"measure": "entropy"}},
    "samarati": {"privacy": {"k": 4}, "search": {"strategy": "samarati"}},
    "mondrian": {"privacy": {"k": 4}, "search": {"strategy": "mondrian"}},
}


@pytest.mark.parametrize("name", some([*CASES], 9))
def test_codes_change_no_release(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case, outcomes, scores = CASES[name], [], []
    monkeypatch.setattr(COARSE_SET, 4)
    monkeypatch.setattr(ROWS_PER_CODE, 1 / 64)
    for size in (0, 10**9):
        monkeypatch.setattr(SMALL_SET, size)
        place = tmp_path / f"release_{size}.duckdb"
        policy = sqlanon.Policy(
            source={"table": "people"},
            attributes=ATTRIBUTES,
            privacy=case["privacy"],
            search={"suppression_limit": 0.1, **case.get("search", {})},
            release={"database": place, "table": "people", **case.get("release", {})},
        )
        connection = duckdb.connect()
        connection.execute(f"CREATE TABLE people AS {PEOPLE}")
        with sqlanon.connect(connection) as database:
            result = database.anonymize(policy)
            digest = result.publish(place).manifest.digest
        outcomes.append((result.generalization, result.suppressed_rows, result.classes, digest))
        scores.append(result.score)
    assert outcomes[0] == outcomes[1]
    assert scores[0] == pytest.approx(scores[1], rel=1e-12), "sums of the same numbers in another order"
