"""Releases in Spark: their location, verification, and rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from sqlglot import exp

from sqlanon.audit.check import Check
from sqlanon.audit.verify import ROWS_NOT_READ, verification_sql
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.engines.spark.engine import SparkEngine, catalog_identity
from sqlanon.errors import BrokenReleaseError, ReleaseError, SourceError
from sqlanon.places.addresses import format_location, resolve_spark_address, spark_location, spark_name_flaw
from sqlanon.release.manifest import Manifest
from sqlanon.release.reader import COPIED
from sqlanon.release.targets.base import Reach, Verification
from sqlanon.release.targets.server import (
    ServerLocation,
    ServerRelease,
    parse_manifests,
    refuse_sha256,
    split_location,
    types_in,
)
from sqlanon.release.targets.spark import statements as sr
from sqlanon.release.targets.spark.checks import ReleaseCatalog, flaws_before_reading, manifest_table
from sqlanon.release.targets.spark.digest import digest_query
from sqlanon.release.targets.spark.rows import (
    columns_checked_by,
    combinations_query,
    copy_all_rows,
    count_release,
    hash_rows_in_spark,
    pin_rows,
)
from sqlanon.support.expressions import select_star
from sqlanon.support.names import table_parts


@dataclass(frozen=True)
class SparkLocation(ServerLocation):
    session: Any = field(default=None, repr=False, compare=False)
    server: SparkEngine | None = field(default=None, repr=False, compare=False)

    server_name: ClassVar[str] = "Spark"
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
            raise self.not_read([f"{manifest_table(self, version).name}: {'; '.join(flaws)}"])
        rows = server.rows(sr.select_manifest(relation=manifest_table(self, version)))
        with self.translate_manifest_errors():
            if len(rows) != 1:
                raise ValueError(f"it has {len(rows)} rows")
            release, number, manifest_json = rows[0]
            manifest = Manifest.from_json(manifest_json)
            columns_checked_by(manifest)
        claimed = (release, number, manifest.table_name, manifest.version)
        is_own = claimed == (self.name, version, self.name, version)
        message = f"of version {version}" if is_own else f"not of version {version} of {self.name!r}"
        return manifest, (Check("manifest table", is_own, message), *catalog.checks(version, manifest))

    def read_manifests(self, limits: Limits) -> Sequence[Manifest] | None:
        with self.opened_server() as server, server.translate_errors(ReleaseError):
            return self.shown_manifests(ReleaseCatalog.read(server, self))

    def shown_manifests(self, catalog: ReleaseCatalog) -> Sequence[Manifest] | None:
        """The manifest of the version that the view shows; None if it cannot be read."""
        if (version := catalog.shown_version) is None:
            return []
        if catalog.find_manifest_flaws(version):
            return None
        rows = catalog.server.rows(sr.select_manifest(relation=manifest_table(self, version)))
        return parse_manifests(manifest_json for _, _, manifest_json in rows)

    def not_read(self, flaws: Sequence[str]) -> BrokenReleaseError:
        return BrokenReleaseError(
            f"{format_location(self.path)} was a release of sqlanon; {'; '.join(flaws)}. Nothing of it was read"
        )

    @contextmanager
    def rows(self, engine: DuckDBEngine, manifest: Manifest, alias: str = COPIED) -> Iterator[exp.Table]:
        with self.opened_server() as server, server.translate_errors(ReleaseError):
            checks = ReleaseCatalog.read(server, self).checks(manifest.version or 1, manifest)
            if flaws := flaws_before_reading(checks):
                raise self.not_read(flaws)
            with copy_all_rows(engine, server, self.table, manifest, alias) as rows:
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
            raise self.location.not_read(flaws)
        copied = copy_all_rows(engine, self.server, self.pinned_rows, manifest, alias)
        with self.server.translate_errors(ReleaseError), copied as rows:
            yield rows

    def sha256(self) -> str:
        with self.server.translate_errors(ReleaseError):
            return hash_rows_in_spark(self.server, self.pinned_rows, self.verification.manifest.columns)


@dataclass(frozen=True)
class SparkRelease(ServerRelease[SparkLocation]):
    """A published release in Spark."""

    warnings: tuple[str, ...] = ()

    def verify_sql(self) -> list[str]:
        """The statements of `verify`. The content digest and the combinations of the columns that the requirements read
        are computed in Spark; the other statements run in DuckDB, on these combinations."""
        spark_statements = [
            digest_query(self.location.table, types_in(self.manifest.columns)),
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
