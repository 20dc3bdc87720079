"""Noise against the source: whether each value is possible, and whether the noise has the size of its ε."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.audit.noise import NoiseCheck
from sqlanon.noise import laplace as laplace_noise
from sqlanon.noise import stage
from sqlanon.publish.draft import ReleaseDraft
from sqlanon.release.manifest import Facts, Manifest
from sqlanon.support.checks import SOURCE_PREFIX
from sqlanon.support.expressions import create_table, table
from support.policies import make_policy

RECODED, RELEASED = table("recoded_rows", "main", "memory"), table("noisy_rows", "main", "memory")
ROWS = [("a" if i < 400 else "b", i % 81 + (0 if i < 400 else 500)) for i in range(600)]
"""Ages 0 to 80 in ward a, 500 to 580 in ward b; each class has the range 80."""


@pytest.fixture(scope="module")
def draft() -> Iterator[tuple[ReleaseDraft, Manifest]]:
    """A release whose noise is 0, drawn without OpenDP: tests replace its rows."""
    noise = {"role": "quasi", "noise": {"epsilon": 2, "round": 1, "bounds": [-2000, 4000]}}
    policy = make_policy({"ward": {"role": "quasi", "hierarchy": "suppress", "max_level": 0}, "age": noise}, k=2)
    with duckdb.connect() as connection, sqlanon.connect(connection) as db, pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage, "refuse_without_opendp", lambda _: None)
        patch.setattr(laplace_noise, "laplace_mechanism", lambda _: lambda zeros: zeros)
        connection.execute("CREATE TABLE t (ward VARCHAR, age INTEGER)")
        connection.execute(f"INSERT INTO t VALUES {', '.join(map(str, ROWS))}")
        draft = db.anonymize(policy)._draft
        query = replace(draft.recoding.statement, drawn=None).select(shuffled=False)
        draft.run.engine.execute(create_table(RECODED.copy(), query))
        yield draft, draft.manifest("t", Facts(600, 2, 200, "digest"))


def laplace(scale: float, seed: int = 1) -> list[tuple[str, int]]:
    draw = random.Random(seed)
    return [(ward, round(age + draw.choice((-1, 1)) * draw.expovariate(1 / scale))) for ward, age in ROWS]


def failed_checks(draft: tuple[ReleaseDraft, Manifest], rows: Sequence[tuple[str, int]], **claims: Any) -> set[str]:
    (draft_, manifest), engine = draft, draft[0].run.engine
    work = draft_.run.work
    for name in ("checked_records", "checked_classes"):
        engine.connection.execute(f"DROP TABLE IF EXISTS {work(name).sql('duckdb')}")
    engine.connection.execute(f"CREATE OR REPLACE TABLE {RELEASED.sql('duckdb')} (ward VARCHAR, age INTEGER)")
    engine.connection.execute(f"INSERT INTO {RELEASED.sql('duckdb')} VALUES {', '.join(map(str, rows))}")
    manifest = replace(manifest, **claims)
    check = NoiseCheck(engine, work, draft_.search_input, manifest, RELEASED.copy(), RECODED.copy())
    return {item.name.removeprefix(SOURCE_PREFIX) for item in check.checks() if not item.passed}


SOUND = laplace(40)  # the range 80 by ε = 2
SIZE = "size of the noise of age"


@pytest.mark.cases(4)
@pytest.mark.least(8)
@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (SOUND, set()),
        (laplace(10), {SIZE}),
        (laplace(100), {SIZE}),
        ([("c", SOUND[0][1]), *SOUND[1:]], {"recoded source", "classes", "noise of age"}),
        (SOUND[1:], {"recoded source"}),
        ([("a", 4000), ("a", -2000), *SOUND[2:]], set()),
        ([("a", 4001), *SOUND[1:]], {"noise of age"}),
        ([("a", -2001), *SOUND[1:]], {"noise of age"}),
    ],
)
def test_one_check_alone_refuses_noise_that_cannot_be(
    rows: list[tuple[str, int]], expected: set[str], draft: tuple[ReleaseDraft, Manifest]
) -> None:
    assert failed_checks(draft, rows) == expected


@pytest.mark.parametrize(("rows", "expected"), [(599, set()), (600, set()), (601, {"confidence"})])
def test_with_confidence_no_more_rows_are_released_than_have_values(
    rows: int, expected: set[str], draft: tuple[ReleaseDraft, Manifest]
) -> None:
    assert failed_checks(draft, SOUND, confidence={"beta": 0.9}, released_rows=rows) == expected


def test_the_values_beyond_the_range_of_a_class_are_as_many_as_expected(draft: tuple[ReleaseDraft, Manifest]) -> None:
    """Half of a step beyond 0 and 80, a value is beyond with a probability of exp(−d / b) / 2 at either end."""
    check = NoiseCheck(
        draft[0].run.engine, draft[0].run.work, draft[0].search_input, draft[1], RELEASED.copy(), RECODED.copy()
    )
    assert failed_checks(draft, SOUND) == set()
    for name in ("checked_records", "checked_classes"):
        draft[0].run.engine.connection.execute(f"DROP TABLE IF EXISTS {draft[0].run.work(name).sql('duckdb')}")
    (message,) = [source_check.message for source_check in check.checks() if source_check.name == SOURCE_PREFIX + SIZE]
    ages = [age % 500 for _, age in ROWS]
    chance = sum((math.exp(-(age + 0.5) / 40) + math.exp(-(80.5 - age) / 40)) / 2 for age in ages)
    beyond = sum(not 0 <= age - (500 if ward == "b" else 0) <= 80 for ward, age in SOUND)
    assert f"{beyond} of 600 values are beyond the range of their class (expected: {chance:.1f})" in message
