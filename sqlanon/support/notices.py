"""Warnings for the data holder, ordered by the number of persons that they affect."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Notice:
    """A warning and the number of affected persons, or of rows if each row is a person; None if unknown."""

    message: str
    affected: int | None = None


def sort_messages(notices: Iterable[Notice]) -> tuple[str, ...]:
    """The distinct messages, by descending number of affected persons; unknown numbers last.

    >>> sort_messages([Notice("compare"), Notice("two", 2), Notice("all", 90), Notice("two", 2)])
    ('all', 'two', 'compare')
    """
    by_affected = sorted(notices, key=lambda notice: -1 if notice.affected is None else notice.affected, reverse=True)
    return tuple(dict.fromkeys(notice.message for notice in by_affected))


def count_noun(count: int, noun: str, singular: str = "", plural: str = "") -> str:
    """A count with its noun, and optionally a verb, in the singular or plural.

    >>> count_noun(1, "row"), count_noun(1186, "row"), count_noun(2, "class", "holds", "hold")
    ('1 row', '1,186 rows', '2 classes hold')
    """
    nouns = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    verb = singular if count == 1 else plural
    return f"{count:,} {noun if count == 1 else nouns}{' ' + verb if verb else ''}"
