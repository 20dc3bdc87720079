"""Format texts, keys and values as TOML."""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Mapping, Sequence
from decimal import Decimal

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def toml_text(value: str) -> str:
    """Format a text as TOML; escape invisible characters and those that change the direction of text.

    >>> print(toml_text('my "col"'), toml_text("a\u202eb"))
    "my \\"col\\"" "a\\u202eb"
    """
    return "".join(map(_escape_invisible, json.dumps(value, ensure_ascii=False)))


def _escape_invisible(char: str) -> str:
    if char == " " or unicodedata.category(char) not in ("Cc", "Cf", "Co", "Cn", "Zl", "Zp", "Zs"):
        return char
    return f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF else f"\\U{ord(char):08x}"


def toml_key(name: str) -> str:
    """Format a key as TOML.

    >>> print(toml_key("zip"), toml_key("my.zip"))
    zip "my.zip"
    """
    return name if _BARE.fullmatch(name) else toml_text(name)


def toml_value(value: object) -> str:
    """Format a value as TOML: a text, number, list or inline table.

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
        return f"{{ {', '.join(f'{toml_key(key)} = {toml_value(item)}' for key, item in value.items())} }}"
    if isinstance(value, Sequence):
        return f"[{', '.join(map(toml_value, value))}]"
    return format(value, "f") if isinstance(value, Decimal) else str(value)
