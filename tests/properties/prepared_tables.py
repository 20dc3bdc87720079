"""Small tables, prepared once for searches by every strategy."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sqlanon
from oracles.oracle import Levels
from oracles.oracle_privacy import Source
from properties.privacy_checks import WITH_SUPPRESSION, arrow_table, columns_of, policy_of
from properties.small_tables import ROW, SmallTable
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.measures import Figures
from sqlanon.pipeline import prepare
from sqlanon.recode.stage import Recoding, recode, recode_at
from sqlanon.sources.source import RemotePersons
from sqlanon.strategies.compare import with_search_keys
from sqlanon.strategies.lattice import task as full_domain
from sqlanon.strategies.lattice.checker import Checker, policy_measure
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.strategies.lattice.lattice import Progress, ignore_progress
from sqlanon.strategies.lattice.limits import Clock
from sqlanon.strategies.lattice.result import SearchResult
from sqlanon.strategies.lattice.task import SearchTask
from sqlanon.strategies.local.core import finish
from sqlanon.strategies.local.core.task import LocalTask, prepare_local_task
from sqlanon.strategies.stage import run_search
from sqlanon.support.coding import Column
from support.databases import small_database

NUMBERS, LOCAL_NUMBERS = range(24), range(20)
"""The numbers of the tables for full-domain strategies, and for local ones."""


HARD_TABLES = [
    (shape, kind, persons)
    for kind in WITH_SUPPRESSION
    for shape, persons in (("not monotone", None), ("tight", "settled" if len(kind) % 2 else None))
]
"""Parameters of tables on which a search that prunes too much goes wrong."""


def quick_and_slow(cases: Iterable[Any], quick: Collection[Any]) -> list[Any]:
    """Cases of a test; those in ``quick`` run in the quick lane."""
    return [case if case in quick else pytest.param(case, marks=pytest.mark.slow) for case in cases]


class Prepared:
    """A prepared table that every strategy searches. Checks and tasks that strategies share run in the engine once."""

    def __init__(
        self, steps: StatementRunner, prepared: SearchInput, patch: pytest.MonkeyPatch, remembers: bool
    ) -> None:
        self._steps, self._prepared = steps, prepared
        self._tasks: dict[Any, LocalTask] = {}
        if remembers:
            patch.setattr(full_domain, "Checker", partial(RememberingChecker, {}))
        patch.setattr(finish, "prepare_local_task", self._local_task)
        self._compared: set[Levels] = set()

    def _local_task(self, steps: StatementRunner, prepared: SearchInput, progress: Progress, clock: Clock) -> LocalTask:
        search = prepared.policy.search
        key = (search.summary, search.ends) if search.traits.summarizes else None
        if key not in self._tasks:
            self._tasks[key] = prepare_local_task(steps, prepared, progress, clock)
        return replace(self._tasks[key], work=prepared.work, search_input=prepared, progress=progress, clock=clock)

    def search(self, settings: Mapping[str, str], prefix: str = "") -> tuple[SearchResult, SearchInput]:
        """Search the table, with settings for ``[search]``.

        Raises `PolicyError` if the strategy does not support the policy, and `InfeasibleError` if it finds nothing."""
        policy = with_search_keys(self._prepared.policy, settings)
        if isinstance(policy, sqlanon.PolicyError):
            raise policy
        searched = replace(self._with_prefix(" ".join([*settings.values(), prefix])), policy=policy)
        return run_search(self._steps, searched, ignore_progress), searched

    def recode_result(self, result: SearchResult, searched: SearchInput) -> Recoding:
        """The recoding of a search's result."""
        return recode(self._steps, searched, result)

    def search_and_recode(
        self, settings: Mapping[str, str], lowered: Mapping[str, int]
    ) -> tuple[SearchResult, Recoding]:
        """Search the table with lowered thresholds, and recode it."""
        with pytest.MonkeyPatch.context() as patch:
            for name, threshold in lowered.items():
                patch.setattr(name, threshold)
            result, searched = self.search(settings, "large" if lowered else "")
            return result, self.recode_result(result, searched)

    @property
    def search_input(self) -> SearchInput:
        return self._prepared

    @property
    def runner(self) -> StatementRunner:
        return self._steps

    def task(self) -> SearchTask:
        return SearchTask(self._steps, self._prepared, ignore_progress)

    def check(self, levels: Levels) -> Figures:
        """The figures of a generalization, from the engine."""
        return Checker(self._steps.engine, self._prepared, policy_measure(self._prepared))(levels)

    def recode(self, levels: Levels, figures: Figures) -> Recoding:
        return recode_at(self._steps, self._with_prefix(f"at {levels}"), levels, figures)

    def is_new(self, levels: Levels) -> bool:
        """Whether this is the first call for a generalization: its release is compared once."""
        is_new = levels not in self._compared
        self._compared.add(levels)
        return is_new

    def _with_prefix(self, prefix: str) -> SearchInput:
        """The prepared input, with a prefix for the names of work tables."""
        sets, work = copy(self._prepared.frequency_sets), self._prepared.work
        sets.work = lambda table: work(f"{prefix} {table}")
        return replace(self._prepared, frequency_sets=sets)

    def rows(self, recoding: Recoding) -> list[tuple[Any, ...]]:
        """The released rows: quasi-identifiers, sensitive attributes and row number."""
        names, policy = [column.name for column in self._prepared.released_columns], self._prepared.policy
        sensitive = [name for name in policy.attributes if policy.attributes[name].role == "sensitive"]
        places = [*(names.index(name) for name in (*policy.quasi_identifiers, *sensitive)), len(names)]
        query = recoding.statement.with_column(Column(ROW)).select(shuffled=False)
        return [tuple(row[place] for place in places) for row in self._steps.engine.rows(query)]


class RememberingChecker(Checker):
    def __init__(self, figures: dict[Levels, Figures], *arguments: Any) -> None:
        super().__init__(*arguments)
        self._known = figures

    def __call__(self, levels: Levels) -> Figures:
        if levels not in self._known:
            self._known[levels] = super().__call__(levels)
        return self._known[levels]

    def check_together(self, generalizations: Sequence[Levels]) -> list[Figures]:
        cached = list(takewhile(self._known.__contains__, generalizations))
        if not cached:
            self._known.update(zip(generalizations, super().check_together(generalizations), strict=False))
        return [self._known[levels] for levels in takewhile(self._known.__contains__, generalizations)]


@contextmanager
def prepared_table(
    table: SmallTable, remembers: bool = True, sections: Mapping[str, Any] | None = None, remote_persons: bool = False
) -> Iterator[Prepared]:
    """Prepare a table in a database of its own; ``remembers``: strategies share what was checked. ``sections`` are
    further keys of the policy, by section. ``remote_persons``: persons are counted as on a server."""
    with (
        tempfile.TemporaryDirectory() as name,
        small_database() as connection,
        pytest.MonkeyPatch.context() as patch,
    ):
        for relation, rows in tables_of(table.source).items():
            connection.register("arrow_table", rows)
            connection.execute(f"CREATE TABLE {relation} AS FROM arrow_table")
        requested = policy(table, Path(name), sections or {})
        with sqlanon.connect(connection) as db, db._workspace.run(requested, counted=True) as run:
            steps, source = StatementRunner(run.engine), run.source
            if remote_persons:
                source = replace(source, persons=RemotePersons(run.engine, source.relation))
            prepared = prepare(steps, requested, source, run.work, run.population)
            yield Prepared(steps, prepared, patch, remembers)


def tables_of(source: Source) -> dict[str, Any]:
    types = columns_of(source)
    rows = arrow_table(source.rows, types | {ROW: pa.int64()})
    if source.population is None:
        return {"t": rows}
    person = [source.population_person] if source.population_person else []
    return {
        "t": rows,
        "people": arrow_table(source.population, {name: types[name] for name in (*source.quasi, *person)}),
    }


def policy(table: SmallTable, directory: Path, sections: Mapping[str, Any]) -> sqlanon.Policy:
    tree = policy_of(table.case, "optimal", directory).model_dump(mode="json", exclude_none=True)
    tree["source"] |= {"undeclared": "drop", "key": [ROW]}
    tree["search"]["max_checks"] = 10_000
    for section, keys in sections.items():
        tree[section] |= keys
    for name, (low, high), labels in zip(table.source.quasi, table.level_limits, table.forbidden, strict=True):
        tree["attributes"][name] |= {"min_level": low, "max_level": high, "forbidden": list(labels)}
    return sqlanon.Policy(**tree)
