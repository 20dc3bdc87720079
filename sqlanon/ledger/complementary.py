"""Complementary release: two releases of one table tell together more than each of them.

Source: L. Sweeney, k-anonymity: a model for protecting privacy, International Journal on Uncertainty, Fuzziness and
Knowledge-based Systems 10(5), 2002, section 4.2 (figures 4 and 5, example 6).
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.expressions import all_columns, all_of, col, ident, least, named, number, same, select, total
from sqlanon.ledger.linked import ROWS, Linked, both_grouped, finest, joined, rows_in, within

MEETING, _FOUND = "sqlanon meeting", "sqlanon found"


def complementary_release(
    first: exp.Expr, second: exp.Expr, shared: Sequence[str], attributes: Sequence[Linked], k: int
) -> exp.Select:
    """Combinations of finest values that the join of two releases yields for fewer than k rows: ``v0`` .. and ``n``.

    The join is on equal shared values and labels that go together. A group of rows in one release that meets a group in
    the other stands for no more rows than the lesser of the two has; so ``n`` is the sum of these over the shared
    values, and never more than either release has.

    Examples
    --------
    >>> from sqlanon.expressions import table
    >>> zip_ = Linked("zip", "zip", "zip")
    >>> query = complementary_release(table("one"), table("two"), ["problem"], [zip_], 2)
    >>> query.named_selects
    ['v0', 'n']
    """
    values = [col(f"v{i}") for i in range(len(attributes))]
    rows = total(col(ROWS))
    query = select([*values, named(rows, ROWS)], within(MEETING, "m"), [value.copy() for value in values])
    query = query.having(rows < number(k), copy=False)
    return _with_meeting(query, first, second, shared, attributes)


def complementary_victims(
    first: exp.Expr,
    second: exp.Expr,
    shared: Sequence[str],
    attributes: Sequence[Linked],
    k: int,
    count: str | None = None,
) -> exp.Select:
    """One row: ``combinations`` that `complementary_release` finds, and ``victims``, the released rows in them.

    A group that meets several others is in several combinations, but has no more rows for it: so rows are counted on
    either side, each group at most in full, and the lesser count is reported. ``count`` is as of `groups`.
    """
    values: list[exp.Expr] = [col(f"v{i}") for i in range(len(attributes))]
    rows = total(col(ROWS))
    found = select([*values], within(MEETING, "m"), [value.copy() for value in values])
    found = found.having(rows < number(k), copy=False)
    on = all_of(same(col(f"v{i}", "m"), col(f"v{i}", "f")) for i in range(len(attributes)))
    pairs = select([all_columns("m")], within(MEETING, "m"))
    pairs = pairs.join(within(_FOUND, "f"), on=on, join_type="semi", copy=False)
    output: list[exp.Expr] = [named(exp.Count(this=exp.Star()), "combinations"), named(rows_in(pairs), "victims")]
    query = select(output, within(_FOUND, "f"))
    query = _with_meeting(query, first, second, shared, attributes, count, numbers=True)
    return query.with_(ident(_FOUND), as_=found, materialized=True, copy=False)


def _with_meeting(
    query: exp.Select,
    first: exp.Expr,
    second: exp.Expr,
    shared: Sequence[str],
    attributes: Sequence[Linked],
    count: str | None = None,
    numbers: bool = False,
) -> exp.Select:
    """A query over the pairs of groups that meet: finest values, or numbers for these, the number and rows of each
    group, and ``n``."""
    query = both_grouped(query, first, second, shared, attributes, count, "numbers" if numbers else "texts")
    output = [
        *finest(attributes, numbers),
        *(named(col("i", side), side) for side in ("a", "b")),
        *(named(col(ROWS, side), f"n_{side}") for side in ("a", "b")),
        named(least(col(ROWS, "a"), col(ROWS, "b")), ROWS),
    ]
    pairs = joined(attributes, len(shared), numbers)
    pairs.set("expressions", output)
    return query.with_(ident(MEETING), as_=pairs, materialized=True, copy=False)
