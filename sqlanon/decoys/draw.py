"""Filling the classes that stay too small with decoys, rows of nobody, once the search is done.

A class of 1 to k − 1 rows is *vulnerable*. Its decoys have its labels; each of their other values is that of a *donor*:
a kept row of the smallest class above that has at least k of them. Levels are raised one step at a time, all attributes
together. A donor is drawn for each column by itself, so that a decoy is nobody's row.

Source: the post-analytics of the IAB's paper on anonymizing its data, which inject decoys
(see ``docs/explanation/decoys.md``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.frequency.sets import ClassSpace
from sqlanon.frequency.suppression_limit import SuppressionLimit
from sqlanon.measures import Figures
from sqlanon.recode.full_domain import FullDomainRecoding, unchanged_columns
from sqlanon.recode.stage import Recoding
from sqlanon.strategies.lattice.checker import Checker, policy_measure
from sqlanon.strategies.lattice.classes import judged_classes
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.strategies.recoding import order_by_class
from sqlanon.support.coding import CodedAttribute, Column, Levels, code_column, level_codes
from sqlanon.support.expressions import (
    Namer,
    aliased,
    all_of,
    anonymous,
    as_column,
    col,
    fragment,
    select,
    select_star,
    subquery,
    template,
    union_all,
)
from sqlanon.support.notices import Notice


@dataclass(frozen=True)
class RecodingWithDecoys:
    """How a release with decoys is made: a `recode.full_domain.ByClass`."""

    real: FullDomainRecoding  # its real rows: nothing is suppressed but unknown values
    decoys: exp.Table  # made by `_decoys`: codes for labels and ``value_j`` for the rest, as in the recoding's rows
    nobodys: int = 0  # the columns, last of all, that no decoy has a value in

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.real.columns

    def released_type(self, column: Column, own: str) -> str:
        return self.real.released_type(column, own)

    def label_counts(self) -> exp.Select:
        return self.real.label_counts()

    def fully_suppressed(self) -> exp.Select:
        return self.real.fully_suppressed()

    def with_column(self, column: Column) -> RecodingWithDecoys:
        """The same, with one more column of the source: NULL in decoys, which are nobody."""
        return replace(self, real=self.real.with_column(column), nobodys=self.nobodys + 1)

    def with_source(self, source: exp.Table) -> RecodingWithDecoys:
        return replace(self, real=self.real.with_source(source))

    @property
    def codes_identify_labels(self) -> bool:
        return self.real.codes_identify_labels

    def class_keys(self) -> dict[int, str]:
        return self.real.class_keys()

    def rows(self) -> exp.Select:
        """The real rows in the order of the source, then the decoys; see `FullDomainRecoding.rows`."""
        real, drawn = self.real.rows(), len(self.columns) - self.nobodys
        theirs: list[exp.Expr] = [col(name) for name in self.class_keys().values()]
        theirs += [col(f"value_{j}") if j < drawn else exp.null() for j in unchanged_columns(self.real)]
        return select_star(subquery(union_all(real, select(theirs, self.decoys.copy())), "u"))

    def with_labels(self, rows: exp.Expr) -> exp.Select:
        return self.real.with_labels(rows)

    def select(self, shuffled: bool = True) -> exp.Select:
        return order_by_class(self, self.rows()) if shuffled else self.with_labels(subquery(self.rows(), "r"))

    def decoy_rows(self) -> exp.Select:
        """The decoys alone, as they are released: for the holder's eyes."""
        return self.with_labels(subquery(select_star(self.decoys.copy()), "r"))


_REAL_CLASSES = template("""
    SELECT row_number() OVER () AS class, j.class_size AS size, j.kept AS kept
    FROM :judged AS j
""")


def _real_classes(space: ClassSpace, levels: Levels, attributes: Sequence[CodedAttribute]) -> exp.Select:
    """The classes of a generalization without unknown values, and where they are further up.

    Makes ``class`` (its number), ``size`` (its rows), ``kept``; for each attribute ``i`` below its top its code
    ``code_i``, and the codes ``up_i_l`` at each higher level ``l`` below the top.
    """
    below = space.below_top(levels)
    codes: list[exp.Expr] = [as_column(col(code_column(i, level)), f"code_{i}") for i, level in below]
    query = _REAL_CLASSES(judged=judged_classes(space, levels, codes))
    for i, level in below:
        query = query.select(col(f"code_{i}", "j"), copy=False)
        if above := range(level + 1, attributes[i].height):
            on = col(f"code_{level}", f"u{i}").eq(col(f"code_{i}", "j"))
            query = query.join(subquery(level_codes(attributes[i], level), f"u{i}"), on=on, copy=False)
            upper = [as_column(col(f"code_{one}", f"u{i}"), f"up_{i}_{one}") for one in above]
            query = query.select(*upper, copy=False)
    return query.where(col("known", "j"), copy=False) if space.unknown else query


# One row: how many vulnerable classes there are, their rows, the smallest of them, the decoys that fill them, and the
# smallest class that is kept.
_VULNERABLE = template("""
    SELECT
        count(*) FILTER (WHERE NOT kept) AS classes,
        coalesce((sum(size) FILTER (WHERE NOT kept))::BIGINT, 0) AS real_rows,
        min(size) FILTER (WHERE NOT kept) AS smallest,
        coalesce((sum(:k - size) FILTER (WHERE NOT kept))::BIGINT, 0) AS decoys,
        min(size) FILTER (WHERE kept) AS smallest_kept
    FROM :classes
""")
_DONORS_ABOVE = template("""
    SELECT *
    FROM (
        SELECT
            class,
            kept,
            :step AS step,
            min(CASE WHEN kept THEN class END) OVER (PARTITION BY :keys) AS first,
            (sum(CASE WHEN kept THEN size END) OVER (PARTITION BY :keys))::BIGINT AS donors
        FROM :classes
    ) AS s
    WHERE donors >= :k
""")


def _donor_classes(classes: exp.Table, levels: Levels, heights: Levels, k: int) -> exp.Query:
    """For each class and each number of steps up: the class there, where it has at least k kept rows.

    Makes ``class``, ``kept``, ``step``; of the class that many steps up ``first`` (with ``step``, its name) and
    ``donors`` (its kept rows). At the last step it is the whole table.
    """
    spans = [(i, level, height) for i, (level, height) in enumerate(zip(levels, heights, strict=True))]
    each = []
    for step in range(1, max((height - level for _, level, height in spans), default=0) + 1):
        keys = [col(f"up_{i}_{level + step}") for i, level, height in spans if level + step < height]
        each.append(_DONORS_ABOVE(step=step, keys=keys, classes=classes, k=k))
    return union_all(*each)


# The donors of each vulnerable class: those of the fewest steps.
_TARGETS = template("""
    SELECT class, min(step) AS step, arg_min(first, step) AS first, arg_min(donors, step) AS donors
    FROM :steps
    WHERE NOT kept
    GROUP BY class
""")
# The kept classes that donors are of: their codes, with the ``step`` and ``first`` of the class above.
_SOURCES = template("""
    SELECT s.step, s.first, :keys
    FROM :steps AS s
    JOIN :classes AS c ON s.class = c.class
    SEMI JOIN :targets AS w ON s.step = w.step AND s.first = w.first
    WHERE s.kept
""")
# A row a decoy: its codes, ``step`` and ``first`` of its donors, and for each column ``j`` that is released as it is
# ``pick_j``: which of them it has its value from, 1 to their number, each as likely as any other.
_PICKS = template("""
    SELECT :keys, step, first, :picks
    FROM (
        SELECT :class_keys, w.step, w.first, w.donors, :each AS decoy
        FROM :classes AS c
        JOIN :targets AS w ON c.class = w.class
    ) AS p
""")
_ONE_OF_DONORS = fragment("least(:drawn::BIGINT + 1, donors)")
_MISSING = fragment(":k - c.size")
# The values of the donors that were picked. The source is read once. Which rank a donor has is left to the engine: each
# is as likely to be picked.
_DONATED = template("""
    SELECT d.*
    FROM (
        SELECT s.step, s.first, row_number() OVER (PARTITION BY s.step, s.first) AS rank, :values
        FROM :rows AS r
        JOIN :sources AS s ON :same_class
    ) AS d
    SEMI JOIN :wanted AS p ON d.step = p.step AND d.first = p.first AND d.rank = p.rank
""")
_WANTED = template("SELECT step, first, :pick AS rank FROM :picked")
_DECOYS = template("SELECT :codes FROM :picked AS p")
_IS_DONOR = fragment("p.step = :step AND p.first = :first AND :pick = :rank")


def _decoys(picked: exp.Table, donated: exp.Table | None, keys: Sequence[str], values: Sequence[int]) -> exp.Select:
    """The decoys: codes for labels, and ``value_j`` for each column that is released as it is."""
    query = _DECOYS(codes=[col(key, "p") for key in keys], picked=picked)
    for j in values:
        assert donated is not None
        of = f"d{j}"
        on = _IS_DONOR(step=col("step", of), first=col("first", of), pick=col(f"pick_{j}", "p"), rank=col("rank", of))
        query = query.join(aliased(donated, of), on=on, copy=False).select(col(f"value_{j}", of), copy=False)
    return query


@dataclass(frozen=True)
class Decoys:
    """The decoys of a release."""

    rows: int  # how many there are
    classes: int  # that they fill up to k rows
    smallest_class_without: int  # what k is without them: the real rows of the smallest class that is released

    def to_dict(self) -> dict[str, int]:
        """Ready for JSON."""
        return {"rows": self.rows, "classes": self.classes, "smallest_class_without": self.smallest_class_without}

    def manifest_values(self) -> dict[str, Any]:
        """What the manifest says of them: how many of the released rows they are. How few real rows a class has, and
        how many such classes there are, changes with one person's value where what is released may be the same."""
        return {"decoys": self.rows}


@dataclass(frozen=True)
class DecoyResult:
    """A recoding with its vulnerable classes filled."""

    decoys: Decoys
    # What is released, without the decoys: its figures are of the real rows, those of the filled classes with their
    # generalized values.
    recoding: Recoding
    score: float  # of these figures; the bound of the search, which counted such rows as suppressed, still holds
    statement: RecodingWithDecoys | None  # how the release is made; None where no class had to be filled


def add_decoys(steps: StatementRunner, prepared: SearchInput, recoding: Recoding, score: float) -> DecoyResult:
    """Draw the decoys of a generalization. They are drawn once, and kept in the work schema.

    Makes ``decoys``; where no class has to be filled, ``decoy_classes`` alone.
    """
    plain, k = recoding.statement, prepared.requirements.k
    assert isinstance(plain, FullDomainRecoding)  # policies with decoys ask for nothing else
    unfilled = DecoyResult(Decoys(0, 0, recoding.smallest_class), recoding, score, None)
    if steps.dry and not prepared.frequency_sets.space.below_top(
        plain.levels
    ):  # one class of all rows: nothing to show
        return unfilled
    missing, classes = count_vulnerable_classes(steps, prepared, plain)
    if not missing["classes"] and not steps.dry:
        return unfilled
    draw_decoys(steps, prepared.marginals.heights, plain, classes, k, prepared.work)
    statement = RecodingWithDecoys(replace(plain, suppressed=None), prepared.work("decoys"))
    decoys = Decoys(missing["decoys"], missing["classes"], missing["smallest"])
    if steps.dry:
        return DecoyResult(decoys, replace(recoding, statement=statement), score, statement)
    figures = unsuppressed_figures(steps, prepared, plain)
    warning = f"{decoys.rows:,} of the released rows are decoys, in {decoys.classes:,} classes. k counts them; "
    warning += f"without them, the smallest class has {decoys.smallest_class_without:,} of {k:,} rows"
    warnings = [*recoding.warnings, Notice(warning, k * decoys.classes - decoys.rows)]
    if prepared.policy.catalog is None:
        warnings.append(Notice("without a catalog, only this result knows which rows are decoys"))
    filled = replace(recoding, figures=figures, smallest_class=k, statement=statement, warnings=tuple(warnings))
    return DecoyResult(decoys, filled, policy_measure(prepared).score(plain.levels, figures), statement)


def count_vulnerable_classes(
    steps: StatementRunner, prepared: SearchInput, plain: FullDomainRecoding
) -> tuple[dict[str, int], exp.Table]:
    """What is to be filled, and the table of all classes: ``decoy_classes``."""
    space = prepared.frequency_sets.at(plain.levels)
    classes = steps.create_table(prepared.work("decoy_classes"), _real_classes(space, plain.levels, plain.attributes))
    return dict(steps.fetch_figures(_VULNERABLE(k=prepared.requirements.k, classes=classes))), classes


def unsuppressed_figures(steps: StatementRunner, prepared: SearchInput, plain: FullDomainRecoding) -> Figures:
    """The figures of the real rows, where no class is too small: only unknown values are suppressed."""
    bare = replace(prepared.requirements, class_conditions=())
    limit = SuppressionLimit(prepared.marginals.rows)
    everybody = replace(prepared, frequency_sets=prepared.frequency_sets.with_requirements(bare), limit=limit)
    return Checker(steps.engine, everybody, policy_measure(prepared))(plain.levels)


def draw_decoys(
    steps: StatementRunner, heights: Levels, plain: FullDomainRecoding, classes: exp.Table, k: int, work: Namer
) -> exp.Table:
    """Draw them, in the engine: one pass over the source, for the rows that values are taken from.

    Makes ``decoys``; what is made on the way is dropped.
    """
    keys, values = list(plain.class_keys().values()), unchanged_columns(plain)
    of_class = [col(key, "c") for key in keys]
    ways = steps.create_table(work("decoy_ways"), _donor_classes(classes, plain.levels, heights, k))
    targets = steps.create_table(work("decoy_targets"), _TARGETS(steps=ways))
    drawn = _ONE_OF_DONORS(drawn=anonymous("FLOOR", anonymous("RANDOM") * col("donors")))
    picks = _PICKS(
        keys=[col(key) for key in keys],
        picks=[as_column(drawn.copy(), f"pick_{j}") for j in values],
        class_keys=of_class,
        each=anonymous("UNNEST", anonymous("RANGE", _MISSING(k=k))),
        classes=classes,
        targets=targets,
    )
    picked = steps.create_table(work("decoy_picks"), picks)
    made, donated = [classes, ways, targets, picked], None
    if values:
        query = _SOURCES(keys=of_class, steps=ways, classes=classes, targets=targets)
        sources = steps.create_table(work("decoy_sources"), query)
        query = _DONATED(
            values=[col(f"value_{j}", "r") for j in values],
            rows=plain.rows(),
            sources=sources,
            same_class=all_of(col(key, "r").eq(col(key, "s")) for key in keys),
            wanted=union_all(*(_WANTED(pick=col(f"pick_{j}"), picked=picked) for j in values)),
        )
        donated = steps.create_table(work("decoy_donors"), query)
        made += [sources, donated]
    target = steps.create_table(work("decoys"), _decoys(picked, donated, keys, values))
    steps.drop(*made)
    return target
