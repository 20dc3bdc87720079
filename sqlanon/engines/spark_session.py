"""Sessions of Spark that we begin ourselves: beside us, on a cluster, or on a server of Spark Connect."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from sqlanon.engines.spark_errors import is_of_spark, reason_of
from sqlanon.errors import MissingLibraryError, SourceError
from sqlanon.workdir import private_files, spill_directory

_LOOPBACK = "127.0.0.1"


def open_session(address: str, place: str) -> tuple[Any, Callable[[], None]]:
    """A session, and how to end it.

    Raises
    ------
    MissingLibraryError
        pyspark is not installed.
    SourceError
        No session can be had; the address is not told, as it may hold a token.
    """
    try:
        import pyspark.sql  # noqa: F401, PLC0415  (it is an extra)
    except ImportError:
        raise MissingLibraryError(f"{place}: Spark", "pyspark", "spark") from None
    try:
        return _connected(address) if address.startswith("sc://") else _started(address, place)
    except Exception as error:
        if not is_of_spark(error):
            raise
        raise SourceError(f"{place}: Spark cannot be reached: {reason_of(error)}") from None


def _connected(address: str) -> tuple[Any, Callable[[], None]]:
    """A session of its own on a server of Spark Connect."""
    from pyspark.sql.connect.session import SparkSession  # noqa: PLC0415

    session = SparkSession.builder.remote(address).create()
    return session, session.stop


def _started(master: str, place: str) -> tuple[Any, Callable[[], None]]:
    """A session with its driver beside us; a new one in the same driver, where there is one in this process already."""
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    running = SparkContext._active_spark_context
    if running is not None:
        if running.master != master:
            raise SourceError(f"{place}: another Spark runs in this process already: give sqlanon.connect its session")
        return SparkSession(running).newSession(), lambda: None
    with ExitStack() as stack:
        folder = stack.enter_context(spill_directory())
        conf = SparkConf(loadDefaults=False).setMaster(master).setAppName("sqlanon")
        for name, value in _settings(master, folder).items():
            conf.set(name, value)
        gateway = None
        if SparkContext._gateway is None:
            with private_files():
                silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
                gateway = launch_gateway(conf, silent)  # type: ignore[no-untyped-call]
        context = SparkContext(conf=conf, gateway=gateway)
        context.setLogLevel("OFF")
        end = stack.pop_all()
    session = SparkSession(context)

    def stop() -> None:
        with suppress(Exception), end:  # the driver may be gone
            session.stop()

    return session, stop


def _settings(master: str, folder: Path) -> dict[str, str]:
    """Settings of a session that is ours."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    if master.startswith("local"):
        settings |= {"spark.driver.bindAddress": _LOOPBACK, "spark.driver.host": _LOOPBACK}
    return settings
