"""What a person who releases data should know: messages, ordered by how many persons they are about."""

from __future__ import annotations

from collections.abc import Iterable

from sqlanon.records import dataclass


@dataclass(frozen=True)
class Notice:
    """A warning, and the number of persons that it affects; rows, where each row is a person. None: not known."""

    message: str
    affected: int | None = None


def ordered_messages(notices: Iterable[Notice]) -> tuple[str, ...]:
    """The messages, each once: those that affect the most persons first, those of an unknown number last.

    >>> ordered_messages([Notice("compare"), Notice("two", 2), Notice("all", 90), Notice("two", 2)])
    ('all', 'two', 'compare')
    """
    by_affected = sorted(notices, key=lambda notice: -1 if notice.affected is None else notice.affected, reverse=True)
    return tuple(dict.fromkeys(notice.message for notice in by_affected))
