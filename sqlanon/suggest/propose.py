"""A role for each column, and a hierarchy for what others may know of persons.

What is not recognised is taken for what does least harm: a quasi-identifier, or left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from sqlanon.hierarchies.parts import ColumnKind
from sqlanon.sources.column_kinds import (
    AGE,
    BIRTH,
    DATE,
    FAMILY,
    HOUSEHOLD,
    HOUSEHOLD_WORDS,
    ICD,
    KINDS,
    NAME,
    NUMBER_WORDS,
    OTHER_CODE,
    PLACE,
    RACE,
    SEX,
    WORK,
    YEAR,
    ZIP,
    Kind,
    Role,
    find_kind,
    split_words,
)
from sqlanon.suggest.profile import CODES, Profile
from sqlanon.suggest.reading import AS_IT_STANDS, Reading
from sqlanon.support.toml import toml_value

MOST = 30
"""The most quasi-identifiers that are proposed: `mondrian` and `optimal` keep something of so many within minutes."""

NEEDS_FILES = "numbers and words such as NA; for round widths: --hierarchies"
"""A comment on columns that intervals cannot have: they need numbers."""

Rule = str | dict[str, Any]
"""A hierarchy as the tree of a policy has it."""

SUPPRESS = "suppress"
_UNCHANGED = "; released unchanged"
_LONG = 50  # characters, on average: texts that may say anything
_FREE = 20  # characters, on average: where values are many, texts and no categories
_ENOUGH = 20  # values: of fewer, that they differ says little
_FEW = 12  # distinct numbers that are categories
_SOME_CODES = 20
_WIDE = 24  # characters: of longer texts a mask would have too many levels
_TIMES = (DATE, BIRTH, YEAR, AGE)
_CATEGORIES = (PLACE, SEX, RACE, FAMILY, WORK)  # numbers that are no measurements
_OF_WHOLE_NUMBERS: dict[str | None, Rule] = {
    ZIP: {"mask": "right"},
    YEAR: {"intervals": [5, 10, 20]},
}
_OLD = 90  # years
_DAY = 86_400  # seconds
_LARGEST = 1e15
_SMALLEST = 1e-9


@dataclass(frozen=True)
class Proposal:
    """The proposed role of a column; ``known``: its name or its content says what it is. The reason, which becomes a
    comment, holds no value of the table. ``shown`` is the hierarchy as the policy file has it, where that differs.
    Of what is ``hidden`` no value is released."""

    column: Profile
    role: Role
    reason: str
    hierarchy: Rule | None = None
    known: bool = False
    shown: Rule | None = None
    hidden: bool = False
    reading: Reading = AS_IT_STANDS

    @property
    def tried(self) -> Mapping[str, Any]:
        """The keys that say how the column is read in trials."""
        return {} if self.role == "identifying" else self.reading.tried


def propose(columns: Sequence[Profile]) -> list[Proposal]:
    """A role for each column; at least one of them is a quasi-identifier, if any column can be."""
    return _with_a_quasi(_not_too_many([_role_of(one) for one in columns]))


def _role_of(column: Profile) -> Proposal:
    by_name = find_kind(column.name)
    if by_name is not None and column.is_flag and (by_name.role == "identifying" or by_name.name in _TIMES):
        by_name = None  # "phone", "death": whether there is one
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
        reason = "nested: make its parts columns, in the file, or of a database with a query under [source]"
        return Proposal(column, "identifying", reason)
    if column.type in ("BLOB", "GEOMETRY", "JSON"):
        return Proposal(column, "identifying", "may hold pictures or documents")
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
    elif column.mentions is not None:
        reason = f"{_share(column.mentions[1])} of its texts mention {column.mentions[0]}"
    elif by_name is None and NUMBER_WORDS.fullmatch(split_words(column.name)) and _can_number(column):
        reason = f"by its name, and its many values: {OTHER_CODE}"
    elif by_name is None and HOUSEHOLD_WORDS.fullmatch(split_words(column.name)) and column.many:
        reason = f"by its name, and its many values: {HOUSEHOLD}"
    return None if reason is None else Proposal(column, "identifying", reason, known=True)


def _can_number(column: Profile) -> bool:
    """Whether a column may number persons, and not what many of them share."""
    return column.many or column.distinct == column.values


def _too_little_or_too_much(column: Profile) -> Proposal | None:
    if column.constant:
        return Proposal(column, "insensitive", "the same in all rows")
    if column.mean_length >= _LONG:
        return Proposal(column, "identifying", "long texts may say anything")
    return None


def _known(column: Profile, by_name: Kind | None, by_content: tuple[Kind, float] | None) -> Proposal | None:
    if by_name is not None and by_name.role == "sensitive":
        return _sensitive(column, by_name)
    if by_name is not None:
        return Proposal(column, "quasi", f"by its name: {by_name.name}", hierarchy_for(column, by_name), True)
    if by_content is not None or column.grouping is not None:
        reason = f"{_share(column.grouping_share)} of its values are {column.grouping}"
        kind = None if by_content is None else by_content[0]
        return Proposal(
            column, "quasi", _looks_like(*by_content) if by_content else reason, hierarchy_for(column, kind), True
        )
    if column.kind in (ColumnKind.DATE, ColumnKind.ZONED):
        return Proposal(column, "quasi", "by its type: dates", hierarchy_for(column, None), True)
    if column.has_partial_dates:
        reason = "all of its values are dates, some without day or month"
        return Proposal(column, "quasi", reason, hierarchy_for(column, None), True)
    return None


def _sensitive(column: Profile, kind: Kind) -> Proposal:
    """What is released unchanged must be a category, or an amount that many rows share."""
    reason = f"by its name: {kind.name}"
    if not column.many or column.values < _ENOUGH:
        return Proposal(column, "sensitive", reason + _UNCHANGED, known=True)
    if column.kind is ColumnKind.TEXT and (column.nearly_unique or column.mean_length >= _FREE):
        return Proposal(column, "identifying", f"{reason}; but its texts are free: they may say anything")
    rule = hierarchy_for(column, None)
    return Proposal(column, "quasi", f"{reason}; but few rows share a value: generalized", rule, True)


def _unknown(column: Profile) -> Proposal:
    if column.nearly_unique and column.kind in (ColumnKind.TEXT, ColumnKind.INTEGER, ColumnKind.OTHER):
        return Proposal(column, "identifying", "nearly every row has another value")
    if column.kind is ColumnKind.TEXT and column.many and column.mean_length >= _FREE and not column.written_numbers:
        return Proposal(column, "identifying", "free text may say anything")
    what = "yes or no, and not recognized" if column.is_flag else "not recognized"
    return Proposal(column, "quasi", f"{what}: quasi, to be safe", hierarchy_for(column, None))


def _looks_like(kind: Kind, share: float) -> str:
    return f"{_share(share)} of its values look like: {kind.name}"


def _share(share: float) -> str:
    return "all" if share == 1 else f"{max(1, math.floor(100 * share))} %"


def _by_content(column: Profile, by_name: Kind | None) -> tuple[Kind, float] | None:
    """The kind that a column's values look like, and the share of them that do; the most of them."""
    found = [
        (kind, column.likes.get(i, 0.0))
        for i, kind in enumerate(KINDS)
        if kind.content is not None
        and column.likes.get(i, 0.0) >= kind.share
        # What may be a category is one, if the name says so; but names of persons are never released.
        and (not kind.many or (column.many and (by_name is None or (by_name.role, kind.name) == ("sensitive", NAME))))
    ]
    return max(found, key=lambda one: (one[0].share < 0.5, one[1]), default=None)


def is_measured(column: Profile) -> bool:
    """Whether the texts of a column are numbers among words, of which intervals make sense."""
    kind = find_kind(column.name)
    return column.written_numbers and (kind is None or kind.name not in (ZIP, DATE, *_CATEGORIES))


def hierarchy_for(column: Profile, kind: Kind | None) -> Rule:
    what = kind.name if kind is not None else None
    if column.kind in (ColumnKind.DATE, ColumnKind.ZONED) or column.has_partial_dates:
        return {"dates": _calendar(column, what == BIRTH or column.has_partial_dates)}
    if column.kind is ColumnKind.TEXT:
        codes = column.likes.get(CODES, 0.0) >= 0.95 and column.distinct > _SOME_CODES
        is_masked = what in (ZIP, DATE, ICD) or (codes and column.grouping is None)
        return {"mask": "right"} if is_masked and 1 < column.longest <= _WIDE else SUPPRESS
    whole = column.kind is ColumnKind.INTEGER
    if whole and what == AGE:
        return _ages(column)
    if whole and what in _OF_WHOLE_NUMBERS:
        return _OF_WHOLE_NUMBERS[what]
    if whole or column.kind in (ColumnKind.DECIMAL, ColumnKind.FLOATING):
        few = column.distinct <= _FEW or what in _CATEGORIES
        return SUPPRESS if few else intervals(column.quantiles, whole)
    return SUPPRESS


def _ages(column: Profile) -> Rule:
    """Ages of 90 and more are one, as HIPAA has it."""
    widths = [5, 10, 20, 40]
    is_old = column.quantiles is not None and column.quantiles[-1] >= _OLD
    return {"intervals": widths} | ({"above": _OLD} if is_old else {})


def _calendar(column: Profile, has_years: bool) -> list[str]:
    """Levels of dates that lose gradually: by the days that most of them span."""
    days = None if column.quantiles is None else (column.quantiles[-2] - column.quantiles[1]) / _DAY
    finest = ["day"] if column.type.startswith("TIMESTAMP") else []
    if has_years or (days is not None and days > 8 * 365):
        return [*finest, "month", "year", "decade"]
    if days is not None and days <= 100:
        return [*finest, "week"]
    return [*finest, "month", "quarter", "year"]


_FACTORS = {1: (5, 2, 2), 2: (5, 2, 2), 5: (2, 2, 5)}
"""By what round widths grow, by the first digit of the first: 1, 5, 10, 20, 100; 2, 10, 20, 40; 5, 10, 20, 100."""
_FEWEST_WIDTHS, _MOST_WIDTHS = 4, 6


def intervals(quantiles: Sequence[float] | None, whole: bool) -> Rule:
    """Intervals of round widths that lose gradually: from about a thirtieth of the range of most values on.

    The quantiles are the least value, those at 1, 5, 95 and 99 %, and the greatest. Where a few values lie far outside
    of the rest, an open end has them.

    >>> intervals((0, 50, 200, 4000, 4100, 4200), whole=True)
    {'intervals': [100, 500, 1000, 2000]}
    >>> intervals((0.0, 0.01, 0.02, 0.78, 0.79, 0.8), whole=False)
    {'intervals': [Decimal('0.02'), Decimal('0.1'), Decimal('0.2'), Decimal('0.4')]}
    >>> intervals((-10, -10, -9, 20, 500, 100_000), whole=True)
    {'intervals': [5, 10, 20, 100, 200], 'above': 600}
    """
    if quantiles is None:
        return SUPPRESS
    least, low, fifth, last_fifth, high, greatest = quantiles
    spread = high - low or greatest - least
    most = last_fifth - fifth or spread
    if not _SMALLEST < most <= spread < _LARGEST or max(abs(least), abs(greatest)) >= _LARGEST:
        return SUPPRESS
    exponent = math.floor(math.log10(most / 30))
    lead = most / 30 / 10.0**exponent
    factor = min((1, 2, 5, 10), key=lambda one: abs(math.log(one / lead)))
    if factor == 10:
        factor, exponent = 1, exponent + 1
    if whole and exponent < 0:
        factor, exponent = 1, 0
    widths = [(factor * Decimal(10) ** exponent).normalize()]
    for by in _FACTORS[factor] * 2:
        if len(widths) < _FEWEST_WIDTHS or (widths[-1] < spread / 4 and len(widths) < _MOST_WIDTHS):
            widths.append(widths[-1] * by)
    if whole:
        widths = [one for one in widths if one > 1]
    ends: dict[str, Any] = {}
    widest = float(widths[-1])
    if low - least > spread:
        ends["below"] = _plain(widths[-1] * math.floor(low / widest))
    if greatest - high > spread:
        ends["above"] = _plain(widths[-1] * (math.floor(high / widest) + 1))
    return {"intervals": [_plain(one) for one in widths], **ends}


def _plain(one: Decimal) -> int | Decimal:
    return int(one) if one == int(one) else one.normalize()


def _not_too_many(proposals: list[Proposal]) -> list[Proposal]:
    """Leave out the quasi-identifiers that are too many: first what nothing is known of, then what tells most apart."""
    quasi = [one for one in proposals if one.role == "quasi"]
    kept = sorted(quasi, key=lambda one: (not one.known, one.column.distinct))[:MOST]
    reason = f"beyond the {MOST} quasi-identifiers of this policy, to add it"
    return [
        replace(
            one,
            role="identifying",
            hierarchy=None,
            reason=f"{one.reason}; {reason}: {toml_value({'role': 'quasi', 'hierarchy': one.hierarchy})}",
        )
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
        chosen,
        role="quasi",
        hierarchy=SUPPRESS,
        reason=f"{chosen.reason.removesuffix(_UNCHANGED)}; but a policy needs one quasi-identifier",
        hidden=chosen.role == "identifying",
    )
    return [instead if one is chosen else one for one in proposals]
