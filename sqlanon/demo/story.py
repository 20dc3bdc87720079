"""The story of the demo: a table without names is linked to names, is anonymized, and is linked again.

The second act does the same with a second table, the visits of these patients.
"""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import sqlanon
from sqlanon.demo.attack import GROUND, QUASI, Attack, attack
from sqlanon.demo.clinic import MIN_PATIENTS, Clinic, ClinicAttack, attack_visits, make_clinic, run_clinic
from sqlanon.demo.hospital import make_hospital
from sqlanon.errors import SourceError
from sqlanon.support.terminal import format_percent, print_lines, print_table

HOSPITAL, RELEASE = "hospital.duckdb", "release.duckdb"
POLICY, FIRST_POLICY = "policy.toml", "first.toml"
"""The policy of the demo, and that of docs/tutorial/policy.md, which other pages of the docs start from."""
CLINIC, CLINIC_POLICY, CLINIC_RELEASE = "clinic.duckdb", "clinic.toml", "clinic_release.duckdb"
"""The files of the second act."""

_CATALOGS = ("sqlanon.catalog.duckdb", "policy.catalog.duckdb", "clinic.catalog.duckdb")
FILES = (HOSPITAL, POLICY, RELEASE, FIRST_POLICY, CLINIC, CLINIC_POLICY, CLINIC_RELEASE, *_CATALOGS)
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
    clinic: Clinic | None


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

    print_lines("")
    print_table(["", "before", "after"], figures(before, after))
    print_lines("")
    clinic = None
    if rows >= MIN_PATIENTS:
        clinic = _tell_second_act(folder, generalization)
        verified = verified and clinic.verified
        print_lines("")
    seconds = time.perf_counter() - started
    print_lines("\n".join(_describe_files(hospital, policy, release)))
    print_lines(f"\n{seconds:.1f} seconds.")
    return Demo(hospital, policy, release, generalization, before, after, verified, clinic)


def _tell_second_act(folder: Path, levels: Mapping[str, int]) -> Clinic:
    """Release visits of the patients in addition to the table of the first act, attack them, and release both
    together."""
    make_clinic(folder / HOSPITAL, folder / CLINIC)
    before = attack_visits(folder / CLINIC, levels)
    alone, _, two = before.matches
    print_lines(f"5. {before.visits:,} visits of {alone.persons:,} of these patients are shared, too: day and ward.")
    print_lines(f"   The table of step 3 hides each of them among {alone.fewest_matches} patients or more, but one or")
    share = format_percent(two.unique_persons, two.persons)
    print_lines(f"   two visits single out {two.unique_persons:,} ({share}): no similar patient has the same.")
    if (victim := before.victim) is not None:
        visits = " and ".join(f"{day} in {ward}" for day, ward in zip(victim.days, victim.wards, strict=True))
        print_lines(f"   One is {victim.name}: {visits}.")
    print_lines("6. sqlanon generalizes patients and visits together, so that whoever knows a")
    print_lines("   patient and two visits finds five patients who have these.")
    anonymizing = time.perf_counter()
    clinic = run_clinic(folder / CLINIC, folder / CLINIC_POLICY, before)
    seconds = time.perf_counter() - anonymizing
    levels_text = ", ".join(f"{name.partition('.')[2]} {level}" for name, level in clinic.levels.items())
    print_lines(f"   Levels: {levels_text}; loss {clinic.score:.3f}.")
    print_lines(f"   {'Published, verified' if clinic.verified else 'NOT VERIFIED'} and attacked: {seconds:.1f} s.")
    print_lines("")
    print_table(["", "before", "after"], clinic_figures(before, clinic.after))
    return clinic


def _prepare_folder(directory: Path) -> Path:
    """Create the directory and write the policies, whose first line marks the files as the demo's."""
    folder = directory.expanduser().resolve()
    policy = folder / POLICY
    try:
        folder.mkdir(parents=True, exist_ok=True)
        existing = [name for name in FILES if (folder / name).exists()]
        if existing and not (policy.is_file() and policy.read_bytes().startswith(_MARK)):
            raise SourceError(f"{folder} has other files called {', '.join(existing)}: name another folder (--dir)")
        for name in (POLICY, FIRST_POLICY, CLINIC_POLICY):
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


def clinic_figures(before: ClinicAttack, after: ClinicAttack) -> list[list[str]]:
    """The table of the second act: a name, and a number before and after."""
    rows = {
        "patients": [attack.matches[0].persons for attack in (before, after)],
        "visits": [attack.visits for attack in (before, after)],
        "unique": [attack.matches[0].unique_persons for attack in (before, after)],
        "unique with one visit known": [attack.matches[1].unique_persons for attack in (before, after)],
        "unique with two visits known": [attack.matches[2].unique_persons for attack in (before, after)],
        "k: fewest patients who match, two visits known": [
            attack.matches[2].fewest_matches or 0 for attack in (before, after)
        ],
    }
    return [[name, *(f"{value:,}" for value in values)] for name, values in rows.items()]


def _describe_files(hospital: Path, policy: Path, release: Path) -> list[str]:
    """The files of the demo, and the commands to run next; a path to the program if it is not on the PATH."""
    program = "sqlanon" if shutil.which("sqlanon") else shlex.quote(str(Path(sys.executable).with_name("sqlanon")))
    columns = ", ".join(f"'{name}'" for name in QUASI)
    check = f"FROM sqlanon.k_anonymity('patients', [{columns}])"
    code = f"import duckdb; print(duckdb.connect({str(release)!r}, read_only=True).sql({check!r}))"
    clinic = hospital.with_name(CLINIC)
    descriptions = {
        hospital: "the source tables",
        policy: "the policy: edit it and run anonymize again",
        policy.with_name(FIRST_POLICY): "the policy of the tutorial, for the examples of the docs",
        release: "the release, to share",
        **(
            {
                clinic: "patients and their visits",
                release.with_name(CLINIC_POLICY): "the policy of both tables",
                release.with_name(CLINIC_RELEASE): "their release, to share in place of the first",
            }
            if clinic.exists()
            else {}
        ),
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
        *([f"  {program} risk {shlex.quote(str(policy.with_name(CLINIC_POLICY)))}"] if clinic.exists() else []),
    ]
