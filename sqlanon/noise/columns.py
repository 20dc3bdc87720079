"""Which columns of a source get noise, and whether they can."""

from __future__ import annotations

from collections.abc import Mapping
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
    columns = match_columns(policy, source)
    places = {column.name: place for place, column in enumerate(columns.released)}
    epsilons, found, wrong = policy.epsilons, [], []
    for name, column in zip(policy.noisy_attributes, columns.noisy, strict=True):
        noise, type_ = policy.attributes[name].noise, source.columns[column]
        assert noise is not None
        if not can_be_noisy(type_):
            wrong.append(f"attribute {name!r} is {type_}, but noise needs numbers or dates: cast it with query = ...")
            continue
        one = NoisyColumn(column, type_, places[column], epsilons[name], noise.round, _bounds(noise.bounds))
        if noise.bounds is not None and isinstance(noise.bounds[0], date) != (type_ == "DATE"):
            kind = "dates" if type_ == "DATE" else "numbers"
            wrong.append(f"attribute {name!r} is {type_}: give its bounds as {kind}")
        unit = unit_of(type_)
        for what, value in (("round", noise.round), *(("bounds", bound) for bound in noise.bounds or ())):
            if isinstance(value, Decimal) and unit is not None and value % unit:
                wrong.append(f"attribute {name!r} is {type_}: {what}, {value}, must be a multiple of {unit}")
        found.append(one)
    if wrong:
        raise SourceError("; ".join(dict.fromkeys(wrong)))
    return tuple(found)


def _bounds(bounds: tuple[Decimal | date, Decimal | date] | None) -> tuple[float, float] | None:
    if bounds is None:
        return None
    low, high = (float((one - EPOCH).days if isinstance(one, date) else one) for one in bounds)
    return low, high


def require_usable_noisy_columns(engine: Engine, policy: Policy, source: Source) -> tuple[NoisyColumn, ...]:
    """`noisy_columns`, of whose values noise can be added to all, unless the policy has the other rows suppressed."""
    columns = noisy_columns(policy, source)
    if columns:
        counts = engine.rows(unusable_counts(source.relation, columns))[0]
        if wrong := _without_noise(dict(zip(policy.noisy_attributes, counts, strict=True)), policy):
            raise SourceError("; ".join(wrong))
    return columns


def _without_noise(counts: Mapping[str, int], policy: Policy) -> list[str]:
    return [
        f"attribute {name!r} has {count:,} rows whose value cannot have noise (NULL, NaN, infinite, or "
        "too large for its type): a reader could tell them from the rest of their class; set "
        'on_unknown = "suppress", or leave them out with query = ...'
        for name, count in counts.items()
        if count and policy.attributes[name].on_unknown == "error"
    ]
