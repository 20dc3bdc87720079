"""The errors of searches without a result: how close they came, and what can help."""

from __future__ import annotations

from sqlanon.errors import InfeasibleError
from sqlanon.linked.attacks.matching import MatchingRun, source_tables
from sqlanon.linked.records import LinkedRecords
from sqlanon.linked.release.sentences import describe_known
from sqlanon.linked.search import LinkedTask


def infeasible_error(task: LinkedTask) -> InfeasibleError:
    """The error of a search without a result, with the persons whom the highest generalization suppresses."""
    records, privacy = task.records, task.records.policy.privacy
    allowed = task.allowed_persons
    suppressed = task.peeling.suppress_persons(records.lattice.top, records.persons).suppressed_persons
    attacker = f"an attacker who knows {describe_known(privacy.known)}"
    requirements = " and ".join([attacker, *(requirement.name for _, _, requirement in privacy.named_requirements)])
    figures = f"even the highest suppresses {suppressed:,} of {records.persons:,} persons ({allowed:,} are allowed)"
    helps = (
        "lower known (an attacker who knows more rows can then single out persons), or lower k (it hides persons among "
        "fewer others)"
    )
    if task.earlier_rows is not None:
        figures += "; those whom the earlier release lacks count, too"
    if suppressed < records.persons:
        helps = f"raise search.suppression_limit, {helps}"
    elif records.persons < privacy.k:
        figures = f"{figures}: no person can be released, because there are fewer than k"
    else:
        figures = f"{figures}: no person can be released{_describe_most_revealing_table(records)}"
    outcome = f"no generalization meets the policy for k = {privacy.k} and {requirements}"
    message = f"{outcome}: {figures}. What can help: {helps}"
    closest = dict(zip(records.names, records.lattice.top, strict=True))
    return InfeasibleError(message, closest, suppressed, allowed, suppressed, allowed)


def stopped_error(task: LinkedTask, stopped: str) -> InfeasibleError:
    """The error of a search that reached a limit without a result, with the closest generalization that it counted."""
    message = (
        f"the search stopped at [search] {stopped} before it found a generalization that meets the policy; with a "
        "higher limit it may find one"
    )
    persons, allowed, figures = task.records.persons, task.allowed_persons, task.lattice.figures
    complete = [levels for levels in figures if figures[levels].is_complete]
    if not complete:
        return InfeasibleError(message, None, 0, allowed, None, allowed)
    closest = min(complete, key=lambda levels: (figures[levels].suppressed_rows, levels))
    suppressed = figures[closest].suppressed_rows
    message += f". The closest so far suppresses {suppressed:,} of {persons:,} persons ({allowed:,} are allowed)"
    nearest = dict(zip(task.records.names, closest, strict=True))
    return InfeasibleError(message, nearest, suppressed, allowed, suppressed, allowed)


def _describe_most_revealing_table(records: LinkedRecords) -> str:
    """The table whose rows single out the most persons at the highest levels, if any does so by itself.

    Unknown for tables on a server, where rows are not matched.
    """
    if records.tables[0].run.source.access != "rows":
        return ""
    run, privacy = MatchingRun(records.engine, records.work), records.policy.privacy
    labels = run.describe("labelled", source_tables(records.tables, records.lattice.top))
    matches = {
        table.name: run.count_matches(labels, labels, [privacy.known], privacy.k, position)[0]
        for position, table in enumerate(records.tables)
        if not table.is_person_table
    }
    name = max(matches, key=lambda name: matches[name].persons_below_k, default=None)
    if name is None or not matches[name].persons_below_k:
        return ""
    below_k, persons = matches[name].persons_below_k, matches[name].persons
    return f" (by the rows of {name!r} alone, fewer than {privacy.k} persons match each of {below_k:,} of {persons:,})"
