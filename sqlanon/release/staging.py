"""The rows of a release, written to a fresh file: a DuckDB file, and from it, if that is asked for, a Parquet file."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field
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
from sqlanon.hierarchies.bounds import Kind
from sqlanon.release.check import Check
from sqlanon.release.contents import STORAGE_VERSION
from sqlanon.release.manifest import Manifest, ReleasedColumn
from sqlanon.release.metadata import Suppressed
from sqlanon.release.reader import ATTACHED, KEY
from sqlanon.workdir import spill_directory

STAGED = "sqlanon_staged"
_USUAL = frozenset(
    {"BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "VARCHAR", "DATE", "TIMESTAMP", "BLOB"}
)
"""Types that every file holds."""
_DECIMAL = re.compile(r"DECIMAL\(\d+,\d+\)")
_ROUNDED = frozenset({"TIME WITH TIME ZONE", "INTERVAL"})
"""Types that Parquet has, without all of their values: it knows no offset of a time, and of an interval neither
microseconds nor what is negative."""
_NESTED = ("list", "array", "struct", "tuple", "map", "union")


@dataclass(frozen=True)
class Content:
    """What is to be released.

    Attributes
    ----------
    query:
        The recode statement.
    columns:
        Its columns, in order, with types and roles.
    quasi:
        Those that make the classes.
    rows, classes, smallest_class:
        How many rows it must give, in how many classes, and the rows of the smallest.
    masked_rows:
        How many of them are masked: they may be a class of their own.
    manifest:
        Makes the manifest from what was written: rows, classes, smallest class, digest.
    repeating:
        Columns of text that has few values.
    audit:
        Checks with the source what a release alone cannot show; it is given the released rows. None
        where there is nothing of the kind.
    recording:
        What is written elsewhere of the release, by its manifest and the SHA-256 of its file (None on a server): for
        good once it is in its place, and not at all if it does not get there.
    ranges:
        By column, in lower case, what its labels are ranges of.
    suppressed:
        What may be told of the suppressed rows; it is given the released rows. None where that is nothing.
    keep:
        How many versions the file has then, at most: this one, and the newest of those that it has now.
    """

    query: exp.Select
    columns: tuple[ReleasedColumn, ...]
    quasi: Sequence[str]
    rows: int
    classes: int
    smallest_class: int
    masked_rows: int
    manifest: Callable[[int, int, int, str], Manifest]
    repeating: Collection[str] = ()
    audit: Callable[[exp.Table], Sequence[Check]] | None = None
    recording: Callable[[Manifest, str | None], AbstractContextManager[None]] = lambda manifest, sha256: nullcontext()
    ranges: Mapping[str, Kind] = field(default_factory=dict)
    suppressed: Callable[[exp.Table], Suppressed] | None = None
    keep: int = 1


def write_rows(engine: DuckDBEngine, content: Content, staged: Path, table_name: str) -> None:
    """Write the recoded rows to a fresh file, in random order, with the types spelled out."""
    target = table(table_name, "main", STAGED)
    engine.attach(staged, STAGED, read_write=True, storage_version=STORAGE_VERSION)
    try:
        staged.chmod(0o600)
        _create_table(engine, content, target)
        # Joined as it is written, the sorted rows stream past tables of labels. The optimizer knows little of how many
        # rows come out of a sort: it may hold them all in a hash table, and give them in the order of the labels.
        with engine.setting("disabled_optimizers", "join_order,build_side_probe_side"):
            engine.execute(exp.Insert(this=target.copy(), expression=content.query))
    except duckdb.OutOfMemoryException as error:
        raise ReleaseError(
            "the release cannot be written: it needs more memory: allow more with memory_limit"
        ) from error
    except duckdb.Error as error:
        raise ReleaseError(
            f"the release cannot be written: {type(error).__name__}; has the source changed since it was read?"
        ) from error
    finally:
        engine.detach(STAGED)


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


def _create_table(engine: DuckDBEngine, content: Content, target: exp.Table) -> None:
    columns = [(column.name, column.type) for column in content.columns]
    # What DuckDB would find out for itself: looking for something better takes a tenth of the time of writing.
    compressed = [
        (name, f"{type_} USING COMPRESSION dictionary" if name in content.repeating else type_)
        for name, type_ in columns
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
