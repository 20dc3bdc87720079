"""A policy as TOML, with comments: lines of at most 100 columns, as far as names and rules allow."""

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
from sqlanon.suggest.trials import DIFFERENT, Diversity, Trial, chosen, why_chosen
from sqlanon.support.toml import toml_key, toml_text, toml_value

K = 5
SUPPRESSION_LIMIT = Decimal("0.05")

_SHOWN = 5
_WIDTH = 100  # columns


@dataclass(frozen=True)
class Seen:
    """What was seen of a table, every ``step``-th row of it: for the comments. ``combinations``: sets of columns, with
    their distinct combinations and the rows that were looked at; ``warnings``: what was left out of files;
    ``unmeasured``: the quasi-identifiers of which it was not measured what gives them away."""

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
    source: Mapping[str, object], release: Mapping[str, str], proposals: Sequence[Proposal], seen: Seen
) -> str:
    size = f"{seen.rows:,} rows" + (f", of which about one in {seen.step:,} was read" if seen.step > 1 else "")
    best = chosen(seen.trials)
    who = "rows is left out" if seen.person is None else "persons loses rows"
    lines = [
        *_comment(
            f"A policy to start from, written by `sqlanon suggest` for a table of {size}. sqlanon goes by names, types "
            "and figures; you know what the columns mean. Read every line before you share a release. Keep this file "
            "as private as the table."
        ),
        "",
        "[source]",
        *(
            _comment("Texts such as 12 and NA become numbers and NULL: intervals need numbers.")
            if "query" in source
            else []
        ),
        *_pairs({name: value for name, value in source.items() if name not in _DECIDED_BY_PEOPLE}),
        *_about_reading(source),
        *_about_person(seen.person),
        *_about_csv(source, seen.warnings),
        "",
        *_comment("identifying: never released. quasi: others may know it, so it is generalized."),
        *_comment("sensitive: nobody should learn it. insensitive: neither. Both are released unchanged."),
        *_not_released(proposals),
        *_most_combinations(seen),
        *_what_narrows(seen.narrowing),
        *_not_measured(seen.unmeasured),
        "[attributes]",
        *(line for one in proposals for line in _attribute(one)),
        "",
        "[privacy]",
        f"k = {K}  # everyone shares their values with at least k - 1 others",
        *(line for one in seen.diversity for line in _about_diversity(one, best)),
        "",
        "[search]",
        *_about_strategies(seen, best),
        f"suppression_limit = {SUPPRESSION_LIMIT}  # at most this share of the {who}",
        "time_limit = 60  # seconds; then the best version so far is taken",
        "",
        "[release]",
        *_pairs(release),
    ]
    return "\n".join(lines) + "\n"


_DECIDED_BY_PEOPLE = ("person", "value_labels", "user_missing", "csv")


def _about_csv(source: Mapping[str, object], warnings: Sequence[str]) -> list[str]:
    csv = source.get("csv")
    if not isinstance(csv, Mapping):
        return []
    comments = [line for warning in warnings for line in _comment(_plain(warning.removeprefix("source.csv: ")))]
    return ["", "[source.csv]", *comments, *_pairs(csv)]


def _about_reading(source: Mapping[str, object]) -> list[str]:
    """How value labels and missing codes are read: both can be decided otherwise."""
    lines: list[str] = []
    if (columns := source.get("value_labels")) is not None:
        reason = (
            "In no column all values have a label, so codes are read. A list names columns whose labels are read."
            if columns is False
            else "The columns whose labels are read: each of their values has one. false: codes are read."
        )
        lines += [*_comment(reason), *_pairs({"value_labels": columns})]
    if "user_missing" in source:
        reason = 'User-missing values, such as 9 for no answer, are NULL. "keep": they are values like others.'
        lines += [*_comment(reason), *_pairs({"user_missing": source["user_missing"]})]
    return lines


def _about_person(person: PersonColumn | None) -> list[str]:
    if person is None:
        return []
    name = toml_key(person.name)
    reason = (
        f"{person.distinct:,} values of {name} number people, who have {person.rows_per_person:.3g} rows on average: "
        "classes count persons, not rows. false: each row is a person."
    )
    if person.missing:
        rows = "row without a value counts" if person.missing == 1 else "rows without a value count"
        reason += f" The {person.missing:,} {rows} as one person in each class."
    return [*_comment(reason), f"person = {toml_value(person.name)}"]


def _comment(text: str, indent: str = "") -> list[str]:
    """A comment, folded between words. Names in it are as TOML writes them: nothing ends its line."""
    width = _WIDTH - 2 - len(indent)
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False, drop_whitespace=True)
    return [f"# {indent if i else ''}{line}" for i, line in enumerate(lines)]


def _pairs(section: Mapping[str, object]) -> list[str]:
    return [_folded(f"{toml_key(key)} = ", value) for key, value in section.items()]


def _folded(before: str, value: object, after: str = "") -> str:
    """A key with its value: in one line where it fits, else with a line for each list. (Inside of a list, and only
    there, a TOML table in braces may have line breaks.)"""
    plain = f"{before}{toml_value(value)}{after}"
    return plain if len(plain) <= _WIDTH else f"{before}{_in_lines(value)}{after}"


def _in_lines(value: object) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{toml_key(key)} = {_in_lines(one)}' for key, one in value.items())} }}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        lines, line = list[str](), ""
        for one in map(toml_value, value):
            if line and len(line) + len(one) + 4 > _WIDTH:
                lines.append(line)
                line = ""
            line += f" {one}," if line else f"  {one},"
        return "\n".join(["[", *lines, line, "]"])
    return toml_value(value)


def _attribute(one: Proposal) -> list[str]:
    """The line of an attribute, with the reason behind it where it fits, else before it."""
    rule = one.hierarchy if one.shown is None else one.shown
    value = (
        {"role": one.role}
        | ({} if one.role == "identifying" else dict(one.reading.keys))
        | ({} if rule is None else {"hierarchy": rule})
        | ({"min_level": 1} if one.hidden else {})
    )
    line = _folded(f"{toml_key(one.column.name)} = ", value)
    notes = [] if one.role == "identifying" else one.reading.comments
    about = [line for note in notes for line in _comment(f"{toml_key(one.column.name)}: {_in_line(note)}")]
    if len(line) + len(one.reason) + 4 <= _WIDTH and "\n" not in line:
        return [*about, f"{line}  # {one.reason}"]
    return [*about, *_comment(f"{toml_key(one.column.name)}: {one.reason}"), line]


def _in_line(note: str) -> str:
    """A note with the characters that a comment may have."""
    return "".join(one if one.isprintable() else " " for one in note)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(toml_key, names))


def _not_released(proposals: Sequence[Proposal]) -> list[str]:
    """Name the columns that the policy does not release; their reasons stand beside their roles."""
    names = [one.column.name for one in proposals if one.role == "identifying"]
    return _comment(f"Not released, {len(names)} of {len(proposals)} columns: {_listed(names)}.") if names else []


def _most_combinations(seen: Seen) -> list[str]:
    """The sets of columns with the most combinations: they single out the most rows."""
    several = [one for one in seen.combinations if len(one[0]) > 1 and one[2]]
    if not several:
        return []
    several.sort(key=lambda one: (-one[1], len(one[0])))  # the rest in the order of the columns
    of = f"{several[0][2]:,} rows" + (" read" if seen.step > 1 else "")
    lines = _comment(f"Distinct combinations in the {of} (the more, the easier to recognize):")
    for names, distinct, _ in several[:_SHOWN]:
        lines += _comment(f"  {distinct:,}: {_listed(names)}", "    ")
    return lines


def _what_narrows(dependencies: Sequence[Narrowing]) -> list[str]:
    if not dependencies:
        return []
    lines = _comment(
        "Whoever knows these sensitive columns of a person can narrow generalized values down. If others may know one, "
        "make it quasi:"
    )
    for one in dependencies:
        rest = f"of {one.before:,.1f} values of {toml_key(one.quasi)}, {one.after:,.1f} are left"
        lines += _comment(f"  {_listed(one.columns)}: {rest}", "    ")
    return lines


def _not_measured(names: Sequence[str]) -> list[str]:
    return _comment(f"What gives these away was not measured; `anonymize` does: {_listed(names)}") if names else []


def _about_strategies(seen: Seen, best: Trial | None) -> list[str]:
    """The figures of all strategies, and the keys that choose the best of them."""
    if best is None:
        return _without_figures(seen)
    of = f"a sample of {best.rows:,}" if best.rows < seen.rows else f"all {seen.rows:,}"
    lines = _comment(
        f"Strategies tried on {of} rows with k = {K} alone. Loss: 0 if nothing is lost, 1 if everything is. Counts: by "
        "how much typical counts from the release are off."
    )
    lines += [f"# {line}" for line in _table([_FIGURES, *map(_figures, seen.trials)])]
    for one in seen.trials:
        if remark := _remark(one):
            lines += _comment(f"  {one.name}: {remark}", "    ")
    if any(one.stopped for one in seen.trials):
        lines += _comment("Those that were stopped may lose less with more time: sqlanon compare shows it.")
    if not best.is_full_domain:
        lines += _comment("`extend` and `live` need a full-domain strategy, such as optimal.")
    first, *others = best.search.items()
    lines.append(f"{first[0]} = {toml_value(first[1])}  # {why_chosen(best, seen.trials)}")
    return lines + _pairs({key: value for key, value in others if value not in ("range", "rows")})


_FIGURES = ("strategy", "loss", "rows", "counts")


def _figures(one: Trial) -> tuple[str, ...]:
    """A strategy with its loss, the share of the rows that it releases, and the error of counts."""
    if one.loss is None or one.count_error is None:
        return one.name, "-", "-", "-"
    return (
        one.name,
        f"{one.loss:.2g}",
        format_percent(one.released_rows / max(1, one.rows)),
        format_percent(one.count_error),
    )


def _remark(one: Trial) -> str:
    """What the figures of a strategy do not say."""
    if one.error is not None:
        return "stopped by the time limit" if one.stopped else _plain(one.error)
    parts = ["stopped by the time limit"] if one.stopped else []
    parts += [f"{_listed(one.fully_suppressed)} fully suppressed"] if one.fully_suppressed else []
    return ", ".join(parts)


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows of text, in columns."""
    name, *widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([f"  {row[0]:<{name}}", *(f"{cell:>{width}}" for cell, width in zip(row[1:], widths, strict=True))])
        for row in rows
    ]


def _without_figures(seen: Seen) -> list[str]:
    """Where no strategy has a figure: the first one that was begun, which usually keeps the most."""
    begun = next((one for one in seen.trials if one.stopped and one.seconds > 0), None)
    if begun is None:
        return []
    lines = _comment("No strategy was tried to its end within the time limit: sqlanon compare has more time.")
    first, *others = begun.search.items()
    lines.append(f"{first[0]} = {toml_value(first[1])}  # it usually keeps the most")
    return lines + _pairs(dict(others))


def _tried(one: Trial) -> str:
    if one.error is not None:
        return "stopped by the time limit" if one.stopped else _plain(one.error)
    parts = [f"stopped at a loss of {one.loss:.2g}" if one.stopped else f"loss {one.loss:.2g}"]
    if one.suppressed_rows:
        parts.append(f"leaves out {100 * one.suppressed_rows / one.rows:.1f} % of the rows")
    if one.fully_suppressed:
        parts.append(f"{_listed(one.fully_suppressed)} fully suppressed")
    return ", ".join(parts)


def _plain(error: str) -> str:
    """The first sentence of an error, with the characters that a comment may have."""
    return toml_text(error.split("\n", maxsplit=1)[0].split(". ", maxsplit=1)[0])[1:-1]


def _about_diversity(one: Diversity, best: Trial | None) -> list[str]:
    """Two values of a sensitive attribute in each class: active, or what it would cost."""
    name, trial = toml_key(one.attribute), one.trial
    risk = f"Rows in groups that share one {name} give it away."
    if best is not None and best.released_rows:
        share = best.homogeneous[one.attribute] / best.released_rows
        risk = f"Without this, new rows may share one {name} in their group, which gives it away."
        if share:
            percent = format_percent(share)
            risk = f"Without this, {percent} of the rows are in groups that share one {name}, which gives it away."
    if trial is None:
        cost = "Not tried."
    elif trial.loss is None or best is None or (trial.stopped and not one.kept):
        cost = f"Not active: {_tried(trial)}."
    else:
        same = f"{trial.loss:.2g}" == f"{best.loss:.2g}"
        cost = "It costs nothing here." if same else f"Loss {trial.loss:.2g} instead of {best.loss:.2g}."
        gone = [name for name in trial.fully_suppressed if name not in best.fully_suppressed]
        cost += f" Not active: {_listed(gone)} would be fully suppressed." if gone else ""
        cost += "" if one.kept or gone else " Not active: you decide."
    key, entry = require_distinct_values(one.attribute, DIFFERENT)
    section = [f"[[privacy.{key}]]", *(f"{name} = {toml_value(value)}" for name, value in entry.items())]
    return [*_comment(f"{risk} {cost}"), *(section if one.kept else [f"# {line}" for line in section])]
