"""Strategy k-similar: sound, never worse than the full domain, and the best grouping of few."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from local_checks import check_sound
from plain_counts import Counts
from plain_similar import as_ancestors, least_loss
from small_tasks import Small

import sqlanon
from properties.local_tasks import LIMITS, SOME_ROWS, task_of
from properties.random_cases import Case
from properties.search_checks import thorough
from support.lanes import draw_tables
from support.policies import make_policy

pytestmark = pytest.mark.thorough


def check_best(case: Case, limits: list[int], most: int) -> None:
    with task_of(case, limits, strategy="k-similar") as task:
        plain = Counts(task, Small((), (), case.k))
        if len(plain.n) > most:
            return
        try:
            assignment = plain.placed(as_ancestors(task).assignment)
        except sqlanon.InfeasibleError:
            return
        assert plain.loss(assignment) == pytest.approx(least_loss(plain, case.k), abs=1e-8)


@settings(thorough, max_examples=draw_tables(20, usual=40))
@given(SOME_ROWS, LIMITS)
def test_k_similar_is_sound_and_never_worse_than_the_full_domain(case: Case, limits: list[int]) -> None:
    check_sound(as_ancestors, case, limits, "k-similar")


@settings(thorough, max_examples=draw_tables(20, usual=40))
@given(SOME_ROWS.filter(lambda case: len(set(case.rows)) <= 8), LIMITS)
def test_few_combinations_are_grouped_in_the_best_way(case: Case, limits: list[int]) -> None:
    check_best(case, limits, 8)


def invented_table(rows: int) -> pa.Table:
    """A table as if drawn, the same every time: few rows are equal."""
    ages = [18 + (i * i * 31 + i * 7) % 67 for i in range(rows)]
    towns = ["abcdefghi"[i * i * 11 % 9] + "klmnopqrst"[i * 37 % 10] for i in range(rows)]
    return pa.table({"age": ages, "town": towns, "sex": ["f" if i * i % 7 < 3 else "m" for i in range(rows)]})


ATTRIBUTES = {"age": {"intervals": [5, 10, 20, 40]}, "town": "mask", "sex": "suppress"}


def release_classes(directory: Path, strategy: str, threads: int = 2, **search: Any) -> Counter[tuple[Any, ...]]:
    """The classes of the release of 90 invented rows, with k = 3."""
    directory.mkdir()
    source = directory / "source.parquet"
    pq.write_table(invented_table(90), source)
    policy = make_policy(
        ATTRIBUTES, k=3, table=None, source={"files": [str(source)]}, search={"strategy": strategy, **search}
    )
    with sqlanon.connect(threads=threads) as db:
        release = db.anonymize(policy).publish(directory / "r.duckdb")
    with duckdb.connect(release.path, read_only=True) as connection:
        return Counter(connection.execute(f'SELECT age, town, sex FROM "{release.table}"').fetchall())


def test_groups_are_small_and_shown_as_ranges_and_sets(tmp_path: Path) -> None:
    """Classes have k to 2k − 1 rows, except for combinations that look the same or cost less together."""
    released_rows = release_classes(tmp_path / "a", "k-similar", summary="set")
    assert min(released_rows.values()) == 3
    assert sum(n in (3, 4, 5) for n in released_rows.values()) > 0.9 * len(released_rows)
    assert any(town.startswith("{") for _, town, _ in released_rows)
    assert any("-" in age for age, _, _ in released_rows)


@pytest.mark.parametrize("strategy", ["k-similar", "local"])
def test_the_result_is_the_same_for_any_number_of_threads(tmp_path: Path, strategy: str) -> None:
    assert release_classes(tmp_path / "a", strategy, threads=1) == release_classes(tmp_path / "b", strategy, threads=4)
