"""Persons of a source on a server, which counts them for the audit: only counts leave it."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.audit.source_audit import RemotePersonCounts
from sqlanon.support.expressions import create_table, table
from support.policies import make_policy

KEYS = ("ward", "floor")
draw = random.Random(3)
ROWS = [(draw.choice("ab"), draw.randrange(2), f"p{i % 12}", draw.choice(["flu", "gout", None])) for i in range(60)]


@pytest.fixture(scope="module")
def counts() -> Iterator[RemotePersonCounts]:
    """The source's own engine takes the place of the server."""
    with duckdb.connect() as connection, sqlanon.connect(connection) as db:
        connection.execute("CREATE TABLE t (ward VARCHAR, floor INTEGER, person VARCHAR, ill VARCHAR)")
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", ROWS)
        attributes = {"ward": "suppress", "floor": "suppress", "ill": "sensitive"}
        draft = db.anonymize(make_policy(attributes, k=2, source={"table": "t", "person": "person"}))._draft
        assert draft.recoding.generalization == {"ward": 0, "floor": 0} and not draft.recoding.figures.suppressed_rows
        engine, source = draft.run.engine, draft.search_input.source
        with draft.rows(shuffled=False) as rows:
            engine.execute(create_table(table("released_rows", "main", "memory"), rows))
        server: Any = SimpleNamespace(engine=engine, relation=source.relation, open=list, close=list)
        remote_source = replace(source, persons=server)
        counts = RemotePersonCounts(engine, remote_source, draft.run.work, draft.statement, "person", "mark")
        yield counts
        counts.close()


def count_persons(places: Sequence[int]) -> set[tuple[Any, ...]]:
    """The persons of each combination of values."""
    persons = defaultdict(set)
    for row in ROWS:
        persons[tuple(row[place] for place in places)].add(row[2])
    return {(*values, len(ids)) for values, ids in persons.items()}


def read_counts(counts: RemotePersonCounts, relation: str, names: Sequence[str]) -> set[tuple[Any, ...]]:
    """The counted persons, whose numbers begin with 0."""
    columns = ", ".join(names)
    return {
        *counts._engine.connection.execute(
            f"SELECT {columns}, count(*) FROM {relation} GROUP BY {columns} HAVING max(person) = count(*) - 1"
        ).fetchall()
    }


def test_each_person_counts_once_in_a_class(counts: RemotePersonCounts) -> None:
    assert read_counts(counts, counts.release_relation(KEYS), KEYS) == count_persons((0, 1))
    assert read_counts(counts, counts.release_relation(["WARD"]), ["ward"]) == count_persons((0,))


def test_each_person_counts_once_for_a_sensitive_value(counts: RemotePersonCounts) -> None:
    assert read_counts(counts, counts.release_relation(KEYS, "ill"), [*KEYS, "ill"]) == count_persons((0, 1, 3))
    assert read_counts(counts, counts.source_relation("ill"), ["ill"]) == count_persons((3,))
    assert counts.count_source_persons() == 12


def test_persons_are_those_of_the_released_rows(counts: RemotePersonCounts, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, (change, is_same) in enumerate(
        {
            "FROM memory.main.released_rows": True,
            "FROM memory.main.released_rows UNION ALL (FROM memory.main.released_rows LIMIT 1)": False,
            "FROM memory.main.released_rows OFFSET 1": False,
            "SELECT * REPLACE (coalesce(ill, 'flu') AS ill) FROM memory.main.released_rows": False,
        }.items()
    ):
        monkeypatch.setattr(counts, "_mark", f"mark_{number}")  # names a table
        counts._engine.connection.execute(f"CREATE OR REPLACE TABLE memory.main.changed AS {change}")
        check = counts.check_rows("memory.main.changed", ["Ward", "floor", "ill"])
        assert (check.name, check.passed) == ("rows with persons", is_same), change
