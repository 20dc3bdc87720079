"""The equivalence classes of a generalization, rolled up from the frequency set, and which of them are kept."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.frequency.distribution import count_by_class_and_value
from sqlanon.frequency.sets import ClassSpace, SensitiveTable
from sqlanon.frequency.statements import MOVER, PERSONS, POPULATION, POPULATION_MOVER, class_count
from sqlanon.requirements import ClassCondition
from sqlanon.requirements.base import CLASS_COUNT, CLASS_POPULATION, CLASS_SIZE, Distribution, SubsetCondition
from sqlanon.support.coding import KNOWN, ROW_COUNT, Levels, code_column, inner_column
from sqlanon.support.expressions import (
    all_of,
    anonymous,
    as_column,
    cast,
    col,
    fragment,
    ident,
    number,
    subquery,
    template,
    total,
    union_all,
)

KEPT = "kept"
LEAST_SUPPRESSED = "least_suppressed"
CANDIDATE = "candidate"
MOVERS = "movers"
SETTLED = "settled"


def evaluated_classes(
    space: ClassSpace, levels: Levels, extra: Sequence[exp.Expr] = (), least_suppressed: bool = False
) -> exp.Select:
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
    """Whether the classes of several generalizations have the same columns and are evaluated independently."""
    requirements = space.requirements
    serves_one = space.are_classes or space.moving_elsewhere
    return not (serves_one or requirements.shields or _group_by_distribution(requirements.class_conditions))


def jointly_evaluated_classes(
    space: ClassSpace,
    generalizations: Sequence[Levels],
    extra: Sequence[Sequence[exp.Expr]] = (),
    least_suppressed: bool = False,
) -> exp.Select:
    """`evaluated_classes` of several generalizations: ``candidate`` is the index of each; ``extra`` has its columns."""
    columns = [[as_column(number(i), CANDIDATE), *(extra[i] if extra else ())] for i in range(len(generalizations))]
    if len(generalizations) == 1:
        return evaluated_classes(space, generalizations[0], columns[0], least_suppressed)
    classes = [
        equivalence_classes(space, levels, columns[i], space.requirements.k) for i, levels in enumerate(generalizations)
    ]
    return _evaluate(space, union_all(*classes), least_suppressed)


_CLASSES = template("""
    SELECT sum(row_count)::BIGINT AS class_size, :class_count AS class_count, :columns
    FROM :frequency
    GROUP BY :keys
""")
_PERSONS_OF_CLASS = template("""
    SELECT
        coalesce(array_agg(DISTINCT mover) FILTER (WHERE mover IS NOT NULL), :no_movers) AS movers,
        sum(persons)::BIGINT AS settled
""")


def equivalence_classes(
    space: ClassSpace, levels: Levels, extra: Sequence[exp.Expr] = (), min_class_count: int = 1
) -> exp.Select:
    """The equivalence classes of a generalization, one row each.

    Columns: ``class_size`` (rows), ``class_count`` (rows or persons), ``class_population``, the figures of the
    requirements, ``extra``, and ``known`` if there are unknown values. Classes that only the population has are
    included, with size 0.
    """
    known = [col(KNOWN)] if space.unknown else []
    if space.are_classes:
        return template(
            "SELECT row_count::BIGINT AS class_size, row_count::BIGINT AS class_count, :known FROM :frequency"
        )(known=known, frequency=space.frequency)
    keys, columns = space.keys(levels), list[exp.Expr]()
    if space.population:
        mover = POPULATION_MOVER if space.population_moving else None
        columns.append(as_column(class_count(POPULATION, mover), CLASS_POPULATION))
    if space.requirements.shields and space.moving:
        columns += _PERSONS_OF_CLASS(no_movers=cast(exp.Array(), "INTEGER[]")).expressions
    columns += [*known, *extra]
    distributions = _group_by_distribution(space.requirements.class_conditions)
    if distributions:  # keys get other names, because ``extra`` may contain them, too
        columns += [as_column(col(key), f"key {key}") for key in keys]
    classes = _CLASSES(
        class_count=class_count(PERSONS, MOVER if space.moving else None) if space.persons else total(col(ROW_COUNT)),
        columns=columns,
        frequency=space.frequency.copy(),
        keys=[col(key) for key in keys],
    )
    if not distributions:
        return classes
    query = template("WITH class_counts AS (:classes) SELECT c.* FROM class_counts AS c")(classes=classes)
    for i, (distribution, conditions) in enumerate(distributions.items()):
        alias = f"distribution_{i}"
        figures = _distribution_figures(space.sensitive[distribution], keys, conditions, space.moving, min_class_count)
        # Without its keys: some engines cannot resolve a name that occurs twice.
        new_columns = exp.Column(this=exp.Star(except_=[ident(key) for key in keys] or None), table=ident(alias))
        same_class = all_of(col(f"key {key}", "c").eq(col(key, alias)) for key in keys)
        # Classes that only the population has are in no distribution.
        join_type = "cross" if not keys else "left" if space.population else "inner"
        query = query.select(new_columns, copy=False).join(
            subquery(figures, alias), on=same_class if keys else None, join_type=join_type, copy=False
        )
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
    group_keys = [*keys, *(inner_column(i) for i in range(sensitive.inner))]
    counts = count_by_class_and_value(sensitive.table, group_keys, moving)
    groups = [condition.group_condition for condition in conditions if condition.group_condition is not None]
    if groups:
        counts = _condition_figures(groups, counts, group_keys)
    return _condition_figures(conditions, counts, keys, sensitive.domain, min_class_count)


def _condition_figures(
    conditions: Sequence[ClassCondition],
    counts: exp.Query,
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
    query = template("""
        WITH figures AS (
            SELECT :keys, :aggregates
            FROM :counts AS counts
            GROUP BY :keys
        )
        SELECT figures.*, :derived
        FROM figures
    """)(
        keys=[col(key) for key in keys],
        aggregates=[as_column(figure, name) for name, figure in aggregates.items()],
        counts=counts,
        derived=[as_column(figure, name) for name, figure in derived.items()],
    )
    if derived and domain is not None and any(condition.needs_domain for condition in conditions):
        query = query.join(domain.copy(), join_type="cross", copy=False)
    return query


_EVALUATED_CLASSES = template("""
    WITH equivalence_classes AS (:classes)
    SELECT *, coalesce((:meets_requirements), FALSE) AS kept, :least_suppressed
    FROM equivalence_classes
""")


def _evaluate(space: ClassSpace, classes: exp.Query, least_suppressed: bool) -> exp.Select:
    conditions = [condition.condition() for condition in space.requirements.class_conditions]
    if space.unknown:
        conditions.append(col(KNOWN))
    if space.population:
        conditions.append(col(CLASS_SIZE) > 0)
    return _EVALUATED_CLASSES(
        classes=classes,
        meets_requirements=all_of(conditions),
        least_suppressed=[as_column(_least_suppressed(space), LEAST_SUPPRESSED)] if least_suppressed else [],
    )


def _least_suppressed(space: ClassSpace) -> exp.Expr:
    """The maximum number of rows of a class that one requirement, or an unknown value, suppresses."""
    suppressed_unless = fragment("CASE WHEN :condition THEN 0 ELSE :suppressed END")
    counts: list[exp.Expr] = []
    for condition in space.requirements.class_conditions:
        if condition.hereditary:
            counts.append(suppressed_unless(condition=condition.condition(), suppressed=col(CLASS_SIZE)))
        elif space.additive:
            counts.append(suppressed_unless(condition=condition.condition(), suppressed=condition.shortfall()))
    if space.unknown:
        counts.append(suppressed_unless(condition=col(KNOWN), suppressed=col(CLASS_SIZE)))
    if not counts:
        return number(0.0)
    # Classes of size 0 are in the population only.
    return fragment("CASE WHEN class_size > 0 THEN greatest(0.0, :counts) ELSE 0.0 END")(counts=counts)


# Classes that violate a shield are suppressed, which may make others violate one: repeat until all comply or none is
# left. The recursive query comes last in the WITH, where `engines.federation.find_recursion` expects it.
_SHIELDED = template("""
    WITH RECURSIVE evaluated AS MATERIALIZED (
        SELECT * FROM :evaluated AS classes
    ),
    rounds AS (
        SELECT :columns, 0 AS round
        FROM evaluated
        WHERE kept
        UNION ALL
        SELECT :columns, round + 1 AS round
        FROM (
            SELECT *, bool_and(complies) OVER () AS all_comply
            FROM (SELECT :columns, round, :complies AS complies FROM rounds) AS checked_classes
        ) AS checked_round
        WHERE complies AND NOT all_comply
    )
    SELECT evaluated.* EXCLUDE (kept), complying.complies IS NOT NULL AS kept
    FROM evaluated
    LEFT JOIN (
        SELECT :names, complies
        FROM (SELECT :columns, round, :complies AS complies FROM rounds) AS checked_rounds
        WHERE round = (SELECT max(round) FROM rounds) AND complies
    ) AS complying ON :same_class
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
        same_class=all_of(col(name, "evaluated").eq(col(name, "complying")) for name in names),
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
