"""Recognize sources that have rows in common under other names: a table and a query of it, a copy, a subset.

The catalog has a sample of the rows of each release's source, as hashes with its secret. These rows are searched for in
a later source under another description. Rows with a frequent combination prove nothing: two tables with the same few
columns of few values have all combinations in common. So only sampled rows count whose combination exactly one row of
the later source has. If it contains all sampled rows, their share is n1/N, where n1 is the number of its rows with a
unique combination. If the sample is from another table with the same distribution, it is about 2 n2/N, where n2 is the
number of combinations of two rows (I. J. Good, The population frequencies of species and the estimation of population
parameters, Biometrika 40, 1953). The share of rows in common is estimated from where the count lies between the two.

For tables with other distributions: rows of the later source that are unrelated to the sample have a combination with
some rate λ, so that no row has it with probability e^-λ, one row with λ e^-λ, and two rows with λ² e^-λ / 2. Let f0,
f1, f2 be the shares of the sampled combinations that no row, one row, and two rows have: by the inequality of Cauchy
and Schwarz, f1² is at most 2 f0 f2. With rows in common, f1 is greater.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from sqlglot import exp

from sqlanon.errors import SourceError
from sqlanon.ledger import catalog
from sqlanon.ledger.people_samples import SourcePeople
from sqlanon.ledger.postgres_samples import PostgresRows
from sqlanon.ledger.records import History, Publication, SpentEpsilon
from sqlanon.ledger.same_people import PeopleComparison, compare_people
from sqlanon.ledger.source_samples import Counts, DuckDBRows, SampledRows
from sqlanon.policy import Policy
from sqlanon.sources.run import Run
from sqlanon.support.expressions import create_table, drop_table, template, text
from sqlanon.support.notices import count_noun

SAMPLED = 2000
"""The sampled rows of a source: if two tables have 1 % of the rows in common, about 20 of them match."""

MAX_COLUMNS = 30
"""Maximum number of columns that are compared: those that the policy declares first."""

MAX_SOURCES = 500
"""Maximum number of sources under other descriptions that are compared, the newest first; a warning counts others."""

MIN_SHARE = 0.2
"""The least share of rows in common, of the rows of the smaller source: with fewer, two sources are different."""

MIN_UNIQUE_SHARE = 0.05
"""The least share of rows with a unique combination: with fewer, combinations do not identify rows."""

LIKE_ROWS = 0.1
"""The greatest relative difference of the row counts of two sources that may be the same."""

KNOWN = 0.5
"""The least share of the sampled values that a paired column contains: others may have changed, or be gone."""


def sample_source(run: Run, policy: Policy, secret: str, run_id: str, rows: int) -> exp.Query | None:
    """The rows of the table ``source_samples``; None if the source cannot be sampled.

    PostgreSQL is sampled now, other sources when the query runs.
    """
    if (source := _sampled_rows(run, policy, secret)) is None:
        return None
    try:
        sampled = source.sample(SAMPLED)
    except SourceError:
        return None  # the next run warns about the missing sample
    names = exp.array(*(text(name) for name in source.columns))
    query = template("SELECT :run_id AS run_id, :rows AS source_rows, :names AS column_names, hashes FROM :sampled")
    return query(run_id=run_id, rows=rows, names=names, sampled=sampled)


def _sampled_rows(run: Run, policy: Policy, secret: str) -> SampledRows | None:
    """The rows of a source, if they can be sampled."""
    sampled = run.source.sampling_relation(run.engine)
    if sampled is None:
        return None
    declared = {name.lower() for name in (*policy.attributes, *policy.source.key)}
    columns = sorted(sampled.columns, key=lambda name: name.lower() not in declared)[:MAX_COLUMNS]
    rows = DuckDBRows if sampled.engine is run.engine else PostgresRows
    return rows(run, columns, _hash_key(secret), sampled)


def _hash_key(secret: str) -> str:
    """The key of the hashes: a server's log may show it, but never the secret."""
    return sha256(f"{secret}:source samples".encode()).hexdigest()


@dataclass
class RowComparison:
    """Compares the rows of a run's source with the samples of other sources in a catalog."""

    run: Run
    policy: Policy
    path: Path  # the file of the catalog
    secret: str  # the secret that its samples are hashed with
    unknown: set[str] = field(default_factory=set)  # the descriptions of the sources that could not be compared
    why: str = ""  # the reason, if no source could be compared
    undecided: set[str] = field(default_factory=set)  # the sources with the same columns and about as many rows

    def shares(self, runs: Mapping[str, str]) -> dict[str, float]:
        """The share of rows in common, of the rows of the smaller source, by description."""
        if not runs:
            return {}
        newest = [*runs.items()][-MAX_SOURCES:]
        rows = _sampled_rows(self.run, self.policy, self.secret)
        if rows is None:
            self.unknown = set(runs)
            self.why = "rows of sources in Spark, and of frequency sets, are not sampled"
            return {}
        shares = {}
        self.unknown = set(runs) - {description for description, _ in newest}
        try:
            for description, run_id in newest:
                share = self._share(rows, run_id, description)
                if share >= MIN_SHARE:
                    shares[description] = share
        except SourceError as error:
            if self.run.source.access == "rows":
                raise
            self.unknown, self.why = set(runs) - set(shares), str(error)
        finally:
            rows.drop()
        return shares

    def warn(self, compared: Collection[str]) -> list[str]:
        """The warning about sources that were compared neither by their rows nor by their people."""
        count = len(self.unknown - set(compared))
        if not count:
            return []
        why = self.why or f"the catalog has no sample of {'its' if count == 1 else 'their'} rows"
        return [
            f"the catalog has releases of {count_noun(count, 'other source')}, which may be this one under "
            f"another name. They were not compared with this release: {why}"
        ]

    def _share(self, rows: SampledRows, run_id: str, description: str) -> float:
        engine, sampled = self.run.engine, self.run.work("source_sample")
        query = template("""
            SELECT source_rows, column_names, hashes
            FROM sqlanon_catalog.sqlanon.source_samples
            WHERE run_id = :run_id
        """)
        with catalog.open_catalog(engine, self.path):
            engine.execute(create_table(sampled.copy(), query(run_id=run_id)))
        try:
            stored = engine.rows(template("SELECT source_rows, column_names FROM :sampled LIMIT 1")(sampled=sampled))
            if not stored:
                self.unknown.add(description)
                return 0.0
            source_rows, names = stored[0]
            pairs, value_counts = _pair_columns(rows, sampled, names)
            if not pairs:
                return 0.0
            counts = {tuple(pairs): rows.count_matches(sampled, pairs)}
            row_total = counts[tuple(pairs)][0]
            if without_keys := _without_keys(pairs, value_counts, row_total):
                counts[tuple(without_keys)] = rows.count_matches(sampled, without_keys)
            share = max(_estimate_share(pair_counts, source_rows) for pair_counts in counts.values())
            if share < MIN_SHARE and len(pairs) in (len(names), len(rows.columns)):
                alike = abs(row_total - source_rows) <= LIKE_ROWS * max(row_total, source_rows)
                # Columns of other names may have the same few values by chance.
                renamed = {position for position, column in pairs.items() if names[position].lower() != column.lower()}
                same_named = [pair_counts for positions, pair_counts in counts.items() if not renamed & {*positions}]
                if alike and any(map(may_be_same_rows, same_named)):
                    self.undecided.add(description)
            return share
        finally:
            engine.execute(drop_table(sampled))


def _pair_columns(rows: SampledRows, sampled: exp.Table, names: Sequence[str]) -> tuple[dict[int, str], dict[int, int]]:
    """The columns that correspond to sampled columns, and the number of their values, by position in the sample."""
    columns_by_name = {name.lower(): name for name in rows.columns}
    pairs, value_counts, unpaired = dict[int, str](), dict[int, int](), list[int]()
    for position, name in enumerate(names):
        column = columns_by_name.get(name.lower())
        share, values = (0.0, 0) if column is None else rows.match_values(sampled, position, column)
        if share >= KNOWN:
            pairs[position], value_counts[position] = columns_by_name.pop(name.lower()), values
        else:
            unpaired.append(position)
    for position in unpaired:
        matches = [(*rows.match_values(sampled, position, column), column) for column in columns_by_name.values()]
        best = max(((share, -values, column) for share, values, column in matches if share >= KNOWN), default=None)
        if best is not None:
            pairs[position], value_counts[position] = columns_by_name.pop(best[2].lower()), -best[1]
    return pairs, value_counts


def _without_keys(pairs: Mapping[int, str], value_counts: Mapping[int, int], rows: int) -> dict[int, str]:
    """The paired columns without possible keys, which a copy may have replaced; empty if no column is a key."""
    without_keys = {position: column for position, column in pairs.items() if 2 * value_counts[position] <= rows}
    return without_keys if len(without_keys) < len(pairs) else {}


def _estimate_share(counts: Counts, source_rows: int) -> float:
    rows, once, twice, taken, alone, *sampled_by = counts
    if not taken or not exceeds_chance(*sampled_by):
        return 0.0
    return estimate_shared_rows(source_rows, taken, alone, rows, once, twice)


def may_be_same_rows(counts: Counts) -> bool:
    """Whether as many sampled rows have a unique combination as if the rows were the same, within five deviations.

    >>> may_be_same_rows((1000, 20, 300, 1000, 18, 0, 18, 200)), may_be_same_rows((1000, 990, 5, 1000, 12, 900, 12, 2))
    (True, False)
    """
    rows, once, _, taken, alone, *_ = counts
    expected = taken * once / rows if rows else 0.0
    return alone >= expected - 5 * math.sqrt(expected)


def exceeds_chance(in_none: int, in_one: int, in_two: int) -> bool:
    """Whether more combinations are in exactly one row than chance explains, whatever the distributions:
    in_one² > 2 in_none in_two, with two deviations of tolerance for each."""
    least, most = in_one - 2 * math.sqrt(in_one), in_two + 2 * math.sqrt(in_two) + 3
    return least > 0 and least**2 > 2 * in_none * most


def estimate_shared_rows(source_rows: int, taken: int, alone: int, rows: int, once: int, twice: int) -> float:
    """Estimate the share of rows in common, of the rows of the smaller source; 0 where chance explains them.

    >>> estimate_shared_rows(1000, 1000, 990, 1000, 990, 5)
    1.0
    >>> estimate_shared_rows(1000, 1000, 12, 1000, 990, 5)
    0.0
    """
    if not taken or not rows:
        return 0.0
    expected, by_chance = once / rows, 2 * twice / rows
    chance = by_chance * taken
    if expected < MIN_UNIQUE_SHARE or expected <= by_chance or alone < chance + 5 * math.sqrt(chance) + 4:
        return 0.0
    share = min((alone / taken - by_chance) / (expected - by_chance), 1.0)
    return min(share * source_rows / min(source_rows, rows), 1.0)


@dataclass(frozen=True)
class Recognition:
    """The sources under other descriptions that have rows or people in common with the source of a run."""

    description: str  # the description of the run's source
    shares: dict[str, float]  # the share of rows in common, by description
    people: PeopleComparison  # the people in common, by description
    same_rows: RowComparison  # the comparison of rows, with the sources that it could not decide

    @property
    def undecided_sources(self) -> set[str]:
        """The sources that may have the same rows, and were not recognized by their people."""
        return self.same_rows.undecided - set(self.people.shared)

    def has_rows_of(self, source: str | None) -> bool:
        """Whether a source is that of the run, or has rows in common with it."""
        return source is not None and (source == self.description or source in self.shares)

    def recognizes(self, source: str | None) -> bool:
        """Whether a source is that of the run, or has rows or people in common with it."""
        return self.has_rows_of(source) or (source is not None and source in self.people.shared)


def recognize(
    run: Run,
    policy: Policy,
    path: Path,
    history: History,
    records: Sequence[Publication | SpentEpsilon],
    people: SourcePeople,
) -> Recognition:
    """Compare the source of a run with the sources of other records in the ledger."""
    sources = {record.run_id: str(record.source) for record in records if record.source not in (None, run.identity)}
    same_rows = RowComparison(run, policy, path, history.secret)
    shares = same_rows.shares({source: run_id for run_id, source in sources.items()})
    newest = dict([*sources.items()][-MAX_SOURCES:])
    shared = compare_people(run, path, people, history.secret, newest)
    return Recognition(run.identity, shares, shared, same_rows)
