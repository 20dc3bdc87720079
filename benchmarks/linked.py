"""Linked tables: patients and their visits, against a plain join, grouping and copy of the same tables in DuckDB.

    python benchmarks/linked.py [--persons 1000000] [--visits 5] [--known 1 2 all] [--limit 0.05] [--row-limit 0]

For each number of persons and each ``known``: ``sqlanon anonymize`` with k = 5 as a separate process, and the floor:
the visits joined with their patients and grouped by all quasi-identifiers, and a copy of both tables. ``--alone`` adds
the loss of the patients' table anonymized by itself, which does not protect persons with visits, and of the flat join,
in which every row counts as a person.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import harness
from harness import (
    HERE,
    Job,
    Limits,
    add_limits,
    folders,
    gigabytes,
    header,
    machine,
    parser,
    python,
    row,
    run_measured,
    successful,
    toml,
    warm,
)

QUASI = {"patients": ("zip", "birth_date", "sex"), "visits": ("admitted", "ward")}
HIERARCHIES: dict[str, Any] = {
    "zip": {"mask": "right"},
    "birth_date": {"dates": ["month", "year", "decade"]},
    "sex": "suppress",
    "admitted": {"dates": ["month", "quarter", "year"]},
    "ward": "suppress",
}

# Hashes of several values are correlated, those of one text are not.
PATIENTS = """
SELECT
    i AS patient_id,
    'name ' || i AS name,
    lpad((501 + 3 * floor(3000 * pow(u_zip, 1.8))::INTEGER)::VARCHAR, 5, '0') AS zip,
    '2026-01-01'::DATE - floor(30000 * pow(u_age, 1.25))::INTEGER AS birth_date,
    CASE WHEN u_sex < 0.51 THEN 'female' ELSE 'male' END AS sex
FROM (
    SELECT
        i,
        (hash(i || 'zip') >> 11)::DOUBLE / 9007199254740992.0 AS u_zip,
        (hash(i || 'age') >> 11)::DOUBLE / 9007199254740992.0 AS u_age,
        (hash(i || 'sex') >> 11)::DOUBLE / 9007199254740992.0 AS u_sex
    FROM range(:persons) AS r(i)
) AS uniform
"""

# The number of visits is skewed: many persons have one or two, few have ten times the mean.
VISITS = """
SELECT
    row_number() OVER () AS visit_id,
    patient_id,
    '2021-01-01'::DATE + floor(1826 * u_admitted)::INTEGER AS admitted,
    'ward ' || floor(20 * pow(u_ward, 2))::INTEGER AS ward,
    'd' || (hash(concat_ws(' ', patient_id, visit, 'diagnosis')) % 100)::INTEGER AS diagnosis
FROM (
    SELECT
        *,
        (hash(concat_ws(' ', patient_id, visit, 'admitted')) >> 11)::DOUBLE / 9007199254740992.0 AS u_admitted,
        (hash(concat_ws(' ', patient_id, visit, 'ward')) >> 11)::DOUBLE / 9007199254740992.0 AS u_ward
    FROM (
        SELECT i AS patient_id, unnest(range(visits)) AS visit
        FROM (
            SELECT i, least(floor(-ln(1 - (hash(i || 'visits') >> 11)::DOUBLE / 9007199254740992.0) * :visits)::INTEGER,
                10 * :visits) AS visits
            FROM range(:persons) AS r(i)
        ) AS counted
    ) AS visited
) AS uniform
"""


def make_hospital(path: Path, persons: int, visits: int) -> None:
    """Write the tables ``patients`` and ``visits`` to a DuckDB file."""
    with duckdb.connect(str(path), config={"memory_limit": "3GB", "preserve_insertion_order": False}) as database:
        for name, query in (("patients", PATIENTS), ("visits", VISITS)):
            filled = query.replace(":persons", str(persons)).replace(":visits", str(visits))
            database.execute(f"CREATE TABLE {name} AS {filled}")


def linked_policy(
    database: Path, release: Path, known: int | str, limit: float, row_limit: float, strategy: str = "optimal"
) -> str:
    """The policy of both tables in TOML."""
    patients = {"patient_id": {"role": "key"}, "name": {"role": "identifying"}, **_quasi("patients")}
    visits = {"visit_id": {"role": "key"}, "patient_id": {"role": "key"}, **_quasi("visits")}
    visits["diagnosis"] = {"role": "insensitive"}
    tables = (
        ({"name": "patients", "person": ["patient_id"]}, patients),
        ({"name": "visits", "key": ["visit_id"], "references": {"patient_id": "patients"}}, visits),
    )
    parts = [toml({"source": {"database": str(database)}})]
    for keys, attributes in tables:
        parts.append(toml({"[table]": keys}))
        parts.append(toml({"table.attributes": attributes}))
    search = {"suppression_limit": limit, "row_suppression_limit": row_limit, "strategy": strategy}
    parts.append(toml({"privacy": {"k": 5, "known": known}, "search": search, "release": {"database": str(release)}}))
    return "\n".join(parts)


def _quasi(table: str) -> dict[str, Any]:
    return {name: {"role": "quasi", "hierarchy": HIERARCHIES[name]} for name in QUASI[table]}


def anonymize(policy: str, release: Path, folder: Path, limits: Limits) -> Job:
    """``sqlanon anonymize`` as a separate process."""
    temporary = folder / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    file = folder / "policy.toml"
    file.write_text(policy, encoding="utf-8")
    release.unlink(missing_ok=True)
    command: list[str | Path] = [sys.executable, "-m", "sqlanon", "anonymize", file, "--json", *limits.options()]
    done = successful(run_measured(command, environment={"TMPDIR": str(temporary)}), command)
    return Job(done, json.loads(done.output), sorted(path.name for path in temporary.iterdir()))


def flat_loss(policy: Mapping[str, Any], folder: Path, limits: Limits) -> float:
    """The loss of one table anonymized by itself."""
    return float(harness.anonymize(policy, folder, limits).figures["score"])


def measure_floor(database: Path, memory_limit: str | None, threads: int | None) -> dict[str, float]:
    """Seconds, wall and processor, of the join, the grouping and the copy."""
    with tempfile.TemporaryDirectory() as spill, duckdb.connect(config={"temp_directory": spill}) as connection:
        if memory_limit is not None:
            connection.execute(f"SET memory_limit = '{memory_limit}'")
        if threads is not None:
            connection.execute(f"SET threads = {threads}")
        connection.execute(f"ATTACH '{database}' AS source (READ_ONLY)")
        connection.execute(f"ATTACH '{spill}/copy.duckdb' AS copy")
        started, used = time.perf_counter(), time.process_time()
        columns = ", ".join(name for names in QUASI.values() for name in names)
        grouped = (
            f"SELECT {columns}, count(*) AS n FROM source.patients JOIN source.visits USING (patient_id) GROUP BY ALL"
        )
        connection.execute(f"SELECT count(*), sum(n) FROM ({grouped})").fetchone()
        connection.execute("CREATE TABLE copy.patients AS SELECT * EXCLUDE (name) FROM source.patients")
        connection.execute("CREATE TABLE copy.visits AS FROM source.visits")
        connection.execute("DETACH copy")
        return {"seconds": time.perf_counter() - started, "processor": time.process_time() - used}


def single_losses(database: Path, folder: Path, limits: Limits, limit: float) -> tuple[float, float]:
    """The loss of the table of patients by itself, and of the flat join."""
    joined = "SELECT * EXCLUDE (name, diagnosis) FROM patients JOIN visits USING (patient_id)"
    keys: dict[str, Any] = {"patient_id": {"role": "identifying"}}
    losses = []
    for name, source, attributes in (
        ("patients", {"table": "patients"}, _quasi("patients")),
        ("joined", {"query": joined}, _quasi("patients") | _quasi("visits")),
    ):
        policy = {
            "source": {"database": str(database), **source, "undeclared": "drop", "person": False},
            "attributes": keys | attributes,
            "privacy": {"k": 5},
            "search": {"suppression_limit": limit},
            "release": {"database": str(folder / f"{name}.duckdb"), "table": name},
        }
        losses.append(flat_loss(policy, folder / name, limits))
    return losses[0], losses[1]


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser(__doc__)
    options.add_argument("--persons", type=int, nargs="+", default=[1_000_000])
    options.add_argument("--visits", type=int, default=5, help="the mean number of visits of a person")
    options.add_argument("--known", nargs="+", default=["1", "2", "all"])
    options.add_argument("--limit", type=float, default=0.05, help="the suppression limit")
    options.add_argument("--row-limit", type=float, default=0.0, help="the limit of rows suppressed by themselves")
    options.add_argument("--strategy", default="optimal")
    options.add_argument("--alone", action="store_true", help="also anonymize each table alone, and the flat join")
    options.add_argument("--floor", type=Path, help=argparse.SUPPRESS)
    add_limits(options, "3GB")
    args = options.parse_args(arguments)
    limits = Limits(args.memory_limit, args.threads)
    if args.floor is not None:
        print(json.dumps(measure_floor(args.floor, limits.memory, limits.threads)))
        return
    print(f"{machine()}; {limits}\n")
    header("persons", "visits", "known", "job, s", "split", "checks", "loss", "suppressed", "job / floor",
           "of processor time", "peak")  # fmt: skip
    with folders(args.data) as (data, folder):
        for persons in args.persons:
            database = data / f"hospital_{persons}_{args.visits}.duckdb"
            if not database.exists():
                make_hospital(database, persons, args.visits)
            warm(database)
            floor = json.loads(python(HERE / "linked.py", "--floor", database, *limits.options()).output)
            for known in args.known:
                release = folder / "release.duckdb"
                value = known if known == "all" else int(known)
                policy = linked_policy(database, release, value, args.limit, args.row_limit, args.strategy)
                job = anonymize(policy, release, folder / "job", limits)
                figures, lattice = job.figures, job.figures["lattice"]
                row(
                    f"{persons:,}", f"{figures['tables']['visits']['rows']:,}", known, f"{job.seconds:.1f}",
                    job.stages(),
                    f"{lattice['checked']:,} of {lattice['nodes']:,}", f"{figures['score']:.4f}",
                    f"{figures['suppressed_persons']:,}", f"{job.seconds / floor['seconds']:.1f}",
                    f"{job.process.processor / floor['processor']:.1f}", gigabytes(job.process.peak),
                )  # fmt: skip
            if args.alone:
                patients, joined = single_losses(database, folder, limits, args.limit)
                print(f"\nloss of patients alone: {patients:.4f}; of the flat join: {joined:.4f}\n")


if __name__ == "__main__":
    main()
