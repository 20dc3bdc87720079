"""A release in Spark: a versioned table and its manifest, audited, and then a view that is swapped to show it.

Spark has no transactions. Readers see the view, which one statement changes (``ALTER VIEW ... AS``): whatever stops a
publication before it leaves the view unchanged, and tables that nobody reads. The next publication removes these.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from uuid import uuid4

from sqlglot import exp

from sqlanon.audit.check import Check
from sqlanon.engines.dialects.spark import type_here, type_there
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.spark.engine import SparkEngine
from sqlanon.engines.spark.errors import condition_of, is_of_spark, reason_of
from sqlanon.errors import AuditError, ReleaseError, SourceError
from sqlanon.release.manifest import Facts, Manifest
from sqlanon.release.metadata import SuppressedRows
from sqlanon.release.reader import SUBJECT
from sqlanon.release.targets.base import Draft, ReleaseTarget, Verification, refuse_draft_over
from sqlanon.release.targets.server import (
    ServerTarget,
    StagedOnServer,
    next_version,
    refuse_types,
    release_section,
    types_in,
)
from sqlanon.release.targets.spark import statements as sr
from sqlanon.release.targets.spark.digest import is_digestible
from sqlanon.release.targets.spark.reader import (
    CatalogEntry,
    SparkLocation,
    SparkRelease,
    column_comments,
    flaws_of_new_table,
    in_the_way,
    list_relations,
    number_in,
    of_catalog,
    ours,
    recorded_location,
    release_location,
    table_comment,
    tables_check,
    version_shown,
    view_comment,
)
from sqlanon.release.targets.spark.rows import CountedRelease, counted, hash_rows_in_spark, looked_at, pinned_rows
from sqlanon.requirements.macros import call_k_anonymity
from sqlanon.support.expressions import drop_table, named, table, text

__all__ = ["SparkTarget", "recorded_location", "release_location", "target_for"]

_MOST_IN_THE_WAY = 1000
_TAKEN = "LOCATION_ALREADY_EXISTS"


@dataclass(frozen=True)
class SparkTarget(ServerTarget[SparkLocation]):
    """A release in a schema of Spark: the one that the source is in."""

    server: SparkEngine

    @contextmanager
    def stage(self, draft: Draft) -> Iterator[StagedSpark]:
        """Write the rows to a table that no view shows; it goes again, unless the view shows it in the end."""
        server, place = self.server, self.place
        columns = draft.columns()
        types = types_in(columns)
        refuse_types(types, _is_held, "a release in Spark")
        with server.translated_errors(ReleaseError), draft.remote_rows() as query:
            version = _next_version(server, place)
            if draft.is_draft:
                refuse_draft_over(
                    place.manifests_shown(server, list_relations(server, place)), f"{place.schema}.{place.name}"
                )
            version = _make_table(server, place, types, version)
            try:
                _fill(draft.run.engine, server, place.rows_table(version), query, list(types))
                if flaws := flaws_of_new_table(server, place, version, types):
                    raise AuditError([f"{place.rows_table(version).name}: {'; '.join(flaws)}"])
                wanted = looked_at(draft.search_input.policy.redact()["privacy"], draft.quasi_identifiers, columns)
                rows: AbstractContextManager[exp.Table] = nullcontext(place.rows_table(version))
                if draft.search_input.policy.catalog is not None:  # what the ledger hashes are the rows of the audit
                    rows = pinned_rows(server, place.rows_table(version))
                with rows as audited, counted(server, audited, columns, wanted, draft.run.engine.limits) as found:
                    yield StagedSpark(self, draft, version, audited, found)
            except BaseException:
                with suppress(Exception):  # Spark may be gone
                    _take_back(server, place, version)
                raise

    def facts(self, staged: StagedSpark) -> Facts:
        found, draft = staged.found, staged.draft
        if found.invalid_texts:
            raise AuditError([found.words_on_texts()])
        if not found.digest:
            raise AuditError([f"the columns in Spark are {found.types}, and should be {types_in(draft.columns())}"])
        smallest, classes, rows, _ = found.queries.rows(call_k_anonymity(SUBJECT.name, draft.quasi_identifiers))[0]
        return Facts(rows, classes, smallest or 0, found.digest, staged.version)

    def commit(self, staged: StagedSpark, manifest: Manifest) -> SparkRelease:
        server, place = self.server, self.place
        _show(server, place, staged.version, manifest)
        notes = [*_remove_older(server, place, staged.version), *of_catalog(server)]
        warnings = tuple(one.message for one in notes)
        return SparkRelease(place, manifest, staged.draft.run.engine.limits, warnings)


def target_for(draft: Draft, place: object, table_name: str | None) -> ReleaseTarget[StagedSpark, SparkRelease]:
    """The Spark that the source is in, and the schema that the policy names."""
    if (there := draft.search_input.source.server(SparkEngine)) is None:
        raise ReleaseError("a release in Spark needs a source in Spark")
    return SparkTarget(SparkLocation.of(there.home, table_name or release_section(draft).table), there)


@dataclass(frozen=True)
class StagedSpark(StagedOnServer):
    """A release in a table that no view shows, and what was counted of it: with a ledger, of rows that Spark keeps."""

    target: SparkTarget
    draft: Draft
    version: int
    audited_rows: exp.Table
    found: CountedRelease

    def rows(self) -> AbstractContextManager[exp.Table]:
        return self.found.copied(self.draft.run.engine)

    @property
    def sha256(self) -> str | None:
        if self.draft.search_input.policy.catalog is None:
            return None
        return hash_rows_in_spark(self.target.server, self.audited_rows, self.draft.columns())

    def complete(self, manifest: Manifest, suppressed: SuppressedRows) -> Verification:
        server, place, version = self.target.server, self.target.place, self.version
        verification = self.found.verified(manifest, place.path)
        server.execute(sr.manifest_table(place.manifest(version), place.name))
        row = sr.manifest_row(
            target=place.manifest(version), release=place.name, version=version, manifest=manifest.to_json()
        )
        server.execute(row)
        comments = table_comment(place, version, manifest), column_comments(manifest)
        for statement in sr.comments_on(place.rows_table(version), comments[1], comments[0]):
            server.execute(statement)
        return verification


def _is_held(type_: str) -> bool:
    return type_here(type_there(type_) or "") == type_ and is_digestible(type_)


def _next_version(server: SparkEngine, place: SparkLocation) -> int:
    names = list_relations(server, place)
    if place.name in names:
        shown = version_shown(server, place, names)
        if shown is None or place.manifest(shown).name not in names:
            raise place.taken()
    return next_version(number_in(name, place.name) for name in names)


def _make_table(server: SparkEngine, place: SparkLocation, types: Mapping[str, str], version: int) -> int:
    """Make the table of a version, without rows; its number. Files that no catalog knows any more may be in the way of
    a number: of a session whose catalog was in memory."""
    for number in range(version, version + _MOST_IN_THE_WAY):
        try:
            server.execute(sr.released_table(place.rows_table(number), types, place.name))
        except Exception as error:
            if condition_of(error) != _TAKEN:
                raise
        else:
            return number
    raise ReleaseError(
        f"files of dropped tables are in the way of {place.schema}.{place.name}: remove them, or choose another name"
    )


def _fill(
    engine: DuckDBEngine, server: SparkEngine, target: exp.Table, rows: exp.Query, columns: Sequence[str]
) -> None:
    """Write the rows, in an order that a secret makes. It goes there as a table: statements are logged."""
    name, secret = f"sqlanon_secret_{uuid4().hex[:12]}", named(text(secrets.token_hex(32)), sr.SECRET)
    with engine.stream(exp.Select(expressions=[secret])) as reader:
        view = server.upload(name, reader)
    try:
        server.execute(sr.filled(target, rows, columns, view))
    finally:
        with suppress(SourceError):  # the session may be gone
            server.forget(name)


def _show(server: SparkEngine, place: SparkLocation, version: int, manifest: Manifest) -> None:
    """Have the view show a version, if the catalog still has what was made of it."""
    names = list_relations(server, place)
    tables = tables_check(server, place, version, manifest, names)
    if not tables.passed:
        raise AuditError([f"{tables.name}: {tables.message}"])
    columns = [column.name for column in manifest.columns]
    if place.name not in names:
        server.execute(sr.first_view(place.table, place.rows_table(version), columns, view_comment(manifest)))
        return
    view = CatalogEntry.by(server, place.table)
    if view.version_shown(place) is None:
        raise place.taken()
    server.execute(sr.next_view(place.table, place.rows_table(version), columns))
    if view.of.get("comment") != view_comment(manifest):  # it was that of a draft
        server.execute(sr.comment_on_view(place.table, view_comment(manifest)))


def _take_back(server: SparkEngine, place: SparkLocation, version: int) -> None:
    """Remove what a publication has made that came to nothing. If the view shows it, it did not."""
    if version_shown(server, place, list_relations(server, place)) != version:
        for one in (place.manifest(version), place.rows_table(version)):
            server.execute(drop_table(one, exists=True))


def _remove_older(server: SparkEngine, place: SparkLocation, version: int) -> list[Check]:
    """Remove older versions, and what interrupted publications left: tables of ours that no view shows.

    What somebody else publishes meanwhile has a higher number. The release is out: obstacles are warnings."""
    try:
        names = list_relations(server, place)
        shown, own = version_shown(server, place, names), ours(server, place, names)
    except Exception as error:
        if not is_of_spark(error):
            raise
        return [_obstacle("older versions", error)]
    notes = []
    for name, number in own.items():
        if number < version and number != shown:
            try:
                server.execute(drop_table(table(name, place.schema), exists=True))
            except Exception as error:
                if not is_of_spark(error):
                    raise
                notes.append(_obstacle(f"{place.schema}.{name}", error))
    return [*notes, *in_the_way(place, names, own)]


def _obstacle(what: str, error: Exception) -> Check:
    message = f"{what}: could not be removed: {reason_of(error)}; readers of the schema can still read it. The next "
    return Check("versions", None, f"{message}publication tries again")
