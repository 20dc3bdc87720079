"""JSON files: types, nested values, names, and the same answers as from a table."""

from __future__ import annotations

import gzip
import json
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError
from sqlanon.policy import SourceSection
from sqlanon.sources.files.binding import bind_files
from sqlanon.sources.source import WorkNames
from sqlanon.support.expressions import table
from support.commands import cli
from support.databases import fetch

ROWS = [
    {
        "name": f"p{i}",
        "zip": f"{i * 7 % 60:05}",
        "age": i * 13 % 40,
        "visits": [{"ward": "a", "days": i % 3}],
        "code": f"{i % 4}" if i % 3 else i % 4,
    }
    for i in range(200)
]
ROLES: dict[str, Any] = {
    "name": {"role": "identifying"},
    "zip": {"role": "quasi", "hierarchy": {"mask": "right"}},
    "age": {"role": "quasi", "hierarchy": {"intervals": [10, 20]}},
    "visits": {"role": "insensitive"},
    "code": {"role": "insensitive"},
}


def policy(**source: object) -> sqlanon.Policy:
    return sqlanon.Policy(
        source=source, attributes=ROLES, privacy={"k": 5, "dependencies": "warn"}, search={"suppression_limit": 0.1}
    )


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("json")
    path = write(folder / "patients.json", json.dumps(ROWS))
    with sqlanon.connect(path) as db:
        released = db.anonymize(policy()).publish(folder / "release.duckdb")
        assert released.verify().verified
    return folder / "release.duckdb"


@pytest.mark.thorough
def test_the_release_is_that_of_the_same_rows_in_a_table(release: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE patients AS SELECT * FROM read_json(?, columns = {name: 'VARCHAR', zip: 'VARCHAR', "
            "age: 'BIGINT', visits: 'STRUCT(ward VARCHAR, days BIGINT)[]', code: 'VARCHAR'})",
            [str(release.with_name("patients.json"))],
        )
        with sqlanon.connect(connection) as db:
            expected = db.anonymize(policy(table="patients"))
            assert len(fetch(release, "FROM release")) == expected.released_rows
    ((smallest,),) = fetch(release, "SELECT min(n) FROM (SELECT count(*) AS n FROM release GROUP BY zip, age)")
    assert smallest >= 5


@pytest.mark.thorough
def test_types_are_those_of_the_file(release: Path) -> None:
    types = dict(
        fetch(release, "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'release'")
    )
    assert types["visits"].replace('"', "") == "STRUCT(ward VARCHAR, days BIGINT)[]"
    assert types["code"] == "VARCHAR"  # texts and numbers
    codes = {code for (code,) in fetch(release, "SELECT DISTINCT code FROM release")}
    assert codes <= {"0", "1", "2", "3"}  # no quotes of JSON in them
    assert all(len(zip_) == 5 for (zip_,) in fetch(release, "SELECT zip FROM release"))


@pytest.mark.thorough
def test_a_zip_code_keeps_its_zeros_in_text_and_a_number_its_digits(tmp_path: Path) -> None:
    lines = "\n".join(json.dumps({"zip": f"0{i % 2}139" if i % 2 else 2139}) for i in range(20))
    path = tmp_path / "zips.ndjson.gz"
    path.write_bytes(gzip.compress(lines.encode()))
    asks = sqlanon.Policy(
        source={"files": str(path)},
        attributes={"zip": {"role": "quasi", "hierarchy": {"mask": "right"}}},
        privacy={"k": 2},
    )
    with sqlanon.connect() as db:
        result = db.anonymize(asks)
        result.publish(tmp_path / "r.duckdb")
    assert set(fetch(tmp_path / "r.duckdb", "FROM release")) == {("01139",), ("2139",)}


@pytest.mark.cases(4)
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"zip": "1", "ZIP": "2"}', "'ZIP', 'zip' have the same name, or differ in case only"),
        ('{"zip": "1"}\n{"Zip": "2"}', "'Zip', 'zip' have the same name"),
        ('{"zip": "1", "n": {"a": 1, "A": "Jane Doe"}}', "fields of a nested object"),
        ('{"zip": "Jane Doe"', "patients.json, near object 2: invalid JSON"),
        ("[1, 2]", "patients.json: a row is not an object"),
        ('{"zip": "1"}\n["2"]', "patients.json: a row is not an object"),
        ('\ufeff[{"zip": "1"}]', "begins with a byte order mark"),
        ("[]", "patients.json is empty"),
        ('{"resourceType": "Bundle", "entry": [{"resource": {"zip": "1"}}]}', "patients.json is a FHIR bundle"),
        ("", "patients.json is empty"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_without_its_values(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path / "patients.json", text)
    asks = sqlanon.Policy(
        source={"files": str(path)}, attributes={"zip": {"role": "quasi", "hierarchy": "suppress"}}, privacy={"k": 2}
    )
    with sqlanon.connect() as db, pytest.raises(sqlanon.SqlanonError, match=message) as caught:
        db.anonymize(asks)
    assert "Jane" not in str(caught.value)


@pytest.mark.parametrize(("digits", "is_read"), [(38, True), (39, False)])
def test_decimals_are_exact_up_to_38_digits(digits: int, is_read: bool, tmp_path: Path) -> None:
    number = "0.1" + "2" * (digits - 2)
    path = write(tmp_path / "people.json", f'[{{"dose": {number}, "x": 1}}, {{"dose": 0.5, "x": 2}}]')
    with closing(duckdb.connect()) as connection:
        engine = DuckDBEngine(connection).use_utc()
        section = SourceSection(files=[str(path)])
        if is_read:
            source = bind_files(engine, section, WorkNames("json", table("source_copy")))
            (dose,) = (
                connection.execute(f"SELECT dose FROM {source.relation.sql('duckdb')} WHERE x = 1").fetchone() or ()
            )
            assert dose == Decimal(number)
        else:
            with pytest.raises(SourceError, match="numbers of more than 38 digits"):
                bind_files(engine, section, WorkNames("json", table("source_copy")))


@pytest.mark.thorough
@pytest.mark.parametrize(("number", "type_"), [("1", "HUGEINT"), ("1" * 40, "VARCHAR")])
def test_whole_numbers_that_a_double_would_round_are_exact(tmp_path: Path, number: str, type_: str) -> None:
    path = write(
        tmp_path / "people.json", f'[{{"id": 9007199254740993}}, {{"id": 18446744073709551617}}, {{"id": {number}}}]'
    )
    attributes = {"id": {"role": "insensitive"}, "sex": {"role": "quasi", "hierarchy": "suppress"}}
    path.write_text(path.read_text().replace("}", ', "sex": "m"}'))
    with sqlanon.connect(path) as db:
        db.anonymize(sqlanon.Policy(attributes=attributes, source={"person": False}, privacy={"k": 1})).publish(
            tmp_path / "release.duckdb", "released"
        )
    rows = fetch(tmp_path / "release.duckdb", "SELECT typeof(id), id::VARCHAR FROM released")
    assert {*rows} == {(type_, "9007199254740993"), (type_, "18446744073709551617"), (type_, number)}


@pytest.mark.slow
def test_files_of_one_layout_are_one_source_and_kinds_do_not_mix(tmp_path: Path) -> None:
    for i in range(2):
        write(tmp_path / f"part{i}.json", json.dumps(ROWS[i::2]))
    with sqlanon.connect() as db:
        assert db.risk(policy(files=str(tmp_path / "part*.json"))).rows == len(ROWS)
    write(tmp_path / "part.csv", "zip\n1\n")
    with sqlanon.connect() as db, pytest.raises(sqlanon.SourceError, match="CSV and JSON are mixed"):
        db.risk(policy(files=str(tmp_path / "part*")))


@pytest.mark.thorough
def test_the_command_line_reads_a_policy_with_a_relative_file(tmp_path: Path) -> None:
    write(tmp_path / "patients.jsonl", "\n".join(map(json.dumps, ROWS)))
    write(
        tmp_path / "policy.toml",
        """
        source.files = "patients.jsonl"
        privacy = { k = 5, dependencies = "warn" }
        search.suppression_limit = 0.1
        release.database = "release.duckdb"
        [attributes]
        name = { role = "identifying" }
        zip = { role = "quasi", hierarchy = { mask = "right" } }
        age = { role = "quasi", hierarchy = { intervals = [10, 20] } }
        visits = { role = "insensitive" }
        code = { role = "insensitive" }
        """,
    )
    for command in ("plan", "anonymize"):
        assert cli(command, "policy.toml", cwd=tmp_path).status == 0
    assert cli("verify", "release.duckdb", "--policy", "policy.toml", cwd=tmp_path).status == 0


# --- Numbers, times and errors


def read(path: Path) -> tuple[dict[str, str], list[Any]]:
    """The columns of a file with their types, and its rows."""
    with duckdb.connect() as connection:
        engine = DuckDBEngine(connection).use_utc()
        source = bind_files(engine, SourceSection(files=[str(path)]), WorkNames("json", table("source_copy")))
        relation = connection.sql(f"FROM {source.relation.sql('duckdb')}")
        return dict(zip(relation.columns, map(str, relation.types), strict=True)), relation.fetchall()


needs_new_duckdb = pytest.mark.skipif(
    int(duckdb.__version__.split(".")[0]) < 2, reason="older DuckDB reads decimals and times of JSON otherwise"
)


@pytest.mark.cases(1)
@needs_new_duckdb
@pytest.mark.parametrize(
    ("numbers", "type_", "values"),
    [
        ("0.1000000000000000055, 2", "DECIMAL(20,19)", ["0.1000000000000000055", "2"]),
        ("1234567890123456.789, null, -1.5", "DECIMAL(19,3)", ["1234567890123456.789", None, "-1.5"]),
        ("9007199254740993, 0.5", "DECIMAL(17,1)", ["9007199254740993", "0.5"]),
        ("1.2345678901234567891e-5, 1e3", "DECIMAL(28,24)", ["0.000012345678901234567891", "1000"]),
        ("1.10, 0.1, 1e-7", "DOUBLE", ["1.1", "0.1", "1e-7"]),
        ("1.5e-07, 1.5E+20, NaN", "DOUBLE", ["1.5e-7", "1.5e20", "NaN"]),
    ],
)
def test_numbers_are_exact(numbers: str, type_: str, values: list[str | None], tmp_path: Path) -> None:
    objects = [f'{{"s": "a \\"9.0\\\\", "v/~ x": {number}, "t": "-1e5"}}' for number in numbers.split(", ")]
    types, rows = read(write(tmp_path / "a.ndjson", "\n".join(objects)))
    assert types == {"s": "VARCHAR", "v/~ x": type_, "t": "VARCHAR"}
    kind = Decimal if type_.startswith("DECIMAL") else float
    expected = [None if value is None else kind(value) for value in values]
    assert [str(value) for _, value, _ in rows] == [str(value) for value in expected] or type_ != "DOUBLE"
    assert [row[1] for row in rows if str(row[1]) != "nan"] == [value for value in expected if str(value) != "nan"]
    assert {(row[0], row[2]) for row in rows} == {('a "9.0\\', "-1e5")}


@pytest.mark.cases(1)
@pytest.mark.parametrize("number", ["0.1234567890123456789012345678901234567890123", "1.23456789012345678e90"])
def test_numbers_that_no_type_holds_are_refused(number: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="column 'v' has numbers of more than 38 digits, or beyond 1e308"):
        read(write(tmp_path / "a.json", f'[{{"v": {number}}}, {{"v": 1.5}}]'))


@needs_new_duckdb
def test_nested_times_keep_their_zone(tmp_path: Path) -> None:
    at = "2024-01-31T00:30:00+02:00"
    row = {"n": {"t": at, "TIMESTAMP WITH TIME ZONE": 1}, "list": [at], "deep": [{"t": [at]}]}
    assert read(write(tmp_path / "a.json", json.dumps([row])))[1] == [tuple(row.values())]


@pytest.mark.cases(1)
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[{"a": 1}, {"a": ', "a.json, near object 3: invalid JSON; the file is broken or cut off"),
        ('{"a": 1}\n{"a": 1, "a": 2}', "a.json, line 2: an object has the key 'a' twice; remove one of them"),
        ('[{"n": {"a": 1, "a": 2}}]', "a.json, object 1: an object has the key 'a' twice; remove one of them"),
    ],
)
def test_broken_files_are_named(content: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        read(write(tmp_path / "a.json", content))
    assert message in str(caught.value)
