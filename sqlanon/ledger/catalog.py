"""The catalog: hierarchies, runs, lattices and releases, kept in a private DuckDB file of the data holder."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError
from sqlanon.expressions import (
    aliased,
    col,
    create_table,
    ident,
    insert_rows,
    is_null,
    select,
    star,
    table,
    text,
)
from sqlanon.hierarchies import Hierarchy
from sqlanon.policy import Policy, why_not_written
from sqlanon.policy.names import CATALOG
from sqlanon.resources import macros, sql_text
from sqlanon.workdir import private_files

ATTACHED = CATALOG
BESIDE = "sqlanon_catalog_beside"
SCHEMA = "sqlanon"
FORMAT = 5
"""Of the catalog's tables: where it is no older, nothing has to be installed."""

_HELD_HERE = "Unique file handle conflict"
"""What DuckDB says where two runs of one process have the same file."""

PATIENCE = 10.0
"""So many seconds another process may hold the catalog: runs hold it for moments, their own and those beside it."""


def init_database(path: Path) -> None:
    """Install the catalog and the macro library in a DuckDB file, new or not."""
    _refuse_others(path)
    try:
        with private_files():
            connection = duckdb.connect(str(path))
    except (duckdb.Error, OSError) as error:
        raise SourceError(f"{path} cannot be opened for writing: {str(error).splitlines()[0]}") from error
    try:
        with private_files():
            connection.execute(sql_text("catalog.sql"))
            connection.execute(macros())
    finally:
        connection.close()


def _refuse_others(path: Path) -> None:
    """A file must begin as DuckDB's do: the engine itself would open a Parquet file as a database of views."""
    if reason := why_not_written(path):
        raise SourceError(f"{path} {reason}")
    if path.exists() and not is_database(path):
        raise SourceError(f"{path} is no DuckDB file: choose another name")


def is_database(path: Path) -> bool:
    """Whether a file begins as DuckDB's do."""
    if not path.is_file():  # a pipe would not end
        return False
    with path.open("rb") as file:
        return file.read(12)[8:] == b"DUCK"


@contextmanager
def open_catalog(engine: DuckDBEngine, path: Path) -> Iterator[None]:
    """Attach the catalog for a moment, and write to it in one transaction; made if it is not there, for its owner's
    eyes only. Where another process holds it, this one waits for it, but not for long.
    """
    _refuse_others(path)
    with private_files():
        _attach(engine, path)
        path.chmod(0o600)  # it may have been somebody's database before
        try:
            installed = _format_of(engine) >= FORMAT
            with engine.transaction():
                if not installed:
                    with engine.using(ATTACHED):
                        engine.script(sql_text("catalog.sql"))
                yield
        finally:
            engine.detach(ATTACHED)


def _attach(engine: DuckDBEngine, path: Path) -> None:
    """Attach the catalog, as soon as no other process holds it: one that only looks at it does, too."""
    give_up = time.monotonic() + PATIENCE
    try:
        while True:
            try:
                return engine.attach(path, ATTACHED, read_write=True)
            except duckdb.Error as error:
                locked = isinstance(error, duckdb.IOException) and "lock" in str(error)
                if not (locked or _HELD_HERE in str(error)) or time.monotonic() > give_up:
                    raise
                time.sleep(0.02)
    except duckdb.Error as error:
        reason = str(error).splitlines()[0]
        if _HELD_HERE in reason:
            reason = "another run in this process holds it: let that end first"
        else:
            reason += "; another run may hold it"
        raise SourceError(
            f"the catalog {path} cannot be opened: {reason}; [catalog] database can name another file"
        ) from error


def insert(engine: DuckDBEngine, name: str, *rows: Mapping[str, Any]) -> None:
    """Add rows, of the same columns, to a table of the open catalog."""
    statement = insert_rows(table(name, SCHEMA, ATTACHED), rows[0], len(rows))
    engine.execute(statement, [value for row in rows for value in row.values()])


def has_releases(engine: DuckDBEngine, path: Path, source: str, but: Path) -> bool:
    """Whether another catalog has releases of a source that stand, but in one place; not, if it cannot be read now."""
    try:
        engine.attach(path, BESIDE, read_only=True)
    except duckdb.Error:
        return False
    try:
        if not engine.rows(_is_table("releases", BESIDE))[0][0]:  # a view would be a query of somebody else's
            return False
        releases = table("releases", SCHEMA, BESIDE)
        of_source = col("source").eq(text(source))
        elsewhere = col("path").neq(text(str(but)))
        query = select([exp.Count(this=exp.Star())], releases)
        query = query.where(of_source, elsewhere, is_null(col("replaced_at")), copy=False)
        return bool(engine.rows(query)[0][0])
    except duckdb.Error:  # of a version that had no ledger, or no catalog at all
        return False
    finally:
        engine.detach(BESIDE)


def _is_table(name: str, database: str) -> exp.Select:
    """Whether a database has a table of the catalog."""
    query = select([exp.Count(this=exp.Star())], exp.Table(this=exp.Anonymous(this="duckdb_tables")))
    wanted = {"database_name": database, "schema_name": SCHEMA, "table_name": name}
    return query.where(*(col(key).eq(text(value)) for key, value in wanted.items()), copy=False)


def _format_of(engine: DuckDBEngine) -> int:
    """The format of the open catalog; 0 where there is none."""
    try:
        return int(engine.rows(select([col("format")], table("catalog_format", SCHEMA, ATTACHED)))[0][0])
    except (duckdb.CatalogException, IndexError):
        return 0


def hierarchy_name(policy_hash: str, attribute: str) -> str:
    """The table with the hierarchy of an attribute in the runs of a policy."""
    return f"hierarchy_{policy_hash[:12]}_{attribute}"


def store_hierarchies(
    engine: DuckDBEngine,
    policy_hash: str,
    rules: Mapping[str, Any],
    hierarchies: Sequence[Hierarchy],
    now: Any,
) -> None:
    """Copy a run's hierarchy tables to the open catalog; those of an earlier run of the same policy are replaced."""
    known = table("hierarchies", SCHEMA, ATTACHED)
    same_policy = col("policy_hash").eq(exp.Placeholder())
    engine.execute(exp.Delete(this=known, where=exp.Where(this=same_policy)), [policy_hash])
    rows = [
        {
            "policy_hash": policy_hash,
            "attribute": hierarchy.attribute,
            "rule": json.dumps(rules[hierarchy.attribute], ensure_ascii=False),
            "height": hierarchy.height,
            "leaves": hierarchy.leaves,
            "table_name": hierarchy_name(policy_hash, hierarchy.attribute),
            "made_at": now,
        }
        for hierarchy in hierarchies
    ]
    for hierarchy, row in zip(hierarchies, rows, strict=True):
        copy = create_table(table(row["table_name"], SCHEMA, ATTACHED), star(hierarchy.table.copy()))
        copy.set("replace", True)
        engine.execute(copy)
    insert(engine, "hierarchies", *rows)


def store_lattice(engine: DuckDBEngine, run_id: str, lattice: exp.Table) -> None:
    """Copy a run's lattice to the open catalog."""
    columns = list(engine.columns(lattice))
    query = select([text(run_id), *map(col, columns)], lattice.copy())
    target = exp.Schema(
        this=table("lattice", SCHEMA, ATTACHED), expressions=[ident(name) for name in ("run_id", *columns)]
    )
    engine.execute(exp.Insert(this=target, expression=query))


@contextmanager
def recorded_decoys(engine: DuckDBEngine, path: Path, digest: str) -> Iterator[exp.Table | None]:
    """The decoys that the catalog has of the release with a digest; None where it has none, or cannot be read now."""
    try:
        engine.attach(path, ATTACHED, read_only=True)
    except duckdb.Error:
        yield None
        return
    try:
        yield _decoys_of(engine, digest)
    finally:
        engine.detach(ATTACHED)


def recorded_sha256(engine: DuckDBEngine, path: Path, place: str) -> str | None:
    """The hash of the file that was published last in a place; None if the catalog has none or cannot be read now, and
    where a run was stopped that may have published there."""
    try:
        engine.attach(path, ATTACHED, read_only=True)
    except duckdb.Error:
        return None
    try:
        in_place = col("path").eq(exp.Placeholder())
        query = select([col("sha256"), is_null(col("intended_at"))], table("releases", SCHEMA, ATTACHED))
        query = query.where(in_place, is_null(col("replaced_at")), copy=False)
        rows = engine.rows(query.order_by(exp.Ordered(this=col("version"), desc=True, nulls_first=False)), [place])
    except (duckdb.CatalogException, duckdb.BinderException):  # of a version that had none
        return None
    finally:
        engine.detach(ATTACHED)
    return rows[0][0] if rows and all(is_out for _, is_out in rows) else None


def _decoys_of(engine: DuckDBEngine, digest: str) -> exp.Table | None:
    known, releases = (
        aliased(table(name, SCHEMA, ATTACHED), alias) for name, alias in (("decoys", "d"), ("releases", "r"))
    )
    query = select([col("table_name", "d")], known)
    on = col("run_id", "d").eq(col("run_id", "r"))
    query = query.join(releases, on=on, copy=False)
    query = query.where(col("digest", "r").eq(exp.Placeholder()), copy=False).limit(1, copy=False)
    try:
        rows = engine.rows(query, [digest])
    except duckdb.CatalogException:  # of a version that had none
        return None
    return table(rows[0][0], SCHEMA, ATTACHED) if rows else None


def store_decoys(engine: DuckDBEngine, run_id: str, decoys: exp.Query, now: Any) -> None:
    """Write a run's decoys to the open catalog, as they are released: there alone they can be told from real rows."""
    name = f"decoys_{run_id[:12]}"
    engine.execute(create_table(table(name, SCHEMA, ATTACHED), decoys))
    count = engine.rows(select([exp.Count(this=exp.Star())], table(name, SCHEMA, ATTACHED)))[0][0]
    insert(engine, "decoys", {"run_id": run_id, "table_name": name, "rows": count, "made_at": now})


def record_run(
    engine: DuckDBEngine,
    policy: Policy,
    run: Mapping[str, Any],
    lattice: exp.Table,
    hierarchies: Sequence[Hierarchy],
    decoys: exp.Query | None,
) -> None:
    """Keep a run in the policy's catalog: its figures, its lattice, its hierarchies, and its decoys, if it has any."""
    assert policy.catalog is not None
    run_id, now, tree = run["run_id"], run["started_at"], policy.model_dump(mode="json")
    rules = {name: attribute["hierarchy"] for name, attribute in tree["attributes"].items()}
    with open_catalog(engine, policy.catalog.database):
        insert(engine, "runs", run)
        store_lattice(engine, run_id, lattice)
        own = [one for one in hierarchies if one.attribute in rules]
        store_hierarchies(engine, policy.fingerprint(), rules, own, now)
        if decoys is not None:
            store_decoys(engine, run_id, decoys, now)
