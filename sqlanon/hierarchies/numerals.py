"""Numbers as texts: without exponents, padded with zeros for sorting, or without insignificant zeros."""

from __future__ import annotations

from sqlglot import exp

from sqlanon.support.expressions import fragment

NUMERAL = r"-?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:e[+-]?[0-9]+)?"
"""The form of a number as DuckDB formats it: DECIMAL(2, 2) may be ``.50``."""

_SHORT = r"(-?)([0-9])(?:\.([0-9]+))?e([+-]?[0-9]+)"


def extract_part(label: exp.Expr, form: str, group: int = 1) -> exp.Expr:
    """A group of a text that matches this form; NULL if the text does not match or the group is empty."""
    return fragment("nullif(regexp_extract(:text, :form, :group), '')")(text=label, form=f"^{form}$", group=group)


def expand_exponent(numeral: exp.Expr) -> exp.Expr:
    """A number without an exponent: ``0.000015`` for ``1.5e-05``, ``0.50`` for ``.50``, ``0.0`` for ``-0.0``."""
    sign, first, decimals, power = (extract_part(numeral, _SHORT, group) for group in range(1, 5))
    # Negative zero becomes zero.
    return fragment(r"""
        CASE
            WHEN TRY_CAST(:power AS INTEGER) < 0
                THEN coalesce(:sign, '') || '0.' || repeat('0', -TRY_CAST(:power AS INTEGER) - 1) || :first
                    || coalesce(:rest, '')
            WHEN TRY_CAST(:power AS INTEGER) >= length(coalesce(:rest, ''))
                THEN coalesce(:sign, '') || :first || coalesce(:rest, '')
                    || repeat('0', TRY_CAST(:power AS INTEGER) - length(coalesce(:rest, ''))) || '.0'
            ELSE regexp_replace(regexp_replace(:numeral, '^-(0(?:\.0+)?)$', '\1'), '^(-?)\.', '\10.')
        END
    """)(sign=sign, first=first, rest=decimals, power=power, numeral=numeral)


def count_whole_digits(numeral: exp.Expr) -> exp.Expr:
    """Number of digits before the point, of a number without an exponent."""
    return fragment("length(:text)")(text=extract_part(numeral, r"-?([0-9]+)(?:\..*)?"))


def pad_whole_digits(numeral: exp.Expr, digits: exp.Expr) -> exp.Expr:
    """A number without an exponent, padded to a number of digits before the point: ``-007.5``."""
    return fragment("""
        regexp_extract(:numeral, '^-?') || repeat('0', greatest(:digits - :whole, 0)) || ltrim(:numeral, '-')
    """)(numeral=numeral, digits=digits, whole=count_whole_digits(numeral))


def trim_zeros(numeral: exp.Expr) -> exp.Expr:
    """A number without an exponent or insignificant zeros: ``7`` for ``007`` and ``7.00``."""
    return fragment(r"""
        regexp_replace(
            regexp_replace(:numeral, '^(-?)0+([0-9])', '\1\2'), '(\.[0-9]*[1-9])0+$|\.0+$', '\1'
        )
    """)(numeral=numeral)
