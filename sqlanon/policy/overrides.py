"""Keys of a policy that the command line overrides: ``privacy.k=10``, as they would stand in the file."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from sqlanon.errors import PolicyError, Problem
from sqlanon.policy.models import SECTIONS, Policy, read_file, read_tree
from sqlanon.policy.strategies import strategy_traits
from sqlanon.support.fields import nearest

_TEXT = re.compile(r"[^\s\"'\[\]{}=#,]+")
"""A value without quotes that TOML does not know is a text, such as mondrian."""

_EXAMPLE = "--set privacy.k=10"


@dataclass(frozen=True)
class Overrides:
    """What the command line changes in a policy: settings, the strategy, and the file of the release."""

    settings: Sequence[str] = ()
    strategy: str | None = None
    output: Path | None = None


def load_overridden(path: str | os.PathLike[str], overrides: Overrides) -> Policy:
    """Read a policy file and override some of its keys. A `PolicyError` has every mistake of both."""
    tree, folder = read_file(path)
    problems: list[Problem] = []
    options: dict[str, str] = {}
    if overrides.strategy is not None:
        options["search.strategy"] = "--strategy"
        tree = _with_strategy(tree, overrides.strategy)
    if overrides.output is not None:
        tree = _with_output(tree, overrides.output.absolute(), problems)
    for setting in overrides.settings:
        try:
            place, value = _parsed(setting)
            _check(tree, place, value)
            is_strategy = place == ["search", "strategy"] and isinstance(value, str)
            tree = _with_strategy(tree, value) if is_strategy else _replaced(tree, place, value)
            options[".".join(place)] = f"--set {'.'.join(place)}"
        except ValueError as error:
            problems.append(Problem(f"--set {setting.partition('=')[0].strip()}", str(error)))
    try:
        return Policy.from_file(path, read_tree(tree, folder, problems))
    except PolicyError as error:  # what an option says wrongly is not in the policy file
        raise error.with_places(options) from None


def _with_strategy(tree: Mapping[str, Any], strategy: str) -> dict[str, Any]:
    """Another strategy; keys that only the policy's own strategy knows are left out."""
    search = tree.get("search", {})
    if not isinstance(search, Mapping):
        return dict(tree)
    kept = {key: value for key, value in search.items() if key not in strategy_traits(strategy).ignored_keys}
    return {**tree, "search": {**kept, "strategy": strategy}}


def _with_output(tree: Mapping[str, Any], output: Path, problems: list[Problem]) -> dict[str, Any]:
    """A file in place of wherever the policy publishes to."""
    keys = {".duckdb": "database", ".parquet": "file"}
    if (key := keys.get(output.suffix.lower())) is None:
        problems.append(Problem("--output", f"must end in .duckdb or .parquet, and {output.name!r} does not"))
        return dict(tree)
    release = tree.get("release", {})
    if not isinstance(release, Mapping):
        return dict(tree)
    places = {"database", "file", "postgres", "spark"}
    if release.get("postgres") or release.get("spark"):
        places.add("table")  # it has a schema there
    kept = {name: value for name, value in release.items() if name not in places}
    return {**tree, "release": {**kept, key: str(output)}}


def _parsed(setting: str) -> tuple[list[str], Any]:
    """The path and the value of a setting. A key in quotes may have an equals sign of its own."""
    for found in re.finditer("=", setting):
        path = _path(setting[: found.start()].strip())
        if path is not None:
            return path, _value(setting[found.end() :].strip())
    raise ValueError(f"must be KEY=VALUE, as in {_EXAMPLE}")


def _path(key: str) -> list[str] | None:
    try:
        tree = _toml().loads(f"{key} = 0")
    except (ValueError, RecursionError):
        return None
    path: list[str] = []
    while isinstance(tree, dict):
        if len(tree) != 1:
            return None
        ((step, tree),) = tree.items()
        path.append(step)
    return path


def _value(text: str) -> Any:
    try:
        tree = _toml().loads(f"value = {text}")
    except (ValueError, RecursionError):
        tree = {}
    if set(tree) == {"value"}:
        return tree["value"]
    if _TEXT.fullmatch(text):
        return text
    # The value is not shown: it may be an address with a password.
    raise ValueError("its value is not TOML: write a text as '\"text\"', a list as '[1, 2]'")


def _toml() -> Any:
    return importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")


def _check(tree: Mapping[str, Any], path: Sequence[str], value: Any) -> None:
    """Refuse a key that no policy has, as far as the policy itself would not say so, or not as well."""
    first = path[0]
    if first == "attributes":
        known = tree.get("attributes")
        if isinstance(known, Mapping) and path[1:] and path[1] not in known and not isinstance(value, dict):
            guess = nearest(path[1], known)
            raise ValueError(f"unknown attribute {path[1]!r}; " + _advice(guess, known))
    elif first not in SECTIONS:
        keys = [*SECTIONS, "attributes", *(f"{name}.{key}" for name, model in SECTIONS.items() for key in _keys(model))]
        same = [key for key in keys if key.endswith(f".{first}")]
        guess = same[0] if len(path) == 1 and same else nearest(".".join(path), keys) or nearest(first, keys)
        raise ValueError(f"unknown key {'.'.join(path)!r}; " + _advice(guess, [*SECTIONS, "attributes"]))


def _advice(guess: str | None, known: Mapping[str, Any] | Sequence[str]) -> str:
    return f"did you mean {guess!r}?" if guess else f"known here: {', '.join(known)}"


def _keys(model: type[BaseModel]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield name
        for inner in get_args(field.annotation) or (field.annotation,):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                yield from (f"{name}.{key}" for key in inner.model_fields)


def _replaced(tree: Mapping[str, Any], path: Sequence[str], value: Any) -> dict[str, Any]:
    first, *rest = path
    if not rest:
        return {**tree, first: value}
    inner = tree.get(first, {})
    if isinstance(inner, list):
        raise ValueError(f"{first!r} is a list: give all of it, as in '{first}=[{{ ... }}]'")
    if not isinstance(inner, Mapping):
        inner = {}
    return {**tree, first: _replaced(inner, rest, value)}
