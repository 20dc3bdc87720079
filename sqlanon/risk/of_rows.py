"""The individual risk by weights, and that of households, where rows of one class differ; and of each row, as one
query.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlglot import exp

from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import SourceError
from sqlanon.expressions import subquery
from sqlanon.frequency.population import people, sampling_fraction
from sqlanon.policy import Policy, RiskSection
from sqlanon.risk import individual as iv
from sqlanon.risk.individual import HouseholdRisk, IndividualRisk
from sqlanon.risk.prosecutor import threshold_text
from sqlanon.sources.columns import Columns, match_columns
from sqlanon.sources.run import Run


def row_risks(run: Run, policy: Policy) -> exp.Select:
    """The rows of the source with their risks; none is read here. (But they are counted, where the policy tells the
    size of the population, and the share of it is what counts.)
    """
    columns, source = match_columns(policy, run.source), run.source.relation
    share = None
    if columns.weights is None:
        share = sampling_fraction(policy, lambda: people(StatementRunner(run.engine), source, columns.person))
    return iv.row_risks(
        source,
        (*columns.generalized, *columns.noisy),
        columns.weights,
        columns.household,
        columns.person,
        share,
    )


def risk_of_rows(
    run: Run, steps: StatementRunner, columns: Columns, asked: RiskSection, share: float | None
) -> Mapping[str, Any]:
    """The figures of `found.Risk` that follow from the policy's columns of weights and households, by name."""
    source, weights, home = run.source.relation, columns.weights, columns.household
    if weights is not None:
        ((bad,),) = steps.ask(iv.bad_weights(source, weights), [(0,)])
        if bad:
            raise SourceError(
                f"risk.weights: {bad} rows have no weight above 0 in {weights!r}: say for how many of the population "
                "each row stands"
            )
    elif home is None:
        return {}
    quasi = (*columns.generalized, *columns.noisy)
    query = iv.with_risk(iv.weighed_classes(source, quasi, weights, columns.person, share))
    if home is None:
        return _individual(steps, subquery(query, "c"), asked)
    classes = steps.make(run.work("weighed_classes"), query)
    found = _individual(steps, classes, asked) if weights is not None else {}
    figures = steps.figures(iv.household_figures(iv.members(source, classes, quasi, home, columns.person)))
    household = HouseholdRisk(
        households=figures["households"],
        highest=figures["highest"],
        average=figures["expected"] / figures["count"] if figures["count"] else 0.0,
        expected=figures["expected"],
    )
    return {**found, "household": household}


def _individual(steps: StatementRunner, classes: exp.Expr, asked: RiskSection) -> Mapping[str, Any]:
    figures = steps.figures(iv.individual_figures(classes, asked.threshold))
    individual = IndividualRisk(
        highest=figures["highest"],
        average=figures["expected"] / figures["count"] if figures["count"] else 0.0,
        expected=figures["expected"],
        rows_above={threshold_text(t): figures[f"above_{i}"] for i, t in enumerate(asked.threshold)},
        population=figures["population"],
    )
    return {"individual": individual, "expected_reidentifications": individual.expected}
