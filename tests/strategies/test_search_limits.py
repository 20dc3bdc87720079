"""Searches that stop before they are done: what was found, and what is proven of it."""

from __future__ import annotations

import json
import math
import time
from typing import Any
from unittest.mock import patch

import duckdb
import pytest
from hypothesis import given, settings
from sqlglot import parse_one
from stop_checks import MIXED, check_every_stop, check_privacy

import sqlanon
from oracles import oracle
from properties import privacy_cases, random_cases
from properties.plain_search import WIDE, search_by, search_of
from properties.privacy_cases import PrivacyCase
from properties.random_cases import Case
from properties.search_checks import thorough
from sqlanon.errors import PolicyError
from sqlanon.strategies.lattice import lattice, limits
from sqlanon.strategies.lattice.checker import Checker
from support.databases import insert
from support.lanes import draw_tables
from support.policies import make_policy

BOTH = pytest.mark.parametrize("strategy", ["optimal", "k_minimal"])


@pytest.mark.thorough
@BOTH
@settings(thorough, max_examples=draw_tables(20, usual=60))
@given(case=random_cases.cases())
def test_every_stop_is_honest(strategy: str, case: Case) -> None:
    check_every_stop(case, strategy)


@pytest.mark.thorough
@pytest.mark.parametrize("room", [1, 4])
@BOTH
@settings(thorough, max_examples=draw_tables(20, usual=60))
@given(case=random_cases.cases())
def test_a_full_heap_changes_no_answer(strategy: str, room: int, case: Case) -> None:
    """If the heap has no room for more boxes, the search continues depth first."""
    with patch.object(lattice, "HEAP_SIZE", room):
        check_every_stop(case, strategy)


@pytest.mark.thorough
@settings(thorough, max_examples=draw_tables(6, usual=20))
@given(case=privacy_cases.privacy_cases())
def test_a_stop_is_honest_with_any_requirement(case: PrivacyCase) -> None:
    for checks in (1, 2, 3, 5, 8, 13):
        check_privacy(case, checks)


@pytest.mark.parametrize("strategy", ["optimal", "k_minimal", "ola", "flash", "incognito"])
def test_a_time_limit_stops_after_the_check_that_is_under_way(strategy: str) -> None:
    now = 100.0

    def tick(levels: oracle.Levels) -> Any:
        nonlocal now
        now += 1.0
        return figures(levels)

    with patch.object(limits.time, "monotonic", lambda: now):
        search = search_of(MIXED, seconds=2.5)
        figures, search.checker = search.checker, tick
        outcome = search_by(strategy, search)
    assert outcome.stopped == "time_limit = 2.5"
    assert len(search.figures) == 3
    assert outcome.levels is not None and not outcome.optimal


def test_first_check_ignores_the_limits() -> None:
    search = search_of(MIXED, seconds=1e-9)
    outcome = search_by("optimal", search)
    assert (outcome.levels, len(search.figures)) == (search.lattice.top, 1)


# The result


@pytest.fixture
def connection() -> Any:
    with duckdb.connect() as database:
        database.execute(
            "CREATE TABLE t AS SELECT i * i % 89 AS a, i * 7 % 41 AS b, i % 3 AS c FROM range(300) AS r(i)"
        )
        yield database


ROLES = {"a": {"intervals": [5, 10, 20, 40]}, "b": {"intervals": [5, 10, 20]}, "c": "suppress"}


@pytest.mark.slow
def test_result_states_whether_it_is_proven(connection: Any) -> None:
    with sqlanon.connect(connection) as db:
        whole = db.anonymize(make_policy(ROLES, k=5))
        early = db.anonymize(make_policy(ROLES, k=5, search={"max_checks": 2}))
    assert (whole.optimal, whole.bound, whole.gap, whole.proof) == (
        True,
        whole.score,
        0.0,
        "optimal among full-domain generalizations",
    )
    assert (early.optimal, early.checked) == (False, 2)
    assert early.bound < whole.score < early.score
    assert early.gap == pytest.approx((early.score - early.bound) / early.score)
    document = json.loads(json.dumps(early.to_dict()))
    assert (document["bound"], document["gap"], document["optimal"]) == (early.bound, early.gap, False)
    percent = float(
        early.proof.removeprefix("not proven optimal: within ").removesuffix(
            " % of the best full-domain generalization"
        )
    )
    assert early.gap <= percent / 100 < early.gap + 0.001 + 1e-9
    assert json.loads(json.dumps(whole.to_dict()))["gap"] == 0


@pytest.mark.thorough
def test_bound_of_maximised_measures_is_above_the_score(connection: Any) -> None:
    search = {"measure": "distinct", "max_checks": 2}
    with sqlanon.connect(connection) as db:
        best = db.anonymize(make_policy(ROLES, k=5, search={"measure": "distinct"}))
        early = db.anonymize(make_policy(ROLES, k=5, search=search))
    assert early.bound >= best.score > early.score
    assert early.gap == (early.bound - early.score) / early.score


@pytest.mark.thorough
def test_k_minimal_reports_the_lowest_possible_height(connection: Any) -> None:
    """By the measure ``height``, the lowest k-minimal generalization is the lowest feasible one."""
    search = {"measure": "height", "strategy": "k_minimal"}
    with sqlanon.connect(connection) as db:
        result = db.anonymize(make_policy(ROLES, k=5, search=search))
        early = db.anonymize(make_policy(ROLES, k=5, search={**search, "max_checks": 2}))
    assert (result.optimal, result.bound, result.gap) == (True, result.score, 0.0)
    assert early.bound < early.score
    assert early.k_minimal == []


@pytest.mark.slow
def test_a_stopped_search_does_not_claim_infeasibility() -> None:
    """Six of eight rows may go: the lower generalization satisfies, and the top does not, but does not rule it out."""
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE wards (ward VARCHAR, diagnosis VARCHAR)")
        rows = [("a", "flu"), ("a", "asthma"), *[("b", "flu")] * 6]
        insert(connection, "wards", rows)
        roles = {"ward": "suppress", "diagnosis": "sensitive"}
        privacy = {"l_diversity": {"attribute": "diagnosis", "kind": "entropy", "l": 2}}

        def policy(**search: Any) -> sqlanon.Policy:
            attributes = make_policy(roles).attributes
            search = {"suppression_limit": 0.75, **search}
            return sqlanon.Policy(source={"table": "wards"}, attributes=attributes, privacy=privacy, search=search)

        with sqlanon.connect(connection) as db:
            with pytest.raises(sqlanon.InfeasibleError) as caught:
                db.anonymize(policy(max_checks=1))
            assert db.anonymize(policy(max_checks=2)).generalization == {"ward": 0}
    message = str(caught.value)
    assert "the search stopped at [search] max_checks = 1 before it found" in message
    assert "a higher limit" in message
    assert "no generalization meets" not in message
    assert caught.value.exit_status == 1
    assert (caught.value.nearest, caught.value.allowed_rows) == ({"ward": 1}, 6)


# The policy


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("time_limit", 0, "must be more than 0"),
        ("time_limit", -1.5, "must be more than 0"),
        ("time_limit", math.inf, "finite"),
        ("time_limit", "60", "must be a number"),
        ("time_limit", True, "must be a number"),
        ("max_checks", 0, "at least 1"),
        ("max_checks", 1.5, "must be a whole number"),
        ("max_checks", True, "must be a whole number"),
    ],
)
def test_limits_that_are_none_are_refused(key: str, value: Any, message: str) -> None:
    with pytest.raises(PolicyError) as caught:
        make_policy(ROLES, search={key: value})
    (problem,) = caught.value.problems
    assert problem.place == f"search.{key}"
    assert message in problem.message


def test_limits_in_the_policy_and_its_schema() -> None:
    policy = make_policy(ROLES, search={"time_limit": 0.5, "max_checks": 1000})
    assert (policy.search.time_limit, policy.search.max_checks) == (0.5, 1000)
    assert make_policy(ROLES).search.time_limit is None
    # A policy without them has the fingerprint that it had before there were any.
    assert "time_limit" not in make_policy(ROLES).redact()["search"]
    properties = sqlanon.Policy.model_json_schema()["$defs"]["SearchSection"]["properties"]
    time_limit, max_checks = (properties[name]["anyOf"][0] for name in ("time_limit", "max_checks"))
    assert (time_limit["type"], time_limit["exclusiveMinimum"]) == ("number", 0)
    assert (max_checks["type"], max_checks["minimum"]) == ("integer", 1)


# Statements and lattices that take long


@pytest.mark.thorough
def test_a_statement_that_takes_long_is_interrupted(connection: Any) -> None:
    calls, row = [], Checker._fetch_row

    def slow(self: Checker, *arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) > 1:  # the first is checked whatever the limit
            self._engine.rows(
                parse_one("SELECT count(*) FROM range(10000000000000) AS r(i) WHERE i % 7 = r.i", read="duckdb")
            )
        return row(self, *arguments)

    began = time.monotonic()
    with sqlanon.connect(connection) as db, patch.object(Checker, "_fetch_row", slow):
        result = db.anonymize(make_policy(ROLES, k=5, search={"time_limit": 0.5}))
    assert time.monotonic() - began < 30
    assert (len(calls), result.checked, result.optimal) == (2, 1, False)
    assert result.generalization == {"a": 5, "b": 4, "c": 1}


@pytest.mark.thorough
@pytest.mark.parametrize("strategy", WIDE)
def test_a_lattice_of_2_to_the_60_ends_in_time(strategy: str) -> None:
    names = [f"b{i}" for i in range(60)]
    with duckdb.connect() as connection:
        values = ", ".join(f"hash(i, {i}) % {i % 7 + 2} = 0 AS {name}" for i, name in enumerate(names))
        connection.execute(f"CREATE TABLE t AS SELECT {values} FROM range(3000) AS r(i)")
        search = {"strategy": strategy, "time_limit": 1.0, "suppression_limit": 0.05}
        with sqlanon.connect(connection) as db:
            policy = make_policy(dict.fromkeys(names, "suppress"), k=5, search=search)
            result = db.anonymize(policy)
    assert result.nodes == 2**60
    assert not result.optimal
    assert result.suppressed_rows <= 150
    assert result.seconds["search"] < 10
