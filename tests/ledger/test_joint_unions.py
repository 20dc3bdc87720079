"""One person joins, leaves or changes, and the policy is published again: counts of unions of classes show it."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.attacks import attack
from sqlanon.errors import AuditError
from sqlanon.ledger.joint.release_links import ComparedRelease
from sqlanon.support.expressions import table
from support.databases import change, run_script

ILLNESSES = ["flu", "asthma", "HIV", "cancer"]
CHANGES = {
    "joins": "INSERT INTO people VALUES (9999, 33, 'm', 'HIV')",
    "leaves": "DELETE FROM people WHERE id = 7",
    "changes": "UPDATE people SET illness = if(illness = 'flu', 'HIV', 'flu') WHERE id = 7",
}
"""What becomes of one person."""


def load(folder: Path, seed: int, rows: int, alone: int = 12) -> None:
    """People of 20 to 59 years, and some who are so old that each is alone in a class."""
    draw = random.Random(seed)
    people = [(i, draw.randrange(20, 60), draw.choice("mf"), draw.choice(ILLNESSES)) for i in range(rows)]
    people += [(rows + i, 80 + 3 * i, draw.choice("mf"), draw.choice(ILLNESSES)) for i in range(alone)]
    change(folder / "people.duckdb", "CREATE TABLE people (id INTEGER, age INTEGER, sex TEXT, illness TEXT)")
    with duckdb.connect(folder / "people.duckdb") as connection:
        connection.executemany("INSERT INTO people VALUES (?, ?, ?, ?)", people)


def policy(folder: Path, name: str, search: dict[str, Any], **release: Any) -> sqlanon.Policy:
    return sqlanon.Policy(
        source={"database": folder / "people.duckdb", "table": "people", "person": False},
        attributes={
            "id": {"role": "identifying"},
            "age": {"role": "quasi", "hierarchy": {"intervals": [10, 20, 40]}},
            "sex": {"role": "quasi", "hierarchy": "suppress"},
            "illness": {"role": "sensitive"},
        },
        privacy={"k": 5, "l_diversity": [{"attribute": "illness", "kind": "distinct", "l": 2}]},
        search={"suppression_limit": 0.1, **search},
        release={"database": folder / f"{name}.duckdb", "table": "people", **release},
        catalog={"database": folder / "catalog.duckdb"},
    )


def publish(wanted: sqlanon.Policy) -> None:
    with sqlanon.connect() as db:
        db.anonymize(wanted).publish()


MASKED = {"suppressed": "mask"}
FEW = r"1 row is (new|gone), fewer than 5 in one class \(temporal attack\)"


@pytest.mark.thorough
@pytest.mark.parametrize(
    "change_name", ["joins", *(pytest.param(change_name, marks=pytest.mark.slow) for change_name in CHANGES)]
)
def test_masked_rows_do_not_hide_a_row_that_joins_leaves_or_changes(tmp_path: Path, change_name: str) -> None:
    """A masked row could be of any class, but forms a separate class."""
    load(tmp_path, 0, 200)
    publish(policy(tmp_path, "one", {}, **MASKED))
    change(tmp_path / "people.duckdb", CHANGES[change_name])
    with pytest.raises(AuditError, match=FEW):
        publish(policy(tmp_path, "two", {}, **MASKED))


@pytest.mark.thorough
def test_all_queries_of_a_refusal_list_rows_beside_masked_ones(tmp_path: Path) -> None:
    load(tmp_path, 0, 200)
    publish(policy(tmp_path, "one", {}, **MASKED))
    change(tmp_path / "people.duckdb", CHANGES["joins"])
    wanted = policy(tmp_path, "two", {}, **MASKED)
    with pytest.raises(AuditError, match=r"new, or were masked before") as refused:
        publish(wanted)
    with sqlanon.connect() as db:
        db.anonymize(wanted).publish(draft=True)
    assert all(run_script(query) for query in refused.value.queries)


@pytest.mark.thorough
@pytest.mark.parametrize(("search", "release"), [({}, MASKED), ({"strategy": "mondrian"}, {})])
def test_attack_finds_victims_in_refused_unions(
    tmp_path: Path, search: dict[str, Any], release: dict[str, Any]
) -> None:
    load(tmp_path, 1, 200)
    publish(policy(tmp_path, "one", search, **release))
    change(tmp_path / "people.duckdb", CHANGES["joins"])
    wanted = policy(tmp_path, "two", search, **release)
    with sqlanon.connect() as db:
        db.anonymize(wanted).publish(force=True)
    outcome = attack([tmp_path / "one.duckdb", tmp_path / "two.duckdb"], wanted, only=["temporal"])["temporal"]
    assert 0 < outcome.victims < 5
    (finding,) = outcome.findings
    with duckdb.connect() as connection:
        tables = [connection.execute(statement).fetchall() for statement in duckdb.extract_statements(finding.sql)]
    assert any(tables)


@pytest.mark.slow
def test_masked_rows_do_not_hide_a_new_row_between_versions(tmp_path: Path) -> None:
    load(tmp_path, 2, 200)
    publish(policy(tmp_path, "one", {}, **MASKED, keep=2))
    change(tmp_path / "people.duckdb", CHANGES["joins"])
    with pytest.raises(AuditError, match="1 row is new"):
        publish(policy(tmp_path, "one", {}, **MASKED, keep=2))


@pytest.mark.thorough
@pytest.mark.parametrize("strategy", ["mondrian", "local", "k-similar", "subtree"])
@pytest.mark.parametrize("change_name", CHANGES)
def test_overlapping_classes_do_not_hide_a_row_that_joins_leaves_or_changes(
    tmp_path: Path, strategy: str, change_name: str
) -> None:
    """Whatever classes are made of them: the whole table has one row more, or fewer, of a diagnosis."""
    for seed in range(2):
        folder = tmp_path / str(seed)
        folder.mkdir()
        load(folder, seed, 300, alone=0)
        publish(policy(folder, "one", {"strategy": strategy}))
        change(folder / "people.duckdb", CHANGES[change_name])
        with pytest.raises(AuditError, match="temporal attack"):
            publish(policy(folder, "two", {"strategy": strategy}))


def test_null_values_are_not_masked_rows() -> None:
    """The label of a NULL is NULL below the top, where masked rows have the top label."""
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE r AS FROM (VALUES ('*', NULL), ('*', 'F'), ('*', '*')) AS v(zip, sex)")
        manifest: Any = SimpleNamespace(
            quasi_identifiers=["zip", "sex"], suppressed_rows=1, policy={"suppressed": "mask"}, columns=[], noise=None
        )
        release = ComparedRelease(Path("r.duckdb"), manifest, table("r"))
        rows = release.without_masked_rows({}).relation.sql("duckdb")
        assert sorted(connection.execute(f"SELECT sex FROM {rows}").fetchall(), key=str) == [("F",), (None,)]
