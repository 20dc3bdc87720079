"""Shared parts of releases in PostgreSQL and Spark: locations, versions, targets, and the copy of their rows.

A server holds versioned tables (``patients_v3``), a view of the newest one under the name of the release, and the
manifest of each release. Readers use the view.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from sqlglot import exp

from sqlanon.audit.verification import Verification
from sqlanon.disclosure.residual_risk import ResidualRisk
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.engines.travel import decode_columns
from sqlanon.errors import BrokenReleaseError, ReleaseError, SqlanonError
from sqlanon.frequency.class_sizes import ClassSizes, class_sizes
from sqlanon.places.addresses import VERSION_DIGITS, format_location
from sqlanon.policy import ReleaseSection
from sqlanon.publish.targets.base import Draft
from sqlanon.release.manifest import Manifest, version_name
from sqlanon.release.sentences import comment_on_column, render_manifest
from sqlanon.support.checks import Check, check_faults
from sqlanon.support.expressions import create_temporary_table, drop_table, table


class Server(Protocol):
    def translate_errors(self, kind: type[SqlanonError]) -> AbstractContextManager[None]: ...
    def rows(self, query: exp.Expr, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]: ...


@dataclass(frozen=True)
class ServerLocation(ABC):
    """The address of a server, the schema of a release, and the name of the view that readers use."""

    address: str | None = field(repr=False)
    schema: str
    name: str

    server_name: ClassVar[str]
    dialect: ClassVar[str]  # the server's, for sqlglot

    @property
    @abstractmethod
    def path(self) -> Path:
        """The location for the ledger, without secrets. Messages show it as `format_location`."""

    @property
    def table(self) -> exp.Table:
        """The view that readers use."""
        return table(self.name, self.schema)

    @property
    def qualified_name(self) -> str:
        return f"{self.schema}.{self.name}"

    def version_table(self, version: int) -> exp.Table:
        """The table with the rows of a version."""
        return table(version_name(self.name, version), self.schema)

    @abstractmethod
    def opened_server(self) -> AbstractContextManager[Server]: ...

    @abstractmethod
    def verify(self, limits: Limits = NO_LIMITS, sha256: str | None = None) -> Verification:
        """Verify the release alone: columns, counts, requirements, content digest, and the server's catalog."""

    def name_is_taken(self) -> ReleaseError:
        return ReleaseError(
            f"{self.qualified_name} exists and is not a release of sqlanon: choose another name, or remove it"
        )

    def schema_is_missing(self) -> ReleaseError:
        return ReleaseError(
            f"schema {self.schema!r} does not exist in {self.server_name}: create it first (CREATE SCHEMA)"
        )

    def manifest_is_missing(self) -> ReleaseError:
        return ReleaseError(f"{self.qualified_name} is not a release of sqlanon: it has no manifest")

    @contextmanager
    def translate_manifest_errors(self) -> Iterator[None]:
        """Turn the errors of parsing a broken manifest into a `BrokenReleaseError`."""
        try:
            yield
        except SqlanonError:
            raise
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise BrokenReleaseError(
                f"{format_location(self.path)} was a release of sqlanon; its manifest is broken: {error}"
            ) from error


@dataclass(frozen=True)
class ServerTarget:
    location: ServerLocation

    @property
    def path(self) -> Path:
        return self.location.path

    @property
    def table_name(self) -> str:
        return self.location.name


class StagedOnServer(ABC):
    """A release on a server that readers cannot see yet. Its version is new, so no lock is needed."""

    draft: Draft
    kept_manifests: ClassVar[Sequence[Manifest]] = ()
    """A server keeps one version."""

    @property
    def sha256(self) -> str | None:
        return None if self.draft.search_input.policy.catalog is None else self.hash_rows()

    @abstractmethod
    def hash_rows(self) -> str: ...

    def lock(self) -> AbstractContextManager[None]:
        return nullcontext()


@dataclass(frozen=True)
class ServerRelease:
    """A published release on a server."""

    location: ServerLocation
    manifest: Manifest
    limits: Limits = NO_LIMITS  # the limits of this machine, for `verify`
    sha256: ClassVar[None] = None
    """Only files have one."""

    @property
    def path(self) -> str:
        """The server, the schema and the view as text, without user, password or token."""
        return format_location(self.location.path)

    @property
    def table(self) -> str:
        """The view that readers use, with its schema."""
        return self.location.qualified_name

    def verify(self) -> Verification:
        """Verify the release alone, as any reader can: columns, counts, requirements, content digest."""
        return self.location.verify(self.limits)

    def class_sizes(self) -> list[tuple[int, int]]:
        """Count the classes of each size on the server: pairs of size in rows and number of classes, ascending."""
        with self.location.opened_server() as server, server.translate_errors(ReleaseError):
            return [(size, classes) for size, classes, _ in server.rows(self._class_sizes())]

    def class_sizes_and_risk(self) -> tuple[ClassSizes, ResidualRisk | None]:
        """The sizes of the classes; the residual risk is not measured on a server."""
        return ClassSizes.from_classes(dict(self.class_sizes())), None

    def class_sizes_sql(self) -> str:
        """The statement of `class_sizes`, for the server."""
        return self._class_sizes().sql(self.location.dialect, pretty=True)

    def _repr_html_(self) -> str:
        """Render the manifest for notebooks, without a query to the server."""
        return render_manifest(self.manifest, f"Release {self.table}", f"in {self.location.server_name}", self.path)

    def _class_sizes(self) -> exp.Query:
        return class_sizes(self.location.table, self.manifest.quasi_identifiers)


def release_section(draft: Draft) -> ReleaseSection:
    section = draft.search_input.policy.release
    assert section is not None
    return section


def split_location(release: Any, table_name: str | None, server_name: str) -> tuple[Any, str]:
    """The server of a release and its table name, which is required."""
    if table_name is None:
        raise ReleaseError(f"name the release in {server_name}: --table schema.name")
    return release, table_name


def column_comments(manifest: Manifest) -> dict[str, str]:
    return {column.name: comment_on_column(manifest, column.name, column.role) for column in manifest.columns}


def refuse_sha256(sha256: str | None) -> None:
    if sha256 is not None:
        raise ReleaseError("--sha256 needs a file; compare a release on a server with its source (--policy)")


def parse_manifests(texts: Iterable[str]) -> list[Manifest] | None:
    """Parse the manifests of a location; None if one is broken."""
    try:
        return [Manifest.from_json(text) for text in texts]
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def version_number(name: str, release: str) -> int | None:
    """The version of a release that a table has by its name; None if the name is not of a version.

    >>> version_number("patients_v3", "patients"), version_number("patients_view", "patients")
    (3, None)
    """
    match = re.fullmatch(re.escape(release) + rf"_v([0-9]{{1,{VERSION_DIGITS}}})", name)
    return None if match is None else int(match[1])


def next_version(numbers: Iterable[int | None]) -> int:
    """The number after the highest version; tables that are not versions have None."""
    return max((number for number in numbers if number is not None), default=0) + 1


def columns_of_table(rows_table: str) -> str:
    return f"exactly the columns of the table {rows_table!r}"


def check_versions(unexpected: Sequence[str]) -> Check:
    """Fail if tables that are named like versions are not part of the release."""
    flaws = [f"not of the release: {', '.join(sorted(unexpected))}"] if unexpected else []
    return check_faults("versions", flaws, "no other relations")


@contextmanager
def copy_stream(
    engine: DuckDBEngine, name: str, types: Mapping[str, str], stream: AbstractContextManager[Any]
) -> Iterator[exp.Table]:
    """Copy the rows of a stream to a temporary table of an engine; drop it on exit."""
    target = table(name, "main", "temp")
    with stream as reader, engine.register_arrow(reader) as arrow_table:
        engine.execute(create_temporary_table(target.copy(), decode_columns(arrow_table, types)))
    try:
        yield target
    finally:
        engine.execute(drop_table(target.copy()))
