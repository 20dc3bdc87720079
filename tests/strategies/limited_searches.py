"""Searches that stop after a number of checks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from oracles import oracle
from oracles.oracle import Table
from properties import random_cases
from properties.plain_search import search_by, search_of
from properties.random_cases import Case
from sqlanon.strategies.lattice import Lattice, LatticeSearch, Outcome


@dataclass(frozen=True)
class Limited:
    """A case, and the levels that each attribute may have."""

    case: Case
    levels: tuple[tuple[int, ...], ...]

    def search(self, **limits: Any) -> LatticeSearch:
        """A search within the levels."""
        search = search_of(self.case, **limits)
        bottom, top = (tuple(pick(level) for level in self.levels) for pick in (min, max))
        holes = tuple(frozenset(range(min(levels), max(levels))) - frozenset(levels) for levels in self.levels)
        search.lattice = Lattice(search.lattice.attributes, bottom, top, holes if any(holes) else ())
        return search

    def satisfying(self) -> list[oracle.Figures]:
        """The feasible generalizations within the levels, checked one after the other."""
        arguments = self.case.arguments
        table = Table.of(arguments.pop("rows"), arguments.pop("hierarchies"))
        candidates = oracle.satisfying(table, **arguments)
        return [
            candidate
            for candidate in candidates
            if all(
                level in attribute_levels for level, attribute_levels in zip(candidate.levels, self.levels, strict=True)
            )
        ]


@st.composite
def limit_search(draw: st.DrawFn) -> Limited:
    """Often all levels; else some, which may leave gaps."""
    case = draw(random_cases.cases().filter(lambda tables: bool(tables.rows)))
    whole = tuple(tuple(range(tree.height + 1)) for tree in case.hierarchies.values())
    if draw(st.booleans()):
        return Limited(case, whole)
    some = [draw(st.sets(st.sampled_from(levels), min_size=1)) for levels in whole]
    return Limited(case, tuple(tuple(sorted(levels)) for levels in some))


def minimal_of(figures: list[oracle.Figures]) -> list[oracle.Figures]:
    return [
        figure for figure in figures if not any(oracle.strictly_lower(lower.levels, figure.levels) for lower in figures)
    ]


def every_stop(limited_case: Limited, strategy: str) -> Iterator[tuple[LatticeSearch, Outcome]]:
    """The outcomes after any number of checks, up to the last: it was not stopped."""
    checks = 0
    while True:
        checks += 1
        search = limited_case.search(checks=checks)
        outcome = search_by(strategy, search)
        yield search, outcome
        if not outcome.stopped:
            return
        assert len(search.figures) == checks
