"""The bounds of a label, compared with plain Python over the values under it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st
from interval_oracle import Bench, few, interval_rules, reference_interval
from sqlglot import exp

from sqlanon.hierarchies.bounds import RangeKind, label_bounds
from sqlanon.hierarchies.parts import label_range_kind
from sqlanon.policy.rules import DatesRule, IntervalsRule, MaskRule
from sqlanon.support.expressions import col, select, subquery, values_query


@pytest.fixture
def bench() -> Bench:
    return Bench()


def bounds_of(labels: Iterable[str | None], kind: RangeKind) -> dict[str | None, tuple[Any, Any]]:
    """The bounds of some labels."""
    rows = values_query({"label": "VARCHAR"}, [(label,) for label in labels])
    query = select([col("label"), *label_bounds(col("label"), kind)], subquery(rows, "l"))
    return {label: (low, high) for label, low, high in duckdb.connect().execute(query.sql("duckdb")).fetchall()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (
            "integer",
            {
                "20-24": (20, 24),
                "-05--01": (-5, -1),
                "-10-000": (-10, 0),
                "007": (7, 7),
                "-3": (-3, -3),
                "020-129": (20, 129),
                "-5 to 007": (-5, 7),
                "<0": (None, -1),
                "≥100": (100, None),
                "[20, 25)": (20, 24),
                "9223372036854775807": (2**63 - 1, 2**63 - 1),
            },
        ),
        (
            "number",
            {
                "[20, 25)": (20.0, 25.0),
                "[-02.5, 00.0)": (-2.5, 0.0),
                "<-2.5": (None, -2.5),
                "≥0.1": (0.1, None),
                "12.50": (12.5, 12.5),
                "01.5-12.0": (1.5, 12.0),
                "-1.5 to 1e-05": (-1.5, 1e-05),
                "18446744073709551610-18446744073709551619": (2.0**64, 2.0**64),
            },
        ),
        (
            "date",
            {
                "1980-01-02": (date(1980, 1, 2), date(1980, 1, 2)),
                "1980-W01": (date(1979, 12, 31), date(1980, 1, 6)),
                "2020-W53": (date(2020, 12, 28), date(2021, 1, 3)),
                "1980-02": (date(1980, 2, 1), date(1980, 2, 29)),
                "1980-Q1": (date(1980, 1, 1), date(1980, 3, 31)),
                "1980-Q4": (date(1980, 10, 1), date(1980, 12, 31)),
                "1980": (date(1980, 1, 1), date(1980, 12, 31)),
                "1980s": (date(1980, 1, 1), date(1989, 12, 31)),
                "0000s": (date(1, 1, 1), date(9, 12, 31)),
                "9990s": (date(9990, 1, 1), date(9999, 12, 31)),
                "[1980-01-02, 1980-01-09)": (date(1980, 1, 2), date(1980, 1, 8)),
                "<1970-01-01": (None, date(1969, 12, 31)),
                "≥1970-01-10": (date(1970, 1, 10), None),
                "2020-01-05 to 2020-02-10": (date(2020, 1, 5), date(2020, 2, 10)),
                "2020-01-05 12:30:00.25": (date(2020, 1, 5), date(2020, 1, 5)),
                "2020-01-05 00:00:00 to 2020-02-10 23:59:59+05:30": (date(2020, 1, 5), date(2020, 2, 10)),
            },
        ),
    ],
)
def test_each_label_form_has_bounds(kind: RangeKind, expected: dict[str, tuple[Any, Any]]) -> None:
    assert bounds_of(expected, kind) == expected


NO_RANGES: Sequence[str | None] = [
    None, "", "*", "**", "2*", "021**", "nan", "inf", "[a-b]", "{1, 2}", "{1}", "20-24\n", " 20", "20-", "[20", "20]",
    "<script>",
    "<", "≥", "[20, 25]", "(20, 25]", "20 to", "[20-24]", "--1", "1.5.2", "1-2-3", "20 to 24 to 25", "0x10", "1_0",
    "1980-02-30", "1980-Q5", "1980-W", "198s", "1985s", "0044-03-15 (BC)", "infinity", "１２",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["integer", "number", "date"])
def test_other_labels_have_no_bounds(kind: RangeKind) -> None:
    assert bounds_of(NO_RANGES, kind) == dict.fromkeys(NO_RANGES, (None, None))
    assert bounds_of(["1980-13"], "date") == {"1980-13": (None, None)}


def test_an_integer_too_large_has_none() -> None:
    assert bounds_of([str(2**63), f"20-{2**63}"], "integer") == {str(2**63): (None, None), f"20-{2**63}": (20, None)}


def test_the_empty_table_has_none() -> None:
    assert bounds_of([], "date") == {}


@pytest.mark.slow
@few
@given(interval_rules(0), st.lists(st.integers(-500, 500) | st.none(), min_size=1, unique=True))
def test_bounds_of_integer_intervals_match_the_rule(rule: IntervalsRule, values: list[int | None]) -> None:
    bench = Bench()
    bench.build(rule, values, "INTEGER")
    check_numbers(bench, rule, "INTEGER", 1)


@pytest.mark.slow
@few
@given(interval_rules(2), st.lists(st.decimals(-999, 999, places=3), min_size=1, unique=True))
def test_bounds_of_decimal_intervals_match_the_rule(rule: IntervalsRule, values: list[Decimal]) -> None:
    bench = Bench()
    bench.build(rule, values, "DECIMAL(9,3)")
    check_numbers(bench, rule, "DECIMAL(9,3)", 0)


def check_numbers(bench: Bench, rule: IntervalsRule, column_type: str, step: int) -> None:
    """Each label's bounds are those of its value's interval; an upper bound less a step, where it is included."""
    kind = label_range_kind(column_type)
    assert kind is not None
    bounds = bounds_of({label for labels in bench.labels().values() for label in labels}, kind)
    as_shown = int if step else float
    for value, labels in bench.labels().items():
        assert bounds[labels[-1]] == (None, None)
        if value is None:
            continue
        for width, label in zip(rule.widths, labels[:-1], strict=True):
            low, high = reference_interval(Decimal(value), width, rule.origin, rule.below, rule.above)
            expected = (None if low is None else as_shown(low), None if high is None else as_shown(high - step))
            assert bounds[label] == expected, label


def days_of(granularity: str, day: date) -> tuple[date, date]:
    """The first and the last day of a day's period: day after day, as long as these are in the same."""
    same = {
        "day": lambda d: d,
        "week": lambda d: d.isocalendar()[:2],
        "month": lambda d: (d.year, d.month),
        "quarter": lambda d: (d.year, (d.month - 1) // 3),
        "year": lambda d: d.year,
        "decade": lambda d: d.year // 10,
    }[granularity]
    ends = []
    for step in (timedelta(days=-1), timedelta(days=1)):
        end = day
        while end not in (date.min, date.max) and same(end + step) == same(day):
            end += step
        ends.append(end)
    return ends[0], ends[1]


@pytest.mark.slow
@few
@given(st.lists(st.dates(max_value=date(9999, 12, 26)), min_size=1, max_size=2, unique=True))
def test_bounds_of_calendar_labels_contain_their_days(values: list[date]) -> None:
    bench = Bench()
    for levels in (("day", "month", "quarter", "year", "decade"), ("day", "week")):
        bench.build(DatesRule(dates=levels), values, "DATE")
        for day, labels in bench.labels().items():
            bounds = bounds_of(labels, "date")
            assert [bounds[label] for label in labels] == [*(days_of(level, day) for level in levels), (None, None)]


@pytest.mark.thorough
@few
@given(st.integers(1, 400), st.lists(st.dates(date(500, 1, 1), date(9500, 1, 1)), min_size=1, unique=True))
def test_bounds_of_date_intervals_match_the_rule(width: int, values: list[date]) -> None:
    bench, start = Bench(), date(1970, 1, 1)
    bench.build(IntervalsRule.model_validate({"intervals": [width]}), values, "DATE")
    bounds = bounds_of({label for label, _ in bench.labels().values()}, "date")
    for value, (label, _) in bench.labels().items():
        first = start + timedelta(days=(value - start).days // width * width)
        assert bounds[label] == (first, first + timedelta(days=width - 1))


@pytest.mark.thorough
def test_bounds_are_read_from_level_0_as_text(bench: Bench) -> None:
    moment = datetime(1999, 12, 31, 23, 59, 59, 5)
    cases = [
        (7, "TINYINT", (7, 7)),
        (Decimal("-2.50"), "DECIMAL(5,2)", (-2.5, -2.5)),
        (1e300, "DOUBLE", (1e300, 1e300)),
    ]
    cases += [(moment, "TIMESTAMP", (date(1999, 12, 31),) * 2)]
    for value, column_type, expected in cases:
        text = duckdb.connect().execute(f"SELECT CAST(CAST(? AS {column_type}) AS VARCHAR)", [value]).fetchall()[0][0]
        kind = label_range_kind(column_type)
        assert kind is not None
        assert bounds_of([text], kind) == {text: expected}


def test_masks_of_integers_have_none(bench: Bench) -> None:
    bench.build(MaskRule(mask="right"), [12, 345], "INTEGER")
    assert bounds_of(bench.labels()[12], "integer") == dict.fromkeys(("12*", "1**", "*"), (None, None))


@pytest.mark.parametrize(
    ("column_type", "kind"),
    [
        ("UTINYINT", "integer"), ("BIGINT", "integer"), ("UBIGINT", "number"), ("HUGEINT", "number"),
        ("FLOAT", "number"), ("DECIMAL(18,3)", "number"), ("DATE", "date"), ("TIMESTAMP WITH TIME ZONE", "date"),
        ("TIMESTAMP_NS", "date"), ("VARCHAR", None), ("BOOLEAN", None), ("TIME", None), ("INTEGER[]", None),
        ("ENUM('1', '2')", None),
    ],
)  # fmt: skip
def test_the_type_of_a_column_decides_its_kind_of_ranges(column_type: str, kind: RangeKind | None) -> None:
    assert label_range_kind(column_type) == kind


def test_the_builder_splices_no_text() -> None:
    low, high = label_bounds(col('a"; DROP TABLE t; --'), "integer")
    query = exp.Select(expressions=[low, high]).from_("t").sql("duckdb")
    assert query.count('"a""; DROP TABLE t; --"') == query.count("DROP TABLE")
