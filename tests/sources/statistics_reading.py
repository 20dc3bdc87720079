"""Read files of statistics programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.places.databases import file_kind
from sqlanon.sources.files.scan import ReadingChoices, Scan
from sqlanon.sources.files.statistics_files import read_statistics_files
from sqlanon.support.expressions import table

FOLDER = Path(__file__).parent / "statistics_files"


CODES = ReadingChoices(value_labels=False, user_missing="missing")


def read(
    *paths: Path | str,
    choices: ReadingChoices = CODES,
    text_columns: tuple[str, ...] = (),
    wanted: tuple[str, ...] = (),
) -> tuple[dict[str, str], dict[str, list[Any]]]:
    """The types and the values of each column of a file."""
    with duckdb.connect() as connection:
        engine = DuckDBEngine(connection)
        target = table("people", "main", "memory")
        kind: Any = file_kind(str(paths[0]))
        files = [str(FOLDER / path) for path in paths]
        read_statistics_files(kind, Scan(engine, files, text_columns, wanted, choices=choices), target)
        types = engine.columns(target)
        rows = connection.execute("FROM people").fetchall()
        assert connection.execute("SELECT count(*) FROM duckdb_tables()").fetchall() == [(1,)]
    return types, {name: [row[i] for row in rows] for i, name in enumerate(types)}
