"""The population as the figures of risk read it."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.frequency.scan import refuse_lost_values
from sqlanon.frequency.statements import raw_frequency
from sqlanon.policy import Policy
from sqlanon.sources.columns import population_columns
from sqlanon.sources.run import Run


def scanned_population(steps: StatementRunner, run: Run, policy: Policy, types: Sequence[str]) -> exp.Table | None:
    """The population by combination and person, scanned by the engine that reads it; None without one. Its values can
    be cast to the types of the source's quasi-identifiers. Makes ``population_raw``."""
    population = run.population
    if population is None:
        return None
    names, person = population_columns(policy, population.source)
    query = raw_frequency(population.source.relation, names, (), person)
    raw = steps.make(run.work("population_raw"), query, population.engine)
    refuse_lost_values(steps.on(population.engine), raw, names, population.source.columns, types)
    return raw
