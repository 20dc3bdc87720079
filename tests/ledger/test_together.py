"""A release together with earlier ones, at the border: one row fewer than k is refused, and k are published."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.errors import AuditError
from support.databases import change

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("plain_macros")]


def publish(folder: Path, name: str, k: int, release: dict[str, Any] | None = None, **source: Any) -> None:
    policy = sqlanon.Policy(
        source={"database": folder / "hospital.duckdb", "table": "p", **source},
        attributes={
            "sex": {"role": "quasi", "hierarchy": "suppress", "max_level": 0},
            "who": {"role": "identifying"},
            "cost": {"role": "insensitive"},
        },
        privacy={"k": k},
        release={"database": folder / f"{name}.duckdb", "table": "p", **(release or {})},
        catalog={"database": folder / "private.duckdb"},
    )
    with sqlanon.connect() as db:
        db.anonymize(policy).publish()


def refusal_message(folder: Path, name: str, k: int, **source: Any) -> str:
    with pytest.raises(AuditError) as error:
        publish(folder, name, k, **source)
    (failure,) = error.value.failures
    return failure


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Forty rows of twenty persons, who have two each; all rows have another cost."""
    rows = "SELECT i // 2 AS who, i % 2 AS sex, i AS cost FROM range(40) AS r(i)"
    change(tmp_path / "hospital.duckdb", f"CREATE TABLE p AS {rows}")
    return tmp_path


def come(folder: Path, *rows: tuple[int, int]) -> None:
    """Rows of men come, each a person and a cost."""
    change(
        folder / "hospital.duckdb",
        f"INSERT INTO p SELECT who, 1, cost FROM (VALUES {str(rows)[1:-1].rstrip(',')}) AS r(who, cost)",
    )


def go(folder: Path, *costs: int) -> None:
    change(folder / "hospital.duckdb", f"DELETE FROM p WHERE cost IN ({', '.join(map(str, costs))})")


@pytest.mark.thorough
def test_added_and_removed_rows_number_at_least_k(folder: Path) -> None:
    publish(folder, "one", 3)
    come(folder, (100, 100), (101, 101))
    message = refusal_message(folder, "two", 3)
    assert "2 rows are new, fewer than 3 in one class (temporal attack)" in message
    assert "gone" not in message
    come(folder, (102, 102))
    publish(folder, "two", 3)
    (folder / "one.duckdb").unlink()
    go(folder, 1, 3)
    message = refusal_message(folder, "three", 3)
    assert "2 rows are gone, fewer than 3 in one class (temporal attack)" in message
    assert "are new" not in message
    go(folder, 5)
    publish(folder, "three", 3)


@pytest.mark.thorough
def test_the_smaller_k_of_both_counts(folder: Path) -> None:
    publish(folder, "one", 2)
    come(folder, (100, 100), (101, 101))
    publish(folder, "two", 5)
    come(folder, (102, 102), (103, 103))
    publish(folder, "three", 2)
    come(folder, (104, 104))
    assert "1 row is new, fewer than 2 in one class" in refusal_message(folder, "four", 2)


@pytest.mark.thorough
def test_a_person_may_have_all_of_a_few_rows(folder: Path) -> None:
    """Somebody has three rows: of two persons, only four rows are sure to have rows of both."""
    come(folder, (100, 100), (100, 101), (100, 102))
    publish(folder, "one", 2, person="who")
    come(folder, (101, 103), (101, 104), (101, 105))
    assert "3 rows are new, fewer than 4 in one class" in refusal_message(folder, "two", 2, person="who")
    come(folder, (102, 106))
    publish(folder, "two", 2, person="who")


def wards(folder: Path, name: str, level: int, **release: Any) -> None:
    policy = sqlanon.Policy(
        source={"database": folder / "wards.duckdb", "table": "p"},
        attributes={
            "ward": {
                "role": "quasi",
                "hierarchy": {"categories": {"near": ["a", "b"], "far": ["c", "d"]}},
                "min_level": level,
                **({} if "suppressed" in release else {"max_level": level}),  # a masked row shows the top
            }
        },
        privacy={"k": 3},
        search={"suppression_limit": 0.4},
        release={"database": folder / f"{name}.duckdb", "table": "p", **release},
        catalog={"database": folder / "private.duckdb"},
    )
    with sqlanon.connect() as db:
        db.anonymize(policy).publish()


def test_masked_rows_that_another_release_shows_are_found_by_subtraction(tmp_path: Path) -> None:
    """Two of b are masked in the first release. The second has seven of a and b, and the first five of a: two of b."""
    change(tmp_path / "wards.duckdb", "CREATE TABLE p AS SELECT unnest(string_split('aaaaabbcccccdd', '')) AS ward")
    wards(tmp_path, "one", 0, suppressed="mask")
    with pytest.raises(AuditError, match="4 rows are new, or were masked before, fewer than 3 in each of 2 classes"):
        wards(tmp_path, "two", 1)


@pytest.mark.thorough
def test_base_publications_include_their_own_bases(folder: Path) -> None:
    def after(name: str) -> int:
        query = "SELECT len(after) FROM sqlanon.ledger WHERE path LIKE ?"
        with duckdb.connect(folder / "private.duckdb", read_only=True) as connection:
            return int(connection.execute(query, [f"%{name}.duckdb"]).fetchall()[0][0])

    publish(folder, "one", 3)
    publish(folder, "two", 3, release={"after": ["one"]})
    publish(folder, "three", 3, release={"after": ["two"]})
    assert [after(name) for name in ("one", "two", "three")] == [0, 1, 2]


@pytest.mark.thorough
def test_an_unreadable_release_of_a_stopped_run_prevents_publishing(folder: Path) -> None:
    (folder / "there").mkdir()
    publish(folder, "there/one", 3)
    (folder / "there").rename(folder / "elsewhere")
    publish(folder, "two", 3)  # a deleted release has no readers
    change(folder / "private.duckdb", "UPDATE sqlanon.releases SET intended_at = published_at WHERE path LIKE '%one%'")
    assert "an interrupted run may have published it, and it cannot be read" in refusal_message(folder, "three", 3)
