"""The content digest as Spark works it out: the number that ``sqlanon.digest`` gives of the same rows in DuckDB."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from sqlglot import exp

from sqlanon.expressions import anonymous, cast, col, is_null, named, number, select, subquery, text

_HALF = 31
_MASK = 2**_HALF - 1
_THIRD = 1431655765
_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "BOOLEAN")
"""Types whose values are numbers in the digest, not texts."""

_PIECE = 21
"""Sums are worked out in pieces of so many bits: no BIGINT overflows before there are 2 ** 42 rows."""

_SPECIAL = {
    **{"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"},
    # Java writes two digits at least.
    **{"4.9E-324": "5e-324", "-4.9E-324": "-5e-324", "9.9E-324": "1e-323", "-9.9E-324": "-1e-323"},
}
"""Java's text of a number, and DuckDB's."""

_DIGITS = r"[0-9]+"
_SHORTEST = "com.fasterxml.jackson.core.io.schubfach.DoubleToDecimal"
"""In every Spark. Java's own text of a number has digits too many before Java 19."""


def digest_there(relation: exp.Expr, types: Mapping[str, str]) -> exp.Select:
    """One row of ``rows``, ``digest``."""
    columns = [(f"c{i}", name, type_) for i, (name, type_) in enumerate(types.items())]
    raw: list[exp.Expr] = [named(_raw(col(name), type_), cell) for cell, name, type_ in columns]
    hashed: list[exp.Expr] = [
        named(col(cell) if type_ in _NUMBERS else _hash(_text(col(cell), type_)), cell) for cell, _, type_ in columns
    ]
    stages = subquery(select(hashed, subquery(select(raw, relation.copy()), "raw")), "hashed")
    line = subquery(select([named(_line(columns), "line")], stages), "lines")
    high, low = _right(col("line"), 32), _and(col("line"), _MASK)
    product = subquery(select([named(high * low, "product")], line), "rows")
    return select([named(exp.Count(this=exp.Star()), "rows"), named(_total(col("product")), "digest")], product)


def digestible(type_: str) -> bool:
    """Whether a type of DuckDB's has a text in Spark that is the same.

    Numbers of 32 bits have none: DuckDB's text of a few of them has more digits than is needed.

    >>> [digestible(one) for one in ("VARCHAR", "DECIMAL(8,2)", "DOUBLE", "FLOAT", "INTEGER[]")]
    [True, True, True, False, False]
    """
    plain = ("VARCHAR", "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "DOUBLE", "DATE", "TIMESTAMP")
    return type_ in (*plain, "TIMESTAMP WITH TIME ZONE") or _is_decimal(type_)


def _is_decimal(type_: str) -> bool:
    return type_.startswith("DECIMAL(") and type_.endswith(")")


def _raw(value: exp.Expr, type_: str) -> exp.Expr:
    """A value as Spark writes it. (What `reflect` gives is worked out once: a stage of its own.)"""
    if type_ == "DOUBLE":  # it takes no NULL
        some = cast(exp.Coalesce(this=value, expressions=[number(0)]), "DOUBLE")
        shortest = anonymous("reflect", text(_SHORTEST), text("toString"), some)
        return exp.If(this=is_null(value.copy()), true=exp.null(), false=shortest)
    if type_ in _NUMBERS:
        return cast(value, "BIGINT")
    return value if type_ == "VARCHAR" else cast(value, "STRING")


def _text(raw: exp.Expr, type_: str) -> exp.Expr:
    """The same as DuckDB writes it."""
    if type_ == "DOUBLE":
        return _double(raw)
    if _is_decimal(type_):
        width, scale = type_.removeprefix("DECIMAL(").removesuffix(")").split(",")
        return _replaced(raw, "^(-?)0[.]", "$1.") if int(width) == int(scale) else raw
    if type_ == "TIMESTAMP WITH TIME ZONE":
        return exp.DPipe(this=_year(raw), expression=text("+00"))
    return _year(raw) if type_ in ("DATE", "TIMESTAMP") else raw


def _year(raw: exp.Expr) -> exp.Expr:
    """A day, or a time, whose year may have more than four digits, or be before Christ."""
    date = rf"^-?({_DIGITS})(-[0-9][0-9]-[0-9][0-9])(.*)$"
    year, day, rest = (anonymous("regexp_extract", raw.copy(), text(date), number(i)) for i in (1, 2, 3))
    before = cast(year, "INT") + 1
    before_christ = anonymous("concat", anonymous("format_string", text("%04d"), before), day, text(" (BC)"), rest)
    return exp.Case(
        ifs=[
            exp.If(this=_starts(raw, "-") | _starts(raw, "0000"), true=before_christ),
            exp.If(this=_starts(raw, "+"), true=anonymous("substring", raw.copy(), number(2))),
        ],
        default=raw,
    )


def _double(raw: exp.Expr) -> exp.Expr:
    """Java's text of a number as DuckDB writes it: an exponent below -4 or above 15 is shown, and no other."""
    mantissa, power = (anonymous("substring_index", raw.copy(), text("E"), number(i)) for i in (1, -1))
    exponent = cast(power, "INT")
    scientific = anonymous(
        "concat", _replaced(mantissa, "[.]0$", ""), text("e"), anonymous("format_string", text("%+03d"), exponent)
    )
    decimal = cast(cast(raw.copy(), "DECIMAL(38,21)"), "STRING")
    plain = _replaced(_replaced(decimal, "0+$", ""), "[.]$", ".0")
    return exp.Case(
        ifs=[
            *(exp.If(this=raw.eq(text(one)), true=text(ours)) for one, ours in _SPECIAL.items()),
            exp.If(this=~anonymous("contains", raw.copy(), text("E")), true=raw),
            exp.If(this=exp.Between(this=exponent.copy(), low=number(-4), high=number(15)), true=plain),
        ],
        default=scientific,
    )


def _starts(value: exp.Expr, sign: str) -> exp.Expr:
    return anonymous("startswith", value.copy(), text(sign))


def _replaced(value: exp.Expr, pattern: str, by: str) -> exp.Expr:
    return anonymous("regexp_replace", value, text(pattern), text(by))


def _hash(value: exp.Expr) -> exp.Expr:
    """The MD5 of a cell, as hexadecimal digits."""
    return anonymous("md5", anonymous("concat", text("="), value))


def _line(columns: list[tuple[str, str, str]]) -> exp.Expr:
    """A row's number: the XOR of its cells'."""
    cells = [exp.Paren(this=_cell(col(cell), name, type_)) for cell, name, type_ in columns]
    line: exp.Expr = cells[0]
    for cell in cells[1:]:
        line = exp.BitwiseXor(this=line, expression=cell)
    return line


def _cell(value: exp.Expr, name: str, type_: str) -> exp.Expr:
    """A cell's number, of an integer or of the digits of its text's MD5."""
    of_name = int.from_bytes(hashlib.md5(name.encode(), usedforsecurity=False).digest(), "little")
    if type_ in _NUMBERS:
        low = exp.Paren(this=_and(value, _MASK) + cast(number(_THIRD), "BIGINT"))
        high = _right(value.copy(), _HALF)
        found: exp.Expr = exp.BitwiseXor(
            this=exp.Paren(this=_times(low, of_name >> 97)), expression=exp.Paren(this=_times(high, of_name & _MASK))
        )
    else:
        found = _times(_last_bits(value), of_name >> 97)
    return exp.Coalesce(this=found, expressions=[cast(number(0), "BIGINT")])


def _last_bits(digits: exp.Expr) -> exp.Expr:
    """The upper 31 bits of an MD5, read as a number whose last byte comes first."""
    last = anonymous("substring", digits, number(25), number(8))
    value = cast(anonymous("conv", last, number(16), number(10)), "BIGINT")
    bytes_ = (
        _left(_and(value.copy(), 0xFF), 24),
        _left(_and(value.copy(), 0xFF00), 8),
        _and(_right(value.copy(), 8), 0xFF00),
        _right(value, 24),
    )
    return _right(_sum(*bytes_), 1)


def _total(product: exp.Expr) -> exp.Expr:
    """The sum of products of 62 bits and a sign, as text."""
    pieces = []
    for place in (2 * _PIECE, _PIECE, 0):
        piece = _right(product.copy(), place)
        added = exp.Sum(this=piece if place == 2 * _PIECE else _and(piece, 2**_PIECE - 1))  # the first has the sign
        whole = cast(exp.Coalesce(this=added, expressions=[number(0)]), "DECIMAL(28,0)")
        pieces.append((whole * number(2**place)) if place else whole)
    return cast(_sum(*pieces), "STRING")


def _times(value: exp.Expr, by: int) -> exp.Expr:
    return value * cast(number(by), "BIGINT")


def _and(value: exp.Expr, mask: int) -> exp.Expr:
    return exp.Paren(this=exp.BitwiseAnd(this=value, expression=cast(number(mask), "BIGINT")))


def _left(value: exp.Expr, by: int) -> exp.Expr:
    return anonymous("shiftleft", value, number(by))


def _right(value: exp.Expr, by: int) -> exp.Expr:
    return anonymous("shiftright", value, number(by)) if by else value


def _sum(*values: exp.Expr) -> exp.Expr:
    added = values[0]
    for one in values[1:]:
        added = added + one
    return exp.Paren(this=added)
