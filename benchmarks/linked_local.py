"""Linked tables: the loss of levels for each class of persons compared with one level for everybody.

    python benchmarks/linked_local.py [--patients N] [--known 1 2 3 all] [--limit 0.05]

A generated hospital, the same on every run: patients with ZIP code, age and sex, and one to seven visits with date and
ward. k = 5. Each release of `mondrian` is published and verified.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb
from harness import header, row

import sqlanon
from sqlanon.policy.linked import LinkedPolicy

TABLES = """
    CREATE TABLE patients AS
    SELECT
        i AS id,
        lpad((hash(i) % 40 * (hash(i, 7) % 25))::VARCHAR, 3, '0') AS zip,
        (20 + hash(i, 1) % 70)::INTEGER AS age,
        CASE WHEN hash(i, 2) % 2 = 0 THEN 'f' ELSE 'm' END AS sex
    FROM range({patients}) AS r(i);
    CREATE TABLE visits AS
    SELECT
        row_number() OVER () AS visit,
        id,
        DATE '2023-01-01' + (hash(id, j) % 730)::INTEGER AS seen,
        'ward ' || least(hash(id, j, 3) % 4, hash(j, id) % 8) AS ward
    FROM patients, range(1 + (hash(patients.id, 9) % 4 * (hash(patients.id, 10) % 3))::INTEGER) AS r(j)
"""


def policy(strategy: str, known: int | str, limit: float) -> LinkedPolicy:
    key: dict[str, Any] = {"role": "key"}
    patients = {
        "id": key,
        "zip": {"role": "quasi", "hierarchy": {"mask": "right"}},
        "age": {"role": "quasi", "hierarchy": {"intervals": [5, 10, 20, 40]}},
        "sex": {"role": "quasi", "hierarchy": "suppress"},
    }
    visits = {
        "visit": key,
        "id": key,
        "seen": {"role": "quasi", "hierarchy": {"dates": ["month", "quarter", "year"]}},
        "ward": {"role": "quasi", "hierarchy": "suppress"},
    }
    return LinkedPolicy(
        table=[
            {"name": "patients", "person": "id", "attributes": patients},
            {"name": "visits", "key": "visit", "references": {"id": "patients"}, "attributes": visits},
        ],
        privacy={"k": 5, "known": known},
        search={"strategy": strategy, "suppression_limit": limit},
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--patients", type=int, default=5000)
    options.add_argument("--known", nargs="+", default=["1", "2", "3", "all"])
    options.add_argument("--limit", type=float, default=0.05, help="suppression_limit")
    given = options.parse_args()
    header("known", "strategy", "loss", "of patients", "of visits", "suppressed persons", "classes", "seconds")
    for known in given.known:
        for strategy in ("optimal", "mondrian"):
            measure(given.patients, known if known == "all" else int(known), strategy, given.limit)


def measure(patients: int, known: int | str, strategy: str, limit: float) -> None:
    """Search, and publish the result of `mondrian`."""
    with duckdb.connect() as connection, tempfile.TemporaryDirectory() as folder:
        connection.execute(TABLES.format(patients=patients))
        started = time.perf_counter()
        with sqlanon.connect(connection) as db:
            result = db.anonymize(policy(strategy, known, limit))
            seconds = time.perf_counter() - started
            if strategy == "mondrian":
                assert result.publish(Path(folder, "release.duckdb")).verify().verified
        figures = result.to_dict()
        losses = [f"{table['loss']:.3f}" for table in figures["tables"].values()]
        classes = f"{figures['classes']:,}" if "classes" in figures else ""
        suppressed = f"{result.suppressed_persons:,}"
        row(known, strategy, f"{result.score:.4f}", *losses, suppressed, classes, f"{seconds:.1f}")


if __name__ == "__main__":
    main()
