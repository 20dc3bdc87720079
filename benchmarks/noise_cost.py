"""What noise costs at size: the whole process without noise, with it, and with it and 99 %-confidence.

    python benchmarks/noise_cost.py [--rows 1000000 4000000] [--memory-limit 1GB] [--threads N] [--runs N]
        [--cases 'with noise']

Adult resampled by `bootstrap.py`, with a height made by `heights.py`, in a DuckDB table; k = 5, at most 5 % suppressed;
the height has noise of ε = 1, or is released as it is. ``sqlanon anonymize`` as a separate process, to an audited
DuckDB file. A figure is the fastest of the runs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
from bootstrap import bootstrap
from harness import (
    HERE,
    Limits,
    add_limits,
    anonymize,
    folders,
    gigabytes,
    header,
    machine,
    parser,
    python,
    record,
    require_tables,
    row,
)
from heights import K_QUASIS, people_query

NOISY: Mapping[str, Any] = {"role": "quasi", "noise": {"epsilon": 1.0}}
CASES: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "without noise": ({"role": "insensitive"}, {}),
    "with noise": (NOISY, {}),
    "and confidence": (NOISY, {"confidence": 0.99}),
}
"""The noise of the height, and requirements other than k."""


def people(folder: Path, rows: int) -> Path:
    """The table ``people`` with this number of rows in a database, made once in a separate process."""
    path = folder / f"heights_{rows}.duckdb"
    if not path.exists():
        python(HERE / "noise_cost.py", "--make", bootstrap(folder, rows, "duckdb"), path)
    return path


def make(adult: Path, path: Path) -> None:
    """Write it."""
    unfinished = path.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    with duckdb.connect(config={"preserve_insertion_order": False}) as connection:
        connection.execute(f"ATTACH '{adult}' AS given (READ_ONLY)")
        connection.execute(f"ATTACH '{unfinished}' AS made")
        connection.execute(f"CREATE TABLE made.people AS {people_query('given.adult')}")
    unfinished.rename(path)


def policy(table: Path, release: Path, case: str) -> dict[str, Any]:
    """The policy of a case, as a tree."""
    height, privacy = CASES[case]
    return {
        "source": {"database": str(table), "table": "people"},
        "attributes": {**K_QUASIS, "height": height},
        "privacy": {"k": 5, **privacy},
        "search": {"suppression_limit": 0.05},
        "release": {"database": str(release), "table": "people"},
    }


def measure(table: Path, rows: int, folder: Path, arguments: argparse.Namespace) -> None:
    """The rows of the table for so many rows: the fastest of the runs."""
    limits, plain = Limits(arguments.memory_limit, arguments.threads), 0.0
    for case in arguments.cases:
        tree = policy(table, folder / "release.duckdb", case)
        job = min((anonymize(tree, folder / "job", limits) for _ in range(arguments.runs)), key=lambda run: run.seconds)
        plain = plain or job.seconds
        suppressed = f"{job.figures['suppressed_rows']:,}"
        peak, more = gigabytes(job.process.peak), f"{job.seconds - plain:+.2f}"
        row(f"{rows:,}", case, f"{job.seconds:.2f}", more, job.stages(), peak, suppressed)
        record(arguments.results, "noise_cost", case, rows, job.seconds, peak=job.process.peak,
               stages=job.figures["seconds"])  # fmt: skip


def main() -> None:
    if sys.argv[1:2] == ["--make"]:
        make(*map(Path, sys.argv[2:]))
        return
    options = parser(__doc__)
    options.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 4_000_000])
    options.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    options.add_argument("--runs", type=int, default=1)
    add_limits(options, "1GB")
    args = options.parse_args()
    require_tables()
    print(f"{machine()}; {Limits(args.memory_limit, args.threads)}\n")
    header("rows", "", "s", "more", "split", "peak", "suppressed rows")
    with folders(args.data) as (data, folder):
        for rows in args.rows:
            measure(people(data, rows), rows, folder, args)


if __name__ == "__main__":
    main()
