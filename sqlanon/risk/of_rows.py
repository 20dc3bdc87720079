"""The individual risk by weights, and that of households: where rows of one class differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlglot import exp

from sqlanon.errors import SourceError
from sqlanon.expressions import subquery
from sqlanon.policy import RiskSection
from sqlanon.risk import individual_statements as iv
from sqlanon.risk.individual import HouseholdRisk, IndividualRisk
from sqlanon.risk.prosecutor import threshold_text
from sqlanon.sources.columns import Columns
from sqlanon.sources.run import Run
from sqlanon.statement_runner import Steps


def risk_of_rows(
    run: Run, steps: Steps, columns: Columns, asked: RiskSection, share: float | None
) -> Mapping[str, Any]:
    """The figures of `found.Risk` that follow from the policy's columns of weights and households, by name.

    Parameters
    ----------
    share:
        The sampling fraction, if it is known.

    Raises
    ------
    SourceError
        A row has no weight.
    """
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


def _individual(steps: Steps, classes: exp.Expr, asked: RiskSection) -> Mapping[str, Any]:
    figures = steps.figures(iv.individual_figures(classes, asked.threshold))
    individual = IndividualRisk(
        highest=figures["highest"],
        average=figures["expected"] / figures["count"] if figures["count"] else 0.0,
        expected=figures["expected"],
        rows_above={threshold_text(t): figures[f"above_{i}"] for i, t in enumerate(asked.threshold)},
        population=figures["population"],
    )
    return {"individual": individual, "expected_reidentifications": individual.expected}
