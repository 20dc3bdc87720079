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
from collections.abc import Callable, Collection, Mapping, Sequence
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
from sqlanon.support.coding import quasi_column
from sqlanon.support.expressions import (
    anonymous,
    as_column,
    cast,
    col,
    fragment,
    template,
    text,
    union_all,
)

if TYPE_CHECKING:
    import duckdb

count_uniques_and_pairs = template("""
    SELECT
        coalesce(sum(row_count)::BIGINT, 0) AS rows,
        coalesce(sum(row_count) FILTER (WHERE row_count = 1)::BIGINT, 0) AS uniques,
        coalesce(sum(row_count) FILTER (WHERE row_count = 2)::BIGINT, 0) AS in_pairs
    FROM :combinations
""")
"""One row: ``rows``, ``uniques`` (unique rows), ``in_pairs`` (rows in classes of two)."""
_SCORED_ROWS = template("""
    SELECT
        id,
        count(*) AS msus,
        min(size) AS smallest,
        sum(:weight)::DOUBLE AS score,
        sum(:ihsn_weight)::DOUBLE AS ihsn_score
    FROM :msus
    GROUP BY id
""")
_SCORE_FIGURES = template("""
    SELECT
        count(*) AS rows,
        coalesce(max(:score), 0) AS highest,
        coalesce(sum(:score)::DOUBLE, 0) AS total,
        coalesce(sum(power(:score, :exponent::DOUBLE)) FILTER (WHERE :score > 0), 0) AS adjustment
    FROM :scored
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
    fields = [exp.PropertyEQ(this=col(name).this, expression=col(quasi_column(i), "r")) for i, name in enumerate(names)]
    return as_column(exp.Struct(expressions=fields), "class")


FRACTION = 0.01
"""The default sampling fraction of DIS: that of sdcMicro."""
_SCORES = ("score", "ihsn_score")
"""The columns of scores: in the convention of Elliot et al., and in that of the IHSN."""


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
        tables = self._tables
        dis = fragment("""
            CASE
                WHEN :score > 0 THEN 1::DOUBLE / (1 + :spread::DOUBLE / power(:score, :exponent::DOUBLE))
                ELSE 0::DOUBLE
            END
        """)
        dis_score, dis_ihsn_score = (
            dis(score=col(name, "s"), spread=repr(spread), exponent=repr(tables.exponent))
            for name, spread in zip(_SCORES, tables.spread, strict=True)
        )
        query = template("""
            SELECT
                :class_, s.msus, s.smallest, s.score, :dis_score AS dis_score, s.ihsn_score,
                :dis_ihsn_score AS dis_ihsn_score
            FROM :scored AS s
            JOIN :combinations AS r ON s.id = r.id
        """)(
            class_=_class_struct(self.attributes), dis_score=dis_score, dis_ihsn_score=dis_ihsn_score,
            scored=tables.scored, combinations=tables.packed.combinations,
        )  # fmt: skip
        return self._relation(query)

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
                value=col(quasi_column(i), "r"),
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
        """Return the figures, without the relations, as a dictionary for JSON."""
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
    matched, names = match_columns(policy, run.source), policy.quasi_identifiers
    columns, person = [matched.by_attribute[name] for name in names], matched.person
    size = min(size or len(names), len(names))
    source, work = run.source.relation, run.work
    if person is not None:
        read_columns = [col(name) for name in dict.fromkeys((*columns, person))]
        query = template("SELECT DISTINCT :columns FROM :source")(columns=read_columns, source=source)
        source = runner.create_table(work("suda_persons"), query)
    packed = pack_combinations(runner, work, source, columns, singles_apart=True)
    msus = _find_msus(runner, work("suda_msus"), packed, len(names), size)
    weights = tuple(tuple(weight(len(names), size)) for weight in (product_weights, ihsn_weights))
    weight_columns = [_weight_by_size(weight) for weight in weights]
    query = _SCORED_ROWS(weight=weight_columns[0], ihsn_weight=weight_columns[1], msus=msus)
    scored = runner.create_table(work("suda_scores"), query)
    row_counts = runner.fetch_figures(count_uniques_and_pairs(combinations=packed.combinations))
    uniques, rows = row_counts["uniques"], row_counts["rows"]
    by_size = _count_by(runner, template("SELECT size, count(*) FROM :msus GROUP BY size")(msus=msus))
    by_smallest = template("SELECT smallest, count(*) FROM :scored GROUP BY smallest")(scored=scored)
    sampling, fraction_by = _choose_fraction(
        policy, fraction, lambda: rows if person is None else count_people(runner, run.source.relation, person)
    )
    dis = compute_dis(uniques, row_counts["in_pairs"], sampling)
    exponent, spreads, scores = 1 + (8 - len(names)) / 20, list[float](), list[Scores]()
    for score, weight in zip(_SCORES, weight_columns, strict=True):
        figures = runner.fetch_figures(_SCORE_FIGURES(score=col(score), exponent=repr(-exponent), scored=scored))
        attribute_totals = _sum_by_attribute(runner, msus, weight, len(names))
        highest, total, adjustment = figures["highest"], figures["total"], figures["adjustment"]
        spread = uniques * (1 - dis) / dis / adjustment if dis and adjustment else 0.0
        spreads.append(spread)
        scores.append(
            Scores(
                highest=float(highest),
                average=total / rows if rows else 0.0,
                highest_dis=1 / (1 + spread / highest**exponent) if highest else 0.0,
                contributions={
                    name: 100 * attribute_total / total if total else 0.0
                    for name, attribute_total in zip(names, attribute_totals, strict=True)
                },
            )
        )
    return Suda(
        rows=rows,
        uniques=uniques,
        attributes=names,
        size=size,
        rows_with_msus=figures["rows"],
        msus=sum(by_size.values()),
        msus_by_size=by_size,
        rows_by_smallest=_count_by(runner, by_smallest),
        fraction=sampling,
        fraction_by=fraction_by,
        dis=dis,
        scores=scores[0],
        ihsn_scores=scores[1],
        _tables=_Tables(run, packed, msus, scored, exponent, tuple(spreads), weights),
    )


def _choose_fraction(
    policy: Policy, fraction: float | None, count: Callable[[], int]
) -> tuple[float, Literal["call", "policy", "default"]]:
    """The sampling fraction of the call, else of the policy, else the default; and its origin."""
    if fraction is not None:
        return fraction, "call"
    sampling = sampling_fraction(policy, count)
    return (FRACTION, "default") if sampling is None else (sampling, "policy")


def _sum_by_attribute(runner: StatementRunner, msus: exp.Table, weight: exp.Expr, attributes: int) -> Collection[float]:
    """By attribute, the sum of the weights of the MSUs that have it."""
    contribution = fragment("coalesce(sum(:weight) FILTER (WHERE (subset & :bit::BIGINT) <> 0)::DOUBLE, 0)")
    contributions = [as_column(contribution(weight=weight, bit=1 << j), f"c{j}") for j in range(attributes)]
    query = template("SELECT :contributions FROM :msus")(contributions=contributions, msus=msus)
    return runner.fetch_figures(query).values()


def _count_by(runner: StatementRunner, query: exp.Select) -> dict[int, int]:
    return dict(sorted(runner.fetch_rows(query, [])))


def _find_msus(
    runner: StatementRunner, target: exp.Table, packed: PackedCombinations, attributes: int, size: int
) -> exp.Table:
    """Find the MSUs, the smallest first."""
    single_values = template("""
        SELECT r.id, :subset::BIGINT AS subset, 1 AS size
        FROM :combinations AS r
        JOIN :numbers AS v ON :value IS NOT DISTINCT FROM v.value
        WHERE v.code = 0
    """)
    singles = [
        single_values(subset=1 << i, combinations=packed.combinations, numbers=numbers, value=col(quasi_column(i), "r"))
        for i, numbers in enumerate(packed.numbers)
    ]
    msus = runner.create_table(target, union_all(*singles))
    for subset_size in range(2, size + 1):
        for subsets in packed.batches(subsets_of_size(attributes, subset_size)):
            runner.add(msus, _larger_uniques(packed.keys, packed.packing, subsets, msus))
    return msus


def compute_dis(uniques: int, in_pairs: int, fraction: float) -> float | None:
    """DIS, the probability that a match with a unique row is correct: U·π / (U·π + P·(1 − π)); None without uniques.

    >>> round(compute_dis(4, 6, 0.01), 6)
    0.006689
    """
    correct = uniques * fraction
    return correct / math.fsum((correct, in_pairs * (1 - fraction))) if uniques else None
