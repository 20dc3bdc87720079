"""Writing a release: into a fresh file in a private directory, audited there, then swapped in by a rename.

A reader that holds the old file keeps it; a run that dies leaves the old one as it was. The file that is published
never held a private value: it is written once, from the recoded rows, by an engine that then lets go of it.
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

from sqlanon.audit.check import check_sha256, file_sha256
from sqlanon.audit.parquet import KEY
from sqlanon.audit.verify import verify_file, verify_release
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.errors import DiskError, OvertakenError, ReleaseError
from sqlanon.hierarchies.bounds import RangeKind
from sqlanon.policy import STORAGE_VERSION, Policy, database_path_flaw, is_same_file, release_file_flaw, table_parts
from sqlanon.release import macro_library
from sqlanon.release.contents import ATTACHED, expected_objects, library_files, list_objects
from sqlanon.release.label_levels import LEVELS, LEVELS_COLUMNS
from sqlanon.release.manifest import Facts, Manifest, version_name
from sqlanon.release.metadata import SuppressedRows, present, refuse_name
from sqlanon.release.published import Release
from sqlanon.release.reader import (
    SUBJECT,
    CachedQueries,
    OpenRelease,
    attach_temporarily,
    open_release,
    read_manifest,
    read_manifests,
)
from sqlanon.release.targets.base import Draft, Reach, ReleaseTarget, Verification, refuse_draft_over
from sqlanon.release.targets.file.digest import MANY, approximate_counts, digest_by_value, hashed_by_value, repeats
from sqlanon.requirements.macros import call_digest, call_k_anonymity
from sqlanon.sources import UNKNOWN_TYPE, Source
from sqlanon.sources.relation import describe_engine_error
from sqlanon.support.expressions import (
    cast,
    column_definitions,
    create_schema,
    create_temporary_view,
    drop_table,
    ident,
    insert_rows,
    named,
    read_parquet,
    star,
    subquery,
    table,
    text,
)
from sqlanon.support.names import STAGED, VERIFIED
from sqlanon.support.resources import PLAIN, macro_scripts, sql_text
from sqlanon.support.workdir import (
    BusyError,
    alone_at,
    disk_problem,
    mode_of_new_files,
    private_directory,
    spill_directory,
)

_USUAL = frozenset(
    {"BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "VARCHAR", "DATE", "TIMESTAMP", "BLOB"}
)
"""Types that every file holds."""
_DECIMAL = re.compile(r"DECIMAL\(\d+,\d+\)")
_ROUNDED = frozenset({"TIME WITH TIME ZONE", "INTERVAL"})
"""Types that Parquet has, without all of their values: it knows no offset of a time, and of an interval neither
microseconds nor what is negative."""
_NESTED = ("list", "array", "struct", "tuple", "map", "union")


def refuse_types(types: Mapping[str, str], storage_version: str | None) -> None:
    """Refuse what a DuckDB file of this version, or without one a Parquet file, does not hold unchanged."""
    is_parquet = storage_version is None
    rare = {name: type_ for name, type_ in types.items() if type_ not in _USUAL and not _DECIMAL.fullmatch(type_)}
    if not rare and storage_version in (None, STORAGE_VERSION):
        return
    with (
        spill_directory() as directory,
        closing(DuckDBEngine.private(directory)) as engine,
    ):
        if storage_version is not None:
            attach_new(engine, directory / "probe.duckdb", storage_version)
        path = directory / "probe.parquet" if is_parquet else None
        lost = [f"{name!r} ({type_})" for name, type_ in rare.items() if not _comes_back(engine, type_, path)]
    if lost and is_parquet:
        raise ReleaseError(
            f"Parquet cannot hold the types of {', '.join(lost)} unchanged: "
            "convert them in the files, or with a source query of a database, "
            "or publish to a DuckDB file"
        )
    if lost:
        raise ReleaseError(
            f"a release file cannot hold the types of {', '.join(lost)}: "
            "convert them in the files, or with a source query of a database"
        )


def attach_new(engine: DuckDBEngine, file: Path, storage_version: str) -> None:
    """Attach a new DuckDB file of a storage version, as `STAGED`."""
    try:
        engine.attach(file, STAGED, read_write=True, storage_version=storage_version)
    except duckdb.InvalidInputException as error:
        raise ReleaseError(
            f"release.storage_version: DuckDB {engine.version} does not know {storage_version!r}; leave it out, "
            "or give the version of the oldest DuckDB that reads the release"
        ) from error


def _comes_back(engine: DuckDBEngine, type_: str, path: Path | None) -> bool:
    """Whether a Parquet file gives all values of a type back as they were; without a path, a DuckDB file."""
    if path is None:
        return _is_held(engine, table("probe", "main", STAGED), type_)
    nothing = exp.Select(expressions=[named(cast(exp.null(), type_), "probe")]).limit(0, copy=False)
    own = engine.types(subquery(nothing.copy(), "p"))["probe"]
    try:
        engine.execute(_as_parquet(nothing, path))
    except duckdb.Error:
        return False
    return engine.columns(read_parquet([str(path)])) == {"probe": str(own)} and not _ROUNDED & set(_scalars(own))


def _scalars(type_: DuckDBPyType) -> Iterator[str]:
    inner = [] if type_.id not in _NESTED else [one for _, one in type_.children if isinstance(one, DuckDBPyType)]
    if not inner:
        yield str(type_)
    for one in inner:
        yield from _scalars(one)


def create_released(engine: DuckDBEngine, draft: Draft, target: exp.Table) -> None:
    columns, repeating = [(column.name, column.type) for column in draft.columns()], draft.repeating_columns()
    # What DuckDB would find out for itself: with the format of old files, that takes a tenth of the time of writing.
    chosen = repeating if _older(draft.search_input.policy.storage_version, (1, 3)) else ()
    compressed = [
        (name, f"{type_} USING COMPRESSION dictionary" if name in chosen else type_) for name, type_ in columns
    ]
    try:
        engine.execute(column_definitions(target, compressed))
    except duckdb.Error as error:
        names = ", ".join(f"{name!r} ({type_})" for name, type_ in columns if not _is_held(engine, target, type_))
        raise ReleaseError(
            f"a release file cannot hold the types of {names or 'these columns'}: "
            "convert them in the files, or with a source query of a database"
        ) from error


def _older(version: str, other: tuple[int, int]) -> bool:
    """
    >>> _older("v1.2.0", (1, 3)), _older("v1.10.0", (1, 3))
    (True, False)
    """
    major, minor, _ = version[1:].split(".")
    return (int(major), int(minor)) < other


def _is_held(engine: DuckDBEngine, target: exp.Table, type_: str) -> bool:
    try:
        engine.execute(column_definitions(target.copy(), [("probe", type_)]))
    except duckdb.Error:
        return False
    engine.execute(drop_table(target.copy()))
    return True


def to_parquet(engine: DuckDBEngine, manifest: Manifest, target: Path) -> Path:
    rows = table(manifest.rows_table, "main", ATTACHED)
    metadata = exp.Struct(expressions=[exp.PropertyEQ(this=ident(KEY), expression=text(manifest.to_json()))])
    engine.execute(
        _as_parquet(star(rows), target, exp.CopyParameter(this=exp.Var(this="KV_METADATA"), expression=metadata))
    )
    target.chmod(0o600)
    return target


def _as_parquet(query: exp.Query, target: Path, *more: exp.CopyParameter) -> exp.Copy:
    """``COPY (query) TO target``."""
    parquet = exp.CopyParameter(this=exp.Var(this="FORMAT"), expression=exp.Var(this="PARQUET"))
    return exp.Copy(this=exp.Subquery(this=query), kind=False, files=[text(str(target))], params=[parquet, *more])


STAGED_FILE = "release.duckdb"
BEFORE = "release_before"


@dataclass(frozen=True)
class FileTarget:
    """A release in a file of its own: a DuckDB database, with the newest of the versions before, or a Parquet file."""

    path: Path
    table_name: str
    keep: int = 1

    @property
    def is_parquet(self) -> bool:
        return self.path.suffix.lower() == ".parquet"

    @contextmanager
    def stage(self, draft: Draft) -> Iterator[StagedFile]:
        path = self.path
        if wrong := database_path_flaw(path):  # rows go through a database beside a Parquet file, too
            raise ReleaseError(f"{path} {wrong}")
        if self.is_parquet:
            refuse_types({column.name: column.type for column in draft.columns()}, None)
        there = _file_identity(path)
        before = _refuse_to_destroy(path, self.table_name, draft.run.engine.limits)
        version = None if self.is_parquet else 1 + max((one.version or 0 for one in before), default=0)
        name = self.table_name if version is None else version_name(self.table_name, version)
        if draft.is_draft:
            refuse_draft_over(before, path)
        kept = () if self.is_parquet else [one for one in before if not one.draft][: self.keep - 1]
        try:
            with private_directory(path.parent, f".{path.name}.sqlanon-") as directory:
                with draft.rows() as query:
                    write_rows(draft, query, directory / STAGED_FILE, name, with_levels=not self.is_parquet)
                with StagedRows.opened(draft, directory / STAGED_FILE, name) as rows:
                    yield StagedFile(self, rows, draft.ranges, version, kept, there)
        except BusyError as error:
            raise ReleaseError(f"another run is publishing to {path}: try again later") from error
        except (OSError, DiskError) as error:
            reason = str(error) if isinstance(error, DiskError) else disk_problem(error) or error.strerror or error
            state = "nothing was published" if there is None else "the existing release is unchanged"
            raise ReleaseError(f"{path} cannot be written: {reason}; {state}") from error

    def facts(self, staged: StagedFile) -> Facts:
        return staged.staged.counted(staged.version)

    def commit(self, staged: StagedFile, manifest: Manifest) -> Release:
        _swap_in(staged.file, self.path)
        return Release(self.path, self.table_name, manifest, staged.staged.draft.run.engine.limits, staged.sha256)


def target_for(draft: Draft, place: str | Path | None, table_name: str | None) -> ReleaseTarget[StagedFile, Release]:
    section, catalog = draft.search_input.policy.release, draft.search_input.policy.catalog
    chosen = place or (None if section is None else section.database or section.file)
    if chosen is None:
        raise ReleaseError('no place is given: publish("release.duckdb"), or [release] database = ... in the policy')
    path = Path(os.path.realpath(chosen))  # a link stays a link
    if wrong := release_file_flaw(Path(chosen)):
        raise ReleaseError(f"{chosen} {wrong}")
    private = [*draft.search_input.source.files, *draft.run.engine.files()]
    if catalog is not None:
        private.append(catalog.database)
    if any(is_same_file(path, file) for file in private):
        raise ReleaseError(f"{path} is the source, or the catalog: a release needs a file of its own")
    return FileTarget(path, table_name or released_name(draft.search_input.policy), draft.retained_versions)


def release_location(place: str | os.PathLike[str], table_name: str | None) -> FileLocation:
    if table_name is not None:
        raise ReleaseError("a Parquet file needs no table name: leave it out")
    return FileLocation(Path(place).absolute())


def recorded_location(path: Path, table_name: str, reach: Reach) -> FileLocation:
    return FileLocation(path)


@dataclass(frozen=True)
class FileLocation:
    path: Path

    def verify(self, limits: Limits = NO_LIMITS, sha256: str | None = None) -> Verification:
        return verify_file(self.path, limits=limits, sha256=sha256, with_risk=True)

    def read_manifests(self, limits: Limits) -> Sequence[Manifest] | None:
        if not self.path.exists():
            return () if self.path.parent.is_dir() else None  # a folder may come back
        with open_release(self.path, limits) as release:
            return release.manifests

    @contextmanager
    def rows(self, engine: DuckDBEngine, manifest: Manifest) -> Iterator[exp.Table]:
        read_manifest(self.path, engine.limits, manifest.version)
        with attach_temporarily(engine, self.path, manifest, VERIFIED) as relation:
            yield relation

    @contextmanager
    def open_verified(self, limits: Limits, sha256: str | None = None) -> Iterator[VerifiedFile]:
        yield VerifiedFile(self, self.verify(limits, sha256))

    @contextmanager
    def open_version(
        self, limits: Limits, version: int | None, sha256: str | None, trusted: bool
    ) -> Iterator[OpenedFile]:
        """A version in the file. As it was written, it is as it was audited then."""
        path = self.path
        identity = _file_identity(path)
        is_same = sha256 is not None and path.is_file() and bool(check_sha256(path, sha256).passed)
        is_changed = sha256 is not None and not is_same
        if trusted or is_same:
            manifest = read_manifest(path, limits, version)
            yield OpenedFile(path, manifest, manifest.digest, (), is_changed, identity)
            return
        found = verify_file(path, limits=limits, version=version)
        yield OpenedFile(path, found.manifest, found.digest, found.failures, is_changed, identity)


@dataclass(frozen=True)
class VerifiedFile:
    """A file that was verified; each use opens it again, and checks its catalog or layout."""

    place: FileLocation
    verification: Verification

    def rows(self, engine: DuckDBEngine, manifest: Manifest) -> AbstractContextManager[exp.Table]:
        return self.place.rows(engine, manifest)

    def sha256(self) -> str:
        return file_sha256(self.place.path)


@dataclass(frozen=True)
class OpenedFile:
    path: Path
    manifest: Manifest
    digest: str
    failures: tuple[str, ...]
    is_changed: bool
    identity: tuple[int, ...] | None  # of the file that was verified

    @contextmanager
    def rows(self, engine: DuckDBEngine, alias: str) -> Iterator[exp.Table]:
        with attach_temporarily(engine, self.path, self.manifest, alias) as relation:
            if _file_identity(self.path) != self.identity:
                raise ReleaseError(f"{self.path} was replaced while it was read: try again")
            yield relation


@dataclass(frozen=True)
class StagedRows:
    """The rows of a release in a private file, and an engine that has seen nothing else; it remembers its answers."""

    draft: Draft
    file: Path
    table_name: str
    engine: DuckDBEngine
    queries: CachedQueries

    @classmethod
    @contextmanager
    def opened(cls, draft: Draft, file: Path, table_name: str) -> Iterator[StagedRows]:
        spill = file.with_name("spill")
        spill.mkdir(mode=0o700)
        with closing(DuckDBEngine.private(spill, draft.run.engine.limits)) as engine:
            engine.script(*macro_scripts(PLAIN))
            yield cls(draft, file, table_name, engine, CachedQueries(engine))

    def counted(self, version: int | None) -> Facts:
        self.engine.attach(self.file, ATTACHED, read_only=True)
        rows = table(self.table_name, "main", ATTACHED)
        self.engine.execute(create_temporary_view(SUBJECT.copy(), star(rows)))
        smallest, classes, count, _ = self.queries.rows(call_k_anonymity(SUBJECT.name, self.draft.quasi_identifiers))[0]
        # Verifying a Parquet file reuses this answer, so here the macro is asked.
        digest = self.queries.rows(call_digest(SUBJECT.name))[0][1] if version is None else self._digest(rows, count)
        self.engine.detach(ATTACHED)
        return Facts(count, classes, smallest or 0, digest, version)

    def _digest(self, rows: exp.Table, count: int) -> str:
        types = self.engine.columns(rows)
        names = hashed_by_value(types) if count >= MANY else []
        values = self.engine.rows(approximate_counts(rows, names))[0] if names else ()
        repeating = [name for name, many in zip(names, values, strict=True) if repeats(many, count)]
        query = digest_by_value(rows, types, repeating) if repeating else call_digest(SUBJECT.name)
        return str(self.engine.rows(query)[0][-1])

    def verified(self, path: Path, manifest: Manifest) -> Verification:
        self.engine.attach(self.file, ATTACHED, read_only=True)
        release = OpenRelease(self.engine, self.queries, manifest, is_parquet=True, manifests=(manifest,))
        verification = verify_release(path, release, fresh=False)
        self.engine.detach(ATTACHED)
        return verification

    @contextmanager
    def beside_source(self) -> Iterator[exp.Table]:
        self.draft.run.engine.attach(self.file, STAGED, read_only=True)
        try:
            yield table(self.table_name, "main", STAGED)
        finally:
            self.draft.run.engine.detach(STAGED)


@dataclass
class StagedFile:
    """A release in a private directory: its rows, the versions of the file in its place that are kept, and what that
    file was."""

    target: FileTarget
    staged: StagedRows
    ranges: Mapping[str, RangeKind]
    version: int | None
    kept_manifests: Sequence[Manifest]
    there: tuple[int, ...] | None
    sha256: str | None = None

    @property
    def file(self) -> Path:
        return self.staged.file.with_name("release.parquet") if self.target.is_parquet else self.staged.file

    def rows(self) -> AbstractContextManager[exp.Table]:
        return self.staged.beside_source()

    def complete(self, manifest: Manifest, suppressed: SuppressedRows) -> Verification:
        if not self.target.is_parquet:
            refuse_name(manifest)
        verification = _audit(self, manifest, suppressed)
        _flush(self.file)
        self.sha256 = file_sha256(self.file)
        return verification

    @contextmanager
    def lock(self) -> Iterator[None]:
        with alone_at(self.target.path):
            if _file_identity(self.target.path) != self.there:  # the versions in it were those before
                raise OvertakenError(f"another run has just published to {self.target.path}: try again")
            yield


def write_rows(draft: Draft, query: exp.Select, file: Path, table_name: str, with_levels: bool = False) -> None:
    """Write recoded rows to a fresh file, in the order of the query, with the types spelled out; with the levels of
    their labels, if they are to be there."""
    engine, target = draft.run.engine, table(table_name, "main", STAGED)
    attach_new(engine, file, draft.search_input.policy.storage_version)
    try:
        file.chmod(0o600)
        create_released(engine, draft, target)
        # Joined as it is written, the sorted rows stream past tables of labels. The optimizer knows little of how many
        # rows come out of a sort: it may hold them all in a hash table, and give them in the order of the labels.
        with engine.setting("disabled_optimizers", "join_order,build_side_probe_side"):
            engine.execute(exp.Insert(this=target.copy(), expression=query))
        if with_levels:
            engine.execute(create_schema("sqlanon", STAGED))
            engine.execute(column_definitions(table(LEVELS, "sqlanon", STAGED), LEVELS_COLUMNS.items()))
            levels = draft.label_levels(target)
            engine.execute(exp.Insert(this=table(LEVELS, "sqlanon", STAGED), expression=levels))
    except duckdb.OutOfMemoryException as error:
        raise ReleaseError("the release needs more memory: raise memory_limit") from error
    except duckdb.Error as error:
        raise ReleaseError(
            f"the release cannot be written: {describe_engine_error(error)}; if the source has changed meanwhile, "
            "run it again"
        ) from error
    finally:
        engine.detach(STAGED)


def refuse_types_of(policy: Policy, source: Source) -> None:
    """Refuse columns that are released as they are, and that the policy's file cannot hold: before anything is
    searched. What quasi-identifiers are released as is known later.
    """
    section = policy.release
    path = None if section is None else section.database or section.file
    if path is None:
        return
    released = {
        name.lower()
        for name in (*policy.attributes_with_role("sensitive"), *policy.attributes_with_role("insensitive"))
    }
    types = {
        name: type_ for name, type_ in source.columns.items() if name.lower() in released and type_ != UNKNOWN_TYPE
    }
    refuse_types(types, None if path.suffix.lower() == ".parquet" else policy.storage_version)


def released_name(policy: Policy) -> str:
    if (section := policy.release) is not None:
        return section.name
    name = policy.source.table or "release"
    return table_parts(name)[-1] if table_parts(name) else name


def _refuse_to_destroy(path: Path, table_name: str, limits: Limits) -> tuple[Manifest, ...]:
    """Replace nothing but an older release of the same table: the manifests of its versions, the newest first."""
    if not path.parent.is_dir():
        raise ReleaseError(f"there is no folder {path.parent}: create it first")
    if path.with_name(path.name + ".wal").exists():
        raise ReleaseError(
            f"{path} has uncommitted changes beside it ({path.name}.wal): open and close it, or remove both"
        )
    if not path.exists():
        return ()
    try:
        with open_release(path, limits) as release:
            existing, before = release.manifest, release.manifests
            more = set() if release.is_parquet else list_objects(release.engine) - expected_objects(before)
    except ReleaseError as error:
        reason = "exists and is not a release of sqlanon"
        if isinstance(error.__cause__, duckdb.IOException) and "lock" in str(error.__cause__):
            reason = "is being written to by another process"
        raise ReleaseError(f"{path} {reason}: choose another name, or remove it") from error
    if more:
        raise ReleaseError(
            f"the release {path} has additions: {', '.join(sorted(more))}; choose another name, or remove it"
        )
    if existing.table_name != table_name:
        raise ReleaseError(
            f"{path} holds a release of table {existing.table_name!r}, not of {table_name!r}: "
            "choose another name, or remove it"
        )
    return before


def _audit(staged: StagedFile, manifest: Manifest, suppressed: SuppressedRows) -> Verification:
    """Put the manifest in the file, and what tells about its rows, and check all of it. The rows, which were counted
    for the manifest, are not counted a second time."""
    rows, is_parquet = staged.staged, staged.target.is_parquet
    engine = rows.engine
    engine.attach(rows.file, ATTACHED, read_write=True)
    with engine.using(ATTACHED):
        if not is_parquet:
            version = rows.draft.search_input.policy.storage_version
            library = macro_scripts(library_files((manifest, *staged.kept_manifests)))
            macro_library.install(engine, library, ATTACHED, rows.file.parent, version)
        _write_manifest(engine, staged, (manifest, *_keep(engine, staged)), suppressed)
        if not is_parquet:
            found = read_manifests(engine)
            release = OpenRelease(engine, rows.queries, found[0], is_parquet, tuple(found))
            verification = verify_release(staged.file, release, fresh=True)
            engine.script(f"CHECKPOINT {ATTACHED}")  # to detach is not enough: it is silent where the disk is full
    engine.detach(ATTACHED)
    return verify_file(staged.file, fresh=True, limits=engine.limits) if is_parquet else verification


def _keep(engine: DuckDBEngine, staged: StagedFile) -> Sequence[Manifest]:
    """Copy the rows of earlier versions to the file that is in use; their manifests."""
    for one in staged.kept_manifests:
        target = table(one.rows_table, "main", ATTACHED)
        with attach_temporarily(engine, staged.target.path, one, BEFORE) as before:
            if _file_identity(staged.target.path) != staged.there:
                raise OvertakenError(f"another run has just published to {staged.target.path}: try again")
            engine.execute(column_definitions(target.copy(), [(column.name, column.type) for column in one.columns]))
            engine.execute(exp.Insert(this=target, expression=star(before)))
    return staged.kept_manifests


def _write_manifest(
    engine: DuckDBEngine, staged: StagedFile, manifests: Sequence[Manifest], suppressed: SuppressedRows
) -> None:
    """Add the manifests to the file that is in use, and what tells about its rows; or copy the rows to a Parquet file
    that has the manifest."""
    if staged.target.is_parquet:
        to_parquet(engine, manifests[0], staged.file)
        return
    with engine.transaction():  # else each statement would be written for itself
        engine.script(sql_text("manifest.sql"))
        for manifest in manifests:
            row = manifest.row()
            engine.execute(insert_rows(table("manifest", "sqlanon"), row), list(row.values()))
        present(engine, manifests, staged.ranges, suppressed, ATTACHED)


def _file_identity(path: Path) -> tuple[int, ...] | None:
    """Tells one file at a place from another; None where there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _swap_in(staged: Path, path: Path) -> None:
    _give_mode(staged, path)
    staged.replace(path)
    with suppress(OSError):  # not every system can, and it is in its place
        _flush(path.parent)


def _give_mode(staged: Path, path: Path) -> None:
    """The mode, the owner and the group of the release that is replaced; else those of any new file. Where it cannot be
    given to that group, its own group may do what everybody may."""
    try:
        old = path.stat()
    except FileNotFoundError:
        staged.chmod(mode_of_new_files())
        return
    mode, new = old.st_mode & 0o777, staged.stat()
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        for owner in (old.st_uid, -1):
            with suppress(OSError):
                os.chown(staged, owner, old.st_gid)
                break
        else:
            mode = (mode & ~0o070) | ((mode & 0o007) << 3)
    staged.chmod(mode)


def _flush(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
