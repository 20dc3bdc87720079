"""What a page begins with: what the release is and is for, and what could still go wrong; and the glossary."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sqlanon.audit.check import SOURCE_PREFIX
from sqlanon.disclosure.class_sizes import ClassSizes
from sqlanon.disclosure.residual_risk import (
    ResidualRisk,
    format_percent,
    required_k,
    serious_share,
    sort_by_severity,
)
from sqlanon.policy import AboutSection
from sqlanon.release.sentences import join_names
from sqlanon.release.source_change import SOURCE_CHECK
from sqlanon.report.facts import Inside, ReportFacts
from sqlanon.report.risks import unknown_risks
from sqlanon.support.markup import escape_html

DRAFT = "DRAFT. This release is for trying out: do not pass it on. It was not compared with earlier releases."


def head(facts: ReportFacts, inside: Inside | None) -> str:
    claims, sizes = facts.claims, facts.sizes
    what = "A release" if facts.published else "What this policy would release; this page publishes nothing"
    figures = {
        "rows released": f"{claims.released_rows:,}",
        "rows left out": f"{claims.suppressed_rows:,}",
        **({} if claims.suppressed_persons is None else {"people who lose rows": f"{claims.suppressed_persons:,}"}),
        "groups that look alike": f"{claims.classes:,}",
        "smallest group": f"{claims.smallest_class:,}{'' if claims.persons is None else ' people'}",
    }
    if sizes is not None and sizes.rows:
        figures["average risk"] = shown_average_risk(sizes)
    cells = "".join(
        f"<div><dt>{escape_html(name)}</dt><dd>{escape_html(value)}</dd></div>" for name, value in figures.items()
    )
    kind = "fails" if not facts.holds else "plain"
    return (
        f'<header><p class="soft">{escape_html(what)}, as of {claims.published_at:%Y-%m-%d}.</p>\n'
        f"<h1>{escape_html(claims.table_name)}: how the people in it are protected</h1>\n"
        f"{_about(facts.about)}"
        f'<p class="verdict {kind}">{escape_html(verdict(facts, inside))}</p>\n'
        f'<dl class="figures">{cells}</dl>\n'
        "<noscript><p>The charts need JavaScript. All their figures are in the tables as well.</p></noscript></header>"
    )


def _about(about: AboutSection | None) -> str:
    if about is None:
        return ""
    signed = " on ".join(text for text in (about.approved_by, about.approved_on) if text)
    words = {"Purpose": about.purpose, "Owner": about.owner, "Approved by": signed or "nobody yet"}
    cells = "".join(
        f"<div><dt>{name}</dt><dd>{escape_html(text)}</dd></div>" for name, text in words.items() if text is not None
    )
    return f'<dl class="about">{cells}</dl>\n'


def verdict(facts: ReportFacts, inside: Inside | None) -> str:
    """Whether the release holds, and how much is left to worry about."""
    if not facts.holds:
        failed = [check.name for check in facts.checks if check.passed is False]
        if failed == [SOURCE_CHECK.removeprefix(SOURCE_PREFIX)]:
            return (
                "The source has changed since this release was published. The release is as it was then, and what it "
                "claims of the source as it was is true. It may show rows that have been deleted since."
            )
        return "This release does NOT hold what it claims."
    names = {one.name for one in facts.requirements}
    open_ = [check.name for check in facts.checks if check.passed is None and check.name in names]
    said = ["The policy's requirements hold."]
    if open_:
        said = [f"What this page can verify holds. Not verified without the source: {join_names(open_)}."]
    if facts.claims.draft:
        said.append("A draft: not compared with earlier releases.")
    found = [one.status for one in _found(facts, inside)]
    counts = {status: found.count(status) for status in ("serious", "minor")}
    left = [f"{count} {status}" for status, count in counts.items() if count]
    if left:
        one = sum(counts.values()) == 1
        said.append(f"{' and '.join(left)} risk{'' if one else 's'} remain{'s' if one else ''}.")
    elif facts.sizes is not None:
        said.append("This page found nothing that goes beyond what the policy accepts.")
    return " ".join(said)


def _found(facts: ReportFacts, inside: Inside | None) -> list[ResidualRisk]:
    return sort_by_severity([*facts.risks, *(() if inside is None else inside.risks)])


def risks(facts: ReportFacts, inside: Inside | None) -> str:
    """What could still go wrong, the worst first; what is nothing to worry about; and what the page cannot know."""
    found = _found(facts, inside)
    unknown = [one for one in found if one.status == "unknown"]
    without_source = unknown_risks(facts.checks, facts.requirements, facts.published)
    unknown += without_source if inside is None else without_source[2:]
    lists = {
        "Nothing to report": [one for one in found if one.status == "none"],
        "Not counted": [one for one in found if one.status == "not counted"],
        "What this page cannot know": unknown,
    }
    shown = [one for one in found if one.status in _WORDS]
    return "\n".join([*_shown(shown, facts), *(line for title, ones in lists.items() for line in _listed(title, ones))])


_WORDS = {"serious": "serious", "minor": "minor", "accepted": "accepted by the policy"}
"""The statuses of what is shown with a figure, in words."""


def _shown(found: Sequence[ResidualRisk], facts: ReportFacts) -> Iterator[str]:
    if not any(one.is_finding for one in found):
        yield "<p>Nothing to report beyond what the policy accepts.</p>"
    if not found:
        return
    yield '<ol class="risks">'
    for one in found:
        remedy = f'<p class="remedy">What reduces it: {_with_code(one.remedy)}</p>' if one.remedy else ""
        yield (
            f'<li class="{one.status}"><h3>{escape_html(one.title)}</h3>'
            f'<p class="share">{escape_html(one.number)} <span class="status">{_WORDS[one.status]}</span></p>'
            f"<p>{_with_code(one.finding)}</p>{remedy}</li>"
        )
    yield "</ol>"
    yield f'<p class="soft">{escape_html(_grades(facts))}</p>'


def _grades(facts: ReportFacts) -> str:
    k = required_k(facts.claims)
    least = format_percent(serious_share(k))
    said = f"Serious: it affects at least {least} of the rows. Minor: it affects fewer."
    if k is not None and serious_share(k) == 1 / k:
        said = (
            f"Serious: it affects at least {least} of the rows, 1 in {k:,}, the chance of being found that the policy "
            "accepts. Minor: it affects fewer."
        )
    return f"{said} Percentages are shares of the released rows; for being found in a group, the mean chance."


def _listed(title: str, found: Sequence[ResidualRisk]) -> Iterator[str]:
    if found:
        yield f"<h3>{title}</h3>\n<ul>"
        for one in found:
            more = f" {_with_code(one.remedy)}" if one.remedy else ""
            yield f"<li><strong>{escape_html(one.title)}.</strong> {_with_code(one.finding)}{more}</li>"
        yield "</ul>"


def _with_code(text: str) -> str:
    """A text with its `code` in elements of its own."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape_html(text))


def shown_average_risk(sizes: ClassSizes) -> str:
    return format_percent(sizes.mean(lambda size: 1 / size))


GLOSSARY = {
    "Quasi-identifier": (
        "A column that others may know of a person, such as the place of residence or the date of birth. Several of "
        "them together can name a person."
    ),
    "Group": (
        "All rows with the same values in all generalized columns (an equivalence class). By these columns, nobody can "
        "tell its rows apart."
    ),
    "Generalized": (
        "Made coarser: 1980-04-12 becomes 1980s. The levels of a hierarchy lead from the value itself (level 0) to one "
        "value for all rows (the last level)."
    ),
    "Left out": "Suppressed: the row is not in the release, because its group would be too small.",
    "k-anonymity": "Each group has at least k rows.",
    "l-diversity": "Each group has at least l different values of a sensitive column.",
    "t-closeness": (
        "In each group, the values of a sensitive column are distributed nearly as in the whole table. t is the "
        "greatest distance, from 0 to 1."
    ),
    "Risk of being found": (
        "The chance of picking the right row, for somebody who knows that a person is in the table and knows all "
        "generalized columns of this person: 1 divided by the rows of the group."
    ),
    "Loss": (
        "How much of the detail of a column is gone, from 0 (all values as they were) to 1 (all rows have one value). "
        "A row that is left out counts 1."
    ),
    "Decoys": "Rows of nobody. They fill groups that would be too small.",
    "ε (epsilon)": "How much noise protects a number. A smaller ε means more noise.",
}


def glossary() -> str:
    terms = "".join(f"<dt>{escape_html(term)}</dt><dd>{escape_html(words)}</dd>" for term, words in GLOSSARY.items())
    return f'<dl class="glossary">{terms}</dl>'
