"""`extend` counts persons: each class, and what a reader of two versions sees as new in it, has rows of k persons."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from oracles.oracle_persons import persons_by_class
from sqlanon.errors import ReleaseError
from support.lanes import draw_tables

pytestmark = pytest.mark.slow

K = 3
Visit = tuple[int, "str | None", int, str, str]


def policy(folder: Path, **privacy: Any) -> sqlanon.Policy:
    return sqlanon.Policy(
        source={"database": folder / "h.duckdb", "table": "visits", "key": ["id"], "person": "pid"},
        attributes={
            "age": {"role": "quasi", "hierarchy": {"intervals": [5, 10]}},
            "sex": {"role": "quasi", "hierarchy": "suppress"},
            "mark": {"role": "insensitive"},
            "ill": {"role": "sensitive"},
        },
        privacy={"k": K, **privacy},
        search={"suppression_limit": 0.3},
        release={"database": folder / "r.duckdb", "table": "visits"},
        catalog={"database": folder / "c.duckdb"},
    )


def insert(folder: Path, rows: list[Any]) -> None:
    with duckdb.connect(str(folder / "h.duckdb")) as connection:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS visits (id INTEGER, pid TEXT, age INTEGER, sex TEXT, ill TEXT, mark INTEGER)"
        )
        connection.executemany("INSERT INTO visits VALUES (?, ?, ?, ?, ?, ?)", [(*row, row[0]) for row in rows])


def visits(dice: random.Random, count: int, first: int) -> list[Visit]:
    """Visits of 12 people, who may come again, at another age; some have no person."""
    rows: list[Visit] = []
    for i in range(count):
        person = None if dice.random() < 0.1 else f"p{dice.randint(0, 11)}"
        rows.append((first + i, person, dice.randint(10, 29), dice.choice("mf"), dice.choice("abc")))
    return rows


def released_rows(folder: Path) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(folder / "r.duckdb"), read_only=True) as connection:
        return connection.execute("SELECT age, sex, mark FROM visits").fetchall()


def check_persons(rows: list[tuple[Any, ...]], persons: dict[int, Any]) -> None:
    """Check that each class of rows of a release has k persons or more: ``mark`` is the row of the source."""
    people = [(age, sex, persons[mark]) for age, sex, mark in rows]
    assert all(len(members) >= K for members in persons_by_class(people, (0, 1), 2).values())


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.thorough)])
def test_new_rows_of_a_class_are_of_k_persons_and_others_wait(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    every = visits(dice, 60, 0)
    insert(tmp_path, every)
    with sqlanon.connect() as db:
        result = db.anonymize(policy(tmp_path))
        result.publish()
    levels = {name: level or 0 for name, level in result.generalization.items()}
    before = released_rows(tmp_path)
    for number in (1, 2):
        new = visits(dice, 15, 1000 * number)
        insert(tmp_path, new)
        every += new
        persons = {row[0]: row[1] for row in every}
        with sqlanon.connect() as db:
            extension = db.extend(policy(tmp_path))
            extension.publish()
            verified = db.verify(tmp_path / "r.duckdb", policy(tmp_path))
        assert verified.verified, verified.failures
        after = released_rows(tmp_path)
        check_persons(after, persons)
        marks = {mark for _, _, mark in before}
        added = [row for row in after if row[2] not in marks]
        check_persons(added, persons)
        # Against the obvious way: of the rows that are not released, the classes of k persons are added.
        parts: dict[Any, list[Visit]] = defaultdict(list)
        for row in every:
            if row[0] not in marks:
                age = row[2] // (1, 5, 10)[levels["age"]] if levels["age"] < 3 else "*"
                parts[age, row[3] if levels["sex"] == 0 else "*"].append(row)
        good = [part for part in parts.values() if len({row[1] for row in part}) >= K]
        assert len(added) == extension.added_rows == sum(map(len, good))
        released_marks = {mark for _, _, mark in after}
        waiting = {row[1] for row in every if row[0] not in released_marks}
        of_all, of_release = {row[1] for row in every}, {persons[mark] for mark in released_marks}
        figures = (extension.persons.persons, extension.persons.suppressed, extension.persons.partly_released)
        assert figures == (len(of_all), len(waiting), len(waiting & of_release))
        before = after


@pytest.mark.thorough
def test_a_release_whose_persons_are_not_known_any_more_is_not_extended(tmp_path: Path) -> None:
    """A person who left the source: whose rows the release has in a class cannot be counted with new ones."""
    insert(tmp_path, visits(random.Random(1), 60, 0))
    with sqlanon.connect() as db:
        db.anonymize(policy(tmp_path)).publish()
    mark = released_rows(tmp_path)[0][2]
    with duckdb.connect(str(tmp_path / "h.duckdb")) as connection:
        connection.execute("DELETE FROM visits WHERE mark = ?", [mark])
    insert(tmp_path, visits(random.Random(2), 20, 1000))
    with (
        sqlanon.connect() as db,
        pytest.raises(ReleaseError, match="1 of its rows were deleted or changed in the source") as error,
    ):
        db.extend(policy(tmp_path))
    assert "run `sqlanon withdraw POLICY.toml` first" in str(error.value)


def test_new_rows_that_would_tilt_a_class_are_not_published(tmp_path: Path) -> None:
    """Old and new rows may each be close to the table, and a person who is in both counts once in their class."""
    requested_policy = policy(tmp_path, l_diversity=[{"attribute": "ill", "kind": "entropy", "l": 2.0}])
    dice = random.Random(5)
    every = visits(dice, 90, 0)
    insert(tmp_path, every)
    with sqlanon.connect() as db:
        db.anonymize(requested_policy).publish()
    for number in range(1, 1 + draw_tables(1, usual=5)):
        new = visits(dice, 20, 1000 * number)
        insert(tmp_path, new)
        with sqlanon.connect() as db:
            extension = db.extend(requested_policy)
            try:
                extension.publish()
            except sqlanon.AuditError:
                return
            verified = db.verify(tmp_path / "r.duckdb", requested_policy)
        assert verified.verified, verified.failures
