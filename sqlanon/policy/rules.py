"""Hierarchy rules of a policy. ``sqlanon.hierarchies`` builds hierarchy tables from them and validates these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    GetJsonSchemaHandler,
    Tag,
    WithJsonSchema,
    field_validator,
    model_serializer,
    model_validator,
)

from sqlanon.support.encodings import check_encoding
from sqlanon.support.fields import (
    Bound,
    Count,
    ExactNumber,
    FilePath,
    Flaw,
    Flaws,
    Leaf,
    Name,
    Section,
    as_list,
    in_words,
    nearest_word,
    one_or_more,
    policy_key,
)

Granularity: TypeAlias = Literal["day", "week", "month", "quarter", "year", "decade"]

_RANKS: Mapping[str, float] = {"day": 0, "week": 0.5, "month": 1, "quarter": 2, "year": 3, "decade": 4}
"""Each granularity contains all of lower ranks, except that no other one contains whole weeks."""


MAX_DAYS = 36_500
"""Maximum number of days by which dates can be moved: a hundred years."""


def width_flaws(widths: Sequence[Decimal], days: bool) -> Iterator[Flaw]:
    """Check that each interval lies within one of the next level; ``days``: the widths are days."""
    for index, width in enumerate(widths):
        before = widths[index - 1] if index else None
        place = ("widths", index)
        if width <= 0:
            yield place, f"a width must be more than 0, not {width}"
        elif before is not None and 0 < width <= before:
            yield place, f"{width} is not more than {before}, the width before it: write the widths from fine to coarse"
        elif before is not None and before > 0 and Fraction(width) % Fraction(before):
            advice = "each interval must lie within one of the next level"
            yield place, f"{width} is not a multiple of {before}, the width before it; {advice}"
        elif days and width != width.to_integral_value():
            yield place, f"the widths of intervals of dates are whole days, not {width}"


def bound_flaws(bounds: Mapping[str, Decimal | date]) -> Iterator[Flaw]:
    """Check that ``origin``, ``below`` and ``above`` are all numbers or all dates, and in order."""
    dates = [name for name, bound in bounds.items() if isinstance(bound, date)]
    # An origin of 0 is the default, so for dates it is ignored.
    numbers = [name for name in bounds if name not in dates and not (name == "origin" and bounds[name] == 0)]
    if dates and numbers:
        yield (numbers[0],), f"is a number and {dates[0]} is a date: give dates only, or numbers only"
        return
    below: Any = bounds.get("below")
    above: Any = bounds.get("above")
    if below is not None and above is not None and below >= above:
        yield ("below",), f"must be less than above: {below} is not less than {above}"


def date_flaws(dates: Sequence[str]) -> Iterator[Flaw]:
    """Check that each calendar level contains the one before."""
    for index, (fine, coarse) in enumerate(pairwise(dates), start=1):
        if fine == "week" and _RANKS[coarse] > _RANKS["week"]:
            yield (index,), f"a week can lie in two {coarse}s: week can only be the last of the levels"
        elif _RANKS[fine] >= _RANKS[coarse]:
            yield (index,), f"{coarse} is not coarser than {fine}: write the levels from fine to coarse"


def branches(tree: Mapping[str, Any], outer: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each list of ground values with the labels above it, outermost first."""
    for label, node in tree.items():
        labels = (*outer, label)
        if isinstance(node, Mapping) and node:
            yield from branches(node, labels)
        else:
            yield labels, node


def category_flaws(categories: Mapping[str, Any]) -> Iterator[Flaw]:
    """Check that all lists of ground values have the same depth, are not empty, and share no value."""
    if not categories:
        yield (), "is empty: give at least one category, with its values"
    depth: int | None = None
    homes: dict[tuple[bool, Leaf], str] = {}
    for labels, leaves in branches(categories):
        if not all(isinstance(label, str) for label in labels):
            yield (), "the categories' names must be texts"
            continue
        if not isinstance(leaves, list | tuple):
            yield labels, f"must be a list of ground values or a table of categories, not {in_words(leaves)}"
            continue
        if not leaves:
            yield labels, "has no ground value: give at least one, or leave the category out"
        depth = len(labels) if depth is None else depth
        if len(labels) != depth:
            message = f"is at depth {len(labels)}, and the first list at depth {depth}: all lists need the same depth"
            yield labels, message
        for index, leaf in enumerate(leaves):
            if flaw := _find_leaf_flaw(leaf, ".".join(labels), homes):
                yield (*labels, index), flaw


def _find_leaf_flaw(leaf: Any, home: str, homes: dict[tuple[bool, Leaf], str]) -> str | None:
    if isinstance(leaf, datetime) or not isinstance(leaf, get_args(Leaf)):
        return f"a ground value is a text, a number, a boolean or a date, not {in_words(leaf)}"
    key = (isinstance(leaf, bool), leaf)  # True == 1 in Python, but not in a column
    if key in homes:
        return f"{in_words(leaf)} is already in {homes[key]}: a ground value belongs to one category"
    homes[key] = home
    return None


class _Rule(Section):
    """Common base of rules: their kind, and the parameters that a manifest may show."""

    kind: ClassVar[str]
    public: ClassVar[frozenset[str]] = frozenset({"levels"})

    def redact(self) -> dict[str, Any]:
        """Return the kind and the parameters, without ground values, paths and names of tables."""
        return {"rule": self.kind, **self.model_dump(mode="json", include=set(self.public), exclude_none=True)}


class _LevelsRule(_Rule):
    levels: Count | None = policy_key("the number of levels of this rule that are used", example=2)


class MaskRule(_LevelsRule):
    """Mask one character after the other: 02139 > 0213* > 021** > ... > *.

    >>> MaskRule(mask="right").mask
    'right'
    """

    kind: ClassVar[str] = "mask"
    public: ClassVar[frozenset[str]] = frozenset({"levels", "mask"})
    mask: Literal["right", "left"] = policy_key(
        "the side that is masked first: right or left", example="right", default=...
    )


class IntervalsRule(_LevelsRule):
    """Intervals of growing width: 23 > 20-24 > 20-29 > ... > *; for dates the widths are days.

    Attributes
    ----------
    widths:
        One per level, each a multiple of the one before.
    origin:
        Where intervals are anchored: a number, or a date for an attribute of dates.
    below, above:
        Values under ``below``, and from ``above`` on, share an open end (``<0``, ``≥100``) at every level, also at
        level 0.

    >>> IntervalsRule.model_validate({"intervals": [5, 10]}).widths
    (Decimal('5'), Decimal('10'))
    """

    kind: ClassVar[str] = "intervals"
    public: ClassVar[frozenset[str]] = frozenset({"levels", "widths", "origin", "below", "above"})
    widths: tuple[ExactNumber, ...] = policy_key(
        "interval widths, level by level", example=[5, 10, 20], min_length=1, default=...
    )
    origin: Bound = policy_key(
        "where intervals are anchored", example=1, default=Decimal(0), json_schema_extra={"default": 0}
    )
    below: Bound | None = policy_key("smaller values share one open end, also at level 0", example=18)
    above: Bound | None = policy_key("this value and greater ones share one open end, also at level 0", example=90)

    @model_validator(mode="before")
    @classmethod
    def _spellings(cls, data: Any) -> Any:
        """Read ``{intervals = [..]}`` and ``{intervals = {widths = [..]}}`` as ``{widths = [..]}``."""
        if not isinstance(data, dict) or "intervals" not in data:
            return data
        intervals = data["intervals"]
        inner = intervals if isinstance(intervals, dict) else {"widths": intervals}
        outer = {key: value for key, value in data.items() if key != "intervals"}
        if repeated := [key for key in inner if key in outer]:
            raise ValueError(f"{' and '.join(repeated)} is given twice: leave one out")
        return {**inner, **outer}

    @property
    def has_open_ends(self) -> bool:
        """Whether values beyond a bound share one label at every level, level 0 included."""
        return self.below is not None or self.above is not None

    def _flaws(self) -> Iterator[Flaw]:
        keys = ("origin", "below", "above")
        bounds = {key: bound for key in keys if (bound := getattr(self, key)) is not None}
        days = any(isinstance(bound, date) for bound in bounds.values())
        yield from width_flaws(self.widths, days)
        yield from bound_flaws(bounds)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        plain = handler.resolve_ref_schema(handler(schema))
        parts = dict(plain["properties"])
        widths, levels = parts.pop("widths"), parts.pop("levels")
        closed = {"type": "object", "additionalProperties": False}
        inner = {**closed, "properties": {"widths": widths, **parts}, "required": ["widths"]}
        short = {"intervals": {"anyOf": [widths, inner]}, **parts, "levels": levels}
        spellings = [{**closed, "properties": short, "required": ["intervals"]}, dict(plain)]
        return {"description": plain["description"], "anyOf": spellings}


class DatesRule(_LevelsRule):
    """Calendar levels: 1980-01-02 > 1980-01 > 1980-Q1 > 1980 > 1980s > *.

    Partial dates are texts, and keep their text at finer levels: 1981 is 1981 at the level of months.

    Attributes
    ----------
    shift:
        With several tables: all dates of a person are moved by one random number of days, at most this, before they
        are generalized. ``dates = { shift = 30 }`` has no calendar levels.

    >>> DatesRule(dates=("month", "year")).dates
    ('month', 'year')
    >>> DatesRule.model_validate({"dates": {"shift": 30}}).shift
    30
    """

    kind: ClassVar[str] = "dates"
    public: ClassVar[frozenset[str]] = frozenset({"levels", "dates", "shift"})
    dates: tuple[Granularity, ...] = policy_key(
        "calendar levels, from fine to coarse", example=["month", "year"], default=()
    )
    shift: Annotated[int, Field(strict=True, ge=1, le=MAX_DAYS)] | None = policy_key(
        "with several tables: the maximum number of days by which all dates of a person are shifted together",
        example=30,
    )

    @model_validator(mode="before")
    @classmethod
    def _spellings(cls, data: Any) -> Any:
        """Read ``{dates = {shift = 30}}`` as ``{shift = 30}`` without calendar levels."""
        if not isinstance(data, dict) or not isinstance(data.get("dates"), dict):
            return data
        outer = {key: value for key, value in data.items() if key != "dates"}
        if data["dates"].keys() != {"shift"} or "shift" in outer:
            raise ValueError('has only shift as a table; write levels as a list: dates = ["month", "year"], shift = 30')
        return {**outer, **data["dates"]}

    @field_validator("dates")
    @classmethod
    def _refuse_flaws_of_dates(cls, dates: tuple[Granularity, ...]) -> tuple[Granularity, ...]:
        if flaws := list(date_flaws(dates)):
            raise Flaws(flaws)
        return dates

    def _flaws(self) -> Iterator[Flaw]:
        if not self.dates and self.shift is None:
            yield ("dates",), "must not be empty"

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        plain = dict(handler.resolve_ref_schema(handler(schema)))
        # Editors read the schema for policies of one table, which have no shift.
        properties = {name: part for name, part in plain["properties"].items() if name != "shift"}
        properties["dates"] = {**properties["dates"], "minItems": 1}
        properties["dates"].pop("default", None)
        return {**plain, "properties": properties, "required": ["dates"]}


class SuppressRule(_Rule):
    """The value or nothing: value > *. Written ``"suppress"``."""

    kind: ClassVar[str] = "suppress"

    @model_validator(mode="before")
    @classmethod
    def _read_word(cls, data: Any) -> Any:
        return {} if data == "suppress" else data

    @model_serializer
    def _write_word(self) -> str:
        return "suppress"

    def redact(self) -> dict[str, Any]:
        """Return the kind."""
        return {"rule": self.kind}

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"type": "string", "const": "suppress", "description": "The value or nothing: value > *."}


class CategoriesRule(_LevelsRule):
    """Nested categories with the ground values in lists: ``{ Europe = ["FR", "DE"], Asia = ["JP"] }``.

    >>> CategoriesRule(categories={"warm": {"reddish": ["red", "pink"]}, "cold": {"bluish": ["blue"]}}).rows
    (('red', 'reddish', 'warm'), ('pink', 'reddish', 'warm'), ('blue', 'bluish', 'cold'))
    """

    kind: ClassVar[str] = "categories"
    categories: Annotated[
        dict[str, Any], WithJsonSchema({"type": "object", "additionalProperties": {"type": ["object", "array"]}})
    ] = policy_key(
        "categories within categories, and lists of ground values in the innermost",
        example={"Europe": ["FR", "DE"], "Asia": ["JP"]},
        default=...,
    )

    @field_validator("categories")
    @classmethod
    def _refuse_flaws_of_categories(cls, categories: dict[str, Any]) -> dict[str, Any]:
        if flaws := list(category_flaws(categories)):
            raise Flaws(flaws)
        return categories

    @property
    def rows(self) -> tuple[tuple[Leaf, ...], ...]:
        """One row per ground value, followed by its categories from the innermost outward, without the top ``*``."""
        lists = branches(self.categories)
        return tuple((leaf, *reversed(labels)) for labels, leaves in lists for leaf in leaves)

    @property
    def depth(self) -> int:
        """The number of levels of categories."""
        return len(next(branches(self.categories))[0])

    def redact(self) -> dict[str, Any]:
        """Return the number of levels of categories, without the categories."""
        return {**super().redact(), "depth": self.depth}


class FileRule(_LevelsRule):
    """A hierarchy file: CSV without a header, one line per ground value, leaf to root."""

    kind: ClassVar[str] = "file"
    file: FilePath = policy_key(
        "a CSV file without a header, one line per ground value, leaf to root", example="education.csv", default=...
    )
    encoding: Annotated[str, AfterValidator(check_encoding)] | None = policy_key(
        "the encoding, by its Python name; default: utf-8, or utf-16 with a byte order mark", example="windows-1252"
    )


class TableRule(_LevelsRule):
    """A hierarchy table in the database: one row per ground value, one column per level, leaf to root."""

    kind: ClassVar[str] = "table"
    table: Name = policy_key(
        "a table or view, one row per ground value, leaf to root", example="countries", default=...
    )


Rule: TypeAlias = MaskRule | IntervalsRule | DatesRule | SuppressRule | CategoriesRule | FileRule | TableRule

# The key that identifies a rule, and the rule. An interval rule may use its long form.
_BY_KEY: dict[str, type[Rule]] = {
    "mask": MaskRule,
    "intervals": IntervalsRule,
    "widths": IntervalsRule,
    "dates": DatesRule,
    "categories": CategoriesRule,
    "file": FileRule,
    "table": TableRule,
}


def _rule_class(value: object) -> str | None:
    if isinstance(value, _Rule):
        return type(value).__name__
    if value == "suppress":
        return SuppressRule.__name__
    names = {rule.__name__ for key, rule in _BY_KEY.items() if isinstance(value, dict) and key in value}
    return names.pop() if len(names) == 1 else None


_SYNONYMS = {
    **dict.fromkeys(("ranges", "range", "bins", "buckets", "steps"), "intervals"),
    **dict.fromkeys(("groups", "sets", "values"), "categories"),
    **dict.fromkeys(("csv", "path"), "file"),
    **dict.fromkeys(("hide", "prefix", "digits"), "mask"),
}
"""Common words for rules, and the key of the rule."""


def _refuse_unknown_rule(value: object) -> object:
    if _rule_class(value) is not None:
        return value
    kinds = [key for key in _BY_KEY if key != "widths"]
    expected = f'a rule is "suppress" or a table with one of {", ".join(kinds)}'
    if isinstance(value, dict):
        if keys := [key for key in _BY_KEY if key in value]:
            raise ValueError(f"has {' and '.join(keys)} in one rule: write a list of rules to compose them")
        unknown = [key for key in value if isinstance(key, str)][:1]
        guess = next((_SYNONYMS.get(key) or nearest_word(key, kinds) for key in unknown), None)
        raise ValueError("; ".join([*(f"unknown rule {key!r}" for key in unknown), _suggest(guess) or expected]))
    if value in kinds:
        raise ValueError(f"{value!r} needs its parameter: {{ {value} = ... }}")
    guess = nearest_word(value, ["suppress", *kinds]) if isinstance(value, str) else None
    raise ValueError(f"{expected}, not {in_words(value)}" + (f"; {_suggest(guess)}" if guess else ""))


def _suggest(guess: str | None) -> str:
    return f"did you mean {guess!r}?" if guess else ""


_AnyRule: TypeAlias = Annotated[
    Annotated[MaskRule, Tag("MaskRule")]
    | Annotated[IntervalsRule, Tag("IntervalsRule")]
    | Annotated[DatesRule, Tag("DatesRule")]
    | Annotated[SuppressRule, Tag("SuppressRule")]
    | Annotated[CategoriesRule, Tag("CategoriesRule")]
    | Annotated[FileRule, Tag("FileRule")]
    | Annotated[TableRule, Tag("TableRule")],
    Discriminator(_rule_class),
    BeforeValidator(_refuse_unknown_rule),
]

# One rule, or a list of composed rules: each adds the next levels of the same ground value.
Hierarchy: TypeAlias = Annotated[tuple[_AnyRule, ...], Field(min_length=1), as_list, one_or_more]
