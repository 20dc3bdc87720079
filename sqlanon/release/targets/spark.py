"""A release in Spark: a versioned table and its manifest, audited, and then a view that is swapped to show it.

Spark has no transactions. What readers see is the view, and that changes in one statement, the last but for the older
version's end: whatever stops a publication before it leaves the view as it was, and tables that nobody reads. The next
publication removes these.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from uuid import uuid4

from sqlglot import exp

from sqlanon.engines.dialects.spark import type_here, type_there
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.spark import SparkEngine
from sqlanon.engines.spark_errors import condition_of
from sqlanon.errors import AuditError, ReleaseError, SourceError
from sqlanon.expressions import named, table, text
from sqlanon.release.check import Check
from sqlanon.release.manifest import Facts, Manifest
from sqlanon.release.metadata import Suppressed
from sqlanon.release.reader import SUBJECT
from sqlanon.release.target import Draft, ReleaseTarget
from sqlanon.release.targets import spark_statements as sr
from sqlanon.release.targets.spark_digest import digestible
from sqlanon.release.targets.spark_reader import (
    Described,
    SparkRelease,
    SparkSpot,
    in_the_way,
    names_there,
    number_in,
    of_catalog,
    ours,
    place_of,
    recorded_place,
)
from sqlanon.release.targets.spark_rows import Counted, counted, looked_at
from sqlanon.release.verify import Verification
from sqlanon.release.words import comment_on_column, comment_on_release
from sqlanon.requirements.macros import k_anonymity_of

__all__ = ["SparkTarget", "place_of", "recorded_place", "target_for"]

_MOST_IN_THE_WAY = 1000
_TAKEN = "LOCATION_ALREADY_EXISTS"


@dataclass(frozen=True)
class SparkTarget:
    """A release in a schema of Spark: the one that the source is in."""

    spot: SparkSpot
    server: SparkEngine

    @property
    def path(self) -> Path:
        return self.spot.path

    @property
    def table_name(self) -> str:
        return self.spot.name

    @contextmanager
    def stage(self, draft: Draft) -> Iterator[StagedSpark]:
        """Write the rows to a table that no view shows; it goes again, unless the view shows it in the end."""
        server, spot = self.server, self.spot
        columns = draft.columns()
        types = {column.name: column.type for column in columns}
        _refuse_types(types)
        with server.translated_errors(ReleaseError), draft.rows_there() as query:
            version = _make_table(server, spot, types, _next_version(server, spot))
            try:
                _fill(draft.run.engine, server, spot.rows_table(version), query, list(types))
                wanted = looked_at(draft.prepared.policy.redacted()["privacy"], draft.quasi, columns)
                with counted(server, spot.rows_table(version), columns, wanted, draft.run.engine.limits) as found:
                    yield StagedSpark(self, draft, version, found)
            except BaseException:
                with suppress(Exception):  # Spark may be gone
                    _take_back(server, spot, version)
                raise

    def facts(self, staged: StagedSpark) -> Facts:
        found, draft = staged.found, staged.draft
        if not found.digest:
            types = {column.name: column.type for column in draft.columns()}
            raise AuditError([f"the columns in Spark are {found.types}, and should be {types}"])
        smallest, classes, rows, _ = found.asked.rows(k_anonymity_of(SUBJECT.name, draft.quasi))[0]
        return Facts(rows, classes, smallest or 0, found.digest, staged.version)

    def commit(self, staged: StagedSpark, manifest: Manifest) -> SparkRelease:
        """Swap the view; then older versions go."""
        server, spot = self.server, self.spot
        server.execute(_view(spot, staged.version, manifest))
        notes = [*_without_older(server, spot, staged.version), *of_catalog(server)]
        warnings = tuple(one.message for one in notes)
        return SparkRelease(spot, manifest, staged.draft.run.engine.limits, warnings)


def target_for(draft: Draft, place: object, table_name: str | None) -> ReleaseTarget[StagedSpark, SparkRelease]:
    """The Spark that the source is in, and the schema that the policy names."""
    section = draft.prepared.policy.release
    assert section is not None
    if (there := draft.prepared.source.server(SparkEngine)) is None:
        raise ReleaseError("a release goes to the Spark that its source is in, and this source is in none")
    return SparkTarget(SparkSpot.of(there.home, table_name or section.table), there)


@dataclass(frozen=True)
class StagedSpark:
    """A release in a table that no view shows, and what was counted of it."""

    target: SparkTarget
    draft: Draft
    version: int
    found: Counted
    sha256: ClassVar[None] = None

    def rows(self) -> AbstractContextManager[exp.Table]:
        return self.found.copied(self.draft.run.engine)

    def complete(self, manifest: Manifest, suppressed: Suppressed) -> Verification:
        """Add the manifest, and verify the rows."""
        server, spot, version = self.target.server, self.target.spot, self.version
        verification = self.found.verified(manifest, spot.path)
        server.execute(sr.manifest_table(spot.manifest(version), spot.name))
        server.execute(sr.manifest_row(spot.manifest(version), spot.name, version, manifest.to_json()))
        return verification

    def alone(self) -> AbstractContextManager[None]:
        """The number of the version is its own."""
        return nullcontext()


def _refuse_types(types: Mapping[str, str]) -> None:
    """Some types have no equal in Spark: they would come back as others, or could not be verified."""
    held = {name: type_here(type_there(type_) or "") == type_ and digestible(type_) for name, type_ in types.items()}
    if strange := [f"{name!r} ({types[name]})" for name, is_held in held.items() if not is_held]:
        raise ReleaseError(
            f"a release in Spark cannot hold the types of {', '.join(strange)} as they are: cast them in a source query"
        )


def _next_version(server: SparkEngine, spot: SparkSpot) -> int:
    names = names_there(server, spot)
    if spot.name in names:
        shown = Described.by(server, spot.table).version_shown(spot)
        if shown is None or spot.manifest(shown).name not in names:
            raise ReleaseError(
                f"{spot.schema}.{spot.name} exists and is no release of sqlanon: choose another name, or remove it"
            )
    numbers = [number_in(name, spot.name) for name in names]
    return max((number for number in numbers if number is not None), default=0) + 1


def _make_table(server: SparkEngine, spot: SparkSpot, types: Mapping[str, str], version: int) -> int:
    """Make the table of a version, without rows; its number. Files that no catalog knows any more may be in the way of
    a number: of a session whose catalog was in memory."""
    for number in range(version, version + _MOST_IN_THE_WAY):
        try:
            server.execute(sr.released_table(spot.rows_table(number), types, spot.name))
        except Exception as error:
            if condition_of(error) != _TAKEN:
                raise
        else:
            return number
    raise ReleaseError(
        f"files of tables that are gone are in the way of {spot.schema}.{spot.name}: remove them, or take another name"
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


def _view(spot: SparkSpot, version: int, manifest: Manifest) -> exp.Create:
    comments = {one.name: comment_on_column(manifest, one.name, one.role) for one in manifest.columns}
    return sr.stable_view(spot.table, spot.rows_table(version), comments, comment_on_release(manifest))


def _take_back(server: SparkEngine, spot: SparkSpot, version: int) -> None:
    """Remove what a publication has made that came to nothing. If the view shows it, it did not."""
    if spot.name in names_there(server, spot) and Described.by(server, spot.table).version_shown(spot) == version:
        return
    for one in (spot.manifest(version), spot.rows_table(version)):
        server.execute(sr.dropped(one))


def _without_older(server: SparkEngine, spot: SparkSpot, version: int) -> list[Check]:
    """Remove older versions, and what publications have left that did not end: tables of ours that readers do not see.
    What somebody else publishes meanwhile has a higher number."""
    try:
        shown = Described.by(server, spot.table).version_shown(spot)
        names = names_there(server, spot)
        for name, number in ours(server, spot, names).items():
            if number < version and number != shown:
                server.execute(sr.dropped(table(name, spot.schema)))
        return in_the_way(server, spot, names)
    except Exception as error:
        if not condition_of(error):
            raise
        message = f"an older version is still there ({condition_of(error)}): the next publication removes it"
        return [Check("versions", None, message)]
