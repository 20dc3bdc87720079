"""The columns of a source that get noise, and the checks that noise can be added to their values."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

from sqlanon.engines.base import Engine
from sqlanon.errors import SourceError
from sqlanon.noise.statements import NoisyColumn, can_be_noisy, unit_of, unusable_counts
from sqlanon.policy import Policy
from sqlanon.sources import Source
from sqlanon.sources.columns import match_columns

EPOCH = date(1970, 1, 1)


def noisy_columns(policy: Policy, source: Source) -> tuple[NoisyColumn, ...]:
    """The columns that get noise, in the policy's order."""
    if not policy.noisy_attributes:
        return ()
    matched_columns = match_columns(policy, source)
    positions = {column.name: position for position, column in enumerate(matched_columns.released)}
    epsilons, columns, problems = policy.epsilons, [], []
    for attribute, name in zip(policy.noisy_attributes, matched_columns.noisy, strict=True):
        noise, type_ = policy.attributes[attribute].noise, source.columns[name]
        assert noise is not None
        if not can_be_noisy(type_):
            problems.append(
                f"attribute {attribute!r} is {type_}, but noise needs numbers or dates: cast it with query = ..."
            )
            continue
        if noise.bounds is not None and isinstance(noise.bounds[0], date) != (type_ == "DATE"):
            kind = "dates" if type_ == "DATE" else "numbers"
            problems.append(f"attribute {attribute!r} is {type_}: give its bounds as {kind}")
        unit = unit_of(type_)
        for key, value in (("round", noise.round), *(("bounds", bound) for bound in noise.bounds or ())):
            if isinstance(value, Decimal) and unit is not None and value % unit:
                problems.append(f"attribute {attribute!r} is {type_}: {key}, {value}, must be a multiple of {unit}")
        bounds = None if noise.bounds is None else (_to_number(noise.bounds[0]), _to_number(noise.bounds[1]))
        columns.append(NoisyColumn(name, type_, positions[name], epsilons[attribute], noise.round, bounds))
    if problems:
        raise SourceError("; ".join(dict.fromkeys(problems)))
    return tuple(columns)


def _to_number(bound: Decimal | date) -> float:
    return float((bound - EPOCH).days if isinstance(bound, date) else bound)


def require_usable_noisy_columns(engine: Engine, policy: Policy, source: Source) -> tuple[NoisyColumn, ...]:
    """`noisy_columns`; refuse values that cannot have noise, unless the policy suppresses their rows."""
    columns = noisy_columns(policy, source)
    if columns:
        counts = engine.rows(unusable_counts(source.relation, columns))[0]
        problems = [
            f"attribute {name!r} has {count:,} rows whose value cannot have noise (NULL, NaN, infinite, or "
            "too large for its type): a reader could distinguish them within their class; set "
            'on_unknown = "suppress", or leave them out with query = ...'
            for name, count in zip(policy.noisy_attributes, counts, strict=True)
            if count and policy.attributes[name].on_unknown == "error"
        ]
        if problems:
            raise SourceError("; ".join(problems))
    return columns
