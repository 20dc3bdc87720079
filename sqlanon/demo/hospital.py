"""The hospital of the demo: a database of invented people, the same on every run."""

from __future__ import annotations

from pathlib import Path

import duckdb

from sqlanon.errors import SourceError
from sqlanon.support.resources import read_sql_file
from sqlanon.support.workdir import private_directory


def make_hospital(database: Path, rows: int = 100_000, seed: int = 2026) -> None:
    """Write a DuckDB file with the tables ``patients`` and ``voters``.

    ``patients`` has name, address, zip, birth_date, sex, ethnicity, diagnosis and cost. ``voters``, a public list, has
    name, address, zip, birth_date and sex of about 60 % of the patients (three adults of four) and of as many other
    people. All people are invented. The rows are drawn from hashes of the seed and the row number.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     make_hospital(Path(folder) / "hospital.duckdb", rows=100)
    ...     with duckdb.connect(Path(folder) / "hospital.duckdb", read_only=True) as connection:
    ...         connection.execute("SELECT count(*) FROM patients").fetchall()
    [(100,)]
    """
    if rows < 1:
        raise SourceError(f"--rows is {rows}: it must be at least 1")
    parameters = {"rows": rows, "seed": seed}
    try:
        with private_directory(database.parent, ".sqlanon-demo-") as directory:
            staging = directory / database.name
            with duckdb.connect(staging) as connection:
                for statement in connection.extract_statements(read_sql_file("demo_hospital.sql")):
                    names = parameters.keys() & statement.named_parameters
                    connection.execute(statement, {name: parameters[name] for name in names})
            staging.replace(database)
    except (OSError, duckdb.IOException) as error:
        raise SourceError(f"{database} cannot be written: {error}") from error
