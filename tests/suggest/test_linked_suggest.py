"""`suggest` for several tables: it finds the persons, which rows belong to them, and what each table reveals."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest

from sqlanon.policy.linked import LinkedPolicy
from sqlanon.policy.linked_sections import TableSection
from support.commands import cli
from support.lanes import some

FAST = ("--set", "search.strategy=optimal", "--set", "search.row_suppression_limit=0", "--set", "search.max_checks=2")
"""A search that takes few statements."""

CLINIC = """
    CREATE TABLE wards (ward_id INTEGER PRIMARY KEY, ward VARCHAR);
    CREATE TABLE doctors (doctor_id INTEGER PRIMARY KEY, name VARCHAR, sex VARCHAR, birth_date DATE);
    CREATE TABLE patients (
        id INTEGER PRIMARY KEY, name VARCHAR, sex VARCHAR, birth_date DATE,
        doctor_id INTEGER REFERENCES doctors (doctor_id)
    );
    CREATE TABLE visits (
        visit_id INTEGER PRIMARY KEY, patient_id INTEGER REFERENCES patients (id),
        ward_id INTEGER REFERENCES wards (ward_id), doctor_id INTEGER REFERENCES doctors (doctor_id), admitted DATE
    );
    CREATE TABLE results (
        visit_id INTEGER REFERENCES visits (visit_id), line INTEGER, patient_id INTEGER REFERENCES patients (id),
        test VARCHAR, PRIMARY KEY (visit_id, line)
    );
    CREATE TABLE notes (note_id INTEGER, visit_id INTEGER REFERENCES visits (visit_id), kind VARCHAR);
    CREATE SCHEMA bill;
    CREATE TABLE bill.invoices (invoice_no VARCHAR, patient_id INTEGER, paid BOOLEAN);
    CREATE TABLE audit (moment TIMESTAMP, what VARCHAR);
    INSERT INTO wards SELECT i, 'ward ' || i FROM range(5) AS r(i);
    INSERT INTO doctors SELECT i, 'dr ' || i, 'f', DATE '1970-01-01' + i::INTEGER FROM range(20) AS r(i);
    INSERT INTO patients
    SELECT i, 'name ' || i, 'fm'[1 + i % 2], DATE '1970-01-01' + (i * 37 % 9000)::INTEGER, i % 20
    FROM range(300) AS r(i);
    INSERT INTO visits
    SELECT row_number() OVER (), id, id % 5, id % 20, DATE '2024-01-01' + (id * 7 % 500)::INTEGER
    FROM patients, range(3) AS r(j)
    WHERE (id + j) % 2 = 0;
    INSERT INTO results SELECT visit_id, j, patient_id, 'abc'[1 + (visit_id + j) % 3] FROM visits, range(2) AS r(j);
    INSERT INTO notes
    SELECT row_number() OVER (), CASE WHEN visit_id % 3 > 0 THEN visit_id END, 'xy'[1 + visit_id % 2] FROM visits;
    INSERT INTO bill.invoices SELECT 'R' || (1000 + id * 7), id, id % 3 > 0 FROM patients;
    INSERT INTO audit SELECT TIMESTAMP '2024-01-01' + to_days(i::INTEGER), 'x' FROM range(50) AS r(i);
"""


@pytest.fixture
def clinic(tmp_path: Path) -> Path:
    """A folder with a database of eight tables, whose references are declared but for one."""
    with duckdb.connect(str(tmp_path / "clinic.duckdb")) as connection:
        connection.execute(CLINIC)
    return tmp_path


def suggest(folder: Path, *arguments: str) -> tuple[str, LinkedPolicy]:
    """The text of a suggested policy, and the policy in it."""
    ended = cli("suggest", *arguments, "-o", "policy.toml", cwd=folder)
    assert (ended.status, ended.err) == (0, "")
    return (folder / "policy.toml").read_text(encoding="utf-8"), LinkedPolicy.load(folder / "policy.toml")


def links(policy: LinkedPolicy) -> dict[str, tuple[tuple[str, ...], dict[str, str]]]:
    """The key and the references of each table."""
    return {section.name: (section.person or section.key, dict(section.references)) for section in policy.table}


def roles(section: TableSection) -> dict[str, str]:
    return {name: attribute.role for name, attribute in section.attributes.items()}


@pytest.mark.slow
def test_declared_foreign_keys_make_the_tree_below_the_persons(clinic: Path) -> None:
    """A line belongs to the visit in its key, and names its patient; others are withheld if they have persons."""
    text, policy = suggest(clinic, "clinic.duckdb")
    assert links(policy) == {
        "patients": (("id",), {}),
        "invoices": (("invoice_no",), {"patient_id": "patients"}),
        "visits": (("visit_id",), {"patient_id": "patients"}),
        "results": (("visit_id", "line"), {"visit_id": "visits", "patient_id": "patients"}),
        "notes": (("note_id",), {"visit_id": "visits"}),
    }
    by_name = {section.name: section for section in policy.table}
    assert by_name["invoices"].table == "bill.invoices"
    assert roles(by_name["results"])["patient_id"] == "key"
    assert roles(by_name["visits"]) == {
        **{"visit_id": "key", "patient_id": "key", "ward_id": "quasi", "doctor_id": "identifying", "admitted": "quasi"}
    }
    assert by_name["notes"].orphans == "suppress"
    assert "doctors may have persons, too" in " ".join(text.replace("#", " ").split())
    assert "belong to no row of these tables: audit, doctors, wards." in text
    assert text.startswith("#:schema ./sqlanon.schema.json\n")
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.thorough
def test_the_policy_makes_a_release(clinic: Path) -> None:
    suggest(clinic, "clinic.duckdb")
    ended = cli("anonymize", "policy.toml", cwd=clinic)
    assert ended.status == 0
    assert cli("verify", "clinic_release.duckdb", cwd=clinic).status == 0


@pytest.mark.slow
def test_a_folder_of_files_is_linked_by_names_and_values(clinic: Path) -> None:
    """Small numbers occur in every key, so values alone do not link them; a folder of files is one table."""
    (clinic / "export" / "notes").mkdir(parents=True)
    with duckdb.connect(str(clinic / "clinic.duckdb")) as connection:
        for name in ("patients", "visits", "wards"):
            connection.execute(f"COPY {name} TO '{clinic / 'export' / name}.csv'")
        connection.execute(f"COPY notes TO '{clinic / 'export' / 'notes' / 'a.parquet'}'")
    text, policy = suggest(clinic, "export")
    assert links(policy) == {
        "patients": (("id",), {}),
        "visits": (("visit_id",), {"patient_id": "patients"}),
        "notes": (("note_id",), {"visit_id": "visits"}),
    }
    assert 'files = "export/visits.csv"' in text
    assert "name none, so they are left out" in text
    ended = cli("anonymize", "policy.toml", "--dry-run", *FAST, cwd=clinic)
    assert ended.status == 0
    assert "300 of 300 persons released" in ended.out


def shop(folder: Path, *statements: str) -> None:
    with duckdb.connect(str(folder / "shop.duckdb")) as connection:
        for statement in statements:
            connection.execute(statement)


TWO_TABLES = (
    "CREATE TABLE clients AS SELECT i AS client_id, 'x' || i % 4 AS town FROM range(40) AS r(i)",
    "CREATE TABLE members AS SELECT i AS member_id, 'x' || i % 4 AS town FROM range(40) AS r(i)",
    "CREATE TABLE orders AS SELECT i AS client_id, i % 7 AS member_id, i % 3 AS amount FROM range(40) AS r(i)",
)


@pytest.mark.slow
def test_two_tables_of_persons_alike_are_refused_with_the_option_that_decides(tmp_path: Path) -> None:
    shop(tmp_path, *TWO_TABLES)
    refused = cli("suggest", "shop.duckdb", cwd=tmp_path)
    assert refused.status == 2
    assert "clients and members look like tables of persons alike" in refused.err
    assert "--person TABLE" in refused.err
    text, policy = suggest(tmp_path, "shop.duckdb", "--person", "members")
    assert links(policy) == {"members": (("member_id",), {}), "orders": ((), {"member_id": "members"})}
    assert "clients may have persons, too" in " ".join(text.replace("#", " ").split())
    assert policy.search.row_suppression_limit == 0
    unknown = cli("suggest", "shop.duckdb", "--person", "clerks", cwd=tmp_path)
    assert (unknown.status, "--person: table 'clerks' does not exist" in unknown.err) == (2, True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statements", "message"),
    [
        (
            ["CREATE TABLE a AS SELECT 1 AS x", "CREATE TABLE b AS SELECT 2 AS y"],
            "no table has a column that names rows of another one: name a table, as in `sqlanon suggest shop.duckdb a`",
        ),
        (
            ["CREATE TABLE a AS SELECT i AS a_id FROM range(9) AS r(i)", "CREATE TABLE b AS SELECT a_id FROM a"],
            "no table looks like the persons",
        ),
    ],
)
def test_tables_that_nothing_links_are_refused(statements: list[str], message: str, tmp_path: Path) -> None:
    shop(tmp_path, *statements)
    refused = cli("suggest", "shop.duckdb", cwd=tmp_path)
    assert (refused.status, message in refused.err) == (2, True)


@pytest.mark.slow
def test_a_table_of_persons_is_for_several_tables(tmp_path: Path) -> None:
    shop(tmp_path, "CREATE TABLE a AS SELECT 1 AS x")
    for arguments in (["shop.duckdb"], ["shop.duckdb", "a"]):
        refused = cli("suggest", *arguments, "--person", "a", cwd=tmp_path)
        assert (refused.status, "--person: is for a database or folder of several tables" in refused.err) == (2, True)


# What each table adds to the risk


def unique_share(values: Sequence[Any]) -> float:
    counts = Counter(values)
    return sum(1 for value in values if counts[value] == 1) / len(values)


@pytest.mark.parametrize("seed", some(range(3), every=3))
def test_the_shares_of_unique_persons_are_those_of_plain_python(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    patients = [(i, draw.choice("fm"), draw.choice([None, "n", "s"])) for i in range(60)]
    visits = [(i, draw.randrange(45), draw.choice("abc")) for i in range(70)]
    labs = [(draw.randrange(70), draw.choice("xyz")) for _ in range(90)]
    with duckdb.connect(str(tmp_path / "d.duckdb")) as connection:
        connection.execute("CREATE TABLE patients (patient_id INTEGER, sex VARCHAR, region VARCHAR)")
        connection.execute("CREATE TABLE visits (visit_id INTEGER, patient_id INTEGER, ward VARCHAR)")
        connection.execute("CREATE TABLE labs (visit_id INTEGER, test VARCHAR)")
        for name, rows in (("patients", patients), ("visits", visits), ("labs", labs)):
            marks = ", ".join("?" * len(rows[0]))
            connection.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)
    text, _ = suggest(tmp_path, "d.duckdb")
    patient_values = {person: (sex, region) for person, sex, region in patients}

    def with_rows(rows: Iterator[tuple[int, Any]]) -> dict[int, Any]:
        records: dict[int, list[Any]] = {person: [] for person in patient_values}
        for person, row in rows:
            records[person].append(row)
        return {person: (patient_values[person], sorted(rows)) for person, rows in records.items()}

    visit_rows = with_rows((person, ward) for _, person, ward in visits)
    ward_of = {visit: (person, ward) for visit, person, ward in visits}
    lab_rows = with_rows((ward_of[visit][0], (ward_of[visit][1], test)) for visit, test in labs)
    expected = {
        "patients alone": [repr(patient_values[person]) for person in patient_values],
        "with visits": [repr(visit_rows[person]) for person in patient_values],
        "with labs": [repr(lab_rows[person]) for person in patient_values],
        "with all tables": [repr((visit_rows[person], lab_rows[person])) for person in patient_values],
    }
    for label, records in expected.items():
        line = next(line for line in text.splitlines() if label in line)
        share = line.split(label)[1].split("%")[0].strip()
        assert float(share) == pytest.approx(100 * unique_share(records), abs=0.5)


# Random schemas


def random_database(seed: int, path: Path) -> dict[str, str]:
    """A database of a random tree of tables; return the parent of each."""
    draw = random.Random(seed)
    parents, names = dict[str, str](), ["patients"]
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE patients AS SELECT i * 3 AS patient_id, 'fm'[1 + i % 2] AS sex FROM range(50) AS r(i)"
        )
        for name in draw.sample(["visits", "labs", "stays", "drugs"], draw.randint(1, 4)):
            parent = draw.choice(names)
            key = f"{parent.removesuffix('s')}_id"
            declared = draw.random() < 0.5
            if declared:
                connection.execute(f"CREATE UNIQUE INDEX {name}_index ON {parent} ({key})")
            connection.execute(
                f"CREATE TABLE {name} AS SELECT row_number() OVER () * 2 AS {name.removesuffix('s')}_id, {key}, "
                f"'v' || hash({key}, {seed}) % 3 AS kind FROM {parent}, range(2) AS r(j) "
                f"WHERE hash({key}, j, {seed}) % 3 > 0"
            )
            parents[name] = parent
            names.append(name)
    return parents


@pytest.mark.thorough
@pytest.mark.parametrize("seed", some(range(40), every=40))
def test_a_random_tree_of_tables_is_found_and_anonymized(seed: int, tmp_path: Path) -> None:
    parents = random_database(seed, tmp_path / "d.duckdb")
    policy = suggest(tmp_path, "d.duckdb")[1]
    references = {section.name: {*section.references.values()} for section in policy.table if section.references}
    assert references == {name: {parent} for name, parent in parents.items()}
    ended = cli("anonymize", "policy.toml", "--dry-run", *FAST, cwd=tmp_path)
    assert ended.status == 0
