"""Releases in Spark, as readers find them: opened, and held against what they claim."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.engines.spark import SparkEngine
from sqlanon.engines.spark_errors import is_of_spark
from sqlanon.errors import BrokenReleaseError, ReleaseError, SourceError
from sqlanon.policy import shown_place
from sqlanon.release.check import Check
from sqlanon.release.manifest import DIGEST, Manifest
from sqlanon.release.targets import spark_statements as sr
from sqlanon.release.targets.on_server import ServerRelease
from sqlanon.release.targets.spark_catalog import (
    OF_MANIFEST,
    Described,
    SparkSpot,
    checks_of,
    names_there,
    number_in,
)
from sqlanon.release.targets.spark_digest import digest_there
from sqlanon.release.targets.spark_rows import all_here, counted, looked_at
from sqlanon.release.verify import Verification, verification_sql

_COUNT = "rows"


@dataclass(frozen=True)
class SparkRelease(ServerRelease[SparkSpot]):
    """A release that was published in Spark.

    Attributes
    ----------
    warnings:
        What the holder should know of it.
    """

    warnings: tuple[str, ...] = ()

    def verify(self) -> Verification:
        """Check the release by itself, as any reader can: columns, counts, requirements, content digest."""
        return verify_spark(self.spot, self.limits)

    def verify_sql(self) -> list[str]:
        """The statements behind `verify`. Two run in Spark: the content digest, and the combinations of values that the
        requirements look at. The rest runs in DuckDB, over these."""
        types = {column.name: column.type for column in self.manifest.columns}
        there = [
            *([digest_there(self.spot.table, types)] if self.manifest.digest_algorithm == DIGEST else []),
            sr.combinations(self.spot.table, _looked_at(self.manifest), _COUNT),
        ]
        here = [one for one in verification_sql(self.manifest) if ".DIGEST(" not in one.upper()]
        return [*(one.sql(SparkEngine.dialect) for one in there), *here]


def verify_spark(spot: SparkSpot, limits: Limits = NO_LIMITS) -> Verification:
    """Verify a release in Spark by itself: columns, counts, requirements, content digest."""
    with spot.opened() as server, server.told(ReleaseError):
        names = names_there(server, spot)
        view = Described.by(server, spot.table) if spot.name in names else None
        version = _version(spot, view, names)
        try:
            release, number, text = _row(server, spot, version)
            manifest = Manifest.from_json(text)
            columns, older = manifest.columns, manifest.digest_algorithm != DIGEST
            with counted(
                server, spot.table, columns, _looked_at(manifest), limits, manifest if older else None
            ) as rows:
                found = rows.verified(manifest, spot.path)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            if isinstance(error, SourceError) or is_of_spark(error):
                raise
            raise BrokenReleaseError(
                f"{shown_place(spot.path)} was a release of sqlanon; its manifest is broken: {error}"
            ) from error
        of_this = (release, number, manifest.table_name, manifest.version) == (spot.name, version, spot.name, version)
        checks = checks_of(server, spot, view, version, manifest, names)
        told = f"of version {version}" if of_this else f"not of version {version} of {spot.name!r}"
        return replace(found, checks=(*found.checks, Check("manifest table", of_this, told), *checks))


def _looked_at(manifest: Manifest) -> dict[str, str]:
    return looked_at(manifest.policy["privacy"], manifest.quasi, manifest.columns)


@contextmanager
def fetched_rows(engine: DuckDBEngine, spot: SparkSpot, manifest: Manifest) -> Iterator[exp.Table]:
    """The rows that the view shows, for the engine that has their source, for a while."""
    with (
        spot.opened() as server,
        server.told(ReleaseError),
        all_here(engine, server, spot.table, manifest, manifest.released_rows) as rows,
    ):
        yield rows


def _version(spot: SparkSpot, view: Described | None, names: frozenset[str]) -> int:
    """The version that the view shows; if it shows none, the newest that has a manifest."""
    shown = None if view is None else view.version_shown(spot)
    numbers = [number_in(name, spot.name) for name in names if name.endswith(OF_MANIFEST)]
    known = [number for number in numbers if number is not None]
    if view is None or not known:
        raise ReleaseError(f"{spot.schema}.{spot.name} is no release of sqlanon: there is no manifest of it")
    return shown if shown in known else max(known)


def _row(server: SparkEngine, spot: SparkSpot, version: int) -> tuple[str, int, str]:
    rows = server.rows(sr.manifest_of(spot.manifest(version)))
    if len(rows) != 1:
        raise ValueError(f"it has {len(rows)} rows")
    release, number, text = rows[0]
    return release, number, text
