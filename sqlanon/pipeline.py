"""The stages from a policy to a release, and the jobs that run them.

scan > hierarchies > frequency sets > search > recode > dependencies > noise > decoys > audit > publish

`anonymize` runs the stages up to a draft of the release, and `publish` the last two. `plan` is a dry run: its
`StatementRunner` records statements and answers queries with examples. `compare`, `extend`, `risk` and `verify` share
the first stages. Each stage is one call into its package.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from sqlglot import exp

from sqlanon.disclosure.dependencies import measure_dependencies
from sqlanon.disclosure.person_column import (
    explain_undecided_person,
    find_undecided_person,
    refuse_undecided_person,
    warn_of_rows_without_person,
)
from sqlanon.disclosure.unprotected_columns import warn_of_insensitive_names, warn_of_unprotected_columns
from sqlanon.engines.statement_runner import Plan, StatementRunner
from sqlanon.errors import (
    AuditError,
    InfeasibleError,
    NoMarkedRowsError,
    OvertimeError,
    PolicyError,
    RelabelledError,
    ReleaseError,
)
from sqlanon.frequency.counting import count_frequencies
from sqlanon.frequency.scan import scan_tables
from sqlanon.frequency.unmatched import drop_unmatched_population
from sqlanon.hierarchies.build import Hierarchies, build_hierarchies, summarize_values
from sqlanon.hierarchies.levels import warn_of_levels_above_top
from sqlanon.places.addresses import format_location
from sqlanon.policy import Policy
from sqlanon.policy.compatibility import LEDGER_FEATURES, collect_sections, find_conflicts
from sqlanon.publish.draft import ReleaseDraft, ReplacedRelease, show_audit, show_rows
from sqlanon.publish.stage import Ledger, NoLedger, copy_audited_rows
from sqlanon.publish.stage import publish as audit_and_publish
from sqlanon.publish.targets.base import Reach, recorded_location, target_for
from sqlanon.recode.stage import recode
from sqlanon.release.target_kinds import kind_for_target
from sqlanon.sources import Source, source_errors
from sqlanon.sources.columns import refuse_repeated_keys
from sqlanon.sources.run import Run, keep_work_tables
from sqlanon.sources.source import Population
from sqlanon.sources.workspace import Workspace
from sqlanon.strategies.examples import example_levels, find_lattice_size
from sqlanon.strategies.lattice.input import EarlierReleases, SearchInput, build_search_input
from sqlanon.strategies.lattice.lattice import ignore_progress, store_lattice
from sqlanon.strategies.stage import run_search
from sqlanon.support.checks import Check, source_check
from sqlanon.support.expressions import Namer, create_table, row_count
from sqlanon.support.notices import Notice, sort_messages
from sqlanon.support.workdir import spill_directory

if TYPE_CHECKING:
    from sqlanon.audit.verification import Verification
    from sqlanon.ledger import Publication, PublishedRelease
    from sqlanon.ledger.growth.extend import Extension
    from sqlanon.noise.stage import NoisePlan
    from sqlanon.publish.targets.base import OpenedRelease, ReleasedRows, ReleaseLocation
    from sqlanon.release.manifest import Manifest
    from sqlanon.release.source_change import SourceChange
    from sqlanon.risk import Risk
    from sqlanon.strategies.compare import ComparisonProgress, ComparisonRow

StageProgress: TypeAlias = "Callable[[str, int, int, float | None], None]"
"""Called with the stage (``scan``, ``search``, ``noise``, ``write``), the numbers of open and evaluated
generalizations (for ``noise``: of waiting and finished records), and the best score so far."""


def anonymize(
    workspace: Workspace, policy: Policy, progress: StageProgress, keep_work: str | os.PathLike[str] | None
) -> ReleaseDraft:
    """Find the best generalization of a source that meets the policy, and draft its release."""
    timer = StageTimer()
    progress("scan", 0, 0, None)
    run = workspace.run(policy, counted=True)
    try:
        with nullcontext() if keep_work is None else keep_work_tables(run, keep_work):
            return draft(StatementRunner(run.engine), run, policy, progress, timer)
    finally:
        if run.source.persons is not None:
            run.source.persons.close()


def plan(workspace: Workspace, policy: Policy) -> Plan:
    """List the stages of `anonymize` and `publish` with their statements, from the schema alone: no row is read."""
    run = workspace.run(policy, read=False, counted=True)  # stays open: the statements name its views
    runner = StatementRunner(run.engine, [])
    runner.stages += run.source.plan()
    release_draft = draft(runner, run, policy, ignore_progress, StageTimer())
    show_rows(runner, release_draft)
    show_audit(runner, release_draft)
    warnings = sort_messages((*run.notices, *warn_of_insensitive_names(policy)))
    return Plan(tuple(runner.stages), *find_lattice_size(policy, run.engine), policy.search.is_local, warnings)


def compare(
    workspace: Workspace,
    policies: Mapping[str, Policy | PolicyError],
    progress: ComparisonProgress,
    seconds: float | None,
) -> Iterator[ComparisonRow]:
    """Run each strategy within its time. Each one reads the source again, so that none profits from an earlier one."""
    from sqlanon.engines.deadline import interrupt_after
    from sqlanon.strategies.compare import ComparisonRow, build_comparison_row, with_time_limit

    undecided_person, is_first = None, True
    for name, strategy_policy in policies.items():
        progress(name, 0, 0, None)
        if isinstance(strategy_policy, PolicyError):
            yield ComparisonRow(name, error="; ".join(map(str, strategy_policy.problems)))
            continue
        policy, started = with_time_limit(strategy_policy, seconds), time.perf_counter()
        try:
            with workspace.run(policy, counted=True) as run, interrupt_after(seconds, run.engines):
                runner = StatementRunner(run.engine)
                with source_errors():
                    search_input = prepare_with_earlier_releases(runner, run, policy)
                search_started = time.perf_counter()
                search_result = run_search(runner, search_input, partial(progress, name))
                search_seconds = time.perf_counter() - search_started
                figures = recode(runner, search_input, search_result).figures
                total_seconds = time.perf_counter() - started
                if is_first:
                    undecided_person, is_first = _describe_undecided_person(runner, search_input), False
                yield build_comparison_row(
                    name, search_input, search_result, figures, search_seconds, total_seconds, undecided_person
                )
        except (OvertimeError, InfeasibleError) as error:
            stopped, total_seconds = isinstance(error, OvertimeError) or None, time.perf_counter() - started
            yield ComparisonRow(name, stopped=stopped, seconds=total_seconds, error=str(error))


def _describe_undecided_person(runner: StatementRunner, search_input: SearchInput) -> str | None:
    """Warn that a column numbers persons and the policy does not name it, so that figures count rows."""
    source, rows = search_input.source, search_input.marginals.rows
    with source_errors():
        person = find_undecided_person(runner, search_input.policy, source, search_input.columns, rows)
    return None if person is None else f"source.person: {explain_undecided_person(person)}"


def extend(workspace: Workspace, policy: Policy) -> Extension:
    """Find the new rows of the source that can be added to the policy's release."""
    from sqlanon.ledger.growth.extend import extend, release_to_extend

    run = workspace.run(policy)  # stays open: the extension is published from it
    started, runner = time.perf_counter(), StatementRunner(run.engine)
    with source_errors():
        extended = release_to_extend(run, policy)
        fixed, verified = extended.manifest, {extended.publication.run_id}
        search_input = prepare_beside_releases(
            runner, run, policy, [extended.publication, *extended.base_publications], fixed, verified
        )
        return extend(runner, run, search_input, extended, started)


def withdraw(
    workspace: Workspace, policy: Policy, progress: StageProgress
) -> tuple[PublishedRelease, SourceChange, ReleaseDraft | None]:
    """Draft the policy's release again without the rows that were deleted from its source: at the same levels, or, if
    these do not meet the policy, after a search among coarser ones. The draft is None if no row was deleted.

    The draft has only rows of the release, if they can be distinguished from the source's other rows.
    """
    from sqlanon.ledger import find_published_release

    timer = StageTimer()
    progress("scan", 0, 0, None)
    with workspace.run(policy, counted=True) as run, source_errors():
        published = find_published_release(run, policy)
        publication, rows_now = published.publication, _count_source_rows(run, policy)
        location = recorded_location(publication.path, publication.table_name, Reach(policy, run.source))
    change = measure_source_change(workspace, policy, location, published.manifest, publication, rows_now)
    if not change.may_have_lost_rows:
        return published, change, None
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
    return published, change, release_draft


def _count_source_rows(run: Run, policy: Policy) -> int:
    if run.source.access == "rows":
        return int(run.engine.rows(row_count(rows=run.source.relation))[0][0])
    return prepare(StatementRunner(run.engine), policy, run.source, run.work, run.population).marginals.rows


def _draft_withdrawal(
    workspace: Workspace, published: PublishedRelease, is_fixed: bool, progress: StageProgress, timer: StageTimer
) -> ReleaseDraft:
    run = workspace.run(published.policy, counted=True)
    only_its_rows = published.can_republish_released_rows(run.source)

    def prepare_input(runner: StatementRunner, run: Run, policy: Policy) -> SearchInput:
        if only_its_rows:
            return prepare_released_rows(runner, run, published, is_fixed)
        if is_fixed and published.levels is not None:
            return prepare_at_levels(runner, run, policy, published.levels)
        return prepare_with_earlier_releases(runner, run, policy)

    try:
        release_draft = draft(StatementRunner(run.engine), run, published.policy, progress, timer, prepare_input)
    finally:
        if run.source.persons is not None:
            run.source.persons.close()
    return replace(release_draft, replaces=ReplacedRelease(published.publication.run_id, only_its_rows))


def risk(
    workspace: Workspace, policy: Policy, epsilons: Sequence[float], leakage: int, leakage_seconds: float | None
) -> Risk:
    """Assess the risk of an unprotected source; if the policy has noise, also its errors in the best generalization."""
    from sqlanon.risk import assess_risk

    with workspace.run(policy) as run, source_errors():
        assessment = assess_risk(StatementRunner(run.engine), run, policy, leakage, leakage_seconds)
    if not policy.noisy_attributes:
        return assessment
    from sqlanon.noise.columns import require_usable_noisy_columns
    from sqlanon.risk import estimate_noise_errors

    with workspace.run(policy) as run, source_errors():
        runner, columns = StatementRunner(run.engine), require_usable_noisy_columns(run.engine, policy, run.source)
        try:
            search_input = prepare(runner, policy, run.source, run.work, run.population)
            recoding = recode(runner, search_input, run_search(runner, search_input, ignore_progress))
        except InfeasibleError:
            return assessment
        return replace(assessment, noise=estimate_noise_errors(runner, search_input, recoding, columns, epsilons))


def verify(workspace: Workspace, policy: Policy, location: ReleaseLocation, sha256: str | None) -> Verification:
    """Verify a release alone, then against its source: prepare the source as for the release, and recode it again."""
    from sqlanon.ledger import check_against_ledger, count_changes, find_publication, find_recorded_publication
    from sqlanon.source_verification import check_lost_rows, check_policy, explain_failure

    with location.open_verified(workspace.limits, sha256) as release:
        verification = release.verification
        if not verification.is_file and (policy.noisy_attributes or policy.has_decoys):
            raise ReleaseError(
                "a release with noise or decoys can be verified against its source only as a file: publish it to a file"
            )
        with workspace.run(policy, counted=True) as run, source_errors():
            sha256_now = release.sha256() if verification.verified and policy.catalog is not None else None
            policy_checks = check_policy(policy, verification)
            ledger_checks = check_against_ledger(run.engine, policy, verification, sha256_now)
            publication = find_publication(run.engine, policy, verification)
            is_made_by_policy = all(check.passed for check in policy_checks)
            source_checks, rows_now = _check_source(run, policy, release, publication, is_made_by_policy)
            checks = (*verification.checks, *policy_checks)
            without_source = replace(verification, checks=(*checks, *ledger_checks))
            complete = replace(verification, checks=(*checks, *source_checks, *ledger_checks))
            if not without_source.verified:
                return complete
            recorded = find_recorded_publication(run.engine, policy, verification, sha256_now)
            if recorded is None:
                return complete
            if complete.verified:  # new persons may have the rows of deleted ones
                return check_lost_rows(complete, count_changes(run, policy, recorded, verification.manifest, rows_now))
        change = measure_source_change(workspace, policy, release, verification.manifest, recorded, rows_now)
        return explain_failure(complete, change, len(checks))


def _check_source(
    run: Run, policy: Policy, release: OpenedRelease, publication: Publication | None, is_made_by_policy: bool
) -> tuple[list[Check], int]:
    """Check a release against its source; return the checks and the number of source rows."""
    from sqlanon.source_verification import check_against_source, check_extended

    runner, rows_now = StatementRunner(run.engine), 0
    if run.source.access == "rows" and not (rows_now := _count_source_rows(run, policy)):
        return [source_check("source rows", False, "the source has rows", "the source has no rows")], 0
    if publication is None or not publication.is_part:
        after = None if publication is None else publication.after
        search_input = prepare_with_earlier_releases(runner, run, policy, after)
        withdraws = publication is not None and publication.withdraws is not None
        return check_against_source(run, search_input, release, withdraws), search_input.marginals.rows
    if not is_made_by_policy:  # the rows are not comparable
        return [], rows_now
    try:
        manifest = release.verification.manifest
        search_input = prepare_beside_releases(runner, run, policy, [publication], manifest, {publication.run_id})
        return check_extended(run, search_input, release), rows_now
    except RelabelledError as error:
        return [source_check("recoded source", False, "", str(error))], rows_now


def measure_source_change(
    workspace: Workspace,
    policy: Policy,
    release: ReleasedRows,
    manifest: Manifest,
    publication: Publication,
    rows_now: int,
) -> SourceChange:
    """Measure how the source of an unchanged release differs from the source it was published from."""
    from sqlanon.ledger import can_mark_rows, count_changes, measure_released_rows

    with workspace.run(policy, counted=True) as run, source_errors():
        change = count_changes(run, policy, publication, manifest, rows_now)
        if not can_mark_rows(policy, run.source, manifest):
            return change
        runner = StatementRunner(run.engine)
        try:
            search_input = prepare_beside_releases(runner, run, policy, [publication], manifest, {publication.run_id})
        except RelabelledError as error:
            return replace(change, relabelled=tuple(error.counts))
        except (NoMarkedRowsError, InfeasibleError):  # none of the release's rows is in the source
            return replace(change, missing_rows=manifest.released_rows)
        with release.rows(run.engine, manifest) as released:
            return measure_released_rows(run, search_input, publication, manifest, released, change)


def draft(
    runner: StatementRunner,
    run: Run,
    policy: Policy,
    progress: StageProgress,
    timer: StageTimer,
    prepare_input: Callable[[StatementRunner, Run, Policy], SearchInput] | None = None,
) -> ReleaseDraft:
    """Run all stages before the audit on a bound source."""
    if problems := list(find_conflicts(LEDGER_FEATURES, collect_sections(dict(policy)))):
        raise PolicyError(problems)
    kind_for_target(None, policy).refuse(policy, run.source)
    with source_errors():
        noise = _plan_noise(runner, run, policy)  # refuse impossible noise before the search
        search_input = (prepare_input or prepare_with_earlier_releases)(runner, run, policy)
        source, rows = search_input.source, search_input.marginals.rows
        person = find_undecided_person(runner, policy, source, search_input.columns, rows)
        warnings = (*run.notices, *warn_of_unprotected_columns(runner, search_input))
        warnings += () if runner.dry else warn_of_levels_above_top(policy, search_input.heights)
    timer.end("load")
    search_result = run_search(runner, search_input, partial(progress, "search"))
    if not runner.dry:
        persons = search_input.limit.persons is not None
        store_lattice(runner.engine, search_input.work("lattice"), search_result.lattice_columns(), persons)
    recoding = recode(runner, search_input, search_result)
    refuse_undecided_person(runner, search_input, recoding.statement, person)
    warnings += warn_of_rows_without_person(runner, search_input, recoding.statement)
    dependencies = measure_dependencies(run.engine, runner, search_input, recoding.statement, recoding.generalization)
    timer.end("search")
    noise_result = decoy_result = None
    if noise is not None:
        from sqlanon.noise.stage import add_noise

        noise_result = add_noise(
            runner, search_input, recoding, noise, lambda waiting, done: progress("noise", waiting, done, None)
        )
        runner.finish_stage("noise", "by class, drawn once; then the linking attack")
        recoding = noise_result.recoding
        timer.end("noise")
    if policy.has_decoys:
        from sqlanon.decoys import add_decoys

        decoy_result = add_decoys(runner, search_input, recoding, search_result.score)
        if decoy_result.recoding.statement.drawn is not None:
            runner.finish_stage("decoys", "invented rows for classes that are too small, drawn once")
        recoding = decoy_result.recoding
        timer.end("decoys")
    warnings += (*recoding.warnings, *dependencies.warnings)
    if policy.requirements.keys() == {"k"} and policy.privacy.k == 1:
        message = "k = 1 allows classes of one row, which protects no person: set k = 5, for example"
        warnings += (Notice(message, rows),)
    results = search_result, recoding, noise_result, decoy_result, dependencies
    return ReleaseDraft(run, search_input, *results, warnings, timer.seconds, policy.is_draft)


def publish(
    draft: ReleaseDraft, run_id: str, location: Any, table: str | None, force: bool, as_draft: bool
) -> tuple[Any, Ledger]:
    """Audit a draft, alone and together with the releases of the ledger, and publish it."""
    _refuse_release(draft)
    draft = replace(draft, is_draft=draft.is_draft or as_draft)
    target = target_for(draft, location, table)
    ledger = build_ledger_entry(draft, run_id, target.path, force)
    with draft.name_source_in_errors():
        return audit_and_publish(target, draft, ledger), ledger


def release_rows(draft: ReleaseDraft) -> exp.Table:
    """Audit a draft as `publish` does; return its rows as a table of the run."""
    _refuse_release(draft)
    rows = draft.run.work("release_rows")
    with draft.name_source_in_errors(), spill_directory() as folder:
        return copy_audited_rows(target_for(draft, folder / "release.duckdb", None), draft, rows)


def _refuse_release(draft: ReleaseDraft) -> None:
    if draft.dependencies.refusals:
        raise AuditError(list(draft.dependencies.refusals))
    if not draft.search_input.source.can_recode:
        raise ReleaseError(
            "the source is a frequency set: its rows are in the warehouse, so the release has to be made there; "
            'export("folder", dialect=...) writes the statement and the tables that it reads'
        )


def prepare(
    runner: StatementRunner, policy: Policy, source: Source, work: Namer, population: Population | None = None
) -> SearchInput:
    """Build the search input of a bound source."""
    scanned = scan_tables(runner, policy, source, work, population)
    hierarchies = build_hierarchies(runner, policy, scanned.values, work)
    scanned = drop_unmatched_population(policy, scanned, hierarchies.quasi, work)
    frequencies = count_frequencies(runner, policy, scanned, hierarchies, work)
    return build_search_input(policy, scanned, hierarchies, frequencies)


def prepare_with_earlier_releases(
    runner: StatementRunner, run: Run, policy: Policy, runs: Sequence[str] | None = None
) -> SearchInput:
    """Build the search input of a policy's source, safe together with the releases of ``[release] after`` or of these
    runs."""
    if policy.source.key and not runner.dry:
        refuse_repeated_keys(run.engine, run.source, policy.source.key)
    if policy.release is None or not policy.release.after:
        return prepare(runner, policy, run.source, run.work, run.population)
    from sqlanon.ledger import find_base_publications, plan_marking

    if not runner.dry:
        return prepare_beside_releases(runner, run, policy, find_base_publications(run, policy, runs))
    search_input = prepare(runner, policy, run.source, run.work, run.population)
    plan_marking(runner, search_input, example_levels(policy, search_input.marginals.heights))
    note = "rows are marked by the earlier releases that have them (in this plan: one, at level 1), and all stages "
    runner.finish_stage("earlier releases", f"{note}above run again, with the marks as one more quasi-identifier")
    return search_input


def prepare_beside_releases(
    runner: StatementRunner,
    run: Run,
    policy: Policy,
    earlier: Sequence[Publication],
    fixed: Manifest | None = None,
    verified: Collection[str] = (),
    work: Namer | None = None,
) -> SearchInput:
    """Build a search input whose generalizations are safe together with earlier releases: rows are marked by the
    releases that have them."""
    if not earlier:
        return prepare(runner, policy, run.source, run.work, run.population)
    from sqlanon.ledger import mark_released_rows

    unmarked = prepare(runner, policy, run.source, lambda name: run.work(f"before_{name}"), run.population)
    marked, releases = mark_released_rows(run, unmarked, earlier, fixed, verified)
    search_input = prepare(runner, releases.search_policy or policy, marked, work or run.work)
    return replace(search_input, policy=policy, earlier=releases)


def prepare_released_rows(
    runner: StatementRunner, run: Run, published: PublishedRelease, is_fixed: bool
) -> SearchInput:
    """Build the search input of a release's own rows with the hierarchies of the whole source, for the release's levels
    or for levels at least as coarse."""
    from sqlanon.ledger import select_released_rows

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


def prepare_at_levels(runner: StatementRunner, run: Run, policy: Policy, levels: Mapping[str, int]) -> SearchInput:
    """Build a search input whose lattice has one generalization."""
    attributes = {
        name: spec.model_copy(update={"min_level": levels[name], "max_level": levels[name]}) if name in levels else spec
        for name, spec in policy.attributes.items()
    }
    searched = policy.model_copy(update={"attributes": attributes})
    search_input = prepare(runner, searched, run.source, run.work, run.population)
    return replace(search_input, policy=policy, earlier=EarlierReleases(search_policy=searched))


def build_ledger_entry(draft: ReleaseDraft, run_id: str, path: Path, force: bool) -> Ledger:
    """Build the ledger entry of a draft: an empty one without a catalog."""
    if draft.search_input.policy.catalog is None:
        return NoLedger(is_draft=draft.is_draft)
    from sqlanon.ledger import DraftEntry, LedgerEntry

    if draft.is_draft:
        return DraftEntry(run=draft.run, search_input=draft.search_input, run_id=run_id, place=path)
    return LedgerEntry(
        draft.run,
        draft.search_input,
        run_id,
        path,
        draft.search_input.marginals.rows,
        force,
        keyed=draft.keyed_rows(),
        peopled=draft.rows_with_persons(),
        replaces=draft.replaces,
        noise_ranges=draft.noise_ranges(),
    )


def _plan_noise(runner: StatementRunner, run: Run, policy: Policy) -> NoisePlan | None:
    if not policy.noisy_attributes:
        return None
    from sqlanon.noise.stage import plan_noise

    return plan_noise(runner, run, policy)


class StageTimer:
    """Wall time of each stage of a job, in seconds."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._since = time.perf_counter()

    def end(self, stage: str) -> None:
        """End a stage, and begin the next one."""
        now = time.perf_counter()
        self.seconds[stage] = now - self._since
        self._since = now
