"""Spark: its types, and the canonical form of its values."""

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
"""DuckDB types by Spark types."""

_SPARK_TYPES: Mapping[str, str] = {duckdb_type: name for name, duckdb_type in _TYPES.items()} | {
    "UTINYINT": "smallint",
    "USMALLINT": "int",
    "UINTEGER": "bigint",
    "UBIGINT": "decimal(20,0)",
    "HUGEINT": "decimal(38,0)",
    "UUID": "string",
}

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)", re.IGNORECASE)
_TEXTS = re.compile(r"(?:var)?char\(\d+\)|string(?: collate \S+)?")
DIRECT_TYPES = travel.DIRECT_TYPES | {"DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"}
"""Types that are transferred without a cast to text. Dates and times are among them: Spark reads ``0045-01-01 (BC)`` as
a day of the common era, and has its own format for years above 9999."""


def to_duckdb_type(type_: str) -> str | None:
    """DuckDB's type for a Spark type; None without an equal.

    >>> [to_duckdb_type(name) for name in ("decimal(8,2)", "varchar(5)", "timestamp_ntz", "array<int>")]
    ['DECIMAL(8,2)', 'VARCHAR', 'TIMESTAMP', None]
    """
    if match := _DECIMAL.fullmatch(type_):
        return f"DECIMAL({match[1]},{match[2]})"
    return "VARCHAR" if _TEXTS.fullmatch(type_) else _TYPES.get(type_)


def from_duckdb_type(type_: str) -> str | None:
    """The Spark type that holds the values of a DuckDB type, or None.

    >>> [from_duckdb_type(name) for name in ("DECIMAL(8,2)", "VARCHAR", "UTINYINT", "INTEGER[]")]
    ['decimal(8,2)', 'string', 'smallint', None]
    """
    return type_.lower() if _DECIMAL.fullmatch(type_) else _SPARK_TYPES.get(type_)


def canonical_column(name: str, type_: str) -> exp.Expr:
    """A column of Spark in canonical form: values are equal if readers see them as equal."""
    if "collate" in type_:  # a collation may equate texts that readers tell apart
        return anonymous("collate", col(name), text("UTF8_BINARY"))
    if _TEXTS.fullmatch(type_):
        return cast(col(name), TEXT)
    if type_ in ("float", "double"):
        return canonical_float(col(name), type_, anonymous("isnan", col(name)))
    return col(name)


_INVALID_TEXTS = fragment("count_if(NOT is_valid_utf8(:value))", dialect="spark")


def count_invalid_texts(name: str) -> exp.Expr:
    """The number of values of a text column that are not UTF-8, which Spark does not check.

    >>> count_invalid_texts("note").sql("spark")
    'COUNT_IF(NOT IS_VALID_UTF8(`note`))'
    """
    return _INVALID_TEXTS(value=col(name))


def person_id_column(name: str, type_: str) -> exp.Expr:
    """The person ids in a column, compared with Spark's own equality."""
    return person_id(col(name)) if _TEXTS.fullmatch(type_) else col(name)


def escape_variables(statement: exp.Expr) -> exp.Expr:
    """Escape variables in string literals: Spark replaces ``${env:HOME}`` anywhere in a statement.

    >>> escape_variables(text("it's ${env:HOME}")).sql("spark")
    "'it\\\\'s \\\\u0024{env:HOME}'"
    """

    def escape(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Literal) and node.is_string and "${" in node.name:
            return exp.Var(this=node.sql("spark").replace("${", "\\u0024{"))
        return node

    return statement.transform(escape)


SPARK = RemoteDialect(
    "spark",
    TEXT,
    DIRECT_TYPES,
    to_duckdb_type,
    from_duckdb_type,
    canonical_column,
    person_id_column,
    escape_variables,
    count_invalid_texts,
)
