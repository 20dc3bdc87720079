"""Print results: tables and sentences for people, JSON for programs."""

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
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from sqlanon.attacks import Attack, Attacks
    from sqlanon.audit.verification import Verification
    from sqlanon.disclosure.dependencies import Narrowing
    from sqlanon.disclosure.residual_risk import ResidualRisk
    from sqlanon.ledger.growth.extend import Extension
    from sqlanon.live import LiveView
    from sqlanon.policy import Policy
    from sqlanon.release.source_change import SourceChange
    from sqlanon.result import AnyRelease, Result
    from sqlanon.risk import Leakage, LeakageSearch, RequirementRisk, Risk, UniquesMatrix, ValueLeakage
    from sqlanon.risk.suda import Suda
    from sqlanon.withdrawal import Withdrawal


DRAFT = "draft: not compared with other releases; do not share it"
MAX_LEAKING_SETS = 10
"""Maximum number of attribute sets in the table of leakage; ``--json`` has all."""


def print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=not is_unicode_output()))


def format_count(count: int, whole: float | None) -> str:
    """A count with its share of a whole, unless the count is 0."""
    return f"{count:,} ({format_percent(count, whole)})" if count and whole else f"{count:,}"


# --- results and releases


def print_result(result: Result, release: AnyRelease, seconds: float) -> ResidualRisk | None:
    """Print a published result; return the most serious residual risk of the release."""
    manifest = release.manifest
    _print_figures(result, "released", manifest.classes, manifest.fewest_rows, seconds)
    if result.noise is not None:
        _print_noise(result)
    if (decoys := result.decoys) is not None and decoys.rows:
        figures = (
            f"{count_noun(decoys.rows, 'decoy')} among the released rows, in {count_noun(decoys.classes, 'class')}"
        )
        print_lines(
            f"{figures}; without them the smallest class has {count_noun(decoys.smallest_class_without, 'row')}"
        )
    elif decoys is not None:
        print_lines("no decoys: no class was too small")
    print_lines("")
    _print_attributes(result, "what was done")
    print_lines("")
    worst = None
    try:
        sizes, worst = release.class_sizes_and_risk()
        print_class_sizes(sizes.sizes)
    except ReleaseError as error:  # the release is published all the same
        print_lines(f"class sizes: not available: {error}")
    print_lines("")
    _print_release(release)
    if manifest.draft:
        print_lines(DRAFT)
    return worst


def _print_release(release: AnyRelease) -> None:
    print_lines(f"release: {release.path}, table {release.table}")
    if release.sha256 is not None:
        print_lines(f"sha256: {release.sha256}")


def print_unpublished(result: Result, output: Mapping[str, Any], seconds: float) -> None:
    """Print the result of a dry run or of an export; ``output`` has its JSON fields."""
    _print_figures(result, "to be released", result.classes, result.smallest_class_rows, seconds)
    print_lines("")
    _print_attributes(result, "what is done")
    print_lines("")
    if output.get("dry_run"):
        print_lines("dry run: not published, not recorded, not compared with earlier releases")
        return
    print_lines(f"written to {make_printable(output['export'])}")
    print_lines("In the warehouse: upload the Parquet files, run release.sql, then audit.sql")
    if output.get("draft"):
        print_lines(DRAFT)


def _print_figures(result: Result, released: str, classes: int, smallest: int, seconds: float) -> None:
    suppressed = f"{result.suppressed_rows:,} suppressed"
    if result.suppressed_rows:
        suppressed += f" ({format_percent(result.suppressed_rows, result.rows)})"
    print_lines(f"{result.released_rows:,} of {result.rows:,} rows {released}, {suppressed}")
    fewest = count_noun(smallest, "row")
    if result.persons is not None and result.suppressed_persons is not None:
        fewest = f"{count_noun(result.smallest_class, 'person')} ({fewest} or more)"
        share = f" ({format_percent(result.suppressed_persons, result.persons)})" if result.suppressed_persons else ""
        line = f"{result.released_persons:,} of {result.persons:,} persons {released} with all their rows, "
        line += f"{result.suppressed_persons:,} with suppressed rows{share}"
        if result.partly_released_persons:
            line += f"; {result.partly_released_persons:,} of them have other rows in the release"
        print_lines(line)
    print_lines(f"{count_noun(classes, 'class')}; the smallest has {fewest}")
    print_lines(f"{result.measure} {format_figure(result.score)}: {result.proof}")
    checked, search = f"checked {result.checked:,} of {result.nodes:,} generalizations", result.policy.search
    if search.is_local:
        checked = count_noun(result.checked, "round") + (" of splits" if search.traits.splits_classes else "")
    print_lines(f"{checked} in {seconds:.2f} s")


_SUMMARIES = {
    "range": "A range stands for all values in it.",
    "set": "A range or a set stands for all values in it.",
    "median": "A number is the median of its group.",
}


def _print_attributes(result: Result, heading: str) -> None:
    """Print what is done to each quasi-identifier, and its loss; the metadata of the release describes the labels."""
    from sqlanon.result import SEVERAL_LEVELS

    descriptions = result.transformations
    for name in result.fully_suppressed:
        descriptions[name] = descriptions[name].replace(SEVERAL_LEVELS, "fully suppressed")
    rows = [(name, _format_loss(result.losses.get(name)), description) for name, description in descriptions.items()]
    print_table(["quasi-identifier", "loss", heading], rows)
    if SEVERAL_LEVELS in descriptions.values():
        print_lines("Each group of rows is generalized only as far as it needs.")
        if result.policy.search.traits.summarizes:
            print_lines(_SUMMARIES[result.policy.search.summary])
    if result.suppressed_rows:
        print_lines("A suppressed row counts as a loss of 1 in each column.")


def _format_loss(loss: float | None) -> str:
    """A loss from 0 to 1; empty without one, as with noise.

    >>> _format_loss(0.0), _format_loss(1.0), _format_loss(0.02394), _format_loss(0.0001), _format_loss(None)
    ('0', '1', '0.024', '<0.001', '')
    """
    if loss is None:
        return ""
    return f"{loss:g}" if loss in (0, 1) else f"{loss:.3f}" if loss >= 0.0005 else "<0.001"


def _print_noise(result: Result) -> None:
    for name, errors in (result.noise or {}).items():
        means = {}
        for kind in ("observed", "expected"):
            error, share = errors[f"{kind}_error"], errors[f"{kind}_relative_error"]
            means[kind] = f"{error:,.4g}" + ("" if share is None else f" ({100 * share:.3g} %)")  # dates have no share
        print_lines(
            f"noise on {name}: ε = {errors['epsilon']:g}, mean error {means['observed']}, expected {means['expected']}"
        )
    risk = 100 * (result.linking_risk or 0.0)
    print_lines(f"ε of a record: {result.epsilon:g}; records that can be linked to their own values: {risk:.3g} %")
    if result.confidence is not None:
        rows, beta = result.confidence["suppressed_rows"], result.confidence["beta"]
        print_lines(f"{rows:,} of the suppressed rows were suppressed for a confidence of {100 * beta:g} %")


def print_class_sizes(sizes: Mapping[int, int], unit: str = "rows") -> None:
    from sqlanon.frequency.class_sizes import doubling_histogram

    bars = doubling_histogram(sizes)
    while bars and not next(iter(bars.values())):  # begin at the smallest class
        bars.pop(next(iter(bars)))
    if bars:
        print_bars((f"{unit} in a class", "classes"), bars)


def print_residual_risk(worst: ResidualRisk | None, price: str | None = None) -> None:
    """Print the most serious residual risk, what prevents it, and what that costs."""
    if worst is not None:
        print_lines("\n".join([make_printable(worst.line), *([] if price is None else [price]), worst.advice]))


def print_extension(extension: Extension, policy: Path) -> None:
    """Print an extension of a release."""
    before = count_noun(extension.released_before, "row")
    print_lines(f"released before: {before}; new in the source: {extension.new_rows:,}")
    added = count_noun(extension.added_rows, "row")
    print_lines(f"added: {added}; waiting for more rows like them: {extension.waiting_rows:,}")
    change: SourceChange = extension.source_change
    if change.losses:
        print_lines(f"since then: {change.losses}; the release still shows their earlier values")
        print_lines(f"What to do: {change.remedy(shlex.quote(str(policy)))}")
    if not extension.added_rows:
        print_lines("the release is unchanged")
    fewest = count_noun(extension.smallest_class, "row" if extension.persons is None else "person")
    print_lines(f"{count_noun(extension.classes, 'class')}; the smallest has {fewest}")
    print_lines(f"release: {extension.path}, table {extension.table}")


def print_withdrawal(withdrawal: Withdrawal, release: AnyRelease | None) -> None:
    """Print a withdrawal, and the release that it published."""
    from sqlanon.places.addresses import format_location

    change, result = withdrawal.source_change, withdrawal.result
    if result is None:
        differences = change.differences if change else "no change"
        print_lines(f"nothing to withdraw from {format_location(withdrawal.path)}: {differences}")
        print_lines("the release is unchanged")
        return
    print_lines(f"since the release: {change.losses or change.differences}")
    before, rows = count_noun(withdrawal.released_before, "row"), count_noun(result.released_rows, "row")
    print_lines(f"released before: {before}; {'would be now' if release is None else 'now'}: {rows}")
    if result.suppressed_rows:
        reason = "in classes that are too small without them" if withdrawal.only_released_rows else "as before"
        print_lines(f"suppressed: {count_noun(result.suppressed_rows, 'row')}, {reason}")
    if not withdrawal.only_released_rows:
        print_lines("the new version has all rows of the source, also those that are new since")
    if withdrawal.same_generalization:
        print_lines("generalization: as before")
    else:
        print_lines("generalization: another one than before:")
        _print_attributes(result, "what is done")
    noun = "row" if result.persons is None else "person"
    print_lines(f"{count_noun(result.classes, 'class')}; the smallest has {count_noun(result.smallest_class, noun)}")
    if withdrawal.disclosure_note is not None:
        print_lines(f"What this reveals: {withdrawal.disclosure_note}")
    if release is not None:
        _print_release(release)


def print_live(view: LiveView, policy: Policy) -> None:
    """Print a live view that was created or replaced."""
    from sqlanon.release.sentences import level_in_words

    visible, limit = (
        view.rows - view.suppressed_rows,
        "" if view.limit_rows is None else f" (limit {view.limit_rows:,})",
    )
    print_lines(f"{visible:,} of {view.rows:,} rows shown now, {view.suppressed_rows:,} suppressed{limit}")
    if view.suppressed_persons is not None:
        persons = f"{view.suppressed_persons:,} of {view.persons:,} persons"
        print_lines(f"{persons} with suppressed rows now (limit {view.limit_persons:,})")
    proof = ": optimal among full-domain generalizations" if view.optimal else ""
    print_lines(f"{view.measure} {format_figure(view.score)}{proof}")
    print_lines("")
    rows = []
    for name, level in view.generalization.items():
        rules = [rule.redact() for rule in policy.attributes[name].hierarchy or ()]
        rows.append((name, level_in_words(rules, level, view.heights[name]).partition("; ")[0]))
    print_table(["quasi-identifier", "what is done"], rows)
    print_lines("")
    kind = "secure" if view.secure else "not secure: this file or this DuckDB does not support secure views"
    name, database = make_printable(view.view), make_printable(str(policy.source.database))
    print_lines(f"{'replaced' if view.replaced else 'created'}: view {name} ({kind}) in {database}")
    print_lines("rows that it suppresses later: FROM sqlanon.live_views")


# --- verification and attacks


_UNDECIDED = {"not verifiable alone": "needs the source", "not guaranteed": "not guaranteed"}
"""The result of a check that neither passed nor failed, by the beginning of its message."""


def print_verification(verification: Verification, policy: Path | None) -> None:
    results = {True: "ok", False: "FAILED", None: "not checked"}
    rows = []
    for check in verification.checks:
        result, message = results[check.passed], check.message
        reason, _, explanation = message.partition(": ")
        if check.passed is None and explanation and reason in _UNDECIDED:
            result, message = _UNDECIDED[reason], explanation
        rows.append((result, check.name, message))
    print_table(["result", "check", "what was found"], rows)
    print_lines(_format_verdict(verification, policy is None))
    if verification.verified and verification.claims:
        advice = ". To check: add --sha256 HEX" if verification.is_file else ""
        print_lines(f"Unverified claims of the manifest: {', '.join(verification.claims)}{advice}")
    if (change := verification.source_change) is not None:
        print_lines(f"What holds: {change.valid_claims}")
        print_lines(f"What to do: {change.remedy('POLICY.toml' if policy is None else shlex.quote(str(policy)))}")
    print_residual_risk(verification.residual_risk)


def _format_verdict(verification: Verification, alone: bool) -> str:
    """The verdict of a verification; for a release that was verified alone, also what needs its source."""
    from sqlanon.policy import PrivacySection
    from sqlanon.policy.problems import read_part
    from sqlanon.requirements import list_requirements
    from sqlanon.support.checks import SOURCE_PREFIX

    checks = verification.checks
    if (change := verification.source_change) is not None:
        return f"NOT verified against the source, which has changed since: {change.differences}"
    if not verification.verified:
        return f"NOT verified: {', '.join(check.name for check in checks if check.passed is False)}"
    passed = [check.name.removeprefix(SOURCE_PREFIX) for check in checks if check.passed]
    undecided = [check.name for check in checks if check.passed is None and check.name not in passed]
    section, _ = read_part(PrivacySection, verification.manifest.policy["privacy"], "privacy", {})
    required = [] if section is None else [requirement.name for requirement in list_requirements(section)]
    met = [name for name in required if name in passed]
    count = sum(name not in met for name in passed)
    verified = f"{', '.join(met)} and {count:,} other checks" if met else f"{count:,} checks"
    draft = " (a draft, not for sharing)" if verification.manifest.draft else ""
    missing = [name for name in undecided if name in required]
    if not alone:
        return f"Verified{draft}: {verified}" + (f"; not verifiable: {', '.join(missing)}" if missing else "")
    missing = [*missing, "whether the rows come from it"]
    return f"Verified{draft}: {verified}\nNeeds the source: {', '.join(missing)}. To check: add --policy POLICY.toml"


def print_attacks(attacks: Attacks, with_sql: bool) -> None:
    rows, skipped = [], dict[str, list[str]]()
    for attack in attacks.values():
        name, worst = attack.name.replace("_", " "), attack.worst
        if worst is None:
            skipped.setdefault(str(attack.skipped), []).append(name)
        elif worst.kept is None:
            figures = (f"{key.replace('_', ' ')} {_format_value(value)}" for key, value in worst.figures.items())
            rows.append([name, f"{worst.victims:,}", format_percent(worst.share, 1), ", ".join(figures)])
    print_table(["attack", "victims", "share", "figures"], rows)
    for reason, names in skipped.items():
        print_lines(f"skipped: {', '.join(names)}: {reason}")
    for path, decoys in attacks.decoys.items():
        print_lines(f"{path} has {count_noun(decoys, 'decoy')}: k, classes and victims count them")
    for attack in attacks.values():
        _print_avoidable_generalization(attack)
    if with_sql:
        _print_victim_statements(attacks)
    elif any(attack.victims for attack in attacks.values()):
        print_lines("To show the victims: add --sql, which prints the statements")


def _print_victim_statements(attacks: Attacks) -> None:
    for attack in attacks.values():
        if attack.victims:
            print_sql(f"\n-- {attack.name.replace('_', ' ')}: the victims\n{attack.sql}")
        if attack.worst is not None and attack.worst.kept is not None and attack.worst.kept.rows:
            print_sql(f"\n-- {attack.name}: the classes that could be finer\n{attack.sql}")


def _print_avoidable_generalization(attack: Attack) -> None:
    """Print how much more detail a release could have. It breaches nothing, so the table of attacks leaves it out."""
    for finding in attack.findings:
        detail, release = finding.kept, finding.releases[0]
        if detail is not None and not detail.rows:
            print_lines(f"downcoding: no class of {release} could be finer")
        elif detail is not None:
            rows = f"{count_noun(detail.rows, 'row')} ({format_percent(detail.rows, finding.rows)})"
            print_lines(
                f"downcoding (no breach): {rows} of {release} could show an attribute one level finer and still meet "
                f'the policy; strategy = "{detail.strategy}" keeps more'
            )


def _format_value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


# --- comparison of strategies

COMPARISON_MARKS = {
    "optimal": ("*", "optimal among full-domain generalizations"),
    "partial": ("!", "does not guarantee k-anonymity of all quasi-identifiers together"),
    "stopped": ("+", "stopped by a time limit: with more time it may find better"),
    "own": ("=", "the strategy of the policy"),
}
"""Marks of strategies in a comparison, with their meanings."""


def print_comparison(rows: Sequence[Mapping[str, Any]], policy: Policy, path: Path, endless: Sequence[str]) -> None:
    from sqlanon.measures import Loss

    measure = policy.search.measure
    formats = {
        **({} if measure == Loss.name else {"score": ("score", ",.6g")}),
        "loss": ("loss", ".4f"),
        "classes": ("classes", ",d"),
        "suppressed": ("suppressed_rows", ",d"),
        **({} if policy.source.person_column is None else {"persons": ("suppressed_persons", ",d")}),
        "checks": ("checked", ",d"),
        "seconds": ("seconds", ".2f"),
    }
    table, meanings = [], dict[str, str]()
    late = [row["strategy"] for row in rows if row["error"] is not None and row["stopped"]]
    for row in sorted(rows, key=lambda row: math.inf if row["loss"] is None else row["loss"]):
        if row["strategy"] in late:
            continue
        flags = {"optimal": row["optimal"], "partial": row["guarantees_k"] is False, "stopped": row["stopped"]}
        flags["own"] = row["strategy"] == policy.search.strategy
        marks = [COMPARISON_MARKS[name] for name, is_set in flags.items() if is_set]
        meanings |= dict(marks)
        cells = ["" if row[name] is None else format(row[name], format_) for name, format_ in formats.values()]
        table.append([" ".join([row["strategy"], *(mark for mark, _ in marks)]), *cells])
    print_table(["strategy", *formats], table)
    if measure != Loss.name:
        print_lines(f"score: by the measure {measure}")
    for mark, meaning in meanings.items():
        print_lines(f"{mark} {meaning}")
    if skipped := [f"{name} (took too long)" for name in late] + [
        f"{name} (has no end of its own)" for name in endless
    ]:
        print_lines(f"Skipped: {', '.join(skipped)}. To run {'it' if len(skipped) == 1 else 'them'} to the end:")
        limit = " --set search.time_limit=600" if endless else ""
        print_lines(f"  sqlanon compare {shlex.quote(str(path))} --strategies {','.join([*late, *endless])}{limit}")
    for row in rows:
        if row["error"] is not None and row["strategy"] not in late:
            print_lines(f"{row['strategy']}: {row['error']}", err=True)


# --- risk

_UNIQUE = {"rows": "unique rows", "persons": "classes of one person"}


def print_risk(risk: Risk, noisy_attributes: Sequence[str]) -> None:
    counts_persons = risk.persons is not None
    noun = "person" if counts_persons else "row"
    counts = count_noun(risk.rows, "row") + (f" of {count_noun(risk.persons or 0, 'person')}" if counts_persons else "")
    unique = format_count(risk.uniques, risk.classes if counts_persons else risk.rows)
    print_lines(f"{counts} in {count_noun(risk.classes, 'class')}; {_UNIQUE[risk.counts]}: {unique}")
    if risk.k is not None:
        below_k = format_count(risk.rows_below_k, risk.rows)
        without = f", without {', '.join(noisy_attributes)}" if noisy_attributes else ""
        print_lines(f"rows in classes of fewer than {count_noun(risk.k, noun)}: {below_k}{without}")
    rows = "" if risk.smallest_class_rows is None else f", {count_noun(risk.smallest_class_rows, 'row')} or more"
    print_lines(f"smallest class: {count_noun(risk.smallest_class, noun)}{rows}")
    print_lines(f"prosecutor's risk: {_format_risks(risk.highest_risk, risk.average_risk)}")
    print_attackers(risk)


def _format_share(share: float) -> str:
    return format_percent(share, 1)


def _format_risks(highest: float, average: float) -> str:
    return f"highest {_format_share(highest)}, average {_format_share(average)}"


def print_attackers(risk: Risk) -> None:
    from sqlanon.risk.attackers import explain_disagreement

    prosecutor, journalist, marketer = risk.prosecutor, risk.journalist, risk.marketer
    for threshold, rows in prosecutor.rows_above.items():
        share = _format_share(prosecutor.share_above[threshold])
        print_lines(f"rows with a prosecutor's risk above {_format_share(float(threshold))}: {rows:,} ({share})")
    if journalist.population is not None:
        origins = {"table": "from the population table", "estimate": "estimated from the size of the population"}
        risks = _format_risks(journalist.highest, journalist.average)
        print_lines(f"journalist's risk: {risks} ({origins[journalist.population]})")
        if journalist.rows_of_nobody:
            print_lines(f"rows that match nobody in the population: {journalist.rows_of_nobody:,}")
        expected = f"{format_figure(marketer.expected)} of the {risk.counts}"
        print_lines(f"marketer's risk: {_format_share(marketer.average)}, or {expected}")
    if (population := risk.population) is not None:
        share = "no estimate" if population.dankar is None else f"{100 * population.dankar:.4g} %"
        model = f" ({population.chosen})" if population.chosen else ""
        print_lines(f"unique in a population of {population.N:,.0f}: {share} of the {risk.counts}{model}")
        if (sentence := explain_disagreement(journalist, population)) is not None:
            print_lines(sentence)
    if (individual := risk.individual) is not None:
        risks = _format_risks(individual.highest, individual.average)
        print_lines(f"individual risk by weights: {risks}, {format_figure(individual.expected)} expected")
    if (household := risk.household) is not None:
        risks = _format_risks(household.highest, household.average)
        print_lines(f"risk of {count_noun(household.households, 'household')}: {risks}")
    print_lines("")
    print_class_sizes(risk.class_sizes.sizes, risk.counts)


def print_requirements(requirements: Sequence[RequirementRisk]) -> None:
    print_lines("")

    def format_requirement(requirement: RequirementRisk) -> str:
        if requirement.limit is not None:
            return "no estimate" if requirement.figure is None else f"{requirement.figure:.4g}"
        classes = requirement.population_classes
        return f"{classes:,} population classes without rows" if classes else ""

    headers = ["requirement", "holds", "classes that fail", "their rows"]
    headers += ["figure"] if any(map(format_requirement, requirements)) else []
    rows = []
    for requirement in requirements:
        counts = ["" if count is None else f"{count:,}" for count in (requirement.classes, requirement.rows)]
        holds = "yes" if requirement.holds else "no"
        rows.append([requirement.requirement, holds, *counts, format_requirement(requirement)][: len(headers)])
    print_table(headers, rows)


def print_leakage(leakage: Sequence[Leakage], search: LeakageSearch, counts: str) -> None:
    if not leakage:
        return
    print_lines("")
    rows = []
    for figures in leakage[:MAX_LEAKING_SETS]:
        share = _format_share(figures.normalized)
        cells = [f"{figures.gain:.1f}", share, f"{figures.classes:,}", f"{figures.uniques:,}"]
        rows.append([", ".join(figures.attributes), *cells])
    print_table(["attributes", "bits of leakage", "share", "classes", _UNIQUE[counts]], rows)
    measured = f"Leakage measured for {search.measured:,} of {search.sets:,} sets of attributes"
    if search.stopped == "size":
        print_lines(f"{measured}; --leakage-seconds S measures larger ones.")
    elif search.stopped == "time limit":
        print_lines(f"{measured} before the time limit.")
        if proven := min(search.proven, len(rows)):
            sets = "row is the set that leaks" if proven == 1 else f"{proven} rows are the sets that leak"
            print_lines(f"The first {sets} the most, apart from sets that contain one with all classes.")


def print_value_leakage(leakage: ValueLeakage) -> None:
    print_lines("")
    rows = []
    for level in leakage.levels:
        most_leaking = ""
        for value in level.most_leaking[:1]:
            text = "NULL" if value.value is None else make_printable(value.value)
            most_leaking = f"{text} ({value.gain:.1f})"
        share = _format_share(level.normalized)
        rows.append([f"level {level.level}", f"{level.values:,}", f"{level.gain:.1f}", share, most_leaking])
    print_table([f"values of {leakage.attribute}", "values", "bits of leakage", "share", "most leaking value"], rows)


def print_dependencies(dependencies: Sequence[Narrowing]) -> None:
    if not dependencies:
        return
    print_lines("")
    rows = []
    for narrowing in dependencies:
        counts = [f"{narrowing.before:,.1f}", f"{narrowing.after:,.1f}", f"{100 * narrowing.pinned:.1f} %"]
        rows.append([" and ".join(narrowing.columns), narrowing.quasi, *counts])
    print_table(["released unchanged", "narrows", "values", "values left", "rows revealed"], rows)
    print_lines("Statement that shows the values left:")
    print_sql(dependencies[0].query)


def print_uniques_matrix(matrix: UniquesMatrix) -> None:
    def print_levels(title: str, cells: Sequence[Sequence[str]]) -> None:
        print_lines("")
        first, second = matrix.attributes
        headers = [f"{title}: {first} by {second}", *(f"level {level}" for level in range(len(cells[0])))]
        print_table(headers, [[f"level {level}", *row] for level, row in enumerate(cells)])

    def format_share_of(part: int, whole: int) -> str:
        return f"{part:,} ({format_percent(part, whole)})" if whole else "0"

    print_levels(_UNIQUE[matrix.counts], [[f"{count:,}" for count in row] for row in matrix.uniques])
    if (population := matrix.population) is not None:
        pairs = zip(population.uniques, population.combinations, strict=True)
        print_levels(
            "combinations unique in the population",
            [[format_share_of(*counts) for counts in zip(*pair, strict=True)] for pair in pairs],
        )
        rows = [[format_share_of(count, matrix.rows) for count in row] for row in population.rows]
        print_levels("rows with one of these", rows)


def print_noise_errors(noise: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    print_lines("")
    rows = []
    for name, errors_by_epsilon in noise.items():
        for errors in errors_by_epsilon:
            share, error = errors["expected_relative_error"], errors["expected_error"]
            cells = ["" if share is None else f"{100 * share:.3g} %", "" if error is None else f"{error:,.4g}"]
            rows.append([name, f"{errors['epsilon']:g}", *cells])
    print_table(["noise on", "ε", "expected relative error", "expected error"], rows)


def print_suda(suda: Suda) -> None:
    print_lines("")
    rows, share = count_noun(suda.rows_with_msus, "row"), format_percent(suda.rows_with_msus, suda.rows)
    print_lines(f"SUDA: {rows} ({share}) unique on {suda.size} or fewer quasi-identifiers,")
    print_lines(f"by {count_noun(suda.msus, 'minimal sample unique')}")
    if not suda.msus:
        return
    sizes = [(str(size), f"{rows:,}") for size, rows in suda.rows_by_smallest.items()]
    print_table(["quasi-identifiers needed", "rows"], sizes)
    scores, ihsn = suda.scores, suda.ihsn_scores
    print_lines(f"SUDA score: highest {scores.highest:.4g} (IHSN: {ihsn.highest:.4g}), mean {scores.average:.4g}")
    print_lines(f"DIS-SUDA score: highest {scores.highest_dis:.4g} (IHSN: {ihsn.highest_dis:.4g})")
    origins = {"call": "as given", "policy": "of the policy", "default": "the default"}
    fraction = f"{suda.fraction:g} ({origins[suda.fraction_by]})"
    print_lines(f"DIS: {suda.dis:.4g}, at a sampling fraction of {fraction}")
    contributions = sorted(scores.contributions.items(), key=lambda contribution: -contribution[1])
    print_table(
        ["quasi-identifier", "share of the scores"], [(name, f"{share:.1f} %") for name, share in contributions]
    )
