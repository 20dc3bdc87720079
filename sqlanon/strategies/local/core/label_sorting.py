"""Labels of numbers that sort as text in the order of their lower ends: ``05-09``, ``10``, ``10-14``.

As with intervals, negative numbers come first, in the order of their digits.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlglot import exp

from sqlanon.hierarchies.numerals import NUMERAL, count_whole_digits, expand_exponent, extract_part, pad_whole_digits
from sqlanon.strategies.local.core.nodes import is_allowed
from sqlanon.strategies.local.core.task import LocalOutcome, LocalTask
from sqlanon.support.expressions import col, template

MAX_DIGITS = 40
"""Labels are not padded to more digits: a column of numbers such as 1e+300 does not sort as text."""

_LABEL_PARTS = rf"(\[?)({NUMERAL})(?:(-| to |, )({NUMERAL}))?(\)?)"


_SORTABLE = template("""
    WITH
        parsed AS (
            SELECT
                *,
                code IN (SELECT :code FROM :kept) AS is_kept,
                CASE WHEN level <= :grid_level OR node > :root THEN :first END AS first,
                coalesce(:opening, '') AS opening,
                coalesce(:dash, '') AS dash,
                :last AS last,
                coalesce(:closing, '') AS closing
            FROM :released
        ),
        numbers AS (SELECT p.*, :low AS low, :high AS high FROM parsed AS p),
        widths AS (
            SELECT
                *,
                coalesce(
                    max(greatest(coalesce(:digits_of_low, 0), coalesce(:digits_of_high, 0)))
                    FILTER (WHERE is_kept AND low IS NOT NULL) OVER (),
                    0
                ) AS digits
            FROM numbers
        )
    SELECT
        node, code, label, leaves, level,
        CASE
            WHEN low IS NOT NULL AND digits <= :max_digits
            THEN opening || :padded_low || dash || coalesce(:padded_high, '') || closing
            ELSE label
        END AS sortable
    FROM widths
""")
sorted_labels = template("SELECT node, code, sortable AS label, leaves, level FROM :sortable")
"""Released labels, padded: ``node``, ``code``, ``label``, ``leaves``, ``level``."""


def sortable_labels(
    released: exp.Table, kept_combinations: exp.Table, attribute: int, root: int, grid_level: int = 0
) -> exp.Select:
    """Released labels with ``sortable``: the label, its numbers padded to the width of the largest one that is kept.

    Labels of a hierarchy above the level of the grid stay unchanged.
    """
    opening, first, dash, last, closing = (extract_part(col("label"), _LABEL_PARTS, group) for group in range(1, 6))
    low, high, digits = col("low"), col("high"), col("digits")
    return _SORTABLE(
        max_digits=MAX_DIGITS,
        padded_low=pad_whole_digits(low, digits),
        padded_high=pad_whole_digits(high, digits),
        digits_of_low=count_whole_digits(low),
        digits_of_high=count_whole_digits(high),
        low=expand_exponent(col("first")),
        high=expand_exponent(col("last")),
        code=col(f"code_{attribute}"),
        kept=kept_combinations,
        root=root,
        grid_level=grid_level,
        opening=opening,
        first=first,
        dash=dash,
        last=last,
        closing=closing,
        released=released,
    )


def can_be_sorted(sortable: exp.Table, forbidden: Collection[str]) -> exp.Select:
    """Whether padded labels are still distinct, and none of them is forbidden."""
    return template("""
        SELECT
            count(DISTINCT code) = count(DISTINCT sortable)
            AND count(DISTINCT code) = count(DISTINCT (code, sortable))
            AND coalesce(bool_and(:is_allowed), TRUE)
        FROM :sortable
        WHERE label IS NOT NULL
    """)(is_allowed=is_allowed(col("sortable"), forbidden), sortable=sortable)


def sort_labels(
    task: LocalTask, outcome: LocalOutcome, kept_combinations: exp.Table, i: int, labels: exp.Table
) -> exp.Table:
    """Pad the numbers in an attribute's labels so that they sort as text.

    Classes are already made: labels stay unchanged where padding would make two of them equal.
    """
    tree = task.trees[i]
    if i not in outcome.nodes or i in outcome.typed or not tree.is_ordered or (tree.grid and tree.grid.holds_dates):
        return labels
    sortable = task.make(f"sortable_{i}", sortable_labels(labels, kept_combinations, i, tree.root, tree.grid_level))
    if not task.fetch_value(can_be_sorted(sortable, tree.forbidden)):
        return labels
    return task.make(f"sorted_{i}", sorted_labels(sortable=sortable))
