"""What has become of a source since a release of it was published."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from sqlanon.audit.check import SOURCE_PREFIX
from sqlanon.support.notices import with_noun

SOURCE_CHECK = f"{SOURCE_PREFIX}unchanged source"
"""The check that fails where a release is as it was published, and its source is not."""

NOT_COMPARED = "cannot be compared, the source has changed"
"""The message of checks that fail because of that, with what they found after a colon."""


@dataclass(frozen=True)
class SourceChange:
    """How a source differs from what it was when a release of it was published. None stands for a figure that cannot
    be counted.

    Attributes
    ----------
    published_at:
        The time of the publication.
    rows_before, rows_now:
        Rows of the source, then and now.
    withdrawn_persons:
        Persons whom the release has, and the source does not have any more; of a source whose rows are elsewhere,
        persons whom the source had.
    is_estimate:
        Whether ``withdrawn_persons`` is estimated from a sample.
    missing_rows:
        Rows of the release that the source does not give any more: they were deleted, or have other values.
    deleted_rows, changed_rows, new_rows:
        With ``[source] key``: released rows whose key has left the source; of the others, those that have other values
        now; and rows that the source has got since. At least as many as these.
    smallest_class, small_classes, least:
        Counted without the rows that are missing: the persons (or rows) of the smallest class of the release, and the
        classes of fewer than ``least``, which the release promises.
    counts_persons:
        Whether these are persons.
    relabelled:
        The attributes whose hierarchies give other labels than when the release was made.
    """

    published_at: datetime
    rows_before: int
    rows_now: int
    withdrawn_persons: int | None = None
    is_estimate: bool = False
    missing_rows: int | None = None
    deleted_rows: int | None = None
    changed_rows: int | None = None
    new_rows: int | None = None
    smallest_class: int | None = None
    small_classes: int | None = None
    least: int = 1
    counts_persons: bool = False
    relabelled: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything shows that the source has changed."""
        counts = (self.withdrawn_persons, self.missing_rows, self.deleted_rows, self.changed_rows, self.new_rows)
        return self.rows_before != self.rows_now or any(counts) or bool(self.relabelled)

    @property
    def lost_rows(self) -> bool:
        """Whether the release shows rows that the source does not have any more."""
        return bool(self.withdrawn_persons or self.deleted_rows or (self.deleted_rows is None and self.missing_rows))

    @property
    def may_have_lost_rows(self) -> bool:
        """Whether the release shows, or may show, rows that the source does not have any more."""
        # A person may keep other rows, and a sample without anybody who has left says nothing of the others.
        return self.lost_rows or self.is_uncounted

    @property
    def is_uncounted(self) -> bool:
        """Whether nobody can tell which rows of the release the source still has."""
        return (self.deleted_rows, self.missing_rows) == (None, None)

    @property
    def losses(self) -> str:
        """What has become of the rows that the release shows, in words.

        >>> then = datetime(2026, 5, 1)
        >>> SourceChange(then, 100, 96, withdrawn_persons=2, missing_rows=5, deleted_rows=4, changed_rows=1).losses
        '2 persons are withdrawn; 4 released rows were deleted; 1 released row has other values'
        """
        return "; ".join(self._losses())

    @property
    def differences(self) -> str:
        """All that has changed, in words.

        >>> then = datetime(2026, 5, 1)
        >>> SourceChange(then, 100, 100).differences
        'rows were deleted or changed; [source] key tells which'
        >>> SourceChange(then, 100, 120, missing_rows=0).differences
        'the source has grown by 20 rows'
        """
        words, grown = [*self._losses()], self.rows_now - self.rows_before
        if self.new_rows:
            words.append(f"{with_noun(self.new_rows, 'row', 'is', 'are')} new")
        elif grown > 0:
            words.append(f"the source has grown by {with_noun(grown, 'row')}")
        elif grown < 0 and not self.lost_rows:
            words.append(f"the source has {-grown:,} fewer {'row' if grown == -1 else 'rows'}")
        if self.relabelled:
            words.append(f"the hierarchies of {', '.join(map(repr, self.relabelled))} give other labels")
        if not words and self.is_uncounted:
            words.append("rows were deleted or changed; [source] key tells which")
        return "; ".join(words or ["rows that the release does not show have changed"])

    def _losses(self) -> Iterator[str]:
        if self.withdrawn_persons:
            about = "about " if self.is_estimate else ""
            yield f"{about}{with_noun(self.withdrawn_persons, 'person', 'is', 'are')} withdrawn"
        if self.deleted_rows:
            yield f"{with_noun(self.deleted_rows, 'released row', 'was', 'were')} deleted"
        if self.changed_rows:
            yield f"{with_noun(self.changed_rows, 'released row', 'has', 'have')} other values"
        if self.deleted_rows is None and self.missing_rows:
            yield f"{with_noun(self.missing_rows, 'released row', 'was', 'were')} deleted or changed"

    @property
    def what_holds(self) -> str:
        """What still holds, and what does not."""
        words = (
            "the release is the one that was published, and what it claims of the source as it was then is true; the "
            "rows that it shows still meet its requirements"
        )
        if self.lost_rows:
            words += ". It still shows what has left the source"
        if self.smallest_class is None or not self.missing_rows:
            return words
        noun = "person" if self.counts_persons else "row"
        words += (
            f". Counted by what the source still has, its smallest class has {with_noun(self.smallest_class, noun)}"
        )
        if self.small_classes:
            few = with_noun(self.small_classes, "class", "has", "have")
            words += f", and {few} fewer than {self.least:,}"
        return words

    def remedy(self, policy: str) -> str:
        """What to do, with the name of the policy's file."""
        remedies = list[str]()
        if self.may_have_lost_rows and not self.relabelled:
            remedies.append(f"`sqlanon withdraw {policy}` publishes the release again without them")
        if self.new_rows or self.rows_now > self.rows_before:
            remedies.append(f"`sqlanon extend {policy}` adds new rows (with [source] key)")
        return "; ".join(remedies) or (
            f"`sqlanon anonymize {policy}` makes a release of the source as it is now, which readers of this one can "
            "join with it"
        )

    def to_dict(self) -> dict[str, Any]:
        """The figures, for JSON."""
        words = {"differences": self.differences, "what_holds": self.what_holds}
        return asdict(self) | {"published_at": self.published_at.isoformat()} | words
