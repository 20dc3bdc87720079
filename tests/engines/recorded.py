"""Recorded statements to DuckDB: the queries that could run in the source database, and their answers."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from sqlglot import exp

import sqlanon
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.support.expressions import select_star
from support.thresholds import SMALL_SET

THERE = re.compile(
    r"(?:sqlanon_work\w*_source|(?:population_)?frequency(?:_raw|_\d+)|distribution_\d.*|(?:joint_)?pairs_\d+"
    r"|(?:population_)?(?:members|movers|combinations|counted)|combinations_of_both|noise_.*|sensitive_\d+"
    r"|population_audited\w*)"
)
"""The tables that may be where the rows are: the source, and what is counted of it that may be as large."""

AFTER = frozenset({"audited", "staged", "verified", "release_file", "sqlanon_staged", "sqlanon_verified"})
"""Databases with releases: their statements are recorded."""


@dataclass
class Asked:
    """A query, with the tables that it read and its answer in DuckDB."""

    query: exp.Query
    tables: Mapping[str, pa.Table]
    answer: pa.Table
    name: str


@dataclass
class Recorder:
    """Writes down queries, each form once.

    Attributes
    ----------
    answers:
        Whether what they read and answer is written down, too.
    most:
        So many forms over tables of the same names are enough.
    """

    answers: bool = True
    most: int = 20
    asked: dict[str, Asked] = field(default_factory=dict)
    of_a_kind: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def note(self, engine: DuckDBEngine, query: exp.Expr | None, name: str) -> None:
        """Record a query if it may read remote tables."""
        if not isinstance(query, exp.Query):
            return
        read = [node for node in query.find_all(exp.Table) if node.catalog]
        if not any(THERE.fullmatch(source_table.name) for source_table in read) or AFTER & {
            source_table.catalog for source_table in read
        }:
            return
        place = _plain_names(f"{name} {sorted(source_table.name for source_table in read)}")
        if len(self.of_a_kind[place]) >= self.most:
            return
        form = f"{place} {_form(query)}"
        if form in self.asked:
            return
        empty = pa.table({})
        tables = {
            _name(source_table): _all_of(engine, source_table) if self.answers else empty for source_table in read
        }
        answer = engine.relation(query.copy()).to_arrow_table() if self.answers else empty
        self.of_a_kind[place].append(form)
        self.asked[form] = Asked(query.copy(), tables, answer, name)


def _name(source_table: exp.Table) -> str:
    return ".".join(part for part in (source_table.catalog, source_table.db, source_table.name) if part)


def _form(query: exp.Query) -> str:
    return re.sub(r"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?", "0", _plain_names(query.sql("duckdb")))


def _plain_names(text: str) -> str:
    text = re.sub(r"sqlanon_work_[0-9a-f]{12}|sqlanon_work", "work", text)
    return re.sub(r"audited_[0-9a-f]{12}", "audited", re.sub(r"run_\d+", "run", text))


def _all_of(engine: DuckDBEngine, source_table: exp.Table) -> pa.Table:
    plain = exp.Table(
        this=source_table.this.copy(), db=source_table.args["db"].copy(), catalog=source_table.args["catalog"].copy()
    )
    return engine.relation(select_star(plain)).to_arrow_table()


@contextmanager
def recording(recorder: Recorder) -> Iterator[None]:
    """Record every statement to DuckDB."""
    execute, rows = DuckDBEngine.execute, DuckDBEngine.rows

    def executing(self: DuckDBEngine, statement: exp.Expr, parameters: Any = ()) -> None:
        if isinstance(statement, (exp.Create, exp.Insert)):
            recorder.note(self, statement.expression, statement.this.name)
        execute(self, statement, parameters)

    def asking(self: DuckDBEngine, query: exp.Expr, parameters: Any = ()) -> list[tuple[Any, ...]]:
        recorder.note(self, query, "")
        return rows(self, query, parameters)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DuckDBEngine, "execute", executing)
        patch.setattr(DuckDBEngine, "rows", asking)
        yield


# --- statements ---------------------------------------------------------------------------------------

_TREE = {"categories": {"bad": ["cancer", "Gout"], "mild": ["flu", "cold", "grippe", "Flu"]}}
ATTRIBUTES: dict[str, Any] = {
    "zip": {"role": "quasi", "hierarchy": {"mask": "right"}, "on_unknown": "suppress"},
    "age": {"role": "quasi", "hierarchy": {"intervals": [5, 10]}},
    'bo"rn': {"role": "quasi", "hierarchy": {"dates": ["month", "year"]}},
    "ill": {"role": "sensitive", "hierarchy": _TREE},
    "`pay`": {"role": "sensitive"},
    "cost": {"role": "insensitive"},
    "size": {"role": "insensitive"},
}

REQUIREMENTS: dict[str, dict[str, Any]] = {
    "k": {"k": 2},
    "shields": {"k": 1, "k_anonymity": [{"quasi": ["zip"], "k": 3}, {"quasi": ["age", 'bo"rn'], "k": 4}]},
    "diversity": {
        "k": 2,
        "l_diversity": [
            {"attribute": "ill", "kind": "distinct", "l": 2},
            {"attribute": "ill", "kind": "entropy", "l": 1.4},
            {"attribute": "`pay`", "kind": "recursive", "l": 2, "c": 3},
        ],
    },
    "joint": {
        "k": 1,
        "l_diversity": [
            {"attribute": "ill", "kind": "distinct", "l": 2, "joint": True},
            {"attribute": "ill", "kind": "entropy", "l": 1.2, "joint": True},
            {"attribute": "`pay`", "kind": "recursive", "l": 2, "c": 4, "joint": True},
        ],
    },
    "closeness": {
        "k": 2,
        "t_closeness": [
            {"attribute": "ill", "distance": "equal", "t": 0.7},
            {"attribute": "ill", "distance": "hierarchical", "t": 0.7},
            {"attribute": "`pay`", "distance": "ordered", "t": 0.6},
        ],
    },
    "shares": {
        "k": 2,
        "delta_disclosure": [{"attribute": "`pay`", "delta": 2}],
        "beta_likeness": [
            {"attribute": "ill", "kind": "basic", "beta": 4},
            {"attribute": "ill", "kind": "enhanced", "beta": 5},
        ],
        "alpha_k": [{"attribute": "ill", "alpha": 0.9}],
    },
    "population": {"k_map": 2, "delta_presence": {"min": 0.01, "max": 1.5}},
    "risk": {
        "k": 2,
        "average_risk": 0.8,
        "sample_uniqueness": 0.9,
        "population_uniqueness": {"limit": 0.9, "sampling_fraction": 0.5},
    },
}
"""Every requirement that a policy can ask for, some together."""

FULL_DOMAIN = ("optimal", "k_minimal", "samarati", "samarati-binary", "incognito", "ola", "flash", "datafly")
MEASURES = ("loss", "precision", "height", "relative_height", "discernibility", "average_class_size", "distinct")
MEASURES += ("suppression", "entropy")
_NOISE = {"role": "quasi", "on_unknown": "suppress", "noise": {"epsilon": 1.0}}
_NOISY = {
    "cost": _NOISE,
    "size": _NOISE | {"noise": {"epsilon": 0.5, "bounds": [-50, 50], "round": 0.5}},
    'bo"rn': _NOISE | {"noise": {"epsilon": 2.0}},
}


@dataclass(frozen=True)
class Job:
    """A policy; whether its source counts as a large one, and whether the release is made."""

    name: str
    policy: sqlanon.Policy
    large: bool = False
    publish: bool = False


def jobs() -> Iterator[Job]:
    """Policies that together ask for everything."""
    few = {"max_checks": 3}
    for name, privacy in REQUIREMENTS.items():
        yield Job(name, _policy(privacy, search=few), large=True, publish=True)
        yield Job(f"{name}, scanned", _policy(privacy, source={"query": "SELECT * FROM people"}, search=few))
        yield Job(
            f"{name}, persons", _policy(privacy, source={"table": "people", "person": "who"}, search=few), publish=True
        )
    for measure in MEASURES:
        yield Job(measure, _policy(search=few | {"measure": measure}), large=measure == "entropy")
    for strategy in FULL_DOMAIN:
        yield Job(strategy, _policy(search=few | {"strategy": strategy}))
    for cuts in ("strict", "relaxed"):
        yield Job(f"mondrian {cuts}", _policy(search={"strategy": "mondrian", "cuts": cuts}), publish=True)
    yield Job("masked", _policy(release={"suppressed": "mask"}, search=few), publish=True)
    noisy = {"k": 3, "confidence": 0.7}
    yield Job("noise", _policy(noisy, attributes=_NOISY, search=few), publish=True)
    requirements = {"k": 3, "confidence": 0.7, "l_diversity": [{"attribute": "ill", "kind": "distinct", "l": 2}]}
    yield Job("noise of one", _policy(requirements, attributes={"cost": _NOISE}, search=few), large=True, publish=True)


def _policy(
    privacy: Mapping[str, Any] = REQUIREMENTS["k"],
    attributes: Mapping[str, Any] | None = None,
    source: Mapping[str, Any] | None = None,
    search: Mapping[str, Any] | None = None,
    **sections: Any,
) -> sqlanon.Policy:
    place = {"undeclared": "drop", **(source or {"table": "people"})}
    if {"k_map", "delta_presence"} & set(privacy):
        sections["population"] = {"table": "town", **({"person": "who"} if "person" in place else {})}
    spec, search = {**ATTRIBUTES, **(attributes or {})}, {"suppression_limit": 0.4, **(search or {})}
    return sqlanon.Policy(attributes=spec, privacy=dict(privacy), source=place, search=search, **sections)


def do(job: Job, connection: duckdb.DuckDBPyConnection, directory: Path) -> None:
    """Anonymize, and publish."""
    with pytest.MonkeyPatch.context() as patch, sqlanon.connect(connection) as db:
        if job.large:
            patch.setattr(SMALL_SET, 0)
        with suppress(sqlanon.InfeasibleError):
            result = db.anonymize(job.policy)
            if job.publish:
                result.publish(directory / f"{job.name}.duckdb")


def people(rng: random.Random, rows: int = 60) -> duckdb.DuckDBPyConnection:
    """Random rows: NULLs, names with quotes, case and accents, negative numbers, decimals, dates."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    columns = 'zip VARCHAR, age INTEGER, "bo""rn" DATE, ill VARCHAR, "`pay`" DECIMAL(8,2), cost DECIMAL(8,2), '
    columns += "size DOUBLE, who VARCHAR"
    for name in ("people", "town"):
        connection.execute(f"CREATE TABLE {name} ({columns})")
        many = [_person(rng) for _ in range(rows if name == "people" else 2 * rows)]
        connection.executemany(f"INSERT INTO {name} VALUES (?, ?, ?, ?, ?, ?, ?, ?)", many)
    connection.execute("INSERT INTO town SELECT * FROM people")
    return connection


def _person(rng: random.Random) -> list[Any]:
    day = date(1980, 1, 1) + timedelta(days=rng.randrange(90))
    return [
        rng.choice(["0213", "0214", "ÉA", "éa", "ea", "it's", "\\x", None]),
        rng.choice([-7, -3, 0, 4, 12, 18, None]),
        rng.choice([day, date(1979, 12, 31), None]),
        rng.choice(["flu", "Flu", "cold", "cancer", "Gout", "grippe"]),
        rng.choice([Decimal("-1.50"), Decimal("0.00"), Decimal("99.99"), Decimal("7.25"), None]),
        Decimal(rng.randrange(-5000, 5000)) / 100,
        rng.choice([rng.uniform(-20, 20), 0.5, -0.0, None]),
        rng.choice([f"p{i}" for i in range(25)] + [None]),
    ]
