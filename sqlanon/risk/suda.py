"""SUDA: rows that are unique in few of their attributes, and the contribution of each attribute.

Sources: M. J. Elliot, A. M. Manning, K. Mayes, J. Gurd, M. Bane, "SUDA: A program for detecting special uniques"
(2005); A. M. Manning, D. J. Haglin, J. A. Keane, "A recursive search algorithm for statistical disclosure assessment"
(2008); C. J. Skinner, M. J. Elliot, "A measure of disclosure risk for microdata" (2002), for DIS. The figures are those
of ``suda2`` in sdcMicro, except that NULL is a value, and that all uniques count in DIS (sdcMicro misses those with a
hash collision).

A set of attributes is a *minimal sample unique* (MSU) of a row if the row is unique in these attributes, and not in any
part of the set. A row is also unique in every set that contains one of its MSUs: so a row that is unique in a set has a
new MSU if none of its smaller ones is part of the set.

If the policy counts persons, the rows are the distinct combinations of each person: equal rows of one person do not
protect the person. (Two different combinations of one person still do, in the attributes in which they agree.)

Names of columns are those of `frequency.packing`. MSUs have ``id``, ``subset``, ``size``; scores have ``id``, ``msus``,
``smallest``, ``score``, ``ihsn_score``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any, Literal

from sqlglot import exp

from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import PolicyError, Problem
from sqlanon.frequency.packing import (
    WORD_BITS,
    PackedCombinations,
    Packing,
    pack_combinations,
    refuse_too_many,
    subset_groups,
    subset_number,
    subsets_of_size,
    sum_group_rows,
)
from sqlanon.frequency.population import count_people, sampling_fraction
from sqlanon.policy import Policy
from sqlanon.sources.columns import match_columns
from sqlanon.sources.run import Run
from sqlanon.support.expressions import (
    anonymous,
    as_column,
    cast,
    col,
    fragment,
    null_safe_equal,
    template,
    text,
    union_all,
)

if TYPE_CHECKING:
    import duckdb

_SINGLE_VALUES = template("""
    SELECT r.id, :subset::BIGINT AS subset, 1 AS size
    FROM :combinations AS r
    JOIN :numbers AS v ON :same
    WHERE v.code = 0
""")
count_uniques_and_pairs = template("""
    SELECT
        coalesce(sum(n)::BIGINT, 0) AS rows,
        coalesce(sum(n) FILTER (WHERE n = 1)::BIGINT, 0) AS uniques,
        coalesce(sum(n) FILTER (WHERE n = 2)::BIGINT, 0) AS in_pairs
    FROM :combinations
""")
"""One row: ``rows``, ``uniques`` (unique rows), ``in_pairs`` (rows in classes of two)."""
# Suffixes: 0 for the convention of Elliot et al., 1 for that of the IHSN.
_SCORE_FIGURES = template("""
    SELECT
        count(*) AS rows,
        coalesce(max(score), 0) AS highest_0,
        coalesce(sum(score)::DOUBLE, 0) AS total_0,
        coalesce(sum(power(score, :exponent::DOUBLE)) FILTER (WHERE score > 0), 0) AS adjustment_0,
        coalesce(max(ihsn_score), 0) AS highest_1,
        coalesce(sum(ihsn_score)::DOUBLE, 0) AS total_1,
        coalesce(sum(power(ihsn_score, :exponent::DOUBLE)) FILTER (WHERE ihsn_score > 0), 0) AS adjustment_1
    FROM :scored
""")
_RECORDS = template("""
    SELECT
        :class_,
        s.msus,
        s.smallest,
        s.score,
        CASE
            WHEN s.score > 0 THEN 1::DOUBLE / (1 + :spread::DOUBLE / power(s.score, :exponent::DOUBLE))
            ELSE 0::DOUBLE
        END AS dis_score,
        s.ihsn_score,
        CASE
            WHEN s.ihsn_score > 0 THEN 1::DOUBLE / (1 + :ihsn_spread::DOUBLE / power(s.ihsn_score, :exponent::DOUBLE))
            ELSE 0::DOUBLE
        END AS dis_ihsn_score
    FROM :scored AS s
    JOIN :combinations AS r ON s.id = r.id
""")
_MINIMAL_UNIQUES = template("""
    SELECT :class_, :attributes AS attributes, m.size
    FROM :msus AS m
    JOIN :combinations AS r ON m.id = r.id
""")
_VALUE_CONTRIBUTIONS = template("""
    SELECT
        :attribute AS attribute,
        :value::VARCHAR AS value,
        100 * sum(:weight)::DOUBLE / nullif(sum(sum(:weight)::DOUBLE) OVER (), 0) AS contribution
    FROM :msus AS m
    JOIN :combinations AS r ON m.id = r.id
    WHERE (m.subset & :bit::BIGINT) <> 0
    GROUP BY :value
""")


def product_weights(attributes: int, size: int) -> list[float]:
    """The addend to a score for an MSU of 1, 2, ... attributes: Π_{i = its size}^{M} (attributes − i).

    M is the greatest searched size, and less than all attributes: else all would be 0. (Elliot et al. 2005; sdcMicro's
    ``original_scores = TRUE``, which always searches all sizes: then it is (attributes − size)!)

    >>> product_weights(4, 4), product_weights(4, 2)
    ([6.0, 2.0, 1.0, 1.0], [6.0, 2.0])
    """
    most = min(size, attributes - 1)
    return [float(math.prod(attributes - i for i in range(k, most + 1))) for k in range(1, size + 1)]


def ihsn_weights(attributes: int, size: int) -> list[float]:
    """The addend to a score for an MSU of 1, 2, ... attributes: the sets above it, divided by the sets of its size.

    (2^(attributes − size) − 1) / (attributes over size), as in the IHSN's program, and in sdcMicro with
    ``original_scores = FALSE``.

    >>> ihsn_weights(4, 4)
    [1.75, 0.5, 0.25, 0.0]
    """
    return [(2.0 ** (attributes - k) - 1) / math.comb(attributes, k) for k in range(1, size + 1)]


def _larger_uniques(keys: exp.Table, packing: Packing, subsets: Sequence[Sequence[int]], msus: exp.Table) -> exp.Select:
    """The query for the MSUs among some sets of attributes of one size, given all smaller MSUs."""
    numbered = {subset_number(subset): subset for subset in subsets}
    groups = subset_groups(keys, packing, numbered, [as_column(fragment("min(k.id)")(), "id")])
    return template("""
        SELECT u.id, u.subset, :size AS size
        FROM :groups AS u
        WHERE NOT EXISTS(SELECT 1 FROM :msus AS m WHERE m.id = u.id AND (m.subset & u.subset) = m.subset)
    """)(size=len(subsets[0]), groups=groups.having(sum_group_rows().eq(1), copy=False), msus=msus)


def _weight_by_size(weights: Sequence[float]) -> exp.Expr:
    case = exp.case()
    for size, weight in enumerate(weights, 1):
        case = case.when(col("size").eq(size), _exact_double(weight))
    return case


def _exact_double(value: float) -> exp.Expr:
    """A number with all its digits."""
    return cast(text(repr(value)), "DOUBLE")


def _class_struct(names: Sequence[str]) -> exp.Expr:
    """A row's quasi-identifiers as a STRUCT, so that their names cannot collide with other columns."""
    fields = [exp.PropertyEQ(this=col(name).this, expression=col(f"q{i}", "r")) for i, name in enumerate(names)]
    return as_column(exp.Struct(expressions=fields), "class")


FRACTION = 0.01
"""The default sampling fraction of DIS: that of sdcMicro."""


@dataclass(frozen=True)
class Scores:
    """The scores of rows in one convention.

    Attributes
    ----------
    highest, average:
        The greatest score of a row, and the mean over all rows (those without an MSU score 0).
    highest_dis:
        The greatest DIS-SUDA score of a row: the probability that a match with it is correct.
    contributions:
        By attribute, in percent: the share of all scores from MSUs with this attribute. MSUs have several attributes,
        so these add up to more than 100.
    """

    highest: float
    average: float
    highest_dis: float
    contributions: Mapping[str, float]


@dataclass(frozen=True)
class Suda:
    """Minimal sample uniques (MSUs) of a table, and scores of the rows that have them.

    If the policy counts persons, a row is one combination of one person, however often the person has it.

    Attributes
    ----------
    rows, uniques:
        Rows, and rows that are unique in all quasi-identifiers together.
    attributes, size:
        The quasi-identifiers, and the greatest searched number of attributes of an MSU.
    rows_with_msus, msus:
        Rows that have an MSU, and the MSUs of all rows.
    msus_by_size, rows_by_smallest:
        MSUs by their number of attributes; rows by that of their smallest one.
    fraction, dis:
        The sampling fraction, and DIS: the probability that a match with a unique row is correct, over the whole table
        (None without unique rows).
    fraction_by:
        The origin of the fraction: the ``call``, the ``policy``, or the ``default`` of 0.01.
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
    _tables: _Tables = field(repr=False, compare=False)

    @property
    def records(self) -> duckdb.DuckDBPyRelation:
        """The rows with MSUs as a relation, for the data holder only.

        Columns: ``class`` (a STRUCT of the row's quasi-identifiers, in which it is unique), ``msus``,
        ``smallest`` (the attributes of its smallest MSU), ``score``, ``dis_score``, ``ihsn_score``, ``dis_ihsn_score``.
        """
        spread, ihsn_spread = map(repr, self._tables.spread)
        return self._relation(
            _RECORDS(
                class_=_class_struct(self.attributes),
                spread=spread,
                ihsn_spread=ihsn_spread,
                exponent=repr(self._tables.exponent),
                scored=self._tables.scored,
                combinations=self._tables.packed.combinations,
            )
        )

    @property
    def minimal_uniques(self) -> duckdb.DuckDBPyRelation:
        """All MSUs as a relation with the columns ``class``, ``attributes`` (a list of names) and ``size``."""
        attributes = reduce(
            lambda names, name: anonymous("LIST_CONCAT", names, name),
            (
                fragment("CASE WHEN (m.subset & :bit::BIGINT) <> 0 THEN [:name] ELSE []::VARCHAR[] END")(
                    bit=1 << i, name=name
                )
                for i, name in enumerate(self.attributes)
            ),
        )
        combinations, msus = self._tables.packed.combinations, self._tables.msus
        class_ = _class_struct(self.attributes)
        return self._relation(
            _MINIMAL_UNIQUES(class_=class_, attributes=attributes, msus=msus, combinations=combinations)
        )

    @property
    def value_contributions(self) -> duckdb.DuckDBPyRelation:
        """The contribution of each value to the scores of its attribute, in percent, as a relation.

        Columns: ``attribute``, ``value`` (as text), ``contribution``. By the scores of Elliot et al.
        """
        contributions = (
            _VALUE_CONTRIBUTIONS(
                attribute=name,
                value=col(f"q{i}", "r"),
                weight=_weight_by_size(self._tables.weights[0]),
                msus=self._tables.msus,
                combinations=self._tables.packed.combinations,
                bit=1 << i,
            )
            for i, name in enumerate(self.attributes)
        )
        return self._relation(union_all(*contributions))

    def _relation(self, query: exp.Query) -> duckdb.DuckDBPyRelation:
        return self._tables.run.engine.relation(query)

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON: the figures without the relations."""
        figures = {
            name: asdict(value) if isinstance(value, Scores) else value
            for name, value in vars(self).items()
            if not name.startswith("_")
        }
        for name in ("msus_by_size", "rows_by_smallest"):
            figures[name] = {str(size): count for size, count in figures[name].items()}
        return figures | {"attributes": list(self.attributes)}


@dataclass(frozen=True)
class _Tables:
    """Tables and parameters of the relations of a `Suda`; the tables exist as long as the run."""

    run: Run
    packed: PackedCombinations
    msus: exp.Table
    scored: exp.Table
    exponent: float
    spread: tuple[float, ...]
    weights: tuple[tuple[float, ...], ...]


def refuse_suda_settings(policy: Policy, size: int | None, fraction: float | None) -> None:
    """Refuse invalid sizes and fractions."""
    problems = []
    if size is not None and size < 1:
        problems.append(Problem("suda size", f"must be at least 1, and {size} is not"))
    if fraction is not None and not 0 < fraction <= 1:
        problems.append(Problem("suda fraction", f"must be more than 0 and at most 1, and {fraction:g} is not"))
    if not 1 <= len(policy.quasi_identifiers) < WORD_BITS:
        problems.append(
            Problem(
                "attributes", f"SUDA takes 1 to {WORD_BITS - 1} quasi-identifiers, not {len(policy.quasi_identifiers)}"
            )
        )
    if problems:
        raise PolicyError(problems)
    refuse_too_many(len(policy.quasi_identifiers), size or len(policy.quasi_identifiers), "suda size")


def find_special_uniques(
    runner: StatementRunner, run: Run, policy: Policy, size: int | None, fraction: float | None
) -> Suda:
    """Find all MSUs of up to a size, and score their rows. The example of a dry run has attributes of three values."""
    return _Search(run, policy, size, fraction, runner).suda()


class _Search:
    """A search for MSUs. Creates tables in the work schema of the run."""

    def __init__(
        self, run: Run, policy: Policy, size: int | None, fraction: float | None, runner: StatementRunner
    ) -> None:
        self.run, self.policy, self.runner, self.requested_fraction = run, policy, runner, fraction
        columns = match_columns(policy, run.source)
        self.person = columns.person
        self.names = policy.quasi_identifiers
        self.columns = [columns.by_attribute[name] for name in self.names]
        self.size = min(size or len(self.names), len(self.names))
        self.weights = tuple(tuple(weights(len(self.names), self.size)) for weights in (product_weights, ihsn_weights))
        self.exponent = 1 + (8 - len(self.names)) / 20

    def suda(self) -> Suda:
        """Find the MSUs, and compute all figures."""
        source, work = self.run.source.relation, self.run.work
        if self.person is not None:
            columns = [col(name) for name in dict.fromkeys((*self.columns, self.person))]
            source = self.runner.create_table(
                work("suda_persons"), template("SELECT DISTINCT :columns FROM :source")(columns=columns, source=source)
            )
        packed = pack_combinations(self.runner, work, source, self.columns, singles_apart=True)
        msus = self._find_msus(packed)
        weight, ihsn_weight = map(_weight_by_size, self.weights)
        query = template("""
            SELECT
                id,
                count(*) AS msus,
                min(size) AS smallest,
                sum(:weight)::DOUBLE AS score,
                sum(:ihsn_weight)::DOUBLE AS ihsn_score
            FROM :msus
            GROUP BY id
        """)(weight=weight, ihsn_weight=ihsn_weight, msus=msus)
        scored = self.runner.create_table(work("suda_scores"), query)
        row_counts = self.runner.fetch_figures(count_uniques_and_pairs(combinations=packed.combinations))
        figures = self.runner.fetch_figures(_SCORE_FIGURES(exponent=repr(-self.exponent), scored=scored))
        contributions = [
            as_column(
                fragment("coalesce(sum(:weight) FILTER (WHERE (subset & :bit::BIGINT) <> 0)::DOUBLE, 0)")(
                    weight=size_weight, bit=1 << j
                ),
                f"c_{i}_{j}",
            )
            for i, size_weight in enumerate((weight, ihsn_weight))
            for j in range(len(self.names))
        ]
        totals = self.runner.fetch_figures(template("SELECT :totals FROM :msus")(totals=contributions, msus=msus))
        by_size = {
            size: count
            for size, count, _ in sorted(
                self.runner.fetch_rows(
                    template("SELECT size, count(*), count(DISTINCT id) FROM :msus GROUP BY size")(msus=msus), []
                )
            )
        }
        by_smallest = dict(
            sorted(
                self.runner.fetch_rows(
                    template("SELECT smallest, count(*) FROM :scored GROUP BY smallest")(scored=scored), []
                )
            )
        )
        uniques, rows = row_counts["uniques"], row_counts["rows"]
        fraction, fraction_by = self._fraction(rows)
        dis = compute_dis(uniques, row_counts["in_pairs"], fraction)
        adjustments = [figures[f"adjustment_{i}"] for i in range(len(self.weights))]
        spread = tuple(
            uniques * (1 - dis) / dis / adjustment if dis and adjustment else 0.0 for adjustment in adjustments
        )

        def scores(i: int) -> Scores:
            highest, total = figures[f"highest_{i}"], figures[f"total_{i}"]
            return Scores(
                highest=float(highest),
                average=total / rows if rows else 0.0,
                highest_dis=1 / (1 + spread[i] / highest**self.exponent) if highest else 0.0,
                contributions={
                    name: 100 * totals[f"c_{i}_{j}"] / total if total else 0.0 for j, name in enumerate(self.names)
                },
            )

        return Suda(
            rows=rows,
            uniques=uniques,
            attributes=self.names,
            size=self.size,
            rows_with_msus=figures["rows"],
            msus=sum(by_size.values()),
            msus_by_size=by_size,
            rows_by_smallest=by_smallest,
            fraction=fraction,
            fraction_by=fraction_by,
            dis=dis,
            scores=scores(0),
            ihsn_scores=scores(1),
            _tables=_Tables(self.run, packed, msus, scored, self.exponent, spread, self.weights),
        )

    def _fraction(self, rows: int) -> tuple[float, Literal["call", "policy", "default"]]:
        """The sampling fraction; of persons, if the policy counts persons."""
        if self.requested_fraction is not None:
            return self.requested_fraction, "call"

        def count() -> int:
            return rows if self.person is None else count_people(self.runner, self.run.source.relation, self.person)

        fraction = sampling_fraction(self.policy, count)
        return (FRACTION, "default") if fraction is None else (fraction, "policy")

    def _find_msus(self, packed: PackedCombinations) -> exp.Table:
        """Find the MSUs, the smallest first."""
        singles = (
            _SINGLE_VALUES(
                subset=1 << i,
                combinations=packed.combinations,
                numbers=numbers,
                same=null_safe_equal(col(f"q{i}", "r"), col("value", "v")),
            )
            for i, numbers in enumerate(packed.numbers)
        )
        msus = self.runner.create_table(self.run.work("suda_msus"), union_all(*singles))
        for size in range(2, self.size + 1):
            for subsets in packed.batches(subsets_of_size(len(self.names), size)):
                query = _larger_uniques(packed.keys, packed.packing, subsets, msus)
                self.runner.add(msus, query)
        return msus


def compute_dis(uniques: int, in_pairs: int, fraction: float) -> float | None:
    """DIS, the probability that a match with a unique row is correct: U·π / (U·π + P·(1 − π)); None without uniques.

    >>> round(compute_dis(4, 6, 0.01), 6)
    0.006689
    """
    correct = uniques * fraction
    return correct / math.fsum((correct, in_pairs * (1 - fraction))) if uniques else None
