"""Adult at size: the whole process from CSV, DuckDB and Parquet files, with memory capped.

    python benchmarks/sizes.py [--rows 1000000 5000000 10000000] [--memory-limit 1GB] [--threads N] [--runs N]

The eight quasi-identifiers of Adult, resampled by `bootstrap.py`; k = 5 with at most 5 % suppressed, and k = 50 with 1
%; `loss`. ``sqlanon anonymize`` as a separate process, to an audited DuckDB file, and from Parquet to Parquet. The
figures of the Java reference (CSV in, file out) were measured elsewhere, on a quiet machine of the same kind, with a
resampling of its own. A figure is the fastest of the runs.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bootstrap import bootstrap
from harness import (
    Limits,
    add_limits,
    anonymize,
    case_policy,
    folders,
    gigabytes,
    header,
    machine,
    parser,
    record,
    require_tables,
    row,
    warm,
)

ASKED = ((5, 0.05), (50, 0.01))

# Seconds and GB of the Java reference, by rows, k and limit: measured elsewhere.
REFERENCE = {
    (1_000_000, 5, 0.05): (5.1, "1.0 GB"),
    (5_000_000, 5, 0.05): (11.3, "2.3 GB"),
    (10_000_000, 5, 0.05): (18.5, "4.1 GB"),
    (10_000_000, 50, 0.01): (27.5, "-"),
}


def source(path: Path) -> dict[str, str]:
    """The policy's keys for the file of a table."""
    return {"database": str(path), "table": "adult"} if path.suffix == ".duckdb" else {"files": str(path)}


def measure(table: Path, release: Path, rows: int, k: int, limit: float, arguments: argparse.Namespace) -> None:
    """One row of the table: the fastest of the runs."""
    limits = Limits(arguments.memory_limit, arguments.threads)
    policy = case_policy("Adult-8", k, limit, release, source(table))
    job = min(
        (anonymize(policy, release.parent / "job", limits) for _ in range(arguments.runs)), key=lambda run: run.seconds
    )
    lattice, ending, release_ending = (
        job.figures["lattice"],
        table.suffix.removeprefix("."),
        release.suffix.removeprefix("."),
    )
    reference, peak = REFERENCE.get((rows, k, limit), (None, "-"))
    row(
        f"{rows:,}",
        f"{k}, {limit:.0%}",
        f"{ending} to {release_ending}",
        f"{job.seconds:.2f} ({job.process.processor:.2f})",
        job.stages(),
        f"{lattice['checked']:,} of {lattice['nodes']:,}",
        f"{job.figures['score']:.4f}",
        gigabytes(job.process.peak),
        reference or "-",
        peak,
        f"{job.seconds / reference:.2f}" if reference else "-",
    )
    record(arguments.results, "sizes", f"sqlanon, {ending}", rows, job.seconds, peak=job.process.peak, k=k, limit=limit,
           loss=job.figures["score"], memory_limit=limits.memory)  # fmt: skip


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 5_000_000, 10_000_000])
    options.add_argument("--runs", type=int, default=1, help="of each")
    add_limits(options, "1GB")
    args = options.parse_args()
    require_tables()
    print(f"{machine()}; {Limits(args.memory_limit, args.threads)}\n")
    header(
        "rows",
        "k, limit",
        "files",
        "s (processor s)",
        "split",
        "checks",
        "loss",
        "peak",
        "reference, s",
        "its peak",
        "of its time",
    )
    with folders(args.data) as (data, folder):
        for rows in args.rows:
            for ending, release_ending in (("csv", "duckdb"), ("duckdb", "duckdb"), ("parquet", "parquet")):
                table = bootstrap(data, rows, ending)
                warm(table)
                for k, limit in ASKED:
                    measure(table, folder / f"release.{release_ending}", rows, k, limit, args)


if __name__ == "__main__":
    main()
