"""Requirements hold of the classes that two releases make together, and of the rows that are new or gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.attacks import attack
from sqlanon.errors import AuditError
from support.databases import change

ROLES = {"cost": "insensitive", "illness": "sensitive"}
DISTINCT = {"l_diversity": [{"attribute": "illness", "kind": "distinct", "l": 2}]}
EQUAL = {"t_closeness": [{"attribute": "illness", "t": 0.4, "distance": "equal"}]}


def load(folder: Path, rows: str) -> None:
    change(folder / "people.duckdb", f"CREATE TABLE people AS {rows}")


def policy_of(folder: Path, name: str, levels: dict[str, int], privacy: dict[str, Any], **more: str) -> sqlanon.Policy:
    """A release by ZIP code and sex, at these levels."""
    quasi = {
        column: {"role": "quasi", "hierarchy": "suppress", "min_level": level, "max_level": level}
        for column, level in levels.items()
    }
    return sqlanon.Policy(
        source={"database": folder / "people.duckdb", "table": "people", "person": False},
        attributes={**quasi, **{column: {"role": role} for column, role in {**ROLES, **more}.items()}},
        privacy={"k": 5, **privacy},
        search={"suppression_limit": 0},
        release={"database": folder / f"{name}.duckdb", "table": "people"},
        catalog={"database": folder / "catalog.duckdb"},
    )


def publish(folder: Path, *policy: Any, force: bool = False, **more: str) -> None:
    with sqlanon.connect() as db:
        db.anonymize(policy_of(folder, *policy, **more)).publish(force=force)


TWO_BY_TWO = """
    SELECT 'Z' || (i // 16) AS zip, ['m', 'w'][1 + i // 8 % 2] AS sex, {cost} AS cost,
        ['flu', 'HIV'][1 + (i // 16 + i // 8) % 2] AS illness
    FROM range(32) AS r(i)
"""
"""In each ZIP code and for each sex two illnesses; in both together one."""


@pytest.mark.parametrize("privacy", [DISTINCT, pytest.param(EQUAL, marks=pytest.mark.slow)])
def test_joined_classes_meet_the_requirements(tmp_path: Path, privacy: dict[str, Any]) -> None:
    load(tmp_path, TWO_BY_TWO.format(cost="i * 100"))
    publish(tmp_path, "one", {"zip": 0, "sex": 1}, privacy)
    message = r"joined with it, 4 classes of the two do not have .* of illness \(complementary release\)"
    with pytest.raises(AuditError, match=message) as refused:
        publish(tmp_path, "two", {"zip": 1, "sex": 0}, privacy)
    assert len(refused.value.queries) == 1


@pytest.mark.thorough
def test_releases_that_cannot_be_joined_are_published(tmp_path: Path) -> None:
    load(tmp_path, TWO_BY_TWO.format(cost="7"))
    publish(tmp_path, "one", {"zip": 0, "sex": 1}, DISTINCT)
    publish(tmp_path, "two", {"zip": 1, "sex": 0}, DISTINCT)


@pytest.mark.thorough
def test_joint_diversity_is_of_sensitive_attributes(tmp_path: Path) -> None:
    """A number unique to each person is not a shared value: the same release is safe again; others reveal illnesses."""
    load(tmp_path, TWO_BY_TWO.format(cost="['cook', 'nurse'][1 + i % 2] AS job, i * 100"))
    joint = {"l_diversity": [{**DISTINCT["l_diversity"][0], "joint": True}]}
    for name in ("one", "two"):
        publish(tmp_path, name, {"zip": 0, "sex": 1}, joint, job="sensitive")
    with pytest.raises(AuditError, match=r"8 classes of the two do not have .* of illness"):
        publish(tmp_path, "three", {"zip": 1, "sex": 0}, joint, job="sensitive")


CLASSES = """
    SELECT 'Z' || (i // 10) AS zip, 'm' AS sex, 7 AS cost, ['flu', 'HIV', 'cold'][1 + i % 3] AS illness
    FROM range(40) AS r(i)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("event", "happens"),
    [
        ("new", "INSERT INTO people SELECT 'Z1', 'm', 7, 'HIV' FROM range(6)"),
        pytest.param("gone", "DELETE FROM people WHERE zip = 'Z1' AND illness = 'HIV'", marks=pytest.mark.slow),
    ],
)
def test_new_and_gone_rows_meet_the_requirements(tmp_path: Path, event: str, happens: str) -> None:
    load(tmp_path, f"{CLASSES} UNION ALL SELECT 'Z1', 'm', 7, 'HIV' FROM range(6)")
    publish(tmp_path, "one", {"zip": 0, "sex": 1}, DISTINCT)
    change(tmp_path / "people.duckdb", happens)
    message = rf"the rows that are {event} in one class do not have distinct 2-diversity of illness \(temporal attack\)"
    with pytest.raises(AuditError, match=message):
        publish(tmp_path, "two", {"zip": 0, "sex": 1}, DISTINCT)


@pytest.mark.thorough
def test_new_rows_that_are_diverse_are_published(tmp_path: Path) -> None:
    load(tmp_path, CLASSES)
    publish(tmp_path, "one", {"zip": 0, "sex": 1}, DISTINCT)
    change(
        tmp_path / "people.duckdb",
        "INSERT INTO people SELECT 'Z1', 'm', 7, ['HIV', 'flu'][1 + i % 2] FROM range(6) r(i)",
    )
    publish(tmp_path, "two", {"zip": 0, "sex": 1}, DISTINCT)


@pytest.mark.thorough
@pytest.mark.parametrize("strategy", ["mondrian", "local"])
def test_the_whole_table_has_new_rows_that_are_diverse(tmp_path: Path, strategy: str) -> None:
    """Whoever joined in between has HIV, whatever the classes are."""
    rows = "SELECT 20 + i % 40 AS age, ['flu', 'HIV', 'cold'][1 + i * 7 // 4 % 3] AS illness FROM range(200) AS r(i)"
    load(tmp_path, rows)
    for name in ("one", "two"):
        policy = sqlanon.Policy(
            source={"database": tmp_path / "people.duckdb", "table": "people", "person": False},
            attributes={"age": {"role": "quasi", "hierarchy": {"intervals": [5]}}, "illness": {"role": "sensitive"}},
            privacy={"k": 3, **DISTINCT},
            search={"strategy": strategy, "suppression_limit": 0},
            release={"database": tmp_path / f"{name}.duckdb", "table": "people"},
            catalog={"database": tmp_path / "catalog.duckdb"},
        )
        with sqlanon.connect() as db:
            result = db.anonymize(policy)
            if name == "one":
                result.publish()
            else:
                with pytest.raises(AuditError):
                    result.publish()
        change(tmp_path / "people.duckdb", "INSERT INTO people SELECT 20 + 3 * i, 'HIV' FROM range(12) AS r(i)")


@pytest.mark.thorough
def test_attack_finds_joined_classes_that_break_a_requirement(tmp_path: Path) -> None:
    load(tmp_path, TWO_BY_TWO.format(cost="i * 100"))
    publish(tmp_path, "one", {"zip": 0, "sex": 1}, DISTINCT)
    publish(tmp_path, "two", {"zip": 1, "sex": 0}, DISTINCT, force=True)
    policy = policy_of(tmp_path, "two", {"zip": 1, "sex": 0}, DISTINCT)
    outcomes = attack([tmp_path / "one.duckdb", tmp_path / "two.duckdb"], policy, only=["complementary_release"])
    assert outcomes["complementary_release"].victims == 32


@pytest.mark.thorough
def test_attack_finds_new_rows_that_break_a_requirement(tmp_path: Path) -> None:
    load(tmp_path, CLASSES)
    publish(tmp_path, "one", {"zip": 0, "sex": 1}, DISTINCT)
    change(tmp_path / "people.duckdb", "INSERT INTO people SELECT 'Z1', 'm', 7, 'HIV' FROM range(6)")
    publish(tmp_path, "two", {"zip": 0, "sex": 1}, DISTINCT, force=True)
    outcome = attack([tmp_path / "one.duckdb", tmp_path / "two.duckdb"], only=["temporal"])["temporal"]
    assert outcome.victims == 6
    (finding,) = outcome.findings
    with duckdb.connect() as connection:
        tables = [connection.execute(statement).fetchall() for statement in duckdb.extract_statements(finding.sql)]
    assert [row for rows in tables for row in rows if "Z1" in row]


@pytest.mark.thorough
def test_the_query_of_a_refusal_lists_the_classes(tmp_path: Path) -> None:
    load(tmp_path, TWO_BY_TWO.format(cost="i * 100"))
    publish(tmp_path, "one", {"zip": 0, "sex": 1}, DISTINCT)
    with pytest.raises(AuditError) as refused:
        publish(tmp_path, "two", {"zip": 1, "sex": 0}, DISTINCT)
    with duckdb.connect(tmp_path / "two.duckdb") as connection:  # as a draft would be
        connection.execute(f"ATTACH '{tmp_path / 'people.duckdb'}' AS source")
        connection.execute("CREATE TABLE people AS SELECT '*' AS zip, sex, cost, illness FROM source.people")
    with duckdb.connect() as connection:
        for statement in duckdb.extract_statements(refused.value.queries[0]):
            result = connection.execute(statement)
        names = [column[0] for column in result.description]
        classes = {tuple(row[names.index(name)] for name in ("zip", "sex")) for row in result.fetchall()}
    assert classes == {("Z0", "m"), ("Z0", "w"), ("Z1", "m"), ("Z1", "w")}
