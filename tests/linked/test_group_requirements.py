"""Requirements on sensitive attributes of linked tables hold in every group that an attacker may know."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from oracles.oracle_linked import State, View, loss
from properties.linked_cases import LinkedCase, small_cases
from sqlanon.errors import InfeasibleError, PolicyError
from sqlanon.linked.check import peeling
from sqlanon.linked.search import draw_verdict
from sqlanon.policy.linked import LinkedPolicy
from sqlanon.support.expressions import col, select
from support.databases import small_database
from support.lanes import EXAMPLES, draw_tables, some
from support.linked_databases import released_state, two_tables

Group = Callable[[Counter[Hashable], int], bool]


@dataclass(frozen=True)
class Rule:
    """A requirement as a policy writes it, its table, and whether a group with these counts of values meets it."""

    key: str
    entry: dict[str, Any]
    table: int
    is_met: Group


def _entropy(counts: Counter[Hashable], size: int) -> bool:
    shares = [count / size for count in counts.values()]
    return -math.fsum(share * math.log(share) for share in shares) >= math.log(1.5) - 1e-12


def _recursive(counts: Counter[Hashable], size: int) -> bool:
    ordered = sorted(counts.values(), reverse=True)
    return ordered[0] < 2 * sum(ordered[1:])


RULES = (
    Rule("confidence", {"attribute": "t1.s", "max": 0.6}, 1, lambda counts, size: max(counts.values()) <= 0.6 * size),
    Rule("confidence", {"attribute": "t0.s", "max": 0.75}, 0, lambda counts, size: max(counts.values()) <= 0.75 * size),
    Rule(
        "l_diversity", {"attribute": "t0.s", "kind": "distinct", "l": 2}, 0, lambda counts, size: len(counts) >= 2
    ),
    Rule("l_diversity", {"attribute": "t0.s", "kind": "entropy", "l": 1.5}, 0, _entropy),
    Rule("l_diversity", {"attribute": "t0.s", "kind": "recursive", "l": 2, "c": 2}, 0, _recursive),
    Rule("alpha_k", {"attribute": "t0.s", "alpha": 0.7}, 0, lambda counts, size: max(counts.values()) <= 0.7 * size),
)  # fmt: skip


@dataclass(frozen=True)
class SensitiveCase:
    """A case with a sensitive attribute ``s`` in the first two tables, and a requirement."""

    case: LinkedCase
    rule: Rule
    values: tuple[dict[int, str | None], dict[int, str | None]]

    def policy(self, **search: Any) -> LinkedPolicy:
        tree = self.case.policy()
        tree["search"] |= search
        for table in tree["table"][:2]:
            table["attributes"]["s"] = {"role": "sensitive"}
        tree["privacy"][self.rule.key] = [self.rule.entry]
        return LinkedPolicy(**tree)

    def fill(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.case.fill(connection)
        for t, values in enumerate(self.values):
            connection.execute(f"ALTER TABLE t{t} ADD COLUMN s VARCHAR")
            for number, value in values.items():
                connection.execute(f"UPDATE t{t} SET s = ? WHERE id_{t} = ?", [value, number + 100])

    def values_of(self, state: State, person: int) -> set[Hashable]:
        if self.rule.table == 0:
            return {self.values[0][person]}
        persons = self.case.database.person_of
        return {self.values[1][number] for t, number in state.rows if t == 1 and persons[t, number] == person}

    def is_violated(self, state: State, persons: Iterable[int]) -> bool:
        members = list(persons)
        counts = Counter(value for person in members for value in self.values_of(state, person))
        return bool(counts) and not self.rule.is_met(counts, len(members))

    def peel(self, view: View) -> tuple[State, State]:
        """The persons who stay for k alone, and with the requirement."""
        k, known = self.case.k, self.case.known
        alone = state = view.peel(self.case.database.everything, k, known)
        while True:
            groups = view.groups(state, known).values()
            unsupported = {person for persons in groups if self.is_violated(state, persons) for person in persons}
            if not unsupported:
                return alone, state
            state = view.peel(view.without_persons(state, unsupported), k, known)


def sensitive_cases(number: int) -> list[SensitiveCase]:
    cases = []
    for i, case in enumerate(small_cases(24, number, first=5000)):
        draw = random.Random(i)
        values: list[dict[int, str | None]] = [
            {row.number: draw.choice(["a", "a", "b", "c", None]) for row in table.rows}
            for table in case.database.tables[:2]
        ]
        cases.append(SensitiveCase(case, RULES[i % len(RULES)], (values[0], values[1])))
    return cases


QUICK = (0, 2, 4, 5, 13, 15)
"""A case of each rule with at most eight generalizations."""


@pytest.mark.least(6)
@pytest.mark.cases(3)
@pytest.mark.parametrize(
    ("drawn", "part_rows"),
    [
        pytest.param(*drawn, marks=[] if i in QUICK else [pytest.mark.slow])
        for i, drawn in enumerate(zip(sensitive_cases(draw_tables(24, 120)), itertools.cycle((4_000_000, 12))))
        if i in QUICK or not i % 2 or EXAMPLES > 1
    ],
    ids=lambda value: value.rule.key if isinstance(value, SensitiveCase) else str(value),
)
def test_every_generalization_keeps_what_the_oracle_keeps(
    drawn: SensitiveCase, part_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The persons who stay, the verdicts and the best generalization, in one part and in several."""
    monkeypatch.setattr(peeling, "PART_ROWS", dict.fromkeys((1, 2, 3, "all"), part_rows))
    case, database = drawn.case, drawn.case.database
    connection = small_database()
    drawn.fill(connection)
    scores, verdicts = {}, {}
    with sqlanon.connect(connection) as db:
        try:
            result = db.anonymize(drawn.policy())
        except InfeasibleError as error:
            assert error.suppressed_rows > case.allowed_persons
            result = None
        for levels in itertools.product(*(range(height + 1) for height in database.heights)):
            alone, state = drawn.peel(View(database, levels))
            suppressed = len(database.everything.persons - state.persons)
            is_feasible = suppressed <= case.allowed_persons and bool(state.persons)
            if is_feasible:
                scores[levels] = loss(database, levels, state, case.weights)
            if result is None:
                continue
            figures = result.task.check(levels)
            verdicts[levels] = draw_verdict(figures, case.allowed_persons)
            assert verdicts[levels].is_feasible == is_feasible
            assert (figures.least_suppressed or 0) <= len(database.everything.persons - alone.persons)
            if is_feasible:
                query = select([col("person")], result.task.peeling.snapshot.kept_persons.copy())
                persons = {person for (person,) in result.task.peeling.snapshot.runner.engine.rows(query)}
                assert persons == state.persons
                assert result.task.lattice.measure.score(levels, figures) == pytest.approx(scores[levels], abs=1e-9)
    if result is None:
        assert not scores
        return
    assert result.optimal
    assert result.score == pytest.approx(min(scores.values()), abs=1e-9)
    for levels, lower in itertools.product(verdicts, verdicts):
        if all(map(int.__le__, lower, levels)):
            assert not (verdicts[levels].infeasible_below and verdicts[lower].is_feasible)
            assert not (verdicts[lower].feasible_above and not verdicts[levels].is_feasible)


WITH_ROWS = [
    (replace(drawn, case=replace(drawn.case, suppression_limit="0.9")), row_limit)
    for drawn, row_limit in zip(sensitive_cases(draw_tables(24, 120)), itertools.cycle((0.1, 0.2, 0.34)))
]
QUICK_WITH_ROWS = (5, 7)
"""Cases with few rows that suppress a row, by two rules."""


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("drawn", "row_limit"),
    [
        pytest.param(*drawn, marks=[] if i in QUICK_WITH_ROWS else [pytest.mark.slow])
        for i, drawn in enumerate(WITH_ROWS)
        if i in QUICK_WITH_ROWS or not i % 2 or EXAMPLES > 1
    ],
    ids=lambda value: value.rule.key if isinstance(value, SensitiveCase) else str(value),
)
def test_requirements_hold_where_rows_are_suppressed_by_themselves(
    drawn: SensitiveCase, row_limit: float, tmp_path: Path
) -> None:
    """In every generalization; the best one is released, and each group is counted again."""
    case, database = drawn.case, drawn.case.database
    connection = small_database()
    drawn.fill(connection)
    scores, verdicts, fewest = {}, {}, {}
    with sqlanon.connect(connection) as db:
        try:
            result = db.anonymize(drawn.policy(row_suppression_limit=row_limit))
        except InfeasibleError:
            return
        assert result.publish(tmp_path / "release.duckdb").verify().verified
        for levels in itertools.product(*(range(height + 1) for height in database.heights)):
            figures = result.task.check(levels)
            verdicts[levels] = draw_verdict(figures, case.allowed_persons)
            fewest[levels] = figures.least_suppressed or 0
            if not figures.is_complete or not verdicts[levels].is_feasible:
                continue
            state, suppressed = released_state(result.task, database)
            view = View(database, levels)
            assert view.is_safe(state, case.k, case.known)
            groups = view.groups(state, case.known).values()
            assert not any(drawn.is_violated(state, persons) for persons in groups)
            assert len(suppressed) <= row_limit * len(database.person_of)
            assert len(database.everything.persons - state.persons) == figures.suppressed_rows
            scores[levels] = loss(database, levels, state, case.weights)
            assert result.task.lattice.measure.score(levels, figures) == pytest.approx(scores[levels], abs=1e-9)
    assert result.score == pytest.approx(min(scores.values()), abs=1e-9)
    for levels, lower in itertools.product(verdicts, verdicts):
        if all(map(int.__le__, lower, levels)):
            assert not (verdicts[levels].infeasible_below and verdicts[lower].is_feasible)
            assert not (verdicts[lower].feasible_above and not verdicts[levels].is_feasible)


@pytest.mark.slow
@pytest.mark.parametrize("known", some([2, "all", 1], every=3))
def test_a_release_with_a_violated_requirement_does_not_verify(known: int | str, tmp_path: Path) -> None:
    """The same rows verify with the values of the source, and fail once all persons have one diagnosis."""
    path = tmp_path / "release.duckdb"
    with duckdb.connect() as connection:
        patients = "SELECT i AS patient_id, i % 2 AS zip, i % 3 AS religion FROM range(24) AS r(i)"
        connection.execute(f"CREATE TABLE patients AS {patients}")
        visits = "SELECT i AS visit_id, i % 24 AS patient_id, i % 4 // 2 AS ward, 'd' || i % 6 AS diagnosis"
        connection.execute(f"CREATE TABLE visits AS {visits} FROM range(24) AS r(i)")
        privacy = {
            "k": 2,
            "known": known,
            "confidence": {"attribute": "diagnosis", "max": 0.5},
            "l_diversity": {"attribute": "religion", "kind": "distinct", "l": 2},
        }
        with sqlanon.connect(connection) as db:
            release = db.anonymize(LinkedPolicy(**hospital(privacy=privacy))).publish(path)
    verification = release.verify()
    assert verification.verified
    names = {check.name for check in verification.checks}
    assert {"confidence of at most 0.5 in diagnosis", "distinct 2-diversity of religion"} <= names
    for table, column in (("visits", "diagnosis"), ("patients", "religion")):
        with duckdb.connect(str(path)) as connection:
            connection.execute(f"UPDATE {table}_v1 SET {column} = (SELECT min({column}) FROM {table}_v1)")
        failures = " ".join(release.verify().failures)
        assert f"{column}: violated in groups of 24 persons" in failures


def hospital(**sections: Any) -> dict[str, Any]:
    """A policy of patients and visits, both with a sensitive attribute."""
    quasi, sensitive = {"role": "quasi", "hierarchy": "suppress"}, {"role": "sensitive"}
    return two_tables({"zip": quasi, "religion": sensitive}, {"ward": quasi, "diagnosis": sensitive}, **sections)


@pytest.mark.parametrize(
    ("privacy", "search", "place", "message"),
    [
        (
            {"l_diversity": {"attribute": "diagnosis", "kind": "distinct", "l": 2}}, {},
            "privacy.l_diversity[0].attribute", "a person may have several rows in it: use [[privacy.confidence]]",
        ),
        (
            {"t_closeness": {"attribute": "religion", "t": 0.2, "distance": "equal"}}, {},
            "privacy.t_closeness[0]", "compares groups with the whole source",
        ),
        (
            {"confidence": {"attribute": "ward", "max": 0.5}}, {},
            "privacy.confidence[0].attribute", "the sensitive attributes are patients.religion, visits.diagnosis",
        ),
        ({"confidence": {"attribute": "diagnosis", "max": 1.5}}, {}, "privacy.confidence.max", "at most 1"),
        (
            {"confidence": {"attribute": "diagnosis", "max": 0.5}}, {"strategy": "mondrian"},
            "search.strategy", "'mondrian' is not supported with privacy.confidence",
        ),
    ],
)  # fmt: skip
def test_requirements_that_do_not_fit_are_refused(
    privacy: dict[str, Any], search: dict[str, Any], place: str, message: str
) -> None:
    with pytest.raises(PolicyError) as error:
        LinkedPolicy(**hospital(privacy={"k": 2, **privacy}, search=search))
    assert [problem.place for problem in error.value.problems] == [place]
    assert message in error.value.problems[0].message
