"""Tables with known optima, prepared once."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from properties.adult_privacy import privacy_of
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.frequency.suppression_limit import count_suppression_limit
from sqlanon.measures import MEASURES
from sqlanon.pipeline import prepare
from sqlanon.requirements import bind_requirements
from sqlanon.sources import WorkNames, bind_source
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.strategies.lattice.lattice import ignore_progress
from sqlanon.strategies.lattice.task import SearchTask
from sqlanon.support.expressions import table

Entry = dict[str, Any]


def policy_of(entry: Entry, folder: Path, strategy: str = "optimal") -> sqlanon.Policy:
    dataset_folder = folder / entry["dataset"]
    search = {key: entry[key] for key in ("measure", "aggregate", "suppression_limit") if entry[key] is not None}
    roles = dict.fromkeys(entry["quasi"], "quasi")
    if entry["model"] != "k":
        roles[entry["sensitive"]] = "sensitive"
    attributes = {
        name: {"role": role, "hierarchy": {"file": str(dataset_folder / f"hierarchy_{name}.csv")}}
        for name, role in roles.items()
    }
    return sqlanon.Policy(
        attributes=attributes,
        privacy={"k": entry["k"]} if entry["model"] == "k" else privacy_of(entry),
        source={"files": [str(dataset_folder / f"{entry['dataset']}.csv")], "undeclared": "drop"},
        search={**search, "strategy": strategy},
    )


@dataclass
class Workshop:
    """Frequency sets, each made once: all searches of a table share them where their measures need the same."""

    folder: Path
    engine: DuckDBEngine
    made: dict[tuple[Any, ...], SearchInput] = field(default_factory=dict)

    def prepared(self, entry: Entry) -> SearchInput:
        policy, measure = policy_of(entry, self.folder), MEASURES[entry["measure"]]
        model = entry["model"] if entry["model"] == "k" else (entry["model"], entry["k"])
        key = (entry["dataset"], *entry["quasi"], measure.needs_entropy, model)
        if key not in self.made:
            prefix = f"run_{len(self.made)}_"
            names = frozenset(name.lower() for name in policy.attributes)
            source = bind_source(self.engine, policy.source, WorkNames(prefix, table(f"{prefix}copy")), names)
            self.made[key] = prepare(StatementRunner(self.engine), policy, source, lambda name: table(prefix + name))
        rows = self.made[key].marginals.rows
        limit = count_suppression_limit(StatementRunner(self.engine), policy.search.suppression_limit, rows, None)
        text = replace(self.made[key], policy=policy, limit=limit)
        if model != "k":
            return text
        # Of k alone nothing that is prepared depends.
        requirements, sets = bind_requirements(policy.privacy), copy(text.frequency_sets)
        sets.space = replace(sets.space, requirements=requirements)
        return replace(text, frequency_sets=sets)

    def task(self, entry: Entry) -> SearchTask:
        return SearchTask(StatementRunner(self.engine), self.prepared(entry), ignore_progress)


@pytest.fixture(scope="module")
def workshop(data: Path) -> Iterator[Workshop]:
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        yield Workshop(data, DuckDBEngine(connection))
