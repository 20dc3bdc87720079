"""Linked tables in a folder of Parquet files: a file for each table, all with the same manifest in their metadata.

The folder is written next to its path and renamed, so that its files appear together. A release that is replaced is
moved away first, and moved back if the new one cannot take its place.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import ClassVar

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.errors import BrokenReleaseError, ReleaseError
from sqlanon.linked.publish.targets.base import (
    OpenTables,
    open_engine,
    translate_manifest_errors,
    translate_read_errors,
    verify_tables,
)
from sqlanon.linked.publish.targets.paths import PATH_ADVICE, StagingFolder, refuse_unusable_path, stage_beside
from sqlanon.linked.records import LinkedRecords
from sqlanon.linked.release.manifest import LinkedManifest
from sqlanon.linked.release.released_numbers import released_table
from sqlanon.linked.release.verification import LinkedVerification
from sqlanon.publish.targets.file.target import STAGED_FILE, refuse_types, write_parquet
from sqlanon.release.contents import ATTACHED
from sqlanon.release.manifest import types_in
from sqlanon.release.parquet import Layout, check_parquet, read_layout
from sqlanon.support.checks import Check, check_faults
from sqlanon.support.expressions import create_view, read_parquet, select_star
from sqlanon.support.workdir import new_file_mode

_SUFFIX = ".parquet"
_MAX_NAME_BYTES = 200
"""In bytes: file systems take 255."""


@dataclass(frozen=True)
class FolderTarget:
    """A folder that linked tables are released to."""

    path: Path

    @property
    def location(self) -> FolderLocation:
        """The folder as readers open it."""
        return FolderLocation(self.path)

    @contextmanager
    def stage(self, records: LinkedRecords) -> Iterator[StagedFolder]:
        """Write in a private folder next to the target."""
        self._recover()
        with stage_beside(self.path, self._read_manifest, records) as staging:
            if staging.replaced_manifest is not None:
                self._refuse_additions(staging.replaced_manifest)
            staged = StagedFolder(staging, self.replaced_path, records.limits)
            staged.tables.mkdir()
            yield staged

    @property
    def replaced_path(self) -> Path:
        """The path of the replaced release between the two renames."""
        return self.path.with_name(f".{self.path.name}.replaced")

    def _recover(self) -> None:
        """Put back the release that a run moved away before it was killed. Any other folder of this name stays."""
        try:
            _read_folder(self.replaced_path)
        except ReleaseError:
            return
        if not self.path.exists():
            self.replaced_path.rename(self.path)
        else:  # killed once the new release was in place
            shutil.rmtree(self.replaced_path, ignore_errors=True)

    def _read_manifest(self) -> LinkedManifest:
        return _read_folder(self.path)[0]

    def _refuse_additions(self, manifest: LinkedManifest) -> None:
        """Refuse to replace a release with other files: they would be lost."""
        if faults := list(_find_other_files(self.path, manifest)):
            raise ReleaseError(f"the release {self.path} has additions: {'; '.join(faults)}; {PATH_ADVICE}")


@dataclass(frozen=True)
class StagedFolder:
    """A folder of Parquet files in a private folder, next to the file that has their rows."""

    staging: StagingFolder
    replaced_path: Path
    limits: Limits

    sha256: ClassVar[None] = None

    @property
    def file(self) -> Path:
        """The DuckDB file of the rows; it is not part of the release."""
        return self.staging.directory / STAGED_FILE

    @property
    def tables(self) -> Path:
        """The folder before it is renamed."""
        return self.staging.directory / "tables"

    @property
    def version(self) -> int:
        """The number of the release at its path."""
        return self.staging.version

    def write(self, engine: DuckDBEngine, manifest: LinkedManifest) -> None:
        """Write the Parquet file of each table, with the manifest."""
        for claims in manifest.tables:
            refuse_types(types_in(claims.columns), None)
            rows, file = released_table(manifest, claims), self.tables / f"{claims.name}{_SUFFIX}"
            write_parquet(engine, rows, manifest.to_json(), file)

    def verify(self, counted_manifest: LinkedManifest) -> LinkedVerification:
        """Verify the folder before it is renamed."""
        return verify_tables(FolderLocation(self.tables), self.limits, counted_manifest)

    def commit(self) -> None:
        """Rename the folder to its path."""
        path, moved = self.staging.path, self.replaced_path
        for file in self.tables.iterdir():
            file.chmod(new_file_mode())
        self.tables.chmod(new_file_mode() | (new_file_mode() & 0o444) >> 2)  # who may read may also list
        self.staging.refuse_other_release()
        if self.staging.replaced is None:
            self.tables.rename(path)
            return
        with suppress(OSError):  # the owner may differ
            shutil.copymode(path, self.tables)
        path.rename(moved)
        try:
            self.tables.rename(path)
        except BaseException:
            moved.rename(path)
            raise
        shutil.rmtree(moved, ignore_errors=True)  # the release is out; the next publication removes the remainder


def target_for(records: LinkedRecords, target: str | PathLike[str] | None) -> FolderTarget:
    """The folder that the caller or the policy names."""
    section = records.policy.release
    chosen = target or (None if section is None else section.folder)
    assert chosen is not None
    path = Path(chosen).resolve()
    if path.exists() and not path.is_dir():
        raise ReleaseError(f"{chosen} is a file: name a folder that is not there yet, or a release to replace")
    refuse_unusable_path(path, chosen, records)
    for name in (table.name for table in records.tables):
        if "/" in name or "\\" in name or name.startswith(".") or len(name.encode()) > _MAX_NAME_BYTES:
            raise ReleaseError(
                f"table {name!r} cannot name a file of the folder {path}: give it another name in the policy, with "
                "table = ... for the source"
            )
    return FolderTarget(path)


def find_location(release: str | PathLike[str], schema: str | None) -> FolderLocation:
    """The location of a folder."""
    return FolderLocation(Path(release).absolute())


@dataclass(frozen=True)
class FolderLocation:
    """A folder of Parquet files with linked tables."""

    path: Path

    @contextmanager
    def open(self, limits: Limits = NO_LIMITS) -> Iterator[OpenTables]:
        """Open the files, and check everything in them but the rows."""
        manifest, layouts = _read_folder(self.path)
        with open_engine(limits) as (engine, _):
            engine.attach(":memory:", ATTACHED)
            checks = [_check_files(self.path, manifest, layouts)]
            if checks[0].passed:
                with translate_read_errors(self.path):
                    checks += [self._open_table(engine, manifest, name, layout) for name, layout in layouts.items()]
            yield OpenTables(engine, manifest, tuple(checks))

    def _open_table(self, engine: DuckDBEngine, manifest: LinkedManifest, name: str, layout: Layout) -> Check:
        """Check a file, and make its rows a view of the attached database."""
        claims, file = manifest.table(name), self._file(name)
        check = check_parquet(engine, file, layout)
        faults = [] if check.passed else [check.message]
        if check.passed:
            rows = read_parquet([str(file)])
            if engine.columns(rows) != types_in(claims.columns):
                faults.append("the columns are not those of the manifest")
            engine.execute(create_view(released_table(manifest, claims), select_star(rows)))
        return check_faults(f"contents of {name}", faults, check.message)

    def _file(self, name: str) -> Path:
        return self.path / f"{name}{_SUFFIX}"


def _read_folder(path: Path) -> tuple[LinkedManifest, Mapping[str, Layout]]:
    """The manifest of a folder, by its first table, and the layouts of the files by table; reads no rows."""
    if not path.is_dir():
        raise ReleaseError(f"release {path} does not exist")
    layouts: dict[str, Layout] = {}
    for file in sorted(path.glob(f"*{_SUFFIX}")):
        if file.is_symlink() or not file.is_file():
            raise BrokenReleaseError(f"{file} is not a plain file: no release of sqlanon has it")
        try:
            layouts[file.stem] = read_layout(file)
        except (OSError, ValueError) as error:
            raise ReleaseError(f"{file} cannot be read as a table of a release of sqlanon: {error}") from error
    texts = [text for layout in layouts.values() for text in layout.manifests]
    if not texts:
        raise ReleaseError(f"{path} is not a release of linked tables: no file in it has a manifest")
    with translate_manifest_errors(path):
        return LinkedManifest.from_json(texts[0].decode()), layouts


def _find_other_files(path: Path, manifest: LinkedManifest) -> Iterator[str]:
    expected = {f"{claims.name}{_SUFFIX}" for claims in manifest.tables}
    names = {file.name for file in path.iterdir()}
    yield from (f"{name} was added" for name in sorted(names - expected))
    yield from (f"{name} is missing" for name in sorted(expected - names))


def _check_files(path: Path, manifest: LinkedManifest, layouts: Mapping[str, Layout]) -> Check:
    """Check that the folder has the files of its tables and no others, all with the same manifest."""
    faults = list(_find_other_files(path, manifest))
    text = manifest.to_json().encode()
    for name, layout in layouts.items():
        if layout.flaw:
            faults.append(f"{name}{_SUFFIX}: {layout.flaw}")
        elif list(layout.manifests) != [text]:
            faults.append(f"{name}{_SUFFIX} has another manifest")
    return check_faults("contents", faults, f"{len(layouts)} tables with one manifest")
