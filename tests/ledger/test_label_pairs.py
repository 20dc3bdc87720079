"""Labels of two releases match if they have a value in common, against sets of values in plain Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import duckdb
import pytest

from sqlanon.ledger.joint.label_pairs import FIRST, SECOND, LinkedAttribute, label_pair_parts, label_pairs_name
from sqlanon.support.expressions import create_table, table
from support.databases import insert, shared_database
from support.release_pairs import make

Label: TypeAlias = "str | None"
Labels: TypeAlias = "dict[Label, frozenset[Label]]"
Pairs: TypeAlias = "dict[tuple[Label, Label], Label]"

TREE = [*((str(i), "low" if i < 4 else "high", "*") for i in range(1, 7)), (None, "low", "*")]
LEVELS: list[Labels] = [
    {path[level]: frozenset(label_path[0] for label_path in TREE if label_path[level] == path[level]) for path in TREE}
    for level in range(3)
]
"""The ground values of each node; one node has NULL in addition to 1, 2 and 3."""


def labels_at(levels: tuple[int, ...], more: Mapping[str, str]) -> Labels:
    """The ground values of the nodes of these levels; with several levels also those of other labels."""
    nodes = {label: values for level in levels for label, values in LEVELS[level].items()}
    return nodes | ({label: frozenset(values) for label, values in more.items()} if len(levels) > 1 else {})


def match_labels(first: Labels, second: Labels) -> Pairs:
    """The finest label of each pair with a common value: the one inside the other, or both."""
    pairs: Pairs = {}
    for a, values in first.items():
        for b, second_values in second.items():
            if values & second_values:
                pairs[a, b] = a if values <= second_values else b if second_values <= values else f"{a} & {b}"
    return pairs


def find_pairs(
    connection: duckdb.DuckDBPyConnection,
    attribute: LinkedAttribute,
    first: Mapping[Label, object],
    second: Mapping[Label, object],
) -> Pairs:
    """The pairs that SQL finds, each once."""
    for name, labels in ((FIRST, first), (SECOND, second)):
        connection.execute(f'CREATE OR REPLACE TABLE "{name}" (label_0 VARCHAR)')
        insert(connection, f'"{name}"', [(label,) for label in labels])
    for name, query in label_pair_parts(attribute, 0, as_numbers=False).items():
        connection.execute(create_table(table(name), query).sql("duckdb"))
    rows = connection.execute(f'FROM "{label_pairs_name(0)}"').fetchall()
    pairs = {(a, b): finer for a, b, finer in rows}
    assert len(pairs) == len(rows)
    return pairs


RANGES = {"1-4": "1234", "2-4": "234", "3-5": "345", "<4": "123", "[2, 5)": "234", "≥5": "56", "3-8": "3456"}
SETS = {"{1, 5}": "15", "{1, 2, 5}": "125", "{5, 6}": "56", "{3}": "3", "{1,2}": "~"}
"""The last one is not spelled as releases spell sets: it is a text, which matches itself."""

EVERY_LEVEL = (0, 1, 2)


@pytest.mark.parametrize("is_forward", [True, False])
def test_ranges_match_the_nodes_of_a_level_with_a_common_value(is_forward: bool) -> None:
    """NULL is in no range: a node with NULL lies in no range, whose values may all be in the node."""
    levels = ((1,), EVERY_LEVEL) if is_forward else (EVERY_LEVEL, (1,))
    first, second = (labels_at(side, RANGES) for side in levels)
    with shared_database() as connection:
        tree = make(connection, "tree", ["level_0", "level_1", "level_2"], TREE)
        attribute = LinkedAttribute("v", "v", "v", *levels, tree, 2, ranges=True)
        assert find_pairs(connection, attribute, first, second) == match_labels(first, second)


def test_sets_match_labels_with_a_common_value() -> None:
    labels = labels_at(EVERY_LEVEL, SETS)
    with shared_database() as connection:
        tree = make(connection, "tree", ["level_0", "level_1", "level_2"], TREE)
        attribute = LinkedAttribute("v", "v", "v", EVERY_LEVEL, EVERY_LEVEL, tree, 2, sets=(0, 0))
        assert find_pairs(connection, attribute, labels, labels) == match_labels(labels, labels)


@pytest.mark.parametrize("is_reversed", [False, True])
def test_members_of_sets_are_nodes_from_the_lowest_level_of_each_release_on(is_reversed: bool) -> None:
    first: Labels = {"{1, 5}": frozenset("15"), "2": frozenset("2")}
    second: Labels = {"{high, low}": frozenset([*"123456", None]), "low": LEVELS[1]["low"]}
    with shared_database() as connection:
        tree = make(connection, "tree", ["level_0", "level_1", "level_2"], TREE)
        attribute = LinkedAttribute("v", "v", "v", (0, 1), (1, 2), tree, 2, sets=(0, 1))
        if is_reversed:
            attribute, first, second = attribute.in_reverse, second, first
        assert find_pairs(connection, attribute, first, second) == match_labels(first, second)


def test_labels_of_two_hierarchies_have_their_common_values() -> None:
    """Levels of both, whose groups overlap, stand in one table: the common values have both labels as their name."""
    paths = [(str(i), "1-3" if i < 4 else "4-6", "1-4" if i < 5 else "other") for i in range(1, 7)]
    first, second = (
        {
            path[level]: frozenset(label_path[0] for label_path in paths if label_path[level] == path[level])
            for path in paths
        }
        for level in (1, 2)
    )
    expected = {(a, b): f"{a} & {b}" for a in first for b in second if first[a] & second[b]}
    with shared_database() as connection:
        tree = make(connection, "tree", ["level_0", "level_1", "level_2"], [*paths, ("7", "same", "same")])
        attribute = LinkedAttribute("v", "v", "v", (1,), (2,), tree, 2, is_nested=False)
        pairs = find_pairs(connection, attribute, {**first, "same": 0}, {**second, "same": 0})
    assert pairs == expected | {("same", "same"): "same"}


def test_members_of_sets_that_need_quotes_are_the_values() -> None:
    paths = [(value, "*") for value in ("a, b", 'say "x"', "c", "{d}")]
    sets = {'{"a, b", c}': ["a, b", "c"], '{"say ""x""", "{d}"}': ['say "x"', "{d}"], "{a, b}": []}
    first: Labels = {label: frozenset(values) or frozenset([label]) for label, values in sets.items()}
    second: Labels = {value: frozenset([value]) for value, _ in paths}
    with shared_database() as connection:
        tree = make(connection, "tree", ["level_0", "level_1"], paths)
        attribute = LinkedAttribute("v", "v", "v", (0, 1), (0,), tree, 1, sets=(0, 0))
        assert find_pairs(connection, attribute, first, second) == match_labels(first, second)
