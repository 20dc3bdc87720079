"""Numbers that local strategies release sort as text in the order of their lower ends, and sets can be read back."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import exp

import sqlanon
from sqlanon.hierarchies.numerals import count_whole_digits, expand_exponent, pad_whole_digits, trim_zeros
from sqlanon.strategies.local.core.label_sorting import can_be_sorted, sortable_labels, sorted_labels
from sqlanon.support.expressions import table
from support.databases import insert
from support.lanes import some
from support.policies import make_policy

few = settings(max_examples=15, deadline=None)
FLOATS = (
    st.floats(-1e30, 1e30).map(lambda n: n + 0.0) | st.floats(1e-9, 1e3) | st.integers(-500, 500).map(lambda n: n / 8)
)
INTEGERS = st.integers(-1200, 1200) | st.integers(-(2**63), 2**63 - 1)
DECIMALS = st.decimals(-99_999, 99_999, places=2)


def in_order(low: Decimal) -> tuple[bool, Decimal]:
    """Negative numbers come first, sorted by their digits, as in intervals."""
    return low >= 0, abs(low)


def ends(label: str) -> tuple[Decimal, Decimal]:
    """The ends of a range, or the number twice."""
    match = re.fullmatch(r"(-?[0-9.]+)(?:(?:-| to )(-?[0-9.]+))?", label)
    assert match, label
    return Decimal(match[1]), Decimal(match[2] or match[1])


def number_text(value: Any) -> str:
    """A number as the engine writes it; floats as Python does."""
    return str(value)


CONNECTION = duckdb.connect()


def sorted_of(labels: list[str], kept_labels: list[str], levels: dict[str, int] | None = None) -> dict[str, str]:
    """Labels of an attribute, by the labels before: released are those that are kept."""
    with CONNECTION.cursor() as connection:
        connection.execute(
            "CREATE OR REPLACE TEMP TABLE r (node INT, code INT, label VARCHAR, leaves DOUBLE, level INT)"
        )
        connection.execute("CREATE OR REPLACE TEMP TABLE k (code_0 INT)")
        rows = []
        for code, label in enumerate(labels):
            level = (levels or {}).get(label)
            node = 1000 + code if level is None else code
            rows.append((node, code, label, level or 0))
        insert(connection, "r", [(*row[:3], 0, row[3]) for row in rows])
        for label in kept_labels:
            connection.execute("INSERT INTO k VALUES (?)", [labels.index(label)])
        query = sortable_labels(table("r"), table("k"), 0, 500)
        connection.execute(f"CREATE OR REPLACE TEMP TABLE s AS {query.sql('duckdb')}")
        if not connection.execute(can_be_sorted(table("s"), ()).sql("duckdb")).fetchall()[0][0]:
            return {label: label for label in labels}
        sorted_rows = connection.execute(sorted_labels(sortable=table("s")).sql("duckdb")).fetchall()
        assert sorted(row[0] for row in sorted_rows) == sorted(
            row[0] for row in connection.execute("FROM r").fetchall()
        )
        return {labels[code]: label for _, code, label, _, _ in sorted_rows}


@pytest.mark.thorough
@pytest.mark.parametrize("values", some([INTEGERS, DECIMALS, FLOATS], 3))
def test_labels_of_numbers_sort_as_text(values: st.SearchStrategy[Any]) -> None:
    pairs = st.lists(st.tuples(values, values), min_size=1, max_size=12)

    @few
    @given(pairs)
    def check(drawn: list[tuple[Any, Any]]) -> None:
        meant: dict[str, tuple[Decimal, Decimal]] = {}
        for first, second in drawn:
            low, high = number_text(min(first, second)), number_text(max(first, second))
            dash = " to " if "-" in low + high else "-"
            meant[low if low == high else f"{low}{dash}{high}"] = (Decimal(low), Decimal(high))
        result = sorted_of(list(meant), list(meant))
        assert {label: ends(result[label]) for label in meant} == meant  # the numbers are what they were
        lows = [in_order(meant[before][0]) for before in sorted(meant, key=lambda label: result[label])]
        assert lows == sorted(lows)

    check()


@pytest.mark.thorough
def test_numbers_match_the_text_of_the_engine() -> None:
    values = [7, -7, 2.5, 1e-05, 1.5e-05, 1e16, -1.25e17, 0.0001, 1e15, 1e300, 7.0, Decimal("12.50"), Decimal("0.00")]
    types = [{Decimal: "DECIMAL(9, 2)", float: "DOUBLE", int: "BIGINT"}[type(value)] for value in values]
    parts = ", ".join(f"CAST(CAST(? AS {type_}) AS VARCHAR)" for type_ in types)
    assert list(duckdb.connect().execute(f"SELECT {parts}", values).fetchall()[0]) == [
        number_text(value) for value in values
    ]
    assert duckdb.connect().execute("SELECT CAST(CAST('0.5' AS DECIMAL(2, 2)) AS VARCHAR)").fetchall() == [(".50",)]
    assert sorted_of(["-0.0 to 1.0"], []) == {"-0.0 to 1.0": "0.0 to 1.0"}
    assert sorted_of([".50", ".25-.30", "-.30 to -.10"], []) == {
        ".50": "0.50", ".25-.30": "0.25-0.30", "-.30 to -.10": "-0.30 to -0.10",
    }  # fmt: skip


@pytest.mark.slow
def test_padding_width_follows_from_released_labels() -> None:
    labels = ["7-9", "12", "1000-2000", "8"]
    assert sorted_of(labels, ["7-9", "12"]) == {"7-9": "07-09", "12": "12", "1000-2000": "1000-2000", "8": "08"}
    assert sorted_of(labels, labels)["7-9"] == "0007-0009"


def test_labels_of_hierarchies_stay() -> None:
    levels = {"5": 1, "10": 0, "*": 3, "[5, 10)": 2}
    assert sorted_of(["5", "10", "*", "[5, 10)", "7-12"], ["5", "10", "7-12"], levels) == {
        "5": "5", "10": "10", "*": "*", "[5, 10)": "[5, 10)", "7-12": "07-12",
    }  # fmt: skip


@pytest.mark.slow
def test_labels_are_not_padded_where_two_would_become_equal() -> None:
    for labels in (["7", "07", "12"], ["1-2", "01-02", "10-12"]):
        assert sorted_of(labels, labels) == {label: label for label in labels}


def test_labels_of_huge_numbers_are_not_padded() -> None:
    labels = ["7.0", "1e+300"]
    assert sorted_of(labels, labels) == {label: label for label in labels}


@pytest.mark.thorough
@few
@given(INTEGERS | DECIMALS | FLOATS)
def test_numbers_are_written_without_an_exponent(value: Any) -> None:
    text = exp.Literal.string(number_text(value))
    wide = pad_whole_digits(expand_exponent(text), exp.Literal.number(20))
    query = exp.Select(
        expressions=[
            expand_exponent(text),
            wide,
            trim_zeros(wide),
            trim_zeros(expand_exponent(text)),
            count_whole_digits(wide),
        ]
    )
    long, wide_, short, again, digits = duckdb.connect().execute(query.sql("duckdb")).fetchall()[0]
    assert {Decimal(text) for text in (long, wide_, short)} == {Decimal(number_text(value))}
    assert "e" not in long
    assert len(wide_.lstrip("-").partition(".")[0]) == digits == max(20, len(long.lstrip("-").partition(".")[0]))
    assert short == again
    assert not re.fullmatch(r"-?0[0-9].*|.*\.[0-9]*0|.*\.", short)


# --- releases


def released_rows(
    values: list[Any], type_: pa.DataType, folder: Path, k: int = 2, **search: Any
) -> list[tuple[Any, Any]]:
    """Each value with the label that its row is released with, by an insensitive column."""
    source = pa.table({"x": pa.array(values, type_), "id": range(len(values))})
    policy = make_policy({"x": "suppress", "id": "insensitive"}, k=k, table=None, search={"ends": "exact"} | search)
    with sqlanon.connect(source) as db:
        release = db.anonymize(policy).publish(folder / "r.duckdb")
        assert db.verify(release.path, policy).verified
    with duckdb.connect(str(release.path), read_only=True) as reader:
        rows = reader.execute(f'SELECT x, id FROM "{release.table}" ORDER BY id').fetchall()
    return [(values[i], label) for label, i in rows]


COLUMNS: dict[str, tuple[Callable[[Random], Any], pa.DataType]] = {
    "integers": (lambda dice: dice.randint(-1200, 1200) ** dice.choice([1, 3]), pa.int64()),
    "decimals": (lambda dice: Decimal(dice.randint(-(10 ** dice.randint(1, 6)), 10**6)) / 100, pa.decimal128(9, 2)),
    "floats": (lambda dice: dice.uniform(-1, 3) * 10.0 ** dice.randint(-7, 18), pa.float64()),
    "texts": (lambda dice: str(dice.randint(-300, 3000)), pa.string()),
}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "strategy"), [*((kind, "mondrian") for kind in COLUMNS), ("floats", "k-similar"), ("texts", "k-similar")]
)
def test_a_release_sorts_as_text(kind: str, strategy: str, tmp_path: Path) -> None:
    draw, type_ = COLUMNS[kind]
    dice = Random(f"{kind} {strategy}")
    values = [draw(dice) for _ in range(30)]
    values += values[:6]  # these are classes of one value
    rows = released_rows(values, type_, tmp_path, strategy=strategy)
    assert len({label for _, label in rows}) >= 5
    assert all(ends(label)[0] <= Decimal(number_text(value)) <= ends(label)[1] for value, label in rows)
    lows = [in_order(ends(label)[0]) for label in sorted({label for _, label in rows})]
    assert lows == sorted(lows)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["integers", "floats"])
def test_ranges_on_a_grid_sort_as_text(kind: str, tmp_path: Path) -> None:
    """Ranges that are open at an end are sorted separately."""
    draw, type_ = COLUMNS[kind]
    dice = Random(f"{kind} grid")
    rows = released_rows([draw(dice) for _ in range(90)], type_, tmp_path, strategy="mondrian", ends="grid")
    labels = sorted({label for _, label in rows if not label.startswith(("<", "≥"))})
    assert len(labels) >= 5
    lows = [in_order(Decimal(re.split(", |(?<=[0-9])-| to ", label.strip("[)"))[0])) for label in labels]
    assert lows == sorted(lows)


@pytest.mark.thorough
def test_numbers_of_several_lengths_sort_as_text(tmp_path: Path) -> None:
    rows = released_rows([7, 8, 110, 110, 120, 121], pa.int32(), tmp_path, strategy="mondrian")
    assert sorted({label for _, label in rows}) == ["007-008", "110", "120-121"]


@pytest.mark.thorough
def test_medians_sort_where_they_are_text(tmp_path: Path) -> None:
    """A class that mixes NULL with others has no median: then medians are texts, as its top is."""
    rows = released_rows([None, 3, 7, 7, 110, 110], pa.int32(), tmp_path, strategy="mondrian", summary="median")
    assert sorted({label for _, label in rows}) == ["*", "007", "110"]


@pytest.mark.thorough
@pytest.mark.parametrize("summary", ["range", "median"])
def test_values_that_are_not_numbers_are_in_no_range(summary: str, tmp_path: Path) -> None:
    rows = released_rows([1.0, 2.5, math.nan, 30.0], pa.float64(), tmp_path, strategy="mondrian", summary=summary)
    labels = [label for _, label in rows]
    assert labels[2:] == ["*", "*"]
    assert labels[0] == labels[1] == ("1.0-2.5" if summary == "range" else "1.0")


def members(label: str) -> list[str]:
    """The values of a set, read as docs/reference/strategies.md says; any other label is its own value."""
    if not label.startswith("{"):
        return [label]
    assert label.endswith("}")
    return next(csv.reader([label[1:-1]], skipinitialspace=True, strict=True))


HOSTILE = [
    "a", "b", "a, b", "{a, b}", "}", "{", '"', '"a", "b"', "", " ", " a", "a ", "a,b", "O'Neil", "<script>", "[red]",
    "{}", '{"a"}', "é", "**", "a\tb", ",", "x" * 300,
]  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("strategy", ["mondrian", "k-similar"])
def test_hostile_values_come_back_out_of_their_sets(strategy: str, tmp_path: Path) -> None:
    dice = Random(strategy)
    values = [dice.choice(HOSTILE) for _ in range(30)] + ["{a, b}"] * 2
    under: dict[str, set[str]] = {}
    for value, label in released_rows(values, pa.string(), tmp_path, strategy=strategy, summary="set"):
        under.setdefault(label, set()).add(value)
    assert sum(label.startswith("{") for label in under) >= 3
    for label, set_members in under.items():
        assert set(members(label)) == set_members
        assert members(label) == sorted(set_members, key=str.encode)


def test_members_of_sets_are_read_with_their_quotes() -> None:
    assert members('{"a, b", c, """"}') == ["a, b", "c", '"']
    assert members("a, b") == ["a, b"]
