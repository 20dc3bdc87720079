"""Hierarchies at the borders of their rules: composed rules against plain Python, and tables that are not trees."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from interval_oracle import TARGET, VALUES, Bench

from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.hierarchies import build_hierarchy
from sqlanon.hierarchies.bounds import RangeKind, label_bounds
from sqlanon.hierarchies.partial_dates import PARTIAL_DATE
from sqlanon.hierarchies.rules import RuleError, read_value_labels, resolve_rules
from sqlanon.policy.rules import CategoriesRule, DatesRule, FileRule, IntervalsRule, MaskRule, Rule, SuppressRule
from sqlanon.support.expressions import col, select, subquery, values_query


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench()


def intervals(*widths: float, **ends: Any) -> IntervalsRule:
    return IntervalsRule.model_validate({"intervals": list(widths), **ends})


def categories(tree: dict[str, Any], levels: int | None = None) -> CategoriesRule:
    return CategoriesRule(categories=tree, levels=levels)


TREE = {"any": {"low": [1, 2], "high": [8]}}
COMPOSED: list[tuple[Sequence[Rule], str, dict[Any, tuple[Any, ...]]]] = [
    # A rule before the last gives its levels without its top, or as many as it says.
    ([categories(TREE), SuppressRule()], "INTEGER", {1: ("low", "*"), 2: ("low", "*"), 8: ("high", "*")}),
    (
        [categories(TREE, levels=2), SuppressRule()],
        "INTEGER",
        {1: ("low", "any", "*"), 2: ("low", "any", "*"), 8: ("high", "any", "*")},
    ),
    ([categories({"any": [1, 2, 8]}), SuppressRule()], "INTEGER", {1: ("*",), 2: ("*",), 8: ("*",)}),
    ([categories(TREE, levels=1)], "INTEGER", {1: ("low", "*"), 2: ("low", "*"), 8: ("high", "*")}),
    ([categories(TREE, levels=2)], "INTEGER", {1: ("low", "any"), 2: ("low", "any"), 8: ("high", "any")}),
    (
        [intervals(5, levels=1), categories({"all": {"small": [1, 2, 3], "large": [8]}})],
        "INTEGER",
        {1: ("0-4", "small", "all"), 3: ("0-4", "small", "all"), 8: ("5-9", "large", "all"), None: (None, None, "all")},
    ),
    ([intervals(5, 10, 20, levels=2)], "INTEGER", {7: ("05-09", "00-09", "*"), 12: ("10-14", "10-19", "*")}),
    (
        [intervals(5, above=10), intervals(20, above=10)],
        "INTEGER",
        {7: ("5-9", "0-9", "*"), 12: ("≥10", "≥10", "*"), None: (None, None, "*")},
    ),
    ([MaskRule(mask="right", levels=1), SuppressRule()], "VARCHAR", {"abc": ("ab*", "*"), "a": ("a**", "*")}),
    (
        [DatesRule(dates=("month", "quarter", "decade"))],
        "VARCHAR",
        {
            "1980-06-30": ("1980-06", "1980-Q2", "1980s", "*"),
            "1980-03": ("1980-03", "1980-Q1", "1980s", "*"),
            "1980-04-01": ("1980-04", "1980-Q2", "1980s", "*"),
            "1980-07": ("1980-07", "1980-Q3", "1980s", "*"),
            "1980-09-30": ("1980-09", "1980-Q3", "1980s", "*"),
            "1980-10": ("1980-10", "1980-Q4", "1980s", "*"),
            "1981": ("1981", "1981", "1980s", "*"),
        },
    ),
]


@pytest.mark.parametrize(("rules", "column_type", "expected"), COMPOSED)
def test_rules_are_composed_from_fine_to_coarse(
    rules: Sequence[Rule], column_type: str, expected: dict[Any, tuple[Any, ...]], bench: Bench
) -> None:
    bench.build(rules, expected, column_type)
    assert bench.labels() == expected


def test_calendar_levels_are_those_of_python(bench: Bench) -> None:
    """Around the new year, weeks have the year of their Thursday; the first and the last years have labels, too."""
    days = [date(year, 12, 28) + timedelta(days=n) for year in (2019, 2020, 2023) for n in range(8)]
    days += [date.min, date(9999, 12, 31), date(2024, 2, 29), date(2024, 3, 31), date(2024, 4, 1)]
    bench.build(DatesRule(dates=("day", "week")), days, "DATE")
    weeks = {day: "{}-W{:02}".format(*day.isocalendar()[:2]) for day in days}
    assert {day: labels[1].lstrip("0") for day, labels in bench.labels().items()} == weeks
    bench.build(DatesRule(dates=("month", "quarter", "year", "decade")), days, "DATE")
    assert bench.labels() == {
        day: (
            f"{day.year:04}-{day.month:02}",
            f"{day.year:04}-Q{(day.month + 2) // 3}",
            f"{day.year:04}",
            f"{day.year // 10:03}0s",
            "*",
        )
        for day in days
    }


def test_partial_dates_are_days_months_and_years_of_the_calendar() -> None:
    def is_day(year: int, month: int, day: int) -> bool:
        return 1 <= month <= 12 and 1 <= day <= monthrange(year, month)[1]

    form = re.compile(PARTIAL_DATE)
    for year in (1, 1900, 1904, 1980, 1981, 2000, 9999):
        assert form.fullmatch(f"{year:04}") and not form.fullmatch(f"{year:04}0")
        for month in range(14):
            assert bool(form.fullmatch(f"{year:04}-{month:02}")) is (1 <= month <= 12)
            for day in (0, 1, 9, 10, 28, 29, 30, 31, 32):
                text = f"{year:04}-{month:02}-{day:02}"
                assert bool(form.fullmatch(text)) is is_day(year, month, day), text
    assert not form.fullmatch("0000") and not form.fullmatch("1980-1") and not form.fullmatch("1980-01-1")


REFUSED: list[tuple[str, str, list[Any], list[str]]] = [
    ("a;A;x;*\nb;A;y;*\nc;B;x;*", "VARCHAR", ["a"], ["between levels 1 and 2: 'A' lies under 'x' and 'y'"]),
    ("a;A;*\nb;A;*\nc;B;+", "VARCHAR", ["a"], ["the top, level 2, has 2 values: '*' and '+'"]),
    ("1;*\n2;*\n01;*", "INTEGER", [1], ["keys that are listed more than once: '1' (2 times, spelled '01' and '1')"]),
    ("1;*\n1.5;*\nage;*", "INTEGER", [1], ["keys that are not of type INTEGER: '1.5', 'age'"]),
    ("1.5;*\n2;*", "INTEGER", [2], ["keys that are not of type INTEGER: '1.5'"]),
    ("1.2;*\n2;*", "INTEGER", [2], ["keys that are not of type INTEGER: '1.2'"]),
    ("1.10;*\n1.005;*\n1.004;*", "DECIMAL(5,2)", [], ["'1.004'", "'1.005'"]),
    ("a;*\nb;*", "VARCHAR", ["a", "c", "c2"], ["values missing from the hierarchy: 'c2' (3 rows), 'c' (2 rows)"]),
    (
        "a;x;*\n;y;*",
        "VARCHAR",
        ["a", None],
        ["labels for the empty text, but the column has no empty text: it has NULL (2 rows)"],
    ),
    ("a\n", "VARCHAR", ["a", None], ["no level above the values, and the column has NULL (2 rows)"]),
]


@pytest.mark.parametrize(("content", "column_type", "values", "words"), REFUSED)
def test_file_that_does_not_fit_the_column_is_refused(
    content: str, column_type: str, values: list[Any], words: list[str], bench: Bench, tmp_path: Path
) -> None:
    (tmp_path / "h.csv").write_text(content, encoding="utf-8")
    message = bench.refused(FileRule(file=tmp_path / "h.csv"), values, column_type)
    assert all(part in message for part in words), message


ACCEPTED: list[tuple[str, str, list[Any], int]] = [
    ("a;x;*\n;y;*", "VARCHAR", ["a", "", None], 3),  # the empty text is a value
    ("a;x;*\n;;*", "VARCHAR", ["a", None], 3),  # it has no label
    ("a;*\nb;*", "VARCHAR", ["a"], 2),
    ("1.10;*\n1.2;*", "DECIMAL(5,2)", [], 2),
    ("1.0;*\n2;*", "INTEGER", [1], 2),
]


@pytest.mark.parametrize(("content", "column_type", "values", "leaves"), ACCEPTED)
def test_a_file_lists_ground_values_with_or_without_rows(
    content: str, column_type: str, values: list[Any], leaves: int, bench: Bench, tmp_path: Path
) -> None:
    (tmp_path / "h.csv").write_text(content, encoding="utf-8")
    assert bench.build(FileRule(file=tmp_path / "h.csv"), values, column_type).leaves == leaves


def test_population_only_values_need_no_label(bench: Bench) -> None:
    """They have no rows."""
    bench.put(["a", "*", None, "c"], "VARCHAR")
    bench.connection.execute("""UPDATE "the values" SET rows = 0 WHERE value IS NULL OR value IN ('*', 'c')""")

    def built(rule: Rule) -> tuple[int | None, list[str]]:
        bench.connection.execute('DROP TABLE IF EXISTS "the; hierarchy"')
        hierarchy, problems = build_hierarchy(
            StatementRunner(bench.engine), "x", (rule,), VALUES, "VARCHAR", TARGET, has_population=True
        )
        return None if hierarchy is None else hierarchy.leaves, [problem.message for problem in problems]

    assert built(MaskRule(mask="right")) == (1, [])
    assert built(SuppressRule()) == (1, [])
    leaves, problems = built(categories({"x": ["a"], "y": ["b"]}))
    assert (leaves, problems) == (2, [])
    bench.connection.execute("""UPDATE "the values" SET rows = 1 WHERE value = '*'""")
    leaves, problems = built(MaskRule(mask="right"))
    assert leaves is None and "has the value '*' (1 row)" in problems[0]


def test_open_ends_of_a_later_rule_are_as_wide_or_wider() -> None:
    for first, second, words in (
        ({"above": 90}, {"above": 90}, ""),
        ({"above": 90}, {"above": 80}, ""),
        ({"above": 90}, {"above": 91}, "above = 91 is beyond above = 90"),
        ({"below": 10}, {"below": 10}, ""),
        ({"below": 10}, {"below": 11}, ""),
        ({"below": 10}, {"below": 9}, "below = 9 is beyond below = 10"),
        ({"above": 90}, {"below": 95}, ""),
    ):
        _, flaws = resolve_rules([intervals(5, **first), intervals(10, **second)], "INTEGER")
        assert (bool(flaws), words in "".join(flaws)) == (bool(words), True), (first, second)
        _, flaws = resolve_rules([intervals(5, **first), intervals(10), intervals(20, **second)], "INTEGER")
        assert bool(flaws) == bool(words), f"with a rule between: {first}, {second}"


@pytest.mark.parametrize(
    ("rule", "column_type", "fits"),
    [
        (intervals(10**14), "INTEGER", True),
        (intervals(10**15), "INTEGER", False),
        (intervals(5, origin=-(10**15)), "INTEGER", False),
        (intervals(10**35), "HUGEINT", True),
        (intervals(10**36), "HUGEINT", False),
        (intervals(3_652_059), "DATE", True),
        (intervals(3_652_060), "DATE", False),
        (intervals(1, 3_652_060), "DATE", False),
    ],
)
def test_widths_and_bounds_are_within_the_range_of_the_column(rule: Rule, column_type: str, fits: bool) -> None:
    _, flaws = resolve_rules([rule], column_type)
    assert (flaws == []) is fits


def test_texts_for_values_are_a_file_of_two_columns(tmp_path: Path) -> None:
    path = tmp_path / "prior.csv"
    for content, width in (("a;1\nb;2\n", 2), ("a,1\nb,2\n", 2), ("a;1;2\nb;2;3\n", 3), ("a\nb\n", 1)):
        path.write_text(content, encoding="utf-8")
        if width != 2:
            with pytest.raises(RuleError, match=f"has {width} columns: it needs two"):
                read_value_labels(path, None, "VARCHAR", None)
            continue
        _, query = read_value_labels(path, None, "VARCHAR", None)
        with duckdb.connect() as connection:
            rows = connection.execute(query.sql("duckdb")).fetchall()
        assert sorted(rows) == [("a", "a", "1"), ("b", "b", "2")]


BOUNDS: dict[RangeKind, dict[str | None, tuple[Any, Any]]] = {
    "integer": {
        "20-24": (20, 24), "-05--01": (-5, -1), "007": (7, 7), "-5 to 007": (-5, 7), "<0": (None, -1),
        "≥100": (100, None), "[20, 25)": (20, 24), "*": (None, None), None: (None, None), "2*": (None, None),
        "20-": (None, None), "[20, 25]": (None, None), "1-2-3": (None, None), "{1, 2}": (None, None),
    },
    "number": {
        "[20, 25)": (20.0, 25.0), "<-2.5": (None, -2.5), "≥0.1": (0.1, None), "12.50": (12.5, 12.5),
        "01.5-12.0": (1.5, 12.0), "nan": (None, None),
    },
    "date": {
        "1980-01-02": (date(1980, 1, 2), date(1980, 1, 2)), "1980-W01": (date(1979, 12, 31), date(1980, 1, 6)),
        "2020-W53": (date(2020, 12, 28), date(2021, 1, 3)), "1980-02": (date(1980, 2, 1), date(1980, 2, 29)),
        "1980-Q1": (date(1980, 1, 1), date(1980, 3, 31)), "1980-Q4": (date(1980, 10, 1), date(1980, 12, 31)),
        "1980": (date(1980, 1, 1), date(1980, 12, 31)), "1980s": (date(1980, 1, 1), date(1989, 12, 31)),
        "0000s": (date(1, 1, 1), date(9, 12, 31)), "[1980-01-02, 1980-01-09)": (date(1980, 1, 2), date(1980, 1, 8)),
        "<1970-01-01": (None, date(1969, 12, 31)), "≥1970-01-10": (date(1970, 1, 10), None),
        "2020-01-05 12:30:00.25": (date(2020, 1, 5), date(2020, 1, 5)), "1980-13": (None, None),
        "1980-02-30": (None, None), "1980-Q5": (None, None), "1985s": (None, None),
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", BOUNDS)
def test_labels_show_the_ends_of_their_ranges(kind: RangeKind) -> None:
    rows = values_query({"label": "VARCHAR"}, [(label,) for label in BOUNDS[kind]])
    query = select([col("label"), *label_bounds(col("label"), kind)], subquery(rows, "l"))
    with duckdb.connect() as connection:
        bounds = connection.execute(query.sql("duckdb")).fetchall()
    assert {label: (low, high) for label, low, high in bounds} == BOUNDS[kind]
