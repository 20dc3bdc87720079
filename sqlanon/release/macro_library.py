"""The macro library of a release file: copied from a file that has it, which takes a tenth of the time of making it.

That file is made once for each version of DuckDB and of the library, and kept where Python keeps the bytecode of this
module. Its name has the SHA-256 of its content, so a file that was changed or cut short is made again. This protects
from accidents only: who can write there can replace the program itself. Where the file cannot be kept, its content
lives as long as the process. The audit does not use it: its macros are made from their text.
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
"""The database of the engine that has the library."""
_FILE = "macros.duckdb"
_CONTENT: dict[str, bytes] = {}
"""Of the file that has the library, by a digest of the scripts and versions."""


_FEW = 20_000
"""Characters of scripts that are run sooner than a file is opened."""


def install(engine: DuckDBEngine, scripts: Sequence[str], database: str, folder: Path, storage_version: str) -> None:
    """Put what some scripts make into an attached database that is in use; ``folder`` is for a temporary file."""
    if sum(map(len, scripts)) < _FEW:
        engine.script(*scripts)
        return
    key = hashlib.sha256("\0".join([engine.version, storage_version, *scripts]).encode()).hexdigest()[:16]
    file = folder / _FILE
    content = _CONTENT.get(key) or _kept(key)
    if content is not None:
        file.write_bytes(content)
        with suppress(duckdb.Error):  # of a file that somebody has damaged
            _copy(engine, database, file)
            _CONTENT[key] = content
            return
    file.unlink(missing_ok=True)
    engine.attach(file, _PREPARED, read_write=True, storage_version=storage_version)
    with engine.using(_PREPARED):
        engine.script(*scripts)
    engine.detach(_PREPARED)
    _CONTENT[key] = file.read_bytes()
    _keep(key)
    _copy(engine, database, file)


def _copy(engine: DuckDBEngine, database: str, file: Path) -> None:
    engine.attach(file, _PREPARED, read_only=True)
    try:
        engine.script(f"COPY FROM DATABASE {_PREPARED} TO {database} (SCHEMA)")
    finally:
        engine.detach(_PREPARED)
        file.unlink()


def _folder() -> Path:
    """Of the bytecode of this module."""
    return Path(cache_from_source(__file__)).parent


def _name(key: str, content: bytes) -> str:
    """
    >>> _name("0123", b"")
    'macros.0123.e3b0c44298fc1c14.duckdb'
    """
    return f"macros.{key}.{hashlib.sha256(content).hexdigest()[:16]}.duckdb"


def _kept(key: str) -> bytes | None:
    """The content of the file whose name has its digest."""
    with suppress(OSError, NotImplementedError):
        for file in _folder().glob(f"macros.{key}.*.duckdb"):
            with suppress(OSError):
                content = file.read_bytes()
                if file.name == _name(key, content):
                    return content
    return None


def _keep(key: str) -> None:
    """Those of other versions, and those that have changed, make room for it."""
    if sys.dont_write_bytecode:
        return
    with suppress(OSError, NotImplementedError):
        place = _folder() / _name(key, _CONTENT[key])
        place.parent.mkdir(exist_ok=True)
        unfinished = place.with_name(f"{place.name}.{os.getpid()}")
        try:
            unfinished.write_bytes(_CONTENT[key])
            unfinished.replace(place)
        finally:
            unfinished.unlink(missing_ok=True)
        for other in place.parent.glob("macros.*.duckdb"):
            if other != place:
                with suppress(OSError):
                    other.unlink()
