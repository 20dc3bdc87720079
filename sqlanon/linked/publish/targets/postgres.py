"""Linked tables in a schema of PostgreSQL: versioned tables, a view of each, and one manifest, in one transaction.

The rows are uploaded, read back and verified before the commit. The table of manifests has the same manifest for each
table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from sqlglot import exp

from sqlanon.engines.dialects import postgres
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.engines.postgres.engine import PostgresEngine
from sqlanon.engines.travel import decode_columns, encode_columns
from sqlanon.errors import BrokenReleaseError, ReleaseError
from sqlanon.linked.publish.targets.base import OpenTables, translate_manifest_errors, verify_open
from sqlanon.linked.publish.targets.server import (
    CatalogTable,
    is_linked_manifest,
    open_copied_rows,
    translate_copy_errors,
)
from sqlanon.linked.records import LinkedRecords
from sqlanon.linked.release.manifest import LinkedManifest
from sqlanon.linked.release.released_numbers import released_table
from sqlanon.linked.release.verification import LinkedVerification
from sqlanon.places.addresses import (
    MANIFEST,
    format_location,
    postgres_name_flaws,
    resolve_postgres_address,
    server_address,
)
from sqlanon.publish.targets.base import unsupported_types
from sqlanon.publish.targets.file.target import STAGED_FILE
from sqlanon.publish.targets.postgres import statements
from sqlanon.publish.targets.postgres.checks import Relations, check_table_of_several, relation_number
from sqlanon.publish.targets.postgres.reader import PostgresLocation, lock_relations, read_manifest_rows
from sqlanon.publish.targets.postgres.target import (
    ReleaseInSchema,
    ReplacedRelease,
    refuse_server,
    revoke_default_privileges,
)
from sqlanon.release.manifest import types_in
from sqlanon.release.metadata import column_list
from sqlanon.support.checks import Check, check_faults
from sqlanon.support.expressions import drop_table, quote_name, select_star
from sqlanon.support.workdir import spill_directory

_SECTION = "release.postgres"
_UPLOADED = "sqlanon_released_rows"


@dataclass(frozen=True)
class SchemaLocation:
    """A schema of PostgreSQL with linked tables."""

    address: str
    schema: str

    def __repr__(self) -> str:
        return f"SchemaLocation({format_location(self.path)!r})"

    @property
    def path(self) -> Path:
        """The server and the schema, without secrets."""
        return Path(f"{server_address(self.address)}/{self.schema}.*")

    def table(self, name: str) -> PostgresLocation:
        """One of the tables."""
        return PostgresLocation(schema=self.schema, name=name, address=self.address)

    def opened_server(self) -> AbstractContextManager[PostgresEngine]:
        """The server, opened to read the release."""
        return self.table("*").opened_server()

    @contextmanager
    def open(self, limits: Limits = NO_LIMITS) -> Iterator[OpenTables]:
        """Lock the release, check it against the catalog, and copy its rows to a separate engine."""
        with open_copied_rows(limits) as engine:
            names = self._read_names()
            locations = [self.table(name) for name in names]
            with self.opened_server() as server, lock_relations(server, locations) as relations:
                manifest = _read_manifest(server, locations, relations)
                yield _check_and_copy_tables(engine, server, self, manifest, dict(zip(names, relations, strict=True)))

    def _read_names(self) -> list[str]:
        """The tables of the release, by the table of manifests."""
        location = self.table("*")  # its manifests are those of all tables
        with self.opened_server() as server:
            with server.read_only_committed(ReleaseError):
                if relation_number(server, self.schema, MANIFEST) is None:
                    raise self.manifest_is_missing()
            with lock_relations(server, [location], needs_views=False) as (relations,):
                read_manifest_rows(server, location, relations)  # refuses a table that is not safe to read
                rows = server.rows(statements.list_manifests(manifests=relations.manifests.copy()))
        names = [name for name, text in rows if is_linked_manifest(text)]
        if not names:
            raise self.manifest_is_missing()
        return names

    def manifest_is_missing(self) -> ReleaseError:
        """The error of a schema without linked tables."""
        return ReleaseError(f"{format_location(self.path)} is not a release of linked tables: it has no manifest")


def _read_manifest(
    server: PostgresEngine, locations: Sequence[PostgresLocation], relations: Sequence[Relations]
) -> LinkedManifest:
    """The manifest of the first table."""
    path = format_location(locations[0].path)
    rows = read_manifest_rows(server, locations[0], relations[0])
    if not rows:
        raise BrokenReleaseError(f"{path} was replaced while it was read: repeat the command")
    with translate_manifest_errors(path):
        return LinkedManifest.from_json(rows[0][1])


def _check_and_copy_tables(
    engine: DuckDBEngine,
    server: PostgresEngine,
    location: SchemaLocation,
    manifest: LinkedManifest,
    relations: Mapping[str, Relations],
) -> OpenTables:
    """Check all tables against the catalog, and copy the rows if nothing is wrong."""
    text, checks = manifest.to_json(), list[Check]()
    names = {claims.name for claims in manifest.tables}
    faults = [f"table {name!r} is not in the manifest" for name in sorted(relations.keys() - names)]
    faults += [f"table {name!r} has no manifest" for name in sorted(names - relations.keys())]
    for name, relation in relations.items():
        rows = read_manifest_rows(server, location.table(name), relation)
        if [stored for _, stored in rows] != [text]:
            faults.append(f"table {name!r} has another manifest")
    checks.append(check_faults("contents", faults, f"{len(names)} tables with one manifest"))
    for claims in manifest.tables if not faults else ():
        in_catalog, table = CatalogTable(claims, manifest.version), location.table(claims.name)
        table_checks = check_table_of_several(server, table, in_catalog, relations[claims.name])
        checks += [replace(check, name=f"{check.name} of {claims.name}") for check in table_checks]
    if all(check.passed is not False for check in checks):
        for claims in manifest.tables:
            types, view = types_in(claims.columns), relations[claims.name].view
            with (
                translate_copy_errors(location.path, claims),
                server.stream(encode_columns(column_list(view, list(types)), types)) as reader,
            ):
                target = released_table(manifest, claims)
                engine.copy_arrow(target, reader, lambda rows, types=types: decode_columns(rows, types))  # type: ignore[misc]
    return OpenTables(engine, manifest, tuple(checks))


@dataclass(frozen=True)
class PostgresTarget:
    """A schema of PostgreSQL that linked tables are released to."""

    location: SchemaLocation

    @contextmanager
    def stage(self, records: LinkedRecords) -> Iterator[StagedSchema]:
        """Open a transaction that is rolled back unless it is committed."""
        location = self.location
        with (
            spill_directory() as directory,
            closing(PostgresEngine.open(location.address, _SECTION)) as server,
            server.rolled_back_unless_committed(ReleaseError),
        ):
            refuse_server(server)
            server.rows(statements.advisory_lock(name=f"sqlanon {location.schema}"))
            names = [table.name for table in records.tables]
            replaced = {name: ReleaseInSchema(server, location.table(name)).find_replaced() for name in names}
            self._refuse_other_release(server, names)
            yield StagedSchema(location, server, directory, replaced, records.limits)

    def _refuse_other_release(self, server: PostgresEngine, names: Sequence[str]) -> None:
        """Refuse a schema with a release of other tables, or a release of one table under one of the names."""
        if relation_number(server, self.location.schema, MANIFEST) is None:
            return
        rows = server.rows(statements.list_manifests(manifests=statements.manifests(self.location.schema)))
        linked_names = {name for name, text in rows if is_linked_manifest(text)}
        if linked_names and linked_names != set(names):
            raise ReleaseError(
                f"{format_location(self.location.path)} is a release of other tables: choose another schema"
            )
        if single_names := [name for name, text in rows if name in names and not is_linked_manifest(text)]:
            raise self.location.table(single_names[0]).name_is_taken()


@dataclass(frozen=True)
class StagedSchema:
    """Linked tables in an open transaction that has the lock of their schema."""

    location: SchemaLocation
    server: PostgresEngine
    directory: Path
    replaced: Mapping[str, ReplacedRelease]
    limits: Limits

    sha256: ClassVar[None] = None

    @property
    def file(self) -> Path:
        """The DuckDB file of the rows; it is not part of the release."""
        return self.directory / STAGED_FILE

    @cached_property
    def version(self) -> int:
        """The number that no table of the schema has yet."""
        return max(release.next_version for release in self.replaced.values())

    def write(self, engine: DuckDBEngine, manifest: LinkedManifest) -> None:
        """Upload the rows of all tables, and show them in the views."""
        server = self.server
        for claims in manifest.tables:
            types, table = types_in(claims.columns), self.location.table(claims.name)
            if unsupported := {
                name: type_ for name, type_ in types.items() if postgres.from_duckdb_type(type_) is None
            }:
                raise unsupported_types(unsupported, "PostgreSQL")
            target = table.version_table(manifest.version)
            server.execute(statements.create_version_table(target.copy(), types))
            revoke_default_privileges(server, target)
            rows = encode_columns(select_star(released_table(manifest, claims)), types, "VARCHAR")
            with engine.stream(rows) as reader:
                uploaded = server.upload(_UPLOADED, reader)
            query = postgres.POSTGRES.decode_uploaded(uploaded, types)
            server.execute(exp.Insert(this=target.copy(), expression=query))
            server.execute(drop_table(uploaded.copy()))
            in_schema, replaced = ReleaseInSchema(server, table), self.replaced[claims.name]
            in_schema.replace_view(target, replaced, list(types))
            in_schema.store_manifest(manifest.version, manifest.to_json())
            in_schema.drop_replaced_table(replaced)

    def verify(self, counted_manifest: LinkedManifest) -> LinkedVerification:
        """Verify the written tables, in the transaction."""
        with open_copied_rows(self.limits) as engine:
            relations = {name: Relations.by_name(self.server, self.location.table(name)) for name in self.replaced}
            locations = [self.location.table(name) for name in self.replaced]
            manifest = _read_manifest(self.server, locations, list(relations.values()))
            tables = _check_and_copy_tables(engine, self.server, self.location, manifest, relations)
            return verify_open(self.location.path, tables, counted_manifest)

    def commit(self) -> None:
        """Commit, and end the transaction in any case."""
        try:
            self.server.commit()
        finally:
            with suppress(Exception):  # the connection may be gone
                self.server.rollback()


def target_for(records: LinkedRecords, target: Any) -> PostgresTarget:
    """The schema that the policy names."""
    section = records.policy.release
    assert section is not None
    assert section.postgres is not None
    assert section.schema_name is not None
    for table in records.tables:
        for _, flaw in postgres_name_flaws(quote_name(section.schema_name, table.name)):
            raise ReleaseError(f"table {table.name!r} {flaw}")
    return PostgresTarget(SchemaLocation(resolve_postgres_address(section.postgres), section.schema_name))


def find_location(release: str, schema: str | None) -> SchemaLocation | None:
    """The location of a schema, if one is named."""
    return None if schema is None else SchemaLocation(resolve_postgres_address(release), schema)
