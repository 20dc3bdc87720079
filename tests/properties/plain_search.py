"""A search over a table in plain Python, without an engine: the figures are counted by the oracle."""

from __future__ import annotations

import math
from collections import Counter
from importlib import import_module
from typing import Any

from oracles import oracle
from oracles.oracle import Release, Table, Value
from properties.random_cases import Case
from sqlanon.measures import MEASURES, Figures, Marginals, Measure
from sqlanon.policy.strategies import STRATEGIES
from sqlanon.requirements import KAnonymity, Requirements
from sqlanon.strategies.lattice import Budget, Lattice, LatticeSearch, Outcome
from sqlanon.strategies.lattice.search import VerdictRules

WIDE = [name for name, strategy in STRATEGIES.items() if not strategy.traits.is_local]


def search_by(strategy: str, search: LatticeSearch) -> Outcome:
    """Result of a full-domain strategy in a search, for any requirements."""
    module = STRATEGIES[strategy].module
    assert module is not None
    return import_module(module).run.__wrapped__(search)


def is_known(table: Table, attribute: int, value: Value) -> bool:
    return table.hierarchies[attribute].knows(value)


def marginals_of(table: Table) -> Marginals:
    attributes = range(len(table.names))
    leaf_sums, entropies = [], []
    for a in attributes:
        sums, bits = [], []
        for level, label in enumerate(table.labels[a]):
            under = table.leaves_under[a][level]
            counts = table.values[a].items()
            sums.append(float(sum(n * (under[label[v]] - 1) for v, n in counts if is_known(table, a, v))))
            whole: Counter[Value] = Counter()
            for value, n in counts:
                whole[label[value]] += n
            bits.append(-math.fsum(n * math.log2(n / whole[label[v]]) for v, n in counts))
        leaf_sums.append(tuple(sums))
        entropies.append(tuple(bits))
    return Marginals(
        table.size,
        tuple(tree.height for tree in table.hierarchies),
        tuple(len(table.ground_values(a)) for a in attributes),
        tuple(sum(n for v, n in table.values[a].items() if not is_known(table, a, v)) for a in attributes),
        tuple(leaf_sums),
        tuple(entropies),
    )


def figures_of(release: Release) -> Figures:
    table, rows = release.table, list(release.suppressed_rows())
    leaves, entropy = {}, 0.0
    for a, level in enumerate(release.levels):
        label, under = table.labels[a][level], table.leaves_under[a][level]
        if 0 < level < table.hierarchies[a].height:
            leaves[a] = float(sum(n * (under[label[row[a]]] - 1) for row, n in rows if is_known(table, a, row[a])))
        counts: Counter[Value] = Counter()
        for row, n in rows:
            counts[label[row[a]]] += n
        entropy -= math.fsum(n * math.log2(n / release.suppressed) for n in counts.values())
    return Figures(
        classes=len(release.kept),
        suppressed_rows=release.suppressed,
        squared_sizes=float(sum(n * n for n in release.kept.values())),
        suppressed_leaves=leaves,
        suppressed_entropy=entropy,
    )


def measure_of(case: Case, table: Table) -> Measure:
    weights = [(case.weights or {}).get(name, 1.0) for name in case.hierarchies]
    return MEASURES[case.measure](marginals_of(table), weights, case.aggregate or "mean", case.k)


def search_of(case: Case, **limits: Any) -> LatticeSearch:
    """A search for the answer to a case; nothing is checked yet."""
    table = Table.of(case.rows, case.hierarchies)
    tops = tuple(tree.height for tree in table.hierarchies)
    return LatticeSearch(
        Lattice(table.names, (0,) * len(tops), tops),
        measure_of(case, table),
        lambda levels: figures_of(Release(table, levels, case.k)),
        VerdictRules(Requirements((KAnonymity(case.k),)), table.size).draw_verdict,
        oracle.allowed_rows(case.limit, table.size),
        budget=Budget(**limits),
    )
