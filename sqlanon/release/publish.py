"""Writing a release: into a fresh file in a private directory, audited there, then swapped in by a rename.

A reader that holds the old file keeps it; a run that dies leaves the old one as it was. The file that is published
never held a private value: it is written once, from the recoded rows, by an engine that then lets go of it.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

import duckdb
from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.limits import Limits
from sqlanon.errors import AuditError, ReleaseError
from sqlanon.queries.macros import digest_of, k_anonymity_of
from sqlanon.queries.names import (
    column_definitions,
    create_temporary_view,
    drop_table,
    ident,
    insert_row,
    star,
    table,
    text,
)
from sqlanon.release.check import Check
from sqlanon.release.contents import STORAGE_VERSION, expected_objects, found_objects
from sqlanon.release.manifest import Manifest, ReleasedColumn
from sqlanon.release.once import Once
from sqlanon.release.reader import ATTACHED, KEY, SUBJECT, OpenRelease, open_release, read_manifest
from sqlanon.release.verify import Verification, verify_file, verify_release
from sqlanon.resources import macros, sql_text
from sqlanon.workdir import private_directory

STAGED = "sqlanon_staged"
_NOT_IN_PARQUET = frozenset(
    {"HUGEINT", "UHUGEINT", "BIGNUM", "BIT", "TIMESTAMP_S", "TIMESTAMP_MS", "TIME WITH TIME ZONE", "TIME_NS"}
)
_ARRAY = re.compile(r"\[\d+\]")


@dataclass(frozen=True)
class Content:
    """What is to be released.

    Attributes
    ----------
    query:
        The recode statement.
    columns:
        Its columns, in order, with types and roles.
    quasi:
        Those that make the classes.
    rows, classes, smallest_class:
        How many rows it must give, in how many classes, and the rows of the smallest.
    masked_rows:
        How many of them are masked: they may be a class of their own.
    manifest:
        Makes the manifest from what was written: rows, classes, smallest class, digest.
    repeating:
        Columns of text that has few values.
    audit:
        Checks with the source what a release alone cannot show; it is given the released rows. None
        where there is nothing of the kind.
    recording:
        What is written elsewhere of the release: for good once it is in its place, and not at all if it does not get
        there.
    """

    query: exp.Select
    columns: tuple[ReleasedColumn, ...]
    quasi: Sequence[str]
    rows: int
    classes: int
    smallest_class: int
    masked_rows: int
    manifest: Callable[[int, int, int, str], Manifest]
    repeating: Collection[str] = ()
    audit: Callable[[exp.Table], Sequence[Check]] | None = None
    recording: Callable[[Manifest], AbstractContextManager[None]] = lambda manifest: nullcontext()


def publish(engine: DuckDBEngine, content: Content, path: Path, table_name: str) -> Verification:
    """Write a release, audit it, and put it in its place.

    Parameters
    ----------
    engine:
        Runs the recode statement.
    content:
        What is to be released.
    path:
        A ``.parquet`` file, or a DuckDB file by any other name. A release that is there already is replaced.
    table_name:
        The table in a DuckDB file.

    Raises
    ------
    ReleaseError
        The place cannot be written, or holds something that is no release of this table.
    AuditError
        The audit refused the release; what was there before still is.
    """
    is_parquet = path.suffix.lower() == ".parquet"
    if is_parquet:
        _refuse_types(content)
    _refuse_to_destroy(path, table_name, engine.limits)
    try:
        with private_directory(path.parent, f".{path.name}.sqlanon-") as directory:
            verification = audited(engine, content, directory, table_name, is_parquet)
            with content.recording(verification.manifest):
                _swap_in(verification.path, path, directory)
    except OSError as error:
        raise ReleaseError(f"{path} cannot be written: {error.strerror or error}") from error
    return replace(verification, path=path)


def audited(engine: DuckDBEngine, content: Content, directory: Path, table_name: str, is_parquet: bool) -> Verification:
    """Write a release to a private directory, and hold it against all that is known.

    Raises
    ------
    ReleaseError
        It cannot be written.
    AuditError
        The audit refused it.
    """
    staged = directory / "release.duckdb"
    _write_rows(engine, content, staged, table_name)
    checks = _with_source(engine, content, staged, table_name)
    manifest, verification = _audit(content, staged, table_name, is_parquet, engine.limits)
    verification = _with_checks(verification, checks)
    failures = [*verification.failures, *_against_the_run(verification.manifest, manifest, content)]
    if failures:
        raise AuditError(failures)
    return verification


def _refuse_to_destroy(path: Path, table_name: str, limits: Limits) -> None:
    """Replace nothing but an older release of the same table."""
    if not path.parent.is_dir():
        raise ReleaseError(f"{path.parent} is no directory: make it first")
    if path.with_name(path.name + ".wal").exists():
        raise ReleaseError(
            f"{path} has unfinished writes beside it ({path.name}.wal): open and close it, or remove both"
        )
    if not path.exists():
        return
    try:
        with open_release(path, limits) as release:
            existing = release.manifest
            more = set() if release.is_parquet else found_objects(release.engine) - expected_objects(existing)
    except ReleaseError as error:
        reason = "exists and is no release of sqlanon"
        if isinstance(error.__cause__, duckdb.IOException) and "lock" in str(error.__cause__):
            reason = "is being written to by another process"
        raise ReleaseError(f"{path} {reason}: choose another name, or remove it") from error
    if more:
        raise ReleaseError(
            f"somebody added to the release {path}: {', '.join(sorted(more))}; choose another name, or remove it"
        )
    if existing.table_name != table_name:
        raise ReleaseError(
            f"{path} holds a release of table {existing.table_name!r}, not of {table_name!r}: "
            "choose another name, or remove it"
        )


def _write_rows(engine: DuckDBEngine, content: Content, staged: Path, table_name: str) -> None:
    """Write the recoded rows to a fresh file, in random order, with the types spelled out."""
    target = table(table_name, "main", STAGED)
    engine.attach(staged, STAGED, read_write=True, storage_version=STORAGE_VERSION)
    try:
        staged.chmod(0o600)
        _create_table(engine, content, target)
        # Joined as it is written, the sorted rows stream past tables of labels. The optimizer knows little of how many
        # rows come out of a sort: it may hold them all in a hash table, and give them in the order of the labels.
        with engine.setting("disabled_optimizers", "join_order,build_side_probe_side"):
            engine.execute(exp.Insert(this=target.copy(), expression=content.query))
    except duckdb.OutOfMemoryException as error:
        raise ReleaseError(
            "the release cannot be written: it needs more memory: allow more with memory_limit"
        ) from error
    except duckdb.Error as error:
        raise ReleaseError(
            f"the release cannot be written: {type(error).__name__}; has the source changed since it was read?"
        ) from error
    finally:
        engine.detach(STAGED)


def _refuse_types(content: Content) -> None:
    """Some types have no equal in Parquet: they would come back as others."""
    lost = [
        f"{column.name!r} ({column.type})"
        for column in content.columns
        if column.type in _NOT_IN_PARQUET or _ARRAY.search(column.type)
    ]
    if lost:
        raise ReleaseError(
            f"Parquet cannot hold the types of {', '.join(lost)} as they are: cast them in a source query, "
            "or publish to a DuckDB file"
        )


def _create_table(engine: DuckDBEngine, content: Content, target: exp.Table) -> None:
    columns = [(column.name, column.type) for column in content.columns]
    # What DuckDB would find out for itself: looking for something better takes a tenth of the time of writing.
    compressed = [
        (name, f"{type_} USING COMPRESSION dictionary" if name in content.repeating else type_)
        for name, type_ in columns
    ]
    try:
        engine.execute(column_definitions(target, compressed))
    except duckdb.Error as error:
        names = ", ".join(f"{name!r} ({type_})" for name, type_ in columns if not _is_held(engine, target, type_))
        raise ReleaseError(
            f"a release file cannot hold the types of {names or 'these columns'}: cast them in a source query"
        ) from error


def _is_held(engine: DuckDBEngine, target: exp.Table, type_: str) -> bool:
    try:
        engine.execute(column_definitions(target.copy(), [("probe", type_)]))
    except duckdb.Error:
        return False
    engine.execute(drop_table(target.copy()))
    return True


def _audit(
    content: Content, staged: Path, table_name: str, is_parquet: bool, limits: Limits
) -> tuple[Manifest, Verification]:
    """Count what is in the file, by an engine that has seen nothing else; add the manifest; check it all.

    The answers that are put into the manifest are remembered: the rows are not counted a second time.
    """
    spill = staged.with_name("spill")
    spill.mkdir(mode=0o700)
    with closing(DuckDBEngine.private(spill, limits)) as engine:
        engine.attach(staged, ATTACHED, read_write=True)
        with engine.using(ATTACHED):
            engine.script(macros())
            rows, asked = table(table_name, "main", ATTACHED), Once(engine)
            engine.execute(create_temporary_view(SUBJECT.copy(), star(rows)))
            smallest, classes, count, _ = asked.rows(k_anonymity_of(SUBJECT.name, content.quasi))[0]
            digest = asked.rows(digest_of(SUBJECT.name))[0][1]
            manifest = content.manifest(count, classes, smallest or 0, digest)
            target = _write_manifest(engine, manifest, rows, staged, is_parquet)
            if not is_parquet:
                release = OpenRelease(engine, asked, read_manifest(engine), is_parquet)
                verification = verify_release(target, release, fresh=True)
                engine.script(f"CHECKPOINT {ATTACHED}")  # to detach is not enough: it is silent where the disk is full
        engine.detach(ATTACHED)
    return manifest, verify_file(target, fresh=True, limits=limits) if is_parquet else verification


def _write_manifest(engine: DuckDBEngine, manifest: Manifest, rows: exp.Table, staged: Path, is_parquet: bool) -> Path:
    """Add the manifest to the file that is in use; or copy its rows to a Parquet file that has it. The file."""
    if is_parquet:
        return _to_parquet(engine, manifest, rows, staged.with_name("release.parquet"))
    engine.script(sql_text("manifest.sql"))
    row = manifest.row()
    engine.execute(insert_row(table("manifest", "sqlanon"), row), list(row.values()))
    return staged


def _with_source(engine: DuckDBEngine, content: Content, staged: Path, table_name: str) -> Sequence[Check]:
    """Check the staged rows, by the engine that has the source."""
    if content.audit is None:
        return ()
    engine.attach(staged, STAGED, read_only=True)
    try:
        return content.audit(table(table_name, "main", STAGED))
    finally:
        engine.detach(STAGED)


def _with_checks(verification: Verification, checks: Sequence[Check]) -> Verification:
    """A verification in which what the source told stands in place of what could not be told without it."""
    told = {check.name: check for check in checks}
    alone = {check.name for check in verification.checks}
    merged = [told.get(check.name, check) for check in verification.checks]
    return replace(verification, checks=(*merged, *(check for name, check in told.items() if name not in alone)))


def _to_parquet(engine: DuckDBEngine, manifest: Manifest, rows: exp.Table, target: Path) -> Path:
    """Write the staged table as Parquet, with the manifest in the file's metadata."""
    metadata = exp.Struct(expressions=[exp.PropertyEQ(this=ident(KEY), expression=text(manifest.to_json()))])
    engine.execute(
        exp.Copy(
            this=exp.Subquery(this=star(rows)),
            kind=False,
            files=[text(str(target))],
            params=[
                exp.CopyParameter(this=exp.Var(this="FORMAT"), expression=exp.Var(this="PARQUET")),
                exp.CopyParameter(this=exp.Var(this="KV_METADATA"), expression=metadata),
            ],
        )
    )
    target.chmod(0o600)
    return target


def _against_the_run(found: Manifest, written: Manifest, content: Content) -> list[str]:
    """What the run knows and the file alone cannot show: that no row was lost or added."""
    failures = []
    if found != written:
        failures.append("the manifest in the file is not the one that was written")
    if found.released_rows != content.rows:
        failures.append(f"{found.released_rows} rows are in the release, {content.rows} should be")
    own = 1 if content.masked_rows and found.classes == content.classes + 1 else 0
    smallest = min(content.smallest_class, content.masked_rows) if own else content.smallest_class
    merged = content.masked_rows and not own  # the masked rows read like a kept class, which is larger for it
    if found.classes != content.classes + own or (found.smallest_class != smallest and not merged):
        failures.append(
            f"{found.classes} classes, the smallest of {found.smallest_class} rows, are in the release; the search "
            f"found {content.classes}, the smallest of {content.smallest_class}; has the source changed since?"
        )
    if found.columns != content.columns:
        failures.append("the columns are not those of the policy")
    return failures


def _swap_in(staged: Path, path: Path, directory: Path) -> None:
    """Give the file the mode of any new file, make sure that it is on the disk, and rename it into place."""
    probe = directory / "mode"
    probe.touch()
    shutil.copymode(probe, staged)
    with staged.open("rb") as file:
        os.fsync(file.fileno())
    staged.replace(path)


def utc_now() -> datetime:
    """The time, in UTC, as a TIMESTAMP without a zone."""
    return datetime.now(timezone.utc).replace(tzinfo=None, microsecond=0)
