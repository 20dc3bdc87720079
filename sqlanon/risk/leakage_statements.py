"""Class sizes over any set of attributes, from values that are coded as small integers.

The dictionary of an attribute: one row a value (NULL is one), with ``code`` and ``n``, its rows. Coded rows: ``c0, c1,
...``, and ``n``. The sizes of a set of attributes: how many of its classes (``classes``) have so many rows (``n``).

Names of columns as in `frequency.statements` and `coding`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from sqlglot import exp

from sqlanon.coding import ROWS
from sqlanon.expressions import (
    aliased,
    all_columns,
    all_of,
    anonymous,
    cast,
    col,
    is_null,
    named,
    number,
    same,
    select,
    subquery,
    total,
    union_all,
    where,
)

CODE = "code"
CLASSES = "classes"
LABEL = "label"
LARGEST_KEY = 2**62
"""Codes are packed into one number up to here: it is quicker to group by than several columns."""


def code_name(i: int) -> str:
    """The column of an attribute's codes."""
    return f"c{i}"


def dictionary(rows: exp.Expr, attribute: int, counted: bool) -> exp.Select:
    """The dictionary of an attribute: ``value``, ``n``, ``code`` from 0."""
    key = f"q{attribute}"
    values = select([named(col(key), "value"), _rows_of(counted)], rows.copy(), [col(key)])
    place = exp.Window(this=exp.RowNumber()) - 1
    return select([col("value"), col(ROWS), named(cast(place, "BIGINT"), CODE)], subquery(values, "v"))


def dictionary_sizes(dictionaries: Sequence[exp.Table]) -> exp.Select:
    """One row: the number of values of each attribute, and whether NULL is one of them: ``values_0``, ``nulls_0``."""
    output: list[exp.Expr] = []
    for i, values in enumerate(dictionaries):
        everything: exp.Expr = exp.Count(this=exp.Star())
        nulls = where(exp.Count(this=exp.Star()), is_null(col("value")))
        output.append(named(exp.Subquery(this=select([everything], values.copy())), f"values_{i}"))
        output.append(named(exp.Subquery(this=select([nulls], values.copy())), f"nulls_{i}"))
    return exp.Select(expressions=output)


def coded(
    rows: exp.Expr, dictionaries: Sequence[exp.Table], values: Sequence[int], nullable: Sequence[bool], counted: bool
) -> exp.Select:
    """The rows with codes for values, each in the smallest type that holds them."""
    output: list[exp.Expr] = []
    query = exp.Select().from_(aliased(rows, "r"), copy=False)
    for i, one in enumerate(dictionaries):
        alias = f"d{i}"
        output.append(named(cast(col(CODE, alias), _type_of(values[i])), code_name(i)))
        on = same(col(f"q{i}", "r"), col("value", alias), nullable[i])
        query = query.join(aliased(one, alias), on=on, copy=False)
    output += [col(ROWS, "r")] if counted else []
    return query.select(*output, copy=False)


def combinations(rows: exp.Expr, attributes: Sequence[int], counted: bool, shared: bool = False) -> exp.Select:
    """The distinct combinations of some attributes, with ``n``."""
    keys: list[exp.Expr] = [col(code_name(i)) for i in attributes]
    query = select([*keys, _rows_of(counted)], rows.copy(), [key.copy() for key in keys])
    return query.having(_count(counted) > 1, copy=False) if shared else query


def rows_of(rows: exp.Expr, shared: exp.Table, attributes: Sequence[int]) -> exp.Select:
    """The coded rows whose combination of some attributes is among those."""
    on = all_of(col(code_name(i), "r").eq(col(code_name(i), "s")) for i in attributes)
    query = select([all_columns("r")], aliased(rows, "r"))
    return query.join(aliased(shared, "s"), on=on, join_type="semi", copy=False)


def about_combinations(rows: exp.Expr, attributes: Sequence[int]) -> exp.Select:
    """One number: about how many combinations there are. It decides on a way only, never on a figure."""
    hashed = anonymous("hash", *(col(code_name(i)) for i in attributes))
    return select([anonymous("approx_count_distinct", hashed)], rows.copy())


def sizes_of(rows: exp.Expr, attributes: Sequence[int], values: Sequence[int], counted: bool) -> exp.Select:
    """How many classes there are of each size: ``n``, ``classes``."""
    grouped = select([_rows_of(counted)], rows.copy(), _keys(attributes, values))
    return by_size(subquery(grouped, "g"))


def with_singles(sizes: exp.Query, classes: int) -> exp.Query:
    """Sizes with so many classes of one row more."""
    if not classes:
        return sizes
    added = exp.Select(expressions=[named(number(1), ROWS), named(number(classes), CLASSES)])
    both = subquery(union_all(sizes, added), "s")
    return select([col(ROWS), named(total(col(CLASSES)), CLASSES)], both, [col(ROWS)])


def by_size(groups: exp.Expr) -> exp.Select:
    """How many groups there are of each ``n``."""
    return select([col(ROWS), named(exp.Count(this=exp.Star()), CLASSES)], groups, [col(ROWS)])


def labelled_sizes(
    rows: exp.Expr, attributes: Sequence[int], values: Sequence[int], counted: bool, label: int
) -> exp.Select:
    """The rows of each class over some attributes, ``n``, with a ``label``. Parameters as of `sizes_of`."""
    output: list[exp.Expr] = [named(number(label), LABEL), _rows_of(counted)]
    return select(output, rows.copy(), _keys(attributes, values))


def labelled(groups: exp.Expr, label: int) -> exp.Select:
    """Groups that have ``n`` already, with a ``label``."""
    return select([named(number(label), LABEL), col(ROWS)], groups)


def summaries(labelled_groups: Sequence[exp.Select]) -> exp.Select:
    """One row a label: ``label``, ``rows``, ``classes``, ``uniques``, ``bits`` = Σ n log2 n over classes.

    Bits are added up as decimals: the sum does not depend on their order, and is the same on every run.
    """
    output: list[exp.Expr] = [col(LABEL), col(ROWS), named(exp.Count(this=exp.Star()), CLASSES)]
    return _summary(select(output, subquery(union_all(*labelled_groups), "g"), [col(LABEL), col(ROWS)]))


def summary(sizes: exp.Select) -> exp.Select:
    """`summaries` of one set, with the label 0, from the sizes of its classes."""
    return _summary(select([named(number(0), LABEL), col(ROWS), col(CLASSES)], subquery(sizes, "c")))


def _summary(sizes: exp.Select) -> exp.Select:
    bits = cast(col(ROWS), "DOUBLE") * anonymous("log2", cast(col(ROWS), "DOUBLE"))
    bits = cast(col(CLASSES), "DOUBLE") * exp.Paren(this=bits)
    one = col(ROWS).eq(1)
    figures = {
        "rows": total(col(CLASSES) * col(ROWS)),
        "classes": total(col(CLASSES)),
        "uniques": exp.Coalesce(this=total(col(CLASSES), one), expressions=[number(0)]),
        "bits": cast(exp.Sum(this=cast(bits, "DECIMAL(38, 18)")), "DOUBLE"),
    }
    shown: list[exp.Expr] = [col(LABEL), *(named(figure, name) for name, figure in figures.items())]
    return select(shown, subquery(sizes, "s"), [col(LABEL)])


def _keys(attributes: Sequence[int], values: Sequence[int]) -> list[exp.Expr]:
    """What tells the classes of some attributes apart: one number where it is small enough."""
    largest = prod(values[i] for i in attributes)
    if largest > LARGEST_KEY or len(attributes) == 1:
        return [col(code_name(i)) for i in attributes]
    first, *others = attributes
    key: exp.Expr = cast(col(code_name(first)), "UINTEGER" if largest < 2**32 else "UBIGINT")
    for i in others:
        key = (exp.Paren(this=key) * number(values[i])) + col(code_name(i))
    return [key]


def _count(counted: bool) -> exp.Expr:
    return total(col(ROWS)) if counted else exp.Count(this=exp.Star())


def _rows_of(counted: bool) -> exp.Alias:
    return named(_count(counted), ROWS)


def _type_of(values: int) -> str:
    return next(name for name, most in _TYPES.items() if values <= most)


_TYPES = {"UTINYINT": 2**8, "USMALLINT": 2**16, "UINTEGER": 2**32, "UBIGINT": 2**64}
