"""Shared parts of the benchmarks: tables, policies in TOML, measured processes, results, tables in Markdown."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DATA = Path(os.environ.get("SQLANON_DATA") or HERE.parents[1] / "shared" / "data")

ADULT = ("sex", "age", "race", "marital-status", "education", "native-country", "workclass", "salary-class")
CASES = {
    "Adult-8": ("adult", ADULT),
    "Adult-9": ("adult", (*ADULT[:7], "occupation", ADULT[7])),
    "FARS-8": (
        "fars",
        ("iage", "irace", "ideathmon", "ideathday", "isex", "ihispanic", "istatenum", "iinjury"),
    ),
}
"""The quasi-identifiers of a case, and the folder of its table."""


@dataclass(frozen=True)
class Measured:
    """A process that has ended.

    Attributes
    ----------
    seconds:
        Wall time, from its start to its end.
    processor:
        Its processor time, user and system, of all threads.
    peak:
        The most memory that it held, in bytes (its own: children of it are not counted).
    status:
        Its exit status; negative where a signal ended it, as after the time-out.
    """

    seconds: float
    processor: float
    peak: int
    status: int
    output: str
    errors: str
    timed_out: bool


def run_measured(
    command: Sequence[str | Path], timeout: float | None = None, environment: Mapping[str, str] | None = None
) -> Measured:
    """Run a command as a separate process and measure it; kill it after ``timeout`` seconds.

    The kernel counts the memory of the program that starts a process to the process's peak: this one stays small, and
    leaves tables to others. The bytecode is kept, as in an installed package.
    """
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        started = time.perf_counter()
        process = subprocess.Popen(
            [str(part) for part in command], stdout=output, stderr=errors, env={**inherited, **(environment or {})}
        )
        timer = threading.Timer(timeout, process.kill) if timeout is not None else None
        if timer is not None:
            timer.start()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        if timer is not None:
            timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        unit = 1 if sys.platform == "darwin" else 1024
        output.seek(0)
        errors.seek(0)
        return Measured(
            seconds,
            usage.ru_utime + usage.ru_stime,
            usage.ru_maxrss * unit,
            process.returncode,
            output.read(),
            errors.read(),
            timeout is not None and seconds >= timeout,
        )


def python(*arguments: str | Path, environment: Mapping[str, str] | None = None) -> Measured:
    """`measured`, of this Python, to success."""
    command = [sys.executable, *arguments]
    return successful(run_measured(command, environment=environment), command)


def successful(done: Measured, command: Sequence[str | Path]) -> Measured:
    """A process that succeeded; any other exit status than 0 ends the benchmark."""
    if done.status:
        sys.exit(f"{shlex.join(map(str, command))}: exit status {done.status}\n{done.errors or done.output}")
    return done


@dataclass(frozen=True)
class Limits:
    """The limits of a process; None: no limit."""

    memory: str | None
    threads: int | None

    def options(self) -> list[str]:
        """The limits as options of the command line."""
        memory = [] if self.memory is None else ["--memory-limit", self.memory]
        return memory + ([] if self.threads is None else ["--threads", str(self.threads)])

    def __str__(self) -> str:
        return f"memory limit {self.memory or 'none'}, {self.threads or os.cpu_count()} threads"


@dataclass(frozen=True)
class Job:
    """A run of ``sqlanon anonymize``: its process, what it printed, and what it left in its ``TMPDIR``."""

    process: Measured
    figures: dict[str, Any]
    left: list[str]

    @property
    def seconds(self) -> float:
        """The seconds of the whole process."""
        return self.process.seconds

    def stages(self) -> str:
        """Its own seconds by stage, as people read them."""
        seconds = self.figures["seconds"].items()
        return ", ".join(f"{stage} {taken:.2f}" for stage, taken in seconds if stage != "total")


def sqlanon_command(
    command: str, policy: Mapping[str, Any], folder: Path, limits: Limits
) -> tuple[list[str | Path], dict[str, str]]:
    """A command of sqlanon for a policy, and the environment to run it in.

    Parameters
    ----------
    policy:
        Its tree. The catalog and the release of an earlier run are removed.
    folder:
        For the policy and its catalog; with a folder ``tmp`` in it for what does not fit in memory.
    """
    temporary = folder / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    file = folder / "policy.toml"
    release = policy["release"]
    for old in (folder / "sqlanon.catalog.duckdb", Path(release.get("file") or release["database"])):
        old.unlink(missing_ok=True)
    file.write_text(toml(policy), encoding="utf-8")
    arguments: list[str | Path] = [sys.executable, "-m", "sqlanon", command, file, "--json", *limits.options()]
    return arguments, {"TMPDIR": str(temporary)}


def anonymize(policy: Mapping[str, Any], folder: Path, limits: Limits) -> Job:
    """The whole job as a separate process: ``sqlanon anonymize policy.toml --json``; see `sqlanon_command`."""
    command, environment = sqlanon_command("anonymize", policy, folder, limits)
    done = successful(run_measured(command, environment=environment), command)
    return Job(done, json.loads(done.output), sorted(path.name for path in Path(environment["TMPDIR"]).iterdir()))


def quasi_attributes(case: str) -> dict[str, Any]:
    """The quasi-identifiers of a case, with the hierarchies from its folder."""
    name, quasi = CASES[case]
    return {
        attribute: {"role": "quasi", "hierarchy": {"file": str(DATA / name / f"hierarchy_{attribute}.csv")}}
        for attribute in quasi
    }


def case_policy(
    case: str, k: int, limit: float, release: Path, source: Mapping[str, Any] | None = None, measure: str = "loss"
) -> dict[str, Any]:
    """The policy of a case, as a tree; its source is the case's own CSV, unless another is given. The release is a
    Parquet file or a DuckDB file, by the ending of its name."""
    name = CASES[case][0]
    return {
        "source": {"undeclared": "drop", **(source or {"files": str(DATA / name / f"{name}.csv")})},
        "attributes": quasi_attributes(case),
        "privacy": {"k": k},
        "search": {"suppression_limit": limit, "measure": measure},
        "release": {"file" if release.suffix == ".parquet" else "database": str(release), "table": name},
    }


def toml(tree: Mapping[str, Any]) -> str:
    """A policy in TOML, a section after the other."""
    return "\n".join(
        f"[{section}]\n" + "".join(f"{json.dumps(key)} = {_inline(value)}\n" for key, value in keys.items())
        for section, keys in tree.items()
    )


def _inline(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_inline(part)}" for key, part in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_inline, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def parser(description: str | None, makes_tables: bool = True) -> argparse.ArgumentParser:
    """The arguments that all scripts have."""
    argument_parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if makes_tables:
        argument_parser.add_argument(
            "--data", type=Path, help="keep the tables that are made in this folder; default: none is"
        )
    argument_parser.add_argument(
        "--results", type=Path, help="append the figures to results.jsonl in this folder, for plot.py"
    )
    return argument_parser


def add_limits(arguments: argparse.ArgumentParser, memory: str | None) -> None:
    """The arguments of scripts whose processes have limits."""
    arguments.add_argument("--memory-limit", default=memory, help=f"of DuckDB; default: {memory or 'its own'}")
    arguments.add_argument("--threads", type=int, default=os.cpu_count(), help="default: one per processor")


@contextmanager
def folders(data: Path | None) -> Iterator[tuple[Path, Path]]:
    """A folder for tables that are made once, and one for what a run makes, on the same disk; gone at the end."""
    with ExitStack() as stack:
        if data is None:
            data = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sqlanon-benchmarks-")))
        data.mkdir(parents=True, exist_ok=True)
        yield data, Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="run-", dir=data)))


def require_tables() -> None:
    """End here where Adult and FARS are not found."""
    if not (DATA / "adult" / "adult.csv").is_file():
        sys.exit(f"no tables in {DATA}: set SQLANON_DATA")


def warm(*files: Path) -> None:
    """Read files, so that they are in the disk's cache for whoever comes first."""
    for file in files:
        with file.open("rb") as opened:
            while opened.read(1 << 20):
                pass


def machine() -> str:
    """The machine and the versions, in a line."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("sqlanon", "duckdb"))
    return (
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors, {memory:.0f} GB of memory; "
        f"Python {platform.python_version()}, {versions}"
    )


def record(results: Path | None, benchmark: str, tool: str, rows: int, seconds: float, **figures: Any) -> None:
    """Append a figure to the results, if they are kept."""
    if results is None:
        return
    results.mkdir(parents=True, exist_ok=True)
    line = {"benchmark": benchmark, "tool": tool, "rows": rows, "seconds": round(seconds, 4), **figures}
    stamped = {"at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "machine": machine(), **line}
    with (results / "results.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(stamped) + "\n")


def row(*cells: object) -> None:
    """Print a row of a Markdown table, at once."""
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def header(*names: str) -> None:
    """Print the head of a Markdown table."""
    row(*names)
    row(*["---"] * len(names))


def gigabytes(size: int) -> str:
    """A size as people read it."""
    return f"{size / 1e9:.2f} GB"
