"""Linked tables in a schema of Spark: versioned tables, a view of each, and one manifest for each table.

Spark has no transactions. All tables are written, read back and verified before the views show them. Then the views are
changed one after another, each in one step; if one cannot be changed, those before it show the earlier version again.
The views of a release show the same version, which `verify` checks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from sqlglot import exp

from sqlanon.engines.dialects.spark import SPARK
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.engines.spark.engine import SparkEngine, catalog_identity
from sqlanon.errors import BrokenReleaseError, ReleaseError, SqlanonError
from sqlanon.linked.publish.targets.base import OpenTables, translate_manifest_errors, verify_open
from sqlanon.linked.publish.targets.server import (
    CatalogTable,
    is_linked_manifest,
    open_copied_rows,
    translate_copy_errors,
)
from sqlanon.linked.records import LinkedRecords
from sqlanon.linked.release.manifest import LinkedManifest, TableClaims
from sqlanon.linked.release.released_numbers import released_table
from sqlanon.linked.release.verification import LinkedVerification
from sqlanon.places.addresses import format_location, resolve_spark_address, spark_location
from sqlanon.publish.targets.base import unsupported_types
from sqlanon.publish.targets.file.target import STAGED_FILE
from sqlanon.publish.targets.spark import catalog as spark_catalog
from sqlanon.publish.targets.spark.catalog import ReleaseCatalog, ReleaseComments, check_persistence, manifest_table
from sqlanon.publish.targets.spark.rows import copy_all_rows
from sqlanon.publish.targets.spark.target import (
    SparkLocation,
    drop_older_versions,
    drop_unpublished,
    find_next_version,
    is_supported,
    show_version,
    switch_view,
)
from sqlanon.release.manifest import types_in
from sqlanon.support.checks import check_faults
from sqlanon.support.expressions import create_table, ident, select_star
from sqlanon.support.workdir import spill_directory

_COMMENTS = ReleaseComments("one of several tables that sqlanon anonymized together; figures: the manifest")

_UPLOADED = "sqlanon_released_rows"


@dataclass(frozen=True)
class StoredTable:
    """A table of a release in the catalog, with the text of its manifest."""

    catalog: ReleaseCatalog
    version: int
    manifest: str

    @property
    def location(self) -> SparkLocation:
        """The view that shows the table."""
        assert isinstance(self.catalog.location, SparkLocation)
        return self.catalog.location


@dataclass(frozen=True)
class SparkSchema:
    """A schema of Spark with linked tables."""

    home: Any = field(repr=False)
    """The address, which may contain a token, or a session."""
    schema: str
    server: SparkEngine | None = field(default=None, repr=False, compare=False)

    @property
    def path(self) -> Path:
        """The server and the schema, without secrets."""
        address = self.home if isinstance(self.home, str) else catalog_identity(self.home)
        return spark_location(address, self.schema, "*")

    def table(self, name: str) -> SparkLocation:
        """One of the tables."""
        return replace(SparkLocation.parse(self.home, f"{self.schema}.{name}"), server=self.server)

    def opened_server(self) -> AbstractContextManager[SparkEngine]:
        """The engine of the source if the location has one, or a new engine."""
        return self.table("tables").opened_server()

    def schema_is_missing(self) -> ReleaseError:
        """The error of a schema that does not exist."""
        return self.table("tables").schema_is_missing()

    @contextmanager
    def open(self, limits: Limits = NO_LIMITS) -> Iterator[OpenTables]:
        """Check the release against the catalog, and copy its rows to a separate engine."""
        with (
            open_copied_rows(limits) as engine,
            self.opened_server() as server,
            server.translate_errors(ReleaseError),
        ):
            tables = self.read_shown_tables(server)
            if not tables:
                raise ReleaseError(
                    f"{format_location(self.path)} is not a release of linked tables: it has no manifest"
                )
            yield _check_and_copy_tables(engine, server, self.path, tables, are_shown=True)

    def read_shown_tables(self, server: SparkEngine) -> dict[str, StoredTable]:
        """The linked tables of the schema, by name, in the versions that their views show."""
        if not server.rows(spark_catalog.show_relations("SCHEMAS", self.schema)):
            raise self.schema_is_missing()
        pattern = f"*{spark_catalog.MANIFEST_SUFFIX}"
        rows = server.rows(spark_catalog.show_relations(f"TABLES IN {ident(self.schema).sql('spark')}", pattern))
        names = (re.fullmatch(rf"(.+)_v\d+{spark_catalog.MANIFEST_SUFFIX}", name.lower()) for _, name, *_ in rows)
        tables = {}
        for name in sorted({match[1] for match in names if match is not None}):
            catalog = ReleaseCatalog.read(server, self.table(name))
            version = catalog.shown_version
            if version is not None and (table := _read_table(server, catalog, version)) is not None:
                tables[name] = table
        return tables


def _read_table(server: SparkEngine, catalog: ReleaseCatalog, version: int) -> StoredTable | None:
    """A version of a linked table; None if it is a release of one table, or its manifest is not safe to read."""
    if catalog.find_manifest_flaws(version):
        return None
    assert isinstance(catalog.location, SparkLocation)
    rows = server.rows(spark_catalog.select_manifest(relation=manifest_table(catalog.location, version)))
    if len(rows) != 1 or not is_linked_manifest(rows[0][2]):
        return None
    return StoredTable(catalog, version, rows[0][2])


def _check_and_copy_tables(
    engine: DuckDBEngine, server: SparkEngine, path: Path, tables: Mapping[str, StoredTable], are_shown: bool
) -> OpenTables:
    """Check all tables against the catalog, and copy the rows if nothing is wrong. ``are_shown``: by their views."""
    texts = {table.manifest for table in tables.values()}
    with translate_manifest_errors(format_location(path)):
        manifest = LinkedManifest.from_json(next(iter(tables.values())).manifest)
    names = {claims.name.lower() for claims in manifest.tables}
    faults = ["the tables have different manifests"] if len(texts) > 1 else []
    faults += [f"table {name!r} is not in the manifest" for name in sorted(tables.keys() - names)]
    faults += [f"table {name!r} has no manifest, or no view shows it" for name in sorted(names - tables.keys())]
    faults += [
        f"table {name!r} has version {table.version}, and the manifest is of {manifest.version}"
        for name, table in tables.items()
        if table.version != manifest.version
    ]
    checks = [check_faults("contents", faults, f"{len(names)} tables with one manifest")]
    for claims in manifest.tables if not faults else ():
        catalog, in_catalog = tables[claims.name.lower()].catalog, CatalogTable(claims, manifest.version)
        table_checks = (
            catalog.checks(manifest.version, in_catalog, _COMMENTS)
            if are_shown
            else [catalog.check_tables(manifest.version, in_catalog, _COMMENTS)]
        )
        checks += [replace(check, name=f"{check.name} of {claims.name}") for check in table_checks]
    checks += check_persistence(server)
    if all(check.passed is not False for check in checks):
        for claims in manifest.tables:
            location = tables[claims.name.lower()].location
            rows = location.table if are_shown else location.version_table(manifest.version)
            with (
                translate_copy_errors(path, claims),
                copy_all_rows(engine, server, rows, types_in(claims.columns), "copied_rows") as copied_rows,
            ):
                engine.execute(create_table(released_table(manifest, claims), select_star(copied_rows.copy())))
    return OpenTables(engine, manifest, tuple(checks))


@dataclass(frozen=True)
class SparkTarget:
    """A schema of the Spark that has the source."""

    location: SparkSchema
    server: SparkEngine

    @contextmanager
    def stage(self, records: LinkedRecords) -> Iterator[StagedSchema]:
        """Prepare the next version; drop its tables on exit if no view shows them."""
        location, server = self.location, self.server
        names = [table.name.lower() for table in records.tables]
        with spill_directory() as directory, server.translate_errors(ReleaseError):
            visible_tables = location.read_shown_tables(server)
            for table in visible_tables.values():  # if Spark ended between two views, not all tables are shown
                with translate_manifest_errors(format_location(location.path)):
                    manifest = LinkedManifest.from_json(table.manifest)
                if {claims.name.lower() for claims in manifest.tables} != set(names):
                    message = "is a release of other tables: choose another schema"
                    raise ReleaseError(f"{format_location(location.path)} {message}")
            catalogs = {name: ReleaseCatalog.read(server, location.table(name)) for name in names}
            for name, catalog in catalogs.items():
                if catalog.shown_version is not None and name not in visible_tables:  # a release of this table alone
                    raise location.table(name).name_is_taken()
            version = max(map(find_next_version, catalogs.values()))
            shown_versions = {name: catalog.shown_version for name, catalog in catalogs.items()}
            staged = StagedSchema(location, server, directory, version, shown_versions, records.limits)
            try:
                yield staged
            finally:
                staged.drop_unpublished_tables()


@dataclass
class StagedSchema:
    """Linked tables in Spark that no view shows yet."""

    location: SparkSchema
    server: SparkEngine
    directory: Path
    version: int
    shown_versions: Mapping[str, int | None]
    """The version that the view of each table shows; None without a view."""
    limits: Limits
    written: list[TableClaims] = field(default_factory=list)

    sha256: ClassVar[None] = None

    @property
    def file(self) -> Path:
        """The DuckDB file of the rows; it is not part of the release."""
        return self.directory / STAGED_FILE

    @cached_property
    def _locations(self) -> dict[str, SparkLocation]:
        return {name: self.location.table(name) for name in self.shown_versions}

    def write(self, engine: DuckDBEngine, manifest: LinkedManifest) -> None:
        """Write the rows of all tables, and the manifest of each."""
        for claims in manifest.tables:
            types = types_in(claims.columns)
            if unsupported := {name: type_ for name, type_ in types.items() if not is_supported(type_)}:
                raise unsupported_types(unsupported, "a release in Spark")
        for claims in manifest.tables:
            location, types = self._locations[claims.name.lower()], types_in(claims.columns)
            rows, manifests = location.version_table(self.version), manifest_table(location, self.version)
            self.written.append(claims)
            self.server.execute(spark_catalog.create_version_table(rows.copy(), types, location.name))
            self._insert_rows(engine, released_table(manifest, claims), rows, types)
            self.server.execute(
                spark_catalog.create_version_table(manifests.copy(), spark_catalog.MANIFEST_TYPES, location.name)
            )
            self.server.execute(
                spark_catalog.insert_manifest(
                    target=manifests, release=location.name, version=self.version, manifest=manifest.to_json()
                )
            )

    def _insert_rows(
        self, engine: DuckDBEngine, released: exp.Table, target: exp.Table, types: Mapping[str, str]
    ) -> None:
        """Upload rows batch by batch. Their order was drawn before."""
        import pyarrow as pa  # noqa: PLC0415  (it is slow to load)

        with engine.stream(SPARK.encode_columns(select_star(released), types)) as reader:
            for batch in reader:
                uploaded = self.server.upload(_UPLOADED, pa.Table.from_batches([batch]))
                try:
                    query = SPARK.decode_uploaded(uploaded, types)
                    self.server.execute(exp.Insert(this=target.copy(), expression=query))
                finally:
                    self.server.forget(_UPLOADED)

    def verify(self, counted_manifest: LinkedManifest) -> LinkedVerification:
        """Verify the written tables, before the views show them."""
        with open_copied_rows(self.limits) as engine:
            tables = {}
            for name, location in self._locations.items():
                catalog = ReleaseCatalog.read(self.server, location)
                if (table := _read_table(self.server, catalog, self.version)) is None:
                    raise BrokenReleaseError(f"{location.qualified_name}: its manifest was not written")
                tables[name] = table
            opened = _check_and_copy_tables(engine, self.server, self.location.path, tables, are_shown=False)
            return verify_open(self.location.path, opened, counted_manifest)

    def commit(self) -> None:
        """Show all tables, or leave all views unchanged; then drop the older versions."""
        with self.server.translate_errors(ReleaseError), ExitStack() as undo:
            for claims in self.written:
                location = self._locations[claims.name.lower()]
                undo.callback(self._restore_view, location)
                switch_view(self.server, location, self.version, CatalogTable(claims, self.version), _COMMENTS)
            undo.pop_all()
        for location in self._locations.values():
            drop_older_versions(self.server, location, self.version)

    def _restore_view(self, location: SparkLocation) -> None:
        """Show the earlier version again, unless the view shows that of another publication.

        A failure is no `ReleaseError`: the new version may stay public, so the ledger keeps its record.
        """
        try:
            with self.server.translate_errors(ReleaseError):
                if ReleaseCatalog.read(self.server, location).shown_version in (None, self.version):
                    show_version(self.server, location, self.shown_versions[location.name])
        except Exception as error:
            message = "may show the new version, though other tables do not; publish again"
            raise SqlanonError(f"{location.qualified_name} {message}: {error}") from error

    def drop_unpublished_tables(self) -> None:
        """Drop the written tables that no view shows."""
        for claims in self.written:
            with suppress(Exception):  # Spark may be gone
                drop_unpublished(self.server, self._locations[claims.name.lower()], self.version)


def target_for(records: LinkedRecords, target: Any) -> SparkTarget:
    """The schema that the policy names, in the Spark of the source."""
    server, section = records.tables[0].run.source.server(SparkEngine), records.policy.release
    if server is None:
        raise ReleaseError("release.spark: a release in Spark needs a source in Spark; give another location")
    assert section is not None
    assert section.schema_name is not None
    location = SparkSchema(server.home, section.schema_name.lower(), server)
    for table in records.tables:
        location.table(table.name)  # refuses names that the catalog does not allow
    return SparkTarget(location, server)


def find_location(release: Any, schema: str | None) -> SparkSchema | None:
    """The location of a schema, if one is named."""
    if schema is None:
        return None
    return SparkSchema(resolve_spark_address(release) if isinstance(release, str) else release, schema.lower())
