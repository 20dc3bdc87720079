"""Releases on a server, in PostgreSQL or in Spark: what does not depend on which."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from sqlglot import exp

from sqlanon.disclosure.class_sizes import ClassSizes, class_sizes
from sqlanon.disclosure.residual_risk import ResidualRisk
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.engines.travel import arrived
from sqlanon.errors import BrokenReleaseError, ReleaseError, SqlanonError
from sqlanon.places.addresses import VERSION_DIGITS
from sqlanon.policy import ReleaseSection, format_location
from sqlanon.release.manifest import Manifest, ReleasedColumn
from sqlanon.release.sentences import render_manifest
from sqlanon.release.targets.base import Draft, Verification
from sqlanon.support.expressions import create_temporary_table, drop_table, table


class Server(Protocol):
    def translated_errors(self, kind: type[SqlanonError]) -> AbstractContextManager[None]: ...

    def rows(self, query: exp.Expr, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]: ...


@dataclass(frozen=True)
class ServerLocation(ABC):
    """Where on a server a release is: the address, the schema, and the name of the view that readers know."""

    address: str | None = field(repr=False)
    schema: str
    name: str

    where: ClassVar[str]  # for people: "PostgreSQL"
    dialect: ClassVar[str]  # of the server, for sqlglot

    @property
    @abstractmethod
    def path(self) -> Path:
        """The same place for the ledger, which knows paths: no secret is in it. Messages show `format_location`."""

    @property
    def table(self) -> exp.Table:
        return table(self.name, self.schema)

    @abstractmethod
    def opened_server(self) -> AbstractContextManager[Server]: ...

    @abstractmethod
    def verify(self, limits: Limits = NO_LIMITS, sha256: str | None = None) -> Verification:
        """Verify the release by itself: columns, counts, requirements, content digest, and the catalog."""

    def taken(self) -> ReleaseError:
        return ReleaseError(
            f"{self.schema}.{self.name} exists and is not a release of sqlanon: choose another name, or remove it"
        )

    def without_schema(self) -> ReleaseError:
        return ReleaseError(f"there is no schema {self.schema!r} in {self.where}: create it first (CREATE SCHEMA)")

    def without_manifest(self) -> ReleaseError:
        return ReleaseError(f"{self.schema}.{self.name} is not a release of sqlanon: it has no manifest")

    @contextmanager
    def manifest_read(self) -> Iterator[None]:
        """What a broken manifest raises becomes an error that says so."""
        try:
            yield
        except SqlanonError:
            raise
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise BrokenReleaseError(
                f"{format_location(self.path)} was a release of sqlanon; its manifest is broken: {error}"
            ) from error


AnyServerLocation = TypeVar("AnyServerLocation", bound=ServerLocation)


@dataclass(frozen=True)
class ServerTarget(Generic[AnyServerLocation]):
    place: AnyServerLocation

    @property
    def path(self) -> Path:
        return self.place.path

    @property
    def table_name(self) -> str:
        return self.place.name


class StagedOnServer(ABC):
    """A release that nobody on the server can read yet. Its version is its own: no lock of the place is needed."""

    kept_manifests: ClassVar[Sequence[Manifest]] = ()
    """A server shows one version."""

    @property
    @abstractmethod
    def sha256(self) -> str | None:
        """The SHA-256 of the rows for the ledger; None without one."""

    def lock(self) -> AbstractContextManager[None]:
        return nullcontext()


@dataclass(frozen=True)
class ServerRelease(Generic[AnyServerLocation]):
    """A release that was published on a server."""

    place: AnyServerLocation
    manifest: Manifest
    limits: Limits = NO_LIMITS  # what `verify` may take of this machine
    sha256: ClassVar[None] = None
    """There is no file."""

    @property
    def path(self) -> str:
        """The server, the schema and the view, in one text; no user, password or token is in it."""
        return format_location(self.place.path)

    @property
    def table(self) -> str:
        """The view that readers know, with its schema."""
        return f"{self.place.schema}.{self.place.name}"

    def verify(self) -> Verification:
        """Check the release by itself, as any reader can: columns, counts, requirements, content digest."""
        return self.place.verify(self.limits)

    def class_sizes(self) -> list[tuple[int, int]]:
        """How many classes there are of each size, as the server counts them: size in rows, and classes; ascending."""
        with self.place.opened_server() as server, server.translated_errors(ReleaseError):
            return [(size, classes) for size, classes, _ in server.rows(self._class_sizes())]

    def class_sizes_and_risk(self) -> tuple[ClassSizes, ResidualRisk | None]:
        """The sizes of the classes; what its rows still show is not counted on a server."""
        return ClassSizes.from_classes(dict(self.class_sizes())), None

    def class_sizes_sql(self) -> str:
        """The statement behind `class_sizes`, to be run on the server."""
        return self._class_sizes().sql(self.place.dialect, pretty=True)

    def _repr_html_(self) -> str:
        """For notebooks: what it claims as a small table; nothing is asked of the server."""
        return render_manifest(self.manifest, f"Release {self.table}", f"in {self.place.where}", self.path)

    def _class_sizes(self) -> exp.Query:
        return class_sizes(self.place.table, self.manifest.quasi_identifiers)


def release_section(draft: Draft) -> ReleaseSection:
    section = draft.search_input.policy.release
    assert section is not None
    return section


def types_in(columns: Iterable[ReleasedColumn]) -> dict[str, str]:
    """DuckDB's types of released columns, by name."""
    return {column.name: column.type for column in columns}


def refuse_types(types: Mapping[str, str], is_held: Callable[[str], bool], place: str) -> None:
    """Refuse types without an equal on a server: they would come back as others, or could not be verified."""
    if strange := [f"{name!r} ({type_})" for name, type_ in types.items() if not is_held(type_)]:
        raise ReleaseError(
            f"{place} cannot hold the types of {', '.join(strange)} unchanged: "
            "convert them in the files, or with a source query of a database"
        )


def refuse_sha256(sha256: str | None) -> None:
    if sha256 is not None:
        raise ReleaseError("--sha256 needs a file; compare a release on a server with its source (--policy)")


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


def next_version(numbers: Iterable[int | None]) -> int:
    """The number of the next version, by those of the tables that are there; None for what is no version."""
    return max((number for number in numbers if number is not None), default=0) + 1


def shown_columns(rows_table: str) -> str:
    return f"exactly the columns of the table {rows_table!r}"


@contextmanager
def copied(
    engine: DuckDBEngine, target: exp.Table, types: Mapping[str, str], stream: AbstractContextManager[Any]
) -> Iterator[exp.Table]:
    """What travels in a stream, as a temporary table of an engine, for a while."""
    with stream as reader, engine.registered(reader) as here:
        engine.execute(create_temporary_table(target.copy(), arrived(here, types)))
    try:
        yield target
    finally:
        engine.execute(drop_table(target.copy()))
