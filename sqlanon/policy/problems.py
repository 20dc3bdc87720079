"""What is wrong with a part of a policy, in words for people: pydantic's errors become problems.

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
from sqlanon.support.fields import Flaws, Loc, Section, in_words, nearest

_Part = TypeVar("_Part", bound=Section)


def read_part(
    model: type[_Part], value: object, place: str, context: Mapping[str, Any]
) -> tuple[_Part | None, list[Problem]]:
    """Read one part of a policy: the part, or all that is wrong with it."""
    try:
        return model.model_validate(value, context=dict(context)), []
    except ValidationError as error:
        return None, _problems(error, model, value, place)


def join_key(place: str, key: str) -> str:
    """Append a key to a place, quoted where TOML wants quotes.

    >>> join_key("attributes", "date of birth")
    'attributes."date of birth"'
    """
    bare = key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key, ensure_ascii=False)
    return f"{place}.{bare}" if place else bare


def unknown_key(key: str, known: list[str], noun: str = "key") -> str:
    """Say that a key is unknown, and which one was probably meant.

    >>> unknown_key("hierachy", ["role", "hierarchy"])
    "unknown key 'hierachy'; did you mean 'hierarchy'?"
    """
    known = [other for other in known if other != key]
    guess = nearest(key, known)
    advice = f"did you mean {guess!r}?" if guess else f"known here: {', '.join(known)}"
    return f"unknown {noun} {key!r}; {advice}"


def _problems(error: ValidationError, model: type[BaseModel], value: object, place: str) -> list[Problem]:
    """List the problems of one part. A missing key is no second problem where a typing error explains it."""
    errors = error.errors(include_url=False)
    guessed = set()
    for item in errors:
        if item["type"] == "extra_forbidden":
            *path, key = item["loc"]
            guessed.add((*path, nearest(str(key), _known_keys(_model_at(model, tuple(path))))))
    return [
        Problem(_place(place, (*item["loc"], *loc), value), message)
        for item in errors
        if not (item["type"] == "missing" and item["loc"] in guessed)
        # To pydantic a list of nothing but mistakes is too short as well.
        and not (item["type"] == "too_short" and item["input"])
        for loc, message in _messages(model, dict(item))
    ]


def _messages(model: type[BaseModel], item: Mapping[str, Any]) -> Iterator[tuple[Loc, str]]:
    kind, context = item["type"], item.get("ctx", {})
    if isinstance(context.get("error"), Flaws):
        yield from context["error"].flaws
    elif kind == "value_error":
        yield (), str(context["error"])
    elif kind == "extra_forbidden":
        *path, key = item["loc"]
        yield (), unknown_key(str(key), _known_keys(_model_at(model, tuple(path))))
    elif kind == "missing":
        *path, key = item["loc"]
        advice = _advice(model, tuple(path), str(key))
        yield (), "is missing" + (f": {advice}" if advice else "")
    elif kind == "literal_error":
        yield (), _one_of(context["expected"], item["input"])
    else:
        say = _WORDS.get(kind)
        yield (), say(item["input"], context) if say else f"{item['msg']}, not {in_words(item['input'])}"


@dataclass(frozen=True)
class Missing:
    """What a message says where a key of a part is missing; metadata of the field that has the part. By default, what
    describes the key."""

    key: str
    advice: str


def _advice(model: type[BaseModel], path: Loc, key: str) -> str | None:
    own = model.model_fields[str(path[0])].metadata if path else ()
    described = _model_at(model, path).model_fields[key].description
    return next((one.advice for one in own if isinstance(one, Missing) and one.key == key), described)


def _one_of(expected: str, value: object) -> str:
    options = re.findall(r"'([^']*)'", expected)
    guess = nearest(value, options) if isinstance(value, str) else None
    advice = f"; did you mean {guess!r}?" if guess else ""
    return f"must be one of {', '.join(options)}, not {in_words(value)}{advice}"


_Say = Callable[[Any, Mapping[str, Any]], str]


def _be(what: str) -> _Say:
    return lambda value, context: f"must be {what.format(**_bounds(context))}, not {in_words(value)}"


def _bounds(context: Mapping[str, Any]) -> dict[str, Any]:
    return {name: f"{bound:g}" if isinstance(bound, float) else bound for name, bound in context.items()}


def _percent(value: Any, context: Mapping[str, Any]) -> str:
    """A share above 1 may be meant in percent."""
    if context["le"] != 1 or not 1 < value <= 100:
        return ""
    return f"; for {value:g} %, write {value / 100:g}"


def _be_number(what: str) -> _Say:
    return lambda value, context: (
        f"must be {what}, not " + (f"the text {in_words(value)}" if isinstance(value, str) else in_words(value))
    )


# One entry per error of pydantic that a policy can meet; the others keep pydantic's own words.
_WORDS: Mapping[str, _Say] = {
    "int_type": _be_number("a whole number"),
    "int_from_float": _be_number("a whole number"),
    "float_type": _be_number("a number"),
    "finite_number": _be("a finite number"),
    "bool_type": _be("true or false"),
    "string_type": _be("a text, in quotes"),
    "tuple_type": _be("a list, in brackets"),
    "dict_type": _be("a table"),
    "model_type": _be("a table"),
    "model_attributes_type": _be("a table"),
    "greater_than": _be("more than {gt}"),
    "greater_than_equal": _be("at least {ge}"),
    "less_than": _be("less than {lt}"),
    "less_than_equal": lambda value, context: _be("at most {le}")(value, context) + _percent(value, context),
    "string_too_short": lambda value, context: "must not be empty",
    "too_short": lambda value, context: "must not be empty: give at least one",
}


def _models_in(annotation: Any) -> dict[str, type[BaseModel]]:
    if isinstance(annotation, type) and not get_args(annotation):
        return {annotation.__name__: annotation} if issubclass(annotation, BaseModel) else {}
    return {name: part for inner in get_args(annotation) for name, part in _models_in(inner).items()}


def _model_at(model: type[BaseModel], path: Loc) -> type[BaseModel]:
    """Return the class of the part at a path; in a union, its class name is a step of the path."""
    inner: dict[str, type[BaseModel]] = {}
    for step in path:
        if step in inner:
            model, inner = inner[str(step)], {}
        elif step in model.model_fields:
            inner = _models_in(model.model_fields[str(step)].annotation)
            if len(inner) == 1:
                model, inner = next(iter(inner.values())), {}
    return model


def _known_keys(model: type[BaseModel]) -> list[str]:
    short = ["intervals"] if "widths" in model.model_fields else []
    return [*short, *model.model_fields]


def _place(place: str, loc: Loc, value: Any) -> str:
    """Walk the value as it was written, which may be shorter than what it stands for."""
    for step in loc:
        if isinstance(step, int):
            if isinstance(value, list | tuple):  # else: one that stands for a list of one
                place, value = f"{place}[{step}]", value[step]
            continue
        if step.endswith("Rule") and not (isinstance(value, dict) and step in value):
            continue  # the name of a class, which only pydantic sees
        if step == "[key]":
            continue
        if isinstance(value, dict) and step not in value and "intervals" in value:
            place, value = join_key(place, "intervals"), value["intervals"]
            if step == "widths" and not isinstance(value, dict):
                continue
        place, value = join_key(place, step), value.get(step) if isinstance(value, dict) else None
    return place
