"""The individual risk of a row of a sample: the expected 1 / F, F the unknown size of its class in the population.

Source: R. Benedetti, L. Franconi, "Statistical and technological solutions for controlled data dissemination" (1998);
L. Franconi, S. Polettini, "Individual risk estimation in μ-Argus: a review" (2004); the approximation of large classes
as in sdcMicro (M. Templ, A. Kowarik, B. Meindl, Journal of Statistical Software 67:4, 2015).

With f the rows of the class in the sample, F̂ the sum of their weights, p = f / F̂, the risk is

- p / (1 − p) × ln(1/p) for f = 1,
- p / (1 − p) − (p / (1 − p))² ln(1/p) for f = 2,
- p / (f − (1 − p)) for f ≥ 3,
- 1/f where the sample is all of the class: f = F̂ (and where weights add up to less than f, which no sample has).

Classes have ``class_size`` (rows), ``class_count`` (rows or persons), ``class_weight`` (the sum of the weights) and the
quasi-identifiers as ``quasi_0``, ...
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import SourceError
from sqlanon.frequency.population import count_people, sampling_fraction
from sqlanon.policy import Policy, RiskSection
from sqlanon.sources.columns import Columns, match_columns
from sqlanon.sources.run import Run
from sqlanon.support.coding import quasi_column
from sqlanon.support.expressions import all_of, as_column, col, fragment, null_safe_equal, subquery, template

NEAR = 1e-3
"""Missing share of a class in the sample below which the formulas are series."""

_INVALID_WEIGHTS = template("""
    SELECT count(*) FILTER (WHERE NOT coalesce((:weight > 0 AND isfinite(:weight)), FALSE))
    FROM :source
""")

_TOTAL_WEIGHT = fragment("sum(:weight)::DOUBLE")

# Risks are added up as decimals: the sum does not depend on the order of rows.
_INDIVIDUAL_FIGURES = template("""
    SELECT
        coalesce(max(risk), 0) AS highest,
        coalesce(sum(CAST(class_count::DOUBLE * risk AS DECIMAL(38, 15)))::DOUBLE, 0::DOUBLE) AS expected,
        coalesce(sum(class_count)::BIGINT, 0) AS count,
        coalesce(sum(class_weight)::DOUBLE, 0) AS population,
        :above
    FROM :classes AS c
""")

_PERSON_MEMBERS = template("""
    SELECT household, person, max(risk) AS risk
    FROM :members AS m
    GROUP BY household, person
""")
_HOUSEHOLD_FIGURES = template("""
    SELECT
        coalesce(sum(known)::BIGINT, 0) AS households,
        coalesce(max(risk), 0) AS highest,
        coalesce(sum(CAST(row_count::DOUBLE * risk AS DECIMAL(38, 15)))::DOUBLE, 0::DOUBLE) AS expected,
        coalesce(sum(row_count)::BIGINT, 0) AS count
    FROM (
        SELECT count(*) AS row_count, 1.0 - product((1.0 - risk)) AS risk, 1 AS known
        FROM :people AS m
        WHERE NOT household IS NULL
        GROUP BY household
        UNION ALL
        SELECT 1 AS row_count, risk, 0 AS known
        FROM :people AS m
        WHERE household IS NULL
    ) AS h
""")

_HOUSEHOLD_RISKS = template("""
    SELECT household, 1.0 - product((1.0 - risk)) AS risk
    FROM :members AS m
    GROUP BY household
""")


def _parse_weight(column: str) -> exp.Expr:
    """A weight as a number; NULL if it is not one."""
    return exp.TryCast(this=col(column), to=exp.DataType.build("DOUBLE"))


def _quasi_columns(columns: Columns) -> list[str]:
    return [*columns.generalized, *columns.noisy]


def _weighed_classes(source: exp.Table, columns: Columns, share: float | None) -> exp.Select:
    """The query for the classes with their weights, and the ``risk`` of each of their rows.

    A person counts in a class with its greatest weight there.
    """
    weights, quasi = columns.weights, _quasi_columns(columns)
    grouping = {
        "keys": [as_column(col(name), quasi_column(i)) for i, name in enumerate(quasi)],
        "columns": [col(name) for name in quasi],
        "source": source,
    }
    expected = fragment("count(*)::DOUBLE / :share::DOUBLE")(share=1.0 if share is None else share)
    if columns.person is None:
        weight = expected if weights is None else _TOTAL_WEIGHT(weight=_parse_weight(weights))
        classes = template("""
            SELECT :keys, count(*) AS class_size, count(*) AS class_count, :weight AS class_weight
            FROM :source
            GROUP BY :columns
        """)(**grouping, weight=weight)
    else:
        classes = template("""
            SELECT :labels, sum(row_count)::BIGINT AS class_size, count(*) AS class_count, :total AS class_weight
            FROM (
                SELECT :keys, count(*) AS row_count, max(:weight) AS weight
                FROM :source
                GROUP BY :columns, :person
            ) AS m
            GROUP BY :labels
        """)(
            **grouping,
            labels=[col(quasi_column(i)) for i in range(len(quasi))],
            total=expected if weights is None else _TOTAL_WEIGHT(weight=col("weight")),
            weight=fragment("1::DOUBLE")() if weights is None else _parse_weight(weights),
            person=col(columns.person),
        )
    # Near 1, the difference of two large numbers would lose digits: a series replaces it.
    return template("""
        SELECT
            *,
            CASE
                WHEN share >= 1 THEN 1.0 / class_count::DOUBLE
                WHEN class_count > 2 THEN share / (class_count::DOUBLE - (1 - share))
                WHEN (1 - share) < :near AND class_count = 1 THEN
                    share * (1::DOUBLE + ((1 - share) * (1::DOUBLE / 2 + ((1 - share) * (1::DOUBLE / 3
                        + ((1 - share) * (1::DOUBLE / 4 + ((1 - share) / 5))))))))
                WHEN (1 - share) < :near THEN
                    share * (1::DOUBLE / 2 + ((1 - share) * (1::DOUBLE / 6 + ((1 - share) * (1::DOUBLE / 12
                        + ((1 - share) * (1::DOUBLE / 20 + ((1 - share) / 30))))))))
                WHEN class_count = 1 THEN (share / (1 - share)) * (-ln(share))
                ELSE (share / (1 - share)) - (((share / (1 - share)) * (share / (1 - share))) * (-ln(share)))
            END AS risk
        FROM (
            SELECT *, class_count::DOUBLE / class_weight AS share
            FROM :classes AS c
        ) AS c
    """)(classes=classes, near=NEAR)


def _household_members(source: exp.Table, columns: Columns, classes: exp.Expr) -> exp.Select:
    """The query for each row, or each person, of each household with its (greatest) ``risk``."""
    query = template("""
        SELECT :household AS household, c.risk, :person
        FROM :source AS r
        JOIN :classes AS c ON :same
    """)(
        household=col(columns.household or "", "r"),
        person=[] if columns.person is None else [as_column(col(columns.person, "r"), "person")],
        source=source,
        classes=classes,
        same=_same_class(columns),
    )
    return query if columns.person is None else _PERSON_MEMBERS(members=query)


def _same_class(columns: Columns) -> exp.Expr:
    return all_of(
        null_safe_equal(col(name, "r"), col(quasi_column(i), "c")) for i, name in enumerate(_quasi_columns(columns))
    )


@dataclass(frozen=True)
class IndividualRisk:
    """The individual risk by the weights of the source.

    Attributes
    ----------
    highest, average:
        The greatest risk of a row, and the mean. (Of persons, where these are counted.)
    expected:
        The sum: the expected number of re-identifications of an attacker who tries all rows.
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

    Source: the hierarchical risk in sdcMicro. Re-identifying one member reveals the others.

    Attributes
    ----------
    households:
        The households in the source; a row without one forms its own.
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
    p, missing = share, 1 - share
    if missing <= 0:
        return 1 / size
    if size > 2:
        return p / (size - missing)
    if missing < NEAR:  # the difference of two large numbers would lose digits
        if size == 1:
            return p * (1 + missing / 2 + missing**2 / 3 + missing**3 / 4 + missing**4 / 5)
        return p * (1 / 2 + missing / 6 + missing**2 / 12 + missing**3 / 20 + missing**4 / 30)
    odds, log = p / missing, -math.log(p)
    return odds * log if size == 1 else odds - odds**2 * log


def format_threshold(threshold: float) -> str:
    """Format a threshold as a policy spells it.

    >>> format_threshold(0.2), format_threshold(0.0)
    ('0.2', '0')
    """
    return str(int(threshold)) if threshold == int(threshold) else repr(threshold)


def row_risks(run: Run, policy: Policy) -> exp.Select:
    """The query for the rows of the source with ``class_size`` (rows) and ``prosecutor``; with weights or a sampling
    fraction ``individual``; with households ``household_risk``.

    If the policy has the size of the population, this counts the rows of the source.
    """
    columns, source = match_columns(policy, run.source), run.source.relation
    share = None
    if columns.weights is None:
        share = sampling_fraction(policy, lambda: count_people(StatementRunner(run.engine), source, columns.person))
    classes = _weighed_classes(source, columns, share)
    more: list[exp.Expr] = []
    if columns.weights is not None or share is not None:
        more.append(as_column(col("risk", "c"), "individual"))
    if columns.household is not None:
        more.append(as_column(fragment("coalesce(h.risk, c.risk)")(), "household_risk"))
    query = template("""
        SELECT r.*, c.class_size, 1::DOUBLE / c.class_count AS prosecutor, :more
        FROM :source AS r
        JOIN :classes AS c ON :same
    """)(more=more, source=source, classes=classes, same=_same_class(columns))
    if columns.household is None:
        return query
    households = subquery(_HOUSEHOLD_RISKS(members=_household_members(source, columns, classes)), "h")
    on = col(columns.household, "r").eq(col("household", "h"))  # NULL is not a household
    return query.join(households, on=on, join_type="left", copy=False)


def measure_individual_risk(
    run: Run, runner: StatementRunner, columns: Columns, section: RiskSection, share: float | None
) -> Mapping[str, Any]:
    """The figures of `Risk` that depend on the columns of weights and households, by name."""
    source, weights = run.source.relation, columns.weights
    if weights is not None:
        ((invalid,),) = runner.fetch_rows(_INVALID_WEIGHTS(weight=_parse_weight(weights), source=source), [(0,)])
        if invalid:
            raise SourceError(
                f"risk.weights: {invalid} rows have no weight above 0 in {weights!r}: set the number of members of the "
                "population that each row stands for"
            )
    elif columns.household is None:
        return {}
    query = _weighed_classes(source, columns, share)
    if columns.household is None:
        return _measure_rows(runner, query, section)
    classes = runner.create_table(run.work("weighed_classes"), query)
    figures_of_rows = _measure_rows(runner, classes, section) if weights is not None else {}
    figures = runner.fetch_figures(_HOUSEHOLD_FIGURES(people=_household_members(source, columns, classes)))
    household = HouseholdRisk(
        households=figures["households"],
        highest=figures["highest"],
        average=figures["expected"] / figures["count"] if figures["count"] else 0.0,
        expected=figures["expected"],
    )
    return {**figures_of_rows, "household": household}


def _measure_rows(runner: StatementRunner, classes: exp.Expr, section: RiskSection) -> Mapping[str, Any]:
    above = [
        as_column(
            fragment("coalesce(sum(class_size) FILTER (WHERE risk > :threshold::DOUBLE)::BIGINT, 0)")(
                threshold=threshold
            ),
            f"above_{i}",
        )
        for i, threshold in enumerate(section.threshold)
    ]
    figures = runner.fetch_figures(_INDIVIDUAL_FIGURES(above=above, classes=classes))
    individual = IndividualRisk(
        highest=figures["highest"],
        average=figures["expected"] / figures["count"] if figures["count"] else 0.0,
        expected=figures["expected"],
        rows_above={format_threshold(t): figures[f"above_{i}"] for i, t in enumerate(section.threshold)},
        population=figures["population"],
    )
    return {"individual": individual, "expected_reidentifications": individual.expected}
