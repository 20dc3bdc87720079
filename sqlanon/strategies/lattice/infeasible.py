"""Why a search found nothing: the errors, and what can help."""

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

SHOWN = 3
"""Quasi-identifiers that an error lists."""


def infeasible_error(prepared: SearchInput, search: LatticeSearch, outcome: Outcome) -> InfeasibleError:
    """The error to raise: the generalization that would suppress the fewest rows, and the binding requirement.

    A search that stopped before it was done, or that by its nature does not look at everything, has not proven that
    nothing satisfies the policy; its error says so.
    """
    rows = prepared.marginals.rows
    checked = [one for one in search.figures if search.lattice.permits(one) and search.figures[one].counted_share == 1]
    levels = min(checked, key=lambda one: _distance(search.figures[one], one))
    figures = _with_persons(prepared, levels, search.figures[levels])
    nearest = search.lattice.named(levels)
    shown = ", ".join(f"{name} {level}" for name, level in nearest.items())
    message = "no generalization meets the policy. The closest"
    if outcome.stopped:
        limit_reached = _limit_reached(prepared, outcome.stopped)
        message = f"the search stopped at [search] {limit_reached} before it found a generalization that meets the "
        message += "policy; with a higher limit it may find one. The closest so far"
    elif not outcome.exhaustive:
        message = f"strategy {prepared.policy.search.strategy} found no generalization that meets the policy. It does "
        message += 'not check all of them: strategy = "optimal" does, and may find one. The closest it found'
    limit, persons = prepared.limit, figures.suppressed_persons
    message += f" ({shown}) suppresses {limit.sentence(figures.suppressed_rows, rows, persons)}"
    if figures.classes == 0 or not limit.allows(figures.suppressed_rows, persons):
        words, blamed = _binding(prepared, levels, figures.suppressed_rows)
    else:
        words, blamed = _of_the_table(prepared, search, levels)
    message += words
    if any(spec.forbidden for spec in prepared.policy.attributes.values()):
        message += ". Levels with forbidden labels were left out"
    unknown = max(prepared.marginals.unknown)
    if unknown:
        message += f". At least {unknown:,} rows have values that are missing from a hierarchy"
    if figures.classes == 0:
        message += ". No row would be released"
    count, who = (rows, "rows") if limit.all_persons is None else (limit.all_persons, "persons")
    if count < (prepared.policy.privacy.k or 0):
        message += f": a class needs {prepared.policy.privacy.k:,} {who}, and the source has {count:,}"
    message += describe_remedies(prepared, figures, blamed)
    return InfeasibleError(message, nearest, figures.suppressed_rows, limit.rows, persons, limit.persons)


def _limit_reached(prepared: SearchInput, stopped: str) -> str:
    """The limit of the policy that ended a search which had a part of it."""
    name = stopped.partition(" ")[0]
    limit = getattr(prepared.policy.search, name)
    return stopped if limit is None else f"{name} = {limit:g}"


def _distance(figures: Figures, levels: Levels) -> tuple[float, int, int, Levels]:
    """How far a generalization is from the suppression limit. Where persons are not counted they are too many."""
    persons = math.inf if figures.suppressed_persons is None else figures.suppressed_persons
    return persons, figures.suppressed_rows, -sum(levels), levels


def _with_persons(prepared: SearchInput, levels: Levels, figures: Figures) -> Figures:
    """The figures of a generalization with the persons whose rows it suppresses."""
    space = prepared.frequency_sets.at(levels)
    if figures.suppressed_persons is not None or not space.persons:
        return figures
    persons = count_persons_in_classes(prepared.frequency_sets, space, levels, kept=False)
    return replace(figures, suppressed_persons=persons)


def time_limit_error(prepared: SearchInput) -> InfeasibleError:
    """The error to raise where the time limit ends a search before it has checked anything."""
    heights = dict(zip(prepared.lattice.attributes, prepared.marginals.heights, strict=True))
    tallest = sorted(heights, key=lambda name: -heights[name])[:SHOWN]
    shown = ", ".join(f"{name} {heights[name]}" for name in tallest) + (", ..." if len(heights) > SHOWN else "")
    message = f"search.time_limit = {prepared.policy.search.time_limit:g} ended the search before it had checked "
    message += f"anything: the policy has {len(heights):,} quasi-identifiers (heights of their hierarchies: {shown}). "
    message += 'What can help: release fewer of them (role = "identifying" leaves a column out), take coarser ones '
    message += "(min_level, or hierarchies with fewer levels), or raise search.time_limit"
    return InfeasibleError(message, None, 0, prepared.limit.rows, None, prepared.limit.persons)


def no_permitted_level_error(prepared: SearchInput) -> InfeasibleError:
    """The error to raise where an attribute has no level without a forbidden label."""
    lattice = prepared.lattice
    names = ", ".join(name for i, name in enumerate(lattice.attributes) if not lattice.levels(i))
    message = f"at each level that the policy allows of {names}, a value of the source has a forbidden label: forbid "
    message += "fewer (the release then shows them), allow more levels, or release the table without the column"
    return InfeasibleError(message, None, 0, 0)


def describe_remedies(prepared: SearchInput, figures: Figures, blamed: Sequence[str]) -> str:
    """What makes a policy feasible that suppresses too many rows, or breaks one of these requirements."""
    suppressed, persons, ways = figures.suppressed_rows, figures.suppressed_persons, []
    if figures.classes and not prepared.limit.allows(suppressed, persons):
        share = prepared.limit.share(suppressed, prepared.marginals.rows, persons)
        ways.append(f"raise search.suppression_limit to {share:g}")
    if blamed == [f"{prepared.policy.privacy.k}-anonymity"]:
        ways.append("lower k (it hides people among fewer others)")
    elif blamed:
        ways.append(f"loosen {' or '.join(blamed)} (readers may then learn more of people)")
    limited = [name for name, one in prepared.policy.attributes.items() if one.max_level is not None]
    if limited:
        ways.append(f"raise the max_level of {' or '.join(limited)}")
    return f". What can help: {', or '.join(ways)}" if ways else ""


def _binding(prepared: SearchInput, levels: Levels, suppressed: int) -> tuple[str, list[str]]:
    """Of several requirements, the one without which the fewest rows would be suppressed, or where each alone changes
    nothing, what they suppress; and what is to blame."""
    space, requirements = prepared.frequency_sets.at(levels), prepared.requirements
    names = [*(one.name for one in requirements.class_conditions), *(one.name for one in requirements.shields)]
    if len(names) < 2:
        return (f". The requirement is {names[0]}" if names else ""), names

    def suppressed_by(some: Requirements) -> int:
        asked = candidate_query(replace(space, requirements=some), levels)
        return int(prepared.frequency_sets.steps.figures(asked)["suppressed_rows"])

    left = {name: suppressed_by(requirements.without(name)) for name in names}
    name = min(names, key=lambda one: left[one])
    if left[name] < suppressed:
        return f". The binding requirement is {name}; without it, {left[name]:,} rows would be suppressed", [name]
    alone = {
        one.name: suppressed_by(Requirements.from_conditions([one]))
        for one in requirements.conditions
        if one.name in left
    }
    binding = [f"{name} alone suppresses {rows:,} rows" for name, rows in alone.items() if rows]
    blamed = " and ".join(name for name, rows in alone.items() if rows)
    return f". No single requirement is to blame: {'; '.join(binding)}", [blamed]


def _of_the_table(prepared: SearchInput, search: LatticeSearch, levels: Levels) -> tuple[str, list[str]]:
    """What the kept classes of the nearest generalization do not meet together; and what is to blame."""
    requirements, figures = prepared.requirements, search.figures[levels]
    kept = summarize_kept_classes(figures, prepared.marginals.rows)
    broken = [one.name for one in requirements.table_conditions if not one.is_met_by(kept)]
    names = list(broken)
    if figures.unmet and requirements.covering_condition is not None:
        names.append(requirements.covering_condition.name)
        broken.append(f"{names[-1]}: {figures.unmet} classes of the population would have no row in the release")
    for name, figure in figures.violated.items():
        names.append(name)
        broken.append(f"{name} ({'which cannot be estimated' if math.isnan(figure) else f'here {figure:.6g}'})")
    return (f". It does not meet {'; nor '.join(broken)}" if broken else ""), [" and ".join(names)] if names else []
