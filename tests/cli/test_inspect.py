"""``inspect`` shows how files are read, and its [source.csv] reads them in the same way."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import duckdb
import pytest

import sqlanon
from sqlanon.errors import PolicyError, SourceError
from support.commands import cli
from support.policies import make_policy
from support.workbooks import write_workbook

FOLDER = Path(__file__).resolve().parents[1] / "sources" / "statistics_files"
ROWS = "21;m;asthma\n53;w;flu\n" * 20

FILES = {
    "commas": (b"age,sex\n21,m\n53,w\n", {"delimiter": ",", "encoding": "utf-8", "header": True, "skip": 0}),
    "titles": (b"Export\n\na;b\n1;2\n3;4\n", {"delimiter": ";", "skip": 2}),
    "tabs": (b"a\tb\n1\t2\n", {"delimiter": "\t"}),
    "apostrophes": (b"a,b\n1,'x,y'\n2,'z'\n", {"quote": "'"}),
    "quotes": (b'a,b\n1,"x,y"\n2,"z"\n', {"quote": '"', "escape": None}),
    "backslashes": (b'a,b\n1,"x \\"y\\", z"\n2,"z"\n', {"quote": '"', "escape": "\\"}),
    "UTF-16": ("a,b\n1,ü\n".encode("utf-16"), {"encoding": "utf-16"}),
    "no header": (b"1,2\n3,4\n", {"header": False}),
    "one column": (b"note\nx\ny\n", {"delimiter": None, "fields": 1}),
}


@pytest.mark.thorough
@pytest.mark.parametrize("case", FILES)
def test_the_printed_keys_read_the_file_alike(case: str, tmp_path: Path) -> None:
    content, facts = FILES[case]
    path = tmp_path / "people.csv"
    path.write_bytes(content)
    with sqlanon.connect(path) as db:
        inspection = db.inspect()
        again = db.inspect(csv=dict(inspection.csv))
    assert facts.items() <= inspection.to_dict()["files"][0].items()
    assert (again.rows, again.columns, again.csv) == (inspection.rows, inspection.columns, inspection.csv)
    with sqlanon.connect(path) as db:
        names = [column.name for column in inspection.columns]
        policy = make_policy(
            dict.fromkeys(names, "suppress"), k=1, table=None, source={"files": [str(path)], "csv": inspection.csv}
        )
        assert db.anonymize(policy, record=False).rows == inspection.rows


@pytest.mark.slow
def test_the_screen_shows_types_and_values_that_do_not_fit(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("id,age,born\n1,21,2001-02-03\n2,NA,2002-03-04\n3,45,unknown\n4,50,\n")
    done = cli("inspect", "people.csv", cwd=tmp_path)
    assert (done.status, done.err) == (0, "")
    assert [line.rstrip() for line in done.out.splitlines()] == [
        "people.csv: utf-8",
        '  delimiter ",", quote \'"\'',
        "  header on line 1, with 3 fields",
        "4 rows, 3 columns",
        'missing values: ""',
        "",
        "column  type     values  note",
        "id      BIGINT        4",
        'age     VARCHAR       4  75 % of the values are BIGINT; others: "NA" (1)',
        'born    VARCHAR       3  66.66 % of the values are DATE; others: "unknown" (1)',
        "",
        "[source.csv]",
        'encoding = "utf-8"',
        'delimiter = ","',
        "header = true",
        "skip = 0",
    ]


@pytest.mark.slow
def test_a_share_below_one_is_never_shown_as_one(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("id,age\n" + "1,21\n" * 30_000 + "2,4e\n")
    assert '99.99 % of the values are BIGINT; others: "4e" (1)' in cli("inspect", "people.csv", cwd=tmp_path).out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("value", "type_"), [("1.5", "DOUBLE"), ("2020-01-31", "DATE"), ("2020-01-31 10:00:00", "TIMESTAMP")]
)
def test_the_type_of_most_values_has_all_of_them(value: str, type_: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(f"a;b\n{value};1\nNA;2\n{value};3\n")
    assert f'66.66 % of the values are {type_}; others: "NA" (1)' in cli("inspect", "x.csv", cwd=tmp_path).out


@pytest.mark.slow
def test_a_refused_file_is_described_and_refused(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("Export\n\nage;sex;illness\n" + ROWS + "5;m\n" + ROWS)
    done = cli("inspect", "people.csv", cwd=tmp_path)
    assert done.status == 2
    assert done.out == (
        'people.csv: utf-8\n  delimiter ";", quote \'"\'\n'
        "  first line on line 3, with 3 fields\n"
        "  1 bad line: line 44 has 2\n"
    )
    assert "1 differs" not in done.out
    assert done.err.startswith(
        "error: source.files: people.csv: line 3 has 3 fields (delimiter ';'), and 1 line differs"
    )
    done = cli("inspect", "people.csv", "--csv", "on_bad_line=drop", "--json", cwd=tmp_path)
    document = json.loads(done.out)
    assert (done.status, document["rows"], document["refusal"]) == (0, 80, None)
    assert (document["files"][0]["bad_lines"], document["files"][0]["first_bad_lines"]) == (1, ["line 44 has 2"])
    assert document["csv"]["on_bad_line"] == "drop"
    with sqlanon.connect(tmp_path / "people.csv") as db:
        refused = db.inspect()
    assert (refused.rows, refused.columns, refused.files[0].bad_lines) == (None, (), 1)
    with sqlanon.connect(tmp_path / "people.csv") as db, pytest.raises(SourceError) as caught:
        db.suggest()
    assert refused.refusal == str(caught.value), "the refusal of the other verbs"


@pytest.mark.thorough
def test_several_files_have_the_keys_that_they_share(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("age;sex\n1;m\n")
    (tmp_path / "b.csv").write_text("x\nsex;age\nw;2\n")
    document = json.loads(cli("inspect", "a.csv", "b.csv", "--json", cwd=tmp_path).out)
    assert [(file["name"], file["skip"]) for file in document["files"]] == [("a.csv", 0), ("b.csv", 1)]
    assert document["csv"] == {"encoding": "utf-8", "delimiter": ";", "header": True}
    assert (document["rows"], [column["name"] for column in document["columns"]]) == (2, ["age", "sex"])


@pytest.mark.slow
def test_other_files_have_columns_and_no_csv_keys(tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        query = "SELECT 1 AS id, 'NA' AS age UNION ALL SELECT 2, '7' UNION ALL SELECT 3, '8'"
        connection.execute(f"COPY ({query}) TO '{tmp_path}/people.parquet'")
    (tmp_path / "people.json").write_text('[{"id": 1, "age": "NA"}, {"id": 2, "age": "7"}, {"id": 3, "age": "8"}]')
    for name in ("people.parquet", "people.json"):
        with sqlanon.connect(tmp_path / name) as db:
            inspection = db.inspect()
        assert (inspection.rows, inspection.files, inspection.missing, inspection.csv, inspection.toml()) == (
            3,
            (),
            None,
            {},
            "",
        )
        age = inspection.columns[1]
        assert (age.name, age.type, age.fits, age.others) == ("age", "VARCHAR", "BIGINT", {"NA": 1})


@pytest.mark.slow
def test_unknown_settings_are_refused(tmp_path: Path) -> None:
    duckdb.connect(str(tmp_path / "people.duckdb")).close()
    done = cli("inspect", "people.duckdb", cwd=tmp_path)
    assert (done.status, "only files can be inspected" in done.err) == (2, True)
    (tmp_path / "people.csv").write_text("a,b\n1,2\n")
    assert "no file matches" in cli("inspect", "other.csv", cwd=tmp_path).err
    with sqlanon.connect(tmp_path / "people.csv") as db, pytest.raises(PolicyError, match="unknown key 'skp'"):
        db.inspect(csv={"skp": 1})


def test_an_excel_file_is_shown_by_its_range(tmp_path: Path) -> None:
    rows = [*[[f"title {i}"] for i in range(5)], ["age", "sex"], [21, "m"], ["NA", "w"], [34, "w"]]
    write_workbook(tmp_path / "people.xlsx", rows)
    assert 'set table = "Patients!A6" under [source]' in cli("inspect", "people.xlsx", cwd=tmp_path).err
    done = cli("inspect", "people.xlsx", "Patients!A6", cwd=tmp_path)
    assert (done.status, done.err) == (0, "")
    assert [line.rstrip() for line in done.out.splitlines()] == [
        "3 rows, 2 columns",
        "",
        "column  type     values  note",
        'age     VARCHAR       3  66.66 % of the values are BIGINT; others: "NA" (1)',
        "sex     VARCHAR       3",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["survey.sav", "survey.dta", "survey.xpt", "missing_test.sas7bdat.gz"])
def test_files_of_statistics_programs_are_shown(name: str, tmp_path: Path) -> None:
    content = (FOLDER / name).read_bytes()
    path = tmp_path / name.removesuffix(".gz")
    path.write_bytes(gzip.decompress(content) if name.endswith(".gz") else content)
    done = cli("inspect", "--json", path.name, cwd=tmp_path)
    assert (done.status, done.err) == (0, "")
    document = json.loads(done.out)
    with sqlanon.connect(path) as db:
        assert document["rows"] == db.inspect().rows > 0
    assert {column["type"] for column in document["columns"]} & {"BIGINT", "DOUBLE"}


def test_lines_above_a_table_without_header_are_skipped_by_a_key(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("Title\n\n21;m\n22;f\n23;m\nTotal;3\n")
    keys = ["--csv", "header=false", "--csv", "delimiter=;", "--csv", "footer=1"]
    refused = cli("inspect", "people.csv", *keys, cwd=tmp_path)
    assert refused.status == 2 and "set skip = 2 under [source.csv]" in refused.err
    document = json.loads(cli("inspect", "people.csv", *keys, "--csv", "skip=2", "--json", cwd=tmp_path).out)
    assert (document["rows"], [column["type"] for column in document["columns"]]) == (3, ["BIGINT", "VARCHAR"])


@pytest.mark.slow
def test_value_labels_and_missing_codes_that_need_a_key_are_named(tmp_path: Path) -> None:
    pyreadstat = pytest.importorskip("pyreadstat")
    rows = {"age": [21.0, 53.0, -9.0], "sex": [1.0, 2.0, 1.0]}
    labels, missing = {"sex": {1.0: "male", 2.0: "female"}}, {"age": [{"lo": -9, "hi": -9}]}
    pandas = pytest.importorskip("pandas")
    file = tmp_path / "people.sav"
    pyreadstat.write_sav(pandas.DataFrame(rows), file, variable_value_labels=labels, missing_ranges=missing)
    (undecided,) = sqlanon.connect(file).inspect().undecided
    assert "1 column has value labels: sex (1 = male, 2 = female)" in undecided
    assert "1 column has user-missing values: age (1 value)" in undecided
    assert undecided.endswith('Assumed for this inspection: value_labels = ["sex"], user_missing = "missing"')
