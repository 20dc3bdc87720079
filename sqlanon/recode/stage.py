"""The stages search and recode: the best version of a source, and how its rows are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any

from sqlglot import exp

from sqlanon.coding import Levels
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import InfeasibleError
from sqlanon.frequency.sets import ClassSpace
from sqlanon.hierarchies.build import EXAMPLE_LEAVES
from sqlanon.measures import Figures
from sqlanon.policy.strategies import STRATEGIES
from sqlanon.recode.local.cells import blanked_beside
from sqlanon.recode.local.finish import LocalResult, example_result, finish
from sqlanon.recode.local.finish import suppressed_classes as suppressed_combinations
from sqlanon.recode.local.task import LocalOutcome, local_task
from sqlanon.recode.recoding import ByClass, FullDomainRecoding, masked_class, suppressed_classes
from sqlanon.requirements import void_shields
from sqlanon.search import Outcome, Search
from sqlanon.search.candidate import candidate, smallest_class, whole_classes
from sqlanon.search.examples import example_levels
from sqlanon.search.full_domain import SearchTask, measure_of
from sqlanon.search.lattice import Progress
from sqlanon.search.population_match import PopulationMatch, mapping_of
from sqlanon.search.preparation import SearchInput
from sqlanon.sources.earlier import EARLIER


@dataclass(frozen=True)
class SearchResult:
    """The best version of a source that a strategy found: a generalization, or what each combination is released as.

    Its score is a cost, and nothing of its kind that meets the policy costs less than the bound. A strategy that does
    not search the lattice has no ``search``.
    """

    found: Outcome | LocalResult
    figures: Figures
    score: float
    bound: float
    optimal: bool
    search: Search | None = None
    rounds: int = 0

    @property
    def checked(self) -> int:
        """How many generalizations, and rounds over the combinations, were counted."""
        return self.rounds + (0 if self.search is None else len(self.search.figures))

    @property
    def minimal(self) -> tuple[Levels, ...] | None:
        """The k-minimal generalizations, where the strategy looks for them."""
        return self.found.minimal if isinstance(self.found, Outcome) else None

    @property
    def satisfying(self) -> tuple[Levels, ...] | None:
        """All generalizations that meet the policy, where the strategy finds them."""
        return self.found.satisfying if isinstance(self.found, Outcome) else None

    def lattice_rows(self) -> list[list[Any]] | None:
        """The lattice table, one list a column; None where the lattice was not searched."""
        if self.search is None:
            return None
        rows, own = self.search.rows(), [name != EARLIER for name in self.search.lattice.attributes]
        return [[list(compress(levels, own)) for levels in rows[0]], *rows[1:]]


@dataclass(frozen=True)
class Recoding:
    """How the rows of a release are made of the source, and what is known of them.

    An attribute that is released at several levels has None for its level. The figures are those of the release, with
    masked rows among the suppressed ones.
    """

    generalization: Mapping[str, int | None]
    figures: Figures
    smallest_class: int
    statement: ByClass
    masked_rows: int
    warnings: tuple[str, ...]
    mapping: PopulationMatch | None = None


def search(steps: StatementRunner, prepared: SearchInput, progress: Progress) -> SearchResult:
    """Find the best version of a prepared source with the policy's strategy; in a dry run one check stands for all."""
    if steps.dry:
        return _example_search(steps, prepared, progress)
    task, asked = SearchTask(steps.engine, prepared, prepared.work, progress), prepared.policy.search
    outcome = blanked_beside(task) if asked.suppression == "cells" else STRATEGIES[asked.strategy].run(task)
    if isinstance(outcome, LocalOutcome):
        return _as_readers_see(outcome)
    lattice, levels = task.lattice, outcome.levels
    score, figures = lattice.scores[levels], lattice.figures[levels]
    return SearchResult(outcome, figures, score, outcome.bound, outcome.optimal, lattice)


def _as_readers_see(outcome: LocalOutcome) -> SearchResult:
    """What a local strategy placed, judged once more."""
    task, found = outcome.task, finish(outcome.task, outcome)
    suppressed, strategy = found.figures.suppressed_rows, task.prepared.policy.search.strategy
    if not found.figures.classes or suppressed > task.allowed_rows:
        message = f"strategy {strategy} found no recoding that meets the policy: it would have to suppress "
        message += f"{suppressed} of {task.rows} rows; the suppression limit allows {task.allowed_rows}"
        raise InfeasibleError(message, None, suppressed, task.allowed_rows)
    measure = measure_of(task.prepared)
    score = found.score(measure)
    # No recoding scores less than what nothing is generalized and suppressed in.
    bound = min(score, measure.bound(task.floor))
    return SearchResult(found, found.figures, score, bound, score <= bound, outcome.search, outcome.rounds)


def _example_search(steps: StatementRunner, prepared: SearchInput, progress: Progress) -> SearchResult:
    """The check, or the tables that combinations are placed in, and the version that a plan shows."""
    asked, figures = prepared.policy.search, Figures(1, 1)
    if asked.is_local:
        found = example_result(local_task(steps, prepared, progress))
        name = f"strategy {asked.strategy}" + (", then cells are blanked" if asked.suppression == "cells" else "")
        note = f"{name}: rounds over the combinations and the nodes of the hierarchies (here: {EXAMPLE_LEAVES} a level)"
        steps.finish("search", note)
        return SearchResult(found, figures, 0.0, 0.0, optimal=False)
    levels = example_levels(prepared.policy, prepared.marginals.heights)
    steps.show(candidate(prepared.sets.at(levels), levels))
    note = f"strategy {asked.strategy}: a check like this for every generalization that bounds leave open"
    steps.finish("search", note)
    return SearchResult(Outcome(levels, optimal=False), figures, 0.0, 0.0, optimal=False)


def recode(steps: StatementRunner, prepared: SearchInput, result: SearchResult) -> Recoding:
    """Say how the rows of a version are made. Makes ``suppressed`` where rows are left out or masked."""
    if isinstance(result.found, LocalResult):
        return _recode_combinations(steps, prepared, result.found)
    assert result.found.levels is not None
    return recode_at(steps, prepared, result.found.levels, result.figures)


def _recode_combinations(steps: StatementRunner, prepared: SearchInput, found: LocalResult) -> Recoding:
    warnings = list(void_shields(prepared.requirements.shields, prepared.policy.privacy.k))
    masked = 0
    if found.figures.suppressed_rows and _is_masking(prepared):
        suppressed = suppressed_combinations(steps, prepared, found)
        masked, warning = _masked(steps, prepared, suppressed, found.floor, found.figures)
        warnings += warning
    statement = found.recoding(prepared, masked > 0)
    levels = found.generalization
    return Recoding(levels, found.figures, found.smallest_class, statement, masked, tuple(warnings))


def recode_at(steps: StatementRunner, prepared: SearchInput, levels: Levels, figures: Figures) -> Recoding:
    """How the rows of a generalization are made."""
    suppressed = None
    space = prepared.sets.at(levels)
    masked, warnings = 0, list(void_shields(prepared.requirements.shields, prepared.asked.privacy.k))
    if figures.suppressed_rows:
        suppressed = steps.make(prepared.work("suppressed"), suppressed_classes(space, levels))
        if _is_masking(prepared):
            masked, warning = _masked(steps, prepared, suppressed, levels, figures)
            warnings += warning
    # Suppressed classes are known by what rows generalize to: at the very top, only unknown values are suppressed.
    is_top = levels == prepared.marginals.heights and not steps.dry
    statement = FullDomainRecoding(
        prepared.source.relation,
        prepared.released,
        prepared.attributes,
        tuple(hierarchy.top for hierarchy in prepared.hierarchies),
        levels,
        None if is_top else suppressed,
        mask=masked > 0,
    )
    mapping = None if steps.dry else mapping_of(steps.engine, prepared, levels)
    if prepared.earlier.after:
        query = whole_classes(space, levels, len(prepared.policy.generalized))
        visible, smallest = steps.look_up(query, [(figures.classes, 0)])[0]
        figures = replace(figures, classes=visible)
    else:
        smallest = steps.look_up(smallest_class(space, levels), [(0,)])[0][0] or 0
    named = prepared.lattice.named(levels)
    return Recoding(named, figures, smallest, statement, masked, tuple(warnings), mapping)


def _is_masking(prepared: SearchInput) -> bool:
    release = prepared.policy.release
    return release is not None and release.suppressed == "mask"


def _masked(
    steps: StatementRunner, prepared: SearchInput, suppressed: exp.Table, levels: Levels, figures: Figures
) -> tuple[int, list[str]]:
    """How many suppressed rows may stay, masked: all or none; and why none."""
    requirements = prepared.requirements
    size, good = _all_masked(steps, prepared.sets.at(levels), suppressed, levels, figures)
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
    steps: StatementRunner, space: ClassSpace, suppressed: exp.Table, levels: Levels, figures: Figures
) -> tuple[int, bool]:
    """The rows of the class that all masked rows make, and whether it meets the policy, as does the table with it."""
    if steps.dry:
        return figures.suppressed_rows, True
    size, count, kept = steps.engine.rows(masked_class(space, suppressed, levels))[0]
    single = int(count == 1)
    together = [
        one.holds(figures.classes + 1, figures.count + count, figures.singles + single)
        for one in space.requirements.table
    ]
    return size, kept and all(together) and not space.requirements.estimates
