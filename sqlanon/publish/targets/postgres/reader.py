"""Releases in PostgreSQL: their location, verification, and rows.

Released rows are public. They are read into a local engine and checked there, as those of a file are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import duckdb
from sqlglot import exp

from sqlanon.audit.verification import Verification
from sqlanon.audit.verify import find_residual_risk, verification_sql, verify_release
from sqlanon.engines.dialects import postgres
from sqlanon.engines.dialects.qualified import qualify_functions
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.engines.postgres.engine import PostgresEngine
from sqlanon.engines.travel import decode_columns, encode_columns
from sqlanon.errors import BrokenReleaseError, ReleaseError, SourceError
from sqlanon.frequency.class_sizes import class_sizes
from sqlanon.places.addresses import MANIFEST, SERVER_NAMES, format_location, resolve_postgres_address, server_address
from sqlanon.publish.targets.base import Reach
from sqlanon.publish.targets.postgres import statements
from sqlanon.publish.targets.postgres.checks import (
    Relations,
    check_catalog,
    refuse_unsafe_manifest_table,
    relation_number,
    schema_number,
)
from sqlanon.publish.targets.server import (
    ServerLocation,
    ServerRelease,
    copy_stream,
    parse_manifests,
    refuse_sha256,
    split_location,
)
from sqlanon.release.digests import hash_rows
from sqlanon.release.manifest import Manifest
from sqlanon.release.metadata import column_list
from sqlanon.release.reader import COPIED, SUBJECT, CachedQueries, OpenRelease, open_audit_engine
from sqlanon.support.checks import Check
from sqlanon.support.expressions import create_temporary_view, create_view, select_star, table
from sqlanon.support.names import table_parts
from sqlanon.support.workdir import spill_directory


@dataclass(frozen=True)
class PostgresLocation(ServerLocation):
    address: str = field(repr=False)

    server_name: ClassVar[str] = SERVER_NAMES["postgres"]
    dialect: ClassVar[str] = PostgresEngine.dialect

    @classmethod
    def parse(cls, address: str, table_name: str) -> PostgresLocation:
        parts = table_parts(table_name)
        if len(parts) != 2:
            raise ReleaseError(f"{table_name!r} is not a release in PostgreSQL: write schema.name")
        return cls(resolve_postgres_address(address), *parts)

    @property
    def path(self) -> Path:
        return Path(f"{server_address(self.address)}/{self.qualified_name}")

    @property
    def lock_name(self) -> str:
        """The name of the advisory lock that a publication holds."""
        return f"sqlanon {self.qualified_name}"

    @contextmanager
    def opened_server(self) -> Iterator[PostgresEngine]:
        try:
            server = PostgresEngine.open(self.address, "the release")
        except SourceError as error:
            raise ReleaseError(str(error)) from None
        with closing(server):
            yield server

    def verify(self, limits: Limits = NO_LIMITS, sha256: str | None = None) -> Verification:
        with self.open_verified(limits, sha256) as release:
            return release.verification

    @contextmanager
    def open_verified(self, limits: Limits, sha256: str | None = None) -> Iterator[OpenedPostgres]:
        """Read the rows into a local file and verify them, unless the catalog has something wrong."""
        refuse_sha256(sha256)
        with spill_directory() as folder:
            with self.locked_release() as locked:
                verification = locked.verify(limits, folder / "rows.duckdb")
            yield OpenedPostgres(locked, verification, folder / "rows.duckdb", limits)

    def read_manifests(self, limits: Limits) -> Sequence[Manifest] | None:
        with self.opened_server() as server:
            with server.read_only_committed(ReleaseError):
                # The server may still be committing for a client that is gone.
                server.rows(statements.advisory_lock(name=self.lock_name))
                if relation_number(server, self.schema, MANIFEST) is None:
                    return []
            with _locked_relations(server, self, needs_view=False) as relations:
                rows = read_manifest_rows(server, self, relations)
        return parse_manifests(manifest_json for _, manifest_json in rows)

    def rows(self, engine: DuckDBEngine, manifest: Manifest, alias: str = COPIED) -> AbstractContextManager[exp.Table]:
        """Copy the rows that the view shows to the engine of the source."""
        return copy_stream(engine, alias, manifest.types, self._stream(manifest))

    @contextmanager
    def open_version(
        self, limits: Limits, version: int | None, sha256: str | None, trusted: bool
    ) -> Iterator[OpenedPostgres]:
        """Open and verify the version that the view shows."""
        with self.open_verified(limits) as release:
            release.locked.refuse_flaws()
            is_verified = not release.verification.failures
            yield replace(release, is_changed=sha256 is not None and is_verified and release.sha256() != sha256)

    @contextmanager
    def _stream(self, manifest: Manifest) -> Iterator[Any]:
        with self.locked_release() as release:
            if release.refuse_flaws().manifest.fingerprint() != manifest.fingerprint():
                raise BrokenReleaseError(
                    f"{format_location(self.path)} was replaced while it was verified: verify it again"
                )
            with release.stream() as reader:
                yield reader

    @contextmanager
    def locked_release(self) -> Iterator[LockedRelease]:
        """Lock the release and check it against the catalog, before anything of it is evaluated.

        A view, an index or a policy can call functions of other users with the privileges of the reader.
        """
        with self.opened_server() as server, _locked_relations(server, self) as relations:
            rows = read_manifest_rows(server, self, relations)
            if not rows:
                raise self.manifest_is_missing()
            with self.translate_manifest_errors():
                manifest = Manifest.from_json(rows[0][1])
            checks = check_catalog(server, self, manifest, relations)
            yield LockedRelease(self, server, relations, manifest, checks)


@dataclass(frozen=True)
class LockedRelease:
    """A locked release with the checks of the catalog; its rows have not been read."""

    location: PostgresLocation
    server: PostgresEngine
    relations: Relations
    manifest: Manifest
    checks: Sequence[Check]

    @property
    def failures(self) -> Sequence[str]:
        return [f"{check.name}: {check.message}" for check in self.checks if check.passed is False]

    def refuse_flaws(self) -> LockedRelease:
        """Return the release itself, or raise an error if a check failed."""
        if self.failures:
            raise BrokenReleaseError(
                f"{format_location(self.location.path)} was changed since it was published, and is not read: "
                f"{'; '.join(self.failures)}"
            )
        return self

    def stream(self) -> AbstractContextManager[Any]:
        types = self.manifest.types
        return self.server.stream(encode_columns(column_list(self.relations.view, types), types))

    def verify(self, limits: Limits, copy: Path) -> Verification:
        """Read the rows into a new file ``copy``, and verify them there."""
        path, manifest, types = self.location.path, self.manifest, self.manifest.types
        if self.failures:
            unread = Check("rows", None, "not read: what the catalog has of the release is wrong")
            return Verification(path, manifest, (*self.checks, unread), "")
        with open_audit_engine(limits) as (engine, _):
            engine.attach(copy, _COPY, read_write=True)
            try:
                with self.stream() as reader:
                    engine.copy_arrow(_COPIED_ROWS.copy(), reader, lambda relation: decode_columns(relation, types))
            except duckdb.ConversionException as error:
                raise BrokenReleaseError(
                    f"{format_location(path)} cannot be read: a value does not fit its type"
                ) from error
            engine.execute(create_view(SUBJECT.copy(), select_star(_COPIED_ROWS.copy())))
            release = OpenRelease(engine, CachedQueries(engine), manifest)
            verification = verify_release(path, release, fresh=False)
            verification = replace(verification, checks=(*verification.checks, *self.checks))
            verification = replace(verification, residual_risk=find_residual_risk(release, verification))
            engine.detach(_COPY)
            return verification


_COPY = "sqlanon_verified_copy"
_COPIED_ROWS = table("rows_of_the_release", "main", _COPY)


@dataclass(frozen=True)
class OpenedPostgres:
    """A release that was verified, with a copy of its rows in a local file: they are not read again."""

    locked: LockedRelease  # its connection is closed
    verification: Verification
    copy: Path
    limits: Limits
    is_changed: bool = False

    def rows(self, engine: DuckDBEngine, manifest: Manifest, alias: str = COPIED) -> AbstractContextManager[exp.Table]:
        types = self.locked.refuse_flaws().manifest.types
        return copy_stream(engine, alias, types, self._stream(types))

    def sha256(self) -> str:
        with self._opened_copy() as engine:
            return hash_rows(engine, _COPIED_ROWS, self.locked.refuse_flaws().manifest.types)

    @contextmanager
    def _stream(self, types: Mapping[str, str]) -> Iterator[Any]:
        query = encode_columns(select_star(_COPIED_ROWS.copy()), types, "VARCHAR")
        with self._opened_copy() as engine, engine.stream(query) as reader:
            yield reader

    @contextmanager
    def _opened_copy(self) -> Iterator[DuckDBEngine]:
        with spill_directory() as spill, closing(DuckDBEngine.open_private(spill, self.limits)) as engine:
            engine.attach(self.copy, _COPY, read_only=True)
            yield engine


class PostgresRelease(ServerRelease):
    """A published release in PostgreSQL."""

    location: PostgresLocation

    def class_sizes_sql(self) -> str:
        """The statement of `class_sizes`, for the server with any search path."""
        return qualify_functions(self._class_sizes()).sql(self.location.dialect, pretty=True)

    def verify_sql(self) -> list[str]:
        """The statements of `verify`, for DuckDB with a copy of the rows."""
        return verification_sql(self.manifest)

    def class_sizes(self) -> list[tuple[int, int]]:
        """Count the classes of each size on the server: pairs of size in rows and number of classes, ascending."""
        with self.location.locked_release() as release:
            query = class_sizes(release.refuse_flaws().relations.view, self.manifest.quasi_identifiers)
            return [(size, classes) for size, classes, _ in release.server.rows(query)]


def release_location(release: str, table_name: str | None) -> PostgresLocation:
    return PostgresLocation.parse(*split_location(release, table_name, PostgresLocation.server_name))


def recorded_location(path: Path, table_name: str, reach: Reach) -> PostgresLocation:
    """The location that the ledger records, if the policy has the address of its server."""
    for section in () if reach.policy is None else (reach.policy.source, reach.policy.release):
        if section is not None and section.postgres is not None:
            schema = path.name.removesuffix(f".{table_name}")
            location = PostgresLocation(resolve_postgres_address(section.postgres), schema, table_name)
            if location.path == path:
                return location
    raise ReleaseError(f"{format_location(path)} is in PostgreSQL, on a server that the policy does not name")


def types_of(server: PostgresEngine, relation: exp.Table) -> dict[str, str]:
    """DuckDB's types of a relation's columns; PostgreSQL's for a type without equivalent."""
    rows = server.rows(postgres.relation_columns(), [relation_number(server, relation.db, relation.name)])
    return {column: postgres.to_duckdb_type(type_) or type_ for column, type_, _ in rows}


@contextmanager
def _locked_relations(
    server: PostgresEngine, location: PostgresLocation, needs_view: bool = True
) -> Iterator[Relations]:
    """Lock the relations of a release of one table in a read-only transaction."""
    with lock_relations(server, [location], needs_view) as relations:
        yield relations[0]


@contextmanager
def lock_relations(
    server: PostgresEngine, locations: Sequence[PostgresLocation], needs_views: bool = True
) -> Iterator[list[Relations]]:
    """Lock the relations of releases of one schema in a read-only transaction.

    The owner of a schema can rename it and create another under its name, whatever is locked. A schema of another user
    is therefore read through temporary views, which refer to relations by number.
    """
    schema = locations[0].schema
    with server.read_only_committed(ReleaseError):
        schemas = server.rows(statements.schema_properties(), [schema])
        if schemas and not schemas[0][1]:
            raise ReleaseError(f"this user may not use the schema {schema!r}: GRANT USAGE ON SCHEMA")
        if not schemas or schemas[0][3]:
            numbers: dict[exp.Table, int | None] = {}
            for location in locations:
                relations = Relations.by_name(server, location)
                _refuse_unreadable(server, location, relations, needs_views)
                numbers |= {relations.manifests: relations.manifests_number}
                numbers |= {location.table: relations.view_number} if needs_views else {}
            for relation, number in numbers.items():
                if server.rows(statements.relation_properties(), [number])[0][0] in statements.LOCKABLE_KINDS:
                    server.execute(statements.lock_relation(relation, statements.READ_LOCK))
            # Other relations may have had these names before the locks.
            yield [Relations.by_name(server, location) for location in locations]
            return
    with server.rolled_back_unless_committed(ReleaseError):
        _refuse_without_temporary_views(server, locations[0], schemas[0][2])
        for location in locations:
            _refuse_unreadable(server, location, Relations.by_name(server, location), needs_views)
        views = [
            _create_view_by_number(server, f"sqlanon release {i}", location.table)
            if needs_views
            else (location.table, None)
            for i, location in enumerate(locations)
        ]
        manifests, number = _create_view_by_number(server, "sqlanon manifests", statements.manifests(schema))
        schema_numbers = {schema_number(server, n) for n in (number, *(n for _, n in views if needs_views))}
        if len(schema_numbers) > 1:
            raise ReleaseError(f"the schema {schema!r} was replaced while it was read: repeat the command")
        server.execute(exp.Command(this="SET", expression="TRANSACTION READ ONLY"))
        yield [Relations(view_number, view, number, manifests) for view, view_number in views]


def _refuse_without_temporary_views(server: PostgresEngine, location: PostgresLocation, owner: str) -> None:
    if server.rows(postgres.has_temporary_privilege())[0][0]:
        return
    raise ReleaseError(
        f"the schema {location.schema!r} belongs to {owner}, who could replace what is in it while it is read, and "
        "this user may not make temporary views here, which prevent that: GRANT TEMPORARY ON DATABASE, not on a read "
        f"replica; or read as {owner}"
    )


def _refuse_unreadable(
    server: PostgresEngine, location: PostgresLocation, relations: Relations, needs_view: bool
) -> None:
    numbers = {MANIFEST: relations.manifests_number} | ({location.name: relations.view_number} if needs_view else {})
    if None in numbers.values():
        raise location.manifest_is_missing()
    for name, number in numbers.items():
        if not server.rows(statements.may_read(), [number])[0][0]:
            raise ReleaseError(
                f"this user may not read {location.schema}.{name}: verify needs SELECT on the view and on {MANIFEST}"
            )


def _create_view_by_number(server: PostgresEngine, name: str, relation: exp.Table) -> tuple[exp.Table, int | None]:
    """Create a temporary view of a relation, lock both, and return the view and the number of the relation."""
    view = table(name, "pg_temp")
    server.execute(create_temporary_view(table(name), select_star(relation)))
    view_number = relation_number(server, "pg_temp", name)
    server.execute(statements.lock_relation(view, statements.READ_LOCK))
    numbers = [number for (number,) in server.rows(statements.relations_read(), [view_number])]
    return view, numbers[0] if len(numbers) == 1 else None


def read_manifest_rows(
    server: PostgresEngine, location: PostgresLocation, relations: Relations
) -> list[tuple[int, str]]:
    """Read version and manifest of a release, from a table that is checked before and after it is locked."""
    refuse_unsafe_manifest_table(server, location.schema, relations.manifests_number)
    server.execute(statements.lock_relation(relations.manifests, statements.READ_LOCK))
    refuse_unsafe_manifest_table(server, location.schema, relations.manifests_number)
    return server.rows(statements.select_manifest(manifests=relations.manifests.copy()), [location.name])
