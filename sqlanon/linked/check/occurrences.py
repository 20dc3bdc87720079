"""Occurrences of known rows, and combinations of them, as numbers: what an attacker may know about a person.

Equal known rows of a person are numbered up to m: these numbers are their *copies*. A person with the second copy of a
row has the row twice. An *occurrence* is a number for a class, a known row and a copy. A combination consists of
occurrences of different known rows, whose copies add up to at most m. Persons of different classes share no occurrence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sqlglot import exp

from sqlanon.policy.linked_sections import Known
from sqlanon.support.coding import dense_rank
from sqlanon.support.expressions import cast, fragment, number, subquery, template, values_query

MAX_OCCURRENCES = 2**62
"""Maximum number of combinations of a class, a known row and a copy; if there are more, they are numbered by rank."""

MAX_COPIES = 2**15 - 1
"""Maximum number of equal rows of a person that are distinguished, where an attacker knows all rows."""

_COPIES = template("""
    SELECT person, class_row, least(count(*), :most_copies) AS copies
    FROM (
        SELECT person, class_id * :row_numbers + known_row AS class_row FROM :known_rows AS known_rows
    ) AS rows
    GROUP BY person, class_row
""")

_OCCURRENCES = template("""
    WITH counted AS (:copies)
    SELECT person, class_row * :copy_numbers + copy AS occurrence
    FROM counted
    JOIN :few_numbers AS numbers ON copy <= copies
""")
"""A join with few numbers takes less time than `unnest`."""

_OCCURRENCES_OF_ALL = template("""
    WITH counted AS (:copies)
    SELECT person, class_row * :copy_numbers + unnest(range(1, copies + 1)) AS occurrence FROM counted
""")

_CLASS = fragment(":occurrence // (:row_numbers * :copy_numbers)")

_KNOWN_ROW = fragment(":occurrence // :copy_numbers % :row_numbers")

_PAIRS = template("""
    WITH occurrences AS (
        SELECT person, occurrence, occurrence % :copy_numbers AS copy
        FROM :occurrences AS o
        WHERE occurrence % :copy_numbers < :known
    )
    SELECT a.person, a.occurrence, b.occurrence AS second_occurrence
    FROM occurrences AS a
    JOIN occurrences AS b
        ON a.person = b.person AND b.occurrence - b.copy > a.occurrence - a.copy AND a.copy + b.copy <= :known
""")

_TRIPLES = template("""
    WITH occurrences AS (SELECT person, occurrence FROM :occurrences AS o WHERE occurrence % :copy_numbers = 1)
    SELECT a.person, a.occurrence, b.occurrence AS second_occurrence, c.occurrence AS third_occurrence
    FROM occurrences AS a
    JOIN occurrences AS b ON a.person = b.person AND b.occurrence > a.occurrence
    JOIN occurrences AS c ON b.person = c.person AND c.occurrence > b.occurrence
""")


def count_copy_numbers(known: Known) -> int:
    """The copies of a known row have lower numbers than this, from 1."""
    return (MAX_COPIES if known == "all" else known) + 1


def number_occurrences(known_rows: exp.Query, known: Known, row_numbers: int) -> exp.Select:
    """The occurrences (``person``, ``occurrence``) in known rows (``person``, ``class_id``, and ``known_row``, below
    ``row_numbers``)."""
    copy_numbers = count_copy_numbers(known)
    copies = _COPIES(known_rows=known_rows, most_copies=copy_numbers - 1, row_numbers=row_numbers)
    if known == "all":
        return _OCCURRENCES_OF_ALL(copies=copies, copy_numbers=copy_numbers)
    numbers = values_query({"copy": "INTEGER"}, [(copy,) for copy in range(1, copy_numbers)])
    return _OCCURRENCES(copies=copies, copy_numbers=copy_numbers, few_numbers=subquery(numbers))


def class_of(occurrence: exp.Expr, known: Known, row_numbers: int) -> exp.Expr:
    """The class of an occurrence."""
    return _CLASS(occurrence=occurrence, row_numbers=row_numbers, copy_numbers=count_copy_numbers(known))


def known_row_of(occurrence: exp.Expr, known: Known, row_numbers: int) -> exp.Expr:
    """The known row of an occurrence."""
    return _KNOWN_ROW(occurrence=occurrence, row_numbers=row_numbers, copy_numbers=count_copy_numbers(known))


def combination_keys(size: int) -> list[str]:
    """The columns that identify a combination of a number of known rows; without known rows, the class."""
    return ["occurrence", "second_occurrence", "third_occurrence"][:size] or ["class_id"]


def combine_occurrences(size: int, known: int, occurrences: exp.Table) -> exp.Query:
    """The combinations of a number of known rows that persons support: ``person`` and `combination_keys`."""
    if size == 1:
        return template("SELECT person, occurrence FROM :occurrences AS o")(occurrences=occurrences)
    copy_numbers = count_copy_numbers(known)
    if size == 2:
        return _PAIRS(occurrences=occurrences, copy_numbers=copy_numbers, known=known)
    return _TRIPLES(occurrences=occurrences, copy_numbers=copy_numbers)


def pack_codes(codes: Sequence[tuple[exp.Expr, int]], rows: int, max_codes: int) -> tuple[exp.Expr, int]:
    """A number for each combination of codes, from 0, and a bound of these numbers.

    Each code comes with the number of codes that it may be. The combinations that ``rows`` rows have are ranked if
    there can be more than ``max_codes``.
    """
    size = math.prod(count for _, count in codes)
    if size > max_codes:
        return dense_rank([code for code, _ in codes], "BIGINT"), rows + 1
    packed: exp.Expr = number(0)
    for code, count in codes:
        packed = cast(code, "BIGINT") + number(count) * exp.Paren(this=packed)
    return packed, size
