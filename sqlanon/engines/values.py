"""One form of each value: values that an engine takes for equal look the same to every reader.

Engines compare some values by their meaning: NaN with NaN whatever their sign and payload, -0.0 with 0.0, 30 days with
1 month, text by its collation. Readers of bytes, signs and texts tell these apart, and would find one person in a class
of k. Each source brings its columns to one form where it is bound: DuckDB in `sources.relation`, PostgreSQL in
`engines.dialects.postgres`, Spark in `engines.dialects.spark`.

The text of a value is DuckDB's text of that form. Other engines write numbers in their own ways (PostgreSQL ``0``,
Spark ``1.0E-5``): the text is made here, once for each distinct value, and shipped to them (`coding.TEXT_COLUMN`).
"""

from __future__ import annotations

from sqlglot import exp

from sqlanon.support.expressions import anonymous, cast, fragment, ident, number, text

FLOATING_TYPES = ("FLOAT", "DOUBLE")

WHITE_SPACE = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
"""What Python's ``str.strip`` removes: around an id these characters do not count, in any engine."""

_PERSON_ID = fragment("nullif(:stripped, '')")


def strip_white_space(value: exp.Expr) -> exp.Trim:
    """A text of any engine without the white space around it."""
    return exp.Trim(this=value, expression=text(WHITE_SPACE), position="BOTH")


def person_id(value: exp.Expr) -> exp.Expr:
    """The id of a person in a text of any engine: without the white space around it, and NULL where nothing is left.

    Persons are counted, searched and compared by this form alone: two spellings of an id are never two persons.
    """
    return _PERSON_ID(stripped=strip_white_space(value))


def canonical_float(value: exp.Expr, type_: str, is_nan: exp.Expr) -> exp.Expr:
    """A floating-point number of any engine: one NaN, and no -0.0."""
    nan = exp.If(this=is_nan, true=cast(text("NaN"), type_))
    return exp.Case(ifs=[nan], default=cast(value + 0, type_))


def canonical_value(value: exp.Expr, type_: str) -> exp.Expr:
    """A value of DuckDB's that is not nested.

    >>> from sqlanon.support.expressions import col
    >>> canonical_value(col("x"), "VARCHAR").sql("duckdb")
    '"x" COLLATE "binary"'
    """
    if type_ == "VARCHAR":
        return exp.Collate(this=value, expression=ident("binary"))
    if type_ in FLOATING_TYPES:
        # NULLIF hides what the engine believes of a column: DuckDB 2.0 takes the statistics of a Parquet file, which
        # leave NaN out, to mean that there is none, and makes FALSE of isnan(x), also of isnan(x + 0).
        hidden = exp.Nullif(this=value, expression=number(0))
        return canonical_float(value, type_, anonymous("isnan", hidden))
    if type_ == "INTERVAL":
        return anonymous("normalized_interval", value)  # 30 days become 1 month, 24 hours 1 day
    return value
