"""Propose a role for each column, and a hierarchy for each quasi-identifier.

Unrecognized columns get the role that does least harm: quasi-identifier, or not released.
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
from sqlanon.suggest.reading import UNCHANGED, Reading
from sqlanon.support.toml import toml_value

MAX_QUASI_IDENTIFIERS = 30
"""Maximum number of proposed quasi-identifiers: with them, `mondrian` and `optimal` keep some detail within minutes."""
NEEDS_FILES = "numbers and words such as NA; for round widths: --hierarchies"
"""A comment on columns of words and numbers, which cannot have intervals."""

Rule = str | dict[str, Any]
"""A hierarchy as a policy writes it."""

SUPPRESS = "suppress"
_RELEASED_UNCHANGED = "; released unchanged"
_LONG = 50  # mean characters of texts that may say anything
_FREE = 20  # mean characters of texts that are not categories, if a column has many
_FEW_VALUES = 20  # that they differ says little
_FEW_NUMBERS = 12  # distinct numbers that are categories
_SOME_CODES = 20
_WIDEST_MASK = 24  # characters
_TIMES = (DATE, BIRTH, YEAR, AGE)
_CATEGORIES = (PLACE, SEX, RACE, FAMILY, WORK)  # their numbers do not measure anything
_OLD = 90  # years
_DAY = 86_400  # seconds
_LARGEST, _SMALLEST = 1e15, 1e-9
_WIDTH_FACTORS = {1: (5, 2, 2), 2: (5, 2, 2), 5: (2, 2, 5)}
"""Factors between round widths, by the first digit of the first: 1, 5, 10, 20; 2, 10, 20, 40; 5, 10, 20, 100."""
_FEWEST_WIDTHS, _MOST_WIDTHS = 4, 6


@dataclass(frozen=True)
class Proposal:
    """The proposed role of a column, with a reason that holds no value of the table.

    ``known``: its name or its content says what it is. ``shown`` is the hierarchy as the policy file writes it, if that
    differs. No value of a ``hidden`` column is released.
    """

    column: Profile
    role: Role
    reason: str
    hierarchy: Rule | None = None
    known: bool = False
    shown: Rule | None = None
    hidden: bool = False
    reading: Reading = UNCHANGED

    @property
    def trial_keys(self) -> Mapping[str, Any]:
        return {} if self.role == "identifying" else self.reading.trial_keys


def propose(columns: Sequence[Profile]) -> list[Proposal]:
    """Propose a role for each column, among them a quasi-identifier if any column can be one."""
    return require_a_quasi_identifier(propose_roles(columns, MAX_QUASI_IDENTIFIERS))


def propose_roles(columns: Sequence[Profile], most: int) -> list[Proposal]:
    """Propose a role for each column, with this number of quasi-identifiers at most."""
    return _limit_quasi_identifiers([_propose_role(column) for column in columns], most)


def _propose_role(column: Profile) -> Proposal:
    by_name = find_kind(column.name)
    if by_name is not None and column.is_flag and (by_name.role == "identifying" or by_name.name in _TIMES):
        by_name = None  # "phone", "death": whether there is one
    by_content = _find_content_kind(column, by_name)
    if column.is_nested:
        reason = "nested: make its parts columns, in the file, or of a database with a query under [source]"
        return Proposal(column, "identifying", reason)
    if column.type in ("BLOB", "GEOMETRY", "JSON"):
        return Proposal(column, "identifying", "may hold pictures or documents")
    if evidence := _find_identifiers(column, by_name, by_content):
        return Proposal(column, "identifying", evidence, known=True)
    if column.is_constant:
        return Proposal(column, "insensitive", "the same in all rows")
    if column.mean_length >= _LONG:
        return Proposal(column, "identifying", "long texts may say anything")
    return _propose_known(column, by_name, by_content) or _propose_unknown(column)


def _find_identifiers(column: Profile, by_name: Kind | None, by_content: tuple[Kind, float] | None) -> str | None:
    """The reason why a column has identifiers, by its name, its type, or its content."""
    words, reason = split_words(column.name), None
    can_number_persons = column.has_many_values or column.distinct == column.values
    if by_name is not None and by_name.role == "identifying":
        reason = f"by its name: {by_name.name}"
    elif column.type == "UUID":
        reason = f"by its type: {OTHER_CODE}"
    elif by_content is not None and by_content[0].role == "identifying":
        reason = _describe_content(*by_content)
    elif column.mentions is not None:
        reason = f"{_percent(column.mentions[1])} of its texts mention {column.mentions[0]}"
    elif by_name is None and NUMBER_WORDS.fullmatch(words) and can_number_persons:
        reason = f"by its name, and its many values: {OTHER_CODE}"
    elif by_name is None and HOUSEHOLD_WORDS.fullmatch(words) and column.has_many_values:
        reason = f"by its name, and its many values: {HOUSEHOLD}"
    return reason


def _propose_known(column: Profile, by_name: Kind | None, by_content: tuple[Kind, float] | None) -> Proposal | None:
    kind = by_name
    if by_name is not None and by_name.role == "sensitive":
        return _propose_sensitive(column, by_name)
    if by_name is not None:
        reason = f"by its name: {by_name.name}"
    elif by_content is not None:
        kind, reason = by_content[0], _describe_content(*by_content)
    elif column.grouping is not None:
        reason = f"{_percent(column.grouping_share)} of its values are {column.grouping}"
    elif column.kind in (ColumnKind.DATE, ColumnKind.ZONED):
        reason = "by its type: dates"
    elif column.has_partial_dates:
        reason = "all of its values are dates, some without day or month"
    else:
        return None
    return Proposal(column, "quasi", reason, propose_hierarchy(column, kind), known=True)


def _propose_sensitive(column: Profile, kind: Kind) -> Proposal:
    """A sensitive column is released unchanged if it has categories, or amounts that many rows share."""
    reason = f"by its name: {kind.name}"
    if not column.has_many_values or column.values < _FEW_VALUES:
        return Proposal(column, "sensitive", reason + _RELEASED_UNCHANGED, known=True)
    if column.kind is ColumnKind.TEXT and (column.is_nearly_unique or column.mean_length >= _FREE):
        return Proposal(column, "identifying", f"{reason}; but its texts are free: they may say anything")
    rule = propose_hierarchy(column, None)
    return Proposal(column, "quasi", f"{reason}; but few rows share a value: generalized", rule, known=True)


def _propose_unknown(column: Profile) -> Proposal:
    is_text = column.kind is ColumnKind.TEXT
    if column.is_nearly_unique and (is_text or column.kind in (ColumnKind.INTEGER, ColumnKind.OTHER)):
        return Proposal(column, "identifying", "nearly every row has another value")
    if is_text and column.has_many_values and column.mean_length >= _FREE and not column.has_written_numbers:
        return Proposal(column, "identifying", "free text may say anything")
    reason = "yes or no, and not recognized" if column.is_flag else "not recognized"
    return Proposal(column, "quasi", f"{reason}: quasi, to be safe", propose_hierarchy(column, None))


def _describe_content(kind: Kind, share: float) -> str:
    return f"{_percent(share)} of its values look like: {kind.name}"


def _percent(share: float) -> str:
    return "all" if share == 1 else f"{max(1, math.floor(100 * share))} %"


def _find_content_kind(column: Profile, by_name: Kind | None) -> tuple[Kind, float] | None:
    """The kind that most of a column's values look like, and their share."""

    def can_be(kind: Kind) -> bool:
        # A name can say that values are categories; but names of persons are never released.
        allows = by_name is None or (by_name.role, kind.name) == ("sensitive", NAME)
        return kind.content is not None and (not kind.many or (column.has_many_values and allows))

    shares = [(kind, column.likes.get(i, 0.0)) for i, kind in enumerate(KINDS) if can_be(kind)]
    candidates = [(kind, share) for kind, share in shares if share >= kind.share]
    return max(candidates, key=lambda candidate: (candidate[0].share < 0.5, candidate[1]), default=None)


def is_measured(column: Profile) -> bool:
    """Whether the texts of a column are numbers among words, and intervals of them make sense."""
    kind = find_kind(column.name)
    return column.has_written_numbers and (kind is None or kind.name not in (ZIP, DATE, *_CATEGORIES))


def propose_hierarchy(column: Profile, kind: Kind | None) -> Rule:
    name = kind.name if kind is not None else None
    if column.kind in (ColumnKind.DATE, ColumnKind.ZONED) or column.has_partial_dates:
        return {"dates": _propose_dates(column, name == BIRTH or column.has_partial_dates)}
    if column.kind is ColumnKind.TEXT:
        has_codes = column.likes.get(CODES, 0.0) >= 0.95 and column.distinct > _SOME_CODES
        is_masked = name in (ZIP, DATE, ICD) or (has_codes and column.grouping is None)
        return {"mask": "right"} if is_masked and 1 < column.longest <= _WIDEST_MASK else SUPPRESS
    is_whole = column.kind is ColumnKind.INTEGER
    if is_whole and name == AGE:  # 90 and more are one value, as in HIPAA
        is_old = column.quantiles is not None and column.quantiles[-1] >= _OLD
        return {"intervals": [5, 10, 20, 40], **({"above": _OLD} if is_old else {})}
    if is_whole and name in (ZIP, YEAR):
        return {"mask": "right"} if name == ZIP else {"intervals": [5, 10, 20]}
    if not column.is_numeric or column.distinct <= _FEW_NUMBERS or name in _CATEGORIES:
        return SUPPRESS
    return propose_intervals(column.quantiles, is_whole)


def _propose_dates(column: Profile, has_years: bool) -> list[str]:
    """Levels of dates, by the days that most of them span."""
    days = None if column.quantiles is None else (column.quantiles[-2] - column.quantiles[1]) / _DAY
    finest = ["day"] if column.type.startswith("TIMESTAMP") else []
    if has_years or (days is not None and days > 8 * 365):
        return [*finest, "month", "year", "decade"]
    if days is not None and days <= 100:
        return [*finest, "week"]
    return [*finest, "month", "quarter", "year"]


def propose_intervals(quantiles: Sequence[float] | None, is_whole: bool) -> Rule:
    """Intervals of round widths, from about a thirtieth of the range of most values on.

    The quantiles are the minimum, 1, 5, 95 and 99 %, and the maximum. A few values far from the others have an open
    end.

    >>> propose_intervals((0, 50, 200, 4000, 4100, 4200), is_whole=True)
    {'intervals': [100, 500, 1000, 2000]}
    >>> propose_intervals((0.0, 0.01, 0.02, 0.78, 0.79, 0.8), is_whole=False)
    {'intervals': [Decimal('0.02'), Decimal('0.1'), Decimal('0.2'), Decimal('0.4')]}
    >>> propose_intervals((-10, -10, -9, 20, 500, 100_000), is_whole=True)
    {'intervals': [5, 10, 20, 100, 200], 'above': 600}
    """
    if quantiles is None:
        return SUPPRESS
    minimum, low, fifth, last_fifth, high, maximum = quantiles
    spread = high - low or maximum - minimum
    inner_spread = last_fifth - fifth or spread
    if not _SMALLEST < inner_spread <= spread < _LARGEST or max(abs(minimum), abs(maximum)) >= _LARGEST:
        return SUPPRESS
    exponent = math.floor(math.log10(inner_spread / 30))
    lead = inner_spread / 30 / 10.0**exponent
    digit = min((1, 2, 5, 10), key=lambda digit: abs(math.log(digit / lead)))
    if digit == 10:
        digit, exponent = 1, exponent + 1
    if is_whole and exponent < 0:
        digit, exponent = 1, 0
    widths = [(digit * Decimal(10) ** exponent).normalize()]
    for factor in _WIDTH_FACTORS[digit] * 2:
        if len(widths) < _FEWEST_WIDTHS or (widths[-1] < spread / 4 and len(widths) < _MOST_WIDTHS):
            widths.append(widths[-1] * factor)
    if is_whole:
        widths = [width for width in widths if width > 1]
    ends: dict[str, Any] = {}
    widest = float(widths[-1])
    if low - minimum > spread:
        ends["below"] = _plain_number(widths[-1] * math.floor(low / widest))
    if maximum - high > spread:
        ends["above"] = _plain_number(widths[-1] * (math.floor(high / widest) + 1))
    return {"intervals": [_plain_number(width) for width in widths], **ends}


def _plain_number(number: Decimal) -> int | Decimal:
    return int(number) if number == int(number) else number.normalize()


def _limit_quasi_identifiers(proposals: list[Proposal], most: int) -> list[Proposal]:
    """Release no more than ``most`` quasi-identifiers: known columns first, then those with few distinct values."""
    quasi = [proposal for proposal in proposals if proposal.role == "quasi"]
    retained = sorted(quasi, key=lambda proposal: (not proposal.known, proposal.column.distinct))[:most]

    def withhold(proposal: Proposal) -> Proposal:
        spec = toml_value({"role": "quasi", "hierarchy": proposal.hierarchy})
        reason = f"{proposal.reason}; beyond the {most} quasi-identifiers of this table, to add it: {spec}"
        return replace(proposal, role="identifying", hierarchy=None, reason=reason)

    return [
        withhold(proposal) if proposal.role == "quasi" and proposal not in retained else proposal
        for proposal in proposals
    ]


def require_a_quasi_identifier(proposals: list[Proposal]) -> list[Proposal]:
    """Make a column a quasi-identifier if there is none: policies need one."""
    order = ("insensitive", "sensitive", "identifying")
    candidates = [proposal for proposal in proposals if not proposal.column.is_nested]
    if not candidates or any(proposal.role == "quasi" for proposal in proposals):
        return proposals
    chosen = min(candidates, key=lambda proposal: (order.index(proposal.role), proposal.column.distinct))
    reason = f"{chosen.reason.removesuffix(_RELEASED_UNCHANGED)}; but a policy needs one quasi-identifier"
    hidden = chosen.role == "identifying"
    changed = replace(chosen, role="quasi", hierarchy=SUPPRESS, reason=reason, hidden=hidden)
    return [changed if proposal is chosen else proposal for proposal in proposals]
