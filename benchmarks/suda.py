"""Special uniques level by level on packed keys, against one CUBE over all sets of attributes, in one run.

    python benchmarks/suda.py [--runs N] [--case Adult-9]

Both find all minimal sample uniques of Adult (30,162 rows, 8 quasi-identifiers) and must agree. Each is a process of
its own on the same table: `Database.suda` of the package, with scores and contributions; and plain SQL without them:
``GROUP BY CUBE (...) HAVING count(*) = 1``, then the uniques that have no smaller one of their row within. The time is
from the loaded table to the figures, by the wall and of the processors (which does not depend on who else is there);
the memory what the process held at most above what it held then.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import duckdb
from harness import CASES, DATA, python

import sqlanon
import sqlanon.risk.suda

HERE = Path(__file__).resolve()
UNIQUES = """
    CREATE TABLE uniques AS
    SELECT CAST({all} - grouping({columns}) AS BIGINT) AS subset, min(id) AS id
    FROM (SELECT row_number() OVER () AS id, * FROM people)
    GROUP BY CUBE ({columns})
    HAVING count(*) = 1
"""
MINIMAL = """
    INSERT INTO msus SELECT id, subset FROM uniques AS u
    WHERE bit_count(subset) = {size}
        AND NOT EXISTS (FROM msus AS m WHERE m.id = u.id AND m.subset & u.subset = m.subset)
"""


def by_cube(connection: duckdb.DuckDBPyConnection, names: Sequence[str]) -> dict[int, int]:
    """Minimal sample uniques by size, in plain SQL."""
    columns = ", ".join(f'"{name}"' for name in names)
    connection.execute(UNIQUES.format(all=2 ** len(names) - 1, columns=columns))
    connection.execute("CREATE TABLE msus (id BIGINT, subset BIGINT)")
    for size in range(1, len(names) + 1):
        connection.execute(MINIMAL.format(size=size))
    rows = connection.execute("SELECT bit_count(subset), count(*) FROM msus GROUP BY ALL ORDER BY ALL").fetchall()
    return dict(rows)


def by_level(connection: duckdb.DuckDBPyConnection, names: Sequence[str]) -> dict[int, int]:
    """The same, by the package; with scores."""
    policy = sqlanon.Policy(
        source={"table": "people", "undeclared": "drop"},
        attributes={name: {"role": "quasi", "hierarchy": "suppress"} for name in names},
        privacy={"k": 2},
    )
    with sqlanon.connect(connection) as db:
        return dict(db.suda(policy).msus_by_size)


WAYS: dict[str, Callable[[duckdb.DuckDBPyConnection, Sequence[str]], dict[int, int]]] = {
    "packed keys, level by level": by_level,
    "CUBE": by_cube,
}


def once(way: str, case: str) -> None:
    """Measure one way in this process; one JSON object."""
    folder, names = CASES[case]
    connection = duckdb.connect()
    source = f"read_csv('{DATA / folder / folder}.csv', delim = ';', all_varchar = true)"
    connection.execute(f"CREATE TABLE people AS FROM {source}")
    before, started, used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter(), time.process_time()
    msus = WAYS[way](connection, names)
    figures = {
        "seconds": time.perf_counter() - started,
        "processor": time.process_time() - used,
        "megabytes": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
    }
    print(json.dumps({**figures, "msus": {str(k): n for k, n in msus.items()}}))


def main() -> None:
    """Measure both by turns, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--case", choices=CASES, default="Adult-8")
    parser.add_argument("--once", choices=WAYS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.once:
        once(args.once, args.case)
        return
    runs = [
        {way: json.loads(python(HERE, "--once", way, "--case", args.case).output) for way in WAYS}
        for _ in range(args.runs)
    ]
    results = [run[way]["msus"] for run in runs for way in WAYS]
    assert all(result == results[0] for result in results), "the two do not agree"
    print(f"{sum(results[0].values()):,} minimal sample uniques, by size: {results[0]}\n")
    print(f"| way | seconds (median of {len(runs)}) | from | to | processor, s | memory |")
    print("| --- | --- | --- | --- | --- | --- |")
    median = {
        way: {
            figure: statistics.median(run[way][figure] for run in runs)
            for figure in ("seconds", "processor", "megabytes")
        }
        for way in WAYS
    }
    for way, figures in median.items():
        least, most = (pick(run[way]["seconds"] for run in runs) for pick in (min, max))
        used = f"{figures['processor']:.2f} | {figures['megabytes']:.0f} MB"
        print(f"| {way} | {figures['seconds']:.2f} | {least:.2f} | {most:.2f} | {used} |")
    mine, theirs = median.values()
    ratios = [theirs[figure] / mine[figure] for figure in ("seconds", "processor", "megabytes")]
    print("\nCUBE takes {:.1f} times as long, {:.1f} times the processors, {:.1f} times the memory".format(*ratios))


if __name__ == "__main__":
    main()
