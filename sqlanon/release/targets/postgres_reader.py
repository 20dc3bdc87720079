"""Releases in PostgreSQL, as readers find them: opened, and held against what they claim.

The rows of a release are public: they are read into an engine of their own, and checked there as those of a file are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import duckdb
from sqlglot import exp

from sqlanon.engines.dialects import postgres as pg
from sqlanon.engines.dialects.qualified import by_full_names
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.engines.postgres import PostgresEngine
from sqlanon.engines.travel import arrived, travelling
from sqlanon.errors import BrokenReleaseError, ReleaseError, SourceError, SqlanonError
from sqlanon.expressions import col, create_temporary_table, create_view, drop_table, select, star, table
from sqlanon.policy import address_of, server_of, shown_place, table_parts
from sqlanon.policy.postgres import MANIFEST
from sqlanon.release.check import Check
from sqlanon.release.manifest import Manifest
from sqlanon.release.once import Once
from sqlanon.release.reader import COPIED, SUBJECT, OpenRelease, load_older
from sqlanon.release.targets import postgres_catalog as pc
from sqlanon.release.targets import postgres_statements as pr
from sqlanon.release.targets.on_server import ServerRelease
from sqlanon.release.targets.postgres_checks import number_of, server_checks
from sqlanon.release.verify import Verification, verification_sql, verify_release
from sqlanon.resources import PLAIN, macros
from sqlanon.workdir import spill_directory


@dataclass(frozen=True)
class PostgresSpot:
    """Where in PostgreSQL a release is: the address of the server, the schema, and the name of the view."""

    address: str = field(repr=False)
    schema: str
    name: str

    where: ClassVar[str] = "in PostgreSQL"
    dialect: ClassVar[str] = PostgresEngine.dialect

    @classmethod
    def of(cls, place: str, table_name: str) -> PostgresSpot:
        """Of an address, or ``env:NAME``, and ``schema.name``."""
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

    @contextmanager
    def opened(self) -> Iterator[PostgresEngine]:
        """A connection there, for a while."""
        try:
            server = PostgresEngine.open(self.address, "the release")
        except SourceError as error:
            raise ReleaseError(str(error)) from None
        with closing(server):
            yield server


def types_of(server: PostgresEngine, schema: str, name: str) -> dict[str, str]:
    """DuckDB's types of a relation's columns, PostgreSQL's where there is no equal; none if there is no relation."""
    rows = server.rows(pg.columns_of(), [number_of(server, schema, name)])
    return {column: pg.type_here(kind) or kind for column, kind, _ in rows}


class PostgresRelease(ServerRelease[PostgresSpot]):
    """A release that was published in PostgreSQL."""

    def verify(self) -> Verification:
        """Check the release by itself, as any reader can: columns, counts, requirements, content digest."""
        return verify_postgres(self.spot, self.limits)

    def class_sizes_sql(self) -> str:
        """The statement behind `class_sizes`, to be run on the server: it holds on any search path."""
        return by_full_names(self._class_sizes()).sql(self.spot.dialect, pretty=True)

    def verify_sql(self) -> list[str]:
        """The statements behind `verify`: they run in DuckDB, on a copy of the rows."""
        return verification_sql(self.manifest)


@contextmanager
def open_postgres(spot: PostgresSpot, limits: Limits = NO_LIMITS) -> Iterator[OpenRelease]:
    """Open a release in PostgreSQL: its rows are read, as a reader sees them, into an engine of their own."""
    with _opened(spot, limits) as (release, _):
        yield release


@contextmanager
def _opened(spot: PostgresSpot, limits: Limits) -> Iterator[tuple[OpenRelease, list[Check]]]:
    """The same, with what only the server can tell of it."""
    with spot.opened() as server, spill_directory() as spill, closing(DuckDBEngine.private(spill, limits)) as engine:
        engine.script(macros(PLAIN))
        try:
            with server.reading(ReleaseError):
                manifest = _read(engine, server, spot)
                checks = server_checks(server, spot.schema, spot.name, manifest)
        except SqlanonError:
            raise
        except duckdb.Error as error:
            raise BrokenReleaseError(
                f"{shown_place(spot.path)} cannot be read: a value does not have its type"
            ) from error
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BrokenReleaseError(
                f"{shown_place(spot.path)} was a release of sqlanon; its manifest is broken: {error}"
            ) from error
        load_older(engine, manifest)
        # Of rows alone.
        yield OpenRelease(engine, Once(engine), manifest, is_parquet=True, manifests=(manifest,)), checks


def _read(engine: DuckDBEngine, server: PostgresEngine, spot: PostgresSpot) -> Manifest:
    """Copy the rows that the view shows; the manifest."""
    schemas = server.rows(pc.schema(), [spot.schema])
    if schemas and not schemas[0][1]:
        raise ReleaseError(f"this user may not use the schema {spot.schema!r}: GRANT USAGE ON SCHEMA")
    types = types_of(server, spot.schema, spot.name) if schemas else {}
    manifests: list[tuple[Any, ...]] = []
    if types and types_of(server, spot.schema, MANIFEST):
        for name in (MANIFEST, spot.name):
            if not server.rows(pc.may_read(), [number_of(server, spot.schema, name)])[0][0]:
                raise ReleaseError(
                    f"this user may not read {spot.schema}.{name}: verify needs SELECT on the view and on {MANIFEST}"
                )
        manifests = server.rows(pr.manifest_of(spot.schema), [spot.name])
    if not manifests:
        raise ReleaseError(f"{spot.schema}.{spot.name} is no release of sqlanon: there is no manifest of it")
    manifest = Manifest.from_json(manifests[0][1])
    copied = table("rows_of_the_release")
    query = travelling(select([col(name) for name in types], spot.table), types)
    with server.stream(query) as reader:
        engine.copy_arrow(copied, reader, lambda relation: arrived(relation, types))
    engine.execute(create_view(SUBJECT.copy(), star(copied.copy())))
    return manifest


@contextmanager
def copied_rows(engine: DuckDBEngine, spot: PostgresSpot, manifest: Manifest) -> Iterator[exp.Table]:
    """The rows that the view shows, copied to the engine that has their source, for a while."""
    target, types = table(COPIED, "main", "temp"), {column.name: column.type for column in manifest.columns}
    with spot.opened() as server, server.told(ReleaseError), server.reading():
        query = travelling(select([col(name) for name in types], spot.table), types)
        with server.stream(query) as reader, engine.registered(reader) as relation:
            engine.execute(create_temporary_table(target.copy(), arrived(relation, types)))
    try:
        yield target
    finally:
        engine.execute(drop_table(target.copy()))


def verify_postgres(spot: PostgresSpot, limits: Limits = NO_LIMITS) -> Verification:
    """Verify a release in PostgreSQL by itself: columns, counts, requirements, content digest."""
    with _opened(spot, limits) as (release, checks):
        found = verify_release(spot.path, release, fresh=False)
        return replace(found, checks=(*found.checks, *checks))
