"""The meaning of labels, read a second time in plain Python: it imports nothing of the package."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from fractions import Fraction
from typing import TypeAlias

End: TypeAlias = Fraction | date | None

_NUMBER = r"-?\d+(?:\.\d+)?"
_DAY = r"\d{4}-\d\d-\d\d"


@dataclass(frozen=True)
class Range:
    """All values from ``low`` to ``high``; ``high`` itself only if it is closed. An end may be open (None)."""

    low: End
    high: End
    closed: bool = True

    def may_have(self, value: Fraction | date) -> bool:
        above = self.low is None or value >= self.low  # type: ignore[operator]
        below = self.high is None or (value <= self.high if self.closed else value < self.high)  # type: ignore[operator]
        return above and below


def range_of(label: str, dates: bool) -> Range | None:
    """The range of a label; None of one that can stand for any value."""
    value = _DAY if dates else _NUMBER
    if match := re.fullmatch(rf"({value})(?:(?:-| to )({value}))?", label):
        low, high = (_read(part, dates) for part in (match[1], match[2] or match[1]))
        return Range(low, high) if low <= high else None  # type: ignore[operator]
    if match := re.fullmatch(rf"\[({value}), ({value})\)", label):
        return Range(_read(match[1], dates), _read(match[2], dates), closed=False)
    if match := re.fullmatch(rf"<({value})", label):
        return Range(None, _read(match[1], dates), closed=False)
    if match := re.fullmatch(rf"≥({value})", label):
        return Range(_read(match[1], dates), None)
    return _period(label) if dates else None


def members(label: str) -> list[str]:
    """The members of a set, one character after another."""
    if not re.fullmatch(r"\{.*\}", label, re.DOTALL):
        return [label]
    labels, remaining = [], label[1:-1]
    while True:
        if remaining.startswith('"'):
            end = 1
            while remaining[end : end + 1] != '"' or remaining[end + 1 : end + 2] == '"':
                end += 2 if remaining[end] == '"' else 1
            labels.append(remaining[1:end].replace('""', '"'))
            remaining = remaining[end + 1 :]
        else:
            end = remaining.index(", ") if ", " in remaining else len(remaining)
            labels.append(remaining[:end])
            remaining = remaining[end:]
        if not remaining:
            return labels
        remaining = remaining.removeprefix(", ")


def may_be(label: str | None, low: End, high: End) -> bool:
    """Whether a value under the label may be in the interval."""
    if label is None:
        return False
    dates = isinstance(low, date) or isinstance(high, date)
    return any(_overlaps(range_of(member, dates), low, high) for member in members(label))


def must_be(label: str | None, low: End, high: End) -> bool:
    """Whether all values under the label are in the interval."""
    dates = isinstance(low, date) or isinstance(high, date)
    ranges: Sequence[Range | None] = [] if label is None else [range_of(member, dates) for member in members(label)]
    return bool(ranges) and all(range_ is not None and _within(range_, low, high) for range_ in ranges)


def _overlaps(range_: Range | None, low: End, high: End) -> bool:
    if range_ is None:
        return True
    if high is not None and range_.low is not None and range_.low > high:  # type: ignore[operator]
        return False
    if low is None or range_.high is None:
        return True
    return range_.high >= low if range_.closed else range_.high > low  # type: ignore[operator]


def _within(range_: Range, low: End, high: End) -> bool:
    left = low is None or (range_.low is not None and range_.low >= low)  # type: ignore[operator]
    return left and (high is None or (range_.high is not None and range_.high <= high))  # type: ignore[operator]


def _read(text: str, dates: bool) -> Fraction | date:
    return date.fromisoformat(text) if dates else Fraction(text)


def _period(label: str) -> Range | None:
    if match := re.fullmatch(r"(\d{4})-W(\d\d)", label):
        monday = date.fromisocalendar(int(match[1]), int(match[2]), 1)
        return Range(monday, monday + timedelta(days=6))
    if match := re.fullmatch(r"(\d{4})-Q([1-4])", label):
        return _months(int(match[1]), 3 * int(match[2]) - 2, 3)
    if match := re.fullmatch(r"(\d{4})-(\d\d)", label):
        return _months(int(match[1]), int(match[2]), 1)
    if match := re.fullmatch(r"(\d{4})", label):
        return _months(int(match[1]), 1, 12)
    if match := re.fullmatch(r"(\d{4})s", label):
        return Range(date(int(match[1]), 1, 1), date(int(match[1]) + 9, 12, 31))
    return None


def _months(year: int, first: int, months: int) -> Range:
    last = first + months - 1
    return Range(date(year, first, 1), date(year, last, monthrange(year, last)[1]))
