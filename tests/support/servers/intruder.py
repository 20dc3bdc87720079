"""A hostile role on a PostgreSQL server: it may create in the schemas of releases; its traps log their role.

A trap writes to the log of the server: that stays when a transaction is rolled back, or may write nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from support.servers.postgres import Server

INTRUDER = "intruder"
_SECRET = "x"
_SPRUNG = "TRAP SPRUNG by "

_TRAPS = """
    CREATE FUNCTION traps.spring() RETURNS boolean VOLATILE LANGUAGE plpgsql AS $$
        BEGIN RAISE LOG '%', concat('TRAP ', 'SPRUNG by ', current_user); RETURN true; END $$;
    CREATE FUNCTION traps.constant(integer) RETURNS integer IMMUTABLE LANGUAGE plpgsql AS $$
        BEGIN PERFORM traps.spring(); RETURN $1; END $$;
    CREATE FUNCTION traps.of_row() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN PERFORM traps.spring(); RETURN NEW; END $$;
    CREATE FUNCTION traps.same(bigint, bigint) RETURNS boolean LANGUAGE sql AS 'SELECT traps.spring()';
    CREATE OPERATOR traps.=== (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = traps.same);
    CREATE TYPE traps.mood AS ENUM ('a', 'b', 'c');
    CREATE FUNCTION traps.as_text(traps.mood) RETURNS text LANGUAGE plpgsql AS $$
        BEGIN PERFORM traps.spring(); RETURN 'a'; END $$;
    CREATE CAST (traps.mood AS text) WITH FUNCTION traps.as_text(traps.mood) AS IMPLICIT
"""


class Intruder:
    """The role, with a separate connection. It may create objects in each schema that the superuser creates from now
    on."""

    def __init__(self, server: Server) -> None:
        self._server = server
        server.run(
            f"CREATE ROLE {INTRUDER} LOGIN PASSWORD '{_SECRET}'",
            f"ALTER DEFAULT PRIVILEGES GRANT USAGE, CREATE ON SCHEMAS TO {INTRUDER}",
            f"CREATE SCHEMA traps AUTHORIZATION {INTRUDER}",
            "GRANT USAGE ON SCHEMA traps TO PUBLIC",
        )
        self._dbapi = importlib.import_module("adbc_driver_postgresql.dbapi")
        self._connection = self._dbapi.connect(self.address)
        self.run("SET lock_timeout = '10ms'")
        for statement in _TRAPS.split(";\n"):
            self.run(statement)
        self._seen = server.log_size()

    @property
    def address(self) -> str:
        return self._server.address(INTRUDER, _SECRET)

    def run(self, statement: str) -> None:
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(statement)
        except BaseException:
            self._connection.rollback()
            raise
        self._connection.commit()

    def attempt(self, *statements: str) -> int:
        """Run statements, each for itself; how many of them the server took."""
        done = 0
        for statement in statements:
            try:
                self.run(statement)
                done += 1
            except self._dbapi.Error:
                continue
        return done

    def sprung(self) -> list[str]:
        """The roles with whose rights traps ran since this was asked last, but for the intruder's own."""
        new = self._server.log(self._seen)
        self._seen += len(new.encode())
        roles = (line.partition(_SPRUNG)[2].split()[0] for line in new.splitlines() if _SPRUNG in line)
        return [role for role in roles if role != INTRUDER]

    def close(self) -> None:
        self._connection.close()


class Statements:
    """The statements that are sent to PostgreSQL; before the first one that is chosen, by its number and its text, a
    change is made."""

    def __init__(self, is_chosen: Callable[[int, str], bool], change: Callable[[], Any]) -> None:
        self.texts: list[str] = []
        self.changed = False
        self._is_chosen, self._change, self._changing = is_chosen, change, False

    def sent(self, text: str) -> None:
        if self._changing:
            return
        if not self.changed and self._is_chosen(len(self.texts), text):
            self.changed = self._changing = True
            try:
                self._change()
            finally:
                self._changing = False
        self.texts.append(text)


@contextmanager
def changed_before(is_chosen: Callable[[int, str], bool], change: Callable[[], Any]) -> Iterator[Statements]:
    """Make a change before one of the statements that are sent to PostgreSQL within the context."""
    dbapi = importlib.import_module("adbc_driver_manager.dbapi")
    statements = Statements(is_chosen, change)

    def watch_call(function: Callable[..., Any]) -> Callable[..., Any]:
        def send(self: Any, *arguments: Any, **keywords: Any) -> Any:
            statements.sent(str(arguments[0]) if arguments else function.__name__)
            return function(self, *arguments, **keywords)

        return send

    with pytest.MonkeyPatch.context() as patch:
        for kind, name in ((dbapi.Cursor, "execute"), (dbapi.Cursor, "adbc_ingest"), (dbapi.Connection, "commit")):
            patch.setattr(kind, name, watch_call(getattr(kind, name)))
        yield statements
