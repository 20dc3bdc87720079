"""The result of `withdraw`: a release without the rows that have left its source, ready to be published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlanon.errors import ReleaseError
from sqlanon.ledger.published_release import PublishedRelease, count_withdrawn_rows
from sqlanon.places.addresses import format_location
from sqlanon.release.source_change import SourceChange
from sqlanon.result import AnyRelease, Result
from sqlanon.support.notices import count_noun

if TYPE_CHECKING:
    from sqlanon.publish.draft import ReleaseDraft


class Withdrawal:
    """A release without the rows that have left its source, before it is published.

    Attributes
    ----------
    path:
        The release that it replaces.
    released_before:
        The number of rows of that release.
    source_change:
        The changes of the source since it was published.
    result:
        The new version; None if all rows are still in the source.
    only_released_rows:
        Whether the new version has only rows of that release. Otherwise these cannot be distinguished, and the new
        version has all rows of the source.
    same_generalization:
        Whether the new version has the levels of that release.
    withdrawn_rows:
        The rows that the new version lacks, their classes, and the fewest that one of these classes loses; None if the
        generalization is another one, or if they cannot be counted.
    """

    def __init__(self, published: PublishedRelease, change: SourceChange, draft: ReleaseDraft | None) -> None:
        self.path = published.publication.path
        self.released_before = published.manifest.released_rows
        self.source_change = change
        self.result = None if draft is None else Result(draft)
        self.only_released_rows = draft is None or draft.replaces is None or draft.replaces.only_its_rows
        self.same_generalization, self.withdrawn_rows = True, None
        if draft is not None:
            levels = published.manifest.levels(draft.search_input.heights)
            self.same_generalization = dict(draft.recoding.generalization) == levels
            self.withdrawn_rows = count_withdrawn_rows(published, draft)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings to read before the new version is shared."""
        return () if self.result is None else self.result.warnings

    @property
    def disclosure_note(self) -> str | None:
        """A sentence on what readers of both versions learn."""
        rows = self.withdrawn_rows
        if rows is None:
            return (
                "readers who kept the earlier version can compare the two, and see of which values there are fewer rows"
            )
        if not rows.rows:
            return None
        return (
            "readers who kept the earlier version see which rows are gone, with the values of their class and their "
            f"sensitive values: {count_noun(rows.rows, 'row')} in {count_noun(rows.classes, 'class')}, at least "
            f"{rows.fewest:,} in each"
        )

    def sql(self, dialect: str = "duckdb") -> str:
        """The statement that creates the new version (`Result.sql`)."""
        return self._require_result().sql(dialect)

    def publish(self, force: bool = False) -> AnyRelease:
        """Replace the release by the new version.

        Parameters
        ----------
        force:
            Publish even if readers of the earlier version, or of another release in the ledger, can single out rows by
            comparing the two; the ledger records this.

        Raises
        ------
        ReleaseError
            No row has left the source, or the location cannot be written.
        AuditError
            The audit refused it, and nothing was published.
        """
        return self._require_result().publish(force=force)

    def _require_result(self) -> Result:
        if self.result is None:
            location = format_location(self.path)
            raise ReleaseError(f"{location}: no row of it has left the source, so nothing is withdrawn")
        return self.result

    def to_dict(self) -> dict[str, Any]:
        """The figures, for JSON."""
        figures: dict[str, Any] = {
            "withdrawn_persons": self.source_change.withdrawn_persons,
            "released_before": self.released_before,
            "only_released_rows": self.only_released_rows,
            "same_generalization": self.same_generalization,
            "withdrawn_rows": None if self.withdrawn_rows is None else vars(self.withdrawn_rows),
            "source_change": self.source_change.to_dict(),
        }
        return figures if self.result is None else self.result.to_dict() | figures
