"""Linked tables in a DuckDB file: rows, a view of each table, the manifest, and macros. It is renamed to its path."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import duckdb

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.errors import BrokenReleaseError, ReleaseError
from sqlanon.linked.publish.targets.base import (
    OpenTables,
    open_engine,
    translate_manifest_errors,
    verify_tables,
)
from sqlanon.linked.publish.targets.paths import StagingFolder, refuse_unusable_path, stage_beside
from sqlanon.linked.records import LinkedRecords
from sqlanon.linked.release.manifest import LINKED_FORMAT, LinkedManifest
from sqlanon.linked.release.sentences import expected_comments, release_comments
from sqlanon.linked.release.verification import LinkedVerification
from sqlanon.linked.release.views import KNOWN_ROWS, WHOLE_ROWS, release_views
from sqlanon.places.addresses import release_file_flaw
from sqlanon.policy.sections import STORAGE_VERSION
from sqlanon.publish.targets.file.target import STAGED_FILE, swap_in
from sqlanon.release import macro_library
from sqlanon.release.contents import (
    ATTACHED,
    count_free_blocks,
    find_changed_macros,
    find_stray_bytes,
    find_unexpected_definitions,
    is_plain_table,
    list_objects,
    read_catalog_columns,
    read_comments,
    read_views,
)
from sqlanon.release.digests import file_sha256
from sqlanon.release.parquet import read_layout
from sqlanon.release.reader import lock_down
from sqlanon.support.checks import Check, check_faults
from sqlanon.support.expressions import (
    cols,
    create_table_with_columns,
    fragment,
    insert_rows,
    literal_path,
    select,
    table,
)
from sqlanon.support.resources import LINKED_MACROS, macro_scripts, read_sql_file
from sqlanon.support.workdir import spill_directory


@dataclass(frozen=True)
class FileTarget:
    """A DuckDB file that linked tables are released to."""

    path: Path

    @property
    def location(self) -> FileLocation:
        """The file as readers open it."""
        return FileLocation(self.path)

    @contextmanager
    def stage(self, records: LinkedRecords) -> Iterator[StagedFile]:
        """Write in a private folder next to the file."""
        with stage_beside(self.path, self._read_manifest, records) as staging:
            yield StagedFile(staging, records.limits)

    def _read_manifest(self) -> LinkedManifest:
        with _open_file(self.path) as (_, manifest, _):
            return manifest


@dataclass(frozen=True)
class StagedFile:
    """A DuckDB file in a private folder."""

    staging: StagingFolder
    limits: Limits

    @property
    def file(self) -> Path:
        """The file before it is renamed."""
        return self.staging.directory / STAGED_FILE

    @property
    def version(self) -> int:
        """The number of the release at its path."""
        return self.staging.version

    def write(self, engine: DuckDBEngine, manifest: LinkedManifest) -> None:
        """Add the manifest, the views and the macros to the file."""
        with engine.using(ATTACHED):
            macro_library.install(engine, macro_scripts(LINKED_MACROS), ATTACHED, self.file.parent, STORAGE_VERSION)
            with engine.transaction():
                engine.script(read_sql_file("manifest_linked.sql"))
                row = manifest.row()
                target = table("linked_manifest", "sqlanon", ATTACHED)
                engine.execute(insert_rows(target, row), list(row.values()))
                for statement in (*release_views(manifest, ATTACHED), *release_comments(manifest, ATTACHED)):
                    engine.execute(statement)
            engine.script(f"CHECKPOINT {ATTACHED}")  # DETACH does not report a full disk

    def verify(self, counted_manifest: LinkedManifest) -> LinkedVerification:
        """Verify the file before it is renamed."""
        return verify_tables(FileLocation(self.file), self.limits, counted_manifest)

    @property
    def sha256(self) -> str:
        """The SHA-256 of the complete file."""
        return file_sha256(self.file)

    def commit(self) -> None:
        """Rename the file to its path."""
        self.staging.refuse_other_release()
        swap_in(self.file, self.staging.path)


def target_for(records: LinkedRecords, target: str | PathLike[str] | None) -> FileTarget:
    """The file that the caller or the policy names."""
    section = records.policy.release
    chosen = target or (None if section is None else section.database)
    if chosen is None:
        raise ReleaseError('no target is given: publish("release.duckdb"), or [release] database = ... in the policy')
    path = Path(chosen).resolve()
    if reason := release_file_flaw(Path(chosen)):
        raise ReleaseError(f"{chosen} {reason}")
    if path.suffix.lower() == ".parquet":
        raise ReleaseError(
            f"{chosen}: several tables are released in a DuckDB file, whose name ends in .duckdb, or in a folder of "
            "Parquet files, whose name has no ending"
        )
    refuse_unusable_path(path, chosen, records)
    return FileTarget(path)


def find_location(release: str | PathLike[str], schema: str | None) -> FileLocation | None:
    """The location of a file that is a release of linked tables, by its catalog alone; else None."""
    path = Path(release)
    if not path.is_file() or path.with_name(f"{path.name}.wal").exists():
        return None
    if path.suffix.lower() == ".parquet":
        _refuse_file_of_folder(path)
        return None
    with spill_directory() as spill, closing(DuckDBEngine.open_private(spill)) as engine:
        try:
            engine.attach(path, ATTACHED, read_only=True)
            lock_down(engine)
            return None if _MANIFEST.isdisjoint(list_objects(engine)) else FileLocation(path)
        except duckdb.Error:
            return None


def _refuse_file_of_folder(path: Path) -> None:
    """Refuse a Parquet file that is one of several tables: its folder is the release."""
    with suppress(OSError, ValueError):
        for manifest in read_layout(path).manifests:
            claims = json.loads(manifest)
            if isinstance(claims, dict) and claims.get("format") == LINKED_FORMAT:
                raise ReleaseError(f"{path} is one table of a release of several: verify its folder, {path.parent}")


@dataclass(frozen=True)
class FileLocation:
    """A DuckDB file with linked tables."""

    path: Path

    @contextmanager
    def open(self, limits: Limits = NO_LIMITS) -> Iterator[OpenTables]:
        """Open the file read-only, and check everything in it but the rows."""
        with _open_file(self.path, limits) as (engine, manifest, scratch):
            yield OpenTables(engine, manifest, (_check_contents(engine, self.path, manifest, scratch),))


_MANIFEST = frozenset({"table sqlanon.linked_manifest", "view sqlanon.linked_manifest"})


@contextmanager
def _open_file(path: Path, limits: Limits = NO_LIMITS) -> Iterator[tuple[DuckDBEngine, LinkedManifest, Path]]:
    """Open a release read-only in a separate engine, in which nothing of the file can reach beyond it;
    the engine may write to the folder."""
    if not path.is_file():
        raise ReleaseError(f"release {path} does not exist")
    if (log := path.with_name(f"{path.name}.wal")).exists():
        raise BrokenReleaseError(f"{log} is next to the release, with changes that are not in it: remove it")
    with open_engine(limits) as (engine, spill):
        scratch = spill / "scratch"
        scratch.mkdir()
        try:
            engine.attach(path, ATTACHED, read_only=True)
            engine.execute(fragment("SET allowed_directories = [:folder]")(folder=literal_path(str(scratch))))
            lock_down(engine)
            objects = list_objects(engine)
        except duckdb.Error as error:
            raise ReleaseError(
                f"{path} cannot be read as a release of sqlanon: {str(error).splitlines()[0]}"
            ) from error
        if _MANIFEST.isdisjoint(objects):
            raise ReleaseError(f"{path} is not a release of linked tables")
        with translate_manifest_errors(path):
            if not is_plain_table(engine, "sqlanon", "linked_manifest"):
                raise ValueError("it is not a plain table")
            source = table("linked_manifest", "sqlanon", ATTACHED)
            names = list(engine.types(source))
            rows = engine.rows(select(cols(names), source.copy()))
            if len(rows) != 1:
                raise ValueError(f"it has {len(rows)} rows")
            manifest = LinkedManifest.from_row(dict(zip(names, rows[0], strict=True)))
        yield engine, manifest, scratch


def _expected_objects(manifest: LinkedManifest) -> set[str]:
    tables = {f"table main.{manifest.rows_table(claims)}" for claims in manifest.tables}
    views = {f"view main.{name}" for name in (*(claims.name for claims in manifest.tables), KNOWN_ROWS, WHOLE_ROWS)}
    return tables | views | {"table sqlanon.linked_manifest", "schema sqlanon.sqlanon"}


def _check_contents(engine: DuckDBEngine, path: Path, manifest: LinkedManifest, scratch: Path) -> Check:
    """Whether the file has the objects of a release and no others, and no definition that could hold a value."""
    objects, expected = list_objects(engine), _expected_objects(manifest)
    faults = [f"{name} was added" for name in sorted(objects - expected)]
    faults += [f"{name} is missing" for name in sorted(expected - objects)]
    faults += [f"{name} is defined by more than columns" for name in find_unexpected_definitions(engine)]
    faults += [*find_stray_bytes(path)]
    if free := count_free_blocks(engine):
        faults.append(f"{free} unused blocks, which may hold deleted rows")
    for claims in manifest.tables:
        types = read_catalog_columns(engine, "main", manifest.rows_table(claims))
        if types != {column.name: column.type for column in claims.columns}:
            faults.append(f"the columns of {claims.name!r} are not those of the manifest")
    if read_comments(engine) != expected_comments(manifest):
        faults.append("the comments are not those of the manifest")
    if not faults:
        faults += [f"macro {name!r} was changed" for name in find_changed_macros(engine, scratch, LINKED_MACROS)]
        faults += _find_changed_views(engine, manifest, scratch)
    return check_faults("contents", faults, "rows, views and metadata only")


_EXPECTED = "sqlanon_expected"


def _find_changed_views(engine: DuckDBEngine, manifest: LinkedManifest, folder: Path) -> list[str]:
    """The views of the file that differ from those of a release with this manifest.

    DuckDB words a view that it reads from a file otherwise than a new one, so the expected views are in a file, too.
    """
    file = folder / "expected.duckdb"
    engine.attach(file, _EXPECTED, read_write=True, storage_version=STORAGE_VERSION)
    for claims in manifest.tables:
        columns = [(column.name, column.type) for column in claims.columns]
        engine.execute(create_table_with_columns(table(manifest.rows_table(claims), "main", _EXPECTED), columns))
    with engine.using(_EXPECTED):
        for view in release_views(manifest, _EXPECTED):
            engine.execute(view)
    engine.detach(_EXPECTED)
    engine.attach(file, _EXPECTED, read_only=True)
    views, expected = read_views(engine), read_views(engine, _EXPECTED)
    engine.detach(_EXPECTED)
    return [f"view {name!r} was changed" for name in sorted(expected) if views.get(name) != expected[name]]
