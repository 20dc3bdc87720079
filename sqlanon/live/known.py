"""What a database has of live views, and of others' things that are in their way."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError
from sqlanon.expressions import anonymous, col, named, select, subquery, table, text, union_all
from sqlanon.live.statements import DEFINITIONS, MARK, SCHEMA, STATUS, Known, status_name, status_query


def known_views(engine: DuckDBEngine) -> list[Known]:
    """The live views of the database that is in use."""
    definitions = table(DEFINITIONS, SCHEMA)
    try:
        engine.types(definitions)
    except duckdb.CatalogException:
        return []
    names = [col(name) for name in ("id", "view_schema", "view_name", "tables")]
    query = select([*names], definitions).order_by(col("id"), copy=False)
    return [Known(n, schema, name, tuple(tables)) for n, schema, name, tables in engine.rows(query)]


def named_so(known: Sequence[Known], schema: str, name: str) -> Known | None:
    """The live view of a name, whatever the case."""
    wanted = (schema.lower(), name.lower())
    return next((one for one in known if (one.schema.lower(), one.name.lower()) == wanted), None)


def refuse_others(engine: DuckDBEngine, before: Known | None, schema: str, name: str) -> None:
    """Refuse to replace what is not ours."""
    found = _found(engine, schema, name)
    if found is not None and (before is None or not _is_ours(found)):
        raise SourceError(f"there is a {found[0]} {name!r} already, which sqlanon live did not make: use another name")
    status = _found(engine, SCHEMA, STATUS)
    if status is not None and not _is_ours(status):
        raise SourceError(f"there is a {status[0]} {SCHEMA}.{STATUS} already, which is not sqlanon's: rename it")


def _is_ours(found: tuple[str, str | None]) -> bool:
    kind, comment = found
    return kind == "view" and (comment or "").startswith(MARK)


def _found(engine: DuckDBEngine, schema: str, name: str) -> tuple[str, str | None] | None:
    """The kind and the comment of a table or view of the database in use."""
    each = []
    for kind in ("table", "view"):
        source = exp.Table(this=anonymous(f"duckdb_{kind}s"))
        wanted = {"schema_name": text(schema), f"{kind}_name": text(name)}
        same = [exp.Lower(this=col(column)).eq(exp.Lower(this=value)) for column, value in wanted.items()]
        here = col("database_name").eq(exp.func("current_database"))
        each.append(select([named(text(kind), "kind"), col("comment")], source).where(here, *same, copy=False))
    rows = engine.rows(union_all(*each))
    return rows[0] if rows else None


def can_be_secure(engine: DuckDBEngine) -> bool:
    """Whether the database in use can have secure views: DuckDB 2 has them, in memory and in files of its version."""
    if int(duckdb.__version__.partition(".")[0]) < 2:
        return False
    source = exp.Table(this=anonymous("duckdb_databases"))
    here = col("database_name").eq(exp.func("current_database"))
    path, tags = engine.rows(select([col("path"), col("tags")], source).where(here, copy=False))[0]
    version = tags.get("storage_version", "")
    return path is None or (version.startswith("v") and int(version[1:].partition(".")[0]) >= 2)


def status_of(engine: DuckDBEngine, known: Known) -> tuple[int, int, int]:
    """Of a live view, now: the rows of its table, how many it leaves out, and how many it may."""
    query = select([col("rows"), col("suppressed"), col("limit")], subquery(status_query([known]), "s"))
    its = [
        col("schema").eq(text(known.schema)),
        col("view").eq(text(known.name)),
    ]
    rows, suppressed, limit = engine.rows(query.where(*its, copy=False))[0]
    return rows, suppressed, limit


def sound(engine: DuckDBEngine, known: Sequence[Known]) -> list[Known]:
    """The live views that can be read: not those whose table is gone, or a column of it."""
    return [one for one in known if _can_be_read(engine, table(status_name(one), SCHEMA))]


def _can_be_read(engine: DuckDBEngine, view: exp.Table) -> bool:
    try:
        engine.types(view)
    except (duckdb.CatalogException, duckdb.BinderException):
        return False
    return True
