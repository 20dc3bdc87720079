"""Release targets: the protocols of a backend, and the registry of backends.

A backend is one folder of `sqlanon.publish.targets`, registered by one call. `sqlanon.publish.stage` treats all of
them alike.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from sqlglot import exp

from sqlanon.audit.verification import Verification
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.errors import ReleaseError
from sqlanon.hierarchies.bounds import RangeKind
from sqlanon.policy import Policy
from sqlanon.publish.targets.kinds import KINDS, kind_for_path, kind_for_target
from sqlanon.release.manifest import Facts, Manifest, ReleasedColumn
from sqlanon.release.metadata import SuppressedRows
from sqlanon.sources import Source
from sqlanon.sources.run import Run
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.support.checks import Check


@dataclass(frozen=True)
class ExpectedFigures:
    """Figures that the written release must have, and its digest if it is known in advance.

    Masked rows are included; they may form a separate class.
    """

    rows: int
    classes: int
    smallest_class: int
    masked_rows: int = 0
    digest: str | None = None


class Draft(Protocol):
    """A release before it is written. Its rows are queries of the engine, or of the server, that has the source."""

    @property
    def run(self) -> Run: ...
    @property
    def search_input(self) -> SearchInput: ...
    @property
    def expected_figures(self) -> ExpectedFigures: ...
    @property
    def quasi_identifiers(self) -> Sequence[str]: ...
    @property
    def range_kinds(self) -> Mapping[str, RangeKind]: ...
    @property
    def is_draft(self) -> bool: ...
    @property
    def retained_versions(self) -> int: ...
    def columns(self) -> tuple[ReleasedColumn, ...]: ...
    def repeating_columns(self) -> Collection[str]:
        """The text columns with few distinct values."""

    def rows(self) -> AbstractContextManager[exp.Select]: ...
    def remote_rows(self) -> AbstractContextManager[exp.Query]: ...
    def label_levels(self, released: exp.Table) -> exp.Query: ...
    def checks(self, released: exp.Table) -> list[Check]:
        """Run the checks that need the source."""

    def suppressed_by_label(self, released: exp.Table) -> SuppressedRows:
        """Count the suppressed rows that the release may show."""

    def manifest(self, table_name: str, facts: Facts) -> Manifest: ...


@runtime_checkable
class Staged(Protocol):
    """A release that is written but not visible to readers yet."""

    @property
    def sha256(self) -> str | None:
        """The SHA-256 of the complete file, or of the rows on a server; None without a ledger."""

    @property
    def kept_manifests(self) -> Sequence[Manifest]:
        """The manifests of the earlier versions that are kept."""

    def rows(self) -> AbstractContextManager[exp.Table]:
        """Open the written rows in the engine of the source."""

    def complete(self, manifest: Manifest, suppressed: SuppressedRows) -> Verification:
        """Write the manifest and the metadata, and verify the whole release as a reader would."""

    def lock(self) -> AbstractContextManager[None]:
        """Lock the target against other publications, if it needs a lock."""


@runtime_checkable
class ReleaseTarget(Protocol):
    """A file or a server table that a release is written to."""

    @property
    def path(self) -> Path:
        """The location for the catalog, without secrets."""

    @property
    def table_name(self) -> str: ...
    def stage(self, draft: Draft) -> AbstractContextManager[Staged]:
        """Write the rows where readers cannot see them; remove them on exit unless they are committed."""

    def facts(self, staged: Any) -> Facts:
        """Count the written rows, independently of the search."""

    def commit(self, staged: Any, manifest: Manifest) -> Any:
        """Make the release visible to readers, in one step."""


class ReleasedRows(Protocol):
    """A release whose rows can be read."""

    def rows(self, engine: DuckDBEngine, manifest: Manifest, alias: str = ...) -> AbstractContextManager[exp.Table]:
        """Open the rows in the engine of the source."""


class OpenedRelease(ReleasedRows, Protocol):
    """A release that was verified alone, or is trusted."""

    @property
    def verification(self) -> Verification:
        """The checks of the release alone; none if it is trusted."""

    @property
    def is_changed(self) -> bool:
        """Whether the file, or the rows on a server, differ from those that were published."""

    def sha256(self) -> str | None:
        """The SHA-256 that the ledger records: of the file, or of the rows on a server."""


class ReleaseLocation(ReleasedRows, Protocol):
    """A location that releases are read from."""

    @property
    def path(self) -> Path:
        """The location for the catalog, without secrets."""

    def verify(self, limits: Limits = NO_LIMITS, sha256: str | None = None) -> Verification:
        """Verify the release alone; compare its file with a SHA-256, if one is given."""

    def open_verified(self, limits: Limits, sha256: str | None = None) -> AbstractContextManager[OpenedRelease]:
        """Verify the release and keep its rows at hand; a server's rows are read once."""

    def read_manifests(self, limits: Limits) -> Sequence[Manifest] | None:
        """Read the current manifests: empty without a release, None if the location cannot be read."""

    def open_version(
        self, limits: Limits, version: int | None, sha256: str | None, trusted: bool
    ) -> AbstractContextManager[OpenedRelease]:
        """Open a version; verify it unless it is trusted or its file has this SHA-256."""


@dataclass(frozen=True)
class Reach:
    """The policy and the source of a run, which say which locations it can reach."""

    policy: Policy | None = field(default=None, repr=False)
    source: Source | None = field(default=None, repr=False)


def refuse_unsupported(policy: Policy, source: Source) -> None:
    """Refuse a policy whose release its target cannot hold, before the search."""
    module = import_module(kind_for_target(None, policy).module)
    if hasattr(module, "refuse_unsupported"):
        module.refuse_unsupported(policy, source)


def target_for(draft: Draft, target: Any, table_name: str | None) -> ReleaseTarget:
    module = import_module(kind_for_target(target, draft.search_input.policy).module)
    release_target: ReleaseTarget = module.target_for(draft, target, table_name)
    return release_target


def release_location(release: Any, table_name: str | None) -> ReleaseLocation:
    """The location of a release that is named by a path, an address, or a session."""
    kind = next((kind for kind in reversed(KINDS.values()) if kind.reads(release)), None)
    if kind is None:
        raise ReleaseError(f"cannot verify a {type(release).__name__}: give a path, an address, or a session")
    location: ReleaseLocation = import_module(kind.module).release_location(release, table_name)
    return location


def recorded_location(path: Path, table_name: str, reach: Reach) -> ReleaseLocation:
    """The location that the catalog records as a path; raise an error if this run cannot reach it."""
    module = import_module(kind_for_path(path).module)
    location: ReleaseLocation = module.recorded_location(path, table_name, reach)
    return location


def refuse_draft_over(manifests: Iterable[Manifest] | None, location: object) -> None:
    """Refuse a draft that would replace a published release, or one whose manifests cannot be read (None)."""
    if manifests is None or not all(manifest.draft for manifest in manifests):
        raise ReleaseError(f"{location} is a published release, which a draft does not replace: {PUBLISH_ELSEWHERE}")


PUBLISH_ELSEWHERE = "publish the draft to another place"


def unsupported_types(types: Mapping[str, str], target: str, alternative: str = "") -> ReleaseError:
    """The error for types that a target would change, or whose values could not be verified."""
    names = ", ".join(f"{name!r} ({type_})" for name, type_ in types.items()) or "these columns"
    remedy = f"convert them in the files, or with a source query of a database{alternative}"
    return ReleaseError(f"{target} cannot hold the types of {names} unchanged: {remedy}")
