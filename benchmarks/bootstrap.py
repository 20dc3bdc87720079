"""Adult resampled with seeded variation to any size: every row is drawn from Adult, and cells are redrawn.

    python benchmarks/bootstrap.py adult.csv 1000000 [--seed N] [--sensitive]
    python benchmarks/bootstrap.py adult.duckdb 1000000      # or adult.parquet

A cell is redrawn from its own column with a probability of 0.1: else there are no more combinations than in Adult, and
k-anonymity is trivial at size. The columns are Adult's eight quasi-identifiers; ``--sensitive`` adds the occupation.
The file is CSV, separated by semicolons as Adult is, Parquet, or a DuckDB database with the table ``adult``. Every cell
is a function of (seed, row number, column).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import duckdb
from harness import ADULT, DATA, HERE, python

REDRAWN = 0.1


def bootstrap_query(columns: Sequence[str], rows: int, adults: int, seed: int = 1) -> str:
    """The rows, from the numbered table ``adult`` (``n``, from 0) of so many rows."""
    picks = ", ".join(
        f"CASE WHEN hash(i, '{column} redrawn?', {seed}) % 1000 < {int(REDRAWN * 1000)} "
        f"THEN hash(i, '{column}', {seed}) % {adults} ELSE whole END AS pick_{number}"
        for number, column in enumerate(columns)
    )
    joins = " ".join(f"JOIN adult AS a{number} ON a{number}.n = pick_{number}" for number in range(len(columns)))
    cells = ", ".join(f'a{number}."{column}" AS "{column}"' for number, column in enumerate(columns))
    return f"""
SELECT {cells}
FROM (SELECT {picks} FROM (SELECT i, hash(i, 'row', {seed}) % {adults} AS whole FROM range({rows}) AS r(i)))
{joins}
"""


def _quote(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"


def make_bootstrap(path: Path, columns: Sequence[str], rows: int, seed: int = 1) -> None:
    """Write the table to a CSV or Parquet file or a DuckDB database, by the ending of the name."""
    with duckdb.connect(config={"preserve_insertion_order": False}) as database:
        database.execute(
            "CREATE TEMP TABLE adult AS SELECT (row_number() OVER ())::UBIGINT - 1 AS n, * "
            f"FROM read_csv({_quote(DATA / 'adult' / 'adult.csv')}, delim = ';', all_varchar = true)"
        )
        row = database.execute("SELECT count(*) FROM adult").fetchone()
        assert row
        query = bootstrap_query(columns, rows, row[0], seed)
        quoted = _quote(path)
        if path.suffix == ".csv":
            database.execute(f"COPY ({query}) TO {quoted} (FORMAT csv, DELIMITER ';', HEADER)")
        elif path.suffix == ".parquet":
            database.execute(f"COPY ({query}) TO {quoted} (FORMAT parquet)")
        else:
            database.execute(f"ATTACH {quoted} AS made")
            database.execute(f"CREATE OR REPLACE TABLE made.adult AS {query}")
            database.execute("DETACH made")


def bootstrap(folder: Path, rows: int, ending: str, sensitive: bool = False) -> Path:
    """The table with this number of rows in a folder, made once in a separate process."""
    name = f"adult_{rows}{'_sensitive' if sensitive else ''}"
    path = folder / f"{name}.{ending}"
    if not path.exists():
        unfinished = folder / f"unfinished_{name}.{ending}"
        unfinished.unlink(missing_ok=True)
        python(HERE / "bootstrap.py", unfinished, str(rows), *(["--sensitive"] if sensitive else []))
        unfinished.rename(path)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("rows", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sensitive", action="store_true")
    arguments = parser.parse_args()
    started = time.perf_counter()
    columns = (*ADULT, "occupation") if arguments.sensitive else ADULT
    make_bootstrap(arguments.path, columns, arguments.rows, arguments.seed)
    print(f"{arguments.rows:,} rows in {time.perf_counter() - started:.1f} s: {arguments.path}")


if __name__ == "__main__":
    main()
