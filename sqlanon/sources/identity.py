"""What a source is, in words that stay the same: so the ledger knows which releases are of one table."""

from __future__ import annotations

import json
import os

from sqlglot import parse_one
from sqlglot.errors import SqlglotError

from sqlanon.policy import SourceSection, address_of, server_of, table_parts
from sqlanon.sources.bound import Source


def identity_of(section: SourceSection, place: str | None, is_live: bool, source: Source | None = None) -> str:
    """JSON, the same for the same table."""
    dialect, schema = "duckdb", "main"
    table, asked = (section.table, section.query) if source is None else source.names(section)
    if section.postgres is not None:
        dialect, schema, place = "postgres", "public", server_of(address_of(section.postgres))
    elif section.spark is not None:
        dialect, schema = "spark", "default"
    elif place is None and section.database is not None:
        place = os.path.realpath(section.database)
    parts = list(table_parts(table)) if table else []
    if not (is_live and len(parts) == 3):  # of another database that is attached
        parts = [schema, *parts][-2:] if parts else []  # patients is main.patients
    name = ".".join(parts).lower() if parts else table
    query = None if asked is None else _normal(asked, dialect)
    files = [one if "://" in one else os.path.realpath(one) for one in section.files]
    return json.dumps({"database": place, "table": name, "query": query, "files": files})


def _normal(query: str, dialect: str) -> str:
    """A query in one spelling, as far as it can be read."""
    try:
        return parse_one(query, dialect=dialect).sql(dialect=dialect, comments=False)
    except SqlglotError:
        return query
