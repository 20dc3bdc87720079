"""Every strategy on small tables that differ: all that it claims, against exhaustive search.

A table is prepared once, and searched by each strategy that its policy allows. What strategies of the full domain find
is held against every generalization; what local ones find is read back, and each class judged as its readers see it.
As these are heuristics, what they found is written down, too (``tests/golden/strategies.txt``): a change of it is to be
judged, and written by ``python tests/search/test_every_strategy.py``.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from functools import cache, partial
from hashlib import sha256
from itertools import takewhile
from operator import itemgetter
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    tests = Path(__file__).resolve().parents[1]
    sys.path[:0] = [str(folder) for folder in (tests, *tests.iterdir()) if folder.is_dir()]

import duckdb
import hard_cases
import oracle
import oracle_privacy
import pyarrow as pa
import pytest
from oracle import Levels
from oracle_privacy import Record, Release, Source
from small_tables import ROW, SmallTable, numbered, small_table
from support import COARSE_SET, ROWS_PER_CODE, SMALL_SET
from test_datafly import steps_of_datafly
from test_privacy_properties import WITH_SUPPRESSION, arrow_table, columns_of, policy_of
from test_quality_bounds import holds

import sqlanon
from sqlanon.coding import Column
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.measures import Figures
from sqlanon.pipeline import prepare
from sqlanon.policy.strategies import STRATEGIES
from sqlanon.recode.local import finish
from sqlanon.recode.local.task import LocalTask, local_task
from sqlanon.recode.stage import Recoding, recode, recode_at
from sqlanon.search import full_domain
from sqlanon.search.checker import Checker, measure_of
from sqlanon.search.compare import with_search
from sqlanon.search.full_domain import data_of
from sqlanon.search.input import SearchInput
from sqlanon.search.lattice import Progress, silent
from sqlanon.search.limits import Clock
from sqlanon.search.result import SearchResult
from sqlanon.search.stage import search

NUMBERS, LOCAL_NUMBERS = range(24), range(12)
"""The tables, and those of local strategies."""

HARD_TABLES = [
    (shape, kind, persons)
    for kind in WITH_SUPPRESSION
    for shape, persons in (("not monotone", None), ("tight", "settled" if len(kind) % 2 else None))
]
"""Tables on which a search that prunes too much goes wrong."""

FULL_DOMAIN = [name for name, one in STRATEGIES.items() if not one.traits.local]
LOCAL = [name for name, one in STRATEGIES.items() if one.traits.local]
VARIANTS = {
    **{name: {"strategy": name} for name in LOCAL},
    "mondrian median": {"strategy": "mondrian", "summary": "median"},
    "mondrian exact": {"strategy": "mondrian", "summary": "median", "ends": "exact"},
    "k-similar set": {"strategy": "k-similar", "summary": "set"},
    "cells": {"strategy": "optimal", "suppression": "cells"},
}
WRITTEN = Path(__file__).resolve().parents[1] / "golden" / "strategies.txt"


class Prepared:
    """A table that is prepared, for each strategy. What several strategies ask for is asked of the engine once."""

    def __init__(self, steps: StatementRunner, prepared: SearchInput, patch: pytest.MonkeyPatch) -> None:
        self._steps, self._prepared = steps, prepared
        self._tasks: dict[Any, LocalTask] = {}
        patch.setattr(full_domain, "Checker", partial(RememberingChecker, {}))
        patch.setattr(finish, "local_task", self._local_task)
        self._checked: dict[Levels, None] = {}

    def _local_task(self, steps: StatementRunner, prepared: SearchInput, progress: Progress, clock: Clock) -> LocalTask:
        search = prepared.policy.search
        key = (search.summary, search.ends) if search.traits.summarises else None
        if key not in self._tasks:
            self._tasks[key] = local_task(steps, prepared, progress, clock)
        return replace(self._tasks[key], work=prepared.work, prepared=prepared, progress=progress, clock=clock)

    def search(self, **asked: str) -> tuple[SearchResult, Recoding, SearchInput]:
        """What a strategy finds; an error if the policy does not fit it, or it finds nothing."""
        policy = with_search(self._prepared.policy, asked)
        if isinstance(policy, sqlanon.PolicyError):
            raise policy
        prepared = replace(self._apart(" ".join(asked.values())), policy=policy)
        found = search(self._steps, prepared, silent)
        return found, recode(self._steps, prepared, found), prepared

    def check(self, levels: Levels) -> Figures:
        """What the engine says of a generalization."""
        return Checker(self._steps.engine, self._prepared, measure_of(self._prepared))(levels)

    def recode(self, levels: Levels, figures: Figures) -> Recoding:
        return recode_at(self._steps, self._apart(f"at {levels}"), levels, figures)

    def is_new(self, levels: Levels) -> bool:
        """Whether the release of a generalization was not looked at before."""
        return levels not in self._checked and self._checked.setdefault(levels) is None

    def _apart(self, name: str) -> SearchInput:
        """What is prepared, for tables with names of their own."""
        sets, work = copy(self._prepared.sets), self._prepared.work
        sets.work = lambda table: work(f"{name} {table}")
        return replace(self._prepared, sets=sets)

    def rows(self, recoding: Recoding) -> list[tuple[Any, ...]]:
        """The released rows: quasi-identifiers, sensitive attributes, and the number of each."""
        names, policy = [one.name for one in self._prepared.released], self._prepared.policy
        sensitive = [name for name in policy.attributes if policy.attributes[name].role == "sensitive"]
        places = [*(names.index(name) for name in (*policy.quasi, *sensitive)), len(names)]
        query = recoding.statement.with_column(Column(ROW)).select(shuffled=False)
        return [tuple(row[place] for place in places) for row in self._steps.engine.rows(query)]


class RememberingChecker(Checker):
    def __init__(self, known: dict[Levels, Figures], *arguments: Any) -> None:
        super().__init__(*arguments)
        self._known = known

    def __call__(self, levels: Levels) -> Figures:
        if levels not in self._known:
            self._known[levels] = super().__call__(levels)
        return self._known[levels]

    def together(self, several: Sequence[Levels]) -> list[Figures]:
        known = list(takewhile(self._known.__contains__, several))
        if not known:
            self._known.update(zip(several, super().together(several), strict=False))
        return [self._known[levels] for levels in takewhile(self._known.__contains__, several)]


@contextmanager
def prepared_table(table: SmallTable) -> Iterator[Prepared]:
    with (
        tempfile.TemporaryDirectory() as name,
        duckdb.connect() as connection,
        pytest.MonkeyPatch.context() as patch,
    ):
        connection.execute("SET threads = 1")
        for relation, rows in tables_of(table.source).items():
            connection.register("arrow_table", rows)
            connection.execute(f"CREATE TABLE {relation} AS FROM arrow_table")
        with sqlanon.connect(connection) as db, db._space.run(policy(table, Path(name)), counted=True) as run:
            steps = StatementRunner(run.engine)
            prepared = prepare(steps, policy(table, Path(name)), run.source, run.work, run.population)
            yield Prepared(steps, prepared, patch)


def tables_of(source: Source) -> dict[str, Any]:
    types = columns_of(source)
    numbered = arrow_table(source.rows, types | {ROW: pa.int64()})
    if source.population is None:
        return {"t": numbered}
    return {"t": numbered, "people": arrow_table(source.population, {name: types[name] for name in source.quasi})}


def policy(table: SmallTable, directory: Path) -> sqlanon.Policy:
    tree = policy_of(table.case, "optimal", directory).model_dump(mode="json", exclude_none=True)
    tree["source"] |= {"undeclared": "drop", "key": [ROW]}
    tree["search"]["max_checks"] = 10_000
    for name, (low, high), labels in zip(table.source.quasi, table.limits, table.forbidden, strict=True):
        tree["attributes"][name] |= {"min_level": low, "max_level": high, "forbidden": list(labels)}
    return sqlanon.Policy(**tree)


# The full domain


@pytest.mark.whole
@pytest.mark.cases(13)
@pytest.mark.parametrize("number", NUMBERS)
def test_every_strategy_of_the_full_domain(number: int) -> None:
    table = small_table(number)
    with prepared_table(table) as prepared:
        for strategy in FULL_DOMAIN:
            check_full_domain(table, prepared, strategy)


@pytest.mark.whole
@pytest.mark.cases(10)
@pytest.mark.parametrize(("shape", "kind", "persons"), HARD_TABLES)
def test_every_strategy_where_not_all_that_is_higher_satisfies(
    shape: str, kind: str, persons: hard_cases.Persons
) -> None:
    asked, limits = WITH_SUPPRESSION[kind], ("0.2", "0.5")
    case = hard_cases.tight(2, asked, persons) if shape == "tight" else hard_cases.not_monotone(2, asked, limits)
    table = numbered(case)
    with prepared_table(table) as prepared:
        for strategy in FULL_DOMAIN:
            check_full_domain(table, prepared, strategy)


AS_LARGE = {
    SMALL_SET: 5,
    COARSE_SET: 4,
    ROWS_PER_CODE: 1,
    "sqlanon.search.vectors.PAIRS": 20,
    "sqlanon.search.memory.CONSIDERED": 2,
    "sqlanon.search.dive.LARGE": 4,
    "sqlanon.search.lattice.ROOM": 3,
}
"""From which sizes on frequency sets are made, values coded, parts searched one after the other, and tops bred."""


@pytest.mark.whole
@pytest.mark.cases(7)
@pytest.mark.parametrize("number", NUMBERS)
def test_every_strategy_as_if_the_table_were_large(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, least in AS_LARGE.items():
        monkeypatch.setattr(name, least)
    table = small_table(number)
    with prepared_table(table) as prepared:
        for strategy in FULL_DOMAIN:
            check_full_domain(table, prepared, strategy)


def check_full_domain(table: SmallTable, prepared: Prepared, strategy: str) -> None:
    best = table.best
    try:
        found, recoding, about = prepared.search(strategy=strategy)
    except sqlanon.InfeasibleError as error:
        check_infeasible(table, strategy, error)
        return
    assert best is not None and found.levels is not None and found.search is not None
    levels, by_levels = found.levels, {one.levels: one for one in table.satisfying}
    assert levels in by_levels, strategy
    sign = -1 if table.case.measure in oracle.MAXIMISED else 1
    assert math.isclose(sign * found.score, by_levels[levels].score, rel_tol=1e-9, abs_tol=1e-12), strategy
    assert holds(found.bound, sign * best.score), strategy
    if found.optimal:
        assert (levels, found.bound) == (best.levels, found.score), strategy
    check_lattice(table, found, strategy)
    assert chosen(table, found, data_of(about).joins_suffice, strategy) in (levels, None), strategy
    if prepared.is_new(levels):
        check_release(table.generalizations[levels], prepared, recoding)


def chosen(table: SmallTable, found: SearchResult, joins_suffice: bool, strategy: str) -> Levels | None:
    """What the strategy is to choose; and the lists that it gives are those of the oracle."""
    case, minimal = table.case, sorted(one.levels for one in table.minimal)
    if strategy in ("k_minimal", "ola", "flash", "incognito") or (strategy == "samarati" and joins_suffice):
        assert list(found.minimal or ()) == minimal, strategy
    elif found.minimal is not None:
        assert {*found.minimal} <= {*minimal}, strategy
    if strategy == "incognito":
        assert list(found.satisfying or ()) == [one.levels for one in table.satisfying]
    assert found.optimal or not STRATEGIES[strategy].traits.proves
    rises = case.measure in ("height", "relative_height") or case.limit == "0"
    by_tops = strategy in ("k_minimal", "ola", "flash")
    assert found.optimal or not (rises and by_tops), "the measure rises along the lattice"
    if strategy in ("optimal", "incognito"):
        return table.best.levels if table.best else None
    if strategy in ("k_minimal", "ola") or (strategy == "samarati" and joins_suffice):
        return solution(table, table.minimal)
    if strategy == "flash":
        assert found.search is not None
        return found.search.preferred(found.search.scores)
    if strategy == "datafly":
        satisfying = {one.levels for one in table.satisfying}
        allowed = [sorted({*own}) for own in zip(*table.generalizations, strict=True)]
        return steps_of_datafly(table.source.table, allowed, case.weights or {}, satisfying.__contains__)
    if strategy == "samarati-binary" and joins_suffice:
        least = min(sum(one.levels) for one in table.satisfying)
        return solution(table, [one for one in table.satisfying if sum(one.levels) == least])
    return None


def solution(table: SmallTable, among: list[oracle.Figures]) -> Levels | None:
    best = oracle.best(among, table.case.measure)
    return None if best is None else best.levels


def check_lattice(table: SmallTable, found: SearchResult, strategy: str) -> None:
    """What the lattice table says of each generalization is true."""
    good = {one.levels for one in table.satisfying}
    assert found.search is not None
    levels, _, _, words, *_ = found.search.lattice_columns()
    for one, word in zip(levels, words, strict=True):
        assert word == "open" or (word == "satisfies") == (tuple(one) in good), (strategy, one)


def check_infeasible(table: SmallTable, strategy: str, error: sqlanon.InfeasibleError) -> None:
    assert not table.satisfying or f"strategy {strategy} found no generalization" in str(error), strategy
    if error.nearest is not None:
        nearest = table.generalizations[tuple(error.nearest[name] for name in table.source.quasi)]
        assert error.suppressed_rows == nearest.suppressed
        assert error.suppressed_persons == (nearest.suppressed_persons if table.source.person else None)


def check_release(expected: Release, prepared: Prepared, recoding: Recoding) -> None:
    """The rows that are released, and what is told of them."""
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


# Below the full domain


@cache
def written() -> dict[tuple[int, str], str]:
    """What was found, by table and strategy."""
    lines = [line.partition(": ") for line in WRITTEN.read_text(encoding="utf-8").splitlines()]
    places = [place.partition(" ") for place, _, _ in lines]
    return {(int(number), name): told for (number, _, name), (_, _, told) in zip(places, lines, strict=True)}


TELLING = {
    0: ("cells", "forest", "mu-argus"),
    1: ("mondrian", "mondrian exact"),
    3: ("local", "k-similar"),
    6: ("iab", "subtree", "k-similar set"),
}
"""On these tables faults that were planted in a strategy changed what it found, and they did so seldom on others."""


@pytest.mark.parametrize("number", TELLING)
def test_local_strategies(number: int) -> None:
    check_written(number, TELLING[number])


@pytest.mark.whole
@pytest.mark.slow
@pytest.mark.parametrize("number", LOCAL_NUMBERS)
def test_every_local_strategy(number: int) -> None:
    check_written(number, VARIANTS)


def check_written(number: int, variants: Iterable[str]) -> None:
    for variant, told in local_releases(number, variants):
        assert told == written()[number, variant], variant


def local_releases(number: int, variants: Iterable[str]) -> Iterator[tuple[str, str]]:
    """What local strategies found, after it is judged."""
    table = small_table(number, of_classes=True)
    with prepared_table(table) as prepared:
        for variant in variants:
            asked = VARIANTS[variant]
            try:
                found, recoding, _ = prepared.search(**asked)
            except sqlanon.PolicyError:
                continue  # it does not know the policy's requirements
            except sqlanon.InfeasibleError:
                yield variant, "nothing"
                continue
            rows, figures = check_local(table, prepared, recoding, found, asked["strategy"]), recoding.figures
            told = f"{found.score:.9g}, {figures.classes} classes, {figures.suppressed_rows} rows suppressed"
            yield variant, f"{told}, rows {sha256(repr(rows).encode()).hexdigest()[:8]}"


def check_local(
    table: SmallTable, prepared: Prepared, recoding: Recoding, found: SearchResult, strategy: str
) -> list[tuple[Any, ...]]:
    """Each class, as its readers see it, meets the policy, and so few are left out as may be. Its rows, by number."""
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
    assert holds(found.bound, found.score)
    if not STRATEGIES[strategy].traits.of_combinations:
        assert recoding.figures.classes == len(classes)
        released = Local(source, (), table.case.privacy, classes)
        assert all(released.meets(one) for one in classes), strategy
        lost = released.suppressed if source.person is None else released.suppressed_persons
        assert lost <= oracle.allowed_rows(table.case.limit, source.count(source.rows)), strategy
    return rows


class Local(Release):
    """A release below the full domain: its classes are given."""

    def __init__(
        self, source: Source, levels: Levels, privacy: oracle_privacy.Privacy, classes: dict[Any, list[Record]]
    ) -> None:
        super().__init__(source, levels, privacy)
        self.__dict__["classes"] = self.__dict__["kept_records"] = classes


if __name__ == "__main__":
    lines = [
        f"{number} {name}: {told}\n" for number in LOCAL_NUMBERS for name, told in local_releases(number, VARIANTS)
    ]
    sys.exit(WRITTEN.write_text("".join(lines), encoding="utf-8") == 0)
