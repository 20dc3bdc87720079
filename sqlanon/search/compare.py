"""One policy, several strategies: what each finds, beside one another. Nothing is published or recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from sqlglot import exp

from sqlanon.errors import PolicyError, Problem
from sqlanon.expressions import cast, col, ident, named, select
from sqlanon.measures import Figures, Loss
from sqlanon.policy import Policy
from sqlanon.policy.strategies import STRATEGIES, traits_of
from sqlanon.search.full_domain import allowed_rows, checker, measure_of
from sqlanon.search.input import SearchInput
from sqlanon.search.result import SearchResult

COLUMNS: Mapping[str, str] = {
    "strategy": "VARCHAR",
    "score": "DOUBLE",
    "loss": "DOUBLE",
    "classes": "BIGINT",
    "suppressed_rows": "BIGINT",
    "checked": "BIGINT",
    "optimal": "BOOLEAN",
    "seconds": "DOUBLE",
    "error": "VARCHAR",
}
"""Columns and types of a comparison: see `Compared`."""

ComparisonProgress = Callable[[str, int, int, "float | None"], None]
"""Called with the strategy, generalizations open and checked, and the best score so far."""


@dataclass(frozen=True)
class Compared:
    """What one strategy found, in the order of `COLUMNS`; None where it found nothing, and ``error`` says why.

    ``loss`` is the score by the measure of that name, whatever the policy's is. ``checked`` are generalizations, and
    rounds of local strategies; ``seconds`` are of wall time, for reading the source and for the search.
    """

    strategy: str
    score: float | None = None
    loss: float | None = None
    classes: int | None = None
    suppressed_rows: int | None = None
    checked: int | None = None
    optimal: bool | None = None
    seconds: float = 0.0
    error: str | None = None


def policies_of(policy: Policy, strategies: Sequence[str] | None) -> dict[str, Policy | PolicyError]:
    """The same policy for each strategy, or why that cannot do what it asks.

    What other strategies alone know (how Mondrian cuts, cells for strategies that blank none) is left out.
    """
    if strategies is None:
        limited = policy.search.time_limit is not None or policy.search.max_checks is not None
        able = {
            name: with_search(policy, {"strategy": name})
            for name, one in STRATEGIES.items()
            if limited or one.traits.ends
        }
        return {name: found for name, found in able.items() if isinstance(found, Policy)}
    if not strategies:
        raise PolicyError([Problem("search.strategy", f"name at least one of {', '.join(STRATEGIES)}")])
    return {name: with_search(policy, {"strategy": name}) for name in dict.fromkeys(strategies)}


def with_search(policy: Policy, keys: Mapping[str, str]) -> Policy | PolicyError:
    """The policy with other keys of ``[search]``, the strategy among them; or why it cannot have them."""
    tree, strategy = policy.model_dump(exclude_none=True), keys["strategy"]
    search = tree["search"] | keys
    for key in traits_of(strategy).ignores:
        search.pop(key, None)
    try:
        return Policy(**{**tree, "search": search})
    except PolicyError as error:
        if strategy not in STRATEGIES:
            raise
        return error


def compared(strategy: str, prepared: SearchInput, found: SearchResult, released: Figures, seconds: float) -> Compared:
    """What a strategy found, and would release."""
    return Compared(
        strategy=strategy,
        score=measure_of(prepared).shown(found.score),
        loss=loss_of(prepared, found),
        classes=released.classes,
        suppressed_rows=released.suppressed_rows,
        checked=found.checked,
        optimal=found.optimal,
        seconds=seconds,
    )


def loss_of(prepared: SearchInput, found: SearchResult) -> float:
    """The loss of what was found. Of a generalization that is one more check, for the measure `loss` asks for more than
    others do."""
    loss = Loss(prepared.marginals, prepared.weights)
    if found.placed is not None:
        return found.placed.score(loss)
    levels = found.levels
    assert levels is not None
    return loss.score(levels, checker(prepared.sets.steps.engine, prepared, loss, allowed_rows(prepared))(levels))


def relation_of(rows: Sequence[Compared]) -> exp.Select:
    """A comparison as a query with `COLUMNS`, in the order of the strategies."""
    values = exp.Values(
        expressions=[exp.Tuple(expressions=[exp.convert(value) for value in asdict(row).values()]) for row in rows],
        alias=exp.TableAlias(this=ident("c"), columns=[ident(name) for name in COLUMNS]),
    )
    return select([named(cast(col(name), type_), name) for name, type_ in COLUMNS.items()], values)
