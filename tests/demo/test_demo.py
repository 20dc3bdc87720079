"""The demo: its hospital, its attack and its story."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from sqlglot import exp

from sqlanon.demo import story
from sqlanon.demo.attack import GROUND, QUASI, Linkage, attack, label, link
from sqlanon.demo.clinic import attack_visits, make_clinic
from sqlanon.demo.hospital import make_hospital
from sqlanon.demo.story import run_demo
from sqlanon.errors import InfeasibleError, SourceError
from sqlanon.policy import Policy
from support.files import DOCS

ROWS = 5_000


@pytest.fixture(scope="module")
def hospital(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("demo") / "hospital.duckdb"
    make_hospital(path, rows=ROWS)
    return path


@pytest.fixture
def db(hospital: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(hospital, read_only=True) as connection:
        yield connection


def fetch(connection: duckdb.DuckDBPyConnection, query: str) -> tuple[object, ...]:
    (row,) = connection.execute(query).fetchall()
    return row


# The hospital


@pytest.mark.thorough
def test_the_hospital_has_the_columns_that_it_should(db: duckdb.DuckDBPyConnection) -> None:
    columns = {
        table: dict(db.execute(f"SELECT column_name, column_type FROM (DESCRIBE {table})").fetchall())
        for table in ("patients", "voters")
    }
    person = {
        "name": "VARCHAR",
        "address": "VARCHAR",
        "zip": "VARCHAR",
        "birth_date": "DATE",
        "sex": "VARCHAR",
    }
    sick = {"ethnicity": "VARCHAR", "diagnosis": "VARCHAR", "cost": "DECIMAL(9,2)"}
    assert columns == {"patients": person | sick, "voters": person}
    assert fetch(db, "SELECT count(*) FROM patients") == (ROWS,)


@pytest.mark.slow
def test_no_value_is_missing_and_every_zip_has_five_digits(db: duckdb.DuckDBPyConnection) -> None:
    for table in ("patients", "voters"):
        rows, complete = fetch(db, f"SELECT count(*), count(*) FILTER (t IS NOT NULL) FROM {table} AS t")
        assert rows == complete
        assert fetch(db, f"SELECT bool_and(regexp_full_match(zip, '[0-9]{{5}}')) FROM {table}") == (True,)


@pytest.mark.thorough
def test_the_voter_list_covers_part_of_the_patients_and_others_and_no_children(
    db: duckdb.DuckDBPyConnection,
) -> None:
    voters, patients = fetch(
        db,
        "SELECT count(*), count(p.name) FROM voters AS v LEFT JOIN patients AS p"
        " USING (name, address, zip, birth_date, sex)",
    )
    assert isinstance(voters, int) and isinstance(patients, int)
    assert 0.55 < patients / ROWS < 0.65
    assert 0.45 < patients / voters < 0.55
    assert fetch(db, "SELECT max(birth_date) <= DATE '2008-01-01' FROM voters") == (True,)


def test_the_demo_data_are_skewed(db: duckdb.DuckDBPyConnection) -> None:
    ages = "date_sub('year', birth_date, DATE '2026-01-01')"
    conditions = {
        "patients": [
            f"min({ages}) >= 0",
            f"max({ages}) < 100",
            f"median({ages}) BETWEEN 35 AND 48",
            "count(*) FILTER (ethnicity = 'White') / count(*) BETWEEN 0.6 AND 0.7",
            f"count(*) FILTER (diagnosis = 'childbirth' AND (sex = 'm' OR {ages} NOT BETWEEN 15 AND 49)) = 0",
            "count(DISTINCT diagnosis) = 16",
            "count(DISTINCT cost) < count(*) / 5",
        ],
        "(SELECT count(*) AS size FROM patients GROUP BY zip)": ["max(size) > 15 * median(size)"],
    }
    for table, facts in conditions.items():
        for fact in facts:
            assert fetch(db, f"SELECT {fact} FROM {table}") == (True,), fact


@pytest.mark.thorough
def test_the_same_seed_gives_the_same_tables_in_the_same_order(hospital: Path, tmp_path: Path) -> None:
    again, other_seed = tmp_path / "again.duckdb", tmp_path / "other.duckdb"
    make_hospital(again, rows=ROWS)
    make_hospital(other_seed, rows=ROWS, seed=7)

    def content(path: Path) -> list[list[tuple[object, ...]]]:
        with duckdb.connect(path, read_only=True) as connection:
            return [connection.execute(f"FROM {name}").fetchall() for name in ("patients", "voters")]

    assert content(again) == content(hospital)
    assert content(other_seed) != content(hospital)


@pytest.mark.thorough
def test_a_hospital_replaces_the_file_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "hospital.duckdb"
    make_hospital(path, rows=20)
    make_hospital(path, rows=10)
    with duckdb.connect(path, read_only=True) as connection:
        assert fetch(connection, "SELECT count(*) FROM patients") == (10,)
    assert [file.name for file in tmp_path.iterdir()] == ["hospital.duckdb"]


@pytest.mark.parametrize("rows", [0, -1])
def test_a_hospital_needs_a_patient(tmp_path: Path, rows: int) -> None:
    with pytest.raises(SourceError, match="at least 1"):
        make_hospital(tmp_path / "hospital.duckdb", rows=rows)


# The attack

PEOPLE = """
    CREATE TABLE people AS SELECT zip, CAST(birth_date AS DATE) AS birth_date, sex FROM (VALUES
        ('02139', '1964-03-02', 'f'),    -- one voter: identified
        ('02139', '1964-03-09', 'f'),    -- two voters
        ('02139', '1970-01-01', 'm'),    -- no voter
        ('02141', '1980-05-05', 'm'), ('02141', '1980-05-05', 'm')    -- one voter, but two patients
    ) AS v(zip, birth_date, sex);
    CREATE TABLE voters AS SELECT zip, CAST(birth_date AS DATE) AS birth_date, sex FROM (VALUES
        ('02139', '1964-03-02', 'f'), ('02139', '1964-03-09', 'f'), ('02139', '1964-03-09', 'f'),
        ('02141', '1980-05-05', 'm'), ('99999', '1999-09-09', 'f')
    ) AS v(zip, birth_date, sex);
"""


def link_rows(script: str, levels: dict[str, int]) -> Linkage:
    with duckdb.connect() as connection:
        connection.execute(PEOPLE + script)
        query = link(exp.to_table("people"), exp.to_table("voters"), levels)
        return Linkage(*fetch(connection, query.sql("duckdb")))


def test_identified_are_unique_patients_with_exactly_one_voter() -> None:
    assert link_rows("", GROUND) == Linkage(rows=5, unique=3, matched=4, identified=1)


def test_a_release_is_linked_by_the_labels_that_it_shows() -> None:
    generalized = """
        CREATE OR REPLACE TABLE people AS
        SELECT left(zip, 4) || '*' AS zip, strftime(birth_date, '%Y-%m') AS birth_date, sex FROM people
    """
    # 0213*, 1964-03, f: two rows, three voters. 0213*, 1970-01, m: no voter. 0214*, 1980-05, m: two rows.
    assert link_rows(generalized, {"zip": 1, "birth_date": 1, "sex": 0}) == Linkage(5, 1, 4, 0)


def test_a_voter_with_a_value_that_no_patient_has_still_fits_a_label() -> None:
    # No patient is 02144, so the data holder's hierarchy lacks it; an attacker knows that it is 0214*.
    script = """
        DELETE FROM voters WHERE zip = '02141'; INSERT INTO voters VALUES ('02144', '1980-05-05', 'm');
        DELETE FROM people; INSERT INTO people VALUES ('0214*', '1980-05-05', 'm')
    """
    assert link_rows(script, {"zip": 1, "birth_date": 0, "sex": 0}) == Linkage(1, 1, 1, 1)


def test_an_empty_table_gives_nothing_away() -> None:
    assert link_rows("DELETE FROM people", GROUND) == Linkage(0, 0, 0, 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("attribute", "labels"),
    [
        ("zip", ["02139", "0213*", "021**", "02***", "0****", "*"]),
        ("birth_date", ["1964-03-02", "1964-03", "1964", "1960s", "*"]),
        ("sex", ["f", "*"]),
    ],
)
def test_labels_are_those_of_the_rules(attribute: str, labels: list[str]) -> None:
    person = "FROM (SELECT '02139' AS zip, DATE '1964-03-02' AS birth_date, 'f' AS sex)"
    computed = [
        str(fetch(duckdb.connect(), f"SELECT {label(attribute, level).sql('duckdb')} {person}")[0])
        for level in range(len(labels))
    ]
    assert computed == labels


@pytest.mark.slow
def test_the_hospital_gives_its_patients_away(hospital: Path) -> None:
    outcome = attack(hospital, hospital, GROUND)
    assert outcome.linkage.rows == ROWS
    assert 0.5 * ROWS < outcome.linkage.identified <= outcome.linkage.matched < 0.7 * ROWS
    assert outcome.linkage.identified < outcome.linkage.unique <= ROWS
    assert outcome.right_names > 0
    assert 0.98 * outcome.linkage.identified < outcome.right_names <= outcome.linkage.identified
    assert outcome.smallest_class == 1
    assert outcome.victim is not None and outcome.matching is not None
    assert (outcome.matching.rows, outcome.matching.diagnoses) == (1, 1)
    with duckdb.connect(hospital, read_only=True) as connection:
        who = outcome.victim
        assert connection.execute(
            "SELECT diagnosis FROM patients WHERE name = ? AND zip = ? AND birth_date = ? AND sex = ?",
            [who.name, who.zip, who.birth_date, who.sex],
        ).fetchall() == [(who.diagnosis,)]


# The second act


@pytest.fixture(scope="module")
def clinic(hospital: Path) -> Path:
    path = hospital.with_name("clinic.duckdb")
    make_clinic(hospital, path)
    return path


def test_every_visit_belongs_to_a_patient(clinic: Path) -> None:
    with duckdb.connect(clinic, read_only=True) as connection:
        assert fetch(connection, "SELECT count(*), count(DISTINCT patient_id) FROM patients") == (ROWS, ROWS)
        assert fetch(connection, "SELECT count(*) FROM visits ANTI JOIN patients USING (patient_id)") == (0,)
        assert fetch(connection, "SELECT count(DISTINCT patient_id) FROM visits") == (ROWS,)
        per_patient = "SELECT count(*) AS visits FROM visits GROUP BY patient_id"
        assert fetch(connection, f"SELECT min(visits), max(visits) FROM ({per_patient})") == (1, 3)


def test_two_visits_single_out_patients_whom_the_table_hides(clinic: Path) -> None:
    outcome = attack_visits(clinic, {"zip": 3, "birth_date": 3, "sex": 0})
    alone, one, two = outcome.matches
    assert alone.fewest_matches is not None and alone.fewest_matches >= 5
    assert alone.unique_persons == 0 < one.unique_persons <= two.unique_persons
    assert two.share > 0.5
    assert outcome.victim is not None
    with duckdb.connect(clinic, read_only=True) as connection:
        visits = connection.execute(
            "SELECT admitted, ward FROM visits JOIN patients USING (patient_id) WHERE name = ? ORDER BY admitted",
            [outcome.victim.name],
        ).fetchall()
    assert {*zip(outcome.victim.days, outcome.victim.wards, strict=True)} <= {*visits}


# The story


@pytest.mark.thorough
def test_the_demo_identifies_no_person_in_the_release(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = tmp_path / "new" / "a demo"
    for _ in range(2):  # again in the same directory
        demo = run_demo(home, ROWS)
        out = capsys.readouterr().out
        assert demo.verified
        assert demo.before.linkage.identified > 0.5 * ROWS
        assert (demo.after.linkage.identified, demo.after.linkage.unique) == (0, 0)
        assert demo.before.smallest_class == 1
        assert demo.after.smallest_class >= 5
        assert demo.after.linkage.rows >= 0.95 * ROWS
        # Nobody is identified because classes are large, and not because labels are read in a wrong way.
        assert demo.after.linkage.matched > 0.5 * ROWS
        for path in (demo.hospital, demo.policy, demo.release):
            assert path.is_absolute() and path.is_file()
            assert str(path) in out
        assert demo.clinic is not None and demo.clinic.verified
        assert demo.clinic.before.matches[2].share > 0.5
        assert [matches.unique_persons for matches in demo.clinic.after.matches] == [0, 0, 0]
        assert (demo.clinic.after.matches[2].fewest_matches or 0) >= 5
        for words in ("identified by name", "sqlanon verify", f"{demo.before.linkage.identified:,}"):
            assert words in out
        with duckdb.connect(demo.release, read_only=True) as release:
            columns = [name for name, *_ in release.execute("DESCRIBE patients").fetchall()]
        assert columns == [*QUASI, "diagnosis", "cost"]
    assert not [file.name for file in home.iterdir() if file.name.startswith(".")]
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{demo.hospital}' AS hospital (READ_ONLY)")
        connection.execute(f"ATTACH '{demo.release}' AS release (READ_ONLY)")
        # With the patients themselves for a list, each row of the release has somebody who fits: every label is read.
        query = link(exp.to_table("release.patients"), exp.to_table("hospital.patients"), demo.generalization)
        linkage = Linkage(*fetch(connection, query.sql("duckdb")))
    assert linkage.matched == linkage.rows == demo.after.linkage.rows


@pytest.mark.slow
def test_the_demo_leaves_the_policy_that_the_docs_start_from(tmp_path: Path) -> None:
    with pytest.raises(InfeasibleError):
        run_demo(tmp_path, 3)
    tutorial = (DOCS / "tutorial" / "policy.md").read_text(encoding="utf-8")
    policy = tutorial.split("```toml\n")[1].split("```")[0]
    assert (tmp_path / "first.toml").read_text(encoding="utf-8").endswith(f"\n\n{policy}")
    assert Policy.load(tmp_path / "first.toml").source.table == "patients"


def test_the_commands_that_the_demo_prints_run_as_they_are(tmp_path: Path) -> None:
    home = tmp_path / "a demo's"
    home.mkdir()
    with duckdb.connect(home / "release.duckdb") as connection:
        connection.execute("CREATE SCHEMA sqlanon")
        connection.execute("CREATE MACRO sqlanon.k_anonymity(t, q) AS TABLE SELECT 'checked ' || t AS k")
    lines = story._describe_files(home / "hospital.duckdb", home / "policy.toml", home / "release.duckdb")
    (command,) = (line for line in lines if "-c" in line)
    outcome = subprocess.run(shlex.split(command), capture_output=True, text=True, check=True)
    assert "checked patients" in outcome.stdout


@pytest.mark.parametrize("name", ["hospital.duckdb", "policy.toml", "release.duckdb", "first.toml", "clinic.duckdb"])
def test_a_file_that_the_demo_did_not_make_stays(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(SourceError, match=name):
        run_demo(tmp_path, 100)
    assert (tmp_path / name).read_text() == "mine"
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_a_directory_that_is_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SourceError, match="cannot write"):
        run_demo(tmp_path / "file", 100)


def test_fewer_patients_than_k_is_infeasible(tmp_path: Path) -> None:
    with pytest.raises(InfeasibleError):
        run_demo(tmp_path, 3)


@pytest.mark.thorough
def test_a_handful_of_patients_make_a_story(tmp_path: Path) -> None:
    demo = run_demo(tmp_path, 5)
    assert (demo.after.linkage.identified, demo.clinic) == (0, None)
