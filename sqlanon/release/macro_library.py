"""The macro library of a release file: copied from a file that has it, which takes a tenth of the time of making it.

That file is made once for each version of DuckDB and of the library, and kept where Python keeps the bytecode of this
module, under the same conditions: who can write there can change the code itself. Where it cannot be kept, it lives as
long as the process. The audit does not use it: its macros are made from their text.
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


def _place(key: str) -> Path:
    """Beside the bytecode of this module.

    >>> _place("0123").name
    'macros.0123.duckdb'
    """
    return Path(cache_from_source(__file__)).with_name(f"macros.{key}.duckdb")


def _kept(key: str) -> bytes | None:
    with suppress(OSError, NotImplementedError):
        return _place(key).read_bytes()
    return None


def _keep(key: str) -> None:
    """Those of other versions make room for it."""
    if sys.dont_write_bytecode:
        return
    with suppress(OSError, NotImplementedError):
        place = _place(key)
        place.parent.mkdir(exist_ok=True)
        unfinished = place.with_name(f"{place.name}.{os.getpid()}")
        unfinished.write_bytes(_CONTENT[key])
        unfinished.replace(place)
        for other in place.parent.glob("macros.*.duckdb"):
            if other != place:
                other.unlink(missing_ok=True)
