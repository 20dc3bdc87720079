"""Random small tables with noise, through the public API and in plain Python: the same figures, and nothing else moves.

Noise is random, what is said of it is not: a test reads the noise that a run drew, and holds every figure against it.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings

import sqlanon
from oracles import oracle, oracle_noise
from oracles.oracle import Hierarchy
from oracles.oracle_privacy import Source
from properties.noise_cases import (
    ID,
    ILL,
    Column,
    NoiseCase,
    Seen,
    Shown,
    noise_cases,
    number,
    open_database,
    policy_of,
    read_columns,
    shown_by,
    shown_in,
)
from support.lanes import SEARCHING, examples

pytestmark = pytest.mark.thorough

# Noise is drawn anew when a failing table is made smaller: that would take long, and end anywhere.
quick = settings(
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
    print_blob=True,
)

SLACK = 1e-9
"""Distances that differ so little, relatively, may be a tie or not: it depends on the order of a division."""

UNITS = {"DECIMAL(9,2)": Fraction(1, 100), "DOUBLE": None, "FLOAT": None}
"""What values of a type are multiples of; None: of some power of two. The others are whole."""


def anonymize(db: sqlanon.Database, policy: sqlanon.Policy) -> sqlanon.Result | None:
    try:
        return db.anonymize(policy)
    except sqlanon.InfeasibleError:
        return None


def check(case: NoiseCase, publish: bool = False) -> None:
    """Figures and released values of a run, against the same run without noise and the oracle.

    Parameters
    ----------
    publish:
        Whether it is published and verified with its source, which takes most of the time.
    """
    with open_database(case) as (db, directory):
        plain = anonymize(db, policy_of(case, directory, noise=False))
        policy = policy_of(case, directory)
        before = None if plain is None else shown_by(plain, case)
        result = anonymize(db, policy)
        if before is None:
            assert result is None
            return
        if result is None:
            left = sum(map(len, judged_again(case, before)))
            assert "confidence" in case.privacy or len(case.rows) - left > allowed_rows(case) or not left
            return
        after = shown_by(result, case)
        check_nothing_else_moves(case, before, after)
        records = read_columns(result, len(case.noisy))
        check_records(case, before, after, records)
        check_figures(case, policy, result, records)
        check_values(case, got_noise(case, before), after)
        check_suppressed(case, result, before, after, records)
        if publish:
            release = result.publish(directory / "noisy.duckdb")
            assert shown_in(release.path, case) == after
            verification = db.verify(release.path, policy)
            assert verification.verified, verification.failures


def allowed_rows(case: NoiseCase) -> int:
    return oracle.allowed_rows(case.limit, len(case.rows))


def got_noise(case: NoiseCase, before: Shown) -> list[frozenset[int]]:
    """The classes without the rows that no noise can be added to."""
    unknown = {i for i, is_unknown in enumerate(case.is_unknown) if is_unknown}
    return [left for members in before.classes() if (left := members - unknown)]


def judged_again(case: NoiseCase, before: Shown) -> list[frozenset[int]]:
    """Classes that still have k rows. Where values are unknown, a case has no other requirement."""
    return [members for members in got_noise(case, before) if len(members) >= case.privacy["k"]]


def check_nothing_else_moves(case: NoiseCase, before: Shown, after: Shown) -> None:
    """Check all other columns, bit for bit, and all rows if none is suppressed after noise."""
    for earlier, noised in ((before.labels, after.labels), (before.rest, after.rest)):
        assert noised.items() <= earlier.items()
    if "confidence" not in case.privacy:
        assert set(after.labels) == {i for members in judged_again(case, before) for i in members}


def originals(case: NoiseCase, i: int) -> tuple[float, ...]:
    return tuple(float(number(column.values[i])) for column in case.noisy.values())


def round_values(values: Iterable[float]) -> tuple[float, ...]:
    """Round values to the digits in which a DECIMAL and the DOUBLE made from it agree."""
    return tuple(float(f"{value:.9g}") for value in values)


def check_records(case: NoiseCase, before: Shown, after: Shown, records: Seen) -> None:
    """`result.noisy` has the classes of the release, with the originals of the source and the values of the release."""
    members = oracle_noise.classes(records.records)
    got = Counter(frozenset(Counter(records.records[i].xs for i in some).items()) for some in members.values())
    expected = Counter(frozenset(Counter(originals(case, i) for i in some).items()) for some in got_noise(case, before))
    assert got == expected

    def count_groups(groups: dict[Hashable, list[Any]]) -> Counter[Any]:
        return Counter(frozenset(Counter(some).items()) for some in groups.values())

    in_file: dict[Hashable, list[Any]] = defaultdict(list)
    for i, labels in after.labels.items():
        in_file[labels].append((originals(case, i), round_values(float(number(value)) for value in after.noisy[i])))
    in_result: dict[Hashable, list[Any]] = defaultdict(list)
    for i in records.released:
        record = records.records[i]
        in_result[record.place].append((record.xs, round_values(record.ys)))
    assert count_groups(in_file) == count_groups(in_result)
    assert not any(type(value) is float and str(value) == "-0.0" for row in after.noisy.values() for value in row)


def close(got: float | None, expected: float | None) -> bool:
    if got is None or expected is None:
        return got is expected
    return math.isclose(got, expected, rel_tol=1e-9, abs_tol=1e-12)


def check_figures(case: NoiseCase, policy: sqlanon.Policy, result: sqlanon.Result, records: Seen) -> None:
    epsilons, rows = list(policy.epsilons.values()), records.records
    assert result.epsilon == pytest.approx(sum(epsilons))
    assert result.noise is not None
    assert list(result.noise) == list(case.noisy)
    for j, (name, column) in enumerate(case.noisy.items()):
        reported = result.noise[name]
        assert set(reported) == {
            "epsilon", "expected_relative_error", "observed_relative_error", "expected_error", "observed_error",
            "zero_rows",
        }  # fmt: skip
        assert reported["epsilon"] == policy.epsilons[name]
        assert close(reported["expected_error"], oracle_noise.expected_error(rows, epsilons, j))
        assert close(reported["observed_error"], oracle_noise.observed_error(rows, j))
        if column.type == "DATE":
            assert reported["expected_relative_error"] is reported["observed_relative_error"] is None
            continue
        assert close(reported["expected_relative_error"], oracle_noise.expected_relative_error(rows, epsilons, j))
        assert close(reported["observed_relative_error"], oracle_noise.observed_relative_error(rows, j))
        assert reported["zero_rows"] == oracle_noise.zero_rows(rows, j)
    for strict, risk in ((False, result.linking_risk), (True, result.linking_risk_strict)):
        least, most = (
            oracle_noise.linking_risk(rows, epsilons, records.released, strict, slack) for slack in (-SLACK, SLACK)
        )
        assert risk is not None
        assert least - 1e-12 <= risk <= most + 1e-12


def check_values(case: NoiseCase, classes: list[frozenset[int]], after: Shown) -> None:
    """Multiples of a power of two of the unit that is not below Δ / 1024, and within bounds."""
    for j, column in enumerate(case.noisy.values()):
        unit = UNITS.get(column.type, Fraction(1))
        step = None if "round" not in column.noise else Fraction(str(column.noise["round"]))
        low, high = [number(bound) for bound in column.noise["bounds"]] if "bounds" in column.noise else (None, None)
        for members in classes:
            xs = {i: number(column.values[i]) for i in members}
            delta = max(xs.values()) - min(xs.values())
            r = oracle_noise.granularity(delta, step or unit or Fraction(1), any_sign=step is None and unit is None)
            for i in members & after.noisy.keys():
                value = number(after.noisy[i][j])
                assert low is None or high is None or low <= value <= high
                if value in (low, high):
                    continue
                if delta or step:
                    assert (value / r).denominator == 1, (value, r)
                if not delta:
                    assert abs(value - xs[i]) <= (step or 0) / 2


def check_suppressed(case: NoiseCase, result: sqlanon.Result, before: Shown, after: Shown, records: Seen) -> None:
    """Check who is suppressed for confidence, and that the remaining rows meet all requirements."""
    assert result.rows == len(case.rows)
    assert result.released_rows == len(after.labels) == result.rows - result.suppressed_rows
    assert result.suppressed_rows <= allowed_rows(case)
    sizes = [len(members) for members in after.classes().elements()]
    assert (result.classes, result.smallest_class) == (len(sizes), min(sizes))
    assert min(sizes) >= case.privacy["k"]
    if "confidence" not in case.privacy:
        assert result.confidence is None
        assert any(case.is_unknown) or not any(records.suppressed)
        return
    assert result.confidence == {
        "beta": case.privacy["confidence"],
        "suppressed_rows": len(records.records) - len(records.released),
    }
    epsilons = [column.noise["epsilon"] for column in case.noisy.values()]
    beta, k = case.privacy["confidence"], case.privacy["k"]
    if {"l_diversity", "k_anonymity"}.isdisjoint(case.privacy):
        gone = oracle_noise.too_few(records.records, epsilons, beta, k)
        left = oracle_noise.kept_records(records.records, gone, lambda members: len(members) >= k)
    else:
        left = left_of_rows(case, before, records, epsilons)
    assert set(records.released) == left


def left_of_rows(case: NoiseCase, before: Shown, records: Seen, epsilons: list[float]) -> set[int]:
    """For requirements on values without noise: each record is recognized by its first value."""
    first = next(iter(case.noisy.values())).values
    ids = {float(value): i for i, value in enumerate(first)}
    rows = [
        {ID: ids[record.xs[0]], ILL: case.illnesses[ids[record.xs[0]]]} for record in records.records
    ]  # fmt: skip
    names = list(case.hierarchies)
    labels = {
        record.place: dict(zip(names, before.labels[ids[record.xs[0]]], strict=True)) for record in records.records
    }
    source = Source(rows, case.hierarchies, {ILL: None})
    beta = case.privacy["confidence"]
    return oracle_noise.survivors(records.records, epsilons, beta, case.privacy, source, rows, labels)


# --- what always has to work ------------------------------------------------------------------------

ONE = Hierarchy({value: (value, "*") for value in ("f", "m")})


def case_of_values(values: tuple[Any, ...], type_: str, sexes: str = "", **noise: Any) -> NoiseCase:
    """Values with noise, by sex; all of one without it."""
    rows: list[Any] = [(sex,) for sex in sexes or "f" * len(values)]
    column = Column(type_, {"epsilon": 1.0, **noise}, values)
    return NoiseCase(rows, {"b": ONE}, {"x_0": column}, ("flu",) * len(values), {"k": 2}, "0")


ZEROS = case_of_values((0, 0, 0, 0), "INTEGER")
BOTH_SIDES = case_of_values((-5, 0, 0, 5, 3, 3), "INTEGER", "ffffmm")
OUTSIDE = case_of_values((1, 1, 9, 9, 30, 30), "INTEGER", "ffmmmm", bounds=[2, 20])


@pytest.mark.parametrize("search", [{}, pytest.param({"strategy": "mondrian"}, marks=pytest.mark.slow)], ids=str)
@pytest.mark.parametrize("case", [ZEROS, BOTH_SIDES, OUTSIDE], ids=["zeros", "both sides of 0", "beyond its bounds"])
def test_noise_of_a_small_table_matches_the_oracle(case: NoiseCase, search: dict[str, Any]) -> None:
    check(replace(case, search=search), publish=True)


FULL_DOMAIN = ("optimal", "k_minimal", "samarati", "samarati-binary", "incognito", "ola", "flash", "datafly")
BELOW = ("iab", "mondrian", "k-similar", "subtree", "local")
CELLS = {"suppression": "cells"}


@settings(quick, max_examples=examples(4))
@given(case=noise_cases({}, confidence=True))
def test_confidence_matches_the_oracle_on_random_tables(case: NoiseCase) -> None:
    check(case)


@settings(quick, max_examples=examples(2))
@given(case=noise_cases({}, confidence=False, unknown=True))
@example(case=replace(case_of_values((1, None, 5, 2, 3, None), "INTEGER", "fffmmm"), limit="0.5"))
@example(case=replace(case_of_values((1, None, None, 2, 3, 3), "INTEGER", "fffmmm"), limit="0.5"))
@example(case=replace(case_of_values((1, None, None, 2, 3, 3), "INTEGER", "fffmmm"), limit="0.34"))
def test_unknown_values_are_suppressed(case: NoiseCase) -> None:
    check(case)


def check_local(case: NoiseCase, search: dict[str, Any], publish: bool = False) -> None:
    if search.get("strategy") == "iab":  # it knows k and shields only
        case = replace(
            case, privacy={name: requirement for name, requirement in case.privacy.items() if name != "l_diversity"}
        )
    check(replace(case, search=search), publish)


@pytest.mark.parametrize("strategy", FULL_DOMAIN)
@pytest.mark.parametrize("confidence", [False, True])
@pytest.mark.parametrize("unknown", [False, True])
def test_noise_matches_the_oracle_on_random_tables(strategy: str, confidence: bool, unknown: bool) -> None:
    @settings(quick, derandomize=not SEARCHING, max_examples=examples(20 if strategy == "optimal" else 3))
    @given(case=noise_cases({"strategy": strategy}, confidence, unknown and not confidence))
    @example(case=ZEROS)
    @example(case=OUTSIDE)
    def holds_for_case(case: NoiseCase) -> None:
        check(case, publish=True)

    holds_for_case()


@pytest.mark.parametrize("search", [*({"strategy": name} for name in BELOW), CELLS], ids=str)
@pytest.mark.parametrize("confidence", [False, True])
def test_noise_below_the_full_domain_matches_the_oracle(search: dict[str, Any], confidence: bool) -> None:
    @settings(quick, derandomize=not SEARCHING, max_examples=examples(5))
    @given(case=noise_cases({}, confidence))
    def holds_for_case(case: NoiseCase) -> None:
        check_local(case, search, publish=True)

    holds_for_case()
