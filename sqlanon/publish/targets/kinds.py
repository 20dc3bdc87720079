"""The kinds of places that hold releases, and their registry. A kind is one folder of `sqlanon.publish.targets`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from sqlanon.places.addresses import (
    is_postgres,
    is_postgres_location,
    is_session,
    is_spark_location,
    resolves_to_spark,
)
from sqlanon.policy import Policy
from sqlanon.policy.linked import LinkedPolicy


@dataclass(frozen=True)
class TargetKind:
    """A backend for releases.

    Attributes
    ----------
    name:
        The name in the registry.
    module:
        A module with ``target_for(draft, target, table_name)``, ``release_location(release, table_name)`` and
        ``recorded_location(path, table_name, reach)``; optionally with ``refuse_unsupported(policy, source)``, which
        raises an error before the search if the target cannot hold the policy's release.
    takes:
        Whether `publish` writes to this target; for a target of None, whether the policy names one.
    reads:
        Whether a release that a caller names is of this kind.
    recorded:
        Whether a path in the catalog is of this kind.
    in_files:
        Whether a release is a file.
    is_at_source:
        Whether releases are on the server of the source, whose address policies do not repeat.
    compares:
        Whether the rows of a release can be compared with another release.
    writes:
        The object that is written, for a plan.
    linked_module:
        A module of `sqlanon.linked.publish.targets` with ``target_for(records, target)`` and ``find_location(release,
        schema)``; empty if the target holds no linked tables.
    """

    name: str
    module: str
    takes: Callable[[Any, Policy | LinkedPolicy], bool] = lambda target, policy: False
    reads: Callable[[Any], bool] = lambda release: False
    recorded: Callable[[Path], bool] = lambda path: False
    in_files: bool = False
    is_at_source: bool = False
    compares: bool = True
    writes: str = "a fresh file"
    linked_module: str = ""


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


def _is_linked_folder(target: Any, policy: Policy | LinkedPolicy) -> bool:
    """Whether a policy of several tables is released to a folder: one that it names, or a path without an ending."""
    if not isinstance(policy, LinkedPolicy):
        return False
    if target is None:
        return policy.release is not None and policy.release.folder is not None
    return isinstance(target, (str, PathLike)) and (Path(target).is_dir() or not Path(target).suffix)


def _is_in_section(name: str) -> Callable[[Any, Policy | LinkedPolicy], bool]:
    return lambda target, policy: (
        target is None and policy.release is not None and bool(getattr(policy.release, name, None))
    )


register(
    TargetKind(
        "file",
        "sqlanon.publish.targets.file.target",
        takes=lambda target, policy: True,
        reads=lambda release: isinstance(release, (str, PathLike)),
        recorded=lambda path: True,
        in_files=True,
        linked_module="sqlanon.linked.publish.targets.file",
    )
)
register(
    TargetKind(
        "postgres",
        "sqlanon.publish.targets.postgres.target",
        takes=_is_in_section("postgres"),
        reads=lambda release: isinstance(release, str) and is_postgres(release),
        recorded=is_postgres_location,
        linked_module="sqlanon.linked.publish.targets.postgres",
        writes="a new table in PostgreSQL",
    )
)
register(
    TargetKind(
        "spark",
        "sqlanon.publish.targets.spark.target",
        takes=_is_in_section("spark"),
        reads=lambda release: is_session(release) or (isinstance(release, str) and resolves_to_spark(release)),
        recorded=is_spark_location,
        is_at_source=True,
        compares=False,
        writes="a new table in Spark",
        linked_module="sqlanon.linked.publish.targets.spark",
    )
)
register(
    TargetKind(
        "folder",
        "sqlanon.publish.targets.file.target",
        takes=_is_linked_folder,
        reads=lambda release: isinstance(release, (str, PathLike)) and Path(release).is_dir(),
        in_files=True,
        linked_module="sqlanon.linked.publish.targets.folder",
    )
)
