"""Load extensions of DuckDB for the sources that need them.

DuckDB checks the signature of an extension, wherever its file comes from.
"""

from __future__ import annotations

from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import duckdb
from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError
from sqlanon.support.expressions import template, text

_REQUIRED_EXTENSIONS = {"iceberg": ("avro", "httpfs")}
"""Extensions that an extension loads by itself, but only from DuckDB's own folder."""


PACKAGED = "1.5.5"
"""The newest DuckDB with extensions as packages on PyPI."""


def load_extension(engine: DuckDBEngine, name: str, where: str, reads: str) -> None:
    """Load an extension that is installed, else from a Python package, else after downloading it."""
    query = template("SELECT loaded FROM duckdb_extensions() WHERE extension_name = :name")
    if any(is_loaded for (is_loaded,) in engine.rows(query(name=name))):
        return
    for required in _REQUIRED_EXTENSIONS.get(name, ()):
        load_extension(engine, required, where, reads)
    with suppress(duckdb.Error):
        _load(engine, name)
        return
    if (file := _find_packaged_file(name)) is not None:
        try:
            _load(engine, str(file))
            return
        except duckdb.Error as error:
            raise SourceError(_describe_failure(engine, name, where, reads, f"{file} cannot be loaded")) from error
    try:
        _install(engine, name)
        _load(engine, name)
    except duckdb.Error as error:
        reason = "it is not installed, and cannot be downloaded"
        raise SourceError(_describe_failure(engine, name, where, reads, reason)) from error


def _describe_failure(engine: DuckDBEngine, name: str, where: str, reads: str, reason: str) -> str:
    version, package = duckdb.__version__, f"duckdb-extension-{name.replace('_', '-')}"
    ((platform,),) = engine.rows(template("SELECT platform FROM pragma_platform()")())
    folder = f"~/.duckdb/extensions/v{version}/{platform}"
    has_package = version.startswith("1.")
    install = f"{package}=={version}" if has_package else f"duckdb=={PACKAGED} {package}=={PACKAGED}"
    why = "" if has_package else f" (no such package exists for DuckDB {version})"
    return (
        f"{where}: DuckDB reads {reads} with its extension {name}: {reason}. Either\n"
        f"  - run INSTALL {name} in DuckDB {version} on a machine with a network, and copy {name}.duckdb_extension "
        f"from its {folder} to the same folder here\n"
        f"  - or: pip install {install}{why}"
    )


def _install(engine: DuckDBEngine, name: str) -> None:
    engine.execute(exp.Command(this="INSTALL", expression=text(name).sql(engine.dialect)))


def _load(engine: DuckDBEngine, name: str) -> None:
    engine.execute(exp.Command(this="LOAD", expression=text(name).sql(engine.dialect)))


def _find_packaged_file(name: str) -> Path | None:
    """Find the file of an extension in the package ``duckdb-extension-NAME`` for this version of DuckDB."""
    spec = find_spec(f"duckdb_extension_{name}")
    folders = [] if spec is None else [Path(folder) for folder in spec.submodule_search_locations or ()]
    files = (folder / "extensions" / f"v{duckdb.__version__}" / f"{name}.duckdb_extension" for folder in folders)
    return next((file for file in files if file.is_file()), None)
