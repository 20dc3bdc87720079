"""Release targets: the protocols of a backend, and the registry of backends.

A backend is one folder of `sqlanon.release.targets`, registered by one call. `sqlanon.release.publish` treats all of
them alike.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from sqlglot import exp

from sqlanon.audit.check import Check
from sqlanon.disclosure.residual_risk import ResidualRisk
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.errors import ReleaseError
from sqlanon.hierarchies.bounds import RangeKind
from sqlanon.places.addresses import (
    format_location,
    is_postgres,
    is_postgres_location,
    is_session,
    is_spark_location,
    resolves_to_spark,
)
from sqlanon.policy import Policy
from sqlanon.release.manifest import Facts, Manifest, ReleasedColumn
from sqlanon.release.metadata import SuppressedRows
from sqlanon.release.source_change import SourceChange
from sqlanon.sources import Source
from sqlanon.sources.run import Run
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.support.markup import html_table

CLAIMS = ("published_at", "sqlanon_version", "engine", "version", "policy_hash", "rows", "suppressed_rows", "optimal")
"""Manifest fields that cannot be checked against the rows: a forger can replace them by other consistent values."""


@dataclass(frozen=True)
class Verification:
    """All checks of a release.

    Attributes
    ----------
    path, manifest, checks:
        The release, its manifest, and the checks.
    digest:
        The content digest of the rows.
    suppressed:
        The suppressed rows by label, or None.
    sha256:
        The SHA-256 of the file, if it was just published.
    residual_risk:
        The most serious remaining disclosure in the rows, such as homogeneous classes; None if there is none, or if it
        was not measured.
    source_change:
        The changes of the source since publication, if the release itself is unchanged; else None.
    """

    path: Path
    manifest: Manifest
    checks: tuple[Check, ...]
    digest: str
    suppressed: SuppressedRows | None = None
    sha256: str | None = None
    residual_risk: ResidualRisk | None = None
    source_change: SourceChange | None = None

    @property
    def is_file(self) -> bool:
        """Whether the release is a file."""
        return kind_for_path(self.path).in_files

    @property
    def verified(self) -> bool:
        """Whether no check failed."""
        return all(check.passed is not False for check in self.checks)

    @property
    def claims(self) -> tuple[str, ...]:
        """The manifest fields that could not be checked; empty if the SHA-256 of a file matches."""
        names = {check.name for check in self.checks if check.passed}
        is_published_file = "sha256" in names or (self.is_file and "against the ledger: sha256" in names)
        return () if is_published_file else CLAIMS

    @property
    def failures(self) -> tuple[str, ...]:
        """The failed checks, with their messages."""
        return tuple(f"{check.name}: {check.message}" for check in self.checks if check.passed is False)

    def _repr_html_(self) -> str:
        """Render the checks as a table for notebooks."""
        results = {True: "ok", False: "FAILED", None: "not verifiable alone"}
        rows = [(check.name, results[check.passed], check.message) for check in self.checks]
        verdict = "verified" if self.verified else "NOT verified"
        return html_table(f"{format_location(self.path)}: {verdict}", ["check", "result", "what was found"], rows)

    def __repr__(self) -> str:
        failed = [check.name for check in self.checks if check.passed is False]
        summary = f"failed={failed}" if failed else f"checks={len(self.checks)}"
        return f"Verification({format_location(self.path)!r}, verified={self.verified}, {summary})"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {
            "release": format_location(self.path),
            "table": self.manifest.table_name if self.is_file else self.path.name,
            "verified": self.verified,
            **({"draft": True} if self.manifest.draft else {}),
            **({} if self.source_change is None else {"source_change": self.source_change.to_dict()}),
            "checks": [vars(check) for check in self.checks],
            "claims": list(self.claims),
        }


@dataclass(frozen=True)
class ExpectedFigures:
    """Figures that the written release must have, and its digest if it is known in advance.

    Masked rows are included; they may form a class of their own.
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


class Published(Protocol):
    """A published release."""

    @property
    def manifest(self) -> Manifest: ...


AnyStaged = TypeVar("AnyStaged", bound=Staged)
AnyRelease_co = TypeVar("AnyRelease_co", bound=Published, covariant=True)


@runtime_checkable
class ReleaseTarget(Protocol[AnyStaged, AnyRelease_co]):
    """A file or a server table that a release is written to."""

    @property
    def path(self) -> Path:
        """The location for the catalog, without secrets."""

    @property
    def table_name(self) -> str: ...
    def stage(self, draft: Draft) -> AbstractContextManager[AnyStaged]:
        """Write the rows where readers cannot see them; remove them on exit unless they are committed."""

    def facts(self, staged: AnyStaged) -> Facts:
        """Count the written rows, independently of the search."""

    def commit(self, staged: AnyStaged, manifest: Manifest) -> AnyRelease_co:
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


@dataclass(frozen=True)
class TargetKind:
    """A backend for releases.

    Attributes
    ----------
    name:
        The name in the registry.
    module:
        A module with ``target_for(draft, target, table_name)``, ``release_location(release, table_name)`` and
        ``recorded_location(path, table_name, reach)``.
    takes:
        Whether `publish` writes to this target; for a target of None, whether the policy names one.
    reads:
        Whether a release that a caller names is of this kind.
    recorded:
        Whether a path in the catalog is of this kind.
    refuse:
        Raise an error before the search if the target cannot hold the columns of the source.
    in_files:
        Whether a release is a file.
    compares:
        Whether the rows of a release can be compared with another release.
    writes:
        The object that is written, for a plan.
    """

    name: str
    module: str
    takes: Callable[[Any, Policy], bool] = lambda target, policy: False
    reads: Callable[[Any], bool] = lambda release: False
    recorded: Callable[[Path], bool] = lambda path: False
    refuse: Callable[[Policy, Source], None] = lambda policy, source: None
    in_files: bool = False
    compares: bool = True
    writes: str = "a fresh file"


KINDS: dict[str, TargetKind] = {}
"""The registered kinds by name; the newest has precedence."""


def register(kind: TargetKind) -> None:
    if kind.name in KINDS:
        raise ValueError(f"target kind {kind.name!r} is already registered")
    KINDS[kind.name] = kind


def unregister(kind: TargetKind) -> None:
    del KINDS[kind.name]


def kind_for_target(target: Any, policy: Policy) -> TargetKind:
    return next(kind for kind in reversed(KINDS.values()) if kind.takes(target, policy))


def kind_for_path(path: Path) -> TargetKind:
    return next(kind for kind in reversed(KINDS.values()) if kind.recorded(path))


def target_for(draft: Draft, target: Any, table_name: str | None) -> ReleaseTarget[Any, Any]:
    module = import_module(kind_for_target(target, draft.search_input.policy).module)
    release_target: ReleaseTarget[Any, Any] = module.target_for(draft, target, table_name)
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


def _is_in_section(name: str) -> Callable[[Any, Policy], bool]:
    return lambda target, policy: target is None and policy.release is not None and bool(getattr(policy.release, name))


_FILE = "sqlanon.release.targets.file.target"
_POSTGRES = "sqlanon.release.targets.postgres.target"

register(
    TargetKind(
        "file",
        _FILE,
        takes=lambda target, policy: True,
        reads=lambda release: isinstance(release, (str, PathLike)),
        recorded=lambda path: True,
        refuse=lambda policy, source: import_module(_FILE).refuse_unsupported_source(policy, source),
        in_files=True,
    )
)
register(
    TargetKind(
        "postgres",
        _POSTGRES,
        takes=_is_in_section("postgres"),
        reads=lambda release: isinstance(release, str) and is_postgres(release),
        recorded=is_postgres_location,
        refuse=lambda policy, source: import_module(_POSTGRES).refuse_unsupported_server(policy, source),
        writes="a new table in PostgreSQL",
    )
)
register(
    TargetKind(
        "spark",
        "sqlanon.release.targets.spark.target",
        takes=_is_in_section("spark"),
        reads=lambda release: is_session(release) or (isinstance(release, str) and resolves_to_spark(release)),
        recorded=is_spark_location,
        compares=False,
        writes="a new table in Spark",
    )
)
