"""What `risk` costs: everything but SUDA against one GROUP BY ALL of the quasi-identifiers, in one run.

    python benchmarks/risk.py [--rows 1000000 10000000] [--memory-limit 8GB] [--threads N] [--runs 3]

For each number of rows of `people.py`: the seconds of ``SELECT <8 quasi-identifiers>, count(*) GROUP BY ALL`` in plain
DuckDB, whose groups are counted and not kept, and those of ``Database.risk``: k, the attackers, population uniqueness
(the table is said to be a hundredth of its population), the sizes of the classes, the leakage of all attributes, pairs
and triples. One process, one connection after the other on the same file; taken in turns, and the median of the ratios
is told. What is asked: at most 5. Beside it: the same without the leakage, and with weights and households, which the
table has as a query.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
from floor import people
from harness import add_limits, folders, header, machine, parser, record, row, warm
from people import QUASI, people_policy

import sqlanon

WEIGHED = "SELECT *, 50 + hash(zip, birth) % 100 AS weight, hash(zip, birth) % 4000000 AS household FROM people"


def policy(database: Path, weighed: bool = False) -> sqlanon.Policy:
    """The policy of people, with a population a hundred times as large."""
    tree: dict[str, Any] = people_policy(database, None) | {"risk": {"sampling_fraction": 0.01}}
    if weighed:
        tree["source"] = {"database": str(database), "query": WEIGHED}
        tree["risk"] = {"weights": "weight", "household": "household", **tree["risk"]}
    return sqlanon.Policy(**tree)


def seconds(job: Callable[[], object]) -> float:
    """How long a job takes."""
    started = time.perf_counter()
    job()
    return time.perf_counter() - started


def grouped(database: Path, memory: str | None, threads: int | None) -> float:
    """Seconds of the one statement."""
    with duckdb.connect(str(database), read_only=True) as connection:
        if memory is not None:
            connection.execute(f"SET memory_limit = '{memory}'")
        if threads is not None:
            connection.execute(f"SET threads = {threads}")
        groups = f"SELECT {', '.join(QUASI)}, count(*) AS n FROM people GROUP BY ALL"
        return seconds(lambda: connection.execute(f"SELECT count(*), sum(n) FROM ({groups})").fetchall())


def assessed(database: Path, memory: str | None, threads: int | None, weighed: bool = False, **options: Any) -> float:
    """Seconds of `Database.risk`."""
    asked = policy(database, weighed)
    with sqlanon.connect(memory_limit=memory, threads=threads) as db:
        return seconds(lambda: db.risk(asked, **options))


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    options.add_argument("--runs", type=int, default=3, help="of each size")
    add_limits(options, "8GB")
    asked = options.parse_args()
    print(f"{machine()}; memory limit {asked.memory_limit}, {asked.threads} threads\n")
    header("rows", "GROUP BY, s", "risk, s", "risk / GROUP BY", "without leakage, s", "with weights and households, s")
    with folders(asked.data) as (data, _):
        for rows in asked.rows:
            database, limits = people(data, rows), (asked.memory_limit, asked.threads)
            warm(database)
            pairs = [(grouped(database, *limits), assessed(database, *limits)) for _ in range(asked.runs)]
            ratios = [job / plain for plain, job in pairs]
            median = sorted(pairs, key=lambda one: one[1] / one[0])[len(pairs) // 2]
            bare, weighed = assessed(database, *limits, leakage=0), assessed(database, *limits, weighed=True)
            spread = f" ({min(ratios):.2f} to {max(ratios):.2f})" if ratios[1:] else ""
            told = [f"{one:.2f}" for one in (*median, statistics.median(ratios), bare, weighed)]
            row(f"{rows:,}", *told[:2], f"**{told[2]}**{spread}", *told[3:])
            record(asked.results, "risk", "sqlanon", rows, median[1], ratio=round(statistics.median(ratios), 3))


if __name__ == "__main__":
    main()
