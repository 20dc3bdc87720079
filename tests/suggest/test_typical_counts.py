"""Counts that are answered from releases: the errors are those that a reader would make who knows the hierarchies."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.policy.strategies import SUGGESTED_SEARCHES
from support.lanes import some
from support.policies import make_policy

QUARTERS = {"north": ["a", "b"], "south": ["c", "d", "e"]}
ATTRIBUTES: dict[str, Any] = {"age": {"intervals": [2, 6]}, "town": {"categories": QUARTERS}, "sex": "suppress"}
MEASURED: dict[str, Any] = {
    "born": {"dates": ["month", "quarter", "year", "decade"]},
    "dose": {"intervals": [1, 5]},
    "seen": {"dates": ["day", "week"]},
}
TYPES = {"age": "INTEGER", "born": "DATE", "dose": "DECIMAL(6, 2)", "seen": "TIMESTAMP"}
Row = tuple[Any, ...]


def draw_rows(seed: int) -> list[Row]:
    draw = random.Random(seed)
    ages = [None, *range(12)] if seed % 2 else [*range(12)]
    return [(draw.choice(ages), draw.choice("aaabcde"), draw.choice("fm")) for _ in range(draw.choice([30, 60, 90]))]


def draw_measured_rows(seed: int) -> list[Row]:
    """Dates of three years, doses that may be ends of ranges, and hours of a month."""
    draw = random.Random(seed)
    no_dose = [None] if seed % 2 else []
    doses = [*no_dose, *(Decimal(i) / draw.choice([1, 2, 4]) for i in range(24))]
    return [
        (
            date(1979, 1, 1) + timedelta(draw.randrange(0, 1100, 7)),
            draw.choice(doses),
            datetime(2024, 2, 1) + timedelta(hours=draw.randrange(0, 700, 6)),
        )
        for _ in range(draw.choice([30, 60, 90]))
    ]


def days_of(period: str) -> tuple[date, date] | None:
    """The first day of a period, and the day after its last."""
    if re.fullmatch(r"\d{4}-\d\d-\d\d", period):
        first = date.fromisoformat(period)
        return first, first + timedelta(1)
    if match := re.fullmatch(r"(\d{4})-W(\d\d)", period):
        first = date.fromisocalendar(int(match[1]), int(match[2]), 1)
        return first, first + timedelta(7)
    if match := re.fullmatch(r"(\d{4})(?:-(Q?)(\d+))?", period):
        months = 12 if not match[3] else 3 if match[2] else 1
        start = int(match[1]) * 12 + (int(match[3]) - 1) * months if match[3] else int(match[1]) * 12
        return date(start // 12, start % 12 + 1, 1), date((start + months) // 12, (start + months) % 12 + 1, 1)
    if match := re.fullmatch(r"(\d{3})0s", period):
        return date(int(match[1]) * 10, 1, 1), date(int(match[1]) * 10 + 10, 1, 1)
    return None


def values_in_range(text: str, domain: Sequence[Any]) -> list[Any] | None:
    """The values between the ends of a label of numbers or dates; None where it shows no ends."""
    is_half_open = text.startswith("[")
    first, _, last = text.strip("[)").partition(", " if is_half_open else " to ")
    if isinstance(domain[0], date):
        ends = days_of(first), days_of(last or first)
        if ends[0] is None or ends[1] is None:
            return None
        stop = ends[1][0] if is_half_open else ends[1][1]
        days = [value.date() if isinstance(value, datetime) else value for value in domain]
        return [value for value, day in zip(domain, days, strict=True) if ends[0][0] <= day < stop]
    if not last and (match := re.fullmatch(r"(\d+(?:\.\d+)?)-(\d+(?:\.\d+)?)", text)):
        first, last = match[1], match[2]
    if not re.fullmatch(r"\d+(\.\d+)?", first):
        return None
    low, high = Decimal(first), Decimal(last or first)
    return [value for value in domain if low <= value and (value < high if is_half_open else value <= high)]


def values_under(label: object, domain: Sequence[Any]) -> list[Any]:
    """The values that a label may stand for, read off the label and the hierarchies."""
    text = str(label)
    if text == "*":
        return list(domain)
    if text in QUARTERS:
        return [*QUARTERS[text]]
    if text.startswith("{"):
        return [value for value in domain if str(value) in text[1:-1].split(", ")]
    if label in domain:
        return [label]
    if not isinstance(domain[0], str) and (values := values_in_range(text, domain)) is not None:
        return values
    return [value for value in domain if str(value) == text]


def is_asked_for(values: Sequence[Any]) -> Callable[[object], bool]:
    """The condition of a count: up to the median of numbers and dates, else the most frequent value."""
    if isinstance(values[0], str):
        counts = Counter(values)
        most = min(counts, key=lambda strategy: (-counts[strategy], strategy))
        return lambda value: value == most
    median = min(sorted(values)[(len(values) - 1) // 2], sorted({*values})[-2])
    return lambda value: value is not None and value <= median


def error_read_off(rows: list[Row], released: list[tuple[object, ...]]) -> float:
    """The mean error of all counts with one condition or two."""
    columns = [[row[i] for row in rows if row[i] is not None] for i in range(3)]
    domains = [sorted({*column}) for column in columns]
    conditions = [is_asked_for(column) for column in columns]

    def share(i: int, label: object) -> float:
        if label is None:
            return 0
        values = [value for value in values_under(label, domains[i]) if value in domains[i]]
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


@pytest.mark.thorough
@pytest.mark.parametrize("seed", some(range(3), every=3))
@pytest.mark.parametrize(
    ("attributes", "draw"),
    [pytest.param(ATTRIBUTES, draw_rows, id="texts"), pytest.param(MEASURED, draw_measured_rows, id="measured")],
)
def test_the_error_is_that_of_a_reader_who_knows_the_hierarchies(
    attributes: dict[str, Any], draw: Callable[[int], list[Row]], seed: int
) -> None:
    rows = draw(seed)
    search = {"suppression_limit": 0.1}
    with duckdb.connect() as connection:
        columns = ", ".join(f"{name} {TYPES.get(name, 'VARCHAR')}" for name in attributes)
        connection.execute(f"CREATE TABLE people ({columns})")
        connection.executemany("INSERT INTO people VALUES (?, ?, ?)", rows)
        with sqlanon.connect(connection) as db:
            tried = db.try_strategies(make_policy(attributes, k=4, table="people", search=search))
            assert all(trial.error is None for trial in tried)
            for trial in tried:
                policy = make_policy(
                    attributes, k=4, table="people", search={**search, **SUGGESTED_SEARCHES[trial.name]}
                )
                released = db.anonymize(policy).relation().fetchall()
                assert trial.count_error == pytest.approx(error_read_off(rows, released)), trial.name


def test_fully_suppressed_attributes_are_guessed_from_the_number_of_values() -> None:
    rows = [(0, "a", "f")] * 30 + [(1, "b", "m")] * 10
    everything = [("*", "*", "*")] * 40
    # 20 instead of 30 in each count with one condition, 10 instead of 30 in each with two
    assert error_read_off(rows, everything) == pytest.approx((3 * 10 / 30 + 3 * 20 / 30) / 6)
