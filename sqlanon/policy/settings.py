"""Policy keys outside a policy file: overrides such as ``privacy.k=10``, and the keys of ``[source.csv]``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from sqlanon.errors import PolicyError, Problem
from sqlanon.policy.linked import LinkedPolicy, is_linked, read_linked_tree
from sqlanon.policy.linked_sections import LinkedReleaseSection
from sqlanon.policy.models import SECTIONS, Policy, read_file, read_tree, toml_parser
from sqlanon.policy.problems import read_part, unknown_key
from sqlanon.policy.sections import CsvSection, ReleaseSection
from sqlanon.policy.strategies import strategy_traits
from sqlanon.support.fields import nearest_word

_UNQUOTED_TEXT = re.compile(r"[^\s\"'\[\]{}=#,]+")
"""A text such as mondrian, which may stand without quotes although it is not TOML."""


@dataclass(frozen=True)
class Overrides:
    """The changes of the command line to a policy: settings, the strategy, and the file of the release."""

    settings: Sequence[str] = ()
    strategy: str | None = None
    output: Path | None = None


def load_overridden(path: str | os.PathLike[str], overrides: Overrides) -> Policy | LinkedPolicy:
    """Read a policy file and override some of its keys. A `PolicyError` lists every mistake of both."""
    tree, folder = read_file(path)
    problems: list[Problem] = []
    options: dict[str, str] = {}
    if overrides.strategy is not None:
        options["search.strategy"] = "--strategy"
        tree = _replace_strategy(tree, overrides.strategy)
    if overrides.output is not None:
        tree = _replace_output(tree, overrides.output.absolute(), problems)
    for setting in overrides.settings:
        try:
            path_, value = _parse_setting(setting)
            _refuse_unknown_path(tree, path_, value)
            is_strategy = path_ == ["search", "strategy"] and isinstance(value, str)
            tree = _replace_strategy(tree, value) if is_strategy else _replace(tree, path_, value)
            options[".".join(path_)] = f"--set {'.'.join(path_)}"
        except ValueError as error:
            problems.append(Problem(f"--set {setting.partition('=')[0].strip()}", str(error)))
    try:
        if is_linked(tree):
            return LinkedPolicy(**read_linked_tree(tree, folder, problems))
        return Policy.from_file(path, read_tree(tree, folder, problems))
    except PolicyError as error:  # a mistake in an option is not in the policy file
        raise error.with_places(options) from None


def _replace_strategy(tree: Mapping[str, Any], strategy: str) -> dict[str, Any]:
    """Replace the strategy, and drop the keys that the new one ignores."""
    search = tree.get("search", {})
    if not isinstance(search, Mapping):
        return dict(tree)
    used = {key: value for key, value in search.items() if key not in strategy_traits(strategy).ignored_keys}
    return {**tree, "search": {**used, "strategy": strategy}}


def _replace_output(tree: Mapping[str, Any], output: Path, problems: list[Problem]) -> dict[str, Any]:
    """Replace the location of the release by a file."""
    keys, endings = {".duckdb": "database", ".parquet": "file"}, "end in .duckdb or .parquet"
    if is_linked(tree):
        keys, endings = {".duckdb": "database", "": "folder"}, "end in .duckdb, or be a folder without an ending"
    if (key := keys.get(output.suffix.lower())) is None:
        problems.append(Problem("--output", f"must {endings}, and {output.name!r} does not"))
        return dict(tree)
    release = tree.get("release", {})
    if not isinstance(release, Mapping):
        return dict(tree)
    dropped = {*(LinkedReleaseSection if is_linked(tree) else ReleaseSection).LOCATION_KEYS, "schema_name"}
    if release.get("postgres") or release.get("spark"):
        dropped.add("table")  # its schema is on the server
    retained = {name: value for name, value in release.items() if name not in dropped}
    return {**tree, "release": {**retained, key: str(output)}}


def _parse_setting(setting: str) -> tuple[list[str], Any]:
    """The path and the value of a setting. A quoted key may contain an equals sign."""
    for equals in re.finditer("=", setting):
        path = _parse_path(setting[: equals.start()].strip())
        if path is not None:
            return path, _parse_value(setting[equals.end() :].strip())
    raise ValueError("must be KEY=VALUE, as in --set privacy.k=10")


def _parse_path(key: str) -> list[str] | None:
    try:
        tree = toml_parser().loads(f"{key} = 0")
    except (ValueError, RecursionError):
        return None
    path: list[str] = []
    while isinstance(tree, dict):
        if len(tree) != 1:
            return None
        ((step, tree),) = tree.items()
        path.append(step)
    return path


def _parse_value(text: str) -> Any:
    if (value := _toml_value(text)) is not None:
        return value
    if _UNQUOTED_TEXT.fullmatch(text):
        return text
    # The value is not quoted: it may be an address with a password.
    raise ValueError("its value is not TOML: write a text as '\"text\"', a list as '[1, 2]'")


def _toml_value(text: str) -> Any:
    try:
        tree = toml_parser().loads(f"value = {text}")
    except (ValueError, RecursionError):
        return None
    return tree["value"] if set(tree) == {"value"} else None


def _refuse_unknown_path(tree: Mapping[str, Any], path: Sequence[str], value: Any) -> None:
    """Refuse an unknown key for which validation would report nothing, or something less helpful."""
    first = path[0]
    if first == "attributes":
        attributes = tree.get("attributes")
        if isinstance(attributes, Mapping) and path[1:] and path[1] not in attributes and not isinstance(value, dict):
            raise ValueError(unknown_key(path[1], list(attributes), "attribute"))
    elif first not in SECTIONS and not (first == "table" and is_linked(tree)):
        keys = [*SECTIONS, "attributes", *(f"{name}.{key}" for name, model in SECTIONS.items() for key in _keys(model))]
        same_key = [key for key in keys if key.endswith(f".{first}")]
        guess = nearest_word(".".join(path), keys) or nearest_word(first, keys)
        if len(path) == 1 and same_key:
            guess = same_key[0]
        advice = f"did you mean {guess!r}?" if guess else f"known here: {', '.join([*SECTIONS, 'attributes'])}"
        raise ValueError(f"unknown key {'.'.join(path)!r}; {advice}")


def _keys(model: type[BaseModel]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield name
        for inner in get_args(field.annotation) or (field.annotation,):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                yield from (f"{name}.{key}" for key in inner.model_fields)


def _replace(tree: Mapping[str, Any], path: Sequence[str], value: Any) -> dict[str, Any]:
    first, *inner_path = path
    if not inner_path:
        return {**tree, first: value}
    inner = tree.get(first, {})
    if isinstance(inner, list):
        raise ValueError(f"{first!r} is a list: give all of it, as in '{first}=[{{ ... }}]'")
    if not isinstance(inner, Mapping):
        inner = {}
    return {**tree, first: _replace(inner, inner_path, value)}


# --- Keys of [source.csv]


def read_csv_keys(keys: Mapping[str, object], place: str = "source.csv") -> dict[str, object]:
    """Validate the keys and return them in the order of the reference.

    Raises
    ------
    PolicyError
        Lists all unknown keys and wrong values.

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
    """Parse settings such as ``delimiter=;``, where texts need no quotes. None without settings.

    Raises
    ------
    PolicyError
        Lists all wrong settings.
    """
    keys: dict[str, object] = {}
    problems: list[Problem] = []
    for setting in settings:
        key, equals, value = setting.partition("=")
        key = key.strip()
        if not equals or not key:
            problems.append(Problem(f"{option} {setting}".strip(), "must be KEY=VALUE, as in --csv 'delimiter=;'"))
        elif key in keys:
            problems.append(Problem(f"{option} {key}", "is given twice: leave one out"))
        elif key not in CsvSection.model_fields:
            problems.append(Problem(f"{option} {key}", unknown_key(key, list(CsvSection.model_fields))))
        else:
            keys[key] = _parse_csv_value(key, value)
    _, flaws = read_part(CsvSection, keys, option, {})
    problems += (Problem(flaw.place.replace(f"{option}.", f"{option} ", 1), flaw.message) for flaw in flaws)
    if problems:
        raise PolicyError(problems)
    return read_csv_keys(keys) if keys else None


def _parse_csv_value(key: str, text: str) -> object:
    r"""A value in TOML, a text without quotes, or ``\t`` for a tab.

    >>> [_parse_csv_value(*pair) for pair in (("skip", "2"), ("delimiter", ";"), ("quote", '"'), ("quote", ""))]
    [2, ';', '"', '']
    """
    value = _toml_value(f'"{text}"' if text == "\\t" else text)
    if key in ("header", "skip", "footer"):
        return text if value is None else value
    return value if isinstance(value, str | list) else text
