"""Numbers and dates in texts, read character by character: nothing of the package is used."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

DIGITS = set("0123456789")


def read_number(text: str, decimal: str, thousands: str | None) -> Decimal | None:
    """A text as a number without an exponent; None where it is not one."""
    text = text.strip(" ")
    sign = ""
    if text[:1] in ("+", "-"):
        sign, text = text[0], text[1:]
    whole, mark, decimals = text.partition(decimal)
    if not (whole or decimals) or not set(decimals) <= DIGITS:
        return None
    if thousands is not None and thousands in whole:
        first, *groups = whole.split(thousands)
        if not 1 <= len(first) <= 3 or any(len(group) != 3 for group in groups):
            return None
        whole = first + "".join(groups)
    elif not whole and not mark:
        return None
    if not set(whole) <= DIGITS:
        return None
    return Decimal(f"{sign}{whole or '0'}.{decimals or '0'}")


def read_day(text: str, order: str, separator: str, pivot: int | None) -> date | None:
    """A text as a date whose parts (``d``, ``m``, and ``y`` or ``Y`` in some order) stand between separators."""
    parts = text.strip(" ").split(separator)
    if len(parts) != len(order):
        return None
    values: dict[str, int] = {}
    for letter, part in zip(order, parts, strict=True):
        lengths = {"d": (1, 2), "m": (1, 2), "y": (2, 2), "Y": (4, 4)}[letter]
        if not lengths[0] <= len(part) <= lengths[1] or not set(part) <= DIGITS:
            return None
        values[letter] = int(part)
    if "y" in values:
        assert pivot is not None
        values["Y"] = max(year for year in range(pivot - 99, pivot + 1) if year % 100 == values["y"])
    try:
        return date(values["Y"], values["m"], values["d"])
    except ValueError:
        return None
