"""Sources are recognized by their rows, whatever their names; two tables with the same few values are different."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_databases import ROWS, create_visits, policy, publish

import sqlanon
from sqlanon.errors import AuditError
from sqlanon.ledger import source_match
from sqlanon.ledger.source_match import MIN_SHARE, estimate_shared_rows, exceeds_chance
from sqlanon.support.expressions import table
from support.files import folder_again, folder_and_copy
from support.lanes import examples, some

pytestmark = pytest.mark.usefixtures("plain_macros")


def at(place: Path, table: str = "visits", name: str = "clinic.duckdb") -> dict[str, Any]:
    return {"database": place / name, "table": table}


def query_source(place: Path, query: str) -> dict[str, Any]:
    return {"database": place / "clinic.duckdb", "query": query}


def in_place(place: Path, statement: str) -> None:
    with duckdb.connect(str(place / "clinic.duckdb")) as connection:
        connection.execute(statement)


def rename_columns(place: Path) -> dict[str, Any]:
    (place / "clinic.duckdb").rename(place / "other.duckdb")
    return at(place, name="other.duckdb")


def linked_file(place: Path) -> dict[str, Any]:
    os.link(place / "clinic.duckdb", place / "other.duckdb")
    return at(place, name="other.duckdb")


def copied_file(place: Path) -> dict[str, Any]:
    shutil.copy(place / "clinic.duckdb", place / "other.duckdb")
    return at(place, name="other.duckdb")


def renamed_table(place: Path) -> dict[str, Any]:
    in_place(place, "ALTER TABLE visits RENAME TO patients")
    return at(place, "patients")


def view(place: Path) -> dict[str, Any]:
    in_place(place, "CREATE VIEW patients AS SELECT zip, cost, age FROM visits")  # in another order
    return at(place, "patients")


def append_bytes(place: Path) -> dict[str, Any]:
    in_place(place, "CREATE TABLE more AS FROM visits UNION ALL SELECT age + 1, sex, zip, cost + 7 FROM visits")
    return at(place, "more")


def new_keys(place: Path) -> dict[str, Any]:
    query = "SELECT row_number() OVER (ORDER BY hash(age, cost)) AS cost_id, * FROM visits"
    in_place(place, f"CREATE TABLE more AS {query}")
    return at(place, "more")


DESCRIPTIONS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "query": lambda place: query_source(place, "SELECT * FROM visits"),
    "alias": lambda place: query_source(place, "SELECT age, sex, zip, cost AS cost FROM visits"),
    "subset": lambda place: query_source(place, "SELECT * FROM visits WHERE cost < 1200"),
    "files": lambda place: {"files": str(place / "clin*.csv")},
    "renamed": rename_columns,
    "linked": linked_file,
    "copied": copied_file,
    "renamed table": renamed_table,
    "view": view,
    "superset": append_bytes,
    "new keys": new_keys,
    "retyped": lambda place: query_source(
        place, "SELECT age::DOUBLE AS age, upper(sex) AS sex, zip, cost::DECIMAL(20, 5) AS cost FROM visits"
    ),
}


@pytest.fixture(scope="module")
def clinic_of_before(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("clinic")
    create_visits(folder / "clinic.duckdb")
    publish(policy(folder, "one", at(folder), "age"))
    return folder_and_copy(folder)


@pytest.fixture
def with_one(clinic_of_before: tuple[Path, Path]) -> Path:
    """The clinic, with a release of it: one."""
    return folder_again(*clinic_of_before)


@pytest.mark.thorough
@pytest.mark.parametrize("description", some(DESCRIPTIONS, 12))
def test_a_source_is_known_under_another_description(with_one: Path, description: str) -> None:
    source = DESCRIPTIONS[description](with_one)
    with pytest.raises(AuditError, match=r"the source shares about \d+% of its rows with that of this release"):
        publish(policy(with_one, "two", source, "zip"))
    assert not (with_one / "two.duckdb").exists()


@pytest.mark.thorough
def test_a_release_after_all_is_based_on_those_that_are_known_by_their_rows(with_one: Path) -> None:
    second = policy(with_one, "two", query_source(with_one, "SELECT * FROM visits"), "zip")
    assert second.release is not None
    attributes = {
        name: attribute.model_copy(update={"min_level": 0, "max_level": None})
        for name, attribute in second.attributes.items()
    }
    release = second.release.model_copy(update={"after": ("all",)})
    publish(second.model_copy(update={"attributes": attributes, "release": release}))
    with duckdb.connect(str(with_one / "catalog.duckdb"), read_only=True) as reader:
        rows = reader.execute("SELECT run_id, after FROM sqlanon.ledger ORDER BY published_at").fetchall()
    assert rows[1][1] == [rows[0][0]]


@pytest.mark.slow
def test_columns_that_were_renamed_are_known_by_their_values(with_one: Path) -> None:
    source = query_source(with_one, "SELECT age AS years, zip AS postcode, cost AS amount FROM visits")
    names = {"age": "years", "zip": "postcode", "cost": "amount"}
    with sqlanon.connect() as db:
        result = db.anonymize(policy(with_one, "two", source, "zip", names))
        result.publish(force=True)
    with duckdb.connect(str(with_one / "catalog.duckdb"), read_only=True) as reader:
        rows = reader.execute("SELECT source, same_source FROM sqlanon.ledger ORDER BY published_at").fetchall()
    assert rows[1][1] == rows[0][0] != rows[1][0]


@pytest.mark.thorough
@pytest.mark.parametrize("seed", some([2, 3], 2))
def test_another_table_of_the_same_kind_is_another_source(with_one: Path, seed: int) -> None:
    create_visits(with_one / "other.duckdb", seed)
    result = publish(policy(with_one, "two", at(with_one, name="other.duckdb"), "zip"))
    assert not [warning for warning in result.warnings if "the same people" in warning]


@pytest.mark.thorough
def test_the_people_of_a_frame_and_of_its_file_are_the_same(tmp_path: Path) -> None:
    """A file is read again for the columns that are never released: too few of the other rows are unique."""
    with duckdb.connect() as connection:
        rows = "SELECT 'Person ' || i AS name, i % 2 AS sex, i * 7 % 30 AS band FROM range(600) AS t(i)"
        frame = connection.sql(rows).to_arrow_table()
        connection.execute(f"COPY ({rows}) TO '{tmp_path / 'people.csv'}'")
    attributes = {
        "name": {"role": "identifying"},
        "band": {"role": "quasi", "hierarchy": {"intervals": [10]}},
        "sex": {"role": "sensitive"},
    }

    def policy_of(name: str, **source: Any) -> sqlanon.Policy:
        places = {"release": {"database": tmp_path / name}, "catalog": {"database": tmp_path / "catalog.duckdb"}}
        return sqlanon.Policy(source=source, attributes=attributes, privacy={"k": 2}, **places)

    with sqlanon.connect(frame) as db:
        db.anonymize(policy_of("one.duckdb")).publish()
    result = publish(policy_of("two.duckdb", files=str(tmp_path / "people.csv")))
    assert [Path(path).name for path in result.held_against] == ["one.duckdb"]
    assert not [warning for warning in result.warnings if "may be a release of the same people" in warning]


@pytest.mark.slow
def test_two_tables_with_the_same_few_values_are_two(tmp_path: Path) -> None:
    """All combinations of one are in the other: a warning says that they may be the same."""
    for name in ("one", "two"):
        with duckdb.connect(str(tmp_path / f"{name}.duckdb")) as connection:
            connection.execute(f"CREATE TABLE t AS SELECT i % 2 AS sex, i * 7 % 30 AS band FROM range({600}) t(i)")
        result = publish(
            sqlanon.Policy(
                source={"database": tmp_path / f"{name}.duckdb", "table": "t"},
                attributes={
                    "band": {"role": "quasi", "hierarchy": {"intervals": [10]}},
                    "sex": {"role": "sensitive"},
                },
                privacy={"k": 2},
                release={"database": tmp_path / f"r{name}.duckdb", "table": "t"},
                catalog={"database": tmp_path / "catalog.duckdb"},
            )
        )
    with duckdb.connect(str(tmp_path / "catalog.duckdb"), read_only=True) as reader:
        assert reader.execute("SELECT count(same_source) FROM sqlanon.ledger").fetchall() == [(0,)]
    assert [warning for warning in result.warnings if "rone.duckdb may be a release of the same people" in warning]


@pytest.mark.thorough
def test_noise_on_a_source_under_another_description_adds_up(tmp_path: Path) -> None:
    create_visits(tmp_path / "clinic.duckdb")

    def noisy(name: str, source: dict[str, Any]) -> sqlanon.Policy:
        return sqlanon.Policy(
            source={"undeclared": "drop"} | source,
            attributes={
                "age": {"role": "quasi", "hierarchy": {"intervals": [20]}},
                "cost": {"role": "quasi", "noise": {"epsilon": 1.0}},
            },
            privacy={"k": 2},
            release={"database": tmp_path / f"{name}.duckdb", "table": "visits"},
            catalog={"database": tmp_path / "catalog.duckdb"},
        )

    publish(noisy("one", at(tmp_path)))
    publish(policy(tmp_path, "one", at(tmp_path), "age"))  # takes its place: what was out is out
    with pytest.raises(AuditError, match=r"1 so far, in 1 release .* 2 in all"):
        publish(noisy("two", query_source(tmp_path, "SELECT * FROM visits")))


@pytest.mark.thorough
def test_the_ledger_keeps_hashes_of_rows(with_one: Path) -> None:
    with duckdb.connect(str(with_one / "catalog.duckdb"), read_only=True) as reader:
        hashes = reader.execute("SELECT hashes, column_names FROM sqlanon.source_samples").fetchall()
        plain = reader.execute("SELECT md5_number_lower(':f'), md5_number_lower('f')").fetchall()[0]
    assert len(hashes) == ROWS and len(hashes[0][0]) == len(hashes[0][1])
    sex = hashes[0][1].index("sex")
    assert len({row[0][sex] for row in hashes}) == 2  # equal values, equal hashes
    assert not {value for row in hashes for value in row[0]} & set(plain)  # and no hash without the secret


def draw_rows(chosen: random.Random, rows: int, values: int, skew: float) -> list[tuple[int, ...]]:
    return [(int(values * chosen.random() ** skew), int(values * chosen.random() ** skew)) for _ in range(rows)]


def estimate(first: list[tuple[int, ...]], second: list[tuple[int, ...]], chosen: random.Random) -> float:
    """The ledger's estimate in plain Python: rows sampled from one source are looked up in the other."""
    taken, counts = chosen.sample(first, min(2000, len(first))), Counter(second)
    alone = sum(counts[row] == 1 for row in taken)
    if not exceeds_chance(*(sum(counts[row] == n for row in {*taken}) for n in (0, 1, 2))):
        return 0.0
    once, twice = (sum(n == times for n in counts.values()) for times in (1, 2))
    return estimate_shared_rows(len(first), len(taken), alone, len(second), once, twice)


@settings(max_examples=examples(40), deadline=None, derandomize=True)
@given(st.integers(0, 2**32), st.sampled_from([2, 10, 30, 100, 1000]), st.floats(0.5, 4), st.floats(0.5, 4))
def test_independent_tables_have_no_rows_in_common(seed: int, values: int, skew: float, second_skew: float) -> None:
    """However many values they have, and whatever their distributions."""
    chosen = random.Random(seed)
    first, second = draw_rows(chosen, 800, values, skew), draw_rows(chosen, 1000, values, second_skew)
    assert estimate(first, second, chosen) < MIN_SHARE


@settings(max_examples=examples(40), deadline=None, derandomize=True)
@given(st.integers(0, 2**32), st.floats(0.5, 1.5), st.floats(0.5, 1), st.sampled_from([0.0, 0.5, 1.0]))
def test_rows_in_common_are_estimated(seed: int, skew: float, share_kept: float, added: float) -> None:
    """Rows are gone, and others have come."""
    chosen = random.Random(seed)
    first = draw_rows(chosen, 1000, 200, skew)
    common = chosen.sample(first, int(share_kept * len(first)))
    second = common + draw_rows(chosen, int(added * len(first)), 200, skew)
    share = len(common) / min(len(first), len(second))
    assert estimate(first, second, chosen) == pytest.approx(share, abs=0.2)


def test_a_column_of_more_values_than_half_of_the_rows_may_be_a_key() -> None:
    """A copy may have other keys: its rows are looked up by all other columns, too."""
    values = {"visit": 11, "age": 10}
    rows: Any = SimpleNamespace(columns=[*values], match_values=lambda _, place, column: (1.0, values[column]))
    pairs, value_counts = source_match._pair_columns(rows, table("sampled"), [*values])
    assert pairs == {0: "visit", 1: "age"}
    assert source_match._without_keys(pairs, value_counts, rows=20) == {1: "age"}
    assert source_match._without_keys(pairs, value_counts, rows=22) == {}  # no column is a key
