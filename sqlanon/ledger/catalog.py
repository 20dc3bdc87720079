"""The catalog: a private DuckDB file of the data holder with hierarchies, runs, lattices and releases."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb
from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError
from sqlanon.hierarchies import Hierarchy
from sqlanon.places.addresses import database_path_flaw
from sqlanon.policy import Policy
from sqlanon.sources.run import Run
from sqlanon.support.expressions import (
    cols,
    create_table,
    fragment,
    insert_rows,
    row_count,
    select_star,
    table,
    template,
)
from sqlanon.support.names import CATALOG
from sqlanon.support.resources import __version__, macro_script, read_sql_file
from sqlanon.support.workdir import private_files

ATTACHED = CATALOG
OTHER_CATALOG = "sqlanon_catalog_beside"
SCHEMA = "sqlanon"
FORMAT = 12
"""The format of the catalog's tables. Catalogs of other formats are refused."""

_OPEN_IN_PROCESS = "Unique file handle conflict"
"""DuckDB's error where two runs of one process open the same file."""

PATIENCE = 10.0
"""Seconds to wait for a catalog that another process has open: runs open it only briefly."""

RELEASED_KEYS = template("SELECT key_hash FROM sqlanon_catalog.sqlanon.released_keys WHERE run_id = :run_id")


def init_database(path: Path) -> None:
    """Install the catalog and the macro library in a new or existing DuckDB file."""
    _refuse_other_files(path)
    with closing(duckdb.connect()) as connection:
        engine = DuckDBEngine(connection)
        try:
            with private_files():
                # Under the name of its file, a schema of the same name would be ambiguous.
                engine.attach(path, ATTACHED)
        except (duckdb.Error, OSError) as error:
            raise SourceError(f"{path} cannot be opened for writing: {str(error).splitlines()[0]}") from error
        with private_files():
            _install(engine, path)
            with engine.using(ATTACHED):
                engine.script(macro_script())


def _refuse_other_files(path: Path) -> None:
    """Refuse files that are not databases: the engine would open a Parquet file as a database of views."""
    if reason := database_path_flaw(path):
        raise SourceError(f"{path} {reason}")
    if path.exists() and not is_database(path):
        raise SourceError(f"{path} is not a DuckDB file: choose another name")


def is_database(path: Path) -> bool:
    """Whether a file has the header of a DuckDB database."""
    if not path.is_file():  # reading a pipe would block
        return False
    with path.open("rb") as file:
        return file.read(12)[8:] == b"DUCK"


def read_duckdb_version(path: Path) -> str | None:
    """The version of DuckDB in the header of a file; None if there is none."""
    with suppress(OSError), path.open("rb") as file:
        name = file.read(84)[52:].rstrip(b"\0")
        if re.fullmatch(rb"v\d+\.\d+\.\d+(-\w+)?", name):
            return name[1:].decode()
    return None


@contextmanager
def open_catalog(engine: DuckDBEngine, path: Path) -> Iterator[None]:
    """Attach the catalog and write to it in one transaction; a missing one is created, readable for its owner only.

    If another process has it open, wait up to `PATIENCE` seconds. It is never open while a run searches, hashes rows or
    writes a release. A run that is published opens it five times: for the record of the run, the history of releases,
    the samples of people, the intent to publish, and its completion; and once for each earlier release.
    """
    _refuse_other_files(path)
    with private_files():
        _attach(engine, path)
        try:
            _refuse_release(engine, path)
            path.chmod(0o600)  # it may be an existing database
            with engine.transaction():
                _install(engine, path)
                yield
        finally:
            engine.detach(ATTACHED)


def _install(engine: DuckDBEngine, path: Path) -> None:
    """Create the tables of the open catalog, unless they exist."""
    if not _has_tables(engine, path):
        with engine.using(ATTACHED):
            engine.script(read_sql_file("catalog.sql"))


def _has_tables(engine: DuckDBEngine, path: Path) -> bool:
    """Whether the open catalog has its tables; refuse a catalog of another format."""
    has_tables = template("""
        SELECT count(*) > 0
        FROM duckdb_tables()
        WHERE database_name = 'sqlanon_catalog' AND schema_name = 'sqlanon'
            AND table_name IN ('catalog_format', 'runs', 'releases')
    """)
    if not engine.rows(has_tables())[0][0]:
        return False
    try:
        formats = engine.rows(template("SELECT format FROM sqlanon_catalog.sqlanon.catalog_format")())
    except (duckdb.CatalogException, duckdb.BinderException):
        formats = []
    if formats != [(FORMAT,)]:
        state = f"has format {formats[0][0]}" if formats else "does not say which format it has"
        raise SourceError(
            f"the catalog {path} {state}, and this version of sqlanon uses format {FORMAT}: use the version that wrote "
            "it, or name another file under [catalog] database; releases that it records are then not compared with "
            "new ones"
        )
    return True


def _refuse_release(engine: DuckDBEngine, path: Path) -> None:
    """Refuse to use a release as the catalog: the catalog has private values."""
    with suppress(duckdb.CatalogException):
        engine.rows(template("SELECT 1 FROM sqlanon_catalog.sqlanon.manifest LIMIT 0")())
        raise SourceError(
            f"{path} is a release, and the catalog is private: let [catalog] database name another file, or leave "
            "[catalog] out"
        )


def _attach(engine: DuckDBEngine, path: Path) -> None:
    """Attach the catalog as soon as no other process has it open, even for reading."""
    give_up = time.monotonic() + PATIENCE
    try:
        while True:
            try:
                return engine.attach(path, ATTACHED, read_write=True)
            except duckdb.Error as error:
                locked = isinstance(error, duckdb.IOException) and "lock" in str(error)
                if not (locked or _OPEN_IN_PROCESS in str(error)) or time.monotonic() > give_up:
                    raise
                time.sleep(0.02)
    except duckdb.Error as error:
        reason = str(error).splitlines()[0]
        version = read_duckdb_version(path)
        if _OPEN_IN_PROCESS in reason:
            reason = "another run in this process holds it: let that end first"
        elif version is not None and "version number" in reason:
            reason = f"written by DuckDB {version}, and this is DuckDB {duckdb.__version__}: use {version} or newer"
        else:
            reason += "; another run may hold it"
        raise SourceError(
            f"the catalog {path} cannot be opened: {reason}; [catalog] database can name another file"
        ) from error


def catalog_table(name: str) -> exp.Table:
    """A table of the open catalog."""
    return table(name, SCHEMA, ATTACHED)


def insert_records(engine: DuckDBEngine, name: str, *rows: Mapping[str, Any]) -> None:
    """Add rows, of the same columns, to a table of the open catalog."""
    statement = insert_rows(catalog_table(name), rows[0], len(rows))
    engine.execute(statement, [value for row in rows for value in row.values()])


def replace_table(engine: DuckDBEngine, target: exp.Table, query: exp.Query) -> None:
    statement = create_table(target, query)
    statement.set("replace", True)
    engine.execute(statement)


def copy_rows(run: Run, policy: Policy, name: str, query: exp.Query) -> exp.Table:
    """Copy rows of the policy's catalog to a table of the work schema; replace an earlier copy."""
    assert policy.catalog is not None
    target = run.work(name)
    with open_catalog(run.engine, policy.catalog.database):
        replace_table(run.engine, target.copy(), query)
    return target


@contextmanager
def open_read_only(engine: DuckDBEngine, path: Path, name: str = ATTACHED) -> Iterator[bool]:
    """Attach a catalog for reading; yields whether it could be read, and has the tables of a catalog."""
    try:
        engine.attach(path, name, read_only=True)
    except duckdb.Error:
        yield False
        return
    try:
        yield name != ATTACHED or _has_tables(engine, path)
    finally:
        engine.detach(name)


def has_releases(engine: DuckDBEngine, path: Path, source: str, target: Path) -> bool:
    """Whether another catalog has releases of a source, except at one location; False if it cannot be read."""
    # Only tables: a view could run any query.
    count_ledgers = template("""
        SELECT count(*)
        FROM duckdb_tables()
        WHERE database_name = 'sqlanon_catalog_beside' AND schema_name = 'sqlanon' AND table_name = 'releases'
    """)
    count_releases = template("""
        SELECT count(*)
        FROM sqlanon_catalog_beside.sqlanon.releases
        WHERE source = :source AND path <> :location AND replaced_at IS NULL AND NOT draft
    """)(source=source, location=str(target))
    with (
        open_read_only(engine, path, OTHER_CATALOG) as is_readable,
        suppress(duckdb.Error),
    ):  # it may have another format
        return is_readable and bool(engine.rows(count_ledgers())[0][0] and engine.rows(count_releases)[0][0])
    return False


def hierarchy_name(policy_hash: str, attribute: str) -> str:
    """The name of the table with the hierarchy of an attribute in the runs of a policy."""
    return f"hierarchy_{policy_hash[:12]}_{attribute}"


def store_hierarchies(
    engine: DuckDBEngine, policy_hash: str, rules: Mapping[str, Any], hierarchies: Sequence[Hierarchy], now: Any
) -> None:
    """Copy a run's hierarchy tables to the open catalog, and replace those of an earlier run of the same policy."""
    engine.execute(
        fragment("DELETE FROM sqlanon_catalog.sqlanon.hierarchies WHERE policy_hash = :policy")(policy=policy_hash)
    )
    rows = []
    for hierarchy in hierarchies:
        name = hierarchy_name(policy_hash, hierarchy.attribute)
        replace_table(engine, catalog_table(name), select_star(hierarchy.table.copy()))
        row = {"policy_hash": policy_hash, "attribute": hierarchy.attribute}
        row |= {"rule": json.dumps(rules[hierarchy.attribute], ensure_ascii=False)}
        rows.append(row | {"height": hierarchy.height, "leaves": hierarchy.leaves, "table_name": name, "made_at": now})
    insert_records(engine, "hierarchies", *rows)


@contextmanager
def open_recorded_decoys(engine: DuckDBEngine, path: Path, digest: str) -> Iterator[exp.Table | None]:
    """Open the decoys of the release with a digest; None if the catalog has none, or cannot be read."""
    query = template("""
        SELECT d.table_name
        FROM sqlanon_catalog.sqlanon.decoys AS d
        JOIN sqlanon_catalog.sqlanon.releases AS r ON d.run_id = r.run_id
        WHERE r.digest = :digest
        LIMIT 1
    """)
    with open_read_only(engine, path) as is_readable:
        rows = engine.rows(query(digest=digest)) if is_readable else []
        yield catalog_table(rows[0][0]) if rows else None


def _read_rows(engine: DuckDBEngine, path: Path, query: exp.Select) -> list[tuple[Any, ...]]:
    """The rows of a query of a catalog; none if it cannot be read."""
    with open_read_only(engine, path) as is_readable:
        return engine.rows(query) if is_readable else []


def read_recorded_sha256(engine: DuckDBEngine, path: Path, location: str) -> str | None:
    """The hash of the newest file published at a location.

    None if the catalog has none or cannot be read, or if an interrupted run may have published there.
    """
    query = template("""
        SELECT sha256, intended_at IS NULL
        FROM sqlanon_catalog.sqlanon.releases
        WHERE path = :location AND replaced_at IS NULL
        ORDER BY version DESC NULLS LAST
    """)
    rows = _read_rows(engine, path, query(location=location))
    return rows[0][0] if rows and all(is_published for _, is_published in rows) else None


def is_recorded_draft(engine: DuckDBEngine, path: Path, digest: str) -> bool:
    """Whether the catalog has drafts with a digest, and no release; False if it cannot be read."""
    query = template("SELECT bool_and(draft) FROM sqlanon_catalog.sqlanon.releases WHERE digest = :digest")
    return any(is_draft for (is_draft,) in _read_rows(engine, path, query(digest=digest)))


def is_recorded_withdrawal(engine: DuckDBEngine, path: Path, digest: str) -> bool:
    """Whether a release with a digest replaced another without rows that left the source; False if the catalog cannot
    be read."""
    query = template("SELECT 1 FROM sqlanon_catalog.sqlanon.releases WHERE digest = :digest AND NOT withdraws IS NULL")
    return bool(_read_rows(engine, path, query(digest=digest)))


def build_run_record(policy: Policy, generalization: Mapping[str, int | None], **figures: Any) -> dict[str, Any]:
    """The row of a run in the table ``runs``."""
    return {
        **figures,
        "policy": policy.model_dump_json(),
        "policy_hash": policy.fingerprint(),
        "generalization": json.dumps(generalization, ensure_ascii=False),
        "sqlanon_version": __version__,
    }


def record_run(
    engine: DuckDBEngine,
    policy: Policy,
    run: Mapping[str, Any],
    lattice: exp.Table,
    hierarchies: Sequence[Hierarchy],
    decoys: exp.Query | None,
) -> None:
    """Record a run in the policy's catalog: its figures, lattice, hierarchies and decoys.

    Decoys are recorded as they are released: only the catalog distinguishes them from real rows.
    """
    assert policy.catalog is not None
    run_id, now, settings = run["run_id"], run["started_at"], policy.model_dump(mode="json")
    rules = {name: attribute["hierarchy"] for name, attribute in settings["attributes"].items()}
    with open_catalog(engine, policy.catalog.database):
        insert_records(engine, "runs", run)
        insert_lattice = fragment("""
            INSERT INTO sqlanon_catalog.sqlanon.lattice BY NAME
            SELECT :run AS run_id, :columns FROM :lattice
        """)
        engine.execute(insert_lattice(run=run_id, columns=cols(engine.columns(lattice)), lattice=lattice))
        released_hierarchies = [hierarchy for hierarchy in hierarchies if hierarchy.attribute in rules]
        store_hierarchies(engine, policy.fingerprint(), rules, released_hierarchies, now)
        if decoys is not None:
            target = catalog_table(f"decoys_{run_id[:12]}")
            engine.execute(create_table(target.copy(), decoys))
            count = engine.rows(row_count(rows=target))[0][0]
            insert_records(
                engine, "decoys", {"run_id": run_id, "table_name": target.name, "rows": count, "made_at": now}
            )
