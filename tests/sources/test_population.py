"""The population table: its location, its matching columns, and messages about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.publish.stage import NOT_COMPARED
from support.lanes import some
from support.policies import make_policy

pytestmark = pytest.mark.slow

ATTRIBUTES = {"zip": "mask", "age": {"intervals": [10]}, "dx": "sensitive"}
ROWS = [("02138", 31, "a"), ("02138", 34, "b"), ("02139", 45, "a"), ("02139", 47, "c"), ("02141", 52, "b")]
PEOPLE = [*((zip_, age) for zip_, age, _ in ROWS), ("02138", 38), ("02139", 41), ("02199", 52), ("02141", 58)]


def hospital(path: Path, *, with_voters: bool = False) -> Path:
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t (zip VARCHAR, age INTEGER, dx VARCHAR)")
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", ROWS)
        if with_voters:
            voters(connection)
    return path


def voters(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("CREATE TABLE voters (ZIP VARCHAR, age BIGINT, party VARCHAR DEFAULT 'x')")
    connection.executemany("INSERT INTO voters (ZIP, age) VALUES (?, ?)", PEOPLE)


def anonymize(policy: sqlanon.Policy, directory: Path) -> sqlanon.Result:
    with sqlanon.connect() as db:
        result = db.anonymize(policy)
        result.publish(directory / "release.duckdb")
        assert db.verify(directory / "release.duckdb", policy).verified
    return result


def policy_of(source: Path, population: dict[str, Any], k: int = 3, **sections: Any) -> sqlanon.Policy:
    return sqlanon.Policy(
        source={"database": source, "table": "t", **sections.pop("source", {})},
        attributes=make_policy(ATTRIBUTES).attributes | sections.pop("attributes", {}),
        privacy=sections.pop("privacy", {"k_map": k}),
        population=population,
        **sections,
    )


def population_in(place: str, tmp_path: Path) -> dict[str, Any]:
    if place in ("table", "query"):
        return {"table": "voters"} if place == "table" else {"query": "SELECT zip, age FROM voters WHERE age > 0"}
    with duckdb.connect(str(tmp_path / "register.duckdb")) as connection:
        voters(connection)
        connection.execute(f"COPY voters TO '{tmp_path / 'voters.parquet'}'")
        connection.execute(f"COPY voters TO '{tmp_path / 'voters.csv'}'")
    return {
        "database": {"database": tmp_path / "register.duckdb", "table": "voters"},
        "parquet": {"files": [str(tmp_path / "voters.parquet")]},
        "csv": {"files": [str(tmp_path / "voters.csv")]},
    }[place]


@pytest.mark.thorough
@pytest.mark.parametrize("place", some(["table", "query", "parquet", "database", "csv"], 3))
def test_wherever_it_is_the_answer_is_the_same(place: str, tmp_path: Path) -> None:
    """The classes 0213*, 30-39 and 40-49 match three voters each, and 02141 in its fifties two."""
    source = hospital(tmp_path / "hospital.duckdb", with_voters=place in ("table", "query"))
    policy = policy_of(source, population_in(place, tmp_path), search={"suppression_limit": 0.2})
    result = anonymize(policy, tmp_path)
    assert result.generalization == {"zip": 0, "age": 1}
    assert (result.suppressed_rows, result.classes) == (1, 2)
    assert (result.null_map, result.wrong_map) == (0, None)


@pytest.mark.thorough
def test_the_source_is_a_live_connection(tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (zip VARCHAR, age INTEGER, dx VARCHAR)")
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", ROWS)
        voters(connection)
        policy = sqlanon.Policy(
            source={"table": "t"},
            attributes=make_policy(ATTRIBUTES).attributes,
            privacy={"k_map": 3},
            population={"table": "voters"},
            search={"suppression_limit": 0.2},
        )
        with sqlanon.connect(connection) as db:
            result = db.anonymize(policy)
            result.publish(tmp_path / "release.duckdb")
        assert result.generalization == {"zip": 0, "age": 1}
        left = connection.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()
        assert left == []


def test_missing_or_unfit_columns_of_a_population_are_named(tmp_path: Path) -> None:
    source = hospital(tmp_path / "hospital.duckdb", with_voters=True)
    with sqlanon.connect() as db, pytest.raises(sqlanon.SourceError, match=r"the table has no column 'zip'"):
        db.anonymize(policy_of(source, {"query": "SELECT age FROM voters"}))
    with sqlanon.connect() as db, pytest.raises(sqlanon.SourceError, match=r"population: column 'age' is VARCHAR"):
        db.anonymize(policy_of(source, {"query": "SELECT zip, 'secret' AS age FROM voters"}))
    with sqlanon.connect() as db, pytest.raises(sqlanon.SourceError) as raised:
        db.anonymize(policy_of(source, {"table": "nobody"}))
    assert "nobody" in str(raised.value)
    assert "secret" not in str(raised.value)


@pytest.mark.thorough
def test_a_number_that_would_be_rounded_is_refused(tmp_path: Path) -> None:
    source = hospital(tmp_path / "hospital.duckdb", with_voters=True)
    with sqlanon.connect() as db, pytest.raises(sqlanon.SourceError, match=r"DOUBLE .* 1 values cannot be cast"):
        db.anonymize(policy_of(source, {"query": "SELECT zip, 31.5::DOUBLE AS age FROM voters LIMIT 1"}))


@pytest.mark.thorough
def test_values_of_the_population_do_not_reach_the_release(tmp_path: Path) -> None:
    source = hospital(tmp_path / "hospital.duckdb", with_voters=True)
    anonymize(policy_of(source, {"table": "voters"}, search={"suppression_limit": 0.2}), tmp_path)
    with duckdb.connect(str(tmp_path / "release.duckdb"), read_only=True) as release:
        (text,) = release.execute("SELECT policy FROM sqlanon.manifest").fetchall()[0]
        assert release.execute("SELECT count(*) FROM t WHERE zip = '02199'").fetchall() == [(0,)]
    assert "voters" not in text
    assert "register" not in text


@pytest.mark.thorough
@pytest.mark.parametrize("top", some([False, True], 2))
def test_masked_rows_match_the_whole_population(top: bool, tmp_path: Path) -> None:
    source = hospital(tmp_path / "hospital.duckdb", with_voters=True)
    with duckdb.connect(str(source)) as connection:
        connection.execute("INSERT INTO t VALUES ('02141', 53, 'c'), ('02199', 11, 'a'), ('02199', 12, 'b')")
    limits = {"zip": {"role": "quasi", "hierarchy": {"mask": "right"}, "min_level": 5 * top}}
    policy = policy_of(
        source,
        {"table": "voters"},
        k=3,
        attributes=limits,
        search={"suppression_limit": 0.5},
        release={"database": tmp_path / "release.duckdb", "suppressed": "mask"},
    )
    result = anonymize(policy, tmp_path)
    assert result.released_rows == result.rows
    assert result.suppressed_rows > 0
    assert result.warnings == (NOT_COMPARED,)


@pytest.mark.thorough
def test_person_in_several_combinations_does_not_prune_feasible_levels(tmp_path: Path) -> None:
    """At the top two of five persons are there, which is too few; below, each class has enough: one is in both."""
    with duckdb.connect(str(tmp_path / "hospital.duckdb")) as connection:
        connection.execute("CREATE TABLE t AS FROM (VALUES (1, 'x'), (1, 'y'), (2, 'y')) v(who, place)")
        people = "(VALUES (1, 'x'), (3, 'x'), (1, 'y'), (2, 'y'), (4, 'y'), (5, 'y')) v(who, place)"
        connection.execute(f"CREATE TABLE voters AS FROM {people}")
    policy = sqlanon.Policy(
        source={"database": tmp_path / "hospital.duckdb", "table": "t", "person": "who"},
        attributes={"place": {"role": "quasi", "hierarchy": "suppress"}},
        privacy={"delta_presence": {"min": 0.5, "max": 1}},
        population={"table": "voters", "person": "who"},
    )
    with sqlanon.connect() as db:
        assert db.anonymize(policy).generalization == {"place": 0}


@pytest.mark.thorough
def test_persons_are_found_again_where_types_differ(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "hospital.duckdb")) as connection:
        connection.execute("CREATE TABLE t AS FROM (VALUES (1, 31), (2, 45)) v(who, age)")
        connection.execute("CREATE TABLE voters AS FROM (VALUES ('1', '31'), ('3', '45')) v(who, age)")
    policy = sqlanon.Policy(
        source={"database": tmp_path / "hospital.duckdb", "table": "t", "person": "who"},
        attributes={"age": {"role": "quasi", "hierarchy": {"intervals": [10]}, "max_level": 0}},
        privacy={"k_map": 1},
        population={"table": "voters", "person": "who"},
    )
    with sqlanon.connect() as db:
        result = db.anonymize(policy)
        assert (result.null_map, result.wrong_map) == (0, 1)
        result.publish(tmp_path / "release.duckdb")


@pytest.mark.thorough
@pytest.mark.parametrize("by_file", [True, False])
def test_population_only_null_is_not_a_source_leaf(by_file: bool, tmp_path: Path) -> None:
    """Two of four values have the same label, so a third is lost. With NULL, the source has five values."""
    labels = {"a": "x", "b": "x", "c": "y", "d": "y"}
    (tmp_path / "letters.csv").write_text("".join(f"{leaf};{label};*\n" for leaf, label in labels.items()))
    tree = {"file": str(tmp_path / "letters.csv")} if by_file else {"categories": {"x": ["a", "b"], "y": ["c", "d"]}}
    scores = []
    for letters_of_source, population_letters in (("abcd", "abcd"), ("abcd", "abcd_"), ("abcd_", "abcd")):
        with duckdb.connect() as connection:
            for table, letters in (("t", letters_of_source), ("voters", population_letters)):
                connection.execute(f"CREATE TABLE {table} (q VARCHAR)")
                values = [(None if letter == "_" else letter,) for letter in letters * 2]
                connection.executemany(f"INSERT INTO {table} VALUES (?)", values)
            policy = sqlanon.Policy(
                source={"table": "t"},
                attributes={"q": {"role": "quasi", "hierarchy": tree, "min_level": 1}},
                privacy={"k": 2, "k_map": 2} if "_" not in letters_of_source else {"k": 2},
                **({"population": {"table": "voters"}} if "_" not in letters_of_source else {}),
                search={"measure": "loss"},
            )
            with sqlanon.connect(connection) as db:
                scores.append(db.anonymize(policy).score)
    assert scores == pytest.approx([1 / 3, 1 / 3, 8 / 10 / 4])
