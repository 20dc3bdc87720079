"""Live views: the same questions to a live view and to a materialised release, and what makes the view fast.

    python benchmarks/live.py [--rows 1000000 10000000] [--memory-limit 8GB] [--threads N] [--runs 3]

For each number of rows of `people.py`, k = 5 with at most 5 % suppressed: seconds of each question to a table that has
what the view shows, to the view as `Database.live` makes it, and how many times as long that is. Then the view with
its labelled rows kept for the time of a question (``MATERIALIZED``), and made twice (``NOT MATERIALIZED``): as it is,
the engine decides. One connection, the forms taken in turns; a figure is the median of the runs.
"""

from __future__ import annotations

import re
import shutil
import statistics
import time
from pathlib import Path

import duckdb
from floor import people
from harness import add_limits, folders, header, machine, parser, record, row
from people import people_policy

import sqlanon

QUESTIONS = {
    "how many": "SELECT count(*) FROM {}",
    "mean by one": "SELECT sex, avg(cost), count(*) FROM {} GROUP BY sex",
    "mean by three": "SELECT birth, education, diagnosis, avg(cost) FROM {} GROUP BY ALL",
    "of some": "SELECT diagnosis, count(*) FROM {} WHERE sex = 'f' AND cost > 100 GROUP BY diagnosis",
}
HINTS = {"people_live": "", "kept": " MATERIALIZED", "twice": " NOT MATERIALIZED"}


def prepare(database: Path, memory: str | None, threads: int | None) -> duckdb.DuckDBPyConnection:
    """A connection to the table with the view in three forms, and the table of what it shows."""
    policy = sqlanon.Policy(**people_policy(database, None))
    with sqlanon.connect(memory_limit=memory, threads=threads) as db:
        db.live(policy)
        statements = db.live_sql(policy)
    view = re.search(r'CREATE (?:SECURE )?VIEW "main"."people_live" AS.*?;$', statements, re.DOTALL | re.MULTILINE)
    assert view is not None
    connection = duckdb.connect(database)
    for name, value in {"memory_limit": memory, "threads": threads}.items():
        if value is not None:
            connection.execute(f"SET {name} = '{value}'")
    for name, hint in HINTS.items():
        if hint:
            text = view[0].replace('"people_live"', f'"{name}"', 1).replace('"rows" AS (', f'"rows" AS{hint} (', 1)
            connection.execute(text)
    connection.execute("CREATE TABLE released AS FROM people_live")
    connection.execute("CHECKPOINT")
    return connection


def seconds(connection: duckdb.DuckDBPyConnection, question: str) -> float:
    """Of one question."""
    started = time.perf_counter()
    connection.execute(question).fetchall()
    return time.perf_counter() - started


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    options.add_argument("--runs", type=int, default=3, help="of each question")
    add_limits(options, "8GB")
    args = options.parse_args()
    print(f"{machine()}; memory limit {args.memory_limit}, {args.threads} threads\n")
    header("rows", "question", "release, s", "live view, s", "times as long", "rows kept, s", "rows made twice, s")
    with folders(args.data) as (data, scratch):
        for rows in args.rows:
            database = scratch / "live.duckdb"
            shutil.copy(people(data, rows), database)  # the view is written into it
            with prepare(database, args.memory_limit, args.threads) as connection:
                for name, question in QUESTIONS.items():
                    taken: dict[str, list[float]] = {}
                    for _ in range(args.runs):
                        for place in ("released", *HINTS):
                            taken.setdefault(place, []).append(seconds(connection, question.format(place)))
                    release, view, unchanged, twice = (statistics.median(times) for times in taken.values())
                    cells = (
                        f"{release:.3f}",
                        f"{view:.2f}",
                        f"**{view / release:.1f}**",
                        f"{unchanged:.2f}",
                        f"{twice:.2f}",
                    )
                    row(f"{rows:,}", name, *cells)
                    record(args.results, "live", name, rows, view, release=round(release, 4))
            database.unlink()


if __name__ == "__main__":
    main()
