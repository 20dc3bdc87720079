"""Sources that have rows in common, whatever they are called: a table and a query of it, a copy, a subset.

The catalog has a sample of the rows of each release's source, as hashes with its secret. In a later source under
another description these rows are looked up. Rows with a frequent combination show nothing: two tables with the same
few columns of few values have all combinations in common. So the sampled rows are counted whose combination exactly
one row of the later source has. If all sampled rows are in it, their share is n1/N, n1 the rows of the later source
that are alone in their combination. If the sample is of another table with the same distribution, it is about 2 n2/N,
n2 the combinations of two rows (I. J. Good, The population frequencies of species and the estimation of population
parameters, Biometrika 40, 1953). The share of rows in common is estimated from where the count lies between the two.

Of tables with other distributions one thing is known, whatever these are: rows of the later source that have nothing
to do with the sample come to a combination with some rate λ, so that none has it with probability e^-λ, one with λ
e^-λ, and two with λ² e^-λ / 2. Of the sampled combinations let f0, f1, f2 be the shares that no row has, one, and
two: by the inequality of Cauchy and Schwarz f1² is at most 2 f0 f2. Rows in common show as more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sqlglot import exp

from sqlanon import catalog
from sqlanon.ledger.records import secret_of
from sqlanon.policy import Policy
from sqlanon.queries.names import col, create_table, drop_table, named, number, select, table, text
from sqlanon.queries.source_samples import HASHES, combinations, found, frequencies, known_values, sample, values_of
from sqlanon.run import Run

SAMPLED = 2000
"""So many rows of a source are kept: of two tables with a hundredth of the rows in common some 20 are found."""

MOST_COLUMNS = 30
"""So many columns are looked at: those that the policy declares first."""

MOST_SOURCES = 500
"""So many sources under other descriptions are looked at, the newest first; of more there is a warning."""

LEAST_SHARE = 0.2
"""Of the rows of the smaller of two sources: with fewer in common they are two."""

LEAST_ALONE = 0.05
"""Where fewer rows are alone in their combination, combinations do not decide whether they are the same rows."""

KNOWN = 0.5
"""A column is another's if it has so many of its sampled values: the rest may have changed, or be gone."""


def sample_of(run: Run, policy: Policy, path: Path, run_id: str, rows: int) -> exp.Query | None:
    """Rows for the table ``source_samples``; None where no rows are here to take any from."""
    if not run.source.rows_at_hand:
        return None
    columns = _columns(run, policy)
    names = exp.Array(expressions=[text(name) for name in columns])
    sampled = sample(run.source.relation, columns, secret_of(run.engine, path), SAMPLED)
    values: list[exp.Expr] = [named(text(run_id), "run_id"), named(number(rows), "source_rows")]
    return select([*values, named(names, "column_names"), col(HASHES)], exp.Subquery(this=sampled))


def _columns(run: Run, policy: Policy) -> list[str]:
    declared = {name.lower() for name in (*policy.attributes, *policy.source.key)}
    columns = [*run.engine.columns(run.source.relation)]
    return sorted(columns, key=lambda name: name.lower() not in declared)[:MOST_COLUMNS]


@dataclass
class SameRows:
    """Holds the source of a run against the samples of others.

    Attributes
    ----------
    run, policy:
        Of what.
    path:
        The catalog.
    unknown:
        How many sources could not be looked at.
    """

    run: Run
    policy: Policy
    path: Path
    unknown: int = 0
    _values: dict[str, exp.Table] = field(default_factory=dict)
    _counts: dict[tuple[str, ...], tuple[exp.Table, tuple[int, int, int]]] = field(default_factory=dict)

    def shares(self, runs: Mapping[str, str]) -> dict[str, float]:
        """By description, the share of rows in common with the sources that have any, of the rows of the smaller.

        Parameters
        ----------
        runs:
            By description of a source, a run that has released it, the oldest first.
        """
        if not runs or not self.run.source.rows_at_hand:
            self.unknown = len(runs)
            return {}
        shares = {}
        self.unknown = max(0, len(runs) - MOST_SOURCES)
        try:
            for description, run_id in [*runs.items()][-MOST_SOURCES:]:
                share = self._share(run_id)
                if share >= LEAST_SHARE:
                    shares[description] = share
        finally:
            for made in (*self._values.values(), *(one for one, _ in self._counts.values())):
                self.run.engine.execute(drop_table(made))
        return shares

    @property
    def warnings(self) -> list[str]:
        """What the holder should know of the sources that could not be looked at."""
        if not self.unknown:
            return []
        few = self.unknown == 1
        why = "there is no sample of its rows" if few else "there are no samples of their rows"
        if not self.run.source.rows_at_hand:
            why = "sources that are not in DuckDB or in files are known by their descriptions only"
        return [
            f"the ledger has releases of {self.unknown} other source{'' if few else 's'}, and whether "
            f"{'it is' if few else 'they are'} this one under another name is not known: {why}"
        ]

    def _share(self, run_id: str) -> float:
        engine, sampled = self.run.engine, self.run.work("source_sample")
        with catalog.open_catalog(engine, self.path):
            samples = table("source_samples", catalog.SCHEMA, catalog.ATTACHED)
            of_run = exp.EQ(this=col("run_id"), expression=text(run_id))
            query = select([col("source_rows"), col("column_names"), col(HASHES)], samples)
            engine.execute(create_table(sampled.copy(), query.where(of_run, copy=False)))
        try:
            rows = engine.rows(select([col("source_rows"), col("column_names")], sampled.copy()).limit(1, copy=False))
            if not rows:
                self.unknown += 1
                return 0.0
            return max(
                (self._of_columns(sampled, rows[0][0], pairs) for pairs in self._paired(sampled, rows[0][1])),
                default=0.0,
            )
        finally:
            engine.execute(drop_table(sampled))

    def _paired(self, sampled: exp.Table, names: Sequence[str]) -> Iterable[Mapping[int, str]]:
        """By the place of a sampled column, the column that it is here: all that can be paired; and these without keys,
        which a copy may have given anew."""
        own = {name.lower(): name for name in _columns(self.run, self.policy)}
        pairs, rows = dict[int, str](), 0
        distinct = dict[str, int]()
        left = []
        for place, name in enumerate(names):
            column = own.get(name.lower())
            if column is not None and self._known(sampled, place, column)[0] >= KNOWN:
                pairs[place] = own.pop(name.lower())
            else:
                left.append(place)
        for place in left:
            fits = [(*self._known(sampled, place, column), column) for column in own.values()]
            best = max(((share, -values, column) for share, values, column in fits if share >= KNOWN), default=None)
            if best is not None:
                pairs[place] = own.pop(best[2].lower())
        if not pairs:
            return
        yield pairs
        for column in pairs.values():
            distinct[column] = self.run.engine.rows(select([exp.Count(this=exp.Star())], self._values_of(column)))[0][0]
        rows = self._combined([*pairs.values()])[1][0]
        without = {place: column for place, column in pairs.items() if 2 * distinct[column] <= rows}
        if without and len(without) < len(pairs):
            yield without

    def _known(self, sampled: exp.Table, place: int, column: str) -> tuple[float, int]:
        """The share of the sampled values of a column that another has, and how many that has."""
        hashes, known, values = self.run.engine.rows(known_values(sampled, place, self._values_of(column)))[0]
        return (known / hashes if hashes else 0.0), values

    def _values_of(self, column: str) -> exp.Table:
        if column not in self._values:
            target = self.run.work(f"source_values_{len(self._values)}")
            secret = secret_of(self.run.engine, self.path)
            self.run.engine.execute(create_table(target.copy(), values_of(self.run.source.relation, column, secret)))
            self._values[column] = target
        return self._values[column].copy()

    def _combined(self, columns: Sequence[str]) -> tuple[exp.Table, tuple[int, int, int]]:
        key = tuple(columns)
        if key not in self._counts:
            target = self.run.work(f"source_combinations_{len(self._counts)}")
            self.run.engine.execute(create_table(target.copy(), combinations(self.run.source.relation, columns)))
            rows, once, twice = self.run.engine.rows(frequencies(target))[0]
            self._counts[key] = target, (rows or 0, once, twice)
        return self._counts[key]

    def _of_columns(self, sampled: exp.Table, source_rows: int, pairs: Mapping[int, str]) -> float:
        combined, (rows, once, twice) = self._combined([*pairs.values()])
        values = [self._values_of(column) for column in pairs.values()]
        taken, alone, *sampled_by = self.run.engine.rows(found(sampled, [*pairs], values, combined))[0]
        if not taken or not more_than_chance(*sampled_by):
            return 0.0
        return share_in_common(source_rows, taken, alone, rows, once, twice)


def more_than_chance(none: int, one: int, two: int) -> bool:
    """Whether of some combinations more are in exactly one row than chance may explain, whatever the distributions:
    one² > 2 none two, each as far from it as two deviations allow."""
    least, most = one - 2 * math.sqrt(one), two + 2 * math.sqrt(two) + 3
    return least > 0 and least**2 > 2 * none * most


def share_in_common(source_rows: int, taken: int, alone: int, rows: int, once: int, twice: int) -> float:
    """The estimated share of rows in common, of the rows of the smaller source; 0 where chance may explain them.

    Parameters
    ----------
    source_rows, taken, alone:
        The rows of the source that a sample was taken from, those of the sample, and how many of these look like
        exactly one row of the other source.
    rows, once, twice:
        Of the other source: its rows, and the combinations of one row and of two.

    >>> share_in_common(1000, 1000, 990, 1000, 990, 5)
    1.0
    >>> share_in_common(1000, 1000, 12, 1000, 990, 5)
    0.0
    """
    if not taken or not rows:
        return 0.0
    expected, by_chance = once / rows, 2 * twice / rows
    chance = by_chance * taken
    if expected < LEAST_ALONE or expected <= by_chance or alone < chance + 5 * math.sqrt(chance) + 4:
        return 0.0
    share = min((alone / taken - by_chance) / (expected - by_chance), 1.0)
    return min(share * source_rows / min(source_rows, rows), 1.0)
