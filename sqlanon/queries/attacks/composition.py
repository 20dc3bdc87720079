"""Composition: a person is in a class of each of two releases, and few sensitive values are in both classes.

Source: S. R. Ganta, S. P. Kasiviswanathan, A. Smith, Composition attacks and auxiliary information in data privacy, KDD
2008 (the intersection attack).
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.queries.attacks.linked import ROWS, Linked, both_grouped, finest, joined
from sqlanon.queries.names import col, ident, least, named, number, select

_MEETING = "sqlanon meeting"


def composition(first: exp.Expr, second: exp.Expr, sensitive: str, attributes: Sequence[Linked]) -> exp.Select:
    """Pairs of classes that somebody can be in both of, and that have one sensitive value in common: ``v0`` .., the
    finest values of the two, ``value``, and ``n``, the rows that have it: no more than the lesser of the two classes.

    Parameters
    ----------
    first, second:
        The released rows.
    sensitive:
        The sensitive attribute: a column of both.
    attributes:
        The quasi-identifiers of both.

    Examples
    --------
    >>> from sqlanon.queries.names import table
    >>> composition(table("one"), table("two"), "diagnosis", [Linked("zip", "zip", "zip")]).named_selects
    ['v0', 'value', 'n']
    """
    own = [f"l{i}" for i, one in enumerate(attributes) if one.first is not None]
    other = [f"l{i}" for i, one in enumerate(attributes) if one.second is not None]
    pairs = joined(attributes, 1)
    looks = [named(col(name, "a"), f"a{name}") for name in own] + [named(col(name, "b"), f"b{name}") for name in other]
    rows = named(least(col(ROWS, "a"), col(ROWS, "b")), ROWS)
    pairs.set("expressions", [*finest(attributes), *looks, named(col("s0", "a"), "value"), rows])
    by: list[exp.Expr] = [col(f"v{i}") for i in range(len(attributes))]
    by += [col(look.alias) for look in looks]
    alone = exp.EQ(this=exp.Count(this=exp.Star()), expression=number(1))
    figures: list[exp.Expr] = [
        named(exp.AnyValue(this=col("value")), "value"),
        named(exp.AnyValue(this=col(ROWS)), ROWS),
    ]
    output: list[exp.Expr] = [*(col(f"v{i}") for i in range(len(attributes))), *figures]
    query = select(output, exp.Table(this=ident(_MEETING)), by).having(alone, copy=False)
    query = both_grouped(query, first, second, [sensitive], attributes)
    return query.with_(ident(_MEETING), as_=pairs, copy=False)
