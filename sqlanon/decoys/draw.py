"""Filling the classes that stay too small with decoys, rows of nobody, once the search is done.

A class of 1 to k − 1 rows is *vulnerable*. Its decoys have its labels; each of their other values is that of a *donor*:
a kept row of the smallest class above that has at least k of them. Levels are raised one step at a time, all attributes
together. A donor is drawn for each column by itself, so that a decoy is nobody's row.

Source: the post-analytics of the IAB's paper on anonymizing its data, which inject decoys (see ``docs/decoys.md``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from sqlanon.coding import KNOWN, Coded, Column, Levels, level_codes
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.expressions import (
    Namer,
    aliased,
    all_columns,
    all_of,
    anonymous,
    cast,
    col,
    least,
    named,
    number,
    or_zero,
    select,
    star,
    subquery,
    total,
    union_all,
    where,
)
from sqlanon.frequency.sets import ClassSpace
from sqlanon.measures import Figures
from sqlanon.recode.recoding import FullDomainRecoding, as_they_are, in_order
from sqlanon.recode.stage import Recoding
from sqlanon.requirements.base import CLASS_SIZE
from sqlanon.search.classes import KEPT, judged
from sqlanon.search.full_domain import checker, measure_of
from sqlanon.search.preparation import SearchInput

CLASS, SIZE, STEP, FIRST, DONORS, RANK = "class", "size", "step", "first", "donors", "rank"


@dataclass(frozen=True)
class WithDecoys:
    """How a release with decoys is made.

    Attributes
    ----------
    real:
        How its real rows are made: nothing is suppressed but unknown values.
    decoys:
        The decoys, made by `decoys`: codes for labels and ``value_j`` for the rest, as in the recoding's rows.
    nobodys:
        The columns, last of all, that no decoy has a value in.
    """

    real: FullDomainRecoding
    decoys: exp.Table
    nobodys: int = 0

    @property
    def columns(self) -> tuple[Column, ...]:
        """What is released."""
        return self.real.columns

    def released_type(self, column: Column, own: str) -> str:
        """The type of a column in the release; a decoy has no other."""
        return self.real.released_type(column, own)

    def label_counts(self) -> exp.Select:
        """One row: how many labels each attribute has in the release."""
        return self.real.label_counts()

    def with_column(self, column: Column) -> WithDecoys:
        """The same, with one more column of the source: NULL in decoys, which are nobody."""
        return replace(self, real=self.real.with_column(column), nobodys=self.nobodys + 1)

    def of_rows(self, source: exp.Table) -> WithDecoys:
        """The same, of other rows of the source."""
        return replace(self, real=self.real.of_rows(source))

    def class_keys(self) -> dict[int, str]:
        """By attribute below its top, its code."""
        return self.real.class_keys()

    def rows(self) -> exp.Select:
        """The real rows in the order of the source, then the decoys; see `FullDomainRecoding.rows`."""
        real, drawn = self.real.rows(), len(self.columns) - self.nobodys
        there = [col(name) for name in self.class_keys().values()]
        theirs: list[exp.Expr] = [*there]
        theirs += [col(f"value_{j}") if j < drawn else exp.null() for j in as_they_are(self.real)]
        return star(subquery(union_all(real, select(theirs, self.decoys.copy())), "u"))

    def labelled(self, rows: exp.Expr) -> exp.Select:
        """The release, of `rows`."""
        return self.real.labelled(rows)

    def select(self, shuffled: bool = True) -> exp.Select:
        """The statement that makes the release: real rows and decoys in one random order."""
        return self.labelled(in_order(self.rows(), shuffled))

    def decoy_rows(self) -> exp.Select:
        """The decoys alone, as they are released: for the holder's eyes."""
        return self.labelled(subquery(star(self.decoys.copy()), "r"))


def real_classes(space: ClassSpace, levels: Levels, attributes: Sequence[Coded]) -> exp.Select:
    """The classes of a generalization without unknown values, and where they are further up.

    Makes ``class`` (its number), ``size`` (its rows), ``kept``; for each attribute ``i`` below its top its code
    ``code_i``, and the codes ``up_i_l`` at each higher level ``l`` below the top.
    """
    codes: list[exp.Expr] = [named(col(f"q{i}_l{level}"), f"code_{i}") for i, level in space.below_top(levels)]
    query = exp.Select().from_(subquery(judged(space, levels, codes), "j"), copy=False)
    output: list[exp.Expr] = [named(exp.Window(this=exp.RowNumber()), CLASS)]
    output += [named(col(CLASS_SIZE, "j"), SIZE), named(col(KEPT, "j"), KEPT)]
    for i, level in space.below_top(levels):
        output.append(col(f"code_{i}", "j"))
        above = range(level + 1, attributes[i].height)
        if above:
            on = col(f"code_{level}", f"u{i}").eq(col(f"code_{i}", "j"))
            query = query.join(subquery(level_codes(attributes[i], level), f"u{i}"), on=on, copy=False)
        output += [named(col(f"code_{upper}", f"u{i}"), f"up_{i}_{upper}") for upper in above]
    if space.unknown:
        query = query.where(col(KNOWN, "j"), copy=False)
    return query.select(*output, copy=False)


def vulnerable(classes: exp.Table, k: int) -> exp.Select:
    """One row: how many vulnerable ``classes`` there are, their rows (``real_rows``), the ``smallest``, the
    ``decoys`` that fill them, and the ``smallest_kept`` class."""
    short = ~col(KEPT)
    missing = number(k) - col(SIZE)
    return select(
        [
            named(where(exp.Count(this=exp.Star()), short), "classes"),
            named(or_zero(total(col(SIZE), short.copy())), "real_rows"),
            named(where(exp.Min(this=col(SIZE)), short.copy()), "smallest"),
            named(or_zero(total(missing, short.copy())), "decoys"),
            named(where(exp.Min(this=col(SIZE)), col(KEPT)), "smallest_kept"),
        ],
        classes.copy(),
    )


def donor_classes(classes: exp.Table, levels: Levels, heights: Levels, k: int) -> exp.Query:
    """For each class and each number of steps up: the class there, where it has at least k kept rows.

    Makes ``class``, ``kept``, ``step``; of the class that many steps up ``first`` (with ``step``, its name) and
    ``donors`` (its kept rows). At the last step it is the whole table.
    """
    spans = [(i, level, height) for i, (level, height) in enumerate(zip(levels, heights, strict=True))]
    each = []
    for step in range(1, max((height - level for _, level, height in spans), default=0) + 1):
        keys = [f"up_{i}_{level + step}" for i, level, height in spans if level + step < height]
        own: exp.Expr = exp.If(this=col(KEPT), true=col(CLASS))
        rows: exp.Expr = exp.If(this=col(KEPT), true=col(SIZE))
        inner = select(
            [
                col(CLASS),
                col(KEPT),
                named(number(step), STEP),
                named(exp.Window(this=exp.Min(this=own), partition_by=[col(key) for key in keys]), FIRST),
                named(
                    cast(exp.Window(this=exp.Sum(this=rows), partition_by=[col(key) for key in keys]), "BIGINT"), DONORS
                ),
            ],
            classes.copy(),
        )
        enough = col(DONORS) >= number(k)
        each.append(star(subquery(inner, "s")).where(enough, copy=False))
    return union_all(*each)


def decoy_targets(steps: exp.Table) -> exp.Select:
    """The donors of each vulnerable class: those of the fewest steps. ``class``, ``step``, ``first``, ``donors``."""
    nearest: list[exp.Expr] = [
        named(exp.Min(this=col(STEP)), STEP),
        *(named(anonymous("ARG_MIN", col(name), col(STEP)), name) for name in (FIRST, DONORS)),
    ]
    query = select([col(CLASS), *nearest], steps.copy(), [col(CLASS)])
    return query.where(~col(KEPT), copy=False)


def sources(steps: exp.Table, wanted: exp.Table, classes: exp.Table, keys: Sequence[str]) -> exp.Select:
    """The kept classes that donors are of: their codes, with the ``step`` and ``first`` of the class above."""
    output: list[exp.Expr] = [col(STEP, "s"), col(FIRST, "s"), *(col(key, "c") for key in keys)]
    query = select(output, aliased(steps, "s"))
    query = query.join(aliased(classes, "c"), on=_equal("s", "c", [CLASS]), copy=False)
    query = query.join(aliased(wanted, "w"), on=_equal("s", "w", [STEP, FIRST]), join_type="semi", copy=False)
    return query.where(col(KEPT, "s"), copy=False)


def picks(classes: exp.Table, wanted: exp.Table, k: int, keys: Sequence[str], values: Sequence[int]) -> exp.Select:
    """A row a decoy: its codes, ``step`` and ``first`` of its donors, and for each column ``j`` that is released as it
    is ``pick_j``: which of them it has its value from, 1 to their number, each as likely as any other."""
    missing = number(k) - col(SIZE, "c")
    codes: list[exp.Expr] = [col(key, "c") for key in keys]
    each = anonymous("UNNEST", anonymous("RANGE", missing))
    inner = select(
        [*codes, *(col(name, "w") for name in (STEP, FIRST, DONORS)), named(each, "decoy")], aliased(classes, "c")
    ).join(aliased(wanted, "w"), on=_equal("c", "w", [CLASS]), copy=False)
    output: list[exp.Expr] = [col(name) for name in (*keys, STEP, FIRST)]
    output += [named(_one_of(DONORS), f"pick_{j}") for j in values]
    return select(output, subquery(inner, "p"))


def _one_of(count: str) -> exp.Expr:
    """A whole number from 1 to a count."""
    drawn = anonymous("FLOOR", anonymous("RANDOM") * col(count))
    return least(cast(drawn, "BIGINT") + 1, col(count))


def donated(
    rows: exp.Select, kept: exp.Table, picked: exp.Table, keys: Sequence[str], values: Sequence[int]
) -> exp.Select:
    """The values of the donors that were picked: ``step``, ``first``, ``rank``, and ``value_j``.

    The source is read once. Which rank a donor has is left to the engine: each is as likely to be picked.
    """
    place: list[exp.Expr] = [col(STEP, "s"), col(FIRST, "s")]
    rank = exp.Window(this=exp.RowNumber(), partition_by=[one.copy() for one in place])
    ranked = select([*place, named(rank, RANK), *(col(f"value_{j}", "r") for j in values)], subquery(rows, "r"))
    ranked = ranked.join(aliased(kept, "s"), on=_equal("r", "s", keys), copy=False)
    wanted = [select([col(STEP), col(FIRST), named(col(f"pick_{j}"), RANK)], picked.copy()) for j in values]
    query = select([all_columns("d")], subquery(ranked, "d"))
    on = _equal("d", "p", [STEP, FIRST, RANK])
    return query.join(subquery(union_all(*wanted), "p"), on=on, join_type="semi", copy=False)


def decoys(picked: exp.Table, given: exp.Table | None, keys: Sequence[str], values: Sequence[int]) -> exp.Select:
    """The decoys: codes for labels, and ``value_j`` for each column that is released as it is."""
    query = exp.Select().from_(aliased(picked, "p"), copy=False)
    output: list[exp.Expr] = [col(key, "p") for key in keys]
    for j in values:
        assert given is not None
        rank = col(f"pick_{j}", "p").eq(col(RANK, f"d{j}"))
        on = all_of([_equal("p", f"d{j}", [STEP, FIRST]), rank])
        query = query.join(aliased(given, f"d{j}"), on=on, copy=False)
        output.append(col(f"value_{j}", f"d{j}"))
    return query.select(*output, copy=False)


def _equal(left: str, right: str, names: Sequence[str]) -> exp.Expr:
    return all_of(col(name, left).eq(col(name, right)) for name in names)


@dataclass(frozen=True)
class Decoys:
    """The decoys of a release.

    Attributes
    ----------
    rows:
        How many there are.
    classes:
        The classes that they fill up to k rows.
    smallest_class_without:
        What k is without them: the real rows of the smallest class that is released.
    """

    rows: int
    classes: int
    smallest_class_without: int

    def to_dict(self) -> dict[str, int]:
        """Ready for JSON."""
        return {"rows": self.rows, "classes": self.classes, "smallest_class_without": self.smallest_class_without}

    def claimed(self) -> dict[str, Any]:
        """What the manifest says of them: how many of the released rows they are. How few real rows a class has, and
        how many such classes there are, changes with one person's value where what is released may be the same."""
        return {"decoys": self.rows}


@dataclass(frozen=True)
class DecoyResult:
    """A recoding with its vulnerable classes filled.

    Attributes
    ----------
    decoys:
        How many there are.
    recoding:
        What is released, without the decoys: its figures are of the real rows, those of the filled classes with their
        generalized values.
    score:
        The score of these figures; the bound of the search, which counted such rows as suppressed, still holds.
    statement:
        How the release is made; None where no class had to be filled.
    """

    decoys: Decoys
    recoding: Recoding
    score: float
    statement: WithDecoys | None


def fill(steps: StatementRunner, prepared: SearchInput, recoding: Recoding, score: float) -> DecoyResult:
    """Draw the decoys of a generalization. They are drawn once, and kept in the work schema.

    Makes ``decoys``; where no class has to be filled, ``decoy_classes`` alone.
    """
    plain, k = recoding.statement, prepared.requirements.k
    assert isinstance(plain, FullDomainRecoding)  # policies with decoys ask for nothing else
    if steps.dry and not prepared.sets.space.below_top(
        plain.levels
    ):  # nothing to show: one class of all rows is filled
        return DecoyResult(Decoys(0, 0, recoding.smallest_class), recoding, score, None)
    missing, classes = count(steps, prepared, plain)
    if not missing["classes"] and not steps.dry:
        return DecoyResult(Decoys(0, 0, recoding.smallest_class), recoding, score, None)
    draw(steps, prepared.marginals.heights, plain, classes, k, prepared.work)
    statement = WithDecoys(replace(plain, suppressed=None), prepared.work("decoys"))
    decoys = Decoys(missing["decoys"], missing["classes"], missing["smallest"])
    if steps.dry:
        return DecoyResult(decoys, replace(recoding, statement=statement), score, statement)
    figures = figures_of_all(steps, prepared, plain)
    warning = f"{decoys.rows:,} of the released rows are decoys, in {decoys.classes:,} classes, and k counts them: "
    warning += f"without them, the smallest class has {decoys.smallest_class_without:,} of {k:,} rows"
    filled = replace(
        recoding,
        figures=figures,
        smallest_class=k,
        statement=statement,
        warnings=(*recoding.warnings, warning, *_lost(prepared)),
    )
    return DecoyResult(decoys, filled, measure_of(prepared).score(plain.levels, figures), statement)


def _lost(prepared: SearchInput) -> list[str]:
    if prepared.policy.catalog is not None:
        return []
    return ["there is no catalog: which rows are decoys is known as long as this result is, and to nobody later"]


def count(steps: StatementRunner, prepared: SearchInput, plain: FullDomainRecoding) -> tuple[dict[str, int], exp.Table]:
    """What is to be filled, by `decoys.statements.vulnerable`, and the table of all classes: ``decoy_classes``."""
    space = prepared.sets.at(plain.levels)
    classes = steps.make(prepared.work("decoy_classes"), real_classes(space, plain.levels, plain.attributes))
    return dict(steps.figures(vulnerable(classes, prepared.requirements.k))), classes


def figures_of_all(steps: StatementRunner, prepared: SearchInput, plain: FullDomainRecoding) -> Figures:
    """The figures of the real rows, where no class is too small: only unknown values are suppressed."""
    bare = replace(prepared.requirements, classes=())
    everybody = replace(prepared, sets=prepared.sets.with_requirements(bare))
    measure = measure_of(prepared)
    return checker(steps.engine, everybody, measure, prepared.marginals.rows)(plain.levels)


def draw(
    steps: StatementRunner, heights: tuple[int, ...], plain: FullDomainRecoding, classes: exp.Table, k: int, work: Namer
) -> exp.Table:
    """Draw them, in the engine: one pass over the source, for the rows that values are taken from.

    Makes ``decoys``; what is made on the way is dropped.
    """
    keys, values = list(plain.class_keys().values()), as_they_are(plain)
    ways = steps.make(work("decoy_ways"), donor_classes(classes, plain.levels, heights, k))
    targets = steps.make(work("decoy_targets"), decoy_targets(ways))
    picked = steps.make(work("decoy_picks"), picks(classes, targets, k, keys, values))
    made, given = [classes, ways, targets, picked], None
    if values:
        kept = steps.make(work("decoy_sources"), sources(ways, targets, classes, keys))
        given = steps.make(work("decoy_donors"), donated(plain.rows(), kept, picked, keys, values))
        made += [kept, given]
    target = steps.make(work("decoys"), decoys(picked, given, keys, values))
    steps.drop(*made)
    return target
