"""Rows that name several rows: the nearest one, which they belong to, and rows that this one belongs to."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from oracles.oracle_linked import LinkedDatabase, best
from properties.linked_cases import LinkedCase, small_cases
from sqlanon.errors import InfeasibleError, LinkedSourceError, PolicyError
from sqlanon.linked.publish.targets.base import verify_tables
from sqlanon.linked.publish.targets.file import FileLocation
from sqlanon.policy.linked import LinkedPolicy
from support.commands import cli
from support.databases import small_database
from support.lanes import draw_tables
from support.linked_hospital import POLICY, TABLES, fewest_candidates, fix_levels, known_of

TWO_REFERENCES = TABLES.replace("SELECT visit_id, 'test '", "SELECT visit_id, patient_id, 'test '")
TWO_REFERENCES_POLICY = fix_levels(POLICY).replace(
    'references = { visit_id = "visits" }\n[table.attributes]',
    'references = { patient_id = "patients", visit_id = "visits" }\n[table.attributes]\npatient_id = { role = "key" }',
)


@pytest.fixture(scope="module")
def hospital(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a hospital whose lab results name their visit and their patient, and its release."""
    folder = tmp_path_factory.mktemp("several_references")
    with duckdb.connect(str(folder / "hospital.duckdb")) as connection:
        connection.execute(TWO_REFERENCES)
    (folder / "policy.toml").write_text(TWO_REFERENCES_POLICY, encoding="utf-8")
    ended = cli("anonymize", folder / "policy.toml")
    assert ended.status == 0, ended.err
    return folder


def read(folder: Path, query: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(folder / "release.duckdb"), read_only=True) as connection:
        return connection.execute(query).fetchall()


@pytest.mark.thorough
def test_both_references_are_new_keys_that_agree(hospital: Path) -> None:
    same = "count(*) FILTER (l.patient_id = v.patient_id)"
    rows = f"SELECT count(*), {same} FROM labs AS l JOIN visits AS v USING (visit_id)"
    joined, agreeing = read(hospital, rows)[0]
    assert joined == agreeing == read(hospital, "SELECT count(*) FROM labs")[0][0] > 0
    comments = dict(read(hospital, "SELECT column_name, comment FROM duckdb_columns() WHERE table_name = 'labs'"))
    assert comments["patient_id"] == "key: the new key of a row of patients"


def test_no_attacker_has_fewer_than_k_candidates(hospital: Path) -> None:
    assert fewest_candidates(known_of(lambda query: read(hospital, query))) >= 3


def test_it_verifies_alone_and_against_its_source_and_is_planned(hospital: Path) -> None:
    ended = cli("verify", hospital / "release.duckdb", "--policy", hospital / "policy.toml")
    assert ended.status == 0, ended.out
    planned = cli("plan", hospital / "policy.toml").out
    assert "rows of visits by visit_id, with patients by patient_id" in " ".join(planned.split())


@pytest.mark.slow
def test_a_changed_reference_does_not_verify(hospital: Path, tmp_path: Path) -> None:
    changed = Path(shutil.copy(hospital / "release.duckdb", tmp_path))
    with duckdb.connect(str(changed)) as connection:
        connection.execute("UPDATE labs_v1 SET patient_id = patient_id % 40 + 1 WHERE rowid = 0")
    failures = " ".join(verify_tables(FileLocation(changed)).failures)
    assert "1 rows of 'labs' name another row of 'patients' than their row of 'visits'" in failures


def name_all_ancestors(database: LinkedDatabase, tree: dict[str, Any], connection: duckdb.DuckDBPyConnection) -> None:
    """Add a column to each table for each table above its parent, with the number of the row."""
    for t, table in enumerate(database.tables):
        above = None if table.parent is None else database.tables[table.parent].parent
        rows = {row.number: row.parent for row in table.rows}
        below = table.parent
        while above is not None:
            assert below is not None
            parents = {row.number: row.parent for row in database.tables[below].rows}
            rows = {number: None if parent is None else parents[parent] for number, parent in rows.items()}
            column, section = f"above_{t}_{above}", tree["table"][t]
            connection.execute(f"ALTER TABLE {table.name} ADD COLUMN {column} INTEGER")
            for number, ancestor in rows.items():
                assert ancestor is not None
                connection.execute(f"UPDATE {table.name} SET {column} = {ancestor + 100} WHERE id_{t} = {number + 100}")
            section["references"] = {column: database.tables[above].name, **section["references"]}
            section["attributes"][column] = {"role": "key"}
            above, below = database.tables[above].parent, above


DEEP = [case for case in small_cases(40, 3 * draw_tables(6, 40)) if any(t.parent for t in case.database.tables)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=[] if i in (1, 3) else pytest.mark.slow)
        for i, case in enumerate(DEEP[: draw_tables(6, 40)])
    ],
)
def test_the_result_is_that_of_the_oracle_for_the_nearest_reference(case: LinkedCase, tmp_path: Path) -> None:
    connection, tree = small_database(), case.policy()
    case.fill(connection)
    name_all_ancestors(case.database, tree, connection)
    expected = best(case.database, case.k, case.known, case.allowed_persons, case.weights)
    try:
        result = sqlanon.connect(connection).anonymize(LinkedPolicy(**tree))
    except InfeasibleError:
        assert expected is None
        return
    assert expected is not None
    assert (result.levels, result.suppressed_persons) == (expected.levels, expected.suppressed_persons)
    release = result.publish(tmp_path / "release.duckdb")
    assert release.verify().verified
    released_rows = [
        sum(at == t for at, _ in expected.state.rows) if t else len(expected.state.persons)
        for t in range(len(case.database.tables))
    ]
    assert [claims.released_rows for claims in release.manifest.tables] == released_rows


KEY, QUASI = {"role": "key"}, {"role": "quasi", "hierarchy": "suppress"}


def make_tree(**labs: Any) -> dict[str, Any]:
    """A policy of patients, their visits and wards, and lab results that name two rows."""
    return {
        "table": [
            {"name": "p", "person": "id", "attributes": {"id": KEY, "q": QUASI}},
            {"name": "v", "key": "vid", "references": {"id": "p"}, "attributes": {"vid": KEY, "id": KEY, "w": QUASI}},
            {"name": "u", "key": "uid", "references": {"id": "p"}, "attributes": {"uid": KEY, "id": KEY}},
            {"name": "l", "references": {"id": "p", "vid": "v"}, "attributes": {"id": KEY, "vid": KEY}, **labs},
        ],
        "privacy": {"k": 2, "known": 1},
    }


@pytest.mark.parametrize(
    ("labs", "message"),
    [
        (
            {"references": {"uid": "u", "vid": "v"}, "attributes": {"uid": KEY, "vid": KEY}},
            r"table\[3\].references: the tables u, v: a row belongs to a row of one table",
        ),
        ({"key": ["id", "vid"]}, r"table\[3\].key: has references to several tables: .* or use vid alone"),
        ({"key": ["id"]}, r"table\[3\].key: has references to several tables"),
    ],
)
def test_references_that_are_no_line_to_the_person_are_refused(labs: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        LinkedPolicy(**make_tree(**labs))


@pytest.mark.slow
def test_rows_that_name_no_row_or_rows_that_do_not_belong_together_have_no_person() -> None:
    connection = small_database()
    connection.execute("CREATE TABLE p AS SELECT i AS id, 1 AS q FROM range(6) AS r(i)")
    connection.execute("CREATE TABLE v AS SELECT i AS vid, i AS id, 1 AS w FROM range(6) AS r(i)")
    connection.execute("CREATE TABLE u AS SELECT i AS uid, i AS id FROM range(6) AS r(i)")
    connection.execute("CREATE TABLE l AS SELECT i AS id, i AS vid FROM range(6) AS r(i)")
    connection.execute("INSERT INTO l VALUES (2, 1), (NULL, 1), (1, NULL), (1, 77), (99, 1)")
    message = "table 'l': 5 rows name no row of 'v', or other rows of 'p' than that row belongs to"
    with pytest.raises(LinkedSourceError, match=message):
        sqlanon.connect(connection).anonymize(LinkedPolicy(**make_tree()))
    result = sqlanon.connect(connection).anonymize(LinkedPolicy(**make_tree(orphans="suppress")))
    assert result.to_dict()["tables"]["l"]["suppressed_rows"] == 5
