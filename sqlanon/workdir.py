"""Private directories of a run: for spilling, and for a release while it is being written.

They hold private values, so they are 0700, and they do not outlive the run: removed at its end, and, where
it was killed, by the next run. A run holds a lock on each of its directories, on the directory itself, so that no
moment of its making or of its removal is without one; a directory whose lock is free belongs to nobody alive.
"""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]  # a module, or none

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
        if lock is not None:
            os.close(lock)


@contextmanager
def private_files() -> Iterator[None]:
    """Files that are made meanwhile, journals of a database too, are for their owner's eyes only."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def _locked_directory(parent: Path, prefix: str) -> tuple[Path, int | None]:
    """A new directory, and the lock on it.

    Another one, where a run that cleans up took it for dead in the moment before it was locked: then the lock is
    taken, or the directory is gone.
    """
    while True:
        directory = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        with suppress(FileNotFoundError):
            lock = _lock(directory)
            if lock is None and fcntl is not None:
                continue
            if directory.exists():
                return directory, lock
            if lock is not None:
                os.close(lock)


def remove_dead(parent: Path, prefix: str) -> None:
    """Remove the directories that killed runs of ours left behind."""
    for directory in parent.glob(glob.escape(prefix) + "*"):
        with suppress(OSError):
            if directory.is_symlink() or not directory.is_dir() or not _is_ours(directory):
                continue
            lock = _lock(directory)
            if lock is not None:
                shutil.rmtree(directory, ignore_errors=True)
                os.close(lock)


def _is_ours(directory: Path) -> bool:
    return not hasattr(os, "getuid") or directory.stat().st_uid == os.getuid()


def _lock(directory: Path) -> int | None:
    """Lock a directory without waiting: the open lock, or None where somebody holds it.

    Where the system has no such locks, it is always None: nothing is ever taken for dead.
    """
    if fcntl is None:
        return None
    lock = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock
