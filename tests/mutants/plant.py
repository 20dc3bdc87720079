"""Mutation testing: plant small faults one by one, and list those that no test notices.

    python tests/mutants/plant.py --since main --sample 20                  on the lines that differ from a commit
    python tests/mutants/plant.py --file sqlanon/strategies/local/cells.py      in a file
    python tests/mutants/plant.py --anywhere 20                             in the whole package, at random
    python tests/mutants/plant.py --list tests/mutants/first.toml           those of a list

Other arguments go to pytest and select the tests. The default is the quick tests of the folder with the name of the
faulty file's folder, then the quick lane; `--near` leaves out the latter.

Each fault is planted in a copy of the checkout. Where a run of tests takes longer than `--patience`, or than is left of
`--stop-after`, the fault counts as noticed, and its line says LATE. The exit status is 1 if more faults survive than
`--survivors`.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from faults import mutants_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
COPIED = (
    "sqlanon", "sql", "tests", "docs", "benchmarks", ".ci", "pyproject.toml", "zensical.toml", "README.md",
    "CONTRIBUTING.md", "EXTENDING.md", "CHANGELOG.md", "LICENSE",
)  # fmt: skip
QUICK = ["-m", "not slow"]


@dataclass(frozen=True)
class Fault:
    """A named fault in a file; ``apply`` plants it in the text of the file."""

    name: str
    file: str
    apply: Callable[[str], str]


def listed_faults(path: Path) -> list[Fault]:
    """The faults of a list: each replaces the text ``old``, which occurs once in ``file``, by ``new``.

    The lines after its first may be indented otherwise.
    """
    entries = tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]

    def fault(entry: dict[str, str]) -> Fault:
        first, *further_lines = entry["old"].split("\n")
        lines = [re.escape(first), *(rf"[ \t]*{re.escape(line.lstrip())}" if line else "" for line in further_lines)]
        old = "\n".join(lines)

        def apply(text: str) -> str:
            places = list(re.finditer(old, text))
            if len(places) != 1:
                raise SystemExit(f"{entry['id']}: its text occurs {len(places)} times in {entry['file']}")
            return text[: places[0].start()] + entry["new"] + text[places[0].end() :]

        return Fault(f"{entry['id']} {entry['file']}: {entry['effect']}", entry["file"], apply)

    return [fault(entry) for entry in entries]


def changed_lines(commit: str) -> Iterator[tuple[str, set[int]]]:
    """The files of the package that differ from a commit, and the new lines of each."""
    prefixes = ["--src-prefix=a/", "--dst-prefix=b/"]
    diff = _git("diff", "--unified=0", *prefixes, commit, "--", "sqlanon/*.py")
    for part in re.split(r"^diff --git .*$", diff, flags=re.MULTILINE)[1:]:
        path = re.search(r"^\+\+\+ b/(.+)$", part, flags=re.MULTILINE)
        hunks = re.findall(r"^@@ \S+ \+(\d+)(?:,(\d+))? @@", part, flags=re.MULTILINE)
        if path is not None:
            lines = {line for first, count in hunks for line in range(int(first), int(first) + int(count or 1))}
            yield path[1], lines

    for name in _git("ls-files", "--others", "--exclude-standard", "--", "sqlanon/*.py").splitlines():
        yield name, {*range(1, 1 + len((ROOT / name).read_text(encoding="utf-8").splitlines()))}


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE).stdout


def generate_faults(file: str, lines: set[int] | None = None) -> list[Fault]:
    text = (ROOT / file).read_text(encoding="utf-8")
    return [Fault(mutant.name, file, mutant.applied) for mutant in mutants_of(Path(file), text, lines)]


def draw_faults(number: int, rng: random.Random) -> Iterator[Fault]:
    """Random faults in the whole package; the chance of a file is proportional to its length."""
    files = sorted((ROOT / "sqlanon").rglob("*.py"))
    lengths = [path.stat().st_size for path in files]
    while number:
        (path,) = rng.choices(files, lengths)
        if faults := generate_faults(path.relative_to(ROOT).as_posix()):
            yield rng.choice(faults)
            number -= 1


class Copy:
    """A copy of the checkout in which one fault is planted at a time."""

    def __init__(self, folder: Path, patience: float) -> None:
        self.folder, self.patience = folder, patience
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, folder / name)  # with the bytecode: its files keep their times
            else:
                shutil.copy2(source, folder / name)

    def plant(self, fault: Fault, runs: Sequence[Sequence[str]]) -> str:
        """Plant a fault, and return the first result of a run of tests other than ``SURVIVED``, if any."""
        path = self.folder / fault.file
        text = path.read_text(encoding="utf-8")
        _rewrite(path, fault.apply(text))
        try:
            return next((result for tests in runs if (result := self.run(tests)) != "SURVIVED"), "SURVIVED")
        finally:
            _rewrite(path, text)

    def run(self, tests: Sequence[str]) -> str:
        """Run tests: ``SURVIVED`` if they pass, ``killed`` if one fails, or ``LATE``."""
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
        data = os.environ.get("SQLANON_DATA", str(ROOT.parent / "shared" / "data"))
        environment = {"SQLANON_EXAMPLES": "0.1", **os.environ, "PYTHONPATH": str(self.folder), "SQLANON_DATA": data}
        with subprocess.Popen(
            command,
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                output, _ = process.communicate(timeout=self.patience)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # its workers, too
                return "LATE"
        if process.returncode not in (0, 1, 2, 5):  # 2: a file of tests cannot be imported; 5: no tests
            raise SystemExit(f"pytest failed with status {process.returncode}: {output[-2_000:]}")
        return "SURVIVED" if process.returncode in (0, 5) else "killed"


def _rewrite(path: Path, text: str) -> None:
    """Write a file with a later time of modification, so that Python compiles it again."""
    later = path.stat().st_mtime + 2
    path.write_text(text, encoding="utf-8")
    os.utime(path, (later, later))


def runs_for(fault: Fault, tests: Sequence[str], near: bool = False) -> list[list[str]]:
    """The arguments of the runs of pytest, in their order; the first that fails notices the fault."""
    if tests:
        return [[*QUICK, *tests] if "-m" not in tests else [*tests]]
    parts = Path(fault.file).parts
    folder = Path("tests", parts[1]) if len(parts) > 2 else None
    first = [[*QUICK, "-n", "auto", str(folder)]] if folder is not None and (ROOT / folder).is_dir() else []
    return first if near and first else [*first, [*QUICK, "-n", "auto"]]


def choose_faults(arguments: argparse.Namespace) -> list[Fault]:
    if arguments.list:
        faults = listed_faults(arguments.list)
    elif arguments.anywhere is not None:
        faults = list(draw_faults(arguments.anywhere, random.Random(arguments.seed)))
    elif arguments.since:
        faults = [fault for file, lines in changed_lines(arguments.since) for fault in generate_faults(file, lines)]
    else:
        faults = [fault for file in arguments.file for fault in generate_faults(file)]
    faults = [fault for fault in faults if arguments.only in fault.name]
    if not faults:
        raise SystemExit("no fault to plant: choose other lines or another name")
    if arguments.sample is not None and arguments.sample < len(faults):
        faults = sorted(random.Random(arguments.seed).sample(faults, arguments.sample), key=lambda fault: fault.name)
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--since", metavar="COMMIT", help="on the lines that differ from a commit")
    source.add_argument("--file", action="append", help="in a file of the package")
    source.add_argument("--anywhere", type=int, metavar="NUMBER", help="this number in the whole package, at random")
    source.add_argument("--list", type=Path, help="those of a TOML file")
    parser.add_argument("--only", default="", help="those whose names have this text")
    parser.add_argument("--sample", type=int, help="how many of them to plant, drawn at random")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--patience", type=float, default=1_800, metavar="SECONDS", help="of one run of tests")
    parser.add_argument("--stop-after", type=float, metavar="SECONDS", help="of all faults together")
    parser.add_argument("--near", action="store_true", help="only the tests of the faulty file's folder, if it has any")
    parser.add_argument("--passed", action="store_true", help="the tests are known to pass without a fault")
    parser.add_argument("--survivors", type=int, default=0, help="the number of faults that may survive")
    arguments, tests = parser.parse_known_args()
    faults = choose_faults(arguments)
    survivors, planted, sound = list[Fault](), 0, list[list[str]]()
    stop_at = time.perf_counter() + (math.inf if arguments.stop_after is None else arguments.stop_after)
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder), arguments.patience)
        for fault in faults:
            if (seconds_left := stop_at - time.perf_counter()) <= 0:
                break
            copy.patience = min(arguments.patience, seconds_left)
            planted += 1
            runs = runs_for(fault, tests, arguments.near)
            for run in runs:
                if not (arguments.passed or run in sound or copy.run(run) == "SURVIVED"):
                    raise SystemExit(f"these tests fail without a fault: pytest {' '.join(run)}")
                sound.append(run)
            started = time.perf_counter()
            result = copy.plant(fault, runs)
            if result == "SURVIVED":
                survivors.append(fault)
            print(f"{result:8} {time.perf_counter() - started:5.0f} s  {fault.name}", flush=True)
    print(f"{planted - len(survivors)} of {planted} faults were noticed; {len(faults) - planted} were not planted")
    return 1 if len(survivors) > arguments.survivors else 0


if __name__ == "__main__":
    sys.exit(main())
