"""Numbers as texts: written out, padded with zeros so that they sort, and without the zeros that tell nothing."""

from __future__ import annotations

from sqlglot import exp

from sqlanon.expressions import anonymous, number, text

NUMERAL = r"-?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:e[+-]?[0-9]+)?"
"""The form of a number as the engine writes it: DuckDB writes DECIMAL(2, 2) as ``.50``."""

_SHORT = r"(-?)([0-9])(?:\.([0-9]+))?e([+-]?[0-9]+)"


def part_of(label: exp.Expr, form: str, group: int = 1) -> exp.Expr:
    """A part of a text that has this form; NULL of others, and where the part is empty."""
    part = anonymous("regexp_extract", label.copy(), text(f"^{form}$"), number(group))
    return exp.Nullif(this=part, expression=text(""))


def written_out(numeral: exp.Expr) -> exp.Expr:
    """A number without an exponent: ``0.000015`` of ``1.5e-05``, ``0.50`` of ``.50``, ``0.0`` of ``-0.0``; others as
    they are."""
    sign, first, rest, power = (part_of(numeral, _SHORT, group) for group in range(1, 5))
    sign, rest = (exp.Coalesce(this=one, expressions=[text("")]) for one in (sign, rest))
    exponent = exp.TryCast(this=power, to=exp.DataType.build("INTEGER"))
    digits = exp.DPipe(this=first, expression=rest)
    size = exp.Length(this=rest.copy())

    def zeros(count: exp.Expr) -> exp.Expr:
        return anonymous("repeat", text("0"), count)

    small = exp.Neg(this=exp.Paren(this=exponent.copy())) - 1
    return exp.Case(
        ifs=[
            exp.If(
                this=exponent < 0,
                true=_joined(sign.copy(), text("0."), zeros(small), digits.copy()),
            ),
            exp.If(
                this=exponent >= size,
                true=_joined(sign, digits, zeros(exponent - size), text(".0")),
            ),
        ],
        default=anonymous("regexp_replace", _positive_zero(numeral), text(r"^(-?)\."), text(r"\10.")),
    )


def _positive_zero(numeral: exp.Expr) -> exp.Expr:
    """Floats have a negative zero. It is no less than the other."""
    return anonymous("regexp_replace", numeral.copy(), text(r"^-(0(?:\.0+)?)$"), text(r"\1"))


def whole_digits(numeral: exp.Expr) -> exp.Length:
    """How many digits there are before the point, of a number without an exponent."""
    return exp.Length(this=part_of(numeral, r"-?([0-9]+)(?:\..*)?"))


def padded(numeral: exp.Expr, digits: exp.Expr) -> exp.Expr:
    """A number without an exponent, with at least so many digits before the point: ``-007.5``."""
    zeros = digits - whole_digits(numeral)
    fill = anonymous("repeat", text("0"), anonymous("greatest", zeros, number(0)))
    begun = anonymous("regexp_extract", numeral.copy(), text("^-?"))
    rest = anonymous("ltrim", numeral.copy(), text("-"))
    return _joined(begun, fill, rest)


def plain(numeral: exp.Expr) -> exp.Expr:
    """A number without an exponent, and without zeros that tell nothing: ``7`` of ``007`` and of ``7.00``."""
    whole = anonymous("regexp_replace", numeral.copy(), text(r"^(-?)0+([0-9])"), text(r"\1\2"))
    short = anonymous("regexp_replace", whole, text(r"(\.[0-9]*[1-9])0+$|\.0+$"), text(r"\1"))
    return short


def _joined(*texts: exp.Expr) -> exp.Expr:
    found = texts[0]
    for one in texts[1:]:
        found = exp.DPipe(this=found, expression=one)
    return found
