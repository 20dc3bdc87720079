"""The values that the page shows, as texts, tables and figures; `page.html` has the markup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from sqlanon.disclosure.residual_risk import ResidualRisk, format_percent, required_k, serious_share, sort_by_severity
from sqlanon.frequency.class_sizes import ClassSizes
from sqlanon.hierarchies.parts import label_range_kind
from sqlanon.measures import Loss, find_measure
from sqlanon.policy import PrivacySection
from sqlanon.policy.problems import read_part
from sqlanon.release.manifest import Manifest
from sqlanon.release.sentences import describe_treatment, join_names
from sqlanon.release.source_change import SOURCE_CHECK
from sqlanon.report import charts as draw
from sqlanon.report.charts import STATUSES
from sqlanon.report.distributions import Distribution
from sqlanon.report.explorer import Explorer
from sqlanon.report.facts import ColumnReport, PrivateFacts, ReportFacts
from sqlanon.report.risks import unknown_risks
from sqlanon.report.utility import (
    MAX_CORRELATED_COLUMNS,
    ColumnNumbers,
    changed_correlations,
    range_kind,
    round_figure,
    standardized_change,
)
from sqlanon.requirements import list_requirements
from sqlanon.support.checks import SOURCE_PREFIX, Check
from sqlanon.support.markup import StyledText, escape_chart_text, html_table

ROLES: Mapping[str, str] = {
    "identifying": "identifying",
    "quasi": "quasi-identifier",
    "sensitive": "sensitive",
    "insensitive": "insensitive",
}
GRADES = {"serious": "serious", "minor": "minor", "accepted": "accepted by the policy"}
"""The statuses of risks with a figure, in words."""
NOT_RELEASED = "not in the policy's attributes: not released"
_MAX_CHARTS = 200  # columns; more charts would make the page too large
_VERDICTS = {
    True: StyledText("holds", "holds"),
    False: StyledText("FAILS", "fails"),
    None: StyledText("not verifiable alone", "unsure"),
}


@dataclass(frozen=True)
class Figure:
    """A chart by its name in `PageView.charts`, with its caption and the same figures as tables."""

    name: str
    caption: str
    tables: Markup


@dataclass(frozen=True)
class RiskLists:
    """Risks by status: ``graded`` have a figure, and ``ungraded`` are by their titles."""

    graded: Sequence[ResidualRisk]
    ungraded: Mapping[str, Sequence[ResidualRisk]]

    @property
    def has_findings(self) -> bool:
        return any(risk.is_finding for risk in self.graded)


def list_requirement_sentences(policy: Mapping[str, Any]) -> list[str]:
    """The requirements of a policy as its manifest shows it, a sentence each."""
    section, _ = read_part(PrivacySection, policy.get("privacy"), "privacy", {})
    if section is None:
        return ["The requirements in the manifest cannot be read."]
    unit = "people" if policy.get("persons") else "rows"
    sentences = [requirement.sentence(unit) for requirement in list_requirements(section)]
    if section.confidence is not None:
        confidence = f"{100 * section.confidence:g} %"
        sentences.append(f"After noise, no person is left nearly alone, with a confidence of {confidence}.")
    return sentences


def _table(
    caption: str, headings: Sequence[str], rows: Sequence[Sequence[object]], first_number: int | None = None
) -> Markup:
    """An HTML table; the columns from ``first_number`` on are numbers."""
    numbers = () if first_number is None else range(first_number, len(headings))
    return Markup(html_table(caption, headings, rows, numbers))  # it escapes all texts


def _format_signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−") if round(value, 2) else "0.00"


def _format_level(level: int | None) -> str:
    return "several" if level is None else str(level)


@dataclass(frozen=True)
class PageView:
    """The values that the template of the page reads; ``charts`` collects the specifications of its figures."""

    facts: ReportFacts
    private: PrivateFacts | None
    charts: dict[str, Any] = field(default_factory=dict)

    @property
    def claims(self) -> Manifest:
        return self.facts.claims

    @property
    def explorer(self) -> Explorer | None:
        return None if self.private is None else self.private.explorer

    @property
    def sections(self) -> dict[str, str]:
        """The anchors and titles of the sections."""
        has_rows, private = self.facts.sizes is not None, self.private
        sections = [
            ("risks", "What could still go wrong", has_rows),
            ("policy", "What the policy requires", True),
            ("checks", "Does it hold?", True),
            ("broken", "Other sections", not has_rows),
            ("columns", "What happened to each column", has_rows),
            ("groups", "How large the groups are", has_rows),
            ("found", "Risk of being found", has_rows),
            ("utility", "What the release is still good for", has_rows),
            ("explore", "Try other settings", self.explorer is not None),
            ("alternatives", "The alternatives", private is not None),
            ("strategies", "Strategies compared", private is not None and bool(private.comparison)),
            ("verify", "Check it yourself", True),
            ("glossary", "Glossary", True),
            ("versions", "Versions and hashes", True),
        ]
        return {anchor: title for anchor, title, is_shown in sections if is_shown}

    # --- The head of the page, and the risks

    @property
    def key_figures(self) -> dict[str, str]:
        claims, sizes = self.claims, self.facts.sizes
        figures = {"rows released": f"{claims.released_rows:,}", "rows left out": f"{claims.suppressed_rows:,}"}
        if claims.suppressed_persons is not None:
            figures["people who lose rows"] = f"{claims.suppressed_persons:,}"
        figures["groups that look alike"] = f"{claims.classes:,}"
        figures["smallest group"] = f"{claims.smallest_class:,}{'' if claims.persons is None else ' people'}"
        if sizes is not None and sizes.rows:
            figures["average risk"] = self._average_risk(sizes)
        return figures

    @property
    def about(self) -> dict[str, str]:
        about = self.facts.about
        if about is None:
            return {}
        approval = " on ".join(text for text in (about.approved_by, about.approved_on) if text)
        texts = {"Purpose": about.purpose, "Owner": about.owner, "Approved by": approval or "nobody yet"}
        return {name: text for name, text in texts.items() if text is not None}

    @property
    def verdict(self) -> str:
        """Whether the release holds, and how many risks remain."""
        facts = self.facts
        if not facts.is_verified:
            failed = [check.name for check in facts.checks if check.passed is False]
            if failed == [SOURCE_CHECK.removeprefix(SOURCE_PREFIX)]:
                return (
                    "The source has changed since this release was published. The release itself is unchanged, and its "
                    "claims about the source at that time are true. It may show rows that have been deleted since."
                )
            return "This release does NOT hold what it claims."
        names = {requirement.name for requirement in facts.requirements}
        unverified = [check.name for check in facts.checks if check.passed is None and check.name in names]
        sentences = ["The policy's requirements hold."]
        if unverified:
            sentences = [f"What this page can verify holds. Not verified without the source: {join_names(unverified)}."]
        if facts.claims.draft:
            sentences.append("A draft: not compared with earlier releases.")
        statuses = [risk.status for risk in self._all_risks()]
        counts = {status: statuses.count(status) for status in ("serious", "minor") if status in statuses}
        if counts:
            remain = "risk remains" if sum(counts.values()) == 1 else "risks remain"
            sentences.append(f"{' and '.join(f'{count} {status}' for status, count in counts.items())} {remain}.")
        elif facts.sizes is not None:
            sentences.append("This page found no risk beyond what the policy accepts.")
        return " ".join(sentences)

    def _all_risks(self) -> list[ResidualRisk]:
        return sort_by_severity([*self.facts.risks, *(() if self.private is None else self.private.risks)])

    def risks(self) -> RiskLists:
        """The risks that remain, the worst first."""
        facts, all_risks = self.facts, self._all_risks()
        unknown = unknown_risks(facts.checks, facts.requirements, facts.published)
        if self.private is not None:  # the source and the ledger were read
            unknown = unknown[2:]
        risks_by_title = {
            "Nothing to report": [risk for risk in all_risks if risk.status == "none"],
            "Not counted": [risk for risk in all_risks if risk.status == "not counted"],
            "What this page cannot know": [*(risk for risk in all_risks if risk.status == "unknown"), *unknown],
        }
        graded = [risk for risk in all_risks if risk.status in GRADES]
        return RiskLists(graded, {title: risks for title, risks in risks_by_title.items() if risks})

    @property
    def grades(self) -> str:
        """The meaning of serious and minor."""
        k = required_k(self.claims)
        rows = f"{format_percent(serious_share(k))} of the rows"
        if k is not None and serious_share(k) == 1 / k:
            rows += f", 1 in {k:,}, the chance of being found that the policy accepts"
        return (
            f"Serious: it affects at least {rows}. Minor: it affects fewer. Percentages are shares of the released "
            "rows; for being found in a group, the mean chance."
        )

    # --- The policy and its checks

    @property
    def requirement_sentences(self) -> list[str]:
        return list_requirement_sentences(self.claims.policy)

    @property
    def choice_sentences(self) -> list[str]:
        """Sentences on the choice of the release."""
        claims, measure = self.claims, find_measure(self.claims.measure)
        limit = claims.policy.get("search", {}).get("suppression_limit") or 0
        unit = "people may lose rows." if self.facts.counts_persons else "rows may be left out."
        allowed = f"At most {100 * float(limit):g} % of the {unit}" if limit else "No row may be left out."
        if self.private is not None:
            proof = f"It is {self.private.result.proof}."
        elif claims.optimal:
            proof = "It is proven that no other full-domain generalization is better."
        else:
            proof = "It is not proven to be the best."
        description = claims.measure if measure is None else measure.description
        choice = f"Among the releases that meet these requirements, this one was chosen by {description}. {proof}"
        sentences = [allowed, choice]
        if claims.policy.get("suppressed") == "mask":
            sentences.append("Rows that cannot be kept stay with all generalized columns hidden, where that is safe.")
        if claims.decoys:
            sentences.append(f"{claims.decoys:,} invented rows (decoys) fill groups that would be too small.")
        if claims.epsilon is not None:
            sentences.append(f"Noise protects columns that stay numbers: a budget of ε = {claims.epsilon:g} a row.")
        return sentences

    @property
    def integrity_checks(self) -> list[Check]:
        """The passed checks that are not requirements."""
        names = {requirement.name for requirement in self.facts.requirements}
        return [check for check in self.facts.checks if check.name not in names and check.passed is True]

    def requirement_table(self) -> Markup | None:
        """The requirements, and all checks that did not pass."""
        integrity = self.integrity_checks
        checks = [check for check in self.facts.checks if check not in integrity]
        return self._check_table("Requirements", checks) if checks else None

    def integrity_table(self) -> Markup:
        return self._check_table("Checks of the release itself", self.integrity_checks)

    def _check_table(self, caption: str, checks: Sequence[Check]) -> Markup:
        rows = [[check.name, _VERDICTS[check.passed], check.message] for check in checks]
        return _table(caption, ["requirement or check", "result", "finding"], rows)

    @property
    def warnings(self) -> Sequence[str]:
        return () if self.private is None else self.private.result.warnings

    def dependency_table(self) -> Markup | None:
        if self.private is None or not self.private.result.dependencies:
            return None
        headings = ["column", "narrows", "values of a label", "values left", "revealed rows", "smallest group"]
        rows = [
            [" and ".join(narrowing.columns),
             narrowing.quasi if narrowing.level == 0 else f"{narrowing.quasi} ({narrowing.unit})",
             f"{narrowing.before:,.1f}", f"{narrowing.after:,.1f}", f"{100 * narrowing.pinned:.1f} %",
             narrowing.smallest_group]
            for narrowing in self.private.result.dependencies
        ]  # fmt: skip
        return _table("Columns that narrow a quasi-identifier", headings, rows, 2)

    # --- The columns

    def column_table(self) -> Markup:
        claims, private = self.claims, self.private
        rows = [
            [column.name, ROLES.get(column.role, column.role), describe_treatment(claims, column.name)]
            for column in self.facts.columns
        ]
        names = {column.name.lower() for column in self.facts.columns}
        for name, spec in claims.policy.get("attributes", {}).items():
            if name.lower() not in names and spec.get("role") == "identifying":
                rows.append([name, ROLES["identifying"], describe_treatment(claims, name)])
        names |= {name.lower() for name in claims.policy.get("attributes", {})}
        for name in () if private is None else private.source_columns:
            if name.lower() not in names:
                rows.append([name, NOT_RELEASED, "left out"])
        return _table("Each column and its treatment", ["column", "kind", "treatment"], rows)

    def level_figure(self) -> Figure | None:
        private = self.private
        if private is None or not private.heights:
            return None
        levels = private.result.generalization
        rows = [[name, _format_level(levels.get(name)), height] for name, height in private.heights.items()]
        table = _table("Levels", ["column", "level", "levels of its hierarchy"], rows, 2)
        caption = "At level 0 a column reads as in the source; at the last of its levels all rows have one value."
        if private.losses:
            caption += " The bars are the loss, the share of the detail that is gone, with the rows that are left out."
        return self._figure("levels", draw.attributes(private.heights, levels, private.losses), caption, table)

    def _figure(self, name: str, chart: draw.Chart, caption: str, *tables: Markup) -> Figure:
        spec = chart.to_dict()
        spec.pop("$schema", None)  # the page loads nothing, and its script needs no address
        spec["description"] = escape_chart_text(caption)
        self.charts[name] = spec
        return Figure(name, caption, Markup("").join(tables))

    @property
    def drawn_columns(self) -> Sequence[ColumnReport]:
        return self.facts.columns[:_MAX_CHARTS]

    def distribution_figure(self, position: int) -> Figure | str:
        """The distribution of a column, or the reason why it is not drawn."""
        column = self.facts.columns[position]
        release, source = column.after, None if self.private is None else self.private.before.get(column.name)
        text = self._describe_distribution(release, self.facts.few)
        if not release.bars and self.facts.counts_persons:
            text = (
                "The policy counts persons, and a release does not show which rows belong to one person: no value is "
                "shown."
            )
        if not release.bars and not (source and source.bars):
            return text
        tables = [_table("In the release", ["value", "rows"], release.bars, 1)]
        if source is not None:
            tables.append(_table("In the source", ["value", "rows"], source.bars, 1))
            source_text = self._describe_distribution(source, 1)
            is_equal = text == source_text
            text = f"{text[:-1]}, as in the source." if is_equal else f"{text} In the source: {source_text}"
        elif self.private is not None:
            text += " In the source it was not counted."
        return self._figure(f"column-{position}", draw.distribution(column.name, release, source), text, *tables)

    def _describe_distribution(self, part: Distribution, few: int) -> str:
        """The values that the chart lacks."""
        if part.values is None:
            if part.spread:
                return "Rows by ranges: each row counts evenly over its label's range."
            return "Rows by ranges of its values." if part.bars else "It has too few rows to show any."
        if not part.others:
            return f"{part.values:,} values." if part.values != 1 else "One value."
        if part.rare:  # their number would reveal more about them
            rows = f"fewer than {few} rows"
            if not part.bars:
                return f"Each of its values is in {rows}, or would give such a value away: none is shown."
            return (
                f"The most frequent of its values. Values in {rows} are not shown, nor others that would give these "
                "away."
            )
        return f"The most frequent of its {part.values:,} values; {part.others:,} are not shown."

    # --- The groups and their risk

    @property
    def _class_sizes(self) -> dict[str, ClassSizes]:
        assert self.facts.sizes is not None
        return {**({} if self.private is None else {"source": self.private.sizes}), "release": self.facts.sizes}

    @staticmethod
    def _average_risk(sizes: ClassSizes) -> str:
        return format_percent(sizes.mean(lambda size: 1 / size))

    def group_size_figure(self) -> Figure:
        caption = "Rows that agree in all generalized columns are a group: these columns cannot distinguish them."
        tables = self._class_sizes
        chart = draw.classes(tables["release"], self.facts.few, tables.get("source"))
        return self._figure("classes", chart, caption, *self._size_tables())

    def _size_tables(self, as_risk: bool = False) -> list[Markup]:
        few, is_private = self.facts.few, self.private is not None
        headings = ["risk of being found", "share of the rows"] if as_risk else ["rows in a group", "groups", "rows"]
        tables = []
        for table, sizes in self._class_sizes.items():
            rows: list[list[object]] = []
            for low, high, classes, count in sizes.bins(few, is_private):
                label, share = draw.format_size_range(low, high, few, is_private, as_risk), count / max(sizes.rows, 1)
                rows.append([label, f"{100 * share:.3g} %"] if as_risk else [label, classes, count])
            tables.append(_table(f"In the {table}", headings, rows, 1))
        return tables

    def risk_table(self) -> Markup:
        few, tables = self.facts.few, self._class_sizes
        headings = ["figure", *(f"in the {table}" for table in tables)]
        columns = [
            [
                f"1 in {sizes.smallest:,}" if sizes.smallest else "none",
                self._average_risk(sizes),
                f"{sizes.rows_where(lambda size: size < few):,}",
            ]
            for sizes in tables.values()
        ]
        names = ["highest risk of a row", "average risk of a row", f"rows in groups of fewer than {few}"]
        return _table("Risk of being found", headings, [*zip(names, *columns, strict=True)], 1)

    def risk_figure(self) -> Figure:
        caption = (
            "Somebody who knows that a person is in the table, and all of that person's generalized columns, finds the "
            "right row with a chance of 1 divided by the size of the group."
        )
        tables = self._class_sizes
        chart = draw.risk(tables["release"], self.facts.few, tables.get("source"))
        return self._figure("risk", chart, caption, *self._size_tables(as_risk=True))

    # --- Utility

    @property
    def released_share(self) -> str:
        claims = self.claims
        share = f" ({format_percent(claims.suppressed_rows / max(claims.rows, 1))})" if claims.suppressed_rows else ""
        text = f"{claims.released_rows:,} rows are released; {claims.suppressed_rows:,}{share} are left out."
        if claims.persons is not None and claims.suppressed_persons is not None:
            share = format_percent(claims.suppressed_persons / max(claims.persons, 1))
            text += (
                f" {claims.released_persons:,} of {claims.persons:,} people are released with all their rows; "
                f"{claims.suppressed_persons:,} ({share}) lose rows; {claims.partly_released_persons:,} of these have "
                "other rows in the release."
            )
        if find_measure(claims.measure) is Loss and claims.score is not None:
            text += f" The loss of all generalized columns together is {claims.score:.3g} (0: nothing, 1: everything)."
        return text

    def detail_table(self) -> Markup:
        """The remaining detail of each generalized column; on a private page also its loss."""
        claims = self.claims
        levels = {name.lower(): level for name, level in claims.generalization.items()}
        heights = {name.lower(): height for name, height in (claims.heights or {}).items()}
        losses = {} if self.private is None else {name.lower(): loss for name, loss in self.private.losses.items()}
        rows = []
        for column in self.facts.columns:
            key, detail = column.name.lower(), self.facts.remaining.get(column.name)
            if key not in levels:
                continue
            level, height = levels[key], heights.get(key)
            row: list[object] = [column.name, _format_level(level)]
            row[1] = f"{level} of {height}" if level is not None and height is not None else row[1]
            if detail is None:
                row += ["not counted", "not counted", ""]
            else:
                unit = " years" if range_kind(claims, column.name) == "date" else ""
                width = "" if detail.width is None else f"{round_figure(detail.width)}{unit}"
                row += [f"{detail.values:,}", format_percent(detail.hidden), width]
            if losses:
                row.append(format_percent(losses[key]) if key in losses else "")
            rows.append(row)
        headings = ["column", "level", "values left", "rows that read *", "mean width of ranges"]
        caption = "Remaining detail of the generalized columns"
        if losses:
            headings.append("loss")
            caption += "; loss is the share of the detail that is gone, with the rows that are left out"
        return _table(caption, headings, rows, 2)

    def mean_table(self) -> Markup | None:
        before = {} if self.private is None else self.private.numbers.columns
        types = {column.name: column.type for column in self.facts.columns}
        rows = []
        for name, after in self.facts.numbers.columns.items():
            is_year = "date" in (label_range_kind(types.get(name, "VARCHAR")), range_kind(self.claims, name))

            def format_moments(numbers: ColumnNumbers | None, is_year: bool = is_year) -> list[str]:
                if numbers is None:
                    return ["", ""]
                deviation = "" if numbers.deviation is None else round_figure(numbers.deviation)
                return [round_figure(numbers.mean, is_year), deviation]

            row = [name, *format_moments(after)]
            if before:
                source = before.get(name)
                row += format_moments(source)
                row.append("" if source is None else standardized_change(source.mean, after.mean, source.deviation))
            rows.append(row)
        if not rows:
            return None
        headings = ["column", "mean", "standard deviation"]
        caption = "Means and standard deviations. A range counts as its middle, a date as its year"
        if before:
            headings += ["mean in the source", "standard deviation in the source", "change"]
            caption += "; the change is in standard deviations of the source"
        return _table(caption, headings, rows, 1)

    def correlation_table(self) -> Markup | None:
        after, private = self.facts.numbers, self.private
        if not after.correlations:
            return None
        limit = (
            ""
            if len(after.columns) <= MAX_CORRELATED_COLUMNS
            else f"; for the first {MAX_CORRELATED_COLUMNS} columns of numbers"
        )
        caption = f"Correlations of two columns, from −1 to 1{limit}"
        if private is None or not private.numbers.correlations:
            rows = [[f"{x} and {y}", _format_signed(value)] for (x, y), value in after.correlations.items()]
            return _table(caption, ["columns", "in the release"], rows, 1)
        changes = [
            [f"{x} and {y}", _format_signed(source), _format_signed(release), _format_signed(release - source)]
            for x, y, source, release in changed_correlations(private.numbers, after)
        ]
        return _table(caption, ["columns", "in the source", "in the release", "change"], changes, 1)

    # --- The search

    def search_figures(self) -> list[Figure]:
        """The frontier, and the lattice or the counts of its statuses."""
        private = self.private
        assert private is not None
        names, counts = list(private.heights), dict[str, int]()
        for _, status, count in private.statuses:
            counts[status] = counts.get(status, 0) + count
        rows = [[STATUSES[status][0], count] for status, count in counts.items()]
        table = _table("Generalizations by status", ["policy", "generalizations"], rows, 1)
        if private.lattice:
            chart = draw.lattice(private.lattice, names)
            caption = "All generalizations, from the unchanged source (bottom) to one value for all rows (top)."
        else:
            chart = draw.statuses(private.statuses)
            caption = "The generalizations that the search evaluated or excluded, by their number of steps."
        frontier = [self._frontier_figure(private, names)] if private.checked else []
        return [*frontier, self._figure("lattice", chart, caption, table)]

    def _frontier_figure(self, private: PrivateFacts, names: Sequence[str]) -> Figure:
        rows = [
            [draw.format_levels(figures, names), figures.suppressed_rows, figures.score, figures.classes,
             "yes" if figures.chosen else ""]
            for figures in private.checked
            if figures.frontier or figures.chosen
        ][:100]  # fmt: skip
        headings = ["levels", "rows left out", private.measure, "groups", "chosen"]
        table = _table("Generalizations that no other beats in both", headings, rows, 1)
        measure = find_measure(private.measure)
        better = "up, more is kept" if measure is not None and measure.is_maximized else "down, less is lost"
        caption = (
            f"Each mark is an evaluated generalization. Further left, fewer rows are left out; further {better}. The "
            f"line joins those that no other beats in both. {len(private.checked):,} are drawn."
        )
        chart = draw.frontier(private.checked, names, private.measure, private.allowed_rows)
        return self._figure("frontier", chart, caption, table)

    def comparison_figure(self) -> Figure:
        private = self.private
        assert private is not None
        headings = ["strategy", private.measure, "loss", "groups", "rows left out", "seconds", "error"]
        keys = ("strategy", "score", "loss", "classes", "suppressed_rows", "seconds", "error")
        rows = [[result[key] for key in keys] for result in private.comparison]
        table = Markup(html_table("Results of each strategy", headings, rows, range(1, 6)))
        chart = draw.comparison(private.comparison, private.measure)
        return self._figure("strategies", chart, "The result of each strategy for the same policy.", table)

    # --- Verification

    @property
    def verification_sql(self) -> str:
        return ";\n\n".join(self.facts.statements) + ";" if self.facts.statements else ""

    def version_table(self) -> Markup:
        claims, published = self.claims, self.facts.published
        rows = [
            ["table", claims.table_name],
            ["published" if published else "made", f"{claims.published_at:%Y-%m-%d %H:%M} UTC"],
            ["sqlanon", claims.sqlanon_version],
            ["engine", claims.engine],
            ["strategy", claims.policy.get("search", {}).get("strategy", "")],
            ["policy (SHA-256)", claims.policy_hash],
            *([["content digest", f"{claims.digest} ({claims.digest_algorithm})"]] if claims.digest else []),
            *([["manifest (SHA-256)", claims.fingerprint()]] if published else []),
        ]
        return _table("Versions and identifiers", ["name", "value"], rows)
