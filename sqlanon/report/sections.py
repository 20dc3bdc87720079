"""The sections of the page, each an HTML text. All that comes from outside is escaped here; charts are collected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlanon.disclosure.class_sizes import ClassSizes
from sqlanon.disclosure.residual_risk import format_percent
from sqlanon.measures import find_measure
from sqlanon.policy import PrivacySection
from sqlanon.policy.problems import read_part
from sqlanon.release.sentences import describe_treatment
from sqlanon.report import charts as draw
from sqlanon.report.charts import STATUSES
from sqlanon.report.distributions import Distribution
from sqlanon.report.explorer import controls
from sqlanon.report.facts import Inside, ReportFacts, of_persons
from sqlanon.report.overview import glossary, risks, shown_average_risk
from sqlanon.report.utility import MOST, changed, in_years, pairs_that_moved, range_kind, rounded
from sqlanon.requirements import list_requirements
from sqlanon.requirements.audit import Check
from sqlanon.support.markup import StyledText, escape_chart_text, escape_html, html_table

ROLES: Mapping[str, str] = {
    "identifying": "identifying",
    "quasi": "quasi-identifier",
    "sensitive": "sensitive",
    "insensitive": "insensitive",
}


def sentences(policy: Mapping[str, Any]) -> list[str]:
    """The requirements of a policy as a manifest shows it, a sentence each."""
    section, _ = read_part(PrivacySection, policy.get("privacy"), "privacy", {})
    if section is None:
        return ["The manifest does not say in a readable way what the policy requires."]
    who = "people" if policy.get("persons") else "rows"
    found = [one.sentence(who) for one in list_requirements(section)]
    if section.confidence is not None:
        found.append(f"After noise, nobody is left nearly alone, with a confidence of {100 * section.confidence:g} %.")
    return found


def _choice(facts: ReportFacts, inside: Inside | None) -> list[str]:
    """How the version was chosen, a sentence each."""
    claims = facts.claims
    asked = claims.policy.get("search", {})
    limit = asked.get("suppression_limit") or 0
    share = f"At most {100 * float(limit):g} % of the "
    may = "people may lose rows." if of_persons(claims) else "rows may be left out."
    what = share + may if limit else "No row may be left out."
    known = find_measure(claims.measure)
    measure = claims.measure if known is None else known.description
    if inside is not None:
        proof = f"It is {inside.proof}."
    elif claims.optimal:
        proof = "No other full-domain generalization does better: that is proven."
    else:
        proof = "Whether it is the best is not shown."
    sentences = [what, f"Among the versions that meet these requirements, this one was chosen by {measure}. {proof}"]
    if claims.policy.get("suppressed") == "mask":
        sentences.append("Rows that cannot be kept stay with all generalized columns hidden, where that is safe.")
    if claims.decoys:
        sentences.append(f"{claims.decoys:,} rows of nobody (decoys) fill groups that would be too small.")
    if claims.epsilon is not None:
        sentences.append(f"Noise protects what stays a number: a budget of ε = {claims.epsilon:g} a row.")
    return sentences


_VERDICTS = {
    True: StyledText("holds", "holds"),
    False: StyledText("FAILS", "fails"),
    None: StyledText("not verifiable alone", "unsure"),
}
_PERSONS = "The policy counts persons, and a release does not show which rows are of one person: no value is shown."
_MANY = 200
"""Columns of which no more charts are drawn: the page stays small."""


@dataclass(frozen=True)
class PageSection:
    """A section of the page: its anchor, its title, and its HTML without either."""

    anchor: str
    title: str
    body: str

    def __str__(self) -> str:
        title = escape_html(self.title)
        return (
            f'<section id="{self.anchor}" aria-labelledby="{self.anchor}-title">'
            f'<h2 id="{self.anchor}-title">{title}</h2>\n{self.body}</section>'
        )


def sections(facts: ReportFacts, inside: Inside | None, charts: dict[str, Any]) -> Iterator[PageSection]:
    """All sections; fills ``charts`` with what is to be drawn, by the name of its place."""
    if facts.sizes is not None:
        yield PageSection("risks", "What could still go wrong", risks(facts, inside))
    yield PageSection("policy", "What the policy requires", _policy(facts, inside))
    yield PageSection("checks", "Does it hold?", _verdicts(facts, inside))
    if facts.sizes is None:
        yield PageSection(
            "broken", "The rest", "<p>The file is not what it claims to be, so the page shows no more.</p>"
        )
    else:
        yield PageSection("columns", "What happened to each column", _columns(facts, inside, charts))
        yield PageSection("groups", "How large the groups are", _classes(facts, facts.sizes, inside, charts))
        yield PageSection("found", "Risk of being found", _risk(facts, facts.sizes, inside, charts))
        yield PageSection("utility", "What the release is still good for", utility(facts, inside))
    if inside is not None:
        if inside.explorer is not None:
            yield PageSection("explore", "Try other settings", controls(inside.explorer))
        yield PageSection("alternatives", "The alternatives", _search(facts, inside, charts))
        if inside.compared:
            yield PageSection("strategies", "Strategies compared", _strategies(inside, charts))
    yield PageSection("verify", "Check it yourself", _check_it(facts, inside))
    yield PageSection("glossary", "Glossary", glossary())
    yield PageSection("versions", "Versions and hashes", _versions(facts))


def navigation(found: Sequence[PageSection]) -> str:
    links = "".join(f'<li><a href="#{one.anchor}">{escape_html(one.title)}</a></li>' for one in found)
    return f'<nav aria-label="Sections"><ul>{links}</ul></nav>'


def _paragraphs(texts: Sequence[str]) -> str:
    return "\n".join(f"<p>{escape_html(one)}</p>" for one in texts)


def _figure(charts: dict[str, Any], name: str, chart: Any, caption: str, table: str) -> str:
    spec = chart.to_dict()
    spec.pop("$schema", None)  # an address; the page says itself what it is
    spec["description"] = escape_chart_text(caption)
    charts[name] = spec
    return (
        f'<figure id="{name}"><figcaption>{escape_html(caption)}</figcaption>\n'
        f'<div class="plot" id="plot-{name}"></div>\n'
        f"<details><summary>The figures as a table</summary>{_scroll(table)}</details></figure>"
    )


def _scroll(table: str) -> str:
    return f'<div class="scroll">{table}</div>'


def _policy(facts: ReportFacts, inside: Inside | None) -> str:
    items = "".join(f"<li>{escape_html(one)}</li>" for one in sentences(facts.claims.policy))
    return f"<ul>{items}</ul>\n{_paragraphs(_choice(facts, inside))}"


def _verdicts(facts: ReportFacts, inside: Inside | None) -> str:
    """The requirements, and what else failed; the checks of the file fold away."""
    names = {one.name for one in facts.requirements}
    integrity = [check for check in facts.checks if check.name not in names and check.passed is True]
    first = [check for check in facts.checks if check not in integrity]
    headings = ["requirement or check", "result", "what was found"]
    table = ""
    if first:
        table = _scroll(html_table("Requirements", headings, _verdict_rows(first)))
    if integrity:
        count = "One check" if len(integrity) == 1 else f"{len(integrity):,} checks"
        inner = _scroll(html_table("Checks of the release itself", headings, _verdict_rows(integrity)))
        table += f"<details><summary>{count} of the release itself: all passed</summary>{inner}</details>"
    warned = "".join(f"<li>{escape_html(one)}</li>" for one in (() if inside is None else inside.warnings))
    warnings = f"<h3>What to know before sharing</h3>\n<ul>{warned}</ul>" if warned else ""
    return f"{table}{warnings}{_dependencies(inside)}"


def _verdict_rows(checks: Sequence[Check]) -> list[list[object]]:
    return [[check.name, _VERDICTS[check.passed], check.message] for check in checks]


def _dependencies(inside: Inside | None) -> str:
    if inside is None or not inside.dependencies:
        return ""
    headings = ["released as it is", "narrows", "values of a label", "values left", "rows given away", "smallest group"]
    rows = [
        [" and ".join(one.columns), one.quasi if one.level == 0 else f"{one.quasi} ({one.unit})",
         f"{one.before:,.1f}", f"{one.after:,.1f}", f"{100 * one.pinned:.1f} %",
         "" if one.smallest_group is None else one.smallest_group]
        for one in inside.dependencies
    ]  # fmt: skip
    return _scroll(html_table("Columns that narrow a quasi-identifier", headings, rows, [2, 3, 4, 5]))


NOT_RELEASED = "not in the policy's attributes: not released"
_UNNAMED = (
    "Columns of the source that the policy gives no role, numbers of persons and keys are not released; a private page "
    "names them."
)


def _columns(facts: ReportFacts, inside: Inside | None, charts: dict[str, Any]) -> str:
    done = [
        [one.name, ROLES.get(one.role, one.role), describe_treatment(facts.claims, one.name)] for one in facts.columns
    ]
    there = {one.name.lower() for one in facts.columns}
    attributes = facts.claims.policy.get("attributes", {})
    done += [
        [name, ROLES["identifying"], describe_treatment(facts.claims, name)]
        for name, spec in attributes.items()
        if name.lower() not in there and spec.get("role") == "identifying"
    ]
    named = {name.lower() for name in (*there, *map(str.lower, attributes))}
    done += [
        [name, NOT_RELEASED, "left out"]
        for name in (() if inside is None else inside.source_columns)
        if name.lower() not in named
    ]
    table = html_table("Each column, and what was done to it", ["column", "kind", "what was done"], done)
    parts = [_scroll(table)]
    if inside is None:
        parts.append(f"<p>{_UNNAMED}</p>")
    if inside is not None and inside.heights:
        rows_ = [[name, _level(inside.generalization.get(name)), height] for name, height in inside.heights.items()]
        levels = html_table("Levels", ["column", "level", "levels of its hierarchy"], rows_, [2])
        caption = "At level 0 a column reads as in the source; at the last of its levels all rows have one value."
        if inside.losses:
            caption += " The bars are the loss, the share of the detail that is gone, with the rows that are left out."
        chart = draw.attributes(inside.heights, inside.generalization, inside.losses)
        parts.append(_figure(charts, "levels", chart, caption, levels))
    for place, one in enumerate(facts.columns[:_MANY]):
        parts.append(f"<h3>{escape_html(one.name)}</h3>")
        parts.append(_distribution(facts, f"column-{place}", one.name, one.after, inside, charts))
    return "\n".join(parts)


def _level(level: int | None) -> str:
    return "several" if level is None else str(level)


def _distribution(
    facts: ReportFacts, place: str, name: str, after: Distribution, inside: Inside | None, charts: dict[str, Any]
) -> str:
    before = None if inside is None else inside.before.get(name)
    text = _PERSONS if not after.bars and of_persons(facts.claims) else _in_words(after, facts.few)
    if not after.bars and not (before and before.bars):
        return f"<p>{escape_html(text)}</p>"
    bars = [[label, rows] for label, rows in after.bars]
    headings, table = ["value", "rows"], ""
    if before is not None:
        of = [[label, rows] for label, rows in before.bars]
        table = html_table("In the source", headings, of, [1])
        there = _in_words(before, 1)
        text = f"{text[:-1]}, as in the source." if text == there else f"{text} In the source: {there}"
    elif inside is not None:
        text += " In the source it was not counted."
    table = html_table("In the release", headings, bars, [1]) + table
    return _figure(charts, place, draw.distribution(name, after, before), text, table)


def _in_words(found: Distribution, few: int) -> str:
    """What is not in the chart."""
    if found.values is None:
        if found.spread:
            return "Rows by ranges: each row counts evenly over its label's range."
        return "Rows by ranges of its values." if found.bars else "It has too few rows to show any."
    if not found.others:
        return f"{found.values:,} values." if found.values != 1 else "One value."
    if found.rare:  # how many would tell more of them
        few_ = f"fewer than {few} rows"
        if not found.bars:
            return f"Each of its values is in {few_}, or would give such a value away: none is shown."
        return (
            f"The most frequent of its values. Values in {few_} are not shown, nor others that would give these away."
        )
    return f"The most frequent of its {found.values:,} values; {found.others:,} are not shown."


def _classes(facts: ReportFacts, sizes: ClassSizes, inside: Inside | None, charts: dict[str, Any]) -> str:
    before = None if inside is None else inside.sizes
    caption = "Rows that agree in all generalized columns are a group: by these columns nobody can tell them apart."
    tables = _sizes_table("In the release", sizes, facts.few, inside is not None)
    if before is not None:
        tables += _sizes_table("In the source", before, facts.few, True)
    chart = draw.classes(sizes, facts.few, before)
    figure = _figure(charts, "classes", chart, caption, tables)
    return figure


def _sizes_table(caption: str, sizes: ClassSizes, few: int, apart: bool) -> str:
    rows = [
        [draw.range_label(low, high, few, apart), classes, rows] for low, high, classes, rows in sizes.bins(few, apart)
    ]
    return html_table(caption, ["rows in a group", "groups", "rows"], rows, [1, 2])


def _risk(facts: ReportFacts, sizes: ClassSizes, inside: Inside | None, charts: dict[str, Any]) -> str:
    tables = {"release": sizes} if inside is None else {"source": inside.sizes, "release": sizes}
    figures = [
        ["highest risk of a row", *map(_highest, tables.values())],
        ["average risk of a row", *(shown_average_risk(one) for one in tables.values())],
        [
            f"rows in groups of fewer than {facts.few}",
            *(f"{one.rows_where(lambda size: size < facts.few):,}" for one in tables.values()),
        ],
    ]  # fmt: skip
    table = html_table(
        "Risk of being found", ["figure", *(f"in the {of}" for of in tables)], figures, [1, 2][: len(tables)]
    )
    caption = (
        "Somebody who knows that a person is in the table, and all of that person's generalized columns, finds the "
        "right row with a chance of 1 divided by the size of the group."
    )
    shares = "".join(_shares(f"In the {of}", one, facts.few, inside is not None) for of, one in tables.items())
    text = "" if not of_persons(facts.claims) else "<p>Counted in rows; the policy counts persons.</p>"
    chart = draw.risk(sizes, facts.few, None if inside is None else inside.sizes)
    return f"{text}{_scroll(table)}\n{_figure(charts, 'risk', chart, caption, shares)}"


def _shares(caption: str, sizes: ClassSizes, few: int, apart: bool) -> str:
    rows = [
        [draw.range_label(low, high, few, apart, of_risk=True), f"{100 * rows / max(sizes.rows, 1):.3g} %"]
        for low, high, _, rows in sizes.bins(few, apart)
    ]
    return html_table(caption, ["risk of being found", "share of the rows"], rows, [1])


def _highest(sizes: ClassSizes) -> str:
    return f"1 in {sizes.smallest:,}" if sizes.smallest else "none"


def utility(facts: ReportFacts, inside: Inside | None) -> str:
    """Loss by column, means and correlations; of a private page before and after."""
    parts = [_kept(facts), _scroll(_losses(facts, inside)), *_means(facts, inside), *_correlations(facts, inside)]
    if inside is None:
        parts.append('<p class="soft">A private page compares these figures with those of the source.</p>')
    return "\n".join(parts)


def _losses(facts: ReportFacts, inside: Inside | None) -> str:
    """Of each generalized column what is left; on a private page also its loss."""
    claims = facts.claims
    levels = {name.lower(): level for name, level in claims.generalization.items()}
    heights = {name.lower(): height for name, height in (claims.heights or {}).items()}
    losses = {} if inside is None else {name.lower(): loss for name, loss in inside.losses.items()}
    labels = {one.name: range_kind(claims, one.name) for one in facts.columns}
    rows = []
    for one in facts.columns:
        key, left = one.name.lower(), facts.left.get(one.name)
        if key not in levels:
            continue
        level, height = levels[key], heights.get(key)
        of = "" if height is None or level is None else f" of {height}"
        width = None if left is None else left.width
        years = " years" if labels[one.name] == "date" else ""
        rows.append([
            one.name,
            f"{_level(level)}{of}",
            "not counted" if left is None else f"{left.values:,}",
            "not counted" if left is None else format_percent(left.hidden),
            "" if width is None else f"{rounded(width)}{years}",
            *([format_percent(losses[key]) if key in losses else ""] if losses else []),
        ])  # fmt: skip
    headings = ["column", "level", "values left", "rows that read *", "mean width of ranges"]
    caption = "What is left of the generalized columns"
    if losses:
        headings.append("loss")
        caption += "; loss is the share of the detail that is gone, with the rows that are left out"
    return html_table(caption, headings, rows, [2, 3, 4, 5][: len(headings) - 2])


def _kept(facts: ReportFacts) -> str:
    claims = facts.claims
    share = format_percent(claims.suppressed_rows / max(claims.rows, 1))
    gone = f" ({share})" if claims.suppressed_rows else ""
    said = f"{claims.released_rows:,} rows are released; {claims.suppressed_rows:,}{gone} are left out."
    if claims.persons is not None and claims.suppressed_persons is not None:
        share = format_percent(claims.suppressed_persons / max(claims.persons, 1))
        said += f" {claims.released_persons:,} of {claims.persons:,} people are released with all their rows; "
        said += f"{claims.suppressed_persons:,} ({share}) lose rows, of whom {claims.partly_released_persons:,} have "
        said += "other rows in the release."
    if claims.measure == "loss" and claims.score is not None:
        said += f" The loss of all generalized columns together is {claims.score:.3g} (0: nothing, 1: everything)."
    return f"<p>{escape_html(said)}</p>"


def _means(facts: ReportFacts, inside: Inside | None) -> Iterator[str]:
    after, before = facts.numbers.columns, {} if inside is None else inside.numbers.columns
    types = {one.name: one.type for one in facts.columns}
    labels = {one.name: range_kind(facts.claims, one.name) for one in facts.columns}
    rows = []
    for name, found in after.items():
        years = in_years(types, labels, name)
        row: list[object] = [name, rounded(found.mean, years)]
        row.append("" if found.deviation is None else rounded(found.deviation))
        if before:
            own = before.get(name)
            row += ["", "", ""] if own is None else [
                rounded(own.mean, years),
                "" if own.deviation is None else rounded(own.deviation),
                changed(own.mean, found.mean, own.deviation),
            ]  # fmt: skip
        rows.append(row)
    if rows:
        more = ["mean in the source", "standard deviation there", "change"] if before else []
        caption = "Means and standard deviations. Of a range its middle counts, of a date its year"
        caption += "; the change is in standard deviations of the source" if before else ""
        yield _scroll(
            html_table(caption, ["column", "mean", "standard deviation", *more], rows, [1, 2, 3, 4, 5][: 2 + len(more)])
        )


def _correlations(facts: ReportFacts, inside: Inside | None) -> Iterator[str]:
    after = facts.numbers
    if not after.correlations:
        return
    limit = "" if len(after.columns) <= MOST else f"; of the first {MOST} columns of numbers"
    caption = f"Correlations of two columns, from −1 to 1{limit}"
    if inside is None or not inside.numbers.correlations:
        rows = [[f"{x} and {y}", _signed(value)] for (x, y), value in after.correlations.items()]
        yield _scroll(html_table(caption, ["columns", "in the release"], rows, [1]))
        return
    moved = pairs_that_moved(inside.numbers, after)
    both = [[f"{x} and {y}", _signed(own), _signed(value), _signed(value - own)] for x, y, own, value in moved]
    yield _scroll(html_table(caption, ["columns", "in the source", "in the release", "change"], both, [1, 2, 3]))


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−") if round(value, 2) else "0.00"


def _search(facts: ReportFacts, inside: Inside, charts: dict[str, Any]) -> str:
    names = list(inside.heights)
    counts: dict[str, int] = {}
    for _, status, n in inside.statuses:
        counts[status] = counts.get(status, 0) + n
    text = f"The lattice has {inside.nodes:,} generalizations. The search counted {inside.checked:,} of them."
    if not inside.statuses:
        text = "This strategy does not search the lattice: there is no picture of it."
        return f"<p>{escape_html(text)}</p>"
    words_ = [[STATUSES[status][0], n] for status, n in counts.items()]
    table = html_table("Generalizations by what the search knows of them", ["policy", "generalizations"], words_, [1])
    parts = [f"<p>{escape_html(text)}</p>"]
    if inside.counted:
        chart = draw.frontier(inside.counted, names, inside.measure, inside.allowed_rows)
        best = [
            [draw.levels_of(one, names), one.suppressed_rows, one.score, one.classes, "yes" if one.chosen else ""]
            for one in inside.counted
            if one.frontier or one.chosen
        ][:100]
        headings = ["levels", "rows left out", inside.measure, "groups", "the chosen one"]
        frontier = html_table("Generalizations that no other beats in both", headings, best, [1, 2, 3])
        caption = (
            "Each mark is a generalization that the search counted. Further left, fewer rows are left out; further "
            f"down, less is lost. The line joins those that no other beats in both. {len(inside.counted):,} are drawn."
        )
        if inside.measure == "distinct":
            caption = caption.replace("down, less is lost", "up, more is kept")
        parts.append(_figure(charts, "frontier", chart, caption, frontier))
    if inside.lattice:
        chart = draw.lattice(inside.lattice, names)
        caption = "All generalizations, from the source as it is (bottom) to one value for all rows (top)."
        parts.append(_figure(charts, "lattice", chart, caption, table))
    else:
        chart = draw.statuses(inside.statuses)
        caption = "The generalizations that the search knows of, by their number of steps."
        parts.append(_figure(charts, "lattice", chart, caption, table))
    return "\n".join(parts)


def _strategies(inside: Inside, charts: dict[str, Any]) -> str:
    headings = ["strategy", inside.measure, "loss", "groups", "rows left out", "seconds", "error"]
    keys = ("strategy", "score", "loss", "classes", "suppressed_rows", "seconds", "error")
    table = html_table("What each strategy found", headings, [[one[key] for key in keys] for one in inside.compared],
                       [1, 2, 3, 4, 5])  # fmt: skip
    chart = draw.compared(inside.compared, inside.measure)
    return _figure(charts, "strategies", chart, "What each strategy finds for the same policy.", table)


MAY_I_SHARE = (
    "Whether it may be shared is a person's decision: the checklist, who signs and what to file stand in "
    "docs/how-to/share.md, &ldquo;May I share this?&rdquo;"
)


def _check_it(facts: ReportFacts, inside: Inside | None) -> str:
    parts = list[str]()
    if facts.published:
        parts.append(
            "<p>Open the release with DuckDB and run the statements below. Or run <code>sqlanon verify</code> with its "
            "path.</p>"
        )
    else:
        parts.append("<p>Once it is published, the statements below run in the release itself.</p>")
    parts.append(f"<p>{MAY_I_SHARE}</p>")
    statements = ";\n\n".join(facts.statements) + ";" if facts.statements else ""
    parts.append(f"<details><summary>The SQL of the checks</summary><pre>{escape_html(statements)}</pre></details>")
    if inside is not None:
        makes = f"<pre>{escape_html(inside.statement)}</pre>"
        parts.append(f"<details><summary>The SQL that makes the release</summary>{makes}</details>")
    return "\n".join(parts)


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
    table = html_table("What made it, and what identifies it", ["what", "which"], rows)
    return _scroll(table)
