"""The suppression limit counts persons where persons are counted: every full-domain strategy, compared with a plain
search."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sqlanon
from oracles import oracle, oracle_privacy
from oracles.oracle import Hierarchy, Levels
from oracles.oracle_privacy import Record, Release, Source
from properties import hard_cases
from properties.plain_search import WIDE
from properties.privacy_cases import PrivacyCase
from properties.privacy_checks import anonymize_case, check_persons
from support.lanes import SEARCHING, draw_tables, examples

pytestmark = pytest.mark.slow

quick = settings(
    max_examples=draw_tables(6, usual=8), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
thorough = settings(quick, derandomize=not SEARCHING, max_examples=examples(15), print_blob=True)

ZIPS = Hierarchy({zip_: (zip_, f"{zip_[0]}*", "*") for zip_ in ("11", "12", "13", "21", "22")})
SEXES = Hierarchy({sex: (sex, "*") for sex in "fm"})


def visits(*persons: str) -> list[Record]:
    """The rows of persons, each given by the zip of each of its rows."""
    return [{"zip": zip_, "who": f"p{i}"} for i, zips in enumerate(persons) for zip_ in zips.split()]


def case_of(rows: list[Record], limit: str, k: int = 2, **privacy: Any) -> PrivacyCase:
    return PrivacyCase(Source(rows, {"zip": ZIPS}, person="who"), {"k": k, **privacy}, limit, "loss")


def levels_by(strategy: str, case: PrivacyCase) -> Levels:
    with anonymize_case(case, strategy) as (result, *_):
        check_persons(result, Release(case.source, (result.generalization["zip"],), case.privacy))
        return (result.generalization["zip"],)


@pytest.mark.thorough
@pytest.mark.parametrize("strategy", WIDE)
def test_two_persons_who_lose_one_row_each_are_more_than_one(strategy: str) -> None:
    """Of 20 persons with 5 rows each, 5 % are one person, and 5 % of the rows are five rows."""
    rows = visits(*["11 11 11 11 11"] * 18, "11 11 11 11 12", "11 11 11 11 13")
    assert levels_by(strategy, case_of(rows, "0.05")) == (1,)
    assert levels_by(strategy, case_of(rows, "0.1")) == (0,)


@pytest.mark.thorough
@pytest.mark.parametrize("strategy", WIDE)
def test_one_person_with_many_rows_is_one(strategy: str) -> None:
    """A tenth of ten persons has 12 of 30 rows."""
    rows = visits(*["11 11"] * 9, " ".join(["22"] * 12))
    assert levels_by(strategy, case_of(rows, "0.1")) == (0,)
    assert levels_by(strategy, case_of(rows, "0.09")) == (2,)


@pytest.mark.thorough
def test_rows_without_a_person_are_one_person() -> None:
    rows = [*visits("11", "11"), *({"zip": zip_, "who": None} for zip_ in ("12", "13", "21"))]
    assert levels_by("optimal", case_of(rows, "0.34")) == (0,)
    assert levels_by("optimal", case_of(rows, "0.33")) == (2,)


def test_an_infeasible_policy_is_explained_in_persons() -> None:
    rows = visits("11 12", "11 11", "99", "99")
    case = case_of(rows, "0.25", k=3)
    with pytest.raises(sqlanon.InfeasibleError) as caught, anonymize_case(case, "optimal"):
        pass
    error = caught.value
    assert (error.suppressed_persons, error.allowed_persons, error.allowed_rows) == (4, 1, None)
    message = str(error)
    assert (
        "suppresses rows of 4 of 4 persons (6 of 6 rows); the suppression limit allows 1 person to lose rows" in message
    )


@pytest.mark.thorough
def test_the_limit_that_an_error_names_is_enough() -> None:
    rows = visits("11 11 11 21", "11 11 11 11", "22 11 11 11", "11 11 11 11", "12", "13")
    attributes = {"max_level": 0}
    help_ = pytest.raises(sqlanon.InfeasibleError, match=r"raise search\.suppression_limit to 0\.6667")
    with help_ as caught, anonymize_case(case_of(rows, "0.5"), "optimal", attributes):
        pass
    assert caught.value.suppressed_persons == 4
    with anonymize_case(case_of(rows, "0.6667"), "optimal", attributes) as (result, *_):
        assert (result.suppressed_persons, result.partly_released_persons) == (4, 2)


# --- random sources ---------------------------------------------------------------------------------

PRIVACY: list[dict[str, Any]] = [
    {"k": 2},
    {"k": 2},
    {"k": 3},
    {"k": 2, "k_anonymity": [{"quasi": ["zip"], "k": 3}]},
    {"k": 2, "l_diversity": [{"attribute": "ill", "kind": "distinct", "l": 2}]},
    {"l_diversity": [{"attribute": "ill", "kind": "entropy", "l": 1.5}]},
    {"k": 2, "average_risk": 0.4},
]


@st.composite
def cases(draw: st.DrawFn) -> PrivacyCase:
    """3 to 9 persons: some have all rows in one combination, others in several; a value may be unknown."""
    quasi = {"zip": ZIPS, "sex": SEXES} if draw(st.booleans()) else {"zip": ZIPS}
    unknown = draw(st.integers(0, 4)) == 0
    rows: list[Record] = []
    for person in range(draw(st.integers(3, 9))):
        usual = draw(st.sampled_from(["11", "11", "12", "13", "21"]))
        drawn = draw(st.sampled_from([[], [], ["11", "12"], ["13", "21", "22", *(["99"] if unknown else [])]]))
        zips = [usual] * draw(st.integers(1, 4)) + draw(
            st.lists(st.sampled_from(drawn), max_size=3) if drawn else st.just([])
        )
        who = None if person == 8 else f"p{person}"
        sex = draw(st.sampled_from("fm"))
        rows += [{"zip": zip_, "sex": sex, "ill": draw(st.sampled_from("abc")), "who": who} for zip_ in zips]
    names = [*quasi, "ill", "who"]
    source = Source([{name: row[name] for name in names} for row in rows], quasi, {"ill": None}, "who")
    limit = draw(st.sampled_from(["0", "0.12", "0.2", "0.34", "0.5", "0.7", "1"]))
    measure = draw(st.sampled_from(["loss", "discernibility", "height", "entropy", "suppression", "precision"]))
    return PrivacyCase(source, draw(st.sampled_from(PRIVACY)), limit, measure)


def check(case: PrivacyCase, strategy: str) -> None:
    """The result is within the limit; the best, or all k-minimal ones, where the strategy claims it."""
    nodes = list(oracle.lattice(case.source.table))
    joins_suffice = case.privacy.keys() == {"k"}
    good = {levels for levels in nodes if hard_cases.satisfies(case, levels)}
    try:
        with anonymize_case(case, strategy) as (result, *_):
            levels = tuple(result.generalization.values())
            assert levels in good
            check_persons(result, Release(case.source, levels, case.privacy))
            check_lattice(case, result, good)
            if strategy in ("optimal", "incognito"):
                expected = oracle_privacy.solve(**case.arguments)
                assert expected is not None
                assert levels == expected.levels, expected.ties
            if result.optimal:
                expected = oracle_privacy.solve(**case.arguments)
                assert expected is not None
                assert result.score == pytest.approx(expected.score)
            if result.k_minimal is not None and strategy != "flash":
                minimal = {
                    candidate for candidate in good if not any(oracle.strictly_lower(low, candidate) for low in good)
                }
                reported = {tuple(node.values()) for node in result.k_minimal}
                assert reported <= minimal if strategy == "samarati" and not joins_suffice else reported == minimal
            if result.satisfying is not None:
                assert {tuple(node.values()) for node in result.satisfying} == good
    except sqlanon.InfeasibleError:
        assert not good or strategy in ("datafly", "samarati-binary", "flash", *([] if joins_suffice else ["samarati"]))


def check_lattice(case: PrivacyCase, result: Any, good: set[Levels]) -> None:
    """The lattice table has the oracle's result for each generalization."""
    for levels, status, rows, persons in result.lattice.project(
        "levels, status, suppressed_rows, suppressed_persons"
    ).fetchall():
        release = Release(case.source, tuple(levels), case.privacy)
        assert status == "open" or (status == "satisfies") == (tuple(levels) in good)
        assert rows in (None, release.suppressed)
        assert persons in (None, release.suppressed_persons)


@pytest.mark.parametrize("strategy", WIDE)
@thorough
@given(case=cases())
def test_the_answer_is_that_of_a_plain_search(strategy: str, case: PrivacyCase) -> None:
    check(case, strategy)


@pytest.mark.thorough
def test_random_cases_distinguish_row_and_person_limits() -> None:
    """In some cases the limits of rows and of persons allow different results, in either direction."""
    outcomes: set[tuple[bool, bool]] = set()

    @settings(max_examples=100, derandomize=True, deadline=None, database=None)
    @given(case=cases())
    def look(case: PrivacyCase) -> None:
        for levels in itertools.islice(oracle.lattice(case.source.table), 6):
            release = Release(case.source, levels, case.privacy)
            if not release.kept or not release.holds_as_a_whole():
                continue
            rows = release.suppressed <= oracle.allowed_rows(case.limit, len(case.source.rows))
            outcomes.add((rows, hard_cases.satisfies(case, levels)))

    look()
    assert outcomes == {(True, True), (True, False), (False, True), (False, False)}


# Names, which are never released as ranges.
TOWNS = Hierarchy({f"t{zip_}": (f"t{zip_}", f"t{zip_[0]}", "*") for zip_ in ZIPS.paths})


# --- groups of combinations -------------------------------------------------------------------------


def groupings(things: list[str]) -> Iterator[list[list[str]]]:
    """All ways to put things in groups; the first group is suppressed, and may be empty."""
    if not things:
        yield [[]]
        return
    for grouping in groupings(things[1:]):
        for i in range(len(grouping)):
            yield [*grouping[:i], [things[0], *grouping[i]], *grouping[i + 1 :]]
        yield [*grouping, [things[0]]]


def least_loss(rows: list[Record], k: int, allowed: int) -> float:
    """The least loss of groups of zips that each have k persons, within the limit of persons who lose a row."""
    zips = sorted({str(row["zip"]) for row in rows})
    whose = {zip_: {row["who"] for row in rows if row["zip"] == zip_} for zip_ in zips}
    count = {zip_: sum(row["zip"] == zip_ for row in rows) for zip_ in zips}
    best = 1.0
    for lost, *groups in groupings(zips):
        persons = [set().union(*(whose[zip_] for zip_ in group)) for group in (lost, *groups)]
        if not groups or len(persons[0]) > allowed or min(map(len, persons[1:])) < k:
            continue
        cost = float(sum(count[zip_] for zip_ in lost))
        for group in groups:
            level = next(level for level in range(3) if len({TOWNS.label(zip_, level) for zip_ in group}) == 1)
            under = sum(TOWNS.label(zip_, level) == TOWNS.label(group[0], level) for zip_ in TOWNS.paths)
            cost += sum(count[zip_] for zip_ in group) * (under - 1) / (len(TOWNS.paths) - 1)
        best = min(best, cost / len(rows))
    return best


@pytest.mark.thorough
@settings(quick, max_examples=draw_tables(6, usual=12))
@given(case=cases())
def test_groups_of_few_combinations_lose_least(case: PrivacyCase) -> None:
    """`k-similar` tries all groups of up to ten combinations."""
    rows = [{"zip": f"t{row['zip']}", "who": row["who"]} for row in case.source.rows if row["zip"] != "99"]
    privacy_case = PrivacyCase(Source(rows, {"zip": TOWNS}, person="who"), {"k": 2}, case.limit, "loss")
    persons = len({row["who"] for row in rows})
    try:
        with anonymize_case(privacy_case, "k-similar") as (result, *_):
            expected = least_loss(rows, 2, oracle.allowed_rows(case.limit, persons))
            assert result.score == pytest.approx(expected)
            assert result.suppressed_persons <= oracle.allowed_rows(case.limit, persons)
    except sqlanon.InfeasibleError:
        assert persons < 2
