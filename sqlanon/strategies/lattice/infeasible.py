"""Errors of searches without a result: the closest generalization, the binding requirement, and remedies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from sqlanon.errors import InfeasibleError
from sqlanon.measures import Figures
from sqlanon.requirements import Requirements
from sqlanon.strategies.lattice.candidate import candidate_query
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.strategies.lattice.outcome import Outcome
from sqlanon.strategies.lattice.persons import count_persons_in_classes
from sqlanon.strategies.lattice.search import LatticeSearch, summarize_kept_classes
from sqlanon.support.coding import Levels

LISTED_ATTRIBUTES = 3
"""Number of quasi-identifiers that an error lists."""


def infeasible_error(search_input: SearchInput, search: LatticeSearch, outcome: Outcome) -> InfeasibleError:
    """The error of a search that found no feasible generalization.

    It names the generalization closest to the suppression limit. A search that stopped early, or that does not cover
    the whole lattice, has not proven that nothing meets the policy, and its error says so.
    """
    policy, rows, limit = search_input.policy, search_input.marginals.rows, search_input.limit
    complete = [
        levels for levels, figures in search.figures.items() if search.lattice.permits(levels) and figures.is_complete
    ]
    levels = min(complete, key=lambda levels: _distance(search.figures[levels], levels))
    figures = _with_persons(search_input, levels, search.figures[levels])
    closest = search.lattice.level_by_attribute(levels)
    if outcome.stopped:
        message = (
            f"the search stopped at [search] {_policy_limit(search_input, outcome.stopped)} before it found a "
            "generalization that meets the policy; with a higher limit it may find one. The closest so far"
        )
    elif not outcome.exhaustive:
        message = (
            f"strategy {policy.search.strategy} found no generalization that meets the policy. It does not check all "
            'of them: strategy = "optimal" does, and may find one. The closest it found'
        )
    else:
        message = "no generalization meets the policy. The closest"
    persons = figures.suppressed_persons
    message += f" ({', '.join(f'{name} {level}' for name, level in closest.items())}) suppresses "
    message += limit.sentence(figures.suppressed_rows, rows, persons)
    if figures.classes == 0 or not limit.allows(figures.suppressed_rows, persons):
        reason, blamed = _find_binding_requirement(search_input, levels, figures.suppressed_rows)
    else:
        reason, blamed = _find_violated_conditions(search_input, search.figures[levels])
    message += reason
    if any(attribute.forbidden for attribute in policy.attributes.values()):
        message += ". Levels with forbidden labels were left out"
    unknown = max(search_input.marginals.unknown)
    if unknown:
        message += f". At least {unknown:,} rows have values that are missing from a hierarchy"
    if figures.classes == 0:
        message += ". No row would be released"
    count, unit = (rows, "rows") if limit.all_persons is None else (limit.all_persons, "persons")
    if count < policy.k:
        message += f": a class needs {policy.k:,} {unit}, and the source has {count:,}"
    message += describe_remedies(search_input, figures, blamed)
    return InfeasibleError(message, closest, figures.suppressed_rows, limit.rows, persons, limit.persons)


def _policy_limit(search_input: SearchInput, stopped: str) -> str:
    """The policy's limit, for a search that had a share of it."""
    name = stopped.partition(" ")[0]
    limit = getattr(search_input.policy.search, name)
    return stopped if limit is None else f"{name} = {limit:g}"


def _distance(figures: Figures, levels: Levels) -> tuple[float, int, int, Levels]:
    """Sort key by distance from the suppression limit. Persons are not counted if they are known to be too many."""
    persons = math.inf if figures.suppressed_persons is None else figures.suppressed_persons
    return persons, figures.suppressed_rows, -sum(levels), levels


def _with_persons(search_input: SearchInput, levels: Levels, figures: Figures) -> Figures:
    space = search_input.frequency_sets.class_space(levels)
    if figures.suppressed_persons is not None or not space.persons:
        return figures
    persons = count_persons_in_classes(search_input.frequency_sets, space, levels, kept=False)
    return replace(figures, suppressed_persons=persons)


def time_limit_error(search_input: SearchInput) -> InfeasibleError:
    """The error of a search that reached its time limit before it had checked anything."""
    heights = dict(zip(search_input.lattice.attributes, search_input.marginals.heights, strict=True))
    tallest = sorted(heights, key=lambda name: -heights[name])[:LISTED_ATTRIBUTES]
    examples = ", ".join(f"{name} {heights[name]}" for name in tallest)
    examples += ", ..." if len(heights) > LISTED_ATTRIBUTES else ""
    message = (
        f"search.time_limit = {search_input.policy.search.time_limit:g} ended the search before it had checked "
        f"anything: the policy has {len(heights):,} quasi-identifiers (heights of their hierarchies: {examples}). "
        'What can help: release fewer of them (role = "identifying" leaves a column out), take coarser ones '
        "(min_level, or hierarchies with fewer levels), or raise search.time_limit"
    )
    return InfeasibleError(message, None, 0, search_input.limit.rows, None, search_input.limit.persons)


def no_permitted_level_error(search_input: SearchInput) -> InfeasibleError:
    """The error of a search where every level of an attribute has a forbidden label."""
    lattice = search_input.lattice
    names = ", ".join(name for i, name in enumerate(lattice.attributes) if not lattice.levels(i))
    message = (
        f"{names}: at each level that the policy permits, a value of the source has a forbidden label; forbid fewer "
        "labels (the release then shows them), permit more levels, or release the table without the column"
    )
    return InfeasibleError(message, None, 0, 0)


def describe_remedies(search_input: SearchInput, figures: Figures, blamed: Sequence[str]) -> str:
    """Changes that make a policy feasible which suppresses too many rows or violates the blamed requirements."""
    suppressed, persons, remedies = figures.suppressed_rows, figures.suppressed_persons, []
    if figures.classes and not search_input.limit.allows(suppressed, persons):
        share = search_input.limit.share(suppressed, search_input.marginals.rows, persons)
        remedies.append(f"raise search.suppression_limit to {share:g}")
    if blamed == [f"{search_input.policy.k}-anonymity"]:
        remedies.append("lower k (it hides people among fewer others)")
    elif blamed:
        remedies.append(f"loosen {' or '.join(blamed)} (readers may then learn more about people)")
    attributes = search_input.policy.attributes
    limited = [name for name, attribute in attributes.items() if attribute.max_level is not None]
    if limited:
        remedies.append(f"raise the max_level of {' or '.join(limited)}")
    return f". What can help: {', or '.join(remedies)}" if remedies else ""


def _find_binding_requirement(search_input: SearchInput, levels: Levels, suppressed: int) -> tuple[str, list[str]]:
    """The sentence about the requirement without which the fewest rows would be suppressed, and the requirements to
    loosen. If dropping none of them changes anything, the rows that each suppresses alone."""
    space, requirements = search_input.frequency_sets.class_space(levels), search_input.requirements
    names = [condition.name for condition in requirements.class_conditions]
    names += [shield.name for shield in requirements.shields]
    if len(names) < 2:
        return (f". The requirement is {names[0]}" if names else ""), names

    def count_suppressed(subset: Requirements) -> int:
        query = candidate_query(replace(space, requirements=subset), levels)
        return int(search_input.frequency_sets.runner.fetch_figures(query)["suppressed_rows"])

    without = {name: count_suppressed(requirements.without(name)) for name in names}
    binding = min(names, key=lambda name: without[name])
    if without[binding] < suppressed:
        sentence = f". The binding requirement is {binding}; without it, {without[binding]:,} rows would be suppressed"
        return sentence, [binding]
    alone = {
        condition.name: count_suppressed(Requirements.from_conditions([condition]))
        for condition in requirements.conditions
        if condition.name in without
    }
    alone = {name: rows for name, rows in alone.items() if rows}
    counts = "; ".join(f"{name} alone suppresses {rows:,} rows" for name, rows in alone.items())
    return f". No single requirement is to blame: {counts}", [" and ".join(alone)]


def _find_violated_conditions(search_input: SearchInput, figures: Figures) -> tuple[str, list[str]]:
    """The sentence about conditions that the kept classes violate together, and the requirements to loosen."""
    requirements = search_input.requirements
    kept_classes = summarize_kept_classes(figures, search_input.marginals.rows)
    names = [condition.name for condition in requirements.table_conditions if not condition.is_met_by(kept_classes)]
    violations = list(names)
    if figures.uncovered_classes and requirements.covering_condition is not None:
        names.append(requirements.covering_condition.name)
        violations.append(
            f"{names[-1]}: {figures.uncovered_classes} classes of the population would have no row in the release"
        )
    for name, figure in figures.violated.items():
        names.append(name)
        violations.append(f"{name} ({'which cannot be estimated' if math.isnan(figure) else f'here {figure:.6g}'})")
    if not names:
        return "", []
    return f". It does not meet {'; nor '.join(violations)}", [" and ".join(names)]
