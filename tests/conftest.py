"""Fixtures that tests of several features share, and the lanes of the suite."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import HealthCheck, settings

from sqlanon.publish.targets.file import target as file_target
from sqlanon.release import contents
from sqlanon.support.resources import RELEASE_MACROS, macro_scripts
from support.files import data_folder
from support.lanes import SEARCHING, examples, group_cases, is_of_other_lane, share, spread
from support.servers.intruder import Intruder
from support.servers.postgres import VARIABLE, running
from support.servers.spark import CHEAP, Cluster, cluster

gc.disable()  # until all tests are collected: what they are made of stays

# Bytecode is kept, as in an installed package, whatever the shell says: tests start many processes.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


# A processor for each worker: where two share both, they wait for each other's threads for a tenth of the time.
worker = os.environ.get("PYTEST_XDIST_WORKER", "")
if not SEARCHING and worker.startswith("gw") and hasattr(os, "sched_setaffinity"):
    processors = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {processors[int(worker[2:]) % len(processors)]})

# No deadline: the time of an example depends on the load of the machine.
settings.register_profile(
    "sqlanon",
    max_examples=examples(100),
    deadline=None,
    derandomize=not SEARCHING,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("sqlanon")


SERVERS = {"spark_cluster": "spark", "postgres": "extras"}
"""The mark of tests with the fixture of a server."""


@pytest.fixture(scope="session")
def data() -> Path:
    folder = data_folder()
    if folder is None:
        pytest.skip("no test data: SQLANON_DATA names no folder of it, and there is none next to the project")
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
    """A session of its server of Spark Connect, of the thin client, with Spark's own settings in every lane."""
    from pyspark.sql.connect.session import SparkSession  # noqa: PLC0415  (it is an extra)

    session = SparkSession.builder.remote(spark_cluster.connect).create()
    for name in CHEAP:
        session.conf.unset(name)
    yield session
    session.stop()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Assign tests to lanes.

    Tests of a PostgreSQL server need its extra. Tests that need Spark are slow, and share one session: one process runs
    them all, with ``-n 0 -m spark``. Cases beyond the number in ``cases`` are slow. If ``SQLANON_EXAMPLES`` is below 1,
    no thorough test runs, and of the slow cases of each test the same share, but as many as its mark ``least`` has.
    """
    in_parallel = "PYTEST_XDIST_WORKER" in os.environ
    for item in items:
        for fixture in SERVERS.keys() & set(getattr(item, "fixturenames", ())):
            item.add_marker(SERVERS[fixture])
        if item.get_closest_marker("spark") or item.get_closest_marker("thorough"):
            item.add_marker(pytest.mark.slow)
        if in_parallel and item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.skip(reason="Spark is started once: pytest -n 0 -m spark"))
    for cases in group_cases(item for item in items if not item.get_closest_marker("slow")):
        if mark := cases[0].get_closest_marker("cases"):
            for item in set(cases) - set(spread(cases, mark.args[0])):
                item.add_marker(pytest.mark.slow)
    left_out = {item for item in items if item.get_closest_marker("thorough") and not SEARCHING}
    slow = [item for item in items if item.get_closest_marker("slow") and item not in left_out]
    for cases in group_cases(slow):
        mark = cases[0].get_closest_marker("least")
        left_out |= set(cases) - set(share(cases, *(mark.args if mark else ())))
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: Path, parent: pytest.Collector
) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Skip what the lane need not import: modules without examples in docstrings, and modules of other lanes.

    Modules that the command names are collected: pytest refuses what it does not find.
    """
    collectors = yield
    text = file_path.read_text(encoding="utf-8", errors="replace")
    named = {Path(argument.partition("::")[0]).resolve() for argument in parent.config.args}
    if file_path.resolve() not in named and is_of_other_lane(text, parent.config.option.markexpr):
        return []
    if ">>>" in text:
        return collectors
    return [collector for collector in collectors if not isinstance(collector, DoctestModule)]


def pytest_collection_finish() -> None:
    """Exempt modules and tests, which stay until the end, from garbage collection: it takes a twentieth of the time."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(10_000, 10, 10)


def pytest_unconfigure() -> None:
    gc.unfreeze()  # DuckDB reports objects that outlive the process as leaks
