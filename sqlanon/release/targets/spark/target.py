"""Publishing in Spark: a versioned table and its manifest are written and audited, then the view is switched to them.

Spark has no transactions. Readers use the view, which one statement changes (``ALTER VIEW ... AS``). A publication that
stops earlier leaves the view unchanged, and tables without readers that the next publication removes.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from uuid import uuid4

from sqlglot import exp

from sqlanon.audit.check import Check
from sqlanon.engines.dialects.spark import from_duckdb_type, to_duckdb_type
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.spark.engine import SparkEngine
from sqlanon.engines.spark.errors import describe_error, error_condition, is_spark_error
from sqlanon.errors import AuditError, ReleaseError, SourceError
from sqlanon.release.manifest import Facts, Manifest
from sqlanon.release.metadata import SuppressedRows
from sqlanon.release.reader import SUBJECT
from sqlanon.release.sentences import comment_on_any_version
from sqlanon.release.targets.base import Draft, ReleaseTarget, Verification, refuse_draft_over
from sqlanon.release.targets.server import (
    ServerTarget,
    StagedOnServer,
    column_comments,
    next_version,
    refuse_types,
    release_section,
    types_in,
)
from sqlanon.release.targets.spark import statements as sr
from sqlanon.release.targets.spark.checks import (
    CatalogEntry,
    ReleaseCatalog,
    check_persistence,
    manifest_table,
    table_comment,
    table_version,
)
from sqlanon.release.targets.spark.digest import is_digestible
from sqlanon.release.targets.spark.reader import SparkLocation, SparkRelease, recorded_location, release_location
from sqlanon.release.targets.spark.rows import (
    CountedRelease,
    checked_columns,
    count_release,
    hash_rows_in_spark,
    pin_rows,
)
from sqlanon.requirements.macros import call_k_anonymity
from sqlanon.support.expressions import as_column, col, drop_table, select_star, table, text

__all__ = ["SparkTarget", "recorded_location", "release_location", "target_for"]

_MAX_BLOCKED_VERSIONS = 1000
_LOCATION_EXISTS = "LOCATION_ALREADY_EXISTS"


@dataclass(frozen=True)
class SparkTarget(ServerTarget[SparkLocation]):
    """A release in a schema of the Spark that has the source."""

    server: SparkEngine

    @contextmanager
    def stage(self, draft: Draft) -> Iterator[StagedSpark]:
        server, location, policy = self.server, self.location, draft.search_input.policy
        columns = draft.columns()
        types = types_in(columns)
        refuse_types(types, _is_supported, "a release in Spark")
        with server.translate_errors(ReleaseError), draft.remote_rows() as query:
            catalog = ReleaseCatalog.read(server, location)
            version = _next_version(catalog)
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
                    counted = count_release(server, rows, columns, checked, draft.run.engine.limits)
                    yield StagedSpark(self, draft, version, rows, stack.enter_context(counted))
            except BaseException:
                with suppress(Exception):  # Spark may be gone
                    _drop_unpublished(server, location, version)
                raise

    def facts(self, staged: StagedSpark) -> Facts:
        counted, draft = staged.counted, staged.draft
        if counted.invalid_texts:
            raise AuditError([counted.invalid_texts_message()])
        if not counted.digest:
            raise AuditError([f"the columns in Spark are {counted.types}, and should be {types_in(draft.columns())}"])
        query = call_k_anonymity(SUBJECT.name, draft.quasi_identifiers)
        smallest_class, classes, rows, _ = counted.queries.rows(query)[0]
        return Facts(rows, classes, smallest_class or 0, counted.digest, staged.version)

    def commit(self, staged: StagedSpark, manifest: Manifest) -> SparkRelease:
        _switch_view(self.server, self.location, staged.version, manifest)
        notes = [
            *_drop_older_versions(self.server, self.location, staged.version),
            *check_persistence(self.server),
        ]
        warnings = tuple(note.message for note in notes)
        return SparkRelease(self.location, manifest, staged.draft.run.engine.limits, warnings)


def target_for(draft: Draft, target: object, table_name: str | None) -> ReleaseTarget[StagedSpark, SparkRelease]:
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
    counted: CountedRelease

    def rows(self) -> AbstractContextManager[exp.Table]:
        return self.counted.copied_rows(self.draft.run.engine)

    def hash_rows(self) -> str:
        return hash_rows_in_spark(self.target.server, self.audited_rows, self.draft.columns())

    def complete(self, manifest: Manifest, suppressed: SuppressedRows) -> Verification:
        server, location, version = self.target.server, self.target.location, self.version
        verification = self.counted.verify(manifest, location.path)
        manifests = manifest_table(location, version)
        server.execute(sr.create_manifest_table(manifests.copy(), location.name))
        server.execute(
            sr.insert_manifest(target=manifests, release=location.name, version=version, manifest=manifest.to_json())
        )
        comment = table_comment(location, version, manifest)
        for statement in sr.comment_statements(location.version_table(version), column_comments(manifest), comment):
            server.execute(statement)
        return verification


def _is_supported(type_: str) -> bool:
    return to_duckdb_type(from_duckdb_type(type_) or "") == type_ and is_digestible(type_)


def _next_version(catalog: ReleaseCatalog) -> int:
    location = catalog.location
    if location.name in catalog.names:
        shown = catalog.shown_version
        if shown is None or manifest_table(location, shown).name not in catalog.names:
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
            server.execute(sr.create_version_table(location.version_table(version), types, location.name))
        except Exception as error:
            if error_condition(error) != _LOCATION_EXISTS:
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
    name, secret = f"sqlanon_secret_{uuid4().hex[:12]}", as_column(text(secrets.token_hex(32)), sr.SECRET)
    with engine.stream(exp.Select(expressions=[secret])) as reader:
        view = server.upload(name, reader)
    try:
        server.execute(sr.insert_shuffled(target, rows, columns, view))
    finally:
        with suppress(SourceError):  # the session may be gone
            server.forget(name)


def _switch_view(server: SparkEngine, location: SparkLocation, version: int, manifest: Manifest) -> None:
    """Show a version in the view, if the catalog still has its tables as they were created."""
    catalog = ReleaseCatalog.read(server, location)
    check = catalog.check_tables(version, manifest)
    if not check.passed:
        raise AuditError([f"{check.name}: {check.message}"])
    rows, columns = location.version_table(version), [col(column.name) for column in manifest.columns]
    comment = comment_on_any_version(manifest.draft)
    if location.name not in catalog.names:
        server.execute(sr.create_view(view=location.table, comment=text(comment), columns=columns, rows=rows))
        return
    view = CatalogEntry.read(server, location.table)
    if view.shown_version(location) is None:
        raise location.name_is_taken()
    server.execute(sr.replace_view_query(view=location.table, columns=columns, rows=rows))
    if view.comment != comment:  # the replaced version was a draft
        server.execute(sr.comment_on_view(view=location.table, comment=text(comment)))


def _drop_unpublished(server: SparkEngine, location: SparkLocation, version: int) -> None:
    """Drop the tables of a version unless the view shows it."""
    if ReleaseCatalog.read(server, location).shown_version != version:
        for relation in (manifest_table(location, version), location.version_table(version)):
            server.execute(drop_table(relation, exists=True))


def _drop_older_versions(server: SparkEngine, location: SparkLocation, version: int) -> list[Check]:
    """Drop older versions and the tables that interrupted publications left.

    A concurrent publication has a higher version. The release is already visible, so failures are only reported.
    """
    try:
        catalog = ReleaseCatalog.read(server, location)
        shown, release_tables = catalog.shown_version, catalog.find_release_tables()
    except Exception as error:
        if not is_spark_error(error):
            raise
        return [_removal_failed("older versions", error)]
    notes = []
    for name, number in release_tables.items():
        if number < version and number != shown:
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
