"""Verify a release of linked tables against its source: recoded in the same way, the source must give the same persons.

Keys are new in every release, so rows are compared without them: a person is the text of all released values of the
own row, with the sorted texts of the rows that belong to it, and so on. The same texts as often mean the same tables,
up to the numbers that link them.

Creates in the work schema of each table ``recoded``, the rows that the source gives, ``recoded_texts`` and
``released_texts`` (``row_key``, ``whole_row``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from math import sqrt
from operator import attrgetter
from pathlib import Path
from typing import Any

from sqlanon.errors import InfeasibleError, ReleaseError
from sqlanon.linked.anonymize import anonymize_linked
from sqlanon.linked.check.kept_rows import KeptRows
from sqlanon.linked.publish.earlier import find_earlier_release
from sqlanon.linked.publish.recode import LinkedRecoding, surrogate_table
from sqlanon.linked.publish.targets.base import (
    LinkedLocation,
    OpenTables,
    find_location,
    translate_read_errors,
    verify_open,
)
from sqlanon.linked.records import LinkedRecords, encode_tables
from sqlanon.linked.release.manifest import LinkedManifest, TableClaims
from sqlanon.linked.release.released_numbers import released_table
from sqlanon.linked.release.row_texts import describe_whole_rows
from sqlanon.linked.release.verification import LinkedVerification
from sqlanon.linked.release.views import text_tables
from sqlanon.linked.search import LinkedTask
from sqlanon.linked.tables import LinkedTable
from sqlanon.policy.linked import LinkedPolicy
from sqlanon.policy.linked_sections import LinkedReleaseSection
from sqlanon.policy.strategies import STRATEGIES
from sqlanon.sources.workspace import Workspace
from sqlanon.support.checks import SOURCE_PREFIX, Check, source_check
from sqlanon.support.expressions import col, drop_table, template

_MIN_ROWS = 10
"""The fewest rows, beyond those expected by chance, whose keys are compared with the source's: few agree by chance."""

_DEVIATIONS = 5
"""Standard deviations by which more rows agree with the source than by chance, if their keys reveal persons."""

_TEXTS = template("SELECT row_key, whole_row FROM :rows AS rows")

_COMPARED_TEXTS = template("""
    WITH released AS (SELECT whole_row, count(*) AS persons FROM :released AS r GROUP BY whole_row),
    recoded AS (SELECT whole_row, count(*) AS persons FROM :recoded AS r GROUP BY whole_row)
    SELECT
        coalesce(sum(greatest(coalesce(a.persons, 0) - coalesce(b.persons, 0), 0)), 0) AS added,
        coalesce(sum(greatest(coalesce(b.persons, 0) - coalesce(a.persons, 0), 0)), 0) AS missing
    FROM released AS a
    FULL JOIN recoded AS b ON a.whole_row = b.whole_row
""")

# With n rows whose keys are drawn at random, c of them with the same text: the mean number of rows that agree with the
# source, and its variance.
_CHANCE = template("""
    WITH
        counted AS (SELECT count(*)::DOUBLE AS c FROM :released AS r GROUP BY whole_row),
        sums AS (SELECT sum(c) AS row_count, sum(c * c) AS squares, sum(c * c * c) AS cubes FROM counted)
    SELECT
        squares / row_count AS expected,
        (squares - 2 * cubes / row_count + squares * squares / (row_count * row_count))
            / greatest(row_count - 1, 1) AS variance,
        row_count
    FROM sums
""")

_SOURCE_KEYS = template("""
    WITH source_keys AS (
        SELECT
            numbers.key_0::VARCHAR AS source_key,
            (row_number() OVER (ORDER BY numbers.row))::VARCHAR AS source_rank,
            (row_number() OVER (ORDER BY numbers.row DESC))::VARCHAR AS reversed_rank,
            texts.whole_row
        FROM :recoded AS texts
        JOIN :surrogates AS surrogates ON texts.row_key = surrogates.surrogate
        JOIN :numbers AS numbers ON surrogates.row = numbers.row
    )
    SELECT count(*) AS row_count
    FROM :released AS r
    JOIN source_keys AS s ON r.whole_row = s.whole_row AND r.row_key::VARCHAR = :key
""")


def verify_named(workspace: Workspace, policy: LinkedPolicy, release: Any, schema: str | None) -> LinkedVerification:
    """Verify a release that a caller names by a path or an address, then against its policy and its source."""
    location = find_location(release, schema)
    if location is None:
        raise ReleaseError(f"{release} is not a release of several tables, and the policy has several")
    return verify_with_source(workspace, policy, location)


def verify_with_source(workspace: Workspace, policy: LinkedPolicy, location: LinkedLocation) -> LinkedVerification:
    """Verify a release by itself, then against its policy and its source."""
    with location.open(workspace.limits) as tables:
        verification = verify_open(location.path, tables)
        checks = [*verification.checks, *_check_policy(policy, location.path, tables.manifest)]
        if all(check.passed is not False for check in checks):
            with translate_read_errors(location.path):
                checks += _check_source(workspace, policy, tables)
        return replace(verification, checks=tuple(checks))


def _check_policy(policy: LinkedPolicy, path: Path, manifest: LinkedManifest) -> Iterator[Check]:
    """Check that a release was made by a policy, wherever it was published, and that its manifest shows it."""
    base, keys = LinkedReleaseSection(after=policy.release.after if policy.release else None), ("database", "folder")
    sections = [policy.release, None, *(base.model_copy(update={key: path.absolute()}) for key in keys)]
    candidates = [policy.model_copy(update={"release": section}) for section in sections]
    is_made = any(candidate.fingerprint() == manifest.policy_hash for candidate in candidates)
    yield source_check("policy", is_made, "the release was made by this policy")
    is_shown = json.loads(json.dumps(policy.redact())) == json.loads(json.dumps(manifest.policy))
    is_required = (manifest.k, manifest.known) == (policy.privacy.k, policy.privacy.known)
    yield source_check("manifest", is_shown and is_required, "the manifest shows this policy")


def _check_source(workspace: Workspace, policy: LinkedPolicy, tables: OpenTables) -> Iterator[Check]:
    if policy.shift is not None:
        reason = "the dates of each person were moved by a random number of days, which nothing records"
        yield Check(f"{SOURCE_PREFIX}recoded source", None, f"not compared: {reason}")
        return
    try:
        if STRATEGIES[policy.search.strategy].traits.is_local:
            result = anonymize_linked(workspace, policy, lambda *_: None)
            yield _check_source_rows(result.records, tables.manifest)
            yield from _check_recoded_source(result.find_recoding(), result.suppressed_persons, tables)
        else:
            records = encode_tables(workspace, policy)
            yield _check_source_rows(records, tables.manifest)
            records, earlier = find_earlier_release(records)
            yield from _check_generalization(records, None if earlier is None else earlier.kept_rows, tables)
    except ReleaseError as error:  # of the earlier release
        yield Check(f"{SOURCE_PREFIX}recoded source", None, f"not compared: {error}")
    except InfeasibleError as error:
        yield source_check("requirements", False, "", str(error))


def _check_source_rows(records: LinkedRecords, manifest: LinkedManifest) -> Check:
    claim = f"the source has {', '.join(f'{table.rows:,} rows in {table.name}' for table in records.tables)}"
    claimed = ", ".join(f"{claims.rows:,} in {claims.name}" for claims in manifest.tables)
    is_same = [table.rows for table in records.tables] == [claims.rows for claims in manifest.tables]
    return source_check("source rows", is_same, claim, f"{claim}; the release claims {claimed}")


def _check_generalization(records: LinkedRecords, earlier_rows: KeptRows | None, tables: OpenTables) -> Iterator[Check]:
    """Suppress persons and rows at the levels of the manifest as the search does, and compare."""
    levels = tuple(level or 0 for level in tables.manifest.levels.values())
    is_permitted = list(tables.manifest.levels) == list(records.names) and records.lattice.permits(levels)
    yield source_check("generalization", is_permitted, "in the policy's lattice", "not in the policy's lattice")
    if not is_permitted:
        return
    task = LinkedTask(records, lambda *_: None, earlier_rows=earlier_rows)
    peeling_result = task.peeling.suppress_rows_and_persons(levels, task.allowed_persons, task.allowed_rows)
    suppressed, allowed = peeling_result.suppressed_persons, task.allowed_persons
    if not peeling_result.is_complete or suppressed > allowed:
        message = f"more than the allowed {allowed:,} persons have to be suppressed at this generalization"
        yield source_check("requirements", False, message, message)
        return
    message = f"met at this generalization; {suppressed:,} persons suppressed (allowed: {allowed:,})"
    yield source_check("requirements", True, message)
    yield from _check_recoded_source(LinkedRecoding(task.peeling.snapshot.kept_rows, levels), suppressed, tables)


def _check_recoded_source(recoding: LinkedRecoding, suppressed: int, tables: OpenTables) -> Iterator[Check]:
    records, manifest = recoding.records, tables.manifest
    released = records.persons - suppressed
    claim = f"{released:,} of {records.persons:,} persons are released"
    is_same = (manifest.persons, manifest.released_persons) == (records.persons, released)
    yield source_check("persons", is_same, claim, f"{claim}, not {manifest.released_persons:,}")
    recoding.create_surrogates()
    for table in records.tables:
        recoding.write_rows(table, table.run.work("recoded"))
    compared = [(claims, records.table(claims.name)) for claims in manifest.tables if claims.key]
    for claims, table in compared:
        _store_texts(records, tables, claims, table)
    work = records.work
    query = _COMPARED_TEXTS(released=work("released_texts"), recoded=work("recoded_texts"))
    added, missing = records.engine.rows(query)[0]
    failure = f"persons that the source does not give: {added:,}; persons missing in the release: {missing:,}"
    is_same = not (added or missing)
    yield source_check("recoded source", is_same, "gives the persons of the release with all their rows", failure)
    faults = [fault for claims, table in compared for fault in _find_source_keys(records, table)]
    yield source_check("keys", not faults, "unrelated to those of the source", "; ".join(faults))


def _store_texts(records: LinkedRecords, tables: OpenTables, claims: TableClaims, table: LinkedTable) -> None:
    """Store the texts of the rows of a table, in the release and in the recoded source.

    Each is made where its rows are, so that values keep their types.
    """
    manifest, runner, work = tables.manifest, records.runner, table.run.work
    position = manifest.tables.index(claims)
    columns_of = attrgetter("value_columns")
    recoded = text_tables(manifest, lambda claimed: records.table(claimed.name).run.work("recoded"), columns_of)
    runner.create_table(work("recoded_texts"), _TEXTS(rows=describe_whole_rows(recoded, position)))
    released = text_tables(manifest, lambda claimed: released_table(manifest, claimed), columns_of)
    runner.engine.execute(drop_table(work("released_texts"), exists=True))
    with tables.engine.stream(_TEXTS(rows=describe_whole_rows(released, position))) as reader:
        runner.engine.copy_arrow(work("released_texts"), reader)


def _find_source_keys(records: LinkedRecords, table: LinkedTable) -> Iterator[str]:
    """Compare the keys of a table with those of the source, and with their order.

    Rows with the same text cannot be distinguished, so that some keys agree by chance: of c rows with a text, c²/n on
    average.
    """
    work = table.run.work
    released, engine = work("released_texts"), records.engine
    expected, variance, row_count = engine.rows(_CHANCE(released=released))[0]
    if row_count is None or row_count - expected < _MIN_ROWS:
        return
    max_same_keys = expected + max((row_count - expected) / 2, _DEVIATIONS * sqrt(max(variance, 0)))
    relations = {
        "recoded": work("recoded_texts"),
        "surrogates": surrogate_table(table),
        "numbers": table.numbers,
        "released": released,
    }
    same_keys, *same_ranks = (
        engine.rows(_SOURCE_KEYS(**relations, key=col(name, "s")))[0][0]
        for name in ("source_key", "source_rank", "reversed_rank")
    )
    if same_keys > max_same_keys:
        yield f"{same_keys:,} rows of {table.name!r} have the keys of the source"
    elif max(same_ranks) > max_same_keys:
        yield f"{max(same_ranks):,} keys of {table.name!r} are in the order of the source, or in reverse"
