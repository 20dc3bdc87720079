"""Local strategies on a table that is large for the memory that they may use."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

ROWS = 400_000
# Nearly all rows differ.
PEOPLE = f"""
CREATE TABLE people AS
SELECT
    hash(i, 'birth') % 30000 AS birth,
    ((hash(i, 'zip') % 1000) * (hash(i, 'skew') % 30)) % 30000 AS zip,
    ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'][1 + (hash(i, 'job') % 8)::INTEGER] AS job,
    hash(i, 'sex') % 2 AS sex
FROM range({ROWS}) AS r(i)
"""
RUN = """
import json, sys
import sqlanon
policy = sqlanon.Policy(**json.loads(sys.argv[1]))
with sqlanon.connect(memory_limit="300MB", threads=2) as db:
    result = db.anonymize(policy)
    result.publish()
# Not ru_maxrss, in which a new process starts with the peak of the one that forked it.
with open("/proc/self/status") as status:
    peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
print(json.dumps({"smallest": result.smallest_class, "loss": result.score, "peak": peak}))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process is read from /proc")
def test_mondrian_stays_near_its_memory_limit(tmp_path: Path) -> None:
    database = tmp_path / "people.duckdb"
    with duckdb.connect(str(database)) as connection:
        connection.execute(PEOPLE)
    plain = {"role": "quasi", "hierarchy": "suppress"}
    digits = {"role": "quasi", "hierarchy": {"intervals": [100, 1000, 10000]}}
    policy = {
        "source": {"database": str(database), "table": "people"},
        "attributes": {"birth": digits, "zip": digits, "job": plain, "sex": plain},
        "privacy": {"k": 5},
        "search": {"strategy": "mondrian", "summary": "set"},
        "release": {"database": str(tmp_path / "release.duckdb")},
    }
    done = subprocess.run([sys.executable, "-c", RUN, json.dumps(policy)], capture_output=True, text=True, check=True)
    figures = json.loads(done.stdout)
    assert figures["smallest"] >= 5
    assert figures["loss"] < 0.1
    assert figures["peak"] < 550 * 2**20  # Python and its libraries take more than 100 MB of it
