"""What the command line prints: tables for people, JSON for programs."""

from __future__ import annotations

import json
import math
import shlex
from typing import TYPE_CHECKING, Any

from sqlanon.errors import ReleaseError
from sqlanon.support.notices import count_noun
from sqlanon.support.terminal import (
    format_figure,
    format_percent,
    is_unicode_output,
    make_printable,
    print_bars,
    print_lines,
    print_sql,
    print_table,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from sqlanon.attacks import Attacks, Finding
    from sqlanon.decoys import Decoys
    from sqlanon.disclosure.dependencies import Narrowing
    from sqlanon.disclosure.residual_risk import ResidualRisk
    from sqlanon.live import LiveView
    from sqlanon.policy import Policy
    from sqlanon.release.published import Release
    from sqlanon.release.source_change import SourceChange
    from sqlanon.release.targets.base import Verification
    from sqlanon.release.targets.postgres.reader import PostgresRelease
    from sqlanon.release.targets.spark.reader import SparkRelease
    from sqlanon.result import Result
    from sqlanon.risk import Leakage, LeakageSearch, RequirementRisk, Risk, UniquesMatrix, ValueLeakage
    from sqlanon.risk.suda import Suda
    from sqlanon.withdrawal import Withdrawal


DRAFT = "draft: not compared with other releases; do not share it"


def print_result(
    result: Result, release: Release | PostgresRelease | SparkRelease, seconds: float
) -> ResidualRisk | None:
    """Print what was released; gives back the worst that it still shows."""
    manifest = release.manifest
    print_lines(f"{result.released_rows:,} of {result.rows:,} rows released, {_suppressed(result)}")
    _print_persons(result, "released")
    _print_search(result, manifest.classes, manifest.fewest_rows, seconds)
    if result.noise is not None:
        print_noise_of(result)
    if result.decoys is not None:
        print_lines(decoys_in_words(result.decoys))
    print_lines("")
    _show_attributes(result, "what was done")
    print_lines("")
    worst = None
    try:
        sizes, worst = release.class_sizes_and_risk()
        print_class_sizes(sizes.sizes.items())
    except ReleaseError as error:  # it is published all the same
        print_lines(f"class sizes: not available: {error}")
    print_lines("")
    print_lines(f"release: {release.path}, table {release.table}")
    if release.sha256 is not None:
        print_lines(f"sha256: {release.sha256}")
    if manifest.draft:
        print_lines(DRAFT)
    return worst


def print_residual_risk(worst: ResidualRisk | None, price: str | None = None) -> None:
    """Print the worst of what a release still shows, what prevents it, and what that costs; else nothing."""
    if worst is not None:
        print_lines(make_printable(worst.line))
        if price is not None:
            print_lines(price)
        print_lines(worst.advice)


def print_trial(result: Result, seconds: float) -> None:
    _print_unpublished(result, seconds)
    print_lines("dry run: not published, not recorded, not compared with earlier releases")


def print_export(result: Result, folder: Path, draft: bool, seconds: float) -> None:
    _print_unpublished(result, seconds)
    print_lines(f"written to {make_printable(str(folder))}")
    print_lines("In the warehouse: upload the Parquet files, run release.sql, then audit.sql")
    if draft:
        print_lines(DRAFT)


def _suppressed(result: Result) -> str:
    share = f" ({format_percent(result.suppressed_rows, result.rows)})" if result.suppressed_rows else ""
    return f"{result.suppressed_rows:,} suppressed{share}"


def _print_persons(result: Result, released: str) -> None:
    """The persons, where persons are counted: all rows of a released person are in the release."""
    if result.persons is None or result.suppressed_persons is None:
        return
    share = f" ({format_percent(result.suppressed_persons, result.persons)})" if result.suppressed_persons else ""
    line = f"{result.released_persons:,} of {result.persons:,} persons {released} with all their rows, "
    line += f"{result.suppressed_persons:,} with suppressed rows{share}"
    if result.partly_released_persons:
        line += f", of whom {result.partly_released_persons:,} have other rows in the release"
    print_lines(line)


def _print_unpublished(result: Result, seconds: float) -> None:
    print_lines(f"{result.released_rows:,} of {result.rows:,} rows to be released, {_suppressed(result)}")
    _print_persons(result, "to be released")
    _print_search(result, result.classes, result.smallest_class_rows, seconds)
    print_lines("")
    _show_attributes(result, "what is done")
    print_lines("")


_SUMMARIES = {
    "range": "A range stands for all values in it.",
    "set": "A range or a set stands for all values in it.",
    "median": "A number is the median of its group.",
}


def _show_attributes(result: Result, heading: str) -> None:
    """What is done to each quasi-identifier, and its loss; what labels mean is in the metadata of the release."""
    from sqlanon.result import SEVERAL_LEVELS

    done = dict(result.done)
    for name in result.fully_suppressed:
        done[name] = "fully suppressed" if done[name] == SEVERAL_LEVELS else done[name]
    rows = [(name, _loss(result.losses.get(name)), words) for name, words in done.items()]
    print_table(["quasi-identifier", "loss", heading], rows)
    if SEVERAL_LEVELS in done.values():
        print_lines("Each group of rows is generalized only as far as it needs.")
        if result.policy.search.traits.summarizes:
            print_lines(_SUMMARIES[result.policy.search.summary])
    if result.suppressed_rows:
        print_lines("A suppressed row counts as a loss of 1 in each column.")


def _loss(loss: float | None) -> str:
    """A loss from 0 to 1; nothing where there is none, as with noise.

    >>> _loss(0.0), _loss(1.0), _loss(0.02394), _loss(0.0001), _loss(None)
    ('0', '1', '0.024', '<0.001', '')
    """
    if loss is None:
        return ""
    return f"{loss:g}" if loss in (0, 1) else f"{loss:.3f}" if loss >= 0.0005 else "<0.001"


def _show_levels(done: Sequence[tuple[str, str]]) -> None:
    print_table(["quasi-identifier", "what is done"], [(name, words.partition("; ")[0]) for name, words in done])


def _print_search(result: Result, classes: int, smallest: int, seconds: float) -> None:
    fewest = count_noun(smallest, "row")
    if result.persons is not None:
        fewest = f"{count_noun(result.smallest_class, 'person')} ({fewest} or more)"
    print_lines(f"{count_noun(classes, 'class')}; the smallest has {fewest}")
    print_lines(f"{result.measure} {format_figure(result.score)}: {result.proof}")
    checked = f"checked {result.checked:,} of {result.nodes:,} generalizations"
    if result.policy.search.is_local:
        checked = count_noun(result.checked, "round") + (
            " of splits" if result.policy.search.traits.splits_classes else ""
        )
    print_lines(f"{checked} in {seconds:.2f} s")


def print_live(view: LiveView, policy: Policy) -> None:
    from sqlanon.release.sentences import level_in_words

    visible, limit = (
        view.rows - view.suppressed_rows,
        "" if view.limit_rows is None else f" (limit {view.limit_rows:,})",
    )
    print_lines(f"{visible:,} of {view.rows:,} rows shown now, {view.suppressed_rows:,} suppressed{limit}")
    if view.suppressed_persons is not None:
        lost = f"{view.suppressed_persons:,} of {view.persons:,} persons"
        print_lines(f"{lost} with suppressed rows now (limit {view.limit_persons:,})")
    print_lines(
        f"{view.measure} {format_figure(view.score)}"
        f"{': optimal among full-domain generalizations' if view.optimal else ''}"
    )
    print_lines("")
    done = []
    for name, level in view.generalization.items():
        rules = [rule.redact() for rule in policy.attributes[name].hierarchy or ()]
        done.append((name, level_in_words(rules, level, view.heights[name])))
    _show_levels(done)
    print_lines("")
    kind = "secure" if view.secure else "not secure: this file or this DuckDB does not support secure views"
    name, place = make_printable(view.view), make_printable(str(policy.source.database))  # on one line each
    print_lines(f"{'replaced' if view.replaced else 'created'}: view {name} ({kind}) in {place}")
    print_lines("rows that it suppresses later: FROM sqlanon.live_views")


def print_class_sizes(sizes: Iterable[tuple[int, int]], unit: str = "rows") -> None:
    from sqlanon.disclosure.class_sizes import doubling_histogram

    bars = doubling_histogram(dict(sizes))
    while bars and not next(iter(bars.values())):  # no class is as small
        bars.pop(next(iter(bars)))
    if bars:
        print_bars((f"{unit} in a class", "classes"), bars)


_OPEN = {"not verifiable alone": "needs the source", "not guaranteed": "not guaranteed"}
"""Why a check is neither passed nor failed, as its message begins: and as the table of checks says it."""


def print_verification(found: Verification, policy: Path | None) -> None:
    words = {True: "ok", False: "FAILED", None: "not checked"}
    rows = []
    for check in found.checks:
        word, message = words[check.passed], check.message
        reason, _, rest = message.partition(": ")
        if check.passed is None and rest and reason in _OPEN:
            word, message = _OPEN[reason], rest
        rows.append((word, check.name, message))
    print_table(["result", "check", "what was found"], rows)
    print_lines(_verdict(found, policy is None))
    if found.verified and found.claims:
        how = ". To check: add --sha256 HEX" if found.is_file else ""
        print_lines(f"Claims that nothing but the manifest says: {', '.join(found.claims)}{how}")
    if (change := found.source_change) is not None:
        print_lines(f"What holds: {change.what_holds}")
        print_lines(f"What to do: {change.remedy('POLICY.toml' if policy is None else shlex.quote(str(policy)))}")
    print_residual_risk(found.residual_risk)


def print_lost_rows(change: SourceChange, policy: Path) -> None:
    """What the release still shows of rows and persons who have left the source."""
    if not change.losses:
        return
    print_lines(f"since then: {change.losses}; the release still shows them as they were")
    print_lines(f"What to do: {change.remedy(shlex.quote(str(policy)))}")


def print_withdrawal(found: Withdrawal, published: Release | PostgresRelease | SparkRelease | None) -> None:
    """What leaves a release, what stays in it, and what readers of both versions learn."""
    from sqlanon.places.addresses import format_location

    change, result = found.source_change, found.result
    if result is None:
        print_lines(
            f"nothing to withdraw from {format_location(found.path)}: {change.differences if change else 'no change'}"
        )
        print_lines("the release is unchanged")
        return
    print_lines(f"since the release: {change.losses or change.differences}")
    now = "now" if published is not None else "would be now"
    print_lines(
        f"released before: {count_noun(found.released_before, 'row')}; {now}: {count_noun(result.released_rows, 'row')}"
    )
    if result.suppressed_rows:
        why = "in classes that are too small without them" if found.only_released_rows else "as before"
        print_lines(f"suppressed: {count_noun(result.suppressed_rows, 'row')}, {why}")
    if not found.only_released_rows:
        print_lines("the new version has all rows of the source, also those that are new since")
    print_lines("generalization: " + ("as before" if found.same_generalization else "another one than before:"))
    if not found.same_generalization:
        _show_attributes(result, "what is done")
    noun = "row" if result.persons is None else "person"
    print_lines(f"{count_noun(result.classes, 'class')}; the smallest has {count_noun(result.smallest_class, noun)}")
    if found.revealed is not None:
        print_lines(f"What this reveals: {found.revealed}")
    if published is not None:
        print_lines(f"release: {published.path}, table {published.table}")
        if published.sha256 is not None:
            print_lines(f"sha256: {published.sha256}")


def _verdict(found: Verification, alone: bool) -> str:
    """What was verified and, of a release that was checked alone, what needs its source."""
    from sqlanon.audit.check import SOURCE_PREFIX
    from sqlanon.policy import PrivacySection
    from sqlanon.policy.problems import read_part
    from sqlanon.requirements import list_requirements

    if (change := found.source_change) is not None:
        return f"NOT verified against the source, which has changed since: {change.differences}"
    if not found.verified:
        return f"NOT verified: {', '.join(check.name for check in found.checks if check.passed is False)}"
    passed = [check.name.removeprefix(SOURCE_PREFIX) for check in found.checks if check.passed]
    open_ = [check.name for check in found.checks if check.passed is None and check.name not in passed]
    section, _ = read_part(PrivacySection, found.manifest.policy["privacy"], "privacy", {})
    promised = [] if section is None else [one.name for one in list_requirements(section)]
    held = [name for name in promised if name in passed]
    others = len(passed) - len([name for name in passed if name in held])
    said = ", ".join(held) + (" and " if held else "") + f"{others:,} {'other checks' if held else 'checks'}"
    draft = " (a draft, not for sharing)" if found.manifest.draft else ""
    needs = [name for name in open_ if name in promised]
    if not alone:
        return f"Verified{draft}: {said}" + (f"; not verifiable: {', '.join(needs)}" if needs else "")
    needs = [*needs, "whether the rows come from it"]
    return f"Verified{draft}: {said}\nNeeds the source: {', '.join(needs)}. To check: add --policy POLICY.toml"


def print_requirements(requirements: Sequence[RequirementRisk]) -> None:
    print_lines("")

    def format_figure(one: RequirementRisk) -> str:
        if one.limit is not None:
            return "no estimate" if one.figure is None else f"{one.figure:.4g}"
        return f"{one.population_classes:,} population classes without rows" if one.population_classes else ""

    headers = ["requirement", "holds", "classes that fail", "their rows"]
    headers += ["figure"] if any(map(format_figure, requirements)) else []
    rows = []
    for one in requirements:
        counts = ["" if n is None else f"{n:,}" for n in (one.classes, one.rows)]
        rows.append([one.requirement, "yes" if one.holds else "no", *counts, format_figure(one)][: len(headers)])
    print_table(headers, rows)


def print_suda(found: Suda) -> None:
    print_lines("")
    alone = format_percent(found.rows_with_msus, found.rows)
    print_lines(
        f"SUDA: {count_noun(found.rows_with_msus, 'row')} ({alone}) unique on {found.size} or fewer quasi-identifiers,"
    )
    print_lines(f"by {count_noun(found.msus, 'minimal sample unique')}")
    if not found.msus:
        return
    sizes = [(str(size), f"{rows:,}") for size, rows in found.rows_by_smallest.items()]
    print_table(["quasi-identifiers needed", "rows"], sizes)
    score, ihsn = found.scores, found.ihsn_scores
    print_lines(f"SUDA score: highest {score.highest:.4g} (IHSN: {ihsn.highest:.4g}), mean {score.average:.4g}")
    by = {"call": "as given", "policy": "of the policy", "default": "the default"}
    print_lines(f"DIS-SUDA score: highest {score.highest_dis:.4g} (IHSN: {ihsn.highest_dis:.4g})")
    print_lines(f"DIS: {found.dis:.4g}, at a sampling fraction of {found.fraction:g} ({by[found.fraction_by]})")
    shares = sorted(score.contributions.items(), key=lambda one: -one[1])
    print_table(["quasi-identifier", "share of the scores"], [(name, f"{one:.1f} %") for name, one in shares])


COMPARISON_MARKS = {
    "optimal": ("*", "optimal among full-domain generalizations"),
    "partial": ("!", "does not guarantee k-anonymity of all quasi-identifiers together"),
    "stopped": ("+", "stopped by a time limit: with more time it may find better"),
    "own": ("=", "the strategy of the policy"),
}
"""Marks of strategies in a comparison, with their meanings."""


def print_comparison(found: Sequence[Mapping[str, Any]], policy: Policy, path: Path, endless: Sequence[str]) -> None:
    measure = policy.search.measure
    formats = {
        **({} if measure == "loss" else {"score": ("score", ",.6g")}),
        "loss": ("loss", ".4f"),
        "classes": ("classes", ",d"),
        "suppressed": ("suppressed_rows", ",d"),
        **({} if policy.source.person_column is None else {"persons": ("suppressed_persons", ",d")}),
        "checks": ("checked", ",d"),
        "seconds": ("seconds", ".2f"),
    }
    rows, used = [], dict[str, str]()
    late = [one["strategy"] for one in found if one["error"] is not None and one["stopped"]]
    for one in sorted(found, key=lambda one: math.inf if one["loss"] is None else one["loss"]):
        if one["strategy"] in late:
            continue
        flags = {"optimal": one["optimal"], "partial": one["guarantees_k"] is False, "stopped": one["stopped"]}
        flags["own"] = one["strategy"] == policy.search.strategy
        marks = [COMPARISON_MARKS[name] for name, flag in flags.items() if flag]
        used |= dict(marks)
        cells = ["" if one[name] is None else format(one[name], how) for name, how in formats.values()]
        rows.append([" ".join([one["strategy"], *(mark for mark, _ in marks)]), *cells])
    print_table(["strategy", *formats], rows)
    if measure != "loss":
        print_lines(f"score: by the measure {measure}")
    for mark, meaning in used.items():
        print_lines(f"{mark} {meaning}")
    if late or endless:
        shown = [f"{name} (took too long)" for name in late] + [f"{name} (has no end of its own)" for name in endless]
        print_lines(f"Skipped: {', '.join(shown)}. To run {'it' if len(shown) == 1 else 'them'} to the end:")
        limit = " --set search.time_limit=600" if endless else ""
        print_lines(f"  sqlanon compare {shlex.quote(str(path))} --strategies {','.join([*late, *endless])}{limit}")
    for one in found:
        if one["error"] is not None and one["strategy"] not in late:
            print_lines(f"{one['strategy']}: {one['error']}", err=True)


def print_noise_of(result: Result) -> None:
    for name, one in (result.noise or {}).items():
        errors = [f"{one['expected_error']:,.4g}", f"{one['observed_error']:,.4g}"]
        shares = one["expected_relative_error"], one["observed_relative_error"]
        if None not in shares:  # a date has none, nor has a column of zeros
            errors = [f"{error} ({100 * share:.3g} %)" for error, share in zip(errors, shares, strict=True)]
        print_lines(f"noise on {name}: ε = {one['epsilon']:g}, mean error {errors[1]}, expected {errors[0]}")
    risk = 100 * (result.linking_risk or 0.0)
    print_lines(f"ε of a record: {result.epsilon:g}; records that can be linked to their own values: {risk:.3g} %")
    if result.confidence is not None:
        rows, beta = result.confidence["suppressed_rows"], result.confidence["beta"]
        print_lines(f"{rows:,} of the suppressed rows were suppressed for a confidence of {100 * beta:g} %")


def decoys_in_words(decoys: Decoys) -> str:
    if not decoys.rows:
        return "no decoys: no class was too small"
    figures = f"{count_noun(decoys.rows, 'decoy')} among the released rows, in {count_noun(decoys.classes, 'class')}; "
    return figures + f"without them the smallest class has {count_noun(decoys.smallest_class_without, 'row')}"


def print_noise(noise: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    print_lines("")
    rows = []
    for name, errors in noise.items():
        for one in errors:
            relative, error = one["expected_relative_error"], one["expected_error"]
            cells = ["" if relative is None else f"{100 * relative:.3g} %", "" if error is None else f"{error:,.4g}"]
            rows.append([name, f"{one['epsilon']:g}", *cells])
    print_table(["noise on", "ε", "expected relative error", "expected error"], rows)


def print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=not is_unicode_output()))


def print_attacks(attacks: Attacks, with_sql: bool) -> None:
    rows, skipped = [], dict[str, list[str]]()
    for one in attacks.values():
        name = one.name.replace("_", " ")
        if one.worst is None:
            skipped.setdefault(str(one.skipped), []).append(name)
            continue
        if one.worst.kept is not None:
            continue
        figures = ", ".join(f"{key.replace('_', ' ')} {_plain(value)}" for key, value in one.worst.figures.items())
        rows.append([name, f"{one.worst.victims:,}", format_percent(one.worst.share, 1), figures])
    print_table(["attack", "victims", "share", "figures"], rows)
    for reason, names in skipped.items():
        print_lines(f"skipped: {', '.join(names)}: {reason}")
    for path, decoys in attacks.decoys.items():
        print_lines(f"{path} has {count_noun(decoys, 'decoy')}: k, classes and victims count them")
    for finding in [finding for one in attacks.values() for finding in one.findings if finding.kept is not None]:
        _print_kept(finding)
    if with_sql:
        _hand_out_statements(attacks)
    elif any(one.victims for one in attacks.values()):
        print_lines("To show the victims: add --sql, which prints the statements")


def _hand_out_statements(attacks: Attacks) -> None:
    for one in attacks.values():
        if one.victims:
            print_sql(f"\n-- {one.name.replace('_', ' ')}: the victims\n{one.sql}")
        if one.worst is not None and one.worst.kept is not None and one.worst.kept.rows:
            print_sql(f"\n-- {one.name}: the classes that could be finer\n{one.sql}")


def _print_kept(finding: Finding) -> None:
    """Detail that a release could keep: no breach, and no row of the table of attacks."""
    kept, place = finding.kept, finding.releases[0]
    assert kept is not None
    if not kept.rows:
        print_lines(f"downcoding: no class of {place} could be finer")
        return
    rows = f"{count_noun(kept.rows, 'row')} ({format_percent(kept.rows, finding.rows)})"
    print_lines(
        f"downcoding (no breach): {rows} of {place} could show an attribute one level finer and still meet the policy; "
        f'strategy = "{kept.strategy}" keeps more'
    )


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


MOST_LEAKING = 10
"""The most sets of attributes that are shown; ``--json`` has all."""


_UNIQUE = {"rows": "unique rows", "persons": "classes of one person"}


def print_risk(found: Risk, noisy: Sequence[str]) -> None:
    persons = found.persons is not None
    who = count_noun(found.rows, "row") + (f" of {count_noun(found.persons or 0, 'person')}" if persons else "")
    unique = f"{found.uniques:,}"
    if found.uniques:
        unique += f" ({format_percent(found.uniques, found.classes if persons else found.rows)})"
    print_lines(f"{who} in {count_noun(found.classes, 'class')}; {_UNIQUE[found.counts]}: {unique}")
    if found.k is not None:
        few = count_noun(found.k, "person" if persons else "row")
        share = f" ({format_percent(found.rows_below_k, found.rows)})" if found.rows_below_k else ""
        of = f", without {', '.join(noisy)}" if noisy else ""
        print_lines(f"rows in classes of fewer than {few}: {found.rows_below_k:,}{share}{of}")
    fewest = count_noun(found.smallest_class, "person" if persons else "row")
    rows = "" if found.smallest_class_rows is None else f", {count_noun(found.smallest_class_rows, 'row')} or more"
    print_lines(f"smallest class: {fewest}{rows}")
    print_lines(f"prosecutor's risk: highest {_share(found.highest_risk)}, average {_share(found.average_risk)}")
    print_attackers(found)


def _share(risk: float) -> str:
    return format_percent(risk, 1)


def print_attackers(found: Risk) -> None:
    from sqlanon.risk.attackers import explain_disagreement

    prosecutor, journalist, marketer = found.prosecutor, found.journalist, found.marketer
    for threshold, rows in prosecutor.rows_above.items():
        of_all = _share(prosecutor.share_above[threshold])
        print_lines(f"rows with a prosecutor's risk above {_share(float(threshold))}: {rows:,} ({of_all})")
    by = {"table": "from the population table", "estimate": "estimated from the size of the population", None: ""}
    if journalist.population is not None:
        figures = f"highest {_share(journalist.highest)}, average {_share(journalist.average)}"
        print_lines(f"journalist's risk: {figures} ({by[journalist.population]})")
        if journalist.rows_of_nobody:
            print_lines(f"rows that match nobody in the population: {journalist.rows_of_nobody:,}")
        print_lines(
            f"marketer's risk: {_share(marketer.average)}, or {format_figure(marketer.expected)} of the {found.counts}"
        )
    if found.population is not None:
        one = found.population
        share = "no estimate" if one.dankar is None else f"{100 * one.dankar:.4g} %"
        model = f" ({one.chosen})" if one.chosen else ""
        print_lines(f"unique in a population of {one.N:,.0f}: {share} of the {found.counts}{model}")
        if (sentence := explain_disagreement(journalist, found.population)) is not None:
            print_lines(sentence)
    if found.individual is not None:
        risk = found.individual
        figures = (
            f"highest {_share(risk.highest)}, average {_share(risk.average)}, {format_figure(risk.expected)} expected"
        )
        print_lines(f"individual risk by weights: {figures}")
    if found.household is not None:
        home = found.household
        figures = f"highest {_share(home.highest)}, average {_share(home.average)}"
        print_lines(f"risk of {count_noun(home.households, 'household')}: {figures}")
    print_lines("")
    print_class_sizes(found.class_sizes.sizes.items(), found.counts)


def print_leakage(leakage: Sequence[Leakage], search: LeakageSearch, counts: str) -> None:
    if not leakage:
        return
    print_lines("")
    rows = []
    for one in leakage[:MOST_LEAKING]:
        cells = [f"{one.gain:.1f}", format_percent(one.normalized, 1), f"{one.classes:,}", f"{one.uniques:,}"]
        rows.append([", ".join(one.attributes), *cells])
    print_table(["attributes", "bits of leakage", "share", "classes", _UNIQUE[counts]], rows)
    measured = f"Leakage measured for {search.measured:,} of {search.sets:,} sets of attributes"
    if search.stopped == "size":
        print_lines(f"{measured}; --leakage-seconds S measures larger ones.")
    elif search.stopped == "time limit":
        print_lines(f"{measured} before the time limit.")
        if first := min(search.proven, len(rows)):
            are = "row is the set that leaks" if first == 1 else f"{first} rows are the sets that leak"
            print_lines(f"The first {are} the most, apart from sets that contain one with all classes.")


def print_values(found: ValueLeakage) -> None:
    print_lines("")
    rows = []
    for one in found.levels:
        most = "".join(f"{_shown(value.value)} ({value.gain:.1f})" for value in one.most_leaking[:1])
        rows.append(
            [f"level {one.level}", f"{one.values:,}", f"{one.gain:.1f}", format_percent(one.normalized, 1), most]
        )
    print_table([f"values of {found.attribute}", "values", "bits of leakage", "share", "most leaking value"], rows)


def _shown(value: str | None) -> str:
    return "NULL" if value is None else make_printable(value)


def print_dependencies(found: Sequence[Narrowing]) -> None:
    if not found:
        return
    print_lines("")
    rows = [
        [" and ".join(one.columns), one.quasi, f"{one.before:,.1f}", f"{one.after:,.1f}", f"{100 * one.pinned:.1f} %"]
        for one in found
    ]
    print_table(["released unchanged", "narrows", "values", "values left", "rows revealed"], rows)
    print_lines("Statement that shows the values left:")
    print_sql(found[0].query)


def print_matrix(found: UniquesMatrix) -> None:
    def show(what: str, cells: Sequence[Sequence[str]]) -> None:
        print_lines("")
        first, second = found.attributes
        headers = [f"{what}: {first} by {second}", *(f"level {j}" for j in range(len(cells[0])))]
        print_table(headers, [[f"level {i}", *row] for i, row in enumerate(cells)])

    def with_share(part: int, whole: int) -> str:
        return f"{part:,} ({format_percent(part, whole)})" if whole else "0"

    show(_UNIQUE[found.counts], [[f"{n:,}" for n in row] for row in found.uniques])
    if (theirs := found.population) is not None:
        pairs = zip(theirs.uniques, theirs.combinations, strict=True)
        alone = [[with_share(n, of) for n, of in zip(*pair, strict=True)] for pair in pairs]
        show("combinations unique in the population", alone)
        show("rows with one of these", [[with_share(n, found.rows) for n in row] for row in theirs.rows])
