"""Where releases go: the Protocol of a target, and the registry of the kinds of places there are.

A target is one module, registered by one call; `sqlanon.release.publish` publishes to all of them in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from sqlglot import exp

from sqlanon.hierarchies.bounds import Kind as RangeKind
from sqlanon.policy import Policy
from sqlanon.release.check import Check
from sqlanon.release.manifest import Facts, Manifest, ReleasedColumn
from sqlanon.release.metadata import Suppressed
from sqlanon.search.preparation import SearchInput
from sqlanon.sources.run import Run

if TYPE_CHECKING:
    from sqlanon.release.verify import Verification


@dataclass(frozen=True)
class Expected:
    """What the search found: the rows that the release must have, its classes, and the rows of the smallest. Masked
    rows are among the rows, and may be a class of their own."""

    rows: int
    classes: int
    smallest_class: int
    masked_rows: int = 0


class Draft(Protocol):
    """A release that is not written yet: its rows, and what the run knows of them."""

    @property
    def run(self) -> Run:
        """The run that made it, whose engine has the source."""
        ...

    @property
    def prepared(self) -> SearchInput:
        """The source and the policy that it is made by."""
        ...

    @property
    def expected(self) -> Expected:
        """What must come out."""
        ...

    @property
    def quasi(self) -> Sequence[str]:
        """The columns that make the classes."""
        ...

    @property
    def ranges(self) -> Mapping[str, RangeKind]:
        """By column, in lower case, what its labels are ranges of."""
        ...

    def columns(self) -> tuple[ReleasedColumn, ...]:
        """Its columns, in order."""
        ...

    def repeating(self) -> Collection[str]:
        """The columns of text that has few values."""
        ...

    def rows(self) -> AbstractContextManager[exp.Select]:
        """The statement that makes its rows, for the engine that has the source."""
        ...

    def rows_there(self) -> AbstractContextManager[exp.Query]:
        """The statement that makes its rows on the server that its source is on."""
        ...

    def checks(self, released: exp.Table) -> list[Check]:
        """What a release alone cannot show, checked with the source."""
        ...

    def suppressed_by(self, released: exp.Table) -> Suppressed:
        """What may be told of the suppressed rows."""
        ...

    def manifest(self, table_name: str, facts: Facts) -> Manifest:
        """What it claims, once its rows are counted."""
        ...


@runtime_checkable
class Staged(Protocol):
    """A release that is written, and that nobody can read yet."""

    @property
    def sha256(self) -> str | None:
        """The SHA-256 of its file, once it is complete; None where there is no file."""
        ...

    def rows(self) -> AbstractContextManager[exp.Table]:
        """Its rows, for the engine that has the source."""
        ...

    def complete(self, manifest: Manifest, suppressed: Suppressed) -> Verification:
        """Add the manifest, and what describes the rows; verify all of it as a reader would."""
        ...

    def alone(self) -> AbstractContextManager[None]:
        """The lock of the place, if it needs one: nobody else publishes there meanwhile, or has since it was staged."""
        ...


class Published(Protocol):
    """A release that is out."""

    @property
    def manifest(self) -> Manifest:
        """What it claims."""
        ...


AnyStaged = TypeVar("AnyStaged", bound=Staged)
AnyRelease_co = TypeVar("AnyRelease_co", bound=Published, covariant=True)


@runtime_checkable
class ReleaseTarget(Protocol[AnyStaged, AnyRelease_co]):
    """A place for a release."""

    @property
    def path(self) -> Path:
        """The place, as the ledger has it: no secret is in it."""
        ...

    @property
    def table_name(self) -> str:
        """The name of the released table there."""
        ...

    def stage(self, draft: Draft) -> AbstractContextManager[AnyStaged]:
        """Write the rows where nobody can read them; what is there is gone at the end, if it is not committed."""
        ...

    def facts(self, staged: AnyStaged) -> Facts:
        """Count what is there: nothing is taken from the search."""
        ...

    def commit(self, staged: AnyStaged, manifest: Manifest) -> AnyRelease_co:
        """Let readers see it: all of it in one moment."""
        ...


@dataclass(frozen=True)
class TargetKind:
    """A kind of place.

    ``takes`` says whether a release goes there, by what `publish` was given (None: the policy says where) and the
    policy. ``module`` is loaded when that is so; its ``target_for(draft, place, table_name)`` makes the target.
    """

    name: str
    module: str
    takes: Callable[[Any, Policy], bool]


KINDS: dict[str, TargetKind] = {}
"""The kinds of places, by name; the newest is asked first."""


def register(kind: TargetKind) -> None:
    """Add a kind of place."""
    KINDS[kind.name] = kind


def target_for(draft: Draft, place: Any, table_name: str | None) -> ReleaseTarget[Any, Any]:
    """The target of a release: what `publish` was given, else the place in the policy."""
    kind = next(kind for kind in reversed(KINDS.values()) if kind.takes(place, draft.prepared.policy))
    target: ReleaseTarget[Any, Any] = import_module(kind.module).target_for(draft, place, table_name)
    return target


def _in_section(name: str) -> Callable[[Any, Policy], bool]:
    return lambda place, policy: place is None and policy.release is not None and bool(getattr(policy.release, name))


register(TargetKind("file", "sqlanon.release.targets.file", lambda place, policy: True))
register(TargetKind("postgres", "sqlanon.release.targets.postgres", _in_section("postgres")))
register(TargetKind("spark", "sqlanon.release.targets.spark", _in_section("spark")))
