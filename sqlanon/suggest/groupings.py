"""Known groupings of values: countries by region and continent, US states by census division and region, and so on.

``vocabulary.csv`` has names in seven languages and codes, in lower case, without accents and signs.
Sources: UN M49 (regions), US Census Bureau (divisions), Unicode CLDR (names of countries).
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

_MIN_SHARE = 0.8  # of the rows and of the distinct values
_MIN_WORDS = 3
_UNKNOWN = "unknown"  # words such as "n/a", which every grouping has

RULES: Mapping[str, str] = {
    "countries": "by UN region, then continent",
    "US states": "by census division, then region",
    "German states": "by part of the country",
    "levels of education": "by the diploma that they lead to",
    "marital status": "with or without a partner",
    "months": "by quarter, then half-year",
}
"""The rule of each grouping, for comments."""


@dataclass(frozen=True)
class Labelled:
    """A distinct value of a column, its rows, and its labels in a grouping, from fine to coarse."""

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
_VOCABULARY = template("""
    SELECT grouping, label_1, label_2, unnest(string_split(words, '|')) AS word FROM :lines
""")
_WORD = fragment(r"trim(regexp_replace(lower(strip_accents(:value::VARCHAR)), '[^\p{L}\p{N}]+', ' ', 'g'))")
# One row for each grouping with words of a column, and one for its other words.
_MATCHES = template("""
    SELECT
        :position AS position, coalesce(v.grouping, '') AS grouping, count(*) AS words, sum(w.row_count)::BIGINT AS rows
    FROM (
        SELECT word, count(*) AS row_count
        FROM (SELECT :word AS word FROM :rows AS r WHERE :value IS NOT NULL) AS s
        GROUP BY word
    ) AS w
    LEFT JOIN :vocabulary AS v ON w.word = v.word
    GROUP BY v.grouping
""")
_TOTALS = template("""
    SELECT :position AS position, count(DISTINCT :word) AS words, count(*) AS rows
    FROM :rows AS r
    WHERE :value IS NOT NULL
""")


def create_vocabulary(steps: StatementRunner, work: Namer) -> exp.Table:
    lines = subquery(values_query(_COLUMNS, vocabulary()), "lines")
    return steps.create_table(work("vocabulary"), _VOCABULARY(lines=lines))


def find_groupings(
    steps: StatementRunner, words: exp.Table, rows: exp.Expr, columns: Mapping[int, str]
) -> dict[int, tuple[str, float]]:
    """The grouping of most values of each column of texts, and the share of the rows, by the number of the column."""
    if not columns:
        return {}
    parts = [
        {"position": number(i), "word": _WORD(value=col(name)), "value": col(name), "rows": rows}
        for i, name in columns.items()
    ]
    matches = steps.fetch_rows(union_all(*(_MATCHES(**part, vocabulary=words) for part in parts)), [])
    totals = steps.fetch_rows(union_all(*(_TOTALS(**part) for part in parts)), [])
    unknown = {i: (word_count, count) for i, grouping, word_count, count in matches if grouping == _UNKNOWN}
    groupings: dict[int, tuple[str, float]] = {}
    for i, all_words, all_rows in totals:
        unknown_words, unknown_rows = unknown.get(i, (0, 0))
        shares = [
            (word_count / (all_words - unknown_words), count / (all_rows - unknown_rows), grouping)
            for position, grouping, word_count, count in matches
            if position == i and grouping in RULES and word_count >= _MIN_WORDS
        ]
        best = max(shares, default=None)
        if best is not None and min(best[:2]) >= _MIN_SHARE:
            groupings[i] = best[2], best[1]
    return groupings


def label_values(
    steps: StatementRunner, words: exp.Table, rows: exp.Expr, column: str, grouping: str | None, limit: int | None
) -> Sequence[Labelled] | None:
    """The distinct values of a column with their labels, the most frequent first; None if they exceed the limit."""
    query = template("""
        WITH
            "sqlanon texts" AS (
                SELECT :value::VARCHAR AS value FROM :rows AS r WHERE :value IS NOT NULL
            ),
            "sqlanon values" AS (
                SELECT value, count(*) AS row_count FROM "sqlanon texts" GROUP BY value
            ),
            "sqlanon words" AS (
                SELECT * FROM :vocabulary AS vocabulary WHERE grouping IN (:grouping, :unknown)
            )
        SELECT w.value, w.row_count, v.label_1, v.label_2
        FROM "sqlanon values" AS w
        LEFT JOIN "sqlanon words" AS v ON :word = v.word
        ORDER BY w.row_count DESC, w.value
        LIMIT coalesce(:limit, 9223372036854775807)
    """)(
        value=col(column),
        word=_WORD(value=col("value", "w")),
        rows=rows,
        vocabulary=words,
        grouping=text(grouping or ""),
        unknown=text(_UNKNOWN if grouping else ""),
        limit=exp.null() if limit is None else number(limit + 1),
    )
    values = steps.fetch_rows(query, [])
    if limit is not None and len(values) > limit:
        return None
    return [Labelled(value, count, tuple(filter(None, (fine, coarse)))) for value, count, fine, coarse in values]
