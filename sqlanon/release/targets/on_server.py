"""Releases on a server, in PostgreSQL or in Spark: what does not depend on which."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from sqlglot import exp

from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.errors import ReleaseError, SqlanonError
from sqlanon.policy import shown_place
from sqlanon.policy.addresses import VERSION_DIGITS
from sqlanon.release.class_sizes import class_sizes
from sqlanon.release.manifest import Manifest
from sqlanon.release.words import claims_table


class Server(Protocol):
    def translated_errors(self, kind: type[SqlanonError]) -> AbstractContextManager[None]: ...

    def rows(self, query: exp.Expr, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]: ...


class Spot(Protocol):
    """Where on a server a release is: in which schema, and the name of its view."""

    where: ClassVar[str]
    """For people: ``in Spark``."""

    dialect: ClassVar[str]
    """Of the server, for sqlglot."""

    @property
    def schema(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def path(self) -> Path:
        """The same place for the ledger, which knows paths: no secret is in it. People are told its `shown_place`."""
        ...

    @property
    def table(self) -> exp.Table: ...

    def opened_server(self) -> AbstractContextManager[Server]: ...


AnySpot = TypeVar("AnySpot", bound=Spot)


@dataclass(frozen=True)
class ServerRelease(Generic[AnySpot]):
    """A release that was published on a server."""

    spot: AnySpot  # where it is
    manifest: Manifest
    limits: Limits = NO_LIMITS  # what `verify` may take of this machine
    sha256: ClassVar[None] = None
    """There is no file."""

    @property
    def path(self) -> str:
        """The server, the schema and the view, in one text; no user, password or token is in it."""
        return shown_place(self.spot.path)

    @property
    def table(self) -> str:
        """The view that readers know, with its schema."""
        return f"{self.spot.schema}.{self.spot.name}"

    def class_sizes(self) -> list[tuple[int, int]]:
        """How many classes there are of each size, as the server counts them: size in rows, and classes; ascending."""
        with self.spot.opened_server() as server, server.translated_errors(ReleaseError):
            return [(size, classes) for size, classes, _ in server.rows(self._class_sizes())]

    def class_sizes_sql(self) -> str:
        """The statement behind `class_sizes`, to be run on the server."""
        return self._class_sizes().sql(self.spot.dialect, pretty=True)

    def _repr_html_(self) -> str:
        """For notebooks: what it claims as a small table; nothing is asked of the server."""
        return claims_table(self.manifest, f"Release {self.table}", self.spot.where, self.path)

    def _class_sizes(self) -> exp.Query:
        return class_sizes(self.spot.table, self.manifest.quasi)


def refuse_sha256(sha256: str | None) -> None:
    """A release on a server has no file."""
    if sha256 is not None:
        raise ReleaseError("sha256 is of a file: a release on a server is compared with its source (--policy)")


def manifests_of(texts: Iterable[str]) -> list[Manifest] | None:
    """The manifests of a place; None if one is broken."""
    try:
        return [Manifest.from_json(text) for text in texts]
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def version_of(name: str, release: str) -> int | None:
    """Which version of a release a table is, by its name; None if it is none.

    >>> version_of("patients_v3", "patients"), version_of("patients_view", "patients")
    (3, None)
    """
    match = re.fullmatch(re.escape(release) + rf"_v([0-9]{{1,{VERSION_DIGITS}}})", name)
    return None if match is None else int(match[1])
