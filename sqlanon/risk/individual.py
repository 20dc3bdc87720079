"""The individual risk of a row of a sample: the expected 1 / F, F the unknown size of its class in the population.

Source: R. Benedetti, L. Franconi, "Statistical and technological solutions for controlled data dissemination" (1998);
L. Franconi, S. Polettini, "Individual risk estimation in μ-Argus: a review" (2004); the approximation of large classes
as in sdcMicro (M. Templ, A. Kowarik, B. Meindl, Journal of Statistical Software 67:4, 2015).

With f the rows of the class in the sample, F̂ the sum of their weights, p = f / F̂, the risk is

- p / (1 − p) × ln(1/p) for f = 1,
- p / (1 − p) − (p / (1 − p))² ln(1/p) for f = 2,
- p / (f − (1 − p)) for f ≥ 3,
- 1/f where the sample is all of the class: f = F̂ (and where weights add up to less than f, which no sample has).

The individual and the household risk of rows, from classes with their size and the sum of their weights.

The formulas are in `sqlanon.risk.individual`. Classes have ``class_size`` (rows), ``class_count`` (rows or persons),
``class_weight`` (the sum of the weights) and the quasi-identifiers as ``q0, q1, ...``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.coding import ROWS
from sqlanon.expressions import (
    aliased,
    all_columns,
    all_of,
    anonymous,
    cast,
    col,
    double_total,
    is_null,
    is_there,
    named,
    number,
    or_zero,
    same,
    select,
    subquery,
    total,
    union_all,
    where,
)
from sqlanon.frequency.statements import PERSON
from sqlanon.requirements.base import CLASS_COUNT, CLASS_SIZE

CLASS_WEIGHT = "class_weight"
RISK = "risk"
HOUSEHOLD = "household"
NEAR = 1e-3
"""Where so little of a class is missing in the sample, the formulas are series."""


def weight_of(column: str, table: str | None = None) -> exp.Expr:
    """A weight as a number; NULL where it is none."""
    return exp.TryCast(this=col(column, table), to=exp.DataType.build("DOUBLE"))


def bad_weights(source: exp.Table, column: str) -> exp.Select:
    """One number: the rows without a weight that is a finite number above 0."""
    above = weight_of(column) > 0
    finite = anonymous("isfinite", weight_of(column))
    good = exp.Coalesce(this=exp.Paren(this=all_of([above, finite])), expressions=[exp.false()])
    return select([where(exp.Count(this=exp.Star()), ~good)], source.copy())


def weighed_classes(
    source: exp.Table, quasi: Sequence[str], weights: str | None, person: str | None, share: float | None = None
) -> exp.Select:
    """The classes with their weights; of a person, the greatest weight in a class counts."""
    keys: list[exp.Expr] = [named(col(name), f"q{i}") for i, name in enumerate(quasi)]
    group: list[exp.Expr] = [col(name) for name in quasi]
    weight: exp.Expr = weight_of(weights) if weights is not None else cast(number(1), "DOUBLE")
    rows: exp.Expr = source.copy()
    counts: exp.Expr = exp.Count(this=exp.Star())
    if person is not None:
        members: list[exp.Expr] = [*keys, named(exp.Count(this=exp.Star()), ROWS)]
        members.append(named(exp.Max(this=weight), "weight"))
        each = select(members, rows, [*group, col(person)])
        group = [col(f"q{i}") for i in range(len(quasi))]
        keys, weight, counts, rows = [key.copy() for key in group], col("weight"), total(col(ROWS)), subquery(each, "m")
    people: exp.Expr = exp.Count(this=exp.Star())
    weighed: exp.Expr = double_total(weight)
    if weights is None:
        each_one = cast(number(1.0 if share is None else share), "DOUBLE")
        weighed = cast(exp.Count(this=exp.Star()), "DOUBLE") / each_one
    output = [*keys, named(counts, CLASS_SIZE), named(people, CLASS_COUNT), named(weighed, CLASS_WEIGHT)]
    return select(output, rows, group)


def with_risk(classes: exp.Query) -> exp.Select:
    """Classes with the ``risk`` of each of their rows."""
    size = cast(col(CLASS_COUNT), "DOUBLE")
    share = size / col(CLASS_WEIGHT)
    shared = select([exp.Star(), named(share, "share")], subquery(classes, "c"))
    return select([exp.Star(), named(_risk(), RISK)], subquery(shared, "c"))


def _risk() -> exp.Expr:
    size, p = cast(col(CLASS_COUNT), "DOUBLE"), col("share")
    rest = exp.Paren(this=number(1) - p)
    odds = exp.Paren(this=p / rest)
    log = exp.Paren(this=exp.Neg(this=anonymous("ln", p.copy())))

    def is_size(n: int) -> exp.Expr:
        return col(CLASS_COUNT).eq(number(n))

    def series(*parts: float) -> exp.Expr:
        added: exp.Expr = number(0.0)
        for part in reversed(parts):  # Horner's way
            added = cast(number(part), "DOUBLE") + (rest * exp.Paren(this=added))
        return p * exp.Paren(this=added)

    near = rest < number(NEAR)
    square = (odds * odds) * log
    return exp.Case(
        ifs=[
            exp.If(this=p >= 1, true=number(1.0) / size),
            exp.If(
                this=col(CLASS_COUNT) > 2,
                true=p / exp.Paren(this=size - rest),
            ),
            exp.If(this=all_of([near, is_size(1)]), true=series(1, 1 / 2, 1 / 3, 1 / 4, 1 / 5)),
            exp.If(this=near.copy(), true=series(1 / 2, 1 / 6, 1 / 12, 1 / 20, 1 / 30)),
            exp.If(this=is_size(1), true=odds * log),
        ],
        default=odds - square,
    )


def exact_total(value: exp.Expr) -> exp.Expr:
    """A sum of risks that does not depend on their order; 0 of none."""
    added = cast(exp.Sum(this=cast(value, "DECIMAL(38, 15)")), "DOUBLE")
    return exp.Coalesce(this=added, expressions=[cast(number(0), "DOUBLE")])


def individual_figures(classes: exp.Expr, thresholds: Sequence[float]) -> exp.Select:
    """One row: ``highest``, ``expected``, ``count``, ``population``, and ``above_i``, the rows above threshold i."""
    people = cast(col(CLASS_COUNT), "DOUBLE")
    output: list[exp.Expr] = [
        named(or_zero(exp.Max(this=col(RISK))), "highest"),
        named(exact_total(people * col(RISK)), "expected"),
        named(or_zero(total(col(CLASS_COUNT))), "count"),
        named(or_zero(double_total(col(CLASS_WEIGHT))), "population"),
    ]
    for i, threshold in enumerate(thresholds):
        above = col(RISK) > cast(number(threshold), "DOUBLE")
        output.append(named(or_zero(total(col(CLASS_SIZE), above)), f"above_{i}"))
    return select(output, classes)


def members(
    source: exp.Table, classes: exp.Table | exp.Subquery, quasi: Sequence[str], household: str, person: str | None
) -> exp.Select:
    """Who is in which household, at what ``risk``: each row, or each person in each household (at the greatest)."""
    on = all_of(same(col(name, "r"), col(f"q{i}", "c")) for i, name in enumerate(quasi))
    output: list[exp.Expr] = [named(col(household, "r"), HOUSEHOLD), col(RISK, "c")]
    output += [named(col(person, "r"), PERSON)] if person is not None else []
    query = select(output, aliased(source, "r")).join(aliased(classes, "c"), on=on, copy=False)
    if person is None:
        return query
    keys: list[exp.Expr] = [col(HOUSEHOLD), col(PERSON)]
    greatest = named(exp.Max(this=col(RISK)), RISK)
    return select([*keys, greatest], subquery(query, "m"), [key.copy() for key in keys])


def household_figures(people: exp.Query) -> exp.Select:
    """One row: ``households``, ``highest``, ``expected``, ``count``: by the risks of whole households."""
    safe = exp.Paren(this=number(1.0) - col(RISK))
    joint = number(1.0) - anonymous("product", safe)
    of_one = exp.Count(this=exp.Star())
    together = select([named(of_one, ROWS), named(joint, RISK), named(number(1), "known")], subquery(people, "m"))
    together = together.where(is_there(col(HOUSEHOLD)), copy=False).group_by(col(HOUSEHOLD), copy=False)
    alone = select([named(number(1), ROWS), col(RISK), named(number(0), "known")], subquery(people.copy(), "m"))
    alone = alone.where(is_null(col(HOUSEHOLD)), copy=False)
    output: list[exp.Expr] = [
        named(or_zero(total(col("known"))), "households"),
        named(or_zero(exp.Max(this=col(RISK))), "highest"),
        named(exact_total(cast(col(ROWS), "DOUBLE") * col(RISK)), "expected"),
        named(or_zero(total(col(ROWS))), "count"),
    ]
    return select(output, subquery(union_all(together, alone), "h"))


def row_risks(
    source: exp.Table,
    quasi: Sequence[str],
    weights: str | None,
    household: str | None,
    person: str | None,
    share: float | None,
) -> exp.Select:
    """The rows of the source with ``class_size`` (rows), ``prosecutor``, and where there are weights or a sampling
    fraction ``individual``; with households ``household_risk``. Parameters as of `weighed_classes`.
    """
    classes = subquery(with_risk(weighed_classes(source, quasi, weights, person, share)), "c")
    on = all_of(same(col(name, "r"), col(f"q{i}", "c")) for i, name in enumerate(quasi))
    prosecutor = cast(number(1), "DOUBLE") / col(CLASS_COUNT, "c")
    output: list[exp.Expr] = [all_columns("r"), col(CLASS_SIZE, "c"), named(prosecutor, "prosecutor")]
    if weights is not None or share is not None:
        output.append(named(col(RISK, "c"), "individual"))
    query = exp.Select().from_(aliased(source, "r"), copy=False).join(classes, on=on, copy=False)
    if household is not None:
        people = members(source, classes.copy(), quasi, household, person)
        safe = exp.Paren(this=number(1.0) - col(RISK))
        joint = named(number(1.0) - anonymous("product", safe), RISK)
        homes = select([col(HOUSEHOLD), joint], subquery(people, "m"), [col(HOUSEHOLD)])
        home = col(household, "r").eq(col(HOUSEHOLD, "h"))  # NULL is nobody's
        query = query.join(subquery(homes, "h"), on=home, join_type="left", copy=False)
        either = exp.Coalesce(this=col(RISK, "h"), expressions=[col(RISK, "c")])
        output.append(named(either, "household_risk"))
    return query.select(*output, copy=False)


@dataclass(frozen=True)
class IndividualRisk:
    """The individual risk by the weights of the source.

    Attributes
    ----------
    highest, average:
        The greatest risk of a row, and the mean. (Of persons, where these are counted.)
    expected:
        The sum: how many re-identifications an attacker who tries all is expected to make.
    rows_above:
        By threshold, as text: the rows with a greater risk.
    population:
        The sum of the weights.
    """

    highest: float
    average: float
    expected: float
    rows_above: Mapping[str, int]
    population: float


@dataclass(frozen=True)
class HouseholdRisk:
    """The risk that somebody of a row's household is re-identified: 1 − Π (1 − r) over the household's rows.

    Source: as in sdcMicro (the hierarchical risk). Who finds one member knows the others.

    Attributes
    ----------
    households:
        Those that the source has; a row without one is by itself.
    highest, average:
        The greatest risk of a row by its household, and the mean over rows. (Of persons, where these are counted.)
    expected:
        The sum over rows.
    """

    households: int
    highest: float
    average: float
    expected: float


def individual_risk(size: int, share: float) -> float:
    """The risk of a row.

    >>> [round(individual_risk(f, f / F), 8) for f, F in [(1, 17), (2, 110), (2, 84.5), (1, 5)]]  # sdcMicro's francdat
    [0.17707583, 0.01714426, 0.02204233, 0.40235948]
    >>> individual_risk(4, 1.0)
    0.25
    """
    p, rest = share, 1 - share
    if rest <= 0:
        return 1 / size
    if size > 2:
        return p / (size - rest)
    if rest < NEAR:  # two large numbers would leave few digits of their difference: as a series
        if size == 1:
            return p * (1 + rest / 2 + rest**2 / 3 + rest**3 / 4 + rest**4 / 5)
        return p * (1 / 2 + rest / 6 + rest**2 / 12 + rest**3 / 20 + rest**4 / 30)
    odds, log = p / rest, -math.log(p)
    return odds * log if size == 1 else odds - odds**2 * log
