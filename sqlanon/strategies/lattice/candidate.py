"""Statements that check a candidate: its figures, and further figures for some measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from sqlanon.frequency.sets import ClassSpace
from sqlanon.requirements.base import CLASS_COUNT, CLASS_POPULATION, CLASS_SIZE
from sqlanon.strategies.lattice.classes import (
    KEPT,
    LEAST_SUPPRESSED,
    PLACE,
    evaluated_classes,
    jointly_evaluated_classes,
)
from sqlanon.support.coding import CodedAttribute, Levels, code_column, level_leaves
from sqlanon.support.expressions import (
    all_of,
    anonymous,
    as_column,
    cast,
    col,
    double_total,
    filter_where,
    number,
    select,
    subquery,
    template,
    total,
    union_all,
    values_query,
)

_LEAVES_BY_CODE = template("SELECT l.code, MAX(l.leaves) AS leaves FROM :leaves AS l GROUP BY l.code")


def candidate_query(
    space: ClassSpace,
    levels: Levels,
    least_suppressed: bool = False,
    squares: bool = False,
    attributes: Sequence[CodedAttribute] = (),
) -> exp.Select:
    """One row with the figures of a generalization, by name.

    ``classes`` (kept ones) and ``suppressed_rows``; with ``squares``, the sum of the squared sizes of kept classes.
    If the requirements need them: ``kept_count``, ``single_classes`` and ``unmatched_rows`` (rows or persons in kept
    classes, kept classes of one, and rows of kept classes without a match in the population). ``least_suppressed``: the
    fewest rows that are suppressed here and at every lower generalization. If all classes of the population must be
    kept: ``uncovered_classes`` and ``uncoverable_classes`` (those that are not, and those that cannot be). With
    ``attributes``, ``leaves_i`` is the figure of `class_leaves_query` for suppressed rows.

    >>> from sqlanon.requirements import KAnonymity, Requirements
    >>> from sqlanon.support.expressions import table
    >>> space = ClassSpace(table("frequency"), (1, 2), Requirements((KAnonymity(2),)))
    >>> print(candidate_query(space, (0, 2)).sql("duckdb", pretty=True).splitlines()[0])
    SELECT
    """
    inner = inner_levels(attributes, levels) if attributes else []
    columns = _figures(space, least_suppressed, squares)
    for i, _ in inner:
        leaves = exp.Sum(this=cast(col(CLASS_SIZE), "DOUBLE") * col("leaves", f"w{i}"))
        columns.append(as_column(filter_where(leaves, ~col(KEPT)), f"leaves_{i}"))
    query = select(columns, subquery(evaluated_classes(space, levels, _codes(inner), least_suppressed), "j"))
    for i, level in inner:
        leaves_by_code = _LEAVES_BY_CODE(leaves=subquery(level_leaves(attributes[i], level)))
        same_code = col(f"code_{i}", "j").eq(col("code", f"w{i}"))
        query = query.join(subquery(leaves_by_code, f"w{i}"), on=same_code, join_type="left", copy=False)
    return query


def inner_levels(attributes: Sequence[CodedAttribute], levels: Levels) -> list[tuple[int, int]]:
    """Attribute and level for each attribute with labels other than the top label."""
    return [(i, levels[i]) for i, attribute in enumerate(attributes) if attribute.has_inner_labels(levels[i])]


def _codes(inner: Sequence[tuple[int, int]]) -> list[exp.Expr]:
    return [as_column(col(code_column(i, level)), f"code_{i}") for i, level in inner]


def joint_candidate_query(
    space: ClassSpace, generalizations: Sequence[Levels], least_suppressed: bool = False, squares: bool = False
) -> exp.Select:
    """The figures of several generalizations: a row for each, with its index as ``place``."""
    classes = subquery(jointly_evaluated_classes(space, generalizations, least_suppressed=least_suppressed), "j")
    return select([col(PLACE), *_figures(space, least_suppressed, squares)], classes, [col(PLACE)])


def _figures(space: ClassSpace, least_suppressed: bool, squares: bool) -> list[exp.Expr]:
    size, zero, count = col(CLASS_SIZE), number(0), exp.Count(this=exp.Star())
    figures: list[exp.Expr] = [
        as_column(filter_where(count.copy(), col(KEPT)), "classes"),
        as_column(exp.Coalesce(this=total(size.copy(), ~col(KEPT)), expressions=[zero]), "suppressed_rows"),
    ]
    if squares:
        squared = exp.Sum(this=exp.Pow(this=size.copy(), expression=number(2)))
        figures.append(as_column(filter_where(squared, col(KEPT)), "squares"))
    if space.requirements.table_conditions:
        is_single = col(CLASS_COUNT).eq(1)
        figures.append(as_column(total(col(CLASS_COUNT), col(KEPT)), "kept_count"))
        figures.append(as_column(filter_where(count.copy(), all_of([col(KEPT), is_single])), "single_classes"))
        if space.population:
            is_unmatched = col(CLASS_POPULATION).eq(0)
            figures.append(as_column(total(size.copy(), all_of([col(KEPT), is_unmatched])), "unmatched_rows"))
    if least_suppressed:
        figures.append(as_column(double_total(col(LEAST_SUPPRESSED)), LEAST_SUPPRESSED))
    covering = space.requirements.covering_condition
    if covering is not None and (uncoverable := covering.uncoverable_class()) is not None:
        is_unmet = all_of([col(CLASS_POPULATION) > 0, ~col(KEPT)])
        figures.append(as_column(filter_where(count.copy(), is_unmet), "uncovered_classes"))
        figures.append(as_column(filter_where(count.copy(), uncoverable), "uncoverable_classes"))
    return figures


def smallest_class_query(space: ClassSpace, levels: Levels) -> exp.Select:
    """One row: the rows of the smallest kept class, and the fewest rows or persons of a kept class."""
    least = [filter_where(exp.Min(this=col(name)), col(KEPT)) for name in (CLASS_SIZE, CLASS_COUNT)]
    return select([*least], subquery(evaluated_classes(space, levels), "j"))


def visible_classes_query(space: ClassSpace, levels: Levels, visible: int) -> exp.Select:
    """One row: the number of kept classes as readers see them, by the first ``visible`` attributes, and the rows of the
    smallest."""
    codes = [col(code_column(i, level)) for i, level in space.below_top(levels) if i < visible]
    keys = [col(f"code_{i}") for i in range(len(codes))]
    evaluated = evaluated_classes(space, levels, [as_column(code, f"code_{i}") for i, code in enumerate(codes)])
    classes = select([as_column(total(col(CLASS_SIZE)), "size")], subquery(evaluated, "j"), [*keys]).where(
        col(KEPT), copy=False
    )
    if not keys:  # one class, unless there are no rows
        classes = classes.having(exp.Count(this=exp.Star()) > 0, copy=False)
    smallest = exp.Coalesce(this=exp.Min(this=col("size")), expressions=[number(0)])
    return select([exp.Count(this=exp.Star()), smallest], subquery(classes, "w"))


def kept_sizes_query(space: ClassSpace, levels: Levels) -> exp.Select:
    """The number of kept classes of each size, in rows or persons."""
    query = select([col(CLASS_COUNT), exp.Count(this=exp.Star())], subquery(evaluated_classes(space, levels), "j"))
    return query.where(col(KEPT), copy=False).group_by(col(CLASS_COUNT), copy=False)


_CLASS_LEAVES = template("""
    SELECT s.slot, SUM(CAST(f.class_size AS DOUBLE) * w.leaves) AS leaves
    FROM :classes AS f CROSS JOIN :slots AS s JOIN :leaves AS w ON w.slot = s.slot AND w.code = :code
    GROUP BY s.slot
""")
_SLOT_LEAVES = template("SELECT :slot AS slot, l.code, l.leaves FROM :leaves AS l")


def class_leaves_query(
    space: ClassSpace, levels: Levels, attributes: Sequence[CodedAttribute], kept: bool
) -> exp.Select:
    """Rows ``slot, leaves``: for each attribute with labels other than the top, the sum over kept (or suppressed) rows
    of the leaves under its value, less one.

    All attributes share one join: with a join for each, planning takes longer than running.
    """
    inner = inner_levels(attributes, levels)
    columns = [col(CLASS_SIZE), *(col(f"code_{i}") for i, _ in inner)]
    classes = select([*columns], subquery(evaluated_classes(space, levels, _codes(inner)), "j"))
    code = exp.Case()  # with conditions, which every dialect has
    for i, _ in inner:
        code = code.when(col("slot", "s").eq(number(i)), cast(col(f"code_{i}", "f"), "BIGINT"), copy=False)
    leaves = [_SLOT_LEAVES(slot=number(i), leaves=subquery(level_leaves(attributes[i], level))) for i, level in inner]
    slots = values_query({"slot": "INTEGER"}, [[i] for i, _ in inner])
    return _CLASS_LEAVES(
        classes=subquery(classes.where(col(KEPT) if kept else ~col(KEPT), copy=False)),
        slots=subquery(slots),
        leaves=subquery(union_all(*leaves)),
        code=code,
    )


_ATTRIBUTE_LEAVES = template("SELECT :slot AS slot, :level AS level, l.code, l.leaves FROM :leaves AS l")


def attribute_leaves(attributes: Sequence[CodedAttribute]) -> exp.Query:
    """The leaves under each code, less one, of all attributes at all levels with labels other than the top.

    At least one attribute must have such a level.
    """
    inner = [
        (i, level)
        for i, attribute in enumerate(attributes)
        for level in range(attribute.lowest_labelled, attribute.height)
    ]
    return union_all(
        *(_ATTRIBUTE_LEAVES(slot=i, level=level, leaves=level_leaves(attributes[i], level)) for i, level in inner)
    )


_JOINT_CLASS_LEAVES = template("""
    SELECT f.place, s.slot, SUM(CAST(f.class_size AS DOUBLE) * w.leaves) AS leaves
    FROM :classes AS f
    JOIN :slots AS s ON s.place = f.place AND s.kept = f.kept
    JOIN :leaves AS w ON w.slot = s.slot AND w.level = s.level AND w.code = :code
    GROUP BY f.place, s.slot
""")


def class_leaves_together(
    space: ClassSpace, requests: Sequence[tuple[Levels, bool]], attributes: Sequence[CodedAttribute], leaves: exp.Table
) -> exp.Select:
    """Rows ``place, slot, leaves``: `class_leaves_query` for several generalizations, each with whether its kept
    classes are summed; ``leaves`` is the table of `attribute_leaves`."""
    inner = [dict(inner_levels(attributes, levels)) for levels, _ in requests]
    slots = sorted({i for labelled in inner for i in labelled})

    def codes(labelled: Mapping[int, int]) -> list[exp.Expr]:
        values = {i: col(code_column(i, labelled[i])) if i in labelled else exp.null() for i in slots}
        return [as_column(cast(value, "BIGINT"), f"code_{i}") for i, value in values.items()]

    generalizations = [levels for levels, _ in requests]
    classes = jointly_evaluated_classes(space, generalizations, [codes(labelled) for labelled in inner])
    code = exp.Case()
    for i in slots:
        code = code.when(col("slot", "s").eq(number(i)), col(f"code_{i}", "f"), copy=False)
    slot_rows = values_query(
        {PLACE: "INTEGER", KEPT: "BOOLEAN", "slot": "INTEGER", "level": "INTEGER"},
        [
            [place, requests[place][1], i, level]
            for place, labelled in enumerate(inner)
            for i, level in labelled.items()
        ],
    )
    return _JOINT_CLASS_LEAVES(classes=subquery(classes), slots=subquery(slot_rows), leaves=leaves.copy(), code=code)


_SUPPRESSED_ENTROPY = template("""
    WITH suppressed AS MATERIALIZED (
        SELECT * FROM :evaluated AS j WHERE NOT kept AND class_size > 0
    )
    SELECT sum(value_rows * :bits) FROM :value_counts AS v
""")
_VALUE_COUNTS = template("SELECT :rows AS value_rows FROM suppressed GROUP BY :code")


def suppressed_entropy(space: ClassSpace, levels: Levels, suppressed: int, visible: int) -> exp.Query:
    """One number: −Σ over suppressed rows and attributes of log2(count of the row's value among them / suppressed).

    At least one attribute must be below its top, where the single value adds nothing. The first ``visible`` attributes
    are released.
    """
    codes = [col(code_column(i, level)) for i, level in space.below_top(levels) if i < visible]
    counts = [_VALUE_COUNTS(rows=total(col(CLASS_SIZE)), code=code) for code in codes]
    return _SUPPRESSED_ENTROPY(
        evaluated=evaluated_classes(space, levels, codes),
        bits=anonymous("LOG2", number(float(suppressed)) / col("value_rows")),  # `log2(...)` would become LOG(2, ...)
        value_counts=union_all(*counts),
    )
