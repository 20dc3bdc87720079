"""The statements that count rows and persons, on small tables beside plain Python."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import duckdb
import pytest

from sqlanon.expressions import table
from sqlanon.frequency.statements import (
    combinations,
    memberships,
    movers,
    person_count,
    raw_frequency,
    rows_of_largest_persons,
)

Row = tuple[Any, ...]


@pytest.mark.parametrize("seed", range(5))
def test_persons_of_several_combinations_move_and_others_add_up(seed: int) -> None:
    """All rows without a person are one person, also in several combinations; NULL is a value."""
    draw = random.Random(seed)
    rows: list[Row] = [
        (draw.choice(["1", "2", None]), draw.choice(["m", None]), draw.choice([1, 2, 3, 4, 5, 6, None]))
        for _ in range(draw.choice([1, 8, 14]))
    ]
    with duckdb.connect() as connection:

        def made(name: str, query: Any) -> list[Row]:
            connection.execute(f"CREATE TABLE {name} AS {query.sql('duckdb')}")
            return connection.execute(f"FROM {name}").fetchall()

        connection.execute("CREATE TABLE source (zip VARCHAR, sex VARCHAR, who INT)")
        connection.executemany("INSERT INTO source VALUES (?, ?, ?)", rows)
        raw = made("raw", raw_frequency(table("source"), ["zip", "sex"], person="who"))
        assert {row[:3]: row[3] for row in raw} == Counter(rows)
        members = made("members", memberships(table("raw"), 2))
        assert {row[:3]: row[3] for row in members} == Counter(rows)

        people = {row[2] for row in rows}
        assert connection.execute(person_count(table("members")).sql("duckdb")).fetchone() == (len(people),)
        by_person = Counter(row[2] for row in rows)
        for count in (0, 1, 2, 9):
            query = rows_of_largest_persons(table("members"), count)
            expected = sum(n for _, n in by_person.most_common(count))
            assert connection.execute(query.sql("duckdb")).fetchone() == (expected,)

        places = {who: {row[:2] for row in rows if row[2] == who} for who in people}
        moving = dict(made("moving", movers(table("members"))))
        assert moving.keys() == {who for who in people if len(places[who]) > 1}
        assert sorted(moving.values()) == [*range(1, len(moving) + 1)]

        plain = made("plain", combinations(table("members"), None, 2))
        keys = {row[:2] for row in rows}
        assert {row[:2]: row[2:] for row in plain} == {
            key: (sum(row[:2] == key for row in rows), len({row[2] for row in rows if row[:2] == key})) for key in keys
        }

        found = made("found", combinations(table("members"), table("moving"), 2))
        expected_rows: Counter[Row] = Counter()
        settled: dict[Row, set[Any]] = {}
        for row in rows:
            key = (*row[:2], moving.get(row[2]))
            expected_rows[key] += 1
            settled.setdefault(key, set()).update([] if row[2] in moving else [row[2]])
        assert {row[:3]: row[3:] for row in found} == {key: (n, len(settled[key])) for key, n in expected_rows.items()}
        # Whatever classes are merged, settled persons and distinct movers are their persons.
        for merged in ({"1", "2"}, {None, "1"}):
            some = [row for row in found if row[0] in merged]
            counted = sum(row[4] for row in some) + len({row[2] for row in some} - {None})
            assert counted == len({row[2] for row in rows if row[0] in merged})
