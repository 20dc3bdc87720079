"""The SHA-256 of the rows of a release on a server, which has no file: the ledger keeps it.

A content digest finds accidents, and stays the same under chosen changes; nobody finds other rows with the same
SHA-256. A row's text has each value's text behind its length, so that no two rows share one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from sqlglot import exp

from sqlanon.engines.base import Queries
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.support.expressions import anonymous, col, fragment, template

_AS_TEXT = fragment(":value::VARCHAR")
# The text of a time with a zone depends on the session's zone.
_AS_TIME = fragment("coalesce(epoch_us(:value)::VARCHAR, :value::VARCHAR)")
_CELL = fragment("coalesce(strlen(:text) || ':' || :text, '-')")
_HASHES = template("SELECT sha256(:line) AS row_hash FROM :rows ORDER BY row_hash")


def hash_rows(engine: DuckDBEngine, rows: exp.Expr, types: Mapping[str, str]) -> str:
    """The SHA-256 of the hashes of rows, sorted: it does not depend on the order of the rows."""
    cells = [
        _CELL(text=(_AS_TIME if type_ == "TIMESTAMP WITH TIME ZONE" else _AS_TEXT)(value=col(name)))
        for name, type_ in types.items()
    ]
    line = anonymous("concat", *cells)
    hashed = hashlib.sha256()
    with engine.stream(_HASHES(line=line, rows=rows.copy())) as reader:
        for batch in reader:
            hashed.update("".join(batch.column(0).to_pylist()).encode())
    return hashed.hexdigest()


def hash_buckets(server: Queries, buckets: exp.Select) -> str:
    """The SHA-256 of hashes of rows, which a server has hashed in buckets."""
    lines = sorted(f"{bucket}{rows_hash}" for bucket, rows_hash in server.rows(buckets))
    return hashlib.sha256("".join(lines).encode()).hexdigest()
