"""Add decoys (invented rows) to classes that are too small after the search.

A class of 1 to k − 1 rows is *vulnerable*. Its decoys have its labels. Each of their other values comes from a *donor*,
a kept row of the smallest class at higher levels that has at least k kept rows. All attributes are raised together, one
level at a time. Each column has its own donor, so that a decoy is not the row of a person.

Source: the post-analytics of the IAB's paper on anonymizing its data, which inject decoys
(see ``docs/explanation/decoys.md``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from sqlglot import exp

from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.frequency.sets import ClassSpace
from sqlanon.frequency.suppression_limit import SuppressionLimit
from sqlanon.measures import Figures
from sqlanon.recode.full_domain import FullDomainRecoding, unchanged_columns
from sqlanon.recode.stage import Recoding
from sqlanon.strategies.lattice.checker import Checker, policy_measure
from sqlanon.strategies.lattice.classes import evaluated_classes
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.strategies.recoding import ClassRecoding
from sqlanon.support.coding import CodedAttribute, Levels, code_column, level_codes
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
class DrawnDecoys:
    """The rows of a recoding that suppresses only unknown values, and then the decoys."""

    decoys: exp.Table  # codes for labels and ``value_j`` for other columns, as in the recoding's rows
    column_count: int  # the columns of decoys; further columns of the source are NULL in them
    types: ClassVar[Mapping[str, str]] = {}

    def rows(self, recoding: ClassRecoding) -> exp.Select:
        assert isinstance(recoding, FullDomainRecoding)  # policies with decoys need a full-domain strategy
        columns: list[exp.Expr] = [col(name) for name in recoding.class_keys().values()]
        columns += [col(f"value_{j}") if j < self.column_count else exp.null() for j in unchanged_columns(recoding)]
        return select_star(subquery(union_all(recoding.rows(), select(columns, self.decoys.copy())), "u"))


def _real_classes(space: ClassSpace, levels: Levels, attributes: Sequence[CodedAttribute]) -> exp.Select:
    """The classes of a generalization without unknown values, with their codes at higher levels.

    Columns: ``class_id``, ``class_size`` (rows), ``kept``; for each attribute ``i`` below its top its code ``code_i``,
    and its codes ``up_i_l`` at each higher level ``l`` below the top.
    """
    levels_below_top = space.below_top(levels)
    codes: list[exp.Expr] = [as_column(col(code_column(i, level)), f"code_{i}") for i, level in levels_below_top]
    query = template("SELECT row_number() OVER () AS class_id, j.class_size, j.kept FROM :evaluated AS j")(
        evaluated=evaluated_classes(space, levels, codes)
    )
    for i, level in levels_below_top:
        query = query.select(col(f"code_{i}", "j"), copy=False)
        if upper_levels := range(level + 1, attributes[i].height):
            on = col(f"code_{level}", f"u{i}").eq(col(f"code_{i}", "j"))
            query = query.join(subquery(level_codes(attributes[i], level), f"u{i}"), on=on, copy=False)
            upper_codes = [as_column(col(f"code_{upper}", f"u{i}"), f"up_{i}_{upper}") for upper in upper_levels]
            query = query.select(*upper_codes, copy=False)
    return query.where(col("known", "j"), copy=False) if space.unknown else query


# One row: the vulnerable classes, their rows, the smallest of them, the decoys that fill them, and the smallest kept
# class.
_VULNERABLE_CLASSES = template("""
    SELECT
        count(*) FILTER (WHERE NOT kept) AS classes,
        coalesce((sum(class_size) FILTER (WHERE NOT kept))::BIGINT, 0) AS real_rows,
        min(class_size) FILTER (WHERE NOT kept) AS smallest,
        coalesce((sum(:k - class_size) FILTER (WHERE NOT kept))::BIGINT, 0) AS decoys,
        min(class_size) FILTER (WHERE kept) AS smallest_kept
    FROM :classes
""")
_CANDIDATES_ABOVE = template("""
    SELECT *
    FROM (
        SELECT
            class_id,
            kept,
            :step AS step,
            min(CASE WHEN kept THEN class_id END) OVER (PARTITION BY :keys) AS upper_class,
            (sum(CASE WHEN kept THEN class_size END) OVER (PARTITION BY :keys))::BIGINT AS donor_count
        FROM :classes
    ) AS s
    WHERE donor_count >= :k
""")


def _donor_candidates(classes: exp.Table, levels: Levels, heights: Levels, k: int) -> exp.Query:
    """The class at each number of steps above each class, if it has at least k kept rows.

    Columns: ``class_id``, ``kept``, ``step``; and of the class that many steps up ``upper_class`` (its id, the least
    ``class_id`` of its kept classes) and ``donor_count`` (its kept rows). At the last step it is the whole table.
    """
    spans = [(i, level, height) for i, (level, height) in enumerate(zip(levels, heights, strict=True))]
    candidates = []
    for step in range(1, max((height - level for _, level, height in spans), default=0) + 1):
        keys = [col(f"up_{i}_{level + step}") for i, level, height in spans if level + step < height]
        candidates.append(_CANDIDATES_ABOVE(step=step, keys=keys, classes=classes, k=k))
    return union_all(*candidates)


# The donors of each vulnerable class: the candidate with the fewest steps.
_TARGETS = template("""
    SELECT
        class_id,
        min(step) AS step,
        arg_min(upper_class, step) AS upper_class,
        arg_min(donor_count, step) AS donor_count
    FROM :candidates
    WHERE NOT kept
    GROUP BY class_id
""")
# The kept classes of the donors: their codes, with the ``step`` and ``upper_class`` of the class above.
_DONOR_CLASSES = template("""
    SELECT s.step, s.upper_class, :keys
    FROM :candidates AS s
    JOIN :classes AS c ON s.class_id = c.class_id
    SEMI JOIN :targets AS t ON s.step = t.step AND s.upper_class = t.upper_class
    WHERE s.kept
""")
# One row for each decoy: its codes, the ``step`` and ``upper_class`` of its donors, and for each unchanged column ``j``
# ``pick_j``, the rank of the donor of its value: uniform from 1 to their number.
_PICKS = template("""
    SELECT :keys, step, upper_class, :picks
    FROM (
        SELECT :class_keys, t.step, t.upper_class, t.donor_count, :each_missing_row AS decoy
        FROM :classes AS c
        JOIN :targets AS t ON c.class_id = t.class_id
    ) AS p
""")
# The values of the picked donors, in one pass over the source. The engine may rank donors in any order: all ranks are
# equally likely to be picked.
_DONORS = template("""
    SELECT d.*
    FROM (
        SELECT
            s.step,
            s.upper_class,
            row_number() OVER (PARTITION BY s.step, s.upper_class) AS donor_rank,
            :values
        FROM :rows AS r
        JOIN :donor_classes AS s ON :same_class
    ) AS d
    SEMI JOIN :picked_donors AS p
        ON d.step = p.step AND d.upper_class = p.upper_class AND d.donor_rank = p.donor_rank
""")


def _combine_donor_values(
    picks: exp.Table, donors: exp.Table | None, keys: Sequence[str], value_columns: Sequence[int]
) -> exp.Select:
    """The decoys: codes for labels, and ``value_j`` for each unchanged column."""
    query = template("SELECT :codes FROM :picks AS p")(codes=[col(key, "p") for key in keys], picks=picks)
    for j in value_columns:
        assert donors is not None
        alias = f"d{j}"
        on = all_of(col(name, "p").eq(col(name, alias)) for name in ("step", "upper_class"))
        on = exp.and_(on, col(f"pick_{j}", "p").eq(col("donor_rank", alias)), copy=False)
        query = query.join(aliased(donors, alias), on=on, copy=False).select(col(f"value_{j}", alias), copy=False)
    return query


@dataclass(frozen=True)
class Decoys:
    """Figures of the decoys of a release."""

    rows: int
    classes: int  # classes filled up to k rows
    smallest_class_without: int  # real rows of the smallest released class

    def to_dict(self) -> dict[str, int]:
        """The figures for JSON."""
        return {"rows": self.rows, "classes": self.classes, "smallest_class_without": self.smallest_class_without}

    def manifest_values(self) -> dict[str, Any]:
        """Only the total: the number of filled classes and their real sizes can reveal one person's value."""
        return {"decoys": self.rows}


@dataclass(frozen=True)
class DecoyResult:
    """A recoding with its vulnerable classes filled; `DrawnDecoys` if there are any."""

    decoys: Decoys
    recoding: Recoding  # figures of the real rows, those of the filled classes with their generalized values
    score: float  # of these figures; the bound of the search, which counted such rows as suppressed, still holds

    def decoy_rows(self) -> exp.Select | None:
        """The released decoys alone, for the data holder; None if no class is vulnerable."""
        statement = self.recoding.statement
        if not isinstance(statement.drawn, DrawnDecoys):
            return None
        return statement.with_labels(subquery(select_star(statement.drawn.decoys.copy()), "r"))


def add_decoys(runner: StatementRunner, search_input: SearchInput, recoding: Recoding, score: float) -> DecoyResult:
    """Draw the decoys of a generalization, once, into the work schema.

    Creates ``decoys``, or ``decoy_classes`` alone if no class is vulnerable.
    """
    plain, k = recoding.statement, search_input.requirements.k
    assert isinstance(plain, FullDomainRecoding)  # policies with decoys need a full-domain strategy
    unfilled = DecoyResult(Decoys(0, 0, recoding.smallest_class), recoding, score)
    # A dry run with one class of all rows has no statements to show.
    if runner.dry and not search_input.frequency_sets.space.below_top(plain.levels):
        return unfilled
    vulnerable, classes = count_vulnerable_classes(runner, search_input, plain)
    if not vulnerable["classes"] and not runner.dry:
        return unfilled
    table = draw_decoys(runner, search_input.marginals.heights, plain, classes, k, search_input.work)
    statement = replace(plain, suppressed=None, drawn=DrawnDecoys(table, len(plain.columns)))
    decoys = Decoys(vulnerable["decoys"], vulnerable["classes"], vulnerable["smallest"])
    if runner.dry:
        return DecoyResult(decoys, replace(recoding, statement=statement), score)
    figures = unsuppressed_figures(runner, search_input, plain)
    warning = f"{decoys.rows:,} of the released rows are decoys, in {decoys.classes:,} classes. k counts them; "
    warning += f"without them, the smallest class has {decoys.smallest_class_without:,} of {k:,} rows"
    warnings = [*recoding.warnings, Notice(warning, k * decoys.classes - decoys.rows)]
    if search_input.policy.catalog is None:
        warnings.append(Notice("without a catalog, only this result knows which rows are decoys"))
    filled = replace(recoding, figures=figures, smallest_class=k, statement=statement, warnings=tuple(warnings))
    return DecoyResult(decoys, filled, policy_measure(search_input).score(plain.levels, figures))


def count_vulnerable_classes(
    runner: StatementRunner, search_input: SearchInput, plain: FullDomainRecoding
) -> tuple[dict[str, int], exp.Table]:
    """Count the classes with fewer than k rows; also return the table of all classes, ``decoy_classes``."""
    space = search_input.frequency_sets.class_space(plain.levels)
    classes = runner.create_table(
        search_input.work("decoy_classes"), _real_classes(space, plain.levels, plain.attributes)
    )
    return dict(runner.fetch_figures(_VULNERABLE_CLASSES(k=search_input.requirements.k, classes=classes))), classes


def unsuppressed_figures(runner: StatementRunner, search_input: SearchInput, plain: FullDomainRecoding) -> Figures:
    """The figures of the real rows if every class is kept: only unknown values are suppressed."""
    unconditional = replace(search_input.requirements, class_conditions=())
    limit = SuppressionLimit(search_input.marginals.rows)
    unsuppressed_input = replace(
        search_input, frequency_sets=search_input.frequency_sets.with_requirements(unconditional), limit=limit
    )
    return Checker(runner.engine, unsuppressed_input, policy_measure(search_input))(plain.levels)


def draw_decoys(
    runner: StatementRunner, heights: Levels, plain: FullDomainRecoding, classes: exp.Table, k: int, work: Namer
) -> exp.Table:
    """Draw decoys in the engine, with one pass over the source for the donors.

    Creates ``decoys``, and drops its intermediate tables.
    """
    keys, value_columns = list(plain.class_keys().values()), unchanged_columns(plain)
    class_keys = [col(key, "c") for key in keys]
    query: exp.Query = _donor_candidates(classes, plain.levels, heights, k)
    donor_candidates = runner.create_table(work("decoy_donor_candidates"), query)
    targets = runner.create_table(work("decoy_targets"), _TARGETS(candidates=donor_candidates))
    random_rank = fragment("least(:offset::BIGINT + 1, donor_count)")(
        offset=anonymous("FLOOR", anonymous("RANDOM") * col("donor_count"))
    )
    query = _PICKS(
        keys=[col(key) for key in keys],
        picks=[as_column(random_rank.copy(), f"pick_{j}") for j in value_columns],
        class_keys=class_keys,
        each_missing_row=anonymous("UNNEST", anonymous("RANGE", fragment(":k - c.class_size")(k=k))),
        classes=classes,
        targets=targets,
    )
    picks = runner.create_table(work("decoy_picks"), query)
    intermediate_tables, donors = [classes, donor_candidates, targets, picks], None
    if value_columns:
        query = _DONOR_CLASSES(keys=class_keys, candidates=donor_candidates, classes=classes, targets=targets)
        donor_classes = runner.create_table(work("decoy_donor_classes"), query)
        picked_donors = template("SELECT step, upper_class, :pick AS donor_rank FROM :picks")
        query = _DONORS(
            values=[col(f"value_{j}", "r") for j in value_columns],
            rows=plain.rows(),
            donor_classes=donor_classes,
            same_class=all_of(col(key, "r").eq(col(key, "s")) for key in keys),
            picked_donors=union_all(*(picked_donors(pick=col(f"pick_{j}"), picks=picks) for j in value_columns)),
        )
        donors = runner.create_table(work("decoy_donors"), query)
        intermediate_tables += [donor_classes, donors]
    decoys = runner.create_table(work("decoys"), _combine_donor_values(picks, donors, keys, value_columns))
    runner.drop(*intermediate_tables)
    return decoys
