"""Counts that are answered from releases: the errors are those that a reader would make who knows the hierarchies."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable

import duckdb
import pytest
from conftest import make_policy

import sqlanon
from sqlanon.suggest.trials import CANDIDATES

QUARTERS = {"north": ["a", "b"], "south": ["c", "d", "e"]}
ATTRIBUTES = {"age": {"intervals": [2, 6]}, "town": {"categories": QUARTERS}, "sex": "suppress"}
Row = tuple[int | None, str, str]


def draw_rows(seed: int) -> list[Row]:
    draw = random.Random(seed)
    ages = [None, *range(12)] if seed % 2 else [*range(12)]
    return [(draw.choice(ages), draw.choice("aaabcde"), draw.choice("fm")) for _ in range(draw.choice([30, 60, 90]))]


def values_under(label: object, domain: list[object]) -> list[object]:
    """The values that a label may stand for, read off the label and the hierarchies."""
    shown = str(label)
    if shown == "*":
        return domain
    if shown in QUARTERS:
        return [*QUARTERS[shown]]
    if shown.startswith("{"):
        return [one for one in domain if str(one) in shown[1:-1].split(", ")]
    if found := re.fullmatch(r"(\d+)-(\d+)", shown):
        return [one for one in domain if int(found[1]) <= one <= int(found[2])]  # type: ignore[operator]
    return [one for one in domain if str(one) == shown]


def error_read_off(rows: list[Row], released: list[tuple[object, ...]]) -> float:
    """The mean error of all counts with one condition or two."""
    domains: list[list[object]] = [sorted({row[i] for row in rows} - {None}) for i in range(3)]
    ages = sorted(row[0] for row in rows if row[0] is not None)
    median = min(ages[(len(ages) - 1) // 2], domains[0][-2])  # type: ignore[type-var]
    towns, sexes = Counter(row[1] for row in rows), Counter(row[2] for row in rows)
    conditions: list[Callable[[object], bool]] = [
        lambda age: age is not None and age <= median,  # type: ignore[operator]
        lambda town: town == min(towns, key=lambda one: (-towns[one], one)),
        lambda sex: sex == min(sexes, key=lambda one: (-sexes[one], one)),
    ]

    def share(i: int, label: object) -> float:
        if label is None:
            return 0
        values = [one for one in values_under(label, domains[i]) if one in domains[i]]
        return sum(map(conditions[i], values)) / len(values)

    errors = []
    for count in [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)]:
        true = sum(all(conditions[i](row[i]) for i in count) for row in rows)
        estimate = 0.0
        for row in released:
            product = 1.0
            for i in count:
                product *= share(i, row[i])
            estimate += product
        errors.append(abs(estimate - true) / max(true, 1, len(rows) / 100))
    return sum(errors) / len(errors)


@pytest.mark.parametrize("seed", range(3))
def test_the_error_is_that_of_a_reader_who_knows_the_hierarchies(seed: int) -> None:
    rows = draw_rows(seed)
    search = {"suppression_limit": 0.1}
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE people (age INTEGER, town VARCHAR, sex VARCHAR)")
        connection.executemany("INSERT INTO people VALUES (?, ?, ?)", rows)
        with sqlanon.connect(connection) as db:
            tried = db.try_strategies(make_policy(ATTRIBUTES, k=4, table="people", search=search))
            assert all(trial.error is None for trial in tried)
            for trial in tried:
                policy = make_policy(ATTRIBUTES, k=4, table="people", search={**search, **CANDIDATES[trial.name]})
                released = db.anonymize(policy).relation().fetchall()
                assert trial.count_error == pytest.approx(error_read_off(rows, released)), trial.name


def test_what_is_fully_suppressed_is_guessed_from_the_number_of_values() -> None:
    rows = [(0, "a", "f")] * 30 + [(1, "b", "m")] * 10
    everything = [("*", "*", "*")] * 40
    # 20 instead of 30 in each count with one condition, 10 instead of 30 in each with two
    assert error_read_off(rows, everything) == pytest.approx((3 * 10 / 30 + 3 * 20 / 30) / 6)
