"""Declared types of columns, and the formats of dates."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, TypeAlias

from sqlanon.support.fields import Flaw

ColumnType: TypeAlias = Literal["integer", "number", "date", "timestamp", "text"]

THOUSANDS = (".", ",", " ", "'", "’", "_", "\u00a0", "\u202f")
"""The marks between groups of three digits; the last two are non-breaking spaces."""

DIRECTIVES = {
    **{"d": "[0-9]{1,2}", "m": "[0-9]{1,2}", "Y": "[0-9]{4}", "y": "[0-9]{2}"},
    **{"b": "[A-Za-z]{3}", "B": "[A-Za-z]+", "j": "[0-9]{1,3}"},
    **{
        "H": "[0-9]{1,2}",
        "I": "[0-9]{1,2}",
        "p": "[AaPp][Mm]",
        "M": "[0-9]{1,2}",
        "S": "[0-9]{1,2}",
        "f": "[0-9]{1,6}",
    },
}
"""The RE2 pattern of each directive of a format."""

_CLOCK = set("HIpMSf")
_DIRECTIVE = re.compile("%(.?)", re.DOTALL)


def directives(format_: str) -> list[str]:
    """The directives of a format, without the percent signs.

    >>> directives("%d.%m.%y 100 %%")
    ['d', 'm', 'y']
    """
    return [letter for letter in _DIRECTIVE.findall(format_) if letter != "%"]


def format_pattern(format_: str) -> str:
    """The RE2 pattern of a format; a year of two digits is the second of three groups.

    >>> format_pattern("%d.%m.%Y"), format_pattern("%m/%y")
    ('[0-9]{1,2}\\\\.[0-9]{1,2}\\\\.[0-9]{4}', '([0-9]{1,2}/)([0-9]{2})()')
    """
    parts = [""]
    position = 0
    for directive in _DIRECTIVE.finditer(format_):
        parts[-1] += re.escape(format_[position : directive.start()])
        position = directive.end()
        if directive[1] == "y":
            parts += [DIRECTIVES["y"], ""]
        else:
            parts[-1] += DIRECTIVES.get(directive[1], "%")
    parts[-1] += re.escape(format_[position:])
    return parts[0] if len(parts) == 1 else "".join(f"({part})" for part in parts)


def reading_flaws(type_: ColumnType | None, format_: str | None, pivot: int | None) -> Iterator[Flaw]:
    """Find flaws in the ``type``, ``format`` and ``pivot`` of an attribute."""
    if format_ is None:
        if pivot is not None:
            yield ("pivot",), "applies to a format with years of two digits, %y: add format = ..., or remove it"
        return
    if type_ not in ("date", "timestamp"):
        yield ("format",), 'applies to dates: add type = "date" or type = "timestamp", or remove it'
        return
    letters = directives(format_)
    if unknown := [letter for letter in letters if letter not in DIRECTIVES]:
        names = ", ".join(f"%{letter}" for letter in DIRECTIVES)
        yield ("format",), f"%{unknown[0]} is not supported; the parts are {names}"
        return
    yield from _format_flaws(type_, letters)
    if "y" not in letters and pivot is not None:
        yield ("pivot",), "applies to years of two digits, and the format has no %y: remove it"
    if "y" in letters and pivot is None:
        message = "is missing: %y is a year of two digits; add the last year that they can mean, as in pivot = 2026"
        yield ("pivot",), message


def _format_flaws(type_: ColumnType, letters: list[str]) -> Iterator[Flaw]:
    if twice := [letter for letter in dict.fromkeys(letters) if letters.count(letter) > 1]:
        yield ("format",), f"has %{twice[0]} twice"
    parts = set(letters)
    if len(parts & {"Y", "y"}) != 1:
        yield ("format",), "needs one year, %Y or %y"
    if "j" not in parts and not ("d" in parts and parts & {"m", "b", "B"}):
        yield ("format",), "needs a day and a month, such as %d and %m: a partial date is not a date"
    if type_ == "date" and parts & _CLOCK:
        yield ("format",), 'has a time of day, which a date does not hold: set type = "timestamp"'
    if type_ == "timestamp" and not ("H" in parts or {"I", "p"} <= parts):
        yield ("format",), 'has no hour (%H, or %I with %p): set type = "date"'
