"""The canonical form of values: values that an engine treats as equal look the same to every reader.

Engines compare some values by meaning: NaN equals NaN whatever its sign and payload, -0.0 equals 0.0, 30 days equal
1 month, and texts follow their collation. Readers see different bytes, signs and texts, and could find a single person
in a class of k. Each source brings its columns to canonical form when it is bound: DuckDB in `sources.plain`,
PostgreSQL in `engines.dialects.postgres`, Spark in `engines.dialects.spark`.

The text of a value is DuckDB's text of its canonical form. Other engines format numbers differently (PostgreSQL ``0``,
Spark ``1.0E-5``), so DuckDB creates the text of each distinct value once and uploads it (`coding.TEXT_COLUMN`).
"""

from __future__ import annotations

from sqlglot import exp

from sqlanon.support.expressions import anonymous, cast, fragment, ident, number, text

FLOATING_TYPES = ("FLOAT", "DOUBLE")

WHITE_SPACE = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
"""The characters that Python's ``str.strip`` removes; ignored around person ids in every engine."""


def strip_white_space(value: exp.Expr) -> exp.Trim:
    """Trim white space from a text, in any engine."""
    return exp.Trim(this=value, expression=text(WHITE_SPACE), position="BOTH")


def person_id(value: exp.Expr) -> exp.Expr:
    """The id of a person in a text, in any engine: trimmed, and NULL if nothing remains.

    Persons are counted, searched and compared by this form only: two spellings of an id are never two persons.
    """
    return fragment("nullif(:stripped, '')")(stripped=strip_white_space(value))


def canonical_float(value: exp.Expr, type_: str, is_nan: exp.Expr) -> exp.Expr:
    """The canonical form of a floating-point number, in any engine: a single NaN, and no -0.0."""
    nan = exp.If(this=is_nan, true=cast(text("NaN"), type_))
    return exp.Case(ifs=[nan], default=cast(value + 0, type_))


def canonical_value(value: exp.Expr, type_: str) -> exp.Expr:
    """The canonical form of a DuckDB value that is not nested.

    >>> from sqlanon.support.expressions import col
    >>> canonical_value(col("x"), "VARCHAR").sql("duckdb")
    '"x" COLLATE "binary"'
    """
    if type_ == "VARCHAR":
        return exp.Collate(this=value, expression=ident("binary"))
    if type_ in FLOATING_TYPES:
        # NULLIF hides column statistics: those of Parquet files ignore NaN, and DuckDB 2.0 would therefore fold
        # isnan(x) to FALSE, and isnan(x + 0) as well.
        opaque = exp.Nullif(this=value, expression=number(0))
        return canonical_float(value, type_, anonymous("isnan", opaque))
    if type_ == "INTERVAL":
        return anonymous("normalized_interval", value)  # 30 days become 1 month, 24 hours 1 day
    return value
