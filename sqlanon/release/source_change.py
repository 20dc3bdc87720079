"""Changes of a source since a release of it was published."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from sqlanon.support.checks import SOURCE_PREFIX
from sqlanon.support.notices import count_noun

SOURCE_CHECK = f"{SOURCE_PREFIX}unchanged source"
"""The check that fails if the source has changed and the release has not."""

NOT_COMPARED = "cannot be compared, the source has changed"
"""The message of checks that fail because the source has changed; their own message follows after a colon."""


@dataclass(frozen=True)
class SourceChange:
    """The differences between a source and its state at a publication. A figure that cannot be counted is None.

    Attributes
    ----------
    published_at:
        The time of the publication.
    rows_before, rows_now:
        Rows of the source then and now.
    withdrawn_persons:
        Released persons who have left the source; for a source on a server, persons who have left it.
    is_estimate:
        Whether ``withdrawn_persons`` is estimated from a sample.
    missing_rows:
        Released rows that the source no longer produces: they were deleted or changed.
    deleted_rows, changed_rows, new_rows:
        With ``[source] key``: released rows whose key has left the source, released rows with other values, and rows
        that were added to the source. All three are lower bounds.
    smallest_class, small_classes, least:
        Without the missing rows: the size of the smallest class, and the number of classes with fewer than ``least``
        persons or rows, which the release promises.
    counts_persons:
        Whether these sizes are persons.
    relabelled:
        The attributes whose hierarchies have other labels now.
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
        """Whether the source has changed."""
        counts = (self.withdrawn_persons, self.missing_rows, self.deleted_rows, self.changed_rows, self.new_rows)
        return self.rows_before != self.rows_now or any(counts) or bool(self.relabelled)

    @property
    def has_lost_rows(self) -> bool:
        """Whether the release shows rows that have left the source."""
        return bool(self.withdrawn_persons or self.deleted_rows or (self.deleted_rows is None and self.missing_rows))

    @property
    def may_have_lost_rows(self) -> bool:
        """Whether the release shows, or may show, rows that have left the source."""
        return self.has_lost_rows or self.is_uncounted

    @property
    def is_uncounted(self) -> bool:
        """Whether the released rows could not be compared with the source."""
        return (self.deleted_rows, self.missing_rows) == (None, None)

    @property
    def losses(self) -> str:
        """A description of the released rows that have left the source or changed.

        >>> then = datetime(2026, 5, 1)
        >>> SourceChange(then, 100, 96, withdrawn_persons=2, missing_rows=5, deleted_rows=4, changed_rows=1).losses
        '2 persons are withdrawn; 4 released rows were deleted; 1 released row has other values'
        """
        return "; ".join(self._describe_losses())

    @property
    def differences(self) -> str:
        """A description of all changes.

        >>> then = datetime(2026, 5, 1)
        >>> SourceChange(then, 100, 100).differences
        'rows were deleted or changed; [source] key shows which'
        >>> SourceChange(then, 100, 120, missing_rows=0).differences
        'the source has grown by 20 rows'
        """
        phrases, growth = [*self._describe_losses()], self.rows_now - self.rows_before
        if self.new_rows:
            phrases.append(f"{count_noun(self.new_rows, 'row', 'is', 'are')} new")
        elif growth > 0:
            phrases.append(f"the source has grown by {count_noun(growth, 'row')}")
        elif growth < 0 and not self.has_lost_rows:
            phrases.append(f"the source has {-growth:,} fewer {'row' if growth == -1 else 'rows'}")
        if self.relabelled:
            phrases.append(f"the hierarchies of {', '.join(map(repr, self.relabelled))} give other labels")
        if not phrases and self.is_uncounted:
            phrases.append("rows were deleted or changed; [source] key shows which")
        return "; ".join(phrases or ["rows that the release does not show have changed"])

    def _describe_losses(self) -> Iterator[str]:
        if self.withdrawn_persons:
            prefix = "about " if self.is_estimate else ""
            yield f"{prefix}{count_noun(self.withdrawn_persons, 'person', 'is', 'are')} withdrawn"
        if self.deleted_rows:
            yield f"{count_noun(self.deleted_rows, 'released row', 'was', 'were')} deleted"
        if self.changed_rows:
            yield f"{count_noun(self.changed_rows, 'released row', 'has', 'have')} other values"
        if self.deleted_rows is None and self.missing_rows:
            yield f"{count_noun(self.missing_rows, 'released row', 'was', 'were')} deleted or changed"

    @property
    def valid_claims(self) -> str:
        """A description of the claims that still hold."""
        message = (
            "the release is the one that was published; its claims about the source at publication are true, and its "
            "rows still meet the requirements"
        )
        if self.has_lost_rows:
            message += ". It still shows what has left the source"
        if self.smallest_class is None or not self.missing_rows:
            return message
        noun = "person" if self.counts_persons else "row"
        message += (
            f". Counted by what the source still has, its smallest class has {count_noun(self.smallest_class, noun)}"
        )
        if self.small_classes:
            few = count_noun(self.small_classes, "class", "has", "have")
            message += f", and {few} fewer than {self.least:,}"
        return message

    def remedy(self, policy: str) -> str:
        """Recommend commands for the policy file of this name."""
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
        """Return the figures as JSON values."""
        descriptions = {"differences": self.differences, "what_holds": self.valid_claims}
        return asdict(self) | {"published_at": self.published_at.isoformat()} | descriptions
