"""Filling the classes that stay too small with decoys, once the search is done.

Source: the post-analytics of the IAB's paper on anonymizing its data, which inject decoys (see ``docs/decoys.md``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from sqlanon.decoys import statements as dq
from sqlanon.expressions import Namer, drop_table
from sqlanon.measures import Figures
from sqlanon.pipeline import Found
from sqlanon.recode.full_domain import checker, measure_of
from sqlanon.recode.recoding import Recoding, as_they_are
from sqlanon.search.classes import ClassSpace
from sqlanon.search.preparation import Prepared
from sqlanon.statement_runner import Steps


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
class Filled:
    """What was found, with its vulnerable classes filled.

    Attributes
    ----------
    decoys:
        How many there are.
    found:
        What is released: its score is that of the real rows, those of the filled classes with their generalized
        values; its bound is still that of the search, which counted these as suppressed.
    score_without:
        The score that the search found.
    recoding:
        How the release is made; None where no class had to be filled.
    """

    decoys: Decoys
    found: Found
    score_without: float
    recoding: dq.WithDecoys | None


def fill(steps: Steps, prepared: Prepared, found: Found, work: Namer) -> Filled:
    """Draw the decoys of what a full-domain strategy found. They are drawn once, and kept in the work schema.

    Makes ``decoys``; where no class has to be filled, ``decoy_classes`` alone.
    """
    chosen, k = found.chosen, prepared.requirements.k
    plain = chosen.recoding
    assert isinstance(plain, Recoding)  # policies with decoys ask for nothing else
    missing, classes = count(steps, prepared, plain, work)
    if not missing["classes"]:
        return Filled(Decoys(0, 0, chosen.smallest_class), found, found.score, None)
    draw(steps, prepared.marginals.heights, plain, classes, k, work)
    recoding = dq.WithDecoys(replace(plain, suppressed=None), work("decoys"))
    told = Decoys(missing["decoys"], missing["classes"], missing["smallest"])
    figures = figures_of_all(steps, prepared, plain)
    warning = f"{told.rows:,} of the released rows are decoys, in {told.classes:,} classes, and k counts them: "
    warning += f"without them, the smallest class has {told.smallest_class_without:,} of {k:,} rows"
    filled = replace(
        chosen,
        figures=figures,
        smallest_class=k,
        recoding=recoding,
        warnings=(*chosen.warnings, warning, *_lost(prepared)),
    )
    score = measure_of(prepared).score(plain.levels, figures)
    return Filled(told, replace(found, chosen=filled, score=score), found.score, recoding)


def _lost(prepared: Prepared) -> list[str]:
    if prepared.policy.catalog is not None:
        return []
    return ["there is no catalog: which rows are decoys is known as long as this result is, and to nobody later"]


def count(steps: Steps, prepared: Prepared, plain: Recoding, work: Namer) -> tuple[dict[str, int], exp.Table]:
    """What is to be filled, by `decoys.statements.vulnerable`, and the table of all classes: ``decoy_classes``."""
    space = prepared.sets.at(plain.levels)
    classes = steps.make(work("decoy_classes"), dq.real_classes(space, plain.levels, plain.attributes))
    return dict(steps.figures(dq.vulnerable(classes, prepared.requirements.k))), classes


def figures_of_all(steps: Steps, prepared: Prepared, plain: Recoding) -> Figures:
    """The figures of the real rows, where no class is too small: only unknown values are suppressed."""
    bare = replace(prepared.requirements, classes=())
    everybody = replace(prepared, requirements=bare, sets=prepared.sets.with_requirements(bare))
    measure = measure_of(prepared)
    return checker(steps.engine, everybody, measure, prepared.marginals.rows)(plain.levels)


def draw(steps: Steps, heights: tuple[int, ...], plain: Recoding, classes: exp.Table, k: int, work: Namer) -> exp.Table:
    """Draw them, in the engine: one pass over the source, for the rows that values are taken from.

    Makes ``decoys``; what is made on the way is dropped.
    """
    keys, values = list(plain.class_keys().values()), as_they_are(plain)
    ways = steps.make(work("decoy_ways"), dq.donor_classes(classes, plain.levels, heights, k))
    targets = steps.make(work("decoy_targets"), dq.targets(ways))
    picked = steps.make(work("decoy_picks"), dq.picks(classes, targets, k, keys, values))
    made, given = [classes, ways, targets, picked], None
    if values:
        kept = steps.make(work("decoy_sources"), dq.sources(ways, targets, classes, keys))
        given = steps.make(work("decoy_donors"), dq.donated(plain.rows(), kept, picked, keys, values))
        made += [kept, given]
    target = steps.make(work("decoys"), dq.decoys(picked, given, keys, values))
    if steps.shown is None:
        for one in made:
            steps.engine.execute(drop_table(one))
    return target


def decoy_statements(steps: Steps, space: ClassSpace, plain: Recoding, k: int, work: Namer) -> dq.WithDecoys:
    """The statements of `fill`, to be shown; and how the release is made then."""
    classes = steps.make(work("decoy_classes"), dq.real_classes(space, plain.levels, plain.attributes))
    steps.figures(dq.vulnerable(classes, k))
    draw(steps, space.heights, plain, classes, k, work)
    return dq.WithDecoys(replace(plain, suppressed=None), work("decoys"))
