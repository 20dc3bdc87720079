"""A check: one generalization's equivalence classes, rolled up from the frequency set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sqlglot import exp

from sqlanon.privacy.base import CLASS_SIZE, Requirement
from sqlanon.queries.frequency import KNOWN, ROWS, code_name, leaves_name
from sqlanon.queries.names import all_of, col, ident, named, number, select, subquery, table, total, where

Levels: TypeAlias = tuple[int, ...]
"""A generalization: a level for each quasi-identifier, in the policy's order."""


@dataclass(frozen=True)
class ClassSpace:
    """What the equivalence classes of any generalization are made from.

    Attributes
    ----------
    frequency:
        The frequency set.
    heights:
        Of each quasi-identifier's hierarchy.
    requirements:
        What a class must meet to be kept.
    unknown:
        Whether rows with values missing from a hierarchy are in the frequency set: they are never kept.
    """

    frequency: exp.Table
    heights: Levels
    requirements: tuple[Requirement, ...]
    unknown: bool = False

    def below_top(self, levels: Levels) -> list[tuple[int, int]]:
        """Attribute and level where a generalization leaves more than one value."""
        return [(i, level) for i, level in enumerate(levels) if level < self.heights[i]]


def classes(space: ClassSpace, levels: Levels, extra: Sequence[exp.Expr] = ()) -> exp.Select:
    """The equivalence classes of a generalization.

    Makes one row a class: ``class_size``, what the requirements aggregate, ``extra``, and ``known`` if there are
    unknown values.
    """
    keys = [code_name(i, level) for i, level in space.below_top(levels)]
    if space.unknown:
        keys.append(KNOWN)
    aggregates: list[exp.Expr] = [named(total(col(ROWS)), CLASS_SIZE)]
    for requirement in space.requirements:
        aggregates += requirement.class_aggregates()
    if space.unknown:
        aggregates.append(col(KNOWN))
    return select([*aggregates, *extra], space.frequency.copy(), [col(key) for key in keys])


def kept(space: ClassSpace) -> exp.Expr:
    """The condition on a class of being kept: it meets every requirement and has no unknown value."""
    conditions = [requirement.condition() for requirement in space.requirements]
    if space.unknown:
        conditions.append(col(KNOWN))
    return all_of(conditions)


def candidate(space: ClassSpace, levels: Levels, leaves: bool = False) -> exp.Select:
    """One row: the kept classes, the suppressed rows, the smallest kept class, Σ of squared sizes of kept classes.

    With ``leaves``, then for each attribute strictly between its bottom and its top the sum over suppressed rows
    of the leaves under its value, less one.

    >>> from sqlanon.privacy import KAnonymity
    >>> from sqlanon.queries.names import table
    >>> space = ClassSpace(table("frequency"), (1, 2), (KAnonymity(2),))
    >>> print(candidate(space, (0, 2)).sql("duckdb", pretty=True).splitlines()[0])
    SELECT
    """
    between = [(i, level) for i, level in space.below_top(levels) if level > 0] if leaves else []
    extra = [named(exp.AnyValue(this=col(leaves_name(i, level))), f"w{i}") for i, level in between]
    good = kept(space)
    bad = exp.Not(this=exp.Paren(this=kept(space)))
    size = col(CLASS_SIZE)
    figures: list[exp.Expr] = [
        where(exp.Count(this=exp.Star()), good),
        exp.Coalesce(this=total(size, bad), expressions=[number(0)]),
        where(exp.Min(this=size.copy()), good.copy()),
        where(exp.Sum(this=exp.Pow(this=size.copy(), expression=number(2))), good.copy()),
        *(where(exp.Sum(this=exp.Mul(this=size.copy(), expression=col(f"w{i}"))), bad.copy()) for i, _ in between),
    ]
    return select(figures, subquery(classes(space, levels, extra), "c"))


def suppressed_entropy(space: ClassSpace, levels: Levels, suppressed: int) -> exp.Query:
    """One number: −Σ over suppressed rows and attributes of log2(count of the row's value among them / suppressed).

    At the top there is one value, which adds nothing: at least one attribute must be below it.
    """
    below = space.below_top(levels)
    codes = [col(code_name(i, level)) for i, level in below]
    sizes = subquery(classes(space, levels, codes), "c")
    failing = select([exp.Star()], sizes).where(exp.Not(this=exp.Paren(this=kept(space))), copy=False)
    counts = [select([named(total(col(CLASS_SIZE)), ROWS)], table("failing"), [code.copy()]) for code in codes]
    values = counts[0] if len(counts) == 1 else exp.union(*counts, distinct=False, copy=False)
    share = exp.Div(this=number(float(suppressed)), expression=col(ROWS))
    bits = exp.Mul(this=col(ROWS), expression=exp.Anonymous(this="LOG2", expressions=[share]))
    query = select([exp.Sum(this=bits)], exp.Subquery(this=values, alias=exp.TableAlias(this=ident("v"))))
    return query.with_(ident("failing"), as_=failing, materialized=True, copy=False)
