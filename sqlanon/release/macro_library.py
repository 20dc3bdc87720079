"""The macro library of a release file, copied from a prepared file in a tenth of the time that its scripts take.

The prepared file is created once for each version of DuckDB and of the library, next to the bytecode of this module.
Its name contains the SHA-256 of its content, so a file that was changed or truncated is created again. This protects
from accidents only: whoever can write there can replace the program itself. If the file cannot be stored, its content
is kept for the life of the process. The audit does not use it: it creates its macros from their text.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path

import duckdb

from sqlanon.engines.duckdb import DuckDBEngine

_PREPARED = "sqlanon_macros"
"""The name under which the prepared file is attached."""
_FILE = "macros.duckdb"
_CONTENT: dict[str, bytes] = {}
"""The contents of prepared files, by a digest of scripts and versions."""

_MIN_CHARACTERS = 20_000
"""Shorter scripts run faster than the prepared file is opened."""


def install(engine: DuckDBEngine, scripts: Sequence[str], database: str, folder: Path, storage_version: str) -> None:
    """Create the macros of scripts in the attached database that is in use; ``folder`` is for a temporary file."""
    if sum(map(len, scripts)) < _MIN_CHARACTERS:
        engine.script(*scripts)
        return
    key = hashlib.sha256("\0".join([engine.version, storage_version, *scripts]).encode()).hexdigest()[:16]
    file = folder / _FILE
    content = _CONTENT.get(key) or _read_stored(key)
    if content is not None:
        file.write_bytes(content)
        with suppress(duckdb.Error):  # the stored file may be damaged
            _copy(engine, database, file)
            _CONTENT[key] = content
            return
    file.unlink(missing_ok=True)
    engine.attach(file, _PREPARED, read_write=True, storage_version=storage_version)
    with engine.using(_PREPARED):
        engine.script(*scripts)
    engine.detach(_PREPARED)
    _CONTENT[key] = file.read_bytes()
    _store(key)
    _copy(engine, database, file)


def _copy(engine: DuckDBEngine, database: str, file: Path) -> None:
    engine.attach(file, _PREPARED, read_only=True)
    try:
        engine.script(f"COPY FROM DATABASE {_PREPARED} TO {database} (SCHEMA)")
    finally:
        engine.detach(_PREPARED)
        file.unlink()


def _cache_folder() -> Path:
    return Path(cache_from_source(__file__)).parent


def _file_name(key: str, content: bytes) -> str:
    """
    >>> _file_name("0123", b"")
    'macros.0123.e3b0c44298fc1c14.duckdb'
    """
    return f"macros.{key}.{hashlib.sha256(content).hexdigest()[:16]}.duckdb"


def _read_stored(key: str) -> bytes | None:
    """Read the prepared file, if its name has the digest of its content."""
    with suppress(OSError, NotImplementedError):
        for file in _cache_folder().glob(f"macros.{key}.*.duckdb"):
            with suppress(OSError):
                content = file.read_bytes()
                if file.name == _file_name(key, content):
                    return content
    return None


def _store(key: str) -> None:
    """Store the prepared file, and remove those of other versions and those that were changed."""
    if sys.dont_write_bytecode:
        return
    with suppress(OSError, NotImplementedError):
        path = _cache_folder() / _file_name(key, _CONTENT[key])
        path.parent.mkdir(exist_ok=True)
        unfinished = path.with_name(f"{path.name}.{os.getpid()}")
        try:
            unfinished.write_bytes(_CONTENT[key])
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
        for file in path.parent.glob("macros.*.duckdb"):
            if file != path:
                with suppress(OSError):
                    file.unlink()
