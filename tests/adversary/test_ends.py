"""Ends of ranges, medians and sets against the values of the persons in the class.

The reader here knows the row of each person, and the grid of each attribute by its policy alone: a *border* is where
two cells of the grid meet. The rule that every release is held to:

- A label for several values holds the values of all rows that have it.
- Each of its ends is a border of the grid: the first value of a cell, the last one, or the first one beyond. So an end
  is the value of a person only where the person's value is at a border itself.
- A median is the middle of a cell, and each member of a set has k rows of the source.
- A single value is released for a class of k rows or more with this value.
- Values that move within their cells (keeping their order, and what is equal) change no label for several values.

Where no level of the hierarchy makes cells, the grid is made of rounded quantiles: then an end has few digits, and is
the value of no person whose value has more.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sqlanon
from sqlanon.policy.strategies import STRATEGIES
from support.lanes import SEARCHING, examples, some
from support.policies import make_policy

pytestmark = pytest.mark.slow

K = 3
RANGES = [name for name, strategy in STRATEGIES.items() if strategy.traits.summarizes]
SEARCHES: list[dict[str, Any]] = [
    {"strategy": name, "summary": summary, **({"cuts": cuts} if STRATEGIES[name].traits.splits_classes else {})}
    for summary in ("range", "set", "median")
    for cuts in ("strict", "relaxed")
    for name in RANGES
    if STRATEGIES[name].traits.splits_classes or cuts == "strict"
]

ATTRIBUTES: dict[str, Any] = {
    "age": {"intervals": {"widths": [5, 10, 20], "below": 20, "above": 80}},
    "visits": {"role": "quasi", "hierarchy": {"intervals": [1, 2, 10]}, "min_level": 0},
    "income": {"role": "quasi", "hierarchy": {"intervals": [10, 100, 1000]}, "min_level": 2},
    "birth": {"dates": ["day", "month", "year"]},
    "admitted": {"dates": ["day", "month"]},
    "cost": {"intervals": [50, 500]},
    "zip": "mask",
    "weight": "suppress",
    "score": "suppress",
    "seen": "suppress",
    "at": "suppress",
    "town": {"categories": {"north": ["Bonn", "Kiel", "Oslo"], "south": ["Rome", "Nice", "Bari", "Pisa"]}},
    "job": "suppress",
}
"""Every kind of column and rule that makes ranges or sets; the last two have no order."""

Value = Any
Ends = tuple[Value, Value]  # of a label: an end is None where it is open


def first_of_month(day: date) -> bool:
    return day.day == 1


def number(text: str) -> Decimal:
    return Decimal(text)


def after(value: Value) -> Value:
    return value + timedelta(days=1) if isinstance(value, date) else value + 1


BORDERS: dict[str, Callable[[Any], bool]] = {
    "age": lambda end: end % 5 == 0,
    "visits": lambda end: end % 2 == 0,
    "income": lambda end: end % 100 == 0,
    "birth": first_of_month,
    "admitted": lambda end: True,  # a timestamp: each day is a cell
    "cost": lambda end: end % 50 == 0,
    "zip": lambda end: end % 10 == 0,
    "weight": lambda end: len(end.normalize().as_tuple().digits) <= 4,
    "score": lambda end: end % 2 == 0 or end % 5 == 0,
    "seen": first_of_month,
    "at": lambda end: (end.minute, end.second) == (0, 0),
}
"""Whether the first value beyond a cell, or the first of one, is a border."""
DATED = {"birth", "admitted", "seen"}


def first_values(name: str, label: str) -> tuple[Value, Value] | None:
    """First value of a label and first value beyond it (None where open), or None for other labels."""
    read: Callable[[str], Any] = date.fromisoformat if name in DATED else number
    if name == "at":
        match = re.fullmatch(r"\[(.+), (.+)\)|<(.+)|≥(.+)", label)
        return (
            None
            if match is None
            else tuple(  # type: ignore[return-value]
                None if part is None else time.fromisoformat(part)
                for part in (match[1] or match[4], match[2] or match[3])
            )
        )
    if match := re.fullmatch(r"\[(.+), (.+)\)", label):
        return read(match[1]), read(match[2])
    if match := re.fullmatch(r"<(.+)", label):
        return None, read(match[1])
    if match := re.fullmatch(r"≥(.+)", label):
        return read(match[1]), None
    if name in DATED and (match := re.fullmatch(r"(\d{4})(?:-(\d\d))?(?:-(\d\d))?", label)):
        first = date(int(match[1]), int(match[2] or 1), int(match[3] or 1))
        return first, first + timedelta(days=1) if match[3] else next_period(first, months=1 if match[2] else 12)
    match = re.fullmatch(r"(.+?) to (.+)" if name in DATED else r"(.+?)(?: to |(?<=\d)-)(.+)", label)
    if match is None and name == "zip" and (match := re.fullmatch(r"(\d+)(\*+)", label)):
        width = 10 ** len(match[2])
        return number(match[1]) * width, (number(match[1]) + 1) * width
    if match is None or "*" in label:
        return None
    return read(match[1]), after(read(match[2]))


def next_period(first: date, months: int) -> date:
    month = first.month - 1 + months
    return date(first.year + month // 12, month % 12 + 1, 1)


def plain(value: Value) -> Value:
    """A value as ends are compared with it."""
    if isinstance(value, datetime):
        return value.date()
    return value if isinstance(value, date | time) else Decimal(str(value))


def find_violations(
    source: Mapping[str, Sequence[Value]], labels: Mapping[str, Sequence[Value]], summary: str
) -> Iterator[str]:
    """How a release breaks the rule: by column the values of the rows, and their labels in the same order."""
    keys = list(zip(*labels.values(), strict=True))
    assert min(Counter(keys).values()) >= K
    for name, values in source.items():
        of_class = defaultdict(set)
        for key, value in zip(keys, values, strict=True):
            of_class[key].add(value)
        for key, value, label in zip(keys, values, labels[name], strict=True):
            if name in ("town", "job"):
                yield from broken_set(name, value, label, Counter(values))
            elif label != "*" and not (len(of_class[key]) == 1 and is_value(value, label)):
                is_open = str(label).startswith(("<", "≥"))  # no number: it is released as it is, also among medians
                is_median = summary == "median" and not is_open
                yield from broken_median(name, label) if is_median else broken_range(name, value, label)


def is_value(value: Value, label: Value) -> bool:
    """Whether a label is the value itself: numbers may be padded with zeros."""
    return bool(label == value or re.sub(r"^(-?)0+(?=\d)", r"\1", str(label)) == str(value))


def broken_range(name: str, value: Value, label: Value) -> Iterator[str]:
    ends = None if label is None else first_values(name, str(label))
    if ends is None or value is None:
        yield f"{name}: {label!r} is not a range, and {value} is not a class"
        return
    first, beyond = ends
    if (first is not None and plain(value) < first) or (beyond is not None and plain(value) >= beyond):
        yield f"{name}: {value} is not in {label}"
    for end in ends:
        if end is not None and not BORDERS[name](end):
            yield f"{name}: {label} ends at {end}, which is no border of the grid"


def broken_median(name: str, label: Value) -> Iterator[str]:
    """Medians are text where a class mixes NULL with values."""
    if isinstance(label, str) and name in MEDIANS:
        label = MEDIANS[name](label)
    if label is None or not MIDDLES[name](label):
        yield f"{name}: the median {label} is not the middle of a cell"


def broken_set(name: str, value: str, label: str, counts: Counter[str]) -> Iterator[str]:
    if label == "*":
        return
    groups = {town: group for group, towns in ATTRIBUTES["town"]["categories"].items() for town in towns}
    members = label[1:-1].split(", ") if label.startswith("{") else [label]
    if value not in members and groups.get(value) not in members:
        yield f"{name}: {value} is not in {label}"
    for member in members:
        rows = sum(n for label, n in counts.items() if member in (label, groups.get(label)))
        if rows < K:
            yield f"{name}: {member}, which {rows} rows have, is a member of {label}"


MIDDLES: dict[str, Callable[[Any], bool]] = {
    "age": lambda middle: middle % 5 == 2 or middle in (19, 20, 80),  # of open cells the other end
    "visits": lambda middle: middle % 2 == 0,
    "income": lambda middle: middle % 100 == 49,
    "birth": lambda middle: middle.day in (14, 15, 16),
    "cost": lambda middle: abs(middle) % 50 == 25,
    "admitted": lambda middle: (middle.hour, middle.minute, middle.second) == (0, 0, 0),
    "weight": lambda middle: len(Decimal(str(middle)).normalize().as_tuple().digits) <= 5,
    "zip": lambda middle: middle[-1] == "4",
    "score": lambda middle: True,  # between two borders: it may be a value by chance
    "seen": lambda middle: middle.day in (1, 14, 15, 16, 30, 31),
    "at": lambda middle: (middle.minute, middle.second) == (0, 0),
}
MEDIANS: dict[str, Callable[[str], Any]] = {
    "age": int,
    "visits": int,
    "income": int,
    "birth": date.fromisoformat,
    "admitted": datetime.fromisoformat,
    "cost": Decimal,
    "weight": float,
    "score": int,
    "seen": date.fromisoformat,
    "at": time.fromisoformat,
}
"""How a median is read where it is text."""


def draw_table(seed: int, rows: int) -> dict[str, list[Value]]:
    """A table whose values are at no border; few values of most columns are equal."""
    dice = Random(seed)
    towns = ["Bonn"] * 6 + ["Rome"] * 6 + ["Nice"] * 4 + ["Kiel", "Oslo", "Bari", "Pisa"]
    start = datetime(2024, 1, 1, 0, 0, 7)
    return {
        "age": [5 * dice.randint(3, 18) + dice.choice([1, 3]) for _ in range(rows)],
        "visits": [2 * dice.randint(0, 20) + 1 for _ in range(rows)],
        "income": [100 * dice.randint(10, 60) + dice.randint(3, 47) for _ in range(rows)],
        "birth": [
            date(dice.randint(1930, 2005), dice.randint(1, 12), dice.choice([*range(3, 13), *range(18, 27)]))
            for _ in range(rows)
        ],
        "admitted": [start + timedelta(seconds=dice.randint(0, 10**7)) for _ in range(rows)],
        "cost": [Decimal(50 * dice.randint(0, 60)) + Decimal(dice.randint(101, 2399)) / 100 for _ in range(rows)],
        "zip": [f"02{dice.randint(10, 99)}{dice.randint(1, 8)}" for _ in range(rows)],
        "weight": [40 + dice.random() * 80 for _ in range(rows)],
        "score": [int(10 ** (dice.random() * 4)) * 10 + dice.choice([1, 3, 7, 9]) for _ in range(rows)],
        "seen": [date(2001, 1, 2) + timedelta(days=dice.randint(0, 8000)) for _ in range(rows)],
        "at": [time(dice.randint(0, 23), dice.randint(1, 59), dice.randint(1, 59)) for _ in range(rows)],
        "town": [dice.choice(towns) for _ in range(rows)],
        "job": [f"job {min(dice.randint(1, 40), dice.randint(1, 40))}" for _ in range(rows)],
    }


TYPES = {"cost": pa.decimal128(9, 2), "visits": pa.int32(), "age": pa.int16()}


def release(
    source: Mapping[str, Sequence[Value]], folder: Path, attributes: Mapping[str, Any] = ATTRIBUTES, **search: Any
) -> tuple[dict[str, list[Value]], tuple[str, ...]]:
    """The labels of the rows of a table, in its order; and the warnings."""
    columns = {name: pa.array(values, TYPES.get(name)) for name, values in source.items()}
    columns["row"] = pa.array(range(len(next(iter(source.values())))))
    tree = {name: attributes[name] for name in source} | {"row": "insensitive"}
    policy = make_policy(tree, k=K, source={"person": False}, search=search)
    with sqlanon.connect(pa.table(columns)) as db:
        result = db.anonymize(policy)
        path = result.publish(folder / "r.duckdb", "released").path
        verification = db.verify(path, policy)
        assert verification.verified, verification.failures
    with duckdb.connect(path, read_only=True) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        names = ", ".join(f'"{name}"' for name in source)
        rows = connection.execute(f"SELECT {names} FROM released ORDER BY row").fetchall()
    assert len(rows) == len(columns["row"])
    return dict(zip(source, map(list, zip(*rows, strict=True)), strict=True)), result.warnings


FEW = ["age", "birth", "town"]
OTHERS = [["income", "cost", "zip"], ["weight", "score", "visits"], ["admitted", "seen", "at", "job"]]
CASES = [(search, names) for names in [FEW, *OTHERS] for search in SEARCHES]


@pytest.mark.parametrize(("search", "names"), some(CASES, 9), ids=str)
def test_no_end_is_the_value_of_a_person(search: dict[str, Any], names: list[str], tmp_path: Path) -> None:
    source = {name: values for name, values in draw_table(1, 120).items() if name in names}
    labels, warnings = release(source, tmp_path, **search)
    assert [*find_violations(source, labels, search["summary"])] == []
    assert not any("search.ends" in warning for warning in warnings)
    several = {name for name in names for label in labels[name] if isinstance(label, str) and label != "*"}
    assert several or search["summary"] == "median", "there are ranges"


@pytest.mark.least(3)
@pytest.mark.parametrize("summary", ["range", "set", "median"])
def test_the_reader_sees_exact_ends_and_the_warning_counts_them(summary: str, tmp_path: Path) -> None:
    search = {"strategy": "mondrian", "summary": summary}
    source = {name: values for name, values in draw_table(2, 120).items() if name in ("age", "birth", "job")}
    labels, warnings = release(source, tmp_path, ends="exact", **search)
    (warning,) = (warning for warning in warnings if "search.ends" in warning)
    violations = [*find_violations(source, labels, summary)]
    assert len(violations) > 60
    exact_ends = 0
    keys = list(zip(*labels.values(), strict=True))
    for row, key in enumerate(keys):
        exact = False
        for name, values in source.items():
            inside = {values[i] for i, other_key in enumerate(keys) if other_key == key}
            label, value = str(labels[name][row]), values[row]
            if len(inside) == 1 or value is None:
                continue
            if name == "job":
                exact |= label.startswith("{") and values.count(value) < K
            elif summary == "median":
                exact |= labels[name][row] == value or label == str(plain(value))
            elif (ends := first_values(name, label)) is not None:
                exact |= plain(value) in (ends[0], ends[1] and ends[1] - (after(ends[1]) - ends[1]))
        exact_ends += exact
    assert f"{exact_ends / len(keys):.1%} of its rows" in warning


@pytest.mark.thorough
@pytest.mark.parametrize("search", some(SEARCHES, 20), ids=str)
def test_values_that_move_within_their_cells_change_no_range(search: dict[str, Any], tmp_path: Path) -> None:
    """The ages 21, 22 and 23 become 20, 22 and 24, and days of a month others in their order."""
    dice = Random(5)
    cells = [(5 * dice.randint(3, 17), dice.randint(1, 3)) for _ in range(90)]
    months = [(date(dice.randint(1950, 1999), dice.randint(1, 12), 1), dice.randint(1, 3)) for _ in range(90)]
    tables = [
        {
            "age": [cell + places[place] for cell, place in cells],
            "birth": [month.replace(day=days[place]) for month, place in months],
        }
        for places, days in (((0, 1, 2, 3), (1, 2, 3, 4)), ((0, 0, 2, 4), (1, 1, 17, 28)))
    ]
    pairs_seen = []
    for i, table in enumerate(tables):
        (folder := tmp_path / str(i)).mkdir()
        labels, _ = release(table, folder, **search)
        values = [set(map(str, table[name])) for name in labels]
        pairs_seen.append(
            {
                name: [
                    "a value" if str(label).lstrip("0") in columns_values and search["summary"] != "median" else label
                    for label in column
                ]
                for (name, column), columns_values in zip(labels.items(), values, strict=True)
            }
        )
    if search["summary"] == "median":  # single values are numbers, too
        for name in ("age", "birth"):
            pairs = zip(*(release_ for release_ in (pairs_seen[0][name], pairs_seen[1][name])), strict=True)
            singles = dict(zip(tables[0][name], tables[1][name], strict=True))
            assert all(first == second or singles.get(first) == second for first, second in pairs)
    else:
        assert pairs_seen[0] == pairs_seen[1]


def values_under(name: str, label: Value, values: set[Value]) -> set[Value]:
    """The values that a released label stands for."""
    if label == "*":
        return values
    if single := {value for value in values if is_value(value, label)}:
        return single
    ends = first_values(name, str(label))
    assert ends is not None, label
    first, beyond = ends
    return {
        value
        for value in values
        if (first is None or plain(value) >= first) and (beyond is None or plain(value) < beyond)
    }


LOSSES = [(strategy, names) for names in [["age", "birth"], *OTHERS] for strategy in RANGES]


@pytest.mark.parametrize(("strategy", "names"), some(LOSSES, 3), ids=str)
def test_loss_counts_the_values_that_released_labels_stand_for(strategy: str, names: list[str]) -> None:
    """Only values that labels stand for count, not all values between the least and the greatest value of a class."""
    source = {name: values for name, values in draw_table(7, 90).items() if name in names and name != "job"}
    table = pa.table({name: pa.array(values, TYPES.get(name)) for name, values in source.items()})
    policy = make_policy({name: ATTRIBUTES[name] for name in source}, k=K, table=None, search={"strategy": strategy})
    with sqlanon.connect(table) as db:
        result = db.anonymize(policy)
        relation = result.relation()
        released = dict(zip(relation.columns, zip(*relation.fetchall(), strict=True), strict=True))
    losses = [
        (len(values_under(name, label, set(values))) - 1) / (len(set(values)) - 1)
        for name, values in source.items()
        for label in released[name]
    ]
    assert result.score == pytest.approx(sum(losses) / len(losses), abs=1e-9)
    assert len(losses) == 90 * len(source)


DAYS = st.dates(date(1999, 11, 1), date(2001, 3, 31))
TABLES = st.integers(6, 24).flatmap(
    lambda rows: st.fixed_dictionaries(
        {
            "age": st.lists(st.none() | st.integers(10, 95), min_size=rows, max_size=rows),
            "birth": st.lists(st.none() | DAYS, min_size=rows, max_size=rows),
            "cost": st.lists(
                st.none() | st.decimals(-200, 300, places=2, allow_nan=False), min_size=rows, max_size=rows
            ),
            "score": st.lists(st.none() | st.integers(-50, 5000), min_size=rows, max_size=rows),
        }
    )
)


def check_drawn(table: dict[str, list[Value]], search: dict[str, Any], folder: Path) -> None:
    source = {name: values for name, values in table.items() if any(value is not None for value in values)}
    if not source:
        return
    labels, _ = release(source, folder, **search)
    assert [*find_violations(source, labels, search["summary"])] == []


@settings(max_examples=examples(60), deadline=None, derandomize=not SEARCHING)
@given(TABLES, st.sampled_from(SEARCHES))
def test_drawn_tables_keep_the_rule(
    tmp_path_factory: pytest.TempPathFactory, table: dict[str, list[Value]], search: dict[str, Any]
) -> None:
    check_drawn(table, search, tmp_path_factory.mktemp("drawn"))
