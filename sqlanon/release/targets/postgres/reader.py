"""Releases in PostgreSQL, as readers find them: opened, and held against what they claim.

The rows of a release are public: they are read into an engine of their own, and checked there as those of a file are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import duckdb
from sqlglot import exp

from sqlanon.audit.check import Check
from sqlanon.audit.verify import find_residual_risk, verification_sql, verify_release
from sqlanon.disclosure.class_sizes import class_sizes
from sqlanon.engines.dialects import postgres as pg
from sqlanon.engines.dialects.qualified import by_full_names
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.engines.postgres.engine import PostgresEngine
from sqlanon.engines.travel import arrived, travelling
from sqlanon.errors import BrokenReleaseError, ReleaseError, SourceError
from sqlanon.places.addresses import MANIFEST
from sqlanon.policy import format_location, resolve_postgres_address, server_address, table_parts
from sqlanon.release.manifest import Manifest
from sqlanon.release.reader import COPIED, SUBJECT, CachedQueries, OpenRelease
from sqlanon.release.rows_hash import hash_rows
from sqlanon.release.targets.base import Reach, Verification, named_location
from sqlanon.release.targets.postgres import statements as ps
from sqlanon.release.targets.postgres.checks import (
    Relations,
    number_of,
    refuse_to_read_manifests,
    schema_of,
    server_checks,
)
from sqlanon.release.targets.server import ServerLocation, ServerRelease, copied, manifests_of, refuse_sha256, types_in
from sqlanon.support.expressions import col, create_table, create_temporary_view, create_view, select, star, table
from sqlanon.support.resources import PLAIN, macro_scripts
from sqlanon.support.workdir import spill_directory


@dataclass(frozen=True)
class PostgresLocation(ServerLocation):
    address: str = field(repr=False)

    where: ClassVar[str] = "PostgreSQL"
    dialect: ClassVar[str] = PostgresEngine.dialect

    @classmethod
    def of(cls, place: str, table_name: str) -> PostgresLocation:
        parts = table_parts(table_name)
        if len(parts) != 2:
            raise ReleaseError(f"{table_name!r} is not a release in PostgreSQL: write schema.name")
        return cls(resolve_postgres_address(place), *parts)

    @property
    def path(self) -> Path:
        return Path(f"{server_address(self.address)}/{self.schema}.{self.name}")

    @contextmanager
    def opened_server(self) -> Iterator[PostgresEngine]:
        try:
            server = PostgresEngine.open(self.address, "the release")
        except SourceError as error:
            raise ReleaseError(str(error)) from None
        with closing(server):
            yield server

    def verify(self, limits: Limits = NO_LIMITS, sha256: str | None = None) -> Verification:
        refuse_sha256(sha256)
        with self._checked() as checked:
            return checked.verified(limits)

    @contextmanager
    def open_verified(self, limits: Limits, sha256: str | None = None) -> Iterator[VerifiedInPostgres]:
        """Verify the release, and keep a copy of what is verified in a file of this machine."""
        refuse_sha256(sha256)
        with spill_directory() as folder:
            copy = folder / "verified.duckdb"
            with self._checked() as checked:
                verification = checked.verified(limits, copy)
            yield VerifiedInPostgres(checked, verification, copy, limits)

    def read_manifests(self, limits: Limits) -> Sequence[Manifest] | None:
        """The one that the schema has of the release."""
        with self.opened_server() as server:
            with server.reading_locked(ReleaseError):
                # The server may still be at the commit of a run that is gone.
                server.rows(ps.lock(name=self.lock_name))
                if number_of(server, self.schema, MANIFEST) is None:
                    return manifests_of([])
            with _reading(server, self, needs_view=False) as relations:
                rows = _manifests(server, self, relations)
        return manifests_of(text for _, text in rows)

    @property
    def lock_name(self) -> str:
        """The name of the lock that a publication holds in the database."""
        return f"sqlanon {self.schema}.{self.name}"

    def rows(self, engine: DuckDBEngine, manifest: Manifest) -> AbstractContextManager[exp.Table]:
        """The rows that the view shows, copied to the engine that has their source."""
        return copied(engine, table(COPIED, "main", "temp"), types_in(manifest.columns), self._stream(manifest))

    @contextmanager
    def open_version(
        self, limits: Limits, version: int | None, sha256: str | None, trusted: bool
    ) -> Iterator[OpenedPostgres]:
        """The version that the view shows, verified."""
        with self._checked() as checked, _opened(checked.trusted(), limits) as release:
            found = verify_release(self.path, release, fresh=False)
            types = types_in(found.manifest.columns)
            is_changed = (
                sha256 is not None and not found.failures and hash_rows(release.engine, SUBJECT, types) != sha256
            )
            yield OpenedPostgres(release, found.manifest, found.digest, found.failures, is_changed)

    @contextmanager
    def checked_relation(self) -> Iterator[tuple[PostgresEngine, exp.Table]]:
        """A connection, and the relation on it that shows the release as its catalog was checked, until the end."""
        with self._checked() as checked:
            yield checked.trusted().server, checked.relations.view

    @contextmanager
    def _stream(self, manifest: Manifest) -> Iterator[Any]:
        with self._checked() as checked:
            if checked.trusted().manifest.fingerprint() != manifest.fingerprint():
                raise BrokenReleaseError(
                    f"{format_location(self.path)} was replaced while it was verified: verify it again"
                )
            with checked.stream() as reader:
                yield reader

    @contextmanager
    def _checked(self) -> Iterator[CheckedRelease]:
        """The release, with what the catalog has of it: until the end, nobody can change either.

        Nothing of it is evaluated before: a view, an index or a policy may call functions of others, which run with
        the rights of whoever reads.
        """
        with self.opened_server() as server, _reading(server, self) as relations:
            manifest = _locked_manifest(server, self, relations)
            checks = server_checks(server, self, manifest, relations)
            yield CheckedRelease(self, server, relations, manifest, checks)


@dataclass(frozen=True)
class CheckedRelease:
    """A release in PostgreSQL, locked, with the checks of the server's catalog; its rows are not read yet."""

    place: PostgresLocation
    server: PostgresEngine
    relations: Relations
    manifest: Manifest
    checks: Sequence[Check]

    @property
    def failures(self) -> Sequence[str]:
        return [f"{check.name}: {check.message}" for check in self.checks if check.passed is False]

    def trusted(self) -> CheckedRelease:
        """The same, or an error if a check failed."""
        if self.failures:
            raise BrokenReleaseError(
                f"{format_location(self.place.path)} was changed since it was published, and is not read: "
                f"{'; '.join(self.failures)}"
            )
        return self

    def verified(self, limits: Limits, copy: Path | None = None) -> Verification:
        """Read the rows once, and verify them; a copy of them goes to a new file, if one is named."""
        if self.failures:
            unread = Check("rows", None, "not read: what the catalog has of the release is wrong")
            return Verification(self.place.path, self.manifest, (*self.checks, unread), "")
        with _opened(self, limits) as release:
            found = verify_release(self.place.path, release, fresh=False)
            found = replace(found, checks=(*found.checks, *self.checks))
            if copy is not None:
                release.engine.attach(copy, _COPY)
                release.engine.execute(create_table(_COPIED_ROWS.copy(), star(SUBJECT)))
                release.engine.detach(_COPY)
            return replace(found, residual_risk=find_residual_risk(release, found))

    def stream(self) -> AbstractContextManager[Any]:
        """The rows, as readers see them."""
        types = types_in(self.manifest.columns)
        return self.server.stream(travelling(select([col(name) for name in types], self.relations.view.copy()), types))


_COPY = "sqlanon_verified_copy"
_COPIED_ROWS = table("rows_of_the_release", "main", _COPY)


@dataclass(frozen=True)
class VerifiedInPostgres:
    """A release in PostgreSQL that was verified, and a copy of its rows in a file: they are not read again."""

    checked: CheckedRelease  # its server is closed
    verification: Verification
    copy: Path
    limits: Limits

    def rows(self, engine: DuckDBEngine, manifest: Manifest) -> AbstractContextManager[exp.Table]:
        types = types_in(self.checked.trusted().manifest.columns)
        return copied(engine, table(COPIED, "main", "temp"), types, self._stream(types))

    def sha256(self) -> str:
        with self._opened_copy() as engine:
            return hash_rows(engine, _COPIED_ROWS, types_in(self.checked.trusted().manifest.columns))

    @contextmanager
    def _stream(self, types: Mapping[str, str]) -> Iterator[Any]:
        with self._opened_copy() as engine, engine.stream(travelling(star(_COPIED_ROWS), types, "VARCHAR")) as reader:
            yield reader

    @contextmanager
    def _opened_copy(self) -> Iterator[DuckDBEngine]:
        with spill_directory() as spill, closing(DuckDBEngine.private(spill, self.limits)) as engine:
            engine.attach(self.copy, _COPY, read_only=True)
            yield engine


@dataclass(frozen=True)
class OpenedPostgres:
    """A release in PostgreSQL, read into an engine of its own."""

    release: OpenRelease
    manifest: Manifest
    digest: str
    failures: Sequence[str]
    is_changed: bool

    def rows(self, engine: DuckDBEngine, alias: str) -> AbstractContextManager[exp.Table]:
        own = self.release.engine
        types = own.columns(SUBJECT)
        stream = own.stream(travelling(star(SUBJECT), types, "VARCHAR"))
        return copied(engine, table(alias, "main", "temp"), types, stream)


def release_location(place: str, table_name: str | None) -> PostgresLocation:
    return PostgresLocation.of(*named_location(place, table_name, PostgresLocation.where))


def recorded_location(path: Path, table_name: str, reach: Reach) -> PostgresLocation:
    """The release that the ledger has, by the addresses that the policy has."""
    for section in () if reach.policy is None else (reach.policy.source, reach.policy.release):
        if section is not None and section.postgres is not None:
            place = PostgresLocation(
                resolve_postgres_address(section.postgres), path.name.removesuffix(f".{table_name}"), table_name
            )
            if place.path == path:
                return place
    raise ReleaseError(f"{format_location(path)} is in PostgreSQL, on a server that the policy does not name")


def types_of(server: PostgresEngine, schema: str, name: str) -> dict[str, str]:
    """DuckDB's types of a relation's columns, PostgreSQL's where there is no equal; none if there is no relation."""
    rows = server.rows(pg.columns_of(), [number_of(server, schema, name)])
    return {column: pg.type_here(kind) or kind for column, kind, _ in rows}


class PostgresRelease(ServerRelease[PostgresLocation]):
    """A release that was published in PostgreSQL."""

    def class_sizes_sql(self) -> str:
        """The statement behind `class_sizes`, to be run on the server: it holds on any search path."""
        return by_full_names(self._class_sizes()).sql(self.place.dialect, pretty=True)

    def verify_sql(self) -> list[str]:
        """The statements behind `verify`: they run in DuckDB, on a copy of the rows."""
        return verification_sql(self.manifest)

    def class_sizes(self) -> list[tuple[int, int]]:
        """How many classes there are of each size, as the server counts them: size in rows, and classes; ascending."""
        with self.place.checked_relation() as (server, relation):
            return [
                (size, classes)
                for size, classes, _ in server.rows(class_sizes(relation, self.manifest.quasi_identifiers))
            ]


@contextmanager
def _opened(checked: CheckedRelease, limits: Limits) -> Iterator[OpenRelease]:
    """The rows of a release, read as a reader sees them into an engine of their own."""
    manifest, types = checked.manifest, types_in(checked.manifest.columns)
    with spill_directory() as spill, closing(DuckDBEngine.private(spill, limits)) as engine:
        engine.script(*macro_scripts(PLAIN))
        target = table("rows_of_the_release")
        try:
            with checked.stream() as reader:
                engine.copy_arrow(target, reader, lambda relation: arrived(relation, types))
        except duckdb.ConversionException as error:
            raise BrokenReleaseError(
                f"{format_location(checked.place.path)} cannot be read: a value does not fit its type"
            ) from error
        engine.execute(create_view(SUBJECT.copy(), star(target.copy())))
        # Of rows alone.
        yield OpenRelease(engine, CachedQueries(engine), manifest, is_parquet=True, manifests=(manifest,))


@contextmanager
def _reading(server: PostgresEngine, place: PostgresLocation, needs_view: bool = True) -> Iterator[Relations]:
    """The relations of a release, locked, in a transaction in which nothing can be written.

    Whoever owns the schema can rename it and put another in its place, and no lock stops that. So a schema of somebody
    else is read by temporary views: they read relations by number, whatever these are called by then.
    """
    with server.reading_locked(ReleaseError):
        schemas = server.rows(ps.schema(), [place.schema])
        if schemas and not schemas[0][1]:
            raise ReleaseError(f"this user may not use the schema {place.schema!r}: GRANT USAGE ON SCHEMA")
        if not schemas or schemas[0][3]:
            relations = Relations.by_name(server, place)
            _refuse_unreadable(server, place, relations, needs_view)
            numbers = {relations.manifests: relations.manifests_number}
            numbers |= {place.table: relations.view_number} if needs_view else {}
            for relation, number in numbers.items():
                if server.rows(ps.relation(), [number])[0][0] in ps.LOCKABLE:
                    server.execute(ps.locked(relation, ps.READING))
            # Others may have had these names before the locks: what is checked from here on is what is read.
            yield Relations.by_name(server, place)
            return
    with server.undone_unless_committed(ReleaseError):
        _refuse_without_temporary_views(server, place, schemas[0][2])
        _refuse_unreadable(server, place, Relations.by_name(server, place), needs_view)
        view, view_number = _view_by_number(server, _RELEASE, place.table) if needs_view else (place.table, None)
        manifests, number = _view_by_number(server, _MANIFESTS, ps.manifests(place.schema))
        if needs_view and schema_of(server, view_number) != schema_of(server, number):
            raise ReleaseError(f"the schema {place.schema!r} was replaced while it was read: repeat the command")
        server.execute(exp.Command(this="SET", expression="TRANSACTION READ ONLY"))
        yield Relations(view_number, view, number, manifests)


_RELEASE, _MANIFESTS = "sqlanon release", "sqlanon manifests"
"""The temporary views that read by number."""


def _refuse_without_temporary_views(server: PostgresEngine, place: PostgresLocation, owner: str) -> None:
    if server.rows(pg.may_make_temporary())[0][0]:
        return
    raise ReleaseError(
        f"the schema {place.schema!r} belongs to {owner}, who could replace what is in it while it is read, and this "
        "user may not make temporary views here, which prevent that: GRANT TEMPORARY ON DATABASE, not on a read "
        f"replica; or read as {owner}"
    )


def _refuse_unreadable(server: PostgresEngine, place: PostgresLocation, relations: Relations, needs_view: bool) -> None:
    numbers = {MANIFEST: relations.manifests_number} | ({place.name: relations.view_number} if needs_view else {})
    if None in numbers.values():
        raise place.without_manifest()
    for name, number in numbers.items():
        if not server.rows(ps.may_read(), [number])[0][0]:
            raise ReleaseError(
                f"this user may not read {place.schema}.{name}: verify needs SELECT on the view and on {MANIFEST}"
            )


def _view_by_number(server: PostgresEngine, name: str, relation: exp.Table) -> tuple[exp.Table, int | None]:
    """Make a temporary view of a relation, and lock both; the number of the relation. Nothing of it is evaluated."""
    view = table(name, "pg_temp")
    server.execute(create_temporary_view(table(name), star(relation)))
    own = number_of(server, "pg_temp", name)
    server.execute(ps.locked(view, ps.READING))
    numbers = [number for (number,) in server.rows(ps.behind(), [own])]
    return view, numbers[0] if len(numbers) == 1 else None


def _locked_manifest(server: PostgresEngine, place: PostgresLocation, relations: Relations) -> Manifest:
    """The manifest of the release."""
    manifests = _manifests(server, place, relations)
    if not manifests:
        raise place.without_manifest()
    with place.manifest_read():
        return Manifest.from_json(manifests[0][1])


def _manifests(server: PostgresEngine, place: PostgresLocation, relations: Relations) -> list[tuple[int, str]]:
    """Version and text of the manifests of a release, from a table that is locked and checked before it is read."""
    refuse_to_read_manifests(server, place.schema, relations.manifests_number)
    server.execute(ps.locked(relations.manifests, ps.READING))
    refuse_to_read_manifests(server, place.schema, relations.manifests_number)
    return server.rows(ps.manifest_of(manifests=relations.manifests.copy()), [place.name])
