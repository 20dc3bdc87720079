"""The SHA-256 of a release file: recorded outside the file, it finds any change, also one that somebody chose."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from sqlanon.errors import ReleaseError
from sqlanon.release.check import Check

_AT_ONCE = 1 << 20


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, as 64 hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_AT_ONCE):
            digest.update(block)
    return digest.hexdigest()


def file_check(path: Path, expected: str) -> Check:
    """Whether a file has the SHA-256 that a reader was given."""
    expected = expected.strip().lower()
    if not re.fullmatch("[0-9a-f]{64}", expected):
        raise ReleaseError("sha256 must be 64 hexadecimal digits, as `anonymize` prints them")
    try:
        found = sha256_of(path)
    except OSError as error:
        raise ReleaseError(f"{path} cannot be read: {error.strerror or error}") from error
    if (log := path.with_name(f"{path.name}.wal")).exists():
        return Check("sha256", False, f"{log.name} is beside it, and DuckDB reads that into the file: remove it")
    if found == expected:
        return Check("sha256", True, "the file is the one that was published")
    return Check("sha256", False, f"expected {expected}, found {found}: the file was changed, or it is another one")
