"""A connection pooler between sqlanon and PostgreSQL, and settings of the session that would end a long run."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlglot import parse_one

import sqlanon
from sqlanon.engines.postgres import engine as postgres_engine
from sqlanon.engines.postgres.engine import SEARCH_PATH, PostgresEngine
from support.servers.postgres import PASSWORD, Server, free_port, psql, server_user

pytest.importorskip("adbc_driver_postgresql", reason="the extra postgres is not installed")
pytestmark = pytest.mark.slow

DATABASE = "pooled"


@pytest.fixture
def pooled_server(postgres: Server) -> Iterator[Server]:
    """A database whose path has ``public`` first, where a trap lies for the driver's own queries of types."""
    psql(postgres, f"CREATE DATABASE {DATABASE}")
    psql(
        postgres,
        f"ALTER DATABASE {DATABASE} SET search_path = public, pg_catalog;"
        "CREATE FUNCTION public.unlike(regproc, int4) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN "
        "RAISE LOG '%', concat('TRAP ', 'SPRUNG by ', current_user); RETURN $1::oid <> $2::oid; END $$;"
        "CREATE OPERATOR public.!= (LEFTARG = regproc, RIGHTARG = int4, FUNCTION = public.unlike);",
        DATABASE,
    )
    postgres.intruder.sprung()
    yield postgres
    psql(postgres, f"DROP DATABASE {DATABASE} WITH (FORCE)")


@contextmanager
def pgbouncer(server: Server, folder: Path, *settings: str) -> Iterator[str]:
    """The address of a pooler in transaction mode."""
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("pgbouncer is not installed: apt-get install pgbouncer")
    port = free_port()
    users, configuration = folder / "users.txt", folder / "pgbouncer.ini"
    users.write_text(f'"holder" "{PASSWORD}"\n')
    configuration.write_text(
        "\n".join(
            [
                "[databases]",
                f"{DATABASE} = host=127.0.0.1 port={server.port} dbname={DATABASE}",
                "[pgbouncer]",
                *("listen_addr = 127.0.0.1", f"listen_port = {port}", "unix_socket_dir =", "pool_mode = transaction"),
                *("auth_type = scram-sha-256", f"auth_file = {users}", "logfile ="),
                *settings,
            ]
        )
    )
    user = server_user()
    for path in (folder, users, configuration):
        if user:
            os.chown(path, user["user"], user["group"])
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [program, str(configuration)], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder, **user
        )
        try:
            for _ in range(100):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                assert process.poll() is None, (folder / "log").read_text()
                time.sleep(0.05)
            yield f"postgresql://holder:{PASSWORD}@127.0.0.1:{port}/{DATABASE}"
        finally:
            process.terminate()
            process.wait(10)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the user of the server can read: the parents of pytest's own are closed to others."""
    with tempfile.TemporaryDirectory() as folder_name:
        yield Path(folder_name)


@pytest.mark.thorough
def test_a_pooler_that_drops_the_pinned_path_is_refused_before_any_query(pooled_server: Server, folder: Path) -> None:
    with pgbouncer(pooled_server, folder, "ignore_startup_parameters = options") as address:
        before = len(pooled_server.log())
        with pytest.raises(sqlanon.SourceError, match="a connection pooler drops the startup parameter `options`"):
            PostgresEngine.open(address, "source.postgres")
        assert "pg_type" not in pooled_server.log()[before:]
    assert pooled_server.intruder.sprung() == []


def test_a_pooler_that_refuses_the_pinned_path_is_named(pooled_server: Server, folder: Path) -> None:
    with (
        pgbouncer(pooled_server, folder) as address,
        pytest.raises(sqlanon.SourceError, match="a connection pooler refuses the startup parameter `options`"),
    ):
        PostgresEngine.open(address, "source.postgres")


def test_a_path_that_is_not_the_pinned_one_is_refused(pooled_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """If sessions are read-only by default, libpq notices nothing: the value that SHOW returns decides."""
    pooled_server.run(f"ALTER DATABASE {DATABASE} SET default_transaction_read_only = on")
    address = pooled_server.address(database=DATABASE)
    monkeypatch.setattr(postgres_engine, "pinned_address", lambda address: f"{address}?target_session_attrs=read-only")
    with pytest.raises(sqlanon.SourceError, match="a connection pooler drops the startup parameter `options`"):
        PostgresEngine.open(address, "source.postgres")
    pooled_server.intruder.sprung()  # without the pinned path, the driver steps into the trap
    monkeypatch.undo()
    with closing(PostgresEngine.open(address, "source.postgres")) as engine:
        assert engine._user_path == "public, pg_catalog"
        assert engine._show("search_path") == SEARCH_PATH


LIMITS = ("statement_timeout", "idle_in_transaction_session_timeout", "idle_session_timeout")


@pytest.mark.thorough
def test_time_limits_of_a_role_do_not_end_a_run(postgres: Server) -> None:
    postgres.run(*(f"ALTER ROLE holder SET {name} = '400ms'" for name in LIMITS))
    try:
        with closing(PostgresEngine.open(postgres.address(), "source.postgres")) as engine:
            assert [engine._show(name) for name in LIMITS] == ["0"] * len(LIMITS)
            time.sleep(0.6)
            with engine.read_only():
                engine._rows(parse_one("SELECT pg_sleep(0.6)", dialect="postgres"))
                time.sleep(0.6)
                assert engine._show("lock_timeout") == "20s"
    finally:
        postgres.run(*(f"ALTER ROLE holder RESET {name}" for name in LIMITS))
