"""What runs do beside one another: private directories, private files, locks, and disks that are full.

Directories are for spilling, and for a release while it is being written. They hold private values, so they are 0700,
and they do not outlive the run: removed at its end, and, where it was killed, by the next run. A run holds a lock on
each of its directories, on the directory itself, so that no moment of its making or of its removal is without one; a
directory whose lock is free belongs to nobody alive.
"""

from __future__ import annotations

import errno
import glob
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

_REASONS = {
    errno.ENOSPC: "is full",
    errno.EDQUOT: "has no room left for this user (quota)",
    errno.EFBIG: "takes no file as large as that (see ulimit -f)",
    errno.EROFS: "can only be read",
    errno.EIO: "has an error",
}
_BY_WORDS = {os.strerror(number): number for number in _REASONS}
_FILE = re.compile(r'file \\?"([^"\\]+)\\?"')
_OF_SPILLING = "max_temp_directory_size"
"""What the engine speaks of where it finds no room for what does not fit into memory."""


def describe_disk_error(error: BaseException, spill: Path | None = None) -> str | None:
    """What an error says of a disk; None where it is of something else.

    >>> describe_disk_error(ValueError("No such thing")) is None
    True
    """
    text, place = str(error), spill
    number = error.errno if isinstance(error, OSError) else None
    if number in _REASONS:
        place = Path(error.filename) if isinstance(error, OSError) and error.filename else None
    elif _OF_SPILLING in text and spill is not None:
        number = errno.ENOSPC
    else:
        number = next((number for words, number in _BY_WORDS.items() if words in text), None)
        named = _FILE.search(text)
        place = Path(named[1]) if named else None
    if number is None:
        return None
    remedy = "make room there" if number in (errno.ENOSPC, errno.EDQUOT) else "choose another place"
    if spill is not None and place is not None and place.is_relative_to(spill):
        remedy += ", or set TMPDIR to a folder on another disk"
    return f"{_disk_of(place)} {_REASONS[number]} ({os.strerror(number)}{_room(place)}): {remedy}"


def _disk_of(place: Path | None) -> str:
    if place is None:
        return "the disk"
    mount = next((one for one in place.absolute().parents if one.is_mount()), Path(place.anchor))
    return f"the disk at {mount}, which {place} is on,"


def _room(place: Path | None) -> str:
    there = None if place is None else next((one for one in (place, *place.absolute().parents) if one.exists()), None)
    if there is None:
        return ""
    return f", {shutil.disk_usage(there).free / 1e6:,.1f} MB free"


try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]  # a module, or none

SPILL_PREFIX = "sqlanon-spill-"
"""Spill directories begin so, in the system's directory for temporary files (``TMPDIR``)."""


def spill_directory() -> AbstractContextManager[Path]:
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
    remove_stale_directories(parent, prefix)
    directory, lock = _locked_directory(parent, prefix)
    try:
        yield directory
    finally:
        # Removed before the lock is let go: nobody may find the directory unlocked.
        shutil.rmtree(directory, ignore_errors=True)
        if lock is not None:
            os.close(lock)


class _Umask:
    """The mask of new files belongs to the process: threads that want another one share it."""

    def __init__(self) -> None:
        self._lock, self._users, self._before = threading.Lock(), 0, 0

    def narrow(self) -> None:
        with self._lock:
            if not self._users:
                self._before = os.umask(0o077)
            self._users += 1

    def restore(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                os.umask(self._before)

    def own(self) -> int:
        """The user's, whatever other threads do."""
        with self._lock:
            if self._users:
                return self._before
            mask = os.umask(0o077)
            os.umask(mask)
            return mask


_UMASK = _Umask()


@contextmanager
def private_files() -> Iterator[None]:
    """Files that are made meanwhile, journals of a database too, are for their owner's eyes only."""
    _UMASK.narrow()
    try:
        yield
    finally:
        _UMASK.restore()


def new_file_mode() -> int:
    """The mode that the user gives to new files, whatever private files are made meanwhile."""
    return 0o666 & ~_UMASK.own()


LOCK_TIMEOUT = 60.0
"""The seconds to wait for a lock: it is held for the moment in which a release is put in its place."""


class BusyError(Exception):
    """Another run keeps a lock too long."""


@contextmanager
def exclusive_lock(path: Path, patience: float = LOCK_TIMEOUT) -> Iterator[None]:
    """Wait for the lock of a place, and hold it; the system frees it where a run is killed. The lock is on a hidden
    file beside the place, which is removed at the end: a run that waited for it looks whether it is still there.

    Where the system has no such locks, nobody waits.
    """
    if fcntl is None:
        yield
        return
    hidden = path.with_name(f".{path.name}.lock")
    lock = _locked_file(hidden, time.monotonic() + patience)
    try:
        yield
    finally:
        with suppress(OSError):
            hidden.unlink()  # before the lock is let go: it may be another's from then on
        os.close(lock)


def _locked_file(hidden: Path, give_up: float) -> int:
    while True:
        lock = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            there = hidden.stat()
            if os.path.samestat(there, os.fstat(lock)):
                return lock
        except FileNotFoundError:  # removed by the run that had it
            pass
        except BlockingIOError:
            if time.monotonic() > give_up:
                os.close(lock)
                raise BusyError from None
            time.sleep(0.01)
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)


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


def remove_stale_directories(parent: Path, prefix: str) -> None:
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
