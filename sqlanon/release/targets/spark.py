"""A release in Spark: a versioned table and its manifest, audited, and then a view that is swapped to show it.

Spark has no transactions. What readers see is the view, and that changes in one statement, the last but for the older
version's end: whatever stops a publication before it leaves the view as it was, and tables that nobody reads. The next
publication removes these.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from uuid import uuid4

from sqlglot import exp

from sqlanon.engines.dialects.spark import type_here, type_there
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.spark import SparkEngine
from sqlanon.engines.spark_errors import condition_of
from sqlanon.errors import AuditError, ReleaseError, SourceError
from sqlanon.expressions import drop_table, named, table, text
from sqlanon.records import dataclass
from sqlanon.release.check import Check
from sqlanon.release.manifest import Facts, Manifest
from sqlanon.release.metadata import Suppressed
from sqlanon.release.reader import SUBJECT
from sqlanon.release.target import Draft, ReleaseTarget, Verification, refuse_draft_over
from sqlanon.release.targets import spark_statements as sr
from sqlanon.release.targets.on_server import (
    ServerTarget,
    StagedOnServer,
    next_version,
    refuse_types,
    release_section,
    types_in,
)
from sqlanon.release.targets.spark_digest import digestible
from sqlanon.release.targets.spark_reader import (
    SparkPlace,
    SparkRelease,
    in_the_way,
    names_there,
    number_in,
    of_catalog,
    ours,
    place_of,
    recorded_place,
    version_shown,
)
from sqlanon.release.targets.spark_rows import CountedRelease, counted, looked_at
from sqlanon.release.words import comment_on_column, comment_on_release
from sqlanon.requirements.macros import k_anonymity_of

__all__ = ["SparkTarget", "place_of", "recorded_place", "target_for"]

_MOST_IN_THE_WAY = 1000
_TAKEN = "LOCATION_ALREADY_EXISTS"


@dataclass(frozen=True)
class SparkTarget(ServerTarget[SparkPlace]):
    """A release in a schema of Spark: the one that the source is in."""

    server: SparkEngine

    @contextmanager
    def stage(self, draft: Draft) -> Iterator[StagedSpark]:
        """Write the rows to a table that no view shows; it goes again, unless the view shows it in the end."""
        server, place = self.server, self.place
        columns = draft.columns()
        types = types_in(columns)
        refuse_types(types, _is_held, "a release in Spark")
        with server.translated_errors(ReleaseError), draft.rows_there() as query:
            version = _next_version(server, place)
            if draft.as_draft:
                refuse_draft_over(
                    place.manifests_shown(server, names_there(server, place)), f"{place.schema}.{place.name}"
                )
            version = _make_table(server, place, types, version)
            try:
                _fill(draft.run.engine, server, place.rows_table(version), query, list(types))
                wanted = looked_at(draft.prepared.policy.redacted()["privacy"], draft.quasi, columns)
                with counted(server, place.rows_table(version), columns, wanted, draft.run.engine.limits) as found:
                    yield StagedSpark(self, draft, version, found)
            except BaseException:
                with suppress(Exception):  # Spark may be gone
                    _take_back(server, place, version)
                raise

    def facts(self, staged: StagedSpark) -> Facts:
        found, draft = staged.found, staged.draft
        if not found.digest:
            raise AuditError([f"the columns in Spark are {found.types}, and should be {types_in(draft.columns())}"])
        smallest, classes, rows, _ = found.asked.rows(k_anonymity_of(SUBJECT.name, draft.quasi))[0]
        return Facts(rows, classes, smallest or 0, found.digest, staged.version)

    def commit(self, staged: StagedSpark, manifest: Manifest) -> SparkRelease:
        server, place = self.server, self.place
        server.execute(_view(place, staged.version, manifest))
        notes = [*_without_older(server, place, staged.version), *of_catalog(server)]
        warnings = tuple(one.message for one in notes)
        return SparkRelease(place, manifest, staged.draft.run.engine.limits, warnings)


def target_for(draft: Draft, place: object, table_name: str | None) -> ReleaseTarget[StagedSpark, SparkRelease]:
    """The Spark that the source is in, and the schema that the policy names."""
    if (there := draft.prepared.source.server(SparkEngine)) is None:
        raise ReleaseError("a release in Spark needs a source in Spark")
    return SparkTarget(SparkPlace.of(there.home, table_name or release_section(draft).table), there)


@dataclass(frozen=True)
class StagedSpark(StagedOnServer):
    """A release in a table that no view shows, and what was counted of it."""

    target: SparkTarget
    draft: Draft
    version: int
    found: CountedRelease

    def rows(self) -> AbstractContextManager[exp.Table]:
        return self.found.copied(self.draft.run.engine)

    def complete(self, manifest: Manifest, suppressed: Suppressed) -> Verification:
        server, place, version = self.target.server, self.target.place, self.version
        verification = self.found.verified(manifest, place.path)
        server.execute(sr.manifest_table(place.manifest(version), place.name))
        row = sr.manifest_row(
            target=place.manifest(version), release=place.name, version=version, manifest=manifest.to_json()
        )
        server.execute(row)
        return verification


def _is_held(type_: str) -> bool:
    return type_here(type_there(type_) or "") == type_ and digestible(type_)


def _next_version(server: SparkEngine, place: SparkPlace) -> int:
    names = names_there(server, place)
    if place.name in names:
        shown = version_shown(server, place, names)
        if shown is None or place.manifest(shown).name not in names:
            raise place.taken()
    return next_version(number_in(name, place.name) for name in names)


def _make_table(server: SparkEngine, place: SparkPlace, types: Mapping[str, str], version: int) -> int:
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


def _view(place: SparkPlace, version: int, manifest: Manifest) -> exp.Create:
    comments = {one.name: comment_on_column(manifest, one.name, one.role) for one in manifest.columns}
    return sr.stable_view(place.table, place.rows_table(version), comments, comment_on_release(manifest))


def _take_back(server: SparkEngine, place: SparkPlace, version: int) -> None:
    """Remove what a publication has made that came to nothing. If the view shows it, it did not."""
    if version_shown(server, place, names_there(server, place)) != version:
        for one in (place.manifest(version), place.rows_table(version)):
            server.execute(drop_table(one, exists=True))


def _without_older(server: SparkEngine, place: SparkPlace, version: int) -> list[Check]:
    """Remove older versions, and what publications have left that did not end: tables of ours that readers do not see.
    What somebody else publishes meanwhile has a higher number."""
    try:
        names = names_there(server, place)
        shown = version_shown(server, place, names)
        for name, number in ours(server, place, names).items():
            if number < version and number != shown:
                server.execute(drop_table(table(name, place.schema), exists=True))
        return in_the_way(server, place, names)
    except Exception as error:
        if not condition_of(error):
            raise
        message = f"an older version could not be removed ({condition_of(error)}): the next publication removes it"
        return [Check("versions", None, message)]
