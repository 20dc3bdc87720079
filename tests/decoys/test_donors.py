"""The classes that decoys take their values from, and the checks of a release with decoys, each at its border."""

from __future__ import annotations

import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest

from sqlanon.audit.decoys import DecoyCheck
from sqlanon.decoys.draw import _DONOR_CLASSES, _TARGETS, _VULNERABLE_CLASSES, _donor_candidates
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.support.expressions import col, table


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


LEVELS, HEIGHTS = (0, 1), (2, 3)
"""Two attributes: two levels up, all classes are one."""


def classes_of(draw: random.Random, k: int) -> list[tuple[int, int, int, bool]]:
    """Classes of two codes with their sizes. Those with fewer than k rows are not kept, nor are some others."""
    codes = draw.sample([(a, b) for a in range(4) for b in range(4)], 9)
    sizes = [draw.choice([1, k - 1, k, k + 1]) for _ in codes]
    return [(a, b, size, size >= k and draw.random() < 0.8) for (a, b), size in zip(codes, sizes, strict=True)]


@pytest.mark.parametrize("seed", range(6))
def test_donors_are_the_k_or_more_kept_rows_of_the_nearest_class_above(
    seed: int, connection: duckdb.DuckDBPyConnection
) -> None:
    draw, k = random.Random(seed), 4
    classes = classes_of(draw, k)
    connection.execute(
        "CREATE TABLE classes (class_id INT, class_size BIGINT, kept BOOLEAN, "
        "code_0 INT, up_0_1 INT, code_1 INT, up_1_2 INT)"
    )
    for i, (a, b, size, is_kept) in enumerate(classes):
        connection.execute("INSERT INTO classes VALUES (?, ?, ?, ?, ?, ?, ?)", (i, size, is_kept, a, a // 2, b, b // 2))

    expected = {}
    for i, (a, b, _, is_kept) in enumerate(classes):
        for step in (1, 2):
            above = [
                (j, size)
                for j, (c, d, size, is_donor) in enumerate(classes)
                if is_donor and (step == 2 or (c // 2, d // 2) == (a // 2, b // 2))
            ]
            if (donors := sum(size for _, size in above)) >= k:
                expected[i, step] = (is_kept, min(j for j, _ in above), donors)
    query = _donor_candidates(table("classes"), LEVELS, HEIGHTS, k)
    connection.execute(f"CREATE TABLE candidates AS {query.sql('duckdb')}")
    rows = connection.execute("SELECT class_id, step, kept, upper_class, donor_count FROM candidates").fetchall()
    assert {row[:2]: row[2:] for row in rows} == expected
    assert len(rows) == len(expected)

    nearest = {
        i: (min(step for j, step in expected if j == i))
        for i, (*_, is_kept) in enumerate(classes)
        if not is_kept and (i, 2) in expected
    }
    connection.execute(f"CREATE TABLE targets AS {_TARGETS(candidates=table('candidates')).sql('duckdb')}")
    targets = connection.execute("SELECT class_id, step, upper_class, donor_count FROM targets").fetchall()
    assert {row[0]: row[1:] for row in targets} == {i: (step, *expected[i, step][1:]) for i, step in nearest.items()}

    keys = [col("code_0", "c"), col("code_1", "c")]
    sources = _DONOR_CLASSES(
        keys=keys, candidates=table("candidates"), classes=table("classes"), targets=table("targets")
    )
    wanted = {(step, expected[i, step][1]) for i, step in nearest.items()}
    assert sorted(connection.execute(sources.sql("duckdb")).fetchall()) == sorted(
        (step, first, *classes[i][:2])
        for (i, step), (is_kept, first, _) in expected.items()
        if is_kept and (step, first) in wanted
    )

    short = [size for *_, size, is_kept in classes if not is_kept]
    figures = connection.execute(_VULNERABLE_CLASSES(k=k, classes=table("classes")).sql("duckdb")).fetchone()
    assert figures == (
        len(short),
        sum(short),
        min(short, default=None),
        sum(k - size for size in short),
        min((size for *_, size, is_kept in classes if is_kept), default=None),
    )


KEPT = [("b", "flu"), ("b", "flu"), ("b", "flu"), ("b", "gout")]
"""A class with k rows, which needs no decoys."""
SHORT = [("a", "flu"), ("a", "HIV")]
DECOYS = [("a", "gout"), ("a", "flu")]


@pytest.mark.parametrize(
    ("released", "claimed", "refused"),
    [
        ([*KEPT, *SHORT, *DECOYS], 2, set()),
        ([*KEPT, *SHORT, *DECOYS, ("a", "flu")], 3, {"filled classes"}),  # k + 1 rows
        ([*KEPT, *SHORT, ("a", "flu")], 1, {"filled classes"}),  # k - 1 rows
        ([*KEPT, *SHORT, *DECOYS], 1, {"invented rows"}),
        ([*KEPT, *SHORT, *DECOYS], 3, {"invented rows"}),
        ([*KEPT, *SHORT, ("a", "flu"), ("a", "HIV")], 2, {"values of decoys"}),  # a value of no kept row
        ([*KEPT, *SHORT, ("a", "flu"), ("a", "cold")], 2, {"values of decoys"}),
        ([*KEPT, SHORT[0], *DECOYS, ("a", "gout")], 3, {"recoded source"}),  # a real row is not there
        ([*KEPT, SHORT[0], *DECOYS, ("a", "gout")], 2, {"recoded source", "invented rows"}),
        ([*KEPT[1:], *SHORT, *DECOYS], 2, {"recoded source"}),
        ([*KEPT, KEPT[0], *SHORT, *DECOYS], 2, {"recoded source"}),
        ([*KEPT, ("c", "flu"), *SHORT, *DECOYS], 2, {"recoded source"}),
    ],
)
def test_one_check_alone_refuses_a_release_with_wrong_decoys(
    released: list[tuple[str, str]], claimed: int, refused: set[str], connection: duckdb.DuckDBPyConnection
) -> None:
    manifest: Any = SimpleNamespace(
        types=dict.fromkeys(("zip", "illness"), "VARCHAR"),
        quasi_identifiers=["zip"],
        decoys=claimed,
        policy={"privacy": {"k": 4}},
    )
    for name, rows in (("real", KEPT + SHORT), ("released", released)):
        connection.execute(f"CREATE TABLE {name} (zip VARCHAR, illness VARCHAR)")
        connection.executemany(f"INSERT INTO {name} VALUES (?, ?)", rows)
    steps = StatementRunner(DuckDBEngine(connection))
    checks = DecoyCheck(steps, table, manifest, table("real"), table("released")).checks()
    assert {check.name.removeprefix("against the source: ") for check in checks if not check.passed} == refused
    assert len(checks) == 4
