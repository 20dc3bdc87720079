"""A suggested policy as TOML with comments: lines of at most 100 columns, as far as names and rules allow."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from sqlanon.disclosure.dependencies import Narrowing
from sqlanon.disclosure.residual_risk import format_percent
from sqlanon.requirements import require_distinct_values
from sqlanon.sources.persons import PersonColumn
from sqlanon.suggest.propose import Proposal
from sqlanon.suggest.trials import DISTINCT_VALUES, Diversity, Trial, choose_trial, explain_choice
from sqlanon.support.toml import toml_key, toml_text, toml_value

K = 5
SUPPRESSION_LIMIT = Decimal("0.05")

_MAX_SETS = 5
_WIDTH = 100
_STOPPED = "stopped by the time limit"


@dataclass(frozen=True)
class Findings:
    """Findings on a table, for the comments; every ``step``-th row was read.

    ``combinations``: sets of columns, with their distinct combinations and the rows that were read. ``warnings``: parts
    of files that are left out. ``unmeasured``: quasi-identifiers without a search for columns that narrow them.
    """

    rows: int
    step: int
    combinations: Sequence[tuple[Sequence[str], int, int]]
    narrowing: Sequence[Narrowing]
    trials: Sequence[Trial]
    diversity: Sequence[Diversity]
    person: PersonColumn | None = None
    warnings: Sequence[str] = ()
    unmeasured: Sequence[str] = ()


def policy_text(
    source: Mapping[str, object], release: Mapping[str, str], proposals: Sequence[Proposal], findings: Findings
) -> str:
    size = f"{findings.rows:,} rows"
    if findings.step > 1:
        size += f" (about one in {findings.step:,} was read)"
    best = choose_trial(findings.trials)
    lines = [
        *comment_lines(
            f"A policy to start from, written by `sqlanon suggest` for a table of {size}. sqlanon sees only names, "
            "types and statistics; you know what the columns mean. Read every line before you share a release. Keep "
            "this file as private as the table."
        ),
        "",
        *_source_section(source, findings),
        "",
        *comment_lines("identifying: never released. quasi: others may know it, so it is generalized."),
        *comment_lines("sensitive: others must not learn it. insensitive: neither. Both are released unchanged."),
        *_column_comments(proposals, findings),
        "[attributes]",
        *(line for proposal in proposals for line in attribute_lines(proposal)),
        "",
        "[privacy]",
        f"k = {K}  # everyone shares their values with at least k - 1 others",
        *(line for diversity in findings.diversity for line in _diversity(diversity, best)),
        "",
        "[search]",
        *_strategy(findings, best),
        f"suppression_limit = {SUPPRESSION_LIMIT}  # at most this share of the "
        f"{'rows is left out' if findings.person is None else 'persons loses rows'}",
        "time_limit = 60  # seconds; then the best release so far is taken",
        "",
        "[release]",
        *key_lines(release),
    ]
    return "\n".join(lines) + "\n"


def _source_section(source: Mapping[str, object], findings: Findings) -> list[str]:
    decisions = ("person", "value_labels", "user_missing", "csv")
    lines = ["[source]"]
    if "query" in source:
        lines += comment_lines("Texts such as 12 and NA become numbers and NULL: intervals need numbers.")
    lines += key_lines({name: value for name, value in source.items() if name not in decisions})
    if (columns := source.get("value_labels")) is not None:
        reason = "The columns whose labels are read: each of their values has one. false: codes are read."
        if columns is False:
            reason = (
                "No column has a label for each of its values, so codes are read. A list names columns whose labels "
                "are read."
            )
        lines += [*comment_lines(reason), *key_lines({"value_labels": columns})]
    if "user_missing" in source:
        reason = 'User-missing values, such as 9 for no answer, are NULL. "keep": they are values like others.'
        lines += [*comment_lines(reason), *key_lines({"user_missing": source["user_missing"]})]
    if (person := findings.person) is not None:
        reason = (
            f"{person.distinct:,} values of {toml_key(person.name)} number people, who have "
            f"{person.rows_per_person:.3g} rows on average: classes count persons, not rows. false: each row is a "
            "person."
        )
        if person.missing:
            rows = "row without a value counts" if person.missing == 1 else "rows without a value count"
            reason += f" The {person.missing:,} {rows} as one person in each class."
        lines += [*comment_lines(reason), f"person = {toml_value(person.name)}"]
    if isinstance(csv := source.get("csv"), Mapping):
        warnings = [_first_sentence(warning.removeprefix("source.csv: ")) for warning in findings.warnings]
        lines += ["", "[source.csv]"]
        lines += [*(line for warning in warnings for line in comment_lines(warning)), *key_lines(csv)]
    return lines


def _column_comments(proposals: Sequence[Proposal], findings: Findings) -> list[str]:
    """Comments on columns that are not released, that single out rows, or that narrow others."""
    lines: list[str] = []
    if withheld := [proposal.column.name for proposal in proposals if proposal.role == "identifying"]:
        lines += comment_lines(f"Not released, {len(withheld)} of {len(proposals)} columns: {join_keys(withheld)}.")
    sets = [figures for figures in findings.combinations if len(figures[0]) > 1 and figures[2]]
    if sets:
        sets.sort(key=lambda figures: (-figures[1], len(figures[0])))  # otherwise in the order of the columns
        rows = f"{sets[0][2]:,} rows" + (" read" if findings.step > 1 else "")
        lines += comment_lines(f"Distinct combinations in the {rows} (the more, the easier to recognize):")
        for attributes, distinct, _ in sets[:_MAX_SETS]:
            lines += comment_lines(f"  {distinct:,}: {join_keys(attributes)}", "    ")
    if findings.narrowing:
        lines += comment_lines(
            "Whoever knows these sensitive columns of a person can narrow generalized values down. If others may know "
            "one, make it quasi:"
        )
    for narrowing in findings.narrowing:
        values = f"of {narrowing.before:,.1f} values of {toml_key(narrowing.quasi)}, {narrowing.after:,.1f} are left"
        lines += comment_lines(f"  {join_keys(narrowing.columns)}: {values}", "    ")
    if findings.unmeasured:
        names = join_keys(findings.unmeasured)
        lines += comment_lines(f"Columns that reveal these were not searched for; `anonymize` does it: {names}")
    return lines


def attribute_lines(proposal: Proposal) -> list[str]:
    """The line of an attribute, with its reason after it if it fits, otherwise above."""
    rule, name = proposal.hierarchy if proposal.shown is None else proposal.shown, toml_key(proposal.column.name)
    is_released = proposal.role != "identifying"
    spec = (
        {"role": proposal.role}
        | (dict(proposal.reading.keys) if is_released else {})
        | ({} if rule is None else {"hierarchy": rule})
        | ({"min_level": 1} if proposal.hidden else {})
    )
    line = _fold(f"{name} = ", spec)
    notes = [_printable(note) for note in proposal.reading.comments] if is_released else []
    if proposal.reason and len(line) + len(proposal.reason) + 4 <= _WIDTH and "\n" not in line:
        line += f"  # {proposal.reason}"
    elif proposal.reason:
        notes.append(proposal.reason)
    return [*(comment for note in notes for comment in comment_lines(f"{name}: {note}")), line]


def _strategy(findings: Findings, best: Trial | None) -> list[str]:
    """The figures of all trials, and the keys of the best one."""
    if best is None:
        return _strategy_without_figures(findings.trials)
    rows = f"a sample of {best.rows:,}" if best.rows < findings.rows else f"all {findings.rows:,}"
    lines = comment_lines(
        f"Strategies tried on {rows} rows with k = {K} alone. Loss: 0 if nothing is lost, 1 if everything is. Counts: "
        "the mean error of typical counts from the release."
    )
    table = [("strategy", "loss", "rows", "counts"), *map(_figures, findings.trials)]
    name_width, *widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for name, *figures in table:
        cells = (f"{figure:>{width}}" for figure, width in zip(figures, widths, strict=True))
        lines.append("  ".join([f"#   {name:<{name_width}}", *cells]))
    for trial in findings.trials:
        if trial.stopped or trial.error is not None or trial.fully_suppressed:
            lines += comment_lines(f"  {trial.name}: {', '.join(_remarks(trial))}", "    ")
    if any(trial.stopped for trial in findings.trials):
        lines += comment_lines("Stopped strategies may lose less with more time: sqlanon compare shows it.")
    if not best.is_full_domain:
        lines += comment_lines("`extend` and `live` need a full-domain strategy, such as optimal.")
    return lines + _search_keys(best, explain_choice(best, findings.trials))


def _strategy_without_figures(trials: Sequence[Trial]) -> list[str]:
    """The first strategy that was started: it usually keeps the most."""
    started = next((trial for trial in trials if trial.stopped and trial.seconds > 0), None)
    if started is None:
        return []
    lines = comment_lines("No trial of a strategy finished within the time limit: sqlanon compare has more time.")
    return lines + _search_keys(started, "it usually keeps the most")


def _search_keys(trial: Trial, reason: str) -> list[str]:
    (key, strategy), *options = trial.search.items()
    defaults = ("range", "rows")
    lines = key_lines({name: value for name, value in options if value not in defaults})
    return [f"{key} = {toml_value(strategy)}  # {reason}", *lines]


def _figures(trial: Trial) -> tuple[str, str, str, str]:
    """A strategy with its loss, the share of released rows, and the error of counts."""
    if trial.loss is None or trial.count_error is None:
        return trial.name, "-", "-", "-"
    share = format_percent(trial.released_rows / max(1, trial.rows))
    return trial.name, f"{trial.loss:.2g}", share, format_percent(trial.count_error)


def _remarks(trial: Trial) -> list[str]:
    if trial.error is not None:
        return [_STOPPED if trial.stopped else _first_sentence(trial.error)]
    suppressed = [f"{join_keys(trial.fully_suppressed)} fully suppressed"] if trial.fully_suppressed else []
    return [*([_STOPPED] if trial.stopped else []), *suppressed]


def _describe_result(trial: Trial) -> str:
    if trial.error is not None or trial.loss is None:
        return ", ".join(_remarks(trial))
    parts = [f"stopped at a loss of {trial.loss:.2g}" if trial.stopped else f"loss {trial.loss:.2g}"]
    if trial.suppressed_rows:
        parts.append(f"leaves out {100 * trial.suppressed_rows / trial.rows:.1f} % of the rows")
    return ", ".join([*parts, *_remarks(trial)[trial.stopped :]])


def _diversity(diversity: Diversity, best: Trial | None) -> list[str]:
    """Two values of a sensitive attribute in each class: the requirement if it is affordable, otherwise its cost."""
    name, trial = toml_key(diversity.attribute), diversity.trial
    risk = f"Rows in groups that share one {name} give it away."
    if best is not None and best.released_rows:
        risk = f"Without this, new rows may share one {name} in their group, which gives it away."
        if share := best.homogeneous[diversity.attribute] / best.released_rows:
            percent = format_percent(share)
            risk = f"Without this, {percent} of the rows are in groups that share one {name}, which gives it away."
    if trial is None:
        cost = "Not tried."
    elif trial.loss is None or best is None or best.loss is None or (trial.stopped and not diversity.affordable):
        cost = f"Not active: {_describe_result(trial)}."
    else:
        is_equal = f"{trial.loss:.2g}" == f"{best.loss:.2g}"
        cost = "It costs nothing here." if is_equal else f"Loss {trial.loss:.2g} instead of {best.loss:.2g}."
        suppressed = [column for column in trial.fully_suppressed if column not in best.fully_suppressed]
        if suppressed:
            cost += f" Not active: {join_keys(suppressed)} would be fully suppressed."
        elif not diversity.affordable:
            cost += " Not active: you decide."
    key, entry = require_distinct_values(diversity.attribute, DISTINCT_VALUES)
    section = [f"[[privacy.{key}]]", *key_lines(entry)]
    mark = "" if diversity.affordable else "# "
    return [*comment_lines(f"{risk} {cost}"), *(f"{mark}{line}" for line in section)]


def comment_lines(text: str, indent: str = "") -> list[str]:
    """A comment, folded between words. Names in it are written as in TOML, so that nothing ends its line."""
    lines = textwrap.wrap(text, _WIDTH - 2 - len(indent), break_long_words=False, break_on_hyphens=False)
    return [f"# {indent if i else ''}{line}" for i, line in enumerate(lines)]


def key_lines(section: Mapping[str, object]) -> list[str]:
    """The lines of keys with their values."""
    return [_fold(f"{toml_key(key)} = ", value) for key, value in section.items()]


def _fold(start: str, value: object) -> str:
    """A key with its value in one line if it fits, otherwise with lists over several lines: only in lists can an inline
    table of TOML have line breaks."""
    line = f"{start}{toml_value(value)}"
    return line if len(line) <= _WIDTH else f"{start}{_fold_lists(value)}"


def _fold_lists(value: object) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{toml_key(key)} = {_fold_lists(item)}' for key, item in value.items())} }}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        lines, line = list[str](), ""
        for item in map(toml_value, value):
            if line and len(line) + len(item) + 4 > _WIDTH:
                lines.append(line)
                line = ""
            line += f" {item}," if line else f"  {item},"
        return "\n".join(["[", *lines, line, "]"])
    return toml_value(value)


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)


def join_keys(names: Sequence[str]) -> str:
    """Names as TOML writes them, with commas."""
    return ", ".join(map(toml_key, names))


def _first_sentence(error: str) -> str:
    """The first sentence of an error, with the characters that a comment may have."""
    return toml_text(error.split("\n", maxsplit=1)[0].split(". ", maxsplit=1)[0])[1:-1]
