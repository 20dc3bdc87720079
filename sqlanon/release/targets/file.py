"""Writing a release: into a fresh file in a private directory, audited there, then swapped in by a rename.

A reader that holds the old file keeps it; a run that dies leaves the old one as it was. The file that is published
never held a private value: it is written once, from the recoded rows, by an engine that then lets go of it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

import duckdb
from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.limits import Limits
from sqlanon.errors import AuditError, DiskError, OvertakenError, ReleaseError
from sqlanon.expressions import column_definitions, create_temporary_view, insert_row, star, table
from sqlanon.policy import why_not_written
from sqlanon.release.check import Check
from sqlanon.release.contents import expected_objects, found_objects
from sqlanon.release.file_hash import sha256_of
from sqlanon.release.manifest import Manifest
from sqlanon.release.metadata import Suppressed, present, refuse_name
from sqlanon.release.once import Once
from sqlanon.release.reader import ATTACHED, SUBJECT, OpenRelease, open_release, read_manifests
from sqlanon.release.staging import STAGED, Content, refuse_types, to_parquet, write_rows
from sqlanon.release.verify import Verification, verify_file, verify_release
from sqlanon.requirements.macros import digest_of, k_anonymity_of
from sqlanon.resources import macros, sql_text
from sqlanon.workdir import BusyError, alone_at, disk_problem, mode_of_new_files, private_directory

BEFORE = "release_before"


def publish(engine: DuckDBEngine, content: Content, path: Path, table_name: str) -> Verification:
    """Write a release, audit it, and put it in its place."""
    is_parquet = path.suffix.lower() == ".parquet"
    if wrong := why_not_written(path):  # rows go through a database beside a Parquet file, too
        raise ReleaseError(f"{path} {wrong}")
    if is_parquet:
        refuse_types({column.name: column.type for column in content.columns}, is_parquet=True)
    there = _what_is_at(path)
    before = _refuse_to_destroy(path, table_name, engine.limits)
    content = _versioned(content, is_parquet, before)
    try:
        with private_directory(path.parent, f".{path.name}.sqlanon-") as directory:
            kept = Kept(path, () if is_parquet else before[: content.keep - 1])
            verification = audited(engine, content, directory, kept, is_parquet)
            _flush(verification.path)
            sha256 = sha256_of(verification.path)
            with alone_at(path):
                if _what_is_at(path) != there:  # the versions in it were those before
                    raise OvertakenError(f"another run has published to {path} meanwhile: try again")
                with content.recording(verification.manifest, sha256):
                    _swap_in(verification.path, path)
    except BusyError as error:
        raise ReleaseError(f"another run is publishing to {path}: try again when it is done") from error
    except (OSError, DiskError) as error:
        reason = str(error) if isinstance(error, DiskError) else disk_problem(error) or error.strerror or error
        state = "nothing was published" if there is None else "the release that is there is unchanged"
        raise ReleaseError(f"{path} cannot be written: {reason}; {state}") from error
    return replace(verification, path=path, sha256=sha256)


def audited(
    engine: DuckDBEngine, content: Content, directory: Path, kept: Kept, is_parquet: bool = False
) -> Verification:
    """Write a release to a private directory, and hold it against all that is known."""
    staged = directory / "release.duckdb"
    rows = content.manifest(0, 0, 0, "").rows_table
    write_rows(engine, content, staged, rows)
    checks, suppressed = _with_source(engine, content, staged, rows)
    manifest, verification = _audit(content, staged, kept, suppressed, is_parquet, engine.limits)
    verification = with_checks(verification, checks)
    failures = [*verification.failures, *against_the_run(verification.manifest, manifest, content)]
    if failures:
        raise AuditError(failures)
    return verification


def _versioned(content: Content, is_parquet: bool, before: Sequence[Manifest]) -> Content:
    """The same, with the number of its version in the manifest, and its name looked at; Parquet has no version."""
    if is_parquet:
        return content
    content = with_version(content, (before[0].version or 1) + 1 if before else 1)
    refuse_name(content.manifest(0, 0, 0, ""))
    return content


def with_version(content: Content, version: int) -> Content:
    """The same, with the number of its version in the manifest."""

    def manifest(rows: int, classes: int, smallest: int, digest: str) -> Manifest:
        return replace(content.manifest(rows, classes, smallest, digest), version=version)

    return replace(content, manifest=manifest)


def _refuse_to_destroy(path: Path, table_name: str, limits: Limits) -> tuple[Manifest, ...]:
    """Replace nothing but an older release of the same table: the manifests of its versions, the newest first."""
    if not path.parent.is_dir():
        raise ReleaseError(f"{path.parent} is no directory: make it first")
    if path.with_name(path.name + ".wal").exists():
        raise ReleaseError(
            f"{path} has unfinished writes beside it ({path.name}.wal): open and close it, or remove both"
        )
    if not path.exists():
        return ()
    try:
        with open_release(path, limits) as release:
            existing, before = release.manifest, release.manifests
            more = set() if release.is_parquet else found_objects(release.engine) - expected_objects(before)
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
    return before


@dataclass(frozen=True)
class Kept:
    """Versions of the release that is replaced, which the new file has too: where they are, the newest first."""

    path: Path
    manifests: Sequence[Manifest]


def _audit(
    content: Content, staged: Path, kept: Kept, suppressed: Suppressed, is_parquet: bool, limits: Limits
) -> tuple[Manifest, Verification]:
    """Count what is in the file, by an engine that has seen nothing else; add what tells about it; check it all.

    The answers that are put into the manifest are remembered: the rows are not counted a second time.
    """
    spill = staged.with_name("spill")
    spill.mkdir(mode=0o700)
    with closing(DuckDBEngine.private(spill, limits)) as engine:
        engine.attach(staged, ATTACHED, read_write=True)
        with engine.using(ATTACHED):
            engine.script(macros())
            rows, asked = table(content.manifest(0, 0, 0, "").rows_table, "main", ATTACHED), Once(engine)
            engine.execute(create_temporary_view(SUBJECT.copy(), star(rows)))
            smallest, classes, count, _ = asked.rows(k_anonymity_of(SUBJECT.name, content.quasi))[0]
            digest = asked.rows(digest_of(SUBJECT.name))[0][1]
            manifest = content.manifest(count, classes, smallest or 0, digest)
            target = _write_manifest(engine, content, (manifest, *_keep(engine, kept)), suppressed, staged, is_parquet)
            if not is_parquet:
                found = read_manifests(engine)
                release = OpenRelease(engine, asked, found[0], is_parquet, tuple(found))
                verification = verify_release(target, release, fresh=True)
                engine.script(f"CHECKPOINT {ATTACHED}")  # to detach is not enough: it is silent where the disk is full
        engine.detach(ATTACHED)
    return manifest, verify_file(target, fresh=True, limits=limits) if is_parquet else verification


def _keep(engine: DuckDBEngine, kept: Kept) -> list[Manifest]:
    """Copy the rows of earlier versions to the file that is in use; their manifests, with the number that they have
    there."""
    if not kept.manifests:
        return []
    engine.attach(kept.path, BEFORE, read_only=True)
    manifests = []
    try:
        for one in kept.manifests:
            copied = replace(one, version=one.version or 1)
            target = table(copied.rows_table, "main", ATTACHED)
            engine.execute(column_definitions(target.copy(), [(column.name, column.type) for column in one.columns]))
            engine.execute(exp.Insert(this=target, expression=star(table(one.rows_table, "main", BEFORE))))
            manifests.append(copied)
    finally:
        engine.detach(BEFORE)
    return manifests


def _write_manifest(
    engine: DuckDBEngine,
    content: Content,
    manifests: Sequence[Manifest],
    suppressed: Suppressed,
    staged: Path,
    is_parquet: bool,
) -> Path:
    """Add the manifests to the file that is in use, and what tells about its rows; or copy the rows to a Parquet file
    that has the manifest. The file."""
    if is_parquet:
        return to_parquet(engine, manifests[0], staged.with_name("release.parquet"))
    with engine.transaction():  # else each statement would be written for itself
        engine.script(sql_text("manifest.sql"))
        for manifest in manifests:
            row = manifest.row()
            engine.execute(insert_row(table("manifest", "sqlanon"), row), list(row.values()))
        present(engine, manifests, content.ranges, suppressed, ATTACHED)
    return staged


def _with_source(engine: DuckDBEngine, content: Content, staged: Path, rows: str) -> tuple[Sequence[Check], Suppressed]:
    """Check the staged rows by the engine that has the source; and what may be told of the suppressed ones."""
    if content.audit is None and content.suppressed is None:
        return (), ()
    engine.attach(staged, STAGED, read_only=True)
    released = table(rows, "main", STAGED)
    try:
        checks = content.audit(released.copy()) if content.audit is not None else ()
        return checks, content.suppressed(released) if content.suppressed is not None else ()
    finally:
        engine.detach(STAGED)


def with_checks(verification: Verification, checks: Sequence[Check]) -> Verification:
    """A verification in which what the source told stands in place of what could not be told without it."""
    told = {check.name: check for check in checks}
    alone = {check.name for check in verification.checks}
    merged = [told.get(check.name, check) for check in verification.checks]
    return replace(verification, checks=(*merged, *(check for name, check in told.items() if name not in alone)))


def against_the_run(found: Manifest, written: Manifest, content: Content) -> list[str]:
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


def _what_is_at(path: Path) -> tuple[int, ...] | None:
    """Tells one file at a place from another; None where there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _swap_in(staged: Path, path: Path) -> None:
    """Give a file its mode, and rename it into place."""
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
    """Make sure that it is on the disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def utc_now() -> datetime:
    """The time, in UTC, as a TIMESTAMP without a zone."""
    return datetime.now(timezone.utc).replace(tzinfo=None, microsecond=0)
