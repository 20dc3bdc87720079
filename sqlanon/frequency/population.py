"""How large the population is that a source is a sample of, as the policy tells it."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import SourceError
from sqlanon.frequency.statements import PERSON, count_persons
from sqlanon.policy import Policy
from sqlanon.requirements import list_requirements
from sqlanon.support.expressions import col, named, select, subquery


def population_size(policy: Policy, counted: int) -> float | None:
    """The rows, or persons, of the population; None where the policy does not tell.

    By its ``[risk]``, else by its limit on population uniqueness.

    >>> attributes = {"zip": {"role": "quasi", "hierarchy": "suppress"}}
    >>> population_size(Policy(attributes=attributes, privacy={"k": 2}, risk={"sampling_fraction": 0.5}), 10)
    20.0
    """
    place, size, fraction = _population_setting(policy)
    if size is not None and size < counted:
        raise SourceError(
            f"{place}.population: is {size}, and the source alone has {counted}: say how many the whole population has"
        )
    return size if fraction is None else counted / fraction


def sampling_fraction(policy: Policy, count: Callable[[], int]) -> float | None:
    """The source's share of the population; None where the policy does not tell."""
    _, size, fraction = _population_setting(policy)
    if size is None:
        return fraction
    counted = count()
    population_size(policy, counted)
    return counted / size


def count_people(steps: StatementRunner, source: exp.Table, person: str | None) -> int:
    """The rows of a source; where a column tells persons apart, its persons: all rows without one are one."""
    if person is None:
        return steps.count(source)
    persons = select([named(col(person), PERSON)], source.copy())
    return int(steps.ask(count_persons(subquery(persons, "p")), [(0,)])[0][0])


def _population_setting(policy: Policy) -> tuple[str, int | None, float | None]:
    """The section that says so, and the size of the population, or the sampling fraction, or neither."""
    found = [("risk", policy.risk.population, policy.risk.sampling_fraction)] if policy.risk else []
    found += [(f"privacy.{one.entry.key}", *one.sampling) for one in list_requirements(policy.privacy)]
    said = (one for one in found if one[1:] != (None, None))
    return next(said, ("risk", None, None))
