"""Strategy flash: its criteria, and its paths. Its results and proofs are compared with the oracle in test_ola."""

from __future__ import annotations

from stop_checks import MIXED

from oracles import oracle
from oracles.oracle import Levels
from properties.plain_search import search_by, search_of
from properties.random_cases import Case
from sqlanon.strategies.full_domain.flash import _Paths

# One attribute of height 1 with two values, one of height 3 with eight.
UNEVEN = Case(
    rows=[(a, str(b)) for a in "mf" for b in range(8)] * 2,
    hierarchies={
        "sex": oracle.Hierarchy({v: (v, "*") for v in "mf"}),
        "age": oracle.Hierarchy({str(b): (str(b), f"{b // 2}.", f"{b // 4}..", "*") for b in range(8)}),
    },
    k=4,
    limit="0",
    measure="loss",
)


def test_the_criteria_are_height_then_relative_level_then_leaves() -> None:
    criteria = _Paths(search_of(UNEVEN))._criteria
    assert criteria((1, 0)) < criteria((0, 2)), "height comes first"
    assert criteria((0, 1)) < criteria((1, 0)), "a third of the way up is less than all of it"
    assert sorted([(1, 3), (0, 3), (1, 2), (0, 0), (1, 1), (0, 2)], key=criteria) == [
        (0, 0), (0, 2), (1, 1), (0, 3), (1, 2), (1, 3),
    ]  # fmt: skip


def test_the_first_path_is_bisected() -> None:
    """First the top, then the middle of the path (0,0) (0,1) (0,2) (0,3) (1,3), then the middle of the rest."""
    search = search_of(UNEVEN)
    checks: list[Levels] = []
    count = search.checker
    search.checker = lambda levels: checks.append(levels) or count(levels)
    outcome = search_by("flash", search)
    # Each of 16 combinations has 2 rows: one step is enough.
    assert checks[:3] == [(1, 3), (0, 1), (0, 0)]
    assert outcome.minimal == ((0, 1), (1, 0))
    assert outcome.optimal


def test_flash_takes_few_checks() -> None:
    """Fewer than there are generalizations, and never more than one for each that is not tagged."""
    search = search_of(MIXED)
    outcome = search_by("flash", search)
    assert len(search.figures) <= search.lattice.size - 2
    assert outcome.minimal
