"""Problems of a policy: pydantic's validation errors in words for people.

A place is the path in the TOML file as its author wrote it: ``attributes.zip.hierarchy.mask``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from sqlanon.errors import Problem
from sqlanon.support.fields import Flaws, Loc, Section, in_words, nearest_word

_Part = TypeVar("_Part", bound=Section)


def read_part(
    model: type[_Part], value: object, place: str, context: Mapping[str, Any]
) -> tuple[_Part | None, list[Problem]]:
    """Read one part of a policy, and return the part or all of its problems."""
    try:
        return model.model_validate(value, context=dict(context)), []
    except ValidationError as error:
        return None, _problems(error, model, value, place)


def join_key(place: str, key: str) -> str:
    """Append a key to a place, quoted if TOML requires it.

    >>> join_key("attributes", "date of birth")
    'attributes."date of birth"'
    """
    bare = key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key, ensure_ascii=False)
    return f"{place}.{bare}" if place else bare


def unknown_key(key: str, known_keys: list[str], noun: str = "key") -> str:
    """Describe an unknown key, with the one that was probably meant.

    >>> unknown_key("hierachy", ["role", "hierarchy"])
    "unknown key 'hierachy'; did you mean 'hierarchy'?"
    """
    known_keys = [name for name in known_keys if name != key]
    guess = nearest_word(key, known_keys)
    advice = f"did you mean {guess!r}?" if guess else f"known here: {', '.join(known_keys)}"
    return f"unknown {noun} {key!r}; {advice}"


def _problems(error: ValidationError, model: type[BaseModel], value: object, place: str) -> list[Problem]:
    """List the problems of one part. A misspelled key is not reported as missing."""
    errors = error.errors(include_url=False)
    misspelled = set()
    for detail in errors:
        if detail["type"] == "extra_forbidden":
            *path, key = detail["loc"]
            misspelled.add((*path, nearest_word(str(key), _known_keys(_model_at(model, tuple(path))))))
    return [
        Problem(_place(place, (*detail["loc"], *loc), value), message)
        for detail in errors
        if not (detail["type"] == "missing" and detail["loc"] in misspelled)
        # Pydantic also reports a list in which every item is wrong as too short.
        and not (detail["type"] == "too_short" and detail["input"])
        for loc, message in _messages(model, dict(detail))
    ]


def _messages(model: type[BaseModel], detail: Mapping[str, Any]) -> Iterator[tuple[Loc, str]]:
    kind, context = detail["type"], detail.get("ctx", {})
    if isinstance(context.get("error"), Flaws):
        yield from context["error"].flaws
    elif kind == "value_error":
        yield (), str(context["error"])
    elif kind == "extra_forbidden":
        *path, key = detail["loc"]
        yield (), unknown_key(str(key), _known_keys(_model_at(model, tuple(path))))
    elif kind == "missing":
        *path, key = detail["loc"]
        advice = _advice(model, tuple(path), str(key))
        yield (), "is missing" + (f": {advice}" if advice else "")
    elif kind == "literal_error":
        yield (), _describe_options(context["expected"], detail["input"])
    else:
        describe = _MESSAGES.get(kind)
        value = detail["input"]
        yield (), describe(value, context) if describe else f"{detail['msg']}, not {in_words(value)}"


@dataclass(frozen=True)
class Missing:
    """The advice for a missing key of a part, as metadata of the field; by default, the description of the key."""

    key: str
    advice: str


def _advice(model: type[BaseModel], path: Loc, key: str) -> str | None:
    metadata = model.model_fields[str(path[0])].metadata if path else ()
    description = _model_at(model, path).model_fields[key].description
    return next((item.advice for item in metadata if isinstance(item, Missing) and item.key == key), description)


def _describe_options(expected: str, value: object) -> str:
    options = re.findall(r"'([^']*)'", expected)
    guess = nearest_word(value, options) if isinstance(value, str) else None
    advice = f"; did you mean {guess!r}?" if guess else ""
    return f"must be one of {', '.join(options)}, not {in_words(value)}{advice}"


_Describe = Callable[[Any, Mapping[str, Any]], str]


def _must_be(expected: str) -> _Describe:
    return lambda value, context: f"must be {expected.format(**_format_bounds(context))}, not {in_words(value)}"


def _format_bounds(context: Mapping[str, Any]) -> dict[str, Any]:
    return {name: f"{bound:g}" if isinstance(bound, float) else bound for name, bound in context.items()}


def _suggest_share(value: Any, context: Mapping[str, Any]) -> str:
    """Suggest the share if a value above 1 may be a percentage."""
    if context["le"] != 1 or not 1 < value <= 100:
        return ""
    return f"; for {value:g} %, write {value / 100:g}"


def _must_be_number(expected: str) -> _Describe:
    return lambda value, context: (
        f"must be {expected}, not " + (f"the text {in_words(value)}" if isinstance(value, str) else in_words(value))
    )


# The pydantic errors that a policy can cause; others keep pydantic's message.
_MESSAGES: Mapping[str, _Describe] = {
    "int_type": _must_be_number("a whole number"),
    "int_from_float": _must_be_number("a whole number"),
    "float_type": _must_be_number("a number"),
    "finite_number": _must_be("a finite number"),
    "bool_type": _must_be("true or false"),
    "string_type": _must_be("a text, in quotes"),
    "tuple_type": _must_be("a list, in brackets"),
    "dict_type": _must_be("a table"),
    "model_type": _must_be("a table"),
    "model_attributes_type": _must_be("a table"),
    "greater_than": _must_be("more than {gt}"),
    "greater_than_equal": _must_be("at least {ge}"),
    "less_than": _must_be("less than {lt}"),
    "less_than_equal": lambda value, context: _must_be("at most {le}")(value, context) + _suggest_share(value, context),
    "string_too_short": lambda value, context: "must not be empty",
    "too_short": lambda value, context: "must not be empty: give at least one",
}


def _nested_models(annotation: Any) -> dict[str, type[BaseModel]]:
    if isinstance(annotation, type) and not get_args(annotation):
        return {annotation.__name__: annotation} if issubclass(annotation, BaseModel) else {}
    return {name: part for inner in get_args(annotation) for name, part in _nested_models(inner).items()}


def _model_at(model: type[BaseModel], path: Loc) -> type[BaseModel]:
    """Return the class of the part at a path. In a union, the class name is a step of the path."""
    inner: dict[str, type[BaseModel]] = {}
    for step in path:
        if step in inner:
            model, inner = inner[str(step)], {}
        elif step in model.model_fields:
            inner = _nested_models(model.model_fields[str(step)].annotation)
            if len(inner) == 1:
                model, inner = next(iter(inner.values())), {}
    return model


def _known_keys(model: type[BaseModel]) -> list[str]:
    short = ["intervals"] if "widths" in model.model_fields else []
    return [*short, *model.model_fields]


def _place(place: str, loc: Loc, value: Any) -> str:
    """Walk the value as written, which may be shorter than the normalized value."""
    for step in loc:
        if isinstance(step, int):
            if isinstance(value, list | tuple):  # otherwise an item that stands without its list
                place, value = f"{place}[{step}]", value[step]
            continue
        if step.endswith("Rule") and not (isinstance(value, dict) and step in value):
            continue  # a class name, which the author did not write
        if step == "[key]":
            continue
        if isinstance(value, dict) and step not in value and "intervals" in value:
            place, value = join_key(place, "intervals"), value["intervals"]
            if step == "widths" and not isinstance(value, dict):
                continue
        place, value = join_key(place, step), value.get(step) if isinstance(value, dict) else None
    return place
