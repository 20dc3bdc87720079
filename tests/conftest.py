"""Fixtures and helpers that tests of several features share."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest
from _pytest.doctest import DoctestModule
from hypothesis import HealthCheck, settings
from postgres_intruder import Intruder
from postgres_server import VARIABLE, running
from spark_cluster import Cluster, cluster

import sqlanon
from sqlanon.release import contents
from sqlanon.release.targets.file import target as file_target
from sqlanon.support.resources import RELEASE_MACROS, macro_scripts

gc.disable()  # until all tests are collected: what they are made of stays

# Bytecode is kept, as in an installed package, whatever the shell says: tests start many processes.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

DUCKDB_1 = duckdb.__version__.startswith("1.")
"""Whether this is the older DuckDB, which cannot do a few things by itself."""


def data_folder() -> Path | None:
    """The folder of real tables, hierarchies and proven optima: ``SQLANON_DATA``, else beside the project."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("SQLANON_DATA") or beside)
    return folder if (folder / "known_optima.json").is_file() else None


EXAMPLES = float(os.environ.get("SQLANON_EXAMPLES", "1"))
"""Factor for the usual number of examples of each property; above 1 for a run overnight before a release."""


def examples(usual: int) -> int:
    """The number of examples that a property draws."""
    return max(1, round(EXAMPLES * usual))


def draw_tables(least: int, usual: int) -> int:
    """The number of random tables that an oracle check draws: as `examples`, but never fewer than ``least``, since a
    single table misses most faults."""
    return max(least, examples(usual))


SEARCHING = EXAMPLES >= 1
"""Whether properties draw new examples on every run. If few are drawn, as in CI, they stay the same, so that a failure
comes from the change."""

# No deadline: the time of an example depends on the load of the machine.
settings.register_profile(
    "sqlanon",
    max_examples=examples(100),
    deadline=None,
    derandomize=not SEARCHING,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("sqlanon")


@pytest.fixture(scope="session")
def data() -> Path:
    folder = data_folder()
    if folder is None:
        pytest.skip("no test data: SQLANON_DATA names no folder of it, and there is none beside the project")
    return folder


@pytest.fixture(scope="module")
def plain_macros() -> Iterator[None]:
    """Release files get only the macros that check k and the digest: loading a file takes half the time.

    For tests that need no macros of other requirements.
    """
    with pytest.MonkeyPatch.context() as patch:
        for module in (contents, file_target):
            patch.setattr(module, "macro_scripts", lambda files=RELEASE_MACROS: macro_scripts(files))
        contents._library_statements.cache_clear()
        yield
    contents._library_statements.cache_clear()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Any]:
    """A PostgreSQL server of our own, with its address in an environment variable, and with a hostile role that may
    create in the schemas of all tests."""
    with running() as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, server.address())
        with closing(Intruder(server)) as server.intruder:
            yield server


@pytest.fixture(autouse=True)
def nothing_of_the_intruder_runs(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test in which the server ran a function of the hostile role with the rights of the data holder."""
    yield
    if "postgres" in request.fixturenames:
        assert "holder" not in request.getfixturevalue("postgres").intruder.sprung()


@pytest.fixture(scope="session")
def spark_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A Spark of our own, for all tests."""
    asking = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]
    marked = {item.nodeid for item in request.session.items if item.get_closest_marker("spark")}
    assert asking in marked, "it would run nowhere: @pytest.mark.usefixtures('spark_cluster')"
    with cluster() as running_cluster:
        yield running_cluster


@pytest.fixture(scope="session")
def spark(spark_cluster: Cluster) -> Any:
    """A classic session of it."""
    return spark_cluster.session


CHEAP = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}


@pytest.fixture(scope="module")
def session(spark: Any) -> Iterator[Any]:
    """The classic session without optimizations for large tables: queries are compiled in a third of the time."""
    before = {name: spark.conf.get(name, None) for name in CHEAP}
    for name, value in CHEAP.items():
        spark.conf.set(name, value)
    yield spark
    for name, was in before.items():
        spark.conf.unset(name) if was is None else spark.conf.set(name, was)


@pytest.fixture(scope="session")
def spark_connect(spark_cluster: Cluster) -> Iterator[Any]:
    """A session of its server of Spark Connect: of the thin client."""
    from pyspark.sql.connect.session import SparkSession  # noqa: PLC0415  (it is an extra)

    session = SparkSession.builder.remote(spark_cluster.connect).create()
    yield session
    session.stop()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Assign tests to lanes.

    Tests that need Spark are slow, and share one session: one process runs them all, with ``-n 0 -m spark``. Cases
    beyond the number in ``cases`` are slow. If ``SQLANON_EXAMPLES`` is below 1, no thorough test runs, and of the slow
    cases of each test the same share, or all if it is marked ``whole``.
    """
    in_parallel = "PYTEST_XDIST_WORKER" in os.environ
    for item in items:
        if "spark_cluster" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
        if item.get_closest_marker("spark") or item.get_closest_marker("thorough"):
            item.add_marker(pytest.mark.slow)
        if in_parallel and item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.skip(reason="Spark is started once: pytest -n 0 -m spark"))
    for cases in group_cases(item for item in items if not item.get_closest_marker("slow")):
        if mark := cases[0].get_closest_marker("cases"):
            for item in set(cases) - set(spread(cases, mark.args[0])):
                item.add_marker(pytest.mark.slow)
    left_out = {item for item in items if item.get_closest_marker("thorough") and not SEARCHING}
    slow = [item for item in items if item.get_closest_marker("slow") and not item.get_closest_marker("whole")]
    for cases in group_cases(item for item in slow if item not in left_out):
        left_out |= set(cases) - set(share(cases))
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Skip files without examples in docstrings: to search all docstrings takes a tenth of the collection."""
    collectors = yield
    if ">>>" in file_path.read_text(encoding="utf-8", errors="replace"):
        return collectors
    return [collector for collector in collectors if not isinstance(collector, DoctestModule)]


def pytest_collection_finish() -> None:
    """Exempt modules and tests, which stay until the end, from garbage collection: it takes a twentieth of the time."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(10_000, 10, 10)


def pytest_unconfigure() -> None:
    gc.unfreeze()  # DuckDB reports objects that outlive the process as leaks


LEAST_CASES = 2
"""The number of slow cases of a test that run even if fewer examples are drawn."""


def group_cases(items: Iterable[pytest.Item]) -> list[list[pytest.Item]]:
    """The cases of each test."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return list(cases.values())


def share(cases: list[Any], least: int = LEAST_CASES) -> list[Any]:
    """The same share of the cases as of the examples, evenly spread."""
    return spread(cases, max(least, examples(len(cases))))


def spread(cases: list[Any], number: int) -> list[Any]:
    """A number of the cases, evenly spread."""
    number = min(len(cases), number)
    return [cases[i * len(cases) // number] for i in range(number)]


def connection_of(db: sqlanon.Database) -> Any:
    """The connection with which a `Database` reads its source, for a live one the user's: tests look at its tables."""
    space = db._space
    return next(iter(space._readers.values()), space._engine.holder).connection


def compacted(path: Path, compression: str = "auto") -> None:
    """Write a changed release again without its unused blocks."""
    fresh = path.with_suffix(".fresh")
    with duckdb.connect() as connection:
        connection.execute(f"SET force_compression = '{compression}'")
        connection.execute(f"ATTACH '{path}' AS changed (READ_ONLY)")
        connection.execute(f"ATTACH '{fresh}' AS fresh (STORAGE_VERSION 'v1.0.0')")
        connection.execute("COPY FROM DATABASE changed TO fresh")
    fresh.replace(path)


def make_policy(attributes: Mapping[str, Any], k: int = 2, table: str | None = "t", **sections: Any) -> sqlanon.Policy:
    """A policy from its attributes; the other sections as in TOML.

    An attribute is a role, the rule of a quasi-identifier (``"mask"`` for short), or its whole table. Noise may have
    any ε.
    """
    source = {"source": {"table": table}} if table is not None else {}
    attributes = {name: _attribute(spec) for name, spec in attributes.items()}
    privacy = {"k": k, **sections.pop("privacy", {})}
    if sum(spec.get("noise", {}).get("epsilon", 0) for spec in attributes.values()) > 10:
        privacy["linkable_noise"] = True
    return sqlanon.Policy(attributes=attributes, privacy=privacy, **{**source, **sections})


def _attribute(spec: Any) -> dict[str, Any]:
    if spec in ("identifying", "sensitive", "insensitive"):
        return {"role": spec}
    if isinstance(spec, dict) and "role" in spec:
        return spec
    return {"role": "quasi", "hierarchy": {"mask": "right"} if spec == "mask" else spec}


def some(values: Iterable[Any], every: int, few: int = 1) -> list[Any]:
    """Values as parameters, tuples as several. Every ``every``-th value, from the first, is in the quick lane.

    The slow lane has every ``few``-th of all values, or all if ``SQLANON_EXAMPLES`` is above 1.
    """
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=[pytest.mark.slow] if i % every else [])
        for i, value in enumerate(values)
        if not i % every or not i % few or EXAMPLES > 1
    ]
