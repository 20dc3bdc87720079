"""A policy has the same result in Spark as in DuckDB, whichever way the counts take; and no row leaves Spark."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from spark_cases import BELOW, BELOW_IT, FULL_DOMAIN, SparkCase, below_full_domain, in_duckdb, random_case, turn

import sqlanon
from sqlanon.engines.federation import FederatedEngine
from sqlanon.engines.spark.engine import SparkEngine
from support.lanes import examples
from support.thresholds import SMALL_SET, SMALL_SPARK

FIGURES = (
    "rows", "generalization", "classes", "smallest_class", "suppressed_rows", "released_rows", "optimal", "warnings",
)  # fmt: skip

ABOUT_DEPENDENCIES = re.compile(r" narrows? '|whether released columns narrow ")
"""Warnings of what is measured where rows are at hand, and not in Spark."""

WAYS: dict[str, tuple[int, dict[str, Any]]] = {
    "small": (500_000, {}),  # one GROUP BY of all combinations
    "large": (5, {}),  # each column's values first, then coded combinations
    "huge": (5, {"fetch_limit": 1}),  # these stay in Spark, and generalizations are counted there
}
"""The ways of the counts: from so many rows on a source is large; and ``[source]``."""


def take(way: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Have a way taken; what of ``[source]`` it needs for that."""
    small, source = WAYS[way]
    monkeypatch.setattr(SMALL_SPARK, small)
    monkeypatch.setattr(SMALL_SET, small)
    return source


def into_spark(session: Any, table: pa.Table, name: str, parquet: Path | None = None) -> None:
    """Make a view of a table: of a file that DuckDB writes, or of Arrow."""
    if parquet is not None:
        with in_duckdb(table) as connection:
            connection.execute(f"COPY t TO '{parquet}' (FORMAT parquet)")
        session.read.parquet(f"file://{parquet}").createOrReplaceTempView(name)
        return
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415  (it is an extra)

    schema = from_arrow_schema(table.schema, prefer_timestamp_ntz=True)
    session.createDataFrame(table, schema).createOrReplaceTempView(name)


def outcome(source: Any, policy: sqlanon.Policy, folder: Path) -> dict[str, Any]:
    """What comes of a policy: the figures, and the digest of the released rows; or what is said where nothing does."""
    try:
        with sqlanon.connect(source) as db:
            result = db.anonymize(policy)
            release = result.publish(folder / "release.duckdb")
            found = {name: getattr(result, name) for name in FIGURES}
            found["warnings"] = tuple(one for one in result.warnings if not ABOUT_DEPENDENCIES.search(one))
            found |= {"score": result.score, "columns": release.manifest.columns, "digest": release.manifest.digest}
            assert release.verify().verified
            return found
    except sqlanon.SqlanonError as error:
        return {"error": type(error), "says": str(error)}


def check_same(session: Any, case: SparkCase, source: dict[str, Any], folder: Path, number: int) -> None:
    with in_duckdb(case.table) as connection:
        expected = outcome(connection, case.policy(), folder)
    # Spark makes no frame of an Arrow table without rows that has a type for each column.
    into_spark(session, case.table, "contract", folder / "t.parquet" if number % 2 or not case.table else None)
    found = outcome(session, case.policy(table="contract", **source), folder)
    score, other = expected.pop("score", 0.0), found.pop("score", 0.0)
    assert found == expected
    assert math.isclose(score, other, rel_tol=1e-9, abs_tol=1e-12)  # the order of additions


TURNS = ["small", "large", "small", "large", "huge"]
"""The ways of the examples: as many as have nothing in common with what else comes in turn."""


@pytest.mark.parametrize("seed", range(examples(FULL_DOMAIN)))
def test_full_domain_same(session: Any, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every requirement, measure and strategy comes in turn."""
    source = take(TURNS[seed % len(TURNS)], monkeypatch)
    check_same(session, random_case(seed, tmp_path), source, tmp_path, seed)


@pytest.mark.parametrize("seed", range(examples(BELOW_IT)))
def test_below_full_domain_same(session: Any, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Strategies that place rows one by one, on combinations that are fetched."""
    source = take(["small", "large"][turn(seed) // len(BELOW) % 2], monkeypatch)
    check_same(session, random_case(seed, tmp_path, below_full_domain), source, tmp_path, seed)


# --- what is fetched ------------------------------------------------------------------------------


PLANTED = "planted-"


@dataclass
class Watched:
    """All that is fetched of Spark, and the tables that stay there by their names here."""

    fetched: list[pa.Table] = field(default_factory=list)
    stayed: list[str] = field(default_factory=list)

    def planted(self) -> set[str]:
        """What was fetched of the planted values."""
        texts = (str(value) for one in self.fetched for column in one.columns for value in column.to_pylist())
        return {text for text in texts if PLANTED in text}


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    seen = Watched()
    stream, rows, write = SparkEngine.stream, SparkEngine.rows, SparkEngine.write_parquet
    adopt = FederatedEngine.register_remote

    @contextmanager
    def streamed(self: SparkEngine, *args: Any) -> Iterator[pa.RecordBatchReader]:
        with stream(self, *args) as reader:
            table = reader.read_all()
            seen.fetched.append(table)
            yield table.to_reader()

    def listed(self: SparkEngine, *args: Any) -> list[tuple[Any, ...]]:
        found = rows(self, *args)
        columns = list(zip(*found, strict=True))
        seen.fetched.append(pa.table({f"c{i}": [str(one) for one in column] for i, column in enumerate(columns)}))
        return found

    def written(self: SparkEngine, query: Any, *args: Any) -> Any:
        with stream(self, query) as reader:
            seen.fetched.append(reader.read_all())
        return write(self, query, *args)

    def adopted(self: FederatedEngine, shadow: Any, *args: Any, **kwargs: Any) -> None:
        seen.stayed.append(shadow.name)
        adopt(self, shadow, *args, **kwargs)

    monkeypatch.setattr(SparkEngine, "stream", streamed)
    monkeypatch.setattr(SparkEngine, "rows", listed)
    monkeypatch.setattr(SparkEngine, "write_parquet", written)
    monkeypatch.setattr(FederatedEngine, "register_remote", adopted)
    return seen


def planted_table(rows: int = 120) -> pa.Table:
    return pa.table(
        {
            "zip": [f"z{i % 6}" if i % 7 else None for i in range(rows)],
            "age": pa.array([i * 7 % 30 for i in range(rows)], pa.int32()),
            "ill": [f"ill {i % 4}" for i in range(rows)],
            "note": [f"{PLANTED}{i}" for i in range(rows)],
            "name": [f"{PLANTED}name {i}" for i in range(rows)],
        }
    )


ATTRIBUTES = {
    "zip": {"role": "quasi", "hierarchy": "suppress"},
    "age": {"role": "quasi", "hierarchy": {"intervals": [5, 15]}},
    "ill": {"role": "sensitive"},
    "note": {"role": "insensitive"},
    "name": {"role": "identifying"},
}


def plain_policy(table: str = "planted", **source: Any) -> sqlanon.Policy:
    return sqlanon.Policy(
        source={"table": table, **source},
        attributes=ATTRIBUTES,
        privacy={
            "k": 4,
            "l_diversity": [{"attribute": "ill", "kind": "distinct", "l": 2}],
            "t_closeness": [{"attribute": "ill", "distance": "ordered", "t": 0.4}],
            "k_anonymity": [{"quasi": ["zip"], "k": 9}],
        },
        search={"suppression_limit": 0.2},
        release={"table": "r"},
    )


@pytest.mark.parametrize("way", WAYS)
def test_no_row_is_fetched(
    session: Any, way: str, watched: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a source comes what is grouped. A column that no requirement looks at comes with the release alone, and what
    is not released never."""
    source = take(way, monkeypatch)
    table = planted_table()
    into_spark(session, table, "planted")
    combinations = len(table.group_by(["zip", "age", "ill"]).aggregate([]))
    with sqlanon.connect(session) as db:
        result = db.anonymize(plain_policy(**source))
        assert watched.fetched
        assert watched.planted() == set()
        assert all(len(one) <= combinations for one in watched.fetched)
        assert ("codes" in watched.stayed) == (way != "small")
        assert ("frequency_0" in watched.stayed) == (way == "huge")
        if way == "huge":  # what is fetched of combinations are figures; and the values of single columns
            values = max(len(set(table[column].to_pylist())) for column in ("zip", "age", "ill"))
            assert all(len(one) <= values for one in watched.fetched)
        watched.fetched.clear()
        release = result.publish(tmp_path / "r.duckdb")
        assert release.manifest.released_rows == result.released_rows
    planted = watched.planted()
    assert len(planted) == result.released_rows
    assert not any("name" in one for one in planted)
    released = [one for one in watched.fetched if "note" in one.column_names]
    assert [one.column_names for one in released] == [["zip", "age", "ill", "note"]]


@pytest.mark.thorough
def test_below_full_domain_huge(session: Any, monkeypatch: pytest.MonkeyPatch, watched: Watched) -> None:
    """Combinations that may not be fetched cannot be placed one by one: it is said before they are counted."""
    monkeypatch.setattr(SMALL_SPARK, 5)
    into_spark(session, planted_table(), "planted")
    tree = plain_policy(fetch_limit=1).model_dump(mode="json", exclude_none=True)
    for search in ({"strategy": "mondrian"}, {"suppression": "cells"}, {"strategy": "local"}):
        with sqlanon.connect(session) as db, pytest.raises(sqlanon.SourceError, match="fetch_limit"):
            db.anonymize(sqlanon.Policy(**{**tree, "search": search}))
    assert watched.planted() == set()


def test_released_in_random_order(session: Any, tmp_path: Path) -> None:
    """A sort that is not the last is dropped by Spark: rows would come in the order of the source."""
    into_spark(session, planted_table(400), "planted")
    with sqlanon.connect(session) as db:
        path = db.anonymize(plain_policy()).publish(tmp_path / "r.duckdb").path
    with duckdb.connect(str(path), read_only=True) as connection:
        found = [int(note[len(PLANTED) :]) for (note,) in connection.execute("SELECT note FROM r").fetchall()]
    rising = sum(one < next_ for one, next_ in itertools.pairwise(found))
    assert 0.4 < rising / len(found) < 0.6
