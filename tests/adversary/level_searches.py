"""Searches with level limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlanon.policy.strategies import STRATEGIES


def searches() -> Iterator[dict[str, Any]]:
    """Every strategy in each of its ways."""
    for name, strategy in STRATEGIES.items():
        limits = {} if strategy.traits.terminates else {"max_checks": 40}
        summaries = ("range", "median", "set") if strategy.traits.summarizes else (None,)
        for summary in summaries:
            yield {"strategy": name, **limits} | ({"summary": summary} if summary else {})
        if strategy.traits.splits_classes:
            yield {"strategy": name, "cuts": "relaxed"}
        if strategy.traits.summarizes:
            yield {"strategy": name, "summary": "set", "sets": "list"}
    yield {"suppression": "cells"}
    yield {"strategy": "ola", "suppression": "cells"}
