"""From nodes to a release, on tables that stand in the test, compared with plain Python."""

from __future__ import annotations

import hashlib
import itertools
import random
from collections import defaultdict
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from step_queries import query

from oracles.oracle import Row
from sqlanon.strategies.local.core import evaluation, placement
from sqlanon.strategies.local.core.nodes import (
    Tree,
    are_numbers,
    distinct_combinations,
    hierarchy_nodes,
    map_to_combinations,
)
from sqlanon.strategies.local.core.placement import LocalRecoding
from sqlanon.support.coding import CodedAttribute, Column
from sqlanon.support.expressions import col, table


def tree(name: str, height: int, floor: int, offsets: tuple[int, ...]) -> Tree:
    return Tree(name, height, floor, height, offsets, 4, 1.0, table("nodes"), False)


# Figures and labels


def test_figures_of_classes_are_of_those_that_are_kept() -> None:
    columns = "class_size BIGINT, class_count BIGINT, kept BOOLEAN"
    rows = [(5, 3, True), (4, 4, True), (9, 2, True), (1, 1, True), (2, 1, True), (1, 1, False), (30, 20, False)]
    figures = evaluation.class_figures(evaluated=table("evaluated"))
    assert query(figures, evaluated=(columns, rows)) == [(5, 21, 1, 1, 25 + 16 + 81 + 1 + 4, 11, 2)]
    assert query(figures, evaluated=(columns, rows[5:])) == [(0, 0, 0, 0, 0, 0, 0)]


def test_figures_of_attributes_count_rows() -> None:
    columns = "row_count BIGINT, leaves_0 DOUBLE, level_0 INTEGER, leaves_1 DOUBLE, level_1 INTEGER"
    kept_rows = [(3, 1.5, 1, 0.0, 0), (2, 0.0, 0, 4.0, 2), (5, 3.0, 2, 2.0, 1)]
    expected: list[Any] = []
    for place in (1, 3):
        levels = [row[place + 1] for row in kept_rows]
        sums = [sum(row[0] * row[place + more] for row in kept_rows) for more in (0, 1)]
        expected += [*sums, min(levels), max(levels)]
    assert query(evaluation.attribute_figures(table("kept"), 2), kept=(columns, kept_rows)) == [tuple(expected)]


VALUES = "node INTEGER, label VARCHAR, leaves DOUBLE, level INTEGER"


def test_nodes_that_read_the_same_have_one_code() -> None:
    values: list[Row] = [
        (0, "b", 0.0, 0), (1, "a", 0.0, 0), (2, "b", 1.0, 1), (3, None, 0.0, 0), (4, "c", 2.0, 1), (5, "d", 0.0, 0),
    ]  # fmt: skip
    placed = ("node_1 INTEGER", [(2,), (0,), (1,), (3,), (4,), (2,)])
    for forbidden, codes in [((), {0: 2, 1: 1, 2: 2, 3: 0, 4: 3}), (("a", "d"), {0: 1, 2: 1, 3: 0, 4: 2})]:
        released = placement.released_labels(table("nodes"), table("placed"), 1, forbidden)
        expected = sorted((node, code, *values[node][1:]) for node, code in codes.items())
        assert query(released, nodes=(VALUES, values), placed=placed) == expected


def test_combinations_of_kept_classes_are_kept() -> None:
    readable = [(0, 0, 0), (1, 0, 1), (2, 1, 0), (3, 0, 0), (4, 1, 1)]
    evaluated = [(0, 0, True), (0, 1, False), (1, 0, True)]
    feasible = evaluation.feasible_rows(table("readable"), table("evaluated"), ["code_0", "code_1"])
    columns = "code_0 INTEGER, code_1 INTEGER"
    answer = query(
        feasible,
        readable=(f"combination INTEGER, {columns}", readable),
        evaluated=(f"{columns}, kept BOOLEAN", evaluated),
    )
    assert [row[0] for row in answer] == [0, 2, 3]


def test_combinations_that_are_not_kept_are_suppressed_with_unknown_values() -> None:
    trees = (tree("a", 2, 1, (10, 13)), tree("b", 1, 0, (3, 5)), tree("c", 0, 0, (0,)))
    frequency = [(a, b, is_known) for a in range(3) for b in range(2) for is_known in (True, False)]
    kept_rows = [(10, 3), (11, 4), (12, 3)]
    answer = query(
        placement.suppressed_combinations(table("frequency"), table("kept"), trees),
        frequency=("quasi_0_level_1 INTEGER, quasi_1_level_0 INTEGER, known BOOLEAN", frequency * 2),
        kept=("ground_0 INTEGER, ground_1 INTEGER", kept_rows),
    )
    assert answer == sorted(
        (a, b, is_known) for a, b, is_known in frequency if not is_known or (a + 10, b + 3) not in kept_rows
    )


# The release

ROWS = [
    (i, f"a{a}", f"b{b}", f"c{c}", f"s{i}")
    for i, (a, b, c) in enumerate(random.Random(2).choices([*itertools.product(range(5), range(3), range(2))], k=60))
]
ATTRIBUTES = (
    CodedAttribute("a", 1, table("h0"), unknown=True),
    CodedAttribute("b", 2, table("h1")),
    CodedAttribute("c", 1, table("h2")),
)
TREES = (tree("a", 1, 0, (6, 10)), tree("b", 2, 1, (3, 5)), tree("c", 1, 0, (0, 2)))
COLUMNS = (Column("id"), Column("a", 0), Column("b", 1), Column("c", 2), Column("s"))
LABELS = [{0: "a|", 1: None, 2: "{x, y}"}, {0: "7", 1: "8"}, {}]
TYPES = "code INTEGER, label VARCHAR"
LISTED = {"a|": ["a|"], None: None, "{x, y}": ["x", "y"]}
SHARES = [(1, 1), (2, 3)]


def released_rows(mask: bool, lists: bool, divided: bool) -> tuple[list[Row], list[Row]]:
    """The release, and that of plain Python: its rows are found by the codes of their values."""
    kept_rows: dict[Row, list[Row]] = defaultdict(list)
    number = 0
    for a, b, c in itertools.product(range(4), range(2), range(2)):
        for first, last in SHARES if divided else [(1, 99)]:
            number += 1
            if number % 4:
                kept_rows[a, b, c].append((number, 6 + a, 3 + b, c, number % 3, number % 2, first, last))
    columns = (
        "combination INTEGER, ground_0 INTEGER, ground_1 INTEGER, ground_2 INTEGER, code_0 INTEGER, code_1 INTEGER"
    )
    tables: dict[str, tuple[str, list[Any]]] = {
        "source": ("id INTEGER, a VARCHAR, b VARCHAR, c VARCHAR, s VARCHAR", ROWS),
        "h0": ("value VARCHAR, code_0 INTEGER, known BOOLEAN", [(f"a{i}", i % 4, i < 4) for i in range(5)]),
        "h1": ("value VARCHAR, code_1 INTEGER", [("b0", 0), ("b1", 1), ("b2", 1)]),
        "h2": ("value VARCHAR, code_0 INTEGER", [("c0", 0), ("c1", 1)]),
        "kept": (
            f"{columns}, first_row INTEGER, last_row INTEGER",
            [row for rows in kept_rows.values() for row in rows],
        ),
        # Several nodes may read the same.
        **{f"labels_{i}": (TYPES, [*labels.items()] * 2) for i, labels in enumerate(LABELS)},
    }
    recoding = LocalRecoding(
        table("source"), COLUMNS, ATTRIBUTES, ("A", "B", None), TREES, table("kept"),
        tuple(table(f"labels_{i}") for i in range(3)), frozenset({2}), (None, "BIGINT", None), mask,
        frozenset({0}) if lists else frozenset(), ("id",) if divided else (),
    )  # fmt: skip
    equal: dict[Row, list[int]] = defaultdict(list)
    codes = {}
    for row in ROWS:
        a, b, c = (int(value[1]) for value in row[1:4])
        codes[row[0]] = (a % 4, min(b, 1), c, a < 4)
        equal[codes[row[0]]].append(row[0])
    places = {
        name: place
        for some in equal.values()
        for place, name in enumerate(sorted(some, key=lambda name: hashlib.md5(str(name).encode()).hexdigest()), 1)
    }
    expected = []
    for name, _, _, c, s in ROWS:
        *code, is_known = codes[name]
        shares = [row for row in kept_rows[tuple(code)] if not divided or row[6] <= places[name] <= row[7]]
        if shares and is_known:
            first, second = (LABELS[i][shares[0][4 + i]] for i in (0, 1))
            a = LISTED[first] if lists else first
            expected.append((name, a, second if mask else int(str(second)), c, s))
        elif mask:
            expected.append((name, ["A"] if lists else "A", "B", "", s))
    return query(recoding.select(shuffled=False), **tables), expected


@pytest.mark.slow
@pytest.mark.parametrize(("mask", "lists", "divided"), [*itertools.product([False, True], repeat=3)])
def test_rows_are_released_with_the_labels_of_their_combinations(mask: bool, lists: bool, divided: bool) -> None:
    answer, expected = released_rows(mask, lists, divided)
    assert answer == expected
    assert 10 < sum(row[3] != "" for row in answer) < 50


def test_an_attribute_is_fully_suppressed_where_all_rows_show_one_label_above_its_values() -> None:
    columns = ", ".join(f"code_{i} INTEGER, level_{i} INTEGER" for i in range(5))
    kept_rows = [(0, 1, 0, 1, 0, 0, 0, 0, 4, 2), (0, 2, 1, 1, 0, 0, 0, 1, 4, 2)]
    labels = tuple(table(f"labels_{i}") for i in range(5))
    recoding = LocalRecoding(
        table("source"), (), ATTRIBUTES + ATTRIBUTES[:2], (), (), table("kept"), labels, frozenset({4}), (None,) * 5
    )
    assert query(recoding.fully_suppressed(), kept=(columns, kept_rows)) == [(True, False, False, False, False)]
    counts = {f"labels_{i}": (TYPES, [(j // 2, "x") for j in range(2 * i)]) for i in range(5)}
    assert query(recoding.label_counts(), **counts) == [(0, 1, 2, 3, 4)]


def test_types_of_a_release_are_those_of_its_columns_where_values_are_their_own() -> None:
    recoding = LocalRecoding(
        table("source"), COLUMNS, ATTRIBUTES, (), TREES, table("kept"), (), frozenset({2}), (None, "BIGINT", None)
    )
    types = {
        (mask, lists): [
            replace(recoding, mask=mask, lists=frozenset(lists)).released_type(column, "DATE") for column in COLUMNS
        ]
        for mask in (False, True)
        for lists in ((), (0, 2))
    }
    text, many = "VARCHAR", "VARCHAR[]"
    assert types == {
        (False, ()): ["DATE", text, "DATE", "DATE", "DATE"],
        (False, (0, 2)): ["DATE", many, "DATE", "DATE", "DATE"],
        (True, ()): ["DATE", text, text, text, "DATE"],
        (True, (0, 2)): ["DATE", many, text, many, "DATE"],
    }
    assert [replace(recoding, mask=mask, lists=frozenset(lists)).codes_identify_labels for mask, lists in types] == [
        True, False, False, False,
    ]  # fmt: skip
    assert recoding.class_keys() == {0: "code_0", 1: "code_1", 2: "value_3"}


# Nodes and combinations


def test_combinations_are_numbered_in_the_order_of_their_codes() -> None:
    trees = (tree("a", 2, 0, (0, 4, 6)), tree("b", 2, 1, (10, 13)), tree("c", 0, 0, (5,)))
    rows = [(a, a // 2, b, n, is_known) for a, b, n, is_known in [
        (3, 0, 2, True), (3, 0, 1, True), (0, 2, 1, True), (0, 1, 4, True), (1, 1, 0, True), (2, 2, 5, False),
        (3, 0, 7, False),
    ]]  # fmt: skip
    columns = (
        "quasi_0_level_0 INTEGER, quasi_0_level_1 INTEGER, quasi_1_level_1 INTEGER, row_count BIGINT, known BOOLEAN"
    )
    statement = distinct_combinations(table("frequency"), trees)
    expected = [(0, 0, 11, 5, 4), (1, 0, 12, 5, 1), (2, 3, 10, 5, 3)]
    assert query(statement, frequency=(columns, rows)) == expected
    nodes = ", ".join(f"node_{i}_level_{level} INTEGER" for i, level in [(0, 0), (1, 1), (2, 0)])
    tables = {"frequency": (columns, rows), "made": (f"combination INTEGER, {nodes}, row_count BIGINT", expected)}
    for unknown in (False, True):
        statement = map_to_combinations(table("frequency"), table("made"), trees, ["row_count"], unknown)
        unknown_nodes = [(None, 0), (None, 5), (None, 7)] if unknown else []
        assert query(statement, **tables) == [*unknown_nodes, (0, 4), (1, 1), (2, 1), (2, 2)]


def test_nodes_count_the_values_under_them() -> None:
    """The source has four of five ground values, which have a separate order; one of the four is unknown."""
    names = ["v", "w", "x", "y", "z"]
    above = {"v": "p", "w": "q", "x": "p", "y": "q", "z": "q"}
    order = {name: place for place, name in enumerate("xvzyw")}
    hierarchy = [(name, above[name], "*", order[name]) for name in names]
    coded = [
        (name, code, ["p", "q"].index(above[name]), above[name], 1 if above[name] == "p" else 2, rows, name != "z")
        for code, (name, rows) in enumerate([("v", 3), ("w", 4), ("y", 5), ("z", 90)])
    ]
    tables: dict[str, tuple[str, list[Any]]] = {
        "hierarchy": ("level_0 VARCHAR, level_1 VARCHAR, level_2 VARCHAR, place INTEGER", hierarchy),
        "coded": (
            "value VARCHAR, code_0 INTEGER, code_1 INTEGER, label_1 VARCHAR, leaves_1 INTEGER, "
            "rows BIGINT, known BOOLEAN",
            coded,
        ),
    }
    spec = CodedAttribute("a", 2, table("coded"), unknown=True)
    source: Any = SimpleNamespace(table=table("hierarchy"), top="*")
    whole = Tree("a", 2, 0, 1, (0, 10, 20), 5, 1.0, table("nodes"), False, ("w", "*"))
    statement = hierarchy_nodes(spec, source, whole, col("place"))
    levels = [
        (0, 10, 0, "v", 0.0, 3, 1, 1, True), (1, 11, 0, "w", 0.0, 4, 4, 4, False), (2, 11, 0, "y", 0.0, 5, 3, 3, True),
        (10, 20, 1, "p", 1.0, 3, 0, 1, True), (11, 20, 1, "q", 2.0, 9, 2, 4, True),
        (20, None, 2, "*", 4.0, 12, 0, 4, False),
    ]  # fmt: skip
    assert query(statement, **tables) == levels
    above_ground = Tree("a", 2, 1, 2, (10, 20), 5, 1.0, table("nodes"), False)
    statement = hierarchy_nodes(spec, source, above_ground, col("place"))
    assert query(statement, **tables) == [*levels[3:5], (*levels[5][:-1], True)]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1", "-2.5", None], True),
        (["1", "x"], False),
        (["1", "inf"], False),
        (["nan"], False),
        ([None], False),
        ([], False),
    ],
)
def test_text_that_holds_numbers_is_recognized(values: list[str | None], expected: bool) -> None:
    rows = [(value,) for value in values]
    assert query(are_numbers(hierarchy=table("hierarchy")), hierarchy=("level_0 VARCHAR", rows)) == [(expected,)]
