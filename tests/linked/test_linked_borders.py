"""Tables, keys and manifests of linked tables that only one check refuses."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.errors import HierarchyError, LinkedSourceError, PolicyError, SourceError
from sqlanon.linked.anonymize import LinkedResult
from sqlanon.linked.manifest import LinkedManifest
from sqlanon.linked.release import LinkedRelease
from sqlanon.linked.targets.base import verify_tables
from sqlanon.linked.targets.file import FileLocation
from sqlanon.linked.verification import find_contradictions
from sqlanon.policy.linked import LinkedPolicy

KEY, QUASI = {"role": "key"}, {"role": "quasi", "hierarchy": "suppress"}


def policy(
    persons: dict[str, Any] | None = None, rows: dict[str, Any] | None = None, **sections: Any
) -> dict[str, Any]:
    """A policy of persons and their rows; ``persons`` and ``rows`` replace keys of their tables."""
    return {
        "table": [
            {"name": "p", "person": "id", "attributes": {"id": KEY, "q": QUASI}, **(persons or {})},
            {"name": "v", "references": {"pid": "p"}, "attributes": {"pid": KEY, "w": QUASI}, **(rows or {})},
        ],
        "privacy": {"k": 2, "known": 1},
        **sections,
    }


def anonymize(tree: dict[str, Any], persons: str, rows: str) -> LinkedResult:
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE p AS {persons}")
    connection.execute(f"CREATE TABLE v AS {rows}")
    return sqlanon.connect(connection).anonymize(LinkedPolicy(**tree))


PERSONS = "SELECT i AS id, i % 3 AS q FROM range(12) AS r(i)"
ROWS = "SELECT i % 12 AS pid, i % 2 AS w FROM range(24) AS r(i)"


@pytest.mark.parametrize(
    ("tree", "place", "message"),
    [
        (
            policy(persons={"attributes": {"id": KEY, "Q": {"role": "identifying"}, "q": {"role": "insensitive"}}}),
            "table[0].attributes.q", "differs from 'Q' only in case",
        ),
        (policy(rows={"name": "p_v1"}), "table[1].name", "a release keeps versions of 'p' under such names"),
        (policy(search={"max_checks": 0}), "search.max_checks", "must be at least 1"),
        (policy(search={"time_limit": -1}), "search.time_limit", "must be more than 0"),
    ],
)  # fmt: skip
def test_a_policy_is_refused(tree: dict[str, Any], place: str, message: str) -> None:
    with pytest.raises(PolicyError) as error:
        LinkedPolicy(**tree)
    problems = {problem.place: problem.message for problem in error.value.problems}
    assert message in problems[place]


def test_a_reference_of_another_type_than_the_key_is_refused() -> None:
    """The reference 1 names the persons '1' and '01'."""
    persons = "SELECT unnest(['1', '01', '3', '4']) AS id, 'a' AS q"
    with pytest.raises(SourceError, match="the reference 'pid' is INTEGER, and the key 'id' of 'p' is VARCHAR"):
        anonymize(policy(), persons, "SELECT unnest([1, 98]) AS pid, 'rare' AS w")


def test_the_problems_of_all_tables_are_reported_at_once() -> None:
    """Each table has another problem; the notes name rows of a table whose key is wrong, so they are not counted."""
    tree = policy(rows={"key": ["vid"], "attributes": {"vid": KEY, "pid": KEY, "w": QUASI}})
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


def test_children_of_a_table_whose_key_is_its_reference_keep_their_rows(tmp_path: Path) -> None:
    """Row n of the child belongs to row n of the middle table, which belongs to person n: all have the value n % 4."""
    connection = duckdb.connect()
    for name, query in (
        ("p", "SELECT i AS id, i % 4 AS q FROM range(20) AS r(i)"),
        ("v", "SELECT i AS pid, i % 4 AS w FROM range(20) AS r(i)"),
        ("l", "SELECT i AS a, i % 4 AS x FROM range(20) AS r(i)"),
    ):
        connection.execute(f"CREATE TABLE {name} AS {query}")
    tree = policy(rows={"key": ["pid"]})
    tree["table"].append({"name": "l", "references": {"a": "v"}, "attributes": {"a": KEY, "x": QUASI}})
    release = sqlanon.connect(connection).anonymize(LinkedPolicy(**tree)).publish(tmp_path / "release.duckdb")
    assert release.verify().verified
    with duckdb.connect(str(release.path), read_only=True) as released:
        rows = released.execute("SELECT q, w, x FROM p JOIN v ON id = pid JOIN l ON pid = a").fetchall()
    assert len(rows) == 20
    assert all(q == w == x for q, w, x in rows)


LINES = {"key": ["pid", "no"], "attributes": {"pid": KEY, "no": KEY, "w": QUASI}}


def test_a_key_that_has_the_reference_as_a_part_gets_a_number_for_the_rest(tmp_path: Path) -> None:
    """Lines of orders: order and number of the line."""
    rows = "SELECT i // 2 AS pid, i % 2 AS no, i % 2 AS w FROM range(24) AS r(i)"
    release = anonymize(policy(rows=LINES), PERSONS, rows).publish(tmp_path / "release.duckdb")
    assert release.verify().verified
    with duckdb.connect(str(release.path), read_only=True) as released:
        lines = released.execute("SELECT count(*), count(DISTINCT no) FROM v JOIN p ON id = pid").fetchall()
    assert lines == [(24, 24)]


def test_such_a_table_has_no_children() -> None:
    tree = policy(rows=LINES)
    notes = {"pid": KEY, "no": KEY, "x": QUASI}
    tree["table"].append({"name": "n", "references": {"pid": "v", "no": "v"}, "attributes": notes})
    with pytest.raises(PolicyError, match=r"table\[2\].references.pid: a part of the key of 'v' is a reference itself"):
        LinkedPolicy(**tree)


def test_whole_numbers_of_different_sizes_link_tables() -> None:
    rows = "SELECT (i % 12)::SMALLINT AS pid, i % 2 AS w FROM range(24) AS r(i)"
    assert anonymize(policy(), PERSONS, rows).persons == 12


@pytest.mark.parametrize("type_", ["DATE[]", "STRUCT(d DATE)", "MAP(DATE, INTEGER)"])
def test_dates_within_other_values_are_refused_beside_moved_ones(type_: str) -> None:
    moved = {"role": "quasi", "hierarchy": {"dates": ["year"], "shift": 30}}
    tree = policy(rows={"attributes": {"pid": KEY, "w": moved, "s": {"role": "sensitive"}}})
    rows = f"SELECT i AS pid, DATE '2024-01-01' AS w, NULL::{type_} AS s FROM range(12) AS r(i)"
    with pytest.raises(HierarchyError, match=r"table\[1\].attributes.s: .* may have dates, which are not moved"):
        anonymize(tree, PERSONS, rows)


@pytest.mark.parametrize("name", ["release.duckdb", "release"])
def test_a_table_without_rows_is_released(name: str, tmp_path: Path) -> None:
    dates = {"role": "quasi", "hierarchy": {"dates": ["month", "year"]}}
    tree = policy(rows={"attributes": {"pid": KEY, "w": dates}})
    result = anonymize(tree, PERSONS, "SELECT i AS pid, DATE '2024-01-01' AS w FROM range(0) AS r(i)")
    release = result.publish(tmp_path / name)
    assert release.verify().verified
    assert [claims.released_rows for claims in release.manifest.tables] == [12, 0]


def test_samarati_finds_more_than_the_highest_generalization() -> None:
    result = anonymize(policy(search={"strategy": "samarati"}), PERSONS, ROWS)
    assert result.score < 1


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> LinkedRelease:
    sensitive = {"pid": KEY, "w": QUASI, "s": {"role": "sensitive"}}
    tree = policy(rows={"attributes": sensitive}, search={"suppression_limit": 0.5})
    tree["privacy"]["confidence"] = {"attribute": "s", "max": 0.9}
    rows = "SELECT i % 12 AS pid, i % 2 AS w, i % 5 AS s FROM range(24) AS r(i)"
    return anonymize(tree, PERSONS, rows).publish(tmp_path_factory.mktemp("release") / "release.duckdb")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"released_persons": 11}, "the persons are not the rows of 'p'"),
        ({"persons": 13}, "the persons are not the rows of 'p'"),
        ({"k": 1}, "k or known is not that of the policy"),
        ({"known": 3}, "k or known is not that of the policy"),
        ({"requirements": ()}, "the requirements are not those of the policy"),
        ({"digest_algorithm": "none"}, "the digest 'none' is not known"),
    ],
)
def test_claims_that_contradict_one_another_are_found(
    release: LinkedRelease, changes: dict[str, Any], message: str
) -> None:
    assert not list(find_contradictions(release.manifest))
    assert message in list(find_contradictions(replace(release.manifest, **changes)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"suppressed_rows": 1}, "the suppressed rows of 'v' are not the difference of its rows and released rows"),
        ({"generalization": {"name": 1}}, "the levels of 'v' are not those of its quasi-identifiers"),
    ],
)
def test_claims_about_a_table_that_contradict_one_another_are_found(
    release: LinkedRelease, changes: dict[str, Any], message: str
) -> None:
    persons, rows = release.manifest.tables
    manifest = replace(release.manifest, tables=(persons, replace(rows, **changes)))
    assert list(find_contradictions(manifest)) == [message]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("requirements = '[]'", "not those of the policy"),
        ("policy = '{}'", "the policy of the manifest cannot be read"),
    ],
)
def test_a_release_with_changed_claims_does_not_verify(
    release: LinkedRelease, change: str, message: str, tmp_path: Path
) -> None:
    changed = Path(shutil.copy(release.path, tmp_path))
    with duckdb.connect(str(changed)) as connection:
        connection.execute(f"UPDATE sqlanon.linked_manifest SET {change}")
    failures = " ".join(verify_tables(FileLocation(changed)).failures)
    assert message in failures


@pytest.mark.parametrize(
    "claim",
    [
        {"key": "t_closeness", "parameters": {"attribute": "s", "t": 0.1, "distance": "equal"}},
        {"key": "average_risk", "parameters": {}},
    ],
)
def test_a_manifest_with_a_requirement_that_no_group_can_meet_alone_is_refused(
    release: LinkedRelease, claim: dict[str, Any]
) -> None:
    row = release.manifest.row() | {"requirements": json.dumps([{**claim, "table": "v", "column": "s"}])}
    with pytest.raises(ValueError, match=r"compares groups with the whole source|is not a requirement"):
        LinkedManifest.from_row(row)
