"""Strategies that are tried on a sample: the same figures as of the whole of a small table, and limits that hold."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
import sqlglot

import sqlanon
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.policy.strategies import SUGGESTED_SEARCHES
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.strategies.lattice.lattice import ignore_progress
from sqlanon.strategies.lattice.result import SearchResult
from sqlanon.strategies.stage import run_search
from sqlanon.suggest.trials import Trial, try_strategies
from support.policies import make_policy

pytestmark = pytest.mark.slow

PEOPLE = """
    CREATE TABLE people AS
    SELECT
        (hash(i) % 20)::INTEGER AS age,
        'work ' || CASE WHEN i % 97 = 0 THEN i ELSE hash(i + 1) % 7 END AS work, 'sex ' || hash(i + 2) % 2 AS sex,
        i // 3 AS person, 'ill ' || hash(i + 3) % 4 AS illness
    FROM range({rows}) AS r(i)
"""
QUASI = {"age": {"intervals": [5, 10, 20]}, "work": "suppress", "sex": "suppress"}


SOURCE = {"table": "people", "undeclared": "drop"}


def policy_of(search: dict[str, object] | None = None, k: int = 20, **source: str) -> sqlanon.Policy:
    section = {"suppression_limit": 0.05, **(search or {})}
    return make_policy(QUASI, k=k, table=None, source=SOURCE | source, search=section)


@pytest.fixture(scope="module")
def people() -> Iterator[sqlanon.Database]:
    with duckdb.connect() as connection:
        connection.execute(PEOPLE.format(rows=250))
        with sqlanon.connect(connection) as db:
            yield db


@pytest.fixture(scope="module")
def trials(people: sqlanon.Database) -> dict[str, Trial]:
    candidates = {name: SUGGESTED_SEARCHES[name] for name in ("optimal", "mondrian", "mondrian with sets")}
    return {trial.name: trial for trial in people.try_strategies(policy_of(), candidates)}


def hold_against_compare(people: sqlanon.Database, tried: dict[str, Trial], names: list[str]) -> None:
    """A table of fewer rows than a sample may have is its own sample."""
    compared = people.compare(policy_of(), names).project("strategy, loss, suppressed_rows").fetchall()
    for name, loss, suppressed in compared:  # sums of numbers in another order differ in the last digit
        assert (tried[name].loss, tried[name].suppressed_rows) == (pytest.approx(loss, rel=1e-12), suppressed)
    assert [name for name, *_ in compared] == names
    assert all(trial.error is None and trial.rows == 250 and not trial.stopped for trial in tried.values())


@pytest.mark.thorough
def test_the_figures_are_those_of_compare(people: sqlanon.Database, trials: dict[str, Trial]) -> None:
    hold_against_compare(people, trials, ["optimal", "mondrian"])
    assert trials["mondrian with sets"].loss < trials["mondrian"].loss  # type: ignore[operator]


@pytest.mark.thorough
def test_the_figures_of_all_of_them_are_those_of_compare(people: sqlanon.Database) -> None:
    tried = {trial.name: trial for trial in people.try_strategies(policy_of())}
    assert list(tried) == list(SUGGESTED_SEARCHES)
    hold_against_compare(people, tried, ["optimal", "mondrian", "local", "subtree"])


@pytest.mark.thorough
def test_fully_suppressed_attributes_are_so_in_the_release(
    people: sqlanon.Database, trials: dict[str, Trial], tmp_path: Path
) -> None:
    for name in ("optimal", "mondrian with sets"):
        result = people.anonymize(policy_of({**SUGGESTED_SEARCHES[name]}))
        file = tmp_path / f"{len(name)}.parquet"
        result.publish(file)
        with duckdb.connect() as connection:
            counts = {
                column: connection.execute(f"SELECT count(DISTINCT {column}) FROM '{file}'").fetchall()[0][0]
                for column in QUASI
            }
        assert trials[name].fully_suppressed == tuple(column for column, count in counts.items() if count == 1)
    assert trials["optimal"].fully_suppressed
    assert not trials["mondrian with sets"].fully_suppressed


BIG = 2_000


def test_a_sample_is_the_same_on_every_run_and_keeps_the_limit_as_a_share() -> None:
    def try_strategy(**source: str) -> Trial:
        with duckdb.connect() as connection:
            connection.execute(PEOPLE.format(rows=BIG))
            with sqlanon.connect(connection) as db:
                candidates = {"optimal": SUGGESTED_SEARCHES["optimal"]}
                (trial,) = try_strategies(db._workspace.run, policy_of(k=5, **source), candidates, rows=500)
                return replace(trial, seconds=0)

    first = try_strategy()
    assert try_strategy() == first
    assert 300 < first.rows <= 500
    assert 0 < (first.suppressed_rows or 0) <= 0.05 * first.rows
    persons = try_strategy(person="person").rows
    assert persons % 3 in (0, BIG % 3)  # all three rows of a person, or none
    assert 300 < persons <= 500


ENDLESS = "SELECT count(*) FROM range(100000000) AS a, range(100000000) AS b WHERE a.range + b.range = -1"


def test_a_strategy_that_does_not_end_is_interrupted(people: sqlanon.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds even if it never reads the clock; the next strategy has its turn."""

    def endless(steps: StatementRunner, prepared: SearchInput, progress: object) -> SearchResult:
        if prepared.policy.search.strategy == "local":
            steps.engine.rows(sqlglot.parse_one(ENDLESS))
        return run_search(steps, prepared, ignore_progress)

    monkeypatch.setattr("sqlanon.suggest.trials.run_search", endless)
    candidates = {name: SUGGESTED_SEARCHES[name] for name in ("local", "optimal")}
    stuck, next_one = people.try_strategies(policy_of(), candidates, seconds=4)
    assert re.fullmatch(r"took more than [0-2]\.\d seconds", stuck.error or "")
    assert stuck.stopped
    assert stuck.seconds < 30  # on the clock of a busy machine
    assert (next_one.error, next_one.loss is None) == (None, False)
    assert people.try_strategies(policy_of(), candidates, seconds=0)[0].error == "no time was left to try it"


def test_the_reason_why_a_strategy_is_unsuitable_is_reported(people: sqlanon.Database) -> None:
    k700 = make_policy(QUASI, k=700, table=None, source=SOURCE)
    (too_few,) = people.try_strategies(k700, {"optimal": SUGGESTED_SEARCHES["optimal"]})
    assert too_few.loss is None
    assert "no generalization meets the policy" in (too_few.error or "")
    decoys = make_policy(QUASI, k=5, table=None, source=SOURCE, release={"file": "r.parquet", "decoys": True})
    (local,) = people.try_strategies(decoys, {"local": SUGGESTED_SEARCHES["local"]})
    assert "decoys" in (local.error or "")
