"""Samples of people, and what two of them share, against plain Python on random small tables."""

from __future__ import annotations

from collections import defaultdict
from hashlib import md5, sha256
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sqlanon
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.ledger import people_samples
from sqlanon.ledger.people_samples import PeopleSample, SourcePeople
from sqlanon.ledger.same_people import count_shared_people
from sqlanon.sources.persons import MIN_PERSONS
from sqlanon.sources.source import Source
from sqlanon.support.expressions import table
from support.databases import shared_database
from support.lanes import examples

Row = tuple[int | None, int | None, str | None]

MOST = 12
SECRETS = ("one", "two")

tables = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(1, 60)),
        st.one_of(st.none(), st.integers(0, 3)),
        st.one_of(st.none(), st.sampled_from(["a", " A", "b", "07", "7"])),
    ),
    min_size=1,
    max_size=90,
)


def hash_of(text: str, secret: str) -> int:
    key = sha256(f"{secret}:source people".encode()).hexdigest()
    return int(md5(f"{key}:{text}".encode()).hexdigest()[16:], 16)


def text_of(value: int | str) -> str:
    word = str(value).strip().lower()
    return str(int(word)) if word.isdigit() else word


def sample_people(rows: list[Row], secret: str) -> tuple[int, dict[int, tuple[int | None, ...]]]:
    """The number of people, and for those with the least hashes, the least hash of each other column."""
    by_person = defaultdict(list)
    for key, *values in rows:
        if key is not None:
            by_person[hash_of(text_of(key), secret)].append(values)
    least = {}
    for person in sorted(by_person)[:MOST]:
        columns = [
            [hash_of(text_of(value), secret) for value in column if value is not None]
            for column in zip(*by_person[person], strict=True)
        ]
        least[person] = tuple(min(hashes, default=None) for hashes in columns)
    return len(by_person), least


def shared_people(sample: tuple[int, dict[int, Any]], other_sample: tuple[int, dict[int, Any]]) -> tuple[int, int]:
    """The people of the smaller sample that either could have, and those that both have."""
    reach = min(max(sample) if people > len(sample) else 2**64 for people, sample in (sample, other_sample))
    first, second = ({person for person in sample if person <= reach} for _, sample in (sample, other_sample))
    return min(len(first), len(second)), len(first & second)


def people_of(connection: duckdb.DuckDBPyConnection, rows: list[Row], name: str) -> SourcePeople:
    connection.execute(f"CREATE OR REPLACE TABLE {name} (mrn INTEGER, age INTEGER, word TEXT)")
    connection.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", rows)
    engine = DuckDBEngine(connection)
    source = Source(table(name), engine.columns(table(name)))
    run: Any = SimpleNamespace(engine=engine, work=lambda work: table(f"{name} {work}"), copies=None, source=source)
    policy = sqlanon.Policy(
        source={"database": "any.duckdb", "table": name, "person": "mrn"},
        attributes={"age": {"role": "quasi", "hierarchy": "suppress"}, "word": {"role": "sensitive"}},
        privacy={"k": 2},
    )
    return SourcePeople(run, policy)


@pytest.mark.thorough
@settings(max_examples=examples(60))
@given(tables, tables, st.sampled_from(SECRETS))
def test_samples_and_their_intersection_match_plain_python(first: list[Row], second: list[Row], secret: str) -> None:
    with duckdb.connect() as connection, pytest.MonkeyPatch.context() as patch:
        patch.setattr(people_samples, "SAMPLED_PEOPLE", MOST)
        expected = [sample_people(rows, secret) for rows in (first, second)]
        samples = []
        for name, rows, (people, least) in zip(("t1", "t2"), (first, second), expected, strict=True):
            taken = people_of(connection, rows, name).samples(secret)
            if people < MIN_PERSONS:
                assert not taken
                return
            (sample,) = taken
            sampled_rows = connection.execute(f"SELECT person, hashes FROM {sample.table.sql('duckdb')}").fetchall()
            assert sample.people == people and {person: tuple(hashes) for person, hashes in sampled_rows} == least
            samples.append(sample)
        connection.execute(f"CREATE TABLE earlier AS {samples[0].rows_for('run').sql('duckdb')}")
        counts = count_shared_people(DuckDBEngine(connection), table("earlier"), samples[1])
        smaller, in_both = shared_people(*expected)
        assert [(count[0], count[1], *count[-2:]) for count in counts] == (
            [("run", "mrn", smaller, in_both)] if smaller else []
        )


def samples_of(query: str, roles: dict[str, str], **source: Any) -> dict[str, PeopleSample]:
    """The samples of a table, by the column that numbers people."""
    with shared_database() as connection:
        connection.execute(f"CREATE TABLE visits AS {query}")
        engine, relation = DuckDBEngine(connection), table("visits")
        run: Any = SimpleNamespace(
            engine=engine, work=table, copies=None, source=Source(relation, engine.columns(relation))
        )
        policy = sqlanon.Policy(
            source={"database": "any.duckdb", "table": "visits", "undeclared": "drop", **source},
            attributes={
                name: {"role": role, **({"hierarchy": "suppress"} if role == "quasi" else {})}
                for name, role in roles.items()
            },
            privacy={"k": 2},
        )
        return {sample.column: sample for sample in SourcePeople(run, policy).samples("secret")}


def test_rows_without_a_number_are_rows_of_nobody() -> None:
    """NULL, and texts that are empty; 7 and 07 are one person."""
    numbers = ["1", "2", "3", "4", "5", "7", "7", "07", *["", "  ", "none"] * 3]
    query = f"SELECT nullif(number, 'none') AS mrn, 1 AS age FROM (SELECT unnest({numbers!r}) AS number)"
    sample = samples_of(query, {"age": "quasi"}, person="mrn")["mrn"]
    assert (sample.people, sample.most_rows) == (6, 3)


@pytest.mark.parametrize(
    ("names", "figures"),
    [
        ({"person": "mrn"}, (True, True)),
        ({"person": "MRN"}, (True, True)),
        ({"person": False, "key": ["MRN"]}, (False, True)),
        ({"person": False}, (False, False)),  # it could be that of doctors
    ],
)
def test_a_policy_may_name_the_column_of_persons_in_any_case(names: Any, figures: tuple[bool, bool]) -> None:
    sample = samples_of("SELECT i % 9 AS Mrn, i % 7 AS age FROM range(90) AS r(i)", {"age": "quasi"}, **names)["Mrn"]
    assert (sample.is_person, sample.is_personal) == figures


@pytest.mark.parametrize(("rows", "is_personal"), [(40, True), (41, False)])
def test_a_column_with_two_rows_for_each_value_numbers_people(rows: int, is_personal: bool) -> None:
    query = f"SELECT 'p' || i % 20 AS who, i AS age FROM range({rows}) AS r(i)"
    sample = samples_of(query, {"who": "identifying", "age": "quasi"}, person=False)["who"]
    assert sample.is_personal is is_personal


@pytest.mark.parametrize(("varied", "is_personal"), [(1, True), (2, False)])
def test_people_have_one_value_of_a_quasi_identifier(varied: int, is_personal: bool) -> None:
    """Nine in ten of those with several rows; those with one row say nothing."""
    query = f"""
        SELECT 'd' || i % 10 AS who, if(i % 10 < {varied}, i, i % 10) AS age FROM range(100) AS r(i)
        UNION ALL
        SELECT 'one' || i, i FROM range(30) AS r(i)
    """
    sample = samples_of(query, {"who": "identifying", "age": "quasi"}, person=False)["who"]
    assert sample.is_personal is is_personal


@pytest.mark.parametrize(("varied", "is_personal"), [(1, True), (2, False)])
def test_people_have_one_value_of_half_of_the_quasi_identifiers(varied: int, is_personal: bool) -> None:
    """The sex has one value for each person; the other columns, one or two of them, have several."""
    varied_columns = [f"other_{i}" for i in range(varied)]
    query = f"""
        SELECT 'd' || i % 10 AS who, i % 2 AS sex, {", ".join(f"i // 10 AS {column}" for column in varied_columns)}
        FROM range(100) AS r(i)
    """
    sample = samples_of(
        query, {"who": "identifying", **dict.fromkeys(["sex", *varied_columns], "quasi")}, person=False
    )["who"]
    assert sample.is_personal is is_personal


@pytest.mark.parametrize(("names", "running"), [(8, 0.75), (9, None)])
def test_the_share_of_running_numbers_is_that_of_the_numbers(names: int, running: float | None) -> None:
    """Six of eight numbers have another within ten; names that are more than half have no share."""
    keys = ["20", "21", "25", "29", "114", "117", "200", "305", *(f"name {'abcdefghi'[i]}" for i in range(names))]
    query = f"SELECT unnest({keys!r}) AS who, 1 AS age"
    sample = samples_of(query, {"who": "identifying", "age": "quasi"}, person=False)["who"]
    assert sample.running == running


@pytest.mark.parametrize(("people", "keys"), [(MIN_PERSONS - 1, []), (MIN_PERSONS, ["who", "what"])])
def test_each_identifying_column_with_enough_values_is_sampled(people: int, keys: list[str]) -> None:
    """After it come all others, those that the policy declares first, in any case of letters."""
    query = f"SELECT i AS more, 'w' || i AS who, i AS AGE, 'x' || i AS what FROM range({people}) AS r(i)"
    samples = samples_of(query, {"who": "identifying", "age": "quasi", "what": "identifying"}, person="none")
    assert [*samples] == keys
    assert [sample.columns for sample in samples.values()] == (
        [("AGE", "what", "more"), ("who", "AGE", "more")] if keys else []
    )
