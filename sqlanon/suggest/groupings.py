"""Known groupings of values: countries by region and continent, US states by census division and region, and so on.

The vocabulary is in ``vocabulary.csv``: names in seven languages and codes, in lower case, without accents and signs.
Sources: UN M49 (regions), US Census Bureau (divisions), Unicode CLDR (names of countries).

Names of columns, all ours: ``grouping``, ``word``, ``label_1`` (fine) and ``label_2`` (coarse, or empty).
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sqlglot import exp

from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.support.expressions import Namer, col, fragment, number, subquery, template, text, union_all, values_query

SHARE = 0.8
"""From this share of the rows and of the distinct values on, a column has a grouping's values."""

_FEWEST = 3  # distinct values of a grouping
_UNKNOWN = "unknown"  # words such as "n/a", which are in all groupings

RULES: Mapping[str, str] = {
    "countries": "by UN region, then continent",
    "US states": "by census division, then region",
    "German states": "by part of the country",
    "levels of education": "by the diploma that they lead to",
    "marital status": "with or without a partner",
    "months": "by quarter, then half-year",
}
"""How each grouping groups, for comments."""


@dataclass(frozen=True)
class Labelled:
    """A distinct value of a column, its rows, and its labels in a grouping; none where it is not in it."""

    value: str
    rows: int
    labels: tuple[str, ...] = ()


@cache
def vocabulary() -> tuple[tuple[str, ...], ...]:
    """Grouping, fine label, coarse label, and the words, with ``|`` between them.

    >>> [row[:3] for row in vocabulary() if "deutschland" in row[3].split("|")]
    [('countries', 'Western Europe', 'Europe')]
    """
    with (Path(__file__).parent / "vocabulary.csv").open(encoding="utf-8", newline="") as file:
        return tuple(map(tuple, list(csv.reader(file, delimiter=";"))[1:]))


_COLUMNS = {"grouping": "VARCHAR", "label_1": "VARCHAR", "label_2": "VARCHAR", "words": "VARCHAR"}
_WORDS = template("""
    SELECT grouping, label_1, label_2, unnest(string_split(words, '|')) AS word FROM :lines
""")
_WORD = fragment(r"trim(regexp_replace(lower(strip_accents(:value::VARCHAR)), '[^\p{L}\p{N}]+', ' ', 'g'))")
_MATCHES = template("""
    SELECT :i AS i, coalesce(v.grouping, '') AS grouping, count(*) AS words, sum(w.n)::BIGINT AS rows
    FROM (
        SELECT word, count(*) AS n
        FROM (SELECT :word AS word FROM :rows AS r WHERE :value IS NOT NULL) AS s
        GROUP BY word
    ) AS w
    LEFT JOIN :vocabulary AS v ON w.word = v.word
    GROUP BY v.grouping
""")
_TOTALS = template("""
    SELECT :i AS i, count(DISTINCT :word) AS words, count(*) AS rows FROM :rows AS r WHERE :value IS NOT NULL
""")
_LABELLED = template("""
    SELECT w.value, w.n, v.label_1, v.label_2
    FROM (
        SELECT value, count(*) AS n
        FROM (SELECT :value::VARCHAR AS value FROM :rows AS r WHERE :value IS NOT NULL) AS s
        GROUP BY value
    ) AS w
    LEFT JOIN (SELECT * FROM :vocabulary AS a WHERE grouping IN (:grouping, :unknown)) AS v ON :word = v.word
    ORDER BY w.n DESC, w.value
    LIMIT coalesce(:most, 9223372036854775807)
""")


def make_vocabulary(steps: StatementRunner, work: Namer) -> exp.Table:
    lines = subquery(values_query(_COLUMNS, vocabulary()), "lines")
    return steps.create_table(work("vocabulary"), _WORDS(lines=lines))


def find_groupings(
    steps: StatementRunner, known: exp.Table, rows: exp.Expr, columns: Mapping[int, str]
) -> dict[int, tuple[str, float]]:
    """By number of a column of texts: the grouping that most of its values are in, and the share of its rows."""
    if not columns:
        return {}

    def given(i: int, name: str) -> dict[str, exp.Expr]:
        return {"i": number(i), "word": _WORD(value=col(name)), "value": col(name), "rows": rows}

    matches = steps.fetch_rows(
        union_all(*(_MATCHES(**given(i, name), vocabulary=known) for i, name in columns.items())), []
    )
    totals = steps.fetch_rows(union_all(*(_TOTALS(**given(i, name)) for i, name in columns.items())), [])
    unknown = {i: (words, count) for i, grouping, words, count in matches if grouping == _UNKNOWN}
    found: dict[int, tuple[str, float]] = {}
    for i, all_words, all_rows in totals:
        without = unknown.get(i, (0, 0))
        of_words, of_rows = all_words - without[0], all_rows - without[1]
        shares = [
            (words / of_words, count / of_rows, grouping)
            for j, grouping, words, count in matches
            if j == i and grouping in RULES and words >= _FEWEST
        ]
        best = max(shares, default=None)
        if best is not None and min(best[:2]) >= SHARE:
            found[i] = best[2], best[1]
    return found


def labelled_values(
    steps: StatementRunner, known: exp.Table, rows: exp.Expr, column: str, grouping: str | None, most: int | None = None
) -> Sequence[Labelled] | None:
    """The distinct values of a column, the most frequent first, with their labels; None where they are more than
    ``most``."""
    value = col(column)
    query = _LABELLED(
        value=value,
        word=_WORD(value=col("value", "w")),
        rows=rows,
        vocabulary=known,
        grouping=text(grouping or ""),
        unknown=text(_UNKNOWN if grouping else ""),
        most=exp.null() if most is None else number(most + 1),
    )
    found = steps.fetch_rows(query, [])
    if most is not None and len(found) > most:
        return None
    return [Labelled(one, n, tuple(filter(None, (fine, coarse)))) for one, n, fine, coarse in found]
