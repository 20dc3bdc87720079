"""SUDA: which rows are alone with few of their attributes, and how much each attribute has to do with it.

Sources: M. J. Elliot, A. M. Manning, K. Mayes, J. Gurd, M. Bane, "SUDA: A program for detecting special uniques"
(2005); A. M. Manning, D. J. Haglin, J. A. Keane, "A recursive search algorithm for statistical disclosure assessment"
(2008); C. J. Skinner, M. J. Elliot, "A measure of disclosure risk for microdata" (2002), for DIS. The figures are those
of ``suda2`` in sdcMicro, but for two things: NULL is a value, and all uniques count in DIS (sdcMicro misses those whose
hash meets another's).

Minimal sample uniques, level by level, and their scores.

A set of attributes is a *minimal sample unique* (MSU) of a row if the row is alone with its values of them, and is not
with those of any part of the set. In a set that has an MSU of the row as its part, the row is alone too: so a row that
is found alone at some size has a new MSU, if none of its smaller ones is part of the set.

Sources: A. M. Manning, D. J. Haglin, J. A. Keane, "A recursive search algorithm for statistical disclosure assessment"
(2008); M. J. Elliot et al., "SUDA: A program for detecting special uniques" (2005).

Names of columns as in `frequency.packing`. In the MSUs: ``id``, ``subset``, ``size``. In the scores: ``id``, ``msus``,
``smallest``, ``score``, ``ihsn_score``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from sqlglot import exp

from sqlanon.coding import ROWS
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import PolicyError, Problem
from sqlanon.expressions import (
    aliased,
    all_of,
    anonymous,
    cast,
    col,
    double_total,
    named,
    number,
    select,
    subquery,
    text,
    total,
    union_all,
    where,
)
from sqlanon.frequency.packing import (
    BITS,
    CODE,
    ID,
    SIZE,
    SUBSET,
    VALUE,
    Packed,
    Packing,
    group_rows,
    pack,
    refuse_too_many,
    subset_groups,
    subset_number,
    subsets_of_size,
)
from sqlanon.frequency.population import people, sampling_fraction
from sqlanon.policy import Policy
from sqlanon.sources.columns import match_columns
from sqlanon.sources.run import Run

if TYPE_CHECKING:
    import duckdb


MSUS = "msus"
SMALLEST = "smallest"
CONVENTIONS = ("score", "ihsn_score")
"""The two ways to score, by the column: that of Elliot et al., and that of the IHSN's program."""


def product_weights(attributes: int, size: int) -> list[float]:
    """What an MSU of 1, 2, ... attributes adds to a score: Π_{i = its size}^{M} (attributes − i).

    M is the greatest size that is looked for, and less than all attributes: else all would be 0. (Elliot et al. 2005;
    sdcMicro's ``original_scores = TRUE``, which always looks for all sizes: there it is (attributes − size)!)

    >>> product_weights(4, 4), product_weights(4, 2)
    ([6.0, 2.0, 1.0, 1.0], [6.0, 2.0])
    """
    most = min(size, attributes - 1)
    return [float(math.prod(attributes - i for i in range(k, most + 1))) for k in range(1, size + 1)]


def ihsn_weights(attributes: int, size: int) -> list[float]:
    """What an MSU of 1, 2, ... attributes adds to a score: the sets above it, by the sets of its size.

    (2^(attributes − size) − 1) / (attributes over size), as the IHSN's program has it, and sdcMicro with
    ``original_scores = FALSE``.

    >>> ihsn_weights(4, 4)
    [1.75, 0.5, 0.25, 0.0]
    """
    return [(2.0 ** (attributes - k) - 1) / math.comb(attributes, k) for k in range(1, size + 1)]


def single_values(combinations: exp.Table, numbers: Sequence[exp.Table]) -> exp.Query:
    """The MSUs of one attribute: the rows with a value that no other row has."""
    parts = []
    for i, one in enumerate(numbers):
        output: list[exp.Expr] = [col(ID, "r"), named(cast(number(1 << i), "BIGINT"), SUBSET), named(number(1), SIZE)]
        alone = col(CODE, "v").eq(0)
        on = exp.NullSafeEQ(this=col(f"q{i}", "r"), expression=col(VALUE, "v"))
        query = select(output, aliased(combinations, "r"))
        parts.append(query.join(aliased(one, "v"), on=on, copy=False).where(alone, copy=False))
    return union_all(*parts)


def larger_uniques(keys: exp.Table, packing: Packing, subsets: Sequence[Sequence[int]], msus: exp.Table) -> exp.Select:
    """The MSUs among some sets of attributes of one size, given all smaller MSUs."""
    alone = group_rows().eq(1)
    listed = {subset_number(one): one for one in subsets}
    groups = subset_groups(keys, packing, listed, [named(exp.Min(this=col(ID, "k")), ID)])
    groups = groups.having(alone, copy=False)
    within = exp.Paren(this=exp.BitwiseAnd(this=col(SUBSET, "m"), expression=col(SUBSET, "u"))).eq(col(SUBSET, "m"))
    own = col(ID, "m").eq(col(ID, "u"))
    known = select([number(1)], aliased(msus, "m")).where(all_of([own, within]), copy=False)
    output: list[exp.Expr] = [col(ID, "u"), col(SUBSET, "u"), named(number(len(subsets[0])), SIZE)]
    query = select(output, subquery(groups, "u"))
    return query.where(~exp.Exists(this=known), copy=False)


def uniques_and_pairs(combinations: exp.Table) -> exp.Select:
    """One row: ``rows``, ``uniques`` (rows that are alone), ``in_pairs`` (rows that are two and two)."""

    def of(size: int) -> exp.Expr:
        condition = col(ROWS).eq(number(size))
        return exp.Coalesce(this=total(col(ROWS), condition), expressions=[number(0)])

    rows = exp.Coalesce(this=total(col(ROWS)), expressions=[number(0)])
    return select([named(rows, "rows"), named(of(1), "uniques"), named(of(2), "in_pairs")], combinations.copy())


def _weight(weights: Sequence[float]) -> exp.Expr:
    cases = [
        exp.If(this=col(SIZE).eq(number(k)), true=cast(text(repr(weight)), "DOUBLE"))
        for k, weight in enumerate(weights, 1)
    ]
    return exp.Case(ifs=cases)


def row_scores(msus: exp.Table, weights: Sequence[Sequence[float]]) -> exp.Select:
    """The scores of the rows that have MSUs."""
    sums = [named(double_total(_weight(one)), convention) for convention, one in zip(CONVENTIONS, weights, strict=True)]
    output: list[exp.Expr] = [
        col(ID),
        named(exp.Count(this=exp.Star()), MSUS),
        named(exp.Min(this=col(SIZE)), SMALLEST),
        *sums,
    ]
    return select(output, msus.copy(), [col(ID)])


def scores_by_size(msus: exp.Table) -> exp.Select:
    """How many MSUs there are of each size, and how many rows have such."""
    rows = exp.Count(this=exp.Distinct(expressions=[col(ID)]))
    return select([col(SIZE), exp.Count(this=exp.Star()), rows], msus.copy(), [col(SIZE)])


def scores_by_smallest(scored: exp.Table) -> exp.Select:
    """How many rows there are by the size of their smallest MSU."""
    return select([col(SMALLEST), exp.Count(this=exp.Star())], scored.copy(), [col(SMALLEST)])


def score_figures(scored: exp.Table, exponent: float) -> exp.Select:
    """One row: ``rows``, and by convention ``highest_i``, ``total_i``, and ``adjustment_i``: Σ score^−exponent."""
    output: list[exp.Expr] = [named(exp.Count(this=exp.Star()), "rows")]
    for i, name in enumerate(CONVENTIONS):
        positive = col(name) > 0
        power = exp.Pow(this=col(name), expression=cast(text(repr(-exponent)), "DOUBLE"))
        output += [
            named(exp.Coalesce(this=exp.Max(this=col(name)), expressions=[number(0)]), f"highest_{i}"),
            named(exp.Coalesce(this=double_total(col(name)), expressions=[number(0)]), f"total_{i}"),
            named(exp.Coalesce(this=where(exp.Sum(this=power), positive), expressions=[number(0)]), f"adjustment_{i}"),
        ]
    return select(output, scored.copy())


def attribute_totals(msus: exp.Table, attributes: int, weights: Sequence[Sequence[float]]) -> exp.Select:
    """One row: for each convention i and attribute j ``c_i_j``, the weights of the MSUs that have it."""
    output = []
    for i, one in enumerate(weights):
        for j in range(attributes):
            found = cast(where(exp.Sum(this=_weight(one)), _has(j)), "DOUBLE")
            output.append(named(exp.Coalesce(this=found, expressions=[number(0)]), f"c_{i}_{j}"))
    return select(list(output), msus.copy())


def _has(attribute: int, table: str | None = None) -> exp.Expr:
    bit = exp.BitwiseAnd(this=col(SUBSET, table), expression=cast(number(1 << attribute), "BIGINT"))
    return exp.Paren(this=bit).neq(0)


def a_class(names: Sequence[str], table: str) -> exp.Expr:
    """A row's quasi-identifiers as a STRUCT, so that their names meet none of ours."""
    fields = [exp.PropertyEQ(this=col(name).this, expression=col(f"q{i}", table)) for i, name in enumerate(names)]
    return named(exp.Struct(expressions=fields), "class")


def records(
    combinations: exp.Table, scored: exp.Table, names: Sequence[str], exponent: float, spread: Sequence[float]
) -> exp.Select:
    """The rows that have MSUs, with their scores and DIS-SUDA scores."""
    output: list[exp.Expr] = [a_class(names, "r"), col(MSUS, "s"), col(SMALLEST, "s")]
    for name, divided in zip(CONVENTIONS, spread, strict=True):
        power = exp.Pow(this=col(name, "s"), expression=cast(text(repr(exponent)), "DOUBLE"))
        odds = cast(text(repr(divided)), "DOUBLE") / power
        risk = cast(number(1), "DOUBLE") / exp.Paren(this=number(1) + odds)
        positive = col(name, "s") > 0
        dis = exp.Case(ifs=[exp.If(this=positive, true=risk)], default=cast(number(0), "DOUBLE"))
        output += [col(name, "s"), named(dis, f"dis_{name}")]
    on = col(ID, "s").eq(col(ID, "r"))
    return select(output, aliased(scored, "s")).join(aliased(combinations, "r"), on=on, copy=False)


def minimal_uniques(combinations: exp.Table, msus: exp.Table, names: Sequence[str]) -> exp.Select:
    """Each MSU: its row's quasi-identifiers, the names of its attributes, and how many they are."""
    listed: exp.Expr | None = None
    for i, name in enumerate(names):
        one = exp.Case(
            ifs=[exp.If(this=_has(i, "m"), true=exp.Array(expressions=[text(name)]))],
            default=cast(exp.Array(expressions=[]), "VARCHAR[]"),
        )
        listed = one if listed is None else anonymous("LIST_CONCAT", listed, one)
    assert listed is not None
    on = col(ID, "m").eq(col(ID, "r"))
    output = [a_class(names, "r"), named(listed, "attributes"), col(SIZE, "m")]
    return select(output, aliased(msus, "m")).join(aliased(combinations, "r"), on=on, copy=False)


def value_contributions(
    combinations: exp.Table, msus: exp.Table, names: Sequence[str], weights: Sequence[float]
) -> exp.Query:
    """What each value contributes to the scores of its attribute's MSUs, in percent: 100 by attribute."""
    parts = []
    on = col(ID, "m").eq(col(ID, "r"))
    for i, name in enumerate(names):
        value = col(f"q{i}", "r")
        weighed = double_total(_weight(weights))
        whole = exp.Window(this=exp.Sum(this=weighed.copy()))
        share = (number(100) * weighed) / exp.Nullif(this=whole, expression=number(0))
        output: list[exp.Expr] = [
            named(text(name), "attribute"),
            named(cast(value, "VARCHAR"), VALUE),
            named(share, "contribution"),
        ]
        query = select(output, aliased(msus, "m")).join(aliased(combinations, "r"), on=on.copy(), copy=False)
        parts.append(query.where(_has(i, "m"), copy=False).group_by(value.copy(), copy=False))
    return union_all(*parts)


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
        query = records(self.packed.combinations, self.scored, self.names, self.exponent, self.spread)
        return self.run.engine.relation(query)

    def minimal_uniques(self) -> duckdb.DuckDBPyRelation:
        return self.run.engine.relation(minimal_uniques(self.packed.combinations, self.msus, self.names))

    def value_contributions(self) -> duckdb.DuckDBPyRelation:
        query = value_contributions(self.packed.combinations, self.msus, self.names, self.weights[0])
        return self.run.engine.relation(query)


def refuse_settings(policy: Policy, size: int | None, fraction: float | None) -> None:
    """Refuse a size or a fraction that is none."""
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
    """All MSUs of up to a size, and the scores."""
    return _Search(run, policy, size, fraction, StatementRunner(run.engine)).suda()


def suda_statements(run: Run, policy: Policy, size: int | None, fraction: float | None) -> str:
    """The statements behind `find_special_uniques`, in their order; no row is read.

    What one of them needs of the answers before it is shown with an example: attributes of three values.
    """
    shown: list[str] = []
    _Search(run, policy, size, fraction, StatementRunner(run.engine, shown)).suda()
    return "\n\n".join(f"{statement};" for statement in shown)


class _Search:
    """One search. Makes tables in the work schema of the run."""

    def __init__(
        self, run: Run, policy: Policy, size: int | None, fraction: float | None, steps: StatementRunner
    ) -> None:
        self.run, self.policy, self.steps, self.given = run, policy, steps, fraction
        columns = match_columns(policy, run.source)
        matched, self.person = columns.by_attribute, columns.person
        self.names = policy.quasi
        self.columns = [matched[name] for name in self.names]
        self.size = min(size or len(self.names), len(self.names))
        self.weights = tuple(tuple(weights(len(self.names), self.size)) for weights in (product_weights, ihsn_weights))
        self.exponent = 1 + (8 - len(self.names)) / 20

    def suda(self) -> Suda:
        """All figures."""
        packed = pack(self.steps, self.run.work, self.run.source.relation, self.columns, singles_apart=True)
        msus = self._msus(packed)
        scored = self.steps.make(self.run.work("suda_scores"), row_scores(msus, self.weights))
        table = self.steps.figures(uniques_and_pairs(packed.combinations))
        found = self.steps.figures(score_figures(scored, self.exponent))
        totals = self.steps.figures(attribute_totals(msus, len(self.names), self.weights))
        by_size = {size: n for size, n, _ in sorted(self.steps.ask(scores_by_size(msus), []))}
        by_smallest = dict(sorted(self.steps.ask(scores_by_smallest(scored), [])))
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
        msus = self.steps.make(self.run.work("suda_msus"), single_values(packed.combinations, packed.numbers))
        for size in range(2, self.size + 1):
            for subsets in packed.batches(subsets_of_size(len(self.names), size)):
                query = larger_uniques(packed.keys, packed.packing, subsets, msus)
                self.steps.add(msus, query)
        return msus


def dis_of(uniques: int, in_pairs: int, fraction: float) -> float | None:
    """DIS, the chance that a match with a unique row is right: U·π / (U·π + P·(1 − π)); None without uniques.

    >>> round(dis_of(4, 6, 0.01), 6)
    0.006689
    """
    right = uniques * fraction
    return right / math.fsum((right, in_pairs * (1 - fraction))) if uniques else None
