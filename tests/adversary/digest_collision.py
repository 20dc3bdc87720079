"""Rows that are changed so that the content digest of a release stays: it finds accidents, not forgeries."""

from __future__ import annotations

import hashlib

from sqlanon.release.digests import column_multipliers

_LOW = 2**31 - 1
_ADDED = 1431655765
_TRIED = 2**17


def numbers_that_hide(change: tuple[str, str, str], columns: tuple[str, str], values: tuple[int, int]) -> list[int]:
    """The values of two BIGINT columns with which a row has the same number when a text is changed.

    ``change`` is the text's column, its value and the new one; ``columns`` have odd numbers of their names.
    """
    name, before, after = change
    wanted = _text_cell(name, before) ^ _text_cell(name, after)
    for column, value in zip(columns, values, strict=True):
        wanted ^= _number_cell(column, value)
    first, second = columns
    upper = {_number_cell(first, value) >> 32: value for value in _values_with_low_bits(first, 0)}
    for value in _values_with_low_bits(second, wanted & _LOW):
        partner = upper.get((wanted ^ _number_cell(second, value)) >> 32)
        if partner is not None:
            return [partner, value]
    raise AssertionError("no values were found: try more")


def _values_with_low_bits(column: str, bits: int) -> list[int]:
    """Values whose cells have these 31 bits at their end."""
    high, low = column_multipliers(column)
    inverse = pow(high, -1, 2**31)
    return [(part << 31) | (((bits ^ (part * low)) * inverse - _ADDED) & _LOW) for part in range(_TRIED)]


def _number_cell(column: str, value: int) -> int:
    high, low = column_multipliers(column)
    return (((value & _LOW) + _ADDED) * high) ^ ((value >> 31) * low)


def _text_cell(column: str, value: str) -> int:
    digits = hashlib.md5(f"={value}".encode(), usedforsecurity=False).digest()
    return (int.from_bytes(digits, "little") >> 97) * column_multipliers(column)[0]
