"""The recode stage: the statement that makes released rows from the source."""

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
    """The statement that makes the released rows, and the figures of the release.

    An attribute that is released at several levels has None for its level. The figures count masked rows as suppressed.
    """

    generalization: Mapping[str, int | None]
    figures: Figures
    smallest_class: int  # rows
    statement: ClassRecoding
    masked_rows: int
    warnings: tuple[Notice, ...]
    population_match: PopulationMatch | None = None
    persons: PersonFigures | None = None  # if persons are counted


def recode(runner: StatementRunner, search_input: SearchInput, search_result: SearchResult) -> Recoding:
    """Build the recoding of a search result. Creates `suppressed` if rows are suppressed."""
    if search_result.local_result is not None:
        return _recode_combinations(runner, search_input, search_result.local_result)
    assert search_result.levels is not None  # a search result has levels or a local result
    return recode_at(runner, search_input, search_result.levels, search_result.figures)


def _recode_combinations(runner: StatementRunner, search_input: SearchInput, local_result: LocalResult) -> Recoding:
    shields, k = search_input.requirements.shields, search_input.policy.privacy.k
    warnings = [*local_result.warnings, *warn_of_void_shields(shields, k)]
    figures, masked_rows = local_result.figures, 0
    if figures.suppressed_rows and search_input.policy.masks_suppressed_rows:
        suppressed = local_result.make_suppressed(runner, search_input)
        masked_rows, mask_warnings = _count_maskable_rows(runner, search_input, suppressed, local_result.floor, figures)
        warnings += mask_warnings
    return Recoding(
        local_result.generalization,
        figures,
        local_result.smallest_class,
        local_result.recoding(search_input, masked_rows > 0),
        masked_rows,
        tuple(warnings),
        persons=local_result.persons,
    )


def recode_at(runner: StatementRunner, search_input: SearchInput, levels: Levels, figures: Figures) -> Recoding:
    """Build the recoding of a generalization. Creates `suppressed` if rows are suppressed."""
    space, suppressed, masked_rows = search_input.frequency_sets.class_space(levels), None, 0
    warnings = list(warn_of_void_shields(search_input.requirements.shields, search_input.search_policy.privacy.k))
    if figures.suppressed_rows:
        suppressed = runner.create_table(search_input.work("suppressed"), suppressed_classes(space, levels))
        if search_input.policy.masks_suppressed_rows:
            masked_rows, mask_warnings = _count_maskable_rows(runner, search_input, suppressed, levels, figures)
            warnings += mask_warnings
    # With every attribute at its top there is one class, so only rows with unknown values are suppressed.
    is_top = levels == search_input.marginals.heights and not runner.dry
    statement = FullDomainRecoding(
        search_input.source.relation,
        search_input.released_columns,
        search_input.attributes,
        tuple(hierarchy.top for hierarchy in search_input.hierarchies),
        levels,
        None if is_top else suppressed,
        mask=masked_rows > 0,
    )
    population_match = None if runner.dry else match_population(runner.engine, search_input, levels)
    if search_input.earlier.run_ids:
        query = visible_classes_query(space, levels, len(search_input.policy.generalized_attributes))
        visible, smallest = runner.fetch_rows(query, [(figures.classes, 0)], in_plan=False)[0]
        figures = replace(figures, classes=visible)
        fewest = 0
        if space.persons:
            query = fewest_persons_query(space, levels, len(search_input.policy.generalized_attributes))
            fewest = runner.fetch_rows(query, [(0,)], in_plan=False)[0][0]
    else:
        smallest, fewest = runner.fetch_rows(smallest_class_query(space, levels), [(0, 0)], in_plan=False)[0]
    persons = _measure_persons(search_input, space, levels, figures, fewest or 0)
    return Recoding(
        search_input.lattice.level_by_attribute(levels),
        figures,
        smallest or 0,
        statement,
        masked_rows,
        tuple(warnings),
        population_match,
        persons,
    )


def _measure_persons(
    search_input: SearchInput, space: ClassSpace, levels: Levels, figures: Figures, fewest: int
) -> PersonFigures | None:
    """The figures of the persons of a generalization, if persons are counted."""
    all_persons = search_input.limit.all_persons
    if all_persons is None:
        return None

    sets, suppressed = search_input.frequency_sets, figures.suppressed_persons
    if suppressed is None:
        suppressed = count_persons_in_classes(sets, space, levels, kept=False)
    in_release = count_persons_in_classes(sets, space, levels, kept=True)
    return person_figures(all_persons, suppressed, in_release, fewest)


def _count_maskable_rows(
    runner: StatementRunner, search_input: SearchInput, suppressed: exp.Table, levels: Levels, figures: Figures
) -> tuple[int, list[Notice]]:
    """The number of suppressed rows that the release can contain masked: all, or none with a warning."""
    requirements = search_input.requirements
    class_size, is_feasible = _check_masked_class(runner, search_input, suppressed, levels, figures)
    hierarchies, attributes = search_input.hierarchies, search_input.policy.attributes
    without_top = [hierarchy.attribute for hierarchy in hierarchies if hierarchy.top is None]
    without_top += search_input.policy.noisy_attributes
    forbidden = [
        hierarchy.attribute for hierarchy in hierarchies if hierarchy.top in attributes[hierarchy.attribute].forbidden
    ]
    limits = [(hierarchy, attributes[hierarchy.attribute].max_level) for hierarchy in hierarchies]
    limited = [hierarchy.attribute for hierarchy, limit in limits if limit is not None and limit < hierarchy.height]
    if is_feasible and not without_top and not forbidden and not limited:
        return figures.suppressed_rows, []
    reason = f"together they make a class of {class_size} rows, which breaks the policy"
    if requirements.separate_conditions:
        reason = f"{requirements.separate_conditions[0].name} is counted without them"
    if without_top:
        reason = f"there is nothing above the values of {', '.join(without_top)} to mask them with"
    if forbidden:
        reason = f"the policy forbids the top label of {', '.join(forbidden)}"
    if limited:
        reason = f"max_level keeps {', '.join(limited)} below the top label"
    message = f"the {figures.suppressed_rows} suppressed rows are dropped, not masked: {reason}"
    return 0, [Notice(message, figures.suppressed_rows)]


def _check_masked_class(
    runner: StatementRunner, search_input: SearchInput, suppressed: exp.Table, levels: Levels, figures: Figures
) -> tuple[int, bool]:
    """The size of the class of all masked rows, and whether the class and the table with it meet the policy."""
    if runner.dry:
        return figures.suppressed_rows, True
    requirements = search_input.requirements
    space = search_input.frequency_sets.suppressed_class_space(levels, suppressed)
    class_size, class_count, is_feasible = runner.engine.rows(masked_class(space))[0]
    kept_classes = summarize_kept_classes(figures, search_input.marginals.rows)
    kept_with_masked = replace(
        kept_classes,
        classes=kept_classes.classes + 1,
        rows=kept_classes.rows + class_size,
        count=kept_classes.count + class_count,
        single_classes=kept_classes.single_classes + int(class_count == 1),
    )
    is_feasible = (
        is_feasible
        and all(condition.is_met_by(kept_with_masked) for condition in requirements.table_conditions)
        and not requirements.separate_conditions
    )
    return class_size, is_feasible
