"""Servers that cannot hold a release are refused before the search, and an error blames what is at fault."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.engines.postgres import engine as postgres_engine
from sqlanon.publish.targets.base import release_location
from support.servers.intruder import changed_before
from support.servers.postgres import PASSWORD, VARIABLE, Server, binaries, free_port, psql, server_user

dbapi: Any = pytest.importorskip("adbc_driver_postgresql.dbapi", reason="the extra postgres is not installed")
pytestmark = pytest.mark.slow

HERE = f"env:{VARIABLE}"


@pytest.fixture
def small(postgres: Server) -> Iterator[Server]:
    """A small source, and a schema for releases."""
    drop = ("DROP SCHEMA IF EXISTS clinic CASCADE", "DROP SCHEMA IF EXISTS shared CASCADE")
    postgres.run(
        *drop,
        "CREATE SCHEMA clinic",
        "CREATE SCHEMA shared",
        "CREATE TABLE clinic.t AS SELECT i % 4 AS a, 'x' || i % 3 AS b FROM generate_series(1, 60) AS s(i)",
    )
    yield postgres
    postgres.run(*drop)


def policy(source: dict[str, Any], **release: Any) -> sqlanon.Policy:
    return sqlanon.Policy(
        source=source,
        attributes={"a": {"role": "quasi", "hierarchy": "suppress"}, "b": {"role": "insensitive"}},
        privacy={"k": 5},
        release=release,
    )


IN_POSTGRES = {"postgres": HERE, "table": "clinic.t"}


def publish() -> Any:
    with sqlanon.connect() as db:
        return db.anonymize(policy(IN_POSTGRES, postgres=HERE, table="shared.r")).publish()


def in_duckdb() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS SELECT i % 4 AS a, 'x' AS b FROM range(60) AS r(i)")
    return connection


def check_refused(place: str, why: str) -> None:
    """Check that the server is refused as a source and as a release location, both before the search."""
    with sqlanon.connect() as db, pytest.raises(sqlanon.SourceError, match=rf"^source\.postgres: .*{why}"):
        db.anonymize(policy({"postgres": place, "table": "clinic.t"}, database="r.duckdb", table="r"))
    with sqlanon.connect(in_duckdb()) as db, pytest.raises(sqlanon.ReleaseError, match=rf"^release\.postgres: .*{why}"):
        db.anonymize(policy({"table": "t"}, postgres=place, table="shared.r"))


@contextmanager
def replica(server: Server) -> Iterator[str]:
    """The address of a hot standby of a server."""
    folder, user = binaries(), server_user()
    assert folder is not None
    home = Path(tempfile.mkdtemp(prefix="sqlanon-replica-"))
    if user:
        shutil.chown(home, user["user"], user["group"])
    port, log = free_port(), str(home / "log")
    data = str(home / "data")

    def call(*command: str) -> None:
        environment = {"PGPASSWORD": PASSWORD, "PATH": str(folder)}
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=home, env=environment, timeout=120, **user
        )
        assert done.returncode == 0, done.stderr

    try:
        call(
            *(str(folder / "pg_basebackup"), "-D", data, "-R", "-X", "stream", "-c", "fast", "--no-sync"),
            *("-d", server.address("holder", "").replace("/postgres", "")),
        )
        control = (str(folder / "pg_ctl"), "-D", data, "-w")
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories="
        subprocess.run(
            [*control, "-l", log, "-o", options, "start"],
            check=True, cwd=home, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120, **user,
        )  # fmt: skip
        try:
            yield f"postgresql://holder:{PASSWORD}@127.0.0.1:{port}/postgres"
        finally:
            call(*control, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(home, ignore_errors=True)


def test_a_read_replica_is_refused_and_a_release_on_it_can_be_verified(
    small: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish()
    with replica(small) as address:
        monkeypatch.setenv("REPLICA", address)
        assert release_location("env:REPLICA", "shared.r").verify().verified
        check_refused("env:REPLICA", "the server is a read replica")


def test_a_database_that_is_not_in_utf8_is_refused(small: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    psql(small, "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    try:
        psql(small, "CREATE SCHEMA clinic; CREATE SCHEMA shared; CREATE TABLE clinic.t (a int, b text);", "latin")
        monkeypatch.setenv("LATIN", small.address(database="latin"))
        check_refused("env:LATIN", "the database is encoded in LATIN1, which cannot hold every label")
    finally:
        psql(small, "DROP DATABASE latin WITH (FORCE)")


def failing(call: Callable[[], Any]) -> str:
    with pytest.raises(sqlanon.SqlanonError) as error:
        call()
    return str(error.value)


BLAMES = ("manifest", "has the source changed", "was changed", "tampered", "does not fit")


def check_blames_nothing_else(message: str, reason: str) -> None:
    assert reason in message
    assert not [words for words in BLAMES if words in message.replace("sqlanon_manifest", "")], message


@pytest.mark.thorough
def test_a_table_that_is_locked_is_named_as_that(small: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    publish()
    monkeypatch.setitem(postgres_engine._SETTINGS, "lock_timeout", "100ms")
    for relation in ("shared.r", "shared.r_v1", "shared.sqlanon_manifest", "clinic.t"):
        with closing(dbapi.connect(small.address())) as connection, connection.cursor() as cursor:
            cursor.execute(f"LOCK TABLE {relation} IN ACCESS EXCLUSIVE MODE")
            calls: Sequence[Callable[[], Any]] = [publish]
            if relation.startswith("shared"):
                calls = [publish, release_location(HERE, "shared.r").verify]
            for call in calls:
                check_blames_nothing_else(failing(call), "a table is locked by another transaction")


END = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'sqlanon'"


@pytest.mark.parametrize("text", ['INSERT INTO "shared"."r_v1"', 'FROM (SELECT * FROM "shared"."r_v1"', "DELETE FROM"])
def test_a_connection_that_ends_while_a_release_is_published_is_named_as_that(small: Server, text: str) -> None:
    with changed_before(lambda number, sent: text in sent, lambda: small.rows(END)) as statements:
        check_blames_nothing_else(failing(publish), "release.postgres: PostgreSQL says: the connection was lost")
    assert statements.changed


def test_a_connection_that_ends_while_rows_are_read_is_named_as_that(
    small: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.run("INSERT INTO clinic.t SELECT i % 4, repeat('x', 1000) FROM generate_series(1, 40000) AS s(i)")
    publish()
    stream = postgres_engine.PostgresEngine.stream

    @contextmanager
    def end_connection(self: Any, *arguments: Any) -> Iterator[Any]:
        with stream(self, *arguments) as reader:
            if '"r' in self.sql(arguments[0]):
                small.rows(END)
            yield reader

    monkeypatch.setattr(postgres_engine.PostgresEngine, "stream", end_connection)
    for call in (publish, release_location(HERE, "shared.r").verify):
        message = failing(call)
        assert "PostgreSQL" in message or "the statement failed while its rows were read" in message
        check_blames_nothing_else(message, "")


def test_a_timestamp_that_duckdb_does_not_have_is_named(small: Server, tmp_path: Path) -> None:
    small.run("ALTER TABLE clinic.t ALTER b TYPE timestamp USING timestamp '294276-01-01' + a * interval '1 hour'")
    why = "'b' cannot be read: NaN in a numeric column, dates before Christ and timestamps after"
    for place in (None, tmp_path / "r.duckdb"):
        with sqlanon.connect() as db:
            result = db.anonymize(policy(IN_POSTGRES, postgres=HERE, table="shared.r"))
            check_blames_nothing_else(failing(lambda: result.publish(place)), why)  # noqa: B023


def test_a_released_timestamp_that_was_changed_is_an_error_of_the_release(small: Server) -> None:
    small.run("ALTER TABLE clinic.t ALTER b TYPE timestamp USING timestamp '2026-01-01' + a * interval '1 hour'")
    release = publish()
    small.run("UPDATE shared.r_v1 SET b = timestamp '294276-01-01'")
    assert "cannot be read: a value does not fit its type" in failing(release.verify)
