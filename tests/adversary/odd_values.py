"""Odd values of all types, as SQL: above all those that engines treat as equal and readers can distinguish."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

import duckdb
import pyarrow as pa

BITS = {
    "DOUBLE": (
        0x7FF8000000000000, 0xFFF8000000000000, 0x7FF8000000000001, 0xFFF0000000000002, 0x7FF0000000000001,
        0x0, 0x8000000000000000, 0x1, 0x8000000000000001, 0x3FF0000000000000, 0xBFF0000000000000,
        0x7FF0000000000000, 0xFFF0000000000000,
    ),
    "FLOAT": (
        0x7FC00000, 0xFFC00000, 0x7FC00001, 0xFF800002, 0x0, 0x80000000, 0x1, 0x80000001, 0x3F800000, 0x7F800000,
        0xFF800000,
    ),
}  # fmt: skip
"""Bits of floating-point numbers: NaN with both signs and several payloads, both zeros, the least, 1, infinity."""


def odd_floats(type_: str) -> pa.Table:
    """The numbers of these bits, as they are: an engine may make others of a text."""
    code, width = ("<d", 8) if type_ == "DOUBLE" else ("<f", 4)
    raw = b"".join(bits.to_bytes(width, "little") for bits in BITS[type_])
    kind = pa.float64() if type_ == "DOUBLE" else pa.float32()
    assert struct.calcsize(code) == width
    values = pa.Array.from_buffers(kind, len(BITS[type_]), [None, pa.py_buffer(raw)])
    return pa.table({"i": list(range(len(values))), "x": values})


def _cast(type_: str, *texts: str) -> list[str]:
    return [f"CAST('{text}' AS {type_})" for text in texts]


INTERVALS = _cast(
    "INTERVAL", "30 days", "1 month", "720 hours", "29 days 24 hours", "-30 days", "-1 month", "1 month -30 days",
    "-1 month 30 days", "00:00:00", "1 day", "24 hours", "23:59:59.999999", "-1 day 1 hour", "-23 hours",
    "2 months -1 day", "59 days", "2147483647 months 30 days", "2147483646 months 60 days",
    "2147483647 months -30 days", "2147483646 months", "-2147483648 months -30 days", "-2147483647 months -60 days",
)  # fmt: skip

SCALARS: Mapping[str, list[str]] = {
    "BOOLEAN": ["true", "false"],
    **{
        name: _cast(name, "0", "1", "7")
        for name in (
            "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT",
            "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT",
        )
    },
    "BIGNUM": _cast("BIGNUM", "0", "-0", "00", "7", "007", "-7", "123456789012345678901234567890123456789012345"),
    "DECIMAL": _cast("DECIMAL(4,2)", "0", "-0", "-0.00", "0.001", "1.5", "1.50", "-1.5"),
    "FLOAT": [f"(SELECT x FROM odd_float WHERE i = {i})" for i in range(len(BITS["FLOAT"]))],
    "DOUBLE": [
        *(f"(SELECT x FROM odd_double WHERE i = {i})" for i in range(len(BITS["DOUBLE"]))),
        "-('nan'::DOUBLE)", "'inf'::DOUBLE - 'inf'::DOUBLE", "0.0::DOUBLE * -1", "sqrt(0::DOUBLE)",
    ],
    "VARCHAR": [
        "'a'", "'A'", "'a '", "' a'", "'ä'", "'a\u0308'", "'Ä'", "''", "'NULL'", "'a' || chr(0)", "'ß'", "'ss'",
        "'x'::VARCHAR(3)", "'x  '::CHAR(3)",
    ],
    "JSON": _cast("JSON", '{"a": 1}', '{"a":1}', "1", "1.0", "null"),
    "BLOB": ["'a'::BLOB", "'A'::BLOB", "'a\\x00'::BLOB", "''::BLOB", "'\\xC3\\xA4'::BLOB"],
    "BIT": [
        *_cast("BIT", "0", "00", "1", "01", "0000000", "00000000", "000000000", "1010"),
        "~'0101'::BIT", "'0101'::BIT << 1", "'0101'::BIT || '1'::BIT", "'01011'::BIT", "set_bit('00000'::BIT, 1, 1)",
        "'01000'::BIT", "'11000'::BIT & '01111'::BIT",
    ],
    "UUID": _cast("UUID", "00000000-0000-0000-0000-000000000001", "F0000000-0000-0000-0000-000000000001",
                  "f0000000-0000-0000-0000-000000000001"),
    "DATE": _cast("DATE", "2020-01-01", "infinity", "-infinity", "0044-03-15 (BC)", "10000-01-01"),
    "TIME": _cast("TIME", "00:00:00", "24:00:00", "12:00:00", "12:00:00.000001"),
    "TIME_NS": _cast("TIME_NS", "00:00:00", "24:00:00", "12:00:00", "12:00:00.000000001"),
    "TIME WITH TIME ZONE": _cast("TIMETZ", "12:00:00+00", "14:00:00+02", "13:00:00+01", "00:00:00+02", "22:00:00+00",
                                 "24:00:00+00", "00:00:00+00", "12:00:00-00"),
    "TIMESTAMP": _cast("TIMESTAMP", "2020-01-01", "2020-01-01 00:00:00", "infinity", "-infinity", "0044-03-15 (BC)"),
    **{
        name: _cast(name, "2020-01-01", "2020-01-01 00:00:00", "1969-12-31 23:59:59")
        for name in ("TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMPTZ_NS")
    },
    "TIMESTAMP WITH TIME ZONE": _cast("TIMESTAMPTZ", "2020-01-01 12:00:00+00", "2020-01-01 14:00:00+02",
                                      "2020-01-01 12:00:00.000001+00", "infinity", "-infinity"),
    "INTERVAL": INTERVALS,
    "ENUM": ["'a'::ENUM('a', 'A', 'b')", "'A'::ENUM('a', 'A', 'b')", "'b'::ENUM('a', 'A', 'b')"],
    "GEOMETRY": ["'POINT(0 0)'::GEOMETRY", "'POINT(-0 0)'::GEOMETRY", "'POINT (0.0 0)'::GEOMETRY",
                 "'POINT EMPTY'::GEOMETRY"],
    "VARIANT": [
        *(f"({text})::VARIANT" for text in (
            "1", "1::TINYINT", "1.0", "1::DOUBLE", "'1'", "0.0::DOUBLE", "-0.0::DOUBLE", "'nan'::DOUBLE",
            "-('nan'::DOUBLE)", "1.50::DECIMAL(5,2)", "1.5::DECIMAL(5,1)", "DATE '2020-01-01'",
            "TIMESTAMP '2020-01-01'", "INTERVAL 30 DAYS", "INTERVAL 1 MONTH", "{'a': 1, 'b': 2}", "{'b': 2, 'a': 1}",
            "[1]", "[1.0]",
        )),
    ],
}  # fmt: skip
"""By DuckDB's logical type, its values. NULL is one of each."""

COLLATED = [
    f"'{text}' COLLATE {collation}" for text in ("a", "A", "ä", "b") for collation in ("NOCASE", "NOCASE.NOACCENT")
]
"""Texts that a collation takes for equal. A query, or a table made of one, may have them in lists and structs."""


def nested_literals(values: Iterable[str], type_: str) -> dict[str, list[str]]:
    """The same values in nested types."""
    literals = list(values)
    expressions = {
        "LIST": [f"[{literal}]" for literal in literals],
        "ARRAY": [f"array_value({literal})" for literal in literals],
        "STRUCT": [f"struct_pack(\"a b\" := {literal}, size := 1)" for literal in literals],
        "TUPLE": [f"row({literal}, 1)" for literal in literals],
        "MAP": [f"MAP {{1: {literal}}}" for literal in literals],
        "MAP of keys": [f"MAP {{{literal}: 1}}" for literal in literals],
        "UNION": [f"union_value(u := {literal})" for literal in literals],
        "deep": [f"[struct_pack(size := MAP {{'k': [{literal}, NULL]}}), NULL]" for literal in literals],
        "deeper": [f"MAP {{1: union_value(u := row([{literal}]))}}" for literal in literals],
    }  # fmt: skip
    if "COLLATE" not in literals[0]:
        expressions["UNION of two"] = [
            f"union_value({tag} := {literal})::UNION(a {type_}, b {type_})"
            for literal in literals
            for tag in ("a", "b")
        ]
    return expressions


def with_odd_floats(connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """A connection that has the tables that `SCALARS` speaks of."""
    for type_ in BITS:
        arrow = odd_floats(type_)
        connection.register("arrow_floats", arrow)
        connection.execute(f"CREATE TABLE odd_{type_.lower()} AS FROM arrow_floats")
        connection.unregister("arrow_floats")
    return connection
