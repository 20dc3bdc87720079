"""The attack of the demo: names come back by joining a table without names to a list with names.

The medical record of a governor of Massachusetts was found in this way: ZIP, birth date and sex were in the
hospital data and in the voter list. (L. Sweeney, k-anonymity: a model for protecting privacy, International Journal on
Uncertainty, Fuzziness and Knowledge-based Systems 10(5), 2002.)

The attacker knows what the labels of a release mean (``021**``, ``1960s``) and generalizes the voter list by the
same rules, without the data holder's hierarchy tables, which lack the values of voters who are not patients.
This module builds the queries; it runs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.support.expressions import as_column, col, fragment, template

SHARED = ("zip", "birth_date", "sex")
"""The columns that the patients and the voter list share."""

GROUND = dict.fromkeys(SHARED, 0)
"""The generalization of the private table: level 0 everywhere."""

_ZIP_LENGTH = 5
_MONTH, _DECADE = 1, 3
_TOPS = {"zip": _ZIP_LENGTH, "birth_date": _DECADE + 1, "sex": 1}
# The classes of a table, each with its size and how many voters fit (NULL: none).
_CLASSES = template("""
    SELECT zip, birth_date, sex, in_table, on_list
    FROM (
        SELECT zip, birth_date, sex, count(*) AS in_table
        FROM :people
        GROUP BY zip, birth_date, sex
    ) AS classes
    LEFT JOIN (
        SELECT zip, birth_date, sex, count(*) AS on_list
        FROM (SELECT :labels FROM :voters) AS listed
        GROUP BY zip, birth_date, sex
    ) AS candidates USING (zip, birth_date, sex)
""")
_LINKAGE = template("""
    SELECT
        coalesce(sum(in_table)::BIGINT, 0) AS rows,
        coalesce(count_if(in_table = 1), 0) AS unique,
        coalesce(sum(in_table) FILTER (WHERE NOT on_list IS NULL)::BIGINT, 0) AS matched,
        coalesce(count_if(in_table = 1 AND on_list = 1), 0) AS identified
    FROM :classes AS classes
""")
# The identified patients, joined to the right voters.
_RIGHTLY_NAMED = """
    FROM :people AS patient
    JOIN :voters AS voter USING (zip, birth_date, sex)
    JOIN :alone AS alone USING (zip, birth_date, sex)
    WHERE patient.name = voter.name AND patient.address = voter.address
"""
_RIGHT_NAMES = template(f"SELECT count(*) {_RIGHTLY_NAMED}")
_ONE_BY_NAME = template(f"""
    SELECT patient.name, patient.zip, patient.birth_date, patient.sex, :sensitive
    {_RIGHTLY_NAMED}
    ORDER BY md5(patient.address), patient.name
    LIMIT 1
""")
_FITTING = template("""
    SELECT voter.zip, voter.birth_date, voter.sex, count(:sensitive), count(DISTINCT :sensitive)
    FROM (SELECT :labels FROM :voter AS voter) AS voter
    LEFT JOIN :people AS people
        ON people.zip = voter.zip AND people.birth_date = voter.birth_date AND people.sex = voter.sex
    GROUP BY voter.zip, voter.birth_date, voter.sex
""")
_SMALLEST_CLASS = template("""
    SELECT min(in_table)
    FROM (SELECT :attributes, count(*) AS in_table FROM :people GROUP BY :attributes) AS classes
""")
_PREFIX = fragment("left(:value, :length) || :rest")
_WRITTEN = fragment("strftime(:value, :format)")


@dataclass(frozen=True)
class Linkage:
    """The counts of the join: rows, rows that are unique by ZIP, birth date and sex, rows that match a voter, and
    unique rows that match exactly one voter, whose patients are identified."""

    rows: int
    unique: int
    matched: int
    identified: int


def link(people: exp.Table, voters: exp.Table, levels: Mapping[str, int]) -> exp.Select:
    """Build the query that links a table to the voter list: one row, the fields of `Linkage` in order.

    Examples
    --------
    >>> link(exp.to_table("patients"), exp.to_table("voters"), GROUND).named_selects
    ['rows', 'unique', 'matched', 'identified']
    """
    return _LINKAGE(classes=_classes(people, voters, levels))


def right_names(people: exp.Table, voters: exp.Table) -> exp.Select:
    """Build the query that counts the patients whom `link` gives the right name.

    `people` is the private table, with names. A patient who is not on the voter list can get another person's name.
    """
    return _RIGHT_NAMES(people=people, voters=voters, alone=_alone(people, voters))


def one_by_name(people: exp.Table, voters: exp.Table, sensitive: str) -> exp.Select:
    """Build the query for one correctly identified patient: name, `SHARED`, the sensitive value.

    A hash of the address chooses the patient, so that it is the same on every run.
    """
    alone = _alone(people, voters)
    return _ONE_BY_NAME(sensitive=col(sensitive, "patient"), people=people, voters=voters, alone=alone)


def fitting(people: exp.Table, voter: exp.Select, levels: Mapping[str, int], sensitive: str) -> exp.Select:
    """Build the query for the rows that fit one voter: the labels, the number of rows and of sensitive values.

    `voter` is a query of one row with the columns `SHARED`.
    """
    return _FITTING(sensitive=col(sensitive, "people"), labels=_labels(levels), voter=voter, people=people)


def smallest_class(people: exp.Table, attributes: tuple[str, ...]) -> exp.Select:
    """Build the query for the size of the smallest equivalence class."""
    return _SMALLEST_CLASS(attributes=[col(name) for name in attributes], people=people)


def label(attribute: str, level: int) -> exp.Expr:
    r"""Build the label that a release shows for a ground value, by the rules of the demo's policy.

    Examples
    --------
    >>> label("zip", 2).sql("duckdb")
    'LEFT("zip", 3) || \'**\''
    """
    value = col(attribute)
    if level == 0:
        return value
    if level == _TOPS[attribute]:
        return exp.convert("*")
    if attribute == "zip":
        return _PREFIX(value=value, length=_ZIP_LENGTH - level, rest="*" * level)
    written = _WRITTEN(value=value, format="%Y-%m" if level == _MONTH else "%Y")
    return written if level < _DECADE else _PREFIX(value=written, length=3, rest="0s")


def _alone(people: exp.Table, voters: exp.Table) -> exp.Select:
    """The classes of one patient and one voter."""
    return _classes(people, voters, GROUND).where(col("in_table").eq(1), col("on_list").eq(1), copy=False)


def _classes(people: exp.Table, voters: exp.Table, levels: Mapping[str, int]) -> exp.Select:
    return _CLASSES(people=people, labels=_labels(levels), voters=voters)


def _labels(levels: Mapping[str, int]) -> list[exp.Expr]:
    return [as_column(label(name, levels[name]), name) for name in SHARED]
