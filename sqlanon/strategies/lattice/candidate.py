"""Statements that check a candidate: its figures, and further figures for some measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from sqlanon.frequency.sets import ClassSpace
from sqlanon.strategies.lattice.classes import CANDIDATE, KEPT, evaluated_classes, jointly_evaluated_classes
from sqlanon.support.coding import CodedAttribute, Levels, code_column, level_leaves
from sqlanon.support.expressions import (
    anonymous,
    as_column,
    cast,
    col,
    fragment,
    number,
    subquery,
    template,
    union_all,
    values_query,
)

_CANDIDATE = template("""
    WITH evaluated_classes AS (:evaluated_classes)
    SELECT
        :candidate,
        count(*) FILTER (WHERE kept) AS classes,
        coalesce((sum(class_size) FILTER (WHERE NOT kept))::BIGINT, 0) AS suppressed_rows,
        :further_figures
    FROM evaluated_classes AS c
    GROUP BY :candidate
""")


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
    >>> print(candidate_query(space, (0, 2)).sql("duckdb"))  # doctest: +NORMALIZE_WHITESPACE, +ELLIPSIS
    WITH "evaluated_classes" AS (WITH "equivalence_classes" AS (SELECT ... GROUP BY "quasi_0_level_0") ...
    """
    inner = inner_levels(attributes, levels) if attributes else []
    suppressed_leaves = fragment("sum(class_size::DOUBLE * :leaves) FILTER (WHERE NOT kept)")
    query = _CANDIDATE(
        evaluated_classes=evaluated_classes(space, levels, _codes(inner), least_suppressed),
        candidate=[],
        further_figures=[
            *_further_figures(space, least_suppressed, squares),
            *(as_column(suppressed_leaves(leaves=col("leaves", f"l{i}")), f"leaves_{i}") for i, _ in inner),
        ],
    )
    for i, level in inner:
        leaves = template("SELECT l.code, max(l.leaves) AS leaves FROM :leaves AS l GROUP BY l.code")(
            leaves=level_leaves(attributes[i], level)
        )
        same_code = col(f"code_{i}", "c").eq(col("code", f"l{i}"))
        query = query.join(subquery(leaves, f"l{i}"), on=same_code, join_type="left", copy=False)
    return query


def inner_levels(attributes: Sequence[CodedAttribute], levels: Levels) -> list[tuple[int, int]]:
    """Attribute and level for each attribute with labels other than the top label."""
    return [(i, levels[i]) for i, attribute in enumerate(attributes) if attribute.has_inner_labels(levels[i])]


def _codes(inner: Sequence[tuple[int, int]]) -> list[exp.Expr]:
    return [as_column(col(code_column(i, level)), f"code_{i}") for i, level in inner]


def joint_candidate_query(
    space: ClassSpace, generalizations: Sequence[Levels], least_suppressed: bool = False, squares: bool = False
) -> exp.Select:
    """The figures of several generalizations: a row for each, with its index as ``candidate``."""
    return _CANDIDATE(
        evaluated_classes=jointly_evaluated_classes(space, generalizations, least_suppressed=least_suppressed),
        candidate=[col(CANDIDATE)],
        further_figures=_further_figures(space, least_suppressed, squares),
    )


def _further_figures(space: ClassSpace, least_suppressed: bool, squares: bool) -> list[exp.Expr]:
    """The figures that only some measures and requirements need."""
    requirements, covering = space.requirements, space.requirements.covering_condition
    figures = []
    if squares:
        figures.append(template("SELECT sum(pow(class_size, 2)) FILTER (WHERE kept) AS squares")())
    if requirements.table_conditions:
        query = template("""
            SELECT
                (sum(class_count) FILTER (WHERE kept))::BIGINT AS kept_count,
                count(*) FILTER (WHERE kept AND class_count = 1) AS single_classes
        """)
        figures.append(query())
    if requirements.table_conditions and space.population:
        query = template("""
            SELECT (sum(class_size) FILTER (WHERE kept AND class_population = 0))::BIGINT AS unmatched_rows
        """)
        figures.append(query())
    if least_suppressed:
        figures.append(template("SELECT sum(least_suppressed)::DOUBLE AS least_suppressed")())
    if covering is not None and (is_uncoverable := covering.uncoverable_class()) is not None:
        query = template("""
            SELECT
                count(*) FILTER (WHERE class_population > 0 AND NOT kept) AS uncovered_classes,
                count(*) FILTER (WHERE :is_uncoverable) AS uncoverable_classes
        """)
        figures.append(query(is_uncoverable=is_uncoverable))
    return [column for query in figures for column in query.expressions]


def smallest_class_query(space: ClassSpace, levels: Levels) -> exp.Select:
    """One row: the rows of the smallest kept class, and the fewest rows or persons of a kept class."""
    return template("""
        WITH evaluated_classes AS (:evaluated_classes)
        SELECT min(class_size) AS smallest, min(class_count) AS fewest
        FROM evaluated_classes
        WHERE kept
    """)(evaluated_classes=evaluated_classes(space, levels))


def visible_classes_query(space: ClassSpace, levels: Levels, visible: int) -> exp.Select:
    """One row: the number of kept classes as readers see them, by the first ``visible`` attributes, and the rows of the
    smallest."""
    codes = _codes([(i, level) for i, level in space.below_top(levels) if i < visible])
    return template("""
        WITH
            evaluated_classes AS (:evaluated_classes),
            visible_classes AS (
                SELECT sum(class_size)::BIGINT AS class_size
                FROM evaluated_classes
                WHERE kept
                GROUP BY :codes
                HAVING count(*) > 0
            )
        SELECT count(*) AS classes, coalesce(min(class_size), 0) AS smallest
        FROM visible_classes
    """)(
        evaluated_classes=evaluated_classes(space, levels, codes),
        codes=[col(code.alias) for code in codes],
    )


def kept_sizes_query(space: ClassSpace, levels: Levels) -> exp.Select:
    """The number of kept classes of each size, in rows or persons."""
    return template("""
        WITH evaluated_classes AS (:evaluated_classes)
        SELECT class_count, count(*) AS classes
        FROM evaluated_classes
        WHERE kept
        GROUP BY class_count
    """)(evaluated_classes=evaluated_classes(space, levels))


def class_leaves_query(
    space: ClassSpace,
    requests: Sequence[tuple[Levels, bool]],
    attributes: Sequence[CodedAttribute],
    leaves: exp.Table | None = None,
) -> exp.Select:
    """Rows ``candidate, slot, leaves``: by generalization and attribute with labels other than the top, the sum over
    kept (or suppressed) rows of the leaves under its value, less one.

    A request is a generalization, and whether its kept rows are summed. ``leaves`` is a table of `attribute_leaves`.
    All attributes share one join: with a join for each, planning takes longer than running.
    """
    inner = [dict(inner_levels(attributes, levels)) for levels, _ in requests]
    slots = sorted({i for levels in inner for i in levels})

    def codes(levels: Mapping[int, int]) -> list[exp.Expr]:
        values = {i: col(code_column(i, levels[i])) if i in levels else exp.null() for i in slots}
        return [as_column(cast(value, "BIGINT"), f"code_{i}") for i, value in values.items()]

    code = exp.Case()  # with conditions, which every dialect has
    for i in slots:
        code = code.when(col("slot", "s").eq(number(i)), col(f"code_{i}", "c"), copy=False)
    types = {CANDIDATE: "INTEGER", KEPT: "BOOLEAN", "slot": "INTEGER", "level": "INTEGER"}
    rows = [[c, requests[c][1], i, level] for c, levels in enumerate(inner) for i, level in levels.items()]
    return template("""
        WITH
            evaluated_classes AS (:evaluated_classes),
            slots AS (:slots)
        SELECT c.candidate, s.slot, sum(c.class_size::DOUBLE * l.leaves) AS leaves
        FROM evaluated_classes AS c
        JOIN slots AS s ON s.candidate = c.candidate AND s.kept = c.kept
        JOIN :leaves AS l ON l.slot = s.slot AND l.level = s.level AND l.code = :code
        GROUP BY c.candidate, s.slot
    """)(
        evaluated_classes=jointly_evaluated_classes(space, [levels for levels, _ in requests], [*map(codes, inner)]),
        slots=values_query(types, rows),
        leaves=_leaves_of_levels(attributes, {pair for levels in inner for pair in levels.items()})
        if leaves is None
        else leaves,
        code=code,
    )


def attribute_leaves(attributes: Sequence[CodedAttribute]) -> exp.Query:
    """The leaves under each code, less one, of all attributes at all levels with labels other than the top.

    At least one attribute must have such a level.
    """
    levels = {i: range(attribute.lowest_labelled, attribute.height) for i, attribute in enumerate(attributes)}
    return _leaves_of_levels(attributes, {(i, level) for i in levels for level in levels[i]})


def _leaves_of_levels(attributes: Sequence[CodedAttribute], inner: set[tuple[int, int]]) -> exp.Query:
    leaves_of_level = template("SELECT :slot AS slot, :level AS level, l.code, l.leaves FROM :leaves AS l")
    return union_all(
        *(leaves_of_level(slot=i, level=level, leaves=level_leaves(attributes[i], level)) for i, level in sorted(inner))
    )


def suppressed_entropy(space: ClassSpace, levels: Levels, suppressed: int, visible: int) -> exp.Query:
    """One number: −Σ over suppressed rows and attributes of log2(count of the row's value among them / suppressed).

    At least one attribute must be below its top, where the single value adds nothing. The first ``visible`` attributes
    are released.
    """
    codes = [col(code_column(i, level)) for i, level in space.below_top(levels) if i < visible]
    count_values = template("SELECT sum(class_size)::BIGINT AS value_rows FROM suppressed_classes GROUP BY :code")
    return template("""
        WITH
            suppressed_classes AS MATERIALIZED (
                SELECT * FROM :evaluated_classes AS c WHERE NOT kept AND class_size > 0
            ),
            value_counts AS (:value_counts)
        SELECT sum(value_rows * :bits)
        FROM value_counts
    """)(
        evaluated_classes=evaluated_classes(space, levels, codes),
        value_counts=union_all(*(count_values(code=code) for code in codes)),
        bits=anonymous("LOG2", number(float(suppressed)) / col("value_rows")),  # `log2(...)` would become LOG(2, ...)
    )
