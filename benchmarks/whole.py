"""The whole process on real tables, from CSV to release file, cold, with its split.

    python benchmarks/whole.py [--runs N] [--cases Adult-8 Adult-9 FARS-8]

``python -m sqlanon anonymize policy.toml --json``, k = 5, at most 5 % suppressed, `loss`: medians in milliseconds, with
the smallest and the largest. The tables are found through ``SQLANON_DATA``, else in ``../shared/data`` next to the
project. The Java reference was measured elsewhere, without its start.
"""

from __future__ import annotations

import statistics
from pathlib import Path

from harness import (
    CASES,
    Limits,
    anonymize,
    case_policy,
    folders,
    header,
    machine,
    parser,
    python,
    record,
    require_tables,
    row,
)

# Milliseconds of the Java reference, its start not included: measured elsewhere.
REFERENCE = {"Adult-8": 1400, "FARS-8": 3400}

# What `sqlanon anonymize` loads; asked for by a separate process, and taken off the whole.
IMPORTS = "import sqlanon.cli, sqlanon.database, sqlanon.cli.progress"


def split(case: str, folder: Path) -> tuple[int, dict[str, float]]:
    """One run: rows, and seconds by part."""
    policy = case_policy(case, 5, 0.05, folder / "release.duckdb")
    start = python("-c", "pass").seconds
    start_and_import = python("-c", IMPORTS).seconds
    job = anonymize(policy, folder / "job", Limits(None, None))
    seconds = job.figures["seconds"]
    stages = {name: taken for name, taken in seconds.items() if name != "total"}
    return job.figures["rows"], {
        "whole process": job.process.seconds,
        "python start": start,
        "import": start_and_import - start,
        **stages,
        "policy and catalog": seconds["total"] - sum(stages.values()),
        "end of the process": job.process.seconds - start_and_import - seconds["total"],
    }


def main() -> None:
    options = parser(__doc__, makes_tables=False)
    options.add_argument("--runs", type=int, default=9, help="of each table")
    options.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    args = options.parse_args()
    require_tables()
    print(f"{machine()}; {args.runs} runs of each, ms\n")
    with folders(None) as (_, folder):
        for number, case in enumerate(args.cases):
            rows, _ = split(case, folder)  # makes the bytecode, and warms the disk's cache
            runs = [split(case, folder)[1] for _ in range(args.runs)]
            if not number:
                header("table", *runs[0], "of the reference's")
            medians = {name: statistics.median(run[name] for run in runs) * 1000 for name in runs[0]}
            whole = [run["whole process"] * 1000 for run in runs]
            reference = REFERENCE.get(case)
            row(
                case,
                f"**{medians.pop('whole process'):,.0f}** ({min(whole):,.0f} to {max(whole):,.0f})",
                *(f"{median:,.0f}" for median in medians.values()),
                f"{statistics.median(whole) / reference:.2f} of {reference:,}" if reference else "-",
            )
            record(args.results, "whole", case, rows, statistics.median(whole) / 1000)


if __name__ == "__main__":
    main()
