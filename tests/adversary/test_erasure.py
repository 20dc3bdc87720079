"""Rows that have left a source excuse no release but the one that was published, byte by byte."""

from __future__ import annotations

import random
import shutil
from itertools import product
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.release.source_change import SOURCE_CHECK
from support.databases import change, fetch, insert
from support.files import folder_again, folder_and_copy
from support.verification import failed_checks

pytestmark = pytest.mark.slow

CREATE = """
    CREATE TABLE visits AS
    SELECT i AS id, 'p' || (i % 60) AS pid, 20 + (i % 60) % 20 AS age, 'illness ' || i % 4 AS illness
    FROM range(180) AS r(i)
"""
WITHDRAW = "DELETE FROM visits WHERE pid = 'p1'"


def policy(folder: Path, **release: Any) -> sqlanon.Policy:
    return sqlanon.Policy(
        source={"database": folder / "h.duckdb", "table": "visits", "key": ["id"], "person": "pid"},
        attributes={
            "age": {"role": "quasi", "hierarchy": {"intervals": [5, 10, 20]}},
            "illness": {"role": "sensitive"},
        },
        privacy={"k": 3},
        release={"database": folder / "r.duckdb", "table": "visits", **release},
        catalog={"database": folder / "c.duckdb"},
    )


@pytest.fixture(scope="module")
def published_before(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A source, its release, and another release of the same policy that the ledger does not have: one value is
    another."""
    folder = tmp_path_factory.mktemp("visits")
    change(folder / "h.duckdb", CREATE)
    with sqlanon.connect() as db:
        db.anonymize(policy(folder)).publish()
    shutil.copytree(folder, aside := folder.with_name("aside"))
    change(folder / "h.duckdb", "UPDATE visits SET illness = 'forged' WHERE id = 100")
    (folder / "c.duckdb").unlink()
    with sqlanon.connect() as db:
        db.anonymize(policy(folder)).publish()
    shutil.move(folder / "r.duckdb", folder / "forged.duckdb")
    for name in ("h.duckdb", "r.duckdb", "c.duckdb"):
        shutil.copy(aside / name, folder / name)
    return folder_and_copy(folder)


@pytest.fixture
def visits(published_before: tuple[Path, Path]) -> Path:
    return folder_again(*published_before)


def verify(folder: Path, release: str) -> Any:
    with sqlanon.connect() as db:
        return db.verify(folder / release, policy(folder))


@pytest.mark.thorough
@pytest.mark.parametrize("place", ["forged.duckdb", "r.duckdb"])
def test_a_forged_release_beside_deleted_rows_stays_red(visits: Path, place: str) -> None:
    change(visits / "h.duckdb", WITHDRAW)
    if place == "r.duckdb":
        shutil.copy(visits / "forged.duckdb", visits / place)
    verification = verify(visits, place)
    assert verification.source_change is None
    assert "against the source: recoded source" in failed_checks(verification)
    assert SOURCE_CHECK not in failed_checks(verification)
    assert ("against the ledger: sha256" in failed_checks(verification)) == (place == "r.duckdb")


@pytest.mark.thorough
def test_one_byte_more_is_not_the_release_that_was_published(visits: Path) -> None:
    """The rows are those of the ledger, and the file is not."""
    change(visits / "h.duckdb", WITHDRAW)
    with (visits / "r.duckdb").open("ab") as file:
        file.write(b"\0" * 262_144)
    shutil.move(visits / "r.duckdb", visits / "longer.duckdb")
    verification = verify(visits, "longer.duckdb")
    assert verification.source_change is None
    assert "against the source: recoded source" in failed_checks(verification)


@pytest.mark.thorough
def test_deleted_rows_beside_the_published_release_are_named(visits: Path) -> None:
    change(visits / "h.duckdb", WITHDRAW)
    verification = verify(visits, "r.duckdb")
    assert failed_checks(verification) == {SOURCE_CHECK}
    assert verification.source_change.withdrawn_persons == 1


# --- What docs/how-to/erasure.md says of what cannot be withdrawn, and of what stays


LONG = (
    """
        CREATE TABLE v AS
        SELECT i AS id, 'p' || i AS pid, (10000 + i)::VARCHAR AS zip, 'i' || i % 4 AS illness FROM range(60) AS r(i)
    """,
    "INSERT INTO v VALUES (100, 'long', '100001234', 'i1')",
)
"""60 texts of five characters, and a longer one."""


def masked_policy(
    folder: Path, mask: str, key: bool = True, k: int = 3, t_closeness: Any = (), **more: Any
) -> sqlanon.Policy:
    return sqlanon.Policy(
        source={"database": folder / "h.duckdb", "table": "v", "person": "pid", "undeclared": "drop"}
        | ({"key": ["id"]} if key else {}),
        attributes={"zip": {"role": "quasi", "hierarchy": {"mask": mask}, **more}, "illness": {"role": "sensitive"}},
        privacy={"k": k, "t_closeness": t_closeness},
        search={"suppression_limit": 0},
        release={"database": folder / "r.duckdb", "table": "v"},
        catalog={"database": folder / "c.duckdb"},
    )


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("mask", "key"),
    [("right", True), pytest.param("right", False, marks=pytest.mark.slow), ("left", True)],
)
def test_the_person_with_the_longest_text_under_a_mask_cannot_be_withdrawn(
    tmp_path: Path, mask: str, key: bool
) -> None:
    change(tmp_path / "h.duckdb", *LONG)
    with sqlanon.connect() as db:
        db.anonymize(masked_policy(tmp_path, mask, key)).publish()
    change(tmp_path / "h.duckdb", "DELETE FROM v WHERE pid = 'long'")
    with sqlanon.connect() as db:
        verification = db.verify(tmp_path / "r.duckdb", masked_policy(tmp_path, mask, key))
        assert failed_checks(verification) == {SOURCE_CHECK}
        assert verification.source_change.withdrawn_persons == 1
        assert verification.source_change.relabelled == ("zip",)
        for verb in (db.withdraw, db.extend) if key else (db.withdraw,):
            with pytest.raises(sqlanon.SourceError, match=r"attributes\.zip: 60 values have another label"):
                verb(masked_policy(tmp_path, mask, key))


@pytest.mark.thorough
def test_the_longest_text_is_withdrawn_where_all_texts_are_fully_masked(tmp_path: Path) -> None:
    """The top of a mask is * for every text, however long; a ``min_level`` above it binds at the top."""
    policy = masked_policy(tmp_path, "right", min_level=9)
    change(tmp_path / "h.duckdb", *LONG)
    with sqlanon.connect() as db:
        db.anonymize(policy).publish()
    change(tmp_path / "h.duckdb", "DELETE FROM v WHERE pid = 'long'")
    with sqlanon.connect() as db:
        withdrawal = db.withdraw(policy)
        withdrawal.publish(force=True)
        verified = db.verify(tmp_path / "r.duckdb", policy)
    assert fetch(tmp_path / "r.duckdb", "SELECT zip, count(*) FROM v GROUP BY zip") == [("*", 60)]
    assert any("min_level is 9" in message for message in withdrawal.warnings)
    assert verified.verified, verified.failures


@pytest.mark.thorough
def test_a_fully_masked_column_stays_so_where_all_rows_are_published_again(tmp_path: Path) -> None:
    """The manifest shows its level as 1 of 1, although the mask has no such level."""
    change(tmp_path / "h.duckdb", LONG[0])
    policy = masked_policy(
        tmp_path, "right", min_level=5, t_closeness=[{"attribute": "illness", "distance": "equal", "t": 1}]
    )
    with sqlanon.connect() as db:
        db.anonymize(policy).publish()
        assert fetch(tmp_path / "r.duckdb", "SELECT DISTINCT zip FROM v") == [("*",)]
    change(tmp_path / "h.duckdb", "DELETE FROM v WHERE pid = 'p7'")
    with sqlanon.connect() as db:
        withdrawal = db.withdraw(policy)
        withdrawal.publish(force=True)
    assert not withdrawal.only_released_rows
    assert withdrawal.same_generalization
    assert fetch(tmp_path / "r.duckdb", "SELECT DISTINCT zip FROM v") == [("*",)]


def test_a_min_level_above_a_mask_releases_no_character(tmp_path: Path) -> None:
    change(tmp_path / "h.duckdb", LONG[0])
    with sqlanon.connect() as db:
        result = db.anonymize(masked_policy(tmp_path, "left", min_level=6))
    assert result.generalization == {"zip": 5}
    assert any("attributes.zip.min_level is 6" in message for message in result.warnings)


@pytest.mark.thorough
def test_withdrawn_values_leave_the_bytes_of_a_catalog_that_is_copied(tmp_path: Path) -> None:
    """A refused withdrawal counts as a run, too."""
    create = """
        CREATE TABLE v AS
        SELECT i AS id, 'p' || i AS pid, (10000 + i % 10)::VARCHAR AS zip, 'i' || i % 4 AS illness
        FROM range(60) AS r(i)
    """
    add = "INSERT INTO v SELECT 100 + i, 'q' || i, (98760 + i)::VARCHAR, 'i1' FROM range(5) AS r(i)"
    change(tmp_path / "h.duckdb", create, add)
    catalog, fresh = tmp_path / "c.duckdb", tmp_path / "fresh.duckdb"
    wanted = masked_policy(tmp_path, "right")
    with sqlanon.connect() as db:
        db.anonymize(wanted).publish()
    change(tmp_path / "h.duckdb", "DELETE FROM v WHERE pid = 'q3'")
    with sqlanon.connect() as db, pytest.raises(sqlanon.AuditError):
        db.withdraw(wanted).publish()
    assert fetch(catalog, "SELECT count(*) FROM sqlanon.runs") == [(2,)]
    with sqlanon.connect() as db:
        db.withdraw(wanted).publish(force=True)
    assert b"98763" in catalog.read_bytes()
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{catalog}' AS old (READ_ONLY)")
        connection.execute(f"ATTACH '{fresh}' AS fresh")
        connection.execute("COPY FROM DATABASE old TO fresh")
    assert b"98763" not in fresh.read_bytes()
    assert b"98762" in fresh.read_bytes()
    fresh.replace(catalog)
    with sqlanon.connect() as db:
        assert db.verify(tmp_path / "r.duckdb", wanted).verified


# --- A reader who knows the person of each row, and has both versions

ATTRIBUTES = {
    "id": {"role": "identifying"},
    "age": {"role": "quasi", "hierarchy": {"intervals": [5, 10, 20]}},
    "sex": {"role": "quasi", "hierarchy": "suppress"},
    "mark": {"role": "insensitive"},
    "illness": {"role": "sensitive"},
}
"""``mark`` numbers the rows, so that the reader knows whose each is."""


def policy_of_known(folder: Path, key: bool, strategy: str) -> sqlanon.Policy:
    return sqlanon.Policy(
        source={"database": folder / "h.duckdb", "table": "v", "person": "pid"} | ({"key": ["id"]} if key else {}),
        attributes=ATTRIBUTES,
        privacy={"k": 3, "dependencies": "warn"},
        search={"suppression_limit": 0.4, "strategy": strategy},
        release={"database": folder / "r.duckdb", "table": "v"},
        catalog={"database": folder / "c.duckdb"},
    )


def known_rows(folder: Path) -> dict[int, tuple[Any, ...]]:
    return {row[2]: row for row in fetch(folder / "r.duckdb", "SELECT age, sex, mark, illness FROM v")}


@pytest.mark.parametrize(
    ("seed", "key", "strategy"),
    [
        (1, True, "optimal"),
        *(
            pytest.param(seed, key, strategy, marks=pytest.mark.slow)
            for seed, key, strategy in product(range(2, 5), (True, False), ("optimal", "samarati", "mondrian"))
        ),
    ],
)
def test_a_withdrawn_person_has_no_row_and_classes_have_persons_enough(
    tmp_path: Path, seed: int, key: bool, strategy: str
) -> None:
    dice = random.Random(seed)
    rows = [
        (i, f"p{dice.randint(0, 39)}", dice.randint(20, 39), dice.choice("mf"), f"illness {dice.randint(0, 3)}", i)
        for i in range(120)
    ]
    change(tmp_path / "h.duckdb", "CREATE TABLE v (id INT, pid TEXT, age INT, sex TEXT, illness TEXT, mark INT)")
    with duckdb.connect(tmp_path / "h.duckdb") as connection:
        insert(connection, "v", rows)
    policy = policy_of_known(tmp_path, key, strategy)
    with sqlanon.connect() as db:
        db.anonymize(policy).publish()
    before, person = known_rows(tmp_path), {row[0]: row[1] for row in rows}
    withdrawn = set(dice.sample(sorted(set(person.values())), 3))
    deleted = set(dice.sample(range(120), 5))  # of persons who keep others, most of them
    names = ", ".join(f"'{name}'" for name in withdrawn)
    change(
        tmp_path / "h.duckdb",
        f"DELETE FROM v WHERE pid IN ({names}) OR id IN ({', '.join(map(str, deleted))})",
        "INSERT INTO v SELECT 1000 + i, 'new' || i, 25, 'm', 'illness 1', 1000 + i FROM range(5) AS t(i)",
    )
    left = {row[0] for row in fetch(tmp_path / "h.duckdb", "SELECT id FROM v")}
    gone = {person[mark] for mark in before} - {person[mark] for mark in left if mark in person}
    with sqlanon.connect() as db:
        withdrawal = db.withdraw(policy)
        withdrawal.publish(force=True)
        verified = db.verify(tmp_path / "r.duckdb", policy)
    assert verified.verified, verified.failures
    assert withdrawal.source_change.withdrawn_persons == len(gone)
    after = known_rows(tmp_path)
    assert set(after) <= left
    assert withdrawal.only_released_rows == (strategy != "mondrian")
    person |= {1000 + i: f"new{i}" for i in range(5)}
    classes: dict[Any, set[str]] = {}
    for mark, (age, sex, *_) in after.items():
        classes.setdefault((age, sex), set()).add(person[mark])
    assert all(len(persons) >= 3 for persons in classes.values())
    if withdrawal.only_released_rows:
        assert set(after) <= set(before)
    if withdrawal.only_released_rows and withdrawal.same_generalization:
        assert all(after[mark] == before[mark] for mark in after)
        # The rows that are gone in addition to those that left the source are all of classes that were too small
        # without them.
        suppressed = set(before) - set(after) - (set(before) - left)
        assert {before[mark][:2] for mark in suppressed}.isdisjoint(classes)
        assert withdrawal.withdrawn_rows.rows == len(before) - len(after)


@pytest.mark.thorough
def test_withdrawal_removes_persons_from_the_catalog(tmp_path: Path) -> None:
    """Neither values nor hashes of the person stay in its tables."""
    change(tmp_path / "h.duckdb", CREATE.replace("20 + (i % 60) % 20", "if(i % 60 IN (1, 21, 41), 77, 20 + i % 20)"))
    with sqlanon.connect() as db:
        db.anonymize(policy(tmp_path)).publish()
    hashes = {row[0] for row in fetch(tmp_path / "c.duckdb", "SELECT person FROM sqlanon.released_people")}
    before = values_in_catalog(tmp_path / "c.duckdb")
    assert {"77", *map(str, hashes)} <= before
    change(tmp_path / "h.duckdb", "DELETE FROM visits WHERE pid IN ('p1', 'p21', 'p41')")
    with sqlanon.connect() as db:
        db.withdraw(policy(tmp_path)).publish()
    left = {row[0] for row in fetch(tmp_path / "c.duckdb", "SELECT person FROM sqlanon.released_people")}
    assert left < hashes
    assert len(hashes - left) == 3
    assert not {"77", *map(str, hashes - left)} & values_in_catalog(tmp_path / "c.duckdb")


def values_in_catalog(path: Path) -> set[str]:
    """All values in its tables, members of lists too; but for the runs: times and scores, which are of no person."""
    tables = fetch(path, "SELECT table_name FROM duckdb_tables() WHERE schema_name = 'sqlanon'")
    names = [name for (name,) in tables if name != "runs"]
    cells = [value for name in names for row in fetch(path, f'SELECT * FROM sqlanon."{name}"') for value in row]
    return {str(value) for cell in cells for value in (cell if isinstance(cell, list) else [cell])}
