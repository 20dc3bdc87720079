"""What growing and verifying cost: `extend` by 1 % of new rows, and `verify` alone, relative to making the release.

    python benchmarks/incremental.py [--rows 1000000] [--memory-limit 8GB] [--threads N]

People with a number as the key (``[source] key``), k = 5, at most 5 % suppressed, `loss`, with a catalog. One process;
processor seconds of each job, all threads together: making (search and publish), one scan of the release (the least,
greatest and number of values of each column), `verify` of the release alone, and after 1 % more rows `extend`: finding
what can be added, and publishing it. The release that is extended stays in the ledger, and the extended one is compared
with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
from floor import people
from harness import add_limits, folders, header, machine, parser, record, row
from people import RELEASED, people_policy

import sqlanon
from sqlanon.engines.limits import Limits
from sqlanon.publish.targets.base import release_location


def copy_people(database: Path, target: Path) -> None:
    """The people with a key."""
    with duckdb.connect(str(target)) as connection:
        connection.execute(f"ATTACH '{database}' AS original (READ_ONLY)")
        connection.execute("CREATE TABLE people AS SELECT row_number() OVER () AS id, * FROM original.people")
        connection.execute("CREATE TABLE countries AS FROM original.countries")


def add_people(database: Path, rows: int) -> None:
    """One in a hundred of them comes again, under another key."""
    with duckdb.connect(str(database)) as connection:
        connection.execute(f"INSERT INTO people SELECT * REPLACE ({rows} + id AS id) FROM people WHERE id % 100 = 0")


def policy(folder: Path) -> sqlanon.Policy:
    tree: dict[str, Any] = people_policy(folder / "keyed.duckdb", folder / "release.duckdb")
    tree["attributes"]["id"] = {"role": "identifying"}
    tree["source"]["key"] = "id"
    return sqlanon.Policy(**tree, catalog={"database": str(folder / "catalog.duckdb")})


def processor(job: Callable[[], object]) -> float:
    started = time.process_time()
    job()
    return time.process_time() - started


def scan(release: Path) -> None:
    """Each column of a release, once."""
    figures = ", ".join(f"count({name}), min({name}), max({name})" for name in RELEASED)
    with duckdb.connect(str(release), read_only=True) as connection:
        connection.execute(f"SELECT {figures} FROM people").fetchall()


def measure_steps(folder: Path, limits: Limits, rows: int) -> tuple[float, float, float, float, float]:
    """Making, one scan, verifying, and the two parts of extending."""
    release, extensions = folder / "release.duckdb", list[Any]()
    with sqlanon.connect(memory_limit=limits.memory_limit, threads=limits.threads) as db:
        make = processor(lambda: db.anonymize(policy(folder)).publish())
    scanned = processor(lambda: scan(release))
    verified = processor(lambda: release_location(str(release), None).verify(limits, None))
    add_people(folder / "keyed.duckdb", rows)
    with sqlanon.connect(memory_limit=limits.memory_limit, threads=limits.threads) as db:
        find = processor(lambda: extensions.append(db.extend(policy(folder))))
        return make, scanned, verified, find, processor(extensions[0].publish)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rows", type=int, nargs="+", default=[1_000_000])
    add_limits(options, "8GB")
    args = options.parse_args()
    print(f"{machine()}; memory limit {args.memory_limit}, {args.threads} threads; processor seconds\n")
    header("rows", "make", "scan", "verify", "verify / scan", "extend: find", "extend: publish", "extend / make")
    with folders(args.data) as (data, folder):
        for rows in args.rows:
            copy_people(people(data, rows), folder / "keyed.duckdb")
            make, scanned, verified, find, publish = measure_steps(
                folder, Limits(args.memory_limit, args.threads), rows
            )
            ratio = (find + publish) / make
            seconds = [f"{value:.2f}" for value in (make, scanned, verified)]
            row(f"{rows:,}", *seconds, f"{verified / scanned:.1f}", f"{find:.2f}", f"{publish:.2f}", f"**{ratio:.2f}**")
            record(args.results, "incremental", "sqlanon", rows, find + publish, ratio=round(ratio, 3))
            for path in folder.iterdir():
                path.unlink()


if __name__ == "__main__":
    main()
