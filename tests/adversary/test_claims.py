"""Every undetected change of a manifest by a forger is listed as a claim."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import sqlanon
from sqlanon.audit.verify import verify_file
from support.databases import compact_file
from support.policies import make_policy

pytestmark = pytest.mark.thorough

FORGED = {
    "published_at": "published_at = TIMESTAMP '2001-01-01'",
    "sqlanon_version": "sqlanon_version = '9.9.9'",
    "policy_hash": "policy_hash = repeat('0', 64)",
}


@pytest.fixture(scope="module")
def published_release(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, sqlanon.Policy]:
    folder = tmp_path_factory.mktemp("claims")
    with duckdb.connect(folder / "source.duckdb") as connection:
        connection.execute("CREATE TABLE t AS SELECT i % 7 AS a, i % 3 AS b FROM range(60) AS r(i)")
    policy = make_policy(
        {"a": "suppress", "b": "suppress"},
        source={"database": str(folder / "source.duckdb"), "table": "t"},
        table=None,
        search={"suppression_limit": 0.2},
        release={"database": str(folder / "release.duckdb"), "table": "r"},
        catalog={"database": str(folder / "catalog.duckdb")},
    )
    with sqlanon.connect() as db:
        db.anonymize(policy).publish()
    return folder / "release.duckdb", policy


@pytest.mark.parametrize("field", FORGED)
def test_forged_fields_that_verify_alone_are_claims(
    field: str, published_release: tuple[Path, sqlanon.Policy], tmp_path: Path
) -> None:
    release, _ = published_release
    forged = tmp_path / "release.duckdb"
    forged.write_bytes(release.read_bytes())
    with duckdb.connect(forged) as connection:
        connection.execute(f"UPDATE sqlanon.manifest SET {FORGED[field]}")
    compact_file(forged)
    verification = verify_file(forged)
    assert verification.verified, verification.failures
    assert field in verification.claims


def test_a_release_with_the_recorded_hash_has_no_claims(published_release: tuple[Path, sqlanon.Policy]) -> None:
    release, policy = published_release
    assert "published_at" in verify_file(release).claims
    with sqlanon.connect() as db:
        assert db.verify(release, policy).claims == ()
