"""Release targets: their protocols, and the registry of kinds of places.

A target is a module, registered by one call; `sqlanon.release.publish` publishes to all targets in the same way.
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
from sqlanon.places.addresses import is_session, is_spark_location, resolves_to_spark
from sqlanon.policy import Policy, format_location, is_postgres, is_postgres_location
from sqlanon.release.manifest import Facts, Manifest, ReleasedColumn
from sqlanon.release.metadata import SuppressedRows
from sqlanon.release.source_change import SourceChange
from sqlanon.sources import Source
from sqlanon.sources.run import Run
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.support.markup import html_table

CLAIMS = ("published_at", "sqlanon_version", "engine", "version", "policy_hash", "rows", "suppressed_rows", "optimal")
"""Fields of a manifest that no row of the release supports: a forger can write others that fit one another."""


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
        The worst that the rows still show, such as homogeneous classes; None if there is nothing to say, or if this was
        not counted.
    source_change:
        What has become of the source, where the release is as it was published and the source is not; else None.
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
        """The fields of the manifest that nothing but the manifest says; none once the SHA-256 of a file matches."""
        names = {check.name for check in self.checks if check.passed}
        is_published_file = "sha256" in names or (self.is_file and "against the ledger: sha256" in names)
        return () if is_published_file else CLAIMS

    @property
    def failures(self) -> tuple[str, ...]:
        """The failed checks, with their messages."""
        return tuple(f"{check.name}: {check.message}" for check in self.checks if check.passed is False)

    def _repr_html_(self) -> str:
        """For notebooks: the checks as a table."""
        words = {True: "ok", False: "FAILED", None: "not verifiable alone"}
        rows = [(check.name, words[check.passed], check.message) for check in self.checks]
        verdict = "verified" if self.verified else "NOT verified"
        return html_table(f"{format_location(self.path)}: {verdict}", ["check", "result", "what was found"], rows)

    def __repr__(self) -> str:
        failed = [check.name for check in self.checks if check.passed is False]
        what = f"failed={failed}" if failed else f"checks={len(self.checks)}"
        return f"Verification({format_location(self.path)!r}, verified={self.verified}, {what})"

    def to_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
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
    """The rows, classes and smallest class that the release must have; and its digest, where it is known before.
    Masked rows count, and may be a class of their own."""

    rows: int
    classes: int
    smallest_class: int
    masked_rows: int = 0
    digest: str | None = None


class Draft(Protocol):
    """A release before it is written."""

    @property
    def run(self) -> Run:
        """The run that made it, whose engine has the source."""

    @property
    def search_input(self) -> SearchInput:
        """The source and the policy."""

    @property
    def expected_figures(self) -> ExpectedFigures:
        """The expected rows and classes."""

    @property
    def quasi_identifiers(self) -> Sequence[str]:
        """The columns that form the classes."""

    @property
    def ranges(self) -> Mapping[str, RangeKind]:
        """The kind of range of each column's labels, by column in lower case."""

    def label_levels(self, released: exp.Table) -> exp.Query:
        """For its written rows: the labels of generalized attributes at each level from their own up."""

    @property
    def is_draft(self) -> bool:
        """Whether it is a draft."""

    @property
    def retained_versions(self) -> int:
        """The number of versions that its place keeps."""

    def columns(self) -> tuple[ReleasedColumn, ...]:
        """Its columns, in order."""

    def repeating_columns(self) -> Collection[str]:
        """The text columns with few values."""

    def rows(self) -> AbstractContextManager[exp.Select]:
        """The statement that makes the rows, for the engine of the source."""

    def remote_rows(self) -> AbstractContextManager[exp.Query]:
        """The statement that makes the rows, on the server of the source."""

    def checks(self, released: exp.Table) -> list[Check]:
        """The checks that need the source."""

    def suppressed_by_label(self, released: exp.Table) -> SuppressedRows:
        """The figures of suppressed rows that the release may show."""

    def manifest(self, table_name: str, facts: Facts) -> Manifest:
        """The manifest, once the rows are counted."""


@runtime_checkable
class Staged(Protocol):
    """A release that is written but not visible yet."""

    @property
    def sha256(self) -> str | None:
        """The SHA-256 of the complete file, or of the rows on a server; None if no ledger needs that."""

    @property
    def kept_manifests(self) -> Sequence[Manifest]:
        """The manifests of the earlier versions that stay in its place."""

    def rows(self) -> AbstractContextManager[exp.Table]:
        """The rows, for the engine of the source."""

    def complete(self, manifest: Manifest, suppressed: SuppressedRows) -> Verification:
        """Add the manifest and the metadata, and verify everything as a reader would."""

    def lock(self) -> AbstractContextManager[None]:
        """The lock of the place, if it needs one, against other publications."""


class Published(Protocol):
    """A published release."""

    @property
    def manifest(self) -> Manifest:
        """The manifest."""


AnyStaged = TypeVar("AnyStaged", bound=Staged)
AnyRelease_co = TypeVar("AnyRelease_co", bound=Published, covariant=True)


@runtime_checkable
class ReleaseTarget(Protocol[AnyStaged, AnyRelease_co]):
    """A place for a release."""

    @property
    def path(self) -> Path:
        """The place for the catalog, without secrets."""

    @property
    def table_name(self) -> str:
        """The name of the released table."""

    def stage(self, draft: Draft) -> AbstractContextManager[AnyStaged]:
        """Write the rows where nobody can read them; they are removed at the end unless committed."""

    def facts(self, staged: AnyStaged) -> Facts:
        """Count the written rows, without figures of the search."""

    def commit(self, staged: AnyStaged, manifest: Manifest) -> AnyRelease_co:
        """Make the release visible to readers, in one step."""


class ExistingRelease(Protocol):
    """An existing release, which is not trusted yet."""

    @property
    def manifest(self) -> Manifest:
        """The manifest."""

    @property
    def digest(self) -> str:
        """The content digest of the rows."""

    @property
    def failures(self) -> Sequence[str]:
        """The failed checks, if it was verified."""

    @property
    def is_changed(self) -> bool:
        """Whether the file, or the rows on a server, were changed since it was published."""

    def rows(self, engine: DuckDBEngine, alias: str) -> AbstractContextManager[exp.Table]:
        """The rows, temporarily, for another engine."""


class ReleasedRows(Protocol):
    """What has the rows of a release."""

    def rows(self, engine: DuckDBEngine, manifest: Manifest) -> AbstractContextManager[exp.Table]:
        """The rows, temporarily, for the engine of the source."""


class VerifiedRelease(ReleasedRows, Protocol):
    """A release that was verified by itself, for checks with its source."""

    @property
    def verification(self) -> Verification:
        """The checks of the release by itself."""

    def sha256(self) -> str | None:
        """The SHA-256 that the ledger has of the release: of its file, or of its rows on a server."""


class ReleaseLocation(ReleasedRows, Protocol):
    """A place where releases are read."""

    @property
    def path(self) -> Path:
        """The place for the catalog."""

    def verify(self, limits: Limits = NO_LIMITS, sha256: str | None = None) -> Verification:
        """Verify the release by itself; with a SHA-256, compare its file."""

    def open_verified(self, limits: Limits, sha256: str | None = None) -> AbstractContextManager[VerifiedRelease]:
        """Verify the release as `verify` does. On a server, the rows of what is verified are read once."""

    def read_manifests(self, limits: Limits) -> Sequence[Manifest] | None:
        """The current manifests, empty without a release; None if the place cannot be read."""

    def open_version(
        self, limits: Limits, version: int | None, sha256: str | None, trusted: bool
    ) -> AbstractContextManager[ExistingRelease]:
        """A version of the release, verified unless it is trusted or its file has this SHA-256."""


@dataclass(frozen=True)
class Reach:
    """The places that a run can reach: those of its policy and its source."""

    policy: Policy | None = field(default=None, repr=False)
    source: Source | None = field(default=None, repr=False)


@dataclass(frozen=True)
class TargetKind:
    """A kind of place.

    ``takes`` says whether `publish` writes to it (None: the policy names the place), ``reads`` whether a caller means
    it, and ``recorded`` whether a path in the catalog is one. ``module`` has ``target_for(draft, place, table_name)``,
    ``release_location(place, table_name)`` and ``recorded_location(path, table_name, reach)``. ``refuse`` raises an
    error before the search if the place cannot hold an unchanged column. ``in_files`` says whether a release is a file,
    ``compares`` whether its rows can be compared with another release, and ``writes`` what a plan says.
    """

    name: str
    module: str
    takes: Callable[[Any, Policy], bool] = lambda place, policy: False
    reads: Callable[[Any], bool] = lambda place: False
    recorded: Callable[[Path], bool] = lambda path: False
    refuse: Callable[[Policy, Source], None] = lambda policy, source: None
    in_files: bool = False
    compares: bool = True
    writes: str = "a fresh file"


KINDS: dict[str, TargetKind] = {}
"""The kinds of places by name; the newest comes first."""


def register(kind: TargetKind) -> None:
    if kind.name in KINDS:
        raise ValueError(f"the kind of place {kind.name!r} is already registered")
    KINDS[kind.name] = kind


def unregister(kind: TargetKind) -> None:
    del KINDS[kind.name]


def kind_for_target(place: Any, policy: Policy) -> TargetKind:
    return next(kind for kind in reversed(KINDS.values()) if kind.takes(place, policy))


def target_for(draft: Draft, place: Any, table_name: str | None) -> ReleaseTarget[Any, Any]:
    kind = kind_for_target(place, draft.search_input.policy)
    target: ReleaseTarget[Any, Any] = import_module(kind.module).target_for(draft, place, table_name)
    return target


def release_location(release: Any, table_name: str | None) -> ReleaseLocation:
    """The place of a release: a path, an address, or a session."""
    kind = next((kind for kind in reversed(KINDS.values()) if kind.reads(release)), None)
    if kind is None:
        raise ReleaseError(f"cannot verify a {type(release).__name__}: give a path, an address, or a session")
    place: ReleaseLocation = import_module(kind.module).release_location(release, table_name)
    return place


def kind_for_path(path: Path) -> TargetKind:
    return next(kind for kind in reversed(KINDS.values()) if kind.recorded(path))


def recorded_location(path: Path, table_name: str, reach: Reach) -> ReleaseLocation:
    """The place at a path of the catalog, or an error if this run cannot reach it."""
    kind = kind_for_path(path)
    place: ReleaseLocation = import_module(kind.module).recorded_location(path, table_name, reach)
    return place


def named_location(release: Any, table_name: str | None, where: str) -> tuple[Any, str]:
    """A place on a server, and the name of the release, which is required."""
    if table_name is None:
        raise ReleaseError(f"name the release in {where}: --table schema.name")
    return release, table_name


def refuse_draft_over(existing: Iterable[Manifest] | None, place: object) -> None:
    """Refuse a draft that would replace a published release, or one that cannot be read (None)."""
    if existing is None or not all(one.draft for one in existing):
        raise ReleaseError(f"{place} is a published release, which a draft does not replace: {ANOTHER_PLACE}")


ANOTHER_PLACE = "publish the draft to another place"


def _in_section(name: str) -> Callable[[Any, Policy], bool]:
    return lambda place, policy: place is None and policy.release is not None and bool(getattr(policy.release, name))


def _is_text(place: Any, names: Callable[[str], bool]) -> bool:
    return isinstance(place, str) and names(place)


def _refuse_types(policy: Policy, source: Source) -> None:
    import_module(_FILE).refuse_types_of(policy, source)


def _refuse_server(policy: Policy, source: Source) -> None:
    import_module(_POSTGRES).refuse_server_of(policy, source)


_FILE = "sqlanon.release.targets.file.target"
_POSTGRES = "sqlanon.release.targets.postgres.target"

register(
    TargetKind(
        "file",
        _FILE,
        lambda place, policy: True,
        lambda place: isinstance(place, (str, PathLike)),
        lambda path: True,
        _refuse_types,
        in_files=True,
    )
)
register(
    TargetKind(
        "postgres",
        _POSTGRES,
        _in_section("postgres"),
        lambda place: _is_text(place, is_postgres),
        is_postgres_location,
        _refuse_server,
        writes="a new table in PostgreSQL",
    )
)
register(
    TargetKind(
        "spark",
        "sqlanon.release.targets.spark.target",
        _in_section("spark"),
        lambda place: is_session(place) or _is_text(place, resolves_to_spark),
        is_spark_location,
        compares=False,
        writes="a new table in Spark",
    )
)
