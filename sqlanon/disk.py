"""Disks that are full, or cannot be written: which one, and what to do."""

from __future__ import annotations

import errno
import os
import re
import shutil
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


def disk_problem(error: BaseException, spill: Path | None = None) -> str | None:
    """What an error says of a disk; None where it is of something else.

    Parameters
    ----------
    error:
        Of the system, or of an engine that quotes it.
    spill:
        Where the engine spills to.

    >>> disk_problem(ValueError("No such thing")) is None
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
    """What is left on a disk."""
    there = None if place is None else next((one for one in (place, *place.absolute().parents) if one.exists()), None)
    if there is None:
        return ""
    return f", {shutil.disk_usage(there).free / 1e6:,.1f} MB free"
