"""Excel files: the table that a person sees in a sheet, or a refusal with the cell and the key that decides."""

from __future__ import annotations

import datetime
import io
from pathlib import Path
from typing import Any

import duckdb
import openpyxl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sqlanon
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import HierarchyError, SourceError
from sqlanon.policy import SourceSection
from sqlanon.sources.files.binding import bind_files
from sqlanon.sources.files.workbook import column_letters
from sqlanon.sources.source import WorkNames
from sqlanon.support.expressions import table
from support.lanes import examples
from support.policies import make_policy
from support.published_tables import publish_and_read
from support.workbooks import raw_workbook, workbook, write_workbook

DAY = datetime.date(2020, 1, 31)
NOON = datetime.datetime(2020, 1, 31, 12, 0, 1)
HEADER = ["age", "sex", "illness"]
ROWS = [[21, "m", "asthma"], [53, "w", "flu"], [34, "w", "flu"]]


def read(path: Path, sheet: str | None = None, texts: tuple[str, ...] = ()) -> tuple[dict[str, str], list[Any]]:
    """The columns of a workbook with their types, and its rows."""
    section = SourceSection(files=[str(path)], **({} if sheet is None else {"table": sheet}))
    with duckdb.connect() as connection:
        engine = DuckDBEngine(connection).use_utc()
        source = bind_files(engine, section, WorkNames("excel", table("source_copy")), texts)
        relation = connection.sql(f"FROM {source.relation.sql('duckdb')}")
        return dict(zip(relation.columns, map(str, relation.types), strict=True)), relation.fetchall()


def refusal(path: Path, sheet: str | None = None) -> str:
    with pytest.raises(SourceError) as caught:
        read(path, sheet)
    return str(caught.value)


def people(tmp_path: Path, rows: Any, **options: Any) -> Path:
    return write_workbook(tmp_path / "people.xlsx", rows, **options)


def raw(tmp_path: Path, rows: str, **options: Any) -> Path:
    (tmp_path / "people.xlsx").write_bytes(raw_workbook(rows, **options))
    return tmp_path / "people.xlsx"


def column(*cells: str) -> str:
    """The rows of a sheet with a column ``x`` and another one."""
    header = '<row><c t="inlineStr"><is><t>x</t></is></c><c t="inlineStr"><is><t>y</t></is></c></row>'
    return header + "".join(f"<row>{cell}<c><v>1</v></c></row>" for cell in cells)


def value_of(path: Path) -> tuple[str, list[Any]]:
    types, rows = read(path)
    return types["x"], [row[0] for row in rows]


def test_columns_are_named_as_excel_names_them() -> None:
    """Up to the last column of a sheet, XFD."""
    names = [openpyxl.utils.get_column_letter(column + 1) for column in range(16_384)]
    assert [column_letters(column) for column in range(16_384)] == names


# --- Types


def test_columns_have_the_types_of_their_cells(tmp_path: Path) -> None:
    rows = [
        [],  # the table begins lower, and further to the right
        [None, "zip", "n", "share", "day", "at", "time", "mixed", "flag", "late", None, "none"],
        [None, "02139", 1, 0.5, DAY, NOON, NOON.time(), 1, True, None, None, None],
        [None, 2140, 2, 1, None, None, None, "007", False, DAY, None, None],
        [None, "02141", None, None, None, None, None, None, None, None, None, None],
        [None, "02142", 3, 2, None, None, None, None, None, None, None, None],
    ]
    types, read_rows = read(people(tmp_path, rows))
    kinds = ["VARCHAR", "BIGINT", "DOUBLE", "DATE", "TIMESTAMP", "TIME", "VARCHAR", "BOOLEAN", "DATE", "VARCHAR"]
    assert [*types.items()] == [*zip([name for name in rows[1] if name], kinds, strict=True)]
    assert read_rows == [
        ("02139", 1, 0.5, DAY, NOON, NOON.time(), "1", True, None, None),
        ("2140", 2, 1.0, None, None, None, "007", False, DAY, None),
        ("02141", *[None] * 9),
        ("02142", 3, 2.0, *[None] * 7),
    ]


@pytest.mark.slow
@pytest.mark.cases(1)
@pytest.mark.parametrize("from_1904", [False, True])
def test_days_are_those_that_excel_shows(from_1904: bool, tmp_path: Path) -> None:
    days = [
        datetime.date(1904, 1, 1),
        datetime.date(1904, 1, 2),
        datetime.date(1904, 3, 1),
        DAY,
        datetime.date(9999, 12, 31),
    ]
    rows = [["day", "at"], *[[day, datetime.datetime.combine(day, NOON.time())] for day in days]]
    types, read_rows = read(people(tmp_path, rows, from_1904=from_1904))
    assert types == {"day": "DATE", "at": "TIMESTAMP"}
    assert read_rows == [tuple(row) for row in rows[1:]]


@pytest.mark.cases(1)
@pytest.mark.parametrize(("serial", "day"), [(1, (1900, 1, 1)), (59, (1900, 2, 28)), (61, (1900, 3, 1))])
def test_days_before_march_of_1900_are_those_that_excel_shows(
    serial: int, day: tuple[int, int, int], tmp_path: Path
) -> None:
    path = people(tmp_path, [["day", "n"], [serial, 1]], formats={"A2": "yyyy-mm-dd"})
    assert read(path)[1] == [(datetime.date(*day), 1)]


@pytest.mark.cases(1)
@pytest.mark.parametrize("serial", [-1, 0, 60, 2_958_466])
def test_invalid_day_numbers_are_refused(serial: int, tmp_path: Path) -> None:
    path = people(tmp_path, [["day", "n"], [serial, 1]], formats={"A2": "yyyy-mm-dd"})
    assert "people.xlsx: cell A2 has the number" in refusal(path)


def test_days_before_the_first_one_of_the_workbook_are_refused(tmp_path: Path) -> None:
    path = people(tmp_path, [["day", "n"], [-365, 1]], formats={"A2": "yyyy-mm-dd"}, from_1904=True)
    assert "people.xlsx: cell A2 has the number" in refusal(path)


@pytest.mark.cases(2)
@pytest.mark.parametrize(
    ("code", "number", "value"),
    [
        ("dd.mm.yyyy", 43861, DAY),
        ("mmm yy", 43861, DAY),
        ("[$-407]d. mmmm yyyy;@", 43861, DAY),
        ("yyyy-mm-dd hh:mm", 43861.5, datetime.datetime(2020, 1, 31, 12)),
        ("dd/mm/yy", 43861.25, datetime.datetime(2020, 1, 31, 6)),
        ("h:mm AM/PM", 0.5, datetime.time(12)),
        ("mm:ss", 0.5, datetime.time(12)),
        ('0.0 "days"', 1.5, 1.5),
        ("[Red]0", 3, 3),
        ("0%", 0.12, 0.12),
        ('#,##0.00 "€"', 1234.5, 1234.5),
        ("0.00E+00", 1500, 1500),
        ("General", 43861, 43861),
    ],
)
def test_cell_format_decides_the_type_of_a_number(code: str, number: float, value: Any, tmp_path: Path) -> None:
    path = people(tmp_path, [["x", "y"], [number, 1]], formats={"A2": code})
    assert value_of(path)[1] == [value]


def test_lengths_of_time_are_refused(tmp_path: Path) -> None:
    path = people(tmp_path, [["stay", "n"], [datetime.timedelta(hours=30), 1]])
    assert "cell A2 has a length of time ([h]:mm): make it a number" in refusal(path)
    path = people(tmp_path, [["stay", "n"], [1.25, 1]], formats={"A2": "h:mm"})
    assert "cell A2 has a time of day beyond 24 hours" in refusal(path)


def test_zeros_that_a_format_shows_are_kept(tmp_path: Path) -> None:
    path = people(tmp_path, [["zip", "n"], [2139, 1], [10115, 2]], formats={"A2": "00000", "A3": "00000"})
    assert read(path) == ({"zip": "VARCHAR", "n": "BIGINT"}, [("02139", 1), ("10115", 2)])


def test_numbers_are_exact(tmp_path: Path) -> None:
    cells = [f"<c><v>{number}</v></c>" for number in ("1.1000000000000001", "12", "-3.0", "1E+2", "0.1")]
    assert value_of(raw(tmp_path, column(*cells))) == ("DOUBLE", [1.1, 12.0, -3.0, 100.0, 0.1])
    assert value_of(raw(tmp_path, column("<c><v>9007199254740993</v></c>"))) == ("HUGEINT", [9007199254740993])
    assert read(raw(tmp_path, column("<c><v>1.1000000000000001</v></c>")), texts=("x",))[1] == [("1.1", 1)]


# --- What the cells of other programs look like


def test_texts_are_read_in_all_of_their_forms(tmp_path: Path) -> None:
    strings = (
        "<si><t>plain</t></si><si><r><t>two </t></r><r><t>runs</t></r></si>"
        '<si><t>東京</t><rPh sb="0" eb="2"><t>とうきょう</t></rPh></si><si><t>a_x000D_b</t></si><si/>'
    )
    cells = [
        *[f'<c t="s"><v>{i}</v></c>' for i in range(5)],
        '<c t="str"><f>A1</f><v>shown</v></c>',
        '<c t="inlineStr"><is><t>inline</t></is></c>',
    ]
    values = ["plain", "two runs", "東京", "a\rb", None, "shown", "inline"]
    assert value_of(raw(tmp_path, column(*cells), strings=strings)) == ("VARCHAR", values)


def test_strict_workbooks_are_read(tmp_path: Path) -> None:
    cells = ['<c t="d"><v>2020-01-31</v></c>', '<c t="d"><v>2020-01-31T12:00:01</v></c>']
    path = raw(tmp_path, column(*cells), main="http://purl.oclc.org/ooxml/spreadsheetml/main")
    assert value_of(path) == ("TIMESTAMP", [datetime.datetime(2020, 1, 31), NOON])


def test_a_formula_is_its_result(tmp_path: Path) -> None:
    assert value_of(raw(tmp_path, column("<c><f>1+1</f><v>2</v></c>"))) == ("BIGINT", [2])
    path = raw(tmp_path, column("<c><f>1+1</f></c>"))
    assert "cell A2 has a formula without a result: open the workbook in Excel, and save it" in refusal(path)


@pytest.mark.slow
def test_invalid_workbook_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "people.xlsx"
    path.write_bytes(b"PK\x03\x04 and no more")
    assert refusal(path) == "people.xlsx cannot be read as an Excel workbook: the file is broken"
    path.write_bytes(workbook([HEADER, *ROWS])[:-200])
    assert refusal(path) == "people.xlsx cannot be read as an Excel workbook: the file is broken"
    path.write_bytes(b"\xd0\xcf\x11\xe0" + b"\0" * 600)
    assert "people.xlsx has a password, or it is an old workbook (.xls): save it as" in refusal(path)
    path.rename(old := tmp_path / "people.xls")
    assert "people.xls has an unknown format" in refusal(old)
    assert "save it as .xlsx or CSV" in refusal(old)
    with pytest.raises(SourceError, match=r"not read: save it as \.xlsx or CSV"), sqlanon.connect(old):
        pass


# --- Where the table is


@pytest.mark.parametrize("titles", [[["Report"]], [["Report"], [], ["Ward 7"], [None, "2020"]]])
def test_up_to_three_titles_are_above_the_header(titles: list[list[Any]], tmp_path: Path) -> None:
    types, rows = read(people(tmp_path, [*titles, HEADER, *ROWS]))
    assert (list(types), rows) == (HEADER, [tuple(row) for row in ROWS])


def test_a_merged_title_is_a_title(tmp_path: Path) -> None:
    path = people(tmp_path, [["Report"], HEADER, *ROWS], merged=["A1:C1"])
    assert read(path)[1] == [tuple(row) for row in ROWS]


def test_more_titles_need_the_cell_where_the_table_begins(tmp_path: Path) -> None:
    path = people(tmp_path, [[f"title {i}"] for i in range(4)] + [HEADER, *ROWS])
    assert 'row 5 has 3; if it has the names of the columns, set table = "Patients!A5" under [source]' in refusal(path)
    assert read(path, "Patients!A5")[1] == [tuple(row) for row in ROWS]


def test_values_without_a_name_above_them_are_refused(tmp_path: Path) -> None:
    path = people(tmp_path, [["Ward", 7], [], HEADER, *ROWS])
    assert "row 1 is read as the header, and has 7 in cell B1" in refusal(path)
    path = people(tmp_path, [["Ward:", "7"], [], HEADER, *ROWS])
    assert refusal(path) == (
        "source.files: people.xlsx: cell C3 has a value, and row 1, which is read as the header, has no name "
        'above it; if row 3 has the names of the columns, set table = "Patients!A3" under [source]; if row 1 has '
        "them, give the column a name"
    )
    assert read(path, "Patients!A3")[1] == [tuple(row) for row in ROWS]


def test_a_title_of_as_many_words_as_the_header_is_no_row_of_names(tmp_path: Path) -> None:
    path = people(tmp_path, [["Report", "of"], HEADER, *ROWS])
    assert 'if row 2 has the names of the columns, set table = "Patients!A2" under [source]; if row 1' in refusal(path)
    assert read(path, "Patients!A2")[1] == [tuple(row) for row in ROWS]


def test_names_of_two_rows_need_the_row_that_has_them(tmp_path: Path) -> None:
    path = people(tmp_path, [["Patient", None, "Clinical"], HEADER, *ROWS], merged=["A1:B1"])
    for sheet in (None, "Patients!A1:C"):
        end = "" if sheet is None else ":C"
        assert (
            f'(cells A1:B1 are merged); if row 2 has the names of the columns, set table = "Patients!A2{end}" under '
            "[source]; if row 1 has them, unmerge the cells above it, and give each column a name"
        ) in refusal(path, sheet)
    assert read(path, "Patients!A2:C")[1] == [tuple(row) for row in ROWS]


def test_a_value_beside_a_table_may_be_left_out(tmp_path: Path) -> None:
    path = people(tmp_path, [HEADER, *ROWS, [*ROWS[0], None, 7]])
    assert (
        "cell E5 has a value, and row 1, which is read as the header, has no name above it; give the "
        'column a name, or leave it out with table = "Patients!A1:C" under [source]'
    ) in refusal(path)
    assert len(read(path, "Patients!A1:C")[1]) == 4


@pytest.mark.slow
def test_rows_below_a_blank_row_need_the_end_of_the_table(tmp_path: Path) -> None:
    path = people(tmp_path, [HEADER, *ROWS, [], ["Others"], ["a", "b"], [1, 2]])
    assert refusal(path) == (
        "source.files: people.xlsx: row 5 is blank, and 3 rows have values below it (from row 6 on); if they are not "
        'part of the table, set table = "Patients!A1:C4" under [source]; if they are part of the table, set table = '
        '"Patients!A1:C8" under [source]'
    )
    assert read(path, "Patients!A1:C4")[1] == [tuple(row) for row in ROWS]
    path = people(tmp_path, [HEADER, ROWS[0], [], *ROWS[1:]])
    assert read(path, "Patients!A1:C5")[1] == [tuple(row) for row in ROWS]


def test_a_wide_table_below_a_blank_row_is_left_out(tmp_path: Path) -> None:
    path = people(tmp_path, [HEADER, *ROWS, [], ["a", "b", "c", "d"], [1, 2, 3, 4]])
    assert (
        "cell D6 has a value, and row 1, which is read as the header, has no name above it; if the "
        'table ends above the blank row 5, set table = "Patients!A1:C4" under [source]; give the column a name'
    ) in refusal(path)


def test_a_blank_row_below_the_first_row_may_be_one_below_a_title(tmp_path: Path) -> None:
    path = people(tmp_path, [["Ward", "seven"], [], ["age", "sex"], [21, "m"]])
    assert (
        'if row 3 has the names of the columns, set table = "Patients!A3" under [source]; if they are part of the '
        'table, set table = "Patients!A1:B4" under [source]'
    ) in refusal(path)
    assert read(path, "Patients!A3")[1] == [(21, "m")]


def test_a_blank_row_above_notes_ends_the_table_above_the_notes(tmp_path: Path) -> None:
    path = people(tmp_path, [HEADER, ROWS[0], [], *ROWS[1:], ["Total", None, 3], ["Source: ward 7"]])
    assert (
        'if they are part of the table, set table = "Patients!A1:C5" under [source], which leaves out the likely '
        "notes or totals from row 6 on"
    ) in refusal(path)


@pytest.mark.slow
@pytest.mark.parametrize("word", ["Total", "SUMME", " Gesamt:", "Somme", "sum"])
@pytest.mark.parametrize("below", [[], [["Source: ward 7"]]], ids=["alone", "above a note"])
def test_a_last_row_of_totals_needs_the_end_of_the_table(word: str, below: list[Any], tmp_path: Path) -> None:
    path = people(tmp_path, [["name", "age", "sex"], ["Ann", 21, "w"], ["Bo", 53, "m"], [word, 74, None], *below])
    assert refusal(path) == (
        f"source.files: people.xlsx: row 4 looks like totals: cell A4 has {word.strip()!r}, and the others have "
        'numbers or nothing; if it has totals, set table = "Patients!A1:C3" under [source], otherwise table = '
        f'"Patients!A1:C{4 + len(below)}" under [source]'
    )
    assert read(path, "Patients!A1:C3")[1] == [("Ann", 21, "w"), ("Bo", 53, "m")]
    assert read(path, "Patients!A1:C4")[1][-1] == (word, 74, None)


def test_a_formula_of_totals_without_a_result_is_one_of_totals(tmp_path: Path) -> None:
    path = people(tmp_path, [["name", "age"], ["Ann", 21], ["Total", "=SUM(B2:B2)"]])
    assert 'set table = "Patients!A1:B2" under [source]' in refusal(path)


@pytest.mark.cases(1)
@pytest.mark.parametrize(
    "rows",
    [[["Ann", 21, "w"], ["Total", 74, "w"]], [["Total", 21, None], ["Bo", 53, "m"]], [["Ann", 21], ["Summer", 74]]],
    ids=["a text next to it", "not the last row", "another word"],
)
def test_other_rows_are_not_taken_for_totals(rows: list[list[Any]], tmp_path: Path) -> None:
    assert len(read(people(tmp_path, [["name", "age", "sex"], *rows]))[1]) == 2


def test_a_first_column_of_row_numbers_needs_no_name(tmp_path: Path) -> None:
    types, rows = read(people(tmp_path, [[None, "age", "sex"], [0, 21, "m"], [1, 53, "w"]]))
    assert (list(types), rows) == (["A1", "age", "sex"], [(0, 21, "m"), (1, 53, "w")])


def test_names_that_are_numbers_need_the_cell_where_the_table_begins(tmp_path: Path) -> None:
    path = people(tmp_path, [["region", 2019, 2020], ["north", 3, 4]])
    assert 'has 2019 in cell B1; if these are the names, set table = "Patients!A1" under [source]' in refusal(path)
    assert read(path, "Patients!A1") == ({"region": "VARCHAR", "2019": "BIGINT", "2020": "BIGINT"}, [("north", 3, 4)])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("width", "blank", "is_read"), [(1, [], True), (2, [], True), (2, [[]], False), (3, [], False), (3, [[]], False)]
)
def test_a_last_value_alone_may_be_a_note(width: int, blank: list[Any], is_read: bool, tmp_path: Path) -> None:
    """With two columns, the last row may lack a value; with one column, every row has one."""
    rows = [[f"v{i}{j}" for j in range(width)] for i in range(3)]
    path = people(tmp_path, [HEADER[:width], *rows, *blank, ["last"]])
    if is_read:
        assert read(path)[1] == [tuple(row) for row in [*rows, ["last"] + [None] * (width - 1)]]
    else:
        assert "have one value each, such as cell A" in refusal(path)


@pytest.mark.thorough
def test_long_integers_are_exact_beside_others(tmp_path: Path) -> None:
    for first, second, type_ in (
        ("7", "999999999999999", "BIGINT"),
        ("7", "1" * 20, "HUGEINT"),
        ("1" * 20, "2" * 20, "HUGEINT"),
        ("7.5", "1" * 20, "VARCHAR"),
    ):
        values = [int(text) if type_ != "VARCHAR" else text for text in (first, second)]
        path = raw(tmp_path, column(f"<c><v>{first}</v></c>", f"<c><v>{second}</v></c>"))
        assert value_of(path) == (type_, values), (first, second)


@pytest.mark.slow
@pytest.mark.parametrize("blank", [[], [[]]], ids=["at once", "behind a blank row"])
def test_notes_below_the_table_need_its_end(blank: list[Any], tmp_path: Path) -> None:
    path = people(tmp_path, [HEADER, *ROWS, *blank, ["Source: ward 7"], ["checked"]])
    first, last = 5 + len(blank), 6 + len(blank)
    assert (
        f"the last rows, from row {first} on, have one value each, such as cell A{first}; if they are below the table, "
        f'set table = "Patients!A1:C4" under [source], otherwise table = "Patients!A1:C{last}" under [source]'
    ) in refusal(path)
    assert read(path, "Patients!A1:C4")[1] == [tuple(row) for row in ROWS]
    assert read(path, f"Patients!A1:C{last}")[1][-1] == ("checked", None, None)


@pytest.mark.cases(1)
@pytest.mark.parametrize("range_", ["B1:C3", "$B$1:$C$3", "b1:c3"])
def test_a_range_is_the_table(range_: str, tmp_path: Path) -> None:
    path = people(tmp_path, [HEADER, *ROWS])
    assert read(path, f"Patients!{range_}") == (
        {"sex": "VARCHAR", "illness": "VARCHAR"},
        [("m", "asthma"), ("w", "flu")],
    )
    assert read(path, "Patients!B1:B")[1] == [("m",), ("w",), ("w",)]


@pytest.mark.cases(1)
@pytest.mark.parametrize(
    ("sheet", "message"),
    [
        ("Others", "source.table: people.xlsx has no sheet 'Others'; it has 'Patients'"),
        ("Patients!3", "source.table: '3' is not a range of cells; write it as A3:F200, A3:F or A3"),
        ("Patients!C3:A1", "source.table: the range 'C3:A1' ends before it begins"),
        ("Patients!A9", "row 9 of sheet 'Patients' has no cells with values"),
    ],
)
def test_invalid_range_is_refused(sheet: str, message: str, tmp_path: Path) -> None:
    assert message in refusal(people(tmp_path, [HEADER, *ROWS]), sheet)


def test_merged_cells_of_the_table_are_refused(tmp_path: Path) -> None:
    path = people(tmp_path, [HEADER, *ROWS], merged=["C3:C4"])
    assert "cells C3:C4 are merged, so that one value stands for several cells" in refusal(path)
    path = people(tmp_path, [["age", "illness", None], ["years", "first", "second"], *ROWS], merged=["B1:C1"])
    assert "cell C2 has a value, and row 1" in refusal(path)


@pytest.mark.slow
def test_one_of_several_sheets_is_named(tmp_path: Path) -> None:
    more = {"Codes": [["code", "label"], [1, "flu"]], "Empty": []}
    path = people(tmp_path, [HEADER, *ROWS], more=more)
    assert (
        "people.xlsx has 2 sheets with values ('Patients', 'Codes'): name one, table = \"Patients\" under [source]"
    ) in refusal(path)
    assert read(path, "codes")[1] == [(1, "flu")]
    path = people(tmp_path, [HEADER, *ROWS], more=more, hidden=["Codes"])
    assert read(path)[1] == [tuple(row) for row in ROWS]
    assert read(path, "Codes")[1] == [(1, "flu")]


@pytest.mark.thorough
def test_a_sheet_may_have_any_name(tmp_path: Path) -> None:
    path = people(tmp_path, [], more={"2020! all": [["age", "n"], [21, 3]]})
    assert read(path, "2020! all")[1] == [(21, 3)]
    assert read(path, "'2020! all'!A1:B")[1] == [(21, 3)]


def test_a_workbook_without_values_is_refused(tmp_path: Path) -> None:
    assert refusal(people(tmp_path, [])) == "source.files: people.xlsx: no sheet has cells with values"


def test_names_that_differ_in_case_only_are_refused(tmp_path: Path) -> None:
    assert "differ in case only" in refusal(people(tmp_path, [["zip", "Zip"], ["1", "2"]]))


# --- Attributes


AGE = {"role": "quasi", "hierarchy": {"intervals": [10]}}
BORN = {"role": "quasi", "hierarchy": {"dates": ["year"]}}


def released_rows(tmp_path: Path, rows: list[list[Any]], attribute: dict[str, Any]) -> list[Any]:
    """The values of the first column of a workbook in a release of k = 1."""
    roles = {rows[0][0]: attribute, "ward": "insensitive"}
    pairs, _ = publish_and_read(people(tmp_path, rows), roles, tmp_path, k=1, source={"person": False})
    return [value for value, _ in pairs]


def attribute_refusal(tmp_path: Path, rows: list[list[Any]], attribute: dict[str, Any]) -> str:
    with sqlanon.connect(people(tmp_path, rows)) as db, pytest.raises((SourceError, HierarchyError)) as caught:
        db.anonymize(make_policy({rows[0][0]: attribute, "ward": "insensitive"}, k=1, source={"person": False}))
    return str(caught.value)


def in_wards(name: str, *values: Any) -> list[list[Any]]:
    return [[name, "ward"], *[[value, "north"] for value in values]]


@pytest.mark.thorough
def test_words_among_numbers_are_decided_by_missing(tmp_path: Path) -> None:
    rows = in_wards("age", *range(30), "NA", 31)
    assert "'NA' (cell A32); decide how they are read: missing = [\"NA\"]" in attribute_refusal(tmp_path, rows, AGE)
    ages = released_rows(tmp_path, rows, {**AGE, "missing": ["NA"]})
    assert sorted(ages, key=str) == sorted([*range(30), None, 31], key=str)


def test_a_last_row_of_another_kind_may_be_left_out_by_a_range(tmp_path: Path) -> None:
    rows = [*in_wards("age", *range(30)), ["Total", "435"]]
    assert 'table = "Patients!A1:B31" under [source] leaves the last row out' in attribute_refusal(tmp_path, rows, AGE)


@pytest.mark.slow
def test_numbers_in_cells_of_texts_need_a_type(tmp_path: Path) -> None:
    rows = in_wards("age", "21", "53")
    assert "declare its type" in attribute_refusal(tmp_path, rows, AGE)
    assert sorted(released_rows(tmp_path, rows, {**AGE, "type": "integer"})) == [21, 53]
    assert "'1,5' (cell A3)" in attribute_refusal(tmp_path, in_wards("age", "21", "1,5"), {**AGE, "type": "integer"})


@pytest.mark.thorough
def test_texts_are_read_as_dates_in_their_format(tmp_path: Path) -> None:
    rows = in_wards("born", "31.01.20", "01.02.99")
    keys = {"type": "date", "format": "%d.%m.%y", "pivot": 2026}
    assert sorted(released_rows(tmp_path, rows, {**BORN, **keys})) == [datetime.date(1999, 2, 1), DAY]


@pytest.mark.thorough
def test_texts_among_dates_are_decided(tmp_path: Path) -> None:
    rows = in_wards("born", DAY, "unknown")
    assert (
        "column 'born' has dates or times, and other values: '2020-01-31' in cell A2, 'unknown' in cell A3"
    ) in attribute_refusal(tmp_path, rows, BORN)
    for keys in ({"missing": ["unknown"]}, {"type": "date", "missing": ["unknown"]}):
        assert sorted(released_rows(tmp_path, rows, {**BORN, **keys}), key=str) == [DAY, None]
    assert "'unknown' (cell A3)" in attribute_refusal(tmp_path, rows, {**BORN, "type": "date"})
    texts = {"role": "quasi", "hierarchy": "suppress", "type": "text"}
    assert sorted(released_rows(tmp_path, rows, texts)) == ["2020-01-31", "unknown"]


def test_a_day_number_among_dates_is_refused(tmp_path: Path) -> None:
    assert "'43831' in cell A3" in attribute_refusal(tmp_path, in_wards("born", DAY, 43831), BORN)


@pytest.mark.slow
def test_errors_are_refused_or_missing(tmp_path: Path) -> None:
    rows = in_wards("age", 21, "#N/A", 53)
    assert "people.xlsx: cell A3 has the error #N/A; correct it, or add missing" in attribute_refusal(
        tmp_path, rows, AGE
    )
    assert sorted(released_rows(tmp_path, rows, {**AGE, "missing": ["#N/A"]}), key=str) == [21, 53, None]


@pytest.mark.slow
def test_codes_of_missing_numbers_are_null(tmp_path: Path) -> None:
    assert sorted(released_rows(tmp_path, in_wards("age", 21, -9), {**AGE, "missing": ["-9"]}), key=str) == [21, None]


@pytest.mark.cases(2)
@pytest.mark.parametrize(
    ("value", "keys", "message"),
    [
        (
            DAY,
            {"type": "date", "format": "%d.%m.%Y"},
            "attributes.x.format: applies to texts, and column 'x' is DATE",
        ),
        (DAY, {"type": "integer"}, "attributes.x.type: applies to texts, and column 'x' is DATE already"),
        (21, {"type": "date"}, "attributes.x.type: applies to texts, and column 'x' is BIGINT already"),
        (21, {"missing": ["NA"]}, "attributes.x.missing: 'NA' cannot be a value of column 'x', which is BIGINT"),
        (DAY, {"missing": ["NA"]}, "attributes.x.missing: applies to texts and numbers, and column 'x' is DATE"),
    ],
)
def test_keys_that_do_not_apply_are_refused(value: Any, keys: dict[str, Any], message: str, tmp_path: Path) -> None:
    attribute = {"role": "quasi", "hierarchy": "suppress", **keys}
    assert message in attribute_refusal(tmp_path, in_wards("x", value, value), attribute)


@pytest.mark.thorough
def test_numbers_and_dates_are_texts_where_the_policy_reads_texts(tmp_path: Path) -> None:
    mask = {"role": "quasi", "hierarchy": {"mask": "right"}}
    assert sorted(released_rows(tmp_path, in_wards("x", 21, "007"), mask)) == ["007", "21"]
    assert released_rows(tmp_path, in_wards("x", DAY, DAY), mask) == ["2020-01-31"] * 2
    assert (
        released_rows(tmp_path, in_wards("x", 21, 21), {**mask, "hierarchy": "suppress", "type": "text"}) == ["21"] * 2
    )


# --- Other verbs


@pytest.mark.thorough
def test_inspect_shows_columns(tmp_path: Path) -> None:
    path = people(tmp_path, [["Report"], HEADER, *ROWS])
    with sqlanon.connect(path) as db:
        inspection = db.inspect()
        again = db.inspect("Patients!A2:B3")
    assert inspection.rows == 3
    assert [(column.name, column.type, column.values) for column in inspection.columns] == [
        ("age", "BIGINT", 3), ("sex", "VARCHAR", 3), ("illness", "VARCHAR", 3),
    ]  # fmt: skip
    assert (again.rows, len(again.columns)) == (1, 2)


@pytest.mark.thorough
def test_suggest_names_values_that_do_not_fit_with_their_cells(tmp_path: Path) -> None:
    path = people(tmp_path, in_wards("age", *range(60), "4e"))
    with sqlanon.connect(path) as db:
        text = db.suggest()
    assert '60 numbers and 1 other value: "4e" (cell A62)' in text.replace("\n#", "").replace("'", '"')
    assert 'table = "Patients!A1:B61" under [source]' in text.replace("\n#", "")


def test_a_plan_has_the_columns(tmp_path: Path) -> None:
    path = people(tmp_path, [HEADER, *ROWS])
    roles = {"age": AGE, "sex": "sensitive", "illness": "insensitive"}
    with sqlanon.connect(path) as db:
        assert "age" in str(db.plan(make_policy(roles, k=1, source={"person": False})))


@pytest.mark.thorough
def test_sheets_of_several_files_are_matched_by_name(tmp_path: Path) -> None:
    files = [
        str(write_workbook(tmp_path / "f0.xlsx", [["zip", "n", "day"], ["02139", 1, DAY]])),
        str(write_workbook(tmp_path / "f1.xlsx", [["Day", "zip", "n"], [DAY, "02140", 2.5]])),
    ]
    roles = {"zip": "suppress", "n": "insensitive", "day": "insensitive"}
    rows, types = publish_and_read(None, roles, tmp_path, source={"files": files}, k=1)
    assert (list(types), sorted(rows)) == (["zip", "n", "day"], [("02139", 1.0, DAY), ("02140", 2.5, DAY)])
    files[1] = str(write_workbook(tmp_path / "f2.xlsx", [["zip", "n", "date"], ["02140", 2, DAY]]))
    with sqlanon.connect() as db, pytest.raises(SourceError, match=r"f2\.xlsx lacks 'day' of f0\.xlsx"):
        db.anonymize(make_policy(roles, source={"files": files}, k=1))


cells = st.one_of(
    st.none(),
    st.integers(-(10**15) + 1, 10**15 - 1),
    st.floats(-1e9, 1e9).map(lambda number: round(number, 4) + 0.0),
    st.booleans(),
    st.dates(datetime.date(1900, 3, 1)),
    st.datetimes(datetime.datetime(1900, 3, 1), datetime.datetime(2100, 1, 1)).map(
        lambda moment: moment.replace(microsecond=0)
    ),
    st.text(st.sampled_from("abÄé07.,-#"), min_size=1, max_size=5).filter(lambda text: text[0] not in "#=-"),
)


@pytest.mark.thorough
@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(cells, cells), min_size=1, max_size=6), st.booleans())
def test_cells_match_openpyxl(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[Any, Any]], from_1904: bool
) -> None:
    content = workbook([["a", "b", "c", "d"], *[[*row, "x", "y"] for row in rows]], from_1904=from_1904)
    path = tmp_path_factory.mktemp("books") / "people.xlsx"
    path.write_bytes(content)
    if from_1904 and any(isinstance(cell, datetime.date) and cell.year < 1904 for row in rows for cell in row):
        assert "is none" in refusal(path)
        return
    sheet = openpyxl.load_workbook(io.BytesIO(content)).active
    expected = [row[:2] for row in sheet.iter_rows(min_row=2, values_only=True)]
    _, read_rows = read(path, texts=("a", "b"))
    assert [row[:2] for row in read_rows] == [tuple(map(cell_text, row)) for row in expected]


def cell_text(value: Any) -> str | None:
    if isinstance(value, datetime.time):  # what openpyxl makes of the first day of 1904
        value = datetime.datetime.combine(datetime.date(1904, 1, 1), value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        return value.date().isoformat()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return None if value is None else str(value)
