"""When nothing that satisfies the policy is found: what comes nearest, and which requirement stands in the way."""

from __future__ import annotations

from dataclasses import replace

from sqlanon.coding import Levels
from sqlanon.engines.base import Engine
from sqlanon.errors import InfeasibleError
from sqlanon.search.candidate import candidate
from sqlanon.search.preparation import SearchInput
from sqlanon.search.task import Outcome, Search


def infeasible(engine: Engine, prepared: SearchInput, search: Search, outcome: Outcome) -> InfeasibleError:
    """The error to raise: the generalization that would suppress the fewest rows, and the binding requirement.

    A search that stopped before it was done, or that by its nature does not look at everything, has not proven that
    nothing satisfies the policy; its error says so.
    """
    rows = prepared.marginals.rows
    checked = filter(search.lattice.permits, search.figures)
    levels = min(checked, key=lambda one: (search.figures[one].suppressed_rows, -sum(one), one))
    figures = search.figures[levels]
    nearest = search.lattice.named(levels)
    shown = ", ".join(f"{name} {level}" for name, level in nearest.items())
    message = "no generalization meets the policy. The one that comes nearest"
    if outcome.stopped:
        message = f"the search stopped at [search] {outcome.stopped} before it found a generalization that meets the "
        message += "policy; with a higher limit it may find one. Of those it looked at, the one that comes nearest"
    elif not outcome.exhaustive:
        message = f"strategy {prepared.policy.search.strategy} found no generalization that meets the policy; it does "
        message += 'not look at all of them, and strategy = "optimal", which does, may find one. '
        message += "Of those it looked at, the one that comes nearest"
    message += f" ({shown}) would have to suppress "
    message += f"{figures.suppressed_rows} of {rows} rows; the suppression limit allows {search.allowed_rows}"
    if figures.suppressed_rows > search.allowed_rows or figures.classes == 0:
        message += _binding(engine, prepared, levels)
    else:
        message += _of_the_table(prepared, search, levels)
    if any(spec.forbidden for spec in prepared.policy.attributes.values()):
        message += ". Levels with forbidden labels were left out"
    unknown = max(prepared.marginals.unknown)
    if unknown:
        message += f". At least {unknown} rows have values that are missing from a hierarchy"
    if figures.classes == 0:
        message += ". Nothing would be left to release"
    return InfeasibleError(message, nearest, figures.suppressed_rows, search.allowed_rows)


def nothing_allowed(prepared: SearchInput) -> InfeasibleError:
    """The error to raise where an attribute has no level without a forbidden label."""
    lattice = prepared.lattice
    names = ", ".join(name for i, name in enumerate(lattice.attributes) if not lattice.levels(i))
    message = f"at each level that the policy allows of {names}, a value of the source has a forbidden label: forbid "
    message += "fewer, allow more levels, or release the table without the column"
    return InfeasibleError(message, None, 0, 0)


def _binding(engine: Engine, prepared: SearchInput, levels: Levels) -> str:
    """The requirement without which the fewest rows would be suppressed, where there are several."""
    space, requirements = prepared.sets.at(levels), prepared.requirements
    names = [*(one.name for one in requirements.classes), *(one.name for one in requirements.shields)]
    if len(names) < 2:
        return f". The requirement: {names[0]}" if names else ""

    def left(name: str) -> int:
        others = replace(space, requirements=requirements.without(name))
        return int(prepared.sets.steps.figures(candidate(others, levels))["suppressed_rows"])

    lefts = {name: left(name) for name in names}
    name = min(names, key=lambda one: lefts[one])
    return f". The binding requirement is {name}: without it {lefts[name]} rows would be suppressed"


def _of_the_table(prepared: SearchInput, search: Search, levels: Levels) -> str:
    """What the kept classes of the nearest generalization do not meet together."""
    requirements, figures = prepared.requirements, search.figures[levels]
    broken = [one.name for one in requirements.table if not one.holds(figures.classes, figures.count, figures.singles)]
    if figures.unmet and requirements.covering is not None:
        broken.append(
            f"{requirements.covering.name}: {figures.unmet} classes of the population would have no row in the release"
        )
    if not figures.estimate_holds:
        broken += [one.name for one in requirements.estimates]
    return f". It does not meet {'; nor '.join(broken)}" if broken else ""
