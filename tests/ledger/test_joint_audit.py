"""The joint audit, made step by step, finds what plain Python finds; and what is too much to compare is refused."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sqlanon
from oracles import oracle_attacks as oracle
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import AuditError
from sqlanon.ledger.joint import pair_audit
from sqlanon.ledger.joint.attacks import Union, complementary_release, readable_unions
from sqlanon.ledger.joint.label_pairs import LinkedAttribute
from sqlanon.ledger.joint.pair_audit import PairAudit
from sqlanon.ledger.joint.release_links import ComparedRelease, comparable_value, prepare_comparison
from sqlanon.ledger.joint.renamed_columns import match_renamed_columns
from sqlanon.release.manifest import ReleasedColumn
from sqlanon.support.expressions import col, table
from support.databases import change
from support.lanes import examples
from support.ledger_hospital import FINE_RACE, FINE_ZIP, hospital, make_hospital, policy, publish
from support.release_pairs import built, link, make, releases

__all__ = ["hospital"]


@settings(max_examples=examples(4), deadline=None)
@given(releases(), st.booleans())
def test_joint_audit_matches_plain_python(case: dict[str, Any], ordered: bool) -> None:
    """The order in which attributes are compared does not matter; rows that are gone are found as new ones are."""
    with duckdb.connect() as connection:
        link, k = built(connection, case)
        engine = DuckDBEngine(connection)
        if ordered:
            link = prepare_comparison(engine, link, frozenset())
        with PairAudit.open(engine, lambda name: table(name, "main", "memory"), link, k) as audit:
            assert audit.count_combinations() == oracle.complementary_victims(**case)
            came, gone = audit.count_new_rows("new"), audit.in_reverse.count_new_rows("new")
            unions: tuple[Union, ...] = ("class", "region", "table") if link.multilevel_attributes else ("table",)
            new = {union: audit.count_new_rows(union) for union in unions}
            lost = {union: audit.in_reverse.count_new_rows(union) for union in unions}
            rows = audit.list_unmatched()
        label_counts = {
            union: connection.execute(readable_unions(link, k, union, rows).sql("duckdb")).fetchall()
            for union in unions
        }
        left = connection.execute("SELECT table_name FROM duckdb_tables() WHERE table_name LIKE 'joint%'").fetchall()
    expected = oracle.temporal(case["first"], case["second"], case["shared"], case["attributes"], k)
    assert came == (len(expected), sum(expected.values()))
    back = [
        oracle.Attribute(
            attribute.second, attribute.first, attribute.second_levels, attribute.first_levels, attribute.tree
        )
        for attribute in case["attributes"]
    ]
    pairs = [(j, i) for i, j in case["shared"]]
    for union in unions:
        assert new[union] == (len(label_counts[union]), sum(row[-1] for row in label_counts[union]))
        assert new[union] == oracle.new_in_unions(**case, union=union)
        assert lost[union] == oracle.new_in_unions(case["second"], case["first"], pairs, back, k, union)
    expected = oracle.temporal(case["second"], case["first"], pairs, back, k)
    assert gone == (len(expected), sum(expected.values()))
    assert not left


@pytest.mark.thorough
def test_releases_too_large_to_compare_are_refused(hospital: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same release again is safe, unchanged, and is refused if it cannot be compared."""
    publish(policy(hospital, "one", FINE_RACE))
    publish(policy(hospital, "two", FINE_RACE))
    monkeypatch.setattr(pair_audit, "MAX_MATCHING_PAIRS", 3)
    with pytest.raises(AuditError, match="more than 3 pairs of their groups can be the same rows: too many to compare"):
        publish(policy(hospital, "three", FINE_RACE))
    result, _ = publish(policy(hospital, "three", FINE_RACE), force=True)
    assert any("too many to compare" in warning for warning in result.warnings)


# --- sets

NODES = {"a": "a", "b, c": "b", "d": "d", 'e "f"': "e", "near": "ab", "far": "de", "*": "abdeN"}
"""Labels of a hierarchy, by their values: of a value each, of a category, and of all; N is NULL."""
PATHS = [
    ("a", "near", "*"),
    ("b, c", "near", "*"),
    ("d", "far", "*"),
    ('e "f"', "far", "*"),
    (None, None, "*"),
]
SETS = {
    '{a, "b, c"}': "ab",
    "{a, d}": "ad",
    '{"b, c", d, "e ""f"""}': "bde",
    '{a, "e ""f"""}': "ae",
    '{a, "b, c", d, "e ""f"""}': "abde",
}
LABELS: dict[str | None, frozenset[str]] = {label: frozenset(values) for label, values in (NODES | SETS).items()}
LABELS[None] = frozenset("N")


class SetAttribute(oracle.Attribute):
    """A quasi-identifier whose labels are sets of values."""

    def finer(self, first: Any, second: Any) -> tuple[bool, Any]:
        mine, theirs = LABELS[first], LABELS[second]
        if mine <= theirs:
            return True, first
        return bool(mine & theirs), second if theirs <= mine else f"{first} & {second}"


def with_sets(count: int) -> st.SearchStrategy[Any]:
    """The rows of two releases with labels of some attributes, and a value that both show unchanged."""
    row = st.tuples(*[st.sampled_from([*LABELS])] * count, st.sampled_from("xy"))
    return st.tuples(st.lists(row, max_size=8), st.lists(row, max_size=8), st.integers(1, 4))


def check_sets(case: tuple[list[Any], list[Any], int]) -> None:
    """Check that the joint audit of releases with sets finds the same as plain Python, and so does the query for
    people."""
    first, second, k = case
    count = len((first or second or [("", "")])[0]) - 1
    tree = oracle.Tree(PATHS)
    attributes = [SetAttribute(i, i, (0, 1, 2), (0, 1, 2), tree) for i in range(count)]
    names = [f"v{i}" for i in range(count)]
    with duckdb.connect() as connection:
        make(connection, "h", ["level_0", "level_1", "level_2"], PATHS)
        first_table, two = (
            make(connection, name, [*names, "s"], rows) for name, rows in (("one", first), ("two", second))
        )
        linked = link(
            first_table,
            two,
            [LinkedAttribute(name, name, name, (0, 1, 2), (0, 1, 2), table("h"), 2, sets=(0, 0)) for name in names],
            "s",
        )
        with PairAudit.open(DuckDBEngine(connection), lambda name: table(name, "main", "memory"), linked, k) as audit:
            victims, came, gone = (
                audit.count_combinations(),
                audit.count_new_rows("new"),
                audit.in_reverse.count_new_rows("new"),
            )
        rows_found = connection.execute(complementary_release(linked, k).sql("duckdb")).fetchall()
    pairs = [(count, count)]
    assert victims == oracle.complementary_victims(first, second, pairs, attributes, k)
    assert {row[:-1]: row[-1] for row in rows_found} == oracle.complementary(first, second, pairs, attributes, k)
    for few_rows, then, now in ((came, first, second), (gone, second, first)):
        expected = oracle.temporal(then, now, pairs, attributes, k)
        assert few_rows == (len(expected), sum(expected.values()))


@pytest.mark.thorough
@settings(max_examples=examples(60), deadline=None)
@given(st.integers(1, 3).flatmap(with_sets))
def test_set_labels_match_labels_that_share_values(case: Any) -> None:
    check_sets(case)


def with_groups(folder: Path, name: str, k: int, **search: Any) -> sqlanon.Policy:
    return sqlanon.Policy(
        source={"database": folder / "people.duckdb", "table": "p"},
        attributes={
            "job": {"role": "quasi", "hierarchy": "suppress"},
            "town": {"role": "quasi", "hierarchy": {"categories": {"north": ["a, b", "c"], "south": ["d", "e"]}}},
            "illness": {"role": "sensitive"},
        },
        privacy={"k": k},
        search={"strategy": "mondrian", "summary": "set", **search},
        release={"database": folder / f"{name}.duckdb", "table": "p"},
        catalog={"database": folder / "private.duckdb"},
    )


@pytest.mark.thorough
def test_releases_with_sets_are_compared(tmp_path: Path) -> None:
    """The same sets again are safe, also as lists; other sets of the same rows are not, and the advice fits them."""
    rows = "SELECT 'job ' || hash(i) % 12 AS job, ['a, b', 'c', 'd', 'e'][(hash(i + 1) % 5)::INTEGER + 1] AS town, "
    change(tmp_path / "people.duckdb", f"CREATE TABLE p AS {rows} i % 90 AS illness FROM range(180) AS r(i)")
    publish(with_groups(tmp_path, "one", 4))
    publish(with_groups(tmp_path, "two", 4, sets="list"))
    with pytest.raises(AuditError, match="combinations of values have fewer than 4 rows each") as refused:
        publish(with_groups(tmp_path, "three", 7))
    message = str(refused.value)
    assert message.count("together with") == 2 and message.count("You can:") == 1
    assert "after" not in message  # a release cannot be based on sets
    assert len(message.splitlines()) < 10
    publish(with_groups(tmp_path, "three", 7), force=True)
    with duckdb.connect() as connection:
        for query in refused.value.queries:
            connection.execute("DETACH DATABASE IF EXISTS earlier; DETACH DATABASE IF EXISTS new")
            connection.execute("DETACH DATABASE IF EXISTS hierarchies")
            rows_found = connection.execute(query).fetchall()
            assert rows_found and all(row[0] < 4 for row in rows_found)


@pytest.mark.thorough
def test_ranges_are_compared_where_releases_share_no_unchanged_column(tmp_path: Path) -> None:
    source = str(tmp_path / "people.duckdb")
    with duckdb.connect(source) as connection:
        connection.execute(
            "CREATE TABLE p AS SELECT [10, 11, 55, 56][i // 3 + 1] age, 'AABB'[i // 3 + 1] ward FROM range(12) t(i)"
        )

    def policy_for(strategy: str) -> sqlanon.Policy:
        return sqlanon.Policy(
            source={"database": source, "table": "p"},
            attributes={
                "age": {"role": "quasi", "hierarchy": {"intervals": [5, 10, 20]}},
                "ward": {"role": "quasi", "hierarchy": "suppress"},
            },
            privacy={"k": 4},
            search={"strategy": strategy},
            release={"database": tmp_path / f"{strategy}.duckdb"},
            catalog={"database": tmp_path / "private.duckdb"},
        )

    publish(policy_for("optimal"))
    publish(policy_for("mondrian"))
    with duckdb.connect(source) as connection:
        connection.execute("INSERT INTO p SELECT 10, 'A' FROM range(2)")
    with pytest.raises(AuditError, match=r"2 rows are new, fewer than 4 in one class \(temporal attack\)"):
        publish(policy_for("mondrian"))


SPELLED = "UPDATE patients SET problem = upper(problem)"
CALLED = "ALTER TABLE patients RENAME problem TO dx"


def policy_of_dx(place: Path) -> sqlanon.Policy:
    plain = policy(place, "two", FINE_ZIP)
    attributes = {"dx" if name == "problem" else name: attribute for name, attribute in plain.attributes.items()}
    return plain.model_copy(update={"attributes": attributes})


@pytest.mark.thorough
def test_a_column_under_another_name_is_recognized_by_its_values(hospital: Path) -> None:
    publish(policy(hospital, "one", FINE_RACE))
    with pytest.raises(AuditError) as by_name:
        publish(policy(hospital, "two", FINE_ZIP))
    change(hospital / "hospital.duckdb", CALLED)
    with pytest.raises(
        AuditError, match="its column problem has the same values as dx here; joined with it"
    ) as refused:
        publish(policy_of_dx(hospital))
    pattern = re.compile(r"\d+ combinations? of values .*complementary release\)")
    assert pattern.findall(str(refused.value)) == pattern.findall(str(by_name.value)) != []
    _, second = publish(policy_of_dx(hospital), force=True)
    attacked = sqlanon.attack(
        [hospital / "one.duckdb", second.path], policy=policy_of_dx(hospital), only=["complementary_release"]
    )
    assert attacked["complementary_release"].victims > 0
    for query in refused.value.queries:
        with duckdb.connect() as connection:
            assert connection.execute(query).fetchall()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("statements", "words"),
    [
        ([SPELLED], r"not compared: problem \(shown unchanged in both, without a value in common\)"),
        ([SPELLED, CALLED], r"not compared: problem of that release and dx of this one"),
    ],
)
def test_columns_in_another_spelling_are_named(hospital: Path, statements: list[str], words: str) -> None:
    publish(policy(hospital, "one", FINE_RACE))
    change(hospital / "hospital.duckdb", *statements)
    second = policy_of_dx(hospital) if CALLED in statements else policy(hospital, "two", FINE_ZIP)
    result, _ = publish(second)
    assert any(re.search(words, warning) for warning in result.warnings)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> ComparedRelease:
    folder = tmp_path_factory.mktemp("plain")
    make_hospital(folder)
    _, release = publish(policy(folder, "one", FINE_RACE))
    return ComparedRelease(release.path, release.manifest, table("one"))


NUMBERS = ["0", "1", "1.5", "-2", "16777217", "100000000000000006", "100000000000000007", "170000000000000000001"]
EXACT_TYPES = ["INTEGER", "BIGINT", "UBIGINT", "HUGEINT", "UHUGEINT", "DECIMAL(20,0)", "DECIMAL(6,2)", "DECIMAL(38,6)"]


@pytest.mark.cases(1)
@pytest.mark.parametrize(("first_type", "second_type"), list(itertools.combinations(EXACT_TYPES, 2)))
def test_exact_numbers_of_two_types_are_compared_exactly(first_type: str, second_type: str) -> None:
    """They meet if they are equal as fractions, and only then."""
    values = (
        comparable_value(col("a"), first_type, second_type).sql("duckdb"),
        comparable_value(col("b"), second_type, first_type).sql("duckdb"),
    )
    with duckdb.connect() as connection:
        for first, second in itertools.product(NUMBERS, NUMBERS):
            row = connection.execute(
                f"SELECT a::VARCHAR, b::VARCHAR, {values[0]} = {values[1]} "
                f"FROM (SELECT TRY_CAST('{first}' AS {first_type}) AS a, TRY_CAST('{second}' AS {second_type}) AS b)"
            ).fetchone()
            assert row is not None
            if None not in row[:2]:  # else a type does not hold it
                assert row[2] == (Fraction(row[0]) == Fraction(row[1])), row


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("100000000000000007::BIGINT", "100000000000000007::DOUBLE"),
        ("16777217::BIGINT", "16777217::FLOAT"),
        ("0.1::DOUBLE", "0.1::FLOAT"),
        ("0.1::DECIMAL(3,1)", "0.1::FLOAT"),
        ("'2026-01-01 10:00:00.000000001'::TIMESTAMP_NS", "'2026-01-01 10:00:00'::TIMESTAMP"),
    ],
)
def test_a_value_meets_its_rounded_form(first: str, second: str) -> None:
    """A reader who has both rounds the finer."""
    types = [value.split("::")[1] for value in (first, second)]
    values = [
        comparable_value(col("v"), first_type, second_type).sql("duckdb")
        for first_type, second_type in (types, types[::-1])
    ]
    with duckdb.connect() as connection:
        query = (
            f"SELECT (SELECT {values[0]} FROM (SELECT {first} AS v)) = (SELECT {values[1]} FROM (SELECT {second} AS v))"
        )
        assert connection.execute(query).fetchone() == (True,)


@pytest.mark.cases(2)
@pytest.mark.parametrize(
    ("first", "second", "pairs"),
    [
        ("i % 5 AS a", "i % 5 AS b", {"a": "b"}),
        ("i % 5 AS a", "(i % 5)::VARCHAR AS b", {}),  # another type
        ("1 AS a", "1 AS b", {}),  # one value
        ("i % 5 AS a", "i AS b", {}),  # few rows of the other have these values
        ("i % 10 = 0 AS a", "i % 2 = 0 AS b", {}),  # the same values, not as often
        ("i + 15 AS a", "i AS b", {"a": "b"}),  # some rows are suppressed
        ("i % 5 AS a, i % 3 AS c", "i % 3 AS b, i % 5 AS d", {"a": "d", "c": "b"}),
        ("i % 5 AS a, i % 3 AS c", "i % 5 AS b, i % 3 AS C", {"a": "b"}),
        ("NULL::BIGINT AS a", "i AS b", {}),
        ("100000000000000000 + i AS a", "100000000000000000::DECIMAL(38, 2) + i AS b", {"a": "b"}),
        ("(i / 10)::DECIMAL(5, 1) AS a", "(i / 10)::FLOAT AS b", {"a": "b"}),  # 0.1 is not 0.1 as DOUBLE
    ],
)
def test_renamed_columns_are_recognized_by_their_values(
    plain: ComparedRelease, first: str, second: str, pairs: dict[str, str]
) -> None:
    with duckdb.connect() as connection:
        engine = DuckDBEngine(connection)
        compared_releases = []
        for name, columns in (("one", first), ("two", second)):
            connection.execute(f"CREATE TABLE {name} AS SELECT {columns} FROM range(100) t(i)")
            described = connection.execute(f"DESCRIBE {name}").fetchall()
            released_columns = tuple(ReleasedColumn(column, type_, "insensitive") for column, type_, *_ in described)
            compared_releases.append(
                replace(plain, manifest=replace(plain.manifest, columns=released_columns), relation=table(name))
            )
        assert match_renamed_columns(engine, *compared_releases) == pairs
        assert match_renamed_columns(engine, *reversed(compared_releases)) == {
            earlier_column: column for column, earlier_column in pairs.items()
        }
