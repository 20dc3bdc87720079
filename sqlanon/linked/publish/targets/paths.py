"""Files and folders of linked tables: they are written next to their path."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from sqlanon.errors import DiskError, ReleaseError
from sqlanon.linked.records import LinkedRecords
from sqlanon.linked.release.manifest import LinkedManifest
from sqlanon.places.addresses import database_path_flaw, format_location
from sqlanon.policy.checks import is_same_file
from sqlanon.publish.targets.file.target import identify_file
from sqlanon.support.workdir import describe_disk_error, private_directory

PATH_ADVICE = "choose another name, or remove it"


@dataclass(frozen=True)
class StagingFolder:
    """A private folder next to the path of a release, with the release that is replaced, if there is one."""

    path: Path
    directory: Path
    replaced: tuple[int, ...] | None
    """The identity of the replaced file or folder."""
    replaced_manifest: LinkedManifest | None

    @property
    def version(self) -> int:
        """The number of the new release."""
        return 1 if self.replaced_manifest is None else self.replaced_manifest.version + 1

    def refuse_other_release(self) -> None:
        """Refuse to replace what another run has written meanwhile."""
        if identify_file(self.path) != self.replaced:
            raise ReleaseError(f"{self.path} was replaced by another run: publish again")


@contextmanager
def stage_beside(
    path: Path, read_manifest: Callable[[], LinkedManifest], records: LinkedRecords
) -> Iterator[StagingFolder]:
    """Make a private folder next to a path, unless something else than a release of the same tables is there."""
    replaced = identify_file(path)
    replaced_manifest = None if replaced is None else _read_replaced(path, read_manifest, records)
    with (
        _staging_errors(path, replaced is not None),
        private_directory(path.parent, f".{path.name}.sqlanon-") as directory,
    ):
        yield StagingFolder(path, directory, replaced, replaced_manifest)


def _read_replaced(path: Path, read_manifest: Callable[[], LinkedManifest], records: LinkedRecords) -> LinkedManifest:
    try:
        manifest = read_manifest()
    except ReleaseError as error:
        raise ReleaseError(f"{path} exists and is not a release of linked tables: {PATH_ADVICE}") from error
    if [claims.name for claims in manifest.tables] != [table.name for table in records.tables]:
        raise ReleaseError(f"{format_location(path)} is a release of other tables: {PATH_ADVICE}")
    return manifest


@contextmanager
def _staging_errors(path: Path, is_replaced: bool) -> Iterator[None]:
    """Name the path in errors of the disk, and the state of the existing release."""
    try:
        yield
    except (OSError, DiskError) as error:
        problem = error if isinstance(error, DiskError) else describe_disk_error(error) or error.strerror or error
        state = "the existing release is unchanged" if is_replaced else "nothing was published"
        raise ReleaseError(f"{path} cannot be written: {problem}; {state}") from error


def refuse_unusable_path(path: Path, name: str | PathLike[str], records: LinkedRecords) -> None:
    """Refuse a file or folder, which the user calls ``name``, that cannot be made or would replace private files."""
    if reason := database_path_flaw(path):
        raise ReleaseError(f"{name} {reason}")
    if not path.parent.is_dir():
        raise ReleaseError(f"folder {path.parent} does not exist: create it first")
    files = [file for table in records.tables for file in (*table.run.source.files, *table.run.engine.files())]
    if records.policy.catalog is not None:
        files.append(records.policy.catalog.database)
    if any(is_same_file(path, file) or path in file.resolve().parents for file in files):
        raise ReleaseError(f"{path} is or contains the source or the catalog: choose another location")
