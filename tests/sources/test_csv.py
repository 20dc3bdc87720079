"""CSV files are read in one pass, and as if the whole file had been looked at before."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError
from sqlanon.sources.files import csv
from sqlanon.sources.files.scan import Scan
from sqlanon.support.expressions import table
from support.databases import DUCKDB_1, connection_of
from support.lanes import some
from support.policies import make_policy


def write(path: Path, content: str) -> str:
    path.write_text(content, encoding="utf-8", newline="")
    return str(path)


LATE = [
    *(("1", late) for late in ("1.5", "1.0", "1e3", "02", "+2", " 2", "-0", "1_0", "0x10", "true", "", '""', "NULL")),
    *(("1", late) for late in ("9223372036854775808", "123456789012345678", "99999999999999999999")),
    *(("1.5", late) for late in ("1", "02", "00.5", ".5", "5.", "1e400", "nan", "1_0.5", "0x10", '"1,5"')),
    *(("true", late) for late in ("TRUE", "t", "1", "yes", "no", "")),
    *(("2020-01-01", late) for late in ("2020-1-1", "2020-01-01 10:00:00", "01/02/2020", "20200101", "2020-02-30")),
    *(("01/02/2020", late) for late in ("13/02/2020", "02/13/2020", "2020-02-01")),
    *(("2020-01-01 10:00:00", late) for late in ("2020-01-01", "2020-01-01T10:00:00Z", "2020-1-1 9:05 ")),
    *(("10:00:00", late) for late in ("10:00", "10:00:00.5", "2020-01-01 10:00:00", "10:00:00+02")),
    *(("", late) for late in ("1", "1.5", "true", "2020-01-01", "abc")),
    *(("abc", late) for late in ('"a"', '"a""b"', '"a\\"b"', '"a\nb"', "#x", '5" pipe', "1")),
    *(('"a"', late) for late in ('"b""c"', '"b\\"c"', "b")),
]
"""What most values of a column are, and a late one of another kind."""


def copy_file(path: str, as_a_whole: bool = False) -> tuple[Any, bool]:
    """Copied text of a file with a column x, and whether the whole file was sniffed for it."""
    queries: list[str] = []
    with duckdb.connect() as connection:
        engine = DuckDBEngine(connection).use_utc()
        real = engine.rows
        engine.rows = lambda query, *more: (queries.append(query.sql("duckdb")), real(query, *more))[1]
        with pytest.MonkeyPatch.context() as patch:
            if as_a_whole:
                patch.setattr(csv, "_copy_by_sample", lambda *_: None)
            layout = csv.copy_csv(Scan(engine, [path], (), {"x", "y"}), table("copy"))
        rows = connection.execute("SELECT typeof(x), CAST(x AS VARCHAR), y, count(*) FROM copy GROUP BY ALL").fetchall()
        return (Counter(rows), dict(layout.columns)), any("sample_size = -1" in statement for statement in queries)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("first", "late"), [pytest.param(*pair, marks=[pytest.mark.slow] if i % 6 else []) for i, pair in enumerate(LATE)]
)
def test_a_late_value_is_read_as_if_the_whole_file_had_been_looked_at(tmp_path: Path, first: str, late: str) -> None:
    path = write(tmp_path / "people.csv", "x,y\n" + f"{first},a\n" * 5_000 + f"{late},b\n")
    assert copy_file(path)[0] == copy_file(path, as_a_whole=True)[0]


STRANGE = [
    *(("2020-01-01 10:00:00", f"2020-01-01 10:00:00 {word}") for word in ("foo", "BC", "Europe/Berlin")),
    ("2020-01-01 10:00:00", "2020-01-01 10:00:00+02"),
    ("2020-01-01 10:00:00+02", "2020-01-01 10:00:00"),
    *(("2020-01-01", late) for late in ("2020-01-01 (BC)", "epoch")),
    *(("13/02/2020", "13/02/20"), ("01/02/2020", "01/02/20")),
]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("first", "late"),
    [pytest.param(*pair, marks=[pytest.mark.slow] if i % 7 else []) for i, pair in enumerate(STRANGE)],
)
def test_a_late_date_that_a_cast_would_change_is_refused_with_its_place(tmp_path: Path, first: str, late: str) -> None:
    path = write(tmp_path / "people.csv", "y,x\n" + f"a,{first}\n" * 5_000 + f"b,{late}\n" + f"a,{first}\n")
    for as_a_whole in (False, True):
        try:
            (values, types), _ = copy_file(path, as_a_whole)
        except SourceError as error:
            assert "people.csv: column 'x' is read as " in str(error)
            assert "cannot hold 1 value (row 5,001) as written" in str(error)
            assert "attributes.x" in str(error)
        else:  # an older DuckDB takes some of these for text
            assert DUCKDB_1
            assert (types["x"], values["VARCHAR", late, "b", 1]) == ("VARCHAR", 1)


@pytest.mark.cases(1)
@pytest.mark.parametrize("late", [f"2020-01-01 10:00:00 {word}" for word in ("BC", "foo")])
def test_a_word_beside_a_late_date_is_never_dropped(tmp_path: Path, late: str) -> None:
    """Also where dates without a time come first: then the column is text."""
    path = write(tmp_path / "people.csv", "x,y\n" + "2020-01-01,a\n" * 5_000 + f"{late},b\n")
    try:
        (values, types), _ = copy_file(path)
    except SourceError as error:
        assert "column 'x'" in str(error)
    else:
        assert (types["x"], values["VARCHAR", late, "b", 1]) == ("VARCHAR", 1)


LIKE = [
    ("1", "-20", ""),
    ("1.5", "2", "-1e+5"),
    ("true", "FALSE"),
    ("a", "", "1", '"b,c"'),
    ("2020-01-01", "1999-12-31"),
    ("01/02/2020", "13/02/2020"),
    ("2020-01-01 10:00:00", "2020-01-01"),
    ("10:00:00", ""),
]


@pytest.mark.thorough
@pytest.mark.parametrize("values", some([(value,) for value in LIKE], 2), ids=str)
def test_a_file_like_its_first_rows_is_read_once(tmp_path: Path, values: tuple[str, ...]) -> None:
    lines = [f"{values[i % len(values)]},a\n" for i in range(6_000)]
    path = write(tmp_path / "people.csv", "x,y\n" + "".join(lines))
    content, whole = copy_file(path)
    assert not whole
    assert content == copy_file(path, as_a_whole=True)[0]


@pytest.mark.thorough
def test_columns_that_are_not_released_are_not_copied(tmp_path: Path) -> None:
    """All but the one that distinguishes persons. The policy is compared with all existing ones."""
    lines = [f"Person {i},{i % 2},{i},x,{i // 2}\n" for i in range(8)]
    path = write(tmp_path / "people.csv", "name,age,cost,more,Id\n" + "".join(lines))
    roles = {"name": "identifying", "Age": "suppress", "cost": "insensitive"}
    source = {"undeclared": "drop", "person": "id"}
    with sqlanon.connect(path) as db:
        result = db.anonymize(make_policy(roles, source=source))
        released = result.publish(tmp_path / "release.duckdb", "released").manifest.columns
        assert [column.name for column in released] == ["age", "cost"]
        copy = connection_of(db).execute("SELECT column_name FROM duckdb_columns() WHERE table_name = 'source_copy'")
        assert copy.fetchall() == [("age",), ("cost",), ("Id",)]
    with sqlanon.connect(path) as db, pytest.raises(SourceError, match="without a role: 'more', 'Id'"):
        db.anonymize(make_policy(roles, table=None))
    with sqlanon.connect(path) as db, pytest.raises(SourceError, match="without a column in the source: 'nobody'"):
        db.anonymize(make_policy({**roles, "nobody": "sensitive"}, source=source))


@pytest.mark.thorough
@pytest.mark.parametrize("line", ["1", "1,2,3", "1,2,3,4"])
def test_a_late_line_of_another_length_is_refused(tmp_path: Path, line: str) -> None:
    """This holds even if the extra or missing columns are not needed."""
    path = write(tmp_path / "people.csv", "age,more\n" + "1,2\n" * 6_000 + f"{line}\n")
    with sqlanon.connect(path) as db, pytest.raises(SourceError, match="1 line differs: line 6,002 has"):
        db.anonymize(make_policy({"age": "suppress"}, source={"undeclared": "drop"}))


@pytest.mark.thorough
def test_several_files_that_are_alike_only_at_first(tmp_path: Path) -> None:
    write(tmp_path / "a1.csv", "x,y\n" + "1,a\n" * 5_000)
    write(tmp_path / "a2.csv", "x,y\n" + "1,a\n" * 5_000 + "1.5,a\n" * 2)
    with sqlanon.connect(tmp_path / "a*.csv") as db:
        db.anonymize(make_policy({"x": "suppress", "y": "suppress"}, table=None))
        rows = connection_of(db).execute("SELECT x, y, count(*) FROM sqlanon_work.run_1.source_copy GROUP BY ALL")
        assert sorted(rows.fetchall()) == [("1", "a", 10_000), ("1.5", "a", 2)], "of different types, they are text"


@pytest.mark.thorough
def test_rows_of_a_large_file_are_copied_to_a_private_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "people.csv", "x,y\n" + "".join(f"{i % 7},{i % 3}\n" for i in range(400)))
    policy = make_policy({"x": "suppress", "y": "insensitive"}, table=None)
    digests = []
    for large in (10**9, 0):
        monkeypatch.setattr("sqlanon.sources.source.LARGE_FILE_BYTES", large)
        with sqlanon.connect(path) as db:
            digests.append(db.anonymize(policy).publish(tmp_path / f"{large}.duckdb", "released").manifest.digest)
            copies = "SELECT path FROM duckdb_databases() WHERE database_name LIKE 'sqlanon_work_run_%'"
            files = [Path(file) for (file,) in connection_of(db).execute(copies).fetchall()]
            assert len(files) == (large == 0)
            assert all(file.is_file() and file.parent.stat().st_mode & 0o777 == 0o700 for file in files)
    assert not files[0].exists()
    assert not files[0].parent.exists()
    assert digests[0] == digests[1]
