"""Random small databases of linked tables: one to three child tables, grandchildren, NULLs, persons without child rows,
equal rows."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from oracles.oracle import Hierarchy, Value
from oracles.oracle_linked import Known, LinkedDatabase, LinkedTable, Row
from support.databases import insert


@dataclass(frozen=True)
class LinkedCase:
    """A database with the parameters of its policy."""

    database: LinkedDatabase
    k: int
    known: Known
    suppression_limit: str
    weights: tuple[float, ...]

    @property
    def allowed_persons(self) -> int:
        """The most persons who may be suppressed."""
        return round(float(self.suppression_limit) * 100) * len(self.database.everything.persons) // 100

    def policy(self, **sections: Any) -> dict[str, Any]:
        """The sections of the policy."""
        tables, weights = [], iter(self.weights)
        for t, table in enumerate(self.database.tables):
            attributes: dict[str, Any] = {f"id_{t}": {"role": "key"}}
            keys: dict[str, Any] = {"person": [f"id_{t}"]} if t == 0 else {"key": [f"id_{t}"]}
            if table.parent is not None:
                attributes[f"parent_{t}"] = {"role": "key"}
                keys["references"] = {f"parent_{t}": self.database.tables[table.parent].name}
            for i, name in enumerate(table.names):
                rule = {"table": f"hierarchy_{t}_{i}"}
                attributes[name] = {"role": "quasi", "hierarchy": rule, "weight": next(weights)}
            tables.append({"name": table.name, **keys, "attributes": attributes})
        return {
            "table": tables,
            "privacy": {"k": self.k, "known": self.known},
            "search": {"suppression_limit": float(self.suppression_limit)},
            **sections,
        }

    def fill(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Create the tables and the tables of their hierarchies. Keys are numbers from 100."""
        for t, table in enumerate(self.database.tables):
            columns = [f"id_{t} INTEGER", *([f"parent_{t} INTEGER"] if table.parent is not None else [])]
            columns += [f'"{name}" VARCHAR' for name in table.names]
            connection.execute(f"CREATE TABLE {table.name} ({', '.join(columns)})")
            rows = []
            for row in table.rows:
                parent = [] if row.parent is None else [row.parent + 100]
                rows.append([row.number + 100, *parent, *row.values])
            insert(connection, table.name, rows)
            for i, hierarchy in enumerate(table.hierarchies):
                levels = ", ".join(f"level_{level} VARCHAR" for level in range(hierarchy.height + 1))
                connection.execute(f"CREATE TABLE hierarchy_{t}_{i} ({levels})")
                insert(connection, f"hierarchy_{t}_{i}", hierarchy.paths.values())


def make_linked_case(number: int) -> LinkedCase:
    """The case of a number."""
    draw = random.Random(number)
    tables: list[LinkedTable] = []
    shape = draw.choice([[None, 0], [None, 0, 0], [None, 0, 1], [None, 0, 1, 0], [None, 0, 0, 2], [None, 0, 1, 2]])
    persons = draw.choice([3, 4, 6, 8])
    for t, parent in enumerate(shape):
        count = draw.choice([0, 1, 1, 2]) if t else draw.choice([0, 1, 2])
        if t == len(shape) - 1 and not count and not any(table.names for table in tables):
            count = 1
        hierarchies = tuple(_draw_hierarchy(draw) for _ in range(count))
        size = persons if t == 0 else draw.choice([1, 2, 3]) * len(tables[parent or 0].rows)
        parents = range(len(tables[parent].rows)) if parent is not None else ()
        rows: list[Row] = []
        for n in range(size):
            if rows and draw.random() < 0.3 and t:  # an equal row, often of another person
                values = draw.choice(rows).values
            else:
                values = tuple(_draw_value(draw, hierarchy) for hierarchy in hierarchies)
            if t and not parents:
                break
            rows.append(Row(n, draw.choice(parents) if t else None, values))
        tables.append(LinkedTable(f"t{t}", parent, tuple(f"q{t}_{i}" for i in range(count)), hierarchies, tuple(rows)))
    count = sum(len(table.names) for table in tables)
    weights = tuple(draw.choice([1.0, 1.0, 2.0, 0.5]) for _ in range(count))
    known: Known = draw.choice([1, 2, 2, 3, "all"])
    return LinkedCase(
        LinkedDatabase(tuple(tables)), draw.choice([2, 2, 3]), known, draw.choice(["0", "0.2", "0.34", "0.5"]), weights
    )


def small_cases(most_generalizations: int, number: int, first: int = 0) -> list[LinkedCase]:
    """The first cases, from a number on, with few generalizations."""
    cases = map(make_linked_case, itertools.count(first))
    small = (case for case in cases if math.prod(h + 1 for h in case.database.heights) <= most_generalizations)
    return list(itertools.islice(small, number))


def _draw_hierarchy(draw: random.Random) -> Hierarchy:
    values = [f"v{i}" for i in range(draw.choice([2, 2, 3, 4]))]
    if draw.random() < 0.5 or len(values) < 3:
        return Hierarchy({value: (value, "*") for value in values})
    groups = {value: f"g{i // 2}" for i, value in enumerate(values)}
    return Hierarchy({value: (value, groups[value], "*") for value in values})


def _draw_value(draw: random.Random, hierarchy: Hierarchy) -> Value:
    values: Sequence[Value] = [*hierarchy.paths, *([None] if draw.random() < 0.3 else [])]
    return draw.choice(values)
