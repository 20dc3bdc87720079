"""Measure the seconds of each test and the lines of the package that it runs, by Python's monitoring (3.12).

Record, then list the tests that add no line within a limit of seconds, the most expensive first:

    COSTS=/tmp/costs PYTHONPATH=tests python -m pytest -p costs -n 2 -m "not slow"
    python tests/costs.py /tmp/costs --seconds 200 --times 2
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PACKAGE = str(Path(__file__).resolve().parent.parent / "sqlanon") + os.sep
TOOL = 3  # no debugger, profiler or coverage tool uses this id

Line = tuple[str, int]


class Recorder:
    """A plugin that writes a line of JSON for each test, to a file of this process."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)  # unbuffered: tests fork
        self._lines: dict[str, list[int]] = defaultdict(list)
        self._monitoring: Any = getattr(sys, "monitoring")  # noqa: B009  (of Python 3.12 on)
        events = self._monitoring.events
        self._monitoring.use_tool_id(TOOL, "costs")
        self._monitoring.register_callback(TOOL, events.PY_START, self._enter)
        self._monitoring.register_callback(TOOL, events.LINE, self._note_line)
        self._monitoring.set_events(TOOL, events.PY_START)

    def _enter(self, code: Any, offset: int) -> Any:
        if code.co_filename.startswith(PACKAGE):
            self._monitoring.set_local_events(TOOL, code, self._monitoring.events.LINE)
        return self._monitoring.DISABLE

    def _note_line(self, code: Any, line: int) -> Any:
        self._lines[code.co_filename.removeprefix(PACKAGE)].append(line)
        return self._monitoring.DISABLE

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._lines.clear()
        self._monitoring.restart_events()
        started = time.perf_counter()
        result = yield
        cost = {"test": item.nodeid, "seconds": time.perf_counter() - started, "lines": self._lines}
        os.write(self._file, json.dumps(cost).encode() + b"\n")
        return result

    def pytest_unconfigure(self) -> None:
        self._monitoring.set_events(TOOL, 0)
        self._monitoring.free_tool_id(TOOL)


def pytest_configure(config: pytest.Config) -> None:
    if folder := os.environ.get("COSTS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        config.pluginmanager.register(Recorder(Path(folder) / f"{os.getpid()}.jsonl"))


@dataclass(frozen=True)
class Cost:
    """All cases of a test together."""

    seconds: float
    lines: frozenset[Line]


def read_costs(folder: Path) -> dict[str, Cost]:
    """The costs in a folder of records, by the test's function."""
    seconds: Counter[str] = Counter()
    lines: dict[str, set[Line]] = defaultdict(set)
    for path in folder.glob("*.jsonl"):
        for text in path.read_text(encoding="utf-8").splitlines():
            record = json.loads(text)
            test = record["test"].partition("[")[0]
            seconds[test] += record["seconds"]
            lines[test].update((file, line) for file, numbers in record["lines"].items() for line in numbers)
    return {test: Cost(seconds[test], frozenset(lines[test])) for test in lines}


def choose(costs: Mapping[str, Cost], seconds: float, times: int) -> list[str]:
    """Choose tests within a limit of seconds, each time the one that adds the most lines per second.

    A line counts until ``times`` of the chosen tests run it.

    >>> costs = {"a": Cost(1, frozenset({("x", 1), ("x", 2)})), "b": Cost(5, frozenset({("x", 1)}))}
    >>> choose(costs, 10, 1), choose(costs, 10, 2)
    (['a'], ['a', 'b'])
    """
    run: Counter[Line] = Counter()

    def worth(test: str) -> float:
        new = sum(run[line] < times for line in costs[test].lines)
        return new / (costs[test].seconds + 0.01)

    chosen = list[str]()
    waiting = [(-worth(test), test) for test in costs]
    heapq.heapify(waiting)
    while waiting:
        _, test = heapq.heappop(waiting)
        now = worth(test)
        if waiting and now < -waiting[0][0]:  # a test chosen since runs some of its lines: it waits again
            if now:
                heapq.heappush(waiting, (-now, test))
        elif now and costs[test].seconds <= seconds:
            seconds -= costs[test].seconds
            run.update(costs[test].lines)
            chosen.append(test)
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="the limit of the chosen tests together")
    parser.add_argument("--times", type=int, default=1, help="the number of tests that should run each line")
    arguments = parser.parse_args()
    costs = read_costs(arguments.folder)
    chosen = choose(costs, arguments.seconds, arguments.times)
    run = {line for test in chosen for line in costs[test].lines}
    lines = {line for cost in costs.values() for line in cost.lines}
    seconds, total = (sum(costs[test].seconds for test in tests) for tests in (chosen, costs))
    print(f"{len(chosen)} of {len(costs)} tests in {seconds:.0f} of {total:.0f} s run {len(run)} of {len(lines)} lines")
    for test in sorted(costs.keys() - set(chosen), key=lambda test: -costs[test].seconds):
        print(f"{costs[test].seconds:7.1f} s  {test}")


if __name__ == "__main__":
    main()
