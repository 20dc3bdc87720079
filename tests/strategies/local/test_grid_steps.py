"""The grids of ranges, statement by statement, on tables that stand in the test."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, time, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from sqlglot import exp
from step_queries import query

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.policy.rules import MaskRule
from sqlanon.strategies.local.core import grid
from sqlanon.strategies.local.core.grid import QUANTILES, LabelReader, quantile_grid
from sqlanon.strategies.local.core.nodes import Grid, Tree
from sqlanon.support.expressions import as_column, col, table
from support.databases import insert, shared_database


def labels_of(type_: str, masked: bool = False) -> LabelReader:
    rules = [MaskRule(mask="right")] if masked else []
    prepared: Any = SimpleNamespace(
        types=[type_],
        hierarchies=[SimpleNamespace(attribute="a")],
        policy=SimpleNamespace(attributes={"a": SimpleNamespace(hierarchy=rules)}),
    )
    return LabelReader(prepared, 0)


def tree_of(height: int, floor: int = 0, leaves: int = 8) -> Tree:
    offsets = tuple(range(0, 100 * (height - floor + 1), 100))
    return Tree("a", height, floor, height, offsets, leaves, 1.0, table("nodes"), True)


# LabelReader


# By label ``lower``, ``upper``, ``least``, ``beyond``, ``middle`` and ``closed``.
TEXTS: dict[tuple[str, bool], dict[str, tuple[str | bool | None, ...]]] = {
    ("INTEGER", False): {
        "7": ("7", "7", "7", "8", "7", True), "20-24": ("20", "24", "20", "25", "22", True),
        "20-25": ("20", "25", "20", "26", "22", True), "-5 to 24": ("-5", "24", "-5", "25", "9", True),
        "[20, 24)": ("20", "24", "20", "24", "22", False), "<18": (None, None, None, "18", "18", True),
        "≥90": ("90", None, "90", None, "90", True), "02*": (None, None, None, None, None, True),
        "twenty": (None, None, None, None, None, True),
    },
    ("INTEGER", True): {
        "02*": ("020", "029", "20", "30", "24", True), "0***": ("0000", "0999", "0", "1000", "499", True),
        "20-24": ("20", "24", "20", "25", "22", True), "*": (None, None, None, None, None, True),
    },
    ("DOUBLE", False): {
        "[0.5, 2.0)": ("0.5", "2.0", "0.5", "2", "1.25", False), "1.0-2.0": ("1.0", "2.0", "1", None, "1.5", True),
        "<1.50": (None, None, None, "1.5", "1.5", True), "[0.1, 0.2)": ("0.1", "0.2", "0.1", "0.2", "0.15", False),
        "[1e-07, 2e-07)": ("1e-07", "2e-07", "0.0000001", "0.0000002", "1.5e-07", False),
    },
    ("VARCHAR", True): {"02*": ("020", "029", "20", None, "024", True)},
    ("DATE", False): {
        "2020-02": ("2020-02-01", "2020-02-29", "2020-02-01", "2020-03-01", "2020-02-15", True),
        "2020-05-07": ("2020-05-07", "2020-05-07", "2020-05-07", "2020-05-08", "2020-05-07", True),
        "<2020-05-07": (None, "2020-05-06", None, "2020-05-07", "2020-05-06", True),
        "spring": (None, None, None, None, None, True),
    },
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("type_", "masked"), TEXTS)
def test_the_ends_of_cells_are_those_of_their_labels(type_: str, masked: bool) -> None:
    expected = TEXTS[type_, masked]
    names = [*"abcdef"]
    ends = [as_column(end, name) for end, name in zip(labels_of(type_, masked).texts(col("label")), names, strict=True)]
    answer = query(
        exp.select("label", *ends).from_("labels"), labels=("label VARCHAR", [(label,) for label in expected])
    )
    assert {label: tuple(bounds) for label, *bounds in answer} == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("type_", "masked", "label", "expected"),
    [
        ("INTEGER", False, "20-24", (20, 24, True)),
        ("INTEGER", True, "02*", (20, 29, True)),
        ("INTEGER", False, "02*", (None, None, True)),
        ("DOUBLE", False, "[0.5, 2.0)", (0.5, 2.0, False)),
        ("DOUBLE", True, "1**", (100.0, 199.0, True)),
        ("DATE", False, "2020-02", (date(2020, 2, 1), date(2020, 2, 29), True)),
        ("TIMESTAMP", False, "2020-02", (date(2020, 2, 1), date(2020, 3, 1), False)),
    ],
)
def test_the_bounds_of_labels_hold_their_values(
    type_: str, masked: bool, label: str, expected: tuple[Any, ...]
) -> None:
    low, high, closed = labels_of(type_, masked).bounds(col("label"))
    bounds = exp.select(as_column(low, "low"), as_column(high, "high"), as_column(closed, "closed")).from_("labels")
    assert query(bounds, labels=("label VARCHAR", [(label,)])) == [expected]


def test_the_least_distance_of_values_is_that_of_their_type() -> None:
    units = {type_: labels_of(type_).unit for type_ in ("INTEGER", "DECIMAL(8, 3)", "DOUBLE", "VARCHAR", "DATE")}
    assert units == {"INTEGER": 1.0, "DECIMAL(8, 3)": 0.001, "DOUBLE": 0.0, "VARCHAR": 0.0, "DATE": 0.0}
    assert [type_ for type_ in ("TIME", "DATE", "TIMESTAMP", "TIME_NS") if labels_of(type_).is_time] == [
        "TIME",
        "TIME_NS",
    ]


# Levels


PAIRS, FOURS = [f"{i // 2 * 2}-{i // 2 * 2 + 1}" for i in range(8)], ["0-3"] * 4 + ["4-7"] * 4
HALF_OPEN = [f"[{i // 2 * 2}, {i // 2 * 2 + 2})" for i in range(8)]
LEVELS: list[tuple[str, str, list[Sequence[str | None]], int, int | None]] = [
    ("the first", "INTEGER", [PAIRS, FOURS], 0, 1),
    ("from the floor up", "INTEGER", [PAIRS, FOURS], 2, 2),
    ("names", "INTEGER", [["few"] * 4 + ["many"] * 4, FOURS], 0, None),
    ("width one", "DECIMAL(4, 0)", [[f"[{i}, {i + 1})" for i in range(8)], FOURS], 0, None),
    ("one of width one", "INTEGER", [[*PAIRS[:6], "6", "7"], FOURS], 0, 1),
    ("a value below", "INTEGER", [["1-3"] * 4 + ["4-7"] * 4, FOURS], 0, None),
    ("not one after the other", "INTEGER", [["0-7", *["1-6"] * 6, "0-7"], FOURS], 0, None),
    ("open ends alone", "INTEGER", [["<4"] * 4 + ["≥4"] * 4, FOURS], 0, None),
    ("a value at an open end", "INTEGER", [["<1"] * 2 + ["2-5"] * 4 + ["≥6"] * 2, FOURS], 0, None),
    ("half open", "DOUBLE", [HALF_OPEN, FOURS], 0, 1),
    ("half open and closed", "DOUBLE", [[*HALF_OPEN[:4], *FOURS[4:]], FOURS], 0, None),
    ("a value at a half open end", "DOUBLE", [["[0, 3)"] * 4 + ["[4, 9)"] * 4, FOURS], 0, None),
    ("none", "INTEGER", [["x"] * 8, ["y"] * 8], 0, None),
    ("half open with open ends", "DOUBLE", [["<2"] * 2 + HALF_OPEN[2:6] + ["≥6"] * 2, FOURS], 0, 1),
    ("half open of one unit", "DECIMAL(4, 1)", [[f"[{i}.0, {i}.1)" for i in range(8)], HALF_OPEN], 0, 2),
    ("half open of more units", "DECIMAL(4, 1)", [[f"[{i}, {i + 1})" for i in range(8)], HALF_OPEN], 0, 1),
    ("one value apart", "INTEGER", [["0-5"] * 3 + ["3-3"] + ["0-5"] * 2 + ["6-7"] * 2, FOURS], 0, None),
    ("numbers as text", "VARCHAR", [PAIRS, FOURS], 0, 1),
]  # fmt: skip


@pytest.mark.thorough
def test_cells_are_the_ranges_of_the_lowest_level_that_holds_its_values_one_after_the_other() -> None:
    lowest = {}
    for name, type_, levels, floor, level in LEVELS:
        rows = [*zip(range(8), *levels, strict=True), (None, "0-1", "0-3")]
        hierarchy = (f"level_0 {type_}, level_1 VARCHAR, level_2 VARCHAR", rows)
        steps: Any = SimpleNamespace(
            fetch_rows=lambda requested, _, in_plan, h=hierarchy: query(requested, hierarchy=h)
        )
        simple_namespace: Any = SimpleNamespace(table=table("hierarchy"))
        tree = tree_of(1 + (level or 1), floor)
        lowest[name] = grid._lowest_usable_level(steps, labels_of(type_), tree, simple_namespace, col("level_0"))
    assert lowest == {name: level for name, _, _, _, level in LEVELS}


@pytest.mark.parametrize(("floor", "level"), [(0, 1), (0, 2), (1, 2), (1, 1)])
def test_each_lowest_node_is_in_the_cell_above_it(floor: int, level: int) -> None:
    rows = [(i, 100 + i // 2, 0, str(i), i, i) for i in range(8)] if not floor else []
    rows += [(100 + i, 200 + i // 2, 1, PAIRS[2 * i], 2 * i, 2 * i + 1) for i in range(4)]
    rows += [(200 + i, 300, 2, FOURS[4 * i], 4 * i, 4 * i + 3) for i in range(2)] + [(300, None, 3, "*", 0, 7)]
    level_grid = grid._grid_of_level(labels_of("INTEGER"), tree_of(3, floor), level)
    answer = query(
        level_grid,
        nodes=("node INTEGER, parent INTEGER, level INTEGER, label VARCHAR, low INTEGER, high INTEGER", rows),
    )
    width, lowest = 2**level, 2**floor
    expected = []
    for i in range(8 // lowest):
        low = i * lowest // width * width
        high = low + width - 1
        ends = (str(low), str(high), str(low), str(high + 1), str((low + high) // 2), True)
        expected.append((100 * floor + i, 100 * level + low // width, low, high, *ends))
    assert answer == expected


# Quantiles


def nice(gap: float, least: float) -> float:
    power = 10.0 ** math.floor(math.log10(gap))
    return max(5 * power if gap >= 5 * power else 2 * power if gap >= 2 * power else power, least)


def quantiles(counts: dict[Any, int], least: int) -> Iterator[tuple[Any, Any]]:
    """The values in whose rows a quantile lies, with the distance to the nearest other one."""
    whole = sum(counts.values())
    cells = max(min(QUANTILES, whole // least), 2)
    so_far, values = 0, []
    for value in sorted(counts):
        before, so_far = so_far, so_far + counts[value]
        if min(so_far * cells // whole, cells - 1) > before * cells // whole:
            values.append(value)
    for place, value in enumerate(values):
        distances = [abs(value - values[j]) for j in (place - 1, place + 1) if 0 <= j < len(values)]
        yield value, min(distances, default=max(counts) - min(counts))


def borders_of(counts: dict[int, int], least: int) -> list[int]:
    """Each value in whose rows a quantile lies, rounded."""
    borders = set()
    for value, gap in quantiles(counts, least):
        if gap:
            step = nice(gap, 2.0)
            borders.add(int(math.floor(value / step + 0.5) * step))
    return sorted(borders)


DRAWN = random.Random(5)
COUNTS = [
    ({value: 1 + value % 3 for value in range(20, 60)}, 5),
    ({DRAWN.randrange(5_000): DRAWN.randrange(1, 9) for _ in range(80)}, 3),
    ({DRAWN.randrange(100): DRAWN.randrange(1, 30) for _ in range(40)}, 60),
    ({value * value: 2 for value in range(1, 50)}, 1),
    ({10: 9, 17: 1}, 4),
    ({3: 1, 4: 9, 90: 1}, 50),
    # Each value by itself would have rows enough for a cell.
    (dict.fromkeys(range(1, 8), 20), 10),
]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(COUNTS)))
def test_cells_end_at_rounded_quantiles(number: int) -> None:
    counts, least = COUNTS[number]
    values: list[int | None] = [None, *sorted(counts)]  # NULL has a cell of its own
    tree = tree_of(1, leaves=len(values))
    simple_namespace: Any = SimpleNamespace(table=table("hierarchy"))
    answer = query(
        quantile_grid(labels_of("INTEGER"), tree, simple_namespace, col("level_0"), least),
        hierarchy=("level_0 INTEGER", [(value,) for value in reversed(values)]),
        nodes=("node INTEGER, level INTEGER, low INTEGER, rows BIGINT", [
            *((place, 0, place, counts.get(value or 0, 40)) for place, value in enumerate(values)), (100, 1, 0, 999),
        ]),
    )  # fmt: skip
    borders: list[int | None] = [None, *borders_of(counts, least), None]
    first = tree.root + 1 + len(values)
    cells: dict[int, list[int]] = {}
    for place, value in enumerate(values):
        if value is not None:
            cells.setdefault(sum(border <= value for border in borders if border is not None), []).append(place)
    expected: list[Any] = [(0, first - 1, 0, 0, *[None] * 5, True)]
    for i, places in cells.items():
        low, beyond = borders[i], borders[i + 1]
        last = None if beyond is None else beyond - 1
        middle = low if last is None else last if low is None else low + (last - low) // 2
        ends = [None if end is None else str(end) for end in (low, last, low, beyond, middle)]
        expected += [(place, first + i, places[0], places[-1], *ends, True) for place in places]
    assert answer == expected
    assert len(borders) > 2


def multiple(value: Any, gap: Any, least: float) -> float:
    step = nice(float(gap), least)
    return math.floor(float(value) / step + 0.5) * step


def calendar_start(value: date, gap: timedelta) -> date:
    if gap.days >= 3653:
        return date(max(value.year // 10 * 10, 1), 1, 1)
    return date(value.year, 1 if gap.days >= 366 else value.month, 1)


# By type: counts of values, their borders by the gap to the next quantile, and the least class.
OTHER_TYPES: dict[str, tuple[dict[Any, int], Callable[[Any, Any], Any], int]] = {
    "DECIMAL(6, 2)": (
        {Decimal(i * i) / 100: 1 + i % 4 for i in range(12)},
        lambda v, gap: round(Decimal(multiple(v, gap, 0.02)), 2), 3,
    ),
    "DOUBLE": ({i**3 / 7: 1 + i % 3 for i in range(10)}, lambda v, gap: multiple(v, gap, 0.0), 4),
    "VARCHAR": ({f"{i * 5}": 1 + i % 3 for i in range(14)}, lambda v, gap: multiple(v, gap, 0.0), 5),
    "DATE": (
        {date(1950 + 9 * i, 1 + i, 5 + i): 2 for i in range(8)} | {date(1990, 3, 1 + 9 * i): 2 for i in range(3)},
        calendar_start, 2,
    ),
    "TIME": ({time(hour, 10): 1 + hour % 3 for hour in (1, 2, 5, 6, 9, 13, 14, 20)}, lambda v, gap: v, 4),
}  # fmt: skip


@pytest.mark.parametrize("type_", OTHER_TYPES)
def test_cells_of_other_types_end_at_rounded_quantiles(type_: str) -> None:
    counts, border, least = OTHER_TYPES[type_]

    def place_of(value: Any) -> Any:
        return value.hour if type_ == "TIME" else float(value) if type_ == "VARCHAR" else value

    by_place = {place_of(value): n for value, n in counts.items()}
    borders = sorted({border(value, gap) for value, gap in quantiles(by_place, least) if gap})
    values = sorted(counts, key=place_of)
    tree = tree_of(1, leaves=len(values))
    hierarchy: Any = SimpleNamespace(table=table("hierarchy"))
    order = col("level_0") if type_ != "VARCHAR" else exp.cast(col("level_0"), "DOUBLE")
    cells = quantile_grid(labels_of(type_), tree, hierarchy, order, least)
    answer = query(
        exp.select("node", "cell", "cell_low", "cell_high", "least", "beyond").from_(cells.subquery("g")),
        hierarchy=(f"level_0 {type_}", [(value,) for value in values]),
        nodes=("node INTEGER, level INTEGER, low INTEGER, rows BIGINT", [
            (place, 0, place, counts[value]) for place, value in enumerate(values)
        ]),
    )  # fmt: skip

    def place_of_text(text: str | None) -> Any:
        if text is None or type_ == "DATE":
            return text and date.fromisoformat(text)
        if type_ == "TIME":
            return int(text[:2])
        return Decimal(text) if type_.startswith("DECIMAL") else pytest.approx(float(text))

    cell_of = [sum(border <= place_of(value) for border in borders) for value in values]
    assert len(borders) > 1
    for node, cell, low, high, lower, beyond in answer:
        i = cell_of[node]
        members = [place for place, cell_number in enumerate(cell_of) if cell_number == i]
        assert (cell, low, high) == (tree.root + 1 + len(values) + i, members[0], members[-1])
        assert place_of_text(lower) == (borders[i - 1] if i else None)
        assert place_of_text(beyond) == (borders[i] if i < len(borders) else None)


@contextmanager
def ranges(
    type_: str, values: Sequence[Any], levels: Sequence[Sequence[str]], **of_tree: Any
) -> Iterator[tuple[Tree, Callable[[], Grid | None]]]:
    """An ordered attribute with a hierarchy, and the call that makes its grid."""
    with shared_database() as connection:
        names = ", ".join(f"level_{i + 1} VARCHAR" for i in range(len(levels)))
        connection.execute(f"CREATE TABLE hierarchy (level_0 {type_}{', ' + names if names else ''}, top VARCHAR)")
        rows = [*zip(values, *levels, ["*"] * len(values), strict=True)]
        insert(connection, "hierarchy", rows)
        connection.execute(
            "CREATE TABLE nodes (node INT, parent INT, level INT, label VARCHAR, low INT, high INT, rows BIGINT)"
        )
        ground = [[place, 100, 0, str(value), place, place, 3] for place, value in enumerate(values)]
        insert(connection, "nodes", ground)
        for level, labels in enumerate(levels, start=1):
            for label in dict.fromkeys(labels):
                places = [place for place, text in enumerate(labels) if text == label]
                row = [100 * level + places[0], None, level, label, places[0], places[-1], 3 * len(places)]
                connection.execute("INSERT INTO nodes VALUES (?, ?, ?, ?, ?, ?, ?)", row)
                connection.execute(f"UPDATE nodes SET parent = {row[0]} WHERE level = 0 AND node IN {(*places, -1)}")
        attribute = SimpleNamespace(hierarchy=[])
        search_input: Any = SimpleNamespace(
            types=[type_], hierarchies=[SimpleNamespace(attribute="a", table=table("hierarchy"))],
            policy=SimpleNamespace(attributes={"a": attribute}), work=table,
        )  # fmt: skip
        tree = replace(tree_of(len(levels) + 1, of_tree.pop("floor", 0), len(values)), **of_tree)
        runner = StatementRunner(DuckDBEngine(connection))
        yield tree, lambda: grid.make_grid(runner, search_input, 0, tree, col("level_0"), 2)


@pytest.mark.slow
def test_a_grid_is_of_a_level_or_of_quantiles_or_there_is_none() -> None:
    def describe_grid(
        type_: str, values: Sequence[Any], *levels: Sequence[str], **of_tree: Any
    ) -> tuple[Any, ...] | None:
        with ranges(type_, values, levels, **of_tree) as (_, make):
            result = make()
            return None if result is None else (result.level, result.holds_dates)

    numbers, days = [*range(8)], [date(2020, 1 + i, 3) for i in range(8)]
    names = ["few"] * 4 + ["many"] * 4
    assert describe_grid("INTEGER", numbers, PAIRS, FOURS) == (1, False)
    assert describe_grid("INTEGER", numbers, names) == (None, False), "quantiles"
    assert describe_grid("INTEGER", numbers, names, floor=1) is None, "quantiles would be finer than the floor"
    assert describe_grid("INTEGER", numbers, names, open_ends=True) is None
    assert describe_grid("INTEGER", [7], ["x"]) is None, "a single cell is open at both ends"
    assert describe_grid("DATE", days, ["early"] * 8) == (None, True)
    assert describe_grid("TIMESTAMP", days, [f"2020-{month:02}" for month in range(1, 9)]) == (1, True)
    assert describe_grid("DATE", days, [f"{day}" for day in days], ["2020"] * 8) == (2, True), (
        "single days are not ranges of days"
    )
    assert describe_grid("TIMESTAMP", days, [f"{day}" for day in days], ["2020"] * 8) == (1, True), (
        "but ranges of times"
    )


def test_steps_are_1_2_or_5_times_a_power_of_ten() -> None:
    gaps = [0.07, 0.2, 1.0, 1.9, 2.0, 4.9, 5.0, 9.9, 10.0, 49.0, 50.0, 5000.0]
    steps = exp.select("gap", as_column(grid._ROUND_STEP(power=grid._POWER_OF_TEN()), "step")).from_("gaps")
    answer = dict(query(steps, gaps=("gap DOUBLE", [(gap,) for gap in gaps])))
    assert answer == pytest.approx({gap: nice(gap, 0.0) for gap in gaps})


def test_borders_of_dates_begin_months_years_or_decades() -> None:
    day = date(1987, 11, 23)
    starts = exp.select("gap", as_column(grid._CALENDAR_START(), "start")).from_("gaps")
    answer = query(starts, gaps=("value DATE, gap INTEGER", [(day, gap) for gap in (1, 365, 366, 3652, 3653)]))
    month, year, decade = date(1987, 11, 1), date(1987, 1, 1), date(1980, 1, 1)
    assert answer == [(1, month), (365, month), (366, year), (3652, year), (3653, decade)]
    early = query(starts, gaps=("value DATE, gap INTEGER", [(date(7, 3, 4), 9999)]))
    assert early == [(9999, date(1, 1, 1))]


def test_cells_of_dates_times_and_numbers_end_between_two_borders() -> None:
    def ends(type_: str, low: str, high: str) -> tuple[Any, ...]:
        texts = grid._quantile_texts(labels_of(type_), col("low"), col("high"))
        wanted = exp.select(*(as_column(text, name) for text, name in zip(texts, "abcdef", strict=True))).from_("t")
        kind = {"TIME": "BIGINT", "VARCHAR": "DOUBLE"}.get(type_, type_)
        return tuple(query(wanted, t=(f"low {kind}, high {kind}", [(low or None, high or None)]))[0])

    assert ends("DATE", "2020-01-01", "2020-03-01") == (
        "2020-01-01", "2020-02-29", "2020-01-01", "2020-03-01", "2020-01-30", True,
    )  # fmt: skip
    assert ends("DATE", "", "2020-03-01") == (None, "2020-02-29", None, "2020-03-01", "2020-02-29", True)
    assert ends("TIME", "6", "9") == ("06:00:00", "09:00:00", "06:00:00", "09:00:00", "07:00:00", False)
    assert ends("TIME", "", "9") == (None, "09:00:00", None, "09:00:00", "09:00:00", False)
    assert ends("DOUBLE", "0.5", "2") == ("0.5", "2", "0.5", "2", "1.25", False)
    assert ends("DOUBLE", "2", "") == ("2", None, "2", None, "2.0", False)
    assert ends("VARCHAR", "2", "3") == ("2", "3", "2", "3", "2.5", False)
    assert ends("DECIMAL(6, 2)", "1.50", "2.00") == ("1.5", "2", "1.5", "2", "1.75", False)
