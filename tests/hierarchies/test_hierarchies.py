"""Hierarchies: what rules make of a column's values, and what is refused."""

from __future__ import annotations

import csv
import math
import re
import struct
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from interval_oracle import TARGET, VALUES, Bench, Bounds, Row, few, interval_rules, reference_interval
from sqlglot import exp

from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import HierarchyError
from sqlanon.hierarchies import build_hierarchy, find_static_height, hierarchy_query
from sqlanon.hierarchies.labels import calendar_day
from sqlanon.hierarchies.partial_dates import PARTIAL_DATE
from sqlanon.policy.rules import (
    CategoriesRule,
    DatesRule,
    FileRule,
    IntervalsRule,
    MaskRule,
    Rule,
    SuppressRule,
    TableRule,
)
from support.databases import DUCKDB_1
from support.lanes import examples

# The parser of DuckDB 1.5 ends a string at a NUL.
ANY_CHARACTER = st.characters(codec="utf-8", exclude_characters="\0" if DUCKDB_1 else "")


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., FileRule]:
    def write(content: str | bytes, name: str = "h.csv", levels: int | None = None) -> FileRule:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return FileRule(file=path, levels=levels)

    return write


def intervals(*widths: float, **ends: Any) -> IntervalsRule:
    return IntervalsRule.model_validate({"intervals": list(widths), **ends})


def categories(tree: dict[str, Any], levels: int | None = None) -> CategoriesRule:
    return CategoriesRule(categories=tree, levels=levels)


# --- masks


def test_mask_hides_characters_from_the_right(bench: Bench) -> None:
    hierarchy = bench.build(MaskRule(mask="right"), ["02139", "0213", None], "VARCHAR")
    assert (hierarchy.height, hierarchy.leaves, hierarchy.top) == (5, 3, "*")
    assert bench.labels() == {
        "02139": ("0213*", "021**", "02***", "0****", "*"),
        "0213": ("0213*", "021**", "02***", "0****", "*"),
        None: (None, None, None, None, "*"),
    }


def test_mask_hides_characters_from_the_left(bench: Bench) -> None:
    bench.build(MaskRule(mask="left"), [12, 345, -6], "INTEGER")
    assert bench.labels() == {12: ("*12", "**2", "*"), 345: ("*45", "**5", "*"), -6: ("*-6", "**6", "*")}


def test_mask_with_levels_ends_with_the_top(bench: Bench) -> None:
    bench.build(MaskRule(mask="right", levels=2), ["abcde"], "VARCHAR")
    assert bench.labels() == {"abcde": ("abcd*", "abc**", "*")}
    bench.build(MaskRule(mask="right", levels=9), ["abc"], "VARCHAR")
    assert bench.labels() == {"abc": ("ab*", "a**", "*")}


@pytest.mark.slow
@pytest.mark.parametrize("values", [[], [None], [""], ["", None], ["a"]])
def test_mask_of_nearly_nothing_has_one_level(bench: Bench, values: list[str | None]) -> None:
    assert bench.build(MaskRule(mask="right"), values, "VARCHAR").height == 1
    assert bench.labels() == dict.fromkeys(values, ("*",))


def test_mask_of_long_texts_requires_levels(bench: Bench) -> None:
    assert "levels = 5" in bench.refused(MaskRule(mask="right"), ["a" * 2000], "VARCHAR")
    assert bench.build(MaskRule(mask="right", levels=1), ["a" * 2000], "VARCHAR").height == 2


def reference_mask(text: str, side: str, longest: int) -> Row:
    padded = text.ljust(longest, "*") if side == "right" else text.rjust(longest, "*")
    labels = []
    for level in range(1, longest):
        stars, visible = "*" * level, longest - level
        labels.append(padded[:visible] + stars if side == "right" else stars + padded[level:])
    return (*labels, "*")


MASKED = st.lists(st.text(st.characters(codec="utf-8"), max_size=7).filter("*".__ne__), min_size=1, unique=True)


@pytest.mark.slow
@settings(few, max_examples=examples(40))
@given(MASKED, st.sampled_from(["right", "left"]))
def test_mask_equals_plain_python(bench: Bench, values: list[str], side: str) -> None:
    check_mask(bench, values, side)


def check_mask(bench: Bench, values: list[str], side: str) -> None:
    bench.build(MaskRule(mask=side), values, "VARCHAR")
    longest = max(1, *map(len, values), 1)
    assert bench.labels() == {value: reference_mask(value, side, longest) for value in values}


# --- intervals


def test_integer_intervals_have_padded_labels(bench: Bench) -> None:
    hierarchy = bench.build(intervals(5, 10, 20, 40), [0, 4, 7, 23, 39, None], "INTEGER")
    assert (hierarchy.height, hierarchy.leaves) == (5, 6)
    assert bench.labels()[7] == ("05-09", "00-09", "00-19", "00-39", "*")
    assert bench.labels()[23] == ("20-24", "20-29", "20-39", "00-39", "*")


def test_bounds_are_as_wide_as_the_longest_of_their_level(bench: Bench) -> None:
    bench.build(intervals(5, 40), [7, 81], "BIGINT")
    assert bench.labels() == {7: ("05-09", "000-039", "*"), 81: ("80-84", "080-119", "*")}


def test_negative_integers_fall_into_intervals_below_0(bench: Bench) -> None:
    bench.build(intervals(5), [-1, -5, -6, 0, 11], "TINYINT")
    labels = {value: label for value, (label, _) in bench.labels().items()}
    assert labels == {-1: "-05--01", -5: "-05--01", -6: "-10--06", 0: "00-04", 11: "10-14"}


@pytest.mark.slow
def test_values_outside_the_bounds_fall_into_open_intervals(bench: Bench) -> None:
    bench.build(intervals(5, 10, below=0, above=100), [-7, 0, 7, 99, 100, 2000], "SMALLINT")
    assert bench.labels() == {
        -7: ("<0", "<0", "*"),
        0: ("00-04", "00-09", "*"),
        7: ("05-09", "00-09", "*"),
        99: ("95-99", "90-99", "*"),
        100: ("≥100", "≥100", "*"),
        2000: ("≥100", "≥100", "*"),
    }
    assert bench.shown_at_level_0() == {-7: "<0", 0: "0", 7: "7", 99: "99", 100: "≥100", 2000: "≥100"}


def test_an_open_end_binds_at_the_levels_of_rules_before_it(bench: Bench) -> None:
    ages = categories({"young": [10, 20], "old": [60, 70, 80, 95]})
    bench.build([ages.model_copy(update={"levels": 1}), intervals(100, above=70)], [10, 60, 70, 95, None], "INTEGER")
    rows = bench.labels()
    assert {value: row[0] for value, row in rows.items()} == {
        10: "young", 60: "old", 70: "≥70", 95: "≥70", None: None
    }  # fmt: skip
    assert rows[60][1] == "00-69" and rows[95][1] == "≥70"
    assert bench.shown_at_level_0() == {10: "10", 60: "60", 70: "≥70", 95: "≥70", None: None}


def test_the_open_end_of_a_later_rule_is_the_wider_one(bench: Bench) -> None:
    rules = [intervals(5, above=90, below=10), intervals(20, above=80)]
    bench.build(rules, [5, 42, 79, 80, 89, 90, 104], "INTEGER")
    labels = bench.shown_at_level_0()
    assert labels == {5: "<10", 42: "42", 79: "79", **dict.fromkeys([80, 89, 90, 104], "≥80")}
    assert {bench.labels()[age][0] for age in (80, 89, 90, 104)} == {"≥80"}
    assert "is beyond above = 90" in bench.refused([intervals(5, above=90), intervals(20, above=100)], [95], "INTEGER")
    assert "is beyond below = 10" in bench.refused([intervals(5, below=10), intervals(20, below=0)], [5], "INTEGER")


def test_intervals_end_at_the_open_ends(bench: Bench) -> None:
    bench.build(intervals(5, 10, below=3, above=18), [2, 3, 12, 17, 18], "UTINYINT")
    assert bench.labels() == {
        2: ("<3", "<3", "*"),
        3: ("03-04", "03-09", "*"),
        12: ("10-14", "10-17", "*"),
        17: ("15-17", "10-17", "*"),
        18: ("≥18", "≥18", "*"),
    }


def test_intervals_of_decimals_are_half_open(bench: Bench) -> None:
    bench.build(intervals(2.5, 5), [Decimal("0"), Decimal("2.49"), Decimal("12.5")], "DECIMAL(5,2)")
    assert bench.labels() == {
        Decimal("0.00"): ("[00.0, 02.5)", "[00.0, 05.0)", "*"),
        Decimal("2.49"): ("[00.0, 02.5)", "[00.0, 05.0)", "*"),
        Decimal("12.50"): ("[12.5, 15.0)", "[10.0, 15.0)", "*"),
    }


def test_whole_widths_of_floats_show_no_decimals(bench: Bench) -> None:
    bench.build(intervals(5, above=30), [20.0, 24.99, 31.5], "DOUBLE")
    labels = {value: label for value, (label, _) in bench.labels().items()}
    assert labels == {20.0: "[20, 25)", 24.99: "[20, 25)", 31.5: "≥30"}


def test_floats_next_to_a_bound_fall_on_the_right_side(bench: Bench) -> None:
    below = math.nextafter(5.0, 0.0)
    values = [below, 5.0, -1e-300, -0.0, 1e15 + 5, 0.7]
    bench.build(intervals(0.1, 5), values, "DOUBLE")
    wide = {value: label[1].replace("0", "") for value, label in bench.labels().items()}
    assert wide[below] == wide[-0.0] == "[., 5.)"
    assert wide[5.0] == "[5., 1.)"
    assert wide[-1e-300] == "[-5., .)"
    assert wide[1e15 + 5] == "[15., 11.)"
    assert bench.labels()[0.7][0].endswith("0.7, 0000000000000000.8)")


def test_floats_are_generalized_as_printed(bench: Bench) -> None:
    bench.build(intervals(0.1), [struct.unpack("f", struct.pack("f", 0.7))[0]], "FLOAT")
    assert [row[1] for row in bench.rows()] == ["[0.7, 0.8)"]


@pytest.mark.slow
def test_values_without_an_interval_are_unknown(bench: Bench) -> None:
    values = [1.0, math.nan, math.inf, -math.inf, 1e300, None]
    message = bench.refused(intervals(5), values, "DOUBLE")
    assert "'1e+300' (5 rows), '-inf' (4 rows), 'inf' (3 rows), 'nan' (2 rows)" in message
    assert 'on_unknown = "suppress"' in message
    hierarchy = bench.build(intervals(5), values, "DOUBLE", "suppress")
    assert (hierarchy.leaves, set(bench.labels())) == (2, {1.0, None})


@pytest.mark.slow
@pytest.mark.parametrize("column_type", ["HUGEINT", "UHUGEINT", "BIGINT", "UBIGINT"])
def test_the_largest_integers_have_intervals(bench: Bench, column_type: str) -> None:
    largest = {"HUGEINT": 2**126, "UHUGEINT": 2**126, "BIGINT": 2**63 - 1, "UBIGINT": 2**64 - 1}[column_type]
    bench.build(intervals(10), [largest], column_type)
    start = largest // 10 * 10
    assert bench.labels() == {largest: (f"{start}-{start + 9}", "*")}


def test_date_intervals_start_at_the_origin(bench: Bench) -> None:
    day = date(1980, 1, 2)
    bench.build(intervals(7, 28, origin=day), [day, date(1980, 1, 9), date(1979, 12, 31), None], "DATE")
    assert bench.labels() == {
        day: ("[1980-01-02, 1980-01-09)", "[1980-01-02, 1980-01-30)", "*"),
        date(1980, 1, 9): ("[1980-01-09, 1980-01-16)", "[1980-01-02, 1980-01-30)", "*"),
        date(1979, 12, 31): ("[1979-12-26, 1980-01-02)", "[1979-12-05, 1980-01-02)", "*"),
        None: (None, None, "*"),
    }


def test_intervals_of_dates_start_at_1970_and_have_open_ends(bench: Bench) -> None:
    rule = intervals(7, below=date(1970, 1, 1), above=date(1970, 1, 10))
    bench.build(rule, ["1969-12-31 23:59:59", "1970-01-01", "1970-01-09 12:00:00", "1970-01-10"], "TIMESTAMP")
    labels = [row[1] for row in sorted(bench.rows())]
    assert labels == ["<1970-01-01", "[1970-01-01, 1970-01-08)", "[1970-01-08, 1970-01-10)", "≥1970-01-10"]


@pytest.mark.parametrize(
    ("rule", "column_type", "hint"),
    [
        (intervals(5), "VARCHAR", "cast it in the source query"),
        (intervals(5), "BOOLEAN", "cast it in the source query"),
        (intervals(5), "TIME", "cast it in the source query"),
        (intervals(5), "STRUCT(a INTEGER)", "cast it in the source query"),
        (intervals(2.5), "INTEGER", "whole number"),
        (intervals(5, origin=0.5), "INTEGER", "origin must be a whole number"),
        (intervals(5, above=10.5), "INTEGER", "above must be a whole number"),
        (intervals(5, above=date(2000, 1, 1)), "INTEGER", "above is a date"),
        (intervals(5, above=10), "DATE", "above must be a date"),
        (intervals(5, origin=3), "TIMESTAMP", "origin must be a date"),
        (intervals(2.5), "DATE", "whole days"),
        (intervals(10**9), "DATE", "at most"),
        (intervals(10**30), "DOUBLE", "out of the range"),
        (intervals(10**18), "INTEGER", "out of the range"),
        (DatesRule(dates=("week",)), "VARCHAR", "weeks need a column of dates"),
        (DatesRule(dates=("year",)), "INTEGER", "cast it in the source query"),
    ],
)
def test_rules_that_do_not_fit_the_column(bench: Bench, rule: Rule, column_type: str, hint: str) -> None:
    assert hint in bench.refused(rule, [], column_type)


def parsed_label(label: str) -> Bounds:
    """The interval [from, to) of a label."""
    if label[0] == "<":
        return None, Decimal(label[1:])
    if label[0] == "≥":
        return Decimal(label[1:]), None
    if match := re.fullmatch(r"(-?\d+)-(-?\d+)", label):
        return Decimal(match[1]), Decimal(match[2]) + 1
    match = re.fullmatch(r"\[(-?[\d.]+), (-?[\d.]+)\)", label)
    assert match, label
    return Decimal(match[1]), Decimal(match[2])


def check_intervals(bench: Bench, rule: IntervalsRule, exact: Callable[[Any], Decimal]) -> None:
    for value, labels in bench.labels().items():
        if value is not None:
            for width, label in zip(rule.widths, labels[:-1], strict=True):
                bounds = reference_interval(exact(value), width, rule.origin, rule.below, rule.above)
                assert parsed_label(label) == bounds, (value, label)
    for level in range(len(rule.widths)):
        released = [row[level + 1] for row in bench.rows() if row[0] is not None]
        texts = [text for label in released if label[0] not in "<≥" for text in re.findall(r"\d[\d.]*", label)]
        assert len(set(map(len, texts))) <= 1
        # No wider than needed: the longest bound begins with a digit that counts.
        assert not texts or any(not re.match(r"0\d", text) for text in texts)


@pytest.mark.slow
@few
@given(
    interval_rules(0),
    st.sampled_from([("INTEGER", 31), ("BIGINT", 63)]).flatmap(
        lambda type_: st.tuples(
            st.just(type_[0]),
            st.lists(
                st.integers(-500, 500) | st.integers(-(2 ** type_[1]), 2 ** type_[1] - 1) | st.none(), unique=True
            ),
        )
    ),
)
def test_intervals_of_integers_equal_plain_python(
    bench: Bench, rule: IntervalsRule, column: tuple[str, list[int | None]]
) -> None:
    bench.build(rule, column[1], column[0])
    check_intervals(bench, rule, Decimal)


@pytest.mark.slow
@few
@given(interval_rules(2), st.lists(st.decimals(-9999, 9999, places=3), unique=True))
def test_intervals_of_decimals_equal_plain_python(bench: Bench, rule: IntervalsRule, values: list[Decimal]) -> None:
    bench.build(rule, values, "DECIMAL(9,3)")
    check_intervals(bench, rule, Decimal)


@pytest.mark.slow
@few
@given(
    interval_rules(1),
    st.lists(st.floats(-1e9, 1e9) | st.integers(-3000, 3000).map(lambda n: n / 10), unique=True),
)
def test_intervals_of_floats_equal_plain_python(bench: Bench, rule: IntervalsRule, values: list[float]) -> None:
    bench.build(rule, set(values), "DOUBLE")
    check_intervals(bench, rule, lambda value: Decimal(repr(value)))


@few
@given(
    st.integers(1, 400),
    st.lists(st.integers(2, 5), max_size=3),
    st.dates(date(1900, 1, 1), date(2100, 1, 1)),
    st.lists(st.dates(date(500, 1, 1), date(9500, 1, 1)), unique=True),
)
def test_intervals_of_dates_equal_plain_python(
    bench: Bench, width: int, factors: list[int], origin: date, values: list[date]
) -> None:
    widths = [width]
    for factor in factors:
        widths.append(widths[-1] * factor)
    bench.build(intervals(*widths, origin=origin), values, "DATE")
    for value, labels in bench.labels().items():
        for size, label in zip(widths, labels[:-1], strict=True):
            start = origin + timedelta(days=(value - origin).days // size * size)
            assert label == f"[{start}, {start + timedelta(days=size)})"


# --- dates


@pytest.mark.thorough
def test_dates_have_calendar_labels(bench: Bench) -> None:
    rule = DatesRule(dates=("day", "month", "quarter", "year", "decade"))
    bench.build(rule, [date(1980, 1, 2), date(987, 12, 31), None], "DATE")
    assert bench.labels() == {
        date(1980, 1, 2): ("1980-01-02", "1980-01", "1980-Q1", "1980", "1980s", "*"),
        date(987, 12, 31): ("0987-12-31", "0987-12", "0987-Q4", "0987", "0980s", "*"),
        None: (None, None, None, None, None, "*"),
    }


@pytest.mark.slow
@pytest.mark.parametrize("column_type", ["TIMESTAMP_NS", "TIMESTAMPTZ_NS"])
@pytest.mark.parametrize("day", ["2020-12-31", "1969-02-02"])
def test_the_last_nanoseconds_of_a_day_are_of_it(column_type: str, day: str) -> None:
    """DuckDB rounds them to the next day: pandas ends a period with them."""
    zone = "+00" if column_type == "TIMESTAMPTZ_NS" else ""
    label = calendar_day(column_type).sql("duckdb")
    with duckdb.connect() as connection:
        if not connection.execute("FROM duckdb_types() WHERE type_name = ?", [column_type.lower()]).fetchall():
            pytest.skip("this DuckDB does not have the type")
        row = connection.execute(
            f"SELECT {label} FROM (SELECT '{day} 23:59:59.999999999{zone}'::{column_type} AS value)"
        )
        assert row.fetchone() == (date.fromisoformat(day),)


@pytest.mark.slow
def test_weeks_have_the_iso_year(bench: Bench) -> None:
    bench.build(DatesRule(dates=("day", "week")), [date(1980, 1, 2), date(2021, 1, 3)], "DATE")
    assert [row[2] for row in sorted(bench.rows())] == ["1980-W01", "2020-W53"]


@pytest.mark.slow
@pytest.mark.parametrize("column_type", ["TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"])
def test_timestamps_generalize_to_dates(bench: Bench, column_type: str) -> None:
    bench.build(DatesRule(dates=("day", "year")), ["1999-12-31 23:59:59"], column_type)
    assert bench.labels() == {datetime(1999, 12, 31, 23, 59, 59): ("1999-12-31", "1999", "*")}


def test_dates_with_a_time_zone_are_in_utc(bench: Bench) -> None:
    bench.connection.execute("SET TimeZone = 'Asia/Tokyo'")
    bench.put(["2000-01-01 00:30:00+05", "infinity"], "TIMESTAMP WITH TIME ZONE")
    rule = DatesRule(dates=("day",))
    hierarchy, _ = build_hierarchy(
        StatementRunner(bench.engine), "x", (rule,), VALUES, "TIMESTAMP WITH TIME ZONE", TARGET, "suppress"
    )
    assert hierarchy is not None
    assert bench.engine.rows(exp.select("level_1").from_(TARGET)) == [("1999-12-31",)]


@pytest.mark.slow
def test_dates_out_of_the_calendar_have_no_label(bench: Bench) -> None:
    values = ["infinity", "-infinity", "12020-01-01", "0044-03-15 (BC)", "2000-01-01"]
    assert "(4 rows)" in bench.refused(DatesRule(dates=("week",)), values, "DATE")
    bench.build(DatesRule(dates=("week",)), values, "DATE", "suppress")
    assert bench.labels() == {date(2000, 1, 1): ("1999-W52", "*")}


@pytest.mark.slow
@few
@given(st.lists(st.dates(), unique=True))
def test_dates_equal_plain_python(bench: Bench, values: list[date]) -> None:
    bench.build(DatesRule(dates=("day", "month", "quarter", "year", "decade")), values, "DATE")
    for value, labels in bench.labels().items():
        year = f"{value.year:04}"
        quarter = f"{year}-Q{(value.month + 2) // 3}"
        assert labels == (value.isoformat(), f"{year}-{value.month:02}", quarter, year, f"{year[:3]}0s", "*")
    bench.build(DatesRule(dates=("week",)), values, "DATE")
    for value, (week, _) in bench.labels().items():
        calendar = value.isocalendar()
        assert week == f"{calendar.year:04}-W{calendar.week:02}"


def test_partial_dates_have_the_label_of_their_shortest_period(bench: Bench) -> None:
    bench.build(
        DatesRule(dates=("month", "quarter", "year", "decade")), ["1981", "1980-05", "1980-12-31", None], "VARCHAR"
    )
    assert bench.labels() == {
        "1981": ("1981", "1981", "1981", "1980s", "*"),
        "1980-05": ("1980-05", "1980-Q2", "1980", "1980s", "*"),
        "1980-12-31": ("1980-12", "1980-Q4", "1980", "1980s", "*"),
        None: (None, None, None, None, "*"),
    }


@pytest.mark.slow
def test_each_month_without_a_day_is_in_its_quarter(bench: Bench) -> None:
    bench.build(DatesRule(dates=("quarter",)), [f"1980-{month:02}" for month in range(1, 13)], "VARCHAR")
    quarters = [quarter for _, (quarter, _) in sorted(bench.labels().items())]
    assert quarters == [f"1980-Q{i}" for i in (1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4)]


@few
@given(st.lists(st.tuples(st.dates(), st.sampled_from([4, 7, 10])), unique=True))
def test_partial_dates_equal_plain_python(bench: Bench, values: list[tuple[date, int]]) -> None:
    texts = {day.isoformat()[:length]: day for day, length in values}
    bench.build(DatesRule(dates=("day", "month", "quarter", "year", "decade")), [*texts], "VARCHAR")
    for value, labels in bench.labels().items():
        day = texts[value]
        quarter = f"{day.year:04}-Q{(day.month + 2) // 3}" if len(value) > 4 else value
        assert labels == (value, value[:7], quarter, value[:4], f"{value[:3]}0s", "*")


@pytest.mark.slow
@given(st.from_regex(r"[012][089][0-9][0-9]-[01][0-9]-[0-3][0-9]", fullmatch=True))
@example("1900-02-29")
@example("2000-02-29")
@example("2004-02-29")
@example("0000-01-01")
def test_days_among_partial_dates_are_days_of_the_calendar(text: str) -> None:
    try:
        is_day = bool(date.fromisoformat(text))
    except ValueError:
        is_day = False
    assert bool(re.fullmatch(PARTIAL_DATE, text)) == is_day


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["198", "1980-13", "1980-00", "1980-5", "1980-02-30", "0000", "1980-05-01 10:00", " 1981", ""]
)
def test_malformed_partial_dates_are_unknown(bench: Bench, text: str) -> None:
    assert "(3 rows)" in bench.refused(DatesRule(dates=("year",)), ["1981", "1980-05", text], "VARCHAR")


# --- suppress, categories, files, tables


def test_suppress_rule_has_only_the_top_label(bench: Bench) -> None:
    hierarchy = bench.build(SuppressRule(), ["a", "b", None], "VARCHAR")
    assert (hierarchy.height, hierarchy.leaves, hierarchy.top) == (1, 3, "*")
    assert bench.build(SuppressRule(), [], "INTEGER[]").leaves == 0


def test_categories_build_a_nested_hierarchy(bench: Bench) -> None:
    tree = {"warm": {"reddish": ["red", "pink"]}, "cold": {"bluish": ["blue"]}}
    hierarchy = bench.build(categories(tree), ["red", None], "VARCHAR")
    assert (hierarchy.height, hierarchy.leaves, hierarchy.top) == (3, 4, "*")
    assert bench.labels()["pink"] == ("reddish", "warm", "*")
    assert bench.labels()[None] == (None, None, "*")


def test_categories_with_one_root_need_no_other_top(bench: Bench) -> None:
    hierarchy = bench.build(categories({"any": {"low": [1, 2], "high": [3]}}), [1, None], "INTEGER")
    assert (hierarchy.height, hierarchy.top) == (2, "any")
    assert bench.labels()[None] == (None, "any")


@pytest.mark.slow
def test_categories_accept_values_of_other_types(bench: Bench) -> None:
    bench.build(categories({"y": [True], "n": [False]}), [True], "BOOLEAN")
    assert bench.labels() == {True: ("y", "*"), False: ("n", "*")}
    bench.build(categories({"x": [date(2000, 1, 1)], "y": [date(2001, 1, 1)]}), [], "DATE")
    assert bench.labels()[date(2000, 1, 1)] == ("x", "*")
    bench.build(categories({"x": [1.5], "y": [2]}), [], "DECIMAL(4,2)")
    assert bench.labels()[Decimal("1.50")] == ("x", "*")
    message = bench.refused(categories({"x": [1.5, "seven"], "y": [2]}), [2], "INTEGER")
    assert "keys that are not of type INTEGER: '1.5', 'seven'" in message


def test_category_under_two_parents_is_refused(bench: Bench) -> None:
    tree = {"A": {"same": ["a"]}, "B": {"same": ["b"]}}
    assert "between levels 1 and 2: 'same' lies under 'A' and 'B'" in bench.refused(categories(tree), [], "VARCHAR")


@pytest.mark.slow
def test_levels_cut_a_hierarchy(bench: Bench, file: Callable[..., FileRule]) -> None:
    bench.build(categories({"A": {"a": ["x"]}, "B": {"b": ["y"]}}, levels=1), [], "VARCHAR")
    assert bench.labels() == {"x": ("a", "*"), "y": ("b", "*")}
    bench.build(file("x;a;A;all\ny;b;B;all\n", levels=2), [None], "VARCHAR")
    assert bench.labels() == {"x": ("a", "A", "*"), "y": ("b", "B", "*"), None: (None, None, "*")}
    hierarchy = bench.build(file("x;a;A;all\ny;b;B;all\n", levels=3), [None], "VARCHAR")
    assert hierarchy.top == "all"
    bench.build(intervals(5, 10, 20, levels=2), [7], "INTEGER")
    assert bench.labels() == {7: ("5-9", "0-9", "*")}


def test_a_file_lists_all_ground_values(bench: Bench, file: Callable[..., FileRule]) -> None:
    hierarchy = bench.build(file("1;low;any\n2;low;any\n3;high;any"), [1, None], "INTEGER")
    assert (hierarchy.height, hierarchy.leaves, hierarchy.top) == (2, 4, "any")
    assert bench.labels() == {
        1: ("low", "any"),
        2: ("low", "any"),
        3: ("high", "any"),
        None: (None, "any"),
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (b"\xef\xbb\xbfa;x;*\r\nb;y;*\r\n", {"a": ("x", "*"), "b": ("y", "*")}),
        (b"a,x,*\nb,y,*", {"a": ("x", "*"), "b": ("y", "*")}),
        (b"a,1;x;*\nb;y,2;*", {"a,1": ("x", "*"), "b": ("y,2", "*")}),
        (b'"a;1";"say ""x""";*\n"b\n2";y;*', {"a;1": ('say "x"', "*"), "b\n2": ("y", "*")}),
        (b'5" pipe;x;*\r\n\nb;y;*\n\n', {'5" pipe': ("x", "*"), "b": ("y", "*")}),
        (b";none;*\nb; y ;*\n", {"": ("none", "*"), "b": (" y ", "*")}),
        (b"NULL;x;*\n# no comment;;*\n", {"NULL": ("x", "*"), "# no comment": ("", "*")}),
        ("é🦆;ÿ;*\n'; DROP TABLE x --;*\n".encode(), {"é🦆": ("ÿ", "*"), "'": (" DROP TABLE x --", "*")}),
    ],
)
def test_hierarchy_files_of_every_format_are_read(
    bench: Bench, file: Callable[..., FileRule], content: bytes, rows: dict[str, Row]
) -> None:
    bench.build(file(content), [], "VARCHAR")
    assert bench.labels() == rows


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a[1]*?.csv", "x=1/y.csv", 'it\'s; "quoted".csv', "h.csv.gz", "~.csv"])
def test_names_of_files_are_names(bench: Bench, file: Callable[..., FileRule], name: str) -> None:
    bench.build(file("a;*\nb;*\n", name), ["a"], "VARCHAR")
    assert bench.labels() == {"a": ("*",), "b": ("*",)}


cells = st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), max_size=5)


@pytest.mark.slow
@few
@given(
    st.dictionaries(cells, cells, min_size=1, max_size=5),
    st.fixed_dictionaries(
        {
            "delimiter": st.sampled_from([";", ","]),
            "lineterminator": st.sampled_from(["\n", "\r\n"]),
            "quoting": st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
        }
    ),
)
def test_labels_are_read_as_a_file_has_them(
    bench: Bench, tmp_path: Path, rows: dict[str, str], spelling: dict[str, Any]
) -> None:
    path = tmp_path / "h.csv"
    with path.open("w", encoding="utf-8", newline="") as out:
        csv.writer(out, **spelling).writerows([(key, label, "*") for key, label in rows.items()])
    # A semicolon in every line may be just as regular: then the separator is a guess.
    assume(spelling["delimiter"] == ";" or ";" not in path.read_text(encoding="utf-8"))
    bench.build(FileRule(file=path), list(rows), "VARCHAR")
    assert bench.labels() == {key: (label, "*") for key, label in rows.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "column_type", "words"),
    [
        (b"", "VARCHAR", ["is empty"]),
        (b"\n\n", "VARCHAR", ["is empty"]),
        (b"a;x;*\nb;*\nc;y;*\nd;*;*;*", "VARCHAR", ["line 2 has 2 fields, line 4 has 4 fields", "most have 3"]),
        (b"a;*\n\xff;*\n", "VARCHAR", ["line 2 has the byte 0xFF, which is not valid UTF-8"]),
        (b'a;*\n"b;*\n', "VARCHAR", ["not valid CSV"]),
        (b"1;*\n2;*\n01;*\n1;*", "INTEGER", ["'1' (3 times, spelled '01' and '1')", "keep one of each"]),
        (b"age;l\n1;l\n1.5;l\n", "INTEGER", ["'1.5', 'age'", "no header"]),
        (b"1.005;l\n1.10;l", "DECIMAL(5,2)", ["'1.005'"]),
        (b"a;A;*\nb;A;+\nc;C;*", "VARCHAR", ["the top, level 2, has 2 values: '*' and '+'"]),
        (b"a;A;x;*\nb;A;y;*\nc;A;z;*", "VARCHAR", ["levels 1 and 2: 'A' lies under 'x' and 'z', and 1 more"]),
        (b"a\nb", "VARCHAR", ["the top, level 0, has 2 values: 'a' and 'b'"]),
    ],
)
def test_invalid_hierarchy_files_are_refused(
    bench: Bench, file: Callable[..., FileRule], content: bytes, column_type: str, words: list[str]
) -> None:
    message = bench.refused(file(content), [], column_type)
    for word in words:
        assert word in message


def test_files_that_cannot_be_read(bench: Bench, tmp_path: Path) -> None:
    assert "does not exist" in bench.refused(FileRule(file=tmp_path / "no.csv"), [], "VARCHAR")
    assert "cannot be read" in bench.refused(FileRule(file=tmp_path), [], "VARCHAR")


@pytest.mark.slow
def test_all_mistakes_are_reported_at_once(bench: Bench, file: Callable[..., FileRule]) -> None:
    message = bench.refused(file("1;A;x;*\n2;A;y;+\nthree;B;z;*\n2;A;y;+"), [1, 7], "INTEGER")
    assert message.count("\n") == 4
    for words in ("'three'", "'2' (2 times)", "'A' lies under 'x' and 'y'", "level 3, has 2", "'7' (2 rows)"):
        assert words in message


def test_unknown_values_are_named_with_their_rows(bench: Bench, file: Callable[..., FileRule]) -> None:
    values = ["a", None, *"bcdefgh"]
    message = bench.refused(file("a;*"), values, "VARCHAR")
    assert "'h' (9 rows), 'g' (8 rows), 'f' (7 rows), 'e' (6 rows), 'd' (5 rows) and 2 more" in message
    assert 'on_unknown = "suppress"' in message
    hierarchy = bench.build(file("a;*"), values, "VARCHAR", "suppress")
    assert (hierarchy.leaves, set(bench.labels())) == (2, {"a", None})


def test_a_file_with_one_column_is_a_hierarchy_of_height_0(bench: Bench, file: Callable[..., FileRule]) -> None:
    hierarchy = bench.build(file("a"), ["a"], "VARCHAR")
    assert (hierarchy.height, hierarchy.leaves, hierarchy.top) == (0, 1, None)
    assert "NULL (2 rows)" in bench.refused(file("a"), ["a", None], "VARCHAR")


@pytest.mark.thorough
def test_table_columns_become_levels(bench: Bench) -> None:
    bench.connection.execute("CREATE SCHEMA geo")
    bench.connection.execute(
        "CREATE TABLE geo.\"my.table; x\" AS FROM (VALUES (1, 5, DATE '2000-01-01'), "
        '(2, 6, DATE \'2000-01-01\')) t("k;", "a\'b", c)'
    )
    bench.connection.execute('CREATE VIEW v AS FROM geo."my.table; x"')
    for name in ('geo."my.table; x"', 'memory.geo."my.table; x"', "V", '"v"'):
        hierarchy = bench.build(TableRule(table=name), [1, None], "INTEGER")
        assert hierarchy.top == "2000-01-01"
        assert bench.labels()[2] == ("6", "2000-01-01")
    bench.build(TableRule(table="v"), ["1"], "VARCHAR")
    assert set(bench.labels()) == {"1", "2"}


@pytest.mark.slow
def test_tables_that_are_refused(bench: Bench) -> None:
    bench.connection.execute("CREATE TABLE t (k VARCHAR, a VARCHAR, top VARCHAR)")
    assert "table t is empty" in bench.refused(TableRule(table="t"), [], "VARCHAR")
    bench.connection.execute("INSERT INTO t VALUES ('a', NULL, '*'), ('b', 'x', NULL), ('c', 'x', '*')")
    message = bench.refused(TableRule(table="t"), [], "VARCHAR")
    assert "lack a label: 'a' (level 1), 'b' (level 2)" in message
    bench.connection.execute("INSERT INTO t VALUES (NULL, 'x', '*')")
    assert "without a key" in bench.refused(TableRule(table="t"), [], "VARCHAR")
    assert "cannot be read" in bench.refused(TableRule(table="nowhere"), [], "VARCHAR")
    assert "cannot be read" in bench.refused(TableRule(table="t; DROP TABLE t"), [], "VARCHAR")
    assert "not a table name" in bench.refused(TableRule(table="a.b.c.d"), [], "VARCHAR")
    assert bench.connection.table("t").shape == (4, 3)


# --- lists of rules


def test_composed_rules_continue_each_other(bench: Bench, file: Callable[..., FileRule]) -> None:
    counties = file("0213;Middlesex;MA;all\n0214;Suffolk;MA;all\n1000;New York;NY;all")
    bench.connection.execute(
        "CREATE TABLE counties AS SELECT '02139' AS zip, 'Middlesex' AS county, 'x' AS x "
        "UNION ALL SELECT '02138', 'Middlesex', 'x' UNION ALL SELECT '99999', 'Far', 'x'"
    )
    rules: list[Rule] = [
        MaskRule(mask="right", levels=1),
        TableRule(table="counties", levels=1),
        SuppressRule(),
    ]
    hierarchy = bench.build(rules, ["02139", "02138", None], "VARCHAR")
    assert (hierarchy.height, hierarchy.leaves, hierarchy.top) == (3, 3, "*")
    assert bench.labels() == {
        "02139": ("0213*", "Middlesex", "*"),
        "02138": ("0213*", "Middlesex", "*"),
        None: (None, None, "*"),
    }
    hierarchy = bench.build([SuppressRule(), counties], ["0213", None], "VARCHAR")
    assert (hierarchy.height, hierarchy.leaves, hierarchy.top) == (3, 2, "all")
    assert bench.labels() == {"0213": ("Middlesex", "MA", "all"), None: (None, None, "all")}


@pytest.mark.slow
def test_a_rule_before_the_last_gives_its_levels_without_its_top(bench: Bench, file: Callable[..., FileRule]) -> None:
    bench.build([intervals(5), intervals(20, 100)], [7], "INTEGER")
    assert bench.labels() == {7: ("5-9", "00-19", "00-99", "*")}
    bench.build([MaskRule(mask="right", levels=9), SuppressRule()], ["abc"], "VARCHAR")
    assert bench.labels() == {"abc": ("ab*", "a**", "*")}
    bench.build([file("a;A;all\nb;B;all"), SuppressRule()], ["a"], "VARCHAR")
    assert bench.labels() == {"a": ("A", "*")}
    bench.build([file("a;A;all\nb;B;all", levels=2), SuppressRule()], ["a"], "VARCHAR")
    assert bench.labels() == {"a": ("A", "all", "*")}
    bench.build([categories({"x": ["a"], "y": ["b"]}), SuppressRule()], ["a"], "VARCHAR")
    assert bench.labels() == {"a": ("x", "*")}
    bench.build([categories({"x": {"z": ["a", "b"]}}), SuppressRule()], ["a"], "VARCHAR")
    assert bench.labels() == {"a": ("z", "*")}


@pytest.mark.thorough
def test_a_composed_hierarchy_is_checked_as_one_tree(bench: Bench) -> None:
    rules: list[Rule] = [MaskRule(mask="right", levels=1), categories({"x": ["ab"], "y": ["ac", "bb"]})]
    message = bench.refused(rules, ["ab", "ac", "bb", "zz"], "VARCHAR")
    assert "levels 1 and 2: 'a*' lies under 'x' and 'y'" in message
    assert "'zz' (4 rows)" in message
    bench.build(rules, ["ab", "bb", "zz", None], "VARCHAR", "suppress")
    assert bench.labels() == {"ab": ("a*", "x", "*"), "bb": ("b*", "y", "*"), None: (None, None, "*")}


def test_values_need_a_label_of_every_rule(bench: Bench) -> None:
    values = ["2000-01-01", "infinity"]
    assert "'infinity' (2 rows)" in bench.refused([DatesRule(dates=("month",)), intervals(365)], values, "DATE")


# --- the rest


def test_the_query_is_made_without_data() -> None:
    sql = hierarchy_query([MaskRule(mask="right")], VALUES, "VARCHAR", longest=3).sql("duckdb")
    assert sql.startswith('SELECT "value" AS "level_0", RPAD(LEFT(')
    assert sql.count("level_") == 4
    with pytest.raises(HierarchyError, match="cast it in the source query"):
        hierarchy_query([intervals(5)], VALUES, "VARCHAR")
    with pytest.raises(HierarchyError, match="unknown"):
        hierarchy_query([TableRule(table="t")], VALUES, "VARCHAR")


def test_static_heights_need_no_data(tmp_path: Path) -> None:
    assert find_static_height([MaskRule(mask="right", levels=2)]) is None
    assert find_static_height([TableRule(table="t")]) is None
    assert find_static_height([FileRule(file=tmp_path / "no.csv")]) is None
    assert find_static_height([SuppressRule()]) == 1
    assert find_static_height([intervals(5, 10, 20, levels=2)]) == 3
    assert find_static_height([DatesRule(dates=("month",)), DatesRule(dates=("year", "decade"))]) == 4


@few
@given(st.lists(st.text(ANY_CHARACTER, max_size=8), unique=True, min_size=1, max_size=6))
def test_hostile_values_and_labels_stay_unchanged(bench: Bench, values: list[str]) -> None:
    bench.build(categories({f"{value}'\"": [value] for value in values}), values, "VARCHAR")
    assert bench.labels() == {value: (f"{value}'\"", "*") if len(values) > 1 else (f"{value}'\"",) for value in values}


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["adult", "fars"])
def test_the_hierarchies_of_real_tables(bench: Bench, data: Path, name: str) -> None:
    folder = data / name
    bench.connection.read_csv(str(folder / f"{name}.csv"), sep=";").create("source")
    types = dict(bench.connection.execute("SELECT column_name, data_type FROM duckdb_columns()").fetchall())
    files = sorted(folder.glob("hierarchy_*.csv"))
    assert files
    for path in files:
        column = path.stem.removeprefix("hierarchy_")
        bench.connection.execute(
            f'CREATE OR REPLACE TABLE "the values" AS SELECT "{column}" AS value, count(*) AS rows '
            "FROM source GROUP BY ALL"
        )
        rule = FileRule(file=path)
        bench.connection.execute('DROP TABLE IF EXISTS "the; hierarchy"')
        hierarchy, problems = build_hierarchy(
            StatementRunner(bench.engine), column, (rule,), VALUES, types[column], TARGET
        )
        assert problems == []
        assert hierarchy is not None
        with path.open(encoding="utf-8", newline="") as lines:
            rows = {tuple(row) for row in csv.reader(lines, delimiter=";")}
        assert {tuple(map(str, row)) for row in bench.rows()} == rows
        assert (hierarchy.leaves, hierarchy.top) == (len(rows), "*")
        assert hierarchy.height == find_static_height((rule,)) == len(next(iter(rows))) - 1


# Costs


@pytest.mark.slow
@pytest.mark.parametrize("keys", ["", "a;x;X;*\n", "a;x;X;*\nb;y;X;*\nc;z;Z;*\n"], ids=["suppress", "one", "three"])
def test_a_sound_hierarchy_takes_two_statements(bench: Bench, tmp_path: Path, keys: str) -> None:
    """One statement that builds it, and one that checks it."""
    file = tmp_path / "h.csv"
    file.write_text(keys)
    bench.put(["a", None], "VARCHAR")
    rule: Rule = FileRule(file=file) if keys else SuppressRule()
    queries: list[str] = []
    real = bench.engine.sql
    bench.engine.sql = lambda query: queries.append(real(query)) or queries[-1]
    hierarchy, problems = build_hierarchy(StatementRunner(bench.engine), "x", (rule,), VALUES, "VARCHAR", TARGET)
    assert (hierarchy is not None, problems) == (True, [])
    assert len(queries) == 2, queries


def test_a_column_without_nulls_is_not_scanned_for_them(bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "h.csv"
    file.write_text("a;x\nb;x\n")
    for nullable in (True, False):
        bench.put(["b"], "VARCHAR")
        hierarchy, problems = build_hierarchy(
            StatementRunner(bench.engine), "x", (FileRule(file=file),), VALUES, "VARCHAR", TARGET, nullable=nullable
        )
        assert problems == []
        assert hierarchy is not None
        assert (hierarchy.leaves, sorted(bench.rows())) == (2, [("a", "x"), ("b", "x")])
