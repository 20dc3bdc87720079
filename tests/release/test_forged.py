"""Releases whose rows were changed by somebody who makes the digest inside fit: found from outside the file."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import duckdb
import pytest

import sqlanon
from sqlanon.audit.decoys import count_foreign_values, count_surplus_rows, subtract_rows
from sqlanon.audit.verify import verify_file
from sqlanon.release.visible_values import count_different_rows
from sqlanon.support.expressions import select_star, table
from sqlanon.support.resources import RELEASE_MACROS, macro_script
from support.commands import cli
from support.databases import compact_file
from support.lanes import some
from support.verification import failed_checks

ROWS = """
    SELECT 20 + i % 20 AS age, ['north', 'south'][1 + i % 2] AS region, ['flu', 'gout', 'asthma'][1 + i % 3] AS illness,
           i * 0.5::DOUBLE AS cost
    FROM range(240) AS t(i)
"""
POLICY = """
[source]
database = "hospital.duckdb"
table = "people"

[attributes]
age = {{ role = "quasi", hierarchy = {{ intervals = [10] }} }}
region = {{ role = "quasi", hierarchy = "suppress" }}
illness = {{ role = "sensitive" }}
cost = {{ role = "insensitive" }}

[privacy]
k = 5

[release]
{place}

[catalog]
database = "private.duckdb"
"""
PLACES = {
    ".duckdb": 'database = "release.duckdb"\ntable = "people"',
    ".parquet": 'file = "release.parquet"',
}


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def policy(folder: Path, place: str) -> sqlanon.Policy:
    path = folder / "policy.toml"
    path.write_text(POLICY.format(place=place))
    return sqlanon.Policy.load(path)


def publish(folder: Path, place: str) -> sqlanon.Release:
    with sqlanon.connect() as db:
        release = db.anonymize(policy(folder, place)).publish()
        assert isinstance(release, sqlanon.Release)
        return release


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with duckdb.connect(tmp_path / "hospital.duckdb") as connection:
        connection.execute(f"CREATE TABLE people AS {ROWS}")
    return tmp_path


# Sixteen rows exchange their illnesses: all counts and classes stay as they are.
EXCHANGE = """
    SELECT * REPLACE (
        CASE WHEN cost IN ({first}) THEN 'asthma' WHEN cost IN ({second}) THEN 'flu' ELSE illness END AS illness
    )
    FROM {rows}
"""


def exchange_query(rows: str) -> str:
    flu, asthma = (", ".join(str((i * 30 + start) * 0.5) for i in range(8)) for start in (0, 2))
    return EXCHANGE.format(first=flu, second=asthma, rows=rows)


def digest(connection: duckdb.DuckDBPyConnection, name: str) -> str:
    connection.execute(macro_script(RELEASE_MACROS))
    text: str = connection.execute(f"SELECT digest FROM sqlanon.digest('{name}')").fetchall()[0][0]
    return text


def forge(path: Path, query: str = "") -> None:
    """Change the rows, and the digest in the manifest with them."""
    if path.suffix == ".duckdb":
        with duckdb.connect(path) as connection:
            connection.execute(f"CREATE TEMP TABLE new AS {query or exchange_query('people_v1')}")
            connection.execute("DELETE FROM people_v1; INSERT INTO people_v1 FROM new")
            connection.execute("UPDATE sqlanon.manifest SET digest = (SELECT digest FROM sqlanon.digest('people_v1'))")
        compact_file(path)
        return
    with duckdb.connect() as connection:
        metadata = f"SELECT value::BLOB FROM parquet_kv_metadata('{path}') WHERE decode(key) = 'sqlanon'"
        manifest = json.loads(connection.execute(metadata).fetchall()[0][0].decode())
        connection.execute(f"CREATE TABLE new AS {query or exchange_query(repr(str(path)))}")
        manifest["digest"] = digest(connection, "new")
        text = json.dumps(manifest, ensure_ascii=False).replace("'", "''")
        connection.execute(f"COPY new TO '{path}' (FORMAT parquet, KV_METADATA {{sqlanon: '{text}'}})")


@pytest.mark.thorough
@pytest.mark.parametrize("kind", some(PLACES, 2))
def test_a_forged_release_is_found_from_outside_its_file(kind: str, folder: Path) -> None:
    release = publish(folder, PLACES[kind])
    requested_policy = policy(folder, PLACES[kind])
    moved = Path(shutil.copy(release.path, folder / f"moved{kind}"))
    with sqlanon.connect() as db:
        honest = db.verify(release.path, requested_policy, sha256=release.sha256)
        assert all(check.passed for check in honest.checks if "sha256" in check.name or "recoded" in check.name)
        assert honest.verified
        forge(release.path)
        forge(moved)
        # By itself it cannot be distinguished from an honest one.
        assert release.verify().verified
        expected = {"against the source: recoded source", "against the ledger: sha256"}
        verification = db.verify(release.path, requested_policy)
        assert failed_checks(verification) == expected
        assert failed_checks(release.verify(sha256=release.sha256)) == {"sha256"}
        # The ledger does not know this place; its rows are compared all the same.
        assert failed_checks(db.verify(moved, requested_policy)) == {"against the source: recoded source"}
    (message,) = [check.message for check in verification.checks if check.name == "against the source: recoded source"]
    assert message == "rows that the source does not give: 16; rows missing in the release: 16"
    assert not any(value in message for value in ("flu", "asthma", "gout", "north"))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("query", "parts"),
    some(
        [
            (
                "SELECT * REPLACE (if(cost = 0, '-0.0'::DOUBLE, cost) AS cost) FROM people_v1",
                ("not give: 1;", "release: 1"),
            ),
            ("FROM people_v1 WHERE cost <> 3 UNION ALL FROM people_v1 WHERE cost = 4", ("not give: 1;", "release: 1")),
        ],
        2,
    ),
)
def test_rows_are_compared_as_readers_see_them(query: str, parts: Sequence[str], folder: Path) -> None:
    """A zero gets a sign; a row replaces another."""
    release = publish(folder, PLACES[".duckdb"])
    forge(release.path, query)
    with sqlanon.connect() as db:
        verification = db.verify(release.path, policy(folder, PLACES[".duckdb"]))
    (message,) = [check.message for check in verification.checks if check.name == "against the source: recoded source"]
    assert all(part in message for part in parts)


PAIRS = {
    "equal": ("SELECT 1 AS a, NULL::VARCHAR AS b", "SELECT 1 AS a, NULL::VARCHAR AS b", (0, 0)),
    "order": ("FROM (VALUES (1), (2)) AS v(a)", "FROM (VALUES (2), (1)) AS v(a)", (0, 0)),
    "more often": ("SELECT 1 AS a FROM range(3)", "SELECT 1 AS a FROM range(5)", (0, 2)),
    "no rows": ("SELECT 1 AS a FROM range(0)", "SELECT 1 AS a FROM range(4)", (0, 4)),
    "a NULL": ("SELECT NULL::INTEGER AS a", "SELECT 0 AS a", (1, 1)),
    "no text": ("SELECT '' AS a", "SELECT NULL::VARCHAR AS a", (1, 1)),
    "zeros": ("SELECT 0.0::DOUBLE AS a", "SELECT -0.0::DOUBLE AS a", (1, 1)),
    "a NaN with a sign": ("SELECT 'nan'::FLOAT AS a", "SELECT 'inf'::FLOAT - 'inf'::FLOAT AS a", None),
    "the same NaN": ("SELECT 'nan'::DOUBLE AS a", "SELECT 'nan'::DOUBLE AS a", (0, 0)),
    "intervals": ("SELECT INTERVAL 30 DAY AS a", "SELECT INTERVAL 1 MONTH AS a", (1, 1)),
    "lists": ("SELECT ['a', 'b'] AS a", "SELECT ['a, b'] AS a", (1, 1)),
    "zeros in lists": ("SELECT [0.0::DOUBLE] AS a", "SELECT [-0.0::DOUBLE] AS a", (1, 1)),
    "bits": ("SELECT '01'::BIT AS a", "SELECT '1'::BIT AS a", (1, 1)),
    "exchanged cells": ("FROM (VALUES (1, 2), (3, 4)) AS v(a, b)", "FROM (VALUES (1, 4), (3, 2)) AS v(a, b)", (2, 2)),
    "names of keys": ("SELECT 1 AS k1, 'x' AS k0", "SELECT 1 AS k1, 'y' AS k0", (1, 1)),
}


@pytest.mark.slow
@pytest.mark.parametrize("pair", list(PAIRS))
def test_two_relations_have_the_same_rows(pair: str) -> None:
    first_query, second_query, expected = PAIRS[pair]
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE one AS {first_query}")
        connection.execute(f"CREATE TABLE other AS {second_query}")
        types = {name: type_ for name, type_, *_ in connection.execute("DESCRIBE one").fetchall()}
        rows = connection.execute(count_different_rows(table("one"), table("other"), types).sql("duckdb")).fetchall()
        if expected is None:  # inf - inf has a sign on x86, and has none elsewhere
            sign = connection.execute("SELECT signbit(a) FROM other").fetchall()[0][0]
            expected = (1, 1) if sign else (0, 0)
        pairs = [("one", "other"), ("other", "one")]
        queries = [count_surplus_rows(*map(table, pair), types) for pair in pairs]
        alone = [connection.execute(query.sql("duckdb")).fetchall()[0][0] for query in queries]
    assert rows == [expected]
    assert tuple(alone) == expected


def test_a_collation_does_not_hide_another_case() -> None:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE one (a VARCHAR COLLATE nocase); INSERT INTO one VALUES ('Flu'), ('flu')")
        connection.execute("CREATE TABLE other AS SELECT 'flu' AS a FROM range(2)")
        first, second, types = table("one"), table("other"), {"a": "VARCHAR"}
        assert connection.execute(count_different_rows(first, second, types).sql("duckdb")).fetchall() == [(1, 1)]
        assert connection.execute(subtract_rows(first, second, types).sql("duckdb")).fetchall() == [("Flu",)]
        assert connection.execute(
            count_foreign_values(first, select_star(second), "a", "VARCHAR").sql("duckdb")
        ).fetchall() == [(1,)]


# The hash of the file


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [".duckdb", pytest.param(".parquet", marks=pytest.mark.slow)])
def test_the_hash_is_that_of_the_file(kind: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    requested_policy = policy(folder, PLACES[kind])
    assert cli("anonymize", folder / "policy.toml", "--json").status == 0
    printed = json.loads(capsys.readouterr().out)
    path = Path(printed["release"])
    assert printed["sha256"] == sha256(path)
    with duckdb.connect(folder / "private.duckdb", read_only=True) as catalog:
        assert catalog.execute("SELECT sha256 FROM sqlanon.ledger").fetchall() == [(sha256(path),)]
    assert cli("verify", path, "--sha256", printed["sha256"].upper()).status == 0
    assert cli("verify", path, "--sha256", "0" * 64).status == 1
    assert "FAILED" in capsys.readouterr().out
    assert cli("verify", path, "--policy", folder / "policy.toml", "--sha256", "0" * 64).status == 1
    assert cli("verify", path, "--sha256", "abc").status == 2
    assert "64 hexadecimal digits" in capsys.readouterr().err
    # Readers leave it as it is; so does whoever opens it for writing and writes nothing.
    for read_only in (True, False):
        if kind == ".duckdb":
            with duckdb.connect(path, read_only=read_only) as connection:
                assert connection.execute("SELECT count(*) FROM people").fetchall() == [(240,)]
    with sqlanon.connect() as db:
        assert db.verify(path, requested_policy).verified
    assert sha256(path) == printed["sha256"]
    assert cli("anonymize", folder / "policy.toml").status == 0
    assert f"sha256: {sha256(path)}" in capsys.readouterr().out


@pytest.mark.thorough
def test_a_file_that_keeps_versions_is_known_by_the_newest(folder: Path) -> None:
    place = PLACES[".duckdb"] + "\nkeep = 2"
    hashes = [publish(folder, place).sha256 for _ in range(3)]
    with duckdb.connect(folder / "private.duckdb", read_only=True) as catalog:
        recorded = catalog.execute("SELECT version, sha256 FROM sqlanon.releases ORDER BY version").fetchall()
    assert recorded == list(enumerate(hashes, 1))
    requested_policy = policy(folder, place)
    (folder / "link").symlink_to(folder / "release.duckdb")
    with sqlanon.connect() as db:
        assert db.verify(folder / "release.duckdb", requested_policy).verified
        through = db.verify(folder / "link", requested_policy)
    assert {check.name: check.passed for check in through.checks}["against the ledger: sha256"] is True
    text = place.replace("release.duckdb", "other.duckdb")
    publish(folder, text)  # held against both versions, which are those that were published


@pytest.mark.thorough
def test_a_ledger_without_a_hash_does_not_refuse(folder: Path) -> None:
    release = publish(folder, PLACES[".duckdb"])
    requested_policy = policy(folder, PLACES[".duckdb"])
    with duckdb.connect(folder / "private.duckdb") as catalog:
        catalog.execute("UPDATE sqlanon.releases SET sha256 = NULL")
    with sqlanon.connect() as db:
        verification = db.verify(release.path, requested_policy)
    assert verification.verified
    (check,) = [item for item in verification.checks if item.name == "against the ledger: sha256"]
    assert check.passed is None and check.message.startswith("not recorded")
    assert publish(folder, PLACES[".duckdb"]).sha256 == sha256(release.path)


@pytest.mark.slow
def test_a_later_release_is_not_compared_with_a_file_that_was_changed(folder: Path) -> None:
    """Its manifest and its digest are unchanged: its rows are in another order."""
    release = publish(folder, PLACES[".parquet"])
    fingerprint = release.manifest.fingerprint()
    forge(release.path, f"FROM '{release.path}' ORDER BY cost DESC")
    verification = verify_file(release.path)
    assert verification.verified and verification.manifest.fingerprint() == fingerprint
    with pytest.raises(sqlanon.AuditError, match="its file was changed"):
        publish(folder, PLACES[".duckdb"])


@pytest.mark.thorough
def test_a_log_beside_the_file_is_a_change(folder: Path) -> None:
    """DuckDB reads it into the file, whose bytes are unchanged."""
    release = publish(folder, PLACES[".duckdb"])
    with duckdb.connect(release.path) as connection:
        connection.execute("PRAGMA disable_checkpoint_on_shutdown")
        connection.execute("UPDATE people_v1 SET illness = 'flu' WHERE cost = 1.0")
    assert release.path.with_name("release.duckdb.wal").exists()
    assert sha256(release.path) == release.sha256
    with pytest.raises(sqlanon.ReleaseError, match=r"release\.duckdb\.wal is next to the release"):
        release.verify(sha256=release.sha256)


@pytest.mark.thorough
def test_uncertain_publication_does_not_fail_the_file(folder: Path) -> None:
    """The hash that a stopped run was about to publish is not compared with the present file."""
    release = publish(folder, PLACES[".duckdb"])
    requested_policy = policy(folder, PLACES[".duckdb"])
    with duckdb.connect(folder / "private.duckdb") as catalog:
        catalog.execute(
            "INSERT INTO sqlanon.releases SELECT * REPLACE ('other' AS run_id, 'beef' AS sha256, 9 AS version, "
            "published_at AS intended_at) FROM sqlanon.releases"
        )
    with sqlanon.connect() as db:
        verification = db.verify(release.path, requested_policy)
    assert verification.verified, verification.failures
    (check,) = [item for item in verification.checks if item.name == "against the ledger: sha256"]
    assert check.passed is None
