"""Opening release files: read-only in a separate engine, or their rows in another engine."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
from sqlglot import exp

from sqlanon.engines.base import Queryable
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.errors import BrokenReleaseError, ReleaseError
from sqlanon.places.databases import file_kind
from sqlanon.release.contents import ATTACHED, find_plain_tables, is_plain_table, list_objects
from sqlanon.release.manifest import Manifest
from sqlanon.release.parquet import Layout, read_layout
from sqlanon.support.expressions import (
    col,
    create_temporary_view,
    create_view,
    drop_view,
    fragment,
    literal_path,
    read_parquet,
    select,
    select_star,
    table,
)
from sqlanon.support.resources import RELEASE_MACROS, macro_scripts
from sqlanon.support.workdir import spill_directory


class CachedQueries:
    """An engine that caches the results of its queries, for data that does not change."""

    def __init__(self, engine: Queryable) -> None:
        self._engine = engine
        self._results: dict[str, list[tuple[Any, ...]]] = {}

    @property
    def dialect(self) -> str:
        return self._engine.dialect

    def execute(self, statement: exp.Expr, parameters: Sequence[Any] = ()) -> None:
        self._results.clear()
        self._engine.execute(statement, parameters)

    def rows(self, query: exp.Expr, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        key = f"{query.sql(self.dialect)} {parameters!r}"
        if key not in self._results:
            self._results[key] = self._engine.rows(query, parameters)
        return self._results[key]

    def render(self, statement: exp.Expr) -> str:
        return self._engine.render(statement)

    def columns(self, relation: exp.Expr) -> dict[str, str]:
        return self._engine.columns(relation)


def read_manifest(path: Path, limits: Limits, version: int | None = None) -> Manifest:
    """Read the manifest of a version, or of the newest one, of a release whose rows are a plain table.

    The file is opened by `open_release`, so that nothing in it can reach beyond the file.
    """
    with open_release(path, limits, version) as release:
        return release.manifest


def attach_release(engine: DuckDBEngine, path: Path, manifest: Manifest, alias: str) -> exp.Table:
    """Attach a release whose manifest `read_manifest` has read, and return the relation of its rows.

    The file may have been replaced meanwhile, so its catalog is checked again in this engine.
    """
    try:
        if path.suffix.lower() == ".parquet":
            if flaw := _read_layout(path).flaw:
                raise _not_read(path, flaw)
            view = table(alias, "main", "temp")
            engine.execute(create_temporary_view(view.copy(), select_star(read_parquet([str(path)]))))
            return view
        _refuse_log(path)
        engine.attach(path, alias, read_only=True)
        try:
            if not is_plain_table(engine, "main", manifest.rows_table, alias):
                raise _not_read(path, _NOT_PLAIN)
        except BaseException:
            engine.detach(alias)
            raise
        return table(manifest.rows_table, "main", alias)
    except duckdb.Error as error:
        raise ReleaseError(f"{path} cannot be read: {str(error).splitlines()[0]}") from error


_NOT_PLAIN = "its rows are not in a plain table"


def _not_read(path: Path, flaw: str) -> BrokenReleaseError:
    return BrokenReleaseError(f"{path} was a release of sqlanon; {flaw}. None of its rows was read")


def _refuse_log(path: Path) -> None:
    """Refuse a file with a log next to it: DuckDB would apply its changes and evaluate its expressions."""
    if (log := path.with_name(f"{path.name}.wal")).exists():
        raise BrokenReleaseError(f"{log} is next to the release, with changes that are not in it: remove it")


def _read_layout(path: Path) -> Layout:
    try:
        return read_layout(path)
    except (OSError, ValueError) as error:
        raise ReleaseError(f"{path} cannot be read as a release of sqlanon: {error}") from error


@contextmanager
def attach_temporarily(engine: DuckDBEngine, path: Path, manifest: Manifest, alias: str) -> Iterator[exp.Table]:
    relation = attach_release(engine, path, manifest, alias)
    try:
        yield relation
    finally:
        detach_release(engine, path, alias)


def detach_release(engine: DuckDBEngine, path: Path, alias: str) -> None:
    if path.suffix.lower() == ".parquet":
        engine.execute(drop_view(table(alias, "main", "temp")))
    else:
        engine.detach(alias)


def lock_down(engine: DuckDBEngine) -> None:
    """Forbid access to files other than the attached ones."""
    engine.connection.execute("SET enable_external_access = false")
    engine.connection.execute("SET lock_configuration = true")


SUBJECT = table("subject")
"""The relation of the released rows in checks."""

COPIED = "sqlanon_released_rows"
"""The rows of a release on a server, copied to the engine of its source."""


@dataclass(frozen=True)
class OpenRelease:
    """A release that is open for reading.

    Attributes
    ----------
    manifest:
        The manifest of the opened version.
    is_database:
        Whether it is a DuckDB file, which has metadata in addition to the rows.
    manifests:
        The manifests of all versions in a file, the newest first.
    file, layout:
        The file, and the layout of a Parquet file; None for the rows of a server or of a staged release.
    scratch:
        A folder that the engine may write to, or None.
    flaw:
        Why the rows must not be read: there is no `SUBJECT` then.
    """

    engine: DuckDBEngine
    queries: CachedQueries
    manifest: Manifest
    is_database: bool = False
    manifests: tuple[Manifest, ...] = ()
    file: Path | None = None
    scratch: Path | None = None
    layout: Layout | None = None
    flaw: str = ""

    @property
    def is_file(self) -> bool:
        return self.is_database or self.file is not None


@contextmanager
def open_audit_engine(limits: Limits = NO_LIMITS) -> Iterator[tuple[DuckDBEngine, Path]]:
    """Open a private engine with sqlanon's macros, and a folder for its files."""
    with spill_directory() as spill, closing(DuckDBEngine.open_private(spill, limits)) as engine:
        engine.script(*macro_scripts(RELEASE_MACROS))
        yield engine, spill


@contextmanager
def open_release(
    path: Path, limits: Limits = NO_LIMITS, version: int | None = None, to_verify: bool = False
) -> Iterator[OpenRelease]:
    """Open a release file.

    Checks use sqlanon's own macros, and nothing in the file can reach beyond it. The catalog or layout is read first:
    rows that cannot be read without evaluating expressions of the file are an error, or a flaw if the file is opened
    ``to_verify``.
    """
    if not path.is_file():
        raise ReleaseError(f"release {path} does not exist")
    with open_audit_engine(limits) as (engine, spill):
        scratch = spill / "scratch"
        scratch.mkdir()
        manifests, layout, plain_tables = _read_catalog_or_layout(engine, path, scratch)
        manifest = next((manifest for manifest in manifests if version in (None, manifest.version)), None)
        if manifest is None:
            raise ReleaseError(f"{path} no longer has version {version}")
        flaw = "" if layout is None else layout.flaw
        if layout is None and f"main.{manifest.rows_table}".lower() not in plain_tables:
            flaw = _NOT_PLAIN
        if not flaw:
            rows = table(manifest.rows_table, "main", ATTACHED) if layout is None else read_parquet([str(path)])
            engine.execute(create_view(SUBJECT.copy(), select_star(rows)))
        elif not to_verify:
            raise _not_read(path, flaw)
        queries, is_database = CachedQueries(engine), layout is None
        yield OpenRelease(engine, queries, manifest, is_database, tuple(manifests), path, scratch, layout, flaw)


def _read_catalog_or_layout(
    engine: DuckDBEngine, path: Path, scratch: Path
) -> tuple[list[Manifest], Layout | None, set[str]]:
    """Read the manifests of a file, its layout if it is a Parquet file, and the names of its plain tables."""
    try:
        if path.suffix.lower() != ".parquet":
            manifests, plain_tables = _open_database(engine, path, scratch)
            return manifests, None, plain_tables
        layout = _read_layout(path)
        return [_parse_manifest(layout)], layout, set()
    except duckdb.Error as error:
        message = f"{path} cannot be read as a release of sqlanon: {_reason(error)}"
        if _reason(error) == _NO_MANIFEST and file_kind(path.name) is not None:
            message = f"{path} is data, not a release: it has no manifest. To make a release of it: sqlanon suggest "
            message += f"{shlex.quote(path.name)} -o policy.toml, then sqlanon anonymize policy.toml"
        if path.suffix.lower() == ".toml":
            message = f"{path} is a policy, not a release: sqlanon verify RELEASE --policy {shlex.quote(path.name)}"
        raise ReleaseError(message) from error
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise BrokenReleaseError(f"{path} was a release of sqlanon; its manifest is broken: {error}") from error


def _open_database(engine: DuckDBEngine, path: Path, scratch: Path) -> tuple[list[Manifest], set[str]]:
    """Attach a file and read its manifests, the newest first, and the names of its plain tables."""
    _refuse_log(path)
    engine.attach(path, ATTACHED, read_only=True)
    engine.execute(fragment("SET allowed_directories = [:folder]")(folder=literal_path(str(scratch))))
    lock_down(engine)
    objects = list_objects(engine)
    if not objects & {"table sqlanon.manifest", "view sqlanon.manifest"}:
        raise duckdb.CatalogException(_NO_MANIFEST)
    plain_tables = find_plain_tables(engine, objects)
    if "sqlanon.manifest" not in plain_tables:
        raise _not_read(path, "its manifest is not a plain table")
    manifests = read_manifests(engine)
    names = {name.lower().partition(" main.")[2] for name in objects if name.startswith(("table ", "view "))}
    for manifest in manifests:
        if manifest.rows_table.lower() not in names:
            raise ValueError(f"table {manifest.rows_table!r} is missing")
    return manifests, plain_tables


def read_manifests(engine: DuckDBEngine) -> list[Manifest]:
    """Read the manifests of the attached release file, the newest first."""
    relation = table("manifest", "sqlanon", ATTACHED)
    names = list(engine.types(relation))
    rows = engine.rows(select([col(name) for name in names], relation.copy()))
    manifests = [Manifest.from_row(dict(zip(names, row, strict=True))) for row in rows]
    versions = {manifest.version for manifest in manifests}
    tables = {manifest.table_name for manifest in manifests}
    if not manifests or len(versions) < len(manifests) or len(tables) > 1:
        raise ValueError(f"its manifest has {len(manifests)} rows, not one per version")
    if None in versions:
        raise ValueError("it names no version, as releases in DuckDB files do")
    return sorted(manifests, key=lambda manifest: manifest.version or 0, reverse=True)


def _parse_manifest(layout: Layout) -> Manifest:
    if len(layout.manifests) != 1:
        raise duckdb.CatalogException(_NO_MANIFEST)
    manifest = Manifest.from_json(layout.manifests[0].decode())
    if manifest.version is not None:
        raise ValueError("a Parquet file has no versions, but its manifest names one")
    return manifest


_NO_MANIFEST = "it has no manifest"


def _reason(error: Exception) -> str:
    if isinstance(error, duckdb.CatalogException):
        return _NO_MANIFEST
    return str(error).split("\n", 1)[0]
