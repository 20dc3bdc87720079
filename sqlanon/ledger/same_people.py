"""Recognize sources of the same people, wherever they are stored and whatever the names of their columns.

People that two samples share (`people_samples`) have the same key. Running numbers are equal by chance, so one of two
conditions must hold: keys are not running numbers, and more are shared than chance explains; or a column that does not
repeat the key agrees for the shared people more often than for people paired at random.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.ledger import catalog
from sqlanon.ledger.people_samples import PeopleSample, SourcePeople
from sqlanon.sources.run import Run
from sqlanon.support.expressions import create_table, drop_table, template, text

MIN_SHARED_PEOPLE = 5
"""The fewest shared people that count."""

MIN_PEOPLE_SHARE = 0.05
"""The least share of the people of the smaller source that the other source has."""

RUNNING = 0.5
"""The greatest share of keys with a neighbour that are not running numbers."""

NEIGHBOURS = 10
"""The number of keys that differ only in their last digit."""

DEVIATIONS = 5
"""The standard deviations beyond chance that are not explained by chance."""

# A sample of all people covers all hashes; another one covers those up to its greatest.
_SHARED_PEOPLE = template("""
    WITH samples AS (
        SELECT
            run_id, column_name, bool_or(is_personal) AS is_personal, max(people) AS people,
            max(most_rows) AS most_rows, max(running) AS running,
            CASE WHEN max(people) > count(*) THEN max(person) ELSE '18446744073709551615'::UBIGINT END AS last
        FROM :earlier
        GROUP BY run_id, column_name
    ),
    compared AS (
        SELECT k.*, least(k.last, r.last) AS reach
        FROM samples AS k
        CROSS JOIN (
            SELECT CASE WHEN :people > count(*) THEN max(person) ELSE '18446744073709551615'::UBIGINT END AS last
            FROM :sample
        ) AS r
    ),
    earlier AS (
        SELECT c.run_id, c.column_name, count(*) AS people, count(s.person) AS shared
        FROM compared AS c
        JOIN :earlier AS e ON e.run_id = c.run_id AND e.column_name = c.column_name AND e.person <= c.reach
        LEFT JOIN :sample AS s ON e.person = s.person
        GROUP BY c.run_id, c.column_name
    ),
    later AS (
        SELECT c.run_id, c.column_name, count(*) AS people
        FROM compared AS c
        JOIN :sample AS s ON s.person <= c.reach
        GROUP BY c.run_id, c.column_name
    )
    SELECT c.run_id, c.column_name, c.is_personal, c.most_rows, c.running, least(e.people, l.people), e.shared
    FROM compared AS c
    JOIN earlier AS e ON e.run_id = c.run_id AND e.column_name = c.column_name
    JOIN later AS l ON l.run_id = c.run_id AND l.column_name = c.column_name
""")
_AGREEMENT = template("""
    WITH shared AS (
        SELECT s.person, e.hashes AS earlier, s.hashes AS later
        FROM :sample AS s
        JOIN (
            SELECT person, hashes FROM :earlier WHERE run_id = :run_id AND column_name = :column_name
        ) AS e ON e.person = s.person
    ),
    -- A column that repeats the key would agree wherever the key does.
    earlier AS (
        SELECT person, nullif(unnest(earlier), person) AS value, unnest(range(length(earlier))) AS place FROM shared
    ),
    later AS (
        SELECT person, nullif(unnest(later), person) AS value, unnest(range(length(later))) AS place FROM shared
    ),
    pairs AS (
        SELECT
            e.place AS earlier_place, l.place AS later_place,
            count(*) AS compared, count(*) FILTER (WHERE e.value = l.value) AS agreeing
        FROM earlier AS e
        JOIN later AS l ON e.person = l.person
        WHERE NOT e.value IS NULL AND NOT l.value IS NULL
        GROUP BY e.place, l.place
    ),
    chance AS (
        SELECT e.place AS earlier_place, l.place AS later_place, sum(e.people * l.people)::DOUBLE AS meetings
        FROM (SELECT place, value, count(*) AS people FROM earlier GROUP BY place, value) AS e
        JOIN (SELECT place, value, count(*) AS people FROM later GROUP BY place, value) AS l ON e.value = l.value
        GROUP BY e.place, l.place
    )
    SELECT p.compared, p.agreeing, coalesce(c.meetings, 0) / (p.compared * p.compared)
    FROM pairs AS p
    LEFT JOIN chance AS c ON p.earlier_place = c.earlier_place AND p.later_place = c.later_place
""")


@dataclass(frozen=True)
class SharedPeople:
    """The people that two sources have in common."""

    share: float  # their share of the people of the smaller source
    column: str  # the column that numbers them
    earlier_column: str
    most_rows: int  # the most rows of one person
    earlier_most_rows: int


@dataclass(frozen=True)
class PeopleComparison:
    """The people that earlier sources and a run's source have in common, and the descriptions of compared sources."""

    shared: Mapping[str, SharedPeople]
    compared: frozenset[str]


def compare_people(
    run: Run, path: Path, people: SourcePeople, secret: str, sources: Mapping[str, str]
) -> PeopleComparison:
    """Compare the people of a run's source with those of earlier runs in the catalog at a path.

    People are hashed with the ``secret`` of the catalog; ``sources`` has the description of the source of each earlier
    run.
    """
    shared = dict[str, SharedPeople]()
    if not sources or not (samples := people.samples(secret)):
        return PeopleComparison(shared, frozenset())
    engine, earlier = run.engine, run.work("earlier people")
    query = template("SELECT * FROM sqlanon_catalog.sqlanon.source_people WHERE run_id IN (:runs)")
    with catalog.open_catalog(engine, path):
        engine.execute(create_table(earlier.copy(), query(runs=[text(run_id) for run_id in sources])))
    try:
        runs = engine.rows(template("SELECT DISTINCT run_id FROM :earlier")(earlier=earlier))
        for run_id, shared_people in _shared_people(engine, earlier, samples):
            best = shared.get(sources[run_id])
            if best is None or shared_people.share > best.share:
                shared[sources[run_id]] = shared_people
    finally:
        engine.execute(drop_table(earlier))
    return PeopleComparison(shared, frozenset(sources[run_id] for (run_id,) in runs))


def read_most_rows_per_person(engine: DuckDBEngine, path: Path) -> dict[str, int]:
    """The maximum number of rows of one person in the source of each run whose policy names persons."""
    if not path.exists():
        return {}
    query = template("""
        SELECT run_id, max(most_rows)
        FROM sqlanon_catalog.sqlanon.source_people
        WHERE is_person
        GROUP BY run_id
    """)
    with catalog.open_catalog(engine, path):
        return dict(engine.rows(query()))


def count_shared_people(engine: DuckDBEngine, earlier: exp.Table, sample: PeopleSample) -> list[tuple[Any, ...]]:
    """For each earlier run and column: whether it numbers people, the most rows of a person, the share of running
    numbers, the people of the smaller source that both samples could contain, and those that both contain."""
    return engine.rows(_SHARED_PEOPLE(earlier=earlier, sample=sample.table, people=sample.people))


def _shared_people(
    engine: DuckDBEngine, earlier: exp.Table, samples: Sequence[PeopleSample]
) -> Iterator[tuple[str, SharedPeople]]:
    """The earlier runs whose sources have the same people, with the shared people."""
    for sample in samples:
        counts = count_shared_people(engine, earlier, sample)
        for run_id, column, is_personal, most_rows, running, people, shared in counts:
            if not (is_personal or sample.is_personal) or shared < max(MIN_SHARED_PEOPLE, MIN_PEOPLE_SHARE * people):
                continue
            share = shared / people
            if not is_more_than_chance(shared, people, [running, sample.running]):
                query = _AGREEMENT(sample=sample.table, earlier=earlier, run_id=run_id, column_name=column)
                share *= estimate_agreement(engine.rows(query))
            if share >= MIN_PEOPLE_SHARE:
                yield run_id, SharedPeople(share, sample.column, column, sample.most_rows, most_rows)


def is_more_than_chance(shared: int, people: int, running: Iterable[float | None]) -> bool:
    """Whether more keys are shared than chance explains; False for names and running numbers.

    ``running`` has the share of the keys of each table that have a neighbour: the share of taken numbers follows from
    it, if keys are drawn at random from a range.

    >>> is_more_than_chance(400, 400, [0.0, 0.02]), is_more_than_chance(400, 400, [1.0, 0.02])
    (True, False)
    >>> is_more_than_chance(6, 400, [0.15, 0.15]), is_more_than_chance(400, 400, [None, 0.0])
    (False, False)
    """
    rates = []
    for share in running:
        if share is None or share > RUNNING:
            return False
        rates.append(-math.log(1 - share) / (NEIGHBOURS - 1))
    chance = max(rates) * people
    return shared >= chance + DEVIATIONS * math.sqrt(chance) + MIN_SHARED_PEOPLE - 1


def estimate_agreement(figures: Iterable[tuple[int, int, float]]) -> float:
    """Estimate the share of the shared keys that are the same people, by the two columns that agree best.

    It is 0 where chance explains the agreement. ``figures`` has for each pair of columns the compared people, those
    that agree, and the probability that two people agree.

    >>> estimate_agreement([(400, 390, 0.02)]) > 0.97, estimate_agreement([(400, 215, 0.5), (400, 9, 0.02)])
    (True, 0.0)
    """
    best = 0.0
    for compared, agreeing, chance in figures:
        expected = compared * chance
        spread = DEVIATIONS * math.sqrt(expected * max(1 - chance, 0.0))
        if chance < 1 and agreeing >= expected + spread + 2:
            best = max(best, (agreeing - expected) / (compared - expected))
    return best
