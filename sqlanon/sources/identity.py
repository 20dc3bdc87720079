"""What a source is, in words that stay the same: so the ledger knows which releases are of one table."""

from __future__ import annotations

import json
import os

from sqlglot import parse_one
from sqlglot.errors import SqlglotError

from sqlanon.policy import SourceSection, table_parts
from sqlanon.sources.bound import Source
from sqlanon.sources.kinds import SourceKind


def identity_of(kind: SourceKind, section: SourceSection, source: Source, is_live: bool) -> str:
    """JSON, the same for the same table."""
    table, asked = source.names(section)
    parts = list(table_parts(table)) if table else []
    if not (is_live and len(parts) == 3):  # of another database that is attached
        parts = [kind.schema, *parts][-2:] if parts else []  # patients is main.patients
    name = ".".join(parts).lower() if parts else table
    query = None if asked is None else _normal(asked, kind.dialect)
    files = [one if "://" in one else os.path.realpath(one) for one in section.files]
    return json.dumps({"database": source.home, "table": name, "query": query, "files": files})


def _normal(query: str, dialect: str) -> str:
    """A query in one spelling, as far as it can be read."""
    try:
        return parse_one(query, dialect=dialect).sql(dialect=dialect, comments=False)
    except SqlglotError:
        return query
