"""The rows of a release, written to a fresh file: a DuckDB file, and from it, if that is asked for, a Parquet file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import duckdb
from duckdb.sqltypes import DuckDBPyType
from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import ReleaseError
from sqlanon.expressions import (
    cast,
    column_definitions,
    drop_table,
    ident,
    named,
    read_parquet,
    star,
    subquery,
    table,
    text,
)
from sqlanon.policy.names import STAGED
from sqlanon.release.contents import STORAGE_VERSION
from sqlanon.release.manifest import Manifest
from sqlanon.release.reader import ATTACHED, KEY
from sqlanon.release.target import Draft
from sqlanon.workdir import spill_directory

_USUAL = frozenset(
    {"BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "VARCHAR", "DATE", "TIMESTAMP", "BLOB"}
)
"""Types that every file holds."""
_DECIMAL = re.compile(r"DECIMAL\(\d+,\d+\)")
_ROUNDED = frozenset({"TIME WITH TIME ZONE", "INTERVAL"})
"""Types that Parquet has, without all of their values: it knows no offset of a time, and of an interval neither
microseconds nor what is negative."""
_NESTED = ("list", "array", "struct", "tuple", "map", "union")


def refuse_types(types: Mapping[str, str], is_parquet: bool) -> None:
    """Refuse what a file does not hold, or would give back as something else."""
    rare = {name: type_ for name, type_ in types.items() if type_ not in _USUAL and not _DECIMAL.fullmatch(type_)}
    if not rare:
        return
    with (
        spill_directory() as directory,
        closing(DuckDBEngine.private(directory)) as engine,
    ):
        if not is_parquet:
            engine.attach(directory / "probe.duckdb", STAGED, read_write=True, storage_version=STORAGE_VERSION)
        path = directory / "probe.parquet" if is_parquet else None
        lost = [f"{name!r} ({type_})" for name, type_ in rare.items() if not _comes_back(engine, type_, path)]
    if lost and is_parquet:
        raise ReleaseError(
            f"Parquet cannot hold the types of {', '.join(lost)} as they are: cast them in a source query, "
            "or publish to a DuckDB file"
        )
    if lost:
        raise ReleaseError(f"a release file cannot hold the types of {', '.join(lost)}: cast them in a source query")


def _comes_back(engine: DuckDBEngine, type_: str, path: Path | None) -> bool:
    """Whether a Parquet file gives all values of a type back as they were; without a path, a DuckDB file."""
    if path is None:
        return _is_held(engine, table("probe", "main", STAGED), type_)
    nothing = exp.Select(expressions=[named(cast(exp.null(), type_), "probe")]).limit(0, copy=False)
    own = engine.types(subquery(nothing.copy(), "p"))["probe"]
    try:
        engine.execute(_as_parquet(nothing, path))
    except duckdb.Error:
        return False
    return engine.columns(read_parquet([str(path)])) == {"probe": str(own)} and not _ROUNDED & set(_scalars(own))


def _scalars(type_: DuckDBPyType) -> Iterator[str]:
    """The names of the types in a nested one; of another its own."""
    inner = [] if type_.id not in _NESTED else [one for _, one in type_.children if isinstance(one, DuckDBPyType)]
    if not inner:
        yield str(type_)
    for one in inner:
        yield from _scalars(one)


def create_released(engine: DuckDBEngine, draft: Draft, target: exp.Table) -> None:
    """Make the table of a release in a file."""
    columns, repeating = [(column.name, column.type) for column in draft.columns()], draft.repeating()
    # What DuckDB would find out for itself: looking for something better takes a tenth of the time of writing.
    compressed = [
        (name, f"{type_} USING COMPRESSION dictionary" if name in repeating else type_) for name, type_ in columns
    ]
    try:
        engine.execute(column_definitions(target, compressed))
    except duckdb.Error as error:
        names = ", ".join(f"{name!r} ({type_})" for name, type_ in columns if not _is_held(engine, target, type_))
        raise ReleaseError(
            f"a release file cannot hold the types of {names or 'these columns'}: cast them in a source query"
        ) from error


def _is_held(engine: DuckDBEngine, target: exp.Table, type_: str) -> bool:
    try:
        engine.execute(column_definitions(target.copy(), [("probe", type_)]))
    except duckdb.Error:
        return False
    engine.execute(drop_table(target.copy()))
    return True


def to_parquet(engine: DuckDBEngine, manifest: Manifest, target: Path) -> Path:
    """Write the rows of the file that is in use as Parquet, with the manifest in the file's metadata."""
    rows = table(manifest.rows_table, "main", ATTACHED)
    metadata = exp.Struct(expressions=[exp.PropertyEQ(this=ident(KEY), expression=text(manifest.to_json()))])
    engine.execute(
        _as_parquet(star(rows), target, exp.CopyParameter(this=exp.Var(this="KV_METADATA"), expression=metadata))
    )
    target.chmod(0o600)
    return target


def _as_parquet(query: exp.Query, target: Path, *more: exp.CopyParameter) -> exp.Copy:
    """``COPY (query) TO target``."""
    parquet = exp.CopyParameter(this=exp.Var(this="FORMAT"), expression=exp.Var(this="PARQUET"))
    return exp.Copy(this=exp.Subquery(this=query), kind=False, files=[text(str(target))], params=[parquet, *more])
