"""Addresses of servers, as policies write them: themselves, or the name of an environment variable that has them.

A password or a token stands in no policy: many read one, and it is kept in catalogs and in version control.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from sqlanon.errors import SourceError
from sqlanon.fields import shown

_VARIABLE = "env:"


def is_variable(place: str) -> bool:
    """Whether a text names an environment variable.

    >>> is_variable("env:HOSPITAL"), is_variable("postgresql://db/hospital")
    (True, False)
    """
    return place.startswith(_VARIABLE)


def value_of(place: str) -> str:
    """What the environment has for ``env:NAME``, if anything; any other text itself."""
    return os.environ.get(place[len(_VARIABLE) :], "") if is_variable(place) else place


def address_in(place: str, is_right: Callable[[str], bool], which: str) -> str:
    """The address itself: of ``env:NAME``, what the environment says. No error says what a variable holds."""
    address = value_of(place)
    if is_variable(place) and not is_right(address):
        wrong = f"holds no address {which}" if address else "is not set"
        raise SourceError(f"the environment variable {place[len(_VARIABLE) :]} {wrong}")
    return address


def written(value: object, such_as: str) -> str:
    """What is written for an address, if it can be one: a text that has something in it."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"must be an address in quotes, such as {such_as}, not {shown(value)}")
    if is_variable(value) and not value[len(_VARIABLE) :].strip():
        raise ValueError('names no environment variable: write "env:NAME"')
    return value
