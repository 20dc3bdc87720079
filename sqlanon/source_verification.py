"""Checking a release against its source: recoded again in the same way, it must give the same rows."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from sqlanon.audit.check import SOURCE_PREFIX, Check, note_decoys_in_k, source_check
from sqlanon.audit.decoys import CATALOG_CHECK, DecoyCheck, check_decoy_claims, recount_decoys
from sqlanon.audit.label_levels import levels_digest
from sqlanon.audit.noise import NoiseCheck
from sqlanon.audit.source_audit import SourceAudit
from sqlanon.audit.visible_values import count_different_rows
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import BrokenReleaseError, InfeasibleError
from sqlanon.ledger.catalog import open_recorded_decoys
from sqlanon.ledger.growth.marks import recode_released_rows
from sqlanon.measures import Figures
from sqlanon.policy import Policy
from sqlanon.recode.stage import Recoding, recode, recode_at
from sqlanon.release.draft import count_suppressed_by_label
from sqlanon.release.label_levels import LEVELS, label_levels
from sqlanon.release.manifest import Manifest
from sqlanon.release.reader import attach_temporarily
from sqlanon.release.source_change import NOT_COMPARED, SOURCE_CHECK, SourceChange
from sqlanon.release.targets.base import Verification, VerifiedRelease
from sqlanon.requirements import list_requirements
from sqlanon.sources.run import Run
from sqlanon.strategies.lattice.checker import Checker, policy_measure, verdict_rules
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.strategies.lattice.lattice import ignore_progress
from sqlanon.strategies.lattice.persons import PersonFigures
from sqlanon.strategies.stage import run_search
from sqlanon.support.expressions import create_table, create_temporary_view, star, subquery, table
from sqlanon.support.names import VERIFIED
from sqlanon.support.notices import with_noun
from sqlanon.support.resources import RELEASE_MACROS, REQUIREMENT_MACROS


def check_against_source(
    run: Run, prepared: SearchInput, release: VerifiedRelease, withdraws: bool = False
) -> list[Check]:
    """Recode the source by the manifest's generalization, and compare; then check every requirement on the result. A
    release that withdraws rows shows nothing of suppressed ones.

    Makes ``suppressed`` in the run's work schema, and the temporary view ``recoded``.
    """
    engine, work, view, found = run.engine, run.work, run.work_names.view("recoded"), release.verification
    policy, manifest = prepared.policy, found.manifest
    macros = run.install_macros(_macros_for(policy))
    checks = []
    count = prepared.marginals.rows
    claim = f"the source has {count:,} rows"
    wrong = f"{claim}, the release claims {manifest.rows:,}"
    checks.append(source_check("source rows", manifest.rows == count, claim, wrong))
    dropped = run.dropped_lines(policy)
    if (dropped or 0) != (manifest.dropped_lines or 0) or dropped:
        claim = f"{with_noun(dropped or 0, 'bad line', 'is', 'are')} dropped from the source"
        wrong = f"{claim}, the release claims {manifest.dropped_lines or 0:,}"
        same = (dropped or 0) == (manifest.dropped_lines or 0)
        checks.append(source_check("dropped lines", same, claim, wrong))
    again, found_again = _again(run, prepared, manifest)
    checks += found_again
    if again is None:
        return checks
    rows = _recode(run, prepared, again, view)
    checks += _same_levels(run, prepared, again.generalization, found)
    audit = SourceAudit(engine, work, macros, prepared, again.statement, again.statement, run.population)
    if policy.has_decoys:
        return checks + _with_decoys(run, prepared, found, view, audit)
    if not policy.noisy_attributes:
        checks.append(_check_rows(run, release, view))
        if checks[-1].passed and found.suppressed is not None and not withdraws:
            suppressed = sorted(count_suppressed_by_label(run, prepared, again, view), key=str)
            right = suppressed == sorted(found.suppressed, key=str)
            checks.append(source_check("suppression by value", right, "counts match the source"))
        return checks + _audited(audit, run, view)
    if not found.verified:  # what else there may be in its file is not read by the engine that has the source
        return checks
    with attach_temporarily(engine, found.path, manifest, VERIFIED) as released:
        checks += NoiseCheck(engine, work, prepared, manifest, released, rows).checks()
        # With noise, rows may have been suppressed that the recoded source has.
        return checks + _audited(audit, run, released if policy.source.person_column is None else view)


def _recode(run: Run, prepared: SearchInput, again: Recoding, view: exp.Table) -> exp.Table:
    """Make the view of the recoded source; of one that is elsewhere, over a copy.

    With noise the rows of a source that is elsewhere are none of the release: a table of them stays there.
    """
    query, source = again.statement.select(shuffled=False), prepared.source
    if prepared.policy.noisy_attributes and source.access == "remote":
        return StatementRunner(run.engine).make(run.work("recoded_rows"), query)
    if source.access != "rows":
        types = {
            column.name: again.statement.released_type(column, source.columns[column.name])
            for column in again.statement.columns
        }
        rows = run.work("recoded_rows")
        with source.release_rows(run.engine, again.statement, types, shuffled=False) as relation:
            run.engine.execute(create_table(rows.copy(), relation))
        query = star(rows)
    run.engine.execute(create_temporary_view(view.copy(), query))
    return view


def check_extended(run: Run, prepared: SearchInput, release: VerifiedRelease) -> list[Check]:
    """Recode the rows of the source that the ledger says are in an extended release, and compare; then check every
    requirement on the result.

    Rows that have left the source since, or have other values now, are in the release as they were: then it is not what
    the source gives.
    """
    engine, macros = run.engine, run.install_macros(_macros_for(prepared.policy))
    found, manifest = release.verification, release.verification.manifest
    levels = {name: level or 0 for name, level in manifest.levels(prepared.heights).items()}
    recoding = recode_released_rows(run, prepared, levels)
    recoded = run.work_names.view("recoded")
    engine.execute(create_temporary_view(recoded, recoding.select(shuffled=False)))
    audit = SourceAudit(engine, run.work, macros, prepared, recoding, recoding, None)
    same_levels = _same_levels(run, prepared, manifest.generalization, found)
    return [_check_rows(run, release, recoded), *same_levels, *_audited(audit, run, recoded)]


def _macros_for(policy: Policy) -> Sequence[str]:
    """The files of the macro library that the policy's requirements are checked by."""
    plain = all(one.entry.plain_macros for one in list_requirements(policy.privacy))
    return RELEASE_MACROS if plain and policy.source.person_column is None else REQUIREMENT_MACROS


def check_policy(policy: Policy, found: Verification) -> list[Check]:
    """Whether a release was made by a policy, wherever it was published to, and its manifest shows it."""
    manifest = found.manifest
    shown = {name: part for name, part in manifest.policy.items() if name != "draft"}
    policies = [policy, policy.with_output_file(found.path)] if found.is_file else [policy]
    made = any(one.matches_fingerprint(manifest.policy_hash) for one in policies)
    return [
        source_check("policy", made, "the release was made by this policy"),
        source_check("manifest", _as_json(shown) == _as_json(policy.redact()), "the manifest shows this policy"),
    ]


def explain_failure(found: Verification, change: SourceChange, first: int) -> Verification:
    """Name the change of the source in place of the checks from the first on that fail because of it.

    The release must be as it was published: it was audited then. Where its rows were counted and nothing has changed,
    the checks stay as they are; and where the catalog alone is another one.
    """
    of_catalog = [check.name for check in found.checks if check.passed is False] == [CATALOG_CHECK]
    if not change and (of_catalog or not change.is_uncounted):
        return found
    checks = [
        replace(check, passed=None, message=f"{NOT_COMPARED}: {check.message}")
        if i >= first and check.passed is False
        else check
        for i, check in enumerate(found.checks)
    ]
    return replace(found, checks=(*checks, Check(SOURCE_CHECK, False, change.differences)), source_change=change)


def check_lost_rows(found: Verification, change: SourceChange) -> Verification:
    """Add a failed check if persons or rows of the release have left the source, even if it gives the same rows."""
    if not change.has_lost_rows:
        return found
    checks = (*found.checks, Check(SOURCE_CHECK, False, change.differences))
    return replace(found, checks=checks, source_change=change)


def _audited(audit: SourceAudit, run: Run, relation: exp.Table) -> list[Check]:
    found = audit.checks(relation.sql(run.engine.dialect))
    return [replace(check, name=f"{SOURCE_PREFIX}{check.name}") for check in found]


def _with_decoys(
    run: Run, prepared: SearchInput, found: Verification, recoded: exp.Table, audit: SourceAudit
) -> list[Check]:
    """The recoded source is in the release, and what else there is are decoys; which, the catalog may know."""
    if not found.verified:  # what else there may be in its file is not read by the engine that has the source
        return []
    steps, manifest, catalog = StatementRunner(run.engine), found.manifest, prepared.policy.catalog
    with attach_temporarily(run.engine, found.path, manifest, VERIFIED) as released:
        check = DecoyCheck(steps, run.work, manifest, recoded, released)
        checks = check.checks()
        if catalog is not None and manifest.decoys:
            with open_recorded_decoys(run.engine, catalog.database, found.digest) as recorded:
                checks.append(check.check_recorded(recorded))
        return checks + note_decoys_in_k(_audited(audit, run, released), manifest)


def _check_rows(run: Run, release: VerifiedRelease, recoded: exp.Table) -> Check:
    """Whether the source, recoded, has the rows of the release: each row as often, not a digest of them."""
    engine, found = run.engine, release.verification
    claimed = {column.name: column.type for column in found.manifest.columns}
    name = "recoded source"
    if any(check.name == "columns" and not check.passed for check in found.checks):
        return source_check(name, False, "the release has its columns")
    try:
        with release.rows(engine, found.manifest) as released:
            if engine.columns(recoded) != claimed or engine.columns(released) != claimed:
                return source_check(name, False, "the release has its columns")
            added, missing = engine.rows(count_different_rows(released, recoded, claimed))[0]
    except BrokenReleaseError as error:
        return source_check(name, False, "", str(error))
    if added or missing:
        message = f"rows that the source does not give: {added:,}; rows missing in the release: {missing:,}"
        return source_check(name, False, "", message)
    return source_check(name, True, "gives the rows of the release")


def _same_levels(
    run: Run, prepared: SearchInput, generalization: Mapping[str, int | None], found: Verification
) -> list[Check]:
    """A failed check if the levels of the release's labels are not those of the policy's hierarchies."""
    if not found.verified or not found.is_file or found.manifest.version is None:
        return []
    engine = run.engine
    with attach_temporarily(engine, found.path, found.manifest, VERIFIED) as released:
        theirs = levels_digest(engine, table(LEVELS, "sqlanon", VERIFIED))
        ours = levels_digest(engine, subquery(label_levels(engine, prepared, generalization, released)))
    claim = "each label lies under those above it in its hierarchy"
    return [] if theirs == ours else [source_check("levels of labels", False, claim)]


def _again(run: Run, prepared: SearchInput, manifest: Manifest) -> tuple[Recoding | None, list[Check]]:
    """What is released of the source by the manifest's generalization; below the full domain, by its strategy.

    None where the generalization is none of the policy's.
    """
    policy = prepared.policy
    if None in manifest.generalization.values() or policy.search.is_local:
        return _found_again(run, prepared, manifest)
    at = manifest.levels(prepared.heights)
    levels = tuple(at.get(name) or 0 for name in prepared.search_policy.generalized_attributes)
    fits = set(manifest.generalization) == set(policy.generalized_attributes) and prepared.lattice.permits(levels)
    checks = [source_check("generalization", fits, "in the policy's lattice", "not in the policy's lattice")]
    if not fits:
        return None, checks
    measure = policy_measure(prepared)
    figures = Checker(run.engine, prepared, measure)(levels)
    verdict = verdict_rules(prepared).judge(figures, prepared.limit.rows)
    steps = StatementRunner(run.engine)
    chosen = recode_at(steps, prepared, levels, figures)
    if policy.has_decoys:
        claimed, chosen = recount_decoys(steps, prepared, chosen)
        checks.append(check_decoy_claims(manifest, claimed))
    released = chosen.figures
    checks += _check_figures(prepared, manifest, chosen, measure.score(levels, released), figures)
    checks.append(source_check("requirements", verdict.satisfies, "the generalization satisfies the policy"))
    return chosen, checks


def _found_again(run: Run, prepared: SearchInput, manifest: Manifest) -> tuple[Recoding | None, list[Check]]:
    """What the policy's strategy finds. A result is the same on every run, unless the clock ends it."""
    try:
        steps = StatementRunner(run.engine)
        found = run_search(steps, prepared, ignore_progress)
        again = recode(steps, prepared, found)
    except InfeasibleError as error:
        return None, [source_check("requirements", False, f"the strategy finds a recoding ({error})")]
    same = dict(again.generalization) == manifest.levels(prepared.heights)
    checks = [source_check("generalization", same, "reproduced", "the strategy finds another one")]
    checks += _check_figures(prepared, manifest, again, found.score)
    if prepared.policy.search.time_limit is not None and not all(check.passed for check in checks):
        message = (
            "the search has a time limit, and ends elsewhere on a slower machine: verify on a machine as fast, or "
        )
        message += "publish without a time limit"
        checks.append(source_check("the same search", False, "", message))
    return again, checks


def _check_figures(
    prepared: SearchInput, manifest: Manifest, again: Recoding, cost: float, before: Figures | None = None
) -> list[Check]:
    """The figures of what is released; and the rows that the search suppressed, which decoys may have let back in."""
    score, figures = policy_measure(prepared).reported_score(cost), again.figures
    claimed = manifest.score
    right = claimed is None or math.isclose(score, claimed, rel_tol=1e-9, abs_tol=1e-12)
    hidden = "" if claimed is not None else " (not shown in the release)"
    suppressed = figures.suppressed_rows
    return [
        _check_suppressed_rows(prepared, manifest, suppressed),
        *_check_persons(prepared, manifest, again.persons),
        source_check("score", right, f"{prepared.policy.search.measure} {score:.6g}{hidden}"),
        _check_suppression_limit(prepared, figures if before is None else before, suppressed),
    ]


def _check_suppression_limit(prepared: SearchInput, searched: Figures, suppressed: int) -> Check:
    """Whether the search suppressed as much as may be: rows, or persons."""
    limit, rows, persons = prepared.limit, searched.suppressed_rows, searched.suppressed_persons
    late = " before decoys" if rows != suppressed else ""
    message = f"{rows:,} rows suppressed{late} (allowed: {limit.rows:,})"
    if limit.persons is not None:
        lost = "more persons than are allowed" if persons is None else f"{persons:,} persons"
        message = f"{lost} with suppressed rows (allowed: {limit.persons:,})"
    allowed = limit.allows(rows, persons) and (persons is not None or limit.persons is None)
    return source_check("suppression limit", allowed, message, message)


def _check_persons(prepared: SearchInput, manifest: Manifest, again: PersonFigures | None) -> list[Check]:
    """Whether the persons of the manifest are those of the source, where persons are counted; with noise, more of them
    may have lost rows since."""
    if again is None:
        return []
    claimed = (
        manifest.persons,
        manifest.released_persons,
        manifest.suppressed_persons,
        manifest.partly_released_persons,
    )
    counted = (again.persons, again.released, again.suppressed, again.partly_released)
    right = claimed == counted
    if prepared.policy.suppresses_after_noise and manifest.suppressed_persons is not None:
        right = manifest.persons == again.persons and again.suppressed <= manifest.suppressed_persons
        right = right and prepared.limit.allows(0, manifest.suppressed_persons)
    said = f"{again.released:,} of {again.persons:,} persons are released with all their rows"
    checks = [source_check("persons", right, said, f"{said}; the release claims {manifest.released_persons}")]
    if not prepared.policy.suppresses_after_noise and not prepared.policy.masks_suppressed_rows:
        smallest = f"the smallest class has {again.smallest_class:,} persons"
        right = manifest.smallest_class == again.smallest_class
        checks.append(source_check("smallest class", right, smallest, f"{smallest}, not {manifest.smallest_class}"))
    return checks


def _check_suppressed_rows(prepared: SearchInput, manifest: Manifest, suppressed: int) -> Check:
    """With noise, rows may have been suppressed when the rest was decided: more than can be found again."""
    found, policy = manifest.suppressed_rows, prepared.policy
    if policy.suppresses_after_noise and found > suppressed:
        late = f"{suppressed:,} rows suppressed, and {found - suppressed:,} after noise was drawn"
        return source_check("suppressed rows", found <= prepared.limit.rows, late)
    return source_check("suppressed rows", suppressed == found, f"{suppressed:,} rows suppressed")


def _as_json(tree: Any) -> Any:
    return json.loads(json.dumps(tree))
