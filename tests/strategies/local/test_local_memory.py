"""Local strategies on tables that are large for the memory that they may use."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

pytestmark = pytest.mark.slow

# Nearly all rows differ.
PEOPLE = """
CREATE TABLE people AS
SELECT
    hash(i, 'birth') % 30000 AS birth,
    ((hash(i, 'zip') % 1000) * (hash(i, 'skew') % 30)) % 30000 AS zip,
    ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'][1 + (hash(i, 'job') % 8)::INTEGER] AS job,
    hash(i, 'sex') % 2 AS sex
FROM range({rows}) AS r(i)
"""
RUN = """
import json, sys
import sqlanon
policy = sqlanon.Policy(**json.loads(sys.argv[1]))
with sqlanon.connect(memory_limit=sys.argv[2], threads=2) as db:
    result = db.anonymize(policy)
    result.publish()
# Not ru_maxrss, in which a new process starts with the peak of the one that forked it.
with open("/proc/self/status") as status:
    peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
print(json.dumps({"smallest": result.smallest_class, "loss": result.score, "peak": peak}))
"""
SEARCHES = {
    "mondrian": {"strategy": "mondrian"},
    "mondrian with sets": {"strategy": "mondrian", "summary": "set"},
    "local": {"strategy": "local"},
    "k-similar": {"strategy": "k-similar"},
    "subtree": {"strategy": "subtree"},
    "cells": {"strategy": "optimal", "suppression": "cells", "suppression_limit": 0.05},
}
MEGABYTE = 2**20

needs_proc = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="the peak of a process is read from /proc"
)


def publish(folder: Path, rows: int, search: dict[str, Any], memory_limit: str) -> dict[str, Any]:
    """Publish a release in a new process; its smallest class, its loss and the peak memory of the process."""
    database = folder / "people.duckdb"
    with duckdb.connect(str(database)) as connection:
        connection.execute(PEOPLE.format(rows=rows))
    plain = {"role": "quasi", "hierarchy": "suppress"}
    digits = {"role": "quasi", "hierarchy": {"intervals": [100, 1000, 10000]}}
    policy = {
        "source": {"database": str(database), "table": "people"},
        "attributes": {"birth": digits, "zip": digits, "job": plain, "sex": plain},
        "privacy": {"k": 5},
        "search": search,
        "release": {"database": str(folder / "release.duckdb")},
    }
    done = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps(policy), memory_limit], capture_output=True, text=True, check=True
    )
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


@needs_proc
@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
@pytest.mark.parametrize(
    ("rows", "memory_limit", "loss", "peak"),
    [
        (400_000, "300MB", 0.1, 550 * MEGABYTE),  # Python and its libraries take more than 100 MB of it
        pytest.param(3_000_000, "1GB", 0.02, 1500 * MEGABYTE, marks=pytest.mark.thorough),
    ],
)
def test_a_local_strategy_stays_near_its_memory_limit(
    rows: int, memory_limit: str, loss: float, peak: int, search: dict[str, Any], tmp_path: Path
) -> None:
    figures = publish(tmp_path, rows, search, memory_limit)
    assert figures["smallest"] >= 5
    assert figures["loss"] < loss
    assert figures["peak"] < peak
