"""What reading a CSV file costs: the checks of its lines, types and values, against DuckDB's own reader.

    python benchmarks/reading.py [--rows 10000000] [--runs 3]

Two clean tables: Adult at size, texts and an integer; and one with numbers, dates, times and, in quotes, addresses. A
file is copied to a table, by sqlanon as for ``anonymize`` and by ``CREATE TABLE ... FROM read_csv(...)`` with its own
sniffer, each in a separate process; both loads of DuckDB are in the figures. A figure is the median of the runs.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
from bootstrap import bootstrap
from harness import Measured, folders, gigabytes, header, machine, parser, python, record, require_tables, row, warm

SQLANON = """
import csv, sys
import sqlanon
from sqlanon.sources.workspace import Workspace

with open(sys.argv[1], newline="") as file:
    names = next(csv.reader(file, delimiter=sys.argv[2]))
attributes = {name: {"role": "quasi", "hierarchy": "suppress"} for name in names}
with Workspace(sys.argv[1]).run(sqlanon.Policy(attributes=attributes, privacy={"k": 2})):
    pass
"""
PLAIN = """
import sys, duckdb

duckdb.connect(sys.argv[1] + ".duckdb").execute("CREATE OR REPLACE TABLE t AS FROM read_csv($1)", [sys.argv[1]])
"""
MIXED = """
    SELECT
        i AS id,
        hash(i) % 100000 / 100.0 AS wage,
        DATE '1950-01-01' + (hash(i, 1) % 20000)::INTEGER AS born,
        'Street ' || hash(i, 2) % 1000 || ', Springfield' AS address,
        TIMESTAMP '2020-01-01' + to_seconds((hash(i, 3) % 100000000)::BIGINT) AS seen,
        ['m', 'f'][1 + (hash(i, 4) % 2)::INTEGER] AS sex
    FROM range({rows}) AS r(i)
"""


def make_mixed(folder: Path, rows: int) -> Path:
    file = folder / f"mixed_{rows}.csv"
    if not file.exists():
        duckdb.connect().execute(f"COPY ({MIXED.format(rows=rows)}) TO '{file}' (FORMAT csv, HEADER)").close()
    return file


def middle(program: str, file: Path, delimiter: str, runs: int) -> Measured:
    done = [python("-c", program, file, delimiter) for _ in range(runs)]
    return sorted(done, key=lambda run: run.processor)[len(done) // 2]


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rows", type=int, default=10_000_000)
    options.add_argument("--runs", type=int, default=3, help="of each")
    args = options.parse_args()
    require_tables()
    print(f"{machine()}\n")
    header("table", "rows", "reader", "s", "processor s", "peak", "/ DuckDB")
    with folders(args.data) as (data, _):
        for name, file, delimiter in (
            ("Adult", bootstrap(data, args.rows, "csv"), ";"),
            ("mixed", make_mixed(data, args.rows), ","),
        ):
            warm(file)
            plain = middle(PLAIN, file, delimiter, args.runs)
            ours = middle(SQLANON, file, delimiter, args.runs)
            for reader, done in (("DuckDB", plain), ("sqlanon", ours)):
                ratio = f"{done.processor / plain.processor:.2f}"
                seconds = (f"{done.seconds:.2f}", f"{done.processor:.2f}")
                row(name, f"{args.rows:,}", reader, *seconds, gigabytes(done.peak), ratio)
                record(args.results, "reading", reader, args.rows, done.seconds, peak=done.peak, table=name)


if __name__ == "__main__":
    main()
