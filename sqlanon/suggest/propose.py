"""A role for each column, and a hierarchy for what others may know of persons.

What is not recognised is taken for what does least harm: a quasi-identifier, or left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from sqlanon.hierarchies.parts import ColumnKind
from sqlanon.suggest.kinds import (
    AGE,
    BIRTH,
    DATE,
    FAMILY,
    KINDS,
    NUMBERED,
    OTHER_CODE,
    PLACE,
    RACE,
    SEX,
    WORK,
    YEAR,
    ZIP,
    Kind,
    Role,
    kind_by_name,
    words_of,
)
from sqlanon.suggest.profile import CODES, Profile

MOST = 10
"""The most quasi-identifiers that are proposed: more of them leave nothing of a table."""

Rule = str | dict[str, Any]
"""A hierarchy as the tree of a policy has it."""

SUPPRESS = "suppress"
_LONG = 50  # characters, on average: texts that may say anything
_FEW = 12  # distinct numbers that are categories
_SOME_CODES = 20
_WIDE = 24  # characters: of longer texts a mask would have too many levels
_CATEGORIES = (PLACE, SEX, RACE, FAMILY, WORK)  # numbers that are no measurements
_OF_WHOLE_NUMBERS: dict[str | None, Rule] = {
    ZIP: {"mask": "right"},
    AGE: {"intervals": [5, 10, 20, 40]},
    YEAR: {"intervals": [5, 10, 20]},
}
_LARGEST = 1e15
_SMALLEST = 1e-9


@dataclass(frozen=True)
class Proposal:
    """The proposed role of a column; ``known``: its name or its content says what it is. The reason, which becomes a
    comment, holds no value of the table."""

    column: Profile
    role: Role
    reason: str
    hierarchy: Rule | None = None
    known: bool = False


def propose(columns: Sequence[Profile]) -> list[Proposal]:
    """A role for each column; at least one of them is a quasi-identifier, if any column can be."""
    return _with_a_quasi(_not_too_many([_role_of(one) for one in columns]))


def _role_of(column: Profile) -> Proposal:
    by_name = kind_by_name(column.name)
    if by_name is not None and by_name.role == "identifying" and column.type == "BOOLEAN":
        by_name = None  # "phone": whether there is one
    by_content = _by_content(column, by_name)
    return (
        _unseen(column)
        or _identifying(column, by_name, by_content)
        or _too_little_or_too_much(column)
        or _known(column, by_name, by_content)
        or _unknown(column)
    )


def _unseen(column: Profile) -> Proposal | None:
    if column.nested:
        reason = "nested: left out; give its parts as columns of their own, with a query under [source]"
        return Proposal(column, "identifying", reason)
    if column.type in ("BLOB", "GEOMETRY", "JSON"):
        return Proposal(column, "identifying", "for all that is known a picture, or a document")
    return None


def _identifying(column: Profile, by_name: Kind | None, by_content: tuple[Kind, float] | None) -> Proposal | None:
    """A column of identifiers, by its name, its type, or its content."""
    reason = None
    if by_name is not None and by_name.role == "identifying":
        reason = f"by its name: {by_name.name}"
    elif column.type == "UUID":
        reason = f"by its type: {OTHER_CODE}"
    elif by_content is not None and by_content[0].role == "identifying":
        reason = _looks_like(*by_content)
    elif by_name is None and NUMBERED.fullmatch(words_of(column.name)) and _can_number(column):
        reason = f"by its name, and its many values: {OTHER_CODE}"
    return None if reason is None else Proposal(column, "identifying", reason, known=True)


def _can_number(column: Profile) -> bool:
    """Whether a column may number persons, and not what many of them share."""
    return column.many or column.distinct == column.values


def _too_little_or_too_much(column: Profile) -> Proposal | None:
    if column.constant:
        return Proposal(column, "insensitive", "the same in all rows")
    if column.mean_length >= _LONG:
        return Proposal(column, "identifying", "long texts: they may say anything")
    return None


def _known(column: Profile, by_name: Kind | None, by_content: tuple[Kind, float] | None) -> Proposal | None:
    if by_name is not None and by_name.role == "sensitive":
        if column.kind is ColumnKind.TEXT and column.nearly_unique:
            return Proposal(column, "identifying", f"by its name: {by_name.name}; but its texts tell rows apart")
        return Proposal(column, "sensitive", f"by its name: {by_name.name}", known=True)
    if by_name is not None:
        return Proposal(column, "quasi", f"by its name: {by_name.name}", hierarchy_for(column, by_name), True)
    if by_content is not None:
        return Proposal(column, "quasi", _looks_like(*by_content), hierarchy_for(column, by_content[0]), True)
    if column.kind in (ColumnKind.DATE, ColumnKind.ZONED):
        return Proposal(column, "quasi", "by its type: dates", hierarchy_for(column, None), True)
    return None


def _unknown(column: Profile) -> Proposal:
    if column.nearly_unique and column.kind in (ColumnKind.TEXT, ColumnKind.INTEGER, ColumnKind.OTHER):
        return Proposal(column, "identifying", "nearly unique: it tells rows apart all by itself")
    reason = "neither its name nor its content tells what it is: a quasi-identifier, to be safe"
    return Proposal(column, "quasi", reason, hierarchy_for(column, None))


def _looks_like(kind: Kind, share: float) -> str:
    part = "all" if share == 1 else f"{max(1, math.floor(100 * share))} %"
    return f"{part} of its values look like: {kind.name}"


def _by_content(column: Profile, by_name: Kind | None) -> tuple[Kind, float] | None:
    """The kind that a column's values look like, and the share of them that do; the most of them."""
    found = [
        (kind, column.likes.get(i, 0.0))
        for i, kind in enumerate(KINDS)
        if kind.content is not None
        and column.likes.get(i, 0.0) >= kind.share
        # What may be a category is one, if the name says so.
        and (not kind.many or (column.many and by_name is None))
    ]
    return max(found, key=lambda one: (one[0].share < 0.5, one[1]), default=None)


def hierarchy_for(column: Profile, kind: Kind | None) -> Rule:
    what = kind.name if kind is not None else None
    if column.kind in (ColumnKind.DATE, ColumnKind.ZONED):
        return {"dates": ["month", "year", "decade"] if what == BIRTH else ["month", "quarter", "year"]}
    if column.kind is ColumnKind.TEXT:
        codes = column.likes.get(CODES, 0.0) >= 0.95 and column.distinct > _SOME_CODES
        return {"mask": "right"} if (what in (ZIP, DATE) or codes) and 1 < column.longest <= _WIDE else SUPPRESS
    whole = column.kind is ColumnKind.INTEGER
    if whole and what in _OF_WHOLE_NUMBERS:
        return _OF_WHOLE_NUMBERS[what]
    if whole or column.kind in (ColumnKind.DECIMAL, ColumnKind.FLOATING):
        few = column.distinct <= _FEW or what in _CATEGORIES
        return SUPPRESS if few else intervals(column.spread, whole)
    return SUPPRESS


def intervals(spread: float | None, whole: bool) -> Rule:
    """Intervals of round widths, of which about fifty, ten and five make the spread.

    >>> intervals(4200.0, whole=True), intervals(30, whole=True)
    ({'intervals': [100, 500, 1000]}, {'intervals': [5, 10, 20]})
    >>> intervals(0.8, whole=False)
    {'intervals': [Decimal('0.02'), Decimal('0.1'), Decimal('0.2')]}
    """
    if spread is None or not _SMALLEST < spread < _LARGEST:
        return SUPPRESS
    least = spread / 50
    exponent = math.floor(math.log10(least))
    factor = next(one for one in (1, 2, 5, 10) if one * 10.0**exponent >= least * (1 - 1e-9) or one == 10)
    if whole and factor * 10.0**exponent <= 1:
        return {"intervals": [5, 10, 20]}
    widths = [(factor * one * Decimal(10) ** exponent).normalize() for one in (1, 5, 10)]
    return {"intervals": [int(one) if one == int(one) else one for one in widths]}


def _not_too_many(proposals: list[Proposal]) -> list[Proposal]:
    """Leave out the quasi-identifiers that are too many: first what nothing is known of, then what tells most apart."""
    quasi = [one for one in proposals if one.role == "quasi"]
    kept = sorted(quasi, key=lambda one: (not one.known, one.column.distinct))[:MOST]
    reason = f"more than {MOST} quasi-identifiers leave nothing of a table: left out, to be safe"
    return [
        replace(one, role="identifying", hierarchy=None, reason=f"{one.reason}; {reason}")
        if one.role == "quasi" and one not in kept
        else one
        for one in proposals
    ]


def _with_a_quasi(proposals: list[Proposal]) -> list[Proposal]:
    """A policy needs a quasi-identifier: what is released otherwise, or is left out, is one then."""
    if any(one.role == "quasi" for one in proposals):
        return proposals
    order = ("insensitive", "sensitive", "identifying")
    able = [one for one in proposals if not one.column.nested]
    if not able:
        return proposals
    chosen = min(able, key=lambda one: (order.index(one.role), one.column.distinct))
    instead = replace(
        chosen, role="quasi", hierarchy=SUPPRESS, reason=f"{chosen.reason}; a policy needs one quasi-identifier"
    )
    return [instead if one is chosen else one for one in proposals]
