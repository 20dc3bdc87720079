"""Digests of released rows.

The *content digest* is a number that depends neither on the order of the rows nor on the engine that computes it.

A cell's number is made of two numbers of its column's name, N and M:

- of an integer or BOOLEAN x, ((x mod 2^31) + 1431655765) * N XOR floor(x / 2^31) * M;
- of any other value h * N, where h is the upper 31 bits of the MD5 of ``=`` and the value's text in DuckDB;
- of NULL 0.

A row's number is the XOR of its cells' numbers, and the digest is the sum, over the rows, of floor(number / 2^32) *
(number mod 2^31).

The macro ``sqlanon.digest`` is what readers have. `sqlanon.release.targets.file.digest` computes the same number for
many rows in DuckDB, and `sqlanon.release.targets.spark.digest` in Spark; tests compare both with the macro.

The content digest detects accidents, but rows can be changed on purpose so that it stays the same. A release on a
server has no file, so the ledger records the *SHA-256 of its rows* instead.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from sqlglot import exp

from sqlanon.engines.base import Queryable
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.support.expressions import anonymous, col, fragment, template

INTEGER_TYPES = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "BOOLEAN")
"""Types whose values enter the content digest as numbers."""


def column_multipliers(name: str) -> tuple[int, int]:
    """N and M: the upper and the lowest 31 bits of the MD5 of a column's name, whose first byte is the lowest."""
    md5 = int.from_bytes(hashlib.md5(name.encode(), usedforsecurity=False).digest(), "little")
    return md5 >> 97, md5 & (2**31 - 1)


# The length before each text keeps rows with different cells apart.
_LENGTH_AND_TEXT = fragment("coalesce(strlen(:text) || ':' || :text, '-')")
_TEXT = fragment(":value::VARCHAR")
# The text of a time with a zone depends on the session's zone.
_TIME_TEXT = fragment("coalesce(epoch_us(:value)::VARCHAR, :value::VARCHAR)")
_ROW_HASHES = template("SELECT sha256(:line) AS row_hash FROM :rows ORDER BY row_hash")


def hash_rows(engine: DuckDBEngine, rows: exp.Expr, types: Mapping[str, str]) -> str:
    """The SHA-256 of the sorted SHA-256 hashes of the rows."""
    cells = [
        _LENGTH_AND_TEXT(text=(_TIME_TEXT if type_ == "TIMESTAMP WITH TIME ZONE" else _TEXT)(value=col(name)))
        for name, type_ in types.items()
    ]
    digest = hashlib.sha256()
    with engine.stream(_ROW_HASHES(line=anonymous("concat", *cells), rows=rows.copy())) as reader:
        for batch in reader:
            digest.update("".join(batch.column(0).to_pylist()).encode())
    return digest.hexdigest()


def hash_buckets(server: Queryable, buckets: exp.Select) -> str:
    """The SHA-256 of rows whose hashes a server has hashed in buckets."""
    lines = sorted(f"{bucket}{rows_hash}" for bucket, rows_hash in server.rows(buckets))
    return hashlib.sha256("".join(lines).encode()).hexdigest()
