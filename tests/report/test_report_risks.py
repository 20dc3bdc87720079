"""Remaining risks: the figures are right, the worst comes first, and no page reveals more than its release."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
import tomllib

import sqlanon
import sqlanon.report.page as paging
from sqlanon.disclosure.residual_risk import ResidualRisk, sort_by_severity
from sqlanon.frequency.class_sizes import ClassSizes
from sqlanon.policy import AboutSection
from sqlanon.report.facts import ReportFacts
from sqlanon.report.page import render_page
from sqlanon.report.risks import uniques_in_source
from sqlanon.support.checks import Check
from support.policies import make_policy

K = 4
# Wards 0 to 8 have one diagnosis each, the others four; ten rows a ward. One cost is in two rows, three in one, and
# district says which ward it is.
TABLE = """
    CREATE TABLE stays AS
    SELECT
        'w' || (i // 10) AS ward,
        CASE WHEN i // 10 < 9 THEN 'd' || (i // 10 % 3) ELSE 'd' || (i % 4) END AS diagnosis,
        CASE WHEN i < 5 THEN 1000 + least(i, 3) ELSE 10 * (i % 7) END AS cost,
        'e' || (i % 2) AS entry
    FROM range(200) AS r(i)
"""
ATTRIBUTES: dict[str, Any] = {
    "ward": "suppress", "diagnosis": "sensitive", "cost": "insensitive", "entry": "sensitive",
}  # fmt: skip


@pytest.fixture(autouse=True)
def without_the_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "_bundle", lambda: "window.vegaEmbed = () => null;")


@pytest.fixture(scope="module")
def result() -> Iterator[sqlanon.Result]:
    with duckdb.connect() as connection:
        connection.execute(TABLE)
        with sqlanon.connect(connection) as db:
            yield db.anonymize(make_policy(ATTRIBUTES, k=K, table="stays"))


@pytest.fixture(scope="module")
def facts(result: sqlanon.Result) -> ReportFacts:
    return result._unpublished().facts()


def risk(facts: ReportFacts, title: str) -> ResidualRisk:
    """The finding with that title, or its replacement, without the reasons why columns are not counted."""
    return sort_by_severity(candidate for candidate in facts.risks if candidate.title == title)[0]


@pytest.mark.thorough
def test_shares_match_plain_python(facts: ReportFacts) -> None:
    diagnosis = [i // 10 % 3 if i // 10 < 9 else i % 4 for i in range(200)]
    values = [{diagnosis[j] for j in range(200) if j // 10 == i // 10} for i in range(200)]
    alone, few = sum(len(value) == 1 for value in values), sum(len(value) <= 2 for value in values)
    homogeneous = risk(facts, "The group gives the value away")
    assert homogeneous.share == alone / 200 == 0.45
    assert (homogeneous.status, homogeneous.number) == ("serious", "45 %")
    assert "90 of 200 rows are in a group whose rows all have the same diagnosis" in homogeneous.finding
    assert '`[[privacy.l_diversity]]` with `attribute = "diagnosis"`' in homogeneous.remedy
    assessment = risk(facts, "One more fact is enough")
    assert assessment.share == few / 200 == 0.45
    assert (
        "two values of diagnosis" in assessment.finding
    )  # entry has two values in all: ruling out one reveals the other
    assert "entry" not in assessment.finding
    whole = Counter(diagnosis)
    in_ward = Counter((i // 10, diagnosis[i]) for i in range(200))
    skewed = sum(n for (_, d), n in in_ward.items() if n / 10 >= 0.5 and n / 10 >= 2 * whole[d] / 200)
    assert risk(facts, "The group makes a value likely").share == skewed / 200 > 0
    assert risk(facts, "Being found in a group").share == pytest.approx(20 / 200)


@pytest.mark.thorough
def test_the_worst_comes_first_and_is_named_at_the_top(facts: ReportFacts) -> None:
    text = render_page(facts)
    titles = re.findall(r"<li class=\"(?:serious|minor|accepted)\"><h3>(.*?)</h3>", text)
    assert titles == [
        finding.title for finding in sort_by_severity(facts.risks) if finding.is_finding or finding.status == "accepted"
    ]
    assert titles[:2] == ["The group gives the value away", "One more fact is enough"]
    assert titles[-1] == "Being found in a group"  # the policy accepts it
    top = text[text.index("<h1>") : text.index("</header>")]
    assert "The policy&#x27;s requirements hold. 3 serious and 1 minor risks remain." in top
    first = text[text.index('<ol class="risks">') :]
    assert first.index('45 % <span class="status">serious</span>') < first.index("90 of 200 rows")
    assert "All requirements hold" not in text
    assert 'class="verdict holds"' not in text


@pytest.mark.thorough
def test_values_that_few_rows_share_are_not_counted_one_by_one(facts: ReportFacts, tmp_path: Path) -> None:
    assessment = risk(facts, "Columns that single out rows")
    assert assessment.number == "2.5 %"  # five rows of four values
    assert "1,000" not in assessment.finding and "1000" not in assessment.finding
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT i % 2 AS q, CASE WHEN i < 3 THEN 'x' ELSE 'y' END AS s "
                           "FROM range(300) AS r(i)")  # fmt: skip
        with sqlanon.connect(connection) as db:
            single_facts = (
                db.anonymize(make_policy({"q": "suppress", "s": "insensitive"}, k=5, table="t"))._unpublished().facts()
            )
    alone = risk(single_facts, "Columns that single out rows")
    assert alone.number == "under 1.7 %"  # 5 of 300: three rows cannot be distinguished from four
    assert "1 %" not in alone.finding.replace("1.7 %", "")


@pytest.mark.thorough
def test_a_share_of_few_rows_is_not_shown() -> None:
    """Half of a group of two is one row: a count below k."""
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT i // 2 AS q, CASE WHEN i = 0 THEN 'x' ELSE 'y' || (i % 2) END AS s "
            "FROM range(200) AS r(i)"
        )
        with sqlanon.connect(connection) as db:
            policy = make_policy({"q": "suppress", "s": "sensitive"}, k=2, table="t")
            few_facts = db.anonymize(policy)._unpublished().facts()
    likely = risk(few_facts, "The group makes a value likely")
    assert likely.number == "under 1 %"
    assert likely.finding.startswith("Fewer than 2 rows have")


@pytest.mark.thorough
def test_page_without_findings_names_unknown_figures(facts: ReportFacts) -> None:
    text = render_page(facts)
    nothing, unknown = text.index("<h3>Nothing to report</h3>"), text.index("<h3>What this page cannot know</h3>")
    assert nothing < text.index("Being unique in the population") < unknown
    assert all(text.index(f"<strong>{title}.</strong>") > unknown for title in (
        "Columns that narrow others", "Linking with earlier releases", "Other tables about the same people",
    ))  # fmt: skip
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT i % 2 AS q, 's' || (i % 7) AS s FROM range(1400) AS r(i)")
        with sqlanon.connect(connection) as db:
            calm = db.anonymize(make_policy({"q": "suppress", "s": "sensitive"}, k=5, table="t"))._unpublished().facts()
    assert not [finding.title for finding in calm.risks if finding.is_finding]
    assert risk(calm, "Being found in a group").status == "accepted"
    assert "This page found no risk beyond what the policy accepts." in render_page(calm)
    assert calm.worst is None


@pytest.mark.thorough
def test_requirements_on_the_source_are_named_without_the_source(tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute(TABLE)
        with sqlanon.connect(connection) as db:
            tree = make_policy(ATTRIBUTES, k=K, table="stays").model_dump(exclude_none=True)
            tree["privacy"]["t_closeness"] = [{"attribute": "entry", "distance": "equal", "t": 0.9}]
            release = db.anonymize(sqlanon.Policy(**tree)).publish(tmp_path / "r.duckdb", "stays")
            db.report(release.path, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "0.9-closeness of entry cannot be verified from the release alone." in text


@pytest.mark.thorough
def test_checks_of_the_file_fold_away_and_failures_do_not(facts: ReportFacts) -> None:
    file = replace(facts.checks[0], name="digest", message="as claimed")
    folded = render_page(replace(facts, checks=(*facts.checks, file)))
    details = folded[folded.index("One check of the release itself: all passed") :]
    assert "as claimed" in details[: details.index("</details>")]
    broken = render_page(replace(facts, checks=(*facts.checks, replace(file, passed=False, message="changed"))))
    assert "of the release itself: all passed" not in broken
    assert "This release does NOT hold what it claims." in broken


HOSTILE = "</p><script>alert(1)</script><img src=x onerror=alert(2)>"


@pytest.mark.slow
def test_about_is_shown_as_text(facts: ReportFacts) -> None:
    about = AboutSection(purpose=HOSTILE, owner="Ward <b>8</b>", approved_by="A. Huber", approved_on="2026-11-23")
    text = render_page(replace(facts, about=about))
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&lt;img src=x onerror=alert(2)&gt;" in text
    assert HOSTILE not in text and "<b>" not in text
    assert "<dt>Approved by</dt><dd>A. Huber on 2026-11-23</dd>" in text
    unsigned = render_page(replace(facts, about=AboutSection(purpose="planning")))
    assert "<dt>Approved by</dt><dd>nobody yet</dd>" in unsigned
    assert '<dl class="about">' not in render_page(facts)


@pytest.mark.thorough
def test_hostile_names_stay_text_in_findings() -> None:
    name = "s`<script>alert(1)</script>{0}{share}"
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t AS SELECT i % 2 AS q, 'x' || (i % 2) AS \"{name}\" FROM range(40) AS r(i)")
        with sqlanon.connect(connection) as db:
            hostile_facts = (
                db.anonymize(
                    make_policy(
                        {"q": {"role": "quasi", "hierarchy": "suppress", "max_level": 0}, name: "sensitive"},
                        k=2,
                        table="t",
                    )
                )
                ._unpublished()
                .facts()
            )
    text = render_page(hostile_facts)
    assert risk(hostile_facts, "The group gives the value away").number == "100 %"
    assert "<script>alert(1)" not in text
    assert "{0}{share}" in text


@pytest.mark.slow
def test_page_of_a_draft_is_marked(facts: ReportFacts) -> None:
    claims = replace(facts.claims, policy={**facts.claims.policy, "draft": True})
    text = render_page(replace(facts, claims=claims))
    assert '<p class="private">DRAFT. This release is for testing' in text
    assert "<title>DRAFT · stays" in text
    assert "DRAFT" not in render_page(facts)
    checked = (*facts.checks, Check("draft", None, "not published"))  # as `verify` says it
    head = render_page(replace(facts, claims=claims, checks=checked)).partition("</header>")[0]
    assert "The policy&#x27;s requirements hold. A draft: not compared with earlier releases. 3 serious" in head
    assert "source" not in head[head.index("<h1>") :]


@pytest.mark.thorough
def test_public_page_describes_the_remaining_detail_of_each_column() -> None:
    """Local strategies, too, and without the source; labels that few rows have are not counted."""
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT 20 + i % 40 AS age, 'z' || (i % 4) AS zip, DATE '1980-01-01' + i::INT AS born, "
            "'s' || (i % 5) AS s FROM range(400) AS r(i)"
        )
        with sqlanon.connect(connection) as db:
            policy = make_policy(
                {"age": {"intervals": [10, 20]}, "zip": "suppress", "born": {"dates": ["year"]}, "s": "sensitive"},
                k=10,
                table="t",
                search={"strategy": "optimal"},
            )
            outcome = db.anonymize(policy)
            facts = outcome._unpublished().facts()
    columns = connection_rows(facts)
    assert set(columns) == {"age", "zip", "born"}
    for name, level in outcome.generalization.items():
        left = facts.remaining[name]
        assert columns[name][1] == f"{left.values:,}" and left.hidden == float(level == outcome.heights[name])
    widths = {"age": {1: 10.0, 2: 20.0}, "born": {1: 1.0}}
    for name, by_level in widths.items():
        wanted = by_level.get(outcome.generalization[name] or 0)
        assert facts.remaining[name].width == (None if wanted is None else pytest.approx(wanted, rel=0.01))
    rare = render_page(replace(facts, remaining={}))
    assert '<td class="number">not counted</td>' in rare


def connection_rows(facts: ReportFacts) -> dict[str, list[str]]:
    """The cells of the table of the remaining detail, by column."""
    text = render_page(facts)
    table = text[text.index("Remaining detail of the generalized columns") :]
    rows = re.findall(r"<tr><th[^>]*>(.*?)</th>(.*?)</tr>", table[: table.index("</table>")])
    return {name: re.findall(r"<td[^>]*>(.*?)</td>", cells) for name, cells in rows if "<td" in cells}


# For internal use only


@pytest.mark.slow
def test_private_page_compares_earlier_releases_and_names_narrowing_columns(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "stays.duckdb")) as connection:
        connection.execute(TABLE.replace("'e' || (i % 2) AS entry", "'w' || (i // 10) || 'x' AS entry"))
    (tmp_path / "policy.toml").write_text(
        '[source]\ndatabase = "stays.duckdb"\ntable = "stays"\n[attributes]\n'
        'ward = { role = "quasi", hierarchy = { mask = "right" } }\ndiagnosis = { role = "sensitive" }\n'
        'cost = { role = "insensitive" }\nentry = { role = "insensitive" }\n[privacy]\nk = 30\n'
        '[release]\ndatabase = "one.duckdb"\n[risk]\npopulation = 10000\n',
        encoding="utf-8",
    )
    policy = sqlanon.Policy.load(tmp_path / "policy.toml")
    with sqlanon.connect() as db:
        result = db.anonymize(policy)
        first = result._unpublished()
        titles = {
            finding.title: finding for finding in (*first.facts(private=True).risks, *first.private_facts().risks)
        }
        assert titles["Linking with earlier releases"].finding == "The catalog has no other release of this source."
        assert "entry" in titles["Columns that narrow others"].finding
        assert titles["Columns that narrow others"].number == "100 %"
        assert "Of the population of 10,000" in titles["Being unique in the source"].finding
        result.publish(tmp_path / "one.duckdb")
        result.publish(tmp_path / "other.duckdb")
        again = db.anonymize(policy)._unpublished().facts(private=True)
        assert "Compared with one earlier release" in risk(again, "Linking with earlier releases").finding
        assert not [
            finding for finding in db.anonymize(policy)._unpublished().facts().risks if "earlier" in finding.title
        ]


def test_population_table_counts_as_population() -> None:
    sizes = ClassSizes.from_classes({1: 3, 5: 2})
    without, with_table = (uniques_in_source(sizes, None, 13, has_population=has_table) for has_table in (False, True))
    assert without.remedy.startswith("Set `population` in `[risk]`")
    assert with_table.remedy.startswith("`sqlanon risk` counts the people of the population table")


@pytest.mark.thorough
def test_binary_columns_are_no_background_knowledge_finding() -> None:
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT i % 2 AS q, 's' || (i % 3 // 2) AS s, 'one' AS c FROM range(90) AS r(i)"
        )
        with sqlanon.connect(connection) as db:
            policy = make_policy({"q": "suppress", "s": "sensitive", "c": "sensitive"}, k=5, table="t")
            binary_facts = db.anonymize(policy)._unpublished().facts()
    background, homogeneous = (
        risk(binary_facts, "One more fact is enough"),
        risk(binary_facts, "The group gives the value away"),
    )
    why = "Not counted for s and c: with at most two values, ruling one out always gives the other."
    assert (background.status, background.finding) == ("not counted", why)
    assert (homogeneous.status, homogeneous.finding) == ("none", "No row is affected by its s.")
    findings = [
        finding.finding
        for finding in binary_facts.risks
        if finding.title == homogeneous.title and finding.status == "not counted"
    ]
    assert findings == ["Not counted for c: all rows have the same value, so that no group adds anything."]


def test_every_finding_has_a_line_for_the_terminal(facts: ReportFacts) -> None:
    """The last line of `report` can then be the worst finding of its page."""
    findings = [item for item in sort_by_severity(facts.risks) if item.is_finding]
    assert findings and all(finding.line and finding.advice for finding in findings)
    assert facts.worst is findings[0]
    skewed = risk(facts, "The group makes a value likely")
    assert skewed.line == "Skewness: in 45 % of the rows the group makes the value of diagnosis likely."
    head, _, entry = skewed.advice.partition("\n")
    assert head == "To prevent it, add to [privacy]:"
    assert tomllib.loads(entry)["t_closeness"] == [{"attribute": "diagnosis", "distance": "equal", "t": 0.2}]


def test_a_private_page_names_the_columns_that_are_not_released(tmp_path: Path) -> None:
    """The page warns about the person, the key and columns without a role; a public page says that there may be such
    columns."""
    with duckdb.connect() as connection:
        rows = (
            "SELECT i % 2 AS q, i AS patient, i AS row_number, 'x' AS remark, 'n' || i AS name FROM range(90) AS r(i)"
        )
        connection.execute(f"CREATE TABLE t AS {rows}")
        attributes = {"q": {"role": "quasi", "hierarchy": "suppress"}, "name": {"role": "identifying"}}
        source = {"table": "t", "undeclared": "drop", "person": "patient", "key": ["row_number"]}
        policy = sqlanon.Policy(source=source, attributes=attributes, privacy={"k": 5})
        with sqlanon.connect(connection) as db:
            result = db.anonymize(policy)
            result.report(tmp_path / "private.html", private=True)
            result.report(tmp_path / "public.html")
    private, public = ((tmp_path / f"{name}.html").read_text() for name in ("private", "public"))
    for name in ("patient", "row_number", "remark"):
        row = f'<th scope="row">{name}</th><td>not in the policy&#x27;s attributes: not released</td>'
        assert row in private and f'<th scope="row">{name}</th>' not in public
    assert '<th scope="row">name</th>' in public and "numbers of persons and keys are not released" in public
    assert "May I share this?" in public
