"""Every strategy ends within its time limit and five seconds, whatever the shape of the table."""

from __future__ import annotations

import time
from itertools import product
from threading import Timer
from typing import Any
from unittest.mock import patch

import duckdb
import pytest
from sqlglot import parse_one

import sqlanon
from sqlanon import pipeline
from sqlanon.policy.strategies import STRATEGIES
from sqlanon.strategies.lattice.checker import Checker
from sqlanon.strategies.local.core.task import LocalTask
from sqlanon.strategies.local.subtree import _CutSearch
from support.lanes import EXAMPLES
from support.policies import make_policy

pytestmark = pytest.mark.slow

LIMIT, MARGIN = 2.0, 5.0
DAYS = "SELECT count(*) FROM range(10000000000000) AS r(i) WHERE i % 7 = r.i"

SHAPES = {
    "tall masks": (
        "SELECT i AS id, rpad(md5(i::VARCHAR) || md5((i + 7)::VARCHAR), 60, '0') AS q0, md5((i // 2)::VARCHAR) AS q1 "
        "FROM range(10) AS r(i)",
        {"q0": {"mask": "right"}, "q1": {"mask": "right"}},
    ),
    "many quasi-identifiers": (
        f"SELECT i AS id, {', '.join(f'(hash(i * 120 + {j}) % {2 + j % 9})::INTEGER AS q{j}' for j in range(120))} "
        "FROM range(1000) AS r(i)",
        {f"q{j}": "suppress" for j in range(120)},
    ),
    "500 quasi-identifiers": (
        f"SELECT i AS id, {', '.join(f'(hash(i * 500 + {j}) % {2 + j % 9})::INTEGER AS q{j}' for j in range(500))} "
        "FROM range(1000) AS r(i)",
        {f"q{j}": "suppress" for j in range(500)},
    ),
    "many values": (
        f"SELECT i AS id, {', '.join(f'(hash(i * 6 + {j}) % 20000)::INTEGER AS q{j}' for j in range(6))} "
        "FROM range(20000) AS r(i)",
        {f"q{j}": {"intervals": [10, 100, 1000, 10000]} for j in range(6)},
    ),
}


def seconds_beyond_limit(shape: str, **search: Any) -> tuple[float, sqlanon.Result | None]:
    """The processor time that the search of a hostile table takes once its time is over, and its result.

    Other tests take the processors meanwhile: the clock on the wall shows what they do, too. With one thread of the
    engine, processor time is what the search takes on a machine of its own.
    """
    rows, hierarchies = SHAPES[shape]
    spent, stage = [], pipeline.run_search

    def run_timed(*arguments: Any) -> Any:
        at_limit: list[float] = []
        timer = Timer(LIMIT, lambda: at_limit.append(time.process_time()))
        timer.start()
        try:
            return stage(*arguments)
        finally:
            timer.cancel()
            spent.append(time.process_time() - at_limit[0] if at_limit else 0.0)

    source = {"table": "t", "key": "id", "person": False}
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute(f"CREATE TABLE t AS {rows}")
        policy = make_policy(
            {"id": "identifying", **hierarchies},
            source=source,
            search={"suppression_limit": 0.1, "time_limit": LIMIT, **search},
        )
        with sqlanon.connect(connection) as db, patch.object(pipeline, "run_search", run_timed):
            try:
                result = db.anonymize(policy)
            except sqlanon.InfeasibleError as error:
                assert "time_limit" in str(error) or "strategy forest" in str(error)
                return spent[0], None
    return spent[0], result


ALWAYS = [
    ("subtree", "tall masks"),
    ("optimal", "many quasi-identifiers"),
    ("optimal", "500 quasi-identifiers"),
    ("mondrian", "many values"),
]
"""A case of each shape; the others are for runs with all examples."""

CASES = [*ALWAYS, *(case for case in product(STRATEGIES, SHAPES) if case not in ALWAYS and EXAMPLES >= 1)]


@pytest.mark.thorough
@pytest.mark.parametrize(("strategy", "shape"), CASES)
def test_every_strategy_ends_within_its_limit_and_five_seconds(strategy: str, shape: str) -> None:
    seconds, result = seconds_beyond_limit(shape, strategy=strategy)
    assert seconds < MARGIN
    if result is not None:
        assert result.smallest_class >= 2


@pytest.mark.parametrize("measure", ["loss", pytest.param("entropy", marks=pytest.mark.thorough)])
def test_a_mask_of_long_texts_is_coded_in_seconds(measure: str) -> None:
    """With a window for each level, 200 texts of 300 characters took minutes."""
    with duckdb.connect() as database:
        database.execute(
            "CREATE TABLE t AS SELECT rpad(repeat(md5(i::VARCHAR), 10), 300, '0') AS a FROM range(200) AS r(i)"
        )
        started = time.process_time()
        with sqlanon.connect(database) as db:
            result = db.anonymize(make_policy({"a": {"mask": "right"}}, search={"measure": measure}))
    assert time.process_time() - started < 15
    assert result.generalization["a"] > 290


@pytest.fixture
def connection() -> Any:
    with duckdb.connect() as database:
        database.execute("CREATE TABLE t AS SELECT chr((97 + i % 5)::INTEGER) AS a, i % 3 AS b FROM range(40) AS r(i)")
        yield database


def test_a_first_check_that_takes_long_is_interrupted_with_advice(connection: Any) -> None:
    def endless(self: Checker, *arguments: Any) -> Any:
        return self._engine.rows(parse_one(DAYS, read="duckdb"))

    with (
        sqlanon.connect(connection) as db,
        patch.object(Checker, "_fetch_row", endless),
        patch("sqlanon.strategies.lattice.search.FIRST_GRACE", 0.1),
        pytest.raises(sqlanon.InfeasibleError) as raised,
    ):
        db.anonymize(make_policy({"a": {"mask": "right"}, "b": "suppress"}, search={"time_limit": 0.3}))
    assert str(raised.value) == (
        "search.time_limit = 0.3 ended the search before it had checked anything: the policy has 2 quasi-identifiers "
        '(heights of their hierarchies: a 1, b 1). What can help: release fewer of them (role = "identifying" leaves a '
        "column out), take coarser ones (min_level, or hierarchies with fewer levels), or raise search.time_limit"
    )


@pytest.mark.thorough
def test_a_statement_of_subtree_that_takes_long_is_interrupted(connection: Any) -> None:
    """The best result until then is released."""
    calls = []

    def endless(self: _CutSearch, *arguments: Any) -> Any:
        calls.append(arguments)
        return self.task.engine.rows(parse_one(DAYS, read="duckdb"))

    policy = make_policy({"a": "suppress", "b": "suppress"}, k=5, search={"strategy": "subtree", "time_limit": 0.8})
    with (
        sqlanon.connect(connection) as db,
        patch.object(_CutSearch, "_find_splits", endless),
        patch.object(LocalTask, "limit_is_reached", lambda self: bool(calls)),
    ):
        result = db.anonymize(policy)
    assert len(calls) == 1
    assert result.smallest_class >= 5
