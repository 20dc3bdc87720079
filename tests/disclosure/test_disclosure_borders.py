"""Disclosure by released columns, compared with plain Python on small random tables, and the borders of warnings."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest

import sqlanon
from oracles.oracle_narrowing import figures_of_pairs
from sqlanon.disclosure import person_column
from sqlanon.disclosure.attribute_disclosure import (
    background_knowledge,
    greatest_skew,
    homogeneity,
    similarity,
    skewness,
)
from sqlanon.disclosure.dependencies import (
    Dependencies,
    find_narrowing_in_source,
    measure_dependencies,
    refuse_narrowing,
)
from sqlanon.disclosure.narrowing import (
    HASH_VALUE,
    PARTS,
    RANK_VALUE,
    Grouping,
    has_excess,
    has_large_excess,
    measure_narrowing,
    number_values,
    rank_part,
    smallest_group,
    values_by_chance,
)
from sqlanon.disclosure.person_column import refuse_undecided_person, warn_of_rows_without_person
from sqlanon.disclosure.unprotected_columns import find_unprotected_columns
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import PolicyError
from sqlanon.policy import SourceSection
from sqlanon.publish.draft import ReleaseDraft
from sqlanon.sources.persons import KeyColumn, PersonColumn, find_person_column, small_classes_query
from sqlanon.support.coding import Column
from sqlanon.support.expressions import col, select_star, subquery, table
from support.policies import make_policy


@pytest.fixture
def engine() -> Iterator[DuckDBEngine]:
    with closing(DuckDBEngine(duckdb.connect())) as engine:
        yield engine


def fill(engine: DuckDBEngine, name: str, columns: str, rows: Sequence[Sequence[Any]]) -> None:
    engine.connection.execute(f"CREATE OR REPLACE TABLE {name} ({columns})")
    if rows:
        engine.connection.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[0]))})", rows)


PARENTS = {"flu": ("lung", "*"), "cold": ("lung", "*"), "gout": ("joint", "*"), "cut": ("skin", "*")}
"""The labels above each illness; a burn is not in the hierarchy."""


@pytest.mark.parametrize("seed", range(2))
def test_classes_with_similar_values_are_those_of_plain_python(seed: int, engine: DuckDBEngine) -> None:
    draw = random.Random(seed)
    rows = [(draw.choice("abcdef"), draw.choice([*PARENTS, "burn", None])) for _ in range(14)]
    fill(engine, "released", "ward VARCHAR, ill VARCHAR", rows)
    fill(engine, "tree", "level_0 VARCHAR, level_1 VARCHAR, level_2 VARCHAR", [(k, *v) for k, v in PARENTS.items()])
    classes: dict[str, list[Any]] = defaultdict(list)
    for ward, ill in rows:
        classes[ward].append(ill)

    def label(ill: Any, level: int) -> Any:
        return ill if level == 0 or ill not in PARENTS else PARENTS[ill][level - 1]

    wanted = set()
    for ward, ills in classes.items():
        agreed = [(level, {label(ill, level) for ill in ills}) for level in (0, 1)]
        if (first := next(((level, *labels) for level, labels in agreed if len(labels) == 1), None)) is not None:
            wanted.add((ward, *first, len(ills)))
    assert {*engine.rows(similarity(table("released"), ["ward"], "ill", table("tree"), 2))} == wanted
    homogeneous = {row for row in wanted if row[1] == 0}
    assert {*engine.rows(similarity(table("released"), ["ward"], "ill", table("tree"), 1))} == homogeneous

    of_one, two = (
        {(ward, len(ills)) for ward, ills in classes.items() if len(set(ills)) <= values} for values in (1, 2)
    )
    for query, expected in ((homogeneity, of_one), (background_knowledge, two)):
        assert {(row[0], row[-1]) for row in engine.rows(query(table("released"), ["ward"], "ill"))} == expected
    shares = Counter(ill for _, ill in rows)
    skewed = {
        (ward, ill, n)
        for ward, ills in classes.items()
        for ill, n in Counter(ills).items()
        if 2 * n >= len(ills) and n * len(rows) >= 2 * len(ills) * shares[ill]
    }
    classes_ = engine.rows(skewness(table("released"), ["ward"], "ill"))
    assert {(ward, ill, n) for ward, ill, _, _, n in classes_} == skewed
    skews = [n / len(ills) / (shares[ill] / len(rows)) for ills in classes.values() for ill, n in Counter(ills).items()]
    assert engine.rows(greatest_skew(table("released"), ["ward"], "ill")) == [(pytest.approx(max(skews)),)]


# --- persons of classes


@pytest.mark.parametrize("seed", range(3))
def test_classes_of_few_persons_are_counted_as_in_plain_python(seed: int, engine: DuckDBEngine) -> None:
    """A person is an id without the spaces around it; all rows of a class without one are one person."""
    draw = random.Random(seed)
    rows = [(draw.choice(["x", "y", "z", None]), draw.choice(["a", "b", " a", "", None])) for _ in range(12)]
    fill(engine, "released", "ward VARCHAR, person VARCHAR", rows)
    classes: dict[Any, list[Any]] = defaultdict(list)
    for ward, person in rows:
        classes[ward].append((person or "").strip())
    for least in (1, 2, 3, 4):
        small = [persons for persons in classes.values() if len(set(persons)) < least]
        query = small_classes_query(select_star(table("released")), ["ward"], least)
        assert engine.rows(query) == [(len(small), sum(map(len, small)))], least


# --- columns that narrow others


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "persons"), [(0, False), (1, True)])
def test_narrowing_matches_all_pairs_of_rows_or_persons(seed: int, persons: bool, engine: DuckDBEngine) -> None:
    """Groups of one column and of two, and groups that count persons and rows, in one statement over numbers."""
    draw = random.Random(seed)
    grounds = {"a": "uvw", "b": "xy", None: "z"}
    rows = []
    for i in range(50):
        label = draw.choice([*grounds])
        ground = draw.choice(grounds[label])
        district = draw.choice([ground, "d", None]) if seed else ground.upper()
        rows.append((draw.randrange(20) if persons else i, label, ground, district, draw.choice("mf")))
    fill(engine, "t", "p INTEGER, label VARCHAR, ground VARCHAR, c VARCHAR, d VARCHAR", rows)
    person, each_row = col("p") if persons else None, [(i, *row[1:]) for i, row in enumerate(rows)]
    groupings = [Grouping(col("label"), col("ground"), [col(name) for name in names], person) for names in ("c", "cd")]
    groupings.append(replace(groupings[0], person=None))
    measured = [[row[:4] for row in rows], rows, [row[:4] for row in each_row]]
    for shared in (2, 5):
        number_value = HASH_VALUE if shared == 2 else RANK_VALUE
        numbers = number_values(table("t"), ["label", "ground", "c", "d"], ["p"], number_value)
        query = measure_narrowing(subquery(numbers, "n"), groupings, shared)
        by_candidate = {row[0]: row for row in engine.rows(query)}
        for i, some_rows in enumerate(measured):
            (alone,) = engine.rows(measure_narrowing(table("t"), [groupings[i]], shared))
            wanted = figures_of_pairs(some_rows, shared)
            for figures in (by_candidate[i], alone):
                assert dict(zip(query.named_selects[1:], figures[1:], strict=True)) == {
                    name: None if figure is None else pytest.approx(figure, abs=1e-9) for name, figure in wanted.items()
                }
            ((by_chance,),) = engine.rows(values_by_chance(table("t"), groupings[i], shared))
            assert by_chance is None or 1 <= by_chance <= 3
    for names, width in (("c", 4), ("cd", 5)):
        sizes: dict[Any, set[Any]] = defaultdict(set)
        for i, row in enumerate(rows):
            sizes[(row[1], *row[3:width])].add(row[0] if persons else i)
        keys = [col("label"), *map(col, names)]
        assert engine.rows(smallest_group(table("t"), keys, person)) == [(min(map(len, sizes.values())),)]


def test_numbers_are_measured_in_parts_with_equally_many_rows(engine: DuckDBEngine) -> None:
    fill(engine, "t", "x INTEGER", [(x,) for x in [*range(60), 60, 60, 60, None]])
    part = rank_part(col("x")).sql("duckdb")
    parts = dict(engine.connection.execute(f"SELECT DISTINCT x, {part} FROM t").fetchall())
    assert parts == {None: None, **{x: x * PARTS // 63 for x in range(61)}}


def figures(**changes: float) -> dict[str, float]:
    sound = {"rows": 100, "all_rows": 100, "alike_before": 0.2, "alike_after": 0.6, "variance": 2.0}
    return sound | changes


def test_an_excess_over_independence_is_reported_from_one_in_three_million() -> None:
    """Bennett's bound, computed again: of a sum with variance v, P(excess of t) ≤ exp(−v h(t/v))."""
    assert has_excess(figures(), 0.2)
    assert not has_excess(figures(alike_before=0.0), 0.0)
    assert not has_excess(figures(alike_after=0.2), 0.2) and not has_excess(figures(alike_after=0.1), 0.2)
    assert [has_excess(figures(rows=rows, all_rows=2000, variance=0.1), 0.2) for rows in (99, 100)] == [False, True]

    def exponent(excess: float, variance: float) -> float:
        return (variance + excess) * math.log(1 + excess / variance) - excess

    for after in (x / 1000 for x in range(205, 600, 5)):
        for baseline in (0.2, 0.3):
            excess, variance = (after - baseline) * 50, 2.0 * baseline / 0.2
            reported = excess > 0 and exponent(excess, variance) >= 15
            assert has_excess(figures(alike_after=after), baseline) is reported, (after, baseline)


def test_an_excess_matters_from_half_more_or_a_seventh_less_uncertainty() -> None:
    assert [has_large_excess({"alike_after": after}, 0.2) for after in (0.29, 0.31)] == [False, True]
    assert [has_large_excess({"alike_after": after}, 0.6) for after in (0.65, 0.67)] == [False, True]
    assert has_large_excess({"alike_after": 1.0}, 1.0) is False


SOURCE = """
    SELECT i AS number, 'z' || i % 40 AS zip, 'd' || i % 40 // 8 AS district, 'r' || (i % 40 // 8) % 2 AS region,
        (i // 7) % 2 AS sex, (i % 40) * 100 + (i // 40) % 7 AS rent, 'p' || i // 2 AS person
    FROM range(1200) AS r(i)
"""


def test_columns_that_follow_from_a_quasi_identifier_narrow_it(engine: DuckDBEngine) -> None:
    """A district has 8 of 40 postcodes; the rent follows from the postcode and shows about two in a part."""
    engine.connection.execute(f"CREATE TABLE source AS {SOURCE}; CREATE SCHEMA work")
    types = dict(engine.connection.execute("SELECT column_name, data_type FROM duckdb_columns()").fetchall())

    def find_narrowing(*columns: str, person: str | None = None, **section: Any) -> dict[tuple[str, ...], Any]:
        engine.connection.execute("DROP TABLE IF EXISTS work.narrowing_rows")
        narrowing = find_narrowing_in_source(
            StatementRunner(engine),
            lambda name: table(name, "work"),
            table("source"),
            1200,
            columns,
            ["zip"],
            types,
            SourceSection(table="source", **section),
            person,
        )
        return {entry.columns: entry for entry in narrowing}

    district = find_narrowing("district", "sex")[("district",)]
    assert (district.quasi, district.level, district.in_parts, district.counts, district.smallest_group) == (
        "zip",
        0,
        (),
        "rows",
        None,
    )
    assert (district.before, district.after, district.pinned, district.affected) == (40, 8, 0, 1200)
    assert district.alike_before == pytest.approx(29 / 1199) and district.alike_after == pytest.approx(29 / 239)
    assert district.factor == pytest.approx(district.alike_after / district.alike_before)
    assert district.by_chance == pytest.approx(40, abs=0.1)
    assert "a released label stands for 40.0 values of it on average, and for 8.0 if" in district.message
    assert find_narrowing("sex") == {}
    narrowing = find_narrowing("rent", "sex")
    assert narrowing.keys() == {("rent",)} and narrowing["rent",].in_parts in ((), ("rent",))
    narrowings = find_narrowing("district", "region")
    assert narrowings.keys() == {("district",), ("region",)}  # together they say what the district does
    of_persons = find_narrowing("district", person="person")[("district",)]
    assert of_persons.counts == "persons" and of_persons.affected <= 600


def test_a_column_that_gives_few_values_away_narrows(engine: DuckDBEngine) -> None:
    """Four fifths are men. Two notes, of 75 men and of 75 women, give away the sex of one person in twenty: their
    pairs are hardly likelier to agree."""
    engine.connection.execute("""
        CREATE SCHEMA work;
        CREATE TABLE source AS
        SELECT
            i < 2400 AS sex,
            CASE WHEN i < 75 THEN 'his' WHEN i >= 2925 THEN 'hers' END AS note,
            CASE WHEN i < 70 THEN 'his' WHEN i >= 2930 THEN 'hers' END AS fewer
        FROM range(3000) AS r(i)
    """)
    narrowing = find_narrowing_in_source(
        StatementRunner(engine),
        lambda name: table(name, "work"),
        table("source"),
        3000,
        ["note", "fewer"],
        ["sex"],
        {"note": "VARCHAR", "fewer": "VARCHAR", "sex": "BOOLEAN"},
        SourceSection(table="source"),
    )
    assert [(dependency.columns, dependency.pinned) for dependency in narrowing] == [(("note",), 0.05)]


# --- unprotected columns


def find_unprotected(
    roles: dict[str, str], counts: dict[str, tuple[int, int]], rows: int = 100, persons: int | None = None
) -> list[tuple[str, int | None]]:
    """The warnings about columns with these numbers of distinct values and of values: their first words, and the
    number of people."""
    policy = make_policy({"ward": "suppress", **roles})
    columns: Any = SimpleNamespace(
        by_attribute={name: name for name in policy.attributes},
        released=[Column("ward", 0), *(Column(name) for name in roles)],
        noisy=(),
    )
    flat = [figure for pair in counts.values() for figure in pair]
    source: Any = SimpleNamespace(
        columns={"ward": "VARCHAR", **dict.fromkeys(roles, "VARCHAR")},
        count_distinct_values=lambda _, names: flat if names == [*counts] else [],
    )
    runner: Any = SimpleNamespace(dry=False, engine=None)
    unprotected_columns = find_unprotected_columns(runner, policy, source, columns, rows, persons)
    return [(notice.message.split(": ")[0], notice.affected) for notice in unprotected_columns]


UNIQUE = "column 'note' is nearly unique"
NAMED = "column 'email' is released unchanged, and named like an identifier (e-mail addresses)"


@pytest.mark.parametrize(
    ("roles", "counts", "expected_warnings"),
    [
        ({"note": "insensitive"}, {"note": (90, 100)}, [(UNIQUE, 90)]),
        ({"note": "insensitive"}, {"note": (89, 100)}, []),
        ({"note": "insensitive"}, {"note": (1, 1)}, []),
        ({"note": "insensitive"}, {"note": (2, 2)}, [(UNIQUE, 2)]),
        ({"note": "sensitive"}, {"note": (100, 100)}, [(UNIQUE, 100)]),
        ({"email": "insensitive"}, {"email": (20, 100)}, [(NAMED, 20)]),
        ({"email": "insensitive"}, {"email": (19, 100)}, []),
        ({"hiv": "insensitive"}, {"hiv": (2, 100)}, [("column 'hiv' is insensitive, and named like health", 100)]),
        ({"hiv": "sensitive"}, {"hiv": (2, 100)}, []),
        ({"hiv": "insensitive"}, {"hiv": (1, 100)}, []),  # all have the same value
        ({"hiv": "insensitive"}, {"hiv": (1, 99)}, [("column 'hiv' is insensitive, and named like health", 100)]),
        (
            {"hiv": "insensitive", "asthma": "insensitive"},
            {"hiv": (2, 100), "asthma": (2, 100)},
            [("columns 'hiv' and 'asthma' are insensitive, and named like health", 100)],
        ),
        (
            {"religion": "insensitive"},
            {"religion": (3, 100)},
            [("column 'religion' is insensitive, and named like belief, politics, sexual life, crime", 100)],
        ),
    ],
)
def test_unchanged_columns_are_warned_of_by_values_and_names(
    roles: dict[str, str], counts: dict[str, tuple[int, int]], expected_warnings: list[tuple[str, int]]
) -> None:
    assert find_unprotected(roles, counts) == expected_warnings


def test_unchanged_columns_are_of_as_many_people_as_there_are() -> None:
    assert find_unprotected({"note": "insensitive"}, {"note": (95, 100)}, persons=40) == [(UNIQUE, 40)]
    assert find_unprotected({"hiv": "insensitive"}, {"hiv": (2, 100)}, persons=40)[0][1] == 40
    # Of 60 addresses of 300 people there are many; of 60 addresses in 1,000 rows there are few.
    assert find_unprotected({"email": "insensitive"}, {"email": (60, 300)}, 1000) == [(NAMED, 60)]
    assert find_unprotected({"email": "insensitive"}, {"email": (60, 1000)}, 1000) == []
    assert find_unprotected({"email": "insensitive"}, {"email": (60, 1000)}, 1000, persons=100) == [(NAMED, 60)]


# --- who a person is


@pytest.fixture(scope="module")
def visits() -> Iterator[ReleaseDraft]:
    """Of ward a, six visits of four patients, one of them unknown; of ward b, five of five patients; of ward c, four
    visits of two patients and two of unknown ones."""
    wards = {"a": [1, 1, 2, 2, 3, None], "b": [4, 5, 6, 7, 8], "c": [9, 9, 10, 10, None, None]}
    rows = ", ".join(f"('{ward}', {mrn or 'NULL'}::INTEGER)" for ward, ids in wards.items() for mrn in ids)
    with duckdb.connect() as connection, sqlanon.connect(connection) as db:
        connection.execute(f"CREATE TABLE t AS FROM (VALUES {rows}) AS v(ward, mrn)")
        policy = make_policy({"ward": "suppress"}, k=3, table=None, source={"table": "t", "person": "mrn"})
        yield db.anonymize(policy)._draft


def test_rows_without_a_person_may_be_of_persons_with_other_rows(visits: ReleaseDraft) -> None:
    """At k = 3 only ward c needs the unknown patient: without it, two patients are left."""
    assert visits.recoding.generalization == {"ward": 0}
    runner = StatementRunner(visits.run.engine)
    (notice,) = warn_of_rows_without_person(runner, visits.search_input, visits.recoding.statement)
    assert notice.message.startswith("3 rows have no 'mrn', and count as one person in each class. If they are of ")
    assert "1 class holds fewer than 3 persons" in notice.message and notice.affected == 2


@pytest.mark.parametrize(("k", "small"), [(2, None), (3, None), (4, "1 class (6 rows) holds fewer than 4 values"),
                                          (5, "2 classes (12 rows) hold fewer than 5 values")])  # fmt: skip
def test_a_release_is_refused_whose_classes_have_too_few_persons(
    k: int, small: str | None, visits: ReleaseDraft
) -> None:
    policy = visits.search_input.policy
    privacy = policy.privacy.model_copy(update={"k": k})
    search_input: Any = SimpleNamespace(
        policy=policy.model_copy(update={"privacy": privacy}), source=visits.search_input.source
    )
    runner, person = StatementRunner(visits.run.engine), PersonColumn("mrn", 14, 10, 17)
    refuse_undecided_person(runner, search_input, visits.recoding.statement, None)
    if small is None:
        refuse_undecided_person(runner, search_input, visits.recoding.statement, person)
        return
    with pytest.raises(PolicyError) as refused:
        refuse_undecided_person(runner, search_input, visits.recoding.statement, person)
    message = str(refused.value)
    assert f"{small} of 'mrn'" in message
    assert "'mrn' numbers people: 10 values in 14 rows (3 rows without a value count as one person" in message


@pytest.mark.parametrize(
    ("persons", "spelling", "is_found"),
    [(5, "'p' || i", True), (4, "'p' || i", False), (5, "'p' || i || repeat(' ', j::INTEGER)", True)],
)
def test_a_column_numbers_five_persons_or_more(
    persons: int, spelling: str, is_found: bool, engine: DuckDBEngine
) -> None:
    """Each has three rows, with one sex and one date of birth; spaces around an id make no other person."""
    engine.connection.execute(f"""
        CREATE OR REPLACE TABLE stays AS
        SELECT {spelling} AS mrn, ['m', 'f'][i % 2 + 1] AS sex, DATE '1950-01-01' + (500 * i)::INTEGER AS birth_date
        FROM range({persons}) AS p(i), range(3) AS r(j)
    """)
    keys = [KeyColumn("mrn", "VARCHAR", is_released=False)]
    compared = {"sex": "VARCHAR", "birth_date": "DATE"}
    column = find_person_column(engine.rows, table("stays"), keys, compared, 3 * persons)
    assert column == (PersonColumn("mrn", 3 * persons, persons, 3 * persons) if is_found else None)


def test_a_release_whose_persons_cannot_be_counted_is_refused(
    visits: ReleaseDraft, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The audit of rows on a server counts no persons before the policy names them."""
    monkeypatch.setattr(person_column, "_count_small_classes", lambda *_: (0, 0))
    search_input: Any = SimpleNamespace(policy=visits.search_input.policy, source=SimpleNamespace(access="remote"))
    person = PersonColumn("mrn", 14, 10, 17)
    with pytest.raises(PolicyError, match="'mrn' numbers people"):
        refuse_undecided_person(StatementRunner(visits.run.engine), search_input, visits.recoding.statement, person)


# --- refusals


@pytest.mark.parametrize(
    ("mode", "smallest", "refusals"),
    [(None, 1, 1), (None, 2, 0), (None, None, 0), ("warn", 1, 0), ("error", 2, 1), ("error", None, 1)],
)
def test_narrowing_columns_are_refused_at_the_policy_limit(
    mode: str | None, smallest: int | None, refusals: int, visits: ReleaseDraft
) -> None:
    search_input = visits.search_input
    policy = search_input.policy
    privacy = policy.privacy.model_copy(update={"dependencies": mode})
    changed: Any = SimpleNamespace(
        policy=policy.model_copy(update={"privacy": privacy}),
        columns=search_input.columns,
        attributes=search_input.attributes,
        source=search_input.source,
        released_columns=search_input.released_columns,
    )
    runner = StatementRunner(visits.run.engine)
    narrowing: Any = SimpleNamespace(smallest_group=smallest, message="m", columns=("district",))
    messages = refuse_narrowing(runner, changed, ["ward"], [narrowing])
    assert len(messages) == refusals and all(text.startswith("dependencies: m") for text in messages)
    ungeneralized = measure_dependencies(
        visits.run.engine, runner, search_input, visits.recoding.statement, {"ward": 0}
    )
    assert ungeneralized == Dependencies((), (), ())
