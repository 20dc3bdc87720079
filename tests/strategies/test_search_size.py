"""The size of a search: lattices of 10^8 generalizations and more, and the number of checks on known tables."""

from __future__ import annotations

import tracemalloc
from typing import Any

import duckdb
import pytest
from optima_workshop import Entry, Workshop, workshop
from wide_search import wide_search

import sqlanon
from properties.plain_search import search_by
from sqlanon.policy.strategies import STRATEGIES
from sqlanon.strategies.lattice.search import MAX_VISITED
from sqlanon.strategies.registry import run_strategy
from support.lanes import EXAMPLES, some
from support.policies import make_policy

pytestmark = pytest.mark.slow

__all__ = ["workshop"]  # the fixture

# Fifteen attributes


@pytest.mark.thorough
@pytest.mark.parametrize("strategy", some(["optimal", "k_minimal"], 2))
def test_a_lattice_of_10_to_the_8_is_never_laid_out(strategy: str) -> None:
    search = wide_search(0.05, checks=400)
    assert search.lattice.size > 10**8
    tracemalloc.start()
    outcome = search_by(strategy, search)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50_000_000
    assert outcome.levels is not None
    assert outcome.bound < search.scores[outcome.levels] < 0.7  # what it begins with, the top, is 1
    assert len(search.lattice_columns()[0]) < MAX_VISITED + 500


def test_early_answers_are_good() -> None:
    """20 checks find a fair answer; with some hundreds more the dive finds one that is a tenth better."""
    few, many = wide_search(0.05, checks=20), wide_search(0.05, checks=1000)
    early, late = search_by("optimal", few), search_by("optimal", many)
    assert early.levels is not None and late.levels is not None
    assert few.scores[early.levels] < 0.522
    assert many.scores[late.levels] < 0.474
    assert early.bound < late.bound <= many.scores[late.levels]


@pytest.mark.thorough
def test_more_boxes_than_have_room_take_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sqlanon.strategies.lattice.lattice.HEAP_SIZE", 1000)
    search = wide_search(0.05, checks=10_000)
    outcome = search_by("optimal", search)
    assert outcome.levels is not None
    assert search.open_count < 3000
    assert outcome.bound < search.scores[outcome.levels] < 0.5


@pytest.mark.thorough
def test_a_wide_table_is_searched_to_the_end() -> None:
    """Every row has a unique number, which must be at its top; no other attribute has to change."""
    with duckdb.connect() as connection:
        text = ", ".join(f"(i // 4 * {i + 3}) % 20 AS b{i}" for i in range(14))
        connection.execute(f"CREATE TABLE t AS SELECT i AS a, {text} FROM range(80) AS r(i)")
        roles = {"a": {"intervals": [2, 6, 18]}} | {f"b{i}": {"intervals": [2, 6, 12]} for i in range(14)}
        with sqlanon.connect(connection) as db:
            result = db.anonymize(make_policy(roles, k=4, source={"table": "t", "person": False}))
    assert result.nodes == 5**15
    assert result.optimal
    assert result.generalization == {"a": 4} | {f"b{i}": 0 for i in range(14)}
    assert result.checked < 60


EACH = (
    "optimal",
    "local",
    "mondrian",
    "k-similar",
    "subtree",
    "datafly",
    "samarati",
    "incognito",
    "flash",
    "ola",
    "k_minimal",
)


@pytest.mark.thorough
@pytest.mark.parametrize("limit", some([0.0, 0.05], 1))
@pytest.mark.parametrize("strategy", EACH)
def test_60_quasi_identifiers_have_an_answer_in_a_second_or_so(strategy: str, limit: float) -> None:
    with duckdb.connect() as connection:
        columns = ", ".join(f"hash(i * 60 + {j}) % 100 < {2 + j} AS b{j}" for j in range(60))
        connection.execute(f"CREATE TABLE t AS SELECT {columns} FROM range(500) AS r(i)")
        roles = {f"b{j}": "suppress" for j in range(60)}
        search = {"strategy": strategy, "suppression_limit": limit, "time_limit": 1}
        with sqlanon.connect(connection) as db:
            result = db.anonymize(make_policy(roles, k=5, search=search))
    assert result.released_rows >= 500 * (1 - limit)
    assert result.smallest_class >= 5


# Checks: what a search costs, whatever the machine. Measured; with a margin for other libraries' logarithms.

ADULT_8 = ("sex", "age", "race", "marital-status", "education", "native-country", "workclass", "salary-class")
TABLES = {
    "Adult-8": ("adult", ADULT_8),
    "Adult-9": ("adult", (*ADULT_8[:7], "occupation", ADULT_8[7])),
    "FARS-8": ("fars", ("iage", "irace", "ideathmon", "ideathday", "isex", "ihispanic", "istatenum", "iinjury")),
}
LIMITS = (0.0, 0.02, 0.05)
CHECKS = {  # by table, measure and k: for each limit
    ("Adult-8", "loss", 2): (41, 31, 31),
    ("Adult-8", "loss", 5): (41, 64, 41),
    ("Adult-8", "loss", 10): (47, 54, 50),
    ("Adult-8", "loss", 50): (31, 85, 97),
    ("Adult-8", "loss", 100): (22, 69, 113),
    ("Adult-9", "loss", 2): (67, 90, 91),
    ("Adult-9", "loss", 5): (50, 181, 137),
    ("Adult-9", "loss", 10): (51, 131, 181),
    ("Adult-9", "loss", 50): (31, 163, 192),
    ("Adult-9", "loss", 100): (22, 114, 201),
    ("FARS-8", "loss", 2): (48, 77, 107),
    ("FARS-8", "loss", 5): (70, 127, 110),
    ("FARS-8", "loss", 10): (48, 89, 134),
    ("FARS-8", "loss", 50): (52, 174, 214),
    ("FARS-8", "loss", 100): (42, 180, 180),
}


def known_limits() -> list[Any]:
    """The limits take turns; longer runs take all."""
    return [
        pytest.param(
            table, measure, k, limit, checks,
            id=f"{table}-{measure}-{k}-{limit}",
            marks=[] if (table, k, limit) == ("Adult-8", 5, 0.05) else [pytest.mark.slow],
        )
        for i, ((table, measure, k), all_checks) in enumerate(CHECKS.items())
        for j, (limit, checks) in enumerate(zip(LIMITS, all_checks, strict=True))
        if (i + j) % 3 == 0 or EXAMPLES > 1
    ]  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize(("table", "measure", "k", "limit", "checks"), known_limits())
def test_known_tables_need_no_more_checks(
    workshop: Workshop, table: str, measure: str, k: int, limit: float, checks: int
) -> None:
    dataset, quasi = TABLES[table]
    entry: Entry = {
        "dataset": dataset, "quasi": quasi, "model": "k", "k": k, "suppression_limit": limit, "measure": measure,
        "aggregate": None,
    }  # fmt: skip
    outcome = run_strategy(workshop.task(entry), STRATEGIES["optimal"])
    assert outcome.optimal
    assert outcome.checked <= checks * 1.1 + 2
