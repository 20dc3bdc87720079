"""Two spellings that PostgreSQL takes for equal are one person: never are more persons counted than there are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import sqlanon
from support.servers.postgres import VARIABLE, Server

SPELLINGS = {
    "citext": ["citext", "p{i}", "P{i}", "p{i}"],
    "character(8)": ["character(8)", "p{i}", "p{i}  ", "p{i}      "],
    "a collation without case": ['text COLLATE spelled."no_case"', "p{i}", "P{i}", "p{i}"],
    "padded text": ["text", "p{i}", " p{i}", "p{i} "],
    "an enum with padded labels": ["spelled.label", "p{i}", " p{i}", "p{i}\t"],
    "numeric": ["numeric", "{i}", "{i}.0", "{i}.000"],
}


@pytest.fixture
def spelled_server(postgres: Server) -> Iterator[Server]:
    drop = ("DROP SCHEMA IF EXISTS spelled CASCADE", "DROP EXTENSION IF EXISTS citext")
    postgres.run(*drop, "CREATE SCHEMA spelled", "CREATE EXTENSION citext")
    postgres.run("CREATE COLLATION spelled.no_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
    labels = ", ".join(f"'p{i}', ' p{i}', 'p{i}\t'" for i in range(12))
    postgres.run(f"CREATE TYPE spelled.label AS ENUM ({labels})")
    yield postgres
    postgres.run(*drop)


@pytest.mark.cases(1)
@pytest.mark.parametrize("which", SPELLINGS)
def test_spellings_of_a_person_are_one_person(spelled_server: Server, which: str) -> None:
    kind, *texts = SPELLINGS[which]
    rows = ", ".join(f"({i % 6}, '{spelling.format(i=i)}')" for i in range(12) for spelling in texts)
    plain = kind.partition(" COLLATE")[0]
    spelled_server.run(
        f"CREATE TABLE spelled.visits (ward bigint, pid {kind})",
        f"INSERT INTO spelled.visits SELECT ward, CAST(pid AS {plain}) FROM (VALUES {rows}) AS v(ward, pid)",
    )
    policy = sqlanon.Policy(
        source={"postgres": f"env:{VARIABLE}", "table": "spelled.visits", "person": "pid", "undeclared": "drop"},
        attributes={"ward": {"role": "quasi", "hierarchy": {"intervals": [2, 4]}}},
        privacy={"k": 4},
    )
    with sqlanon.connect() as db:
        result = db.anonymize(policy)
    # Each ward has two persons, of three rows each.
    assert (result.persons, result.generalization, result.smallest_class) == (12, {"ward": 1}, 4)
