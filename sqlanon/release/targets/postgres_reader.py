"""Releases in PostgreSQL, as readers find them: opened, and held against what they claim.

The rows of a release are public: they are read into an engine of their own, and checked there as those of a file are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from sqlanon.policy.addresses import MANIFEST
from sqlanon.release.check import Check
from sqlanon.release.manifest import Manifest
from sqlanon.release.reader import COPIED, SUBJECT, Once, OpenRelease, load_older
from sqlanon.release.target import Reach, named_place
from sqlanon.release.targets import postgres_catalog as pc
from sqlanon.release.targets import postgres_statements as pr
from sqlanon.release.targets.on_server import ServerRelease, manifests_of, refuse_sha256
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
        return Path(f"{server_of(self.address)}/{self.schema}.{self.name}")

    @property
    def table(self) -> exp.Table:
        return table(self.name, self.schema)

    @contextmanager
    def opened_server(self) -> Iterator[PostgresEngine]:
        try:
            server = PostgresEngine.open(self.address, "the release")
        except SourceError as error:
            raise ReleaseError(str(error)) from None
        with closing(server):
            yield server

    def verify(self, limits: Limits = NO_LIMITS, sha256: str | None = None) -> Verification:
        """Verify the release by itself: columns, counts, requirements, content digest, and the catalog."""
        refuse_sha256(sha256)
        with _opened(self, limits) as (release, checks):
            found = verify_release(self.path, release, fresh=False)
            return replace(found, checks=(*found.checks, *checks))

    def manifests(self, limits: Limits) -> Sequence[Manifest] | None:
        """The one that the schema has of the release."""
        with self.opened_server() as server, server.translated_errors(ReleaseError):
            with server.reading():  # the server may still be at the commit of a run that is gone
                server.rows(pr.alone(str(self.path)))
            with server.reading():
                known = types_of(server, self.schema, MANIFEST)
                rows = server.rows(pr.manifest_of(self.schema), [self.name]) if known else []
        return manifests_of(text for _, text in rows)

    @contextmanager
    def rows(self, engine: DuckDBEngine, manifest: Manifest) -> Iterator[exp.Table]:
        """The rows that the view shows, copied to the engine that has their source."""
        target, types = table(COPIED, "main", "temp"), {column.name: column.type for column in manifest.columns}
        with self.opened_server() as server, server.translated_errors(ReleaseError), server.reading():
            query = travelling(select([col(name) for name in types], self.table), types)
            with server.stream(query) as reader, engine.registered(reader) as relation:
                engine.execute(create_temporary_table(target.copy(), arrived(relation, types)))
        try:
            yield target
        finally:
            engine.execute(drop_table(target.copy()))

    @contextmanager
    def opened(
        self, limits: Limits, version: int | None, sha256: str | None, trusted: bool
    ) -> Iterator[OpenedPostgres]:
        """The version that the view shows, verified."""
        with _opened(self, limits) as (release, _):
            found = verify_release(self.path, release, fresh=False)
            yield OpenedPostgres(release, found)


@dataclass(frozen=True)
class OpenedPostgres:
    """A release in PostgreSQL, read into an engine of its own."""

    release: OpenRelease
    found: Verification
    is_changed: ClassVar[bool] = False

    @property
    def manifest(self) -> Manifest:
        return self.found.manifest

    @property
    def digest(self) -> str:
        return self.found.digest

    @property
    def failures(self) -> Sequence[str]:
        return self.found.failures

    @contextmanager
    def rows(self, engine: DuckDBEngine, alias: str) -> Iterator[exp.Table]:
        target, types = table(alias, "main", "temp"), self.release.engine.columns(SUBJECT)
        with (
            self.release.engine.stream(travelling(star(SUBJECT), types, "VARCHAR")) as reader,
            engine.registered(reader) as relation,
        ):
            engine.execute(create_temporary_table(target.copy(), arrived(relation, types)))
        try:
            yield target
        finally:
            engine.execute(drop_table(target.copy()))


def place_of(place: str, table_name: str | None) -> PostgresSpot:
    return PostgresSpot.of(*named_place(place, table_name, "PostgreSQL"))


def recorded_place(path: Path, table_name: str, reach: Reach) -> PostgresSpot:
    """The release that the ledger has, by the addresses that the policy has."""
    for section in () if reach.policy is None else (reach.policy.source, reach.policy.release):
        if section is not None and section.postgres is not None:
            spot = PostgresSpot(address_of(section.postgres), path.name.removesuffix(f".{table_name}"), table_name)
            if spot.path == path:
                return spot
    raise ReleaseError(f"{shown_place(path)} is in PostgreSQL, and the policy names no server that is this one")


def types_of(server: PostgresEngine, schema: str, name: str) -> dict[str, str]:
    """DuckDB's types of a relation's columns, PostgreSQL's where there is no equal; none if there is no relation."""
    rows = server.rows(pg.columns_of(), [number_of(server, schema, name)])
    return {column: pg.type_here(kind) or kind for column, kind, _ in rows}


class PostgresRelease(ServerRelease[PostgresSpot]):
    """A release that was published in PostgreSQL."""

    def verify(self) -> Verification:
        """Check the release by itself, as any reader can: columns, counts, requirements, content digest."""
        return self.spot.verify(self.limits)

    def class_sizes_sql(self) -> str:
        """The statement behind `class_sizes`, to be run on the server: it holds on any search path."""
        return by_full_names(self._class_sizes()).sql(self.spot.dialect, pretty=True)

    def verify_sql(self) -> list[str]:
        """The statements behind `verify`: they run in DuckDB, on a copy of the rows."""
        return verification_sql(self.manifest)


@contextmanager
def _opened(spot: PostgresSpot, limits: Limits) -> Iterator[tuple[OpenRelease, list[Check]]]:
    """A release in PostgreSQL: its rows are read, as a reader sees them, into an engine of their own; and what only the
    server can tell of it."""
    with (
        spot.opened_server() as server,
        spill_directory() as spill,
        closing(DuckDBEngine.private(spill, limits)) as engine,
    ):
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
