"""The words that mark a row of totals."""

import re
from pathlib import Path

import pytest

from sqlanon.sources.files.csv_lines import TOTAL_WORDS, Layout, describe_last_lines
from support.databases import shared_database


@pytest.mark.parametrize(
    ("value", "is_total"),
    [
        ("Total", True),
        ("GRAND TOTAL:", True),
        ("Subtotal", True),
        ("Summe", True),
        ("Gesamt", True),
        ("Insgesamt", True),
        ("Somme", True),
        ("sum", True),
        ("Summer", False),
        ("Gesamtschule", False),
        ("total knee replacement", False),
        ("Assum", False),
    ],
)
def test_python_and_duckdb_find_the_same_words(value: str, is_total: bool, tmp_path: Path) -> None:
    with shared_database() as connection:
        row = connection.execute("SELECT regexp_full_match(?, ?)", [value, TOTAL_WORDS]).fetchall()
    assert (re.fullmatch(TOTAL_WORDS, value) is not None, row) == (is_total, [(is_total,)])
    path = tmp_path / "t.csv"
    path.write_text(f"ward,cost\na,1\n{value},2\n", encoding="utf-8")
    assert (describe_last_lines(str(path), Layout(",")) is not None) is is_total
