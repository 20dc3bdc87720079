"""Keys of ``[source.csv]`` without a policy: as Python values, or as ``KEY=VALUE`` on the command line."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from sqlanon.errors import PolicyError, Problem
from sqlanon.policy.problems import read_part, unknown_key
from sqlanon.policy.sections import CsvSection

_OTHERS_THAN_TEXTS = ("header", "skip", "footer")
_EXAMPLE = "--csv 'delimiter=;'"


def read_csv_keys(keys: Mapping[str, object], place: str = "source.csv") -> dict[str, object]:
    """The keys in the order of the reference.

    Raises
    ------
    PolicyError
        With all unknown keys and wrong values.

    Examples
    --------
    >>> read_csv_keys({"skip": 2, "delimiter": ";"})
    {'delimiter': ';', 'skip': 2}
    """
    _, problems = read_part(CsvSection, dict(keys), place, {})
    if problems:
        raise PolicyError(problems, "the arguments")
    return {name: keys[name] for name in CsvSection.model_fields if name in keys}


def parse_csv_settings(settings: Sequence[str], option: str = "--csv") -> dict[str, object] | None:
    """The keys of settings such as ``delimiter=;``: a text needs no quotes. None without settings.

    Raises
    ------
    PolicyError
        With all settings that are wrong.
    """
    keys: dict[str, object] = {}
    problems: list[Problem] = []
    for setting in settings:
        key, equals, value = setting.partition("=")
        key = key.strip()
        if not equals or not key:
            problems.append(Problem(f"{option} {setting}".strip(), f"must be KEY=VALUE, as in {_EXAMPLE}"))
        elif key in keys:
            problems.append(Problem(f"{option} {key}", "is given twice: leave one out"))
        elif key not in CsvSection.model_fields:
            problems.append(Problem(f"{option} {key}", unknown_key(key, list(CsvSection.model_fields))))
        else:
            keys[key] = _parse_value(key, value)
    _, wrong = read_part(CsvSection, keys, option, {})
    problems += (Problem(problem.place.replace(f"{option}.", f"{option} ", 1), problem.message) for problem in wrong)
    if problems:
        raise PolicyError(problems)
    return read_csv_keys(keys) if keys else None


def _parse_value(key: str, text: str) -> object:
    r"""A value as TOML has it; a text without quotes as it stands, and ``\t`` as a tab.

    >>> _parse_value("skip", "2"), _parse_value("delimiter", ";"), _parse_value("quote", '"'), _parse_value("quote", "")
    (2, ';', '"', '')
    """
    written = f'"{text}"' if text == "\\t" else text
    value = _toml_value(written)
    if key in _OTHERS_THAN_TEXTS:
        return text if value is None else value
    return value if isinstance(value, str | list) else text


def _toml_value(text: str) -> Any:
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        tree = toml.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return None
    return tree["value"] if set(tree) == {"value"} else None
