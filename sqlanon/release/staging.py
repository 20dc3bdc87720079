"""The rows of a release, written to a fresh file: a DuckDB file, and from it, if that is asked for, a Parquet file."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import ReleaseError
from sqlanon.queries.bounds import Kind
from sqlanon.queries.names import column_definitions, drop_table, ident, star, table, text
from sqlanon.release.check import Check
from sqlanon.release.contents import STORAGE_VERSION
from sqlanon.release.manifest import Manifest, ReleasedColumn
from sqlanon.release.presented import Suppressed
from sqlanon.release.reader import ATTACHED, KEY

STAGED = "sqlanon_staged"
_NOT_IN_PARQUET = frozenset(
    {"HUGEINT", "UHUGEINT", "BIGNUM", "BIT", "TIMESTAMP_S", "TIMESTAMP_MS", "TIME WITH TIME ZONE", "TIME_NS"}
)
_ARRAY = re.compile(r"\[\d+\]")


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
        What is written elsewhere of the release: for good once it is in its place, and not at all if it does not get
        there.
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
    recording: Callable[[Manifest], AbstractContextManager[None]] = lambda manifest: nullcontext()
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


def refuse_types(content: Content) -> None:
    """Some types have no equal in Parquet: they would come back as others."""
    lost = [
        f"{column.name!r} ({column.type})"
        for column in content.columns
        if column.type in _NOT_IN_PARQUET or _ARRAY.search(column.type)
    ]
    if lost:
        raise ReleaseError(
            f"Parquet cannot hold the types of {', '.join(lost)} as they are: cast them in a source query, "
            "or publish to a DuckDB file"
        )


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
        exp.Copy(
            this=exp.Subquery(this=star(rows)),
            kind=False,
            files=[text(str(target))],
            params=[
                exp.CopyParameter(this=exp.Var(this="FORMAT"), expression=exp.Var(this="PARQUET")),
                exp.CopyParameter(this=exp.Var(this="KV_METADATA"), expression=metadata),
            ],
        )
    )
    target.chmod(0o600)
    return target
