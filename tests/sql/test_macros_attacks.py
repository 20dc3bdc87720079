"""The macros of attacks: what the builders find, on releases that are compared as they are; in a file of the release's
version, too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sqlanon.attacks.matching import compare_positions, composition, linkage
from sqlanon.disclosure import attribute_disclosure as disclosure
from sqlanon.ledger.catalog import init_database
from sqlanon.ledger.joint.attacks import complementary_release, temporal_attack
from sqlanon.ledger.joint.label_pairs import LinkedAttribute
from sqlanon.ledger.joint.row_matching import ReleaseLink
from sqlanon.support.expressions import table
from sqlanon.support.resources import read_sql_file
from support.lanes import examples

pytestmark = pytest.mark.slow

Connection = duckdb.DuckDBPyConnection
QUASI = ["class", 'Say "hi"']  # a name of the macros' own, and one with quotes
ROWS = st.lists(
    st.tuples(st.sampled_from([None, 1, 2]), st.sampled_from(["a", None]), st.sampled_from("xyz")), max_size=9
)


@pytest.fixture(scope="module", params=["SQL file", "file"])
def db(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    with duckdb.connect() as connection:
        if request.param == "file":
            path = tmp_path_factory.mktemp("macros") / "release.duckdb"
            connection.execute(f"ATTACH '{path}' AS lib (STORAGE_VERSION 'v1.0.0')")
            connection.execute("USE lib")
            connection.execute(read_sql_file("macros_attacks.sql"))
            connection.execute("USE memory")
            connection.execute("DETACH lib")
            connection.execute(f"ATTACH '{path}' AS lib (READ_ONLY)")
        else:
            connection.execute("ATTACH ':memory:' AS lib")
            connection.execute("USE lib")
            connection.execute(read_sql_file("macros_attacks.sql"))
            connection.execute("USE memory")
        yield connection


def fill(db: Connection, **tables: list[tuple[Any, ...]]) -> None:
    for name, rows in tables.items():
        db.execute(f'CREATE OR REPLACE TABLE {name} ("class" INTEGER, "Say ""hi""" VARCHAR, value_of VARCHAR)')
        for row in rows:
            db.execute(f"INSERT INTO {name} VALUES (?, ?, ?)", list(row))


def call_macro(db: Connection, call: str) -> list[tuple[Any, ...]]:
    return db.execute(f"FROM lib.sqlanon.{call}").fetchall()


LIST = "['CLASS', 'say \"hi\"']"


@pytest.mark.thorough
@settings(max_examples=examples(100), deadline=None)
@given(first=ROWS, second=ROWS, known_values=st.integers(0, 2))
def test_macros_match_the_attack_builders(
    first: list[Any], second: list[Any], known_values: int, db: Connection
) -> None:
    check_macros(first, second, known_values, db)


def check_macros(first: list[Any], second: list[Any], known_values: int, db: Connection) -> None:
    fill(db, r=first, o=second)
    first_table, two = table("r"), table("o")

    def built(query: Any) -> Counter[Any]:
        rows = db.execute(query.sql("duckdb")).fetchall()
        return Counter(
            tuple(value if i != 0 or value is None else str(value) for i, value in enumerate(row)) for row in rows
        )

    def as_text(rows: list[Any], order: list[int]) -> Counter[Any]:
        return Counter(tuple(row[i] if i or row[i] is None else str(row[i]) for i in order) for row in rows)

    answer = call_macro(db, f"homogeneous_classes('r', {LIST}, 'value_of')")
    assert as_text(answer, [0, 1, 3, 2]) == built(disclosure.homogeneity(first_table, QUASI, "value_of"))
    answer = call_macro(db, f"background_knowledge_classes('r', {LIST}, 'value_of', known := {known_values})")
    assert as_text(answer, [0, 1, 3, 2]) == built(
        disclosure.background_knowledge(first_table, QUASI, "value_of", known_values)
    )
    answer = call_macro(db, f"skewness_classes('r', {LIST}, 'value_of') WHERE p >= 0.5 AND ratio >= 2 - 1e-9")
    expected = built(disclosure.skewness(first_table, QUASI, "value_of"))
    assert as_text(answer, [0, 1, 3, 4]) == Counter({(*row[:3], row[-1]): n for row, n in expected.items()})
    attributes = tuple(LinkedAttribute(name, name, name) for name in QUASI)
    linked = ReleaseLink(first_table, two, (), attributes)
    with_value = ReleaseLink(first_table, two, ("value_of",), attributes)
    ((none, once, few, matched, identified, _),) = db.execute(linkage(linked, 3).sql("duckdb")).fetchall()
    answer = call_macro(db, f"linkage('r', 'o', {LIST}, k := 3)")
    assert answer == [(none, once, few, len(first), matched, identified)]
    answer = call_macro(db, f"composition_classes('r', 'o', {LIST}, 'value_of')")
    expected = built(composition(with_value))
    assert (
        Counter(
            (*(str(x) if x is not None and not i else x for i, x in enumerate(row[:3])), min(row[3:])) for row in answer
        )
        == expected
    )
    answer = call_macro(db, f"complementary_classes('r', 'o', {LIST}, ['VALUE_OF'], 3)")
    assert as_text(answer, [0, 1, 2]) == built(complementary_release(with_value, 3))
    for joined, call in ((linked, ""), (with_value, ", shared := ['Value_Of']")):
        answer = call_macro(db, f"temporal_classes('r', 'o', {LIST}, k := 3{call})")
        came, went = ([row for row in answer if 0 < row[i] < 3] for i in (2, 3))
        assert as_text(came, [0, 1, 2]) == built(temporal_attack(joined, 3))
        assert as_text(went, [0, 1, 3]) == built(temporal_attack(joined.in_reverse, 3))
        assert len({*came, *went}) == len(answer)
    answer = call_macro(db, f"unsorted_matching('r', 'o', {LIST})")
    assert answer == db.execute(compare_positions(linked).sql("duckdb")).fetchall()


@pytest.mark.parametrize(
    "call",
    [
        "homogeneous_classes('r', {}, 'value_of')",
        "background_knowledge_classes('r', {}, 'value_of')",
        "skewness_classes('r', {}, 'value_of')",
        "linkage('r', 'o', {})",
        "composition_classes('r', 'o', {}, 'value_of')",
        "unsorted_matching('r', 'o', {})",
        "complementary_classes('r', 'o', {}, ['value_of'])",
        "complementary_classes('r', 'o', ['class'], {})",
        "temporal_classes('r', 'o', {})",
        "temporal_classes('r', 'o', {}, shared := ['value_of'])",
    ],
)
@pytest.mark.parametrize("names", ["['nope']", "['class', 'nope']", "['cl.*']", "[]", "NULL"])
def test_an_unknown_column_is_an_error(call: str, names: str, db: Connection) -> None:
    fill(db, r=[(1, "a", "x")], o=[(1, "a", "x")])
    with pytest.raises(duckdb.Error):
        call_macro(db, call.format(names))


def test_a_column_that_has_the_name_of_a_figure_is_refused(db: Connection) -> None:
    db.execute("CREATE OR REPLACE TABLE figures AS SELECT 1 AS value, 2 AS class_size, 3 AS rows, 4 AS s, 5 AS added")
    db.execute("CREATE OR REPLACE TABLE more AS FROM figures UNION ALL FROM figures")
    for call in (
        "homogeneous_classes('figures', ['VALUE'], 's')",
        "background_knowledge_classes('figures', ['class_size'], 's')",
        "skewness_classes('figures', ['value'], 's')",
        "composition_classes('figures', 'figures', ['rows'], 's')",
        "complementary_classes('figures', 'figures', ['Rows'], ['s'])",
        "temporal_classes('figures', 'more', ['ADDED'])",
    ):
        with pytest.raises(duckdb.Error, match="rename it"):
            call_macro(db, call)


@pytest.mark.thorough
def test_empty_list_of_tables_has_no_victims(db: Connection) -> None:
    fill(db, r=[], o=[])
    assert call_macro(db, "homogeneous_classes('r', ['class'], 'value_of')") == []
    assert call_macro(db, "complementary_classes('r', 'o', ['class'], ['value_of'])") == []
    assert call_macro(db, "temporal_classes('r', 'o', ['class'])") == []
    assert call_macro(db, "linkage('r', 'o', ['class'])") == [(0, 0, 0, 0, 0, 0)]
    assert call_macro(db, "unsorted_matching('r', 'o', ['class'])") == [(0, 0, None)]


def test_the_library_has_them(tmp_path: Path) -> None:
    init_database(tmp_path / "any.duckdb")
    with duckdb.connect(tmp_path / "any.duckdb", read_only=True) as connection:
        names = connection.execute(
            "SELECT function_name FROM duckdb_functions() WHERE schema_name = 'sqlanon'"
        ).fetchall()
    assert ("homogeneous_classes",) in names
    assert ("linkage",) in names
