"""Mistakes of local recoding, and of releases of it, that were found and fixed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from support.databases import insert
from support.lanes import some
from support.policies import make_policy

pytestmark = pytest.mark.thorough

LOCAL = ["mondrian", "k-similar", "local", "subtree"]


def fill(values: list[Any], type_: str = "INTEGER") -> duckdb.DuckDBPyConnection:
    """Table ``t``: the values as ``a``, two kinds of ``ill`` in turn, and a unique number for each row."""
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE t (a {type_}, ill VARCHAR, id INTEGER)")
    rows = [[value, "flu" if i % 2 else "gout", i] for i, value in enumerate(values)]
    insert(connection, "t", rows)
    return connection


def make_local_policy(
    rule: Any, strategy: str, k: int = 2, options: dict[str, Any] | None = None, **search: Any
) -> sqlanon.Policy:
    quasi = {"role": "quasi", "hierarchy": rule, **(options or {})}
    roles = {"a": quasi, "ill": "sensitive", "id": "insensitive"}
    return make_policy(roles, k=k, search={"strategy": strategy, **search}, release={"table": "r"})


def label_counts(path: Path) -> dict[Any, list[int]]:
    with duckdb.connect(str(path), read_only=True) as connection:
        return dict(connection.execute("SELECT a, list(id ORDER BY id) FROM r GROUP BY a").fetchall())


@pytest.mark.parametrize("strategy", ["optimal", "mondrian"])
def test_a_parquet_release_is_verified_with_any_requirement(tmp_path: Path, strategy: str) -> None:
    policy = make_local_policy({"intervals": [2, 4]}, strategy)
    diverse = {"k": 2, "l_diversity": [{"attribute": "ill", "kind": "distinct", "l": 2}]}
    policy = policy.model_copy(update={"privacy": sqlanon.policy.PrivacySection(**diverse)})
    with fill([1, 2, 3, 4]) as connection, sqlanon.connect(connection) as db:
        release = db.anonymize(policy).publish(tmp_path / "r.parquet")
        assert release.verify().verified
        assert any("diversity" in check.name for check in release.verify().checks)


RANGES: tuple[Any, ...] = ([1, 2, 3, 4], "INTEGER", {"1-2": [1, 2], "3-4": [3, 4]}, "1-2", "range")
SETS: tuple[Any, ...] = (
    ["a", "b", "c", "d"], "VARCHAR", {"{a, b}": ["a", "b"], "{c, d}": ["c", "d"]}, "{a, b}", "set",
)  # fmt: skip


@pytest.mark.parametrize(
    ("strategy", "values", "type_", "groups", "forbidden", "summary"),
    some([("mondrian", *SETS), ("mondrian", *RANGES), ("k-similar", *SETS), ("k-similar", *RANGES)], 3),
)
def test_a_range_or_set_with_a_forbidden_label_is_not_released(
    tmp_path: Path, strategy: str, values: list[Any], type_: str, groups: Any, forbidden: str, summary: str
) -> None:
    lines = [f'"{value}";"{group}";*' for group, members in groups.items() for value in members]
    (tmp_path / "h.csv").write_text("\n".join(lines) + "\n")
    policy = make_local_policy(
        {"file": str(tmp_path / "h.csv")}, strategy, 2, {"forbidden": [forbidden]}, summary=summary
    )
    with fill(values, type_) as connection, sqlanon.connect(connection) as db:
        labels = label_counts(db.anonymize(policy).publish(tmp_path / "r.duckdb").path)
    assert forbidden not in labels
    assert Counter(i for rows in labels.values() for i in rows) == Counter(range(4))


@pytest.mark.parametrize("strategy", ["mondrian", "k-similar"])
def test_groups_of_values_that_do_not_follow_their_order_make_no_ranges(tmp_path: Path, strategy: str) -> None:
    """Masked from the left, 1, 11 and 21 are one group; values in neither group lie between it and the next."""
    values = [1, 2, 3, 11, 12, 13, 21, 22]
    policy = make_local_policy({"mask": "left"}, strategy, 4, {"min_level": 1})
    with fill(values) as connection, sqlanon.connect(connection) as db:
        labels = label_counts(db.anonymize(policy).publish(tmp_path / "r.duckdb").path)
    for label, rows in labels.items():
        ends = {"*" + str(values[i])[-1] for i in rows}
        assert label == "*" or {label} == ends


@pytest.mark.parametrize(("summary", "ends"), [("range", "exact"), ("median", "grid")])
def test_no_label_is_finer_than_the_lowest_level(tmp_path: Path, summary: str, ends: str) -> None:
    """Exact ends of ranges, and medians, would show more than ``min_level`` permits."""
    policy = make_local_policy({"intervals": [10, 20]}, "mondrian", 3, {"min_level": 1}, summary=summary, ends=ends)
    with fill([1, 13, 14, 22, 38, 39]) as connection, sqlanon.connect(connection) as db:
        labels = label_counts(db.anonymize(policy).publish(tmp_path / "r.duckdb").path)
    assert labels == {"00-19": [0, 1, 2], "20-39": [3, 4, 5]}


@pytest.mark.parametrize("strategy", some(LOCAL, 4))
def test_another_source_does_not_verify_though_the_search_has_a_time_limit(tmp_path: Path, strategy: str) -> None:
    policy = make_local_policy({"intervals": [2, 4]}, strategy, time_limit=60.0)
    with fill([1, 2, 3, 4, 5, 6, 7, 8]) as connection, sqlanon.connect(connection) as db:
        path = db.anonymize(policy).publish(tmp_path / "r.duckdb").path
        assert db.verify(path, policy).verified
        connection.execute("UPDATE t SET a = 1, ill = 'other'")
        assert not db.verify(path, policy).verified


@pytest.mark.parametrize(("summary", "typed"), [("range", False), ("median", True)])
def test_ranges_are_at_no_level(tmp_path: Path, summary: str, typed: bool) -> None:
    """Their lowest common ancestor is the top, which was not released."""
    policy = make_local_policy("suppress", "mondrian", summary=summary, ends="exact")
    with fill([0, 3, 6, 9, 12, 15, 18, 21]) as connection, sqlanon.connect(connection) as db:
        result = db.anonymize(policy)
        release = result.publish(tmp_path / "r.duckdb")
    assert result.classes == 4
    assert result.generalization == release.manifest.generalization == {"a": None}
    assert (release.manifest.columns[0].type == "INTEGER") is typed


def test_where_nothing_is_lost_nothing_is_tried() -> None:
    with fill([1, 1, 10**15, 10**15], "BIGINT") as connection, sqlanon.connect(connection) as db:
        result = db.anonymize(make_local_policy({"mask": "right"}, "subtree"))
    assert (result.score, result.classes) == (0.0, 2)
    assert result.checked < 60


def test_blanked_cells_are_no_proven_optimum(tmp_path: Path) -> None:
    """The best score with suppressed rows need not be the best with blank cells."""
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t (x VARCHAR, y VARCHAR)")
    pairs = ["cq", "bp", "ar", "aq", "cq", "cp", "br", "cr"]
    insert(connection, "t", pairs)
    scores = {}
    with connection, sqlanon.connect(connection) as db:
        for strategy in ("optimal", "k_minimal", "datafly"):
            search = {"strategy": strategy, "suppression": "cells", "suppression_limit": 1}
            result = db.anonymize(make_policy({"x": "suppress", "y": "suppress"}, search=search))
            scores[strategy] = (result.score, result.bound, result.optimal)
    least = min(score for score, _, _ in scores.values())
    assert all(bound <= least + 1e-12 for _, bound, _ in scores.values())
    assert all(score <= least + 1e-12 for score, _, optimal in scores.values() if optimal)


@pytest.mark.parametrize("strategy", ["k-similar", "local"])
def test_a_path_without_feasible_classes_keeps_the_generalization(strategy: str) -> None:
    """The path first raises ``a``, whose top is forbidden, so that nothing on it can be released."""
    quasi = {"role": "quasi", "hierarchy": "suppress"}
    policy = make_policy(
        {"a": quasi | {"forbidden": "*"}, "b": quasi, "c": quasi, "id": "identifying"},
        source={"table": "t", "person": False},
        search={"strategy": strategy},
    )
    with duckdb.connect() as connection, sqlanon.connect(connection) as db:
        connection.execute("CREATE TABLE t AS SELECT i AS id, 'v' || i % 2 AS a, i AS b, i AS c FROM range(20) AS r(i)")
        rows = db.anonymize(policy).relation().project("a, b, c").fetchall()
    assert Counter(rows) == {("v0", "*", "*"): 10, ("v1", "*", "*"): 10}
