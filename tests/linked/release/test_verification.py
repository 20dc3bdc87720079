"""Claims of a manifest that contradict one another, or cannot be met, do not verify."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from sqlanon.linked.publish.stage import LinkedRelease
from sqlanon.linked.publish.targets.base import verify_tables
from sqlanon.linked.publish.targets.file import FileLocation
from sqlanon.linked.release.manifest import LinkedManifest
from sqlanon.linked.release.verification import find_contradictions
from support.linked_databases import KEY, PERSONS, QUASI, anonymize_rows, persons_and_rows


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> LinkedRelease:
    sensitive = {"pid": KEY, "w": QUASI, "s": {"role": "sensitive"}}
    tree = persons_and_rows(rows={"attributes": sensitive}, search={"suppression_limit": 0.5})
    tree["privacy"]["confidence"] = {"attribute": "s", "max": 0.9}
    rows = "SELECT i % 12 AS pid, i % 2 AS w, i % 5 AS s FROM range(24) AS r(i)"
    return anonymize_rows(tree, PERSONS, rows).publish(tmp_path_factory.mktemp("release") / "release.duckdb")


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


def test_more_suppressed_persons_than_the_policy_allows_are_found(release: LinkedRelease) -> None:
    persons, rows = release.manifest.tables
    assert persons.rows == 12

    def claim(released: int) -> list[str]:
        changed = replace(persons, released_rows=released, suppressed_rows=12 - released)
        return list(find_contradictions(replace(release.manifest, released_persons=released, tables=(changed, rows))))

    assert claim(6) == []
    assert claim(5) == ["more persons are suppressed than the policy allows"]


@pytest.mark.slow
@pytest.mark.parametrize("change", ["id + 1", "id + (id = 12)::INTEGER", "-id"])
def test_keys_other_than_the_numbers_from_1_do_not_verify(release: LinkedRelease, change: str, tmp_path: Path) -> None:
    changed = Path(shutil.copy(release.path, tmp_path))
    with duckdb.connect(str(changed)) as connection:
        connection.execute(f"UPDATE p_v1 SET id = {change}")
        connection.execute(f"UPDATE v_v1 SET pid = {change.replace('id', 'pid')}")
    failures = verify_tables(FileLocation(changed)).failures
    assert "keys: the keys of 'p' are not the numbers from 1 on" in failures


@pytest.mark.slow
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
