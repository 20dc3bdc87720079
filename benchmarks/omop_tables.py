"""A seeded database in the shape of the OMOP common data model 5.4, of any size, made inside DuckDB.

    python benchmarks/omop_tables.py omop.duckdb 100000 [--seed N] [--tables NAME ...] [--files FOLDER]

Eight tables: person, observation_period, visit_occurrence, condition_occurrence, drug_exposure, measurement,
procedure_occurrence and death; about 18 rows for each person. Skewed as real ones: a few persons have hundreds of rows,
most have few, some have none; a few concepts are common and most are rare. A person's chronic diseases come back. Rows
of events name their visit, or none.

The vocabulary is invented: ``concept`` and ``concept_ancestor`` with a tree of conditions, of drugs (ingredients below
their classes, products below these), of measurements and of procedures. Every cell is a function of the seed, the
person and the number of the row.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import duckdb

TABLES = (
    *("person", "observation_period", "visit_occurrence", "condition_occurrence", "drug_exposure", "measurement"),
    *("procedure_occurrence", "death"),
)

_FIRST_DAY, _DAYS = "DATE '2020-01-01'", 1826

# The vocabulary: by domain, its first concept, and the number of children at each level of its tree.
_TREES = {
    "Condition": (1_000_000, (9, 6, 12)),
    "Drug": (2_000_000, (8, 5, 10, 3)),
    "Measurement": (3_000_000, (5, 8, 6)),
    "Procedure": (4_000_000, (7, 6, 10)),
}
_CLASSES = {
    "Condition": ("Disorder", "Disorder", "Disorder"),
    "Drug": ("ATC 1st", "ATC 3rd", "Ingredient", "Clinical Drug"),
    "Measurement": ("LOINC Hierarchy", "LOINC Hierarchy", "Lab Test"),
    "Procedure": ("Procedure", "Procedure", "Procedure"),
}

# By table: the domain, the columns, the mean and the greatest number of rows of a person.
_EVENTS = {
    "condition_occurrence": ("Condition", "condition", "condition_start_date", 1.6, 150),
    "drug_exposure": ("Drug", "drug", "drug_exposure_start_date", 2.0, 200),
    "measurement": ("Measurement", "measurement", "measurement_date", 4.0, 500),
    "procedure_occurrence": ("Procedure", "procedure", "procedure_date", 0.9, 100),
}
_ENDS = {"condition_occurrence": "condition_end_date", "drug_exposure": "drug_exposure_end_date"}


def _uniform(column: str, seed: int, *keys: str) -> str:
    """A uniform number in [0, 1) for a row and a column."""
    return f"((hash({', '.join(keys)}, '{column}', {seed}) >> 11)::DOUBLE / 9007199254740992.0)"


def _pick(values: list[tuple[str, float]], number: str) -> str:
    """A value by its cumulative share."""
    *cases, (last, _) = values
    return f"CASE {' '.join(f'WHEN {number} < {share} THEN {value}' for value, share in cases)} ELSE {last} END"


def person_query(persons: int, seed: int) -> str:
    """The persons."""
    u = {name: _uniform(name, seed, "i") for name in ("sex", "age", "day", "race", "place", "number", "origin")}
    return f"""
        SELECT
            (1000 + 7 * i)::INTEGER AS person_id,
            {_pick([("8532", 0.53), ("8507", 1)], u["sex"])} AS gender_concept_id,
            (2024 - floor(100 * pow({u["age"]}, 1.25)))::INTEGER AS year_of_birth,
            (1 + floor(12 * {u["day"]}))::INTEGER AS month_of_birth,
            NULL::INTEGER AS day_of_birth,
            NULL::TIMESTAMP AS birth_datetime,
            {_pick([("8527", 0.74), ("8516", 0.87), ("8515", 0.94), ("0", 1)], u["race"])} AS race_concept_id,
            {_pick([("38003564", 0.86), ("38003563", 1)], u["origin"])} AS ethnicity_concept_id,
            floor(400 * pow({u["place"]}, 2))::INTEGER AS location_id,
            floor(200 * {u["place"]})::INTEGER AS provider_id,
            NULL::INTEGER AS care_site_id,
            'MRN-' || lpad((hash(i, {seed}) % 100000000)::VARCHAR, 8, '0') AS person_source_value
        FROM range({persons}) AS r(i)
    """


def history_query(seed: int) -> str:
    """A private table of how much is recorded about each person: many have little, a few have hundreds of rows."""
    return f"""
        SELECT
            person_id,
            pow(1 - {_uniform("frail", seed, "person_id")}, -0.55) - 0.9 AS frailty,
            floor(600 * {_uniform("start", seed, "person_id")})::INTEGER AS first_day,
            {_DAYS} - floor(300 * pow({_uniform("end", seed, "person_id")}, 4))::INTEGER AS last_day
        FROM person
    """


def visit_query(seed: int) -> str:
    """The visits: at least one of each person with any frailty, at most 120."""
    day = f"first_day + floor((last_day - first_day) * {_uniform('visit day', seed, 'person_id', 'j')})::INTEGER"
    kind = _pick([("9202", 0.78), ("9203", 0.9), ("9201", 1)], _uniform("visit", seed, "person_id", "j"))
    return f"""
        SELECT
            row_number() OVER (ORDER BY person_id, j)::INTEGER AS visit_occurrence_id,
            person_id,
            kind::INTEGER AS visit_concept_id,
            day AS visit_start_date,
            day + CASE WHEN kind = 9201 THEN (hash(person_id, j) % 9)::INTEGER ELSE 0 END AS visit_end_date,
            32817 AS visit_type_concept_id,
            (hash(person_id, j, {seed}) % 200)::INTEGER AS provider_id,
            'V' || (hash(j, person_id, {seed}) % 1000000000) AS visit_source_value,
            j
        FROM (
            SELECT person_id, j, {_FIRST_DAY} + ({day}) AS day, {kind} AS kind
            FROM history, range(120) AS r(j)
            WHERE j < least(120, 1.3 * frailty + {_uniform("visits", seed, "person_id")} - 0.2)
        ) AS visits
    """


def event_query(table: str, seed: int) -> str:
    """The rows of a table of events. Half of them are chronic: their concept is one of few of the person."""
    domain, prefix, date, mean, most = _EVENTS[table]
    first, branches = _TREES[domain]
    leaves = 1
    for count in branches:
        leaves *= count
    chronic = f"hash(person_id, j % 3, '{prefix}', {seed})"
    acute = f"hash(person_id, j, '{prefix}', {seed})"
    key = f"CASE WHEN {acute} % 2 = 0 THEN {chronic} ELSE {acute} END"
    end = f", day + (hash(person_id, j, 'end') % 30)::INTEGER AS {_ENDS[table]}" if table in _ENDS else ""
    value = _uniform("value", seed, "person_id", "j")
    result = f", round(20 * {value}, 1)::DECIMAL(9, 2) AS value_as_number, 8713 AS unit_concept_id"
    return f"""
        SELECT
            row_number() OVER (ORDER BY person_id, j)::INTEGER AS {table}_id,
            person_id,
            ({first + 100_000} + {"3 * " if domain == "Drug" else ""}leaf)::INTEGER AS {prefix}_concept_id,
            day AS {date}{end},
            32817 AS {prefix}_type_concept_id{result if table == "measurement" else ""},
            visit_occurrence_id,
            'S' || leaf AS {prefix}_source_value
        FROM (
            SELECT
                events.person_id,
                events.j,
                floor({leaves // (3 if domain == "Drug" else 1)} * pow(events.u, 2.5))::INTEGER AS leaf,
                CASE WHEN events.has_visit THEN v.visit_occurrence_id END AS visit_occurrence_id,
                coalesce(v.visit_start_date, {_FIRST_DAY} + events.first_day) AS day
            FROM (
                SELECT
                    person_id,
                    j,
                    first_day,
                    (hash({key}, '{prefix}') >> 11)::DOUBLE / 9007199254740992.0 AS u,
                    {acute} % 10 < 9 AS has_visit,
                    (hash(j, person_id, '{prefix}') % greatest(1, n))::INTEGER AS visit
                FROM history
                JOIN (SELECT person_id, count(*) AS n FROM visits GROUP BY person_id) AS counts USING (person_id),
                    range({most}) AS r(j)
                WHERE j < least({most}, {mean} * frailty + {_uniform(prefix, seed, "person_id")} - 0.3)
            ) AS events
            LEFT JOIN visits AS v ON v.person_id = events.person_id AND v.j = events.visit
        ) AS dated
    """


def concept_queries() -> tuple[str, str]:
    """The concepts of all trees, and the ancestors of each, itself included."""
    concepts = ["SELECT 0, 'No matching concept', 'Metadata', 'Undefined'"]
    ancestors = []
    for domain, (first, branches) in _TREES.items():
        count, depth = 1, len(branches)
        for level, branch in enumerate(branches, 1):
            count *= branch
            number = f"{first} + {100_000 if level == depth else level * 10_000} + i"
            name = f"'{domain.lower()} ' || i || ' of level {level}'"
            class_ = _CLASSES[domain][level - 1]
            concepts.append(f"SELECT {number}, {name}, '{domain}', '{class_}' FROM range({count}) AS r(i)")
            below = 1
            for lower, more in enumerate((1, *branches[level:]), level):
                below *= more
                descendant = f"{first} + {100_000 if lower == depth else lower * 10_000} + i"
                ancestor = f"{first} + {100_000 if level == depth else level * 10_000} + i // {below}"
                ancestors.append(
                    f"SELECT {ancestor}, {descendant}, {lower - level}, {lower - level} "
                    f"FROM range({count * below}) AS r(i)"
                )
    names = "concept_id, concept_name, domain_id, concept_class_id"
    concept = (
        f"SELECT concept_id::INTEGER AS concept_id, concept_name, domain_id, 'Example' AS vocabulary_id, "
        f"concept_class_id, 'S' AS standard_concept, concept_id::VARCHAR AS concept_code "
        f"FROM ({' UNION ALL '.join(concepts)}) AS c({names})"
    )
    names = (
        "ancestor_concept_id::INTEGER AS ancestor_concept_id, descendant_concept_id::INTEGER AS descendant_concept_id, "
        "min_levels_of_separation, max_levels_of_separation"
    )
    columns = "ancestor_concept_id, descendant_concept_id, min_levels_of_separation, max_levels_of_separation"
    return concept, f"SELECT {names} FROM ({' UNION ALL '.join(ancestors)}) AS a({columns})"


def make_omop(
    path: Path, persons: int, seed: int = 1, tables: Sequence[str] = TABLES, memory_limit: str = "2GB"
) -> None:
    """Write some of the tables, and the vocabulary, to a DuckDB file."""
    with duckdb.connect(str(path), config={"memory_limit": memory_limit}) as database:

        def create(name: str, query: str) -> None:
            database.execute(f"CREATE OR REPLACE TABLE {name} AS {query}")

        create("person", person_query(persons, seed))
        database.execute(f"CREATE TEMPORARY TABLE history AS {history_query(seed)}")
        database.execute(f"CREATE TEMPORARY TABLE visits AS {visit_query(seed)}")
        create("visit_occurrence", "SELECT * EXCLUDE (j) FROM visits")
        create(
            "observation_period",
            f"""
            SELECT
                row_number() OVER (ORDER BY person_id)::INTEGER AS observation_period_id,
                person_id,
                {_FIRST_DAY} + first_day AS observation_period_start_date,
                {_FIRST_DAY} + last_day AS observation_period_end_date,
                32817 AS period_type_concept_id
            FROM history
            """,
        )
        for table in _EVENTS:
            create(table, event_query(table, seed))
        create(
            "death",
            f"""
            SELECT
                person_id,
                {_FIRST_DAY} + last_day AS death_date,
                32817 AS death_type_concept_id,
                0 AS cause_concept_id
            FROM history
            JOIN person USING (person_id)
            WHERE {_uniform("death", seed, "person_id")} < 0.12 * pow((2024 - year_of_birth) / 100, 2)
            """,
        )
        concept, ancestors = concept_queries()
        create("concept", concept)
        create("concept_ancestor", ancestors)
        for name in TABLES:
            if name not in tables:
                database.execute(f"DROP TABLE {name}")


def export_files(path: Path, folder: Path) -> None:
    """Write each table of a database to a CSV file in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with duckdb.connect(str(path), read_only=True) as database:
        for (table,) in database.execute("SELECT table_name FROM duckdb_tables()").fetchall():
            database.execute(f"COPY {table} TO '{folder / table}.csv'")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("persons", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--memory-limit", default="2GB")
    parser.add_argument("--files", type=Path, help="write the tables to CSV files in this folder, too")
    arguments = parser.parse_args()
    started = time.perf_counter()
    make_omop(arguments.path, arguments.persons, arguments.seed, arguments.tables, arguments.memory_limit)
    if arguments.files is not None:
        export_files(arguments.path, arguments.files)
    print(f"{arguments.persons:,} persons in {time.perf_counter() - started:.1f} s: {arguments.path}")


if __name__ == "__main__":
    main()
