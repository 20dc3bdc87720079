"""Verify a release against its source: recoded in the same way, the source must give the same rows."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from sqlanon.audit.decoys import CATALOG_CHECK, DecoyCheck, check_decoy_claims, recount_decoys
from sqlanon.audit.metadata import levels_digest
from sqlanon.audit.noise import NoiseCheck
from sqlanon.audit.source_audit import SourceAudit
from sqlanon.audit.verification import Verification
from sqlanon.audit.verify import note_decoys_in_k
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import BrokenReleaseError, InfeasibleError, NoMarkedRowsError, RelabelledError, ReleaseError
from sqlanon.ledger import (
    Publication,
    can_mark_rows,
    check_against_ledger,
    count_changes,
    find_publication,
    find_recorded_publication,
    measure_released_rows,
)
from sqlanon.ledger.catalog import open_recorded_decoys
from sqlanon.ledger.growth.marks import recode_released_rows
from sqlanon.measures import Figures
from sqlanon.pipeline import prepare, prepare_beside_releases, prepare_with_earlier_releases
from sqlanon.policy import Policy
from sqlanon.publish.draft import count_suppressed_by_label
from sqlanon.publish.targets.base import OpenedRelease, ReleasedRows, ReleaseLocation
from sqlanon.recode.stage import Recoding, recode, recode_at
from sqlanon.release.label_levels import LEVELS, label_levels
from sqlanon.release.manifest import Manifest
from sqlanon.release.reader import attach_temporarily
from sqlanon.release.source_change import NOT_COMPARED, SOURCE_CHECK, SourceChange
from sqlanon.release.visible_values import count_different_rows
from sqlanon.requirements import list_requirements
from sqlanon.sources import source_errors
from sqlanon.sources.run import Run
from sqlanon.sources.workspace import Workspace
from sqlanon.strategies.lattice.checker import Checker, policy_measure, verdict_rules
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.strategies.lattice.lattice import ignore_progress
from sqlanon.strategies.lattice.persons import PersonFigures
from sqlanon.strategies.stage import run_search
from sqlanon.support.checks import SOURCE_PREFIX, Check, source_check
from sqlanon.support.expressions import create_table, create_temporary_view, row_count, select_star, subquery, table
from sqlanon.support.names import VERIFIED
from sqlanon.support.notices import count_noun
from sqlanon.support.resources import RELEASE_MACROS, REQUIREMENT_MACROS


def verify(workspace: Workspace, policy: Policy, location: ReleaseLocation, sha256: str | None) -> Verification:
    """Verify a release alone, then against its source: prepare the source as for the release, and recode it again."""
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
    runner, rows_now = StatementRunner(run.engine), 0
    if run.source.access == "rows" and not (rows_now := count_source_rows(run, policy)):
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


def count_source_rows(run: Run, policy: Policy) -> int:
    if run.source.access == "rows":
        return int(run.engine.rows(row_count(rows=run.source.relation))[0][0])
    return prepare(StatementRunner(run.engine), policy, run.source, run.work, run.population).marginals.rows


def measure_source_change(
    workspace: Workspace,
    policy: Policy,
    release: ReleasedRows,
    manifest: Manifest,
    publication: Publication,
    rows_now: int,
) -> SourceChange:
    """Measure how the source of an unchanged release differs from the source it was published from."""
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


def check_against_source(
    run: Run, search_input: SearchInput, release: OpenedRelease, withdraws: bool = False
) -> list[Check]:
    """Recode the source by the manifest's generalization and compare it with the release; then check every requirement.

    A release that ``withdraws`` rows has no figures of suppressed rows to compare. Creates ``suppressed`` in the run's
    work schema, and the temporary view ``recoded``.
    """
    engine, view, verification = run.engine, run.work_names.view("recoded"), release.verification
    policy, manifest = search_input.policy, verification.manifest
    macros = run.install_macros(_macro_files(policy))
    recoding, recoding_checks = _recreate_recoding(run, search_input, manifest)
    checks = [*_check_row_counts(run, search_input, manifest), *recoding_checks]
    if recoding is None:
        return checks
    rows = _make_recoded_rows(run, search_input, recoding, view)
    checks += _check_label_levels(run, search_input, recoding.generalization, verification)
    audit = SourceAudit(engine, run.work, macros, search_input, recoding.statement, run.population)
    if policy.has_decoys:
        return checks + _check_with_decoys(run, search_input, verification, view, audit)
    if not policy.noisy_attributes:
        checks.append(_check_rows(run, release, view))
        if checks[-1].passed and verification.suppressed is not None and not withdraws:
            suppressed = sorted(count_suppressed_by_label(run, search_input, recoding, view), key=str)
            passed = suppressed == sorted(verification.suppressed, key=str)
            checks.append(source_check("suppression by value", passed, "counts match the source"))
        return checks + _check_requirements(audit, run, view)
    if not verification.verified:  # the engine of the source never reads an unverified file
        return checks
    with attach_temporarily(engine, verification.path, manifest, VERIFIED) as released:
        checks += NoiseCheck(engine, run.work, search_input, manifest, released, rows).checks()
        # With noise, rows may have been suppressed that the recoded source has.
        return checks + _check_requirements(audit, run, released if policy.source.person_column is None else view)


def _check_row_counts(run: Run, search_input: SearchInput, manifest: Manifest) -> list[Check]:
    rows = search_input.marginals.rows
    claim = f"the source has {rows:,} rows"
    failure = f"{claim}, the release claims {manifest.rows:,}"
    checks = [source_check("source rows", manifest.rows == rows, claim, failure)]
    dropped, claimed = run.dropped_lines(search_input.policy) or 0, manifest.dropped_lines or 0
    if dropped or claimed:
        claim = f"{count_noun(dropped, 'bad line', 'is', 'are')} dropped from the source"
        failure = f"{claim}, the release claims {claimed:,}"
        checks.append(source_check("dropped lines", dropped == claimed, claim, failure))
    return checks


def _make_recoded_rows(run: Run, search_input: SearchInput, recoding: Recoding, view: exp.Table) -> exp.Table:
    """Create the view of the recoded source; for a remote source, over a copy.

    With noise, the recoded rows of a remote source are not those of the release: a table of them remains remote.
    """
    query, source = recoding.statement.select(shuffled=False), search_input.source
    if search_input.policy.noisy_attributes and source.access == "remote":
        return StatementRunner(run.engine).create_table(run.work("recoded_rows"), query)
    if source.access != "rows":
        types = {
            column.name: recoding.statement.released_type(column, source.columns[column.name])
            for column in recoding.statement.columns
        }
        rows = run.work("recoded_rows")
        with source.release_rows(run.engine, recoding.statement, types, shuffled=False) as relation:
            run.engine.execute(create_table(rows.copy(), relation))
        query = select_star(rows)
    run.engine.execute(create_temporary_view(view.copy(), query))
    return view


def check_extended(run: Run, search_input: SearchInput, release: OpenedRelease) -> list[Check]:
    """Recode the source rows that are in an extended release by the ledger, and compare; then check every requirement.

    The check fails if rows have left the source or changed since: the release still has them with their earlier values.
    """
    macros, manifest = run.install_macros(_macro_files(search_input.policy)), release.verification.manifest
    levels = {name: level or 0 for name, level in manifest.levels(search_input.heights).items()}
    recoding, recoded = recode_released_rows(run, search_input, levels), run.work_names.view("recoded")
    run.engine.execute(create_temporary_view(recoded, recoding.select(shuffled=False)))
    audit = SourceAudit(run.engine, run.work, macros, search_input, recoding, None)
    return [
        _check_rows(run, release, recoded),
        *_check_label_levels(run, search_input, manifest.generalization, release.verification),
        *_check_requirements(audit, run, recoded),
    ]


def _macro_files(policy: Policy) -> Sequence[str]:
    """The files of the macro library that the policy's requirements need."""
    is_plain = all(requirement.entry.plain_macros for requirement in list_requirements(policy.privacy))
    return RELEASE_MACROS if is_plain and policy.source.person_column is None else REQUIREMENT_MACROS


def check_policy(policy: Policy, verification: Verification) -> list[Check]:
    """Check that a release was made by a policy, wherever it was published, and that its manifest shows it."""
    manifest = verification.manifest
    manifest_policy = {name: part for name, part in manifest.policy.items() if name != "draft"}
    policies = [policy, policy.with_output_file(verification.path)] if verification.is_file else [policy]
    is_made = any(candidate.matches_fingerprint(manifest.policy_hash) for candidate in policies)
    is_shown = _as_json(manifest_policy) == _as_json(policy.redact())
    return [
        source_check("policy", is_made, "the release was made by this policy"),
        source_check("manifest", is_shown, "the manifest shows this policy"),
    ]


def explain_failure(verification: Verification, change: SourceChange, first: int) -> Verification:
    """Replace the failures that a change of the source explains, among the checks from ``first`` on.

    The release must be unchanged since it was published, and audited then. Failures remain if the source was counted
    and has not changed, and if only the catalog differs.
    """
    failures = [check.name for check in verification.checks if check.passed is False]
    if not change and (failures == [CATALOG_CHECK] or not change.is_uncounted):
        return verification
    checks = list(verification.checks)
    for i, check in enumerate(checks):
        if i >= first and check.passed is False:
            checks[i] = replace(check, passed=None, message=f"{NOT_COMPARED}: {check.message}")
    return _add_source_change(replace(verification, checks=tuple(checks)), change)


def check_lost_rows(verification: Verification, change: SourceChange) -> Verification:
    """Add a failed check if persons or rows of the release have left the source, even if it gives the same rows."""
    return _add_source_change(verification, change) if change.has_lost_rows else verification


def _add_source_change(verification: Verification, change: SourceChange) -> Verification:
    checks = (*verification.checks, Check(SOURCE_CHECK, False, change.differences))
    return replace(verification, checks=checks, source_change=change)


def _check_requirements(audit: SourceAudit, run: Run, relation: exp.Table) -> list[Check]:
    checks = audit.checks(relation.sql(run.engine.dialect))
    return [replace(check, name=f"{SOURCE_PREFIX}{check.name}") for check in checks]


def _check_with_decoys(
    run: Run, search_input: SearchInput, verification: Verification, recoded: exp.Table, audit: SourceAudit
) -> list[Check]:
    """Check that the release has the recoded source and decoys, compared with those in the catalog if possible."""
    if not verification.verified:  # the engine of the source never reads an unverified file
        return []
    runner, manifest, catalog = StatementRunner(run.engine), verification.manifest, search_input.policy.catalog
    with attach_temporarily(run.engine, verification.path, manifest, VERIFIED) as released:
        decoy_check = DecoyCheck(runner, run.work, manifest, recoded, released)
        checks = decoy_check.checks()
        if catalog is not None and manifest.decoys:
            with open_recorded_decoys(run.engine, catalog.database, verification.digest) as recorded:
                checks.append(decoy_check.check_recorded(recorded))
        return checks + note_decoys_in_k(_check_requirements(audit, run, released), manifest)


def _check_rows(run: Run, release: OpenedRelease, recoded: exp.Table) -> Check:
    """Check that the recoded source has the rows of the release, as multisets and not by their digests."""
    engine, verification = run.engine, release.verification
    claimed = verification.manifest.types
    name = "recoded source"
    missing_columns = source_check(name, False, "the release has its columns")
    if any(check.name == "columns" and not check.passed for check in verification.checks):
        return missing_columns
    try:
        with release.rows(engine, verification.manifest) as released:
            if engine.columns(recoded) != claimed or engine.columns(released) != claimed:
                return missing_columns
            added, missing = engine.rows(count_different_rows(released, recoded, claimed))[0]
    except BrokenReleaseError as error:
        return source_check(name, False, "", str(error))
    failure = f"rows that the source does not give: {added:,}; rows missing in the release: {missing:,}"
    return source_check(name, not (added or missing), "gives the rows of the release", failure)


def _check_label_levels(
    run: Run, search_input: SearchInput, generalization: Mapping[str, int | None], verification: Verification
) -> list[Check]:
    """A failed check if the levels of the release's labels are not those of the policy's hierarchies."""
    engine, manifest = run.engine, verification.manifest
    if not verification.verified or not verification.is_file or manifest.version is None:
        return []
    with attach_temporarily(engine, verification.path, manifest, VERIFIED) as released:
        released_levels = levels_digest(engine, table(LEVELS, "sqlanon", VERIFIED))
        expected = levels_digest(engine, subquery(label_levels(engine, search_input, generalization, released)))
    claim = "each label lies under those above it in its hierarchy"
    return [] if released_levels == expected else [source_check("levels of labels", False, claim)]


def _recreate_recoding(run: Run, search_input: SearchInput, manifest: Manifest) -> tuple[Recoding | None, list[Check]]:
    """Recode the source by the manifest's generalization, or by a new search if its strategy is local.

    None if the generalization is not in the policy's lattice.
    """
    policy = search_input.policy
    if None in manifest.generalization.values() or policy.search.is_local:
        return _repeat_search(run, search_input, manifest)
    names, levels_by_name = search_input.search_policy.generalized_attributes, manifest.levels(search_input.heights)
    levels = tuple(levels_by_name.get(name) or 0 for name in names)
    has_attributes = set(manifest.generalization) == set(policy.generalized_attributes)
    is_in_lattice = has_attributes and search_input.lattice.permits(levels)
    checks = [source_check("generalization", is_in_lattice, "in the policy's lattice", "not in the policy's lattice")]
    if not is_in_lattice:
        return None, checks
    runner, measure = StatementRunner(run.engine), policy_measure(search_input)
    figures = Checker(run.engine, search_input, measure)(levels)
    verdict = verdict_rules(search_input).draw_verdict(figures, search_input.limit.rows)
    recoding = recode_at(runner, search_input, levels, figures)
    if policy.has_decoys:
        decoys, recoding = recount_decoys(runner, search_input, recoding)
        checks.append(check_decoy_claims(manifest, decoys))
    checks += _check_figures(search_input, manifest, recoding, measure.score(levels, recoding.figures), figures)
    checks.append(source_check("requirements", verdict.is_feasible, "the generalization satisfies the policy"))
    return recoding, checks


def _repeat_search(run: Run, search_input: SearchInput, manifest: Manifest) -> tuple[Recoding | None, list[Check]]:
    """Run the policy's strategy again. It finds the same result on every run, unless a time limit ends it."""
    try:
        runner = StatementRunner(run.engine)
        result = run_search(runner, search_input, ignore_progress)
        recoding = recode(runner, search_input, result)
    except InfeasibleError as error:
        return None, [source_check("requirements", False, f"the strategy finds a recoding ({error})")]
    is_same = dict(recoding.generalization) == manifest.levels(search_input.heights)
    checks = [source_check("generalization", is_same, "reproduced", "the strategy finds another one")]
    checks += _check_figures(search_input, manifest, recoding, result.score)
    if search_input.policy.search.time_limit is not None and not all(check.passed for check in checks):
        failure = (
            "the search has a time limit, and ends elsewhere on a slower machine: verify on a machine as fast, or "
        )
        failure += "publish without a time limit"
        checks.append(source_check("the same search", False, "", failure))
    return recoding, checks


def _check_figures(
    search_input: SearchInput, manifest: Manifest, recoding: Recoding, cost: float, searched: Figures | None = None
) -> list[Check]:
    """Check the figures of the release; ``searched`` are those before decoys restored suppressed rows."""
    score, claimed = policy_measure(search_input).reported_score(cost), manifest.score
    is_close = claimed is None or math.isclose(score, claimed, rel_tol=1e-9, abs_tol=1e-12)
    hidden = "" if claimed is not None else " (not shown in the release)"
    suppressed = recoding.figures.suppressed_rows
    return [
        _check_suppressed_rows(search_input, manifest, suppressed),
        *_check_persons(search_input, manifest, recoding.persons),
        source_check("score", is_close, f"{search_input.policy.search.measure} {score:.6g}{hidden}"),
        _check_suppression_limit(search_input, searched or recoding.figures, suppressed),
    ]


def _check_suppression_limit(search_input: SearchInput, searched: Figures, suppressed: int) -> Check:
    """Check that the search suppressed no more rows, or persons, than allowed."""
    limit, rows, persons = search_input.limit, searched.suppressed_rows, searched.suppressed_persons
    before_decoys = " before decoys" if rows != suppressed else ""
    message = f"{rows:,} rows suppressed{before_decoys} (allowed: {limit.rows:,})"
    if limit.persons is not None:
        count = "more persons than are allowed" if persons is None else f"{persons:,} persons"
        message = f"{count} with suppressed rows (allowed: {limit.persons:,})"
    is_allowed = limit.allows(rows, persons) and (persons is not None or limit.persons is None)
    return source_check("suppression limit", is_allowed, message, message)


def _check_persons(search_input: SearchInput, manifest: Manifest, figures: PersonFigures | None) -> list[Check]:
    """Check the manifest's persons, if persons are counted; after noise, more of them may have lost rows."""
    if figures is None:
        return []
    policy = search_input.policy
    claimed = manifest.persons, manifest.released_persons, manifest.suppressed_persons, manifest.partly_released_persons
    passed = claimed == (figures.persons, figures.fully_released, figures.suppressed, figures.partly_released)
    if policy.suppresses_after_noise and manifest.suppressed_persons is not None:
        passed = (
            manifest.persons == figures.persons
            and figures.suppressed <= manifest.suppressed_persons
            and search_input.limit.allows(0, manifest.suppressed_persons)
        )
    claim = f"{figures.fully_released:,} of {figures.persons:,} persons are released with all their rows"
    failure = f"{claim}; the release claims {manifest.released_persons}"
    checks = [source_check("persons", passed, claim, failure)]
    if not policy.suppresses_after_noise and not policy.masks_suppressed_rows:
        claim = f"the smallest class has {figures.smallest_class:,} persons"
        passed = manifest.smallest_class == figures.smallest_class
        checks.append(source_check("smallest class", passed, claim, f"{claim}, not {manifest.smallest_class}"))
    return checks


def _check_suppressed_rows(search_input: SearchInput, manifest: Manifest, suppressed: int) -> Check:
    """Check the number of suppressed rows; after noise, more rows may have been suppressed than a search suppresses."""
    claimed = manifest.suppressed_rows
    if search_input.policy.suppresses_after_noise and claimed > suppressed:
        claim = f"{suppressed:,} rows suppressed, and {claimed - suppressed:,} after noise was drawn"
        return source_check("suppressed rows", claimed <= search_input.limit.rows, claim)
    return source_check("suppressed rows", suppressed == claimed, f"{suppressed:,} rows suppressed")


def _as_json(tree: Any) -> Any:
    return json.loads(json.dumps(tree))
