"""The equivalence classes of a generalization, rolled up from the frequency set, and which of them are kept."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.frequency.distribution import count_by_class_and_value
from sqlanon.frequency.sets import ClassSpace, SensitiveTable
from sqlanon.frequency.statements import MOVER, PERSONS, POPULATION, POPULATION_MOVER, class_count
from sqlanon.requirements import ClassCondition
from sqlanon.requirements.base import CLASS_COUNT, CLASS_POPULATION, CLASS_SIZE, Distribution, SubsetCondition
from sqlanon.support.coding import KNOWN, ROWS, Levels, code_column
from sqlanon.support.expressions import (
    all_columns,
    all_of,
    anonymous,
    as_column,
    cast,
    col,
    filter_where,
    greatest,
    ident,
    is_not_null,
    number,
    select,
    subquery,
    template,
    total,
    union_all,
)

KEPT = "kept"
LEAST_SUPPRESSED = "least_suppressed"
PLACE = "place"
MOVERS = "movers"
SETTLED = "settled"


def evaluated_classes(
    space: ClassSpace, levels: Levels, extra: Sequence[exp.Expr] = (), least_suppressed: bool = False
) -> exp.Query:
    """The classes with ``kept``: whether a class meets every requirement and has no unknown value.

    With ``least_suppressed``: the fewest of its rows that are suppressed here and at every lower generalization.
    """
    requirements = space.requirements
    keys = space.keys(levels) if requirements.shields else []
    shield_keys = [as_column(col(key), f"shield {key}") for key in keys]
    classes = equivalence_classes(space, levels, [*extra, *shield_keys], requirements.k)
    evaluated = _evaluate(space, classes, least_suppressed)
    return _evaluate_shields(space, levels, evaluated) if requirements.shields else evaluated


def can_be_evaluated_together(space: ClassSpace) -> bool:
    """Whether the classes of several generalizations have the same columns and are evaluated one by one."""
    requirements = space.requirements
    belongs_to_one = space.are_classes or space.moving_elsewhere
    return not (belongs_to_one or requirements.shields or _group_by_distribution(requirements.class_conditions))


def jointly_evaluated_classes(
    space: ClassSpace,
    generalizations: Sequence[Levels],
    extra: Sequence[Sequence[exp.Expr]] = (),
    least_suppressed: bool = False,
) -> exp.Query:
    """`evaluated_classes` of several generalizations, with the index of each as ``place`` and its own ``extra``."""
    classes = []
    for place, levels in enumerate(generalizations):
        columns = [as_column(number(place), PLACE), *(extra[place] if extra else ())]
        classes.append(equivalence_classes(space, levels, columns, space.requirements.k))
    return _evaluate(space, union_all(*classes), least_suppressed)


def equivalence_classes(
    space: ClassSpace, levels: Levels, extra: Sequence[exp.Expr] = (), min_class_count: int = 1
) -> exp.Select:
    """The equivalence classes of a generalization, one row each.

    Columns: ``class_size`` (rows), ``class_count`` (rows or persons), ``class_population``, the figures of the
    requirements, ``extra``, and ``known`` if there are unknown values. Classes that only the population has are
    included, with size 0.
    """
    if space.are_classes:
        size = cast(col(ROWS), "BIGINT")
        known = [col(KNOWN)] if space.unknown else []
        return select(
            [as_column(size, CLASS_SIZE), as_column(size.copy(), CLASS_COUNT), *known], space.frequency.copy()
        )
    keys = space.keys(levels)
    persons = class_count(PERSONS, MOVER if space.moving else None) if space.persons else total(col(ROWS))
    aggregates: list[exp.Expr] = [as_column(total(col(ROWS)), CLASS_SIZE), as_column(persons, CLASS_COUNT)]
    if space.population:
        mover = POPULATION_MOVER if space.population_moving else None
        aggregates.append(as_column(class_count(POPULATION, mover), CLASS_POPULATION))
    if space.requirements.shields and space.moving:
        movers = filter_where(exp.ArrayAgg(this=exp.Distinct(expressions=[col(MOVER)])), is_not_null(col(MOVER)))
        none = cast(exp.Array(expressions=[]), "INTEGER[]")
        aggregates.append(as_column(exp.Coalesce(this=movers, expressions=[none]), MOVERS))
        aggregates.append(as_column(total(col(PERSONS)), SETTLED))
    if space.unknown:
        aggregates.append(col(KNOWN))
    classes = select([*aggregates, *extra], space.frequency.copy(), [col(key) for key in keys])
    distributions = _group_by_distribution(space.requirements.class_conditions)
    if not distributions:
        return classes
    # Keys get other names, because ``extra`` may contain them, too.
    classes.set("expressions", [*classes.expressions, *(as_column(col(key), f"key {key}") for key in keys)])
    query = select([all_columns("own")], subquery(classes, "own"))
    for i, (distribution, conditions) in enumerate(distributions.items()):
        alias = f"d{i}"
        figures = _distribution_figures(space.sensitive[distribution], keys, conditions, space.moving, min_class_count)
        # Without its keys: some engines cannot resolve a name that occurs twice.
        columns = exp.Column(this=exp.Star(except_=[ident(key) for key in keys] or None), table=ident(alias))
        same_class = [col(f"key {key}", "own").eq(col(key, alias)) for key in keys]
        # Classes that only the population has are in no distribution.
        join_type = "cross" if not keys else "left" if space.population else "inner"
        on = all_of(same_class) if keys else None
        query = query.select(columns, copy=False).join(subquery(figures, alias), on=on, join_type=join_type, copy=False)
    return query


def _group_by_distribution(conditions: Sequence[ClassCondition]) -> dict[Distribution, list[ClassCondition]]:
    distributions: dict[Distribution, list[ClassCondition]] = {}
    for condition in conditions:
        if condition.distribution is not None:
            distributions.setdefault(condition.distribution, []).append(condition)
    return distributions


def _distribution_figures(
    sensitive: SensitiveTable,
    keys: Sequence[str],
    conditions: Sequence[ClassCondition],
    moving: bool,
    min_class_count: int,
) -> exp.Select:
    """One row for each class: the figures of the conditions on one distribution."""
    group_keys = [*keys, *(f"o{i}" for i in range(sensitive.inner))]
    source: exp.Expr = subquery(count_by_class_and_value(sensitive.table, group_keys, moving), "counts")
    groups = [condition.group_condition for condition in conditions if condition.group_condition is not None]
    if groups:
        source = subquery(_condition_figures(groups, source, group_keys), "groups")
    return _condition_figures(conditions, source, keys, sensitive.domain, min_class_count)


def _condition_figures(
    conditions: Sequence[ClassCondition],
    source: exp.Expr,
    keys: Sequence[str],
    domain: exp.Table | None = None,
    min_class_count: int = 1,
) -> exp.Select:
    """The aggregates of conditions on one distribution by ``keys``, and the figures derived from them."""
    aggregates: dict[str, exp.Expr] = {}
    derived: dict[str, exp.Expr] = {}
    for condition in conditions:
        if condition.distribution is not None:
            name = condition.distribution.name
            aggregates |= {name(figure): value for figure, value in condition.figures().items()}
            derived |= {name(figure): value for figure, value in condition.derived_figures(min_class_count).items()}
    columns: list[exp.Expr] = [col(key) for key in keys]
    columns += [as_column(figure, name) for name, figure in aggregates.items()]
    query = select(columns, source, [col(key) for key in keys])
    if not derived:
        return query
    derived_columns = [as_column(value, name) for name, value in derived.items()]
    query = select([all_columns("figures"), *derived_columns], subquery(query, "figures"))
    if domain is not None and any(condition.needs_domain for condition in conditions):
        query = query.join(domain.copy(), join_type="cross", copy=False)
    return query


def _evaluate(space: ClassSpace, classes: exp.Query, least_suppressed: bool) -> exp.Select:
    conditions = [condition.condition() for condition in space.requirements.class_conditions]
    if space.unknown:
        conditions.append(col(KNOWN))
    if space.population:
        conditions.append(col(CLASS_SIZE) > 0)
    kept = exp.Coalesce(this=exp.Paren(this=all_of(conditions)), expressions=[exp.false()])
    columns = [exp.Star(), as_column(kept, KEPT)]
    if least_suppressed:
        columns.append(as_column(_least_suppressed(space), LEAST_SUPPRESSED))
    return exp.Select(expressions=columns).from_(subquery(classes, "c"), copy=False)


def _least_suppressed(space: ClassSpace) -> exp.Expr:
    """The most rows of a class that one requirement, or an unknown value, suppresses."""
    parts: list[exp.Expr] = []
    for condition in space.requirements.class_conditions:
        suppressed: exp.Expr = col(CLASS_SIZE)
        if not condition.hereditary:
            if not space.additive:
                continue
            suppressed = condition.shortfall()
        parts.append(exp.If(this=exp.Paren(this=condition.condition()), true=number(0), false=suppressed))
    if space.unknown:
        parts.append(exp.If(this=col(KNOWN), true=number(0), false=col(CLASS_SIZE)))
    if not parts:
        return number(0.0)
    is_in_source = col(CLASS_SIZE) > 0  # not only in the population
    return exp.If(this=is_in_source, true=greatest(number(0.0), *parts), false=number(0.0))


# Classes that violate a shield are suppressed, which may make others violate one: repeat until all comply. In the last
# round all do, or none does, and then none is kept.
_SHIELDED = template("""
    WITH RECURSIVE alone AS MATERIALIZED (
        SELECT * FROM :evaluated AS j
    ),
    rounds AS (
        SELECT :columns, 0 AS round
        FROM alone
        WHERE kept
        UNION ALL
        SELECT :columns, round + 1 AS round
        FROM (
            SELECT *, bool_and(complies) OVER () AS all_comply
            FROM (SELECT :columns, round, :complies AS complies FROM rounds) AS t
        ) AS w
        WHERE complies AND NOT all_comply
    )
    SELECT a.* EXCLUDE (kept), s.complies IS NOT NULL AS kept
    FROM alone AS a
    LEFT JOIN (
        SELECT :names, complies
        FROM (SELECT :columns, round, :complies AS complies FROM rounds) AS t
        WHERE round = (SELECT max(round) FROM rounds) AND complies
    ) AS s ON :same_class
""")


def _evaluate_shields(space: ClassSpace, levels: Levels, evaluated: exp.Query) -> exp.Select:
    """Evaluated classes, kept if they also comply with the shields."""
    shields, below_top = space.requirements.shields, space.below_top(levels)
    names = [f"shield {key}" for key in space.keys(levels)]
    counts = [SETTLED, MOVERS] if space.moving else [CLASS_COUNT]
    return _SHIELDED(
        evaluated=subquery(evaluated),
        columns=[col(name) for name in (*names, *counts)],
        complies=all_of(_complies(shield, below_top, space.moving) for shield in shields),
        names=[col(name) for name in names],
        same_class=all_of(col(name, "a").eq(col(name, "s")) for name in names),
    )


def _complies(shield: SubsetCondition, below_top: Sequence[tuple[int, int]], moving: bool) -> exp.Expr:
    """Whether a class of this round is in a group of at least k that agree in the shield's attributes."""
    group = [col(f"shield {code_column(i, level)}") for i, level in below_top if i in shield.attributes]

    def over_group(aggregate: exp.Expr) -> exp.Window:
        return exp.Window(this=aggregate, partition_by=[col("round"), *(key.copy() for key in group)])

    if moving:
        movers = anonymous("flatten", over_group(exp.ArrayAgg(this=col(MOVERS))))
        distinct = exp.Coalesce(this=anonymous("len", anonymous("list_distinct", movers)), expressions=[number(0)])
        count: exp.Expr = exp.Add(this=over_group(exp.Sum(this=col(SETTLED))), expression=distinct)
    else:
        count = over_group(exp.Sum(this=col(CLASS_COUNT)))
    return exp.GTE(this=cast(count, "BIGINT"), expression=number(shield.k))
