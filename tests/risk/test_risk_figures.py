"""The figures of `risk`, against plain Python, the literature, and one another."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

import sqlanon
from oracles import oracle_risk as oracle
from sqlanon.errors import HierarchyError, PolicyError, SourceError
from sqlanon.requirements.estimators import pitman, snb, zayatz
from sqlanon.risk import ClassSizes, leakage
from sqlanon.risk.individual import individual_risk
from support.databases import connect_to, connection_of, insert, live_connection
from support.lanes import SEARCHING, examples

NAMES = ('my "col"', "class_size", "n", "c0")
"""Quasi-identifiers with the names of our own columns, and one that has to be quoted."""

VALUES = (
    st.sampled_from([None, "a", "A", "b", "", "a "]),
    st.sampled_from([None, date(2020, 2, 29), date(1999, 1, 1), date(1, 1, 1)]),
    st.sampled_from([None, Decimal("1.10"), Decimal("1.1"), Decimal("-7.00")]),
    st.sampled_from([None, 0, 1, -5]),
)
TYPES = ("VARCHAR", "DATE", "DECIMAL(9, 2)", "INTEGER")
ROWS = st.lists(st.tuples(*VALUES, st.sampled_from([None, 1, 2, 3]), st.sampled_from([None, "h", "i"])), max_size=12)
THRESHOLDS = (0.2, 0.5)
FEW = settings(max_examples=examples(15), deadline=None, suppress_health_check=list(HealthCheck))
RICH = settings(FEW, phases=[*FEW.phases] if SEARCHING else [Phase.explicit])
"""Few random examples are small tables without persons of several rows: the quick lane has tables with all of these."""

ROWS_OF_PERSONS: list[tuple[Any, ...]] = [
    ("a", date(2020, 2, 29), Decimal("1.10"), 0, 1, "h"),
    ("a", date(2020, 2, 29), Decimal("1.10"), 0, 1, "i"),
    ("a", None, Decimal("1.10"), 0, 2, "h"),
    ("a", None, None, 1, 3, None),
    ("A", None, None, 1, None, None),
    (None, date(1999, 1, 1), None, None, None, "h"),
    (None, date(1999, 1, 1), Decimal("-7.00"), None, 3, "i"),
    ("b", date(1999, 1, 1), Decimal("-7.00"), 0, 3, "i"),
    ("b", date(1999, 1, 1), Decimal("-7.00"), 0, 3, "h"),
]


@pytest.fixture(scope="module")
def live() -> Iterator[duckdb.DuckDBPyConnection]:
    with live_connection() as connection:
        yield connection


def fill(live: duckdb.DuckDBPyConnection, rows: list[tuple[Any, ...]], weights: list[float] | None = None) -> None:
    columns = [f'"{name}" {type_}'.replace('my "col"', 'my ""col""') for name, type_ in zip(NAMES, TYPES, strict=True)]
    live.execute(f"CREATE OR REPLACE TABLE t ({', '.join(columns)}, who INTEGER, home VARCHAR, weight DOUBLE)")
    if rows:
        row_weights = weights or [2.0] * len(rows)
        insert(live, "t", [(*row, weight) for row, weight in zip(rows, row_weights, strict=True)])


def policy(
    quasi: int = len(NAMES), person: bool = False, k: int = 2, table: str = "t", **sections: Any
) -> sqlanon.Policy:
    attributes = {name: {"role": "quasi", "hierarchy": "suppress"} for name in NAMES[:quasi]}
    source = {"table": table, "undeclared": "drop", **({"person": "who"} if person else {})}
    risk = {"threshold": THRESHOLDS, **sections.pop("risk", {})}
    return sqlanon.Policy(source=source, attributes=attributes, privacy={"k": k}, risk=risk, **sections)


def assess(live: duckdb.DuckDBPyConnection, requested_policy: sqlanon.Policy) -> Any:
    with connect_to(live) as db:
        return db.risk(requested_policy)


def check(risk: Any, rows: list[tuple[Any, ...]], quasi: int, person: bool) -> None:
    """The figures that need the table alone."""
    sizes = oracle.sizes_of(rows, range(quasi), 4 if person else None)
    assert risk.counts == ("persons" if person else "rows")
    for threshold in THRESHOLDS:
        expected = oracle.prosecutor(sizes, threshold)
        assert risk.prosecutor.rows_above[repr(threshold)] == expected.pop("rows_above")
        assert {name: getattr(risk.prosecutor, name) for name in expected} == pytest.approx(expected)
    assert (risk.rows, risk.classes) == (len(rows), len(sizes))
    assert sum(risk.class_sizes.histogram.values()) == len(sizes)
    assert risk.class_sizes.uniques == sum(size == 1 for size, _ in sizes)
    assert risk.class_sizes.pairs == sum(size == 2 for size, _ in sizes)
    assert risk.marketer.expected == len(sizes)
    assert risk.expected_reidentifications == len(sizes)
    assert risk.uniques == risk.class_sizes.uniques
    leaks = oracle.leakages(rows, quasi, person=4 if person else None)
    gains = {tuple(NAMES.index(name) for name in leak.attributes): leak for leak in risk.leakage}
    assert gains.keys() == leaks.keys()
    total = len({row[4] for row in rows}) if person else len(rows)
    whole = math.log2(total) if total > 1 else 0.0
    for attributes, gain in leaks.items():
        assert gains[attributes].gain == pytest.approx(gain, abs=1e-9)
        assert gains[attributes].normalized == pytest.approx(gain / whole if whole else 0.0, abs=1e-9)
        groups = [size for size, _ in oracle.sizes_of(rows, attributes, 4 if person else None)]
        assert (gains[attributes].classes, gains[attributes].uniques) == (len(groups), groups.count(1))
    ranked = [(-round(leak.gain, 9), len(leak.attributes)) for leak in risk.leakage]
    assert ranked == sorted(ranked)


@RICH
@given(rows=ROWS, quasi=st.integers(1, 4), person=st.booleans())
@example(rows=ROWS_OF_PERSONS, quasi=3, person=True)
@example(rows=ROWS_OF_PERSONS[1:3], quasi=2, person=False)
def test_figures_of_random_tables_match_the_oracle(
    rows: list[tuple[Any, ...]], quasi: int, person: bool, live: duckdb.DuckDBPyConnection
) -> None:
    fill(live, rows)
    check(assess(live, policy(quasi, person)), rows, quasi, person)


@pytest.mark.slow
@FEW
@given(rows=ROWS, quasi=st.integers(2, 4), copies=st.integers(1, 3), small=st.sampled_from([0, 2, 5]))
def test_the_ways_of_large_tables_give_the_same(
    rows: list[tuple[Any, ...]], quasi: int, copies: int, small: int, live: duckdb.DuckDBPyConnection
) -> None:
    """Columns that are nearly unique, few-valued, very frequent or worth keeping stay so at any size here."""
    rows = rows * copies
    fill(live, rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leakage, "SMALL", small)
        patch.setattr(leakage, "MANY_GROUPS", small)
        check(assess(live, policy(quasi)), rows, quasi, person=False)


@pytest.mark.slow
@pytest.mark.parametrize("frequent", ["c00", None])
def test_rows_with_a_very_frequent_value_are_counted_apart(
    frequent: str | None, live: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table whose first column has one value, or NULL, in nine rows of ten; the combinations have few rows each."""
    monkeypatch.setattr(leakage, "SMALL", 10)
    monkeypatch.setattr(leakage, "MANY_GROUPS", 10)
    rows = [
        (frequent if i % 10 else f"c{i % 7}", date(1990, 1, 1 + i % 29), Decimal(i % 3), i % 41, i, None)
        for i in range(2000)
    ]
    fill(live, rows)
    queries: list[str] = []
    answer = leakage.StatementRunner.fetch_rows
    monkeypatch.setattr(
        leakage.StatementRunner,
        "fetch_rows",
        lambda self, query, *arguments, **options: (
            queries.append(query.sql("duckdb")) or answer(self, query, *arguments, **options)
        ),
    )
    check(assess(live, policy()), rows, 4, person=False)
    assert any('"c0" = 0' in statement and '"c0" > 0' in statement for statement in queries)


@pytest.mark.slow
def test_nearly_unique_combinations_are_left_out(
    live: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1,000 rows whose first two columns together are nearly unique; the other columns have few values."""
    monkeypatch.setattr(leakage, "SMALL", 10)
    rows = [(f"v{i * 7 % 83}", date(1990, 1, 1 + i % 29), Decimal(i % 3), i % 4, i, None) for i in range(1000)]
    rows += rows[:20]
    fill(live, rows)
    requested_policy = policy()
    with connect_to(live) as db:
        created_tables = []
        create_table = leakage.StatementRunner.create_table
        monkeypatch.setattr(
            leakage.StatementRunner,
            "create_table",
            lambda self, target, *arguments: (
                created_tables.append(target.name) or create_table(self, target, *arguments)
            ),
        )
        risk = db.risk(requested_policy)
    assert {"shared_0_1", "sharing_0_1"} <= set(created_tables)
    check(risk, rows, 4, person=False)


@pytest.mark.thorough
@FEW
@given(rows=ROWS, data=st.data(), person=st.booleans())
def test_individual_and_household_risk_match_the_oracle(
    rows: list[tuple[Any, ...]], data: st.DataObject, person: bool, live: duckdb.DuckDBPyConnection
) -> None:
    weights = data.draw(st.lists(st.sampled_from([1.0, 1.0000001, 1.5, 40.0]), min_size=len(rows), max_size=len(rows)))
    fill(live, rows, weights)
    risk = assess(live, policy(2, person, risk={"weights": "weight", "household": "home"}))
    by_row: list[float] = []
    people: list[tuple[float, int]] = []
    groups = oracle.classes_of([(*row, weight) for row, weight in zip(rows, weights, strict=True)], (0, 1))
    of_class = {}
    for key, group in groups.items():
        if person:
            heaviest = {who: max(row[6] for row in group if row[4] == who) for who in {row[4] for row in group}}
            size, weight = len(heaviest), sum(heaviest.values())
        else:
            size, weight = len(group), sum(row[6] for row in group)
        of_class[key] = oracle.individual(size, weight)
        people.append((of_class[key], size))
    by_row = [of_class[row[0], row[1]] for row in rows]
    expected = math.fsum(person_risk * size for person_risk, size in people)
    assert risk.individual.highest == pytest.approx(max(by_row, default=0.0), rel=1e-6)
    assert risk.individual.expected == pytest.approx(expected, rel=1e-6)
    assert risk.individual.average == pytest.approx(expected / max(1, sum(n for _, n in people)), rel=1e-6)
    assert risk.expected_reidentifications == risk.individual.expected
    assert risk.individual.rows_above["0.5"] == pytest.approx(sum(row_risk > 0.5 for row_risk in by_row), abs=0)
    homes: list[Any] = [row[5] for row in rows]
    risks = by_row
    if person:
        greatest: dict[tuple[Any, Any], float] = {}
        for row, row_risk in zip(rows, by_row, strict=True):
            greatest[row[5], row[4]] = max(row_risk, greatest.get((row[5], row[4]), 0.0))
        homes, risks = [home for home, _ in greatest], list(greatest.values())
    joint = oracle.households(homes, risks)
    assert risk.household.households == len({home for home in homes if home is not None})
    assert risk.household.expected == pytest.approx(math.fsum(joint), rel=1e-6)
    assert risk.household.highest == pytest.approx(max(joint, default=0.0), rel=1e-6)
    with connect_to(live) as db:
        rel = db.row_risks(policy(2, person, risk={"weights": "weight", "household": "home"}))
        columns = rel.columns
        assert columns[-3:] == ["prosecutor", "individual", "household_risk"]
        assert sorted(row[-2] for row in rel.fetchall()) == pytest.approx(sorted(by_row), rel=1e-6)
        if not person:
            assert sorted(row[-1] for row in rel.fetchall()) == pytest.approx(sorted(joint), rel=1e-6)


@given(size=st.integers(1, 2), p=st.floats(0.02, 0.999))
def test_the_individual_risk_is_the_expected_inverse(size: int, p: float) -> None:
    assert individual_risk(size, p) == pytest.approx(oracle.expected_inverse(size, p), rel=1e-8)


@given(size=st.integers(3, 30), p=st.floats(0.02, 0.999))
def test_the_approximation_of_large_classes_is_near(size: int, p: float) -> None:
    assert individual_risk(size, p) == pytest.approx(oracle.expected_inverse(size, p), rel=0.15)


@pytest.mark.parametrize("size", [1, 2])
def test_individual_risk_is_accurate_near_a_whole_class(size: int) -> None:
    for distance in (1e-15, 1e-12, 1e-9, 1e-6, 0.9999e-3, 1.0001e-3):
        assert individual_risk(size, 1 - distance) == pytest.approx(
            oracle.expected_inverse(size, 1 - distance, 50), rel=1e-6
        )
    assert individual_risk(size, 1.0) == individual_risk(size, 2.0) == 1 / size


@pytest.mark.slow
def test_individual_risk_of_francdat_matches_sdcmicro(live: duckdb.DuckDBPyConnection) -> None:
    """The example of Capobianchi, Polettini and Lucarelli that sdcMicro has: f, F and the risk of its eight rows."""
    keys = [1, 2, 2, 3, 4, 5, 6, 1]
    weights = [18, 45.5, 39, 17, 541, 8, 5, 92]
    risks = [0.01714426, 0.02204233, 0.02204233, 0.17707583, 0.01165448, 0.29706308, 0.40235948, 0.01714426]
    fill(live, [(str(key), None, None, None, i, None) for i, key in enumerate(keys)], weights)
    requested_policy = policy(1, risk={"weights": "weight"})
    with connect_to(live) as db:
        by_row = sorted(db.row_risks(requested_policy).fetchall(), key=lambda row: row[4])
        assert [round(row[-1], 8) for row in by_row] == risks
        risk = db.risk(requested_policy)
    assert risk.individual.expected == pytest.approx(sum(risks), abs=1e-7)
    assert risk.individual.population == 765.5


@pytest.mark.thorough
def test_leakage_of_sixty_persons_matches_print(live: duckdb.DuckDBPyConnection) -> None:
    """27 women and 33 men; print has 0.99 and 0.16, whose digits are cut off."""
    fill(live, [("F" if i < 27 else "M", None, None, None, i, None) for i in range(60)])
    (leak,) = assess(live, policy(1)).leakage
    assert (round(leak.gain, 4), round(leak.normalized, 4)) == (0.9928, 0.1681)


@pytest.mark.thorough
def test_adult_in_the_population_of_the_usa(data: Path) -> None:
    """Nine attributes; tests/requirements/test_estimators.py has the reference's figures of these classes."""
    names = ("sex", "age", "race", "marital-status", "education", "native-country", "workclass", "occupation",
             "salary-class")  # fmt: skip
    requested_policy = sqlanon.Policy(
        source={"files": str(data / "adult" / "adult.csv")},
        attributes={name: {"role": "quasi", "hierarchy": "suppress"} for name in names},
        privacy={"k": 2},
        risk={"population": 317_238_626},
    )
    with sqlanon.connect() as db:
        risk = db.risk(requested_policy)
    assert (risk.uniques, risk.population.uniques, risk.class_sizes.uniques) == (15_512,) * 3
    sizes, figures = risk.class_sizes.sizes, risk.to_dict()["population"]
    assert (figures["n"], figures["N"], figures["chosen"]) == (30_162, 317_238_626, "pitman")
    assert (figures["pitman"], figures["zayatz"]) == (pitman(sizes, figures["N"]), zayatz(sizes, figures["N"]))
    assert len(risk.leakage) == 9 + 36 + 84
    assert risk.leakage[0].attributes == ("age", "education", "occupation")


# --- populations ------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_the_journalist_and_a_population_table(live: duckdb.DuckDBPyConnection) -> None:
    """Classes of 2, 1 and 1 rows, which match 4, 5 and 0 persons. |J|/ΣF = 2/9; Σ f/F = 2/4 + 1/5."""
    fill(live, [(letter, None, None, None, i, None) for i, letter in enumerate(["a", "a", "b", "z"])])
    live.execute(
        "CREATE OR REPLACE TABLE people AS SELECT unnest(['a', 'a', 'a', 'a', 'b', 'b', 'b', 'b', 'b', "
        '\'c\']) AS "my ""col"""'
    )
    risk = assess(live, policy(1, population={"table": "people"}))
    journalist = risk.journalist.to_dict()
    assert journalist == {
        "highest": 0.25, "average": 2 / 9, "rows_at_highest": 2, "share_at_highest": 0.5,
        "rows_above": {"0.2": 2, "0.5": 0}, "share_above": {"0.2": 0.5, "0.5": 0.0}, "population": "table",
        "classes_of_nobody": 1, "rows_of_nobody": 1,
    }  # fmt: skip
    assert (risk.marketer.average, risk.marketer.expected, risk.marketer.population) == (0.7 / 4, 0.7, "table")


@RICH
@given(rows=ROWS, people=st.lists(VALUES[0], max_size=8), person=st.booleans())
@example(rows=ROWS_OF_PERSONS, people=["a", "a", "a", "b", "a ", None], person=True)
@example(rows=ROWS_OF_PERSONS, people=["a", "b", "b", "c"], person=False)
def test_the_journalist_and_random_populations(
    rows: list[tuple[Any, ...]], people: list[Any], person: bool, live: duckdb.DuckDBPyConnection
) -> None:
    fill(live, rows)
    live.execute('CREATE OR REPLACE TABLE people ("my ""col""" VARCHAR)')
    if people:
        live.executemany("INSERT INTO people VALUES (?)", [(person,) for person in people])
    risk = assess(live, policy(1, person, population={"table": "people"}))
    groups = oracle.classes_of(rows, [0])
    counts = {key: len({row[4] for row in group}) if person else len(group) for key, group in groups.items()}
    people_by_key = {key: people.count(key[0]) for key in groups}
    risks = [1 / people_by_key[(row[0],)] if people_by_key[(row[0],)] else 0.0 for row in rows]
    expected = math.fsum(counts[key] / n for key, n in people_by_key.items() if n)
    whole, covered = sum(people_by_key.values()), sum(counts.values())
    from_population = sum(n > 0 for n in people_by_key.values()) / whole if whole else 0.0
    assert risk.journalist.highest == max(risks, default=0.0)
    assert risk.journalist.rows_above["0.2"] == sum(row_risk > 0.2 for row_risk in risks)
    assert risk.journalist.rows_of_nobody == sum(people_by_key[(row[0],)] == 0 for row in rows)
    assert risk.marketer.expected == pytest.approx(expected)
    assert risk.journalist.average == pytest.approx(max(from_population, expected / covered) if covered else 0.0)


@pytest.mark.thorough
@pytest.mark.parametrize("section", [{"population": 40}, {"sampling_fraction": 0.1}])
def test_the_journalist_and_the_size_of_the_population(section: Any, live: duckdb.DuckDBPyConnection) -> None:
    fill(live, [(letter, None, None, None, i, None) for i, letter in enumerate(["a", "a", "b", "z"])])
    risk = assess(live, policy(1, risk=section))
    single, two = oracle.individual(1, 10), oracle.individual(2, 20)
    assert risk.journalist.highest == pytest.approx(single)
    assert risk.journalist.average == pytest.approx((2 * single + 2 * two) / 4) == risk.marketer.average
    assert (risk.journalist.rows_at_highest, risk.journalist.population) == (2, "estimate")
    assert (risk.journalist.rows_above, risk.prosecutor.rows_above) == ({"0.2": 2, "0.5": 0}, {"0.2": 4, "0.5": 2})
    assert (risk.population.N, risk.population.sampling_fraction) == (40, 0.1)
    sizes = {1: 2, 2: 1}
    for estimator in (pitman, snb, zayatz):
        expected = estimator(sizes, 40)
        assert getattr(risk.population, estimator.__name__) == (None if math.isnan(expected) else expected)


def test_uniqueness_limit_requires_population_figures(live: duckdb.DuckDBPyConnection) -> None:
    fill(live, [(letter, None, None, None, i, None) for i, letter in enumerate(["a", "a", "b"])])
    attributes = {NAMES[0]: {"role": "quasi", "hierarchy": "suppress"}}
    limit = {"limit": 0.1, "population": 300, "estimator": "zayatz"}
    requested_policy = sqlanon.Policy(
        source={"table": "t", "undeclared": "drop"}, attributes=attributes, privacy={"population_uniqueness": limit}
    )
    risk = assess(live, requested_policy)
    assert risk.population.N == 300
    assert risk.requirements[0].figure == risk.population.zayatz


def test_without_a_population_journalist_and_prosecutor_risk_are_equal(live: duckdb.DuckDBPyConnection) -> None:
    fill(live, [("a", None, None, None, 1, None)])
    risk = assess(live, policy(1))
    assert risk.population is None
    assert risk.journalist.population is None
    assert risk.journalist.highest == risk.prosecutor.highest


@pytest.mark.slow
def test_invalid_risk_settings_are_refused(live: duckdb.DuckDBPyConnection) -> None:
    fill(live, [("a", None, None, None, 1, None)] * 3, [1.0, 0.0, float("nan")])
    with pytest.raises(SourceError, match="the source alone has 3"):
        assess(live, policy(1, risk={"population": 2}))
    with pytest.raises(SourceError, match="2 rows have no weight above 0"):
        assess(live, policy(1, risk={"weights": "weight"}))
    with pytest.raises(SourceError, match=r"risk\.household: the source has no column 'Hof'"):
        assess(live, policy(1, risk={"household": "Hof"}))


# --- the policy -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"population": 10, "sampling_fraction": 0.1}, "risk.sampling_fraction: give population"),
        ({"sampling_fraction": 0}, "risk.sampling_fraction"),
        ({"population": 0}, "risk.population"),
        ({"threshold": 1}, "risk.threshold"),
        ({"threshold": []}, "risk.threshold"),
        ({"weights": "age"}, "risk.weights: 'age' is declared quasi"),
        ({"household": "COST"}, "risk.household: 'cost' is declared insensitive"),
        ({"weights": "w", "household": "W"}, "risk.household: is also the column of weights"),
        ({"wieghts": "w"}, "weights"),
    ],
)
def test_mistakes_of_the_risk_section_are_named(section: dict[str, Any], message: str) -> None:
    attributes = {"age": {"role": "quasi", "hierarchy": "suppress"}, "cost": {"role": "insensitive"}}
    with pytest.raises(PolicyError) as raised:
        sqlanon.Policy(attributes=attributes, privacy={"k": 2}, risk=section)
    assert message in str(raised.value)


def test_policy_without_risk_section_is_unchanged() -> None:
    attributes = {"age": {"role": "quasi", "hierarchy": "suppress"}, "w": {"role": "insensitive"}}
    plain = sqlanon.Policy(attributes=attributes, privacy={"k": 2})
    risk_policy = sqlanon.Policy(attributes=attributes, privacy={"k": 2}, risk={"weights": "w", "population": 10})
    assert plain.fingerprint() != risk_policy.fingerprint()
    assert "risk" not in json.dumps(risk_policy.redact())
    assert sqlanon.Policy(**json.loads(risk_policy.model_dump_json())).fingerprint() == risk_policy.fingerprint()


@pytest.mark.slow
def test_columns_of_risk_are_not_released(live: duckdb.DuckDBPyConnection) -> None:
    fill(live, [("a", None, None, None, 1, "h")] * 4)
    requested_policy = policy(4, risk={"weights": "weight", "household": "home"}).model_copy()
    with connect_to(live) as db:
        result = db.anonymize(requested_policy)
        assert set(db._workspace.engine.connection.sql(result.sql()).columns) == set(NAMES)


# --- relations, the twin, levels --------------------------------------------------------------------


def test_all_figures_are_relations(live: duckdb.DuckDBPyConnection) -> None:
    fill(live, [("a", None, None, 1, 1, "h"), ("a", None, None, 2, 1, "h"), ("b", None, None, 1, 1, "h")])
    query = (
        "SELECT (SELECT count(*) FROM duckdb_tables() WHERE database_name LIKE 'sqlanon%'), "
        "(SELECT count(*) FROM duckdb_views() WHERE NOT internal)"
    )
    before = live.execute(query).fetchall()
    with sqlanon.connect(live) as db:
        risk = db.risk(policy())
        assert risk.relation("class_sizes").fetchall() == [(1, 3, 3)]
        figures = dict(risk.relation("figures").fetchall())
        assert figures["prosecutor.rows_above.0.2"] == 3
        assert figures["journalist.highest"] == 1
        leaks = risk.relation("leakage")
        assert leaks.columns == ["attributes", "gain", "normalized", "classes", "uniques"]
        assert len(leaks.fetchall()) == len(risk.leakage) == 14
        assert risk.relation("requirements").fetchall() == [("2-anonymity", False, 3, 3, None, None)]
        with pytest.raises(KeyError):
            risk.relation("nothing")
    assert live.execute(query).fetchall() == before
    assert live.execute("SELECT current_setting('perfect_ht_threshold')").fetchone() == (12,)


@pytest.mark.thorough
@pytest.mark.parametrize("person", [False, True])
def test_the_statements_are_those_that_are_run(person: bool, live: duckdb.DuckDBPyConnection) -> None:
    fill(live, [("a", None, None, 1, 1, "h"), ("a", None, None, 2, 1, None), ("b", None, None, 1, 2, "h")])
    requested_policy = policy(3, person, risk={"weights": "weight", "household": "home", "population": 100})
    with connect_to(live) as db:
        risk = db.risk(requested_policy)
        answers = [connection_of(db).execute(part).fetchall() for part in db.risk_sql(requested_policy).split(";\n\n")]
        home = (risk.household.households, risk.household.highest, risk.household.expected)
        assert any(answer[0][:3] == home for answer in answers if answer)
        assert any(answer[0][:2] == (risk.individual.highest, risk.individual.expected) for answer in answers if answer)
        levels = db.uniques_matrix_sql(requested_policy, *NAMES[:2]).split(";\n\n")
        *_, cells, _ = [connection_of(db).execute(level).fetchall() for level in levels]
        assert sorted(cells) == db.uniques_matrix(requested_policy, *NAMES[:2]).table[1]
        assert len(db.risk_sql(requested_policy, leakage=1)) < len(db.risk_sql(requested_policy))


ZIPS = st.sampled_from([None, "11", "12", "21"])
DAYS = st.sampled_from([None, date(2020, 1, 1), date(2020, 1, 2), date(2021, 1, 1)])


FIRST, SECOND, LATER = date(2020, 1, 1), date(2020, 1, 2), date(2021, 1, 1)


@RICH
@given(
    rows=st.lists(
        st.tuples(ZIPS, DAYS, st.sampled_from(["F", "M", None]), st.sampled_from([None, "p1", "p2"])), max_size=10
    ),
    small=st.booleans(),
    person=st.booleans(),
)
@example(
    rows=[("11", FIRST, "F", "p1"), ("11", FIRST, "F", "p1"), ("11", SECOND, "F", None), ("12", LATER, "M", None),
          ("12", LATER, "M", None), ("12", LATER, None, "p2"), (None, None, "F", "p2")],
    small=True, person=True,
)  # fmt: skip
def test_uniques_by_level(
    rows: list[tuple[Any, ...]], small: bool, person: bool, live: duckdb.DuckDBPyConnection
) -> None:
    live.execute('CREATE OR REPLACE TABLE v (zip VARCHAR, "da y" DATE, sex VARCHAR, who VARCHAR)')
    insert(live, "v", rows)
    attributes = {
        "zip": {"role": "quasi", "hierarchy": {"mask": "right"}},
        "sex": {"role": "quasi", "hierarchy": {"file": "nowhere.csv"}},
        "da y": {"role": "quasi", "hierarchy": {"dates": ["month", "year"]}},
    }
    source = {"table": "v", "undeclared": "drop", "person": "who" if person else False}
    requested_policy = sqlanon.Policy(source=source, attributes=attributes, privacy={"k": 2})
    with connect_to(live) as db:
        if small:
            matrix = db.uniques_matrix(requested_policy, "zip", "da y")
        else:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("sqlanon.risk.uniques_matrix.SMALL", 0)
                matrix = db.uniques_matrix(requested_policy, "zip", "da y")
    longest = max((len(row[0]) for row in rows if row[0]), default=0)
    zips: list[Any] = [lambda v, j=j: v and v[: longest - j] for j in range(longest)] + [lambda v: "*"]
    days: list[Any] = [lambda v: v, lambda v: v and v.strftime("%Y-%m"), lambda v: v and v.year, lambda v: "*"]
    assert matrix.rows == len(rows)
    assert len(matrix.uniques) >= len(zips) - (longest == 0)
    for i, first in enumerate(zips if longest else []):
        for j, second in enumerate(days):
            levels = [first, second, lambda v: v]
            assert matrix.uniques[i][j] == oracle.uniques(rows, levels, 3 if person else None)
    assert matrix.table[1][0] == (0, 0, matrix.uniques[0][0])


PEOPLE = st.tuples(ZIPS, DAYS, st.sampled_from(["F", "M", None]), st.sampled_from([None, "ann", "bob", "cid"]))


@RICH
@given(
    rows=st.lists(st.tuples(ZIPS, DAYS, st.sampled_from(["F", "M"])), max_size=8),
    people=st.lists(PEOPLE, max_size=12),
    persons=st.booleans(),
    small=st.booleans(),
)
@example(
    rows=[("11", FIRST, "F"), ("11", FIRST, "F"), ("12", SECOND, "M"), ("12", None, "M")],
    people=[("11", FIRST, "F", "ann"), ("11", FIRST, "F", "ann"), ("12", SECOND, "M", "bob"), ("21", LATER, "F", None),
            ("12", None, "M", None), ("12", None, "M", "cid"), (None, FIRST, None, "bob")],
    persons=True, small=True,
)  # fmt: skip
def test_population_uniques_are_counted_by_level(
    rows: list[tuple[Any, ...]],
    people: list[tuple[Any, ...]],
    persons: bool,
    small: bool,
    live: duckdb.DuckDBPyConnection,
) -> None:
    """The hierarchy of the file lacks a ZIP code that the population may have: it stays itself, below the top."""
    live.execute('CREATE OR REPLACE TABLE v (zip VARCHAR, "da y" DATE, sex VARCHAR)')
    live.execute('CREATE OR REPLACE TABLE people (sex VARCHAR, zip VARCHAR, "da y" VARCHAR, who VARCHAR)')
    insert(live, "v", [row for row in rows if row[0] != "21"])
    insert(live, "people", [(sex, zip_, day and str(day), who) for zip_, day, sex, who in people])
    rows = [row for row in rows if row[0] != "21"]
    live.execute("CREATE OR REPLACE TABLE zips AS FROM (VALUES ('11', '1*', '*'), ('12', '1*', '*')) v(a, b, c)")
    attributes = {
        "zip": {"role": "quasi", "hierarchy": {"table": "zips"}},
        "sex": {"role": "quasi", "hierarchy": {"file": "nowhere.csv"}},
        "da y": {"role": "quasi", "hierarchy": {"dates": ["month", "year"]}},
    }
    who = {"person": "who"} if persons else {}
    requested_policy = sqlanon.Policy(
        source={"table": "v"}, attributes=attributes, privacy={"k_map": 2}, population={"table": "people", **who}
    )
    with connect_to(live) as db, pytest.MonkeyPatch.context() as patch:
        if not small:
            patch.setattr("sqlanon.risk.uniques_matrix.SMALL", 0)
        matrix = db.uniques_matrix(requested_policy, "zip", "da y")
        journalist = db.risk(requested_policy).journalist
    zips: list[Any] = [lambda v: v, lambda v: v if v == "21" else v and "1*", lambda v: "*"]
    days: list[Any] = [lambda v: v, lambda v: v and v.strftime("%Y-%m"), lambda v: v and v.year, lambda v: "*"]
    population = matrix.population
    labelled = [(person[:3], person[3] if persons else number) for number, person in enumerate(people)]
    for i, first in enumerate(zips):
        for j, second in enumerate(days):
            levels = [first, second, lambda v: v]
            counted_figures = population.combinations[i][j], population.uniques[i][j], population.rows[i][j]
            assert counted_figures == oracle.uniques_there(rows, labelled, levels)
            assert population.share[i][j] == (counted_figures[1] / counted_figures[0] if counted_figures[0] else 0)
            assert matrix.uniques[i][j] == oracle.uniques(rows, levels)
    figures = (matrix.uniques, population.combinations, population.uniques, population.rows)
    assert matrix.table[1][0] == (0, 0, *(figure[0][0] for figure in figures))
    assert population.rows[0][0] == (journalist.rows_at_highest if journalist.highest == 1 else 0)


@pytest.mark.slow
def test_attributes_without_levels_have_empty_ranges(live: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    fill(live, [("a", None, None, 1, 1, "h")])
    with connect_to(live) as db:
        for first, second in [(NAMES[0], NAMES[0]), (NAMES[0], "who"), ("nothing", NAMES[1])]:
            with pytest.raises(PolicyError, match="matrix"):
                db.uniques_matrix(policy(2), first, second)
        file = tmp_path / "h.csv"
        file.write_text("b;*\n")
        attributes = {
            NAMES[0]: {"role": "quasi", "hierarchy": {"file": str(file)}},
            NAMES[1]: {"role": "quasi", "hierarchy": "suppress"},
        }
        requested_policy = sqlanon.Policy(
            source={"table": "t", "undeclared": "drop"}, attributes=attributes, privacy={"k": 2}
        )
        with pytest.raises(HierarchyError):
            db.uniques_matrix(requested_policy, *NAMES[:2])


@pytest.mark.thorough
def test_histogram_groups_class_sizes_by_powers_of_two() -> None:
    sizes = ClassSizes.from_classes({1: 3, 2: 2, 3: 1, 5: 1, 16: 2, 17: 1})
    assert sizes.histogram == {"1": 3, "2": 2, "3-4": 1, "5-8": 1, "9-16": 2, "17-32": 1}
    assert ClassSizes.from_classes({}).histogram == {}
