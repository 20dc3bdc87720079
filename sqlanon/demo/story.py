"""The story of the demo: a table without names is linked to names, is anonymized, and is linked again."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import sqlanon
from sqlanon.demo.attack import QUASI, Attack, attack
from sqlanon.demo.hospital import make_hospital
from sqlanon.demo.linkage import GROUND
from sqlanon.errors import SourceError
from sqlanon.support.terminal import format_percent, print_lines, print_table

HOSPITAL, POLICY, RELEASE, FIRST_POLICY = "hospital.duckdb", "policy.toml", "release.duckdb", "first.toml"
FILES = (HOSPITAL, POLICY, RELEASE, FIRST_POLICY, "sqlanon.catalog.duckdb", "policy.catalog.duckdb")
_MARK = "# Made by `sqlanon demo`, which may replace it."
_POLICY = f"""\
{_MARK}

[source]
database = "{HOSPITAL}"
table = "patients"

[attributes]
name       = {{ role = "identifying" }}                         # never released
address    = {{ role = "identifying" }}
zip        = {{ role = "quasi", hierarchy = {{ mask = "right" }} }} # 02139 > 0213* > 021** > ... > *
birth_date = {{ role = "quasi", hierarchy = {{ dates = ["month", "year", "decade"] }} }}
sex        = {{ role = "quasi", hierarchy = "suppress" }}        # value > *
ethnicity  = {{ role = "quasi", hierarchy = "suppress" }}
diagnosis  = {{ role = "sensitive" }}                           # released unchanged
cost       = {{ role = "insensitive" }}

[privacy]
k = 5                       # everybody looks like at least four others

[search]
suppression_limit = 0.05    # at most 5 % of the rows are left out
measure = "loss"            # the least loss among full-domain generalizations

[release]
database = "{RELEASE}"
table = "patients"
"""
_FIRST_POLICY = f"""\
{_MARK}

# sqlanon-demo/first.toml; paths are relative to it
[source]
database = "hospital.duckdb"        # opened read-only; or files = "patients/*.parquet" (CSV too)
table = "patients"                  # or query = "SELECT ..."

[attributes]
name       = {{ role = "identifying" }}                                # never released
address    = {{ role = "identifying" }}
zip        = {{ role = "quasi", hierarchy = {{ mask = "right" }} }}      # 02139 > 0213* > 021** > ... > *
birth_date = {{ role = "quasi", hierarchy = {{ dates = ["month", "year", "decade"] }} }}
sex        = {{ role = "quasi", hierarchy = "suppress" }}              # value > *
ethnicity  = {{ role = "quasi", hierarchy = "suppress", weight = 2 }}  # its loss counts twice
diagnosis  = {{ role = "sensitive" }}                                  # released unchanged
cost       = {{ role = "insensitive" }}

[privacy]
k = 5                               # the size of the smallest class

[search]
suppression_limit = 0.02            # at most 2 % of the rows are left out
measure = "loss"                    # how much detail is lost

[release]
database = "first.duckdb"           # or file = "first.parquet"
table = "patients"
"""
"""The policy of docs/tutorial/policy.md, which other pages of the docs start from."""


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
    seconds: float


def run_demo(directory: Path, rows: int) -> Demo:
    """Make a hospital in `directory`, attack it with a voter list, anonymize it, and attack the release.

    Examples
    --------
    >>> run_demo(Path("sqlanon-demo"), 100_000)  # doctest: +SKIP
    """
    start = time.perf_counter()
    home = _own(directory)
    hospital, policy, release = home / HOSPITAL, home / POLICY, home / RELEASE

    _tell(f"1. A hospital with {rows:,} invented patients, and an invented voter list.")
    make_hospital(hospital, rows)

    _tell("2. The names are removed, but ZIP, birth date and sex are also in the voter list.")
    before = attack(hospital, hospital, GROUND)
    _tell(*_gave_away(before))

    _tell(
        "3. sqlanon generalizes until everybody looks like at least four others,",
        "   with the least loss that a full-domain generalization can have.",
    )
    begun = time.perf_counter()
    with sqlanon.connect() as database:
        result = database.anonymize(sqlanon.Policy.load(policy))
        verified = result.publish().verify().verified
    generalization = {name: level for name, level in result.generalization.items() if level is not None}
    levels = ", ".join(f"{name} {level}" for name, level in generalization.items())
    _tell(
        f"   Levels: {levels}; loss {result.score:.3f}; {result.suppressed_rows:,} rows suppressed.",
        f"   {'Published, verified' if verified else 'NOT VERIFIED'}: {time.perf_counter() - begun:.1f} s.",
    )

    _tell("4. The same attack on the release, by somebody who knows what the labels mean:")
    after = attack(hospital, release, generalization)
    _tell(*_hides(after))

    seconds = time.perf_counter() - start
    print_lines("")
    print_table(["", "before", "after"], figures(before, after))
    print_lines("")
    _tell(*_made(hospital, policy, release), f"\n{seconds:.1f} seconds.")
    return Demo(hospital, policy, release, generalization, before, after, verified, seconds)


def _own(directory: Path) -> Path:
    """Make the directory and the policy in it, whose first line marks the files as the demo's."""
    home = directory.expanduser().resolve()
    policy = home / POLICY
    try:
        home.mkdir(parents=True, exist_ok=True)
        strange = [name for name in FILES if (home / name).exists()]
        if strange and not (policy.is_file() and policy.read_bytes().startswith(_MARK.encode())):
            raise SourceError(f"{home} has other files called {', '.join(strange)}: name another folder (--dir)")
        policy.write_text(_POLICY, encoding="utf-8")
        (home / FIRST_POLICY).write_text(_FIRST_POLICY, encoding="utf-8")
    except OSError as error:
        raise SourceError(f"the demo cannot write to {home}: {error.strerror or error}") from error
    return home


def _tell(*lines: str) -> None:
    for line in lines:
        print_lines(line)


def _gave_away(before: Attack) -> list[str]:
    if before.victim is None:
        return ["   Nobody is identified: there are too few patients. Use a larger number (--rows)."]
    who = before.victim
    found = before.linkage
    return [
        f"   {found.identified:,} patients ({format_percent(found.identified, found.rows)}) get a name,"
        f" {before.right_names:,} of them the right one.",
        f"   One is {who.name}: one patient and one voter have {who.zip}, {who.birth_date}, {who.sex}.",
        f"   Diagnosis: {who.diagnosis}.",
    ]


def _hides(after: Attack) -> list[str]:
    found = [f"   {after.linkage.identified:,} patients get a name."]
    if after.victim is None or after.shown is None:
        return found
    now = after.shown
    return [
        *found,
        f"   {after.victim.name} is now {now.zip}, {now.birth_date}, {now.sex}:",
        f"   {now.rows:,} rows fit, with {now.diagnoses} diagnoses.",
    ]


def figures(before: Attack, after: Attack) -> list[list[str]]:
    """The table of the demo: a name, and a number before and after."""
    lines = {
        "patients": (before.linkage.rows, after.linkage.rows),
        "identified by name": (before.linkage.identified, after.linkage.identified),
        "unique on ZIP, birth date, sex": (before.linkage.unique, after.linkage.unique),
        f"k: smallest class on {', '.join(QUASI)}": (before.smallest_class, after.smallest_class),
    }
    return [[name, *(f"{value:,}" for value in values)] for name, values in lines.items()]


def _program() -> str:
    """The command to type: a path if the environment is not activated."""
    return "sqlanon" if shutil.which("sqlanon") else shlex.quote(str(Path(sys.executable).with_name("sqlanon")))


def _made(hospital: Path, policy: Path, release: Path) -> list[str]:
    columns = ", ".join(f"'{name}'" for name in QUASI)
    check = f"FROM sqlanon.k_anonymity('patients', [{columns}])"
    code = f"import duckdb; print(duckdb.connect({str(release)!r}, read_only=True).sql({check!r}))"
    program = _program()
    quoted = {path: shlex.quote(str(path)) for path in (policy, release)}
    files = {
        hospital: "the private tables",
        policy: "the policy: edit it and run anonymize again",
        policy.with_name(FIRST_POLICY): "the policy of the tutorial, for the examples of the docs",
        release: "the release, to share",
    }
    widest = max(len(str(path)) for path in files)
    return [
        "Files:",
        *(f"  {path!s:{widest}}  {what}" for path, what in files.items()),
        "Next:",
        f"  {program} verify {quoted[release]}",
        f"  {shlex.quote(sys.executable)} -c {shlex.quote(code)}",
        f"  {program} risk {quoted[policy]}",
        f"  {program} anonymize {quoted[policy]}",
    ]
