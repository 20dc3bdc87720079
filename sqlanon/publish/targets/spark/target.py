"""Releases in Spark: their location, verification, rows, and publishing.

A versioned table and its manifest are written and audited, then the view is switched to them. Spark has no
transactions. Readers use the view, which one statement changes (``ALTER VIEW ... AS``). A publication that stops
earlier leaves the view unchanged, and tables without readers that the next publication removes.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, NoReturn
from uuid import uuid4

from sqlglot import exp

from sqlanon.audit.verification import Verification
from sqlanon.audit.verify import ROWS_NOT_READ, verification_sql
from sqlanon.engines.dialects.spark import from_duckdb_type, to_duckdb_type
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.engines.spark.engine import SparkEngine, catalog_identity
from sqlanon.engines.spark.errors import describe_error, error_condition, is_spark_error
from sqlanon.errors import AuditError, BrokenReleaseError, ReleaseError, SourceError
from sqlanon.places.addresses import (
    SERVER_NAMES,
    format_location,
    resolve_spark_address,
    spark_location,
    spark_name_flaw,
)
from sqlanon.publish.targets.base import Draft, Reach, ReleaseTarget, refuse_draft_over, unsupported_types
from sqlanon.publish.targets.server import (
    ServerLocation,
    ServerRelease,
    ServerTarget,
    StagedOnServer,
    next_version,
    parse_manifests,
    refuse_sha256,
    release_section,
    split_location,
)
from sqlanon.publish.targets.spark import catalog as spark_catalog
from sqlanon.publish.targets.spark.catalog import (
    CatalogClaims,
    CatalogEntry,
    ReleaseCatalog,
    ReleaseComments,
    check_persistence,
    flaws_before_reading,
    manifest_table,
    table_version,
)
from sqlanon.publish.targets.spark.rows import (
    CountedRelease,
    checked_columns,
    columns_checked_by,
    combinations_query,
    copy_all_rows,
    count_release,
    digest_query,
    hash_rows_in_spark,
    is_digestible,
    pin_rows,
)
from sqlanon.release.manifest import Facts, Manifest, types_in
from sqlanon.release.metadata import SuppressedRows
from sqlanon.release.reader import COPIED, SUBJECT
from sqlanon.requirements.macros import call_k_anonymity
from sqlanon.support.checks import Check
from sqlanon.support.expressions import as_column, col, drop_table, drop_view, select_star, table, text
from sqlanon.support.names import table_parts


@dataclass(frozen=True)
class SparkLocation(ServerLocation):
    session: Any = field(default=None, repr=False, compare=False)
    server: SparkEngine | None = field(default=None, repr=False, compare=False)

    server_name: ClassVar[str] = SERVER_NAMES["spark"]
    dialect: ClassVar[str] = SparkEngine.dialect

    @classmethod
    def parse(cls, server: Any, table_name: str) -> SparkLocation:
        """Parse a session, an address or ``env:NAME``, and ``schema.name``; names in lower case as in the catalog."""
        if flaw := spark_name_flaw(table_name):
            raise ReleaseError(f"{table_name!r} is not a release in Spark: it {flaw}")
        schema, name = (part.lower() for part in table_parts(table_name))
        if isinstance(server, str):
            return cls(resolve_spark_address(server), schema, name)
        return cls(None, schema, name, server)

    @property
    def path(self) -> Path:
        return spark_location(self.address or catalog_identity(self.session), self.schema, self.name)

    @contextmanager
    def opened_server(self) -> Iterator[SparkEngine]:
        """The engine of the source if the location has one, or a new engine."""
        if self.server is not None:
            yield self.server
            return
        purpose = "the release"
        try:
            engine = SparkEngine.open(self.address, purpose) if self.address else SparkEngine(self.session, purpose)
        except SourceError as error:
            raise ReleaseError(str(error)) from None
        with closing(engine):
            yield engine

    def verify(self, limits: Limits = NO_LIMITS, sha256: str | None = None) -> Verification:
        with self.open_verified(limits, sha256, pins_rows=False) as release:
            return release.verification

    @contextmanager
    def open_verified(self, limits: Limits, sha256: str | None = None, pins_rows: bool = True) -> Iterator[OpenedSpark]:
        """Verify the release. Spark keeps pinned rows: they can be read again, and are those that were verified."""
        refuse_sha256(sha256)
        with ExitStack() as stack:
            server, rows = stack.enter_context(self.opened_server()), self.table
            with server.translate_errors(ReleaseError):
                manifest, checks = self._check_catalog(server)
                if flaws_before_reading(checks):
                    verification = Verification(self.path, manifest, (ROWS_NOT_READ, *checks), digest="")
                else:
                    if pins_rows:
                        rows, _ = stack.enter_context(pin_rows(server, select_star(rows)))
                    checked = columns_checked_by(manifest)
                    with count_release(server, rows, manifest.columns, checked, limits) as release:
                        verification = release.verify(manifest, self.path)
                    verification = replace(verification, checks=(*verification.checks, *checks))
            yield OpenedSpark(self, server, rows, verification)

    def _check_catalog(self, server: SparkEngine) -> tuple[Manifest, Sequence[Check]]:
        """Read the manifest and check the release against the catalog."""
        catalog = ReleaseCatalog.read(server, self)
        version = catalog.readable_version
        # A relation is read only after the catalog has described it as a plain table, or a view of one.
        if flaws := catalog.find_manifest_flaws(version):
            raise self.unreadable_release_error([f"{manifest_table(self, version).name}: {'; '.join(flaws)}"])
        rows = server.rows(spark_catalog.select_manifest(relation=manifest_table(self, version)))
        with self.translate_manifest_errors():
            if len(rows) != 1:
                raise ValueError(f"it has {len(rows)} rows")
            release, number, manifest_json = rows[0]
            manifest = Manifest.from_json(manifest_json)
            columns_checked_by(manifest)
        claimed = (release, number, manifest.table_name, manifest.version)
        is_own = claimed == (self.name, version, self.name, version)
        message = f"of version {version}" if is_own else f"not of version {version} of {self.name!r}"
        return manifest, (
            Check("manifest table", is_own, message),
            *catalog.checks(version, manifest, ReleaseComments.of(self, version, manifest)),
            *check_persistence(server),
        )

    def read_manifests(self, limits: Limits) -> Sequence[Manifest] | None:
        with self.opened_server() as server, server.translate_errors(ReleaseError):
            return self.shown_manifests(ReleaseCatalog.read(server, self))

    def shown_manifests(self, catalog: ReleaseCatalog) -> Sequence[Manifest] | None:
        """The manifest of the version that the view shows; None if it cannot be read."""
        if (version := catalog.shown_version) is None:
            return []
        if catalog.find_manifest_flaws(version):
            return None
        rows = catalog.server.rows(spark_catalog.select_manifest(relation=manifest_table(self, version)))
        return parse_manifests(manifest_json for _, _, manifest_json in rows)

    def unreadable_release_error(self, flaws: Sequence[str]) -> BrokenReleaseError:
        return BrokenReleaseError(
            f"{format_location(self.path)} was a release of sqlanon; {'; '.join(flaws)}. Nothing of it was read"
        )

    @contextmanager
    def rows(self, engine: DuckDBEngine, manifest: Manifest, alias: str = COPIED) -> Iterator[exp.Table]:
        with self.opened_server() as server, server.translate_errors(ReleaseError):
            version = manifest.version or 1
            comments = ReleaseComments.of(self, version, manifest)
            checks = ReleaseCatalog.read(server, self).checks(version, manifest, comments)
            if flaws := flaws_before_reading(checks):
                raise self.unreadable_release_error(flaws)
            with copy_all_rows(engine, server, self.table, manifest.types, alias) as rows:
                yield rows

    def open_version(self, limits: Limits, version: int | None, sha256: str | None, trusted: bool) -> NoReturn:
        raise _not_compared(self.path)


@dataclass(frozen=True)
class OpenedSpark:
    """A release that was verified while Spark keeps its rows: they are not read again."""

    location: SparkLocation
    server: SparkEngine
    pinned_rows: exp.Table
    verification: Verification
    is_changed: ClassVar[bool] = False

    @contextmanager
    def rows(self, engine: DuckDBEngine, manifest: Manifest, alias: str = COPIED) -> Iterator[exp.Table]:
        if flaws := flaws_before_reading(self.verification.checks):
            raise self.location.unreadable_release_error(flaws)
        copied = copy_all_rows(engine, self.server, self.pinned_rows, manifest.types, alias)
        with self.server.translate_errors(ReleaseError), copied as rows:
            yield rows

    def sha256(self) -> str:
        with self.server.translate_errors(ReleaseError):
            return hash_rows_in_spark(self.server, self.pinned_rows, self.verification.manifest.columns)


@dataclass(frozen=True)
class SparkRelease(ServerRelease):
    """A published release in Spark."""

    warnings: tuple[str, ...] = ()

    def verify_sql(self) -> list[str]:
        """The statements of `verify`. The content digest and the combinations of the columns that the requirements read
        are computed in Spark; the other statements run in DuckDB, on these combinations."""
        spark_statements = [
            digest_query(self.location.table, self.manifest.types),
            combinations_query(self.location.table, columns_checked_by(self.manifest), "rows"),
        ]
        local_statements = [sql for sql in verification_sql(self.manifest) if ".DIGEST(" not in sql.upper()]
        return [*(statement.sql(SparkEngine.dialect) for statement in spark_statements), *local_statements]


def release_location(release: Any, table_name: str | None) -> SparkLocation:
    return SparkLocation.parse(*split_location(release, table_name, SparkLocation.server_name))


def recorded_location(path: Path, table_name: str, reach: Reach) -> SparkLocation:
    """The location that the ledger records, if it is in the Spark of the source."""
    server = None if reach.source is None else reach.source.server(SparkEngine)
    if server is not None:
        location = replace(SparkLocation.parse(server.home, path.name), server=server)
        if location.path == path:
            return location
    raise _not_compared(path)


def _not_compared(path: Path) -> ReleaseError:
    return ReleaseError(f"{format_location(path)} is in Spark, and releases there cannot be compared yet")


_MAX_BLOCKED_VERSIONS = 1000
LOCATION_EXISTS = "LOCATION_ALREADY_EXISTS"


@dataclass(frozen=True)
class SparkTarget(ServerTarget):
    """A release in a schema of the Spark that has the source."""

    location: SparkLocation
    server: SparkEngine

    @contextmanager
    def stage(self, draft: Draft) -> Iterator[StagedSpark]:
        server, location, policy = self.server, self.location, draft.search_input.policy
        columns = draft.columns()
        types = types_in(columns)
        if unsupported := {name: type_ for name, type_ in types.items() if not is_supported(type_)}:
            raise unsupported_types(unsupported, "a release in Spark")
        with server.translate_errors(ReleaseError), draft.remote_rows() as query:
            catalog = ReleaseCatalog.read(server, location)
            version = find_next_version(catalog)
            if draft.is_draft:
                refuse_draft_over(location.shown_manifests(catalog), location.qualified_name)
            version = _create_version_table(server, location, types, version)
            rows_table = location.version_table(version)
            try:
                _insert_rows(draft.run.engine, server, rows_table, query, list(types))
                if flaws := ReleaseCatalog.read(server, location).find_flaws(rows_table, types):
                    raise AuditError([f"{rows_table.name}: {'; '.join(flaws)}"])
                checked = checked_columns(policy.redact()["privacy"], draft.quasi_identifiers, columns)
                with ExitStack() as stack:
                    rows = rows_table
                    if policy.catalog is not None:  # the ledger records a hash of the audited rows
                        rows, _ = stack.enter_context(pin_rows(server, select_star(rows_table)))
                    counting = count_release(server, rows, columns, checked, draft.run.engine.limits)
                    yield StagedSpark(self, draft, version, rows, stack.enter_context(counting))
            except BaseException:
                with suppress(Exception):  # Spark may be gone
                    drop_unpublished(server, location, version)
                raise

    def facts(self, staged: StagedSpark) -> Facts:
        release, draft = staged.counted_release, staged.draft
        if release.invalid_texts:
            raise AuditError([release.invalid_texts_message()])
        if not release.digest:
            raise AuditError([f"the columns in Spark are {release.types}, and should be {types_in(draft.columns())}"])
        query = call_k_anonymity(SUBJECT.name, draft.quasi_identifiers)
        smallest_class, classes, rows, _ = release.queries.rows(query)[0]
        return Facts(rows, classes, smallest_class or 0, release.digest, staged.version)

    def commit(self, staged: StagedSpark, manifest: Manifest) -> SparkRelease:
        comments = ReleaseComments.of(self.location, staged.version, manifest)
        switch_view(self.server, self.location, staged.version, manifest, comments)
        notes = [
            *drop_older_versions(self.server, self.location, staged.version),
            *check_persistence(self.server),
        ]
        warnings = tuple(note.message for note in notes)
        return SparkRelease(self.location, manifest, staged.draft.run.engine.limits, warnings)


def target_for(draft: Draft, target: object, table_name: str | None) -> ReleaseTarget:
    """The schema that the policy names, in the Spark of the source."""
    if (server := draft.search_input.source.server(SparkEngine)) is None:
        raise ReleaseError("a release in Spark needs a source in Spark")
    return SparkTarget(SparkLocation.parse(server.home, table_name or release_section(draft).table), server)


@dataclass(frozen=True)
class StagedSpark(StagedOnServer):
    """A release in a table that no view shows, and its figures. With a ledger, they are of rows that Spark keeps."""

    target: SparkTarget
    draft: Draft
    version: int
    audited_rows: exp.Table
    counted_release: CountedRelease

    def rows(self) -> AbstractContextManager[exp.Table]:
        return self.counted_release.copied_rows(self.draft.run.engine)

    def hash_rows(self) -> str:
        return hash_rows_in_spark(self.target.server, self.audited_rows, self.draft.columns())

    def complete(self, manifest: Manifest, suppressed: SuppressedRows) -> Verification:
        server, location, version = self.target.server, self.target.location, self.version
        verification = self.counted_release.verify(manifest, location.path)
        manifests = manifest_table(location, version)
        server.execute(
            spark_catalog.create_version_table(manifests.copy(), spark_catalog.MANIFEST_TYPES, location.name)
        )
        server.execute(
            spark_catalog.insert_manifest(
                target=manifests, release=location.name, version=version, manifest=manifest.to_json()
            )
        )
        comments = ReleaseComments.of(location, version, manifest)
        rows = location.version_table(version)
        for statement in spark_catalog.comment_statements(rows, comments.columns, comments.table or ""):
            server.execute(statement)
        return verification


def is_supported(type_: str) -> bool:
    return to_duckdb_type(from_duckdb_type(type_) or "") == type_ and is_digestible(type_)


def find_next_version(catalog: ReleaseCatalog) -> int:
    location = catalog.location
    if location.name in catalog.names:
        shown_version = catalog.shown_version
        if shown_version is None or manifest_table(location, shown_version).name not in catalog.names:
            raise location.name_is_taken()
    return next_version(table_version(name, location.name) for name in catalog.names)


def _create_version_table(
    server: SparkEngine, location: SparkLocation, types: Mapping[str, str], first_version: int
) -> int:
    """Create an empty table for the first version whose files do not exist; return the version.

    Files without a table are left by a session whose catalog was in memory.
    """
    for version in range(first_version, first_version + _MAX_BLOCKED_VERSIONS):
        try:
            server.execute(spark_catalog.create_version_table(location.version_table(version), types, location.name))
        except Exception as error:
            if error_condition(error) != LOCATION_EXISTS:
                raise
        else:
            return version
    raise ReleaseError(
        f"files of dropped tables are in the way of {location.qualified_name}: remove them, or choose another name"
    )


def _insert_rows(
    engine: DuckDBEngine, server: SparkEngine, target: exp.Table, rows: exp.Query, columns: Sequence[str]
) -> None:
    """Insert the rows in an order that depends on a secret. Statements are logged, so it is sent as a table."""
    name, secret = f"sqlanon_secret_{uuid4().hex[:12]}", as_column(text(secrets.token_hex(32)), spark_catalog.SECRET)
    with engine.stream(exp.Select(expressions=[secret])) as reader:
        view = server.upload(name, reader)
    try:
        server.execute(spark_catalog.insert_shuffled(target, rows, columns, view))
    finally:
        with suppress(SourceError):  # the session may be gone
            server.forget(name)


def switch_view(
    server: SparkEngine, location: SparkLocation, version: int, claims: CatalogClaims, comments: ReleaseComments
) -> None:
    """Show a version in the view, if the catalog still has its tables unchanged."""
    catalog = ReleaseCatalog.read(server, location)
    check = catalog.check_tables(version, claims, comments)
    if not check.passed:
        raise AuditError([f"{check.name}: {check.message}"])
    rows, columns = location.version_table(version), [col(column.name) for column in claims.columns]
    if location.name not in catalog.names:
        server.execute(
            spark_catalog.create_view(view=location.table, comment=text(comments.view), columns=columns, rows=rows)
        )
        return
    view = CatalogEntry.read(server, location.table)
    if view.shown_version(location) is None:
        raise location.name_is_taken()
    server.execute(spark_catalog.replace_view_query(view=location.table, columns=columns, rows=rows))
    if view.comment != comments.view:  # the replaced version was a draft
        server.execute(spark_catalog.comment_on_view(view=location.table, comment=text(comments.view)))


def show_version(server: SparkEngine, location: SparkLocation, version: int | None) -> None:
    """Show an earlier version in the view again, with the columns of its table; without one, drop the view."""
    if ReleaseCatalog.read(server, location).shown_version == version:
        return
    if version is None:
        server.execute(drop_view(location.table))
        return
    rows = location.version_table(version)
    columns = [col(name) for name in server.columns(rows)]
    server.execute(spark_catalog.replace_view_query(view=location.table, columns=columns, rows=rows))


def drop_unpublished(server: SparkEngine, location: SparkLocation, version: int) -> None:
    """Drop the tables of a version unless the view shows it."""
    if ReleaseCatalog.read(server, location).shown_version != version:
        for relation in (manifest_table(location, version), location.version_table(version)):
            server.execute(drop_table(relation, exists=True))


def drop_older_versions(server: SparkEngine, location: SparkLocation, version: int) -> list[Check]:
    """Drop older versions and the tables that interrupted publications left.

    A concurrent publication has a higher version. The release is already visible, so failures are only reported.
    """
    try:
        catalog = ReleaseCatalog.read(server, location)
        shown_version, release_tables = catalog.shown_version, catalog.find_release_tables()
    except Exception as error:
        if not is_spark_error(error):
            raise
        return [_removal_failed("older versions", error)]
    notes = []
    for name, number in release_tables.items():
        if number < version and number != shown_version:
            try:
                server.execute(drop_table(table(name, location.schema), exists=True))
            except Exception as error:
                if not is_spark_error(error):
                    raise
                notes.append(_removal_failed(f"{location.schema}.{name}", error))
    return [*notes, *catalog.warn_of_foreign_tables(release_tables)]


def _removal_failed(relation: str, error: Exception) -> Check:
    message = (
        f"{relation}: could not be removed: {describe_error(error)}; readers of the schema can still read it. The next "
    )
    return Check("versions", None, f"{message}publication tries again")
