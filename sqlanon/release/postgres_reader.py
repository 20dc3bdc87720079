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

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.engines.postgres import PostgresEngine
from sqlanon.errors import BrokenReleaseError, ReleaseError, SourceError
from sqlanon.policy import address_of, server_of, shown_place, table_parts
from sqlanon.policy.postgres import MANIFEST
from sqlanon.queries import postgres as pg
from sqlanon.queries import postgres_release as pr
from sqlanon.queries.names import col, create_view, qualified, select, star, table
from sqlanon.queries.travel import arrived, travelling
from sqlanon.release.check import Check
from sqlanon.release.manifest import Manifest, versioned
from sqlanon.release.on_server import ServerRelease, version_of
from sqlanon.release.once import Once
from sqlanon.release.reader import SUBJECT, OpenRelease, load_older
from sqlanon.release.verify import Verification, verification_sql, verify_release
from sqlanon.resources import PLAIN, macros
from sqlanon.workdir import spill_directory

_TABLES = "rpfm"
"""Kinds of relations that have rows: tables, also partitioned and foreign ones, and materialized views."""


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

    @contextmanager
    def opened(self) -> Iterator[PostgresEngine]:
        """A connection there, for a while.

        Raises
        ------
        ReleaseError
            It cannot be reached.
        """
        try:
            server = PostgresEngine.open(self.address, "the release")
        except SourceError as error:
            raise ReleaseError(str(error)) from None
        with closing(server):
            yield server


def types_of(server: PostgresEngine, schema: str, name: str) -> dict[str, str]:
    """DuckDB's types of a relation's columns, PostgreSQL's where there is no equal; none if there is no relation."""
    rows = server.rows(pg.columns_of(), [qualified(schema, name)])
    return {column: pg.type_here(kind) or kind for column, kind, _ in rows}


class PostgresRelease(ServerRelease[PostgresSpot]):
    """A release that was published in PostgreSQL."""

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


@contextmanager
def open_postgres(spot: PostgresSpot, limits: Limits = NO_LIMITS) -> Iterator[OpenRelease]:
    """Open a release in PostgreSQL: its rows are read, as a reader sees them, into an engine of their own.

    Raises
    ------
    ReleaseError
        It is not there, cannot be read, or is not a release.
    """
    with _opened(spot, limits) as (release, _):
        yield release


@contextmanager
def _opened(spot: PostgresSpot, limits: Limits) -> Iterator[tuple[OpenRelease, list[Check]]]:
    """The same, with what only the server can tell of it."""
    with spot.opened() as server, spill_directory() as spill, closing(DuckDBEngine.private(spill, limits)) as engine:
        engine.script(macros(PLAIN))
        try:
            with server.told(ReleaseError), server.reading():
                manifest = _read(engine, server, spot)
                checks = _view_checks(server, spot, manifest)
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
    types = types_of(server, spot.schema, spot.name)
    manifests: list[tuple[Any, ...]] = []
    if types and types_of(server, spot.schema, MANIFEST):
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


def _view_checks(server: PostgresEngine, spot: PostgresSpot, manifest: Manifest) -> list[Check]:
    """Whether the view shows the columns of the table of its version and nothing more; whether other tables of its
    name are there. The right rows may come from the wrong place, and be others tomorrow."""
    own = spot.name if manifest.version is None else versioned(spot.name, manifest.version)
    view = qualified(spot.schema, spot.name)
    reads = server.rows(pr.behind(), [view])
    query = server.rows(pr.definition(), [view])[0][0] if reads else ""
    right = reads == [(spot.schema, own, "r")] and pr.is_column_list(query, [one.name for one in manifest.columns], own)
    shown = f"the columns of the table {own!r}, and nothing more"
    others = sorted(
        name
        for name, kind in server.rows(pr.relations_of(), [spot.schema])
        if kind in _TABLES and name != own and version_of(name, spot.name) is not None
    )
    return [
        Check("view", right, shown if right else f"{spot.name!r} is not the view of {shown}"),
        Check("versions", not others, f"not of the release: {', '.join(others)}" if others else "no other is there"),
    ]


def verify_postgres(spot: PostgresSpot, limits: Limits = NO_LIMITS) -> Verification:
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
    with _opened(spot, limits) as (release, checks):
        found = verify_release(spot.path, release, fresh=False)
        return replace(found, checks=(*found.checks, *checks))
