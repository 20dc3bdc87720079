"""The estimates that decide whether two sources are the same, at their borders and for agreement by chance."""

from __future__ import annotations

import math

import pytest

from sqlanon.ledger.same_people import (
    DEVIATIONS,
    FEWEST_PEOPLE,
    NEIGHBOURS,
    RUNNING,
    estimate_agreement,
    is_more_than_chance,
)
from sqlanon.ledger.source_match import LEAST_ALONE, estimate_shared_rows, exceeds_chance, may_be_same_rows


@pytest.mark.parametrize("rate", [0.05, 0.3, 1.0, 3.0])
@pytest.mark.parametrize("combinations", [10, 1_000, 100_000, 10_000_000])
def test_combinations_of_rows_that_have_nothing_to_do_with_one_another_are_chance(
    rate: float, combinations: int
) -> None:
    none, single, two = (round(combinations * math.exp(-rate) * rate**n / math.factorial(n)) for n in range(3))
    assert not exceeds_chance(none, single, two)


def test_rows_in_common_are_more_than_chance() -> None:
    assert [exceeds_chance(0, common, 0) for common in (0, 4, 5, 100)] == [False, False, True, True]
    assert [exceeds_chance(none, 100, 0) for none in (1066, 1067)] == [True, False]  # 80² = 6,400 = 2 · 1,066.7 · 3
    assert [exceeds_chance(400, 100, two) for two in (2, 3)] == [True, False]  # at most 8 may be allowed


@pytest.mark.parametrize(
    ("figures", "share"),
    [
        # Of 100 sampled rows 10 are alone by chance, and up to 29 as well.
        ((1000, 100, 29, 1000, 900, 50), 0.0),
        ((1000, 100, 30, 1000, 900, 50), 0.25),
        ((1000, 100, 50, 1000, 900, 50), 0.5),
        ((2000, 100, 50, 1000, 900, 50), 1.0),  # of the rows of the smaller source
        ((1500, 100, 50, 1000, 900, 50), 0.75),
        ((500, 100, 50, 1000, 900, 50), 0.5),
        ((1000, 100, 95, 1000, 900, 50), 1.0),
        ((1000, 0, 0, 1000, 900, 50), 0.0),
        ((1000, 100, 50, 0, 0, 0), 0.0),
        # If too few rows are alone, the share is 0.
        ((1000, 1000, 50, 1000, round(1000 * LEAST_ALONE), 0), 1.0),
        ((1000, 1000, 50, 1000, round(1000 * LEAST_ALONE) - 1, 0), 0.0),
        ((1000, 100, 100, 1000, 400, 200), 0.0),  # as many as by chance
        ((1000, 1000, 3, 1000, 900, 0), 0.0),
        ((1000, 1000, 4, 1000, 900, 0), 4 / 900),
    ],
)
def test_the_share_of_rows_in_common(figures: tuple[int, ...], share: float) -> None:
    assert estimate_shared_rows(*figures) == pytest.approx(share)


def test_sources_may_be_the_same_within_five_deviations() -> None:
    """Of 200 sampled rows 100 would be alone: 50 fewer are five deviations."""
    assert [may_be_same_rows((1000, 500, 0, 200, alone, 0, 0, 0)) for alone in (49, 50, 100)] == [False, True, True]
    assert may_be_same_rows((0, 0, 0, 0, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("shared", "people", "running", "is_more"),
    [
        (FEWEST_PEOPLE - 1, 400, [0.0, 0.0], True),
        (FEWEST_PEOPLE - 2, 400, [0.0, 0.0], False),
        (400, 400, [0.0, None], False),
        (400, 400, [RUNNING, 0.0], True),
        (400, 400, [RUNNING + 1e-9, 0.0], False),
        (400, 400, [0.0, RUNNING + 1e-9], False),
    ],
)
def test_keys_at_random_are_shared_by_the_same_people(
    shared: int, people: int, running: list[float | None], is_more: bool
) -> None:
    assert is_more_than_chance(shared, people, running) is is_more


def test_keys_of_a_range_that_is_half_full_are_shared_by_chance() -> None:
    """If a key has a neighbour with probability q, a key is taken with about 1 - (1 - q)^(1/neighbours)."""
    taken = 0.02
    running = 1 - math.exp(-taken * (NEIGHBOURS - 1))
    chance = taken * 1000
    least = chance + DEVIATIONS * math.sqrt(chance) + FEWEST_PEOPLE - 1
    assert [is_more_than_chance(n, 1000, [running, 0.0]) for n in (math.floor(least), math.ceil(least) + 1)] == [
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("figures", "share"),
    [
        ([], 0.0),
        ([(100, 100, 0.0)], 1.0),
        ([(100, 1, 0.0)], 0.0),
        ([(100, 2, 0.0)], 0.02),
        ([(100, 100, 1.0)], 0.0),  # a column with one value
        ([(400, 300, 0.5)], 0.5),
        ([(400, 300, 0.5), (400, 400, 0.25)], 1.0),
        ([(400, 400, 0.25), (400, 300, 0.5)], 1.0),
    ],
)
def test_people_who_agree_more_often_than_chance_are_the_same(
    figures: list[tuple[int, int, float]], share: float
) -> None:
    assert estimate_agreement(figures) == pytest.approx(share)


def test_agreement_begins_some_deviations_above_chance() -> None:
    least = 200 + DEVIATIONS * 10 + 2  # 400 pairs that agree half of the time: ten is one deviation
    assert [estimate_agreement([(400, math.ceil(least) - less, 0.5)]) > 0 for less in (0, 1)] == [True, False]
