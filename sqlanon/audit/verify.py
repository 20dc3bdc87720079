"""Verify a release: its rows against its manifest, by SQL that is independent of the search."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
from sqlglot import exp

from sqlanon.audit.metadata import (
    SUPPRESSION,
    check_metadata,
    check_stable_view,
    check_suppression,
    read_suppressed_rows,
)
from sqlanon.audit.verification import Verification
from sqlanon.disclosure.residual_risk import ResidualRisk, find_worst_risk
from sqlanon.engines.base import Queryable
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.errors import BrokenReleaseError, ReleaseError
from sqlanon.measures import MEASURES
from sqlanon.policy import PrivacySection
from sqlanon.policy.guarantee import guaranteed_combinations, strategy_guarantee
from sqlanon.policy.noise import noise_claims
from sqlanon.policy.problems import read_part
from sqlanon.policy.redact import find_unknown_parts
from sqlanon.release.contents import (
    ATTACHED,
    count_free_blocks,
    expected_objects,
    find_changed_macros,
    find_stray_bytes,
    find_unexpected_definitions,
    library_files,
    list_objects,
    read_catalog_columns,
)
from sqlanon.release.digests import check_sha256
from sqlanon.release.manifest import DIGEST, FORMAT, Manifest, ReleasedColumn, find_invalid_fields
from sqlanon.release.parquet import UNREAD_BYTES, check_parquet
from sqlanon.release.reader import SUBJECT, OpenRelease, open_release
from sqlanon.release.score import is_score_public, recompute_score
from sqlanon.release.visible_values import count_signed_zeros, leaf_columns
from sqlanon.requirements import check_requirements, find_unknown_names, list_requirement_queries, list_requirements
from sqlanon.requirements.audit import AuditedRelease
from sqlanon.requirements.macros import call_digest, call_k_anonymity, count_class_sizes
from sqlanon.support.checks import SOURCE_PREFIX, Check, check_faults
from sqlanon.support.expressions import create_temporary_view, select_star, table
from sqlanon.support.resources import REQUIREMENT_MACROS, __version__, macro_scripts

ROWS_NOT_READ = Check("rows", None, "not read: the release has contents that sqlanon does not write")


def verify_file(
    path: Path,
    fresh: bool = False,
    limits: Limits = NO_LIMITS,
    version: int | None = None,
    sha256: str | None = None,
    with_risk: bool = False,
) -> Verification:
    """Verify a release file by itself.

    ``fresh`` means that this run has just written it. Without a ``version``, the newest one is verified together with
    the retained versions. ``sha256`` is the expected hash of the file; ``with_risk`` adds the worst remaining risk."""
    with open_release(path, limits, version, to_verify=True) as release:
        try:
            verification = verify_release(path, release, fresh)
            if with_risk:
                verification = replace(verification, residual_risk=find_residual_risk(release, verification))
        except duckdb.OutOfMemoryException as error:
            raise ReleaseError(f"{path} cannot be verified: it needs more memory; raise memory_limit") from error
        except duckdb.Error as error:
            raise BrokenReleaseError(f"{path} was a release of sqlanon; it cannot be read: {error}") from error
    if sha256 is None:
        return verification
    return replace(verification, checks=(check_sha256(path, sha256), *verification.checks))


def verify_release(path: Path, release: OpenRelease, fresh: bool) -> Verification:
    """Verify an open release: first its catalog or layout, and its rows only if that passes."""
    contents = _check_objects(release, fresh) if release.is_database else None
    if release.layout is not None and release.flaw:
        contents = Check("contents", False, release.flaw)
    if contents is not None and not contents.passed:
        checks = tuple(_checks_without_rows(release, contents))
        return Verification(path, release.manifest, checks, digest="", is_file=release.is_file)
    digest = release.queries.rows(call_digest(SUBJECT.name))[0][1]
    return verify_rows(path, release, release.engine.columns(SUBJECT), digest, fresh, contents)


def find_residual_risk(release: OpenRelease, verification: Verification) -> ResidualRisk | None:
    """The worst risk that remains in a verified release, if any."""
    return find_worst_risk(release.queries, SUBJECT, verification.manifest) if verification.verified else None


def verify_rows(
    path: Path,
    release: OpenRelease,
    columns: Mapping[str, str],
    digest: str,
    fresh: bool,
    contents: Check | None = None,
) -> Verification:
    """Verify an open release whose contents are checked, and whose columns and digest are known.

    The rows of ``release`` need only the columns of requirements.
    """
    checks = tuple(_checks(release, columns, digest, fresh, contents))
    has_suppression = any(check.name == SUPPRESSION and check.passed for check in checks)
    suppressed = read_suppressed_rows(release.engine) if has_suppression else None
    return Verification(path, release.manifest, checks, digest, suppressed, is_file=release.is_file)


def verification_sql(manifest: Manifest) -> list[str]:
    """The statements of `verify_file`, to run in the release file."""
    name = str(table(manifest.table_name).sql("duckdb"))
    queries: list[exp.Expr] = [call_k_anonymity(name, manifest.quasi_identifiers), call_digest(name)]
    if (section := manifest.privacy) is not None:
        queries += list_requirement_queries(section, partial(audited_release, manifest=manifest, relation=name))
    if manifest.decoys is not None:
        queries.append(count_class_sizes(name, manifest.quasi_identifiers, None, None))
    return list(dict.fromkeys(query.sql("duckdb") for query in queries))


def audited_release(engine: Queryable, manifest: Manifest, relation: str) -> AuditedRelease:
    return AuditedRelease(
        engine,
        relation,
        manifest.quasi_identifiers,
        [column.name for column in manifest.columns if column.role == "sensitive"],
        manifest.rows,
        bool(manifest.policy.get("persons")),
        combinations=guaranteed_combinations(manifest.policy),
    )


def _checks_without_rows(release: OpenRelease, contents: Check) -> list[Check]:
    manifest = release.manifest
    checks = [_check_consistency(manifest), _check_fields(manifest), contents, ROWS_NOT_READ]
    if not release.is_database:
        return checks
    columns = read_catalog_columns(release.engine, "main", manifest.rows_table)
    return [_check_columns(manifest.columns, list(columns.items())), *checks, _check_blocks(release)]


def _checks(
    release: OpenRelease, columns: Mapping[str, str], digest: str, fresh: bool, contents: Check | None
) -> list[Check]:
    manifest = release.manifest
    checks = [_check_columns(manifest.columns, list(columns.items())), _check_consistency(manifest)]
    if not all(check.passed for check in checks):
        return checks
    k, classes, rows, _ = release.queries.rows(call_k_anonymity(SUBJECT.name, manifest.quasi_identifiers))[0]
    checks += [
        _check_fields(manifest),
        _check_equal("rows", manifest.released_rows, rows),
        _check_equal("classes", manifest.classes, classes),
        _check_smallest_class(manifest, k or 0),
        *_check_score(release),
        *note_decoys_in_k(_check_requirements(release, fresh), manifest),
        *_check_decoys(release),
        _check_signs(release),
        _check_equal("content digest", manifest.digest, digest, " (finds accidents, not deliberate changes)"),
    ]
    if manifest.draft:
        checks.append(Check("draft", None, "not published: a draft for testing, compared with no other release"))
    if release.is_database:
        assert contents is not None
        return [*checks, contents, *_check_duckdb_file(release, fresh)]
    if release.layout is None or release.file is None:
        return checks  # rows that come from a server have no file
    return [*checks, check_parquet(release.engine, release.file, release.layout)]


def _check_smallest_class(manifest: Manifest, rows: int) -> Check:
    """Check the rows of the smallest class; a release alone does not show its persons."""
    check = _check_equal("smallest class", manifest.fewest_rows, rows)
    if manifest.persons is None:
        return check
    claim = f"{manifest.smallest_class:,} persons claimed, which a release does not show alone"
    return replace(check, message=f"in rows {check.message} ({claim})")


def _check_fields(manifest: Manifest) -> Check:
    unknown = [*find_invalid_fields(manifest), *(f"policy.{part}" for part in find_unknown_parts(manifest.policy))]
    faults = [f"unknown content in {', '.join(unknown)}"] if unknown else []
    return check_faults("manifest fields", faults, "known fields only")


def _check_score(release: OpenRelease) -> list[Check]:
    """Check that the score in the manifest is that of the release."""
    manifest = release.manifest
    if manifest.score is None:
        return []
    sizes = {}
    if is_score_public(manifest) and MEASURES[manifest.measure].needs_squares:
        sizes = dict(release.queries.rows(count_class_sizes(SUBJECT.name, manifest.quasi_identifiers, None, None)))
    score = recompute_score(manifest, sizes)
    if score is None:
        return [Check("score", None, f"not verifiable alone: the {manifest.measure} depends on the source")]
    is_close = math.isclose(score, manifest.score, rel_tol=1e-9, abs_tol=1e-12)
    return [_check_equal("score", score if is_close else manifest.score, score)]


def _check_signs(release: OpenRelease) -> Check:
    """Check that floating-point zeros and NaN have no sign."""
    leaves = [leaf for leaf in leaf_columns(release.engine.types(SUBJECT)) if leaf.type in ("FLOAT", "DOUBLE")]
    counts = [(leaf.name, release.queries.rows(count_signed_zeros(leaf, SUBJECT.copy()))[0][0]) for leaf in leaves]
    signed = "; ".join(f"{count} in column {name!r}" for name, count in counts if count)
    faults = [f"negative zeros or NaN with a sign: {signed}"] if signed else []
    return check_faults("signs", faults, "zeros and NaN: one form each")


def _check_decoys(release: OpenRelease) -> list[Check]:
    if release.manifest.decoys is None:
        return []
    query = count_class_sizes(SUBJECT.name, release.manifest.quasi_identifiers, None, None)
    return check_decoys(release.manifest, dict(release.queries.rows(query)))


def _check_requirements(release: OpenRelease, fresh: bool) -> list[Check]:
    manifest = release.manifest
    section, problems = read_part(PrivacySection, manifest.policy["privacy"], "privacy", {})
    if section is None:
        return [Check("requirements", False, "; ".join(map(str, problems)))]
    audited = audited_release(release.queries, manifest, SUBJECT.name)
    if unknown := find_unknown_names(section, audited):
        return [Check("requirements", False, f"the release does not have these columns: {unknown}")]
    # A fresh DuckDB file has its macros already; a file of rows alone never has.
    has_macros = fresh and release.is_database
    if not has_macros and not all(requirement.entry.plain_macros for requirement in list_requirements(section)):
        release.engine.script(*macro_scripts(REQUIREMENT_MACROS))
    return check_requirements(section, audited)


def _check_consistency(manifest: Manifest) -> Check:
    """Check that the manifest is consistent, because it decides which checks run."""
    policy = manifest.policy
    roles = {name.lower(): spec.get("role") for name, spec in policy.get("attributes", {}).items()}
    noisy = {name.lower() for name, spec in policy.get("attributes", {}).items() if "noise" in spec}
    quasi = {name.lower() for name, role in roles.items() if role == "quasi"} - noisy
    retained = manifest.rows - manifest.suppressed_rows + (manifest.decoys or 0)
    masks = (policy.get("release") or {}).get("suppressed") == "mask" or policy.get("suppressed") == "mask"
    search = policy.get("search", {})
    consistent = {
        "format": manifest.format == FORMAT and manifest.digest_algorithm == DIGEST,
        "requirements": bool(policy.get("privacy")),
        "roles": all(roles.get(column.name.lower()) == column.role for column in manifest.columns),
        "quasi-identifiers": {name.lower() for name in manifest.quasi_identifiers} == quasi,
        "noise": _has_consistent_noise(manifest),
        "generalization": {name.lower() for name in manifest.generalization} == quasi,
        "row counts": manifest.released_rows == retained or (masks and manifest.released_rows == manifest.rows),
        "decoys": has_possible_decoys(manifest),
        "persons": _has_consistent_persons(manifest),
        "measure": search.get("measure") == manifest.measure,
        "guarantee": strategy_guarantee(search.get("strategy", "optimal")) == manifest.guarantee,
    }
    contradictions = [part for part, is_consistent in consistent.items() if not is_consistent]
    faults = [f"contradicts itself in {', '.join(contradictions)}"] if contradictions else []
    return check_faults("manifest", faults, "consistent")


def _has_consistent_persons(manifest: Manifest) -> bool:
    rows, persons, released = manifest.smallest_class_rows, manifest.persons, manifest.released_persons
    suppressed, partly = manifest.suppressed_persons, manifest.partly_released_persons
    if not manifest.policy.get("persons"):
        return (rows, persons, released, suppressed, partly) == (None,) * 5
    if rows is None or persons is None or released is None or suppressed is None or partly is None:
        return False
    return (
        persons == released + suppressed
        and 0 <= partly <= suppressed <= manifest.suppressed_rows
        and 0 <= manifest.smallest_class <= min(rows, released + suppressed)
    )


def _has_consistent_noise(manifest: Manifest) -> bool:
    try:
        epsilon, noise = noise_claims(manifest.policy)
    except (KeyError, TypeError, ValueError):
        return False
    beta = None if manifest.confidence is None else manifest.confidence.get("beta")
    return (manifest.epsilon, manifest.noise, beta) == (epsilon, noise, manifest.policy["privacy"].get("confidence"))


def _check_objects(release: OpenRelease, fresh: bool) -> Check:
    """Check that a DuckDB file has exactly the objects of a release, with their definitions."""
    engine = release.engine
    expected, actual = expected_objects(release.manifests), list_objects(engine)
    faults = [f"{name} is missing" for name in sorted(expected - actual)]
    faults += [f"{name} is not part of the release" for name in sorted(actual - expected)]
    if not fresh:
        changed = find_unexpected_definitions(engine)
        faults += [f"table {name} has constraints, defaults or collations" for name in changed]
        faults += [release.flaw] if release.flaw and not faults else []
    return check_faults("contents", faults, "rows and metadata only")


def _check_duckdb_file(release: OpenRelease, fresh: bool) -> list[Check]:
    """The checks of a DuckDB file whose objects are those of a release."""
    engine, newest, checks = release.engine, release.manifests[0], list[Check]()
    if release.manifest is newest:
        checks += [check_stable_view(engine, newest), check_suppression(engine, newest)]
        checks += [_check_version(engine, manifest) for manifest in release.manifests[1:]]
    if fresh:
        return checks
    checks.append(_check_blocks(release))
    writer = (newest.sqlanon_version, newest.engine.partition(",")[0])
    is_same_engine = writer[1] == engine.version
    if release.manifest is newest:
        checks += check_metadata(engine, release.manifests, is_same_engine)
    if not is_same_engine or writer[0] != __version__:  # each version words macros in its own way
        checks.append(Check("macros", None, f"written by sqlanon {' with '.join(writer)}, not by this one"))
    else:
        assert release.scratch is not None  # a release that is not fresh was opened as a file
        changed = find_changed_macros(engine, release.scratch, library_files(release.manifests))
        faults = [f"changed: {', '.join(changed)}"] if changed else []
        checks.append(check_faults("macros", faults, "unchanged"))
    return checks


def _check_blocks(release: OpenRelease) -> Check:
    faults = [] if release.file is None else list(find_stray_bytes(release.file))
    if free := count_free_blocks(release.engine):
        faults.append(f"{free} blocks are not in use: they may hold deleted rows")
    return check_faults("file", faults, f"all blocks are in use; {UNREAD_BYTES}")


def _check_version(engine: DuckDBEngine, manifest: Manifest) -> Check:
    """Check a retained version against its manifest."""
    name, view = f"version {manifest.version}", f"version_{manifest.version}"
    relation = table(manifest.rows_table, "main", ATTACHED)
    columns = _check_columns(manifest.columns, list(engine.columns(relation).items()))
    for check in (columns, _check_consistency(manifest)):
        if not check.passed:
            return Check(name, False, check.message)
    engine.execute(create_temporary_view(table(view), select_star(relation)))
    smallest, classes, rows, _ = engine.rows(call_k_anonymity(view, manifest.quasi_identifiers))[0]
    actual = (engine.rows(call_digest(view))[0][1], rows, classes, smallest or 0)
    claimed = (manifest.digest, manifest.released_rows, manifest.classes, manifest.fewest_rows)
    return _check_equal(name, ", ".join(map(str, claimed)), ", ".join(map(str, actual)))


def _check_columns(claimed: Sequence[ReleasedColumn], actual: list[tuple[str, str]]) -> Check:
    expected = [(column.name, column.type) for column in claimed]
    if expected == actual:
        return Check("columns", True, f"{len(actual)} columns, as claimed")
    return Check("columns", False, f"claimed {json.dumps(expected)}, found {json.dumps(actual)}")


def _check_equal(name: str, claimed: Any, actual: Any, note: str = "") -> Check:
    claim, value = (f"{figure:,}" if isinstance(figure, int) else str(figure) for figure in (claimed, actual))
    passed = claimed == actual
    return Check(name, passed, f"{value}, as claimed{note}" if passed else f"claimed {claim}, found {value}")


def has_possible_decoys(manifest: Manifest) -> bool:
    """Whether the figures of decoys in a manifest are possible."""
    decoys = manifest.decoys
    if not manifest.policy.get("decoys"):
        return decoys is None
    k = manifest.policy.get("privacy", {}).get("k")
    if decoys is None or not isinstance(k, int):
        return False
    return decoys == 0 or (decoys > 0 and k > 1 and manifest.smallest_class == k)


def note_decoys_in_k(checks: Sequence[Check], manifest: Manifest) -> list[Check]:
    """Add a note to the checks of k that they count decoys, if the release has any."""
    if not manifest.decoys:
        return list(checks)
    note = f"k counts {manifest.decoys} decoys, which are invented rows"
    k = f"{manifest.policy['privacy']['k']}-anonymity"
    names = (k, f"{SOURCE_PREFIX}{k}")
    return [replace(check, message=f"{check.message}; {note}") if check.name in names else check for check in checks]


def check_decoys(manifest: Manifest, classes_by_size: Mapping[int, int]) -> list[Check]:
    """Check that enough classes have exactly k rows, as filled classes have. No check if the policy has no decoys."""
    if manifest.decoys is None:
        return []
    k = manifest.policy["privacy"]["k"]
    classes = classes_by_size.get(k, 0)
    message = f"{manifest.decoys} decoys in some of the {classes} classes of {k} rows; the release does not show which"
    return [Check("decoys", manifest.decoys <= classes * (k - 1), message)]
