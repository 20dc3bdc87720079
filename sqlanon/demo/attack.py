"""The attack of the demo: link a table without names to a public list with names.

The medical record of a governor of Massachusetts was found in this way: ZIP, birth date and sex were in the hospital
data and in the voter list. (L. Sweeney, k-anonymity: a model for protecting privacy, International Journal on
Uncertainty, Fuzziness and Knowledge-based Systems 10(5), 2002.)

The attacker knows what the labels of a release mean (``021**``, ``1960s``) and generalizes the voter list by the same
rules, without the data holder's hierarchy tables, which lack the values of voters who are not patients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.support.expressions import as_column, col, fragment, table, template
from sqlanon.support.workdir import private_directory

SHARED = ("zip", "birth_date", "sex")
"""The columns that the patients and the voter list share."""

QUASI = (*SHARED, "ethnicity")
"""The quasi-identifiers of the demo's policy; the voter list lacks the last."""

GROUND = dict.fromkeys(SHARED, 0)
"""The generalization of the source table: level 0 everywhere."""

_ZIP_LENGTH = 5
_MONTH, _DECADE = 1, 3
_TOPS = {"zip": _ZIP_LENGTH, "birth_date": _DECADE + 1, "sex": 1}

# The classes of a table with their rows and matching voters (NULL: none).
_CLASSES = template("""
    WITH
        patient_classes AS (
            SELECT zip, birth_date, sex, count(*) AS row_count
            FROM :people
            GROUP BY zip, birth_date, sex
        ),
        generalized_voters AS (
            SELECT :labels FROM :voters
        ),
        voter_classes AS (
            SELECT zip, birth_date, sex, count(*) AS voter_count
            FROM generalized_voters
            GROUP BY zip, birth_date, sex
        )
    SELECT zip, birth_date, sex, row_count, voter_count
    FROM patient_classes
    LEFT JOIN voter_classes USING (zip, birth_date, sex)
""")
# An identified patient whom the list gives the right name, and the number of these patients. A hash of the address
# chooses the patient, who is the same on every run.
_VICTIM = template("""
    SELECT
        patient.name,
        patient.zip,
        patient.birth_date,
        patient.sex,
        patient.diagnosis,
        count(*) OVER () AS right_names
    FROM :patients AS patient
    JOIN :voters AS voter USING (zip, birth_date, sex)
    JOIN :classes AS classes USING (zip, birth_date, sex)
    WHERE classes.row_count = 1
        AND classes.voter_count = 1
        AND patient.name = voter.name
        AND patient.address = voter.address
    ORDER BY md5(patient.address), patient.name
    LIMIT 1
""")
_MATCHING_ROWS = template("""
    WITH
        person AS (
            SELECT :zip AS zip, :birth_date AS birth_date, :sex AS sex
        ),
        victim AS (
            SELECT :labels FROM person
        )
    SELECT
        victim.zip,
        victim.birth_date,
        victim.sex,
        count(people.diagnosis) AS rows,
        count(DISTINCT people.diagnosis) AS diagnoses
    FROM victim
    LEFT JOIN :people AS people
        ON people.zip = victim.zip AND people.birth_date = victim.birth_date AND people.sex = victim.sex
    GROUP BY victim.zip, victim.birth_date, victim.sex
""")
_SMALLEST_CLASS = template("""
    SELECT min(row_count)
    FROM (SELECT count(*) AS row_count FROM :people GROUP BY zip, birth_date, sex, ethnicity) AS classes
""")
_PREFIX = fragment("left(:value, :length) || :suffix")


@dataclass(frozen=True)
class Linkage:
    """The counts of the join: rows, rows that are unique by ZIP, birth date and sex, rows that match a voter, and
    unique rows that match exactly one voter, whose patients are identified."""

    rows: int
    unique: int
    matched: int
    identified: int


@dataclass(frozen=True)
class Victim:
    """A patient who is identified in the source table, although the attacked table has no names."""

    name: str
    zip: str
    birth_date: date
    sex: str
    diagnosis: str


@dataclass(frozen=True)
class MatchingRows:
    """The rows of a table that match the victim: their labels, their number, and their number of diagnoses."""

    zip: str
    birth_date: str | date
    sex: str
    rows: int
    diagnoses: int


@dataclass(frozen=True)
class Attack:
    """The result of the attack: the join, the number of right names (in the source table), the size of the smallest
    class, and a victim with the matching rows."""

    linkage: Linkage
    right_names: int
    smallest_class: int
    victim: Victim | None
    matching: MatchingRows | None


def attack(hospital: Path, target: Path, levels: Mapping[str, int]) -> Attack:
    """Link the table ``patients`` of a file with the voters of the hospital's file."""
    patients, voters = (table(name, "main", "hospital") for name in ("patients", "voters"))
    people = patients if target == hospital else table("patients", "main", "target")
    with private_directory(target.parent, ".sqlanon-demo-") as spill:
        engine = DuckDBEngine.open_private(spill)
        with engine.connection:
            engine.attach(hospital, "hospital", read_only=True)
            if target != hospital:
                engine.attach(target, "target", read_only=True)
            victim, matching, right_names = None, None, 0
            query = _VICTIM(patients=patients, voters=voters, classes=_select_classes(patients, voters, GROUND))
            for *values, count in engine.rows(query):
                victim, right_names = Victim(*values), count
                person = {name: exp.convert(getattr(victim, name)) for name in SHARED}
                query = _MATCHING_ROWS(labels=_select_labels(levels), people=people, **person)
                matching = MatchingRows(*engine.rows(query)[0])
            linkage = Linkage(*engine.rows(link(people, voters, levels))[0])
            return Attack(linkage, right_names, engine.rows(_SMALLEST_CLASS(people=people))[0][0], victim, matching)


def link(people: exp.Table, voters: exp.Table, levels: Mapping[str, int]) -> exp.Select:
    """Build the query that links a table to the voter list: one row, the fields of `Linkage` in order."""
    return template("""
        SELECT
            coalesce(sum(row_count), 0)::BIGINT AS rows,
            count(*) FILTER (WHERE row_count = 1) AS "unique",
            coalesce(sum(row_count) FILTER (WHERE NOT voter_count IS NULL), 0)::BIGINT AS matched,
            count(*) FILTER (WHERE row_count = 1 AND voter_count = 1) AS identified
        FROM :classes AS classes
    """)(classes=_select_classes(people, voters, levels))


def label(attribute: str, level: int) -> exp.Expr:
    r"""Build the label that a release shows for a ground value, by the rules of the demo's policy.

    >>> label("zip", 2).sql("duckdb")
    'LEFT("zip", 3) || \'**\''
    """
    value = col(attribute)
    if level == 0:
        return value
    if level == _TOPS[attribute]:
        return exp.convert("*")
    if attribute == "zip":
        return _PREFIX(value=value, length=_ZIP_LENGTH - level, suffix="*" * level)
    formatted = fragment("strftime(:value, :format)")(value=value, format="%Y-%m" if level == _MONTH else "%Y")
    return formatted if level < _DECADE else _PREFIX(value=formatted, length=3, suffix="0s")


def _select_classes(people: exp.Table, voters: exp.Table, levels: Mapping[str, int]) -> exp.Select:
    return _CLASSES(people=people, labels=_select_labels(levels), voters=voters)


def _select_labels(levels: Mapping[str, int]) -> list[exp.Expr]:
    return [as_column(label(name, levels[name]), name) for name in SHARED]
