"""Texts, names and values as TOML writes them."""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Mapping, Sequence
from decimal import Decimal

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def toml_text(value: str) -> str:
    """A text as TOML writes it. Characters that nobody sees, or that turn the direction of a line, are escaped.

    >>> print(toml_text('my "col"'), toml_text("a\u202eb"))
    "my \\"col\\"" "a\\u202eb"
    """
    return "".join(map(_visible, json.dumps(value, ensure_ascii=False)))


def _visible(one: str) -> str:
    if one == " " or unicodedata.category(one) not in ("Cc", "Cf", "Co", "Cn", "Zl", "Zp", "Zs"):
        return one
    return f"\\u{ord(one):04x}" if ord(one) <= 0xFFFF else f"\\U{ord(one):08x}"


def toml_key(name: str) -> str:
    """A key as TOML writes it.

    >>> print(toml_key("zip"), toml_key("my.zip"))
    zip "my.zip"
    """
    return name if _BARE.fullmatch(name) else toml_text(name)


def toml_value(value: object) -> str:
    """A value as TOML writes it: a text, a number, a list, a table in one line.

    >>> print(toml_value({"intervals": [Decimal("0.5"), 5]}))
    { intervals = [0.5, 5] }
    >>> print(toml_value([True, "ages.csv"]))
    [true, "ages.csv"]
    """
    if isinstance(value, (str, os.PathLike)):
        return toml_text(os.fspath(value))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{toml_key(key)} = {toml_value(one)}' for key, one in value.items())} }}"
    if isinstance(value, Sequence):
        return f"[{', '.join(map(toml_value, value))}]"
    return format(value, "f") if isinstance(value, Decimal) else str(value)
