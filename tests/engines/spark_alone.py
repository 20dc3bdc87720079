"""A process that starts a Spark of its own, looks at it from outside, and prints what it saw.

python tests/engines/spark_alone.py FOLDER
"""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
from pathlib import Path
from typing import Any

from sqlglot import parse_one

from sqlanon.engines.spark.engine import SparkEngine
from sqlanon.errors import SqlanonError


def main() -> None:
    seen: dict[str, Any] = {"handler": signal.getsignal(signal.SIGINT)}
    engine = SparkEngine.open("local[1]", "source.spark")
    driver = _driver()
    seen["java"] = str((driver / "exe").resolve())
    seen["handler"] = seen["handler"] is signal.getsignal(signal.SIGINT)
    private = next(Path(sys.argv[1]).glob("sqlanon-spill-*"))
    seen["mode"] = oct(stat.S_IMODE(private.stat().st_mode))
    seen["listens"] = sorted(_addresses(driver))
    context = engine.session.sparkContext
    secret = context.getConf().get("spark.authenticate.secret")
    seen["secret on the command line"] = secret in (driver / "cmdline").read_text()
    seen["compiles later"] = "-XX:Tier4CompileThreshold=150000" in (driver / "cmdline").read_text().split("\0")
    seen["rows"] = engine.rows(parse_one("SELECT 1 AS a", read="spark"))
    seen["error"] = _refusal(engine, "SELECT CAST(concat('Ann-of-the-tests', id) AS INT) FROM range(3)")
    engine.close()
    seen["left"] = [path.name for path in Path(sys.argv[1]).iterdir()]
    seen["driver after close"] = driver.exists()
    again = SparkEngine.open("local[1]", "source.spark")
    os.kill(int(_driver().name), signal.SIGKILL)
    seen["killed"] = _refusal(again, "SELECT 1")
    again.close()
    seen["left at last"] = [path.name for path in Path(sys.argv[1]).iterdir()]
    print(json.dumps(seen))


def _refusal(engine: SparkEngine, text: str) -> str:
    try:
        with engine.translate_errors():
            engine.rows(parse_one(text, read="spark"))
    except SqlanonError as error:
        return str(error)
    return "nothing"


def _driver() -> Path:
    """The driver: the only child of this process."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    (driver,) = [Path("/proc") / child for child in children]
    return driver


def _addresses(process: Path) -> set[str]:
    """The addresses that a process listens on, as the kernel writes them."""
    sockets = set()
    for path in (process / "fd").iterdir():
        try:
            target = os.readlink(path)  # noqa: PTH115  (not a path)
        except OSError:
            continue
        if target.startswith("socket:["):
            sockets.add(target[8:-1])
    addresses = set()
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            parts = line.split()
            if parts[3] == "0A" and parts[9] in sockets:
                addresses.add(parts[1].partition(":")[0])
    return addresses


if __name__ == "__main__":
    main()
