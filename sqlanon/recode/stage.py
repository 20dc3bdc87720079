"""The stage recode: how the rows of the version that was found are made of the source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.frequency.sets import ClassSpace
from sqlanon.measures import Figures
from sqlanon.recode.full_domain import FullDomainRecoding, masked_class, suppressed_classes
from sqlanon.requirements import warn_of_void_shields
from sqlanon.strategies.lattice.candidate import smallest_class_query, visible_classes_query
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.strategies.lattice.persons import (
    PersonFigures,
    count_persons_in_classes,
    fewest_persons_query,
    person_figures,
)
from sqlanon.strategies.lattice.population_match import PopulationMatch, match_population
from sqlanon.strategies.lattice.result import LocalResult, SearchResult
from sqlanon.strategies.lattice.search import summarize_kept_classes
from sqlanon.strategies.recoding import ClassRecoding
from sqlanon.support.coding import Levels
from sqlanon.support.notices import Notice


@dataclass(frozen=True)
class Recoding:
    """How the rows of a release are made of the source, and what is known of them.

    An attribute that is released at several levels has None for its level. The figures are those of the release, with
    masked rows among the suppressed ones. The smallest class is that of the fewest rows.
    """

    generalization: Mapping[str, int | None]
    figures: Figures
    smallest_class: int
    statement: ClassRecoding
    masked_rows: int
    warnings: tuple[Notice, ...]
    population_match: PopulationMatch | None = None
    persons: PersonFigures | None = None  # where persons are counted


def recode(steps: StatementRunner, prepared: SearchInput, result: SearchResult) -> Recoding:
    """Say how the rows of a version are made. Makes ``suppressed`` where rows are left out or masked."""
    if result.local_result is not None:
        return _recode_combinations(steps, prepared, result.local_result)
    assert result.levels is not None  # it has the one or the other
    return recode_at(steps, prepared, result.levels, result.figures)


def _recode_combinations(steps: StatementRunner, prepared: SearchInput, found: LocalResult) -> Recoding:
    warnings = [*found.warnings, *warn_of_void_shields(prepared.requirements.shields, prepared.policy.privacy.k)]
    masked = 0
    if found.figures.suppressed_rows and prepared.policy.masks_suppressed_rows:
        suppressed = found.suppressed(steps, prepared)
        masked, warning = _masked(steps, prepared, suppressed, found.floor, found.figures)
        warnings += warning
    statement: ClassRecoding = found.recoding(prepared, masked > 0)
    levels = found.generalization
    return Recoding(
        levels, found.figures, found.smallest_class, statement, masked, tuple(warnings), persons=found.persons
    )


def recode_at(steps: StatementRunner, prepared: SearchInput, levels: Levels, figures: Figures) -> Recoding:
    """How the rows of a generalization are made."""
    suppressed = None
    space = prepared.frequency_sets.at(levels)
    masked, warnings = 0, list(warn_of_void_shields(prepared.requirements.shields, prepared.search_policy.privacy.k))
    if figures.suppressed_rows:
        suppressed = steps.create_table(prepared.work("suppressed"), suppressed_classes(space, levels))
        if prepared.policy.masks_suppressed_rows:
            masked, warning = _masked(steps, prepared, suppressed, levels, figures)
            warnings += warning
    # Suppressed classes are known by what rows generalize to: at the very top, only unknown values are suppressed.
    is_top = levels == prepared.marginals.heights and not steps.dry
    statement = FullDomainRecoding(
        prepared.source.relation,
        prepared.released_columns,
        prepared.attributes,
        tuple(hierarchy.top for hierarchy in prepared.hierarchies),
        levels,
        None if is_top else suppressed,
        mask=masked > 0,
    )
    mapping = None if steps.dry else match_population(steps.engine, prepared, levels)
    if prepared.earlier.run_ids:
        query = visible_classes_query(space, levels, len(prepared.policy.generalized_attributes))
        visible, smallest = steps.look_up(query, [(figures.classes, 0)])[0]
        figures = replace(figures, classes=visible)
        fewest = 0
        if space.persons:
            query = fewest_persons_query(space, levels, len(prepared.policy.generalized_attributes))
            fewest = steps.look_up(query, [(0,)])[0][0]
    else:
        smallest, fewest = steps.look_up(smallest_class_query(space, levels), [(0, 0)])[0]
    persons = _persons(prepared, space, levels, figures, fewest or 0)
    named = prepared.lattice.named(levels)
    return Recoding(named, figures, smallest or 0, statement, masked, tuple(warnings), mapping, persons)


def _persons(
    prepared: SearchInput, space: ClassSpace, levels: Levels, figures: Figures, fewest: int
) -> PersonFigures | None:
    """The persons of a generalization, where persons are counted."""
    every = prepared.limit.all_persons
    if every is None:
        return None

    def persons_in(kept: bool) -> int:
        return count_persons_in_classes(prepared.frequency_sets, space, levels, kept)

    suppressed = figures.suppressed_persons
    return person_figures(every, persons_in(False) if suppressed is None else suppressed, persons_in(True), fewest)


def _masked(
    steps: StatementRunner, prepared: SearchInput, suppressed: exp.Table, levels: Levels, figures: Figures
) -> tuple[int, list[Notice]]:
    """How many suppressed rows may stay, masked: all or none; and why none."""
    requirements = prepared.requirements
    size, good = _all_masked(steps, prepared, suppressed, levels, figures)
    trees, specs = prepared.hierarchies, prepared.policy.attributes
    topless = [hierarchy.attribute for hierarchy in trees if hierarchy.top is None] + list(
        prepared.policy.noisy_attributes
    )
    forbidden = [hierarchy.attribute for hierarchy in trees if hierarchy.top in specs[hierarchy.attribute].forbidden]
    limits = [(hierarchy, specs[hierarchy.attribute].max_level) for hierarchy in trees]
    limited = [hierarchy.attribute for hierarchy, most in limits if most is not None and most < hierarchy.height]
    if good and not topless and not forbidden and not limited:
        return figures.suppressed_rows, []
    reason = f"together they make a class of {size} rows, which breaks the policy"
    if requirements.separate_conditions:
        reason = f"{requirements.separate_conditions[0].name} is counted without them"
    if topless:
        reason = f"there is nothing above the values of {', '.join(topless)} to mask them with"
    if forbidden:
        reason = f"the policy forbids the top label of {', '.join(forbidden)}"
    if limited:
        reason = f"max_level keeps {', '.join(limited)} below the top label"
    message = f"the {figures.suppressed_rows} suppressed rows are dropped, not masked: {reason}"
    return 0, [Notice(message, figures.suppressed_rows)]


def _all_masked(
    steps: StatementRunner, prepared: SearchInput, suppressed: exp.Table, levels: Levels, figures: Figures
) -> tuple[int, bool]:
    """The rows of the class that all masked rows make, and whether it meets the policy, as does the table with it."""
    if steps.dry:
        return figures.suppressed_rows, True
    size, count, good = steps.engine.rows(masked_class(prepared.frequency_sets.of_suppressed(levels, suppressed)))[0]
    kept = summarize_kept_classes(figures, prepared.marginals.rows)
    together = replace(
        kept,
        classes=kept.classes + 1,
        rows=kept.rows + size,
        count=kept.count + count,
        uniques=kept.uniques + int(count == 1),
    )
    asked = prepared.requirements
    return size, good and all(
        one.is_met_by(together) for one in asked.table_conditions
    ) and not asked.separate_conditions
