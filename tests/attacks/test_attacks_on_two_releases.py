"""Attacks that join two releases: the builders against plain Python, on random small releases."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import exp

from oracles import oracle_attacks as oracle
from oracles.oracle_attacks import Row
from sqlanon.attacks.attacker import Attacker
from sqlanon.attacks.matching import (
    chance_by_class,
    compare_positions,
    composition,
    composition_victims,
    find_unsorted_matching,
    have_same_order,
    is_by_class,
    linkage,
    linking,
    unsorted_matching,
)
from sqlanon.attacks.scripts import ScriptWriter
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.ledger.joint.attacks import complementary_release, count_complementary_victims, temporal_attack
from sqlanon.ledger.joint.label_pairs import LinkedAttribute, find_ranges, order_nodes
from sqlanon.ledger.joint.pair_audit import PairAudit
from sqlanon.ledger.joint.release_links import ComparedRelease, count_unknown_labels
from sqlanon.ledger.joint.row_matching import ReleaseLink, with_comparison_parts
from sqlanon.support.expressions import table
from support.lanes import examples
from support.release_pairs import built, link, make, releases

quick = settings(max_examples=examples(4), deadline=None)


def new_rows(connection: duckdb.DuckDBPyConnection, linked: ReleaseLink, k: int) -> list[tuple[Any, ...]]:
    """The rows that the attack `temporal` finds."""
    engine = DuckDBEngine(connection)
    with PairAudit.open(engine, lambda name: table(f"audit {name}", "main", "memory"), linked, k) as audit:
        return rows_of(connection, temporal_attack(linked, k, audit.list_unmatched()))


def rows_of(connection: duckdb.DuckDBPyConnection, query: exp.Expr) -> list[tuple[Any, ...]]:
    return connection.execute(query.sql("duckdb")).fetchall()


@pytest.mark.slow
@quick
@given(releases())
def test_complementary_release_victims_match_plain_python(case: dict[str, Any]) -> None:
    with duckdb.connect() as connection:
        link_arguments = built(connection, case)
        rows = rows_of(connection, complementary_release(*link_arguments))
        assert {row[:-1]: row[-1] for row in rows} == oracle.complementary(**case)
        assert len(rows) == len(oracle.complementary(**case))
        victims = with_comparison_parts(count_complementary_victims(*link_arguments), link_arguments[0], "numbers")
        assert rows_of(connection, victims) == [oracle.complementary_victims(**case)]


@quick
@given(releases())
def test_temporal_victims_match_plain_python(case: dict[str, Any]) -> None:
    with duckdb.connect() as connection:
        found_rows = new_rows(connection, *built(connection, case))
        turned = {"then": case["first"], "now": case["second"], **{n: case[n] for n in ("shared", "attributes", "k")}}
        assert {row[:-1]: row[-1] for row in found_rows} == oracle.temporal(**turned)


# --- Sweeney's figures 4 and 5

PT = [
    ("black", "9/20/1965", "male", "02141", "short of breath"),
    ("black", "2/14/1965", "male", "02141", "chest pain"),
    ("black", "10/23/1965", "female", "02138", "painful eye"),
    ("black", "8/24/1965", "female", "02138", "wheezing"),
    ("black", "11/7/1964", "female", "02138", "obesity"),
    ("black", "12/1/1964", "female", "02138", "chest pain"),
    ("white", "10/23/1964", "male", "02138", "short of breath"),
    ("white", "3/15/1965", "female", "02139", "hypertension"),
    ("white", "8/13/1964", "male", "02139", "obesity"),
    ("white", "5/5/1964", "male", "02139", "fever"),
    ("white", "2/13/1967", "male", "02138", "vomiting"),
    ("white", "3/21/1967", "male", "02138", "back pain"),
]
GT1_QUASI = [
    ("black", "1965", "male", "02141"),
    ("black", "1965", "male", "02141"),
    ("person", "1965", "female", "0213*"),
    ("person", "1965", "female", "0213*"),
    ("black", "1964", "female", "02138"),
    ("black", "1964", "female", "02138"),
    ("white", "1964", "male", "0213*"),
    ("person", "1965", "female", "0213*"),
    ("white", "1964", "male", "0213*"),
    ("white", "1964", "male", "0213*"),
    ("white", "1967", "male", "02138"),
    ("white", "1967", "male", "02138"),
]
GT3_QUASI = [
    *[("black", "1965", "male", "02141")] * 2,
    *[("black", "1965", "female", "02138")] * 2,
    *[("black", "1964", "female", "02138")] * 2,
    ("white", "1960-69", "male", "02138"),
    *[("white", "1960-69", "human", "02139")] * 3,
    *[("white", "1960-69", "male", "02138")] * 2,
]
PROBLEMS = [row[-1] for row in PT]
GT1 = [(*quasi, problem) for quasi, problem in zip(GT1_QUASI, PROBLEMS, strict=True)]
GT3 = [(*quasi, problem) for quasi, problem in zip(GT3_QUASI, PROBLEMS, strict=True)]
QUASI = ["Race", "BirthDate", "Gender", "ZIP"]
LATER = [("headache", "9/7/1965"), ("rash", "11/4/1965")]
TREES = {
    "Race": [("black", "person"), ("white", "person")],
    "BirthDate": [(row[1], row[1][-4:], "1960-69") for row in PT] + [(day, "1965", "1960-69") for _, day in LATER],
    "Gender": [("male", "human"), ("female", "human")],
    "ZIP": [(z, z[:-1] + "*", z[:-2] + "**") for z in ("02138", "02139", "02141")],
}


def sweeney(connection: duckdb.DuckDBPyConnection) -> list[LinkedAttribute]:
    """The quasi-identifiers of releases that are recoded by hand: labels of all levels."""
    attributes = []
    for name, paths in TREES.items():
        height = len(paths[0]) - 1
        tree = make(connection, f"tree {name}", [f"level_{i}" for i in range(height + 1)], list(paths))
        every = tuple(range(height + 1))
        attributes.append(LinkedAttribute(name, name, name, every, every, tree, height))
    return attributes


@pytest.fixture
def db() -> Any:
    with duckdb.connect() as connection:
        for name, rows in {"gt1": GT1, "gt3": GT3}.items():
            make(connection, name, [*QUASI, "Problem"], rows)
        yield connection


def test_both_of_sweeneys_releases_are_2_anonymous() -> None:
    for release in (GT1_QUASI, GT3_QUASI):
        assert min(release.count(row) for row in release) == 2


@pytest.mark.slow
def test_linked_on_the_problem_they_are_not(db: duckdb.DuckDBPyConnection) -> None:
    """Figure 5: two of the linked tuples are alone."""
    query = complementary_release(link("gt1", "gt3", sweeney(db), "Problem"), 2)
    assert sorted(rows_of(db, query)) == [
        ("white", "1964", "male", "02138", 1),
        ("white", "1965", "female", "02139", 1),
    ]


@pytest.mark.thorough
def test_release_based_on_earlier_one_has_no_victims(db: duckdb.DuckDBPyConnection) -> None:
    """Sweeney's remedy: no value is finer than the earlier release's."""
    based = [
        ("person" if race != "black" or year == "1965" else race, "1960-69", *values) for race, year, *values in GT1
    ]
    make(db, "based", [*QUASI, "Problem"], based)
    query = complementary_release(link("gt1", "based", sweeney(db), "Problem"), 2)
    assert rows_of(db, query) == []


@pytest.mark.thorough
def test_example_7_added_rows_leave_the_link(db: duckdb.DuckDBPyConnection) -> None:
    """Two tuples are added to GT3, which is 2-anonymous; linked with GT1 it gives the same two away."""
    added = [*GT3, *(("black", "1965", "male", "02139", problem) for problem, _ in LATER)]
    make(db, "later", [*QUASI, "Problem"], added)
    attributes = sweeney(db)
    query = complementary_release(link("gt1", "later", attributes, "Problem"), 2)
    assert sorted(rows_of(db, query))[0] == ("white", "1964", "male", "02138", 1)
    assert len(rows_of(db, query)) == 2
    # The new rows themselves are two in one class: no fewer than k.
    assert new_rows(db, link("gt3", "later", attributes, "Problem"), 2) == []
    assert new_rows(db, link("gt3", "later", attributes, "Problem"), 3) == [("black", "1965", "male", "02139", 2)]


@pytest.mark.thorough
def test_the_remedy_of_example_7_links_no_rows(db: duckdb.DuckDBPyConnection) -> None:
    """Based on GT1: its tuples, and the two that were added."""
    make(db, "later", [*QUASI, "Problem"], [*GT1, *(("black", "1965", "male", "02139", p) for p, _ in LATER)])
    attributes = sweeney(db)
    assert rows_of(db, complementary_release(link("gt1", "later", attributes, "Problem"), 2)) == []
    assert new_rows(db, link("gt1", "later", attributes, "Problem"), 2) == []


@pytest.mark.thorough
def test_one_row_that_is_added_to_a_class_is_found(db: duckdb.DuckDBPyConnection) -> None:
    make(db, "later", [*QUASI, "Problem"], [*GT1, ("white", "1967", "male", "02138", "rash")])
    attributes = sweeney(db)
    assert new_rows(db, link("gt1", "later", attributes, "Problem"), 2) == [("white", "1967", "male", "02138", 1)]
    gone = new_rows(db, link("gt1", "later", attributes, "Problem").in_reverse, 2)
    assert gone == []


# --- ranges

NODES = {**{str(i): {i} for i in range(6)}, "low": {0, 1, 2}, "high": {3, 4, 5}, "*": set(range(6))}
RANGES = {f"{a}-{b}": set(range(a, b + 1)) for a in range(6) for b in range(a + 1, 6)}
RANGES |= {"[1, 4)": {1, 2, 3}, "<3": {0, 1, 2}, "≥2": {2, 3, 4, 5}, "4-19": {4, 5}}  # ends that are not values
RANGES |= {"02": {2}, "004": {4}, "01-03": {1, 2, 3}, "002-5": {2, 3, 4, 5}}  # padded, so that they sort
LABELS = st.sampled_from([*NODES, *RANGES])


def in_common(first: str, second: str) -> str | None:
    """Values that two labels share, or None if they share none."""
    values_of = NODES | RANGES
    if values_of[first] <= values_of[second]:
        return first
    if values_of[second] <= values_of[first]:
        return second
    return f"{first} & {second}" if values_of[first] & values_of[second] else None


RANGED = (*[st.lists(st.tuples(LABELS, st.sampled_from("xy")), max_size=7)] * 2, st.integers(1, 3))


@pytest.mark.thorough
@quick
@given(*RANGED)
def test_ranges_match_labels_that_share_values(first: list[Row], second: list[Row], k: int) -> None:
    of_parts = oracle.most_rows(
        ((in_common(label, two), x), (label, x), (two, y), n, m)
        for (label, x), n in Counter(first).items()
        for (two, y), m in Counter(second).items()
        if x == y and in_common(label, two) is not None
    )
    rows = Counter[str]()
    for (label, _), n in of_parts.items():
        rows[label] += n
    with duckdb.connect() as connection:
        tree = [(str(i), "low" if i < 3 else "high", "*") for i in range(6)]
        make(connection, "h", ["level_0", "level_1", "level_2"], tree)
        first_table, two = (
            make(connection, name, ["v", "s"], some) for name, some in (("one", first), ("two", second))
        )
        value = LinkedAttribute("v", "v", "v", (0, 1, 2), (0, 1, 2), table("h"), 2, ranges=True)
        victims = dict(rows_of(connection, complementary_release(link(first_table, two, [value], "s"), k)))
        ranges = len({label for label, _ in first} & RANGES.keys())
        strange = count_unknown_labels(first_table, "v", table("h"), 2)
        assert rows_of(connection, strange) == [(ranges, 0)]
        connection.execute("INSERT INTO one VALUES ('{1, 2}', 'x'), (NULL, 'x'), ('7-9', 'x')")
        assert rows_of(connection, strange) == [(ranges, 2)]
    assert victims == {label: n for label, n in rows.items() if n < k}


VALUES_OF_RANGES: dict[str, tuple[list[str], dict[str, list[int]]]] = {
    "INTEGER": (
        ["-3", "3", "20", "84", "85", "104"],
        {"≥85": [4, 5], "<20": [0, 1], "-3 to 3": [0, 1], "020-084": [2, 3]},
    ),
    "DECIMAL(5, 2)": (["2.50", "50.00", "75.25", "99.00"], {"[050, 075.25)": [1], "<50": [0], "≥75.25": [2, 3]}),
    "DATE": (
        ["1979-12-31", "1980-02-29", "1981-01-01", "1999-07-08"],
        {
            "≥1981-01-01": [2, 3],
            "<1981-01-01": [0, 1],
            "1980-01-01 to 1981-12-31": [1, 2],
            "[1980-02-29, 1981-01-01)": [1],
        },
    ),
    "TIMESTAMP": (
        ["1979-12-31 23:59:59", "1980-02-29 00:00:00", "1980-02-29 12:30:00", "1981-01-01 00:00:00"],
        {"≥1980-02-29": [1, 2, 3], "<1980-02-29": [0], "1980-01-01 to 1980-12-31": [1, 2]},
    ),
    "TIME": (
        ["00:30:00", "08:00:00", "08:59:59.5", "09:00:00", "23:00:00"],
        {"[08:00:00, 09:00:00)": [1, 2], "<08:00:00": [0], "≥09:00:00": [3, 4], "00:00:00 to 08:00:00": [0, 1]},
    ),
}


@pytest.mark.thorough
@pytest.mark.parametrize("type_", VALUES_OF_RANGES)
def test_ranges_of_each_type_hold_the_values_between_their_ends(type_: str) -> None:
    values, labels = VALUES_OF_RANGES[type_]
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE h (level_0 {type_}, level_1 VARCHAR)")
        connection.executemany("INSERT INTO h VALUES (?, '*')", [[value] for value in values])
        connection.execute("CREATE TABLE labels AS SELECT unnest($1::VARCHAR[]) AS label", [[*labels, "*", "no range"]])
        nodes = f"CREATE TABLE nodes AS {order_nodes(table('h'), [0, 1]).sql('duckdb')}"
        connection.execute(nodes)
        query = find_ranges(exp.select("label").from_("labels"), table("nodes"), table("h"))
        assert {(label, low, high) for label, low, high in connection.execute(query.sql("duckdb")).fetchall()} == {
            (label, held[0] + 1, held[-1] + 1) for label, held in labels.items()
        }


# --- composition, positions, linking


@quick
@given(releases(shared=1))
def test_composition_victims_match_plain_python(case: dict[str, Any]) -> None:
    with duckdb.connect() as connection:
        linked, _ = built(connection, case)
        rows = rows_of(connection, composition(linked))
        arguments = case["first"], case["second"], case["shared"], case["attributes"]
        assert Counter(rows) == oracle.composition(*arguments)
        victims = rows_of(connection, composition_victims(linked))
        assert victims == [(len(rows), oracle.composition_victims(*arguments))]


@pytest.mark.slow
@quick
@given(releases())
def test_position_victims_match_plain_python(case: dict[str, Any]) -> None:
    with duckdb.connect() as connection:
        linked, k = built(connection, case)
        few, (places_, agreeing, chance) = oracle.by_position(**case)
        assert {row[:-1]: row[-1] for row in rows_of(connection, unsorted_matching(linked, k))} == few
        ((position, found_agreeing, found_chance),) = rows_of(connection, compare_positions(linked))
        assert (position, found_agreeing) == (places_, agreeing)
        assert found_chance == (None if chance is None else pytest.approx(chance))


@quick
@given(releases(shared=1), st.booleans())
def test_chance_by_class_matches_plain_python(case: dict[str, Any], in_order: bool) -> None:
    with duckdb.connect() as connection:
        linked, _ = built(connection, case)
        first, second = ([name for _, name in linked.side(is_first)[1]] for is_first in (True, False))
        ((chance,),) = rows_of(connection, chance_by_class(linked, first, None if in_order else second))
        del case["k"]
        expected = oracle.chance_by_class(**case, in_order=in_order)
        assert chance == (None if expected is None else pytest.approx(expected))


@quick
@given(st.lists(st.tuples(st.sampled_from([None, "x", "y"]), st.sampled_from(["1", "2"])), max_size=8))
def test_classes_follow_one_another_if_each_is_one_run(rows: list[Row]) -> None:
    runs = [key for key, _ in groupby(rows)]
    with duckdb.connect() as connection:
        ((by_class,),) = rows_of(connection, is_by_class(make(connection, "one", ["n", "b"], rows), ["n", "b"]))
    assert by_class == (len(runs) == len(set(runs)))


@pytest.mark.slow
@quick
@given(releases(shared=0, only_shared=True))
def test_linked_rows_match_plain_python(case: dict[str, Any]) -> None:
    with duckdb.connect() as connection:
        linked, k = built(connection, case)
        victims, figures = oracle.linking(case["first"], case["second"], case["attributes"], k)
        rows = rows_of(connection, linking(linked, k))
        assert {row[:-2]: row[-2:] for row in rows} == victims
        assert rows_of(connection, linkage(linked, k)) == [figures]


# --- Sweeney's figure 3 (example 5)

PLACES = [(race, zip_) for race in ("Asian", "Black", "White") for zip_ in ("02138", "02139", "02141", "02142")]


def figure_3(connection: duckdb.DuckDBPyConnection, order: list[int]) -> list[LinkedAttribute]:
    make(connection, "one", ["Race", "ZIP"], [("Person", zip_) for _, zip_ in PLACES])
    make(connection, "two", ["Race", "ZIP"], [(PLACES[i][0], PLACES[i][1][:4] + "*") for i in order])
    make(connection, "races", ["level_0", "level_1"], [(race, "Person") for race in ("Asian", "Black", "White")])
    make(connection, "zips", ["level_0", "level_1"], [(z, z[:4] + "*") for z in ("02138", "02139", "02141", "02142")])
    return [
        LinkedAttribute("Race", "Race", "Race", (1,), (0,), table("races"), 1),
        LinkedAttribute("ZIP", "ZIP", "ZIP", (0,), (1,), table("zips"), 3),
    ]


@pytest.mark.slow
def test_example_5_in_the_order_of_the_source_the_table_comes_back() -> None:
    with duckdb.connect() as connection:
        attributes = figure_3(connection, list(range(12)))
        rows = rows_of(connection, unsorted_matching(link("one", "two", attributes), 2))
        assert sorted(row[:2] for row in rows) == PLACES
        ((all_, agreeing, chance),) = rows_of(connection, compare_positions(link("one", "two", attributes)))
        assert (all_, agreeing, chance) == (12, 12, 0.5)
        assert have_same_order(all_, agreeing, chance)


def test_rows_at_the_same_position_match_by_labels_of_several_levels() -> None:
    with duckdb.connect() as connection:
        tree = make(connection, "zips", ["level_0", "level_1"], [("11", "1*"), ("12", "1*")])
        make(connection, "one", ["ZIP"], [("11",), ("1*",), ("12",)])
        make(connection, "two", ["ZIP"], [("1*",), ("12",), ("11",)])
        compared = link("one", "two", [LinkedAttribute("ZIP", "ZIP", "ZIP", (0, 1), (0, 1), tree, 1)])
        assert sorted(rows_of(connection, unsorted_matching(compared, 2))) == [("11", 1), ("12", 1)]
        ((positions, agreeing, _),) = rows_of(connection, compare_positions(compared))
        assert (positions, agreeing) == (3, 2)


def test_the_smaller_k_of_two_releases_counts() -> None:
    """Two rows have the value a: for k = 2 they are enough, for k = 3 too few."""
    columns = [SimpleNamespace(name="v", type="VARCHAR", role="quasi")]
    policy = {"attributes": {"v": {}}}
    subjects = []
    with duckdb.connect() as connection:
        for name, k in (("one", 2), ("two", 3)):
            manifest: Any = SimpleNamespace(published_at=name, columns=columns, quasi_identifiers=["v"], noise=None)
            manifest.policy = policy | {"privacy": {"k": k}, "search": {}}
            manifest.levels = lambda _: {"v": 0}
            subjects.append(ComparedRelease(Path(name), manifest, make(connection, name, ["v"], [*"abcdabcdbcd"])))
        findings, _ = find_unsorted_matching(Attacker(DuckDBEngine(connection), subjects, ScriptWriter()))
    assert [(finding.figures["ordered"], finding.figures["k"], finding.victims) for finding in findings] == [
        (True, 2, 0)
    ]


@pytest.mark.slow
def test_rows_in_class_order_have_no_position_victims() -> None:
    """The same release twice, by class, and inside each class in the same order or in another one."""
    classes = [("young", problem) for problem in "abcdefgh"] + [("old", problem) for problem in "ijklmnop"]
    columns = [SimpleNamespace(name=name, type="VARCHAR", role=role) for name, role in (("age", "quasi"), ("ill", ""))]
    manifest: Any = SimpleNamespace(published_at="", columns=columns, quasi_identifiers=["age"], noise=None)
    manifest.policy = {"attributes": {"age": {}}, "privacy": {"k": 2}, "search": {}}
    manifest.levels = lambda _: {"age": 0}
    ordered = []
    for second in (classes, [*classes[7::-1], *classes[:7:-1]]):
        with duckdb.connect() as connection:
            subjects = []
            for name, rows in (("one", classes), ("two", second)):
                relation = make(connection, name, ["age", "ill"], rows)
                subjects.append(ComparedRelease(Path(name), manifest, relation))
            ((finding,), _) = find_unsorted_matching(Attacker(DuckDBEngine(connection), subjects, ScriptWriter()))
        assert finding.figures["chance"] == 1 / 8
        ordered.append(finding.figures["ordered"])
    assert ordered == [True, False]


@pytest.mark.slow
def test_a_random_order_has_no_more_agreeing_rows_than_chance() -> None:
    """In a random order, rows that agree are as many as chance gives."""
    order = list(range(12))
    random.Random(5).shuffle(order)
    with duckdb.connect() as connection:
        attributes = figure_3(connection, order)
        ((all_, agreeing, chance),) = rows_of(connection, compare_positions(link("one", "two", attributes)))
        assert not have_same_order(all_, agreeing, chance)


# --- composition, as of Ganta, Kasiviswanathan and Smith (figure 1): two hospitals, one patient


@pytest.mark.slow
def test_two_classes_that_share_one_value_reveal_it() -> None:
    """Alice is 28, of 13012, and in both hospitals."""
    with duckdb.connect() as connection:
        ages = [("28", "<30", "*"), ("35", "30-39", "*")]
        make(connection, "ages", ["level_0", "level_1", "level_2"], ages)
        make(connection, "one", ["age", "problem"], [("<30", p) for p in ("AIDS", "heart disease", "viral infection")])
        make(connection, "two", ["age", "problem"], [("*", p) for p in ("AIDS", "tuberculosis", "flu", "cancer")])
        make(connection, "three", ["age", "problem"], [("*", p) for p in ("AIDS", "heart disease", "flu", "cancer")])
        age = LinkedAttribute("age", "age", "age", (1,), (2,), table("ages"), 2)
        assert rows_of(connection, composition(link("one", "two", [age], "problem"))) == [("<30", "AIDS", 1)]
        assert rows_of(connection, composition(link("one", "three", [age], "problem"))) == []


# --- linking: a voter list, and hospital data


@pytest.mark.slow
def test_a_voter_whom_one_row_fits_is_found_and_after_generalization_is_not() -> None:
    with duckdb.connect() as connection:
        make(connection, "zips", ["level_0", "level_1"], [("02138", "*"), ("02139", "*")])
        make(connection, "patients", ["zip", "problem"], [("02138", "flu"), ("02139", "flu"), ("02139", "gout")])
        make(connection, "release", ["zip", "problem"], [("*", "flu"), ("*", "flu"), ("*", "gout")])
        make(connection, "voters", ["zip", "name"], [("02138", "William"), ("02139", "Ann"), ("02141", "Eve")])
        exact = LinkedAttribute("zip", "zip", "zip", (0,), (0,), table("zips"), 1)
        linked_attribute = LinkedAttribute("zip", "zip", "zip", (1,), (0,), table("zips"), 1)
        assert rows_of(connection, linking(link("patients", "voters", [exact]), 2)) == [("02138", 1, 1)]
        assert rows_of(connection, linkage(link("patients", "voters", [exact]), 2)) == [(1, 1, 1, 3, 1, 1)]
        assert rows_of(connection, linking(link("release", "voters", [linked_attribute]), 2)) == []
        # The top is everybody's: Eve, too, fits all rows.
        assert rows_of(connection, linkage(link("release", "voters", [linked_attribute]), 2)) == [(0, 0, 0, 3, 0, 0)]


@pytest.mark.slow
def test_a_person_who_matches_a_masked_row_too_is_not_identified() -> None:
    """Each of the two rows matches exactly one person."""
    with duckdb.connect() as connection:
        tree = make(connection, "h", ["level_0", "level_1"], [("a", "*"), ("b", "*")])
        masked = make(connection, "masked", ["v"], [("a",), ("*",)])
        alone = make(connection, "alone", ["v"], [("a",), ("b",)])
        people = make(connection, "people", ["v"], [("a",)])
        value = LinkedAttribute("v", "v", "v", (0, 1), (0,), tree, 1)
        assert rows_of(connection, linkage(link(masked, people, [value]), 2)) == [(0, 0, 0, 2, 0, 0)]
        assert rows_of(connection, linkage(link(alone, people, [value]), 2)) == [(0, 1, 1, 1, 1, 1)]


@pytest.mark.slow
def test_a_label_that_meets_no_other_is_not_that_of_null() -> None:
    """A regression: without a pair, it met the rows of NULL."""
    with duckdb.connect() as connection:
        tree = make(connection, "h", ["level_0", "level_1"], [("0", "*"), ("1", "*"), (None, "*")])
        then, now = (make(connection, name, ["v"], rows) for name, rows in {"a": [(None,)], "b": [("0",)]}.items())
        value = LinkedAttribute("v", "v", "v", (0,), (0, 1), tree, 1)
        assert new_rows(connection, link(then, now, [value]), 2) == [("0", 1)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("test", "cases"),
    [
        (test_complementary_release_victims_match_plain_python, [releases()]),
        (test_temporal_victims_match_plain_python, [releases()]),
        (test_ranges_match_labels_that_share_values, RANGED),
        (test_composition_victims_match_plain_python, [releases(shared=1)]),
        (test_position_victims_match_plain_python, [releases()]),
        (test_linked_rows_match_plain_python, [releases(shared=0, only_shared=True)]),
    ],
)
def test_properties_hold_on_many_tables(test: Any, cases: Sequence[st.SearchStrategy[Any]]) -> None:
    settings(quick, max_examples=examples(40))(given(*cases)(test.hypothesis.inner_test))()
