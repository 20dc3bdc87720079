"""The risk of each row, as one query over the source."""

from __future__ import annotations

from sqlglot import exp

from sqlanon.frequency.population import people, sampling_fraction
from sqlanon.policy import Policy
from sqlanon.risk import individual_statements as iv
from sqlanon.sources.columns import match_columns
from sqlanon.sources.run import Run
from sqlanon.statement_runner import Steps


def row_risks(run: Run, policy: Policy) -> exp.Select:
    """The rows of the source with their risks; none is read here. (But they are counted, where the policy tells the
    size of the population, and the share of it is what counts.)

    Raises
    ------
    SourceError
        The source does not fit the policy, or has more than the population.
    """
    columns, source = match_columns(policy, run.source), run.source.relation
    share = None
    if columns.weights is None:
        share = sampling_fraction(policy, lambda: people(Steps(run.engine), source, columns.person))
    return iv.row_risks(
        source,
        (*columns.generalized, *columns.noisy),
        columns.weights,
        columns.household,
        columns.person,
        share,
    )
