"""Labels of numbers that sort as text in the order of their lower ends: ``05-09``, ``10``, ``10-14``.

As with intervals, negative numbers come before the others, and are in the order of their digits among themselves.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlglot import exp

from sqlanon.expressions import all_of, anonymous, col, is_there, named, number, select, subquery, text
from sqlanon.hierarchies.numerals import NUMERAL, padded, part_of, whole_digits, written_out
from sqlanon.recode.local.nodes import NODE, may_be_shown

MOST_DIGITS = 40
"""Labels are not made longer than can be read: a column of numbers such as 1e+300 does not sort as text."""

_FORM = f"({NUMERAL})(?:(-| to )({NUMERAL}))?"


def sortable_labels(released: exp.Table, kept: exp.Table, attribute: int, root: int) -> exp.Select:
    """Released values as `placed.released_values` makes them, with ``sortable``: the label, its numbers padded.

    How wide they are follows from what is kept alone: what is suppressed may be larger. Labels of a hierarchy above
    its values stay as they are.

    Parameters
    ----------
    released, kept:
        The released values of an attribute of numbers, and the combinations that are kept.
    attribute:
        Its number.
    root:
        The top of its hierarchy: what is released in other ways than by the hierarchy has higher numbers.
    """
    own = exp.Or(
        this=exp.EQ(this=col("level"), expression=number(0)),
        expression=exp.GT(this=col(NODE), expression=number(root)),
    )
    shown = select([col(f"code_{attribute}")], kept.copy())
    parts: list[exp.Expr] = [
        named(exp.In(this=col("code"), query=subquery(shown)), "is_kept"),
        named(exp.If(this=exp.Paren(this=own), true=part_of(col("label"), _FORM, 1)), "first"),
        named(exp.Coalesce(this=part_of(col("label"), _FORM, 2), expressions=[text("")]), "dash"),
        named(part_of(col("label"), _FORM, 3), "last"),
    ]
    apart = select([exp.Star(), *parts], released.copy())
    ends = [written_out(col(end)) for end in ("first", "last")]
    written = select(
        [exp.Column(this=exp.Star(), table=exp.to_identifier("a", quoted=True)),
         named(ends[0], "low"), named(ends[1], "high")],
        subquery(apart, "a"),
    )  # fmt: skip
    longest = anonymous(
        "greatest", *(exp.Coalesce(this=whole_digits(col(end)), expressions=[number(0)]) for end in ("low", "high"))
    )
    only = exp.Where(this=all_of([col("is_kept"), is_there(col("low"))]))
    widest = exp.Window(this=exp.Filter(this=exp.Max(this=longest), expression=only))
    wide = select(
        [exp.Star(), named(exp.Coalesce(this=widest, expressions=[number(0)]), "digits")], subquery(written, "w")
    )
    joined = exp.DPipe(
        this=exp.DPipe(this=padded(col("low"), col("digits")), expression=col("dash")),
        expression=exp.Coalesce(this=padded(col("high"), col("digits")), expressions=[text("")]),
    )
    is_number = all_of([is_there(col("low")), exp.LTE(this=col("digits"), expression=number(MOST_DIGITS))])
    label = exp.If(this=is_number, true=joined, false=col("label"))
    names = (NODE, "code", "label", "leaves", "level")
    return select([*(col(name) for name in names), named(label, "sortable")], subquery(wide, "d"))


def may_be_sorted(sortable: exp.Table, forbidden: Collection[str]) -> exp.Select:
    """Whether labels still tell the same things apart when they are padded, and none of them is forbidden then."""
    pairs = exp.Tuple(expressions=[col("code"), col("sortable")])
    counts = [exp.Count(this=exp.Distinct(expressions=[one])) for one in (col("code"), col("sortable"), pairs)]
    same = [exp.EQ(this=counts[0].copy(), expression=count) for count in counts[1:]]
    fine = exp.Coalesce(this=exp.LogicalAnd(this=may_be_shown(col("sortable"), forbidden)), expressions=[exp.true()])
    return select([all_of([*same, fine])], sortable.copy()).where(is_there(col("label")), copy=False)


def sorted_labels(sortable: exp.Table) -> exp.Select:
    """Released values with padded labels: ``node``, ``code``, ``label``, ``leaves``, ``level``."""
    columns: list[exp.Expr] = [col(NODE), col("code"), named(col("sortable"), "label"), col("leaves"), col("level")]
    return select(columns, sortable.copy())
