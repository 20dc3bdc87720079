"""Level limits and forbidden labels of attributes: every strategy keeps to them."""

from __future__ import annotations

import json
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from limited_searches import Limited, limit_search, minimal_of

import sqlanon
from oracles import oracle
from oracles.oracle import Table
from properties import random_cases
from properties.plain_search import WIDE, search_by
from properties.random_cases import Case
from properties.search_checks import arrow_table, thorough
from properties.search_checks import policy as policy_of
from sqlanon.strategies.lattice import Lattice
from support.databases import connect_to, insert, live_connection, without_tables
from support.lanes import draw_tables, some
from support.policies import make_policy

CITIES = {"north": {"harbour": ["Kiel", "Emden"], "inland": ["Celle"]}, "south": {"hills": ["Ulm"], "alps": ["Isny"]}}
PEOPLE = [*[("Kiel", 1)] * 4, *[("Celle", 2)] * 4, *[("Ulm", 3)] * 4, *[(None, 4)] * 4]


def town_attribute(*forbidden: str, **more: Any) -> dict[str, Any]:
    return {"role": "quasi", "hierarchy": {"categories": CITIES}, "forbidden": list(forbidden), **more}


@pytest.fixture(scope="module")
def shared_connection() -> Any:
    with live_connection() as connection:
        yield connection


@pytest.fixture
def people(shared_connection: Any) -> Any:
    with without_tables(shared_connection) as connection:
        connection.execute("CREATE TABLE t (town VARCHAR, age INTEGER)")
        insert(connection, "t", PEOPLE)
        yield connection


def levels_of(people: Any, attribute: dict[str, Any], **sections: Any) -> dict[str, int]:
    with connect_to(people) as db:
        result = db.anonymize(make_policy({"town": attribute, "age": "suppress"}, **sections))
        return dict(result.generalization)


# The policy


def test_a_set_of_labels_has_one_form() -> None:
    first, second = (
        make_policy({"town": town_attribute(*labels)}) for labels in (("Ulm", "Kiel", "Ulm"), ("Kiel", "Ulm"))
    )
    assert first.attributes["town"].forbidden == ("Kiel", "Ulm")
    assert first.fingerprint() == second.fingerprint()
    assert make_policy({"town": town_attribute() | {"forbidden": "Ulm"}}).attributes["town"].forbidden == ("Ulm",)
    assert sqlanon.Policy(**json.loads(first.model_dump_json())).fingerprint() == first.fingerprint()


def test_a_policy_without_them_has_the_fingerprint_that_it_had() -> None:
    bare = {"role": "quasi", "hierarchy": {"categories": CITIES}}
    assert make_policy({"town": town_attribute()}).fingerprint() == make_policy({"town": bare}).fingerprint()
    assert "forbidden" not in make_policy({"town": bare}).model_dump_json()


@pytest.mark.thorough
def test_manifest_counts_forbidden_labels_without_naming_them(people: Any, tmp_path: Path) -> None:
    policy = make_policy({"town": town_attribute("harbour", "Kiel"), "age": "suppress"})
    assert policy.redact()["attributes"]["town"]["forbidden"] == 2
    with connect_to(people) as db:
        release = db.anonymize(policy).publish(tmp_path / "release.duckdb")
    with duckdb.connect(str(release.path), read_only=True) as connection:
        ((policy_text,),) = connection.execute("SELECT policy::VARCHAR FROM sqlanon.manifest").fetchall()
    assert "forbidden" in policy_text
    assert not any(label in policy_text for label in ("harbour", "Kiel"))


@pytest.mark.parametrize(
    ("forbidden", "place", "words"),
    [
        ([5], "attributes.town.forbidden[0]", "text"),
        ([""], "attributes.town.forbidden[0]", "empty"),
        ({"a": 1}, "attributes.town.forbidden", ""),
    ],
)
def test_unknown_labels_are_refused(forbidden: Any, place: str, words: str) -> None:
    with pytest.raises(sqlanon.PolicyError) as caught:
        make_policy({"town": town_attribute() | {"forbidden": forbidden}})
    (problem,) = caught.value.problems
    assert problem.place.startswith(place)
    assert words in problem.message


def test_only_quasi_identifiers_have_labels() -> None:
    with pytest.raises(sqlanon.PolicyError, match=r"attributes\.x\.forbidden: applies to quasi-identifiers"):
        make_policy({"town": town_attribute(), "x": {"role": "sensitive", "forbidden": ["a"]}})


def test_the_schema_describes_them() -> None:
    schema = sqlanon.Policy.model_json_schema()["$defs"]["Attribute"]["properties"]["forbidden"]
    single, several = schema["anyOf"]
    assert (single["type"], several["type"], several["items"]) == ("string", "array", single)


def test_a_label_that_the_hierarchy_does_not_have_is_a_mistake(people: Any) -> None:
    """Otherwise the label would be ignored without a notice."""
    with pytest.raises(sqlanon.HierarchyError) as caught:
        levels_of(people, town_attribute("Keil", "Emden", "alps"))
    (problem,) = caught.value.problems
    assert problem.place == "attributes.town.forbidden"
    assert "'Keil' is at no level" in problem.message
    assert not any(value in str(caught.value) for value in ("Kiel", "Celle", "Ulm"))


# The levels that are left


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("forbidden", "level"),
    some(
        [
            ([], 0),
            (["Kiel"], 1),
            (["Emden", "Isny", "alps"], 0),  # in the hierarchy, and in no row
            (["Kiel", "hills"], 2),
            (["hills"], 0),
            (["Celle", "Ulm", "inland", "south", "north"], 3),
            (["*"], 0),
        ],
        4,
    ),
)
def test_the_lowest_level_has_no_forbidden_label(people: Any, forbidden: list[str], level: int) -> None:
    assert levels_of(people, town_attribute(*forbidden)) == {"town": level, "age": 0}


@pytest.mark.thorough
@pytest.mark.parametrize("strategy", some(sorted(WIDE), 3))
def test_a_level_in_the_middle_is_passed_over(people: Any, strategy: str) -> None:
    """One of the harbour towns is alone: their level is the one to release, were it allowed."""
    people.execute("UPDATE t SET town = 'Emden' WHERE rowid = 0")
    sections = {"source": {"table": "t", "undeclared": "drop"}, "search": {"strategy": strategy}}
    with connect_to(people) as db:
        before, result = (
            db.anonymize(make_policy({"town": forbidden}, **sections))
            for forbidden in (town_attribute(), town_attribute("harbour"))
        )
        evaluated = {tuple(levels) for (levels,) in result.lattice.select("levels").fetchall()}
    assert before.generalization == {"town": 1}
    assert result.generalization == {"town": 2}
    assert result.nodes == 3
    assert evaluated <= {(0,), (2,), (3,)}


@pytest.mark.thorough
def test_numbers_dates_and_nulls_are_forbidden_by_their_text(people: Any) -> None:
    people.execute("CREATE TABLE u AS SELECT DATE '2020-01-01' + (i // 2)::INT AS day, i // 2 AS n FROM range(8) r(i)")
    rules = {"day": {"dates": ["month"]}, "n": {"intervals": [2]}}
    forbidden = {"day": ["2020-01-02"], "n": ["2-3", "NULL"]}

    def policy(**labels: list[str]) -> sqlanon.Policy:
        attributes = {n: {"role": "quasi", "hierarchy": rule, "forbidden": labels[n]} for n, rule in rules.items()}
        return make_policy(attributes, table="u")

    with connect_to(people) as db:
        with pytest.raises(sqlanon.HierarchyError, match="'NULL' is at no level"):
            db.anonymize(policy(**forbidden))
        result = db.anonymize(policy(day=forbidden["day"], n=["2-3", "1"]))
    assert dict(result.generalization) == {"day": 1, "n": 2}


@pytest.mark.slow
def test_values_that_are_never_released_do_not_count(people: Any) -> None:
    """All rows with unknown values are suppressed, and a population is not released."""
    rule = {"categories": {"all": {"north": ["Kiel"], "south": ["Ulm"]}}}
    attribute = {"role": "quasi", "hierarchy": rule, "on_unknown": "suppress", "forbidden": ["Ulm"]}
    people.execute("CREATE TABLE everybody AS SELECT town FROM t")
    people.execute("UPDATE t SET town = 'Celle' WHERE town = 'Ulm'")
    policy = sqlanon.Policy(
        attributes={"town": attribute},
        source={"table": "t", "undeclared": "drop"},
        population={"table": "everybody"},
        privacy={"k_map": 2},
        search={"suppression_limit": 0.5},
    )
    with connect_to(people) as db:
        assert db.anonymize(policy).generalization == {"town": 0}


def test_no_level_left_is_infeasible(people: Any) -> None:
    attribute = town_attribute("Kiel", "inland", "south", max_level=2)
    with pytest.raises(sqlanon.InfeasibleError, match="town: at each level that the policy permits") as caught:
        levels_of(people, attribute)
    assert caught.value.nearest is None
    assert not any(label in str(caught.value) for label in ("Kiel", "inland", "south"))
    assert levels_of(people, town_attribute("Kiel", "inland", "south")) == {"town": 3, "age": 0}


@pytest.mark.slow
def test_the_nearest_generalization_has_no_forbidden_label(people: Any) -> None:
    """All inland or in the hills would do; but that level is forbidden, and so is the top."""
    attribute = town_attribute("harbour", "south", "*")
    with pytest.raises(sqlanon.InfeasibleError, match="Levels with forbidden labels were left out") as caught:
        levels_of(people, attribute, k=5)
    assert caught.value.nearest == {"town": 0, "age": 1}


@pytest.mark.thorough
def test_masked_rows_are_dropped_where_the_top_is_forbidden(people: Any) -> None:
    people.execute("INSERT INTO t VALUES ('Isny', 1), ('Emden', 1)")
    search, release = {"suppression_limit": 0.2}, {"suppressed": "mask"}
    source = {"table": "t", "undeclared": "drop"}
    with connect_to(people) as db:
        masked, dropped = (
            db.anonymize(make_policy({"town": forbidden}, source=source, search=search, release=release))
            for forbidden in (town_attribute(), town_attribute("*"))
        )
    assert (masked.suppressed_rows, masked.released_rows) == (2, 18)
    assert (dropped.suppressed_rows, dropped.released_rows) == (2, 16)
    assert any("the policy forbids the top label of town" in warning for warning in dropped.warnings)


def test_plan_checks_forbidden_labels(people: Any) -> None:
    with connect_to(people) as db:
        plan = db.plan(make_policy({"town": town_attribute("harbour"), "age": "suppress"}))
    assert plan.nodes is None
    assert plan.unknown_heights == ("town",)
    assert "'harbour'" in str(plan)
    assert "depends on the data: on the values of town" in str(plan)


@pytest.mark.thorough
def test_a_release_at_a_forbidden_level_does_not_verify(people: Any, tmp_path: Path) -> None:
    policies = [
        make_policy({"town": forbidden, "age": "suppress"}) for forbidden in (town_attribute(), town_attribute("Kiel"))
    ]
    with connect_to(people) as db:
        release = db.anonymize(policies[0]).publish(tmp_path / "release.duckdb")
        failed = [check.name for check in db.verify(release.path, policies[1]).checks if check.passed is False]
        assert [failure for failure in failed if not failure.startswith("against the source")] == []
    assert "against the source: generalization" in failed


# Any table, any strategy


@dataclass(frozen=True)
class Restricted:
    """A case, with limits and forbidden labels for each attribute."""

    case: Case
    limits: tuple[tuple[int, int], ...]
    forbidden: tuple[tuple[str, ...], ...]

    @property
    def levels(self) -> tuple[tuple[int, ...], ...]:
        """The levels that each attribute may be released at."""
        table = Table.of(self.case.rows, self.case.hierarchies)
        result = []
        for a, tree in enumerate(table.hierarchies):
            (low, high), labels = self.limits[a], self.forbidden[a]
            values = [value for value in table.values[a] if value is not None and tree.knows(value)]
            labels_by_level = [{str(tree.label(value, level)) for value in values} for level in range(tree.height + 1)]
            result.append(tuple(level for level in range(low, high + 1) if not labels_by_level[level] & set(labels)))
        return tuple(result)

    def policy(self, strategy: str, directory: Path) -> sqlanon.Policy:
        policy = policy_of(self.case, strategy, directory)
        attributes = dict(policy.attributes)
        for name, (low, high), labels in zip(policy.quasi_identifiers, self.limits, self.forbidden, strict=True):
            changed = {"min_level": low, "max_level": high, "forbidden": labels}
            attributes[name] = attributes[name].model_copy(update=changed)
        return policy.model_copy(update={"attributes": attributes})


@st.composite
def restricted_cases(draw: st.DrawFn) -> Restricted:
    case = draw(random_cases.cases().filter(lambda candidate: bool(candidate.rows)))
    limits, forbidden = [], []
    for tree in case.hierarchies.values():
        low = draw(st.sampled_from([0, 0, *range(tree.height + 1)]))
        limits.append((low, draw(st.sampled_from([tree.height, *range(low, tree.height + 1)]))))
        labels = sorted({str(label) for path in tree.paths.values() for label in path})
        forbidden.append(tuple(sorted(draw(st.sets(st.sampled_from(labels), max_size=2)))))
    return Restricted(case, tuple(limits), tuple(forbidden))


def check(restricted_case: Restricted) -> None:
    """Each strategy releases a permitted level, and its claims are true."""
    case, allowed = restricted_case.case, restricted_case.levels
    expected = oracle.best(Limited(case, allowed).satisfying(), case.measure)
    satisfying = {figures.levels: figures for figures in (expected.satisfying if expected else ())}
    with tempfile.TemporaryDirectory() as name, sqlanon.connect(arrow_table(case)) as db:
        for strategy in WIDE:
            try:
                result = db.anonymize(restricted_case.policy(strategy, Path(name)))
            except sqlanon.InfeasibleError as error:
                assert not satisfying or f"strategy {strategy} found no generalization" in str(error)
                continue
            levels = tuple(result.generalization.values())
            assert levels in satisfying, (strategy, levels)
            assert math.isclose(result.score, satisfying[levels].score, rel_tol=1e-9)
            assert expected is not None
            if result.optimal:
                assert math.isclose(result.score, expected.score, rel_tol=1e-9), strategy
            if strategy == "optimal":
                assert levels == expected.levels
            if strategy in ("k_minimal", "ola", "flash", "incognito"):
                minimal = sorted(tuple(node.values()) for node in result.k_minimal or ())
                assert minimal == sorted(figures.levels for figures in minimal_of(expected.satisfying)), strategy


@pytest.mark.thorough
@settings(thorough, max_examples=draw_tables(20, usual=15))
@given(restricted_case=restricted_cases())
def test_every_strategy_keeps_to_levels_and_labels(restricted_case: Restricted) -> None:
    check(restricted_case)


@pytest.mark.thorough
@settings(thorough, max_examples=draw_tables(20, usual=60))
@given(limited_case=limit_search())
def test_gaps_change_no_answer(limited_case: Limited) -> None:
    check_gaps(limited_case)


def check_gaps(limited_case: Limited) -> None:
    """Levels that are left out within a lattice: for the strategies that every answer of other tests leans on."""
    satisfying = limited_case.satisfying()
    best = oracle.best(satisfying, limited_case.case.measure)
    searches = {name: limited_case.search() for name in ("optimal", "k_minimal")}
    outcomes = {name: search_by(name, search) for name, search in searches.items()}
    assert outcomes["optimal"].levels == (best.levels if best else None)
    assert sorted(outcomes["k_minimal"].minimal or ()) == sorted(figures.levels for figures in minimal_of(satisfying))
    good = {figures.levels for figures in satisfying}
    for search in searches.values():
        rows = search.lattice_columns()
        for levels, word in zip(rows[0], rows[3], strict=True):
            assert word == "open" or (word == "satisfies") == (tuple(levels) in good)


def test_a_lattice_with_gaps() -> None:
    lattice = Lattice(("a", "b"), (0, 1), (3, 4), (frozenset({1, 2}), frozenset({3})))
    assert lattice.size == 6
    assert [lattice.levels(attribute) for attribute in (0, 1)] == [[0, 3], [1, 2, 4]]
    assert lattice.lift((1, 3)) == (3, 4)
    assert [lattice.permits(levels) for levels in [(0, 1), (1, 1), (0, 3), (0, 0), (3, 5)]] == [True, *[False] * 4]
