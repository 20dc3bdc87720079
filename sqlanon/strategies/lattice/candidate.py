"""A check: what one generalization is, in a row of figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from sqlanon.frequency.sets import ClassSpace
from sqlanon.requirements.base import CLASS_COUNT, CLASS_POPULATION, CLASS_SIZE
from sqlanon.strategies.lattice.classes import KEPT, PLACE, SHORT, jointly_judged_classes, judged_classes
from sqlanon.support.coding import ROWS, Coded, Levels, code_name, level_leaves
from sqlanon.support.expressions import (
    all_of,
    cast,
    col,
    double_total,
    filter_where,
    ident,
    named,
    number,
    select,
    subquery,
    table,
    template,
    total,
    union_all,
    values_query,
)

_LEAVES_BY_CODE = template("SELECT l.code, MAX(l.leaves) AS leaves FROM :leaves AS l GROUP BY l.code")


def candidate_query(
    space: ClassSpace,
    levels: Levels,
    short: bool = False,
    squares: bool = False,
    attributes: Sequence[Coded] = (),
) -> exp.Select:
    """One row of figures of a generalization, by name.

    ``classes`` (kept ones), ``suppressed_rows``, with ``squares`` the Σ of the squared sizes of kept classes;
    where the requirements need them ``count``, ``singles`` and ``unmatched`` (rows or persons in kept classes, kept
    classes of one, and the rows of those that match nobody of a population), ``lost`` (with ``short``: at least so many
    rows are suppressed here and at every lower generalization), and where each class of the population has to be kept
    ``unmet`` and ``too_few`` (its classes that are not kept, and that never will be). With ``attributes``, the column
    ``leaves_i`` is what `class_leaves` says of suppressed rows.

    >>> from sqlanon.requirements import KAnonymity, Requirements
    >>> from sqlanon.support.expressions import table
    >>> space = ClassSpace(table("frequency"), (1, 2), Requirements((KAnonymity(2),)))
    >>> print(candidate(space, (0, 2)).sql("duckdb", pretty=True).splitlines()[0])
    SELECT
    """
    between = between_ends(attributes, levels) if attributes else []
    sums = [named(_suppressed_leaves(col("leaves", f"w{i}")), f"leaves_{i}") for i, _ in between]
    classes = subquery(judged_classes(space, levels, _codes(between), short=short), "j")
    query = select([*_figures(space, short, squares), *sums], classes)
    for i, level in between:
        leaves = subquery(_LEAVES_BY_CODE(leaves=subquery(level_leaves(attributes[i], level))), f"w{i}")
        on = col(f"code_{i}", "j").eq(col("code", f"w{i}"))
        query = query.join(leaves, on=on, join_type="left", copy=False)
    return query


def between_ends(attributes: Sequence[Coded], levels: Levels) -> list[tuple[int, int]]:
    """Attribute and level where a generalization has labels that are not the top."""
    return [(i, levels[i]) for i, attribute in enumerate(attributes) if attribute.between_ends(levels[i])]


def _codes(between: Sequence[tuple[int, int]]) -> list[exp.Expr]:
    return [named(col(code_name(i, level)), f"code_{i}") for i, level in between]


def _suppressed_leaves(leaves: exp.Expr) -> exp.Expr:
    return filter_where(exp.Sum(this=cast(col(CLASS_SIZE), "DOUBLE") * leaves), exp.Not(this=col(KEPT)))


def joint_candidate_query(
    space: ClassSpace, several: Sequence[Levels], short: bool = False, squares: bool = False
) -> exp.Select:
    """The same of several generalizations, a row each, with its place among them as ``place``."""
    together = subquery(jointly_judged_classes(space, several, short=short), "j")
    return select([col(PLACE), *_figures(space, short, squares)], together, [col(PLACE)])


def _figures(space: ClassSpace, short: bool, squares: bool) -> list[exp.Expr]:
    size, none = col(CLASS_SIZE), number(0)
    figures: list[exp.Expr] = [
        named(filter_where(exp.Count(this=exp.Star()), col(KEPT)), "classes"),
        named(exp.Coalesce(this=total(size.copy(), exp.Not(this=col(KEPT))), expressions=[none]), "suppressed_rows"),
    ]
    if squares:
        squared = exp.Sum(this=exp.Pow(this=size.copy(), expression=number(2)))
        figures.append(named(filter_where(squared, col(KEPT)), "squares"))
    if space.requirements.table_conditions:
        single = exp.EQ(this=col(CLASS_COUNT), expression=number(1))
        figures.append(named(total(col(CLASS_COUNT), col(KEPT)), "count"))
        figures.append(named(filter_where(exp.Count(this=exp.Star()), all_of([col(KEPT), single])), "singles"))
        if space.population:
            nobody = exp.EQ(this=col(CLASS_POPULATION), expression=none.copy())
            figures.append(named(total(size.copy(), all_of([col(KEPT), nobody])), "unmatched"))
    if short:
        figures.append(named(double_total(col(SHORT)), "lost"))
    if (covering := space.requirements.covering_condition) is not None and (
        too_few := covering.uncoverable_class()
    ) is not None:
        there = exp.GT(this=col(CLASS_POPULATION), expression=number(0))
        unmet = all_of([there, exp.Not(this=col(KEPT))])
        figures.append(named(filter_where(exp.Count(this=exp.Star()), unmet), "unmet"))
        figures.append(named(filter_where(exp.Count(this=exp.Star()), too_few), "too_few"))
    return figures


def smallest_class_query(space: ClassSpace, levels: Levels) -> exp.Select:
    """One row: the rows of the smallest kept class, and the count (rows or persons) of the one with fewest."""
    least = [filter_where(exp.Min(this=col(name)), col(KEPT)) for name in (CLASS_SIZE, CLASS_COUNT)]
    return select([*least], subquery(judged_classes(space, levels), "j"))


def visible_classes_query(space: ClassSpace, levels: Levels, shown: int) -> exp.Select:
    """One row: the kept classes as a release shows them, by its first attributes alone, and the rows of the
    smallest.
    """
    codes: list[exp.Expr] = [col(code_name(i, level)) for i, level in space.below_top(levels) if i < shown]
    named_codes: list[exp.Expr] = [named(code, f"code_{i}") for i, code in enumerate(codes)]
    keys: list[exp.Expr] = [col(f"code_{i}") for i in range(len(codes))]
    size = named(total(col(CLASS_SIZE)), "size")
    parts = select([size], subquery(judged_classes(space, levels, named_codes), "j"), keys).where(col(KEPT), copy=False)
    if not keys:  # one class, if there is any
        parts = parts.having(exp.GT(this=exp.Count(this=exp.Star()), expression=number(0)), copy=False)
    least = exp.Coalesce(this=exp.Min(this=col("size")), expressions=[number(0)])
    return select([exp.Count(this=exp.Star()), least], subquery(parts, "w"))


def kept_sizes_query(space: ClassSpace, levels: Levels) -> exp.Select:
    """How many kept classes there are of each size, in rows or persons."""
    query = select([col(CLASS_COUNT), exp.Count(this=exp.Star())], subquery(judged_classes(space, levels), "j"))
    return query.where(col(KEPT), copy=False).group_by(col(CLASS_COUNT), copy=False)


_LEAVES = template("""
    SELECT s.slot, SUM(CAST(f.class_size AS DOUBLE) * w.leaves) AS leaves
    FROM :classes AS f CROSS JOIN :slots AS s JOIN :leaves AS w ON w.slot = s.slot AND w.code = :code
    GROUP BY s.slot
""")
_SLOT_LEAVES = template("SELECT :slot AS slot, l.code, l.leaves FROM :leaves AS l")


def class_leaves_query(space: ClassSpace, levels: Levels, attributes: Sequence[Coded], kept: bool) -> exp.Select:
    """A row ``slot, leaves`` for each attribute that has labels that are not the top.

    That is the sum over the rows of kept classes, or over suppressed rows, of the leaves under the attribute's value,
    less one. (One join for all attributes: with one for each, planning takes longer than the work.)
    """
    between = between_ends(attributes, levels)
    columns: list[exp.Expr] = [col(CLASS_SIZE), *(col(f"code_{i}") for i, _ in between)]
    classes = select(columns, subquery(judged_classes(space, levels, _codes(between)), "j"))
    classes = classes.where(col(KEPT) if kept else exp.Not(this=col(KEPT)), copy=False)
    code = exp.Case()  # with conditions: other engines are known to have these
    for i, _ in between:
        code = code.when(col("slot", "s").eq(number(i)), cast(col(f"code_{i}", "f"), "BIGINT"), copy=False)
    leaves = [_SLOT_LEAVES(slot=number(i), leaves=subquery(level_leaves(attributes[i], level))) for i, level in between]
    slots = values_query({"slot": "INTEGER"}, [[i] for i, _ in between])
    return _LEAVES(classes=subquery(classes), slots=subquery(slots), leaves=subquery(union_all(*leaves)), code=code)


_ATTRIBUTE_LEAVES = template("SELECT :slot AS slot, :level AS level, l.code, l.leaves FROM :leaves AS l")


def attribute_leaves(attributes: Sequence[Coded]) -> exp.Query:
    """The leaves under each code, less one, of all attributes at all levels with labels below the top.

    None of these may lack such a level.
    """
    between = [(i, level) for i, one in enumerate(attributes) for level in range(one.lowest_labelled, one.height)]
    return union_all(
        *(_ATTRIBUTE_LEAVES(slot=i, level=level, leaves=level_leaves(attributes[i], level)) for i, level in between)
    )


_LEAVES_TOGETHER = template("""
    SELECT f.place, s.slot, SUM(CAST(f.class_size AS DOUBLE) * w.leaves) AS leaves
    FROM :classes AS f
    JOIN :slots AS s ON s.place = f.place AND s.kept = f.kept
    JOIN :leaves AS w ON w.slot = s.slot AND w.level = s.level AND w.code = :code
    GROUP BY f.place, s.slot
""")


def class_leaves_together(
    space: ClassSpace, several: Sequence[tuple[Levels, bool]], attributes: Sequence[Coded], leaves: exp.Table
) -> exp.Select:
    """Rows ``place, slot, leaves``: what `class_leaves` says of several generalizations, each with whether it is asked
    about its kept classes; the leaves are those of `attribute_leaves`."""
    between = [dict(between_ends(attributes, levels)) for levels, _ in several]
    every = sorted({i for one in between for i in one})
    none = cast(exp.Null(), "BIGINT")

    def codes(one: Mapping[int, int]) -> list[exp.Expr]:
        return [
            named(cast(col(code_name(i, one[i])), "BIGINT") if i in one else none.copy(), f"code_{i}") for i in every
        ]

    classes = jointly_judged_classes(space, [levels for levels, _ in several], [codes(one) for one in between])
    code = exp.Case()
    for i in every:
        code = code.when(col("slot", "s").eq(number(i)), col(f"code_{i}", "f"), copy=False)
    slots = values_query(
        {PLACE: "INTEGER", KEPT: "BOOLEAN", "slot": "INTEGER", "level": "INTEGER"},
        [[place, several[place][1], i, level] for place, levels in enumerate(between) for i, level in levels.items()],
    )
    return _LEAVES_TOGETHER(classes=subquery(classes), slots=subquery(slots), leaves=leaves.copy(), code=code)


def suppressed_entropy(space: ClassSpace, levels: Levels, suppressed: int, shown: int) -> exp.Query:
    """One number: −Σ over suppressed rows and attributes of log2(count of the row's value among them / suppressed).

    At the top there is one value, which adds nothing: at least one attribute must be below it. Of the attributes, the
    first ones are ``shown`` by a release.
    """
    below = [(i, level) for i, level in space.below_top(levels) if i < shown]
    codes = [col(code_name(i, level)) for i, level in below]
    failing = select([exp.Star()], subquery(judged_classes(space, levels, codes), "j"))
    somebody = exp.GT(this=col(CLASS_SIZE), expression=number(0))  # not a class that only a population has
    failing = failing.where(exp.Not(this=col(KEPT)), somebody, copy=False)
    counts = [select([named(total(col(CLASS_SIZE)), ROWS)], table("failing"), [code.copy()]) for code in codes]
    values = union_all(*counts)
    share = exp.Div(this=number(float(suppressed)), expression=col(ROWS))
    bits = exp.Mul(this=col(ROWS), expression=exp.Anonymous(this="LOG2", expressions=[share]))
    query = select([exp.Sum(this=bits)], exp.Subquery(this=values, alias=exp.TableAlias(this=ident("v"))))
    return query.with_(ident("failing"), as_=failing, materialized=True, copy=False)
