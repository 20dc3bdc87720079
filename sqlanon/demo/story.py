"""The story of the demo: a table without names is linked to names, is anonymized, and is linked again."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import sqlanon
from sqlanon.demo.attack import GROUND, QUASI, Attack, attack
from sqlanon.demo.hospital import make_hospital
from sqlanon.errors import SourceError
from sqlanon.support.terminal import format_percent, print_lines, print_table

HOSPITAL, RELEASE = "hospital.duckdb", "release.duckdb"
POLICY, FIRST_POLICY = "policy.toml", "first.toml"
"""The policy of the demo, and that of docs/tutorial/policy.md, which other pages of the docs start from."""

FILES = (HOSPITAL, POLICY, RELEASE, FIRST_POLICY, "sqlanon.catalog.duckdb", "policy.catalog.duckdb")
_MARK = b"# Made by `sqlanon demo`, which may replace it."


@dataclass(frozen=True)
class Demo:
    """The files and figures of the demo. Paths are absolute."""

    hospital: Path
    policy: Path
    release: Path
    generalization: dict[str, int]
    before: Attack
    after: Attack
    verified: bool


def run_demo(directory: Path, rows: int) -> Demo:
    """Make a hospital in a directory, attack it with a voter list, anonymize it, and attack the release.

    >>> run_demo(Path("sqlanon-demo"), 100_000)  # doctest: +SKIP
    """
    started = time.perf_counter()
    folder = _prepare_folder(directory)
    hospital, policy, release = folder / HOSPITAL, folder / POLICY, folder / RELEASE

    print_lines(f"1. A hospital with {rows:,} invented patients, and an invented voter list.")
    make_hospital(hospital, rows)

    print_lines("2. The names are removed, but ZIP, birth date and sex are also in the voter list.")
    before = attack(hospital, hospital, GROUND)
    _print_disclosure(before)

    print_lines("3. sqlanon generalizes until everybody looks like at least four others,")
    print_lines("   with the least loss that a full-domain generalization can have.")
    anonymizing = time.perf_counter()
    with sqlanon.connect() as database:
        result = database.anonymize(sqlanon.Policy.load(policy))
        verified = result.publish().verify().verified
    seconds = time.perf_counter() - anonymizing
    generalization = {name: level for name, level in result.generalization.items() if level is not None}
    levels = ", ".join(f"{name} {level}" for name, level in generalization.items())
    print_lines(
        f"   Levels: {levels}; {result.measure} {result.score:.3f}; {result.suppressed_rows:,} rows suppressed."
    )
    print_lines(f"   {'Published, verified' if verified else 'NOT VERIFIED'}: {seconds:.1f} s.")

    print_lines("4. The same attack on the release, by an attacker who knows what the labels mean:")
    after = attack(hospital, release, generalization)
    print_lines(f"   {after.linkage.identified:,} patients get a name.")
    if after.victim is not None and after.matching is not None:
        matching = after.matching
        print_lines(f"   {after.victim.name} is now {matching.zip}, {matching.birth_date}, {matching.sex}:")
        print_lines(f"   {matching.rows:,} rows fit, with {matching.diagnoses} diagnoses.")

    seconds = time.perf_counter() - started
    print_lines("")
    print_table(["", "before", "after"], figures(before, after))
    print_lines("")
    print_lines("\n".join(_describe_files(hospital, policy, release)))
    print_lines(f"\n{seconds:.1f} seconds.")
    return Demo(hospital, policy, release, generalization, before, after, verified)


def _prepare_folder(directory: Path) -> Path:
    """Create the directory and write the policies, whose first line marks the files as the demo's."""
    folder = directory.expanduser().resolve()
    policy = folder / POLICY
    try:
        folder.mkdir(parents=True, exist_ok=True)
        existing = [name for name in FILES if (folder / name).exists()]
        if existing and not (policy.is_file() and policy.read_bytes().startswith(_MARK)):
            raise SourceError(f"{folder} has other files called {', '.join(existing)}: name another folder (--dir)")
        for name in (POLICY, FIRST_POLICY):
            shutil.copyfile(Path(__file__).with_name(name), folder / name)
    except OSError as error:
        raise SourceError(f"the demo cannot write to {folder}: {error.strerror or error}") from error
    return folder


def _print_disclosure(before: Attack) -> None:
    victim, linkage = before.victim, before.linkage
    if victim is None:
        print_lines("   Nobody is identified: there are too few patients. Use a larger number (--rows).")
        return
    share = format_percent(linkage.identified, linkage.rows)
    names = f"{before.right_names:,} of them the right one"
    print_lines(f"   {linkage.identified:,} patients ({share}) get a name, {names}.")
    person = f"{victim.zip}, {victim.birth_date}, {victim.sex}"
    print_lines(f"   One is {victim.name}: one patient and one voter have {person}.")
    print_lines(f"   Diagnosis: {victim.diagnosis}.")


def figures(before: Attack, after: Attack) -> list[list[str]]:
    """The table of the demo: a name, and a number before and after."""
    rows = {
        "patients": (before.linkage.rows, after.linkage.rows),
        "identified by name": (before.linkage.identified, after.linkage.identified),
        "unique on ZIP, birth date, sex": (before.linkage.unique, after.linkage.unique),
        f"k: smallest class on {', '.join(QUASI)}": (before.smallest_class, after.smallest_class),
    }
    return [[name, *(f"{value:,}" for value in values)] for name, values in rows.items()]


def _describe_files(hospital: Path, policy: Path, release: Path) -> list[str]:
    """The files of the demo, and the commands to run next; a path to the program if it is not on the PATH."""
    program = "sqlanon" if shutil.which("sqlanon") else shlex.quote(str(Path(sys.executable).with_name("sqlanon")))
    columns = ", ".join(f"'{name}'" for name in QUASI)
    check = f"FROM sqlanon.k_anonymity('patients', [{columns}])"
    code = f"import duckdb; print(duckdb.connect({str(release)!r}, read_only=True).sql({check!r}))"
    descriptions = {
        hospital: "the source tables",
        policy: "the policy: edit it and run anonymize again",
        policy.with_name(FIRST_POLICY): "the policy of the tutorial, for the examples of the docs",
        release: "the release, to share",
    }
    width = max(len(str(path)) for path in descriptions)
    return [
        "Files:",
        *(f"  {path!s:{width}}  {description}" for path, description in descriptions.items()),
        "Next:",
        f"  {program} verify {shlex.quote(str(release))}",
        f"  {shlex.quote(sys.executable)} -c {shlex.quote(code)}",
        f"  {program} risk {shlex.quote(str(policy))}",
        f"  {program} anonymize {shlex.quote(str(policy))}",
    ]
