"""The commands for several tables about the same persons."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sqlanon.cli.printing import format_count, print_json
from sqlanon.errors import PolicyError, Problem
from sqlanon.places.addresses import format_location
from sqlanon.support.notices import count_noun
from sqlanon.support.terminal import format_percent, print_lines, print_sql, print_table

if TYPE_CHECKING:
    from sqlanon.engines.limits import Limits
    from sqlanon.linked.anonymize import LinkedResult
    from sqlanon.linked.attacks.attack import LinkedAttack
    from sqlanon.linked.attacks.risk import LinkedRisk
    from sqlanon.linked.publish.stage import LinkedRelease
    from sqlanon.linked.publish.targets.base import LinkedLocation
    from sqlanon.linked.release.verification import LinkedVerification
    from sqlanon.policy.linked import LinkedPolicy


def run_anonymize(
    policy: LinkedPolicy,
    options: Mapping[str, object],
    *,
    dry_run: bool,
    as_json: bool,
    limits: Limits,
) -> None:
    """Anonymize several tables, and publish them; ``options`` are those that are for one table only."""
    from sqlanon.cli.progress import show_progress
    from sqlanon.database import connect
    from sqlanon.publish.stage import NOT_COMPARED

    started = time.perf_counter()
    refuse_single_table_options("the policy", options)
    if not dry_run and (policy.release is None or not policy.release.has_location):
        message = 'say where the release goes: database = "release.duckdb"; or give --output FILE or FOLDER'
        raise PolicyError([Problem("release", message)])
    release = None
    with connect(memory_limit=limits.memory_limit, threads=limits.threads) as db:
        with show_progress(time_limit=policy.search.time_limit) as progress:
            result = db.anonymize(policy.without_location() if dry_run else policy, progress)
            if not dry_run:
                progress("write", 0, result.checked, result.score)
                release = result.publish()
        for warning in () if release is None else [NOT_COMPARED] if policy.catalog is None else release.warnings:
            print_lines(f"warning: {warning}", err=True)
        seconds = result.seconds | {"total": time.perf_counter() - started}
        if as_json:
            figures = {"dry_run": True} if release is None else release.to_dict()
            print_json(result.to_dict() | figures | {"seconds": seconds})
            return
        _print_result(result, release)


def _print_result(result: LinkedResult, release: LinkedRelease | None) -> None:
    from sqlanon.linked.release.sentences import describe_known

    figures, released_persons = result.to_dict(), result.persons - result.suppressed_persons
    share = f" ({format_percent(result.suppressed_persons, result.persons)})" if result.suppressed_persons else ""
    suppressed = f"{result.suppressed_persons:,} suppressed{share}"
    print_lines(f"{released_persons:,} of {count_noun(result.persons, 'person')} released, {suppressed}")
    if release is not None:
        group = count_noun(release.manifest.smallest_group, "person")
        print_lines(f"smallest group of an attacker who knows {describe_known(result.policy.privacy.known)}: {group}")
    if "classes" in figures:
        print_lines(f"loss {result.score:.6g}: no proven optimum")
        print_lines(f"{count_noun(figures['classes'], 'class')} of persons, each with its own levels")
    else:
        full_domain = "optimal among full-domain generalizations"
        proof = full_domain if result.optimal else f"not proven optimal: at least {result.bound:.6g}"
        print_lines(f"loss {result.score:.6g}: {proof}")
        print_lines(f"checked {result.checked:,} of {result.records.lattice.size:,} generalizations")
    print_lines("")
    rows = []
    for name, table in figures["tables"].items():
        generalization = table["generalization"].items()
        levels = ", ".join(f"{attribute} {'mixed' if level is None else level}" for attribute, level in generalization)
        counts = (f"{table['released_rows']:,}", f"{table['suppressed_rows']:,}")
        rows.append((name, *counts, f"{table['loss']:.3f}", levels))
    print_table(["table", "released", "suppressed", "loss", "levels"], rows)
    print_lines("")
    if release is None:
        print_lines("dry run: not published")
    else:
        print_lines(f"release: {format_location(release.path)}")


def print_linked_verification(verification: LinkedVerification) -> None:
    """Print the checks of a release of several tables."""
    results = {True: "ok", False: "FAILED", None: "not checked"}
    rows = [(results[check.passed], check.name, check.message) for check in verification.checks]
    print_table(["result", "check", "finding"], rows)
    print_lines("verified" if verification.verified else "NOT verified")


def run_attack(location: LinkedLocation, policy: Path | None, *, with_sql: bool, as_json: bool, limits: Limits) -> None:
    """Attack a release of several tables, and print what the attacker finds."""
    from sqlanon.cli.options import load_any_policy
    from sqlanon.cli.progress import show_progress
    from sqlanon.linked.attacks.attack import attack_linked
    from sqlanon.linked.release.sentences import describe_known
    from sqlanon.policy.linked import LinkedPolicy

    loaded = None if policy is None else load_any_policy(policy)
    if loaded is not None and not isinstance(loaded, LinkedPolicy):
        message = "is a policy of one table, but the release has several: give the policy of the release"
        raise PolicyError([Problem("--policy", message)], "the command")
    with show_progress("attacking the release"):
        attack = attack_linked(location, loaded, limits)
    if as_json:
        print_json(attack.to_dict())
        return
    _print_attack(attack)
    if with_sql and not location.path.exists():
        print_lines("The statements for the victims are for a release in a file or a folder.")
    elif with_sql:
        for finding in attack.attacks["known_rows"].findings:
            attacker = f"an attacker who knows {describe_known(finding.figures['known'])}"
            print_sql(f"\n-- {attacker}: the victims\n{finding.sql}")


def _print_attack(attack: LinkedAttack) -> None:
    from sqlanon.linked.release.sentences import describe_known

    owner = "release" if attack.before is None else "source"
    sample = f"a sample of {attack.after[0].persons:,} of " if attack.is_sample else ""
    print_lines(f"attacked: {sample}{count_noun(attack.persons, 'person')} of the {owner}")
    rows = []
    for i, after in enumerate(attack.after):
        before = [] if attack.before is None else [format_count(attack.before[i].unique_persons, after.persons)]
        unique = format_count(after.unique_persons, after.persons)
        fewest = "" if after.fewest_matches is None else f"{after.fewest_matches:,}"
        rows.append([describe_known(after.known), *before, unique, fewest])
    headers = ["known of a person", "unique in the release", "fewest matches"]
    headers[1:1] = [] if attack.before is None else ["unique in the source"]
    print_table(headers, rows)
    manifest = attack.manifest
    print_lines(
        f"The release protects against an attacker who knows {describe_known(manifest.known)}: "
        f"{count_noun(manifest.k, 'person')} or more match"
    )


def print_linked_risk(risk: LinkedRisk, as_json: bool) -> None:
    """Print the risk of several tables."""
    from sqlanon.linked.release.sentences import describe_known

    if as_json:
        print_json(risk.to_dict())
        return
    (_, persons), *child_tables = risk.rows.items()
    counts = ", ".join(f"{count_noun(count, 'row')} in {name}" for name, count in child_tables)
    print_lines(f"{count_noun(persons, 'person')}; {counts}")
    if risk.alone.persons < risk.persons:
        print_lines(f"figures of a random sample of {count_noun(risk.alone.persons, 'person')}")
    sources = list(risk.tables.items()) + ([("all tables", risk.together)] if len(risk.tables) > 1 else [])
    attackers = [(describe_known(0), risk.alone)]
    attackers += [
        (f"{describe_known(matches.known)}, {name}", matches)
        for name, source_matches in sources
        for matches in source_matches
    ]
    k = risk.policy.privacy.k
    rows = []
    for label, matches in attackers:
        highest = format_percent(1 / matches.fewest_matches if matches.fewest_matches else 0.0, 1)
        counts_of = [
            format_count(count, matches.persons) for count in (matches.unique_persons, matches.persons_below_k)
        ]
        rows.append([label, *counts_of, highest, format_percent(matches.average_risk, 1)])
    print_table(["known of a person", "unique", f"fewer than {k} match", "highest risk", "average risk"], rows)
    below_k = format_count(risk.matches_of_policy.persons_below_k, risk.matches_of_policy.persons)
    attacker = f"an attacker who knows {describe_known(risk.policy.privacy.known)}"
    print_lines(f"persons below k = {k} for {attacker}: {below_k}")


def find_linked_release(release: str, schema: str | None) -> LinkedLocation | None:
    """The location of a release of several tables; None if it is something else. Only a server has schemas."""
    from sqlanon.linked.publish.targets.base import find_location
    from sqlanon.places.addresses import is_server

    if schema is not None and not is_server(release):
        message = f"is for a release in PostgreSQL or Spark, but {release} is neither: leave it out"
        raise PolicyError([Problem("--schema", message)], "the command")
    return find_location(release, schema)


def report_policy(policy: LinkedPolicy, output: Path, limits: Limits) -> None:
    """Write the report of the release that a policy of several tables would make; nothing is published."""
    from sqlanon.cli.progress import show_progress
    from sqlanon.database import connect
    from sqlanon.linked.report import report_result
    from sqlanon.report import check_target, refuse_without_charts

    check_target(output)
    refuse_without_charts()
    with (
        connect(memory_limit=limits.memory_limit, threads=limits.threads) as db,
        show_progress("searching", time_limit=policy.search.time_limit) as progress,
    ):
        report_result(db.anonymize(policy.without_location(), progress), output)
    print_lines(f"{output.absolute()}: the policy holds for what would be released; nothing was published")


def run_report(location: LinkedLocation, output: Path, limits: Limits) -> bool:
    """Write the report of a release of several tables; return whether the release is verified."""
    from sqlanon.cli.progress import show_progress
    from sqlanon.linked.report import report_linked

    with show_progress("verifying the release"):
        verified = report_linked(location, output, limits).verified
    print_lines(f"{output.absolute()}: {'the policy holds' if verified else 'NOT verified'}")
    return verified


def refuse_single_table_options(subject: str, options: Mapping[str, object]) -> None:
    """Refuse options for one table if the policy or the release has several."""
    if refused := [name for name, value in options.items() if value]:
        message = f"is for one table, but {subject} has several: leave it out"
        raise PolicyError([Problem(name, message) for name in refused], "the command")
