"""Tables with several rows of each person, and tables in which each row is a person: made by seeded SQL in DuckDB.

The first are visits, claims, laboratory results, courses, and the like, with a key of the persons among other keys. The
others have keys that are unique, and columns that repeat and number no people: doctors, wards, places, households,
names, devices.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import duckdb

KEY_NAMES = (
    "id", "ID", "pid", "PatID", "mrn", "patient_id", "subject", "case_owner", "Versichertennummer", "x1", "person",
    "student_no", "member", "usuario", "code", "nhs_number", "kd_nr", "ref", "uid", "dossier",
)  # fmt: skip
REPEATS = (1.02, 1.1, 1.3, 1.7, 2.5, 4.0, 6.0, 12.0, 25.0, 50.0)
KEY_TYPES = (
    "(100000 + 7 * i)::BIGINT",
    "(100000 + 7 * i)::DOUBLE",
    "(100000 + 7 * i)::VARCHAR",
    "'P' || lpad((13 * i)::VARCHAR, 7, '0')",
    "repeat(' ', (v % 3)::INTEGER) || 'K-' || (31 * i)::VARCHAR || repeat(' ', (v % 2)::INTEGER)",
    "md5(i::VARCHAR)",
    "uuid_of(i)",
    "(100000 + 7 * i)::DECIMAL(12, 2)",
)

MACROS = """
    CREATE MACRO h(i, salt, n) AS (hash(i * 31 + salt * 1000003 + {seed} * 7919) % n)::INTEGER;
    CREATE MACRO uuid_of(i) AS (
        substr(md5(i::VARCHAR), 1, 8) || '-' || substr(md5(i::VARCHAR), 9, 4) || '-4' || substr(md5(i::VARCHAR), 14, 3)
        || '-a' || substr(md5(i::VARCHAR), 18, 3) || '-' || substr(md5(i::VARCHAR), 21, 12)
    )::UUID;
"""

# What people keep between their rows, and what differs from row to row: p is the person, r the row.
LASTING = {
    "sex": "['m', 'w'][1 + h(p, 1, 2)]",
    "birth_date": "DATE '1935-01-01' + h(p, 2, 30000)",
    "zip": "printf('%05d', 1000 + 37 * h(p, 3, 900))",
    "age": "20 + h(p, 2, 60) + (v * 3 // 30)",
    "ethnicity": "['A', 'B', 'C', 'D', 'E'][1 + least(h(p, 4, 8), 4)]",
    "marital_status": "['single', 'married', 'divorced', 'widowed'][1 + h(p, 5, 4)]",
    "education": "['low', 'middle', 'high'][1 + h(p, 6, 3)]",
    "occupation": "'job ' || h(p, 7, 40)",
    "first_name": "'Name' || h(p, 8, 150)",
    "last_name": "'Family' || h(p, 9, 800)",
}
PASSING = {
    "visit_date": "DATE '2024-01-01' + h(r, 20, 700)",
    "ward": "'ward ' || h(r, 21, 12)",
    "doctor_id": "500 + h(r, 22, 30)",
    "diagnosis": "'diagnosis ' || h(r, 23, 25)",
    "cost": "round(10 + h(r, 24, 500000) / 100.0, 2)",
    "device": "'device-' || h(r, 25, 60)",
    "los": "h(r, 26, 20)",
    "insurer": "'insurer ' || h(r, 27, 6)",
}


@dataclass(frozen=True)
class Made:
    """A table ``t``, and the column that numbers its people, if several rows are of one."""

    connection: duckdb.DuckDBPyConnection
    person: str | None
    columns: tuple[str, ...]
    words: str


def table_of_visits(seed: int) -> Made:
    """A table in which persons have several rows each."""
    draw = random.Random(seed)
    name, repeats = KEY_NAMES[seed % len(KEY_NAMES)], REPEATS[seed % len(REPEATS)]
    key, persons = KEY_TYPES[(seed // 2) % len(KEY_TYPES)], draw.choice([60, 200, 900, 3000])
    if repeats >= 12:
        persons = min(persons, 200)
    if repeats < 1.2:
        persons = max(persons, 900)
    lasting = ["sex", draw.choice(["birth_date", "age", "birth_date"]), "zip"]
    lasting += draw.sample(sorted(set(LASTING) - {*lasting, "birth_date", "age"}), draw.randint(0, 4))
    if draw.random() < 0.2:
        lasting.remove("zip")
    passing = draw.sample(sorted(PASSING), draw.randint(1, 5))
    columns = {column: LASTING[column] for column in lasting} | {column: PASSING[column] for column in passing}
    missing = draw.choice([0, 0, 1, 5, 20])  # percent of the rows have no key
    keys = {name: f"CASE WHEN h(r, 30, 100) >= {missing} THEN {key} END"}
    if draw.random() < 0.4:
        keys["visit_no"] = "r"
    if draw.random() < 0.3 and repeats >= 6:  # of fewer rows, an episode would be a person
        keys["episode"] = "i * 100 + v // 3"
    if draw.random() < 0.3:
        keys["other_key"] = f"CASE WHEN h(p, 31, 100) < 60 THEN {draw.choice(KEY_TYPES[:4])} END"
    connection = _make_table(
        seed, keys | columns, f"range({persons}) AS persons(i), range(400) AS rows(v)", _rows(repeats)
    )
    return Made(connection, name, tuple(columns), f"{name} {key} {repeats} rows a person, {persons} persons")


def table_of_people(seed: int) -> Made:
    """A table in which each row is a person, with columns that repeat and number no people."""
    draw = random.Random(1000 + seed)
    persons = draw.choice([150, 600, 2000, 8000])
    lasting = ["sex", draw.choice(["birth_date", "age"]), "zip"]
    lasting += draw.sample(sorted(set(LASTING) - {*lasting, "birth_date", "age"}), draw.randint(0, 5))
    columns = {column: LASTING[column] for column in lasting}
    columns |= {column: PASSING[column] for column in draw.sample(sorted(PASSING), draw.randint(1, 5))}
    choices = {
        "id": "100 + i",
        "household_id": "(i // 3)::INTEGER",
        "hospital_id": "h(p, 40, 40)",
        "hospital_city": "'city ' || (h(p, 40, 40) // 3)",
        "hospital_type": "['public', 'private', 'church'][1 + h(h(p, 40, 40), 41, 3)]",
        "teacher": "'T' || h(p, 42, 70)",
        "employer_no": "h(p, 43, 90) * 17",
        "phone": "'+49 30 ' || (1000000 + h(i // 2, 44, 8999999))",
        "full_name": "'Given' || h(p, 45, 60) || ' Family' || h(p, 46, 90)",
        "street": "'Street ' || h(i // 3, 47, 400)",
        "batch": "'B' || lpad((i // 8)::VARCHAR, 5, '0')",
        "region_code": "h(p, 3, 900) // 30",
    }
    picked = draw.sample(sorted(choices), draw.randint(3, 8))
    if "household_id" in picked:  # a household has one place
        columns["zip"] = columns["zip"].replace("h(p,", "h(i // 3,")
    columns = {column: choices[column] for column in picked} | columns
    connection = _make_table(seed, columns, f"range({persons}) AS persons(i), range(1) AS rows(v)", "v = 0")
    return Made(connection, None, tuple(columns), f"{persons} rows: {', '.join(columns)}")


def _rows(repeats: float) -> str:
    """Rows of each person, for an average number of rows, and not the same number for each."""
    whole, share = int(repeats), round(1000 * (repeats - int(repeats)))
    if whole == 1:
        return f"v < 1 + (h(i, 50, 1000) < {share})::INTEGER"
    return f"v < 1 + h(i, 51, {2 * whole - 1})"


def _make_table(seed: int, columns: dict[str, str], source: str, condition: str) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute(MACROS.format(seed=seed))
    output = ", ".join(f'{value} AS "{name}"' for name, value in columns.items())
    rows = f"SELECT i, v, i AS p, 1000 * i + v AS r FROM {source} WHERE {condition}"
    connection.execute(f"CREATE TABLE t AS SELECT {output} FROM ({rows}) AS rows ORDER BY hash(r + {seed})")
    return connection
