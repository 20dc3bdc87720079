"""Limits on the memory and threads of an engine."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sqlanon.errors import SourceError

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([KMGT])I?B", re.IGNORECASE)
_MIN_MEGABYTES = 10  # an engine cannot start with less
_MAX_MEGABYTES = 1000**3  # a petabyte
MAX_THREADS = 1024


@dataclass(frozen=True)
class Limits:
    """The memory and threads that an engine may use; None leaves the choice to the engine.

    >>> Limits(memory_limit="2GB", threads=4)
    Limits(memory_limit='2GB', threads=4)
    """

    memory_limit: str | None = None  # a size with its unit, such as ``2GB`` or ``512MiB``; the engine spills beyond it
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.memory_limit is not None:
            _refuse_size(self.memory_limit)
        is_number = isinstance(self.threads, int) and not isinstance(self.threads, bool)
        if self.threads is not None and not (is_number and 0 < self.threads <= MAX_THREADS):
            raise SourceError(f"threads: must be an integer from 1 to {MAX_THREADS:,}, not {self.threads!r}")


NO_LIMITS = Limits()


def _refuse_size(size: object) -> None:
    match = _SIZE.fullmatch(size) if isinstance(size, str) else None
    if match is None:
        raise SourceError(f"memory_limit: {size!r} is not a size: give a number with a unit, such as 512MB or 2GB")
    megabytes = float(match[1]) * 1000 ** ("KMGT".index(match[2].upper()) - 1)
    if megabytes > _MAX_MEGABYTES:
        raise SourceError(f"memory_limit: {size} is more than any machine has: give a size that this machine has")
    if megabytes < _MIN_MEGABYTES:
        raise SourceError(f"memory_limit: {size} is too small: give at least {_MIN_MEGABYTES}MB")
