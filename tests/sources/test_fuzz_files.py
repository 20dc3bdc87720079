"""Damaged CSV files are read as Python's csv module reads them, or refused: `fuzz_files.py` has many more of them."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from fuzz_files import Reader, damaged_file, flaws

from support.databases import DUCKDB_1
from support.lanes import examples

pytestmark = pytest.mark.slow

FOUND = ["1:556", "1:1144", "1:1163", "1:1760", "1:2425", "1:2465", "7:17921", "1128:11809", "33:99777"]
"""Files that were once misread, or ended with an error of Python."""


@pytest.mark.skipif(DUCKDB_1, reason="its quotes and numbers are others")
def test_damaged_files_are_read_exactly_or_refused(tmp_path: Path) -> None:
    numbers = [*FOUND, *(f"0:{number}" for number in range(examples(4_000)))]
    read = 0
    with duckdb.connect() as connection:
        reader = Reader(connection, tmp_path)
        for name in numbers:
            seed, number = map(int, name.split(":"))
            messages = list(flaws(damaged_file(seed, number), reader))
            assert not [flaw for flaw in messages if flaw.startswith("WRONG")], name
            read += "read" in messages
    assert read >= 0.35 * len(numbers)  # of 100,000 files 45 %
