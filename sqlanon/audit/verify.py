"""Verifying a release: its rows against its manifest, by SQL that is independent of the search."""

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

from sqlanon.audit.check import (
    UNREAD_BYTES,
    Check,
    check_decoys,
    check_faults,
    check_sha256,
    has_possible_decoys,
    note_decoys_in_k,
)
from sqlanon.audit.metadata import (
    SUPPRESSION,
    check_metadata,
    check_stable_view,
    check_suppression,
    read_suppressed_rows,
)
from sqlanon.audit.parquet import check_parquet
from sqlanon.audit.visible_values import count_signed_zeros, leaf_columns
from sqlanon.disclosure.residual_risk import ResidualRisk, find_worst_risk
from sqlanon.engines.base import Queries
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.errors import BrokenReleaseError, ReleaseError
from sqlanon.measures import MEASURES
from sqlanon.policy import PrivacySection, find_unknown_parts
from sqlanon.policy.guarantee import guaranteed_combinations, strategy_guarantee
from sqlanon.policy.noise import noise_claims
from sqlanon.policy.problems import read_part
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
from sqlanon.release.manifest import DIGEST, FORMAT, Manifest, ReleasedColumn, find_invalid_fields
from sqlanon.release.reader import SUBJECT, OpenRelease, open_release
from sqlanon.release.score import is_score_public, recompute_score
from sqlanon.release.targets.base import Verification
from sqlanon.requirements import check_requirements, find_unknown_names, list_requirement_queries, list_requirements
from sqlanon.requirements.audit import AuditedRelease
from sqlanon.requirements.macros import call_digest, call_k_anonymity, count_class_sizes
from sqlanon.support.expressions import create_temporary_view, star, table
from sqlanon.support.resources import REQUIREMENT_MACROS, __version__, macro_scripts


def verify_file(
    path: Path,
    fresh: bool = False,
    limits: Limits = NO_LIMITS,
    version: int | None = None,
    sha256: str | None = None,
    with_risk: bool = False,
) -> Verification:
    """Verify a release file by itself.

    ``fresh`` means that this run has just written it. Without a ``version``, the newest one is verified, and the other
    kept versions are checked with it. ``sha256`` is the expected hash of the file;
    ``with_risk`` adds the worst that the rows still show."""
    with open_release(path, limits, version, to_verify=True) as release:
        try:
            found = verify_release(path, release, fresh)
            found = replace(found, residual_risk=find_residual_risk(release, found)) if with_risk else found
        except duckdb.OutOfMemoryException as error:
            raise ReleaseError(f"{path} cannot be verified: it needs more memory; raise memory_limit") from error
        except duckdb.Error as error:
            raise BrokenReleaseError(f"{path} was a release of sqlanon; it cannot be read: {error}") from error
    return found if sha256 is None else replace(found, checks=(check_sha256(path, sha256), *found.checks))


def verify_release(path: Path, release: OpenRelease, fresh: bool) -> Verification:
    """Verify an open release: first its catalog or layout, and only if nothing is wrong with that, its rows."""
    contents = _contents(release, fresh)
    if contents is not None and not contents.passed:
        return Verification(path, release.manifest, tuple(_checks_without_rows(release, contents)), digest="")
    digest = release.queries.rows(call_digest(SUBJECT.name))[0][1]
    return verify_rows(path, release, release.engine.columns(SUBJECT), digest, fresh, contents)


def find_residual_risk(release: OpenRelease, found: Verification) -> ResidualRisk | None:
    """The worst that a verified release still shows."""
    return find_worst_risk(release.queries, SUBJECT, found.manifest) if found.verified else None


def verify_rows(
    path: Path,
    release: OpenRelease,
    columns: Mapping[str, str],
    digest: str,
    fresh: bool,
    contents: Check | None = None,
) -> Verification:
    """`verify_release`, where the columns and the digest of the rows are known, and the check of the contents.

    The rows that are open need no columns but those that the requirements look at.
    """
    checks = tuple(_checks(release, columns, digest, fresh, contents))
    shows = any(check.name == SUPPRESSION and check.passed for check in checks)
    return Verification(path, release.manifest, checks, digest, read_suppressed_rows(release.engine) if shows else None)


def verification_sql(manifest: Manifest) -> list[str]:
    """The statements of `verify_file`, to run in the release file."""
    name = str(table(manifest.table_name).sql("duckdb"))
    queries: list[exp.Expr] = [call_k_anonymity(name, manifest.quasi_identifiers), call_digest(name)]
    section, _ = read_part(PrivacySection, manifest.policy["privacy"], "privacy", {})
    if section is not None:
        queries += list_requirement_queries(section, partial(audited_release, manifest=manifest, relation=name))
    if manifest.decoys is not None:
        queries.append(count_class_sizes(name, manifest.quasi_identifiers, None, None))
    return list(dict.fromkeys(query.sql("duckdb") for query in queries))


def _contents(release: OpenRelease, fresh: bool) -> Check | None:
    """Whether a file has what a release has, and nothing else, before a row is read; None if nothing is to be said."""
    if release.layout is not None:
        return check_faults("contents", [release.flaw], "") if release.flaw else None
    return None if release.is_parquet else _objects_check(release, fresh)


ROWS_NOT_READ = Check("rows", None, "not read: the release has something else than a release of sqlanon has")


def _checks_without_rows(release: OpenRelease, contents: Check) -> list[Check]:
    manifest = release.manifest
    checks = [_check_consistency(manifest), _fields(manifest), contents, ROWS_NOT_READ]
    if release.is_parquet:
        return checks
    columns = read_catalog_columns(release.engine, "main", manifest.rows_table)
    return [_columns(manifest.columns, list(columns.items())), *checks, _no_more_bytes(release)]


def _checks(
    release: OpenRelease, columns: Mapping[str, str], digest: str, fresh: bool, contents: Check | None
) -> list[Check]:
    manifest = release.manifest
    checks = [_columns(manifest.columns, list(columns.items())), _check_consistency(manifest)]
    if not all(check.passed for check in checks):
        return checks
    k, classes, rows, _ = release.queries.rows(call_k_anonymity(SUBJECT.name, manifest.quasi_identifiers))[0]
    checks += [
        _fields(manifest),
        _equal("rows", manifest.released_rows, rows),
        _equal("classes", manifest.classes, classes),
        _smallest_class(manifest, k or 0),
        *_check_score(release),
        *note_decoys_in_k(_requirements(release, fresh), manifest),
        *_decoys(release),
    ]
    checks += [_signs(release), _content_digest(manifest, digest)]
    if manifest.draft:
        checks.append(Check("draft", None, "not published: a draft for trying out, compared with no other release"))
    if not release.is_parquet:
        assert contents is not None
        return [*checks, contents, *_file_checks(release, fresh)]
    if release.layout is None or release.file is None:
        return checks  # rows that come from a server have no file
    return [*checks, check_parquet(release.engine, release.file, release.layout)]


def _smallest_class(manifest: Manifest, rows: int) -> Check:
    """The rows of the smallest class; its persons are not seen in a release alone."""
    check = _equal("smallest class", manifest.fewest_rows, rows)
    if manifest.persons is None:
        return check
    claim = f"{manifest.smallest_class:,} persons claimed, which a release does not show alone"
    return replace(check, message=f"in rows {check.message} ({claim})")


def _fields(manifest: Manifest) -> Check:
    strange = [*find_invalid_fields(manifest), *(f"policy.{place}" for place in find_unknown_parts(manifest.policy))]
    wrong = [f"unknown content in {', '.join(strange)}"] if strange else []
    return check_faults("manifest fields", wrong, "known fields only")


def _check_score(release: OpenRelease) -> list[Check]:
    """Whether the score in the manifest is that of the release."""
    manifest = release.manifest
    if manifest.score is None:
        return []
    sizes = {}
    if is_score_public(manifest) and MEASURES[manifest.measure].needs_squares:
        sizes = dict(release.queries.rows(count_class_sizes(SUBJECT.name, manifest.quasi_identifiers, None, None)))
    score = recompute_score(manifest, sizes)
    if score is None:
        return [Check("score", None, f"not verifiable alone: the {manifest.measure} depends on the source")]
    same = math.isclose(score, manifest.score, rel_tol=1e-9, abs_tol=1e-12)
    return [_equal("score", manifest.score if not same else score, score)]


def _signs(release: OpenRelease) -> Check:
    """Whether floating-point zeros and NaN have no sign."""
    floats = [one for one in leaf_columns(release.engine.types(SUBJECT)) if one.type in ("FLOAT", "DOUBLE")]
    counts = [(one.name, release.queries.rows(count_signed_zeros(one, SUBJECT.copy()))[0][0]) for one in floats]
    found = "; ".join(f"{count} in column {name!r}" for name, count in counts if count)
    wrong = [f"negative zeros or NaN with a sign: {found}"] if found else []
    return check_faults("signs", wrong, "zeros and NaN: one form each")


def _content_digest(manifest: Manifest, found: str) -> Check:
    check = _equal("content digest", manifest.digest, found)
    if not check.passed:
        return check
    return replace(check, message=f"{check.message} (finds accidents, not deliberate changes)")


def _decoys(release: OpenRelease) -> list[Check]:
    if release.manifest.decoys is None:
        return []
    query = count_class_sizes(SUBJECT.name, release.manifest.quasi_identifiers, None, None)
    return check_decoys(release.manifest, dict(release.queries.rows(query)))


def audited_release(engine: Queries, manifest: Manifest, relation: str) -> AuditedRelease:
    sensitive = [column.name for column in manifest.columns if column.role == "sensitive"]
    persons = bool(manifest.policy.get("persons"))
    listed = guaranteed_combinations(manifest.policy)
    return AuditedRelease(
        engine, relation, manifest.quasi_identifiers, sensitive, manifest.rows, persons, combinations=listed
    )


def _requirements(release: OpenRelease, fresh: bool) -> list[Check]:
    manifest = release.manifest
    section, problems = read_part(PrivacySection, manifest.policy["privacy"], "privacy", {})
    if section is None:
        return [Check("requirements", False, "; ".join(map(str, problems)))]
    audited = audited_release(release.queries, manifest, SUBJECT.name)
    if strange := find_unknown_names(section, audited):
        return [Check("requirements", False, f"the release does not have these columns: {strange}")]
    # A file of tables that is fresh has its macros already; one of rows alone never has.
    if (not fresh or release.is_parquet) and not all(one.entry.plain_macros for one in list_requirements(section)):
        release.engine.script(*macro_scripts(REQUIREMENT_MACROS))
    return check_requirements(section, audited)


def _check_consistency(manifest: Manifest) -> Check:
    """Whether the manifest is consistent, because it decides which checks run."""
    policy = manifest.policy
    roles = {name.lower(): spec.get("role") for name, spec in policy.get("attributes", {}).items()}
    noisy = {name.lower() for name, spec in policy.get("attributes", {}).items() if "noise" in spec}
    quasi = {name.lower() for name, role in roles.items() if role == "quasi"} - noisy
    kept = manifest.rows - manifest.suppressed_rows + (manifest.decoys or 0)
    masks = (policy.get("release") or {}).get("suppressed") == "mask" or policy.get("suppressed") == "mask"
    wrong = [
        what
        for what, right in (
            ("format", manifest.format == FORMAT and manifest.digest_algorithm == DIGEST),
            ("requirements", bool(policy.get("privacy"))),
            ("roles", all(roles.get(column.name.lower()) == column.role for column in manifest.columns)),
            ("quasi-identifiers", {name.lower() for name in manifest.quasi_identifiers} == quasi),
            ("noise", _claims_its_noise(manifest)),
            ("generalization", {name.lower() for name in manifest.generalization} == quasi),
            ("row counts", manifest.released_rows == kept or (masks and manifest.released_rows == manifest.rows)),
            ("decoys", has_possible_decoys(manifest)),
            ("persons", _claims_its_persons(manifest)),
            ("measure", policy.get("search", {}).get("measure") == manifest.measure),
            (
                "guarantee",
                strategy_guarantee(policy.get("search", {}).get("strategy", "optimal")) == manifest.guarantee,
            ),
        )
        if not right
    ]
    return check_faults("manifest", [f"contradicts itself in {', '.join(wrong)}"] if wrong else [], "consistent")


def _claims_its_persons(manifest: Manifest) -> bool:
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


def _claims_its_noise(manifest: Manifest) -> bool:
    try:
        epsilon, noise = noise_claims(manifest.policy)
    except (KeyError, TypeError, ValueError):
        return False
    beta = manifest.policy["privacy"].get("confidence")
    return (manifest.epsilon, manifest.noise) == (epsilon, noise) and (
        None if manifest.confidence is None else manifest.confidence.get("beta")
    ) == beta


def _objects_check(release: OpenRelease, fresh: bool) -> Check:
    """Whether a DuckDB file has the objects of a release, with their definitions, and no others."""
    engine = release.engine
    expected, found = expected_objects(release.manifests), list_objects(engine)
    wrong = [f"{name} is missing" for name in sorted(expected - found)]
    wrong += [f"{name} is not part of the release" for name in sorted(found - expected)]
    if not fresh:
        wrong += [
            f"table {name} has constraints, defaults or collations" for name in find_unexpected_definitions(engine)
        ]
        wrong += [release.flaw] if release.flaw and not wrong else []
    return check_faults("contents", wrong, "rows and metadata only")


def _file_checks(release: OpenRelease, fresh: bool) -> list[Check]:
    """The checks of a DuckDB file whose objects are those of a release."""
    engine, newest, checks = release.engine, release.manifests[0], list[Check]()
    if release.manifest is newest:
        checks += [check_stable_view(engine, newest), check_suppression(engine, newest)]
        checks += [_kept(engine, one) for one in release.manifests[1:]]
    if fresh:
        return checks
    checks.append(_no_more_bytes(release))
    writer = (newest.sqlanon_version, newest.engine.partition(",")[0])
    same_engine = writer[1] == engine.version
    if release.manifest is newest:
        checks += check_metadata(engine, release.manifests, same_engine)
    if not same_engine or writer[0] != __version__:  # each version spells macros in its own way
        checks.append(Check("macros", None, f"written by sqlanon {' with '.join(writer)}, not by this one"))
    else:
        assert release.scratch is not None  # a release that is not fresh was opened as a file
        changed = find_changed_macros(engine, release.scratch, library_files(release.manifests))
        wrong = [f"changed: {', '.join(changed)}"] if changed else []
        checks.append(check_faults("macros", wrong, "unchanged"))
    return checks


def _no_more_bytes(release: OpenRelease) -> Check:
    strange = [] if release.file is None else list(find_stray_bytes(release.file))
    if free := count_free_blocks(release.engine):
        strange.append(f"{free} blocks are not in use: they may hold deleted rows")
    return check_faults("file", strange, f"all blocks are in use; {UNREAD_BYTES}")


def _kept(engine: DuckDBEngine, manifest: Manifest) -> Check:
    name, rows = f"version {manifest.version}", f"version_{manifest.version}"
    relation = table(manifest.rows_table, "main", ATTACHED)
    columns = _columns(manifest.columns, list(engine.columns(relation).items()))
    for check in (columns, _check_consistency(manifest)):
        if not check.passed:
            return Check(name, False, check.message)
    engine.execute(create_temporary_view(table(rows), star(relation)))
    smallest, classes, count, _ = engine.rows(call_k_anonymity(rows, manifest.quasi_identifiers))[0]
    found = (engine.rows(call_digest(rows))[0][1], count, classes, smallest or 0)
    claimed = (manifest.digest, manifest.released_rows, manifest.classes, manifest.fewest_rows)
    return _equal(name, ", ".join(map(str, claimed)), ", ".join(map(str, found)))


def _columns(claimed: Sequence[ReleasedColumn], found: list[tuple[str, str]]) -> Check:
    expected = [(column.name, column.type) for column in claimed]
    if expected == found:
        return Check("columns", True, f"{len(found)} columns, as claimed")
    return Check("columns", False, f"claimed {json.dumps(expected)}, found {json.dumps(found)}")


def _equal(name: str, claimed: Any, found: Any) -> Check:
    said, seen = (f"{one:,}" if isinstance(one, int) else str(one) for one in (claimed, found))
    message = f"{seen}, as claimed" if claimed == found else f"claimed {said}, found {seen}"
    return Check(name, claimed == found, message)
