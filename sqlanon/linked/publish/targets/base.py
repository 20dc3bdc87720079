"""Targets of linked tables: a location holds all tables of a release with one manifest, and shows them at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

import duckdb

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.errors import BrokenReleaseError, ReleaseError
from sqlanon.linked.records import LinkedRecords
from sqlanon.linked.release.manifest import LinkedManifest
from sqlanon.linked.release.verification import LinkedVerification, check_rows
from sqlanon.linked.release.views import KNOWN_ROWS, WHOLE_ROWS
from sqlanon.places.addresses import format_location
from sqlanon.publish.targets.kinds import KINDS
from sqlanon.support.checks import Check
from sqlanon.support.resources import LINKED_MACROS, macro_scripts
from sqlanon.support.workdir import spill_directory


@dataclass(frozen=True)
class OpenTables:
    """A release that is open: its rows are in the attached database, under the names of the manifest.

    ``checks`` are those of everything but the rows. If one of them fails, the rows may be missing.
    """

    engine: DuckDBEngine
    manifest: LinkedManifest
    checks: tuple[Check, ...]


class LinkedLocation(Protocol):
    """A location that a release of linked tables is read from."""

    @property
    def path(self) -> Path:
        """The location for the catalog, without secrets."""

    def open(self, limits: Limits = NO_LIMITS) -> AbstractContextManager[OpenTables]:
        """Open the release in a separate engine, in which nothing of the release can reach beyond it."""


class StagedTables(Protocol):
    """A release that is written but not visible to readers yet.

    ``file`` is the DuckDB file for its rows, and ``version`` the number of the release at its location.
    """

    @property
    def version(self) -> int: ...
    @property
    def file(self) -> Path: ...
    @property
    def sha256(self) -> str | None:
        """The SHA-256 of the complete file; None for a folder or a server."""

    def write(self, engine: DuckDBEngine, manifest: LinkedManifest) -> None:
        """Complete the release from the rows, which the engine has attached with its macros."""

    def verify(self, counted_manifest: LinkedManifest) -> LinkedVerification:
        """Verify the whole release as a reader would. The smallest group of a manifest is not counted again in rows
        with its digests."""

    def commit(self) -> None:
        """Make all tables visible to readers, in one step."""


class LinkedTarget(Protocol):
    """A location that a release of linked tables is written to."""

    @property
    def location(self) -> LinkedLocation: ...
    def stage(self, records: LinkedRecords) -> AbstractContextManager[StagedTables]:
        """Prepare the location; remove on exit what was not committed."""


def target_for(records: LinkedRecords, target: str | PathLike[str] | None) -> LinkedTarget:
    """The location that the caller or the policy names."""
    kind = next(kind for kind in reversed(KINDS.values()) if kind.takes(target, records.policy))
    if not kind.linked_module:
        raise ReleaseError(
            f"release: several tables are not released to {kind.name}: release them to a DuckDB file, a folder of "
            "Parquet files, PostgreSQL or Spark"
        )
    if names := [table.name for table in records.tables if table.name.lower() in (KNOWN_ROWS, WHOLE_ROWS)]:
        raise ReleaseError(f"every release has a view {names[0]!r}: give the table another name")
    linked_target: LinkedTarget = import_module(kind.linked_module).target_for(records, target)
    return linked_target


def find_location(release: Any, schema: str | None = None) -> LinkedLocation | None:
    """The location of a release of linked tables that a caller names; None if it is something else."""
    kind = next((kind for kind in reversed(KINDS.values()) if kind.reads(release)), None)
    if kind is None or not kind.linked_module:
        return None
    location: LinkedLocation | None = import_module(kind.linked_module).find_location(release, schema)
    return location


# --- Reading, for all targets


@contextmanager
def open_engine(limits: Limits = NO_LIMITS) -> Iterator[tuple[DuckDBEngine, Path]]:
    """A separate engine with the macros of a release, and the folder of its temporary files."""
    with spill_directory() as spill, closing(DuckDBEngine.open_private(spill, limits)) as engine:
        engine.script(*macro_scripts(LINKED_MACROS))
        yield engine, spill


@contextmanager
def translate_manifest_errors(path: Path | str) -> Iterator[None]:
    """Turn the errors of a manifest that cannot be read into errors of sqlanon."""
    try:
        yield
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError, duckdb.Error) as error:
        raise BrokenReleaseError(f"{path} was a release of linked tables; its manifest is broken: {error}") from error


@contextmanager
def translate_read_errors(path: Path) -> Iterator[None]:
    """Turn errors of the engine that reads a release into errors of sqlanon."""
    try:
        yield
    except duckdb.OutOfMemoryException as error:
        raise ReleaseError(
            f"{format_location(path)} cannot be verified: it needs more memory; raise memory_limit"
        ) from error
    except duckdb.Error as error:
        raise BrokenReleaseError(
            f"{format_location(path)} was a release of linked tables; it cannot be read: {error}"
        ) from error


def verify_tables(
    location: LinkedLocation, limits: Limits = NO_LIMITS, counted_manifest: LinkedManifest | None = None
) -> LinkedVerification:
    """Verify a release of linked tables by itself: its contents first, then its rows.

    ``counted_manifest``: as in `check_rows`.
    """
    with location.open(limits) as tables:
        return verify_open(location.path, tables, counted_manifest)


def verify_open(path: Path, tables: OpenTables, counted_manifest: LinkedManifest | None = None) -> LinkedVerification:
    """Verify a release that is open; ``counted_manifest`` as in `check_rows`."""
    checks = tables.checks
    if all(check.passed is not False for check in checks):
        with translate_read_errors(path):
            checks = (*checks, *check_rows(tables.engine, tables.manifest, counted_manifest))
    return LinkedVerification(path, tables.manifest, checks)
