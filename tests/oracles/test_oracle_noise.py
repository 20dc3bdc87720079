"""The oracle of noise itself: figures by hand, and laws that they must obey."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles import oracle_noise as noise
from oracles.oracle import Hierarchy
from oracles.oracle_noise import Noisy
from oracles.oracle_privacy import Source
from support.lanes import examples

# Class "a": 160, 170 and 180, so Δ = 20. Class "b": 50 twice, so no noise. ε = 0.5: b is 40 and 0.
HEIGHTS = [
    Noisy("a", (160.0,), (172.0,)),
    Noisy("a", (170.0,), (169.0,)),
    Noisy("a", (180.0,), (300.0,)),
    Noisy("b", (50.0,), (50.0,)),
    Noisy("b", (50.0,), (50.0,)),
]
ALL = range(5)


def test_errors_match_computations_by_hand() -> None:
    assert noise.scales(HEIGHTS, [0.5]) == {"a": (40.0,), "b": (0.0,)}
    assert noise.expected_error(HEIGHTS, [0.5], 0) == 3 * 40 / 5
    assert noise.observed_error(HEIGHTS, 0) == (12 + 1 + 120) / 5
    by_hand = (40 / 160 + 40 / 170 + 40 / 180) / 5
    assert noise.expected_relative_error(HEIGHTS, [0.5], 0) == pytest.approx(by_hand)
    assert noise.observed_relative_error(HEIGHTS, 0) == pytest.approx((12 / 160 + 1 / 170 + 120 / 180) / 5)


def test_zeros_are_left_out_of_relative_errors_and_negative_values_count_by_magnitude() -> None:
    records = [Noisy("a", (x,), (y,)) for x, y in ((0.0, 1.0), (-10.0, -12.0), (10.0, 5.0))]
    assert noise.zero_rows(records, 0) == 1
    assert noise.expected_error(records, [1], 0) == 20
    assert noise.expected_relative_error(records, [1], 0) == 2
    assert noise.observed_relative_error(records, 0) == pytest.approx((0.2 + 0.5) / 2)
    nothing = [Noisy("a", (0.0,), (0.0,))]
    assert noise.expected_relative_error(nothing, [1], 0) is noise.observed_relative_error(nothing, 0) is None


def test_linked_records_match_computations_by_hand() -> None:
    """172 is nearest 170, another's; 169 is nearest its own, and so is 300. Both of class b tie with each other."""
    assert noise.linked_records(HEIGHTS, [0.5], ALL) == [1, 2, 3, 4]
    assert noise.linked_records(HEIGHTS, [0.5], ALL, strict=True) == [1, 2]
    assert noise.linking_risk(HEIGHTS, [0.5], ALL) == 0.8
    assert noise.linking_risk(HEIGHTS, [0.5], [0, 1], strict=True) == 0.5  # of the released; the originals are of all


def test_a_value_in_the_middle_is_linked_but_not_strictly() -> None:
    records = [Noisy("a", (10.0,), (15.0,)), Noisy("a", (20.0,), (20.0,))]
    assert noise.linked_records(records, [1], [0, 1]) == [0, 1]
    assert noise.linked_records(records, [1], [0, 1], strict=True) == [1]
    assert noise.linked_records(records, [1], [0], slack=-1e-9) == []


def test_several_attributes_are_near_by_their_scales() -> None:
    """y = (4, 140) is 4/10 and 40/200 away from its own original (0, 100), and 6/10 and 160/200 from the other (10,
    300)."""
    records = [Noisy("a", (0.0, 100.0), (4.0, 140.0)), Noisy("a", (10.0, 300.0), (4.0, 140.0))]
    assert noise.linked_records(records, [1, 1], [0, 1], strict=True) == [0]
    # With another budget: 4/10 and 40/20 of its own, 6/10 and 160/20 of the other's.
    assert noise.scales(records, [1, 10]) == {"a": (10.0, 20.0)}
    assert noise.linked_records(records, [1, 10], [0, 1]) == [0]


def test_attribute_without_range_reveals_nothing() -> None:
    records = [Noisy("a", (7.0, 0.0), (7.0, 9.0)), Noisy("a", (7.0, 10.0), (7.0, 9.0))]
    assert noise.linked_records(records, [1, 1], [0, 1], strict=True) == [1]


def test_near_originals_match_computations_by_hand() -> None:
    """β = 0.5: the half-width is -40 ln 0.5 = 27.7 in class a, and 0 in class b."""
    assert noise.half_width(40, 0.5, 1) == pytest.approx(27.7259)
    assert noise.near(HEIGHTS, [0.5], 0.5) == [3, 3, 0, 2, 2]
    assert noise.too_few(HEIGHTS, [0.5], 0.5, 3) == {3, 4}
    assert noise.too_few(HEIGHTS, [0.5], 0.5, 2) == set()
    narrow = -40 * math.log(1 - 0.2)  # 8.9: 172 is near 170 and 180, 169 near 170 only... and 160 at 9 is not
    assert narrow == pytest.approx(8.926, abs=1e-3)
    assert noise.near(HEIGHTS, [0.5], 0.2) == [2, 1, 0, 2, 2]


def test_two_attributes_share_the_confidence() -> None:
    assert noise.half_width(1, 0.25, 2) == noise.half_width(1, 0.5, 1)
    records = [Noisy("a", (0.0, 0.0), (1.0, 99.0)), Noisy("a", (10.0, 10.0), (1.0, 1.0))]
    # 6.9 in each: the first is near none in both; the second near (0, 0).
    assert noise.near(records, [1, 1], 0.25) == [0, 1]


SEXES = Hierarchy({value: (value, "*") for value in ("f", "m")})


def test_remaining_rows_of_a_class_are_judged_again() -> None:
    """Two rows of class a remain, which k = 2 allows, but they have the same illness."""
    rows = [{"sex": "f", "ill": ill} for ill in ("flu", "gout", "gout")] + [{"sex": "m", "ill": "flu"}] * 2
    source = Source(rows, {"sex": SEXES}, {"ill": None})
    labels = {"a": {"sex": "f"}, "b": {"sex": "m"}}
    records = [
        Noisy("a", (0.0,), (-3.0,)),  # near 0 only
        Noisy("a", (4.0,), (2.0,)),
        Noisy("a", (4.0,), (2.0,)),
        Noisy("b", (1.0,), (1.0,)),
        Noisy("b", (1.0,), (1.0,)),
    ]
    assert noise.near(records, [0.5], 0.5)[:3] == [1, 3, 3]

    def survive(**privacy: object) -> set[int]:
        return noise.survivors(records, [0.5], 0.5, privacy, source, rows, labels)

    assert survive(k=2) == {1, 2, 3, 4}
    assert survive(k=3) == set()
    assert survive(k=2, l_diversity=[{"attribute": "ill", "kind": "distinct", "l": 2}]) == set()
    assert survive(k=2, k_anonymity=[{"quasi": ["sex"], "k": 3}]) == set()
    assert survive(k=2, k_anonymity=[{"quasi": [], "k": 4}]) == {1, 2, 3, 4}


def test_second_shield_suppresses_rows_kept_by_the_first() -> None:
    """Over x all six are together; once c is gone, with fewer than 3 of y = 2, x has fewer than 5 and all go."""
    shows = {"a": (1, 1), "b": (1, 1), "c": (1, 2)}
    records = [Noisy(place, (0.0,), (0.0,)) for place in "aabbcc"]
    shields = [
        noise.Shield({place: (labels[i],) for place, labels in shows.items()}, len, k) for i, k in ((0, 5), (1, 3))
    ]
    assert noise.kept_records(records, set(), lambda members: len(members) >= 2, shields[:1]) == set(range(6))
    assert noise.kept_records(records, set(), lambda members: len(members) >= 2, shields[1:]) == set(range(4))
    assert noise.kept_records(records, set(), lambda members: len(members) >= 2, shields) == set()


VALUES = st.sampled_from([0.0, 1.0, -2.5, 10.0, 10.5, 300.0])


@st.composite
def some_records(draw: st.DrawFn) -> list[Noisy]:
    m = draw(st.integers(1, 2))
    values = st.tuples(*[VALUES] * m)
    record = st.builds(Noisy, st.sampled_from("abc"), values, values)
    return draw(st.lists(record, min_size=1, max_size=12))


@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(some_records())
def test_laws_of_the_figures(records: list[Noisy]) -> None:
    epsilons = [0.5, 2.0][: len(records[0].xs)]
    every = range(len(records))
    for j in range(len(epsilons)):
        direct = noise.expected_relative_error(records, epsilons, j)
        by_classes = noise.expected_relative_error_by_classes(records, epsilons, j)
        assert direct == by_classes if direct is None else direct == pytest.approx(by_classes)
        twice = noise.expected_error(records, [2 * epsilon for epsilon in epsilons], j)
        assert twice == pytest.approx(noise.expected_error(records, epsilons, j) / 2)
    strict, loose = (set(noise.linked_records(records, epsilons, every, strict)) for strict in (True, False))
    assert strict <= loose
    assert set(noise.linked_records(records, epsilons, every, slack=-1e-9)) <= loose
    assert loose <= set(noise.linked_records(records, epsilons, every, slack=1e-9))
    members = noise.classes(records)
    narrow, wide = (noise.near(records, epsilons, beta) for beta in (0.3, 0.9))
    assert all(few <= many <= len(members[r.place]) for few, many, r in zip(narrow, wide, records, strict=True))
    # Seen exactly, a record is linked: and strictly, unless another reads the same where there is noise.
    exact = [Noisy(record.place, record.xs, record.xs) for record in records]
    assert noise.linked_records(exact, epsilons, every) == list(every)
    assert noise.near(exact, epsilons, 0.5) >= [1] * len(exact)


def test_granularity_is_a_power_of_two_of_the_unit() -> None:
    assert noise.granularity(Fraction(3), Fraction(1), any_sign=True) == Fraction(1, 256)
    assert noise.granularity(Fraction(3), Fraction(1)) == 1
    assert noise.granularity(Fraction(10_000), Fraction(5)) == 10
    assert noise.granularity(Fraction(0), Fraction(1), any_sign=True) == 1
