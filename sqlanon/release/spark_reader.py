"""Releases in Spark, as readers find them: opened, and held against what they claim."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sqlglot import exp

from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.engines.spark import SparkEngine, catalog_of
from sqlanon.engines.spark_errors import is_of_spark
from sqlanon.errors import BrokenReleaseError, ReleaseError, SourceError
from sqlanon.policy import shown_place, table_parts
from sqlanon.policy.spark import spark_address_of, spark_name_flaw, spark_path
from sqlanon.queries import spark_release as sr
from sqlanon.queries.names import table
from sqlanon.queries.presented import class_sizes
from sqlanon.queries.spark_digest import digest_there
from sqlanon.release.check import Check
from sqlanon.release.manifest import Manifest, versioned
from sqlanon.release.postgres_reader import version_of
from sqlanon.release.spark_rows import counted, looked_at
from sqlanon.release.verify import Verification, verification_sql
from sqlanon.release.words import claims_table

_OF_MANIFEST = "_manifest"
_COUNT = "rows"

AFTERWARDS = ("versions", "catalog")
"""Checks that tell the holder something of a release that is in its place."""


@dataclass(frozen=True)
class SparkSpot:
    """Where in Spark a release is: the address, or the session; the schema, and the name of the view."""

    address: str | None = field(repr=False)
    schema: str
    name: str
    session: Any = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, place: Any, table_name: str) -> SparkSpot:
        """Of a session, an address or ``env:NAME``, and ``schema.name``; in lower case, as Spark's catalog has them.

        Raises
        ------
        ReleaseError
            The name is none that Spark could have.
        SourceError
            The environment variable is not set.
        """
        if flaw := spark_name_flaw(table_name):
            raise ReleaseError(f"{table_name!r} names no release in Spark: it {flaw}")
        schema, name = (part.lower() for part in table_parts(table_name))
        if isinstance(place, str):
            return cls(spark_address_of(place), schema, name)
        return cls(None, schema, name, place)

    @property
    def path(self) -> Path:
        """The same place for the ledger, which knows paths. People are told its `shown_place`."""
        return spark_path(self.address or catalog_of(self.session), self.schema, self.name)

    @property
    def table(self) -> exp.Table:
        """The stable view."""
        return table(self.name, self.schema)

    def rows(self, version: int) -> exp.Table:
        """The table with the rows of a version."""
        return table(versioned(self.name, version), self.schema)

    def manifest(self, version: int) -> exp.Table:
        """The table with its manifest."""
        return table(f"{versioned(self.name, version)}{_OF_MANIFEST}", self.schema)

    @contextmanager
    def opened(self) -> Iterator[SparkEngine]:
        """A session there, for a while: the one that was given, or a new one.

        Raises
        ------
        ReleaseError
            It cannot be reached.
        """
        place = "the release"
        try:
            engine = SparkEngine.open(self.address, place) if self.address else SparkEngine(self.session, place)
        except SourceError as error:
            raise ReleaseError(str(error)) from None
        with closing(engine):
            yield engine


def number_in(name: str, release: str) -> int | None:
    """Which version of a release a table belongs to, with its rows or its manifest; None if to none.

    >>> number_in("r_v3", "r"), number_in("r_v3_manifest", "r"), number_in("r_view", "r")
    (3, 3, None)
    """
    return version_of(name.removesuffix(_OF_MANIFEST), release)


@dataclass(frozen=True)
class Described:
    """What the catalog has of a table or a view."""

    of: Mapping[str, Any]

    @classmethod
    def by(cls, server: SparkEngine, relation: exp.Table) -> Described:
        """Ask the catalog."""
        return cls(json.loads(server.rows(sr.description(relation))[0][0]))

    @property
    def is_view(self) -> bool:
        """Whether it has no rows of its own."""
        return self.of.get("type") == "VIEW"

    @property
    def release(self) -> str | None:
        """The release that it was made for, if it is a table of ours."""
        mark: str | None = (self.of.get("table_properties") or {}).get(sr.MADE_BY)
        return None if self.is_view else mark

    def version_shown(self, spot: SparkSpot) -> int | None:
        """The version of a release whose table this view reads, if that is all that it reads."""
        read = sr.read_by(self.of.get("view_text") or "") if self.is_view else []
        if len(read) != 1 or read[0].db.lower() != spot.schema or read[0].catalog:
            return None
        return version_of(read[0].name.lower(), spot.name)

    def lists(self, columns: Sequence[str], rows: exp.Table) -> bool:
        """Whether this is a view that lists columns of a table by their own names, and nothing more."""
        catalog = (self.of.get("view_catalog_and_namespace") or "").partition(".")[0]
        names = [column.get("name") for column in self.of.get("columns") or ()]
        return (
            self.is_view
            and sr.is_column_list(self.of.get("view_text") or "", columns, rows)
            and self.of.get("view_query_output_columns") == list(columns) == names
            and catalog.strip("`") == self.of.get("catalog_name")
        )


def names_there(server: SparkEngine, spot: SparkSpot) -> frozenset[str]:
    """The tables and views in the schema of a release whose names begin with its own.

    Raises
    ------
    ReleaseError
        There is no such schema.
    """
    if spot.schema not in {str(name).lower() for (name,) in server.rows(sr.schemas(spot.schema))}:
        raise ReleaseError(f"there is no schema {spot.schema!r} in Spark: make it first (CREATE SCHEMA)")
    found = server.rows(sr.relations(spot.schema, spot.name))
    return frozenset(name.lower() for _, name, temporary in found if not temporary)


def ours(server: SparkEngine, spot: SparkSpot, names: frozenset[str]) -> dict[str, int]:
    """The tables that were made for a release, with their versions."""
    found = {}
    for name in sorted(names):
        number = number_in(name, spot.name)
        if number is not None and Described.by(server, table(name, spot.schema)).release == spot.name:
            found[name] = number
    return found


@dataclass(frozen=True)
class SparkRelease:
    """A release that was published in Spark.

    Attributes
    ----------
    spot:
        Where it is.
    manifest:
        What it claims.
    limits:
        What `verify` may take of this machine.
    warnings:
        What the holder should know of it.
    """

    spot: SparkSpot
    manifest: Manifest
    limits: Limits = NO_LIMITS
    warnings: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """Where Spark is, schema and view, in one text; no token is in it."""
        return shown_place(self.spot.path)

    @property
    def table(self) -> str:
        """The view that readers know, with its schema."""
        return f"{self.spot.schema}.{self.spot.name}"

    def verify(self) -> Verification:
        """Check the release by itself, as any reader can: columns, counts, requirements, content digest.

        Raises
        ------
        ReleaseError
            It is gone, or is no release any more.
        """
        return verify_spark(self.spot, self.limits)

    def verify_sql(self) -> list[str]:
        """The statements behind `verify`. Two run in Spark: the content digest, and the combinations of values that the
        requirements look at. The rest runs in DuckDB, over these."""
        types = {column.name: column.type for column in self.manifest.columns}
        there = (
            digest_there(self.spot.table, types),
            sr.combinations(self.spot.table, looked_at(self.manifest), _COUNT),
        )
        here = [one for one in verification_sql(self.manifest) if ".DIGEST(" not in one.upper()]
        return [*(one.sql(SparkEngine.dialect) for one in there), *here]

    def class_sizes(self) -> list[tuple[int, int]]:
        """How many classes there are of each size, as Spark counts them: size in rows, and classes; ascending.

        Raises
        ------
        ReleaseError
            It is gone, or Spark cannot be reached.
        """
        with self.spot.opened() as server, server.told(ReleaseError):
            return [(size, classes) for size, classes, _ in server.rows(self._class_sizes())]

    def class_sizes_sql(self) -> str:
        """The statement behind `class_sizes`, to be run in Spark."""
        return self._class_sizes().sql(SparkEngine.dialect, pretty=True)

    def _repr_html_(self) -> str:
        """For notebooks: what it claims as a small table; nothing is asked of Spark."""
        return claims_table(self.manifest, f"Release {self.table}", "in Spark", self.path)

    def _class_sizes(self) -> exp.Query:
        return class_sizes(self.spot.table, self.manifest.quasi)


def verify_spark(spot: SparkSpot, limits: Limits = NO_LIMITS) -> Verification:
    """Verify a release in Spark by itself: columns, counts, requirements, content digest.

    Parameters
    ----------
    spot:
        Where it is.
    limits:
        What the engine that checks it may take.

    Raises
    ------
    ReleaseError
        It is not there, or not a release.
    """
    with spot.opened() as server, server.told(ReleaseError):
        names = names_there(server, spot)
        view = Described.by(server, spot.table) if spot.name in names else None
        version = _version(spot, view, names)
        try:
            release, number, text = _row(server, spot, version)
            manifest = Manifest.from_json(text)
            with counted(server, spot.table, manifest, limits) as rows:
                found = rows.verified(manifest, spot.path)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            if isinstance(error, SourceError) or is_of_spark(error):
                raise
            raise BrokenReleaseError(
                f"{shown_place(spot.path)} was a release of sqlanon; its manifest is broken: {error}"
            ) from error
        of_this = (release, number, manifest.table_name, manifest.version) == (spot.name, version, spot.name, version)
        checks = [*_of_view(server, spot, view, version, manifest, names), *of_catalog(server)]
        told = f"of version {version}" if of_this else f"not of version {version} of {spot.name!r}"
        return replace(found, checks=(*found.checks, Check("manifest table", of_this, told), *checks))


def _version(spot: SparkSpot, view: Described | None, names: frozenset[str]) -> int:
    """The version that the view shows; if it shows none, the newest that has a manifest."""
    shown = None if view is None else view.version_shown(spot)
    numbers = [number_in(name, spot.name) for name in names if name.endswith(_OF_MANIFEST)]
    known = [number for number in numbers if number is not None]
    if view is None or not known:
        raise ReleaseError(f"{spot.schema}.{spot.name} is no release of sqlanon: there is no manifest of it")
    return shown if shown in known else max(known)


def _row(server: SparkEngine, spot: SparkSpot, version: int) -> tuple[str, int, str]:
    rows = server.rows(sr.manifest_of(spot.manifest(version)))
    if len(rows) != 1:
        raise ValueError(f"it has {len(rows)} rows")
    release, number, text = rows[0]
    return release, number, text


def _of_view(
    server: SparkEngine,
    spot: SparkSpot,
    view: Described | None,
    version: int,
    manifest: Manifest,
    names: frozenset[str],
) -> list[Check]:
    """Whether the view shows the columns of the table of its version and nothing more; whether other tables of its
    name are there. The right rows may come from the wrong place, and be others tomorrow."""
    rows, own = spot.rows(version), versioned(spot.name, version)
    columns = [column.name for column in manifest.columns]
    right = view is not None and view.lists(columns, rows) and own in names
    right = right and Described.by(server, rows).release == spot.name
    shown = f"the columns of the table {own!r}, and nothing more"
    return [
        Check("view", right, shown if right else f"{spot.name!r} is not the view of {shown}"),
        _others(server, spot, version, names),
    ]


def _others(server: SparkEngine, spot: SparkSpot, version: int, names: frozenset[str]) -> Check:
    """What a publication that did not end has left is in nobody's way: the next one removes it."""
    others = {name for name in names if number_in(name, spot.name) not in (None, version)}
    left = ours(server, spot, frozenset(others))
    if strange := sorted(others - left.keys()):
        return Check("versions", False, f"not of the release: {', '.join(strange)}")
    if left:
        told = f"left by a publication that did not end, and removed by the next one: {', '.join(left)}"
        return Check("versions", None, told)
    return Check("versions", True, "no other is there")


def of_catalog(server: SparkEngine) -> list[Check]:
    """What is told of a catalog that is gone when Spark ends, and the release with it."""
    names = ("spark.sql.catalogImplementation", "spark.sql.catalog.spark_catalog")
    kind, replaced = (server.rows(sr.setting(name))[0][1] for name in names)
    if kind != "in-memory" or replaced not in ("builtin", "<undefined>"):
        return []
    told = "the catalog of this Spark is in memory: the release is gone when it ends; with one that lasts "
    return [Check("catalog", None, f"{told}(spark.sql.catalogImplementation=hive) it stays")]
