"""Tables of visits whose persons are in several combinations of quasi-identifiers, and what engines make of them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import duckdb

import sqlanon
from oracles.oracle_persons import generalize_rows, kept_classes, persons_by_class
from support.servers.postgres import Server

COLUMNS = {
    "pid": ("text", "VARCHAR"),
    "age": ("integer", "INTEGER"),
    "sex": ("text", "VARCHAR"),
    "zip": ("text", "VARCHAR"),
    "ward": ("text", "VARCHAR"),
    "illness": ("text", "VARCHAR"),
    "cost": ("integer", "INTEGER"),
}
"""The columns of a table of visits, with PostgreSQL's type and DuckDB's."""

PERSON, QUASI, ILLNESS = 0, (1, 2, 3), 5

ATTRIBUTES: Mapping[str, Any] = {
    "pid": {"role": "identifying"},
    "age": {"role": "quasi", "hierarchy": {"intervals": [5, 20]}},
    "sex": {"role": "quasi", "hierarchy": "suppress"},
    "zip": {"role": "quasi", "hierarchy": {"mask": "right"}},
    "ward": {"role": "sensitive"},
    "illness": {"role": "sensitive"},
    "cost": {"role": "insensitive"},
}

REQUIREMENTS: Sequence[Mapping[str, Any]] = (
    {"k": 3},
    {"k": 2, "l_diversity": [{"attribute": "illness", "kind": "distinct", "l": 2}]},
    {"k": 2, "l_diversity": [{"attribute": "illness", "kind": "entropy", "l": 1.5, "joint": True}]},
    {"k": 2, "t_closeness": [{"attribute": "illness", "distance": "equal", "t": 0.5}]},
    {"k": 2, "t_closeness": [{"attribute": "illness", "distance": "ordered", "t": 0.4}]},
    {"k": 2, "average_risk": 0.3},
)


def visits(seed: int, movers: float = 0.4) -> list[tuple[Any, ...]]:
    """20 to 200 rows of persons with 1 to 6 each, some without a person; with movers, some of the visits differ. Spaces
    around an id do not count.

    ``cost`` is the number of the row, by which a reader who knows all of the source finds it in a release.
    """
    dice = random.Random(seed)
    most, rows = dice.randint(20, 200), list[tuple[Any, ...]]()
    while len(rows) < most:
        person = None if dice.random() < 0.05 else f"p{dice.randint(0, 10**6)}"
        home = (dice.randint(20, 59), dice.choice("fm"), dice.choice(("10", "11", "20", "21", None)))
        for _ in range(dice.randint(1, 6)):
            age, sex, zip_ = home
            if dice.random() < movers:
                age, zip_ = age + dice.randint(0, 9), dice.choice(("10", "11", "20", "21"))
            ward, illness = dice.choice("AB"), dice.choice(("flu", "cold", "gout", None))
            padded = person if person is None or dice.random() < 0.7 else f" {person}  "
            rows.append((padded, age, sex, zip_, ward, illness, len(rows)))
    return rows[:most]


def strip_persons(rows: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """The same visits, as an oracle counts their persons."""
    return [(None if row[PERSON] is None else row[PERSON].strip(), *row[1:]) for row in rows]


def tree(seed: int, **sections: Any) -> dict[str, Any]:
    """A policy without its source and release; its requirement and limits follow from the seed."""
    search = {"suppression_limit": (0.0, 0.1, 0.3)[seed % 3], "measure": ("loss", "precision")[seed % 2]}
    privacy = {**REQUIREMENTS[seed % len(REQUIREMENTS)], "dependencies": "warn"}  # ``cost`` numbers the rows
    whole = {"attributes": dict(ATTRIBUTES), "privacy": privacy, "search": search, **sections}
    return {**whole, "privacy": {"dependencies": "warn", **whole["privacy"]}}


def in_duckdb(rows: Sequence[Sequence[Any]]) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    columns = ", ".join(f"{name} {kind}" for name, (_, kind) in COLUMNS.items())
    connection.execute(f"CREATE TABLE visits ({columns})")
    connection.executemany(f"INSERT INTO visits VALUES ({', '.join('?' * len(COLUMNS))})", [list(row) for row in rows])
    return connection


def in_postgres(server: Server, rows: Sequence[Sequence[Any]]) -> None:
    """Make the table ``visited.visits``."""
    server.run("DROP SCHEMA IF EXISTS visited CASCADE", "CREATE SCHEMA visited")
    server.load("visited.visits", {name: kind for name, (kind, _) in COLUMNS.items()}, rows)


def in_spark(session: Any, rows: Sequence[Sequence[Any]], folder: Path) -> None:
    """Make the view ``visits`` of the session."""
    file = folder / "visits.parquet"
    with in_duckdb(rows) as connection:
        connection.execute(f"COPY visits TO '{file}' (FORMAT parquet)")
    session.read.parquet(str(file)).createOrReplaceTempView("visits")


def outcome(db: sqlanon.Database, policy: sqlanon.Policy, file: Path) -> dict[str, Any]:
    """Result and release of a search, and its verification with the policy."""
    try:
        result = db.anonymize(policy)
    except sqlanon.InfeasibleError as error:
        return {"infeasible": str(error)}
    names = ("persons", "suppressed_persons", "released_persons")
    names += ("generalization", "score", "classes", "smallest_class", "suppressed_rows", "released_rows", "optimal")
    figures = {name: getattr(result, name) for name in names}
    # How many generalizations one statement checks depends on the engine, and so does how many are checked at all.
    release = result.publish(file, "visits")
    verification = db.verify(file, policy)
    assert verification.verified, verification.failures
    checks = sorted((check.name, check.passed, check.message) for check in verification.checks)
    return {**figures, "digest": release.manifest.digest, "checks": checks}


def released_rows(file: Path) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(file), read_only=True) as connection:
        names = ", ".join(name for name in COLUMNS if name != "pid")
        return connection.execute(f"SELECT {names} FROM visits").fetchall()


def labels_of(rows: Sequence[Sequence[Any]]) -> dict[int, dict[Any, list[Any]]]:
    """The labels of each value by column, worked out again: widths of 5 and 20 years, a sex, digits from the right."""
    width = max((len(row[3]) for row in rows if row[3] is not None), default=0)

    def interval(age: int, step: int) -> str:
        return f"from {age // step * step}"

    ages = {row[1]: [row[1], interval(row[1], 5), interval(row[1], 20), "*"] for row in rows}
    sexes = {row[2]: [row[2], "*"] for row in rows}
    zips = {
        row[3]: [None if row[3] is None else row[3][: width - j] + "*" * j for j in range(width)] + ["*"]
        for row in rows
    }
    return {1: ages, 2: sexes, 3: zips}


def feasible_by_oracle(rows: Sequence[Sequence[Any]], k: int, values: int) -> set[tuple[int, ...]]:
    """The generalizations all of whose classes have k persons and some number of sensitive values."""
    labels, feasible = labels_of(rows), set[tuple[int, ...]]()
    heights = {i: len(next(iter(paths.values()))) - 1 for i, paths in labels.items()}
    for levels in product(*(range(height + 1) for height in heights.values())):
        released = generalize_rows(rows, labels, dict(zip(heights, levels, strict=True)))
        if len(kept_classes(released, QUASI, PERSON, ILLNESS, k, values)) == len(
            persons_by_class(released, QUASI, PERSON)
        ):
            feasible.add(levels)
    return feasible


def fewest_persons(released: Sequence[Sequence[Any]], rows: Sequence[Sequence[Any]]) -> int:
    """The persons of the class of a release that has fewest, as a reader counts them who knows whose each row is."""
    names = [name for name in COLUMNS if name != "pid"]
    quasi, number = [names.index(name) for name in ("age", "sex", "zip")], names.index("cost")
    persons = [row[PERSON] for row in strip_persons(rows)]
    numbered = [(*row, persons[row[number]]) for row in released]
    return min(len(persons) for persons in persons_by_class(numbered, quasi, len(names)).values())
