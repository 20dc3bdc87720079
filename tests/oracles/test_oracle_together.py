"""The oracle of releases side by side, against the enumeration of all source tables, and by examples."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from oracles.oracle_together import Person, Released, Together, enumerated_bounds
from support.lanes import some


def labels(*texts: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(text) for text in texts)


def rows(*classes: tuple[str, str, int]) -> list[Any]:
    return [(labels(label), (value,)) for label, value, n in classes for _ in range(n)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", some(range(300), 10))
def test_bounds_are_those_of_all_source_tables(seed: int) -> None:
    draw = random.Random(seed)
    domains = draw.choice([labels("ab"), labels("abc"), labels("ab", "ab")])

    def release() -> Released:
        classes = [
            tuple(frozenset(draw.sample(sorted(domain), draw.randint(1, len(domain)))) for domain in domains)
            for _ in range(draw.randint(1, 3))
        ]
        return Released([(draw.choice(classes), (draw.choice("xy"),)) for _ in range(draw.randint(0, 4))])

    releases = [release(), release()]
    together = Together(releases, domains)
    for cell in draw.sample(together.cells, min(len(together.cells), 3)):
        chosen = {cell} if draw.random() < 0.7 else {cell, draw.choice(together.cells)}
        assert together.bounds([*chosen])[:2] == enumerated_bounds(releases, chosen.__contains__, domains)


def ways(together: Together, k: int, distinct: int = 1, persons: Sequence[Person] = ()) -> set[tuple[str, str]]:
    return {(finding.way, finding.requirement) for finding in together.findings(k, distinct, persons)}


def test_subtraction_leaves_a_single_person() -> None:
    """Five aged a or b, and six aged a, b or c: one is aged c, and has HIV."""
    first = Released(rows(("ab", "flu", 5), ("cd", "flu", 5), ("cd", "HIV", 1)))
    second = Released(rows(("abc", "flu", 5), ("abc", "HIV", 1), ("d", "flu", 5)))
    together = Together([first, second], labels("abcd"))
    assert ("sure", "k") in ways(together, 5)
    assert ("victim", "k") in ways(together, 5, persons=[Person(("c",), (True, True))])
    assert not ways(together, 1)


def test_equal_releases_show_nothing() -> None:
    together = Together([Released(rows(("ab", "flu", 3), ("c", "HIV", 3)))] * 2, labels("abc"))
    assert not ways(together, 3)


def test_a_newcomer_is_found() -> None:
    first = rows(("ab", "flu", 3), ("c", "HIV", 3))
    together = Together([Released(first), Released([*first, *rows(("c", "gout", 1))])], labels("abc"))
    assert ("sure", "k") in ways(together, 3)
    assert ("victim", "k") in ways(together, 3, persons=[Person(("c",), (False, True))])


def test_rows_masked_in_both_releases_are_safe() -> None:
    together = Together([Released(rows(("ab", "flu", 3), ("abc", "HIV", 1)))] * 2, labels("abc"))
    assert not ways(together, 3)


def test_many_rows_can_be_a_newcomer_who_is_sure() -> None:
    """One is new in a class, and each of its rows can be: readers can point at no row, but at a count."""
    first = rows(("ab", "flu", 3))
    together = Together([Released(first), Released([*first, *rows(("ab", "flu", 1))])], labels("abc"))
    assert {way for way, _ in ways(together, 3, persons=[Person(("a",), (False, True))])} >= {"sure"}
    assert ("victim", "k") not in ways(together, 3, persons=[Person(("a",), (False, True))])


def test_three_releases_reveal_more_than_two() -> None:
    """Each two of them can have two persons in a cell; all three have one of each value."""
    releases = [
        Released(rows((first, "flu", 2), (second, "flu", 2)))
        for first, second in (("ab", "cd"), ("ac", "bd"), ("ad", "bc"))
    ]
    for i in range(3):
        assert not ways(Together(releases[:i] + releases[i + 1 :], labels("abcd")), 2)
    three = Together(releases, labels("abcd"))
    assert three.bounds([tuple(labels(text) for text in ("ab", "ac", "ad"))])[:2] == (1, 1)
    assert ("sure", "k") in ways(three, 2)
