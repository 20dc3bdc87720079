"""Adult with a height: sex, year of birth, race, marital status, and a height in centimetres, to a millimetre.

The year of birth is 1994 less the age: Adult was drawn from the census data of 1994. The height is made, since
Adult has none: normal by sex and age group, seeded, a function of (seed, row number).

Means are those of table 7 (for 16 to 19 years: table 5) of C. D. Fryar and others, "Anthropometric reference data for
children and adults: United States, August 2021-August 2023", Vital and Health Statistics 3(50), 2025, read in a copy of
its text that had lost its decimal points (1763 is 176.3 cm). It gives no deviations: they are estimated here from its
percentiles, (P85 − P15) / 2.073, which is what they are for normal heights: 5.9 to 9.0 cm, some from few people. Its
standard errors of the means are 0.3 to 0.7 cm. So means are sure to half a centimetre or so, deviations to perhaps one.
Which figures the paper took, we do not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
from harness import DATA

YEAR = 1994

# Years of age from which they hold; mean, 15th and 85th percentile, in cm.
REFERENCE = {
    "Male": [
        (16, 175.0, 167.9, 182.6), (18, 175.1, 165.5, 184.1), (20, 176.3, 169.3, 184.7), (30, 176.1, 168.0, 183.4),
        (40, 176.4, 169.5, 185.0), (50, 174.3, 167.2, 181.3), (60, 174.7, 167.0, 182.5), (70, 172.4, 164.6, 179.8),
        (80, 170.5, 162.8, 177.9),
    ],
    "Female": [
        (16, 161.5, 153.3, 169.1), (18, 161.5, 153.2, 169.2), (20, 163.5, 156.1, 170.8), (30, 162.5, 154.8, 169.5),
        (40, 161.7, 153.7, 168.3), (50, 161.2, 154.4, 168.4), (60, 160.5, 153.4, 167.6), (70, 158.3, 152.2, 164.4),
        (80, 156.8, 149.6, 164.6),
    ],
}  # fmt: skip

MARRIED = ["Married-civ-spouse", "Married-spouse-absent", "Married-AF-spouse"]
ALONE = ["Never-married", "Divorced", "Separated", "Widowed"]

K_QUASIS: Mapping[str, Any] = {
    "born": {"role": "quasi", "hierarchy": [{"intervals": [2, 4, 8]}]},
    "sex": {"role": "quasi", "hierarchy": "suppress"},
    "race": {"role": "quasi", "hierarchy": "suppress"},
    "marital": {"role": "quasi", "hierarchy": {"categories": {"in marriage": MARRIED, "alone": ALONE}}},
}
"""The paper's hierarchies; each ends in ``*``."""


def people_query(adult: str, seed: int = 1) -> str:
    """The table, from a relation with Adult's columns ``sex``, ``age``, ``race`` and ``marital-status``."""
    groups = ", ".join(
        f"('{sex}', {age}, {mean}, {(high - low) / 2.073})"
        for sex, lines in REFERENCE.items()
        for age, mean, low, high in lines
    )
    first, second = (f"((hash(row, '{part}', {seed}) >> 11) + 1) / (1::UBIGINT << 53)" for part in ("radius", "angle"))
    return f"""
SELECT a.sex, race, "marital-status" AS marital, ({YEAR} - age)::SMALLINT AS born,
    (mean + deviation * sqrt(-2 * ln({first})) * cos(2 * pi() * {second}))::DECIMAL(4, 1) AS height
FROM (SELECT row_number() OVER () AS row, sex, race, "marital-status", age::SMALLINT AS age FROM {adult}) AS a
ASOF JOIN (VALUES {groups}) AS g(sex, youngest, mean, deviation) ON a.sex = g.sex AND a.age >= g.youngest
"""


def make_people(connection: duckdb.DuckDBPyConnection) -> None:
    """The table ``people``."""
    file: Path = DATA / "adult" / "adult.csv"
    query = people_query(f"read_csv('{file}', delim = ';')")
    connection.execute(f"CREATE TABLE people AS {query}")
