"""`risk`: what breaks each requirement in the source as it stands, against counts in plain Python."""

from __future__ import annotations

import json
import math
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sqlanon
from oracles import oracle_privacy
from oracles.oracle import Row
from oracles.oracle_privacy import Record, Source, of_persons
from properties import privacy_cases
from properties.prepared_tables import quick_and_slow
from properties.privacy_cases import PrivacyCase
from properties.privacy_checks import open_database, policy_of
from sqlanon import HierarchyError, SourceError
from sqlanon.risk import RequirementRisk, Risk
from support.commands import cli
from support.databases import connect_to, connection_of, insert, live_connection
from support.lanes import SEARCHING, examples, some

# Two quasi-identifiers with NULLs; a diagnosis; a person: p1 is in two classes, and two rows have no person.
ROWS = """
    x1 y1 flu  p1
    x1 y1 flu  p1
    x1 y1 cold p2
    x1 y1 flu  p3
    x1 -  flu  p1
    x1 -  flu  p4
    x2 y1 -    p5
    x2 y1 cold -
    x2 y1 -    -
    -  -  gout p6
"""
"""Classes: A = (x1, y1), 4 rows; B = (x1, NULL), 2; C = (x2, y1), 3; D = (NULL, NULL), 1."""
COLUMNS = ("x", "y", "diagnosis", "who")
SUPPRESSED = {"x": "suppress", "y": "suppress"}


def of_words(text: str) -> list[tuple[str | None, ...]]:
    lines = [line.split() for line in text.splitlines() if line.strip()]
    return [tuple([None if word == "-" else word for word in line]) for line in lines]


@pytest.fixture(scope="module")
def live() -> Iterator[duckdb.DuckDBPyConnection]:
    with live_connection() as connection:
        columns = ", ".join(f"{name} VARCHAR" for name in COLUMNS)
        for name in ("t", "nobody"):
            connection.execute(f"CREATE TABLE {name} ({columns})")
        insert(connection, "t", of_words(ROWS))
        # A is there five times, of three persons; B once; C never; D twice. E and F are of others.
        connection.execute("CREATE TABLE people AS SELECT * FROM (VALUES ('x1', 'y1', 'n1'), ('x1', 'y1', 'n1'), "
                           "('x1', 'y1', 'n1'), ('x1', 'y1', 'n2'), ('x1', 'y1', 'n3'), ('x1', NULL, 'n4'), "
                           "(NULL, NULL, 'n5'), (NULL, NULL, 'n6'), ('x2', NULL, 'n7'), ('x3', 'y1', 'n8')"
                           ") AS v(X, y, named)")  # fmt: skip
        yield connection


def assess(live: duckdb.DuckDBPyConnection, policy: sqlanon.Policy) -> Risk:
    with connect_to(live) as db:
        return db.risk(policy)


def policy_for(attributes: Mapping[str, Any], privacy: Mapping[str, Any], **sections: Any) -> sqlanon.Policy:
    """A policy; an attribute is a role, the rule of a quasi-identifier, or all of its own table."""
    tables: dict[str, Any] = {}
    for name, spec in attributes.items():
        is_role = spec in ("identifying", "sensitive")
        is_table = isinstance(spec, dict) and "role" in spec
        tables[name] = spec if is_table else {"role": spec} if is_role else {"role": "quasi", "hierarchy": spec}
    return sqlanon.Policy(**{"source": {"table": "t"}, "attributes": tables, "privacy": dict(privacy), **sections})


def request_policy(
    privacy: Mapping[str, Any], persons: bool = False, table: str = "t", **sections: Any
) -> sqlanon.Policy:
    """A policy for the table above."""
    source = {"table": table, **({"person": "who"} if persons else {})}
    attributes = {**SUPPRESSED, "diagnosis": "sensitive", "who": "identifying"}
    return policy_for(attributes, privacy, source=source, **sections)


OF_DIAGNOSIS = {"attribute": "diagnosis"}
# Diagnoses of A: 3 flu, 1 cold. B: 2 flu. C: 2 NULL, 1 cold. D: 1 gout. All: .5 flu, .2 cold, .2 NULL, .1 gout.
BROKEN: dict[str, tuple[dict[str, Any], dict[str, Any], str, int, int]] = {
    "k": ({"k": 3}, {}, "3-anonymity", 2, 3),
    "a shield": ({"k_anonymity": [{"quasi": ["y"], "k": 5}]}, {}, "5-anonymity of y", 1, 3),  # y1: 7, NULL: 3
    "a shield's NULL": ({"k_anonymity": [{"quasi": ["x"], "k": 2}]}, {}, "2-anonymity of x", 1, 1),
    "distinct": (
        {"l_diversity": [{**OF_DIAGNOSIS, "kind": "distinct", "l": 2}]}, {}, "distinct 2-diversity of diagnosis", 2, 3
    ),
    "entropy": (  # A: e^0.5623 = 1.755; C: e^0.6365 = 1.890
        {"l_diversity": [{**OF_DIAGNOSIS, "kind": "entropy", "l": 1.8}]}, {}, "entropy 1.8-diversity of diagnosis", 3, 7
    ),
    "recursive": (  # A: 3 < 2 * 1 fails; C: 2 < 2 * 1 fails
        {"l_diversity": [{**OF_DIAGNOSIS, "kind": "recursive", "l": 2, "c": 2.5}]}, {},
        "recursive (2.5, 2)-diversity of diagnosis", 3, 7,
    ),
    "equal": (  # A: .3; B: .5; C: .6 (.467 NULL and .133 cold too many); D: .9
        {"t_closeness": [{**OF_DIAGNOSIS, "distance": "equal", "t": 0.5}]}, {}, "equal 0.5-closeness of diagnosis", 2, 4
    ),
    "ordered": (  # NULL, cold, flu, gout: .2, .4, .9 up to each. A: (.2 + .15 + .1) / 3; B: .7 / 3; C: 1.5 / 3; D: .5
        {"k": 4, "t_closeness": [{**OF_DIAGNOSIS, "distance": "ordered", "t": 0.25}]}, {},
        "ordered 0.25-closeness of diagnosis", 2, 4,
    ),
    "delta": (  # every class lacks a value
        {"delta_disclosure": [{**OF_DIAGNOSIS, "delta": 3}]}, {}, "3-disclosure privacy of diagnosis", 4, 10
    ),
    "beta": (  # flu in A: .5, in B: 1; NULL in C: 2.33; gout in D: 9
        {"beta_likeness": [{**OF_DIAGNOSIS, "beta": 1, "kind": "basic"}]}, {}, "basic 1-likeness of diagnosis", 2, 4
    ),
    "enhanced beta": (  # flu: at most -ln .5 = .69
        {"beta_likeness": [{**OF_DIAGNOSIS, "beta": 1}]}, {}, "enhanced 1-likeness of diagnosis", 3, 6
    ),
    "alpha": ({"alpha_k": [{**OF_DIAGNOSIS, "alpha": 0.75}]}, {}, "share of at most 0.75 of each diagnosis", 2, 3),
    "k_map": ({"k_map": 2}, {"population": {"table": "people"}}, "2-map", 2, 5),  # B once, C never
    "k_map of persons": (
        {"k_map": 3}, {"population": {"table": "people", "person": "named"}}, "3-map", 3, 6
    ),
    "presence": (  # A: 4/5, B: 2/1, C: 3/0, D: 1/2
        {"delta_presence": {"max": 0.8}}, {"population": {"table": "people"}}, "(0, 0.8)-presence", 2, 5
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", quick_and_slow(BROKEN, ("recursive", "k_map of persons")))
def test_classes_that_break_a_requirement_are_counted(case: str, live: duckdb.DuckDBPyConnection) -> None:
    privacy, sections, name, classes, rows = BROKEN[case]
    risk = assess(live, request_policy(privacy, **sections))
    assert (risk.rows, risk.classes, risk.smallest_class, risk.uniques) == (10, 4, 1, 1)
    assert risk.requirements[-1] == RequirementRisk(name, False, classes, rows)


@pytest.mark.thorough
def test_each_requirement_is_by_itself(live: duckdb.DuckDBPyConnection) -> None:
    """They are in the order of their kinds, and independent of one another."""
    specs = [BROKEN[case] for case in ("distinct", "ordered", "alpha", "a shield")]
    privacy: dict[str, Any] = {"k": 3, "average_risk": 0.4, "sample_uniqueness": 0.05}
    for spec, *_ in specs:
        privacy |= {kind: value for kind, value in spec.items() if kind != "k"}
    risk = assess(live, request_policy(privacy))
    whole = [
        RequirementRisk("average risk of at most 0.4", True, figure=0.4, limit=0.4),
        RequirementRisk("sample uniqueness of at most 0.05", False, figure=0.1, limit=0.05),
    ]
    names = [(name, False, classes, rows) for _, _, name, classes, rows in [BROKEN["k"], *specs]]
    assert risk.requirements == (*(RequirementRisk(*name) for name in names), *whole)
    assert risk.rows_below_k == 3


def test_requirements_without_classes_hold(live: duckdb.DuckDBPyConnection) -> None:
    privacy = {
        "k_anonymity": [{"quasi": ["y"], "k": 3}],
        "alpha_k": [{**OF_DIAGNOSIS, "alpha": 1}],
        "average_risk": 1,
        "sample_uniqueness": 0.1,
    }
    risk = assess(live, request_policy(privacy))
    assert [requirement.holds for requirement in risk.requirements] == [True] * 4
    assert [(requirement.classes, requirement.rows) for requirement in risk.requirements] == [
        (0, 0),
        (0, 0),
        (None, None),
        (None, None),
    ]
    assert (risk.k, risk.rows_below_k) == (None, 0)


def test_persons_are_counted(live: duckdb.DuckDBPyConnection) -> None:
    """A: p1, p2, p3. B: p1, p4. C: p5 and NULL. D: p6. Seven persons, with the row of NULL as one."""
    privacy = {"k": 3, "k_anonymity": [{"quasi": ["x"], "k": 3}], "average_risk": 0.6, "sample_uniqueness": 0.1}
    risk = assess(live, request_policy(privacy, persons=True))
    assert (risk.rows, risk.classes, risk.smallest_class, risk.uniques) == (10, 4, 1, 1)
    assert (risk.persons, risk.smallest_class_rows, risk.rows_below_k) == (7, 1, 6)
    assert (risk.highest_risk, risk.average_risk) == (1.0, 4 / 8)
    assert risk.requirements == (
        RequirementRisk("3-anonymity", False, 3, 6),
        RequirementRisk("3-anonymity of x", False, 2, 4),  # x1: p1, p2, p3, p4
        RequirementRisk("average risk of at most 0.6", True, figure=0.5, limit=0.6),
        RequirementRisk("sample uniqueness of at most 0.1", False, figure=1 / 8, limit=0.1),
    )


def test_the_risk_of_a_person_does_not_fall_with_its_rows(live: duckdb.DuckDBPyConnection) -> None:
    live.execute("CREATE OR REPLACE TABLE visits AS SELECT 'x' AS x, 'one' AS who FROM range(9)")
    policy = policy_for({"x": "suppress"}, {"k": 2}, source={"table": "visits", "person": "who"})
    risk = assess(live, policy)
    assert (risk.smallest_class_rows, risk.smallest_class, risk.rows_below_k) == (9, 1, 9)
    assert (risk.highest_risk, risk.average_risk) == (1.0, 1.0)


@pytest.mark.thorough
def test_values_are_of_persons(live: duckdb.DuckDBPyConnection) -> None:
    """A: flu of p1 and p3, cold of p2: two thirds, not three quarters."""
    alpha = {"alpha_k": [{**OF_DIAGNOSIS, "alpha": 0.7}]}
    name = "share of at most 0.7 of each diagnosis"
    assert assess(live, request_policy(alpha)).requirements == (RequirementRisk(name, False, 3, 7),)
    # C: NULL of p5, NULL and cold without a person
    assert assess(live, request_policy(alpha, persons=True)).requirements == (RequirementRisk(name, False, 2, 3),)


@pytest.mark.thorough
def test_a_person_in_two_classes_counts_once_in_the_distribution_of_the_table(live: duckdb.DuckDBPyConnection) -> None:
    """Flu: p1, p3, p4; cold: p2 and NULL; NULL: p5 and NULL; gout: p6. B has flu only: 5/8 away."""
    near, far = ({"t_closeness": [{**OF_DIAGNOSIS, "distance": "equal", "t": t}]} for t in (0.626, 0.624))
    holds = [assess(live, request_policy(privacy, persons=True)).requirements[0].classes for privacy in (near, far)]
    # A: flu 2/3, cold 1/3: 3/8. C: cold 1/3, NULL 2/3: 1/2. D: 7/8.
    assert holds == [1, 2]


@pytest.mark.thorough
def test_presence_and_the_population_that_has_no_row(live: duckdb.DuckDBPyConnection) -> None:
    """(x2, NULL) and (x3, y1) are in the population alone, and C in the source alone."""
    presence = {"delta_presence": {"min": 0.1, "max": 5}}
    requirements = assess(live, request_policy(presence, population={"table": "people"})).requirements
    assert requirements == (RequirementRisk("(0.1, 5)-presence", False, 1, 3, population_classes=2),)
    live.execute("CREATE OR REPLACE VIEW known AS SELECT * FROM t WHERE x <> 'x2'")
    live.execute("CREATE OR REPLACE VIEW same_people AS SELECT * FROM people WHERE x = 'x1'")
    policy = request_policy(presence, table="known", population={"table": "same_people"})
    assert assess(live, policy).requirements == (
        RequirementRisk("(0.1, 5)-presence", True, 0, 0, population_classes=0),
    )


def test_a_class_of_the_population_alone_breaks_presence_and_is_no_class_of_the_source(
    live: duckdb.DuckDBPyConnection,
) -> None:
    """(x3, y1) is in the population alone; one of the seven rows of the source is unique."""
    presence = {"delta_presence": {"min": 0.1, "max": 5}, "population_uniqueness": {"limit": 1, "population": 7}}
    live.execute("CREATE OR REPLACE VIEW known AS SELECT * FROM t WHERE x <> 'x2' OR x IS NULL")
    live.execute("CREATE OR REPLACE VIEW more_people AS SELECT * FROM people WHERE x IN ('x1', 'x3') OR x IS NULL")
    policy = request_policy(presence, table="known", population={"table": "more_people"})
    assert assess(live, policy).requirements == (
        RequirementRisk("(0.1, 5)-presence", False, 0, 0, population_classes=1),
        RequirementRisk("population uniqueness of at most 1 (dankar)", True, figure=1 / 7, limit=1),
    )


@pytest.mark.thorough
def test_classes_of_the_population_alone_break_nothing(live: duckdb.DuckDBPyConnection) -> None:
    """Classes that the population alone has break nothing."""
    privacy = {"k_map": 2, **BROKEN["distinct"][0]}
    requirements = assess(live, request_policy(privacy, population={"table": "people"})).requirements
    assert [(requirement.classes, requirement.rows) for requirement in requirements] == [(2, 5), (2, 3)]
    requirements = assess(
        live, request_policy(privacy, persons=True, population={"table": "people", "person": "named"})
    ).requirements
    assert [(requirement.classes, requirement.rows) for requirement in requirements] == [(2, 5), (2, 3)]


@pytest.mark.slow
def test_a_population_in_another_file(live: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """The population has numbers where the source has text; a value that does not fit the source's type is an error."""
    with duckdb.connect(tmp_path / "source.duckdb") as connection:
        connection.execute("CREATE TABLE t AS SELECT 7 AS x UNION ALL SELECT 8")
    with duckdb.connect(tmp_path / "people.duckdb") as connection:
        connection.execute("CREATE TABLE t AS SELECT unnest(['7', '7', '9']) AS x")
        connection.execute("CREATE TABLE strange AS SELECT 'seven' AS x")
    source = {"database": str(tmp_path / "source.duckdb"), "table": "t"}

    def policy(table: str) -> sqlanon.Policy:
        people = {"database": str(tmp_path / "people.duckdb"), "table": table}
        return policy_for({"x": "suppress"}, {"k_map": 2}, source=source, population=people)

    with sqlanon.connect() as db:
        assert db.risk(policy("t")).requirements == (RequirementRisk("2-map", False, 1, 1),)
        with pytest.raises(SourceError, match="'x' is VARCHAR, but the source's is INTEGER: 1 values"):
            db.risk(policy("strange"))


@pytest.mark.thorough
def test_the_estimate_of_population_uniqueness(live: duckdb.DuckDBPyConnection) -> None:
    def assess_requirement(**spec: Any) -> RequirementRisk:
        (requirement,) = assess(live, request_policy({"population_uniqueness": spec})).requirements
        return requirement

    # One row of ten is alone. Where the table is the population, that is known.
    estimate = assess_requirement(limit=0.1, population=10)
    assert estimate == RequirementRisk("population uniqueness of at most 0.1 (dankar)", True, figure=0.1, limit=0.1)
    assert not assess_requirement(limit=0.05, sampling_fraction=1).holds
    sizes, n = (4, 3, 2, 1), 10
    for population in (20, 1000):
        # One person of a class of j is in the sample: hypergeometric, by the shares of sizes in the sample.
        alone = [j * math.comb(population - j, n - 1) / math.comb(population, n) for j in sizes]
        expected = 1 / n * alone[-1] / sum(alone)
        zayatz = assess_requirement(limit=0.02, population=population, estimator="zayatz")
        assert zayatz.figure == pytest.approx(expected)
        assert zayatz.holds == (expected <= 0.02)
    with pytest.raises(SourceError, match="the source alone has 10"):
        assess_requirement(limit=0.1, population=9)


@pytest.mark.slow
def test_a_limit_without_an_estimate_does_not_hold(live: duckdb.DuckDBPyConnection) -> None:
    live.execute("CREATE OR REPLACE TABLE few AS SELECT unnest([1, 2, 3, 4, 4, 4]) AS x")
    spec = {"limit": 1, "population": 1000, "estimator": "snb"}
    risk = assess(live, policy_for({"x": "suppress"}, {"population_uniqueness": spec}, source={"table": "few"}))
    (requirement,) = json.loads(json.dumps(risk.to_dict(), allow_nan=False))["requirements"]
    assert (requirement["holds"], requirement["figure"], requirement["limit"]) == (False, None, 1.0)


BROKEN_HIERARCHY: dict[str, Any] = {
    "a file that is not there": {"file": "/nowhere/zips.csv"},
    "dates of texts": {"dates": ["month"]},
    "a level limit": {"role": "quasi", "hierarchy": "suppress", "min_level": 7},
    "categories without its values": {"categories": {"all": ["other"]}},
}


@pytest.mark.thorough
@pytest.mark.parametrize("case", some(BROKEN_HIERARCHY, 4))
def test_hierarchies_of_quasi_identifiers_are_not_needed(case: str, live: duckdb.DuckDBPyConnection) -> None:
    privacy = {"k": 3, **BROKEN["distinct"][0], **BROKEN["a shield"][0], **BROKEN["k_map"][0]}
    broken = {"x": BROKEN_HIERARCHY[case], "y": "suppress", "diagnosis": "sensitive", "who": "identifying"}
    policy = policy_for(broken, privacy, population={"table": "people"})
    with connect_to(live) as db:
        with pytest.raises(HierarchyError):
            db.anonymize(policy)
        risk = db.risk(policy)
        assert db.risk_sql(policy)
    assert [requirement.classes for requirement in risk.requirements] == [2, 2, 2, 1]


@pytest.mark.slow
def test_hierarchical_closeness_needs_the_sensitive_hierarchy(live: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """flu and cold have a common parent: C and D are distributed differently from the rest, A and B are not."""
    file = tmp_path / "diagnoses.csv"

    def policy() -> sqlanon.Policy:
        diagnosis = {"role": "sensitive", "hierarchy": {"file": str(file)}}
        attributes = {"x": {"file": "/nowhere"}, "y": "suppress", "diagnosis": diagnosis, "who": "identifying"}
        t = {**OF_DIAGNOSIS, "distance": "hierarchical", "t": 0.4}
        return policy_for(attributes, {"t_closeness": [t]})

    file.write_text("flu;air;*\ncold;air;*\n")
    with connect_to(live) as db, pytest.raises(HierarchyError, match=r"attributes\.diagnosis.*gout"):
        db.risk(policy())
    file.write_text("flu;air;*\ncold;air;*\ngout;joints;*\n")
    # Shares of air, joints, NULL: .7, .1, .2. A: (.3 + .3) / 2 = .3. B: (.5 + .3) / 2 = .4. C: (.6 + .47) / 2. D: .9.
    requirements = assess(live, policy()).requirements
    assert requirements == (RequirementRisk("hierarchical 0.4-closeness of diagnosis", False, 2, 4),)


ALL: dict[str, Any] = {
    "k": 3,
    "k_map": 2,
    "delta_presence": {"min": 0.1, "max": 0.5},
    "average_risk": 0.1,
    "sample_uniqueness": 0.01,
    "null_map": {"max": 0.01},
    "population_uniqueness": {"limit": 0.01, "population": 1000},
    **{kind: BROKEN[name][0][kind] for name, kind in [
        ("a shield", "k_anonymity"), ("recursive", "l_diversity"), ("delta", "delta_disclosure"),
        ("beta", "beta_likeness"), ("alpha", "alpha_k")]},
    "t_closeness": [{**OF_DIAGNOSIS, "distance": d, "t": 0.2} for d in ("equal", "ordered", "hierarchical")],
}  # fmt: skip


def everything(table: str, persons: bool, folder: Path) -> sqlanon.Policy:
    """A policy with all requirements; two diagnoses and a tree over them."""
    (folder / "d.csv").write_text("flu;lungs;*\ncold;nose;*\n")
    attributes = {
        "x": "suppress", "y": "suppress", "who": "identifying",
        "diagnosis": {"role": "sensitive", "hierarchy": {"file": str(folder / "d.csv")}},
    }  # fmt: skip
    source = {"table": table, **({"person": "who"} if persons else {})}
    privacy = {**ALL, "wrong_map": {"max": 0.01}} if persons else ALL
    return policy_for(attributes, privacy, source=source, population={"table": "people", "person": "named"})


@pytest.mark.slow
@pytest.mark.parametrize("persons", [False, True])
def test_an_empty_table_has_no_risk(persons: bool, live: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    policy = everything("nobody", persons, tmp_path)
    risk = assess(live, policy)
    assert (risk.rows, risk.classes, risk.smallest_class, risk.uniques, risk.rows_below_k) == (0, 0, 0, 0, 0)
    assert (risk.highest_risk, risk.average_risk) == (0.0, 0.0)
    assert (risk.persons, risk.smallest_class_rows) == ((0, 0) if persons else (None, None))
    assert [requirement.requirement for requirement in risk.requirements if not requirement.holds] == [
        "(0.1, 0.5)-presence"
    ]  # empty
    assert {requirement.classes for requirement in risk.requirements} == {0, None}
    assert {requirement.figure for requirement in risk.requirements if requirement.limit is not None} == {0.0}
    assert len(risk.requirements) == 15 + persons


@pytest.mark.slow
@pytest.mark.parametrize("persons", some([False, True], 2))
def test_the_statements_are_shown_and_not_run(persons: bool, live: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """They are the statements that are run if the diagnosis has two values, as in the example."""
    live.execute("CREATE OR REPLACE VIEW two AS SELECT * FROM t WHERE diagnosis IN ('flu', 'cold')")
    policy = everything("two", persons, tmp_path)
    with connect_to(live) as db:
        connection = connection_of(db)
        table_count = "SELECT count(*) FROM duckdb_tables() WHERE database_name LIKE 'sqlanon%'"
        before = connection.execute(table_count).fetchall()
        risk = db.risk(policy)
        sql = db.risk_sql(policy)
        assert connection.execute(table_count).fetchall() == before
        answers = [connection.execute(statement).fetchall() for statement in sql.split(";\n\n")]
        assert connection.execute(table_count).fetchall()[0][0] > before[0][0] + 5
    figures = next(answer[0] for answer in answers if len(answer[0]) > 20)
    assert figures[:3] == (risk.rows, risk.classes, risk.smallest_class) == (7, 3, 1)
    counts = [
        (requirement.classes, requirement.rows) for requirement in risk.requirements if requirement.classes is not None
    ][:-1]
    assert list(zip(figures[6:-2:2], figures[7:-2:2], strict=True)) == counts  # what the population lacks comes last
    assert len(counts) == 10


@pytest.mark.slow
def test_k_alone_scans_each_column_twice(live: duckdb.DuckDBPyConnection) -> None:
    """The source is scanned for its values, for their codes, and once more for the columns that narrow them."""
    with connect_to(live) as db:
        for privacy in ({"k": 3}, {"k": 3, "average_risk": 0.1, "sample_uniqueness": 0.1}):
            sql = db.risk_sql(request_policy(privacy))
            assert sql.count("_source") == 3 + 1
            answers = [connection_of(db).execute(statement).fetchall() for statement in sql.split(";\n\n")]
            assert [(10, 4, 1, 10, 1, 1, 2, 3)] in answers


@pytest.mark.thorough
def test_risk_report_serializes_to_json(live: duckdb.DuckDBPyConnection) -> None:
    privacy = {"k": 3, "average_risk": 0.1, "delta_presence": {"min": 0.1, "max": 5}}
    people = {"population": {"table": "people"}}
    plain = json.loads(json.dumps(assess(live, request_policy(privacy, **people)).to_dict()))
    assert set(plain) > {"prosecutor", "journalist", "marketer", "population", "class_sizes", "leakage", "violations"}
    flat = ("rows", "classes", "smallest_class", "uniques", "k", "rows_below_k", "highest_risk", "average_risk")
    assert {name: plain[name] for name in (*flat, "requirements")} == {
        "rows": 10, "classes": 4, "smallest_class": 1, "uniques": 1, "k": 3, "rows_below_k": 3,
        "highest_risk": 1.0, "average_risk": 0.4,
        "requirements": [
            {"requirement": "3-anonymity", "holds": False, "classes": 2, "rows": 3},
            {"requirement": "(0.1, 5)-presence", "holds": False, "classes": 1, "rows": 3, "population_classes": 2},
            {"requirement": "average risk of at most 0.1", "holds": False, "classes": None, "rows": None,
             "figure": 0.4, "limit": 0.1},
        ],
    }  # fmt: skip
    with_persons = json.loads(json.dumps(assess(live, request_policy(privacy, persons=True, **people)).to_dict()))
    assert set(with_persons) - set(plain) == {"persons", "smallest_class_rows"}


# --- the command line -------------------------------------------------------------------------------

POLICY = """
[source]
database = "hospital.duckdb"
table = "t"
{person}
[attributes]
x = {{ role = "quasi", hierarchy = {{ file = "nowhere.csv" }} }}
y = {{ role = "quasi", hierarchy = "suppress" }}
"diagnosis [red]" = {{ role = "sensitive" }}
who = {{ role = "identifying" }}
[privacy]
k = 3
average_risk = 0.1
[[privacy.l_diversity]]
attribute = "diagnosis [red]"
kind = "distinct"
l = 1
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with duckdb.connect(tmp_path / "hospital.duckdb") as connection:
        connection.execute('CREATE TABLE t (x VARCHAR, y VARCHAR, "diagnosis [red]" VARCHAR, who VARCHAR)')
        insert(connection, "t", of_words(ROWS))
    return tmp_path


def run_risk(policy: Path, *options: str) -> str:
    done = cli("risk", policy, *options)
    assert (done.status, done.err) == (0, "")
    return done.out


@pytest.mark.thorough
@pytest.mark.parametrize("persons", some([True, False], 2))
def test_risk_command_prints_figures(persons: bool, folder: Path) -> None:
    policy = folder / "policy.toml"
    policy.write_text(POLICY.format(person='person = "who"' if persons else ""), encoding="utf-8")
    lines = run_risk(policy).splitlines()
    who = "10 rows of 7 persons" if persons else "10 rows"
    unique = "classes of one person: 1 (25 %)" if persons else "unique rows: 1 (10 %)"
    assert lines[0] == f"{who} in 4 classes; {unique}"
    fewer = "rows in classes of fewer than"
    assert lines[1] == (f"{fewer} 3 persons: 6 (60 %)" if persons else f"{fewer} 3 rows: 3 (30 %)")
    cells = [re.split(r"\s{2,}", line) for line in lines]
    leaking = ["1.7", "61.5 %"] if persons else ["1.8", "55.6 %"]
    assert ["x, y", *leaking, "4", "1"] in cells
    first = cells.index(["requirement", "holds", "classes that fail", "their rows", "figure"]) + 1
    assert cells[first : first + 3] == [
        ["3-anonymity", "no", "3" if persons else "2", "6" if persons else "3"],
        ["distinct 1-diversity of diagnosis [red]", "yes", "0", "0"],
        ["average risk of at most 0.1", "no", "0.5" if persons else "0.4"],
    ]
    printed = json.loads(run_risk(policy, "--json"))
    with sqlanon.connect() as db:
        assert printed == json.loads(json.dumps(db.risk(sqlanon.Policy.load(policy)).to_dict()))
    assert {path.name for path in folder.iterdir()} == {"hospital.duckdb", "policy.toml"}


@pytest.mark.slow
def test_the_command_with_a_matrix_beside_a_population(folder: Path) -> None:
    """Two of the population's three combinations are of one person; by y alone, one of two."""
    with duckdb.connect(folder / "hospital.duckdb") as connection:
        connection.execute("CREATE TABLE town (x VARCHAR, y VARCHAR)")
        insert(connection, "town", [("x1", "y1"), ("x2", "y1"), ("x2", "y2"), ("x2", "y2")])
    policy = folder / "policy.toml"
    text = POLICY.format(person="").replace('{ file = "nowhere.csv" }', '"suppress"')
    policy.write_text(f'{text}[population]\ntable = "town"\n[risk]\n', encoding="utf-8")
    population = json.loads(run_risk(policy, "--json", "--matrix", "y,x"))["matrix"]["population"]
    assert population == {
        "combinations": [[3, 2], [2, 1]],
        "uniques": [[2, 0], [1, 0]],
        "share": [[2 / 3, 0], [1 / 2, 0]],
        "rows": [[7, 0], [6, 0]],
    }
    lines = [line.split("  ") for line in run_risk(policy, "--matrix", "y,x").splitlines()]
    cells = [[cell.strip() for cell in line if cell] for line in lines if line[0] == "level 0"]
    assert cells == [["level 0", "1", "0"], ["level 0", "2 (66.7 %)", "0 (0 %)"], ["level 0", "7 (70 %)", "0 (0 %)"]]


@pytest.mark.slow
def test_the_command_with_all_figures(folder: Path) -> None:
    policy = folder / "policy.toml"
    section = '[risk]\npopulation = 1000\nhousehold = "who"\nthreshold = [0.3, 0.5]\n'
    text = POLICY.format(person="").replace('"nowhere.csv"', '"x.csv"') + section
    policy.write_text(text, encoding="utf-8")
    (folder / "x.csv").write_text("x1;*\nx2;*\n", encoding="utf-8")
    output = run_risk(policy, "--matrix", "x,y", "--leakage", "2")
    for line in (
        "rows with a prosecutor's risk above 30 %: 6 (60 %)", "rows with a prosecutor's risk above 50 %: 1 (10 %)",
        "(estimated from the size of the population)", "journalist's risk: highest ", "unique in a population of 1,000",
        "risk of 6 households", "x, y", "unique rows: x by y",
    ):  # fmt: skip
        assert line in output, line
    lines = [line.split() for line in output.splitlines()]
    first = lines.index(["rows", "in", "a", "class", "classes"]) + 1
    assert [line[:2] for line in lines[first : first + 3]] == [["1", "1"], ["2", "1"], ["3-4", "2"]]
    printed = json.loads(run_risk(policy, "--json", "--matrix", "x,y", "--leakage", "1"))
    assert printed["matrix"] == {
        "attributes": ["x", "y"], "rows": 10, "counts": "rows", "uniques": [[1, 1], [0, 0]]
    }  # fmt: skip
    assert [leak["attributes"] for leak in printed["leakage"]] == [["x"], ["y"]]
    assert printed["prosecutor"]["rows_above"] == {"0.3": 6, "0.5": 1}
    assert [entry["requirement"] for entry in printed["violations"]] == ["3-anonymity", "average risk of at most 0.1"]


# --- random sources ---------------------------------------------------------------------------------


def by_values(records: list[Record], names: list[str]) -> dict[Row, list[Record]]:
    """The records by their values in some columns."""
    records_by_values: dict[Row, list[Record]] = defaultdict(list)
    for record in records:
        records_by_values[tuple([record[name] for name in names])].append(record)
    return dict(records_by_values)


def wrong_rows(source: Source, classes: Mapping[Row, list[Record]], people: Mapping[Row, list[Record]]) -> int:
    """The rows that match people, but not the one that they are of."""
    person, theirs = str(source.person), str(source.population_person)
    return sum(
        record[person] not in {voter[theirs] for voter in people[key]} - {None}
        for key, records in classes.items() if key in people
        for record in records
    )  # fmt: skip


def expected_requirements(source: Source, privacy: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """The expected classes, rows, figure and population classes of each requirement, in the order of the kinds."""
    names = [*source.quasi]
    classes = by_values(source.rows, names)
    people = by_values(source.population or [], names)
    persons_there = {key: of_persons(records, source.population_person) for key, records in people.items()}
    requirements: list[tuple[Any, ...]] = []

    def add(broken: list[list[Record]], absent: int | None = None) -> None:
        requirements.append((not broken and not absent, len(broken), sum(map(len, broken)), None, absent))

    if "k" in privacy:
        add([records for records in classes.values() if source.count(records) < privacy["k"]])
    if "k_map" in privacy:
        add([records for key, records in classes.items() if persons_there.get(key, 0) < privacy["k_map"]])
    if "delta_presence" in privacy:
        least, most = privacy["delta_presence"].get("min", 0), privacy["delta_presence"]["max"]
        absent = sum(1 for key in people if key not in classes) if least else None
        shares = {
            key: source.count(records) / persons_there[key] if key in persons_there else None
            for key, records in classes.items()
        }
        add([
            classes[key] for key, share in shares.items()
            if share is None or not least - 1e-12 <= share <= most + 1e-12
        ], absent)  # fmt: skip
    for kind, holds in oracle_privacy.OF_VALUES.items():
        for spec in privacy.get(kind, ()):
            add([records for records in classes.values() if not holds(source, records, spec)])
    for spec in privacy.get("k_anonymity", ()):
        groups = by_values(source.rows, spec["quasi"]).values()
        add([records for records in groups if source.count(records) < spec["k"]])
    counts = [source.count(records) for records in classes.values()]
    nobody = [len(records) for key, records in classes.items() if key not in persons_there]
    for kind, part, whole in (
        ("average_risk", len(counts), sum(counts)),
        ("sample_uniqueness", counts.count(1), sum(counts)),
        ("null_map", sum(nobody), len(source.rows)),
        ("wrong_map", wrong_rows(source, classes, people) if "wrong_map" in privacy else 0, len(source.rows)),
    ):
        if kind in privacy:
            share = part / whole if counts else 0.0
            most = privacy[kind]["max"] if kind.endswith("_map") else privacy[kind]
            requirements.append((share <= most + 1e-12, None, None, share, None))
    return requirements


def check(case: PrivacyCase) -> None:
    with tempfile.TemporaryDirectory() as name, open_database(case.source) as db:
        risk = db.risk(policy_of(case, "optimal", Path(name)))
    source = case.source
    classes = by_values(source.rows, [*source.quasi]).values()
    sizes, counts = [len(records) for records in classes], [source.count(records) for records in classes]
    assert (risk.rows, risk.classes, risk.smallest_class) == (len(source.rows), len(sizes), min(counts, default=0))
    assert risk.uniques == counts.count(1)
    assert risk.rows_below_k == sum(n for n, c in zip(sizes, counts, strict=True) if c < case.privacy.get("k", 0))
    if source.person is not None:
        assert (risk.persons, risk.smallest_class_rows) == (source.count(source.rows), min(sizes, default=0))
    assert math.isclose(risk.average_risk, len(counts) / sum(counts) if counts else 0)
    requirements = [
        (requirement.holds, requirement.classes, requirement.rows, requirement.figure, requirement.population_classes)
        for requirement in risk.requirements
    ]
    assert requirements == expected_requirements(source, case.privacy)


drawn = settings(
    max_examples=examples(30),
    deadline=None,
    derandomize=not SEARCHING,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)


@pytest.mark.slow
@drawn
@given(case=privacy_cases.privacy_cases())
def test_risk_of_combined_requirements_matches_the_oracle(case: PrivacyCase) -> None:
    check(case)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", privacy_cases.KINDS)
@settings(drawn, max_examples=examples(12))
@given(data=st.data())
def test_each_requirement_matches_the_oracle(kind: str, data: st.DataObject) -> None:
    check(data.draw(privacy_cases.privacy_cases(kind)))
