"""``on_bad_line = "drop"`` leaves out the lines for which a file would be refused, and counts them."""

from __future__ import annotations

import csv as writers
import gzip
import io
import tracemalloc
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sqlanon
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError
from sqlanon.policy.sections import CsvSection
from sqlanon.sources.files import csv
from sqlanon.sources.files.bad_lines import DroppedLines, UnclearLinesError, copy_good_lines
from sqlanon.sources.files.csv_lines import Layout
from sqlanon.sources.files.scan import Scan
from sqlanon.support.expressions import table
from support.commands import cli
from support.lanes import examples
from support.policies import make_policy

HEADER = "age,sex,illness\n"
ROWS = "21,m,asthma\n53,w,flu\n" * 20
STRAY = "has a quote that is not closed, or text after a closing quote"


def read(path: Path, **keys: Any) -> tuple[list[tuple[Any, ...]], list[DroppedLines]]:
    """The rows of a file without its bad lines, and the dropped lines."""
    keys = {"on_bad_line": "drop", **keys}
    with duckdb.connect() as connection:
        engine = DuckDBEngine(connection).use_utc()
        layout = csv.copy_csv(Scan(engine, [str(path)], csv=CsvSection(**keys)), table("copy"))
        return connection.execute("FROM copy").fetchall(), list(layout.dropped_lines)


def refusal(path: Path, **keys: Any) -> str:
    with pytest.raises(SourceError) as caught:
        read(path, **keys)
    return str(caught.value).removeprefix(f"source.files: {path.name}: ")


DROPPED = {
    "several": ("1\n2,m\n" + ROWS + "3\n" * 5, [
        "line 42 has 1", "line 43 has 2", "line 84 has 1", "line 85 has 1", "line 86 has 1"]),
    "a short line": ("5,m\n", ["line 42 has 2"]),
    "a long line": ("5,m,flu,x\n", ["line 42 has 4"]),
    "a line that ends in a delimiter": ("5,m,flu,\n", ["line 42 has 4"]),
    "an empty value and a delimiter": ("5,m,,\n", ["line 42 has 4"]),
    "a title in the middle": ("Ward 7\n", ["line 42 has 1"]),
    "text after a quote": ('5,m,"6" pipe\n', [f"line 42 {STRAY}"]),
    "a quote that is not closed": ('5,m,"flu\n', [f"line 42 {STRAY}"]),
    "two quotes that are not closed": ('5,m,"flu\n' + ROWS + '6,w,"cold\n', [f"line 42 {STRAY}", f"line 83 {STRAY}"]),
    "two of them in a row": ('5,m,"flu\n6,w,"cold\n', [f"line 42 {STRAY}", f"line 43 {STRAY}"]),
    "a NUL byte": ("5,m,f\0lu\n", ["line 42 has a NUL byte"]),
    "a long record of two lines": ('5,m,"a note\nover two",x\n', ["line 42 has 4"]),
}  # fmt: skip


@pytest.mark.cases(1)
@pytest.mark.parametrize("case", DROPPED)
def test_bad_lines_are_dropped_and_no_others(case: str, tmp_path: Path) -> None:
    bad, expected = DROPPED[case]
    path = tmp_path / "people.csv"
    path.write_text(HEADER + ROWS + bad + ROWS)
    rows, (dropped,) = read(path)
    inside = 20 * bad.count(ROWS)
    assert rows == [(21, "m", "asthma"), (53, "w", "flu")] * (40 + inside)
    assert (dropped.file, dropped.examples) == ("people.csv", expected)
    assert dropped.count == (7 if case == "several" else len(expected))
    with pytest.raises(SourceError, match=r"line 42"):
        read(path, on_bad_line="refuse")


def test_the_last_line_is_dropped_where_it_is_cut(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text(HEADER + ROWS + "5,m")
    rows, (dropped,) = read(tmp_path / "people.csv")
    assert (len(rows), dropped.message) == (40, "people.csv: 1 bad line is dropped: line 42 has 2")


GOOD = {
    "a clean file": (HEADER + ROWS, 40),
    "quoted line ends": (HEADER + ROWS + '5,m,"a note\nin two lines, and with commas"\n', 41),
    "quoted delimiters": (HEADER + '5,m,"a, b"\n' * 3 + ROWS, 43),
    "doubled quotes": (HEADER + '5,m,"a ""b"", c"\n' * 3 + ROWS, 43),
    "quotes in the middle": (HEADER + ROWS + "5,m,a 6\" pipe\n", 41),
    "other quotes": (HEADER + "5,m,'a, b'\n" * 3 + ROWS, 43),
    "blank lines": (HEADER + ROWS + "\n\n" + ROWS + "\n", 80),
    "one column with delimiters": ("note\na\nb\n", 2),
    "titles": ("Export of 2026\n\n" + HEADER + ROWS, 40),
    "line ends of Windows": ((HEADER + ROWS).replace("\n", "\r\n"), 40),
    "a long value": (HEADER + ROWS + f"5,m,{'x' * 200_000}\n", 41),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", GOOD)
@pytest.mark.parametrize("bad", ["", "9,m\n"], ids=["alone", "with a bad line"])
def test_good_lines_are_kept(case: str, bad: str, tmp_path: Path) -> None:
    content, count = GOOD[case]
    bad = "" if content.startswith("note") else bad  # no line of one column has too few fields
    (tmp_path / "people.csv").write_bytes((content + bad).encode())
    keys = {"quote": "'"} if bad and case == "other quotes" else {}  # the file is refused without
    rows, dropped = read(tmp_path / "people.csv", **keys)
    assert len(rows) == count
    assert sum(file.count for file in dropped) == bool(bad)


@pytest.mark.thorough
def test_lines_far_behind_the_sample_are_found(tmp_path: Path) -> None:
    rows = 60_000
    lines = [HEADER, *("21,m,asthma\n" for _ in range(rows))]
    lines[43_558 - 1] = "21,m\n"
    lines[50_000 - 1] = '21,m,"flu\n'
    (tmp_path / "people.csv").write_text("".join(lines))
    read_rows, (dropped,) = read(tmp_path / "people.csv")
    assert len(read_rows) == rows - 2
    assert dropped.examples == ["line 43,558 has 2", f"line 50,000 {STRAY}"]


UNCLEAR = {
    "a row that may be text": (
        HEADER + ROWS + '5,m,"a note\n6,w,flu" bad\n' + ROWS,
        f"line 42 begins a record of 2 lines that {STRAY}, and some of these lines may be rows; correct its quotes",
    ),
    "a row that is quoted by apostrophes": (
        HEADER + '1,m,"a, b"\n' * 9 + ROWS + "5,m,'a, b'\n",
        "line 51 is a row where quotes are ', and a bad line where they are \" alone; set quote under [source.csv], or "
        "correct the line",
    ),
    "a row in two lines that is quoted by apostrophes": (
        HEADER + '1,m,"a, b"\n' * 9 + ROWS + "5,m,'a\nb'\n",
        "line 52 is a part of a row where quotes are ', and a bad line where they are \" alone; set quote under "
        "[source.csv], or correct the line",
    ),
    "a row whose lines are all bad": (
        HEADER + '1,m,"a, b"\n' * 9 + ROWS + "5,'a\nb\n\nc',flu\n" + ROWS,
        "line 51 is a part of a row where quotes are ', and a bad line where they are \" alone; set quote under "
        "[source.csv], or correct the line",
    ),
    "a row whose last line alone is good": (
        HEADER + '1,m,"a, b"\n' * 9 + ROWS + "'a\nb',m,flu\n" + ROWS,
        "line 51 is a part of a row where quotes are ', and a bad line where they are \" alone; set quote under "
        "[source.csv], or correct the line",
    ),
    "a row with a backslash before its quotes": (
        HEADER + '1,m,"a, b"\n' * 9 + ROWS + '5,m,"a 6\\" pipe"\n9\n',
        "line 51 is a row where quotes are \" with a backslash before them in values, and a bad line where they are \" "
        "alone; set quote under [source.csv], or correct the line",
    ),
    "a short header": ("age,sex\n" + ROWS, 'with on_bad_line = "drop", most lines would be dropped'),
    "an extra delimiter in the header": (
        "age,sex,illness,\n" + ROWS, 'with on_bad_line = "drop", most lines would be dropped'
    ),
    "mostly bad": (HEADER + "1,2,3\n" * 3 + "1,2\n" * 4, 'with on_bad_line = "drop", most lines would be dropped'),
    "rows inside of a quoted value": (
        HEADER + ROWS + '5,m,"flu\n6,w,cold\n7,m,gout"\n' + "9,m\n", "its lines look like separate rows"
    ),
    "another delimiter": ("note\na\nb,c\n", "the first 2 lines have no ',', and line 3 has"),
}  # fmt: skip


@pytest.mark.cases(4)
@pytest.mark.parametrize("case", UNCLEAR)
def test_a_file_is_refused_where_it_is_unclear_which_lines_are_bad(case: str, tmp_path: Path) -> None:
    content, message = UNCLEAR[case]
    (tmp_path / "people.csv").write_text(content)
    assert message in refusal(tmp_path / "people.csv")


def test_more_bad_lines_than_rows_are_not_dropped(tmp_path: Path) -> None:
    path, good = tmp_path / "people.csv", HEADER + "1,m,flu\n" * 3
    path.write_text(good + "1,m\n" * 3)
    rows, (dropped,) = read(path)
    assert (len(rows), dropped.count) == (3, 3)
    path.write_text(good + "1,m\n" * 4)
    assert "most lines would be dropped" in refusal(path)


@pytest.mark.slow
def test_utf_16_without_a_mark_is_refused(tmp_path: Path) -> None:
    for header in ("age,sex,illness\n", '"age","sex","illness"\n'):
        (tmp_path / "people.csv").write_bytes((header + ROWS).encode("utf-16-le"))
        message = refusal(tmp_path / "people.csv", delimiter=",")
        assert 'set encoding = "utf-16-le" under [source.csv]' in message


@pytest.mark.slow
def test_packed_files_lose_their_bad_lines(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "people.csv.gz", "wt") as file:
        file.write(HEADER + ROWS + "5\n" + ROWS)
    rows, (dropped,) = read(tmp_path / "people.csv.gz")
    assert (len(rows), dropped.message) == (80, "people.csv.gz: 1 bad line is dropped: line 42 has 1")


def test_files_that_only_the_engine_opens_keep_their_refusal(tmp_path: Path) -> None:
    text = HEADER + ROWS + "5\n" + ROWS
    with duckdb.connect() as connection:
        copy = f"COPY (SELECT unnest(string_split(?, chr(10))) AS l) TO '{tmp_path}/people.csv.zst'"
        connection.execute(f"{copy} (HEADER false, QUOTE '', DELIMITER '\x1f', COMPRESSION zstd)", [text.rstrip("\n")])
    with pytest.raises(SourceError, match=r"plain or as \.gz"):
        read(tmp_path / "people.csv.zst")


# --- random files

texts = st.text(st.sampled_from('abz ,;"\n'), max_size=6)
BAD = ["short", "long", "nul", "closed"]


@pytest.mark.thorough
@settings(max_examples=examples(300))
@given(
    rows=st.lists(st.tuples(texts, texts, texts), min_size=6, max_size=14),
    bad=st.dictionaries(st.integers(0, 13), st.sampled_from(BAD), max_size=3),
    delimiter=st.sampled_from([",", ";"]),
    newline=st.sampled_from(["\n", "\r\n"]),
)
def test_the_rows_without_bad_lines_are_read_back_or_refused(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, str, str]],
    bad: dict[int, str],
    delimiter: str,
    newline: str,
) -> None:
    path = tmp_path_factory.mktemp("random") / "people.csv"
    text = io.StringIO(newline="")
    writer = writers.writer(text, delimiter=delimiter, lineterminator=newline)
    writer.writerow(["first", "second", "third"])
    rows = [("a" + first, second, "z" + third) for first, second, third in rows]
    lines = {
        "short": f"x{delimiter}y", "long": f"x{delimiter}y{delimiter}z{delimiter}",
        "nul": f"x{delimiter}\0{delimiter}z", "closed": f'x{delimiter}"y"y{delimiter}z',
    }  # fmt: skip
    for i, row in enumerate(rows):
        if i in bad:
            text.write(lines[bad[i]] + newline)
        writer.writerow(row)
    path.write_text(text.getvalue(), newline="")
    count = sum(i < len(rows) for i in bad)
    keys: dict[str, Any] = {"delimiter": delimiter, "quote": '"', "header": True, "skip": 0}
    read_rows, dropped = read(path, **keys)
    assert [tuple(value or "" for value in row) for row in read_rows] == rows
    assert sum(file.count for file in dropped) == count
    try:
        detected, dropped = read(path)
    except SourceError:
        return
    if dropped:
        assert ([tuple(value or "" for value in row) for row in detected], dropped[0].count) == (rows, count)


@settings(max_examples=examples(300))
@given(
    st.lists(
        st.sampled_from(["1,2,3\n", "1,2\n", '1,"2,3\n', '1,"a\nb",3\n', '1,"2"x,3\n', "\n", '"1",,""\n']), max_size=12
    )
)
def test_no_line_is_lost_or_changed(parts: list[str]) -> None:
    """The copy has the lines of the original without the dropped ones, in order, and each record in it is good."""
    lines = "".join(["a,b,c\n", *parts]).splitlines(keepends=True)
    target = io.StringIO(newline="")
    try:
        dropped = copy_good_lines(lines, Layout(","), target, "people.csv", has_given_quote=True)
    except UnclearLinesError:
        return
    remaining_lines = target.getvalue().splitlines(keepends=True)
    all_lines = iter(lines)
    assert all(line in all_lines for line in remaining_lines), "they are some of the lines, in their order"
    records = [
        record for record in writers.reader(io.StringIO("".join(remaining_lines), newline=""), strict=True) if record
    ]
    assert {len(record) for record in records} == {3}
    assert len(records) == dropped.rows + 1
    assert (dropped.count == 0) == (remaining_lines == lines)
    plain = [part for part in parts if part in ("1,2,3\n", '"1",,""\n')]
    if not any('1,"2,3' in part or "\nb" in part for part in parts):
        assert dropped.rows == len(plain)


lines_of_files = st.lists(
    st.sampled_from(
        ["1,2,3\n"] * 4
        + ["1,2\n", "1,2,3,\r\n", "\n", "\r", "#a,b,c\n", "#,\n", "x\0y,2,3\n", "1,2,\\\n", "1,'2,3\n", "1,'2','3'\r"]
        + ['1,"2,3\n', '"1\n', '2",3,4\n', '1,"a\n', 'b",3\n', '1,"2"x,3\n', '"1",,""\n', '1,"a\\"b",3\n', '"\0",2,3\n']
    ),
    max_size=30,
)
layouts = st.builds(
    Layout,
    st.just(","),
    quote=st.sampled_from(['"', "'", ""]),
    escape=st.sampled_from(["", '"', "\\"]),
    skip=st.sampled_from([0, 0, 1]),
    comment=st.sampled_from(["", "", "#"]),
)


@pytest.mark.slow
@settings(max_examples=examples(1_000))
@given(lines_of_files, layouts, st.booleans(), st.one_of(st.none(), st.integers(1, 30)), st.integers(1, 8))
def test_runs_of_lines_are_copied_as_their_records_are(
    lines: list[str], layout: Layout, has_given_quote: bool, read_lines: int | None, run_lines: int
) -> None:
    def copy(run_lines: int) -> tuple[str, object]:
        target = io.StringIO(newline="")
        text = io.StringIO("".join(["a,b,c\n", *lines]), newline="")
        try:
            dropped = copy_good_lines(text, layout, target, "people.csv", has_given_quote, read_lines, run_lines)
        except UnclearLinesError as error:
            return "", str(error)
        return target.getvalue(), dropped

    assert copy(run_lines) == copy(0)


@pytest.mark.thorough
def test_a_large_file_needs_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    with path.open("w") as file:
        file.writelines(f"{i},m,asthma {i}\n" if i % 1000 else "1\n" for i in range(-1, 300_000))
    size = path.stat().st_size
    with path.open() as lines, (tmp_path / "copy.csv").open("w") as target:
        tracemalloc.start()
        dropped = copy_good_lines(lines, Layout(","), target, "people.csv")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert (dropped.count, dropped.rows) == (300, 299_700)
    assert peak < size / 10


# --- the verbs

POLICY = """
[source]
files = "people.csv"
[source.csv]
on_bad_line = "drop"
[attributes]
age = { role = "quasi", hierarchy = { intervals = [10, 20] } }
sex = { role = "quasi", hierarchy = "suppress" }
illness = { role = "sensitive" }
[privacy]
k = 5
[release]
database = "release.duckdb"
"""
WARNING = "source.csv: people.csv: 2 bad lines are dropped: line 42 has 2, line 83 has 4"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "people.csv").write_text(HEADER + ROWS + "5,m\n" + ROWS + "6,w,flu,\n" + ROWS)
    (tmp_path / "policy.toml").write_text(POLICY)
    return tmp_path


@pytest.mark.slow
def test_anonymize_warns_and_the_manifest_counts(folder: Path) -> None:
    done = cli("anonymize", "policy.toml", "--json", cwd=folder)
    assert done.status == 0
    assert done.err.startswith(f"warning: {WARNING}")
    assert '"dropped_lines": 2' in done.out
    with duckdb.connect(str(folder / "release.duckdb"), read_only=True) as release:
        assert release.execute("SELECT rows, dropped_lines FROM sqlanon.manifest").fetchall() == [(120, 2)]
    verified = cli("verify", "release.duckdb", "--policy", "policy.toml", cwd=folder)
    assert verified.status == 0
    assert "against the source: dropped lines" in verified.out
    assert "2 bad lines are dropped from the source" in verified.out


@pytest.mark.thorough
def test_verify_finds_a_source_with_other_bad_lines(folder: Path) -> None:
    assert cli("anonymize", "policy.toml", cwd=folder).status == 0
    with (folder / "people.csv").open("a") as file:
        file.write("7\n")
    verified = cli("verify", "release.duckdb", "--policy", "policy.toml", cwd=folder)
    assert verified.status == 1
    assert "3 bad lines are dropped from the source, the release claims 2" in verified.out


def test_risk_and_plan_warn(folder: Path) -> None:
    for verb in ("risk", "plan"):
        done = cli(verb, "policy.toml", cwd=folder)
        assert (done.status, f"warning: {WARNING}" in done.err) == (0, True), verb


@pytest.mark.thorough
def test_plan_reports_how_far_it_reads(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text(HEADER + "5,m\n" + "21,m,asthma\n" * 30_000 + "5\n")
    (tmp_path / "policy.toml").write_text(POLICY)
    done = cli("plan", "policy.toml", cwd=tmp_path)
    assert "people.csv: 1 bad line is dropped of the first 20,480 lines: line 2 has 2" in done.err


@pytest.mark.thorough
def test_a_manifest_has_no_count_unless_the_policy_drops_lines(folder: Path) -> None:
    (folder / "people.csv").write_text(HEADER + ROWS)
    assert cli("anonymize", "policy.toml", cwd=folder).err == ""
    with duckdb.connect(str(folder / "release.duckdb"), read_only=True) as release:
        assert release.execute("SELECT dropped_lines FROM sqlanon.manifest").fetchall() == [(0,)]
    (folder / "policy.toml").write_text(POLICY.replace('on_bad_line = "drop"', "skip = 0"))
    assert cli("anonymize", "policy.toml", cwd=folder).status == 0
    with duckdb.connect(str(folder / "release.duckdb"), read_only=True) as release:
        assert release.execute("SELECT dropped_lines FROM sqlanon.manifest").fetchall() == [(None,)]


@pytest.mark.slow
def test_bad_lines_of_several_files_are_reported_by_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(HEADER + ROWS + "1\n")
    (tmp_path / "b.csv").write_text(HEADER + ROWS)
    (tmp_path / "c.csv").write_text("illness,sex,age\n" + "asthma,m,21\n" * 9 + "2\n3\n")
    policy = make_policy(
        {"age": {"intervals": [10]}, "sex": "suppress", "illness": "sensitive"},
        table=None,
        source={"files": [str(tmp_path / "*.csv")], "csv": {"on_bad_line": "drop"}},
    )
    with sqlanon.connect() as db:
        result = db.anonymize(policy, record=False)
        assert result.rows == 89
        assert result.dropped_lines == 3
        messages = [warning for warning in result.warnings if "bad line" in warning]
        assert messages == [
            "source.csv: c.csv: 2 bad lines are dropped: line 11 has 1, line 12 has 1",
            "source.csv: a.csv: 1 bad line is dropped: line 42 has 1",
        ]


def test_a_value_that_does_not_fit_is_found_by_its_line_in_the_file(tmp_path: Path) -> None:
    """Bad lines above it count, and a quote that is not closed hides nothing."""
    (tmp_path / "people.csv").write_text(HEADER + ROWS + "1\n" + '2,m,"flu\n' + ROWS + "old,m,flu\n")
    age = {"role": "quasi", "type": "integer", "hierarchy": {"intervals": [10]}}
    policy = make_policy(
        {"age": age, "sex": "suppress", "illness": "sensitive"},
        table=None,
        source={"files": [str(tmp_path / "people.csv")], "csv": {"on_bad_line": "drop"}},
    )
    with sqlanon.connect() as db, pytest.raises(SourceError, match="line 84"):
        db.anonymize(policy, record=False)
