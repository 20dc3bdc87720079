"""Digests of released rows.

The *content digest* is a number that depends neither on the order of the rows nor on the engine that computes it.

A cell's number is made of two numbers of its column's name, N and M:

- of an integer or BOOLEAN x, ((x mod 2^31) + 1431655765) * N XOR floor(x / 2^31) * M;
- of any other value h * N, where h is the upper 31 bits of the MD5 of ``=`` and the value's text in DuckDB;
- of NULL 0.

A row's number is the XOR of its cells' numbers, and the digest is the sum, over the rows, of floor(number / 2^32) *
(number mod 2^31).

The macro ``sqlanon.digest`` is what readers have. `digest_by_value` computes the same number for many rows in DuckDB,
and `sqlanon.publish.targets.spark.rows.digest_query` in Spark; tests compare both with the macro.

The content digest detects accidents, but rows can be changed on purpose so that it stays the same. A release on a
server has no file, so the ledger records the *SHA-256 of its rows* instead.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from functools import reduce
from pathlib import Path

from sqlglot import exp

from sqlanon.engines.base import Queryable
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import ReleaseError
from sqlanon.release.visible_values import distinguishing_parts
from sqlanon.support.checks import Check
from sqlanon.support.expressions import (
    aliased,
    anonymous,
    as_column,
    cast,
    col,
    fragment,
    number,
    select,
    subquery,
    template,
    value_or_zero,
)

INTEGER_TYPES = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "BOOLEAN")
"""Types whose values enter the content digest as numbers."""


def column_multipliers(name: str) -> tuple[int, int]:
    """N and M: the upper and the lowest 31 bits of the MD5 of a column's name, whose first byte is the lowest."""
    md5 = int.from_bytes(hashlib.md5(name.encode(), usedforsecurity=False).digest(), "little")
    return md5 >> 97, md5 & (2**31 - 1)


_TEXT = fragment(":value::VARCHAR")
# The text of a time with a zone depends on the session's zone.
_TIME_TEXT = fragment("coalesce(epoch_us(:value)::VARCHAR, :value::VARCHAR)")


def hash_rows(engine: DuckDBEngine, rows: exp.Expr, types: Mapping[str, str]) -> str:
    """The SHA-256 of the sorted SHA-256 hashes of the rows."""
    # The length before each text keeps rows with different cells apart.
    cells = [
        fragment("coalesce(strlen(:text) || ':' || :text, '-')")(
            text=(_TIME_TEXT if type_ == "TIMESTAMP WITH TIME ZONE" else _TEXT)(value=col(name))
        )
        for name, type_ in types.items()
    ]
    digest = hashlib.sha256()
    with engine.stream(
        template("SELECT sha256(:line) AS row_hash FROM :rows ORDER BY row_hash")(
            line=anonymous("concat", *cells), rows=rows.copy()
        )
    ) as reader:
        for batch in reader:
            digest.update("".join(batch.column(0).to_pylist()).encode())
    return digest.hexdigest()


def hash_buckets(server: Queryable, buckets: exp.Select) -> str:
    """The SHA-256 of rows whose hashes a server has hashed in buckets."""
    lines = sorted(f"{bucket}{rows_hash}" for bucket, rows_hash in server.rows(buckets))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


MIN_ROWS = 1_000_000
"""Minimum number of rows for which values are hashed once. (DuckDB hashes texts once by itself.)"""

MIN_REPETITIONS, MAX_VALUES = 8, 2_000_000
"""Columns that are hashed by value: minimum average frequency of a value, and maximum number of values in memory."""


def columns_to_hash_once(types: Mapping[str, str]) -> list[str]:
    """The columns whose equal values have the same text, so that each value can be hashed once."""
    return [
        name
        for name, type_ in types.items()
        if type_ not in (*INTEGER_TYPES, "VARCHAR") and distinguishing_parts(col(name), type_) == [col(name)]
    ]


def approximate_counts(rows: exp.Table, names: Collection[str]) -> exp.Select:
    """Estimate the numbers of distinct values of columns, in one row."""
    return select([fragment("approx_count_distinct(:value)")(value=col(name)) for name in names], rows)


def has_repeated_values(values: int, rows: int) -> bool:
    return values <= min(rows // MIN_REPETITIONS, MAX_VALUES)


def digest_by_value(rows: exp.Table, types: Mapping[str, str], repeated: Collection[str]) -> exp.Select:
    """Compute the digest of rows; each value of the repeated columns is hashed once."""
    query, cells = exp.Select().from_(aliased(rows, "r"), copy=False), []
    for i, (name, type_) in enumerate(types.items()):
        if name not in repeated:
            cells.append(_cell_number(col(name, "r"), name, type_))
            continue
        alias = f"v{i}"
        values = template("SELECT v.value, :cell AS cell FROM (SELECT DISTINCT :value AS value FROM :rows) AS v")(
            cell=_cell_number(col("value", "v"), name, type_), value=col(name), rows=rows
        )
        is_same = col(name, "r").eq(col("value", alias))
        query = query.join(subquery(values, alias), on=is_same, join_type="left", copy=False)
        cells.append(col("cell", alias))
    numbers = [value_or_zero(value=cell) for cell in cells]
    line = reduce(lambda left, right: fragment("xor(:left, :right)")(left=left, right=right), numbers)
    return template("""
        SELECT coalesce(sum((line >> 32) * (line & 2147483647)), 0)::VARCHAR AS digest
        FROM :lines
    """)(lines=subquery(query.select(as_column(line, "line"), copy=False), "lines"))


def _cell_number(value: exp.Expr, name: str, type_: str) -> exp.Expr:
    high, low = (cast(number(multiplier), "BIGINT") for multiplier in column_multipliers(name))
    if type_ in INTEGER_TYPES:
        return fragment("""
            xor(((:value::BIGINT & 2147483647) + 1431655765) * :high, (:value::BIGINT >> 31) * :low)
        """)(value=value, high=high, low=low)
    return fragment("((md5_number('=' || :value::VARCHAR) >> 97)::BIGINT * :high)")(value=value, high=high)


_BLOCK_BYTES = 1 << 20


def file_sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def check_sha256(path: Path, expected: str) -> Check:
    expected = expected.strip().lower()
    if not re.fullmatch("[0-9a-f]{64}", expected):
        raise ReleaseError("sha256: must be 64 hexadecimal digits, as `anonymize` prints them")
    try:
        actual = file_sha256(path)
    except OSError as error:
        raise ReleaseError(f"{path} cannot be read: {error.strerror or error}") from error
    if (log := path.with_name(f"{path.name}.wal")).exists():
        return Check("sha256", False, f"{log.name} is next to it, and DuckDB would apply it to the file: remove it")
    if actual == expected:
        return Check("sha256", True, "the file is unchanged since it was published")
    return Check("sha256", False, f"expected {expected}, found {actual}: the file was changed or is another one")
