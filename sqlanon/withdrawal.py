"""Withdrawal: the policy's release again, without the rows that have left its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import InfeasibleError, ReleaseError
from sqlanon.frequency.counting import count_frequencies
from sqlanon.frequency.scan import scan_tables
from sqlanon.hierarchies.build import Hierarchies, summarize_values
from sqlanon.ledger import PublishedRelease, find_published_release, select_released_rows
from sqlanon.ledger.published_release import count_withdrawn_rows
from sqlanon.pipeline import (
    StageProgress,
    StageTimer,
    draft,
    prepare,
    prepare_beside_releases,
    prepare_with_earlier_releases,
)
from sqlanon.places.addresses import format_location
from sqlanon.policy import Policy
from sqlanon.publish.draft import ReleaseDraft, ReplacedRelease
from sqlanon.publish.targets.base import Reach, recorded_location
from sqlanon.release.source_change import SourceChange
from sqlanon.result import AnyRelease, Result
from sqlanon.source_verification import count_source_rows, measure_source_change
from sqlanon.sources import Source, source_errors
from sqlanon.sources.run import Run
from sqlanon.sources.workspace import Workspace
from sqlanon.strategies.lattice.input import EarlierReleases, SearchInput, build_search_input
from sqlanon.support.expressions import create_table
from sqlanon.support.notices import count_noun


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
            return "readers who kept the earlier version can compare the two, and see which values have fewer rows"
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


def withdraw(workspace: Workspace, policy: Policy, progress: StageProgress) -> Withdrawal:
    """Make the policy's release again without the rows that were deleted from its source.

    The new version has the levels of the release, or, if these do not meet the policy, the best coarser ones.

    The new version has only rows of the release, if they can be distinguished from the source's other rows.
    """
    timer = StageTimer()
    progress("scan", 0, 0, None)
    with workspace.run(policy, counted=True) as run, source_errors():
        published = find_published_release(run, policy)
        publication, rows_now = published.publication, count_source_rows(run, policy)
        location = recorded_location(publication.path, publication.table_name, Reach(policy, run.source))
    change = measure_source_change(workspace, policy, location, published.manifest, publication, rows_now)
    if not change.may_have_lost_rows:
        return Withdrawal(published, change, None)
    deleted_rows = change.missing_rows if change.deleted_rows is None else change.deleted_rows
    if deleted_rows == published.manifest.released_rows:
        raise ReleaseError(
            f"{format_location(publication.path)}: none of its rows is in the source any more, so no release "
            "can replace it; remove it, or run `sqlanon anonymize` to release the source as it is now"
        )
    try:
        release_draft = _draft_withdrawal(workspace, published, True, progress, timer)
    except InfeasibleError:
        release_draft = _draft_withdrawal(workspace, published, False, progress, timer)
    return Withdrawal(published, change, release_draft)


def _draft_withdrawal(
    workspace: Workspace, published: PublishedRelease, is_fixed: bool, progress: StageProgress, timer: StageTimer
) -> ReleaseDraft:
    run = workspace.run(published.policy, counted=True)
    only_its_rows = published.can_republish_released_rows(run.source)

    def prepare_input(runner: StatementRunner, run: Run, policy: Policy) -> SearchInput:
        if only_its_rows:
            return _prepare_released_rows(runner, run, published, is_fixed)
        if is_fixed and published.levels is not None:
            return _prepare_at_levels(runner, run, policy, published.levels)
        return prepare_with_earlier_releases(runner, run, policy)

    try:
        release_draft = draft(StatementRunner(run.engine), run, published.policy, progress, timer, prepare_input)
    finally:
        if run.source.persons is not None:
            run.source.persons.close()
    return replace(release_draft, replaces=ReplacedRelease(published.publication.run_id, only_its_rows))


def _prepare_released_rows(
    runner: StatementRunner, run: Run, published: PublishedRelease, is_fixed: bool
) -> SearchInput:
    """Build the search input of a release's own rows with the hierarchies of the whole source, for the release's levels
    or for levels at least as coarse."""
    policy, run_id = published.policy, published.publication.run_id
    earlier, fixed = [published.publication, *published.base_publications], published.manifest if is_fixed else None
    whole = prepare_beside_releases(
        runner, run, policy, earlier, fixed, {run_id}, lambda name: run.work(f"whole_{name}")
    )
    rows, searched = run.work("rows_of_release"), whole.search_policy
    run.engine.execute(create_table(rows.copy(), select_released_rows(whole.source.relation)))
    scanned = scan_tables(runner, searched, Source(rows, run.engine.columns(rows), run.source.files), run.work)
    facts = summarize_values(runner, scanned.values)
    hierarchies = Hierarchies(whole.hierarchies, whole.sensitive_hierarchies, facts)
    frequencies = count_frequencies(runner, searched, scanned, hierarchies, run.work)
    search_input = build_search_input(searched, scanned, hierarchies, frequencies)
    run_ids = tuple(earlier_id for earlier_id in whole.earlier.run_ids if earlier_id != run_id)
    releases = replace(whole.earlier, run_ids=run_ids, changed_run_ids=whole.earlier.changed_run_ids - {run_id})
    return replace(search_input, policy=policy, earlier=releases)


def _prepare_at_levels(runner: StatementRunner, run: Run, policy: Policy, levels: Mapping[str, int]) -> SearchInput:
    """Build a search input whose lattice has one generalization."""
    attributes = {
        name: spec.model_copy(update={"min_level": levels[name], "max_level": levels[name]}) if name in levels else spec
        for name, spec in policy.attributes.items()
    }
    searched = policy.model_copy(update={"attributes": attributes})
    search_input = prepare(runner, searched, run.source, run.work, run.population)
    return replace(search_input, policy=policy, earlier=EarlierReleases(search_policy=searched))
