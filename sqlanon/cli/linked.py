"""`sqlanon anonymize` and `sqlanon verify` for several tables."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sqlanon.cli.printing import print_json
from sqlanon.errors import PolicyError, Problem
from sqlanon.places.addresses import format_location
from sqlanon.support.notices import count_noun
from sqlanon.support.terminal import format_percent, print_lines, print_table

if TYPE_CHECKING:
    from sqlanon.engines.limits import Limits
    from sqlanon.linked.anonymize import LinkedResult
    from sqlanon.linked.release import LinkedRelease
    from sqlanon.linked.verification import LinkedVerification
    from sqlanon.policy.linked import LinkedPolicy


def anonymize_linked(
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

    started = time.perf_counter()
    if refused := [name for name, value in options.items() if value]:
        message = "is for a policy of one table, and this one has several: leave it out"
        raise PolicyError([Problem(name, message) for name in refused], "the command")
    if not dry_run and (policy.release is None or not policy.release.has_location):
        message = 'say where the release goes: database = "release.duckdb"; or give --output FILE or FOLDER'
        raise PolicyError([Problem("release", message)])
    release = None
    with connect(memory_limit=limits.memory_limit, threads=limits.threads) as db:
        with show_progress(time_limit=policy.search.time_limit) as progress:
            result = db.anonymize(policy, progress)
            if not dry_run:
                progress("write", 0, len(result.task.lattice.figures), result.score)
                release = result.publish()
        seconds = result.seconds | {"total": time.perf_counter() - started}
        if as_json:
            figures = {"dry_run": True} if release is None else release.to_dict()
            print_json(result.to_dict() | figures | {"seconds": seconds})
            return
        _print_result(result, release)


def _print_result(result: LinkedResult, release: LinkedRelease | None) -> None:
    released = result.persons - result.suppressed_persons
    share = f" ({format_percent(result.suppressed_persons, result.persons)})" if result.suppressed_persons else ""
    suppressed = f"{result.suppressed_persons:,} suppressed{share}"
    print_lines(f"{released:,} of {count_noun(result.persons, 'person')} released, {suppressed}")
    known = (
        "all child rows of a person"
        if result.policy.privacy.known == "all"
        else count_noun(int(result.policy.privacy.known), "child row")
    )
    if release is not None:
        group = count_noun(release.manifest.smallest_group, "person")
        print_lines(f"smallest group of an attacker who knows {known}: {group}")
    proof = (
        "optimal among full-domain generalizations"
        if result.optimal
        else f"not proven optimal: at least {result.bound:.6g}"
    )
    print_lines(f"loss {result.score:.6g}: {proof}")
    checked, nodes = len(result.task.lattice.figures), result.records.lattice.size
    print_lines(f"checked {checked:,} of {nodes:,} generalizations")
    print_lines("")
    rows = []
    for name, figures in result.to_dict()["tables"].items():
        levels = ", ".join(f"{attribute} {level}" for attribute, level in figures["generalization"].items())
        counts = (f"{figures['released_rows']:,}", f"{figures['suppressed_rows']:,}")
        rows.append((name, *counts, f"{figures['loss']:.3f}", levels))
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
    print_table(["result", "check", "what was found"], rows)
    print_lines("verified" if verification.verified else "NOT verified")


def refuse_linked_options(release: str, options: Mapping[str, object]) -> None:
    """Refuse options of `sqlanon verify` that are for releases of one table."""
    if refused := [name for name, value in options.items() if value]:
        message = f"is for releases of one table, and {release} has several: leave it out"
        raise PolicyError([Problem(name, message) for name in refused], "the command")
