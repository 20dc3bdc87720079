"""A release in PostgreSQL: a versioned table, a stable view over it, and its manifest, in a schema of their own.

All of it is one transaction: the rows are audited before anybody can see them, and whatever goes wrong leaves what was
there before. The rows of a release are public, so that they may be read back: the audit, and `verify`, hold them
against their claims in an engine of their own, by the same checks as those of a file.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import duckdb
from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.engines.postgres import PostgresEngine
from sqlanon.errors import AuditError, BrokenReleaseError, ReleaseError, SourceError
from sqlanon.policy import address_of, is_postgres, server_of, table_parts
from sqlanon.queries import postgres as pg
from sqlanon.queries.names import anonymous, col, create_view, drop_table, drop_view, number, select, star, table, text
from sqlanon.release.manifest import DIGEST, Manifest
from sqlanon.release.once import Once
from sqlanon.release.publish import Content, audited
from sqlanon.release.reader import SUBJECT, OpenRelease
from sqlanon.release.verify import Verification, verification_sql, verify_file, verify_release
from sqlanon.resources import PLAIN, macros, sql_text
from sqlanon.workdir import SPILL_PREFIX, private_directory, spill_directory


@dataclass(frozen=True)
class Spot:
    """Where in PostgreSQL a release is: the address of the server, the schema, and the name of the view."""

    address: str = field(repr=False)
    schema: str
    name: str

    @classmethod
    def of(cls, place: str, table_name: str) -> Spot:
        """Of an address, or ``env:NAME``, and ``schema.name``.

        Raises
        ------
        ReleaseError
            The name has no schema.
        SourceError
            The environment variable is not set.
        """
        parts = table_parts(table_name)
        if len(parts) != 2:
            raise ReleaseError(f"{table_name!r} names no release in PostgreSQL: write schema.name")
        return cls(address_of(place), *parts)

    @property
    def path(self) -> Path:
        """The same place for the ledger, which knows paths: no user and no password is in it."""
        return Path(f"{server_of(self.address)}/{self.schema}.{self.name}")

    @property
    def table(self) -> exp.Table:
        """The stable view."""
        return table(self.name, self.schema)


@dataclass(frozen=True)
class PostgresRelease:
    """A release that was published in PostgreSQL.

    Attributes
    ----------
    spot:
        Where it is.
    manifest:
        What it claims.
    limits:
        What `verify` may take of the machine.
    """

    spot: Spot
    manifest: Manifest
    limits: Limits = NO_LIMITS

    @property
    def path(self) -> str:
        """Server, database, schema and view, in one text; no user and no password is in it."""
        return f"{server_of(self.spot.address)}/{self.spot.schema}.{self.spot.name}"

    @property
    def table(self) -> str:
        """The view that readers know, with its schema."""
        return f"{self.spot.schema}.{self.spot.name}"

    def verify(self) -> Verification:
        """Check the release by itself, as any reader can: columns, counts, requirements, content digest.

        Raises
        ------
        ReleaseError
            It is gone, or is no release any more.
        """
        return verify_postgres(self.spot, self.limits)

    def verify_sql(self) -> list[str]:
        """The statements behind `verify`: they run in DuckDB, on a copy of the rows."""
        return verification_sql(self.manifest)


def publish_postgres(
    engine: DuckDBEngine,
    server: PostgresEngine,
    content: Content,
    spot: Spot,
    fill: Callable[[exp.Table], None],
) -> Verification:
    """Write a release to PostgreSQL, audit it there, and let readers see it: all of it, or nothing.

    Parameters
    ----------
    engine:
        Audits the rows.
    server:
        A connection to where the release goes.
    content:
        What is to be released; its query counts for nothing.
    spot:
        Where it goes.
    fill:
        Fills the table that it is given, by the connection, in the transaction that is open.

    Raises
    ------
    ReleaseError
        There is no such schema, or something else has the name, or it cannot be written.
    AuditError
        The audit refused the release; what was there before still is.
    """
    types = {column.name: column.type for column in content.columns}
    if strange := [f"{name!r} ({type_})" for name, type_ in types.items() if pg.type_there(type_) is None]:
        raise ReleaseError(
            f"PostgreSQL cannot hold the types of {', '.join(strange)} as they are: cast them in a source query"
        )
    with server.transaction(keep=False, kind=ReleaseError):
        older = _Older.found(server, spot)
        staged = table(f"{spot.name}_v{older.next_version}", spot.schema)
        server.execute(pg.released_table(staged.copy(), types))
        fill(staged.copy())
        verification = _audited(engine, server, content, spot, staged, types)
        with content.recording(verification.manifest):
            _put_in_place(server, spot, staged, older, verification.manifest)
            server.commit()
    return replace(verification, path=spot.path)


@dataclass(frozen=True)
class _Older:
    """What is there already: the number of the next version, the versioned table that readers see now, its readers."""

    next_version: int
    table: exp.Table | None
    readers: tuple[str, ...]

    @classmethod
    def found(cls, server: PostgresEngine, spot: Spot) -> _Older:
        """Look, and let nobody else publish under this name meanwhile.

        Raises
        ------
        ReleaseError
            There is no such schema, or something that is no release has the name.
        """
        lock = exp.Table(this=anonymous("pg_advisory_xact_lock", anonymous("hashtext", text(str(spot.path)))))
        server.rows(select([number(1)], lock))
        if not server.rows(pg.schema_exists(), [spot.schema])[0][0]:
            raise ReleaseError(f"there is no schema {spot.schema!r} in PostgreSQL: make it first (CREATE SCHEMA)")
        server.execute(pg.manifest_table(spot.schema))
        kinds = dict(server.rows(pg.relations_of(), [spot.schema]))
        known = server.rows(pg.manifest_of(spot.schema), [spot.name])
        if kinds.get(spot.name, "v") != "v" or (spot.name in kinds and not known):
            raise ReleaseError(
                f"{spot.schema}.{spot.name} exists and is no release of sqlanon: choose another name, or remove it"
            )
        versioned = re.compile(re.escape(spot.name) + r"_v([0-9]{1,6})")
        numbers = [int(match[1]) for name in kinds if (match := versioned.fullmatch(name))]
        own = f"{spot.name}_v{known[0][0]}" if known else ""
        readers = server.rows(pg.readers_of(), [pg.qualified(spot.schema, spot.name)])
        return cls(
            max(numbers, default=0) + 1,
            table(own, spot.schema) if own in kinds else None,
            tuple(role for (role,) in readers),
        )


def _audited(
    engine: DuckDBEngine,
    server: PostgresEngine,
    content: Content,
    spot: Spot,
    staged: exp.Table,
    types: Mapping[str, str],
) -> Verification:
    """Hold the rows that PostgreSQL has against what the run knows: counted there, and read back for all checks."""
    with (
        private_directory(Path(tempfile.gettempdir()), SPILL_PREFIX) as directory,
        server.stream(pg.travelling(star(staged.copy()), types)) as reader,
        engine.registered(reader) as relation,
    ):
        read_back = replace(content, query=pg.arrived(relation, types))
        verification = audited(engine, read_back, directory, spot.name, is_parquet=False)
    manifest = verification.manifest
    there = server.rows(pg.class_figures(staged.copy(), content.quasi))[0]
    claimed = (manifest.released_rows, manifest.classes, manifest.smallest_class)
    failures = []
    if tuple(there) != claimed:
        failures.append(f"PostgreSQL counts {there} rows, classes and rows of the smallest, and {claimed} were read")
    if (found := _types_of(server, staged.db, staged.name)) != dict(types):
        failures.append(f"the columns in PostgreSQL are {found}, and should be {dict(types)}")
    if failures:
        raise AuditError(failures)
    return verification


def _types_of(server: PostgresEngine, schema: str, name: str) -> dict[str, str]:
    """DuckDB's types of a relation's columns, PostgreSQL's where there is no equal; none if there is no relation."""
    rows = server.rows(pg.columns_of(), [pg.qualified(schema, name)])
    return {column: pg.type_here(kind) or kind for column, kind, _ in rows}


def _put_in_place(server: PostgresEngine, spot: Spot, staged: exp.Table, older: _Older, manifest: Manifest) -> None:
    """Have the view show the new version, to those who could read it before; the older one goes."""
    server.execute(drop_view(spot.table))
    server.execute(pg.stable_view(spot.table, staged.copy(), [column.name for column in manifest.columns]))
    for role in older.readers:
        server.execute(pg.grant_select(spot.table, role))
    server.execute(pg.forget_manifest(spot.schema), [spot.name])
    server.execute(pg.insert_manifest(spot.schema), [spot.name, older.next_version, manifest.to_json()])
    if older.table is not None:
        server.execute(drop_table(older.table.copy()))


@contextmanager
def open_postgres(spot: Spot, limits: Limits = NO_LIMITS) -> Iterator[OpenRelease]:
    """Open a release in PostgreSQL: its rows are read, as a reader sees them, into an engine of their own.

    Raises
    ------
    ReleaseError
        It is not there, cannot be read, or is not a release.
    """
    try:
        server = PostgresEngine.open(spot.address, "the release")
    except SourceError as error:
        raise ReleaseError(str(error)) from None
    with closing(server), spill_directory() as spill, closing(DuckDBEngine.private(spill, limits)) as engine:
        engine.script(macros(PLAIN))
        try:
            with server.told(ReleaseError), server.reading():
                manifest = _read(engine, server, spot)
        except duckdb.Error as error:
            raise BrokenReleaseError(f"{spot.path} cannot be read: a value does not have its type") from error
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BrokenReleaseError(
                f"{spot.path} was a release of sqlanon; its manifest is broken: {error}"
            ) from error
        yield OpenRelease(engine, Once(engine), manifest, is_parquet=True)  # of rows alone


def _read(engine: DuckDBEngine, server: PostgresEngine, spot: Spot) -> Manifest:
    """Copy the rows that the view shows; the manifest."""
    types = _types_of(server, spot.schema, spot.name)
    manifests: list[tuple[Any, ...]] = []
    if types and _types_of(server, spot.schema, pg.MANIFEST):
        manifests = server.rows(pg.manifest_of(spot.schema), [spot.name])
    if not manifests:
        raise ReleaseError(f"{spot.schema}.{spot.name} is no release of sqlanon: there is no manifest of it")
    manifest = Manifest.from_json(manifests[0][1])
    copied = table("rows_of_the_release")
    query = pg.travelling(select([col(name) for name in types], spot.table), types)
    with server.stream(query) as reader:
        engine.copy_arrow(copied, reader, lambda relation: pg.arrived(relation, types))
    engine.execute(create_view(SUBJECT.copy(), star(copied.copy())))
    return manifest


def verify_postgres(spot: Spot, limits: Limits = NO_LIMITS) -> Verification:
    """Verify a release in PostgreSQL by itself: columns, counts, requirements, content digest.

    Parameters
    ----------
    spot:
        Where it is.
    limits:
        What the engine that checks it may take.

    Raises
    ------
    ReleaseError
        It is not there, or not a release.
    """
    with open_postgres(spot, limits) as release:
        if release.manifest.digest_algorithm != DIGEST:
            release.engine.script(sql_text("macros_older.sql"))
        return verify_release(spot.path, release, fresh=False)


def verify_anywhere(
    release: str | os.PathLike[str], table_name: str | None, limits: Limits = NO_LIMITS
) -> Verification:
    """Verify a release by itself, be it a file or in PostgreSQL.

    Parameters
    ----------
    release:
        Its file; or ``postgresql://...`` or ``env:NAME``.
    table_name:
        In PostgreSQL its name, ``schema.name``.
    limits:
        What the engine that checks it may take.

    Raises
    ------
    ReleaseError
        It is not there, or not a release; or there is no name.
    """
    if not (isinstance(release, str) and is_postgres(release)):
        if table_name is not None:
            raise ReleaseError("a file has one release, and needs no table: leave it out")
        return verify_file(Path(release).absolute(), limits=limits)
    if table_name is None:
        raise ReleaseError("say which release in PostgreSQL: --table schema.name")
    return verify_postgres(Spot.of(release, table_name), limits)
