"""The content digest of rows: a number that does not depend on their order, nor on the engine that works it out.

A cell's number is made of two numbers of its column's name, N and M:

- of an integer or BOOLEAN x, ((x mod 2^31) + 1431655765) * N XOR floor(x / 2^31) * M;
- of any other value h * N, where h is the upper 31 bits of the MD5 of ``=`` and the value's text in DuckDB;
- of NULL 0.

A row's number is the XOR of its cells' numbers, and the digest the sum, over the rows, of floor(number / 2^32) *
(number mod 2^31).

The macro ``sqlanon.digest`` is what readers have. `targets.file_digest` says the same for many rows in DuckDB,
`targets.spark_digest` in Spark; tests hold both against the macro.
"""

from __future__ import annotations

import hashlib

NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "BOOLEAN")
"""Types whose values are numbers in the digest, not texts."""


def column_multipliers(name: str) -> tuple[int, int]:
    """N and M: the upper and the lowest 31 bits of the MD5 of a column's name, whose first byte is the lowest."""
    of_name = int.from_bytes(hashlib.md5(name.encode(), usedforsecurity=False).digest(), "little")
    return of_name >> 97, of_name & (2**31 - 1)
