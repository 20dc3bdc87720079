"""A release wherever it is: verified, and its rows beside those of its source."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.errors import ReleaseError
from sqlanon.policy import is_postgres
from sqlanon.policy.names import VERIFIED
from sqlanon.policy.spark import is_session, names_spark
from sqlanon.release.attached import attached, read_claims
from sqlanon.release.file_hash import file_check
from sqlanon.release.manifest import Manifest
from sqlanon.release.targets.postgres_reader import PostgresSpot, copied_rows, verify_postgres
from sqlanon.release.targets.spark_catalog import SparkSpot
from sqlanon.release.targets.spark_reader import fetched_rows, verify_spark
from sqlanon.release.verify import Verification, verify_file

Spot: TypeAlias = "Path | PostgresSpot | SparkSpot"


def verify_anywhere(
    release: Any, table_name: str | None, limits: Limits = NO_LIMITS, sha256: str | None = None
) -> Verification:
    """Verify a release by itself, be it a file, in PostgreSQL or in Spark."""
    spot = spot_of(release, table_name)
    if isinstance(spot, Path):
        found = verify_file(spot, limits=limits)
        return found if sha256 is None else replace(found, checks=(file_check(spot, sha256), *found.checks))
    if sha256 is not None:
        raise ReleaseError("sha256 is of a file: a release on a server is compared with its source (--policy)")
    return verify_spark(spot, limits) if isinstance(spot, SparkSpot) else verify_postgres(spot, limits)


def rows_beside(engine: DuckDBEngine, spot: Spot, manifest: Manifest) -> AbstractContextManager[exp.Table]:
    """The rows of a release, as a relation of the engine that has its source, for a while."""
    if isinstance(spot, SparkSpot):
        return fetched_rows(engine, spot, manifest)
    if isinstance(spot, PostgresSpot):
        return copied_rows(engine, spot, manifest)
    return _rows_of_file(engine, spot, manifest)


@contextmanager
def _rows_of_file(engine: DuckDBEngine, path: Path, manifest: Manifest) -> Iterator[exp.Table]:
    read_claims(path, engine.limits, manifest.version)
    with attached(engine, path, manifest, VERIFIED) as relation:
        yield relation


def spot_of(release: Any, table_name: str | None) -> Spot:
    """Where a release is."""
    if is_file := isinstance(release, os.PathLike):
        place = ""
    elif isinstance(release, str):
        in_spark, in_postgres = names_spark(release), is_postgres(release)
        is_file = not (in_spark or in_postgres)
        place = "Spark" if in_spark else "PostgreSQL"
    elif is_session(release):
        place = "Spark"
    else:
        raise ReleaseError(
            f"a {type(release).__name__} is no place of a release: give a path, an address, or a session"
        )
    if is_file:
        if table_name is not None:
            raise ReleaseError("a file has one release, and needs no table: leave it out")
        return Path(release).absolute()
    if table_name is None:
        raise ReleaseError(f"say which release in {place}: --table schema.name")
    return SparkSpot.of(release, table_name) if place == "Spark" else PostgresSpot.of(release, table_name)
