"""Every privacy requirement on random small sources, through the public API and by exhaustive search: same answers."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import duckdb
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from oracles import oracle_privacy
from oracles.oracle import Hierarchy, Row
from oracles.oracle_privacy import Record, Release, Source
from properties import hard_cases, privacy_cases
from properties.privacy_cases import KINDS, PrivacyCase
from properties.privacy_checks import HARD, WITH_SUPPRESSION, S, anonymize_case, check, thorough
from support.lanes import examples, some

pytestmark = pytest.mark.slow


@pytest.mark.thorough
@pytest.mark.parametrize("strategy", ["optimal", "k_minimal"])
@pytest.mark.parametrize("kind", KINDS)
@settings(thorough, max_examples=examples(8))
@given(data=st.data())
def test_each_requirement_matches_the_oracle(kind: str, strategy: str, data: st.DataObject) -> None:
    check(data.draw(privacy_cases.privacy_cases(kind)), strategy)


@settings(thorough, max_examples=examples(50))
@given(case=privacy_cases.privacy_cases())
def test_combined_requirements_match_the_oracle(case: PrivacyCase) -> None:
    check(case)


@thorough
@given(case=privacy_cases.privacy_cases())
def test_k_minimal_search_matches_the_oracle(case: PrivacyCase) -> None:
    check(case, "k_minimal")


# --- where the search must not prune ----------------------------------------------------------------

# Persons in several combinations of quasi-identifiers: merged, their rows count once, and nothing is suppressed.
WITHOUT = {kind: HARD[kind] for kind in HARD if kind != "hierarchical"}


BOTH = pytest.mark.parametrize("strategy", ["optimal", "k_minimal"])


@pytest.mark.thorough
@BOTH
@pytest.mark.parametrize("persons", [None, "settled", "moving"])
@pytest.mark.parametrize("kind", WITH_SUPPRESSION)
def test_as_many_rows_are_suppressed_as_may_be(kind: str, persons: hard_cases.Persons, strategy: str) -> None:
    for seed in range(examples(2)):
        check(hard_cases.tight(seed, WITH_SUPPRESSION[kind], persons), strategy)


@pytest.mark.thorough
@BOTH
@pytest.mark.parametrize("persons", [None, "settled"])
@pytest.mark.parametrize("kind", WITH_SUPPRESSION)
def test_requirements_that_are_not_monotone_with_suppression(
    kind: str, persons: hard_cases.Persons, strategy: str
) -> None:
    for seed in range(examples(2)):
        check(hard_cases.not_monotone(seed, WITH_SUPPRESSION[kind], ("0.1", "0.2", "0.5"), persons), strategy)


@pytest.mark.thorough
@BOTH
@pytest.mark.parametrize("kind", WITHOUT)
def test_requirements_that_are_not_monotone_match_the_oracle_with_persons(kind: str, strategy: str) -> None:
    for seed in range(examples(2)):
        check(hard_cases.not_monotone(seed, WITHOUT[kind], ("0",), "moving"), strategy)


def of_words(*lines: str) -> list[Record]:
    """Rows of ``x s`` or ``x s who``."""
    return [dict(zip(("x", "s", "who"), line.split(), strict=False)) for line in lines]


# a and b merge at level 1, c and d too; e is for a population.
X = Hierarchy({"a": ("a", "ab", "*"), "b": ("b", "ab", "*"), **{v: (v, "cd", "*") for v in "cd"}, "e": ("e", "e", "*")})
DISEASES = Hierarchy({"flu": ("flu", "lungs", "*"), "cold": ("cold", "nose", "*")})
FLU_2_COLD_2, FLU_3, COLD_3 = ["flu"] * 2 + ["cold"] * 2, ["flu"] * 3, ["cold"] * 3
# Level 0: a and c have both values equally, b and d are suppressed. Level 1: 5 to 2 and 2 to 5. The top: 7 to 7.
HEAPS = {"a": FLU_2_COLD_2, "b": FLU_3, "c": FLU_2_COLD_2, "d": COLD_3}
OF_HEAPS = of_words(*(f"{x} {value}" for x, values in HEAPS.items() for value in values))
# Level 0: two persons with each value in each class. Level 1: 3 and 4, 7 and 8 count once: 4 to 2 and 2 to 4. The top:
# 6 to 6. All this without suppression.
OF_PERSONS = of_words(
    *("a flu 1", "a flu 2", "a cold 3", "a cold 4", "b flu 5", "b flu 6", "b cold 3", "b cold 4"),
    *("c flu 7", "c flu 8", "c cold 9", "c cold 10", "d flu 7", "d flu 8", "d cold 11", "d cold 12"),
)
BALANCED: dict[str, dict[str, Any]] = {
    "entropy": {"l_diversity": [{**S, "kind": "entropy", "l": 2}]},
    "recursive": {"l_diversity": [{**S, "kind": "recursive", "l": 2, "c": 1.5}]},
    "equal": {"t_closeness": [{**S, "distance": "equal", "t": 0.1}]},
    "ordered": {"t_closeness": [{**S, "distance": "ordered", "t": 0.1}]},
    "hierarchical": {"t_closeness": [{**S, "distance": "hierarchical", "t": 0.1}]},
    "delta_disclosure": {"delta_disclosure": [{**S, "delta": 0.3}]},
    "beta_likeness": {"beta_likeness": [{**S, "beta": 0.3}]},
    "alpha_k": {"alpha_k": [{**S, "alpha": 0.6}]},
}


def check_the_middle_is_lost(case: PrivacyCase) -> None:
    """Levels 0 and 2 satisfy, and 1 does not: who concludes from 1 on 0 finds the top, which loses more."""
    assert [hard_cases.satisfies(case, (level,)) for level in range(3)] == [True, False, True]
    expected = oracle_privacy.solve(**case.arguments)
    assert expected is not None
    assert expected.levels == (0,)
    check(case, "optimal")
    check(case, "k_minimal")


@pytest.mark.thorough
@pytest.mark.parametrize("kind", some(BALANCED, 2))
def test_with_suppression_a_good_class_merges_with_a_bad_one_and_is_lost(kind: str) -> None:
    source = Source(OF_HEAPS, {"x": X}, {"s": DISEASES})
    check_the_middle_is_lost(PrivacyCase(source, BALANCED[kind], "0.5", "loss"))


@pytest.mark.thorough
@pytest.mark.parametrize("kind", some([*BALANCED][::-1], 2))
def test_persons_in_several_classes_count_once_when_these_merge(kind: str) -> None:
    source = Source(OF_PERSONS, {"x": X}, {"s": DISEASES}, "who")
    check_the_middle_is_lost(PrivacyCase(source, BALANCED[kind], "0", "loss"))
    as_rows = PrivacyCase(replace(source, person=None), BALANCED[kind], "0", "loss")
    assert hard_cases.satisfies(as_rows, (1,)), "it is the persons that make the difference"


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["entropy", "recursive", "alpha_k"])
def test_the_top_may_be_lost_too(kind: str) -> None:
    """Only level 0 is feasible: a strategy that judges by the top finds nothing."""
    source = Source([row for row in OF_HEAPS if row["x"] in "abc"], {"x": X}, {"s": DISEASES})
    case = PrivacyCase(source, BALANCED[kind], "0.4", "loss")
    assert [hard_cases.satisfies(case, (level,)) for level in range(3)] == [True, False, False]
    check(case, "optimal")
    check(case, "k_minimal")


@pytest.mark.thorough
def test_presence_with_suppression() -> None:
    """b and d are not in the population; merged with a and c they make them too likely to be there."""
    people: list[Record] = [{"x": x} for x in "a" * 8 + "c" * 8 + "e" * 10]
    source = Source(OF_HEAPS, {"x": X}, {"s": DISEASES}, population=people)
    check_the_middle_is_lost(PrivacyCase(source, {"delta_presence": {"max": 0.7}}, "0.5", "loss"))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "measure"),
    some([(kind, measure) for kind in ("entropy", "recursive", "equal") for measure in ("loss", "entropy")], 3),
)
def test_classes_that_only_the_population_has_lose_nothing(kind: str, measure: str) -> None:
    """b is suppressed, because it has one value only. The absence of c, d and e from the table costs no row."""
    people: list[Record] = [{"x": x} for x in "abcde" * 4]
    source = Source(
        of_words("a flu", "a cold", "a flu", "a cold", "b flu"), {"x": X}, {"s": DISEASES}, population=people
    )
    case = PrivacyCase(source, {**BALANCED[kind], "k_map": 4}, "0.2", measure)
    assert hard_cases.satisfies(case, (0,))
    assert not hard_cases.satisfies(replace(case, limit="0.19"), (0,))
    check(case, "optimal")
    check(case, "k_minimal")


@pytest.mark.thorough
def test_presence_of_persons_who_are_in_the_population_more_than_once() -> None:
    """Eight persons match each class; merged, they match still only eight."""
    people: list[Record] = [{"x": x, "who": str(i)} for x in "abcd" for i in range(8)]
    people += [{"x": "e", "who": str(i)} for i in range(8, 40)]
    source = Source(OF_HEAPS, {"x": X}, {"s": DISEASES}, population=people, population_person="who")
    check_the_middle_is_lost(PrivacyCase(source, {"delta_presence": {"max": 0.5}}, "0", "loss"))


@pytest.mark.thorough
def test_average_risk_with_suppression() -> None:
    """The classes that suppression took are few rows each: kept, they make the average worse."""
    source = Source(of_words(*["a flu"] * 10, "c flu", "d flu"), {"x": X}, {"s": None})
    check_the_middle_is_lost(PrivacyCase(source, {"k": 2, "average_risk": 0.1}, "0.2", "loss"))


@pytest.mark.thorough
def test_average_risk_of_persons_without_suppression() -> None:
    """a and b are the same ten, c and e four each: 4 classes of 28, then 3 of 18; the top is one of 18."""
    who = {"a": range(10), "b": range(10), "c": range(10, 14), "e": range(14, 18)}
    people = of_words(*(f"{x} flu {i}" for x, some in who.items() for i in some))
    source = Source(people, {"x": X}, {"s": None}, "who")
    check_the_middle_is_lost(PrivacyCase(source, {"average_risk": 0.15}, "0", "loss"))


# --- what is published ------------------------------------------------------------------------------


@settings(thorough, max_examples=examples(25))
@given(case=privacy_cases.privacy_cases(), strategy=st.sampled_from(["optimal", "k_minimal"]))
def test_published_rows_meet_the_requirements(case: PrivacyCase, strategy: str) -> None:
    check_published(case, strategy)


def check_published(case: PrivacyCase, strategy: str) -> None:
    """The kept classes and nothing else; the release proves it, alone and against its source."""
    assume(oracle_privacy.satisfying(**case.arguments))
    with anonymize_case(case, strategy) as (result, db, policy, directory):
        levels = tuple(result.generalization[name] for name in case.source.quasi)
        release = result.publish(directory / "release.duckdb")
        assert release.verify().verified
        checked = db.verify(directory / "release.duckdb", policy)
        assert checked.verified, checked.failures
        names = [*case.source.quasi, *case.source.sensitive]
        columns = ", ".join('"' + name.replace('"', '""') + '"' for name in names)
        with duckdb.connect(str(directory / "release.duckdb"), read_only=True) as connection:
            released: Counter[Row] = Counter(connection.execute(f"SELECT {columns} FROM released").fetchall())
            column_names = {name for name, *_ in connection.execute("DESCRIBE released").fetchall()}
    assert column_names == set(names)
    assert released == Release(case.source, levels, case.privacy).released([*case.source.sensitive])


@pytest.mark.thorough
@settings(thorough, max_examples=examples(15))
@given(case=privacy_cases.privacy_cases())
def test_the_order_of_rows_does_not_matter(case: PrivacyCase) -> None:
    check_order(case)


def check_order(case: PrivacyCase) -> None:
    assume(oracle_privacy.satisfying(**case.arguments))
    answers = []
    for rows in (case.source.rows, case.source.rows[::-1]):
        with anonymize_case(replace(case, source=replace(case.source, rows=rows)), "optimal") as (result, *_):
            answers.append((result.generalization, result.suppressed_rows, result.classes))
    assert answers[0] == answers[1]
