"""The source as it stands, as classes of the level 0: each distinct combination of quasi-identifiers is a class.

The classes, their figures and the conditions on them are the search's own. What is here makes the frequency set of
that one generalization, without hierarchies: values stand for codes. Where sensitive values are looked at, classes are
joined to them; there each combination gets a number, which then is the only quasi-identifier: numbers have no NULLs.

No person is in two rows of such a frequency set that end in one class: persons add up.

Names of columns as in `frequency.statements`, `coding` and `frequency.distribution`.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.coding import ROWS
from sqlanon.expressions import (
    aliased,
    all_of,
    cast,
    col,
    named,
    number,
    or_zero,
    same,
    select,
    subquery,
    total,
    where,
)
from sqlanon.frequency.statements import POPULATION, quasi_columns
from sqlanon.requirements.base import CLASS_COUNT, CLASS_POPULATION, CLASS_SIZE, ClassCondition
from sqlanon.risk.leakage_statements import CLASSES
from sqlanon.search.classes import ClassSpace, classes

NUMBER = "number"


def every_row(source: exp.Table, quasi: Sequence[str]) -> exp.Select:
    """The source's quasi-identifiers, row by row: for what groups them itself.

    >>> from sqlanon.expressions import table
    >>> every_row(table("patients"), ["zip", "age"]).sql("duckdb")
    'SELECT "zip" AS "q0", "age" AS "q1", 1 AS "n" FROM "patients"'
    """
    values: list[exp.Expr] = [named(col(name), f"q{i}") for i, name in enumerate(quasi)]
    return select([*values, named(number(1), ROWS)], source.copy())


def population_counts(raw: exp.Table, types: Sequence[str], persons: bool) -> exp.Select:
    """The population's rows, or persons, by combination, with the types of the source: ``q0`` .., ``population``."""
    keys = [named(cast(col(f"q{i}"), type_), f"q{i}") for i, type_ in enumerate(types)]
    # Each person has one row for each of its combinations.
    return select([*keys, named(number(1) if persons else col(ROWS), POPULATION)], raw.copy())


def class_numbers(raw: exp.Table, quasi: int, population: exp.Expr | None) -> exp.Select:
    """The distinct combinations, with a ``number`` for each."""
    distinct: exp.Query = exp.Select(expressions=quasi_columns(quasi), distinct=exp.Distinct()).from_(raw.copy())
    if population is not None:
        theirs = select(quasi_columns(quasi), population.copy())
        distinct = exp.union(distinct, theirs, distinct=True, copy=False)
    numbered = named(exp.Window(this=exp.RowNumber()), NUMBER)
    return select([*quasi_columns(quasi), numbered], subquery(distinct, "d"))


def with_numbers(rows: exp.Expr, numbers: exp.Table, quasi: int, columns: Sequence[str]) -> exp.Select:
    """Rows with the number of their combination as their one quasi-identifier ``q0``, and some of their columns."""
    on = all_of(same(col(f"q{i}", "r"), col(f"q{i}", "c")) for i in range(quasi))
    output: list[exp.Expr] = [named(col(NUMBER, "c"), "q0"), *(col(name, "r") for name in columns)]
    return select(output, aliased(rows, "r")).join(aliased(numbers, "c"), on=on, copy=False)


def figures(space: ClassSpace) -> exp.Select:
    """One row: what the classes are, and for each requirement on a class the classes that break it.

    Columns: ``rows``, ``classes``, ``smallest_class``, ``uniques``; ``count``, ``smallest_count`` and ``singles``, the
    same in rows or persons (all of them, the fewest in a class, the classes of one); ``classes_i`` and ``rows_i`` for
    requirement i; and with a population ``absent``: its classes that have no row in the source.
    """
    own = col(CLASS_SIZE) > 0  # else the population alone has it

    def breaks(condition: exp.Expr) -> exp.Expr:
        return all_of([own.copy(), ~_or_false(condition)])

    requirements = space.requirements.classes
    broken = [named(breaks(one.condition()), f"breaks_{i}") for i, one in enumerate(requirements)]
    judged = select([exp.Star(), *broken], subquery(_classes(space), "c"))

    def least(column: str) -> exp.Expr:
        return or_zero(where(exp.Min(this=col(column)), own.copy()))

    def of_one(column: str) -> exp.Expr:
        one = col(column).eq(1)
        return where(exp.Count(this=exp.Star()), all_of([own.copy(), one]))

    output: list[exp.Expr] = [
        named(or_zero(total(col(CLASS_SIZE))), "rows"),
        named(where(exp.Count(this=exp.Star()), own.copy()), "classes"),
        named(least(CLASS_SIZE), "smallest_class"),
        named(of_one(CLASS_SIZE), "uniques"),
        named(or_zero(total(col(CLASS_COUNT))), "count"),
        named(least(CLASS_COUNT), "smallest_count"),
        named(of_one(CLASS_COUNT), "singles"),
    ]
    for i in range(len(requirements)):
        flag = col(f"breaks_{i}")
        output.append(named(where(exp.Count(this=exp.Star()), flag), f"classes_{i}"))
        output.append(named(or_zero(total(col(CLASS_SIZE), flag.copy())), f"rows_{i}"))
    if space.population:
        there = col(CLASS_POPULATION) > 0
        absent = all_of([there, ~exp.Paren(this=own.copy())])
        output.append(named(where(exp.Count(this=exp.Star()), absent), "absent"))
    return select(output, subquery(judged, "j"))


def figures_by_size(sizes: exp.Table, requirements: Sequence[ClassCondition]) -> exp.Select:
    """`result` from the sizes of classes, where requirements look at nothing else."""
    size = cast(col(ROWS), "BIGINT")
    output: list[exp.Expr] = [named(size, CLASS_SIZE), named(size.copy(), CLASS_COUNT)]
    by_size = select([*output, named(cast(col(CLASSES), "BIGINT"), CLASSES)], sizes.copy())
    broken = [named(~_or_false(one.condition()), f"breaks_{i}") for i, one in enumerate(requirements)]
    judged = select([exp.Star(), *broken], subquery(by_size, "c"))
    rows = col(CLASSES) * col(CLASS_SIZE)
    ones = or_zero(total(col(CLASSES), col(CLASS_SIZE).eq(1)))
    least = or_zero(exp.Min(this=col(CLASS_SIZE)))
    found = {
        "rows": or_zero(total(rows)), "classes": or_zero(total(col(CLASSES))), "smallest_class": least,
        "uniques": ones, "count": or_zero(total(rows.copy())), "smallest_count": least.copy(), "singles": ones.copy(),
    }  # fmt: skip
    for i in range(len(requirements)):
        flag = col(f"breaks_{i}")
        found[f"classes_{i}"] = or_zero(total(col(CLASSES), flag))
        found[f"rows_{i}"] = or_zero(total(rows.copy(), flag.copy()))
    return select([named(value, name) for name, value in found.items()], subquery(judged, "j"))


def sizes(space: ClassSpace) -> exp.Select:
    """How many classes there are of each size, in rows or persons, and the rows in them."""
    output: list[exp.Expr] = [col(CLASS_COUNT), exp.Count(this=exp.Star()), total(col(CLASS_SIZE))]
    query = select(output, subquery(_classes(space), "c"), [col(CLASS_COUNT)])
    return query.where(col(CLASS_SIZE) > 0, copy=False)


def population_sizes(space: ClassSpace) -> exp.Select:
    """How many classes match so many of the population, their counts added up, and their rows."""
    output: list[exp.Expr] = [col(CLASS_POPULATION), exp.Count(this=exp.Star()), total(col(CLASS_COUNT))]
    query = select([*output, total(col(CLASS_SIZE))], subquery(_classes(space), "c"), [col(CLASS_POPULATION)])
    return query.where(col(CLASS_SIZE) > 0, copy=False)


def _classes(space: ClassSpace) -> exp.Select:
    return classes(space, (0,) * len(space.heights))


def _or_false(condition: exp.Expr) -> exp.Expr:
    return exp.Coalesce(this=exp.Paren(this=condition), expressions=[exp.false()])
