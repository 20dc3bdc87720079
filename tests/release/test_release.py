"""The release: what is in the file, what verify finds, and what publishing never does."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

import sqlanon
import sqlanon.publish.targets.file.target as publishing
from sqlanon.audit.verify import verify_file
from sqlanon.errors import AuditError, BrokenReleaseError, ReleaseError
from support.databases import change, fetch
from support.lanes import some
from support.policies import make_policy
from support.verification import failed_alone, manifest_text

ROWS = 600
CITIES = {"Uplands": ["Hilltown-q7", "Stonebridge-q7"], "Lowlands": ["Fenmarsh-q7", "Delta Port-q7"]}
ATTRIBUTES: dict[str, Any] = {
    "name": "identifying",
    "city": {"role": "quasi", "hierarchy": {"categories": CITIES}, "min_level": 1},
    "age": {"role": "quasi", "hierarchy": {"intervals": [5, 10, 20]}, "min_level": 1},
    "illness": "sensitive",
    "stay": "insensitive",
}
MANIFEST_COLUMNS = {
    "table_name", "format", "published_at", "sqlanon_version", "engine", "policy", "policy_hash", "columns",
    "generalization", "rows", "released_rows", "suppressed_rows", "classes", "smallest_class", "measure", "score",
    "optimal", "guarantee", "epsilon", "noise", "confidence", "decoys", "smallest_class_rows",
    "persons", "released_persons", "suppressed_persons", "partly_released_persons", "heights", "version",
    "dropped_lines", "digest_algorithm", "digest",
}  # fmt: skip

# The rows stand in the order of `stay`, which is released: a release in the source's order would show.
SOURCE = f"""
    CREATE TABLE patients AS
    SELECT 'Person ' || i AS name,
           ['Hilltown-q7', 'Stonebridge-q7', 'Fenmarsh-q7', 'Delta Port-q7'][1 + i % 4] AS city,
           CAST(20 + (i * 7) % 40 AS INTEGER) AS age,
           ['flu', 'asthma', 'gout'][1 + i % 3] AS illness,
           CAST(i AS BIGINT) AS stay
    FROM range({ROWS}) AS r(i)
    UNION ALL SELECT 'Odd One', 'Fenmarsh-q7', 101, 'gout', {ROWS}
    ORDER BY stay
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "hospital.duckdb"
    with duckdb.connect(path) as connection:
        connection.execute(SOURCE)
    return path


def policy_for(source: Path, **changes: Any) -> sqlanon.Policy:
    """k = 5 over city and age; the odd one has to be suppressed."""
    sections: dict[str, Any] = {
        "source": {"database": str(source), "query": "SELECT * FROM patients WHERE name <> 'A Literal'"},
        "search": {"suppression_limit": 0.01},
    }
    return make_policy(ATTRIBUTES, k=5, table=None, **(sections | changes))


def publish(source: Path, target: Path, table: str = "patients", **changes: Any) -> sqlanon.Release:
    with sqlanon.connect() as db:
        return db.anonymize(policy_for(source, **changes)).publish(target, table)


@pytest.fixture(scope="module")
def usual(source: Path) -> Iterator[sqlanon.Result]:
    """The result of the usual policy: each test publishes it once more."""
    with sqlanon.connect() as db:
        yield db.anonymize(policy_for(source))


@pytest.fixture(scope="module")
def published_release(source: Path, tmp_path_factory: pytest.TempPathFactory) -> sqlanon.Release:
    return publish(source, tmp_path_factory.mktemp("published") / "release.duckdb")


@pytest.fixture(scope="module")
def published_parquet(source: Path, tmp_path_factory: pytest.TempPathFactory) -> sqlanon.Release:
    return publish(source, tmp_path_factory.mktemp("published") / "release.parquet")


@pytest.fixture
def copy(published_release: sqlanon.Release, tmp_path: Path) -> Path:
    """A copy of the release, to be tampered with."""
    return Path(shutil.copy(published_release.path, tmp_path / "copy.duckdb"))


# Content of the file


@pytest.mark.slow
def test_the_manifest_has_the_figures_of_the_file(published_release: sqlanon.Release) -> None:
    with duckdb.connect(published_release.path, read_only=True) as connection:
        relation = connection.execute("FROM sqlanon.manifest")
        row = dict(zip([column[0] for column in relation.description or []], relation.fetchall()[0], strict=True))
    assert set(row) == MANIFEST_COLUMNS
    rows, classes, smallest = fetch(
        published_release.path,
        "SELECT sum(n)::BIGINT, count(*), min(n) FROM (SELECT count(*) AS n FROM patients GROUP BY city, age)",
    )[0]
    assert (row["table_name"], row["format"]) == ("patients", 1)
    assert (row["rows"], row["released_rows"], row["suppressed_rows"]) == (ROWS + 1, rows, 1)
    assert rows == ROWS
    assert (row["classes"], row["smallest_class"]) == (classes, smallest)
    assert smallest >= 5
    assert json.loads(row["generalization"])["city"] == 1
    assert json.loads(row["columns"]) == [
        {"name": "city", "type": "VARCHAR", "role": "quasi"},
        {"name": "age", "type": "VARCHAR", "role": "quasi"},
        {"name": "illness", "type": "VARCHAR", "role": "sensitive"},
        {"name": "stay", "type": "BIGINT", "role": "insensitive"},
    ]
    assert (row["measure"], row["optimal"]) == ("loss", True)
    assert abs((datetime.now() - row["published_at"]).days) <= 1
    assert row["sqlanon_version"] == sqlanon.__version__
    assert row["engine"].startswith(f"duckdb {duckdb.__version__}")


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["published_release", "published_parquet"])
def test_the_manifest_holds_no_private_value(kind: str, source: Path, request: pytest.FixtureRequest) -> None:
    text = manifest_text(request.getfixturevalue(kind))
    assert '"k": 5' in text or '\\"k\\": 5' in text  # the search can find what is there
    assert "categories" in text
    for value in (
        "Hilltown-q7", "Stonebridge-q7", "Fenmarsh-q7", "Delta Port-q7", "Uplands", "Lowlands",  # ground values, labels
        "A Literal", "SELECT", "WHERE",  # the query
        "Person", "Odd One", "101", "gout", "flu", "asthma",  # cells
        str(source), str(source.parent), source.name, "hospital",  # places
    ):  # fmt: skip
        assert value not in text


@pytest.mark.slow
def test_the_macros_work_wherever_the_file_is_attached_or_moved(
    published_release: sqlanon.Release, tmp_path: Path
) -> None:
    """A macro body that named the alias of the writing run would break here."""
    moved = Path(shutil.copy(published_release.path, tmp_path / "renamed file.db"))
    assert fetch(moved, "SELECT rows FROM sqlanon.k_anonymity('patients', ['city'])") == [(ROWS,)]
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{moved}' AS other (READ_ONLY)")
        query = "SELECT rows FROM other.sqlanon.k_anonymity('other.main.patients', ['city'])"
        assert connection.execute(query).fetchall() == [(ROWS,)]


def storage_version(path: Path) -> str:
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{path}' AS r (READ_ONLY)")
        tags = connection.execute("SELECT tags FROM duckdb_databases() WHERE database_name = 'r'").fetchall()[0][0]
    return str(tags["storage_version"]).removesuffix("+")


def test_the_file_is_of_a_version_that_the_long_term_release_reads(published_release: sqlanon.Release) -> None:
    assert storage_version(published_release.path) == "v1.4.0"


@pytest.mark.thorough
@pytest.mark.parametrize("version", ["v1.0.0", "v1.2.0", "v1.3.0", "v1.5.0", "v2.0.0"])
def test_the_policy_chooses_the_version_of_the_file(version: str, source: Path, tmp_path: Path) -> None:
    """It has the same rows, verifies alone and against the source, and keeps an earlier version."""
    if int(version[1]) > int(duckdb.__version__[0]):
        pytest.skip("this DuckDB does not know it")
    path = tmp_path / "release.duckdb"
    catalog = {"database": tmp_path / "catalog.duckdb"}
    policy = policy_for(source, release={"storage_version": version, "keep": 2}, catalog=catalog)
    with sqlanon.connect(source) as db:
        db.anonymize(policy_for(source, catalog=catalog)).publish(path, "patients")
        release = db.anonymize(policy).publish(path, "patients")
    assert storage_version(path) == version
    assert release.verify().verified
    assert not fails_against_source(path, policy)
    rows = "SELECT * FROM patients_v{} ORDER BY ALL"
    assert fetch(path, rows.format(1)) == fetch(path, rows.format(2))


@pytest.mark.slow
@pytest.mark.parametrize("is_named", [True, False])
def test_a_version_that_duckdb_does_not_know_is_refused(is_named: bool, source: Path, tmp_path: Path) -> None:
    """Before the search where the policy names the file, else when it is published."""
    place = tmp_path / "release.duckdb"
    section = {"storage_version": "v77.0.0"} | ({"database": str(place)} if is_named else {})
    policy = policy_for(source, release=section)
    with sqlanon.connect(source) as db:
        result = None if is_named else db.anonymize(policy)
        with pytest.raises(
            sqlanon.SqlanonError, match=r"release\.storage_version: DuckDB .* does not know 'v77\.0\.0'"
        ):
            _ = result.publish(place, "patients") if result else db.anonymize(policy)
    assert not place.exists()


# Tampering


def test_a_database_without_a_version_is_refused(copy: Path) -> None:
    """Without its views it would be a plain table that looks complete."""
    change(
        copy,
        "DROP VIEW patients",
        "ALTER TABLE patients_v1 RENAME TO patients",
        "UPDATE sqlanon.manifest SET version = NULL",
    )
    with pytest.raises(BrokenReleaseError, match="its manifest is broken: it names no version"):
        verify_file(copy)


def literal_rows(path: Path) -> str:
    rows = fetch(path, "FROM patients")
    return ", ".join(f"('{city}', '{age}', '{illness}', {stay}::BIGINT)" for city, age, illness, stay in rows)


def test_verify_finds_a_view_in_place_of_the_table(copy: Path) -> None:
    """A view can show different rows to each reader: it could distinguish a verifier from an analyst."""
    values = f"SELECT * FROM (VALUES {literal_rows(copy)}) AS v(city, age, illness, stay)"
    change(copy, "DROP TABLE patients_v1", f"CREATE VIEW patients_v1 AS {values}")
    assert "contents" in failed_alone(copy)


@pytest.mark.slow
def test_verify_runs_its_own_macros_not_those_of_the_file(copy: Path) -> None:
    digest, k = fetch(copy, "SELECT digest, smallest_class FROM sqlanon.manifest")[0]
    change(
        copy,
        "UPDATE patients_v1 SET city = 'Elsewhere' WHERE rowid = 5",
        f"CREATE OR REPLACE MACRO sqlanon.digest(rel) AS TABLE SELECT {ROWS} AS rows, '{digest}' AS digest",
        f"CREATE OR REPLACE MACRO sqlanon.k_anonymity(rel, qi) AS TABLE SELECT {k} AS k, 0 AS classes, 0, 0",
    )
    assert {"content digest", "5-anonymity"} <= failed_alone(copy)


@pytest.mark.slow
@pytest.mark.parametrize(
    "statement",
    some(
        [
            "DELETE FROM sqlanon.manifest",
            "INSERT INTO sqlanon.manifest FROM sqlanon.manifest",
            "DROP TABLE sqlanon.manifest",
            "DROP TABLE patients_v1",
            "UPDATE sqlanon.manifest SET policy = '{'",
            "UPDATE sqlanon.manifest SET policy = '[]'",
            "UPDATE sqlanon.manifest SET columns = '[[1]]'",
            "UPDATE sqlanon.manifest SET columns = 'null'",
            "UPDATE sqlanon.manifest SET table_name = 'elsewhere'",
            "UPDATE sqlanon.manifest SET table_name = 'duckdb_settings()'",
            "ALTER TABLE sqlanon.manifest DROP COLUMN digest",
            "ALTER TABLE sqlanon.manifest ADD COLUMN more INTEGER",
        ],
        3,
    ),
)
def test_a_release_without_a_sound_manifest_is_none(statement: str, copy: Path) -> None:
    change(copy, statement)
    with pytest.raises(ReleaseError, match=r"copy\.duckdb"):
        verify_file(copy)


def test_a_file_with_a_damaged_block_does_not_verify(copy: Path) -> None:
    content = bytearray(copy.read_bytes())
    for place in range(3 * 4096, len(content), 64):
        content[place] ^= 0x55
    copy.write_bytes(content)
    with pytest.raises(ReleaseError):
        verify_file(copy)


def lower_k(path: Path) -> None:
    change(path, """UPDATE sqlanon.manifest SET policy = replace(policy, '"k": 5', '"k": 2')""")
    assert '"k": 2' in fetch(path, "SELECT policy FROM sqlanon.manifest")[0][0]


def fails_against_source(path: Path, policy: sqlanon.Policy) -> bool:
    with sqlanon.connect() as db:
        return not db.verify(path, policy).verified


@pytest.mark.thorough
def test_verify_with_the_policy_finds_a_release_that_was_weakened_to_match(source: Path, copy: Path) -> None:
    """The rows, the digest, the figures and k are all changed together, by "another version", whose words cannot be
    checked: only the source reveals it."""
    city = "SELECT any_value(city) FROM patients_v1 WHERE city <> (SELECT city FROM patients_v1 WHERE rowid = 5)"
    change(copy, f"UPDATE patients_v1 SET city = ({city}) WHERE rowid = 5")  # labels are checked in any version
    lower_k(copy)
    change(copy, """UPDATE sqlanon.manifest SET policy = replace(policy, '"k": 2', '"k": 1')""")
    change(
        copy,
        "UPDATE sqlanon.manifest SET digest = (SELECT digest FROM sqlanon.digest('patients')), "
        "sqlanon_version = '0.0.1', "
        "classes = (SELECT classes FROM sqlanon.k_anonymity('patients', ['city', 'age'])), "
        "smallest_class = (SELECT k FROM sqlanon.k_anonymity('patients', ['city', 'age']))",
    )
    assert failed_alone(copy) == set()  # nothing in the file alone is wrong
    assert fails_against_source(copy, policy_for(source))


@pytest.mark.thorough
@pytest.mark.parametrize("zone", some(["Asia/Tokyo", "America/New_York", "UTC"], 3))
def test_a_release_verifies_in_every_time_zone(zone: str, tmp_path: Path) -> None:
    """A timestamp with a time zone is a moment: its form in a session does not belong to the content."""
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT i % 2 AS ward, TIMESTAMPTZ '2020-01-01 12:00:00+00' + INTERVAL 1 HOUR AS seen, "
            "[{'at': TIMESTAMPTZ '2020-07-01 12:00:00+00'}] AS nested FROM range(10) AS r(i)"
        )
        policy = make_policy({"ward": "suppress", "seen": "insensitive", "nested": "insensitive"})
        with sqlanon.connect(connection) as db:
            release = db.anonymize(policy).publish(tmp_path / "r.duckdb")
    check = "import sys; from pathlib import Path; from sqlanon.audit.verify import verify_file; "
    check += "found = verify_file(Path(sys.argv[1])); print(found.failures); sys.exit(not found.verified)"
    done = subprocess.run(
        [sys.executable, "-c", check, release.path],
        env=os.environ | {"TZ": zone},
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "()\n", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    "values",
    [
        "(NULL, 'N'), ('N', NULL)",
        "('a', '1:b'), ('a1:b', '')",
        "('', NULL), (NULL, '')",
        "('ü', 'u'), ('u', 'ü')",
        "('1:', 'x'), ('1', ':x')",
    ],
)
def test_digest_distinguishes_similar_tables(values: str, published_release: sqlanon.Release) -> None:
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{published_release.path}' AS r (READ_ONLY)")
        digests = set()
        for part in values.replace("), (", ")|(").split("|"):
            connection.execute(f"CREATE OR REPLACE TABLE t AS SELECT * FROM (VALUES {part}) AS v(a, b)")
            query = "SELECT digest FROM r.sqlanon.digest('memory.main.t')"
            digests.add(connection.execute(query).fetchall()[0][0])
    assert len(digests) == 2


# Parquet


@pytest.mark.thorough
def test_a_parquet_release_has_the_same_rows_and_its_manifest_in_the_metadata(
    published_release: sqlanon.Release, published_parquet: sqlanon.Release
) -> None:
    assert published_parquet.verify().verified
    fields = json.loads(pq.read_metadata(published_parquet.path).metadata[b"sqlanon"])
    assert set(fields) == MANIFEST_COLUMNS
    assert fields["digest"] == published_release.manifest.digest
    rows = duckdb.connect().execute(f"FROM '{published_parquet.path}' ORDER BY ALL").fetchall()
    assert rows == fetch(published_release.path, "FROM patients ORDER BY ALL")
    assert [path.name for path in published_parquet.path.parent.iterdir()] == ["release.parquet"]


def rewrite(path: Path, query: str, with_manifest: bool = True) -> None:
    text = pq.read_metadata(path).metadata[b"sqlanon"].decode().replace("'", "''")
    metadata = f", KV_METADATA {{sqlanon: '{text}'}}" if with_manifest else ""
    rewritten = path.with_name("other.parquet")
    duckdb.connect().execute(f"COPY ({query}) TO '{rewritten}' (FORMAT PARQUET{metadata})")
    rewritten.replace(path)


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("a b.csv", "sqlanon suggest 'a b.csv' -o policy.toml"),
        ("a b.toml", "sqlanon verify RELEASE --policy 'a b.toml'"),
    ],
)
def test_commands_for_a_foreign_file_quote_its_name(name: str, command: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("zip,age\n02138,30\n")
    with pytest.raises(ReleaseError) as caught:
        verify_file(tmp_path / name)
    assert command in str(caught.value)


@pytest.mark.slow
def test_parquet_file_without_manifest_is_refused(published_parquet: sqlanon.Release, tmp_path: Path) -> None:
    path = Path(shutil.copy(published_parquet.path, tmp_path / "copy.parquet"))
    rewrite(path, f"FROM '{path}'", with_manifest=False)
    with pytest.raises(ReleaseError, match="no manifest"):
        verify_file(path)


def test_truncated_parquet_file_is_refused(published_parquet: sqlanon.Release, tmp_path: Path) -> None:
    path = tmp_path / "copy.parquet"
    path.write_bytes(published_parquet.path.read_bytes()[:-9])
    with pytest.raises(ReleaseError):
        verify_file(path)


# What publishing never does


def other_database(path: Path) -> None:
    change(path, "CREATE TABLE patients AS SELECT 1 AS i")


def text_file(path: Path) -> None:
    path.write_text("a letter")


def empty_file(path: Path) -> None:
    path.touch()


def directory(path: Path) -> None:
    path.mkdir()


def leave_wal(path: Path) -> None:
    path.with_name(path.name + ".wal").write_bytes(b"unfinished")


NO_RELEASES = (other_database, text_file, empty_file, directory, leave_wal)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("make", "name"), some([(make, name) for name in ("r.duckdb", "r.parquet") for make in NO_RELEASES], 4)
)
def test_foreign_files_are_never_replaced(
    make: Callable[[Path], None], name: str, usual: sqlanon.Result, tmp_path: Path
) -> None:
    target = tmp_path / name
    make(target)
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    with pytest.raises(ReleaseError, match=name):
        usual.publish(target, "patients")
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


@pytest.mark.slow
def test_a_release_of_another_table_is_never_replaced(usual: sqlanon.Result, copy: Path) -> None:
    before = copy.read_bytes()
    with pytest.raises(ReleaseError, match="'patients', not of 'people'"):
        usual.publish(copy, "people")
    assert copy.read_bytes() == before


@pytest.mark.thorough
def test_a_release_that_another_process_writes_to_is_still_called_a_release(usual: sqlanon.Result, copy: Path) -> None:
    holder = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", holder, copy], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        with pytest.raises(ReleaseError) as caught:
            usual.publish(copy, "patients")
        process.communicate("")
    assert "is no release" not in str(caught.value)


def test_a_missing_folder_is_refused(usual: sqlanon.Result, tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match="create it first"):
        usual.publish(tmp_path / "nowhere" / "r.duckdb", "patients")
    assert list(tmp_path.iterdir()) == []


SUPPRESSING = {"city": "suppress", "age": "suppress", "illness": "sensitive", "stay": "insensitive"}


@pytest.mark.slow
@pytest.mark.least(3)
@pytest.mark.parametrize("way", ["its own path", "another path", "a live connection"])
def test_the_source_is_never_replaced_even_if_it_is_a_release(way: str, copy: Path, tmp_path: Path) -> None:
    target = copy
    if way == "another path":
        (tmp_path / "folder").symlink_to(tmp_path)
        target = tmp_path / "folder" / copy.name
    before = copy.read_bytes()
    with ExitStack() as stack:
        live = stack.enter_context(duckdb.connect(copy)) if way == "a live connection" else copy
        db = stack.enter_context(sqlanon.connect(live))
        with pytest.raises(ReleaseError):
            db.anonymize(make_policy(SUPPRESSING, table="patients")).publish(target)
    assert copy.read_bytes() == before


@pytest.mark.thorough
@pytest.mark.parametrize("link", ["symlink", "hardlink"])
def test_the_source_is_unharmed_where_the_target_is_a_link_to_it(link: str, copy: Path, tmp_path: Path) -> None:
    target = tmp_path / "another.duckdb"
    if link == "symlink":
        target.symlink_to(copy)
    else:
        target.hardlink_to(copy)
    before = copy.read_bytes()
    with sqlanon.connect(copy) as db, suppress(ReleaseError):
        db.anonymize(make_policy(SUPPRESSING, table="patients")).publish(target)
    assert copy.read_bytes() == before


@pytest.mark.thorough
def test_readers_of_the_old_release_keep_it(published_release: sqlanon.Release, source: Path, copy: Path) -> None:
    target, first = copy, published_release
    reader = (
        "import duckdb, sys\n"
        "with duckdb.connect(sys.argv[1], read_only=True) as c:\n"
        "    print('open', flush=True); sys.stdin.read()\n"
        "    print(c.execute(\"SELECT digest FROM sqlanon.digest('patients')\").fetchall()[0][0])"
    )
    with subprocess.Popen(
        [sys.executable, "-c", reader, target], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        second = publish(source, target, search={"suppression_limit": 0})
        out, _ = process.communicate("")
    assert out.strip() == first.manifest.digest
    assert fetch(target, "SELECT digest FROM sqlanon.digest('patients')") == [(second.manifest.digest,)]


@pytest.mark.thorough
def test_a_link_stays_a_link_and_the_release_that_it_leads_to_is_replaced(
    usual: sqlanon.Result, copy: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link.duckdb"
    link.symlink_to(copy)
    before = copy.read_bytes()
    usual.publish(link, "patients")
    assert link.is_symlink()
    assert copy.read_bytes() != before
    assert verify_file(copy).verified


# The audit


def run_audit(usual: sqlanon.Result, target: Path) -> AuditError:
    with pytest.raises(AuditError) as caught:
        usual.publish(target, "patients")
    return caught.value


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("statement", "expected_failures", "counts"),
    [
        (
            "DELETE FROM sqlanon_staged.main.patients_v2 WHERE stay % 2 = 0",
            ["manifest: contradicts itself in row counts", "300 rows are in the release (expected: 600)"],
            "16 classes, the smallest of 15 rows",
        ),
        (
            "UPDATE sqlanon_staged.main.patients_v2 SET city = 'alone' WHERE stay = 7",
            ["5-anonymity: smallest class: 1 rows (required: 5)"],
            "17 classes, the smallest of 1 rows",
        ),
    ],
)
def test_the_audit_stops_a_release_that_the_search_got_wrong(
    statement: str,
    expected_failures: list[str],
    counts: str,
    usual: sqlanon.Result,
    published_release: sqlanon.Release,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The audit counts again in the file: a fault anywhere before it does not get out."""
    target, old = Path(shutil.copy(published_release.path, tmp_path / "r.duckdb")), published_release
    detach, staged_aliases = publishing.DuckDBEngine.detach, list[str]()

    def tampering(engine: Any, alias: str) -> None:
        if alias == publishing.STAGED and not staged_aliases:
            staged_aliases.append(alias)
            engine.connection.execute(statement)
        detach(engine, alias)

    monkeypatch.setattr(publishing.DuckDBEngine, "detach", tampering)
    *failures, classes = run_audit(usual, target).failures
    assert failures == expected_failures
    searched = "are in the release; the search found 16, the smallest of 30; has the source changed since?"
    assert classes == f"{counts}, {searched}"
    monkeypatch.undo()
    assert verify_file(target).manifest == old.manifest
    assert [path.name for path in tmp_path.iterdir()] == ["r.duckdb"]


@pytest.mark.thorough
def test_the_audit_finds_a_column_that_the_policy_does_not_release(
    usual: sqlanon.Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = publishing.write_rows

    def one_more(engine: Any, content: Any, staged: Path, table_name: str, **options: Any) -> None:
        write(engine, content, staged, table_name, **options)
        change(staged, f"ALTER TABLE {table_name} ADD COLUMN name VARCHAR")

    monkeypatch.setattr(publishing, "write_rows", one_more)
    assert any("columns" in failure for failure in run_audit(usual, tmp_path / "r.duckdb").failures)
    assert list(tmp_path.iterdir()) == []


# Modes and order


@pytest.fixture
def umask() -> Iterator[Callable[[int], int]]:
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


MODES = ((0o022, 0o644), (0o077, 0o600), (0o007, 0o660))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("mask", "expected", "name"), some([(*modes, name) for name in ("r.duckdb", "r.parquet") for modes in MODES], 4)
)
def test_staging_is_private_and_the_release_has_the_mode_of_a_new_file(
    mask: int,
    expected: int,
    name: str,
    usual: sqlanon.Result,
    tmp_path: Path,
    umask: Callable[[int], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[int] = []
    swap = publishing.swap_in

    def looking(staged: Path, path: Path) -> None:
        directory = staged.parent
        assert directory.parent == tmp_path
        seen.append(stat.S_IMODE(directory.stat().st_mode))
        seen.append(stat.S_IMODE(staged.stat().st_mode))
        seen.append(stat.S_IMODE((directory / "release.duckdb").stat().st_mode))
        swap(staged, path)

    monkeypatch.setattr(publishing, "swap_in", looking)
    umask(mask)
    usual.publish(tmp_path / name, "patients")
    assert seen == [0o700, 0o600, 0o600]
    assert stat.S_IMODE((tmp_path / name).stat().st_mode) == expected


def positions(path: Path) -> list[int]:
    """The place in the source of each released row, as the release orders them."""
    if path.suffix == ".parquet":
        column: list[int] = pq.read_table(path, use_threads=False)["stay"].to_pylist()
        return column
    return [stay for (stay,) in fetch(path, "SELECT stay FROM patients_v1 ORDER BY rowid")]


@pytest.mark.parametrize("kind", ["published_release", "published_parquet"])
def test_the_rows_are_in_random_order(kind: str, request: pytest.FixtureRequest) -> None:
    order = positions(request.getfixturevalue(kind).path)
    assert sorted(order) == list(range(ROWS))
    # Rows in their old place, and rows that still follow their old neighbour: about one of each by chance.
    # More than 12 of either happens in one of ten billion shuffles.
    assert sum(place == was for place, was in enumerate(order)) <= 12
    assert sum(after == before + 1 for before, after in pairwise(order)) <= 12
    mean = (ROWS - 1) / 2
    covariance = sum((place - mean) * (was - mean) for place, was in enumerate(order))
    correlation = covariance / sum((place - mean) ** 2 for place in range(ROWS))
    assert abs(correlation) < 7 / ROWS**0.5  # seven standard deviations


# Older DuckDB

OLD = "1.5.6"
READ_WITH_OLD = """
import duckdb, sys
assert duckdb.__version__ == sys.argv[2], duckdb.__version__
with duckdb.connect(sys.argv[1], read_only=True) as c:
    print(c.execute("SELECT count(*) FROM patients").fetchall()[0][0])
    print(c.execute("SELECT digest FROM sqlanon.manifest").fetchall()[0][0])
    print(c.execute("SELECT rows FROM sqlanon.k_anonymity('patients', ['CITY', 'age'])").fetchall()[0][0])
    print(c.execute("SELECT digest FROM sqlanon.digest('patients')").fetchall()[0][0])
"""


@pytest.mark.thorough
def test_an_older_duckdb_reads_and_checks_a_release(published_release: sqlanon.Release, tmp_path: Path) -> None:
    python = tmp_path / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    installed = subprocess.run(
        [python, "-m", "pip", "install", "-q", f"duckdb=={OLD}"], check=False, capture_output=True, text=True
    )
    if installed.returncode:
        pytest.skip(f"duckdb {OLD} cannot be installed here: {installed.stderr[-200:]}")
    done = subprocess.run(
        [python, "-c", READ_WITH_OLD, published_release.path, OLD], check=False, capture_output=True, text=True
    )
    digest = published_release.manifest.digest
    assert (done.stdout.split(), done.stderr) == ([str(ROWS), digest, str(ROWS), digest], "")


# A manifest that says what to look at


@pytest.mark.thorough
@pytest.mark.parametrize("statement", ["DELETE FROM sqlanon.manifest", "UPDATE sqlanon.manifest SET policy = '[]'"])
def test_a_broken_manifest_is_a_no(copy: Path, statement: str) -> None:
    with duckdb.connect(str(copy)) as db:
        db.execute(statement)
    with pytest.raises(ReleaseError) as caught:
        verify_file(copy)
    assert caught.value.exit_status == 1
