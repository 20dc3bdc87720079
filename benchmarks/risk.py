"""What `risk` costs: everything but SUDA against one GROUP BY ALL of the quasi-identifiers, in one run.

    python benchmarks/risk.py [--rows 1000000 10000000] [--memory-limit 8GB] [--threads N] [--runs 3]

For each number of rows of `people.py`: the seconds of ``SELECT <8 quasi-identifiers>, count(*) GROUP BY ALL`` in plain
DuckDB, whose groups are counted and not kept, and those of ``Database.risk``: k, the attackers, population uniqueness
(the table is said to be a hundredth of its population), the sizes of the classes, the leakage of all attributes, pairs
and triples. One process runs them in turns, one connection after the other on the same file, and shows the median of
the ratios; the target is at most 3. Processor time of all threads is in brackets: it depends less on what else the
machine does. With ``--more``: risk without the leakage, and with weights and households, which the table then has by a
query.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Taken:
    """The seconds of a job: wall time, and the time of all processors."""

    wall: float
    processor: float

    def __str__(self) -> str:
        return f"{self.wall:.2f} ({self.processor:.2f})"


def time_job(job: Callable[[], object]) -> Taken:
    """Measure the time of a job."""
    wall, processor = time.perf_counter(), time.process_time()
    job()
    return Taken(time.perf_counter() - wall, time.process_time() - processor)


def time_grouping(database: Path, memory: str | None, threads: int | None) -> Taken:
    """The time of the one statement."""
    with duckdb.connect(str(database), read_only=True) as connection:
        if memory is not None:
            connection.execute(f"SET memory_limit = '{memory}'")
        if threads is not None:
            connection.execute(f"SET threads = {threads}")
        groups = f"SELECT {', '.join(QUASI)}, count(*) AS n FROM people GROUP BY ALL"
        return time_job(lambda: connection.execute(f"SELECT count(*), sum(n) FROM ({groups})").fetchall())


def time_assessment(
    database: Path, memory: str | None, threads: int | None, weighed: bool = False, **options: Any
) -> Taken:
    """The time of `Database.risk`."""
    requested_policy = policy(database, weighed)
    with sqlanon.connect(memory_limit=memory, threads=threads) as db:
        return time_job(lambda: db.risk(requested_policy, **options))


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    options.add_argument("--runs", type=int, default=3, help="of each size")
    options.add_argument("--more", action="store_true", help="without leakage, and with weights and households")
    add_limits(options, "8GB")
    args = options.parse_args()
    print(f"{machine()}; memory limit {args.memory_limit}, {args.threads} threads\n")
    more = ["without leakage", "with weights and households"] if args.more else []
    header("rows", "GROUP BY, s", "risk, s", "risk / GROUP BY", *more)
    with folders(args.data) as (data, _):
        for rows in args.rows:
            database, limits = people(data, rows), (args.memory_limit, args.threads)
            warm(database)
            pairs = [(time_grouping(database, *limits), time_assessment(database, *limits)) for _ in range(args.runs)]
            plain, job = sorted(pairs, key=lambda pair: pair[1].wall / pair[0].wall)[len(pairs) // 2]
            ratios = [job.wall / plain.wall for plain, job in pairs]
            spread = f", {min(ratios):.2f} to {max(ratios):.2f}" if ratios[1:] else ""
            processor = statistics.median(job.processor / plain.processor for plain, job in pairs)
            extra_options = [{"leakage": 0}, {"weighed": True}] if args.more else []
            extra_runs = [time_assessment(database, *limits, **options) for options in extra_options]
            ratio = statistics.median(ratios)
            row(f"{rows:,}", plain, job, f"**{ratio:.2f}**{spread} ({processor:.2f})", *extra_runs)
            record(
                args.results, "risk", "sqlanon", rows, job.wall, ratio=round(ratio, 3), processor=round(processor, 3)
            )


if __name__ == "__main__":
    main()
