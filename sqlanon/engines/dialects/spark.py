"""Spark: its types, and the canonical form of its values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

from sqlglot import exp

from sqlanon.engines import travel
from sqlanon.engines.dialects.remote import RemoteDialect
from sqlanon.engines.values import canonical_float
from sqlanon.support.expressions import anonymous, cast, col, fragment, number, text

TEXT = "STRING"
"""Spark's type of text."""


class SparkDialect(RemoteDialect):
    """Spark's dialect.

    >>> [to_duckdb_type(name) for name in ("decimal(8,2)", "varchar(5)", "timestamp_ntz", "array<int>")]
    ['DECIMAL(8,2)', 'VARCHAR', 'TIMESTAMP', None]
    >>> [from_duckdb_type(name) for name in ("DECIMAL(8,2)", "VARCHAR", "UTINYINT", "INTEGER[]")]
    ['decimal(8,2)', 'string', 'smallint', None]
    """

    name = "spark"
    text = TEXT
    types: ClassVar[Mapping[str, str]] = {
        **{"tinyint": "TINYINT", "smallint": "SMALLINT", "int": "INTEGER", "bigint": "BIGINT"},
        **{"float": "FLOAT", "double": "DOUBLE", "boolean": "BOOLEAN", "string": "VARCHAR"},
        **{"date": "DATE", "timestamp_ntz": "TIMESTAMP", "timestamp": "TIMESTAMP WITH TIME ZONE"},
    }
    wider_types: ClassVar[Mapping[str, str]] = {
        **{"UTINYINT": "smallint", "USMALLINT": "int", "UINTEGER": "bigint", "UBIGINT": "decimal(20,0)"},
        **{"HUGEINT": "decimal(38,0)", "UUID": "string"},
    }
    text_types = r"(?:var)?char\(\d+\)|string(?: collate \S+)?"
    # Spark reads ``0045-01-01 (BC)`` as a day of the common era, and has its own format for years above 9999.
    direct_types = travel.DIRECT_TYPES | {"DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"}

    def canonical_column(self, name: str, type_: str) -> exp.Expr:
        if "collate" in type_:  # a collation may equate texts that readers see as different
            return anonymous("collate", col(name), text("UTF8_BINARY"))
        if self.to_duckdb_type(type_) == "VARCHAR":
            return cast(col(name), TEXT)
        if type_ in ("float", "double"):
            return canonical_float(col(name), type_, anonymous("isnan", col(name)))
        return col(name)

    def escape_variables(self, statement: exp.Expr) -> exp.Expr:
        """Escape variables in string literals: Spark replaces ``${env:HOME}`` anywhere in a statement.

        >>> SPARK.escape_variables(text("it's ${env:HOME}")).sql("spark")
        "'it\\\\'s \\\\u0024{env:HOME}'"
        """

        def escape(node: exp.Expr) -> exp.Expr:
            if isinstance(node, exp.Literal) and node.is_string and "${" in node.name:
                return exp.Var(this=node.sql("spark").replace("${", "\\u0024{"))
            return node

        return statement.transform(escape)

    def count_invalid_texts(self, name: str) -> exp.Expr:
        """Count texts that are not valid UTF-8, which Spark does not check.

        >>> SPARK.count_invalid_texts("note").sql("spark")
        'COUNT_IF(NOT IS_VALID_UTF8(`note`))'
        """
        return fragment("count_if(NOT is_valid_utf8(:value))", dialect="spark")(value=col(name))


SPARK = SparkDialect()
to_duckdb_type, from_duckdb_type = SPARK.to_duckdb_type, SPARK.from_duckdb_type


_DRAW = fragment(
    """
    CAST(
        conv(substr(sha2(concat((SELECT secret FROM :secret), uuid()), 256), 1, :digits), 16, 10) AS DOUBLE
    ) / CAST(:numbers AS DOUBLE)
    """,
    dialect="spark",
)

_DIGITS = 13
"""The hexadecimal digits of a random number: a DOUBLE holds 52 bits."""


def draw_with_secret(query: exp.Query, send_secret: Callable[[], exp.Table]) -> exp.Query:
    """A query in which each ``rand()``, from 0 to below 1, depends on the secret of a table (``secret``)."""
    draws = [node for node in query.find_all(exp.Anonymous) if node.name.upper() == "RAND"]
    for draw in draws:
        draw.replace(_DRAW(secret=send_secret(), digits=_DIGITS, numbers=number(16**_DIGITS)))
    return query
