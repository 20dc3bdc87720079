"""SUDA: which rows are alone with few of their attributes, and how much each attribute has to do with it.

Sources: M. J. Elliot, A. M. Manning, K. Mayes, J. Gurd, M. Bane, "SUDA: A program for detecting special uniques"
(2005); A. M. Manning, D. J. Haglin, J. A. Keane, "A recursive search algorithm for statistical disclosure assessment"
(2008); C. J. Skinner, M. J. Elliot, "A measure of disclosure risk for microdata" (2002), for DIS. The figures are those
of ``suda2`` in sdcMicro, but for two things: NULL is a value, and all uniques count in DIS (sdcMicro misses those whose
hash meets another's).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from sqlglot import exp

from sqlanon.errors import PolicyError, Problem
from sqlanon.frequency.packed import BITS
from sqlanon.frequency.packing import Packed, pack, refuse_too_many, subsets_of_size
from sqlanon.frequency.population import people, sampling_fraction
from sqlanon.policy import Policy
from sqlanon.risk import suda_statements as sq
from sqlanon.sources.columns import match_columns
from sqlanon.sources.run import Run
from sqlanon.statement_runner import Steps

if TYPE_CHECKING:
    import duckdb

FRACTION = 0.01
"""The sampling fraction that DIS takes where neither the call nor the policy has one: sdcMicro's."""


@dataclass(frozen=True)
class Scores:
    """The scores of rows in one convention.

    Attributes
    ----------
    highest, average:
        The greatest score of a row, and the mean over all rows (those without an MSU score 0).
    highest_dis:
        The greatest DIS-SUDA score of a row: how likely a match with it is right.
    contributions:
        By attribute, in percent: the share of all scores that comes from MSUs that have it. An MSU has several
        attributes, so that these add up to more than 100.
    """

    highest: float
    average: float
    highest_dis: float
    contributions: Mapping[str, float]


@dataclass(frozen=True)
class Suda:
    """Minimal sample uniques (MSUs) of a table, and scores of the rows that have them. Rows count, not persons.

    Attributes
    ----------
    rows, uniques:
        Rows, and rows that are alone with all their quasi-identifiers together.
    attributes, size:
        The quasi-identifiers, and the greatest number of attributes of an MSU that was looked for.
    rows_with_msus, msus:
        Rows that have an MSU, and the MSUs of all rows.
    msus_by_size, rows_by_smallest:
        MSUs by their number of attributes; rows by that of their smallest one.
    fraction, dis:
        The sampling fraction, and DIS: the chance that a match with a unique row is right, over the whole table
        (None where no row is alone).
    fraction_by:
        Where the fraction comes from: the ``call``, the ``policy``, or the ``default`` of 0.01.
    scores:
        In the convention of Elliot et al.: an MSU of k attributes adds Π_{i = k}^{size} (attributes − i) to its row.
    ihsn_scores:
        In that of the IHSN's program: it adds (2^(attributes − k) − 1) / (attributes over k).
    """

    rows: int
    uniques: int
    attributes: tuple[str, ...]
    size: int
    rows_with_msus: int
    msus: int
    msus_by_size: Mapping[int, int]
    rows_by_smallest: Mapping[int, int]
    fraction: float
    fraction_by: Literal["call", "policy", "default"]
    dis: float | None
    scores: Scores
    ihsn_scores: Scores
    _relations: _Relations | None = field(default=None, repr=False, compare=False)

    @property
    def records(self) -> duckdb.DuckDBPyRelation:
        """The rows that have MSUs: a relation, for the holder's eyes.

        Columns: ``class`` (a STRUCT of the row's quasi-identifiers: the row is alone with them), ``msus``,
        ``smallest`` (the attributes of its smallest MSU), ``score``, ``dis_score``, ``ihsn_score``, ``dis_ihsn_score``.
        """
        return self._found().records()

    @property
    def minimal_uniques(self) -> duckdb.DuckDBPyRelation:
        """All MSUs: a relation with the columns ``class``, ``attributes`` (a list of names) and ``size``."""
        return self._found().minimal_uniques()

    @property
    def value_contributions(self) -> duckdb.DuckDBPyRelation:
        """What each value contributes to the scores of its attribute, in percent: a relation.

        Columns: ``attribute``, ``value`` (as text), ``contribution``. By the scores of Elliot et al.
        """
        return self._found().value_contributions()

    def _found(self) -> _Relations:
        assert self._relations is not None
        return self._relations

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON: figures alone."""
        parts = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        shown = {name: asdict(value) if isinstance(value, Scores) else value for name, value in parts.items()}
        by_size = ("msus_by_size", "rows_by_smallest")
        return (
            shown
            | {name: {str(size): n for size, n in shown[name].items()} for name in by_size}
            | {"attributes": list(self.attributes)}
        )


@dataclass(frozen=True)
class _Relations:
    """What the relations of a `Suda` are made of; the tables go with the run."""

    run: Run
    packed: Packed
    msus: exp.Table
    scored: exp.Table
    names: tuple[str, ...]
    exponent: float
    spread: tuple[float, ...]
    weights: tuple[tuple[float, ...], ...]

    def records(self) -> duckdb.DuckDBPyRelation:
        query = sq.records(self.packed.combinations, self.scored, self.names, self.exponent, self.spread)
        return self.run.engine.relation(query)

    def minimal_uniques(self) -> duckdb.DuckDBPyRelation:
        return self.run.engine.relation(sq.minimal_uniques(self.packed.combinations, self.msus, self.names))

    def value_contributions(self) -> duckdb.DuckDBPyRelation:
        query = sq.value_contributions(self.packed.combinations, self.msus, self.names, self.weights[0])
        return self.run.engine.relation(query)


def refuse_settings(policy: Policy, size: int | None, fraction: float | None) -> None:
    """Refuse a size or a fraction that is none.

    Raises
    ------
    PolicyError
        With all that is wrong.
    """
    problems = []
    if size is not None and size < 1:
        problems.append(Problem("suda size", f"must be at least 1, and {size} is not"))
    if fraction is not None and not 0 < fraction <= 1:
        problems.append(Problem("suda fraction", f"must be more than 0 and at most 1, and {fraction:g} is not"))
    if not 1 <= len(policy.quasi) < BITS:
        problems.append(Problem("attributes", f"SUDA takes 1 to {BITS - 1} quasi-identifiers, not {len(policy.quasi)}"))
    if problems:
        raise PolicyError(problems)
    refuse_too_many(len(policy.quasi), size or len(policy.quasi), "suda size")


def find_special_uniques(run: Run, policy: Policy, size: int | None, fraction: float | None) -> Suda:
    """All MSUs of up to a size, and the scores.

    Raises
    ------
    SourceError
        The source does not fit the policy, or has more than the population.
    """
    return _Search(run, policy, size, fraction, Steps(run.engine)).suda()


def suda_statements(run: Run, policy: Policy, size: int | None, fraction: float | None) -> str:
    """The statements behind `find_special_uniques`, in their order; no row is read.

    What one of them needs of the answers before it is shown with an example: attributes of three values.
    """
    shown: list[str] = []
    _Search(run, policy, size, fraction, Steps(run.engine, shown)).suda()
    return "\n\n".join(f"{statement};" for statement in shown)


class _Search:
    """One search. Makes tables in the work schema of the run."""

    def __init__(self, run: Run, policy: Policy, size: int | None, fraction: float | None, steps: Steps) -> None:
        self.run, self.policy, self.steps, self.given = run, policy, steps, fraction
        columns = match_columns(policy, run.source)
        matched, self.person = columns.by_attribute, columns.person
        self.names = policy.quasi
        self.columns = [matched[name] for name in self.names]
        self.size = min(size or len(self.names), len(self.names))
        self.weights = tuple(
            tuple(weights(len(self.names), self.size)) for weights in (sq.product_weights, sq.ihsn_weights)
        )
        self.exponent = 1 + (8 - len(self.names)) / 20

    def suda(self) -> Suda:
        """All figures."""
        packed = pack(self.steps, self.run.work, self.run.source.relation, self.columns, singles_apart=True)
        msus = self._msus(packed)
        scored = self.steps.make(self.run.work("suda_scores"), sq.scores(msus, self.weights))
        table = self.steps.figures(sq.uniques_and_pairs(packed.combinations))
        found = self.steps.figures(sq.score_figures(scored, self.exponent))
        totals = self.steps.figures(sq.attribute_totals(msus, len(self.names), self.weights))
        by_size = {size: n for size, n, _ in sorted(self.steps.ask(sq.by_size(msus), []))}
        by_smallest = dict(sorted(self.steps.ask(sq.by_smallest(scored), [])))
        uniques, rows = table["uniques"], table["rows"]
        fraction, fraction_by = self._fraction(rows)
        dis = dis_of(uniques, table["in_pairs"], fraction)
        spread = tuple(
            uniques * (1 - dis) / dis / found[f"adjustment_{i}"] if dis and found[f"adjustment_{i}"] else 0.0
            for i in range(len(self.weights))
        )

        def scores(i: int) -> Scores:
            highest, total = found[f"highest_{i}"], found[f"total_{i}"]
            return Scores(
                highest=float(highest),
                average=total / rows if rows else 0.0,
                highest_dis=1 / (1 + spread[i] / highest**self.exponent) if highest else 0.0,
                contributions={
                    name: 100 * totals[f"c_{i}_{j}"] / total if total else 0.0 for j, name in enumerate(self.names)
                },
            )

        relations = _Relations(self.run, packed, msus, scored, self.names, self.exponent, spread, self.weights)
        return Suda(
            rows=rows,
            uniques=uniques,
            attributes=self.names,
            size=self.size,
            rows_with_msus=found["rows"],
            msus=sum(by_size.values()),
            msus_by_size=by_size,
            rows_by_smallest=by_smallest,
            fraction=fraction,
            fraction_by=fraction_by,
            dis=dis,
            scores=scores(0),
            ihsn_scores=scores(1),
            _relations=relations,
        )

    def _fraction(self, rows: int) -> tuple[float, Literal["call", "policy", "default"]]:
        """The sampling fraction: of persons, where the policy counts persons."""
        if self.given is not None:
            return self.given, "call"

        def count() -> int:
            return rows if self.person is None else people(self.steps, self.run.source.relation, self.person)

        told = sampling_fraction(self.policy, count)
        return (FRACTION, "default") if told is None else (told, "policy")

    def _msus(self, packed: Packed) -> exp.Table:
        """The MSUs, the smallest first."""
        msus = self.steps.make(self.run.work("suda_msus"), sq.single_values(packed.combinations, packed.numbers))
        for size in range(2, self.size + 1):
            for subsets in packed.batches(subsets_of_size(len(self.names), size)):
                query = sq.larger_uniques(packed.keys, packed.packing, subsets, msus)
                self.steps.add(msus, query)
        return msus


def dis_of(uniques: int, in_pairs: int, fraction: float) -> float | None:
    """DIS, the chance that a match with a unique row is right: U·π / (U·π + P·(1 − π)); None without uniques.

    Parameters
    ----------
    uniques, in_pairs:
        U, the rows that are alone; P, the rows that are two and two.
    fraction:
        π, the sampling fraction.

    >>> round(dis_of(4, 6, 0.01), 6)
    0.006689
    """
    right = uniques * fraction
    return right / math.fsum((right, in_pairs * (1 - fraction))) if uniques else None
