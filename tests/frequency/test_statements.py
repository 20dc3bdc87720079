"""Counts of rows and persons on small tables, compared with plain Python, and the suppression limit."""

from __future__ import annotations

import random
from collections import Counter
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import sqlanon
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.frequency import packing
from sqlanon.frequency.packing import assign_words, pack_combinations, refuse_too_many
from sqlanon.frequency.population import population_size
from sqlanon.frequency.statements import (
    count_persons,
    number_movers,
    person_combinations,
    person_memberships,
    raw_frequency,
    sum_rows_of_largest_persons,
)
from sqlanon.frequency.suppression_limit import SuppressionLimit, floor_share
from sqlanon.frequency.uncoded import uncoded_distribution
from sqlanon.support.expressions import select_star, table

Row = tuple[Any, ...]


@pytest.mark.parametrize("seed", range(5))
def test_persons_of_several_combinations_move_and_others_add_up(seed: int) -> None:
    """All rows without a person are one person, also in several combinations; NULL is a value."""
    draw = random.Random(seed)
    rows: list[Row] = [
        (draw.choice(["1", "2", None]), draw.choice(["m", None]), draw.choice([1, 2, 3, 4, 5, 6, None]))
        for _ in range(draw.choice([1, 8, 14]))
    ]
    rows += [("1", "m", None), ("2", "m", None), ("1", "m", 7), ("1", None, 7)] * (seed % 2)
    with duckdb.connect() as connection:

        def materialize(name: str, query: Any) -> list[Row]:
            connection.execute(f"CREATE TABLE {name} AS {query.sql('duckdb')}")
            return connection.execute(f"FROM {name}").fetchall()

        connection.execute("CREATE TABLE source (zip VARCHAR, sex VARCHAR, who INT)")
        connection.executemany("INSERT INTO source VALUES (?, ?, ?)", rows)
        raw = materialize("raw", raw_frequency(table("source"), ["zip", "sex"], person="who"))
        assert {row[:3]: row[3] for row in raw} == Counter(rows)
        members = materialize("members", person_memberships(table("raw"), 2))
        assert {row[:3]: row[3] for row in members} == Counter(rows)

        people = {row[2] for row in rows}
        assert connection.execute(count_persons(table("members")).sql("duckdb")).fetchone() == (len(people),)
        by_person = Counter(row[2] for row in rows)
        for count in (0, 1, 2, 9):
            query = sum_rows_of_largest_persons(table("members"), count)
            expected = sum(n for _, n in by_person.most_common(count))
            assert connection.execute(query.sql("duckdb")).fetchone() == (expected,)

        places = {who: {row[:2] for row in rows if row[2] == who} for who in people}
        moving = dict(materialize("moving", number_movers(table("members"))))
        assert moving.keys() == {who for who in people if len(places[who]) > 1}
        assert sorted(moving.values()) == [*range(1, len(moving) + 1)]

        plain = materialize("plain", person_combinations(table("members"), None, 2))
        keys = {row[:2] for row in rows}
        assert {row[:2]: row[2:] for row in plain} == {
            key: (sum(row[:2] == key for row in rows), len({row[2] for row in rows if row[:2] == key})) for key in keys
        }

        combinations = materialize("found", person_combinations(table("members"), table("moving"), 2))
        expected_rows: Counter[Row] = Counter()
        settled: dict[Row, set[Any]] = {}
        for row in rows:
            key = (*row[:2], moving.get(row[2]))
            expected_rows[key] += 1
            settled.setdefault(key, set()).update([] if row[2] in moving else [row[2]])
        assert {row[:3]: row[3:] for row in combinations} == {
            key: (n, len(settled[key])) for key, n in expected_rows.items()
        }
        # Whatever classes are merged, settled persons and distinct movers are their persons.
        for merged in ({"1", "2"}, {None, "1"}):
            some = [row for row in combinations if row[0] in merged]
            persons = sum(row[4] for row in some) + len({row[2] for row in some} - {None})
            assert persons == len({row[2] for row in rows if row[0] in merged})


@pytest.mark.parametrize(
    ("limit", "rows", "persons", "holds"),
    [
        (SuppressionLimit(5), 5, None, True),
        (SuppressionLimit(5), 6, None, False),
        (SuppressionLimit(0), 0, None, True),
        (SuppressionLimit(5, 2, 20), 5, 2, True),
        (SuppressionLimit(5, 2, 20), 5, 3, False),
        (SuppressionLimit(5, 2, 20), 6, 2, False),
        (SuppressionLimit(5, 0, 20), 0, None, True),
    ],
)
def test_as_many_rows_and_persons_are_suppressed_as_the_limit_allows(
    limit: SuppressionLimit, rows: int, persons: int | None, holds: bool
) -> None:
    assert limit.allows(rows, persons) is holds


@pytest.mark.parametrize(
    ("limit", "count", "allowed"),
    [("0.29", 100, 29), ("0.29", 99, 28), ("1", 7, 7), ("0", 7, 0), ("0.3333", 3, 0), ("0.07", 100, 7)],
)
def test_the_limit_is_exact(limit: str, count: int, allowed: int) -> None:
    assert floor_share(Decimal(limit), count) == allowed


def test_the_least_limit_that_allows_it_has_four_digits() -> None:
    for suppressed, rows in ((1, 3), (29, 100), (0, 5), (5, 5), (1, 20_000)):
        share = SuppressionLimit(0).share(suppressed, rows, None)
        assert floor_share(Decimal(repr(share)), rows) >= suppressed
        assert suppressed == 0 or floor_share(Decimal(repr(share)) - Decimal("0.0001"), rows) < suppressed
    assert SuppressionLimit(9, 1, 20).share(12, 100, 3) == 0.15


@pytest.mark.parametrize(
    ("bits", "words"), [([63], 1), ([62, 1], 1), ([62, 2], 2), ([31, 32], 1), ([31, 33], 2), ([60, 10, 3], 2), ([], 1)]
)
def test_numbers_share_words_of_63_bits(bits: list[int], words: int) -> None:
    """No two share a bit, and all values come back."""
    packing = assign_words([2**n - 1 for n in bits])
    assert packing.words == words
    places = [(word, bit) for word, first, n in packing.places for bit in range(first, first + n)]
    assert len(places) == len(set(places)) == sum(bits)
    assert max((bit for _, bit in places), default=0) < 63
    for i, (word, first, n) in enumerate(packing.places):
        masks = packing.masks([i])
        assert masks[word] == (2**n - 1) << first and sum(masks) == masks[word]


def test_the_bits_of_a_number_hold_its_highest_value() -> None:
    assert [assign_words([most]).places[0][2] for most in (0, 1, 2, 3, 4, 7, 8)] == [1, 1, 2, 2, 3, 3, 4]


def test_values_of_a_single_row_are_packed_as_0() -> None:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE source AS SELECT unnest(['a', 'b', 'b', 'c', 'c', 'c', NULL]) AS v")
        runner = StatementRunner(DuckDBEngine(connection))
        packed = pack_combinations(runner, table, table("source"), ["v"], singles_apart=True)
        codes = dict(connection.execute(f"FROM {packed.numbers[0].name}").fetchall())
    assert {value for value, code in codes.items() if code == 0} == {"a", None}
    assert len({codes["b"], codes["c"]}) == 2


def test_sets_of_attributes_are_refused_beyond_their_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four attributes have four sets of one attribute and six of two."""
    monkeypatch.setattr(packing, "_MAX_SUBSETS", 10)
    refuse_too_many(4, 2, "size")
    monkeypatch.setattr(packing, "_MAX_SUBSETS", 9)
    with pytest.raises(sqlanon.PolicyError, match="there are 10 sets of up to 2 of 4 attributes"):
        refuse_too_many(4, 2, "size")


def test_a_sample_may_be_the_whole_population() -> None:
    attributes = {"zip": {"role": "quasi", "hierarchy": "suppress"}}
    policy = sqlanon.Policy(attributes=attributes, privacy={"k": 2}, risk={"population": 10})
    assert population_size(policy, 10) == 10
    with pytest.raises(sqlanon.SourceError, match="is 10, but the source alone has 11"):
        population_size(policy, 11)


def test_null_is_a_sensitive_value_of_rows_without_codes() -> None:
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE pairs AS "
            "FROM (VALUES (1, 'a', 2), (1, NULL, 3), (2, NULL, 1)) AS t(quasi_0, value, row_count)"
        )
        connection.execute(
            "CREATE TABLE numbers AS FROM (VALUES ('a', 1, 0.3), (NULL, 0, 0.7)) AS t(value, value_code, share)"
        )
        counts = uncoded_distribution(select_star(table("pairs")), table("numbers"), 1, 0)
        rows = connection.execute(select_star(counts).sql("duckdb")).fetchall()
    assert sorted((place, value, n) for place, value, _, n in rows) == [(1, 0, 3), (1, 1, 2), (2, 0, 1)]


def test_sensitive_values_beyond_an_open_end_stay_distinct() -> None:
    """An open end merges labels of a release, and sensitive values are released unchanged: 95 and 99 are a quarter
    apart, in a hierarchy of two levels."""
    rows = pa.table({"zip": list("aaaabbbb"), "age": [95] * 4 + [99] * 4})
    attributes = {
        "zip": {"role": "quasi", "hierarchy": "suppress"},
        "age": {"role": "sensitive", "hierarchy": {"intervals": [10], "above": 90}},
    }
    close = {"attribute": "age", "distance": "hierarchical"}
    with sqlanon.connect(rows) as database:
        for t, level in ((0.24, 1), (0.26, 0)):
            privacy = {"k": 2, "t_closeness": [{**close, "t": t}]}
            result = database.anonymize(sqlanon.Policy(source={"table": "t"}, attributes=attributes, privacy=privacy))
            assert result.generalization == {"zip": level}
