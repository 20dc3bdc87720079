"""Unsafe combinations of two or three attributes: which rows have them, and which of their cells are in most.

Names of columns, all ours: ``combination``, ``n`` and ``node_i`` in what is placed; ``count_i`` in the unsafe rows: in
how many of a row's unsafe combinations of attributes the cell of attribute ``i`` is, if it is not blank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from sqlanon.coding import ROWS, Levels
from sqlanon.expressions import (
    aliased,
    all_columns,
    all_of,
    cast,
    col,
    greatest,
    is_null,
    is_there,
    named,
    number,
    select,
    subquery,
    total,
    union_all,
)
from sqlanon.recode.local.nodes import COMBINATION, Tree, node_name, released_name
from sqlanon.search.classes import KEPT


def count_name(attribute: int) -> str:
    """The column with the unsafe combinations of attributes that an attribute's cell is in."""
    return f"count_{attribute}"


def placed_at(combinations: exp.Table, levels: Levels) -> exp.Select:
    """The combinations at a generalization: ``combination``, ``n``, ``node_i``."""
    nodes = [named(col(node_name(i, level)), released_name(i)) for i, level in enumerate(levels)]
    return select([col(COMBINATION), col(ROWS), *nodes], combinations.copy())


def unsafe(
    placed: exp.Table,
    trees: Sequence[Tree],
    checked: Sequence[Sequence[int]],
    judged: Callable[[exp.Expr, Sequence[str]], exp.Query],
) -> exp.Select:
    """The rows in which some combination of attributes breaks the policy: ``combination``, ``n``, ``count_i``.

    Parameters
    ----------
    placed, trees:
        The rows, and the attributes' hierarchies.
    checked:
        The combinations, as numbers of attributes.
    judged:
        Judges the groups of a relation, by keys.
    """
    parts = []
    for attributes in checked:
        keys = [released_name(i) for i in attributes]
        failing = select([col(key) for key in keys], subquery(judged(aliased(placed, "g"), keys), "j"))
        failing = failing.where(exp.Not(this=col(KEPT)), copy=False)
        counts: list[exp.Expr] = []
        for i, tree in enumerate(trees):
            shows = exp.NEQ(this=col(released_name(i), "p"), expression=number(tree.root))
            value = exp.If(this=shows, true=number(1), false=number(0)) if i in attributes else number(0)
            counts.append(named(value, count_name(i)))
        query = select([col(COMBINATION, "p"), col(ROWS, "p"), *counts], aliased(placed, "p"))
        on = all_of(exp.EQ(this=col(key, "p"), expression=col(key, "f")) for key in keys)
        parts.append(query.join(subquery(failing, "f"), on=on, copy=False))
    every: exp.Query = union_all(*parts)
    sums: list[exp.Expr] = [named(total(col(count_name(i))), count_name(i)) for i in range(len(trees))]
    keys_ = [col(COMBINATION), col(ROWS)]
    return select([*keys_, *sums], subquery(every, "e"), [key.copy() for key in keys_])


def occurrences(found: exp.Table, attributes: int) -> exp.Select:
    """One row: the unsafe rows; and for each attribute in how many unsafe combinations of them its cells are."""
    none = number(0)
    figures = [total(col(ROWS))]
    figures += [total(exp.Mul(this=col(ROWS), expression=col(count_name(i)))) for i in range(attributes)]
    return select([exp.Coalesce(this=one, expressions=[none.copy()]) for one in figures], found.copy())


def blanked(placed: exp.Table, found: exp.Table, trees: Sequence[Tree], order: Sequence[int]) -> exp.Select:
    """What is placed, with the cell of each unsafe row blank that is in most of its unsafe combinations.

    Rows without such a cell are left out.

    Parameters
    ----------
    placed, found:
        The rows, and those of them that are unsafe.
    trees:
        The attributes' hierarchies.
    order:
        The attributes that may be blanked; of equal cells of a row, the one that comes first here is blanked.
    """
    most: exp.Expr = number(0)
    for i in order:
        most = greatest(most, col(count_name(i)))
    choice = exp.Case()
    for i in order:
        is_most = exp.EQ(this=col(count_name(i)), expression=col("most"))
        choice = choice.when(is_most, number(i))
    counted = select([exp.Star(), named(most, "most")], found.copy())
    chosen = exp.If(this=exp.GT(this=col("most"), expression=number(0)), true=choice if order else number(-1))
    cells = select([col(COMBINATION), named(chosen, "cell")], subquery(counted, "c"))
    output: list[exp.Expr] = [col(COMBINATION, "p"), col(ROWS, "p")]
    for i, tree in enumerate(trees):
        own = col(released_name(i), "p")
        is_it = exp.EQ(this=col("cell", "u"), expression=number(i))
        node = exp.If(this=is_it, true=number(tree.root), false=own)
        output.append(named(cast(node, "INTEGER"), released_name(i)))
    query = select(output, aliased(placed, "p"))
    same = exp.EQ(this=col(COMBINATION, "p"), expression=col(COMBINATION, "u"))
    query = query.join(subquery(cells, "u"), on=same, join_type="left", copy=False)
    is_safe = is_null(col(COMBINATION, "u"))
    has_cell = is_there(col("cell", "u"))
    return query.where(exp.Or(this=is_safe, expression=has_cell), copy=False)


def kept(placed: exp.Table, judged: exp.Query, keys: Sequence[str]) -> exp.Select:
    """The rows whose group meets the policy."""
    query = select([all_columns("p")], aliased(placed, "p"))
    on = all_of(exp.EQ(this=col(key, "p"), expression=col(key, "j")) for key in keys)
    return query.join(subquery(judged, "j"), on=on, copy=False).where(col(KEPT, "j"), copy=False)
