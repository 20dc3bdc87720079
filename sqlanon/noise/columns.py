"""Which columns of a source get noise, whether they can, and how a release is made of rows that have it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal

from sqlglot import exp

from sqlanon.coding import Column
from sqlanon.engines.base import Engine
from sqlanon.errors import SourceError
from sqlanon.expressions import aliased, col, is_there, named, select
from sqlanon.noise.noisy_column import NoisyColumn, can_be_noisy, unit_of
from sqlanon.noise.statements import released, unusable_counts
from sqlanon.policy import Policy
from sqlanon.recode.recoding import ByClass, in_order
from sqlanon.sources import Source
from sqlanon.sources.columns import match_columns, released_columns


@dataclass(frozen=True)
class NoisyRecoding:
    """A recoding whose rows have got noise.

    Attributes
    ----------
    plain:
        The recoding.
    noisy, kept:
        Its rows with noise, made by `noise.statements.noisy`, and the records that are released (None: all).
    noisy_columns:
        What has noise.
    names:
        The columns of the rows.
    """

    plain: ByClass
    noisy: exp.Table
    kept: exp.Table | None
    noisy_columns: tuple[NoisyColumn, ...]
    names: tuple[str, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        """What is released."""
        return self.plain.columns

    def released_type(self, column: Column, own: str) -> str:
        """Where there is noise, a type that has room for it."""
        types = {one.name: one.released_type for one in self.noisy_columns}
        return types.get(column.name) or self.plain.released_type(column, own)

    def label_counts(self) -> exp.Select:
        """One row: how many labels each attribute has in the release."""
        return self.plain.label_counts()

    def with_column(self, column: Column) -> NoisyRecoding:
        """The same, with one more column of the source: that of persons, which the rows have."""
        return replace(self, plain=self.plain.with_column(column))

    def select(self, shuffled: bool = True) -> exp.Select:
        """The statement that makes the release, of the rows with the noise that was drawn."""
        rows = released(self.noisy, self.kept, self.noisy_columns, self.names)
        return self.plain.labelled(in_order(rows, shuffled))

    def shown(self) -> exp.Select:
        """The records with noise, for the holder: ``record``, ``class``, ``x_j``, ``y_j``, ``released``."""
        output: list[exp.Expr] = [col("record", "n"), col("class", "n")]
        output += [col(f"{name}_{j}", "n") for j in range(len(self.noisy_columns)) for name in "xvy"]
        query = select(output, aliased(self.noisy, "n"))
        if self.kept is None:
            return query.select(named(exp.true(), "released"), copy=False)
        there = is_there(col("record", "k"))
        on = col("record", "n").eq(col("record", "k"))
        query = query.join(aliased(self.kept, "k"), on=on, join_type="left", copy=False)
        return query.select(named(there, "released"), copy=False)


EPOCH = date(1970, 1, 1)


def noisy_columns(policy: Policy, source: Source) -> tuple[NoisyColumn, ...]:
    """The columns that get noise, in the policy's order."""
    if not policy.noisy:
        return ()
    columns = match_columns(policy, source)
    places = {column.name: place for place, column in enumerate(released_columns(policy, source))}
    epsilons, found, wrong = policy.epsilons, [], []
    for name, column in zip(policy.noisy, columns.noisy, strict=True):
        noise, type_ = policy.attributes[name].noise, source.columns[column]
        assert noise is not None
        if not can_be_noisy(type_):
            wrong.append(f"attribute {name!r} is {type_}: noise is for numbers and dates; cast it with query = ...")
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


def columns_for_noise(engine: Engine, policy: Policy, source: Source) -> tuple[NoisyColumn, ...]:
    """`noisy_columns`, of whose values noise can be added to all, unless the policy has the other rows suppressed."""
    columns = noisy_columns(policy, source)
    if columns:
        counts = engine.rows(unusable_counts(source.relation, columns))[0]
        if wrong := _without_noise(dict(zip(policy.noisy, counts, strict=True)), policy):
            raise SourceError("; ".join(wrong))
    return columns


def _without_noise(counts: Mapping[str, int], policy: Policy) -> list[str]:
    return [
        f"attribute {name!r} has {count:,} rows without a value that noise can be added to (NULL, NaN, infinite, or "
        "too large for its type): a reader could tell them from the rest of their class; set "
        'on_unknown = "suppress", or leave them out with query = ...'
        for name, count in counts.items()
        if count and policy.attributes[name].on_unknown == "error"
    ]
