"""Spark's types, and values of them that look the same to every reader."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sqlglot import exp

from sqlanon.engines import travel
from sqlanon.engines.dialects.remote import RemoteDialect
from sqlanon.engines.values import canonical_float, person_id
from sqlanon.support.expressions import anonymous, cast, col, fragment, text

TEXT = "STRING"
"""Spark's type of text."""

_TYPES: Mapping[str, str] = {
    "tinyint": "TINYINT",
    "smallint": "SMALLINT",
    "int": "INTEGER",
    "bigint": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "string": "VARCHAR",
    "date": "DATE",
    "timestamp_ntz": "TIMESTAMP",
    "timestamp": "TIMESTAMP WITH TIME ZONE",
}
"""Spark's name of a type, and DuckDB's."""

_THERE: Mapping[str, str] = {ours: theirs for theirs, ours in _TYPES.items()} | {
    "UTINYINT": "smallint",
    "USMALLINT": "int",
    "UINTEGER": "bigint",
    "UBIGINT": "decimal(20,0)",
    "HUGEINT": "decimal(38,0)",
    "UUID": "string",
}

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)", re.IGNORECASE)
_TEXTS = re.compile(r"(?:var)?char\(\d+\)|string(?: collate \S+)?")
PLAIN = travel.DIRECT_TYPES | {"DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"}
"""Types that travel as they are. Dates and times do, as numbers: Spark reads ``0045-01-01 (BC)`` as a day of our era,
and writes years above 9999 in a way of its own."""


def to_duckdb_type(type_: str) -> str | None:
    """DuckDB's name of a type, by Spark's; None where it has no equal.

    >>> [to_duckdb_type(name) for name in ("decimal(8,2)", "varchar(5)", "timestamp_ntz", "array<int>")]
    ['DECIMAL(8,2)', 'VARCHAR', 'TIMESTAMP', None]
    """
    if match := _DECIMAL.fullmatch(type_):
        return f"DECIMAL({match[1]},{match[2]})"
    return "VARCHAR" if _TEXTS.fullmatch(type_) else _TYPES.get(type_)


def from_duckdb_type(type_: str) -> str | None:
    """Spark's name of a type that holds DuckDB's values; None where there is none.

    >>> [from_duckdb_type(name) for name in ("DECIMAL(8,2)", "VARCHAR", "UTINYINT", "INTEGER[]")]
    ['decimal(8,2)', 'string', 'smallint', None]
    """
    return type_.lower() if _DECIMAL.fullmatch(type_) else _THERE.get(type_)


def canonical_column(name: str, type_: str) -> exp.Expr:
    """A column of Spark whose equality is what a reader sees."""
    if "collate" in type_:  # a collation may take what a reader tells apart for the same
        return anonymous("collate", col(name), text("UTF8_BINARY"))
    if _TEXTS.fullmatch(type_):
        return cast(col(name), TEXT)
    if type_ in ("float", "double"):
        return canonical_float(col(name), type_, anonymous("isnan", col(name)))
    return col(name)


_INVALID_TEXTS = fragment("count_if(NOT is_valid_utf8(:value))", dialect="spark")


def count_invalid_texts(name: str) -> exp.Expr:
    """The number of values of a text column that are not UTF-8: Spark takes any bytes for text.

    >>> count_invalid_texts("note").sql("spark")
    'COUNT_IF(NOT IS_VALID_UTF8(`note`))'
    """
    return _INVALID_TEXTS(value=col(name))


def person_id_column(name: str, type_: str) -> exp.Expr:
    """The ids of a column of persons, who are told apart by Spark's own equality."""
    return person_id(col(name)) if _TEXTS.fullmatch(type_) else col(name)


def escape_variables(statement: exp.Expr) -> exp.Expr:
    """A statement without variables in its texts: Spark would replace ``${env:HOME}`` wherever it stands.

    >>> escape_variables(text("it's ${env:HOME}")).sql("spark")
    "'it\\\\'s \\\\u0024{env:HOME}'"
    """

    def escaped(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Literal) and node.is_string and "${" in node.name:
            return exp.Var(this=node.sql("spark").replace("${", "\\u0024{"))
        return node

    return statement.transform(escaped)


SPARK = RemoteDialect(
    "spark",
    TEXT,
    PLAIN,
    to_duckdb_type,
    from_duckdb_type,
    canonical_column,
    person_id_column,
    escape_variables,
    count_invalid_texts,
)
