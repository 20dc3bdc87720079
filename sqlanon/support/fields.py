"""The types of values in a policy: exact numbers, bounds, paths, lists of one or more.

They are pydantic types that read values of TOML and Python, refuse look-alikes (``"5"`` or ``true`` for a number), and
have a JSON Schema for editors.
"""

from __future__ import annotations

import difflib
import glob
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeAlias, TypeGuard, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    model_serializer,
    model_validator,
)
from pydantic import GetCoreSchemaHandler as SchemaBuilder
from pydantic import GetJsonSchemaHandler as SchemaHandler
from pydantic import ValidationInfo as Info
from pydantic_core import CoreSchema, PydanticKnownError
from pydantic_core.core_schema import no_info_plain_validator_function

Loc: TypeAlias = tuple[str | int, ...]
Flaw: TypeAlias = tuple[Loc, str]
Leaf: TypeAlias = str | int | float | bool | date


class RegistryName:
    """A name of a registry, like a literal of its names; the registry may grow."""

    def __init__(self, registry: Mapping[str, object]) -> None:
        self._registry = registry

    def __get_pydantic_core_schema__(self, source: Any, handler: SchemaBuilder) -> CoreSchema:
        return no_info_plain_validator_function(self._read)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: SchemaHandler) -> dict[str, Any]:
        return {"enum": list(self._registry), "type": "string"}

    def _read(self, value: object) -> str:
        if isinstance(value, str) and value in self._registry:
            return value
        *names, last = map(repr, self._registry)
        raise PydanticKnownError("literal_error", {"expected": f"{', '.join(names)} or {last}"})


_AnySection = TypeVar("_AnySection", bound="Section")


class Section(BaseModel):
    """The base of every part of a policy: frozen, and without unknown keys.

    Schemas are built on first use, so that ``import sqlanon`` stays fast.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    def _flaws(self) -> Iterator[Flaw]:
        """Conflicts between its keys."""
        return iter(())

    @model_validator(mode="after")
    def _refuse_flaws(self: _AnySection) -> _AnySection:
        if flaws := list(self._flaws()):
            raise Flaws(flaws)
        return self


class SparseSection(Section):
    """A section that is written without unset keys: policies keep their fingerprints when it gets a key."""

    _optional: ClassVar[tuple[str, ...] | None] = None
    """The keys that are left out where they have their default; None: all keys."""

    def _idle(self) -> set[str]:
        fields = type(self).model_fields
        names = fields if self._optional is None else self._optional
        return {name for name in names if getattr(self, name) == fields[name].default}

    # Older pydantic reads the annotation in the module of the subclass, which may not import Any.
    @model_serializer(mode="wrap")
    def _without_idle_fields(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        fields: dict[str, Any] = handler(self)
        idle = self._idle()
        return {name: value for name, value in fields.items() if name not in idle}


class Flaws(ValueError):  # noqa: N818 - only pydantic sees it
    """Several flaws of one part, each with its place below that part."""

    def __init__(self, flaws: Iterable[Flaw]) -> None:
        self.flaws = tuple(flaws)
        super().__init__("; ".join(message for _, message in self.flaws))


def policy_key(description: str, *, example: object = None, default: object = None, **options: Any) -> Any:
    """A key of a section with its description and an example, for editors and the reference; required if the default
    is ``...``."""
    return Field(default, description=description, examples=None if example is None else [example], **options)


def in_words(value: object) -> str:
    """Describe a wrong value in a few words.

    >>> in_words("five"), in_words(True), in_words([1, 2])
    ("'five'", 'true', 'a list')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list | tuple):
        return "a list"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def nearest_word(word: object, candidates: Iterable[str]) -> str | None:
    """The candidate that was probably meant.

    >>> nearest_word("hierachy", ["role", "hierarchy"])
    'hierarchy'
    """
    word, candidates = str(word).lower(), list(candidates)
    close = difflib.get_close_matches(word, candidates, n=1)
    prefixes = [candidate for candidate in candidates if len(candidate) > 3 and word.startswith(candidate)]
    return next(iter(close + prefixes), None)  # a prefix: quasi-identifier means quasi


def exact_number(value: object) -> Decimal:
    """Read a number exactly: 0.29 is 29/100, not the nearest binary fraction.

    >>> exact_number(0.29)
    Decimal('0.29')
    """
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise ValueError(f"must be a number, not {in_words(value)}")
    number = Decimal(str(value))
    if not number.is_finite():
        raise ValueError(f"must be a finite number, not {value}")
    if number and abs(number.adjusted()) > 400:  # beyond every numeric type of a column
        raise ValueError(f"is out of range: {in_words(number)}")
    return number


def plain_number(value: Decimal) -> int | float:
    """Write an exact number for JSON: one spelling for equal numbers.

    >>> plain_number(Decimal("10.0")), plain_number(Decimal("0.29"))
    (10, 0.29)
    """
    return int(value) if value == value.to_integral_value() else float(value)


def _real(value: object) -> int | float:
    """Read a number that a float can hold; whole ones stay whole."""
    number = float(exact_number(value))
    if not math.isfinite(number):
        raise ValueError(f"is out of range: {in_words(value)}")
    return value if isinstance(value, int) else number


def _plain_real(value: int | float) -> int | float:
    return int(value) if value == int(value) else value


def _bound(value: object) -> Decimal | date:
    if isinstance(value, datetime):
        raise ValueError("must be a date without a time of day")
    if isinstance(value, date):
        return value
    if isinstance(value, str):
        raise ValueError(f"must be a number or a date, without quotes (5 or 1980-01-01), not {in_words(value)}")
    return exact_number(value)


def _plain_bound(value: Decimal | date) -> int | float | str:
    return value.isoformat() if isinstance(value, date) else plain_number(value)


def policy_folder(info: Info) -> Path | None:
    context = info.context
    return context.get("folder") if isinstance(context, dict) else None


def _is_path(value: object) -> TypeGuard[str | os.PathLike[str]]:
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str) or not text or "\0" in text:
        return False
    try:
        os.fsencode(text)
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def file_path(value: object, folder: Path | None) -> Path:
    if not _is_path(value):
        raise ValueError(f"must be the path of a file, not {in_words(value)}")
    return folder / value if folder else Path(value)


def file_pattern(value: object, folder: Path | None) -> str:
    if not _is_path(value):
        raise ValueError(f"must be a path or a pattern such as 'patients/*.parquet', not {in_words(value)}")
    pattern = os.fspath(value)
    if folder is None or "://" in pattern or Path(pattern).is_absolute():
        return pattern
    # The folder is a name, not a pattern: a bracket in it stands for itself.
    return f"{glob.escape(str(folder))}/{pattern}"


class _OneOrMore:
    """JSON Schema of a list whose only item may stand without brackets."""

    def __get_pydantic_json_schema__(self, schema: Any, handler: SchemaHandler) -> dict[str, Any]:
        list_schema = handler(schema)
        return {"anyOf": [list_schema["items"], list_schema]}


ExactNumber: TypeAlias = Annotated[
    Decimal,
    BeforeValidator(exact_number),
    PlainSerializer(plain_number, when_used="json"),
    WithJsonSchema({"type": "number"}),
]
Number: TypeAlias = Annotated[
    int | float,
    PlainValidator(_real),
    PlainSerializer(_plain_real, when_used="json"),
    WithJsonSchema({"type": "number"}),
]
Bound: TypeAlias = Annotated[
    Decimal | date,
    PlainValidator(_bound),
    PlainSerializer(_plain_bound, when_used="json"),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string", "format": "date"}]}),
]
Name: TypeAlias = Annotated[str, Field(min_length=1)]
FilePath: TypeAlias = Annotated[
    Path,
    BeforeValidator(lambda value, info: file_path(value, policy_folder(info))),
    WithJsonSchema({"type": "string", "minLength": 1}),
]
FilePattern: TypeAlias = Annotated[str, BeforeValidator(lambda value, info: file_pattern(value, policy_folder(info)))]
Natural: TypeAlias = Annotated[int, Field(strict=True, ge=0)]
Count: TypeAlias = Annotated[int, Field(strict=True, ge=1)]
StrictBoolean: TypeAlias = Annotated[bool, Field(strict=True)]

as_list = BeforeValidator(lambda value: value if isinstance(value, list | tuple) else (value,))
as_set = AfterValidator(lambda values: tuple(sorted(set(values))))  # equal sets are equal policies
as_real = BeforeValidator(_real)
one_or_more = _OneOrMore()

NameSet: TypeAlias = Annotated[tuple[Name, ...], as_list, as_set, one_or_more]
TextSet: TypeAlias = Annotated[tuple[str, ...], as_list, as_set, one_or_more]

Share: TypeAlias = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False), as_real]
ShareAboveZero: TypeAlias = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False), as_real]
NotNegative: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False), as_real]
Positive: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False), as_real]
