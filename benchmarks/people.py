"""A seeded table of people, of any size, made inside DuckDB: 8 quasi-identifiers of mixed cardinality.

    python benchmarks/people.py people.duckdb 10000000 [--seed N] [--memory-limit 1GB]

Skewed as people are: few live to be old, a few ZIP codes hold many and most hold few, most are of one country. Children
are single and have no degree, those born abroad live in the large ZIP codes more than others. Every cell is a function
of (seed, row number, column): the same with any number of threads. The rows are made as they are written: memory does
not grow with them.

The database has the table ``people`` and, for the policy, ``countries``: the hierarchy of the countries.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import duckdb

QUASI = ("sex", "birth", "race", "marital", "education", "country", "work", "zip")
RELEASED = (*QUASI, "diagnosis", "cost")

ZIPS = 30_000
DAYS = 30_000
HOLDS = "'2026-01-01'::DATE"

# Cumulative shares: a value is the first whose share is above a uniform number.
RACES = {"white": 0.72, "black": 0.85, "asian": 0.93, "other": 0.98, "native": 1.0}
COUNTRIES = {f"c{i:02d}": 1 - 0.12 * (1 - (i + 1) / 41) ** 2.5 for i in range(41)}
WORKS = {"private": 0.62, "self": 0.72, "public": 0.80, "none": 0.90, "federal": 0.94, "state": 0.98, "unpaid": 1.0}
DIAGNOSES = {f"d{i:02d}": 1 - (1 - (i + 1) / 100) ** 2 for i in range(100)}
# Of these two the end is reached with the years only: at 60 and at 30.
MARITAL = {
    "single": 0.35, "civil": 0.39, "married": 0.78, "absent": 0.80, "separated": 0.83, "divorced": 0.93, "widowed": 1.0,
}  # fmt: skip
EDUCATIONS = {
    "none": 0.02, "preschool": 0.06, "grade-1-4": 0.12, "grade-5-6": 0.17, "grade-7-8": 0.22, "grade-9": 0.25,
    "grade-10": 0.28, "grade-11": 0.31, "grade-12": 0.34, "high-school": 0.60, "some-college": 0.75,
    "vocational": 0.80, "academic": 0.84, "bachelor": 0.94, "master": 0.985, "doctorate": 1.0,
}  # fmt: skip

EDUCATION_CATEGORIES = {
    "basic": {
        "no-school": ["none", "preschool"],
        "primary": ["grade-1-4", "grade-5-6", "grade-7-8"],
        "secondary": ["grade-9", "grade-10", "grade-11", "grade-12"],
    },
    "higher": {
        "finished-school": ["high-school", "some-college"],
        "associate": ["vocational", "academic"],
        "degree": ["bachelor", "master", "doctorate"],
    },
}
MARITAL_CATEGORIES = {
    "couple": ["civil", "married"],
    "parted": ["absent", "separated", "divorced", "widowed"],
    "alone": ["single"],
}
WORK_CATEGORIES = {
    "employer": ["private", "self"],
    "state": ["public", "federal", "state"],
    "unemployed": ["none", "unpaid"],
}
COUNTRY_CATEGORIES = {
    "near": {"region 0": [f"c{i:02d}" for i in range(8)]},
    "far": {
        f"region {region}": [f"c{i:02d}" for i in range(8 * region, min(8 * region + 8, 41))] for region in range(1, 6)
    },
}
"""`COUNTRIES_QUERY` as categories."""


def people_query(rows: int, seed: int = 1, first: int = 0) -> str:
    """Some rows from number ``first`` on: sex, birth, race, marital, education, country, work, zip (quasi), diagnosis
    (sensitive), cost."""
    u = {
        name: _uniform(name, seed)
        for name in ("sex", "age", "race", "marital", "education", "country", "work", "zip", "diagnosis", "cost")
    }
    return f"""
SELECT
    CASE WHEN {u["sex"]} < 0.51 THEN 'female' ELSE 'male' END AS sex,
    {HOLDS} - days - 1 AS birth,
    {_pick(RACES, u["race"])} AS race,
    {_pick(MARITAL, f"{u['marital']} * least(1, days / {60 * 365})")} AS marital,
    {_pick(EDUCATIONS, f"{u['education']} * least(1, days / {30 * 365})")} AS education,
    country,
    {_pick(WORKS, u["work"])} AS work,
    -- The n-th largest ZIP code is not the n-th number.
    lpad((501 + 3 * ((7919 * floor({ZIPS} * pow({u["zip"]}, CASE WHEN country = 'c00' THEN 1.8 ELSE 3 END))::INTEGER)
        % {ZIPS}))::VARCHAR, 5, '0') AS zip,
    {_pick(DIAGNOSES, u["diagnosis"])} AS diagnosis,
    round(10000 * pow({u["cost"]}, 4), 2)::DECIMAL(9, 2) AS cost
FROM (
    SELECT i, floor({DAYS} * pow({u["age"]}, 1.25))::INTEGER AS days, {_pick(COUNTRIES, u["country"])} AS country
    FROM range({first}, {first + rows}) AS r(i)
)
"""


def _uniform(column: str, seed: int) -> str:
    """A uniform number in [0, 1) for a row and a column."""
    return f"((hash(i, '{column}', {seed}) >> 11)::DOUBLE / 9007199254740992.0)"


def _pick(shares: dict[str, float], number: str) -> str:
    """A value by its share: a lookup in 1,000 steps of a list."""
    steps = 1000
    table = [next(value for value in shares if (step + 0.5) / steps < shares[value]) for step in range(steps)]
    text = ", ".join(f"'{value}'" for value in table)
    return f"[{text}][1 + floor({steps} * {number})::INTEGER]"


COUNTRIES_QUERY = """
SELECT 'c' || lpad(i::VARCHAR, 2, '0') AS country, 'region ' || i // 8 AS region,
    CASE WHEN i < 8 THEN 'near' ELSE 'far' END AS distance, '*' AS everywhere
FROM range(41) AS r(i)
"""


def make_people(path: Path, rows: int, seed: int = 1, memory_limit: str = "1GB") -> None:
    """Write the tables ``people`` and ``countries`` to a DuckDB file."""
    with duckdb.connect(
        str(path), config={"memory_limit": memory_limit, "preserve_insertion_order": False}
    ) as database:
        database.execute(f"CREATE OR REPLACE TABLE people AS {people_query(rows, seed)}")
        database.execute(f"CREATE OR REPLACE TABLE countries AS {COUNTRIES_QUERY}")


def people_policy(database: Path | None, release: Path | None, k: int = 5, limit: float = 0.05) -> dict[str, Any]:
    """The policy for the table, as a tree: 8 quasi-identifiers, `loss`.

    Parameters
    ----------
    database:
        The file; None for a live connection.
    release:
        A DuckDB file; None where nothing is published.
    """
    hierarchies: dict[str, Any] = {
        "sex": "suppress",
        "birth": {"dates": ["month", "year", "decade"]},
        "race": "suppress",
        "marital": {"categories": MARITAL_CATEGORIES},
        "education": {"categories": EDUCATION_CATEGORIES},
        "country": {"table": "countries"},
        "work": {"categories": WORK_CATEGORIES},
        "zip": {"mask": "right"},
    }
    tree: dict[str, Any] = {
        "source": {"table": "people"} | ({} if database is None else {"database": str(database)}),
        "attributes": {
            **{name: {"role": "quasi", "hierarchy": hierarchies[name]} for name in QUASI},
            "diagnosis": {"role": "sensitive"},
            "cost": {"role": "insensitive"},
        },
        "privacy": {"k": k},
        "search": {"suppression_limit": limit, "measure": "loss"},
    }
    return tree if release is None else {**tree, "release": {"database": str(release), "table": "people"}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("rows", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--memory-limit", default="1GB")
    arguments = parser.parse_args()
    started = time.perf_counter()
    make_people(arguments.path, arguments.rows, arguments.seed, arguments.memory_limit)
    print(f"{arguments.rows:,} people in {time.perf_counter() - started:.1f} s: {arguments.path}")


if __name__ == "__main__":
    main()
