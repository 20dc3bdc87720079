"""The words that mark a row of totals."""

import re

import duckdb
import pytest

from sqlanon.sources.files.csv_lines import TOTAL_WORDS


@pytest.mark.cases(2)
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
def test_python_and_duckdb_find_the_same_words(value: str, is_total: bool) -> None:
    with duckdb.connect() as connection:
        row = connection.execute("SELECT regexp_full_match(?, ?)", [value, TOTAL_WORDS]).fetchall()
    assert (re.fullmatch(TOTAL_WORDS, value) is not None, row) == (is_total, [(is_total,)])
