"""The equivalence classes of a generalization, rolled up from the frequency set, and which of them are kept."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.frequency.distribution import count_by_class_and_value
from sqlanon.frequency.sets import ClassSpace, SensitiveTable
from sqlanon.frequency.statements import MOVER, PERSONS, POPULATION, POPULATION_MOVER, class_count
from sqlanon.requirements import ClassCondition
from sqlanon.requirements.base import CLASS_COUNT, CLASS_POPULATION, CLASS_SIZE, Distribution, SubsetCondition
from sqlanon.support.coding import KNOWN, ROWS, Levels
from sqlanon.support.expressions import (
    all_columns,
    all_of,
    anonymous,
    cast,
    col,
    filter_where,
    greatest,
    ident,
    is_there,
    named,
    number,
    select,
    subquery,
    table,
    total,
    union_all,
)

MOVERS = "movers"
SETTLED = "settled"


def after_shields(
    judged: exp.Query, keys: Sequence[str], shields: Sequence[SubsetCondition], moving: bool
) -> exp.Select:
    """Classes with ``kept`` by the requirements on each, to classes with ``kept`` by the shields too."""
    names = [f"shield {key}" for key in keys]
    counts = [SETTLED, MOVERS] if moving else [CLASS_COUNT]
    own = [*names, *counts]
    first = select([*(col(name) for name in own), named(number(0), "round")], table("alone"))
    first = first.where(col("kept"), copy=False)
    fine = all_of(_holds(shield, keys, moving) for shield in shields)
    tested = select([*(col(name) for name in own), col("round"), named(fine, "fine")], table("rounds"))
    all_fine = exp.Window(this=exp.LogicalAnd(this=col("fine")))
    watched = select([exp.Star(), named(all_fine, "all_fine")], subquery(tested, "t"))
    one_more = exp.Add(this=col("round"), expression=number(1))
    later: list[exp.Expr] = [*(col(name) for name in own), named(one_more, "round")]
    next_ = select(later, subquery(watched, "w")).where(
        exp.And(this=col("fine"), expression=exp.Not(this=col("all_fine"))), copy=False
    )
    last = select([exp.Max(this=col("round"))], table("rounds"))
    # In the last round all are fine, or none is: then nothing stays.
    final = select([*(col(name) for name in names), col("fine")], subquery(tested.copy(), "t"))
    final = final.where(exp.EQ(this=col("round"), expression=exp.Subquery(this=last)), col("fine"), copy=False)
    return (
        select(
            [
                exp.Column(this=exp.Star(except_=[ident("kept")]), table=ident("a")),
                named(is_there(col("fine", "s")), "kept"),
            ],
            exp.Table(this=ident("alone"), alias=exp.TableAlias(this=ident("a"))),
        )
        .join(
            subquery(final, "s"),
            on=all_of(exp.EQ(this=col(name, "a"), expression=col(name, "s")) for name in names),
            join_type="left",
            copy=False,
        )
        .with_(ident("alone"), as_=judged, materialized=True, copy=False)
        .with_(
            ident("rounds"),
            as_=union_all(first, next_),
            recursive=True,
            copy=False,
        )
    )


def _holds(shield: SubsetCondition, keys: Sequence[str], moving: bool) -> exp.Expr:
    """Whether a class, in this round, is in a group of at least k that agree in the shield's attributes."""
    mine = [key for key in keys if any(key.startswith(f"q{i}_l") for i in shield.attributes)]
    group = [col(f"shield {key}") for key in mine]

    def over(aggregate: exp.Expr) -> exp.Window:
        return exp.Window(this=aggregate, partition_by=[col("round"), *(key.copy() for key in group)])

    if not moving:
        count: exp.Expr = over(exp.Sum(this=col(CLASS_COUNT)))
    else:
        lists = anonymous("flatten", over(exp.ArrayAgg(this=col(MOVERS))))
        distinct = exp.Coalesce(this=anonymous("len", anonymous("list_distinct", lists)), expressions=[number(0)])
        count = exp.Add(this=over(exp.Sum(this=col(SETTLED))), expression=distinct)
    return exp.GTE(this=cast(count, "BIGINT"), expression=number(shield.k))


KEPT = "kept"
SHORT = "short"


def equivalence_classes(
    space: ClassSpace, levels: Levels, extra: Sequence[exp.Expr] = (), least: int = 1
) -> exp.Select:
    """The equivalence classes of a generalization.

    Makes one row a class: ``class_size`` (rows), ``class_count`` (rows or persons), ``class_population``, the figures
    of the requirements, ``extra``, and ``known`` if there are unknown values. With a population, classes that only it
    has are there too, with size 0.
    """
    if space.are_classes:
        size = cast(col(ROWS), "BIGINT")
        known = [col(KNOWN)] if space.unknown else []
        return select([named(size, CLASS_SIZE), named(size.copy(), CLASS_COUNT), *known], space.frequency.copy())
    keys = space.keys(levels)
    shields = bool(space.requirements.shields)
    aggregates: list[exp.Expr] = [named(total(col(ROWS)), CLASS_SIZE)]
    persons = class_count(PERSONS, MOVER if space.moving else None) if space.persons else total(col(ROWS))
    aggregates.append(named(persons, CLASS_COUNT))
    if space.population:
        mover = POPULATION_MOVER if space.population_moving else None
        aggregates.append(named(class_count(POPULATION, mover), CLASS_POPULATION))
    if shields and space.moving:
        there = is_there(col(MOVER))
        ids = exp.ArrayAgg(this=exp.Distinct(expressions=[col(MOVER)]))
        none = cast(exp.Array(expressions=[]), "INTEGER[]")
        lists = exp.Coalesce(this=filter_where(ids, there), expressions=[none])
        aggregates += [named(lists, MOVERS), named(total(col(PERSONS)), SETTLED)]
    if space.unknown:
        aggregates.append(col(KNOWN))
    own = select([*aggregates, *extra], space.frequency.copy(), [col(key) for key in keys])
    by_distribution = _by_distribution(space.requirements.class_conditions)
    if not by_distribution:
        return own
    # Under other names: what is asked for as extra may be a key too.
    own.set("expressions", [*own.expressions, *(named(col(key), f"key {key}") for key in keys)])
    joined = select([all_columns("own")], subquery(own, "own"))
    for number_, (distribution, requirements) in enumerate(by_distribution.items()):
        alias = f"d{number_}"
        inner = _figures(space.sensitive[distribution], keys, requirements, space.moving, least)
        # Its keys are there already; some engines find nothing by a name that is there twice.
        rest = exp.Column(this=exp.Star(except_=[ident(key) for key in keys] or None), table=ident(alias))
        joined = joined.select(rest, copy=False)
        same = [exp.EQ(this=col(f"key {key}", "own"), expression=col(key, alias)) for key in keys]
        if keys:
            # A class that only the population has is in no distribution.
            kind = "left" if space.population else "inner"
            joined = joined.join(subquery(inner, alias), on=all_of(same), join_type=kind, copy=False)
        else:
            joined = joined.join(subquery(inner, alias), join_type="cross", copy=False)
    return joined


def _by_distribution(requirements: Sequence[ClassCondition]) -> dict[Distribution, list[ClassCondition]]:
    found: dict[Distribution, list[ClassCondition]] = {}
    for requirement in requirements:
        if requirement.distribution is not None:
            found.setdefault(requirement.distribution, []).append(requirement)
    return found


def _figures(
    sensitive: SensitiveTable, keys: Sequence[str], requirements: Sequence[ClassCondition], moving: bool, least: int
) -> exp.Select:
    """The figures of a distribution: one row a class."""
    inner = [f"o{i}" for i in range(sensitive.inner)]
    within = [*keys, *inner]
    source: exp.Expr = subquery(count_by_class_and_value(sensitive.table, within, moving), "counts")
    groups = [one.group_condition for one in requirements if one.group_condition is not None]
    if groups:
        source = subquery(_worked_out(groups, source, within), "groups")
    return _worked_out(requirements, source, keys, sensitive.domain, least)


def _worked_out(
    requirements: Sequence[ClassCondition],
    source: exp.Expr,
    keys: Sequence[str],
    domain: exp.Table | None = None,
    least: int = 1,
) -> exp.Select:
    """The figures of requirements on one distribution, grouped by keys, and what is derived from them."""
    aggregates: dict[str, exp.Expr] = {}
    derived: dict[str, exp.Expr] = {}
    for one in requirements:
        if one.distribution is not None:
            name = one.distribution.name
            aggregates |= {name(figure): value for figure, value in one.figures().items()}
            derived |= {name(figure): value for figure, value in one.derived_figures(least).items()}
    columns: list[exp.Expr] = [col(key) for key in keys]
    columns += [named(figure, name) for name, figure in aggregates.items()]
    query = select(columns, source, [col(key) for key in keys])
    if not derived:
        return query
    figures = subquery(query, "figures")
    all_of_them = all_columns("figures")
    result = select([all_of_them, *(named(value, name) for name, value in derived.items())], figures)
    if domain is not None and any(one.needs_domain for one in requirements):
        result = result.join(domain.copy(), join_type="cross", copy=False)
    return result


def judged_classes(space: ClassSpace, levels: Levels, extra: Sequence[exp.Expr] = (), short: bool = False) -> exp.Query:
    """The classes, with the column ``kept``: whether a class meets every requirement and has no unknown value.

    With ``short``, the column of that name too: at least so many of its rows are lost, here and at every lower
    generalization.
    """
    requirements = space.requirements
    shields = bool(requirements.shields)
    keys = space.keys(levels) if shields else []
    own = equivalence_classes(
        space, levels, [*extra, *(named(col(key), f"shield {key}") for key in keys)], requirements.k
    )
    query = _with_kept(space, own, short)
    return after_shields(query, keys, requirements.shields, space.moving) if shields else query


PLACE = "place"


def can_be_judged_together(space: ClassSpace) -> bool:
    """Whether the classes of several generalizations have the same columns, and are judged each by itself."""
    requirements = space.requirements
    is_of_one = space.are_classes or space.moving_elsewhere
    return not (is_of_one or requirements.shields or _by_distribution(requirements.class_conditions))


def jointly_judged_classes(
    space: ClassSpace, several: Sequence[Levels], extra: Sequence[Sequence[exp.Expr]] = (), short: bool = False
) -> exp.Query:
    """The same of several generalizations, each with its place among them as ``place``, and ``extra`` of its own."""
    own = [
        equivalence_classes(
            space, levels, [named(number(i), PLACE), *(extra[i] if extra else ())], space.requirements.k
        )
        for i, levels in enumerate(several)
    ]
    return _with_kept(space, union_all(*own), short)


def _with_kept(space: ClassSpace, own: exp.Query, short: bool) -> exp.Select:
    kept = exp.Coalesce(this=exp.Paren(this=_kept(space)), expressions=[exp.false()])
    added = [named(kept, KEPT)]
    if short:
        added.append(named(_short(space), SHORT))
    return exp.Select(expressions=[exp.Star(), *added]).from_(subquery(own, "c"), copy=False)


def _kept(space: ClassSpace) -> exp.Expr:
    conditions = [requirement.condition() for requirement in space.requirements.class_conditions]
    if space.unknown:
        conditions.append(col(KNOWN))
    if space.population:
        conditions.append(exp.GT(this=col(CLASS_SIZE), expression=number(0)))
    return all_of(conditions)


def _short(space: ClassSpace) -> exp.Expr:
    """The most that one of the requirements, or an unknown value, takes from a class."""
    parts: list[exp.Expr] = []
    for requirement in space.requirements.class_conditions:
        lost: exp.Expr = col(CLASS_SIZE)
        if not requirement.hereditary:
            if not space.additive:
                continue
            lost = requirement.shortfall()
        parts.append(exp.If(this=exp.Paren(this=requirement.condition()), true=number(0), false=lost))
    if space.unknown:
        parts.append(exp.If(this=col(KNOWN), true=number(0), false=col(CLASS_SIZE)))
    if not parts:
        return number(0.0)
    somebody = exp.GT(this=col(CLASS_SIZE), expression=number(0))  # not a class that only a population has
    return exp.If(this=somebody, true=greatest(number(0.0), *parts), false=number(0.0))
