"""Rows of linked tables belong to persons by their keys; keys that do not identify rows are refused."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import sqlanon
from sqlanon.errors import HierarchyError, LinkedSourceError, SourceError
from sqlanon.policy.linked import LinkedPolicy
from support.linked_databases import KEY, ORDER_LINES, PERSONS, QUASI, anonymize_rows, persons_and_rows


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ("INSERT INTO v VALUES (7, 'y')", "table 'v': 1 rows name no row of 'p'"),
        ("INSERT INTO v VALUES (NULL, 'y')", "table 'v': 1 rows name no row of 'p'"),
        ("INSERT INTO p VALUES (1, 'y')", r"table 'p': person = \['id'\] does not identify its rows: 1 keys"),
        ("INSERT INTO p VALUES (NULL, 'y')", "and 1 rows have no key"),
    ],
)
def test_broken_links_are_refused_with_their_table(tables: str, message: str) -> None:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE p AS SELECT i AS id, 'x' AS q FROM range(4) AS r(i)")
    connection.execute("CREATE TABLE v AS SELECT id AS pid, 'y' AS w FROM p")
    connection.execute(tables)
    with sqlanon.connect(connection) as db, pytest.raises(SourceError, match=message):
        db.anonymize(LinkedPolicy(**persons_and_rows()))


@pytest.mark.thorough
def test_orphans_may_be_suppressed() -> None:
    rows = "SELECT i AS pid, i % 2 AS w FROM range(14) AS r(i)"
    figures = anonymize_rows(persons_and_rows(rows={"orphans": "suppress"}), PERSONS, rows).to_dict()["tables"]["v"]
    assert (figures["rows"], figures["released_rows"], figures["suppressed_rows"]) == (14, 12, 2)


@pytest.mark.slow
def test_a_reference_of_another_type_than_the_key_is_refused() -> None:
    """The reference 1 names the persons '1' and '01'."""
    persons = "SELECT unnest(['1', '01', '3', '4']) AS id, 'a' AS q"
    with pytest.raises(SourceError, match="the reference 'pid' is INTEGER, and the key 'id' of 'p' is VARCHAR"):
        anonymize_rows(persons_and_rows(), persons, "SELECT unnest([1, 98]) AS pid, 'rare' AS w")


@pytest.mark.slow
def test_the_problems_of_all_tables_are_reported_at_once() -> None:
    """Each table has another problem; the notes name rows of a table whose key is wrong, so they are not counted."""
    tree = persons_and_rows(rows={"key": ["vid"], "attributes": {"vid": KEY, "pid": KEY, "w": QUASI}})
    one_key = {"references": {"pid": "p"}, "attributes": {"pid": KEY, "x": QUASI}}
    tree["table"] += [
        {"name": "orphans", **one_key},
        {"name": "texts", **one_key},
        {"name": "missing", **one_key},
        {"name": "columns", **one_key, "attributes": {"pid": KEY, "x": QUASI, "y": QUASI}},
        {"name": "notes", "references": {"vid": "v"}, "attributes": {"vid": KEY, "x": QUASI}},
    ]
    connection = duckdb.connect()
    for name, query in {
        "p": PERSONS,
        "v": "SELECT 1 AS vid, i AS pid, i AS w FROM range(3) AS r(i)",
        "orphans": "SELECT i AS pid, i AS x FROM range(15) AS r(i)",
        "texts": "SELECT '1' AS pid, 1 AS x",
        "columns": "SELECT 1 AS pid, 1 AS x, 1 AS z",
        "notes": "SELECT 77 AS vid, 1 AS x",
    }.items():
        connection.execute(f"CREATE TABLE {name} AS {query}")
    with pytest.raises(LinkedSourceError, match="5 problems in the tables") as error:
        sqlanon.connect(connection).anonymize(LinkedPolicy(**tree))
    problems = [(problem.place, problem.message) for problem in error.value.problems]
    assert [place for place, _ in problems] == [
        f"table {name!r}" for name in ("v", "orphans", "texts", "missing", "columns")
    ]
    for (_, message), words in zip(
        problems,
        (
            "key = ['vid'] does not identify its rows: 1 keys belong to several rows",
            "3 rows name no row of 'p'",
            "the reference 'pid' is VARCHAR, and the key 'id' of 'p' is BIGINT",
            "missing",
            'under [table.attributes], or set undeclared = "drop" under [[table]]',
        ),
        strict=True,
    ):
        assert words in message
    assert "attributes without a column in the source: 'y'" in problems[-1][1]


@pytest.mark.thorough
def test_children_of_a_table_whose_key_is_its_reference_keep_their_rows(tmp_path: Path) -> None:
    """Row n of the child belongs to row n of the middle table, which belongs to person n: all have the value n % 4."""
    connection = duckdb.connect()
    for name, query in (
        ("p", "SELECT i AS id, i % 4 AS q FROM range(20) AS r(i)"),
        ("v", "SELECT i AS pid, i % 4 AS w FROM range(20) AS r(i)"),
        ("l", "SELECT i AS a, i % 4 AS x FROM range(20) AS r(i)"),
    ):
        connection.execute(f"CREATE TABLE {name} AS {query}")
    tree = persons_and_rows(rows={"key": ["pid"]})
    tree["table"].append({"name": "l", "references": {"a": "v"}, "attributes": {"a": KEY, "x": QUASI}})
    release = sqlanon.connect(connection).anonymize(LinkedPolicy(**tree)).publish(tmp_path / "release.duckdb")
    assert release.verify().verified
    with duckdb.connect(str(release.path), read_only=True) as released:
        rows = released.execute("SELECT q, w, x FROM p JOIN v ON id = pid JOIN l ON pid = a").fetchall()
    assert len(rows) == 20
    assert all(q == w == x for q, w, x in rows)


@pytest.mark.thorough
def test_a_key_that_has_the_reference_as_a_part_gets_a_number_for_the_rest(tmp_path: Path) -> None:
    """Lines of orders: order and number of the line."""
    rows = "SELECT i // 2 AS pid, i % 2 AS no, i % 2 AS w FROM range(24) AS r(i)"
    release = anonymize_rows(persons_and_rows(rows=ORDER_LINES), PERSONS, rows).publish(tmp_path / "release.duckdb")
    assert release.verify().verified
    with duckdb.connect(str(release.path), read_only=True) as released:
        lines = released.execute("SELECT count(*), count(DISTINCT no) FROM v JOIN p ON id = pid").fetchall()
    assert lines == [(24, 24)]


@pytest.mark.thorough
def test_whole_numbers_of_different_sizes_link_tables() -> None:
    rows = "SELECT (i % 12)::SMALLINT AS pid, i % 2 AS w FROM range(24) AS r(i)"
    assert anonymize_rows(persons_and_rows(), PERSONS, rows).persons == 12


@pytest.mark.thorough
@pytest.mark.parametrize("type_", ["DATE[]", "STRUCT(d DATE)", "MAP(DATE, INTEGER)"])
def test_dates_within_other_values_are_refused_beside_moved_ones(type_: str) -> None:
    moved = {"role": "quasi", "hierarchy": {"dates": ["year"], "shift": 30}}
    tree = persons_and_rows(rows={"attributes": {"pid": KEY, "w": moved, "s": {"role": "sensitive"}}})
    rows = f"SELECT i AS pid, DATE '2024-01-01' AS w, NULL::{type_} AS s FROM range(12) AS r(i)"
    with pytest.raises(HierarchyError, match=r"table\[1\].attributes.s: .* may have dates, which are not moved"):
        anonymize_rows(tree, PERSONS, rows)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["release.duckdb", "release"])
def test_a_table_without_rows_is_released(name: str, tmp_path: Path) -> None:
    dates = {"role": "quasi", "hierarchy": {"dates": ["month", "year"]}}
    tree = persons_and_rows(rows={"attributes": {"pid": KEY, "w": dates}})
    result = anonymize_rows(tree, PERSONS, "SELECT i AS pid, DATE '2024-01-01' AS w FROM range(0) AS r(i)")
    release = result.publish(tmp_path / name)
    assert release.verify().verified
    assert [claims.released_rows for claims in release.manifest.tables] == [12, 0]
