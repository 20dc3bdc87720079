"""Private directories and files, locks between runs, and messages for full disks.

Directories are for spilling and for a release while it is written. They hold private values, so their mode is 0700 and
they do not outlive the run: they are deleted at its end, or by the next run if it was killed. A run holds a lock on the
directory itself from its creation to its removal; a directory whose lock is free is stale.
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
_ERRNO_BY_PHRASE = {os.strerror(number): number for number in _REASONS}
_FILE = re.compile(r'file \\?"([^"\\]+)\\?"')
_SPILL_SETTING = "max_temp_directory_size"
"""The setting that DuckDB names in its error if it cannot spill."""


def describe_disk_error(error: BaseException, spill: Path | None = None) -> str | None:
    """A message for an error of a disk; None for other errors.

    >>> describe_disk_error(ValueError("No such thing")) is None
    True
    """
    text, path = str(error), spill
    number = error.errno if isinstance(error, OSError) else None
    if number in _REASONS:
        path = Path(error.filename) if isinstance(error, OSError) and error.filename else None
    elif _SPILL_SETTING in text and spill is not None:
        number = errno.ENOSPC
    else:
        number = next((number for phrase, number in _ERRNO_BY_PHRASE.items() if phrase in text), None)
        file = _FILE.search(text)
        path = Path(file[1]) if file else None
    if number is None:
        return None
    remedy = "free space on it" if number in (errno.ENOSPC, errno.EDQUOT) else "choose another disk"
    disk, space = "the disk", ""
    if path is not None:
        if spill is not None and path.is_relative_to(spill):
            remedy += ", or set TMPDIR to a folder on another disk"
        folders = path.absolute().parents
        mount = next((folder for folder in folders if folder.is_mount()), Path(path.anchor))
        disk = f"the disk at {mount}, which {path} is on,"
        if (existing := next((folder for folder in (path, *folders) if folder.exists()), None)) is not None:
            space = f", {shutil.disk_usage(existing).free / 1e6:,.1f} MB free"
    return f"{disk} {_REASONS[number]} ({os.strerror(number)}{space}): {remedy}"


try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]  # a module or None

SPILL_PREFIX = "sqlanon-spill-"
"""Prefix of spill directories in the system's directory for temporary files (``TMPDIR``)."""


def spill_directory() -> AbstractContextManager[Path]:
    return private_directory(Path(tempfile.gettempdir()), SPILL_PREFIX)


@contextmanager
def private_directory(parent: Path, prefix: str) -> Iterator[Path]:
    """A new directory (0700) in ``parent``, deleted at the end; deletes stale ones with the same prefix first.

    >>> with private_directory(Path(tempfile.gettempdir()), ".sqlanon-doctest-") as directory:
    ...     oct(directory.stat().st_mode & 0o777)
    '0o700'
    >>> directory.exists()
    False
    """
    remove_stale_directories(parent, prefix)
    directory, lock = _create_locked_directory(parent, prefix)
    try:
        yield directory
    finally:
        # Deleted before the lock is released, so that no other run sees it unlocked.
        shutil.rmtree(directory, ignore_errors=True)
        if lock is not None:
            os.close(lock)


class _Umask:
    """The umask, which belongs to the process: threads that narrow it share the change."""

    def __init__(self) -> None:
        self._lock, self._users, self._user_mask = threading.Lock(), 0, 0

    @contextmanager
    def narrow(self) -> Iterator[None]:
        with self._lock:
            if not self._users:
                self._user_mask = os.umask(0o077)
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    os.umask(self._user_mask)

    def user_mask(self) -> int:
        with self.narrow():
            return self._user_mask


_UMASK = _Umask()


def private_files() -> AbstractContextManager[None]:
    """Make new files readable only by their owner within the context, including a database's journals."""
    return _UMASK.narrow()


def new_file_mode() -> int:
    """The user's default mode of new files, also while `private_files` narrows it."""
    return 0o666 & ~_UMASK.user_mask()


LOCK_TIMEOUT = 60.0
"""Seconds to wait for a lock, which is held only while a release is swapped in."""


class BusyError(Exception):
    """Another run holds a lock for too long."""


@contextmanager
def exclusive_lock(path: Path, timeout: float = LOCK_TIMEOUT) -> Iterator[None]:
    """Hold the lock of a path, after waiting for it; the system releases it if the run is killed.

    The lock is on a hidden file next to the path, which is deleted at the end. Does nothing on systems without such
    locks.
    """
    if fcntl is None:
        yield
        return
    hidden = path.with_name(f".{path.name}.lock")
    lock = _open_locked_file(hidden, time.monotonic() + timeout)
    try:
        yield
    finally:
        with suppress(OSError):
            hidden.unlink()  # before the lock is released: afterwards it may belong to another run
        os.close(lock)


def _open_locked_file(hidden: Path, deadline: float) -> int:
    while True:
        lock = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(hidden.stat(), os.fstat(lock)):  # not deleted while waiting
                return lock
        except FileNotFoundError:  # deleted by the run that held it
            pass
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(lock)
                raise BusyError from None
            time.sleep(0.01)
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)


def _create_locked_directory(parent: Path, prefix: str) -> tuple[Path, int | None]:
    """Create a directory and lock it.

    Tries again if another run took the directory for stale before it was locked.
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
            is_of_user = not hasattr(os, "getuid") or directory.stat().st_uid == os.getuid()
            if directory.is_symlink() or not directory.is_dir() or not is_of_user:
                continue
            if (lock := _lock(directory)) is not None:
                shutil.rmtree(directory, ignore_errors=True)
                os.close(lock)


def _lock(directory: Path) -> int | None:
    """Lock a directory without waiting; return the open lock, or None if another run holds it.

    On systems without such locks it returns None, so that no directory is taken for stale.
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
