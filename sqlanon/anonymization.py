"""The main job, step by step: search the lattice of a prepared source, and say how its release is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from sqlanon.engines.base import Engine
from sqlanon.errors import InfeasibleError
from sqlanon.preparation import Prepared
from sqlanon.quality import MEASURES, Figures, Measure
from sqlanon.queries.candidate import Levels, candidate, suppressed_entropy
from sqlanon.queries.names import Namer, create_table
from sqlanon.queries.recode import Recoding, masked_class, suppressed_classes
from sqlanon.search import STRATEGIES, Outcome, Search
from sqlanon.search.lattice import Progress


@dataclass(frozen=True)
class Chosen:
    """The generalization that a search chose, and the way from the source to its release.

    Attributes
    ----------
    levels, figures:
        The generalization, and what its check said.
    recoding:
        How the release is made.
    masked_rows:
        Suppressed rows that stay in the release, with every quasi-identifier at its top.
    warnings:
        What the data holder should know.
    """

    levels: Levels
    figures: Figures
    recoding: Recoding
    masked_rows: int
    warnings: tuple[str, ...]


def allowed_rows(prepared: Prepared) -> int:
    """At most floor(limit × rows) rows may be suppressed, in exact arithmetic: 0.29 of 100 is 29."""
    return int(Fraction(prepared.policy.search.suppression_limit) * prepared.marginals.rows)


def measure_of(prepared: Prepared) -> Measure:
    """The policy's measure, over the prepared source."""
    policy = prepared.policy
    weights = [policy.attributes[name].weight for name in policy.quasi]
    sizes = [requirement.least_class for requirement in prepared.space.requirements]
    return MEASURES[policy.search.measure](prepared.marginals, weights, policy.search.aggregate, max(sizes, default=1))


def checker(engine: Engine, prepared: Prepared, measure: Measure) -> Callable[[Levels], Figures]:
    """Asks the engine for a generalization's figures: one statement, and one more for what the measure `entropy`
    needs of a generalization that satisfies the policy."""
    space, heights, allowed = prepared.space, prepared.space.heights, allowed_rows(prepared)
    leaves_too = measure.needs_leaves and allowed > 0  # else what satisfies suppresses nothing

    def check(levels: Levels) -> Figures:
        kept, suppressed, smallest, squares, *leaves = engine.rows(candidate(space, levels, leaves_too))[0]
        between = [i for i, level in enumerate(levels) if 0 < level < heights[i]]
        entropy = 0.0
        if measure.needs_entropy and 0 < suppressed <= allowed and levels != heights:
            entropy = engine.rows(suppressed_entropy(space, levels, suppressed))[0][0]
        sums = dict(zip(between, (value or 0.0 for value in leaves), strict=False))
        return Figures(kept, suppressed, smallest or 0, squares or 0.0, sums, entropy)

    return check


def find(engine: Engine, prepared: Prepared, progress: Progress) -> tuple[Search, Outcome, Levels]:
    """Search the lattice with the policy's strategy: the search, its outcome, and the generalization that it chose.

    Raises
    ------
    InfeasibleError
        Nothing satisfies the policy. Names the generalization that comes nearest.
    """
    measure = measure_of(prepared)
    search = Search(prepared.lattice, measure, checker(engine, prepared, measure), allowed_rows(prepared), progress)
    outcome = STRATEGIES[prepared.policy.search.strategy](search)
    if outcome.levels is None:
        raise _infeasible(prepared, search)
    return search, outcome, outcome.levels


def _infeasible(prepared: Prepared, search: Search) -> InfeasibleError:
    top, rows = search.lattice.top, prepared.marginals.rows
    search.ask(top)  # nothing suppresses fewer rows than the top
    figures = search.figures[top]
    nearest = search.lattice.named(top)
    shown = ", ".join(f"{name} {level}" for name, level in nearest.items())
    message = (
        f"no generalization meets the policy. The one that comes nearest ({shown}) would have to suppress "
        f"{figures.suppressed_rows} of {rows} rows; the suppression limit allows {search.allowed_rows}"
    )
    unknown = max(prepared.marginals.unknown)
    if unknown:
        message += f". At least {unknown} rows have values that are missing from a hierarchy"
    if figures.classes == 0:
        message += ". Nothing would be left to release"
    return InfeasibleError(message, nearest, figures.suppressed_rows, search.allowed_rows)


def choose(engine: Engine, prepared: Prepared, levels: Levels, figures: Figures, work: Namer) -> Chosen:
    """Make the suppressed classes of a generalization, and the recoding that leaves them out or masks them.

    Makes ``suppressed`` in the work schema.
    """
    suppressed = None
    masked, warnings = 0, []
    release = prepared.policy.release
    if figures.suppressed_rows:
        suppressed = work("suppressed")
        engine.execute(create_table(suppressed, suppressed_classes(prepared.space, prepared.attributes, levels)))
        if release is not None and release.suppressed == "mask":
            size, good = engine.rows(masked_class(prepared.space, suppressed, levels))[0]
            topless = [hierarchy.attribute for hierarchy in prepared.hierarchies if hierarchy.top is None]
            if good and not topless:
                masked = figures.suppressed_rows
            else:
                reason = f"together they make a class of {size} rows, which breaks the policy"
                if topless:
                    reason = f"there is nothing above the values of {', '.join(topless)} to mask them with"
                warnings.append(f"the {figures.suppressed_rows} suppressed rows are dropped, not masked: {reason}")
    tops = tuple(hierarchy.top for hierarchy in prepared.hierarchies)
    recoding = Recoding(
        prepared.source.relation,
        prepared.columns,
        prepared.attributes,
        tops,
        levels,
        suppressed if figures.suppressed_rows and _is_needed(prepared, levels) else None,
        mask=masked > 0,
    )
    return Chosen(levels, figures, recoding, masked, tuple(warnings))


def _is_needed(prepared: Prepared, levels: Levels) -> bool:
    """Whether suppressed classes are told by what rows generalize to: at the very top, only unknown values are
    suppressed, and there is nothing to match by."""
    return bool(prepared.space.below_top(levels))
