"""The floor by itself: what plain DuckDB needs to read a table of people once and to write it once; one JSON object.

    python benchmarks/plain.py people.duckdb fresh.duckdb --memory-limit 4GB --threads 2
    python benchmarks/plain.py adult.duckdb fresh.duckdb --table adult

``group``: seconds of ``SELECT <quasi-identifiers>, count(*) GROUP BY ALL``, whose groups are counted and not kept.
``copy``: seconds of ``CREATE TABLE AS SELECT <released columns>`` into a fresh file, until the file is closed.
``copy_compatible``: the same into a file that older programs can read, as releases are; it is not part of the floor.
``processor``: the processor time of ``group`` and ``copy`` together, user and system, of all threads.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import duckdb
from harness import ADULT
from people import QUASI, RELEASED

from sqlanon.policy.sections import STORAGE_VERSION

COLUMNS = {"people": (QUASI, RELEASED), "adult": (ADULT, ADULT)}
"""By table: the quasi-identifiers, and the released columns."""


def floor(
    database: Path, fresh: Path, memory_limit: str | None, threads: int | None, table: str = "people"
) -> dict[str, float]:
    """Seconds of the two statements, and the number of groups."""
    quasi, released = (", ".join(f'"{name}"' for name in names) for names in COLUMNS[table])
    with tempfile.TemporaryDirectory() as spill, duckdb.connect(config={"temp_directory": spill}) as connection:
        if memory_limit is not None:
            connection.execute(f"SET memory_limit = '{memory_limit}'")
        if threads is not None:
            connection.execute(f"SET threads = {threads}")
        connection.execute(f"ATTACH '{database}' AS source (READ_ONLY)")
        copied = f"SELECT {released} FROM source.{table}"
        grouped = f"SELECT {quasi}, count(*) AS n FROM source.{table} GROUP BY ALL"
        started, used = time.perf_counter(), time.process_time()
        row = connection.execute(f"SELECT count(*), sum(n) FROM ({grouped})").fetchone()
        group = time.perf_counter() - started
        copy = time_copy(connection, copied, fresh, "")
        processor = time.process_time() - used
        compatible = time_copy(connection, copied, fresh, f"(STORAGE_VERSION '{STORAGE_VERSION}')")
    groups = row[0] if row else 0
    return {"group": group, "copy": copy, "copy_compatible": compatible, "processor": processor, "groups": groups}


def time_copy(connection: duckdb.DuckDBPyConnection, query: str, fresh: Path, options: str) -> float:
    """Seconds to copy rows to a file, which does not stay."""
    started = time.perf_counter()
    connection.execute(f"ATTACH '{fresh}' AS fresh {options}")
    connection.execute(f"CREATE TABLE fresh.copied AS {query}")
    connection.execute("DETACH fresh")
    seconds = time.perf_counter() - started
    fresh.unlink()
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("database", type=Path)
    parser.add_argument("fresh", type=Path, help="a file that is not there yet")
    parser.add_argument("--table", choices=COLUMNS, default="people")
    parser.add_argument("--memory-limit")
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    limits = arguments.memory_limit, arguments.threads
    print(json.dumps(floor(arguments.database, arguments.fresh, *limits, arguments.table)))


if __name__ == "__main__":
    main()
