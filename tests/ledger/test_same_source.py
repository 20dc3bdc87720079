"""The estimates that decide whether two sources are the same, at their borders and for agreement by chance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sqlglot import exp

import sqlanon
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.ledger import catalog, source_match
from sqlanon.ledger.same_people import (
    DEVIATIONS,
    MIN_SHARED_PEOPLE,
    NEIGHBOURS,
    RUNNING,
    PeopleComparison,
    SharedPeople,
    estimate_agreement,
    is_more_than_chance,
)
from sqlanon.ledger.source_match import (
    MIN_UNIQUE_SHARE,
    Recognition,
    RowComparison,
    _estimate_share,
    estimate_shared_rows,
    exceeds_chance,
    may_be_same_rows,
    sample_source,
)
from sqlanon.sources.source import Source
from sqlanon.support.expressions import table
from support.databases import shared_database


@pytest.mark.parametrize("rate", [0.05, 0.3, 1.0, 3.0])
@pytest.mark.parametrize("combinations", [10, 1_000, 100_000, 10_000_000])
def test_combinations_of_rows_that_have_nothing_to_do_with_one_another_are_chance(
    rate: float, combinations: int
) -> None:
    none, single, two = (round(combinations * math.exp(-rate) * rate**n / math.factorial(n)) for n in range(3))
    assert not exceeds_chance(none, single, two)


def test_rows_in_common_are_more_than_chance() -> None:
    assert [exceeds_chance(0, common, 0) for common in (0, 4, 5, 100)] == [False, False, True, True]
    assert [exceeds_chance(none, 100, 0) for none in (1066, 1067)] == [True, False]  # 80² = 6,400 = 2 · 1,066.7 · 3
    assert [exceeds_chance(400, 100, two) for two in (2, 3)] == [True, False]  # at most 8 may be allowed


@pytest.mark.parametrize(
    ("figures", "share"),
    [
        # Of 100 sampled rows 10 are alone by chance, and up to 29 as well.
        ((1000, 100, 29, 1000, 900, 50), 0.0),
        ((1000, 100, 30, 1000, 900, 50), 0.25),
        ((1000, 100, 50, 1000, 900, 50), 0.5),
        ((2000, 100, 50, 1000, 900, 50), 1.0),  # of the rows of the smaller source
        ((1500, 100, 50, 1000, 900, 50), 0.75),
        ((500, 100, 50, 1000, 900, 50), 0.5),
        ((1000, 100, 95, 1000, 900, 50), 1.0),
        ((1000, 0, 0, 1000, 900, 50), 0.0),
        ((1000, 100, 50, 0, 0, 0), 0.0),
        # If too few rows are alone, the share is 0.
        ((1000, 1000, 50, 1000, round(1000 * MIN_UNIQUE_SHARE), 0), 1.0),
        ((1000, 1000, 50, 1000, round(1000 * MIN_UNIQUE_SHARE) - 1, 0), 0.0),
        ((1000, 100, 100, 1000, 400, 200), 0.0),  # as many as by chance
        ((1000, 1000, 3, 1000, 900, 0), 0.0),
        ((1000, 1000, 4, 1000, 900, 0), 4 / 900),
    ],
)
def test_shared_rows_are_estimated_from_figures(figures: tuple[int, ...], share: float) -> None:
    assert estimate_shared_rows(*figures) == pytest.approx(share)


@pytest.mark.parametrize(("in_two", "share"), [(123, 0.35 / 0.88), (124, 0.0)])
def test_rows_in_common_are_those_beyond_chance(in_two: int, share: float) -> None:
    """Of 370 combinations in one row, 331.5 at least are beyond two deviations; chance explains their number if twice
    370 times the 147 combinations or more that may be in two rows is not less than its square."""
    assert _estimate_share((1000, 900, 10, 1000, 370, 370, 370, in_two), 1000) == pytest.approx(share)


def test_sources_may_be_the_same_within_five_deviations() -> None:
    """Chance would leave 100 of 200 sampled rows alone: 50 fewer are five deviations."""
    assert [may_be_same_rows((1000, 500, 0, 200, alone, 0, 0, 0)) for alone in (49, 50, 100)] == [False, True, True]
    assert may_be_same_rows((0, 0, 0, 0, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("shared", "people", "running", "is_more"),
    [
        (MIN_SHARED_PEOPLE - 1, 400, [0.0, 0.0], True),
        (MIN_SHARED_PEOPLE - 2, 400, [0.0, 0.0], False),
        (400, 400, [0.0, None], False),
        (400, 400, [RUNNING, 0.0], True),
        (400, 400, [RUNNING + 1e-9, 0.0], False),
        (400, 400, [0.0, RUNNING + 1e-9], False),
    ],
)
def test_keys_at_random_are_shared_by_the_same_people(
    shared: int, people: int, running: list[float | None], is_more: bool
) -> None:
    assert is_more_than_chance(shared, people, running) is is_more


def test_keys_of_a_range_that_is_half_full_are_shared_by_chance() -> None:
    """If a key has a neighbour with probability q, a key is taken with about 1 - (1 - q)^(1/neighbours)."""
    taken = 0.02
    running = 1 - math.exp(-taken * (NEIGHBOURS - 1))
    chance = taken * 1000
    least = chance + DEVIATIONS * math.sqrt(chance) + MIN_SHARED_PEOPLE - 1
    assert [is_more_than_chance(n, 1000, [running, 0.0]) for n in (math.floor(least), math.ceil(least) + 1)] == [
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("figures", "share"),
    [
        ([], 0.0),
        ([(100, 100, 0.0)], 1.0),
        ([(100, 1, 0.0)], 0.0),
        ([(100, 2, 0.0)], 0.02),
        ([(100, 100, 1.0)], 0.0),  # a column with one value
        ([(400, 300, 0.5)], 0.5),
        ([(400, 300, 0.5), (400, 400, 0.25)], 1.0),
        ([(400, 400, 0.25), (400, 300, 0.5)], 1.0),
    ],
)
def test_people_who_agree_more_often_than_chance_are_the_same(
    figures: list[tuple[int, int, float]], share: float
) -> None:
    assert estimate_agreement(figures) == pytest.approx(share)


def test_agreement_begins_some_deviations_above_chance() -> None:
    least = 200 + DEVIATIONS * 10 + 2  # 400 pairs that agree half of the time: ten is one deviation
    assert [estimate_agreement([(400, math.ceil(least) - less, 0.5)]) > 0 for less in (0, 1)] == [True, False]


# --- the rows of tables


def compare_rows(folder: Path, samples: Mapping[str, str], query: str) -> tuple[RowComparison, dict[str, float]]:
    """Sample tables for a catalog, by description, and compare another table with these samples, in their order."""
    with shared_database() as connection:
        engine = DuckDBEngine(connection)

        def comparison_of(name: str, rows: str) -> RowComparison:
            connection.execute(f"CREATE TABLE {name} AS {rows}")
            columns = engine.columns(table(name))
            run: Any = SimpleNamespace(engine=engine, work=table, source=Source(table(name), columns))
            policy = sqlanon.Policy(
                source={"database": "any.duckdb", "table": name, "person": False},
                attributes={column: {"role": "quasi", "hierarchy": "suppress"} for column in columns},
                privacy={"k": 2},
            )
            return RowComparison(run, policy, folder / "catalog.duckdb", "secret")

        for i, (description, rows) in enumerate(samples.items()):
            earlier = comparison_of(f"earlier_{i}", rows)
            ((count,),) = connection.execute(f"SELECT count(*) FROM earlier_{i}").fetchall()
            sample = sample_source(earlier.run, earlier.policy, "secret", description, count)
            assert sample is not None
            with catalog.open_catalog(engine, earlier.path):
                samples_table = table("source_samples", "sqlanon", catalog.ATTACHED)
                engine.execute(exp.Insert(this=samples_table, expression=sample))
        later = comparison_of("later", query)
        return later, later.shares({description: description for description in samples})


PEOPLE = "SELECT i AS id, i % 2 AS sex, i * 7 % 30 AS band FROM range(1, 601) AS r(i)"


def test_the_newest_sources_are_compared_and_others_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The source of the oldest release is unknown, unless it was recognized by its people."""
    monkeypatch.setattr(source_match, "MAX_SOURCES", 2)
    later, shares = compare_rows(tmp_path, {"oldest": PEOPLE, "older": PEOPLE, "newest": PEOPLE}, PEOPLE)
    assert shares == {"older": 1.0, "newest": 1.0}
    (warning,) = later.warn(["newest"])
    assert warning.startswith("the catalog has releases of 1 other source, which may be this one under another name.")
    assert later.warn(["oldest"]) == []


def test_a_source_of_which_half_was_released_shares_all_those_rows(tmp_path: Path) -> None:
    assert compare_rows(tmp_path, {"half": f"{PEOPLE} LIMIT 300"}, PEOPLE)[1] == {"half": 1.0}


def test_a_copy_with_other_keys_shares_the_rows_of_its_other_columns(tmp_path: Path) -> None:
    """Each combination of these is of one row."""
    people = "SELECT i AS id, i % 30 AS age, i // 30 AS zip FROM range(600) AS r(i)"
    copy = f"SELECT 599 - id AS id, age, zip FROM ({people})"
    assert compare_rows(tmp_path, {"other": people}, copy)[1] == {"other": 1.0}


def test_a_column_corresponds_to_one_sampled_column() -> None:
    """This holds even if it has the values of two sampled columns whose names the later source lacks."""
    rows: Any = SimpleNamespace(columns=["x", "y"], match_values=lambda sampled, position, column: (1.0, 3))
    pairs, _ = source_match._pair_columns(rows, table("sampled"), ["a", "b", "c"])
    assert len(pairs) == 2 and {*pairs.values()} == {"x", "y"}


@pytest.mark.parametrize(("share", "is_paired"), [(0.5, True), (0.49, False)])
@pytest.mark.parametrize("name", ["Zip", "postcode"])
def test_columns_correspond_from_half_of_the_sampled_values_on(name: str, share: float, is_paired: bool) -> None:
    rows: Any = SimpleNamespace(columns=["zip"], match_values=lambda sampled, position, column: (share, 3))
    assert source_match._pair_columns(rows, table("sampled"), [name]) == (
        ({0: "zip"}, {0: 3}) if is_paired else ({}, {})
    )


def test_the_source_of_a_run_is_not_compared_with_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest run of each other source is."""
    compared = dict[str, Any]()
    monkeypatch.setattr(RowComparison, "shares", lambda self, runs: compared.update(rows=runs) or {})
    monkeypatch.setattr(source_match, "compare_people", lambda *arguments: compared.update(people=arguments[-1]))
    sources = {"1": "own", "2": "a", "3": "b", "4": "a", "5": None}
    records: Any = [SimpleNamespace(run_id=run_id, source=source) for run_id, source in sources.items()]
    run: Any = SimpleNamespace(identity="own")
    history: Any = SimpleNamespace(secret="secret")
    nothing: Any = None
    source_match.recognize(run, nothing, Path("catalog"), history, records, nothing)
    assert compared == {"rows": {"a": "4", "b": "3"}, "people": {"2": "a", "3": "b", "4": "a"}}


def test_a_source_is_recognized_by_its_description_rows_or_people() -> None:
    people = PeopleComparison({"people": SharedPeople(0.5, "id", "id", 1, 1)}, frozenset())
    recognition = Recognition("own", {"rows": 0.5}, people, cast(Any, SimpleNamespace(undecided={"people", "unsure"})))
    sources = "own", "rows", "people", "unsure", None
    assert [source for source in sources if recognition.has_rows_of(source)] == ["own", "rows"]
    assert [source for source in sources if recognition.recognizes(source)] == ["own", "rows", "people"]
    assert recognition.undecided_sources == {"unsure"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("columns", "rows", "is_undecided"),
    [
        ("id, sex, band", 540, True),  # one in ten fewer
        ("id, sex, band", 539, False),
        ("id, sex AS gender, band", 600, False),  # other names may have the same few values
    ],
)
def test_a_table_with_other_keys_and_the_same_few_values_may_be_the_same(
    columns: str, rows: int, is_undecided: bool, tmp_path: Path
) -> None:
    """Its keys are those of other rows. No combination of the other columns is of one row."""
    query = f"SELECT {columns} FROM (SELECT 601 - id AS id, sex, band FROM ({PEOPLE})) LIMIT {rows}"
    later, shares = compare_rows(tmp_path, {"other": PEOPLE}, query)
    assert (shares, later.undecided) == ({}, {"other"} if is_undecided else set())
