"""The main job, step by step: find the best version of a prepared source, and say how its release is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any

from sqlglot import exp

from sqlanon.coding import Levels
from sqlanon.engines.base import Engine
from sqlanon.errors import InfeasibleError
from sqlanon.expressions import Namer, create_table
from sqlanon.measures import Figures
from sqlanon.measures.base import Totals
from sqlanon.policy.strategies import STRATEGIES
from sqlanon.recode.local.cells import blanked_beside
from sqlanon.recode.local.finish import finish, suppressed_classes
from sqlanon.recode.local.task import LocalOutcome, LocalTask
from sqlanon.recode.recoding import ByClass, Recoding, masked_class
from sqlanon.recode.recoding import suppressed_classes as classes_to_suppress
from sqlanon.requirements import void_shields
from sqlanon.search import Outcome, Search
from sqlanon.search.candidate import smallest_class, whole_classes
from sqlanon.search.classes import ClassSpace
from sqlanon.search.full_domain import SearchTask, measure_of
from sqlanon.search.lattice import Progress
from sqlanon.search.population_match import PopulationMatch, mapping_of
from sqlanon.search.preparation import SearchInput
from sqlanon.sources.earlier import EARLIER


@dataclass(frozen=True)
class Chosen:
    """What was chosen, and the way from the source to its release.

    Attributes
    ----------
    generalization:
        By attribute its level, or None where its values are released at several.
    figures:
        Of the release.
    smallest_class:
        The rows of the smallest kept class.
    recoding:
        How the release is made.
    masked_rows:
        Suppressed rows that stay in the release, with every quasi-identifier at its top.
    warnings:
        What the data holder should know.
    mapping:
        What the rows match in the population, if there is one.
    """

    generalization: Mapping[str, int | None]
    figures: Figures
    smallest_class: int
    recoding: ByClass
    masked_rows: int
    warnings: tuple[str, ...]
    mapping: PopulationMatch | None = None


@dataclass(frozen=True)
class Found:
    """The best version of a source that a strategy found.

    Attributes
    ----------
    chosen:
        What it is, and how its release is made.
    score, bound:
        Its cost by the policy's measure; and what is proven: no version of this kind that satisfies the policy costs
        less.
    optimal:
        Whether it is proven to be the best.
    search, outcome:
        What was learnt of the lattice, and of all that satisfies; None where the lattice was not searched.
    rounds:
        How often a local strategy went over the combinations.
    totals:
        Of what is released, where it is no generalization.
    """

    chosen: Chosen
    score: float
    bound: float
    optimal: bool
    search: Search | None = None
    outcome: Outcome | None = None
    rounds: int = 0
    totals: Totals | None = None

    @property
    def checked(self) -> int:
        """How many generalizations, and rounds, were counted."""
        return self.rounds + (0 if self.search is None else len(self.search.figures))

    def lattice_rows(self) -> list[list[Any]] | None:
        """The lattice table, one list a column; None where the lattice was not searched."""
        if self.search is None:
            return None
        rows, own = self.search.rows(), [name != EARLIER for name in self.search.lattice.attributes]
        return [[list(compress(levels, own)) for levels in rows[0]], *rows[1:]]


def anonymize(engine: Engine, prepared: SearchInput, work: Namer, progress: Progress) -> Found:
    """Find the best version of a prepared source with the policy's strategy."""
    task, asked = SearchTask(engine, prepared, work, progress), prepared.policy.search
    outcome = blanked_beside(task) if asked.suppression == "cells" else STRATEGIES[asked.strategy].run(task)
    if isinstance(outcome, LocalOutcome):
        return _finished(outcome.task, outcome)
    search, levels = task.lattice, outcome.levels
    chosen = choose(engine, prepared, levels, search.figures[levels], work)
    return Found(chosen, search.scores[levels], outcome.bound, outcome.optimal, search, outcome)


def _finished(task: LocalTask, outcome: LocalOutcome) -> Found:
    """What is released of what a local strategy placed."""
    prepared, strategy = task.prepared, task.prepared.policy.search.strategy
    kept = finish(task, outcome)
    figures = kept.figures
    if not figures.classes or figures.suppressed_rows > task.allowed_rows:
        message = f"strategy {strategy} found no recoding that meets the policy: it would have to suppress "
        message += f"{figures.suppressed_rows} of {task.rows} rows; the suppression limit allows {task.allowed_rows}"
        raise InfeasibleError(message, None, figures.suppressed_rows, task.allowed_rows)
    warnings = list(void_shields(prepared.requirements.shields, prepared.policy.privacy.k))
    masked = 0
    if figures.suppressed_rows and _is_masking(prepared):
        masked, warning = _masked(task.engine, prepared, suppressed_classes(task, kept), task.floor, figures)
        warnings += warning
    names = [tree.name for tree in task.trees]
    # What is released as ranges, or as sets, is at no level.
    levels_of = {
        name: low if low == high and (low == 0 or i not in outcome.values) else None
        for i, (name, (low, high)) in enumerate(zip(names, kept.levels, strict=True))
    }
    chosen = Chosen(
        levels_of, figures, kept.smallest_class, kept.recoding(task, outcome, masked > 0), masked, tuple(warnings)
    )
    measure = measure_of(prepared)
    score = kept.score(measure)
    # No recoding scores less than what nothing is generalized and suppressed in.
    bound = min(score, measure.bound(task.floor))
    return Found(chosen, score, bound, score <= bound, outcome.search, None, outcome.rounds, kept.totals)


def choose(engine: Engine, prepared: SearchInput, levels: Levels, figures: Figures, work: Namer) -> Chosen:
    """Make the suppressed classes of a generalization, and the recoding that leaves them out or masks them.

    Makes ``suppressed`` in the work schema.
    """
    suppressed = None
    space = prepared.sets.at(levels)
    masked, warnings = 0, list(void_shields(prepared.requirements.shields, prepared.asked.privacy.k))
    if figures.suppressed_rows:
        suppressed = work("suppressed")
        engine.execute(create_table(suppressed, classes_to_suppress(space, levels)))
        if _is_masking(prepared):
            masked, warning = _masked(engine, prepared, suppressed, levels, figures)
            warnings += warning
    tops = tuple(hierarchy.top for hierarchy in prepared.hierarchies)
    recoding = Recoding(
        prepared.source.relation,
        prepared.released,
        prepared.attributes,
        tops,
        levels,
        suppressed if figures.suppressed_rows and _is_needed(prepared, levels) else None,
        mask=masked > 0,
    )
    mapping = mapping_of(engine, prepared, levels)
    if prepared.after:
        visible, smallest = engine.rows(whole_classes(space, levels, len(prepared.policy.generalized)))[0]
        figures = replace(figures, classes=visible)
    else:
        smallest = engine.rows(smallest_class(space, levels))[0][0] or 0
    named = prepared.lattice.named(levels)
    return Chosen(named, figures, smallest, recoding, masked, tuple(warnings), mapping)


def _is_masking(prepared: SearchInput) -> bool:
    release = prepared.policy.release
    return release is not None and release.suppressed == "mask"


def _masked(
    engine: Engine, prepared: SearchInput, suppressed: exp.Table, levels: Levels, figures: Figures
) -> tuple[int, list[str]]:
    """How many suppressed rows may stay, masked: all or none; and why none."""
    requirements = prepared.requirements
    size, good = _all_masked(engine, prepared.sets.at(levels), suppressed, levels, figures)
    trees, specs = prepared.hierarchies, prepared.policy.attributes
    topless = [hierarchy.attribute for hierarchy in trees if hierarchy.top is None] + list(prepared.policy.noisy)
    forbidden = [hierarchy.attribute for hierarchy in trees if hierarchy.top in specs[hierarchy.attribute].forbidden]
    if good and not topless and not forbidden:
        return figures.suppressed_rows, []
    reason = f"together they make a class of {size} rows, which breaks the policy"
    if requirements.estimates:
        reason = f"{requirements.estimates[0].name} is estimated without them"
    if topless:
        reason = f"there is nothing above the values of {', '.join(topless)} to mask them with"
    if forbidden:
        reason = f"the policy forbids the top label of {', '.join(forbidden)}"
    return 0, [f"the {figures.suppressed_rows} suppressed rows are dropped, not masked: {reason}"]


def _all_masked(
    engine: Engine, space: ClassSpace, suppressed: exp.Table, levels: Levels, figures: Figures
) -> tuple[int, bool]:
    """The rows of the class that all masked rows make, and whether it meets the policy, as does the table with it."""
    size, count, kept = engine.rows(masked_class(space, suppressed, levels))[0]
    single = int(count == 1)
    together = [
        one.holds(figures.classes + 1, figures.count + count, figures.singles + single)
        for one in space.requirements.table
    ]
    return size, kept and all(together) and not space.requirements.estimates


def _is_needed(prepared: SearchInput, levels: Levels) -> bool:
    """Whether suppressed classes are told by what rows generalize to: at the very top, only unknown values are
    suppressed, and there is nothing to match by."""
    return levels != prepared.marginals.heights
