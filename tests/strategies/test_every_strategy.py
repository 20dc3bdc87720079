"""Every strategy on small tables: everything that it claims is compared with exhaustive search.

A table is prepared once and searched by each strategy that its policy allows. The result of a full-domain strategy is
compared with all generalizations. The release of a local strategy is read back, and each class is checked as readers
see it. Local strategies are heuristics, so a golden file records their results, too (``tests/golden/strategies.txt``):
``python tests/strategies/test_every_strategy.py`` writes it again; judge the diff.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from hashlib import sha256
from operator import itemgetter
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pytest
from plain_datafly import steps_of_datafly

import sqlanon
from oracles import oracle, oracle_privacy
from oracles.oracle import Levels
from oracles.oracle_privacy import Record, Release, Source
from oracles.score_bounds import holds
from properties import hard_cases
from properties.prepared_tables import HARD_TABLES, LOCAL_NUMBERS, NUMBERS, Prepared, prepared_table, quick_and_slow
from properties.privacy_cases import PrivacyCase
from properties.privacy_checks import WITH_SUPPRESSION
from properties.small_tables import SmallTable, number_rows, small_table
from sqlanon.frequency import codes
from sqlanon.frequency.sets import FrequencySets
from sqlanon.policy.strategies import STRATEGIES
from sqlanon.recode.stage import Recoding
from sqlanon.strategies.full_domain import optimal
from sqlanon.strategies.lattice import checker
from sqlanon.strategies.lattice.genetic import GeneticSearch
from sqlanon.strategies.lattice.result import SearchResult
from sqlanon.strategies.lattice.task import source_facts
from support.thresholds import COARSE_SET, ROWS_PER_CODE, SMALL_SET

QUICK_NUMBERS = (0, 1, 2, 5, 7, 11, 15, 20, 22)
"""Between them, these run nearly all lines that any table runs, for the least time."""


FULL_DOMAIN = [name for name, strategy in STRATEGIES.items() if not strategy.traits.is_local]
LOCAL = [name for name, strategy in STRATEGIES.items() if strategy.traits.is_local]
VARIANTS = {
    **{name: {"strategy": name} for name in LOCAL},
    "mondrian median": {"strategy": "mondrian", "summary": "median"},
    "mondrian exact": {"strategy": "mondrian", "summary": "median", "ends": "exact"},
    "k-similar set": {"strategy": "k-similar", "summary": "set"},
    "cells": {"strategy": "optimal", "suppression": "cells"},
}
GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "strategies.txt"


# --- full-domain strategies


@pytest.mark.least(3)
@pytest.mark.parametrize("number", quick_and_slow(NUMBERS, QUICK_NUMBERS))
def test_every_strategy_of_the_full_domain(number: int) -> None:
    table = small_table(number)
    with prepared_table(table) as prepared:
        for strategy in FULL_DOMAIN:
            check_full_domain(table, prepared, strategy)


@pytest.mark.least(6)
@pytest.mark.cases(10)
@pytest.mark.parametrize(("shape", "kind", "persons"), HARD_TABLES)
def test_every_strategy_where_not_all_that_is_higher_satisfies(
    shape: str, kind: str, persons: hard_cases.Persons
) -> None:
    privacies, limits = WITH_SUPPRESSION[kind], ("0.2", "0.5")
    if shape == "tight":
        case = hard_cases.tight(2, privacies, persons)
    else:
        case = hard_cases.not_monotone(2, privacies, limits)
    table = number_rows(case)
    with prepared_table(table) as prepared:
        for strategy in FULL_DOMAIN:
            check_full_domain(table, prepared, strategy)


def test_strategies_that_look_at_few_generalizations_do_not_claim_to_know_all() -> None:
    """The row of a and p differs from all others in both attributes; the shield is met once x alone is at its top."""
    x, y = (oracle.Hierarchy({value: (value, "*") for value in values}) for values in ("ab", "pq"))
    source = Source([{"x": x, "y": y} for x, y in ("ap", "bq", "bq")], {"x": x, "y": y})
    shields = {"k_anonymity": [{"quasi": ["x"], "k": 2}]}
    table = number_rows(PrivacyCase(source, shields, "0", "loss"))
    assert [figures.levels for figures in table.minimal] == [(1, 0)], "which is not a distance vector"
    with prepared_table(table) as prepared:
        for strategy in MAY_MISS:
            check_full_domain(table, prepared, strategy)


LARGE_LATTICE = {
    "sqlanon.strategies.lattice.dive.LARGE": 4,
    "sqlanon.strategies.full_domain.optimal.LARGE": 4,
    "sqlanon.strategies.full_domain.optimal.FIRST": 1,
    "sqlanon.strategies.full_domain.optimal.TURN": 2,
    "sqlanon.strategies.full_domain.optimal.BOXES": 4,
    "sqlanon.strategies.lattice.vectors.PAIRS": 20,
    "sqlanon.strategies.lattice.search.MAX_PRUNING_CANDIDATES": 2,
    "sqlanon.strategies.lattice.lattice.HEAP_SIZE": 3,
}
MANY_ROWS = {SMALL_SET: 5, COARSE_SET: 2, "sqlanon.frequency.sets.FIRST_SET_SHARE": 10, ROWS_PER_CODE: 1_000}
AS_LARGE = {
    "lattice": LARGE_LATTICE,
    "rows": MANY_ROWS,
    "both": LARGE_LATTICE | MANY_ROWS,
    "packs": LARGE_LATTICE | MANY_ROWS | {ROWS_PER_CODE: 1},
}
"""Thresholds lowered so that small tables take the paths of those with a large lattice, with many rows, with both, and
with many rows that have their codes in packs."""

LARGE_PATHS = {
    "lattice": ((2,), ["run_generation", "_check_ahead", "attribute_leaves"]),
    "rows": ((0, 64), ["half_class_space"]),
    "both": ((48,), ["run_generation", "_check_ahead"]),
    "packs": ((80,), ["half_class_space", "_pack_codes"]),
}
"""The tables that are searched in the quick lane, and the functions for large tables that run there."""


@pytest.mark.parametrize("size", AS_LARGE)
def test_every_strategy_as_if_tables_were_large(size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers, expected = LARGE_PATHS[size]
    called: set[str] = set()
    for owner, name in (
        (GeneticSearch, "run_generation"),
        (optimal._BranchAndBound, "_check_ahead"),
        (checker, "attribute_leaves"),
        (FrequencySets, "half_class_space"),
        (codes, "_pack_codes"),
    ):
        monkeypatch.setattr(owner, name, record_call(called, name, getattr(owner, name)))
    for number in numbers:
        check_as_large(number, size, monkeypatch)
    assert called.issuperset(expected)


def record_call(called: set[str], name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that records its name when it is called."""

    def call(*arguments: Any) -> Any:
        called.add(name)
        return function(*arguments)

    return call


@pytest.mark.thorough
@pytest.mark.parametrize("number", NUMBERS)
def test_every_strategy_as_if_the_table_were_large(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check_as_large(number, [*AS_LARGE][number // 3 % 4], monkeypatch)


def check_as_large(number: int, size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, threshold in AS_LARGE[size].items():
        monkeypatch.setattr(name, threshold)
    table = small_table(number)
    with prepared_table(table, remembers=False) as prepared:
        for strategy in FULL_DOMAIN:
            check_full_domain(table, prepared, strategy)


def check_full_domain(table: SmallTable, prepared: Prepared, strategy: str) -> None:
    best = table.best
    try:
        result, search_input = prepared.search({"strategy": strategy})
    except sqlanon.InfeasibleError as error:
        check_infeasible(table, strategy, error)
        return
    assert best is not None and result.levels is not None and result.search is not None
    levels, by_levels = result.levels, {figures.levels: figures for figures in table.satisfying}
    assert levels in by_levels, strategy
    sign = -1 if table.case.measure in oracle.MAXIMISED else 1
    assert math.isclose(sign * result.score, by_levels[levels].score, rel_tol=1e-9, abs_tol=1e-12), strategy
    assert holds(result.bound, sign * best.score), strategy
    if result.optimal:
        assert (levels, result.bound) == (best.levels, result.score), strategy
    check_lattice(table, result, strategy)
    joins_suffice = source_facts(search_input).joins_suffice
    check_claims(table, result, joins_suffice, strategy)
    assert expected_levels(table, result, joins_suffice, strategy) in (levels, None), strategy
    if prepared.is_new(levels):
        check_release(table.generalizations[levels], prepared, prepared.recode_result(result, search_input))


def check_claims(table: SmallTable, result: SearchResult, joins_suffice: bool, strategy: str) -> None:
    """The lists of generalizations are those of the oracle, and a result that the strategy proves is optimal."""
    case, minimal = table.case, sorted(figures.levels for figures in table.minimal)
    if strategy in ("k_minimal", "ola", "flash", "incognito") or (strategy == "samarati" and joins_suffice):
        assert list(result.minimal or ()) == minimal, strategy
    elif result.minimal is not None:
        assert {*result.minimal} <= {*minimal}, strategy
    if strategy == "incognito":
        assert list(result.satisfying or ()) == [figures.levels for figures in table.satisfying]
    assert result.optimal or not STRATEGIES[strategy].traits.proves_optimum
    rises = case.measure in ("height", "relative_height") or case.limit == "0"
    by_tops = strategy in ("k_minimal", "ola", "flash")
    assert result.optimal or not (rises and by_tops), "the measure rises along the lattice"


def expected_levels(table: SmallTable, result: SearchResult, joins_suffice: bool, strategy: str) -> Levels | None:
    """The generalization that the strategy is defined to choose, or None if the oracle does not know it."""
    if strategy in ("optimal", "incognito"):
        return table.best.levels if table.best else None
    if strategy in ("k_minimal", "ola") or (strategy == "samarati" and joins_suffice):
        return solution(table, table.minimal)
    if strategy == "flash":
        assert result.search is not None
        return solution(table, [figures for figures in table.satisfying if figures.levels in result.search.scores])
    if strategy == "datafly":
        satisfying = {figures.levels for figures in table.satisfying}
        allowed = [sorted({*levels}) for levels in zip(*table.generalizations, strict=True)]
        return steps_of_datafly(table.source.table, allowed, table.case.weights or {}, satisfying.__contains__)
    if strategy == "samarati-binary" and joins_suffice:
        lowest = min(sum(figures.levels) for figures in table.satisfying)
        return solution(table, [figures for figures in table.satisfying if sum(figures.levels) == lowest])
    return None


def solution(table: SmallTable, candidates: list[oracle.Figures]) -> Levels | None:
    best = oracle.best(candidates, table.case.measure)
    return None if best is None else best.levels


def check_lattice(table: SmallTable, result: SearchResult, strategy: str) -> None:
    """The lattice table calls those generalizations satisfying that are, unless it leaves them open."""
    satisfying = {figures.levels for figures in table.satisfying}
    assert result.search is not None
    candidates, _, _, words, *_ = result.search.lattice_columns()
    statuses = {tuple(levels): word for levels, word in zip(candidates, words, strict=True)}
    for levels, word in statuses.items():
        assert word == "open" or (word == "satisfies") == (levels in satisfying), (strategy, levels)
    assert all(statuses[levels] == "satisfies" for levels in (result.levels, *(result.minimal or ())) if levels), (
        strategy
    )


MAY_MISS = ("samarati", "samarati-binary", "datafly")
"""They do not look at everything, and may find nothing where something satisfies."""


def check_infeasible(table: SmallTable, strategy: str, error: sqlanon.InfeasibleError) -> None:
    assert not table.satisfying or strategy in MAY_MISS, strategy
    assert not table.satisfying or f"strategy {strategy} found no generalization" in str(error), strategy
    if error.nearest is not None:
        nearest = table.generalizations[tuple(error.nearest[name] for name in table.source.quasi)]
        assert error.suppressed_rows == nearest.suppressed
        assert error.suppressed_persons == (nearest.suppressed_persons if table.source.person else None)


def check_release(expected: Release, prepared: Prepared, recoding: Recoding) -> None:
    """The released rows and their figures are those of the oracle."""
    rows = prepared.rows(recoding)
    sensitive = [*expected.source.sensitive]
    assert Counter(row[:-1] for row in rows) == expected.released(sensitive)
    figures, persons = recoding.figures, recoding.persons
    assert (figures.classes, figures.suppressed_rows) == (len(expected.kept), expected.suppressed)
    assert recoding.smallest_class == min(expected.kept.values())
    if expected.source.person is not None:
        assert persons is not None
        assert persons.persons == expected.source.count(expected.source.rows)
        assert persons.suppressed == expected.suppressed_persons
        assert persons.partly_released == expected.partly_released_persons
        assert persons.smallest_class == min(expected.counts)


# --- local strategies


@cache
def read_golden_results() -> dict[tuple[int, str], str]:
    """The recorded results by table and variant."""
    lines = [line.partition(": ") for line in GOLDEN.read_text(encoding="utf-8").splitlines()]
    keys = [key.partition(" ") for key, _, _ in lines]
    return {(int(number), name): result for (number, _, name), (_, _, result) in zip(keys, lines, strict=True)}


LOCAL_AS_LARGE = {
    "sqlanon.strategies.local.cells.EXACT": 2,
    "sqlanon.strategies.local.k_similar.MAX_EXHAUSTIVE_COMBINATIONS": 3,
    "sqlanon.strategies.local.k_similar.MAX_BLOCK": 4,
    "sqlanon.strategies.local.core.groups.MAX_PAIRS": 60,
    "sqlanon.strategies.local.local.MAX_PAIRS_PER_ROUND": 60,
    "sqlanon.strategies.local.subtree.MAX_RAISES": 2,
    "sqlanon.strategies.local.mu_argus.MAX_CHECKED": 1,
    "sqlanon.strategies.local.core.finish.MAX_SHIELDS": 1,
}
"""From which sizes on local strategies look at fewer possibilities, or at one part after the other."""

LARGE = "large "
"""Before the name of a variant: with these thresholds lowered."""

LARGE_VARIANTS = {
    15: ("mu-argus", "k-similar", "subtree", "local", "k-similar set", "cells"),
    16: ("mu-argus", "k-similar", "local", "cells"),
}
"""These variants with lowered thresholds, by table, have recorded results, too."""

QUICK_VARIANTS = {
    2: ("mondrian", "mondrian median"),
    3: ("iab", "cells"),
    4: ("subtree",),
    8: ("forest", "mondrian exact", "mu-argus"),
    12: ("iab",),
    15: ("k-similar", "large k-similar"),
    16: ("mu-argus", "local", "large cells"),
}
"""The variants in the quick lane, by table: planted faults change their results on these tables, seldom on others."""

SLOW_NUMBERS = tuple(LARGE_VARIANTS)
"""The tables in the slow lane, one of few combinations and one of many: on these, all variants run."""


@pytest.mark.parametrize("number", QUICK_VARIANTS)
def test_local_strategies_match_their_golden_results(number: int) -> None:
    golden, variants = golden_results_of(number), QUICK_VARIANTS[number]
    assert dict(local_results(number, variants)) == {name: golden[name] for name in variants}


@pytest.mark.thorough
@pytest.mark.parametrize(
    "number", [i if i in SLOW_NUMBERS else pytest.param(i, marks=pytest.mark.thorough) for i in LOCAL_NUMBERS]
)
def test_every_local_strategy(number: int) -> None:
    assert dict(local_results(number, variants_of(number))) == golden_results_of(number)


@pytest.mark.thorough
@pytest.mark.parametrize("number", [4, 7])
def test_local_strategies_as_if_the_table_were_large(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their releases are checked; they may differ from those that are recorded of a small table."""
    for name, least in (AS_LARGE["packs"] | LOCAL_AS_LARGE).items():
        monkeypatch.setattr(name, least)
    variants = {variant for variant in golden_results_of(number) if LARGE not in variant}
    assert {*dict(local_results(number, VARIANTS))} == variants


def variants_of(number: int) -> list[str]:
    """The variants whose results on a table are recorded."""
    return [*VARIANTS, *(LARGE + variant for variant in LARGE_VARIANTS.get(number, ()))]


def golden_results_of(number: int) -> dict[str, str]:
    """The recorded results of a table: of each variant that knows its policy."""
    return {variant: result for (table, variant), result in read_golden_results().items() if table == number}


def local_results(number: int, variants: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Check the releases of local strategies, and yield each result as a line of the golden file."""
    table = small_table(number, for_local=True)
    with prepared_table(table) as prepared:
        for variant in variants:
            settings, lowered = VARIANTS[variant.removeprefix(LARGE)], LOCAL_AS_LARGE if LARGE in variant else {}
            try:
                result, recoding = prepared.search_and_recode(settings, lowered)
            except sqlanon.PolicyError:
                continue  # the strategy does not support the requirements of the policy
            except sqlanon.InfeasibleError:
                yield variant, "nothing"
                continue
            rows, figures = check_local(table, prepared, recoding, result, settings["strategy"]), recoding.figures
            text = f"{result.score:.9g}, {figures.classes} classes, {figures.suppressed_rows} rows suppressed"
            yield variant, f"{text}, rows {sha256(repr(rows).encode()).hexdigest()[:8]}"


def check_local(
    table: SmallTable, prepared: Prepared, recoding: Recoding, result: SearchResult, strategy: str
) -> list[tuple[Any, ...]]:
    """Check that each class, as its readers see it, meets the policy, and that suppression is within its limit.

    Returns the released rows in the order of their numbers."""
    source, rows = table.source, sorted(prepared.rows(recoding), key=itemgetter(-1))
    numbers = [row[-1] for row in rows]
    assert len(set(numbers)) == len(numbers), "no row is released twice"
    width = len(source.quasi)
    classes: dict[tuple[Any, ...], list[Record]] = {}
    for row in rows:
        record = source.rows[row[-1]]
        assert row[width:-1] == tuple(record[name] for name in source.sensitive)
        assert not any(label in labels for label, labels in zip(row, table.forbidden, strict=False))
        classes.setdefault(row[:width], []).append(record)
    assert recoding.figures.suppressed_rows == len(source.rows) - len(rows)
    assert holds(result.bound, result.score)
    if not STRATEGIES[strategy].traits.protects_combinations_only:
        assert recoding.figures.classes == len(classes)
        released = LocalRelease(source, (), table.case.privacy, classes)
        assert all(released.meets(labels) for labels in classes), strategy
        suppressed = released.suppressed if source.person is None else released.suppressed_persons
        assert suppressed <= oracle.allowed_rows(table.case.limit, source.count(source.rows)), strategy
    return rows


class LocalRelease(Release):
    """A release of a local strategy, from its classes."""

    def __init__(
        self, source: Source, levels: Levels, privacy: oracle_privacy.Privacy, classes: dict[Any, list[Record]]
    ) -> None:
        super().__init__(source, levels, privacy)
        self.__dict__["classes"] = self.__dict__["kept_records"] = classes


if __name__ == "__main__":
    lines = [
        f"{number} {name}: {result}\n"
        for number in LOCAL_NUMBERS
        for name, result in local_results(number, variants_of(number))
    ]
    sys.exit(GOLDEN.write_text("".join(lines), encoding="utf-8") == 0)
