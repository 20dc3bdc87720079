"""Check results of searches that were stopped."""

from __future__ import annotations

import tempfile
from pathlib import Path

import sqlanon
from oracles import oracle
from oracles.oracle import Hierarchy, Release, Table
from oracles.oracle_privacy import Release as PrivacyRelease
from oracles.oracle_privacy import satisfies as satisfies_privacy
from oracles.oracle_privacy import solve as solve_privacy
from oracles.score_bounds import holds
from properties.plain_search import search_by, search_of
from properties.privacy_cases import PrivacyCase
from properties.privacy_checks import open_database, policy_of
from properties.random_cases import Case
from sqlanon.strategies.lattice import LatticeSearch, Outcome


def check_every_stop(case: Case, strategy: str) -> None:
    """Check that the answer after any number of checks meets the policy, and that its proofs are true."""
    best, minimal = oracle.solve(**case.arguments), oracle.k_minimal(**case.arguments)
    table = Table.of(case.rows, case.hierarchies)
    if not table.size:
        return
    stopped, checks = True, 0
    while stopped:
        checks += 1
        search = search_of(case, checks=checks)
        outcome = search_by(strategy, search)
        stopped = bool(outcome.stopped)
        assert len(search.figures) == checks if stopped else len(search.figures) <= checks
        if best is None:
            assert outcome.levels is None
            continue
        assert minimal is not None
        sign = -1 if case.measure in oracle.MAXIMISED else 1
        assert holds(outcome.bound, sign * best.score)
        if strategy == "k_minimal":
            minimal_levels = {figures.levels for figures in minimal.satisfying}
            assert outcome.minimal is not None
            assert set(outcome.minimal) <= minimal_levels if stopped else set(outcome.minimal) == minimal_levels
        if outcome.levels is not None:
            check_answer(case, search, outcome, best, table)
        else:
            assert stopped


def check_answer(case: Case, search: LatticeSearch, outcome: Outcome, best: oracle.Solution, table: Table) -> None:
    levels = outcome.levels
    assert levels is not None
    assert oracle.satisfies(Release(table, levels, case.k), case.limit)
    assert outcome.bound <= search.scores[levels]
    assert search.choose_preferred((levels, *(outcome.minimal or search.scores))) == levels
    if outcome.optimal:
        assert not outcome.stopped
        assert levels == best.levels
        assert outcome.bound == search.scores[levels]


def check_privacy(case: PrivacyCase, checks: int) -> None:
    """Check a search with any requirements, through the public API."""
    best = solve_privacy(**case.arguments)
    if best is None:
        return
    with tempfile.TemporaryDirectory() as name, open_database(case.source) as db:
        policy = policy_of(case, "optimal", Path(name))
        limited = policy.search.model_copy(update={"max_checks": checks})
        try:
            result = db.anonymize(policy.model_copy(update={"search": limited}))
        except sqlanon.InfeasibleError as error:
            assert f"stopped at [search] max_checks = {checks}" in str(error)
            return
    levels = tuple(result.generalization[name] for name in case.source.quasi)
    assert satisfies_privacy(PrivacyRelease(case.source, levels, case.privacy), case.limit)
    sign = -1 if case.measure in oracle.MAXIMISED else 1
    tolerance = 1e-9 * abs(best.score)  # the engine's sums of logarithms are not the oracle's
    assert sign * result.bound <= sign * best.score + tolerance
    if result.optimal:
        assert (levels, result.gap) == (best.levels, 0)


# A few combinations that repeat, and some that do not; nothing is decided by the first checks.
MIXED = Case(
    rows=[(f"{i % 7}{i % 3}", f"{i % 5}{i % 2}") for i in range(60)],
    hierarchies={
        name: Hierarchy({v: (v, v[0], "*") for v in (f"{a}{b}" for a in range(7) for b in range(3))})
        for name in ("one", "two")
    },
    k=4,
    limit="0.2",
    measure="loss",
)
