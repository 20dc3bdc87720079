"""The second act of the demo: visits identify patients whom the first table hides among others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import duckdb

import sqlanon
from sqlanon.demo.attack import SHARED, label
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.linked.attacks.attack import attack_linked
from sqlanon.linked.attacks.matching import Matches, MatchingRun, VisibleTable
from sqlanon.policy.linked import LinkedPolicy
from sqlanon.support.expressions import as_column, table, template
from sqlanon.support.resources import read_sql_file
from sqlanon.support.workdir import private_directory

MIN_PATIENTS = 1_000
"""The fewest patients of a hospital that the second act needs."""

_MOST_PATIENTS, _SEED, _K = 20_000, 2026, 5

# The patients whom a generalized table without small classes shows. NULL: they reference nobody.
_HIDDEN_PATIENTS = template("""
    SELECT patient_id AS row_key, NULL::BIGINT AS parent_key, :labels
    FROM :patients AS patients
    QUALIFY count(*) OVER (PARTITION BY :keys) >= :k
""")
_VISITS = template("""
    SELECT visit_id AS row_key, patient_id AS parent_key, admitted AS value_0, ward AS value_1 FROM :visits AS visits
""")
# A patient whom two visits single out, the same one on every run.
_VICTIM = template("""
    SELECT patients.name, :visits
    FROM :matches AS matches
    JOIN :patients AS patients ON matches.person = patients.patient_id
    JOIN :source_visits AS visits ON matches.person = visits.patient_id
    WHERE matches.matches = 1
    GROUP BY patients.patient_id, patients.name
    HAVING count(*) = 2
    ORDER BY md5(patients.name), patients.patient_id
    LIMIT 1
""")


@dataclass(frozen=True)
class Victim:
    """A patient whom two visits identify, with the days and wards."""

    name: str
    days: Sequence[date]
    wards: Sequence[str]


@dataclass(frozen=True)
class ClinicAttack:
    """The matches of an attacker who knows 0, 1 and 2 visits of each patient, in tables with some visits."""

    matches: Sequence[Matches]
    visits: int
    victim: Victim | None = None


@dataclass(frozen=True)
class Clinic:
    """The files and figures of the second act."""

    release: Path
    levels: Mapping[str, int | None]
    score: float
    before: ClinicAttack
    after: ClinicAttack
    verified: bool


def make_clinic(hospital: Path, clinic: Path) -> None:
    """Write a DuckDB file with the tables ``patients`` and ``visits`` of some of the hospital's patients."""
    parameters = {"persons": _MOST_PATIENTS, "seed": _SEED}
    with private_directory(clinic.parent, ".sqlanon-demo-") as directory:
        staging = directory / clinic.name
        with duckdb.connect(staging) as connection:
            connection.execute("ATTACH $path AS hospital (READ_ONLY)", {"path": str(hospital)})
            for statement in connection.extract_statements(read_sql_file("demo_clinic.sql")):
                names = parameters.keys() & statement.named_parameters
                connection.execute(statement, {name: parameters[name] for name in names})
            connection.execute("DETACH hospital")
        staging.replace(clinic)


def attack_visits(clinic: Path, levels: Mapping[str, int]) -> ClinicAttack:
    """Attack the unchanged visits, combined with the patients as the first release shows them."""
    patients, visits = (table(name, "main", "clinic") for name in ("patients", "visits"))
    labels = [label(name, levels[name]) for name in SHARED]
    columns = [as_column(value, f"value_{i}") for i, value in enumerate(labels)]
    hidden = _HIDDEN_PATIENTS(labels=columns, patients=patients, keys=labels, k=_K)
    with private_directory(clinic.parent, ".sqlanon-demo-") as spill:
        engine = DuckDBEngine.open_private(spill)
        with closing(engine):
            engine.attach(clinic, "clinic", read_only=True)
            run = MatchingRun(engine, table)
            tables = [
                VisibleTable("patients", None, engine, hidden),
                VisibleTable("visits", 0, engine, _VISITS(visits=visits)),
            ]
            records = run.describe("clinic", tables)
            matches = run.count_matches(records, records, [0, 1, 2], _K)
            visit_columns = template("""
                SELECT list(admitted ORDER BY admitted) AS days, list(ward ORDER BY admitted) AS wards
            """)().expressions
            query = _VICTIM(visits=visit_columns, matches=table("matches_2"), patients=patients, source_visits=visits)
            victim = next((Victim(*row) for row in engine.rows(query)), None)
            count = template("SELECT count(*) FROM :rows AS r SEMI JOIN :persons AS p USING (person)")
            (visit_count,) = engine.rows(count(rows=records.known_rows, persons=records.persons))[0]
            return ClinicAttack(matches, visit_count, victim)


def run_clinic(clinic: Path, policy: Path, before: ClinicAttack) -> Clinic:
    """Release patients and visits together, and attack the release."""
    with sqlanon.connect() as database:
        result = database.anonymize(LinkedPolicy.load(policy))
        release = result.publish()
        verified = release.verify().verified
    after = attack_linked(release.location)
    visits = next(claims.released_rows for claims in release.manifest.tables if claims.parent is not None)
    levels = dict(result.generalization)
    return Clinic(release.path, levels, result.score, before, ClinicAttack(after.after[:3], visits), verified)
