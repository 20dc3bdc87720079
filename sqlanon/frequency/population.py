"""The size of the population that the source is a sample of, as specified in the policy."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import SourceError
from sqlanon.frequency.statements import PERSON, count_persons
from sqlanon.policy import Policy
from sqlanon.requirements import list_requirements
from sqlanon.support.expressions import as_column, col, select, subquery


def population_size(policy: Policy, source_count: int) -> float | None:
    """The rows or persons of the population; None if the policy does not specify it.

    From its ``[risk]`` section, or else from its limit on population uniqueness.

    >>> attributes = {"zip": {"role": "quasi", "hierarchy": "suppress"}}
    >>> population_size(Policy(attributes=attributes, privacy={"k": 2}, risk={"sampling_fraction": 0.5}), 10)
    20.0
    """
    place, size, fraction = _population_setting(policy)
    if size is not None and size < source_count:
        raise SourceError(
            f"{place}.population: is {size}, but the source alone has {source_count}: give the size of the whole "
            "population"
        )
    return size if fraction is None else source_count / fraction


def sampling_fraction(policy: Policy, count: Callable[[], int]) -> float | None:
    """The source's share of the population; None if the policy does not specify it."""
    _, size, fraction = _population_setting(policy)
    if size is None:
        return fraction
    source_count = count()
    population_size(policy, source_count)
    return source_count / size


def count_people(runner: StatementRunner, source: exp.Table, person: str | None) -> int:
    """Count the persons of a source, or its rows without a person column; rows without an id are one person."""
    if person is None:
        return runner.count(source)
    persons = select([as_column(col(person), PERSON)], source.copy())
    return int(runner.fetch_rows(count_persons(subquery(persons, "p")), [(0,)])[0][0])


def _population_setting(policy: Policy) -> tuple[str, int | None, float | None]:
    """The policy section, and the population size or the sampling fraction that it specifies, if any."""
    settings = [("risk", policy.risk.population, policy.risk.sampling_fraction)] if policy.risk else []
    for requirement in list_requirements(policy.privacy):
        settings.append((f"privacy.{requirement.entry.key}", *requirement.sampling))
    specified = (setting for setting in settings if setting[1:] != (None, None))
    return next(specified, ("risk", None, None))
