"""Released rows as numbers: two persons have the same numbers where an attacker sees the same."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Hashable, Iterable
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.linked.release.released_numbers import ATTACHED, number_rows
from sqlanon.release.manifest import ReleasedColumn

PERSONS, VISITS, LABS = 24, 30, 20
TABLES = {"p": None, "v": "p", "l": "v"}
"""Persons, their visits and the tests of visits, each with its parent."""


def claims_of(name: str, parent: str | None) -> Any:
    columns = [ReleasedColumn("id", "BIGINT", "key"), ReleasedColumn("q", "VARCHAR", "quasi")]
    return SimpleNamespace(name=name, parent=parent, key=["id"], references=["up"] if parent else [], columns=columns)


def group_by(signatures: dict[int, Hashable]) -> set[frozenset[int]]:
    persons: dict[Hashable, set[int]] = defaultdict(set)
    for person, signature in signatures.items():
        persons[signature].add(person)
    return {frozenset(group) for group in persons.values()}


@pytest.mark.parametrize("known", ["all", 2])
def test_equal_persons_have_equal_numbers(known: Any) -> None:
    """If all rows are known, a visit includes its tests; otherwise each row is known by itself, with its visit."""
    draw, tables = random.Random(5), [claims_of(name, parent) for name, parent in TABLES.items()]
    rows: dict[str, list[tuple[int, int | None, str | None]]] = {
        "p": [(i, None, draw.choice("xy")) for i in range(PERSONS)],
        "v": [(100 + i, draw.randrange(PERSONS), draw.choice(["a", None])) for i in range(VISITS)],
        "l": [(500 + i, 100 + draw.randrange(VISITS), draw.choice("mmn")) for i in range(LABS)],
    }
    manifest: Any = SimpleNamespace(
        known=known,
        tables=tables,
        persons_table=tables[0],
        rows_table=lambda claims: claims.name,
        parent_of=lambda claims: next((table for table in tables if table.name == claims.parent), None),
    )
    with closing(DuckDBEngine(duckdb.connect())) as engine:
        engine.connection.execute(f"ATTACH ':memory:' AS {ATTACHED}")
        for name, values in rows.items():
            engine.connection.execute(f"CREATE TABLE {ATTACHED}.main.{name} (id BIGINT, up BIGINT, q VARCHAR)")
            engine.connection.executemany(f"INSERT INTO {ATTACHED}.main.{name} VALUES (?, ?, ?)", values)
        with number_rows(engine, manifest) as numbered:
            query = f"SELECT person, class, known_row FROM {numbered.sql('duckdb')}"
            numbers = engine.connection.execute(query).fetchall()

    def describe(values: Iterable[Hashable]) -> Hashable:
        return tuple(sorted(values, key=repr))

    def labs_of(visit: int) -> list[str | None]:
        return [q for _, up, q in rows["l"] if up == visit]

    signatures: dict[int, Hashable] = {}
    for person, _, class_ in rows["p"]:
        visits = [(visit, q) for visit, up, q in rows["v"] if up == person]
        seen: list[Hashable] = [(q, describe(labs_of(visit))) for visit, q in visits]
        if known != "all":
            seen = [*(q for _, q in visits), *((q, lab) for visit, q in visits for lab in labs_of(visit))]
        signatures[person] = class_, describe(seen)
    by_number: dict[int, list[Hashable]] = {person: [] for person, *_ in rows["p"]}
    classes = {person: class_ for person, class_, _ in numbers}
    for person, _, known_row in numbers:
        by_number[person] += [] if known_row is None else [known_row]
    assert group_by({person: (classes[person], describe(found)) for person, found in by_number.items()}) == group_by(
        signatures
    )
