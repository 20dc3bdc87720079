"""Compare strategies for one policy. Nothing is published or recorded."""

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
from sqlanon.support.expressions import as_column, cast, col, ident, select

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
"""Columns and types of a comparison: see `ComparisonRow`."""

DEFAULT_SECONDS = 30.0
"""Time for each strategy unless the user sets another."""

_SEARCH_SHARE = 0.8
"""Share of a strategy's time for its search; scans and counts take the other part."""

ComparisonProgress = Callable[[str, int, int, "float | None"], None]
"""Called with the strategy, the numbers of open and checked generalizations, and the best score so far."""


@dataclass(frozen=True)
class ComparisonRow:
    """The result of one strategy, in the order of `COLUMNS`; without a result, ``error`` gives the reason.

    ``loss`` is the score by the measure `loss`, whatever measure the policy has. ``checked`` counts generalizations,
    and rounds of local strategies. ``seconds`` is the wall time for reading the source and for the search.
    ``guarantees_k`` is false if k-anonymity holds for combinations of a few quasi-identifiers only. A ``stopped``
    strategy reached a time limit, and may find a better result with more time. ``undecided_person`` is not a column: it
    belongs to the policy, and names a column that numbers people and that the policy does not declare as person.
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
    """The policy with each strategy, or the error of a strategy that does not support it.

    Keys that only other strategies use are removed. Without ``strategies``: all that support the policy and terminate.
    """
    if strategies is None:
        endless = find_endless_strategies(policy)
        policies = {name: with_search_keys(policy, {"strategy": name}) for name in STRATEGIES if name not in endless}
        return {name: changed for name, changed in policies.items() if isinstance(changed, Policy)}
    if not strategies:
        raise PolicyError([Problem("search.strategy", f"name at least one of {', '.join(STRATEGIES)}")])
    return {name: with_search_keys(policy, {"strategy": name}) for name in dict.fromkeys(strategies)}


def find_endless_strategies(policy: Policy) -> list[str]:
    """The strategies that support the policy but end at a limit only, where the policy has none."""
    if policy.search.time_limit is not None or policy.search.max_checks is not None:
        return []
    endless = [name for name, strategy in STRATEGIES.items() if not strategy.traits.terminates]
    return [name for name in endless if isinstance(with_search_keys(policy, {"strategy": name}), Policy)]


def with_search_keys(policy: Policy, keys: Mapping[str, str]) -> Policy | PolicyError:
    """The policy with other keys of ``[search]``, a strategy among them; the error if they are incompatible."""
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
    """The policy with a time limit that ends the search early enough to count its result."""
    if seconds is None:
        return policy
    limit = min(_SEARCH_SHARE * seconds, float(policy.search.time_limit or math.inf))
    return policy.model_copy(update={"search": policy.search.model_copy(update={"time_limit": limit})})


def build_comparison_row(
    strategy: str,
    search_input: SearchInput,
    search_result: SearchResult,
    released: Figures,
    search_seconds: float,
    seconds: float,
    undecided_person: str | None = None,
) -> ComparisonRow:
    """The row of a strategy that found a result; ``released`` has the figures of its release."""
    search = search_input.policy.search
    return ComparisonRow(
        strategy=strategy,
        score=policy_measure(search_input).reported_score(search_result.score),
        loss=compute_loss(search_input, search_result),
        classes=released.classes,
        suppressed_rows=released.suppressed_rows,
        checked=search_result.checked,
        optimal=search_result.optimal,
        guarantees_k=not search.traits.protects_combinations_only,
        stopped=search.time_limit is not None and search_seconds >= search.time_limit,
        seconds=seconds,
        suppressed_persons=released.suppressed_persons,
        undecided_person=undecided_person,
    )


def compute_loss(search_input: SearchInput, search_result: SearchResult) -> float:
    """The score of a search result by the measure `loss`.

    A generalization is checked once more, because `loss` needs figures that other measures do not.
    """
    loss = Loss(search_input.marginals, search_input.weights)
    if search_result.local_result is not None:
        return search_result.local_result.score(loss)
    levels = search_result.levels
    assert levels is not None
    return loss.score(levels, Checker(search_input.frequency_sets.runner.engine, search_input, loss)(levels))


def compute_attribute_losses(search_input: SearchInput, search_result: SearchResult) -> dict[str, float]:
    """The loss of each generalized quasi-identifier, from 0 to 1, before noise and decoys."""
    marginals, levels, local_result = search_input.marginals, search_result.levels, search_result.local_result
    figures = None
    if levels is not None:
        figures = Checker(search_input.frequency_sets.runner.engine, search_input, Loss(marginals))(levels)
    losses = {}
    for i, name in enumerate(search_input.policy.generalized_attributes):
        loss = Loss(marginals, [float(i == j) for j in range(len(search_input.attributes))], "sum")
        if levels is not None and figures is not None:
            losses[name] = loss.score(levels, figures)
        elif local_result is not None:
            losses[name] = local_result.score(loss)
    return losses


def comparison_query(rows: Sequence[ComparisonRow]) -> exp.Select:
    """A comparison as a query with `COLUMNS`, in the order of the strategies."""
    values = exp.Values(
        expressions=[exp.Tuple(expressions=[exp.convert(asdict(row)[name]) for name in COLUMNS]) for row in rows],
        alias=exp.TableAlias(this=ident("c"), columns=[ident(name) for name in COLUMNS]),
    )
    return select([as_column(cast(col(name), type_), name) for name, type_ in COLUMNS.items()], values)
