"""The stages from a policy to a release, and the jobs that run them.

scan > hierarchies > frequency sets > search > recode > dependencies > noise > decoys > audit > publish

`anonymize` runs the stages up to a draft of the release, and `publish` the last two. `plan` is a dry run: its
`StatementRunner` records statements and answers queries with examples. `compare`, `extend` and `risk` share the first
stages, and so do `source_verification` and `withdrawal`. Each stage is one call into its package.
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
    describe_undecided_person,
    find_undecided_person,
    refuse_undecided_person,
    warn_of_rows_without_person,
)
from sqlanon.disclosure.unprotected_columns import warn_of_insensitive_names, warn_of_unprotected_columns
from sqlanon.engines.statement_runner import Plan, StatementRunner
from sqlanon.errors import (
    AuditError,
    InfeasibleError,
    OvertimeError,
    PolicyError,
    ReleaseError,
)
from sqlanon.frequency.counting import count_frequencies
from sqlanon.frequency.scan import scan_tables
from sqlanon.frequency.unmatched import drop_unmatched_population
from sqlanon.hierarchies.build import build_hierarchies
from sqlanon.hierarchies.levels import warn_of_levels_above_top
from sqlanon.policy import Policy
from sqlanon.policy.compatibility import LEDGER_FEATURES, collect_sections, find_conflicts
from sqlanon.publish.draft import ReleaseDraft, show_audit, show_rows
from sqlanon.publish.stage import Ledger, NoLedger, copy_audited_rows
from sqlanon.publish.stage import publish as audit_and_publish
from sqlanon.publish.targets.base import refuse_unsupported, target_for
from sqlanon.recode.stage import recode
from sqlanon.sources import Source, source_errors
from sqlanon.sources.columns import refuse_repeated_keys
from sqlanon.sources.run import Run, keep_work_tables
from sqlanon.sources.source import Population
from sqlanon.sources.workspace import Workspace
from sqlanon.strategies.examples import example_levels, find_lattice_size
from sqlanon.strategies.lattice.input import SearchInput, build_search_input
from sqlanon.strategies.lattice.lattice import ignore_progress, store_lattice
from sqlanon.strategies.stage import run_search
from sqlanon.support.expressions import Namer
from sqlanon.support.notices import Notice, sort_messages
from sqlanon.support.workdir import spill_directory

if TYPE_CHECKING:
    from sqlanon.ledger import Publication
    from sqlanon.ledger.growth.extend import Extension
    from sqlanon.noise.stage import NoisePlan
    from sqlanon.release.manifest import Manifest
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
                    with source_errors():
                        source, rows = search_input.source, search_input.marginals.rows
                        undecided_person = describe_undecided_person(
                            runner, policy, source, search_input.columns, rows, search_input.attributes
                        )
                    is_first = False
                yield build_comparison_row(
                    name, search_input, search_result, figures, search_seconds, total_seconds, undecided_person
                )
        except (OvertimeError, InfeasibleError) as error:
            stopped, total_seconds = isinstance(error, OvertimeError) or None, time.perf_counter() - started
            yield ComparisonRow(name, stopped=stopped, seconds=total_seconds, error=str(error))


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
    refuse_unsupported(policy, run.source)
    with source_errors():
        noise = _plan_noise(runner, run, policy)  # refuse impossible noise before the search
        search_input = (prepare_input or prepare_with_earlier_releases)(runner, run, policy)
        source, rows = search_input.source, search_input.marginals.rows
        person = find_undecided_person(runner, policy, source, search_input.columns, rows, search_input.attributes)
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
    if policy.requirements.keys() == {"k"} and policy.k == 1:
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
