"""One policy, several strategies: what each finds, beside one another. Nothing is published or recorded."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from sqlglot import exp

from sqlanon.errors import PolicyError, Problem
from sqlanon.measures import Figures, Loss
from sqlanon.policy import Policy
from sqlanon.policy.strategies import STRATEGIES, strategy_traits
from sqlanon.strategies.lattice.checker import Checker, policy_measure
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.strategies.lattice.result import SearchResult
from sqlanon.support.expressions import cast, col, ident, named, select

COLUMNS: Mapping[str, str] = {
    "strategy": "VARCHAR",
    "score": "DOUBLE",
    "loss": "DOUBLE",
    "classes": "BIGINT",
    "suppressed_rows": "BIGINT",
    "checked": "BIGINT",
    "optimal": "BOOLEAN",
    "guarantees_k": "BOOLEAN",
    "stopped": "BOOLEAN",
    "seconds": "DOUBLE",
    "error": "VARCHAR",
    "suppressed_persons": "BIGINT",
}
"""Columns and types of a comparison: see `Compared`."""

DEFAULT_SECONDS = 30.0
"""What each strategy may take where nobody chose it."""

_SEARCHES = 0.8
"""Of the time of a strategy, what its search may take; the rest is for reading and counting."""

ComparisonProgress = Callable[[str, int, int, "float | None"], None]
"""Called with the strategy, generalizations open and checked, and the best score so far."""


@dataclass(frozen=True)
class ComparisonRow:
    """What one strategy found, in the order of `COLUMNS`; None where it found nothing, and ``error`` says why.

    ``loss`` is the score by the measure of that name, whatever the policy's is. ``checked`` are generalizations, and
    rounds of local strategies; ``seconds`` are of wall time, for reading the source and for the search. Where
    ``guarantees_k`` is false, k-anonymity holds for some quasi-identifiers at a time, and not for all together. What
    was ``stopped`` by a time limit may find better with more time, or found nothing yet. ``undecided_person`` is no
    column: it is of the policy, and says that a column numbers people whom the policy does not name.
    """

    strategy: str
    score: float | None = None
    loss: float | None = None
    classes: int | None = None
    suppressed_rows: int | None = None
    checked: int | None = None
    optimal: bool | None = None
    guarantees_k: bool | None = None
    stopped: bool | None = None
    seconds: float = 0.0
    error: str | None = None
    suppressed_persons: int | None = None
    undecided_person: str | None = None


def policies_by_strategy(policy: Policy, strategies: Sequence[str] | None) -> dict[str, Policy | PolicyError]:
    """The same policy for each strategy, or why that cannot do what it asks.

    What other strategies alone know (how Mondrian cuts, cells for strategies that blank none) is left out.
    """
    if strategies is None:
        endless = find_endless_strategies(policy)
        able = {name: with_search_keys(policy, {"strategy": name}) for name in STRATEGIES if name not in endless}
        return {name: found for name, found in able.items() if isinstance(found, Policy)}
    if not strategies:
        raise PolicyError([Problem("search.strategy", f"name at least one of {', '.join(STRATEGIES)}")])
    return {name: with_search_keys(policy, {"strategy": name}) for name in dict.fromkeys(strategies)}


def find_endless_strategies(policy: Policy) -> list[str]:
    """The strategies that fit a policy, but end by a limit alone, which the policy does not have."""
    if policy.search.time_limit is not None or policy.search.max_checks is not None:
        return []
    endless = [name for name, one in STRATEGIES.items() if not one.traits.terminates]
    return [name for name in endless if isinstance(with_search_keys(policy, {"strategy": name}), Policy)]


def with_search_keys(policy: Policy, keys: Mapping[str, str]) -> Policy | PolicyError:
    """The policy with other keys of ``[search]``, the strategy among them; or why it cannot have them."""
    tree, strategy = policy.model_dump(exclude_none=True), keys["strategy"]
    search = tree["search"] | keys
    for key in strategy_traits(strategy).ignored_keys:
        search.pop(key, None)
    try:
        return Policy(**{**tree, "search": search})
    except PolicyError as error:
        if strategy not in STRATEGIES:
            raise
        return error


def with_time_limit(policy: Policy, seconds: float | None) -> Policy:
    """The policy with a search that ends by itself before its time is over, so that there is a result to count."""
    if seconds is None:
        return policy
    limit = min(_SEARCHES * seconds, float(policy.search.time_limit or math.inf))
    return policy.model_copy(update={"search": policy.search.model_copy(update={"time_limit": limit})})


def build_comparison_row(
    strategy: str,
    prepared: SearchInput,
    found: SearchResult,
    released: Figures,
    searched: float,
    seconds: float,
    undecided_person: str | None = None,
) -> ComparisonRow:
    """What a strategy found, and would release; the seconds of the search, and all of them."""
    search = prepared.policy.search
    return ComparisonRow(
        strategy=strategy,
        score=policy_measure(prepared).reported_score(found.score),
        loss=compute_loss(prepared, found),
        classes=released.classes,
        suppressed_rows=released.suppressed_rows,
        checked=found.checked,
        optimal=found.optimal,
        guarantees_k=not search.traits.protects_combinations_only,
        stopped=search.time_limit is not None and searched >= search.time_limit,
        seconds=seconds,
        suppressed_persons=released.suppressed_persons,
        undecided_person=undecided_person,
    )


def compute_loss(prepared: SearchInput, found: SearchResult) -> float:
    """The loss of what was found. Of a generalization that is one more check, for the measure `loss` asks for more than
    others do."""
    loss = Loss(prepared.marginals, prepared.weights)
    if found.local_result is not None:
        return found.local_result.score(loss)
    levels = found.levels
    assert levels is not None
    return loss.score(levels, Checker(prepared.frequency_sets.steps.engine, prepared, loss)(levels))


def compute_attribute_losses(prepared: SearchInput, found: SearchResult) -> dict[str, float]:
    """The loss of each quasi-identifier that is generalized, from 0 to 1; before noise and decoys."""
    marginals, levels, placed = prepared.marginals, found.levels, found.local_result
    figures = None
    if levels is not None:
        figures = Checker(prepared.frequency_sets.steps.engine, prepared, Loss(marginals))(levels)
    losses = {}
    for i, name in enumerate(prepared.policy.generalized_attributes):
        alone = Loss(marginals, [float(i == j) for j in range(len(prepared.attributes))], "sum")
        if levels is not None and figures is not None:
            losses[name] = alone.score(levels, figures)
        elif placed is not None:
            losses[name] = placed.score(alone)
    return losses


def comparison_query(rows: Sequence[ComparisonRow]) -> exp.Select:
    """A comparison as a query with `COLUMNS`, in the order of the strategies."""
    values = exp.Values(
        expressions=[exp.Tuple(expressions=[exp.convert(asdict(row)[name]) for name in COLUMNS]) for row in rows],
        alias=exp.TableAlias(this=ident("c"), columns=[ident(name) for name in COLUMNS]),
    )
    return select([named(cast(col(name), type_), name) for name, type_ in COLUMNS.items()], values)
