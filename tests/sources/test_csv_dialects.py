"""Several CSV files, each written in its own way: no row is lost, and no value changes."""

from __future__ import annotations

import datetime
import gzip
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sqlanon
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError
from sqlanon.sources.files import csv
from sqlanon.sources.files.scan import Scan
from sqlanon.support.expressions import table
from support.lanes import examples
from support.policies import make_policy

COLUMNS = ("name", "age", "diagnosis")
Row = tuple[str, int, str]


@dataclass(frozen=True)
class Dialect:
    newline: str = "\n"
    delimiter: str = ","
    quote: str = ""
    above: str = ""  # lines above the header, each with an end
    columns: tuple[str, ...] = COLUMNS
    final_newline: bool = True

    def write(self, path: Path, rows: list[Row]) -> str:
        values = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
        lines = [self.delimiter.join(self.columns)]
        lines += [self.delimiter.join(self._quoted(row[name]) for name in self.columns) for row in values]
        content = self.above + "\n".join(lines) + "\n" * self.final_newline
        path.write_bytes(content.replace("\n", self.newline).encode())
        return str(path)

    def _quoted(self, value: str | int) -> str:
        return f"{self.quote}{value}{self.quote}" if isinstance(value, str) else str(value)


def people(first: int, last: int, prefix: str = "n") -> list[Row]:
    return [(f"{prefix}{i}", i % 3, f"ill{i % 5}") for i in range(first, last)]


def copied_rows(paths: list[str]) -> Counter[tuple[object, ...]]:
    with duckdb.connect() as connection:
        engine = DuckDBEngine(connection).use_utc()
        csv.copy_csv(Scan(engine, paths, (), set(COLUMNS)), table("copy"))
        return Counter(connection.execute(f"SELECT {', '.join(COLUMNS)} FROM copy").fetchall())


def refusal(paths: list[str]) -> str:
    roles = {"name": "identifying", "age": "suppress", "diagnosis": "insensitive"}
    with sqlanon.connect() as db, pytest.raises(SourceError) as caught:
        db.anonymize(make_policy(roles, source={"files": paths}, k=1))
    return str(caught.value)


@pytest.mark.slow
def test_only_the_dates_of_wanted_columns_are_written_alike(tmp_path: Path) -> None:
    for name, day in (("a", "02/13/2026"), ("b", "13/02/2026")):
        (tmp_path / f"{name}.csv").write_text("age,seen\n" + f"1,{day}\n2,{day}\n")
    paths = [str(tmp_path / f"{name}.csv") for name in "ab"]
    for wanted, is_read in (({"age"}, True), ({"age", "seen"}, False), (set[str](), False)):
        with duckdb.connect() as connection:
            engine = DuckDBEngine(connection).use_utc()
            if is_read:
                csv.copy_csv(Scan(engine, paths, (), wanted), table("copy"))
                assert connection.execute("SELECT age FROM copy ORDER BY age").fetchall() == [(1,), (1,), (2,), (2,)]
            else:
                with pytest.raises(SourceError, match=r"a\.csv writes dates as %m/%d/%Y, and b\.csv"):
                    csv.copy_csv(Scan(engine, paths, (), wanted), table("copy"))


DIALECTS = [
    Dialect(newline="\r\n"),
    Dialect(newline="\r"),
    Dialect(newline="\r\n", final_newline=False),
    Dialect(newline="\r\n", quote='"'),
    Dialect(above="Export of 2001\n"),
    Dialect(above="Export of 2001\nward 3\n", columns=("diagnosis", "name", "age")),
    Dialect(above="\n"),
    Dialect(above="# a comment\n"),
    Dialect(quote="'"),
    Dialect(quote='"'),
    Dialect(delimiter=";"),
    Dialect(delimiter="\t", newline="\r\n"),
]


@pytest.mark.slow
@pytest.mark.parametrize("first", [False, True], ids=["second", "first"])
@pytest.mark.parametrize("dialect", DIALECTS, ids=repr)
def test_each_file_is_read_in_its_own_dialect(dialect: Dialect, first: bool, tmp_path: Path) -> None:
    dialects = [dialect, Dialect()] if first else [Dialect(), dialect]
    paths = [dialect.write(tmp_path / f"f{i}.csv", people(50 * i, 50 * (i + 1))) for i, dialect in enumerate(dialects)]
    assert copied_rows(paths) == Counter(people(0, 100))


def test_comment_lines_of_a_file_cost_no_rows_of_another(tmp_path: Path) -> None:
    first = Dialect().write(tmp_path / "f0.csv", people(0, 25))
    with Path(first).open("a") as file:
        file.write("# half\n" + "".join(f"{name},{age},{ill}\n" for name, age, ill in people(25, 50)))
    second = Dialect().write(tmp_path / "f1.csv", people(50, 100, prefix="#n"))
    assert copied_rows([first, second]) == Counter(people(0, 50) + people(50, 100, prefix="#n"))


@pytest.mark.slow
@pytest.mark.parametrize("row", ["#n,1,ill1", "n,1,ill #1"])
def test_rows_that_look_like_comments_are_refused(row: str, tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text(",".join(COLUMNS) + "\nn0,1,ill1\n" * 20 + "# half\n" + f"{row}\n" * 3)
    message = refusal([str(path)])
    assert "people.csv has comments after #, and # also occurs in 3 lines that may be rows" in message
    path.write_text(path.read_text().replace("# half\n", ""))
    assert copied_rows([str(path)]).total() == 23


def test_quoted_number_sign_does_not_start_a_comment(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text(",".join(COLUMNS) + "\nn0,1,ill1\n" * 20 + "# half\n" + 'n0,1,"ill #1"\n' * 3)
    assert copied_rows([str(path)]) == {("n0", 1, "ill1"): 20, ("n0", 1, "ill #1"): 3}


def test_short_first_rows_without_a_header_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("1,2\n" + "1,2,3\n" * 20)
    assert "people.csv: line 1 has 2 fields (delimiter ','), and the 20 lines below it have 3" in refusal([str(path)])


@pytest.mark.cases(2)
@pytest.mark.parametrize("headers", [(False, False), (True, False), (False, True)], ids=str)
def test_several_files_without_headers_are_refused(headers: tuple[bool, bool], tmp_path: Path) -> None:
    """Their columns have positions only: in another order, names would be released as diagnoses."""
    orders = [COLUMNS, ("diagnosis", "age", "name")]
    paths = [Dialect(columns=order).write(tmp_path / f"f{i}.csv", people(0, 50)) for i, order in enumerate(orders)]
    for path, header in zip(paths, headers, strict=True):
        if not header:
            Path(path).write_text(Path(path).read_text().split("\n", 1)[1])
    message = refusal(paths)
    without = " and ".join(f"f{i}.csv" for i, header in enumerate(headers) if not header)
    assert f"{without} {'has' if any(headers) else 'have'} no header line" in message
    assert "give each file a header line, or name one file" in message


@pytest.mark.slow
@pytest.mark.parametrize("content", ["", "\n", "  \r\n \r\n", "\ufeff"], ids=repr)
@pytest.mark.parametrize("name", ["a.csv", "z.csv", "z.csv.gz"])
def test_an_empty_file_is_named_as_empty(name: str, content: str, tmp_path: Path) -> None:
    rows = Dialect().write(tmp_path / "people.csv", people(0, 50))
    packed = gzip.compress(content.encode()) if name.endswith("gz") else content.encode()
    (tmp_path / name).write_bytes(packed)
    assert refusal([str(tmp_path / name), rows]) == f"{name} is empty: it has no header and no rows"


@pytest.mark.cases(1)
@pytest.mark.parametrize(
    "lines",
    ['"","type"\n"1","NA"\n"2","car"\n', '"","type"\n', '"","1","2"\n"a",3,4\n"b",5,6\n', '"","n"\n1,NA\n2,3\n3,4\n'],
)
def test_a_first_line_that_may_be_a_header_is_refused(lines: str, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text(lines)
    assert "line 1 may be the header or a row of the data; set header" in refusal([str(tmp_path / "people.csv")])


def write_dates(path: Path, days: list[str]) -> str:
    path.write_text("name,age,diagnosis\n" + "".join(f"n{i},1,{day}\n" for i, day in enumerate(days)))
    return str(path)


@pytest.mark.cases(1)
@pytest.mark.parametrize("first", ["early days", "late days"])
def test_the_days_of_one_file_show_the_format_of_another(first: str, tmp_path: Path) -> None:
    """02/03/2001 alone may be of February or of March."""
    days = {"early days": ["02/03/2001", "02/04/2001"], "late days": ["02/13/2001", "02/14/2001"]}
    order = [first, *({*days} - {first})]
    paths = [write_dates(tmp_path / f"f{i}.csv", days[name]) for i, name in enumerate(order)]
    expected = {datetime.date(2001, 2, day) for day in (3, 4, 13, 14)}
    assert {day for _, _, day in copied_rows(paths)} == expected


def test_formats_of_dates_that_differ_are_named(tmp_path: Path) -> None:
    paths = [write_dates(tmp_path / "f0.csv", ["13/02/2001"] * 3), write_dates(tmp_path / "f1.csv", ["02/13/2001"] * 3)]
    message = refusal(paths)
    assert "f0.csv writes dates as %d/%m/%Y, and f1.csv writes dates as %m/%d/%Y, in column 'diagnosis'" in message


@pytest.mark.slow
def test_dates_that_no_policy_names_may_have_any_format(tmp_path: Path) -> None:
    paths = [write_dates(tmp_path / "f0.csv", ["13/02/2001"] * 3), write_dates(tmp_path / "f1.csv", ["02/13/2001"] * 3)]
    with duckdb.connect() as connection:
        csv.copy_csv(Scan(DuckDBEngine(connection).use_utc(), paths, (), {"name", "age"}), table("copy"))
        assert connection.execute("SELECT count(*), count(name), sum(age) FROM copy").fetchall() == [(6, 6, 6)]


dialects = st.builds(
    Dialect,
    newline=st.sampled_from(["\n", "\r\n", "\r"]),
    delimiter=st.sampled_from([",", ";", "\t", "|"]),
    quote=st.sampled_from(["", "'", '"']),
    above=st.sampled_from(["", "\n", "Export of 2001\n", "Export of 2001\nward 3\n", "# a comment\n"]),
    columns=st.permutations(COLUMNS).map(tuple),
    final_newline=st.booleans(),
)


@pytest.mark.thorough
@settings(max_examples=examples(40))
@given(st.lists(st.tuples(dialects, st.integers(1, 30)), min_size=1, max_size=4))
def test_no_row_of_any_dialect_is_lost(
    tmp_path_factory: pytest.TempPathFactory, files: list[tuple[Dialect, int]]
) -> None:
    folder = tmp_path_factory.mktemp("files")
    rows = [people(100 * i, 100 * i + count) for i, (_, count) in enumerate(files)]
    paths = [dialect.write(folder / f"f{i}.csv", rows[i]) for i, (dialect, _) in enumerate(files)]
    assert copied_rows(paths) == Counter(row for part in rows for row in part)


def test_sql_for_people_reads_all_rows_of_all_files(tmp_path: Path) -> None:
    """Without `union_by_name`, DuckDB reads the second file with the lines to skip of the first."""
    Dialect(above="Export of 2001\n").write(tmp_path / "f0.csv", people(0, 50))
    Dialect().write(tmp_path / "f1.csv", people(50, 100))
    roles = {"name": "insensitive", "age": "suppress", "diagnosis": "sensitive"}
    policy = make_policy(roles, source={"files": [str(tmp_path / "*.csv")]}, k=1)
    with sqlanon.connect() as db:
        release = db.anonymize(policy).publish(tmp_path / "release.duckdb", "released")
    script = sqlanon.attack_sql(release.path, policy, only=["minimality"])
    (view,) = re.findall(r"^CREATE.*read_csv.*;$", script, re.MULTILINE | re.IGNORECASE)
    (reader,) = re.findall(r"read_csv\(.*\)", view, re.IGNORECASE)
    with duckdb.connect() as connection:
        assert connection.execute(f"SELECT count(*) FROM {reader}").fetchall() == [(100,)]
