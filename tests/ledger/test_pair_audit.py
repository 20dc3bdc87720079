"""The audit of two releases, compared with plain Python on small releases that share most rows, and at its borders."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import pytest

from oracles import oracle_attacks as oracle
from oracles.oracle_attacks import Attribute, Row, Tree
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.ledger.joint.attacks import Union, complementary_release, temporal_attack
from sqlanon.ledger.joint.label_pairs import LinkedAttribute
from sqlanon.ledger.joint.overlaps import count_shared_rows
from sqlanon.ledger.joint.pair_audit import PairAudit
from sqlanon.ledger.joint.row_matching import ReleaseLink
from sqlanon.support.expressions import table
from support.databases import small_database
from support.release_pairs import built, link, make

TREES = [
    Tree([("0", "a", "*"), ("1", "a", "*"), ("2", "b", "*"), (None, None, "*")]),
    Tree([("0", "*"), ("1", "*"), ("2", "*")]),
    Tree([("0",), ("1",), (None,)]),
]


def case_of(seed: int) -> dict[str, Any]:
    """Two releases, of one or two attributes, of tables that differ in a few rows. In every other case an attribute has
    labels of several levels; in two of three cases both releases show a column unchanged."""
    draw = random.Random(seed)
    shared = int(seed % 3 > 0)
    several = bool(seed % 2)
    attributes, firsts, seconds = list[Attribute](), 0, 0
    for place in range(draw.choice([1, 2, 2])):
        tree = TREES[0] if place == 0 and several else draw.choice(TREES)
        levels = range(tree.height + 1)
        first_levels, second_levels = [draw.choice(levels)], [draw.choice(levels)]
        if several and place == 0:
            first_levels, second_levels = sorted(draw.sample(levels, 2)), [*levels]
        where = draw.choice(["both", "both", "both", "first", "second"]) if place else "both"
        first, second = (None if where == "second" else firsts), (None if where == "first" else seconds)
        firsts, seconds = firsts + (first is not None), seconds + (second is not None)
        attributes.append(Attribute(first, second, first_levels, second_levels, tree))
    people = [
        (
            *(draw.choice(attribute.tree.paths if attribute.tree else []) for attribute in attributes),
            draw.choice(["x", "x", "y", None]),
        )
        for _ in range(draw.choice([5, 7, 9]))
    ]
    later = people[draw.choice([0, 0, 1, 2]) :] + [draw.choice(people) for _ in range(draw.choice([0, 1, 1, 2, 3]))]

    def release(rows: list[Any], which: str) -> list[Row]:
        all_levels = [(i, getattr(attribute, f"{which}_levels")) for i, attribute in enumerate(attributes)]
        columns = [(i, levels) for i, levels in all_levels if getattr(attributes[i], which) is not None]
        # As a local strategy does: rows with the same values may have labels of different levels.
        return [
            (*(row[i][draw.choice(levels)] for i, levels in columns), *([row[-1]] if shared else [])) for row in rows
        ]

    return {
        "first": release(people, "first"),
        "second": release(later, "second"),
        "shared": [(firsts, seconds)] * shared,
        "attributes": attributes,
        "k": draw.choice([2, 3, 4]),
    }


def swap_sides(attribute: Attribute) -> Attribute:
    return Attribute(attribute.second, attribute.first, attribute.second_levels, attribute.first_levels, attribute.tree)


def swap_releases(case: dict[str, Any]) -> dict[str, Any]:
    return {
        "first": case["second"],
        "second": case["first"],
        "shared": [(second, first) for first, second in case["shared"]],
        "attributes": [swap_sides(attribute) for attribute in case["attributes"]],
        "k": case["k"],
    }


@pytest.mark.cases(6)
@pytest.mark.parametrize(
    ("seed", "is_forward_first"),
    [
        pytest.param(seed, is_forward_first, marks=[] if is_forward_first == (seed // 2 % 2 == 0) else pytest.mark.slow)
        for seed in range(10)
        for is_forward_first in (True, False)
    ],
)
def test_pair_audit_matches_plain_python(seed: int, is_forward_first: bool) -> None:
    case = case_of(seed)
    with small_database() as connection:
        linked, k = built(connection, case)
        with PairAudit.open(DuckDBEngine(connection), lambda name: table(name, "main", "memory"), linked, k) as audit:
            shared_rows = []
            unions: tuple[Union, ...] = ("class", "region", "table") if linked.multilevel_attributes else ("table",)
            directions = [(audit, case), (audit.in_reverse, swap_releases(case))]
            for direction, releases in directions if is_forward_first else reversed(directions):
                expected = oracle.temporal(*releases.values())
                assert direction.count_new_rows("new") == (len(expected), sum(expected.values()))
                for union in unions:
                    assert direction.count_new_rows(union) == oracle.new_in_unions(**releases, union=union), union
                assert direction.count_combinations() == oracle.complementary_victims(**releases)
                if linked.multilevel_attributes:
                    shared_rows.append(sorted(count_shared_rows(direction.find_overlaps().few).values()))
            assert not shared_rows or shared_rows[0] == shared_rows[1]
        tables = connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()
        assert {name for (name,) in tables} == {"first", "second", *(f"h{i}" for i in range(len(linked.attributes)))}
        rows = connection.execute(complementary_release(linked, k).sql("duckdb")).fetchall()
    combinations = oracle.complementary(**case)
    assert {row[:-1]: row[-1] for row in rows} == combinations and len(rows) == len(combinations)


# --- one row more, one row less


ZIP = [("11", "1*", "*"), ("12", "1*", "*"), ("21", "2*", "*"), ("22", "2*", "*")]
K = 4


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with small_database() as connection:
        make(connection, "tree", ["level_0", "level_1", "level_2"], list(ZIP))
        for name in ("one", "two"):
            connection.execute(f"CREATE TABLE {name} (zip VARCHAR, ill VARCHAR)")
        yield connection


Counts = dict[Row, int]


def run_attack(
    connection: duckdb.DuckDBPyConnection,
    build: Callable[[ReleaseLink, int], Any],
    first_counts: Counts,
    second_counts: Counts,
    *levels: int,
) -> Counts:
    """Run an attack on two releases of ZIP codes, at these levels, and illnesses. Releases are given as row counts."""
    for name, counts in (("one", first_counts), ("two", second_counts)):
        connection.execute(f"DELETE FROM {name}")
        connection.executemany(f"INSERT INTO {name} VALUES (?, ?)", [*Counter(counts).elements()])
    first, second = levels or (0, 0)
    linked = link("one", "two", [LinkedAttribute("zip", "zip", "zip", (first,), (second,), table("tree"), 2)], "ill")
    return {row[:-1]: row[-1] for row in connection.execute(build(linked, K).sql("duckdb")).fetchall()}


@pytest.mark.parametrize("new", [0, 1, K - 1, K, K + 1])
def test_fewer_than_k_new_rows_of_a_class_are_found(new: int, connection: duckdb.DuckDBPyConnection) -> None:
    """Also if they have several illnesses, and if the class has lost other rows."""
    few = {("11",): new} if 0 < new < K else {}
    before = {("11", "flu"): 5, ("21", "flu"): 5, ("11", "gout"): 5}
    after = {**before, ("11", "flu"): 5 + new // 2, ("11", "cold"): new - new // 2, ("11", "gout"): 5 - new}
    assert run_attack(connection, temporal_attack, before, after) == few
    assert run_attack(connection, temporal_attack, after, {**before, ("11", "flu"): 5 + new // 2}) == few


@pytest.mark.parametrize("new", [1, K - 1, K])
def test_new_rows_may_be_of_each_class_below_the_earlier_label(new: int, connection: duckdb.DuckDBPyConnection) -> None:
    """If the earlier release shows 1*, the new rows can be of 11 or of 12, at most as many as each has. If the later
    release shows it, they are new rows of 1*."""
    before, after = {("1*", "flu"): 6}, {("11", "flu"): 4 + new, ("12", "flu"): 2}
    few = {("11",): new} if new < K else {}
    assert run_attack(connection, temporal_attack, before, after, 1, 0) == few | {("12",): min(new, 2)}
    before, after = {("11", "flu"): 4, ("12", "flu"): 2}, {("1*", "flu"): 6 + new}
    assert run_attack(connection, temporal_attack, before, after, 0, 1) == ({("1*",): new} if new < K else {})


@pytest.mark.parametrize("rows_in_both", [1, K - 1, K])
def test_combinations_of_fewer_than_k_rows_are_found(rows_in_both: int, connection: duckdb.DuckDBPyConnection) -> None:
    """A label of the first release and a finer one of the second: the rarer of the two bounds the rows with both."""
    few = {("11",): rows_in_both} if rows_in_both < K else {}
    after = {("11", "flu"): rows_in_both, ("12", "flu"): 6}
    assert run_attack(connection, complementary_release, {("1*", "flu"): 6}, after, 1, 0) == few
    assert run_attack(connection, complementary_release, {("1*", "flu"): rows_in_both}, {("11", "flu"): 6}, 1, 0) == few
    # The bounds of both illnesses add up.
    before, after = {("1*", "flu"): rows_in_both - 1, ("1*", "cold"): 1}, {("11", "flu"): 6, ("11", "cold"): 6}
    assert run_attack(connection, complementary_release, before, after, 1, 0) == few


@pytest.mark.parametrize("rows", [1, K - 1, K])
def test_two_releases_that_generalize_different_columns_share_no_more_than_the_lesser_class(rows: int) -> None:
    """Classes by sex are large, and one by ZIP code is small: a combination has at most the rows of the small one."""
    with small_database() as connection:
        tree = make(connection, "tree", ["level_0", "level_1", "level_2"], list(ZIP))
        sexes = make(connection, "sexes", ["level_0", "level_1"], [("m", "*"), ("w", "*")])
        make(connection, "one", ["zip", "sex", "ill"], [("11", "*", "flu")] * rows + [("21", "*", "flu")] * 9)
        make(connection, "two", ["zip", "sex", "ill"], [("*", "m", "flu")] * 5 + [("*", "w", "flu")] * 7)
        linked = link(
            "one",
            "two",
            [
                LinkedAttribute("zip", "zip", "zip", (0,), (2,), tree, 2),
                LinkedAttribute("sex", "sex", "sex", (1,), (0,), sexes, 1),
            ],
            "ill",
        )
        combinations = connection.execute(complementary_release(linked, K).sql("duckdb")).fetchall()
    assert sorted(combinations) == ([("11", "m", rows), ("11", "w", rows)] if rows < K else [])
