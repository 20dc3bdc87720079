"""Checking a release against its source: the same generalization, applied again, must give the same rows."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

from sqlanon.anonymization import allowed_rows, checker, choose, measure_of, rules_of
from sqlanon.preparation import Prepared
from sqlanon.queries.macros import digest_of
from sqlanon.queries.names import create_temporary_view
from sqlanon.queries.recode import recode
from sqlanon.release.check import Check
from sqlanon.release.manifest import DIGEST, DIGESTS
from sqlanon.release.verify import Verification
from sqlanon.resources import sql_text
from sqlanon.source_audit import SourceAudit
from sqlanon.workspace import Run


def check_against_source(run: Run, prepared: Prepared, found: Verification) -> list[Check]:
    """Recode the source by the manifest's generalization, and compare; then check every requirement on the result.

    Makes ``suppressed`` in the run's work schema, and the temporary view ``recoded``.
    """
    engine, work, recoded = run.engine, run.work, run.place.view("recoded")
    macros = run.install_macros()
    policy, manifest = prepared.policy, found.manifest
    checks = [
        _check("policy", manifest.policy_hash == policy.fingerprint(), "the release was made by this policy"),
        _check("manifest", _as_json(manifest.policy) == _as_json(policy.redacted()), "the manifest shows this policy"),
        _check(
            "source rows",
            manifest.rows == prepared.marginals.rows,
            f"the source has {prepared.marginals.rows}",
        ),
    ]
    levels = tuple(manifest.generalization.get(name, -1) for name in policy.quasi)
    fits = set(manifest.generalization) == set(policy.quasi) and all(
        0 <= level <= height for level, height in zip(levels, prepared.marginals.heights, strict=True)
    )
    checks.append(_check("generalization", fits, "it is one of the policy's lattice"))
    if not fits:
        return checks
    measure = measure_of(prepared)
    figures = checker(engine, prepared, measure)(levels)
    allowed = allowed_rows(prepared)
    message = f"{figures.suppressed_rows} rows have to be suppressed, {allowed} may be"
    suppressed = f"{figures.suppressed_rows} rows are suppressed"
    checks.append(_check("suppressed rows", figures.suppressed_rows == manifest.suppressed_rows, suppressed))
    verdict = rules_of(prepared).judge(figures, allowed)
    checks.append(_check("requirements", verdict.satisfies, "the generalization satisfies the policy"))
    score = measure.shown(measure.score(levels, figures))
    right = math.isclose(score, manifest.score, rel_tol=1e-9, abs_tol=1e-12)
    checks.append(_check("score", right, f"the {policy.search.measure} is {score:.6g}"))
    checks.append(_check("suppression limit", figures.suppressed_rows <= allowed, message))
    chosen = choose(engine, prepared, levels, figures, work)
    engine.execute(create_temporary_view(recoded, recode(chosen.recoding, shuffled=False)))
    if manifest.digest_algorithm != DIGEST:
        with engine.using(macros):
            engine.script(sql_text("macros_older.sql"))
    macro = DIGESTS.get(manifest.digest_algorithm, DIGESTS[DIGEST])
    _, digest = engine.rows(digest_of(recoded.sql(engine.dialect), macros, macro))[0]
    checks.append(_check("recoded source", digest == found.digest, "it has the rows of the release"))
    audit = SourceAudit(engine, work, macros, prepared, chosen.recoding, run.population)
    audited = audit.checks(recoded.sql(engine.dialect))
    return checks + [replace(check, name=f"against the source: {check.name}") for check in audited]


def _as_json(tree: Any) -> Any:
    return json.loads(json.dumps(tree))


def _check(name: str, passed: bool, claim: str) -> Check:
    return Check(f"against the source: {name}", passed, claim if passed else f"not so: {claim}")
