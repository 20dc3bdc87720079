"""The search of linked tables finds what the oracle finds, and releases what no attacker narrows below k persons."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import duckdb
import pytest

import sqlanon
from oracles.oracle_linked import Outcome, View, best, evaluate, loss
from properties.linked_cases import LinkedCase, small_cases
from sqlanon.errors import InfeasibleError
from sqlanon.linked.anonymize import LinkedResult
from sqlanon.linked.check import peeling
from sqlanon.linked.search import LinkedFigures, draw_verdict
from sqlanon.policy.linked import LinkedPolicy
from sqlanon.strategies.lattice import search
from sqlanon.support.coding import Levels
from sqlanon.support.expressions import template
from support.lanes import draw_tables, examples, some
from support.linked_databases import PERSONS, ROWS, anonymize_case, anonymize_rows, persons_and_rows, released_state

MOST_GENERALIZATIONS = 60


@pytest.mark.cases(2)
@pytest.mark.parametrize("case", some(small_cases(MOST_GENERALIZATIONS, draw_tables(8, 60)), every=2))
def test_the_optimum_is_that_of_the_oracle(case: LinkedCase) -> None:
    expected = best(case.database, case.k, case.known, case.allowed_persons, case.weights)
    result = anonymize_case(case)
    if expected is None:
        assert result is None
        return
    assert result is not None
    assert result.optimal
    assert result.levels == expected.levels
    assert result.score == pytest.approx(expected.score, abs=1e-9)
    assert result.suppressed_persons == expected.suppressed_persons
    result.find_recoding()
    assert released_state(result.task, case.database)[0] == expected.state


@pytest.mark.thorough
@pytest.mark.usefixtures("steps_of_large_tables")
@pytest.mark.parametrize("case", some(small_cases(MOST_GENERALIZATIONS, draw_tables(4, 40)), every=2))
def test_each_check_keeps_the_largest_set_of_persons(case: LinkedCase) -> None:
    database = case.database
    result = anonymize_case(replace(case, suppression_limit="1"))
    if result is None:
        return
    for levels in itertools.product(*(range(height + 1) for height in database.heights)):
        figures = result.task.check(levels)
        outcome = evaluate(database, levels, case.k, case.known, case.weights)
        state, _ = released_state(result.task, database)
        assert state.persons == outcome.state.persons
        assert figures.suppressed_rows == outcome.suppressed_persons
        if state.persons:
            assert result.task.lattice.measure.score(levels, figures) == pytest.approx(outcome.score, abs=1e-9)


def check_with_rows(case: LinkedCase, result: LinkedResult, row_limit: float, levels: Levels) -> LinkedFigures:
    """The figures of a generalization, whose state is held against the definitions."""
    database, figures = case.database, result.task.check(levels)
    if not figures.is_complete:
        return figures
    view = View(database, levels)
    state, suppressed = released_state(result.task, database)
    assert view.is_safe(state, case.k, case.known)
    assert len(suppressed) <= row_limit * len(database.person_of)
    if state.persons:
        assert sum(figures.suppressed_by_table[1:]) == len(database.person_of) - len(state.rows)
    assert figures.suppressed_rows == len(database.everything.persons - state.persons)
    for t, number in state.rows:
        parent = next(row.parent for row in database.tables[t].rows if row.number == number)
        assert not database.tables[t].parent or (database.tables[t].parent, parent) in state.rows
    if figures.suppressed_rows <= case.allowed_persons:
        assert view.find_restorable(state, case.k, case.known, suppressed) is None
    if state.persons and figures.suppressed_rows <= case.allowed_persons:
        score = loss(database, levels, state, case.weights)
        assert result.task.lattice.measure.score(levels, figures) == pytest.approx(score, abs=1e-9)
    return figures


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "row_limit"),
    some(zip(small_cases(MOST_GENERALIZATIONS, draw_tables(4, 40)), itertools.cycle((0.1, 0.2, 0.34))), every=2),
)
def test_suppressed_rows_cannot_be_put_back_and_verdicts_hold(case: LinkedCase, row_limit: float) -> None:
    result = anonymize_case(case, row_suppression_limit=row_limit)
    if result is None:
        return
    generalizations = list(itertools.product(*(range(height + 1) for height in case.database.heights)))
    figures = {levels: check_with_rows(case, result, row_limit, levels) for levels in generalizations}
    verdicts = {levels: draw_verdict(known, case.allowed_persons) for levels, known in figures.items()}
    for levels, compared in itertools.product(generalizations, generalizations):
        if all(map(int.__le__, compared, levels)) and verdicts[levels].infeasible_below:
            assert not verdicts[compared].is_feasible
        if all(map(int.__ge__, compared, levels)) and verdicts[levels].feasible_above:
            assert verdicts[compared].is_feasible
    score = result.task.lattice.measure.score
    scores = {levels: score(levels, figures[levels]) for levels in generalizations if verdicts[levels].is_feasible}
    assert result.score == pytest.approx(min(scores.values()), abs=1e-9)


@pytest.mark.slow
def test_a_policy_with_one_table_has_the_result_of_a_policy_of_that_table(tmp_path: Any) -> None:
    people = "SELECT i AS id, i % 7 AS age, i % 3 AS ward FROM range(40) AS r(i)"
    attributes = {
        "age": {"role": "quasi", "hierarchy": {"intervals": [2, 4]}},
        "ward": {"role": "quasi", "hierarchy": "suppress"},
    }
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE people AS {people}")
    with sqlanon.connect(connection) as db:
        alone = db.anonymize(
            sqlanon.Policy(
                source={"table": "people"},
                attributes={"id": {"role": "identifying"}, **attributes},
                privacy={"k": 3},
                search={"suppression_limit": 0.1},
            )
        )
        linked = db.anonymize(
            LinkedPolicy(
                table=[{"name": "people", "person": "id", "attributes": {"id": {"role": "key"}, **attributes}}],
                privacy={"k": 3},
                search={"suppression_limit": 0.1},
            )
        )
    assert linked.generalization == {f"people.{name}": level for name, level in alone.generalization.items()}
    assert linked.score == pytest.approx(alone.score)
    assert linked.suppressed_persons == alone.suppressed_rows


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["k_minimal", "ola", "samarati", "flash", "incognito", "datafly"])
def test_other_full_domain_strategies_find_a_feasible_generalization(strategy: str) -> None:
    for case in small_cases(MOST_GENERALIZATIONS, examples(10)):
        expected: Outcome | None = best(case.database, case.k, case.known, case.allowed_persons, case.weights)
        result = anonymize_case(case, strategy=strategy)
        if result is None:
            assert expected is None
            continue
        assert expected is not None
        outcome = evaluate(case.database, result.levels, case.k, case.known, case.weights)
        assert outcome.suppressed_persons <= case.allowed_persons
        assert result.score >= expected.score - 1e-9
        assert result.bound <= expected.score + 1e-9


@pytest.mark.slow
def test_samarati_finds_more_than_the_highest_generalization() -> None:
    result = anonymize_rows(persons_and_rows(search={"strategy": "samarati"}), PERSONS, ROWS)
    assert result.score < 1


@pytest.mark.slow
def test_a_check_is_interrupted_at_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_for_hours(peeling_: peeling.Peeling, *_: object) -> None:
        peeling_.snapshot.runner.engine.rows(
            template("SELECT count(*) FROM range(10000000) AS a, range(10000000) AS b")()
        )

    case = small_cases(MOST_GENERALIZATIONS, 1)[0]
    connection = duckdb.connect()
    case.fill(connection)
    tree = case.policy()
    tree["search"]["time_limit"] = 0.1
    monkeypatch.setattr(peeling.Peeling, "suppress_rows_and_persons", run_for_hours)
    monkeypatch.setattr(search, "FIRST_GRACE", 0.0)
    with pytest.raises(InfeasibleError, match="ended the search before it had checked anything"):
        sqlanon.connect(connection).anonymize(LinkedPolicy(**tree))


@pytest.mark.slow
def test_a_search_that_stops_without_a_result_checks_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    confidence = {"attribute": "s", "max": 0.5}
    tree = persons_and_rows(search={"max_checks": 1}, privacy={"k": 2, "known": 1, "confidence": confidence})
    tree["table"][0]["attributes"]["s"] = {"role": "sensitive"}
    suppress_persons, checked = peeling.Peeling.suppress_persons, list[Levels]()

    def count_checks(peeling_: peeling.Peeling, levels: Levels, allowed_persons: int) -> peeling.PeelingResult:
        checked.append(levels)
        return suppress_persons(peeling_, levels, allowed_persons)

    monkeypatch.setattr(peeling.Peeling, "suppress_persons", count_checks)
    with pytest.raises(InfeasibleError, match=r"the search stopped at \[search\] max_checks = 1 before it found"):
        anonymize_rows(tree, PERSONS.replace("AS q", "AS q, i % 3 = 0 AS s"), ROWS)
    assert len(checked) == 1


@pytest.mark.slow
def test_tables_of_an_interrupted_check_are_not_those_of_an_earlier_generalization(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (case,) = [case for case in small_cases(MOST_GENERALIZATIONS, 20) if case.k == 2 and case.known == 1][:1]
    result = anonymize_case(case, suppression_limit=1)
    assert result is not None
    task = result.task
    assert task.stored_rows.levels == result.levels

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(task.records.runner, "create_table", stop)
        with pytest.raises(KeyboardInterrupt):
            task.stored_rows.store(result.levels, task.peeling.snapshot.kept_rows)
    assert task.stored_rows.levels is None
