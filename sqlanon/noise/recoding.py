"""How a release is made of rows that have got noise."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import exp

from sqlanon.expressions import aliased, col, is_there, named, select
from sqlanon.noise.noisy_column import NoisyColumn
from sqlanon.noise.statements import released
from sqlanon.recode.recoding import ByClass, Column, in_order


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
        on = exp.EQ(this=col("record", "n"), expression=col("record", "k"))
        query = query.join(aliased(self.kept, "k"), on=on, join_type="left", copy=False)
        return query.select(named(there, "released"), copy=False)
