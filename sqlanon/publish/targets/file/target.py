"""Publishing to a file: a fresh file in a private directory is written and audited, then renamed to its path.

Readers that have the old file open keep it, and a run that dies leaves it unchanged. The published file never held a
private value: it is written once, from the recoded rows, by an engine that then detaches it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import duckdb
from duckdb.sqltypes import DuckDBPyType
from sqlglot import exp

from sqlanon.audit.verification import Verification
from sqlanon.audit.verify import verify_file, verify_release
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.errors import DiskError, OvertakenError, ReleaseError
from sqlanon.hierarchies.bounds import RangeKind
from sqlanon.places.addresses import database_path_flaw, release_file_flaw
from sqlanon.policy import Policy
from sqlanon.policy.checks import is_same_file
from sqlanon.policy.sections import STORAGE_VERSION
from sqlanon.publish.published import Release
from sqlanon.publish.targets.base import Draft, Reach, ReleaseTarget, refuse_draft_over, unsupported_types
from sqlanon.release import macro_library
from sqlanon.release.contents import ATTACHED, expected_objects, library_files, list_objects
from sqlanon.release.digests import (
    MIN_ROWS,
    approximate_counts,
    check_sha256,
    columns_to_hash_once,
    digest_by_value,
    file_sha256,
    has_repeated_values,
)
from sqlanon.release.label_levels import LEVELS, LEVELS_COLUMNS
from sqlanon.release.manifest import Facts, Manifest, types_in, version_name
from sqlanon.release.metadata import SuppressedRows, refuse_taken_name, write_metadata
from sqlanon.release.parquet import KEY
from sqlanon.release.reader import (
    SUBJECT,
    CachedQueries,
    OpenRelease,
    attach_temporarily,
    open_release,
    read_manifest,
    read_manifests,
)
from sqlanon.requirements.macros import call_digest, call_k_anonymity
from sqlanon.sources import UNKNOWN_TYPE, Source
from sqlanon.sources.relation import describe_engine_error
from sqlanon.support.expressions import (
    as_column,
    cast,
    create_schema,
    create_table_with_columns,
    create_temporary_view,
    drop_table,
    ident,
    insert_rows,
    read_parquet,
    select_star,
    subquery,
    table,
    text,
)
from sqlanon.support.names import STAGED, VERIFIED, table_parts
from sqlanon.support.resources import RELEASE_MACROS, macro_scripts, read_sql_file
from sqlanon.support.workdir import (
    BusyError,
    describe_disk_error,
    exclusive_lock,
    new_file_mode,
    private_directory,
    spill_directory,
)

STAGED_FILE = "release.duckdb"
_EARLIER, _FILE = "release_before", "a release file"

_COMMON_TYPES = frozenset(
    {"BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "VARCHAR", "DATE", "TIMESTAMP", "BLOB"}
)
"""Types that every file can hold."""
_DECIMAL = re.compile(r"DECIMAL\(\d+,\d+\)")
_ROUNDED_TYPES = frozenset({"TIME WITH TIME ZONE", "INTERVAL"})
"""Types that Parquet does not hold exactly: it has no offset of a time, and neither microseconds nor negative parts of
an interval."""
_NESTED_TYPES = ("list", "array", "struct", "tuple", "map", "union")


def refuse_types(types: Mapping[str, str], storage_version: str | None) -> None:
    """Refuse types that a DuckDB file of this version, or without a version a Parquet file, would change."""
    rare = {
        name: type_ for name, type_ in types.items() if type_ not in _COMMON_TYPES and not _DECIMAL.fullmatch(type_)
    }
    if not rare and storage_version in (None, STORAGE_VERSION):
        return
    target, alternative = ("Parquet", ", or publish to a DuckDB file") if storage_version is None else (_FILE, "")
    with spill_directory() as directory, closing(DuckDBEngine.open_private(directory)) as engine:
        if storage_version is None:
            path = directory / "probe.parquet"
            changed = [name for name, type_ in rare.items() if not _is_held_by_parquet(engine, type_, path)]
        else:
            attach_new(engine, directory / "probe.duckdb", storage_version)
            probe = table("probe", "main", STAGED)
            changed = [name for name, type_ in rare.items() if not _is_held(engine, probe, type_)]
    if changed:
        raise unsupported_types({name: rare[name] for name in changed}, target, alternative)


def attach_new(engine: DuckDBEngine, file: Path, storage_version: str) -> None:
    """Attach a new DuckDB file of a storage version, as `STAGED`."""
    try:
        engine.attach(file, STAGED, read_write=True, storage_version=storage_version)
    except duckdb.InvalidInputException as error:
        raise ReleaseError(
            f"release.storage_version: DuckDB {engine.version} does not know {storage_version!r}; leave it out, "
            "or give the version of the oldest DuckDB that reads the release"
        ) from error


def _is_held_by_parquet(engine: DuckDBEngine, type_: str, path: Path) -> bool:
    """Whether a Parquet file returns all values of a type unchanged."""
    no_rows = exp.Select(expressions=[as_column(cast(exp.null(), type_), "probe")]).limit(0, copy=False)
    duckdb_type = engine.types(subquery(no_rows.copy(), "p"))["probe"]
    try:
        engine.execute(_copy_to_parquet(no_rows, path))
    except duckdb.Error:
        return False
    is_same = engine.columns(read_parquet([str(path)])) == {"probe": str(duckdb_type)}
    return is_same and not _ROUNDED_TYPES & set(_scalar_types(duckdb_type))


def _scalar_types(type_: DuckDBPyType) -> Iterator[str]:
    children = [] if type_.id not in _NESTED_TYPES else [t for _, t in type_.children if isinstance(t, DuckDBPyType)]
    if not children:
        yield str(type_)
    for child in children:
        yield from _scalar_types(child)


def _is_held(engine: DuckDBEngine, probe: exp.Table, type_: str) -> bool:
    """Whether a DuckDB file can have a column of a type."""
    try:
        engine.execute(create_table_with_columns(probe.copy(), [("probe", type_)]))
    except duckdb.Error:
        return False
    engine.execute(drop_table(probe.copy()))
    return True


def _create_released_table(engine: DuckDBEngine, draft: Draft, target: exp.Table) -> None:
    types, repeating = types_in(draft.columns()), draft.repeating_columns()
    # DuckDB would choose the same compression, but takes a tenth of the writing time for that in the older formats.
    chosen = repeating if _is_older(draft.search_input.policy.storage_version, (1, 3)) else ()
    definitions = [
        (name, f"{type_} USING COMPRESSION dictionary" if name in chosen else type_) for name, type_ in types.items()
    ]
    try:
        engine.execute(create_table_with_columns(target, definitions))
    except duckdb.Error as error:
        unsupported = {name: type_ for name, type_ in types.items() if not _is_held(engine, target, type_)}
        raise unsupported_types(unsupported, _FILE) from error


def _is_older(storage_version: str, version: tuple[int, int]) -> bool:
    """
    >>> _is_older("v1.2.0", (1, 3)), _is_older("v1.10.0", (1, 3))
    (True, False)
    """
    major, minor, _ = storage_version[1:].split(".")
    return (int(major), int(minor)) < version


def write_parquet(engine: DuckDBEngine, rows: exp.Table, manifest: str, target: Path) -> None:
    """Write rows to a Parquet file, with the JSON of the manifest in its metadata."""
    metadata = exp.Struct(expressions=[exp.PropertyEQ(this=ident(KEY), expression=text(manifest))])
    option = exp.CopyParameter(this=exp.Var(this="KV_METADATA"), expression=metadata)
    engine.execute(_copy_to_parquet(select_star(rows), target, option))
    target.chmod(0o600)


def _copy_to_parquet(query: exp.Query, target: Path, *options: exp.CopyParameter) -> exp.Copy:
    parquet = exp.CopyParameter(this=exp.Var(this="FORMAT"), expression=exp.Var(this="PARQUET"))
    return exp.Copy(this=exp.Subquery(this=query), kind=False, files=[text(str(target))], params=[parquet, *options])


@dataclass(frozen=True)
class FileTarget:
    """A DuckDB file, which can keep earlier versions of its table, or a Parquet file."""

    path: Path
    table_name: str
    keep: int = 1

    @property
    def is_parquet(self) -> bool:
        return self.path.suffix.lower() == ".parquet"

    @contextmanager
    def stage(self, draft: Draft) -> Iterator[StagedFile]:
        path = self.path
        if reason := database_path_flaw(path):  # also for Parquet, whose rows are staged in a DuckDB file
            raise ReleaseError(f"{path} {reason}")
        if self.is_parquet:
            refuse_types(types_in(draft.columns()), None)
        replaced_file = identify_file(path)
        existing = _read_replaceable_manifests(path, self.table_name, draft.run.engine.limits)
        version = None if self.is_parquet else 1 + max((manifest.version or 0 for manifest in existing), default=0)
        name = self.table_name if version is None else version_name(self.table_name, version)
        if draft.is_draft:
            refuse_draft_over(existing, path)
        published = [manifest for manifest in existing if not manifest.draft]
        earlier_versions = [] if self.is_parquet else published[: self.keep - 1]
        try:
            with private_directory(path.parent, f".{path.name}.sqlanon-") as directory:
                with draft.rows() as query:
                    write_rows(draft, query, directory / STAGED_FILE, name, with_levels=not self.is_parquet)
                with StagedRows.open(draft, directory / STAGED_FILE, name) as rows:
                    yield StagedFile(self, rows, draft.range_kinds, version, earlier_versions, replaced_file)
        except BusyError as error:
            raise ReleaseError(f"another run is publishing to {path}: try again later") from error
        except (OSError, DiskError) as error:
            problem = error if isinstance(error, DiskError) else describe_disk_error(error) or error.strerror or error
            state = "nothing was published" if replaced_file is None else "the existing release is unchanged"
            raise ReleaseError(f"{path} cannot be written: {problem}; {state}") from error

    def facts(self, staged: StagedFile) -> Facts:
        return staged.staged_rows.count(staged.version)

    def commit(self, staged: StagedFile, manifest: Manifest) -> Release:
        swap_in(staged.file, self.path)
        return Release(self.path, self.table_name, manifest, staged.staged_rows.draft.run.engine.limits, staged.sha256)


def target_for(draft: Draft, target: str | Path | None, table_name: str | None) -> ReleaseTarget:
    policy = draft.search_input.policy
    chosen = target or (None if policy.release is None else policy.release.database or policy.release.file)
    if chosen is None:
        raise ReleaseError('no target is given: publish("release.duckdb"), or [release] database = ... in the policy')
    path = Path(os.path.realpath(chosen))  # a link stays a link
    if reason := release_file_flaw(Path(chosen)):
        raise ReleaseError(f"{chosen} {reason}")
    private_files = [*draft.search_input.source.files, *draft.run.engine.files()]
    if policy.catalog is not None:
        private_files.append(policy.catalog.database)
    if any(is_same_file(path, file) for file in private_files):
        raise ReleaseError(f"{path} is the source, or the catalog: a release needs a separate file")
    return FileTarget(path, table_name or released_name(policy), draft.retained_versions)


def release_location(release: str | os.PathLike[str], table_name: str | None) -> FileLocation:
    if table_name is not None:
        raise ReleaseError("a Parquet file needs no table name: leave it out")
    return FileLocation(Path(release).absolute())


def recorded_location(path: Path, table_name: str, reach: Reach) -> FileLocation:
    return FileLocation(path)


@dataclass(frozen=True)
class FileLocation:
    path: Path

    def verify(self, limits: Limits = NO_LIMITS, sha256: str | None = None) -> Verification:
        return verify_file(self.path, limits=limits, sha256=sha256, with_risk=True)

    def read_manifests(self, limits: Limits) -> Sequence[Manifest] | None:
        if not self.path.exists():
            return () if self.path.parent.is_dir() else None  # a missing folder may come back
        with open_release(self.path, limits) as release:
            return release.manifests

    @contextmanager
    def rows(self, engine: DuckDBEngine, manifest: Manifest, alias: str = VERIFIED) -> Iterator[exp.Table]:
        read_manifest(self.path, engine.limits, manifest.version)
        with attach_temporarily(engine, self.path, manifest, alias) as relation:
            yield relation

    @contextmanager
    def open_verified(self, limits: Limits, sha256: str | None = None) -> Iterator[OpenedFile]:
        identity = identify_file(self.path)
        yield OpenedFile(self.path, self.verify(limits, sha256), identity)

    @contextmanager
    def open_version(
        self, limits: Limits, version: int | None, sha256: str | None, trusted: bool
    ) -> Iterator[OpenedFile]:
        """Open a version of the file. A file that is unchanged was verified when it was published."""
        path, identity = self.path, identify_file(self.path)
        is_unchanged = sha256 is not None and path.is_file() and bool(check_sha256(path, sha256).passed)
        if trusted or is_unchanged:
            manifest = read_manifest(path, limits, version)
            verification = Verification(path, manifest, (), manifest.digest, is_file=True)
        else:
            verification = verify_file(path, limits=limits, version=version)
        yield OpenedFile(path, verification, identity, sha256 is not None and not is_unchanged)


@dataclass(frozen=True)
class OpenedFile:
    """A file that was verified or is trusted; its catalog or layout is checked again whenever its rows are opened."""

    path: Path
    verification: Verification
    identity: tuple[int, ...] | None
    is_changed: bool = False

    @contextmanager
    def rows(self, engine: DuckDBEngine, manifest: Manifest, alias: str = VERIFIED) -> Iterator[exp.Table]:
        with attach_temporarily(engine, self.path, manifest, alias) as relation:
            if identify_file(self.path) != self.identity:
                raise ReleaseError(f"{self.path} was replaced while it was read: try again")
            yield relation

    def sha256(self) -> str:
        return file_sha256(self.path)


@dataclass(frozen=True)
class StagedRows:
    """The rows of a release in a private file, and an engine that has read nothing else."""

    draft: Draft
    file: Path
    table_name: str
    engine: DuckDBEngine
    queries: CachedQueries

    @classmethod
    @contextmanager
    def open(cls, draft: Draft, file: Path, table_name: str) -> Iterator[StagedRows]:
        spill = file.with_name("spill")
        spill.mkdir(mode=0o700)
        with closing(DuckDBEngine.open_private(spill, draft.run.engine.limits)) as engine:
            engine.script(*macro_scripts(RELEASE_MACROS))
            yield cls(draft, file, table_name, engine, CachedQueries(engine))

    def count(self, version: int | None) -> Facts:
        self.engine.attach(self.file, ATTACHED, read_only=True)
        rows = table(self.table_name, "main", ATTACHED)
        self.engine.execute(create_temporary_view(SUBJECT.copy(), select_star(rows)))
        figures = self.queries.rows(call_k_anonymity(SUBJECT.name, self.draft.quasi_identifiers))[0]
        smallest_class, classes, count, _ = figures
        # The verification of a Parquet file reuses the cached result of the macro.
        digest = self.queries.rows(call_digest(SUBJECT.name))[0][1] if version is None else self._digest(rows, count)
        self.engine.detach(ATTACHED)
        return Facts(count, classes, smallest_class or 0, digest, version)

    def _digest(self, rows: exp.Table, count: int) -> str:
        types = self.engine.columns(rows)
        names = columns_to_hash_once(types) if count >= MIN_ROWS else []
        counts = self.engine.rows(approximate_counts(rows, names))[0] if names else ()
        repeated = [name for name, values in zip(names, counts, strict=True) if has_repeated_values(values, count)]
        query = digest_by_value(rows, types, repeated) if repeated else call_digest(SUBJECT.name)
        return str(self.engine.rows(query)[0][-1])

    def verify(self, path: Path, manifest: Manifest) -> Verification:
        self.engine.attach(self.file, ATTACHED, read_only=True)
        release = OpenRelease(self.engine, self.queries, manifest)
        verification = verify_release(path, release, fresh=False)
        self.engine.detach(ATTACHED)
        return verification

    @contextmanager
    def beside_source(self) -> Iterator[exp.Table]:
        """Open the rows in the engine of the source."""
        self.draft.run.engine.attach(self.file, STAGED, read_only=True)
        try:
            yield table(self.table_name, "main", STAGED)
        finally:
            self.draft.run.engine.detach(STAGED)


@dataclass
class StagedFile:
    """A release in a private directory: its rows, the versions to keep, and the identity of the file it replaces."""

    target: FileTarget
    staged_rows: StagedRows
    range_kinds: Mapping[str, RangeKind]
    version: int | None
    kept_manifests: Sequence[Manifest]
    replaced_file: tuple[int, ...] | None
    sha256: str | None = None

    @property
    def file(self) -> Path:
        file = self.staged_rows.file
        return file.with_name("release.parquet") if self.target.is_parquet else file

    def rows(self) -> AbstractContextManager[exp.Table]:
        return self.staged_rows.beside_source()

    def complete(self, manifest: Manifest, suppressed: SuppressedRows) -> Verification:
        if not self.target.is_parquet:
            refuse_taken_name(manifest)
        verification = _write_and_verify(self, manifest, suppressed)
        _flush(self.file)
        self.sha256 = file_sha256(self.file)
        return verification

    def refuse_replaced_file(self) -> None:
        if identify_file(self.target.path) != self.replaced_file:
            raise OvertakenError(f"another run has just published to {self.target.path}: try again")

    @contextmanager
    def lock(self) -> Iterator[None]:
        with exclusive_lock(self.target.path):
            self.refuse_replaced_file()
            yield


def _write_and_verify(staged: StagedFile, manifest: Manifest, suppressed: SuppressedRows) -> Verification:
    """Write the manifests and the metadata, and verify the file. The counts of the rows are cached."""
    rows, engine, is_parquet = staged.staged_rows, staged.staged_rows.engine, staged.target.is_parquet
    engine.attach(rows.file, ATTACHED, read_write=True)
    with engine.using(ATTACHED):
        _write_manifests(staged, (manifest, *staged.kept_manifests), suppressed)
        if not is_parquet:
            stored = read_manifests(engine)
            release = OpenRelease(engine, rows.queries, stored[0], is_database=True, manifests=tuple(stored))
            verification = verify_release(staged.file, release, fresh=True)
            engine.script(f"CHECKPOINT {ATTACHED}")  # DETACH does not report a full disk
    engine.detach(ATTACHED)
    return verify_file(staged.file, fresh=True, limits=engine.limits) if is_parquet else verification


def _write_manifests(staged: StagedFile, manifests: Sequence[Manifest], suppressed: SuppressedRows) -> None:
    """Add macros, kept versions, manifests and metadata to the attached file, or copy its rows to a Parquet file."""
    rows, engine = staged.staged_rows, staged.staged_rows.engine
    if staged.target.is_parquet:
        released = table(manifests[0].rows_table, "main", ATTACHED)
        write_parquet(engine, released, manifests[0].to_json(), staged.file)
        return
    library, version = macro_scripts(library_files(manifests)), rows.draft.search_input.policy.storage_version
    macro_library.install(engine, library, ATTACHED, rows.file.parent, version)
    for manifest in staged.kept_manifests:
        target = table(manifest.rows_table, "main", ATTACHED)
        with attach_temporarily(engine, staged.target.path, manifest, _EARLIER) as earlier_rows:
            staged.refuse_replaced_file()
            types = [(column.name, column.type) for column in manifest.columns]
            engine.execute(create_table_with_columns(target.copy(), types))
            engine.execute(exp.Insert(this=target, expression=select_star(earlier_rows)))
    with engine.transaction():  # each statement would be flushed otherwise
        engine.script(read_sql_file("manifest.sql"))
        for manifest in manifests:
            row = manifest.row()
            engine.execute(insert_rows(table("manifest", "sqlanon"), row), list(row.values()))
        write_metadata(engine, manifests, staged.range_kinds, suppressed, ATTACHED)


def write_rows(draft: Draft, query: exp.Select, file: Path, table_name: str, with_levels: bool = False) -> None:
    """Write recoded rows, and the levels of their labels, to a fresh file in the order of the query."""
    engine, target = draft.run.engine, table(table_name, "main", STAGED)
    attach_new(engine, file, draft.search_input.policy.storage_version)
    try:
        file.chmod(0o600)
        _create_released_table(engine, draft, target)
        # Keep the order of the query's joins, which stream the sorted rows past tables of labels. The optimizer does
        # not know the number of sorted rows: it could hash them, and return them in the order of labels.
        with engine.without_optimizers("join_order", "build_side_probe_side"):
            engine.execute(exp.Insert(this=target.copy(), expression=query))
        if with_levels:
            levels = table(LEVELS, "sqlanon", STAGED)
            engine.execute(create_schema("sqlanon", STAGED))
            engine.execute(create_table_with_columns(levels.copy(), LEVELS_COLUMNS.items()))
            engine.execute(exp.Insert(this=levels, expression=draft.label_levels(target)))
    except duckdb.OutOfMemoryException as error:
        raise ReleaseError("the release needs more memory: raise memory_limit") from error
    except duckdb.Error as error:
        raise ReleaseError(
            f"the release cannot be written: {describe_engine_error(error)}; if the source has changed since, "
            "run it again"
        ) from error
    finally:
        engine.detach(STAGED)


def refuse_unsupported(policy: Policy, source: Source) -> None:
    """Refuse unchanged columns that the policy's file cannot hold, before the search.

    The types of generalized columns are not known yet.
    """
    path = None if policy.release is None else policy.release.database or policy.release.file
    if path is None:
        return
    unchanged = {
        name.lower()
        for name in (*policy.attributes_with_role("sensitive"), *policy.attributes_with_role("insensitive"))
    }
    types = {
        name: type_ for name, type_ in source.columns.items() if name.lower() in unchanged and type_ != UNKNOWN_TYPE
    }
    refuse_types(types, None if path.suffix.lower() == ".parquet" else policy.storage_version)


def released_name(policy: Policy) -> str:
    if policy.release is not None:
        return policy.release.name
    name = policy.source.table or "release"
    return table_parts(name)[-1] if table_parts(name) else name


def _read_replaceable_manifests(path: Path, table_name: str, limits: Limits) -> tuple[Manifest, ...]:
    """Read the manifests of the file to replace, the newest first; refuse any file but a release of the same table."""
    if not path.parent.is_dir():
        raise ReleaseError(f"folder {path.parent} does not exist: create it first")
    if path.with_name(path.name + ".wal").exists():
        raise ReleaseError(
            f"{path} has uncommitted changes next to it ({path.name}.wal): open and close it, or remove both"
        )
    if not path.exists():
        return ()
    try:
        with open_release(path, limits) as release:
            manifests, additions = release.manifests, set[str]()
            if release.is_database:
                additions = list_objects(release.engine) - expected_objects(manifests)
            existing_name = release.manifest.table_name
    except ReleaseError as error:
        reason = "exists and is not a release of sqlanon"
        if isinstance(error.__cause__, duckdb.IOException) and "lock" in str(error.__cause__):
            reason = "is being written to by another process"
        raise ReleaseError(f"{path} {reason}: choose another name, or remove it") from error
    if additions:
        raise ReleaseError(
            f"the release {path} has additions: {', '.join(sorted(additions))}; choose another name, or remove it"
        )
    if existing_name != table_name:
        raise ReleaseError(
            f"{path} holds a release of table {existing_name!r}, not of {table_name!r}: "
            "choose another name, or remove it"
        )
    return manifests


def identify_file(path: Path) -> tuple[int, ...] | None:
    """Identity of the file at this path, or None."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def swap_in(staged: Path, path: Path) -> None:
    _copy_permissions(staged, path)
    staged.replace(path)
    with suppress(OSError):  # not every system can flush a folder, and the file is in place
        _flush(path.parent)


def _copy_permissions(staged: Path, path: Path) -> None:
    """Give a file the mode, owner and group of the file that it replaces, or the mode of new files.

    If the group cannot be changed, the group of the staged file gets the permissions of others.
    """
    try:
        replaced = path.stat()
    except FileNotFoundError:
        staged.chmod(new_file_mode())
        return
    mode, status = replaced.st_mode & 0o777, staged.stat()
    if (status.st_uid, status.st_gid) != (replaced.st_uid, replaced.st_gid):
        for owner in (replaced.st_uid, -1):
            with suppress(OSError):
                os.chown(staged, owner, replaced.st_gid)
                break
        else:
            mode = (mode & ~0o070) | ((mode & 0o007) << 3)
    staged.chmod(mode)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
