"""Tables that have some people in common, in several kinds of sources."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import duckdb

import sqlanon

PEOPLE = 300


K = 4


IN_COMMON = r"the source has about \d+% of its people in common with that of this release, by the values of "


UUID = "0a1b2c3d-0000-4000-8000-00000000abcd"


TEXTS: list[tuple[str, dict[str, str], list[str]]] = [
    ("INTEGER", {"postgres": "integer", "spark": "int"}, ["7", "-7", "0"]),
    ("BIGINT", {"postgres": "bigint", "spark": "bigint"}, ["7", "9007199254740993", "-9223372036854775807"]),
    ("DOUBLE", {"postgres": "double precision", "spark": "double"}, ["7", "7.5", "-0.25", "999999999999999"]),
    ("DECIMAL(18,2)", {"postgres": "numeric(18,2)", "spark": "decimal(18,2)"}, ["7", "7.10", "-0.05", "100"]),
    ("DATE", {"postgres": "date", "spark": "date"}, ["'1980-01-02'"]),
    ("TIMESTAMP", {"postgres": "timestamp", "spark": "timestamp_ntz"}, ["'1980-01-02'", "'1980-01-02 10:00:00.5'"]),
    ("BOOLEAN", {"postgres": "boolean", "spark": "boolean"}, ["TRUE", "FALSE"]),
    (
        "VARCHAR",
        {"postgres": "text", "spark": "string"},
        [
            *("'7'", "' 007 '", "'+7'", "'7.0'", "'7.'", "'000'", "'-07'", "'7.50'", "'1e5'", "'AbC'", "'P-007'"),
            *("'ÄRGER'", "'1980-01-02 00:00:00'", "'1980-01-02T00:00:00.000'", "'2024-000123'", "''", "'a b'", "NULL"),
            *(f"'{UUID}'", f"'{UUID.upper()}'", f"'{{{UUID}}}'", f"'{UUID.replace('-', '')}'"),
        ],
    ),
]
"""Values, as literals, with their types in each engine."""


Person = tuple[Any, ...]


def make_people(seed: int = 1, people: int = PEOPLE, sparse: bool = False) -> list[Person]:
    """People with a number, at random or from 1 on: their age, ZIP code and sex, and the day when they came first."""
    chosen = random.Random(seed)
    numbers = chosen.sample(range(10**6, 10**9), people) if sparse else range(1, people + 1)
    return [
        (number, chosen.randint(20, 79), f"021{chosen.randrange(30):02}", chosen.choice("fm"), chosen.randrange(28))
        for number in numbers
    ]


def tables_of(people: list[Person], lab_people: list[Person] | None = None) -> dict[str, tuple[str, list[Person]]]:
    """Visits of people, and laboratory tests of the same people or of others, with the column that each measures.

    A person comes on one to three days, and has two tests a day: no two rows of both tables are one record.
    """
    tables = {}
    of_labs = people if lab_people is None else lab_people
    for name, measured, group, times in (("visits", "diagnosis", people, 1), ("labs", "test", of_labs, 2)):
        chosen = random.Random(name)
        rows = [
            (*person, f"2024-01-{1 + (first_day + day * 5) % 28:02}", f"{measured} {chosen.randrange(6)}")
            for *person, first_day in group
            for day in range(1 + first_day % 3)
            for _ in range(times)
        ]
        chosen.shuffle(rows)
        tables[name] = measured, rows
    return tables


def make_tables(folder: Path, people: list[Person], lab_people: list[Person] | None = None) -> None:
    """The tables of a clinic, in a database and as files."""
    with duckdb.connect(str(folder / "clinic.duckdb")) as connection:
        for name, (measured, rows) in tables_of(people, lab_people).items():
            columns = f"mrn BIGINT, age INTEGER, zip TEXT, sex TEXT, day DATE, {measured} TEXT"
            connection.execute(f"CREATE TABLE {name} ({columns})")
            connection.execute(f"INSERT INTO {name} VALUES {str(rows)[1:-1]}")
            for ending in ("csv", "parquet"):
                connection.execute(f"COPY {name} TO '{folder / f'{name}.{ending}'}'")


def policy_of(
    folder: Path, name: str, source: dict[str, Any], person: str | bool = "mrn", day: bool = True, **more: Any
) -> sqlanon.Policy:
    """Visits have fine ages, and laboratory tests fine ZIP codes; both show the day."""
    attributes: dict[str, Any] = {
        "age": {"role": "quasi", "hierarchy": {"intervals": [10, 20]}},
        "zip": {"role": "quasi", "hierarchy": {"mask": "right"}},
        "sex": {"role": "quasi", "hierarchy": "suppress"},
        "diagnosis" if name == "visits" else "test": {"role": "sensitive"},
    }
    attributes["age" if name == "visits" else "zip"] |= {"max_level": 1} if day else {}
    attributes |= {"day": {"role": "insensitive"}} if day else {}
    return sqlanon.Policy(
        source={"undeclared": "drop", "person": person, **source},
        attributes=attributes,
        privacy={"k": K},
        search={"suppression_limit": 0.5},
        release={"database": folder / f"{name}_release.duckdb", "table": name, **more},
        catalog={"database": folder / "catalog.duckdb"},
    )


def publish(policy: sqlanon.Policy) -> sqlanon.Result:
    with sqlanon.connect() as db:
        result = db.anonymize(policy)
        result.publish()
    return result


def in_duckdb(folder: Path, table: str) -> dict[str, Any]:
    return {"database": folder / "clinic.duckdb", "table": table}


def in_csv(folder: Path, table: str) -> dict[str, Any]:
    return {"files": str(folder / f"{table}.csv")}


def in_parquet(folder: Path, table: str) -> dict[str, Any]:
    return {"files": str(folder / f"{table}.parquet")}


def of_labs(folder: Path, columns: str = "*", rows: str = "TRUE") -> dict[str, Any]:
    return {"database": folder / "clinic.duckdb", "query": f"SELECT {columns} FROM labs WHERE {rows}"}
