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
import sqlanon.release.targets.file
from sqlanon.release import contents, targets
from sqlanon.resources import PLAIN, macro_scripts

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
"""So many times the usual number of examples have the properties: more before a release, in hours nobody waits."""


def examples(usual: int) -> int:
    """How many examples a property has."""
    return max(1, round(EXAMPLES * usual))


def draw_tables(least: int, usual: int) -> int:
    """The number of random tables that an oracle check draws: as `examples`, but never fewer than ``least``, since a
    single table misses most faults."""
    return max(least, examples(usual))


SEARCHING = EXAMPLES >= 1
"""Whether properties draw new examples on every run. Where few are drawn, as in CI, they are the same, so that what
fails is the change."""

# How long an example takes is a matter of what else the machine does.
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
    """Release files have those macros alone that k and the digest are checked by: loading a file takes half the time.

    For tests of what is beside the macros. What any other requirement is checked by is not in the file then.
    """
    with pytest.MonkeyPatch.context() as patch:
        for module in (contents, targets.file):
            patch.setattr(module, "macro_scripts", lambda files=PLAIN: macro_scripts(files))
        contents._our_macros.cache_clear()
        yield
    contents._our_macros.cache_clear()


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
    """In no test does the server run a function of the hostile role with the rights of the holder."""
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
    """The classic session without what pays for large tables only: queries are compiled in a third of the time."""
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
    """Tests that need Spark are slow, and share one session: one process runs them all, with ``-n 0 -m spark``.

    Cases beyond the number in ``cases`` are slow. Where a share of the examples is drawn, a share of the slow cases of
    a test runs, and nothing that is thorough.
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
    """To look for examples in each docstring takes a tenth of the collection: few tests have one."""
    collectors = yield
    if ">>>" in file_path.read_text(encoding="utf-8", errors="replace"):
        return collectors
    return [one for one in collectors if not isinstance(one, DoctestModule)]


def pytest_collection_finish() -> None:
    """Modules and tests stay until the end: looking through them for garbage takes a twentieth of the time."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(10_000, 10, 10)


def pytest_unconfigure() -> None:
    gc.unfreeze()  # what stays beyond the end DuckDB calls leaked


LEAST_CASES = 2
"""So many slow cases of a test run, if there are, however few examples are drawn."""


def group_cases(items: Iterable[pytest.Item]) -> list[list[pytest.Item]]:
    """The cases of each test."""
    found: dict[str, list[pytest.Item]] = {}
    for item in items:
        found.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return list(found.values())


def share(cases: list[Any], least: int = LEAST_CASES) -> list[Any]:
    """As large a share of the cases as of the examples, evenly spread."""
    return spread(cases, max(least, examples(len(cases))))


def spread(cases: list[Any], number: int) -> list[Any]:
    """A number of the cases, evenly spread."""
    number = min(len(cases), number)
    return [cases[i * len(cases) // number] for i in range(number)]


def connection_of(db: sqlanon.Database) -> Any:
    """The connection that reads the source of a `Database`, of a live one the user's: to look at what it made."""
    space = db._space
    return next(iter(space._readers.values()), space._engine.holder).connection


def compacted(path: Path, compression: str = "auto") -> None:
    """Write a release anew, without the blocks that are not in use since something in it was changed."""
    fresh = path.with_suffix(".fresh")
    with duckdb.connect() as connection:
        connection.execute(f"SET force_compression = '{compression}'")
        connection.execute(f"ATTACH '{path}' AS changed (READ_ONLY)")
        connection.execute(f"ATTACH '{fresh}' AS fresh (STORAGE_VERSION 'v1.0.0')")
        connection.execute("COPY FROM DATABASE changed TO fresh")
    fresh.replace(path)


def make_policy(attributes: Mapping[str, Any], k: int = 2, table: str | None = "t", **sections: Any) -> sqlanon.Policy:
    """A policy from its attributes; the other sections as in TOML.

    An attribute is a role, the rule of a quasi-identifier (``"mask"`` for short), or all of its own table. Noise may be
    of any ε.
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
    """Values as parameters, tuples spread; the first and every so manieth of the rest are in the quick lane.

    Of the others every ``few``-th is in the slow lane, and all are where more examples are asked for.
    """
    return [
        pytest.param(*(one if isinstance(one, tuple) else (one,)), marks=[pytest.mark.slow] if i % every else [])
        for i, one in enumerate(values)
        if not i % every or not i % few or EXAMPLES > 1
    ]
