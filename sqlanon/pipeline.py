"""The way of the data: the stages from a policy to a release, and the jobs that pass through them.

scan > hierarchies > frequency sets > search > recode > dependencies > noise > decoys > audit > publish

`anonymize` is that line as far as a draft of the release, and `publish` the rest of it. `plan` is the same line run
dry: its `StatementRunner` records statements instead of executing them, and answers with examples. `compare`,
`extend`, `risk` and `verify` share its first half. What a stage does is in its package; here they follow one another.
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

from sqlanon.audit.check import Check, source_check
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
from sqlanon.recode.stage import Recoding, recode
from sqlanon.release.draft import ReleaseDraft, ReplacedRelease, show_audit, show_rows
from sqlanon.release.publish import Ledger, NoLedger, copy_audited_rows
from sqlanon.release.publish import publish as audit_and_publish
from sqlanon.release.targets.base import Reach, kind_for_target, recorded_location, target_for
from sqlanon.sources import Source, source_errors
from sqlanon.sources.columns import refuse_repeated_keys
from sqlanon.sources.run import Run, keep_work_tables
from sqlanon.sources.source import Population
from sqlanon.sources.workspace import Workspace
from sqlanon.strategies.examples import example_levels, find_lattice_size
from sqlanon.strategies.lattice.input import EarlierReleases, SearchInput, build_search_input
from sqlanon.strategies.lattice.lattice import ignore_progress, store_lattice
from sqlanon.strategies.lattice.result import SearchResult
from sqlanon.strategies.stage import run_search
from sqlanon.support.expressions import Namer, create_table, row_count
from sqlanon.support.notices import Notice, sort_messages
from sqlanon.support.workdir import spill_directory

if TYPE_CHECKING:
    from sqlanon.decoys import DecoyResult
    from sqlanon.ledger import Publication, PublishedRelease
    from sqlanon.ledger.growth.extend import Extension
    from sqlanon.noise.stage import NoisePlan, NoiseResult
    from sqlanon.release.manifest import Manifest
    from sqlanon.release.source_change import SourceChange
    from sqlanon.release.targets.base import ReleasedRows, ReleaseLocation, Verification
    from sqlanon.risk import Risk
    from sqlanon.strategies.compare import ComparisonProgress, ComparisonRow

StageProgress: TypeAlias = "Callable[[str, int, int, float | None], None]"
"""Called with the stage (``scan``, ``search``, ``noise``, ``write``), generalizations open and checked (for noise:
records that wait for it, and that have it), and the best score so far."""


def anonymize(
    space: Workspace,
    policy: Policy,
    progress: StageProgress = ignore_progress,
    keep_work: str | os.PathLike[str] | None = None,
) -> ReleaseDraft:
    """Find the best generalization of a source that meets the policy; keep the intermediate tables in a file."""
    laps = Laps()
    progress("scan", 0, 0, None)
    run = space.run(policy, counted=True)
    try:
        with nullcontext() if keep_work is None else keep_work_tables(run, keep_work):
            return draft(StatementRunner(run.engine), run, policy, progress, laps)
    finally:
        if run.source.persons is not None:
            run.source.persons.close()


def plan(space: Workspace, policy: Policy) -> Plan:
    """The stages of `anonymize` and `publish` and their statements, from the schema alone: no row is read."""
    run = space.run(policy, read=False, counted=True)  # its views stay: the statements name them
    steps = StatementRunner(run.engine, [])
    steps.stages += run.source.plan()
    drafted = draft(steps, run, policy, ignore_progress, Laps())
    show_rows(steps, drafted)
    show_audit(steps, drafted)
    warnings = sort_messages((*run.notices, *warn_of_insensitive_names(policy)))
    return Plan(tuple(steps.stages), *find_lattice_size(policy, run.engine), policy.search.is_local, warnings)


def compare(
    space: Workspace,
    policies: Mapping[str, Policy | PolicyError],
    progress: ComparisonProgress,
    seconds: float | None = None,
) -> Iterator[ComparisonRow]:
    """What each strategy finds in its time. Each reads the source anew: none is quick because of what another left."""
    from sqlanon.engines.deadline import interrupt_after  # noqa: PLC0415  (needed for comparisons only)
    from sqlanon.strategies.compare import ComparisonRow, build_comparison_row, with_time_limit  # noqa: PLC0415

    result = None
    for name, given in policies.items():
        progress(name, 0, 0, None)
        if isinstance(given, PolicyError):
            yield ComparisonRow(name, error="; ".join(map(str, given.problems)))
            continue
        policy, started = with_time_limit(given, seconds), time.perf_counter()
        try:
            with space.run(policy, counted=True) as run, interrupt_after(seconds, run.engines):
                steps = StatementRunner(run.engine)
                with source_errors():
                    prepared = prepare_with_earlier(steps, run, policy)
                began = time.perf_counter()
                found = run_search(steps, prepared, partial(progress, name))
                searched = time.perf_counter() - began
                figures = recode(steps, prepared, found).figures
                seconds_of_all = time.perf_counter() - started
                undecided = None if result is not None else _explain_undecided_person(steps, prepared)
                result = build_comparison_row(name, prepared, found, figures, searched, seconds_of_all, undecided)
                yield result
        except OvertimeError as error:
            yield ComparisonRow(name, stopped=True, seconds=time.perf_counter() - started, error=str(error))
        except InfeasibleError as error:
            yield ComparisonRow(name, seconds=time.perf_counter() - started, error=str(error))


def _explain_undecided_person(steps: StatementRunner, prepared: SearchInput) -> str | None:
    """That a column numbers people whom the policy does not name, so that figures count rows."""
    source, rows = prepared.source, prepared.marginals.rows
    with source_errors():
        person = find_undecided_person(steps, prepared.policy, source, prepared.columns, rows)
    return None if person is None else f"source.person: {explain_undecided_person(person)}"


def extend(space: Workspace, policy: Policy) -> Extension:
    """What can be added to the policy's release of the rows that its source has got since."""
    from sqlanon.ledger.growth.extend import extend, release_to_extend  # noqa: PLC0415  (needed with earlier releases only)

    run = space.run(policy)  # what is found publishes from it
    started, steps = time.perf_counter(), StatementRunner(run.engine)
    with source_errors():
        extended = release_to_extend(run, policy)
        fixed, verified = extended.manifest, {extended.publication.run_id}
        prepared = prepare_beside(
            steps, run, policy, [extended.publication, *extended.base_publications], fixed, verified
        )
        return extend(steps, run, prepared, extended, started)


def withdraw(
    space: Workspace, policy: Policy, progress: StageProgress = ignore_progress
) -> tuple[PublishedRelease, SourceChange, ReleaseDraft | None]:
    """Draft the policy's release without the rows that have left its source: at the same levels, or, where that does
    not meet the policy, by a search among coarser ones. No draft if no row has left.

    The draft has the rows of the release alone, where they can be told from others of the source.
    """
    from sqlanon.ledger import find_published_release  # noqa: PLC0415  (needed with a ledger only)

    laps = Laps()
    progress("scan", 0, 0, None)
    with space.run(policy, counted=True) as run, source_errors():
        published = find_published_release(run, policy)
        rows_now = _count_source_rows(run, policy)
        place = recorded_location(
            published.publication.path, published.publication.table_name, Reach(policy, run.source)
        )
    change = measure_source_change(space, policy, place, published.manifest, published.publication, rows_now)
    if not change.may_have_lost_rows:
        return published, change, None
    gone = change.missing_rows if change.deleted_rows is None else change.deleted_rows
    if gone == published.manifest.released_rows:
        raise ReleaseError(
            f"no row of {format_location(published.publication.path)} is in the source any more: remove the release, "
            "there is none to publish in its place; `sqlanon anonymize` makes one of the source as it is now"
        )
    try:
        return published, change, _draft_withdrawal(space, published, True, progress, laps)
    except InfeasibleError:
        return published, change, _draft_withdrawal(space, published, False, progress, laps)


def _count_source_rows(run: Run, policy: Policy) -> int:
    if run.source.access == "rows":
        return int(run.engine.rows(row_count(rows=run.source.relation))[0][0])
    return prepare(StatementRunner(run.engine), policy, run.source, run.work, run.population).marginals.rows


def _draft_withdrawal(
    space: Workspace, published: PublishedRelease, is_fixed: bool, progress: StageProgress, laps: Laps
) -> ReleaseDraft:
    policy = published.policy
    run = space.run(policy, counted=True)
    steps, levels = StatementRunner(run.engine), published.levels
    only_its_rows = published.can_republish_released_rows(run.source)
    kind_for_target(None, policy).refuse(policy, run.source)
    with source_errors():
        noise = noise_of(steps, run, policy)
        if only_its_rows:
            prepared = prepare_released_rows(steps, run, published, is_fixed)
        elif is_fixed and levels is not None:
            prepared = prepare_at_levels(steps, run, policy, levels)
        else:
            prepared = prepare_with_earlier(steps, run, policy)
    laps.end("load")
    try:
        drafted = draft_of(steps, run, prepared, noise, progress, laps)
    finally:
        if run.source.persons is not None:
            run.source.persons.close()
    return replace(drafted, replaces=ReplacedRelease(published.publication.run_id, only_its_rows))


def risk(
    space: Workspace, policy: Policy, epsilons: Sequence[float], leakage: int, leakage_seconds: float | None
) -> Risk:
    """How risky a source is as it stands; with noise, the errors that it would make in the version that is found."""
    from sqlanon.risk import assess_risk  # noqa: PLC0415  (needed for risk only)

    with space.run(policy) as run, source_errors():
        found = assess_risk(run, policy, leakage, leakage_seconds)
    if not policy.noisy_attributes:
        return found
    from sqlanon.noise.columns import require_usable_noisy_columns  # noqa: PLC0415  (needed with noise only)
    from sqlanon.risk import estimate_noise_errors  # noqa: PLC0415

    with space.run(policy) as run, source_errors():
        steps, columns = StatementRunner(run.engine), require_usable_noisy_columns(run.engine, policy, run.source)
        try:
            prepared = prepare(steps, policy, run.source, run.work, run.population)
            recoding = recode(steps, prepared, run_search(steps, prepared, ignore_progress))
        except InfeasibleError:
            return found
        return replace(found, noise=estimate_noise_errors(steps, prepared, recoding, columns, epsilons))


def verify(space: Workspace, policy: Policy, place: ReleaseLocation, sha256: str | None = None) -> Verification:
    """Check a release by itself; then prepare its source as it was prepared for the release, and recode it again."""
    from sqlanon.ledger import (  # noqa: PLC0415
        check_against_ledger,
        count_changes,
        find_publication,
        find_recorded_publication,
    )
    from sqlanon.source_verification import (  # noqa: PLC0415  (needed to verify with a policy only)
        check_against_source,
        check_extended,
        check_lost_rows,
        check_policy,
        explain_failure,
    )

    with place.open_verified(space.limits, sha256) as release:
        found = release.verification
        if not found.is_file and (policy.noisy_attributes or policy.has_decoys):
            raise ReleaseError("a release with noise or decoys is held against its source as a file: publish it to one")
        with space.run(policy, counted=True) as run, source_errors():
            steps, of_policy, checks = StatementRunner(run.engine), check_policy(policy, found), list[Check]()
            sha256_now = release.sha256() if found.verified and policy.catalog is not None else None
            recorded = check_against_ledger(run.engine, policy, found, sha256_now)
            known = find_publication(run.engine, policy, found)
            if run.source.access == "rows" and not (rows_now := _count_source_rows(run, policy)):
                checks.append(source_check("source rows", False, "the source has rows", "the source has no rows"))
            elif known is None or not known.is_part:
                prepared = prepare_with_earlier(steps, run, policy, None if known is None else known.after)
                withdraws = known is not None and known.withdraws is not None
                checks += check_against_source(run, prepared, release, withdraws)
                rows_now = prepared.marginals.rows
            elif all(check.passed for check in of_policy):  # else its rows are not compared
                try:
                    prepared = prepare_beside(steps, run, policy, [known], found.manifest, {known.run_id})
                    checks += check_extended(run, prepared, release)
                except RelabelledError as error:
                    checks.append(source_check("recoded source", False, "", str(error)))
            alone = replace(found, checks=(*found.checks, *of_policy, *recorded))
            everything = replace(found, checks=(*found.checks, *of_policy, *checks, *recorded))
            publication = find_recorded_publication(run.engine, policy, found, sha256_now) if alone.verified else None
            if publication is None:
                return everything
            if everything.verified:  # others may have come with the rows of those who left
                return check_lost_rows(everything, count_changes(run, policy, publication, found.manifest, rows_now))
        change = measure_source_change(space, policy, release, found.manifest, publication, rows_now)
        return explain_failure(everything, change, len(found.checks) + len(of_policy))


def measure_source_change(
    space: Workspace,
    policy: Policy,
    release: ReleasedRows,
    manifest: Manifest,
    publication: Publication,
    rows_now: int,
) -> SourceChange:
    """What has become of the source of a release, which is as it was published."""
    from sqlanon.ledger import can_mark_rows, count_changes, measure_released_rows  # noqa: PLC0415

    with space.run(policy, counted=True) as run, source_errors():
        change = count_changes(run, policy, publication, manifest, rows_now)
        if not can_mark_rows(policy, run.source, manifest):
            return change
        steps = StatementRunner(run.engine)
        try:
            prepared = prepare_beside(steps, run, policy, [publication], manifest, {publication.run_id})
        except RelabelledError as error:
            return replace(change, relabelled=tuple(error.counts))
        except (NoMarkedRowsError, InfeasibleError):  # no row of the release is in the source any more
            return replace(change, missing_rows=manifest.released_rows)
        with release.rows(run.engine, manifest) as released:
            return measure_released_rows(run, prepared, publication, manifest, released, change)


def draft(steps: StatementRunner, run: Run, policy: Policy, progress: StageProgress, laps: Laps) -> ReleaseDraft:
    """From a bound source to all that a release is made of: the stages in their order."""
    if wrong := list(find_conflicts(LEDGER_FEATURES, collect_sections(dict(policy)))):
        raise PolicyError(wrong)
    kind_for_target(None, policy).refuse(policy, run.source)
    with source_errors():
        noise = noise_of(steps, run, policy)  # what cannot be drawn is refused before the search
        prepared = prepare_with_earlier(steps, run, policy)
    return draft_of(steps, run, prepared, noise, progress, laps)


def draft_of(
    steps: StatementRunner,
    run: Run,
    prepared: SearchInput,
    noise: NoisePlan | None,
    progress: StageProgress,
    laps: Laps,
) -> ReleaseDraft:
    """From a prepared source to all that a release is made of."""
    policy = prepared.policy
    with source_errors():
        person = find_undecided_person(steps, policy, prepared.source, prepared.columns, prepared.marginals.rows)
        warnings = (*run.notices, *warn_of_unprotected_columns(steps, prepared))
        warnings += () if steps.dry else warn_of_levels_above_top(policy, prepared.heights)
    laps.end("load")
    found = run_search(steps, prepared, partial(progress, "search"))
    if not steps.dry:
        persons = prepared.limit.persons is not None
        store_lattice(steps.engine, prepared.work("lattice"), found.lattice_columns(), persons)
    recoding = recode(steps, prepared, found)
    refuse_undecided_person(steps, prepared, recoding.statement, person)
    warnings += warn_of_rows_without_person(steps, prepared, recoding.statement)
    dependencies = measure_dependencies(run.engine, steps, prepared, recoding.statement, recoding.generalization)
    laps.end("search")
    noised = filled = None
    if noise is not None:
        noised = add_noise(steps, prepared, recoding, noise, progress)
        recoding = noised.recoding
        laps.end("noise")
    if policy.has_decoys:
        filled = add_decoys(steps, prepared, recoding, found)
        recoding = filled.recoding
        laps.end("decoys")
    warnings += (*recoding.warnings, *dependencies.warnings)
    if policy.requirements.keys() == {"k"} and policy.privacy.k == 1:
        message = "k = 1 lets a class have one row, and so protects nobody: set k = 5, for example"
        warnings += (Notice(message, prepared.marginals.rows),)
    return ReleaseDraft(
        run, prepared, found, recoding, noised, filled, dependencies, warnings, laps.seconds, policy.is_draft
    )


def publish(
    draft: ReleaseDraft,
    run_id: str,
    place: Any = None,
    table: str | None = None,
    force: bool = False,
    as_draft: bool = False,
) -> tuple[Any, Ledger]:
    """Audit the release of a draft, beside those that the ledger has, and put it in its place."""
    _refuse_release(draft)
    draft = replace(draft, is_draft=draft.is_draft or as_draft)
    target = target_for(draft, place, table)
    ledger = ledger_of(draft, run_id, target.path, force)
    with draft.name_source_in_errors():
        return audit_and_publish(target, draft, ledger), ledger


def release_rows(draft: ReleaseDraft) -> exp.Table:
    """The rows of the release of a draft, audited as `publish` does it, in a table that goes with the run."""
    _refuse_release(draft)
    rows = draft.run.work("release_rows")
    with draft.name_source_in_errors(), spill_directory() as folder:
        return copy_audited_rows(target_for(draft, folder / "release.duckdb", None), draft, rows)


def _refuse_release(draft: ReleaseDraft) -> None:
    if draft.dependencies.refusals:
        raise AuditError(list(draft.dependencies.refusals))
    if not draft.search_input.source.can_recode:
        raise ReleaseError(
            "the source is a frequency set: its rows are in the warehouse, and so the release is made there; "
            'export("folder", dialect=...) writes the statement, and the tables that it reads'
        )


def prepare(
    steps: StatementRunner, policy: Policy, source: Source, work: Namer, population: Population | None = None
) -> SearchInput:
    """From a bound source to what the search needs."""
    scanned = scan_tables(steps, policy, source, work, population)
    hierarchies = build_hierarchies(steps, policy, scanned.values, work)
    scanned = drop_unmatched_population(policy, scanned, hierarchies.quasi, work)
    frequencies = count_frequencies(steps, policy, scanned, hierarchies, work)
    return build_search_input(policy, scanned, hierarchies, frequencies)


def prepare_with_earlier(
    steps: StatementRunner, run: Run, policy: Policy, runs: Sequence[str] | None = None
) -> SearchInput:
    """Prepare the source of a policy; with ``[release] after``, or the runs of it, beside these releases."""
    if policy.source.key and not steps.dry:
        refuse_repeated_keys(run.engine, run.source, policy.source.key)
    if policy.release is None or not policy.release.after:
        return prepare(steps, policy, run.source, run.work, run.population)
    from sqlanon.ledger import find_base_publications, plan_marking  # noqa: PLC0415  (needed with earlier releases only)

    if not steps.dry:
        return prepare_beside(steps, run, policy, find_base_publications(run, policy, runs))
    prepared = prepare(steps, policy, run.source, run.work, run.population)
    plan_marking(steps, prepared, example_levels(policy, prepared.marginals.heights))
    note = "rows are marked by the earlier releases that have them (here: one, at level 1), and all of the above "
    steps.finish("earlier releases", f"{note}is done again, the marks one more quasi-identifier")
    return prepared


def prepare_beside(
    steps: StatementRunner,
    run: Run,
    policy: Policy,
    earlier: Sequence[Publication],
    fixed: Manifest | None = None,
    verified: Collection[str] = (),
    work: Namer | None = None,
) -> SearchInput:
    """Prepare a source so that all that is found is safe beside earlier releases: its rows are marked by them."""
    if not earlier:
        return prepare(steps, policy, run.source, run.work, run.population)
    from sqlanon.ledger import mark_released_rows  # noqa: PLC0415  (needed with earlier releases only)

    first = prepare(steps, policy, run.source, lambda name: run.work(f"before_{name}"), run.population)
    marked, releases = mark_released_rows(run, first, earlier, fixed, verified)
    prepared = prepare(steps, releases.search_policy or policy, marked, work or run.work)
    return replace(prepared, policy=policy, earlier=releases)


def prepare_released_rows(steps: StatementRunner, run: Run, published: PublishedRelease, is_fixed: bool) -> SearchInput:
    """Prepare the rows of a source that a release has, under the hierarchies of the whole source, for levels that are
    no finer than its own, or the same."""
    from sqlanon.ledger import select_released_rows  # noqa: PLC0415

    policy, run_id = published.policy, published.publication.run_id
    earlier = [published.publication, *published.base_publications]
    fixed = published.manifest if is_fixed else None
    whole = prepare_beside(steps, run, policy, earlier, fixed, {run_id}, lambda name: run.work(f"whole_{name}"))
    rows, searched = run.work("rows_of_release"), whole.search_policy
    run.engine.execute(create_table(rows.copy(), select_released_rows(whole.source.relation)))
    scanned = scan_tables(steps, searched, Source(rows, run.engine.columns(rows), run.source.files), run.work)
    facts = summarize_values(steps, scanned.values)
    hierarchies = Hierarchies(whole.hierarchies, whole.sensitive_hierarchies, facts)
    frequencies = count_frequencies(steps, searched, scanned, hierarchies, run.work)
    prepared = build_search_input(searched, scanned, hierarchies, frequencies)
    after = tuple(one for one in whole.earlier.run_ids if one != run_id)
    releases = replace(whole.earlier, run_ids=after, changed_run_ids=whole.earlier.changed_run_ids - {run_id})
    return replace(prepared, policy=policy, earlier=releases)


def prepare_at_levels(steps: StatementRunner, run: Run, policy: Policy, levels: Mapping[str, int]) -> SearchInput:
    """Prepare a source for one generalization."""
    attributes = {
        name: spec.model_copy(update={"min_level": levels[name], "max_level": levels[name]}) if name in levels else spec
        for name, spec in policy.attributes.items()
    }
    searched = policy.model_copy(update={"attributes": attributes})
    prepared = prepare(steps, searched, run.source, run.work, run.population)
    return replace(prepared, policy=policy, earlier=EarlierReleases(search_policy=searched))


def ledger_of(draft: ReleaseDraft, run_id: str, place: Path, force: bool) -> Ledger:
    """What the ledger has to do with the release of a draft: nothing without a catalog."""
    if draft.search_input.policy.catalog is None:
        return NoLedger(is_draft=draft.is_draft)
    from sqlanon.ledger import DraftEntry, LedgerEntry  # noqa: PLC0415  (needed with a catalog only)

    if draft.is_draft:
        return DraftEntry(draft.run, draft.search_input, run_id, place)
    rows, keyed = draft.search_input.marginals.rows, draft.keyed_rows()
    return LedgerEntry(
        draft.run,
        draft.search_input,
        run_id,
        place,
        rows,
        force,
        keyed=keyed,
        peopled=draft.rows_with_persons(),
        replaces=draft.replaces,
        noise_ranges=draft.noise_ranges(),
    )


def noise_of(steps: StatementRunner, run: Run, policy: Policy) -> NoisePlan | None:
    """The noise that the policy asks for."""
    if not policy.noisy_attributes:
        return None
    from sqlanon.noise.stage import plan_noise  # noqa: PLC0415  (needed with noise only)

    return plan_noise(steps, run, policy)


def add_noise(
    steps: StatementRunner, prepared: SearchInput, recoding: Recoding, noise: NoisePlan, progress: StageProgress
) -> NoiseResult:
    """Draw noise for the rows of a recoding."""
    from sqlanon.noise.stage import add_noise  # noqa: PLC0415  (needed with noise only)

    noised = add_noise(steps, prepared, recoding, noise, lambda waiting, done: progress("noise", waiting, done, None))
    steps.finish("noise", "by class, drawn once; then the linking attack")
    return noised


def add_decoys(steps: StatementRunner, prepared: SearchInput, recoding: Recoding, found: SearchResult) -> DecoyResult:
    """Draw decoys for the classes of a recoding that stay too small."""
    from sqlanon.decoys import add_decoys  # noqa: PLC0415  (needed with decoys only)

    filled = add_decoys(steps, prepared, recoding, found.score)
    if filled.statement is not None:
        steps.finish("decoys", "invented rows for classes that are too small, drawn once")
    return filled


class Laps:
    """The seconds of wall time that each part of a job took."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._since = time.perf_counter()

    def end(self, part: str) -> None:
        """End a part: the next one begins."""
        now = time.perf_counter()
        self.seconds[part] = now - self._since
        self._since = now
