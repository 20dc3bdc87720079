"""A PostgreSQL server of the tests' own: a new cluster in a temporary folder, on loopback, gone at the end."""

from __future__ import annotations

import importlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

PASSWORD = "pw-9f3e-of-the-tests"
VARIABLE = "SQLANON_TEST_POSTGRES"


class Server:
    """A running server, and a connection of its superuser."""

    intruder: Any  # a hostile role on it

    def __init__(self, port: int, log: Path) -> None:
        dbapi = importlib.import_module("adbc_driver_postgresql.dbapi")
        self.port, self._log = port, log
        self._connection = dbapi.connect(self.address())
        self.run("SET TimeZone TO 'UTC'")

    def address(self, user: str = "holder", password: str = PASSWORD, database: str = "postgres") -> str:
        secret = f":{password}" if password else ""
        return f"postgresql://{user}{secret}@127.0.0.1:{self.port}/{database}"

    def run(self, *statements: str) -> None:
        try:
            for statement in statements:
                with self._connection.cursor() as cursor:
                    cursor.execute(statement)
        except BaseException:
            self._connection.rollback()
            raise
        self._connection.commit()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(query)
            rows = list(cursor.fetchall())
        self._connection.rollback()
        return rows

    def load(self, name: str, columns: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> None:
        """Make a table; values as text, NULL as None."""
        texts = [[None if row[i] is None else str(row[i]) for row in rows] for i in range(len(columns))]
        names = [f"c{i}" for i in range(len(columns))]
        with self._connection.cursor() as cursor:
            arrays = [pa.array(text, pa.string()) for text in texts]
            cursor.adbc_ingest("loaded", pa.table(arrays, names=names), mode="create", temporary=True)
        casts = ", ".join(
            f"CAST(c{i} AS {kind.partition(' COLLATE')[0]}) AS {_quote_name(column)}"
            for i, (column, kind) in enumerate(columns.items())
        )
        definitions = ", ".join(f"{_quote_name(column)} {kind}" for column, kind in columns.items())
        self.run(f"CREATE TABLE {name} ({definitions})", f"INSERT INTO {name} SELECT {casts} FROM loaded")
        self.run("DROP TABLE loaded")

    def log(self, start: int = 0) -> str:
        """Server log, from a byte on."""
        with self._log.open("rb") as log:
            log.seek(start)
            return log.read().decode()

    def log_size(self) -> int:
        return self._log.stat().st_size

    def close(self) -> None:
        self._connection.close()


def _quote_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def binaries() -> Path | None:
    """The folder of initdb and pg_ctl: of the newest version that Debian's packages have, else on the path."""
    candidates = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    initdb = str(candidates[-1]) if candidates else shutil.which("initdb")
    return None if initdb is None else Path(initdb).parent


def psql(server: Server, script: str, database: str = "postgres", path: str | None = "pg_catalog") -> str:
    """Output of a script, run as people run one; on the path of the database, if none is given."""
    folder = binaries()
    assert folder is not None
    environment = {**os.environ, "PGPASSWORD": PASSWORD, "PGOPTIONS": "" if path is None else f"-csearch_path={path}"}
    done = subprocess.run(
        [str(folder / "psql"), "-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1", server.address("holder", "", database)],
        input=script,
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def server_user() -> dict[str, Any]:
    """The user that runs the server, which refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    user = names.get("postgres") or names.get("nobody")
    if user is None:
        pytest.skip("PostgreSQL does not run as root, and another user is missing")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


@contextmanager
def running() -> Iterator[Server]:
    """A running server; skips the test if PostgreSQL is not installed."""
    pytest.importorskip("adbc_driver_postgresql", reason="the extra postgres is not installed")
    folder = binaries()
    if folder is None:
        pytest.skip("there is no PostgreSQL server on this machine: apt-get install postgresql")
    user, home = server_user(), Path(tempfile.mkdtemp(prefix="sqlanon-postgres-"))
    if user:
        os.chown(home, user["user"], user["group"])

    def call(*command: str | Path) -> None:
        done = subprocess.run(
            [str(argument) for argument in command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=home,
            check=False,
            **user,
        )
        assert done.returncode == 0, done.stderr

    data, secret, log = home / "data", home / "secret", home / "log"
    secret.write_text(PASSWORD)
    secret.chmod(0o644)
    port = free_port()
    try:
        call(
            *(folder / "initdb", "-D", data, "-U", "holder", "--auth=scram-sha-256", f"--pwfile={secret}"),
            *("-E", "UTF8", "--locale=C.UTF-8", "--no-sync"),
        )
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"
        options += " -c log_statement=all -c log_duration=off"
        call(folder / "pg_ctl", "-D", data, "-w", "-l", log, "-o", options, "start")
        try:
            server = Server(port, log)
            yield server
            server.close()
        finally:
            call(folder / "pg_ctl", "-D", data, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(home, ignore_errors=True)
