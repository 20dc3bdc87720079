"""Local strategies at size: the whole job of each against reading the table once and writing it once, in one run.

    python benchmarks/local.py [--rows 100000 1000000] [--k 5 50] [--strategies "mondrian, sets" local]
    python benchmarks/local.py --rows 10000000 --strategies mondrian "mondrian, sets" --memory-limit 2GB
    python benchmarks/local.py --table adult --rows 100000 --peers peers/bin/python

For each number of rows of `people.py`, or of Adult resampled (`bootstrap.py`), one process after the other: the floor
(`plain.py`), and ``sqlanon anonymize`` with each strategy, at most 5 % suppressed, `loss`. The ratio is the processor
time of the whole process to that of the floor's two statements, the lesser of two measurements: it says more than
seconds on a machine that has other work. A run that takes longer than ``--time-limit`` is stopped. With
``--peers``, the Python of their environment (see peers.txt), anonypy's Mondrian is measured on Adult, k = 5.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bootstrap import bootstrap
from floor import people
from harness import (
    HERE,
    Limits,
    Measured,
    add_limits,
    case_policy,
    folders,
    gigabytes,
    header,
    machine,
    parser,
    python,
    record,
    row,
    run_measured,
    sqlanon_command,
    warm,
)
from peers import describe_end, peer
from people import people_policy

SETS = ", sets"
TARGETS = {
    "optimal": 2.0, "mondrian": 8.0, "mondrian, sets": 8.0, "local": 15.0, "k-similar, sets": 15.0, "subtree": 15.0,
    "cells": 15.0,
}  # fmt: skip
"""By strategy: the greatest ratio to the floor that is asked for with 5 and 10 million rows."""


@dataclass(frozen=True)
class Table:
    """A table to release: ``make`` writes a database of some size to a folder, and ``policy`` takes it, the release and
    k."""

    make: Callable[[Path, int], Path]
    policy: Callable[[Path, Path, int], Mapping[str, Any]]


def adult(folder: Path, rows: int) -> Path:
    return bootstrap(folder, rows, "duckdb")


def adult_policy(database: Path, release: Path, k: int) -> dict[str, Any]:
    return case_policy("Adult-8", k, 0.05, release, {"database": str(database), "table": "adult"})


TABLES = {"people": Table(people, people_policy), "adult": Table(adult, adult_policy)}


def search_options(name: str) -> dict[str, str]:
    """The keys of ``[search]`` for a name in the table."""
    strategy = name.removesuffix(SETS)
    options = {"strategy": strategy} | ({"summary": "set"} if name.endswith(SETS) else {})
    return {"strategy": "optimal", "suppression": "cells"} if strategy == "cells" else options


def show(rows: int, k: int, name: str, floor: float, loss: str, classes: str, done: Measured) -> None:
    """A row of the table; ``loss`` says why a process has none."""
    target = f"{TARGETS[name]:g}" if name in TARGETS else "-"
    times = f"{done.seconds:.1f}", f"{done.processor:.1f}", f"{floor:.1f}"
    row(f"{rows:,}", k, name, loss, classes, *times, f"**{done.processor / floor:.1f}**", target, gigabytes(done.peak))


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--table", choices=TABLES, default="people")
    options.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    options.add_argument("--k", type=int, nargs="+", default=[5])
    options.add_argument("--strategies", nargs="+", choices=TARGETS, default=list(TARGETS))
    options.add_argument("--peers", type=Path, help="the Python of the peers' environment")
    options.add_argument("--time-limit", type=float, default=1800, help="seconds of one process")
    add_limits(options, "2GB")
    args = options.parse_args()
    limits = Limits(args.memory_limit, args.threads)
    print(f"{machine()}; {limits}\n")
    header("rows", "k", "strategy", "loss", "classes", "seconds", "processor, s", "floor's", "ratio", "asked", "peak")
    table = TABLES[args.table]
    with folders(args.data) as (data, folder):
        for rows in args.rows:
            database = table.make(data, rows)
            warm(database)
            fresh = folder / "fresh.duckdb"
            fresh.unlink(missing_ok=True)
            arguments = [database, fresh, "--table", args.table, *limits.options()]
            runs = [python(HERE / "plain.py", *arguments, environment={"TMPDIR": str(folder)}) for _ in range(2)]
            floor = min(json.loads(plain.output)["processor"] for plain in runs)

            for k in args.k:
                for name in args.strategies:
                    policy = dict(table.policy(database, folder / "release.duckdb", k))
                    policy["search"] = {**policy["search"], **search_options(name)}
                    command, environment = sqlanon_command("anonymize", policy, folder / "job", limits)
                    done = run_measured(command, environment=environment, timeout=args.time_limit)
                    if done.status:
                        show(rows, k, name, floor, describe_end(done), "-", done)
                        continue
                    figures = json.loads(done.output)
                    loss, classes = figures["score"], figures["classes"]
                    show(rows, k, name, floor, f"{loss:.4f}", f"{classes:,}", done)
                    benchmark = f"local, {args.table}"
                    record(args.results, benchmark, name, rows, done.seconds, k=k, loss=loss, peak=done.peak,
                           processor=done.processor, processor_ratio=round(done.processor / floor, 2))  # fmt: skip
            if args.peers is not None and args.table == "adult":
                anonypy = peer(args.peers, "anonypy", "out.csv")
                done = anonypy.run(bootstrap(data, rows, "csv", sensitive=True), folder, args.time_limit)
                show(rows, 5, "anonypy", floor, describe_end(done) if done.status else "-", "-", done)


if __name__ == "__main__":
    main()
