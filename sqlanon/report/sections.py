"""The sections of the page, each an HTML text. All that comes from outside is escaped here; charts are collected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlanon.markup import Marked, escaped, html_table
from sqlanon.measures import measure_named
from sqlanon.policy import PrivacySection
from sqlanon.policy.problems import read_part
from sqlanon.release.class_sizes import ClassSizes
from sqlanon.release.words import what_was_done
from sqlanon.report import charts as draw
from sqlanon.report.charts import STATUSES
from sqlanon.report.distributions import Distribution
from sqlanon.report.facts import Inside, ReportFacts, of_persons
from sqlanon.requirements import requirements_in

ROLES: Mapping[str, str] = {
    "identifying": "names people: left out",
    "quasi": "quasi-identifier: generalized",
    "sensitive": "sensitive",
    "insensitive": "not critical",
}


def sentences(policy: Mapping[str, Any]) -> list[str]:
    """The requirements of a policy as a manifest shows it, a sentence each."""
    section, _ = read_part(PrivacySection, policy.get("privacy"), "privacy", {})
    if section is None:
        return ["The manifest does not say in a readable way what was asked."]
    who = "people" if policy.get("persons") else "rows"
    found = [one.sentence(who) for one in requirements_in(section)]
    if section.confidence is not None:
        found.append(f"After noise, nobody is left nearly alone, with a confidence of {100 * section.confidence:g} %.")
    return found


def _choice(facts: ReportFacts) -> list[str]:
    """How the version was chosen, a sentence each."""
    claims = facts.claims
    asked = claims.policy.get("search", {})
    limit = asked.get("suppression_limit") or 0
    what = "At most " + f"{100 * float(limit):g} % of the rows may be left out." if limit else "No row may be left out."
    known = measure_named(claims.measure)
    measure = claims.measure if known is None else known.words
    proof = "It is proven that no other does better." if claims.optimal else "It is not proven to be the best."
    sentences = [what, f"Of the versions that meet all this, one was chosen by {measure}. {proof}"]
    if claims.policy.get("suppressed") == "mask":
        sentences.append("Rows that cannot be kept stay with all generalized columns hidden, where that is safe.")
    if claims.decoys:
        sentences.append(f"{claims.decoys:,} rows of nobody (decoys) fill groups that would be too small.")
    if claims.epsilon is not None:
        sentences.append(f"Noise protects what stays a number: a budget of ε = {claims.epsilon:g} a row.")
    return sentences


def _verdict(facts: ReportFacts) -> str:
    if not facts.holds:
        return "This release does NOT hold what it claims."
    if any(check.passed is None for check in facts.checks):
        return "All that can be checked holds; the rest needs the source."
    return "All requirements hold."


_VERDICTS = {
    True: Marked("holds", "holds"),
    False: Marked("FAILS", "fails"),
    None: Marked("not verifiable alone", "unsure"),
}
_PERSONS = "The policy counts persons, and a release does not show which rows are of one: no value of it is told."
_MANY = 200
"""Columns of which no more charts are drawn: the page stays small."""


def sections(facts: ReportFacts, inside: Inside | None, charts: dict[str, Any]) -> Iterator[str]:
    """All sections; fills ``charts`` with what is to be drawn, by the name of its place."""
    yield _head(facts)
    yield _policy(facts)
    yield _verdicts(facts, inside)
    if facts.sizes is None:
        yield "<p>The file does not hold what it claims: nothing else of it is shown.</p>"
    else:
        yield _columns(facts, inside, charts)
        yield _classes(facts, facts.sizes, inside, charts)
        yield _risk(facts, facts.sizes, inside, charts)
    if inside is not None:
        yield _search(facts, inside, charts)
        yield _strategies(inside, charts)
    yield _check_it(facts, inside)
    yield _versions(facts)


def _paragraphs(texts: Sequence[str]) -> str:
    return "\n".join(f"<p>{escaped(one)}</p>" for one in texts)


def _figure(charts: dict[str, Any], name: str, chart: Any, caption: str, table: str) -> str:
    spec = chart.to_dict()
    spec.pop("$schema", None)  # an address; the page says itself what it is
    charts[name] = spec
    return (
        f'<figure id="{name}"><figcaption>{escaped(caption)}</figcaption>\n<div class="plot" id="plot-{name}"></div>\n'
        f"<details><summary>The figures as a table</summary>{_scroll(table)}</details></figure>"
    )


def _scroll(table: str) -> str:
    return f'<div class="scroll">{table}</div>'


def _head(facts: ReportFacts) -> str:
    claims, sizes = facts.claims, facts.sizes
    kind = "holds" if facts.holds else "fails"
    what = "A release" if facts.published else "What would be released; nothing is published yet"
    figures = {
        "rows released": f"{claims.released_rows:,}",
        "rows left out": f"{claims.suppressed_rows:,}",
        "groups that look alike": f"{claims.classes:,}",
        "smallest group": f"{claims.smallest_class:,}",
    }
    if sizes is not None and sizes.rows:
        figures["average risk"] = _average(sizes)
    cells = "".join(f"<div><dt>{escaped(name)}</dt><dd>{escaped(value)}</dd></div>" for name, value in figures.items())
    return (
        f'<header><p class="soft">{escaped(what)}, as of {claims.published_at:%Y-%m-%d}.</p>\n'
        f"<h1>{escaped(claims.table_name)}: what was done to protect the people in it</h1>\n"
        f'<p class="verdict {kind}">{escaped(_verdict(facts))}</p>\n<dl class="figures">{cells}</dl></header>\n'
        "<noscript><p>The charts need JavaScript. All their figures are in the tables as well.</p></noscript>"
    )


def _policy(facts: ReportFacts) -> str:
    items = "".join(f"<li>{escaped(one)}</li>" for one in sentences(facts.claims.policy))
    return f"<section><h2>What was asked</h2>\n<ul>{items}</ul>\n{_paragraphs(_choice(facts))}</section>"


def _verdicts(facts: ReportFacts, inside: Inside | None) -> str:
    rows = [[check.name, _VERDICTS[check.passed], check.message] for check in facts.checks]
    table = html_table("Each requirement, and what else was checked", ["what", "verdict", "what was seen"], rows)
    warned = "".join(f"<li>{escaped(one)}</li>" for one in (() if inside is None else inside.warnings))
    warnings = f"<h3>What to know before sharing</h3>\n<ul>{warned}</ul>" if warned else ""
    return f"<section><h2>Does it hold?</h2>\n{table}{warnings}{_dependencies(inside)}</section>"


def _dependencies(inside: Inside | None) -> str:
    if inside is None or not inside.dependencies:
        return ""
    headings = ["released as it is", "narrows", "values of a label", "values left", "rows given away", "smallest group"]
    rows = [
        [" and ".join(one.columns), one.quasi, f"{one.before:,.1f}", f"{one.after:,.1f}", f"{100 * one.pinned:.1f} %",
         "" if one.smallest_group is None else one.smallest_group]
        for one in inside.dependencies
    ]  # fmt: skip
    return _scroll(html_table("Columns that narrow a quasi-identifier", headings, rows, [2, 3, 4, 5]))


def _columns(facts: ReportFacts, inside: Inside | None, charts: dict[str, Any]) -> str:
    done = [[one.name, ROLES.get(one.role, one.role), what_was_done(facts.claims, one.name)] for one in facts.columns]
    there = {one.name.lower() for one in facts.columns}
    attributes = facts.claims.policy.get("attributes", {})
    done += [
        [name, ROLES["identifying"], what_was_done(facts.claims, name)]
        for name, spec in attributes.items()
        if name.lower() not in there and spec.get("role") == "identifying"
    ]
    table = html_table("Each column, and what was done to it", ["column", "kind", "what was done"], done)
    parts = [f"<section><h2>What happened to each column</h2>\n{_scroll(table)}"]
    if inside is not None and inside.heights:
        rows_ = [[name, _level(inside.generalization.get(name)), height] for name, height in inside.heights.items()]
        levels = html_table("Levels", ["column", "level", "levels of its hierarchy"], rows_, [2])
        caption = "At level 0 a column reads as in the source; at the last of its levels all rows read the same."
        chart = draw.attributes(inside.heights, inside.generalization)
        parts.append(_figure(charts, "levels", chart, caption, levels))
    for place, one in enumerate(facts.columns[:_MANY]):
        parts.append(f"<h3>{escaped(one.name)}</h3>")
        parts.append(_distribution(facts, f"column-{place}", one.name, one.after, inside, charts))
    return "\n".join([*parts, "</section>"])


def _level(level: int | None) -> str:
    return "several" if level is None else str(level)


def _distribution(
    facts: ReportFacts, place: str, name: str, after: Distribution, inside: Inside | None, charts: dict[str, Any]
) -> str:
    before = None if inside is None else inside.before.get(name)
    text = _PERSONS if not after.bars and of_persons(facts.claims) else _in_words(after, facts.few)
    if not after.bars and not (before and before.bars):
        return f"<p>{escaped(text)}</p>"
    bars = [[label, rows] for label, rows in after.bars]
    headings, table = ["value", "rows"], ""
    if before is not None:
        of = [[label, rows] for label, rows in before.bars]
        table = html_table("In the source", headings, of, [1])
        text += f" In the source: {_in_words(before, 1)}"
    elif inside is not None:
        text += " In the source it was not counted."
    table = html_table("In the release", headings, bars, [1]) + table
    return _figure(charts, place, draw.distribution(name, after, before), text, table)


def _in_words(found: Distribution, few: int) -> str:
    """What is not in the chart."""
    if found.values is None:
        return "Ranges of its values, and the rows in each." if found.bars else "It has too few rows to tell of."
    if not found.others:
        return f"All of its {found.values:,} values." if found.values != 1 else "It has one value."
    if found.rare:  # how many would tell more of them
        few_ = f"fewer than {few} rows"
        if not found.bars:
            return f"Its values are in {few_} each, or would tell of such: none is shown."
        return f"The most frequent of its values. Not shown are those in {few_}, and more that would tell of these."
    return f"The most frequent of its {found.values:,} values; {found.others:,} are not shown."


def _classes(facts: ReportFacts, sizes: ClassSizes, inside: Inside | None, charts: dict[str, Any]) -> str:
    before = None if inside is None else inside.sizes
    caption = "Rows that agree in all generalized columns are a group: nobody can tell its members apart by these."
    tables = _sizes_table("In the release", sizes, facts.few, inside is not None)
    if before is not None:
        tables += _sizes_table("In the source", before, facts.few, True)
    chart = draw.classes(sizes, facts.few, before)
    figure = _figure(charts, "classes", chart, caption, tables)
    return f"<section><h2>How large the groups are</h2>\n{figure}</section>"


def _sizes_table(caption: str, sizes: ClassSizes, few: int, apart: bool) -> str:
    rows = [
        [draw.range_label(low, high, few, apart), classes, rows] for low, high, classes, rows in sizes.bins(few, apart)
    ]
    return html_table(caption, ["rows in a group", "groups", "rows"], rows, [1, 2])


def _risk(facts: ReportFacts, sizes: ClassSizes, inside: Inside | None, charts: dict[str, Any]) -> str:
    tables = {"release": sizes} if inside is None else {"source": inside.sizes, "release": sizes}
    figures = [
        ["highest risk of a row", *map(_highest, tables.values())],
        ["average risk of a row", *(_average(one) for one in tables.values())],
        [
            f"rows in groups of fewer than {facts.few}",
            *(f"{one.rows_where(lambda size: size < facts.few):,}" for one in tables.values()),
        ],
    ]  # fmt: skip
    table = html_table("Risk of being found", ["", *(f"in the {of}" for of in tables)], figures, [1, 2][: len(tables)])
    caption = (
        "Somebody who knows that a person is in the table, and all of that person's generalized columns, finds the "
        "right row with a chance of 1 in the size of the group."
    )
    shares = "".join(_shares(f"In the {of}", one, facts.few, inside is not None) for of, one in tables.items())
    text = "" if not of_persons(facts.claims) else "<p>Counted in rows; the policy counts persons.</p>"
    chart = draw.risk(sizes, facts.few, None if inside is None else inside.sizes)
    return f"<section><h2>Risk</h2>\n{text}{table}\n{_figure(charts, 'risk', chart, caption, shares)}</section>"


def _shares(caption: str, sizes: ClassSizes, few: int, apart: bool) -> str:
    rows = [
        [draw.range_label(low, high, few, apart, of_risk=True), f"{100 * rows / max(sizes.rows, 1):.3g} %"]
        for low, high, _, rows in sizes.bins(few, apart)
    ]
    return html_table(caption, ["risk of being found", "share of the rows"], rows, [1])


def _average(sizes: ClassSizes) -> str:
    return f"{100 * sizes.mean(lambda size: 1 / size):.3g} %"


def _highest(sizes: ClassSizes) -> str:
    return f"1 in {sizes.smallest:,}" if sizes.smallest else "none"


def _search(facts: ReportFacts, inside: Inside, charts: dict[str, Any]) -> str:
    names = list(inside.heights)
    counts: dict[str, int] = {}
    for _, status, n in inside.statuses:
        counts[status] = counts.get(status, 0) + n
    text = f"The lattice has {inside.nodes:,} generalizations; {inside.checked:,} were counted."
    if not inside.statuses:
        text = "This strategy does not search the lattice: there is no picture of it."
        return f"<section><h2>The alternatives</h2>\n<p>{escaped(text)}</p></section>"
    words_ = [[STATUSES[status][0], n] for status, n in counts.items()]
    table = html_table("Generalizations that were looked at", ["policy", "generalizations"], words_, [1])
    parts = [f"<section><h2>The alternatives</h2>\n<p>{escaped(text)}</p>"]
    if inside.counted:
        chart = draw.frontier(inside.counted, names, inside.measure, inside.allowed_rows)
        best = [
            [draw.levels_of(one, names), one.suppressed_rows, one.score, one.classes, "chosen" if one.chosen else ""]
            for one in inside.counted
            if one.frontier or one.chosen
        ][:100]
        headings = ["levels", "rows left out", inside.measure, "groups", ""]
        frontier = html_table("Beaten by no other in both", headings, best, [1, 2, 3])
        caption = (
            "Each mark is a version of the table that was counted: further left fewer rows are left out, further down "
            f"less is lost. Those on the line are beaten by none in both. {len(inside.counted):,} are drawn."
        )
        if inside.measure == "distinct":
            caption = caption.replace("further down less is lost", "further up more is kept")
        parts.append(_figure(charts, "frontier", chart, caption, frontier))
    if inside.lattice:
        chart = draw.lattice(inside.lattice, names)
        caption = "All generalizations: from the source as it is, at the bottom, to everything hidden, at the top."
        parts.append(_figure(charts, "lattice", chart, caption, table))
    else:
        chart = draw.statuses(inside.statuses)
        caption = "The generalizations that were looked at, by their number of steps."
        parts.append(_figure(charts, "lattice", chart, caption, table))
    return "\n".join([*parts, "</section>"])


def _strategies(inside: Inside, charts: dict[str, Any]) -> str:
    if not inside.compared:
        return ""
    headings = ["strategy", inside.measure, "loss", "groups", "rows left out", "seconds", ""]
    keys = ("strategy", "score", "loss", "classes", "suppressed_rows", "seconds", "error")
    table = html_table("What each strategy found", headings, [[one[key] for key in keys] for one in inside.compared],
                       [1, 2, 3, 4, 5])  # fmt: skip
    chart = draw.compared(inside.compared, inside.measure)
    figure = _figure(charts, "strategies", chart, "The same policy, several ways to look for an answer.", table)
    return f"<section><h2>Strategies compared</h2>\n{figure}</section>"


def _check_it(facts: ReportFacts, inside: Inside | None) -> str:
    parts = ["<section><h2>Check it yourself</h2>"]
    if facts.published:
        parts.append("<p>Open the release with DuckDB, and ask it. Or: <code>sqlanon verify</code> and its path.</p>")
    else:
        parts.append("<p>Once it is published, these can be asked in the release itself.</p>")
    statements = ";\n\n".join(facts.statements) + ";" if facts.statements else ""
    parts.append(f"<details><summary>The SQL of the checks</summary><pre>{escaped(statements)}</pre></details>")
    if inside is not None:
        makes = f"<pre>{escaped(inside.statement)}</pre>"
        parts.append(f"<details><summary>The SQL that makes the release</summary>{makes}</details>")
    return "\n".join([*parts, "</section>"])


def _versions(facts: ReportFacts) -> str:
    claims = facts.claims
    rows = [
        ["table", claims.table_name],
        ["published" if facts.published else "made", f"{claims.published_at:%Y-%m-%d %H:%M} UTC"],
        ["sqlanon", claims.sqlanon_version],
        ["engine", claims.engine],
        ["strategy", claims.policy.get("search", {}).get("strategy", "")],
        ["policy (SHA-256)", claims.policy_hash],
        *([["content digest", f"{claims.digest} ({claims.digest_algorithm})"]] if claims.digest else []),
        *([["manifest (SHA-256)", claims.fingerprint()]] if facts.published else []),
    ]
    table = html_table("What made it, and what tells it apart from others", ["what", "which"], rows)
    return f"<section><h2>Versions and hashes</h2>\n{table}</section>"
