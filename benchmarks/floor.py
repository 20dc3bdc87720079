"""The floor ratio: the whole job against reading the table once and writing it once, in one run on one machine.

    python benchmarks/floor.py [--rows 1000000 10000000] [--memory-limit 8GB] [--threads N] [--runs N]
    python benchmarks/floor.py --rows 100000000 --memory-limit 2GB      # the memory run

For each number of rows of `people.py`, one after the other, as separate processes: the floor (`plain.py`:
``GROUP BY ALL`` over the quasi-identifiers, and ``CREATE TABLE AS`` of the released columns), and ``sqlanon anonymize``
with k = 5, at most 5 % suppressed, `loss`: search, recode, shuffle, audit, publish. Both read the same DuckDB file,
which is in the disk's cache, with the same memory limit and threads. The ratio is the whole process of the job, its
start included, to the two statements of the floor; where there are several runs, each with its own floor, it is the
median. The ratio of processor times says more on a machine that has other work. In brackets: the copy into a file that
older programs can read, as releases are; the floor does not count it.
"""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass
from pathlib import Path

from harness import (
    HERE,
    Job,
    Limits,
    Measured,
    add_limits,
    anonymize,
    folders,
    gigabytes,
    header,
    machine,
    parser,
    python,
    record,
    row,
    warm,
)
from people import people_policy


@dataclass(frozen=True)
class Pair:
    """One run: the floor and the job."""

    plain: Measured
    figures: dict[str, float]
    job: Job

    @property
    def floor(self) -> float:
        return self.figures["group"] + self.figures["copy"]

    @property
    def ratio(self) -> float:
        return self.job.seconds / self.floor

    @property
    def processor_ratio(self) -> float:
        return self.job.process.processor / self.figures["processor"]


def people(folder: Path, rows: int) -> Path:
    """The table with this number of people, made once in a separate process."""
    path = folder / f"people_{rows}.duckdb"
    if not path.exists():
        unfinished = folder / f"unfinished_{rows}.duckdb"
        unfinished.unlink(missing_ok=True)
        python(HERE / "people.py", unfinished, str(rows))
        unfinished.rename(path)
    return path


def pair(database: Path, folder: Path, limits: Limits) -> Pair:
    """The floor, then the job."""
    warm(database)
    fresh = folder / "fresh.duckdb"
    fresh.unlink(missing_ok=True)
    plain = python(HERE / "plain.py", database, fresh, *limits.options(), environment={"TMPDIR": str(folder)})
    figures = json.loads(plain.output)
    job = anonymize(people_policy(database, folder / "release.duckdb"), folder / "job", limits)
    return Pair(plain, figures, job)


def show(rows: int, pairs: list[Pair]) -> None:
    """The run with the median ratio, as a row; and how far the ratios spread."""
    median = sorted(pairs, key=lambda run: run.ratio)[len(pairs) // 2]
    job, figures = median.job, median.figures
    lattice, ratios = job.figures["lattice"], [run.ratio for run in pairs]
    row(
        f"{rows:,}",
        f"{figures['group']:.2f}",
        f"{figures['copy']:.2f} ({figures['copy_compatible']:.2f})",
        f"{median.floor:.2f}",
        f"{job.seconds:.2f}",
        job.stages(),
        f"{lattice['checked']:,} of {lattice['nodes']:,}",
        f"**{statistics.median(ratios):.2f}**" + (f" ({min(ratios):.2f} to {max(ratios):.2f})" if ratios[1:] else ""),
        f"{job.process.processor:.1f} to {figures['processor']:.1f}",
        f"**{statistics.median(run.processor_ratio for run in pairs):.2f}**",
        gigabytes(max(run.plain.peak for run in pairs)),
        gigabytes(max(run.job.process.peak for run in pairs)),
        ", ".join(job.left) or "nothing",
    )


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    options.add_argument("--runs", type=int, default=1, help="of each size")
    add_limits(options, "8GB")
    args = options.parse_args()
    limits = Limits(args.memory_limit, args.threads)
    print(f"{machine()}; {limits}\n")
    header(
        "rows", "GROUP BY, s", "copy, s", "floor, s", "job, s", "split", "checks", "job / floor",
        "processor, s", "of processor time", "floor's peak", "job's peak", "left in TMPDIR",
    )  # fmt: skip
    with folders(args.data) as (data, folder):
        for rows in args.rows:
            database, pairs = people(data, rows), []
            for _ in range(args.runs):
                pairs.append(pair(database, folder, limits))
                last = pairs[-1]
                common = {"memory_limit": limits.memory, "threads": limits.threads}
                record(args.results, "floor", "floor", rows, last.floor, peak=last.plain.peak, **common)
                record(args.results, "floor", "sqlanon", rows, last.job.seconds, peak=last.job.process.peak,
                       ratio=round(last.ratio, 3), processor_ratio=round(last.processor_ratio, 3),
                       **common)  # fmt: skip
            show(rows, pairs)


if __name__ == "__main__":
    main()
