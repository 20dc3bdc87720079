"""What a page begins with: what the release is and is for, and what could still go wrong; and the glossary."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sqlanon.markup import escaped
from sqlanon.policy import AboutSection
from sqlanon.release.class_sizes import ClassSizes
from sqlanon.report.facts import Inside, ReportFacts
from sqlanon.report.risks import MUCH, ResidualRisk, by_weight, percent, unknown_risks

DRAFT = "DRAFT. This release is for trying out: do not pass it on. It was not compared with earlier releases."


def head(facts: ReportFacts, inside: Inside | None) -> str:
    claims, sizes = facts.claims, facts.sizes
    what = "A release" if facts.published else "What would be released; nothing is published yet"
    figures = {
        "rows released": f"{claims.released_rows:,}",
        "rows left out": f"{claims.suppressed_rows:,}",
        "groups that look alike": f"{claims.classes:,}",
        "smallest group": f"{claims.smallest_class:,}",
    }
    if sizes is not None and sizes.rows:
        figures["average risk"] = shown_average_risk(sizes)
    cells = "".join(f"<div><dt>{escaped(name)}</dt><dd>{escaped(value)}</dd></div>" for name, value in figures.items())
    kind = "fails" if not facts.holds else "plain"
    return (
        f'<header><p class="soft">{escaped(what)}, as of {claims.published_at:%Y-%m-%d}.</p>\n'
        f"<h1>{escaped(claims.table_name)}: how the people in it are protected</h1>\n"
        f"{_about(facts.about)}"
        f'<p class="verdict {kind}">{escaped(verdict(facts))}</p>\n{_worst(facts, inside)}'
        f'<dl class="figures">{cells}</dl>\n'
        "<noscript><p>The charts need JavaScript. All their figures are in the tables as well.</p></noscript></header>"
    )


def is_draft(facts: ReportFacts) -> bool:
    return facts.claims.draft


def _about(about: AboutSection | None) -> str:
    if about is None:
        return ""
    signed = " on ".join(text for text in (about.approved_by, about.approved_on) if text)
    words = {"Purpose": about.purpose, "Owner": about.owner, "Approved by": signed or "nobody yet"}
    cells = "".join(
        f"<div><dt>{name}</dt><dd>{escaped(text)}</dd></div>" for name, text in words.items() if text is not None
    )
    return f'<dl class="about">{cells}</dl>\n'


def verdict(facts: ReportFacts) -> str:
    if not facts.holds:
        return "This release does NOT hold what it claims."
    if any(check.passed is None for check in facts.checks):
        return "The policy's requirements hold as far as this page can verify them. The rest needs the source."
    if not any(one.weight for one in facts.risks):
        return "The policy's requirements hold."
    return "The policy's requirements hold. The most serious thing that can still go wrong:"


def _worst(facts: ReportFacts, inside: Inside | None) -> str:
    found = [one for one in _counted(facts, inside) if one.weight]
    if not found:
        return ""
    worst = found[0]
    number = f" ({escaped(worst.number)})" if worst.number else ""
    return (
        f'<p class="worst {_paint(worst)}"><a href="#risks">{escaped(worst.title)}</a><strong>{number}</strong>: '
        f"{_with_code(worst.finding)}</p>\n"
    )


def _counted(facts: ReportFacts, inside: Inside | None) -> list[ResidualRisk]:
    return by_weight([*facts.risks, *(() if inside is None else inside.risks)])


def risks(facts: ReportFacts, inside: Inside | None) -> str:
    """What could still go wrong, the worst first; what is nothing to worry about; and what the page cannot know."""
    found = _counted(facts, inside)
    serious = [one for one in found if one.weight]
    none = [one for one in found if one.weight is not None and not one.weight]
    unknown = [one for one in found if one.weight is None]
    if inside is None:
        unknown += unknown_risks(facts.checks, facts.requirements, facts.published)
    else:
        unknown += unknown_risks(facts.checks, facts.requirements, facts.published)[2:]
    return "\n".join(
        [*_serious(serious), *_listed("Nothing to report", none), *_listed("What this page cannot know", unknown)]
    )


def _serious(found: Sequence[ResidualRisk]) -> Iterator[str]:
    if not found:
        yield "<p>Nothing to report: no row is affected by anything that this page counts.</p>"
        return
    yield '<ol class="risks">'
    for one in found:
        remedy = f'<p class="remedy">What reduces it: {_with_code(one.remedy)}</p>' if one.remedy else ""
        yield (
            f'<li class="{_paint(one)}"><h3>{escaped(one.title)}</h3><p class="share">{escaped(one.number)}</p>'
            f"<p>{_with_code(one.finding)}</p>{remedy}</li>"
        )
    yield "</ol>"


def _listed(title: str, found: Sequence[ResidualRisk]) -> Iterator[str]:
    if found:
        yield f"<h3>{title}</h3>\n<ul>"
        for one in found:
            more = f" {_with_code(one.remedy)}" if one.remedy else ""
            yield f"<li><strong>{escaped(one.title)}.</strong> {_with_code(one.finding)}{more}</li>"
        yield "</ul>"


def _paint(one: ResidualRisk) -> str:
    return "grave" if (one.weight or 0.0) >= MUCH else "slight"


def _with_code(text: str) -> str:
    """A text with its `code` in elements of its own."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escaped(text))


def shown_average_risk(sizes: ClassSizes) -> str:
    return percent(sizes.mean(lambda size: 1 / size))


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
        "How much of the detail of a column is gone, from 0 (all values as they were) to 1 (all rows read the same). A "
        "row that is left out counts 1."
    ),
    "Decoys": "Rows of nobody. They fill groups that would be too small.",
    "ε (epsilon)": "How much noise protects a number. A smaller ε means more noise.",
}


def glossary() -> str:
    terms = "".join(f"<dt>{escaped(term)}</dt><dd>{escaped(words)}</dd>" for term, words in GLOSSARY.items())
    return f'<dl class="glossary">{terms}</dl>'
