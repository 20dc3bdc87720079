"""Residual risks are reported at publication and verification, as the attacks count them."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest
import tomllib
from sqlglot import exp

import sqlanon
from sqlanon.attacks import attack
from sqlanon.audit.verify import SUBJECT, open_release
from sqlanon.disclosure.attribute_disclosure import background_knowledge, homogeneity, homogeneous_rows, skewness
from sqlanon.disclosure.residual_risk import (
    _CLASSES,
    BACKGROUND_KNOWLEDGE,
    HOMOGENEITY,
    SKEWNESS,
    ResidualRisk,
    _Classes,
    _count_disclosed,
    _count_values,
    _describe_rare_values,
    _describe_uniques,
    _Values,
    describe_disclosure,
    describe_narrowing,
    fewest_shown_rows,
    find_risks,
    find_worst,
    format_percent,
    grade_share,
    serious_share,
    sort_by_severity,
)
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.publish.published import Release
from sqlanon.release.manifest import Manifest, ReleasedColumn
from sqlanon.support.expressions import col, table
from support.commands import cli
from support.policies import make_policy

NAME = 'ill"ness\nrelease: forged'
# Wards 0 to 5 have one illness each, 6 to 11 two, the others four; a note is one person's; sign has two values.
TABLE = f"""
    CREATE TABLE stays AS
    SELECT
        'w' || (i // 10) AS ward,
        'd' || CASE WHEN i < 60 THEN i // 10 % 4 WHEN i < 120 THEN i % 2 ELSE i % 4 END AS "{NAME.replace('"', '""')}",
        's' || (i % 2) AS sign,
        CASE WHEN i % 50 = 0 THEN 'note ' || i END AS note
    FROM range(200) AS r(i)
"""
POLICY: dict[str, Any] = {"ward": "suppress", NAME: "sensitive", "sign": "sensitive", "note": "insensitive"}


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    with duckdb.connect() as connection:
        connection.execute(TABLE)
        with sqlanon.connect(connection) as db:
            yield db.anonymize(make_policy(POLICY, k=10, table="stays")).publish(
                tmp_path_factory.mktemp("risk") / "stays.duckdb", "stays"
            )


@pytest.mark.thorough
def test_worst_residual_risk_equals_attack_counts(release: Release) -> None:
    attacks = attack(release.path, only=["homogeneity", "background_knowledge"])
    shares = {
        (name, finding.figures["attribute"]): finding.share
        for name, outcome in attacks.items()
        for finding in outcome.findings
    }
    with open_release(release.path) as opened:
        risks = {risk.title: risk for risk in find_risks(opened.engine, SUBJECT, release.manifest) if risk.is_finding}
    assert risks["The group gives the value away"].share == shares["homogeneity", NAME] == 0.3
    assert risks["One more fact is enough"].share == shares["background_knowledge", NAME] == 0.6
    assert shares["background_knowledge", "sign"] == 1.0  # of two values this is always so: it is not counted
    assert risks["Columns that single out rows"].status == "minor"  # four notes, of one row each
    worst = release.verify().residual_risk
    assert worst is not None and worst.line.startswith("Background knowledge: in 60 % of the rows")


@pytest.mark.thorough
def test_nothing_a_report_does_not_worry_about_is_found_by_an_attack_in_all_rows(release: Release) -> None:
    """No title that reports nothing covers a disclosure that `attack` finds in every row."""
    with open_release(release.path) as opened:
        risks = find_risks(opened.engine, SUBJECT, release.manifest)
    calm = [risk.finding for risk in risks if risk.status == "none"]
    assert not [text for text in calm if "sign" in text]
    assert [risk.finding for risk in risks if risk.status == "not counted"] == [
        "Not counted for sign: with at most two values, ruling one out always gives the other."
    ]


@pytest.mark.slow
def test_the_advice_is_toml_and_a_name_forges_no_line(release: Release, capsys: pytest.CaptureFixture[str]) -> None:
    lines = cli("verify", release.path).out.splitlines()
    assert [line for line in lines if line.startswith("release:")] == []
    assert lines[-3].startswith("Background knowledge: in 60 % of the rows the group has at most two values of ill")
    assert lines[-2] == "To prevent it, add to [privacy]:"
    (entry,) = tomllib.loads(lines[-1])["l_diversity"]
    assert entry == {"attribute": NAME, "kind": "distinct", "l": 3}


@pytest.mark.thorough
def test_the_advice_prevents_the_disclosure(tmp_path: Path) -> None:
    folder = tmp_path
    with duckdb.connect(str(folder / "stays.duckdb")) as connection:
        connection.execute(TABLE)
    tail = '[release]\ndatabase = "out.duckdb"\n[search]\nsuppression_limit = 1\n[privacy]\nk = 5\n'
    attributes = 'ward = { role = "quasi", hierarchy = "suppress" }\nsign = { role = "sensitive" }\n'
    text = (
        '[source]\ndatabase = "stays.duckdb"\n'
        "query = '''SELECT ward, sign, 'd' || (CASE WHEN ward < 'w15' THEN 0 ELSE i % 4 END) AS illness FROM "
        "(SELECT *, row_number() OVER () AS i FROM stays)'''\n"
        f'[attributes]\n{attributes}illness = {{ role = "sensitive" }}\n{tail}'
    )
    (folder / "policy.toml").write_text(text, encoding="utf-8")
    before = cli("anonymize", folder / "policy.toml").out.splitlines()
    assert before[-2] == "To prevent it, add to [privacy]:" and '"illness"' in before[-1]
    (price,) = re.findall(r"What prevents it costs: loss ([\d.]+) instead of ([\d.]+)\.", before[-3])
    (folder / "policy.toml").write_text(text + before[-1].strip() + "\n", encoding="utf-8")
    after = cli("anonymize", folder / "policy.toml", "--force")
    assert after.status == 0 and "Homogeneity" not in after.out
    losses = [float(re.findall(r"^loss ([\d.]+)", text, re.MULTILINE)[0]) for text in (after.out, "\n".join(before))]
    assert [float(loss) for loss in price] == [pytest.approx(loss, rel=0.05) for loss in losses]


@pytest.mark.thorough
def test_noisy_values_reveal_no_person(tmp_path: Path) -> None:
    pytest.importorskip("opendp", reason="noise needs opendp: pip install '.[dp]'")
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT i % 2 AS ward, 1000 * random() AS cost FROM range(100) AS r(i)")
        with sqlanon.connect(connection) as db:
            noisy = {"role": "quasi", "noise": {"bounds": [0, 1000], "epsilon": 1}}
            tree = make_policy({"ward": "suppress"}, k=10, table="t").model_dump(exclude_none=True)
            tree["attributes"]["cost"], tree["privacy"]["epsilon"] = noisy, 1
            release = db.anonymize(sqlanon.Policy(**tree)).publish(tmp_path / "noisy.duckdb", "t")
    assert release.verify().residual_risk is None


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("pregnant", "line"),
    [
        ("i % 33 = 0", None),  # three in a hundred, in as many groups: most groups have the value of everybody
        ("i // 60 = 3", "Homogeneity: in 10 % of the rows the group has a single pregnant."),
        ("i // 6 % 4 = 0", "Homogeneity: in 100 % of the rows the group has a single pregnant."),
    ],
)
def test_a_value_that_everybody_shares_reveals_nothing(pregnant: str, line: str | None, tmp_path: Path) -> None:
    with duckdb.connect() as connection, sqlanon.connect(connection) as db:
        rows = f"SELECT 'w' || i // 6 AS ward, {pregnant} AS pregnant FROM range(600) AS r(i)"
        connection.execute(f"CREATE TABLE t AS {rows}")
        policy = make_policy({"ward": "suppress", "pregnant": "sensitive"}, k=5, table="t")
        release = db.anonymize(policy).publish(tmp_path / "r.duckdb", "t")
    worst = release.verify().residual_risk
    assert (None if worst is None else worst.line) == line
    if line is None:
        with open_release(release.path) as opened:
            texts = [risk.finding for risk in find_risks(opened.engine, SUBJECT, release.manifest)]
        calm = "No row is affected by its pregnant. The value of pregnant that 90 % of the rows or more share"
        assert any(text.startswith(calm) for text in texts)


def test_serious_follows_the_policy() -> None:
    assert [serious_share(k) for k in (None, 2, 5, 10, 20, 100)] == [0.1, 0.1, 0.1, 0.1, 0.05, 0.01]


@pytest.mark.cases(3)
@pytest.mark.parametrize("seed", range(8))
def test_residual_risk_statement_matches_attack_queries(seed: int) -> None:
    """Labels and values may be NULL, and two values may have half of a class each."""
    draw = random.Random(seed)
    rows = [
        (
            draw.choice(["a", "b", None]),
            draw.choice([1, 2, None]),
            draw.choice([*"xyz", None] + ["x"] * 80 * (seed > 5)),
        )
        for _ in range(draw.choice([0, 4, 30]))
    ]
    with closing(DuckDBEngine(duckdb.connect())) as engine:
        engine.connection.execute("CREATE TABLE shown (one TEXT, two INTEGER, ill TEXT)")
        if rows:
            engine.connection.executemany("INSERT INTO shown VALUES (?, ?, ?)", rows)
        released, quasi = table("shown"), ["one", "two"]
        disclosed = _count_disclosed(engine, released, quasi, "ill", 3)

        def rows_of(query: exp.Select) -> int:
            return sum(row[-1] for row in engine.rows(query))

        shares = Counter(ill for *_, ill in rows)
        common = {ill for ill, n in shares.items() if n >= 0.9 * len(rows)}
        values = {(first, second): {row[2] for row in rows if row[:2] == (first, second)} for first, second, _ in rows}
        revealed = [row for row in rows if row[2] not in common]
        assert disclosed.one_value == sum(len(values[row[:2]]) == 1 for row in revealed)
        assert disclosed.two_values == sum(len(values[row[:2]]) <= 2 for row in revealed)
        assert disclosed.has_common == bool(common)
        assert engine.rows(homogeneous_rows(released, quasi, "ill")) == [(disclosed.one_value,)]
        if not common:
            assert disclosed.one_value == rows_of(homogeneity(released, quasi, "ill"))
            assert disclosed.two_values == rows_of(background_knowledge(released, quasi, "ill"))
        assert disclosed.skewed == rows_of(skewness(released, quasi, "ill"))
    sizes = Counter((first, second) for first, second, _ in rows).values()
    assert (disclosed.classes.rows, disclosed.classes.smallest) == (len(rows), min(sizes, default=0))
    assert disclosed.classes.uniques == sum(size == 1 for size in sizes)
    values = Counter(ill for *_, ill in rows).values()
    rare, seen = [n for n in values if n < 3], disclosed.values
    assert (seen.values, seen.rare_values, seen.rare_rows) == (
        len(values),
        len(rare),
        sum(rare),
    )


# --- at the border


def claims(**fields: Any) -> Manifest:
    """A manifest with the claims that residual risks depend on."""
    columns = (
        ReleasedColumn("zip", "VARCHAR", "quasi"),
        ReleasedColumn("ill", "VARCHAR", "sensitive"),
        ReleasedColumn("note", "VARCHAR", "insensitive"),
    )
    entries = {"policy": {"privacy": {"k": 5}}, "columns": columns, "quasi_identifiers": ["zip"]}
    manifest = SimpleNamespace(**entries | fields)
    manifest.privacy = Manifest.privacy.fget(manifest)
    return manifest


K_50 = claims(policy={"privacy": {"k": 50}})
NO_K = claims(policy={"privacy": {"l_diversity": [{"attribute": "ill", "kind": "distinct", "l": 2}]}})


@pytest.mark.parametrize(
    ("share", "manifest", "status"),
    [
        (0.1, claims(), "serious"),
        (0.0999, claims(), "minor"),
        (0.02, K_50, "serious"),
        (0.0199, K_50, "minor"),
        (0.05, K_50, "serious"),
        (0.1, NO_K, "serious"),
        (0.0999, NO_K, "minor"),
        (0.0, claims(), "none"),
    ],
)
def test_findings_are_serious_from_a_tenth_or_one_in_k(share: float, manifest: Manifest, status: str) -> None:
    assert grade_share(share, manifest) == status


def test_counts_below_k_are_not_shown() -> None:
    assert [fewest_shown_rows(manifest) for manifest in (claims(), K_50, NO_K)] == [5, 50, 5]
    assert fewest_shown_rows(claims(policy={"privacy": {"k": 2}})) == 2
    more = [{"attribute": "ill", "kind": "distinct", "l": 7}]
    assert fewest_shown_rows(claims(policy={"privacy": {"l_diversity": more}})) == 7
    assert fewest_shown_rows(claims(policy={"privacy": {"k": 3, "l_diversity": more}})) == 7
    assert fewest_shown_rows(claims(policy={"privacy": "?"})) == 5


def test_shares_read_as_people_write_them() -> None:
    shares = [0, 0.0009, 0.001, 0.0104, 0.099, 0.1, 0.45, 0.989, 0.99, 0.999, 0.9991, 1.0]
    assert [format_percent(share) for share in shares] == [
        "0 %", "under 0.1 %", "0.1 %", "1 %", "9.9 %", "10 %", "45 %", "99 %", "99.0 %", "99.9 %", "over 99.9 %",
        "100 %",
    ]  # fmt: skip


def test_the_worst_comes_first() -> None:
    def risk_of(status: Any, share: float | None, line: str = "line") -> ResidualRisk:
        return ResidualRisk(f"{status} {share}", "", status=status, share=share, line=line)

    risks = [
        risk_of("none", None),
        risk_of("minor", 0.9),
        risk_of("serious", 0.2),
        risk_of("serious", 0.3),
        risk_of("serious", None, ""),
        risk_of("unknown", None),
        risk_of("accepted", 1.0),
    ]
    assert [risk.title for risk in sort_by_severity(risks)][:5] == [
        "serious None", "serious 0.3", "serious 0.2", "minor 0.9", "accepted 1.0",
    ]  # fmt: skip
    worst = find_worst(risks)
    assert worst is not None and worst.title == "serious 0.3"  # one without a line is for the report
    assert find_worst([risk_of("none", None), risk_of("accepted", 1.0), risk_of("unknown", None)]) is None


@pytest.mark.parametrize(
    ("kind", "affected", "values", "statuses", "number"),
    [
        (HOMOGENEITY, 20, 2, ["serious"], "20 %"),
        (HOMOGENEITY, 20, 1, ["not counted"], ""),
        (BACKGROUND_KNOWLEDGE, 20, 3, ["serious"], "20 %"),
        (BACKGROUND_KNOWLEDGE, 20, 2, ["not counted"], ""),
        (SKEWNESS, 20, 2, ["serious"], "20 %"),
        (SKEWNESS, 9, 2, ["minor"], "9 %"),
        (SKEWNESS, 5, 2, ["minor"], "5 %"),
        (SKEWNESS, 4, 2, ["minor"], "under 5 %"),  # fewer than k rows are not counted
        (SKEWNESS, 0, 2, ["none"], ""),
    ],
)
def test_a_finding_needs_values_that_can_differ(
    kind: Any, affected: int, values: int, statuses: list[str], number: str
) -> None:
    risks = [*describe_disclosure(kind, {"ill": affected}, {"ill": values}, [], 100, 5, claims())]
    assert [risk.status for risk in risks] == statuses
    assert [risk.number for risk in risks] == [number]


def test_the_worst_column_stands_for_all() -> None:
    counts = {"ill": 8, "job": 30, "sex": 50, "diet": 3, "hair": 0}
    values = {"ill": 4, "job": 4, "sex": 1, "diet": 4, "hair": 4}
    trivial, finding = describe_disclosure(HOMOGENEITY, counts, values, [], 100, 5, claims())
    assert trivial.status == "not counted" and "sex" in trivial.finding
    assert (finding.share, finding.status) == (0.3, "serious")
    assert finding.finding.startswith("30 of 100 rows are in a group whose rows all have the same job")
    assert finding.finding.endswith("Other columns: ill 8 %, diet 5 %.")
    assert finding.change == {"privacy": {"l_diversity": [{"attribute": "job", "kind": "distinct", "l": 2}]}}


@pytest.mark.parametrize(
    ("values", "status", "number"),
    [
        ((10, 0, 0), "none", ""),
        ((10, 1, 4), "minor", "under 5 %"),  # one value: its rows could be counted by subtraction
        ((10, 2, 4), "minor", "under 5 %"),
        ((10, 2, 5), "minor", "5 %"),
        ((10, 2, 9), "minor", "9 %"),
        ((10, 3, 10), "serious", "10 %"),
        ((10, 1, 40), "serious", "under 5 %"),
    ],
)
def test_values_that_few_rows_share_single_rows_out(values: tuple[int, int, int], status: str, number: str) -> None:
    finding = _describe_rare_values({"note": _Values(*values)}, 100, 5, claims())
    assert (finding.status, finding.number) == (status, number)


@pytest.mark.parametrize(("uniques", "status"), [(0, "none"), (1, "minor"), (9, "minor"), (10, "serious")])
def test_rows_that_are_alone_may_be_unique_in_the_population(uniques: int, status: str) -> None:
    assert _describe_uniques(claims(), _Classes(100, 1 if uniques else 2, uniques)).status == status
    persons = claims(policy={"privacy": {"k": 5}, "persons": "who"})
    assert _describe_uniques(persons, _Classes(100, 1, uniques)).status == "unknown"


@pytest.mark.parametrize(
    ("rows", "one_value", "two_values", "skewed", "common"),
    [
        # Nine in ten share a value: it is known of everybody. One row less, and it is not.
        ([("a", "x")] * 9 + [("a", "y")], 0, 1, 0, True),
        ([("a", "x")] * 8 + [("a", "y")] * 2, 0, 10, 0, False),
        ([("a", "x")] * 9 + [("b", "y")], 1, 1, 1, True),
        # Half of a class has a value, and it is twice as frequent as in all rows.
        ([("a", "x")] * 2 + [("a", "y"), ("a", "z")] + [("b", "y"), ("b", "z")] * 2, 0, 4, 2, False),
        ([("a", "x")] * 2 + [("a", "y"), ("a", "z"), ("b", "x")] + [("b", "y"), ("b", "z")] * 2, 0, 0, 0, False),
        ([("a", "x")] * 2 + [("a", "y")] * 3 + [("b", v) for v in "yzvwu"], 0, 5, 0, False),
        # Rows count, not classes.
        ([("a", "x")] * 3 + [("b", "y")] * 2 + [("c", v) for v in "xyz"], 5, 5, 5, False),
        # Three values of a class are not two.
        ([("a", v) for v in "xyz"] + [("b", v) for v in "xyzx"], 0, 0, 0, False),
    ],
)
def test_homogeneity_is_reported_from_its_border_on(
    rows: list[tuple[str, str]], one_value: int, two_values: int, skewed: int, common: bool
) -> None:
    with closing(DuckDBEngine(duckdb.connect())) as engine:
        engine.connection.execute("CREATE TABLE shown (zip VARCHAR, ill VARCHAR)")
        engine.connection.executemany("INSERT INTO shown VALUES (?, ?)", rows)
        disclosed = _count_disclosed(engine, table("shown"), ["zip"], "ill", 5)
    assert (disclosed.one_value, disclosed.two_values, disclosed.skewed, disclosed.has_common) == (
        one_value, two_values, skewed, common,
    )  # fmt: skip


def test_columns_that_narrow_others_are_serious_as_other_findings_are() -> None:
    def narrowing(pinned: float, affected: int, **more: Any) -> Any:
        entries = {"columns": ["job"], "quasi": "zip", "unit": "values", "before": 10.0, "after": 2.0}
        return SimpleNamespace(**entries | {"pinned": pinned, "affected": affected} | more)

    assert describe_narrowing([], None, 5, 100).status == "none"
    assert describe_narrowing([], "no rows", 5, 100).status == "unknown"
    for pinned, k, status in ((0.1, 5, "serious"), (0.099, 5, "minor"), (0.02, 50, "serious"), (0.019, 50, "minor")):
        finding = describe_narrowing([narrowing(pinned, 30)], None, k, 100)
        assert (finding.status, finding.share) == (status, 0.3)
    worst = describe_narrowing([narrowing(0.1, 90), narrowing(0.2, 10, columns=["town"])], None, 5, 100)
    assert worst.change == {"attributes": {"town": {"role": "quasi", "hierarchy": "suppress"}}}
    assert describe_narrowing([narrowing(0.0, 300)], None, 5, 100).share == 1.0


def test_revealed_columns_are_counted_by_their_values() -> None:
    rows = ["a"] * 5 + ["b"] * 4 + [None] * 2 + ["c"]
    with closing(DuckDBEngine(duckdb.connect())) as engine:
        engine.connection.execute("CREATE TABLE shown (zip VARCHAR, ill VARCHAR, note VARCHAR)")
        engine.connection.executemany("INSERT INTO shown VALUES ('1', ?, ?)", [(row, row) for row in rows])
        sizes = Counter(rows).values()
        rare = [n for n in sizes if n < 5]
        expected = _Values(len(sizes), len(rare), sum(rare))
        assert _count_values(engine, table("shown"), ["note"], 5) == {"note": expected}
        counts = _count_values(engine, table("shown"), ["note", "zip"], 5)
        assert counts == {"note": expected, "zip": _Values(1, 0, 0)}
        assert _count_disclosed(engine, table("shown"), ["zip"], "ill", 5).values == expected
        query = _CLASSES(relation=table("shown"), quasi=[col("note")])
        assert engine.rows(query) == [(len(rows), min(sizes), sum(n == 1 for n in sizes))]
