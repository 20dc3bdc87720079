"""The main job, step by step: search the lattice of a prepared source, and say how its release is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.infeasible import infeasible
from sqlanon.mapping import PopulationMatch, mapping_of
from sqlanon.preparation import Prepared
from sqlanon.privacy import void_shields
from sqlanon.quality import MEASURES, Figures, Measure
from sqlanon.queries.candidate import candidate, kept_sizes, smallest_class, suppressed_entropy, suppressed_leaves
from sqlanon.queries.coding import Levels
from sqlanon.queries.frequency import person_count
from sqlanon.queries.names import Namer, create_table
from sqlanon.queries.recode import Recoding, masked_class, suppressed_classes
from sqlanon.search import STRATEGIES, Budget, Outcome, Search
from sqlanon.search.lattice import Progress
from sqlanon.search.verdict import Rules


@dataclass(frozen=True)
class Chosen:
    """The generalization that a search chose, and the way from the source to its release.

    Attributes
    ----------
    levels, figures:
        The generalization, and what its check said.
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

    levels: Levels
    figures: Figures
    smallest_class: int
    recoding: Recoding
    masked_rows: int
    warnings: tuple[str, ...]
    mapping: PopulationMatch | None = None


def allowed_rows(prepared: Prepared) -> int:
    """At most floor(limit × rows) rows may be suppressed, in exact arithmetic: 0.29 of 100 is 29."""
    return int(Fraction(prepared.policy.search.suppression_limit) * prepared.marginals.rows)


def measure_of(prepared: Prepared) -> Measure:
    """The policy's measure, over the prepared source."""
    policy = prepared.policy
    weights = [policy.attributes[name].weight for name in policy.quasi]
    least = prepared.requirements.least_class
    return MEASURES[policy.search.measure](prepared.marginals, weights, policy.search.aggregate, least)


def rules_of(prepared: Prepared) -> Rules:
    """What may be concluded from a check."""
    return Rules(prepared.requirements, prepared.marginals.rows, prepared.sets.space.additive)


def checker(engine: Engine, prepared: Prepared, measure: Measure) -> Callable[[Levels], Figures]:
    """Asks the engine for a generalization's figures: one statement, and one more for what the measures `loss` and
    `entropy` need of a generalization that satisfies the policy."""
    sets, heights, allowed = prepared.sets, prepared.marginals.heights, allowed_rows(prepared)
    steps = sets.steps
    short = not all(one.hereditary for one in prepared.requirements.classes)
    unique = prepared.requirements.population_uniqueness
    members = prepared.own.members
    counted = prepared.marginals.rows if unique is None or members is None else engine.rows(person_count(members))[0][0]

    if unique is not None:
        unique.refuse_too_small(counted)

    def check(levels: Levels) -> Figures:
        space = sets.at(levels)
        row = steps.figures(candidate(space, levels, short, measure.needs_squares))
        suppressed = row["suppressed_rows"]
        within = suppressed <= allowed and row["classes"] > 0
        leaves: Mapping[str, float | None] = {}
        entropy, holds = 0.0, True
        between = any(0 < level < height for level, height in zip(levels, heights, strict=True))
        if within and suppressed and measure.needs_leaves and between:
            leaves = steps.figures(suppressed_leaves(space, levels, prepared.attributes))
        if within and suppressed and measure.needs_entropy and levels != heights:
            entropy = engine.rows(suppressed_entropy(space, levels, suppressed))[0][0]
        if unique is not None and within:
            holds = unique.holds(dict(engine.rows(kept_sizes(space, levels))), counted)
        return Figures(
            classes=row["classes"],
            suppressed_rows=suppressed,
            squares=row.get("squares") or 0.0,
            suppressed_leaves={i: leaves.get(f"leaves_{i}") or 0.0 for i, h in enumerate(heights) if 0 < levels[i] < h},
            suppressed_entropy=entropy,
            lost=(row["lost"] or 0.0) if short else None,
            count=row.get("count") or 0,
            singles=row.get("singles") or 0,
            unmet=row.get("unmet", 0),
            too_few=row.get("too_few", 0),
            estimate_holds=holds,
        )

    return check


def find(engine: Engine, prepared: Prepared, progress: Progress) -> tuple[Search, Outcome, Levels]:
    """Search the lattice with the policy's strategy: the search, its outcome, and the generalization that it chose.

    Raises
    ------
    InfeasibleError
        Nothing satisfies the policy, or nothing that does was found within the limits of the search. Names the
        generalization that comes nearest.
    """
    measure, rules = measure_of(prepared), rules_of(prepared)
    check = checker(engine, prepared, measure)
    asked = prepared.policy.search
    budget = Budget(asked.time_limit, asked.max_checks)
    search = Search(prepared.lattice, measure, check, rules.judge, allowed_rows(prepared), progress, budget)
    outcome = STRATEGIES[asked.strategy](search)
    if outcome.levels is None:
        raise infeasible(engine, prepared, search, outcome)
    return search, outcome, outcome.levels


def choose(engine: Engine, prepared: Prepared, levels: Levels, figures: Figures, work: Namer) -> Chosen:
    """Make the suppressed classes of a generalization, and the recoding that leaves them out or masks them.

    Makes ``suppressed`` in the work schema.
    """
    suppressed = None
    requirements, space = prepared.requirements, prepared.sets.at(levels)
    masked, warnings = 0, list(void_shields(requirements.shields, prepared.policy.privacy.k))
    release = prepared.policy.release
    if figures.suppressed_rows:
        suppressed = work("suppressed")
        engine.execute(create_table(suppressed, suppressed_classes(space, levels)))
        if release is not None and release.suppressed == "mask":
            size, good = _all_masked(engine, prepared, suppressed, levels, figures)
            topless = [hierarchy.attribute for hierarchy in prepared.hierarchies if hierarchy.top is None]
            if good and not topless:
                masked = figures.suppressed_rows
            else:
                reason = f"together they make a class of {size} rows, which breaks the policy"
                if requirements.population_uniqueness is not None:
                    reason = f"{requirements.population_uniqueness.name} is estimated without them"
                if topless:
                    reason = f"there is nothing above the values of {', '.join(topless)} to mask them with"
                warnings.append(f"the {figures.suppressed_rows} suppressed rows are dropped, not masked: {reason}")
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
    smallest = engine.rows(smallest_class(space, levels))[0][0] or 0
    return Chosen(levels, figures, smallest, recoding, masked, tuple(warnings), mapping)


def _all_masked(
    engine: Engine, prepared: Prepared, suppressed: exp.Table, levels: Levels, figures: Figures
) -> tuple[int, bool]:
    """The rows of the class that all masked rows make, and whether it meets the policy, as does the table with it."""
    space = prepared.sets.at(levels)
    size, count, kept = engine.rows(masked_class(space, suppressed, levels))[0]
    single = int(count == 1)
    together = [
        one.holds(figures.classes + 1, figures.count + count, figures.singles + single)
        for one in space.requirements.table
    ]
    return size, kept and all(together) and space.requirements.population_uniqueness is None


def _is_needed(prepared: Prepared, levels: Levels) -> bool:
    """Whether suppressed classes are told by what rows generalize to: at the very top, only unknown values are
    suppressed, and there is nothing to match by."""
    return levels != prepared.marginals.heights
