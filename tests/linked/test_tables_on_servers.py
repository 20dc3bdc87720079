"""Linked tables on a server: every generalization keeps what it keeps in DuckDB, and the optimum is the oracle's."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from oracles.oracle_linked import best
from properties.linked_cases import small_cases
from sqlanon.database import connect
from sqlanon.errors import InfeasibleError
from sqlanon.linked.records import encode_tables
from sqlanon.linked.search import LinkedTask
from sqlanon.policy.linked import LinkedPolicy
from support.lanes import examples
from support.linked_cases import InPostgres, InSpark, LinkedServer, load_case
from support.postgres_cases import schemas

__all__ = ["schemas"]  # fixtures


@pytest.fixture(params=["postgres", pytest.param("spark", marks=pytest.mark.spark)])
def server(request: pytest.FixtureRequest) -> LinkedServer:
    """PostgreSQL, whose peeling takes the steps of large tables, or Spark; each with an empty schema ``clinic``."""
    if request.param == "spark":
        pytest.importorskip("pyspark", reason="the extra spark is not installed")
        return InSpark(request.getfixturevalue("clinic"))
    pytest.importorskip("adbc_driver_postgresql.dbapi", reason="the extra postgres is not installed")
    return InPostgres(request.getfixturevalue("schemas"))


def test_the_optimum_is_the_oracles(server: LinkedServer, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if isinstance(server, InPostgres):  # they would take long in Spark
        request.getfixturevalue("steps_of_large_tables")
    most_generalizations, number = server.cases_of_optimum
    for case in small_cases(most_generalizations, examples(number)):
        expected = best(case.database, case.k, case.known, case.allowed_persons, case.weights)
        _, tree = load_case(server, case, tmp_path)
        with server.connect() as db:
            try:
                result = db.anonymize(LinkedPolicy(**tree, source=server.source))
            except InfeasibleError:
                assert expected is None
                continue
        assert expected is not None
        assert result.score == pytest.approx(expected.score)
        assert result.levels == expected.levels
        assert result.suppressed_persons == expected.suppressed_persons


FEATURES: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "rows": ({}, {"row_suppression_limit": 0.3}),
    "recursive": ({"l_diversity": [{"attribute": "t0.s", "kind": "recursive", "l": 2, "c": 2}]}, {}),
    "confidence": ({"confidence": [{"attribute": "t1.s", "max": 0.6}]}, {}),
    "distinct": ({"l_diversity": [{"attribute": "t0.s", "kind": "distinct", "l": 2}]}, {}),
    "entropy": ({"l_diversity": [{"attribute": "t0.s", "kind": "entropy", "l": 1.5}]}, {}),
    "alpha_k": ({"alpha_k": [{"attribute": "t0.s", "alpha": 0.7}]}, {}),
}
"""Additions to ``[privacy]`` and ``[search]``."""


QUICK = ("rows", "recursive", "confidence")


@pytest.mark.least(4)  # some of them in Spark
@pytest.mark.parametrize(
    "feature", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in FEATURES]
)
def test_every_generalization_keeps_what_duckdb_keeps(server: LinkedServer, tmp_path: Path, feature: str) -> None:
    """Other tests hold what DuckDB keeps against oracles."""
    privacy, search = FEATURES[feature]
    number, count = list(FEATURES).index(feature), len(FEATURES)
    cases = small_cases(server.most_generalizations, count * server.cases_of_feature, first=100)
    for case in cases[number : count * examples(server.cases_of_feature) : count]:
        connection, tree = load_case(server, case, tmp_path)
        tree["privacy"] |= privacy
        tree["search"] |= search
        with server.connect() as db, connect(connection) as local_db:
            task, local_task = (
                LinkedTask(encode_tables(database._workspace, LinkedPolicy(**tree, source=source)), lambda *_: None)
                for database, source in ((db, server.source), (local_db, {}))
            )
            for levels in itertools.product(*(range(height + 1) for height in case.database.heights)):
                assert task.check(levels) == local_task.check(levels), levels
