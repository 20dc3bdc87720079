"""A policy has the same result in Spark as in DuckDB, whichever way the counts take; and no row leaves Spark."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from spark_cases import BELOW, BELOW_IT, FULL_DOMAIN, SparkCase, below_full_domain, in_duckdb, random_case, turn
from spark_tables import PLANTED, into_spark, outcome, plain_policy, planted_table

import sqlanon
from sqlanon.engines.federation import FederatedEngine
from sqlanon.engines.spark.engine import SparkEngine
from support.lanes import examples
from support.thresholds import SMALL_SET, SMALL_SPARK

pytestmark = pytest.mark.spark

WAYS: dict[str, tuple[int, dict[str, Any]]] = {
    "small": (500_000, {}),  # one GROUP BY of all combinations
    "large": (5, {}),  # each column's values first, then coded combinations
    "huge": (5, {"fetch_limit": 1}),  # these stay in Spark, and generalizations are counted there
}
"""The ways of the counts: the number of rows from which a source is large; and ``[source]``."""


def take(way: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Have a way taken; what of ``[source]`` it needs for that."""
    small, source = WAYS[way]
    monkeypatch.setattr(SMALL_SPARK, small)
    monkeypatch.setattr(SMALL_SET, small)
    return source


def check_same(session: Any, case: SparkCase, source: dict[str, Any], folder: Path, number: int) -> None:
    with in_duckdb(case.table) as connection:
        expected = outcome(connection, case.policy(), folder)
    # Spark makes no frame of an Arrow table without rows that has a type for each column.
    into_spark(session, case.table, "contract", folder / "t.parquet" if number % 2 or not case.table else None)
    figures = outcome(session, case.policy(table="contract", **source), folder)
    score, spark_score = expected.pop("score", 0.0), figures.pop("score", 0.0)
    assert figures == expected
    assert math.isclose(score, spark_score, rel_tol=1e-9, abs_tol=1e-12)  # the order of additions


TURNS = ["small", "large", "small", "large", "huge"]
"""The ways of the examples: as many as have nothing in common with what else comes in turn."""


@pytest.mark.parametrize("seed", range(examples(FULL_DOMAIN)))
def test_spark_and_duckdb_make_equal_full_domain_releases(
    session: Any, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every requirement, measure and strategy is tested in turn."""
    source = take(TURNS[seed % len(TURNS)], monkeypatch)
    check_same(session, random_case(seed, tmp_path), source, tmp_path, seed)


@pytest.mark.parametrize("seed", range(examples(BELOW_IT)))
def test_spark_and_duckdb_make_equal_local_releases(
    session: Any, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Strategies that place rows one by one, on combinations that are fetched."""
    source = take(["small", "large"][turn(seed) // len(BELOW) % 2], monkeypatch)
    check_same(session, random_case(seed, tmp_path, below_full_domain), source, tmp_path, seed)


# --- what is fetched ------------------------------------------------------------------------------


@dataclass
class Watched:
    """The tables that were fetched from Spark, and the local names of the tables that stay there."""

    fetched: list[pa.Table] = field(default_factory=list)
    stayed: list[str] = field(default_factory=list)

    def planted(self) -> set[str]:
        """Planted values that were fetched."""
        texts = (str(value) for table in self.fetched for column in table.columns for value in column.to_pylist())
        return {text for text in texts if PLANTED in text}


@pytest.fixture
def watched_fetches(monkeypatch: pytest.MonkeyPatch) -> Watched:
    seen = Watched()
    stream, rows, write = SparkEngine.stream, SparkEngine.rows, SparkEngine.write_parquet
    adopt = FederatedEngine.register_remote

    @contextmanager
    def watch_stream(self: SparkEngine, *args: Any) -> Iterator[pa.RecordBatchReader]:
        with stream(self, *args) as reader:
            table = reader.read_all()
            seen.fetched.append(table)
            yield table.to_reader()

    def watch_rows(self: SparkEngine, *args: Any) -> list[tuple[Any, ...]]:
        fetched_rows = rows(self, *args)
        columns = list(zip(*fetched_rows, strict=True))
        seen.fetched.append(pa.table({f"c{i}": [str(value) for value in column] for i, column in enumerate(columns)}))
        return fetched_rows

    def watch_write(self: SparkEngine, query: Any, *args: Any) -> Any:
        with stream(self, query) as reader:
            seen.fetched.append(reader.read_all())
        return write(self, query, *args)

    def watch_adoption(self: FederatedEngine, shadow: Any, *args: Any, **kwargs: Any) -> None:
        seen.stayed.append(shadow.name)
        adopt(self, shadow, *args, **kwargs)

    monkeypatch.setattr(SparkEngine, "stream", watch_stream)
    monkeypatch.setattr(SparkEngine, "rows", watch_rows)
    monkeypatch.setattr(SparkEngine, "write_parquet", watch_write)
    monkeypatch.setattr(FederatedEngine, "register_remote", watch_adoption)
    return seen


@pytest.mark.least(2)
@pytest.mark.parametrize("way", [*WAYS][::-1])
def test_source_rows_are_never_fetched(
    session: Any, way: str, watched_fetches: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only grouped values of a source are fetched. A column without requirements comes with the release alone, and
    unreleased columns never."""
    source = take(way, monkeypatch)
    table = planted_table()
    into_spark(session, table, "planted")
    combinations = len(table.group_by(["zip", "age", "ill"]).aggregate([]))
    with sqlanon.connect(session) as db:
        result = db.anonymize(plain_policy(**source))
        assert watched_fetches.fetched
        assert watched_fetches.planted() == set()
        assert all(len(table) <= combinations for table in watched_fetches.fetched)
        assert ("codes" in watched_fetches.stayed) == (way != "small")
        assert ("frequency_0" in watched_fetches.stayed) == (way == "huge")
        if way == "huge":  # what is fetched of combinations are figures; and the values of single columns
            values = max(len(set(table[column].to_pylist())) for column in ("zip", "age", "ill"))
            assert all(len(table) <= values for table in watched_fetches.fetched)
        watched_fetches.fetched.clear()
        release = result.publish(tmp_path / "r.duckdb")
        assert release.manifest.released_rows == result.released_rows
    planted = watched_fetches.planted()
    assert len(planted) == result.released_rows
    assert not any("name" in text for text in planted)
    released = [table for table in watched_fetches.fetched if "note" in table.column_names]
    assert [table.column_names for table in released] == [["zip", "age", "ill", "note"]]


@pytest.mark.thorough
def test_local_strategies_over_the_fetch_limit_are_refused_before_counting(
    session: Any, monkeypatch: pytest.MonkeyPatch, watched_fetches: Watched
) -> None:
    """Combinations that may not be fetched cannot be placed one by one."""
    monkeypatch.setattr(SMALL_SPARK, 5)
    into_spark(session, planted_table(), "planted")
    tree = plain_policy(fetch_limit=1).model_dump(mode="json", exclude_none=True)
    for search in ({"strategy": "mondrian"}, {"suppression": "cells"}, {"strategy": "local"}):
        with sqlanon.connect(session) as db, pytest.raises(sqlanon.SourceError, match="fetch_limit"):
            db.anonymize(sqlanon.Policy(**{**tree, "search": search}))
    assert watched_fetches.planted() == set()


def test_released_in_random_order(session: Any, tmp_path: Path) -> None:
    """A sort that is not the last is dropped by Spark: rows would come in the order of the source."""
    into_spark(session, planted_table(400), "planted")
    with sqlanon.connect(session) as db:
        path = db.anonymize(plain_policy()).publish(tmp_path / "r.duckdb").path
    with duckdb.connect(str(path), read_only=True) as connection:
        order = [int(note[len(PLANTED) :]) for (note,) in connection.execute("SELECT note FROM r").fetchall()]
    rising = sum(number < next_ for number, next_ in itertools.pairwise(order))
    assert 0.4 < rising / len(order) < 0.6
