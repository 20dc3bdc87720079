"""Linked tables in a schema of PostgreSQL appear at once, verify alone, and hide persons among k."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sqlanon.errors import BrokenReleaseError, ReleaseError
from sqlanon.linked.publish.targets.base import find_location, verify_tables
from sqlanon.linked.publish.targets.postgres import SchemaLocation, StagedSchema
from support.commands import cli
from support.linked_hospital import POLICY, fewest_candidates, fix_levels, known_of, make_hospital
from support.postgres_cases import HERE, schemas
from support.servers.postgres import PASSWORD, Server

__all__ = ["schemas"]  # fixtures

pytest.importorskip("adbc_driver_postgresql.dbapi", reason="the extra postgres is not installed")
pytestmark = pytest.mark.slow

RELEASE = f'postgres = "{HERE}"\nschema_name = "shared"'


@pytest.fixture(scope="module")
def hospital(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a hospital whose policy releases to PostgreSQL."""
    folder = tmp_path_factory.mktemp("linked_postgres")
    make_hospital(folder, fix_levels(POLICY).replace('database = "release.duckdb"', RELEASE))
    return folder


def in_release(server: Server, query: str) -> list[tuple[object, ...]]:
    """The rows of a query of the released views."""
    server.run("SET search_path TO shared")
    try:
        return server.rows(query)
    finally:
        server.run("RESET search_path")


def publish(hospital: Path) -> SchemaLocation:
    """Publish the hospital; its location."""
    ended = cli("anonymize", hospital / "policy.toml")
    assert ended.status == 0, ended.err
    assert PASSWORD not in ended.out
    location = find_location(HERE, "shared")
    assert isinstance(location, SchemaLocation)
    return location


def test_the_schema_has_one_manifest_verifies_alone_and_hides_persons_among_k(hospital: Path, schemas: Server) -> None:
    publish(hospital)
    persons = known_of(lambda query: in_release(schemas, query))
    assert len(persons) >= 48
    assert fewest_candidates(persons) >= 3
    ended = cli("verify", HERE, "--schema", "shared")
    assert (ended.status, "verified" in ended.out) == (0, True), ended.err
    names = schemas.rows(
        "SELECT relname::text FROM pg_class WHERE relnamespace = 'shared'::regnamespace AND relkind IN ('r', 'v')"
    )
    expected = {"labs", "patients", "visits", "labs_v1", "patients_v1", "visits_v1", "sqlanon_manifest"}
    assert {name for (name,) in names} == expected
    assert schemas.rows("SELECT count(DISTINCT manifest) FROM shared.sqlanon_manifest") == [(1,)]


def test_a_schema_is_attacked_and_reported(hospital: Path, schemas: Server, tmp_path: Path) -> None:
    publish(hospital)
    attacked = cli("attack", HERE, "--schema", "shared", "--policy", hospital / "policy.toml", "--sql")
    assert (attacked.status, "3 persons or more match" in attacked.out) == (0, True), attacked.err
    assert "statements for the victims are for a release in a file" in attacked.out
    page = tmp_path / "report.html"
    reported = cli("report", HERE, "--schema", "shared", "-o", page)
    assert (reported.status, "the policy holds" in reported.out) == (0, True), reported.err
    assert PASSWORD not in attacked.out + reported.out + page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "failure"),
    [
        ("DELETE FROM shared.labs_v1 WHERE value > 1", "rows of labs: "),
        ("UPDATE shared.visits_v1 SET patient_id = 0 WHERE visit_id = 1", "keys: "),
        ("CREATE OR REPLACE VIEW shared.labs AS SELECT * FROM shared.labs_v1 WHERE value < 9", "view of labs: "),
        ("GRANT UPDATE ON shared.patients TO PUBLIC", "rights of patients: "),
        ("COMMENT ON VIEW shared.patients IS 'name 3'", "comments of patients: "),
        (
            "UPDATE shared.sqlanon_manifest SET manifest = replace(manifest, '\"k\": 3', '\"k\": 2') "
            "WHERE table_name = 'visits'",
            "contents: table 'visits' has another manifest",
        ),
        ("DELETE FROM shared.sqlanon_manifest WHERE table_name = 'visits'", "contents: table 'visits' has no manifest"),
    ],
)
def test_a_changed_schema_does_not_verify(hospital: Path, schemas: Server, change: str, failure: str) -> None:
    location = publish(hospital)
    schemas.run(change)
    failures = verify_tables(location).failures
    assert any(message.startswith(failure) for message in failures), failures


def test_a_release_is_replaced_in_all_tables_or_in_none(
    hospital: Path, schemas: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = publish(hospital)
    schemas.run("CREATE ROLE reader_of_views", "GRANT SELECT ON shared.visits TO reader_of_views")
    try:
        before = schemas.rows("SELECT * FROM shared.visits ORDER BY visit_id")

        def fail(staged: StagedSchema) -> None:
            raise ReleaseError("the last moment")

        with monkeypatch.context() as patch:
            patch.setattr(StagedSchema, "commit", fail)
            assert cli("anonymize", hospital / "policy.toml").status == 2
        assert schemas.rows("SELECT * FROM shared.visits ORDER BY visit_id") == before
        assert verify_tables(location).manifest.version == 1
        publish(hospital)
        verification = verify_tables(location)
        assert verification.verified, verification.failures
        assert verification.manifest.version == 2
        assert schemas.rows("SELECT to_regclass('shared.visits_v1') IS NULL") == [(True,)]
        assert schemas.rows("SELECT has_table_privilege('reader_of_views', 'shared.visits', 'SELECT')") == [(True,)]
    finally:
        schemas.run("DROP OWNED BY reader_of_views", "DROP ROLE reader_of_views")


def test_foreign_tables_are_not_replaced(hospital: Path, schemas: Server, tmp_path: Path) -> None:
    schemas.run("CREATE TABLE shared.labs (x integer)")
    ended = cli("anonymize", hospital / "policy.toml")
    assert ended.status == 2
    assert "shared.labs exists and is not a release of sqlanon" in ended.err
    schemas.run("DROP TABLE shared.labs")
    publish(hospital)
    shutil.copy(hospital / "hospital.duckdb", tmp_path)
    text = (hospital / "policy.toml").read_text(encoding="utf-8")
    start = text.index('[[table]]\nname = "labs"')
    (tmp_path / "policy.toml").write_text(text[:start] + text[text.index("[privacy]") :], encoding="utf-8")
    ended = cli("anonymize", tmp_path / "policy.toml")
    assert "is a release of other tables: choose another schema" in ended.err


def test_a_schema_without_linked_tables_is_not_verified(schemas: Server) -> None:
    ended = cli("verify", HERE, "--schema", "shared")
    assert ended.status == 2
    assert "is not a release of linked tables: it has no manifest" in ended.err
    assert PASSWORD not in ended.err


def test_a_broken_manifest_is_named(hospital: Path, schemas: Server) -> None:
    location = publish(hospital)
    schemas.run('UPDATE shared.sqlanon_manifest SET manifest = replace(manifest, \'"k": 3\', \'"k": 3, "note": 1\')')
    with pytest.raises(BrokenReleaseError, match="its manifest is broken"):
        verify_tables(location)
