"""Real CSV files of four packages are read exactly, or refused: `real_files.py` prints why, and anonymizes some."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from fuzz_files import Reader
from real_files import MISREAD, READ, read_file, real_files, tables_folder

from support.lanes import share

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    folder = tables_folder()
    if folder is None:
        pytest.skip("no packages with tables: SQLANON_TABLES names no folder of them (see real_files.py)")
    return real_files(folder)


def test_real_files_are_read_exactly_or_refused(files: dict[str, bytes], tmp_path: Path) -> None:
    names = share([name for name in files if len(files[name]) < 1_000_000], least=100)
    with duckdb.connect() as connection:
        reader = Reader(connection, tmp_path)
        outcomes = {name: read_file(files[name], reader) for name in names}
    assert not [name for name, outcome in outcomes.items() if outcome == MISREAD]
    assert sum(outcome == READ for outcome in outcomes.values()) >= 0.95 * len(outcomes)
