"""Private directories of a run: for spilling, and for a release while it is being written.

They hold private values, so they are 0700, and they do not outlive the run: removed at its end, and, where
it was killed, by the next run. A run holds a lock on each of its directories; a directory whose lock is free
belongs to nobody alive.
"""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

LOCK = "lock"
SPILL_PREFIX = "sqlanon-spill-"
"""Spill directories begin so, in the system's directory for temporary files (``TMPDIR``)."""


def spill_directory() -> AbstractContextManager[Path]:
    """A private directory for an engine to spill to."""
    return private_directory(Path(tempfile.gettempdir()), SPILL_PREFIX)


@contextmanager
def private_directory(parent: Path, prefix: str) -> Iterator[Path]:
    """A new directory (0700) in ``parent``, removed at the end; dead ones of the same prefix are removed first.

    >>> with private_directory(Path(tempfile.gettempdir()), ".sqlanon-doctest-") as directory:
    ...     oct(directory.stat().st_mode & 0o777)
    '0o700'
    >>> directory.exists()
    False
    """
    remove_dead(parent, prefix)
    directory, lock = _locked_directory(parent, prefix)
    try:
        yield directory
    finally:
        # Removed before the lock is let go: nobody may find the directory unlocked.
        shutil.rmtree(directory, ignore_errors=True)
        os.close(lock)


def _locked_directory(parent: Path, prefix: str) -> tuple[Path, int]:
    """Make a directory and lock it, before anybody takes it for dead: it has its name only then."""
    made = Path(tempfile.mkdtemp(prefix=".sqlanon-new-", dir=parent))
    lock = os.open(made / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    _try_lock(lock)
    directory = parent / f"{prefix}{made.name.removeprefix('.sqlanon-new-')}"
    made.rename(directory)
    return directory, lock


@contextmanager
def private_files() -> Iterator[None]:
    """Files that are made meanwhile, journals of a database too, are for their owner's eyes only."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def remove_dead(parent: Path, prefix: str) -> None:
    """Remove the directories that killed runs of ours left behind."""
    for directory in parent.glob(glob.escape(prefix) + "*"):
        with suppress(OSError):
            if directory.is_symlink() or not directory.is_dir() or not _is_ours(directory):
                continue
            try:
                lock = os.open(directory / LOCK, os.O_RDWR)
            except FileNotFoundError:
                # A living run has locked its directory before it bears this name: a removal was cut short.
                shutil.rmtree(directory, ignore_errors=True)
                continue
            try:
                if _try_lock(lock):
                    shutil.rmtree(directory, ignore_errors=True)
            finally:
                os.close(lock)


def _is_ours(directory: Path) -> bool:
    return not hasattr(os, "getuid") or directory.stat().st_uid == os.getuid()


def _try_lock(lock: int) -> bool:
    """Lock an open file without waiting; where the system has no such locks, nothing is ever taken for dead."""
    try:
        import fcntl  # noqa: PLC0415  (not on Windows)
    except ImportError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
