"""Releases in Spark, as readers find them: opened, held against what they claim, and against what the catalog has of
them: a view, and the tables behind it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from sqlglot import exp

from sqlanon.audit.check import Check, check_faults
from sqlanon.audit.verify import ROWS_NOT_READ, verification_sql
from sqlanon.engines.dialects.spark import type_here
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.engines.spark.engine import SparkEngine, catalog_of
from sqlanon.engines.spark.errors import condition_of
from sqlanon.errors import BrokenReleaseError, ReleaseError, SourceError
from sqlanon.places.addresses import resolve_spark_address, spark_location, spark_name_flaw
from sqlanon.policy import format_location, table_parts
from sqlanon.release.manifest import Manifest, version_name
from sqlanon.release.sentences import comment_on_any_version, comment_on_column, comment_on_release
from sqlanon.release.targets.base import Reach, Verification, named_location
from sqlanon.release.targets.server import (
    ServerLocation,
    ServerRelease,
    manifests_of,
    refuse_sha256,
    shown_columns,
    types_in,
    version_of,
)
from sqlanon.release.targets.spark import statements as sr
from sqlanon.release.targets.spark.digest import digest_query
from sqlanon.release.targets.spark.rows import (
    copy_all_rows,
    counted,
    hash_rows_in_spark,
    looked_at,
    pinned_rows,
    types_of,
)
from sqlanon.support.expressions import table

_COUNT = "rows"

OF_MANIFEST = "_manifest"
"""So ends the name of a manifest's table."""

_REDACTED = "*********(redacted)"
"""What Spark says for a property that may be a secret, by its words: a release may be called ``tokens``."""

_OF_HIVE = frozenset({"transient_lastDdlTime", "numFiles", "numRows", "rawDataSize", "totalSize", "bucketing_version"})
"""Properties that a metastore adds by itself: numbers."""

_OF_COLUMN = frozenset({"name", "type", "nullable", "comment"})
"""What the catalog has of a column of ours: no default."""

_BEFORE_ROWS = ("view", "tables")
"""The checks of the catalog without which no row is read."""

_FIXED = (None, "BINDING", "COMPENSATION", "UNSUPPORTED")
"""How a view of ours goes with a table that changes: its columns and types stay."""


@dataclass(frozen=True)
class SparkLocation(ServerLocation):
    """Where in Spark a release is: the address, or the session; the schema, and the name of the view."""

    session: Any = field(default=None, repr=False, compare=False)
    server: SparkEngine | None = field(default=None, repr=False, compare=False)

    where: ClassVar[str] = "Spark"
    dialect: ClassVar[str] = SparkEngine.dialect

    @classmethod
    def of(cls, place: Any, table_name: str) -> SparkLocation:
        """Of a session, an address or ``env:NAME``, and ``schema.name``; in lower case, as Spark's catalog has them."""
        if flaw := spark_name_flaw(table_name):
            raise ReleaseError(f"{table_name!r} is not a release in Spark: it {flaw}")
        schema, name = (part.lower() for part in table_parts(table_name))
        if isinstance(place, str):
            return cls(resolve_spark_address(place), schema, name)
        return cls(None, schema, name, place)

    @property
    def path(self) -> Path:
        return spark_location(self.address or catalog_of(self.session), self.schema, self.name)

    def rows_table(self, version: int) -> exp.Table:
        return table(version_name(self.name, version), self.schema)

    def manifest(self, version: int) -> exp.Table:
        return table(f"{version_name(self.name, version)}{OF_MANIFEST}", self.schema)

    def verify(self, limits: Limits = NO_LIMITS, sha256: str | None = None) -> Verification:
        refuse_sha256(sha256)
        with self.opened_server() as server, server.translated_errors(ReleaseError):
            manifest, checks = self._check_catalog(server)
            return self._verify_rows(server, self.table, manifest, checks, limits)

    @contextmanager
    def open_verified(self, limits: Limits, sha256: str | None = None) -> Iterator[VerifiedInSpark]:
        """Verify the release; Spark keeps the rows that are verified."""
        refuse_sha256(sha256)
        with ExitStack() as stack:
            server = stack.enter_context(self.opened_server())
            with server.translated_errors(ReleaseError):
                manifest, checks = self._check_catalog(server)
                rows = self.table
                if not _flaws(checks):
                    rows = stack.enter_context(pinned_rows(server, self.table))
                verification = self._verify_rows(server, rows, manifest, checks, limits)
            yield VerifiedInSpark(self, server, rows, verification)

    def _check_catalog(self, server: SparkEngine) -> tuple[Manifest, Sequence[Check]]:
        """The manifest, and the checks of what the catalog has of the release."""
        names = list_relations(server, self)
        view = CatalogEntry.by(server, self.table) if self.name in names else None
        version = _version(self, view, names)
        # Nothing is read of a relation before the catalog has said that it is a plain table, or a view of one.
        if flaws := flaws_of_manifest_table(server, self, version, names):
            raise self.refuse_to_read([f"{self.manifest(version).name}: {'; '.join(flaws)}"])
        rows = server.rows(sr.manifest_of(relation=self.manifest(version)))
        with self.manifest_read():
            release, number, text = _only_row(rows)
            manifest = Manifest.from_json(text)
            _looked_at(manifest)
        claimed = (release, number, manifest.table_name, manifest.version)
        of_this = claimed == (self.name, version, self.name, version)
        message = f"of version {version}" if of_this else f"not of version {version} of {self.name!r}"
        checks = catalog_checks(server, self, view, version, manifest, names)
        return manifest, (Check("manifest table", of_this, message), *checks)

    def _verify_rows(
        self, server: SparkEngine, rows: exp.Table, manifest: Manifest, checks: Sequence[Check], limits: Limits
    ) -> Verification:
        if _flaws(checks):
            return Verification(self.path, manifest, (ROWS_NOT_READ, *checks), digest="")
        with counted(server, rows, manifest.columns, _looked_at(manifest), limits) as rows_there:
            found = rows_there.verified(manifest, self.path)
        return replace(found, checks=(*found.checks, *checks))

    def read_manifests(self, limits: Limits) -> Sequence[Manifest] | None:
        with self.opened_server() as server, server.translated_errors(ReleaseError):
            return self.manifests_shown(server, list_relations(server, self))

    def manifests_shown(self, server: SparkEngine, names: frozenset[str]) -> Sequence[Manifest] | None:
        """The manifest of what the view shows, by the names in the schema."""
        shown = version_shown(server, self, names)
        if shown is None:
            return []
        if flaws_of_manifest_table(server, self, shown, names):
            return None
        return manifests_of(text for _, _, text in server.rows(sr.manifest_of(relation=self.manifest(shown))))

    def refuse_to_read(self, flaws: Sequence[str]) -> BrokenReleaseError:
        return BrokenReleaseError(
            f"{format_location(self.path)} was a release of sqlanon; {'; '.join(flaws)}. Nothing of it was read"
        )

    def _refuse_flaws(self, server: SparkEngine, manifest: Manifest) -> None:
        """Refuse to read the rows of a release whose view or tables are not those that sqlanon made."""
        names = list_relations(server, self)
        view = CatalogEntry.by(server, self.table) if self.name in names else None
        checks = catalog_checks(server, self, view, manifest.version or 1, manifest, names)
        if flaws := _flaws(checks):
            raise self.refuse_to_read(flaws)

    @contextmanager
    def rows(self, engine: DuckDBEngine, manifest: Manifest) -> Iterator[exp.Table]:
        with self.opened_server() as server, server.translated_errors(ReleaseError):
            self._refuse_flaws(server, manifest)
            with copy_all_rows(engine, server, self.table, manifest) as rows:
                yield rows

    def open_version(self, limits: Limits, version: int | None, sha256: str | None, trusted: bool) -> NoReturn:
        """Its rows stay there."""
        raise ReleaseError(_stays(self.path))

    @contextmanager
    def opened_server(self) -> Iterator[SparkEngine]:
        """A session there, for a while: the one that was given, or a new one."""
        if self.server is not None:
            yield self.server
            return
        place = "the release"
        try:
            engine = SparkEngine.open(self.address, place) if self.address else SparkEngine(self.session, place)
        except SourceError as error:
            raise ReleaseError(str(error)) from None
        with closing(engine):
            yield engine


@dataclass(frozen=True)
class VerifiedInSpark:
    """A release in Spark that was verified, while Spark keeps the rows that were: they are not read again."""

    place: SparkLocation
    server: SparkEngine
    kept_rows: exp.Table
    verification: Verification

    @contextmanager
    def rows(self, engine: DuckDBEngine, manifest: Manifest) -> Iterator[exp.Table]:
        if flaws := _flaws(self.verification.checks):
            raise self.place.refuse_to_read(flaws)
        with (
            self.server.translated_errors(ReleaseError),
            copy_all_rows(engine, self.server, self.kept_rows, manifest) as rows,
        ):
            yield rows

    def sha256(self) -> str:
        with self.server.translated_errors(ReleaseError):
            return hash_rows_in_spark(self.server, self.kept_rows, self.verification.manifest.columns)


def _flaws(checks: Sequence[Check]) -> list[str]:
    """Why no row is read: the view, or a table, is not as sqlanon made it."""
    return [check.message for check in checks if check.name in _BEFORE_ROWS and check.passed is False]


def number_in(name: str, release: str) -> int | None:
    """Which version of a release a table belongs to, with its rows or its manifest; None if to none.

    >>> number_in("r_v3", "r"), number_in("r_v3_manifest", "r"), number_in("r_view", "r")
    (3, 3, None)
    """
    return version_of(name.removesuffix(OF_MANIFEST), release)


@dataclass(frozen=True)
class CatalogEntry:
    of: Mapping[str, Any]

    @classmethod
    def by(cls, server: SparkEngine, relation: exp.Table) -> CatalogEntry:
        return cls(json.loads(server.rows(sr.description(relation))[0][0]))

    @property
    def is_view(self) -> bool:
        return self.of.get("type") == "VIEW"

    @property
    def properties(self) -> frozenset[str]:
        """The names of its properties, but for those that a metastore adds."""
        found = self.of.get("table_properties") or {}
        return frozenset(name for name, value in found.items() if name not in _OF_HIVE or not str(value).isdecimal())

    def made_for(self, release: str) -> bool:
        """Whether it is a table of ours, made for a release."""
        mark = (self.of.get("table_properties") or {}).get(sr.MADE_BY)
        return not self.is_view and mark in (release, _REDACTED)

    def version_shown(self, place: SparkLocation) -> int | None:
        """The version of a release whose table this view reads, if that is all that it reads."""
        read = sr.read_by(self.of.get("view_text") or "") if self.is_view else []
        if len(read) != 1 or read[0].db.lower() != place.schema or read[0].catalog:
            return None
        return version_of(read[0].name.lower(), place.name)

    def flaws_of_view(self, place: SparkLocation, rows: exp.Table, manifest: Manifest) -> list[str]:
        """What is not as in the view that is made of a table: a list of its columns, and nothing more."""
        columns = [column.name for column in manifest.columns]
        query = sr.shown_by_view(rows, columns).sql(SparkEngine.dialect)
        texts = {self.of.get("view_text"), self.of.get("view_original_text", query)}
        catalog = (self.of.get("view_catalog_and_namespace") or "").partition(".")[0]
        own = [column.get("name") for column in self.of.get("columns") or ()]
        is_list = (
            self.is_view
            and texts == {query}
            and self.of.get("view_query_output_columns") == columns == own
            and catalog.strip("`") == self.of.get("catalog_name")
        )
        flaws = [] if is_list else [f"{place.name!r} is not a view of {shown_columns(rows.name)}"]
        if self.of.get("view_schema_mode") not in _FIXED:
            flaws.append("its columns follow changes of the table")
        if self.properties:
            flaws.append("it has foreign properties")
        if self.comments != column_comments(manifest) or self.of.get("comment") != view_comment(manifest):
            flaws.append("its comments do not match the manifest")
        return flaws

    @property
    def comments(self) -> dict[str, str]:
        """The comments of its columns."""
        return {one["name"]: one["comment"] for one in self.of.get("columns") or () if one.get("comment") is not None}

    def flaws_of_table(
        self, release: str, comment: str | None = None, comments: Mapping[str, str] | None = None
    ) -> list[str]:
        """What is not as in a table that was made for a release, but for the names and types of its columns.

        Reading a table without flaws evaluates nothing: it is no view, and its rows are Parquet files of its own.
        """
        if not self.made_for(release):
            return ["not part of the release"]
        flaws = []
        is_plain = self.of.get("type") == "MANAGED" and str(self.of.get("provider")).lower() == "parquet"
        if not is_plain or self.of.get("partition_columns") or self.of.get("bucket_columns"):
            flaws.append("it is not a plain table of Parquet files")
        if self.properties != {sr.MADE_BY} or (self.of.get("storage_properties") or {}).keys() - {
            "serialization.format"
        }:
            flaws.append("it has foreign properties")
        more = any(one.keys() - _OF_COLUMN for one in self.of.get("columns") or ())
        if more or self.of.get("comment") != comment or self.comments != (comments or {}):
            flaws.append("it has comments or defaults of others")
        return flaws


def column_comments(manifest: Manifest) -> dict[str, str]:
    return {column.name: comment_on_column(manifest, column.name, column.role) for column in manifest.columns}


def table_comment(place: SparkLocation, version: int, manifest: Manifest) -> str:
    return comment_on_release(manifest, place.manifest(version).name)


def view_comment(manifest: Manifest) -> str:
    return comment_on_any_version(manifest.draft)


def list_relations(server: SparkEngine, place: SparkLocation) -> frozenset[str]:
    """The tables and views in the schema of a release whose names begin with its own."""
    if place.schema not in {str(name).lower() for (name,) in server.rows(sr.schemas(place.schema))}:
        raise place.without_schema()
    found = server.rows(sr.relations(place.schema, place.name))
    return frozenset(name.lower() for _, name, temporary in found if not temporary)


def version_shown(server: SparkEngine, place: SparkLocation, names: frozenset[str]) -> int | None:
    """The version of a release that its view shows; None where it shows none, or where there is no view."""
    return CatalogEntry.by(server, place.table).version_shown(place) if place.name in names else None


def ours(server: SparkEngine, place: SparkLocation, names: frozenset[str]) -> dict[str, int]:
    """The tables of versions that were made for a release, with the number of each."""
    found = {}
    for name in sorted(names):
        number = number_in(name, place.name)
        if number is None:
            continue
        try:
            if CatalogEntry.by(server, table(name, place.schema)).made_for(place.name):
                found[name] = number
        except Exception as error:
            if condition_of(error).partition(".")[0] != "TABLE_OR_VIEW_NOT_FOUND":  # somebody has just removed it
                raise
    return found


def catalog_checks(
    server: SparkEngine,
    place: SparkLocation,
    view: CatalogEntry | None,
    version: int,
    manifest: Manifest,
    names: frozenset[str],
) -> list[Check]:
    """Whether the catalog has a release as it was published, and nothing more. The right rows may come from the wrong
    place, and be others tomorrow; and what a view does not show may still be told.
    """
    rows = place.rows_table(version)
    flaws = ["there is none"] if view is None else view.flaws_of_view(place, rows, manifest)
    return [
        check_faults("view", flaws, shown_columns(rows.name)),
        tables_check(server, place, version, manifest, names),
        _others(server, place, version, names),
        *of_catalog(server),
    ]


def tables_check(
    server: SparkEngine, place: SparkLocation, version: int, manifest: Manifest, names: frozenset[str]
) -> Check:
    """Whether the tables behind the view are those of the release: readers of the view may often read them, too."""
    rows = place.rows_table(version)
    comments = table_comment(place, version, manifest), column_comments(manifest)
    flaws = _flaws_of_table(server, place, rows, types_in(manifest.columns), names, *comments)
    found = [f"{rows.name}: {flaw}" for flaw in flaws]
    found += [
        f"{place.manifest(version).name}: {flaw}" for flaw in flaws_of_manifest_table(server, place, version, names)
    ]
    return check_faults("tables", found, "exactly the columns of the release")


def flaws_of_manifest_table(
    server: SparkEngine, place: SparkLocation, version: int, names: frozenset[str]
) -> list[str]:
    types = {name: type_here(type_.lower()) or "" for name, type_ in sr.MANIFEST.items()}
    return _flaws_of_table(server, place, place.manifest(version), types, names)


def flaws_of_new_table(server: SparkEngine, place: SparkLocation, version: int, types: Mapping[str, str]) -> list[str]:
    """What is not as in the table of a version that was just made, and has no comments yet."""
    rows = place.rows_table(version)
    return _flaws_of_table(server, place, rows, types, list_relations(server, place))


def _flaws_of_table(
    server: SparkEngine,
    place: SparkLocation,
    relation: exp.Table,
    types: Mapping[str, str],
    names: frozenset[str],
    comment: str | None = None,
    comments: Mapping[str, str] | None = None,
) -> list[str]:
    if relation.name not in names:
        return ["it is not there"]
    if flaws := CatalogEntry.by(server, relation).flaws_of_table(place.name, comment, comments):
        return flaws
    return [] if list(types_of(server, relation).items()) == list(types.items()) else ["it has other columns"]


def _others(server: SparkEngine, place: SparkLocation, version: int, names: frozenset[str]) -> Check:
    """What a publication that did not end has left is in nobody's way: the next one removes it."""
    others = frozenset(name for name in names if number_in(name, place.name) not in (None, version))
    left = ours(server, place, others)
    if strange := sorted(others - left.keys()):
        return Check("versions", False, f"not of the release: {', '.join(strange)}")
    if left:
        message = f"left by an interrupted publication, and removed by the next one: {', '.join(left)}"
        return Check("versions", None, message)
    return Check("versions", True, "no other relations")


def in_the_way(place: SparkLocation, names: frozenset[str], own: Collection[str]) -> list[Check]:
    """Warnings of tables that have the name of a version, and are not among ``own``: they stay."""
    strange = sorted(name for name in names if number_in(name, place.name) is not None and name not in own)
    if not strange:
        return []
    message = "named like a version, but not created by sqlanon; verify fails until that is removed"
    return [Check("versions", None, f"{', '.join(strange)}: {message}")]


def of_catalog(server: SparkEngine) -> list[Check]:
    """What is told of a catalog that is gone when Spark ends, and the release with it."""
    names = ("spark.sql.catalogImplementation", "spark.sql.catalog.spark_catalog")
    kind, replaced = (server.rows(sr.setting(name))[0][1] for name in names)
    if kind != "in-memory" or replaced not in ("builtin", "<undefined>"):
        return []
    message = "Spark's catalog is in memory: the release is gone when Spark ends; it stays with a persistent catalog "
    return [Check("catalog", None, f"{message}(spark.sql.catalogImplementation=hive)")]


@dataclass(frozen=True)
class SparkRelease(ServerRelease[SparkLocation]):
    """A release that was published in Spark."""

    warnings: tuple[str, ...] = ()  # what the holder should know of it

    def verify_sql(self) -> list[str]:
        """The statements behind `verify`. Two run in Spark: the content digest, and the combinations of values that the
        requirements look at. The rest runs in DuckDB, over these."""
        there = [
            digest_query(self.place.table, types_in(self.manifest.columns)),
            sr.combinations(self.place.table, _looked_at(self.manifest), _COUNT),
        ]
        here = [one for one in verification_sql(self.manifest) if ".DIGEST(" not in one.upper()]
        return [*(one.sql(SparkEngine.dialect) for one in there), *here]


def _looked_at(manifest: Manifest) -> dict[str, str]:
    return looked_at(manifest.policy["privacy"], manifest.quasi_identifiers, manifest.columns)


def release_location(place: Any, table_name: str | None) -> SparkLocation:
    return SparkLocation.of(*named_location(place, table_name, SparkLocation.where))


def recorded_location(path: Path, table_name: str, reach: Reach) -> SparkLocation:
    """The release that the ledger has, if it is in the Spark that the source is in."""
    there = None if reach.source is None else reach.source.server(SparkEngine)
    if there is not None:
        place = replace(SparkLocation.of(there.home, path.name), server=there)
        if place.path == path:
            return place
    raise ReleaseError(_stays(path))


def _stays(path: Path) -> str:
    return f"{format_location(path)} is in Spark, and releases there cannot be compared yet"


def _version(place: SparkLocation, view: CatalogEntry | None, names: frozenset[str]) -> int:
    """The version that the view shows; if it shows none, the newest that has a manifest."""
    shown = None if view is None else view.version_shown(place)
    numbers = [number_in(name, place.name) for name in names if name.endswith(OF_MANIFEST)]
    known = [number for number in numbers if number is not None]
    if view is None or not known:
        raise place.without_manifest()
    return shown if shown in known else max(known)


def _only_row(rows: Sequence[tuple[Any, ...]]) -> tuple[str, int, str]:
    if len(rows) != 1:
        raise ValueError(f"it has {len(rows)} rows")
    release, number, text = rows[0]
    return release, number, text
