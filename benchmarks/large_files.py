"""Hundreds of millions of people in Parquet files: time, peak memory and disk of the whole job.

    python benchmarks/large_files.py --rows 300000000 --memory-limit 6GB --data DIR [--strategies optimal mondrian]

For each strategy ``sqlanon anonymize``, k = 5, at most 5 % suppressed, `loss`: search, recode, shuffle, audit, publish
and verify, as one process. The disk is the most that the release, the catalog and ``TMPDIR`` held together, looked at
every few seconds. 300 million rows are 4.8 GB of files, made in about five minutes with two processors.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import duckdb
from harness import (
    Limits,
    add_limits,
    anonymize,
    folders,
    gigabytes,
    header,
    machine,
    parser,
    record,
    row,
)
from people import COUNTRY_CATEGORIES, people_policy, people_query

ROWS_OF_FILE = 50_000_000


def make_file(path: Path, first: int, rows: int) -> None:
    """Write some rows of people to a Parquet file, with one thread."""
    settings = {"threads": 1, "memory_limit": "1GB", "preserve_insertion_order": False}
    unfinished = path.with_suffix(".tmp")
    with duckdb.connect(config=settings) as connection:
        connection.execute(f"COPY ({people_query(rows, first=first)}) TO '{unfinished}' (FORMAT parquet)")
    unfinished.rename(path)


def make_files(folder: Path, rows: int) -> list[Path]:
    """Make the files of the first rows of people that the folder does not have yet."""
    files: dict[Path, tuple[int, int]] = {}
    for first in range(0, rows, ROWS_OF_FILE):
        count = min(ROWS_OF_FILE, rows - first)
        files[folder / f"people_{first}_{count}.parquet"] = first, count
    with ProcessPoolExecutor() as pool:
        made = [pool.submit(make_file, path, *part) for path, part in files.items() if not path.exists()]
        for future in made:
            future.result()
    return list(files)


def size_of(folder: Path) -> int:
    """The bytes of all files of a folder; those that are removed meanwhile count as empty."""
    size = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                size += (Path(place) / name).stat().st_size
            except FileNotFoundError:
                continue
    return size


@contextmanager
def watch_disk(folder: Path, seconds: float = 3) -> Iterator[list[int]]:
    """The greatest size of a folder, in bytes, looked at every few seconds."""
    greatest, is_done = [0], threading.Event()

    def watch() -> None:
        while not is_done.wait(seconds):
            greatest[0] = max(greatest[0], size_of(folder))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield greatest
    finally:
        is_done.set()
        thread.join()


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rows", type=int, nargs="+", default=[300_000_000])
    options.add_argument("--strategies", nargs="+", default=["optimal"])
    add_limits(options, "6GB")
    args = options.parse_args()
    limits = Limits(args.memory_limit, args.threads)
    print(f"{machine()}; {limits}\n")
    header("rows", "strategy", "loss", "classes", "seconds", "of them", "processor, s", "peak", "disk", "release")
    with folders(args.data) as (data, folder):
        for rows in args.rows:
            files = make_files(data, rows)
            for strategy in args.strategies:
                release = folder / "job" / "release.duckdb"
                policy = people_policy(None, release)
                policy["source"] = {"files": [str(path) for path in files]}
                policy["attributes"]["country"]["hierarchy"] = {"categories": COUNTRY_CATEGORIES}
                policy["search"]["strategy"] = strategy
                with watch_disk(folder) as disk:
                    job = anonymize(policy, folder / "job", limits)
                figures, process = job.figures, job.process
                loss, classes = f"{figures['score']:.4f}", f"{figures['classes']:,}"
                times = f"{job.seconds:.0f}", job.stages(), f"{process.processor:.0f}"
                sizes = map(gigabytes, (process.peak, disk[0], release.stat().st_size))
                row(f"{rows:,}", strategy, loss, classes, *times, *sizes)
                record(args.results, "large files", strategy, rows, job.seconds, peak=process.peak, disk=disk[0],
                       processor=process.processor, loss=figures["score"])  # fmt: skip


if __name__ == "__main__":
    main()
