"""The risk of each row, as one query over the source."""

from __future__ import annotations

from sqlglot import exp

from sqlanon.columns import match_columns
from sqlanon.policy import Policy, RiskSection
from sqlanon.queries import individual as iv
from sqlanon.workspace import Run


def row_risks(run: Run, policy: Policy) -> exp.Select:
    """The rows of the source with their risks; none is read here.

    Raises
    ------
    SourceError
        The source does not fit the policy.
    """
    columns, asked = match_columns(policy, run.source), policy.risk or RiskSection()
    return iv.row_risks(
        run.source.relation,
        (*columns.generalized, *columns.noisy),
        columns.weights,
        columns.household,
        columns.person,
        asked.sampling_fraction if columns.weights is None else None,
    )
